//! Where the durations of calls and waits go: to who counts them for people. Nothing decides by them.

use std::sync::OnceLock;
use std::time::Duration;

use drover_model::id::{CloudId, VmId};
use proxmox_client::call_route::{CallOutcome, CallRoute};
use proxmox_client::types::Resource;

/// Takes how each call ended, and how long it took after it had its turn; of one that was not sent, how
/// long it waited.
pub type MeasureCall = Box<dyn Fn(CallRoute, CallOutcome, Duration) + Send + Sync>;

/// Takes how long each start or destroy waited for the limits of its node and storages: the word for the
/// task, and the wait.
pub type MeasureWait = Box<dyn Fn(&'static str, Duration) + Send + Sync>;

/// Takes what the guests of a cluster use, whenever its list was read: through which cloud, and all guests
/// that run.
pub type MeasureGuests = Box<dyn Fn(&CloudId, Vec<GuestUse>) + Send + Sync>;

/// What a guest has and uses by the list of its cluster, which is up to 10 s behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestUse {
    pub vmid: VmId,
    /// Its processors (`maxcpu`).
    pub cores: Option<u32>,
    /// Its memory in MiB (`maxmem`).
    pub memory_mib: Option<u32>,
    /// Busy processors, in thousandths of one: `cpu`, the busy part of all of them, times `maxcpu`.
    pub busy_milli: Option<u32>,
    /// Memory in use in MiB: `mem`, at most `maxmem`.
    ///
    /// With a balloon device and its driver in the guest, `mem` is what the guest counts as used, without
    /// its page cache. Without one it is what the process of the VM has of its node, which only grows: a
    /// guest that once filled its cache has all its memory in use. `memhost` (since 9) is always the
    /// latter, so it counts only where `mem` is missing. `mem` of a container has no page cache.
    pub used_mib: Option<u32>,
}

impl GuestUse {
    /// What a row of a list says; none where it is no guest that runs.
    pub(crate) fn of(row: &Resource) -> Option<Self> {
        let is_guest = matches!(row.kind.as_str(), "qemu" | "lxc");
        if !is_guest || row.template || row.status.as_deref() != Some("running") {
            return None;
        }
        let vmid = VmId(u32::try_from(row.vmid?).ok()?);
        let mib = |bytes: f64| whole(bytes / f64::from(1_u32 << 20));
        let busy = row.cpu.zip(row.max_cpu).map(|(share, cores)| whole(share * cores * 1000.0));
        let used = row.mem.filter(|used| *used > 0.0).or(row.mem_host);
        let used = used.map(|used| row.max_mem.map_or(used, |most| used.min(most)));
        Some(Self {
            vmid,
            cores: row.max_cpu.map(whole),
            memory_mib: row.max_mem.map(mib),
            busy_milli: busy,
            used_mib: used.map(mib),
        })
    }
}

/// A figure as a whole number: what is no number, or below zero, is zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what is out of range becomes the nearest bound"
)]
fn whole(figure: f64) -> u32 {
    figure.round() as u32
}

/// Who takes the figures of all clusters, once somebody does.
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) calls: OnceLock<MeasureCall>,
    pub(crate) waits: OnceLock<MeasureWait>,
    pub(crate) guests: OnceLock<MeasureGuests>,
}

impl Figures {
    /// Gives what the guests in a list use to who takes it.
    pub(crate) fn show_guests(&self, cloud: &CloudId, rows: &[Resource]) {
        if let Some(measure) = self.guests.get() {
            measure(cloud, rows.iter().filter_map(GuestUse::of).collect());
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use serde_json::json;

    use super::*;

    fn of(row: serde_json::Value) -> Option<GuestUse> {
        GuestUse::of(&serde_json::from_value(row).unwrap())
    }

    // Invariant: a guest that runs has its figures, and what else is in a list has none.

    #[test]
    fn the_memory_that_the_guest_counts_goes_before_what_its_node_counts() {
        let row = json!({"type": "qemu", "vmid": 101, "status": "running", "cpu": 0.75, "maxcpu": 2,
            "mem": 600 << 20, "memhost": 2000_u64 << 20, "maxmem": 2048_u64 << 20});
        let vmid = VmId(101);
        let (cores, memory_mib) = (Some(2), Some(2048));
        let busy_milli = Some(1500);
        let whole = GuestUse { vmid, cores, memory_mib, busy_milli, used_mib: Some(600) };
        assert_eq!(of(row.clone()), Some(whole));
        let mut host = row.clone();
        host.as_object_mut().unwrap().remove("mem");
        assert_eq!(of(host).unwrap().used_mib, Some(2000));
        let mut more = row;
        more["mem"] = (4096_u64 << 20).into();
        assert_eq!(of(more).unwrap().used_mib, Some(2048));
    }

    #[test]
    fn templates_nodes_and_guests_that_are_off_have_no_figures() {
        for row in [
            json!({"type": "qemu", "vmid": 1, "status": "stopped"}),
            json!({"type": "qemu", "vmid": 1, "status": "running", "template": 1}),
            json!({"type": "node", "node": "pve1", "status": "online"}),
            json!({"type": "qemu", "status": "running"}),
        ] {
            assert_eq!(of(row.clone()), None, "of {row}");
        }
    }
}
