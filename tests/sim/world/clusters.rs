//! The clusters of a world: one, or several that know nothing of each other.
//!
//! The host of an endpoint names the cluster behind its node: `pve1` is of the first, `pve1.c2` of
//! the second. Guests of all of them are kept apart by their ids: each cluster's agents have a range
//! of their own (see [`floor`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use proxmox_client::transport::{Dialer, Reply, Request, Transport, TransportError};
use proxmox_client::{Connection, Endpoint, PveError};
use pve_sim::simulation::Simulation;
use pve_sim::world::WorldControl;

/// Ids of one cluster's agents.
const RANGE: u32 = 10_000;

/// The lowest id of agents on a cluster, by its number.
pub fn floor(cluster: usize) -> u32 {
    RANGE * (u32::try_from(cluster).unwrap() + 1)
}

/// The cluster whose agents have ids like this one, by its number.
fn of_range(vmid: u32) -> usize {
    (vmid / RANGE).saturating_sub(1) as usize
}

/// The host that stands for a node of a cluster, by its number.
pub fn host(node: &str, cluster: usize) -> String {
    if cluster == 0 { node.to_owned() } else { format!("{node}.c{}", cluster + 1) }
}

/// The node that a host stands for, and the number of its cluster.
pub fn whose(host: &str) -> (&str, usize) {
    match host.rsplit_once(".c") {
        Some((node, number)) => (node, number.parse::<usize>().unwrap() - 1),
        None => (host, 0),
    }
}

/// The ways round the API of every cluster.
#[derive(Clone)]
pub struct Sides(Vec<WorldControl>);

impl Sides {
    /// Those of these clusters.
    pub fn of(simulations: &[Arc<Simulation>]) -> Self {
        Self(simulations.iter().map(|simulation| simulation.world.control()).collect())
    }

    /// Of one cluster, by its number.
    pub fn at(&self, cluster: usize) -> &WorldControl {
        &self.0[cluster]
    }

    /// All of them, the first cluster's first.
    pub fn all(&self) -> impl Iterator<Item = (usize, &WorldControl)> {
        self.0.iter().enumerate()
    }

    /// The number of the cluster that a guest is on, or would be where there is none.
    pub fn number(&self, vmid: u32) -> usize {
        let has = |side: &WorldControl| side.config(vmid).is_some();
        let found = self.0.iter().position(has);
        found.unwrap_or_else(|| of_range(vmid).min(self.0.len() - 1))
    }

    /// The way to that cluster.
    pub fn side(&self, vmid: u32) -> &WorldControl {
        self.at(self.number(vmid))
    }

    /// A guest's configuration as it stands.
    pub fn config(&self, vmid: u32) -> Option<BTreeMap<String, String>> {
        self.0.iter().find_map(|side| side.config(vmid))
    }

    /// Ids and names of all guests that have a name.
    pub fn names(&self) -> Vec<(u32, String)> {
        self.0.iter().flat_map(WorldControl::names).collect()
    }

    /// Ids of all guests.
    pub fn guests(&self) -> Vec<u32> {
        self.0.iter().flat_map(WorldControl::guests).collect()
    }

    /// Ids of the volumes that carry this guest's id, on all storages.
    pub fn volumes_of(&self, vmid: u32) -> Vec<String> {
        self.side(vmid).volumes_of(vmid)
    }
}

/// Leads each endpoint to its cluster, as long as that can be reached.
#[derive(Clone)]
pub struct Ways {
    simulations: Vec<Arc<Simulation>>,
    cut: Arc<Mutex<BTreeSet<usize>>>,
}

impl Ways {
    /// Ways to these clusters.
    pub fn to(simulations: &[Arc<Simulation>]) -> Self {
        Self { simulations: simulations.to_vec(), cut: Arc::default() }
    }

    /// Cuts the ways to a cluster, or repairs them: no call arrives, and no answer comes.
    pub fn cut(&self, cluster: usize, cut: bool) {
        let mut all = self.cut.lock().unwrap();
        if cut {
            all.insert(cluster);
        } else {
            all.remove(&cluster);
        }
    }
}

impl Dialer for Ways {
    fn dial(
        &self,
        endpoint: &Endpoint,
        connection: &Connection,
    ) -> Result<Arc<dyn Transport>, PveError> {
        let (node, cluster) = whose(endpoint.host());
        let own = Endpoint::new(node, endpoint.port());
        let inner = self.simulations[cluster].dialer().dial(&own, connection)?;
        Ok(Arc::new(Way { inner, cluster, cut: Arc::clone(&self.cut) }))
    }
}

struct Way {
    inner: Arc<dyn Transport>,
    cluster: usize,
    cut: Arc<Mutex<BTreeSet<usize>>>,
}

impl Transport for Way {
    fn send(&self, request: Request) -> BoxFuture<'static, Result<Reply, TransportError>> {
        let (cluster, cut) = (self.cluster, Arc::clone(&self.cut));
        if cut.lock().unwrap().contains(&cluster) {
            let refused = TransportError::Connect("no route to host".into());
            return async move { Err(refused) }.boxed();
        }
        let answer = self.inner.send(request);
        async move {
            let answer = answer.await;
            if cut.lock().unwrap().contains(&cluster) {
                return Err(TransportError::Closed("connection timed out".into()));
            }
            answer
        }
        .boxed()
    }
}
