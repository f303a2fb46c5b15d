//! Which of a cloud's endpoints takes the next call: stays with one that works, moves on when it
//! takes no connection, goes back to the first after a while.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::endpoint::Endpoint;
use crate::transport::Transport;

/// How long a later endpoint is kept before the first is tried again.
const RETURN_AFTER: Duration = Duration::from_secs(60);

/// A cloud's endpoints in order of preference.
pub struct Route {
    ways: Vec<(Endpoint, Arc<dyn Transport>)>,
    choice: Mutex<Choice>,
}

#[derive(Clone, Copy)]
struct Choice {
    index: usize,
    since: Instant,
}

impl Route {
    /// Starts with the first endpoint.
    pub fn new(ways: Vec<(Endpoint, Arc<dyn Transport>)>) -> Self {
        Self { ways, choice: Mutex::new(Choice { index: 0, since: Instant::now() }) }
    }

    /// The endpoints to try for one call, each once, best first.
    pub fn order(&self) -> Vec<usize> {
        let choice = *self.choice.lock();
        let count = self.ways.len();
        let stale = choice.index != 0 && choice.since.elapsed() >= RETURN_AFTER;
        let first = if stale { 0 } else { choice.index };
        (0..count).map(|step| (first + step) % count).collect()
    }

    /// The same, but those first that are called as a node: a file is best sent to the node that is to
    /// have it.
    pub fn order_near(&self, node: &str) -> Vec<usize> {
        let mut order = self.order();
        let is_it = |index: &usize| {
            let host = self.ways.get(*index).map_or("", |(endpoint, _)| endpoint.host());
            host.split('.').next() == Some(node)
        };
        order.sort_by_key(|index| !is_it(index));
        order
    }

    /// The endpoint and the way to it.
    pub fn way(&self, index: usize) -> Option<(&Endpoint, &Arc<dyn Transport>)> {
        self.ways.get(index).map(|(endpoint, transport)| (endpoint, transport))
    }

    /// The number of endpoints.
    pub fn count(&self) -> usize {
        self.ways.len()
    }

    /// Notes that an endpoint took a call.
    pub fn took(&self, index: usize) {
        let mut choice = self.choice.lock();
        if choice.index != index || index == 0 {
            if choice.index != index {
                tracing::info!(endpoint = index, "another endpoint is in use");
            }
            *choice = Choice { index, since: Instant::now() };
        }
    }

    /// Leaves an endpoint that answers but is no use, as one without quorum.
    pub fn leave(&self, index: usize) {
        let mut choice = self.choice.lock();
        if choice.index == index {
            let next = (index + 1) % self.ways.len().max(1);
            *choice = Choice { index: next, since: Instant::now() };
        }
    }
}
