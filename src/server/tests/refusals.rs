//! Refusals of every route and of what is no request at all, over a real socket; and HEAD, whose
//! answers are those of GET without a body.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeMap;

use reqwest::Method as Verb;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::gate::Access;
use crate::line::HEAD_BYTES;
use crate::place::Place;
use crate::routes::places;
use crate::testing::{Answer, Served};
use drover_api::Problem;
use drover_api::Role;

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// A path of a place whose names are nobody's.
fn unknown(place: &Place) -> String {
    let parts = place.path.split('/').map(|one| if one.starts_with('{') { "zz" } else { one });
    parts.collect::<Vec<_>>().join("/")
}

/// What is wrong with an answer that refuses.
fn fault(answer: &Answer) -> Option<String> {
    let Ok(problem) = serde_json::from_value::<Problem>(answer.body.clone()) else {
        return Some(format!("it is `{}`: {}", answer.kind, answer.body));
    };
    let sound = answer.kind == "application/problem+json"
        && problem.status == answer.status
        && problem.kind.starts_with("urn:drover:problem:")
        && !problem.title.is_empty()
        && !problem.detail.is_empty();
    (!sound).then(|| format!("it is `{}`: {problem:?}", answer.kind))
}

/// All answers that refused: how many there were of each status, and what was wrong with them.
#[derive(Default)]
struct Refused {
    counts: BTreeMap<u16, usize>,
    wrong: Vec<String>,
}

impl Refused {
    /// Asks, and looks at the answer where it refuses.
    async fn ask(
        &mut self,
        served: &Served,
        who: Option<&str>,
        (method, path, body): (&str, &str, &str),
        wanted: Option<u16>,
    ) {
        let verb: Verb = method.parse().unwrap();
        let answer = served.call(who, verb, path, body).await;
        let begin = &body[..body.len().min(20)];
        let about = format!("{method} {path} as {who:?} with `{begin}`");
        if wanted.is_some_and(|wanted| wanted != answer.status) {
            self.wrong.push(format!("{about}: {}, not {wanted:?}", answer.status));
        }
        if answer.status >= 400 {
            *self.counts.entry(answer.status).or_default() += 1;
            self.wrong.extend(fault(&answer).map(|fault| format!("{about}: {fault}")));
        }
    }
}

// Invariant: whatever is refused is refused with a problem document that says the status it has.

#[tokio::test]
async fn every_refusal_of_every_route_is_a_problem() {
    let served = Served::default();
    let mut seen = Refused::default();
    let most = places().iter().map(|place| place.body_limit).max().unwrap_or_default();
    let large = "x".repeat(most + 1);
    for place in places() {
        let path = unknown(&place);
        let taken = |method: &str| place.methods.iter().any(|(known, _)| known.as_str() == method);
        for other in METHODS.into_iter().filter(|method| !taken(method)) {
            seen.ask(&served, Some("viewer"), (other, &path, ""), Some(405)).await;
        }
        for (method, access) in &place.methods {
            let method = method.as_str();
            let bodied = !["GET", "DELETE"].contains(&method);
            match access {
                Access::Open => {
                    for body in ["", "{"] {
                        seen.ask(&served, None, (method, &path, body), None).await;
                    }
                }
                Access::Least(role) => {
                    seen.ask(&served, None, (method, &path, ""), Some(401)).await;
                    if *role > Role::Viewer {
                        seen.ask(&served, Some("viewer"), (method, &path, ""), Some(403)).await;
                    }
                    if bodied {
                        let body = (method, path.as_str(), &large[..=place.body_limit]);
                        seen.ask(&served, Some("admin"), body, Some(413)).await;
                        for body in ["{", "[]", "{}", r#"{"nonsense": 1}"#] {
                            seen.ask(&served, Some("admin"), (method, &path, body), None).await;
                        }
                    } else if path != "/v1/events" {
                        // The stream of events has no end to wait for.
                        for query in ["", "?nonsense=1"] {
                            let target = format!("{path}{query}");
                            seen.ask(&served, Some("admin"), (method, &target, ""), None).await;
                        }
                    }
                }
            }
        }
    }
    seen.ask(&served, Some("viewer"), ("GET", "/v1/nothing", ""), Some(404)).await;
    seen.ask(&served, Some("viewer"), ("GET", "/v1/leases/%ff", ""), Some(404)).await;
    for _ in 0..30 {
        seen.ask(&served, None, ("POST", "/v1/call-in", "{}"), None).await;
    }
    assert!(seen.wrong.is_empty(), "{}", seen.wrong.join("\n"));
    for status in [400, 401, 403, 404, 405, 409, 413, 422, 429] {
        assert!(seen.counts.contains_key(&status), "no {status} in {:?}", seen.counts);
    }
    served.stop().await;
}

