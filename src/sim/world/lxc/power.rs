//! Starting and stopping containers. The request itself refuses to start a running container or to
//! stop a stopped one; a VM refuses in the task.

use std::time::Duration;

use super::super::Cluster;
use super::super::context::{CallContext, failed};
use super::super::ha;
use super::super::worker::Worker;
use crate::call::{ApiError, Outcome};

/// The default timeout of a shutdown.
const DEFAULT_SHUTDOWN_SECS: u64 = 60;
/// How often a shutdown checks whether the container has stopped.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

fn ensure_running(ctx: &CallContext) -> Result<(), ApiError> {
    match ctx.cluster.container_process(&ctx.node, ctx.vmid).map_err(failed)? {
        Some(_) => Ok(()),
        None => Err(failed(format!("CT {} not running", ctx.vmid))),
    }
}

/// `POST …/status/start`.
pub(crate) fn start(ctx: &CallContext) -> Outcome {
    ctx.check_root_only(&["skiplock"])?;
    if ctx.cluster.container_process(&ctx.node, ctx.vmid).map_err(failed)?.is_some() {
        return Err(failed(format!("CT {} already running", ctx.vmid)));
    }
    ctx.require_quorum()?;
    if let Some(answer) = ha::request_state(ctx, &format!("ct:{}", ctx.vmid), true) {
        return Ok(answer);
    }
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "vzstart", vmid, |worker| async move {
        let _file = cluster.container_lock(&node, vmid, Some(&worker)).await?;
        cluster.state().container(&node, vmid)?.ensure_unlocked()?;
        if cluster.container_process(&node, vmid)?.is_some() {
            return Err(format!("CT {vmid} already running"));
        }
        cluster.start_container(&node, vmid, Some(&worker)).await
    }))
}

/// `POST …/status/stop`.
pub(crate) fn stop(ctx: &CallContext) -> Outcome {
    ctx.check_root_only(&["skiplock"])?;
    ensure_running(ctx)?;
    if let Some(answer) = ha::request_state(ctx, &format!("ct:{}", ctx.vmid), false) {
        return Ok(answer);
    }
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "vzstop", vmid, |worker| async move {
        let _file = cluster.container_lock(&node, vmid, Some(&worker)).await?;
        cluster.state().container(&node, vmid)?.ensure_unlocked()?;
        cluster.stop_container(&node, vmid).await
    }))
}

/// `POST …/status/shutdown`.
pub(crate) fn shutdown(ctx: &CallContext) -> Outcome {
    ensure_running(ctx)?;
    if let Some(answer) = ha::request_state(ctx, &format!("ct:{}", ctx.vmid), false) {
        return Ok(answer);
    }
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    let timeout = ctx.number("timeout").unwrap_or(DEFAULT_SHUTDOWN_SECS);
    let force = ctx.flag("forceStop");
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "vzshutdown", vmid, |worker| async move {
        let _file = cluster.container_lock(&node, vmid, Some(&worker)).await?;
        cluster.state().container(&node, vmid)?.ensure_unlocked()?;
        cluster.shut_down_container(&worker, vmid, timeout, force).await
    }))
}

/// `POST …/status/reboot`.
pub(crate) fn reboot(ctx: &CallContext) -> Outcome {
    ensure_running(ctx)?;
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    let timeout = ctx.number("timeout").unwrap_or(DEFAULT_SHUTDOWN_SECS);
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "vzreboot", vmid, |worker| async move {
        let _file = cluster.container_lock(&node, vmid, Some(&worker)).await?;
        cluster.state().container(&node, vmid)?.ensure_unlocked()?;
        cluster.shut_down_container(&worker, vmid, timeout, true).await?;
        cluster.start_container(&node, vmid, Some(&worker)).await
    }))
}

/// `POST …/status/suspend`: saves the state to a file on the node (pve-container,
/// API2/LXC/Status.pm).
pub(crate) fn suspend(ctx: &CallContext) -> Outcome {
    ensure_running(ctx)?;
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "vzsuspend", vmid, |worker| async move {
        let _file = cluster.container_lock(&node, vmid, Some(&worker)).await?;
        cluster.state().container(&node, vmid)?.ensure_unlocked()?;
        cluster.stop_container(&node, vmid).await
    }))
}

/// `POST …/status/resume`: the container boots, whether it was suspended or not [I].
pub(crate) fn resume(ctx: &CallContext) -> Outcome {
    if ctx.cluster.container_process(&ctx.node, ctx.vmid).map_err(failed)?.is_some() {
        return Err(failed(format!("CT {} already running", ctx.vmid)));
    }
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "vzresume", vmid, |worker| async move {
        let _file = cluster.container_lock(&node, vmid, Some(&worker)).await?;
        cluster.start_container(&node, vmid, Some(&worker)).await
    }))
}

impl Cluster {
    pub(super) async fn shut_down_container(
        &self,
        worker: &Worker,
        vmid: u32,
        timeout: u64,
        force: bool,
    ) -> Result<(), String> {
        let node = worker.node.clone();
        self.guest_host.shutdown(vmid).await;
        let limit = Duration::from_secs(timeout);
        let mut waited = Duration::ZERO;
        while self.guest_host.running(vmid) {
            if waited >= limit {
                if force {
                    return self.stop_container(&node, vmid).await;
                }
                return Err(format!(
                    "command 'lxc-stop -n {vmid} --nokill --timeout {timeout}' failed: exit code 1"
                ));
            }
            let step = POLL_INTERVAL.min(limit - waited);
            tokio::time::sleep(step).await;
            waited += step;
        }
        self.guest_host.stop(vmid).await;
        self.state().container_mut(&node, vmid)?.process_ended();
        Ok(())
    }
}
