//! When a list is asked for again: once an event moved it, at most once in its pause, and never twice at the
//! same time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::nouns::Ask;

/// How long after a call that failed the next one comes.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// What is known of the calls for one answer. Times are spans since the start of the command.
#[derive(Debug, Clone, Copy, Default)]
struct Calls {
    /// Whether its answer is awaited.
    is_open: bool,
    /// Whether something moved since the last call began.
    is_moved: bool,
    /// When the last call began.
    began: Option<Duration>,
    has_failed: bool,
}

/// The calls for every answer.
#[derive(Debug, Default)]
pub(super) struct Fetching(BTreeMap<Ask, Calls>);

impl Fetching {
    /// An event moved what is in this answer.
    pub(super) fn moved(&mut self, ask: Ask) {
        self.0.entry(ask).or_default().is_moved = true;
    }

    /// What is in this answer is wanted at once: somebody looks at it now.
    pub(super) fn at_once(&mut self, ask: Ask) {
        self.0.entry(ask).or_default().began = None;
    }

    /// Whether a call begins now; then it is open. `pause` is the shortest time since the last one.
    pub(super) fn begins(&mut self, ask: Ask, now: Duration, pause: Duration) -> bool {
        let calls = self.0.entry(ask).or_default();
        let due = match calls.began.map(|began| now.saturating_sub(began)) {
            None => true,
            Some(since) if calls.has_failed => since >= AGAIN_AFTER.max(ask.pause()),
            Some(since) => (calls.is_moved && since >= pause) || since >= ask.stale().max(pause),
        };
        if calls.is_open || !due {
            return false;
        }
        *calls = Calls { is_open: true, is_moved: false, began: Some(now), has_failed: false };
        true
    }

    /// An answer came, or the call failed.
    pub(super) fn ended(&mut self, ask: Ask, has_failed: bool) {
        let calls = self.0.entry(ask).or_default();
        calls.is_open = false;
        calls.has_failed = has_failed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The moments of ten seconds at which a list is asked for that answers at once.
    fn asked(moved_every_ms: u64, is_failing: bool) -> Vec<u64> {
        let mut fetching = Fetching::default();
        let mut asked = Vec::new();
        for ms in (0..10_000).step_by(100) {
            if ms % moved_every_ms == 0 {
                fetching.moved(Ask::Agents);
            }
            if fetching.begins(Ask::Agents, at(ms), Ask::Agents.pause()) {
                asked.push(ms);
                fetching.ended(Ask::Agents, is_failing);
            }
        }
        asked
    }

    // Invariant: a list is asked for at most once a second, however much happens, and never twice at once.

    #[test]
    fn a_list_that_moves_all_the_time_is_asked_for_once_a_second() {
        assert_eq!(asked(100, false), (0..10).map(|second| second * 1000).collect::<Vec<_>>());
        assert_eq!(asked(4000, false), [0, 4000, 8000]);
    }

    #[test]
    fn a_call_that_failed_is_repeated_after_two_seconds() {
        assert_eq!(asked(100, true), [0, 2000, 4000, 6000, 8000]);
    }

    #[test]
    fn an_open_call_keeps_the_next_one_back() {
        let mut fetching = Fetching::default();
        assert!(fetching.begins(Ask::Agents, at(0), Ask::Agents.pause()));
        fetching.moved(Ask::Agents);
        fetching.at_once(Ask::Agents);
        assert!(!fetching.begins(Ask::Agents, at(60_000), Ask::Agents.pause()));
        fetching.ended(Ask::Agents, false);
        assert!(fetching.begins(Ask::Agents, at(60_000), Ask::Agents.pause()));
    }

    #[test]
    fn a_list_that_nothing_moves_is_asked_for_again_once_it_is_stale() {
        let mut fetching = Fetching::default();
        let mut begins = |ms| {
            let begins = fetching.begins(Ask::Nodes, at(ms), Ask::Nodes.pause());
            if begins {
                fetching.ended(Ask::Nodes, false);
            }
            begins
        };
        assert!(begins(0) && !begins(29_000) && begins(30_000));
    }
}
