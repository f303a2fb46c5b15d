//! The body of a mind that cares for one guest of its own: a build of an image, a declared machine.
//!
//! ```text
//! herd ── command ──▶ body ── event ──▶ mind ──▶ effects
//!   ▲                   │                          │
//!   └──── report ◀──────┘ queue: record ▶ journal, call ▶ port ▶ answer
//! ```
//!
//! - It owns the queue of effects and the timer. It makes no decision.
//! - What is particular to a kind (its mind, its entry in the journal, its calls) is a [`Life`].
//! - Nothing behind a record runs before the journal has taken the record (book: safety, rule 1).
//! - No call that changes something is made while something speaks for another drover that may use
//!   the same guest.
//!
//! Failure paths: a record that is not written is tried again, and the queue waits; another drover
//! that leads ends the actor; after a panic the guest is adopted as after a restart of the service.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, Supervised,
    WrapFuture,
};
use drover_model::fact::{Fact, What};
use drover_model::id::{Attempt, CloudId, ClusterId};
use drover_model::ports::{JournalFault, Ports};
use drover_model::record::{Body, RECORD_VERSION, Record};
use drover_model::state_machine::StateMachine;
use drover_model::time::Moment;
use drover_runtime::supervise::{count_message, limit_turns};
use futures_util::future::LocalBoxFuture;

use crate::birth::Common;
use crate::records::try_append;

/// The pause before a failed append is repeated.
const APPEND_PAUSE: Duration = Duration::from_secs(1);
/// The pause before a call is made for which no way to the cluster was known.
const WAY_PAUSE: Duration = Duration::from_secs(5);
/// The pauses after which the mind hears that there is no way.
const WAY_TRIES: u32 = 6;

/// What every mind of a [`Life`] hears from its body.
pub(crate) enum Heard<A> {
    /// The actor runs.
    Begin,
    /// The intent to make the guest is durable, with this sequence.
    Intended(u64),
    /// A call was not made, and why.
    Held(Attempt, String),
    /// The result of a call.
    Answer(Attempt, A),
    /// The timer of [`Deed::WakeAt`].
    Wake(Attempt),
}

/// What the body does with an effect.
pub(crate) enum Deed<C, S, E> {
    /// Append it; later deeds wait until the journal has it.
    Record(Body),
    /// Make this call.
    Ask(Attempt, C),
    /// Wake the mind at this moment, in place of the last such moment.
    WakeAt(Attempt, Moment),
    /// Show how it is.
    Report(Box<S>),
    /// What only this kind does.
    Own(E),
    /// Nothing of it is left to do.
    End,
}

/// The deed of an effect of this kind.
pub(crate) type DeedOf<L> =
    Deed<<L as Life>::Call, <L as Life>::Status, <<L as Life>::Mind as StateMachine>::Effect>;

/// What is particular to one kind of guest that a body cares for.
pub(crate) trait Life: Sized + 'static {
    /// Its role, with the knowledge that this opens to it.
    type Role: 'static;
    /// What the journal knows of one.
    type Entry: 'static;
    type Mind: StateMachine<Event: From<Heard<Self::Answer>>, Effect: 'static> + 'static;
    type Call: fmt::Debug + 'static;
    type Answer: 'static;
    type Status: Clone;

    /// The mind, of what the journal knows; none where nothing is left to do.
    fn begin(&self, known: Option<&Self::Entry>) -> Option<Self::Mind>;
    /// What the journal knows once it has this record.
    fn know(&self, known: Option<Self::Entry>, record: &Record) -> Option<Self::Entry>;
    /// Counts the incarnations of the actor.
    fn incarnation(&mut self) -> &mut u32;
    /// Whether this record is the intent to make the guest.
    fn is_intent(body: &Body) -> bool;
    fn deed(effect: <Self::Mind as StateMachine>::Effect) -> DeedOf<Self>;

    /// Whether another drover on this installation may know the same guest. `adopted` says whether
    /// the journal knew it when the service started.
    fn may_be_shared(&self, adopted: bool) -> bool;
    /// Whether the mind waits for the answer to this call.
    fn awaits(mind: &Self::Mind, attempt: Attempt) -> bool;
    /// What the mind is in, as people read it.
    fn phase(mind: &Self::Mind) -> &'static str;
    /// Logs that the mind is in another phase than before.
    fn moved(&self, mind: &Self::Mind, from: &'static str);
    /// How it is called in the log.
    fn name(&self) -> String;
    /// Whether the call may change something on the cluster.
    fn changes(call: &Self::Call) -> bool;
    /// The cloud and the cluster that its calls go to; none before the cluster is known.
    fn leads(&self, mind: &Self::Mind) -> (CloudId, Option<ClusterId>);
    /// The future of a call's answer. `None` where the mind knows too little for it.
    fn call(
        call: Self::Call,
        mind: &Self::Mind,
        cloud: CloudId,
        ports: &Ports,
    ) -> Option<LocalBoxFuture<'static, Self::Answer>>;

    /// The status as a fact for the read side.
    fn fact(status: Box<Self::Status>) -> What;
    /// Reports to the herd how it is.
    fn report(&self, status: Box<Self::Status>);
    /// Does what only this kind does; returns what is to be shown of it.
    fn own(&self, effect: <Self::Mind as StateMachine>::Effect) -> Option<What>;
    /// Reports to the herd that it is over, and everything of it durable.
    fn over(&self);
    /// The actor panicked and begins again.
    fn restarting(&self) {}
}

