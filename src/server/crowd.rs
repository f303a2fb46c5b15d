//! Who is connected, and who has to go when there is no room: pure bookkeeping of one server.
//!
//! A connection *waits* while its next request is not complete: nothing arrived, half a head, half
//! a body, or it is idle between two requests. It *works* while a request of it is answered, which
//! has an end of its own. Room for those that wait is bounded for each peer and in all, and a new
//! connection is never refused for it: the one that waited longest goes instead, strangers before
//! callers who were let in once. So slow connections crowd out each other, and somebody with a
//! whole request is served. Room for those that work is bounded in all, and then a request is
//! answered 503.
//!
//! In comes what a connection does (`enter`, `work`, `wait`, `know`, `leave`); out goes the
//! [`Line`] of the connection that must be cut. `line.rs` is one connection, `serve.rs` cuts it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::line::Line;
use super::peer::Peer;

/// How many connections a server has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Connections that wait for the rest of a request.
    pub waiting: usize,
    /// Those of one peer.
    pub waiting_of_peer: usize,
    /// Connections whose request is answered.
    pub working: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { waiting: 512, waiting_of_peer: 256, working: 2048 }
    }
}

/// The connections of one server.
pub(super) struct Crowd {
    room: Room,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    next: u64,
    entries: BTreeMap<u64, Entry>,
    /// Those that wait: strangers first, and of these who waits longest.
    waiting: BTreeSet<Turn>,
    waiting_of: BTreeMap<Peer, BTreeSet<Turn>>,
    working: usize,
}

/// Whether it was let in once, since when it waits, and its number.
type Turn = (bool, u64, u64);

struct Entry {
    peer: Peer,
    known: bool,
    /// Since when it waits; none while it works.
    waits: Option<u64>,
    line: Arc<Line>,
}

/// There is no room for another request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

impl Crowd {
    pub(super) fn new(room: Room) -> Self {
        Self { room, book: Mutex::default() }
    }

    fn book(&self) -> parking_lot::MutexGuard<'_, Book> {
        self.book.lock()
    }

    /// A connection came. It has room; one that waited longer may be cut for it.
    pub(super) fn enter(self: &Arc<Self>, peer: Peer, known: bool, line: &Arc<Line>) -> Place {
        let mut book = self.book();
        let id = book.tick();
        book.entries.insert(id, Entry { peer, known, waits: None, line: Arc::clone(line) });
        book.wait(id);
        book.make_room(&self.room, peer);
        Place { crowd: Arc::clone(self), id }
    }

    /// Cuts so many of those that wait longest: the system has no descriptors left.
    pub(super) fn shed(&self, count: usize) {
        let mut book = self.book();
        for _ in 0..count {
            let Some(turn) = book.waiting.first().copied() else { return };
            book.cut(turn);
        }
    }

    /// Connections that wait, and those that work.
    #[cfg(test)]
    pub(super) fn count(&self) -> (usize, usize) {
        let book = self.book();
        (book.waiting.len(), book.working)
    }
}

impl Book {
    fn tick(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn wait(&mut self, id: u64) {
        let now = self.tick();
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if entry.waits.is_some() {
            return;
        }
        entry.waits = Some(now);
        let turn = (entry.known, now, id);
        self.waiting_of.entry(entry.peer).or_default().insert(turn);
        self.waiting.insert(turn);
    }

    /// Takes it from those that wait; gives when it began to.
    fn unwait(&mut self, id: u64) -> Option<u64> {
        let entry = self.entries.get_mut(&id)?;
        let since = entry.waits.take()?;
        let turn = (entry.known, since, id);
        self.waiting.remove(&turn);
        if let Some(of_peer) = self.waiting_of.get_mut(&entry.peer) {
            of_peer.remove(&turn);
            if of_peer.is_empty() {
                self.waiting_of.remove(&entry.peer);
            }
        }
        Some(since)
    }

    fn make_room(&mut self, room: &Room, peer: Peer) {
        while let Some(of_peer) = self.waiting_of.get(&peer)
            && of_peer.len() > room.waiting_of_peer.max(1)
            && let Some(turn) = of_peer.first().copied()
        {
            self.cut(turn);
        }
        while self.waiting.len() > room.waiting.max(1)
            && let Some(turn) = self.waiting.first().copied()
        {
            self.cut(turn);
        }
    }

    fn cut(&mut self, (_, _, id): Turn) {
        self.unwait(id);
        if let Some(entry) = self.entries.remove(&id) {
            entry.line.cut();
        }
    }
}

/// A connection's place among the others; it is free again when this is dropped.
pub(super) struct Place {
    crowd: Arc<Crowd>,
    id: u64,
}

impl Place {
    /// A request of it is answered from now on.
    pub(super) fn work(&self) -> Result<(), Full> {
        let mut book = self.crowd.book();
        if book.working >= self.crowd.room.working {
            return Err(Full);
        }
        if book.unwait(self.id).is_some() {
            book.working += 1;
        }
        Ok(())
    }

