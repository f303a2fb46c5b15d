//! Starting and stopping VMs: start, stop, shutdown, reboot, reset, suspend and resume.
//!
//! Each call forks a task that takes the lock of the configuration first. If high availability
//! manages the VM, the call only sets the requested state. A shutdown polls until the VM has
//! stopped; after its timeout it fails, or kills the VM with `forceStop`.

use std::sync::Arc;
use std::time::Duration;

use super::Cluster;
use super::conf;
use super::context::{CallContext, failed};
use super::ha;
use super::hotplug;
use super::state::GuestProcess;
use super::worker::Worker;
use crate::call::{ApiError, Outcome};
use crate::guest::AgentCall;

/// The timeout of the agent's ping before a shutdown.
const PING_TIMEOUT: Duration = Duration::from_secs(3);
/// The default timeout of a shutdown.
const DEFAULT_SHUTDOWN_SECS: u64 = 60;
/// How often a shutdown checks whether the VM has stopped.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// `POST …/status/start`.
pub(crate) fn start(ctx: &CallContext) -> Outcome {
    ctx.check_root_only(&[
        "skiplock",
        "stateuri",
        "migratedfrom",
        "migration_type",
        "migration_network",
        "targetstorage",
        "force-cpu",
        "with-conntrack-state",
    ])?;
    ctx.require_quorum()?;
    if let Some(answer) = ha::request_state(ctx, &format!("vm:{}", ctx.vmid), true) {
        return Ok(answer);
    }
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    let skiplock = ctx.flag("skiplock");
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "qmstart", vmid, |worker| async move {
        let _file = cluster.vm_lock(&node, vmid, 10, Some(&worker)).await?;
        cluster.check_may_start(&node, vmid, skiplock)?;
        cluster.start_vm(&node, vmid, Some(&worker)).await
    }))
}

impl Cluster {
    /// Starts a VM inside another task, under the lock of its configuration.
    pub(crate) async fn lock_and_start_vm(
        self: &Arc<Self>,
        worker: &Worker,
        node: &str,
        vmid: u32,
    ) -> Result<(), String> {
        worker.log(format!("Starting VM {vmid}"));
        let _file = self.vm_lock(node, vmid, 10, Some(worker)).await?;
        self.check_may_start(node, vmid, false)?;
        self.start_vm(node, vmid, Some(worker)).await
    }

    /// Shuts a VM down inside another task, under the lock of its configuration.
    pub(crate) async fn lock_and_shut_down_vm(
        self: &Arc<Self>,
        worker: &Worker,
        node: &str,
        vmid: u32,
        timeout: Option<u64>,
        force: bool,
    ) -> Result<(), String> {
        worker.log(format!(
            "Stopping VM {vmid} (timeout = {} seconds)",
            timeout.unwrap_or(DEFAULT_SHUTDOWN_SECS)
        ));
        let _file = self.vm_lock(node, vmid, 10, Some(worker)).await?;
        if self.vm_process(node, vmid)?.is_none() {
            return Ok(());
        }
        self.state().vm(node, vmid)?.ensure_unlocked()?;
        self.shut_down_vm(worker, node, vmid, timeout, force).await
    }
}

impl Cluster {
    fn check_may_start(&self, node: &str, vmid: u32, skiplock: bool) -> Result<(), String> {
        let mut state = self.state();
        self.refresh_vm(&mut state, vmid);
        let guest = state.vm(node, vmid)?;
        if guest.is_template() {
            return Err("you can't start a vm if it's a template".into());
        }
        let suspended = guest.config.get("lock").is_some_and(|lock| lock == "suspended");
        if !suspended && !skiplock {
            guest.ensure_unlocked()?;
        }
        if guest.process.is_some() {
            return Err(format!("VM {vmid} already running"));
        }
        hotplug::check_may_start(&guest.config)?;
        if suspended {
            state.vm_mut(node, vmid)?.config.remove("lock");
        }
        Ok(())
    }
}

