//! A standby without a leader that answers, and with too much to forward.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::*;

/// The head of a call.
async fn head(stream: &mut TcpStream) -> String {
    let mut call = Vec::new();
    while !call.ends_with(b"\r\n\r\n") {
        call.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(call).unwrap()
}

/// A leader that reads a call and answers these bytes, or nothing, and hangs up.
async fn hangs_up(answer: &'static str) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let call = head(&mut stream).await;
        stream.write_all(answer.as_bytes()).await.unwrap();
        call
    });
    (base, served)
}

// Invariant: a caller learns whether nothing was done, or that something may have been.

#[tokio::test]
async fn without_a_leader_nothing_is_done_and_the_answer_says_so() {
    let served = Served::leading();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    for (leader, says) in [
        (None, "no member leads at the moment"),
        // This one led a moment ago.
        (Some(("b", served.base.as_str())), "no member leads at the moment"),
        (Some(("a", dead.as_str())), "member `a` leads and cannot be reached"),
        (Some(("a", "nowhere")), "its URL `nowhere` cannot be used"),
    ] {
        let standby = standing_by(&served, doors(leader));
        let call = served.http.get(format!("{}/v1/status", standby.base));
        let answer = call.bearer_auth("viewer-token").send().await.unwrap();
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.headers()["retry-after"], "1");
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
        let body: Value = answer.json().await.unwrap();
        assert_eq!(body["type"], "urn:drover:problem:no-leader");
        let detail = body["detail"].as_str().unwrap();
        assert!(detail.contains(says) && detail.contains("nothing was done"), "{detail}");
        standby.running.stop().await;
    }
    served.stop().await;
}

#[tokio::test]
async fn a_leader_that_got_a_call_and_hangs_up_may_have_done_it() {
    let served = Served::leading();
    let (base, heard) = hangs_up("").await;
    let standby = standing_by(&served, doors(Some(("a", &base))));
    let call = local(&standby.socket).post("http://drover/v1/agents/a1/retire?x='y'");
    let (status, body) = answer(call.header("x-own", "1").header("connection", "x-own")).await;
    assert_eq!((status, &body["type"]), (502, &json!("urn:drover:problem:unknown-outcome")));
    let detail = body["detail"].as_str().unwrap();
    assert!(detail.contains("may have been done") && detail.contains("idempotencyKey"), "{detail}");
    let heard = heard.await.unwrap().to_lowercase();
    assert!(heard.starts_with("post /v1/agents/a1/retire?x=%27y%27 http/1.1\r\n"), "{heard}");
    assert!(heard.contains(&format!("\r\nhost: {}\r\n", &base[7..])), "{heard}");
    assert!(heard.contains("\r\ndrover-forwarded: ") && !heard.contains("x-own"), "{heard}");
    stop(served, standby).await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_a_whole_one() {
    let served = Served::leading();
    for started in [
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n",
    ] {
        let (base, _heard) = hangs_up(started).await;
        let standby = standing_by(&served, doors(Some(("a", &base))));
        let call = served.http.get(format!("{}/v1/status", standby.base));
        let read = async { call.send().await?.text().await };
        assert!(read.await.is_err(), "{started}");
        standby.running.stop().await;
    }
    served.stop().await;
}

#[tokio::test]
async fn a_read_that_waits_where_the_standby_stops_may_be_repeated() {
    let served = Served::leading();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let standby = standing_by(&served, doors(Some(("a", &base))));
    let waits = tokio::spawn(answer(served.http.get(format!("{}/v1/status", standby.base))));
    let (_stream, _) = listener.accept().await.unwrap();
    standby.running.stop().await;
    let (status, body) = waits.await.unwrap();
    assert_eq!((status, &body["type"]), (503, &json!("urn:drover:problem:no-leader")));
    served.stop().await;
}

#[tokio::test]
async fn a_leader_that_hangs_holds_nobody_once_another_leads() {
    let served = Served::leading();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let (leads, leader) = tokio::sync::watch::channel(Some(("a".to_owned(), base)));
    let standby = standing_by(&served, StandbyDoors { leader, ..doors(None) });
    let waits = tokio::spawn(answer(served.http.get(format!("{}/v1/status", standby.base))));
    let (_hangs, _) = listener.accept().await.unwrap();
    let follows = served.http.get(format!("{}/v1/events", standby.base)).send();
    let begins = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        head(&mut stream).await;
        let started = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                     transfer-encoding: chunked\r\n\r\n2\r\n:\n\r\n";
        stream.write_all(started.as_bytes()).await.unwrap();
        stream
    };
    let (follows, _stream) = tokio::join!(follows, begins);
    let posts =
        tokio::spawn(answer(served.http.post(format!("{}/v1/reap", standby.base)).body("{}")));
    let (_hangs_too, _) = listener.accept().await.unwrap();
    // That nobody is known to lead says nothing about the call.
    leads.send(None).unwrap();
    leads.send(Some(("c".to_owned(), "http://127.0.0.1:1".to_owned()))).unwrap();
    let (status, body) = waits.await.unwrap();
    assert_eq!((status, &body["type"]), (503, &json!("urn:drover:problem:no-leader")));
    let detail = body["detail"].as_str().unwrap();
    assert!(detail.contains("another member leads") && detail.contains("repeat it"), "{detail}");
    let (status, body) = posts.await.unwrap();
    assert_eq!((status, &body["type"]), (502, &json!("urn:drover:problem:unknown-outcome")));
    assert_eq!(follows.unwrap().text().await.unwrap(), ":\n", "it ended, and did not break off");
    stop(served, standby).await;
}

