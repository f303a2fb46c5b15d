//! Ways into a world that go round the API: its beginning, what an administrator does on a host's
//! shell, and what power cuts do.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::conf::{self, Config};
use super::create::complete;
use super::fault::{AgentHealth, Faults, HoldFault, NodeFault};
use super::lock::{LockName, Mode};
use super::state::{Guest, Others};
use super::storage::{CLOUDINIT_SIZE, Storage, Volume, owner_in_name};
use super::{Certificates, Cluster};
use crate::spec::{ClusterSpec, GuestSpec, WebFile};

/// Acts on a world without its API.
#[derive(Debug, Clone)]
pub struct SideDoor {
    cluster: Arc<Cluster>,
}

impl SideDoor {
    pub(crate) fn new(cluster: Arc<Cluster>) -> Self {
        Self { cluster }
    }

    /// Sets a key of a guest's configuration, or removes it.
    pub fn set_config(&self, vmid: u32, key: &str, value: Option<&str>) {
        let mut state = self.cluster.state();
        let Some(node) = state.guests.get(&vmid).map(|guest| guest.node.clone()) else { return };
        if let Ok(guest) = state.guest_mut(&node, vmid) {
            match value {
                Some(value) => guest.config.insert(key.to_owned(), value.to_owned()),
                None => guest.config.remove(key),
            };
        }
    }

    /// A guest's configuration as it stands.
    pub fn config(&self, vmid: u32) -> Option<Config> {
        self.cluster.state().guests.get(&vmid).map(|guest| guest.config.clone())
    }

    /// Ids and names of all guests that have a name.
    pub fn names(&self) -> Vec<(u32, String)> {
        let state = self.cluster.state();
        let named =
            |(vmid, guest): (&u32, &Guest)| Some((*vmid, guest.config.get("name")?.clone()));
        state.guests.iter().filter_map(named).collect()
    }

    /// Ids of all guests.
    pub fn guests(&self) -> Vec<u32> {
        self.cluster.state().guests.keys().copied().collect()
    }

    /// Kills a guest's process; the world finds out as Proxmox does.
    pub async fn kill_guest(&self, vmid: u32) {
        self.cluster.guests.stop(vmid).await;
    }

    /// Kills a task's worker: no cleaning up, `unexpected status`.
    pub fn kill_task(&self, upid: &str) {
        self.cluster.kill_task(upid);
    }

    /// Cuts a node's power: its guests and tasks end, calls to it get 595.
    pub async fn node_down(&self, node: &str) {
        self.cluster.node_down(node).await;
    }

    /// Brings a node back; guests with `onboot` start.
    pub fn node_up(&self, node: &str) {
        self.cluster.node_up(node);
    }

    /// Cuts a node off from the others, or lets it find them again: apart, it has no quorum.
    pub fn set_apart(&self, node: &str, apart: bool) {
        if let Some(node) = self.cluster.state().nodes.get_mut(node) {
            node.apart = apart;
        }
    }

    /// Lets high availability take a node into maintenance, or give it back.
    pub fn set_maintenance(&self, node: &str, on: bool) {
        if let Some(node) = self.cluster.state().nodes.get_mut(node) {
            node.others.maintenance = on;
        }
    }

    /// Says what of a node is in use by something that is no guest, and how it stands.
    pub fn set_others(&self, node: &str, others: Others) {
        if let Some(node) = self.cluster.state().nodes.get_mut(node) {
            node.others = others;
        }
    }

    /// Says what the nodes tell of their certificates.
    pub fn set_certificates(&self, certificates: Certificates) {
        let mut now = self.cluster.certificates.lock();
        *now = certificates;
    }

    /// What the nodes tell of their certificates.
    pub fn certificates(&self) -> Certificates {
        self.cluster.certificates()
    }

    /// Hangs a node's status daemon, or lets it go on: lists keep their values meanwhile.
    pub fn set_stale(&self, node: &str, stale: bool) {
        self.cluster.set_stale(node, stale);
    }

