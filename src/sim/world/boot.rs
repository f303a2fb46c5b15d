//! The processes of VMs: how one starts, why it may not start, and what changes when it ends.

use std::sync::Arc;

use super::Cluster;
use super::conf::{self, Drive, Nic, numbered};
use super::installer::Installer;
use super::mapping;
use super::nocloud;
use super::state::{Guest, GuestProcess, PendingChange, State};
use super::worker::Worker;
use crate::guest::GuestBoot;

impl Guest {
    /// Records that the process has ended, and applies the changes that waited for it.
    pub(crate) fn process_ended(&mut self) {
        self.process = None;
        for (key, change) in std::mem::take(&mut self.pending) {
            match change {
                PendingChange::Set(value) => {
                    self.config.insert(key, value);
                }
                PendingChange::Delete { .. } => self.detach(&key),
            }
        }
    }

    /// Deletes a key; the volume of a drive stays as an unused disk.
    pub(crate) fn detach(&mut self, key: &str) {
        let Some(value) = self.config.remove(key) else { return };
        if conf::is_drive(key) {
            self.add_unused(&Drive::parse(&value));
            self.remove_from_boot_order(key);
        }
    }

    /// Adds the volume of a drive as an unused disk; a CD-ROM has no volume to keep.
    pub(crate) fn add_unused(&mut self, drive: &Drive) {
        if drive.is_cdrom() || drive.storage().is_none() {
            return;
        }
        let free = (0..256).map(|n| format!("unused{n}")).find(|k| !self.config.contains_key(k));
        if let Some(free) = free {
            self.config.insert(free, drive.file.clone());
        }
    }

    fn remove_from_boot_order(&mut self, key: &str) {
        if let Some(boot) = self.config.get("boot").and_then(|boot| boot_order_without(boot, key)) {
            self.config.insert("boot".into(), boot);
        }
    }
}

/// The boot order without a device; none if the device is not in it.
pub(crate) fn boot_order_without(boot: &str, key: &str) -> Option<String> {
    let order: Vec<&str> = boot.strip_prefix("order=")?.split(';').collect();
    if !order.contains(&key) {
        return None;
    }
    let rest: Vec<&str> = order.into_iter().filter(|device| *device != key).collect();
    Some(format!("order={}", rest.join(";")))
}

impl Cluster {
    /// Marks a VM as stopped if its process has ended by itself.
    pub(crate) fn refresh_vm(&self, state: &mut State, vmid: u32) {
        let now = state.clock.now();
        let Some(guest) = state.vms.get_mut(&vmid) else { return };
        let Some(process) = &mut guest.process else { return };
        if let Some(installer) = &process.installer {
            match installer.done.clone().filter(|(end, _)| *end <= now) {
                None => process.last_seen_alive = now,
                Some((_, answers)) => {
                    (guest.blank, guest.answers) = (false, Some(answers));
                    guest.broadcast_status(None);
                    guest.process_ended();
                }
            }
            return;
        }
        if self.guest_host.running(vmid) {
            process.last_seen_alive = now;
            return;
        }
        let last_seen_alive = process.last_seen_alive;
        let node = guest.node.clone();
        let cycle = state.nodes.get(&node).and_then(|node| node.last_cycle(last_seen_alive));
        if let Some(guest) = state.vms.get_mut(&vmid) {
            guest.broadcast_status(cycle);
            guest.broadcast.changed_at = last_seen_alive;
            guest.process_ended();
        }
    }

    /// Starts a VM without taking any lock.
    pub(crate) async fn start_vm(
        self: &Arc<Self>,
        node: &str,
        vmid: u32,
        worker: Option<&Worker>,
    ) -> Result<(), String> {
        self.check_volumes_exist(node, vmid)?;
        let drives = conf::drives(&self.state().vm(node, vmid)?.config);
        if let Some(worker) = worker
            && drives.iter().any(|(_, drive)| drive.is_cloudinit())
        {
            worker.log("generating cloud-init ISO");
        }
        self.simulate_work(node, self.latency.start, worker).await;
        self.boot_vm(node, vmid, true, worker).await
    }

    /// Boots the guest system. A resumed VM does not count as a boot of its disk.
    pub(crate) async fn boot_vm(
        self: &Arc<Self>,
        node: &str,
        vmid: u32,
        fresh: bool,
        worker: Option<&Worker>,
    ) -> Result<(), String> {
        let shortage = self.memory_shortage(node, vmid);
        let bridge = self.missing_bridge(node, vmid)?;
        if let Some(reason) = bridge.or(shortage) {
            if let Some(worker) = worker {
                worker.log(reason);
            }
            return Err("start failed: QEMU exited with code 1".into());
        }
        let devices = self.choose_devices(node, vmid)?;
        let installer = self.boot_installer(node, vmid)?;
        let boot = self.boot_parameters(node, vmid, fresh)?;
        if installer.is_none() {
            self.guest_host.boot(boot).await.map_err(|error| format!("start failed: {error}"))?;
        }
        let mut state = self.state();
        let (pid, _) = state.new_process(node);
        let now = state.clock.now();
        let State { faults, random, .. } = &mut *state;
        let health = faults.inject_agent_health(vmid, random);
        let guest = state.vm_mut(node, vmid)?;
        guest.process = Some(GuestProcess {
            pid,
            started_at: now,
            paused: false,
            last_seen_alive: now,
            devices,
            installer,
        });
        guest.agent_health = health;
        drop(state);
        if let Some(record) = &self.record {
            record.boot(vmid, self.guest_host.reachable_in(vmid));
        }
        Ok(())
    }

