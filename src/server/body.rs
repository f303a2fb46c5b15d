//! Bodies of requests: strict, bounded, and with every fault named.

use actix_web::error::PayloadError;
use actix_web::web::Bytes;
use drover_api::nearest;
use drover_model::overrides::Change;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::problem::printable;
use super::strict_json::Unrepeated;
use super::{BODY_LIMIT, FieldFault, Problem};

/// A JSON object that is taken apart field by field.
pub(super) struct Fields {
    values: Map<String, Value>,
    hash: String,
    known: Vec<&'static str>,
    faults: Vec<FieldFault>,
}

impl Fields {
    /// Parses a body; an empty one is an empty object.
    pub(super) fn parse(body: Result<Bytes, actix_web::Error>) -> Result<Self, Problem> {
        Self::parse_large(body, BODY_LIMIT)
    }

    /// Parses a body that may have this many bytes.
    pub(super) fn parse_large(
        body: Result<Bytes, actix_web::Error>,
        limit: usize,
    ) -> Result<Self, Problem> {
        let body = body.map_err(|error| unreadable(&error, limit))?;
        let value = if body.is_empty() {
            Value::Object(Map::new())
        } else {
            let Unrepeated(value) =
                serde_json::from_slice(&body).map_err(|fault| untaken(&fault))?;
            value
        };
        let hash = hex(&Sha256::digest(canonical(&value).as_bytes()));
        let Value::Object(values) = value else {
            return Err(Problem::invalid("the body must be a JSON object"));
        };
        Ok(Self { values, hash, known: Vec::new(), faults: Vec::new() })
    }

    /// SHA-256 of the body in canonical form (keys sorted, no spaces), in hex.
    pub(super) fn hash(&self) -> String {
        self.hash.clone()
    }

    /// Notes that a field is wrong.
    pub(super) fn fault(&mut self, field: &str, detail: impl Into<String>) {
        self.faults.push(FieldFault { field: printable(field), detail: detail.into() });
    }

    /// Whether anything was wrong so far.
    pub(super) fn has_faults(&self) -> bool {
        !self.faults.is_empty()
    }

    /// Takes a field as it is; null counts as absent.
    pub(super) fn take(&mut self, field: &'static str) -> Option<Value> {
        self.known.push(field);
        self.values.remove(field).filter(|value| !value.is_null())
    }

    /// Takes a text of at least one and at most `most` characters, none of them a control character.
    pub(super) fn text(&mut self, field: &'static str, most: usize) -> Option<String> {
        let value = self.take(field)?;
        self.text_in(field, value, most)
    }

    /// The same for the only line of a file, which may end as lines do.
    pub(super) fn line(&mut self, field: &'static str, most: usize) -> Option<String> {
        let value = match self.take(field)? {
            Value::String(text) => Value::String(text.trim_end_matches(['\r', '\n']).to_owned()),
            value @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_)) => value,
        };
        self.text_in(field, value, most)
    }

    fn text_in(&mut self, field: &'static str, value: Value, most: usize) -> Option<String> {
        let Value::String(text) = value else {
            self.fault(field, format!("must be a text, and is {}", kind(&value)));
            return None;
        };
        if !plain(&text, most) {
            self.fault(field, format!("must be 1 to {most} characters on one line"));
            return None;
        }
        Some(text)
    }

    /// Takes a text of any characters, of which no fault shows one.
    pub(super) fn opaque(&mut self, field: &'static str) -> Option<String> {
        match self.take(field)? {
            Value::String(text) => Some(text),
            value @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_)) => {
                self.fault(field, format!("must be a text, and is {}", kind(&value)));
                None
            }
        }
    }

    /// Takes a list of texts.
    pub(super) fn texts(&mut self, field: &'static str, most: usize) -> Option<Vec<String>> {
        let value = self.take(field)?;
        let Value::Array(items) = value else {
            self.fault(field, format!("must be a list of texts, and is {}", kind(&value)));
            return None;
        };
        if items.len() > most {
            self.fault(field, format!("must have at most {most} entries, and has {}", items.len()));
        }
        let mut texts = Vec::new();
        for (index, item) in items.into_iter().enumerate().take(most) {
            let place = format!("{field}[{index}]");
            if let Value::String(text) = item {
                if plain(&text, 255) && !text.contains(' ') {
                    texts.push(text);
                } else {
                    self.fault(&place, "must be 1 to 255 characters without spaces");
                }
            } else {
                self.fault(&place, format!("must be a text, and is {}", kind(&item)));
            }
        }
        Some(texts)
    }

    /// Takes a whole number from 1 to `most`.
    pub(super) fn count(&mut self, field: &'static str, most: u64) -> Option<u64> {
        let value = self.take(field)?;
        let number = value.as_u64().filter(|number| (1..=most).contains(number));
        if number.is_none() {
            let shown = if value.is_number() { value.to_string() } else { kind(&value).into() };
            self.fault(field, format!("must be a whole number from 1 to {most}, and is {shown}"));
        }
        number
    }

    /// Takes what becomes of an override: a whole number up to `most` sets it, null takes it back.
    pub(super) fn change(&mut self, field: &'static str, most: u32) -> Change {
        self.known.push(field);
        let Some(value) = self.values.remove(field) else { return Change::Keep };
        if value.is_null() {
            return Change::TakeBack;
        }
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        if let Some(number) = number.filter(|number| *number <= most) {
            return Change::Set(number);
        }
        let shown = if value.is_number() { value.to_string() } else { kind(&value).into() };
        let must = format!("must be a whole number from 0 to {most}, or null");
        self.fault(field, format!("{must}, and is {shown}"));
        Change::Keep
    }

    /// Takes a yes or no; absent is no.
    pub(super) fn flag(&mut self, field: &'static str) -> bool {
        match self.take(field) {
            None => false,
            Some(Value::Bool(flag)) => flag,
            Some(other) => {
                self.fault(field, format!("must be true or false, and is {}", kind(&other)));
                false
            }
        }
    }

    /// Ends the taking apart: fields left over are unknown.
    pub(super) fn finish(mut self) -> Result<(), Problem> {
        for field in std::mem::take(&mut self.values).keys() {
            let detail = match nearest(field, self.known.iter().copied()) {
                Some(known) => format!("is not known; did you mean `{known}`?"),
                None if self.known.is_empty() => "is not known; no fields are taken here".into(),
                None => format!("is not known; known are {}", self.known.join(", ")),
            };
            self.fault(field, detail);
        }
        if self.faults.is_empty() {
            return Ok(());
        }
        let lines: Vec<_> =
            self.faults.iter().map(|fault| format!("`{}` {}", fault.field, fault.detail)).collect();
        Err(Problem { errors: self.faults, ..Problem::invalid(lines.join("; ")) })
    }
}

