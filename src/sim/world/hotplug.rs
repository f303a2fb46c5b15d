//! Processors and memory of a running VM: what Proxmox plugs at once, what it refuses, and what waits for
//! the next start (qemu-server, QemuServer.pm, `vmconfig_hotplug_pending`, `qemu_cpu_hotplug`; Memory.pm,
//! `qemu_memory_hotplug`). No recorded answer shows it: the texts are those of the sources.
//!
//! - `cores` and `sockets` always wait. `vcpus` is plugged where `hotplug` has `cpu`, up to all cores that
//!   the VM started with.
//! - `memory` is plugged where `hotplug` has `memory`; such a VM starts only with `numa`, and with 1 GiB at
//!   least.
//! - A system that could take part is assumed wherever the VM runs.

use super::conf::{self, Config};

/// The least memory of a VM with memory hot-plug, in MiB.
const STATIC_MEMORY_MIB: u64 = 1024;

/// Whether the `hotplug` of a configuration has a feature; by default network, disk and usb are in it.
fn has(config: &Config, feature: &str) -> bool {
    match config.get("hotplug").map(|text| text.trim()) {
        None | Some("1") => matches!(feature, "network" | "disk" | "usb"),
        Some(list) => list.split([',', ';', ' ']).any(|one| one == feature),
    }
}

/// Whether a running VM takes this value at once; an error where Proxmox tries and fails.
pub(super) fn plugs(config: &Config, key: &str, value: &str) -> Result<bool, String> {
    let number = || value.strip_prefix("current=").unwrap_or(value).parse::<u64>().unwrap_or(0);
    match key {
        "vcpus" if has(config, "cpu") => {
            let cores = conf::number(config, "cores").unwrap_or(1);
            let all = cores * conf::number(config, "sockets").unwrap_or(1);
            if number() > all {
                return Err("you can't add more vcpus than maxcpus\n".into());
            }
            Ok(true)
        }
        "memory" if has(config, "memory") => {
            if number() < STATIC_MEMORY_MIB {
                return Err(format!("memory can't be lower than {STATIC_MEMORY_MIB} MB\n"));
            }
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Whether a running VM lets go of this key at once: without `vcpus` it has all its cores.
pub(super) fn forgets(config: &Config, key: &str) -> bool {
    key == "vcpus" && has(config, "cpu")
}

/// Refuses the start of a VM whose memory cannot be plugged.
pub(super) fn check_may_start(config: &Config) -> Result<(), String> {
    if !has(config, "memory") {
        return Ok(());
    }
    if !conf::flag(config, "numa") {
        return Err("NUMA needs to be enabled for memory hotplug\n".into());
    }
    if conf::memory_bytes(config) >> 20 < STATIC_MEMORY_MIB {
        return Err(format!("minimum memory must be {STATIC_MEMORY_MIB}MB\n"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(keys: &[(&str, &str)]) -> Config {
        keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    // Invariant: only what `hotplug` names changes in a running VM.

    #[test]
    fn processors_and_memory_are_plugged_where_hotplug_names_them() {
        let plain = config(&[("cores", "4")]);
        assert_eq!(plugs(&plain, "vcpus", "2"), Ok(false));
        assert_eq!(plugs(&plain, "memory", "2048"), Ok(false));
        let hot = config(&[("cores", "4"), ("sockets", "2"), ("hotplug", "cpu,memory")]);
        assert_eq!(plugs(&hot, "vcpus", "8"), Ok(true));
        assert!(plugs(&hot, "vcpus", "9").is_err(), "more than there are cores");
        assert_eq!(plugs(&hot, "cores", "8"), Ok(false), "cores always wait");
        assert_eq!(plugs(&hot, "memory", "2048"), Ok(true));
        assert!(plugs(&hot, "memory", "512").is_err());
        assert!(check_may_start(&hot).is_err(), "memory wants NUMA");
        let whole = config(&[("numa", "1"), ("memory", "2048"), ("hotplug", "memory")]);
        assert_eq!(check_may_start(&whole), Ok(()));
        assert_eq!(check_may_start(&plain), Ok(()));
    }
}
