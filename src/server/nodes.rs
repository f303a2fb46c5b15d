//! Nodes: what is free on them, what keeps templates from them, and draining.

use actix_web::web;
use drover_actors::message::HerdCommand;
use drover_model::id::{CloudId, NodeName};
use drover_model::placement::report::{NodeReport, WhyReport};
use drover_model::record::Reason;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::Fields;
use super::shapes::rfc3339;
use super::{Problem, State, templates};
use crate::view::View;

/// The longest name of a cloud that is taken.
const LONGEST: usize = 200;

/// A node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeOut {
    /// Its cluster.
    pub cluster: String,
    /// Its name.
    pub node: String,
    /// `online`, `offline`, `maintenance` or `drained`; or why its breaker is closed.
    pub state: String,
    /// Drover's own agents on it.
    pub agents: usize,
    /// Running guests of others.
    pub guests: usize,
    /// What of it is free; null where the token may not see that (`Sys.Audit`).
    pub room: Option<RoomOut>,
    /// Templates that begin nothing on it, each with why.
    pub refuses: Vec<RefusesOut>,
}

/// What of a node is free.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoomOut {
    /// Its memory.
    pub memory_mb: u64,
    /// What others take of it.
    pub others_mb: u64,
    /// What drover's own agents take of it, those on their way included.
    pub reserved_mb: u64,
    /// What is left; below zero where more is promised than there is.
    pub free_mb: i64,
    /// Its processors.
    pub cpus: f64,
    /// What is left of them.
    pub free_cpus: f64,
}

/// A template that begins nothing on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusesOut {
    /// The template, `cloud/template`.
    pub template: String,
    /// Why.
    pub why: String,
}

/// Nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodesOut {
    /// Nodes by cluster and name.
    pub nodes: Vec<NodeOut>,
    /// Clusters that could not be read.
    pub unread: Vec<UnreadOut>,
}

/// A cluster that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnreadOut {
    /// The cluster; `unknown` where no cloud has led to it yet.
    pub cluster: String,
    /// Why.
    pub why: String,
}

/// How to drain a node.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct DrainIn {
    /// A cloud of its cluster, where several clusters have such a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud: Option<String>,
    /// Whether it is used again instead.
    pub undrain: bool,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrainOut {
    /// Its cluster.
    pub cluster: String,
    /// The node.
    pub node: String,
    /// Whether it is drained.
    pub drained: bool,
    /// Agents on it at this moment: idle ones go, busy ones finish.
    pub agents: usize,
}

/// What keeps a template from beginning agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhyOut {
    /// The template, `cloud/template`.
    pub template: String,
    /// What keeps it that is no matter of nodes, such as a cap; null when nothing does.
    pub waits: Option<String>,
    /// What would be cloned, and where; null when nothing would.
    pub next: Option<String>,
    /// Why nothing would be cloned; null when something would.
    pub refused: Option<String>,
    /// The nodes it may be on.
    pub nodes: Vec<WhyNodeOut>,
    /// What went wrong with the last of its agents that is gone, if something did.
    #[serde(default)]
    pub failed: Option<FailedOut>,
}

/// An agent that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailedOut {
    /// When it was gone (RFC 3339).
    pub at: String,
    /// Why.
    pub why: String,
}

/// A node that a template may be on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhyNodeOut {
    /// The node.
    pub node: String,
    /// What keeps the template from it; null when nothing does.
    pub refused: Option<String>,
}

impl From<NodeReport> for NodeOut {
    fn from(one: NodeReport) -> Self {
        let cpus = |thousandths: f64| thousandths / 1000.0;
        let room = one.known.then(|| RoomOut {
            memory_mb: one.memory_mb,
            others_mb: one.others_mb,
            reserved_mb: one.own_mb,
            free_mb: one.free_mb,
            cpus: cpus(one.cpus as f64),
            free_cpus: cpus(one.free_cpus as f64),
        });
        let refuses = one.refuses.into_iter();
        Self {
            cluster: one.cluster.to_string(),
            node: one.node.to_string(),
            state: one.state.to_string(),
            agents: one.agents,
            guests: one.guests,
            room,
            refuses: refuses
                .map(|(template, why)| RefusesOut { template: template.to_string(), why })
                .collect(),
        }
    }
}