/// The event of this kind's mind.
pub(crate) type EventOf<L> = <<L as Life>::Mind as StateMachine>::Event;

/// The actor of one guest.
pub(crate) struct Embodied<L: Life> {
    common: Common<L::Role>,
    pub(crate) life: L,
    /// Whether the journal knew it when this actor was made.
    adopted: bool,
    /// What the journal knows of it. A panic takes neither this nor the appends under way.
    known: Option<L::Entry>,
    appending: u32,
    mind: Option<L::Mind>,
    queue: VecDeque<DeedOf<L>>,
    /// Whether a record on its way holds the queue.
    writing: bool,
    timer: u64,
}

/// No part of it is pinned.
impl<L: Life> Unpin for Embodied<L> {}

impl<L: Life> Embodied<L> {
    /// One that begins, or one that the journal knows.
    pub(crate) fn of(common: Common<L::Role>, life: L, known: Option<L::Entry>) -> Self {
        Self {
            common,
            life,
            adopted: known.is_some(),
            known,
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
        self.mind = self.life.begin(self.known.as_ref());
        match self.mind {
            Some(_) => self.feed(Heard::Begin.into(), ctx),
            None => self.carry_out(Deed::End, ctx),
        }
    }

    /// Steps the mind and takes over its effects.
    pub(crate) fn feed(&mut self, event: EventOf<L>, ctx: &mut Context<Self>) {
        let ambient = &self.common.ports.ambient;
        let (now, draw) = (ambient.now(), ambient.draw());
        let Some(mind) = &mut self.mind else { return };
        let before = L::phase(mind);
        let effects = mind.effects_of(event, now, draw);
        if before != L::phase(mind) {
            self.life.moved(mind, before);
        }
        for effect in effects {
            match L::deed(effect) {
                // Neither waits for a record.
                deed @ (Deed::Report(_) | Deed::WakeAt(..)) => self.carry_out(deed, ctx),
                deed @ (Deed::Record(_) | Deed::Ask(..) | Deed::Own(_) | Deed::End) => {
                    self.queue.push_back(deed);
                }
            }
        }
        self.pump(ctx);
    }

    /// Carries out the queue up to the next record.
    fn pump(&mut self, ctx: &mut Context<Self>) {
        while !self.writing {
            let Some(deed) = self.queue.pop_front() else { return };
            self.carry_out(deed, ctx);
        }
    }

    fn carry_out(&mut self, deed: DeedOf<L>, ctx: &mut Context<Self>) {
        match deed {
            Deed::Record(body) => self.append(body, ctx),
            Deed::Ask(attempt, call) => self.ask(attempt, call, 0, ctx),
            Deed::WakeAt(attempt, at) => self.wake_at(attempt, at, ctx),
            Deed::Report(status) => {
                self.show(L::fact(status.clone()));
                self.life.report(status);
            }
            Deed::Own(effect) => {
                if let Some(what) = self.life.own(effect) {
                    self.show(what);
                }
            }
            Deed::End => {
                self.life.over();
                ctx.stop();
            }
        }
    }

    fn show(&self, what: What) {
        let at = self.common.ports.ambient.now().wall;
        self.common.ports.observer.observe(Fact { at, what });
    }

    /// Appends a record, as a task that a panic of the actor does not end; nothing behind it runs
    /// before it is durable.
    fn append(&mut self, body: Body, ctx: &mut Context<Self>) {
        self.writing = true;
        self.appending += 1;
        let (epoch, incarnation) = (self.common.run.epoch, *self.life.incarnation());
        let Ports { journal, ambient, .. } = &self.common.ports;
        let (journal, ambient) = (Arc::clone(journal), Arc::clone(ambient));
        let to = ctx.address().recipient();
        actix::spawn(async move {
            let done = try_append(&journal, vec![body.clone()]).await.map(|seq| {
                let (version, wall_time) = (RECORD_VERSION, ambient.now().wall);
                Box::new(Record { version, seq, epoch, wall_time, body: body.clone() })
            });
            to.do_send(Appended { incarnation, done, body });
        });
    }

    /// Makes a call, unless the mind no longer waits for it; it waited for a way so many times.
    fn ask(&mut self, attempt: Attempt, call: L::Call, waited: u32, ctx: &mut Context<Self>) {
        let Some(mind) = self.mind.as_ref().filter(|mind| L::awaits(mind, attempt)) else { return };
        if self.life.may_be_shared(self.adopted)
            && L::changes(&call)
            && let Some(why) = self.common.restraint.why()
        {
            return self.feed(Heard::Held(attempt, why).into(), ctx);
        }
        let (named, cluster) = self.life.leads(mind);
        let way = cluster.and_then(|cluster| self.common.ways.through(&named, &cluster));
        let Some(cloud) = way else {
            if waited >= WAY_TRIES {
                let why = format!("cloud `{named}` does not lead to its cluster yet");
                return self.feed(Heard::Held(attempt, why).into(), ctx);
            }
            ctx.run_later(WAY_PAUSE, move |actor, ctx| actor.ask(attempt, call, waited + 1, ctx));
            return;
        };
        tracing::debug!(subject = self.life.name(), %attempt, ?call, "call");
        if let Some(answer) = L::call(call, mind, cloud, &self.common.ports) {
            ctx.spawn(answer.into_actor(self).map(move |answer, actor, ctx| {
                actor.feed(Heard::Answer(attempt, answer).into(), ctx);
            }));
        }
    }

    fn wake_at(&mut self, attempt: Attempt, at: Moment, ctx: &mut Context<Self>) {
        self.timer += 1;
        let timer = self.timer;
        let pause = at - self.common.ports.ambient.now().mono;
        ctx.run_later(pause, move |actor, ctx| {
            if actor.timer == timer {
                actor.feed(Heard::Wake(attempt).into(), ctx);
            }
        });
    }
}

impl<L: Life> Actor for Embodied<L> {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        limit_turns(ctx);
        self.begin(ctx);
    }
}

