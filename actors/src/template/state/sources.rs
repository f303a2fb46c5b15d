//! What a template's agents are cloned from, as far as its mind must know.

use drover_model::phase::BreakerPhase;
use drover_model::place::Place;
use drover_model::time::{Moment, Now};

use super::{Effect, TemplateMind};

impl TemplateMind {
    /// What can be cloned was looked at: what would be taken or why nothing can be, and which version
    /// of it there is. A breaker that judges another version flows.
    pub fn sees(
        &mut self,
        source: Result<String, String>,
        version: Option<&str>,
        now: Now,
    ) -> Vec<Effect> {
        self.source = Some(source);
        let moved = version.is_some_and(|version| self.breaker.sees(version));
        if moved { vec![self.record(now)] } else { Vec::new() }
    }

    /// An agent was given a place.
    pub fn cloned_from(&mut self, place: &Place) {
        let why = place.origin.as_ref().map(|origin| &origin.why);
        if let Some(why) = why.filter(|why| !why.is_empty())
            && !matches!(&self.source, Some(Ok(known)) if known == why)
        {
            self.source = Some(Ok(why.clone()));
        }
    }

    /// Whether it must be looked at what can be cloned: while that is not known although it is sought
    /// by more than a VMID, while there is nothing, and while a breaker waits for something else.
    pub fn wants_source(&self) -> bool {
        if !self.open || !self.configured || self.stopping {
            return false;
        }
        let unknown = self.spec.search.is_some() && self.source.is_none();
        unknown
            || matches!(self.source, Some(Err(_)))
            || self.breaker.phase() != BreakerPhase::Closed
    }

    /// Why nothing is started for a while, when that is no breaker's matter.
    pub fn paused(&self, now: Moment) -> Option<String> {
        match &self.source {
            Some(Err(why)) => Some(why.clone()),
            Some(Ok(_)) | None => self.obstacle.clone().filter(|_| self.pace.pause(now).is_some()),
        }
    }

    /// An operator says that it works again.
    pub fn reset_breaker(&mut self, now: Now) -> Vec<Effect> {
        self.pace.succeeded();
        self.obstacle = None;
        if self.breaker.succeeded() { vec![self.record(now)] } else { Vec::new() }
    }
}