// Invariant: a body that says that it is no JSON is not read as JSON; one that says nothing is.

#[tokio::test]
async fn a_body_of_another_kind_is_refused_and_what_curl_sends_is_read() {
    let served = Served::default();
    let ask = async |path: &str, kind: &str, body: &'static str| {
        let request = served.http.post(format!("{}{path}", served.base)).bearer_auth("admin-token");
        let answer = request.header("content-type", kind).body(body).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    for kind in [
        "application/json",
        "application/json; charset=utf-8",
        "application/merge-patch+json",
        "application/x-www-form-urlencoded",
        "text/plain;charset=UTF-8",
    ] {
        assert_eq!(ask("/v1/reap", kind, "{}").await.0, 200, "{kind}");
    }
    for kind in ["text/xml", "multipart/form-data; boundary=x", "application/yaml", "json"] {
        let (status, text) = ask("/v1/reap", kind, "{}").await;
        let problem: Problem = serde_json::from_str(&text).unwrap();
        assert_eq!((status, problem.status), (415, 415), "{kind}");
        assert!(problem.detail.contains(&format!("`{kind}`")), "{}", problem.detail);
        assert_eq!(ask("/v1/reap", kind, "").await.0, 200, "nothing is of any kind");
    }
    // What CI systems send is theirs.
    assert_ne!(ask("/v1/hooks/git", "text/xml", "{}").await.0, 415);
    served.stop().await;
}

/// Sends bytes as they are and reads until the service hangs up.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, bytes: &[u8]) -> String {
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

/// Takes an answer that ends its connection apart.
fn taken_apart(text: &str) -> Answer {
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let header = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| *known == name).map(|(_, value)| value.to_owned())
    };
    assert_eq!(header("content-length"), Some(body.len().to_string()), "{text}");
    assert_eq!(header("connection").as_deref(), Some("close"), "{text}");
    assert!(header("date").is_some(), "{text}");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = serde_json::from_str(body).unwrap_or(Value::Null);
    Answer { status, kind: header("content-type").unwrap_or_default(), body }
}

