//! The mind of a build, played step by step.
#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may panic, and picks what it needs"
)]

mod ends;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{AgentId, ClusterId, Installation, NodeName, Upid, VmId};
use drover_model::image::{ImageSource, ImageSpec, IsoImage, Recipe};
use drover_model::marks::{Marks, Reading};
use drover_model::phase::ImagePhase;
use drover_model::ports::{AddressObservation, Configured, IdStatus, Ran, TaskEnd, VmObservation};
use drover_model::record::Body;
use drover_model::state_machine::StateMachine as _;
use drover_model::template_image::{Candidate, Found, Sought};
use drover_model::testing::{CLUSTER, at, image};

use super::event::{Answer, Call, Effect, Event};
use super::mind::{Birth, Mind};
use super::state::State;

pub(super) const MAC: &str = "BC:24:11:00:00:01";

/// A mind and everything it wanted.
pub(super) struct Play {
    pub mind: Mind,
    /// Seconds since the start.
    pub now: u64,
    /// Effects of the last event.
    pub last: Vec<Effect>,
    pub all: Vec<Effect>,
}

pub(super) fn birth(spec: &ImageSpec) -> Birth {
    let recipe = Recipe::new(spec, &BTreeMap::new()).unwrap();
    Birth {
        build: AgentId::new("bbbbbbbbbbbbbbbb"),
        installation: Installation::new("7k2m9qxw"),
        cluster: ClusterId::new(CLUSTER),
        image: spec.id.clone(),
        version: recipe.version(),
        node: NodeName::new("pve1"),
        recipe: Some(Arc::new(recipe)),
        again: false,
        epoch: 1,
        incarnation: 0,
    }
}

pub(super) fn copied() -> ImageSpec {
    ImageSpec { source: Some(ImageSource::Template(Sought::Id(VmId(8000)))), ..image("c/debian") }
}

pub(super) fn installed() -> ImageSpec {
    let iso = IsoImage::Volume("local:iso/ubuntu.iso".into());
    ImageSpec { source: Some(ImageSource::Iso { iso, disk_gb: 20 }), ..image("c/ubuntu") }
}

pub(super) fn fault(kind: FaultKind) -> Fault {
    Fault::new(kind, Culprit::Guest, "it went wrong")
}

pub(super) fn upid() -> Upid {
    Upid::new("UPID:pve1:1:")
}

impl Play {
    pub fn new(spec: &ImageSpec) -> Self {
        let mut play = Self::of(Mind::new(birth(spec)));
        play.feed(Event::Begin);
        play
    }

    pub fn of(mind: Mind) -> Self {
        Self { mind, now: 0, last: Vec::new(), all: Vec::new() }
    }

    pub fn feed(&mut self, event: Event) {
        self.last = self.mind.effects_of(event, at(self.now), 7);
        self.all.extend(self.last.iter().cloned());
    }

    /// The last call that was made.
    pub fn call(&self) -> Option<Call> {
        self.all.iter().rev().find_map(|effect| match effect {
            Effect::Ask(attempt, call) if self.mind.awaits(*attempt) => Some(call.clone()),
            _ => None,
        })
    }

    /// Answers the call that is waited for.
    pub fn answer(&mut self, answer: Answer) {
        let asked = self.all.iter().rev().find_map(|effect| match effect {
            Effect::Ask(attempt, _) if self.mind.awaits(*attempt) => Some(*attempt),
            _ => None,
        });
        self.feed(Event::Answer(asked.unwrap(), answer));
    }

    /// Lets the timer ring, if one is set.
    pub fn ring(&mut self) {
        let alarm = self.all.iter().rev().find_map(|effect| match effect {
            Effect::WakeAt(attempt, at) => Some((*attempt, *at)),
            _ => None,
        });
        let (attempt, at) = alarm.unwrap();
        self.now = self.now.max(at.0.div_ceil(1000));
        self.feed(Event::Wake(attempt));
    }

    pub fn accept(&mut self) {
        self.answer(Answer::Accepted(Ok(Some(upid()))));
    }

    pub fn task_done(&mut self) {
        self.answer(Answer::TaskEnded(Ok(TaskEnd::Done { warnings: Vec::new() })));
    }

