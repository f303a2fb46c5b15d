//! One agent: the mind that decides ([`mind`]) and the thin actix body that carries it out.
//!
//! The body owns no decision. It steps the mind with what comes in, and runs the effects that come
//! out: reports and pictures at once, everything else in order, and nothing past a record before the
//! journal has taken it. Handlers never await.

mod address;
mod adopt;
mod alive;
pub mod boots;
pub mod carry;
mod doubt;
pub mod event;
mod hear;
mod hold;
pub mod hold_next;
mod image;
mod keys;
pub mod lessons;
pub mod mind;
pub mod picture;
mod prepare;
mod provision;
mod reset;
mod retire;
mod serve;
pub mod shadow;
pub mod state;
mod strand;
#[cfg(test)]
mod testing;

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, Supervised,
    WrapFuture,
};
use futures_util::future::{AbortHandle, abortable};

pub use event::{Answer, Call, Effect, Event, Guest};
use lessons::{Lesson, Taught};
pub use mind::{Mind, step};
pub use shadow::{Progress, Shadow};
pub use state::State;

use crate::birth::{AgentBirth, AgentSpawner, GiveUp, Start};
use crate::demand::runners::End;
use crate::doubts::{Path, Spot};
use crate::message::{AgentCommand, AgentReport, IdBack, LaneAsk, LaneFree, Standing};
use drover_model::fact::{Fact, What};
use drover_model::fault::Fault;
use drover_model::id::{Attempt, LeaseId};
use drover_model::ledger::RunnerEntry;
use drover_model::ports::AddressSight;
use drover_model::record::Body;
use drover_model::time::Moment;
use drover_runtime::supervise::{
    AGENT_NAME_PREFIX, GivenUp, RestartLimit, SupervisionOptions, count_message, limit_turns,
    supervise,
};

/// What a herd starts its agents with: each under supervision of its own.
pub fn spawner(give_up: GiveUp) -> AgentSpawner {
    Arc::new(move |birth| {
        let give_up = Arc::clone(&give_up);
        start(birth, move |what| give_up(what)).recipient()
    })
}

/// Starts an agent under supervision; its address survives restarts.
pub fn start(birth: AgentBirth, on_give_up: impl FnOnce(GivenUp) + 'static) -> Addr<Agent> {
    let options = SupervisionOptions {
        name: format!("{AGENT_NAME_PREFIX}{}", birth.id),
        restart_limit: RestartLimit::LEAF,
        observer: Arc::clone(&birth.ports.observer),
        ambient: Arc::clone(&birth.ports.ambient),
        census: birth.census.clone(),
        on_give_up: Box::new(on_give_up),
    };
    supervise(options, |_| Agent::new(birth))
}

/// The body of one agent.
pub struct Agent {
    birth: Rc<AgentBirth>,
    shadow: Rc<Shadow>,
    incarnation: u32,
    /// Absent until what the journal knows is settled.
    mind: Option<Mind>,
    queue: VecDeque<Effect>,
    /// The record whose append holds the queue.
    writing: Option<u64>,
    writes: u64,
    /// Its last report, and the lease whose end is being written.
    told: Option<AgentReport>,
    ending: Option<LeaseId>,
    alarm: Option<AbortHandle>,
}

impl Agent {
    fn new(birth: AgentBirth) -> Self {
        let shadow = Shadow::new(
            birth.id.clone(),
            birth.epoch,
            Arc::clone(&birth.ports.journal),
            Arc::clone(&birth.ports.ambient),
            match &birth.start {
                Start::Fresh => None,
                Start::Adopted { entry, .. } => Some((**entry).clone()),
            },
        );
        Self::build(Rc::new(birth), Rc::new(shadow), 0)
    }

    fn build(birth: Rc<AgentBirth>, shadow: Rc<Shadow>, incarnation: u32) -> Self {
        Self {
            birth,
            shadow,
            incarnation,
            mind: None,
            queue: VecDeque::new(),
            writing: None,
            writes: 0,
            told: None,
            ending: None,
            alarm: None,
        }
    }

