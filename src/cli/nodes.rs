//! `drover nodes` and `drover node drain`.

use super::client::{CALL_LIMIT, Client, LONG_LIMIT, path};
use super::error::CliError;
use super::options::NodeAction;
use super::tables::{clean, count, table, unread};
use super::term::{Term, print};
use drover_api::{DrainIn, DrainOut, NodeOut, NodesOut};

/// Lists all nodes.
pub(super) async fn list(client: &Client, json: bool, term: &mut Term<'_>) -> Result<(), CliError> {
    let out: NodesOut = client.get("/v1/nodes", LONG_LIMIT).await?;
    print(term, json, &out, shown)
}

fn shown(out: &NodesOut) -> String {
    let mut text = String::new();
    if !out.nodes.is_empty() {
        let headings = [
            "NODE", "STATE", "AGENTS", "GUESTS", "MEMORY", "OTHERS", "RESERVED", "FREE", "CPUS",
            "FREE",
        ];
        text += &table(headings, out.nodes.iter().map(row).collect());
    }
    for node in &out.nodes {
        for one in &node.refuses {
            let (node, template) = (clean(&node.node), clean(&one.template));
            text += &format!("{node} takes none of {template}: {}\n", clean(&one.why));
        }
    }
    text += &unread(&out.unread);
    if text.is_empty() { "none\n".to_owned() } else { text }
}

fn row(node: &NodeOut) -> [String; 10] {
    let room = node.room.as_ref();
    let reported = |figure: Option<String>| figure.unwrap_or_else(|| "-".to_owned());
    let mib = |figure: Option<i64>| reported(figure.map(|figure| format!("{figure} MiB")));
    let whole = |figure: Option<u64>| mib(figure.and_then(|figure| i64::try_from(figure).ok()));
    [
        node.node.clone(),
        node.state.clone(),
        node.agents.to_string(),
        node.guests.to_string(),
        whole(room.map(|room| room.memory_mb)),
        whole(room.map(|room| room.others_mb)),
        whole(room.map(|room| room.reserved_mb)),
        mib(room.map(|room| room.free_mb)),
        reported(room.map(|room| format!("{:.0}", room.cpus))),
        reported(room.map(|room| format!("{:.1}", room.free_cpus))),
    ]
}

/// Drains a node, or lets it be used again.
pub(super) async fn act(
    client: &Client,
    action: NodeAction,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    let NodeAction::Drain { node, undrain, cloud } = action;
    let command = DrainIn { cloud, undrain };
    let out: DrainOut = client.post(&path("nodes", &node, "/drain"), &command, CALL_LIMIT).await?;
    print(term, json, &out, |out| {
        let node = clean(&out.node);
        if !out.drained {
            return format!("node {node} is used again\n");
        }
        let agents = count(out.agents, "agent");
        format!("node {node} is drained: nothing is started there; {agents} on it, idle ones go\n")
    })
}
