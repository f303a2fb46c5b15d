//! `drover nodes`, `drover node drain` and `drover why`.

use super::client::CALL_LIMIT;
use super::remote::{LONG_LIMIT, path, print};
use super::tables::{clean, count, table};
use super::{CliError, Client, NodeAction, Term};
use crate::web::shapes::TemplatesOut;
use crate::web::{DrainIn, DrainOut, NodeOut, NodesOut, WhyOut};

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
    for one in &out.unread {
        text += &format!("cluster {} was not read: {}\n", clean(&one.cluster), clean(&one.why));
    }
    if text.is_empty() { "none\n".to_owned() } else { text }
}

fn row(node: &NodeOut) -> [String; 10] {
    let room = node.room.as_ref();
    let told = |figure: Option<String>| figure.unwrap_or_else(|| "-".to_owned());
    let mib = |figure: Option<i64>| told(figure.map(|figure| format!("{figure} MiB")));
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
        told(room.map(|room| format!("{:.0}", room.cpus))),
        told(room.map(|room| format!("{:.1}", room.free_cpus))),
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
    let wish = DrainIn { cloud, undrain };
    let out: DrainOut = client.post(&path("nodes", &node, "/drain"), &wish, CALL_LIMIT).await?;
    print(term, json, &out, |out| {
        let node = clean(&out.node);
        if !out.drained {
            return format!("node {node} is used again\n");
        }
        let agents = count(out.agents, "agent");
        format!("node {node} is drained: nothing is begun there; {agents} on it, idle ones go\n")
    })
}

/// Says what keeps one template, or each, from beginning agents.
pub(super) async fn why(
    client: &Client,
    template: Option<String>,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    let names = match template {
        Some(name) => vec![name],
        None => {
            let all: TemplatesOut = client.get("/v1/templates", CALL_LIMIT).await?;
            all.templates.into_iter().map(|one| one.id).collect()
        }
    };
    let mut all: Vec<WhyOut> = Vec::new();
    for name in names {
        all.push(client.get(&path("templates", &name, "/why"), LONG_LIMIT).await?);
    }
    print(term, json, &all, |all| all.iter().map(told).collect::<Vec<_>>().join("\n"))
}

fn told(out: &WhyOut) -> String {
    let mut text = format!("{}\n", clean(&out.template));
    if let Some(waits) = &out.waits {
        text += &format!("  begins nothing: {}\n", clean(waits));
    }
    if let Some(next) = &out.next {
        text += &format!("  next on {}\n", clean(next));
    }
    if out.nodes.is_empty()
        && let Some(refused) = &out.refused
    {
        text += &format!("  nothing can be cloned: {}\n", clean(refused));
    }
    for node in &out.nodes {
        let why = node.refused.as_ref().map_or_else(|| "can take one".to_owned(), |why| clean(why));
        text += &format!("  {}: {why}\n", clean(&node.node));
    }
    if let Some(failed) = &out.failed {
        text += &format!("  its last agent failed at {}: {}\n", failed.at, clean(&failed.why));
    }
    text
}
