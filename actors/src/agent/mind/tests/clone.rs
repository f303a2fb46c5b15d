//! A clone that failed, or whose outcome is unknown.

use std::collections::BTreeSet;
use std::time::Duration;

use drover_model::fact::What;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::NodeName;
use drover_model::marks::Reading;
use drover_model::phase::AgentPhase;
use drover_model::placement::Sizes;
use drover_model::ports::{TaskEnd, VmObservation};
use drover_model::record::{Body, Reason};
use drover_model::spec::{CloneStrategy, TemplateSpec};
use drover_model::status::Standing;
use drover_model::template_image::Origin;

use super::provision::at;
use crate::agent::event::{Answer, Call, Effect};
use crate::agent::testing::*;
use crate::message::AgentCommand;

// Invariant: a failed clone is never repeated and never cleaned up.

#[test]
fn contention_with_the_id_still_free_ends_the_agent_and_lets_the_id_rest() {
    let mut drive = at(AgentPhase::Cloning);
    drive.answer(Answer::Cloned(Err(fault(FaultKind::Contention))));
    let effects = drive.answer(Answer::Looked(Ok(Drive::free())));
    assert_eq!(drive.state(), AgentPhase::Gone);
    assert!(effects.iter().any(|e| matches!(e, Effect::IdBack { burned: false, .. })));
    let charged = drive.reports().iter().rev().find_map(|r| r.fault.clone()).expect("a fault");
    assert!(!charged.kind.counts_against_breaker());
}

/// A clone whose task failed; its id is free.
fn undone() -> Drive {
    let mut drive = at(AgentPhase::Cloning);
    drive.answer(Answer::Cloned(Ok(upid("qmclone"))));
    drive.answer(Answer::TaskEnded(Ok(TaskEnd::Failed(fault(FaultKind::Broken)))));
    drive.answer(Answer::Looked(Ok(Drive::free())));
    drive
}

// Invariant: a clone without space says which storage lacks it and how much is needed.

#[test]
fn a_clone_without_space_names_the_storage_and_the_size() {
    let on = |target: Option<&str>, clone: CloneStrategy, fault: Fault| {
        let origin = Origin {
            home: NodeName::new("n1"),
            storages: BTreeSet::new(),
            local: BTreeSet::new(),
            target: target.map(str::to_owned),
            sizes: Sizes { cores: 1, memory_mb: 1024, disk_gb: 10 },
            version: None,
            why: String::new(),
        };
        let spec = TemplateSpec { origin: Some(origin), clone, ..spec() };
        let mind = Drive::new(spec).mind;
        mind.with_storage(fault).text
    };
    let full = || Fault::new(FaultKind::Capacity, Culprit::Template, "2560 extents needed");
    assert_eq!(
        on(Some("local-lvm"), CloneStrategy::Full, full()),
        "no space for a disk of 10 GiB on storage `local-lvm`: somebody has to free some there, or to \
         name further storages in `targetStorages` (`headroom` keeps some free): 2560 extents needed"
    );
    assert_eq!(
        on(None, CloneStrategy::Linked, full()),
        "no space for a disk of 10 GiB on its template's storage: somebody has to free some there, or to \
         set `cloneStrategy: FULL` and name further storages in `targetStorages` (`headroom` keeps some \
         free): 2560 extents needed"
    );
    let other = Fault::new(FaultKind::Broken, Culprit::Template, "no such guest");
    assert_eq!(on(Some("local-lvm"), CloneStrategy::Full, other), "no such guest");
}

