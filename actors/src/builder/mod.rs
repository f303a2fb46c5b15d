//! One build of an image on one node: the mind that decides ([`mind`]) and the actix body in this
//! file that carries its effects out. The removal of a version is a build that begins at its end.
//!
//! ```text
//! herd ── BuilderCommand ──▶ body ── Event ──▶ Mind::step ──▶ effects
//!   ▲                          │                                 │
//!   └── BuildReport ◀──────────┘ queue: record ▶ journal, call ▶ port ▶ Event::Answer
//! ```
//!
//! - It owns the queue of effects and the timer. It makes no decision.
//! - In: the turn to bring a source to its place, VMIDs, answers of ports.
//! - Out: records, calls, [`BuildReport`] to the herd, facts for the read side.
//!
//! Nothing behind a record runs before the journal has taken the record (book: safety, rule 1).
//!
//! Failure paths: a record that is not written is tried again, and the queue waits; another drover
//! that leads ends the build; after a panic the build is adopted as after a restart of the service.
//!
//! Beside it: `state.rs`, `event.rs` (the mind's words), `mind.rs`, `remove.rs` (what it decides),
//! `port_calls.rs` (calls of ports), `prune.rs` (which versions may go).

pub mod event;
pub mod mind;
mod port_calls;
pub mod prune;
mod remove;
pub mod state;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, Recipient,
    Supervised, WrapFuture,
};
use drover_model::fact::{Fact, What};
use drover_model::fault::Fault;
use drover_model::id::{AgentId, Attempt, TemplateId, VmId};
use drover_model::journal_state::{BuildEntry, JournalState};
use drover_model::ports::JournalFault;
use drover_model::record::{Body, Record};
use drover_model::state_machine::StateMachine as _;
use drover_model::status::ImageStatus;
use drover_model::time::Moment;
use drover_runtime::supervise::{count_message, limit_turns};

use crate::appended::{Appended, append};
use crate::birth::Common;
use crate::shared::role;
use event::{Effect, Event, StepEnd};
pub use mind::{Birth, Mind};
pub(crate) use port_calls::pull_call;

/// The pause before a failed append is repeated.
const APPEND_PAUSE: Duration = Duration::from_secs(1);
/// The pause before a call is made for which no way to the cluster was known.
const WAY_PAUSE: Duration = Duration::from_secs(5);

/// To a build, from the herd.
#[derive(Debug, Clone, PartialEq, Message)]
#[rtype(result = "()")]
pub enum BuilderCommand {
    /// No other build brings the same source to the same place.
    Turn,
    /// This build of this image has the turn.
    Behind(TemplateId, AgentId),
    /// The VMID that the guest may have, or why there is none.
    Id(Result<VmId, Fault>),
    /// Somebody wants it no longer.
    Cancel,
}

/// To the herd, from a build.
#[derive(Debug, Clone, PartialEq, Message)]
#[rtype(result = "()")]
pub enum BuildReport {
    /// It is this far.
    Status(Box<ImageStatus>),
    /// It wants the turn to bring its source to its place.
    WantTurn(AgentId),
    /// It needs that turn no longer.
    TurnOver(AgentId),
    /// It wants a VMID; the last one was somebody else's, where one is named.
    WantId(AgentId, Option<VmId>),
    /// It gives its VMID back.
    IdBack { build: AgentId, vmid: VmId, burned: bool },
    /// It is over, and everything of it is durable.
    Over(AgentId),
}

/// The actor of one build.
pub struct Builder {
    common: Common<role::Builder>,
    birth: Birth,
    herd: Recipient<BuildReport>,
    /// What the journal knows of it. A panic takes neither this nor the appends under way.
    known: Option<BuildEntry>,
    appending: u32,
    mind: Option<Mind>,
    queue: VecDeque<Effect>,
    /// Whether a record on its way holds the queue.
    writing: bool,
    timer: u64,
}

impl Builder {
    /// A build that begins, or one that the journal knows.
    pub fn new(
        common: Common<role::Builder>,
        birth: Birth,
        herd: Recipient<BuildReport>,
        entry: Option<BuildEntry>,
    ) -> Self {
        Self {
            common,
            birth,
            herd,
            known: entry,
            appending: 0,
            mind: None,
            queue: VecDeque::new(),
            writing: false,
            timer: 0,
        }
    }

    fn begin(&mut self, ctx: &mut Context<Self>) {
        if self.appending > 0 {
            // Of the incarnation before: what comes of it must be known first.
            ctx.run_later(APPEND_PAUSE, Self::begin);
            return;
        }
        let birth = self.birth.clone();
        self.mind = Some(match &self.known {
            Some(entry) => Mind::adopt(birth, entry),
            None => Mind::new(birth),
        });
        self.feed(Event::Begin, ctx);
    }

    /// Steps the mind and takes over its effects.
    fn feed(&mut self, event: Event, ctx: &mut Context<Self>) {
        let ambient = &self.common.ports.ambient;
        let (now, draw) = (ambient.now(), ambient.draw());
        let Some(mind) = &mut self.mind else { return };
        let before = mind.state().phase();
        let effects = mind.effects_of(event, now, draw);
        let after = mind.state().phase();
        if before != after {
            let detail = mind.status().detail;
            tracing::info!(
                build = %self.birth.build, image = %self.birth.image, node = %self.birth.node,
                from = before.name(), to = after.name(), detail, "build moved"
            );
        }
        for effect in effects {
            match effect {
                Effect::Report(status) => self.report(status),
                Effect::WakeAt(attempt, at) => self.wake_at(attempt, at, ctx),
                effect @ (Effect::Record(_)
                | Effect::WantTurn
                | Effect::TurnOver
                | Effect::WantId(_)
                | Effect::IdBack { .. }
                | Effect::Ask(..)
                | Effect::Stepped(_)
                | Effect::End) => self.queue.push_back(effect),
            }
        }
        self.pump(ctx);
    }

