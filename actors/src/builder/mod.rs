//! One build of an image on one node: the mind that decides ([`mind`]), and in this file what its body
//! (`embodied`) does for it. The removal of a version is a build that begins at its end.
//!
//! ```text
//! herd ── BuilderCommand ──▶ body ── Event ──▶ Mind::step ──▶ effects
//!   ▲                          │                                 │
//!   └── BuildReport ◀──────────┘ queue: record ▶ journal, call ▶ port ▶ Event::Answer
//! ```
//!
//! - In: the turn to bring a source to its place, VMIDs, answers of ports.
//! - Out: records, calls, [`BuildReport`] to the herd, facts for the read side.
//!
//! What the journal knew at the start is not destroyed while something speaks for another drover on
//! this installation: it may be building there.
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

use actix::{Context, Handler, Message, Recipient};
use drover_model::fact::What;
use drover_model::fault::Fault;
use drover_model::id::{AgentId, Attempt, CloudId, ClusterId, TemplateId, VmId};
use drover_model::journal_state::{BuildEntry, JournalState};
use drover_model::ports::Ports;
use drover_model::record::{Body, Record};
use drover_model::status::ImageStatus;
use drover_runtime::supervise::count_message;
use futures_util::future::LocalBoxFuture;

use crate::birth::Common;
use crate::embodied::{Deed, DeedOf, Embodied, Heard, Life};
use crate::shared::role;
use event::{Answer, Call, Effect, Event, StepEnd};
pub use mind::{Birth, Mind};
pub(crate) use port_calls::pull_call;

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
pub(crate) type Builder = Embodied<Built>;

/// What a build is to its body.
pub(crate) struct Built {
    birth: Birth,
    herd: Recipient<BuildReport>,
}

impl Builder {
    /// A build that begins, or one that the journal knows.
    pub fn new(
        common: Common<role::Builder>,
        birth: Birth,
        herd: Recipient<BuildReport>,
        entry: Option<BuildEntry>,
    ) -> Self {
        Self::of(common, Built { birth, herd }, entry)
    }
}

impl From<Heard<Answer>> for Event {
    fn from(heard: Heard<Answer>) -> Self {
        match heard {
            Heard::Begin => Self::Begin,
            Heard::Intended(seq) => Self::Intended(seq),
            Heard::Held(attempt, why) => Self::Held(attempt, why),
            Heard::Answer(attempt, answer) => Self::Answer(attempt, answer),
            Heard::Wake(attempt) => Self::Wake(attempt),
        }
    }
}

impl Life for Built {
    type Role = role::Builder;
    type Entry = BuildEntry;
    type Mind = Mind;
    type Call = Call;
    type Answer = Answer;
    type Status = ImageStatus;

    fn begin(&self, known: Option<&BuildEntry>) -> Option<Mind> {
        let birth = self.birth.clone();
        Some(match known {
            Some(entry) => Mind::adopt(birth, entry),
            None => Mind::new(birth),
        })
    }

    fn know(&self, known: Option<BuildEntry>, record: &Record) -> Option<BuildEntry> {
        let build = &self.birth.build;
        let mut state = JournalState::default();
        state.builds.extend(known.map(|entry| (build.clone(), entry)));
        state.apply(record);
        state.builds.remove(build)
    }

    fn incarnation(&mut self) -> &mut u32 {
        &mut self.birth.incarnation
    }

    fn is_intent(body: &Body) -> bool {
        matches!(body, Body::ImageIntended { .. })
    }

    fn deed(effect: Effect) -> DeedOf<Self> {
        match effect {
            Effect::Record(body) => Deed::Record(body),
            Effect::Ask(attempt, call) => Deed::Ask(attempt, call),
            Effect::WakeAt(attempt, at) => Deed::WakeAt(attempt, at),
            Effect::Report(status) => Deed::Report(status),
            own @ (Effect::WantTurn
            | Effect::TurnOver
            | Effect::WantId(_)
            | Effect::IdBack { .. }
            | Effect::Stepped(_)) => Deed::Own(own),
            Effect::End => Deed::End,
        }
    }

    fn may_be_shared(&self, adopted: bool) -> bool {
        // A version that is only removed is older than this start.
        adopted || self.birth.recipe.is_none()
    }

    fn awaits(mind: &Mind, attempt: Attempt) -> bool {
        mind.awaits(attempt)
    }

    fn phase(mind: &Mind) -> &'static str {
        mind.state().phase().name()
    }

    fn moved(&self, mind: &Mind, from: &'static str) {
        let ImageStatus { phase, detail, .. } = mind.status();
        tracing::info!(
            build = %self.birth.build, image = %self.birth.image, node = %self.birth.node,
            from, to = phase.name(), detail, "build moved"
        );
    }

    fn name(&self) -> String {
        format!("build {}", self.birth.build)
    }

    fn changes(call: &Call) -> bool {
        call.changes()
    }

    fn leads(&self, _: &Mind) -> (CloudId, Option<ClusterId>) {
        (self.birth.image.cloud.clone(), Some(self.birth.cluster.clone()))
    }

    fn call(
        call: Call,
        mind: &Mind,
        cloud: CloudId,
        ports: &Ports,
    ) -> Option<LocalBoxFuture<'static, Answer>> {
        port_calls::make(call, mind, cloud, ports)
    }

    fn fact(status: Box<ImageStatus>) -> What {
        What::Image(status)
    }

    fn report(&self, status: Box<ImageStatus>) {
        self.herd.do_send(BuildReport::Status(status));
    }

    fn own(&self, effect: Effect) -> Option<What> {
        let build = self.birth.build.clone();
        match effect {
            Effect::WantTurn => self.herd.do_send(BuildReport::WantTurn(build)),
            Effect::TurnOver => self.herd.do_send(BuildReport::TurnOver(build)),
            Effect::WantId(taken) => self.herd.do_send(BuildReport::WantId(build, taken)),
            Effect::IdBack { vmid, burned } => {
                self.herd.do_send(BuildReport::IdBack { build, vmid, burned });
            }
            Effect::Stepped(StepEnd { step, ms, ran }) => {
                let template = self.birth.image.clone();
                let (exit, log) = (ran.exit, ran.said());
                return Some(What::Step { agent: build, template, step, ms, exit, log });
            }
            Effect::Record(_)
            | Effect::Ask(..)
            | Effect::WakeAt(..)
            | Effect::Report(_)
            | Effect::End => {}
        }
        None
    }

    fn over(&self) {
        self.herd.do_send(BuildReport::Over(self.birth.build.clone()));
    }

    fn restarting(&self) {
        self.herd.do_send(BuildReport::TurnOver(self.birth.build.clone()));
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
