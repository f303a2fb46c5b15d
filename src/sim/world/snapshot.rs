//! Snapshots: list, take, drop, describe, roll back; with the memory of running guests.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Cluster;
use super::ask::{Ask, failed};
use super::conf::{self, Config};
use super::state::{Guest, Kind, Snapshot, State};
use super::storage::{Order, Purpose};
use super::worker::Worker;
use crate::call::{Answer, ApiError, Outcome};

/// Keys that belong to a snapshot, not to the configuration of then.
const OWN_KEYS: &[&str] = &["snaptime", "vmstate", "parent", "description", "runningmachine"];

/// `GET …/snapshot`.
pub fn list(ask: &Ask) -> Outcome {
    let mut state = ask.cluster.state();
    ask.cluster.refresh(&mut state, ask.vmid);
    let guest = state.guest(&ask.node, ask.vmid).map_err(ApiError::failed)?;
    Ok(Answer::new(entries(guest).into()))
}

/// A guest's snapshots and its present, as lists show them; containers have no memory to tell of.
pub(super) fn entries(guest: &Guest) -> Vec<Value> {
    let mut entries: Vec<Value> = Vec::new();
    for (name, snapshot) in &guest.snapshots {
        let config = &snapshot.config;
        let mut entry = json!({
            "name": name, "snaptime": snapshot.time,
            "description": config.get("description").cloned().unwrap_or_default(),
        });
        if guest.kind == Kind::Vm {
            entry["vmstate"] = u8::from(snapshot.vmstate.is_some()).into();
        }
        if let Some(parent) = config.get("parent") {
            entry["parent"] = parent.clone().into();
        }
        entries.push(entry);
    }
    let mut current = json!({
        "name": "current", "description": "You are here!", "digest": guest.digest(),
        "running": u8::from(guest.run.is_some()),
    });
    if let Some(parent) = guest.config.get("parent") {
        current["parent"] = parent.clone().into();
    }
    entries.push(current);
    entries
}

/// Whether a guest can have a snapshot of this name, wherever its volumes are.
pub(super) fn may_take(guest: &Guest, name: &str) -> Result<(), String> {
    if guest.is_template() {
        return Err("you can't take a snapshot if it's a template".into());
    }
    guest.unlocked()?;
    if guest.snapshots.contains_key(name) {
        return Err(format!("snapshot name '{name}' already used"));
    }
    Ok(())
}

/// Whether a guest can go back to a snapshot; `volumes` gives those of a configuration.
pub(super) fn may_go_back(
    state: &State,
    guest: &Guest,
    name: &str,
    volumes: impl Fn(&Config) -> Vec<(String, conf::Drive)>,
) -> Result<(), String> {
    let Some(snapshot) = guest.snapshots.get(name) else { return Err(missing(name)) };
    guest.unlocked()?;
    // ZFS and volume chains only go back to the latest.
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

/// Takes a snapshot out of a guest; what came after it follows what was before it.
pub(super) fn forget(guest: &mut Guest, name: &str) -> Result<Snapshot, String> {
    let Some(gone) = guest.snapshots.remove(name) else { return Err(missing(name)) };
    let parent = gone.config.get("parent").cloned();
    let heirs = guest.snapshots.values_mut().map(|snapshot| &mut snapshot.config);
    for config in heirs.chain(std::iter::once(&mut guest.config)) {
        if config.get("parent").is_some_and(|old| old == name) {
            config.remove("parent");
            config.extend(parent.clone().map(|parent| ("parent".to_owned(), parent)));
        }
    }
    Ok(gone)
}

/// What is said of a snapshot that is not there.
pub(super) fn missing(name: &str) -> String {
    format!("snapshot '{name}' does not exist")
}

/// `GET …/snapshot/{snapname}/config`.
pub fn read(ask: &Ask) -> Outcome {
    let name = ask.text("snapname").unwrap_or_default();
    let state = ask.cluster.state();
    let guest = state.guest(&ask.node, ask.vmid).map_err(ApiError::failed)?;
    match guest.snapshots.get(&name) {
        Some(snapshot) => Ok(Answer::new(conf::typed_all(&snapshot.config).into())),
        None => Err(ApiError::failed(missing(&name))),
    }
}

/// `PUT …/snapshot/{snapname}/config`: its description.
pub async fn write(ask: &Ask) -> Outcome {
    let name = ask.text("snapname").unwrap_or_default();
    let _file = ask.cluster.guest_lock(&ask.node, ask.vmid, 10, None).await.map_err(failed)?;
    let mut state = ask.cluster.state();
    let guest = state.guest_mut(&ask.node, ask.vmid).map_err(failed)?;
    guest.unlocked().map_err(failed)?;
    let Some(snapshot) = guest.snapshots.get_mut(&name) else {
        return Err(failed(missing(&name)));
    };
    if let Some(description) = ask.text("description") {
        snapshot.config.insert("description".into(), conf::description(&description).to_owned());
    }
    Ok(Answer::null())
}

/// `POST …/snapshot`.
pub fn create(ask: &Ask) -> Outcome {
    let name = ask.text("snapname").unwrap_or_default();
    if matches!(name.as_str(), "current" | "pending") {
        let text = format!("unable to use snapshot name '{name}' (reserved name)");
        return Err(ApiError::failed(text));
    }
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    // The configuration is loaded before the worker is forked (qemu-server, API2/Qemu.pm:6218);
    // that of a container is not.
    cluster.state().guest(&node, vmid).map_err(failed)?;
    let description = ask.text("description").map(|text| conf::description(&text).to_owned());
    let memory = ask.flag("vmstate");
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "qmsnapshot", vmid, |worker| async move {
        let file = cluster.guest_lock(&node, vmid, 10, Some(&worker)).await?;
        let running = cluster.begin_snapshot(&node, vmid, &name)?;
        drop(file);
        let taken = cluster.take(&worker, vmid, &name, description, memory && running).await;
        let mut state = cluster.state();
        state.guest_mut(&node, vmid)?.config.remove("lock");
        taken
    }))
}

