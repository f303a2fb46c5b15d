//! The corosync configuration of the cluster (pve-cluster, API2/ClusterConfig.pm). A standalone
//! node has none.

use serde_json::{Value, json};

use super::context::{CallContext, failed};
use super::state::{Node, State};
use crate::call::{Answer, ApiError, Outcome};

/// The nodes in the file; all values are text.
fn members(ctx: &CallContext, state: &State) -> Vec<Value> {
    if ctx.cluster.name.is_empty() {
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

/// `GET /cluster/config/nodes`: empty on a standalone node.
pub(crate) fn nodes(ctx: &CallContext) -> Outcome {
    let mut lines = members(ctx, &ctx.cluster.state());
    for line in &mut lines {
        line["node"] = line["name"].clone();
    }
    Ok(Answer::new(lines.into()))
}

fn totem_of(ctx: &CallContext) -> Value {
    json!({
        "version": "2", "config_version": "3", "cluster_name": ctx.cluster.name,
        "ip_version": "ipv4-6", "link_mode": "passive", "secauth": "on",
        "interface": { "0": { "linknumber": "0" } },
    })
}

/// `GET /cluster/config/totem`: null on a standalone node.
pub(crate) fn totem(ctx: &CallContext) -> Outcome {
    let standalone = ctx.cluster.name.is_empty();
    Ok(Answer::new(if standalone { Value::Null } else { totem_of(ctx) }))
}

/// `GET /cluster/config/qdevice`: no simulated cluster has one.
pub(crate) fn qdevice() -> Outcome {
    Ok(Answer::new(json!({})))
}

/// `GET /cluster/config/join`: what a node needs to join the cluster.
pub(crate) fn join(ctx: &CallContext) -> Outcome {
    if ctx.cluster.name.is_empty() {
        let text = "node is not in a cluster, no join info available!";
        return Err(ApiError { status: 424, ..ApiError::failed(text) });
    }
    let wanted = ctx.text("node").unwrap_or_else(|| ctx.call.received_by.clone());
    let fingerprint = ctx.cluster.certificates().served_fingerprint();
    let state = ctx.cluster.state();
    if !state.nodes.contains_key(&wanted) {
        return Err(failed(format!("unknown node '{wanted}'")));
    }
    let mut lines = members(ctx, &state);
    for line in &mut lines {
        line["pve_addr"] = line["ring0_addr"].clone();
        line["pve_fp"] = fingerprint.clone().into();
    }
    let digest = super::conf::digest([(&ctx.cluster.name, &lines.len().to_string())]);
    Ok(Answer::new(json!({
        "nodelist": lines, "preferred_node": wanted, "totem": totem_of(ctx),
        "config_digest": digest,
    })))
}
