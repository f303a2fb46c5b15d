//! Control of a world without its API: its first guests, what an administrator does in a host's
//! shell, hardware failures, and the timers of fault rules.
//!
//! Tests, storms, the demo and the control socket use [`WorldControl`]. Its methods act at once and
//! need no privileges; an unknown node, guest or storage is ignored.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::conf::{self, Config};
use super::create::fill_defaults;
use super::faults::{AgentHealth, Faults, LockFault, NodeFault};
use super::locks::{LockMode, LockName};
use super::state::{Guest, NodeOverrides};
use super::storage::{CLOUDINIT_SIZE, Storage, Volume, owner_in_name};
use super::{Certificates, Cluster, lxc};
use crate::guests::Trouble;
use crate::spec::{ClusterSpec, GuestSpec, WebFile};

/// Controls a world without its API.
#[derive(Debug, Clone)]
pub struct WorldControl {
    pub(super) cluster: Arc<Cluster>,
}

impl WorldControl {
    pub(crate) fn new(cluster: Arc<Cluster>) -> Self {
        Self { cluster }
    }

    /// Sets or deletes a key of a guest's configuration.
    pub fn set_config(&self, vmid: u32, key: &str, value: Option<&str>) {
        let mut state = self.cluster.state();
        if let Some(guest) = state.guest_by_id_mut(vmid) {
            match value {
                Some(value) => guest.config.insert(key.to_owned(), value.to_owned()),
                None => guest.config.remove(key),
            };
        }
    }

    /// The configuration of a guest.
    pub fn config(&self, vmid: u32) -> Option<Config> {
        self.cluster.state().guest_by_id(vmid).map(|guest| guest.config.clone())
    }

    /// VMIDs and names of all guests that have a name.
    pub fn names(&self) -> Vec<(u32, String)> {
        let state = self.cluster.state();
        let name = |guest: &Guest| {
            let name = guest.config.get("name").or_else(|| guest.config.get("hostname"))?;
            Some((guest.vmid, name.clone()))
        };
        let mut named: Vec<(u32, String)> = state.all_guests().filter_map(name).collect();
        named.sort_unstable();
        named
    }

    /// The VMIDs of all guests.
    pub fn guests(&self) -> Vec<u32> {
        let state = self.cluster.state();
        let mut all: Vec<u32> = state.all_guests().map(|guest| guest.vmid).collect();
        all.sort_unstable();
        all
    }

    /// Kills the processes of a guest; the world notices it as Proxmox does.
    pub async fn kill_guest(&self, vmid: u32) {
        self.cluster.guest_host.stop(vmid).await;
    }

    /// Takes a snapshot of a VM without its memory, as somebody does in Proxmox by hand.
    pub async fn snapshot_by_hand(&self, vmid: u32, name: &str) {
        self.cluster.snapshot_by_hand(vmid, name).await;
    }

    /// Kills the worker of a task; its status becomes `unexpected status`.
    pub fn kill_task(&self, upid: &str) {
        self.cluster.kill_task(upid);
    }

    /// Cuts the power of a node: its guests and tasks end, and calls to it get 595.
    pub async fn node_down(&self, node: &str) {
        self.cluster.node_down(node).await;
    }

    /// Starts a node again; its guests with `onboot` start.
    pub fn node_up(&self, node: &str) {
        self.cluster.node_up(node);
    }

    /// Cuts a node off from the others, or reconnects it; a node that is cut off has no quorum.
    pub fn set_partitioned(&self, node: &str, partitioned: bool) {
        if let Some(node) = self.cluster.state().nodes.get_mut(node) {
            node.partitioned = partitioned;
        }
    }

    /// Sets or clears the maintenance mode of a node.
    pub fn set_maintenance(&self, node: &str, on: bool) {
        if let Some(node) = self.cluster.state().nodes.get_mut(node) {
            node.overrides.maintenance = on;
        }
    }

