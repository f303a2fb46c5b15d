//! Changes of the wall clock: what was granted for a span ends after that span, whatever the clock
//! shows.

use std::time::Duration;

use drover_model::phase::AgentPhase;
use drover_model::record::Body;
use drover_model::time::WallTime;
use proptest::prelude::*;

use crate::agent::event::Answer;
use crate::agent::testing::*;
use crate::message::AgentCommand;

/// The mind after a restart of the service, with the wall clock set forward by `hours`.
fn restarted(drive: &Drive, hours: i64, down: Duration) -> Drive {
    let mut set = drive.clone();
    set.now.wall = WallTime(set.now.wall.0 + hours * 3_600_000);
    set.adopt(down)
}

fn with_lease(ttl: Duration) -> Drive {
    let mut drive = Drive::new(spec());
    drive.go_to(AgentPhase::Ready);
    let mut asked = ask("l1", None);
    asked.ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    drive.command(AgentCommand::Lease { ask: Box::new(asked) });
    drive
}

/// The remaining time of the agent's lease.
fn left(drive: &Drive) -> Duration {
    let lease = drive.mind.leases.each().next().expect("one");
    assert_eq!(
        lease.granted.expires - drive.now.wall,
        lease.ends - drive.now.mono,
        "as is reported"
    );
    lease.ends - drive.now.mono
}

const YEARS: i64 = 4 * 365 * 24;

// Invariant: nothing lives longer than it was granted for.

#[test]
fn a_lease_granted_while_the_clock_was_years_ahead_ends_after_its_span() {
    let drive = with_lease(secs(600));
    let mut adopted = restarted(&drive, -YEARS, secs(5));
    let running = adopted.observation();
    adopted.answer(Answer::Looked(Ok(running)));
    adopted.wait(secs(600));
    assert!(
        adopted.journal_state.ended.values().any(|ended| ended.why == "expired"),
        "{}",
        adopted.state()
    );
}

#[test]
fn a_hold_made_while_the_clock_was_years_ahead_ends_after_its_span() {
    let mut drive = Drive::new(spec());
    drive.go_to(AgentPhase::Ready);
    drive.be_held();
    let mut adopted = restarted(&drive, -YEARS, secs(5));
    let running = adopted.observation();
    adopted.answer(Answer::Looked(Ok(running)));
    adopted.answer(Answer::Unlocked(Ok(())));
    assert_eq!(adopted.state(), AgentPhase::Held);
    adopted.wait(Duration::from_millis(a_hold().span_ms));
    assert_eq!(adopted.state(), AgentPhase::Retiring);
}

#[test]
fn a_lease_that_a_journal_of_before_knows_lasts_no_longer_than_a_day_more() {
    let drive = with_lease(secs(600));
    let mut older = drive.clone();
    for entry in older.journal_state.agents.values_mut() {
        entry.leases.values_mut().for_each(|granted| granted.span_ms = None);
    }
    assert!(left(&restarted(&older, -YEARS, secs(5))) <= secs(24 * 60 * 60));
    assert_eq!(left(&restarted(&older, 0, secs(5))), left(&drive), "a clock that is right");
}

proptest! {
    #[test]
    fn no_lease_outlives_its_span_however_often_the_clock_is_set(
        ttl in 60u64..100_000,
        renewals in prop::collection::vec((60u64..100_000, -40_000i64..40_000), 0..3),
        restarts in prop::collection::vec((-40_000i64..40_000, 0u64..50_000), 1..4),
    ) {
        let mut drive = with_lease(secs(ttl));
        let mut most = secs(ttl);
        for (span, hours) in renewals {
            drive.now.wall = WallTime(drive.now.wall.0 + hours * 3_600_000);
            let expires = drive.now.wall + secs(span);
            let lease = drive.mind.leases.all().next().map(|(id, _)| id.clone()).expect("one");
            drive.record(Body::LeaseRenewed { lease: lease.clone(), expires });
            drive.command(AgentCommand::LeaseRenewed { lease, expires });
            most = secs(span);
        }
        prop_assert_eq!(left(&drive), most);
        for (hours, down) in restarts {
            drive = restarted(&drive, hours, secs(down));
            prop_assert!(left(&drive) <= most, "{:?} of {most:?}", left(&drive));
            // The journal does not extend the lease either.
            let known = drive.journal_state.agents[&agent_id()].leases.values().next().expect("one");
            prop_assert!(known.expires - drive.now.wall <= most);
        }
    }

    #[test]
    fn a_clock_that_is_not_set_takes_nothing_from_a_lease(
        ttl in 60u64..100_000,
        restarts in prop::collection::vec(0u64..50_000, 1..4),
    ) {
        let mut drive = with_lease(secs(ttl));
        for down in restarts {
            drive = restarted(&drive, 0, secs(down));
            prop_assert_eq!(left(&drive), secs(ttl));
        }
    }
}
