//! Fixtures of the agent's tests: a template, a guest's marks, and a mind that the test drives.

#![expect(
    clippy::wildcard_enum_match_arm,
    clippy::expect_used,
    reason = "fixtures pick what they need"
)]

use std::sync::Arc;
use std::time::Duration;

use drover_model::demand::words::{Life, Words};
use drover_model::fact::What;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{AgentId, Attempt, ClusterId, Installation, LeaseId, NodeName, Upid, VmId};
use drover_model::journal_state::JournalState;
use drover_model::marks::{Marks, Reading};
use drover_model::phase::{AgentPhase, Power};
use drover_model::ports::{
    AddressObservation, Carried, Configured, IdStatus, Ran, Snapped, TaskEnd, VmObservation,
};
use drover_model::record::{Body, Hold, LeaseAsk, Record, Want};
use drover_model::spec::{LimitSpec, ResetKind, StepSpec, StepWork, TemplateSpec, UploadSpec};
use drover_model::state_machine::StateMachine as _;
use drover_model::time::{Moment, Now, WallTime};

use crate::agent::event::{Answer, Call, Effect, Event};
use crate::agent::mind::Mind;
use crate::message::{AgentCommand, AgentReport};
use crate::testing;

pub const ADDRESS: &str = "10.0.0.5";
pub const WALL: i64 = 1_795_249_862_000;

pub fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub fn spec() -> TemplateSpec {
    let plain = testing::template("primary/linux", &["linux"]);
    TemplateSpec {
        node: None,
        remote_fs: "/home/ci/it's work".into(),
        idle: Some(secs(600)),
        steps: vec![upload()],
        ready_command: Some("true".into()),
        limits: LimitSpec {
            queue: secs(300),
            operation: secs(120),
            clone: secs(600),
            startup: secs(180),
            shutdown: Duration::ZERO,
            retire: secs(300),
            lifetime: Some(secs(86_400)),
            ..plain.limits
        },
        ..plain
    }
}

/// A template whose used guests return to a snapshot of their disks.
pub fn reset_spec() -> TemplateSpec {
    TemplateSpec { reset: Some(ResetKind::Disk), ..spec() }
}

/// A step that uploads a file into the guest.
pub fn upload() -> StepSpec {
    let upload = UploadSpec {
        from: "ci.conf".into(),
        to: "ci.conf".into(),
        mode: 0o644,
        sha256: "00".repeat(32),
    };
    StepSpec { name: "ci.conf".into(), work: StepWork::Upload(upload), timeout: secs(60) }
}

pub fn agent_id() -> AgentId {
    AgentId::new("4f8z1c3px9t2vkab")
}

pub fn installation() -> Installation {
    Installation::new("7k2m9qxw")
}

pub fn fault(kind: FaultKind) -> Fault {
    let text = format!("a planned {}", kind.label());
    Fault::new(kind, Culprit::Template, text)
}

pub fn ask(lease: &str, key: Option<&str>) -> LeaseAsk {
    LeaseAsk {
        lease: LeaseId::new(lease),
        want: Want::Template("linux".into()),
        principal: "alice".into(),
        owner: "build 7".into(),
        ttl_ms: 3_600_000,
        public_key: key.map(str::to_owned),
        key_hash: None,
        body_hash: "00".into(),
        asked: WallTime(WALL),
        source: None,
        whole: false,
        user_data: false,
        group: None,
        wait_ms: None,
    }
}

pub fn a_hold() -> Hold {
    Hold { span_ms: 1_800_000, public_key: "ssh-ed25519 OPERATOR".into(), owner: None }
}

pub fn upid(kind: &str) -> Upid {
    Upid::new(format!("UPID:n1:0000:0000:0000:{kind}:1:u@pve:"))
}

/// A mind that the test drives, with all effects so far.
#[derive(Clone)]
pub struct Drive {
    pub mind: Mind,
    pub now: Now,
    pub effects: Vec<Effect>,
    /// The random bits of every step.
    pub draw: u64,
    seq: u64,
    pub journal_state: JournalState,
    /// How probes of SSH fail. `None`: they succeed.
    pub silent: Option<FaultKind>,
    pub probes: usize,
}

impl Drive {
    pub fn new(spec: TemplateSpec) -> Self {
        let now = Now { mono: Moment(1000), wall: WallTime(WALL) };
        let mind = Mind::new(agent_id(), installation(), Arc::new(spec), 1, 0, now);
        Self::of(mind, now, JournalState::default())
    }

    pub fn of(mind: Mind, now: Now, journal_state: JournalState) -> Self {
        let mut drive = Self {
            mind,
            now,
            effects: Vec::new(),
            draw: 0,
            seq: 100,
            journal_state,
            silent: None,
            probes: 0,
        };
        drive.event(Event::Begin);
        drive
    }

