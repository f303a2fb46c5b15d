//! The files of the audit log: their names, their order, and where the chain ends in them.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::record::{Head, link};

/// What a file's name ends with.
const ENDING: &str = ".jsonl";
/// Digits of a number in a name, so that names sort like their numbers.
const DIGITS: usize = 12;

/// A file, and the number of its first record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) first: u64,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// Where the chain ends, and what is in the last file behind that.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) head: Head,
    /// What is no record; empty where the file ends with one.
    pub(crate) rest: Vec<u8>,
    /// Whether the last line of the last file has its end.
    pub(crate) ends_line: bool,
}

/// Makes the folder for its owner only, where it is not there.
pub(crate) fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// The name of the file whose first record has this number.
pub(crate) fn path_of(folder: &Path, first: u64) -> PathBuf {
    folder.join(format!("{first:0DIGITS$}{ENDING}"))
}

/// The files in their order. Names of another form belong to somebody else.
pub(crate) fn parts(folder: &Path) -> io::Result<Vec<Part>> {
    let mut parts = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let first = name.to_str().and_then(|name| name.strip_suffix(ENDING)?.parse().ok());
        let Some(first) = first else { continue };
        let path = path_of(folder, first);
        if entry.path() == path {
            parts.push(Part { first, path, bytes: entry.metadata()?.len() });
        }
    }
    parts.sort_by_key(|part| part.first);
    Ok(parts)
}

/// What a file has. A pipe or a device in its place may never end.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    std::fs::read(path)
}

/// Where the chain ends. A last file without a record goes on from the file before.
pub(crate) fn end(parts: &[Part]) -> io::Result<End> {
    let (mut rest, mut ends_line) = (None, true);
    for part in parts.iter().rev() {
        let bytes = std::fs::read(&part.path)?;
        let (head, behind) = last_record(&bytes);
        if rest.is_none() {
            rest = Some(behind.to_vec());
            ends_line = bytes.is_empty() || bytes.ends_with(b"\n");
        }
        if let Some(head) = head {
            return Ok(End { head, rest: rest.unwrap_or_default(), ends_line });
        }
    }
    Ok(End { head: Head::zero(), rest: rest.unwrap_or_default(), ends_line })
}

/// The last record of a file, and what stands behind it. The end of its line may be missing: it is the last
/// byte that is written.
fn last_record(bytes: &[u8]) -> (Option<Head>, &[u8]) {
    let mut end = bytes.len();
    loop {
        let start = bytes[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let line = std::str::from_utf8(&bytes[start..end]).ok();
        if let Some(linked) = line.and_then(link).filter(|linked| linked.is_whole) {
            return (Some(linked.head), bytes.get(end + 1..).unwrap_or_default());
        }
        if start == 0 {
            return (None, bytes);
        }
        end = start - 1;
    }
}

/// Makes sure that a new name, or the end of one, outlives the machine's power.
pub(crate) fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
