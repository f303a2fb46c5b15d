//! What an order asks for, and what no order may ask for.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::VmId;
use crate::phase::Power;
use crate::size::Size;

/// Snapshots of a machine at once, drover's own left out.
pub const SNAPSHOTS_MOST: usize = 16;
/// The longest name of a snapshot (qemu-server, `pve-snapshot-name`).
const NAME_CHARS: usize = 40;
/// The most characters of a snapshot's description.
const DESCRIPTION_CHARS: usize = 500;
/// The most processor cores of a machine that drover asks for.
const CORES_MOST: u32 = 1024;
/// Memory of a machine in MiB: the least that Proxmox takes, and the most that drover asks for.
const MEMORY_MB: std::ops::RangeInclusive<u32> = 16..=16_777_216;
/// The largest disk, in GiB.
const DISK_GB_MOST: u32 = 131_072;

/// What an order asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Work {
    Start,
    /// Hard, as pulling the plug.
    Stop,
    /// By the guest itself.
    Shutdown,
    /// A shutdown and a start, which applies pending changes.
    Reboot,
    /// Hard; pending changes stay pending.
    Reset,
    /// The machine stands still and keeps its memory.
    Suspend,
    Resume,
    Snapshot {
        name: String,
        #[serde(default)]
        description: String,
        /// Whether it holds the memory too.
        #[serde(default)]
        memory: bool,
    },
    /// Back to a snapshot; the machine runs afterwards.
    Revert {
        name: String,
    },
    DeleteSnapshot {
        name: String,
    },
    /// To these sizes; what is not said stays.
    Resize(Size),
}

impl Work {
    /// The verb, one word.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Shutdown => "shutdown",
            Self::Reboot => "reboot",
            Self::Reset => "reset",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
            Self::Snapshot { .. } => "snapshot",
            Self::Revert { .. } => "revert",
            Self::DeleteSnapshot { .. } => "delete-snapshot",
            Self::Resize(_) => "resize",
        }
    }

    /// Of a verb that needs nothing else.
    pub fn of_power(verb: &str) -> Option<Self> {
        let all = [
            Self::Start,
            Self::Stop,
            Self::Shutdown,
            Self::Reboot,
            Self::Reset,
            Self::Suspend,
            Self::Resume,
        ];
        all.into_iter().find(|work| work.name() == verb)
    }

    /// The snapshot that it is about.
    pub fn snapshot(&self) -> Option<&str> {
        match self {
            Self::Snapshot { name, .. } | Self::Revert { name } | Self::DeleteSnapshot { name } => {
                Some(name)
            }
            Self::Start
            | Self::Stop
            | Self::Shutdown
            | Self::Reboot
            | Self::Reset
            | Self::Suspend
            | Self::Resume
            | Self::Resize(_) => None,
        }
    }

    /// Whether the machine is meant to run once it is carried out.
    pub fn leaves(&self, before: Power) -> Power {
        match self {
            Self::Start | Self::Reboot | Self::Reset | Self::Resume | Self::Revert { .. } => {
                Power::Running
            }
            Self::Stop | Self::Shutdown => Power::Stopped,
            Self::Suspend => Power::Suspended,
            Self::Snapshot { .. } | Self::DeleteSnapshot { .. } | Self::Resize(_) => before,
        }
    }

    /// Whether a machine can be left so by this order where the order failed on its way.
    pub const fn may_leave(&self, power: Power) -> bool {
        match self {
            Self::Stop | Self::Shutdown | Self::Reboot | Self::Reset => {
                matches!(power, Power::Stopped)
            }
            Self::Revert { .. } => matches!(power, Power::Stopped | Power::Suspended),
            Self::Suspend => matches!(power, Power::Suspended),
            Self::Start
            | Self::Resume
            | Self::Snapshot { .. }
            | Self::DeleteSnapshot { .. }
            | Self::Resize(_) => false,
        }
    }

    /// Whether it is an order to switch the machine.
    pub fn switches(&self) -> bool {
        self.leaves(Power::Unknown) != Power::Unknown
    }

    /// Whether the guest must be reached again before it is done.
    pub const fn wakes(&self) -> bool {
        match self {
            Self::Start | Self::Reboot | Self::Reset | Self::Resume | Self::Revert { .. } => true,
            Self::Stop
            | Self::Shutdown
            | Self::Suspend
            | Self::Snapshot { .. }
            | Self::DeleteSnapshot { .. }
            | Self::Resize(_) => false,
        }
    }

    /// Whether carrying it out twice does what carrying it out once does. A start of the service finds
    /// such an order unfinished and carries it out; of others nobody knows how far they came.
    pub const fn is_repeatable(&self) -> bool {
        match self {
            Self::Reboot | Self::Reset | Self::Revert { .. } => false,
            Self::Start
            | Self::Stop
            | Self::Shutdown
            | Self::Suspend
            | Self::Resume
            | Self::Snapshot { .. }
            | Self::DeleteSnapshot { .. }
            | Self::Resize(_) => true,
        }
    }

    /// Whether the machine is another one afterwards than it was at its birth.
    pub const fn alters(&self) -> bool {
        match self {
            Self::Snapshot { .. }
            | Self::Revert { .. }
            | Self::DeleteSnapshot { .. }
            | Self::Resize(_) => true,
            Self::Start
            | Self::Stop
            | Self::Shutdown
            | Self::Reboot
            | Self::Reset
            | Self::Suspend
            | Self::Resume => false,
        }
    }

    /// Checks what can be checked without a look at the machine.
    ///
    /// # Errors
    /// What is wrong, to be put behind the name of its field.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if let Some(name) = self.snapshot() {
            check_name(name).map_err(|fault| ("name", fault))?;
        }
        match self {
            Self::Snapshot { description, .. } => {
                check_description(description).map_err(|fault| ("description", fault))
            }
            Self::Resize(sizes) => check_sizes(*sizes),
            Self::Start
            | Self::Stop
            | Self::Shutdown
            | Self::Reboot
            | Self::Reset
            | Self::Suspend
            | Self::Resume
            | Self::Revert { .. }
            | Self::DeleteSnapshot { .. } => Ok(()),
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.snapshot()) {
            (Self::DeleteSnapshot { name }, _) => write!(f, "delete snapshot {name}"),
            (Self::Revert { name }, _) => write!(f, "revert to snapshot {name}"),
            (Self::Resize(sizes), _) => write!(f, "resize to {sizes}"),
            (_, Some(name)) => write!(f, "snapshot {name}"),
            (_, None) => f.write_str(self.name()),
        }
    }
}

