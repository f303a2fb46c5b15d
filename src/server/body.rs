//! Bodies of requests: strict, bounded, and with every fault named.
//!
//! A body is read into the type that `drover-api` has for it, in two steps. [`Fields`] first checks the
//! JSON field by field and notes every fault; then serde reads the type from what was checked. Serde
//! alone, also with `serde_path_to_error`, ends at the first fault, names the types of Rust rather than
//! what a caller may write, and knows no limit such as the longest lease: a caller with three faults
//! would need four requests. The names of the fields come from the type, and a check that misses one of
//! them fails in every test that sends such a body.

use drover_api::{FieldFault, fields_of, nearest};
use drover_model::outside::steers;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use actix_web::error::PayloadError;
use actix_web::web::Bytes;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

pub(super) use super::hex::hex;
use super::house::BODY_LIMIT;
use super::problem::Rejection;
use super::problem::printable;
use super::strict_json::Unrepeated;

/// A JSON object that becomes a `T` once all its fields are checked.
pub(super) struct Fields<T> {
    values: Map<String, Value>,
    hash: String,
    /// Fields of `T` that no check asked for yet.
    unchecked: Vec<&'static str>,
    faults: Vec<FieldFault>,
    into: PhantomData<T>,
}

impl<T: DeserializeOwned> Fields<T> {
    /// Parses a body; an empty one is an empty object.
    pub(super) fn parse(body: Result<Bytes, actix_web::Error>) -> Result<Self, Rejection> {
        Self::parse_large(body, BODY_LIMIT)
    }

    /// Parses a body that may have this many bytes.
    pub(super) fn parse_large(
        body: Result<Bytes, actix_web::Error>,
        limit: usize,
    ) -> Result<Self, Rejection> {
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
            return Err(Rejection::invalid("the body must be a JSON object"));
        };
        Ok(Self {
            values,
            hash,
            unchecked: fields_of::<T>().to_vec(),
            faults: Vec::new(),
            into: PhantomData,
        })
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

    /// The value of a field; null counts as absent.
    fn value(&mut self, field: &'static str) -> Option<Value> {
        self.unchecked.retain(|name| *name != field);
        self.values.get(field).filter(|value| !value.is_null()).cloned()
    }

    /// Checks a text of at least one and at most `most` characters, none of which steers the text around it.
    pub(super) fn text(&mut self, field: &'static str, most: usize) -> Option<String> {
        let value = self.value(field)?;
        self.text_in(field, value, most)
    }

