//! Where the durations of calls and waits go: to who counts them for people. Nothing decides by them.

use std::sync::OnceLock;
use std::time::Duration;

use proxmox_client::call_route::{CallOutcome, CallRoute};

/// Takes how each call ended, and how long it took after it had its turn; of one that was not sent, how
/// long it waited.
pub type MeasureCall = Box<dyn Fn(CallRoute, CallOutcome, Duration) + Send + Sync>;

/// Takes how long each start or destroy waited for the limits of its node and storages: the word for the
/// task, and the wait.
pub type MeasureWait = Box<dyn Fn(&'static str, Duration) + Send + Sync>;

/// Who takes the figures of all clusters, once somebody does.
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) calls: OnceLock<MeasureCall>,
    pub(crate) waits: OnceLock<MeasureWait>,
}
