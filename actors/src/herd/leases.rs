//! Leases at the door: asks, renewals and releases, each durable before it is answered.

use std::time::Duration;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use drover_model::id::LeaseId;
use drover_model::phase::LeasePhase;
use drover_model::record::{Body, LeaseAsk};
use drover_model::tenant::By;
use drover_model::time::WallTime;
use drover_runtime::reply::Reply;
use futures_util::future::abortable;

use super::{Herd, LeaseReply, ReleaseReply};
use crate::message::{AgentCommand, Refusal};
use crate::scheduler::Event;
use crate::scheduler::book::Asked;

/// How long at most until it is looked whether a lease has waited as long as it may.
const LOOK_AGAIN: Duration = Duration::from_secs(600);

pub(super) fn unavailable(fault: &impl std::fmt::Display) -> Refusal {
    Refusal::Unavailable(format!("nothing was done: {fault}"))
}

impl Herd {
    pub(super) fn lease(
        &mut self,
        mut ask: Box<LeaseAsk>,
        reply: LeaseReply,
        ctx: &mut Context<Self>,
    ) {
        let configured: Vec<_> = self.spec.templates.values().cloned().collect();
        let stopping = self.scheduler.stopping();
        self.inform_scheduler(Event::Held(self.common.hold_next.owners()));
        let answer = match self.scheduler.known(&ask) {
            Some(known) => known,
            None if stopping => {
                Asked::Refused(Refusal::Unavailable("the service is stopping".into()))
            }
            None => match self.by_key(&ask.want).and_then(|want| self.brings(&ask, want)) {
                Ok(want) => {
                    ask.want = want;
                    self.scheduler.admission(&ask, &configured)
                }
                Err(refusal) => Asked::Refused(refusal),
            },
        };
        match answer {
            Asked::Known { lease, durable: true } => {
                reply.send(Ok(lease));
            }
            Asked::Known { lease, durable: false } => {
                self.asking.entry(lease).or_default().push(reply);
            }
            Asked::Refused(refusal) => {
                reply.send(Err(refusal));
            }
            Asked::New => {
                self.inform_scheduler(Event::Asked(ask.clone()));
                self.asking.entry(ask.lease.clone()).or_default().push(reply);
                self.append(Body::LeaseAsked(ask.clone()), ctx, move |actor, done, _| {
                    actor.inform_scheduler(Event::Recorded(ask.lease.clone(), done.is_ok()));
                    let answer = done.map(|_| ask.lease.clone());
                    if answer.is_ok() {
                        actor.observe_lease(&ask, LeasePhase::Waiting, "waits for an agent".into());
                    }
                    for reply in actor.asking.remove(&ask.lease).into_iter().flatten() {
                        let answer = answer.clone().map_err(|fault| unavailable(&fault));
                        reply.send(answer);
                    }
                });
            }
        }
    }

    /// Comes back when the next lease has waited as long as it may.
    pub(super) fn await_end(&mut self, now: WallTime, ctx: &mut Context<Self>) {
        let Some(end) = self.scheduler.first_end() else { return };
        if self.wait_ends.as_ref().is_some_and(|(at, _)| *at <= end) {
            return;
        }
        if let Some((_, alarm)) = self.wait_ends.take() {
            alarm.abort();
        }
        // The wall clock may be moved meanwhile.
        let pause = (end - now).min(LOOK_AGAIN);
        let (sleep, alarm) = abortable(tokio::time::sleep(pause));
        self.wait_ends = Some((now + pause, alarm));
        ctx.spawn(sleep.into_actor(self).map(|outcome, actor, ctx| {
            if outcome.is_ok() {
                actor.wait_ends = None;
                actor.settle_soon(ctx);
            }
        }));
    }

    pub(super) fn release(
        &mut self,
        lease: LeaseId,
        by: &By,
        reply: ReleaseReply,
        ctx: &mut Context<Self>,
    ) {
        match self.scheduler.releasable(&lease, by) {
            Err(refusal) => {
                reply.send(Err(refusal));
            }
            Ok(true) => {
                reply.send(Ok(()));
            }
            Ok(false) => {
                self.releasing.entry(lease.clone()).or_default().push(reply);
                self.schedule(Event::Release(lease), ctx);
            }
        }
    }

    /// Records that a lease ended that no agent has.
    pub(super) fn cancel(&mut self, lease: LeaseId, why: &'static str, ctx: &mut Context<Self>) {
        let body = Body::LeaseEnded { lease: lease.clone(), why: why.into(), cause: String::new() };
        self.append(body, ctx, move |actor, done, _| {
            actor.inform_scheduler(Event::Cancelled(lease.clone(), done.is_ok()));
            if let Some(entry) = actor.scheduler.lease(&lease).filter(|_| done.is_ok()) {
                actor.observe_lease(&entry.ask.clone(), LeasePhase::Ended, why.into());
            }
            for reply in actor.releasing.remove(&lease).into_iter().flatten() {
                let answer = done.clone().map(|_| ()).map_err(|fault| unavailable(&fault));
                reply.send(answer);
            }
        });
    }

    pub(super) fn renew(
        &mut self,
        lease: LeaseId,
        (ttl, by): (Duration, &By),
        reply: Reply<Result<WallTime, Refusal>>,
        ctx: &mut Context<Self>,
    ) {
        let theirs = self.scheduler.theirs(&lease, by).map(drop);
        if let Err(refusal) = theirs.and_then(|()| self.scheduler.renewable(&lease).map(drop)) {
            reply.send(Err(refusal));
            return;
        }
        let expires = self.common.ports.ambient.now().wall + ttl;
        let body = Body::LeaseRenewed { lease: lease.clone(), expires };
        self.append(body, ctx, move |actor, done, _| {
            let answer = done.map_err(|fault| unavailable(&fault));
            let answer = answer.and_then(|_| actor.scheduler.renewable(&lease)).map(|agent| {
                let command = AgentCommand::LeaseRenewed { lease, expires };
                actor.common.roster.send(&agent, command);
                expires
            });
            reply.send(answer);
        });
    }
}
