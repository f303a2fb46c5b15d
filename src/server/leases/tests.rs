//! Requests for leases: what they may hold, and what becomes of it.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};

use drover_api::LeaseIn;
use reqwest::Method;
use serde_json::{Value, json};

use super::*;
use crate::testing::{Answer, Served};

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ me@here";

// Invariant: nothing but a public key of a known type reaches a guest.

#[test]
fn a_public_key_is_one_line_of_a_known_type() {
    check_public_key(KEY).unwrap();
    for (key, part) in [
        ("-----BEGIN OPENSSH PRIVATE KEY-----", "is a private key"),
        ("ssh-dss AAAAB3NzaC1kc3M=", "begins with `ssh-dss`"),
        ("command=\"id\" ssh-ed25519 AAAA", "begins with `command="),
        ("ssh-ed25519 AAAA", "is no public key line"),
        ("ssh-ed25519", "is no public key line"),
    ] {
        let fault = check_public_key(key).unwrap_err();
        assert!(fault.contains(part), "{key}: {fault}");
    }
}

// Invariant: user data is kept from the ask on, and shown by nothing.

async fn post(served: &Served, body: &Value) -> Answer {
    served.admin(Method::POST, "/v1/leases", &body.to_string()).await
}

#[tokio::test]
async fn user_data_is_kept_for_its_lease_once_and_reported_by_nothing() {
    let served = Served::default();
    let secret = "password = hunter2\n\u{7}";
    let body = json!({ "labels": ["linux"], "userData": secret, "idempotencyKey": "k" });
    for _ in 0..2 {
        let answer = post(&served, &body).await;
        assert_eq!((answer.status, &answer.body["id"]), (201, &json!("l1")));
        assert!(!answer.body.to_string().contains("hunter2"), "{}", answer.body);
    }
    let store = served.doors().user_data;
    assert_eq!(store.read("l1").unwrap().unwrap(), secret.as_bytes());
    assert!(!store.holds(&LeaseId::new("l2")), "the repeated ask's own");
    let ask = served.asks.lock().unwrap()[0].clone();
    assert!(ask.user_data && !format!("{ask:?}").contains("hunter2"));
    for path in ["/v1/leases", "/v1/leases/l1", "/v1/status", "/metrics"] {
        let answer = served.admin(Method::GET, path, "").await;
        assert!(!answer.body.to_string().contains("hunter2"), "{path}");
    }
    served.stop().await;
}

#[tokio::test]
async fn user_data_may_be_any_bytes_within_its_bound() {
    let served = Served::default();
    let largest = "\u{1}".repeat(USER_DATA_MAX);
    let bytes = STANDARD.encode([0, 255, 10]);
    for (given, status, part) in [
        (json!({ "userData": largest }), 201, ""),
        (json!({ "userData": format!("{largest}x") }), 400, "and has 65537"),
        (json!({ "userDataBase64": bytes }), 201, ""),
        (json!({ "userDataBase64": "secret!" }), 400, "is no base64"),
        (json!({ "userData": "secret", "userDataBase64": bytes }), 400, "leave one of them out"),
        (json!({ "userData": ["secret"] }), 400, "must be a text, and is a list"),
    ] {
        let mut body = given;
        body["template"] = json!("linux");
        let answer = post(&served, &body).await;
        let detail = answer.body["detail"].as_str().unwrap_or_default();
        assert_eq!(answer.status, status, "{detail}");
        assert!(detail.contains(part) && !detail.contains("secret"), "{detail}");
    }
    let store = served.doors().user_data;
    let asks: Vec<_> = served.asks.lock().unwrap().iter().map(|ask| ask.lease.clone()).collect();
    assert_eq!(store.read(asks[1].as_str()).unwrap().unwrap().as_ref(), [0, 255, 10]);
    served.stop().await;
}

#[tokio::test]
async fn user_data_of_a_lease_that_is_refused_is_not_kept() {
    let served = Served::default();
    let answer = post(&served, &json!({ "template": "nope", "userData": "x" })).await;
    assert_eq!(answer.status, 422);
    assert!(!served.doors().user_data.holds(&LeaseId::new("l1")));
    served.stop().await;
}

#[test]
fn user_data_of_a_request_is_not_in_its_debug_text() {
    let mut ask = LeaseIn::default();
    ask.bring(b"hunter2".to_vec());
    assert!(!format!("{ask:?}").contains("hunter2"));
    ask.bring(vec![0xff]);
    assert_eq!(ask.user_data_base64.unwrap().0, "/w==");
}

// Invariant: an idempotency key belongs to its principal.

#[test]
fn the_same_key_of_two_principals_hashes_differently() {
    assert_eq!(key_hash("uid:1", "k"), key_hash("uid:1", "k"));
    assert_ne!(key_hash("uid:1", "k"), key_hash("uid:2", "k"));
    assert_ne!(key_hash("uid:1", "2k"), key_hash("uid:12", "k"));
}

// Invariant: no answer says of a lease what another member may have changed since.

#[tokio::test]
async fn a_leader_that_is_cut_off_from_its_store_does_not_say_whether_a_lease_is_there() {
    let reaches = Arc::new(AtomicBool::new(true));
    let served = Served::reaching(&reaches);
    let body = json!({ "template": "quick" });
    assert_eq!(post(&served, &body).await.status, 201);
    let renew = json!({ "ttlSeconds": 60 }).to_string();
    for (method, path, body, known) in [
        (Method::GET, "/v1/leases/l1", "", 200),
        (Method::GET, "/v1/leases/other", "", 404),
        (Method::DELETE, "/v1/leases/other", "", 404),
        (Method::POST, "/v1/leases/other/renew", &*renew, 404),
    ] {
        reaches.store(true, Ordering::Relaxed);
        assert_eq!(served.admin(method.clone(), path, body).await.status, known, "{path}");
        reaches.store(false, Ordering::Relaxed);
        let answer = served.admin(method, path, body).await;
        let detail = answer.body["detail"].as_str().unwrap_or_default();
        assert_eq!(answer.status, 503, "{path}: {}", answer.body);
        assert!(detail.contains("what this one knows of the lease may be old"), "{detail}");
    }
    served.stop().await;
}
