//! `drover doctor template` beside others who want agents, and cut short.

use std::process::Stdio;

use serde_json::{Value, json};

use super::api::call;
use super::harness::{Events, Kept, Lines, Service, Sim, drover};
use super::rights::{setup, site};

// Invariant: an agent on trial is handed to nobody, and goes by itself when nobody follows it.

#[test]
fn an_agent_on_trial_is_not_leased_and_goes_when_its_command_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path());
    let site = site(&sim, "");
    assert_eq!(setup(&site, &[]).0, 0);
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let mut command = drover();
    command.arg("--socket").arg(site.dir.path().join("drover.sock"));
    command.args(["doctor", "template", "linux"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = Lines::of("the trial", child.stderr.take().unwrap());
    said.until(|line| line.contains("is on trial"));
    let mut child = Kept(child);
    child.0.kill().unwrap();
    child.wait();
    let ready = events.until("agent", |fact| fact["agent"]["state"] == "Ready");
    let agent = ready["agent"]["id"].as_str().unwrap().to_owned();
    assert_eq!(ready["agent"]["onTrial"], Value::Bool(true), "{ready}");
    let shown = String::from_utf8(site.cli(&["agents"]).stdout).unwrap();
    assert!(shown.contains("on trial"), "{shown}");
    // Anyone who wants an agent has another one.
    let out = site.cli(&["lease", "--labels", "linux", "--", "true"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let served = events.until("agent", |fact| fact["agent"]["state"] == "Leased");
    assert_ne!(served["agent"]["id"].as_str(), Some(&*agent));
    assert_eq!(served["agent"]["onTrial"], Value::Bool(false), "{served}");
}

// Invariant: of an agent whose trial is over no event says that an operator retired it.

#[test]
fn the_end_of_a_trial_is_reported_as_its_own_and_a_retirement_as_an_operators() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path());
    let site = site(&sim, "");
    assert_eq!(setup(&site, &[]).0, 0);
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let out = site.cli(&["doctor", "template", "linux"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let gone = events.until("agentGone", |_| true);
    assert_eq!(gone["agent"]["reason"], "trial-over", "{gone}");
    let said = "it was made for trial (drover doctor), and that is over";
    assert_eq!(gone["agent"]["detail"], said, "{gone}");
    // Who says so of another agent has retired it.
    assert!(site.cli(&["provision", "linux"]).status.success());
    let ready = events.until("agent", |fact| fact["agent"]["state"] == "Ready");
    let path = format!("/v1/agents/{}/retire", ready["agent"]["id"].as_str().unwrap());
    let (status, answer) = call(&site, "POST", &path, Some(&json!({"trialOver": true})));
    assert_eq!(status, 202, "{answer}");
    let gone = events.until("agentGone", |_| true);
    assert_eq!(gone["agent"]["reason"], "asked", "{gone}");
}

// Invariant: an agent that nobody but an administrator can repair ends the command, with what to run.

#[test]
fn a_trial_whose_agent_is_stranded_ends_with_what_to_run() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path());
    let site = site(&sim, "    startupWaitSeconds: 4\n");
    let yaml = std::fs::read_to_string(site.config()).unwrap();
    site.write_yaml(&yaml.replace("sshPort: 2222", "sshPort: 2223"));
    assert_eq!(setup(&site, &[]).0, 0);
    let _service = Service::start(&site);
    // Somebody renames the guest before it starts, so that it is not known to be drover's any more.
    let faults = dir.path().join("faults.yaml");
    std::fs::write(&faults, "calls: [{route: /status/start, method: POST, delay: 5}]\n").unwrap();
    sim.order(&format!("faults {}", faults.display()));
    let mut events = Events::follow(&site);
    let out = std::thread::scope(|threads| {
        let trial = threads.spawn(|| site.cli(&["doctor", "template", "linux"]));
        let booting = events.until("agent", |fact| fact["agent"]["state"] == "Booting");
        let path = format!("/nodes/{}/qemu/{}/config", sim.fact("node"), booting["agent"]["vmid"]);
        let answer = sim.send("PUT", &path, &[("name", "somebody-elses")]);
        assert_eq!(answer["data"], Value::Null, "{answer}");
        trial.join().unwrap()
    });
    let reported = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{reported}");
    assert!(reported.contains("is stranded: "), "{reported}");
    assert!(reported.contains("qm destroy") && reported.contains(" --purge"), "{reported}");
}

// Invariant: an agent that cannot be destroyed is reported while that lasts, and ends the command with
// what to run once that is an alarm.

#[test]
fn a_trial_whose_guest_is_locked_shows_the_lock_and_ends_with_the_alarm() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path());
    let keys = "    retireTimeoutSec: 2\n    prepare: [{run: sleep 2}]\n";
    let site = site(&sim, keys);
    assert_eq!(setup(&site, &[]).0, 0);
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let out = std::thread::scope(|threads| {
        let trial = threads.spawn(|| site.cli(&["doctor", "template", "linux"]));
        let fact = events.until("agent", |fact| fact["agent"]["state"] == "Preparing");
        sim.order(&format!("lock {} backup", fact["agent"]["vmid"]));
        trial.join().unwrap()
    });
    let reported = String::from_utf8_lossy(&out.stderr).into_owned();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(out.status.code(), Some(1), "{reported}");
    assert!(said.contains("ok    it is ready\n"), "{said}");
    let (before, alarm) =
        reported.split_once("is not gone: ").unwrap_or_else(|| panic!("{reported}"));
    assert!(before.contains("locked") && before.contains("backup"), "{reported}");
    assert!(alarm.contains("\n  > "), "{reported}");
}

// Invariant: who loses the service on the way hears what becomes of the agent.

#[test]
fn a_trial_whose_service_ends_says_what_becomes_of_its_agent() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(dir.path());
    let site = site(&sim, "    prepare: [{run: sleep 60}]\n");
    assert_eq!(setup(&site, &[]).0, 0);
    let service = Service::start(&site);
    let mut events = Events::follow(&site);
    let out = std::thread::scope(|threads| {
        let trial = threads.spawn(|| site.cli(&["doctor", "template", "linux"]));
        events.until("agent", |fact| fact["agent"]["state"] == "Preparing");
        drop(service);
        trial.join().unwrap()
    });
    let reported = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(69), "{reported}");
    let line =
        reported.lines().find(|line| line.contains(" goes by itself, a minute after it is ready"));
    assert!(line.is_some_and(|line| line.contains("drover retire ")), "{reported}");
}
