//! Power: start, stop, shutdown, reboot, reset, suspend and resume, each a task.

use std::sync::Arc;
use std::time::Duration;

use super::Cluster;
use super::ask::{Ask, failed};
use super::conf::{self, Drive, Nic, numbered};
use super::state::{Guest, Pending, Run, State};
use super::worker::Worker;
use crate::sim::call::{ApiError, Outcome};
use crate::sim::guest::{AgentCall, GuestBoot};

/// How long a ping of the agent is waited for.
const PING: Duration = Duration::from_secs(3);
/// What a shutdown waits when nothing else is said.
const SHUTDOWN: u64 = 60;
/// How often a shutdown looks whether the guest has gone.
const LOOK: Duration = Duration::from_secs(1);

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

/// `POST …/status/start`.
pub fn start(ask: &Ask) -> Outcome {
    ask.root_only(&[
        "skiplock",
        "stateuri",
        "migratedfrom",
        "migration_type",
        "migration_network",
        "targetstorage",
        "force-cpu",
        "with-conntrack-state",
    ])?;
    ask.quorate()?;
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    let skiplock = ask.flag("skiplock");
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "qmstart", vmid, |worker| async move {
        let _file = cluster.guest_lock(&node, vmid, 10, Some(&worker)).await?;
        cluster.may_start(&node, vmid, skiplock)?;
        cluster.launch(&node, vmid, Some(&worker)).await
    }))
}

impl Cluster {
    fn may_start(&self, node: &str, vmid: u32, skiplock: bool) -> Result<(), String> {
        let mut state = self.state();
        self.refresh(&mut state, vmid);
        let guest = state.guest(node, vmid)?;
        if guest.is_template() {
            return Err("you can't start a vm if it's a template".into());
        }
        let suspended = guest.config.get("lock").is_some_and(|lock| lock == "suspended");
        if !suspended && !skiplock {
            guest.unlocked()?;
        }
        if guest.run.is_some() {
            return Err(format!("VM {vmid} already running"));
        }
        if suspended {
            state.guest_mut(node, vmid)?.config.remove("lock");
        }
        Ok(())
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
        Ok(())
    }

    fn prepare(&self, node: &str, vmid: u32, fresh: bool) -> Result<GuestBoot, String> {
        let mut state = self.state();
        let guest = state.guest_mut(node, vmid)?;
        guest.halt();
        if fresh || guest.boots == 0 {
            guest.boots += 1;
        }
        let config = guest.config.clone();
        let name = config.get("name").cloned().unwrap_or_else(|| format!("VM{vmid}"));
        let hostname = name.split('.').next().unwrap_or(&name).to_owned();
        let mac = config.get("net0").and_then(|net| Nic::parse(net)).and_then(|nic| nic.mac);
        Ok(GuestBoot { vmid, node: node.to_owned(), hostname, config, mac, boot: guest.boots })
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
        let Some(known) = state.nodes.get(node).map(|node| &node.spec.bridges) else {
            return Ok(None);
        };
        let nics = config.iter().filter(|(key, _)| numbered(key, "net").is_some());
        let mut bridges = nics.filter_map(|(_, v)| Nic::parse(v)?.options.get("bridge").cloned());
        Ok(bridges.find(|bridge| !known.contains(bridge)).map(|bridge| {
            format!(
                "bridge '{bridge}' does not exist\nkvm: -netdev type=tap: network script failed"
            )
        }))
    }

    fn memory_left(&self, node: &str, vmid: u32) -> Option<String> {
        let state = self.state();
        let total = state.nodes.get(node)?.spec.memory_bytes;
        let running = state.guests.values().filter(|guest| guest.node == node);
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

/// `POST …/status/stop`.
pub fn stop(ask: &Ask) -> Outcome {
    ask.root_only(&["skiplock", "migratedfrom", "keepActive"])?;
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    let (skiplock, overrule) = (ask.flag("skiplock"), ask.flag("overrule-shutdown"));
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "qmstop", vmid, |worker| async move {
        if overrule {
            cluster.overrule_shutdowns(&worker, vmid).await;
        }
        cluster.runs(&node, vmid)?;
        let _file = cluster.guest_lock(&node, vmid, 10, Some(&worker)).await?;
        if cluster.runs(&node, vmid)?.is_none() {
            return Ok(());
        }
        if !skiplock {
            cluster.state().guest(&node, vmid)?.unlocked()?;
        }
        cluster.halt(&node, vmid).await
    }))
}