#[tokio::test]
async fn a_head_that_is_none_is_a_problem_too() {
    let served = Served::default();
    let address = served.base.strip_prefix("http://").unwrap().to_owned();
    let hello = [&b"\x16\x03\x01\x02\x00"[..], &[7; 600]].concat();
    let text = |text: &str| text.replace('\n', "\r\n").into_bytes();
    let heads = [
        hello,
        text("rubbish\n\n"),
        text("PRI * HTTP/2.0\n\nSM\n\n"),
        text("GET /healthz HTTP/9.9\nhost: drover\n\n"),
        text("GET /health z HTTP/1.1\nhost: drover\n\n"),
        text("GET /healthz HTTP/1.1\n\n"),
        text("GET /healthz HTTP/1.1\nhost: drover\nhost: drover\n\n"),
        text("GET /healthz HTTP/1.1\nhost: drover\nno colon\n\n"),
        text("POST /v1/call-in HTTP/1.1\nhost: drover\ncontent-length: many\n\n{}"),
        text("POST /v1/call-in HTTP/1.1\nhost: drover\ncontent-length: +2\n\n{}"),
        text("POST / HTTP/1.1\nhost: x\ncontent-length: 2\ntransfer-encoding: chunked\n\n{}"),
    ];
    for head in &heads {
        let stream = TcpStream::connect(&address).await.unwrap();
        let said = exchange(stream, head).await;
        let answer = taken_apart(&said);
        assert_eq!((answer.status, fault(&answer)), (400, None), "{said}");
        let local = UnixStream::connect(&served.socket).await.unwrap();
        let answer = taken_apart(&exchange(local, head).await);
        assert_eq!((answer.status, fault(&answer)), (400, None), "on the socket");
    }
    let many: String = (0..100).map(|n| format!("x-{n}: y\n")).collect();
    let long = format!("x: {}\n", "y".repeat(HEAD_BYTES));
    for fields in [many, long] {
        let head = text(&format!("GET /healthz HTTP/1.1\nhost: drover\n{fields}\n"));
        let stream = TcpStream::connect(&address).await.unwrap();
        let answer = taken_apart(&exchange(stream, &head).await);
        assert_eq!((answer.status, fault(&answer)), (431, None));
        let local = UnixStream::connect(&served.socket).await.unwrap();
        let answer = taken_apart(&exchange(local, &head).await);
        assert_eq!((answer.status, fault(&answer)), (431, None), "on the socket");
    }
    // Behind a request that is answered, in one piece with it.
    for version in ["HTTP/1.1", "HTTP/1.0\nconnection: keep-alive"] {
        let both = text(&format!("GET /healthz {version}\nhost: drover\n\nrubbish\n\n"));
        let stream = TcpStream::connect(&address).await.unwrap();
        let said = exchange(stream, &both).await;
        let (first, second) = said.split_once(r#"{"status":"alive"}"#).unwrap();
        assert!(first.contains(" 200 OK\r\n"), "{said}");
        let answer = taken_apart(second);
        assert_eq!((answer.status, fault(&answer)), (400, None), "{said}");
    }
    served.stop().await;
}

// Invariant: HEAD is answered wherever GET is, as GET is, and its answer ends with the head.

#[tokio::test]
async fn head_is_answered_as_get_is_without_a_body() {
    let served = Served::default();
    let ask = async |verb: Verb, path: &str, who: Option<&str>| {
        let mut request = served.http.request(verb, format!("{}{path}", served.base));
        if let Some(who) = who {
            request = request.bearer_auth(format!("{who}-token"));
        }
        request.send().await.unwrap()
    };
    let mut count = 0;
    for place in places() {
        let path = unknown(&place);
        let taken = place.methods.iter().any(|(method, _)| method.as_str() == "GET");
        for who in [None, Some("viewer"), Some("admin")] {
            let head = ask(Verb::HEAD, &path, who).await;
            if !taken {
                let open = place.access_to_refusal() == Access::Open;
                let wanted = if who.is_none() && !open { 401 } else { 405 };
                assert_eq!(head.status(), wanted, "{path} as {who:?}");
                continue;
            }
            let get = ask(Verb::GET, &path, who).await;
            let kind = |of: &reqwest::Response| of.headers().get("content-type").cloned();
            assert_eq!(head.status(), get.status(), "{path} as {who:?}");
            assert_eq!(kind(&head), kind(&get), "{path} as {who:?}");
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
    let length = |of: &reqwest::Response| of.headers().get("content-length").cloned();
    let (head, get) =
        (ask(Verb::HEAD, "/openapi.json", None).await, ask(Verb::GET, "/openapi.json", None).await);
    assert_eq!(length(&head), length(&get));
    assert!(length(&head).is_some_and(|length| length.len() > 4), "tens of thousands of bytes");

    // Even where GET has no end: the connection is free for the next request.
    let address = served.base.strip_prefix("http://").unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let login = "host: drover\r\nauthorization: Bearer viewer-token\r\n";
    let two = format!(
        "HEAD /v1/events HTTP/1.1\r\n{login}\r\n\
         HEAD /healthz HTTP/1.1\r\n{login}connection: close\r\n\r\n"
    );
    let said = exchange(stream, two.as_bytes()).await;
    let heads: Vec<&str> = said.split_terminator("\r\n\r\n").collect();
    assert_eq!(heads.len(), 2, "{said}");
    assert!(heads[0].contains("content-type: text/event-stream"), "{said}");
    assert!(heads.iter().all(|head| head.starts_with("HTTP/1.1 200 OK")), "{said}");
    served.stop().await;
}
