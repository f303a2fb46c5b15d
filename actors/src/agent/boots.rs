//! What the boots of a template show: how soon the next guest may be asked for its address. A
//! question before the guest agent is up occupies a worker of Proxmox for 3 s.

use std::time::Duration;

use drover_model::time::Moment;

use crate::boot_times::Booted;

/// From the start to the first question while nothing is known. Hardly any guest boots faster.
const UNKNOWN: Duration = Duration::from_secs(4);
/// The earliest first question.
const FIRST: Duration = Duration::from_secs(1);
/// The shortest and the longest pause between two questions that were answered at once.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
/// A guest without an address for this long since its agent answered may never get one.
const SLOW: Duration = Duration::from_secs(5);
/// An address is seen late by at most this fraction of the boot time, within [`PAUSES`].
const LATE_BY: u32 = 30;

/// What a mind knows of its own guest's boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Boot {
    /// The estimate from the template's boots.
    pub(super) hints: Option<Booted>,
    /// When the start's task ended.
    since: Option<Moment>,
    /// When the guest agent first answered.
    up: Option<Moment>,
    asked: bool,
    /// The guest agent was up at the first question.
    late: bool,
}

impl Boot {
    /// The guest runs. Returns the wait before the first question, at most half of `limit`.
    pub(super) fn begin(&mut self, now: Moment, limit: Duration) -> Duration {
        *self = Self { hints: self.hints, since: Some(now), ..Self::default() };
        let half = (limit / 2).max(FIRST);
        self.hints.map_or(UNKNOWN, |hints| hints.up).clamp(FIRST, half)
    }

    /// A question timed out: the guest agent is not up yet.
    pub(super) fn blocked(&mut self) {
        self.asked = true;
    }

    /// The guest agent is up and knows no address. Returns the wait before the next question.
    pub(super) fn addressless(&mut self, now: Moment) -> Duration {
        let seen_coming = self.asked && self.up.is_none();
        self.late |= !self.asked;
        self.asked = true;
        let waited = now - *self.up.get_or_insert(now);
        let age = self.since.map_or(Duration::ZERO, |since| now - since);
        let pause = if waited > SLOW { waited / 2 } else { age / LATE_BY };
        let pause = pause.clamp(PAUSES.0, PAUSES.1);
        let hints = self.hints.filter(|_| seen_coming).map(|hints| hints.address);
        hints.map_or(pause, |address| address.clamp(pause, PAUSES.1))
    }

    /// The address is there. Returns what this boot shows.
    pub(super) fn end(&mut self, now: Moment) -> Option<Booted> {
        let since = self.since.take()?;
        // A guest agent that was up at the first question may have been up for long.
        let unseen = !self.asked;
        let up = self.up.unwrap_or(now);
        let took = up - since;
        let took = if unseen || self.late { took * 9 / 10 } else { took };
        Some(Booted { up: took, address: now - up })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::boot_times::{Boots, KEPT};

    fn secs(up: u64, address: u64) -> Booted {
        Booted { up: Duration::from_secs(up), address: Duration::from_secs(address) }
    }

    // Invariant: the estimate never delays a guest that boots as fast as the others did.

    #[test]
    fn few_boots_inform_nothing_and_many_inform_what_one_in_ten_undercuts() {
        let mut boots = Boots::default();
        for up in [9, 30, 10] {
            boots.note(secs(up, 4));
        }
        assert_eq!(boots.early(), None);
        boots.note(secs(8, 4));
        let earliest = Booted { up: Duration::from_secs(8), address: Duration::from_millis(3600) };
        assert_eq!(boots.early(), Some(earliest));
        for up in 11..27 {
            boots.note(secs(up, 4));
        }
        assert_eq!(boots.early().map(|early| early.up), Some(Duration::from_secs(10)));
    }

    #[test]
    fn guests_that_were_up_before_they_were_asked_bring_the_first_question_forward() {
        let mut boots = Boots::default();
        (0..KEPT).for_each(|_| boots.note(secs(20, 0)));
        for _ in 0..200 {
            let mut boot = Boot { hints: boots.early(), ..Boot::default() };
            let first = boot.begin(Moment(0), Duration::from_secs(300));
            // The guests are up after 5 s.
            let asked = Moment(0) + first.max(Duration::from_secs(5));
            boots.note(boot.end(asked).unwrap());
        }
        assert!(boots.early().unwrap().up < Duration::from_secs(6), "{:?}", boots.early());
    }

    #[test]
    fn old_boots_are_forgotten() {
        let mut boots = Boots::default();
        boots.note(secs(1, 0));
        (0..KEPT).for_each(|_| boots.note(secs(20, 0)));
        assert_eq!(boots.early().map(|booted| booted.up), Some(Duration::from_secs(20)));
    }

    #[test]
    fn the_first_question_never_waits_for_more_than_half_of_the_time_there_is() {
        let mut boot = Boot { hints: Some(secs(100, 0)), ..Boot::default() };
        assert_eq!(boot.begin(Moment(0), Duration::from_secs(120)), Duration::from_secs(60));
        assert_eq!(boot.begin(Moment(0), Duration::from_secs(300)), Duration::from_secs(100));
    }

    #[test]
    fn the_usual_time_without_an_address_is_waited_for_only_after_seeing_the_agent_come_up() {
        let mut boot = Boot { hints: Some(secs(9, 2)), ..Boot::default() };
        boot.begin(Moment(0), Duration::from_secs(120));
        boot.blocked();
        assert_eq!(boot.addressless(Moment(12_000)), Duration::from_secs(2));
        assert_eq!(boot.addressless(Moment(14_000)), PAUSES.0);
        assert_eq!(boot.end(Moment(15_000)), Some(secs(12, 3)));
        boot.begin(Moment(0), Duration::from_secs(120));
        assert_eq!(boot.addressless(Moment(9_000)), PAUSES.0);
        assert_eq!(boot.end(Moment(10_000)).map(|booted| booted.up), Some(secs(9, 0).up * 9 / 10));
    }
}
