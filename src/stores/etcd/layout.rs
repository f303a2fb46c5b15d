//! What lies where in etcd: keys, chunks of records, and the head.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The format that this drover writes.
pub(super) const FORMAT: u64 = 1;
/// The most bytes of records in a chunk, unless a single record has more.
const CHUNK_BYTES: usize = 512 << 10;
/// The most bytes of a single record: with the head beside it, a request stays below the 1.5 MiB
/// that etcd takes.
const RECORD_BYTES_MAX: usize = 1_400_000;

/// A name that nothing else has.
pub(super) fn name() -> String {
    Uuid::new_v4().simple().to_string()
}

/// The keys of one journal.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    prefix: String,
}

/// Keys from the first one up to, and without, the second one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyRange(pub(super) String, pub(super) String);

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    pub(super) fn head(&self) -> String {
        format!("{}/head", self.prefix)
    }

    /// The chunk that ends with a record. Numbers have one length, so that keys sort as they do.
    pub(super) fn record(&self, last: u64) -> String {
        format!("{}/records/{last:020}", self.prefix)
    }

    /// The chunks with the records from one to another.
    pub(super) fn records(&self, from: u64, to: u64) -> KeyRange {
        KeyRange(self.record(from), self.record(to.saturating_add(1)))
    }

    /// The chunks with no record but those up to one.
    pub(super) fn records_up_to(&self, last: u64) -> KeyRange {
        self.records(0, last)
    }

    /// Whatever lies behind a record.
    pub(super) fn records_behind(&self, last: u64) -> KeyRange {
        KeyRange(self.record(last.saturating_add(1)), format!("{}/records0", self.prefix))
    }

    /// The pages of a snapshot.
    pub(super) fn snapshot(&self, name: &str) -> KeyRange {
        let folder = format!("{}/snapshots/{name}", self.prefix);
        KeyRange(format!("{folder}/"), format!("{folder}0"))
    }

    /// Every snapshot but this one.
    pub(super) fn snapshots_but(&self, name: Option<&str>) -> Vec<KeyRange> {
        let all = format!("{}/snapshots", self.prefix);
        let (first, end) = (format!("{all}/"), format!("{all}0"));
        match name {
            None => vec![KeyRange(first, end)],
            Some(name) => {
                let KeyRange(from, to) = self.snapshot(name);
                vec![KeyRange(first, from), KeyRange(to, end)]
            }
        }
    }

    pub(super) fn page(&self, name: &str, number: u64) -> String {
        format!("{}/snapshots/{name}/{number:010}", self.prefix)
    }

    /// The last record of a chunk, from its key.
    fn last_of(&self, key: &str) -> Option<u64> {
        key.strip_prefix(&self.prefix)?.strip_prefix("/records/")?.parse().ok()
    }
}

/// The end of the log, and its snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Head {
    pub(super) format: u64,
    /// The last record.
    pub(super) seq: u64,
    /// The name of the write that made this head.
    pub(super) by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) snapshot: Option<SnapshotMark>,
}

/// Which snapshot is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SnapshotMark {
    /// The last record that it includes.
    pub(super) at: u64,
    pub(super) name: String,
    pub(super) pages: u64,
    pub(super) bytes: u64,
}

impl Default for Head {
    fn default() -> Self {
        Self { format: FORMAT, seq: 0, by: String::new(), snapshot: None }
    }
}

impl Head {
    /// The same, by another write.
    pub(super) fn again(&self) -> Self {
        Self { by: name(), ..self.clone() }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        // Numbers and texts alone: this cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

/// The format of a head, which a newer drover may have written.
pub(super) fn format(bytes: &[u8]) -> Result<u64, serde_json::Error> {
    #[derive(Deserialize)]
    struct Format {
        format: u64,
    }
    Ok(serde_json::from_slice::<Format>(bytes)?.format)
}

/// Records that are written under one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) last: u64,
    /// Each record behind its length, four bytes with the largest first.
    pub(super) bytes: Vec<u8>,
}

/// A record is larger than etcd takes.
#[derive(Debug, thiserror::Error)]
#[error("record {seq} has {bytes} bytes, and etcd takes requests of 1.5 MiB")]
pub(super) struct TooLarge {
    seq: u64,
    bytes: usize,
}

/// Cuts the records behind `expected` into chunks.
pub(super) fn chunks(expected: u64, batch: &[Vec<u8>]) -> Result<Vec<Chunk>, TooLarge> {
    let mut chunks: Vec<Chunk> = Vec::new();
    for (seq, record) in (expected + 1..).zip(batch) {
        let length = u32::try_from(record.len()).ok().filter(|_| record.len() <= RECORD_BYTES_MAX);
        let length = length.ok_or(TooLarge { seq, bytes: record.len() })?;
        let mut chunk = match chunks.pop() {
            Some(last) if last.bytes.len() + record.len() < CHUNK_BYTES => last,
            full => {
                chunks.extend(full);
                Chunk { last: seq, bytes: Vec::new() }
            }
        };
        chunk.last = seq;
        chunk.bytes.extend(length.to_be_bytes());
        chunk.bytes.extend(record);
        chunks.push(chunk);
    }
    Ok(chunks)
}

/// The numbered records of a chunk.
pub(super) fn unpack(keys: &Keys, key: &str, bytes: &[u8]) -> Result<Vec<(u64, Vec<u8>)>, String> {
    let last = keys.last_of(key).ok_or_else(|| format!("`{key}` names no record"))?;
    let mut records = Vec::new();
    let mut rest = bytes;
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        let cut = || format!("the records of `{key}` are cut");
        let (record, behind) = behind.split_at_checked(length).ok_or_else(cut)?;
        records.push(record.to_vec());
        rest = behind;
    }
    let count = records.len() as u64;
    if !rest.is_empty() || count == 0 || count > last {
        return Err(format!("the records of `{key}` are cut"));
    }
    Ok((last - count + 1..).zip(records).collect())
}
