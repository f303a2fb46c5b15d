//! Backups: `vzdump` writes guests to a storage, and a report lists the guests that no job backs
//! up.
//!
//! One call forks one task for all its guests. For each guest the task sets the lock `backup`,
//! waits as long as copying its bytes takes, and adds a volume of content `backup` under the name
//! that Proxmox gives it. A guest that fails does not stop the others; the task then ends with `job
//! errors`. SIGTERM ends the task at once. The content of the volume is in `archive`; `restore` and
//! `lxc::restore` turn it into guests again.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::Cluster;
use super::archive::{self, Archive};
use super::backup_jobs;
use super::conf::{self, Config, Drive};
use super::context::{CallContext, failed};
use super::locks::{LockMode, LockName};
use super::sections;
use super::state::{Guest, GuestType, State};
use super::storage::Volume;
use super::worker::Worker;
use crate::call::{Answer, ApiError, Outcome};

/// Parameters whose effects the simulator does not implement.
const UNSUPPORTED_PARAMETERS: &[&str] =
    &["dumpdir", "script", "stdout", "stop", "prune-backups", "protected"];

/// The settings that apply to every guest of a call.
#[derive(Debug, Clone)]
struct BackupRun {
    node: String,
    storage: String,
    mode: String,
    extension: &'static str,
    notes: Option<String>,
}

/// `POST /nodes/{node}/vzdump`: one task for all guests; `OK` if they are all on other nodes.
pub(crate) fn start(ctx: &CallContext) -> Outcome {
    backup_jobs::check_may_set(ctx, &[])?;
    let mut requested = sections::stored_parameters(ctx, &["node"]);
    backup_jobs::check_selection(&mut requested, true)
        .map_err(|(name, text)| ApiError::parameter(name, text))?;
    let keeps_all = ctx.text("prune-backups").is_some_and(|policy| policy == "keep-all=1");
    let off = |name: &str| !ctx.flag(name) && matches!(name, "stdout" | "stop" | "protected");
    for name in UNSUPPORTED_PARAMETERS {
        if ctx.params().0.contains_key(*name)
            && !off(name)
            && !(keeps_all && *name == "prune-backups")
        {
            return Err(ctx.unsupported_parameter(name));
        }
    }
    let storage = ctx.text("storage").unwrap_or_else(|| "local".into());
    let all = conf::flag(&requested, "all");
    let vmids = selected_guests(ctx, all);
    if vmids.is_empty() && !all {
        return Ok(Answer::new("OK".into()));
    }
    ctx.check(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
    let job = BackupRun {
        node: ctx.node.clone(),
        storage,
        mode: ctx.text("mode").unwrap_or_else(|| "snapshot".into()),
        extension: match ctx.text("compress").as_deref() {
            Some("gzip") => ".gz",
            Some("lzo" | "1") => ".lzo",
            Some("zstd") => ".zst",
            _ => "",
        },
        notes: ctx.text("notes-template"),
    };
    let denied: Vec<u32> = vmids
        .iter()
        .copied()
        .filter(|vmid| !ctx.has(&format!("/vms/{vmid}"), "VM.Backup"))
        .collect();
    let id = match vmids.as_slice() {
        [one] => one.to_string(),
        _ => String::new(),
    };
    let cluster = ctx.cluster.clone();
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "vzdump", id, |worker| async move {
        cluster.check_backup_storage(&job.storage)?;
        let _job_lock = cluster
            .lock(node_backup_lock(&job.node), LockMode::Exclusive, JOB_LOCK_TIMEOUT, Some(&worker))
            .await?;
        worker.catch_signals();
        worker.log("INFO: starting new backup job");
        if let Some(vmid) = denied.iter().find(|_| !all) {
            return Err(format!("Permission check failed (/vms/{vmid}, VM.Backup)"));
        }
        let mut errors = 0;
        for vmid in vmids.into_iter().filter(|vmid| !denied.contains(vmid)) {
            if let Err(error) = cluster.back_up(&worker, &job, vmid).await {
                worker.log(format!("ERROR: Backup of VM {vmid} failed - {error}"));
                if error == INTERRUPTED {
                    return Err(error);
                }
                errors += 1;
            }
        }
        if errors > 0 {
            worker.log("INFO: Backup job finished with errors");
            return Err("job errors".into());
        }
        worker.log("INFO: Backup job finished successfully");
        Ok(())
    }))
}

/// The error of the guest whose backup SIGTERM stops.
const INTERRUPTED: &str = "interrupted by signal";
/// How long a job waits for another job of its node: three hours, the default of `lockwait`.
const JOB_LOCK_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(180 * 60);

/// The lock that lets one job at a time run on a node (pve-manager, VZDump.pm, getlock).
fn node_backup_lock(node: &str) -> LockName {
    LockName {
        key: format!("vzdump:{node}"),
        timeout_error: "can't acquire lock '/var/run/vzdump.lock' - got timeout".into(),
        waiting_line: "INFO: trying to get global lock - waiting...".into(),
        acquired_line: Some("INFO: got global lock"),
    }
}

