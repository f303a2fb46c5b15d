//! How the guest of a machine is destroyed (book: safety, rule 5).
//!
//! ```text
//! Leaving ── 60 s ──▶ Removing (`removal`): Look ─▶ … ─▶ Removed
//!                                                     │ free, and no clone can come late: Removed
//!                                                     └ other marks: left alone, Removed
//! ```
//!
//! A machine that is declared again is kept, in every step before the destroy call. The grace is there
//! because a file may be read while somebody writes it, and what is destroyed does not come back.

use std::time::Duration;

use drover_model::record::Body;
use drover_model::time::Now;

use super::event::{Call, Effect};
use super::make::LOOK_PAUSE;
use super::mind::{Mind, Out, Seen};
use super::state::{Remove, State};
use crate::removal::{Ask, Came, HORIZON, Next};

/// The time between the end of a declaration and the removal that it asks for.
pub(super) const REMOVAL_GRACE: Duration = Duration::from_secs(60);

impl Mind {
    /// Its guest is to be destroyed.
    pub(super) fn delete(&mut self, now: Now, out: Out<'_>) {
        if matches!(self.state, State::Removing(_) | State::Removed) {
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

    pub(super) fn remove_call(&self, step: &Remove) -> Call {
        match step.ask() {
            Ask::Look => Call::Look,
            Ask::Fence => Call::Fence,
            Ask::Stop => Call::Stop,
            Ask::Destroy => Call::Destroy,
            Ask::Await(upid) => Call::Await(upid, self.spec.template.limits.operation),
            Ask::IdTaken => Call::IdTaken,
            Ask::Leftovers => Call::Leftovers,
        }
    }

    /// Goes to another step; the line for people stays.
    fn remove_step(&mut self, step: Remove, now: Now, out: Out<'_>) {
        self.state = State::Removing(step);
        self.act(now, out);
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

    /// A call of the removal came back.
    pub(super) fn removal_went(&mut self, came: Came, now: Now, out: Out<'_>) {
        let State::Removing(step) = &self.state else { return };
        match step.next(came) {
            Next::To(step) => self.remove_step(step, now, out),
            Next::Again(fault) => {
                self.state = State::Removing(Remove::Look);
                if !self.was_declared_again(now, out) {
                    self.back_off(&fault, now, out);
                }
            }
            Next::Later(why) => self.remove_later(&why, now, out),
            Next::Repeat(fault) => self.back_off(&fault, now, out),
            Next::Gone(volumes) => {
                self.removed(!volumes.is_empty(), now, out);
                if !volumes.is_empty() {
                    self.detail = format!("volumes remain: {}", volumes.join(", "));
                }
            }
        }
    }

    fn removed(&mut self, burned: bool, now: Now, out: Out<'_>) {
        self.let_go(burned, out);
        self.enter(State::Removed, now, out);
    }
}
