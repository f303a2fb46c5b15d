//! The mind of a declared machine, played step by step.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test may panic"
)]

mod kept;
mod table;

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_model::declared::{DeclaredSpec, Installer, OnRemoval};
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{
    AgentId, Attempt, ClusterId, DeclaredName, Installation, NodeName, Upid, VmId,
};
use drover_model::image::{Bios, Hardware};
use drover_model::journal_state::JournalState;
use drover_model::marks::{Kind, Marks, Reading};
use drover_model::order::{ConfigValue, MachineView, Work};
use drover_model::phase::{DeclaredPhase, DriftKind, Power};
use drover_model::ports::{Carried, Configured, IdStatus, Listed, Survey, TaskEnd, VmObservation};
use drover_model::record::{Body, RECORD_VERSION, Record};
use drover_model::size::Size;
use drover_model::state_machine::StateMachine as _;
use drover_model::template_image::{Candidate, Found};
use drover_model::testing::{CLUSTER, at, template};
use std::time::Duration;

use super::event::{Answer, Call, Effect, Event};
use super::mind::{Birth, Mind};
use super::state::{Check, Create, Remove, Standing, State, Watch};

pub(super) const ID: &str = "mmmmmmmmmmmmmmmm";

pub(super) fn fault(kind: FaultKind) -> Fault {
    Fault::new(kind, Culprit::Guest, "it went wrong")
}

pub(super) fn upid() -> Upid {
    Upid::new("UPID:pve1:1:")
}

pub(super) fn gitea() -> DeclaredSpec {
    let mut made_like = template("lab/machines.gitea", &[]);
    made_like.node = None;
    made_like.cores = Some(2);
    made_like.memory_mb = Some(2048);
    made_like.disk_gb = Some(20);
    DeclaredSpec {
        name: DeclaredName::new("gitea"),
        template: made_like,
        installer: None,
        power: Power::Running,
        correct: BTreeSet::new(),
        on_removal: OnRemoval::Keep,
    }
}

pub(super) fn correcting(kinds: &[DriftKind]) -> DeclaredSpec {
    DeclaredSpec { correct: kinds.iter().copied().collect(), ..gitea() }
}

fn birth(spec: Option<DeclaredSpec>) -> Birth {
    Birth {
        name: DeclaredName::new("gitea"),
        installation: Installation::new("7k2m9qxw"),
        declared: spec.map(Arc::new),
        epoch: 3,
        incarnation: 0,
    }
}

/// A mind that is played, and its journal.
pub(super) struct Play {
    pub mind: Mind,
    pub journal: JournalState,
    pub seq: u64,
    pub now: u64,
    /// All effects, and those of the last event.
    pub all: Vec<Effect>,
    pub last: Vec<Effect>,
}

impl Play {
    pub fn new(spec: &DeclaredSpec) -> Self {
        let mind = Mind::new(birth(Some(spec.clone())), Arc::new(spec.clone()));
        let journal = JournalState::default();
        let mut play = Self { mind, journal, seq: 76, now: 0, all: Vec::new(), last: Vec::new() };
        play.feed(Event::Begin);
        play
    }

    pub fn feed(&mut self, event: Event) {
        self.last = self.mind.effects_of(event, at(self.now), 0);
        self.all.extend(self.last.clone());
        for effect in self.last.clone() {
            let Effect::Record(body) = effect else { continue };
            self.seq += 1;
            let wall_time = at(self.now).wall;
            let (version, seq, epoch) = (RECORD_VERSION, self.seq, 3);
            self.journal.apply(&Record { version, seq, epoch, wall_time, body: body.clone() });
            if matches!(body, Body::DeclaredIntended { .. }) {
                let more = self.mind.effects_of(Event::Intended(self.seq), at(self.now), 0);
                assert!(more.iter().all(|effect| matches!(effect, Effect::Report(_))));
            }
        }
    }

