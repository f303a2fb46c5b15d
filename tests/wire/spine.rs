//! From YAML to a machine leased over SSH.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::harness::{Events, Service, world};

// Invariant: a lease gives a machine, runs a command with its exit status, and leaves nothing.

#[test]
fn a_leased_command_streams_its_output_and_gives_its_exit_status() {
    let (_dir, sim, site) = world();
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let out = site.cli(&["lease", "--labels", "linux", "--", "echo out; echo err >&2; exit 7"]);
    let (stdout, stderr) =
        (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.status.code(), Some(7), "{stdout}{stderr}");
    assert_eq!(stdout, "out\n");
    assert!(stderr.contains("err\n"), "{stderr}");

    let agents = site.json(&["agents"])["agents"].clone();
    let agent = agents[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(agents[0]["leases"].as_array().unwrap().len(), 0);
    let reaped = site.cli(&["reap"]);
    assert!(reaped.status.success());
    let gone = events.until("agentGone", |fact| fact["agent"]["id"] == agent.as_str());
    let phases = gone["agent"]["phases"].as_array().unwrap();
    let names: Vec<&str> = phases.iter().map(|phase| phase["state"].as_str().unwrap()).collect();
    for state in [
        "Cloning",
        "Configuring",
        "Booting",
        "Connecting",
        "Preparing: cloud-init",
        "Preparing: remoteFs",
        "Ready",
        "Leased",
    ] {
        assert!(names.contains(&state), "{state} in {names:?}");
    }
    assert_eq!(sim.guests(), Vec::<u64>::new());
}

#[test]
fn the_same_agent_serves_the_next_lease() {
    let (_dir, _sim, site) = world();
    let _service = Service::start(&site);
    let name = |out: std::process::Output| String::from_utf8_lossy(&out.stdout).into_owned();
    let first = name(site.cli(&["lease", "--template", "linux", "--", "hostname"]));
    let second = name(site.cli(&["lease", "--template", "lab/linux", "--", "hostname"]));
    assert!(!first.trim().is_empty());
    assert_eq!(first, second);
}

#[test]
fn a_want_that_nothing_can_serve_is_refused_at_once() {
    let (_dir, _sim, site) = world();
    let _service = Service::start(&site);
    let out = site.cli(&["lease", "--labels", "solaris", "--", "true"]);
    assert_eq!(out.status.code(), Some(1));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("solaris") && said.contains("linux"), "{said}");
}

#[test]
fn a_template_is_leased_by_its_display_name() {
    let (_dir, sim, site) = world();
    site.write_yaml(&site.yaml(&sim, "").replace("name: linux\n", "name: Linux builder\n"));
    let _service = Service::start(&site);
    for name in ["Linux builder", "lab/Linux builder", "linux"] {
        let out = site.cli(&["lease", "--template", name, "--", "true"]);
        assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
    }
}

#[test]
fn scripts_get_faults_and_errors_as_json() {
    let (_dir, sim, site) = world();
    let read = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).unwrap();
    site.write_yaml(&site.yaml(&sim, "    instnaceMin: 1\n"));
    let file = site.config().display().to_string();
    let out = site.cli(&["--json", "check", &file]);
    let (reported, code) = (read(&out.stdout), out.status.code());
    assert_eq!((code, reported["ok"].as_bool()), (Some(2), Some(false)), "{reported}");
    let about = |fault: &&serde_json::Value| fault["what"].to_string().contains("instnaceMin");
    let fault = reported["faults"].as_array().unwrap().iter().find(about);
    let fault = fault.unwrap_or_else(|| panic!("{reported}"));
    assert!(fault["key"].as_str().is_some_and(|key| key.contains("linux")), "{fault}");
    assert!(fault["line"].is_u64() && fault["help"].is_string(), "{fault}");

    site.write_yaml(&site.yaml(&sim, ""));
    let out = site.cli(&["--json", "check", &file, "--connect"]);
    let reported = read(&out.stdout);
    assert!(out.status.success(), "{reported}");
    assert_eq!((&reported["clouds"], &reported["templates"]), (&1.into(), &1.into()));
    assert!(reported["connections"][0]["version"].is_string(), "{reported}");

    let out = site.cli(&["--json", "status"]);
    let reported = read(&out.stderr);
    assert_eq!(
        (out.status.code(), &reported["error"]["code"]),
        (Some(69), &69.into()),
        "{reported}"
    );
}