#[test]
fn the_id_of_a_clone_that_failed_is_given_back_once_its_volumes_are_listed_empty() {
    let mut drive = undone();
    assert_eq!(drive.asked().map(|(_, call)| call), Some(Call::Leftovers));
    let charged = drive.reports().iter().rev().find_map(|r| r.fault.clone()).expect("a fault");
    assert_eq!(charged, fault(FaultKind::Broken), "reported at once");
    assert!(drive.effects.iter().any(|e| matches!(e, Effect::LaneFree(_))), "and out of the way");
    assert!(!drive.effects.iter().any(|e| matches!(e, Effect::IdBack { .. })));
    let effects = drive.answer(Answer::Leftovers(Ok(Vec::new())));
    assert_eq!(drive.state(), AgentPhase::Gone);
    assert!(effects.iter().any(|e| matches!(e, Effect::IdBack { burned: false, .. })));
    assert!(!drive.effects.iter().any(|e| matches!(e, Effect::Learnt(_))), "nothing was retired");
}

#[test]
fn what_a_clone_that_failed_left_behind_calls_an_administrator_and_keeps_its_id() {
    let mut drive = undone();
    drive.answer(Answer::Leftovers(Ok(vec!["nfs:10417/vm-10417-disk-0.qcow2".to_owned()])));
    assert_eq!((drive.state(), drive.mind.standing()), (AgentPhase::Stranded, Standing::Parked));
    assert!(drive.facts().iter().any(|what| matches!(what, What::Alarm { command, .. }
        if command == "pvesm free nfs:10417/vm-10417-disk-0.qcow2 # on node n1")));
    let mut drive = drive.adopt(secs(60));
    assert_eq!(drive.state(), AgentPhase::Stranded);
    drive.answer(Answer::Looked(Ok(Drive::free())));
    assert_eq!(drive.mind.standing(), Standing::Parked, "as before");
    let effects = drive.answer(Answer::Leftovers(Ok(Vec::new())));
    assert!(effects.iter().any(|e| matches!(e, Effect::IdBack { burned: false, .. })));
}

#[test]
fn nobody_is_asked_to_free_what_somebody_elses_guest_may_have_by_now() {
    let mut drive = undone();
    drive.answer(Answer::Leftovers(Ok(vec!["nfs:10417/vm-10417-disk-0.qcow2".to_owned()])));
    drive.wait(secs(60));
    let strangers = drive.strangers();
    let effects = drive.answer(Answer::Looked(Ok(strangers)));
    assert_eq!(drive.state(), AgentPhase::Gone);
    assert!(effects.iter().any(|e| matches!(e, Effect::IdBack { burned: true, .. })));
}

#[test]
fn a_clone_that_failed_on_a_storage_out_of_reach_keeps_its_id_and_leaves_the_caps_with_an_alarm() {
    let mut drive = undone();
    let away = Fault::new(FaultKind::Contention, Culprit::Storage("nfs".into()), "not active");
    while !drive.facts().iter().any(|what| matches!(what, What::Alarm { .. })) {
        assert_eq!(
            (drive.state(), drive.mind.standing()),
            (AgentPhase::Retiring, Standing::Leaving)
        );
        if drive.asked().is_some() {
            drive.answer(Answer::Leftovers(Err(away.clone())));
        }
        drive.wait(secs(10));
    }
    assert!(drive.facts().iter().any(|what| matches!(what, What::Alarm { command, .. }
        if command.starts_with("pvesm list nfs --vmid 10417 # on node n1"))));
    assert_eq!((drive.state(), drive.mind.standing()), (AgentPhase::Retiring, Standing::Parked));
    while drive.asked().is_none() {
        drive.wait(secs(10));
    }
    drive.answer(Answer::Leftovers(Ok(Vec::new())));
    assert_eq!(drive.state(), AgentPhase::Gone);
}

#[test]
fn a_clone_that_failed_is_looked_after_over_a_restart() {
    let drive = undone();
    let why = drive.mind.state().leaving().cloned().expect("why");
    let mut drive = drive.adopt(secs(60));
    drive.answer(Answer::Looked(Ok(Drive::free())));
    drive.answer(Answer::TaskEnded(Ok(TaskEnd::Failed(fault(FaultKind::Broken)))));
    drive.answer(Answer::Looked(Ok(Drive::free())));
    drive.answer(Answer::Leftovers(Ok(Vec::new())));
    assert_eq!((drive.state(), drive.mind.state().leaving()), (AgentPhase::Gone, Some(&why)));
}