    /// The service is killed, and begins again with this in its configuration.
    pub fn restart(&mut self, spec: Option<&DeclaredSpec>) {
        let entry = self.journal.declared.values().next().cloned();
        let birth = Birth { epoch: 4, ..birth(spec.cloned()) };
        self.mind = match entry {
            Some(entry) => Mind::adopt(birth, &entry),
            None => Mind::new(birth, Arc::new(spec.unwrap().clone())),
        };
        self.feed(Event::Begin);
    }

    /// The call that was made by the last event.
    pub fn asked(&self) -> Option<(Attempt, Call)> {
        let mut asks = self.last.iter().filter_map(|effect| match effect {
            Effect::Ask(attempt, call) => Some((*attempt, call.clone())),
            _ => None,
        });
        asks.next_back()
    }

    /// The call whose answer is waited for.
    pub fn call(&self) -> Option<Call> {
        let asks = self.all.iter().rev().find_map(|effect| match effect {
            Effect::Ask(attempt, call) => Some((*attempt, call.clone())),
            _ => None,
        });
        asks.filter(|(attempt, _)| self.mind.awaits(*attempt)).map(|(_, call)| call)
    }

    pub fn answer(&mut self, answer: Answer) {
        let asked = self.all.iter().rev().find_map(|effect| match effect {
            Effect::Ask(attempt, _) => Some(*attempt),
            _ => None,
        });
        self.feed(Event::Answer(asked.unwrap(), answer));
    }

    /// Lets the last alarm ring.
    pub fn ring(&mut self) {
        let alarm = self.all.iter().rev().find_map(|effect| match effect {
            Effect::WakeAt(attempt, at) => Some((*attempt, *at)),
            _ => None,
        });
        let (attempt, moment) = alarm.unwrap();
        self.now = self.now.max(moment.0.div_ceil(1000));
        self.feed(Event::Wake(attempt));
    }

    pub fn phase(&self) -> DeclaredPhase {
        self.mind.phase()
    }

    pub fn detail(&self) -> String {
        self.mind.status().detail
    }

    /// The names of all records so far.
    pub fn bodies(&self) -> Vec<String> {
        let name = |effect: &Effect| match effect {
            Effect::Record(body) => {
                let text = format!("{body:?}");
                Some(text.split([' ', '(']).next().unwrap().to_owned())
            }
            _ => None,
        };
        self.all.iter().filter_map(name).collect()
    }

    pub fn marks(&self) -> Marks {
        self.mind.guest().unwrap().marks.clone()
    }

    /// The next thing goes well.
    pub fn well(&mut self) {
        match self.mind.state().clone() {
            State::Checking(Check::Cluster) => {
                return self.feed(Event::Cluster(Ok(ClusterId::new(CLUSTER))));
            }
            State::Creating(Create::Id) => {
                return self.feed(Event::Id(Ok((VmId(10_000), AgentId::new(ID)))));
            }
            State::Waiting | State::Blocked | State::Resting(_, Watch::Pause) | State::Leaving => {
                return self.ring();
            }
            _ => {}
        }
        match self.call().unwrap() {
            Call::Survey => self.answer(Answer::Surveyed(Ok(survey(Vec::new())))),
            Call::LookAt(..) => self.answer(Answer::Looked(Ok(free()))),
            Call::Locate => self.answer(Answer::Located(Ok(found("pve1")))),
            Call::Clone | Call::Stop | Call::Destroy => {
                self.answer(Answer::Accepted(Ok(Some(upid()))));
            }
            Call::Await(..) => {
                self.answer(Answer::TaskEnded(Ok(TaskEnd::Done { warnings: Vec::new() })));
            }
            Call::Look => self.answer(Answer::Looked(Ok(seen(&self.marks(), true)))),
            Call::Configure => self.answer(Answer::Configured(Ok(configured()))),
            Call::Describe => self.answer(Answer::Described(Ok(Box::new(view(Power::Running))))),
            Call::Order(_) => self.answer(done()),
            Call::Fence => self.answer(Answer::Accepted(Ok(None))),
            Call::IdTaken => self.answer(Answer::IdSeen(Ok(IdStatus::Free))),
            Call::Leftovers => self.answer(Answer::Leftovers(Ok(Vec::new()))),
        }
    }