/// The guests of a call: those on its node, and those that do not exist, which fail in the task.
fn selected_guests(ctx: &CallContext, all: bool) -> Vec<u32> {
    let list = |name: &str| -> Vec<u32> {
        let text = ctx.text(name).unwrap_or_default();
        text.split([',', ';', ' ']).filter_map(|word| word.parse().ok()).collect()
    };
    let (named, left_out) = (list("vmid"), list("exclude"));
    let pool = ctx.text("pool");
    let state = ctx.cluster.state();
    let here = state.all_guests().filter(|guest| guest.node == ctx.node).map(|guest| guest.vmid);
    let mut vmids: Vec<u32> = if let Some(pool) = &pool {
        here.filter(|vmid| ctx.cluster.rights.pool_of(*vmid).as_ref() == Some(pool)).collect()
    } else if all {
        here.collect()
    } else {
        let elsewhere =
            |vmid: &u32| state.guest_by_id(*vmid).is_some_and(|guest| guest.node != ctx.node);
        named.into_iter().filter(|vmid| !elsewhere(vmid)).collect()
    };
    vmids.retain(|vmid| !left_out.contains(vmid));
    vmids.sort_unstable();
    vmids.dedup();
    vmids
}

impl Cluster {
    fn check_backup_storage(&self, storage: &str) -> Result<(), String> {
        let state = self.state();
        let why = match state.storage(storage) {
            Ok(found) if found.accepts("backup") => return Ok(()),
            Ok(_) => format!("can't use storage '{storage}' for backups - wrong content type"),
            Err(error) => error,
        };
        Err(format!("could not get storage information for '{storage}': {why}"))
    }

    async fn back_up(
        self: &Arc<Self>,
        worker: &Worker,
        job: &BackupRun,
        vmid: u32,
    ) -> Result<(), String> {
        let Some(kind) = self.state().guest_by_id(vmid).map(|guest| guest.kind) else {
            return Err(format!("unable to find VM '{vmid}'"));
        };
        worker.log(format!("INFO: Starting Backup of VM {vmid} ({})", kind.api_name()));
        let running = self.is_running(kind, vmid);
        let status = if running { "running" } else { "stopped" };
        worker.log(format!("INFO: status = {status}"));
        guest_of_kind_mut(&mut self.state(), kind, &job.node, vmid)?.ensure_unlocked()?;
        let stops_guest = running && job.mode == "stop";
        if stops_guest {
            worker.log("INFO: stopping virtual guest");
            match kind {
                GuestType::Vm => {
                    self.lock_and_shut_down_vm(worker, &job.node, vmid, None, true).await?
                }
                GuestType::Ct => self.stop_container(&job.node, vmid).await?,
            }
        }
        let mode = if running { job.mode.as_str() } else { "stop" };
        worker.log(format!("INFO: backup mode: {mode}"));
        let written = match self.set_backup_lock(kind, &job.node, vmid) {
            Ok(config) => {
                let written = self.write_archive(worker, job, kind, vmid, config).await;
                self.clear_backup_lock(kind, &job.node, vmid);
                written
            }
            Err(error) => Err(error),
        };
        if stops_guest {
            worker.log("INFO: restarting vm");
            match kind {
                GuestType::Vm => self.start_vm(&job.node, vmid, Some(worker)).await?,
                GuestType::Ct => self.start_container(&job.node, vmid, Some(worker)).await?,
            }
        }
        written?;
        worker.log(format!("INFO: Finished Backup of VM {vmid}"));
        Ok(())
    }

    fn is_running(&self, kind: GuestType, vmid: u32) -> bool {
        let mut state = self.state();
        match kind {
            GuestType::Vm => self.refresh_vm(&mut state, vmid),
            GuestType::Ct => self.refresh_container(&mut state, vmid),
        }
        state.guest_by_id(vmid).is_some_and(|guest| guest.process.is_some())
    }

    /// Sets the lock `backup`; returns the configuration before that.
    fn set_backup_lock(&self, kind: GuestType, node: &str, vmid: u32) -> Result<Config, String> {
        let mut state = self.state();
        let guest = guest_of_kind_mut(&mut state, kind, node, vmid)?;
        guest.ensure_unlocked()?;
        let config = guest.config.clone();
        guest.config.insert("lock".into(), "backup".into());
        Ok(config)
    }

    fn clear_backup_lock(&self, kind: GuestType, node: &str, vmid: u32) {
        if let Ok(guest) = guest_of_kind_mut(&mut self.state(), kind, node, vmid) {
            guest.config.remove("lock");
        }
    }

