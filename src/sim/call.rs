//! What passes between the simulator's door (HTTP, schema, access) and its world (nodes, guests,
//! tasks, storages).
//!
//! The door parses a request, finds its route in the schema, authenticates, checks privileges,
//! validates parameters and hands a [`Call`] on; the world answers with data or an [`ApiError`].

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;

/// Who calls: an authenticated user, perhaps through one of its API tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// `user@realm`.
    pub userid: String,
    /// The token's short name, when the call came with an API token.
    pub token: Option<String>,
}

impl Caller {
    /// True for `root@pam` with a ticket only: a token of root is not root (behaviour section 2).
    pub fn is_root(&self) -> bool {
        self.userid == "root@pam" && self.token.is_none()
    }

    /// `user@realm` or `user@realm!token`, as it stands in a UPID.
    pub fn full_id(&self) -> String {
        match &self.token {
            Some(token) => format!("{}!{token}", self.userid),
            None => self.userid.clone(),
        }
    }
}

/// Validated parameters of a call: path, query and body merged.
///
/// Integers and numbers are JSON numbers, booleans JSON booleans, arrays JSON arrays, and
/// everything else strings, as the schema of the route says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Params(pub BTreeMap<String, Value>);

impl Params {
    /// A string parameter, or any scalar as text.
    pub fn text(&self, name: &str) -> Option<String> {
        match self.0.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(flag) => Some(if *flag { "1".into() } else { "0".into() }),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// An integer parameter.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.0.get(name)?.as_i64()
    }

    /// A boolean parameter; absent is false.
    pub fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(false)
    }
}

/// One validated call on a route.
#[derive(Debug, Clone)]
pub struct Call {
    /// Who calls.
    pub caller: Caller,
    /// The node that took the request.
    pub at: String,
    /// The node whose processes handle it.
    pub on: String,
    /// Whether pvedaemon handles it, and not pveproxy itself.
    pub protected: bool,
    /// `GET`, `POST`, `PUT` or `DELETE`.
    pub method: &'static str,
    /// The schema's path template, such as `/nodes/{node}/qemu/{vmid}/clone`.
    pub route: &'static str,
    /// The real name of the node that owns the call (`localhost` resolved), for routes below `/nodes/{node}`.
    pub node: Option<String>,
    /// Path, query and body parameters, validated.
    pub params: Params,
    /// The file that came with it, of an upload.
    pub file: Option<Bytes>,
}

/// A refused or failed call, as Proxmox words it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{status} {message}")]
pub struct ApiError {
    /// The HTTP status: 400, 401, 403, 500, 501, 506 or 595 to 599.
    pub status: u16,
    /// The message, without its closing newline; its first line becomes the reason phrase.
    pub message: String,
    /// Parameter errors by name.
    pub errors: BTreeMap<String, String>,
}

impl ApiError {
    /// A 500 with this text: nearly every failure (behaviour section 2).
    pub fn failed(message: impl Into<String>) -> Self {
        Self { status: 500, message: message.into(), errors: BTreeMap::new() }
    }

    /// A 400 about one parameter.
    pub fn parameter(name: &str, text: impl Into<String>) -> Self {
        Self {
            status: 400,
            message: "Parameter verification failed.".into(),
            errors: BTreeMap::from([(name.to_owned(), text.into())]),
        }
    }

    /// A 403 with the text after `Permission check failed`.
    pub fn denied(detail: &str) -> Self {
        let message = if detail.is_empty() {
            "Permission check failed".to_owned()
        } else {
            format!("Permission check failed ({detail})")
        };
        Self { status: 403, message, errors: BTreeMap::new() }
    }

    /// An answer of the inner hop, 595 to 599.
    pub fn hop(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), errors: BTreeMap::new() }
    }
}

/// What a route answers: the value of `data` (lists with paging set `total` through
/// [`Answer::with_total`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The `data` member.
    pub data: Value,
    /// The `data` member as JSON text, in place of `data`: for long lists that are asked for again
    /// and again.
    pub text: Option<String>,
    /// The `total` member of paged lists.
    pub total: Option<u64>,
}

impl Answer {
    /// An answer that only has data.
    pub fn new(data: Value) -> Self {
        Self { data, text: None, total: None }
    }

    /// `{"data": null}`.
    pub fn null() -> Self {
        Self::new(Value::Null)
    }

    /// A paged list and how many entries there are in all.
    pub fn with_total(data: Value, total: u64) -> Self {
        Self { data, text: None, total: Some(total) }
    }

    /// A list of items that are JSON text.
    pub fn of_texts<'a>(items: impl IntoIterator<Item = &'a str>) -> Self {
        let mut text = String::from("[");
        for item in items {
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(item);
        }
        text.push(']');
        Self { data: Value::Null, text: Some(text), total: None }
    }

    /// The `data` member, whichever way it is kept; null where the text is no JSON.
    pub fn value(self) -> Value {
        let parsed = self.text.map(|text| serde_json::from_str(&text).unwrap_or_default());
        parsed.unwrap_or(self.data)
    }
}

/// The outcome of a call.
pub type Outcome = Result<Answer, ApiError>;
