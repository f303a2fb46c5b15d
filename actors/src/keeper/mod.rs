//! One declared machine: the mind that decides ([`mind`]) and the actix body in this file that carries
//! its effects out.
//!
//! ```text
//! herd ── KeeperCommand ──▶ body ── Event ──▶ Mind::step ──▶ effects
//!   ▲                         │                                 │
//!   └── KeeperReport ◀────────┘ queue: record ▶ journal, call ▶ port ▶ Event::Answer
//! ```
//!
//! - It owns the queue of effects and the timer. It makes no decision.
//! - In: the declaration, the cluster, VMIDs, commands of operators, answers of ports.
//! - Out: records, calls, [`KeeperReport`] to the herd, facts for the read side.
//!
//! Nothing behind a record runs before the journal has taken the record (book: safety, rule 1). No call
//! that changes something is made while something speaks for another drover on this installation.
//!
//! Failure paths: a record that is not written is tried again, and the queue waits; another drover that
//! leads ends the actor; after a panic the machine is adopted as after a restart of the service.
//!
//! Beside it: `state.rs`, `event.rs` (the mind's words), `mind.rs`, `declaration.rs`, `make.rs`,
//! `watch.rs`, `remove.rs` (what it decides), `drift.rs` (what differs from the declaration), `port_calls.rs` (calls of ports).

mod declaration;
pub mod drift;
pub mod event;
mod make;
pub mod mind;
mod port_calls;
mod remove;
pub mod state;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, Recipient,
    Supervised, WrapFuture,
};
use drover_model::declared::DeclaredSpec;
use drover_model::fact::{Fact, What};
use drover_model::fault::Fault;
use drover_model::id::{AgentId, Attempt, ClusterId, DeclaredName, VmId};
use drover_model::journal_state::{DeclaredEntry, JournalState};
use drover_model::ports::JournalFault;
use drover_model::record::{Body, Record};
use drover_model::state_machine::StateMachine as _;
use drover_model::status::DeclaredStatus;
use drover_model::time::Moment;
use drover_runtime::supervise::{count_message, limit_turns};

use crate::appended::{Appended, append};
use crate::birth::Common;
use crate::shared::role;
use event::{Call, Effect, Event};
pub use mind::{Birth, Mind};

/// The pause before a failed append is repeated.
const APPEND_PAUSE: Duration = Duration::from_secs(1);
/// The pause before a call is made for which no way to the cluster was known.
const WAY_PAUSE: Duration = Duration::from_secs(5);
/// The pauses after which the machine says that it waits for a way.
const WAY_TRIES: u32 = 6;

/// To the keeper of a machine, from the herd.
#[derive(Debug, Clone, PartialEq, Message)]
#[rtype(result = "()")]
pub enum KeeperCommand {
    /// The configuration has it so, or has it no longer.
    Declare(Option<Arc<DeclaredSpec>>),
    /// The cluster that its cloud leads to, or why that is not known.
    Cluster(Result<ClusterId, Fault>),
    /// The VMID and the id for its guest, or why there are none.
    Id(Result<(VmId, AgentId), Fault>),
    /// Somebody wants it looked at now.
    Look,
    /// An operator wants its guest destroyed.
    Delete,
    /// An operator wants it forgotten; its guest stays.
    Forget,
}

/// To the herd, from the keeper of a machine.
#[derive(Debug, Clone, PartialEq, Message)]
#[rtype(result = "()")]
pub enum KeeperReport {
    Status(Box<DeclaredStatus>),
    /// It wants to know its cluster.
    WantCluster(DeclaredName),
    /// It wants a VMID; the last one was somebody else's, where one is named.
    WantId(DeclaredName, Option<VmId>),
    /// It gives its VMID back.
    IdBack {
        name: DeclaredName,
        vmid: VmId,
        burned: bool,
    },
    /// It is over, and everything of it is durable.
    Over(DeclaredName),
}

/// The actor of one declared machine.
pub struct Keeper {
    common: Common<role::Keeper>,
    birth: Birth,
    herd: Recipient<KeeperReport>,
    /// What the journal knows of it. A panic takes neither this nor the appends under way.
    known: Option<DeclaredEntry>,
    appending: u32,
    mind: Option<Mind>,
    queue: VecDeque<Effect>,
    /// Whether a record on its way holds the queue.
    writing: bool,
    timer: u64,
}

impl Keeper {
    /// A machine that is to be made, or one that the journal knows. One of the two must be there: a
    /// declaration, or an entry.
    pub fn new(
        common: Common<role::Keeper>,
        birth: Birth,
        herd: Recipient<KeeperReport>,
        entry: Option<DeclaredEntry>,
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
        self.mind = match (&self.known, birth.declared.clone()) {
            (Some(entry), _) => Some(Mind::adopt(birth, entry)),
            (None, Some(spec)) => Some(Mind::new(birth, spec)),
            (None, None) => None,
        };
        match self.mind {
            Some(_) => self.feed(Event::Begin, ctx),
            None => self.carry_out(Effect::End, ctx),
        }
    }