    /// A new mind from what the journal knows, as after a restart of the service.
    pub fn adopt(&self, down: Duration) -> Self {
        let now = Now { mono: Moment(500), wall: self.now.wall + down };
        let entry = self.journal_state.agents[&agent_id()].clone();
        Self::of(Mind::adopt(&entry, down, 2, 0, now), now, self.journal_state.clone())
    }

    /// Steps the mind. Records get sequences and are folded; intents are reported back.
    pub fn event(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = self.mind.effects_of(event, self.now, self.draw);
        let probe = |effect: &Effect| match effect {
            Effect::Ask(attempt, Call::Probe(..)) => Some(*attempt),
            _ => None,
        };
        let probed: Vec<Attempt> = effects.iter().filter_map(probe).collect();
        effects.retain(|effect| probe(effect).is_none());
        self.effects.extend(effects.iter().cloned());
        for effect in &effects {
            if let Effect::Record(body) = effect {
                self.fold(body.clone());
            }
        }
        for attempt in probed {
            self.probes += 1;
            let answer = self.silent.clone().map_or(Ok(()), |kind| Err(fault(kind)));
            effects.extend(self.event(Event::Answer(attempt, Answer::Probed(answer))));
        }
        effects
    }

    /// Appends a record that the mind did not write in this run.
    pub fn record(&mut self, body: Body) {
        self.fold(body);
    }

    fn fold(&mut self, body: Body) {
        self.seq += 1;
        let seq = self.seq;
        let intent = matches!(body, Body::CloneIntended { .. });
        self.journal_state.apply(&Record {
            version: 1,
            seq,
            epoch: 1,
            wall_time: self.now.wall,
            body,
        });
        if intent {
            self.event(Event::Intended { seq });
        }
    }

    pub fn command(&mut self, command: AgentCommand) -> Vec<Effect> {
        self.event(Event::Command(command))
    }

    pub fn grant(&mut self) -> Vec<Effect> {
        self.command(AgentCommand::Granted {
            vmid: VmId(10_417),
            node: NodeName::new("n1"),
            cluster: ClusterId::new("9f31c0aa52e7d410"),
            spec: None,
        })
    }

    /// An operator holds the agent: the record comes first.
    pub fn be_held(&mut self) {
        let hold = Some(Box::new(a_hold()));
        self.record(Body::HoldSet {
            agent: agent_id(),
            hold: hold.clone(),
            until: None,
            next: None,
            why: None,
        });
        self.command(AgentCommand::Hold(hold));
    }

    pub fn asked(&self) -> Option<(Attempt, Call)> {
        self.effects.iter().rev().find_map(|effect| match effect {
            Effect::Ask(attempt, call) if self.mind.awaits(*attempt) => {
                Some((*attempt, call.clone()))
            }
            _ => None,
        })
    }

    /// Answers the call that the mind waits for.
    pub fn answer(&mut self, answer: Answer) -> Vec<Effect> {
        let (attempt, _) = self.asked().expect("no call is waited for");
        self.event(Event::Answer(attempt, answer))
    }

    /// Answers calls as a cluster without faults does, until `state` is reached.
    pub fn go_to(&mut self, state: AgentPhase) {
        for _ in 0..60 {
            if self.state() == state {
                return;
            }
            match self.asked() {
                Some((attempt, call)) => {
                    let answer = self.fair_answer(call);
                    self.event(Event::Answer(attempt, answer));
                }
                None if self.state() == AgentPhase::Queued => {
                    self.grant();
                }
                None => self.wait(secs(1)),
            }
        }
        panic!("{state} was not reached, but {}", self.state());
    }

