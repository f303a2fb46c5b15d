//! Caps, memory and selectors that leave no place.

use crate::api::{ask, ready};

use super::stage::Stage;

// Invariant: an answer names its cause once, one a line, with the command that helps, promises nothing
// that does not come, and the journal alone says the same.

#[test]
fn no_node_has_the_memory() {
    let mut stage = Stage::new(&[]);
    stage.configure("    memoryMb: 70000\n", |yaml| yaml);
    stage.start();
    ask(&stage.site, "linux", "ci");
    let text = stage.until(&["why", "leases"], "when: once");
    stage.ends("memory_above_any_node", &text, &[&["lab/linux", "70000", "memoryMb"]]);
}

#[test]
fn no_node_has_the_label() {
    let mut stage = Stage::new(&[]);
    stage.configure("    nodeSelector: [gpu]\n", |yaml| {
        yaml.replace("node: pve1", "nodes: [pve1, pve2]")
            .replace("templateVmId: 9000", "templateName: debian-12")
            .replace("startVmId: 10000", "startVmId: 10000\n    nodeLabels: {pve3: [gpu]}")
    });
    stage.start();
    ask(&stage.site, "linux", "ci");
    let text = stage.until(&["why", "leases"], "when: once");
    let text = text + &stage.said(&["lease", "--labels", "arm64"]);
    stage.ends("label_nobody_has", &text, &[&["lab/linux", "gpu"]]);
}

#[test]
fn the_cap_is_eaten_by_the_minimum_of_another_template() {
    let mut stage = Stage::new(&[]);
    stage.configure("", |yaml| {
        let (head, linux) = yaml.split_once("  linux:\n").unwrap();
        let other = linux
            .replace("name: linux", "name: other")
            .replace("\"linux x64\"", "other")
            .replace("instanceCap: 4", "instanceCap: 4\n    instanceMin: 1");
        let capped = head.replace("startVmId: 10000", "startVmId: 10000\n    instanceCap: 1");
        format!("{capped}  linux:\n{linux}  other:\n{other}")
    });
    stage.start();
    stage.until(&["agents"], "Ready");
    ask(&stage.site, "linux", "ci");
    let text = stage.until(&["why", "leases"], "1 of 1");
    stage.ends("cap_eaten_by_a_minimum", &text, &[&["template `linux`", "cloud lab", "1 of 1"]]);
}

#[test]
fn the_template_is_full() {
    let mut stage = Stage::new(&[]);
    stage.configure("", |yaml| yaml.replace("instanceCap: 4", "instanceCap: 1"));
    stage.start();
    let lease = ask(&stage.site, "linux", "ci");
    ready(&stage.site, &lease);
    ask(&stage.site, "linux", "ci");
    let text = stage.until(&["why", "leases"], "1 of 1");
    stage.ends("template_full", &text, &[&["lab/linux", "1 of 1"]]);
}
