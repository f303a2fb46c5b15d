//! The processes of a node that handle calls: workers of pveproxy and of pvedaemon, each of which
//! handles one call at a time (behaviour section 1). Calls wait for them in the order they came.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::spec::WorkersSpec;

/// The workers of every node.
#[derive(Debug)]
pub(crate) struct Daemons {
    nodes: BTreeMap<String, Node>,
}

/// The workers of one node; none where they have no bound.
#[derive(Debug)]
struct Node {
    proxy: Option<Arc<Semaphore>>,
    daemon: Option<Arc<Semaphore>>,
}

impl Daemons {
    /// As many for each node.
    pub(crate) fn new<'a>(nodes: impl Iterator<Item = &'a str>, workers: WorkersSpec) -> Self {
        let some = |count: usize| (count > 0).then(|| Arc::new(Semaphore::new(count)));
        let node = |name: &str| {
            (name.to_owned(), Node { proxy: some(workers.proxy), daemon: some(workers.daemon) })
        };
        Self { nodes: nodes.map(node).collect() }
    }

    /// Waits for a worker; it is busy until what is given is dropped.
    pub(crate) async fn worker(&self, node: &str, protected: bool) -> Option<OwnedSemaphorePermit> {
        let node = self.nodes.get(node)?;
        let workers = if protected { &node.daemon } else { &node.proxy };
        Arc::clone(workers.as_ref()?).acquire_owned().await.ok()
    }
}
