//! Every route × method × role × spelling of its path, over a real socket with bytes as they are.
//!
//! The routes are those of the table and of the OpenAPI document, so a new one is covered at once.
//! What must come of a request is computed here from the table alone, by reading the path once and
//! comparing it segment by segment.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeSet;

use actix_web::http::Method;
use reqwest::Method as Verb;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::gate::Access;
use crate::place::Place;
use crate::routes::places;
use crate::testing::Served;
use drover_api::Role;

/// What came of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Its handler ran.
    LetIn,
    /// The caller is not known.
    Unknown,
    /// The caller's role is too low.
    Refused,
    /// The path takes other methods.
    OtherMethods,
    /// No route has the path.
    NoRoute,
}

const ROLES: [Option<Role>; 4] =
    [None, Some(Role::Viewer), Some(Role::Operator), Some(Role::Admin)];
const METHODS: [Method; 7] = [
    Method::GET,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::HEAD,
    Method::OPTIONS,
];

/// Reads percent-encoded letters once, all but those that would change the shape of the path.
fn read_once(path: &str) -> String {
    let bytes = path.as_bytes();
    let (mut out, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let pair = path.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(byte) if !b"%/+".contains(&byte) => {
                out.push(byte);
                at += 3;
            }
            Some(_) | None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<_>, Vec<_>) =
        (pattern.split('/').collect(), path.split('/').collect());
    let same = |(one, other): (&&str, &&str)| {
        if one.starts_with('{') { !other.is_empty() } else { one == other }
    };
    pattern.len() == path.len() && pattern.iter().zip(&path).all(same)
}

fn expected(table: &[Place], method: &Method, target: &str, role: Option<Role>) -> Outcome {
    let path = target.split('?').next().unwrap();
    let path = path.strip_prefix("http://drover").unwrap_or(path);
    let path = read_once(path);
    let place = table.iter().find(|place| matches(place.path, &path));
    let taken = place.and_then(|place| place.methods.iter().find(|(known, _)| known == method));
    let (access, then) = match (place, taken) {
        (_, Some((_, access))) => (*access, Outcome::LetIn),
        (Some(place), None) => (place.access_to_refusal(), Outcome::OtherMethods),
        (None, _) => (Access::Least(Role::Viewer), Outcome::NoRoute),
    };
    match (access, role) {
        (Access::Open, _) => then,
        (Access::Least(_), None) => Outcome::Unknown,
        (Access::Least(least), Some(role)) if role < least => Outcome::Refused,
        (Access::Least(_), Some(_)) => then,
    }
}

/// Each way to write a path that somebody might try.
fn spellings(path: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::from([path.to_owned(), format!("http://drover{path}")]);
    let letters: Vec<(usize, char)> = path.char_indices().skip(1).collect();
    let put = |at: usize, letter: char, text: &str| {
        format!("{}{text}{}", &path[..at], &path[at + letter.len_utf8()..])
    };
    for (at, letter) in letters {
        if letter == '/' {
            for text in
                ["//", "%2F", "%2f", "%252F", "/./", "/%2e/", "/x/../", "/x/%2e%2E/", ";a=b/", "\\"]
            {
                all.insert(put(at, letter, text));
            }
            continue;
        }
        let (lower, upper) = (format!("%{:02x}", letter as u32), format!("%{:02X}", letter as u32));
        all.extend([put(at, letter, &lower), put(at, letter, &upper)]);
        if at % 4 == 0 {
            all.insert(put(at, letter, &format!("%25{:02x}", letter as u32)));
            all.insert(put(at, letter, &letter.to_ascii_uppercase().to_string()));
        }
    }
    let encoded: String = path
        .bytes()
        .map(|byte| match byte {
            b'/' => "/".to_owned(),
            other => format!("%{other:02x}"),
        })
        .collect();
    all.insert(encoded);
    all.insert(path.to_uppercase());
    for before in ["/", "/.", "/..", "/%2e%2e", "/x/.."] {
        all.insert(format!("{before}{path}"));
    }
    for after in [
        "/",
        "//",
        "/.",
        "/%2e",
        "/..",
        ";a=b",
        "%00",
        "%20",
        "%3f",
        "%23",
        "?a=/healthz",
        "%ff",
        "%c0%af",
        "+",
        ".json",
    ] {
        all.insert(format!("{path}{after}"));
    }
    all
}

/// A connection that sends what it is given and reads each answer.
struct Raw {
    address: String,
    stream: Option<TcpStream>,
}

