//! Orders to a guest: power, snapshots and sizes. Each reads the guest's marks first, awaits its task,
//! and reads at the end whether the guest runs.
//!
//! - What the guest is already counts as done: a start of a guest that runs, a stop of one that is
//!   stopped. So an order that a restart of the service cut short can be carried out again.
//! - What Proxmox would refuse is refused before a call where the guest's state shows it, with the
//!   command that helps.
//! - A lock of Proxmox is a fault that passes: the caller tries again.
//! - Orders know the snapshots of the guest's present use and no others. One that somebody took by hand
//!   may be from an earlier use: a holder who went back to it would read the files of another. So such a
//!   one is neither gone back to nor deleted, and it costs no read of the list when a guest is reset.
//! - A snapshot is an order's by its name and the time that Proxmox lists. Somebody may delete it by hand
//!   and take another of its name. The time is read once the snapshot is there; until that is durable the
//!   description says it, which ends with the order's identity.

mod sizes;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drover_limits::concurrency::MaxConcurrent;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::VmId;
use drover_model::order::{
    SNAPSHOTS_MOST, Taken, Work, is_marked, is_own_snapshot, marked_description,
};
use drover_model::phase::Power;
use drover_model::ports::{Carried, OrderCall, VmRef};
use drover_model::size::Size;
use drover_model::time::WallTime;
use proxmox_client::types::{Current, SnapshotRow, VmConfig};

use self::sizes::Values;
use super::Cloud;
use crate::client::{Failure, task};
use crate::configure::{unlocked, verify};
use crate::describe::power_of;
use crate::snapshot::into_result;

/// The pause between two looks at a guest that starts again after its shutdown.
const RESTART_LOOKS: Duration = Duration::from_secs(1);

/// A fault that another try meets again.
fn refused(text: String) -> Failure {
    Fault::new(FaultKind::Broken, Culprit::Guest, text).into()
}

/// What an order came to.
struct Done {
    /// For people; empty where there is nothing to say.
    text: String,
    /// When Proxmox took its snapshot, in Unix seconds.
    snapshot_taken: Option<u64>,
}

impl Cloud {
    /// Carries an order out, and reads whether the guest runs then.
    pub(super) async fn carry_out(&self, call: &OrderCall, max: MaxConcurrent) -> Carried {
        let taken = AtomicBool::new(false);
        let done = self.work(call, max, &taken).await.map_err(|error| self.client.fault(&error));
        let (snapshot_taken, outcome) = match done {
            Ok(Done { text, snapshot_taken }) => (snapshot_taken, Ok(text)),
            Err(fault) => (None, Err(fault)),
        };
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
        Carried { power, sent: taken.into_inner(), snapshot_taken, outcome }
    }

    async fn current(&self, vm: &VmRef) -> Result<Current, Failure> {
        Ok(self.client.guest_status(vm.node.as_str(), vm.vmid.0).await?)
    }

