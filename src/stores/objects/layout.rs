//! What lies where in an object store: names, entries, and what an entry holds.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The format that this drover writes.
pub(super) const FORMAT: u64 = 1;
/// The most bytes of records that an entry repeats from those before it.
pub(super) const TAIL_BYTES: usize = 128 << 10;
/// The most bytes of a part: of a snapshot, or of the records of a large write.
pub(super) const PART_BYTES: usize = 1 << 20;
/// The most bytes of a single record: an answer has 64 MiB at most.
pub(super) const RECORD_BYTES_MAX: usize = 32 << 20;
/// Where entries are.
pub(super) const LOG: &str = "log";
/// Where parts are.
pub(super) const PARTS: &str = "parts";

/// A name that nothing else has.
pub(super) fn unique() -> String {
    Uuid::new_v4().simple().to_string()
}

/// Which entry: they are ordered by slot, and by term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) term: u64,
    pub(super) slot: u64,
}

impl Position {
    /// Where the first entry of a journal goes.
    pub(super) const FIRST: Self = Self { term: 0, slot: 1 };

    /// Numbers have one length, so that names sort as they do.
    pub(super) fn name(self) -> String {
        format!("{LOG}/{:010}-{:016}", self.term, self.slot)
    }

    pub(super) fn of(name: &str) -> Option<Self> {
        let (term, slot) = name.strip_prefix(LOG)?.strip_prefix('/')?.split_once('-')?;
        let found = Self { term: term.parse().ok()?, slot: slot.parse().ok()? };
        (found.name() == name).then_some(found)
    }

    /// The next one of this term.
    pub(super) fn next(self) -> Self {
        self.in_term(self.term)
    }

    /// The next one, in a term.
    pub(super) fn in_term(self, term: u64) -> Self {
        Self { term, slot: self.slot + 1 }
    }
}

/// The folder of a set of parts that a writer makes.
pub(super) fn parts_folder(term: u64) -> String {
    format!("{PARTS}/{term:010}-{}", unique())
}

/// The term of the writer of a part.
pub(super) fn term_of_part(name: &str) -> Option<u64> {
    name.strip_prefix(PARTS)?.strip_prefix('/')?.split_once('-')?.0.parse().ok()
}

pub(super) fn part(folder: &str, number: u64) -> String {
    format!("{folder}/{number:08}")
}

/// Everything that a journal is after a write, but for older records, which it names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Head {
    pub(super) format: u64,
    /// The name of the write.
    pub(super) by: String,
    /// The term of the next entry: one above the entry's own where a writer began.
    pub(super) term: u64,
    /// The records behind this one, up to `seq`, are in the entry.
    pub(super) base: u64,
    /// The last record.
    pub(super) seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) snapshot: Option<SnapshotMark>,
    /// Where the records up to `base` are, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) chunks: Vec<Chunk>,
}

/// Which snapshot is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SnapshotMark {
    /// The last record that it includes.
    pub(super) at: u64,
    pub(super) folder: String,
    pub(super) parts: u64,
    pub(super) bytes: u64,
}

impl SnapshotMark {
    pub(super) fn names(&self) -> Vec<String> {
        (1..=self.parts).map(|number| part(&self.folder, number)).collect()
    }
}

/// An object with the records behind `base`, up to `last`: an entry or a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Chunk {
    pub(super) name: String,
    pub(super) base: u64,
    pub(super) last: u64,
    /// Whether it is the entry that ended a term. Such an entry is never deleted with its records.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) seal: bool,
}

/// A head, and the records beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) head: Head,
    /// Each record behind its length, four bytes with the largest first.
    pub(super) tail: Vec<u8>,
}

/// Why bytes are no entry of this drover.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoEntry {
    #[error("format {0} is newer")]
    Newer(u64),
    #[error("its head does not end")]
    NoHead,
    #[error(transparent)]
    Head(#[from] serde_json::Error),
}

impl Default for Entry {
    fn default() -> Self {
        let head = Head {
            format: FORMAT,
            by: String::new(),
            term: 0,
            base: 0,
            seq: 0,
            snapshot: None,
            chunks: Vec::new(),
        };
        Self { head, tail: Vec::new() }
    }
}

impl Entry {
    pub(super) fn encode(&self) -> Bytes {
        // Numbers and texts alone: this cannot fail.
        let mut bytes = serde_json::to_vec(&self.head).unwrap_or_default();
        bytes.push(b'\n');
        bytes.extend(&self.tail);
        bytes.into()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, NoEntry> {
        #[derive(Deserialize)]
        struct Format {
            format: u64,
        }
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or(NoEntry::NoHead)?;
        let (head, tail) = (&bytes[..end], &bytes[end + 1..]);
        let Format { format } = serde_json::from_slice(head)?;
        if format > FORMAT {
            return Err(NoEntry::Newer(format));
        }
        Ok(Self { head: serde_json::from_slice(head)?, tail: tail.to_vec() })
    }

    /// The same by another write, as it goes to another position. `at` is where this one lies.
    pub(super) fn again(&self, at: Option<Position>) -> Self {
        let mut next = self.clone();
        next.head.by = unique();
        if next.tail.len() > TAIL_BYTES {
            next.leave_tail(at, self.head.term);
        }
        next
    }

    /// Names the records beside the head, instead of repeating them.
    pub(super) fn leave_tail(&mut self, at: Option<Position>, term: u64) {
        if let Some(at) = at.filter(|_| !self.tail.is_empty()) {
            self.head.chunks.push(Chunk {
                name: at.name(),
                base: self.head.base,
                last: self.head.seq,
                seal: at.term != term,
            });
        }
        self.head.base = self.head.seq;
        self.tail.clear();
    }

    /// The records of a snapshot are named no more.
    pub(super) fn forget_up_to(&mut self, record: u64) {
        self.head.chunks.retain(|chunk| chunk.last > record);
        if self.head.seq <= record {
            self.head.base = self.head.seq;
            self.tail.clear();
        }
    }
}

/// The bytes of records, each behind its length. Fails with the number of one that is too large, and
/// its size.
pub(super) fn pack(base: u64, records: &[Vec<u8>]) -> Result<Vec<u8>, TooLarge> {
    let mut bytes = Vec::new();
    for (seq, record) in (base + 1..).zip(records) {
        let length = u32::try_from(record.len()).ok().filter(|_| record.len() <= RECORD_BYTES_MAX);
        let length = length.ok_or(TooLarge { seq, bytes: record.len() })?;
        bytes.extend(length.to_be_bytes());
        bytes.extend(record);
    }
    Ok(bytes)
}

/// A record is larger than this drover reads.
#[derive(Debug, thiserror::Error)]
#[error("record {seq} has {bytes} bytes, and 32 MiB is the most")]
pub(super) struct TooLarge {
    seq: u64,
    bytes: usize,
}

/// The numbered records behind `base`, up to `last`; none where it is not these.
pub(super) fn unpack(base: u64, last: u64, bytes: &[u8]) -> Option<Vec<(u64, Vec<u8>)>> {
    let (mut records, mut rest) = (Vec::new(), bytes);
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (record, behind) = behind.split_at_checked(length)?;
        records.push(record.to_vec());
        rest = behind;
    }
    let is_whole = rest.is_empty() && last.checked_sub(base) == Some(records.len() as u64);
    is_whole.then(|| (base + 1..).zip(records).collect())
}
