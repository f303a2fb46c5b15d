//! What stays of agents that failed, after their machines are destroyed.
//!
//! In: each fact about an agent. Out: a file for each agent that went because it failed or was lost
//! (`blackbox/AGENT.json`), with what happened to it and the tasks that Proxmox ran for its machine.
//!
//! ```text
//! facts ──▶ Trails (what happened to each living agent)
//!              │ an agent is gone, and failed
//!              ▼
//!           keeper ──tasks and logs, one at a time, 20 s──▶ Proxmox
//!              │
//!              ▼
//!           Store ──▶ GET /v1/agents/{id}/blackbox
//! ```
//!
//! Nothing is decided by it and nothing waits for it: tasks and their logs outlive the guest in Proxmox, so they
//! are read when the agent is gone. A log inside a guest does not: the guest agents of guests that SSH does not
//! reach are asked for one each minute. Files go by age and size each hour. Each agent has its file at once, without
//! the tasks, which follow one agent after the other: in an outage of Proxmox many fail at once. Failures: where
//! Proxmox does not answer, the file says so; where more agents fail at once than files can be written of, those have
//! none, and where more wait for their tasks than [`WANTING_MAX`], the tasks of the last ones are not read.
//!
//! Files: `black_box/trail.rs` (what is noted, pure), `store.rs` (files).

mod store;
mod trail;

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use causes::chain;
use drover_api::{BlackBoxOut, GuestCallOut, GuestTaskOut};
use drover_config::ServiceSpec;
use drover_hypervisor::{GuestCall, GuestTask, Proxmox};
use drover_model::fact::Fact;
use drover_model::id::{NodeName, VmId};
use drover_model::ports::Ambient;
use drover_model::strip::stripped;
use drover_model::time::WallTime;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};

pub use store::Keep;
use store::Store;
use trail::{Failed, Trails, Unreached};

/// What a configuration keeps.
pub fn keep_of(spec: &ServiceSpec) -> Keep {
    Keep { age: spec.black_box.keep, bytes: spec.black_box.keep_bytes }
}

/// Agents that may wait for the keeper.
const WAITING_MAX: usize = 256;
/// Agents whose files may wait for their tasks.
const WANTING_MAX: usize = 4096;
/// How long the end of a term waits for the files.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);
/// How long the tasks of one agent may take.
const TASKS_LIMIT: Duration = Duration::from_secs(20);

/// The pause between two looks for files that are too old or too much.
const PRUNE_INTERVAL: Duration = Duration::from_secs(3600);
/// The pause between two looks for guests that SSH does not reach.
const LOOK_INTERVAL: Duration = Duration::from_secs(15);
/// How long one guest agent may take.
const GUEST_LIMIT: Duration = Duration::from_secs(10);

/// Gives the calls about a machine that is gone, within this span before now.
type ReadCalls = Box<dyn Fn(&Failed, Duration) -> Vec<GuestCall> + Send + Sync>;
/// Reads a log of a guest through its guest agent.
type ReadLog = Box<dyn Fn(Unreached) -> BoxFuture<'static, Option<String>> + Send + Sync>;
/// Reads the tasks of a machine that is gone.
type ReadTasks =
    Box<dyn Fn(Failed) -> BoxFuture<'static, Result<Vec<GuestTask>, String>> + Send + Sync>;

/// What the keeper is to do.
enum ToKeep {
    Failed(Box<Failed>),
    /// Answers once all before it has a file.
    Flush(oneshot::Sender<()>),
}

/// The black boxes of this service.
pub struct BlackBoxes {
    trails: Mutex<Trails>,
    to_keep: mpsc::Sender<ToKeep>,
    store: Store,
    keep: Arc<Mutex<Keep>>,
    read_calls: ReadCalls,
}

impl BlackBoxes {
    /// Starts the keeper, which ends with the runtime.
    pub fn start(
        state: &Path,
        keep: Keep,
        proxmox: &Arc<Proxmox>,
        ambient: Arc<dyn Ambient>,
    ) -> Arc<Self> {
        let (of_tasks, of_calls, of_logs) =
            (Arc::clone(proxmox), Arc::clone(proxmox), Arc::clone(proxmox));
        let read: ReadTasks =
            Box::new(move |failed| Box::pin(tasks(Arc::clone(&of_tasks), failed)));
        let read_calls: ReadCalls = Box::new(move |failed, span| calls(&of_calls, failed, span));
        let read_log: ReadLog = Box::new(move |one| Box::pin(guest_log(Arc::clone(&of_logs), one)));
        let (black_boxes, keeper) = Self::with(state, keep, (read, read_calls));
        tokio::spawn(keeper);
        tokio::spawn(ask_unreached(Arc::downgrade(&black_boxes), ambient, read_log));
        black_boxes
    }

