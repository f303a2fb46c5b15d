//! Orders to a guest: power, snapshots and sizes. Each reads the guest's marks first, awaits its task,
//! and reads at the end whether the guest runs.
//!
//! - What the guest is already counts as done: a start of a guest that runs, a stop of one that is
//!   stopped. So an order that a restart of the service cut short can be carried out again.
//! - What Proxmox would refuse is refused before a call where the guest's state shows it, with the
//!   command that helps.
//! - A lock of Proxmox is a fault that passes: the caller tries again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drover_limits::concurrency::MaxConcurrent;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::VmId;
use drover_model::order::{SNAPSHOTS_MOST, Work, is_own_snapshot};
use drover_model::phase::Power;
use drover_model::ports::{Carried, OrderCall, VmRef};
use drover_model::size::Size;
use proxmox_client::Params;
use proxmox_client::types::{Current, SnapshotRow, VmConfig};

use super::Cloud;
use crate::client::{Failure, task};
use crate::configure::{primary_disk, size_of, unlocked, verify};
use crate::describe::power_of;
use crate::snapshot::into_result;

/// The pause between two looks at a guest that starts again after its shutdown.
const RESTART_LOOKS: Duration = Duration::from_secs(1);

/// A fault that another try meets again.
fn refused(text: String) -> Failure {
    Fault::new(FaultKind::Broken, Culprit::Guest, text).into()
}

impl Cloud {
    /// Carries an order out, and reads whether the guest runs then.
    pub(super) async fn carry_out(&self, call: &OrderCall, max: MaxConcurrent) -> Carried {
        let taken = AtomicBool::new(false);
        let outcome = self.work(call, max, &taken).await.map_err(|error| self.client.fault(&error));
        let theirs = outcome
            .as_ref()
            .is_err_and(|fault| matches!(fault.kind, FaultKind::Foreign | FaultKind::Gone));
        let power = match theirs {
            true => Power::Unknown,
            false => match self.current(&call.vm).await {
                Ok(current) => power_of(&current).0,
                Err(error) => {
                    self.client.fault(&error);
                    Power::Unknown
                }
            },
        };
        Carried { power, sent: taken.into_inner(), outcome }
    }

    async fn current(&self, vm: &VmRef) -> Result<Current, Failure> {
        Ok(self.client.guest_status(vm.node.as_str(), vm.vmid.0).await?)
    }

    async fn work(
        &self,
        call: &OrderCall,
        max: MaxConcurrent,
        taken: &AtomicBool,
    ) -> Result<String, Failure> {
        let OrderCall { vm, marks, work, .. } = call;
        let config = self.client.config(vm.node.as_str(), vm.vmid.0).await?;
        verify(&config, marks, vm.vmid)?;
        let wakes_from_disk = *work == Work::Start && config.lock() == Some("suspended");
        if !wakes_from_disk {
            unlocked(&config, vm.vmid)?;
        }
        match work {
            Work::Start | Work::Stop | Work::Shutdown | Work::Suspend | Work::Resume => {
                self.power(call, max, taken).await
            }
            Work::Reboot | Work::Reset => self.again(call, taken).await,
            Work::Snapshot { name, description, memory } => {
                self.take(call, name, (description, *memory)).await
            }
            Work::Revert { name } => self.revert(call, name, taken).await,
            Work::DeleteSnapshot { name } => self.delete(call, name).await,
            Work::Resize(sizes) => self.resize(call, *sizes, &config).await,
        }
    }

    async fn await_end(
        &self,
        call: &OrderCall,
        upid: proxmox_client::Upid,
    ) -> Result<String, Failure> {
        into_result(self.await_task(&task(upid), call.limit).await)?;
        Ok(String::new())
    }

    /// The same for a task that switches the guest.
    async fn await_switch(
        &self,
        call: &OrderCall,
        upid: proxmox_client::Upid,
        taken: &AtomicBool,
    ) -> Result<String, Failure> {
        taken.store(true, Ordering::Relaxed);
        self.await_end(call, upid).await
    }

