//! Renders outcomes as HTTP responses: JSON bodies, error texts, and Perl's loose types of scalars
//! (book: proxmox, sections 1 and 2).

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use serde_json::{Map, Value, json};

use super::http::Response;
use crate::call::{Answer, ApiError, Outcome};

const JSON: &str = "application/json;charset=UTF-8";

/// Renders an outcome for `/api2/json`.
///
/// With `old_errors` the body of an error has no `message`.
pub(crate) fn json(outcome: Outcome, old_errors: bool) -> Response {
    let error = match outcome {
        Ok(Answer { text: Some(text), total: None, .. }) => {
            let body = format!("{{\"data\":{text}}}").into_bytes();
            return Response::new(200, "OK").with_body(JSON, body);
        }
        Ok(answer) => return Response::new(200, "OK").with_body(JSON, bytes(&success(answer))),
        Err(error) => error,
    };
    let response = Response::new(error.status, &error.message);
    // Failures on the way to another node come from the HTTP client, which gives no body.
    if error.status >= 595 {
        return response;
    }
    let mut body = json!({"data": null});
    if !old_errors {
        body["message"] = with_newline(&error).into();
    }
    if !error.errors.is_empty() {
        body["errors"] = json!(error.errors);
    }
    response.with_body(JSON, bytes(&body))
}

/// Renders an outcome for `/api2/extjs`, which answers 200 to all calls.
pub(crate) fn extjs(outcome: Outcome) -> Response {
    let body = match outcome {
        Ok(answer) => {
            let mut body = success(answer);
            body["success"] = 1.into();
            body
        }
        Err(error) => {
            let mut body = json!({
                "success": 0, "data": null,
                "status": error.status, "message": with_newline(&error),
            });
            if !error.errors.is_empty() {
                body["errors"] = json!(error.errors);
            }
            body
        }
    };
    Response::new(200, "OK").with_body(JSON, bytes(&body))
}

fn success(answer: Answer) -> Value {
    let total = answer.total;
    let mut body = Map::new();
    body.insert("data".to_owned(), answer.value());
    if let Some(total) = total {
        body.insert("total".to_owned(), total.into());
    }
    body.into()
}

/// Messages end in a newline, as Perl's do. Only the router's own message does not.
fn with_newline(error: &ApiError) -> String {
    let message = error.message.trim_end_matches('\n');
    if error.status == 501 { message.to_owned() } else { format!("{message}\n") }
}

fn bytes(value: &Value) -> Vec<u8> {
    // A `Value` is always valid JSON.
    serde_json::to_vec(value).unwrap_or_default()
}

/// Turns some numbers into text and some numeric texts into numbers, by the seed.
pub(crate) fn loosen(data: Value, seed: u64) -> Value {
    loosen_with(data, &mut StdRng::seed_from_u64(seed))
}

fn loosen_with(data: Value, random: &mut impl Rng) -> Value {
    match data {
        Value::Number(number) if random.random_bool(0.3) => Value::String(number.to_string()),
        Value::String(text) => match text.parse::<i64>() {
            Ok(number) if number.to_string() == text && random.random_bool(0.3) => number.into(),
            Ok(_) | Err(_) => Value::String(text),
        },
        Value::Array(items) => items.into_iter().map(|item| loosen_with(item, random)).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name, loosen_with(value, random)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => data,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    fn body(response: &Response) -> Value {
        serde_json::from_slice(&response.body).unwrap()
    }

    // Invariant: errors have exact texts, `message` or none, and close the connection
    // (book: proxmox, section 23, item 5).
    #[test]
    fn an_error_body_repeats_the_reason_with_a_newline() {
        let response = json(Err(ApiError::failed("VM 1 not running")), false);
        assert_eq!((response.status, response.close), (500, true));
        assert_eq!(response.reason, "VM 1 not running");
        assert_eq!(body(&response), json!({"data": null, "message": "VM 1 not running\n"}));
    }

    #[test]
    fn old_nodes_leave_the_message_to_the_reason_phrase() {
        let response = json(Err(ApiError::parameter("vmid", "x")), true);
        assert_eq!(response.reason, "Parameter verification failed.");
        assert_eq!(body(&response), json!({"data": null, "errors": {"vmid": "x"}}));
    }

    #[test]
    fn failures_on_the_way_to_another_node_have_no_body() {
        let response = json(Err(ApiError::with_status(595, "No route to host")), false);
        assert_eq!((response.status, response.body.len()), (595, 0));
    }

    #[test]
    fn only_the_message_of_the_router_has_no_newline() {
        let error = ApiError { status: 501, ..ApiError::failed("Method 'GET /x' not implemented") };
        assert_eq!(body(&json(Err(error), false))["message"], "Method 'GET /x' not implemented");
    }

    // Invariant: the same number can come as number or text (book: proxmox, section 23, item 11).
    #[test]
    fn loose_typing_varies_by_seed_and_repeats_with_it() {
        let data = json!([100, 101, 102, 103, "104", "105", "106", "01", "x", null, true, 1.5]);
        let loose = loosen(data.clone(), 7);
        assert_eq!(loose, loosen(data.clone(), 7));
        assert_ne!(loose, data);
        let seeds: std::collections::BTreeSet<String> =
            (0..20).map(|seed| loosen(data.clone(), seed).to_string()).collect();
        assert!(seeds.len() > 5);
        assert_eq!(loose[7], "01");
        assert_eq!(loose[9], Value::Null);
    }
}
