//! Whose leases callers see and change, over HTTP.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;

use drover_model::fact::{Fact, What};
use drover_model::id::LeaseId;
use drover_model::phase::{AgentPhase, LeasePhase};
use drover_model::record::HoldOwner;
use drover_model::status::{AgentStatus, LeaseStatus};
use drover_model::tenant::By;
use reqwest::Method;
use serde_json::{Value, json};

use crate::reported::event_out;
use crate::testing::{self, Answer, Served, reported};

/// A lease that is ready on an agent of the same name.
fn ready(served: &Served, id: &str, principal: &str, group: Option<&str>) {
    let agent = format!("on-{id}");
    let leases = vec![LeaseId::new(id)];
    let status = AgentStatus { leases, ..testing::agent(&agent, AgentPhase::Leased) };
    reported(&served.view, What::Agent(Arc::new(status)));
    let group = group.map(str::to_owned);
    let status = testing::lease(id, LeasePhase::Ready, Some(&agent), "");
    let status = LeaseStatus { principal: principal.into(), group, ..status };
    reported(&served.view, What::Lease(Box::new(status)));
}

fn the<'a>(answer: &'a Answer, list: &str, id: &str) -> &'a Value {
    let all = answer.body[list].as_array().unwrap();
    all.iter().find(|one| one["id"] == json!(id)).unwrap()
}

// Invariant: how to log in, and for whom a lease is, is shown to its principal, its group and admins.

#[tokio::test]
async fn nobody_is_reported_how_to_log_in_to_a_lease_that_is_not_theirs() {
    let served = Served::default();
    ready(&served, "own", "token:operator", None);
    ready(&served, "alien", "token:other", None);
    ready(&served, "shared", "token:other", Some("build"));
    for (token, sees) in [
        ("admin", &["own", "alien", "shared"][..]),
        ("operator", &["own"]),
        ("viewer", &[]),
        ("build", &["shared"]),
    ] {
        let listed = served.call(Some(token), Method::GET, "/v1/leases", "").await;
        let status = served.call(Some(token), Method::GET, "/v1/status", "").await;
        let agents = served.call(Some(token), Method::GET, "/v1/agents", "").await;
        for id in ["own", "alien", "shared"] {
            let path = format!("/v1/leases/{id}");
            let one = served.call(Some(token), Method::GET, &path, "").await.body;
            let path = format!("/v1/agents/on-{id}");
            let agent = served.call(Some(token), Method::GET, &path, "").await.body;
            let theirs = sees.contains(&id);
            for lease in [&one, the(&listed, "leases", id), the(&status, "leases", id)] {
                assert_eq!(lease["state"], json!("ready"), "{token} {id}");
                assert_eq!(lease["ssh"].is_object(), theirs, "{token} {id}: {lease}");
                assert_eq!(lease["owner"] == json!("tester"), theirs, "{token} {id}: {lease}");
            }
            let name = format!("on-{id}");
            for agent in [&agent, the(&agents, "agents", &name), the(&status, "agents", &name)] {
                assert_eq!(agent["ssh"].is_object(), theirs, "{token} {id}: {agent}");
            }
        }
    }
    served.stop().await;
}

#[tokio::test]
async fn nobody_renews_or_releases_a_lease_that_is_not_theirs() {
    let served = Served::default();
    let calls = |id: &str| {
        let renew = (Method::POST, format!("/v1/leases/{id}/renew"), "{\"ttlSeconds\": 60}");
        [renew, (Method::DELETE, format!("/v1/leases/{id}"), "")]
    };
    for (token, id, allowed) in [
        ("admin", "alien", true),
        ("operator", "own", true),
        ("operator", "alien", false),
        ("operator", "shared", false),
        ("build", "shared", true),
        ("build", "alien", false),
        ("viewer", "own", false),
    ] {
        ready(&served, "own", "token:operator", None);
        ready(&served, "alien", "token:other", None);
        ready(&served, "shared", "token:other", Some("build"));
        for (method, path, body) in calls(id) {
            let answer = served.call(Some(token), method.clone(), &path, body).await;
            let status = answer.status;
            assert_eq!(status < 300, allowed, "{token}: {method} {path}: {}", answer.body);
            assert!(allowed || status == 403, "{token}: {method} {path}: {}", answer.body);
        }
        let state = served.view.lease(&LeaseId::new(id)).unwrap().state;
        assert_eq!(state == LeasePhase::Ended, allowed, "{token} {id}");
    }
    served.stop().await;
}

