//! A real Gitea whose jobs run on agents of the simulated cluster.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::gitea_server::{Gitea, job};
use crate::harness::{Events, Service, Sim, Site, WAIT_LIMIT, world};
use crate::open::{HOOK_SECRET, HOOKED, Open};

/// A command of an operator's own.
const RUNNER: &str = "python3 ../../runner.py daemon --config config.yaml";

/// A site with this Gitea as its source, whose guests have a small runner of the tests' own, also in the
/// place of the program that drover starts unless it is said; more keys of the source.
pub fn demand(site: &Site, yaml: &str, gitea: &Gitea, more: &str) {
    site.write_secret("gitea", &gitea.token);
    let dir = site.dir.path().display();
    let runner = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire/runner.py");
    let place = "mkdir -p /opt/bin && install -m 755 runner.py /opt/bin/gitea-runner";
    let upload = format!("{{upload: {{from: \"{runner}\", to: runner.py}}}}");
    let prepare = format!("    prepare: [{upload}, {{run: \"{place}\"}}]\n");
    let yaml = yaml.replace(
        "credentials:\n",
        &format!("credentials:\n  gitea: {{kind: apiToken, secretFile: \"{dir}/gitea\"}}\n"),
    );
    let url = &gitea.url;
    site.write_yaml(&format!(
        "{yaml}{prepare}demand:\n  git:\n    {{kind: gitea, url: \"{url}\", credentialsId: gitea, \
         labels: [linux, x64], {more}}}\n"
    ));
}

/// A service that looks at this Gitea each second, and whose only job runs.
fn with_a_job(gitea: &Gitea, script: &str) -> (tempfile::TempDir, Sim, Site, Service, Events) {
    let (dir, sim, site) = world();
    let keys = format!("pollSeconds: 1, runnerCommand: \"{RUNNER}\"");
    demand(&site, &site.yaml(&sim, ""), gitea, &keys);
    let service = Service::start(&site);
    service.drain();
    let mut events = Events::follow(&site);
    gitea.repository("app", &job(script));
    events.until("source", |fact| fact["source"]["running"] == 1);
    (dir, sim, site, service, events)
}

const WORKFLOW: &str = "on: [push]
jobs:
  good:
    runs-on: linux
    steps:
      - run: echo built on $(hostname)
  bad:
    runs-on: [linux, x64]
    steps:
      - run: exit 3
  later:
    needs: good
    runs-on: linux
    steps:
      - run: echo later
  other:
    runs-on: windows
    steps:
      - run: echo never
";

// Invariant: each job runs on an agent of its own, once it can run, and nothing is left behind.

#[test]
fn jobs_of_a_real_gitea_run_on_agents_of_their_own_and_leave_nothing_behind() {
    let gitea = Gitea::start();
    let (_dir, sim, site) = world();
    demand(&site, &site.yaml(&sim, ""), &gitea, "pollSeconds: 1");
    let service = Service::start(&site);
    service.drain();
    let mut events = Events::follow(&site);
    gitea.repository("app", WORKFLOW);
    let gone = events.finished(3);
    assert_eq!(gone.len(), 3, "each its own");
    let done = gitea.conclusions();
    let done: Vec<(&str, &str)> =
        done.iter().map(|(name, end)| (name.as_str(), end.as_str())).collect();
    let expected = [("bad", "failure"), ("good", "success"), ("later", "success"), ("other", "-")];
    assert_eq!(done, expected);
    assert_eq!(gitea.runners(), 0);
    assert_eq!(sim.guests(), Vec::<u64>::new());
    let status = site.json(&["status"]);
    assert_eq!(status["sources"][0]["ignored"], 1, "{status}");
    assert_eq!(status["lostJobs"], json!([]));
}

// Invariant: a signed hook makes drover look at once; the poll is only the net beneath it.

#[test]
fn a_hook_of_a_real_gitea_has_its_job_run_long_before_the_next_poll() {
    let gitea = Gitea::start();
    let (_dir, sim, site) = world();
    let (open, yaml) = Open::of(&site, &site.yaml(&sim, ""));
    demand(&site, &yaml, &gitea, &format!("{HOOKED}, runnerCommand: \"{RUNNER}\""));
    let service = Service::start(&site);
    service.drain();
    let mut events = Events::follow(&site);
    let body = json!({ "name": "app", "auto_init": true, "default_branch": "main" });
    gitea.call("POST", "/api/v1/user/repos", Some(body));
    gitea.hook("app", &open.hooks("git"), HOOK_SECRET);
    gitea.workflow("app", &job("echo woken"));
    let gone = events.until("agentGone", |_| true);
    assert_eq!(gone["agent"]["reason"], "used-up", "{gone}");
    assert_eq!(gitea.conclusions(), [("it".to_owned(), "success".to_owned())].into());
}

// Invariant: a job lost with its machine is reported, and not run again.

