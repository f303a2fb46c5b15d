//! How the cluster is joined together, as corosync's configuration says it (pve-cluster,
//! API2/ClusterConfig.pm). A lone node has no such configuration.

use serde_json::{Value, json};

use super::ask::{Ask, failed};
use super::state::{Node, State};
use crate::call::{Answer, ApiError, Outcome};

/// The nodes as the file has them: all values are text.
fn members(ask: &Ask, state: &State) -> Vec<Value> {
    if ask.cluster.name.is_empty() {
        return Vec::new();
    }
    let line = |(name, node): (&String, &Node)| {
        json!({
            "name": name, "nodeid": node.id.to_string(), "quorum_votes": "1",
            "ring0_addr": format!("192.0.2.{}", node.id),
        })
    };
    state.nodes.iter().map(line).collect()
}

/// `GET /cluster/config/nodes`: none of a lone node.
pub fn nodes(ask: &Ask) -> Outcome {
    let mut lines = members(ask, &ask.cluster.state());
    for line in &mut lines {
        line["node"] = line["name"].clone();
    }
    Ok(Answer::new(lines.into()))
}

fn totem_of(ask: &Ask) -> Value {
    json!({
        "version": "2", "config_version": "3", "cluster_name": ask.cluster.name,
        "ip_version": "ipv4-6", "link_mode": "passive", "secauth": "on",
        "interface": { "0": { "linknumber": "0" } },
    })
}

/// `GET /cluster/config/totem`: null of a lone node.
pub fn totem(ask: &Ask) -> Outcome {
    let lone = ask.cluster.name.is_empty();
    Ok(Answer::new(if lone { Value::Null } else { totem_of(ask) }))
}

/// `GET /cluster/config/qdevice`: no cluster here has one.
pub fn qdevice() -> Outcome {
    Ok(Answer::new(json!({})))
}

/// `GET /cluster/config/join`: what a node has to know that wants to join.
pub fn join(ask: &Ask) -> Outcome {
    if ask.cluster.name.is_empty() {
        let text = "node is not in a cluster, no join info available!";
        return Err(ApiError { status: 424, ..ApiError::failed(text) });
    }
    let wanted = ask.text("node").unwrap_or_else(|| ask.call.received_by.clone());
    let fingerprint = ask.cluster.certificates().shown();
    let state = ask.cluster.state();
    if !state.nodes.contains_key(&wanted) {
        return Err(failed(format!("unknown node '{wanted}'")));
    }
    let mut lines = members(ask, &state);
    for line in &mut lines {
        line["pve_addr"] = line["ring0_addr"].clone();
        line["pve_fp"] = fingerprint.clone().into();
    }
    let digest = super::conf::digest([(&ask.cluster.name, &lines.len().to_string())]);
    Ok(Answer::new(json!({
        "nodelist": lines, "preferred_node": wanted, "totem": totem_of(ask),
        "config_digest": digest,
    })))
}