/// `POST …/status/stop`.
pub(crate) fn stop(ctx: &CallContext) -> Outcome {
    ctx.check_root_only(&["skiplock", "migratedfrom", "keepActive"])?;
    if let Some(answer) = ha::request_state(ctx, &format!("vm:{}", ctx.vmid), false) {
        return Ok(answer);
    }
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    let (skiplock, overrule) = (ctx.flag("skiplock"), ctx.flag("overrule-shutdown"));
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "qmstop", vmid, |worker| async move {
        if overrule {
            cluster.overrule_shutdowns(&worker, vmid).await;
        }
        cluster.vm_process(&node, vmid)?;
        let _file = cluster.vm_lock(&node, vmid, 10, Some(&worker)).await?;
        if cluster.vm_process(&node, vmid)?.is_none() {
            return Ok(());
        }
        if !skiplock {
            cluster.state().vm(&node, vmid)?.ensure_unlocked()?;
        }
        cluster.stop_vm(&node, vmid).await
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
pub(crate) fn shutdown(ctx: &CallContext) -> Outcome {
    ctx.check_root_only(&["skiplock", "keepActive"])?;
    let force = ctx.flag("forceStop");
    let paused = ctx
        .cluster
        .vm_process(&ctx.node, ctx.vmid)
        .ok()
        .flatten()
        .is_some_and(|process| process.paused);
    if paused && !force {
        return Err(ApiError::failed("VM is paused - cannot shutdown"));
    }
    if let Some(answer) = ha::request_state(ctx, &format!("vm:{}", ctx.vmid), false) {
        return Ok(answer);
    }
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    let timeout = ctx.number("timeout");
    let skiplock = ctx.flag("skiplock");
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "qmshutdown", vmid, |worker| async move {
        cluster.vm_process(&node, vmid)?;
        let _file = cluster.vm_lock(&node, vmid, 10, Some(&worker)).await?;
        if cluster.vm_process(&node, vmid)?.is_none() {
            return Ok(());
        }
        if !skiplock {
            cluster.state().vm(&node, vmid)?.ensure_unlocked()?;
        }
        if paused {
            return cluster.stop_vm(&node, vmid).await;
        }
        cluster.shut_down_vm(&worker, &node, vmid, timeout, force).await
    }))
}

impl Cluster {
    /// Asks a VM to shut down and waits for it; the caller holds the lock of its configuration.
    async fn shut_down_vm(
        self: &Arc<Self>,
        worker: &Worker,
        node: &str,
        vmid: u32,
        timeout: Option<u64>,
        force: bool,
    ) -> Result<(), String> {
        let config = self.state().vm(node, vmid)?.config.clone();
        if conf::agent_enabled(&config) {
            self.ping_before_shutdown(worker, vmid).await;
        }
        self.guest_host.shutdown(vmid).await;
        let startup = config.get("startup").and_then(|text| down_timeout(text));
        let limit = Duration::from_secs(timeout.or(startup).unwrap_or(DEFAULT_SHUTDOWN_SECS));
        let mut waited = Duration::ZERO;
        while self.guest_host.running(vmid) {
            if waited >= limit {
                if !force {
                    return Err("VM quit/powerdown failed - got timeout".into());
                }
                worker.log("VM still running - terminating now with SIGTERM");
                return self.stop_vm(node, vmid).await;
            }
            let step = POLL_INTERVAL.min(limit - waited);
            tokio::time::sleep(step).await;
            waited += step;
        }
        self.guest_host.stop(vmid).await;
        self.state().vm_mut(node, vmid)?.process_ended();
        Ok(())
    }

    /// Pings the agent before a shutdown. As in Proxmox's worker, SIGTERM during the ping only ends
    /// the ping.
    async fn ping_before_shutdown(&self, worker: &Worker, vmid: u32) {
        worker.catch_signals();
        let started = tokio::time::Instant::now();
        if !self.agent_answers(vmid).await {
            let rest = PING_TIMEOUT.saturating_sub(started.elapsed());
            let reason = if worker.sleep(rest).await {
                format!("VM {vmid} qmp command 'guest-ping' failed - got timeout")
            } else {
                "received interrupt".into()
            };
            worker.log(format!("QEMU Guest Agent is not running - {reason}"));
        }
        worker.release_signals();
    }

    /// Whether the agent answers a ping now; waiting for the timeout is up to the caller.
    pub(crate) async fn agent_answers(&self, vmid: u32) -> bool {
        let may_answer = {
            let state = self.state();
            let guest = state.vms.get(&vmid);
            guest.is_some_and(|guest| {
                guest.agent_health != super::AgentHealth::Dead
                    && guest.process.as_ref().is_some_and(|process| !process.paused)
            })
        };
        may_answer && self.guest_host.agent(vmid, AgentCall::Ping).await.is_ok()
    }
}

fn down_timeout(startup: &str) -> Option<u64> {
    startup.split(',').find_map(|part| part.strip_prefix("down=")?.parse().ok())
}

/// Refuses a call if the VM does not run.
fn ensure_running(ctx: &CallContext) -> Result<GuestProcess, ApiError> {
    {
        let state = ctx.cluster.state();
        state.vm(&ctx.node, ctx.vmid).map_err(failed)?;
    }
    let process = ctx.cluster.vm_process(&ctx.node, ctx.vmid).map_err(failed)?;
    process.ok_or_else(|| failed(format!("VM {} not running", ctx.vmid)))
}

