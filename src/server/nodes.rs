//! Nodes: what is free on them, what keeps templates from them, cordons and drains.

use std::collections::BTreeSet;

use actix_web::{HttpRequest, web};
use drover_actors::message::HerdCommand;
use drover_api::{
    CordonIn, DrainIn, DrainOut, FailedOut, KeptOutBy, NodeOut, NodesOut, Problem, RefusesOut,
    RoomOut, SpaceOut, StorageOut, UnreadOut, UntriedOut, WhyNodeOut, WhyOut,
};
use drover_model::fault::FaultKind;
use drover_model::id::{AgentId, CloudId, NodeName};
use drover_model::phase::{AgentPhase, NodeOrder, OrderedBy};
use drover_model::placement::StorageObservation;
use drover_model::placement::report::{NodeReport, NodesKnown, WhyReport};
use drover_model::record::Reason;
use drover_model::status::AgentStatus;

use super::audited::note_done;
use super::auth::Caller;
use super::body::Fields;
use super::problem::Rejection;
use super::shapes::{Shown, rfc3339};
use super::state::State;
use super::templates;
use crate::view::View;

/// The longest name of a cloud that is taken.
const LONGEST: usize = 200;

impl Shown<NodeOut> for NodeReport {
    fn shown(&self) -> NodeOut {
        let one = self;
        let cpus = |thousandths: f64| thousandths / 1000.0;
        let room = one.known.then(|| RoomOut {
            memory_mb: one.memory_mb,
            others_mb: one.others_mb,
            reserved_mb: one.own_mb,
            free_mb: one.free_mb,
            used_mb: one.used_mb,
            cpus: cpus(one.cpus as f64),
            busy_cpus: cpus(one.busy_cpus as f64),
            free_cpus: cpus(one.free_cpus as f64),
        });
        let refuses = one.refuses.iter();
        NodeOut {
            cluster: one.cluster.to_string(),
            node: one.node.to_string(),
            state: one.state.to_string(),
            agents: one.agents,
            guests: one.guests,
            room,
            storages: one.storages.iter().map(Shown::shown).collect(),
            refuses: refuses
                .map(|(template, why)| RefusesOut {
                    template: template.to_string(),
                    why: why.clone(),
                })
                .collect(),
            kept_out_by: one.kept_out_by.as_ref().map(Shown::shown),
        }
    }
}

impl Shown<StorageOut> for StorageObservation {
    fn shown(&self) -> StorageOut {
        let mebibytes = |bytes: u64| bytes >> 20;
        let space = self
            .space
            .map(|(used, size)| SpaceOut { used_mb: mebibytes(used), size_mb: mebibytes(size) });
        StorageOut {
            storage: self.name.clone(),
            kind: self.kind.clone(),
            shared: self.shared,
            reached: self.reached,
            space,
        }
    }
}

impl Shown<KeptOutBy> for OrderedBy {
    fn shown(&self) -> KeptOutBy {
        KeptOutBy { by: self.by.clone(), at: rfc3339(self.at) }
    }
}

impl Shown<WhyOut> for WhyReport {
    fn shown(&self) -> WhyOut {
        let one = self.clone();
        let (next, refused) = match one.verdict {
            Ok(next) => (Some(next), None),
            Err(refused) => (None, Some(refused)),
        };
        let nodes = one.nodes.into_iter();
        let nodes = nodes.map(|(node, refused)| WhyNodeOut { node: node.to_string(), refused });
        WhyOut {
            template: one.template.to_string(),
            waits: one.waits,
            next,
            refused,
            nodes: nodes.collect(),
            untried: one.untried.iter().map(Shown::shown).collect(),
            keys: one.keys.into_iter().map(str::to_owned).collect(),
            failed: None,
            idle: 0,
        }
    }
}

impl Shown<UntriedOut> for (NodeName, String) {
    fn shown(&self) -> UntriedOut {
        let (node, why) = self;
        UntriedOut { node: node.to_string(), why: why.clone() }
    }
}

/// The last agent of a template, when it failed.
fn failed(view: &View, template: &str) -> Option<FailedOut> {
    let gone = view.gone_agents();
    let last = gone.iter().rev().find(|agent| agent.template.to_string() == template)?;
    // Why it found no place may hold no longer; the nodes say what holds.
    let unplaced = matches!(
        &last.reason,
        Reason::Failed { state: AgentPhase::Queued, kind, .. }
            if kind == FaultKind::Contention.label()
    );
    let failed = matches!(last.reason, Reason::Failed { .. } | Reason::TooSlow { .. });
    (failed && !unplaced).then(|| FailedOut { at: rfc3339(last.at), why: last.reason.to_string() })
}

/// How many agents of a template the next job or lease may get at once; nobody gets a doubtful one.
fn idle(view: &View, template: &str, doubtful: &BTreeSet<AgentId>) -> u32 {
    let is_idle = |agent: &AgentStatus| {
        let is_of_template =
            !agent.on_trial && agent.size.is_none() && !doubtful.contains(&agent.agent);
        agent.phase == AgentPhase::Ready && agent.leases.is_empty() && is_of_template
    };
    let agents = view.agents();
    let of_it = agents.iter().filter(|agent| agent.template.to_string() == template);
    of_it.filter(|agent| is_idle(agent)).count() as u32
}

/// Reads every cluster once.
#[utoipa::path(get, path = "/v1/nodes", responses((status = 200, body = NodesOut)))]
pub(super) async fn list(state: web::Data<State>) -> Result<web::Json<NodesOut>, Rejection> {
    let seen = state.ask(state.limits.resync, |reply| HerdCommand::Nodes { reply }).await?;
    let unread = seen.unread.into_iter();
    let unread = unread
        .map(|(cluster, why)| UnreadOut { cluster: cluster.to_string(), cloud: None, why })
        .collect();
    let nodes = seen.nodes.iter().map(Shown::shown).collect();
    Ok(web::Json(NodesOut { nodes, unread }))
}

