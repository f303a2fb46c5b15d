//! The API over real sockets, with a scripted herd.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use drover_actors::message::{HerdCommand, Refusal};
use drover_model::fact::What;
use drover_model::id::{CloudId, LeaseId, TemplateId};
use drover_model::phase::{AgentPhase, LeasePhase};
use drover_model::record::{Reason, Want};
use futures_util::FutureExt;
use reqwest::Method;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::auth::{Auth, TokenGrant};
use super::house::Limits;
use super::server::{Listen, bind};
use super::state::Doors;
use super::testing::{Served, agent, lease, reported};
use crate::view::View;
use drover_api::Role;

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ me@here";

/// A herd that keeps every question and answers none.
fn silent(limits: Limits) -> Served {
    let mut kept = Vec::new();
    let view = View::new(3);
    let script = move |command: HerdCommand| kept.push(command);
    Served::scripted(view, Arc::new(Mutex::new(Vec::new())), script, limits)
}

// Invariant: nobody does what their role does not include.

#[tokio::test]
async fn every_route_takes_the_roles_it_should() {
    let served = Served::default();
    reported(&served.view, What::Agent(Arc::new(agent("a1", AgentPhase::Ready))));
    reported(&served.view, What::Lease(Box::new(lease("x", LeasePhase::Waiting, None, ""))));
    let ask = r#"{"labels": ["linux"]}"#;
    let routes = [
        (0, Method::GET, "/healthz", ""),
        (0, Method::GET, "/readyz", ""),
        (0, Method::GET, "/openapi.json", ""),
        (0, Method::POST, "/v1/call-in", r#"{"token": "token-of-a1"}"#),
        (1, Method::GET, "/metrics", ""),
        (1, Method::GET, "/v1/status", ""),
        (1, Method::GET, "/v1/agents", ""),
        (1, Method::GET, "/v1/agents/a1", ""),
        (1, Method::GET, "/v1/templates", ""),
        (1, Method::GET, "/v1/clouds", ""),
        (1, Method::GET, "/v1/address-pools", ""),
        (1, Method::GET, "/v1/leases", ""),
        (1, Method::GET, "/v1/leases/x", ""),
        (1, Method::GET, "/v1/nothing", ""),
        (1, Method::POST, "/v1/nothing", ""),
        (1, Method::PATCH, "/v1/leases/x", ""),
        (2, Method::POST, "/v1/leases", ask),
        (2, Method::POST, "/v1/leases/x/renew", r#"{"ttlSeconds": 60}"#),
        (2, Method::DELETE, "/v1/leases/x", ""),
        (2, Method::POST, "/v1/agents/a1/retire", ""),
        (2, Method::POST, "/v1/templates/linux/provision", ""),
        (2, Method::POST, "/v1/agents/a1/hold", ""),
        (2, Method::DELETE, "/v1/agents/a1/hold", ""),
        (2, Method::POST, "/v1/agents/a1/clone", ""),
        (2, Method::POST, "/v1/leases/x/clone", ""),
        (2, Method::PATCH, "/v1/agents/a1", r#"{"maxTotalUses": 3}"#),
        (2, Method::POST, "/v1/resync", ""),
        (2, Method::GET, "/v1/resync", ""),
        (3, Method::POST, "/v1/reap", ""),
        (3, Method::POST, "/v1/reload", ""),
        (3, Method::PUT, "/v1/log-level", r#"{"level": "debug"}"#),
    ];
    let callers = [None, Some("viewer"), Some("operator"), Some("admin")];
    for (least, method, path, body) in routes {
        for (rank, caller) in callers.iter().enumerate() {
            let answer = served.call(*caller, method.clone(), path, body).await;
            let expected = if rank >= least {
                "let in"
            } else if rank == 0 {
                "unknown"
            } else {
                "refused"
            };
            let seen = match answer.status {
                401 => "unknown",
                403 => "refused",
                _ => "let in",
            };
            assert_eq!(seen, expected, "{method} {path} as {caller:?}");
        }
    }
    served.stop().await;
}

#[tokio::test]
async fn a_wrong_token_is_refused_with_what_to_do() {
    let served = Served::default();
    let wrong = served.call(Some("wrong"), Method::GET, "/v1/status", "").await;
    insta::assert_snapshot!(format!("{:#}", wrong.body), @r#"
    {
      "detail": "no token of the configuration is the one given",
      "status": 401,
      "title": "the caller is not known",
      "type": "urn:drover:problem:unauthorized"
    }
    "#);
    assert_eq!(wrong.kind, "application/problem+json");
    let refused = served.call(Some("viewer"), Method::POST, "/v1/reap", "").await;
    insta::assert_snapshot!(
        refused.body["detail"].as_str().unwrap(),
        @"`token:viewer` has the role viewer, and this needs admin; use a token of that role"
    );
    served.stop().await;
}

#[tokio::test]
async fn tokens_can_be_replaced_while_it_runs() {
    let served = Served::default();
    let next = TokenGrant { name: "next".into(), role: Role::Admin, secret: "next-token".into() };
    served.running.replace_auth(Auth::new([next], Vec::new()));
    assert_eq!(served.admin(Method::GET, "/v1/status", "").await.status, 401);
    let answer = served.call(Some("next"), Method::GET, "/v1/status", "").await;
    assert_eq!(answer.status, 200);
    served.stop().await;
}

#[tokio::test]
async fn the_services_own_user_needs_no_token_on_the_socket() {
    let served = Served::default();
    let http = reqwest::Client::builder().unix_socket(served.socket.clone()).build().unwrap();
    let ask = json!({ "labels": ["linux"] });
    let response = http.post("http://drover/v1/leases").json(&ask).send().await.unwrap();
    assert_eq!(response.status(), 201);
    let principal = served.asks.lock().unwrap()[0].principal.clone();
    assert!(principal.starts_with("uid:"), "{principal}");
    let refused = http.get("http://drover/v1/status").bearer_auth("wrong").send().await.unwrap();
    assert_eq!(refused.status(), 401);
    served.stop().await;
}

// Invariant: a lease is asked for exactly as written, or refused with every fault named.

#[tokio::test]
async fn a_lease_reaches_the_herd_as_it_was_asked_for() {
    let served = Served::default();
    let body = json!({
        "labels": ["linux", "big"], "ttlSeconds": 60, "owner": "me", "sshPublicKey": KEY,
        "idempotencyKey": "k",
    });
    let answer = served.call(Some("operator"), Method::POST, "/v1/leases", &body.to_string()).await;
    assert_eq!(answer.status, 201);
    assert_eq!(answer.body["id"], "l1");
    assert_eq!(answer.body["state"], "waiting");
    let ask = served.asks.lock().unwrap()[0].clone();
    assert_eq!(ask.lease, LeaseId::new("l1"));
    assert_eq!(ask.want, Want::Labels(["big".to_owned(), "linux".to_owned()].into()));
    assert_eq!((ask.principal.as_str(), ask.owner.as_str()), ("token:operator", "me"));
    assert_eq!(ask.ttl_ms, 60_000);
    assert_eq!(ask.public_key.as_deref(), Some(KEY));
    assert_eq!(ask.key_hash.unwrap().len(), 64);
    served.stop().await;
}

#[tokio::test]
async fn a_public_key_may_end_as_the_line_of_its_file_does() {
    let served = Served::default();
    for (end, status) in [("\n", 201), ("\r\n", 201), ("\nssh-rsa AAAA", 400)] {
        let body = json!({"template": "linux", "sshPublicKey": format!("{KEY}{end}")}).to_string();
        let answer = served.call(Some("operator"), Method::POST, "/v1/leases", &body).await;
        assert_eq!(answer.status, status, "{end:?}: {}", answer.body);
    }
    let asks = served.asks.lock().unwrap().clone();
    assert!(asks.iter().all(|ask| ask.public_key.as_deref() == Some(KEY)), "{asks:?}");
    assert_eq!(asks.len(), 2);
    served.stop().await;
}

#[tokio::test]
async fn absent_fields_have_their_defaults() {
    let served = Served::default();
    served.call(Some("operator"), Method::POST, "/v1/leases", r#"{"template": "linux"}"#).await;
    let ask = served.asks.lock().unwrap()[0].clone();
    assert_eq!(ask.want, Want::Template("linux".into()));
    assert_eq!(ask.ttl_ms, 3_600_000);
    assert_eq!(ask.owner, "token:operator");
    assert_eq!((ask.public_key, ask.key_hash), (None, None));
    served.stop().await;
}

// Invariant: the same caller, key and body answer the same lease; another body is a conflict.

#[tokio::test]
async fn an_idempotency_key_stands_for_one_lease_of_one_caller() {
    let served = Served::default();
    let first = r#"{"labels": ["linux"], "idempotencyKey": "k"}"#;
    let same = r#"{ "idempotencyKey":"k","labels":["linux"] }"#;
    let other = r#"{"labels": ["mac"], "idempotencyKey": "k"}"#;
    let post = async |role: &'static str, body: &'static str| {
        let answer = served.call(Some(role), Method::POST, "/v1/leases", body).await;
        (answer.status, answer.body["id"].clone())
    };
    assert_eq!(post("operator", first).await, (201, json!("l1")));
    assert_eq!(post("operator", same).await, (201, json!("l1")));
    assert_eq!(post("operator", other).await, (409, Value::Null));
    assert_eq!(post("admin", other).await, (201, json!("l4")));
    served.stop().await;
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_an_unknown_outcome() {
    let limits = Limits { reply: Duration::from_millis(1), ..Limits::default() };
    let served = silent(limits);
    let answer = served.admin(Method::POST, "/v1/leases", r#"{"labels": []}"#).await;
    insta::assert_snapshot!(format!("{:#}", answer.body), @r#"
    {
      "detail": "the herd did not answer in time and may still carry this out; repeat the request (a lease with the same idempotencyKey, which answers the same lease)",
      "status": 503,
      "title": "the outcome is unknown",
      "type": "urn:drover:problem:unknown-outcome"
    }
    "#);
    served.stop().await;
}

#[tokio::test]
async fn a_flood_of_requests_is_refused_before_it_reaches_the_herd() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&heard);
    let script = move |command| kept.lock().unwrap().push(command);
    let limits = Limits { reply: Duration::from_millis(1), commands: 2, ..Limits::default() };
    let served = Served::scripted(View::new(3), Arc::default(), script, limits);
    // What is answered takes no place any more.
    let long = Limits { reply: Duration::from_secs(60), commands: 1, ..Limits::default() };
    let prompt = Served::scripted(View::new(3), Arc::default(), reaped, long);
    for _ in 0..5 {
        assert_eq!(prompt.admin(Method::POST, "/v1/reap", "").await.status, 200);
    }
    prompt.stop().await;
    // What is not answered keeps its own, although nobody waits for it.
    let mut kinds = Vec::new();
    for _ in 0..4 {
        let answer = served.admin(Method::POST, "/v1/leases", r#"{"labels": []}"#).await;
        assert_eq!(answer.status, 503);
        kinds.push(answer.body["type"].as_str().unwrap().replace("urn:drover:problem:", ""));
    }
    assert_eq!(kinds, ["unknown-outcome", "unknown-outcome", "busy", "busy"]);
    served.stop().await;
    assert!(heard.lock().unwrap().len() <= 2);
}

fn reaped(command: HerdCommand) {
    if let HerdCommand::Reap { reply, .. } = command {
        reply.send(1);
    }
}

#[tokio::test]
async fn a_service_that_stops_says_so() {
    let script = |command: HerdCommand| {
        if let HerdCommand::Lease { reply, .. } = command {
            reply.send(Err(Refusal::Unavailable("the service is stopping".into())));
        }
    };
    let served = Served::scripted(View::new(3), Arc::default(), script, Limits::default());
    let answer = served.admin(Method::POST, "/v1/leases", r#"{"labels": []}"#).await;
    assert_eq!((answer.status, &answer.body["title"]), (503, &json!("the service takes no work")));
    // Dropping the reply is no answer either, and needs no time to be seen.
    let answer = served.admin(Method::POST, "/v1/reap", "").await;
    assert_eq!(answer.body["type"], "urn:drover:problem:unknown-outcome");
    served.stop().await;
}

// Invariant: anyone who waits for the end of a lease learns it at once, with its cause.

#[tokio::test]
async fn a_long_poll_until_the_end_shows_the_holder_of_a_ready_lease_by_what_it_was_lost() {
    let served = Served::default();
    reported(&served.view, What::Agent(Arc::new(agent("a1", AgentPhase::Leased))));
    reported(&served.view, What::Lease(Box::new(lease("x", LeasePhase::Ready, Some("a1"), ""))));
    let poll = served.admin(Method::GET, "/v1/leases/x?waitSeconds=300&until=ended", "");
    let why = "lost: its guest was switched off";
    let dies = async {
        reported(&served.view, What::Lease(Box::new(lease("x", LeasePhase::Ended, None, why))))
    };
    let (answer, ()) = tokio::join!(poll, dies);
    let (state, detail) = (&answer.body["state"], &answer.body["detail"]);
    assert_eq!((state, detail), (&json!("ended"), &json!(why)));
    served.stop().await;
}

// Invariant: a wait ends with the change, and a lease shows how to log in only while it is ready.

#[tokio::test]
async fn a_long_poll_ends_when_the_lease_is_ready() {
    let served = Served::default();
    reported(&served.view, What::Agent(Arc::new(agent("a1", AgentPhase::Leased))));
    reported(
        &served.view,
        What::Lease(Box::new(lease("x", LeasePhase::Waiting, None, "no agent is free"))),
    );
    let at_once = served.admin(Method::GET, "/v1/leases/x", "").await;
    assert_eq!((&at_once.body["state"], &at_once.body["ssh"]), (&json!("waiting"), &Value::Null));
    let poll = served.admin(Method::GET, "/v1/leases/x?waitSeconds=300", "");
    let change = async {
        reported(
            &served.view,
            What::Lease(Box::new(lease("x", LeasePhase::Granted, Some("a1"), ""))),
        );
        reported(
            &served.view,
            What::Lease(Box::new(lease("x", LeasePhase::Ready, Some("a1"), ""))),
        );
    };
    let (answer, ()) = tokio::join!(poll, change);
    insta::assert_snapshot!(format!("{:#}", answer.body), @r#"
    {
      "agent": "a1",
      "detail": "",
      "expiresAt": "2026-11-21T09:11:02Z",
      "id": "x",
      "owner": "tester",
      "principal": "token:operator",
      "ssh": {
        "host": "127.77.0.9",
        "hostKey": "ssh-ed25519 AAAAC3",
        "hostKeys": [
          "ecdsa-sha2-nistp256 AAAAE",
          "ssh-ed25519 AAAAC3"
        ],
        "port": 2222,
        "user": "ci"
      },
      "state": "ready",
      "wants": "labels `linux`"
    }
    "#);
    served.stop().await;
}

#[tokio::test]
async fn a_wait_is_bounded_and_its_query_strict() {
    let served = Served::default();
    reported(&served.view, What::Lease(Box::new(lease("x", LeasePhase::Waiting, None, ""))));
    for (path, status, part) in [
        ("/v1/leases/x?waitSeconds=301", 400, "at most 300, and is 301"),
        ("/v1/leases/x?wait=3", 400, "read: unknown field `wait`; only `waitSeconds`"),
        (
            "/v1/leases/x?waitSeconds=soon",
            400,
            "`waitSeconds` cannot be `soon`; only `waitSeconds` (a",
        ),
        ("/v1/leases/x?waitSeconds=99999999999999999999", 400, "number from 0 to 300) and `until`"),
        ("/v1/leases/x?waitSeconds=-1&until=ended", 400, "`waitSeconds` cannot be `-1`"),
        ("/v1/leases/x?until=dawn", 400, "must be ready or ended, and is `dawn`"),
        ("/v1/leases/y?waitSeconds=300", 404, "no lease `y`"),
    ] {
        let answer = served.admin(Method::GET, path, "").await;
        let detail = answer.body["detail"].as_str().unwrap();
        assert_eq!(answer.status, status, "{path}");
        assert!(detail.contains(part), "{detail}");
    }
    served.stop().await;
}

#[tokio::test]
async fn a_waiting_request_ends_when_the_service_stops() {
    let served = Served::default();
    reported(&served.view, What::Lease(Box::new(lease("x", LeasePhase::Waiting, None, ""))));
    let url = format!("{}/v1/leases/x?waitSeconds=300", served.base);
    let poll = served.http.get(url).bearer_auth("viewer-token").send();
    let events = format!("{}/v1/events", served.base);
    let stream = served.http.get(events).bearer_auth("viewer-token").send().await.unwrap();
    let poll = tokio::spawn(poll);
    // The stream is open, so the server turns; the poll may come before or after the stop.
    served.stop().await;
    assert!(stream.text().await.unwrap().starts_with(": open"));
    if let Ok(answer) = poll.await.unwrap() {
        assert_eq!(answer.status(), 200);
    }
}

// Invariant: what is done twice is done once.

#[tokio::test]
async fn a_release_can_be_repeated_and_a_renewal_shows_the_new_end() {
    let served = Served::default();
    served.admin(Method::POST, "/v1/leases", r#"{"template": "quick"}"#).await;
    let renewed =
        served.admin(Method::POST, "/v1/leases/l1/renew", r#"{"ttlSeconds": 7200}"#).await;
    assert_eq!(renewed.body["expiresAt"], "2026-11-21T10:11:02Z");
    let empty = served.admin(Method::POST, "/v1/leases/l1/renew", "").await;
    assert_eq!(empty.body["errors"][0]["field"], "ttlSeconds");
    for _ in 0..2 {
        assert_eq!(served.admin(Method::DELETE, "/v1/leases/l1", "").await.status, 204);
    }
    assert_eq!(served.admin(Method::GET, "/v1/leases/l1", "").await.body["state"], "ended");
    assert_eq!(served.admin(Method::DELETE, "/v1/leases/zz", "").await.status, 404);
    served.stop().await;
}

// Invariant: operators' commands reach the herd and come back in words.

#[tokio::test]
async fn operators_reap_resync_reload_and_set_the_log() {
    let served = Served::default();
    reported(&served.view, What::Agent(Arc::new(agent("a1", AgentPhase::Ready))));
    let reaped = served.admin(Method::POST, "/v1/reap", r#"{"all": true}"#).await;
    assert_eq!(reaped.body, json!({ "retired": 3 }));
    assert_eq!(served.admin(Method::POST, "/v1/reap", "").await.body, json!({ "retired": 1 }));
    let synced = served.admin(Method::POST, "/v1/resync", "").await;
    let findings = json!({ "9f31c0aa52e7d410": ["destroy orphan 10417 on pve1"] });
    let refused = "drover.yaml: unknown key";
    assert_eq!(synced.body, json!({ "clusters": findings.clone(), "refused": refused }));
    *served.reload.lock().unwrap() = Ok(5);
    let synced = served.admin(Method::POST, "/v1/resync", "").await;
    assert_eq!(synced.body, json!({ "clusters": findings }));
    assert_eq!(
        served.admin(Method::POST, "/v1/reload", "").await.body,
        json!({ "generation": 5, "path": "/etc/drover/drover.yaml", "restartDue": [] })
    );
    *served.reload.lock().unwrap() = Err(refused.into());
    let reload = served.admin(Method::POST, "/v1/reload", "").await;
    assert_eq!((reload.status, &reload.body["detail"]), (422, &json!("drover.yaml: unknown key")));
    let level = served.admin(Method::PUT, "/v1/log-level", r#"{"level": "debug"}"#).await;
    assert_eq!(level.status, 204);
    let level = served.admin(Method::PUT, "/v1/log-level", r#"{"level": "loud"}"#).await;
    assert_eq!(level.body["errors"][0]["detail"], "`loud` is no level");
    assert_eq!(served.admin(Method::POST, "/v1/agents/a1/retire", "").await.status, 202);
    assert_eq!(served.admin(Method::POST, "/v1/agents/a2/retire", "").await.status, 404);
    served.stop().await;
}

#[tokio::test]
async fn a_resync_reloads_before_it_reconciles() {
    let steps: Arc<Mutex<Vec<&str>>> = Arc::default();
    let (reloaded, reconciled) = (Arc::clone(&steps), Arc::clone(&steps));
    let script = move |command: HerdCommand| {
        let HerdCommand::Resync { reply } = command else { panic!("not asked for here") };
        reconciled.lock().unwrap().push("reconcile");
        reply.send([].into());
    };
    let served = Served::scripted(View::new(3), Arc::default(), script, Limits::default());
    let reload = move || {
        reloaded.lock().unwrap().push("reload");
        std::future::ready(Ok(2)).boxed()
    };
    let doors = Doors { reload: Arc::new(reload), ..served.doors() };
    let listen = vec![Listen::Tcp("127.0.0.1:0".parse().unwrap())];
    let token = TokenGrant { name: "a".into(), role: Role::Admin, secret: SecretString::from("t") };
    let auth = Auth::new([token], vec![]);
    let running = bind(listen, &auth).unwrap().serve(doors, auth, Limits::default()).unwrap();
    let url = format!("http://{}/v1/resync", running.addrs[0]);
    let answer = served.http.post(url).bearer_auth("t").send().await.unwrap();
    assert_eq!(answer.json::<Value>().await.unwrap(), json!({ "clusters": {} }));
    assert_eq!(*steps.lock().unwrap(), ["reload", "reconcile"]);
    running.stop().await;
    served.stop().await;
}

#[tokio::test]
async fn routes_and_methods_that_are_none_are_problems_too() {
    let served = Served::default();
    let missing = served.admin(Method::GET, "/v2/leases", "").await;
    let method = served.admin(Method::PATCH, "/v1/leases", "").await;
    let name = served.admin(Method::GET, "/v1/leases/%ff", "").await;
    let no_query = served.admin(Method::GET, "/v1/why", "").await;
    let wrong_query = served.admin(Method::GET, "/v1/why?about=x", "").await;
    let answers = [(missing, 404), (method, 405), (name, 404), (no_query, 400), (wrong_query, 400)];
    for (answer, status) in answers {
        assert_eq!((answer.status, answer.kind.as_str()), (status, "application/problem+json"));
    }
    served.stop().await;
}

// Invariant: a stream misses nothing unsaid.

#[tokio::test]
async fn the_event_stream_goes_on_after_the_last_event_seen() {
    let served = Served::default();
    for state in [AgentPhase::Queued, AgentPhase::Cloning, AgentPhase::Ready] {
        reported(&served.view, What::Agent(Arc::new(agent("a1", state))));
    }
    let url = format!("{}/v1/events", served.base);
    let request = served.http.get(&url).bearer_auth("viewer-token");
    let mut stream = request.header("Last-Event-ID", "3-2").send().await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let gone = What::AgentGone {
        agent: agent("a1", AgentPhase::Gone).agent,
        template: TemplateId::new(CloudId::new("lab"), "linux"),
        reason: Reason::TooSlow { state: AgentPhase::Booting, text: "no address yet".into() },
        phases: vec![(AgentPhase::Booting.to_string(), 4000)],
    };
    reported(&served.view, gone);
    let mut text = String::new();
    while !text.contains("event: agentGone") || !text.ends_with("\n\n") {
        text.push_str(std::str::from_utf8(&stream.chunk().await.unwrap().unwrap()).unwrap());
    }
    let ids: Vec<_> = text.lines().filter(|line| line.starts_with("id:")).collect();
    assert_eq!(ids, ["id: 3-3", "id: 3-4"]);
    let data = text.lines().rfind(|line| line.starts_with("data:")).unwrap();
    let data: Value = serde_json::from_str(&data[5..]).unwrap();
    assert_eq!(
        data["agent"]["detail"],
        "Booting took too long (startupWaitSeconds): no address yet"
    );
    assert_eq!(data["at"], "2026-11-21T08:11:02Z");
    let wrong = served.http.get(&url).bearer_auth("viewer-token").header("Last-Event-ID", "x");
    assert_eq!(wrong.send().await.unwrap().status(), 400);
    drop(stream);
    served.stop().await;
}

// Invariant: health is open, and distinguishes starting from ready.

#[tokio::test]
async fn readiness_follows_the_start() {
    let served = Served::default();
    let ready = async || served.call(None, Method::GET, "/readyz", "").await;
    assert_eq!(ready().await.body["detail"], "the journal is not folded yet; try again shortly");
    served.view.mark_journal_folded();
    assert_eq!(ready().await.body["detail"], "not every cloud was tried yet; try again shortly");
    served.view.mark_clouds_tried();
    assert_eq!(ready().await.status, 200);
    assert_eq!(served.call(None, Method::GET, "/healthz", "").await.status, 200);
    served.alive.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(served.call(None, Method::GET, "/healthz", "").await.status, 503);
    served.stop().await;
}

mod audit;
mod bodies;
mod call_in;
mod operators;
mod queries;
mod refusals;
mod spellings;
mod tenants;