/// `POST …/status/reboot`.
pub(crate) fn reboot(ctx: &CallContext) -> Outcome {
    let process = ensure_running(ctx)?;
    if process.paused {
        return Err(ApiError::failed("VM is paused - cannot shutdown"));
    }
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    let timeout = ctx.number("timeout");
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "qmreboot", vmid, |worker| async move {
        let file = cluster.vm_lock(&node, vmid, 10, Some(&worker)).await?;
        if cluster.vm_process(&node, vmid)?.is_none() {
            return Ok(());
        }
        cluster.state().vm(&node, vmid)?.ensure_unlocked()?;
        cluster.shut_down_vm(&worker, &node, vmid, timeout, false).await?;
        drop(file);
        // A helper restarts the VM after the end of the task, so the VM is stopped in between.
        tokio::spawn(async move {
            tokio::time::sleep(POLL_INTERVAL).await;
            let Ok(_file) = cluster.vm_lock(&node, vmid, 10, None).await else { return };
            if cluster.vm_process(&node, vmid).is_ok_and(|process| process.is_none())
                && let Err(error) = cluster.start_vm(&node, vmid, None).await
            {
                tracing::debug!(vmid, node, error, "cannot start the VM again after its reboot");
            }
        });
        Ok(())
    }))
}

/// `POST …/status/reset`.
pub(crate) fn reset(ctx: &CallContext) -> Outcome {
    ctx.check_root_only(&["skiplock"])?;
    ensure_running(ctx)?;
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "qmreset", vmid, |worker| async move {
        let _file = cluster.vm_lock(&node, vmid, 10, Some(&worker)).await?;
        let Some(process) = cluster.vm_process(&node, vmid)? else {
            return Err(format!("VM {vmid} not running"));
        };
        cluster.state().vm(&node, vmid)?.ensure_unlocked()?;
        if cluster.guest_host.reset(vmid).await {
            return cluster.set_paused(&node, vmid, false).await;
        }
        cluster.guest_host.stop(vmid).await;
        let boot = {
            let mut state = cluster.state();
            let guest = state.vm_mut(&node, vmid)?;
            // The process continues, so pending changes stay pending.
            let waiting = std::mem::take(&mut guest.pending);
            drop(state);
            let boot = cluster.boot_parameters(&node, vmid, true);
            cluster.state().vm_mut(&node, vmid)?.pending = waiting;
            boot?
        };
        cluster.guest_host.boot(boot).await.map_err(|error| format!("start failed: {error}"))?;
        cluster.state().vm_mut(&node, vmid)?.process =
            Some(GuestProcess { paused: false, ..process });
        Ok(())
    }))
}

/// `POST …/status/suspend`.
pub(crate) fn suspend(ctx: &CallContext) -> Outcome {
    ctx.check_root_only(&["skiplock"])?;
    ensure_running(ctx)?;
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    let to_disk = ctx.flag("todisk");
    let kind = if to_disk { "qmsuspend" } else { "qmpause" };
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, kind, vmid, |worker| async move {
        let _file = cluster.vm_lock(&node, vmid, 10, Some(&worker)).await?;
        cluster.state().vm(&node, vmid)?.ensure_unlocked()?;
        if to_disk {
            cluster.simulate_work(&node, cluster.latency.stop, None).await;
            cluster.guest_host.hibernate(vmid).await?;
            let mut state = cluster.state();
            let guest = state.vm_mut(&node, vmid)?;
            guest.process_ended();
            guest.config.insert("lock".into(), "suspended".into());
            return Ok(());
        }
        cluster.set_paused(&node, vmid, true).await
    }))
}

/// `POST …/status/resume`.
pub(crate) fn resume(ctx: &CallContext) -> Outcome {
    ctx.check_root_only(&["skiplock", "nocheck"])?;
    ensure_running(ctx)?;
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "qmresume", vmid, |worker| async move {
        let _file = cluster.vm_lock(&node, vmid, 10, Some(&worker)).await?;
        cluster.state().vm(&node, vmid)?.ensure_unlocked()?;
        cluster.set_paused(&node, vmid, false).await
    }))
}

impl Cluster {
    async fn set_paused(&self, node: &str, vmid: u32, paused: bool) -> Result<(), String> {
        self.vm_process(node, vmid)?;
        self.guest_host.set_paused(vmid, paused).await?;
        let mut state = self.state();
        match &mut state.vm_mut(node, vmid)?.process {
            Some(process) => process.paused = paused,
            None => return Err(format!("VM {vmid} not running")),
        }
        Ok(())
    }
}
