//! Spans as OTLP: `ExportTraceServiceRequest` of `opentelemetry-proto` 1.10, in the JSON of Protocol Buffers
//! with the changes of OTLP 1.10.0. Ids are hexadecimal, 64-bit numbers are text, enums are numbers, names are
//! lowerCamelCase, and what has no value is left out.
//!
//! Each agent is a resource of its own, since its spans have its `cicd.worker.id` in common.

use std::collections::BTreeMap;

use drover_model::id::AgentId;
use serde::Serialize;

use crate::conventions::{self as named, CONVENTIONS};
use crate::span::{Span, TraceId, Value};

/// The most spans of one request.
pub const BATCH_SPANS: usize = 512;
/// About the most bytes of one request; a collector of OpenTelemetry takes 20 MiB.
pub const BATCH_BYTES: usize = 1024 * 1024;
/// `SPAN_KIND_INTERNAL`.
const INTERNAL: u8 = 1;
/// `STATUS_CODE_ERROR`.
const FAILED: u8 = 2;
/// What agents are to a CI system's collector of traces: something of drover's that makes workers.
const COMPONENT: &str = "controller";

/// The drover whose spans they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sender {
    pub version: String,
    /// Its name among other drovers.
    pub instance: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    resource_spans: Vec<ResourceSpans<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: Resource<'a>,
    scope_spans: [ScopeSpans<'a>; 1],
    schema_url: &'static str,
}

#[derive(Serialize)]
struct Resource<'a> {
    attributes: Vec<Attribute<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ScopeSpans<'a> {
    scope: Scope<'a>,
    spans: Vec<Shown<'a>>,
    schema_url: &'static str,
}

#[derive(Serialize)]
struct Scope<'a> {
    name: &'static str,
    version: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    name: &'a str,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Attribute<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
}

#[derive(Serialize)]
struct Status<'a> {
    message: &'a str,
    code: u8,
}

#[derive(Serialize)]
struct Attribute<'a> {
    key: &'static str,
    value: Any<'a>,
}

/// `AnyValue`.
#[derive(Serialize)]
enum Any<'a> {
    #[serde(rename = "stringValue")]
    Text(&'a str),
    #[serde(rename = "intValue")]
    Whole(String),
    #[serde(rename = "arrayValue")]
    Texts(Array<'a>),
}

#[derive(Serialize)]
struct Array<'a> {
    values: Vec<Any<'a>>,
}

fn text<'a>(key: &'static str, value: &'a str) -> Attribute<'a> {
    Attribute { key, value: Any::Text(value) }
}

fn attribute<'a>((key, value): &'a (&'static str, Value)) -> Attribute<'a> {
    let value = match value {
        Value::Text(text) => Any::Text(text),
        Value::Whole(number) => Any::Whole(number.to_string()),
        Value::Texts(texts) => {
            let values = texts.iter().map(|text| Any::Text(text)).collect();
            Any::Texts(Array { values })
        }
    };
    Attribute { key, value }
}

/// Milliseconds as nanoseconds; a time before 1970 is 0, since OTLP has none.
fn nanos(ms: i64) -> String {
    (u128::try_from(ms).unwrap_or(0) * 1_000_000).to_string()
}

fn shown(span: &Span) -> Shown<'_> {
    Shown {
        trace_id: TraceId::of(&span.agent).to_string(),
        span_id: span.id.to_string(),
        parent_span_id: span.parent.map(|parent| parent.to_string()),
        name: &span.name,
        kind: INTERNAL,
        start_time_unix_nano: nanos(span.start.0),
        end_time_unix_nano: nanos(span.end.0),
        attributes: span.attributes.iter().map(attribute).collect(),
        status: span.failed.as_deref().map(|message| Status { message, code: FAILED }),
    }
}

