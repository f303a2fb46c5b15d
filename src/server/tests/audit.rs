//! What calls leave in the audit log.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use drover_audit::{Call, Entry, OnFailure, Options, Record, Wanted, find, verify};
use reqwest::Method;
use serde_json::json;

use crate::gate::Access;
use crate::place::Place;
use crate::routes::places;
use crate::testing::{Answer, Served};
use drover_api::Role;

/// The records of a served API, and how many of them were looked at.
struct Log<'a> {
    served: &'a Served,
    seen: u64,
}

impl Log<'_> {
    fn new(served: &Served) -> Log<'_> {
        Log { served, seen: 0 }
    }

    /// The records since the last look.
    fn news(&mut self) -> Vec<Record> {
        let wanted = Wanted { after: Some(self.seen), limit: 10_000, ..Wanted::default() };
        let news = find(self.served.doors().audit.folder(), &wanted).unwrap();
        self.seen = news.last().map_or(self.seen, |record| record.seq);
        news
    }

    /// Makes a call, and gives its answer with the one record that it left.
    async fn one(
        &mut self,
        who: Option<&str>,
        (method, path, body): (&Method, &str, &str),
    ) -> (Answer, Call) {
        let answer = self.served.call(who, method.clone(), path, body).await;
        let mut news = self.news();
        assert_eq!(news.len(), 1, "{method} {path} as {who:?}: {news:?}");
        let Entry::Call(call) = news.remove(0).entry else { panic!("{method} {path}: no call") };
        (answer, call)
    }
}

/// A path of a place whose names are nobody's, and what it names.
fn unknown(place: &Place) -> (String, Option<String>) {
    let parts: Vec<&str> = place.path.split('/').collect();
    let named = parts.iter().filter(|one| one.starts_with('{')).count();
    let path = parts.iter().map(|one| if one.starts_with('{') { "zz" } else { one });
    let object = (named > 0).then(|| vec!["zz"; named].join("/"));
    (path.collect::<Vec<_>>().join("/"), object)
}

// Invariant: each call whose method may change something leaves exactly one record, from every caller and
// whatever came of it; no other call leaves one.

