//! Addresses of guests, derived from their VMIDs, and random values that repeat with a seed.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::time::Duration;

use sha2::{Digest, Sha256};

/// The number of addresses in a /16 whose last byte is neither 0 nor 255.
const SLOT_COUNT: u32 = 256 * 254;

/// The addresses of guests: that of the VMID, or the next free one.
#[derive(Debug)]
pub(super) struct AddressPool {
    net: [u8; 2],
    by_slot: BTreeMap<u32, u32>,
}

impl AddressPool {
    pub(super) fn new(net: [u8; 2]) -> Self {
        Self { net, by_slot: BTreeMap::new() }
    }

    /// The guest's address until it is released; none when all addresses are in use.
    pub(super) fn assign(&mut self, vmid: u32) -> Option<Ipv4Addr> {
        if let Some((slot, _)) = self.by_slot.iter().find(|(_, owner)| **owner == vmid) {
            return Some(self.address_of(*slot));
        }
        self.next_free(vmid, vmid % SLOT_COUNT)
    }

    /// Another address for a guest, because a program outside uses its own.
    pub(super) fn reassign(&mut self, vmid: u32) -> Option<Ipv4Addr> {
        let old = self.by_slot.iter().find(|(_, owner)| **owner == vmid).map(|(slot, _)| *slot);
        let start = old.unwrap_or(vmid % SLOT_COUNT);
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
        let slot = (0..SLOT_COUNT)
            .map(|i| (start + i) % SLOT_COUNT)
            .find(|s| !self.by_slot.contains_key(s))?;
        self.by_slot.insert(slot, vmid);
        Some(self.address_of(slot))
    }

    fn address_of(&self, slot: u32) -> Ipv4Addr {
        let [a, b] = self.net;
        let (c, d) = (slot / 254, slot % 254 + 1);
        Ipv4Addr::new(a, b, c.to_le_bytes()[0], d.to_le_bytes()[0])
    }
}

/// 32 bytes that depend only on the arguments.
pub(super) fn seeded_bytes(seed: u64, vmid: u32, round: u32, purpose: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(seed.to_le_bytes());
    hash.update(vmid.to_le_bytes());
    hash.update(round.to_le_bytes());
    hash.update(purpose.as_bytes());
    hash.finalize().into()
}

/// A duration within the range, in whole milliseconds.
pub(super) fn draw_duration(range: &Range<Duration>, bytes: &[u8; 32]) -> Duration {
    let [a, b, c, d, ..] = *bytes;
    let width = range.end.saturating_sub(range.start).as_millis().max(1);
    let offset = u128::from(u32::from_le_bytes([a, b, c, d])) % width;
    range.start + Duration::from_millis(u64::try_from(offset).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    // Invariant: no two guests have the same address, and a guest keeps its address.

    #[test]
    fn addresses_follow_the_vmid_and_never_collide() {
        let mut pool = AddressPool::new([127, 77]);
        let first = pool.assign(10_417).unwrap();
        assert_eq!(first, Ipv4Addr::new(127, 77, 41, 4));
        let same_slot = pool.assign(10_417 + SLOT_COUNT).unwrap();
        assert_eq!(same_slot, Ipv4Addr::new(127, 77, 41, 5));
        assert_eq!(pool.assign(10_417).unwrap(), first);
        let moved = pool.reassign(10_417).unwrap();
        assert_eq!(moved, Ipv4Addr::new(127, 77, 41, 6));
        assert_eq!(pool.assign(10_417).unwrap(), moved);
        pool.release(10_417);
        assert_eq!(pool.assign(10_417).unwrap(), first);
    }

    #[test]
    fn the_last_byte_is_never_0_or_255() {
        let mut pool = AddressPool::new([10, 77]);
        for vmid in 0..SLOT_COUNT {
            let [_, _, _, last] = pool.next_free(vmid, vmid).unwrap().octets();
            assert!(last != 0 && last != 255);
        }
        assert_eq!(pool.next_free(SLOT_COUNT, 0), None);
    }

    // Invariant: equal seeds give equal bytes.

    #[test]
    fn seeded_bytes_depend_on_every_argument() {
        let drawn = seeded_bytes(1, 100, 1, "boot");
        assert_eq!(drawn, seeded_bytes(1, 100, 1, "boot"));
        for other in [
            seeded_bytes(2, 100, 1, "boot"),
            seeded_bytes(1, 101, 1, "boot"),
            seeded_bytes(1, 100, 1, "down"),
        ] {
            assert_ne!(drawn, other);
        }
        let range = Duration::from_secs(2)..Duration::from_secs(4);
        assert!(range.contains(&draw_duration(&range, &drawn)));
        let fixed = Duration::from_secs(2)..Duration::from_secs(2);
        assert_eq!(draw_duration(&fixed, &drawn), Duration::from_secs(2));
    }
}
