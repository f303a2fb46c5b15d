//! Cloning VMs: the checks of the request, the stages of the new configuration, and the rollback.
//!
//! A clone first takes the new VMID with a configuration that contains only the lock `clone`. Then
//! the task copies or links one drive after the other; the configuration is complete after the
//! first one. A failure frees the new volumes and the VMID; a killed task leaves both behind.

use std::sync::Arc;
use std::time::Duration;

use super::conf::{self, Config, Nic, numbered};
use super::context::{CallContext, failed};
use super::locks::{LockMode, LockName};
use super::state::{Guest, GuestType, State};
use super::worker::Worker;
use super::{Cluster, checks};
use crate::call::{ApiError, Outcome};
use crate::spec::PveVersion;

/// The parameters of a clone.
#[derive(Debug, Clone)]
pub(super) struct CloneJob {
    pub(super) node: String,
    pub(super) source: u32,
    pub(super) newid: u32,
    pub(super) full: bool,
    pub(super) name: Option<String>,
    pub(super) description: Option<String>,
    pub(super) storage: Option<String>,
    pub(super) format: Option<String>,
    pub(super) snapshot: Option<String>,
    pub(super) target: String,
    pub(super) pool: Option<String>,
    pub(super) bandwidth_kib: Option<u64>,
    pub(super) running: bool,
}

/// `POST /nodes/{node}/qemu/{vmid}/clone`.
pub(crate) fn clone(ctx: &CallContext) -> Outcome {
    let job = check_clone(ctx)?;
    let cluster = ctx.cluster.clone();
    let (caller, node) = (&ctx.call.caller, ctx.node.clone());
    Ok(ctx.cluster.fork(caller, &node, "qmclone", ctx.vmid, |worker| async move {
        cluster.run_clone(&worker, job).await
    }))
}

fn check_clone(ctx: &CallContext) -> Result<CloneJob, ApiError> {
    let pool = ctx.text("pool");
    if let Some(pool) = pool.as_deref().filter(|pool| !ctx.cluster.rights.pool_exists(pool)) {
        return Err(ApiError::denied(&format!("pool '{pool}' does not exist")));
    }
    let newid = ctx.id("newid").unwrap_or(0);
    let target = ctx.text("target").unwrap_or_else(|| ctx.node.clone());
    let storage = ctx.text("storage");
    let (config, template, running) = {
        let mut state = ctx.cluster.state();
        ctx.cluster.refresh_vm(&mut state, ctx.vmid);
        let guest = state.find_vm(&ctx.node, ctx.vmid).map_err(failed)?;
        guest.ensure_unlocked().map_err(failed)?;
        if !state.nodes.contains_key(&target) {
            return Err(failed(format!("no such cluster node '{target}'")));
        }
        if let Some(storage) = &storage {
            check_target_storage(&state, storage, &ctx.node, &target)?;
        }
        let config = source_config(guest, ctx.text("snapname").as_deref()).map_err(failed)?;
        (config, guest.is_template(), guest.process.is_some())
    };
    let full = if ctx.params().0.contains_key("full") { ctx.flag("full") } else { !template };
    for name in ["storage", "format"] {
        if !full && ctx.params().0.contains_key(name) {
            return Err(failed(format!("parameter '{name}' not allowed for linked clones")));
        }
    }
    check_may_read_drives(ctx, &config, storage.as_deref())?;
    ctx.check_may_use_bridges(&config)?;
    ctx.require_quorum()?;
    let state = ctx.cluster.state();
    if target != ctx.node && uses_local_storage(&state, &config) {
        return Err(failed(format!("can't clone VM to node '{target}' (VM uses local storage)")));
    }
    // Proxmox looks into the directory of this node only: a VMID that another node has fails in the
    // task.
    if state.vms.get(&newid).is_some_and(|other| other.node == ctx.node) {
        return Err(failed(format!("unable to create VM {newid}: config file already exists")));
    }
    if !full {
        check_linkable(&state, &config, ctx.text("snapname").is_some()).map_err(failed)?;
    }
    Ok(CloneJob {
        node: ctx.node.clone(),
        source: ctx.vmid,
        newid,
        full,
        name: ctx.text("name"),
        description: ctx.text("description").map(|text| conf::stored_description(&text).to_owned()),
        storage,
        format: ctx.text("format"),
        snapshot: ctx.text("snapname"),
        target,
        pool,
        bandwidth_kib: ctx.number("bwlimit").filter(|limit| *limit > 0),
        running,
    })
}