    /// Says how a guest's agent is until its next boot.
    pub fn set_agent(&self, vmid: u32, health: AgentHealth) {
        if let Some(guest) = self.cluster.state().guests.get_mut(&vmid) {
            guest.agent = health;
        }
    }

    /// Holds a storage's lock for a while, as a slow command of somebody else does.
    pub fn hold_storage(&self, node: &str, storage: &str, time: Duration) {
        let shared = self.cluster.state().storages.get(storage).is_some_and(|s| s.spec.shared);
        self.cluster.hold(LockName::storage(node, storage, shared), time);
    }

    /// Holds the lock of a guest's configuration for a while.
    pub fn hold_guest(&self, node: &str, vmid: u32, time: Duration) {
        self.cluster.hold(LockName::guest(node, vmid), time);
    }

    /// Puts a file on the web, from where nodes can download it.
    pub fn publish(&self, file: WebFile) {
        self.cluster.state().web.push(file);
    }

    /// Takes a volume away.
    pub fn remove_volume(&self, node: &str, volid: &str) -> bool {
        let mut state = self.cluster.state();
        let Some(name) = conf::storage_of(volid) else { return false };
        state.storage_mut(name).is_ok_and(|storage| storage.take(node, volid).is_some())
    }

    /// Puts a volume on a storage, such as an ISO image or a snippet.
    pub fn plant_volume(&self, node: &str, volid: &str, size: u64) {
        let mut state = self.cluster.state();
        let now = state.clock.unix();
        let content = super::checks::content_of(volid);
        let Some(name) = conf::storage_of(volid) else { return };
        if let Ok(storage) = state.storage_mut(name) {
            storage.put(node, volid, new_volume(volid, size, content, now));
        }
    }

    /// Makes freeing a volume fail with this text, so that it stays behind.
    pub fn jam_volume(&self, node: &str, volid: &str, reason: &str) {
        let mut state = self.cluster.state();
        let Some(name) = conf::storage_of(volid) else { return };
        if let Ok(storage) = state.storage_mut(name)
            && let Some(volume) = storage.volume_mut(node, volid)
        {
            volume.stuck = Some(reason.to_owned());
        }
    }

    /// What is in a file that was uploaded.
    pub fn file(&self, node: &str, volid: &str) -> Option<Vec<u8>> {
        let state = self.cluster.state();
        Some(state.storages.get(conf::storage_of(volid)?)?.file(node, volid)?.to_vec())
    }

    /// Ids of the volumes a node sees on a storage.
    pub fn volumes(&self, node: &str, storage: &str) -> Vec<String> {
        let state = self.cluster.state();
        let found = state.storages.get(storage);
        found.map(|s| s.volumes(node).map(|(id, _)| id.clone()).collect()).unwrap_or_default()
    }

    /// Ids of the volumes, on all storages, in whose names this guest's id stands.
    pub fn volumes_of(&self, vmid: u32) -> Vec<String> {
        let state = self.cluster.state();
        let all = state.storages.values().flat_map(Storage::everywhere);
        let own = all.filter(|volid| owner_in_name(volid) == Some(vmid));
        own.cloned().collect()
    }

    /// Makes a storage reachable or not, for all nodes.
    pub fn set_storage_reachable(&self, storage: &str, reachable: bool) {
        if let Some(storage) = self.cluster.state().storages.get_mut(storage) {
            storage.reachable = reachable;
        }
    }

    /// Takes a guest away with its volumes, as an administrator on the host does.
    pub fn remove_guest(&self, vmid: u32) {
        let mut state = self.cluster.state();
        let Some(guest) = state.guests.remove(&vmid) else { return };
        for (_, drive) in conf::drives(&guest.config) {
            let name = drive.storage().unwrap_or_default().to_owned();
            if let Ok(storage) = state.storage_mut(&name) {
                storage.take(&guest.node, &drive.file);
            }
        }
        drop(state);
        self.cluster.rights.forget_guest(vmid);
        self.cluster.guests.forget(vmid);
    }

