//! How many guests of a cluster are destroyed at once on each storage, and started at once on each
//! node.
//!
//! Proxmox frees a volume under its storage's lock. It waits 10 s for that, and leaves the volume
//! behind when it waited in vain (behaviour sections 6 and 16), so no more may stand in that line
//! than get through it in time. A start has 30 s and a little more for its QEMU (section 13), which
//! a node that starts too many at once does not keep. How many that is, is learned (see
//! [`drover_limits::throttle`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_limits::lanes::{LaneEnd, Lanes, Rules, Track, Width};
use drover_limits::throttle::{Rule, Work};
use drover_model::fault::{Culprit, FaultKind};
use drover_model::id::{NodeName, VmId};
use drover_model::ports::TaskEnd;
use drover_model::time::Moment;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::client::Client;

/// How long a place is held before its guest counts as forgotten.
const LOST: Duration = Duration::from_secs(300);

/// How long it is believed which storages nodes share.
const BELIEVED: Duration = Duration::from_secs(600);

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Line {
    /// Before the storages of a guest that is to be destroyed.
    Destroy,
    /// Before the node of a guest that is to be started.
    Start,
}

impl Line {
    /// The line a task of this kind stood in.
    pub fn of_task(kind: &str) -> Option<Self> {
        match kind {
            "qmdestroy" => Some(Self::Destroy),
            "qmstart" => Some(Self::Start),
            _ => None,
        }
    }
}

/// The lines before the storages and nodes of one cluster.
pub struct Gate {
    began: Instant,
    lines: Mutex<Lines>,
    /// Somebody left, or was let in.
    moved: Notify,
}

struct Lines {
    /// Storages of guests that were read and not destroyed yet.
    storages: BTreeMap<VmId, BTreeSet<String>>,
    /// Storages that each node has for itself, and when that was read.
    local: Option<(BTreeSet<String>, Instant)>,
    destroys: Lanes<VmId>,
    starts: Lanes<VmId>,
    held: BTreeMap<(Line, VmId), Instant>,
}

impl Default for Gate {
    fn default() -> Self {
        let lines = Lines {
            storages: BTreeMap::new(),
            local: None,
            destroys: Lanes::new(Rules { storage: Rule::Timed, node: Rule::Faults }),
            starts: Lanes::new(Rules { storage: Rule::Fixed, node: Rule::Timed }),
            held: BTreeMap::new(),
        };
        Self { began: Instant::now(), lines: Mutex::new(lines), moved: Notify::new() }
    }
}

impl Lines {
    fn lanes(&mut self, line: Line) -> &mut Lanes<VmId> {
        match line {
            Line::Destroy => &mut self.destroys,
            Line::Start => &mut self.starts,
        }
    }

    fn leave(&mut self, line: Line, vmid: VmId, end: LaneEnd, now: Moment) {
        self.held.remove(&(line, vmid));
        self.lanes(line).free(&vmid, end, now);
    }

    /// Lets in whoever may; those that nobody told the end of leave.
    fn admit(&mut self, line: Line, width: Width, now: Moment) -> usize {
        let lost = self.held.iter().filter(|(_, since)| since.elapsed() >= LOST);
        for (line, vmid) in lost.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.leave(line, vmid, LaneEnd::Void, now);
        }
        let admitted = self.lanes(line).admit(width, now);
        for (vmid, _) in &admitted {
            self.held.insert((line, *vmid), Instant::now());
        }
        admitted.len()
    }
}

impl Gate {
    /// Notes which volumes a guest has.
    pub fn note(&self, vmid: VmId, volumes: &[String]) {
        let storages = volumes.iter().filter_map(|volume| volume.split_once(':'));
        let storages = storages.map(|(storage, _)| storage.to_owned()).collect();
        self.lines().storages.insert(vmid, storages);
    }

    /// Waits until a guest may be destroyed; it holds its places until [`Gate::leave`].
    pub async fn enter_destroy(&self, client: &Client, node: &NodeName, vmid: VmId, width: Width) {
        self.leave(Line::Destroy, vmid, LaneEnd::Void);
        let Some(storages) = self.lines().storages.remove(&vmid) else { return };
        self.learn(client).await;
        let storages = self.places(node, storages);
        let track = Track { storages, node: node.clone(), work: work("destroy") };
        // How many nodes and storages work for others at once is not theirs to say.
        self.pass(Line::Destroy, vmid, track, Width { per_node: u32::MAX, ..width }).await;
    }