    async fn write_archive(
        self: &Arc<Self>,
        worker: &Worker,
        job: &BackupRun,
        kind: GuestType,
        vmid: u32,
        config: Config,
    ) -> Result<(), String> {
        let (sizes, span, volid, path) = {
            let mut state = self.state();
            let sizes = volume_sizes(&state, &job.node, &config);
            let bytes = sizes.values().sum();
            let span = self.latency.copy_bytes_per_second.transfer(bytes, &mut state.random);
            let name = archive::file_name(kind, vmid, state.clock.unix(), job.extension);
            let volid = format!("{}:backup/{name}", job.storage);
            let path = state.storage(&job.storage)?.path(&volid);
            (sizes, span, volid, path)
        };
        for (key, size) in &sizes {
            let file = config.get(key).map(|value| Drive::parse(value).file).unwrap_or_default();
            worker.log(format!("INFO: include disk '{key}' '{file}' {}", conf::print_size(*size)));
        }
        worker.log(format!("INFO: creating vzdump archive '{path}'"));
        if !worker.sleep(span).await {
            return Err(INTERRUPTED.into());
        }
        let notes = job.notes.as_ref().map(|text| {
            let name = config.get("name").or_else(|| config.get("hostname"));
            text.replace("{{guestname}}", name.map_or("", String::as_str))
                .replace("{{vmid}}", &vmid.to_string())
                .replace("{{node}}", &job.node)
                .replace("{{cluster}}", &self.name)
        });
        let (disk, size) = {
            let mut state = self.state();
            let disk = state.next_archived_disk_id();
            let bytes: u64 = sizes.values().sum();
            let archive = Archive { kind: kind.api_name().to_owned(), config, sizes, notes, disk };
            let volume = Volume {
                // Images are mostly empty, and the archive leaves empty blocks out.
                size: bytes / 16 + 4096,
                vmid: Some(vmid),
                format: archive::format_of(&volid),
                content: "backup".into(),
                ctime: state.clock.unix(),
                base: None,
                free_error: None,
                snapshots: std::collections::BTreeSet::new(),
            };
            let size = volume.size;
            let text = archive.to_bytes();
            state.storage_mut(&job.storage)?.put_archive(&job.node, &volid, volume, text)?;
            (disk, size)
        };
        self.guest_host.clone_disk(vmid, disk, false).await?;
        worker.log(format!("INFO: archive file size: {}KB", size / 1024));
        Ok(())
    }
}

fn guest_of_kind_mut<'a>(
    state: &'a mut State,
    kind: GuestType,
    node: &str,
    vmid: u32,
) -> Result<&'a mut Guest, String> {
    match kind {
        GuestType::Vm => state.vm_mut(node, vmid),
        GuestType::Ct => state.container_mut(node, vmid),
    }
}

/// The size of each volume that a backup of this configuration contains.
fn volume_sizes(state: &State, node: &str, config: &Config) -> BTreeMap<String, u64> {
    let held = config.iter().filter(|(key, _)| {
        conf::is_drive(key) || *key == "rootfs" || conf::numbered(key, "mp").is_some()
    });
    let volumes = held.filter_map(|(key, value)| {
        let drive = Drive::parse(value);
        let is_mount = conf::numbered(key, "mp").is_some();
        // By default a backup has the drives but not the mount points; `backup` overrides this.
        let is_wanted = match drive.options.get("backup").map(String::as_str) {
            Some(requested) => requested == "1",
            None => !is_mount,
        };
        if !is_wanted || drive.is_cdrom() {
            return None;
        }
        let volume = state.storage_of(&drive.file).ok()?.volume(node, &drive.file)?;
        Some((key.clone(), volume.size))
    });
    volumes.collect()
}

/// `GET /nodes/{node}/vzdump/extractconfig`: the configuration in an archive, as its file.
pub(crate) fn extract_config(ctx: &CallContext) -> Outcome {
    let volid = ctx.text("volume").unwrap_or_default();
    ctx.check_may_use_backup(&volid)?;
    if let Some((_, owner)) = archive::guest_in_name(&volid) {
        ctx.check(&format!("/vms/{owner}"), &["VM.Backup"])?;
    }
    let archive = ctx.cluster.read_archive(&ctx.node, &volid).map_err(failed)?;
    let lines = archive.config.iter().map(|(key, value)| format!("{key}: {value}\n"));
    Ok(Answer::new(lines.collect::<String>().into()))
}

/// `GET /cluster/backup-info/not-backed-up`: the guests that the caller may see and no job backs up
/// (pve-manager, API2/Cluster/BackupInfo.pm).
pub(crate) fn not_backed_up(ctx: &CallContext) -> Outcome {
    let state = ctx.cluster.state();
    let visible = state.all_guests().filter(|g| ctx.has(&format!("/vms/{}", g.vmid), "VM.Audit"));
    let uncovered = visible.filter(|guest| !state.jobs.covers(ctx, &guest.node, guest.vmid));
    let lines = uncovered.map(|guest| {
        let mut line = json!({ "vmid": guest.vmid, "type": guest.kind.api_name() });
        let key = if guest.kind == GuestType::Vm { "name" } else { "hostname" };
        if let Some(name) = guest.config.get(key) {
            line["name"] = name.clone().into();
        }
        line
    });
    Ok(Answer::new(lines.collect::<Vec<Value>>().into()))
}