#[tokio::test]
async fn every_mutating_method_leaves_one_record_with_its_caller_also_where_it_is_refused() {
    let served = Served::default();
    let mut log = Log::new(&served);
    let mut statuses = std::collections::BTreeSet::new();
    let mut methods = 0;
    for place in places() {
        let (path, object) = unknown(&place);
        for (method, access) in &place.methods {
            if method.is_safe() {
                continue;
            }
            methods += 1;
            let verb: Method = method.as_str().parse().unwrap();
            let large = "x".repeat(place.body_limit + 1);
            let bodies: &[&str] =
                if *method == "DELETE" { &[""] } else { &["", "{", r#"{"nonsense": 1}"#, &large] };
            let mut calls = vec![(None, "")];
            calls.extend(bodies.iter().map(|body| (Some("admin"), *body)));
            if matches!(access, Access::Least(role) if *role > Role::Viewer) {
                calls.push((Some("viewer"), ""));
            }
            for (who, body) in calls {
                let (answer, call) = log.one(who, (&verb, &path, body)).await;
                let about = format!("{verb} {path} as {who:?}: {call:?}");
                // Open routes ask for no token, and these calls prove nothing else.
                let who = who.filter(|_| *access != Access::Open);
                let wanted = Call {
                    principal: who.map(|who| format!("token:{who}")),
                    role: who.map(str::to_owned),
                    peer: "127.0.0.1".to_owned(),
                    member: None,
                    method: verb.to_string(),
                    route: Some(place.path.to_owned()),
                    object: object.clone(),
                    status: Some(answer.status),
                    request: call.request.clone(),
                    done: None,
                };
                assert_eq!(call, wanted, "{about}");
                assert_eq!(call.request.len(), 16, "{about}");
                statuses.insert(answer.status);
            }
        }
    }
    assert!(methods > 40, "{methods}");
    for status in [200, 400, 401, 403, 404, 413] {
        assert!(statuses.contains(&status), "no {status} in {statuses:?}");
    }
    assert_eq!(verify(served.doors().audit.folder()).unwrap().last_seq, log.seen);
    served.stop().await;
}

#[tokio::test]
async fn a_drain_and_its_end_have_records_that_differ_though_they_have_one_route() {
    let served = Served::default();
    let mut log = Log::new(&served);
    for (path, body, done) in [
        ("pve1/cordon", "{}", "cordoned node pve1"),
        ("pve1/drain", "{}", "drained node pve1"),
        ("pve1/drain", "{\"undrain\":true}", "let node pve1 be used again"),
        ("pve2/drain", "{}", "drained node pve2, as it was already"),
    ] {
        let path = format!("/v1/nodes/{path}");
        let (answer, call) = log.one(Some("admin"), (&Method::POST, &path, body)).await;
        assert_eq!((answer.status, call.done.as_deref()), (200, Some(done)), "{path} {body}");
    }
    served.stop().await;
}

#[tokio::test]
async fn a_path_or_method_that_no_route_has_leaves_a_record_and_looking_leaves_none() {
    let served = Served::default();
    let mut log = Log::new(&served);
    let (answer, call) = log.one(Some("admin"), (&Method::POST, "/v1/nothing", "")).await;
    assert_eq!((answer.status, call.route), (404, None));
    assert_eq!(call.object.as_deref(), Some("/v1/nothing"));
    let (answer, call) = log.one(Some("viewer"), (&Method::PUT, "/v1/leases", "")).await;
    assert_eq!((answer.status, call.route.as_deref()), (405, Some("/v1/leases")));
    for place in places() {
        // The stream of events has no end to wait for.
        if place.path == "/v1/events" {
            continue;
        }
        for who in [None, Some("viewer"), Some("admin")] {
            for method in [Method::GET, Method::HEAD] {
                served.call(who, method, &unknown(&place).0, "").await;
            }
        }
    }
    assert_eq!(log.news(), []);
    served.stop().await;
}

#[tokio::test]
async fn a_user_of_the_socket_a_guest_and_a_source_are_named_as_they_are_known() {
    let served = Served::default();
    let mut log = Log::new(&served);
    let http = reqwest::Client::builder().unix_socket(served.socket.clone()).build().unwrap();
    let reap = http.post("http://drover/v1/reap").header("x-request-id", "night-7");
    let answer = reap.send().await.unwrap();
    assert_eq!(answer.headers()["x-request-id"], "night-7");
    let news = log.news();
    let Entry::Call(call) = &news[0].entry else { panic!("{news:?}") };
    let principal = call.principal.clone().unwrap();
    assert!(principal.starts_with("uid:"), "{principal}");
    assert_eq!((&call.peer, &*call.request), (&principal, "night-7"));
    let body = r#"{"token": "token-of-a1", "addresses": ["10.0.0.9"]}"#;
    let (_, call) = log.one(None, (&Method::POST, "/v1/call-in", body)).await;
    assert_eq!((call.principal.as_deref(), call.role), (Some("agent:a1"), None));
    served.stop().await;
}

// Invariant: no body, token or query is in a record.

#[tokio::test]
async fn what_callers_keep_to_themselves_is_in_no_record() {
    let served = Served::default();
    let body = json!({"labels": ["linux"], "userData": "s3cret-data", "owner": "s3cret-owner"});
    let url = format!("{}/v1/leases?key=s3cret-query", served.base);
    for (token, status) in [("operator-token", 201), ("s3cret-token", 401)] {
        let request = served.http.post(&url).bearer_auth(token).header("x-request-id", "s3cret id");
        let answer = request.body(body.to_string()).send().await.unwrap();
        assert!([status, 400].contains(&answer.status().as_u16()));
    }
    let direct = served.call(Some("operator"), Method::POST, "/v1/leases", &body.to_string()).await;
    assert_eq!(direct.status, 201, "{}", direct.body);
    let news = Log::new(&served).news();
    assert_eq!(news.len(), 3);
    let text = format!("{news:?}");
    assert!(!text.contains("s3cret") && !text.contains("operator-token"), "{text}");
    served.stop().await;
}

// Invariant: where no record can be written, drover says so and goes on, unless the configuration says refuse.

#[tokio::test]
async fn without_its_log_the_service_goes_on_or_refuses_as_it_is_configured() {
    let served = Served::default();
    let audit = served.doors().audit;
    let view = std::sync::Arc::clone(&served.view);
    audit.watch(move |trouble| view.mark_audit(trouble.cloned()));
    std::fs::write(audit.folder(), "no folder").unwrap();
    assert_eq!(served.admin(Method::POST, "/v1/reap", "").await.status, 200);
    let status = served.admin(Method::GET, "/v1/status", "").await;
    let alarm = &status.body["alarms"][0];
    assert_eq!(alarm["about"], "audit log", "{alarm}");
    audit.configure(Options { on_failure: OnFailure::Refuse, ..Options::default() });
    let refused = served.admin(Method::POST, "/v1/reap", "").await;
    assert_eq!(
        (refused.status, &refused.body["type"]),
        (503, &json!("urn:drover:problem:not-audited"))
    );
    assert_eq!(
        served.admin(Method::GET, "/v1/agents", "").await.status,
        200,
        "looking is no change"
    );
    served.stop().await;
}

// Invariant: an admin finds the records that they ask for.

#[tokio::test]
async fn an_admin_reads_the_records_by_caller_object_and_number() {
    let served = Served::default();
    served.call(Some("viewer"), Method::POST, "/v1/agents/a1/retire", "").await;
    served.admin(Method::POST, "/v1/agents/a2/retire", "").await;
    let seqs = async |query: &str| {
        let answer = served.admin(Method::GET, &format!("/v1/audit{query}"), "").await;
        let records = answer.body["records"].as_array().unwrap();
        records.iter().map(|one| one["seq"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(seqs("").await, [1, 2]);
    assert_eq!(seqs("?by=token:viewer").await, [1]);
    assert_eq!(seqs("?about=a2").await, [2]);
    assert_eq!(seqs("?after=1").await, [2]);
    assert_eq!(seqs("?limit=1").await, [2]);
    assert_eq!(seqs("?since=2999-01-01T00:00:00Z").await, [0; 0]);
    let record =
        served.admin(Method::GET, "/v1/audit?limit=1", "").await.body["records"][0].clone();
    let shown = ["kind", "principal", "role", "method", "route", "object", "status"];
    let shown = shown.map(|field| record[field].clone());
    let wanted =
        json!(["call", "token:admin", "admin", "POST", "/v1/agents/{id}/retire", "a2", 404]);
    assert_eq!(json!(shown), wanted);
    for query in ["?limit=0", "?limit=10001", "?since=yesterday", "?who=me"] {
        let answer = served.admin(Method::GET, &format!("/v1/audit{query}"), "").await;
        assert_eq!(answer.status, 400, "{query}");
    }
    let refused = served.call(Some("operator"), Method::GET, "/v1/audit", "").await;
    assert_eq!(refused.status, 403);
    served.stop().await;
}
