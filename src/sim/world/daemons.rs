//! The worker processes of pveproxy and pvedaemon on each node. Each worker handles one call at a
//! time (book: proxmox, section 1); calls wait for one in the order of their arrival.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::spec::WorkersSpec;

#[derive(Debug)]
pub(crate) struct Daemons {
    nodes: BTreeMap<String, NodeWorkers>,
}

/// The workers of one node; none means unlimited.
#[derive(Debug)]
struct NodeWorkers {
    proxy: Option<Arc<Semaphore>>,
    daemon: Option<Arc<Semaphore>>,
}

impl Daemons {
    /// Creates the same number of workers for each node.
    pub(crate) fn new<'a>(nodes: impl Iterator<Item = &'a str>, workers: WorkersSpec) -> Self {
        let limit = |count: usize| (count > 0).then(|| Arc::new(Semaphore::new(count)));
        let node = |name: &str| {
            (
                name.to_owned(),
                NodeWorkers { proxy: limit(workers.proxy), daemon: limit(workers.daemon) },
            )
        };
        Self { nodes: nodes.map(node).collect() }
    }

    /// Waits for a worker; it is busy until the permit is dropped.
    pub(crate) async fn acquire_worker(
        &self,
        node: &str,
        protected: bool,
    ) -> Option<OwnedSemaphorePermit> {
        let node = self.nodes.get(node)?;
        let workers = if protected { &node.daemon } else { &node.proxy };
        Arc::clone(workers.as_ref()?).acquire_owned().await.ok()
    }
}