    /// The same for the only line of a file, which may end as lines do; its end is cut off.
    pub(super) fn line(&mut self, field: &'static str, most: usize) -> Option<String> {
        let value = match self.value(field)? {
            Value::String(text) => Value::String(text.trim_end_matches(['\r', '\n']).to_owned()),
            value @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_)) => value,
        };
        self.values.insert(field.to_owned(), value.clone());
        self.text_in(field, value, most)
    }

    fn text_in(&mut self, field: &'static str, value: Value, most: usize) -> Option<String> {
        let Value::String(text) = value else {
            self.fault(field, format!("must be a text, and is {}", kind(&value)));
            return None;
        };
        match unfit(&text, most) {
            None => Some(text),
            Some(why) => {
                self.fault(field, why);
                None
            }
        }
    }

    /// Checks a text of any characters, of which no fault shows one.
    pub(super) fn opaque(&mut self, field: &'static str) -> Option<String> {
        match self.value(field)? {
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

    /// Checks a list of texts.
    pub(super) fn texts(&mut self, field: &'static str, most: usize) -> Option<Vec<String>> {
        let value = self.value(field)?;
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
                let spaced = || "must be 1 to 255 characters without spaces".to_owned();
                let why = if text.contains(' ') { Some(spaced()) } else { unfit(&text, 255) };
                match why {
                    None => texts.push(text),
                    Some(why) => self.fault(&place, why),
                }
            } else {
                self.fault(&place, format!("must be a text, and is {}", kind(&item)));
            }
        }
        Some(texts)
    }

    /// Checks one of some words; absent is the default of its type.
    pub(super) fn word(&mut self, field: &'static str, words: &[&str]) {
        let Some(value) = self.value(field) else { return };
        if !value.as_str().is_some_and(|word| words.contains(&word)) {
            self.fault(field, format!("must be one of {}", words.join(", ")));
        }
    }

    /// Checks an object of at most `most` texts by names, of which no fault shows a text.
    pub(super) fn texts_by_name(&mut self, field: &'static str, most: usize) {
        let Some(value) = self.value(field) else { return };
        let Value::Object(inner) = value else {
            return self.fault(field, format!("must be an object, and is {}", kind(&value)));
        };
        if inner.len() > most {
            self.fault(field, format!("must have at most {most} entries, and has {}", inner.len()));
        }
        for (name, value) in inner.iter().filter(|(_, value)| !value.is_string()) {
            let place = format!("{field}.{}", printable(name));
            self.fault(&place, format!("must be a text, and is {}", kind(value)));
        }
    }

    /// Checks a whole number from 1 to `most`.
    pub(super) fn count(&mut self, field: &'static str, most: u64) -> Option<u64> {
        self.count_within(field, 1..=most)
    }

    fn count_within(&mut self, field: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let value = self.value(field)?;
        let number = value.as_u64().filter(|number| range.contains(number));
        if number.is_none() {
            let shown = if value.is_number() { value.to_string() } else { kind(&value).into() };
            let (least, most) = (range.start(), range.end());
            let text = format!("must be a whole number from {least} to {most}, and is {shown}");
            self.fault(field, text);
        }
        number
    }

    /// The same, where an absent field stands for a number.
    pub(super) fn count_or(&mut self, field: &'static str, most: u64, absent: u64) {
        if self.value(field).is_none() {
            self.values.insert(field.to_owned(), absent.into());
        } else {
            self.count(field, most);
        }
    }

    /// Checks a whole number of this range; an absent field stands for a number.
    pub(super) fn count_from(
        &mut self,
        field: &'static str,
        range: RangeInclusive<u16>,
        absent: u16,
    ) {
        if self.value(field).is_none() {
            self.values.insert(field.to_owned(), absent.into());
        } else {
            self.count_within(field, (*range.start()).into()..=(*range.end()).into());
        }
    }

    /// Checks an object of whole numbers from 1, each up to the largest of its type; its fields are
    /// those of `U`.
    pub(super) fn counts_in<U: DeserializeOwned>(&mut self, field: &'static str) {
        let known = fields_of::<U>();
        let Some(value) = self.value(field) else { return };
        let Value::Object(inner) = value else {
            return self.fault(field, format!("must be an object, and is {}", kind(&value)));
        };
        for (name, value) in inner.iter().filter(|(_, value)| !value.is_null()) {
            let place = format!("{field}.{name}");
            let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
            if !known.contains(&name.as_str()) {
                self.fault(&place, format!("is not known; known are {}", known.join(", ")));
            } else if number.is_none_or(|number| number == 0) {
                let shown = if value.is_number() { value.to_string() } else { kind(value).into() };
                let most = u32::MAX;
                self.fault(
                    &place,
                    format!("must be a whole number from 1 to {most}, and is {shown}"),
                );
            }
        }
    }

    /// Checks what becomes of a limit: a whole number up to `most` sets it, null takes it back. Whether
    /// the field is there.
    pub(super) fn change(&mut self, field: &'static str, most: u32) -> bool {
        self.unchecked.retain(|name| *name != field);
        let Some(value) = self.values.get(field) else { return false };
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        if value.is_null() || number.is_some_and(|number| number <= most) {
            return true;
        }
        let shown = if value.is_number() { value.to_string() } else { kind(value).into() };
        let must = format!("must be a whole number from 0 to {most}, or null");
        self.fault(field, format!("{must}, and is {shown}"));
        true
    }

    /// Checks a yes or no that may be absent. Whether it is there.
    pub(super) fn flag_given(&mut self, field: &'static str) -> bool {
        let given = self.value(field);
        if let Some(other) = given.as_ref().filter(|value| !value.is_boolean()) {
            self.fault(field, format!("must be true or false, and is {}", kind(other)));
        }
        given.is_some()
    }

    /// Checks a yes or no; absent is no.
    pub(super) fn flag(&mut self, field: &'static str) {
        match self.value(field) {
            None => drop(self.values.insert(field.to_owned(), false.into())),
            Some(Value::Bool(_)) => {}
            Some(other) => {
                self.fault(field, format!("must be true or false, and is {}", kind(&other)));
            }
        }
    }

    /// Ends the checks: fields that are no part of `T` are unknown. Gives what was asked for.
    pub(super) fn finish(mut self) -> Result<T, Rejection> {
        debug_assert!(self.unchecked.is_empty(), "no check asks for {:?}", self.unchecked);
        let known: Vec<&str> = fields_of::<T>().to_vec();
        let unknown: Vec<String> =
            self.values.keys().filter(|field| !known.contains(&field.as_str())).cloned().collect();
        for field in &unknown {
            let detail = match nearest(field, known.iter().copied()) {
                Some(known) => format!("is not known; did you mean `{known}`?"),
                None if known.is_empty() => "is not known; no fields are taken here".into(),
                None => format!("is not known; known are {}", known.join(", ")),
            };
            self.fault(field, detail);
        }
        if self.faults.is_empty() {
            let read = serde_json::from_value(Value::Object(self.values));
            return read.map_err(|fault| Rejection::invalid(format!("the body is wrong: {fault}")));
        }
        let lines: Vec<_> =
            self.faults.iter().map(|fault| format!("`{}` {}", fault.field, fault.detail)).collect();
        let mut rejection = Rejection::invalid(lines.join("; "));
        rejection.document.errors = self.faults;
        Err(rejection)
    }
}

