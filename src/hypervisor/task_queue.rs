//! The queue of starts and destroys of one cluster: how many guests are destroyed at once on each
//! storage, and started at once on each node.
//!
//! Proxmox frees a volume under its storage's lock. It waits 10 s for the lock, and when that times
//! out it leaves the volume behind (book: proxmox, sections 6 and 16). So no more destroys may run
//! than get through the lock in time. A start has 30 s and a little more for its QEMU (book:
//! proxmox, section 13), which a node that starts too many at once exceeds. How many that is, is
//! learned ([`drover_limits::adaptive`]).
//!
//! A task enters the queue (`enter_destroy`, `enter_start`) and holds its place until
//! [`TaskQueue::leave`], or until its [`QueueGuard`] is dropped. A place whose end nobody reports
//! is freed after [`FORGOTTEN_AFTER`].

use std::collections::{BTreeMap, BTreeSet};

use std::sync::Arc;
use std::time::Duration;

use drover_limits::adaptive::{Adapt, Work};
use drover_limits::concurrency::{
    AdaptRules, ConcurrencyLimits, Footprint, MaxConcurrent, OperationEnd,
};
use drover_model::fault::{Culprit, FaultKind};
use drover_model::id::{NodeName, VmId};
use drover_model::ports::TaskEnd;
use drover_model::time::Moment;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::client::Client;
use crate::figures::Figures;

/// How long a place is held before its guest counts as forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);

/// How long the list of shared storages is used before it is read again.
const SHARED_STORAGES_VALID: Duration = Duration::from_secs(600);

/// The kind of task that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum QueuedTask {
    /// Waits for the storages of its guest.
    Destroy,
    /// Waits for the node of its guest.
    Start,
}

impl QueuedTask {
    /// The word for it in figures.
    const fn name(self) -> &'static str {
        match self {
            Self::Destroy => "destroy",
            Self::Start => "start",
        }
    }

    /// The kind for Proxmox's name of a task.
    pub(crate) fn of_task(kind: &str) -> Option<Self> {
        match kind {
            "qmdestroy" | "vzdestroy" => Some(Self::Destroy),
            "qmstart" | "vzstart" => Some(Self::Start),
            _ => None,
        }
    }
}

/// The starts and destroys of one cluster that run and wait.
pub(crate) struct TaskQueue {
    started: Instant,
    state: Mutex<State>,
    /// A task left the queue, or was admitted.
    changed: Notify,
    figures: Arc<Figures>,
}

struct State {
    /// The storages of guests whose configuration was read and which are not destroyed yet.
    storages: BTreeMap<VmId, BTreeSet<String>>,
    /// Storages that are local to their nodes, and when that was read.
    local: Option<(BTreeSet<String>, Instant)>,
    destroys: ConcurrencyLimits<VmId>,
    starts: ConcurrencyLimits<VmId>,
    held: BTreeMap<(QueuedTask, VmId), Instant>,
}

impl TaskQueue {
    /// A queue whose waits are counted there.
    pub(crate) fn measured(figures: Arc<Figures>) -> Self {
        let state = State {
            storages: BTreeMap::new(),
            local: None,
            destroys: ConcurrencyLimits::new(AdaptRules {
                storage: Adapt::ByTimes,
                node: Adapt::ByFaults,
            }),
            starts: ConcurrencyLimits::new(AdaptRules {
                storage: Adapt::Fixed,
                node: Adapt::ByTimes,
            }),
            held: BTreeMap::new(),
        };
        let (started, changed) = (Instant::now(), Notify::new());
        Self { started, state: Mutex::new(state), changed, figures }
    }
}

impl State {
    fn limits(&mut self, task: QueuedTask) -> &mut ConcurrencyLimits<VmId> {
        match task {
            QueuedTask::Destroy => &mut self.destroys,
            QueuedTask::Start => &mut self.starts,
        }
    }

    fn leave(&mut self, task: QueuedTask, vmid: VmId, end: OperationEnd, now: Moment) {
        self.held.remove(&(task, vmid));
        self.limits(task).release(&vmid, end, now);
    }

    /// Admits the tasks that have room, after freeing forgotten places; returns how many.
    fn admit(&mut self, task: QueuedTask, max: MaxConcurrent, now: Moment) -> usize {
        let lost = self.held.iter().filter(|(_, since)| since.elapsed() >= FORGOTTEN_AFTER);
        for (task, vmid) in lost.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.leave(task, vmid, OperationEnd::Inconclusive, now);
        }
        let admitted = self.limits(task).admit(max, now);
        for (vmid, _) in &admitted {
            self.held.insert((task, *vmid), Instant::now());
        }
        admitted.len()
    }
}

impl TaskQueue {
    /// Notes the volumes of a guest, whose storages its destroy will lock.
    pub(crate) fn note_volumes(&self, vmid: VmId, volumes: &[String]) {
        let storages = volumes.iter().filter_map(|volume| volume.split_once(':'));
        let storages = storages.map(|(storage, _)| storage.to_owned()).collect();
        self.state().storages.insert(vmid, storages);
    }

