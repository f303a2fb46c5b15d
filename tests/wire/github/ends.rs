//! Jobs that are over at GitHub while their runners go on, as those of a guest that hangs.

use super::fake::GitHub;
use super::{left_nothing, started};

/// Somebody cancels the only job, and GitHub removes its runner's row; nobody reaches the runner.
fn cancel(github: &GitHub) {
    let mut state = github.state();
    state.jobs[0].status = "completed";
    state.jobs[0].conclusion = Some("cancelled");
    let job = state.jobs[0].clone();
    state.scale.ended(&job);
    state.runners.retain(|runner| Some(&runner.name) != job.runner.as_ref());
}

// Invariant: a job that is over, as GitHub says of that very job, ends the machine of a runner whose
// row is gone, whatever the runner does.

#[test]
fn a_cancelled_job_whose_runner_goes_on_ends_its_machine_once_github_says_that_it_is_over() {
    let (_dir, sim, site, github, _service, mut events) =
        started("scope: repo/o/app, pollSeconds: 1");
    let id = github.job("o/app", "it", &["self-hosted", "linux"], "sleep 3600");
    events.until("source", |fact| fact["source"]["running"] == 1);
    cancel(&github);
    let gone = events.until("agentGone", |_| true);
    assert_eq!(gone["agent"]["reason"], "used-up", "{gone}");
    let asked = github.heard(&format!("GET /api/v3/repos/o/app/actions/jobs/{id}"));
    assert_eq!(asked.iter().map(|(_, status)| *status).collect::<Vec<_>>(), [200], "once");
    left_nothing(&github, &sim, &site);
}

#[test]
fn a_cancelled_job_of_a_scale_set_whose_runner_goes_on_ends_its_machine_once_that_is_reported() {
    let keys =
        "scope: org/o, mode: scaleSet, scaleSet: drover-lab, labels: [linux], pollSeconds: 1";
    let (_dir, sim, site, github, _service, mut events) = started(keys);
    github.until(|state| state.scale.owner.is_some());
    github.job("o/app", "it", &["linux"], "sleep 3600");
    events.until("source", |fact| fact["source"]["running"] == 1);
    cancel(&github);
    let gone = events.until("agentGone", |_| true);
    assert_eq!(gone["agent"]["reason"], "used-up", "{gone}");
    assert_eq!(github.heard("/actions/jobs/"), [], "it was reported");
    left_nothing(&github, &sim, &site);
}
