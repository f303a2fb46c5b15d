//! Retirement: verify and fence, shut down or stop, destroy, confirm (book: safety, rule 5; book:
//! agents, Retiring).
//!
//! ```text
//! Fence ─▶ Close ─▶ Stop ─▶ StopTask ──────┐
//!   │ ├──▶ Shutdown ─▶ ShutdownTask ───────┤     a failed shutdown goes on with Stop
//!   │ └─── already stopped ────────────────┴─▶ Destroy ─▶ DestroyTask ── OK ──▶ Gone
//!   │ not there                                   unclear │      │ warnings, disc image
//!   ▼                                                     ▼      │
//! Find ── id is free ──▶ Leftovers ◀── id is free ── Confirm     │
//!                          │  ▲                                  │
//!                          │  └──────────────────────────────────┘
//!                          └── none left: Gone; volumes remain: Stranded
//!
//! any other fault ── pause ──▶ Fence
//! ```
//!
//! - [`Mind::retire`] decides what a reason to go means in each state: a hold keeps the guest, a
//!   clone under way is only marked as cancelled, a queued agent is gone at once.
//! - `send_out` starts a retirement. `retire_step` moves between steps.
//! - Every new try starts at the fence. So nothing is stopped or destroyed unless its marks were
//!   read as exactly ours in the same try.
//! - The usual path makes four calls: read and write of the fence, shutdown or stop, destroy. The
//!   cluster's watcher reports the ends of tasks.
//! - A machine whose memory a snapshot saved is looked after too: Proxmox allocates the volume of the memory
//!   (`vm-ID-state-NAME`) before anything else of the snapshot. Where a node died in between, no
//!   configuration may name the volume, and a destroy leaves it without a warning.
//! - Failures: marks that are not ours lead to `Stranded`. A lock of Proxmox waits 10 s, a fault
//!   that passes backs off, any other waits 60 s. After `retireTimeoutSec` an alarm says so and the
//!   retirement goes on.
//! - Out: the `RetireIntended` record before the first call, `Gone` after the last, and the VMID
//!   back.
//!
//! Beside it: `strand.rs` (what only an administrator can finish), `verify_clone.rs` (`gone`), `hold.rs`.

use std::collections::BTreeSet;
use std::time::Duration;

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::Upid;
use drover_model::order::{SNAPSHOT_NAME, memory_volume};
use drover_model::ports::{IdStatus, Ran, TaskEnd, VmObservation};
use drover_model::record::{Body, Reason};
use drover_model::spec::{ResetKind, TemplateSpec};
use drover_scripts::guest;

use crate::agent::event::{Call, Guest};
use crate::agent::mind::{Mind, Out};
use crate::agent::state::{RetireStep, State};
use crate::ran::can_pass;

/// The pause between two tries while Proxmox itself locks the guest (a backup, a migration).
const LOCK_PAUSE: Duration = Duration::from_secs(10);
/// The pause between two tries of a call that will most likely fail again.
const STUBBORN_PAUSE: Duration = Duration::from_secs(60);
/// The limit of closing SSH. A guest that does not answer by then is stopped nevertheless.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);
/// What a shutdown's task may take beyond the guest's own limit.
const SHUTDOWN_EXTRA: Duration = Duration::from_secs(60);

/// Whether something comes before the stop of a guest. A guest that never came up cannot react to a
/// shutdown, which would hold its lock in vain, and it has no SSH to close.
pub(super) fn is_courteous(spec: &TemplateSpec, addressed: bool) -> bool {
    addressed && (spec.close_ssh || !spec.limits.shutdown.is_zero())
}

impl Mind {
    /// Retires the agent. A guest that is not proven to be ours is never destroyed.
    pub(super) fn retire(&mut self, reason: Reason, out: &mut Out) {
        if self.is_next_to_hold(&reason) {
            return self.hold_as_next(&reason, out);
        }
        self.suggest_hold(out);
        match &mut self.state {
            State::Queued => self.gone(reason, false, out),
            State::Cloning { cancelled, .. } | State::InDoubt { cancelled, .. } => {
                cancelled.get_or_insert(reason);
            }
            State::Retiring { .. } | State::Gone { .. } => {}
            State::Configuring
            | State::Booting(_)
            | State::Connecting { .. }
            | State::Preparing(_)
            | State::Ready
            | State::Leased
            | State::Draining(_)
            | State::Resetting { .. }
                if self.holding.is_wanted() =>
            {
                self.be_held(&format!("held instead of retired: {reason}"), out);
            }
            State::Configuring
            | State::Booting(_)
            | State::Connecting { .. }
            | State::Preparing(_)
            | State::Ready
            | State::Leased
            | State::Draining(_)
            | State::Resetting { .. }
            | State::Held { .. }
            | State::Stranded { .. } => self.send_out(reason, out),
        }
    }

