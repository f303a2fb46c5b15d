//! What operators say of single agents, over real sockets, with a scripted herd.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use drover_actors::fact::What;
use reqwest::Method;
use serde_json::json;

use super::testing::{Served, agent, told};

// Invariant: what is set for one agent is told with it; null takes it back, what is absent stays.

#[tokio::test]
async fn limits_of_one_agent_are_set_shown_and_taken_back() {
    let served = Served::new();
    told(&served.view, What::Agent(Box::new(agent("a1", "Ready"))));
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
