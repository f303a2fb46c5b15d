//! Other sizes for a guest: what to write, and what of it holds.
//!
//! Proxmox changes `cores` at a start only. `vcpus`, the part of all cores that the guest uses, it changes
//! while the guest runs where `hotplug` has `cpu`, up to all cores that the guest started with
//! (qemu-server, QemuServer.pm, `vmconfig_hotplug_pending` and `qemu_cpu_hotplug`); likewise `memory`
//! where `hotplug` has `memory`. The recorded answers show neither, so drover reads what came of a write
//! instead of assuming it.

use drover_model::hardware::{HotPlug, PLUGGED_MEMORY_MB};
use drover_model::id::VmId;
use drover_model::size::{Part, Size};
use proxmox_client::Params;
use proxmox_client::types::{PendingRow, VmConfig};

use super::refused;
use crate::client::Failure;
use crate::configure::{primary_disk, size_of};

/// The values of a guest, those of now and those of its next start.
pub(super) struct Values<'a> {
    /// What holds now and what waits. A key that is missing here waits for nothing.
    pub pending: &'a [PendingRow],
    /// Where what waits is shown as if it held.
    pub config: &'a VmConfig,
}

impl Values<'_> {
    fn row(&self, key: &str) -> Option<&PendingRow> {
        self.pending.iter().find(|row| row.key == key)
    }

    fn now(&self, key: &str) -> Option<&str> {
        match self.row(key) {
            Some(row) => row.value.as_deref(),
            None => self.config.get(key),
        }
    }

    fn next(&self, key: &str) -> Option<&str> {
        match self.row(key) {
            Some(row) if row.delete.is_some() => None,
            Some(row) => row.pending.as_deref().or(row.value.as_deref()),
            None => self.config.get(key),
        }
    }

    /// Whether something waits for a start that changes this key.
    fn waits(&self, key: &str) -> bool {
        self.row(key).is_some_and(|row| row.pending.is_some() || row.delete.is_some())
    }
}

/// A number, also where memory is written as `current=N`.
fn number(text: Option<&str>) -> Option<u32> {
    let first = text?.split(',').next()?.trim();
    first.strip_prefix("current=").unwrap_or(first).parse().ok()
}

/// The cores of each socket that a guest uses, of these values.
fn used<'a>(value: impl Fn(&str) -> Option<&'a str>) -> u32 {
    let cores = number(value("cores")).unwrap_or(1);
    let sockets = number(value("sockets")).unwrap_or(1).max(1);
    number(value("vcpus")).map_or(cores, |vcpus| cores.min(vcpus / sockets))
}

/// The keys that must change. Less memory takes the balloon's target along, which must not be above it.
pub(super) fn changes(values: &Values<'_>, sizes: Size) -> Params {
    let mut changes = Params::new();
    let mut set = |key: &str, wanted: u32| {
        if number(values.next(key)) != Some(wanted) || values.waits(key) {
            changes.push((key.to_owned(), wanted.to_string()));
        }
    };
    let mut forgets = false;
    if let Some(cores) = sizes.cores.filter(|cores| used(|key| values.next(key)) != *cores) {
        let plugs = HotPlug::Cpu.is_in(values.now("hotplug")) || values.now("vcpus").is_some();
        if plugs && cores <= number(values.now("cores")).unwrap_or(1) {
            let sockets = number(values.now("sockets")).unwrap_or(1);
            set("vcpus", cores.saturating_mul(sockets));
            // Proxmox drops a change that waits once the value of now is written again.
            if let Some(now) = number(values.now("cores")).filter(|_| values.waits("cores")) {
                set("cores", now);
            }
        } else {
            // All cores that it started with at once, the others from its next start on.
            set("cores", cores);
            forgets = values.next("vcpus").is_some();
        }
    }
    if let Some(memory) =
        sizes.memory_mb.filter(|memory| number(values.next("memory")) != Some(*memory))
    {
        set("memory", memory);
    }
    if let (Some(memory), Some(balloon)) = (sizes.memory_mb, number(values.next("balloon")))
        && balloon > memory
    {
        set("balloon", memory);
    }
    if forgets {
        changes.push(("delete".to_owned(), "vcpus".to_owned()));
    }
    changes
}

/// Refuses memory with which the guest could not start again.
pub(super) fn check(values: &Values<'_>, sizes: Size, vmid: VmId) -> Result<(), Failure> {
    let plugs = HotPlug::Memory.is_in(values.next("hotplug"));
    match sizes.memory_mb.filter(|memory| plugs && *memory < PLUGGED_MEMORY_MB) {
        None => Ok(()),
        Some(memory) => Err(refused(format!(
            "guest `{vmid}` has memory hot-plug and needs {PLUGGED_MEMORY_MB} MiB at least: it cannot \
             have {memory} MiB"
        ))),
    }
}

