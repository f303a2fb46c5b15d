//! Terminals over a real socket, with a guest that echoes: who opens one, what their readers get, and their ends.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;

use drover_model::fact::What;
use drover_model::id::LeaseId;
use drover_model::phase::{AgentPhase, LeasePhase};
use drover_model::record::HoldOwner;
use drover_model::status::LeaseStatus;
use futures_util::StreamExt as _;
use reqwest::Method;
use serde_json::{Value, json};

use crate::auth::Auth;
use crate::terminals::TERMINALS;
use crate::testing::{Answer, Served, agent, lease, reported};

/// A service with an agent that `token:build`, who is an operator, has on a lease.
fn served() -> Served {
    let served = Served::default();
    let mut one = agent("a1", AgentPhase::Leased);
    one.leases = vec![LeaseId::new("l1")];
    reported(&served.view, What::Agent(Arc::new(one)));
    let of = lease("l1", LeasePhase::Ready, Some("a1"), "");
    let (principal, group) = ("token:build".to_owned(), Some("build".to_owned()));
    reported(&served.view, What::Lease(Box::new(LeaseStatus { principal, group, ..of })));
    served
}

async fn open(served: &Served, who: &str, agent: &str, body: Value) -> Answer {
    let path = format!("/v1/agents/{agent}/terminals");
    served.call(Some(who), Method::POST, &path, &body.to_string()).await
}

async fn opened(served: &Served, who: &str) -> String {
    let answer = open(served, who, "a1", json!({ "columns": 90, "rows": 30 })).await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.body["id"].as_str().unwrap().to_owned()
}

/// A reader of a terminal.
struct Reader {
    events: std::pin::Pin<Box<dyn futures_util::Stream<Item = reqwest::Result<bytes::Bytes>>>>,
    text: String,
    lines: Vec<String>,
    last: Value,
}

impl Reader {
    async fn of(served: &Served, who: &str, id: &str) -> Self {
        let request = served.http.get(format!("{}/v1/terminals/{id}", served.base));
        let answer = request.bearer_auth(format!("{who}-token")).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        let events = Box::pin(answer.bytes_stream());
        Self { events, text: String::new(), lines: Vec::new(), last: Value::Null }
    }

    /// The next event: its kind and data.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let Some((kind, data)) = event.split_once('\n') else { continue };
                let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
                return Some((kind.strip_prefix("event: ").unwrap().to_owned(), data));
            }
            let piece = self.events.next().await?.unwrap();
            self.text += std::str::from_utf8(&piece).unwrap();
        }
    }

    /// Reads until a line of the screen has this.
    async fn until(&mut self, wanted: &str) {
        while !self.lines.iter().any(|line| line.contains(wanted)) {
            let (kind, data) = self.next().await.unwrap();
            assert_eq!(kind, "screen", "{data} before `{wanted}`");
            if data["whole"] == true {
                self.lines =
                    vec![String::new(); data["rows"].as_u64().unwrap().try_into().unwrap()];
            }
            for (number, line) in data["lines"].as_object().unwrap() {
                let pieces = line.as_array().unwrap().iter();
                let text = pieces.map(|piece| piece[0].as_str().unwrap()).collect();
                self.lines[number.parse::<usize>().unwrap()] = text;
            }
            self.last = data;
        }
    }

    /// Reads to the end, and gives its reason.
    async fn end(&mut self) -> String {
        loop {
            let (kind, data) = self.next().await.unwrap();
            if kind == "end" {
                assert_eq!(self.next().await, None);
                return data["reason"].as_str().unwrap().to_owned();
            }
        }
    }
}

async fn types(served: &Served, who: &str, id: &str, text: &str) -> u16 {
    let body = json!({ "text": text }).to_string();
    served.call(Some(who), Method::POST, &format!("/v1/terminals/{id}/keys"), &body).await.status
}

// Invariant: a reader has the screen that the keys made, also one that comes later.