    /// Lets all go well until this state.
    pub fn up_to(&mut self, wanted: &State) {
        for _ in 0..40 {
            if self.mind.state() == wanted {
                return;
            }
            self.well();
        }
        panic!("{wanted:?} is not reached from {:?}", self.mind.state());
    }

    pub fn kept(spec: &DeclaredSpec) -> Self {
        let mut play = Self::new(spec);
        play.up_to(&State::Resting(Standing::Kept, Watch::Pause));
        play
    }

    /// The next look shows this.
    pub fn shows(&mut self, view: MachineView) {
        if *self.mind.state() == State::Resting(Standing::Kept, Watch::Pause) {
            self.ring();
        }
        self.answer(Answer::Described(Ok(Box::new(view))));
    }

    /// One round in which the guest is gone.
    pub fn gone_round(&mut self) {
        self.ring();
        assert_eq!(self.call(), Some(Call::Describe));
        self.answer(Answer::Described(Err(fault(FaultKind::Gone))));
        self.answer(Answer::Looked(Ok(free())));
        assert_eq!(self.call(), Some(Call::Survey));
        self.answer(Answer::Surveyed(Ok(survey(Vec::new()))));
    }
}

pub(super) fn done() -> Answer {
    Answer::Carried(Ok(Carried {
        power: Power::Running,
        sent: true,
        snapshot_taken: None,
        outcome: Ok(String::new()),
    }))
}

pub(super) fn configured() -> Configured {
    Configured {
        volumes: vec!["thin:vm-10000-disk-0".into()],
        mac: None,
        tags_refused: None,
        image_refused: None,
    }
}

pub(super) fn survey(guests: Vec<Listed>) -> Survey {
    Survey { guests, nodes: Vec::new(), quorate: true, age: Duration::ZERO }
}

pub(super) fn listed(vmid: u32, name: &str) -> Listed {
    Listed {
        vmid: VmId(vmid),
        node: NodeName::new("pve1"),
        name: Some(name.to_owned()),
        tags: Vec::new(),
        lock: None,
        status: "running".into(),
        template: false,
        container: false,
    }
}

pub(super) fn found(node: &str) -> Found {
    let candidate = Candidate {
        vmid: VmId(9000),
        node: NodeName::new(node),
        name: "base".into(),
        created: Some(1),
        storages: BTreeSet::new(),
        digest: "d".into(),
        sizes: drover_model::placement::Sizes::default(),
    };
    Found { candidates: vec![candidate], ..Found::default() }
}

pub(super) fn seen(marks: &Marks, running: bool) -> VmObservation {
    VmObservation {
        id: IdStatus::Taken,
        node: Some(NodeName::new("pve1")),
        marks: Some(Reading::Marked(Box::new(marks.clone()))),
        lock: None,
        running: Some(running),
    }
}

pub(super) fn unmarked(lock: Option<&str>) -> VmObservation {
    VmObservation {
        id: IdStatus::Taken,
        node: Some(NodeName::new("pve1")),
        marks: Some(Reading::Unmarked),
        lock: lock.map(str::to_owned),
        running: Some(false),
    }
}

pub(super) fn free() -> VmObservation {
    VmObservation { id: IdStatus::Free, node: None, marks: None, lock: None, running: None }
}

