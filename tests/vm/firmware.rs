//! Machines with UEFI.

use crate::world::Machines;

const VMID: u64 = 500;
/// Whether the system was started by UEFI.
const STARTED_BY: &str = "[ -d /sys/firmware/efi ] && echo uefi || echo bios";

/// The hardware that drover gives to a new guest, on a clone of the template.
fn uefi(machines: &Machines, more: &[(&str, &str)]) {
    let template = machines.sim.facts["templateVmId"].as_u64().unwrap();
    machines.task("POST", template, "/clone", &[("newid", "500"), ("name", "one"), ("full", "0")]);
    // Code of 4 MiB that guards its variables takes more memory than the template has.
    let hardware = [("machine", "q35"), ("bios", "ovmf"), ("memory", "512")];
    machines.task("POST", VMID, "/config", &[&hardware[..], more].concat());
    machines.task("POST", VMID, "/status/start", &[]);
}

// Invariant: a machine starts by the firmware of its configuration, and an EFI disk is a disk of the
// machine: snapshots and clones have it.

#[test]
fn a_machine_with_an_efi_disk_starts_by_uefi_and_is_put_back_with_its_memory() {
    let machines = Machines::of("tiny");
    uefi(&machines, &[("efidisk0", "local-lvm:1,efitype=4m,pre-enrolled-keys=0")]);
    assert_eq!(machines.says(VMID, STARTED_BY), "uefi");
    machines.says(VMID, "echo one > /run/kept");
    machines.task("POST", VMID, "/snapshot", &[("snapname", "memory"), ("vmstate", "1")]);
    machines.says(VMID, "rm /run/kept");
    machines.task("POST", VMID, "/snapshot/memory/rollback", &[]);
    assert_eq!(machines.says(VMID, "cat /run/kept"), "one");
    machines.task("POST", VMID, "/status/stop", &[]);
    machines.task("POST", VMID, "/clone", &[("newid", "501"), ("full", "1")]);
    machines.task("DELETE", VMID, "", &[]);
    machines.task("POST", 501, "/status/start", &[]);
    assert_eq!(machines.says(501, STARTED_BY), "uefi");
    machines.task("POST", 501, "/status/stop", &[]);
    machines.task("DELETE", 501, "", &[]);
    machines.until_nothing_is_left();
}

#[test]
fn a_machine_without_an_efi_disk_starts_by_uefi_with_variables_of_one_start() {
    let machines = Machines::of("tiny");
    uefi(&machines, &[]);
    assert_eq!(machines.says(VMID, STARTED_BY), "uefi");
    assert!(!machines.sim.config(machines.sim.fact("node"), VMID).to_string().contains("efidisk"));
    machines.task("POST", VMID, "/status/stop", &[]);
    machines.task("DELETE", VMID, "", &[]);
    machines.until_nothing_is_left();
}
