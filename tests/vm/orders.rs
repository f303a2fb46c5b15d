//! Orders of a lease's holder, carried out on a real machine.

use serde_json::{Value, json};

use crate::api::release;
use crate::harness::{Service, Site};
use crate::world::{Machines, leased, reap, until};

const BOOT: &str = "cat /proc/sys/kernel/random/boot_id";
const GIB: u64 = 1 << 30;

/// Gives an order by the command line and waits for its end, which must be good.
fn order(site: &Site, words: &[&str]) -> Value {
    let words: Vec<&str> = ["--json", "machine"].iter().chain(words).copied().collect();
    let out = site.cli(&words);
    let said: Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
    let error = String::from_utf8_lossy(&out.stderr);
    assert_eq!(said["state"], json!("done"), "{words:?}: {said} {error}");
    said
}

// Invariant: an order does to the real machine what it says, and the lease goes on.

#[test]
fn a_holder_takes_a_snapshot_goes_back_to_it_and_gives_the_machine_other_sizes() {
    let (machines, site) = Machines::with_site("tiny");
    site.write_yaml(&machines.yaml(&site, "    diskSizeGb: 1\n    cores: 1\n"));
    let _service = Service::start(&site);
    let lease = leased(&site, "ann");
    let lease = lease["id"].as_str().unwrap();
    let vmid = machines.sim.guests()[0];
    let says = |command: &str| machines.says(vmid, command);

    let first = says(BOOT);
    says("echo one > /kept; echo run > /run/kept; sync");
    order(&site, &["snapshot", "create", lease, "mine", "--ram"]);
    says("echo two > /kept; rm /run/kept; sync");
    order(&site, &["snapshot", "revert", lease, "mine"]);
    assert_eq!(says("cat /kept /run/kept"), "one\nrun");
    assert_eq!(says(BOOT), first, "it goes on where it was");
    order(&site, &["snapshot", "delete", lease, "mine"]);

    let grown = order(&site, &["resize", lease, "--disk", "2g"]);
    assert_eq!(grown["detail"], "2 GiB of disk: applied");
    let size = || says("cat /sys/block/sda/size").parse::<u64>().unwrap() * 512;
    until("the larger disk", || (size() == 2 * GIB).then_some(()));

    let pending = order(&site, &["resize", lease, "--cores", "2"]);
    assert_eq!(pending["detail"], "2 cores: pending until the machine restarts, 1 until then");
    assert_eq!(says("nproc"), "1");
    order(&site, &["reboot", lease]);
    assert_eq!(says("nproc"), "2");
    assert_ne!(says(BOOT), first);

    order(&site, &["suspend", lease]);
    assert_eq!(machines.status(vmid), "paused");
    order(&site, &["resume", lease]);
    order(&site, &["shutdown", lease]);
    assert_eq!(machines.status(vmid), "stopped");
    order(&site, &["start", lease]);
    assert_eq!(says("cat /kept"), "one");
    release(&site, lease);
    reap(&site);
    machines.until_nothing_is_left();
}
