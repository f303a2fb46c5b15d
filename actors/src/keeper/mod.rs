//! One declared machine: the mind that decides ([`mind`]), and in this file what its body
//! (`embodied`) does for it.
//!
//! ```text
//! herd ── KeeperCommand ──▶ body ── Event ──▶ Mind::step ──▶ effects
//!   ▲                         │                                 │
//!   └── KeeperReport ◀────────┘ queue: record ▶ journal, call ▶ port ▶ Event::Answer
//! ```
//!
//! - In: the declaration, the cluster, VMIDs, commands of operators, answers of ports.
//! - Out: records, calls, [`KeeperReport`] to the herd, facts for the read side.
//!
//! No call that changes something is made while something speaks for another drover on this
//! installation: it would declare the same machines.
//!
//! Beside it: `state.rs`, `event.rs` (the mind's words), `mind.rs`, `declaration.rs`, `make.rs`,
//! `watch.rs`, `remove.rs` (what it decides), `shown.rs` (what it shows), `drift.rs` (what differs from the declaration), `port_calls.rs` (calls of ports).

mod declaration;
pub mod drift;
pub mod event;
mod make;
pub mod mind;
mod port_calls;
mod remove;
mod shown;
pub mod state;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::Arc;

use actix::{Context, Handler, Message, Recipient};
use drover_model::declared::DeclaredSpec;
use drover_model::fact::What;
use drover_model::fault::Fault;
use drover_model::id::{AgentId, Attempt, CloudId, ClusterId, DeclaredName, NodeName, VmId};
use drover_model::journal_state::{DeclaredEntry, JournalState};
use drover_model::marks::Marks;
use drover_model::ports::Ports;
use drover_model::record::{Body, Record};
use drover_model::status::DeclaredStatus;
use drover_runtime::supervise::count_message;
use futures_util::future::LocalBoxFuture;

use crate::birth::Common;
use crate::embodied::{Deed, DeedOf, Embodied, Heard, Life};
use crate::shared::role;
use event::{Answer, Call, Effect, Event};
pub use mind::{Birth, Mind};

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
    /// An operator has it adopt this guest, which carries these marks and is on this node.
    TakeOver(Box<Marks>, NodeName),
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
pub(crate) type Keeper = Embodied<Kept>;

/// What a declared machine is to its body.
pub(crate) struct Kept {
    birth: Birth,
    herd: Recipient<KeeperReport>,
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
        Self::of(common, Kept { birth, herd }, entry)
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

impl Life for Kept {
    type Role = role::Keeper;
    type Entry = DeclaredEntry;
    type Mind = Mind;
    type Call = Call;
    type Answer = Answer;
    type Status = DeclaredStatus;

    fn begin(&self, known: Option<&DeclaredEntry>) -> Option<Mind> {
        let birth = self.birth.clone();
        match (known, birth.declared.clone()) {
            (Some(entry), _) => Some(Mind::adopt(birth, entry)),
            (None, Some(spec)) => Some(Mind::new(birth, spec)),
            (None, None) => None,
        }
    }

    fn know(&self, known: Option<DeclaredEntry>, record: &Record) -> Option<DeclaredEntry> {
        let mut state = JournalState::default();
        state.declared.extend(known.map(|entry| (entry.marks.agent.clone(), entry)));
        state.apply(record);
        state.declared.into_values().next()
    }

    fn incarnation(&mut self) -> &mut u32 {
        &mut self.birth.incarnation
    }

    fn is_intent(body: &Body) -> bool {
        matches!(body, Body::DeclaredIntended { .. })
    }

    fn deed(effect: Effect) -> DeedOf<Self> {
        match effect {
            Effect::Record(body) => Deed::Record(body),
            Effect::Ask(attempt, call) => Deed::Ask(attempt, call),
            Effect::WakeAt(attempt, at) => Deed::WakeAt(attempt, at),
            Effect::Report(status) => Deed::Report(status),
            own @ (Effect::WantCluster | Effect::WantId(_) | Effect::IdBack { .. }) => {
                Deed::Own(own)
            }
            Effect::End => Deed::End,
        }
    }

    fn may_be_shared(&self, _: bool) -> bool {
        // A copy of the configuration declares the same machines.
        true
    }

    fn awaits(mind: &Mind, attempt: Attempt) -> bool {
        mind.awaits(attempt)
    }

    fn phase(mind: &Mind) -> &'static str {
        mind.phase().name()
    }

    fn moved(&self, mind: &Mind, from: &'static str) {
        let DeclaredStatus { vmid, phase, detail, .. } = mind.status();
        tracing::info!(
            machine = %self.birth.name, vmid = vmid.map(|vmid| vmid.0), from, to = phase.name(), detail,
            "machine moved"
        );
    }

    fn name(&self) -> String {
        format!("machine {}", self.birth.name)
    }

    fn changes(call: &Call) -> bool {
        call.changes()
    }

    fn leads(&self, mind: &Mind) -> (CloudId, Option<ClusterId>) {
        (mind.cloud().clone(), mind.cluster().cloned())
    }

    fn call(
        call: Call,
        mind: &Mind,
        cloud: CloudId,
        ports: &Ports,
    ) -> Option<LocalBoxFuture<'static, Answer>> {
        port_calls::make(call, mind, cloud, ports)
    }

    fn fact(status: Box<DeclaredStatus>) -> What {
        What::Declared(status)
    }

    fn report(&self, status: Box<DeclaredStatus>) {
        self.herd.do_send(KeeperReport::Status(status));
    }

    fn own(&self, effect: Effect) -> Option<What> {
        let name = self.birth.name.clone();
        match effect {
            Effect::WantCluster => self.herd.do_send(KeeperReport::WantCluster(name)),
            Effect::WantId(taken) => self.herd.do_send(KeeperReport::WantId(name, taken)),
            Effect::IdBack { vmid, burned } => {
                self.herd.do_send(KeeperReport::IdBack { name, vmid, burned });
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
        self.herd.do_send(KeeperReport::Over(self.birth.name.clone()));
    }
}

impl Handler<KeeperCommand> for Keeper {
    type Result = ();

    fn handle(&mut self, command: KeeperCommand, ctx: &mut Context<Self>) {
        count_message(ctx);
        let event = match command {
            KeeperCommand::Declare(spec) => {
                // A panic keeps it, and a mind that is not there yet begins with it.
                self.life.birth.declared.clone_from(&spec);
                Event::Declare(spec)
            }
            KeeperCommand::Cluster(cluster) => Event::Cluster(cluster),
            KeeperCommand::Id(id) => Event::Id(id),
            KeeperCommand::Look => Event::Look,
            KeeperCommand::Delete => Event::Delete,
            KeeperCommand::Forget => Event::Forget,
            KeeperCommand::TakeOver(marks, node) => Event::TakeOver(marks, node),
        };
        self.feed(event, ctx);
    }
}
