//! One agent: the mind that decides ([`mind`]) and the actix body in this file that carries its
//! effects out.
//!
//! The body owns the mailbox, the queue of effects and the timer. It makes no decision.
//!
//! ```text
//! AgentCommand, answers, timer ──▶ feed ──▶ Mind::step(event, now, turn) ──▶ effects
//!                                                                              │
//!   at once: reports, status, timer, doubts ◀──────────────────────────────────┤
//!   in order: queue ──▶ pump ──▶ record ──▶ journal (the queue waits) ◀────────┘
//!                        └─────▶ call ───▶ port ──▶ Event::Answer
//! ```
//!
//! In: [`AgentCommand`] from template, cluster, reconciler and herd; answers of ports; the
//! journal's progress. Out: [`AgentReport`] to the template, [`LaneAsk`], [`LaneFree`] and
//! [`IdBack`] to the cluster, records to the journal, calls to the ports, status to the read side.
//!
//! Nothing behind a record runs before the journal has taken the record (book: safety, rule 1).
//! Handlers never await.
//!
//! Failure paths:
//! - The journal fails: `journal_view.rs` tries the append again, and the queue waits.
//! - Another drover leads (`Fenced`): the mind forgets everything and the actor ends.
//! - A panic: the supervisor restarts the actor with the next incarnation. `adopt.rs` makes its
//!   mind again from what the journal knows. Answers to the old incarnation are dropped.
//! - No cloud leads to the guest's cluster: a call waits (`Unproven`), or the agent is cut off.
//!
//! Parts of the mind, each with private fields: `leases.rs`, `keys.rs`, `usage.rs`, `holding.rs`,
//! `in_flight.rs`, `timers.rs`, `tries.rs`, `concurrency_place.rs`, `reachability.rs`, `address.rs`,
//! `adoption.rs`, `boots.rs`, `alive.rs`, `machine.rs`, `report.rs`.
//!
//! What the mind decides: `mind.rs` (`step`), `dispatch.rs`, `verify_clone.rs`, `provision.rs`,
//! `prepare.rs`, `leasing.rs`, `orders.rs`, `settle.rs`, `reset.rs`, `hold.rs`, `retire.rs`, `strand.rs`, `adopt.rs`, `image.rs`,
//! `status.rs`. Its words: `state.rs` (states), `event.rs` (events, calls, effects).
//!
//! Beside it: `port_calls.rs` (calls of ports), `journal_view.rs` (the journal's view of this agent),
//! `history.rs` (what the agents of one template have shown) and `hold_next.rs`.

mod address;
mod adopt;
mod adoption;
mod alive;
pub mod boots;
mod concurrency_place;
mod dispatch;
pub mod event;
mod hold;
mod holding;
mod image;
mod in_flight;
pub mod journal_view;
mod keys;
mod leases;
mod leasing;
mod machine;
pub mod mind;
mod order_keys;
mod orders;
mod port_calls;
mod prepare;
mod provision;
mod reachability;
mod report;
mod reset;
mod retire;
mod said;
mod settle;
pub mod state;
pub mod status;
mod strand;
#[cfg(test)]
mod testing;
mod timers;
mod tries;
mod usage;
mod verify_clone;

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, Supervised,
    WrapFuture,
};
use futures_util::future::{AbortHandle, abortable};

use crate::reset_stats::{ResetStats, TemplateHints};
pub use event::{Answer, Call, Effect, Event, Guest};
pub use journal_view::{JournalView, Progress};
pub use mind::Mind;
pub use state::State;

use crate::birth::{AgentBirth, AgentSpawner, Common, GiveUp, Start};
use crate::doubts::{Path, Spot};
use crate::message::{AgentCommand, AgentReport, IdBack, LaneAsk, LaneFree};
use crate::runners::End;
use drover_model::fact::{Fact, What};
use drover_model::fault::Fault;
use drover_model::id::{Attempt, LeaseId};
use drover_model::journal_state::RunnerEntry;
use drover_model::ports::AddressObservation;
use drover_model::record::Body;
use drover_model::state_machine::StateMachine as _;
use drover_model::status::Standing;
use drover_model::time::Moment;
use drover_runtime::supervise::{
    AGENT_NAME_PREFIX, GivenUp, RestartLimit, SupervisionOptions, count_message, limit_turns,
    supervise,
};

