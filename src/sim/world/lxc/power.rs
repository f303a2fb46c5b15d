//! Power of containers: unlike virtual machines they refuse in the request what makes no sense.

use std::time::Duration;

use super::super::Cluster;
use super::super::ask::{Ask, failed};
use super::super::ha;
use super::super::worker::Worker;
use crate::call::{ApiError, Outcome};

/// What a shutdown waits when nothing else is said.
const SHUTDOWN: u64 = 60;
/// How often a shutdown looks whether the container has gone.
const LOOK: Duration = Duration::from_secs(1);

fn must_run(ask: &Ask) -> Result<(), ApiError> {
    match ask.cluster.container_runs(&ask.node, ask.vmid).map_err(failed)? {
        Some(_) => Ok(()),
        None => Err(failed(format!("CT {} not running", ask.vmid))),
    }
}

/// `POST …/status/start`.
pub fn start(ask: &Ask) -> Outcome {
    ask.root_only(&["skiplock"])?;
    if ask.cluster.container_runs(&ask.node, ask.vmid).map_err(failed)?.is_some() {
        return Err(failed(format!("CT {} already running", ask.vmid)));
    }
    ask.quorate()?;
    if let Some(answer) = ha::ask_for(ask, &format!("ct:{}", ask.vmid), true) {
        return Ok(answer);
    }
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "vzstart", vmid, |worker| async move {
        let _file = cluster.container_lock(&node, vmid, Some(&worker)).await?;
        cluster.state().container(&node, vmid)?.unlocked()?;
        if cluster.container_runs(&node, vmid)?.is_some() {
            return Err(format!("CT {vmid} already running"));
        }
        cluster.launch_container(&node, vmid, Some(&worker)).await
    }))
}

/// `POST …/status/stop`.
pub fn stop(ask: &Ask) -> Outcome {
    ask.root_only(&["skiplock"])?;
    must_run(ask)?;
    if let Some(answer) = ha::ask_for(ask, &format!("ct:{}", ask.vmid), false) {
        return Ok(answer);
    }
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "vzstop", vmid, |worker| async move {
        let _file = cluster.container_lock(&node, vmid, Some(&worker)).await?;
        cluster.state().container(&node, vmid)?.unlocked()?;
        cluster.halt_container(&node, vmid).await
    }))
}

/// `POST …/status/shutdown`.
pub fn shutdown(ask: &Ask) -> Outcome {
    must_run(ask)?;
    if let Some(answer) = ha::ask_for(ask, &format!("ct:{}", ask.vmid), false) {
        return Ok(answer);
    }
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    let timeout = ask.number("timeout").unwrap_or(SHUTDOWN);
    let force = ask.flag("forceStop");
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "vzshutdown", vmid, |worker| async move {
        let _file = cluster.container_lock(&node, vmid, Some(&worker)).await?;
        cluster.state().container(&node, vmid)?.unlocked()?;
        cluster.ask_container_down(&worker, vmid, timeout, force).await
    }))
}

/// `POST …/status/reboot`.
pub fn reboot(ask: &Ask) -> Outcome {
    must_run(ask)?;
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    let timeout = ask.number("timeout").unwrap_or(SHUTDOWN);
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "vzreboot", vmid, |worker| async move {
        let _file = cluster.container_lock(&node, vmid, Some(&worker)).await?;
        cluster.state().container(&node, vmid)?.unlocked()?;
        cluster.ask_container_down(&worker, vmid, timeout, true).await?;
        cluster.launch_container(&node, vmid, Some(&worker)).await
    }))
}

/// `POST …/status/suspend`: its state goes to a file of the node (pve-container,
/// API2/LXC/Status.pm).
pub fn suspend(ask: &Ask) -> Outcome {
    must_run(ask)?;
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "vzsuspend", vmid, |worker| async move {
        let _file = cluster.container_lock(&node, vmid, Some(&worker)).await?;
        cluster.state().container(&node, vmid)?.unlocked()?;
        cluster.halt_container(&node, vmid).await
    }))
}

/// `POST …/status/resume`: here the container boots, whether it was suspended or not [I].
pub fn resume(ask: &Ask) -> Outcome {
    if ask.cluster.container_runs(&ask.node, ask.vmid).map_err(failed)?.is_some() {
        return Err(failed(format!("CT {} already running", ask.vmid)));
    }
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "vzresume", vmid, |worker| async move {
        let _file = cluster.container_lock(&node, vmid, Some(&worker)).await?;
        cluster.launch_container(&node, vmid, Some(&worker)).await
    }))
}

impl Cluster {
    pub(super) async fn ask_container_down(
        &self,
        worker: &Worker,
        vmid: u32,
        timeout: u64,
        force: bool,
    ) -> Result<(), String> {
        let node = worker.node.clone();
        self.guests.shutdown(vmid).await;
        let limit = Duration::from_secs(timeout);
        let mut waited = Duration::ZERO;
        while self.guests.running(vmid) {
            if waited >= limit {
                if force {
                    return self.halt_container(&node, vmid).await;
                }
                return Err(format!(
                    "command 'lxc-stop -n {vmid} --nokill --timeout {timeout}' failed: exit code 1"
                ));
            }
            let step = LOOK.min(limit - waited);
            tokio::time::sleep(step).await;
            waited += step;
        }
        self.guests.stop(vmid).await;
        self.state().container_mut(&node, vmid)?.halt();
        Ok(())
    }
}
