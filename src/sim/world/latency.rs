//! How long each kind of work takes; read from `--latency FILE`.

use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::random::Random;

/// A uniform distribution between two bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    pub low: f64,
    pub high: f64,
}

impl Spread {
    /// No delay, or an unlimited rate.
    pub const NONE: Self = Self { low: 0.0, high: 0.0 };

    pub const fn of(low: f64, high: f64) -> Self {
        Self { low, high }
    }

    /// The bounds as durations; what is no duration counts as none.
    pub(crate) fn range(&self) -> Range<Duration> {
        let bound = |value: f64| Duration::try_from_secs_f64(value).unwrap_or_default();
        bound(self.low)..bound(self.high)
    }

    /// A random value of the distribution, in seconds.
    pub(crate) fn seconds(&self, random: &mut Random) -> Duration {
        let value = random.between(self.low, self.high);
        if value.is_finite() && value > 0.0 {
            Duration::from_secs_f64(value)
        } else {
            Duration::ZERO
        }
    }

    /// The time that this many bytes take if the distribution is a rate in bytes per second.
    pub(crate) fn transfer(&self, bytes: u64, random: &mut Random) -> Duration {
        let rate = random.between(self.low, self.high);
        if rate > 0.0 { Duration::from_secs_f64(bytes as f64 / rate) } else { Duration::ZERO }
    }
}

/// The durations of all kinds of work, in seconds; rates are in bytes per second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct Latency {
    /// The start of every call.
    pub api_call: Spread,
    /// Forwarding a call to another node.
    pub hop: Spread,
    /// Allocating one volume, under the storage lock.
    pub allocate: Spread,
    /// Freeing one volume, under the storage lock.
    pub free: Spread,
    /// Linking one volume to its base, under the storage lock.
    pub clone_linked: Spread,
    /// Copying a volume, bytes per second.
    pub copy_bytes_per_second: Spread,
    /// Changing a configuration.
    pub config: Spread,
    /// Starting a guest, until QEMU runs.
    pub start: Spread,
    /// What the installer of an ISO image takes.
    pub install: Spread,
    /// Killing a guest.
    pub stop: Spread,
    /// Destroying a guest, without freeing its volumes.
    pub destroy: Spread,
    /// Converting a guest to a template.
    pub template: Spread,
    /// Growing a disk.
    pub resize: Spread,
    /// Taking, deleting or rolling back a snapshot, without memory.
    pub snapshot: Spread,
    /// Saving or restoring memory, bytes per second.
    pub memory_bytes_per_second: Spread,
    /// From the start of QEMU until a guest that is simulated answers; none for the guests' own.
    pub guest_boot: Option<Spread>,
    /// From the request until such a guest has shut down; none for the guests' own.
    pub guest_shutdown: Option<Spread>,
}

impl Latency {
    /// No delays at all.
    pub const fn none() -> Self {
        Self {
            api_call: Spread::NONE,
            hop: Spread::NONE,
            allocate: Spread::NONE,
            free: Spread::NONE,
            clone_linked: Spread::NONE,
            copy_bytes_per_second: Spread::NONE,
            config: Spread::NONE,
            start: Spread::NONE,
            install: Spread::NONE,
            stop: Spread::NONE,
            destroy: Spread::NONE,
            template: Spread::NONE,
            resize: Spread::NONE,
            snapshot: Spread::NONE,
            memory_bytes_per_second: Spread::NONE,
            guest_boot: None,
            guest_shutdown: None,
        }
    }
}

impl Default for Latency {
    /// A small cluster with local SSDs.
    fn default() -> Self {
        Self {
            api_call: Spread::of(0.01, 0.04),
            hop: Spread::of(0.005, 0.02),
            allocate: Spread::of(0.1, 0.3),
            free: Spread::of(0.1, 0.3),
            clone_linked: Spread::of(0.2, 0.6),
            copy_bytes_per_second: Spread::of(300e6, 900e6),
            config: Spread::of(0.02, 0.08),
            start: Spread::of(0.6, 1.4),
            install: Spread::of(240.0, 420.0),
            stop: Spread::of(0.3, 0.9),
            destroy: Spread::of(0.2, 0.5),
            template: Spread::of(0.2, 0.6),
            resize: Spread::of(0.1, 0.4),
            snapshot: Spread::of(0.1, 0.4),
            memory_bytes_per_second: Spread::of(500e6, 1e9),
            guest_boot: None,
            guest_shutdown: None,
        }
    }
}
