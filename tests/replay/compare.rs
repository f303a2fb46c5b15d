//! Comparison of an answer with the recorded one.

use std::collections::BTreeMap;

use pve_sim::api::http::Response;
use serde_json::{Map, Value};

use crate::exchange::Exchange;

/// The body of an answer, when it is JSON.
pub fn json(response: &Response) -> Option<Value> {
    let is_json = |(name, value): &(String, String)| {
        name == "Content-Type" && value.starts_with("application/json")
    };
    let found = response.headers.iter().any(is_json);
    found.then(|| serde_json::from_slice(&response.body).unwrap())
}

/// Everything in which the answer differs from the recorded one.
pub fn differences(recorded: &Exchange, response: &Response) -> Vec<String> {
    let mut found = Vec::new();
    let mut check = |what: &str, recorded: String, got: String| {
        if recorded != got {
            found.push(format!("{what}: recorded {recorded}, got {got}"));
        }
    };
    check("status", recorded.status.to_string(), response.status.to_string());
    check("reason", recorded.reason.clone(), response.reason.clone());
    let body = json(response).unwrap_or_default();
    let errors: Option<BTreeMap<String, String>> =
        body.get("errors").map(|errors| serde_json::from_value(errors.clone()).unwrap());
    check("errors", format!("{:?}", recorded.errors), format!("{errors:?}"));
    let message = body.get("message").and_then(Value::as_str).map(str::to_owned);
    check("message", format!("{:?}", recorded.message), format!("{message:?}"));
    if let Some(plain) = &recorded.plain {
        let got = String::from_utf8_lossy(&response.body).into_owned();
        check("body", plain.trim().into(), got.trim().into());
    }
    if recorded.status < 400 {
        let expected = recorded.shape.clone().unwrap_or_default();
        let got = shape(body.get("data").unwrap_or(&Value::Null));
        check("shape", expected.to_string(), got.to_string());
    }
    let data = body.get("data").cloned().unwrap_or_default();
    let text = |key: &str| data.get(key).and_then(Value::as_str).map(str::to_owned);
    if recorded.task.is_some() {
        check("task", format!("{:?}", recorded.task), format!("{:?}", text("status")));
        check("exit", format!("{:?}", recorded.exit), format!("{:?}", text("exitstatus")));
    }
    if let Some(success) = recorded.success {
        let got = (body["success"].as_u64(), body["status"].as_u64());
        let expected = (Some(u64::from(success)), recorded.inner.map(u64::from));
        check("extjs", format!("{expected:?}"), format!("{got:?}"));
    }
    found
}

/// The shape of data: scalars are all alike, the items of a list are laid over each other.
fn shape(data: &Value) -> Value {
    match data {
        Value::Null => Value::Null,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => "s".into(),
        Value::Array(items) if items.is_empty() => Value::Array(Vec::new()),
        Value::Array(items) => {
            let merged = items.iter().map(shape).fold(Value::Null, merge);
            Value::Array(vec![merged])
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), shape(value)));
            Value::Object(fields.collect())
        }
    }
}

fn merge(left: Value, right: Value) -> Value {
    match (left, right) {
        (Value::Null, other) | (other, Value::Null) => other,
        (Value::Object(mut left), Value::Object(right)) => {
            for (name, value) in right {
                let merged = merge(left.remove(&name).unwrap_or_default(), value);
                left.insert(name, merged);
            }
            let sorted: BTreeMap<String, Value> = left.into_iter().collect();
            Value::Object(sorted.into_iter().collect::<Map<_, _>>())
        }
        (Value::Array(left), Value::Array(right)) => {
            Value::Array(match (left.into_iter().next(), right.into_iter().next()) {
                (Some(left), Some(right)) => vec![merge(left, right)],
                (one, other) => one.into_iter().chain(other).collect(),
            })
        }
        (left, _) => left,
    }
}
