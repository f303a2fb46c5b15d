//! Caps, permits, places on storages, and which template serves a label.

use serde_json::{Value, json};

use crate::api::{Board, ask, call, ready, release};
use crate::harness::{Events, Service, Site, world};
use crate::parity::{agents, slow, yaml};

/// What an operator is reported who wants agents.
fn provision(site: &Site, template: &str, count: u32) -> (usize, String) {
    let path = format!("/v1/templates/{template}/provision");
    let (status, reported) = call(site, "POST", &path, Some(&json!({"count": count})));
    assert_eq!(status, 202, "{reported}");
    let short = reported["short"].as_str().unwrap_or_default().to_owned();
    (reported["agents"].as_array().unwrap().len(), short)
}

// Invariant: the cap that is reached first binds; agents on a dead node count against none.

#[test]
fn caps_bind_whichever_is_first_and_dead_nodes_leave_them() {
    let dir = tempfile::tempdir().unwrap();
    let sim = slow(dir.path(), "start: {low: 0.5, high: 0.5}\n", &[]);
    let site = Site::new(&sim);
    let cloud = ["instanceCap: 3", "nodeGracePeriodSeconds: 0"];
    let templates = [
        ("few", "instanceCap: 2"),
        ("far", "node: pve2, templateVmId: 9001"),
        ("more", "instanceCap: 9"),
    ];
    site.write_yaml(&yaml(&site, &sim, &cloud, &templates));
    let _service = Service::start(&site);
    let mut board = Board::open(&site);
    assert_eq!(provision(&site, "few", 5), (2, "lab/few is full: 2 of 2".into()));
    assert_eq!(provision(&site, "far", 5), (1, "cloud lab is full: 3 of 3".into()));
    // They come up beside each other, not one after another.
    board.until(&site, "all three boot", |board| board.in_state("Booting") == 3);
    board.until(&site, "all three are ready", |board| board.in_state("Ready") == 3);
    assert_eq!(provision(&site, "more", 1), (0, "cloud lab is full: 3 of 3".into()));

    sim.order("node-down pve2");
    assert!(site.cli(&["resync"]).status.success());
    board.until(&site, "the node is missed", |board| {
        board.agents.values().any(|agent| agent["detail"].to_string().contains("pve2 is offline"))
    });
    let lease = ask(&site, "more", "replacement");
    let agent = ready(&site, &lease)["agent"].clone();
    assert_eq!(agents(&site, "more")[0]["id"], agent);
    assert_eq!(provision(&site, "more", 1).0, 0, "one slot was given back");
}

// Invariant: a template's permit is free when its guest is gone, and not before.

#[test]
fn a_permit_comes_back_once_the_guest_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let sim = slow(dir.path(), "destroy: {low: 0.4, high: 0.4}\n", &[]);
    let site = Site::new(&sim);
    site.write_yaml(&yaml(&site, &sim, &[], &[("one", "instanceCap: 1, singleUse: true")]));
    let _service = Service::start(&site);
    let first = ask(&site, "one", "first");
    let before = ready(&site, &first)["agent"].clone();
    let second = ask(&site, "one", "second");
    let mut board = Board::open(&site);
    release(&site, &first);
    let is_other = |event: &Value| {
        event["kind"] == "agent"
            && event["agent"]["id"] != before
            && event["agent"]["id"].is_string()
    };
    let mut gone = false;
    loop {
        let event = board.next(&site);
        if event["kind"] == "agentGone" {
            assert_eq!(event["agent"]["id"], before);
            gone = true;
        } else if is_other(&event) {
            break;
        }
    }
    assert!(gone, "another one was started before the first was gone");
    assert_ne!(ready(&site, &second)["agent"], before);
    assert_eq!(sim.guests().len(), 1);
}

// Invariant: clones of one template do not crowd its storage: those over the limit wait their turn.

