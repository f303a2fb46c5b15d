//! What each fact changes in the view.

use std::sync::Arc;

use drover_model::fact::{Fact, What};
use drover_model::phase::{AgentPhase, DeclaredPhase, LeasePhase};
use drover_model::status::{AgentStatus, CloudStatus, DeclaredStatus, ImageStatus, LeaseStatus};
use drover_model::time::WallTime;
use tokio::sync::watch;

use super::history::keep;
use super::statuses::{AlarmStatus, GoneAgent, LostJob, ReconcileStatus, RestartStatus, SeenCloud};
use super::{BUILDS_KEPT, Event, GONE_AGENTS_KEPT, LOST_JOBS_KEPT, RESTARTS_KEPT, View};

impl View {
    /// Takes over the events of earlier starts, oldest first: they are shown, and counts since the start
    /// know nothing of them.
    pub fn restore(&self, events: Vec<Event>) {
        for event in events {
            self.note_over(&event.fact);
            if let What::Alarm { agent, text, .. } = &event.fact.what {
                self.past().alarmed.insert(agent.clone(), (text.clone(), event.fact.at));
            }
            if let What::Lease(status) = &event.fact.what
                && status.state == LeasePhase::Ended
            {
                self.fold_lease(status, event.fact.at);
            }
            self.feed.restore(Arc::new(event));
        }
    }

    pub(super) fn fold(&self, fact: &Fact) {
        match &fact.what {
            What::ConfigApplied { generation, reconcile_seconds } => {
                let mut past = self.past();
                // The actors may report the one that stays after its successor was refused.
                if *generation > past.refused_after {
                    past.config.refused = None;
                }
                past.config.generation = Some(*generation);
                past.config.reconcile_seconds = *reconcile_seconds;
                past.config.applied = Some(fact.at);
            }
            What::ConfigRefused { text, after } => {
                let mut past = self.past();
                // The same faults read once more are refused since they were found.
                if past.config.refused.as_ref().is_none_or(|(_, known)| known != text) {
                    past.config.refused = Some((fact.at, text.clone()));
                }
                past.refused_after = *after;
            }
            What::Agent(status) => self.fold_agent(status),
            // For those who follow what happens; the status names the step it is at.
            What::Step { .. } => {}
            What::AgentGone { agent, template: _, reason, phases: _ } => {
                self.agents.remove(agent);
                self.alarms.remove(agent);
                *self.past().gone_by_reason.entry(reason.label()).or_default() += 1;
                self.note_over(fact);
            }
            What::Alarm { agent, text, command } => {
                let earlier = self.past().alarmed.remove(agent).filter(|(known, _)| known == text);
                let alarm = AlarmStatus {
                    agent: agent.clone(),
                    text: text.clone(),
                    command: command.clone(),
                    at: earlier.map_or(fact.at, |(_, at)| at),
                };
                self.alarms.insert(agent.clone(), alarm);
            }
            What::Breaker(status) => {
                self.places.insert(status.scope.clone(), (**status).clone());
            }
            What::Lease(status) => self.fold_lease(status, fact.at),
            What::Source(status) => {
                self.sources.insert(status.source.clone(), (**status).clone());
            }
            What::SourceGone { source } => {
                self.sources.remove(source);
            }
            What::JobLost { .. } => {
                self.past().lost_count += 1;
                self.note_over(fact);
            }
            What::Reconciled { cluster, findings, unread } => {
                let last_read = match unread {
                    None => Some(fact.at),
                    Some(_) => self.reconciled.get(cluster).and_then(|known| known.last_read),
                };
                let status = ReconcileStatus {
                    cluster: cluster.clone(),
                    findings: findings.clone(),
                    unread: unread.clone(),
                    last_read,
                    at: fact.at,
                };
                self.reconciled.insert(cluster.clone(), status);
            }
            What::Restarted { actor, count, gave_up } => {
                let restart = RestartStatus {
                    actor: actor.clone(),
                    count: *count,
                    gave_up: *gave_up,
                    at: fact.at,
                };
                let mut past = self.past();
                past.restart_count += 1;
                keep(&mut past.restarts, restart, RESTARTS_KEPT);
            }
            What::Resets { template, resets } => {
                self.asides.entry(template.clone()).or_default().resets = Some(resets.clone());
            }
            What::HoldNext { template, seconds } => {
                self.asides.entry(template.clone()).or_default().hold_next = *seconds;
            }
            What::ConfigSynced { .. } | What::ConfigNotSynced { .. } | What::Ordered { .. } => {}
            What::OtherDrover { why } => self.other_drover.lock().clone_from(why),
            What::AddressPools { pools } => {
                self.pools.lock().clone_from(pools);
            }
            What::Image(status) => self.fold_image(status),
            What::Declared(status) => self.fold_declared(status),
            What::Template(status) => {
                self.templates.insert(status.template.clone(), (**status).clone());
            }
            What::TemplateGone { template } => {
                self.templates.remove(template);
                self.asides.remove(template);
            }
            What::Cloud(status) => {
                self.fold_cloud(status, fact.at);
            }
            What::CloudGone { cloud } => {
                self.clouds.remove(cloud);
                self.templates.retain(|template, _| &template.cloud != cloud);
            }
        }
    }

