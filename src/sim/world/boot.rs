//! Processes of guests: how one begins, what keeps it from beginning, and what its end changes.

use std::sync::Arc;

use super::Cluster;
use super::conf::{self, Drive, Nic, numbered};
use super::seed;
use super::state::{Guest, Pending, Run, State};
use super::worker::Worker;
use crate::guest::GuestBoot;

impl Guest {
    /// The process has ended: changes that waited for it are made.
    pub fn halt(&mut self) {
        self.run = None;
        for (key, change) in std::mem::take(&mut self.pending) {
            match change {
                Pending::Set(value) => {
                    self.config.insert(key, value);
                }
                Pending::Delete { .. } => self.detach(&key),
            }
        }
    }

    /// Drops a key; a disk's volume stays behind as unused.
    pub fn detach(&mut self, key: &str) {
        let Some(value) = self.config.remove(key) else { return };
        if conf::is_drive(key) {
            self.keep_unused(&Drive::parse(&value));
            self.unboot(key);
        }
    }

    /// Enters a drive's volume as unused; CD-ROMs have none to keep.
    pub fn keep_unused(&mut self, drive: &Drive) {
        if drive.is_cdrom() || drive.storage().is_none() {
            return;
        }
        let free = (0..256).map(|n| format!("unused{n}")).find(|k| !self.config.contains_key(k));
        if let Some(free) = free {
            self.config.insert(free, drive.file.clone());
        }
    }

    fn unboot(&mut self, key: &str) {
        if let Some(boot) = self.config.get("boot").and_then(|boot| without(boot, key)) {
            self.config.insert("boot".into(), boot);
        }
    }
}

/// A boot order without a device; none when it is not in it.
pub fn without(boot: &str, key: &str) -> Option<String> {
    let order: Vec<&str> = boot.strip_prefix("order=")?.split(';').collect();
    if !order.contains(&key) {
        return None;
    }
    let rest: Vec<&str> = order.into_iter().filter(|device| *device != key).collect();
    Some(format!("order={}", rest.join(";")))
}

impl Cluster {
    /// Marks a guest stopped whose process has ended by itself.
    pub(crate) fn refresh(&self, state: &mut State, vmid: u32) {
        let now = state.clock.now();
        let Some(guest) = state.guests.get_mut(&vmid) else { return };
        let Some(run) = &mut guest.run else { return };
        if self.guests.running(vmid) {
            run.alive = now;
            return;
        }
        let alive = run.alive;
        let node = guest.node.clone();
        let cycle = state.nodes.get(&node).and_then(|node| node.last_cycle(alive));
        if let Some(guest) = state.guests.get_mut(&vmid) {
            guest.settle(cycle);
            guest.sight.changed = alive;
            guest.halt();
        }
    }

    /// Starts a guest's process, whoever holds its lock.
    pub(crate) async fn launch(
        self: &Arc<Self>,
        node: &str,
        vmid: u32,
        worker: Option<&Worker>,
    ) -> Result<(), String> {
        self.volumes_exist(node, vmid)?;
        let drives = conf::drives(&self.state().guest(node, vmid)?.config);
        if let Some(worker) = worker
            && drives.iter().any(|(_, drive)| drive.is_cloudinit())
        {
            worker.log("generating cloud-init ISO");
        }
        self.work(node, self.latency.start, worker).await;
        self.boot(node, vmid, true, worker).await
    }

    /// Boots a guest's inside; a resumed one does not count as a boot of its disk.
    pub(crate) async fn boot(
        self: &Arc<Self>,
        node: &str,
        vmid: u32,
        fresh: bool,
        worker: Option<&Worker>,
    ) -> Result<(), String> {
        let room = self.memory_left(node, vmid);
        let bridge = self.missing_bridge(node, vmid)?;
        if let Some(reason) = bridge.or(room) {
            if let Some(worker) = worker {
                worker.log(reason);
            }
            return Err("start failed: QEMU exited with code 1".into());
        }
        let boot = self.prepare(node, vmid, fresh)?;
        self.guests.boot(boot).await.map_err(|error| format!("start failed: {error}"))?;
        let mut state = self.state();
        let (pid, _) = state.new_process(node);
        let now = state.clock.now();
        let State { faults, dice, .. } = &mut *state;
        let agent = faults.agent(vmid, dice);
        let guest = state.guest_mut(node, vmid)?;
        guest.run = Some(Run { pid, since: now, paused: false, alive: now });
        guest.agent = agent;
        drop(state);
        if let Some(record) = &self.record {
            record.boot(vmid, self.guests.reachable_in(vmid));
        }
        Ok(())
    }

