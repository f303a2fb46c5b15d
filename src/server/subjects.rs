//! How agents and nodes stand that somebody asks `why` about.

use drover_actors::message::HerdCommand;
use drover_api::{NodeOut, WhyNodeOut, WhyOut, WhySubjectOut};
use drover_model::placement::report::NodeReport;

use super::problem::Rejection;
use super::shapes::{Shown, rfc3339};
use super::state::State;
use crate::view::View;

/// The agent that is called so, living or gone.
///
/// # Errors
/// The herd does not answer.
pub(super) async fn agent(state: &State, name: &str) -> Result<Option<WhySubjectOut>, Rejection> {
    let Some(mut shown) = known_agent(&state.doors.view, name) else { return Ok(None) };
    let all = state.ask(state.limits.reply, |reply| HerdCommand::Jobs { reply }).await?;
    for one in &all {
        let mut its = one.rowless.iter();
        if let Some(rowless) = its.find(|rowless| rowless.agent.as_str() == name) {
            let stands = shown.state.get_or_insert_default();
            *stands += &format!(
                "; source {} has no row of its runner `{}` any more: drover asks the guest whether the \
                 runner ended, and `drover release {}` ends it at once",
                one.source, rowless.runner, rowless.lease
            );
        }
    }
    Ok(Some(shown))
}

fn known_agent(view: &View, name: &str) -> Option<WhySubjectOut> {
    let subject = format!("agent {name}");
    if let Some(one) = view.agents().into_iter().find(|one| one.agent.as_str() == name) {
        let mut stands = format!("{} since {}, of {}", one.phase, rfc3339(one.since), one.template);
        if let (Some(vmid), Some(node)) = (one.vmid, &one.node) {
            stands += &format!(", VMID {vmid} on node {node}");
        }
        if !one.detail.is_empty() {
            stands += &format!(": {}", one.detail);
        }
        if let Some(alarm) = view.alarms().into_iter().find(|alarm| alarm.agent == one.agent) {
            stands += &format!("; it needs an administrator: {}: {}", alarm.text, alarm.command);
        }
        return Some(WhySubjectOut::of(subject, Some(stands)));
    }
    let gone = view.gone_agents().into_iter().find(|one| one.agent.as_str() == name)?;
    let mut stands =
        format!("gone since {}, of {}: {}", rfc3339(gone.at), gone.template, gone.reason);
    if gone.reason.failure().is_some() {
        stands += &format!("; `drover blackbox {}` shows what drover kept of it", gone.agent);
    }
    Some(WhySubjectOut::of(subject, Some(stands)))
}

/// The nodes that are called so, one of each cluster; none where there is none for certain.
///
/// # Errors
/// The herd does not answer.
pub(super) async fn node(state: &State, name: &str) -> Result<Option<WhySubjectOut>, Rejection> {
    let seen = state.ask(state.limits.resync, |reply| HerdCommand::Nodes { reply }).await?;
    let own: Vec<NodeReport> =
        seen.nodes.into_iter().filter(|one| one.node.as_str() == name).collect();
    let own: Vec<NodeOut> = own.iter().map(Shown::shown).collect();
    let each: Vec<String> = own.iter().map(stands).collect();
    if !each.is_empty() {
        let shown = WhySubjectOut::of(format!("node {name}"), Some(each.join("; ")));
        let templates = own.iter().flat_map(refusals).collect();
        return Ok(Some(WhySubjectOut { templates, ..shown }));
    }
    let unread = seen.unread.iter().map(|(cluster, why)| format!("cluster {cluster}: {why}"));
    let unread: Vec<String> = unread.collect();
    let stands = || format!("whether there is such a node is not known: {}", unread.join("; "));
    let is_open = !unread.is_empty();
    Ok(is_open.then(|| WhySubjectOut::of(format!("node {name}"), Some(stands()))))
}

fn stands(one: &NodeOut) -> String {
    let room = one.room.as_ref().map(|room| {
        format!(
            ", {} of {} MiB and {:.1} processors free",
            room.free_mb, room.memory_mb, room.free_cpus
        )
    });
    format!(
        "{} in cluster {}, with {} of drover's agents and {} guests of others{}",
        one.state,
        one.cluster,
        one.agents,
        one.guests,
        room.unwrap_or_default()
    )
}

/// What keeps templates from a node.
fn refusals(one: &NodeOut) -> impl Iterator<Item = WhyOut> {
    one.refuses.iter().map(|refuses| WhyOut {
        template: refuses.template.clone(),
        waits: None,
        next: None,
        refused: None,
        untried: Vec::new(),
        nodes: vec![WhyNodeOut { node: one.node.clone(), refused: Some(refuses.why.clone()) }],
        keys: Vec::new(),
        failed: None,
        idle: 0,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drover_model::fact::What;
    use drover_model::id::{AgentId, CloudId, TemplateId};
    use drover_model::phase::AgentPhase;
    use drover_model::record::Reason;
    use reqwest::Method;

    use crate::testing::{Served, agent, reported};

    // Invariant: anyone who asks why gets an answer for agents and nodes, too, and a refusal for what is
    // nothing.

    #[tokio::test]
    async fn agents_and_nodes_that_are_asked_about_say_how_they_stand() {
        let served = Served::default();
        let mut booting = agent("a5", AgentPhase::Booting);
        booting.detail = "waits for an address".into();
        reported(&served.view, What::Agent(Arc::new(booting)));
        reported(&served.view, What::Agent(Arc::new(agent("a1", AgentPhase::Leased))));
        let (template, text) = (TemplateId::new(CloudId::new("lab"), "linux"), "no space".into());
        let reason = Reason::Failed { state: AgentPhase::Cloning, kind: "broken".into(), text };
        let gone = What::AgentGone { agent: AgentId::new("a6"), template, reason, phases: vec![] };
        reported(&served.view, gone);
        for (of, part) in [
            ("a5", "VMID 10417 on node pve1: waits for an address"),
            (
                "a1",
                "source git has no row of its runner `drover-lab-a1` any more: drover asks the guest \
                 whether the runner ended, and `drover release l7` ends it at once",
            ),
            ("a6", "of lab/linux: Cloning failed (broken): no space"),
            ("pve1", "online in cluster 9f31c0aa52e7d410, with 3 of drover's agents and 1 guests"),
        ] {
            let answer = served.admin(Method::GET, &format!("/v1/why?of={of}"), "").await;
            let state = answer.body["state"].as_str().unwrap_or_default();
            assert!(state.contains(part), "{of}: {}", answer.body);
        }
        let node = served.admin(Method::GET, "/v1/why?of=pve1", "").await.body;
        assert_eq!(node["templates"][0]["nodes"][0]["refused"], "no room");
        let unknown = served.admin(Method::GET, "/v1/why?of=pve9", "").await;
        let detail = unknown.body["detail"].as_str().unwrap_or_default();
        assert!(unknown.status == 404 && detail.contains("an agent, a node, or a job"), "{detail}");
        served.stop().await;
    }
}
