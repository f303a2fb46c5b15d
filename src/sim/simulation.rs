//! A whole simulated cluster joined: access, world, guests and door, ready for either face.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::clock::WallClock;
use crate::door::Door;
use crate::door::access::Access;
use crate::door::certificates::Certificates;
use crate::door::wire::{Wire, WireError};
use crate::guest::GuestHost;
use crate::memory::MemoryDialer;
use crate::record::Record;
use crate::rights::Rights;
use crate::spec::{ClusterSpec, PveVersion};
use crate::world::{self, Faults, Latency, World, WorldOptions};

/// How a simulated cluster is played.
#[derive(Debug, Clone)]
pub struct SimulationOptions {
    /// Which Proxmox VE.
    pub version: PveVersion,
    /// Fixes all chance.
    pub seed: u64,
    /// Unix seconds at which it begins.
    pub epoch: u64,
    /// How long things take.
    pub latency: Latency,
    /// What goes wrong.
    pub faults: Faults,
    /// Where requests, tasks and boots are written down.
    pub record: Option<Arc<Record>>,
}

impl Default for SimulationOptions {
    fn default() -> Self {
        Self {
            version: PveVersion::default(),
            seed: 1,
            epoch: world::EPOCH,
            latency: Latency::default(),
            faults: Faults::default(),
            record: None,
        }
    }
}

/// A simulated cluster.
pub struct Simulation {
    /// What answers requests.
    pub door: Arc<Door>,
    /// What the requests are about.
    pub world: Arc<World>,
    /// Who may do what in it.
    pub access: Arc<Access>,
    /// What the nodes prove themselves with at the start.
    pub certificates: Certificates,
    first_node: String,
}

impl Simulation {
    /// Joins a cluster, inside the tokio runtime whose clock drives it.
    pub fn new(
        spec: &ClusterSpec,
        options: SimulationOptions,
        certificates: Certificates,
        guests: Arc<dyn GuestHost>,
    ) -> Self {
        let clock = WallClock::starting_at(options.epoch);
        let access = Access::new(spec, options.version, clock);
        let world_options = WorldOptions {
            version: options.version,
            seed: options.seed,
            epoch: options.epoch,
            latency: options.latency,
            faults: options.faults,
            record: options.record.clone(),
            certificates: world::Certificates::from(&certificates),
        };
        let rights: Arc<dyn Rights> = Arc::clone(&access) as _;
        let world = World::new(spec, world_options, rights, guests);
        let routes = Arc::clone(&world) as _;
        let door = Door::new(
            spec,
            options.version,
            options.seed,
            Arc::clone(&access),
            routes,
            options.record,
        );
        let first_node = spec.nodes.first().map_or("localhost", |node| &node.name).to_owned();
        Self { door, world, access, certificates, first_node }
    }

    /// The node that takes requests on the wire.
    pub fn first_node(&self) -> &str {
        &self.first_node
    }

    /// The in-memory face.
    pub fn dialer(&self) -> MemoryDialer {
        MemoryDialer::new(Arc::clone(&self.door))
    }

    /// The HTTPS face of the first node, on a loopback address.
    ///
    /// # Errors
    /// See [`WireError`].
    pub async fn listen(&self, addr: SocketAddr) -> Result<Wire, WireError> {
        self.listen_as(&self.first_node, addr).await
    }

    /// The HTTPS face of a node, on a loopback address.
    ///
    /// # Errors
    /// See [`WireError`].
    pub async fn listen_as(&self, node: &str, addr: SocketAddr) -> Result<Wire, WireError> {
        Wire::start(Arc::clone(&self.door), node, addr, &self.certificates).await
    }
}