    fn show(&self, what: What) {
        let at = self.common.ports.ambient.now().wall;
        self.common.ports.observer.observe(Fact { at, what });
    }

    fn report(&self, status: Box<ImageStatus>) {
        self.show(What::Image(status.clone()));
        self.herd.do_send(BuildReport::Status(status));
    }

    /// Carries out the queue up to the next record.
    fn pump(&mut self, ctx: &mut Context<Self>) {
        while !self.writing {
            let Some(effect) = self.queue.pop_front() else { return };
            self.carry_out(effect, ctx);
        }
    }

    fn carry_out(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        let build = self.birth.build.clone();
        match effect {
            Effect::Record(body) => self.append(body, ctx),
            Effect::WantTurn => self.herd.do_send(BuildReport::WantTurn(build)),
            Effect::TurnOver => self.herd.do_send(BuildReport::TurnOver(build)),
            Effect::WantId(taken) => self.herd.do_send(BuildReport::WantId(build, taken)),
            Effect::IdBack { vmid, burned } => {
                self.herd.do_send(BuildReport::IdBack { build, vmid, burned });
            }
            Effect::Ask(attempt, call) => self.ask(attempt, call, ctx),
            Effect::Stepped(StepEnd { step, ms, ran }) => self.show(What::Step {
                agent: build,
                template: self.birth.image.clone(),
                step,
                ms,
                exit: ran.exit,
                log: ran.tail,
            }),
            Effect::Report(status) => self.report(status),
            Effect::WakeAt(attempt, at) => self.wake_at(attempt, at, ctx),
            Effect::End => {
                self.herd.do_send(BuildReport::Over(build));
                ctx.stop();
            }
        }
    }

    /// Appends a record; nothing behind it runs before it is durable.
    fn append(&mut self, body: Body, ctx: &mut Context<Self>) {
        self.writing = true;
        self.appending += 1;
        let by = (self.common.run.epoch, self.birth.incarnation);
        append(&self.common.ports, by, body, ctx.address().recipient());
    }

    /// Adds a durable record to what the journal knows.
    fn know(&mut self, record: &Record) {
        let build = &self.birth.build;
        let mut state = JournalState::default();
        state.builds.extend(self.known.take().map(|entry| (build.clone(), entry)));
        state.apply(record);
        self.known = state.builds.remove(build);
    }

    /// Makes a call, unless the mind no longer waits for it.
    fn ask(&mut self, attempt: Attempt, call: event::Call, ctx: &mut Context<Self>) {
        let Some(mind) = self.mind.as_ref().filter(|mind| mind.awaits(attempt)) else { return };
        let way = self.common.ways.through(&self.birth.image.cloud, &self.birth.cluster);
        let Some(cloud) = way else {
            ctx.run_later(WAY_PAUSE, move |actor, ctx| actor.ask(attempt, call, ctx));
            return;
        };
        tracing::debug!(build = %self.birth.build, %attempt, ?call, "build asks");
        if let Some(answer) = port_calls::make(call, mind, cloud, &self.common.ports) {
            ctx.spawn(answer.into_actor(self).map(move |answer, actor, ctx| {
                actor.feed(Event::Answer(attempt, answer), ctx);
            }));
        }
    }

    fn wake_at(&mut self, attempt: Attempt, at: Moment, ctx: &mut Context<Self>) {
        self.timer += 1;
        let timer = self.timer;
        let pause = at - self.common.ports.ambient.now().mono;
        ctx.run_later(pause, move |actor, ctx| {
            if actor.timer == timer {
                actor.feed(Event::Wake(attempt), ctx);
            }
        });
    }
}

impl Actor for Builder {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        limit_turns(ctx);
        self.begin(ctx);
    }
}

impl Supervised for Builder {
    /// What the journal knows is looked up; a build without a guest begins again.
    fn restarting(&mut self, _: &mut Context<Self>) {
        self.birth.incarnation += 1;
        (self.mind, self.writing) = (None, false);
        self.queue.clear();
        self.herd.do_send(BuildReport::TurnOver(self.birth.build.clone()));
    }
}

impl Handler<Appended> for Builder {
    type Result = ();

    fn handle(&mut self, appended: Appended, ctx: &mut Context<Self>) {
        count_message(ctx);
        let Appended { incarnation, done, body } = appended;
        self.appending = self.appending.saturating_sub(1);
        if let Ok(record) = &done {
            self.know(record);
        }
        if incarnation != self.birth.incarnation {
            return;
        }
        match done {
            Ok(record) => {
                self.writing = false;
                if matches!(body, Body::ImageIntended { .. }) {
                    self.feed(Event::Intended(record.seq), ctx);
                }
                self.pump(ctx);
            }
            Err(JournalFault::Fenced) => ctx.stop(),
            Err(fault @ JournalFault::Failed(_)) => {
                tracing::warn!(build = %self.birth.build, error = %fault, "record not written");
                ctx.run_later(APPEND_PAUSE, move |actor, ctx| actor.append(body, ctx));
            }
        }
    }
}

impl Handler<BuilderCommand> for Builder {
    type Result = ();

    fn handle(&mut self, command: BuilderCommand, ctx: &mut Context<Self>) {
        count_message(ctx);
        let event = match command {
            BuilderCommand::Turn => Event::Turn,
            BuilderCommand::Behind(image, build) => Event::Behind(image, build),
            BuilderCommand::Id(id) => Event::Id(id),
            BuilderCommand::Cancel => Event::Cancel,
        };
        self.feed(event, ctx);
    }
}
