//! What a node says when it refuses a call. Nearly every failure is a 500 with prose (behaviour
//! section 2); what the prose means is decided by the callers.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::loose::as_text;
use crate::transport::Reply;

/// The most of a text that is kept for people.
const TEXT_MAX: usize = 600;

/// What a node said when it refused a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The status code.
    pub status: u16,
    /// The body's `message`, else the status line's reason; trimmed.
    pub text: String,
    /// The body's `errors`: what is wrong with which parameter.
    pub errors: BTreeMap<String, String>,
}

impl Refusal {
    /// Reads an answer of 300 or above.
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

/// One line of bounded length.
pub fn bounded(text: &str) -> String {
    let line = text.trim().replace(['\n', '\r'], " ");
    line.chars().filter(|ch| !ch.is_control()).take(TEXT_MAX).collect()
}
