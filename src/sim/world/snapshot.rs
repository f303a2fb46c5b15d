//! Snapshots of VMs: list, create, describe, delete and roll back, with or without memory.
//!
//! A create sets the lock `snapshot`, saves the memory if asked, then marks each volume. A rollback
//! stops the VM and restores the configuration; a snapshot with memory resumes the VM. Checks
//! shared with containers are `check_may_snapshot` and `check_may_roll_back`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Cluster;
use super::conf::{self, Config};
use super::context::{CallContext, failed};
use super::state::{Guest, GuestType, Snapshot, State};
use super::storage::{VolumePurpose, VolumeRequest};
use super::worker::Worker;
use crate::call::{Answer, ApiError, Outcome};

/// Keys of the snapshot itself, which a rollback does not restore.
const SNAPSHOT_KEYS: &[&str] = &["snaptime", "vmstate", "parent", "description", "runningmachine"];

/// `GET …/snapshot`.
pub(crate) fn list(ctx: &CallContext) -> Outcome {
    let mut state = ctx.cluster.state();
    ctx.cluster.refresh_vm(&mut state, ctx.vmid);
    let guest = state.vm(&ctx.node, ctx.vmid).map_err(ApiError::failed)?;
    Ok(Answer::new(snapshot_entries(guest).into()))
}

/// The snapshots of a guest and its present state as a list shows them; those of containers have no
/// memory.
pub(super) fn snapshot_entries(guest: &Guest) -> Vec<Value> {
    let mut entries: Vec<Value> = Vec::new();
    for (name, snapshot) in &guest.snapshots {
        let config = &snapshot.config;
        let mut entry = json!({
            "name": name, "snaptime": snapshot.time,
            "description": config.get("description").cloned().unwrap_or_default(),
        });
        if guest.kind == GuestType::Vm {
            entry["vmstate"] = u8::from(snapshot.vmstate.is_some()).into();
        }
        if let Some(parent) = config.get("parent") {
            entry["parent"] = parent.clone().into();
        }
        entries.push(entry);
    }
    let mut current = json!({
        "name": "current", "description": "You are here!", "digest": guest.digest(),
        "running": u8::from(guest.process.is_some()),
    });
    if let Some(parent) = guest.config.get("parent") {
        current["parent"] = parent.clone().into();
    }
    entries.push(current);
    entries
}

/// Refuses a snapshot of this name, independent of the storages.
pub(super) fn check_may_snapshot(guest: &Guest, name: &str) -> Result<(), String> {
    if guest.is_template() {
        return Err("you can't take a snapshot if it's a template".into());
    }
    guest.ensure_unlocked()?;
    if guest.snapshots.contains_key(name) {
        return Err(format!("snapshot name '{name}' already used"));
    }
    Ok(())
}

/// Refuses a rollback; `volumes` returns the volumes of a configuration.
pub(super) fn check_may_roll_back(
    state: &State,
    guest: &Guest,
    name: &str,
    volumes: impl Fn(&Config) -> Vec<(String, conf::Drive)>,
) -> Result<(), String> {
    let Some(snapshot) = guest.snapshots.get(name) else { return Err(missing_snapshot(name)) };
    guest.ensure_unlocked()?;
    // ZFS can only roll back to the latest snapshot.
    let latest = guest.config.get("parent").is_some_and(|parent| parent == name);
    for (_, drive) in volumes(&snapshot.config) {
        if state.storage_of(&drive.file)?.spec.kind == "zfspool" && !latest {
            let volid = &drive.file;
            return Err(format!(
                "can't rollback, '{name}' is not most recent snapshot on '{volid}'"
            ));
        }
    }
    Ok(())
}

/// Deletes a snapshot; its children get its parent.
pub(super) fn remove_snapshot(guest: &mut Guest, name: &str) -> Result<Snapshot, String> {
    let Some(removed) = guest.snapshots.remove(name) else { return Err(missing_snapshot(name)) };
    let parent = removed.config.get("parent").cloned();
    let children = guest.snapshots.values_mut().map(|snapshot| &mut snapshot.config);
    for config in children.chain(std::iter::once(&mut guest.config)) {
        if config.get("parent").is_some_and(|old| old == name) {
            config.remove("parent");
            config.extend(parent.clone().map(|parent| ("parent".to_owned(), parent)));
        }
    }
    Ok(removed)
}

/// The error of an unknown snapshot.
pub(super) fn missing_snapshot(name: &str) -> String {
    format!("snapshot '{name}' does not exist")
}

