//! The grammar of the command line: nouns, verbs, and what help, man pages, completions and the book say
//! of them, all from the one tree of commands.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use clap::{CommandFactory as _, ValueEnum as _};

use super::super::options::CompletedShell;
use super::super::*;
use super::super::{completions, man};

/// Words that stand for the same thing in several places.
const SHARED: [&str; 12] = [
    "copy", "delete", "drain", "forget", "get", "list", "release", "reset", "set", "show",
    "template", "verify",
];

/// The whole tree, its help without what the environment holds here.
fn tree() -> clap::Command {
    let mut cli = quiet(Cli::command());
    cli.build();
    cli
}

fn quiet(command: clap::Command) -> clap::Command {
    command
        .disable_help_subcommand(true)
        .mut_args(|arg| arg.hide_env_values(true))
        .mut_subcommands(quiet)
}

/// Every command with its words, drover itself first.
fn all(command: &clap::Command, path: &str) -> Vec<(String, clap::Command)> {
    let mut found = vec![(path.to_owned(), command.clone())];
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        found.extend(all(below, &format!("{path} {}", below.get_name())));
    }
    found
}

fn commands() -> Vec<(String, clap::Command)> {
    all(&tree(), "drover")
}

fn about(command: &clap::Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

/// Own arguments, without those of all commands.
fn own(command: &clap::Command) -> Vec<&clap::Arg> {
    let common = |arg: &clap::Arg| {
        arg.is_global_set()
            || matches!(arg.get_id().as_str(), "help" | "version")
            || arg.is_hide_set()
    };
    command.get_arguments().filter(|arg| !common(arg)).collect()
}

// Invariant: one grammar. Lists are plural nouns, `show` and `get` know each of them, and a word means one
// thing.

#[test]
fn every_command_says_in_one_line_what_it_does() {
    for (path, command) in commands().into_iter().skip(1) {
        let about = about(&command);
        assert!(!about.is_empty() && !about.contains('\n'), "{path}: `{about}`");
        assert!(!about.ends_with('.'), "{path}: `{about}` ends with a full stop");
        assert!(about.starts_with(char::is_uppercase), "{path}: `{about}`");
        for arg in own(&command) {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(!help.is_empty() && !help.ends_with('.'), "{path} {}: `{help}`", arg.get_id());
        }
    }
}

#[test]
fn every_noun_has_a_list_in_the_plural_and_both_show_and_get_know_it() {
    let cli = tree();
    assert_eq!(Noun::value_variants(), Noun::ALL);
    for noun in Noun::ALL {
        let (one, list) = (noun.one(), noun.list());
        assert_eq!(noun.to_possible_value().unwrap().get_name(), one);
        let command = cli.find_subcommand(&list).unwrap_or_else(|| panic!("no `drover {list}`"));
        assert!(about(command).starts_with("List "), "{list}");
        for line in [
            vec!["get", &list],
            vec!["get", one, "x"],
            vec!["show", one, "x"],
            vec!["show", &list, "x"],
        ] {
            let parsed = Cli::try_parse_from(["drover"].into_iter().chain(line.clone()));
            assert!(parsed.is_ok(), "{line:?}");
        }
        let listed = remote::plain(Command::Get { noun, id: None, list: ListOptions::default() });
        let typed = Cli::try_parse_from(["drover", list.as_str()]).unwrap().command;
        assert_eq!(
            format!("{listed:?}"),
            format!("{typed:?}"),
            "`drover get {list}` is not `drover {list}`"
        );
    }
}

#[test]
fn a_word_means_one_thing_wherever_it_stands() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, command) in commands().into_iter().skip(1) {
        let word = command.get_name().to_owned();
        places.entry(word).or_default().push(format!("{path}: {}", about(&command)));
    }
    places.retain(|_, places| places.len() > 1);
    let unknown: Vec<_> = places.keys().filter(|word| !SHARED.contains(&word.as_str())).collect();
    assert!(unknown.is_empty(), "say in SHARED that they mean the same: {unknown:?}");
    let stale: Vec<_> = SHARED.iter().filter(|word| !places.contains_key(**word)).collect();
    assert!(stale.is_empty(), "stand in one place: {stale:?}");
    let text: String = places.into_values().flatten().map(|place| place + "\n").collect();
    insta::assert_snapshot!(text);
}

#[test]
fn old_words_still_parse_and_name_the_new_ones() {
    for (old, new) in [
        ("release l1", "drover lease release"),
        ("node drain pve1 --undrain", "drover uncordon"),
        ("node drain pve1", "drover drain"),
        ("images", "drover image list"),
        ("machines", "drover machine list"),
    ] {
        let words: Vec<&str> = old.split(' ').collect();
        assert!(Cli::try_parse_from(["drover"].iter().chain(&words)).is_ok(), "{old}");
        let mut command = tree();
        let help = command.find_subcommand_mut(words[0]).unwrap().render_long_help().to_string();
        assert!(help.contains(new), "the help of `drover {old}` does not name `{new}`");
    }
}

