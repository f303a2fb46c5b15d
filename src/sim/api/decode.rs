//! Decodes parameters from query, form and JSON bodies (book: proxmox, section 1).

use std::collections::BTreeMap;

use percent_encoding::percent_decode;
use serde_json::Value;

use super::http::{Request, content_type};
use super::validate::Input;

const PERL_LOCATION: &str = "at /usr/share/perl5/PVE/APIServer/AnyEvent.pm line";

/// The parameters of a request. Those of the query replace those of the body.
///
/// # Errors
/// The text of the 500 for a malformed JSON body.
pub(crate) fn inputs(request: &Request, query: &str) -> Result<BTreeMap<String, Input>, String> {
    let writes = request.method == "PUT" || request.method == "POST";
    let mut inputs = if !writes {
        BTreeMap::new()
    } else if content_type(request) == "application/json" {
        json(&request.body)?
    } else {
        form(&request.body)
    };
    inputs.extend(form(query.as_bytes()));
    inputs.remove("_dc");
    Ok(inputs)
}

/// Decodes `a=b&c=d`; a repeated key becomes a list.
fn form(text: &[u8]) -> BTreeMap<String, Input> {
    let mut inputs = BTreeMap::new();
    for pair in text.split(|byte| *byte == b'&' || *byte == b';').filter(|pair| !pair.is_empty()) {
        let cut = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        let name = decode(&pair[..cut]);
        let value = Input::Text(decode(pair.get(cut + 1..).unwrap_or_default()));
        match inputs.entry(name) {
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(value);
            }
            std::collections::btree_map::Entry::Occupied(mut place) => match place.get_mut() {
                Input::List(list) => list.push(value),
                first @ (Input::Text(_) | Input::Flag(_) | Input::Null | Input::Object) => {
                    *first = Input::List(vec![first.clone(), value]);
                }
            },
        }
    }
    inputs
}

fn decode(text: &[u8]) -> String {
    let spaced: Vec<u8> =
        text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    percent_decode(&spaced).decode_utf8_lossy().into_owned()
}

fn json(body: &[u8]) -> Result<BTreeMap<String, Input>, String> {
    match serde_json::from_slice::<Value>(body) {
        Ok(Value::Object(fields)) => {
            Ok(fields.into_iter().map(|(name, value)| (name, input(value))).collect())
        }
        Ok(_) => Err(format!("Not a HASH reference {PERL_LOCATION} 957.\n")),
        Err(_) => Err(syntax_error(body)),
    }
}

fn input(value: Value) -> Input {
    match value {
        Value::Null => Input::Null,
        Value::Bool(flag) => Input::Flag(flag),
        Value::Number(number) => Input::Text(number.to_string()),
        Value::String(text) => Input::Text(text),
        Value::Array(items) => Input::List(items.into_iter().map(input).collect()),
        Value::Object(_) => Input::Object,
    }
}

/// Perl's message for the two likeliest errors: an empty body, and a key without its quote.
fn syntax_error(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let no_value = "malformed JSON string, neither tag, array, object, number, string or atom";
    let (what, place) = match text.trim_start().strip_prefix('{') {
        Some(rest) => ("'\"' expected", text.len() - rest.len()),
        None => (no_value, 0),
    };
    let rest = &text[place..];
    let before = if rest.is_empty() { "(end of string)" } else { rest };
    format!("{what}, at character offset {place} (before \"{before}\") {PERL_LOCATION} 917.\n")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    fn text(text: &str) -> Input {
        Input::Text(text.into())
    }

    #[test]
    fn forms_decode_plus_percent_and_repeated_keys() {
        let inputs = form(b"a=x+y%20z%2B&b=1;b=2&c");
        assert_eq!(inputs["a"], text("x y z+"));
        assert_eq!(inputs["b"], Input::List(vec![text("1"), text("2")]));
        assert_eq!(inputs["c"], text(""));
    }

    #[test]
    fn bytes_outside_utf8_become_replacement_characters() {
        assert_eq!(form(b"d=%FF%FE")["d"], text("\u{fffd}\u{fffd}"));
    }

    #[test]
    fn parameters_of_the_query_replace_those_of_the_body() {
        let request = Request {
            method: "PUT".into(),
            body: bytes::Bytes::from_static(b"a=body&b=body&_dc=9"),
            ..Request::default()
        };
        let inputs = inputs(&request, "a=query").unwrap();
        assert_eq!(inputs["a"], text("query"));
        assert_eq!(inputs["b"], text("body"));
        assert_eq!(inputs.len(), 2);
    }

    #[test]
    fn json_bodies_keep_booleans_and_lists() {
        let inputs = json(br#"{"a": true, "b": 96, "c": ["x"], "d": null}"#).unwrap();
        assert_eq!(inputs["a"], Input::Flag(true));
        assert_eq!(inputs["b"], text("96"));
        assert_eq!(inputs["c"], Input::List(vec![text("x")]));
        assert_eq!(inputs["d"], Input::Null);
    }

    #[test]
    fn broken_json_fails_in_the_words_of_perl() {
        assert!(json(b"{bad").unwrap_err().starts_with("'\"' expected, at character offset 1"));
        assert!(json(b"").unwrap_err().contains("offset 0 (before \"(end of string)\")"));
        assert!(json(b"[1]").unwrap_err().starts_with("Not a HASH reference"));
    }
}