/// Why a text is none of at least one and at most `most` characters, none of which steers the text around it.
pub(super) fn unfit(text: &str, most: usize) -> Option<String> {
    let is_fit = (1..=most).contains(&text.chars().count()) && !text.contains(char::is_control);
    if !is_fit {
        return Some(format!("must be 1 to {most} characters on one line"));
    }
    // It cannot be seen, so its number is said.
    let steering = text.chars().find(|letter| steers(*letter))?;
    let number = u32::from(steering);
    Some(format!("must not have U+{number:04X}, which steers the text around it"))
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
fn untaken(fault: &serde_json::Error) -> Rejection {
    // Of JSON that can be read, a key that is there twice is the only fault.
    let what = if fault.is_data() { "says something twice" } else { "is not JSON" };
    Rejection::invalid(format!("the body {what}: {fault}"))
}

/// Why a body of at most so many bytes could not be read.
pub(super) fn unreadable(error: &actix_web::Error, limit: usize) -> Rejection {
    match error.as_error::<PayloadError>() {
        Some(PayloadError::Overflow) => Rejection::too_large(limit),
        _ => Rejection::invalid("the body could not be read"),
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[expect(dead_code, reason = "only its field names matter")]
    struct Asked {
        ttl: Option<u64>,
        owner: Option<String>,
        labels: Option<Vec<String>>,
    }

    fn fields(text: &str) -> Fields<Asked> {
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

    // Invariant: an answer names every fault of a body at once, with its field.

    #[test]
    fn all_faults_are_reported_together() {
        let mut body = fields(r#"{"ttl": 0, "owner": 5, "labls": ["x"], "labels": ["a b", 3]}"#);
        assert_eq!(body.count("ttl", 10), None);
        assert_eq!(body.text("owner", 255), None);
        assert_eq!(body.texts("labels", 8), Some(Vec::new()));
        insta::assert_snapshot!(body.finish().unwrap_err().document.detail.replace("; ", "\n"), @r"
        `ttl` must be a whole number from 1 to 10, and is 0
        `owner` must be a text, and is a number
        `labels[0]` must be 1 to 255 characters without spaces
        `labels[1]` must be a text, and is a number
        `labls` is not known
        did you mean `labels`?
        ");
    }
}
