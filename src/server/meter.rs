//! Counts what a peer tries in vain, so that nobody can try secrets at full speed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::peer::Peer;

/// Tries of one peer that may be in vain within [`WINDOW`]; then it is not heard for a while.
pub(super) const TRIES: u32 = 20;
pub(super) const WINDOW: Duration = Duration::from_secs(10);
/// Entries that are kept at most, of each kind.
const KEPT: usize = 10_000;

/// Counts of tries in vain. Many callers may come by one proxy: what was right does not count.
#[derive(Default)]
pub(super) struct Meter(Mutex<Recent<Peer, (Instant, u32)>>);

impl Meter {
    /// Whether this peer is heard; the error is how long it is not.
    pub(super) fn admits(&self, peer: Peer, now: Instant) -> Result<(), Duration> {
        let tries = self.0.lock();
        let Some((since, count)) = tries.get(&peer) else { return Ok(()) };
        let left = WINDOW.saturating_sub(now.saturating_duration_since(*since));
        if *count < TRIES || left.is_zero() { Ok(()) } else { Err(left) }
    }

    /// A try was in vain.
    pub(super) fn in_vain(&self, peer: Peer, now: Instant) {
        let mut tries = self.0.lock();
        let (since, count) = tries.entry(peer, || (now, 0));
        if now.saturating_duration_since(*since) >= WINDOW {
            (*since, *count) = (now, 0);
        }
        *count += 1;
    }
}

/// Digests of the tokens that were right lately, and the peers that showed them. A caller that comes
/// again from the same peer is not throttled, whatever others try from there.
#[derive(Default)]
pub(super) struct Proven(Mutex<Recent<(Peer, [u8; 32]), ()>>);

impl Proven {
    /// Whether this digest was right from there.
    pub(super) fn knows(&self, peer: Peer, digest: [u8; 32]) -> bool {
        self.0.lock().get(&(peer, digest)).is_some()
    }

    /// This digest was right from there.
    pub(super) fn note(&self, peer: Peer, digest: [u8; 32]) {
        self.0.lock().entry((peer, digest), || ());
    }
}

/// A bounded map that forgets what was not touched for longest, half of it at once.
struct Recent<K, V> {
    new: BTreeMap<K, V>,
    old: BTreeMap<K, V>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { new: BTreeMap::new(), old: BTreeMap::new() }
    }
}

impl<K: Ord + Clone, V> Recent<K, V> {
    fn get(&self, key: &K) -> Option<&V> {
        self.new.get(key).or_else(|| self.old.get(key))
    }

    fn entry(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        if !self.new.contains_key(&key) && self.new.len() >= KEPT / 2 {
            self.old = std::mem::take(&mut self.new);
        }
        let known = self.old.remove(&key);
        self.new.entry(key).or_insert_with(|| known.unwrap_or_else(make))
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn peer(n: u32) -> Peer {
        Peer::at(IpAddr::from(n.to_be_bytes()))
    }

    // Invariant: a peer that tries too often in vain is not heard for a while; others are.

    #[test]
    fn a_peer_has_so_many_tries_in_vain_and_all_that_is_kept_has_a_bound() {
        let (meter, start) = (Meter::default(), Instant::now());
        let (one, other) = (peer(1), peer(2));
        for _ in 0..TRIES {
            assert_eq!(meter.admits(one, start), Ok(()));
            meter.in_vain(one, start);
        }
        let later = Duration::from_millis(3_400);
        assert_eq!(meter.admits(one, start + later), Err(WINDOW - later));
        assert_eq!(meter.admits(other, start), Ok(()));
        assert_eq!(meter.admits(one, start + WINDOW), Ok(()));
        for n in 0..3 * u32::try_from(KEPT).unwrap_or(0) {
            meter.in_vain(peer(n), start);
        }
        let kept = meter.0.lock();
        assert!(kept.new.len() + kept.old.len() <= KEPT);
    }

    #[test]
    fn many_others_do_not_make_a_peer_heard_that_goes_on_trying() {
        let (meter, start) = (Meter::default(), Instant::now());
        for n in 0..4 * u32::try_from(KEPT).unwrap_or(0) {
            meter.in_vain(peer(n + 10), start);
            if n % 1000 == 0 {
                meter.in_vain(peer(1), start);
            }
        }
        assert!(meter.admits(peer(1), start).is_err());
    }

    #[test]
    fn what_was_right_is_known_there_and_nowhere_else() {
        let proven = Proven::default();
        proven.note(peer(1), [7; 32]);
        assert!(proven.knows(peer(1), [7; 32]));
        assert!(!proven.knows(peer(2), [7; 32]) && !proven.knows(peer(1), [8; 32]));
    }
}