impl Cluster {
    fn begin_snapshot(&self, node: &str, vmid: u32, name: &str) -> Result<bool, String> {
        let mut state = self.state();
        self.refresh(&mut state, vmid);
        let guest = state.guest(node, vmid)?;
        may_take(guest, name)?;
        for (_, drive) in disks(&guest.config) {
            let storage = state.storage_of(&drive.file)?;
            let format = storage.volume(node, &drive.file).map(|volume| volume.format.as_str());
            if !storage.snapshots(format.unwrap_or("raw")) {
                return Err("snapshot feature is not available".into());
            }
        }
        let running = guest.run.is_some();
        state.guest_mut(node, vmid)?.config.insert("lock".into(), "snapshot".into());
        Ok(running)
    }

    async fn take(
        self: &Arc<Self>,
        worker: &Worker,
        vmid: u32,
        name: &str,
        description: Option<String>,
        memory: bool,
    ) -> Result<(), String> {
        let node = worker.node.clone();
        let config = self.state().guest(&node, vmid)?.config.clone();
        let running = self.runs(&node, vmid)?.is_some();
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
            self.work(&node, self.latency.snapshot, None).await;
            let mut state = self.state();
            let storage = drive.storage().unwrap_or_default().to_owned();
            if let Some(volume) = state.storage_mut(&storage)?.volume_mut(&node, &drive.file) {
                volume.snapshots.insert(name.to_owned());
            }
        }
        self.guests.snapshot(vmid, name);
        let mut state = self.state();
        let time = state.clock.unix();
        let guest = state.guest_mut(&node, vmid)?;
        let mut then = config;
        then.remove("lock");
        then.remove("description");
        then.insert("snaptime".into(), time.to_string());
        then.extend(description.map(|text| ("description".to_owned(), text)));
        then.extend(vmstate.clone().map(|volid| ("vmstate".to_owned(), volid)));
        let snapshot = Snapshot { config: then, time, vmstate, boots: guest.boots };
        guest.snapshots.insert(name.to_owned(), snapshot);
        guest.config.insert("parent".into(), name.to_owned());
        Ok(())
    }

    /// Saves a running guest's memory to a volume: twice its size and 500 MB while it is written.
    async fn save_memory(
        self: &Arc<Self>,
        worker: &Worker,
        vmid: u32,
        name: &str,
    ) -> Result<String, String> {
        let node = worker.node.clone();
        let (storage, memory) = {
            let state = self.state();
            let config = &state.guest(&node, vmid)?.config;
            let wanted = config.get("vmstatestorage").cloned();
            let own = disks(config).into_iter().find_map(|(_, d)| d.storage().map(str::to_owned));
            (wanted.or(own).unwrap_or_else(|| "local".into()), conf::memory(config))
        };
        worker.log("saving VM state and RAM using storage '".to_owned() + &storage + "'");
        let size = 2 * memory + (500 << 20);
        let purpose = Purpose::State(name.to_owned());
        let order = Order { vmid, purpose, format: None, size };
        let made = self.in_storage(&node, &storage, None, self.latency.allocate, |state| {
            let now = state.clock.unix();
            state.storage_mut(&storage)?.allocate(&node, &order, now)
        });
        let (volid, _) = made.await?;
        let span = {
            let mut state = self.state();
            self.latency.memory_bytes_per_second.transfer(memory, &mut state.dice)
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

fn disks(config: &Config) -> Vec<(String, conf::Drive)> {
    let drives = conf::drives(config).into_iter();
    drives.filter(|(_, drive)| !drive.is_cdrom() && drive.storage().is_some()).collect()
}

/// `DELETE …/snapshot/{snapname}`.
pub fn delete(ask: &Ask) -> Outcome {
    let name = ask.text("snapname").unwrap_or_default();
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "qmdelsnapshot", vmid, |worker| async move {
        let file = cluster.guest_lock(&node, vmid, 10, Some(&worker)).await?;
        {
            let mut state = cluster.state();
            let guest = state.guest_mut(&node, vmid)?;
            guest.unlocked()?;
            if !guest.snapshots.contains_key(&name) {
                return Err(missing(&name));
            }
            guest.config.insert("lock".into(), "snapshot-delete".into());
        }
        drop(file);
        let vmstate = cluster.drop_snapshot(&worker, vmid, &name).await?;
        if let Some(volid) = vmstate {
            cluster.free(&node, &volid, Some(&worker)).await?;
        }
        Ok(())
    }))
}

