//! The mind of one build: from a source on the internet, or another template, to a template that
//! is proved and carries the marks of an image.
//!
//! ```text
//! Queued ─▶ Pulling ─▶ Creating ─▶ Configuring ─▶ Booting ─▶ Connecting ─▶ Provisioning
//!                                       ╰─▶ Installing ─╯ (from an ISO)        │
//!   Done ◀─ Sealing ◀─ Verifying ◀─ Converting ◀─ ShuttingDown ◀─ Cleaning ◀───┘
//!
//! any of them ── a fault that does not pass, a limit ──▶ Removing ──▶ Failed
//! ```
//!
//! - A guest that was intended is destroyed when its build fails, and after a restart, by its marks
//!   (`remove.rs`). What has other marks is left alone.
//! - A version that is pruned takes the same way, from Removing to Removed.
//! - A call whose outcome is unknown is repeated where that does no harm. A create is looked up
//!   before anything else (book: safety, rule 6).
//! - `transitions.txt` has the table, drawn from this code.
//!
//! Beside it: `create.rs` (from the beginning to a guest), `install.rs` (the installer of an ISO
//! image), `login.rs` (what is done in it), `tasks.rs`
//! (calls that begin a task).

mod create;
mod install;
mod login;
mod tasks;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use drover_model::fault::Fault;
use drover_model::id::{
    AgentId, Attempt, ClusterId, Installation, NodeName, TemplateId, Upid, VmId,
};
use drover_model::image::Recipe;
use drover_model::journal_state::BuildEntry;
use drover_model::marks::{Kind, Marks};
use drover_model::phase::ImagePhase;
use drover_model::record::Body;
use drover_model::seed;
use drover_model::spec::{StepWork, TemplateSpec};
use drover_model::state_machine::{StateMachine, Turn};
use drover_model::status::{ImageStatus, NextBuild};
use drover_model::time::{Moment, Now, WallTime};
use drover_scripts::guest;

use super::event::{Answer, Call, Effect, Event};
use super::state::{Boot, Create, Install, Remove, Shut, State, Task};
use crate::ran::can_pass;
use crate::removal::Came;

/// The pauses between two tries of a call that failed: they double.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_LONGEST: Duration = Duration::from_secs(30);
/// The pause between two questions to a guest that is not up yet.
const POLL: Duration = Duration::from_secs(3);
/// How often the guest agent is asked for host keys before the key of the first connection counts.
const HOST_KEY_TRIES: u32 = 3;
/// A step that uses all the time ends this much before the deadline.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// What a guest gets to shut down before it is stopped hard.
pub(super) const SHUTDOWN: Duration = Duration::from_secs(180);
/// What an operation's task may take beyond its own limit.
const TASK_EXTRA: Duration = Duration::from_secs(60);
/// The limit of a task where no recipe says one.
const OPERATION: Duration = Duration::from_secs(300);
/// The name of the step that waits for cloud-init.
const CLOUD_INIT: &str = "cloud-init";

/// What a build is born with.
#[derive(Debug, Clone)]
pub struct Birth {
    pub build: AgentId,
    pub installation: Installation,
    pub cluster: ClusterId,
    pub image: TemplateId,
    pub version: AgentId,
    pub node: NodeName,
    /// What is built; none where a guest is only removed.
    pub recipe: Option<Arc<Recipe>>,
    /// Whether the herd builds it again once its guest is gone.
    pub again: bool,
    pub epoch: u64,
    pub incarnation: u32,
}

type Out<'a> = &'a mut Turn<Effect>;