pub(super) fn view(power: Power) -> MachineView {
    let value = |key: &str, now: &str| ConfigValue {
        key: key.into(),
        value: Some(now.into()),
        pending: None,
        deleted: false,
    };
    MachineView {
        node: NodeName::new("pve1"),
        vmid: VmId(10_000),
        power,
        word: power.name().into(),
        lock: None,
        uptime_secs: 5,
        cpu: None,
        cpus: None,
        memory_used: None,
        memory: None,
        addresses: vec!["10.0.0.5".parse().unwrap()],
        no_address: None,
        console_url: String::new(),
        config: vec![value("cores", "2"), value("memory", "2048")],
        given: Vec::new(),
        disk: Some(20 << 30),
        snapshots: Vec::new(),
        parent: None,
    }
}

// Invariant: a machine is made once, each intent is durable before its call, and marks say whose it is.

#[test]
fn a_machine_is_cloned_configured_and_started_and_each_intent_comes_first() {
    let mut play = Play::new(&gitea());
    let mut phases = vec![play.phase()];
    while *play.mind.state() != State::Resting(Standing::Kept, Watch::Pause) {
        play.well();
        if phases.last() != Some(&play.phase()) {
            phases.push(play.phase());
        }
    }
    let way = [
        DeclaredPhase::Waiting,
        DeclaredPhase::Creating,
        DeclaredPhase::Configuring,
        DeclaredPhase::Starting,
        DeclaredPhase::Kept,
    ];
    assert_eq!(phases, way);
    assert_eq!(play.bodies(), ["DeclaredIntended", "DeclaredMade"]);
    let marks = play.marks();
    assert_eq!((marks.kind, &*marks.template, marks.seq), (Kind::Machine, "gitea", 77));
    assert_eq!(marks.name(""), format!("gitea-7k2m9qxw-{ID}"));
    let place = |wanted: &dyn Fn(&Effect) -> bool| play.all.iter().position(wanted).unwrap();
    let intent = place(&|effect| matches!(effect, Effect::Record(Body::DeclaredIntended { .. })));
    let clone = place(&|effect| matches!(effect, Effect::Ask(_, Call::Clone)));
    assert!(intent < clone);
    assert_eq!(play.mind.status().addresses, view(Power::Running).addresses);
}

#[test]
fn a_machine_of_an_iso_looks_for_no_template_image() {
    let installer = Installer {
        iso: "local:iso/a.iso".into(),
        storage: "nfs".into(),
        disk_gb: 20,
        hardware: Hardware {
            machine: "q35".into(),
            bios: Bios::Ovmf,
            cpu: "host".into(),
            scsi: "virtio-scsi-single".into(),
            serial: false,
            os_type: "l26".into(),
            bridge: "vmbr0".into(),
            vlan: None,
        },
    };
    let mut spec = DeclaredSpec { installer: Some(installer), ..gitea() };
    spec.template.node = Some(NodeName::new("pve1"));
    let mut play = Play::new(&spec);
    play.up_to(&State::Resting(Standing::Kept, Watch::Pause));
    assert!(!play.all.iter().any(|one| matches!(one, Effect::Ask(_, Call::Locate))));
    assert_eq!((play.mind.guest().unwrap().source, play.mind.status().source), (VmId(0), None));
}

#[test]
fn a_herd_that_answers_nothing_is_asked_again() {
    let mut play = Play::new(&gitea());
    play.ring();
    assert!(play.last.contains(&Effect::WantCluster));
    play.up_to(&State::Creating(Create::Id));
    play.ring();
    assert_eq!((play.phase(), play.journal.declared.len()), (DeclaredPhase::Waiting, 0));
    // An id that comes late is given back.
    play.feed(Event::Id(Ok((VmId(10_000), AgentId::new(ID)))));
    assert!(play.last.contains(&Effect::IdBack { vmid: VmId(10_000), burned: false }));
    play.up_to(&State::Resting(Standing::Kept, Watch::Pause));
}