#[tokio::test]
async fn a_caller_who_hangs_up_ends_the_call_at_the_leader() {
    let served = Served::leading();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let standby = standing_by(&served, doors(Some(("a", &base))));
    for method in [Method::GET, Method::POST] {
        let call = served.http.request(method.clone(), format!("{}/v1/status", standby.base));
        let call = if method == Method::POST { call.body("{}") } else { call };
        let waits = tokio::spawn(answer(call));
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut call = [0; 4];
        stream.read_exact(&mut call).await.unwrap();
        waits.abort();
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        let ended = tokio::time::timeout(Duration::from_secs(30), ended).await;
        assert!(ended.is_ok(), "{method}");
    }
    stop(served, standby).await;
}

#[tokio::test]
async fn a_call_is_forwarded_once() {
    let (leader, standby) = pair();
    // Each believes that the other leads.
    let other = StandbyDoors { member: "c".to_owned(), ..doors(Some(("b", &standby.base))) };
    let other = standing_by(&leader, other);
    let call = leader.http.get(format!("{}/v1/whoami", other.base)).bearer_auth("viewer-token");
    let (status, body) = answer(call).await;
    assert_eq!((status, &body["type"]), (503, &json!("urn:drover:problem:no-leader")));
    let detail = body["detail"].as_str().unwrap();
    assert_eq!(detail, "member `b` does not lead, and nothing was done; repeat the request");
    // A word that is not a member's does not go on either.
    let call = leader.http.get(format!("{}/v1/whoami", standby.base)).bearer_auth("viewer-token");
    assert_eq!(answer(call.header("drover-forwarded", "forged")).await.0, 401);
    other.running.stop().await;
    stop(leader, standby).await;
}

// Invariant: nobody makes a standby forward so much that others have no room.

#[tokio::test]
async fn a_peer_has_so_many_calls_under_way_and_they_come_back() {
    let (leader, standby) = pair();
    let events = format!("{}/v1/events", standby.base);
    let (many, one) = (from(4), from(5));
    let mut streams = Vec::new();
    for _ in 0..super::super::FORWARDS.1 {
        streams.push(many.get(&events).bearer_auth("viewer-token").send().await.unwrap());
    }
    assert!(streams.iter().all(|stream| stream.status() == 200));
    let whoami = format!("{}/v1/whoami", standby.base);
    let refused = many.get(&whoami).bearer_auth("viewer-token").send().await.unwrap();
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["retry-after"]),
        (503, &"5".parse().unwrap())
    );
    assert_eq!(answer(many.get(format!("{}/healthz", standby.base))).await.0, 200);
    assert_eq!(answer(one.get(&whoami).bearer_auth("viewer-token")).await.0, 200);
    drop(streams);
    // The standby sees soon that nobody reads them.
    let back =
        async { while answer(many.get(&whoami).bearer_auth("viewer-token")).await.0 != 200 {} };
    tokio::time::timeout(Duration::from_secs(60), back).await.unwrap();
    stop(leader, standby).await;
}

#[tokio::test]
async fn a_body_without_end_is_not_read() {
    let (leader, standby) = pair();
    let body = "x".repeat(HOOK_LIMIT + 1);
    let post = leader.http.post(format!("{}/v1/leases", standby.base)).bearer_auth("admin-token");
    let (status, problem) = answer(post.body(body)).await;
    assert_eq!((status, &problem["type"]), (413, &json!("urn:drover:problem:body-too-large")));
    // What is too large for its route alone is the leader's to refuse.
    let post = leader.http.post(format!("{}/v1/reap", standby.base)).bearer_auth("admin-token");
    let (status, problem) = answer(post.body("x".repeat(crate::house::BODY_LIMIT + 1))).await;
    assert_eq!((status, &problem["type"]), (413, &json!("urn:drover:problem:body-too-large")));
    stop(leader, standby).await;
}
