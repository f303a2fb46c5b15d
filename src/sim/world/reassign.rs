//! Reassigning a disk to another VM of the same node: `move_disk` with `target-vmid`.

use super::Cluster;
use super::boot::boot_order_without;
use super::conf::{self, Drive, numbered};
use super::context::{CallContext, failed};
use super::state::State;
use super::worker::Worker;
use crate::call::{ApiError, Outcome};

/// Which disk moves to which VM.
#[derive(Debug, Clone)]
struct Reassignment {
    from: u32,
    disk: String,
    digest: Option<String>,
    to: u32,
    target_key: String,
    target_digest: Option<String>,
}

/// `POST …/move_disk` with `target-vmid` (qemu-server, API2/Qemu.pm, move_vm_disk).
pub(crate) fn reassign(ctx: &CallContext) -> Outcome {
    let to = ctx.id("target-vmid").unwrap_or(0);
    ctx.check(&format!("/vms/{to}"), &["VM.Config.Disk"])?;
    if to == ctx.vmid {
        let text = "must be different than source VMID to reassign disk";
        return Err(ApiError::parameter("target-vmid", text));
    }
    let disk = ctx.text("disk").unwrap_or_default();
    let target_key = ctx.text("target-disk").unwrap_or_else(|| disk.clone());
    let job = Reassignment {
        from: ctx.vmid,
        disk,
        digest: ctx.text("digest"),
        to,
        target_key,
        target_digest: ctx.text("target-digest"),
    };
    let drive = {
        let mut state = ctx.cluster.state();
        ctx.cluster.refresh_vm(&mut state, ctx.vmid);
        check_may_move(&state, &job).map_err(failed)?
    };
    let storage = drive.storage().unwrap_or_default();
    ctx.check(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
    let (cluster, node) = (ctx.cluster.clone(), ctx.node.clone());
    let id = format!("{}-{}>{}-{}", job.from, job.disk, job.to, job.target_key);
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "qmmove", id, |worker| async move {
        let _from = cluster.vm_lock(&node, job.from, 10, Some(&worker)).await?;
        let _to = cluster.vm_lock(&node, job.to, 10, Some(&worker)).await?;
        cluster.reassign_disk(&worker, &job)
    }))
}

/// Checks that the disk can move, and returns it.
fn check_may_move(state: &State, job: &Reassignment) -> Result<Drive, String> {
    let Reassignment { from, disk, to, target_key, .. } = job;
    let source = state.vms.get(from).ok_or_else(|| format!("could not find VM {from}"))?;
    let target = state.vms.get(to).ok_or_else(|| format!("could not find target VM {to}"))?;
    if source.node != target.node {
        return Err(format!(
            "Both VMs need to be on the same node ({} != {})",
            source.node, target.node
        ));
    }
    source.ensure_unlocked()?;
    target.ensure_unlocked()?;
    if source.is_template() || target.is_template() {
        return Err("Can't move disks from or to template VMs".into());
    }
    let stale = "detected modified configuration - file changed by other user? Try again.";
    for (guest, digest) in [(source, &job.digest), (target, &job.target_digest)] {
        if digest.as_ref().is_some_and(|digest| *digest != guest.digest()) {
            return Err(format!("VM {}: {stale}", guest.vmid));
        }
    }
    let Some(value) = source.config.get(disk) else {
        return Err(format!("Disk '{disk}' for VM '{from}' does not exist"));
    };
    if target.config.contains_key(target_key) {
        return Err(format!("Target disk key '{target_key}' is already in use for VM '{to}'"));
    }
    let drive = Drive::parse(value);
    if drive.is_cdrom() {
        return Err("CD drive contents can't be moved to another VM".into());
    }
    if drive.storage().is_none() {
        return Err(format!("Volume '{}' not managed by PVE", drive.file));
    }
    let uses_volume = |config: &conf::Config| {
        conf::drives(config).iter().any(|(_, other)| other.file == drive.file)
    };
    if source.snapshots.values().any(|snapshot| uses_volume(&snapshot.config)) {
        return Err("Can't move disk used by a snapshot to another VM".into());
    }
    if source.process.is_some() && numbered(disk, "unused").is_none() {
        return Err(
            "Cannot move disk to another VM while the source VM is running - detach first".into()
        );
    }
    Ok(drive)
}

impl Cluster {
    fn reassign_disk(&self, worker: &Worker, job: &Reassignment) -> Result<(), String> {
        let node = worker.node.clone();
        let Reassignment { from, disk, to, target_key, .. } = job;
        worker
            .log(format!("reassign disk '{disk}' from VM '{from}' as '{target_key}' to VM '{to}'"));
        let mut state = self.state();
        let drive = check_may_move(&state, job)?;
        let storage = drive.storage().unwrap_or_default().to_owned();
        let volid = state.storage_mut(&storage)?.rename(&node, &drive.file, *to)?;
        let source = state.vm_mut(&node, *from)?;
        source.config.remove(disk);
        if let Some(boot) =
            source.config.get("boot").and_then(|boot| boot_order_without(boot, disk))
        {
            source.config.insert("boot".into(), boot);
        }
        let value = if numbered(target_key, "unused").is_some() {
            volid
        } else {
            Drive { file: volid, options: drive.options }.print()
        };
        state.vm_mut(&node, *to)?.config.insert(target_key.clone(), value);
        drop(state);
        worker.log(format!("removing disk '{disk}' from VM '{from}' config"));
        Ok(())
    }
}
