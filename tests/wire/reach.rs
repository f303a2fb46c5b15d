//! The commands that reach one thing: its machine by SSH, its story, and all that is known of it.

use std::process::Output;

use serde_json::Value;

use crate::harness::{Service, Site, world};

fn text(out: &Output) -> String {
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout.clone()).unwrap()
}

fn refused(site: &Site, args: &[&str]) -> String {
    let out = site.cli(args);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    String::from_utf8(out.stderr).unwrap()
}

// Invariant: the holder of a lease reaches its machine by its id or that of its agent, whole or by its start.

#[test]
fn a_leased_machine_is_logged_in_to_and_shown_by_the_start_of_an_id() {
    let (_dir, _sim, site) = world();
    let _service = Service::start(&site);
    let lease = site.json(&["lease", "--labels", "linux", "--ttl", "10m"]);
    let (lease, agent) = (lease["id"].as_str().unwrap(), lease["agent"].as_str().unwrap());
    let start = &agent[..6];

    let name = text(&site.cli(&["ssh", start, "--", "hostname"]));
    assert!(name.contains(agent), "{name}");
    assert_eq!(text(&site.cli(&["ssh", lease, "--", "hostname"])), name);
    let out = site.cli(&["ssh", start, "--", "echo no >&2; exit 7"]);
    assert_eq!(out.status.code(), Some(7), "{out:?}");

    let there = format!("{start}:sent");
    let both = site.cli(&["cp", &there, &there]);
    assert_eq!(both.status.code(), Some(2), "{both:?}");

    let story = text(&site.cli(&["logs", start]));
    for part in ["Cloning", "Booting", "Leased"] {
        assert!(story.contains(part), "{part}: {story}");
    }

    let shown = text(&site.cli(&["show", "agent", start]));
    assert!(shown.contains(&format!("id: {agent}\n")), "{shown}");
    assert!(shown.contains("history:\n") && shown.contains("\nNEXT\n"), "{shown}");
    assert_eq!(text(&site.cli(&["get", "agents", start])), shown);
    let listed = site.json(&["get", "agents"]);
    assert_eq!(listed["agents"][0]["id"], agent);

    let expires = |site: &Site| site.json(&["show", "lease", lease])["lease"]["expiresAt"].clone();
    let before = expires(&site);
    text(&site.cli(&["lease", "renew", lease, "--ttl", "30m"]));
    let after = expires(&site);
    assert!(after.as_str() > before.as_str(), "{before} {after}");
    text(&site.cli(&["lease", "release", lease]));
    assert_eq!(site.json(&["leases"])["leases"], Value::Array(Vec::new()));
}

#[test]
fn a_machine_that_nobody_here_has_leased_is_reached_only_by_a_hold_that_is_asked_for() {
    let (_dir, _sim, site) = world();
    let _service = Service::start(&site);
    let lease = site.json(&["lease", "--labels", "linux"]);
    let agent = lease["agent"].as_str().unwrap();
    text(&site.cli(&["lease", "release", lease["id"].as_str().unwrap()]));

    let reported = refused(&site, &["ssh", agent, "--", "true"]);
    assert!(reported.contains(&format!("drover ssh {agent} --hold")), "{reported}");
    assert!(reported.contains("drover destroys the agent at the end of the hold"), "{reported}");
    assert_eq!(site.json(&["show", "agent", agent])["agent"]["state"], "Ready");

    let name = text(&site.cli(&["ssh", agent, "--hold", "--for", "5m", "--", "hostname"]));
    assert!(name.contains(agent), "{name}");
    assert_eq!(site.json(&["show", "agent", agent])["agent"]["state"], "Held");
    // A second login uses the same hold.
    assert_eq!(text(&site.cli(&["ssh", agent, "--", "hostname"])), name);
    assert!(refused(&site, &["logs", "nobody"]).contains("unknown agent `nobody`"));
}
