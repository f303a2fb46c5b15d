//! `drover nodes` and `drover node drain`.

use super::client::{CALL_LIMIT, Client, LONG_LIMIT, path};
use super::error::CliError;
use super::list_options::ListOptions;
use super::lists;
use super::options::NodeAction;
use super::sentences::{clean, count};
use super::term::{Term, print};
use drover_api::{DrainIn, DrainOut, NodesOut};

/// Lists all nodes.
pub(super) async fn list(
    client: &Client,
    options: &ListOptions,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    let out: NodesOut = client.get("/v1/nodes", LONG_LIMIT).await?;
    let unread = out.unread;
    let whole = |nodes| NodesOut { nodes, unread };
    lists::show(term, json, options, out.nodes, whole, |out, page| {
        lists::unread(&out.unread, page);
    })
}

/// Drains a node, or lets it be used again.
pub(super) async fn act(
    client: &Client,
    action: NodeAction,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    let NodeAction::Drain { node, undrain, cloud } = action;
    drain(client, &node, cloud, undrain, json, term).await
}

/// The same by the words of `drover drain` and `drover uncordon`.
pub(super) async fn drain(
    client: &Client,
    node: &str,
    cloud: Option<String>,
    undrain: bool,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    let command = DrainIn { cloud, undrain };
    let out: DrainOut = client.post(&path("nodes", node, "/drain"), &command, CALL_LIMIT).await?;
    print(term, json, &out, |out| {
        let node = clean(&out.node);
        if !out.drained {
            return format!("node {node} is used again\n");
        }
        let agents = count(out.agents, "agent");
        format!("node {node} is drained: nothing is started there; {agents} on it, idle ones go\n")
    })
}