    /// Makes the mind from what the journal knows, and lets it begin.
    fn begin(&mut self, ctx: &mut Context<Self>) {
        if self.shadow.resting() {
            return ctx.stop();
        }
        let (birth, now) = (Rc::clone(&self.birth), self.birth.ports.ambient.now());
        let mut mind = match self.shadow.entry() {
            Some(entry) => {
                let down = match &birth.start {
                    Start::Adopted { down, .. } if self.incarnation == 0 => *down,
                    Start::Adopted { .. } | Start::Fresh => Duration::ZERO,
                };
                Mind::adopt(&entry, down, birth.epoch, self.incarnation, now)
            }
            None => {
                let mut mind = Mind::new(
                    birth.id.clone(),
                    birth.installation.clone(),
                    Arc::clone(&birth.spec),
                    birth.epoch,
                    self.incarnation,
                    now,
                );
                if self.incarnation > 0 {
                    mind.give_up_unborn(self.shadow.granted(), self.shadow.gone());
                }
                mind
            }
        };
        mind.own(birth.addresses.of(&birth.id));
        self.mind = Some(mind);
        self.feed(Event::Begin, ctx);
        if self.incarnation > 0 {
            for order in self.shadow.orders() {
                self.feed(Event::Command(order), ctx);
            }
        }
    }

    /// Steps the mind and takes its effects on.
    fn feed(&mut self, event: Event, ctx: &mut Context<Self>) {
        let ambient = &self.birth.ports.ambient;
        let (now, draw) = (ambient.now(), ambient.draw());
        let Some(mind) = &mut self.mind else { return };
        mind.teach(self.birth.boots.early());
        let id = &self.birth.spec.id;
        mind.know(Taught {
            worth: self.birth.resets.worth(id),
            hold_next: self.birth.hold_next.of(id),
        });
        let before = mind.state().name();
        let effects = step(mind, event, now, draw);
        let after = mind.state().name();
        let reached_at = mind.reached_at();
        self.birth.addresses.settle(&self.birth.id, reached_at);
        if before != after {
            let leaving = mind.state().leaving().map(ToString::to_string);
            let detail = Some(mind.detail().to_owned()).filter(|text| !text.is_empty());
            let reason =
                leaving.or(detail).unwrap_or_else(|| state::usual(before, after).to_owned());
            tracing::info!(
                agent = %self.birth.id,
                template = %self.birth.spec.id,
                vmid = mind.guest().map(|guest| guest.marks.vmid.0),
                from = before,
                to = after,
                reason,
                "agent moved"
            );
        }
        if effects.as_slice() == [Effect::End] {
            // A rest: what still waits for the journal must not be carried out.
            self.queue.clear();
            self.shadow.close();
            return ctx.stop();
        }
        let mut reports = Vec::new();
        for effect in effects {
            match effect {
                Effect::Report(report) => reports.push(*report),
                Effect::WakeAt(attempt, at) => self.wake_at(attempt, at, ctx),
                // A picture tells what hinders it, a journal that can not be written too.
                Effect::Observe(what) if matches!(*what, What::Agent(_)) => self.show(*what),
                // At once: two may fail in the same moment, and one is held.
                Effect::HeldAsNext => self.held_as_next(),
                // At once: whoever waits behind it must not begin meanwhile.
                Effect::Doubted(fault) => self.doubted(&fault),
                Effect::CloneAccepted => self.clone_accepted(),
                effect @ (Effect::Record(_)
                | Effect::Observe(_)
                | Effect::LaneAsk
                | Effect::LaneFree(_)
                | Effect::IdBack { .. }
                | Effect::Ask(..)
                | Effect::Booted(_)
                | Effect::Learnt(_)
                | Effect::Hired(..)
                | Effect::Ended(..)
                | Effect::TooOld(..)
                | Effect::NotHired(..)
                | Effect::End) => self.queue.push_back(effect),
            }
        }
        reports.into_iter().for_each(|report| self.report(report));
        self.pump(ctx);
    }