    fn with(
        state: &Path,
        keep: Keep,
        (read, read_calls): (ReadTasks, ReadCalls),
    ) -> (Arc<Self>, impl Future<Output = ()> + Send + 'static) {
        let (to_keep, failed) = mpsc::channel(WAITING_MAX);
        let (store, keep) = (Store::of(state), Arc::new(Mutex::new(keep)));
        let keeper = Keeper {
            store: store.clone(),
            keep: Arc::clone(&keep),
            read,
            wanting: VecDeque::new(),
        };
        let trails = Mutex::default();
        (Arc::new(Self { trails, to_keep, store, keep, read_calls }), keeper.run(failed))
    }

    /// Takes other limits, from the next agent or hour on.
    pub fn configure(&self, keep: Keep) {
        *self.keep.lock() = keep;
    }

    /// Takes in what happened.
    pub fn observe(&self, fact: &Fact) {
        let Some(mut failed) = self.trails.lock().take(fact) else { return };
        // The calls are read now: the machine's number may be another's soon.
        let span = fact.at - failed.began;
        let calls = (self.read_calls)(&failed, span).into_iter();
        failed.kept.calls = calls.map(|call| called(call, fact.at)).collect();
        let agent = failed.kept.agent.clone();
        if self.to_keep.try_send(ToKeep::Failed(Box::new(failed))).is_err() {
            tracing::warn!(agent, "too many agents failed at once: this one has no black box");
        }
    }

    /// Writes the files of all agents that failed by now, within the limit.
    pub async fn flush(&self) {
        let (done, written) = oneshot::channel();
        let flushed =
            async { self.to_keep.send(ToKeep::Flush(done)).await.is_ok() && written.await.is_ok() };
        if !timeout(FLUSH_LIMIT, flushed).await.unwrap_or(false) {
            tracing::warn!("the last agents that failed may have no black box");
        }
    }

    /// What is kept of an agent; none where nothing is.
    ///
    /// # Errors
    /// The system's.
    pub fn read(&self, agent: &str) -> io::Result<Option<BlackBoxOut>> {
        match self.store.get(agent) {
            // What is no id of an agent has no black box.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
            found => found,
        }
    }
}

type Reading = BoxFuture<'static, (String, Result<Vec<GuestTask>, String>)>;

/// Writes the files.
struct Keeper {
    store: Store,
    keep: Arc<Mutex<Keep>>,
    read: ReadTasks,
    /// Agents whose files lack their tasks.
    wanting: VecDeque<Failed>,
}

impl Keeper {
    /// Keeps what comes, until nothing can come and all tasks are read.
    async fn run(mut self, mut failed: mpsc::Receiver<ToKeep>) {
        let mut hours = interval(PRUNE_INTERVAL);
        hours.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reading: Option<Reading> = None;
        let mut is_open = true;
        loop {
            if reading.is_none() {
                reading = self.wanting.pop_front().map(|one| self.begin(one));
            }
            if !is_open && reading.is_none() {
                return;
            }
            tokio::select! {
                // Files come before tasks: Proxmox may not answer, and the service may end meanwhile.
                biased;
                one = failed.recv(), if is_open => match one {
                    Some(ToKeep::Failed(one)) => self.keep(*one).await,
                    // Who waited may have given up.
                    Some(ToKeep::Flush(done)) => {
                        let _ = done.send(());
                    }
                    None => is_open = false,
                },
                (agent, tasks) = tasks_of(&mut reading) => {
                    reading = None;
                    self.complete(agent, tasks).await;
                }
                _ = hours.tick(), if is_open => {
                    let limits = *self.keep.lock();
                    prune(&self.store, limits).await;
                }
            }
        }
    }

    /// Writes the file of an agent without its tasks.
    async fn keep(&mut self, mut one: Failed) {
        let is_wanting = self.wanting.len() < WANTING_MAX;
        let why =
            if is_wanting { "they were not read yet" } else { "too many agents failed at once" };
        one.kept.tasks_unread = Some(why.to_owned());
        let limits = *self.keep.lock();
        write(&self.store, limits, one.kept.clone()).await;
        if is_wanting {
            // The file has these.
            (one.kept.moments, one.kept.calls, one.kept.guest_log) = Default::default();
            self.wanting.push_back(one);
        }
    }

    /// Reads the tasks of an agent.
    fn begin(&self, one: Failed) -> Reading {
        let agent = one.kept.agent.clone();
        let read = (self.read)(one);
        Box::pin(async move {
            let tasks = timeout(TASKS_LIMIT, read).await.unwrap_or_else(|_| {
                Err(format!("Proxmox did not answer within {} s", TASKS_LIMIT.as_secs()))
            });
            (agent, tasks)
        })
    }

