//! Several members of one store on one cluster, in storms. What must hold of one drover holds of all of
//! them together.
//!
//! | file | what it is |
//! |---|---|
//! | `peer.rs` | one member: its process, its place in the election, its service |
//! | `way.rs` | a member's way to the leader lease |
//! | `callers.rs` | those who ask, look and release through any member |
//! | `history.rs` | what callers saw, and the checker of it |
//! | `storm.rs` | the members and callers of one storm, and what must hold |
//! | `steps.rs` | what goes wrong, by chance |
//! | `late.rs` | a leader that learns late that its term is over |
//! | `upgrade.rs` | members of two versions |
//!
//! Members are killed, paused, and have clocks apart. They hand over, join and leave. A service may outlive its
//! term. The store is cut from a member, is slow, or loses answers. A member is cut from the clusters and
//! guests, or from another member.

mod callers;
mod history;
mod late;
mod peer;
mod steps;
mod storm;
mod upgrade;
mod way;

use std::io::Write as _;
use std::time::Duration;

use history::Answer;
use storm::Storm;

/// Steps in one plan.
const STEPS: usize = 60;
/// Storms of one run; `MEMBERS_SEEDS` in the environment says another number.
const SEEDS: u64 = 40;

/// Says what a run came to, past the capturing of a test's output.
fn note(text: &str) {
    // A closed output is no fault of the test.
    let _ = writeln!(std::io::stderr(), "\nnote: {text}");
}

/// The seeds of one run.
fn seeds() -> std::ops::RangeInclusive<u64> {
    let wanted = std::env::var("MEMBERS_SEEDS").ok().and_then(|text| text.parse().ok());
    1..=wanted.unwrap_or(SEEDS)
}

// Invariant: of several members one acts at a time, and what one promised the next one keeps.

#[tokio::test(start_paused = true)]
async fn storms_of_members_lose_no_lease_and_leave_nothing() {
    let (mut terms, mut calls, mut created, mut unknown) = (0, 0, 0, 0);
    for seed in seeds() {
        let mut storm = Storm::new(seed);
        storm.pass(Duration::from_secs(8)).await;
        for _ in 0..STEPS {
            storm.step().await;
        }
        let history = &storm.callers.history;
        terms += storm.terms.len();
        calls += history.len();
        created += history.count(|answer| matches!(answer, Answer::Created(_)));
        unknown += history.count(|answer| *answer == Answer::Unknown);
        storm.end().await;
    }
    note(&format!("{terms} terms, {calls} calls: {created} leases, {unknown} outcomes unknown"));
    assert!(terms > 100, "{terms} terms are too few to say anything");
    assert!(created > 100, "{created} leases are too few to say anything");
    assert!(unknown > 100, "{unknown} unknown outcomes are too few to say anything");
}
