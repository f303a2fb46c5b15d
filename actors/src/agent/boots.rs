//! What the boots of a template teach: how soon the next guest may be asked for its address. Each
//! question before its guest agent is up keeps a worker of Proxmox's busy for 3 s.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use crate::time::Moment;

/// Boots that are remembered.
const KEPT: usize = 64;
/// Boots that must have been seen before they teach anything: the fastest of few says little.
const ENOUGH: usize = 8;
/// From the start to the first question while nothing is known: nothing boots faster.
const FIRST: Duration = Duration::from_secs(1);
/// The shortest and the longest time between two questions that were answered at once.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
/// A guest that has had no address for this long since its agent answered may never get one.
const SLOW: Duration = Duration::from_secs(5);
/// An address is seen late by at most this part of the boot, within the bounds of the pauses.
const LATE_BY: u32 = 30;

/// How long one boot took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Booted {
    /// From the end of the start's task to the first answer of the guest agent.
    pub up: Duration,
    /// From there to the address.
    pub address: Duration,
}

/// The last boots of one template, shared by its agents.
#[derive(Debug, Clone, Default)]
pub struct Boots(Rc<RefCell<VecDeque<Booted>>>);

impl Boots {
    /// Remembers a boot.
    pub fn note(&self, booted: Booted) {
        let mut boots = self.0.borrow_mut();
        boots.push_back(booted);
        if boots.len() > KEPT {
            boots.pop_front();
        }
    }

    /// What no boot is expected to undercut, once enough were seen: the fastest of them less a
    /// tenth, so that guests that boot faster than before are found out.
    pub fn fastest(&self) -> Option<Booted> {
        let boots = self.0.borrow();
        if boots.len() < ENOUGH {
            return None;
        }
        let up = boots.iter().map(|booted| booted.up).min()?;
        let address = boots.iter().map(|booted| booted.address).min()?;
        Some(Booted { up: up * 9 / 10, address: address * 9 / 10 })
    }
}

/// What a mind knows of its own guest's boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Boot {
    /// What its template's boots have taught by now.
    pub(super) taught: Option<Booted>,
    /// When the start's task ended.
    since: Option<Moment>,
    /// When the guest agent answered first.
    up: Option<Moment>,
    asked: bool,
}

impl Boot {
    /// The guest runs: how long to wait for the first question, never longer than half of `limit`.
    pub(super) fn begin(&mut self, now: Moment, limit: Duration) -> Duration {
        *self = Self { taught: self.taught, since: Some(now), up: None, asked: false };
        self.taught.map_or(FIRST, |taught| taught.up.clamp(FIRST, (limit / 2).max(FIRST)))
    }

    /// A question had to be waited out in vain: the guest agent is not up yet.
    pub(super) fn blocked(&mut self) {
        self.asked = true;
    }

    /// The guest agent is up and knows no address: how long to wait for the next question.
    pub(super) fn addressless(&mut self, now: Moment) -> Duration {
        let seen_coming = self.asked && self.up.is_none();
        self.asked = true;
        let waited = now - *self.up.get_or_insert(now);
        let age = self.since.map_or(Duration::ZERO, |since| now - since);
        let pause = if waited > SLOW { waited / 2 } else { age / LATE_BY };
        let pause = pause.clamp(PAUSES.0, PAUSES.1);
        let taught = self.taught.filter(|_| seen_coming).map(|taught| taught.address);
        taught.map_or(pause, |address| address.clamp(pause, PAUSES.1))
    }

    /// The address is there: what is to be learned from that.
    pub(super) fn end(&mut self, now: Moment) -> Option<Booted> {
        let since = self.since.take()?;
        let up = self.up.unwrap_or(now);
        Some(Booted { up: up - since, address: now - up })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(up: u64, address: u64) -> Booted {
        Booted { up: Duration::from_secs(up), address: Duration::from_secs(address) }
    }

    // Invariant: what is taught never makes a guest wait that boots no faster than others did.

    #[test]
    fn few_boots_teach_nothing_and_many_teach_the_fastest_less_a_tenth() {
        let boots = Boots::default();
        for up in 11..18 {
            boots.note(secs(up, 4));
        }
        assert_eq!(boots.fastest(), None);
        boots.note(secs(10, 5));
        let fastest = Booted { up: Duration::from_secs(9), address: Duration::from_millis(3600) };
        assert_eq!(boots.fastest(), Some(fastest));
    }

    #[test]
    fn old_boots_are_forgotten() {
        let boots = Boots::default();
        boots.note(secs(1, 0));
        (0..KEPT).for_each(|_| boots.note(secs(20, 0)));
        assert_eq!(boots.fastest().map(|booted| booted.up), Some(Duration::from_secs(18)));
    }

    #[test]
    fn the_first_question_never_waits_for_more_than_half_of_the_time_there_is() {
        let mut boot = Boot { taught: Some(secs(100, 0)), ..Boot::default() };
        assert_eq!(boot.begin(Moment(0), Duration::from_secs(120)), Duration::from_secs(60));
        assert_eq!(boot.begin(Moment(0), Duration::from_secs(300)), Duration::from_secs(100));
    }

    #[test]
    fn the_usual_time_without_an_address_is_waited_for_only_after_seeing_the_agent_come_up() {
        let mut boot = Boot { taught: Some(secs(9, 2)), ..Boot::default() };
        boot.begin(Moment(0), Duration::from_secs(120));
        boot.blocked();
        assert_eq!(boot.addressless(Moment(12_000)), Duration::from_secs(2));
        assert_eq!(boot.addressless(Moment(14_000)), PAUSES.0);
        assert_eq!(boot.end(Moment(15_000)), Some(secs(12, 3)));
        boot.begin(Moment(0), Duration::from_secs(120));
        assert_eq!(boot.addressless(Moment(9_000)), PAUSES.0);
    }
}