/// Returns the function that starts a herd's agents, each under supervision of its own.
pub fn spawner(give_up: GiveUp) -> AgentSpawner {
    Arc::new(move |birth| {
        let give_up = Arc::clone(&give_up);
        start(birth, move |what| give_up(what)).recipient()
    })
}

/// Starts an agent under supervision. The address survives restarts.
pub fn start(birth: AgentBirth, on_give_up: impl FnOnce(GivenUp) + 'static) -> Addr<Agent> {
    let options = SupervisionOptions {
        name: format!("{AGENT_NAME_PREFIX}{}", birth.id),
        restart_limit: RestartLimit::LEAF,
        observer: Arc::clone(&birth.common.ports.observer),
        ambient: Arc::clone(&birth.common.ports.ambient),
        census: birth.common.supervision.census.clone(),
        on_give_up: Box::new(on_give_up),
    };
    supervise(options, |_| Agent::new(birth))
}

pub struct Agent {
    birth: Rc<AgentBirth>,
    journal_view: Rc<JournalView>,
    incarnation: u32,
    /// `None` until the state of the journal is settled.
    mind: Option<Mind>,
    queue: VecDeque<Effect>,
    /// The record whose append holds the queue.
    writing: Option<u64>,
    writes: u64,
    /// The last report. `ending` is the lease whose end is being written.
    reported: Option<AgentReport>,
    ending: Option<LeaseId>,
    alarm: Option<AbortHandle>,
}

impl Agent {
    fn new(birth: AgentBirth) -> Self {
        let journal_view = JournalView::new(
            birth.id.clone(),
            birth.common.run.epoch,
            Arc::clone(&birth.common.ports.journal),
            Arc::clone(&birth.common.ports.ambient),
            match &birth.start {
                Start::Fresh => None,
                Start::Adopted { entry, .. } => Some((**entry).clone()),
            },
        );
        Self::build(Rc::new(birth), Rc::new(journal_view), 0)
    }

    fn build(birth: Rc<AgentBirth>, journal_view: Rc<JournalView>, incarnation: u32) -> Self {
        Self {
            birth,
            journal_view,
            incarnation,
            mind: None,
            queue: VecDeque::new(),
            writing: None,
            writes: 0,
            reported: None,
            ending: None,
            alarm: None,
        }
    }

    /// Makes the mind from what the journal knows and starts it.
    fn begin(&mut self, ctx: &mut Context<Self>) {
        if self.journal_view.resting() {
            return ctx.stop();
        }
        let birth = Rc::clone(&self.birth);
        let (run, now) = (&birth.common.run, birth.common.ports.ambient.now());
        let mut mind = match self.journal_view.entry() {
            Some(entry) => {
                let down = match &birth.start {
                    Start::Adopted { down, .. } if self.incarnation == 0 => *down,
                    Start::Adopted { .. } | Start::Fresh => Duration::ZERO,
                };
                Mind::adopt(&entry, down, run.epoch, self.incarnation, now)
            }
            None => {
                let mut mind = Mind::new(
                    birth.id.clone(),
                    run.installation.clone(),
                    Arc::clone(&birth.spec),
                    run.epoch,
                    self.incarnation,
                    now,
                );
                if self.incarnation > 0 {
                    mind.give_up_unborn(self.journal_view.granted(), self.journal_view.gone());
                }
                mind
            }
        };
        mind.own(birth.common.addresses.of(&birth.id));
        self.mind = Some(mind);
        self.feed(Event::Begin, ctx);
        if self.incarnation > 0 {
            for order in self.journal_view.orders() {
                self.feed(Event::Command(order), ctx);
            }
        }
    }

