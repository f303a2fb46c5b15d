//! Until when calls may be sent that change something.
//!
//! Both clocks count: the monotonic one stands still while a machine sleeps, and somebody may set the
//! wall clock back. Whichever is past closes the gate.

use std::sync::Arc;

use drover_model::gate::Gate;
use drover_model::ports::Ambient;
use drover_model::time::Now;
use futures_util::FutureExt as _;
use tokio::sync::watch;

/// Until when a member may send. Clones share it.
#[derive(Clone)]
pub struct SendBy {
    until: watch::Sender<Option<Now>>,
    ambient: Arc<dyn Ambient>,
}

impl SendBy {
    /// Nothing may be sent yet.
    pub fn new(ambient: Arc<dyn Ambient>) -> Self {
        Self { until: watch::Sender::new(None), ambient }
    }

    /// From now on calls may be sent until then.
    pub(crate) fn extend(&self, until: Now) {
        self.until.send_replace(Some(until));
    }

    /// Nothing may be sent from now on.
    pub(crate) fn end(&self) {
        self.until.send_replace(None);
    }

    /// Whether calls may be sent now.
    pub fn is_open(&self) -> bool {
        let now = self.ambient.now();
        self.until.borrow().is_some_and(|until| now.mono < until.mono && now.wall < until.wall)
    }

    /// Lets calls through while they may be sent, and keeps the others waiting.
    pub fn gate(&self) -> Gate {
        let by = self.clone();
        Gate::new(Arc::new(move || {
            let by = by.clone();
            async move {
                let mut news = by.until.subscribe();
                while !by.is_open() {
                    // The sender lives in `by`, so this cannot fail.
                    let _ = news.changed().await;
                }
            }
            .boxed()
        }))
    }
}
