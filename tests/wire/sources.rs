//! What agents are cloned from, over real sockets: by name on several nodes, by pattern and tag, and
//! templates copied by the command line.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::harness::{Events, Service, Sim, Site, world};

/// The site's YAML with other keys in the place of its template's node and VMID.
fn sought(site: &Site, sim: &Sim, keys: &str) -> String {
    let text = site.yaml(sim, "");
    let lines = text
        .lines()
        .filter(|line| !line.starts_with("    node: ") && !line.starts_with("    templateVmId: "));
    let kept: String = lines.map(|line| format!("{line}\n")).collect();
    format!("{kept}{keys}")
}

/// Nodes and template of agents that are ready.
fn started(site: &Site, count: usize) -> (BTreeSet<String>, Value) {
    let mut events = Events::follow(site);
    let out = site.cli(&["provision", "linux", "--count", &count.to_string()]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    events.until("template", |fact| fact["template"]["states"]["Ready"] == count);
    let agents = site.json(&["agents"])["agents"].clone();
    let nodes = agents.as_array().unwrap().iter();
    let nodes = nodes.map(|agent| agent["node"].as_str().unwrap().to_owned()).collect();
    (nodes, site.json(&["templates"])["templates"][0].clone())
}

fn tagged(sim: &Sim, node: &str, vmid: u64) {
    let path = format!("/nodes/{node}/qemu/{vmid}/config");
    sim.admin("PUT", &path, &[("tags", "golden")]);
}

// Invariant: agents are cloned from what the YAML describes, wherever that is.

#[test]
fn by_name_each_of_three_nodes_gets_an_agent_of_its_own_template() {
    let (_dir, sim, site) = world();
    let keys = "    templateName: debian-12\n    nodes: [pve1, pve2, pve3]\n";
    site.write_yaml(&sought(&site, &sim, keys));
    let _service = Service::start(&site);
    let (nodes, _) = started(&site, 3);
    assert_eq!(nodes.into_iter().collect::<Vec<_>>(), ["pve1", "pve2", "pve3"]);
}

#[test]
fn by_tag_the_newest_is_taken_and_reported() {
    let (_dir, sim, site) = world();
    tagged(&sim, "pve2", 9001);
    site.write_yaml(&sought(&site, &sim, "    templateTag: golden\n"));
    let _service = Service::start(&site);
    let (nodes, template) = started(&site, 1);
    assert_eq!(nodes.into_iter().collect::<Vec<_>>(), ["pve2"]);
    assert_eq!(template["source"], "VMID 9001 `debian-12` on node pve2");
}

#[test]
fn by_pattern_whole_names_are_matched_and_ties_are_reported() {
    let (_dir, sim, site) = world();
    site.write_yaml(&sought(&site, &sim, "    templateNamePattern: 'debian-\\d+'\n"));
    let _service = Service::start(&site);
    let (nodes, template) = started(&site, 1);
    assert_eq!(nodes.into_iter().collect::<Vec<_>>(), ["pve3"]);
    let source = template["source"].as_str().unwrap();
    assert!(source.starts_with("VMID 9002 `debian-12` on node pve3; the newest of 3"), "{source}");
    assert!(source.ends_with("9001, 9000 are as old: the highest VMID wins"), "{source}");
}

// Invariant: a copy is taken into force as any edit, and no line of the file is lost.

#[test]
fn a_copied_template_is_checked_written_and_served() {
    let (_dir, sim, site) = world();
    let before = format!("{}# The end.\n", site.yaml(&sim, ""));
    site.write_yaml(&before);
    let _service = Service::start(&site);
    let config = site.config().display().to_string();
    let copy = |new: &str, rest: &[&str]| {
        let head = ["--config", &config, "template", "copy", "linux", new];
        let out = site.cli(&[&head[..], rest].concat());
        (
            out.status.code(),
            String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned(),
        )
    };
    let (code, printed) = copy("big", &["--set", "labelString=big"]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.starts_with("agentConfigurations:\n  big:\n"), "{printed}");
    let (code, said) = copy("big", &["--set", "labelString=big", "--into", &config]);
    assert_eq!((code, said), (Some(0), format!("{config}: template big is a copy of linux\n")));
    let after = std::fs::read_to_string(site.config()).unwrap();
    let mut left = after.lines();
    assert!(before.lines().all(|line| left.any(|other| other == line)), "{after}");
    let (code, said) = copy("big", &["--into", &config]);
    assert_eq!((code, said.contains("`big` already exists")), (Some(2), true), "{said}");
    assert_eq!(std::fs::read_to_string(site.config()).unwrap(), after);
    site.json(&["reload"]);
    let out = site.cli(&["provision", "big"]);
    assert!(String::from_utf8_lossy(&out.stdout).starts_with("1 agent of lab/big started\n"));
    let flow = site.cli(&["breakers"]);
    assert_eq!(String::from_utf8_lossy(&flow.stdout), "all closed\n");
    let unknown = site.cli(&["breakers", "reset", "node:pve9"]);
    assert_eq!(unknown.status.code(), Some(1));
}
