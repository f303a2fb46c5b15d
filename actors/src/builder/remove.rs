//! How a guest of a build, or a version that is pruned, is destroyed (book: safety, rule 5).
//!
//! ```text
//! Removing (`removal`): Look ─▶ … ─▶ over
//!                                 │ free, and no create can come late: over
//!                                 └ other marks: left alone, over
//! ```

use std::time::Duration;

use drover_model::fault::Fault;
use drover_model::id::VmId;
use drover_model::marks::{Marks, Reading, is_ours};
use drover_model::phase::ImagePhase;
use drover_model::ports::{IdStatus, VmObservation};
use drover_model::record::Body;
use drover_model::state_machine::Turn;
use drover_model::time::Now;

use super::event::{Call, Effect};
use super::mind::Mind;
use super::state::{Boot, Create, Remove, Shut, State, Task};
use crate::removal::{Ask, Came, HORIZON, Next};

/// What is said while Proxmox has a lock on a guest without marks.
const AT_IT: &str = "Proxmox is still at it";
/// The pause between two looks at a guest that is unclear.
const LOOK_PAUSE: Duration = Duration::from_secs(5);

type Out<'a> = &'a mut Turn<Effect>;

/// How long a guest without marks may stay locked before a build that was to make it gives it up. Should
/// Proxmox finish it after that, it is an orphan with the marks of a build, which the reconciler knows.
pub(super) const UNFINISHED: Duration = Duration::from_secs(3600);

/// What a look shows of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    /// Nobody has the id.
    Free,
    /// It cannot be said.
    Unclear(&'static str),
    /// Proxmox makes or destroys it, or was cut off at that: it has this lock and no marks.
    Unfinished(String),
    /// Exactly the guest of this build.
    Ours { running: Option<bool> },
    /// The version, proved and marked.
    Version { running: Option<bool> },
    /// The guest of somebody else.
    Foreign,
}

impl Mind {
    fn seen(&self, observation: &VmObservation) -> Seen {
        let Some(marks) = &self.marks else { return Seen::Unclear("nothing was intended") };
        match observation.id {
            IdStatus::Free => return Seen::Free,
            IdStatus::Unknown => {
                return Seen::Unclear("Proxmox does not say whether the id is free");
            }
            IdStatus::Taken => {}
        }
        let running = observation.running;
        let Some(reading) = &observation.marks else {
            return Seen::Unclear("its configuration could not be read");
        };
        if self.sealed.as_ref().is_some_and(|sealed| is_ours(reading, sealed, marks.vmid)) {
            return Seen::Version { running };
        }
        if is_ours(reading, marks, marks.vmid) {
            return if observation.lock.is_some() {
                Seen::Unclear("Proxmox has it locked")
            } else {
                Seen::Ours { running }
            };
        }
        match (reading, observation.lock.as_deref()) {
            (Reading::Unmarked, Some(lock @ ("create" | "clone" | "destroyed"))) => {
                Seen::Unfinished(lock.to_owned())
            }
            (Reading::Unmarked | Reading::Damaged(_) | Reading::Marked(_), _) => Seen::Foreign,
        }
    }

    /// A look came back, in whichever state.
    pub(super) fn looked(&mut self, result: Result<VmObservation, Fault>, now: Now, out: Out<'_>) {
        let observation = match result {
            Ok(observation) => observation,
            Err(fault) => return self.back_off(&fault, now, out),
        };
        let seen = self.seen(&observation);
        match self.state {
            State::Creating(Create::Look) => self.looked_while_creating(&seen, now, out),
            State::Installing(_) => self.install_looked(observation.running, now, out),
            State::Booting(_) => match observation.running {
                Some(true) => self.enter(State::Booting(Boot::Address), now, out),
                Some(false) => self.enter(State::Booting(Boot::Start), now, out),
                None => self.again_in(LOOK_PAUSE, now, out),
            },
            State::ShuttingDown(_) => match observation.running {
                Some(false) => self.enter(State::Converting(Task::Call), now, out),
                Some(true) => self.enter(State::ShuttingDown(Shut::Call), now, out),
                None => self.again_in(LOOK_PAUSE, now, out),
            },
            State::Removing(_) => self.looked_to_remove(&seen, now, out),
            State::Queued
            | State::Pulling(_)
            | State::Creating(_)
            | State::Configuring
            | State::Connecting
            | State::Provisioning(_)
            | State::Cleaning
            | State::Converting(_)
            | State::Verifying
            | State::Sealing
            | State::Done
            | State::Failed
            | State::Removed => {}
        }
    }

    /// The marks that the guest is known to carry.
    pub(super) fn marks_on_guest(&self) -> Option<Marks> {
        self.carried.clone().or_else(|| self.marks.clone())
    }

    fn horizon_passed(&self, now: Now) -> bool {
        self.made || self.asked.is_none_or(|asked| now.mono - asked >= HORIZON)
    }