/// The disk to grow with its size in GiB; none where it has that size.
pub(super) fn to_grow(
    config: &VmConfig,
    sizes: Size,
    vmid: VmId,
) -> Result<Option<(String, u32)>, Failure> {
    let Some(wanted) = sizes.disk_gb else { return Ok(None) };
    let Some(disk) = primary_disk(config) else {
        return Err(refused(format!("guest `{vmid}` has no disk that it boots from")));
    };
    let size = config.get(disk).and_then(size_of);
    let bytes = u64::from(wanted) << 30;
    match size {
        Some(size) if bytes < size => {
            let has = size.div_ceil(1 << 30);
            Err(refused(format!(
                "disk `{disk}` of guest `{vmid}` has {has} GiB: disks cannot shrink to {wanted} GiB"
            )))
        }
        Some(size) if bytes == size => Ok(None),
        Some(_) | None => Ok(Some((disk.to_owned(), wanted))),
    }
}

/// What of these sizes a guest has by now, will have from its next start on, and has not, for people.
pub(super) fn reached(values: &Values<'_>, wanted: Size) -> String {
    let said = |wanted: u32, now: Option<u32>, next: Option<u32>| match now {
        Some(now) if now == wanted => "applied".to_owned(),
        Some(now) if next == Some(wanted) => {
            format!("pending until the machine restarts, {now} until then")
        }
        None if next == Some(wanted) => "pending until the machine restarts".to_owned(),
        Some(now) => format!("not done, it has {now}"),
        None => "not done".to_owned(),
    };
    let cores = wanted.cores.map(|cores| {
        let (now, next) = (used(|key| values.now(key)), used(|key| values.next(key)));
        let unit = Part::Cores.unit_of(cores);
        format!("{cores} {unit}: {}", said(cores, Some(now), Some(next)))
    });
    let memory = wanted.memory_mb.map(|memory| {
        let (now, next) = (number(values.now("memory")), number(values.next("memory")));
        format!("{memory} MiB: {}", said(memory, now, next))
    });
    let size =
        primary_disk(values.config).and_then(|disk| values.config.get(disk)).and_then(size_of);
    let disk = wanted.disk_gb.map(|gib| match size {
        Some(size) if size >= u64::from(gib) << 30 => format!("{gib} GiB of disk: applied"),
        Some(size) => format!("{gib} GiB of disk: not done, it has {} GiB", size >> 30),
        None => format!("{gib} GiB of disk: not done"),
    });
    let parts: Vec<String> = [cores, memory, disk].into_iter().flatten().collect();
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &str, value: Option<&str>, pending: Option<&str>) -> PendingRow {
        let owned = |text: &str| text.to_owned();
        PendingRow {
            key: key.into(),
            value: value.map(owned),
            pending: pending.map(owned),
            delete: None,
        }
    }

    fn cores(config: &[(&str, &str)], pending: &[PendingRow], cores: u32) -> String {
        let config = VmConfig::new(config.iter().copied());
        let values = Values { pending, config: &config };
        let changes = changes(&values, Size { cores: Some(cores), ..Size::NONE });
        let changes = changes.iter().map(|(key, value)| format!("{key}={value}"));
        changes.collect::<Vec<_>>().join(" ")
    }

    // Invariant: cores that a running guest can have are plugged, and all others wait for its start.

    #[test]
    fn cores_are_plugged_up_to_those_that_the_guest_started_with() {
        let plugs = [("cores", "8"), ("sockets", "2"), ("vcpus", "4"), ("hotplug", "disk,cpu")];
        assert_eq!(cores(&plugs, &[], 6), "vcpus=12");
        assert_eq!(cores(&plugs, &[], 2), "", "it has them");
        assert_eq!(cores(&plugs, &[], 12), "cores=12 delete=vcpus");
        let plain = [("cores", "4")];
        assert_eq!(cores(&plain, &[], 2), "cores=2", "Proxmox plugs no processors by default");
        // What waits for a start is not there yet.
        let waits = [row("cores", Some("4"), Some("12"))];
        assert_eq!(cores(&[("cores", "12"), ("hotplug", "cpu")], &waits, 8), "cores=8");
        assert_eq!(cores(&[("cores", "12"), ("hotplug", "cpu")], &waits, 3), "vcpus=3 cores=4");
    }
}