    /// Sets the load of a node that is not a guest's, and its maintenance mode.
    pub fn set_overrides(&self, node: &str, overrides: NodeOverrides) {
        if let Some(node) = self.cluster.state().nodes.get_mut(node) {
            node.overrides = overrides;
        }
    }

    /// Replaces the certificates that the API shows.
    pub fn set_certificates(&self, certificates: Certificates) {
        let mut now = self.cluster.certificates.lock();
        *now = certificates;
    }

    /// The certificates that the API shows.
    pub fn certificates(&self) -> Certificates {
        self.cluster.certificates()
    }

    /// Hangs the status daemon of a node, or lets it continue; lists keep old values meanwhile.
    pub fn set_stale(&self, node: &str, stale: bool) {
        self.cluster.set_stale(node, stale);
    }

    /// Sets the condition of a VM's agent until its next boot.
    pub fn set_agent(&self, vmid: u32, health: AgentHealth) {
        if let Some(guest) = self.cluster.state().vms.get_mut(&vmid) {
            guest.agent_health = health;
        }
    }

    /// Gives a guest one more trouble from now on; none takes all away, also those of its tags.
    pub async fn trouble(&self, vmid: u32, trouble: Option<Trouble>) {
        self.cluster.troubles.order(vmid, trouble).await;
    }

    /// Ends the world: its tasks and guests end, and no guest boots any more.
    pub async fn end(&self) {
        self.cluster.troubles.close();
        let (guests, tasks) = {
            let state = self.cluster.state();
            let guests: Vec<u32> = state.all_guests().map(|guest| guest.vmid).collect();
            let running = state.nodes.keys().flat_map(|node| state.tasks.running(node));
            (guests, running.map(|task| task.upid.to_string()).collect::<Vec<_>>())
        };
        tasks.iter().for_each(|upid| self.cluster.kill_task(upid));
        for vmid in guests {
            self.cluster.guest_host.stop(vmid).await;
        }
    }

    /// Holds the lock of a storage for a while, as a slow command of another process does.
    pub fn hold_storage(&self, node: &str, storage: &str, time: Duration) {
        let shared = self.cluster.state().storages.get(storage).is_some_and(|s| s.spec.shared);
        self.cluster.hold_lock(LockName::storage(node, storage, shared), time);
    }

    /// Holds the lock of a VM's configuration for a while.
    pub fn hold_guest(&self, node: &str, vmid: u32, time: Duration) {
        self.cluster.hold_lock(LockName::vm(node, vmid), time);
    }

    /// Adds a file that nodes can download.
    pub fn publish(&self, file: WebFile) {
        self.cluster.state().web_files.push(file);
    }

    /// Removes a volume; false if it does not exist.
    pub fn remove_volume(&self, node: &str, volid: &str) -> bool {
        let mut state = self.cluster.state();
        let Some(name) = conf::storage_name(volid) else { return false };
        state.storage_mut(name).is_ok_and(|storage| storage.remove_volume(node, volid).is_some())
    }

    /// Adds a volume to a storage, such as an ISO image or a snippet.
    pub fn add_volume(&self, node: &str, volid: &str, size: u64) {
        let mut state = self.cluster.state();
        let now = state.clock.unix();
        let content = super::checks::content_of(volid);
        let Some(name) = conf::storage_name(volid) else { return };
        if let Ok(storage) = state.storage_mut(name) {
            storage.insert_volume(node, volid, new_volume(volid, size, content, now));
        }
    }

    /// Makes freeing a volume fail with this error.
    pub fn block_volume_removal(&self, node: &str, volid: &str, reason: &str) {
        let mut state = self.cluster.state();
        let Some(name) = conf::storage_name(volid) else { return };
        if let Ok(storage) = state.storage_mut(name)
            && let Some(volume) = storage.volume_mut(node, volid)
        {
            volume.free_error = Some(reason.to_owned());
        }
    }