    /// The installer that a start boots; none where the guest boots from its disk. Hosts whose guests
    /// read discs boot what is on them by themselves.
    fn boot_installer(&self, node: &str, vmid: u32) -> Result<Option<Installer>, String> {
        let mut state = self.state();
        let guest = state.vm(node, vmid)?;
        if !guest.blank || self.guest_host.reads_discs() {
            return Ok(None);
        }
        let config = guest.config.clone();
        let takes = self.latency.install.seconds(&mut state.random);
        Ok(Self::installer(&state, node, &config, takes))
    }

    pub(crate) fn boot_parameters(
        &self,
        node: &str,
        vmid: u32,
        fresh: bool,
    ) -> Result<GuestBoot, String> {
        let mut state = self.state();
        let guest = state.vm_mut(node, vmid)?;
        guest.process_ended();
        let resumed = !fresh && guest.boots > 0;
        if !resumed {
            guest.boots += 1;
        }
        let mut config = guest.config.clone();
        let name = config.get("name").cloned().unwrap_or_else(|| format!("VM{vmid}"));
        let mut hostname = name.split('.').next().unwrap_or(&name).to_owned();
        let mac = config.get("net0").and_then(|net| Nic::parse(net)).and_then(|nic| nic.mac);
        let (boots, left) = (guest.boots, guest.answers.clone());
        let disc = Self::nocloud_disc(&state, node, &config).or(left);
        let discs = match self.guest_host.reads_discs() {
            true => Self::discs(&state, node, vmid, &config),
            false => Vec::new(),
        };
        if let Some(disc) = &disc {
            hostname = nocloud::apply_disc(&mut config, &hostname, mac.as_deref(), disc);
        }
        let (node, boot, config_from_disc) = (node.to_owned(), boots, disc.is_some());
        Ok(GuestBoot { vmid, node, hostname, config, mac, boot, resumed, config_from_disc, discs })
    }

    fn check_volumes_exist(&self, node: &str, vmid: u32) -> Result<(), String> {
        let state = self.state();
        let config = &state.vm(node, vmid)?.config;
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

    /// Takes the devices of a VM's resource mappings, or says why it does not start (qemu-server,
    /// QemuServer/PCI.pm and USB.pm). Every slot of a simulated node may be passed through.
    fn choose_devices(&self, node: &str, vmid: u32) -> Result<Vec<String>, String> {
        let state = self.state();
        let config = &state.vm(node, vmid)?.config;
        let running = state.all_guests().filter(|guest| guest.node == node && guest.vmid != vmid);
        let taken: Vec<(&String, u32)> = running
            .filter_map(|guest| Some((guest.process.as_ref()?, guest.vmid)))
            .flat_map(|(process, owner)| process.devices.iter().map(move |one| (one, owner)))
            .collect();
        let mut chosen: Vec<String> = Vec::new();
        for (key, value) in config {
            let Some((kind, id)) = mapping::named(key, value) else { continue };
            let paths = state.mappings.paths(kind, id, node)?;
            if kind != "pci" {
                continue;
            }
            let owner = |path: &String| taken.iter().find(|(one, _)| *one == path);
            let free = paths.iter().find(|path| owner(path).is_none() && !chosen.contains(path));
            match (free, paths.as_slice()) {
                (Some(path), _) => chosen.push(path.clone()),
                (None, [only]) => {
                    let why = match owner(only) {
                        Some((_, vmid)) => {
                            format!("PCI device '{only}' already in use by VMID '{vmid}'")
                        }
                        None => format!("device '{only}' assigned more than once"),
                    };
                    return Err(why);
                }
                (None, _) => return Err(format!("could not find a free device for '{key}'")),
            }
        }
        Ok(chosen)
    }

    fn missing_bridge(&self, node: &str, vmid: u32) -> Result<Option<String>, String> {
        let state = self.state();
        let config = &state.vm(node, vmid)?.config;
        let nics = config.iter().filter(|(key, _)| numbered(key, "net").is_some());
        let mut bridges = nics.filter_map(|(_, v)| Nic::parse(v)?.options.get("bridge").cloned());
        Ok(bridges.find(|bridge| !state.has_bridge(node, bridge)).map(|bridge| {
            format!(
                "bridge '{bridge}' does not exist\nkvm: -netdev type=tap: network script failed"
            )
        }))
    }

    fn memory_shortage(&self, node: &str, vmid: u32) -> Option<String> {
        let state = self.state();
        let total = state.nodes.get(node)?.spec.memory_bytes;
        let running = state.all_guests().filter(|guest| guest.node == node);
        let used: u64 = running
            .filter(|guest| guest.process.is_some() && guest.vmid != vmid)
            .map(|guest| conf::memory_bytes(&guest.config))
            .sum();
        let wanted = conf::memory_bytes(&state.vms.get(&vmid)?.config);
        (used + wanted > total)
            .then(|| "kvm: cannot set up guest memory 'pc.ram': Cannot allocate memory".to_owned())
    }

    /// Kills the process of a VM.
    pub(crate) async fn stop_vm(self: &Arc<Self>, node: &str, vmid: u32) -> Result<(), String> {
        self.simulate_work(node, self.latency.stop, None).await;
        self.guest_host.stop(vmid).await;
        self.state().vm_mut(node, vmid)?.process_ended();
        Ok(())
    }

    /// The process of a VM if it runs now.
    pub(crate) fn vm_process(&self, node: &str, vmid: u32) -> Result<Option<GuestProcess>, String> {
        let mut state = self.state();
        self.refresh_vm(&mut state, vmid);
        Ok(state.find_vm(node, vmid)?.process.clone())
    }
}
