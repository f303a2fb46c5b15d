//! Caps, memory and selectors that leave no place.

use crate::api::{ask, ready};

use super::stage::{Stage, Staged};

/// A lease that waits on a stage, until the answer has this part.
fn waits(mut stage: Stage, part: &str) -> Staged {
    stage.start();
    ask(&stage.site, "linux", "ci");
    let text = stage.until(&["why", "leases"], part);
    stage.answers(text)
}

pub fn memory_above_any_node() -> Staged {
    let stage = Stage::new(&[]);
    stage.configure("    memoryMb: 70000\n", |yaml| yaml);
    waits(stage, "when: once")
}

pub fn label_nobody_has() -> Staged {
    let stage = Stage::new(&[]);
    stage.configure("    nodeSelector: [gpu]\n", |yaml| {
        yaml.replace("node: pve1", "nodes: [pve1, pve2]")
            .replace("templateVmId: 9000", "templateName: debian-12")
            .replace("startVmId: 10000", "startVmId: 10000\n    nodeLabels: {pve3: [gpu]}")
    });
    let Staged { stage, answer } = waits(stage, "when: once");
    let text = answer + &stage.said(&["lease", "--labels", "arm64"]);
    stage.answers(text)
}

pub fn cap_eaten_by_a_minimum() -> Staged {
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
    stage.answers(text)
}

pub fn template_full() -> Staged {
    let mut stage = Stage::new(&[]);
    stage.configure("", |yaml| yaml.replace("instanceCap: 4", "instanceCap: 1"));
    stage.start();
    let lease = ask(&stage.site, "linux", "ci");
    ready(&stage.site, &lease);
    ask(&stage.site, "linux", "ci");
    let text = stage.until(&["why", "leases"], "1 of 1");
    stage.answers(text)
}

// Invariant: an answer names its cause once, one a line, with the command that helps, promises nothing
// that does not come, and the journal alone says the same.

#[test]
fn no_node_has_the_memory() {
    memory_above_any_node().ends("memory_above_any_node", &[&["lab/linux", "70000", "memoryMb"]]);
}

#[test]
fn no_node_has_the_label() {
    label_nobody_has().ends("label_nobody_has", &[&["lab/linux", "gpu"]]);
}

#[test]
fn the_cap_is_eaten_by_the_minimum_of_another_template() {
    cap_eaten_by_a_minimum()
        .ends("cap_eaten_by_a_minimum", &[&["template `linux`", "cloud lab", "1 of 1"]]);
}

#[test]
fn the_template_is_full() {
    let stage = template_full().ends("template_full", &[&["lab/linux", "1 of 1"]]);
    // The page ends the lease that has the agent, and the next one gets a new one.
    let seat = stage.seat.sits_at(&stage);
    seat.clicks("#waits td a");
    seat.leads_to("/leases?q=state:waiting");
    seat.clicks("header.top a[href='/leases']");
    seat.clicks("#leases tr:nth-child(2) a");
    seat.clicks("main [data-do^='DELETE']");
    seat.clicks("#ask button[value=yes]");
    seat.shows("h1", "ended");
    seat.clicks("header.top a[href='/leases']");
    seat.shows("#leases tr:first-child", "ready");
}
