//! The watch over living agents: every [`PERIOD`] one list of the cluster, and what it shows of
//! each agent's guest is sent to that agent.
//!
//! Reconciliation, placement and this watch share the answers, so a cluster with agents is listed
//! at most once in a period, and a cluster without agents only where something else needs its list.
//! A list is an index (book: safety, rule 4): an agent looks at its guest itself before it believes
//! that the guest stopped, and an id that is not listed is asked about.

use std::collections::BTreeSet;
use std::time::Duration;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use drover_model::id::CloudId;
use drover_model::ports::Survey;

use super::Reconciler;
use super::mind::{Event, Purpose};
use crate::cluster::ClusterCommand;

/// The time between two lists of a cluster while agents live there.
pub const PERIOD: Duration = Duration::from_secs(10);
/// The timers of the watch.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Stamps its timers: only the last one counts.
    round: u64,
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
            Ok(survey) => actor.watched(&cloud, survey, ctx),
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

    /// Sends the agents what a list shows of their guests, asks about the ids of those that it does
    /// not show, and times the next list by the age of this one.
    fn watched(&mut self, cloud: &CloudId, survey: Survey, ctx: &mut Context<Self>) {
        self.watch_in(PERIOD.saturating_sub(survey.age), ctx);
        let event = Event::Listed(self.round(Purpose::Watch), survey);
        let checks = self.step(Some(cloud), event).checks;
        if checks.is_empty() {
            return;
        }
        let asked = self.ask(cloud, Vec::new(), checks, &BTreeSet::new());
        ctx.spawn(asked.into_actor(self).map(move |(_, checks), actor, _| {
            let answers = checks.into_iter().map(|(agent, _, status)| (agent, status)).collect();
            actor.step(None, Event::IdsAnswered(answers));
        }));
    }
}