impl Cluster {
    async fn overrule_shutdowns(&self, worker: &Worker, vmid: u32) {
        let id = vmid.to_string();
        let shutdowns: Vec<String> = {
            let state = self.state();
            let running = state.tasks.running(&worker.node);
            running
                .filter(|task| task.upid.kind == "qmshutdown" && task.upid.id == id)
                .map(|task| task.upid.to_string())
                .collect()
        };
        for upid in &shutdowns {
            self.stop_task(upid).await;
        }
        if !shutdowns.is_empty() {
            worker.log(format!("overruled qmshutdown tasks: {}", shutdowns.join(" ")));
        }
    }
}

/// `POST …/status/shutdown`.
pub fn shutdown(ask: &Ask) -> Outcome {
    ask.root_only(&["skiplock", "keepActive"])?;
    let force = ask.flag("forceStop");
    let paused = ask.cluster.runs(&ask.node, ask.vmid).ok().flatten().is_some_and(|run| run.paused);
    if paused && !force {
        return Err(ApiError::failed("VM is paused - cannot shutdown"));
    }
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    let timeout = ask.number("timeout");
    let skiplock = ask.flag("skiplock");
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "qmshutdown", vmid, |worker| async move {
        cluster.runs(&node, vmid)?;
        let _file = cluster.guest_lock(&node, vmid, 10, Some(&worker)).await?;
        if cluster.runs(&node, vmid)?.is_none() {
            return Ok(());
        }
        if !skiplock {
            cluster.state().guest(&node, vmid)?.unlocked()?;
        }
        if paused {
            return cluster.halt(&node, vmid).await;
        }
        cluster.ask_down(&worker, vmid, timeout, force).await
    }))
}

impl Cluster {
    /// Asks a guest to shut down and waits for it, under the lock the caller holds.
    async fn ask_down(
        self: &Arc<Self>,
        worker: &Worker,
        vmid: u32,
        timeout: Option<u64>,
        force: bool,
    ) -> Result<(), String> {
        let node = worker.node.clone();
        let config = self.state().guest(&node, vmid)?.config.clone();
        if conf::agent_enabled(&config) {
            self.ping_before_shutdown(worker, vmid).await;
        }
        self.guests.shutdown(vmid).await;
        let startup = config.get("startup").and_then(|text| down_timeout(text));
        let limit = Duration::from_secs(timeout.or(startup).unwrap_or(SHUTDOWN));
        let mut waited = Duration::ZERO;
        while self.guests.running(vmid) {
            if waited >= limit {
                if !force {
                    return Err("VM quit/powerdown failed - got timeout".into());
                }
                worker.log("VM still running - terminating now with SIGTERM");
                return self.halt(&node, vmid).await;
            }
            let step = LOOK.min(limit - waited);
            tokio::time::sleep(step).await;
            waited += step;
        }
        self.guests.stop(vmid).await;
        self.state().guest_mut(&node, vmid)?.halt();
        Ok(())
    }

    /// SIGTERM while the agent is pinged is taken for the ping's failure, as in the real worker.
    async fn ping_before_shutdown(&self, worker: &Worker, vmid: u32) {
        worker.catch_signals();
        let begun = tokio::time::Instant::now();
        if !self.agent_answers(vmid).await {
            let rest = PING.saturating_sub(begun.elapsed());
            let reason = if worker.sleep(rest).await {
                format!("VM {vmid} qmp command 'guest-ping' failed - got timeout")
            } else {
                "received interrupt".into()
            };
            worker.log(format!("QEMU Guest Agent is not running - {reason}"));
        }
        worker.release_signals();
    }

    /// Whether the agent answers a ping; how long that takes is the caller's business.
    pub(crate) async fn agent_answers(&self, vmid: u32) -> bool {
        let well = {
            let state = self.state();
            let guest = state.guests.get(&vmid);
            guest.is_some_and(|guest| {
                guest.agent != super::AgentHealth::Dead
                    && guest.run.as_ref().is_some_and(|run| !run.paused)
            })
        };
        well && self.guests.agent(vmid, AgentCall::Ping).await.is_ok()
    }
}

fn down_timeout(startup: &str) -> Option<u64> {
    startup.split(',').find_map(|part| part.strip_prefix("down=")?.parse().ok())
}