    pub fn fair_answer(&self, call: Call) -> Answer {
        let done = TaskEnd::Done { warnings: Vec::new() };
        match call {
            Call::Clone { .. } => Answer::Cloned(Ok(upid("qmclone"))),
            Call::Await(..) => Answer::TaskEnded(Ok(done)),
            Call::Look | Call::Confirm => Answer::Looked(Ok(self.observation())),
            Call::IdTaken => Answer::IdSeen(Ok(IdStatus::Free)),
            Call::Configure => Answer::Configured(Ok(Configured {
                image_refused: None,
                volumes: vec!["local:vm-10417-disk-0".into()],
                mac: None,
                tags_refused: None,
            })),
            Call::Start => Answer::Accepted(Ok(upid("qmstart"))),
            Call::Address => {
                Answer::Addressed(Ok(AddressObservation::At(ADDRESS.parse().expect("an address"))))
            }
            Call::HostKeys => Answer::HostKeys(Ok(vec!["ssh-ed25519 HOST".into()])),
            Call::Snapshot => Answer::Snapped(Ok(Snapped::Taken)),
            Call::Rollback => Answer::RolledBack(Ok(())),
            Call::Order { work, .. } => {
                let power = work.leaves(Power::Running);
                Answer::Ordered(Ok(Carried {
                    power,
                    sent: true,
                    snapshot_taken: None,
                    outcome: Ok(String::new()),
                }))
            }
            Call::Greet(..) => Answer::Greeted(Ok("ssh-ed25519 HOST".into())),
            Call::Probe(..) => Answer::Probed(Ok(())),
            Call::Run(..) | Call::Upload(..) => {
                Answer::Ran(Ok(Ran { exit: Some(0), tail: String::new() }))
            }
            Call::Admit(_, lease, _) => Answer::Admitted(lease, Ok(())),
            Call::Expel(_, lease, ..) => Answer::Expelled(lease, Ok(())),
            Call::Words(_, lease, _) => Answer::Words(
                lease,
                Ok(Words { life: Life::Runs, seconds: 2, ago: 0, lines: "".into(), too_old: None }),
            ),
            Call::Unlock(..) => Answer::Unlocked(Ok(())),
            Call::Fence => Answer::Fenced(Ok(self.observation())),
            Call::Shutdown(_) => Answer::Accepted(Ok(upid("qmshutdown"))),
            Call::Stop => Answer::Accepted(Ok(upid("qmstop"))),
            Call::Destroy => Answer::Accepted(Ok(upid("qmdestroy"))),
            Call::Leftovers => Answer::Leftovers(Ok(Vec::new())),
        }
    }

    /// The guest exists, is ours and runs.
    pub fn observation(&self) -> VmObservation {
        VmObservation {
            id: IdStatus::Taken,
            node: Some(NodeName::new("n1")),
            marks: self.mind.guest().map(|g| Reading::Marked(Box::new(g.marks.clone()))),
            lock: None,
            running: Some(true),
        }
    }

    pub fn free() -> VmObservation {
        VmObservation { id: IdStatus::Free, node: None, marks: None, lock: None, running: None }
    }

    pub fn strangers(&self) -> VmObservation {
        let marks = self.mind.guest().map(|guest| {
            let agent = AgentId::new("0000000000000000");
            Reading::Marked(Box::new(Marks { agent, ..guest.marks.clone() }))
        });
        VmObservation { marks, ..self.observation() }
    }

    pub fn damaged(&self) -> VmObservation {
        VmObservation { marks: Some(Reading::Damaged("no block".into())), ..self.observation() }
    }

    /// Lets time pass and wakes the mind whenever a timer is due.
    pub fn wait(&mut self, span: Duration) {
        let end = self.now.mono + span;
        while let Some((attempt, at)) = self.wake().filter(|(_, at)| *at <= end) {
            self.pass(at - self.now.mono);
            self.event(Event::Wake(attempt));
        }
        self.pass(end - self.now.mono);
    }

    /// Lets time pass without any event. A timer that was due by then fires at its end.
    pub fn pause(&mut self, span: Duration) {
        self.pass(span);
        if let Some((attempt, _)) = self.wake().filter(|(_, at)| *at <= self.now.mono) {
            self.event(Event::Wake(attempt));
        }
    }

    fn pass(&mut self, span: Duration) {
        self.now = Now { mono: self.now.mono + span, wall: self.now.wall + span };
    }

    pub fn wake(&self) -> Option<(Attempt, Moment)> {
        self.mind.timers.wake()
    }

    pub fn state(&self) -> AgentPhase {
        self.mind.state().phase()
    }

    pub fn calls(&self) -> Vec<Call> {
        calls(&self.effects)
    }

    pub fn records(&self) -> Vec<&Body> {
        self.effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Record(body) => Some(body),
                _ => None,
            })
            .collect()
    }

    pub fn reports(&self) -> Vec<&AgentReport> {
        self.effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Report(report) => Some(&**report),
                _ => None,
            })
            .collect()
    }

    pub fn facts(&self) -> Vec<&What> {
        self.effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Observe(what) => Some(&**what),
                _ => None,
            })
            .collect()
    }
}

pub fn calls(effects: &[Effect]) -> Vec<Call> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Ask(_, call) => Some(call.clone()),
            _ => None,
        })
        .collect()
}

