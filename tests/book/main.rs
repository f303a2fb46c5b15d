//! README and the book: every link leads somewhere, every command parses, every configuration passes
//! `drover check`, and what is quoted stands in the code.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod commands;
mod configurations;
mod links;
mod quotes;

use std::fs;
use std::path::{Path, PathBuf};

/// The most lines of README.
const README_LINES: usize = 200;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A file in Markdown.
struct Document {
    /// Below the root.
    path: PathBuf,
    text: String,
}

/// A fenced block.
struct Block {
    /// What stands behind the fence.
    kind: String,
    /// The line of the fence.
    line: usize,
    /// Without the indentation of the fence.
    text: String,
}

impl Document {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(root().join(path)).unwrap();
        Self { path: path.to_owned(), text }
    }

    fn place(&self, line: usize) -> String {
        format!("{}:{line}", self.path.display())
    }

    /// The lines outside of fenced blocks, with their numbers.
    fn prose(&self) -> Vec<(usize, &str)> {
        let mut open = None;
        let outside = |(_, line): &(usize, &str)| match (ticks(line), open) {
            (0, None) => true,
            (count, None) => {
                open = Some(count);
                false
            }
            (count, Some(least)) => {
                open = Some(least).filter(|_| count < least);
                false
            }
        };
        self.text.lines().enumerate().map(|(at, line)| (at + 1, line)).filter(outside).collect()
    }

    fn blocks(&self) -> Vec<Block> {
        let (mut blocks, mut open): (Vec<Block>, Option<(Block, usize, usize)>) =
            Default::default();
        for (at, line) in self.text.lines().enumerate() {
            let (count, indent) = (ticks(line), line.len() - line.trim_start().len());
            match &mut open {
                None if count > 0 => {
                    let kind = line.trim().trim_start_matches('`').trim().to_owned();
                    let block = Block { kind, line: at + 1, text: String::new() };
                    open = Some((block, indent, count));
                }
                None => {}
                Some((_, _, least)) if count >= *least => {
                    blocks.extend(open.take().map(|(block, ..)| block));
                }
                Some((block, indent, _)) => {
                    let blank = (line.len() - line.trim_start().len()).min(*indent);
                    block.text.push_str(&line[blank..]);
                    block.text.push('\n');
                }
            }
        }
        assert!(open.is_none(), "{}: a block has no end", self.path.display());
        blocks
    }

    /// What stands between backquotes in the prose, with the numbers of lines.
    fn code(&self) -> Vec<(usize, &str)> {
        let spans = |(at, line)| {
            let line: &str = line;
            line.split('`').skip(1).step_by(2).map(move |span| (at, span))
        };
        self.prose().into_iter().flat_map(spans).collect()
    }
}

/// The backquotes of a fence; none where the line is none.
fn ticks(line: &str) -> usize {
    let count = line.trim_start().chars().take_while(|c| *c == '`').count();
    if count < 3 { 0 } else { count }
}

/// All files below a folder whose names end so, below the root.
fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if endings.iter().any(|ending| path.to_string_lossy().ends_with(ending)) {
                found.push(path.strip_prefix(root()).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// README and every page of the book.
fn documents() -> Vec<Document> {
    let pages = files(Path::new("src/book"), &[".md"]);
    let paths = [PathBuf::from("README.md")].into_iter().chain(pages);
    paths.map(|path| Document::read(&path)).collect()
}

/// Fails with all that is wrong.
fn none_is(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

// Invariant: README can be read in five minutes.

#[test]
fn the_readme_is_short() {
    let lines = Document::read(Path::new("README.md")).text.lines().count();
    assert!(lines <= README_LINES, "README has {lines} lines; move some to the book");
}
