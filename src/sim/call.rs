//! The types that pass between the API (HTTP, schema, access control) and the world (nodes, guests,
//! tasks, storages).
//!
//! The API parses a request, authenticates it, finds its route in the schema, checks privileges,
//! validates the parameters and passes a [`Call`] on. The world answers with data or an
//! [`ApiError`].

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;

/// An authenticated user, perhaps through one of its API tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// `user@realm`.
    pub userid: String,
    /// The token's name without the user, when the call came with an API token.
    pub token: Option<String>,
}

impl Caller {
    /// True only for `root@pam` with a ticket: a token of root is not root
    /// (book: proxmox, section 2).
    pub fn is_root(&self) -> bool {
        self.userid == "root@pam" && self.token.is_none()
    }

    /// `user@realm` or `user@realm!token`, as in a UPID.
    pub fn full_id(&self) -> String {
        match &self.token {
            Some(token) => format!("{}!{token}", self.userid),
            None => self.userid.clone(),
        }
    }
}

/// The validated parameters of a call: path, query and body merged.
///
/// The schema of the route gives the types: integers and numbers are JSON numbers, booleans JSON
/// booleans, arrays JSON arrays. All other values are strings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Params(pub BTreeMap<String, Value>);

impl Params {
    /// A parameter as text; none for arrays.
    pub fn text(&self, name: &str) -> Option<String> {
        match self.0.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(flag) => Some(if *flag { "1".into() } else { "0".into() }),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    pub fn int(&self, name: &str) -> Option<i64> {
        self.0.get(name)?.as_i64()
    }

    /// A boolean parameter; false when it is absent.
    pub fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(false)
    }
}

/// One validated call on a route.
#[derive(Debug, Clone)]
pub struct Call {
    pub caller: Caller,
    /// The node that took the request.
    pub received_by: String,
    /// The node whose processes handle the call.
    pub handled_by: String,
    /// Whether pvedaemon handles the call; otherwise pveproxy does.
    pub protected: bool,
    /// `GET`, `POST`, `PUT` or `DELETE`.
    pub method: &'static str,
    /// The path template of the schema, such as `/nodes/{node}/qemu/{vmid}/clone`.
    pub route: &'static str,
    /// The node in the path, with `localhost` resolved; none for routes outside `/nodes/{node}`.
    pub node: Option<String>,
    pub params: Params,
    /// The content of an uploaded file.
    pub file: Option<Bytes>,
}

/// A refused or failed call, in the words of Proxmox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{status} {message}")]
pub struct ApiError {
    /// The HTTP status: 400, 401, 403, 500, 501, 506 or 595 to 599.
    pub status: u16,
    /// The message without a trailing newline; its first line becomes the reason phrase.
    pub message: String,
    /// Errors by parameter name.
    pub errors: BTreeMap<String, String>,
}

impl ApiError {
    /// A 500 with this text: Proxmox answers nearly every failure so (book: proxmox, section 2).
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

    /// A 403; `detail` follows `Permission check failed` in parentheses.
    pub fn denied(detail: &str) -> Self {
        let message = if detail.is_empty() {
            "Permission check failed".to_owned()
        } else {
            format!("Permission check failed ({detail})")
        };
        Self { status: 403, message, errors: BTreeMap::new() }
    }

    /// A failure with another status, such as 595 to 599 on the way to another node.
    pub fn with_status(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), errors: BTreeMap::new() }
    }
}

/// The answer of a route. Paged lists set `total` through [`Answer::with_total`].
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The `data` member.
    pub data: Value,
    /// The `data` member as JSON text, in place of `data`: for long lists that clients poll.
    pub text: Option<String>,
    /// The `total` member of paged lists.
    pub total: Option<u64>,
}

impl Answer {
    /// An answer without `total`.
    pub fn new(data: Value) -> Self {
        Self { data, text: None, total: None }
    }

    /// `{"data": null}`.
    pub fn null() -> Self {
        Self::new(Value::Null)
    }

    /// One page of a list, and the number of entries on all pages.
    pub fn with_total(data: Value, total: u64) -> Self {
        Self { data, text: None, total: Some(total) }
    }

    /// A list whose items are JSON text.
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

    /// The `data` member from either form; null where the text is not JSON.
    pub fn value(self) -> Value {
        let parsed = self.text.map(|text| serde_json::from_str(&text).unwrap_or_default());
        parsed.unwrap_or(self.data)
    }
}

pub type Outcome = Result<Answer, ApiError>;
