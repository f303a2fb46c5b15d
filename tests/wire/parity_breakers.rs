//! What is left alone after it failed, as operators see it, and what stands in meanwhile.

use crate::api::{ask, call, ready};
use crate::harness::{Events, Service, Site, world};
use crate::parity::{agents, yaml};

/// Replaces what differs from run to run: moments, whose length varies, and the cluster's name.
fn golden(name: &str, text: &str, site: &Site) {
    let cluster = site.json(&["status"])["clouds"][0]["cluster"].as_str().unwrap().to_owned();
    let mut shown = String::new();
    for line in text.replace(&cluster, "CLUSTER").lines() {
        let indent = &line[..line.len() - line.trim_start().len()];
        let words = line.split_whitespace().map(|word| {
            let bare = word.trim_matches(['"', ',']);
            let stamp = bare.ends_with('Z') && bare.as_bytes().get(10) == Some(&b'T');
            if stamp { word.replace(bare, "MOMENT") } else { word.to_owned() }
        });
        shown += &format!("{indent}{}\n", words.collect::<Vec<_>>().join(" "));
    }
    insta::with_settings!({snapshot_path => "../golden/wire", prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!(name, shown);
    });
}

fn said(site: &Site, args: &[&str]) -> String {
    String::from_utf8_lossy(&site.cli(args).stdout).into_owned()
}

// Invariant: a node or storage that fails is left alone, reported as such everywhere, and another one used.

#[test]
fn places_that_fail_are_left_alone_and_reported_and_others_are_used() {
    let (dir, sim, site) = world();
    let faults = dir.path().join("faults.yaml");
    let text = "tasks: [{kind: qmclone, node: pve1, times: 1, error: \"storage 'shared' is not online\"}]\n\
                calls: [{method: POST, node: pve2, status: 595, message: No route to host}]\n";
    std::fs::write(&faults, text).unwrap();
    let breaks = "breakerThreshold: 1, breakerCooldownSec: 600";
    let storages = format!("cloneStrategy: FULL, targetStorages: [shared, local-lvm], {breaks}");
    let broken = format!("readyCommand: \"echo no licence; exit 3\", node: pve3, {breaks}");
    let text = yaml(&site, &sim, &[], &[("storages", &storages), ("broken", &broken)]);
    // One key of where it comes from is all a template may have.
    let text = text.replace("node: pve1, templateVmId: 9000, ", "");
    let text = text.replace("  storages: {", "  storages: {node: pve1, templateVmId: 9000, ");
    let text = text.replace("  broken: {", "  broken: {templateVmId: 9002, ");
    let nodes = "templateName: debian-12, nodes: [pve2, pve3]";
    site.write_yaml(&format!("{text}  nodes: {{{nodes}, {breaks}}}\n"));
    let _service = Service::start(&site);
    sim.order(&format!("faults {}", faults.display()));
    let mut events = Events::follow(&site);

    let lease = ask(&site, "storages", "wire");
    events.until("breaker", |fact| {
        let id = fact["breaker"]["id"].as_str().unwrap();
        fact["breaker"]["state"] == "tripped" && id.ends_with("/shared")
    });
    ready(&site, &lease);
    let vmid = agents(&site, "storages")[0]["vmid"].as_u64().unwrap();
    let disk = sim.config("pve1", vmid)["scsi0"].to_string();
    assert!(disk.contains("local-lvm:"), "{disk}");
    let lease = ask(&site, "nodes", "wire");
    let agent = ready(&site, &lease)["agent"].clone();
    let one = agents(&site, "nodes").into_iter().find(|one| one["id"] == agent).unwrap();
    assert_eq!(one["node"], "pve3");
    assert!(site.cli(&["provision", "broken"]).status.success());
    events.until("template", |fact| {
        fact["template"]["id"] == "lab/broken" && fact["template"]["breaker"] == "tripped"
    });
    golden("breakers", &said(&site, &["breakers"]), &site);
    let status = said(&site, &["status"]);
    let (_, places) = status.split_once("\nBREAKERS\n").unwrap_or_else(|| panic!("{status}"));
    golden("breakers_status", places.split("\n\n").next().unwrap(), &site);
    let (code, shown) = call(&site, "GET", "/v1/breakers", None);
    assert_eq!(code, 200);
    golden("breakers_json", &serde_json::to_string_pretty(&shown).unwrap(), &site);

    // An operator who repaired it need not wait.
    let out = site.cli(&["breakers", "reset", "storage:shared"]);
    assert!(out.status.success(), "{out:?}");
    let after = said(&site, &["breakers"]);
    assert!(!after.contains("shared") && after.contains("/pve2"), "{after}");
}

// Invariant: who stands in serves while a template is tripped, and one that is changed is tried at once.

#[test]
fn another_template_stands_in_for_a_tripped_one_until_that_is_changed() {
    let (_dir, sim, site) = world();
    let text = |ready: &str| {
        let first = format!(
            "fallbackTemplates: [second], readyCommand: \"{ready}\", breakerThreshold: 1, \
             breakerCooldownSec: 1800"
        );
        yaml(&site, &sim, &[], &[("first", &first), ("second", "")])
    };
    site.write_yaml(&text("exit 1"));
    let _service = Service::start(&site);
    let agent = ready(&site, &ask(&site, "first", "wire"))["agent"].clone();
    assert_eq!(agents(&site, "second")[0]["id"], agent);
    assert!(agents(&site, "first").is_empty());
    // Its breaker judged what failed; this is something else.
    site.write_yaml(&text("true"));
    assert!(site.cli(&["reload"]).status.success());
    let agent = ready(&site, &ask(&site, "first", "wire"))["agent"].clone();
    assert_eq!(agents(&site, "first")[0]["id"], agent);
    assert_eq!(said(&site, &["breakers"]), "all closed\n");
}
