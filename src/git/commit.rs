//! A commit: its id, and what an operator wants to see of it.

use std::fmt;
use std::str::FromStr;

use super::text::clean;

/// The longest author and subject in characters.
const LONGEST_CHARS: usize = 200;

/// The full id of a commit: 40 (SHA-1) or 64 (SHA-256) lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommitId(String);

/// The text is not the full id of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a commit id has 40 or 64 lower-case hexadecimal digits")]
pub struct CommitIdFault;

impl CommitId {
    /// The whole id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 12 digits, for people.
    #[must_use]
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for CommitId {
    type Err = CommitIdFault;

    fn from_str(text: &str) -> Result<Self, CommitIdFault> {
        let digits = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if digits && matches!(text.len(), 40 | 64) {
            Ok(Self(text.to_owned()))
        } else {
            Err(CommitIdFault)
        }
    }
}

/// A commit that was fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Its full id.
    pub id: CommitId,
    /// When it was committed, in seconds since 1970, by the committer's clock.
    pub at_epoch_seconds: i64,
    /// The author's name, or the address where there is no name; at most 200 characters.
    pub author: String,
    /// The first line of its message, of at most 200 characters.
    pub subject: String,
}

impl Commit {
    /// Reads the object of a commit; `None` where its head is not a commit's.
    pub(super) fn parse(id: CommitId, object: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(object);
        let (head, message) = text.split_once("\n\n").unwrap_or((&text, ""));
        let line = |name| head.lines().find_map(|line| line.strip_prefix(name));
        let (name, rest) = line("author ")?.split_once('<')?;
        let address = rest.split_once('>').map_or(rest, |(address, _)| address);
        let author = if name.trim().is_empty() { address } else { name };
        let (_, time) = line("committer ")?.rsplit_once('>')?;
        let at_epoch_seconds = time.split_whitespace().next()?.parse().ok()?;
        let subject = message.trim_start_matches('\n').lines().next().unwrap_or_default();
        Some(Self {
            id,
            at_epoch_seconds,
            author: clean(author, LONGEST_CHARS),
            subject: clean(subject, LONGEST_CHARS),
        })
    }
}