/// The snapshot that drover takes for itself, and the only one that it rolls back to.
pub const SNAPSHOT_NAME: &str = "drover-clean";

/// The name, without storage and format, of the volume that holds the memory of a guest's snapshot
/// (pve-storage, Plugin.pm and its kin; qemu-server, QemuConfig.pm, `__snapshot_save_vmstate`).
pub fn memory_volume(vmid: VmId, snapshot: &str) -> String {
    format!("vm-{vmid}-state-{snapshot}")
}

/// Whether a snapshot is one that drover takes for itself.
pub fn is_own_snapshot(name: &str) -> bool {
    name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("drover"))
}

/// The rule of Proxmox (book: proxmox, section 15), and drover's own names.
fn check_name(name: &str) -> Result<(), String> {
    let plain = |ch: char| ch.is_ascii_alphanumeric() || matches!(ch, '_' | '-');
    let starts = name.starts_with(|ch: char| ch.is_ascii_alphabetic());
    if !starts || !(2..=NAME_CHARS).contains(&name.len()) || !name.chars().all(plain) {
        return Err(format!(
            "must be 2 to {NAME_CHARS} letters, digits, `_` and `-`, a letter first"
        ));
    }
    if matches!(name, "current" | "pending") {
        return Err(format!("must not be `{name}`, which Proxmox keeps for itself"));
    }
    if is_own_snapshot(name) {
        return Err("must not begin with `drover`: drover's own snapshots are called so".into());
    }
    Ok(())
}

fn check_description(text: &str) -> Result<(), String> {
    if text.chars().count() > DESCRIPTION_CHARS {
        return Err(format!("must have at most {DESCRIPTION_CHARS} characters"));
    }
    if text.chars().any(|ch| ch.is_control() && ch != '\n') {
        return Err("must not have control characters".into());
    }
    Ok(())
}

fn check_sizes(sizes: Size) -> Result<(), (&'static str, String)> {
    if sizes.is_none() {
        let text = "or `memoryMb` or `diskSizeGb` must be given: nothing is to change".to_owned();
        return Err(("cores", text));
    }
    if sizes.cores.is_some_and(|cores| !(1..=CORES_MOST).contains(&cores)) {
        return Err(("cores", format!("must be a whole number from 1 to {CORES_MOST}")));
    }
    if sizes.memory_mb.is_some_and(|memory| !MEMORY_MB.contains(&memory)) {
        let (least, most) = (MEMORY_MB.start(), MEMORY_MB.end());
        return Err(("memoryMb", format!("must be a whole number from {least} to {most}")));
    }
    if sizes.disk_gb.is_some_and(|disk| !(1..=DISK_GB_MOST).contains(&disk)) {
        return Err(("diskSizeGb", format!("must be a whole number from 1 to {DISK_GB_MOST}")));
    }
    Ok(())
}