    /// Moves a guest to another node with its disks, running or not, as a finished migration does.
    pub fn move_guest(&self, vmid: u32, node: &str) {
        let mut state = self.cluster.state();
        let Some(from) = state.guests.get(&vmid).map(|guest| guest.node.clone()) else { return };
        let Ok(guest) = state.guest_mut(&from, vmid) else { return };
        guest.node = node.to_owned();
        let drives: Vec<(String, String)> = conf::drives(&guest.config)
            .into_iter()
            .map(|(_, drive)| (drive.storage().unwrap_or_default().to_owned(), drive.file.clone()))
            .collect();
        for (name, file) in drives {
            if let Ok(storage) = state.storage_mut(&name)
                && let Some(volume) = storage.take(&from, &file)
            {
                storage.put(node, &file, volume);
            }
        }
    }

    /// Puts a guest into the world that nobody asked for; false when its id is taken.
    pub fn plant_guest(&self, spec: &GuestSpec) -> bool {
        if self.cluster.state().guests.contains_key(&spec.vmid) {
            return false;
        }
        self.cluster.plant(spec, false);
        true
    }

    /// Puts a container into the world that nobody asked for; false when its id is taken.
    pub fn plant_container(&self, vmid: u32, node: &str, hostname: &str) -> bool {
        let mut state = self.cluster.state();
        if state.holder(vmid).is_some() {
            return false;
        }
        let config = Config::from([("hostname".to_owned(), hostname.to_owned())]);
        let now = state.clock.now();
        state.containers.insert(vmid, Guest::container(vmid, node, config, now));
        true
    }

    /// Whether a container of this id exists.
    pub fn has_container(&self, vmid: u32) -> bool {
        self.cluster.state().containers.contains_key(&vmid)
    }

    /// Replaces the fault rules; what has a time begins to count from here.
    pub fn set_faults(&self, faults: Faults) {
        self.cluster.state().faults.replace(faults);
        self.cluster.schedule_faults();
    }
}

fn new_volume(volid: &str, size: u64, content: &str, now: u64) -> Volume {
    let suffix = volid.rsplit_once('.').map_or("raw", |(_, suffix)| suffix);
    Volume {
        size,
        vmid: owner_in_name(volid),
        format: suffix.to_owned(),
        content: content.to_owned(),
        ctime: now,
        base: None,
        stuck: None,
        snapshots: BTreeSet::new(),
    }
}

impl Cluster {
    /// Puts the guests of a description in place.
    pub(crate) fn populate(&self, spec: &ClusterSpec) {
        for guest in &spec.guests {
            self.plant(guest, true);
        }
    }