    async fn power(
        &self,
        call: &OrderCall,
        max: MaxConcurrent,
        taken: &AtomicBool,
    ) -> Result<String, Failure> {
        let VmRef { node, vmid, .. } = &call.vm;
        let current = self.current(&call.vm).await?;
        let (power, word) = power_of(&current);
        let has_process = word != "stopped";
        let client = &self.client;
        let upid = match (&call.work, power) {
            (Work::Start | Work::Resume, Power::Running) => return Ok("it runs already".into()),
            (Work::Start, _) if has_process => {
                let text = format!("guest `{vmid}` stands still ({word}): resume it instead");
                return Err(refused(text));
            }
            (Work::Start, _) => {
                let upid = self.start(&call.vm, max).await?;
                taken.store(true, Ordering::Relaxed);
                into_result(self.await_task(&upid, call.limit).await)?;
                return Ok(String::new());
            }
            (Work::Stop | Work::Shutdown, _) if !has_process => {
                return Ok("it is stopped already".into());
            }
            (Work::Stop, _) => client.stop(node.as_str(), vmid.0).await?,
            (Work::Shutdown, Power::Suspended) => {
                let text = format!(
                    "guest `{vmid}` stands still ({word}) and cannot shut down: resume it first, or \
                     stop it"
                );
                return Err(refused(text));
            }
            (Work::Suspend, Power::Suspended) => return Ok("it stands still already".into()),
            (Work::Suspend | Work::Resume, _) if !has_process => {
                return Err(refused(format!("guest `{vmid}` is stopped: start it instead")));
            }
            (Work::Suspend, _) => client.suspend(node.as_str(), vmid.0).await?,
            (Work::Resume, _) => client.resume(node.as_str(), vmid.0).await?,
            (_, _) => client.shutdown_only(node.as_str(), vmid.0, call.shutdown).await?,
        };
        self.await_switch(call, upid, taken).await
    }

    /// Reboots or resets a guest that runs. Proxmox starts a guest that it reboots only after the end of
    /// the task.
    async fn again(&self, call: &OrderCall, taken: &AtomicBool) -> Result<String, Failure> {
        let VmRef { node, vmid, .. } = &call.vm;
        let before = self.current(&call.vm).await?;
        let (power, word) = power_of(&before);
        if word == "stopped" {
            return Err(refused(format!("guest `{vmid}` is stopped: start it instead")));
        }
        if call.work == Work::Reset {
            let upid = self.client.reset(node.as_str(), vmid.0).await?;
            return self.await_switch(call, upid, taken).await;
        }
        if power == Power::Suspended {
            let text =
                format!("guest `{vmid}` stands still ({word}): resume it first, or reset it");
            return Err(refused(text));
        }
        let upid = self.client.reboot(node.as_str(), vmid.0, call.shutdown).await?;
        self.await_switch(call, upid, taken).await?;
        let started = async {
            loop {
                let now = self.current(&call.vm).await?;
                if now.status == "running" && now.pid != before.pid {
                    return Ok::<(), Failure>(());
                }
                tokio::time::sleep(RESTART_LOOKS).await;
            }
        };
        match tokio::time::timeout(call.limit, started).await {
            Ok(started) => started.map(|()| String::new()),
            Err(_) => {
                let text = format!(
                    "guest `{vmid}` was shut down for its reboot, and Proxmox did not start it again \
                     within {} s: start it",
                    call.limit.as_secs()
                );
                Err(refused(text))
            }
        }
    }

    /// The snapshots of a guest without its present state.
    async fn snapshots(&self, vm: &VmRef) -> Result<Vec<SnapshotRow>, Failure> {
        let rows = self.client.snapshots(vm.node.as_str(), vm.vmid.0).await?;
        Ok(rows.into_iter().filter(|row| row.name != "current").collect())
    }

    async fn take(
        &self,
        call: &OrderCall,
        name: &str,
        (description, memory): (&str, bool),
    ) -> Result<String, Failure> {
        let VmRef { node, vmid, .. } = &call.vm;
        let known = self.snapshots(&call.vm).await?;
        match known.iter().find(|row| row.name == name) {
            Some(row) if call.repeated && row.snapstate.is_none() => {
                return Ok("it is there".into());
            }
            Some(row) => return Err(refused(there_already(*vmid, row))),
            None => {}
        }
        let count = known.iter().filter(|row| !is_own_snapshot(&row.name)).count();
        if count >= SNAPSHOTS_MOST {
            let text = format!(
                "guest `{vmid}` has {count} snapshots, and more than {SNAPSHOTS_MOST} are too many: \
                 delete one first"
            );
            return Err(refused(text));
        }
        let client = &self.client;
        let upid = client
            .take_described_snapshot(node.as_str(), vmid.0, name, description, memory)
            .await?;
        self.await_end(call, upid).await
    }

    async fn revert(
        &self,
        call: &OrderCall,
        name: &str,
        taken: &AtomicBool,
    ) -> Result<String, Failure> {
        let VmRef { node, vmid, .. } = &call.vm;
        let known = self.snapshots(&call.vm).await?;
        match known.iter().find(|row| row.name == name) {
            Some(row) if row.snapstate.is_some() => Err(refused(there_already(*vmid, row))),
            Some(_) => {
                let upid = self.client.rollback(node.as_str(), vmid.0, name).await?;
                self.await_switch(call, upid, taken).await
            }
            None => Err(refused(no_snapshot(*vmid, name, &known))),
        }
    }