#[test]
fn an_id_that_was_taken_is_burned_and_left_alone() {
    let mut drive = at(AgentPhase::Cloning);
    for observation in [drive.strangers(), Drive::free()] {
        let mut drive = at(AgentPhase::Cloning);
        drive.answer(Answer::Cloned(Err(fault(FaultKind::IdTaken))));
        let effects = drive.answer(Answer::Looked(Ok(observation)));
        assert!(effects.iter().any(|e| matches!(e, Effect::IdBack { burned: true, .. })));
        assert!(calls(&effects).is_empty());
    }
    drive.answer(Answer::Cloned(Ok(upid("qmclone"))));
    let lost = TaskEnd::Failed(fault(FaultKind::IdTaken));
    drive.answer(Answer::TaskEnded(Ok(lost)));
    let strangers = drive.strangers();
    let effects = drive.answer(Answer::Looked(Ok(strangers)));
    assert!(effects.iter().any(|e| matches!(e, Effect::IdBack { burned: true, .. })));
}

#[test]
fn an_id_that_was_taken_by_the_same_call_arriving_twice_is_settled_by_its_marks() {
    let mut drive = at(AgentPhase::Cloning);
    drive.answer(Answer::Cloned(Err(fault(FaultKind::IdTaken))));
    let bare = VmObservation {
        marks: Some(Reading::Unmarked),
        lock: Some("clone".into()),
        ..drive.observation()
    };
    drive.answer(Answer::Looked(Ok(bare)));
    assert_eq!(drive.state(), AgentPhase::InDoubt, "nobody knows yet");
    while drive.asked().is_none() {
        drive.wait(secs(1));
    }
    let ours = drive.observation();
    drive.answer(Answer::Looked(Ok(ours)));
    assert_eq!(drive.state(), AgentPhase::Configuring);
}

#[test]
fn a_clone_that_lost_against_the_same_call_arriving_twice_waits_for_the_winner() {
    let mut drive = at(AgentPhase::Cloning);
    drive.answer(Answer::Cloned(Ok(upid("qmclone"))));
    drive.answer(Answer::TaskEnded(Ok(TaskEnd::Failed(fault(FaultKind::Contention)))));
    let bare = VmObservation {
        marks: Some(Reading::Unmarked),
        lock: Some("clone".into()),
        ..drive.observation()
    };
    for _ in 0..3 {
        while drive.asked().is_none() {
            drive.wait(secs(1));
        }
        drive.answer(Answer::Looked(Ok(bare.clone())));
        assert_eq!(drive.state(), AgentPhase::InDoubt, "the winner is still copying");
    }
    while drive.asked().is_none() {
        drive.wait(secs(1));
    }
    let ours = drive.observation();
    drive.answer(Answer::Looked(Ok(ours)));
    assert_eq!(drive.state(), AgentPhase::Retiring, "it is ours, and nobody else's to clean up");
}

#[test]
fn a_clone_of_unknown_outcome_is_looked_up_and_taken_on_by_its_marks() {
    let mut drive = at(AgentPhase::Cloning);
    drive.answer(Answer::Cloned(Err(fault(FaultKind::UnknownOutcome))));
    assert_eq!(drive.state(), AgentPhase::InDoubt);
    let ours = drive.observation();
    drive.answer(Answer::Looked(Ok(ours)));
    assert_eq!(drive.state(), AgentPhase::Configuring);
    assert!(drive.records().iter().any(|body| matches!(body, Body::CloneSettled { .. })));
}

