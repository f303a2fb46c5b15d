//! What keeps calls waiting that would change something.

use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

/// What a gate asks: the answer comes when calls may go.
pub type Ask = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// Passed right before a call is sent that changes something. Clones are the same gate.
#[derive(Clone)]
pub struct Gate(Ask);

impl Gate {
    pub fn new(ask: Ask) -> Self {
        Self(ask)
    }

    /// Waits until calls may go.
    pub async fn pass(&self) {
        (self.0)().await;
    }

    /// The question itself, for those who know no gates.
    pub fn ask(&self) -> Ask {
        Arc::clone(&self.0)
    }
}

impl Default for Gate {
    /// A gate that keeps nothing waiting: for a drover that stands alone.
    fn default() -> Self {
        Self(Arc::new(|| std::future::ready(()).boxed()))
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}
