//! The language of the house (book: contributing, Language and names): words that no comment, text or name may
//! have, since the field has a term of its own for each, and comments of documentation that say nothing.
//!
//! A word that is right in one place alone (a quoted message of Proxmox, a key of the journal's
//! format) is one of [`EXCEPTIONS`], with its file.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod tree;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::LazyLock;

use tree::{files, root};

/// Words, each with what to write in its place.
const BANNED: &[(&str, &str)] = &[
    ("amiss", "wrong, a problem"),
    ("anew", "again, from scratch"),
    ("befall befalls befell", "happen to"),
    ("begun", "started"),
    ("broker", "scheduler"),
    ("dismiss dismissed", "stop"),
    ("doomed fate", "what will happen, in words"),
    ("enlist enlists enlisted", "register"),
    ("forsaken", "orphaned, left"),
    ("heed heeds heeded", "obey, follow"),
    ("hire hired hires", "start a runner"),
    ("ledger", "journal state"),
    ("lesson lessons taught teach teaches", "what was measured; inform"),
    ("mend mended mends mending", "repair, help, fix"),
    ("patience", "time limit"),
    ("picture pictures", "status"),
    ("season seasons", "schedule window"),
    ("shadow shadows", "journal view"),
    ("sight sights", "observation"),
    ("stray strays", "unknown, left over"),
    ("strike strikes struck", "deregister; hit"),
    ("tell tells telling told", "say, report, show, send"),
    ("tempo", "backoff"),
    ("thereof whereof hereby", "of it"),
    ("whoever whosoever", "anyone who, the caller"),
    ("wish wishes wished", "command, request"),
];

/// Turns of phrase, each with what to write in its place.
const PHRASES: &[(&str, &str)] = &[
    ("can not", "cannot"),
    ("make away", "destroy"),
    ("makes away", "destroys"),
    ("made away", "destroyed"),
];

/// Files in which a word stands that is another's, or a format's.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("actors/model/journal_state/agent.rs", "wishes", "a key of the journal's format"),
    ("actors/model/journal_state/tests.rs", "wishes", "a key of the journal's format"),
    ("src/admin/doctor/report.rs", "mend", "a key of the doctor's JSON"),
    ("src/admin/doctor/trial.rs", "mend", "a key of the doctor's JSON"),
    ("src/ci/guest.rs", "begun", "a file in guests of runners that live"),
    ("src/sim/guests/qemu/host.rs", "dismiss", "an argument of QEMU's jobs"),
    ("src/sim/guests/qemu/qmp.rs", "dismiss", "a command of QEMU"),
    ("tests/sim/gotchas.rs", "sight", "the name of a role that clusters have"),
    ("tests/wire/github/guest.rs", "broker", "the name of GitHub's server"),
    ("tests/wire/quickstart.rs", "shadow", "the file below /etc"),
];

/// Comments of documentation of so few words say what the name says.
const SHORT: usize = 2;

/// Pages that people read.
const PAGES: [&str; 2] = ["README.md", "src/book"];

const SOURCES: [&str; 3] = ["actors", "src", "tests"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Comment,
    Text,
    Name,
}

/// One piece of a source: what it is, its line from 1, its characters.
#[derive(Debug, PartialEq, Eq)]
struct Piece<'a> {
    kind: Kind,
    line: usize,
    text: &'a str,
}

/// Comments, texts and names of a Rust source, in order.
fn pieces(source: &str) -> Vec<Piece<'_>> {
    let bytes = source.as_bytes();
    let (mut all, mut at, mut line) = (Vec::new(), 0, 1);
    while at < bytes.len() {
        let rest = &source[at..];
        let (kind, length) = if rest.starts_with("//") {
            (Some(Kind::Comment), rest.find('\n').unwrap_or(rest.len()))
        } else if rest.starts_with("/*") {
            (Some(Kind::Comment), rest.find("*/").map_or(rest.len(), |end| end + 2))
        } else if let Some(length) = raw_string(rest) {
            (Some(Kind::Text), length)
        } else if rest.starts_with('"') {
            (Some(Kind::Text), string(rest))
        } else if rest.starts_with('\'') {
            (None, character(rest))
        } else if bytes[at].is_ascii_alphabetic() || bytes[at] == b'_' {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            (Some(Kind::Name), end.unwrap_or(rest.len()))
        } else {
            (None, rest.chars().next().map_or(1, char::len_utf8))
        };
        if let Some(kind) = kind {
            all.push(Piece { kind, line, text: &rest[..length] });
        }
        line += rest[..length].matches('\n').count();
        at += length;
    }
    all
}