    /// Waits until a guest may be destroyed. It holds its places until [`TaskQueue::leave`].
    pub(crate) async fn enter_destroy(
        &self,
        client: &Client,
        node: &NodeName,
        vmid: VmId,
        max: MaxConcurrent,
    ) {
        self.leave(QueuedTask::Destroy, vmid, OperationEnd::Inconclusive);
        let Some(storages) = self.state().storages.remove(&vmid) else { return };
        self.read_shared_storages(client).await;
        let storages = self.storage_names(node, storages);
        let (work, node) = (work_named("destroy"), node.clone());
        let footprint = Footprint { storages, node, work, alone: None };
        // The configured limit per node is for starts and clones.
        self.enter(
            QueuedTask::Destroy,
            vmid,
            footprint,
            MaxConcurrent { per_node: u32::MAX, ..max },
        )
        .await;
    }

    /// Waits until a guest may be started. It holds its place until [`TaskQueue::leave`].
    pub(crate) async fn enter_start(&self, node: &NodeName, vmid: VmId, max: MaxConcurrent) {
        self.leave(QueuedTask::Start, vmid, OperationEnd::Inconclusive);
        let storages = BTreeSet::new();
        let (work, node) = (work_named("start"), node.clone());
        let footprint = Footprint { storages, node, work, alone: None };
        self.enter(QueuedTask::Start, vmid, footprint, max).await;
    }

    async fn enter(&self, task: QueuedTask, vmid: VmId, footprint: Footprint, max: MaxConcurrent) {
        let mut waiting =
            QueueGuard { queue: self, task, vmid, end: Some(OperationEnd::Inconclusive) };
        self.state().limits(task).enqueue(vmid, footprint);
        let asked = self.now();
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let admitted = {
                let now = self.now();
                let mut state = self.state();
                let admitted = state.admit(task, max, now);
                if state.held.contains_key(&(task, vmid)) {
                    waiting.end = None;
                }
                admitted
            };
            if admitted > 0 {
                self.changed.notify_waiters();
            }
            if waiting.end.is_none() {
                if let Some(measure) = self.figures.waits.get() {
                    measure(task.name(), self.now() - asked);
                }
                return;
            }
            // Wakes up now and then to free forgotten places.
            let _ = tokio::time::timeout(FORGOTTEN_AFTER, changed).await;
        }
    }

    /// Frees the places of a guest: its task has ended, or will not start.
    pub(crate) fn leave(&self, task: QueuedTask, vmid: VmId, end: OperationEnd) {
        let now = self.now();
        self.state().leave(task, vmid, end, now);
        self.changed.notify_waiters();
    }

    /// Frees the places when the guard is dropped, with the end that was reported to it.
    pub(crate) fn guard(&self, task: QueuedTask, vmid: VmId) -> QueueGuard<'_> {
        QueueGuard { queue: self, task, vmid, end: Some(OperationEnd::Inconclusive) }
    }

    /// Reads which storages are local to a node: the lock of a shared storage is the whole
    /// cluster's.
    async fn read_shared_storages(&self, client: &Client) {
        let known = self.state().local.as_ref().map(|(_, read)| *read);
        if known.is_some_and(|read| read.elapsed() < SHARED_STORAGES_VALID) {
            return;
        }
        let rows = client.all_storages().await.unwrap_or_default();
        let local = rows.into_iter().filter(|row| !row.shared).filter_map(|row| row.storage);
        self.state().local = Some((local.collect(), Instant::now()));
    }

    fn storage_names(&self, node: &NodeName, storages: BTreeSet<String>) -> BTreeSet<String> {
        let state = self.state();
        let local = state.local.as_ref().map(|(names, _)| names);
        let place = |storage: String| {
            let own = local.is_some_and(|names| names.contains(&storage));
            if own { format!("{node}/{storage}") } else { storage }
        };
        storages.into_iter().map(place).collect()
    }

    fn now(&self) -> Moment {
        Moment(0) + self.started.elapsed()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Frees a guest's places when it is dropped.
pub(crate) struct QueueGuard<'a> {
    queue: &'a TaskQueue,
    task: QueuedTask,
    vmid: VmId,
    /// How the task ended; none keeps the places.
    end: Option<OperationEnd>,
}

impl QueueGuard<'_> {
    /// Reports how the task ended.
    pub(crate) fn ended(&mut self, end: &TaskEnd) {
        self.end = Some(match (self.task, end) {
            (QueuedTask::Destroy, TaskEnd::Done { warnings })
                if warnings.iter().any(|w| is_lock_timeout(w)) =>
            {
                OperationEnd::StorageBusy
            }
            (_, TaskEnd::Done { .. }) => OperationEnd::Done,
            (_, TaskEnd::Failed(fault)) if fault.kind == FaultKind::Contention => {
                match (self.task, &fault.culprit) {
                    (QueuedTask::Destroy, Culprit::Storage(_)) => OperationEnd::StorageBusy,
                    (QueuedTask::Start, _) => OperationEnd::NodeBusy,
                    (QueuedTask::Destroy, _) => OperationEnd::Inconclusive,
                }
            }
            (_, TaskEnd::Failed(_) | TaskEnd::Unknown(_)) => OperationEnd::Inconclusive,
        });
    }
}

fn work_named(name: &str) -> Work {
    Work { name: name.to_owned(), holds: None }
}

/// Whether a warning reports a lock that timed out.
fn is_lock_timeout(warning: &str) -> bool {
    warning.contains("got timeout") || warning.contains("got lock request timeout")
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        if let Some(end) = self.end {
            self.queue.leave(self.task, self.vmid, end);
        }
    }
}

#[cfg(test)]
mod tests;
