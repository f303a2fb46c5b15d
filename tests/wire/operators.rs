//! What operators say of single agents and templates, over real sockets.

use serde_json::json;

use crate::api::{ask, call, ready, release};
use crate::harness::{Events, Service, world};

// Invariant: what an operator begins is there without demand, under the caps.

#[test]
fn agents_are_started_at_once_and_an_unknown_template_is_answered_with_the_nearest() {
    let (_dir, sim, site) = world();
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let out = site.cli(&["provision", "linux", "--count", "2"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success() && said.starts_with("2 agents of lab/linux started\n"), "{said}");
    events.until("template", |fact| fact["template"]["states"]["Ready"] == 2);
    assert_eq!(sim.guests().len(), 2);

    let path = "/v1/templates/lab%2Flinux/provision";
    let (status, more) = call(&site, "POST", path, Some(&json!({"count": 5})));
    assert_eq!(status, 202, "{more}");
    assert_eq!(more["agents"].as_array().unwrap().len(), 2);
    assert_eq!(more["short"], "lab/linux is full: 4 of 4");

    let (status, problem) = call(&site, "POST", "/v1/templates/linus/provision", None);
    assert_eq!(status, 404, "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("`linux`"), "{detail}");
}

// Invariant: limits of one agent hold across restarts.

#[test]
fn an_agents_own_limit_of_uses_outlives_the_service_and_ends_the_agent() {
    let (_dir, _sim, site) = world();
    let mut service = Service::start(&site);
    let lease = ask(&site, "linux", "wire");
    let agent = ready(&site, &lease)["agent"].as_str().unwrap().to_owned();
    let path = format!("/v1/agents/{agent}");
    let (status, set) = call(&site, "PATCH", &path, Some(&json!({"maxTotalUses": 1})));
    assert_eq!((status, &set["maxTotalUses"]), (200, &json!(1)), "{set}");
    let out = site.cli(&["agents", "set", &agent, "--idle", "0"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(said, format!("agent {agent}: never goes for idling, goes after 1 use\n"));
    service.child.signal("TERM");
    assert_eq!(service.child.wait(), Some(0));

    let _service = Service::start(&site);
    let (_, shown) = call(&site, "GET", &path, None);
    assert_eq!(shown["overrides"], json!({"idleTerminationMinutes": 0, "maxTotalUses": 1}));
    let mut events = Events::follow(&site);
    release(&site, &lease);
    let gone = events.until("agentGone", |fact| fact["agent"]["id"] == agent.as_str());
    assert_eq!(gone["agent"]["reason"], "used-up");
}

// Invariant: where one use is all an agent has, nobody comes after anybody.

#[test]
fn a_single_use_agent_is_gone_after_its_lease() {
    let (_dir, sim, site) = world();
    site.write_yaml(&site.yaml(&sim, "    singleUse: true\n"));
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let lease = ask(&site, "linux", "wire");
    let agent = ready(&site, &lease)["agent"].clone();
    release(&site, &lease);
    let gone = events.until("agentGone", |fact| fact["agent"]["id"] == agent);
    assert_eq!(gone["agent"]["reason"], "used-up");
    assert_eq!(sim.guests(), Vec::<u64>::new());
}

// Invariant: anyone who holds an agent gets in with a key that is reported once, and the guest goes after.

#[test]
fn a_held_agent_lets_the_new_key_in_and_is_destroyed_when_it_is_released() {
    let (_dir, sim, site) = world();
    let mut service = Service::start(&site);
    let (_, started) = call(&site, "POST", "/v1/templates/linux/provision", None);
    let agent = started["agents"][0].as_str().unwrap().to_owned();
    let mut events = Events::follow(&site);
    let path = format!("/v1/agents/{agent}/hold");
    let (status, held) = call(&site, "POST", &path, Some(&json!({"seconds": 3600})));
    assert_eq!(status, 202, "{held}");
    let key = held["privateKey"].as_str().unwrap();
    let open = |fact: &serde_json::Value| {
        let reported = &fact["agent"];
        reported["id"] == agent.as_str() && reported["detail"] == "the login is open"
    };
    let shown = events.until("agent", open);
    assert_eq!(shown["agent"]["state"], "Held");
    let (host, port) = (&shown["agent"]["ssh"]["host"], &shown["agent"]["ssh"]["port"]);
    site.write_secret("held", key);
    let file = site.dir.path().join("held");
    let out = std::process::Command::new("ssh")
        .args(["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"])
        .args(["-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-p", &port.to_string(), "-i"])
        .arg(&file)
        .args([&format!("debian@{}", host.as_str().unwrap()), "echo inside"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout), "inside\n", "{out:?}");

    // The private key is nowhere but in that answer. Not each of its lines has a part of the secret.
    service.child.signal("KILL");
    service.child.wait();
    let journal = std::fs::read(site.dir.path().join("state/journal.redb")).unwrap();
    for line in key.lines().filter(|line| line.len() > 20) {
        assert!(!journal.windows(line.len()).any(|part| part == line.as_bytes()), "{line}");
    }

    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let (_, mut shown) = call(&site, "GET", &format!("/v1/agents/{agent}"), None);
    // It is adopted behind the readiness of the service, and reported then.
    if shown["state"].is_null() {
        shown =
            events.until("agent", |fact| fact["agent"]["id"] == agent.as_str())["agent"].clone();
    }
    assert_eq!(shown["state"], "Held");
    let out = site.cli(&["release-hold", &agent]);
    assert!(out.status.success(), "{out:?}");
    let gone = events.until("agentGone", |fact| fact["agent"]["id"] == agent.as_str());
    assert_eq!(gone["agent"]["reason"], "hold-over");
    assert_eq!(sim.guests(), Vec::<u64>::new());
}

// Invariant: the level that an operator gives by the API is the one of the very next lines.

#[test]
fn the_level_of_the_log_changes_what_a_running_service_logs() {
    let (_dir, _sim, site) = world();
    let (_service, mut log) = Service::start_logged(&site);
    let level = |level: &str| call(&site, "PUT", "/v1/log-level", Some(&json!({"level": level}))).0;
    let ask = |name: &str| {
        call(&site, "POST", &format!("/v1/leases/{name}/renew"), Some(&json!({"ttlSeconds": 60}))).0
    };
    // Each call is logged before it is answered, and from `info` on.
    for round in ["first", "second"] {
        assert_eq!(level("warn"), 204);
        assert_eq!(ask(&format!("silent-{round}")), 404);
        assert_eq!((level("loud"), level("info")), (400, 204));
        assert_eq!(ask(&format!("reported-{round}")), 404);
        let line = log.until(|line| {
            // The copy of the audit log has each call, whatever the level.
            let is_of_level = line.contains("request answered");
            assert!(!is_of_level || !line.contains("silent-"), "{line}");
            is_of_level && line.contains(&format!("reported-{round}"))
        });
        assert!(line.contains("INFO") && line.contains("request answered"), "{line}");
    }
    assert_eq!(level("debug"), 204);
    assert!(site.cli(&["provision", "linux"]).status.success());
    log.until(|line| line.contains("DEBUG") && line.contains("agent asks"));
}
