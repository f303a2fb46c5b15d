//! What another member says of a call, as a leader takes it.

use super::*;
use crate::auth::Caller;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::forwarded::{Forwarded, HEADER, digest_of};
use crate::house::now;
use drover_api::Role;

/// Each word has one of its own.
static NONCES: AtomicU64 = AtomicU64::new(1);

fn said(method: &str, path: &str, caller: Option<Caller>) -> Forwarded {
    Forwarded {
        at: now().0,
        method: method.into(),
        path: path.into(),
        body: digest_of(b""),
        nonce: NONCES.fetch_add(1, Ordering::Relaxed),
        peer: "127.0.0.9".into(),
        caller: caller.map(Into::into),
        member: "b".into(),
    }
}

fn operator() -> Option<Caller> {
    let group = Some("lab".to_owned());
    Some(Caller { principal: "uid:4242".into(), role: Role::Operator, group })
}

// Invariant: a leader takes a member's word for the call it was given for, and nobody else's.

#[tokio::test]
async fn a_members_word_counts_for_its_call_with_its_role() {
    let leader = Served::leading();
    let ask = async |method: Method, path: &str, word: &Forwarded| {
        let call = leader.http.request(method, format!("{}{path}", leader.base));
        answer(call.header(HEADER, word.sign(&members_key()))).await
    };
    let whoami = said("GET", "/v1/whoami", operator());
    let (status, who) = ask(Method::GET, "/v1/whoami", &whoami).await;
    assert_eq!(
        (status, &who["principal"], &who["group"]),
        (200, &json!("uid:4242"), &json!("lab"))
    );
    assert_eq!(who["role"], "operator");
    let reap = said("POST", "/v1/reap", operator());
    let (status, body) = ask(Method::POST, "/v1/reap", &reap).await;
    assert_eq!(status, 403);
    assert!(body["detail"].as_str().unwrap().contains("`uid:4242` has the role operator"));
    // On another path, with another query, by another method, too old, and too early.
    assert_eq!(ask(Method::GET, "/v1/status", &whoami).await.0, 401);
    assert_eq!(ask(Method::GET, "/v1/whoami?x", &whoami).await.0, 401);
    assert_eq!(ask(Method::HEAD, "/v1/whoami", &whoami).await.0, 401);
    for (by, what) in [(-70_000, "clocks"), (70_000, "clocks")] {
        let other = Forwarded { at: whoami.at + by, ..whoami.clone() };
        let (status, body) = ask(Method::GET, "/v1/whoami", &other).await;
        assert_eq!(status, 401);
        assert!(body["detail"].as_str().unwrap().contains(what), "{body}");
    }
    // Once, and with no other body.
    let (status, body) = ask(Method::GET, "/v1/whoami", &whoami).await;
    assert_eq!(status, 401);
    assert!(body["detail"].as_str().unwrap().contains("used already"), "{body}");
    let log_level = said("POST", "/v1/leases", operator());
    let call = leader.http.request(Method::POST, format!("{}/v1/leases", leader.base));
    let call = call.header(HEADER, log_level.sign(&members_key()));
    let call = call.header("content-type", "application/json").body(r#"{"labels":["linux"]}"#);
    assert_eq!(answer(call).await.0, 401, "the word was given for no body");
    leader.stop().await;
}

#[tokio::test]
async fn a_forged_word_lets_nobody_in_and_is_not_passed_over() {
    let leader = Served::leading();
    let whoami = format!("{}/v1/whoami", leader.base);
    let good = said("GET", "/v1/whoami", operator()).sign(&members_key());
    let stranger = drover_vault::ClusterKey::new(&"another key of 32 bytes or more..".into());
    let forged = said("GET", "/v1/whoami", operator()).sign(&stranger.unwrap());
    for word in [&forged, "", "x", &good[1..], &good[..good.len() - 1]] {
        let call = leader.http.get(&whoami).header(HEADER, word);
        let (status, body) = answer(call).await;
        assert_eq!(status, 401, "{word}");
        assert!(body["detail"].as_str().unwrap().contains("not signed with the key"), "{body}");
        // Not with a token either, and not where everybody may ask.
        let call = leader.http.get(&whoami).header(HEADER, word).bearer_auth("admin-token");
        assert_eq!(answer(call).await.0, 401, "{word}");
        let open = leader.http.get(format!("{}/healthz", leader.base)).header(HEADER, word);
        assert_eq!(answer(open).await.0, 401, "{word}");
    }
    let twice = leader.http.get(&whoami).header(HEADER, &good).header(HEADER, &good);
    assert_eq!(answer(twice).await.0, 401);
    leader.stop().await;
}

#[tokio::test]
async fn a_call_without_a_proven_caller_is_its_tokens_and_never_the_members_own() {
    let leader = Served::leading();
    let word = || said("GET", "/v1/whoami", None).sign(&members_key());
    let whoami = format!("{}/v1/whoami", leader.base);
    let (status, who) =
        answer(leader.http.get(&whoami).header(HEADER, word()).bearer_auth("viewer-token")).await;
    assert_eq!((status, &who["principal"]), (200, &json!("token:viewer")));
    assert_eq!(answer(leader.http.get(&whoami).header(HEADER, word())).await.0, 401);
    // The user of the leader's own socket does not become the caller.
    let call = local(&leader.socket).get("http://drover/v1/whoami").header(HEADER, word());
    assert_eq!(answer(call).await.0, 401);
    leader.stop().await;
}

#[tokio::test]
async fn a_drover_that_stands_alone_takes_nobodys_word() {
    let alone = Served::default();
    let word = said("GET", "/v1/whoami", operator()).sign(&members_key());
    let whoami = format!("{}/v1/whoami", alone.base);
    for word in [&*word, "rubbish"] {
        let (status, body) = answer(alone.http.get(&whoami).header(HEADER, word)).await;
        assert_eq!(
            (status, &body["detail"]),
            (401, &json!("give a token as `Authorization: Bearer TOKEN`"))
        );
        let call = alone.http.get(&whoami).header(HEADER, word).bearer_auth("viewer-token");
        assert_eq!(answer(call).await.1["principal"], "token:viewer");
        let call = local(&alone.socket).get("http://drover/v1/whoami").header(HEADER, word);
        assert_eq!(answer(call).await.1["principal"], format!("uid:{}", own_uid(&alone)));
    }
    alone.stop().await;
}