/// `GET …/snapshot/{snapname}/config`.
pub(crate) fn read(ctx: &CallContext) -> Outcome {
    let name = ctx.text("snapname").unwrap_or_default();
    let state = ctx.cluster.state();
    let guest = state.vm(&ctx.node, ctx.vmid).map_err(ApiError::failed)?;
    match guest.snapshots.get(&name) {
        Some(snapshot) => Ok(Answer::new(conf::json_fields(&snapshot.config).into())),
        None => Err(ApiError::failed(missing_snapshot(&name))),
    }
}

/// `PUT …/snapshot/{snapname}/config`: its description.
pub(crate) async fn write(ctx: &CallContext) -> Outcome {
    let name = ctx.text("snapname").unwrap_or_default();
    let _file = ctx.cluster.vm_write_lock(&ctx.node, ctx.vmid, 10, None).await.map_err(failed)?;
    let mut state = ctx.cluster.state();
    let guest = state.vm_mut(&ctx.node, ctx.vmid).map_err(failed)?;
    guest.ensure_unlocked().map_err(failed)?;
    let Some(snapshot) = guest.snapshots.get_mut(&name) else {
        return Err(failed(missing_snapshot(&name)));
    };
    if let Some(description) = ctx.text("description") {
        snapshot
            .config
            .insert("description".into(), conf::stored_description(&description).to_owned());
    }
    Ok(Answer::null())
}

/// `POST …/snapshot`.
pub(crate) fn create(ctx: &CallContext) -> Outcome {
    let name = ctx.text("snapname").unwrap_or_default();
    if matches!(name.as_str(), "current" | "pending") {
        let text = format!("unable to use snapshot name '{name}' (reserved name)");
        return Err(ApiError::failed(text));
    }
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    // Proxmox loads the configuration of a VM before it forks the worker (qemu-server,
    // API2/Qemu.pm:6218); it does not for a container.
    cluster.state().vm(&node, vmid).map_err(failed)?;
    let description =
        ctx.text("description").map(|text| conf::stored_description(&text).to_owned());
    let memory = ctx.flag("vmstate");
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "qmsnapshot", vmid, |worker| async move {
        let file = cluster.vm_write_lock(&node, vmid, 10, Some(&worker)).await?;
        let running = cluster.begin_snapshot(&node, vmid, &name)?;
        drop(file);
        let taken =
            cluster.take_snapshot(&worker, vmid, &name, description, memory && running).await;
        let mut state = cluster.state();
        state.vm_mut(&node, vmid)?.config.remove("lock");
        taken
    }))
}

impl Cluster {
    fn begin_snapshot(&self, node: &str, vmid: u32, name: &str) -> Result<bool, String> {
        let mut state = self.state();
        self.refresh_vm(&mut state, vmid);
        let guest = state.vm(node, vmid)?;
        check_may_snapshot(guest, name)?;
        for (_, drive) in disks(&guest.config) {
            let storage = state.storage_of(&drive.file)?;
            let format = storage.volume(node, &drive.file).map(|volume| volume.format.as_str());
            if !storage.supports_snapshots(format.unwrap_or("raw")) {
                return Err("snapshot feature is not available".into());
            }
        }
        let running = guest.process.is_some();
        state.vm_mut(node, vmid)?.config.insert("lock".into(), "snapshot".into());
        Ok(running)
    }

    async fn take_snapshot(
        self: &Arc<Self>,
        worker: &Worker,
        vmid: u32,
        name: &str,
        description: Option<String>,
        memory: bool,
    ) -> Result<(), String> {
        let node = worker.node.clone();
        let config = self.state().vm(&node, vmid)?.config.clone();
        let running = self.vm_process(&node, vmid)?.is_some();
        let vmstate = if memory { Some(self.save_memory(worker, vmid, name).await?) } else { None };
        if running && !memory && conf::agent_enabled(&config) && !self.agent_answers(vmid).await {
            worker.sleep(std::time::Duration::from_secs(3)).await;
            worker.log(format!(
                "QEMU Guest Agent is not running - VM {vmid} qmp command 'guest-ping' failed - got \
                 timeout"
            ));
        }
        for (key, drive) in disks(&config) {
            worker.log(format!("snapshotting 'drive-{key}' ({})", drive.file));
            self.simulate_work(&node, self.latency.snapshot, None).await;
            let mut state = self.state();
            let storage = drive.storage().unwrap_or_default().to_owned();
            if let Some(volume) = state.storage_mut(&storage)?.volume_mut(&node, &drive.file) {
                volume.snapshots.insert(name.to_owned());
            }
        }
        self.guest_host.snapshot(vmid, name, memory).await?;
        let mut state = self.state();
        let time = state.clock.unix();
        let guest = state.vm_mut(&node, vmid)?;
        let mut snapshot_config = config;
        snapshot_config.remove("lock");
        snapshot_config.remove("description");
        snapshot_config.insert("snaptime".into(), time.to_string());
        snapshot_config.extend(description.map(|text| ("description".to_owned(), text)));
        snapshot_config.extend(vmstate.clone().map(|volid| ("vmstate".to_owned(), volid)));
        let snapshot = Snapshot { config: snapshot_config, time, vmstate, boots: guest.boots };
        guest.snapshots.insert(name.to_owned(), snapshot);
        guest.config.insert("parent".into(), name.to_owned());
        Ok(())
    }