    /// Starts to retire a guest that is proven to be ours.
    pub(super) fn send_out(&mut self, reason: Reason, out: &mut Out) {
        self.send_out_at(reason, RetireStep::Fence, out);
    }

    /// Starts to retire at this step. A clone that was never made may only have left volumes.
    pub(super) fn send_out_at(&mut self, reason: Reason, step: RetireStep, out: &mut Out) {
        self.adoption.finish();
        self.lose_leases(&reason.to_string(), out);
        let agent = self.agent.clone();
        out.record(Body::RetireIntended { agent, reason: reason.clone() });
        // A machine that stands still hears neither a shutdown nor SSH.
        let runs = self.machine.expects_running();
        let graceful = runs && is_courteous(&self.spec, self.address().is_some());
        let why = reason.to_string();
        self.enter(
            State::Retiring { reason, step, graceful, alarmed: false, since: out.now.mono },
            out,
        );
        self.report.say(why);
        self.alarm_cut_off(out);
        self.act(out);
    }

    pub(super) fn retire_call(&self, step: &RetireStep) -> Call {
        let operation = self.spec.limits.operation;
        match step {
            RetireStep::Fence => Call::Fence,
            RetireStep::Close => match self.address() {
                Some(address) => {
                    let command = guest::close_ssh(&self.spec.ssh.public_key);
                    Call::Run(address, command, CLOSE_LIMIT)
                }
                None => Call::Stop,
            },
            RetireStep::Find => Call::Look,
            RetireStep::Shutdown => Call::Shutdown(self.spec.limits.shutdown),
            RetireStep::ShutdownTask(upid) => {
                Call::Await(upid.clone(), self.spec.limits.shutdown + SHUTDOWN_EXTRA)
            }
            RetireStep::Stop => Call::Stop,
            RetireStep::StopTask(upid) | RetireStep::DestroyTask(upid) => {
                Call::Await(upid.clone(), operation)
            }
            RetireStep::Destroy => Call::Destroy,
            RetireStep::Confirm => Call::IdTaken,
            RetireStep::Leftovers => Call::Leftovers,
        }
    }

    pub(super) fn retire_step(&mut self, next: RetireStep, out: &mut Out) {
        if let State::Retiring { step, .. } = &mut self.state {
            *step = next;
        }
        self.act(out);
    }

    /// Tries again later, from the fence on.
    fn retire_again(&mut self, fault: Fault, out: &mut Out) {
        if let State::Retiring { step, .. } = &mut self.state {
            *step = RetireStep::Fence;
        }
        if matches!(fault.kind, FaultKind::Locked { .. }) {
            self.retry_about(LOCK_PAUSE, out);
        } else if can_pass(&fault.kind) {
            self.back_off(out);
        } else {
            self.retry_about(STUBBORN_PAUSE, out);
        }
        self.hinder(fault);
    }

    pub(super) fn fenced(&mut self, result: Result<VmObservation, Fault>, out: &mut Out) {
        match result {
            Ok(observation) if observation.running == Some(false) => {
                self.retire_step(RetireStep::Destroy, out);
            }
            // To check whether the guest runs would cost one more call. Shutdown and stop also
            // accept a stopped guest.
            Ok(_) => {
                let State::Retiring { graceful, .. } = &mut self.state else { return };
                let next = match std::mem::take(graceful) {
                    true if self.spec.close_ssh => RetireStep::Close,
                    true => RetireStep::Shutdown,
                    false => RetireStep::Stop,
                };
                self.retire_step(next, out);
            }
            Err(fault) if fault.kind == FaultKind::Foreign => self.strand(&fault.text, out),
            Err(fault) if fault.kind == FaultKind::Gone => {
                self.hinder(fault);
                self.retire_step(RetireStep::Find, out);
            }
            Err(fault) => self.retire_again(fault, out),
        }
    }