    /// The content of an uploaded file.
    pub fn file(&self, node: &str, volid: &str) -> Option<Vec<u8>> {
        let state = self.cluster.state();
        Some(state.storages.get(conf::storage_name(volid)?)?.file(node, volid)?.to_vec())
    }

    /// Ids of the volumes on a storage that a node sees.
    pub fn volumes(&self, node: &str, storage: &str) -> Vec<String> {
        let state = self.cluster.state();
        let found = state.storages.get(storage);
        found.map(|s| s.volumes(node).map(|(id, _)| id.clone()).collect()).unwrap_or_default()
    }

    /// Ids of the volumes on all storages that have this VMID in their names.
    pub fn volumes_of(&self, vmid: u32) -> Vec<String> {
        let state = self.cluster.state();
        let all = state.storages.values().flat_map(Storage::all_volume_ids);
        let own = all.filter(|volid| owner_in_name(volid) == Some(vmid));
        own.cloned().collect()
    }

    /// Makes a storage reachable or unreachable for all nodes.
    pub fn set_storage_reachable(&self, storage: &str, reachable: bool) {
        if let Some(storage) = self.cluster.state().storages.get_mut(storage) {
            storage.reachable = reachable;
        }
    }

    /// Removes a guest and its volumes, as an administrator on the host does.
    pub fn remove_guest(&self, vmid: u32) {
        let mut state = self.cluster.state();
        let removed = state.vms.remove(&vmid).or_else(|| state.containers.remove(&vmid));
        let Some(guest) = removed else { return };
        for (_, drive) in conf::drives(&guest.config).into_iter().chain(lxc::mounts(&guest.config))
        {
            let name = drive.storage().unwrap_or_default().to_owned();
            if let Ok(storage) = state.storage_mut(&name) {
                storage.remove_volume(&guest.node, &drive.file);
            }
        }
        drop(state);
        self.cluster.rights.forget_guest(vmid);
        self.cluster.guest_host.forget(vmid);
    }

    /// Moves a VM and its disks to another node, as a finished migration does.
    pub fn move_guest(&self, vmid: u32, node: &str) {
        let mut state = self.cluster.state();
        let Some(from) = state.vms.get(&vmid).map(|guest| guest.node.clone()) else { return };
        let Ok(guest) = state.vm_mut(&from, vmid) else { return };
        guest.node = node.to_owned();
        let drives: Vec<(String, String)> = conf::drives(&guest.config)
            .into_iter()
            .map(|(_, drive)| (drive.storage().unwrap_or_default().to_owned(), drive.file.clone()))
            .collect();
        for (name, file) in drives {
            if let Ok(storage) = state.storage_mut(&name)
                && let Some(volume) = storage.remove_volume(&from, &file)
            {
                storage.insert_volume(node, &file, volume);
            }
        }
    }

    /// Adds a VM that no call has created; false if the VMID is taken.
    pub fn add_guest(&self, spec: &GuestSpec) -> bool {
        if self.cluster.state().vms.contains_key(&spec.vmid) {
            return false;
        }
        self.cluster.place_guest(spec, false);
        true
    }

    /// Adds a container as a cluster description has it.
    pub fn plant_container(&self, spec: &GuestSpec) {
        self.cluster.place_container(spec);
    }

    /// Adds a container that no call has created; false if the VMID is taken.
    pub fn add_container(&self, vmid: u32, node: &str, hostname: &str) -> bool {
        let mut state = self.cluster.state();
        if state.guest_by_id(vmid).is_some() {
            return false;
        }
        let config = Config::from([("hostname".to_owned(), hostname.to_owned())]);
        let now = state.clock.now();
        state.containers.insert(vmid, Guest::container(vmid, node, config, now));
        true
    }

    pub fn has_container(&self, vmid: u32) -> bool {
        self.cluster.state().containers.contains_key(&vmid)
    }