    /// Saves the memory of a running VM to a volume. While it is written, the volume is twice the
    /// memory plus 500 MiB.
    async fn save_memory(
        self: &Arc<Self>,
        worker: &Worker,
        vmid: u32,
        name: &str,
    ) -> Result<String, String> {
        let node = worker.node.clone();
        let (storage, memory) = {
            let state = self.state();
            let config = &state.vm(&node, vmid)?.config;
            let wanted = config.get("vmstatestorage").cloned();
            let own = disks(config).into_iter().find_map(|(_, d)| d.storage().map(str::to_owned));
            (wanted.or(own).unwrap_or_else(|| "local".into()), conf::memory_bytes(config))
        };
        worker.log("saving VM state and RAM using storage '".to_owned() + &storage + "'");
        let size = 2 * memory + (500 << 20);
        let purpose = VolumePurpose::State(name.to_owned());
        let request = VolumeRequest { vmid, purpose, format: None, size };
        let created =
            self.with_storage_lock(&node, &storage, None, self.latency.allocate, |state| {
                let now = state.clock.unix();
                state.storage_mut(&storage)?.allocate(&node, &request, now)
            });
        let (volid, _) = created.await?;
        let span = {
            let mut state = self.state();
            self.latency.memory_bytes_per_second.transfer(memory, &mut state.random)
        };
        tokio::time::sleep(span).await;
        worker.log("completed saving the VM state");
        let mut state = self.state();
        if let Some(volume) = state.storage_mut(&storage)?.volume_mut(&node, &volid) {
            volume.size = memory;
        }
        Ok(volid)
    }
}

impl Cluster {
    /// Takes a snapshot without a task and without memory; an unknown VM has none.
    pub(super) async fn snapshot_by_hand(&self, vmid: u32, name: &str) {
        if self.guest_host.snapshot(vmid, name, false).await.is_err() {
            return;
        }
        let mut state = self.state();
        let time = state.clock.unix();
        let Some(node) = state.guest_by_id(vmid).map(|guest| guest.node.clone()) else { return };
        let Some(guest) = state.guest_by_id_mut(vmid) else { return };
        let mut config = guest.config.clone();
        config.insert("snaptime".into(), time.to_string());
        let drives = disks(&config);
        let snapshot = Snapshot { config, time, vmstate: None, boots: guest.boots };
        guest.snapshots.insert(name.to_owned(), snapshot);
        guest.config.insert("parent".into(), name.to_owned());
        for (_, drive) in drives {
            let storage = drive.storage().unwrap_or_default().to_owned();
            let Ok(storage) = state.storage_mut(&storage) else { continue };
            if let Some(volume) = storage.volume_mut(&node, &drive.file) {
                volume.snapshots.insert(name.to_owned());
            }
        }
    }
}

fn disks(config: &Config) -> Vec<(String, conf::Drive)> {
    let drives = conf::drives(config).into_iter();
    drives.filter(|(_, drive)| !drive.is_cdrom() && drive.storage().is_some()).collect()
}

