//! The watch over living agents: every [`PERIOD`] one list of the cluster, and what it shows of
//! each agent's guest is sent to that agent.
//!
//! Reconciliation, placement and this watch share the answers, so a cluster with agents is listed
//! at most once in a period, and a cluster without agents only where something else needs its list.
//! A list is an index (book: safety, rule 4): an agent looks at its guest itself before it believes
//! that the guest stopped, and an id that is not listed is asked about.

use std::collections::BTreeMap;
use std::time::Duration;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use drover_model::id::{AgentId, CloudId, VmId};
use drover_model::ports::{IdStatus, Survey};
use drover_model::time::Moment;
use futures_util::StreamExt as _;

use super::plan::{self, Plan};
use super::{AT_ONCE, Reconciler};
use crate::cluster::ClusterCommand;
use crate::message::AgentCommand;

/// The time between two lists of a cluster while agents live there.
pub const PERIOD: Duration = Duration::from_secs(10);
/// The time between two questions about an id that is taken and not listed: its login cannot see it.
const UNSEEN: Duration = Duration::from_secs(60);
/// Ids that are asked about after one list.
const CHECKS: usize = 32;

/// What the watch remembers from list to list.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Stamps its timers: only the last one counts.
    round: u64,
    /// Whether ids are being asked about.
    checking: bool,
    /// Agents that were not listed although their ids are taken, and when their ids are asked about
    /// again.
    unseen: BTreeMap<AgentId, Moment>,
}

impl Reconciler {
    /// Reads the next list after this long.
    pub(super) fn watch_in(&mut self, wait: Duration, ctx: &mut Context<Self>) {
        self.watch.round += 1;
        let round = self.watch.round;
        ctx.run_later(wait, move |actor, ctx| {
            if round == actor.watch.round {
                actor.watch(ctx);
            }
        });
    }

    fn watch(&mut self, ctx: &mut Context<Self>) {
        let Some(cloud) = self.clouds.keys().next().cloned().filter(|_| self.has_agents()) else {
            return self.watch_in(PERIOD, ctx);
        };
        let answer = self.common.ports.hypervisor.survey(&cloud, PERIOD);
        ctx.spawn(answer.into_actor(self).map(move |survey, actor, ctx| match survey {
            Ok(survey) => actor.watched(&cloud, &survey, ctx),
            Err(fault) => {
                tracing::debug!(cluster = %actor.id, error = %fault, "list was not read");
                actor.cluster.do_send(ClusterCommand::Unread(cloud));
                actor.watch_in(PERIOD, ctx);
            }
        }));
    }

    fn has_agents(&self) -> bool {
        let here = |at: &drover_model::place::Place| at.cluster == self.id;
        self.common.roster.count(|living| living.place.as_ref().is_some_and(here)) > 0
    }

    /// Sends the agents what a list shows of their guests, and times the next list by the age of this
    /// one.
    pub(super) fn watched(&mut self, cloud: &CloudId, survey: &Survey, ctx: &mut Context<Self>) {
        self.watch_in(PERIOD.saturating_sub(survey.age), ctx);
        let now = self.common.ports.ambient.now().mono;
        let (known, config) = (self.known(), self.config());
        let plan = plan::watch(survey, &known, config, &mut self.memory.borrow_mut(), now);
        self.follow(&plan);
        self.check(cloud, plan.checks, now, ctx);
    }

    /// Notes guests that moved and nodes that are offline, and tells the agents what a plan has for them.
    pub(super) fn follow(&self, plan: &Plan) {
        let now = self.common.ports.ambient.now();
        let offline = self.memory.borrow().offline.spans(now.mono);
        self.common.troubles.set_offline(&self.id, &offline, now.wall);
        for (agent, node) in &plan.moved {
            self.common.roster.update(agent, |living| {
                if let Some(place) = &mut living.place {
                    place.node = node.clone();
                }
            });
        }
        for (agent, command) in &plan.report {
            self.common.roster.send(agent, command.clone());
        }
        for (agent, observed) in &plan.observed {
            self.common.roster.send(agent, AgentCommand::Observed(observed.clone()));
        }
    }

    /// Asks about the ids of agents that are not listed; one that is free is told so.
    fn check(
        &mut self,
        cloud: &CloudId,
        mut checks: Vec<(AgentId, VmId)>,
        now: Moment,
        ctx: &mut Context<Self>,
    ) {
        self.watch.unseen.retain(|agent, _| checks.iter().any(|(other, _)| other == agent));
        checks.retain(|(agent, _)| self.watch.unseen.get(agent).is_none_or(|due| *due <= now));
        checks.truncate(CHECKS);
        if self.watch.checking || checks.is_empty() {
            return;
        }
        self.watch.checking = true;
        let asks: Vec<_> = checks
            .into_iter()
            .map(|(agent, vmid)| {
                let answer = self.common.ports.hypervisor.id_taken(cloud, vmid);
                async move { (agent, answer.await) }
            })
            .collect();
        let asked = async move {
            futures_util::stream::iter(asks).buffered(AT_ONCE).collect::<Vec<_>>().await
        };
        ctx.spawn(asked.into_actor(self).map(move |answers, actor, _| {
            actor.watch.checking = false;
            for (agent, observation) in answers {
                match observation {
                    Ok(IdStatus::Free) => {
                        actor.common.roster.send(&agent, AgentCommand::Vanished);
                    }
                    Ok(IdStatus::Taken) => {
                        let due = actor.common.ports.ambient.now().mono + UNSEEN;
                        actor.watch.unseen.insert(agent, due);
                    }
                    Ok(IdStatus::Unknown) | Err(_) => {}
                }
            }
        }));
    }
}