    /// Steps the mind and takes over its effects.
    fn feed(&mut self, event: Event, ctx: &mut Context<Self>) {
        let ambient = &self.birth.common.ports.ambient;
        let (now, draw) = (ambient.now(), ambient.draw());
        let Some(mind) = &mut self.mind else { return };
        let history = &self.birth.history;
        mind.inform(history.early());
        mind.know(TemplateHints {
            worth: history.resets_are_worth_it(),
            hold_next: self.birth.common.hold_next.of(&self.birth.spec.id),
        });
        let before = mind.state().phase();
        let effects = mind.effects_of(event, now, draw);
        let after = mind.state().phase();
        let reached_at = mind.reached_at();
        self.birth.common.addresses.settle(&self.birth.id, reached_at);
        if before != after {
            let leaving = mind.state().leaving().map(ToString::to_string);
            let detail = Some(mind.detail().to_owned()).filter(|text| !text.is_empty());
            let reason =
                leaving.or(detail).unwrap_or_else(|| state::usual(before, after).to_owned());
            tracing::info!(
                agent = %self.birth.id,
                template = %self.birth.spec.id,
                vmid = mind.guest().map(|guest| guest.marks.vmid.0),
                from = before.name(),
                to = after.name(),
                reason,
                "agent moved"
            );
        }
        if effects.as_slice() == [Effect::End] {
            // A rest: effects that still wait for the journal must not be carried out.
            self.queue.clear();
            self.journal_view.close();
            return ctx.stop();
        }
        let mut reports = Vec::new();
        for effect in effects {
            match effect {
                Effect::Report(report) => reports.push(*report),
                Effect::WakeAt(attempt, at) => self.wake_at(attempt, at, ctx),
                // The status shows what delays the agent, an unwritable journal included.
                Effect::Observe(what) if matches!(*what, What::Agent(_)) => self.show(*what),
                // At once: two agents may fail at the same moment, and only one is held.
                Effect::HeldAsNext => self.held_as_next(),
                // At once: clones that wait behind this one must not start meanwhile.
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
                | Effect::RunnerStarted(..)
                | Effect::Ended(..)
                | Effect::TooOld(..)
                | Effect::StartFailed(..)
                | Effect::End) => self.queue.push_back(effect),
            }
        }
        reports.into_iter().for_each(|report| self.report(report));
        self.pump(ctx);
    }

    /// Reports the agent's standing to the template. The report still lists a lease whose end is
    /// not durable yet, because the report without the lease answers its release.
    fn report(&mut self, report: AgentReport) {
        if let Some(fault) = &report.fault {
            let template = &self.birth.spec.id;
            tracing::warn!(agent = %self.birth.id, %template, error = %fault, "agent failed");
        }
        report.refused.iter().for_each(|lease| self.journal_view.refused(lease));
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
            | Effect::RunnerStarted(..)
            | Effect::Ended(..)
            | Effect::TooOld(..)
            | Effect::StartFailed(..)
            | Effect::HeldAsNext
            | Effect::CloneAccepted
            | Effect::Doubted(_)
            | Effect::End => None,
        });
        let ends: Vec<LeaseId> = waiting.chain(&self.ending).cloned().collect();
        self.reported = Some(AgentReport { fault: None, refused: Vec::new(), ..report.clone() });
        let mut report = report;
        let known = &report.status.leases;
        let more: Vec<LeaseId> = ends.into_iter().filter(|lease| !known.contains(lease)).collect();
        if !more.is_empty() {
            Arc::make_mut(&mut report.status).leases.extend(more);
        }
        // The template ignores an agent that is gone. So `Gone` must be the last report.
        if report.status.standing == Standing::Gone && !report.status.leases.is_empty() {
            Arc::make_mut(&mut report.status).standing = Standing::Leaving;
        }
        self.birth.report.do_send(report);
    }

    /// Carries out the queue up to the next record.
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
                    self.birth.common.addresses.speak(&agent);
                }
                if let Body::RunnerIntended { agent, lease, source, runner, place } = &mut body {
                    let runners = &self.birth.common.runners;
                    *place = runners.place(source);
                    let (agent, lease) = (agent.clone(), lease.clone());
                    let (place, rows) = (*place, BTreeSet::new());
                    let entry = RunnerEntry { agent, lease, began: 0, place, rows };
                    runners.intend(source, runner, entry, self.now());
                }
                let address = ctx.address();
                self.journal_view.append(body, move |progress| {
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
            Effect::Booted(booted) => self.birth.history.booted(booted),
            Effect::Learnt(reset_stats) => self.learnt(reset_stats),
            Effect::HeldAsNext => self.held_as_next(),
            Effect::Doubted(fault) => self.doubted(&fault),
            Effect::CloneAccepted => self.clone_accepted(),
            Effect::RunnerStarted(source, runner) => {
                self.birth.common.runners.runner_started(&source, &runner, self.now());
            }
            Effect::Ended(source, runner, how, ago) => {
                let at = self.now();
                let end = End { at, over: at.before(ago), how };
                self.birth.common.runners.ended(&source, &runner, end);
            }
            Effect::TooOld(source, runner, reported) => {
                self.birth.common.runners.too_old(&source, &runner, *reported);
            }
            Effect::StartFailed(source, runner, text) => {
                self.birth.common.runners.refused(&source, &runner, text);
            }
            Effect::End => ctx.stop(),
            Effect::Report(report) => self.report(*report),
            Effect::WakeAt(attempt, at) => self.wake_at(attempt, at, ctx),
        }
    }

    fn now(&self) -> Moment {
        self.birth.common.ports.ambient.now().mono
    }

    fn learnt(&self, reset_stats: ResetStats) {
        let id = &self.birth.spec.id;
        if let Some(refusal) = self.birth.history.learnt(reset_stats) {
            tracing::warn!(template = %id, refusal, "agents cannot be reset and are destroyed");
        }
        let resets = self.birth.history.resets();
        self.show(What::Resets { template: id.clone(), resets });
    }

    /// The outcome of this agent's clone is unknown: hold back clones that would end the same way.
    fn doubted(&self, fault: &Fault) {
        let Some(mind) = &self.mind else { return };
        let Some(guest) = mind.guest() else { return };
        let (cluster, cloud) = (&guest.marks.cluster, &mind.spec().id.cloud);
        let Some(spot) = Spot::of(fault, cluster, cloud) else { return };
        tracing::warn!(agent = %self.birth.id, ?spot, error = %fault, "clones are held back");
        let Common { ports, doubts, .. } = &self.birth.common;
        let (now, draw) = (ports.ambient.now(), ports.ambient.draw());
        doubts.doubt(&self.birth.id, spot, &fault.text, now, draw);
    }

    fn clone_accepted(&self) {
        let Some(mind) = &self.mind else { return };
        let Some(guest) = mind.guest() else { return };
        let home = mind.spec().home(&guest.node);
        self.birth.common.doubts.accepted(Path {
            cluster: &guest.marks.cluster,
            cloud: &mind.spec().id.cloud,
            nodes: [Some(&home), Some(&guest.node)],
        });
    }

    fn held_as_next(&self) {
        let id = &self.birth.spec.id;
        self.birth.common.hold_next.take(id, &self.birth.id);
        tracing::info!(agent = %self.birth.id, template = %id, "the failure waited for is held");
        self.show(What::HoldNext { template: id.clone(), seconds: None });
    }

    fn show(&self, what: What) {
        let ports = &self.birth.common.ports;
        ports.observer.observe(Fact { at: ports.ambient.now().wall, what });
    }

    /// Makes a call, unless the mind no longer waits for it.
    fn ask(&mut self, attempt: Attempt, call: Call, ctx: &mut Context<Self>) {
        self.find_way(ctx);
        let Some(mind) = self.mind.as_ref().filter(|mind| mind.awaits(attempt)) else {
            return self.feed(Event::Unmade(attempt), ctx);
        };
        let Some(guest) = mind.guest() else { return };
        tracing::debug!(agent = %self.birth.id, %attempt, ?call, "agent asks");
        let Common { ports, ways, restraint, .. } = &self.birth.common;
        let why = restraint.of(&self.birth.id);
        if let Some(answer) = why.and_then(|why| call.withheld(why)) {
            return self.feed(Event::Answer(attempt, answer), ctx);
        }
        let own = &mind.spec().id.cloud;
        let way = ways.through(own, &guest.marks.cluster);
        let Some(cloud) = way.or_else(|| call.goes_to_guest().then(|| own.clone())) else {
            let text = format!("waits until cloud `{own}` has said to which cluster it leads");
            self.feed(Event::Unproven(text), ctx);
            let change = self.birth.common.ways.change();
            ctx.spawn(change.into_actor(self).map(move |(), agent, ctx| {
                agent.ask(attempt, call, ctx);
            }));
            return;
        };
        if let Some(answer) = port_calls::make(call, mind, cloud, ports) {
            ctx.spawn(answer.into_actor(self).map(move |answer, agent, ctx| {
                let answer = agent.checked(answer);
                agent.feed(Event::Answer(attempt, answer), ctx);
            }));
        }
    }

    /// An address that a guest reports counts only where no other agent uses it.
    fn checked(&self, answer: Answer) -> Answer {
        let Answer::Addressed(Ok(AddressObservation::At(address))) = answer else { return answer };
        match self.birth.common.addresses.objection(&self.birth.id, address) {
            Some(why) => {
                tracing::warn!(agent = %self.birth.id, %address, why, "address is refused");
                Answer::Addressed(Ok(AddressObservation::NotYet(why)))
            }
            None => answer,
        }
    }

    /// Informs the mind when the last way to its guest is lost, or one is there again.
    fn find_way(&mut self, ctx: &mut Context<Self>) {
        let Some(mind) = &self.mind else { return };
        let Some(guest) = mind.guest() else { return };
        let cut_off = self.birth.common.ways.cut_off(&mind.spec().id.cloud, &guest.marks.cluster);
        if cut_off != mind.is_cut_off() {
            self.feed(Event::CutOff(cut_off), ctx);
        }
    }

    fn wake_at(&mut self, attempt: Attempt, at: Moment, ctx: &mut Context<Self>) {
        if let Some(alarm) = self.alarm.take() {
            alarm.abort();
        }
        let span = at - self.now();
        let (sleep, alarm) = abortable(tokio::time::sleep(span));
        self.alarm = Some(alarm);
        ctx.spawn(sleep.into_actor(self).map(move |outcome, agent, ctx| {
            if outcome.is_ok() {
                agent.feed(Event::Wake(attempt), ctx);
            }
        }));
    }
}

/// The lease that this record ends.
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
        // Appends of the previous incarnation may still run. The mailbox waits too.
        let journal_view = Rc::clone(&self.journal_view);
        let settled = async move { journal_view.settled().await };
        ctx.wait(settled.into_actor(self).map(|(), agent, ctx| agent.begin(ctx)));
    }
}

impl Supervised for Agent {
    fn restarting(&mut self, _: &mut Context<Self>) {
        let (birth, journal_view) = (Rc::clone(&self.birth), Rc::clone(&self.journal_view));
        *self = Self::build(birth, journal_view, self.incarnation + 1);
    }
}

impl Handler<AgentCommand> for Agent {
    type Result = ();

    fn handle(&mut self, command: AgentCommand, ctx: &mut Context<Self>) {
        count_message(ctx);
        self.journal_view.hear(&command);
        self.feed(Event::Command(command), ctx);
    }
}

/// From the append's task: its progress.
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
                if let Some(lease) = self.ending.take() {
                    self.birth.common.runners.lease_over(&lease);
                    if let Some(report) = self.reported.clone() {
                        self.report(report);
                    }
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
