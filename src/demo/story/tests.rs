use super::*;
use crate::demo::jobs::batch;
use crate::demo::state::JobEnd;
use crate::demo::tests::{agent, apply, lease, state};

/// A state in which the jobs that run on without the service do so.
fn under_way() -> DemoState {
    let mut state = state();
    let leased = [("Booting", 500), ("Leased", 100)];
    apply(
        &mut state,
        &[
            agent(6000, 10_001, "linux", &leased),
            agent(6000, 10_002, "linux", &leased),
            lease(6000, "compile", "ready", 10_001),
            lease(6000, "loses-vm", "ready", 10_002),
        ],
    );
    state.printed(1, "compiled 1 of 8");
    state
}

// Invariant: each step waits for its condition, and comes once.

#[test]
fn the_story_goes_from_step_to_step() {
    let mut story = Story::default();
    assert_eq!(story.next(&state()), None, "no agent is there");
    let mut state = under_way();
    assert_eq!(story.next(&state), Some(Step::BreakConfig));
    story.took(Step::BreakConfig);
    assert_eq!(story.next(&state), None, "the service said nothing yet");
    assert!(story.refused("line 45"));
    assert!(!story.refused("somebody else's edit"));
    assert_eq!(story.next(&state), Some(Step::RepairConfig));
    story.took(Step::RepairConfig);
    assert_eq!(story.next(&state), None, "loses-vm has not printed");
    state.printed(4, "started");
    assert_eq!(story.next(&state), Some(Step::KillService));
    story.took(Step::KillService);
    assert_eq!(story.next(&state), None, "the service is down");
    story.adopted(Adoption::default());
    assert_eq!(story.next(&state), None, "compile runs on");
    state.ended(1, &JobEnd { exit: Some(0), error: String::new() }, 8000);
    assert_eq!(story.next(&state), Some(Step::KillVm(10_002)));
    story.took(Step::KillVm(10_002));
    assert_eq!(story.next(&state), None);
    assert!(!story.has_ended(&state));
    for index in 0..state.jobs.len() {
        let end = JobEnd { exit: Some(0), error: String::new() };
        state.ended(index, &end, 9000);
    }
    assert!(story.has_ended(&state));
}

// Invariant: a batch without a job for a step leaves the step out, and the story ends.

#[test]
fn a_batch_of_one_job_has_no_machine_to_lose() {
    let mut state = under_way();
    state.jobs.truncate(1);
    let mut story = Story::default();
    story.took(Step::BreakConfig);
    story.refused("line 45");
    story.took(Step::RepairConfig);
    assert_eq!(story.next(&state), Some(Step::KillService));
    story.took(Step::KillService);
    story.adopted(Adoption::default());
    assert_eq!(story.next(&state), None);
}

#[test]
fn jobs_that_wait_behind_others_do_not_hold_the_story() {
    let mut state = under_way();
    state.jobs = crate::demo::state::DemoState::new(state.started, batch(200)).jobs;
    state.printed(1, "compiled 1 of 8");
    state.printed(4, "started");
    let mut story = Story::default();
    story.took(Step::RepairConfig);
    assert_eq!(story.next(&state), Some(Step::KillService));
}
