//! The simulated cluster's world: nodes, guests, storages, tasks and locks as data, and every route
//! that is not access control.
//!
//! The door in front of it parses, authenticates, validates and checks what the schema says; checks
//! that Proxmox makes in code are made here. All waiting is tokio's, nothing ticks by itself, and a
//! seed fixes all chance.

mod agent;
mod appliance;
mod archive;
mod ask;
mod backup;
mod boot;
mod bulk;
mod checks;
mod clock;
mod clone;
mod cloudinit;
mod conf;
mod config;
mod console;
mod content;
mod copy;
mod corosync;
mod create;
mod daemons;
mod default;
mod definitions;
mod destroy;
mod dice;
mod download;
mod drives;
mod fault;
mod firewall;
mod ha;
mod jobs;
mod latency;
mod lock;
mod lxc;
mod machine;
mod mapping;
mod metrics;
mod migrate;
mod network;
mod nodes;
mod power;
mod prune;
mod reassign;
mod resize;
mod resources;
mod restore;
mod routes;
mod rrd;
mod sdn;
mod sections;
mod seed;
mod services;
mod side;
mod sight;
mod snapshot;
mod state;
mod status;
mod storage;
mod task;
mod tasklist;
mod template;
#[cfg(test)]
mod tests;
mod upload;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

pub use self::clock::EPOCH;
pub use self::fault::{
    AgentFault, AgentHealth, CallFault, Faults, FreeFault, HoldFault, NodeFault, TaskFault,
    WireFault,
};
pub use self::latency::{Latency, Spread};
pub use self::side::SideDoor;
pub use self::state::Others;

use self::clock::Clock;
use self::daemons::Daemons;
use self::dice::Dice;
use self::fault::FaultBook;
use self::lock::{Hold, LockName, Locks, Mode};
use self::state::{Node, State};
use self::worker::Worker;
use crate::call::{ApiError, Call, Outcome};
use crate::guest::GuestHost;
use crate::record::Record;
use crate::rights::{Reset, Rights, Routes};
use crate::spec::{ClusterSpec, PveVersion, WorkersSpec};

/// How long a storage lock is waited for, and a cluster-wide one held at most.
const STORAGE_WAIT: Duration = Duration::from_secs(10);
const CFS_HOLD: Duration = Duration::from_secs(60);

/// What the nodes say of their certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Certificates {
    /// The authority's certificate, PEM.
    pub ca_pem: String,
    /// Its SHA-256 fingerprint, upper-case hexadecimal pairs with colons.
    pub ca_fingerprint: String,
    /// The nodes' certificate, PEM.
    pub leaf_pem: String,
    /// Its SHA-256 fingerprint.
    pub leaf_fingerprint: String,
    /// An administrator's own certificate, shown in place of the nodes': PEM and fingerprint.
    pub proxy: Option<(String, String)>,
}

/// How a world is played.
#[derive(Debug, Clone)]
pub struct WorldOptions {
    /// Which Proxmox VE.
    pub version: PveVersion,
    /// Fixes all chance.
    pub seed: u64,
    /// Unix seconds at which the world begins.
    pub epoch: u64,
    /// How long things take.
    pub latency: Latency,
    /// What goes wrong.
    pub faults: Faults,
    /// What the nodes say of their certificates.
    pub certificates: Certificates,
    /// Where tasks and boots are written down.
    pub record: Option<Arc<Record>>,
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

/// A simulated cluster without its door.
#[derive(Debug)]
pub struct World {
    cluster: Arc<Cluster>,
}

impl World {
    /// Builds a world; inside a tokio runtime, whose clock drives it.
    pub fn new(
        spec: &ClusterSpec,
        options: WorldOptions,
        rights: Arc<dyn Rights>,
        guests: Arc<dyn GuestHost>,
    ) -> Arc<Self> {
        let cluster = Arc::new(Cluster::new(spec, options, rights, guests));
        cluster.populate(spec);
        cluster.schedule_faults();
        for guest in spec.guests.iter().filter(|guest| guest.running && !guest.template) {
            let (cluster, node, vmid) = (cluster.clone(), guest.node.clone(), guest.vmid);
            tokio::spawn(async move {
                if let Err(error) = cluster.launch(&node, vmid, None).await {
                    tracing::warn!(vmid, node, error, "guest of the description does not start");
                }
            });
        }
        Arc::new(Self { cluster })
    }

    /// A way in that goes round the API, for tests and storms.
    pub fn side_door(&self) -> SideDoor {
        SideDoor::new(self.cluster.clone())
    }

    /// What the transport does to this call's connection, by the fault rules; asked once a call.
    pub fn plan_of_call(&self, method: &str, route: &str, node: Option<&str>) -> Option<WireFault> {
        let mut state = self.cluster.state();
        let State { faults, dice, .. } = &mut *state;
        faults.wire(method, route, node, dice)
    }

    /// Unix seconds of the world's present.
    pub fn unix_time(&self) -> u64 {
        self.cluster.state().clock.unix()
    }
}

impl Routes for World {
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

    fn reset(&self, method: &str, route: &str, node: Option<&str>) -> Option<Reset> {
        self.plan_of_call(method, route, node).map(|fault| match fault {
            WireFault::ResetBefore => Reset::Before,
            WireFault::ResetAfter => Reset::After,
        })
    }

    fn pool_members(&self, vmids: &[u32]) -> Vec<Value> {
        resources::pool_members(&self.cluster, vmids)
    }

