//! Nodes as operators see and drain them, over real sockets.

use serde_json::json;

use crate::api::{ask, call, ready, release};
use crate::harness::{Events, Service, world};

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