    /// It waits for a request from now on.
    pub(super) fn wait(&self) {
        let mut book = self.crowd.book();
        let Some(entry) = book.entries.get(&self.id) else { return };
        let peer = entry.peer;
        if entry.waits.is_none() {
            book.working -= 1;
            book.wait(self.id);
            book.make_room(&self.crowd.room, peer);
        }
    }

    /// Its caller was let in.
    pub(super) fn know(&self) {
        let mut book = self.crowd.book();
        let since = book.unwait(self.id);
        let Some(entry) = book.entries.get_mut(&self.id) else { return };
        entry.known = true;
        if let Some(since) = since {
            entry.waits = Some(since);
            let (peer, turn) = (entry.peer, (true, since, self.id));
            book.waiting_of.entry(peer).or_default().insert(turn);
            book.waiting.insert(turn);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut book = self.crowd.book();
        if book.unwait(self.id).is_none() && book.entries.contains_key(&self.id) {
            book.working -= 1;
        }
        book.entries.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use proptest::prelude::*;

    use super::*;

    fn peer(last: u8) -> Peer {
        Peer::at([10, 0, 0, last].into())
    }

    fn crowd(waiting: usize, waiting_of_peer: usize, working: usize) -> Arc<Crowd> {
        Arc::new(Crowd::new(Room { waiting, waiting_of_peer, working }))
    }

    struct One {
        line: Arc<Line>,
        place: Place,
    }

    fn one(crowd: &Arc<Crowd>, last: u8) -> One {
        let line = Arc::new(Line::default());
        let place = crowd.enter(peer(last), false, &line);
        One { line, place }
    }

    fn cut(all: &[One]) -> Vec<usize> {
        (0..all.len()).filter(|at| all[*at].line.is_cut()).collect()
    }

    // Invariant: a new connection has room, and nobody whose request is answered pays for it.

    #[test]
    fn who_waits_longest_goes_first_of_the_same_peer_and_then_of_all() {
        let crowd = crowd(3, 2, 9);
        let mut all = vec![one(&crowd, 1), one(&crowd, 1)];
        all.push(one(&crowd, 1));
        assert_eq!(cut(&all), [0], "its own peer's");
        all.push(one(&crowd, 2));
        assert_eq!(cut(&all), [0]);
        all.push(one(&crowd, 3));
        assert_eq!(cut(&all), [0, 1], "the longest of all");
        assert_eq!(crowd.count(), (3, 0));
    }

    #[test]
    fn who_works_stays_and_who_was_let_in_once_goes_last() {
        let crowd = crowd(2, 2, 9);
        let mut all = vec![one(&crowd, 1), one(&crowd, 1)];
        all[0].place.work().unwrap();
        all[1].place.know();
        all.extend([one(&crowd, 1), one(&crowd, 1)]);
        assert_eq!(cut(&all), [2]);
        all[0].place.wait();
        assert_eq!(cut(&all), [2, 3], "it waits since now, and a stranger of before goes");
    }

    #[test]
    fn room_for_requests_ends_and_comes_back() {
        let crowd = crowd(9, 9, 1);
        let all = [one(&crowd, 1), one(&crowd, 1)];
        all[0].place.work().unwrap();
        assert_eq!(all[1].place.work(), Err(Full));
        let [first, second] = all;
        drop(first);
        second.place.work().unwrap();
        drop(second);
        assert_eq!(crowd.count(), (0, 0));
    }

    #[test]
    fn an_ipv6_network_is_one_peer_and_a_mapped_address_is_its_ipv4_one() {
        let at = |text: &str| Peer::at(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:2"));
        assert_ne!(at("2001:db8:0:1::1"), at("2001:db8::1"));
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
    }

    proptest! {
        // Invariant: whatever connections do, the bounds hold, and in the end nothing is left.
        #[test]
        fn bounds_hold_whatever_connections_do(
            steps in prop::collection::vec((0u8..5, 0u8..4, 0usize..40), 0..300),
        ) {
            let room = Room { waiting: 6, waiting_of_peer: 3, working: 4 };
            let crowd = Arc::new(Crowd::new(room));
            let mut all: Vec<One> = Vec::new();
            for (what, from, which) in steps {
                let index = which % all.len().max(1);
                match (what, all.get(index)) {
                    (0, _) | (_, None) => all.push(one(&crowd, from)),
                    (1, Some(one)) => {
                        let _ = one.place.work();
                    }
                    (2, Some(one)) => one.place.wait(),
                    (3, Some(one)) => one.place.know(),
                    (_, Some(_)) => drop(all.swap_remove(index)),
                }
                let (waiting, working) = crowd.count();
                prop_assert!(waiting <= room.waiting && working <= room.working);
                let book = crowd.book();
                prop_assert!(book.waiting_of.values().all(|some| (1..=3).contains(&some.len())));
                prop_assert_eq!(book.waiting_of.values().map(BTreeSet::len).sum::<usize>(), waiting);
                prop_assert_eq!(book.entries.len(), waiting + working);
            }
            all.clear();
            prop_assert_eq!(crowd.count(), (0, 0));
            prop_assert!(crowd.book().entries.is_empty() && crowd.book().waiting_of.is_empty());
        }
    }
}