#[tokio::test]
async fn keys_come_back_as_the_screen_also_to_a_reader_that_comes_again() {
    let served = served();
    let id = opened(&served, "build").await;
    let mut reader = Reader::of(&served, "build", &id).await;
    reader.until("90x30").await;
    assert_eq!(types(&served, "build", &id, "hello \u{1b}[1mthere").await, 204);
    reader.until("hello there").await;
    let size = r#"{"columns": 100, "rows": 40}"#;
    let path = format!("/v1/terminals/{id}/size");
    assert_eq!(served.call(Some("build"), Method::POST, &path, size).await.status, 204);
    reader.until("100x40").await;
    // The new reader has all of it, and the one before ends.
    let mut again = Reader::of(&served, "build", &id).await;
    again.until("hello there").await;
    assert_eq!(reader.end().await, "another window shows it now");
    assert_eq!(types(&served, "build", &id, "exit\r").await, 204);
    assert_eq!(again.end().await, "its shell ended with status 0");
    let late = served.call(Some("build"), Method::GET, &format!("/v1/terminals/{id}"), "").await;
    assert_eq!(late.status, 404);
    let detail = late.body["detail"].as_str().unwrap();
    assert_eq!(detail, "the terminal has ended: its shell ended with status 0");
    served.stop().await;
}

// Invariant: nobody opens a terminal where somebody else works, uses the terminal of somebody else, or has a free
// agent without holding it.

#[tokio::test]
async fn a_terminal_is_for_those_whose_the_agent_is_and_for_admins() {
    let served = served();
    let none = json!({});
    for (who, status) in [("viewer", 403), ("operator", 403), ("build", 201), ("admin", 201)] {
        assert_eq!(open(&served, who, "a1", none.clone()).await.status, status, "{who}");
    }
    assert_eq!(open(&served, "admin", "zz", none.clone()).await.status, 404);
    let id = opened(&served, "build").await;
    for who in ["operator", "admin"] {
        assert_eq!(types(&served, who, &id, "x").await, 404, "{who}");
    }
    // A free one is held first, and then it is theirs.
    reported(&served.view, What::Agent(Arc::new(agent("a2", AgentPhase::Ready))));
    let refused = open(&served, "admin", "a2", none.clone()).await;
    assert_eq!(refused.status, 409);
    assert!(refused.body["detail"].as_str().unwrap().contains("holdSeconds"), "{}", refused.body);
    let held = open(&served, "admin", "a2", json!({ "holdSeconds": 3600 })).await;
    assert_eq!(held.status, 201, "{}", held.body);
    let phase = served.view.agent(&drover_model::id::AgentId::new("a2")).unwrap().phase;
    assert_eq!(phase, AgentPhase::Held);
    // A guest that lets nobody in is named.
    let mut deaf = agent("a3", AgentPhase::Preparing);
    deaf.way_in.as_mut().unwrap().ssh.user = "nobody".into();
    reported(&served.view, What::Agent(Arc::new(deaf)));
    assert_eq!(open(&served, "admin", "a3", none).await.status, 409, "it goes to anybody yet");
    let refused = open(&served, "admin", "a3", json!({ "holdSeconds": 60 })).await;
    assert_eq!(refused.status, 502);
    let detail = refused.body["detail"].as_str().unwrap();
    assert!(detail.contains("nobody answers"), "{detail}");
    assert!(detail.contains("`drover release-hold a3`"), "{detail}");
    // An admin closes what somebody else opened.
    let path = format!("/v1/terminals/{id}");
    assert_eq!(served.call(Some("operator"), Method::DELETE, &path, "").await.status, 404);
    let mut reader = Reader::of(&served, "build", &id).await;
    assert_eq!(served.admin(Method::DELETE, &path, "").await.status, 204);
    assert_eq!(reader.end().await, "an admin closed it");
    served.stop().await;
}

#[tokio::test]
async fn a_terminal_ends_once_its_owner_has_no_right_to_it_any_more() {
    let served = served();
    let id = opened(&served, "build").await;
    let mut reader = Reader::of(&served, "build", &id).await;
    reader.until("90x30").await;
    // Somebody else holds the agent after the lease.
    let mut other = agent("a1", AgentPhase::Held);
    let (principal, group) = ("token:operator".to_owned(), None);
    other.hold_owner = Some(HoldOwner { principal, group });
    reported(&served.view, What::Agent(Arc::new(other)));
    assert_eq!(reader.end().await, "of its agent: somebody else holds it");

    let id = opened(&served, "operator").await;
    let mut reader = Reader::of(&served, "operator", &id).await;
    reader.until("90x30").await;
    served.running.replace_auth(Auth::default());
    assert_eq!(reader.end().await, "the login of its owner changed");
    served.stop().await;
}

// Invariant: nobody has so many terminals that others have none, and what is typed at once is bounded.