/// `DELETE …/snapshot/{snapname}`.
pub(crate) fn delete(ctx: &CallContext) -> Outcome {
    let name = ctx.text("snapname").unwrap_or_default();
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "qmdelsnapshot", vmid, |worker| async move {
        let file = cluster.vm_write_lock(&node, vmid, 10, Some(&worker)).await?;
        {
            let mut state = cluster.state();
            let guest = state.vm_mut(&node, vmid)?;
            guest.ensure_unlocked()?;
            if !guest.snapshots.contains_key(&name) {
                return Err(missing_snapshot(&name));
            }
            guest.config.insert("lock".into(), "snapshot-delete".into());
        }
        drop(file);
        let vmstate = cluster.delete_snapshot(&worker, vmid, &name).await?;
        if let Some(volid) = vmstate {
            cluster.free_volume(&node, &volid, Some(&worker)).await?;
        }
        Ok(())
    }))
}

impl Cluster {
    async fn delete_snapshot(
        &self,
        worker: &Worker,
        vmid: u32,
        name: &str,
    ) -> Result<Option<String>, String> {
        let node = worker.node.clone();
        self.simulate_work(&node, self.latency.snapshot, None).await;
        self.guest_host.delete_snapshot(vmid, name).await?;
        let mut state = self.state();
        let drives = disks(&state.vm(&node, vmid)?.config);
        for (_, drive) in drives {
            let storage = drive.storage().unwrap_or_default().to_owned();
            if let Some(volume) = state.storage_mut(&storage)?.volume_mut(&node, &drive.file) {
                volume.snapshots.remove(name);
            }
        }
        let guest = state.vm_mut(&node, vmid)?;
        guest.config.remove("lock");
        Ok(remove_snapshot(guest, name)?.vmstate)
    }
}

/// `POST …/snapshot/{snapname}/rollback`.
pub(crate) fn rollback(ctx: &CallContext) -> Outcome {
    let name = ctx.text("snapname").unwrap_or_default();
    let start = ctx.flag("start");
    if start {
        ctx.check(&format!("/vms/{}", ctx.vmid), &["VM.PowerMgmt"])?;
    }
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "qmrollback", vmid, |worker| async move {
        let _file = cluster.vm_write_lock(&node, vmid, 10, Some(&worker)).await?;
        cluster.begin_rollback(&node, vmid, &name)?;
        if cluster.vm_process(&node, vmid)?.is_some() {
            cluster.stop_vm(&node, vmid).await?;
        }
        cluster.simulate_work(&node, cluster.latency.snapshot, None).await;
        cluster.guest_host.rollback(vmid, &name).await?;
        let memory = {
            let mut state = cluster.state();
            let generation = state.random.uuid();
            restore_config(state.vm_mut(&node, vmid)?, &name, generation)?
        };
        match memory {
            Some(memory) => {
                let span = {
                    let mut state = cluster.state();
                    let rate = cluster.latency.memory_bytes_per_second;
                    rate.transfer(memory, &mut state.random)
                };
                tokio::time::sleep(span).await;
                cluster.boot_vm(&node, vmid, false, Some(&worker)).await
            }
            None if start => cluster.start_vm(&node, vmid, Some(&worker)).await,
            None => Ok(()),
        }
    }))
}

impl Cluster {
    fn begin_rollback(&self, node: &str, vmid: u32, name: &str) -> Result<(), String> {
        let mut state = self.state();
        check_may_roll_back(&state, state.vm(node, vmid)?, name, disks)?;
        state.vm_mut(node, vmid)?.config.insert("lock".into(), "rollback".into());
        Ok(())
    }
}

/// Restores the configuration of a VM; returns the size of the memory to restore, if any.
///
/// A VM with a generation id gets a new one, so that its system notices the rollback (qemu-server,
/// QemuConfig.pm).
fn restore_config(
    guest: &mut Guest,
    name: &str,
    generation: String,
) -> Result<Option<u64>, String> {
    let Some(snapshot) = guest.snapshots.get(name) else { return Err(missing_snapshot(name)) };
    let mut config = snapshot.config.clone();
    config.retain(|key, _| !SNAPSHOT_KEYS.contains(&key.as_str()));
    // A rollback keeps the unused volumes of the present.
    let unused = guest.config.iter().filter(|(key, _)| conf::numbered(key, "unused").is_some());
    config.extend(unused.map(|(key, value)| (key.clone(), value.clone())));
    config.extend(guest.config.get("description").map(|d| ("description".to_owned(), d.clone())));
    config.insert("parent".into(), name.to_owned());
    if let Some(value) = config.get_mut("vmgenid").filter(|value| *value != "0") {
        *value = generation;
    }
    let memory = snapshot.vmstate.is_some().then(|| conf::memory_bytes(&config));
    guest.boots = snapshot.boots;
    guest.pending.clear();
    guest.config = config;
    Ok(memory)
}
