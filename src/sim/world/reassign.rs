//! Giving a disk to another virtual machine of the same node: `target-vmid` of `move_disk`.

use super::Cluster;
use super::ask::{Ask, failed};
use super::boot::without;
use super::conf::{self, Drive, numbered};
use super::state::State;
use super::worker::Worker;
use crate::call::{ApiError, Outcome};

/// Which disk goes where.
#[derive(Debug, Clone)]
struct Job {
    from: u32,
    disk: String,
    digest: Option<String>,
    to: u32,
    place: String,
    place_digest: Option<String>,
}

/// `POST …/move_disk` with `target-vmid` (qemu-server, API2/Qemu.pm, move_vm_disk).
pub fn reassign(ask: &Ask) -> Outcome {
    let to = ask.id("target-vmid").unwrap_or(0);
    ask.check(&format!("/vms/{to}"), &["VM.Config.Disk"])?;
    if to == ask.vmid {
        let text = "must be different than source VMID to reassign disk";
        return Err(ApiError::parameter("target-vmid", text));
    }
    let disk = ask.text("disk").unwrap_or_default();
    let place = ask.text("target-disk").unwrap_or_else(|| disk.clone());
    let job = Job {
        from: ask.vmid,
        disk,
        digest: ask.text("digest"),
        to,
        place,
        place_digest: ask.text("target-digest"),
    };
    let drive = {
        let mut state = ask.cluster.state();
        ask.cluster.refresh(&mut state, ask.vmid);
        may_move(&state, &job).map_err(failed)?
    };
    let storage = drive.storage().unwrap_or_default();
    ask.check(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
    let (cluster, node) = (ask.cluster.clone(), ask.node.clone());
    let id = format!("{}-{}>{}-{}", job.from, job.disk, job.to, job.place);
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "qmmove", id, |worker| async move {
        let _from = cluster.guest_lock(&node, job.from, 10, Some(&worker)).await?;
        let _to = cluster.guest_lock(&node, job.to, 10, Some(&worker)).await?;
        cluster.hand_disk(&worker, &job)
    }))
}

/// Whether the disk can go, and what it is.
fn may_move(state: &State, job: &Job) -> Result<Drive, String> {
    let Job { from, disk, to, place, .. } = job;
    let source = state.guests.get(from).ok_or_else(|| format!("could not find VM {from}"))?;
    let target = state.guests.get(to).ok_or_else(|| format!("could not find target VM {to}"))?;
    if source.node != target.node {
        return Err(format!(
            "Both VMs need to be on the same node ({} != {})",
            source.node, target.node
        ));
    }
    source.unlocked()?;
    target.unlocked()?;
    if source.is_template() || target.is_template() {
        return Err("Can't move disks from or to template VMs".into());
    }
    let stale = "detected modified configuration - file changed by other user? Try again.";
    for (guest, digest) in [(source, &job.digest), (target, &job.place_digest)] {
        if digest.as_ref().is_some_and(|digest| *digest != guest.digest()) {
            return Err(format!("VM {}: {stale}", guest.vmid));
        }
    }
    let Some(value) = source.config.get(disk) else {
        return Err(format!("Disk '{disk}' for VM '{from}' does not exist"));
    };
    if target.config.contains_key(place) {
        return Err(format!("Target disk key '{place}' is already in use for VM '{to}'"));
    }
    let drive = Drive::parse(value);
    if drive.is_cdrom() {
        return Err("CD drive contents can't be moved to another VM".into());
    }
    if drive.storage().is_none() {
        return Err(format!("Volume '{}' not managed by PVE", drive.file));
    }
    let held = |config: &conf::Config| {
        conf::drives(config).iter().any(|(_, other)| other.file == drive.file)
    };
    if source.snapshots.values().any(|snapshot| held(&snapshot.config)) {
        return Err("Can't move disk used by a snapshot to another VM".into());
    }
    if source.run.is_some() && numbered(disk, "unused").is_none() {
        return Err(
            "Cannot move disk to another VM while the source VM is running - detach first".into()
        );
    }
    Ok(drive)
}

impl Cluster {
    fn hand_disk(&self, worker: &Worker, job: &Job) -> Result<(), String> {
        let node = worker.node.clone();
        let Job { from, disk, to, place, .. } = job;
        worker.log(format!("reassign disk '{disk}' from VM '{from}' as '{place}' to VM '{to}'"));
        let mut state = self.state();
        let drive = may_move(&state, job)?;
        let storage = drive.storage().unwrap_or_default().to_owned();
        let volid = state.storage_mut(&storage)?.rename(&node, &drive.file, *to)?;
        let source = state.guest_mut(&node, *from)?;
        source.config.remove(disk);
        if let Some(boot) = source.config.get("boot").and_then(|boot| without(boot, disk)) {
            source.config.insert("boot".into(), boot);
        }
        let value = if numbered(place, "unused").is_some() {
            volid
        } else {
            Drive { file: volid, options: drive.options }.print()
        };
        state.guest_mut(&node, *to)?.config.insert(place.clone(), value);
        drop(state);
        worker.log(format!("removing disk '{disk}' from VM '{from}' config"));
        Ok(())
    }
}