/// The mind of one build.
#[derive(Debug)]
pub struct Mind {
    pub(super) birth: Birth,
    pub(super) state: State,
    /// The marks of the guest, once one is intended.
    pub(super) marks: Option<Marks>,
    /// The marks of the version, once it is proved.
    pub(super) sealed: Option<Marks>,
    /// The marks of the version, where the guest carries them already.
    pub(super) carried: Option<Marks>,
    /// Whether this removes a version.
    pub(super) pruned: bool,
    /// Whether the guest is known to exist, or to have existed.
    pub(super) made: bool,
    /// When the guest was last asked for.
    pub(super) asked: Option<Moment>,
    /// The machine as it is cloned, where a template image is copied.
    copied: Option<TemplateSpec>,
    pub(super) mac: Option<String>,
    address: Option<IpAddr>,
    pub(super) host_keys: Vec<String>,
    pub(super) volumes: Vec<String>,
    number: u32,
    /// The call whose answer is waited for, and when it was made.
    waiting: Option<(Attempt, Moment)>,
    /// When the last call is repeated.
    retry_at: Option<Moment>,
    /// When all of the build must be done.
    deadline: Option<Moment>,
    /// When this state must be over.
    limit: Option<Moment>,
    pub(super) tries: u32,
    pub(super) detail: String,
    /// When and why it failed.
    pub(super) failure: Option<(WallTime, String)>,
    since: WallTime,
    pub(super) entered: Moment,
    phases: Vec<(String, u64)>,
}

impl Mind {
    /// A build that begins.
    pub fn new(birth: Birth) -> Self {
        Self::in_state(birth, State::Queued)
    }

    /// What the journal knows: a guest that may be there is removed, and one that is proved is kept.
    pub fn adopt(birth: Birth, entry: &BuildEntry) -> Self {
        Self {
            marks: Some(entry.marks.clone()),
            sealed: entry.sealed.clone(),
            pruned: entry.pruned,
            made: entry.pruned
                || entry.sealed.is_some()
                || entry.failed.as_ref().is_some_and(|failed| failed.made),
            volumes: entry.iso.iter().cloned().collect(),
            failure: entry.failed.as_ref().map(|failed| (failed.at, failed.why.clone())),
            ..Self::in_state(birth, State::Removing(Remove::Look))
        }
    }

