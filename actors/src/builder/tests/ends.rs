//! Failures, limits, restarts and removals.

use drover_model::fault::FaultKind;
use drover_model::id::{AgentId, CloudId, TemplateId, VmId};
use drover_model::journal_state::{BuildEntry, BuildFailure};
use drover_model::marks::{Kind, Marks};
use drover_model::phase::ImagePhase;
use drover_model::ports::{AddressObservation, Ran, TaskEnd};
use drover_model::testing::{image, marks};

use super::*;
use crate::builder::remove::UNFINISHED;
use crate::removal::HORIZON;

fn destroys(effect: &Effect) -> bool {
    matches!(effect, Effect::Ask(_, Call::Destroy))
}

/// Removes what a failed build made, as if everything went well.
fn to_the_end(play: &mut Play) {
    for _ in 0..40 {
        if play.phase().is_over() {
            return;
        }
        if play.call().is_none() {
            play.ring();
            continue;
        }
        match play.call().unwrap() {
            Call::Look if play.all.iter().any(destroys) => {
                play.answer(Answer::Looked(Ok(free())));
            }
            _ => play.well(),
        }
    }
    panic!("it does not end: {:?}", play.mind.state());
}

// Invariant: what fails in whichever phase is destroyed by its marks, and the build says why.

#[test]
fn a_build_that_fails_in_any_phase_destroys_its_guest() {
    let phases = [
        ImagePhase::Configuring,
        ImagePhase::Booting,
        ImagePhase::Connecting,
        ImagePhase::Provisioning,
        ImagePhase::Cleaning,
        ImagePhase::ShuttingDown,
        ImagePhase::Converting,
        ImagePhase::Verifying,
        ImagePhase::Sealing,
    ];
    for phase in phases {
        let mut play = Play::new(&image("c/debian"));
        play.up_to(phase);
        let broken = fault(FaultKind::Broken);
        match play.call().unwrap() {
            Call::Configure => play.answer(Answer::Configured(Err(broken))),
            Call::Greet(_) => play.answer(Answer::Greeted(Err(broken))),
            Call::Run(..) => {
                play.answer(Answer::Ran(Ok(Ran { exit: Some(3), tail: "it went wrong".into() })));
            }
            Call::Check => play.answer(Answer::Checked(Ok(vec!["it went wrong".into()]))),
            Call::Seal => play.answer(Answer::Sealed(Err(broken))),
            _ => play.answer(Answer::Accepted(Err(broken))),
        }
        assert_eq!(play.phase(), ImagePhase::Removing, "{phase}");
        to_the_end(&mut play);
        assert_eq!(play.phase(), ImagePhase::Failed, "{phase}");
        let calls: Vec<&Call> = play
            .all
            .iter()
            .filter_map(|effect| match effect {
                Effect::Ask(_, call) => Some(call),
                _ => None,
            })
            .collect();
        let fence = calls.iter().position(|call| **call == Call::Fence).unwrap();
        let destroy = calls.iter().position(|call| **call == Call::Destroy).unwrap();
        assert!(fence < destroy, "{phase}");
        let detail = play.mind.status().detail;
        assert!(detail.starts_with(phase.name()) && detail.contains("it went wrong"), "{detail}");
        assert_eq!(play.bodies().last(), Some(&"ImageGone"), "{phase}");
        let back = Effect::IdBack { vmid: VmId(9000), burned: false };
        assert!(play.all.contains(&back), "{phase}");
    }
}

#[test]
fn a_build_that_fails_before_it_has_a_guest_leaves_nothing() {
    let mut play = Play::new(&image("c/debian"));
    play.feed(Event::Turn);
    play.answer(Answer::Accepted(Err(fault(FaultKind::Broken))));
    assert_eq!(play.phase(), ImagePhase::Failed);
    assert_eq!(play.bodies(), ["ImageFailed"]);
    assert!(play.all.contains(&Effect::TurnOver));
    let mut play = Play::new(&image("c/debian"));
    play.up_to(ImagePhase::Creating);
    play.feed(Event::Id(Err(fault(FaultKind::Capacity))));
    assert_eq!((play.phase(), play.bodies()), (ImagePhase::Failed, vec!["ImageFailed"]));
}

// Invariant: faults that pass are tried again, up to the limits.

#[test]
fn a_build_that_waits_for_its_turn_says_for_which_build() {
    let mut play = Play::new(&image("c/debian"));
    let other = TemplateId::new(CloudId::new("c"), "bydrover");
    play.feed(Event::Behind(other.clone(), AgentId::new("b7")));
    let detail = play.mind.status().detail;
    assert_eq!(detail, "waits for the build of `c/bydrover` (b7)");
    play.feed(Event::Turn);
    assert_eq!(play.mind.status().detail, "");
    play.feed(Event::Behind(other, AgentId::new("b7")));
    assert_eq!(play.mind.status().detail, "", "it has the turn");
}

