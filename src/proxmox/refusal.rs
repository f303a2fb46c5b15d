//! What a node says when it refuses a call. Nearly every failure is a 500 with prose (book:
//! proxmox, section 2); callers decide what the prose means.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::loose::as_text;
use crate::transport::Reply;

/// How many characters of a text are kept.
const TEXT_MAX: usize = 600;

/// What a node said when it refused a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status code.
    pub status: u16,
    /// The body's `message`, or the status line's reason; trimmed and bounded.
    pub text: String,
    /// The body's `errors`: what is wrong, by parameter.
    pub errors: BTreeMap<String, String>,
}

impl Refusal {
    /// Reads an answer with a status of 300 or above.
    pub fn of(reply: &Reply) -> Self {
        let body: Value = serde_json::from_slice(&reply.body).unwrap_or(Value::Null);
        let message = body.get("message").and_then(as_text).filter(|text| !text.trim().is_empty());
        let text = bounded(message.as_deref().unwrap_or(&reply.reason));
        let errors = body.get("errors").and_then(Value::as_object).map(|errors| {
            let pairs = errors.iter().take(20);
            pairs.map(|(key, text)| (key.clone(), bounded(&as_text(text).unwrap_or_default())))
        });
        Self { status: reply.status, text, errors: errors.into_iter().flatten().collect() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status, self.text)?;
        for (key, text) in &self.errors {
            write!(f, " `{key}`: {text};")?;
        }
        Ok(())
    }
}

/// A text as one line of bounded length, without control characters.
pub fn bounded(text: &str) -> String {
    let line = text.trim().replace(['\n', '\r'], " ");
    line.chars().filter(|ch| !ch.is_control()).take(TEXT_MAX).collect()
}
