//! How long the last boots of one template took, and the estimate that follows for its next guest.

use std::collections::VecDeque;
use std::time::Duration;

/// The number of boots that are remembered.
pub(crate) const KEPT: usize = 64;
/// The fewest boots that an estimate needs.
const ENOUGH: usize = 4;
/// One boot in this many is faster than the estimate. A question before the guest agent is up costs
/// more than a late question to the fastest guest.
const EARLIEST: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Booted {
    /// From the end of the start's task to the first answer of the guest agent.
    pub up: Duration,
    /// From the guest agent's first answer to the address.
    pub address: Duration,
}

/// The last boots of one template.
#[derive(Debug, Default)]
pub struct Boots(VecDeque<Booted>);

impl Boots {
    pub fn note(&mut self, booted: Booted) {
        self.0.push_back(booted);
        if self.0.len() > KEPT {
            self.0.pop_front();
        }
    }

    /// The estimate: a time that one boot in `EARLIEST` undercuts. `None` before enough boots
    /// were seen.
    pub fn early(&self) -> Option<Booted> {
        if self.0.len() < ENOUGH {
            return None;
        }
        let early = |part: fn(&Booted) -> Duration| {
            let mut all: Vec<Duration> = self.0.iter().map(part).collect();
            all.sort_unstable();
            all.get(all.len() / EARLIEST).copied()
        };
        let (up, address) = (early(|booted| booted.up)?, early(|booted| booted.address)?);
        Some(Booted { up, address: address * 9 / 10 })
    }
}