/// Refuses calls on guests that do not run.
fn must_run(ask: &Ask) -> Result<Run, ApiError> {
    {
        let state = ask.cluster.state();
        state.guest(&ask.node, ask.vmid).map_err(failed)?;
    }
    let run = ask.cluster.runs(&ask.node, ask.vmid).map_err(failed)?;
    run.ok_or_else(|| failed(format!("VM {} not running", ask.vmid)))
}

/// `POST …/status/reboot`.
pub fn reboot(ask: &Ask) -> Outcome {
    let run = must_run(ask)?;
    if run.paused {
        return Err(ApiError::failed("VM is paused - cannot shutdown"));
    }
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    let timeout = ask.number("timeout");
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "qmreboot", vmid, |worker| async move {
        let file = cluster.guest_lock(&node, vmid, 10, Some(&worker)).await?;
        if cluster.runs(&node, vmid)?.is_none() {
            return Ok(());
        }
        cluster.state().guest(&node, vmid)?.unlocked()?;
        cluster.ask_down(&worker, vmid, timeout, false).await?;
        drop(file);
        // The restart is a helper's work after the task: the guest is seen stopped in between.
        tokio::spawn(async move {
            tokio::time::sleep(LOOK).await;
            let Ok(_file) = cluster.guest_lock(&node, vmid, 10, None).await else { return };
            if cluster.runs(&node, vmid).is_ok_and(|run| run.is_none())
                && let Err(error) = cluster.launch(&node, vmid, None).await
            {
                tracing::debug!(vmid, node, error, "guest does not come back from its reboot");
            }
        });
        Ok(())
    }))
}

/// `POST …/status/reset`.
pub fn reset(ask: &Ask) -> Outcome {
    ask.root_only(&["skiplock"])?;
    must_run(ask)?;
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "qmreset", vmid, |worker| async move {
        let _file = cluster.guest_lock(&node, vmid, 10, Some(&worker)).await?;
        let Some(run) = cluster.runs(&node, vmid)? else {
            return Err(format!("VM {vmid} not running"));
        };
        cluster.state().guest(&node, vmid)?.unlocked()?;
        cluster.guests.stop(vmid).await;
        let boot = {
            let mut state = cluster.state();
            let guest = state.guest_mut(&node, vmid)?;
            // The process goes on: changes that wait for a stop keep waiting.
            let waiting = std::mem::take(&mut guest.pending);
            drop(state);
            let boot = cluster.prepare(&node, vmid, true);
            cluster.state().guest_mut(&node, vmid)?.pending = waiting;
            boot?
        };
        cluster.guests.boot(boot).await.map_err(|error| format!("start failed: {error}"))?;
        cluster.state().guest_mut(&node, vmid)?.run = Some(Run { paused: false, ..run });
        Ok(())
    }))
}

/// `POST …/status/suspend`.
pub fn suspend(ask: &Ask) -> Outcome {
    ask.root_only(&["skiplock"])?;
    must_run(ask)?;
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    let to_disk = ask.flag("todisk");
    let kind = if to_disk { "qmsuspend" } else { "qmpause" };
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, kind, vmid, |worker| async move {
        let _file = cluster.guest_lock(&node, vmid, 10, Some(&worker)).await?;
        cluster.state().guest(&node, vmid)?.unlocked()?;
        if to_disk {
            cluster.halt(&node, vmid).await?;
            let mut state = cluster.state();
            state.guest_mut(&node, vmid)?.config.insert("lock".into(), "suspended".into());
            return Ok(());
        }
        cluster.set_paused(&node, vmid, true)
    }))
}

/// `POST …/status/resume`.
pub fn resume(ask: &Ask) -> Outcome {
    ask.root_only(&["skiplock", "nocheck"])?;
    must_run(ask)?;
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "qmresume", vmid, |worker| async move {
        let _file = cluster.guest_lock(&node, vmid, 10, Some(&worker)).await?;
        cluster.state().guest(&node, vmid)?.unlocked()?;
        cluster.set_paused(&node, vmid, false)
    }))
}

impl Cluster {
    fn set_paused(&self, node: &str, vmid: u32, paused: bool) -> Result<(), String> {
        self.runs(node, vmid)?;
        let mut state = self.state();
        match &mut state.guest_mut(node, vmid)?.run {
            Some(run) => run.paused = paused,
            None => return Err(format!("VM {vmid} not running")),
        }
        Ok(())
    }
}
