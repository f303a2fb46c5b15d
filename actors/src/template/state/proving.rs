//! By which spec the next agent is made, while the template's own must prove itself (`canary`).

use std::sync::Arc;

use drover_model::canary::MadeAs;
use drover_model::id::AgentId;
use drover_model::phase::{AgentPhase, BreakerPhase};
use drover_model::size::Size;
use drover_model::spec::TemplateSpec;
use drover_model::status::Standing;
use drover_model::time::Moment;

use super::TemplateMind;
use crate::canary::{Proving, StandIn};

impl TemplateMind {
    /// The spec that the next agent is started with, of the size that is asked for; none where the
    /// template does not give that size.
    ///
    /// Nothing new is tried while the breaker is not closed, since what failed was proven, and for a while
    /// after a trial that came to nothing through nobody's fault.
    pub(super) fn next_spec(&self, asked: Size, now: Moment) -> Option<Arc<TemplateSpec>> {
        let size = self.spec.size_for(asked).ok()?;
        let sized = |spec: TemplateSpec, size: Size| {
            if size.is_none() { spec } else { spec.sized(size) }
        };
        let Some(proving) = self.proves() else {
            let same = size.is_none().then(|| Arc::clone(&self.spec));
            return Some(same.unwrap_or_else(|| Arc::new(self.spec.sized(size))));
        };
        let closed = self.breaker.phase() == BreakerPhase::Closed;
        let steady = !closed || self.trials.pause(now).is_some();
        let made_as = |digest: &str, steady| Some(MadeAs { spec: digest.to_owned(), steady });
        let finds = !matches!(self.source, Some(Err(_)));
        let tries = self.tries(&proving.digest);
        let waits = |stand_in: &&StandIn| steady || stand_in.given_up || !finds || tries;
        if let Some(StandIn { spec, digest, .. }) = proving.stand_in.as_ref().filter(waits) {
            let spec = spec.with_policy_of(&self.spec);
            // Where it does not give that size, the other spec alone does.
            if let Ok(size) = spec.size_for(asked) {
                // One trial at a time: of the two it would not be plain which is to blame.
                let made_as = made_as(digest, steady || tries);
                let spec = TemplateSpec { made_as, ..sized(spec, size) };
                return Some(Arc::new(spec));
            }
        }
        let spec = sized((*self.spec).clone(), size);
        Some(Arc::new(TemplateSpec { made_as: made_as(&proving.digest, steady), ..spec }))
    }

    /// The spec that agents are made by now, but for the one that tries another.
    pub(super) fn made_now(&self) -> Arc<TemplateSpec> {
        match self.proves().and_then(|proving| proving.stand_in.as_ref()) {
            Some(good) => Arc::new(good.spec.with_policy_of(&self.spec)),
            None => Arc::clone(&self.spec),
        }
    }

    /// Whether the next agent would try a version that must prove itself, and that may come into force
    /// by itself: with the warm pool full nobody else would ask for an agent.
    pub(super) fn trial_is_due(&self, now: Moment) -> bool {
        let Some(proving) = self.proves() else { return false };
        let stands_in = proving.stand_in.as_ref().is_some_and(|stand_in| !stand_in.given_up);
        let steady =
            self.breaker.phase() != BreakerPhase::Closed || self.trials.pause(now).is_some();
        let finds = !matches!(self.source, Some(Err(_)));
        let rolls = self.spec.roll_at_once != Some(0);
        rolls && stands_in && finds && !steady && !self.tries(&proving.digest)
    }

    fn proves(&self) -> Option<&Proving> {
        self.proving.as_ref().filter(|_| self.spec.canary)
    }

    /// Whether another spec stands in where the template's own finds nothing to clone.
    pub(super) fn has_stand_in(&self) -> bool {
        self.proves().is_some_and(|proving| proving.stand_in.is_some())
    }

    /// Whether an agent that is made by this spec is on its way.
    fn tries(&self, digest: &str) -> bool {
        self.agents.values().any(|held| {
            let status = &held.status;
            // After a restart nobody knows yet how far an agent got.
            let comes = status.standing == Standing::Coming || status.phase == AgentPhase::InDoubt;
            !held.was_ready
                && comes
                && held.spec.made_as.as_ref().is_some_and(|made| made.spec == digest)
        })
    }

    /// Whether an agent tries a version, or is made by a spec for which another one stands in.
    pub(super) fn is_new(&self, agent: &AgentId) -> bool {
        let Some(held) = self.agents.get(agent) else { return false };
        let of = |proving: &Proving| {
            let made = held.spec.made_as.as_ref().map(|made| &made.spec);
            proving.stand_in.is_some() && made == Some(&proving.digest)
        };
        held.tries || self.proves().is_some_and(of)
    }
}
