//! The simulated Proxmox cluster behind the API front end: nodes, guests, storages, tasks and locks
//! as data, and the handlers of every route that is not access control.
//!
//! ```text
//! call ─→ API front end ─→ Cluster::serve ─→ routes ─→ handler(CallContext) ─→ answer
//!         parse, login,     node up? fault?             │
//!         schema            free worker?                └→ fork ─→ Worker ─→ log, exit status
//! ```
//!
//! What it owns: `Cluster` holds the state behind one mutex that is never held across an await,
//! the locks that calls and tasks wait for, and the worker processes of each node.
//!
//! What comes in: calls whose parameters and schema permissions the API front end has checked;
//! commands of tests, of the demo and of the control socket through [`WorldControl`]; timers of
//! fault rules. Checks that Proxmox makes in code are made here.
//!
//! What goes out: answers, records of tasks, and boots, stops and agent commands for the guest
//! host.
//!
//! Failure paths: a call to a node that is down gets 595 after a delay; a forwarded call that takes
//! longer than 30 s gets 596, and its handler runs on; an injected fault replaces the answer before
//! or after the effect; a task that is stopped cleans up, a killed one leaves its locks and volumes
//! behind with `unexpected status`.
//!
//! Time and chance: all waiting is tokio's, so a paused clock drives the world; nothing runs
//! periodically; all chance comes from one seed.
//!
//! Files beside it:
//!
//! - `context` (one call), `routes` (dispatch), `checks` (privileges in code)
//! - `state`, `storage`, `task`, `locks`, `broadcast` (the data), `worker` (running tasks)
//! - `create`, `clone`, `config_routes`, `power`, `destroy`, `snapshot`, `migrate` … (VMs)
//! - `lxc` (containers), `firewall`, `ha`, `sdn`, `backup`, `restore` (services of the cluster)
//! - `faults`, `latency`, `random`, `clock`, `world_control` (what a test controls)

mod agent;
mod appliances;
mod archive;
mod backup;
mod backup_jobs;
mod boot;
mod broadcast;
mod bulk;
mod checks;
mod clock;
mod clone;
mod cloudinit;
mod config_routes;
mod console;
mod context;
mod copy_drives;
mod corosync;
mod create;
mod daemons;
mod default_cluster;
mod destroy;
mod download;
mod drives;
mod faults;
mod firewall;
mod ha;
mod hotplug;
mod installer;
mod latency;
mod locks;
mod lxc;
mod mapping;
mod metric_servers;
mod migrate;
mod network;
mod nocloud;
mod node_info;
mod nodes;
mod power;
mod prune;
mod random;
mod reassign;
mod resize;
mod resources;
mod restore;
mod routes;
mod rrd;
mod sdn;
mod sections;
mod services;
mod snapshot;
mod state;
mod status;
mod storage;
mod storage_content;
mod storage_definitions;
mod task;
mod task_routes;
mod template;
#[cfg(test)]
mod tests;
mod upload;
mod worker;
mod world_control;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

pub use self::clock::EPOCH;
pub use self::faults::{
    AgentFault, AgentHealth, CallFault, Faults, FreeFault, LockFault, NodeFault, TaskFault,
};
pub use self::latency::{Latency, Spread};
pub use self::nodes::NodeLoad;
pub use self::state::NodeOverrides;
pub use self::world_control::WorldControl;

use self::clock::Clock;
use self::daemons::Daemons;
use self::faults::{ConnectionFault, FaultInjector};
use self::locks::{LockGuard, LockMode, LockName, LockTable};
use self::random::Random;
use self::state::{Node, State};
use self::worker::Worker;
use crate::call::{ApiError, Call, Outcome};
use crate::conf;
use crate::guest::GuestHost;
use crate::guests::TroubledGuests;
use crate::interfaces::{AccessControl, Backend, ConnectionReset};
use crate::recorder::Recorder;
use crate::spec::{ClusterSpec, PveVersion, WorkersSpec};

