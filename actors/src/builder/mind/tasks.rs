//! Calls that begin a task on the cluster, and what their tasks come to.

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::Upid;
use drover_model::ports::TaskEnd;
use drover_model::time::Now;

use super::{Mind, Out};
use crate::builder::state::{Boot, Create, Install, Shut, State, Task};
use crate::ran::can_pass;
use crate::removal::Came;

impl Mind {
    pub(super) fn accepted(&mut self, result: Result<Option<Upid>, Fault>, now: Now, out: Out<'_>) {
        if matches!(self.state, State::Removing(_)) {
            return self.removal_went(Came::Accepted(result), now, out);
        }
        match (&self.state, result) {
            (State::Creating(_), result) => self.create_accepted(result, now, out),
            (State::Pulling(_), Ok(Some(upid))) => {
                // The limit of the state goes on.
                self.state = State::Pulling(Task::Await(upid));
                self.act(now, out);
            }
            (State::Pulling(_), Ok(None)) => self.want_id(None, now, out),
            (State::Installing(_), result) => self.install_accepted(result, now, out),
            (State::Booting(_), Ok(Some(upid))) => {
                self.enter(State::Booting(Boot::Await(upid)), now, out);
            }
            (State::Booting(_), Ok(None)) => self.enter(State::Booting(Boot::Look), now, out),
            (State::Booting(_), Err(fault)) if fault.kind == FaultKind::UnknownOutcome => {
                self.state = State::Booting(Boot::Look);
                self.back_off(&fault, now, out);
            }
            (State::ShuttingDown(_), Ok(Some(upid))) => {
                self.enter(State::ShuttingDown(Shut::Await(upid)), now, out);
            }
            (State::ShuttingDown(_), Ok(None)) => {
                self.enter(State::ShuttingDown(Shut::Look), now, out);
            }
            (State::Converting(_), Ok(Some(upid))) => {
                self.enter(State::Converting(Task::Await(upid)), now, out);
            }
            (State::Converting(_), Ok(None)) => self.enter(State::Verifying, now, out),
            (
                State::Pulling(_)
                | State::Booting(_)
                | State::ShuttingDown(_)
                | State::Converting(_),
                Err(fault),
            ) => self.failed(&fault, now, out),
            (
                State::Queued
                | State::Configuring
                | State::Connecting
                | State::Provisioning(_)
                | State::Cleaning
                | State::Verifying
                | State::Sealing
                | State::Removing(_)
                | State::Done
                | State::Failed
                | State::Removed,
                Ok(_) | Err(_),
            ) => {}
        }
    }

    pub(super) fn task_ended(&mut self, end: Result<TaskEnd, Fault>, now: Now, out: Out<'_>) {
        if matches!(self.state, State::Removing(_)) {
            return self.removal_went(Came::Ended(end), now, out);
        }
        let unclear = |text: String| Fault::new(FaultKind::UnknownOutcome, Culprit::Guest, text);
        let end = match end {
            Ok(TaskEnd::Done { .. }) => Ok(()),
            Ok(TaskEnd::Failed(fault)) | Err(fault) => Err(fault),
            Ok(TaskEnd::Unknown(text)) => Err(unclear(text)),
        };
        match (&self.state, end) {
            (State::Pulling(_), Ok(())) => self.want_id(None, now, out),
            (State::Pulling(_), Err(fault)) if can_pass(&fault.kind) => {
                self.state = State::Pulling(Task::Call);
                self.back_off(&fault, now, out);
            }
            (State::Creating(_), Ok(())) => {
                self.made = true;
                self.enter(State::Configuring, now, out);
            }
            (State::Creating(_), Err(fault)) if fault.kind == FaultKind::UnknownOutcome => {
                self.state = State::Creating(Create::Look);
                self.back_off(&fault, now, out);
            }
            (State::Installing(_), Ok(())) => {
                self.enter(State::Installing(Install::Look { started: true }), now, out);
            }
            (State::Installing(_), Err(fault)) => self.installer_may_run(&fault, now, out),
            (State::Booting(_), Ok(())) => self.booted(now, out),
            (State::Booting(_), Err(fault)) => {
                self.state = State::Booting(Boot::Look);
                self.back_off(&fault, now, out);
            }
            (State::ShuttingDown(_), Ok(()) | Err(_)) => {
                self.enter(State::ShuttingDown(Shut::Look), now, out);
            }
            (State::Converting(_), Ok(())) => self.enter(State::Verifying, now, out),
            (State::Converting(_), Err(fault)) if can_pass(&fault.kind) => {
                self.state = State::Converting(Task::Call);
                self.back_off(&fault, now, out);
            }
            (State::Pulling(_) | State::Creating(_) | State::Converting(_), Err(fault)) => {
                self.fail(&fault.text, now, out)
            }
            (
                State::Queued
                | State::Configuring
                | State::Connecting
                | State::Provisioning(_)
                | State::Cleaning
                | State::Verifying
                | State::Sealing
                | State::Removing(_)
                | State::Done
                | State::Failed
                | State::Removed,
                Ok(()) | Err(_),
            ) => {}
        }
    }
}
