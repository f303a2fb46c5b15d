//! Power: start, stop, shutdown, reboot, reset, suspend and resume, each a task.

use std::sync::Arc;
use std::time::Duration;

use super::Cluster;
use super::ask::{Ask, failed};
use super::conf;
use super::ha;
use super::state::Run;
use super::worker::Worker;
use crate::call::{ApiError, Outcome};
use crate::guest::AgentCall;

/// How long a ping of the agent is waited for.
const PING: Duration = Duration::from_secs(3);
/// What a shutdown waits when nothing else is said.
const SHUTDOWN: u64 = 60;
/// How often a shutdown looks whether the guest has gone.
const LOOK: Duration = Duration::from_secs(1);

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
    if let Some(answer) = ha::ask_for(ask, &format!("vm:{}", ask.vmid), true) {
        return Ok(answer);
    }
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    let skiplock = ask.flag("skiplock");
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "qmstart", vmid, |worker| async move {
        let _file = cluster.guest_lock(&node, vmid, 10, Some(&worker)).await?;
        cluster.may_start(&node, vmid, skiplock)?;
        cluster.launch(&node, vmid, Some(&worker)).await
    }))
}

impl Cluster {
    /// Starts one of many guests.
    pub(crate) async fn start_one(
        self: &Arc<Self>,
        worker: &Worker,
        node: &str,
        vmid: u32,
    ) -> Result<(), String> {
        worker.log(format!("Starting VM {vmid}"));
        let _file = self.guest_lock(node, vmid, 10, Some(worker)).await?;
        self.may_start(node, vmid, false)?;
        self.launch(node, vmid, Some(worker)).await
    }

    /// Shuts down one of many guests.
    pub(crate) async fn shut_one(
        self: &Arc<Self>,
        worker: &Worker,
        node: &str,
        vmid: u32,
        timeout: Option<u64>,
        force: bool,
    ) -> Result<(), String> {
        worker
            .log(format!("Stopping VM {vmid} (timeout = {} seconds)", timeout.unwrap_or(SHUTDOWN)));
        let _file = self.guest_lock(node, vmid, 10, Some(worker)).await?;
        if self.runs(node, vmid)?.is_none() {
            return Ok(());
        }
        self.state().guest(node, vmid)?.unlocked()?;
        self.ask_down(worker, node, vmid, timeout, force).await
    }
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
}

/// `POST …/status/stop`.
pub fn stop(ask: &Ask) -> Outcome {
    ask.root_only(&["skiplock", "migratedfrom", "keepActive"])?;
    if let Some(answer) = ha::ask_for(ask, &format!("vm:{}", ask.vmid), false) {
        return Ok(answer);
    }
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
    if let Some(answer) = ha::ask_for(ask, &format!("vm:{}", ask.vmid), false) {
        return Ok(answer);
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
        cluster.ask_down(&worker, &node, vmid, timeout, force).await
    }))
}

impl Cluster {
    /// Asks a guest to shut down and waits for it, under the lock the caller holds.
    async fn ask_down(
        self: &Arc<Self>,
        worker: &Worker,
        node: &str,
        vmid: u32,
        timeout: Option<u64>,
        force: bool,
    ) -> Result<(), String> {
        let config = self.state().guest(node, vmid)?.config.clone();
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
                return self.halt(node, vmid).await;
            }
            let step = LOOK.min(limit - waited);
            tokio::time::sleep(step).await;
            waited += step;
        }
        self.guests.stop(vmid).await;
        self.state().guest_mut(node, vmid)?.halt();
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
        cluster.ask_down(&worker, &node, vmid, timeout, false).await?;
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