    fn looked_while_creating(&mut self, seen: &Seen, now: Now, out: Out<'_>) {
        match seen {
            Seen::Ours { .. } => {
                self.made = true;
                self.enter(State::Configuring, now, out);
            }
            Seen::Free if !self.horizon_passed(now) => {
                "Proxmox has not made the guest yet".clone_into(&mut self.detail);
                self.again_in(LOOK_PAUSE, now, out);
            }
            Seen::Unclear(why) => {
                (*why).clone_into(&mut self.detail);
                self.again_in(LOOK_PAUSE, now, out);
            }
            Seen::Unfinished(_) => {
                AT_IT.clone_into(&mut self.detail);
                self.again_in(LOOK_PAUSE, now, out);
            }
            Seen::Free => self.remove("Proxmox never made the guest", now, out),
            Seen::Foreign | Seen::Version { .. } => {
                self.remove("its VMID is somebody else's", now, out);
            }
        }
    }

    fn remove(&mut self, why: &str, now: Now, out: Out<'_>) {
        self.note_failure(format!("{}: {why}", ImagePhase::Creating.name()), now, out);
        self.enter(State::Removing(Remove::Look), now, out);
    }

    fn looked_to_remove(&mut self, seen: &Seen, now: Now, out: Out<'_>) {
        match seen {
            Seen::Free if self.horizon_passed(now) => {
                self.remove_step(Remove::Leftovers, now, out);
            }
            Seen::Free => {
                "it waits until a late create can have no effect".clone_into(&mut self.detail);
                self.again_in(LOOK_PAUSE * 2, now, out);
            }
            Seen::Unclear(why) => {
                (*why).clone_into(&mut self.detail);
                self.again_in(LOOK_PAUSE, now, out);
            }
            Seen::Unfinished(lock) if now.mono - self.entered >= UNFINISHED => {
                let (id, node) = (self.vmid().unwrap_or(VmId(0)), &self.birth.node);
                let text = format!(
                    "guest {id} on `{node}` has the lock `{lock}` and no marks, so that drover leaves it \
                     alone: if no task on the node works on it, `qm unlock {id} && qm destroy {id}` there"
                );
                self.give_up(&text, now, out);
            }
            Seen::Unfinished(_) => {
                AT_IT.clone_into(&mut self.detail);
                self.again_in(LOOK_PAUSE, now, out);
            }
            // It was proved before the service stopped.
            Seen::Version { .. } if !self.pruned => self.built(now, out),
            Seen::Ours { running } | Seen::Version { running } => {
                self.made = true;
                let version = matches!(seen, Seen::Version { .. });
                self.carried = self.sealed.clone().filter(|_| version);
                let stopped = *running == Some(false);
                self.remove_step(Remove::Fence { stopped }, now, out);
            }
            Seen::Foreign => {
                let text = "the guest with its VMID carries other marks and is left alone";
                self.give_up(text, now, out);
            }
        }
    }

    /// Ends with the guest left alone; its VMID is not taken again.
    fn give_up(&mut self, text: &str, now: Now, out: Out<'_>) {
        self.add_to_failure(text, now);
        self.gone(true, State::Failed, now, out);
    }

    fn add_to_failure(&mut self, text: &str, now: Now) {
        self.failure = Some(match self.failure.take() {
            Some((at, failure)) => (at, format!("{failure}; {text}")),
            None => (now.wall, text.to_owned()),
        });
    }

    pub(super) fn remove_call(&self, step: &Remove) -> Call {
        match step.ask() {
            Ask::Look => Call::Look,
            Ask::Fence => Call::Fence,
            Ask::Stop => Call::Stop,
            Ask::Destroy => Call::Destroy,
            Ask::Await(upid) => Call::Await(upid, self.operation()),
            Ask::IdTaken => Call::IdTaken,
            Ask::Leftovers => Call::Leftovers,
        }
    }

    fn remove_step(&mut self, step: Remove, now: Now, out: Out<'_>) {
        self.state = State::Removing(step);
        self.act(now, out);
    }

    /// A call of the removal came back.
    pub(super) fn removal_went(&mut self, came: Came, now: Now, out: Out<'_>) {
        let State::Removing(step) = &self.state else { return };
        match step.next(came) {
            Next::To(step) => self.remove_step(step, now, out),
            Next::Again(fault) => {
                self.state = State::Removing(Remove::Look);
                self.back_off(&fault, now, out);
            }
            Next::Later(why) => {
                self.state = State::Removing(Remove::Look);
                self.detail = why;
                self.again_in(LOOK_PAUSE, now, out);
            }
            Next::Repeat(fault) => self.back_off(&fault, now, out),
            Next::Gone(volumes) => {
                if !volumes.is_empty() {
                    let text = format!("volumes remain: {}", volumes.join(", "));
                    self.add_to_failure(&text, now);
                }
                let state = if self.pruned { State::Removed } else { State::Failed };
                self.gone(!volumes.is_empty(), state, now, out);
            }
        }
    }

    fn gone(&mut self, burned: bool, state: State, now: Now, out: Out<'_>) {
        let build = self.birth.build.clone();
        out.push(Effect::Record(Body::ImageGone { build, burned }));
        if let Some(vmid) = self.vmid() {
            out.push(Effect::IdBack { vmid, burned });
        }
        self.over(state, now, out);
    }
}