/// How long a call waits for a storage lock, and how long it may hold a cluster-wide one.
const STORAGE_LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const CFS_LOCK_LIFETIME: Duration = Duration::from_secs(60);

/// The certificates that the API shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Certificates {
    /// The certificate of the authority, PEM.
    pub ca_pem: String,
    /// Its SHA-256 fingerprint, upper-case hexadecimal pairs with colons.
    pub ca_fingerprint: String,
    /// The certificate of the nodes, PEM.
    pub leaf_pem: String,
    /// Its SHA-256 fingerprint.
    pub leaf_fingerprint: String,
    /// A certificate of the administrator that is served instead of the nodes' own: PEM and
    /// fingerprint.
    pub proxy: Option<(String, String)>,
}

/// The options of a world.
#[derive(Debug, Clone)]
pub struct WorldOptions {
    /// The simulated version of Proxmox VE.
    pub version: PveVersion,
    /// The seed of all chance.
    pub seed: u64,
    /// The start of the world in Unix seconds.
    pub epoch: u64,
    pub latency: Latency,
    pub faults: Faults,
    pub certificates: Certificates,
    /// Where tasks and boots are recorded.
    pub record: Option<Arc<Recorder>>,
}

impl Default for WorldOptions {
    fn default() -> Self {
        Self {
            version: PveVersion::default(),
            seed: 1,
            epoch: EPOCH,
            latency: Latency::default(),
            faults: Faults::default(),
            certificates: Certificates::default(),
            record: None,
        }
    }
}

/// A simulated cluster without its API front end.
#[derive(Debug)]
pub struct World {
    cluster: Arc<Cluster>,
}

impl World {
    /// Builds a world and starts its running guests. Must be called inside a tokio runtime, whose
    /// clock drives the world.
    pub fn new(
        spec: &ClusterSpec,
        options: WorldOptions,
        rights: Arc<dyn AccessControl>,
        guests: Arc<dyn GuestHost>,
    ) -> Arc<Self> {
        let cluster = Arc::new(Cluster::new(spec, options, rights, guests));
        cluster.populate(spec);
        cluster.schedule_faults();
        let machines = spec.guests.iter().map(|guest| (guest, false));
        let guests = machines.chain(spec.containers.iter().map(|guest| (guest, true)));
        for (guest, container) in guests.filter(|(guest, _)| guest.running && !guest.template) {
            let (cluster, node, vmid) = (cluster.clone(), guest.node.clone(), guest.vmid);
            tokio::spawn(async move {
                let started = match container {
                    true => cluster.start_container(&node, vmid, None).await,
                    false => cluster.start_vm(&node, vmid, None).await,
                };
                if let Err(error) = started {
                    tracing::warn!(
                        vmid,
                        node,
                        error,
                        "cannot start a guest of the cluster description"
                    );
                }
            });
        }
        Arc::new(Self { cluster })
    }

    /// Access to the world that bypasses the API: for tests, storms, the demo and the control
    /// socket.
    pub fn control(&self) -> WorldControl {
        WorldControl::new(self.cluster.clone())
    }

    /// The reset that a fault rule plays on the connection of this call; must be asked once per
    /// call.
    pub(crate) fn connection_fault(
        &self,
        method: &str,
        route: &str,
        node: Option<&str>,
    ) -> Option<ConnectionFault> {
        let mut state = self.cluster.state();
        let State { faults, random, .. } = &mut *state;
        faults.connection_fault(method, route, node, random)
    }

    /// The present time in Unix seconds.
    pub fn unix_time(&self) -> u64 {
        self.cluster.state().clock.unix()
    }
}