#[test]
fn a_job_whose_machine_is_switched_off_is_lost_once_and_run_by_nobody() {
    let gitea = Gitea::start();
    let (_dir, sim, site, _service, mut events) = with_a_job(&gitea, "sleep 600");
    let agents = site.json(&["agents"]);
    let agent = agents["agents"][0]["id"].as_str().unwrap().to_owned();
    assert!(site.cli(&["retire", &agent]).status.success());
    let vmid = agents["agents"][0]["vmid"].as_u64().unwrap();
    sim.call("POST", &format!("/nodes/{}/qemu/{vmid}/status/stop", sim.fact("node")));
    // The cluster's list mentions it in its next cycle.
    let end = Instant::now() + WAIT_LIMIT;
    while site.json(&["status"])["lostJobs"] == json!([]) && Instant::now() < end {
        assert!(site.cli(&["resync"]).status.success());
    }
    let lost = events.until("jobLost", |_| true);
    assert_eq!((&lost["job"]["source"], &lost["job"]["agent"]), (&json!("git"), &json!(agent)));
    events.until("source", |fact| fact["source"]["runners"] == 0);
    assert_eq!(gitea.runners(), 0, "its row went too");
    assert_eq!(site.json(&["status"])["sources"][0]["waiting"], 0);
}

/// A command that runs until `go`.
const UNTIL_GO: &str = "until test -e ../../go; do sleep 0.1; done";

/// Lets a job go on that waits in this agent's guest.
fn go(site: &Site, agent: &Value) {
    assert!(agent["ssh"]["port"].is_u64(), "{agent}");
    let host = agent["ssh"]["host"].as_str().unwrap();
    let key = site.dir.path().join("key");
    let options = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "BatchMode=yes"];
    let mut ssh = Command::new("ssh");
    for option in options {
        ssh.args(["-o", option]);
    }
    let ssh = ssh.arg("-i").arg(key).args(["-p", "2222", &format!("debian@{host}"), "touch go"]);
    let out = ssh.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

// Invariant: a row that somebody deletes under its job ends nothing; its guest is asked at once, and the
// machine goes when the guest says that its runner ended.

#[test]
fn a_job_whose_row_somebody_deletes_runs_to_its_end_and_its_machine_goes_with_it() {
    let gitea = Gitea::start();
    let (_dir, _sim, site, _service, mut events) = with_a_job(&gitea, UNTIL_GO);
    let agents = site.json(&["agents"]);
    let rows = gitea.call("GET", "/api/v1/admin/actions/runners", None);
    let path = format!("/api/v1/admin/actions/runners/{}", rows["runners"][0]["id"]);
    gitea.call("DELETE", &path, None);
    assert_eq!(gitea.runners(), 0, "its row is gone: {rows}");
    go(&site, &agents["agents"][0]);
    let gone = events.until("agentGone", |_| true);
    assert_eq!(gone["agent"]["id"], agents["agents"][0]["id"], "{gone}");
    let why = gone["agent"]["detail"].as_str().unwrap();
    assert!(why.contains("ended with a job on it, and source `git` has no row of it"), "{why}");
    let lost = site.json(&["status"])["lostJobs"].clone();
    assert_eq!(lost.as_array().map(Vec::len), Some(1), "{lost}");
}

// Invariant: a job that somebody cancels ends its machine: Gitea deletes the row, and informs the runner
// nothing, which goes on.

#[test]
fn a_job_that_somebody_cancels_on_its_page_ends_its_machine_in_half_a_minute_and_is_not_lost() {
    let gitea = Gitea::start();
    let (_dir, _sim, site, _service, mut events) = with_a_job(&gitea, "sleep 3600");
    let began = Instant::now();
    gitea.cancel();
    let gone = events.until("agentGone", |_| true);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert_eq!(gone["agent"]["reason"], "used-up", "{gone}");
    let status = site.json(&["status"]);
    assert_eq!((&status["lostJobs"], &status["sources"][0]["running"]), (&json!([]), &json!(0)));
}

#[test]
fn a_job_that_is_cancelled_while_the_service_is_down_ends_its_machine_with_a_token_for_admins() {
    let mut gitea = Gitea::start();
    let (_dir, sim, site) = world();
    let admin = gitea.token.clone();
    gitea.narrow("write:admin");
    let keys = format!("pollSeconds: 1, runnerCommand: \"{RUNNER}\"");
    demand(&site, &site.yaml(&sim, ""), &gitea, &keys);
    gitea.token = admin;
    let mut service = Service::start(&site);
    service.drain();
    let mut events = Events::follow(&site);
    gitea.repository("app", &job("sleep 3600"));
    events.until("source", |fact| fact["source"]["running"] == 1);
    // It ends in good order: what it knows of the runner's row is written down.
    service.child.signal("TERM");
    assert_eq!(service.child.wait(), Some(0));
    gitea.cancel();
    let again = Service::start(&site);
    again.drain();
    // The machine may be gone before anybody follows.
    let mut events = Events::follow_with(&site, &["--after", "0"]);
    gitea.repository("next", &job("echo next"));
    assert_eq!(events.finished(2).len(), 2, "the next job had a machine of its own");
    site.until_empty();
    assert_eq!(site.json(&["status"])["lostJobs"], json!([]));
}