#[test]
fn a_download_that_breaks_off_is_started_again() {
    let mut play = Play::new(&image("c/debian"));
    play.feed(Event::Turn);
    play.accept();
    play.answer(Answer::TaskEnded(Ok(TaskEnd::Unknown("worker killed".into()))));
    assert_eq!((play.phase(), play.call()), (ImagePhase::Pulling, None));
    play.ring();
    assert_eq!(play.call(), Some(Call::Pull));
    play.up_to(ImagePhase::Done);
}

#[test]
fn each_limit_ends_a_build_with_what_it_waited_for() {
    let limits = [
        (ImagePhase::Queued, 7800),
        (ImagePhase::Pulling, 7200),
        (ImagePhase::Booting, 300),
        (ImagePhase::Provisioning, 9000),
    ];
    for (phase, seconds) in limits {
        let mut play = Play::new(&image("c/debian"));
        play.up_to(phase);
        if phase == ImagePhase::Booting {
            play.accept();
            play.task_done();
            let not_yet = AddressObservation::NotYet("no agent".into());
            play.answer(Answer::Addressed(Ok(not_yet)));
            while play.phase() == phase {
                play.ring();
                if play.call().is_some() {
                    let not_yet = AddressObservation::NotYet("no agent".into());
                    play.answer(Answer::Addressed(Ok(not_yet)));
                }
            }
        } else {
            play.ring();
        }
        assert_ne!(play.phase(), phase);
        assert_eq!(play.now, seconds, "{phase}");
        let (_, failure) = play.mind.failure.clone().unwrap();
        assert!(failure.contains("took too long"), "{failure}");
    }
}

// Invariant: a VMID that somebody has is passed over; an unknown outcome is looked up first.

#[test]
fn an_id_that_is_taken_leads_to_the_next_one() {
    let mut play = Play::new(&image("c/debian"));
    play.up_to(ImagePhase::Creating);
    play.intend(9000);
    play.answer(Answer::Accepted(Err(fault(FaultKind::IdTaken))));
    assert!(play.last.contains(&Effect::WantId(Some(VmId(9000)))), "{:?}", play.last);
    play.intend(9001);
    play.up_to(ImagePhase::Done);
    assert_eq!(play.mind.vmid(), Some(VmId(9001)));
    let bodies = play.bodies();
    let intents = bodies.iter().filter(|body| **body == "ImageIntended").count();
    assert_eq!((intents, bodies.contains(&"ImageGone, burned")), (2, true));
    assert!(!play.all.iter().any(|effect| matches!(effect, Effect::Ask(_, Call::Destroy))));
}

#[test]
fn a_create_of_unknown_outcome_is_looked_up_and_goes_on_or_ends() {
    let unknown = || {
        let mut play = Play::new(&image("c/debian"));
        play.up_to(ImagePhase::Creating);
        play.intend(9000);
        play.answer(Answer::Accepted(Err(fault(FaultKind::UnknownOutcome))));
        assert_eq!(play.call(), Some(Call::Look));
        play
    };
    let mut made = unknown();
    made.answer(Answer::Looked(Ok(unmarked(Some("create")))));
    made.ring();
    made.up_to(ImagePhase::Done);
    let mut never = unknown();
    while never.phase() == ImagePhase::Creating {
        never.answer(Answer::Looked(Ok(free())));
        if never.phase() == ImagePhase::Creating {
            never.ring();
        }
    }
    assert!(never.now >= HORIZON.as_secs(), "{}", never.now);
    never.answer(Answer::Looked(Ok(free())));
    never.answer(Answer::Leftovers(Ok(Vec::new())));
    assert_eq!((never.phase(), never.bodies().last()), (ImagePhase::Failed, Some(&"ImageGone")));
    let mut foreign = unknown();
    foreign.answer(Answer::Looked(Ok(unmarked(None))));
    foreign.answer(Answer::Looked(Ok(unmarked(None))));
    assert_eq!(foreign.phase(), ImagePhase::Failed);
    assert_eq!(foreign.bodies().last(), Some(&"ImageGone, burned"));
    assert!(!foreign.all.iter().any(|effect| matches!(effect, Effect::Ask(_, Call::Fence))));
}

// Invariant: after a restart the guest of a build goes, unless it was proved.

fn entry(sealed: bool, pruned: bool) -> BuildEntry {
    let builder = Marks { kind: Kind::Builder, ..marks("bbbbbbbbbbbbbbbb", 9000) };
    let version = Marks { kind: Kind::Image, ..marks("vvvvvvvvvvvvvvvv", 9000) };
    BuildEntry {
        marks: if pruned { version.clone() } else { builder },
        node: NodeName::new("pve1"),
        version: version.agent.clone(),
        given: BTreeMap::new(),
        iso: None,
        sealed: sealed.then_some(version),
        failed: None,
        pruned,
    }
}

fn adopted(entry: &BuildEntry) -> Play {
    let birth = Birth { recipe: None, ..birth(&image("c/debian")) };
    let mut play = Play::of(Mind::adopt(birth, entry));
    play.feed(Event::Begin);
    assert_eq!(play.call(), Some(Call::Look));
    play
}

