//! Limits on the connections to a node (book: proxmox, section 1). Each worker of pveproxy accepts
//! up to 500. A worker with nearly as many closes each connection after one call.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::spec::ClusterSpec;

const CONNECTIONS_PER_WORKER: usize = 500;
/// A worker with more connections keeps none alive.
const KEEP_ALIVE_MAX: usize = 480;

/// The connections that each node still accepts. A node without workers has no limit.
#[derive(Debug)]
pub(crate) struct Connections {
    nodes: BTreeMap<String, Arc<Semaphore>>,
    workers: usize,
}

/// The right to one connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    held: Option<(OwnedSemaphorePermit, Arc<Semaphore>)>,
    spare: usize,
}

impl Connections {
    /// The limits of a cluster's nodes, by their workers.
    pub(super) fn new(spec: &ClusterSpec) -> Self {
        let workers = spec.workers.proxy;
        let bounded = spec.nodes.iter().filter(|_| workers > 0);
        let permits = |name: &String| {
            (name.clone(), Arc::new(Semaphore::new(workers * CONNECTIONS_PER_WORKER)))
        };
        Self { nodes: bounded.map(|node| permits(&node.name)).collect(), workers }
    }

    /// Waits until the node accepts one more connection.
    pub(crate) async fn acquire(&self, node: &str) -> ConnectionPermit {
        let spare = self.workers * (CONNECTIONS_PER_WORKER - KEEP_ALIVE_MAX);
        let Some(permits) = self.nodes.get(node) else {
            return ConnectionPermit { held: None, spare };
        };
        let held = Arc::clone(permits).acquire_owned().await.ok();
        ConnectionPermit { held: held.map(|permit| (permit, Arc::clone(permits))), spare }
    }
}

impl ConnectionPermit {
    /// Whether the node has too many connections to keep this one alive.
    pub(crate) fn is_crowded(&self) -> bool {
        self.held.as_ref().is_some_and(|(_, permits)| permits.available_permits() < self.spare)
    }
}