    async fn delete(&self, call: &OrderCall, name: &str) -> Result<String, Failure> {
        let VmRef { node, vmid, .. } = &call.vm;
        let known = self.snapshots(&call.vm).await?;
        if !known.iter().any(|row| row.name == name) {
            if call.repeated {
                return Ok("it is gone".into());
            }
            return Err(refused(no_snapshot(*vmid, name, &known)));
        }
        let upid = self.client.delete_snapshot(node.as_str(), vmid.0, name).await?;
        self.await_end(call, upid).await
    }

    /// Gives a guest other sizes, and says of each whether it holds already.
    async fn resize(
        &self,
        call: &OrderCall,
        sizes: Size,
        config: &VmConfig,
    ) -> Result<String, Failure> {
        let VmRef { node, vmid, .. } = &call.vm;
        let grow = to_grow(config, sizes, *vmid)?;
        let changes = changes(config, sizes);
        let client = &self.client;
        if !changes.is_empty() {
            let digest =
                config.get("digest").map(|digest| ("digest".to_owned(), digest.to_owned()));
            let written = changes.iter().cloned().chain(digest).collect();
            client.set_config(node.as_str(), vmid.0, written).await?;
        }
        if let Some((disk, gib)) = &grow
            && let Some(upid) = client.resize(node.as_str(), vmid.0, disk, *gib).await?
        {
            self.await_end(call, upid).await?;
        }
        let pending = client.pending(node.as_str(), vmid.0).await?;
        let waits = |key: &str| pending.iter().any(|row| row.key == key && row.pending.is_some());
        let said = |key: &str| match waits(key) {
            true => "pending until the machine restarts",
            false => "applied",
        };
        let cores = sizes.cores.map(|cores| format!("{cores} cores: {}", said("cores")));
        let memory = sizes.memory_mb.map(|memory| format!("{memory} MiB: {}", said("memory")));
        let disk = sizes.disk_gb.map(|disk| format!("{disk} GiB of disk: applied"));
        let parts: Vec<String> = [cores, memory, disk].into_iter().flatten().collect();
        Ok(parts.join("; "))
    }
}

fn there_already(vmid: VmId, row: &SnapshotRow) -> String {
    let name = &row.name;
    match &row.snapstate {
        Some(state) => format!(
            "snapshot `{name}` of guest `{vmid}` was started and not finished ({state}): delete it first"
        ),
        None => format!("guest `{vmid}` has a snapshot `{name}` already: choose another name"),
    }
}

fn no_snapshot(vmid: VmId, name: &str, known: &[SnapshotRow]) -> String {
    let names: Vec<String> = known.iter().map(|row| format!("`{}`", row.name)).collect();
    let has = if names.is_empty() { "it has none".to_owned() } else { names.join(", ") };
    format!("guest `{vmid}` has no snapshot `{name}`; known: {has}")
}

/// The keys that must change. Less memory takes the balloon's target along, which must not be above it.
fn changes(config: &VmConfig, sizes: Size) -> Params {
    let mut changes = Params::new();
    let mut set = |key: &str, wanted: Option<u32>| {
        let now = config.get(key).map(|text| text.strip_prefix("current=").unwrap_or(text));
        let wanted = wanted.map(|wanted| wanted.to_string());
        if let Some(wanted) = wanted.filter(|wanted| Some(wanted.as_str()) != now) {
            changes.push((key.to_owned(), wanted));
        }
    };
    set("cores", sizes.cores);
    set("memory", sizes.memory_mb);
    let balloon = config.get("balloon").and_then(|text| text.parse::<u32>().ok());
    if let (Some(memory), Some(balloon)) = (sizes.memory_mb, balloon)
        && balloon > memory
    {
        set("balloon", Some(memory));
    }
    changes
}

/// The disk to grow with its size in GiB; none where it has that size.
fn to_grow(config: &VmConfig, sizes: Size, vmid: VmId) -> Result<Option<(String, u32)>, Failure> {
    let Some(wanted) = sizes.disk_gb else { return Ok(None) };
    let Some(disk) = primary_disk(config) else {
        return Err(refused(format!("guest `{vmid}` has no disk that it boots from")));
    };
    let size = config.get(disk).and_then(size_of);
    let bytes = u64::from(wanted) << 30;
    match size {
        Some(size) if bytes < size => {
            let has = size.div_ceil(1 << 30);
            Err(refused(format!(
                "disk `{disk}` of guest `{vmid}` has {has} GiB: disks cannot shrink to {wanted} GiB"
            )))
        }
        Some(size) if bytes == size => Ok(None),
        Some(_) | None => Ok(Some((disk.to_owned(), wanted))),
    }
}

#[cfg(test)]
mod tests;