/// When drover concludes that a clone of unknown outcome, whose id stays free, was never made.
fn believed_unmade(call: Duration) -> Duration {
    let mut limits = spec().limits;
    limits.call = call;
    let mut drive = Drive::new(TemplateSpec { limits, ..spec() });
    drive.go_to(AgentPhase::Cloning);
    let started = drive.now.mono;
    drive.answer(Answer::Cloned(Err(fault(FaultKind::UnknownOutcome))));
    while drive.state() == AgentPhase::InDoubt {
        if drive.asked().is_some() {
            drive.answer(Answer::Looked(Ok(Drive::free())));
        }
        drive.wait(secs(1));
    }
    let spent = drive.now.mono - started;
    drive.answer(Answer::Leftovers(Ok(Vec::new())));
    assert_eq!(drive.state(), AgentPhase::Gone);
    spent
}

#[test]
fn a_free_id_proves_nothing_before_the_horizon_of_the_clients_own_timeout() {
    for (call, horizon) in [(60, 150), (300, 390), (5, 95)] {
        let spent = believed_unmade(secs(call)).as_secs();
        assert!((horizon..horizon + 35).contains(&spent), "{call}: {spent}");
    }
}

#[test]
fn a_clone_in_doubt_that_is_a_strangers_burns_the_id_and_touches_nothing() {
    let mut drive = at(AgentPhase::Cloning);
    drive.answer(Answer::Cloned(Err(fault(FaultKind::UnknownOutcome))));
    let strangers = drive.strangers();
    let effects = drive.answer(Answer::Looked(Ok(strangers)));
    assert_eq!(drive.state(), AgentPhase::Gone);
    assert!(effects.iter().any(|e| matches!(e, Effect::IdBack { burned: true, .. })));
}

#[test]
fn a_locked_copy_whose_task_died_is_stranded() {
    let mut drive = at(AgentPhase::Cloning);
    drive.answer(Answer::Cloned(Ok(upid("qmclone"))));
    drive.answer(Answer::TaskEnded(Ok(TaskEnd::Unknown("unexpected status".into()))));
    let marks = Some(Reading::Unmarked);
    let bare = VmObservation { marks, lock: Some("clone".into()), ..drive.observation() };
    drive.answer(Answer::Looked(Ok(bare)));
    assert_eq!(drive.state(), AgentPhase::Stranded);
    assert!(drive.facts().iter().any(|what| matches!(what, What::Alarm { command, .. }
        if command.contains("qm destroy 10417"))));
}

#[test]
fn a_guest_seen_in_the_last_step_of_a_destroy_is_no_stranger() {
    let mut drive = at(AgentPhase::Cloning);
    drive.answer(Answer::Cloned(Err(fault(FaultKind::UnknownOutcome))));
    let marks = Some(Reading::Unmarked);
    let going = VmObservation { marks, lock: Some("destroyed".into()), ..drive.observation() };
    drive.answer(Answer::Looked(Ok(going)));
    assert_eq!(drive.state(), AgentPhase::InDoubt);
}

#[test]
fn a_cancelled_clone_is_not_cut_and_retires_when_it_is_there() {
    let mut drive = at(AgentPhase::Cloning);
    drive.answer(Answer::Cloned(Ok(upid("qmclone"))));
    assert!(calls(&drive.command(AgentCommand::Retire(Reason::Cancelled))).is_empty());
    assert_eq!(drive.mind.standing(), Standing::Leaving);
    drive.answer(Answer::TaskEnded(Ok(TaskEnd::Done { warnings: Vec::new() })));
    assert_eq!(drive.state(), AgentPhase::Retiring);
}

#[test]
fn a_clone_slower_than_an_operation_is_in_doubt_and_stranded_past_its_cap() {
    let mut drive = at(AgentPhase::Cloning);
    drive.answer(Answer::Cloned(Ok(upid("qmclone"))));
    drive.wait(secs(121));
    assert_eq!(drive.state(), AgentPhase::InDoubt);
    drive.wait(secs(500));
    assert_eq!(drive.state(), AgentPhase::Stranded);
}
