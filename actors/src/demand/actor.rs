//! The actor of one source of demand: carries out what its mind wants. A panic in it touches no
//! other source and no agent.

use std::collections::BTreeMap;
use std::sync::Arc;

use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, Recipient,
    Supervised, WrapFuture,
};
use drover_model::demand::report::{SourceJobs, Unoffered};
use drover_model::demand::spec::SourceSpec;
use drover_model::fact::{Fact, SourceStatus, What};
use drover_model::fault::Fault;
use drover_model::id::{AgentId, LeaseId, RunnerName, SourceId};
use drover_model::ports::SourceObservation;
use drover_model::record::{Body, Troubled};
use drover_model::time::{Moment, Now};
use futures_util::future::abortable;
use futures_util::stream::AbortHandle;

use crate::birth::Common;
use crate::demand::Level;
use crate::demand::mind::{Effect, Runner, SourceMind};
use crate::message::AgentCommand;
use crate::roster::Living;
use drover_runtime::reply::Reply;
use drover_runtime::supervise::{count_message, limit_turns};

/// To a source, from the herd.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub enum SourceCommand {
    /// A spec comes into force; none when it left the configuration.
    Apply(Option<Arc<SourceSpec>>),
    /// Somebody says that there is news.
    Wake,
    /// A runner of it could not be started.
    NotServed,
    /// Somebody wants to see its jobs.
    Jobs(Reply<SourceJobs>),
    /// Of what its jobs want, no template offers this, or it is held back; ordered by what is wanted.
    NotOffered(Arc<[Unoffered]>),
    /// What templates offer may be another than before: say again what is wanted.
    Retell,
    /// It is not needed any more.
    Leave,
}

/// From a source to the herd.
#[derive(Debug, Clone, PartialEq, Message)]
#[rtype(result = "()")]
pub enum SourceReport {
    /// What is wanted, and how many jobs run on each of its leases.
    Wanted {
        /// The source.
        source: SourceId,
        /// Jobs that wait.
        levels: Vec<Level>,
        /// Jobs that run.
        jobs: Vec<(LeaseId, u32)>,
    },
    /// A lease's runner is done.
    Over {
        /// Its agent.
        agent: AgentId,
        /// The lease.
        lease: LeaseId,
        /// Why, one word.
        why: &'static str,
    },
    /// A lease's runner is not what it should be.
    Fail {
        /// Its agent.
        agent: AgentId,
        /// The lease.
        lease: LeaseId,
        /// What is wrong.
        text: String,
    },
    /// It is not configured, and no runner is left there.
    Empty(SourceId),
}

/// The actor of one source.
pub struct Source {
    common: Common,
    herd: Recipient<SourceReport>,
    id: SourceId,
    /// The last spec, and whether it is in force.
    spec: Arc<SourceSpec>,
    configured: bool,
    mind: Option<SourceMind>,
    /// News that were not taken up yet.
    woken: bool,
    /// Runners that could not be started and were not counted yet.
    unserved: u32,
    /// What its jobs want and no template offers.
    unoffered: Arc<[Unoffered]>,
    alarm: Option<AbortHandle>,
    shown: Option<SourceStatus>,
}

impl Source {
    /// A source that was not looked at yet.
    pub fn new(common: Common, herd: Recipient<SourceReport>, spec: Arc<SourceSpec>) -> Self {
        Self {
            common,
            herd,
            id: spec.id.clone(),
            spec,
            configured: true,
            mind: None,
            woken: false,
            unserved: 0,
            unoffered: Arc::default(),
            alarm: None,
            shown: None,
        }
    }

    /// Its runners, and whether the lease of each is on its agent.
    fn runners(&self) -> BTreeMap<RunnerName, Runner> {
        let all = self.common.runners.of(&self.id).into_iter();
        all.map(|(name, kept)| {
            let living = self.common.roster.get(&kept.entry.agent);
            let here =
                living.as_ref().filter(|living| living.status.leases.contains(&kept.entry.lease));
            let (most, idle) = match here.filter(|_| self.spec.whole) {
                Some(living) => (builds(living), living.status.overrides.idle(&living.spec)),
                None => (1, None),
            };
            let template = living.as_ref().map(|living| living.template.clone());
            (name, Runner { lives: here.is_some(), template, kept, most, idle })
        })
        .collect()
    }

