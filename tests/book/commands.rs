//! Commands that README and the book show: the command line takes them.

use std::process::Command;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use drover::cli::{Cli, topics};

use crate::{documents, files, none_is, root};

/// The words of a shell's line up to what ends a command.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote): (Vec<String>, Option<String>, _) =
        (Vec::new(), None, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if open == c => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (None, '#') if word.is_none() => return words,
            (None, '|' | ';' | '&' | '>') => break,
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Why the command line does not take a command.
fn refusal(words: &[String]) -> Option<String> {
    let error = Cli::try_parse_from(words).err()?;
    let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let is_page =
        matches!(words, [_, help, topic] if help == "help" && topics::page(topic).is_some());
    let text = || error.to_string().lines().next().unwrap_or_default().to_owned();
    (!is_help && !is_page).then(text)
}

/// Whether words only name a command that wants more, or a word stands for any page.
fn is_name(words: &[String]) -> bool {
    if let [_, help, what] = words
        && help == "help"
    {
        return matches!(what.as_str(), "TOPIC" | "COMMAND");
    }
    let kinds = [
        ErrorKind::MissingRequiredArgument,
        ErrorKind::MissingSubcommand,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ];
    Cli::try_parse_from(words).is_err_and(|error| kinds.contains(&error.kind()))
}

// Invariant: anyone who copies a command from README or the book can run it.

#[test]
fn every_command_in_a_block_is_one_that_drover_takes() {
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for document in documents() {
        for block in document.blocks() {
            if !matches!(block.kind.as_str(), "sh" | "console") {
                continue;
            }
            let text = block.text.replace("\\\n", " ");
            for line in text.lines().map(str::trim) {
                let line = line.strip_prefix("$ ").unwrap_or(line);
                if !line.starts_with("drover ") {
                    continue;
                }
                tried += 1;
                let why = refusal(&words(line));
                let place = document.place(block.line);
                wrong.extend(why.map(|why| format!("{place}: `{line}`: {why}")));
            }
        }
    }
    none_is(&wrong);
    assert!(tried > 50, "{tried} commands");
}

#[test]
fn every_command_in_a_sentence_is_one_too_or_the_name_of_one() {
    let mut wrong = Vec::new();
    for document in documents() {
        for (line, span) in document.code() {
            if !span.starts_with("drover ") || span.contains('…') {
                continue;
            }
            let words = words(span);
            if let Some(why) = refusal(&words).filter(|_| !is_name(&words)) {
                wrong.push(format!("{}: `{span}`: {why}", document.place(line)));
            }
        }
    }
    none_is(&wrong);
}

#[test]
fn what_messages_send_people_to_is_there() {
    let mut wrong = Vec::new();
    let sources = files("src".as_ref(), &[".rs"]).into_iter();
    for path in sources.chain(files("actors".as_ref(), &[".rs"])) {
        let text = std::fs::read_to_string(root().join(&path)).unwrap();
        for part in text.split("`drover help ").skip(1) {
            let Some((topic, _)) = part.split_once('`') else { continue };
            let names_one = topic.starts_with(|c: char| c.is_ascii_lowercase());
            let is_command = Cli::command().find_subcommand(topic).is_some();
            if names_one && !is_command && topics::page(topic).is_none() {
                wrong.push(format!("{}: no page `{topic}`", path.display()));
            }
        }
    }
    none_is(&wrong);
}

#[test]
fn drover_help_prints_a_page_as_it_is_and_names_the_nearest_where_there_is_none() {
    let run =
        |words: &[&str]| Command::new(env!("CARGO_BIN_EXE_drover")).args(words).output().unwrap();
    let out = run(&["--config", "nowhere", "help", "gitea"]);
    let page = std::fs::read(root().join("src/book/ci/gitea.md")).unwrap();
    assert!(out.status.success() && out.stdout == page, "{out:?}");
    let out = run(&["help"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success() && said.contains("ci/gitea"), "{said}");
    let out = run(&["help", "gitae"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!((out.status.code(), out.stdout.len()), (Some(2), 0), "{said}");
    assert!(said.contains("did you mean `gitea`?") && said.contains("ci/woodpecker"), "{said}");
    let out = run(&["--json", "help", "gitae"]);
    assert!(out.stderr.starts_with(b"{\"error\":"), "{out:?}");
}

#[test]
fn a_line_is_split_as_a_shell_does() {
    assert_eq!(words("drover lease -- 'a b' \"c\"  # x"), ["drover", "lease", "--", "a b", "c"]);
    assert_eq!(words("drover sim --all-nodes & x"), ["drover", "sim", "--all-nodes"]);
    assert_eq!(words("drover provision a#b"), ["drover", "provision", "a#b"]);
}
