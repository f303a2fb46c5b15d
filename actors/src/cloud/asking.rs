//! Asking a cloud who it is: in its time, and at once where an answer speaks against it.

use std::time::Duration;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use drover_model::fault::Fault;
use drover_model::id::ClusterId;
use drover_model::record::Body;

use super::{Cloud, CloudReport};

/// How soon a suspicion has it asked again after an earlier one did.
const SUSPICION: Duration = Duration::from_secs(2);

impl Cloud {
    pub(super) fn ask(&mut self, ctx: &mut Context<Self>) {
        if self.mind.spec().is_none() {
            return;
        }
        self.asking += 1;
        self.in_question = true;
        self.suspected = false;
        let stamp = self.asking;
        let answer = self.common.ports.hypervisor.identify(&self.id);
        ctx.spawn(answer.into_actor(self).map(move |observation, actor, ctx| {
            if stamp == actor.asking && actor.mind.spec().is_some() {
                actor.in_question = false;
                let fine = observation.as_ref().is_ok_and(|observation| observation.quorate);
                if std::mem::take(&mut actor.suspected) && fine && actor.mind.is_well() {
                    return actor.look_again(ctx);
                }
                let now = actor.common.ports.ambient.now().wall;
                let effects = actor.mind.identified(observation, now);
                actor.carry_out(effects, ctx);
            }
        }));
    }

    /// An answer speaks against it: it is asked at once, or soon after an earlier suspicion. One that
    /// is known not to work is asked every few seconds anyway.
    pub(super) fn suspect(&mut self, fault: &Fault, ctx: &mut Context<Self>) {
        let now = self.common.ports.ambient.now().wall;
        let effects = self.mind.suspected(fault, now);
        if !effects.is_empty() {
            // What is being asked may be older than this.
            self.asking += 1;
            return self.carry_out(effects, ctx);
        }
        self.look_again(ctx);
    }

    fn look_again(&mut self, ctx: &mut Context<Self>) {
        if !self.mind.is_well() {
            return;
        }
        if self.in_question {
            self.suspected = true;
            return;
        }
        let now = self.common.ports.ambient.now().mono;
        let since = self.suspected_at.map_or(SUSPICION, |at| now - at);
        if since >= SUSPICION {
            self.suspected_at = Some(now);
            return self.ask(ctx);
        }
        self.ask_in(SUSPICION - since, ctx);
    }

    /// Asks after a while, unless it is asked before.
    pub(super) fn ask_in(&self, wait: Duration, ctx: &mut Context<Self>) {
        let stamp = self.asking;
        ctx.run_later(wait, move |actor, ctx| {
            if stamp == actor.asking {
                actor.ask(ctx);
            }
        });
    }

    /// Shows what keeps clones back whenever that changes.
    pub(super) fn follow(&mut self, ctx: &mut Context<Self>) {
        if std::mem::replace(&mut self.following, true) {
            return;
        }
        let change = self.common.doubts.change();
        ctx.spawn(change.into_actor(self).map(|(), actor, ctx| {
            actor.following = false;
            actor.follow(ctx);
            actor.settle_soon(ctx);
        }));
    }

    pub(super) fn tried(&self) {
        let outcome = self.mind.state();
        if let Err(why) = &outcome {
            // What changed is logged where it is shown; this is each try.
            tracing::debug!(cloud = %self.id, error = why, "cloud is degraded");
        }
        self.herd.do_send(CloudReport::Tried { cloud: self.id.clone(), outcome });
    }

    pub(super) fn pin(&self, cluster: ClusterId, ctx: &mut Context<Self>) {
        let stamp = self.asking;
        let body = Body::ClusterPinned { cloud: self.id.clone(), cluster: cluster.clone() };
        let write = self.common.ports.journal.append(vec![body]);
        ctx.spawn(write.into_actor(self).map(move |written, actor, ctx| {
            if stamp == actor.asking {
                let written = written.map(|_| ()).map_err(|fault| fault.to_string());
                let now = actor.common.ports.ambient.now().wall;
                let effects = actor.mind.pin_written(cluster, written, now);
                actor.carry_out(effects, ctx);
            }
        }));
    }
}