// Invariant: runners live on over a restart of the service, and guests that lie do not.

#[test]
fn a_job_goes_on_while_the_service_is_started_again() {
    let gitea = Gitea::start();
    let (_dir, _sim, site, service, events) = with_a_job(&gitea, UNTIL_GO);
    let agents = site.json(&["agents"]);
    drop((events, service));
    let again = Service::start(&site);
    again.drain();
    let mut events = Events::follow(&site);
    let agent = agents["agents"][0]["id"].as_str().unwrap();
    go(&site, &agents["agents"][0]);
    let gone = events.until("agentGone", |_| true);
    assert_eq!(
        (&gone["agent"]["id"], &gone["agent"]["reason"]),
        (&json!(agent), &json!("used-up"))
    );
    assert_eq!(gitea.conclusions(), [("it".to_owned(), "success".to_owned())].into());
}

#[test]
fn a_guest_whose_runner_never_connects_is_given_up_by_deadline() {
    let gitea = Gitea::start();
    let (_dir, sim, site) = world();
    let keys = "pollSeconds: 1, registerTimeoutSec: 5, runnerCommand: \"exec sleep 1000\"";
    demand(&site, &site.yaml(&sim, ""), &gitea, keys);
    let service = Service::start(&site);
    service.drain();
    let mut events = Events::follow(&site);
    gitea.repository("app", &job("echo never"));
    let gone = events.until("agentGone", |_| true);
    let why = gone["agent"]["detail"].as_str().unwrap();
    assert!(why.contains("its runner did not connect to source `git` within 5 s"), "{why}");
    assert!(why.contains("it still runs, for "), "{why}");
}

#[test]
fn a_guest_whose_runner_ends_badly_after_its_job_is_done() {
    let gitea = Gitea::start();
    let (_dir, sim, site) = world();
    let keys = format!("pollSeconds: 1, runnerCommand: \"{RUNNER}; exit 9\"");
    demand(&site, &site.yaml(&sim, ""), &gitea, &keys);
    let service = Service::start(&site);
    service.drain();
    let mut events = Events::follow(&site);
    gitea.repository("app", &job("echo short"));
    let gone = events.until("agentGone", |_| true);
    assert_eq!(gone["agent"]["reason"], "used-up", "{gone}");
}

// Invariant: a token that may make no runner costs no machine as long as that can be seen without one.

#[test]
fn a_token_that_may_only_read_is_reported_and_costs_nothing_until_another_is_given() {
    let mut gitea = Gitea::start();
    let (_dir, sim, site) = world();
    let admin = gitea.token.clone();
    gitea.repository("app", &job("echo served"));
    gitea.narrow("read:admin");
    let keys = format!("pollSeconds: 1, runnerCommand: \"{RUNNER}\"");
    demand(&site, &site.yaml(&sim, ""), &gitea, &keys);
    let service = Service::start(&site);
    service.drain();
    let mut events = Events::follow(&site);
    let seen = |fact: &Value| {
        let text = fact["source"]["refusal"].as_str().unwrap_or_default();
        text.starts_with("POST /api/v1/admin/actions/runners/registration-token: 403")
    };
    let reported = events.until("source", seen);
    assert!(reported["source"]["refusedSince"].is_string(), "{reported}");
    let said = String::from_utf8(site.cli(&["status"]).stdout).unwrap();
    assert!(said.contains("git: may not register runners since "), "{said}");
    site.until_empty();
    site.write_secret("gitea", &admin);
    assert!(site.cli(&["reload"]).status.success());
    events.until("agentGone", |fact| fact["agent"]["reason"] == "used-up");
    let all = site.json(&["agents"])["gone"].as_array().cloned().unwrap();
    let failed = all.iter().filter(|agent| agent["reason"] == "failed").count();
    assert_eq!(failed, 1, "{all:?}");
    gitea.token = admin;
    assert_eq!(gitea.conclusions(), [("it".to_owned(), "success".to_owned())].into());
}

// Invariant: a token needs no more than the book says.

#[test]
fn a_token_for_repositories_is_enough_for_the_jobs_of_one() {
    let mut gitea = Gitea::start();
    let (_dir, sim, site) = world();
    let admin = gitea.token.clone();
    gitea.repository("app", &job("echo narrow"));
    gitea.narrow("write:repository");
    let keys = "scope: repo/drover/app, pollSeconds: 1";
    demand(&site, &site.yaml(&sim, ""), &gitea, keys);
    let service = Service::start(&site);
    service.drain();
    let gone = Events::follow(&site).until("agentGone", |_| true);
    assert_eq!(gone["agent"]["reason"], "used-up", "{gone}");
    gitea.token = admin;
    assert_eq!(gitea.conclusions(), [("it".to_owned(), "success".to_owned())].into());
}