    /// Tells the template where the agent stands. A lease whose end is not durable yet is still on
    /// it: by this its release is answered.
    fn report(&mut self, report: AgentReport) {
        if let Some(fault) = &report.fault {
            let template = &self.birth.spec.id;
            tracing::warn!(agent = %self.birth.id, %template, error = %fault, "agent failed");
        }
        report.refused.iter().for_each(|lease| self.shadow.refused(lease));
        let waiting = self.queue.iter().filter_map(|effect| match effect {
            Effect::Record(body) => ended_by(body),
            Effect::Report(_)
            | Effect::WakeAt(..)
            | Effect::Observe(_)
            | Effect::LaneAsk
            | Effect::LaneFree(_)
            | Effect::IdBack { .. }
            | Effect::Ask(..)
            | Effect::Booted(_)
            | Effect::Learnt(_)
            | Effect::Hired(..)
            | Effect::Ended(..)
            | Effect::TooOld(..)
            | Effect::NotHired(..)
            | Effect::HeldAsNext
            | Effect::CloneAccepted
            | Effect::Doubted(_)
            | Effect::End => None,
        });
        let ends: Vec<LeaseId> = waiting.chain(&self.ending).cloned().collect();
        self.told = Some(AgentReport { fault: None, refused: Vec::new(), ..report.clone() });
        let mut leases = report.leases.clone();
        leases.extend(ends.into_iter().filter(|lease| !report.leases.contains(lease)));
        // Whoever is gone is not heard any more: that must be its last word.
        let unfinished = report.standing == Standing::Gone && !leases.is_empty();
        let standing = if unfinished { Standing::Leaving } else { report.standing };
        self.birth.report.do_send(AgentReport { leases, standing, ..report });
    }

    /// Carries out what waits, up to the next record.
    fn pump(&mut self, ctx: &mut Context<Self>) {
        while self.writing.is_none() {
            let Some(effect) = self.queue.pop_front() else { return };
            self.carry_out(effect, ctx);
        }
    }

    fn carry_out(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        let agent = self.birth.id.clone();
        let lanes = &self.birth.lanes;
        match effect {
            Effect::Record(mut body) => {
                self.writes += 1;
                let (n, incarnation) = (self.writes, self.incarnation);
                self.writing = Some(n);
                self.ending = ended_by(&body).cloned();
                if matches!(body, Body::AddressAssigned { .. }) {
                    self.birth.addresses.speak(&agent);
                }
                if let Body::RunnerIntended { agent, lease, source, runner, place } = &mut body {
                    *place = self.birth.runners.place(source);
                    let (agent, lease) = (agent.clone(), lease.clone());
                    let (place, rows) = (*place, BTreeSet::new());
                    let entry = RunnerEntry { agent, lease, began: 0, place, rows };
                    let now = self.birth.ports.ambient.now().mono;
                    self.birth.runners.intend(source, runner, entry, now);
                }
                let address = ctx.address();
                self.shadow.append(body, move |progress| {
                    address.do_send(Appended { incarnation, n, progress });
                });
            }
            Effect::Observe(what) => self.show(*what),
            Effect::LaneAsk => {
                let (spec, reply) = (Arc::clone(&self.birth.spec), ctx.address().recipient());
                lanes.ask.do_send(LaneAsk { agent, spec, reply });
            }
            Effect::LaneFree(end) => lanes.free.do_send(LaneFree { agent, end }),
            Effect::IdBack { vmid, burned } => lanes.id_back.do_send(IdBack { vmid, burned }),
            Effect::Ask(attempt, call) => self.ask(attempt, call, ctx),
            Effect::Booted(booted) => self.birth.boots.note(booted),
            Effect::Learnt(lesson) => self.learnt(lesson),
            Effect::HeldAsNext => self.held_as_next(),
            Effect::Doubted(fault) => self.doubted(&fault),
            Effect::CloneAccepted => self.clone_accepted(),
            Effect::Hired(source, runner) => {
                let now = self.birth.ports.ambient.now().mono;
                self.birth.runners.hired(&source, &runner, now);
            }
            Effect::Ended(source, runner, how, ago) => {
                let at = self.birth.ports.ambient.now().mono;
                let end = End { at, over: at.before(ago), how };
                self.birth.runners.ended(&source, &runner, end);
            }
            Effect::TooOld(source, runner, told) => {
                self.birth.runners.too_old(&source, &runner, *told);
            }
            Effect::NotHired(source, runner, text) => {
                self.birth.runners.refused(&source, &runner, text);
            }
            Effect::End => ctx.stop(),
            Effect::Report(report) => self.report(*report),
            Effect::WakeAt(attempt, at) => self.wake_at(attempt, at, ctx),
        }
    }

