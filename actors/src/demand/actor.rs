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
use drover_model::fact::{Fact, What};
use drover_model::id::{AgentId, LeaseId, RunnerName, SourceId, TemplateId};
use drover_model::noted::{JobsSeen, Noted};
use drover_model::record::{Body, Troubled};
use drover_model::state_machine::{StateMachine, Turn};
use drover_model::status::SourceStatus;
use drover_model::time::Moment;
use futures_util::future::abortable;
use futures_util::stream::AbortHandle;

use crate::birth::Common;
use crate::demand::Level;
use crate::demand::mind::SourceMind;
use crate::demand::mind::event::{Effect, Event, Runner};
use crate::roster::Living;
use crate::shared::role;
use crate::troubles::Troubles;
use drover_runtime::reply::Reply;
use drover_runtime::supervise::{count_message, limit_turns};

/// To a source, from the herd.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub enum SourceCommand {
    /// A spec comes into force; none when it left the configuration.
    Apply(Option<Arc<SourceSpec>>),
    /// A webhook or a person says that there is news.
    Wake,
    /// A runner of it could not be started.
    NotServed,
    /// Somebody wants to see its jobs.
    Jobs(Reply<SourceJobs>),
    /// What its jobs want and no template offers, or the scheduler holds back; ordered by what is wanted.
    NotOffered(Arc<[Unoffered]>),
    /// Templates changed: report the demand of the last poll again.
    Retell,
    /// It has no runner left and is not configured: its actor ends.
    Leave,
}

/// From a source to the herd.
#[derive(Debug, Clone, PartialEq, Message)]
#[rtype(result = "()")]
pub enum SourceReport {
    /// What is wanted, and how many jobs run on each of its leases.
    Wanted {
        source: SourceId,
        /// Jobs that wait.
        levels: Vec<Level>,
        /// Jobs that run.
        jobs: Vec<(LeaseId, u32)>,
    },
    /// A lease's runner is done.
    Over {
        agent: AgentId,
        lease: LeaseId,
        /// Why, one word.
        why: &'static str,
    },
    /// The runner in the image of a template is too old for the source.
    TooOld(TemplateId),
    /// It is not configured, and no runner is left there.
    Empty(SourceId),
}

/// Polls in a row without a job that the history hears of: one poll may not show all.
const NOTED_NONE: u32 = 2;

/// The actor of one source.
pub struct Source {
    common: Common<role::Source>,
    herd: Recipient<SourceReport>,
    id: SourceId,
    /// The last spec, and whether it is in force.
    spec: Arc<SourceSpec>,
    configured: bool,
    mind: Option<SourceMind>,
    /// Since when it cannot be read, as the journal knows.
    troubles: Troubles,
    /// Whether a poll was asked for that did not start yet.
    woken: bool,
    /// Runners that could not be started and were not counted yet.
    unserved: u32,
    /// What its jobs want and no template offers.
    unoffered: Arc<[Unoffered]>,
    alarm: Option<AbortHandle>,
    shown: Option<SourceStatus>,
    /// Polls in a row that had no job.
    noted_none: u32,
}

