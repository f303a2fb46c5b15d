//! A span, its ids, and what its attributes can be.

use std::fmt;

use drover_model::id::AgentId;
use drover_model::time::WallTime;
use sha2::{Digest, Sha256};

/// The longest text of an attribute, in bytes; what is longer is cut.
const TEXT_BYTES_MAX: usize = 1024;
/// What a span takes beside its texts, at most.
const REST_BYTES: usize = 512;
/// What an attribute takes beside its text, at most.
const ATTRIBUTE_BYTES: usize = 64;

/// The id of a trace; it is never all zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId(pub [u8; 16]);

/// The id of a span within its trace; it is never all zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanId(pub [u8; 8]);

fn hash(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

fn first<const N: usize>(bytes: &[u8; 32]) -> [u8; N] {
    let mut id = [0; N];
    id.copy_from_slice(&bytes[..N]);
    // An id of zeros is none.
    id[N - 1] |= u8::from(id == [0; N]);
    id
}

fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl TraceId {
    /// The trace of an agent.
    pub fn of(agent: &AgentId) -> Self {
        Self(first(&hash(&["drover trace", agent.as_str()])))
    }
}

impl SpanId {
    /// The span of an agent that is about this.
    pub(crate) fn of(agent: &AgentId, about: &[&str]) -> Self {
        let parts: Vec<&str> =
            ["drover span", agent.as_str()].into_iter().chain(about.iter().copied()).collect();
        Self(first(&hash(&parts)))
    }

    /// The root span of an agent's trace.
    pub fn root(agent: &AgentId) -> Self {
        Self::of(agent, &["agent"])
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Whole(i64),
    Texts(Vec<String>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(cut(text))
    }
}

impl Value {
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Whole(_) => 24,
            Self::Texts(texts) => texts.iter().map(|text| text.len() + ATTRIBUTE_BYTES).sum(),
        }
    }
}

/// A text of a span: what is beyond the limit is left out.
pub(crate) fn cut(text: &str) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text.to_owned();
    }
    let mut end = TEXT_BYTES_MAX - '…'.len_utf8();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

/// A span that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Whose trace it is in.
    pub agent: AgentId,
    pub id: SpanId,
    /// None for the root.
    pub parent: Option<SpanId>,
    pub name: String,
    pub start: WallTime,
    /// At least the start.
    pub end: WallTime,
    pub attributes: Vec<(&'static str, Value)>,
    /// Why what it is about failed; none where it did not.
    pub failed: Option<String>,
}

impl Span {
    /// A span of an agent's trace; one without a parent is the root.
    pub(crate) fn new(
        (agent, id, parent): (&AgentId, SpanId, Option<SpanId>),
        name: &str,
        (start, end): (WallTime, WallTime),
    ) -> Self {
        Self {
            agent: agent.clone(),
            id,
            parent,
            name: cut(name),
            start,
            end: end.max(start),
            attributes: Vec::new(),
            failed: None,
        }
    }

    pub(crate) fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        self.attributes.push((name, value.into()));
    }

    pub(crate) fn set_if(&mut self, name: &'static str, text: Option<&str>) {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.set(name, text);
        }
    }

    /// What it is about failed, in a word for statistics and in words for people.
    pub(crate) fn fail(&mut self, kind: &str, why: &str) {
        self.set(crate::conventions::ERROR_TYPE, kind);
        self.failed = Some(cut(why));
    }

    /// About how many bytes of JSON it takes.
    pub fn bytes(&self) -> usize {
        let each = self.attributes.iter();
        let attributes: usize = each.map(|(_, value)| value.bytes() + ATTRIBUTE_BYTES).sum();
        let failed = self.failed.as_ref().map_or(0, String::len);
        REST_BYTES + self.name.len() + attributes + failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: ids follow from the agent and what a span is about alone, and differ by both.

    #[test]
    fn ids_are_the_same_in_each_start_of_the_service_and_differ_by_what_they_are_about() {
        let (one, other) = (AgentId::new("0123456789abcdef"), AgentId::new("0123456789abcdeg"));
        assert_eq!(TraceId::of(&one).to_string(), TraceId::of(&one.clone()).to_string());
        assert_eq!(TraceId::of(&one).to_string(), "c33d7a0687a9736289d55e8a65b23e7e");
        assert_eq!(SpanId::root(&one).to_string(), "29083c4094e79458");
        assert_ne!(TraceId::of(&one), TraceId::of(&other));
        assert_ne!(SpanId::root(&one), SpanId::root(&other));
        assert_ne!(SpanId::of(&one, &["a", "bc"]), SpanId::of(&one, &["ab", "c"]));
    }

    // Invariant: a text of a span has a limit, and stays text.

    #[test]
    fn a_long_text_is_cut_between_two_characters() {
        let long = "ä".repeat(TEXT_BYTES_MAX);
        let short = cut(&long);
        assert!(short.len() <= TEXT_BYTES_MAX && short.ends_with("ä…"), "{}", short.len());
        assert_eq!(cut("short"), "short");
    }
}
