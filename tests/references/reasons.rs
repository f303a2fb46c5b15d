//! Who may want an agent gone: the table in the book, compared with the reasons that the code knows.

use super::tree::root;
use super::{book, named};

/// Each reason with its word, in the order of the code: from lines such as `Self::Idle => "idle",`.
fn reasons() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(root().join("actors/model/record/reason.rs")).unwrap();
    let (_, label) = text.split_once("impl Reason {").unwrap();
    let (label, _) = label.split_once("\n}\n").unwrap();
    let read = |line: &str| {
        let (variant, word) = line.trim().strip_prefix("Self::")?.split_once(" => \"")?;
        let variant = variant.split(' ').next()?;
        Some((variant.to_owned(), word.split('"').next()?.to_owned()))
    };
    label.lines().filter_map(read).collect()
}

// Invariant: the book says of each reason who decides it and where.

#[test]
fn the_book_has_every_reason_for_which_an_agent_goes() {
    let page = std::fs::read_to_string(book().join("agents.md")).unwrap();
    let (_, rest) = page.split_once("\n## Who may want an agent gone\n").unwrap();
    let (section, _) = rest.split_once("\n## ").unwrap();
    let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| `")).collect();
    let word = |row: &str| row.split('`').nth(1).unwrap().to_owned();
    let shown: Vec<String> = rows.iter().map(|row| word(row)).collect();
    let known: Vec<String> = reasons().into_iter().map(|(_, word)| word).collect();
    assert!(known.len() > 15, "the reader finds too few reasons: {known:?}");
    assert_eq!(shown, known);
    for (row, (variant, word)) in rows.iter().zip(reasons()) {
        let files: Vec<&str> = named(row);
        let decides = |file: &&str| {
            let text = std::fs::read_to_string(root().join(file)).unwrap_or_default();
            text.contains(&format!("Reason::{variant}"))
        };
        assert!(files.iter().any(decides), "no file of `{word}` names it: {files:?}");
    }
}