fn plain(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a yes or no",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Why a body that was read is not taken.
fn untaken(fault: &serde_json::Error) -> Problem {
    // Of JSON that can be read, a key that is there twice is the only fault.
    let what = if fault.is_data() { "says something twice" } else { "is not JSON" };
    Problem::invalid(format!("the body {what}: {fault}"))
}

/// Why a body of at most so many bytes could not be read.
pub(super) fn unreadable(error: &actix_web::Error, limit: usize) -> Problem {
    match error.as_error::<PayloadError>() {
        Some(PayloadError::Overflow) => Problem::too_large(limit),
        _ => Problem::invalid("the body could not be read"),
    }
}

/// JSON with sorted keys and no spaces, so that equal bodies hash equally.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<_> = map.keys().collect();
            keys.sort();
            let fields: Vec<_> = keys
                .into_iter()
                .map(|key| format!("{}:{}", Value::from(key.as_str()), canonical(&map[key])))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(canonical).collect();
            format!("[{}]", items.join(","))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

/// Spells bytes in lower-case hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn fields(text: &str) -> Fields {
        Fields::parse(Ok(Bytes::from(text.to_owned()))).ok().unwrap()
    }

    // Invariant: two bodies that say the same hash the same, others do not.

    #[test]
    fn the_hash_does_not_depend_on_order_or_spaces() {
        let one = fields(r#"{"a": [1, {"x": "\u00e9", "b": null}], "b": true}"#).hash();
        let same = fields(r#"{"b":true,"a":[1,{"b":null,"x":"é"}]}"#).hash();
        let other = fields(r#"{"b":true,"a":[1,{"b":null,"x":"e"}]}"#).hash();
        assert_eq!(one, same);
        assert_ne!(one, other);
    }

    // Invariant: every fault of a body is told at once, with its field.

    #[test]
    fn all_faults_are_reported_together() {
        let mut body = fields(r#"{"ttl": 0, "owner": 5, "labls": ["x"], "labels": ["a b", 3]}"#);
        assert_eq!(body.count("ttl", 10), None);
        assert_eq!(body.text("owner", 255), None);
        assert_eq!(body.texts("labels", 8), Some(Vec::new()));
        insta::assert_snapshot!(body.finish().unwrap_err().detail.replace("; ", "\n"), @r"
        `ttl` must be a whole number from 1 to 10, and is 0
        `owner` must be a text, and is a number
        `labels[0]` must be 1 to 255 characters without spaces
        `labels[1]` must be a text, and is a number
        `labls` is not known
        did you mean `labels`?
        ");
    }
}