    fn learnt(&self, lesson: Lesson) {
        let id = &self.birth.spec.id;
        if let Some(refusal) = self.birth.resets.note(id, lesson) {
            tracing::warn!(template = %id, refusal, "agents can not be reset and are destroyed");
        }
        let resets = self.birth.resets.picture(id);
        self.show(What::Resets { template: id.clone(), resets });
    }

    /// What became of its clone is unknown: clones that would end the same way are held back.
    fn doubted(&self, fault: &Fault) {
        let Some(mind) = &self.mind else { return };
        let Some(guest) = mind.guest() else { return };
        let (cluster, cloud) = (&guest.marks.cluster, &mind.spec().id.cloud);
        let Some(spot) = Spot::of(fault, cluster, cloud) else { return };
        tracing::warn!(agent = %self.birth.id, ?spot, error = %fault, "clones are held back");
        let ambient = &self.birth.ports.ambient;
        let (now, draw) = (ambient.now(), ambient.draw());
        self.birth.doubts.doubt(&self.birth.id, spot, &fault.text, now, draw);
    }

    fn clone_accepted(&self) {
        let Some(mind) = &self.mind else { return };
        let Some(guest) = mind.guest() else { return };
        let home = mind.spec().home(&guest.node);
        self.birth.doubts.accepted(Path {
            cluster: &guest.marks.cluster,
            cloud: &mind.spec().id.cloud,
            nodes: [Some(&home), Some(&guest.node)],
        });
    }

    fn held_as_next(&self) {
        let id = &self.birth.spec.id;
        self.birth.hold_next.take(id, &self.birth.id);
        tracing::info!(agent = %self.birth.id, template = %id, "the failure waited for is held");
        self.show(What::HoldNext { template: id.clone(), seconds: None });
    }

    fn show(&self, what: What) {
        let at = self.birth.ports.ambient.now().wall;
        self.birth.ports.observer.observe(Fact { at, what });
    }

    /// Makes a call, unless the mind has gone on while it waited behind a record.
    fn ask(&mut self, attempt: Attempt, call: Call, ctx: &mut Context<Self>) {
        self.find_way(ctx);
        let Some(mind) = self.mind.as_ref().filter(|mind| mind.awaits(attempt)) else {
            return self.feed(Event::Unmade(attempt), ctx);
        };
        let Some(guest) = mind.guest() else { return };
        tracing::debug!(agent = %self.birth.id, %attempt, ?call, "agent asks");
        let why = self.birth.restraint.of(&self.birth.id);
        if let Some(answer) = why.and_then(|why| call.withheld(why)) {
            return self.feed(Event::Answer(attempt, answer), ctx);
        }
        let own = &mind.spec().id.cloud;
        let way = self.birth.ways.through(own, &guest.marks.cluster);
        let Some(cloud) = way.or_else(|| call.goes_to_guest().then(|| own.clone())) else {
            let text = format!("waits until cloud `{own}` has said to which cluster it leads");
            self.feed(Event::Unproven(text), ctx);
            let change = self.birth.ways.change();
            ctx.spawn(change.into_actor(self).map(move |(), agent, ctx| {
                agent.ask(attempt, call, ctx);
            }));
            return;
        };
        if let Some(answer) = carry::carry(call, mind, cloud, &self.birth.ports) {
            ctx.spawn(answer.into_actor(self).map(move |answer, agent, ctx| {
                let answer = agent.checked(answer);
                agent.feed(Event::Answer(attempt, answer), ctx);
            }));
        }
    }

