//! How long things take: one distribution for each kind of work, read from `--latency FILE`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::dice::Dice;

/// A uniform distribution between two bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// The least value.
    pub low: f64,
    /// The greatest value.
    pub high: f64,
}

impl Spread {
    /// Never any time, or an unlimited rate.
    pub const NONE: Self = Self { low: 0.0, high: 0.0 };

    /// Between two bounds.
    pub const fn of(low: f64, high: f64) -> Self {
        Self { low, high }
    }

    /// One value of the distribution as seconds.
    pub fn seconds(&self, dice: &mut Dice) -> Duration {
        let value = dice.between(self.low, self.high);
        if value.is_finite() && value > 0.0 {
            Duration::from_secs_f64(value)
        } else {
            Duration::ZERO
        }
    }

    /// The time this many bytes take when the distribution is a rate in bytes per second.
    pub fn transfer(&self, bytes: u64, dice: &mut Dice) -> Duration {
        let rate = dice.between(self.low, self.high);
        if rate > 0.0 { Duration::from_secs_f64(bytes as f64 / rate) } else { Duration::ZERO }
    }
}

/// The times of all kinds of work; seconds unless a name says bytes per second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct Latency {
    /// Every call, before it does anything.
    pub api_call: Spread,
    /// Forwarding to another node.
    pub hop: Spread,
    /// Making one volume, under the storage lock.
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
    /// Stopping a guest hard.
    pub stop: Spread,
    /// Destroying a guest, beside freeing its volumes.
    pub destroy: Spread,
    /// Turning a guest into a template.
    pub template: Spread,
    /// Growing a disk.
    pub resize: Spread,
    /// Taking, dropping or restoring a snapshot, without memory.
    pub snapshot: Spread,
    /// Saving or restoring memory, bytes per second.
    pub memory_bytes_per_second: Spread,
}

impl Latency {
    /// Everything at once.
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
            stop: Spread::NONE,
            destroy: Spread::NONE,
            template: Spread::NONE,
            resize: Spread::NONE,
            snapshot: Spread::NONE,
            memory_bytes_per_second: Spread::NONE,
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
            stop: Spread::of(0.3, 0.9),
            destroy: Spread::of(0.2, 0.5),
            template: Spread::of(0.2, 0.6),
            resize: Spread::of(0.1, 0.4),
            snapshot: Spread::of(0.1, 0.4),
            memory_bytes_per_second: Spread::of(500e6, 1e9),
        }
    }
}