    /// The result of closing SSH. The guest is stopped hard either way.
    pub(super) fn closed_off(&mut self, result: Result<Ran, Fault>, out: &mut Out) {
        if !matches!(self.state, State::Retiring { step: RetireStep::Close, .. }) {
            return;
        }
        self.report.say(match result {
            Ok(Ran { exit: Some(0), .. }) => String::new(),
            Ok(ran) => format!("SSH was not closed off: {}", ran.said()),
            Err(fault) => format!("SSH was not closed off: {}", fault.text),
        });
        self.retire_step(RetireStep::Stop, out);
    }

    /// The observation of a guest that was not on its known node.
    pub(super) fn retire_found(&mut self, observation: &VmObservation, out: &mut Out) {
        match observation.id {
            // The end of the destroy was not seen: volumes may remain.
            IdStatus::Free => self.retire_step(RetireStep::Leftovers, out),
            // The look has updated the node.
            IdStatus::Taken | IdStatus::Unknown => {
                let text = "the guest is not on the node it was on".to_owned();
                self.retire_again(Fault::new(FaultKind::Contention, Culprit::Guest, text), out);
            }
        }
    }

    /// The result of a shutdown, stop or destroy call.
    pub(super) fn retire_accepted(&mut self, result: Result<Upid, Fault>, out: &mut Out) {
        let State::Retiring { step, .. } = &self.state else { return };
        let next = match (step, result) {
            (RetireStep::Shutdown, Ok(upid)) => RetireStep::ShutdownTask(upid),
            (RetireStep::Shutdown, Err(_)) => RetireStep::Stop,
            (RetireStep::Stop, Ok(upid)) => RetireStep::StopTask(upid),
            (RetireStep::Destroy, Ok(upid)) => RetireStep::DestroyTask(upid),
            (RetireStep::Stop | RetireStep::Destroy, Err(fault)) => {
                return self.retire_unclear(fault, out);
            }
            (
                RetireStep::Fence
                | RetireStep::Close
                | RetireStep::Find
                | RetireStep::ShutdownTask(_)
                | RetireStep::StopTask(_)
                | RetireStep::DestroyTask(_)
                | RetireStep::Confirm
                | RetireStep::Leftovers,
                Ok(_) | Err(_),
            ) => return,
        };
        self.retire_step(next, out);
    }

    fn retire_unclear(&mut self, fault: Fault, out: &mut Out) {
        if matches!(fault.kind, FaultKind::UnknownOutcome | FaultKind::Gone) {
            self.hinder(fault);
            self.retire_step(RetireStep::Confirm, out);
        } else {
            self.retire_again(fault, out);
        }
    }

    /// The end of a shutdown, stop or destroy task.
    pub(super) fn retire_task_ended(&mut self, result: Result<TaskEnd, Fault>, out: &mut Out) {
        let State::Retiring { step, .. } = &self.state else { return };
        match (step, result) {
            (RetireStep::DestroyTask(_), Ok(TaskEnd::Done { warnings }))
                if warnings.is_empty() && !self.has_image() && !self.may_leave_memory() =>
            {
                self.retired(out);
            }
            (RetireStep::DestroyTask(_), Ok(TaskEnd::Done { warnings })) => {
                self.report.say(warnings.join("; "));
                self.retire_step(RetireStep::Leftovers, out);
            }
            (RetireStep::ShutdownTask(_) | RetireStep::StopTask(_), Ok(TaskEnd::Done { .. })) => {
                self.retire_step(RetireStep::Destroy, out);
            }
            (
                RetireStep::ShutdownTask(_),
                Ok(TaskEnd::Failed(_) | TaskEnd::Unknown(_)) | Err(_),
            ) => {
                self.retire_step(RetireStep::Stop, out);
            }
            (
                RetireStep::StopTask(_) | RetireStep::DestroyTask(_),
                Ok(TaskEnd::Failed(fault)) | Err(fault),
            ) => self.retire_unclear(fault, out),
            (RetireStep::StopTask(_) | RetireStep::DestroyTask(_), Ok(TaskEnd::Unknown(text))) => {
                let fault = Fault::new(FaultKind::UnknownOutcome, Culprit::Guest, text);
                self.retire_unclear(fault, out);
            }
            (
                RetireStep::Fence
                | RetireStep::Close
                | RetireStep::Find
                | RetireStep::Shutdown
                | RetireStep::Stop
                | RetireStep::Destroy
                | RetireStep::Confirm
                | RetireStep::Leftovers,
                Ok(_) | Err(_),
            ) => {}
        }
    }