/// What is known of nodes; no cluster is asked.
pub(super) async fn known(state: &State) -> NodesKnown {
    let command = |reply| HerdCommand::NodesKnown { reply };
    // A page shows what else it has while the herd does not answer.
    state.ask(state.limits.glance(), command).await.unwrap_or_default()
}

/// Cordons a node, across restarts, until it is used again: nothing starts there, and agents there stay.
#[utoipa::path(
    post, path = "/v1/nodes/{node}/cordon", request_body = CordonIn,
    params(("node" = String, Path, description = "the node's name")),
    responses(
        (status = 200, body = DrainOut),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "several clusters have such a node"),
    )
)]
pub(super) async fn cordon(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    request: HttpRequest,
    node: web::Path<String>,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<web::Json<DrainOut>, Rejection> {
    let mut fields = Fields::<CordonIn>::parse(body)?;
    fields.text("cloud", LONGEST);
    let CordonIn { cloud } = fields.finish()?;
    order(&state, (&caller, &request), node.into_inner(), cloud, NodeOrder::Cordon).await
}

/// Drains a node, across restarts, until it is used again; or takes a drain or a cordon back.
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
    caller: web::ReqData<Caller>,
    request: HttpRequest,
    node: web::Path<String>,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<web::Json<DrainOut>, Rejection> {
    let mut fields = Fields::<DrainIn>::parse(body)?;
    fields.text("cloud", LONGEST);
    fields.flag("undrain");
    let DrainIn { cloud, undrain } = fields.finish()?;
    let wanted = if undrain { NodeOrder::Use } else { NodeOrder::Drain };
    order(&state, (&caller, &request), node.into_inner(), cloud, wanted).await
}

async fn order(
    state: &State,
    (caller, request): (&Caller, &HttpRequest),
    node: String,
    cloud: Option<String>,
    order: NodeOrder,
) -> Result<web::Json<DrainOut>, Rejection> {
    let (node, cloud) = (NodeName::new(node), cloud.map(CloudId::new));
    let by = caller.principal.clone();
    let command = |reply| HerdCommand::OrderNode { node, cloud, order, by, reply };
    let done = state.ask(state.limits.reply, command).await?.map_err(Rejection::refused)?;
    let node = &done.node;
    let text = match done.order {
        NodeOrder::Cordon => format!("cordoned node {node}"),
        NodeOrder::Drain => format!("drained node {node}"),
        NodeOrder::Use => format!("let node {node} be used again"),
    };
    let as_before = if done.changed { "" } else { ", as it was already" };
    note_done(request, format!("{text}{as_before}"));
    if done.changed {
        // The one who ordered it looks at once.
        state.looks.forget();
        state.report_order(caller, text);
    }
    Ok(web::Json(DrainOut {
        cluster: done.cluster.to_string(),
        node: done.node.to_string(),
        drained: done.order == NodeOrder::Drain,
        cordoned: done.order == NodeOrder::Cordon,
        changed: done.changed,
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
) -> Result<web::Json<WhyOut>, Rejection> {
    why_of(&state, &id).await.map(web::Json)
}

/// What keeps a template from beginning agents.
pub(super) async fn why_of(state: &State, template: &str) -> Result<WhyOut, Rejection> {
    let command = |reply| HerdCommand::Why { template: template.to_owned(), reply };
    let answer = state.ask(state.limits.resync, command).await?;
    let report = answer.map_err(|refusal| templates::named(state, template, refusal))?;
    let out: WhyOut = report.shown();
    let doubtful = &report.doubtful;
    let failed = failed(&state.doors.view, &out.template);
    let idle = idle(&state.doors.view, &out.template, doubtful);
    Ok(WhyOut { failed, idle, ..out })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drover_model::fact::What;
    use drover_model::id::TemplateId;

    use super::*;
    use crate::testing::{agent, reported};

    // Invariant: what is promised to the next job is what it may get.

    #[test]
    fn an_agent_that_another_drover_may_own_is_promised_to_nobody() {
        let view = View::new(1);
        for id in ["own", "doubtful"] {
            reported(&view, What::Agent(Arc::new(agent(id, AgentPhase::Ready))));
        }
        let template = TemplateId::new(CloudId::new("lab"), "linux").to_string();
        assert_eq!(idle(&view, &template, &BTreeSet::new()), 2);
        assert_eq!(idle(&view, &template, &[AgentId::new("doubtful")].into()), 1);
    }

    // Invariant: why an agent found no place is no cause once it has gone: the nodes say what holds.

    #[test]
    fn an_agent_that_found_no_place_is_not_what_its_template_failed_of() {
        let view = View::new(1);
        let template = TemplateId::new(CloudId::new("lab"), "linux");
        let gone = |id: &str, kind: FaultKind, text: &str| What::AgentGone {
            agent: AgentId::new(id),
            template: template.clone(),
            reason: Reason::Failed {
                state: AgentPhase::Queued,
                kind: kind.label().to_owned(),
                text: text.to_owned(),
            },
            phases: Vec::new(),
        };
        reported(&view, gone("a1", FaultKind::Gone, "no template VMID 9000"));
        assert!(failed(&view, &template.to_string()).is_some());
        reported(
            &view,
            gone("a2", FaultKind::Contention, "`drover uncordon pve1` lets it be used again"),
        );
        assert_eq!(failed(&view, &template.to_string()), None);
    }
}