    fn plant(&self, spec: &GuestSpec, published: bool) {
        let mut state = self.state();
        let clock_now = state.clock.now();
        let now = state.clock.unix();
        for (key, drive) in conf::drives(&spec.config) {
            let Some(storage) = drive.storage().map(str::to_owned) else { continue };
            let known = drive.size();
            let size = if drive.is_cloudinit() { CLOUDINIT_SIZE } else { known };
            let content = super::checks::content_of(&drive.file);
            match state.storage_mut(&storage) {
                Ok(storage) => {
                    storage.put(
                        &spec.node,
                        &drive.file,
                        new_volume(&drive.file, size, content, now),
                    );
                }
                Err(error) => {
                    tracing::warn!(vmid = spec.vmid, drive = key, error, "drive is left out");
                }
            }
        }
        let mut config: Config = spec.config.clone();
        complete(&mut config, &mut state, self.version);
        if spec.template {
            config.insert("template".into(), "1".into());
        }
        let mut guest = Guest::new(spec.vmid, &spec.node, config, clock_now);
        if published {
            guest.sight.published = Some((clock_now, guest.view()));
        }
        state.guests.insert(spec.vmid, guest);
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
            node.frozen.get_or_insert(now);
            let guests: Vec<u32> =
                state.everyone().filter(|g| g.node == name).map(|g| g.vmid).collect();
            let tasks: Vec<String> =
                state.tasks.running(name).map(|task| task.upid.to_string()).collect();
            for vmid in &guests {
                if let Ok(guest) = state.guest_mut(name, *vmid) {
                    guest.run = None;
                }
                if let Ok(guest) = state.container_mut(name, *vmid) {
                    guest.run = None;
                }
            }
            (guests, tasks)
        };
        tasks.iter().for_each(|upid| self.kill_task(upid));
        for vmid in guests {
            self.guests.stop(vmid).await;
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
            node.frozen = None;
            node.booted = Some(now);
            let here = state.everyone().filter(|guest| guest.node == name);
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
                    cluster.launch_container(&node, vmid, Some(&worker)).await
                } else {
                    cluster.start_one(&worker, &node, vmid).await
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
            node.frozen = stale.then_some(now);
        }
    }

    fn hold(self: &Arc<Self>, name: LockName, time: Duration) {
        let locks = self.locks.clone();
        tokio::spawn(async move {
            if let Some(hold) = locks.wait(&name.key, Mode::Exclusive, time).await {
                tokio::time::sleep(time).await;
                drop(hold);
            }
        });
    }

    /// Sets timers for the faults that have a time; those of replaced rules do nothing.
    pub(crate) fn schedule_faults(self: &Arc<Self>) {
        let (rules, edition) = {
            let state = self.state();
            (state.faults.rules.clone(), state.faults.edition)
        };
        for rule in rules.holds {
            tokio::spawn(keep_holding(Arc::downgrade(self), rule, edition));
        }
        for NodeFault { node, down_at, up_at, stale_from, stale_until, .. } in rules.nodes {
            let events = [
                (down_at, Event::Down),
                (up_at, Event::Up),
                (stale_from, Event::Stale(true)),
                (stale_until, Event::Stale(false)),
            ];
            for (at, event) in events {
                let Some(at) = at else { continue };
                let (cluster, node) = (Arc::downgrade(self), node.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(seconds(at)).await;
                    if let Some(cluster) = in_force(&cluster, edition) {
                        cluster.befall(&node, event).await;
                    }
                });
            }
        }
    }

    async fn befall(self: &Arc<Self>, node: &str, event: Event) {
        match event {
            Event::Down => self.node_down(node).await,
            Event::Up => self.node_up(node),
            Event::Stale(stale) => self.set_stale(node, stale),
        }
    }
}

/// What befalls a node at some time.
#[derive(Debug, Clone, Copy)]
enum Event {
    Down,
    Up,
    Stale(bool),
}

fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).unwrap_or_default()
}

/// The world, while it lives and has the rules of this edition.
fn in_force(cluster: &Weak<Cluster>, edition: u64) -> Option<Arc<Cluster>> {
    let cluster = cluster.upgrade()?;
    let current = cluster.state().faults.edition == edition;
    current.then_some(cluster)
}

async fn keep_holding(cluster: Weak<Cluster>, rule: HoldFault, edition: u64) {
    tokio::time::sleep(seconds(rule.at)).await;
    while let Some(cluster) = in_force(&cluster, edition) {
        if let Some(storage) = &rule.storage {
            let shared = cluster.state().storages.get(storage).is_some_and(|s| s.spec.shared);
            cluster.hold(LockName::storage(&rule.node, storage, shared), seconds(rule.seconds));
        }
        if let Some(vmid) = rule.vmid {
            cluster.hold(LockName::guest(&rule.node, vmid), seconds(rule.seconds));
        }
        drop(cluster);
        if rule.every <= 0.0 {
            return;
        }
        tokio::time::sleep(seconds(rule.every)).await;
    }
}
