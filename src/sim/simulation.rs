//! Joins access control, world, guests and API to one simulated cluster.
//!
//! A client in this process uses [`Simulation::dialer`], any other client [`Simulation::listen`].

use std::net::SocketAddr;
use std::sync::Arc;

use crate::api::Api;
use crate::api::access::Access;
use crate::api::certificates::Certificates;
use crate::api::https::{HttpsError, HttpsServer};
use crate::clock::WallClock;
use crate::guest::GuestHost;
use crate::interfaces::AccessControl;
use crate::memory::MemoryDialer;
use crate::recorder::Recorder;
use crate::spec::{ClusterSpec, PveVersion};
use crate::world::{self, Faults, Latency, World, WorldOptions};

/// How a simulated cluster behaves.
#[derive(Debug, Clone)]
pub struct SimulationOptions {
    pub version: PveVersion,
    /// Seed of all random choices.
    pub seed: u64,
    /// Unix seconds at which the cluster's clock starts.
    pub epoch: u64,
    /// How long tasks and calls take.
    pub latency: Latency,
    pub faults: Faults,
    /// Writes requests, tasks and boots to a file; none for no record.
    pub record: Option<Arc<Recorder>>,
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

pub struct Simulation {
    pub api: Arc<Api>,
    pub world: Arc<World>,
    pub access: Arc<Access>,
    /// The certificates that the nodes show at the start.
    pub certificates: Certificates,
    first_node: String,
}

impl Simulation {
    /// Builds a cluster. Must be called inside the tokio runtime whose clock drives it.
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
        let rights: Arc<dyn AccessControl> = Arc::clone(&access) as _;
        let world = World::new(spec, world_options, rights, guests);
        let routes = Arc::clone(&world) as _;
        let api = Api::new(
            spec,
            options.version,
            options.seed,
            Arc::clone(&access),
            routes,
            options.record,
        );
        let first_node = spec.nodes.first().map_or("localhost", |node| &node.name).to_owned();
        Self { api, world, access, certificates, first_node }
    }

    /// The node that [`Simulation::listen`] serves.
    pub(crate) fn first_node(&self) -> &str {
        &self.first_node
    }

    /// A transport without sockets for clients in this process.
    pub fn dialer(&self) -> MemoryDialer {
        MemoryDialer::new(Arc::clone(&self.api))
    }

    /// Serves the first node over HTTPS on a loopback address.
    ///
    /// # Errors
    /// See [`HttpsError`].
    pub async fn listen(&self, addr: SocketAddr) -> Result<HttpsServer, HttpsError> {
        self.listen_as(&self.first_node, addr).await
    }

    /// Serves a node over HTTPS on a loopback address.
    ///
    /// # Errors
    /// See [`HttpsError`].
    pub(crate) async fn listen_as(
        &self,
        node: &str,
        addr: SocketAddr,
    ) -> Result<HttpsServer, HttpsError> {
        HttpsServer::start(Arc::clone(&self.api), node, addr, &self.certificates).await
    }
}