    pub(crate) fn prepare(&self, node: &str, vmid: u32, fresh: bool) -> Result<GuestBoot, String> {
        let mut state = self.state();
        let guest = state.guest_mut(node, vmid)?;
        guest.halt();
        let resumed = !fresh && guest.boots > 0;
        if !resumed {
            guest.boots += 1;
        }
        let mut config = guest.config.clone();
        let name = config.get("name").cloned().unwrap_or_else(|| format!("VM{vmid}"));
        let mut hostname = name.split('.').next().unwrap_or(&name).to_owned();
        let mac = config.get("net0").and_then(|net| Nic::parse(net)).and_then(|nic| nic.mac);
        let (boots, disc) = (guest.boots, Self::seed_of(&state, node, &config));
        if let Some(disc) = &disc {
            hostname = seed::heed(&mut config, &hostname, mac.as_deref(), disc);
        }
        let (node, boot, config_from_disc) = (node.to_owned(), boots, disc.is_some());
        Ok(GuestBoot { vmid, node, hostname, config, mac, boot, resumed, config_from_disc })
    }

    fn volumes_exist(&self, node: &str, vmid: u32) -> Result<(), String> {
        let state = self.state();
        let config = &state.guest(node, vmid)?.config;
        let custom = config.get("cicustom").into_iter().flat_map(|text| text.split(','));
        let snippets =
            custom.filter_map(|part| part.split_once('=')).map(|(_, volid)| volid.to_owned());
        let drives = conf::drives(config);
        let disks = drives.iter().filter(|(_, drive)| drive.storage().is_some());
        for volid in snippets.chain(disks.map(|(_, drive)| drive.file.clone())) {
            if state.storage_of(&volid)?.volume(node, &volid).is_none() {
                return Err(format!("volume '{volid}' does not exist"));
            }
        }
        Ok(())
    }

    fn missing_bridge(&self, node: &str, vmid: u32) -> Result<Option<String>, String> {
        let state = self.state();
        let config = &state.guest(node, vmid)?.config;
        let nics = config.iter().filter(|(key, _)| numbered(key, "net").is_some());
        let mut bridges = nics.filter_map(|(_, v)| Nic::parse(v)?.options.get("bridge").cloned());
        Ok(bridges.find(|bridge| !state.has_bridge(node, bridge)).map(|bridge| {
            format!(
                "bridge '{bridge}' does not exist\nkvm: -netdev type=tap: network script failed"
            )
        }))
    }

    fn memory_left(&self, node: &str, vmid: u32) -> Option<String> {
        let state = self.state();
        let total = state.nodes.get(node)?.spec.memory_bytes;
        let running = state.everyone().filter(|guest| guest.node == node);
        let used: u64 = running
            .filter(|guest| guest.run.is_some() && guest.vmid != vmid)
            .map(|guest| conf::memory(&guest.config))
            .sum();
        let wanted = conf::memory(&state.guests.get(&vmid)?.config);
        (used + wanted > total)
            .then(|| "kvm: cannot set up guest memory 'pc.ram': Cannot allocate memory".to_owned())
    }

    /// Ends a guest's process the hard way.
    pub(crate) async fn halt(self: &Arc<Self>, node: &str, vmid: u32) -> Result<(), String> {
        self.work(node, self.latency.stop, None).await;
        self.guests.stop(vmid).await;
        self.state().guest_mut(node, vmid)?.halt();
        Ok(())
    }

    /// Whether a guest runs right now.
    pub(crate) fn runs(&self, node: &str, vmid: u32) -> Result<Option<Run>, String> {
        let mut state = self.state();
        self.refresh(&mut state, vmid);
        Ok(state.find_guest(node, vmid)?.run.clone())
    }
}