    /// Steps the mind and takes over its effects.
    fn feed(&mut self, event: Event, ctx: &mut Context<Self>) {
        let ambient = &self.common.ports.ambient;
        let (now, draw) = (ambient.now(), ambient.draw());
        let Some(mind) = &mut self.mind else { return };
        let before = mind.phase();
        let effects = mind.effects_of(event, now, draw);
        let after = mind.phase();
        if before != after {
            let status = mind.status();
            tracing::info!(
                machine = %self.birth.name, vmid = status.vmid.map(|vmid| vmid.0),
                from = before.name(), to = after.name(), detail = status.detail, "machine moved"
            );
        }
        for effect in effects {
            match effect {
                Effect::Report(status) => self.report(status),
                Effect::WakeAt(attempt, at) => self.wake_at(attempt, at, ctx),
                effect @ (Effect::Record(_)
                | Effect::WantCluster
                | Effect::WantId(_)
                | Effect::IdBack { .. }
                | Effect::Ask(..)
                | Effect::End) => self.queue.push_back(effect),
            }
        }
        self.pump(ctx);
    }

    fn report(&self, status: Box<DeclaredStatus>) {
        let at = self.common.ports.ambient.now().wall;
        self.common.ports.observer.observe(Fact { at, what: What::Declared(status.clone()) });
        self.herd.do_send(KeeperReport::Status(status));
    }

    /// Carries out the queue up to the next record.
    fn pump(&mut self, ctx: &mut Context<Self>) {
        while !self.writing {
            let Some(effect) = self.queue.pop_front() else { return };
            self.carry_out(effect, ctx);
        }
    }

    fn carry_out(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        let name = self.birth.name.clone();
        match effect {
            Effect::Record(body) => self.append(body, ctx),
            Effect::WantCluster => self.herd.do_send(KeeperReport::WantCluster(name)),
            Effect::WantId(taken) => self.herd.do_send(KeeperReport::WantId(name, taken)),
            Effect::IdBack { vmid, burned } => {
                self.herd.do_send(KeeperReport::IdBack { name, vmid, burned });
            }
            Effect::Ask(attempt, call) => self.ask(attempt, call, 0, ctx),
            Effect::Report(status) => self.report(status),
            Effect::WakeAt(attempt, at) => self.wake_at(attempt, at, ctx),
            Effect::End => {
                self.herd.do_send(KeeperReport::Over(name));
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
        let mut state = JournalState::default();
        let known = self.known.take().map(|entry| (entry.marks.agent.clone(), entry));
        state.declared.extend(known);
        state.apply(record);
        self.known = state.declared.into_values().next();
    }

    /// Makes a call, unless the mind no longer waits for it; it waited for a way so many times.
    fn ask(&mut self, attempt: Attempt, call: Call, waited: u32, ctx: &mut Context<Self>) {
        let Some(mind) = self.mind.as_ref().filter(|mind| mind.awaits(attempt)) else { return };
        if call.changes()
            && let Some(why) = self.common.restraint.why()
        {
            return self.feed(Event::Held(attempt, why), ctx);
        }
        let cluster = mind.cluster();
        let way = cluster.and_then(|cluster| self.common.ways.through(mind.cloud(), cluster));
        let Some(cloud) = way else {
            if waited >= WAY_TRIES {
                let why = format!("cloud `{}` does not lead to its cluster yet", mind.cloud());
                return self.feed(Event::Held(attempt, why), ctx);
            }
            let again = move |actor: &mut Self, ctx: &mut _| {
                actor.ask(attempt, call, waited + 1, ctx);
            };
            ctx.run_later(WAY_PAUSE, again);
            return;
        };
        tracing::debug!(machine = %self.birth.name, %attempt, ?call, "machine asks");
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

impl Actor for Keeper {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        limit_turns(ctx);
        self.begin(ctx);
    }
}

impl Supervised for Keeper {
    /// What the journal knows is looked up; without a guest the making begins again.
    fn restarting(&mut self, _: &mut Context<Self>) {
        self.birth.incarnation += 1;
        (self.mind, self.writing) = (None, false);
        self.queue.clear();
    }
}

impl Handler<Appended> for Keeper {
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
                if matches!(body, Body::DeclaredIntended { .. }) {
                    self.feed(Event::Intended(record.seq), ctx);
                }
                self.pump(ctx);
            }
            Err(JournalFault::Fenced) => ctx.stop(),
            Err(fault @ JournalFault::Failed(_)) => {
                tracing::warn!(machine = %self.birth.name, error = %fault, "record not written");
                ctx.run_later(APPEND_PAUSE, move |actor, ctx| actor.append(body, ctx));
            }
        }
    }
}

impl Handler<KeeperCommand> for Keeper {
    type Result = ();

    fn handle(&mut self, command: KeeperCommand, ctx: &mut Context<Self>) {
        count_message(ctx);
        let event = match command {
            KeeperCommand::Declare(spec) => {
                // A panic keeps it, and a mind that is not there yet begins with it.
                self.birth.declared.clone_from(&spec);
                Event::Declare(spec)
            }
            KeeperCommand::Cluster(cluster) => Event::Cluster(cluster),
            KeeperCommand::Id(id) => Event::Id(id),
            KeeperCommand::Look => Event::Look,
            KeeperCommand::Delete => Event::Delete,
            KeeperCommand::Forget => Event::Forget,
        };
        self.feed(event, ctx);
    }
}
