//! The world's only source of chance, so that a seed fixes everything it does.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Seeded dice.
#[derive(Debug)]
pub struct Dice(StdRng);

impl Dice {
    /// Dice that always fall alike for one seed.
    pub fn seeded(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// A number between two bounds; the lower one when they do not differ.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        if high > low { self.0.random_range(low..high) } else { low }
    }

    /// Whether something of this probability happens.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && (probability >= 1.0 || self.0.random_bool(probability))
    }

    /// A whole number below a bound.
    pub fn below(&mut self, bound: u32) -> u32 {
        self.0.random_range(0..bound.max(1))
    }

    /// A MAC address in Proxmox's own range, upper case.
    pub fn mac(&mut self) -> String {
        let [a, b, c]: [u8; 3] = self.0.random();
        format!("BC:24:11:{a:02X}:{b:02X}:{c:02X}")
    }

    /// A random UUID (version 4).
    pub fn uuid(&mut self) -> String {
        uuid::Builder::from_random_bytes(self.0.random()).into_uuid().to_string()
    }
}
