//! The mind of one declared machine: makes it once, looks at it, shows in what it differs, and puts
//! right what its declaration allows.
//!
//! ```text
//! Checking ─▶ Creating ─▶ Configuring ─▶ Starting ─▶ Resting (kept) ⇄ Correcting
//!    ▲ a guest of its name: Blocked                     │ gone, seen twice ─▶ Resting (missing)
//!    ╰── CREATE allowed ────────────────────────────────╯ other marks ─────▶ Resting (foreign)
//!
//! it left the configuration, or by command ─▶ Resting (left), or Leaving ─▶ Removing ─▶ Removed
//! ```
//!
//! - Nothing is made while a guest of the machine's name is there that drover did not make for it.
//! - What is intended is looked up before anything else is made (book: safety, rule 6). After a start
//!   a guest that is there is configured and started again, which changes nothing twice.
//! - A guest is gone only where a quorate cluster said so twice: its id is free, and the list of all
//!   guests does not have it. Silence changes nothing but the line for people.
//! - A failure is tried again after a pause that doubles.
//! - `transitions.txt` has the table, drawn from this code.
//!
//! Beside it: `declaration.rs` (what the configuration has), `make.rs` (to a guest that runs), `watch.rs` (looks and corrections), `remove.rs`,
//! `drift.rs` (what differs).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_model::declared::{DeclaredSpec, Drift, Installer};
use drover_model::fault::Fault;
use drover_model::id::{Attempt, CloudId, ClusterId, DeclaredName, Installation, NodeName, VmId};
use drover_model::journal_state::DeclaredEntry;
use drover_model::marks::{Marks, Reading, is_ours};
use drover_model::phase::{DeclaredPhase, DriftKind, Power};
use drover_model::ports::{IdStatus, VmObservation};
use drover_model::record::Body;
use drover_model::spec::TemplateSpec;
use drover_model::state_machine::{StateMachine, Turn};
use drover_model::time::{Moment, Now, WallTime};

use super::event::{Answer, Call, Effect, Event};
use super::remove::REMOVAL_GRACE;
use super::state::{Check, Create, Remove, Standing, State, Watch};
use crate::removal::Came;

/// The pauses between two tries of a call that failed: they double.
const PAUSE_FIRST: Duration = Duration::from_secs(5);
const PAUSE_LONGEST: Duration = Duration::from_secs(600);
/// The pause between two looks at a guest that is there.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(60);

/// What a machine is born with.
#[derive(Debug, Clone)]
pub struct Birth {
    pub name: DeclaredName,
    pub installation: Installation,
    /// How the configuration has it now; none where it has it no longer.
    pub declared: Option<Arc<DeclaredSpec>>,
    pub epoch: u64,
    pub incarnation: u32,
}

pub(super) type Out<'a> = &'a mut Turn<Effect>;

/// The guest of a machine: its marks, and what is known of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Guest {
    pub marks: Marks,
    /// The node it is on, as last known.
    pub node: NodeName,
    /// The template image that it was cloned from.
    pub source: VmId,
    /// Whether it is known to exist, or to have existed.
    pub made: bool,
    /// Whether it is configured, and was started where it is to run.
    pub configured: bool,
}

/// What a look shows of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    /// Nobody has the id.
    Free,
    /// It cannot be said, or Proxmox is still at it.
    Unclear(&'static str),
    /// Exactly this machine's guest.
    Ours { running: Option<bool> },
    /// The guest of somebody else.
    Foreign,
}