#[test]
fn clones_of_one_template_take_their_turns_on_its_storage() {
    let dir = tempfile::tempdir().unwrap();
    let sim = slow(dir.path(), "cloneLinked: {low: 0.3, high: 0.3}\n", &[]);
    let site = Site::new(&sim);
    site.write_yaml(&yaml(&site, &sim, &["clonesPerStorage: 1"], &[("linux", "")]));
    let _service = Service::start(&site);
    let mut board = Board::open(&site);
    assert_eq!(provision(&site, "linux", 4).0, 4);
    let mut most = 0;
    while board.in_state("Ready") < 4 {
        board.next(&site);
        most = most.max(board.in_state("Cloning"));
    }
    assert_eq!(most, 1, "clones at once");
    let vmids: Vec<u64> =
        agents(&site, "linux").iter().map(|a| a["vmid"].as_u64().unwrap()).collect();
    let mut sorted = vmids.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [10000, 10001, 10002, 10003], "the lowest free at or above startVmId");
}

// Invariant: the mapping of the highest priority decides, and its templates serve in their order past
// those that are tripped or full; a breaker opens after its failures and stays so over a restart.

#[test]
fn a_label_goes_to_the_first_template_that_is_neither_tripped_nor_full() {
    let (_dir, sim, site) = world();
    let templates = [
        ("broken", "readyCommand: \"exit 1\", breakerThreshold: 3, breakerCooldownSec: 600"),
        ("narrow", "instanceCap: 1"),
        ("good", ""),
        ("low", ""),
    ];
    let mappings = "labelMappings:\n  \
                    low: {labels: ci, priority: 1, templates: [low]}\n  \
                    high: {labels: \"ci linux\", priority: 5, templates: [broken, narrow, good]}\n";
    site.write_yaml(&format!("{}{mappings}", yaml(&site, &sim, &[], &templates)));
    let mut service = Service::start(&site);
    let mut board = Board::open(&site);
    let lease = || {
        let body = json!({"labels": ["ci"], "owner": "wire", "ttlSeconds": 3600});
        let (status, lease) = call(&site, "POST", "/v1/leases", Some(&body));
        assert_eq!(status, 201, "{lease}");
        ready(&site, lease["id"].as_str().unwrap())["agent"].clone()
    };
    let served = [lease(), lease(), lease()];
    let of =
        |name: &str| agents(&site, name).into_iter().map(|a| a["id"].clone()).collect::<Vec<_>>();
    assert_eq!(of("narrow"), [served[0].clone()]);
    let mut good = of("good");
    good.sort_by_key(ToString::to_string);
    let mut wanted = vec![served[1].clone(), served[2].clone()];
    wanted.sort_by_key(ToString::to_string);
    assert_eq!(good, wanted);
    assert!(of("low").is_empty() && of("broken").is_empty());
    board.look(&site);
    let gone = site.json(&["agents", "--gone"])["gone"].clone();
    let failed = gone.as_array().unwrap().iter().filter(|one| one["template"] == "lab/broken");
    assert_eq!(failed.count(), 3, "as many as the threshold says");

    let breaker = || {
        let all = site.json(&["templates"])["templates"].clone();
        let of =
            all.as_array().unwrap().iter().find(|one| one["id"] == "lab/broken").unwrap().clone();
        assert_eq!(of["breaker"], "tripped", "{of}");
        assert!(of["cause"].to_string().contains("readyCommand"), "{of}");
        of["retryAt"].as_str().unwrap_or_else(|| panic!("{of}")).to_owned()
    };
    let until = breaker();
    service.child.signal("KILL");
    service.child.wait();
    let _again = Service::start(&site);
    assert_eq!(breaker(), until, "the cool-down goes on over a restart");
    lease();
    assert_eq!(of("good").len(), 3);
    assert!(of("broken").is_empty());
}

// Invariant: after its cool-down a template is tried again, with one agent.

#[test]
fn a_tripped_template_is_tried_again_after_its_cool_down() {
    let (_dir, sim, site) = world();
    let keys = |ready: &str| {
        format!("readyCommand: \"{ready}\", breakerThreshold: 1, breakerCooldownSec: 1")
    };
    site.write_yaml(&yaml(&site, &sim, &[], &[("linux", &keys("exit 1"))]));
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let lease = ask(&site, "linux", "wire");
    for state in ["tripped", "probing", "tripped"] {
        events.until("template", |fact| fact["template"]["breaker"] == state);
    }
    site.write_yaml(&yaml(&site, &sim, &[], &[("linux", &keys("true"))]));
    ready(&site, &lease);
    let all = site.json(&["templates"])["templates"].clone();
    assert_eq!(all[0]["breaker"], "flowing", "{all}");
}
