//! The only source of chance in a world; the seed determines everything it does.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A seeded random number generator.
#[derive(Debug)]
pub(crate) struct Random(StdRng);

impl Random {
    /// A generator that yields the same values for the same seed.
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// A number in this range; `low` if the range is empty.
    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        if high > low { self.0.random_range(low..high) } else { low }
    }

    /// True with this probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && (probability >= 1.0 || self.0.random_bool(probability))
    }

    /// A whole number below this bound.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.0.random_range(0..bound.max(1))
    }

    /// A MAC address with Proxmox's prefix, in upper case.
    pub(crate) fn mac(&mut self) -> String {
        let [a, b, c]: [u8; 3] = self.0.random();
        format!("BC:24:11:{a:02X}:{b:02X}:{c:02X}")
    }

    pub(crate) fn uuid(&mut self) -> String {
        uuid::Builder::from_random_bytes(self.0.random()).into_uuid().to_string()
    }
}