/// Every answer that this call may get, with its name.
pub fn answers(drive: &Drive, call: &Call) -> Vec<(&'static str, Answer)> {
    let kinds = [
        ("Contention", FaultKind::Contention),
        ("Locked", FaultKind::Locked { lock: "backup".into() }),
        ("Unreachable", FaultKind::Unreachable),
        ("UnknownOutcome", FaultKind::UnknownOutcome),
        ("Denied", FaultKind::Denied { privilege: None, path: None }),
        ("Gone", FaultKind::Gone),
        ("IdTaken", FaultKind::IdTaken),
        ("Capacity", FaultKind::Capacity),
        ("Foreign", FaultKind::Foreign),
        ("KeyRejected", FaultKind::KeyRejected),
        ("Impostor", FaultKind::Impostor),
        ("Broken", FaultKind::Broken),
    ];
    let mut all = vec![("ok", drive.fair_answer(call.clone()))];
    match call {
        Call::Look | Call::Confirm => {
            let stopped = VmObservation { running: Some(false), ..drive.observation() };
            let unknown = VmObservation { id: IdStatus::Unknown, ..Drive::free() };
            all.push(("ours, stopped", Answer::Looked(Ok(stopped))));
            all.push(("free", Answer::Looked(Ok(Drive::free()))));
            all.push(("a stranger's", Answer::Looked(Ok(drive.strangers()))));
            all.push(("damaged", Answer::Looked(Ok(drive.damaged()))));
            all.push(("no evidence", Answer::Looked(Ok(unknown))));
        }
        Call::Await(..) => {
            let failed = TaskEnd::Failed(fault(FaultKind::Broken));
            let unknown = TaskEnd::Unknown("unexpected status".into());
            let warnings = vec!["Could not remove disk".to_owned()];
            all.push(("failed", Answer::TaskEnded(Ok(failed))));
            all.push(("unknown end", Answer::TaskEnded(Ok(unknown))));
            all.push(("warnings", Answer::TaskEnded(Ok(TaskEnd::Done { warnings }))));
        }
        Call::IdTaken => {
            all.push(("taken", Answer::IdSeen(Ok(IdStatus::Taken))));
            all.push(("no evidence", Answer::IdSeen(Ok(IdStatus::Unknown))));
        }
        Call::Address => {
            let not_yet = AddressObservation::NotYet("no agent".into());
            all.push(("not yet", Answer::Addressed(Ok(not_yet))));
        }
        Call::Snapshot => {
            let impossible = Snapped::Impossible("there are none".into());
            all.push(("impossible", Answer::Snapped(Ok(impossible))));
        }
        Call::HostKeys => all.push(("none", Answer::HostKeys(Ok(Vec::new())))),
        Call::Leftovers => {
            let left = vec!["nfs:vm-10417-disk-0".to_owned()];
            all.push(("remains", Answer::Leftovers(Ok(left))));
        }
        Call::Run(..) | Call::Upload(..) => {
            let ran = Ran { exit: Some(1), tail: "no".into() };
            all.push(("exit 1", Answer::Ran(Ok(ran))));
        }
        _ => {}
    }
    for (name, kind) in kinds {
        all.push((name, refused(call, fault(kind))));
    }
    all
}

/// The answer of a call that failed with this fault.
pub fn refused(call: &Call, fault: Fault) -> Answer {
    match call {
        Call::Clone { .. } => Answer::Cloned(Err(fault)),
        Call::Await(..) => Answer::TaskEnded(Err(fault)),
        Call::Look | Call::Confirm => Answer::Looked(Err(fault)),
        Call::IdTaken => Answer::IdSeen(Err(fault)),
        Call::Configure => Answer::Configured(Err(fault)),
        Call::Start | Call::Shutdown(_) | Call::Stop | Call::Destroy => {
            Answer::Accepted(Err(fault))
        }
        Call::Address => Answer::Addressed(Err(fault)),
        Call::HostKeys => Answer::HostKeys(Err(fault)),
        Call::Snapshot => Answer::Snapped(Err(fault)),
        Call::Rollback => Answer::RolledBack(Err(fault)),
        Call::Order { .. } => {
            let power = Power::Running;
            Answer::Ordered(Ok(Carried {
                power,
                sent: false,
                snapshot_taken: None,
                outcome: Err(fault),
            }))
        }
        Call::Greet(..) => Answer::Greeted(Err(fault)),
        Call::Probe(..) => Answer::Probed(Err(fault)),
        Call::Run(..) | Call::Upload(..) => Answer::Ran(Err(fault)),
        Call::Admit(_, lease, _) => Answer::Admitted(lease.clone(), Err(fault)),
        Call::Expel(_, lease, ..) => Answer::Expelled(lease.clone(), Err(fault)),
        Call::Words(_, lease, _) => Answer::Words(lease.clone(), Err(fault)),
        Call::Unlock(..) => Answer::Unlocked(Err(fault)),
        Call::Fence => Answer::Fenced(Err(fault)),
        Call::Leftovers => Answer::Leftovers(Err(fault)),
    }
}