/// The mind of one declared machine.
#[derive(Debug)]
pub struct Mind {
    pub(super) birth: Birth,
    pub(super) state: State,
    /// How it is kept: as declared, or as it was declared last.
    pub(super) spec: Arc<DeclaredSpec>,
    /// The cluster of its guest; before there is one that of its cloud, once that is known.
    pub(super) cluster: Option<ClusterId>,
    /// The cluster that its cloud leads to, where another cloud made the guest.
    pub(super) leads: Option<ClusterId>,
    /// Its guest, once one is intended.
    pub(super) guest: Option<Guest>,
    /// The template image to clone, with its node, once it was found.
    pub(super) found: Option<(VmId, NodeName)>,
    /// Whether the last search found no version of its template image.
    pub(super) lacks_image: bool,
    /// When its guest was last described in this start, and whether a later look came to nothing.
    pub(super) last_seen: Option<WallTime>,
    pub(super) unseen: bool,
    /// When the configuration had it no longer.
    pub(super) left_at: Option<Moment>,
    /// When the clone was asked for.
    pub(super) asked: Option<Moment>,
    /// The guest's volumes, as far as they are known in this start.
    pub(super) volumes: Vec<String>,
    /// Rounds in a row in which it was gone.
    pub(super) gone_rounds: u32,
    /// Corrections in a row of each kind, and when the last one was.
    pub(super) corrections: BTreeMap<DriftKind, (u32, Moment)>,
    number: u32,
    waiting: Option<Attempt>,
    pub(super) retry_at: Option<Moment>,
    pub(super) tries: u32,
    /// Failures in a row on the way to a guest that runs.
    pub(super) failures: u32,
    pub(super) detail: String,
    pub(super) power: Power,
    pub(super) addresses: Vec<std::net::IpAddr>,
    pub(super) drift: Vec<Drift>,
    pub(super) corrected: Option<(WallTime, String)>,
    pub(super) since: WallTime,
}

impl Mind {
    /// A machine that is to be made.
    pub fn new(birth: Birth, spec: Arc<DeclaredSpec>) -> Self {
        Self {
            birth,
            state: State::Waiting,
            spec,
            cluster: None,
            leads: None,
            guest: None,
            found: None,
            lacks_image: false,
            last_seen: None,
            unseen: false,
            left_at: None,
            asked: None,
            volumes: Vec::new(),
            gone_rounds: 0,
            corrections: BTreeMap::new(),
            number: 0,
            waiting: None,
            retry_at: None,
            tries: 0,
            failures: 0,
            detail: String::new(),
            power: Power::Unknown,
            addresses: Vec::new(),
            drift: Vec::new(),
            corrected: None,
            since: WallTime::default(),
        }
    }

