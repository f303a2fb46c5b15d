//! What an agent's report means: for its slot, for the breaker, and for the pauses between starts.
//!
//! | an agent ends before it was ready, by | follows |
//! |---|---|
//! | a fault of a node, a storage or a cloud | that place is charged; a pause |
//! | a fault of a CI system | nothing: its machines are not to blame |
//! | a fault of its template | the breaker counts it; of an agent that tries a version, that version counts it |
//! | contention or silence | a pause |
//! | no place for its size | a pause for agents of that size |
//!
//! A copy of a machine says nothing of its template: only nodes, storages and clouds are charged.

use drover_model::fault::{Culprit, Fault};
use drover_model::id::AgentId;
use drover_model::phase::{AgentPhase, BreakerPhase};
use drover_model::record::Reason;
use drover_model::scope::Scope;
use drover_model::state_machine::Turn;
use drover_model::status::Standing;
use drover_model::time::Now;

use super::{Effect, OFFERED, Obstacle, TemplateMind, lives};
use crate::message::AgentReport;
use crate::template::permits;

impl TemplateMind {
    pub(super) fn report(&mut self, report: AgentReport, now: Now, turn: &mut Turn<Effect>) {
        let AgentReport { status, fault, refused } = report;
        let agent = status.agent.clone();
        let Some(held) = self.agents.get_mut(&agent) else { return };
        let (standing, phase) = (status.standing, status.phase);
        let before = std::mem::replace(&mut held.status, status);
        let (was, was_ready) = (before.standing, held.was_ready);
        let placed = before.phase != AgentPhase::Queued;
        // A stranded agent carries out no command. Once repaired it is one like any other.
        held.going &= was != Standing::Leaving || !lives(standing);
        let status = &held.status;
        let ended = before.leases.iter().filter(|lease| !status.leases.contains(lease));
        held.over.extend(ended.filter(|lease| !refused.contains(lease)).cloned());
        held.reaped.take_if(|_| !status.leases.is_empty());
        held.refused.extend(refused);
        let is_copy = held.spec.is_copy();
        held.idle_since = if status.is_idle() { held.idle_since.or(Some(now.mono)) } else { None };
        self.changed.insert(agent.clone());

        match standing {
            Standing::Free { .. } | Standing::Busy if !was_ready && !phase.is_busy_unproven() => {
                held.was_ready = true;
                if !is_copy {
                    self.unplaced.succeeded(held.spec.size);
                    self.pace.succeeded();
                    self.obstacle = None;
                    // Later versions may replace it as any other.
                    if std::mem::take(&mut held.tries) {
                        self.trials.succeeded();
                    }
                }
                turn.push(Effect::Proven(agent.clone()));
                if !is_copy && self.breaker.succeeded() {
                    turn.push(self.record(now));
                }
            }
            // Held instead of destroyed: what it was held for counts all the same.
            Standing::Busy | Standing::Leaving | Standing::Gone
                if !was_ready
                    && phase != AgentPhase::InDoubt
                    && matches!(was, Standing::Coming | Standing::Parked) =>
            {
                self.charge(&agent, fault.as_ref(), placed, now, turn);
            }
            Standing::Coming
            | Standing::Free { .. }
            | Standing::Busy
            | Standing::Leaving
            | Standing::Parked
            | Standing::Gone => suspect(fault.as_ref(), turn),
        }
        // A trial that was called off is one until its clone is over.
        if standing == Standing::Leaving && !phase.is_cloning() {
            self.breaker.left(&agent);
        }
        let returned = was == Standing::Parked && permits::holds_slot(standing);
        if standing == Standing::Gone {
            let held = self.agents.remove(&agent);
            self.changed.remove(&agent);
            self.breaker.left(&agent);
            self.offered = (!self.spec.size_labels.is_none()).then(|| now.mono + OFFERED);
            self.gone.extend(held.map(|mut held| held.level()));
        } else if returned && self.spec.cap.is_some_and(|cap| self.live() > cap) {
            self.send_away(&agent, Reason::ReturnedFromPark, turn);
        }
    }

    /// An agent ended before it was ready.
    fn charge(
        &mut self,
        agent: &AgentId,
        fault: Option<&Fault>,
        placed: bool,
        now: Now,
        turn: &mut Turn<Effect>,
    ) {
        let Some(fault) = fault else { return };
        if self.agents.get(agent).is_some_and(|held| held.spec.is_copy()) {
            self.breaker.left(agent);
            if Scope::is_charged(fault) {
                turn.push(Effect::Charge(agent.clone(), fault.clone()));
            }
        } else if Scope::is_charged(fault) {
            self.stumble(agent, fault, placed, now);
            turn.push(Effect::Charge(agent.clone(), fault.clone()));
        } else if matches!(fault.culprit, Culprit::Source(_)) {
            // Its machines are not to blame for what a CI system does.
        } else if fault.kind.counts_against_breaker() {
            if self.is_new(agent) {
                // Other versions work, unless the breaker is not closed: then it says nothing of its own.
                if self.breaker.phase() == BreakerPhase::Closed {
                    let made = self.agents.get(agent).and_then(|held| held.spec.made_as.clone());
                    turn.push(Effect::CanaryFailed(agent.clone(), made, fault.text.clone()));
                }
                self.breaker.left(agent);
            } else if self.breaker.failed(agent, &fault.text, &self.spec.breaker, now) {
                turn.push(self.record(now));
            }
        } else {
            self.stumble(agent, fault, placed, now);
        }
        suspect(Some(fault), turn);
    }

    /// An agent came to nothing by no fault of its template.
    fn stumble(&mut self, agent: &AgentId, fault: &Fault, placed: bool, now: Now) {
        self.breaker.left(agent);
        let size = self.agents.get(agent).map(|held| held.spec.size).unwrap_or_default();
        if !placed && !size.is_none() {
            // That a large agent has no place says nothing of the template's own size.
            return self.unplaced.stumbled(size, &fault.text, now.mono);
        }
        if self.is_new(agent) {
            // Others go on with what is proven.
            return self.trials.stumbled(placed, now.mono);
        }
        self.pace.stumbled(placed, now.mono);
        let about = (fault.kind.clone(), fault.culprit.clone());
        let known = self.obstacle.take().filter(|known| known.about == about && placed);
        let (times, since) = known.map_or((0, now.wall), |known| (known.times, known.since));
        let (why, times) = (fault.text.clone(), times.saturating_add(1));
        self.obstacle = Some(Obstacle { why, placed, about, times, since });
    }
}

/// A fault that names the cloud makes the cloud check itself, whatever becomes of the agent.
fn suspect(fault: Option<&Fault>, turn: &mut Turn<Effect>) {
    if let Some(fault) = fault.filter(|fault| matches!(fault.culprit, Culprit::Cloud(_))) {
        turn.push(Effect::SuspectCloud(fault.clone()));
    }
}
