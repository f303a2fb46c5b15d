//! Runners whose version GitHub takes no more: each starts, connects, is refused and ends.

use drover_ci::{Finding, Remedy};
use drover_model::demand::words::{Life, Words};
use serde_json::{Value, json};

use super::calls::{connected, repository, run};
use super::fake::GitHub;
use super::{left_nothing, started};
use crate::harness::{Events, Service, Sim, Site};

/// What is reported of the version that the guests here have.
const REPORTED: &str = "its actions/runner 2.331.0 is too old: GitHub gives jobs to a version for 30 days after \
                    a newer one is released, to this one until 2026-06-19; install 2.336.0, the newest, \
                    in the template image";
/// Starts it, as a guest with an image that is too old would.
const OLD: &str = "DROVER_TEST_RUNNER_VERSION=2.331.0 /opt/actions-runner/run.sh";

/// A GitHub that takes that version no more, with one job; more of the environment of its runner.
fn refused(environment: &str) -> (tempfile::TempDir, Sim, Site, GitHub, Service, Events) {
    let run = format!("runnerCommand: \"exec env {environment} {OLD}\"");
    let keys = "scope: repo/o/app, pollSeconds: 1, registerTimeoutSec: 20";
    let all = started(&format!("{keys}, {run}"));
    all.3.state().deprecated.insert("2.331.0".to_owned());
    all.3.job("o/app", "it", &["self-hosted", "linux"], "true");
    all
}

/// Waits until an agent is given up and the source says what it lacks; gives both texts.
fn reported(events: &mut Events) -> (String, String) {
    let (mut why, mut lacks): (Option<String>, Option<String>) = (None, None);
    loop {
        if let (Some(why), Some(lacks)) = (&why, &lacks) {
            return (why.clone(), lacks.clone());
        }
        let fact = events.next_of(&["agentGone", "source"]);
        why = why.or_else(|| fact["agent"]["detail"].as_str().map(str::to_owned));
        lacks = lacks.or_else(|| fact["source"]["lacks"][0].as_str().map(str::to_owned));
    }
}

// Invariant: a runner that GitHub takes no more is reported with its version, the last day of that and what takes
// its place; its jobs want no machine but ever fewer that try; and what repaired it is found by itself.

#[test]
fn a_runner_too_old_for_github_is_reported_with_its_version_and_last_day_until_it_is_repaired() {
    let (_dir, sim, site, github, _service, mut events) = refused("");
    let (why, lacks) = reported(&mut events);
    assert!(why.contains(REPORTED) && why.contains("it ended with 7 after "), "{why}");
    let expected = format!("runners of template lab/linux are given no job: {REPORTED}");
    assert!(lacks.contains(&expected), "{lacks}");
    let jobs = site.json(&["jobs"])["jobs"].clone();
    assert_eq!(jobs[0]["state"], "unserved", "{jobs}");
    assert!(jobs[0]["lacks"].as_str().unwrap().contains(REPORTED), "{jobs}");
    let said = site.json(&["why", "it"]).to_string();
    assert!(said.contains(REPORTED), "{said}");
    assert_eq!(site.json(&["status"])["sources"][0]["waiting"], 0, "it wants no machine");
    // Somebody puts a newer one into the image; here its version is taken again.
    github.state().deprecated.clear();
    let served = |fact: &Value| fact["source"]["lacks"] == json!([]);
    events.until("source", served);
    events.until("agentGone", |fact| fact["agent"]["reason"] == "used-up");
    assert_eq!(github.conclusions(), [("it".to_owned(), "success".to_owned())].into());
    left_nothing(&github, &sim, &site);
}

#[test]
fn a_runner_too_old_to_say_so_by_its_status_is_known_by_its_log() {
    let unknown = "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE=0";
    let (_dir, _sim, _site, github, _service, mut events) = refused(unknown);
    let (why, lacks) = reported(&mut events);
    assert!(why.contains(REPORTED) && why.contains("its command ended with 0 after "), "{why}");
    assert!(lacks.contains(REPORTED), "{lacks}");
    github.sound();
}

/// What the doctor says of versions.
fn proven(github: &GitHub) -> Vec<Finding> {
    let hub = connected(github, repository());
    let mut found = Vec::new();
    run(hub.check(&mut found)).unwrap();
    found.retain(|proof| proof.about == "actions/runner");
    found
}

// Invariant: what runs is held against the newest version that can be had, before it is too old; also where a
// server of one's own says alone which one it offers.

#[test]
fn the_doctor_says_until_when_the_versions_that_run_are_given_jobs() {
    let github = GitHub::start();
    let newest = "the newest is 2.336.0; GitHub gives jobs to an older one for 30 more days";
    assert_eq!(proven(&github), [Finding::ok("actions/runner", newest)]);
    let names = ["drover-7k2m9qxw-4f8z1c3px9t2vkab", "drover-7k2m9qxw-4f8z1c3px9t2vkac", "theirs"];
    for (name, version) in names.into_iter().zip(["2.336.0", "2.334.0", "2.300.0"]) {
        github.state().enrol(name, vec!["linux".into()], 1);
        github.state().runners.last_mut().unwrap().version = Some(version.to_owned());
    }
    let remedy = || Remedy::at("in the template images", "install actions/runner 2.336.0");
    let text = "a runner has 2.334.0; GitHub gives it jobs until 2026-08-31";
    assert_eq!(proven(&github), [Finding::warn("actions/runner", text, remedy())]);
    github.state().released.clear();
    let text = "a runner has 2.334.0; GitHub gives it jobs for 30 days after a newer one";
    assert_eq!(proven(&github), [Finding::warn("actions/runner", text, remedy())]);
    github.sound();
}

#[test]
fn a_runner_that_is_too_old_is_reported_without_a_date_where_no_release_can_be_read() {
    let github = GitHub::start();
    let refused = "Current runner version: '2.331.0'\nListening for Jobs\nAn error occurred: Runner \
                   version v2.331.0 is deprecated and cannot receive messages.\nExiting runner...";
    let life = Life::Ended(Some(0));
    let words = |lines: &str| {
        let lines = lines.to_owned();
        Words { life, seconds: 1, ago: 0, lines, too_old: None }
    };
    let hub = connected(&github, repository());
    assert_eq!(run(hub.too_old(&words(refused))).as_deref(), Some(REPORTED));
    assert_eq!(run(hub.too_old(&words("Exiting runner..."))), None);
    github.state().released.clear();
    github.state().refuse = Some(("/downloads", 404));
    let said = run(hub.too_old(&words(refused))).unwrap();
    assert!(said.starts_with("its actions/runner 2.331.0 is too old: GitHub gives jobs"), "{said}");
    assert!(said.ends_with("is released; install the newest in the template image"), "{said}");
    github.sound();
}