impl Backend for World {
    fn call(&self, call: Call) -> BoxFuture<'static, Outcome> {
        let cluster = self.cluster.clone();
        Box::pin(async move { cluster.serve(call).await })
    }

    fn nodes(&self) -> Vec<(String, bool)> {
        let state = self.cluster.state();
        state.nodes.iter().map(|(name, node)| (name.clone(), node.up)).collect()
    }

    fn hop(&self, node: &str) -> BoxFuture<'static, Result<(), ApiError>> {
        let cluster = self.cluster.clone();
        let node = node.to_owned();
        Box::pin(async move { cluster.hop_to(&node).await })
    }

    fn reset(&self, method: &str, route: &str, node: Option<&str>) -> Option<ConnectionReset> {
        self.connection_fault(method, route, node).map(|fault| match fault {
            ConnectionFault::ResetBefore => ConnectionReset::BeforeCall,
            ConnectionFault::ResetAfter => ConnectionReset::AfterCall,
        })
    }

    fn pool_members(&self, vmids: &[u32]) -> Vec<Value> {
        resources::pool_members(&self.cluster, vmids)
    }

    fn guest_exists(&self, vmid: u32) -> bool {
        self.cluster.state().guest_by_id(vmid).is_some()
    }
}

/// The inside of a world, shared by all calls and tasks.
pub(crate) struct Cluster {
    pub(crate) name: String,
    pub(crate) version: PveVersion,
    pub(crate) latency: Latency,
    pub(crate) certificates: Mutex<Certificates>,
    pub(crate) locks: Arc<LockTable>,
    pub(crate) rights: Arc<dyn AccessControl>,
    pub(crate) guest_host: Arc<dyn GuestHost>,
    /// The same host, which makes guests misbehave.
    troubles: Arc<TroubledGuests>,
    pub(crate) daemons: Daemons,
    pub(crate) record: Option<Arc<Recorder>>,
    state: Mutex<State>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Certificates {
    /// The fingerprint of the certificate that connections see.
    fn served_fingerprint(&self) -> String {
        self.proxy.as_ref().map_or(&self.leaf_fingerprint, |(_, fingerprint)| fingerprint).clone()
    }
}

impl Cluster {
    /// The certificates that the API shows now.
    pub(crate) fn certificates(&self) -> Certificates {
        self.certificates.lock().clone()
    }

    fn new(
        spec: &ClusterSpec,
        options: WorldOptions,
        rights: Arc<dyn AccessControl>,
        guests: Arc<dyn GuestHost>,
    ) -> Self {
        let mut random = Random::seeded(options.seed);
        let nodes = spec.nodes.iter().zip(1..).map(|(node, id)| {
            let phase = Duration::from_millis(u64::from(random.below(10_000)));
            (node.name.clone(), Node::new(node.clone(), id, phase))
        });
        let nodes = nodes.collect();
        let workers = match options.faults.workers_per_node {
            0 => spec.workers,
            count => WorkersSpec::of(count),
        };
        let daemons = Daemons::new(spec.nodes.iter().map(|node| node.name.as_str()), workers);
        let storages = spec.storages.iter();
        let troubles = Arc::new(TroubledGuests::around(guests));
        Self {
            name: spec.name.clone(),
            version: options.version,
            latency: options.latency,
            certificates: Mutex::new(options.certificates),
            locks: Arc::new(LockTable::default()),
            rights,
            guest_host: Arc::clone(&troubles) as _,
            troubles,
            daemons,
            record: options.record,
            state: Mutex::new(State {
                clock: Clock::starting_at(options.epoch),
                nodes,
                vms: BTreeMap::new(),
                containers: BTreeMap::new(),
                ha: ha::Ha::default(),
                sdn: sdn::Sdn::default(),
                firewalls: BTreeMap::new(),
                jobs: backup_jobs::BackupJobs::default(),
                mappings: mapping::Mappings::default(),
                metrics: metric_servers::MetricServers::new(),
                archived_disks: 0,
                web_files: appliances::downloadable_files()
                    .chain(spec.web.iter().cloned())
                    .collect(),
                storages: storages
                    .map(|spec| (spec.name.clone(), storage::Storage::new(spec.clone())))
                    .collect(),
                tasks: task::Tasks::default(),
                random,
                faults: FaultInjector::new(options.faults),
            }),
        }
    }