impl Raw {
    async fn ask(&mut self, method: &Method, target: &str, role: Option<Role>) -> Outcome {
        let token = role.map(|role| format!("authorization: Bearer {role}-token\r\n"));
        let token = token.unwrap_or_default();
        let request = format!(
            "{method} {target} HTTP/1.1\r\nhost: drover\r\ncontent-length: 0\r\n{token}\r\n"
        );
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => TcpStream::connect(&self.address).await.unwrap(),
        };
        stream.write_all(request.as_bytes()).await.unwrap();
        let (mut bytes, mut buffer) = (Vec::new(), [0; 8192]);
        let head = loop {
            let count = stream.read(&mut buffer).await.unwrap();
            assert_ne!(count, 0, "{method} {target}: {}", String::from_utf8_lossy(&bytes));
            bytes.extend_from_slice(&buffer[..count]);
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let text = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
        let status: u16 = text.split(' ').nth(1).unwrap().parse().unwrap();
        let header =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        if header("content-type") == Some("text/event-stream") {
            // A stream has no end: its connection goes.
            return Outcome::LetIn;
        }
        if header("transfer-encoding") == Some("chunked") {
            // Its end is not looked for: its connection goes.
            assert_eq!(status, 200, "{method} {target}");
            return Outcome::LetIn;
        }
        let length: usize = header("content-length").unwrap_or("0").parse().unwrap();
        let length = if *method == Method::HEAD { 0 } else { length };
        while bytes.len() < head + length {
            let count = stream.read(&mut buffer).await.unwrap();
            assert_ne!(count, 0, "{method} {target}");
            bytes.extend_from_slice(&buffer[..count]);
        }
        let closes = header("connection") == Some("close");
        self.stream = (!closes).then_some(stream);
        let body: Value = serde_json::from_slice(&bytes[head..]).unwrap_or_default();
        let detail = body["detail"].as_str().unwrap_or_default();
        match status {
            401 if *method == Method::HEAD || detail.starts_with("give a token as") => {
                Outcome::Unknown
            }
            403 => Outcome::Refused,
            405 => {
                assert!(header("allow").is_some(), "{method} {target}");
                Outcome::OtherMethods
            }
            404 if *method == Method::HEAD || detail.starts_with("no route") => Outcome::NoRoute,
            400 if body.is_null() => panic!("{method} {target} is no request at all"),
            _ => Outcome::LetIn,
        }
    }
}

// Invariant: no spelling of a path lets anybody do what the route that answers does not allow them.

#[tokio::test]
async fn every_spelling_of_every_route_takes_the_role_of_the_route_that_answers() {
    let served = Served::default();
    let document = served.call(None, Verb::GET, "/openapi.json", "").await.body;
    let described = document["paths"].as_object().unwrap().keys().cloned();
    let table = places();
    let mut paths: BTreeSet<String> = described.collect();
    paths.extend(table.iter().map(|place| place.path.to_owned()));
    paths.insert("/v1/nothing".to_owned());
    let address = served.base.strip_prefix("http://").unwrap().to_owned();
    let mut raw = Raw { address, stream: None };
    let (mut asked, mut wrong) = (0, Vec::new());
    for pattern in paths {
        let path: Vec<_> =
            pattern.split('/').map(|one| if one.starts_with('{') { "a1" } else { one }).collect();
        let path = path.join("/");
        let taken = table.iter().find(|place| place.path == pattern);
        let taken = |method: &Method| {
            taken.is_some_and(|place| place.methods.iter().any(|(known, _)| known == method))
        };
        for target in spellings(&path) {
            // Methods that the route does not take are asked for by its plain name alone. HEAD of
            // those that take GET has no body that would say who answered.
            let bare = |method: &Method| *method == Method::HEAD && taken(&Method::GET);
            let is_asked = |method: &&Method| (taken(method) || target == path) && !bare(method);
            for method in METHODS.iter().filter(is_asked) {
                for role in ROLES {
                    let expected = expected(&table, method, &target, role);
                    let seen = raw.ask(method, &target, role).await;
                    asked += 1;
                    if seen != expected {
                        wrong.push(format!(
                            "{method} {target} as {role:?}: {seen:?}, not {expected:?}"
                        ));
                    }
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {asked}:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(40)].join("\n")
    );
    assert!(asked > 5_000, "{asked}");
    served.stop().await;
}

#[tokio::test]
async fn another_spelling_of_a_path_opens_nothing() {
    let served = Served::default();
    for (role, method, path) in [
        ("viewer", Verb::GET, "/v1/%6eodes"),
        ("viewer", Verb::GET, "/v1/%72esync"),
        ("viewer", Verb::GET, "/v1/templates/linux/wh%79"),
        ("operator", Verb::POST, "/v1/re%61p"),
    ] {
        let answer = served.call(Some(role), method.clone(), path, "").await;
        assert_eq!(answer.status, 403, "{method} {path} as {role}");
    }
    served.stop().await;
}

#[tokio::test]
async fn a_resync_reloads_only_for_whom_a_reload_is_allowed() {
    let served = Served::default();
    *served.reload.lock().unwrap() = Ok(5);
    let answer = served.call(Some("operator"), Verb::POST, "/v1/resync", "").await;
    let refused = answer.body["refused"].as_str().unwrap_or_default();
    assert!(refused.contains("a reload needs the role admin"), "{}", answer.body);
    assert_eq!(answer.body["clusters"].as_object().unwrap().len(), 1);
    let answer = served.admin(Verb::POST, "/v1/resync", "").await;
    assert_eq!(answer.body["refused"], Value::Null);
    served.stop().await;
}

#[tokio::test]
async fn a_method_that_a_route_does_not_take_is_answered_405_with_those_it_takes() {
    let served = Served::default();
    for (role, method, path, allow) in [
        ("viewer", "PATCH", "/v1/leases", "GET, HEAD, POST"),
        ("viewer", "GET", "/v1/reap", "POST"),
        ("operator", "PUT", "/v1/agents/a1/hold", "DELETE, POST"),
    ] {
        let request =
            served.http.request(method.parse().unwrap(), format!("{}{path}", served.base));
        let answer = request.bearer_auth(format!("{role}-token")).send().await.unwrap();
        assert_eq!(answer.status(), 405, "{method} {path} as {role}");
        assert_eq!(answer.headers()["allow"], allow, "{path}");
    }
    served.stop().await;
}