    pub fn phase(&self) -> ImagePhase {
        self.mind.status().phase
    }

    pub fn bodies(&self) -> Vec<&'static str> {
        let body = |effect: &Effect| match effect {
            Effect::Record(Body::ImageIntended { .. }) => Some("ImageIntended"),
            Effect::Record(Body::ImageSealed { .. }) => Some("ImageSealed"),
            Effect::Record(Body::ImageFailed { .. }) => Some("ImageFailed"),
            Effect::Record(Body::ImageBuilt { .. }) => Some("ImageBuilt"),
            Effect::Record(Body::ImageGone { burned: false, .. }) => Some("ImageGone"),
            Effect::Record(Body::ImageGone { burned: true, .. }) => Some("ImageGone, burned"),
            _ => None,
        };
        self.all.iter().filter_map(body).collect()
    }

    /// Gives it a VMID, and lets the intent be durable.
    pub fn intend(&mut self, vmid: u32) {
        self.feed(Event::Id(Ok(VmId(vmid))));
        self.feed(Event::Intended(77));
    }

    /// Goes on as if everything went well, up to a phase.
    pub fn up_to(&mut self, wanted: ImagePhase) {
        for _ in 0..60 {
            if self.phase() == wanted {
                return;
            }
            self.well();
        }
        panic!("{wanted} is not reached from {:?}", self.mind.state());
    }

    /// The next thing goes well.
    pub fn well(&mut self) {
        match self.mind.state().clone() {
            State::Queued => return self.feed(Event::Turn),
            State::Creating(super::state::Create::Id) => return self.intend(9000),
            _ => {}
        }
        let marks = self.mind.marks.clone();
        match self.call().unwrap() {
            Call::Pull
            | Call::Create
            | Call::Start
            | Call::Shutdown
            | Call::Stop
            | Call::Destroy
            | Call::Finish => self.accept(),
            Call::Await(..) => self.task_done(),
            Call::Locate => self.answer(Answer::Located(Ok(found("pve1")))),
            Call::Look => {
                let stopped = !matches!(self.mind.state(), State::Booting(_));
                self.answer(Answer::Looked(Ok(seen(&marks.unwrap(), !stopped))));
            }
            Call::Configure => self.answer(Answer::Configured(Ok(Configured {
                volumes: vec!["thin:vm-9000-disk-0".into()],
                mac: Some(MAC.into()),
                tags_refused: None,
                image_refused: None,
            }))),
            Call::Address => {
                let address = AddressObservation::At("10.0.0.5".parse().unwrap());
                self.answer(Answer::Addressed(Ok(address)));
            }
            Call::HostKeys => self.answer(Answer::HostKeys(Ok(vec!["key".into()]))),
            Call::Greet(_) => self.answer(Answer::Greeted(Ok("key".into()))),
            Call::Run(..) | Call::Upload(..) => {
                self.answer(Answer::Ran(Ok(Ran { exit: Some(0), tail: String::new() })));
            }
            Call::Eject => self.answer(Answer::Ejected(Ok(()))),
            Call::Check => self.answer(Answer::Checked(Ok(Vec::new()))),
            Call::Seal => self.answer(Answer::Sealed(Ok(()))),
            Call::Fence => self.answer(Answer::Accepted(Ok(None))),
            Call::IdTaken => self.answer(Answer::IdSeen(Ok(IdStatus::Free))),
            Call::Leftovers => self.answer(Answer::Leftovers(Ok(Vec::new()))),
        }
    }
}

