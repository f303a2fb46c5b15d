use serde_json::json;

use super::*;
use crate::demo::tests::{agent, apply, at, lease, state};

fn row<'a>(state: &'a DemoState, name: &str) -> &'a JobRow {
    let found = state.jobs.iter().find(|row| row.job.name == name);
    found.unwrap_or_else(|| panic!("no job {name}"))
}

// Invariant: an event changes the state once, also when a new follower repeats it.

#[test]
fn an_event_that_a_new_follower_repeats_changes_nothing() {
    let mut state = state();
    let cloning = agent(100, 10_001, "linux", &[("Cloning", 0)]);
    let booting = agent(900, 10_001, "linux", &[("Cloning", 500), ("Booting", 300)]);
    assert_eq!(apply(&mut state, &[cloning.clone(), booting.clone()]).len(), 2);
    assert_eq!(apply(&mut state, &[cloning, booting]), []);
    let phases: Vec<String> = state.agents.rows().iter().map(|row| row.phase.to_string()).collect();
    assert_eq!(phases, ["Booting"]);
}

#[test]
fn an_event_that_is_no_event_changes_nothing() {
    let mut state = state();
    let odd = [json!(null), json!({ "kind": "agent" }), json!({ "at": at(5), "kind": "agent" })];
    assert_eq!(apply(&mut state, &odd), []);
}

// Invariant: a job follows its lease, and its outcome is that of its command.

#[test]
fn a_job_runs_when_its_lease_is_ready_and_is_done_when_its_command_ends() {
    let mut state = state();
    assert_eq!(row(&state, "fails").state, JobState::Waiting);
    let events = [
        agent(100, 10_001, "linux", &[("Ready", 0)]),
        lease(200, "fails", "waiting", 10_001),
        lease(300, "fails", "ready", 10_001),
    ];
    apply(&mut state, &events);
    assert_eq!(
        (row(&state, "fails").state, row(&state, "fails").vmid),
        (JobState::Running, Some(10_001))
    );
    assert!(!row(&state, "fails").is_under_way(), "it has printed nothing");
    let end = JobEnd { exit: Some(3), error: "assertion\u{7} failed".to_owned() };
    let said = state.ended(3, &end, 900);
    let expected = "job fails     exit 3 (as expected): assertion? failed";
    assert_eq!(said, Some((Tone::Good, expected.to_owned())));
}

#[test]
fn a_lease_whose_command_was_killed_is_to_be_released_until_it_ends() {
    let mut state = state();
    apply(&mut state, &[lease(300, "compile", "ready", 10_001)]);
    assert_eq!(state.abandoned_leases(), []);
    let killed = JobEnd { exit: None, error: String::new() };
    let said = state.ended(1, &killed, 900).map(|(tone, _)| tone);
    assert_eq!((said, row(&state, "compile").as_expected), (Some(Tone::Bad), false));
    let lease_of = ("compile".to_owned(), "lease-compile".to_owned());
    assert_eq!(state.abandoned_leases(), [lease_of]);
    apply(&mut state, &[lease(1000, "compile", "ended", 10_001)]);
    assert_eq!(state.abandoned_leases(), []);
}

// Invariant: what is kept has a bound.

#[test]
fn the_log_keeps_its_last_lines() {
    let mut state = state();
    (0..300).for_each(|number| state.log(number, Tone::Plain, &format!("line {number}\n")));
    assert_eq!(state.log.len(), LOG_LINES);
    assert_eq!(state.log.back().map(|line| line.text.as_str()), Some("line 299"));
}
