//! What goes wrong for members and what callers do, step by step, by chance.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::storm::Storm;

/// How long a call to the store takes where it is slow: up to longer than the leader lease.
const DELAYS: [u64; 5] = [0, 300, 1500, 4000, 7000];
/// The fewest members that stay.
const MEMBERS_MIN: usize = 2;
/// The time between two steps, in milliseconds.
const BETWEEN: u64 = 6_000;

impl Storm {
    /// One step, and the time until the next one.
    pub async fn step(&mut self) {
        let at = self.any_or_leader();
        let said = match self.below(30) {
            0 => Some(self.kill(at)),
            1..5 => Some(self.pause(at)),
            5 => Some(self.cut_from_store(at)),
            6 => Some(self.lose_answers(at)),
            7 | 8 => Some(self.hand_over(at)),
            9 => Some(self.cut_from_clusters(at)),
            10 => Some(self.slow_down(at)),
            11 => Some(self.cut_from_member(at)),
            12 => self.join().map(|at| format!("{} joins", self.peers[at].name)),
            13 => self.leave(at),
            14 | 15 => Some(self.linger(at)),
            16..23 => self.callers.ask(&self.peers, at),
            _ => self.callers.release(&self.peers, at),
        };
        self.steps.extend(said);
        self.start_again(at);
        let span = Duration::from_millis(self.below(BETWEEN));
        self.pass(span).await;
    }

    fn start_again(&mut self, at: usize) {
        let down = self.peers[at].participant.is_none() && !self.peers[at].gone;
        if down && self.below(2) == 0 {
            self.steps.push(format!("start {}", self.peers[at].name));
            self.peers[at].launch(&self.register);
        }
    }

    fn kill(&mut self, at: usize) -> String {
        self.peers[at].kill();
        format!("kill {}", self.peers[at].name)
    }

    fn pause(&mut self, at: usize) -> String {
        let span = Duration::from_millis(self.below(14_000));
        self.peers[at].paused = Some(Instant::now() + span);
        format!("pause {} for {span:?}", self.peers[at].name)
    }

    fn cut_from_store(&mut self, at: usize) -> String {
        let cut = !self.peers[at].world.store.away.fetch_xor(true, Ordering::AcqRel);
        format!("cut {} from the store: {cut}", self.peers[at].name)
    }

    fn lose_answers(&mut self, at: usize) -> String {
        let loses = !self.peers[at].loses.fetch_xor(true, Ordering::AcqRel);
        format!("lose answers of {}: {loses}", self.peers[at].name)
    }

    fn hand_over(&mut self, at: usize) -> String {
        let next = self.any();
        let next = (next != at).then(|| self.peers[next].name.to_owned());
        let said = format!("{} gives up for {next:?}", self.peers[at].name);
        self.peers[at].give_up(next);
        said
    }

    fn cut_from_clusters(&mut self, at: usize) -> String {
        let cut = self.below(2) == 0;
        self.peers[at].world.cut_from_clusters(cut);
        format!("cut {} from the clusters: {cut}", self.peers[at].name)
    }

    fn slow_down(&mut self, at: usize) -> String {
        let delay = DELAYS[usize::try_from(self.below(DELAYS.len() as u64)).unwrap()];
        let early = self.below(2) == 0;
        self.peers[at].slow_down(Duration::from_millis(delay), early);
        format!("the store takes {delay} ms for {}, early: {early}", self.peers[at].name)
    }

    fn cut_from_member(&mut self, at: usize) -> String {
        let other = self.any();
        let (pair, cuts) = ((at.min(other), at.max(other)), &mut self.callers.cuts);
        let cut = cuts.insert(pair);
        if !cut {
            cuts.remove(&pair);
        }
        format!("cut {} from {}: {cut}", self.peers[at].name, self.peers[other].name)
    }

    fn linger(&mut self, at: usize) -> String {
        let span = Duration::from_millis(self.below(40_000));
        self.peers[at].lingers = Some(Instant::now() + span);
        format!("for {span:?} a service of {} outlives its term", self.peers[at].name)
    }

    fn leave(&mut self, at: usize) -> Option<String> {
        let stay = self.peers.iter().filter(|peer| !peer.gone).count();
        if stay <= MEMBERS_MIN {
            return None;
        }
        self.peers[at].leave();
        Some(format!("{} leaves for good", self.peers[at].name))
    }
}
