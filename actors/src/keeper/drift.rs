//! In what a machine differs from its declaration, and what puts it right. Pure.

mod values;

use drover_model::declared::{DeclaredSpec, Drift};
use drover_model::order::{MachineView, Work};
use drover_model::phase::{DriftKind, Power};
use drover_model::size::Size;

/// What Proxmox takes where a configuration does not say it (book: proxmox, section 9).
const CORES: u32 = 1;
const MEMORY_MB: u32 = 512;

const NOT_ALLOWED: &str = "`correct` does not name it";
const AFTER_RESTART: &str = "it waits for the next restart of the machine";
const SHRINKS: &str = "disks cannot shrink";
pub(super) const NEVER_MOVES: &str = "drover moves no machine";
const UNKNOWN_POWER: &str = "Proxmox does not say whether it runs";
const STANDS_STILL: &str = "it stands still, and cannot shut down";

/// All that differs.
pub fn drift(spec: &DeclaredSpec, view: &MachineView) -> Vec<Drift> {
    let mut all = Vec::new();
    all.extend(power(spec, view));
    all.extend(number(spec, view, ("cores", CORES), spec.template.cores));
    all.extend(number(spec, view, ("memory", MEMORY_MB), spec.template.memory_mb));
    all.extend(disk(spec, view));
    if let Some(node) = spec.template.node.as_ref().filter(|node| **node != view.node) {
        all.push(Drift {
            kind: DriftKind::Place,
            what: "node".to_owned(),
            declared: node.to_string(),
            found: view.node.to_string(),
            stays: Some(NEVER_MOVES.into()),
        });
    }
    all.extend(values::networks(spec, view));
    all.extend(values::cloud_init(spec, view));
    all.extend(values::tags(spec, view));
    all
}

/// Why a difference of this kind stays, where nothing else keeps it.
fn allowed(spec: &DeclaredSpec, kind: DriftKind) -> Option<&'static str> {
    (!spec.correct.contains(&kind)).then_some(NOT_ALLOWED)
}

fn power(spec: &DeclaredSpec, view: &MachineView) -> Option<Drift> {
    let stays = match (spec.power, view.power) {
        (wanted, found) if wanted == found => return None,
        (_, Power::Unknown) => Some(UNKNOWN_POWER),
        (Power::Stopped, Power::Suspended) => Some(STANDS_STILL),
        (_, _) => allowed(spec, DriftKind::Power),
    };
    Some(Drift {
        kind: DriftKind::Power,
        what: "power".to_owned(),
        declared: spec.power.to_string(),
        found: view.power.to_string(),
        stays: stays.map(Into::into),
    })
}

/// A number of the configuration.
fn number(
    spec: &DeclaredSpec,
    view: &MachineView,
    (key, usual): (&'static str, u32),
    declared: Option<u32>,
) -> Option<Drift> {
    let declared = declared?;
    let row = view.config.iter().find(|row| row.key == key);
    let read = |text: &str| text.strip_prefix("current=").unwrap_or(text).parse::<u32>().ok();
    let now = row.and_then(|row| row.value.as_deref());
    let now = now.map_or(Some(usual), read);
    let after = match row {
        Some(row) if row.deleted => Some(usual),
        Some(row) => row.pending.as_deref().and_then(read),
        None => None,
    };
    if now == Some(declared) && after.is_none_or(|after| after == declared) {
        return None;
    }
    let stays = match after {
        Some(after) if after == declared => Some(AFTER_RESTART),
        Some(_) | None => allowed(spec, DriftKind::Size),
    };
    let shown = now.map_or_else(|| "unreadable".to_owned(), |now| now.to_string());
    let found = match after.filter(|after| Some(*after) != now) {
        Some(after) => format!("{shown}, {after} after a restart"),
        None => shown,
    };
    let (declared, stays) = (declared.to_string(), stays.map(Into::into));
    Some(Drift { kind: DriftKind::Size, what: key.to_owned(), declared, found, stays })
}

fn disk(spec: &DeclaredSpec, view: &MachineView) -> Option<Drift> {
    let (declared, bytes) = (spec.template.disk_gb?, view.disk?);
    let wanted = u64::from(declared) << 30;
    let stays = match bytes.cmp(&wanted) {
        std::cmp::Ordering::Equal => return None,
        std::cmp::Ordering::Greater => Some(SHRINKS),
        std::cmp::Ordering::Less => allowed(spec, DriftKind::Size),
    };
    Some(Drift {
        kind: DriftKind::Size,
        what: "disk".to_owned(),
        declared: format!("{declared} GiB"),
        found: format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
        stays: stays.map(Into::into),
    })
}

/// The work that puts the first of these right that drover may put right; sizes come before power, so
/// that a start has them.
pub fn remedy(spec: &DeclaredSpec, view: &MachineView, all: &[Drift]) -> Option<Work> {
    let may = |what: &str| all.iter().any(|one| one.what == what && one.stays.is_none());
    let template = &spec.template;
    let sizes = Size {
        cores: template.cores.filter(|_| may("cores")),
        memory_mb: template.memory_mb.filter(|_| may("memory")),
        disk_gb: template.disk_gb.filter(|_| may("disk")),
    };
    if !sizes.is_none() {
        return Some(Work::Resize(sizes));
    }
    may("power").then(|| power_work(spec.power, view))
}

/// What brings a machine to the declared power.
fn power_work(wanted: Power, view: &MachineView) -> Work {
    match (wanted, view.power) {
        (Power::Stopped, _) => Work::Shutdown,
        // What was kept on disk has no process, and goes on by a start.
        (_, Power::Suspended) if view.word != "stopped" => Work::Resume,
        (_, _) => Work::Start,
    }
}
