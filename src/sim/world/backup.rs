//! Backups: what `vzdump` writes onto a storage, and which guests no job covers.
//!
//! A call forks one task for all its guests. Each guest is locked with `backup`, its bytes take
//! their time, and a volume of content `backup` appears under the name that Proxmox gives it. What
//! is in the volume is in `archive`; `restore` and `lxc::restore` make guests of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::Cluster;
use super::archive::{self, Archive};
use super::ask::{Ask, failed};
use super::conf::{self, Config, Drive};
use super::jobs;
use super::lock::{LockName, Mode};
use super::sections;
use super::state::{Guest, Kind, State};
use super::storage::Volume;
use super::worker::Worker;
use crate::call::{Answer, ApiError, Outcome};

/// Parameters with effects that are not simulated.
const UNSERVED: &[&str] = &["dumpdir", "script", "stdout", "stop", "prune-backups", "protected"];

/// What a call asks of every guest.
#[derive(Debug, Clone)]
struct Job {
    node: String,
    storage: String,
    mode: String,
    ending: &'static str,
    notes: Option<String>,
}

/// `POST /nodes/{node}/vzdump`: one task; `OK` where the guests are on other nodes.
pub fn dump(ask: &Ask) -> Outcome {
    jobs::may_set(ask, &[])?;
    let mut wish = sections::stored(ask, &["node"]);
    jobs::sound(&mut wish, true).map_err(|(name, text)| ApiError::parameter(name, text))?;
    let keeps_all = ask.text("prune-backups").is_some_and(|policy| policy == "keep-all=1");
    let off = |name: &str| !ask.flag(name) && matches!(name, "stdout" | "stop" | "protected");
    for name in UNSERVED {
        if ask.params().0.contains_key(*name)
            && !off(name)
            && !(keeps_all && *name == "prune-backups")
        {
            return Err(ask.unserved(name));
        }
    }
    let storage = ask.text("storage").unwrap_or_else(|| "local".into());
    let all = conf::flag(&wish, "all");
    let vmids = chosen(ask, all);
    if vmids.is_empty() && !all {
        return Ok(Answer::new("OK".into()));
    }
    ask.check(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
    let job = Job {
        node: ask.node.clone(),
        storage,
        mode: ask.text("mode").unwrap_or_else(|| "snapshot".into()),
        ending: match ask.text("compress").as_deref() {
            Some("gzip") => ".gz",
            Some("lzo" | "1") => ".lzo",
            Some("zstd") => ".zst",
            _ => "",
        },
        notes: ask.text("notes-template"),
    };
    let denied: Vec<u32> = vmids
        .iter()
        .copied()
        .filter(|vmid| !ask.has(&format!("/vms/{vmid}"), "VM.Backup"))
        .collect();
    let id = match vmids.as_slice() {
        [one] => one.to_string(),
        _ => String::new(),
    };
    let cluster = ask.cluster.clone();
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "vzdump", id, |worker| async move {
        cluster.takes_backups(&job.storage)?;
        let _alone = cluster.lock(one_job(&job.node), Mode::Exclusive, WAIT, Some(&worker)).await?;
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

/// What a stopped job's guest ends with.
const INTERRUPTED: &str = "interrupted by signal";
/// How long a job waits for another one of its node: three hours, `lockwait`'s default.
const WAIT: std::time::Duration = std::time::Duration::from_secs(180 * 60);

/// One job at a time runs on a node (pve-manager, VZDump.pm, getlock).
fn one_job(node: &str) -> LockName {
    LockName {
        key: format!("vzdump:{node}"),
        busy: "can't acquire lock '/var/run/vzdump.lock' - got timeout".into(),
        waiting: "INFO: trying to get global lock - waiting...".into(),
        got: Some("INFO: got global lock"),
    }
}

/// The guests of a call on its node, and those that are nowhere, which fail in the task.
fn chosen(ask: &Ask, all: bool) -> Vec<u32> {
    let list = |name: &str| -> Vec<u32> {
        let text = ask.text(name).unwrap_or_default();
        text.split([',', ';', ' ']).filter_map(|word| word.parse().ok()).collect()
    };
    let (named, left_out) = (list("vmid"), list("exclude"));
    let pool = ask.text("pool");
    let state = ask.cluster.state();
    let here = state.everyone().filter(|guest| guest.node == ask.node).map(|guest| guest.vmid);
    let mut vmids: Vec<u32> = if let Some(pool) = &pool {
        here.filter(|vmid| ask.cluster.rights.pool_of(*vmid).as_ref() == Some(pool)).collect()
    } else if all {
        here.collect()
    } else {
        let elsewhere =
            |vmid: &u32| state.holder(*vmid).is_some_and(|guest| guest.node != ask.node);
        named.into_iter().filter(|vmid| !elsewhere(vmid)).collect()
    };
    vmids.retain(|vmid| !left_out.contains(vmid));
    vmids.sort_unstable();
    vmids.dedup();
    vmids
}

impl Cluster {
    fn takes_backups(&self, storage: &str) -> Result<(), String> {
        let state = self.state();
        let why = match state.storage(storage) {
            Ok(found) if found.takes("backup") => return Ok(()),
            Ok(_) => format!("can't use storage '{storage}' for backups - wrong content type"),
            Err(error) => error,
        };
        Err(format!("could not get storage information for '{storage}': {why}"))
    }

    async fn back_up(
        self: &Arc<Self>,
        worker: &Worker,
        job: &Job,
        vmid: u32,
    ) -> Result<(), String> {
        let Some(kind) = self.state().holder(vmid).map(|guest| guest.kind) else {
            return Err(format!("unable to find VM '{vmid}'"));
        };
        worker.log(format!("INFO: Starting Backup of VM {vmid} ({})", kind.name()));
        let running = self.is_running(kind, vmid);
        let status = if running { "running" } else { "stopped" };
        worker.log(format!("INFO: status = {status}"));
        of_kind(&mut self.state(), kind, &job.node, vmid)?.unlocked()?;
        let stops = running && job.mode == "stop";
        if stops {
            worker.log("INFO: stopping virtual guest");
            match kind {
                Kind::Vm => self.shut_one(worker, &job.node, vmid, None, true).await?,
                Kind::Ct => self.halt_container(&job.node, vmid).await?,
            }
        }
        let mode = if running { job.mode.as_str() } else { "stop" };
        worker.log(format!("INFO: backup mode: {mode}"));
        let written = match self.mark(kind, &job.node, vmid) {
            Ok(config) => {
                let written = self.write_archive(worker, job, kind, vmid, config).await;
                self.unmark(kind, &job.node, vmid);
                written
            }
            Err(error) => Err(error),
        };
        if stops {
            worker.log("INFO: restarting vm");
            match kind {
                Kind::Vm => self.launch(&job.node, vmid, Some(worker)).await?,
                Kind::Ct => self.launch_container(&job.node, vmid, Some(worker)).await?,
            }
        }
        written?;
        worker.log(format!("INFO: Finished Backup of VM {vmid}"));
        Ok(())
    }

    fn is_running(&self, kind: Kind, vmid: u32) -> bool {
        let mut state = self.state();
        match kind {
            Kind::Vm => self.refresh(&mut state, vmid),
            Kind::Ct => self.look_at_container(&mut state, vmid),
        }
        state.holder(vmid).is_some_and(|guest| guest.run.is_some())
    }

    /// Locks a guest for its backup; its configuration of before.
    fn mark(&self, kind: Kind, node: &str, vmid: u32) -> Result<Config, String> {
        let mut state = self.state();
        let guest = of_kind(&mut state, kind, node, vmid)?;
        guest.unlocked()?;
        let config = guest.config.clone();
        guest.config.insert("lock".into(), "backup".into());
        Ok(config)
    }

    fn unmark(&self, kind: Kind, node: &str, vmid: u32) {
        if let Ok(guest) = of_kind(&mut self.state(), kind, node, vmid) {
            guest.config.remove("lock");
        }
    }

    async fn write_archive(
        self: &Arc<Self>,
        worker: &Worker,
        job: &Job,
        kind: Kind,
        vmid: u32,
        config: Config,
    ) -> Result<(), String> {
        let (sizes, span, volid, path) = {
            let mut state = self.state();
            let sizes = sizes(&state, &job.node, &config);
            let bytes = sizes.values().sum();
            let span = self.latency.copy_bytes_per_second.transfer(bytes, &mut state.dice);
            let name = archive::name(kind, vmid, state.clock.unix(), job.ending);
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
        let mut state = self.state();
        let disk = state.next_kept_disk();
        let bytes: u64 = sizes.values().sum();
        let archive = Archive { kind: kind.name().to_owned(), config, sizes, notes, disk };
        let volume = Volume {
            // Images are mostly empty, and an archive leaves that out.
            size: bytes / 16 + 4096,
            vmid: Some(vmid),
            format: archive::format(&volid),
            content: "backup".into(),
            ctime: state.clock.unix(),
            base: None,
            stuck: None,
            snapshots: std::collections::BTreeSet::new(),
        };
        let size = volume.size;
        let text = archive.text();
        state.storage_mut(&job.storage)?.put_archive(&job.node, &volid, volume, text)?;
        drop(state);
        self.guests.clone_disk(vmid, disk);
        worker.log(format!("INFO: archive file size: {}KB", size / 1024));
        Ok(())
    }
}

fn of_kind<'a>(
    state: &'a mut State,
    kind: Kind,
    node: &str,
    vmid: u32,
) -> Result<&'a mut Guest, String> {
    match kind {
        Kind::Vm => state.guest_mut(node, vmid),
        Kind::Ct => state.container_mut(node, vmid),
    }
}

/// The sizes of the volumes that a backup of this configuration holds.
fn sizes(state: &State, node: &str, config: &Config) -> BTreeMap<String, u64> {
    let held = config.iter().filter(|(key, _)| {
        conf::is_drive(key) || *key == "rootfs" || conf::numbered(key, "mp").is_some()
    });
    let volumes = held.filter_map(|(key, value)| {
        let drive = Drive::parse(value);
        let is_mount = conf::numbered(key, "mp").is_some();
        // Mount points are left out unless they say otherwise, drives where they say so.
        let is_wanted = match drive.options.get("backup").map(String::as_str) {
            Some(wish) => wish == "1",
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
pub fn extract(ask: &Ask) -> Outcome {
    let volid = ask.text("volume").unwrap_or_default();
    ask.may_use_backup(&volid)?;
    if let Some((_, owner)) = archive::owner(&volid) {
        ask.check(&format!("/vms/{owner}"), &["VM.Backup"])?;
    }
    let archive = ask.cluster.archive(&ask.node, &volid).map_err(failed)?;
    let lines = archive.config.iter().map(|(key, value)| format!("{key}: {value}\n"));
    Ok(Answer::new(lines.collect::<String>().into()))
}

/// `GET /cluster/backup-info/not-backed-up`: guests that the caller may see and no job backs up
/// (pve-manager, API2/Cluster/BackupInfo.pm).
pub fn not_backed_up(ask: &Ask) -> Outcome {
    let state = ask.cluster.state();
    let seen = state.everyone().filter(|g| ask.has(&format!("/vms/{}", g.vmid), "VM.Audit"));
    let missed = seen.filter(|guest| !state.jobs.cover(ask, &guest.node, guest.vmid));
    let lines = missed.map(|guest| {
        let mut line = json!({ "vmid": guest.vmid, "type": guest.kind.name() });
        let key = if guest.kind == Kind::Vm { "name" } else { "hostname" };
        if let Some(name) = guest.config.get(key) {
            line["name"] = name.clone().into();
        }
        line
    });
    Ok(Answer::new(lines.collect::<Vec<Value>>().into()))
}