    /// Waits until a guest may be started; it holds its place until [`Gate::leave`].
    pub async fn enter_start(&self, node: &NodeName, vmid: VmId, width: Width) {
        self.leave(Line::Start, vmid, LaneEnd::Void);
        let storages = BTreeSet::new();
        let track = Track { storages, node: node.clone(), work: work("start") };
        self.pass(Line::Start, vmid, track, width).await;
    }

    async fn pass(&self, line: Line, vmid: VmId, track: Track, width: Width) {
        let mut waiting = Leaving { gate: self, line, vmid, end: Some(LaneEnd::Void) };
        self.lines().lanes(line).ask(vmid, track);
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            let admitted = {
                let now = self.now();
                let mut lines = self.lines();
                let admitted = lines.admit(line, width, now);
                if lines.held.contains_key(&(line, vmid)) {
                    waiting.end = None;
                }
                admitted
            };
            if admitted > 0 {
                self.moved.notify_waiters();
            }
            if waiting.end.is_none() {
                return;
            }
            // Whoever waited for a forgotten guest looks again by himself.
            let _ = tokio::time::timeout(LOST, moved).await;
        }
    }

    /// A guest is destroyed or started, or will not be now.
    pub fn leave(&self, line: Line, vmid: VmId, end: LaneEnd) {
        let now = self.now();
        self.lines().leave(line, vmid, end, now);
        self.moved.notify_waiters();
    }

    /// The same as soon as what is given is dropped, with what it was told by then.
    pub fn leaving(&self, line: Line, vmid: VmId) -> Leaving<'_> {
        Leaving { gate: self, line, vmid, end: Some(LaneEnd::Void) }
    }

    /// Reads which storages nodes share: their locks are the whole cluster's.
    async fn learn(&self, client: &Client) {
        let known = self.lines().local.as_ref().map(|(_, read)| *read);
        if known.is_some_and(|read| read.elapsed() < BELIEVED) {
            return;
        }
        let rows = client.storages_everywhere().await.unwrap_or_default();
        let local = rows.into_iter().filter(|row| !row.shared).filter_map(|row| row.storage);
        self.lines().local = Some((local.collect(), Instant::now()));
    }

    fn places(&self, node: &NodeName, storages: BTreeSet<String>) -> BTreeSet<String> {
        let lines = self.lines();
        let local = lines.local.as_ref().map(|(names, _)| names);
        let place = |storage: String| {
            let own = local.is_some_and(|names| names.contains(&storage));
            if own { format!("{node}/{storage}") } else { storage }
        };
        storages.into_iter().map(place).collect()
    }

    fn now(&self) -> Moment {
        Moment(0) + self.began.elapsed()
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock()
    }
}

/// A guest that leaves its line when this is dropped.
pub struct Leaving<'a> {
    gate: &'a Gate,
    line: Line,
    vmid: VmId,
    /// How it went; none for one that stays.
    end: Option<LaneEnd>,
}

impl Leaving<'_> {
    /// Its task has ended.
    pub fn tell(&mut self, end: &TaskEnd) {
        self.end = Some(match (self.line, end) {
            (Line::Destroy, TaskEnd::Done { warnings }) if warnings.iter().any(|w| is_lock(w)) => {
                LaneEnd::StorageBusy
            }
            (_, TaskEnd::Done { .. }) => LaneEnd::Done,
            (_, TaskEnd::Failed(fault)) if fault.kind == FaultKind::Contention => {
                match (self.line, &fault.culprit) {
                    (Line::Destroy, Culprit::Storage(_)) => LaneEnd::StorageBusy,
                    (Line::Start, _) => LaneEnd::NodeBusy,
                    (Line::Destroy, _) => LaneEnd::Void,
                }
            }
            (_, TaskEnd::Failed(_) | TaskEnd::Unknown(_)) => LaneEnd::Void,
        });
    }
}

fn work(name: &str) -> Work {
    Work { name: name.to_owned(), holds: None }
}

/// Whether a warning tells of a lock that was waited for in vain.
fn is_lock(warning: &str) -> bool {
    warning.contains("got timeout") || warning.contains("got lock request timeout")
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if let Some(end) = self.end {
            self.gate.leave(self.line, self.vmid, end);
        }
    }
}

#[cfg(test)]
mod tests;
