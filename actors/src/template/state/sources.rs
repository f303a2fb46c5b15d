//! What a template's agents are cloned from, as far as its mind must know.

use drover_model::id::NodeName;
use drover_model::phase::BreakerPhase;
use drover_model::place::Place;
use drover_model::state_machine::Turn;
use drover_model::time::{Moment, Now};

use super::{Effect, Obstacle, TemplateMind};
use crate::template::Pause;
use crate::template::unplaced::Unplaced;

impl TemplateMind {
    /// Notes what can be cloned. A breaker that judges another version of it closes.
    pub(super) fn locate(
        &mut self,
        source: Result<String, String>,
        version: Option<&str>,
        now: Now,
        turn: &mut Turn<Effect>,
    ) {
        self.source = Some(source);
        if version.is_some_and(|version| self.breaker.sees(version)) {
            turn.push(self.record(now));
        }
    }

    /// Notes what an agent is cloned from.
    pub(super) fn place(&mut self, place: &Place) {
        let why = place.origin.as_ref().map(|origin| &origin.why);
        if let Some(why) = why.filter(|why| !why.is_empty())
            && !matches!(&self.source, Some(Ok(known)) if known == why)
        {
            self.source = Some(Ok(why.clone()));
        }
    }

    /// Whether the cluster must be asked what can be cloned.
    ///
    /// It must while that is unknown although the spec searches by more than a VMID, while there is
    /// nothing, while an agent found no place, and while the breaker is not closed.
    pub fn wants_source(&self) -> bool {
        if !self.open || !self.configured || self.stopping {
            return false;
        }
        let unknown = self.spec.search.is_some() && self.source.is_none();
        unknown
            || matches!(self.source, Some(Err(_)))
            || self.lacks_place()
            || self.breaker.phase() != BreakerPhase::Closed
    }

    /// Whether the last agent found no place. A look at the cluster says when there is one again, and no
    /// further agent has to try.
    pub fn lacks_place(&self) -> bool {
        self.obstacle.as_ref().is_some_and(|obstacle| !obstacle.placed)
    }

    /// Whether it was found what can be cloned, or that nothing can.
    pub fn knows_source(&self) -> bool {
        self.source.is_some()
    }

    /// Why nothing is started for a while, where that is not by the breaker.
    pub fn paused(&self, now: Moment) -> Option<String> {
        match &self.source {
            Some(Err(why)) => Some(why.clone()),
            Some(Ok(_)) | None => {
                let obstacle = self.obstacle.as_ref().filter(|_| self.pace.pause(now).is_some());
                obstacle.map(Obstacle::reported)
            }
        }
    }

    /// The same with the time of the next try.
    pub(super) fn pause(&self, now: Now) -> Option<Pause> {
        let why = self.paused(now.mono)?;
        let is_found = !matches!(self.source, Some(Err(_)));
        let retry = self.pace.retry(now.mono).filter(|_| is_found);
        Some(Pause { why, retry: retry.map(|at| now.wall + (at - now.mono)) })
    }

    /// A node is used again: what found no place is tried at once, and what kept it from one is said
    /// no longer. What waits for a busy cluster still waits.
    pub(super) fn node_opened(&mut self, node: &NodeName) {
        self.pace.place_opened();
        self.trials.place_opened();
        self.unplaced = Unplaced::default();
        if self.lacks_place() {
            self.obstacle = None;
        }
        // The body looks again, and nothing starts before it knows what can be cloned.
        if let Some(Err(why)) = &mut self.source {
            *why = format!("node `{node}` is used again, and drover looks what can be cloned");
        }
    }

    pub(super) fn reset_breaker(&mut self, now: Now, turn: &mut Turn<Effect>) {
        self.pace.succeeded();
        self.trials.succeeded();
        self.unplaced = Unplaced::default();
        self.obstacle = None;
        if self.breaker.succeeded() {
            turn.push(self.record(now));
        }
    }
}
