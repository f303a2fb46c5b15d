//! The durable facts of one agent, kept outside its actor so that a panic cannot damage them.
//!
//! Appends run as tasks of their own. Each is folded in here when the journal has taken it. So a
//! restarted actor is built from exactly what the journal knows.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use drover_model::id::{AgentId, LeaseId, VmId};
use drover_model::journal_state::{AgentEntry, JournalState};
use drover_model::phase::AgentPhase;
use drover_model::ports::{Ambient, Journal, JournalFault};
use drover_model::record::{Body, LOST, LeaseAsk, RECORD_VERSION, Reason, Record};
use drover_model::time::WallTime;
use futures_util::FutureExt;
use tokio::sync::Notify;
use tracing::Instrument as _;

use crate::message::AgentCommand;
use crate::records::try_append;

/// The pause before a failed append is repeated.
const APPEND_PAUSE: Duration = Duration::from_secs(1);

/// The journal's view of one agent.
pub struct JournalView {
    agent: AgentId,
    epoch: u64,
    journal: Arc<dyn Journal>,
    ambient: Arc<dyn Ambient>,
    journal_state: RefCell<JournalState>,
    granted: Cell<Option<VmId>>,
    gone: RefCell<Option<(Reason, bool)>>,
    orders: RefCell<Orders>,
    writing: Cell<u32>,
    quiet: Notify,
    closed: Cell<bool>,
}

/// Commands that hold until they are changed or carried out. No record contains them.
#[derive(Default)]
struct Orders {
    down: bool,
    /// Leases handed out that are neither granted nor refused yet.
    handed: BTreeMap<LeaseId, Box<LeaseAsk>>,
    /// Leases to end, each with the reason.
    ending: BTreeMap<LeaseId, String>,
    going: Option<AgentCommand>,
    rest: bool,
}

/// The progress of an append, reported at each change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The journal has the record. The sequence is set for the intent to clone.
    Taken(Option<u64>),
    /// A try failed. Another one follows.
    Failed(String),
    /// Another drover leads. No other try follows.
    Fenced,
}

impl JournalView {
    /// Makes the view of an agent from what the journal knows.
    pub fn new(
        agent: AgentId,
        epoch: u64,
        journal: Arc<dyn Journal>,
        ambient: Arc<dyn Ambient>,
        entry: Option<AgentEntry>,
    ) -> Self {
        let mut journal_state = JournalState::default();
        let granted = entry.as_ref().map(|entry| entry.marks.vmid);
        if let Some(entry) = entry {
            journal_state.agents.insert(agent.clone(), entry);
        }
        Self {
            agent,
            epoch,
            journal,
            ambient,
            journal_state: RefCell::new(journal_state),
            granted: Cell::new(granted),
            gone: RefCell::default(),
            orders: RefCell::default(),
            writing: Cell::new(0),
            quiet: Notify::new(),
            closed: Cell::new(false),
        }
    }

    /// The agent's entry in the journal.
    pub fn entry(&self) -> Option<AgentEntry> {
        self.journal_state.borrow().agents.get(&self.agent).cloned()
    }

    /// Remembers commands that hold longer than a moment, before the mind handles them.
    pub fn hear(&self, command: &AgentCommand) {
        let mut orders = self.orders.borrow_mut();
        match command {
            AgentCommand::Granted { vmid, .. } => {
                self.granted.set(self.granted.get().or(Some(*vmid)));
            }
            AgentCommand::NodeDown(down) => orders.down = *down,
            AgentCommand::Drain(_) | AgentCommand::Retire(_) | AgentCommand::ForceRetire(_) => {
                orders.going = Some(command.clone());
            }
            // Other actors write these records. They are kept here so that a rebuilt actor knows
            // them too.
            AgentCommand::LeaseRenewed { lease, expires } => {
                if let Some(entry) = self.journal_state.borrow_mut().agents.get_mut(&self.agent)
                    && let Some(granted) = entry.leases.get_mut(lease)
                {
                    granted.renew(*expires, self.ambient.now().wall);
                }
            }
            AgentCommand::Override(change) => {
                self.journal_state.borrow_mut().set_override(&self.agent, *change);
            }
            AgentCommand::Hold(hold) => {
                self.journal_state.borrow_mut().set_hold(&self.agent, hold.as_deref(), None);
            }
            AgentCommand::Order(order) => {
                self.journal_state.borrow_mut().set_order(&self.agent, order);
            }
            AgentCommand::CalledIn(address) => {
                self.journal_state.borrow_mut().set_called(&self.agent, *address);
            }
            AgentCommand::Moved(node) => {
                if let Some(entry) = self.journal_state.borrow_mut().agents.get_mut(&self.agent) {
                    entry.node = node.clone();
                }
            }
            AgentCommand::Lease { ask } => {
                orders.handed.insert(ask.lease.clone(), ask.clone());
            }
            AgentCommand::EndLease { lease, why } => {
                orders.ending.insert(lease.clone(), why.clone());
            }
            // Both the lease and the agent end either way.
            AgentCommand::FailLease { lease, text } => {
                orders.ending.insert(lease.clone(), LOST.to_owned());
                let (state, kind, text) = (AgentPhase::Leased, "broken".into(), text.clone());
                let reason = Reason::Failed { state, kind, text };
                orders.going.get_or_insert(AgentCommand::Retire(reason));
            }
            AgentCommand::Rest => orders.rest = true,
            AgentCommand::NotGranted(_)
            | AgentCommand::Withdraw
            // Its source asks again.
            | AgentCommand::AskRunner { .. }
            | AgentCommand::Vanished
            | AgentCommand::SeenStopped
            | AgentCommand::Observed(_) => {}
        }
    }

