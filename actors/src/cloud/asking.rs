//! Asking a cloud who it is, and writing down what it leads to.

use std::time::Duration;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use drover_model::id::ClusterId;
use drover_model::record::Body;

use super::event::Event;
use super::{Cloud, CloudReport};

impl Cloud {
    pub(super) fn ask(&self, ctx: &mut Context<Self>) {
        let stamp = self.mind.stamp();
        let answer = self.common.ports.hypervisor.identify(&self.id);
        ctx.spawn(answer.into_actor(self).map(move |observation, actor, ctx| {
            actor.answered(Event::Identified { stamp, observation }, ctx);
        }));
    }

    /// Asks after a while, unless it is asked before.
    pub(super) fn ask_in(&self, wait: Duration, ctx: &mut Context<Self>) {
        let stamp = self.mind.stamp();
        ctx.run_later(wait, move |actor, ctx| actor.act(Event::AskDue { stamp }, ctx));
    }

    pub(super) fn pin(&self, cluster: ClusterId, ctx: &mut Context<Self>) {
        let stamp = self.mind.stamp();
        let body = Body::ClusterPinned { cloud: self.id.clone(), cluster: cluster.clone() };
        let write = self.common.ports.journal.append(vec![body]);
        ctx.spawn(write.into_actor(self).map(move |written, actor, ctx| {
            let written = written.map(|_| ()).map_err(|fault| fault.to_string());
            actor.answered(Event::PinWritten { stamp, cluster, written }, ctx);
        }));
    }

    /// Steps the mind. An answer that counts may change what people see.
    fn answered(&mut self, event: Event, ctx: &mut Context<Self>) {
        let effects = self.step(event);
        let counts = !effects.is_empty();
        self.carry_out(effects, ctx);
        if counts {
            self.settle_soon(ctx);
        }
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
}