#[test]
fn a_machine_that_is_declared_stopped_is_never_started() {
    let spec = DeclaredSpec { power: Power::Stopped, ..gitea() };
    let mut play = Play::new(&spec);
    play.up_to(&State::Resting(Standing::Kept, Watch::Describe));
    play.shows(view(Power::Stopped));
    assert_eq!(kept::drift(&play), Vec::<String>::new());
    assert!(!play.all.iter().any(|one| matches!(one, Effect::Ask(_, Call::Order(_)))));
}

#[test]
fn after_a_crash_at_any_step_one_guest_is_made_and_no_other() {
    let mut steps = 0;
    loop {
        let mut play = Play::new(&gitea());
        for _ in 0..steps {
            play.well();
        }
        let whole = *play.mind.state() == State::Resting(Standing::Kept, Watch::Pause);
        // Whether the clone reached the cluster, which a crash does not undo.
        let asked = play.all.iter().any(|one| matches!(one, Effect::Ask(_, Call::Clone)));
        play.restart(Some(&gitea()));
        if asked {
            let clones = |play: &Play| {
                play.all.iter().filter(|one| matches!(one, Effect::Ask(_, Call::Clone))).count()
            };
            let before = clones(&play);
            play.up_to(&State::Resting(Standing::Kept, Watch::Pause));
            assert_eq!(clones(&play), before, "after {steps} steps");
        } else if !play.journal.declared.is_empty() {
            // It was intended and never asked for.
            panic!("a clone follows its intent at once");
        } else {
            play.up_to(&State::Resting(Standing::Kept, Watch::Pause));
        }
        assert_eq!(play.journal.declared.len(), 1, "after {steps} steps");
        assert!(play.journal.declared.values().all(|entry| entry.made));
        if whole {
            return;
        }
        steps += 1;
    }
}

#[test]
fn a_clone_that_never_came_to_be_is_let_go_only_when_it_can_come_no_more() {
    let mut play = Play::new(&gitea());
    play.up_to(&State::Creating(Create::Call));
    play.restart(Some(&gitea()));
    for _ in 0..3 {
        play.answer(Answer::Looked(Ok(free())));
        assert_eq!(play.phase(), DeclaredPhase::Creating);
        play.ring();
    }
    play.now += 200;
    play.answer(Answer::Looked(Ok(free())));
    assert_eq!(play.phase(), DeclaredPhase::Waiting);
    assert!(play.journal.declared.is_empty());
    assert!(play.last.contains(&Effect::IdBack { vmid: VmId(10_000), burned: false }));
    play.up_to(&State::Resting(Standing::Kept, Watch::Pause));
}

#[test]
fn a_making_that_fails_is_tried_again_after_a_pause_that_grows_and_says_why() {
    let mut play = Play::new(&gitea());
    let mut pauses = Vec::new();
    for _ in 0..9 {
        play.up_to(&State::Creating(Create::Locate));
        let before = play.now;
        play.answer(Answer::Located(Ok(Found::default())));
        assert_eq!(play.phase(), DeclaredPhase::Waiting);
        assert!(play.detail().contains("no template image has VMID 9000"), "{}", play.detail());
        play.ring();
        pauses.push(play.now - before);
    }
    assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
}

#[test]
fn a_template_image_that_the_declared_node_cannot_reach_makes_nothing() {
    let mut spec = gitea();
    spec.template.node = Some(NodeName::new("pve2"));
    let mut play = Play::new(&spec);
    play.up_to(&State::Creating(Create::Locate));
    play.answer(Answer::Located(Ok(found("pve1"))));
    assert!(play.detail().contains("that node `pve2` reaches"), "{}", play.detail());
    assert!(play.bodies().is_empty());
}

// Invariant: what drover did not make for this machine is never touched, and no second one is made.