    /// What the journal knows. `Begin` goes on from there.
    pub fn adopt(birth: Birth, entry: &DeclaredEntry) -> Self {
        let guest = Guest {
            marks: entry.marks.clone(),
            node: entry.node.clone(),
            source: entry.spec.template.source,
            made: entry.made,
            configured: entry.made,
        };
        let state = match (entry.removing, entry.made) {
            (true, _) => State::Removing(Remove::Look),
            (false, true) => State::Resting(Standing::Kept, Watch::Describe),
            (false, false) => State::Creating(Create::Look),
        };
        let mut mind = Self::new(birth, Arc::new(entry.spec.clone()));
        mind.cluster = Some(entry.marks.cluster.clone());
        mind.guest = Some(guest);
        mind.state = state;
        mind
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// Whether the answer to this call is waited for.
    pub fn awaits(&self, attempt: Attempt) -> bool {
        self.waiting == Some(attempt)
    }

    /// What makes the guest, in place of a template image.
    pub fn installer(&self) -> Option<&Installer> {
        self.spec.installer.as_ref()
    }

    pub fn vmid(&self) -> Option<VmId> {
        self.guest.as_ref().map(|guest| guest.marks.vmid)
    }

    pub fn cloud(&self) -> &CloudId {
        &self.spec.template.id.cloud
    }

    pub fn cluster(&self) -> Option<&ClusterId> {
        self.cluster.as_ref()
    }

    pub fn guest(&self) -> Option<&Guest> {
        self.guest.as_ref()
    }

    /// How the guest is cloned and configured: from the template image that was found.
    pub fn template(&self) -> TemplateSpec {
        let mut template = self.spec.template.clone();
        if let Some(guest) = &self.guest {
            template.source = guest.source;
        }
        if let Some((_, home)) = &self.found {
            template.node = Some(home.clone());
        }
        template
    }

    /// The template image that a clone comes from, and its node.
    pub fn found(&self) -> Option<&(VmId, NodeName)> {
        self.found.as_ref()
    }

    pub fn volumes(&self) -> &[String] {
        &self.volumes
    }

    /// The declaration as it is written down: with the template image of the guest.
    pub(super) fn recorded(&self, spec: &DeclaredSpec) -> Box<DeclaredSpec> {
        let mut spec = spec.clone();
        if let Some(guest) = &self.guest {
            spec.template.source = guest.source;
        }
        Box::new(spec)
    }

    pub(super) fn is_declared(&self) -> bool {
        self.birth.declared.is_some()
    }

    pub(super) fn seen(&self, observation: &VmObservation) -> Seen {
        let Some(Guest { marks, .. }) = &self.guest else {
            return Seen::Unclear("nothing was intended");
        };
        match observation.id {
            IdStatus::Free => return Seen::Free,
            IdStatus::Unknown => {
                return Seen::Unclear("Proxmox does not say whether its id is free");
            }
            IdStatus::Taken => {}
        }
        let Some(reading) = &observation.marks else {
            return Seen::Unclear("its configuration could not be read");
        };
        if is_ours(reading, marks, marks.vmid) {
            return match observation.lock {
                Some(_) => Seen::Unclear("Proxmox has it locked"),
                None => Seen::Ours { running: observation.running },
            };
        }
        match (reading, observation.lock.as_deref()) {
            (Reading::Unmarked, Some("create" | "clone" | "destroyed")) => {
                Seen::Unclear("Proxmox is still at it")
            }
            (Reading::Unmarked | Reading::Damaged(_) | Reading::Marked(_), _) => Seen::Foreign,
        }
    }

    /// Goes to another state and does what it begins with.
    pub(super) fn enter(&mut self, state: State, now: Now, out: Out<'_>) {
        let phase = self.phase();
        self.state = state;
        if self.phase() != phase {
            self.since = now.wall;
            self.detail.clear();
        }
        self.tries = 0;
        self.act(now, out);
    }

    /// Makes the call that the state begins with.
    pub(super) fn act(&mut self, now: Now, out: Out<'_>) {
        (self.waiting, self.retry_at) = (None, None);
        match self.call() {
            Some(call) => {
                let attempt = self.stamp();
                self.waiting = Some(attempt);
                if call == Call::Clone {
                    self.asked = Some(now.mono);
                }
                if call == Call::Describe && self.is_of_another_cloud() {
                    out.push(Effect::WantCluster);
                }
                out.push(Effect::Ask(attempt, call));
            }
            None => match &self.state {
                // A herd that panicked answers nobody: it is asked again.
                State::Checking(Check::Cluster) => {
                    out.push(Effect::WantCluster);
                    self.again_in(LOOK_EVERY, now, out);
                }
                State::Creating(Create::Id) => self.again_in(LOOK_EVERY, now, out),
                State::Resting(_, Watch::Pause) => self.again_in(LOOK_EVERY, now, out),
                State::Leaving => self.again_in(REMOVAL_GRACE, now, out),
                State::Waiting
                | State::Blocked
                | State::Checking(_)
                | State::Creating(_)
                | State::Configuring
                | State::Starting
                | State::Resting(..)
                | State::Correcting(_)
                | State::Removing(_)
                | State::Removed => {}
            },
        }
    }

    /// Whether the declaration names another cloud than that which made the guest.
    fn is_of_another_cloud(&self) -> bool {
        self.guest.as_ref().is_some_and(|guest| guest.marks.cloud != self.cloud().as_str())
    }

    fn stamp(&mut self) -> Attempt {
        self.number += 1;
        let Birth { epoch, incarnation, .. } = self.birth;
        Attempt { epoch, incarnation, n: self.number }
    }

    fn call(&self) -> Option<Call> {
        let limits = &self.spec.template.limits;
        match &self.state {
            State::Waiting
            | State::Blocked
            | State::Checking(Check::Cluster)
            | State::Creating(Create::Id)
            | State::Resting(_, Watch::Pause)
            | State::Leaving
            | State::Removed => None,
            State::Checking(Check::List) | State::Resting(_, Watch::List) => Some(Call::Survey),
            State::Checking(Check::Look(guests)) => {
                guests.first().map(|one| Call::LookAt(one.vmid, one.node.clone()))
            }
            State::Creating(Create::Locate) => Some(Call::Locate),
            State::Creating(Create::Call) => Some(Call::Clone),
            State::Creating(Create::Await(upid)) => Some(Call::Await(upid.clone(), limits.clone)),
            State::Creating(Create::Look) | State::Resting(_, Watch::Look) => Some(Call::Look),
            State::Configuring => Some(Call::Configure),
            State::Starting => Some(Call::Order(drover_model::order::Work::Start)),
            State::Resting(_, Watch::Describe) => Some(Call::Describe),
            State::Correcting(work) => Some(Call::Order(work.clone())),
            State::Removing(step) => Some(self.remove_call(step)),
        }
    }

    /// Does what the state begins with after a pause.
    pub(super) fn again_in(&mut self, pause: Duration, now: Now, out: Out<'_>) {
        self.waiting = None;
        let at = now.mono + pause;
        self.retry_at = Some(at);
        let attempt = self.stamp();
        out.push(Effect::WakeAt(attempt, at));
    }

    /// The pause after so many failures in a row.
    pub(super) fn pause_after(failures: u32) -> Duration {
        (PAUSE_FIRST * 2_u32.saturating_pow(failures.min(10))).min(PAUSE_LONGEST)
    }

    /// Repeats what the state begins with after a pause that grows.
    pub(super) fn back_off(&mut self, fault: &Fault, now: Now, out: Out<'_>) {
        self.detail.clone_from(&fault.text);
        let pause = Self::pause_after(self.tries);
        self.tries += 1;
        self.again_in(pause, now, out);
    }

    fn begin(&mut self, now: Now, out: Out<'_>) {
        self.since = now.wall;
        match &self.state {
            State::Waiting => self.enter(State::Checking(Check::Cluster), now, out),
            State::Creating(_) => {
                // What was asked for before may still come.
                self.asked = Some(now.mono);
                self.act(now, out);
            }
            State::Blocked
            | State::Checking(_)
            | State::Configuring
            | State::Starting
            | State::Resting(..)
            | State::Correcting(_)
            | State::Leaving
            | State::Removing(_)
            | State::Removed => self.act(now, out),
        }
        match self.birth.declared.clone() {
            Some(spec) => self.declare(spec, now, out),
            None => self.undeclared(now, out),
        }
    }

    /// What it waits for by its timer is done now.
    fn look_now(&mut self, now: Now, out: Out<'_>) {
        match &self.state {
            State::Waiting | State::Blocked => {
                self.enter(State::Checking(Check::Cluster), now, out);
            }
            State::Resting(standing, Watch::Pause) => {
                let state = State::Resting(*standing, Watch::Describe);
                self.enter(state, now, out);
            }
            State::Checking(_)
            | State::Creating(_)
            | State::Configuring
            | State::Starting
            | State::Resting(..)
            | State::Correcting(_)
            | State::Leaving
            | State::Removing(_)
            | State::Removed => {}
        }
    }

    /// Nothing of the guest is drover's concern from here on.
    pub(super) fn let_go(&mut self, burned: bool, out: Out<'_>) {
        let Some(Guest { marks, .. }) = self.guest.take() else { return };
        let (machine, vmid) = (marks.agent, marks.vmid);
        out.push(Effect::Record(Body::DeclaredGone { machine, burned }));
        out.push(Effect::IdBack { vmid, burned });
        (self.found, self.asked, self.gone_rounds) = (None, None, 0);
        self.volumes.clear();
        self.drift.clear();
        self.addresses.clear();
        self.power = Power::Unknown;
        (self.last_seen, self.unseen) = (None, false);
    }

    /// A call was not made. What was decided on an old look is not carried out later: a correction
    /// and a removal begin again with a look.
    fn held(&mut self, why: String, now: Now, out: Out<'_>) {
        self.unseen = true;
        if matches!(self.state, State::Correcting(_)) {
            self.enter(State::Resting(Standing::Kept, Watch::Pause), now, out);
        } else {
            if self.state.removal().is_some() {
                self.state = State::Removing(Remove::Look);
                if self.was_declared_again(now, out) {
                    return;
                }
            }
            self.again_in(LOOK_EVERY, now, out);
        }
        self.detail = why;
    }

    /// Something is due.
    fn woken(&mut self, now: Now, out: Out<'_>) {
        if self.retry_at.is_none_or(|at| now.mono < at) {
            return;
        }
        let rests =
            matches!(self.state, State::Waiting | State::Blocked | State::Resting(_, Watch::Pause));
        if self.state == State::Leaving {
            self.delete(now, out);
        } else if self.state == State::Creating(Create::Id) {
            self.failed("it waited for a VMID in vain", now, out);
        } else if rests {
            self.look_now(now, out);
        } else {
            self.act(now, out);
        }
    }

    fn answered(&mut self, answer: Answer, now: Now, out: Out<'_>) {
        match answer {
            Answer::Surveyed(result) => self.surveyed(result, now, out),
            Answer::Looked(result) => self.looked(result, now, out),
            Answer::Located(result) => self.located(result, now, out),
            Answer::Accepted(result) => self.accepted(result, now, out),
            Answer::TaskEnded(end) => self.task_ended(end, now, out),
            Answer::Configured(result) => self.configured(result, now, out),
            Answer::Described(result) => self.described(result.map(|view| *view), now, out),
            Answer::Carried(result) => self.carried(result, now, out),
            Answer::IdSeen(result) => self.removal_went(Came::IdSeen(result), now, out),
            Answer::Leftovers(result) => self.removal_went(Came::Left(result), now, out),
        }
    }
}

impl StateMachine for Mind {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, event: Event, now: Now, out: &mut Turn<Effect>) {
        let before = self.status();
        let begins = event == Event::Begin;
        match event {
            Event::Begin => self.begin(now, out),
            Event::Declare(Some(spec)) => self.declare(spec, now, out),
            Event::Declare(None) => self.undeclared(now, out),
            Event::Cluster(cluster) => self.clustered(cluster, now, out),
            Event::Id(id) => self.id(id, now, out),
            Event::Look => self.look_now(now, out),
            Event::Delete => self.delete(now, out),
            Event::Forget => self.forget(now, out),
            Event::TakeOver(marks, node) => self.take_over(*marks, node, now, out),
            Event::Intended(seq) => {
                // An adopted guest has the sequence that its marks say.
                if let Some(guest) = self.guest.as_mut().filter(|guest| guest.marks.seq == 0) {
                    guest.marks.seq = seq;
                }
            }
            Event::Held(attempt, why) => {
                if self.awaits(attempt) {
                    self.held(why, now, out);
                }
            }
            Event::Answer(attempt, answer) => {
                if self.awaits(attempt) {
                    self.waiting = None;
                    self.answered(answer, now, out);
                }
            }
            Event::Wake(attempt) => {
                let Birth { epoch, incarnation, .. } = self.birth;
                if attempt == (Attempt { epoch, incarnation, n: self.number }) {
                    self.woken(now, out);
                }
            }
        }
        let status = self.status();
        if status != before || begins {
            out.push(Effect::Report(Box::new(status)));
        }
        if self.state == State::Removed && before.phase != DeclaredPhase::Removed {
            out.push(Effect::End);
        }
    }
}