// Invariant: where no lease is on an agent, how to log in is shown to whose its hold is, and to admins.

#[tokio::test]
async fn how_to_log_in_is_reported_neither_before_a_lease_nor_after_it_to_those_without_the_hold() {
    let served = Served::default();
    let owner = |principal: &str, group: Option<&str>| HoldOwner {
        principal: principal.into(),
        group: group.map(str::to_owned),
    };
    let cases = [
        (AgentPhase::Booting, None, &["admin"][..]),
        (AgentPhase::Ready, None, &["admin"]),
        (AgentPhase::Retiring, None, &["admin"]),
        (AgentPhase::Held, None, &["admin"]),
        (AgentPhase::Held, Some(owner("token:operator", None)), &["admin", "operator"]),
        (AgentPhase::Held, Some(owner("token:other", Some("build"))), &["admin", "build"]),
    ];
    for (state, hold_owner, sees) in cases {
        let status = AgentStatus { hold_owner, ..testing::agent("a1", state) };
        let fact = Fact { at: status.since, what: What::Agent(Arc::new(status.clone())) };
        reported(&served.view, fact.what.clone());
        for token in ["admin", "operator", "viewer", "build"] {
            let one = served.call(Some(token), Method::GET, "/v1/agents/a1", "").await.body;
            let all = token == "admin";
            let group = (token == "build").then(|| "build".to_owned());
            let by = By { principal: format!("token:{token}"), group, all };
            let event = event_out(&served.view, &fact, &by).1["agent"].clone();
            let all = served.call(Some(token), Method::GET, "/v1/agents", "").await;
            for agent in [&one, &event, the(&all, "agents", "a1")] {
                let what = format!("{token} {state} {:?}: {agent}", status.hold_owner);
                assert_eq!(agent["state"], json!(state), "{what}");
                assert_eq!(agent["ssh"].is_object(), sees.contains(&token), "{what}");
            }
        }
    }
    served.stop().await;
}

// Invariant: a list of leases is bounded, and all of them can be had, page by page.

#[tokio::test]
async fn leases_are_listed_by_state_and_principal_and_in_pages() {
    let served = Served::default();
    for n in 0..7 {
        let principal = if n % 2 == 0 { "token:even" } else { "token:odd" };
        let status =
            testing::lease(&format!("l{n}"), LeasePhase::Waiting, None, "no agent is free");
        let status = LeaseStatus { principal: principal.into(), ..status };
        reported(&served.view, What::Lease(Box::new(status)));
    }
    ready(&served, "r", "token:even", None);
    let ids = |answer: &Answer| -> Vec<String> {
        let all = answer.body["leases"].as_array().unwrap();
        all.iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
    };
    let get =
        async |query: &str| served.admin(Method::GET, &format!("/v1/leases?{query}"), "").await;
    assert_eq!(ids(&get("state=ready").await), ["r"]);
    assert_eq!(ids(&get("state=waiting&principal=token%3Aodd").await), ["l1", "l3", "l5"]);
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = get(&format!("limit=3&after={after}")).await;
        assert!(ids(&page).len() <= 3);
        seen.extend(ids(&page));
        match page.body["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, ["l0", "l1", "l2", "l3", "l4", "l5", "l6", "r"]);
    for (query, part) in [
        ("state=lost", "`state` must be one of waiting"),
        ("limit=0", "must be 1 to 10000"),
        ("limit=10001", "must be 1 to 10000"),
        ("colour=red", "the query cannot be read: unknown field `colour`; only `state`"),
    ] {
        let answer = get(query).await;
        let detail = answer.body["detail"].as_str().unwrap_or_default();
        assert_eq!(answer.status, 400, "{query}");
        assert!(detail.contains(part), "{query}: {detail}");
    }
    served.stop().await;
}
