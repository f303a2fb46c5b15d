//! Chooses the endpoint for the next call: it stays with one that works, moves on when that accepts
//! no connection, and returns to the first after a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::endpoint::Endpoint;
use crate::transport::Transport;

/// How long a later endpoint is used before the first is tried again.
const RETURN_AFTER: Duration = Duration::from_secs(60);

/// The endpoints of a cluster in order of preference.
pub struct Route {
    endpoints: Vec<(Endpoint, Arc<dyn Transport>)>,
    choice: Mutex<Choice>,
    /// Whether any of them ever accepted a call.
    answered: AtomicBool,
}

#[derive(Clone, Copy)]
struct Choice {
    index: usize,
    since: Instant,
}

impl Route {
    /// A route that starts with the first endpoint.
    pub fn new(endpoints: Vec<(Endpoint, Arc<dyn Transport>)>) -> Self {
        let choice = Mutex::new(Choice { index: 0, since: Instant::now() });
        Self { endpoints, choice, answered: AtomicBool::new(false) }
    }

    /// The indexes of all endpoints in the order in which one call tries them.
    pub fn order(&self) -> Vec<usize> {
        let choice = *self.choice.lock();
        let count = self.endpoints.len();
        let stale = choice.index != 0 && choice.since.elapsed() >= RETURN_AFTER;
        let first = if stale { 0 } else { choice.index };
        (0..count).map(|step| (first + step) % count).collect()
    }

    /// As [`Self::order`], but endpoints named like `node` come first: a file is best sent to the
    /// node that will hold it.
    pub(crate) fn order_for_node(&self, node: &str) -> Vec<usize> {
        let mut order = self.order();
        let is_it = |index: &usize| {
            let host = self.endpoints.get(*index).map_or("", |(endpoint, _)| endpoint.host());
            host.split('.').next() == Some(node)
        };
        order.sort_by_key(|index| !is_it(index));
        order
    }

    /// An endpoint and the transport to it.
    pub fn get(&self, index: usize) -> Option<(&Endpoint, &Arc<dyn Transport>)> {
        self.endpoints.get(index).map(|(endpoint, transport)| (endpoint, transport))
    }

    /// The number of endpoints.
    pub fn count(&self) -> usize {
        self.endpoints.len()
    }

    /// Whether any endpoint ever accepted a call.
    pub(crate) fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// Notes that an endpoint accepted a call.
    pub(crate) fn mark_used(&self, index: usize) {
        self.answered.store(true, Ordering::Relaxed);
        let mut choice = self.choice.lock();
        if choice.index != index || index == 0 {
            if choice.index != index {
                tracing::info!(endpoint = index, "switched to another endpoint");
            }
            *choice = Choice { index, since: Instant::now() };
        }
    }

    /// Moves on from an endpoint that answers but is of no use, such as one without quorum.
    pub fn skip(&self, index: usize) {
        let mut choice = self.choice.lock();
        if choice.index == index {
            let next = (index + 1) % self.endpoints.len().max(1);
            *choice = Choice { index: next, since: Instant::now() };
        }
    }
}