fn source_config(guest: &Guest, snapshot: Option<&str>) -> Result<Config, String> {
    match snapshot {
        None => Ok(guest.config.clone()),
        Some(name) => match guest.snapshots.get(name) {
            Some(snapshot) => Ok(snapshot.config.clone()),
            None => Err(format!("snapshot '{name}' does not exist")),
        },
    }
}

fn check_target_storage(
    state: &State,
    storage: &str,
    node: &str,
    target: &str,
) -> Result<(), ApiError> {
    let found = state.storage(storage).map_err(ApiError::failed)?;
    if !found.accepts("images") {
        let text = format!("storage '{storage}' does not support vm images");
        return Err(ApiError::parameter("storage", text));
    }
    if !found.available_on(node) {
        let text = format!("storage '{storage}' is not available on node '{node}'");
        return Err(ApiError::failed(text));
    }
    if target != node && !found.spec.shared {
        let text = format!("can't clone to non-shared storage '{storage}'");
        return Err(ApiError::failed(text));
    }
    Ok(())
}

fn check_may_read_drives(
    ctx: &CallContext,
    config: &Config,
    storage: Option<&str>,
) -> Result<(), ApiError> {
    for (_, drive) in conf::drives(config) {
        let Some(own) = drive.storage() else { continue };
        if drive.is_cdrom() && !drive.is_cloudinit() {
            ctx.check_any(
                &format!("/storage/{own}"),
                &["Datastore.Audit", "Datastore.AllocateSpace"],
            )?;
        } else {
            let storage = storage.unwrap_or(own);
            ctx.check(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
        }
    }
    Ok(())
}

fn uses_local_storage(state: &State, config: &Config) -> bool {
    conf::drives(config)
        .iter()
        .filter_map(|(_, drive)| drive.storage())
        .any(|name| state.storages.get(name).is_none_or(|storage| !storage.spec.shared))
}

fn check_linkable(state: &State, config: &Config, snapshot: bool) -> Result<(), String> {
    for (key, drive) in conf::drives(config) {
        if drive.is_cdrom() || drive.storage().is_none() || key.starts_with("tpmstate") {
            continue;
        }
        if !state.storage_of(&drive.file)?.can_link(&drive.file, snapshot) {
            let volid = &drive.file;
            return Err(format!("Linked clone feature is not supported for '{volid}' ({key})"));
        }
    }
    Ok(())
}

impl Cluster {
    async fn run_clone(self: &Arc<Self>, worker: &Worker, job: CloneJob) -> Result<(), String> {
        worker.catch_signals();
        if self.version == PveVersion::V9_2 {
            let (source, newid) = (job.source, job.newid);
            worker.log(format!("creating a clone of VM {source} with ID {newid}"));
        }
        let wait = Duration::from_secs(1);
        // A running source is locked exclusively; clones of a stopped source share the lock.
        let mode = if job.running { LockMode::Exclusive } else { LockMode::Shared };
        let source = LockName::vm(&job.node, job.source);
        let _source = self.lock(source, mode, wait, Some(worker)).await?;
        let target = LockName::vm(&job.node, job.newid);
        let _target = self.lock(target, LockMode::Exclusive, wait, Some(worker)).await?;
        let source = self.reserve_clone_id(&job)?;
        let mut created = Vec::new();
        let copied = match self.copy_drives(worker, &job, source, &mut created).await {
            Ok(()) => self.guest_host.clone_disk(job.source, job.newid, !job.full).await,
            Err(error) => Err(error),
        };
        if let Err(error) = copied {
            self.free_volumes(&job.node, &created, Some(worker)).await;
            self.state().vms.remove(&job.newid);
            return Err(format!("clone failed: {error}"));
        }
        self.finish_clone(&job)?;
        match &job.pool {
            Some(pool) => self.join_pool(pool, job.newid, worker).await,
            None => Ok(()),
        }
    }

    /// Takes the new VMID with a configuration that contains only a lock; returns the configuration
    /// of the source.
    fn reserve_clone_id(&self, job: &CloneJob) -> Result<Config, String> {
        let mut state = self.state();
        let newid = job.newid;
        let source = state.vm(&job.node, job.source)?;
        source.ensure_unlocked()?;
        let config = source_config(source, job.snapshot.as_deref())?;
        if let Some(other) = state.guest_by_id(newid) {
            if other.node == job.node && other.kind == GuestType::Vm {
                return Err(format!("unable to create VM {newid}: config file already exists"));
            }
            let file = format!("/etc/pve/nodes/{}/qemu-server/{newid}.conf", job.node);
            return Err(format!("close (rename) atomic file '{file}' failed: File exists"));
        }
        let now = state.clock.now();
        let locked = Config::from([("lock".to_owned(), "clone".to_owned())]);
        state.vms.insert(newid, Guest::new(newid, &job.node, locked, now));
        Ok(config)
    }

    async fn copy_drives(
        self: &Arc<Self>,
        worker: &Worker,
        job: &CloneJob,
        source: Config,
        created: &mut Vec<String>,
    ) -> Result<(), String> {
        let drives = conf::drives(&source);
        let mut config = self.clone_config(job, source);
        for (key, drive) in drives {
            let volume = drive.storage().is_some() && checks::content_of(&drive.file) == "images";
            if volume {
                let copy = self.copy_drive(worker, job, &key, &drive).await?;
                created.push(copy.file.clone());
                config.insert(key, copy.print());
            } else {
                config.insert(key, drive.print());
            }
            // After the first disk the whole configuration is in place, still locked.
            self.write_clone(job, &config)?;
        }
        self.write_clone(job, &config)
    }

    fn write_clone(&self, job: &CloneJob, config: &Config) -> Result<(), String> {
        let mut state = self.state();
        state.vm_mut(&job.node, job.newid)?.config = config.clone();
        Ok(())
    }

    /// The configuration of the clone without its drives, with new MAC addresses and ids.
    fn clone_config(&self, job: &CloneJob, source: Config) -> Config {
        let mut state = self.state();
        let mut config = Config::new();
        for (key, value) in source {
            let dropped = [
                "template",
                "parent",
                "snaptime",
                "vmstate",
                "lock",
                "runningmachine",
                "runningcpu",
            ]
            .contains(&key.as_str());
            if dropped || conf::is_drive(&key) || numbered(&key, "unused").is_some() {
                continue;
            }
            let value = match key.as_str() {
                "vmgenid" => state.random.uuid(),
                "smbios1" => with_new_uuid(&value, &state.random.uuid()),
                net if numbered(net, "net").is_some() => match Nic::parse(&value) {
                    Some(nic) => Nic { mac: Some(state.random.mac()), ..nic }.print(),
                    None => value,
                },
                _ => value,
            };
            config.insert(key, value);
        }
        let default = match config.get("name") {
            Some(name) => format!("Copy-of-VM-{name}"),
            None => format!("Copy-of-VM-{}", job.source),
        };
        config.insert("name".into(), job.name.clone().unwrap_or(default));
        if let Some(description) = &job.description {
            config.insert("description".into(), description.clone());
        }
        config.insert("lock".into(), "clone".into());
        config
    }

    /// Removes the lock and moves the clone to its target node.
    fn finish_clone(&self, job: &CloneJob) -> Result<(), String> {
        let mut state = self.state();
        let guest = state.vm_mut(&job.node, job.newid)?;
        guest.config.remove("lock");
        if job.target != job.node {
            guest.node.clone_from(&job.target);
            guest.broadcast.last = None;
        }
        Ok(())
    }
}

pub(super) fn with_new_uuid(smbios: &str, uuid: &str) -> String {
    let parts = smbios.split(',').map(|part| match part.split_once('=') {
        Some(("uuid", _)) => format!("uuid={uuid}"),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join(",")
}
