//! `drover help TOPIC`: prints a page of the book as it is.
//!
//! clap answers `drover help COMMAND`. Where it knows no such command, `answer` looks for a page of that
//! name (`topics.rs`).

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap::error::ErrorKind;
use serde_json::json;

use super::options::Cli;
use super::report;
use super::sentences::did_you_mean;
use super::stdout::{not_written, put};
use super::topics::{PAGES, list, page};

/// Prints the page that `drover help TOPIC` asks for, or says which topics there are; none where the
/// arguments ask for something else.
pub(super) fn answer(error: &clap::Error, words: Vec<OsString>) -> Option<ExitCode> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let json = is_for_scripts(&words);
    let topic = asked(&words)?;
    let Some(page) = page(&topic) else {
        let text = unknown(&topic);
        return Some(report::fail(json, 2, &text, &format!("drover: {text}\n\n{}\n", list())));
    };
    let text = match json {
        true => format!("{}\n", json!({ "topic": page.topic, "text": page.shown() })),
        false => page.shown(),
    };
    Some(put(json, &text, ExitCode::SUCCESS))
}

/// Whether the arguments ask for JSON, or for YAML, which JSON is too.
fn is_for_scripts(words: &[OsString]) -> bool {
    let mut words = words.iter().map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        let form = match &*word {
            "--json" => return true,
            "--output" | "-o" => words.next(),
            other => ["--output=", "-o=", "-o"]
                .iter()
                .find_map(|start| other.strip_prefix(start))
                .map(|form| form.to_owned().into()),
        };
        if form.is_some_and(|form| matches!(&*form, "json" | "yaml")) {
            return true;
        }
    }
    false
}

/// The topic behind `help`, where that is the command; options may stand before it.
fn asked(words: &[OsString]) -> Option<String> {
    let at = first(words).filter(|at| words[*at] == "help")?;
    match &words[at + 1..] {
        [topic] => Some(topic.to_string_lossy().into_owned()),
        _ => None,
    }
}

/// Where the command stands; options of all commands may stand before it.
pub(super) fn first(words: &[OsString]) -> Option<usize> {
    let cli = Cli::command();
    let takes_value = |name: &str| {
        let mut options = cli.get_arguments();
        options.any(|one| one.get_long() == Some(name) && one.get_action().takes_values())
    };
    let mut words = words.iter().map(|word| word.to_string_lossy()).enumerate();
    while let Some((at, word)) = words.next() {
        match word.strip_prefix("--") {
            Some(name) if takes_value(name) => drop(words.next()),
            Some(_) => {}
            None if word == "-o" => drop(words.next()),
            None if word.starts_with('-') => {}
            None => return Some(at),
        }
    }
    None
}

/// What is said of a topic that no page has.
fn unknown(topic: &str) -> String {
    let cli = Cli::command();
    let commands = cli.get_subcommands().map(clap::Command::get_name);
    let pages = PAGES.iter().flat_map(|page| [page.topic, page.last_part()]);
    let near = did_you_mean(topic, commands.chain(pages));
    format!("unknown topic or command `{topic}`;{near} `drover help` lists all")
}

/// Reports that the arguments make no command, or gives the help or version that they ask for; as JSON
/// where that is asked for.
pub(super) fn usage(error: &clap::Error) -> ExitCode {
    // What stands behind `--` is another program's.
    let own = std::env::args_os().skip(1).take_while(|word| word != "--");
    let json = is_for_scripts(&own.collect::<Vec<_>>());
    if !error.use_stderr() {
        return shown(error, json);
    }
    if !json {
        error.exit();
    }
    let text = error.to_string();
    let text = text.trim_end();
    let code = u8::try_from(error.exit_code()).unwrap_or(u8::MAX);
    report::fail(true, code, text.strip_prefix("error: ").unwrap_or(text), "")
}

/// Gives the help or the version.
fn shown(error: &clap::Error, json: bool) -> ExitCode {
    if !json {
        // In colour where a terminal shows it.
        return error
            .print()
            .map_or_else(|fault| not_written(false, fault), |()| ExitCode::SUCCESS);
    }
    let text = error.to_string();
    let answer = if error.kind() == ErrorKind::DisplayVersion {
        json!({ "version": text.trim().rsplit(' ').next() })
    } else {
        json!({ "help": text })
    };
    put(true, &format!("{answer}\n"), ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use clap::Parser as _;

    use super::super::topics::COMMANDS_TOO;
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    // Invariant: each topic prints its page, each command its help, and a slip is named.

    #[test]
    fn the_topic_is_what_stands_behind_help() {
        assert_eq!(asked(&words("help leases.md")).as_deref(), Some("leases.md"));
        assert_eq!(asked(&words("--json --config help help rights")).as_deref(), Some("rights"));
        assert_eq!(asked(&words("--config=x help rights")).as_deref(), Some("rights"));
        for other in ["rights", "lease help", "help", "help a b", "agents help rights"] {
            assert_eq!(asked(&words(other)), None, "{other}");
        }
    }

    #[test]
    fn each_spelling_of_json_is_seen() {
        for line in
            ["--json x", "-o json x", "x --output json", "-ojson", "--output=yaml", "-o=json"]
        {
            assert!(is_for_scripts(&words(line)), "{line}");
        }
        for line in ["x", "-o wide", "--output=name x", "json", "x -o"] {
            assert!(!is_for_scripts(&words(line)), "{line}");
        }
        assert_eq!(asked(&words("-o json help rights")).as_deref(), Some("rights"));
    }

    #[test]
    fn claps_own_help_goes_before_a_page() {
        let help = |line: &str| Cli::try_parse_from(words(&format!("drover {line}"))).unwrap_err();
        for line in ["help", "help leases", "help setup rights", "setup help rights"] {
            assert_eq!(help(line).kind(), ErrorKind::DisplayHelp, "{line}");
        }
        for line in ["help leases.md", "help concepts", "help nothing"] {
            assert_eq!(help(line).kind(), ErrorKind::InvalidSubcommand, "{line}");
        }
        assert!(help("help").to_string().contains(&list()));
    }

    #[test]
    fn a_page_that_is_called_like_a_command_is_named_in_its_help() {
        let mut cli = Cli::command();
        for page in PAGES {
            let Some(command) = cli.find_subcommand_mut(page.topic) else { continue };
            let hint = format!("`drover help {}.md`", page.topic);
            assert!(command.render_long_help().to_string().contains(&hint), "{hint}");
        }
    }

    #[test]
    fn a_slip_finds_the_nearest_topic() {
        let reported = unknown("troubleshoting");
        assert_eq!(
            reported,
            "unknown topic or command `troubleshoting`; did you mean `troubleshooting`? \
             `drover help` lists all"
        );
        assert_eq!(unknown("xyz"), "unknown topic or command `xyz`; `drover help` lists all");
    }

    // Invariant: each topic of the list leads to its page.

    #[test]
    fn topics_that_are_commands_too_are_listed_by_their_files() {
        let commands = Cli::command();
        for page in PAGES {
            let is_command = commands.find_subcommand(page.topic).is_some();
            assert_eq!(is_command, COMMANDS_TOO.contains(&page.topic), "{}", page.topic);
        }
    }
}