    /// The state. The guard must not be held across an await.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// A random duration of some work on a node, with the slowdown of the node.
    pub(crate) fn sampled_duration(&self, node: &str, spread: Spread) -> Duration {
        let mut state = self.state();
        let factor = state.faults.slowness(node);
        spread.seconds(&mut state.random).mul_f64(factor)
    }

    /// Waits as long as some work takes; false if a caught signal interrupted it.
    pub(crate) async fn simulate_work(
        &self,
        node: &str,
        spread: Spread,
        worker: Option<&Worker>,
    ) -> bool {
        let span = self.sampled_duration(node, spread);
        match worker {
            Some(worker) => worker.sleep(span).await,
            None if span.is_zero() => true,
            None => {
                tokio::time::sleep(span).await;
                true
            }
        }
    }

    /// Waits for a lock, and logs the wait in the task.
    pub(crate) async fn lock(
        &self,
        name: LockName,
        mode: LockMode,
        wait: Duration,
        worker: Option<&Worker>,
    ) -> Result<LockGuard, String> {
        if let Some(hold) = self.locks.try_acquire(&name.key, mode) {
            return Ok(hold);
        }
        if let Some(worker) = worker {
            worker.log(&name.waiting_line);
        }
        let hold =
            self.locks.acquire_within(&name.key, mode, wait).await.ok_or(name.timeout_error)?;
        if let (Some(worker), Some(line)) = (worker, name.acquired_line) {
            worker.log(line);
        }
        Ok(hold)
    }

    /// Waits for the exclusive lock of a VM's configuration.
    pub(crate) async fn vm_lock(
        &self,
        node: &str,
        vmid: u32,
        seconds: u64,
        worker: Option<&Worker>,
    ) -> Result<LockGuard, String> {
        let wait = Duration::from_secs(seconds);
        self.lock(LockName::vm(node, vmid), LockMode::Exclusive, wait, worker).await
    }

    /// The same for a call that writes the configuration. A cluster without quorum keeps its file system
    /// read-only; the text is that of a file that cannot be opened, from knowledge of
    /// `PVE::Tools::file_set_contents` (book: proxmox, section 2).
    ///
    /// # Errors
    /// The lock timed out, or nothing can be written.
    pub(crate) async fn vm_write_lock(
        &self,
        node: &str,
        vmid: u32,
        seconds: u64,
        worker: Option<&Worker>,
    ) -> Result<LockGuard, String> {
        let guard = self.vm_lock(node, vmid, seconds, worker).await?;
        if self.state().has_quorum(node) {
            return Ok(guard);
        }
        let file = format!("/etc/pve/nodes/{node}/qemu-server/{vmid}.conf.tmp.{vmid}");
        Err(format!("unable to open file '{file}' - Permission denied"))
    }

    /// Changes a storage under its lock.
    ///
    /// # Errors
    /// The lock or its lifetime timed out, a signal interrupted the work, or `action` failed.
    pub(crate) async fn with_storage_lock<T>(
        &self,
        node: &str,
        storage: &str,
        worker: Option<&Worker>,
        spread: Spread,
        action: impl FnOnce(&mut State) -> Result<T, String>,
    ) -> Result<T, String> {
        let shared = self.state().storage(storage)?.spec.shared;
        let name = LockName::storage(node, storage, shared);
        let _hold = self.lock(name, LockMode::Exclusive, STORAGE_LOCK_TIMEOUT, worker).await?;
        let work = self.simulate_work(node, spread, worker);
        let completed = if shared {
            let expired = || format!("'storage-{storage}'-locked command timed out - aborting");
            tokio::time::timeout(CFS_LOCK_LIFETIME, work).await.map_err(|_| expired())?
        } else {
            work.await
        };
        if !completed {
            return Err("interrupted by signal".into());
        }
        action(&mut self.state())
    }
}
