//! What is asked for and how long it is had: expressions over labels, leases that run out or are
//! renewed, agents kept ahead of demand.

use serde_json::{Value, json};

use crate::api::{Board, ask, call, ready};
use crate::harness::{Events, Service, world};
use crate::parity::{agents, yaml};

// Invariant: an expression is understood as in Jenkins, and labels may carry values.

#[test]
fn expressions_and_labels_with_values_find_their_template() {
    let (_dir, sim, site) = world();
    let templates = [
        ("small", "labelString: \"linux x64 size=small\""),
        ("large", "labelString: \"linux x64 size=large\""),
        ("slow", "labelString: \"linux arm slow\""),
    ];
    site.write_yaml(&yaml(&site, &sim, &[], &templates));
    let _service = Service::start(&site);
    for (expression, template) in [
        ("linux && (arm || !x64)", "slow"),
        ("linux && x64 && !size=large", "small"),
        ("size=large", "large"),
    ] {
        let lease = ["lease", "--label-expression", expression, "--", "true"];
        let out = site.cli(&lease);
        assert!(out.status.success(), "{expression}: {out:?}");
        assert_eq!(agents(&site, template).len(), 1, "{expression}");
    }
    let body = json!({"labels": ["x64", "size=large"], "owner": "wire", "ttlSeconds": 3600});
    let (_, lease) = call(&site, "POST", "/v1/leases", Some(&body));
    let agent = ready(&site, lease["id"].as_str().unwrap())["agent"].clone();
    assert_eq!(agents(&site, "large")[0]["id"], agent, "it has it already");
    let out = site.cli(&["lease", "--label-expression", "linux && windows", "--", "true"]);
    assert!(!out.status.success());
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("linux && windows"), "{said}");
}

// Invariant: a lease ends when it says, unless it is renewed, and its agent goes with it.

#[test]
fn a_lease_that_is_not_renewed_runs_out_with_its_agent() {
    let (_dir, sim, site) = world();
    site.write_yaml(&yaml(&site, &sim, &[], &[("linux", "")]));
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let lease = |seconds: u32| {
        let body = json!({"template": "linux", "owner": "wire", "ttlSeconds": seconds});
        let (status, lease) = call(&site, "POST", "/v1/leases", Some(&body));
        assert_eq!(status, 201, "{lease}");
        ready(&site, lease["id"].as_str().unwrap())
    };
    // Both are had first: the renewal is sent long before the short time is over.
    let renewed = lease(30);
    let short = lease(2);
    let path = format!("/v1/leases/{}/renew", renewed["id"].as_str().unwrap());
    let (status, reported) = call(&site, "POST", &path, Some(&json!({"ttlSeconds": 3600})));
    assert_eq!(status, 200, "{reported}");
    let text = |of: &Value| of["expiresAt"].as_str().unwrap().to_owned();
    assert!(text(&reported) > text(&renewed), "{reported}");
    let ended = events.until("lease", |fact| fact["lease"]["state"] == "ended");
    assert_eq!(
        (&ended["lease"]["id"], &ended["lease"]["detail"]),
        (&short["id"], &"expired".into())
    );
    let gone = events.until("agentGone", |_| true);
    assert_eq!(
        (&gone["agent"]["id"], &gone["agent"]["reason"]),
        (&short["agent"], &"lease-expired".into())
    );
    assert_eq!(agents(&site, "linux")[0]["id"], renewed["agent"]);
    assert_eq!(sim.guests().len(), 1);
}

// Invariant: agents wait idle ahead of demand, more of them while a window is open.

#[test]
fn idle_agents_are_kept_beside_those_in_use_and_more_while_a_window_is_open() {
    let (_dir, sim, site) = world();
    let text = |more: &str| {
        yaml(&site, &sim, &[], &[("warm", &format!("idleMin: 1, instanceCap: 4{more}"))])
    };
    site.write_yaml(&text(""));
    let _service = Service::start(&site);
    let mut board = Board::open(&site);
    board.until(&site, "one waits", |board| board.in_state("Ready") == 1);
    ready(&site, &ask(&site, "warm", "wire"));
    board.until(&site, "another waits", |board| {
        board.in_state("Ready") == 1 && board.in_state("Leased") == 1
    });
    // A window that opens each minute for a minute is always open.
    let schedule = ", idleTerminationMinutes: 0, schedule: [{cron: \"* * * * *\", \
                    durationMinutes: 1, timeZone: Europe/Berlin, idleMin: 2}]";
    site.write_yaml(&text(schedule));
    board.until(&site, "two wait", |board| board.in_state("Ready") == 2);
    assert_eq!(board.in_state("Leased"), 1);
}

#[test]
fn kept_agents_are_renewed_before_they_are_too_old() {
    let (_dir, sim, site) = world();
    let keys = "instanceMin: 1, instanceCap: 2, maxLifetimeMinutes: 1";
    site.write_yaml(&yaml(&site, &sim, &[], &[("warm", keys)]));
    let _service = Service::start(&site);
    let mut board = Board::open(&site);
    board.until(&site, "one waits", |board| board.in_state("Ready") == 1);
    let first = board.agents.keys().next().unwrap().clone();
    let mut least = 1;
    while board.agents.contains_key(&first) {
        board.next(&site);
        let there = board.agents.values().filter(|one| one["state"] == "Ready");
        let leaves = board.agents.get(&first).is_some_and(|one| one["state"] != "Ready");
        if leaves {
            least = least.min(there.count());
        }
    }
    assert_eq!(least, 1, "another one is ready before it goes");
}