impl<L: Life> Supervised for Embodied<L> {
    /// What the journal knows is looked up; what has no guest begins again.
    fn restarting(&mut self, _: &mut Context<Self>) {
        *self.life.incarnation() += 1;
        (self.mind, self.writing) = (None, false);
        self.queue.clear();
        self.life.restarting();
    }
}

/// A record is durable, or not.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Appended {
    /// The incarnation of the actor that appended it.
    incarnation: u32,
    done: Result<Box<Record>, JournalFault>,
    body: Body,
}

impl<L: Life> Handler<Appended> for Embodied<L> {
    type Result = ();

    fn handle(&mut self, appended: Appended, ctx: &mut Context<Self>) {
        count_message(ctx);
        let Appended { incarnation, done, body } = appended;
        self.appending = self.appending.saturating_sub(1);
        if let Ok(record) = &done {
            self.known = self.life.know(self.known.take(), record);
        }
        if incarnation != *self.life.incarnation() {
            return;
        }
        match done {
            Ok(record) => {
                self.writing = false;
                if L::is_intent(&body) {
                    self.feed(Heard::Intended(record.seq).into(), ctx);
                }
                self.pump(ctx);
            }
            Err(JournalFault::Fenced) => ctx.stop(),
            Err(fault @ JournalFault::Failed(_)) => {
                tracing::warn!(subject = self.life.name(), error = %fault, "record not written");
                ctx.run_later(APPEND_PAUSE, move |actor, ctx| actor.append(body, ctx));
            }
        }
    }
}