impl Cluster {
    async fn drop_snapshot(
        &self,
        worker: &Worker,
        vmid: u32,
        name: &str,
    ) -> Result<Option<String>, String> {
        let node = worker.node.clone();
        self.work(&node, self.latency.snapshot, None).await;
        let mut state = self.state();
        let drives = disks(&state.guest(&node, vmid)?.config);
        for (_, drive) in drives {
            let storage = drive.storage().unwrap_or_default().to_owned();
            if let Some(volume) = state.storage_mut(&storage)?.volume_mut(&node, &drive.file) {
                volume.snapshots.remove(name);
            }
        }
        let guest = state.guest_mut(&node, vmid)?;
        guest.config.remove("lock");
        Ok(forget(guest, name)?.vmstate)
    }
}

/// `POST …/snapshot/{snapname}/rollback`.
pub fn rollback(ask: &Ask) -> Outcome {
    let name = ask.text("snapname").unwrap_or_default();
    let start = ask.flag("start");
    if start {
        ask.check(&format!("/vms/{}", ask.vmid), &["VM.PowerMgmt"])?;
    }
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "qmrollback", vmid, |worker| async move {
        let _file = cluster.guest_lock(&node, vmid, 10, Some(&worker)).await?;
        cluster.begin_rollback(&node, vmid, &name)?;
        if cluster.runs(&node, vmid)?.is_some() {
            cluster.halt(&node, vmid).await?;
        }
        cluster.work(&node, cluster.latency.snapshot, None).await;
        cluster.guests.rollback(vmid, &name);
        let memory = {
            let mut state = cluster.state();
            let generation = state.dice.uuid();
            restore(state.guest_mut(&node, vmid)?, &name, generation)?
        };
        match memory {
            Some(memory) => {
                let span = {
                    let mut state = cluster.state();
                    let rate = cluster.latency.memory_bytes_per_second;
                    rate.transfer(memory, &mut state.dice)
                };
                tokio::time::sleep(span).await;
                cluster.boot(&node, vmid, false, Some(&worker)).await
            }
            None if start => cluster.launch(&node, vmid, Some(&worker)).await,
            None => Ok(()),
        }
    }))
}

impl Cluster {
    fn begin_rollback(&self, node: &str, vmid: u32, name: &str) -> Result<(), String> {
        let mut state = self.state();
        may_go_back(&state, state.guest(node, vmid)?, name, disks)?;
        state.guest_mut(node, vmid)?.config.insert("lock".into(), "rollback".into());
        Ok(())
    }
}

/// Puts a guest's configuration back; the memory to restore, if the snapshot has any.
///
/// A guest that tells its generation gets a new one, so that it knows (qemu-server, QemuConfig.pm).
fn restore(guest: &mut Guest, name: &str, generation: String) -> Result<Option<u64>, String> {
    let Some(snapshot) = guest.snapshots.get(name) else { return Err(missing(name)) };
    let mut config = snapshot.config.clone();
    config.retain(|key, _| !OWN_KEYS.contains(&key.as_str()));
    // Unused volumes of the present are not the past's to lose.
    let unused = guest.config.iter().filter(|(key, _)| conf::numbered(key, "unused").is_some());
    config.extend(unused.map(|(key, value)| (key.clone(), value.clone())));
    config.extend(guest.config.get("description").map(|d| ("description".to_owned(), d.clone())));
    config.insert("parent".into(), name.to_owned());
    if let Some(value) = config.get_mut("vmgenid").filter(|value| *value != "0") {
        *value = generation;
    }
    let memory = snapshot.vmstate.is_some().then(|| conf::memory(&config));
    guest.boots = snapshot.boots;
    guest.pending.clear();
    guest.config = config;
    Ok(memory)
}