    fn in_state(birth: Birth, state: State) -> Self {
        Self {
            birth,
            state,
            marks: None,
            sealed: None,
            carried: None,
            pruned: false,
            made: false,
            asked: None,
            copied: None,
            mac: None,
            address: None,
            host_keys: Vec::new(),
            volumes: Vec::new(),
            number: 0,
            waiting: None,
            retry_at: None,
            deadline: None,
            limit: None,
            tries: 0,
            detail: String::new(),
            failure: None,
            since: WallTime::default(),
            entered: Moment::default(),
            phases: Vec::new(),
        }
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// Whether the answer to this call is waited for.
    pub fn awaits(&self, attempt: Attempt) -> bool {
        self.waiting.is_some_and(|(waiting, _)| waiting == attempt)
    }

    pub(super) fn vmid(&self) -> Option<VmId> {
        self.marks.as_ref().map(|marks| marks.vmid)
    }

    /// How the guest is configured, logged in to and prepared; as it is cloned, where it is.
    pub(super) fn machine(&self) -> Option<&TemplateSpec> {
        let own = || self.birth.recipe.as_ref().map(|recipe| &recipe.spec.machine);
        self.copied.as_ref().or_else(own)
    }

    /// The guest's own disc image for cloud-init, as long as it may be on its storage.
    pub(super) fn disc(&self) -> Option<String> {
        self.volumes.iter().find(|volume| seed::is_image(volume)).cloned()
    }

    /// The limit of one task.
    pub(super) fn operation(&self) -> Duration {
        self.machine().map_or(OPERATION, |machine| machine.limits.operation)
    }

    fn left(&self, now: Now) -> Duration {
        self.deadline.map_or(OPERATION, |deadline| deadline - now.mono)
    }

    /// Goes to another state and does what it begins with.
    pub(super) fn enter(&mut self, state: State, now: Now, out: Out<'_>) {
        let before = self.part();
        let phase = self.state.phase();
        self.state = state;
        if self.part() != before {
            self.phases.push((before, millis(now.mono - self.entered)));
            self.entered = now.mono;
        }
        if self.state.phase() != phase {
            self.since = now.wall;
            self.detail.clear();
            self.limit = None;
            if matches!(phase, ImagePhase::Queued | ImagePhase::Pulling)
                && !matches!(self.state.phase(), ImagePhase::Queued | ImagePhase::Pulling)
            {
                out.push(Effect::TurnOver);
            }
        }
        self.tries = 0;
        self.act(now, out);
    }

    /// The part of the build's life that is measured.
    fn part(&self) -> String {
        let phase = self.state.phase().name();
        match self.running_step() {
            Some(step) => format!("{phase}: {step}"),
            None => phase.to_owned(),
        }
    }

    /// The name of the recipe's step that runs.
    fn running_step(&self) -> Option<String> {
        match &self.state {
            State::Provisioning(step) => Some(self.step_name(*step)),
            State::Queued
            | State::Pulling(_)
            | State::Creating(_)
            | State::Configuring
            | State::Installing(_)
            | State::Booting(_)
            | State::Connecting
            | State::Cleaning
            | State::ShuttingDown(_)
            | State::Converting(_)
            | State::Verifying
            | State::Sealing
            | State::Removing(_)
            | State::Done
            | State::Failed
            | State::Removed => None,
        }
    }

    fn step_name(&self, step: usize) -> String {
        let own = |at: usize| self.machine().and_then(|machine| machine.steps.get(at));
        match step.checked_sub(1) {
            None => CLOUD_INIT.to_owned(),
            Some(at) => own(at).map(|step| step.name.clone()).unwrap_or_default(),
        }
    }

    /// Makes the call that the state begins with.
    pub(super) fn act(&mut self, now: Now, out: Out<'_>) {
        (self.waiting, self.retry_at) = (None, None);
        match self.call(now) {
            Some(call) => {
                let attempt = self.stamp();
                self.waiting = Some((attempt, now.mono));
                if call == Call::Create {
                    self.asked = Some(now.mono);
                }
                out.push(Effect::Ask(attempt, call));
                self.arm(out);
            }
            None => self.arm(out),
        }
    }

    fn stamp(&mut self) -> Attempt {
        self.number += 1;
        let Birth { epoch, incarnation, .. } = self.birth;
        Attempt { epoch, incarnation, n: self.number }
    }

    /// Sets the timer to the next moment at which something is due.
    fn arm(&mut self, out: Out<'_>) {
        let removing = matches!(self.state, State::Removing(_));
        let limits = [self.deadline, self.limit].into_iter().flatten().filter(|_| !removing);
        if let Some(at) = limits.chain(self.retry_at).min() {
            let Birth { epoch, incarnation, .. } = self.birth;
            out.push(Effect::WakeAt(Attempt { epoch, incarnation, n: self.number }, at));
        }
    }

    fn call(&self, now: Now) -> Option<Call> {
        let run = |command: String, limit: Duration| Some(Call::Run(self.address?, command, limit));
        let within = self.left(now).saturating_sub(LAST_WORDS);
        let awaits = |upid: &Upid, limit| Some(Call::Await(upid.clone(), limit));
        match &self.state {
            State::Queued | State::Done | State::Failed | State::Removed => None,
            State::Pulling(Task::Call) => Some(Call::Pull),
            State::Pulling(Task::Await(upid)) => awaits(upid, self.left(now)),
            State::Creating(Create::Locate) => Some(Call::Locate),
            State::Creating(Create::Id) => None,
            State::Creating(Create::Call) => Some(Call::Create),
            State::Creating(Create::Await(upid)) => awaits(upid, self.left(now)),
            State::Creating(Create::Look) => Some(Call::Look),
            State::Configuring => Some(Call::Configure),
            State::Installing(Install::Start) => Some(Call::Start),
            State::Installing(Install::Await(upid)) => awaits(upid, self.operation()),
            State::Installing(Install::Look { .. }) => Some(Call::Look),
            State::Installing(Install::Eject) => Some(Call::Eject),
            State::Booting(Boot::Start) => Some(Call::Start),
            State::Booting(Boot::Await(upid)) => awaits(upid, self.operation()),
            State::Booting(Boot::Look) => Some(Call::Look),
            State::Booting(Boot::Address) => Some(Call::Address),
            State::Booting(Boot::HostKeys) => Some(Call::HostKeys),
            State::Connecting => Some(Call::Greet(self.address?)),
            State::Provisioning(0) => run(guest::cloud_init(), within),
            State::Provisioning(step) => {
                let step = self.machine()?.steps.get(step - 1)?;
                let limit = step.timeout.min(within);
                match &step.work {
                    StepWork::Run(command) => run(command.clone(), limit),
                    StepWork::Packages(names) => run(guest::packages(names), limit),
                    StepWork::Upload(upload) => {
                        Some(Call::Upload(self.address?, upload.clone(), limit))
                    }
                }
            }
            State::Cleaning => run(self.birth.recipe.as_ref()?.spec.clean.clone(), within),
            State::ShuttingDown(Shut::Call) => Some(Call::Shutdown),
            State::ShuttingDown(Shut::Await(upid)) => awaits(upid, SHUTDOWN + TASK_EXTRA),
            State::ShuttingDown(Shut::Look) => Some(Call::Look),
            State::Converting(Task::Call) => Some(Call::Finish),
            State::Converting(Task::Await(upid)) => awaits(upid, self.left(now)),
            State::Verifying => Some(Call::Check),
            State::Sealing => Some(Call::Seal),
            State::Removing(step) => Some(self.remove_call(step)),
        }
    }

    /// Repeats the call after a pause.
    pub(super) fn again_in(&mut self, pause: Duration, now: Now, out: Out<'_>) {
        self.tries += 1;
        self.waiting = None;
        self.retry_at = Some(now.mono + pause);
        self.arm(out);
    }

    /// Repeats the call after a pause that grows.
    pub(super) fn back_off(&mut self, fault: &Fault, now: Now, out: Out<'_>) {
        self.detail.clone_from(&fault.text);
        let pause = PAUSE_FIRST * 2_u32.saturating_pow(self.tries.min(5));
        self.again_in(pause.min(PAUSE_LONGEST), now, out);
    }

    /// A call was not made. A removal begins again with a look.
    fn held(&mut self, why: String, now: Now, out: Out<'_>) {
        if matches!(self.state, State::Removing(_)) {
            self.state = State::Removing(Remove::Look);
        }
        self.detail = why;
        self.again_in(PAUSE_LONGEST, now, out);
    }

    /// Repeats the call where its fault may pass, else the build fails.
    fn failed(&mut self, fault: &Fault, now: Now, out: Out<'_>) {
        if can_pass(&fault.kind) {
            self.back_off(fault, now, out);
        } else {
            self.fail(&fault.text, now, out);
        }
    }

    /// The build failed: what was made is destroyed.
    fn fail(&mut self, text: &str, now: Now, out: Out<'_>) {
        let text = format!("{}: {text}", self.part());
        self.note_failure(text, now, out);
        if self.marks.is_some() {
            return self.enter(State::Removing(Remove::Look), now, out);
        }
        self.over(State::Failed, now, out);
    }

    /// Writes down the first reason for which it fails.
    pub(super) fn note_failure(&mut self, why: String, now: Now, out: Out<'_>) {
        if self.failure.is_some() || self.pruned {
            return;
        }
        self.failure = Some((now.wall, why.clone()));
        out.push(Effect::Record(Body::ImageFailed {
            build: self.birth.build.clone(),
            image: self.birth.image.clone(),
            node: self.birth.node.clone(),
            version: self.birth.version.clone(),
            made: self.made,
            why,
        }));
    }

    /// Somebody wants it no longer. One that is removed, or proved, goes on.
    fn cancelled(&mut self, now: Now, out: Out<'_>) {
        self.birth.again = false;
        let over = self.state.phase().is_over();
        if !over && !matches!(self.state, State::Removing(_) | State::Sealing) {
            self.fail("an operator cancelled it", now, out);
        }
    }

    /// Nothing more happens.
    pub(super) fn over(&mut self, state: State, now: Now, out: Out<'_>) {
        self.enter(state, now, out);
        if let Some((_, failure)) = &self.failure {
            self.detail.clone_from(failure);
        }
    }

    /// How far it is.
    pub fn status(&self) -> ImageStatus {
        ImageStatus {
            build: self.birth.build.clone(),
            image: self.birth.image.clone(),
            version: self.birth.version.clone(),
            node: self.birth.node.clone(),
            vmid: self.vmid(),
            phase: self.state.phase(),
            since: self.since,
            detail: self.detail.clone(),
            failure: self.failure.clone(),
            next: (self.birth.again && self.failure.is_some()).then_some(NextBuild::Again),
            phases: self.phases.clone(),
        }
    }

    fn checked(&mut self, result: Result<Vec<String>, Fault>, now: Now, out: Out<'_>) {
        match result {
            Ok(faults) if faults.is_empty() => {
                let marks = self.marks.as_ref().map(|marks| Marks {
                    agent: self.birth.version.clone(),
                    kind: Kind::Image,
                    ..marks.clone()
                });
                if let Some(marks) = marks {
                    let build = self.birth.build.clone();
                    let sealed = Box::new(marks.clone());
                    out.push(Effect::Record(Body::ImageSealed { build, marks: sealed }));
                    self.sealed = Some(marks);
                }
                self.enter(State::Sealing, now, out);
            }
            Ok(faults) => self.fail(&faults.join("; "), now, out),
            Err(fault) => self.failed(&fault, now, out),
        }
    }

    pub(super) fn built(&mut self, now: Now, out: Out<'_>) {
        self.failure = None;
        out.push(Effect::Record(Body::ImageBuilt { build: self.birth.build.clone() }));
        self.over(State::Done, now, out);
    }

    fn answered(&mut self, answer: Answer, now: Now, out: Out<'_>) {
        match answer {
            Answer::Accepted(result) => self.accepted(result, now, out),
            Answer::TaskEnded(end) => self.task_ended(end, now, out),
            Answer::Located(found) => self.located(found, now, out),
            Answer::Looked(result) => self.looked(result, now, out),
            Answer::Configured(Ok(done)) => {
                if let Some(fault) = done.image_refused {
                    if self.tries == 0 {
                        // Nothing was stored, and no try before it may have stored anything.
                        self.volumes.clear();
                    }
                    return self.fail(&fault.text, now, out);
                }
                (self.mac, self.volumes) = (done.mac, done.volumes);
                let state = match self.installs() {
                    true => State::Installing(Install::Start),
                    false => State::Booting(Boot::Start),
                };
                self.enter(state, now, out);
            }
            Answer::Configured(Err(fault)) => self.failed(&fault, now, out),
            Answer::Ejected(Ok(())) => {
                self.volumes.retain(|volume| !seed::is_image(volume));
                self.enter(State::Booting(Boot::Start), now, out);
            }
            Answer::Ejected(Err(fault)) => self.failed(&fault, now, out),
            Answer::Addressed(result) => self.addressed(result, now, out),
            Answer::HostKeys(result) => self.keys_read(result, now, out),
            Answer::Greeted(result) => self.greeted(result, now, out),
            Answer::Ran(result) => self.ran(result, now, out),
            Answer::Checked(result) => self.checked(result, now, out),
            Answer::Sealed(Ok(())) => self.built(now, out),
            Answer::Sealed(Err(fault)) => self.failed(&fault, now, out),
            Answer::IdSeen(result) => self.removal_went(Came::IdSeen(result), now, out),
            Answer::Leftovers(result) => self.removal_went(Came::Left(result), now, out),
        }
    }

    /// Something is due: a limit, or another try.
    fn woken(&mut self, now: Now, out: Out<'_>) {
        if self.state.phase().is_over() {
            return;
        }
        let removing = matches!(self.state, State::Removing(_));
        let passed = |limit: Option<Moment>| limit.is_some_and(|limit| now.mono >= limit);
        if !removing && (passed(self.deadline) || passed(self.limit)) {
            let last = std::mem::take(&mut self.detail);
            let last = if last.is_empty() { last } else { format!("; last: {last}") };
            let text = format!("it took too long{last}{}", self.how_installers_end());
            return self.fail(&text, now, out);
        }
        if passed(self.retry_at) {
            return self.act(now, out);
        }
        self.arm(out);
    }
}

impl StateMachine for Mind {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, event: Event, now: Now, out: &mut Turn<Effect>) {
        let before = self.status();
        match event {
            Event::Begin => self.begin(now, out),
            Event::Turn => self.turn(now, out),
            Event::Behind(image, build) => self.behind(&image, &build),
            Event::Id(id) => self.id(id, now, out),
            Event::Cancel => self.cancelled(now, out),
            Event::Intended(seq) => {
                if let Some(marks) = &mut self.marks {
                    marks.seq = seq;
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
        if status != before {
            out.push(Effect::Report(Box::new(status)));
        }
        if self.state.phase().is_over() && !before.phase.is_over() {
            out.push(Effect::End);
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
