//! Whether a member leads, as somebody finds out who is none: the leader lease is watched for as long as
//! it holds, by the clock of the one who watches.
//!
//! A leader lease that was given up is watched too: a member that stands by takes it within moments.

use std::time::Duration;

use drover_model::ports::Ambient;
use drover_model::time::Moment;
use drover_vault::{Register, StoreError, Version};

use super::election::read;
use super::lease::{Leader, LeaderLease};

/// It is read so many times in the time that it holds.
const READS: u32 = 10;
/// The longest hold that is believed, as long as `service.leaderLeaseSec` may be.
const HOLD_MAX: Duration = Duration::from_secs(300);

/// A leader lease as nobody renewed it for as long as it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unled(Option<Version>);

impl Unled {
    /// Whether nobody took or renewed the leader lease since. Blocks.
    ///
    /// # Errors
    /// As [`watch`].
    pub fn is_still(&self, register: &dyn Register) -> Result<bool, StoreError> {
        Ok(read(register)?.map(|(_, version)| version) == self.0)
    }
}

/// What a watch came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Watched {
    /// This member leads.
    Led(Leader),
    Unled(Unled),
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Rest(Duration),
    End(Watched),
}

/// A watch: what it saw last, and since when.
#[derive(Debug, Default)]
struct Watch {
    seen: Option<(Version, Moment)>,
    hold: Duration,
}

impl Watch {
    /// Takes what was read; the question went out and the answer came at these moments.
    fn read(&mut self, entry: Option<(LeaderLease, Version)>, asked: Moment, now: Moment) -> Next {
        match (entry, &self.seen) {
            (None, None) => return Next::End(Watched::Unled(Unled(None))),
            // An entry that somebody took away says of no leader that its time ended.
            (None, Some(_)) => {}
            (Some((_, version)), Some((seen, _))) if version == *seen => {}
            (Some((lease, version)), before) => {
                if let Some(leader) = lease.leader.clone().filter(|_| before.is_some()) {
                    return Next::End(Watched::Led(leader));
                }
                self.hold = lease.hold().min(HOLD_MAX);
                self.seen = Some((version, now));
            }
        }
        match &self.seen {
            Some((_, since)) if asked < *since + self.hold => Next::Rest(self.hold / READS),
            seen => {
                let version = seen.as_ref().map(|(version, _)| version.clone());
                Next::End(Watched::Unled(Unled(version)))
            }
        }
    }
}

/// Watches the leader lease for as long as it holds. `says` hears how long that is, before the first rest. Blocks.
///
/// # Errors
/// What the store says; also where a newer drover wrote the leader lease.
pub fn watch(
    register: &dyn Register,
    ambient: &dyn Ambient,
    rest: impl Fn(Duration),
    says: impl FnOnce(Duration),
) -> Result<Watched, StoreError> {
    let (mut watch, mut says) = (Watch::default(), Some(says));
    loop {
        let asked = ambient.now().mono;
        let entry = read(register)?;
        match watch.read(entry, asked, ambient.now().mono) {
            Next::End(watched) => return Ok(watched),
            Next::Rest(span) => {
                if let Some(says) = says.take() {
                    says(watch.hold);
                }
                rest(span);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use drover_vault::MemoryRegister;

    use super::*;
    use crate::lease::NAME;

    const HOLD: u64 = 5000;

    fn lease(leader: Option<&str>, renewals: u64) -> LeaderLease {
        let leader = leader.map(|name| Leader {
            name: name.to_owned(),
            process: format!("{name}-1"),
            url: format!("http://{name}:8080"),
        });
        LeaderLease {
            format: 1,
            term: 3,
            leader,
            renewals,
            hold_ms: HOLD,
            config: "c1".to_owned(),
            renewed_at: 0,
            next: None,
        }
    }

    /// What a watch comes to where the leader lease is written at these moments, and when it does.
    fn watched(script: &[(u64, Option<&str>)]) -> (u64, Result<(), String>) {
        let register = MemoryRegister::default();
        let (mut watch, mut now, mut version, mut rest) = (Watch::default(), 0, None, script);
        loop {
            while let Some(((_, leader), later)) =
                rest.split_first().filter(|((at, _), _)| *at <= now)
            {
                let entry = lease(*leader, later.len() as u64).encode();
                version = Some(register.write(NAME, version.as_ref(), &entry).unwrap().unwrap());
                rest = later;
            }
            match watch.read(read(&register).unwrap(), Moment(now), Moment(now)) {
                Next::End(Watched::Led(leader)) => return (now, Err(leader.name)),
                Next::End(Watched::Unled(unled)) => {
                    assert!(unled.is_still(&register).unwrap());
                    return (now, Ok(()));
                }
                Next::Rest(span) => now += u64::try_from(span.as_millis()).unwrap(),
            }
        }
    }

    // Invariant: nobody is said to lead no more until the leader lease stood still for its whole time.

    #[test]
    fn a_store_is_led_where_the_leader_lease_moves_within_its_time() {
        assert_eq!(watched(&[(0, Some("a")), (1000, Some("a"))]), (1000, Err("a".to_owned())));
        assert_eq!(watched(&[(0, Some("a")), (4999, Some("a"))]), (5000, Err("a".to_owned())));
        assert_eq!(watched(&[(0, None), (2000, Some("b"))]), (2000, Err("b".to_owned())));
    }

    #[test]
    fn a_store_is_led_no_more_where_the_leader_lease_stands_still_or_none_is_there() {
        assert_eq!(watched(&[]), (0, Ok(())));
        assert_eq!(watched(&[(0, Some("a"))]), (HOLD, Ok(())));
        assert_eq!(watched(&[(0, None)]), (HOLD, Ok(())));
        // Who gives up while somebody watches led until then: another one may take it.
        assert_eq!(watched(&[(0, Some("a")), (2000, None)]), (2000 + HOLD, Ok(())));
        let handed_over = watched(&[(0, Some("a")), (2000, None), (2400, Some("b"))]);
        assert_eq!(handed_over, (2500, Err("b".to_owned())));
    }

    #[test]
    fn what_a_slow_store_answers_late_is_as_old_as_the_question() {
        let register = MemoryRegister::default();
        register.write(NAME, None, &lease(Some("a"), 0).encode()).unwrap();
        let mut watch = Watch::default();
        let mut at = |asked, now| watch.read(read(&register).unwrap(), Moment(asked), Moment(now));
        let rest = Next::Rest(Duration::from_millis(HOLD / 10));
        assert_eq!(at(0, 3000), rest);
        assert_eq!(at(4000, 8000), rest);
        assert_eq!(at(7999, 9000), rest);
        assert!(matches!(at(8000, 9000), Next::End(Watched::Unled(_))));
    }

    #[test]
    fn a_leader_that_comes_after_the_watch_is_noticed() {
        let register = MemoryRegister::default();
        let mut watch = Watch::default();
        let next = watch.read(None, Moment(0), Moment(0));
        let Next::End(Watched::Unled(unled)) = next else { panic!("{next:?}") };
        register.write(NAME, None, &lease(Some("a"), 0).encode()).unwrap();
        assert!(!unled.is_still(&register).unwrap());
    }
}