    /// Takes up what it was told, lets the mind do `step` and whatever is due, and carries it out.
    fn step(
        &mut self,
        ctx: &mut Context<Self>,
        step: impl FnOnce(&mut SourceMind, &BTreeMap<RunnerName, Runner>, Now, &mut Vec<Effect>),
    ) {
        let now = self.common.ports.ambient.now();
        self.common.runners.settle(&self.id, self.spec.place);
        let runners = self.runners();
        let spec = self.configured.then(|| self.spec.clone());
        let mut out = Vec::new();
        let mind = self.mind.get_or_insert_with(|| {
            let of = Troubled::Source { source: self.id.clone() };
            let own = self.common.installation.clone();
            let mind = SourceMind::new(self.spec.clone(), own, now.mono);
            mind.silent_from(self.common.troubles.since(&of))
        });
        if mind.is_configured() != self.configured || !Arc::ptr_eq(mind.spec(), &self.spec) {
            mind.apply(spec, now, &mut out);
        }
        if std::mem::take(&mut self.woken) {
            mind.wake();
        }
        for _ in 0..std::mem::take(&mut self.unserved) {
            mind.not_served(&runners, now, &mut out);
        }
        mind.not_offered(Arc::clone(&self.unoffered));
        step(mind, &runners, now, &mut out);
        mind.tick(&runners, now, &mut out);
        out.into_iter().for_each(|effect| self.carry_out(effect, ctx));
        self.show(runners.len());
        if !self.configured && self.common.runners.of(&self.id).is_empty() {
            self.herd.do_send(SourceReport::Empty(self.id.clone()));
        }
    }

    fn carry_out(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        let demand = Arc::clone(&self.common.ports.demand);
        match effect {
            Effect::Look => {
                let mind = self.mind.as_ref();
                let known = mind.map(|mind| mind.known(&self.runners())).unwrap_or_default();
                let look = demand.look(&self.id, &known);
                ctx.spawn(
                    look.into_actor(self)
                        .map(|observation, actor, ctx| actor.looked(observation, ctx)),
                );
            }
            Effect::Quiet(runner) => {
                let quiet = demand.quiet(&self.id, &runner);
                ctx.spawn(quiet.into_actor(self).map(move |result, actor, ctx| {
                    // What it took meanwhile is seen before anything is done to it.
                    actor.woken = true;
                    actor.step(ctx, |mind, _, now, _| mind.cordoned(&runner, result, now.mono));
                }));
            }
            Effect::Hit(runner) => {
                let deregister = demand.deregister(&self.id, &runner);
                ctx.spawn(deregister.into_actor(self).map(move |result, actor, ctx| {
                    actor.step(ctx, |mind, _, _, out| mind.deregistered(&runner, result, out));
                }));
            }
            Effect::Gone(runner) => self.gone(runner, ctx),
            Effect::Worked(runner, began) => self.worked(runner, began),
            Effect::Numbered(runner, rows) => {
                self.common.runners.numbered(&self.id, &runner, rows.clone());
                let source = self.id.clone();
                self.common.records.write(Body::RowsNumbered { source, runner, rows });
            }
            Effect::Sweep(runner) => {
                let deregister = demand.deregister(&self.id, &runner);
                ctx.spawn(deregister.into_actor(self).map(move |result, actor, _| match result {
                    Ok(()) => {
                        tracing::warn!(source = %actor.id, runner = %runner, "stray runner removed");
                    }
                    Err(fault) => tracing::warn!(
                        source = %actor.id, runner = %runner, error = %fault,
                        "stray runner can not be removed and is tried again"
                    ),
                }));
            }
            Effect::Lines(levels, jobs) => {
                let source = self.id.clone();
                self.herd.do_send(SourceReport::Wanted { source, levels, jobs });
            }
            Effect::Prove => {
                let obstacle = demand.obstacle(&self.id);
                ctx.spawn(obstacle.into_actor(self).map(|obstacle, actor, ctx| {
                    actor.step(ctx, |mind, runners, _, out| mind.proven(obstacle, runners, out));
                }));
            }
            Effect::Ask(agent, lease) => {
                self.common.roster.send(&agent, AgentCommand::AskRunner { lease });
            }
            Effect::Over(agent, lease, why) => {
                self.herd.do_send(SourceReport::Over { agent, lease, why });
            }
            Effect::Fail(agent, lease, text) => {
                self.herd.do_send(SourceReport::Fail { agent, lease, text });
            }
            Effect::Lost { runner, agent, job } => {
                tracing::error!(source = %self.id, runner = %runner, agent = %agent, job, "job lost");
                self.observe(What::JobLost { source: self.id.clone(), runner, agent, job });
            }
            Effect::WakeAt(at) => self.wake_at(at, ctx),
        }
    }