    /// Replaces the fault rules; their times count from now.
    pub fn set_faults(&self, faults: Faults) {
        self.cluster.state().faults.replace(faults);
        self.cluster.schedule_faults();
    }
}

pub(super) fn new_volume(volid: &str, size: u64, content: &str, now: u64) -> Volume {
    let suffix = volid.rsplit_once('.').map_or("raw", |(_, suffix)| suffix);
    Volume {
        size,
        vmid: owner_in_name(volid),
        format: suffix.to_owned(),
        content: content.to_owned(),
        ctime: now,
        base: None,
        free_error: None,
        snapshots: BTreeSet::new(),
    }
}

impl Cluster {
    /// Adds the guests of a cluster description.
    pub(crate) fn populate(&self, spec: &ClusterSpec) {
        for guest in &spec.guests {
            self.place_guest(guest, true);
        }
        for guest in &spec.containers {
            self.place_container(guest);
        }
    }

    fn place_guest(&self, spec: &GuestSpec, broadcast: bool) {
        let mut state = self.state();
        let clock_now = state.clock.now();
        let now = state.clock.unix();
        for (key, drive) in conf::drives(&spec.config) {
            let Some(storage) = drive.storage().map(str::to_owned) else { continue };
            let known = drive.size_bytes();
            let size = if drive.is_cloudinit() { CLOUDINIT_SIZE } else { known };
            let content = super::checks::content_of(&drive.file);
            match state.storage_mut(&storage) {
                Ok(storage) => {
                    storage.insert_volume(
                        &spec.node,
                        &drive.file,
                        new_volume(&drive.file, size, content, now),
                    );
                }
                Err(error) => {
                    tracing::warn!(
                        vmid = spec.vmid,
                        drive = key,
                        error,
                        "skipping a drive whose storage does not exist"
                    );
                }
            }
        }
        let mut config: Config = spec.config.clone();
        fill_defaults(&mut config, &mut state, self.version);
        if spec.template {
            config.insert("template".into(), "1".into());
        }
        let mut guest = Guest::new(spec.vmid, &spec.node, config, clock_now);
        if broadcast {
            guest.broadcast.last = Some((clock_now, guest.status()));
        }
        state.vms.insert(spec.vmid, guest);
        drop(state);
        if let Some(pool) = &spec.pool {
            self.rights.join_pool(pool, spec.vmid);
        }
    }

    async fn node_down(&self, name: &str) {
        let (guests, tasks) = {
            let mut state = self.state();
            let now = state.clock.now();
            let Some(node) = state.nodes.get_mut(name) else { return };
            node.up = false;
            node.status_frozen_at.get_or_insert(now);
            let guests: Vec<u32> =
                state.all_guests().filter(|g| g.node == name).map(|g| g.vmid).collect();
            let tasks: Vec<String> =
                state.tasks.running(name).map(|task| task.upid.to_string()).collect();
            for vmid in &guests {
                if let Ok(guest) = state.vm_mut(name, *vmid) {
                    guest.process = None;
                }
                if let Ok(guest) = state.container_mut(name, *vmid) {
                    guest.process = None;
                }
            }
            (guests, tasks)
        };
        tasks.iter().for_each(|upid| self.kill_task(upid));
        for vmid in guests {
            self.guest_host.stop(vmid).await;
        }
    }

