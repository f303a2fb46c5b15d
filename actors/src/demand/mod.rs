//! Demand from CI systems: each configured source is read as a level, so many jobs of that kind
//! wait, and the scheduler turns all levels into starts and hand-outs by weighted fair shares.

pub mod actor;
pub mod mind;
mod observed;
pub mod runners;
pub mod share;
pub mod unknown_runners;

use drover_model::record::Want;
use drover_model::time::WallTime;

/// Jobs of one kind that wait at a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    /// What they want.
    pub want: Want,
    /// Since when each of them waits, the oldest first.
    pub since: Vec<WallTime>,
}