impl Source {
    /// A source that was not polled yet.
    pub fn new(
        common: Common<role::Source>,
        herd: Recipient<SourceReport>,
        spec: Arc<SourceSpec>,
        troubles: Troubles,
    ) -> Self {
        Self {
            common,
            herd,
            id: spec.id.clone(),
            spec,
            configured: true,
            mind: None,
            troubles,
            woken: false,
            unserved: 0,
            unoffered: Arc::default(),
            alarm: None,
            shown: None,
            noted_none: 0,
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
                Some(living) => (builds(living), living.overrides.idle(&living.spec)),
                None => (1, None),
            };
            let template = living.as_ref().map(|living| living.template.clone());
            (name, Runner { lives: here.is_some(), template, kept, most, idle })
        })
        .collect()
    }

    /// Brings the mind what this side learned meanwhile, then `event`, lets it do what is due, and
    /// carries out what it wants.
    fn step(&mut self, ctx: &mut Context<Self>, event: Option<Event>) {
        // Only a poll that came back spreads what follows by chance.
        let ambient = &self.common.ports.ambient;
        let draw = matches!(event, Some(Event::Polled(_))).then(|| ambient.draw());
        let (mut turn, now) = (Turn::new(draw.unwrap_or_default()), ambient.now());
        self.common.runners.settle(&self.id, self.spec.place);
        let runners = Arc::new(self.runners());
        let of = Troubled::Source { source: self.id.clone() };
        let mind = self.mind.get_or_insert_with(|| {
            let own = self.common.run.installation.clone();
            let mind = SourceMind::new(self.spec.clone(), own, now.mono);
            mind.silent_from(self.troubles.since(&of))
        });
        let mut events = vec![Event::Runners(Arc::clone(&runners))];
        if mind.is_configured() != self.configured || !Arc::ptr_eq(mind.spec(), &self.spec) {
            events.push(Event::Apply(self.configured.then(|| self.spec.clone())));
        }
        if std::mem::take(&mut self.woken) {
            events.push(Event::Woken);
        }
        events.extend((0..std::mem::take(&mut self.unserved)).map(|_| Event::NotServed));
        events.push(Event::NotOffered(Arc::clone(&self.unoffered)));
        events.extend(event);
        events.push(Event::Tick);
        events.into_iter().for_each(|event| mind.step(event, now, &mut turn));
        turn.effects.into_iter().for_each(|effect| self.carry_out(effect, ctx));
        self.show(runners.len());
        if !self.configured && self.common.runners.of(&self.id).is_empty() {
            self.herd.do_send(SourceReport::Empty(self.id.clone()));
        }
    }

    fn carry_out(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        let demand = Arc::clone(&self.common.ports.demand);
        match effect {
            Effect::Poll => {
                let mind = self.mind.as_ref();
                let known = mind.map(|mind| mind.known(&self.runners())).unwrap_or_default();
                let poll = demand.look_at_jobs(&self.id, &known);
                ctx.spawn(poll.into_actor(self).map(|result, actor, ctx| {
                    let has_answered = result.is_ok();
                    actor.step(ctx, Some(Event::Polled(result.map(Box::new))));
                    // What one that does not answer shows are the jobs of an earlier poll.
                    if has_answered {
                        actor.note_jobs();
                    }
                }));
            }
            Effect::Cordon(runner) => {
                let cordon = demand.quiet(&self.id, &runner);
                ctx.spawn(cordon.into_actor(self).map(move |result, actor, ctx| {
                    // The next poll shows a job that the runner took meanwhile.
                    actor.woken = true;
                    actor.step(ctx, Some(Event::Cordoned(runner, result)));
                }));
            }
            Effect::Deregister(runner) => {
                let deregister = demand.deregister(&self.id, &runner);
                ctx.spawn(deregister.into_actor(self).map(move |result, actor, ctx| {
                    actor.step(ctx, Some(Event::Deregistered(runner, result)));
                }));
            }
            Effect::Gone(runner) => self.gone(runner, ctx),
            Effect::Worked(runner, began) => self.worked(runner, began),
            Effect::Numbered(runner, rows) => {
                self.common.runners.numbered(&self.id, &runner, rows.clone());
                let source = self.id.clone();
                self.common.records.write(Body::RowsNumbered { source, runner, rows });
            }
            Effect::RemoveUnknown(runner) => {
                let deregister = demand.deregister(&self.id, &runner);
                ctx.spawn(deregister.into_actor(self).map(move |result, actor, _| match result {
                    Ok(()) => {
                        tracing::warn!(source = %actor.id, runner = %runner, "unknown runner removed");
                    }
                    Err(fault) => tracing::warn!(
                        source = %actor.id, runner = %runner, error = %fault,
                        "unknown runner cannot be removed; drover tries again"
                    ),
                }));
            }
            Effect::Publish(levels, jobs) => {
                let source = self.id.clone();
                self.herd.do_send(SourceReport::Wanted { source, levels, jobs });
            }
            Effect::Probe => {
                let obstacle = demand.obstacle(&self.id);
                ctx.spawn(obstacle.into_actor(self).map(|obstacle, actor, ctx| {
                    actor.step(ctx, Some(Event::Probed(obstacle)));
                }));
            }
            Effect::Ask(agent, lease) => {
                self.common.roster.ask_runner(&agent, lease);
            }
            Effect::Over(agent, lease, why) => {
                self.herd.do_send(SourceReport::Over { agent, lease, why });
            }
            Effect::TooOld(template) => self.herd.do_send(SourceReport::TooOld(template)),
            Effect::Fail(agent, lease, text) => {
                tracing::warn!(lease = %lease, agent = %agent, error = text, "runner failed");
                self.common.roster.fail_lease(&agent, lease, text);
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
            let failed = done.err().map(|fault| Event::NotWritten(runner, fault));
            actor.step(ctx, failed);
        }));
    }

    /// Writes down how many jobs started on a runner: a restart must not count them again.
    fn worked(&self, runner: RunnerName, began: u32) {
        self.common.runners.worked(&self.id, &runner, began);
        let source = self.id.clone();
        self.common.records.write(Body::RunnerWorked { source, runner, began });
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
                actor.step(ctx, None);
            }
        }));
    }

    /// Gives the history the jobs of the last poll.
    fn note_jobs(&mut self) {
        let Some(mind) = &self.mind else { return };
        let (waiting, running) = (mind.waiting(), mind.seen(&self.runners()));
        let is_empty = waiting.is_empty() && running.is_empty();
        self.noted_none = if is_empty { self.noted_none.saturating_add(1) } else { 0 };
        if self.noted_none > NOTED_NONE {
            return;
        }
        let (source, priority) = (self.id.clone(), self.spec.share.priority);
        let seen = JobsSeen { source, priority, waiting: waiting.to_vec(), running };
        let at = self.common.ports.ambient.now().wall;
        self.common.ports.observer.note(at, Noted::Jobs(Arc::new(seen)));
    }

    fn observe(&self, what: What) {
        let at = self.common.ports.ambient.now().wall;
        self.common.ports.observer.observe(Fact { at, what });
    }

    /// Its jobs by the last poll.
    fn jobs(&self) -> SourceJobs {
        let empty = || SourceJobs {
            source: self.id.clone(),
            waiting: Vec::new(),
            unoffered: Vec::new(),
            ignored: Vec::new(),
            unread: Vec::new(),
            running: Vec::new(),
            rowless: Vec::new(),
            outage: None,
            unserved: 0,
            refused: None,
        };
        self.mind.as_ref().map_or_else(empty, |mind| mind.report(&self.runners()))
    }

    /// Shows the read side what changed, and the journal since when polls fail.
    fn show(&mut self, runners: usize) {
        let Some(mind) = &self.mind else { return };
        let of = Troubled::Source { source: self.id.clone() };
        self.common.records.write_all(self.troubles.set(of, mind.silent_since()));
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
    let most = living.overrides.max_uses(&living.spec).filter(|_| living.spec.reset.is_none());
    most.unwrap_or(executors)
}

impl Actor for Source {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        limit_turns(ctx);
        self.step(ctx, None);
    }
}

impl Supervised for Source {
    /// Keeps what the herd sent; the next poll observes the rest again.
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
                return self.step(ctx, Some(Event::Republish));
            }
            SourceCommand::Leave => {
                self.common.records.write_all(self.troubles.end());
                return ctx.stop();
            }
        }
        self.step(ctx, None);
    }
}