    fn node_up(self: &Arc<Self>, name: &str) {
        let starting: Vec<u32> = {
            let mut state = self.state();
            let now = state.clock.now();
            let Some(node) = state.nodes.get_mut(name) else { return };
            if node.up {
                return;
            }
            node.up = true;
            node.status_frozen_at = None;
            node.booted_at = Some(now);
            let here = state.all_guests().filter(|guest| guest.node == name);
            let onboot = here.filter(|g| conf::flag(&g.config, "onboot") && !g.is_template());
            onboot.map(|guest| guest.vmid).collect()
        };
        if starting.is_empty() {
            return;
        }
        let (cluster, node) = (self.clone(), name.to_owned());
        let root = crate::call::Caller { userid: "root@pam".into(), token: None };
        self.fork(&root, name, "startall", "", |worker| async move {
            for vmid in starting {
                let container = cluster.state().containers.contains_key(&vmid);
                let started = if container {
                    cluster.start_container(&node, vmid, Some(&worker)).await
                } else {
                    cluster.lock_and_start_vm(&worker, &node, vmid).await
                };
                if let Err(error) = started {
                    worker.warn(error);
                }
            }
            Ok(())
        });
    }

    fn set_stale(&self, name: &str, stale: bool) {
        let mut state = self.state();
        let now = state.clock.now();
        if let Some(node) = state.nodes.get_mut(name).filter(|node| node.up) {
            node.status_frozen_at = stale.then_some(now);
        }
    }

    fn hold_lock(self: &Arc<Self>, name: LockName, time: Duration) {
        let locks = self.locks.clone();
        tokio::spawn(async move {
            if let Some(hold) = locks.acquire_within(&name.key, LockMode::Exclusive, time).await {
                tokio::time::sleep(time).await;
                drop(hold);
            }
        });
    }

    /// Starts timers for the fault rules that have times; timers of replaced rules do nothing.
    pub(crate) fn schedule_faults(self: &Arc<Self>) {
        let (rules, generation) = {
            let state = self.state();
            (state.faults.rules.clone(), state.faults.generation)
        };
        for rule in rules.holds {
            tokio::spawn(repeat_lock_hold(Arc::downgrade(self), rule, generation));
        }
        for NodeFault { node, down_at, up_at, stale_from, stale_until, .. } in rules.nodes {
            let events = [
                (down_at, NodeEvent::Down),
                (up_at, NodeEvent::Up),
                (stale_from, NodeEvent::Stale(true)),
                (stale_until, NodeEvent::Stale(false)),
            ];
            for (at, event) in events {
                let Some(at) = at else { continue };
                let (cluster, node) = (Arc::downgrade(self), node.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(seconds(at)).await;
                    if let Some(cluster) = if_current(&cluster, generation) {
                        cluster.apply_node_event(&node, event).await;
                    }
                });
            }
        }
    }

    async fn apply_node_event(self: &Arc<Self>, node: &str, event: NodeEvent) {
        match event {
            NodeEvent::Down => self.node_down(node).await,
            NodeEvent::Up => self.node_up(node),
            NodeEvent::Stale(stale) => self.set_stale(node, stale),
        }
    }
}

/// A timed event of a node.
#[derive(Debug, Clone, Copy)]
enum NodeEvent {
    Down,
    Up,
    Stale(bool),
}

fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).unwrap_or_default()
}

/// The world, while it exists and its fault rules are those of this generation.
fn if_current(cluster: &Weak<Cluster>, generation: u64) -> Option<Arc<Cluster>> {
    let cluster = cluster.upgrade()?;
    let current = cluster.state().faults.generation == generation;
    current.then_some(cluster)
}

async fn repeat_lock_hold(cluster: Weak<Cluster>, rule: LockFault, generation: u64) {
    tokio::time::sleep(seconds(rule.at)).await;
    while let Some(cluster) = if_current(&cluster, generation) {
        if let Some(storage) = &rule.storage {
            let shared = cluster.state().storages.get(storage).is_some_and(|s| s.spec.shared);
            cluster
                .hold_lock(LockName::storage(&rule.node, storage, shared), seconds(rule.seconds));
        }
        if let Some(vmid) = rule.vmid {
            cluster.hold_lock(LockName::vm(&rule.node, vmid), seconds(rule.seconds));
        }
        drop(cluster);
        if rule.every <= 0.0 {
            return;
        }
        tokio::time::sleep(seconds(rule.every)).await;
    }
}
