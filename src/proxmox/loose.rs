//! Reads Perl's loosely typed JSON: a number may come as text, a flag as `0`, `"1"`, `true` or not
//! at all (book: proxmox, section 1).

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Reads a flag; absent, null and empty mean false.
pub fn flag<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    let value = Value::deserialize(from)?;
    as_flag(&value).ok_or_else(|| wrong_type("a flag", &value))
}

/// Reads a flag that may be absent or null, which is not the same as false.
pub fn maybe_flag<'de, D: Deserializer<'de>>(from: D) -> Result<Option<bool>, D::Error> {
    let value = Value::deserialize(from)?;
    if value.is_null() {
        return Ok(None);
    }
    as_flag(&value).map(Some).ok_or_else(|| wrong_type("a flag", &value))
}

/// Reads a whole number that may be absent, null or empty.
pub fn maybe_number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let value = Value::deserialize(from)?;
    match &value {
        Value::Null => Ok(None),
        Value::String(text) if text.is_empty() => Ok(None),
        Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => {
            as_number(&value).map(Some).ok_or_else(|| wrong_type("a whole number", &value))
        }
    }
}

/// Reads a figure that only guides a choice: a value that is not a number counts as absent.
pub fn figure<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    let figure = match Value::deserialize(from)? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    Ok(figure.filter(|figure: &f64| figure.is_finite() && *figure >= 0.0))
}

/// Reads text that may come as a number, be absent or be null.
pub fn maybe_text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(from)? {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        value @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            as_text(&value).map(Some).ok_or_else(|| wrong_type("text", &value))
        }
    }
}

fn wrong_type<E: serde::de::Error>(wanted: &str, got: &Value) -> E {
    let mut shown = got.to_string();
    shown.truncate(shown.char_indices().nth(60).map_or(shown.len(), |(at, _)| at));
    E::custom(format!("expected {wanted}, got `{shown}`"))
}

/// A flag in any of Perl's spellings; none for another value.
pub fn as_flag(value: &Value) -> Option<bool> {
    match value {
        Value::Null => Some(false),
        Value::Bool(flag) => Some(*flag),
        Value::Number(number) => Some(number.as_f64() != Some(0.0)),
        Value::String(text) => match text.as_str() {
            "" | "0" | "false" => Some(false),
            "1" | "true" => Some(true),
            _ => None,
        },
        Value::Array(_) | Value::Object(_) => None,
    }
}

/// A whole number, as a number or as text; none for another value.
pub fn as_number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().or_else(|| {
            let float = number.as_f64()?;
            (float >= 0.0 && float.fract() == 0.0 && float < 9e15).then_some(float as u64)
        }),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A scalar as text; none for another value.
pub fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(if *flag { "1".into() } else { "0".into() }),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // Invariant: every spelling that Perl gives a value reads the same.

    #[test]
    fn flags_and_numbers_read_in_all_their_spellings() {
        for yes in [json!(1), json!("1"), json!(true), json!("true")] {
            assert_eq!(as_flag(&yes), Some(true), "{yes}");
        }
        for no in [json!(0), json!("0"), json!(false), json!(""), json!(null)] {
            assert_eq!(as_flag(&no), Some(false), "{no}");
        }
        for hundred in [json!(100), json!("100"), json!(100.0)] {
            assert_eq!(as_number(&hundred), Some(100), "{hundred}");
        }
        assert_eq!(as_flag(&json!("maybe")), None);
        assert_eq!(as_number(&json!(-1)), None);
        assert_eq!(as_number(&json!("x")), None);
    }

    #[test]
    fn a_wrong_type_says_what_came() {
        #[derive(Debug, Deserialize)]
        struct Row {
            #[serde(deserialize_with = "maybe_number")]
            #[expect(dead_code, reason = "only its error matters")]
            vmid: Option<u64>,
        }
        let error = serde_json::from_value::<Row>(json!({"vmid": {"a": 1}})).map(|_| ());
        let text = error.map_err(|error| error.to_string());
        assert_eq!(text, Err("expected a whole number, got `{\"a\":1}`".to_owned()));
    }
}