    fn guest_exists(&self, vmid: u32) -> bool {
        self.cluster.state().holder(vmid).is_some()
    }
}

/// The inside of a world, shared by its workers.
pub(crate) struct Cluster {
    pub(crate) name: String,
    pub(crate) version: PveVersion,
    pub(crate) latency: Latency,
    pub(crate) certificates: Mutex<Certificates>,
    pub(crate) locks: Arc<Locks>,
    pub(crate) rights: Arc<dyn Rights>,
    pub(crate) guests: Arc<dyn GuestHost>,
    pub(crate) daemons: Daemons,
    pub(crate) record: Option<Arc<Record>>,
    state: Mutex<State>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Certificates {
    /// The fingerprint of the certificate that connections see.
    fn shown(&self) -> String {
        self.proxy.as_ref().map_or(&self.leaf_fingerprint, |(_, fingerprint)| fingerprint).clone()
    }
}

impl Cluster {
    /// What the nodes say of their certificates now.
    pub(crate) fn certificates(&self) -> Certificates {
        self.certificates.lock().clone()
    }

    fn new(
        spec: &ClusterSpec,
        options: WorldOptions,
        rights: Arc<dyn Rights>,
        guests: Arc<dyn GuestHost>,
    ) -> Self {
        let mut dice = Dice::seeded(options.seed);
        let nodes = spec.nodes.iter().zip(1..).map(|(node, id)| {
            let phase = Duration::from_millis(u64::from(dice.below(10_000)));
            (node.name.clone(), Node::new(node.clone(), id, phase))
        });
        let nodes = nodes.collect();
        let workers = match options.faults.workers_per_node {
            0 => spec.workers,
            count => WorkersSpec::of(count),
        };
        let daemons = Daemons::new(spec.nodes.iter().map(|node| node.name.as_str()), workers);
        let storages = spec.storages.iter();
        Self {
            name: spec.name.clone(),
            version: options.version,
            latency: options.latency,
            certificates: Mutex::new(options.certificates),
            locks: Arc::new(Locks::default()),
            rights,
            guests,
            daemons,
            record: options.record,
            state: Mutex::new(State {
                clock: Clock::starting_at(options.epoch),
                nodes,
                guests: BTreeMap::new(),
                containers: BTreeMap::new(),
                ha: ha::Ha::default(),
                sdn: sdn::Sdn::default(),
                firewalls: BTreeMap::new(),
                jobs: jobs::Jobs::default(),
                mappings: mapping::Mappings::default(),
                metrics: metrics::Servers::new(),
                kept_disks: 0,
                web: appliance::on_the_web().chain(spec.web.iter().cloned()).collect(),
                storages: storages
                    .map(|spec| (spec.name.clone(), storage::Storage::new(spec.clone())))
                    .collect(),
                tasks: task::Tasks::default(),
                dice,
                faults: FaultBook::new(options.faults),
            }),
        }
    }

    /// The state; never held across an await.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// How long some work takes on a node this time.
    pub(crate) fn span(&self, node: &str, spread: Spread) -> Duration {
        let mut state = self.state();
        let slow = state.faults.slowness(node);
        spread.seconds(&mut state.dice).mul_f64(slow)
    }

    /// Works for a while; false when a caught signal cut it short.
    pub(crate) async fn work(&self, node: &str, spread: Spread, worker: Option<&Worker>) -> bool {
        let span = self.span(node, spread);
        match worker {
            Some(worker) => worker.sleep(span).await,
            None if span.is_zero() => true,
            None => {
                tokio::time::sleep(span).await;
                true
            }
        }
    }

    /// Waits for a lock, and says so in the task's log.
    pub(crate) async fn lock(
        &self,
        name: LockName,
        mode: Mode,
        wait: Duration,
        worker: Option<&Worker>,
    ) -> Result<Hold, String> {
        if let Some(hold) = self.locks.try_take(&name.key, mode) {
            return Ok(hold);
        }
        if let Some(worker) = worker {
            worker.log(&name.waiting);
        }
        let hold = self.locks.wait(&name.key, mode, wait).await.ok_or(name.busy)?;
        if let (Some(worker), Some(line)) = (worker, name.got) {
            worker.log(line);
        }
        Ok(hold)
    }

    /// Waits for the exclusive lock of a guest's configuration.
    pub(crate) async fn guest_lock(
        &self,
        node: &str,
        vmid: u32,
        seconds: u64,
        worker: Option<&Worker>,
    ) -> Result<Hold, String> {
        let wait = Duration::from_secs(seconds);
        self.lock(LockName::guest(node, vmid), Mode::Exclusive, wait, worker).await
    }

    /// Does something to a storage under its lock.
    pub(crate) async fn in_storage<T>(
        &self,
        node: &str,
        storage: &str,
        worker: Option<&Worker>,
        spread: Spread,
        act: impl FnOnce(&mut State) -> Result<T, String>,
    ) -> Result<T, String> {
        let shared = self.state().storage(storage)?.spec.shared;
        let name = LockName::storage(node, storage, shared);
        let _hold = self.lock(name, Mode::Exclusive, STORAGE_WAIT, worker).await?;
        let work = self.work(node, spread, worker);
        let whole = if shared {
            let cut = || format!("'storage-{storage}'-locked command timed out - aborting");
            tokio::time::timeout(CFS_HOLD, work).await.map_err(|_| cut())?
        } else {
            work.await
        };
        if !whole {
            return Err("interrupted by signal".into());
        }
        act(&mut self.state())
    }
}