    pub(super) fn retire_confirmed(&mut self, result: Result<IdStatus, Fault>, out: &mut Out) {
        let text = "the id is still taken".to_owned();
        let taken = Fault::new(FaultKind::Contention, Culprit::Guest, text);
        match result {
            Ok(IdStatus::Free) => self.retire_step(RetireStep::Leftovers, out),
            Ok(IdStatus::Taken | IdStatus::Unknown) => self.retire_again(taken, out),
            Err(fault) => self.retire_again(fault, out),
        }
    }

    /// The list of what a destroy left behind, in `Retiring` or `Stranded`.
    pub(super) fn remains_listed(&mut self, result: Result<Vec<String>, Fault>, out: &mut Out) {
        if matches!(self.state, State::Stranded { .. }) {
            return self.stranded_listed(result, out);
        }
        match result {
            Ok(volumes) if volumes.is_empty() => self.retired(out),
            Ok(volumes) => {
                let remain = volumes.join(", ");
                let why = if self.clone_undone_for_good() {
                    format!("its clone came to nothing, but volumes of its id remain: {remain}")
                } else {
                    format!("the guest is gone, but these remain: {remain}")
                };
                let command = self.remedy_command(&volumes);
                self.strand_with(&why, command, out);
            }
            Err(fault) => {
                self.hinder(fault);
                self.back_off(out);
            }
        }
    }

    /// Whether a snapshot with memory was started that may have been cut short: an order's, or drover's
    /// own before the first use.
    pub(super) fn may_leave_memory(&self) -> bool {
        let own = self.spec.reset == Some(ResetKind::Memory) && !self.usage.has_snapshot();
        own || !self.machine.orders.memories.is_empty()
    }

    /// The volumes that are the agent's once its guest is gone: those that its configuration named, and
    /// the memory of snapshots that drover took of it, on any storage. Such a name carries the VMID,
    /// which nobody has when volumes are removed, and a snapshot of the journal's: memory of no guest
    /// is of no use to anybody.
    pub(super) fn volumes(&self) -> Vec<String> {
        let Some(guest) = &self.guest else { return Vec::new() };
        let own = (self.spec.reset == Some(ResetKind::Memory)).then(|| SNAPSHOT_NAME.to_owned());
        let vmid = guest.marks.vmid;
        let memories = own.iter().chain(&self.machine.orders.memories);
        let memories = memories.map(|name| memory_volume(vmid, name));
        guest.volumes.iter().cloned().chain(memories).collect()
    }

    /// Whether the guest never existed, as far as is known: its clone was never made.
    fn is_undone(&self) -> bool {
        self.guest.as_ref().is_some_and(|guest| !guest.is_settled())
    }

    /// The clone was never made: only the check for volumes is left, which lasts as long as a storage
    /// is unreachable. `false` for a guest that existed.
    fn clone_undone_for_good(&mut self) -> bool {
        self.guest.as_mut().is_some_and(Guest::prove_never_made)
    }

    /// The storages on which a clone that was never made may have left volumes. `None` where that
    /// may be any storage.
    pub(super) fn clone_storages(&self) -> Option<&BTreeSet<String>> {
        let origin = self.spec.origin.as_ref().filter(|_| self.is_undone())?;
        Some(&origin.storages).filter(|storages| !storages.is_empty())
    }

    fn retired(&mut self, out: &mut Out) {
        let State::Retiring { reason, .. } = &self.state else { return };
        let reason = reason.clone();
        self.gone(reason, false, out);
    }

    /// After the deadline: sends an alarm once. The retirement goes on.
    pub(super) fn retire_late(&mut self, out: &mut Out) {
        self.clone_undone_for_good();
        let State::Retiring { alarmed, step, .. } = &mut self.state else { return };
        if !std::mem::replace(alarmed, true) {
            let lists = *step == RetireStep::Leftovers;
            let why = format!("its retirement takes too long: {}", self.detail());
            let command = if lists { self.list_command() } else { self.remedy_command(&[]) };
            self.alarm(&why, &command, out);
        }
    }
}
