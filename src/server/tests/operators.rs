//! What operators say of single agents, over real sockets, with a scripted herd.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;

use drover_model::fact::What;
use drover_model::id::AgentId;
use drover_model::phase::{AgentPhase, LeasePhase};
use reqwest::Method;
use serde_json::json;

use crate::testing::{Served, agent, empty_template, lease, reported};

// Invariant: what is set for one agent is shown with it; null takes it back, what is absent stays.

#[tokio::test]
async fn limits_of_one_agent_are_set_shown_and_taken_back() {
    let served = Served::default();
    reported(&served.view, What::Agent(Arc::new(agent("a1", AgentPhase::Ready))));
    let set = async |body: &str| served.admin(Method::PATCH, "/v1/agents/a1", body).await;
    let one = set(r#"{"idleTerminationMinutes": 0}"#).await;
    assert_eq!(one.body, json!({"idleTerminationMinutes": 0, "maxTotalUses": null}));
    let both = set(r#"{"maxTotalUses": 5}"#).await;
    assert_eq!(both.body, json!({"idleTerminationMinutes": 0, "maxTotalUses": 5}));
    let shown = served.admin(Method::GET, "/v1/agents/a1", "").await;
    assert_eq!(shown.body["overrides"], both.body);
    let back = set(r#"{"idleTerminationMinutes": null}"#).await;
    assert_eq!(back.body, json!({"idleTerminationMinutes": null, "maxTotalUses": 5}));
    let mut faults = Vec::new();
    for body in ["{}", r#"{"maxTotalUses": -1, "idleTerminationMinutes": "soon", "uses": 1}"#] {
        let answer = set(body).await;
        assert_eq!(answer.status, 400);
        faults.push(answer.body["detail"].as_str().unwrap().replace("; ", "\n"));
    }
    let path = "/v1/agents/nobody";
    let unknown = served.admin(Method::PATCH, path, r#"{"maxTotalUses": 1}"#).await;
    assert_eq!(unknown.status, 404);
    faults.push(unknown.body["detail"].as_str().unwrap().to_owned());
    insta::assert_snapshot!(faults.join("\n"), @r"
    `idleTerminationMinutes` or maxTotalUses must be given
    `idleTerminationMinutes` must be a whole number from 0 to 100000000, or null, and is a text
    `maxTotalUses` must be a whole number from 0 to 1000000000, or null, and is -1
    `uses` is not known
    known are idleTerminationMinutes, maxTotalUses
    no agent `nobody` lives
    ");
    served.stop().await;
}

// Invariant: a hold lets in the key it was given, or one that is shown once; nothing keeps that.

#[tokio::test]
async fn a_hold_takes_the_callers_key_or_makes_one() {
    let served = Served::default();
    reported(&served.view, What::Agent(Arc::new(agent("a1", AgentPhase::Ready))));
    let hold = async |body: &str| served.admin(Method::POST, "/v1/agents/a1/hold", body).await;
    let made = hold(r#"{"seconds": 60}"#).await;
    assert_eq!((made.status, &made.body["seconds"]), (202, &json!(60)));
    let key = made.body["privateKey"].as_str().unwrap();
    assert!(key.starts_with("-----BEGIN OPENSSH PRIVATE KEY-----"));
    let key = drover_ssh::PrivateKey::parse("made", &key.into(), None).ok().unwrap();
    let public = made.body["sshPublicKey"].as_str().unwrap();
    assert!(public.starts_with(&key.public().line()), "{public}");
    let other = hold("{}").await;
    assert_eq!(other.body["seconds"], 7200);
    assert_ne!(other.body["sshPublicKey"], made.body["sshPublicKey"]);
    let own = json!({"sshPublicKey": public}).to_string();
    assert_eq!(hold(&own).await.body["privateKey"], json!(null));
    let shown = served.admin(Method::GET, "/v1/agents/a1", "").await;
    assert_eq!(
        (&shown.body["state"], shown.body["heldUntil"].is_string()),
        (&json!(AgentPhase::Held), true)
    );
    let wrong = hold(r#"{"seconds": 0, "sshPublicKey": "mine", "for": "2h"}"#).await;
    assert_eq!(wrong.status, 400);
    assert_eq!(wrong.body["errors"].as_array().unwrap().len(), 3);
    assert_eq!(served.admin(Method::DELETE, "/v1/agents/a1/hold", "").await.status, 202);
    assert_eq!(served.admin(Method::POST, "/v1/agents/a9/hold", "").await.status, 404);
    served.stop().await;
}

// Invariant: how an order ended is shown to those who may give orders to the machine, by agent and by lease;
// the same key answers the same order, also where the order has no body.

#[tokio::test]
async fn the_end_of_an_order_is_shown_to_those_who_may_order_the_machine() {
    let served = Served::default();
    let on_it = agent("a1", AgentPhase::Leased);
    reported(&served.view, What::Agent(Arc::new(on_it)));
    let ready = lease("x", LeasePhase::Ready, Some("a1"), "");
    reported(&served.view, What::Lease(Box::new(ready)));
    let stop = r#"{"action": "stop"}"#;
    let order = served.admin(Method::POST, "/v1/leases/x/power", stop).await;
    let id = order.body["id"].as_str().unwrap().to_owned();
    for of in ["agents/a1", "leases/x"] {
        let path = format!("/v1/{of}/orders/{id}?waitSeconds=1");
        let shown = served.admin(Method::GET, &path, "").await;
        assert_eq!((shown.status, &shown.body["state"]), (200, &json!("done")), "{of}");
        for caller in ["viewer", "operator"] {
            let refused = served.call(Some(caller), Method::GET, &path, "").await;
            assert_eq!(refused.status, 403, "{caller} {of}: {}", refused.body);
        }
        let unknown = served.admin(Method::GET, &format!("/v1/{of}/orders/none"), "").await;
        assert_eq!(unknown.status, 404, "{of}");
        let long = served.admin(Method::GET, &format!("{path}00000"), "").await;
        assert_eq!(long.status, 400, "{of}");
        let delete = format!("/v1/{of}/snapshots/before");
        let taken = served.admin(Method::DELETE, &format!("{delete}?idempotencyKey=k"), "").await;
        assert_eq!(taken.status, 202, "{of}: {}", taken.body);
        let own = taken.body["id"].as_str().unwrap().to_owned();
        let status = served.view.agent(&AgentId::new("a1")).unwrap();
        let known = status.machine.all().into_iter().find(|one| one.order.id.as_str() == own);
        assert!(known.unwrap().order.key.is_some(), "{of}: its key is kept");
        for wrong in ["idempotencyKey=", "key=k"] {
            let refused = served.admin(Method::DELETE, &format!("{delete}?{wrong}"), "").await;
            assert_eq!(refused.status, 400, "{of} {wrong}");
        }
    }
    served.stop().await;
}

// Invariant: the next failure of a template is held with a key that is shown once, until that is
// taken back.

#[tokio::test]
async fn the_next_failure_of_a_template_is_held_shown_and_taken_back() {
    let served = Served::default();
    reported(&served.view, empty_template());
    let path = "/v1/templates/lab%2Flinux/hold-next";
    let made = served.admin(Method::POST, path, r#"{"seconds": 60}"#).await;
    assert_eq!((made.status, &made.body["template"]), (202, &json!("lab/linux")));
    assert!(made.body["privateKey"].as_str().unwrap().contains("PRIVATE KEY"));
    let shown = async || {
        let all = served.admin(Method::GET, "/v1/templates", "").await.body;
        all["templates"][0]["holdNextSeconds"].clone()
    };
    assert_eq!(shown().await, 60);
    assert_eq!(served.admin(Method::DELETE, path, "").await.status, 202);
    assert_eq!(shown().await, json!(null));
    let unknown = served.admin(Method::POST, "/v1/templates/linus/hold-next", "").await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.body["detail"].as_str().unwrap().contains("`linux`"), "{}", unknown.body);
    let wrong = served.admin(Method::POST, path, r#"{"seconds": 0}"#).await;
    assert_eq!(wrong.status, 400);
    served.stop().await;
}
