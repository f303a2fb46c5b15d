//! One record as one line, and its place in the chain.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::entry::Entry;

/// What stands before the hash, at the end of a line.
const BEFORE_HASH: &str = ",\"hash\":\"";
/// What ends a line.
const AFTER_HASH: &str = "\"}";
/// Hexadecimal digits of a hash.
const HASH_CHARS: usize = 64;

/// A record as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its number: the first one ever has 1, and each the next.
    pub seq: u64,
    /// When it was made.
    #[serde(with = "rfc3339")]
    pub at: Timestamp,
    /// The hash of the record before; zeros before the first.
    pub prev: String,
    /// What it records.
    pub entry: Entry,
    /// Its own hash.
    pub hash: String,
}

/// The end of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) seq: u64,
    pub(crate) hash: String,
}

impl Head {
    /// Before the first record.
    pub(crate) fn zero() -> Self {
        Self { seq: 0, hash: "0".repeat(HASH_CHARS) }
    }
}

/// A record without its hash, in the order of the fields in a line.
#[derive(Serialize)]
struct Body<'a> {
    seq: u64,
    #[serde(with = "rfc3339")]
    at: Timestamp,
    prev: &'a str,
    entry: &'a Entry,
}

/// What of a line counts for the chain. A newer drover may record entries that this one does not know.
#[derive(Deserialize)]
struct Link {
    seq: u64,
    prev: String,
}

/// A record as a line with its end, and the chain's new head.
pub(crate) fn seal(
    before: &Head,
    at: Timestamp,
    entry: &Entry,
) -> Result<(String, Head), serde_json::Error> {
    let seq = before.seq + 1;
    let body = serde_json::to_string(&Body { seq, at, prev: &before.hash, entry })?;
    let hash = digest(body.as_bytes());
    let open = body.strip_suffix('}').unwrap_or(&body);
    let line = format!("{open}{BEFORE_HASH}{hash}{AFTER_HASH}\n");
    Ok((line, Head { seq, hash }))
}

/// A line in its place, as far as the chain goes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Linked {
    pub(crate) head: Head,
    pub(crate) prev: String,
    /// Whether the hash is that of the line.
    pub(crate) is_whole: bool,
}

/// Reads a line without its end; none for what is no record.
pub(crate) fn link(line: &str) -> Option<Linked> {
    let (open, hash) = parted(line)?;
    let body = format!("{open}}}");
    let Link { seq, prev } = serde_json::from_str(&body).ok()?;
    let is_whole = digest(body.as_bytes()) == hash;
    Some(Linked { head: Head { seq, hash: hash.to_owned() }, prev, is_whole })
}

/// Whether a line ends with a hash, as drover ends each. A line whose fields are in another order was not written by
/// drover.
pub(crate) fn is_sealed(line: &str) -> bool {
    parted(line).is_some()
}

/// The line before its hash, and the hash.
fn parted(line: &str) -> Option<(&str, &str)> {
    let (open, hash) = line.strip_suffix(AFTER_HASH)?.rsplit_once(BEFORE_HASH)?;
    let is_hash = hash.len() == HASH_CHARS && hash.bytes().all(|one| one.is_ascii_hexdigit());
    is_hash.then_some((open, hash))
}

/// Times as texts.
mod rfc3339 {
    use jiff::Timestamp;
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(at: &Timestamp, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(at)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

/// The SHA-256 in hexadecimal digits.
pub(crate) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    // Invariant: a line has the same form for ever, so that other programs can check it.

    #[test]
    fn a_line_ends_with_the_hash_of_what_stands_before_it() {
        let at: Timestamp = "2026-11-28T17:46:00.5Z".parse().unwrap();
        let entry = Entry::Signal { name: "SIGHUP".to_owned() };
        let (line, head) = seal(&Head::zero(), at, &entry).unwrap();
        let body = format!(
            r#"{{"seq":1,"at":"2026-11-28T17:46:00.5Z","prev":"{}","entry":{{"kind":"signal","name":"SIGHUP"}}}}"#,
            "0".repeat(64)
        );
        let open = &body[..body.len() - 1];
        assert_eq!(line, format!("{open},\"hash\":\"{}\"}}\n", digest(body.as_bytes())));
        let linked = link(line.trim_end()).unwrap();
        assert_eq!((linked.head, linked.is_whole), (head.clone(), true));
        let read: Record = serde_json::from_str(&line).unwrap();
        assert_eq!((read.seq, read.hash, read.entry), (1, head.hash, entry));
    }

    #[test]
    fn a_line_that_was_changed_is_not_whole_and_a_piece_is_no_record() {
        let at = Timestamp::UNIX_EPOCH;
        let (line, _) = seal(&Head::zero(), at, &Entry::Stopped).unwrap();
        let line = line.trim_end();
        let changed = line.replace("stopped", "Stopped");
        assert!(!link(&changed).unwrap().is_whole);
        for at in 0..line.len() {
            assert_eq!(link(&line[..at]), None, "{at} bytes");
        }
    }
}