    /// The commands that still hold, for a rebuilt actor. They include leases that were handed out
    /// and not granted: the rebuilt actor refuses them, because it has not inspected its guest yet.
    pub fn orders(&self) -> Vec<AgentCommand> {
        let orders = self.orders.borrow();
        let down = orders.down.then_some(AgentCommand::NodeDown(true));
        let handed = orders.handed.values().map(|ask| AgentCommand::Lease { ask: ask.clone() });
        let ending = orders.ending.iter();
        let ending = ending
            .map(|(lease, why)| AgentCommand::EndLease { lease: lease.clone(), why: why.clone() });
        down.into_iter().chain(handed).chain(ending).chain(orders.going.clone()).collect()
    }

    /// Forgets a lease that the agent refused.
    pub fn refused(&self, lease: &LeaseId) {
        self.orders.borrow_mut().handed.remove(lease);
    }

    pub fn resting(&self) -> bool {
        self.orders.borrow().rest
    }

    /// Why the agent is gone and whether its id is burned, once the journal knows that.
    pub fn gone(&self) -> Option<(Reason, bool)> {
        self.gone.borrow().clone()
    }

    pub fn granted(&self) -> Option<VmId> {
        self.granted.get()
    }

    /// Stops trying to append.
    pub fn close(&self) {
        self.closed.set(true);
    }

    /// Waits until no append runs.
    pub async fn settled(&self) {
        while self.writing.get() > 0 {
            self.quiet.notified().await;
        }
    }

    /// Appends a record as a task of its own, until the journal has it.
    pub fn append(self: &Rc<Self>, body: Body, report: impl Fn(Progress) + 'static) {
        let journal_view = Rc::clone(self);
        let guard = Writing::new(&journal_view);
        let task = async move {
            let _guard = guard;
            while !journal_view.closed.get() {
                match journal_view.try_append(body.clone()).await {
                    Ok((seq, wall_time)) => {
                        let intent = matches!(body, Body::CloneIntended { .. });
                        journal_view.fold(seq, wall_time, body);
                        return report(Progress::Taken(intent.then_some(seq)));
                    }
                    Err(JournalFault::Fenced) => {
                        journal_view.close();
                        return report(Progress::Fenced);
                    }
                    Err(fault @ JournalFault::Failed(_)) => {
                        tracing::warn!(agent = %journal_view.agent, error = %fault, "record not written");
                        report(Progress::Failed(fault.to_string()));
                        tokio::time::sleep(APPEND_PAUSE).await;
                    }
                }
            }
        };
        actix::spawn(task.instrument(tracing::error_span!("append")));
    }

    /// One try. Returns the sequence, and the time for the fold.
    async fn try_append(&self, body: Body) -> Result<(u64, WallTime), JournalFault> {
        let append = async {
            let wall_time = self.ambient.now().wall;
            Ok((try_append(&self.journal, vec![body]).await?, wall_time))
        };
        // A clock that panics is a failed try, too: the queue behind must not hang.
        let caught = AssertUnwindSafe(append).catch_unwind().await;
        caught.unwrap_or_else(|_| Err(JournalFault::Failed("it panicked".into())))
    }

    fn fold(&self, seq: u64, wall_time: WallTime, body: Body) {
        let mut orders = self.orders.borrow_mut();
        if let Body::LeaseGranted { ask, .. } = &body {
            orders.handed.remove(&ask.lease);
        } else if let Body::LeaseEnded { lease, .. } = &body {
            orders.ending.remove(lease);
        } else if let Body::Gone { reason, burned, .. } = &body {
            self.gone.replace(Some((reason.clone(), *burned)));
        }
        let record = Record { version: RECORD_VERSION, seq, epoch: self.epoch, wall_time, body };
        self.journal_state.borrow_mut().apply(&record);
    }
}

/// Counts an append as running until it is dropped, also by a panic.
struct Writing(Rc<JournalView>);

impl Writing {
    fn new(journal_view: &Rc<JournalView>) -> Self {
        journal_view.writing.set(journal_view.writing.get() + 1);
        Self(Rc::clone(journal_view))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.writing.set(self.0.writing.get().saturating_sub(1));
        self.0.quiet.notify_waiters();
    }
}