pub(super) fn found(node: &str) -> Found {
    let candidate = Candidate {
        vmid: VmId(8000),
        node: NodeName::new(node),
        name: "base".into(),
        created: Some(1),
        storages: ["thin".to_owned()].into(),
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

pub(super) fn free() -> VmObservation {
    VmObservation { id: IdStatus::Free, node: None, marks: None, lock: None, running: None }
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

// Invariant: a build walks from its source to a sealed version, and each intent comes before its call.

#[test]
fn a_build_from_a_url_walks_through_all_phases_in_their_order() {
    let mut play = Play::new(&image("c/debian"));
    assert_eq!(play.last.first(), Some(&Effect::WantTurn));
    play.up_to(ImagePhase::Done);
    let mut phases: Vec<ImagePhase> = vec![ImagePhase::Queued];
    for effect in &play.all {
        if let Effect::Report(status) = effect
            && phases.last() != Some(&status.phase)
        {
            phases.push(status.phase);
        }
    }
    let way: Vec<ImagePhase> = ImagePhase::ALL
        .into_iter()
        .filter(|phase| {
            let others = [
                ImagePhase::Installing,
                ImagePhase::Removing,
                ImagePhase::Failed,
                ImagePhase::Removed,
            ];
            !others.contains(phase)
        })
        .collect();
    assert_eq!(phases, way);
    assert_eq!(play.bodies(), ["ImageIntended", "ImageSealed", "ImageBuilt"]);
    assert_eq!(play.all.last(), Some(&Effect::End));
    let place = |wanted: &dyn Fn(&Effect) -> bool| play.all.iter().position(wanted).unwrap();
    let create = place(&|effect| matches!(effect, Effect::Ask(_, Call::Create)));
    let intent = place(&|effect| matches!(effect, Effect::Record(Body::ImageIntended { .. })));
    let seal = place(&|effect| matches!(effect, Effect::Ask(_, Call::Seal)));
    let sealed = place(&|effect| matches!(effect, Effect::Record(Body::ImageSealed { .. })));
    let turn = place(&|effect| *effect == Effect::TurnOver);
    assert!(intent < create && sealed < seal && turn < create);
    assert_eq!(play.mind.marks.as_ref().unwrap().seq, 77);
}

#[test]
fn a_build_from_a_template_copies_it_without_a_turn() {
    let mut play = Play::new(&copied());
    assert_eq!(play.call(), Some(Call::Locate));
    play.up_to(ImagePhase::Done);
    assert!(!play.all.contains(&Effect::WantTurn));
    assert_eq!(play.mind.machine().unwrap().source, VmId(8000));
}

#[test]
fn an_installer_runs_until_it_powers_off_and_its_discs_go_before_the_guest_boots() {
    let mut play = Play::new(&installed());
    assert!(!play.all.contains(&Effect::WantTurn), "it is on its storage already");
    play.up_to(ImagePhase::Installing);
    play.accept();
    play.task_done();
    let marks = play.mind.marks.clone().unwrap();
    for _ in 0..3 {
        play.answer(Answer::Looked(Ok(seen(&marks, true))));
        assert_eq!((play.phase(), play.call()), (ImagePhase::Installing, None));
        play.ring();
    }
    play.answer(Answer::Looked(Ok(seen(&marks, false))));
    assert_eq!(play.call(), Some(Call::Eject));
    play.answer(Answer::Ejected(Ok(())));
    assert_eq!((play.phase(), play.call()), (ImagePhase::Booting, Some(Call::Start)));
    play.up_to(ImagePhase::Done);
}

#[test]
fn a_guest_that_is_off_is_not_installed_where_nobody_saw_its_installer_run() {
    let mut play = Play::new(&installed());
    play.up_to(ImagePhase::Installing);
    play.answer(Answer::Accepted(Err(fault(FaultKind::UnknownOutcome))));
    play.ring();
    let marks = play.mind.marks.clone().unwrap();
    play.answer(Answer::Looked(Ok(seen(&marks, false))));
    assert_eq!(play.call(), Some(Call::Start), "it is started again");
}

#[test]
fn the_version_carries_the_hash_and_the_builder_its_own_id() {
    let mut play = Play::new(&image("c/debian"));
    play.up_to(ImagePhase::Done);
    let (marks, sealed) = (play.mind.marks.unwrap(), play.mind.sealed.unwrap());
    assert_eq!(marks.agent.as_str(), "bbbbbbbbbbbbbbbb");
    assert_eq!(sealed.agent, play.mind.birth.version);
    assert_eq!((marks.vmid, marks.seq), (sealed.vmid, sealed.seq));
    assert!(sealed.name("").starts_with("debian-7k2m9qxw-"), "{}", sealed.name(""));
}
