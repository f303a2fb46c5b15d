//! A standby before a real leader, over real sockets.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod audit;
mod failures;
mod words;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drover_audit::{Audit, Options};
use drover_model::fact::What;
use drover_model::phase::{AgentPhase, LeasePhase};
use drover_model::record::HoldOwner;
use futures_util::StreamExt as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::Method;
use serde_json::{Value, json};
use sha2::Sha256;

use crate::gate::Access;
use crate::hooks::HOOK_LIMIT;
use crate::house::Limits;
use crate::place::Place;
use crate::routes::places;
use crate::server::{Listen, Running, bind};
use crate::standby::StandbyDoors;
use crate::testing::{HOOK_SECRET, Served, agent, auth, lease, members, members_key, reported};

/// A member that stands by.
struct Standby {
    socket: PathBuf,
    base: String,
    running: Running,
}

/// The ways of a standby called `b`, behind this leader.
fn doors(leader: Option<(&str, &str)>) -> StandbyDoors {
    let leader = leader.map(|(name, url)| (name.to_owned(), url.to_owned()));
    StandbyDoors {
        leader: tokio::sync::watch::channel(leader).1,
        members: Arc::new(members),
        key: members_key(),
        member: "b".to_owned(),
        why: Arc::new(|| "no member leads at the moment".to_owned()),
        // Each standby has its own (`standing_by`).
        audit: Audit::open(Path::new("/dev/null"), Options::default()).unwrap(),
    }
}

fn standing_by(served: &Served, doors: StandbyDoors) -> Standby {
    let state = served.directory.path().join(&doors.member);
    let audit = Audit::open(&state, Options::default()).unwrap();
    let doors = StandbyDoors { audit, ..doors };
    let socket = served.directory.path().join(format!("{}.sock", doors.member));
    let listen = vec![
        Listen::Unix { path: socket.clone(), mode: None },
        Listen::Tcp("127.0.0.1:0".parse().unwrap()),
    ];
    let bound = bind(listen, &auth()).unwrap();
    let running = bound.stand_by(doors, auth(), Limits::default()).unwrap();
    let base = format!("http://{}", running.addrs[0]);
    Standby { socket, base, running }
}

/// A leader, and a standby behind it.
fn pair() -> (Served, Standby) {
    let leader = Served::leading();
    let standby = standing_by(&leader, doors(Some(("a", &leader.base))));
    (leader, standby)
}

async fn stop(leader: Served, standby: Standby) {
    standby.running.stop().await;
    leader.stop().await;
}

/// A client that calls from this address.
fn from(last: u8) -> reqwest::Client {
    let address = std::net::IpAddr::from([127, 0, 0, last]);
    reqwest::Client::builder().no_proxy().local_address(address).build().unwrap()
}

/// A client of a Unix socket.
fn local(socket: &Path) -> reqwest::Client {
    reqwest::Client::builder().no_proxy().unix_socket(socket.to_path_buf()).build().unwrap()
}