#[test]
fn every_alias_is_named_in_the_help() {
    for (path, command) in commands() {
        for alias in command.get_all_aliases() {
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains(alias), "{path}: alias {alias}");
        }
    }
}

#[test]
fn the_exit_codes_are_in_the_help() {
    let help = tree().render_long_help().to_string();
    for code in ["0 ", "1 ", "2 ", "69 ", "75 "] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(code)), "{code}");
    }
}

// Invariant: help, man pages, completions and the book come from the one tree.

#[test]
fn the_help_of_all_commands_is_as_it_was_agreed() {
    let mut text = String::new();
    for (path, mut command) in commands() {
        writeln!(text, "$ {path} --help\n{}", command.render_long_help()).unwrap();
    }
    // The page list has a test of its own, and the version changes by itself.
    insta::assert_snapshot!(
        text.split("Topics of the book").next().unwrap().to_owned()
            + text.split_once("$ drover run --help").map(|(_, rest)| rest).unwrap()
    );
}

#[test]
fn every_command_and_option_has_its_man_page_and_its_completions() {
    let pages = man::all().unwrap();
    let shells = CompletedShell::value_variants().iter().map(|shell| completions::script(*shell));
    let shells: Vec<String> = shells.collect();
    let commands = commands();
    assert_eq!(pages.len(), commands.len());
    for (path, command) in commands {
        let file = format!("{}.1", path.replace(' ', "-"));
        let page = pages.iter().find(|page| page.file == file);
        let page = page.unwrap_or_else(|| panic!("no page {file}")).text.replace('\\', "");
        for script in &shells {
            assert!(script.contains(command.get_name()), "{path}");
        }
        for option in own(&command).iter().filter_map(|arg| arg.get_long()) {
            assert!(page.contains(&format!("--{option}")), "{file} lacks --{option}");
            assert!(shells[0].contains(&format!("--{option}")), "bash: {path} --{option}");
            assert!(shells[1].contains(&format!("--{option}")), "zsh: {path} --{option}");
            // The completions for fish go no deeper (`completions.rs`).
            let is_deep = path.split(' ').count() > 3;
            let known = is_deep || shells[2].contains(&format!("-l {option}"));
            assert!(known, "fish: {path} --{option}");
        }
    }
    assert!(pages[0].file == "drover.1" && pages[0].text.contains("Exit codes:"));
}

#[test]
fn the_book_has_every_command() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/book/reference/cli.md");
    let wanted = page();
    if std::env::var_os("DROVER_WRITE_BOOK").is_some() {
        std::fs::write(&file, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap();
    assert!(
        found == wanted,
        "src/book/reference/cli.md: `DROVER_WRITE_BOOK=1 cargo test --lib tree` writes it again"
    );
}

const INTRODUCTION: &str = "# Command reference

<!-- Generated from the tree of commands: `DROVER_WRITE_BOOK=1 cargo test --lib tree`. -->

`--help` behind a command prints the same. `drover man` prints a man page, and writes one for each command
into a folder. `drover completions` prints completions for bash, zsh and fish.

The start of an id, at least four characters of it, stands for the id of an agent, a lease or a build.
";

fn page() -> String {
    let mut text = INTRODUCTION.to_owned();
    let mut tree = commands().into_iter();
    let (_, drover) = tree.next().unwrap();
    let common = drover.get_arguments().filter(|arg| arg.is_global_set() && !arg.is_hide_set());
    write!(text, "\n## Options of all commands\n\n{}", rows(common.collect())).unwrap();
    for (path, mut command) in tree {
        let depth = if path.split(' ').count() > 2 { "###" } else { "##" };
        write!(text, "\n{depth} `{path}`\n\n{}.\n", markdown(&about(&command))).unwrap();
        let usage = command.render_usage().to_string();
        write!(text, "\n```text\n{}\n```\n", usage.trim_start_matches("Usage: ")).unwrap();
        let own = own(&command);
        if !own.is_empty() {
            write!(text, "\n{}", rows(own)).unwrap();
        }
        if let Some(help) = command.get_after_help() {
            write!(text, "\n```text\n{help}\n```\n").unwrap();
        }
    }
    text
}

fn rows(args: Vec<&clap::Arg>) -> String {
    let mut text = "| Argument | Meaning |\n|---|---|\n".to_owned();
    for arg in args {
        let mut help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let takes = arg.get_action().takes_values();
        let defaults: Vec<_> =
            arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        if takes && !defaults.is_empty() {
            write!(help, " [default: {}]", defaults.join(", ")).unwrap();
        }
        let words = arg.get_possible_values();
        if takes && !words.is_empty() {
            let words: Vec<_> = words.iter().map(clap::builder::PossibleValue::get_name).collect();
            write!(help, " [one of {}]", words.join(", ")).unwrap();
        }
        if let Some(variable) = arg.get_env() {
            write!(help, " [environment: {}]", variable.to_string_lossy()).unwrap();
        }
        let name = arg.to_string().replace('|', "\\|");
        writeln!(text, "| `{name}` | {} |", markdown(&help)).unwrap();
    }
    text
}

/// A text in a table of Markdown.
fn markdown(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('>', "&gt;").replace('\n', " ")
}
