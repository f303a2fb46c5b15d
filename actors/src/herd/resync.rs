//! What is asked of all at once: a reap of every cloud, a look at every cluster and declared machine.

use std::collections::BTreeMap;

use actix::{AsyncContext, Context, WrapFuture};
use drover_model::finding::Outcome;
use drover_model::id::ClusterId;
use drover_model::record::Reason;
use drover_runtime::reply::Reply;
use tokio::sync::mpsc;

use super::Herd;
use crate::cloud::CloudCommand;
use crate::reconciler::ReconcilerCommand;

impl Herd {
    /// Reconciles every cluster, and looks at every declared machine.
    pub(super) fn resync(
        &self,
        reply: Reply<BTreeMap<ClusterId, Outcome<String>>>,
        ctx: &mut Context<Self>,
    ) {
        self.look_at_machines();
        self.findings(ReconcilerCommand::Resync, reply, ctx);
    }

    pub(super) fn reap(&self, all: bool, reply: Reply<u32>, ctx: &mut Context<Self>) {
        let (tally, mut counts) = mpsc::unbounded_channel();
        for cloud in self.clouds.values() {
            let (reason, tally) = (Reason::Reaped, Some(tally.clone()));
            cloud.do_send(CloudCommand::Reap { all, reason, tally });
        }
        drop(tally);
        let sum = async move {
            let mut sum = 0;
            while let Some(count) = counts.recv().await {
                sum += count;
            }
            reply.send(sum);
        };
        ctx.spawn(sum.into_actor(self));
    }

    /// Asks every reconciler, and replies with what became of each.
    pub(super) fn findings<F: 'static>(
        &self,
        ask: impl Fn(mpsc::UnboundedSender<(ClusterId, Outcome<F>)>) -> ReconcilerCommand,
        reply: Reply<BTreeMap<ClusterId, Outcome<F>>>,
        ctx: &mut Context<Self>,
    ) {
        let (tally, mut findings) = mpsc::unbounded_channel();
        for actors in self.clusters.values() {
            actors.reconciler.do_send(ask(tally.clone()));
        }
        drop(tally);
        let all = async move {
            let mut all = BTreeMap::new();
            while let Some((cluster, found)) = findings.recv().await {
                all.insert(cluster, found);
            }
            reply.send(all);
        };
        ctx.spawn(all.into_actor(self));
    }
}
