//! Finds records, the newest first.

use std::io;
use std::path::Path;

use jiff::Timestamp;

use crate::folder;
use crate::record::{Record, is_sealed};

/// Which records are wanted; what is not given does not count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Made at this time or later.
    pub since: Option<Timestamp>,
    /// Of this principal.
    pub by: Option<String>,
    /// About this object, part of one, or word of a route's path.
    pub about: Option<String>,
    /// Behind the record with this number.
    pub after: Option<u64>,
    /// How many at most: the newest of all.
    pub limit: usize,
}

impl Wanted {
    fn takes(&self, record: &Record) -> bool {
        let by = self.by.as_deref().is_none_or(|by| record.entry.principal() == Some(by));
        let about = self.about.as_deref().is_none_or(|thing| record.entry.is_about(thing));
        self.since.is_none_or(|since| record.at >= since)
            && self.after.is_none_or(|after| record.seq > after)
            && by
            && about
    }

    /// Whether nothing older than this record can be wanted. Clocks go back, and numbers do not.
    fn ends_at(&self, record: &Record) -> bool {
        self.after.is_some_and(|after| record.seq <= after)
    }
}

/// The newest records that are wanted, the oldest of them first. Lines that this drover cannot read are left
/// out; `verify` names them. A file is read whole, and one at a time.
///
/// # Errors
/// The system's. A folder that is not there has no records.
pub fn find(folder: &Path, wanted: &Wanted) -> io::Result<Vec<Record>> {
    let parts = match folder::parts(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        parts => parts?,
    };
    let mut found = Vec::new();
    'files: for part in parts.iter().rev() {
        let bytes = match folder::read(&part.path) {
            // drover removes the oldest files.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            bytes => bytes?,
        };
        for line in bytes.rsplit(|byte| *byte == b'\n') {
            let line = std::str::from_utf8(line).ok().filter(|line| is_sealed(line));
            let record = line.and_then(|line| serde_json::from_str::<Record>(line).ok());
            let Some(record) = record else { continue };
            if found.len() >= wanted.limit || wanted.ends_at(&record) {
                break 'files;
            }
            if wanted.takes(&record) {
                found.push(record);
            }
        }
    }
    found.reverse();
    Ok(found)
}