impl From<WhyReport> for WhyOut {
    fn from(one: WhyReport) -> Self {
        let (next, refused) = match one.verdict {
            Ok(next) => (Some(next), None),
            Err(refused) => (None, Some(refused)),
        };
        let nodes = one.nodes.into_iter();
        let nodes = nodes.map(|(node, refused)| WhyNodeOut { node: node.to_string(), refused });
        Self {
            template: one.template.to_string(),
            waits: one.waits,
            next,
            refused,
            nodes: nodes.collect(),
            failed: None,
        }
    }
}

/// The last agent of a template, when it failed.
fn failed(view: &View, template: &str) -> Option<FailedOut> {
    let gone = view.gone_agents();
    let last = gone.iter().rev().find(|agent| agent.template.to_string() == template)?;
    let failed = matches!(last.reason, Reason::Failed { .. } | Reason::TooSlow { .. });
    failed.then(|| FailedOut { at: rfc3339(last.at), why: last.reason.to_string() })
}

/// Reads every cluster once.
#[utoipa::path(get, path = "/v1/nodes", responses((status = 200, body = NodesOut)))]
pub(super) async fn list(state: web::Data<State>) -> Result<web::Json<NodesOut>, Problem> {
    let seen = state.ask(state.limits.resync, |reply| HerdCommand::Nodes { reply }).await?;
    let unread = seen.unread.into_iter();
    let unread =
        unread.map(|(cluster, why)| UnreadOut { cluster: cluster.to_string(), why }).collect();
    let nodes = seen.nodes.into_iter().map(Into::into).collect();
    Ok(web::Json(NodesOut { nodes, unread }))
}

/// Drains a node, across restarts, until it is used again.
#[utoipa::path(
    post, path = "/v1/nodes/{node}/drain", request_body = DrainIn,
    params(("node" = String, Path, description = "the node's name")),
    responses(
        (status = 200, body = DrainOut),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "several clusters have such a node"),
    )
)]
pub(super) async fn drain(
    state: web::Data<State>,
    node: web::Path<String>,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<web::Json<DrainOut>, Problem> {
    let mut fields = Fields::parse(body)?;
    let cloud = fields.text("cloud", LONGEST).map(CloudId::new);
    let drained = !fields.flag("undrain");
    fields.finish()?;
    let node = NodeName::new(node.into_inner());
    let command = |reply| HerdCommand::DrainNode { node, cloud, drained, reply };
    let done = state.ask(state.limits.reply, command).await?.map_err(Problem::refused)?;
    Ok(web::Json(DrainOut {
        cluster: done.cluster.to_string(),
        node: done.node.to_string(),
        drained: done.drained,
        agents: done.agents,
    }))
}

/// Looks at what keeps a template from beginning agents, on each node.
#[utoipa::path(
    get, path = "/v1/templates/{id}/why",
    params(("id" = String, Path, description = "the template, its bare name or `cloud%2Ftemplate`")),
    responses(
        (status = 200, body = WhyOut),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "the bare name is on several clouds"),
    )
)]
pub(super) async fn why(
    state: web::Data<State>,
    id: web::Path<String>,
) -> Result<web::Json<WhyOut>, Problem> {
    why_of(&state, &id).await.map(web::Json)
}

/// What keeps a template from beginning agents.
pub(super) async fn why_of(state: &State, template: &str) -> Result<WhyOut, Problem> {
    let command = |reply| HerdCommand::Why { template: template.to_owned(), reply };
    let answer = state.ask(state.limits.resync, command).await?;
    let report = answer.map_err(|refusal| templates::named(state, template, refusal))?;
    let out = WhyOut::from(report);
    let failed = failed(&state.doors.view, &out.template);
    Ok(WhyOut { failed, ..out })
}
