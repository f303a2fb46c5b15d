// Invariant: a cluster has join information and nodes in corosync's configuration; a standalone
// node has neither.

use serde_json::json;

use super::TestCluster;
use crate::spec::{ClusterSpec, NodeSpec};
use crate::world::WorldOptions;

const NODES: &str = "/cluster/config/nodes";
const JOIN: &str = "/cluster/config/join";

// Source: pve-cluster, API2/ClusterConfig.pm:172; all values of corosync's file are text.
#[tokio::test(start_paused = true)]
async fn the_nodes_of_a_cluster_are_those_of_its_configuration() {
    let cluster = TestCluster::instant();
    let nodes = cluster.get(NODES, json!({})).await;
    let second = json!({
        "node": "pve2", "name": "pve2", "nodeid": "2", "quorum_votes": "1",
        "ring0_addr": "192.0.2.2",
    });
    assert_eq!((nodes.as_array().unwrap().len(), &nodes[1]), (3, &second));
    let join = cluster.get(JOIN, json!({})).await;
    assert_eq!(
        (&join["preferred_node"], &join["nodelist"][2]["name"]),
        (&json!("pve1"), &json!("pve3"))
    );
    assert_eq!(join["nodelist"][1]["pve_addr"], "192.0.2.2");
    assert_eq!(join["totem"]["cluster_name"], "drover");
    let totem = cluster.get("/cluster/config/totem", json!({})).await;
    assert_eq!(totem, join["totem"]);
    assert_eq!(cluster.get("/cluster/config/qdevice", json!({})).await, json!({}));
}

#[tokio::test(start_paused = true)]
async fn a_standalone_node_has_no_number_no_members_and_no_join_information() {
    let three = ClusterSpec::three_nodes("secret", "token");
    let nodes = vec![NodeSpec::named("pve1")];
    let spec = ClusterSpec { name: String::new(), nodes, guests: Vec::new(), ..three };
    let cluster = TestCluster::of(&spec, WorldOptions::default());
    let status = cluster.get("/cluster/status", json!({})).await;
    let lines: Vec<_> =
        status.as_array().unwrap().iter().map(|line| (&line["type"], &line["nodeid"])).collect();
    assert_eq!(lines, [(&json!("node"), &json!(0))]);
    assert_eq!(cluster.get(NODES, json!({})).await, json!([]));
    assert_eq!(cluster.get("/cluster/config/totem", json!({})).await, json!(null));
    let join = cluster.call("GET", JOIN, json!({})).await.unwrap_err();
    let text = "node is not in a cluster, no join info available!";
    assert_eq!((join.status, join.message.as_str()), (424, text));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_has_no_replication_jobs() {
    let cluster = TestCluster::instant();
    assert_eq!(cluster.get("/cluster/replication", json!({})).await, json!([]));
    let one = cluster.call("GET", "/cluster/replication/{id}", json!({ "id": "100-0" })).await;
    assert_eq!(one.unwrap_err().message, "no such replication job '100-0'");
}
