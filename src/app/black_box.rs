//! What stays of agents that failed, after their machines are destroyed.
//!
//! In: each fact about an agent. Out: a file for each agent that went because it failed or was lost
//! (`blackbox/AGENT.json`), with what happened to it and the tasks that Proxmox ran for its machine.
//!
//! ```text
//! facts ──▶ Trails (what happened to each living agent)
//!              │ an agent is gone, and failed
//!              ▼
//!           keeper, one at a time ──tasks and logs, 20 s──▶ Proxmox
//!              │
//!              ▼
//!           Store ──▶ GET /v1/agents/{id}/blackbox
//! ```
//!
//! Nothing is decided by it and nothing waits for it: tasks and their logs outlive the guest in Proxmox, so they
//! are read when the agent is gone. Failures: where Proxmox does not answer, the file says so; where more
//! agents fail at once than the keeper can look after, those have no file, and the log says so.
//!
//! Files: `black_box/trail.rs` (what is noted, pure), `strip.rs` (secrets), `store.rs` (files).

mod store;
mod strip;
mod trail;

use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use causes::chain;
use drover_api::{BlackBoxOut, GuestTaskOut};
use drover_config::ServiceSpec;
use drover_hypervisor::{GuestTask, Proxmox};
use drover_model::fact::Fact;
use drover_model::id::{NodeName, VmId};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::timeout;

pub use store::Keep;
use store::Store;
use strip::stripped;
use trail::{Failed, Trails};

/// What a configuration keeps.
pub fn keep_of(spec: &ServiceSpec) -> Keep {
    Keep { age: spec.black_box.keep, bytes: spec.black_box.keep_bytes }
}

/// Agents that may wait for the keeper.
const WAITING_MAX: usize = 256;
/// How long the tasks of one agent may take.
const TASKS_LIMIT: Duration = Duration::from_secs(20);

/// Reads the tasks of a machine that is gone.
type ReadTasks = Box<dyn Fn(Failed) -> BoxFuture<'static, Result<Vec<GuestTask>, String>> + Send>;

/// The black boxes of this service.
pub struct BlackBoxes {
    trails: Mutex<Trails>,
    failed: mpsc::Sender<Failed>,
    store: Store,
    keep: Arc<Mutex<Keep>>,
}

impl BlackBoxes {
    /// Starts the keeper, which ends with the runtime.
    pub fn start(state: &Path, keep: Keep, proxmox: &Arc<Proxmox>) -> Arc<Self> {
        let proxmox = Arc::clone(proxmox);
        let read: ReadTasks = Box::new(move |failed| Box::pin(tasks(Arc::clone(&proxmox), failed)));
        let (black_boxes, keeper) = Self::with(state, keep, read);
        tokio::spawn(keeper);
        black_boxes
    }

    fn with(
        state: &Path,
        keep: Keep,
        read: ReadTasks,
    ) -> (Arc<Self>, impl Future<Output = ()> + Send + 'static) {
        let (failed, to_keep) = mpsc::channel(WAITING_MAX);
        let (store, keep) = (Store::of(state), Arc::new(Mutex::new(keep)));
        let keeper = keep_all(to_keep, store.clone(), Arc::clone(&keep), read);
        (Arc::new(Self { trails: Mutex::default(), failed, store, keep }), keeper)
    }

    /// Takes other limits, from the next agent on.
    pub fn configure(&self, keep: Keep) {
        *self.keep.lock() = keep;
    }

    /// Takes in what happened.
    pub fn observe(&self, fact: &Fact) {
        let Some(failed) = self.trails.lock().take(fact) else { return };
        let agent = failed.kept.agent.clone();
        if self.failed.try_send(failed).is_err() {
            tracing::warn!(agent, "too many agents failed at once: this one has no black box");
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

/// Keeps one agent after the other.
async fn keep_all(
    mut failed: mpsc::Receiver<Failed>,
    store: Store,
    keep: Arc<Mutex<Keep>>,
    read: ReadTasks,
) {
    while let Some(one) = failed.recv().await {
        let mut kept = one.kept.clone();
        // First without its tasks: Proxmox may not answer, and the service may end meanwhile.
        kept.tasks_unread = Some("they were not read yet".to_owned());
        let limits = *keep.lock();
        write(&store, limits, kept.clone()).await;
        kept.tasks_unread = None;
        match timeout(TASKS_LIMIT, read(one)).await {
            Ok(Ok(tasks)) => kept.tasks = tasks.into_iter().map(shown).collect(),
            Ok(Err(why)) => kept.tasks_unread = Some(why),
            Err(_) => {
                let seconds = TASKS_LIMIT.as_secs();
                kept.tasks_unread = Some(format!("Proxmox did not answer within {seconds} s"));
            }
        }
        let limits = *keep.lock();
        write(&store, limits, kept).await;
    }
}

/// Writes a box in the place of the one before, and removes what is too old or too much.
async fn write(store: &Store, keep: Keep, kept: BlackBoxOut) {
    let (store, agent) = (store.clone(), kept.agent.clone());
    let written = tokio::task::spawn_blocking(move || {
        store.put(kept)?;
        store.prune(SystemTime::now(), keep)
    });
    let written = written.await.map_err(io::Error::other).and_then(|written| written);
    if let Err(error) = written {
        tracing::warn!(agent, error = chain(&error), "cannot write the black box");
    }
}

fn shown(GuestTask { upid, kind, status, log }: GuestTask) -> GuestTaskOut {
    // As one text: a private key is many lines.
    let log = stripped(&log.join("\n")).lines().map(str::to_owned).collect();
    GuestTaskOut { upid, kind, status: status.as_deref().map(stripped), log }
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
