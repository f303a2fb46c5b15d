//! Addresses of guests, drawn from their VMIDs, and the dice that keep a seed's runs alike.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::time::Duration;

use sha2::{Digest, Sha256};

/// Addresses in one /16 whose last byte is neither 0 nor 255.
const SLOTS: u32 = 256 * 254;

/// Which address each guest has: the one its VMID points at, or the next free one.
#[derive(Debug)]
pub(super) struct AddressBook {
    net: [u8; 2],
    by_slot: BTreeMap<u32, u32>,
}

impl AddressBook {
    pub(super) fn new(net: [u8; 2]) -> Self {
        Self { net, by_slot: BTreeMap::new() }
    }

    /// The guest's address, kept until it is released; none when all are taken.
    pub(super) fn assign(&mut self, vmid: u32) -> Option<Ipv4Addr> {
        if let Some((slot, _)) = self.by_slot.iter().find(|(_, owner)| **owner == vmid) {
            return Some(self.at(*slot));
        }
        self.next_free(vmid, vmid % SLOTS)
    }

    /// Another address for a guest whose own is taken by somebody outside.
    pub(super) fn reassign(&mut self, vmid: u32) -> Option<Ipv4Addr> {
        let old = self.by_slot.iter().find(|(_, owner)| **owner == vmid).map(|(slot, _)| *slot);
        let start = old.unwrap_or(vmid % SLOTS);
        let fresh = self.next_free(vmid, start);
        if let Some(slot) = old {
            self.by_slot.remove(&slot);
        }
        fresh
    }

    pub(super) fn release(&mut self, vmid: u32) {
        self.by_slot.retain(|_, owner| *owner != vmid);
    }

    fn next_free(&mut self, vmid: u32, start: u32) -> Option<Ipv4Addr> {
        let slot =
            (0..SLOTS).map(|i| (start + i) % SLOTS).find(|s| !self.by_slot.contains_key(s))?;
        self.by_slot.insert(slot, vmid);
        Some(self.at(slot))
    }

    fn at(&self, slot: u32) -> Ipv4Addr {
        let [a, b] = self.net;
        let (c, d) = (slot / 254, slot % 254 + 1);
        Ipv4Addr::new(a, b, c.to_le_bytes()[0], d.to_le_bytes()[0])
    }
}

/// 32 bytes that depend on nothing but the seed and what they are for.
pub(super) fn dice(seed: u64, vmid: u32, turn: u32, purpose: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(seed.to_le_bytes());
    hash.update(vmid.to_le_bytes());
    hash.update(turn.to_le_bytes());
    hash.update(purpose.as_bytes());
    hash.finalize().into()
}

/// A duration within the range, to the millisecond.
pub(super) fn within(range: &Range<Duration>, bytes: &[u8; 32]) -> Duration {
    let [a, b, c, d, ..] = *bytes;
    let width = range.end.saturating_sub(range.start).as_millis().max(1);
    let offset = u128::from(u32::from_le_bytes([a, b, c, d])) % width;
    range.start + Duration::from_millis(u64::try_from(offset).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    // Invariant: no two guests share an address, and a guest keeps its own.

    #[test]
    fn addresses_follow_the_vmid_and_never_collide() {
        let mut book = AddressBook::new([127, 77]);
        let first = book.assign(10_417).unwrap();
        assert_eq!(first, Ipv4Addr::new(127, 77, 41, 4));
        let same_slot = book.assign(10_417 + SLOTS).unwrap();
        assert_eq!(same_slot, Ipv4Addr::new(127, 77, 41, 5));
        assert_eq!(book.assign(10_417).unwrap(), first);
        let moved = book.reassign(10_417).unwrap();
        assert_eq!(moved, Ipv4Addr::new(127, 77, 41, 6));
        assert_eq!(book.assign(10_417).unwrap(), moved);
        book.release(10_417);
        assert_eq!(book.assign(10_417).unwrap(), first);
    }

    #[test]
    fn the_last_byte_is_never_that_of_a_net_or_a_broadcast() {
        let mut book = AddressBook::new([10, 77]);
        for vmid in 0..SLOTS {
            let [_, _, _, last] = book.next_free(vmid, vmid).unwrap().octets();
            assert!(last != 0 && last != 255);
        }
        assert_eq!(book.next_free(SLOTS, 0), None);
    }

    // Invariant: equal seeds throw equal dice.

    #[test]
    fn dice_depend_on_every_part() {
        let thrown = dice(1, 100, 1, "boot");
        assert_eq!(thrown, dice(1, 100, 1, "boot"));
        for other in [dice(2, 100, 1, "boot"), dice(1, 101, 1, "boot"), dice(1, 100, 1, "down")] {
            assert_ne!(thrown, other);
        }
        let range = Duration::from_secs(2)..Duration::from_secs(4);
        assert!(range.contains(&within(&range, &thrown)));
        let fixed = Duration::from_secs(2)..Duration::from_secs(2);
        assert_eq!(within(&fixed, &thrown), Duration::from_secs(2));
    }
}
