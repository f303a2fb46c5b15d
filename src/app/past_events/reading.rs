//! The events of earlier starts, as far as their file can be read.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use drover_server::view::Event;

use super::{Head, Kept, LINE_MAX, Line, VERSION};

/// Bytes that are read at most, of the end: a file of drover's own is smaller.
const READ_MAX: u64 = 32 << 20;

/// Why a file gives no event.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    #[error("it is no plain file")]
    NotPlain,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it has format {0}, and this drover knows format {VERSION}")]
    Format(u32),
}

/// The events of the file in its order, and how many of its lines are none; nothing where there is no file.
///
/// # Errors
/// Why nothing can be read.
pub fn read(path: &Path) -> Result<(Vec<Kept>, usize), Unread> {
    let size = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_file() => meta.len(),
        Ok(_) => return Err(Unread::NotPlain),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        Err(error) => return Err(error.into()),
    };
    let mut file = File::open(path)?;
    let mut start = Vec::new();
    (&file).take(64).read_to_end(&mut start)?;
    let first = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    // Where the first line is damaged, the others speak for themselves.
    if let Ok(Head { version }) = serde_json::from_slice(first)
        && version != VERSION
    {
        return Err(Unread::Format(version));
    }
    file.seek(SeekFrom::Start(size.saturating_sub(READ_MAX)))?;
    let mut bytes = Vec::new();
    file.take(READ_MAX).read_to_end(&mut bytes)?;
    let (mut all, mut unread) = (Vec::new(), 0);
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match parse(line) {
            Some(kept) => all.push(kept),
            None if serde_json::from_slice::<Head>(line).is_ok() => {}
            None => unread += 1,
        }
    }
    Ok((all, unread))
}

fn parse(line: &[u8]) -> Option<Kept> {
    if line.len() > LINE_MAX {
        return None;
    }
    let text = str::from_utf8(line).ok()?.to_owned();
    let line: Line<'_> = serde_json::from_str(&text).ok()?;
    let event = Event { id: line.id.parse().ok()?, fact: line.fact.into_owned() };
    Some(Kept { text, event })
}
