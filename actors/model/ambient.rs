//! Chance that can be repeated: seeded dice, and names made from draws.
//!
//! Nothing here asks the machine for randomness; the seed comes from outside.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

use crate::id::{AgentId, Installation, LeaseId, OrderId, crockford};

/// Seeded dice. The same seed and forks give the same draws, whatever else was drawn in between.
#[derive(Debug, Clone)]
pub struct Dice {
    seed: [u8; 32],
    rng: ChaCha12Rng,
}

impl Dice {
    /// Makes dice from 32 bytes.
    pub fn new(seed: [u8; 32]) -> Self {
        Self { seed, rng: ChaCha12Rng::from_seed(seed) }
    }

    /// Makes dice from a number, for tests and simulations.
    pub fn from_number(seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        Self::new(bytes)
    }

    /// Makes dice of their own for one purpose; independent of how much was drawn here.
    pub fn fork(&self, name: &str) -> Self {
        let mut rng = ChaCha12Rng::from_seed(self.seed);
        rng.set_stream(fnv1a(name) | 1);
        let mut seed = [0; 32];
        rng.fill_bytes(&mut seed);
        Self::new(seed)
    }

    /// 64 random bits.
    pub fn draw(&mut self) -> u64 {
        self.rng.next_u64()
    }

    /// A number below `bound`; zero for a bound of zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        // A product's high half is even enough for decisions; the bias is below bound / 2^64.
        u64::try_from((u128::from(self.draw()) * u128::from(bound)) >> 64).unwrap_or(0)
    }
}

/// FNV-1a, 64 bits: spreads names over the streams of one seed; the forks need no secrecy.
pub fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A pause made longer by up to a half, so that those who failed together do not try together.
pub fn jittered(pause: Duration, draw: u64) -> Duration {
    let part = u32::try_from(draw >> 48).unwrap_or(0);
    pause + (pause / 2) * part / 0x1_0000
}

/// Spells characters from draws of 64 bits, five bits each, twelve to a draw.
fn spell(length: usize, mut draw: impl FnMut() -> u64) -> String {
    let mut bits = 0;
    let mut left = 0;
    crockford(length, || {
        if left == 0 {
            bits = draw();
            left = 12;
        }
        let five = u32::try_from(bits & 31).unwrap_or(0);
        bits >>= 5;
        left -= 1;
        five
    })
}

/// Mints an agent's id: 80 random bits.
pub fn mint_agent(draw: impl FnMut() -> u64) -> AgentId {
    AgentId::new(spell(16, draw))
}

/// Mints a lease's id: `lease-` and 80 random bits.
pub fn mint_lease(draw: impl FnMut() -> u64) -> LeaseId {
    LeaseId::new(format!("lease-{}", spell(16, draw)))
}

/// Mints an order's id: `order-` and 80 random bits.
pub fn mint_order(draw: impl FnMut() -> u64) -> OrderId {
    OrderId::new(format!("order-{}", spell(16, draw)))
}

/// Mints an installation's id: 40 random bits.
pub fn mint_installation(draw: impl FnMut() -> u64) -> Installation {
    Installation::new(spell(8, draw))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::is_crockford;

    // Invariant: chance depends on the seed and the fork's name, on nothing else.

    #[test]
    fn the_same_seed_gives_the_same_draws() {
        let (mut one, mut two) = (Dice::from_number(7), Dice::from_number(7));
        assert!((0..100).all(|_| one.draw() == two.draw()));
        assert_ne!(Dice::from_number(8).draw(), Dice::from_number(7).draw());
    }

    #[test]
    fn a_fork_does_not_depend_on_earlier_draws() {
        let fresh = Dice::from_number(7);
        let mut used = Dice::from_number(7);
        used.draw();
        assert_eq!(fresh.fork("scheduler").draw(), used.fork("scheduler").draw());
        assert_ne!(fresh.fork("scheduler").draw(), fresh.fork("herd").draw());
        assert_ne!(fresh.fork("scheduler").draw(), fresh.clone().draw());
    }

    #[test]
    fn a_bounded_draw_stays_below_its_bound() {
        let mut dice = Dice::from_number(1);
        assert!((0..1000).all(|_| dice.below(6) < 6));
        assert_eq!(dice.below(0), 0);
    }

    #[test]
    fn jitter_makes_a_pause_longer_by_at_most_a_half() {
        let pause = Duration::from_secs(2);
        assert_eq!(jittered(pause, 0), pause);
        assert_eq!(jittered(pause, 1 << 63), Duration::from_millis(2500));
        let longest = jittered(pause, u64::MAX);
        assert!(longest < Duration::from_secs(3) && longest > Duration::from_millis(2999));
    }

    // Invariant: minted names have the form that the marks demand.

    #[test]
    fn minted_names_are_crockford_of_their_length() {
        let mut dice = Dice::from_number(3);
        let agent = mint_agent(|| dice.draw());
        assert!(is_crockford(agent.as_str(), 16), "{agent}");
        assert_ne!(agent, mint_agent(|| dice.draw()));
        assert!(is_crockford(mint_installation(|| dice.draw()).as_str(), 8));
        assert!(mint_lease(|| dice.draw()).as_str().starts_with("lease-"));
    }
}