/// The body of a request with these spans; with none it asks whether a collector takes spans.
pub fn encode<'a>(sender: &Sender, spans: impl IntoIterator<Item = &'a Span>) -> Vec<u8> {
    let mut agents: BTreeMap<&AgentId, Vec<Shown<'_>>> = BTreeMap::new();
    for span in spans {
        agents.entry(&span.agent).or_default().push(shown(span));
    }
    let resources = agents.into_iter().map(|(agent, spans)| ResourceSpans {
        resource: Resource {
            attributes: vec![
                text(named::SERVICE_NAME, "drover"),
                text(named::SERVICE_VERSION, &sender.version),
                text(named::SERVICE_INSTANCE_ID, &sender.instance),
                text(named::SYSTEM_COMPONENT, COMPONENT),
                text(named::WORKER_ID, agent.as_str()),
            ],
        },
        scope_spans: [ScopeSpans {
            scope: Scope { name: "drover", version: &sender.version },
            spans,
            schema_url: CONVENTIONS,
        }],
        schema_url: CONVENTIONS,
    });
    let request = Request { resource_spans: resources.collect() };
    // Texts and numbers alone: nothing in it can fail.
    serde_json::to_vec(&request).unwrap_or_default()
}

/// How many of these spans fit into one request: at least one, where there are any.
pub fn batch<'a>(spans: impl IntoIterator<Item = &'a Span>) -> usize {
    let mut bytes = 0;
    let fits = spans.into_iter().take(BATCH_SPANS).take_while(|span| {
        let is_first = bytes == 0;
        bytes += span.bytes();
        is_first || bytes <= BATCH_BYTES
    });
    fits.count()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use drover_model::time::WallTime;
    use serde_json::Value as Json;

    use super::*;
    use crate::span::SpanId;

    fn sender() -> Sender {
        Sender { version: "0.1.0".to_owned(), instance: "lab00001".to_owned() }
    }

    fn span(name: &str) -> Span {
        let agent = AgentId::new("0123456789abcdef");
        let (id, root) = (SpanId::of(&agent, &[name]), SpanId::root(&agent));
        let times = (WallTime(1_764_230_000_000), WallTime(1_764_230_001_500));
        Span::new((&agent, id, Some(root)), name, times)
    }

    // Invariant: what is sent is OTLP as its collectors read it.

    #[test]
    fn spans_are_otlp_in_json() {
        let mut failed = span("Preparing: cloud-init");
        failed.set(named::WORKER_STATE, "offline");
        failed.attributes.push((named::EXIT_CODE, Value::Whole(7)));
        failed.attributes.push((named::JOBS, Value::Texts(vec!["1".into(), "2".into()])));
        failed.fail("step", "it said \"no\"\n");
        let agent = &failed.agent.clone();
        let times = (WallTime(-5), WallTime(3));
        let root = Span::new((agent, SpanId::root(agent), None), "agent lab/linux", times);
        let body: Json = serde_json::from_slice(&encode(&sender(), [&failed, &root])).unwrap();
        insta::assert_snapshot!("request", serde_json::to_string_pretty(&body).unwrap());
    }

    #[test]
    fn a_request_without_spans_is_whole() {
        assert_eq!(encode(&sender(), []), br#"{"resourceSpans":[]}"#);
    }

    // Invariant: a request has a limit of spans and of bytes, and each span fits into one.

    #[test]
    fn a_batch_has_a_limit_of_spans_and_of_bytes() {
        let small = span("x");
        assert_eq!(batch(std::iter::repeat_n(&small, 10_000)), BATCH_SPANS);
        assert_eq!(batch([]), 0);
        let mut large = span("x");
        let texts = vec!["x".repeat(1000); 400];
        large.attributes.push((named::JOBS, Value::Texts(texts)));
        let count = batch(std::iter::repeat_n(&large, 100));
        assert!((1..4).contains(&count), "{count}");
        let body = encode(&sender(), std::iter::repeat_n(&large, count));
        assert!(body.len() <= BATCH_BYTES + 4096, "{}", body.len());
        large.attributes.push((named::JOBS, Value::Texts(vec!["x".repeat(1000); 4000])));
        assert_eq!(batch([&large, &large]), 1);
    }
}
