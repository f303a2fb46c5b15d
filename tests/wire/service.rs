//! The service towards systemd, its operators and its end.

use std::time::Instant;

use crate::harness::{Events, Service, drover, world};

// Invariant: systemd hears READY when the clouds were tried, STOPPING at the end.

#[test]
fn the_notify_socket_hears_ready_with_a_status_and_stopping() {
    let (_dir, _sim, site) = world();
    let mut service = Service::spawn(&site, &[]);
    let ready = service.hear("READY=1");
    assert!(ready.contains("STATUS="), "{ready}");
    service.child.signal("TERM");
    service.hear("STOPPING=1");
    assert_eq!(service.child.wait(), Some(0));
}

#[test]
fn the_watchdog_is_fed_for_as_long_as_the_actors_turn() {
    let (_dir, _sim, site) = world();
    let mut service = Service::spawn_with(&site, &[], &[("WATCHDOG_USEC", "200000")]);
    service.hear("READY=1");
    for _ in 0..3 {
        service.hear("WATCHDOG=1");
    }
}

// Invariant: signals do what design says.

#[test]
fn sigusr1_reaps_and_sigusr2_resyncs() {
    let (_dir, sim, site) = world();
    let service = Service::start(&site);
    let mut events = Events::follow(&site);
    assert!(site.cli(&["lease", "--labels", "linux", "--", "true"]).status.success());
    service.child.signal("USR2");
    events.until("reconciled", |_| true);
    service.child.signal("USR1");
    events.until("agentGone", |_| true);
    assert!(sim.guests().is_empty());
}

#[test]
fn sigterm_keeps_agents_and_the_next_start_adopts_them() {
    let (_dir, sim, site) = world();
    let mut service = Service::start(&site);
    let out = site.cli(&["lease", "--labels", "linux", "--", "hostname"]);
    let name = String::from_utf8_lossy(&out.stdout).into_owned();
    service.child.signal("TERM");
    assert_eq!(service.child.wait(), Some(0));
    assert_eq!(sim.guests().len(), 1);
    let _again = Service::start(&site);
    let out = site.cli(&["lease", "--labels", "linux", "--", "hostname"]);
    assert_eq!(String::from_utf8_lossy(&out.stdout), name);
    assert_eq!(sim.guests().len(), 1);
}

// Invariant: a stop has an end whatever the cluster does, and what is left is for the next start.

#[test]
fn a_stop_whose_cluster_is_gone_ends_at_its_bound_and_names_what_is_left() {
    let (_dir, sim, site) = world();
    let keys = "service:\n  onStop: retireAll\n  stopTimeoutSec: 12\n";
    site.write_yaml(&site.yaml(&sim, "").replace("service:\n", keys));
    let (mut service, mut log) = Service::start_logged(&site);
    assert!(site.cli(&["lease", "--labels", "linux", "--", "true"]).status.success());
    let agent = site.json(&["agents"])["agents"][0]["id"].as_str().unwrap().to_owned();
    // Its sockets take connections, and nothing is answered.
    sim.child.signal("STOP");
    let begin = Instant::now();
    service.child.signal("TERM");
    service.hear("STOPPING=1");
    let left = format!("1: {agent} (Retiring, VMID 10000)");
    let waits =
        log.until(|line| line.contains("drover waits for work that must not be interrupted"));
    assert!(waits.contains(&left), "{waits}");
    let over = log.until(|line| line.contains("drover stops after 12 s (service.stopTimeoutSec)"));
    assert!(over.contains(&left), "{over}");
    assert_eq!(service.child.wait(), Some(0));
    let took = begin.elapsed().as_secs();
    assert!((12..40).contains(&took), "{took} s");

    sim.child.signal("CONT");
    assert_eq!(sim.guests(), [10_000]);
    let (_again, mut log) = Service::start_logged(&site);
    let taken = log.until(|line| line.contains("agent is taken over"));
    assert!(taken.contains(&agent) && taken.contains("Retiring"), "{taken}");
    site.until_empty();
    assert_eq!(sim.guests(), Vec::<u64>::new());
}

// Invariant: exit 2 for a configuration that cannot be used, degraded for a cloud that cannot.

#[test]
fn no_configuration_at_all_exits_2_and_says_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("empty.yaml");
    std::fs::write(&path, "cloudConfigurations: {}\n").unwrap();
    let out = drover().arg("--config").arg(&path).arg("run").output().unwrap();
    assert_eq!(out.status.code(), Some(2), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(!out.stderr.is_empty());
}

#[test]
fn an_unreachable_cloud_runs_degraded_and_says_why() {
    let (_dir, mut sim, site) = world();
    sim.child.signal("TERM");
    sim.child.wait();
    let _service = Service::start(&site);
    let status = String::from_utf8_lossy(&site.cli(&["status"]).stdout).into_owned();
    assert!(status.contains("unreachable"), "{status}");
    assert!(site.cli(&["status"]).status.success());
}

#[test]
fn an_unreachable_cloud_with_strict_exits_1() {
    let (_dir, mut sim, site) = world();
    sim.child.signal("TERM");
    sim.child.wait();
    let mut service = Service::spawn(&site, &["--strict"]);
    assert_eq!(service.child.wait(), Some(1));
}