    /// A runner is gone for good once that is written down; a record that is lost only makes it be
    /// removed again.
    fn gone(&self, runner: RunnerName, ctx: &mut Context<Self>) {
        let body = Body::RowGone { source: self.id.clone(), runner: runner.clone() };
        let append = self.common.ports.journal.append(vec![body]);
        ctx.spawn(append.into_actor(self).map(move |done, actor, ctx| {
            if done.is_ok() {
                actor.common.runners.gone(&actor.id, &runner);
            }
            actor.step(ctx, |mind, _, _, _| {
                if let Err(fault) = done {
                    mind.not_written(&runner, &fault);
                }
            });
        }));
    }

    /// Remembered beyond a start.
    fn worked(&self, runner: RunnerName, began: u32) {
        self.common.runners.worked(&self.id, &runner, began);
        let source = self.id.clone();
        self.common.records.write(Body::RunnerWorked { source, runner, began });
    }

    fn looked(&mut self, observation: Result<SourceObservation, Fault>, ctx: &mut Context<Self>) {
        let draw = self.common.ports.ambient.draw();
        self.step(ctx, |mind, runners, now, out| mind.looked(observation, runners, now, draw, out));
    }

    fn wake_at(&mut self, at: Moment, ctx: &mut Context<Self>) {
        if let Some(alarm) = self.alarm.take() {
            alarm.abort();
        }
        let span = at - self.common.ports.ambient.now().mono;
        let (sleep, alarm) = abortable(tokio::time::sleep(span));
        self.alarm = Some(alarm);
        ctx.spawn(sleep.into_actor(self).map(|outcome, actor, ctx| {
            if outcome.is_ok() {
                actor.step(ctx, |_, _, _, _| {});
            }
        }));
    }

    fn observe(&self, what: What) {
        let at = self.common.ports.ambient.now().wall;
        self.common.ports.observer.observe(Fact { at, what });
    }

    /// Its jobs by the last look.
    fn jobs(&self) -> SourceJobs {
        let empty = || SourceJobs {
            source: self.id.clone(),
            waiting: Vec::new(),
            unoffered: Vec::new(),
            ignored: Vec::new(),
            unread: Vec::new(),
            running: Vec::new(),
            outage: None,
            unserved: 0,
            refused: None,
        };
        self.mind.as_ref().map_or_else(empty, |mind| mind.report(&self.runners()))
    }

    /// Tells the read side what changed, and the journal since when it cannot be looked at.
    fn show(&mut self, runners: usize) {
        let Some(mind) = &self.mind else { return };
        let of = Troubled::Source { source: self.id.clone() };
        self.common.troubles.set(of, mind.silent_since());
        let status = mind.status(runners);
        if self.shown.as_ref() != Some(&status) {
            self.observe(What::Source(Box::new(status.clone())));
            self.shown = Some(status);
        }
    }
}

/// Jobs that a runner with an agent of its own takes: as many as its template's uses, and where nobody
/// said how many, one on each executor. One that is made clean afterwards has a round for each lease.
fn builds(living: &Living) -> u32 {
    let executors = living.spec.executors.max(1);
    let most =
        living.status.overrides.max_uses(&living.spec).filter(|_| living.spec.reset.is_none());
    most.unwrap_or(executors)
}

impl Actor for Source {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        limit_turns(ctx);
        self.step(ctx, |_, _, _, _| {});
    }
}

impl Supervised for Source {
    /// What it was told is kept; what it saw is seen again.
    fn restarting(&mut self, _: &mut Context<Self>) {
        self.mind = None;
        self.alarm = None;
        self.shown = None;
    }
}

impl Handler<SourceCommand> for Source {
    type Result = ();

    fn handle(&mut self, command: SourceCommand, ctx: &mut Context<Self>) {
        count_message(ctx);
        match command {
            SourceCommand::Apply(spec) => {
                self.configured = spec.is_some();
                self.spec = spec.unwrap_or_else(|| self.spec.clone());
            }
            SourceCommand::Wake => self.woken = true,
            SourceCommand::NotServed => self.unserved += 1,
            SourceCommand::Jobs(reply) => {
                reply.send(self.jobs());
                return;
            }
            SourceCommand::NotOffered(unoffered) => self.unoffered = unoffered,
            SourceCommand::Retell => {
                return self.step(ctx, |mind, runners, _, out| mind.republish(runners, out));
            }
            SourceCommand::Leave => {
                self.common.troubles.set(Troubled::Source { source: self.id.clone() }, None);
                return ctx.stop();
            }
        }
        self.step(ctx, |_, _, _, _| {});
    }
}
