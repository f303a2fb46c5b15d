//! Sources of demand under the herd: an actor for each, whose levels the scheduler serves.

use std::sync::Arc;

use actix::{ActorFutureExt, AsyncContext, Context, Handler, WrapFuture};
use drover_model::demand::report::{Account, SourceJobs, Subject};
use drover_model::fact::What;
use drover_model::id::{LeaseId, SourceId};
use drover_model::phase::LeasePhase;
use drover_model::record::{Owner, Troubled};
use drover_model::spec::HerdSpec;
use drover_model::status::{LeaseStatus, SourceStatus};
use futures_util::future::join_all;

use super::Herd;
use crate::birth::{Rank, spawn_child};
use crate::demand::actor::{Source, SourceCommand, SourceReport};
use crate::message::Refusal;
use crate::scheduler::Event;
use crate::scheduler::uses::owner_of;
use drover_runtime::reply::Reply;
use drover_runtime::supervise::count_message;

impl Herd {
    /// Sources of a new configuration; those that left it go when their last runner is gone.
    pub(super) fn apply_sources(&mut self, old: &HerdSpec, ctx: &Context<Self>) {
        let spec = Arc::clone(&self.spec);
        let sources = spec.sources.values().cloned().collect();
        self.inform_scheduler(Event::Shares(spec.asked, sources));
        for (id, source) in &spec.sources {
            match self.sources.get(id) {
                Some(_) if old.sources.get(id) == Some(source) => {}
                Some(address) => address.do_send(SourceCommand::Apply(Some(source.clone()))),
                None => {
                    let (herd, spec) = (ctx.address().recipient(), source.clone());
                    let of = Troubled::Source { source: id.clone() };
                    let troubles = self.troubles.take(|other| *other == of);
                    let make = move |common, _: &mut _| Source::new(common, herd, spec, troubles);
                    let name = format!("source {id}");
                    let address = spawn_child(&self.common, Rank::Branch, &name, make);
                    self.sources.insert(id.clone(), address);
                }
            }
        }
        for (id, address) in &self.sources {
            if old.sources.contains_key(id) && !spec.sources.contains_key(id) {
                address.do_send(SourceCommand::Apply(None));
            }
        }
        if old.templates != spec.templates || old.mappings != spec.mappings {
            // What nobody served before may be served now.
            for address in self.sources.values() {
                address.do_send(SourceCommand::Retell);
            }
        }
        self.orphaned.retain(|id| !self.sources.contains_key(id));
        for id in self.common.runners.sources() {
            if !self.sources.contains_key(&id) && self.orphaned.insert(id.clone()) {
                self.report_orphaned(id);
            }
        }
    }

    /// Shows a source that left the configuration while the service was down: there is no way to it,
    /// and its runners stay there.
    fn report_orphaned(&self, source: SourceId) {
        tracing::warn!(source = %source, "runners are left at a source that is not configured");
        let runners = self.common.runners.of(&source).len();
        let text = format!(
            "it is not configured, and drover's runners are left there: put `{source}` back into \
             `demand` until they are gone, or remove them there"
        );
        self.observe(What::Source(Box::new(SourceStatus {
            configured: false,
            runners,
            outage: Some((self.common.ports.ambient.now().wall, text)),
            ..SourceStatus::idle(source, "-")
        })));
    }

    pub(super) fn wake_source(&self, id: &SourceId, reply: Reply<Result<(), Refusal>>) {
        let known = self.sources.get(id).filter(|_| self.spec.sources.contains_key(id));
        let answer = match known {
            Some(address) => {
                address.do_send(SourceCommand::Wake);
                Ok(())
            }
            None => Err(Refusal::Unknown(format!("no source `{id}` is configured"))),
        };
        reply.send(answer);
    }

    /// The lease of a runner that could not be started is over for anyone who looks at it.
    pub(super) fn observe_not_served(&self, lease: LeaseId, source: &SourceId) {
        let Owner { principal, owner } = owner_of(source);
        self.observe(What::Lease(Box::new(LeaseStatus {
            lease,
            state: LeasePhase::Ended,
            agent: None,
            owner,
            principal,
            group: None,
            wants: "a job".to_owned(),
            want: None,
            whole: false,
            asked: None,
            granted: None,
            expires: None,
            detail: "its runner could not be started".to_owned(),
        })));
    }

    pub(super) fn not_served(&self, id: &SourceId) {
        if let Some(address) = self.sources.get(id) {
            address.do_send(SourceCommand::NotServed);
        }
    }

    /// Asks every source for its jobs; one that does not answer, as after a panic, is left out.
    pub(super) fn jobs(&self, reply: Reply<Vec<SourceJobs>>, ctx: &mut Context<Self>) {
        let answers: Vec<_> = self
            .sources
            .values()
            .map(|address| {
                let (answer, jobs) = Reply::channel();
                address.do_send(SourceCommand::Jobs(answer));
                jobs
            })
            .collect();
        ctx.spawn(join_all(answers).into_actor(self).map(move |all, _, _| {
            reply.send(all.into_iter().flatten().collect());
        }));
    }

    pub(super) fn account(&self, subject: &Subject, reply: Reply<Result<Account, Refusal>>) {
        let trouble = self.trouble();
        let ground = self.ground(&trouble);
        let account =
            self.scheduler.account(subject, &ground, self.common.ports.ambient.now().wall);
        reply.send(account);
    }

    fn source_empty(&mut self, id: SourceId) {
        if !self.spec.sources.contains_key(&id)
            && let Some(address) = self.sources.remove(&id)
        {
            address.do_send(SourceCommand::Leave);
            self.observe(What::SourceGone { source: id });
        }
    }
}

impl Handler<SourceReport> for Herd {
    type Result = ();

    fn handle(&mut self, report: SourceReport, ctx: &mut Context<Self>) {
        count_message(ctx);
        match report {
            SourceReport::Wanted { source, levels, jobs } => {
                let spec = self.spec.sources.get(&source).map(AsRef::as_ref);
                let (levels, outside) = self.scheduler.admit(spec, levels, &self.spec.templates);
                self.inform_scheduler(Event::Wanted(source.clone(), levels, jobs));
                if let Some(address) = self.sources.get(&source) {
                    address.do_send(SourceCommand::NotOffered(outside.into()));
                }
            }
            SourceReport::Over { lease, why, .. } => {
                tracing::info!(lease = %lease, why, "runner is done");
                self.schedule(Event::RunnerDone(lease, why), ctx);
            }
            SourceReport::TooOld(template) => self.rebuild_outdated(&template, ctx),
            SourceReport::Empty(source) => self.source_empty(source),
        }
        self.settle_soon(ctx);
    }
}