    /// Notes what is over by that fact, if anything is.
    fn note_over(&self, fact: &Fact) {
        let mut past = self.past();
        // A start that finds its journal without the last record says again that an agent is gone, and why.
        // A guest that comes back later, as from a backup, is another matter.
        if let Some(gone) = GoneAgent::of(fact)
            && past
                .gone
                .iter()
                .all(|known| (&known.agent, &known.reason) != (&gone.agent, &gone.reason))
        {
            keep(&mut past.gone, gone, GONE_AGENTS_KEPT);
        }
        if let Some(lost) = LostJob::of(fact) {
            keep(&mut past.lost, lost, LOST_JOBS_KEPT);
        }
    }

    fn fold_agent(&self, status: &Arc<AgentStatus>) {
        if status.phase == AgentPhase::Gone {
            // The fact that it is gone follows or came already, and nothing would remove it then.
            self.agents.remove(&status.agent);
            return;
        }
        if !status.phase.is_leaving() {
            self.alarms.remove(&status.agent);
        }
        self.agents.insert(status.agent.clone(), Arc::clone(status));
    }

    fn fold_cloud(&self, status: &CloudStatus, at: WallTime) {
        let known = self.clouds.get(&status.cloud).map(|seen| (seen.status.health, seen.since));
        let same = known.filter(|(health, _)| *health == status.health);
        let since = same.map_or(at, |(_, since)| since);
        self.clouds.insert(status.cloud.clone(), SeenCloud { status: status.clone(), at, since });
    }

    fn fold_image(&self, status: &ImageStatus) {
        let mut builds = self.builds.lock();
        match builds.iter_mut().find(|known| known.build == status.build) {
            Some(known) => known.clone_from(status),
            None => drop(keep(&mut builds, status.clone(), BUILDS_KEPT)),
        }
    }

    fn fold_declared(&self, status: &DeclaredStatus) {
        if status.phase == DeclaredPhase::Removed {
            self.declared.remove(&status.name);
        } else {
            self.declared.insert(status.name.clone(), status.clone());
        }
    }

    fn fold_lease(&self, status: &LeaseStatus, at: WallTime) {
        // First, so that nobody sees that it ended and not when.
        let ends = status.state == LeasePhase::Ended && self.past().ends(&status.lease, at);
        {
            let entry = self.leases.entry(status.lease.clone());
            let sender = entry.or_insert_with(|| watch::Sender::new(status.clone()));
            let status = shown(status, &sender.value().borrow());
            sender.value().send_replace(status);
        }
        if !ends {
            return;
        }
        let dropped = self.past().keep_ended(&status.lease, at);
        if let Some(oldest) = dropped {
            self.leases.remove(&oldest);
        }
    }
}

/// A lease as it is shown, by what was shown of it last.
pub(super) fn shown(status: &LeaseStatus, last: &LeaseStatus) -> LeaseStatus {
    if status.state != LeasePhase::Ended {
        return status.clone();
    }
    // Where its runner could not be started, nobody says again which agent it was on; and a later start
    // does not know when it would have run out.
    let agent = status.agent.clone().or_else(|| last.agent.clone());
    LeaseStatus { agent, expires: status.expires.or(last.expires), ..status.clone() }
}
