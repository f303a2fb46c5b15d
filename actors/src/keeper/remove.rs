//! How the guest of a machine is destroyed (book: safety, rule 5).
//!
//! ```text
//! Grace ─▶ Look ─▶ Fence ─▶ Stop ─▶ StopAwait ─▶ Destroy ─▶ DestroyAwait ─▶ Confirm ─▶ Leftovers ─▶ Removed
//!           │ free ──────────────────────────────────────────────────────────────────────▲
//!           └ other marks: left alone, Removed          any fault ── pause ──▶ Look
//! ```
//!
//! A machine that is declared again is kept, in every step before the destroy call. The grace is there
//! because a file may be read while somebody writes it, and what is destroyed does not come back.

use std::time::Duration;

use drover_model::fault::Fault;
use drover_model::id::Upid;
use drover_model::ports::{IdStatus, TaskEnd};
use drover_model::record::Body;
use drover_model::time::Now;

use super::event::{Call, Effect};
use super::make::{HORIZON, LOOK_PAUSE};
use super::mind::{Mind, Out, Seen};
use super::state::{Remove, State};

/// The time between the end of a declaration and the removal that it asks for.
pub(super) const REMOVAL_GRACE: Duration = Duration::from_secs(60);

impl Mind {
    /// Its guest is to be destroyed.
    pub(super) fn delete(&mut self, now: Now, out: Out<'_>) {
        let begins = !matches!(self.state, State::Removing(_) | State::Removed);
        if !begins && self.state != State::Removing(Remove::Grace) {
            return;
        }
        let Some(guest) = &self.guest else {
            return self.enter(State::Removed, now, out);
        };
        let machine = guest.marks.agent.clone();
        out.push(Effect::Record(Body::DeclaredRemoving { machine }));
        self.drift.clear();
        self.enter(State::Removing(Remove::Look), now, out);
    }

    pub(super) fn remove_call(&self, step: &Remove) -> Option<Call> {
        Some(match step {
            Remove::Grace => return None,
            Remove::Look => Call::Look,
            Remove::Fence { .. } => Call::Fence,
            Remove::Stop => Call::Stop,
            Remove::StopAwait(upid) | Remove::DestroyAwait(upid) => {
                Call::Await(upid.clone(), self.spec.template.limits.operation)
            }
            Remove::Destroy => Call::Destroy,
            Remove::Confirm => Call::IdTaken,
            Remove::Leftovers => Call::Leftovers,
        })
    }

    /// Goes to another step; the line for people stays.
    fn remove_step(&mut self, step: Remove, now: Now, out: Out<'_>) {
        self.state = State::Removing(step);
        self.act(now, out);
    }

    /// Tries again later, from the look on.
    pub(super) fn remove_again(&mut self, fault: &Fault, now: Now, out: Out<'_>) {
        self.state = State::Removing(Remove::Look);
        if !self.was_declared_again(now, out) {
            self.back_off(fault, now, out);
        }
    }

    fn remove_later(&mut self, why: &str, now: Now, out: Out<'_>) {
        self.state = State::Removing(Remove::Look);
        if self.was_declared_again(now, out) {
            return;
        }
        why.clone_into(&mut self.detail);
        self.again_in(LOOK_PAUSE * 2, now, out);
    }

    pub(super) fn looked_to_remove(&mut self, seen: &Seen, now: Now, out: Out<'_>) {
        let made = self.guest.as_ref().is_some_and(|guest| guest.made);
        let asked = *self.asked.get_or_insert(now.mono);
        match seen {
            Seen::Free if made || now.mono - asked >= HORIZON => {
                self.remove_step(Remove::Leftovers, now, out);
            }
            Seen::Free => {
                self.remove_later("it waits until a late clone can have no effect", now, out)
            }
            Seen::Unclear(why) => self.remove_later(why, now, out),
            Seen::Ours { running } => {
                if let Some(guest) = &mut self.guest {
                    guest.made = true;
                }
                let stopped = *running == Some(false);
                self.remove_step(Remove::Fence { stopped }, now, out);
            }
            Seen::Foreign => self.removed(true, now, out),
        }
    }

    pub(super) fn remove_accepted(
        &mut self,
        result: Result<Option<Upid>, Fault>,
        now: Now,
        out: Out<'_>,
    ) {
        match (&self.state, result) {
            (_, Err(fault)) => self.remove_again(&fault, now, out),
            (State::Removing(Remove::Fence { stopped: true }), Ok(_)) => {
                self.remove_step(Remove::Destroy, now, out);
            }
            (State::Removing(Remove::Fence { stopped: false }), Ok(_)) => {
                self.remove_step(Remove::Stop, now, out);
            }
            (State::Removing(Remove::Stop), Ok(Some(upid))) => {
                self.remove_step(Remove::StopAwait(upid), now, out);
            }
            (_, Ok(Some(upid))) => self.remove_step(Remove::DestroyAwait(upid), now, out),
            (_, Ok(None)) => self.remove_step(Remove::Confirm, now, out),
        }
    }

    pub(super) fn remove_task_ended(
        &mut self,
        end: Result<TaskEnd, Fault>,
        now: Now,
        out: Out<'_>,
    ) {
        match (&self.state, end) {
            (_, Ok(TaskEnd::Failed(fault)) | Err(fault)) => self.remove_again(&fault, now, out),
            (_, Ok(TaskEnd::Unknown(text))) => self.remove_later(&text, now, out),
            (State::Removing(Remove::StopAwait(_)), Ok(TaskEnd::Done { .. })) => {
                self.remove_step(Remove::Destroy, now, out);
            }
            (_, Ok(TaskEnd::Done { .. })) => self.remove_step(Remove::Confirm, now, out),
        }
    }

    pub(super) fn remove_confirmed(
        &mut self,
        result: Result<IdStatus, Fault>,
        now: Now,
        out: Out<'_>,
    ) {
        match result {
            Ok(IdStatus::Free) => self.remove_step(Remove::Leftovers, now, out),
            Ok(IdStatus::Taken | IdStatus::Unknown) => {
                self.remove_later("its VMID is still taken", now, out);
            }
            Err(fault) => self.remove_again(&fault, now, out),
        }
    }

    pub(super) fn remains_listed(
        &mut self,
        result: Result<Vec<String>, Fault>,
        now: Now,
        out: Out<'_>,
    ) {
        match result {
            Ok(volumes) => {
                let text = format!("volumes remain: {}", volumes.join(", "));
                self.removed(!volumes.is_empty(), now, out);
                if !volumes.is_empty() {
                    self.detail = text;
                }
            }
            Err(fault) => self.back_off(&fault, now, out),
        }
    }

    fn removed(&mut self, burned: bool, now: Now, out: Out<'_>) {
        self.let_go(burned, out);
        self.enter(State::Removed, now, out);
    }
}
