//! How many connections a node takes (behaviour section 1): pveproxy's workers take up to 500 each,
//! and answer no more calls than one on a connection of a worker that has nearly as many.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::spec::ClusterSpec;

/// Connections that one worker takes.
const EACH: usize = 500;
/// Connections of one worker beyond which none is kept alive.
const KEPT: usize = 480;

/// The connections of each node; those of a node without workers have no bound.
#[derive(Debug)]
pub struct Connections {
    nodes: BTreeMap<String, Arc<Semaphore>>,
    workers: usize,
}

/// One connection; it ends when this is dropped.
#[derive(Debug)]
pub struct Seat {
    taken: Option<(OwnedSemaphorePermit, Arc<Semaphore>)>,
    spare: usize,
}

impl Connections {
    /// As many as the workers of a cluster's nodes take.
    pub(super) fn new(spec: &ClusterSpec) -> Self {
        let workers = spec.workers.proxy;
        let bounded = spec.nodes.iter().filter(|_| workers > 0);
        let seats = |name: &String| (name.clone(), Arc::new(Semaphore::new(workers * EACH)));
        Self { nodes: bounded.map(|node| seats(&node.name)).collect(), workers }
    }

    /// Waits until the node takes one more.
    pub async fn take(&self, node: &str) -> Seat {
        let spare = self.workers * (EACH - KEPT);
        let Some(seats) = self.nodes.get(node) else { return Seat { taken: None, spare } };
        let taken = Arc::clone(seats).acquire_owned().await.ok();
        Seat { taken: taken.map(|permit| (permit, Arc::clone(seats))), spare }
    }
}

impl Seat {
    /// Whether its node has too many to keep it alive.
    pub fn is_crowded(&self) -> bool {
        self.taken.as_ref().is_some_and(|(_, seats)| seats.available_permits() < self.spare)
    }
}