/// The length of a raw text at the start of `rest`.
fn raw_string(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    let body = body[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let start = rest.len() - body.len();
    Some(body.find(&end).map_or(rest.len(), |found| start + found + end.len()))
}

/// The length of a text in quotes at the start of `rest`.
fn string(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The length of a character at the start of `rest`; 1 for the quote of a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            rest[2..].char_indices().skip(1).find(|(_, c)| *c == '\'').map_or(1, |(at, _)| at + 3)
        }
        Some((at, c)) if rest[at + c.len_utf8()..].starts_with('\'') => at + c.len_utf8() + 1,
        _ => 1,
    }
}

/// The words of a name: `told_once`, `ToldOnce` and `TOLD_ONCE` have two each.
fn words_of_name(name: &str) -> Vec<String> {
    let mut words = Vec::new();
    for part in name.split('_') {
        let mut word = String::new();
        let mut before = None;
        for c in part.chars() {
            let starts =
                c.is_uppercase() && before.is_some_and(|before: char| !before.is_uppercase());
            if starts {
                words.push(std::mem::take(&mut word));
            }
            word.extend(c.to_lowercase());
            before = Some(c);
        }
        words.push(word);
    }
    words
}

/// The words of a sentence, without case; what holds no letters parts them.
fn words_of_prose(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_ascii_alphabetic())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
}

/// What to write in the place of a word, if it is banned.
fn instead_of(word: &str) -> Option<&'static str> {
    static ALL: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
        let each = |(words, instead): &(&'static str, &'static str)| {
            let instead = *instead;
            words.split(' ').map(move |word| (word, instead)).collect::<Vec<_>>()
        };
        BANNED.iter().flat_map(each).collect()
    });
    ALL.get(word).copied()
}

/// Banned words and turns of phrase of a sentence, each with what to write in its place.
fn faults_of_prose(text: &str) -> Vec<(String, &'static str)> {
    let mut faults: Vec<_> = words_of_prose(text)
        .filter_map(|word| instead_of(&word).map(|instead| (word, instead)))
        .collect();
    let plain = text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
    for (phrase, instead) in PHRASES {
        if plain.contains(phrase) {
            faults.push(((*phrase).to_owned(), instead));
        }
    }
    faults
}

/// Comments of documentation that stand alone on one line and have [`SHORT`] words at most.
fn short_documentation(source: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let documents = |at: Option<usize>| {
        at.and_then(|at| lines.get(at)).is_some_and(|line| line.starts_with("///"))
    };
    let mut short = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(text) = line.strip_prefix("///") else { continue };
        let alone = !documents(at.checked_sub(1)) && !documents(Some(at + 1));
        let count = text.split_whitespace().count();
        // A heading is none of it; a route or a command in backticks says a source.
        let prose = !text.trim_start().starts_with(['#', '`']);
        if alone && prose && (1..=SHORT).contains(&count) {
            short.push((at + 1, text.trim().to_owned()));
        }
    }
    short
}

fn excepted(file: &str, word: &str) -> bool {
    EXCEPTIONS.iter().any(|(place, one, _)| file == *place && word == *one)
}

fn name_of(file: &Path) -> String {
    file.strip_prefix(root()).unwrap().display().to_string()
}

fn fail_on(faults: &[String], what: &str) {
    let mut text = String::new();
    for fault in faults {
        let _ = writeln!(text, "{fault}");
    }
    assert!(faults.is_empty(), "{} {what}:\n{text}", faults.len());
}

/// Sources without this file, which has every banned word.
fn sources() -> Vec<(String, String)> {
    let all = SOURCES.iter().flat_map(|folder| files(&root().join(folder), &["rs"]));
    all.filter(|file| !file.ends_with("tests/language.rs"))
        .map(|file| (name_of(&file), std::fs::read_to_string(&file).unwrap()))
        .collect()
}

