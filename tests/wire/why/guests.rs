//! Guests that cannot be cloned, reached, prepared or destroyed.

use crate::api::{ask, ready, release};
use crate::harness::Events;

use super::stage::{Stage, Staged};

/// One failure opens the breaker, for longer than a case lasts.
const AT_ONCE: &str = "    breakerThreshold: 1\n    breakerCooldownSec: 3600\n    \
                       breakerCooldownCapSec: 3600\n";

/// A stage whose template has more keys, and on which a lease waits, until the answer has this part.
fn waits(template: &str, change: impl Fn(String) -> String, part: &str) -> Staged {
    let mut stage = Stage::new(&[]);
    stage.configure(&format!("{AT_ONCE}{template}"), change);
    stage.start();
    ask(&stage.site, "linux", "ci");
    let text = stage.until(&["why", "leases"], part);
    stage.answers(text)
}

fn fails_to_clone(error: &str, part: &str) -> Staged {
    let mut stage = Stage::new(&[]);
    stage.configure(AT_ONCE, |yaml| yaml);
    stage.faults(&format!("tasks: [{{kind: qmclone, error: \"{error}\"}}]\n"));
    stage.start();
    ask(&stage.site, "linux", "ci");
    let text = stage.until(&["why", "leases"], part);
    stage.answers(text)
}

pub fn missing_vmid() -> Staged {
    waits("", |yaml| yaml.replace("templateVmId: 9000", "templateVmId: 9100"), "9100")
}

pub fn ready_command() -> Staged {
    let command = "    readyCommand: \"echo the image has no docker >&2; exit 3\"\n";
    waits(command, |yaml| yaml, "breaker")
}

// The text of Proxmox VE 8.4 where a storage stays locked: book: proxmox, section 6.
pub fn storage_lock() -> Staged {
    let lock = "can't lock file '/var/lock/pve-manager/pve-storage-local-lvm' - got timeout";
    fails_to_clone(lock, "got timeout")
}

pub fn no_space() -> Staged {
    let full =
        "lvcreate 'pve/vm-10000-disk-0' error:   Insufficient free space: 2560 extents needed";
    fails_to_clone(full, "Insufficient free space")
}

pub fn wrong_guest_networks() -> Staged {
    let change = |yaml: String| yaml.replace("127.77.0.0/16", "10.0.0.0/8");
    waits("    startupWaitSeconds: 3\n", change, "breaker")
}

pub fn wrong_ssh_port() -> Staged {
    let change = |yaml: String| yaml.replace("sshPort: 2222", "sshPort: 2299");
    waits("    startupWaitSeconds: 3\n", change, "breaker")
}

pub fn pool_of_a_dead_address() -> Staged {
    let change = |yaml: String| {
        let pool = "addressPools:\n  lab: {ranges: [127.76.0.2-127.76.0.2], prefix: 29}\n";
        let dead = yaml.replace("ipConfig: \"ip=dhcp\"", "addressPool: lab");
        dead.replace("sshPort: 2222", "sshPort: 2299") + pool
    };
    waits("    startupWaitSeconds: 3\n", change, "breaker")
}

pub fn backup_lock() -> Staged {
    let mut stage = Stage::new(&[]);
    stage.configure("    maxTotalUses: 1\n", |yaml| yaml);
    stage.start();
    let lease = ask(&stage.site, "linux", "ci");
    let agent = ready(&stage.site, &lease)["agent"].as_str().unwrap().to_owned();
    let mut events = Events::follow(&stage.site);
    stage.sim.order(&format!("lock {} backup", stage.sim.guests()[0]));
    release(&stage.site, &lease);
    events.until("agent", |fact| fact["agent"]["detail"].to_string().contains("backup"));
    let text = stage.said(&["why", &agent]);
    stage.answers(text)
}

// Invariant: an answer names its cause once, one a line, with the command that helps, promises nothing
// that does not come, and the journal alone says the same.

#[test]
fn the_template_is_missing() {
    missing_vmid().ends("missing_vmid", &[&["lab/linux", "9100"]]);
}

#[test]
fn the_ready_command_fails() {
    ready_command().ends("ready_command", &[&["reason=", "no docker"]]);
}

#[test]
fn the_storage_is_locked() {
    storage_lock().ends("storage_lock", &[&["pve-storage-local-lvm", "got timeout"]]);
}

#[test]
fn the_storage_has_no_space() {
    let stage = no_space().ends("no_space", &[&["Insufficient free space"]]);
    // There is space again, and the page has it tried at once.
    stage.faults("tasks: []\n");
    let seat = stage.seat.sits_at(&stage);
    seat.clicks("#waits button");
    seat.lacks("main", "What waits");
    seat.clicks("header.top a[href='/leases']");
    seat.shows("#leases", "ready");
}

#[test]
fn the_guest_networks_are_wrong() {
    wrong_guest_networks().ends("wrong_guest_networks", &[&["reason=", "10.0.0.0/8"]]);
}

#[test]
fn the_ssh_port_is_wrong() {
    wrong_ssh_port().ends("wrong_ssh_port", &[&["reason=", "2299"]]);
}

#[test]
fn the_only_address_of_a_pool_is_dead() {
    pool_of_a_dead_address().ends("pool_of_a_dead_address", &[&["reason=", "127.76.0.2"]]);
}

#[test]
fn a_backup_locks_the_guest_that_goes() {
    backup_lock().ends("backup_lock", &[&["agent=", "locked", "backup"]]);
}
