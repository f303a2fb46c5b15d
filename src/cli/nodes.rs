//! `drover nodes`, `drover cordon`, `drover drain` and `drover uncordon`.

use super::client::{CALL_LIMIT, Client, LONG_LIMIT, path};
use super::error::CliError;
use super::list_options::ListOptions;
use super::lists;
use super::options::{NodeAction, ShownNode};
use super::sentences::{clean, count};
use super::term::{Term, print};
use drover_api::{CordonIn, DrainIn, DrainOut, NodesOut};
use drover_model::phase::NodeOrder;

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
        lists::storages(&out.nodes, page);
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
    let wanted = if undrain { NodeOrder::Use } else { NodeOrder::Drain };
    order(client, ShownNode { node, cloud }, wanted, json, term).await
}

/// Cordons or drains a node, or lets it be used again.
pub(super) async fn order(
    client: &Client,
    at: ShownNode,
    order: NodeOrder,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    let ShownNode { node, cloud } = at;
    let out: DrainOut = match order {
        NodeOrder::Cordon => {
            client.post(&path("nodes", &node, "/cordon"), &CordonIn { cloud }, CALL_LIMIT).await?
        }
        NodeOrder::Use | NodeOrder::Drain => {
            let command = DrainIn { cloud, undrain: order == NodeOrder::Use };
            client.post(&path("nodes", &node, "/drain"), &command, CALL_LIMIT).await?
        }
    };
    print(term, json, &out, |out| {
        let node = clean(&out.node);
        let agents = count(out.agents, "agent");
        let is = if out.changed { "is" } else { "was already" };
        if out.drained {
            format!(
                "node {node} {is} drained: nothing is started there; {agents} on it, idle ones go\n"
            )
        } else if out.cordoned {
            format!(
                "node {node} {is} cordoned: nothing is started there, nothing goes; {agents} on it\n"
            )
        } else if out.changed {
            format!("node {node} is used again\n")
        } else {
            format!("node {node} was neither cordoned nor drained: it is used as before\n")
        }
    })
}