#[tokio::test]
async fn terminals_and_keys_have_bounds() {
    let served = served();
    let mut ids = Vec::new();
    for _ in 0..TERMINALS.1 {
        ids.push(opened(&served, "build").await);
    }
    assert_eq!(open(&served, "build", "a1", json!({})).await.status, 429);
    // Nothing is held for a terminal that has no place.
    reported(&served.view, What::Agent(Arc::new(agent("a2", AgentPhase::Ready))));
    let hold = json!({ "holdSeconds": 60 });
    assert_eq!(open(&served, "build", "a2", hold).await.status, 429);
    let phase = served.view.agent(&drover_model::id::AgentId::new("a2")).unwrap().phase;
    assert_eq!(phase, AgentPhase::Ready);
    let admins = opened(&served, "admin").await;
    let path = format!("/v1/terminals/{}", ids[0]);
    let mut reader = Reader::of(&served, "build", &ids[0]).await;
    assert_eq!(served.call(Some("build"), Method::DELETE, &path, "").await.status, 204);
    assert_eq!(reader.end().await, "it was closed");
    opened(&served, "build").await;
    for (text, status) in
        [(String::new(), 400), ("x".repeat(16_385), 400), ("x".repeat(16_384), 204)]
    {
        assert_eq!(types(&served, "admin", &admins, &text).await, status, "{}", text.len());
    }
    for (columns, rows) in [(19, 24), (301, 24), (80, 4), (80, 121)] {
        let body = json!({ "columns": columns, "rows": rows });
        assert_eq!(open(&served, "admin", "a1", body).await.status, 400, "{columns}x{rows}");
    }
    served.stop().await;
}

// Invariant: the audit log has each terminal with its owner and its bytes, and never what was typed or shown.

#[tokio::test]
async fn the_audit_log_has_who_was_where_for_how_long_and_no_key() {
    let served = served();
    let id = opened(&served, "build").await;
    let mut reader = Reader::of(&served, "build", &id).await;
    types(&served, "build", &id, "s3cret-word").await;
    reader.until("s3cret-word").await;
    types(&served, "build", &id, "exit").await;
    reader.end().await;
    // Its record is on the disk before its answer, and so are those before it.
    served.admin(Method::POST, "/v1/reap", "{}").await;
    let all = served.admin(Method::GET, "/v1/audit?about=a1", "").await.body;
    let records = all["records"].as_array().unwrap();
    let kinds: Vec<&str> = records.iter().map(|one| one["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "call").count(), 1, "the one that opened it");
    let ended = records.iter().find(|one| one["kind"] == "terminalEnded").unwrap();
    assert_eq!(
        (&ended["principal"], &ended["role"], &ended["peer"], &ended["object"]),
        (&json!("token:build"), &json!("operator"), &json!("127.0.0.1"), &json!("a1"))
    );
    let detail = ended["detail"].as_str().unwrap();
    assert!(
        detail.contains("its shell ended with status 0; 15 bytes were typed, 18 bytes"),
        "{detail}"
    );
    assert!(kinds.contains(&"terminalOpened"));
    let whole = served.admin(Method::GET, "/v1/audit", "").await.body.to_string();
    assert!(!whole.contains("s3cret") && !whole.contains("/keys"), "{whole}");
    // What is refused is recorded as ever.
    types(&served, "viewer", &id, "x").await;
    let whole = served.admin(Method::GET, "/v1/audit", "").await.body.to_string();
    assert!(whole.contains("/v1/terminals/{id}/keys"), "{whole}");
    served.stop().await;
}

#[tokio::test]
async fn an_operator_lists_their_own_terminals_and_an_admin_all() {
    let served = served();
    let id = opened(&served, "build").await;
    let listed = |who: &'static str| served.call(Some(who), Method::GET, "/v1/terminals", "");
    let own = listed("build").await.body["terminals"].clone();
    assert_eq!(own[0]["id"], id.as_str());
    assert_eq!(own[0]["agent"], "a1");
    assert_eq!(own[0]["principal"], "token:build");
    assert_eq!(own[0]["openSeconds"], 0);
    assert_eq!(listed("operator").await.body["terminals"], json!([]));
    assert_eq!(listed("admin").await.body["terminals"], own);
    let page = served.call(Some("admin"), Method::GET, "/metrics", "").await;
    assert!(page.body.to_string().contains("drover_terminals 1"), "{}", page.body);
}