#[test]
fn a_guest_of_the_same_name_blocks_the_machine_until_it_is_gone() {
    let mut play = Play::new(&gitea());
    play.up_to(&State::Checking(Check::List));
    play.answer(Answer::Surveyed(Ok(survey(vec![listed(105, "gitea")]))));
    assert_eq!(play.phase(), DeclaredPhase::Blocked);
    let detail = play.detail();
    assert!(detail.starts_with("guest 105 on pve1 is called `gitea`"), "{detail}");
    assert!(play.bodies().is_empty());
    play.ring();
    play.up_to(&State::Checking(Check::List));
    play.answer(Answer::Surveyed(Ok(survey(vec![listed(105, "gitea-old")]))));
    assert_eq!(play.call(), Some(Call::Locate));
}

#[test]
fn a_machine_of_this_name_that_no_record_knows_blocks_it_and_an_agent_does_not() {
    for (kind, installation, blocks) in [
        (Kind::Machine, "7k2m9qxw", true),
        (Kind::Machine, "8zzzzzzz", true),
        (Kind::Agent, "7k2m9qxw", false),
    ] {
        let mut play = Play::new(&gitea());
        play.up_to(&State::Checking(Check::List));
        let name = format!("gitea-{installation}-{ID}");
        play.answer(Answer::Surveyed(Ok(survey(vec![listed(120, &name)]))));
        assert_eq!(play.call(), Some(Call::LookAt(VmId(120), NodeName::new("pve1"))));
        let marks = Marks {
            kind,
            installation: Installation::new(installation),
            template: "gitea".into(),
            ..drover_model::testing::marks(ID, 120)
        };
        play.answer(Answer::Looked(Ok(seen(&marks, true))));
        let blocked = play.phase() == DeclaredPhase::Blocked;
        assert_eq!(blocked, blocks, "{kind:?} of {installation}: {}", play.detail());
    }
}

#[test]
fn a_guest_that_cannot_be_read_and_a_list_without_quorum_make_nothing() {
    let mut play = Play::new(&gitea());
    play.up_to(&State::Checking(Check::List));
    play.answer(Answer::Surveyed(Ok(Survey { quorate: false, ..survey(Vec::new()) })));
    assert_eq!(*play.mind.state(), State::Checking(Check::List));
    play.ring();
    let name = format!("gitea-8zzzzzzz-{ID}");
    play.answer(Answer::Surveyed(Ok(survey(vec![listed(120, &name)]))));
    play.answer(Answer::Looked(Ok(VmObservation { marks: None, ..unmarked(None) })));
    assert!(matches!(play.mind.state(), State::Checking(Check::Look(_))));
    assert!(play.bodies().is_empty());
}

#[test]
fn a_vmid_that_somebody_took_is_burned_and_another_one_is_asked_for() {
    let mut play = Play::new(&gitea());
    play.up_to(&State::Creating(Create::Call));
    play.answer(Answer::Accepted(Err(fault(FaultKind::IdTaken))));
    assert!(play.last.contains(&Effect::WantId(Some(VmId(10_000)))));
    assert!(play.last.contains(&Effect::IdBack { vmid: VmId(10_000), burned: true }));
    assert!(play.journal.declared.is_empty());
}

#[test]
fn a_guest_whose_marks_are_others_is_shown_as_foreign_and_nothing_is_asked_of_it() {
    let mut play = Play::kept(&correcting(&[DriftKind::Create, DriftKind::Power]));
    play.ring();
    play.answer(Answer::Described(Err(fault(FaultKind::Foreign))));
    play.answer(Answer::Looked(Ok(unmarked(None))));
    assert_eq!(play.phase(), DeclaredPhase::Foreign);
    assert!(play.detail().contains("drover leaves it alone"), "{}", play.detail());
    let before = play.all.len();
    for _ in 0..4 {
        play.ring();
        play.answer(Answer::Described(Err(fault(FaultKind::Foreign))));
        play.answer(Answer::Looked(Ok(unmarked(None))));
    }
    let changed = |one: &Effect| matches!(one, Effect::Ask(_, call) if call.changes());
    assert!(!play.all[before..].iter().any(changed));
    assert_eq!(play.bodies(), ["DeclaredIntended", "DeclaredMade"]);
}