    /// Writes the file of an agent again, with its tasks. One that is gone stays so.
    async fn complete(&self, agent: String, tasks: Result<Vec<GuestTask>, String>) {
        let (store, limits) = (self.store.clone(), *self.keep.lock());
        let name = agent.clone();
        let written = tokio::task::spawn_blocking(move || {
            let Some(mut kept) = store.get(&name)? else { return Ok(()) };
            (kept.tasks, kept.tasks_unread) = match tasks {
                Ok(tasks) => (tasks.into_iter().map(shown).collect(), None),
                Err(why) => (Vec::new(), Some(why)),
            };
            store.put(kept)?;
            store.prune(SystemTime::now(), limits)
        });
        said(&agent, written.await);
    }
}

/// The tasks that are read; never, where none are.
async fn tasks_of(reading: &mut Option<Reading>) -> (String, Result<Vec<GuestTask>, String>) {
    match reading {
        Some(reading) => reading.await,
        None => std::future::pending().await,
    }
}

/// Asks the guest agents of guests that SSH does not reach for a log, until the service ends.
async fn ask_unreached(boxes: Weak<BlackBoxes>, ambient: Arc<dyn Ambient>, read: ReadLog) {
    let mut looks = interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let Some(black_boxes) = boxes.upgrade() else { return };
        let unreached = black_boxes.trails.lock().unreached(ambient.now().wall);
        drop(black_boxes);
        for one in unreached {
            let agent = one.agent.clone();
            let Ok(Some(log)) = timeout(GUEST_LIMIT, read(one)).await else { continue };
            let Some(black_boxes) = boxes.upgrade() else { return };
            black_boxes.trails.lock().heard(&agent, &log);
        }
    }
}

/// Removes what is too old or too much.
async fn prune(store: &Store, keep: Keep) {
    let store = store.clone();
    let pruned = tokio::task::spawn_blocking(move || store.prune(SystemTime::now(), keep));
    let pruned = pruned.await.map_err(io::Error::other).and_then(|pruned| pruned);
    if let Err(error) = pruned {
        tracing::warn!(error = chain(&error), "cannot remove old black boxes");
    }
}

/// Writes a box in the place of the one before, and removes what is too old or too much.
async fn write(store: &Store, keep: Keep, kept: BlackBoxOut) {
    let (store, agent) = (store.clone(), kept.agent.clone());
    let written = tokio::task::spawn_blocking(move || {
        store.put(kept)?;
        store.prune(SystemTime::now(), keep)
    });
    said(&agent, written.await);
}

/// Says that a file could not be written.
fn said(agent: &str, written: Result<io::Result<()>, tokio::task::JoinError>) {
    if let Err(error) = written.map_err(io::Error::other).and_then(|written| written) {
        tracing::warn!(agent, error = chain(&error), "cannot write the black box");
    }
}

fn shown(GuestTask { upid, kind, status, log }: GuestTask) -> GuestTaskOut {
    // As one text: a private key is many lines.
    let log = stripped(&log.join("\n")).lines().map(str::to_owned).collect();
    GuestTaskOut { upid, kind, status: status.as_deref().map(stripped), log }
}

/// A call with its time, which is that of the agent's end less the call's age.
fn called(call: GuestCall, end: WallTime) -> GuestCallOut {
    let GuestCall { method, path, outcome, took, age, times } = call;
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let age = i64::try_from(millis(age)).unwrap_or(i64::MAX);
    GuestCallOut {
        at: WallTime(end.0.saturating_sub(age)).rfc3339(),
        method: method.to_owned(),
        path: stripped(&path),
        outcome,
        ms: millis(took),
        times,
    }
}

fn calls(proxmox: &Proxmox, failed: &Failed, span: Duration) -> Vec<GuestCall> {
    let Some(vmid) = failed.kept.vmid else { return Vec::new() };
    proxmox.guest_calls(&failed.template.cloud, VmId(vmid), span)
}

async fn guest_log(proxmox: Arc<Proxmox>, one: Unreached) -> Option<String> {
    proxmox.guest_log(&one.template.cloud, (&one.node, one.vmid)).await
}

async fn tasks(proxmox: Arc<Proxmox>, failed: Failed) -> Result<Vec<GuestTask>, String> {
    let Failed { template, began, kept } = failed;
    // Without both there was no machine.
    let (Some(node), Some(vmid)) = (kept.node, kept.vmid) else { return Ok(Vec::new()) };
    let (node, vmid) = (NodeName::new(&*node), VmId(vmid));
    let read = proxmox.guest_tasks(&template.cloud, (&node, vmid), began).await;
    read.map_err(|fault| fault.text)
}

#[cfg(test)]
mod tests;
