// Invariant: the configuration of high availability accepts and refuses what Proxmox does, with its
// texts (pve-ha-manager, API2/HA/*.pm).

use serde_json::{Value, json};

use super::TestCluster;
use super::fakes::refusal;
use crate::spec::PveVersion;
use crate::world::WorldOptions;

const RESOURCES: &str = "/cluster/ha/resources";
const RESOURCE: &str = "/cluster/ha/resources/{sid}";
const GROUPS: &str = "/cluster/ha/groups";
const GROUP: &str = "/cluster/ha/groups/{group}";
const RULES: &str = "/cluster/ha/rules";
const RULE: &str = "/cluster/ha/rules/{rule}";

async fn refused(
    cluster: &TestCluster,
    method: &'static str,
    route: &'static str,
    with: Value,
) -> String {
    refusal(cluster.call(method, route, with).await)
}

/// A cluster of this version with two managed guests.
async fn two(version: PveVersion) -> TestCluster {
    let cluster = TestCluster::with(WorldOptions { version, ..WorldOptions::default() });
    for vmid in [101, 102] {
        cluster.clone_to(vmid).await;
        let with = json!({ "sid": vmid.to_string() });
        cluster.call("POST", RESOURCES, with).await.unwrap();
    }
    cluster
}

#[tokio::test(start_paused = true)]
async fn a_guest_is_managed_by_its_own_kind_and_id() {
    let cluster = two(PveVersion::V8_4).await;
    for (method, route, with, text) in [
        (
            "POST",
            RESOURCES,
            json!({ "sid": "777" }),
            "unable to detect SID from VMID - VM/CT 777 does not exist",
        ),
        ("POST", RESOURCES, json!({ "sid": "vm:101", "type": "ct" }), "types does not match"),
        (
            "PUT",
            RESOURCE,
            json!({ "sid": "vm:9000", "state": "stopped" }),
            "update resources config failed: no such resource 'vm:9000'",
        ),
        (
            "PUT",
            RESOURCE,
            json!({ "sid": "vm:101", "group": "far" }),
            "HA group 'far' does not exist",
        ),
        (
            "DELETE",
            RESOURCE,
            json!({ "sid": "vm:9000" }),
            "cannot delete service 'vm:9000', not HA managed!",
        ),
    ] {
        assert_eq!(refused(&cluster, method, route, with).await, text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_stays_while_it_is_used() {
    let cluster = two(PveVersion::V8_4).await;
    let near = json!({ "group": "near", "nodes": "pve1" });
    cluster.call("POST", GROUPS, near.clone()).await.unwrap();
    let duplicate = refused(&cluster, "POST", GROUPS, near).await;
    assert_eq!(duplicate, "create ha group failed: ha group ID 'near' already defined");
    let with = json!({ "sid": "vm:101", "group": "near" });
    cluster.call("PUT", RESOURCE, with).await.unwrap();
    let used = refused(&cluster, "DELETE", GROUP, json!({ "group": "near" })).await;
    assert_eq!(used, "delete ha group failed: ha group is used by service 'vm:101'");
    let out = json!({ "sid": "vm:101", "delete": "group" });
    cluster.call("PUT", RESOURCE, out).await.unwrap();
    for _ in 0..2 {
        cluster.call("DELETE", GROUP, json!({ "group": "near" })).await.unwrap();
    }
    assert_eq!(cluster.get(GROUPS, json!({})).await, json!([]));
}

#[tokio::test(start_paused = true)]
async fn there_are_no_groups_in_9() {
    let cluster = two(PveVersion::V9_2).await;
    let reported = "ha groups have been migrated to rules";
    let near = json!({ "group": "near", "nodes": "pve1" });
    for (method, route, what) in [
        ("GET", GROUPS, "cannot index groups"),
        ("GET", GROUP, "cannot read group"),
        ("POST", GROUPS, "cannot create group"),
        ("PUT", GROUP, "cannot update group"),
        ("DELETE", GROUP, "cannot delete group"),
    ] {
        let text = refused(&cluster, method, route, near.clone()).await;
        assert_eq!(text, format!("{what}: {reported}"));
    }
    let with = json!({ "sid": "vm:101", "group": "near" });
    let text = refused(&cluster, "PUT", RESOURCE, with).await;
    assert_eq!(text, format!("invalid parameter 'group': {reported}"));
}

#[tokio::test(start_paused = true)]
async fn a_rule_is_about_guests_that_are_managed_and_nodes_that_are_there() {
    let cluster = two(PveVersion::V9_2).await;
    let rule = |more: Value| {
        let mut with = json!({ "rule": "r", "type": "node-affinity", "resources": "vm:101" });
        for (key, value) in more.as_object().unwrap() {
            with[key] = value.clone();
        }
        with
    };
    for (more, text) in [
        (json!({}), "missing value for required option 'nodes'"),
        (json!({ "nodes": "pve1", "affinity": "positive" }), "unexpected property 'affinity'"),
        (
            json!({ "nodes": "pve1:2,pve9" }),
            "create ha rule failed: cannot use non-existent node(s) pve9.",
        ),
        (
            json!({ "nodes": "pve1", "resources": "vm:101,vm:9000" }),
            "create ha rule failed: cannot use unmanaged resource(s) vm:9000.",
        ),
    ] {
        assert_eq!(refused(&cluster, "POST", RULES, rule(more)).await, text);
    }
    cluster.call("POST", RULES, rule(json!({ "nodes": "pve1", "disable": false }))).await.unwrap();
    let duplicate = refused(&cluster, "POST", RULES, rule(json!({ "nodes": "pve2" }))).await;
    assert_eq!(duplicate, "create ha rule failed: HA rule 'r' already defined");
    let one = cluster.get(RULE, json!({ "rule": "r" })).await;
    assert_eq!((&one["order"], one.get("disable")), (&json!(1), None));
    let other = json!({ "rule": "r", "type": "resource-affinity", "affinity": "positive" });
    let other = refused(&cluster, "PUT", RULE, other).await;
    assert_eq!(other, "update HA rules failed: unexpected property 'type'");
    let missing = json!({ "rule": "s", "type": "node-affinity" });
    let missing = refused(&cluster, "PUT", RULE, missing).await;
    assert_eq!(missing, "update HA rules failed: HA rule 's' does not exist");
}

#[tokio::test(start_paused = true)]
async fn rules_stand_in_the_order_they_were_made_and_lose_guests_that_are_not_managed_any_more() {
    let cluster = two(PveVersion::V9_2).await;
    for (rule, resources) in [("z", "vm:101,vm:102"), ("a", "vm:101")] {
        let with = json!({
            "rule": rule, "type": "node-affinity", "nodes": "pve1", "resources": resources,
        });
        cluster.call("POST", RULES, with).await.unwrap();
    }
    let names = async |with: Value| {
        let rules = cluster.get(RULES, with).await;
        let names = rules.as_array().unwrap().iter().map(|rule| rule["rule"].to_string());
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(json!({})).await, "\"z\" \"a\"");
    assert_eq!(names(json!({ "resource": "vm:102" })).await, "\"z\"");
    cluster.call("DELETE", RESOURCE, json!({ "sid": "vm:101" })).await.unwrap();
    assert_eq!(names(json!({})).await, "\"z\"");
    assert_eq!(cluster.get(RULE, json!({ "rule": "z" })).await["resources"], "vm:102");
    for _ in 0..2 {
        cluster.call("DELETE", RULE, json!({ "rule": "z" })).await.unwrap();
    }
}