    async fn work(
        &self,
        call: &OrderCall,
        max: MaxConcurrent,
        taken: &AtomicBool,
    ) -> Result<Done, Failure> {
        let OrderCall { vm, marks, work, .. } = call;
        let config = self.client.config(vm.node.as_str(), vm.vmid.0).await?;
        verify(&config, marks, vm.vmid)?;
        let wakes_from_disk = *work == Work::Start && config.lock() == Some("suspended");
        if !wakes_from_disk {
            unlocked(&config, vm.vmid)?;
        }
        let text = match work {
            Work::Start | Work::Stop | Work::Shutdown | Work::Suspend | Work::Resume => {
                self.power(call, max, taken).await
            }
            Work::Reboot | Work::Reset => self.again(call, taken).await,
            Work::Snapshot { name, description, memory } => {
                let snapshot_taken = self.take(call, name, (description, *memory)).await?;
                return Ok(Done { text: String::new(), snapshot_taken });
            }
            Work::Revert { name } => self.revert(call, name, taken).await,
            Work::DeleteSnapshot { name } => self.delete(call, name).await,
            Work::Resize(sizes) => self.resize(call, *sizes, &config).await,
        };
        Ok(Done { text: text?, snapshot_taken: None })
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

    /// Takes a snapshot, and reads the time that Proxmox lists for it.
    async fn take(
        &self,
        call: &OrderCall,
        name: &str,
        (description, memory): (&str, bool),
    ) -> Result<Option<u64>, Failure> {
        let VmRef { node, vmid, .. } = &call.vm;
        let known = self.snapshots(&call.vm).await?;
        match known.iter().find(|row| row.name == name) {
            // An earlier try took it.
            Some(row) if is_orders(call, row) => return Ok(row.snaptime),
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
        let marked = call.order.as_ref().map(|order| marked_description(description, order));
        let description = marked.as_deref().unwrap_or(description);
        let upid = client
            .take_described_snapshot(node.as_str(), vmid.0, name, description, memory)
            .await?;
        self.await_end(call, upid).await?;
        let known = self.snapshots(&call.vm).await?;
        match known.iter().find(|row| row.name == name).filter(|row| is_orders(call, row)) {
            Some(row) => Ok(row.snaptime),
            None => {
                let text = format!(
                    "Proxmox took snapshot `{name}` of guest `{vmid}` and does not list it: somebody \
                     deleted it, or changed its description meanwhile; take one under another name"
                );
                Err(refused(text))
            }
        }
    }

    async fn revert(
        &self,
        call: &OrderCall,
        name: &str,
        taken: &AtomicBool,
    ) -> Result<String, Failure> {
        let VmRef { node, vmid, .. } = &call.vm;
        let known = self.snapshots(&call.vm).await?;
        let row = known.iter().find(|row| row.name == name);
        if let Some(row) = row.filter(|row| row.snapstate.is_some()) {
            return Err(refused(there_already(*vmid, row)));
        }
        taken_by_order(call, name, &known)?;
        let upid = self.client.rollback(node.as_str(), vmid.0, name).await?;
        self.await_switch(call, upid, taken).await
    }

    async fn delete(&self, call: &OrderCall, name: &str) -> Result<String, Failure> {
        let VmRef { node, vmid, .. } = &call.vm;
        let known = self.snapshots(&call.vm).await?;
        let row = known.iter().find(|row| row.name == name);
        if row.is_none() && call.repeated {
            return Ok("it is gone".into());
        }
        // One that was started and not finished holds nothing to go back to, and only its deletion helps;
        // while Proxmox is at it the guest is locked.
        if row.is_none_or(|row| row.snapstate.is_none()) {
            taken_by_order(call, name, &known)?;
        }
        let upid = self.client.delete_snapshot(node.as_str(), vmid.0, name).await?;
        self.await_end(call, upid).await
    }

    /// Gives a guest other sizes, and says of each whether it holds already. Where a part is refused, the
    /// fault says the same of all.
    async fn resize(
        &self,
        call: &OrderCall,
        sizes: Size,
        config: &VmConfig,
    ) -> Result<String, Failure> {
        let VmRef { node, vmid, .. } = &call.vm;
        let grow = sizes::to_grow(config, sizes, *vmid)?;
        let pending = self.client.pending(node.as_str(), vmid.0).await?;
        let values = Values { pending: &pending, config };
        sizes::check(&values, sizes, *vmid)?;
        let changes = sizes::changes(&values, sizes);
        let written = async {
            if !changes.is_empty() {
                let digest =
                    config.get("digest").map(|digest| ("digest".to_owned(), digest.to_owned()));
                let written = changes.iter().cloned().chain(digest).collect();
                self.client.set_config(node.as_str(), vmid.0, written).await?;
            }
            if let Some((disk, gib)) = &grow
                && let Some(upid) = self.client.resize(node.as_str(), vmid.0, disk, *gib).await?
            {
                self.await_end(call, upid).await?;
            }
            Ok::<(), Failure>(())
        };
        let Err(failure) = written.await else { return self.reached(&call.vm, sizes).await };
        let mut fault = self.client.fault(&failure);
        // Proxmox applies what it can of one call before it refuses the rest.
        let reached = self.reached(&call.vm, sizes).await;
        let reached = reached.unwrap_or_else(|failure| {
            format!("what of it holds was not read: {}", self.client.fault(&failure).text)
        });
        fault.text = format!("{}; {reached}", fault.text);
        Err(fault.into())
    }

    /// What of these sizes a guest has by now, for people.
    async fn reached(&self, vm: &VmRef, wanted: Size) -> Result<String, Failure> {
        let pending = self.client.pending(vm.node.as_str(), vm.vmid.0).await?;
        let config = self.client.config(vm.node.as_str(), vm.vmid.0).await?;
        Ok(sizes::reached(&Values { pending: &pending, config: &config }, wanted))
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

/// Whether the order that is carried out took this snapshot, and finished it.
fn is_orders(call: &OrderCall, row: &SnapshotRow) -> bool {
    let text = row.description.as_deref().unwrap_or_default();
    row.snapstate.is_none() && call.order.as_ref().is_some_and(|order| is_marked(text, order))
}

/// Refuses a snapshot that no order of the guest's present use took.
fn taken_by_order(call: &OrderCall, name: &str, known: &[SnapshotRow]) -> Result<(), Failure> {
    let vmid = call.vm.vmid;
    let Some(row) = known.iter().find(|row| row.name == name) else {
        return Err(refused(no_snapshot(call, name, known)));
    };
    match call.snapshots.is(name, row.snaptime) {
        Taken::Same => Ok(()),
        Taken::No => Err(refused(no_snapshot(call, name, known))),
        Taken::Namesake(taken) => {
            let listed = row.snaptime.map_or("at an unknown time".to_owned(), at);
            Err(refused(format!(
                "snapshot `{name}` of guest `{vmid}` is another one than the order took: the order's is \
                 of {}, and this one was taken {listed} by hand; drover leaves it alone. Take a new one \
                 under another name",
                at(taken)
            )))
        }
        Taken::Untimed => Err(refused(format!(
            "an earlier release of drover took a snapshot `{name}` of guest `{vmid}` and did not keep its \
             time: drover cannot distinguish it from one that somebody took by hand since, and leaves it alone. \
             An admin can use it in Proxmox; take a new one under another name"
        ))),
    }
}

/// A moment in Unix seconds, for people.
fn at(secs: u64) -> String {
    let millis = i64::try_from(secs).unwrap_or(i64::MAX).saturating_mul(1000);
    WallTime(millis).rfc3339()
}

fn no_snapshot(call: &OrderCall, name: &str, known: &[SnapshotRow]) -> String {
    let vmid = call.vm.vmid;
    let is_shown = |row: &&SnapshotRow| {
        row.snapstate.is_some() || call.snapshots.is(&row.name, row.snaptime) == Taken::Same
    };
    let known = known.iter().filter(is_shown);
    let names: Vec<String> = known.map(|row| format!("`{}`", row.name)).collect();
    let has = if names.is_empty() { "it has none".to_owned() } else { names.join(", ") };
    format!("guest `{vmid}` has no snapshot `{name}` that an order took; known: {has}")
}

#[cfg(test)]
mod tests;
