//! Guests that cannot be cloned, reached, prepared or destroyed.

use crate::api::{ask, ready, release};
use crate::harness::Events;

use super::stage::Stage;

/// One failure opens the breaker, for longer than a case lasts.
const AT_ONCE: &str = "    breakerThreshold: 1\n    breakerCooldownSec: 3600\n    \
                       breakerCooldownCapSec: 3600\n";

/// A stage whose template has more keys, and on which a lease waits.
fn waits(template: &str, change: impl Fn(String) -> String) -> Stage {
    let mut stage = Stage::new(&[]);
    stage.configure(&format!("{AT_ONCE}{template}"), change);
    stage.start();
    ask(&stage.site, "linux", "ci");
    stage
}

fn fails_to_clone(error: &str) -> Stage {
    let mut stage = Stage::new(&[]);
    stage.configure(AT_ONCE, |yaml| yaml);
    stage.faults(&format!("tasks: [{{kind: qmclone, error: \"{error}\"}}]\n"));
    stage.start();
    ask(&stage.site, "linux", "ci");
    stage
}

// Invariant: an answer names its cause once, one a line, with the command that helps, promises nothing
// that does not come, and the journal alone says the same.

#[test]
fn the_template_is_missing() {
    let stage = waits("", |yaml| yaml.replace("templateVmId: 9000", "templateVmId: 9100"));
    let text = stage.until(&["why", "leases"], "9100");
    stage.ends("missing_vmid", &text, &[&["lab/linux", "9100"]]);
}

#[test]
fn the_ready_command_fails() {
    let command = "    readyCommand: \"echo the image has no docker >&2; exit 3\"\n";
    let stage = waits(command, |yaml| yaml);
    let text = stage.until(&["why", "leases"], "breaker");
    stage.ends("ready_command", &text, &[&["reason=", "no docker"]]);
}

// The text of Proxmox VE 8.4 where a storage stays locked: book: proxmox, section 6.
#[test]
fn the_storage_is_locked() {
    let lock = "can't lock file '/var/lock/pve-manager/pve-storage-local-lvm' - got timeout";
    let stage = fails_to_clone(lock);
    let text = stage.until(&["why", "leases"], "got timeout");
    stage.ends("storage_lock", &text, &[&["pve-storage-local-lvm", "got timeout"]]);
}

#[test]
fn the_storage_has_no_space() {
    let full =
        "lvcreate 'pve/vm-10000-disk-0' error:   Insufficient free space: 2560 extents needed";
    let stage = fails_to_clone(full);
    let text = stage.until(&["why", "leases"], "Insufficient free space");
    stage.ends("no_space", &text, &[&["Insufficient free space"]]);
}

#[test]
fn the_guest_networks_are_wrong() {
    let stage =
        waits("    startupWaitSeconds: 3\n", |yaml| yaml.replace("127.77.0.0/16", "10.0.0.0/8"));
    let text = stage.until(&["why", "leases"], "breaker");
    stage.ends("wrong_guest_networks", &text, &[&["reason=", "10.0.0.0/8"]]);
}

#[test]
fn the_ssh_port_is_wrong() {
    let stage =
        waits("    startupWaitSeconds: 3\n", |yaml| yaml.replace("sshPort: 2222", "sshPort: 2299"));
    let text = stage.until(&["why", "leases"], "breaker");
    stage.ends("wrong_ssh_port", &text, &[&["reason=", "2299"]]);
}

#[test]
fn the_only_address_of_a_pool_is_dead() {
    let stage = waits("    startupWaitSeconds: 3\n", |yaml| {
        let pool = "addressPools:\n  lab: {ranges: [127.76.0.2-127.76.0.2], prefix: 29}\n";
        let dead = yaml.replace("ipConfig: \"ip=dhcp\"", "addressPool: lab");
        dead.replace("sshPort: 2222", "sshPort: 2299") + pool
    });
    let text = stage.until(&["why", "leases"], "breaker");
    stage.ends("pool_of_a_dead_address", &text, &[&["reason=", "127.76.0.2"]]);
}

#[test]
fn a_backup_locks_the_guest_that_goes() {
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
    stage.ends("backup_lock", &text, &[&["agent=", "locked", "backup"]]);
}
