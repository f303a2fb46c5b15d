//! Nodes as operators see and drain them, over real sockets.

use std::path::Path;

use serde_json::json;

use crate::api::{ask, call, ready, release};
use crate::harness::{Events, Service, drover, world};

// Invariant: what operators see of nodes is what decides, and a drain outlives the service.

#[test]
fn a_drained_node_is_reported_everywhere_takes_nothing_and_is_used_again_when_reported() {
    let (_dir, sim, site) = world();
    let text = site.yaml(&sim, "");
    let anywhere = text.replace("node: pve1", "nodes: [pve1, pve2]");
    let text = anywhere.replace("templateVmId: 9000", "templateName: debian-12");
    site.write_yaml(&text.replace("startVmId: 10000", "startVmId: 10000\n    zone: dc2"));
    let mut service = Service::start(&site);
    let said = |args: &[&str]| {
        let out = site.cli(args);
        assert!(out.status.success(), "{out:?}");
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let body = json!({"labels": ["linux", "zone:dc2"], "owner": "wire", "ttlSeconds": 3600});
    let (status, asked) = call(&site, "POST", "/v1/leases", Some(&body));
    assert_eq!(status, 201, "{asked}");
    let lease = asked["id"].as_str().unwrap().to_owned();
    let agent = ready(&site, &lease)["agent"].clone();
    let (_, shown) = call(&site, "GET", &format!("/v1/agents/{}", agent.as_str().unwrap()), None);
    assert_eq!(shown["node"], "pve1");
    let out = site.cli(&["node", "drain", "pve9"]);
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && err.contains("known are pve1, pve2, pve3"), "{err}");
    assert_eq!(
        said(&["node", "drain", "pve1"]),
        "node pve1 is drained: nothing is started there; 1 agent on it, idle ones go\n"
    );
    service.child.signal("KILL");
    service.child.wait();

    let _service = Service::start(&site);
    let (code, nodes) = call(&site, "GET", "/v1/nodes", None);
    assert_eq!(code, 200, "{nodes}");
    assert_eq!(
        (&nodes["nodes"][0]["state"], &nodes["nodes"][0]["agents"]),
        (&json!("drained"), &json!(1))
    );
    assert_eq!(nodes["nodes"][0]["room"]["reservedMb"], 2048);
    let shown = said(&["nodes"]);
    let row =
        shown.lines().find(|line| line.starts_with("pve1")).unwrap_or_else(|| panic!("{shown}"));
    assert!(row.contains("drained") && row.contains("65536 MiB"), "{row}");
    let reported = said(&["why", "linux"]);
    assert!(reported.contains("pve1: it is drained: `drover uncordon pve1`"), "{reported}");
    assert!(
        reported.contains("pve2: can take one") && reported.contains("next on node pve2"),
        "{reported}"
    );
    let mut events = Events::follow(&site);
    release(&site, &lease);
    let gone = events.until("agentGone", |fact| fact["agent"]["id"] == agent);
    assert_eq!(gone["agent"]["reason"], "node-drained");
    let lease = ask(&site, "linux", "wire");
    let agent = ready(&site, &lease)["agent"].as_str().unwrap().to_owned();
    let (_, shown) = call(&site, "GET", &format!("/v1/agents/{agent}"), None);
    assert_eq!(shown["node"], "pve2");
    let args = ["node", "drain", "pve1", "--undrain", "--cloud", "lab"];
    assert_eq!(said(&args), "node pve1 is used again\n");
    assert!(said(&["why"]).contains("pve1: can take one"));
}

#[test]
fn a_cordoned_node_keeps_its_idle_agent_through_a_crash_and_is_reported_as_cordoned() {
    let (_dir, _sim, site) = world();
    let mut service = Service::start(&site);
    let said = |args: &[&str]| {
        let out = site.cli(args);
        assert!(out.status.success(), "{out:?}");
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let lease = ask(&site, "linux", "wire");
    let agent = ready(&site, &lease)["agent"].as_str().unwrap().to_owned();
    assert_eq!(
        said(&["cordon", "pve1"]),
        "node pve1 is cordoned: nothing is started there, nothing goes; 1 agent on it\n"
    );
    service.child.signal("KILL");
    service.child.wait();

    let _service = Service::start(&site);
    let (code, nodes) = call(&site, "GET", "/v1/nodes", None);
    assert_eq!((code, &nodes["nodes"][0]["state"]), (200, &json!("cordoned")), "{nodes}");
    let reported = said(&["why", "linux"]);
    let why = "pve1: it is cordoned by an operator: `drover uncordon pve1` lets it be used again";
    assert!(reported.contains(why), "{reported}");
    assert!(said(&["show", "node", "pve1"]).contains("drover uncordon pve1"));
    // A start of an id stands for the agent, and for the lease.
    let stands = said(&["why", &agent[..8]]);
    assert!(stands.contains(&format!("agent {agent}")), "{stands}");
    let stands = said(&["why", &lease["lease-".len()..][..8]]);
    assert!(stands.contains(&format!("lease {lease}")), "{stands}");

    // Shells ask for the same ids and names.
    let socket = site.dir.path().join("drover.sock");
    let candidates_of = |socket: &Path, words: &[&str]| {
        let mut command = drover();
        command.args(["__candidates", "drover", "--socket"]).arg(socket).args(words);
        let out = command.output().unwrap();
        assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
        let text = String::from_utf8(out.stdout).unwrap();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let candidates = |words: &[&str]| candidates_of(&socket, words);
    let all: Vec<Vec<String>> = [
        &["retire"][..],
        &["lease", "release"],
        &["drain"],
        &["lease", "--template"],
        &["cordon", "pve1", "--cloud"],
        &["reload"],
    ]
    .map(candidates)
    .to_vec();
    let expected: [&[&str]; 6] =
        [&[&agent], &[&lease], &["pve1", "pve2", "pve3"], &["linux"], &["lab"], &[]];
    assert_eq!(all, expected);
    let nowhere = candidates_of(Path::new("/nowhere/drover.sock"), &["retire"]);
    assert!(nowhere.is_empty(), "{nowhere:?}");

    // A drain takes the place of the cordon, and empties the node.
    said(&["drain", "pve1"]);
    let mut events = Events::follow(&site);
    release(&site, &lease);
    let gone = events.until("agentGone", |fact| fact["agent"]["id"] == agent.as_str());
    assert_eq!(gone["agent"]["reason"], "node-drained");
    assert_eq!(said(&["uncordon", "pve1"]), "node pve1 is used again\n");
    // Who ordered what is an event too, also where an earlier start took the order.
    let printed = said(&["events", "--no-follow"]);
    let orders = printed
        .lines()
        .filter(|line| line.ends_with("node pve1") || line.ends_with("be used again"));
    let orders: Vec<&str> =
        orders.filter_map(|line| line.split_once("Z  ")).map(|(_, order)| order).collect();
    let expected = ["cordoned node pve1", "drained node pve1", "let node pve1 be used again"];
    assert_eq!(orders, expected.map(|order| format!("uid:0 {order}")));
}