    /// An address that a guest tells counts only where no other agent is reached there.
    fn checked(&self, answer: Answer) -> Answer {
        let Answer::Addressed(Ok(AddressSight::At(address))) = answer else { return answer };
        match self.birth.addresses.objection(&self.birth.id, address) {
            Some(why) => {
                tracing::warn!(agent = %self.birth.id, %address, why, "address is refused");
                Answer::Addressed(Ok(AddressSight::NotYet(why)))
            }
            None => answer,
        }
    }

    /// Tells the mind when there is no way to its guest any more, or one again.
    fn find_way(&mut self, ctx: &mut Context<Self>) {
        let Some(mind) = &self.mind else { return };
        let Some(guest) = mind.guest() else { return };
        let cut_off = self.birth.ways.cut_off(&mind.spec().id.cloud, &guest.marks.cluster);
        if cut_off != mind.is_cut_off() {
            self.feed(Event::CutOff(cut_off), ctx);
        }
    }

    fn wake_at(&mut self, attempt: Attempt, at: Moment, ctx: &mut Context<Self>) {
        if let Some(alarm) = self.alarm.take() {
            alarm.abort();
        }
        let span = at - self.birth.ports.ambient.now().mono;
        let (sleep, alarm) = abortable(tokio::time::sleep(span));
        self.alarm = Some(alarm);
        ctx.spawn(sleep.into_actor(self).map(move |outcome, agent, ctx| {
            if outcome.is_ok() {
                agent.feed(Event::Wake(attempt), ctx);
            }
        }));
    }
}

/// The lease whose end a record is.
fn ended_by(body: &Body) -> Option<&LeaseId> {
    if let Body::LeaseEnded { lease, .. } = body { Some(lease) } else { None }
}

impl Actor for Agent {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        limit_turns(ctx);
        if self.incarnation == 0 {
            return self.begin(ctx);
        }
        // Appends of the incarnation before may still be under way; the mailbox waits too.
        let shadow = Rc::clone(&self.shadow);
        let settled = async move { shadow.settled().await };
        ctx.wait(settled.into_actor(self).map(|(), agent, ctx| agent.begin(ctx)));
    }
}

impl Supervised for Agent {
    fn restarting(&mut self, _: &mut Context<Self>) {
        let (birth, shadow) = (Rc::clone(&self.birth), Rc::clone(&self.shadow));
        *self = Self::build(birth, shadow, self.incarnation + 1);
    }
}

impl Handler<AgentCommand> for Agent {
    type Result = ();

    fn handle(&mut self, command: AgentCommand, ctx: &mut Context<Self>) {
        count_message(ctx);
        self.shadow.hear(&command);
        self.feed(Event::Command(command), ctx);
    }
}

/// From the append's task: how it goes on.
#[derive(Message)]
#[rtype(result = "()")]
struct Appended {
    incarnation: u32,
    n: u64,
    progress: Progress,
}

impl Handler<Appended> for Agent {
    type Result = ();

    fn handle(&mut self, appended: Appended, ctx: &mut Context<Self>) {
        count_message(ctx);
        if appended.incarnation != self.incarnation || self.writing != Some(appended.n) {
            return;
        }
        match appended.progress {
            Progress::Taken(seq) => {
                self.writing = None;
                if self.ending.take().is_some()
                    && let Some(report) = self.told.clone()
                {
                    self.report(report);
                }
                if let Some(seq) = seq {
                    self.feed(Event::Intended { seq }, ctx);
                }
                self.pump(ctx);
            }
            Progress::Failed(text) => self.feed(Event::JournalFailed(text), ctx),
            Progress::Fenced => {
                self.writing = None;
                self.feed(Event::Fenced, ctx);
            }
        }
    }
}

#[cfg(test)]
#[expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::wildcard_enum_match_arm,
    reason = "tests"
)]
mod tests;