#[test]
fn comments_texts_and_names_use_the_words_of_the_field() {
    let mut faults = Vec::new();
    for (file, source) in sources() {
        for Piece { kind, line, text } in pieces(&source) {
            let found = match kind {
                Kind::Name => words_of_name(text)
                    .into_iter()
                    .filter_map(|word| instead_of(&word).map(|instead| (word, instead)))
                    .collect(),
                Kind::Comment | Kind::Text => faults_of_prose(text),
            };
            for (word, instead) in found {
                if !excepted(&file, &word) {
                    faults.push(format!("{file}:{line}: {kind:?} with `{word}`; write: {instead}"));
                }
            }
        }
    }
    fail_on(&faults, "words that have a better one");
}

#[test]
fn pages_use_the_words_of_the_field() {
    let mut faults = Vec::new();
    for file in PAGES.iter().flat_map(|place| files(&root().join(place), &["md"])) {
        let name = name_of(&file);
        for (at, line) in std::fs::read_to_string(&file).unwrap().lines().enumerate() {
            for (word, instead) in faults_of_prose(line) {
                if !excepted(&name, &word) {
                    faults.push(format!("{name}:{}: `{word}`; write: {instead}", at + 1));
                }
            }
        }
    }
    fail_on(&faults, "words that have a better one");
}

#[test]
fn documentation_says_more_than_the_name() {
    let faults: Vec<_> = sources()
        .iter()
        .flat_map(|(file, source)| {
            short_documentation(source).into_iter().map(move |(line, text)| {
                format!("{file}:{line}: `{text}` says nothing: a fact, or no comment")
            })
        })
        .collect();
    fail_on(&faults, "comments of one or two words");
}

#[test]
fn exceptions_are_needed() {
    for (file, word, why) in EXCEPTIONS {
        assert!(!why.is_empty());
        let text = std::fs::read_to_string(root().join(file)).unwrap().to_lowercase();
        assert!(text.contains(word), "{file} has no `{word}` any more: take its exception away");
    }
}

#[test]
fn sources_fall_into_comments_texts_and_names() {
    let source = "let told = r#\"a \"wish\"\"#; // anew\nlet x: &'a str = \"be\\\"gun\"; let c = '\\''; /* two\n */ y";
    let found: Vec<_> =
        pieces(source).into_iter().map(|piece| (piece.kind, piece.line, piece.text)).collect();
    let wanted = [
        (Kind::Name, 1, "let"),
        (Kind::Name, 1, "told"),
        (Kind::Text, 1, "r#\"a \"wish\"\"#"),
        (Kind::Comment, 1, "// anew"),
        (Kind::Name, 2, "let"),
        (Kind::Name, 2, "x"),
        (Kind::Name, 2, "a"),
        (Kind::Name, 2, "str"),
        (Kind::Text, 2, "\"be\\\"gun\""),
        (Kind::Name, 2, "let"),
        (Kind::Name, 2, "c"),
        (Kind::Comment, 2, "/* two\n */"),
        (Kind::Name, 3, "y"),
    ];
    assert_eq!(found, wanted);
}

#[test]
fn names_fall_into_words() {
    assert_eq!(words_of_name("ToldOnce"), ["told", "once"]);
    assert_eq!(words_of_name("TOLD_ONCE"), ["told", "once"]);
    assert_eq!(words_of_name("told_once"), ["told", "once"]);
}

#[test]
fn banned_words_and_phrases_are_found_in_any_case() {
    let words = |text| faults_of_prose(text).into_iter().map(|(word, _)| word).collect::<Vec<_>>();
    assert_eq!(words("Told by the Broker, it can\n not go"), ["told", "broker", "can not"]);
    assert_eq!(words("foretold brokers reported"), Vec::<String>::new());
}

#[test]
fn one_line_of_two_words_says_nothing_and_a_paragraph_may() {
    let source = "/// The agent.\nx\n/// Seconds until it ends.\n/// Why.\ny\n/// # Errors\nz\n/// `GET /version`.\nv";
    assert_eq!(short_documentation(source), [(1, "The agent.".to_owned())]);
}