// Invariant: anyone who follows the events may begin in the past, as far as it is kept.

#[test]
fn events_since_begin_with_what_was_reported_and_after_0_with_all_that_is_kept() {
    let (_dir, _sim, site) = world();
    let _service = Service::start(&site);
    let lease = |command: &str| {
        let out = site.cli(&["lease", "--labels", "linux", "--", command]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    };
    // Once it has ended, what was reported before it ran is more than a second old.
    lease("sleep 2");
    let ended = |fact: &Value| fact["kind"] == "lease" && fact["lease"]["state"] == "ended";
    let follow = |options: &[&str]| Events::follow_with(&site, options);
    let all = follow(&["--after", "0"]).up_to(ended);
    let clouds = |fact: &&Value| fact["kind"] == "cloud";
    let health: Vec<_> = all.iter().filter(clouds).map(|fact| &fact["cloud"]["health"]).collect();
    assert!(health.contains(&&"well".into()), "from before anybody followed: {health:?}");
    assert_eq!(follow(&["--since", "1h"]).up_to(ended), all);

    let at = |fact: &Value| fact["at"].as_str().unwrap().parse::<Timestamp>().unwrap();
    let second_ago = Timestamp::now() - Duration::from_secs(1);
    assert!(at(&all[0]) < second_ago, "{}", all[0]);
    let mut events = follow(&["--since", "1s"]);
    lease("true");
    for fact in events.up_to(ended) {
        assert!(at(&fact) >= second_ago, "it is older than a second: {fact}");
    }
}

// Invariant: the YAML may be edited while it runs; a bad edit changes nothing and is shown.

#[test]
fn a_broken_yaml_keeps_the_old_one_in_force_until_it_is_repaired() {
    let (_dir, sim, site) = world();
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    site.write_yaml(&site.yaml(&sim, "    instnaceMin: 1\n"));
    let refused = events.until("configRefused", |_| true);
    let text = refused["text"].as_str().unwrap();
    assert!(text.contains("instnaceMin") && text.contains("instanceMin"), "{text}");
    let status = String::from_utf8_lossy(&site.cli(&["status"]).stdout).into_owned();
    assert!(status.contains("instnaceMin"), "{status}");
    assert!(site.cli(&["lease", "--labels", "linux", "--", "true"]).status.success());

    site.write_yaml(&site.yaml(&sim, "    instanceMin: 2\n"));
    events.until("configApplied", |_| true);
    events.until("template", |fact| fact["template"]["states"]["Ready"] == 2);
    let status = String::from_utf8_lossy(&site.cli(&["status"]).stdout).into_owned();
    assert!(!status.contains("instnaceMin"), "{status}");
}

#[test]
fn reload_by_command_and_by_signal_says_what_came_of_it() {
    let (_dir, sim, site) = world();
    let mut service = Service::start(&site);
    assert!(site.cli(&["reload"]).status.success());
    service.child.signal("HUP");
    service.hear("RELOADING=1");
    service.hear("READY=1");
    site.write_yaml(&site.yaml(&sim, "    cores: many\n"));
    let out = site.cli(&["reload"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("cores"));
}

// Invariant: anyone who hears how the service stands holds nobody up.

#[test]
fn a_service_manager_that_does_not_listen_holds_nothing_up() {
    let (_dir, _sim, site) = world();
    // The socket takes eleven messages and is full then.
    let service = Service::start(&site);
    for _ in 0..20 {
        assert!(site.cli(&["reload"]).status.success());
    }
    assert!(site.cli(&["status"]).status.success());
    drop(service);
}
