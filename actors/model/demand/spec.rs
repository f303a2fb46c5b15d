//! A configured source of demand, as far as decisions need it.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::id::SourceId;

/// What share of the machines a source may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareSpec {
    /// Its part beside the other sources' weights when machines are short; at least 1.
    pub weight: u32,
    /// Jobs of a higher priority go first, whatever the weights.
    pub priority: i32,
    /// The most agents it may have at once; none for no limit.
    pub cap: Option<u32>,
}

impl Default for ShareSpec {
    fn default() -> Self {
        Self { weight: 1, priority: 0, cap: None }
    }
}

/// One configured source of demand.
///
/// Never written down as a whole: `connection` is drawn from secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSpec {
    /// Its key in `demand`.
    pub id: SourceId,
    /// The kind of system, as in the configuration.
    pub kind: &'static str,
    pub share: ShareSpec,
    /// Labels that its jobs may want; none for all. Jobs that want others are left alone.
    pub labels: Option<BTreeSet<String>>,
    /// Keys of the labels of size that any template has; its jobs may want these beside `labels`.
    pub size_keys: BTreeSet<String>,
    /// Characters that the program of its runners reads as the end of a label's name.
    pub ends_of_labels: &'static [char],
    /// Whether a runner takes its agent whole, with all its executors (Jenkins), and not one of them.
    pub whole: bool,
    /// Whether a runner is done after its first job, though its source would give it more.
    pub single: bool,
    /// Whether a runner is asked to take no further job once it has one, because its source would give
    /// it more (Jenkins), rather than after its job.
    pub early: bool,
    /// Whether a runner makes its row itself, in its guest: one that was never seen may yet come.
    pub registers: bool,
    /// Whether a runner whose row is gone has no job for certain: its source keeps the row while a job
    /// is on it (GitHub), or reports the job by itself (Gitea).
    pub firm: bool,
    /// Time between two looks.
    pub poll: Duration,
    /// Time between two looks while it has runners; at most `poll`.
    pub brisk: Duration,
    /// How long a runner may take to be seen at its source.
    pub register: Duration,
    /// How long a runner may be without a job.
    pub idle: Duration,
    /// How long a job may take.
    pub job: Duration,
    /// Changes whenever its URL, credentials or scope change; opaque.
    pub connection: u64,
    /// Changes whenever its URL or scope change; opaque. Holds no secret, and is written down with
    /// each runner.
    pub place: u64,
}

impl SourceSpec {
    /// Why none of its runners can have a label; none where they can.
    pub fn bars(&self, label: &str) -> Option<String> {
        label.contains(self.ends_of_labels).then(|| {
            let ends: Vec<String> =
                self.ends_of_labels.iter().map(|end| format!("`{end}`")).collect();
            format!(
                "no runner of source `{}` can have the label `{label}`: its program reads {} as the \
                 end of a name",
                self.id,
                ends.join(" and ")
            )
        })
    }
}
