//! The power verbs, snapshots and disks of a machine, as any client of the API uses them.

use crate::world::{Machines, until};

const VMID: u64 = 500;
const BOOT: &str = "cat /proc/sys/kernel/random/boot_id";

/// A linked clone of the template that has booted.
fn clone() -> Machines {
    let machines = Machines::of("tiny");
    let template = machines.sim.facts["templateVmId"].as_u64().unwrap();
    machines.task("POST", template, "/clone", &[("newid", "500"), ("name", "one"), ("full", "0")]);
    machines.task("POST", VMID, "/status/start", &[]);
    machines
}

fn power(machines: &Machines, verb: &str, params: &[(&str, &str)]) {
    machines.task("POST", VMID, &format!("/status/{verb}"), params);
}

fn stopped(machines: &Machines) {
    until("the machine's end", || (machines.status(VMID) == "stopped").then_some(()));
}

// Invariant: each verb does to the machine what its name says.

#[test]
fn a_machine_is_paused_reset_hibernated_and_shut_down() {
    let machines = clone();
    let first = machines.says(VMID, BOOT);
    power(&machines, "suspend", &[]);
    assert_eq!(machines.status(VMID), "paused");
    assert_eq!(machines.try_says(VMID, "true"), None);
    power(&machines, "resume", &[]);
    assert_eq!(machines.says(VMID, BOOT), first, "paused, not started again");

    power(&machines, "suspend", &[("todisk", "1")]);
    stopped(&machines);
    power(&machines, "start", &[]);
    assert_eq!(machines.says(VMID, BOOT), first, "it goes on from its saved memory");

    power(&machines, "reset", &[]);
    let second =
        until("another boot", || machines.try_says(VMID, BOOT).filter(|boot| *boot != first));
    power(&machines, "reboot", &[]);
    until("a third boot", || machines.try_says(VMID, BOOT).filter(|boot| *boot != second));
    power(&machines, "shutdown", &[]);
    stopped(&machines);
    machines.task("DELETE", VMID, "", &[]);
    machines.until_nothing_is_left();
}

// Invariant: a snapshot has the disks, and the memory if wanted; a rollback brings both back.

#[test]
fn snapshots_bring_back_disks_and_memory_and_full_clones_are_on_their_own() {
    let machines = clone();
    let first = machines.says(VMID, BOOT);
    let kept =
        |machines: &Machines, vmid| machines.says(vmid, "cat /kept /run/kept 2>/dev/null; true");
    machines.says(VMID, "echo one > /kept; echo run > /run/kept; sync");
    machines.task("POST", VMID, "/snapshot", &[("snapname", "memory"), ("vmstate", "1")]);
    machines.task("POST", VMID, "/snapshot", &[("snapname", "disk")]);
    machines.says(VMID, "echo two > /kept; rm /run/kept; sync");

    // A copy of what runs.
    machines.task("POST", VMID, "/clone", &[("newid", "501"), ("full", "1")]);
    machines.task("POST", VMID, "/snapshot/memory/rollback", &[]);
    assert_eq!(machines.says(VMID, BOOT), first, "it goes on, and does not boot");
    assert_eq!(kept(&machines, VMID), "one\nrun");

    machines.says(VMID, "echo three > /kept; sync");
    machines.task("POST", VMID, "/snapshot/disk/rollback", &[("start", "1")]);
    assert_eq!(kept(&machines, VMID), "one", "another boot, with the disk of then");
    machines.task("DELETE", VMID, "/snapshot/memory", &[]);
    power(&machines, "stop", &[]);
    stopped(&machines);
    machines.task("DELETE", VMID, "/snapshot/disk", &[]);
    machines.task("DELETE", VMID, "", &[]);

    machines.task("POST", 501, "/status/start", &[]);
    assert_eq!(kept(&machines, 501), "two");
    machines.task("POST", 501, "/status/stop", &[]);
    machines.task("DELETE", 501, "", &[]);
    machines.until_nothing_is_left();
}