#[test]
fn a_guest_from_before_a_restart_is_destroyed() {
    let entry = entry(false, false);
    let mut play = adopted(&entry);
    play.answer(Answer::Looked(Ok(seen(&entry.marks, true))));
    assert_eq!(play.call(), Some(Call::Fence));
    play.well();
    assert_eq!(play.call(), Some(Call::Stop));
    to_the_end(&mut play);
    assert_eq!(play.phase(), ImagePhase::Failed);
    assert!(play.mind.status().detail.contains("drover stopped"));
}

// Invariant: why a build failed is durable before its guest is touched, and outlives the service.

#[test]
fn a_build_that_failed_before_a_restart_keeps_its_reason_and_waits_for_no_late_create() {
    let mut play = Play::new(&image("c/debian"));
    play.up_to(ImagePhase::Provisioning);
    play.answer(Answer::Ran(Ok(Ran { exit: Some(3), tail: "it went wrong".into() })));
    let failed = play.last.iter().find_map(|effect| match effect {
        Effect::Record(Body::ImageFailed { why, made, .. }) => Some((why.clone(), *made)),
        _ => None,
    });
    let (why, made) = failed.unwrap();
    assert!(why.starts_with("Provisioning: cloud-init: ") && made, "{why}");
    let recorded = play.last.iter().position(|effect| matches!(effect, Effect::Record(_)));
    let asked = play.last.iter().position(|effect| matches!(effect, Effect::Ask(..)));
    assert!(recorded < asked, "{:?}", play.last);
    assert_eq!(play.mind.status().failure, Some((at(play.now).wall, why.clone())));

    let failure = BuildFailure { at: at(7).wall, why: why.clone(), made };
    let mut play = adopted(&BuildEntry { failed: Some(failure), ..entry(false, false) });
    assert_eq!(play.mind.status().failure, Some((at(7).wall, why.clone())));
    play.answer(Answer::Looked(Ok(free())));
    assert_eq!(play.call(), Some(Call::Leftovers), "its guest is known to have been made");
    play.well();
    assert_eq!((play.phase(), play.mind.status().detail), (ImagePhase::Failed, why));
}

#[test]
fn a_guest_that_may_still_be_made_is_waited_for() {
    let entry = entry(false, false);
    let mut play = adopted(&entry);
    play.answer(Answer::Looked(Ok(free())));
    assert_eq!((play.phase(), play.call()), (ImagePhase::Removing, None));
    play.ring();
    play.answer(Answer::Looked(Ok(seen(&entry.marks, false))));
    play.well();
    assert_eq!(play.call(), Some(Call::Destroy), "it is stopped already");
}

// Invariant: a guest that Proxmox never finished is left alone, and does not keep its build for ever.

#[test]
fn a_guest_whose_making_was_cut_off_is_named_and_given_up_after_an_hour() {
    let mut play = adopted(&entry(false, false));
    while !play.phase().is_over() {
        assert!(play.now <= UNFINISHED.as_secs() + 10, "{}", play.now);
        if play.call().is_none() {
            play.ring();
        }
        play.answer(Answer::Looked(Ok(unmarked(Some("create")))));
    }
    assert!(play.now >= UNFINISHED.as_secs(), "{}", play.now);
    assert_eq!(play.bodies().last(), Some(&"ImageGone, burned"));
    assert!(!play.all.iter().any(destroys));
    let detail = play.mind.status().detail;
    let advice = "guest 9000 on `pve1` has the lock `create` and no marks, so that drover leaves it alone: \
                  if no task on the node works on it, `qm unlock 9000 && qm destroy 9000` there";
    assert!(detail.ends_with(advice), "{detail}");
}

#[test]
fn a_version_that_was_proved_is_kept_and_one_that_was_only_to_be_is_not() {
    let entry = entry(true, false);
    let mut proved = adopted(&entry);
    proved.answer(Answer::Looked(Ok(seen(entry.sealed.as_ref().unwrap(), false))));
    assert_eq!((proved.phase(), proved.bodies()), (ImagePhase::Done, vec!["ImageBuilt"]));
    let mut unproved = adopted(&entry);
    unproved.answer(Answer::Looked(Ok(seen(&entry.marks, false))));
    assert_eq!(unproved.call(), Some(Call::Fence));
}

#[test]
fn a_version_that_is_pruned_goes_and_its_volumes_are_named() {
    let entry = entry(false, true);
    let mut play = adopted(&entry);
    play.answer(Answer::Looked(Ok(seen(&entry.marks, false))));
    to_the_end(&mut play);
    assert_eq!((play.phase(), play.mind.status().detail), (ImagePhase::Removed, String::new()));
    let mut left = adopted(&entry);
    left.answer(Answer::Looked(Ok(free())));
    left.answer(Answer::Leftovers(Ok(vec!["thin:base-9000-disk-0".into()])));
    assert_eq!(left.bodies(), ["ImageGone, burned"]);
    assert!(left.mind.status().detail.contains("thin:base-9000-disk-0"));
}