/// Status and body of an answer.
async fn answer(call: reqwest::RequestBuilder) -> (u16, Value) {
    let answer = call.send().await.unwrap();
    let status = answer.status().as_u16();
    let text = answer.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

fn own_uid(served: &Served) -> u32 {
    std::fs::metadata(&served.socket).unwrap().uid()
}

// Invariant: the leader knows the caller of a standby as it would know its own.

#[tokio::test]
async fn a_user_of_the_standbys_socket_is_the_same_user_at_the_leader() {
    let (leader, standby) = pair();
    let http = local(&standby.socket);
    let ask = json!({ "labels": ["linux"] });
    assert_eq!(answer(http.post("http://drover/v1/leases").json(&ask)).await.0, 201);
    let principal = format!("uid:{}", own_uid(&leader));
    assert_eq!(leader.asks.lock().unwrap()[0].principal, principal);
    let (_, who) = answer(http.get("http://drover/v1/whoami")).await;
    assert_eq!((&who["principal"], &who["role"]), (&json!(principal), &json!("admin")));
    // Somebody who shows a token is who the token says, and nobody else.
    let (_, who) = answer(http.get("http://drover/v1/whoami").bearer_auth("viewer-token")).await;
    assert_eq!(who["principal"], "token:viewer");
    let wrong = http.get("http://drover/v1/whoami").bearer_auth("wrong");
    assert_eq!(answer(wrong).await.0, 401);
    stop(leader, standby).await;
}

#[tokio::test]
async fn a_token_goes_on_as_it_is_and_the_leader_judges_it() {
    let (leader, standby) = pair();
    let whoami = format!("{}/v1/whoami", standby.base);
    let (status, who) = answer(leader.http.get(&whoami).bearer_auth("build-token")).await;
    assert_eq!(
        (status, &who["principal"], &who["group"]),
        (200, &json!("token:build"), &json!("build"))
    );
    let (status, body) = answer(leader.http.get(&whoami)).await;
    assert_eq!(
        (status, &body["detail"]),
        (401, &json!("give a token as `Authorization: Bearer TOKEN`"))
    );
    let reap = leader.http.post(format!("{}/v1/reap", standby.base)).bearer_auth("viewer-token");
    assert_eq!(answer(reap).await.0, 403);
    // A token that the leader does not know is none, whatever this member knows.
    leader.running.replace_auth(crate::auth::Auth::default());
    assert_eq!(answer(leader.http.get(&whoami).bearer_auth("build-token")).await.0, 401);
    stop(leader, standby).await;
}

#[tokio::test]
async fn wrong_tokens_count_for_who_tries_them_and_not_for_the_standby() {
    let (leader, standby) = pair();
    let whoami = format!("{}/v1/whoami", standby.base);
    let (tries, other) = (from(2), from(3));
    let mut last = 0;
    for _ in 0..21 {
        last = answer(tries.get(&whoami).bearer_auth("wrong")).await.0;
    }
    assert_eq!(last, 429);
    assert_eq!(answer(other.get(&whoami).bearer_auth("wrong")).await.0, 401);
    assert_eq!(answer(other.get(&whoami).bearer_auth("viewer-token")).await.0, 200);
    stop(leader, standby).await;
}

#[tokio::test]
async fn a_guest_is_reached_where_it_called_from_and_not_at_the_standby() {
    let (leader, standby) = pair();
    reported(&leader.view, What::Agent(Arc::new(agent("a1", AgentPhase::Ready))));
    let call = from(7).post(format!("{}/v1/call-in", standby.base));
    let (status, body) = answer(call.body(r#"{"token": "token-of-a1"}"#)).await;
    assert_eq!((status, &body["address"]), (200, &json!("127.0.0.7")));
    stop(leader, standby).await;
}

#[tokio::test]
async fn a_webhook_is_taken_by_its_signature_over_every_byte() {
    let (leader, standby) = pair();
    let signature = |body: &str| {
        let mut mac = Hmac::<Sha256>::new_from_slice(HOOK_SECRET.as_bytes()).unwrap();
        mac.update(body.as_bytes());
        let bytes = mac.finalize().into_bytes();
        format!("sha256={}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    };
    let send = async |body: &str, signed: &str, id: &str| {
        let url = format!("{}/v1/hooks/git", standby.base);
        let call = leader.http.post(url).body(body.to_owned()).header("content-type", "text/plain");
        let call = call.header("x-hub-signature-256", signed).header("x-github-delivery", id);
        answer(call).await
    };
    let body = "{\"action\": \"queued\"}";
    assert_eq!(send(body, &signature(body), "a").await.0, 202);
    assert_eq!(send(body, &signature(body), "a").await.0, 200, "once");
    assert_eq!(send("{}", &signature(body), "b").await.0, 401);
    for (length, status) in [(HOOK_LIMIT, 202), (HOOK_LIMIT + 1, 413)] {
        let body = format!("\"{}\"", "x".repeat(length - 2));
        let (seen, problem) = send(&body, &signature(&body), &length.to_string()).await;
        assert_eq!(seen, status, "{problem}");
    }
    stop(leader, standby).await;
}

// Invariant: a call has the answer that the leader would give it, as it comes.

/// A path of a place whose names are nobody's.
fn unknown(place: &Place) -> String {
    let parts = place.path.split('/').map(|one| if one.starts_with('{') { "zz" } else { one });
    let path = parts.collect::<Vec<_>>().join("/");
    // Usage up to now has the time in it, which is longer or shorter to write.
    if path == "/v1/usage" { path + "?from=2026-11-01&to=2026-11-02" } else { path }
}

#[tokio::test]
async fn every_route_is_answered_as_the_leader_answers_it() {
    const OWN: [&str; 5] = ["/healthz", "/readyz", "/leaderz", "/metrics", "/v1/events"];
    let (leader, standby) = pair();
    let mut count = 0;
    let head = [(actix_web::http::Method::HEAD, Access::Open)];
    for place in places().into_iter().filter(|place| !OWN.contains(&place.path)) {
        let path = unknown(&place);
        for (method, _) in place.methods.iter().chain(&head) {
            for who in [None, Some("viewer"), Some("admin")] {
                let ask = async |base: &str| {
                    let method: Method = method.as_str().parse().unwrap();
                    let mut call = leader.http.request(method, format!("{base}{path}"));
                    call = call.header("content-type", "application/json");
                    if let Some(who) = who {
                        call = call.bearer_auth(format!("{who}-token"));
                    }
                    let answer = call.send().await.unwrap();
                    let status = answer.status().as_u16();
                    let names = ["content-type", "content-length", "allow", "www-authenticate"];
                    let headers = names.map(|name| answer.headers().get(name).cloned());
                    (status, headers)
                };
                let (direct, through) = (ask(&leader.base).await, ask(&standby.base).await);
                assert_eq!(direct, through, "{method} {path} as {who:?}");
                count += 1;
            }
        }
    }
    assert!(count > 200, "{count}");
    let nothing = format!("{}/v1/nothing", standby.base);
    assert_eq!(answer(leader.http.get(nothing).bearer_auth("viewer-token")).await.0, 404);
    stop(leader, standby).await;
}

#[tokio::test]
async fn the_metrics_of_a_standby_are_its_own() {
    let (leader, standby) = pair();
    let ask = async |base: &str, who: &str| {
        let call = leader.http.get(format!("{base}/metrics")).bearer_auth(format!("{who}-token"));
        let answer = call.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let (_, page) = ask(&standby.base, "viewer").await;
    let lines = [
        "drover_leads 0\n",
        "drover_leader_term 3\n",
        "drover_members{role=\"standby\"} 1\n",
        "drover_config_refused 0\n",
    ];
    assert!(
        lines.iter().all(|line| page.contains(line)) && !page.contains("drover_ready"),
        "{page}"
    );
    assert_eq!(ask(&standby.base, "wrong").await.0, 401);
    let (_, page) = ask(&leader.base, "viewer").await;
    assert!(page.contains("drover_leads 1\n") && page.contains("drover_ready"), "{page}");
    stop(leader, standby).await;
}

#[tokio::test]
async fn events_flow_and_a_stream_ends_where_the_standby_stops() {
    let (leader, standby) = pair();
    let call = leader.http.get(format!("{}/v1/events", standby.base)).bearer_auth("viewer-token");
    let answer = call.send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    assert_eq!(answer.headers()["cache-control"], "no-store");
    let mut pieces = answer.bytes_stream();
    let mut seen = String::new();
    let mut until = async |end: &str| {
        while !seen.contains(end) {
            seen.push_str(&String::from_utf8_lossy(&pieces.next().await.unwrap().unwrap()));
        }
    };
    until(": up to date").await;
    reported(&leader.view, What::Agent(Arc::new(agent("a1", AgentPhase::Ready))));
    until("a1").await;
    standby.running.stop().await;
    while let Some(piece) = pieces.next().await {
        piece.unwrap();
    }
    leader.stop().await;
}

#[tokio::test]
async fn a_terminal_is_opened_read_and_typed_into_through_the_standby() {
    let (leader, standby) = pair();
    let mut one = agent("a1", AgentPhase::Held);
    let (principal, group) = ("token:operator".to_owned(), None);
    one.hold_owner = Some(HoldOwner { principal, group });
    reported(&leader.view, What::Agent(Arc::new(one)));
    let post = async |path: String, body: Value| {
        let call = leader.http.post(format!("{}{path}", standby.base)).json(&body);
        answer(call.bearer_auth("operator-token")).await
    };
    let (status, opened) = post("/v1/agents/a1/terminals".to_owned(), json!({})).await;
    assert_eq!(status, 201, "{opened}");
    let path = format!("/v1/terminals/{}", opened["id"].as_str().unwrap());
    let call = leader.http.get(format!("{}{path}", standby.base)).bearer_auth("operator-token");
    let mut pieces = call.send().await.unwrap().bytes_stream();
    let mut seen = String::new();
    let mut until = async |end: &str| {
        while !seen.contains(end) {
            seen.push_str(&String::from_utf8_lossy(&pieces.next().await.unwrap().unwrap()));
        }
    };
    until("80x24").await;
    assert_eq!(post(format!("{path}/keys"), json!({ "text": "hello" })).await.0, 204);
    until("hello").await;
    assert_eq!(post(format!("{path}/keys"), json!({ "text": "exit" })).await.0, 204);
    until("its shell ended").await;
    stop(leader, standby).await;
}

#[tokio::test]
async fn a_lease_is_waited_for_through_the_standby() {
    let (leader, standby) = pair();
    let at = |state| What::Lease(Box::new(lease("l9", state, Some("a1"), "")));
    reported(&leader.view, at(LeasePhase::Waiting));
    let url = format!("{}/v1/leases/l9?waitSeconds=30", standby.base);
    let call = leader.http.get(url).bearer_auth("admin-token");
    let waits = tokio::spawn(answer(call));
    reported(&leader.view, at(LeasePhase::Ready));
    let (status, body) = waits.await.unwrap();
    assert_eq!((status, &body["state"]), (200, &json!("ready")));
    stop(leader, standby).await;
}

// Invariant: the page is the same on each member.

#[tokio::test]
async fn a_person_logs_in_and_looks_at_the_page_of_a_standby() {
    let (leader, standby) = pair();
    let browser = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    let browser = browser.build().unwrap();
    let stranger = browser.get(format!("{}/agents", standby.base)).send().await.unwrap();
    assert_eq!(
        (stranger.status().as_u16(), stranger.headers()["location"].to_str().unwrap()),
        (303, "/login?next=%2Fagents")
    );
    let form =
        browser.post(format!("{}/login", standby.base)).body("token=viewer-token&next=/agents");
    let entered = form.send().await.unwrap();
    assert_eq!(
        (entered.status().as_u16(), entered.headers()["location"].to_str().unwrap()),
        (303, "/agents")
    );
    let cookie =
        entered.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    for base in [&standby.base, &leader.base] {
        let page = browser.get(format!("{base}/agents")).header("cookie", &cookie);
        let page = page.send().await.unwrap();
        assert_eq!(page.status(), 200);
        assert!(page.headers().contains_key("content-security-policy"));
        assert!(page.text().await.unwrap().contains("<h1>Agents</h1>"));
        // A cookie alone changes nothing, by whichever member it comes.
        let call = browser.post(format!("{base}/logout")).header("cookie", &cookie);
        assert_eq!(call.send().await.unwrap().status(), 403);
    }
    stop(leader, standby).await;
}

#[tokio::test]
async fn a_person_reads_that_no_member_leads_and_the_page_looks_again() {
    let (leader, standby) = pair();
    let lonely = StandbyDoors { member: "c".to_owned(), ..doors(None) };
    let lonely = standing_by(&leader, lonely);
    let call = leader.http.get(format!("{}/agents", lonely.base));
    let answer = call.header("accept", "text/html,*/*").send().await.unwrap();
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.headers()["content-type"], "text/html; charset=utf-8");
    let text = answer.text().await.unwrap();
    assert!(
        text.contains("no leader takes the call now") && text.contains("http-equiv=\"refresh\""),
        "{text}"
    );
    lonely.running.stop().await;
    stop(leader, standby).await;
}

// Invariant: a standby says by itself how it stands.

#[tokio::test]
async fn a_standby_answers_how_it_stands() {
    let (leader, standby) = pair();
    let lonely = StandbyDoors { member: "c".to_owned(), ..doors(None) };
    let lonely = standing_by(&leader, lonely);
    let get = async |base: &str, path: &str| answer(leader.http.get(format!("{base}{path}"))).await;
    assert_eq!(get(&standby.base, "/healthz").await, (200, json!({ "status": "standby" })));
    let ready = json!({ "status": "standby", "leader": "a" });
    assert_eq!(get(&standby.base, "/readyz").await, (200, ready));
    let (status, body) = get(&standby.base, "/leaderz").await;
    assert_eq!((status, &body["detail"]), (503, &json!("member `b` does not lead: `a` leads")));
    assert_eq!(
        get(&leader.base, "/leaderz").await,
        (200, json!({ "status": "leader", "alone": false }))
    );
    assert_eq!(get(&lonely.base, "/healthz").await.0, 200);
    let (status, body) = get(&lonely.base, "/readyz").await;
    assert_eq!((status, &body["type"]), (503, &json!("urn:drover:problem:no-leader")));
    assert_eq!(get(&lonely.base, "/v1/members").await.0, 401);
    for base in [&lonely.base, &standby.base, &leader.base] {
        let call = leader.http.get(format!("{base}/v1/members")).bearer_auth("viewer-token");
        assert_eq!(answer(call).await, (200, serde_json::to_value(members()).unwrap()));
    }
    assert_eq!(answer(local(&lonely.socket).get("http://drover/v1/members")).await.0, 200);
    let post = leader.http.post(format!("{}/healthz", standby.base));
    assert_eq!(answer(post).await.0, 405);
    // Who may read it follows the configuration.
    lonely.running.replace_auth(crate::auth::Auth::default());
    let call = leader.http.get(format!("{}/v1/members", lonely.base)).bearer_auth("viewer-token");
    assert_eq!(answer(call).await.0, 401);
    lonely.running.stop().await;
    stop(leader, standby).await;
}
