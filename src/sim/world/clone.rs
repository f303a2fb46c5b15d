//! Cloning: the checks of the request, the stages the new configuration goes through, and the
//! roll-back.

use std::sync::Arc;
use std::time::Duration;

use super::ask::{Ask, failed};
use super::conf::{self, Config, Nic, numbered};
use super::lock::{LockName, Mode};
use super::state::{Guest, Kind, State};
use super::worker::Worker;
use super::{Cluster, checks};
use crate::call::{ApiError, Outcome};
use crate::spec::PveVersion;

/// A clone as it was asked for.
#[derive(Debug, Clone)]
pub(super) struct Job {
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
    pub(super) bandwidth: Option<u64>,
    pub(super) running: bool,
}

/// `POST /nodes/{node}/qemu/{vmid}/clone`.
pub fn clone(ask: &Ask) -> Outcome {
    let job = plan(ask)?;
    let cluster = ask.cluster.clone();
    let (caller, node) = (&ask.call.caller, ask.node.clone());
    Ok(ask.cluster.fork(caller, &node, "qmclone", ask.vmid, |worker| async move {
        cluster.run_clone(&worker, job).await
    }))
}

fn plan(ask: &Ask) -> Result<Job, ApiError> {
    let pool = ask.text("pool");
    if let Some(pool) = pool.as_deref().filter(|pool| !ask.cluster.rights.pool_exists(pool)) {
        return Err(ApiError::denied(&format!("pool '{pool}' does not exist")));
    }
    let newid = ask.id("newid").unwrap_or(0);
    let target = ask.text("target").unwrap_or_else(|| ask.node.clone());
    let storage = ask.text("storage");
    let (config, template, running) = {
        let mut state = ask.cluster.state();
        ask.cluster.refresh(&mut state, ask.vmid);
        let guest = state.find_guest(&ask.node, ask.vmid).map_err(failed)?;
        guest.unlocked().map_err(failed)?;
        if !state.nodes.contains_key(&target) {
            return Err(failed(format!("no such cluster node '{target}'")));
        }
        if let Some(storage) = &storage {
            usable_target(&state, storage, &ask.node, &target)?;
        }
        let config = source_config(guest, ask.text("snapname").as_deref()).map_err(failed)?;
        (config, guest.is_template(), guest.run.is_some())
    };
    let full = if ask.params().0.contains_key("full") { ask.flag("full") } else { !template };
    for name in ["storage", "format"] {
        if !full && ask.params().0.contains_key(name) {
            return Err(failed(format!("parameter '{name}' not allowed for linked clones")));
        }
    }
    may_read_drives(ask, &config, storage.as_deref())?;
    ask.may_use_bridges(&config)?;
    ask.quorate()?;
    let state = ask.cluster.state();
    if target != ask.node && uses_local_storage(&state, &config) {
        return Err(failed(format!("can't clone VM to node '{target}' (VM uses local storage)")));
    }
    // Only this node's directory is looked at: an id taken elsewhere comes out in the task.
    if state.guests.get(&newid).is_some_and(|other| other.node == ask.node) {
        return Err(failed(format!("unable to create VM {newid}: config file already exists")));
    }
    if !full {
        linkable(&state, &config, ask.text("snapname").is_some()).map_err(failed)?;
    }
    Ok(Job {
        node: ask.node.clone(),
        source: ask.vmid,
        newid,
        full,
        name: ask.text("name"),
        description: ask.text("description").map(|text| conf::description(&text).to_owned()),
        storage,
        format: ask.text("format"),
        snapshot: ask.text("snapname"),
        target,
        pool,
        bandwidth: ask.number("bwlimit").filter(|limit| *limit > 0),
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

fn usable_target(state: &State, storage: &str, node: &str, target: &str) -> Result<(), ApiError> {
    let found = state.storage(storage).map_err(ApiError::failed)?;
    if !found.takes("images") {
        let text = format!("storage '{storage}' does not support vm images");
        return Err(ApiError::parameter("storage", text));
    }
    if !found.on(node) {
        let text = format!("storage '{storage}' is not available on node '{node}'");
        return Err(ApiError::failed(text));
    }
    if target != node && !found.spec.shared {
        let text = format!("can't clone to non-shared storage '{storage}'");
        return Err(ApiError::failed(text));
    }
    Ok(())
}

fn may_read_drives(ask: &Ask, config: &Config, storage: Option<&str>) -> Result<(), ApiError> {
    for (_, drive) in conf::drives(config) {
        let Some(own) = drive.storage() else { continue };
        if drive.is_cdrom() && !drive.is_cloudinit() {
            ask.check_any(
                &format!("/storage/{own}"),
                &["Datastore.Audit", "Datastore.AllocateSpace"],
            )?;
        } else {
            let storage = storage.unwrap_or(own);
            ask.check(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
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

fn linkable(state: &State, config: &Config, snapshot: bool) -> Result<(), String> {
    for (key, drive) in conf::drives(config) {
        if drive.is_cdrom() || drive.storage().is_none() || key.starts_with("tpmstate") {
            continue;
        }
        if !state.storage_of(&drive.file)?.links(&drive.file, snapshot) {
            let volid = &drive.file;
            return Err(format!("Linked clone feature is not supported for '{volid}' ({key})"));
        }
    }
    Ok(())
}

impl Cluster {
    async fn run_clone(self: &Arc<Self>, worker: &Worker, job: Job) -> Result<(), String> {
        worker.catch_signals();
        if self.version == PveVersion::V9_2 {
            let (source, newid) = (job.source, job.newid);
            worker.log(format!("creating a clone of VM {source} with ID {newid}"));
        }
        let wait = Duration::from_secs(1);
        // A running source is locked against everything, a stopped one is shared with other clones.
        let mode = if job.running { Mode::Exclusive } else { Mode::Shared };
        let source = LockName::guest(&job.node, job.source);
        let _source = self.lock(source, mode, wait, Some(worker)).await?;
        let target = LockName::guest(&job.node, job.newid);
        let _target = self.lock(target, Mode::Exclusive, wait, Some(worker)).await?;
        let source = self.begin_clone(&job)?;
        let mut made = Vec::new();
        if let Err(error) = self.copy_drives(worker, &job, source, &mut made).await {
            self.free_all(&job.node, &made, Some(worker)).await;
            self.state().guests.remove(&job.newid);
            return Err(format!("clone failed: {error}"));
        }
        self.guests.clone_disk(job.source, job.newid);
        self.hand_over(&job)?;
        match &job.pool {
            Some(pool) => self.join_pool(pool, job.newid, worker).await,
            None => Ok(()),
        }
    }

    /// Takes the new id with nothing but a lock in its configuration.
    fn begin_clone(&self, job: &Job) -> Result<Config, String> {
        let mut state = self.state();
        let newid = job.newid;
        let source = state.guest(&job.node, job.source)?;
        source.unlocked()?;
        let config = source_config(source, job.snapshot.as_deref())?;
        if let Some(other) = state.holder(newid) {
            if other.node == job.node && other.kind == Kind::Vm {
                return Err(format!("unable to create VM {newid}: config file already exists"));
            }
            let file = format!("/etc/pve/nodes/{}/qemu-server/{newid}.conf", job.node);
            return Err(format!("close (rename) atomic file '{file}' failed: File exists"));
        }
        let now = state.clock.now();
        let locked = Config::from([("lock".to_owned(), "clone".to_owned())]);
        state.guests.insert(newid, Guest::new(newid, &job.node, locked, now));
        Ok(config)
    }

    async fn copy_drives(
        self: &Arc<Self>,
        worker: &Worker,
        job: &Job,
        source: Config,
        made: &mut Vec<String>,
    ) -> Result<(), String> {
        let drives = conf::drives(&source);
        let mut config = self.new_config(job, source);
        for (key, drive) in drives {
            let volume = drive.storage().is_some() && checks::content_of(&drive.file) == "images";
            if volume {
                let copy = self.copy_drive(worker, job, &key, &drive).await?;
                made.push(copy.file.clone());
                config.insert(key, copy.print());
            } else {
                config.insert(key, drive.print());
            }
            // After the first disk the whole configuration is there, still locked.
            self.write_clone(job, &config)?;
        }
        self.write_clone(job, &config)
    }

    fn write_clone(&self, job: &Job, config: &Config) -> Result<(), String> {
        let mut state = self.state();
        state.guest_mut(&job.node, job.newid)?.config = config.clone();
        Ok(())
    }

    /// The clone's configuration without drives: copied, with its own addresses and ids.
    fn new_config(&self, job: &Job, source: Config) -> Config {
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
                "vmgenid" => state.dice.uuid(),
                "smbios1" => new_uuid(&value, &state.dice.uuid()),
                net if numbered(net, "net").is_some() => match Nic::parse(&value) {
                    Some(nic) => Nic { mac: Some(state.dice.mac()), ..nic }.print(),
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

    /// Unlocks the clone, and moves it to its node.
    fn hand_over(&self, job: &Job) -> Result<(), String> {
        let mut state = self.state();
        let guest = state.guest_mut(&job.node, job.newid)?;
        guest.config.remove("lock");
        if job.target != job.node {
            guest.node.clone_from(&job.target);
            guest.sight.published = None;
        }
        Ok(())
    }
}

pub(super) fn new_uuid(smbios: &str, uuid: &str) -> String {
    let parts = smbios.split(',').map(|part| match part.split_once('=') {
        Some(("uuid", _)) => format!("uuid={uuid}"),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join(",")
}
