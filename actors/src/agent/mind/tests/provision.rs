//! From the lanes to Ready, and taking up again.

use std::time::Duration;

use crate::agent::boots::Booted;
use crate::agent::event::{Answer, Call, Effect, Event};
use crate::agent::testing::*;
use crate::fact::What;
use crate::fault::{Culprit, Fault, FaultKind};
use crate::id::Attempt;
use crate::marks::Reading;
use crate::message::{AgentCommand, Standing};
use crate::ports::{AddressSight, Configured, IdSight, Ran, TaskEnd, VmSight};
use crate::record::{Body, Reason};
use crate::spec::TemplateSpec;

fn at(state: &str) -> Drive {
    let mut drive = Drive::new(spec());
    drive.go_to(state);
    drive
}

fn position(effects: &[Effect], wanted: impl Fn(&Effect) -> bool) -> usize {
    effects.iter().position(wanted).expect("the effect is there")
}

// Invariant: the intent is written before the call, and there is one clone call in an agent's life.

#[test]
fn a_grant_writes_the_intent_before_it_clones() {
    let mut drive = Drive::new(spec());
    let effects = drive.grant();
    let intent = position(&effects, |e| matches!(e, Effect::Record(Body::CloneIntended { .. })));
    let clone = position(&effects, |e| matches!(e, Effect::Ask(_, Call::Clone { .. })));
    assert!(intent < clone);
    assert_eq!(drive.mind.guest().expect("a guest").marks.seq, 101);
}

#[test]
fn a_whole_provision_clones_once_and_makes_few_calls() {
    let drive = at("Ready");
    let calls = drive.calls();
    let clones = calls.iter().filter(|call| matches!(call, Call::Clone { .. })).count();
    assert_eq!(clones, 1);
    let to_proxmox = calls
        .iter()
        .filter(|call| {
            !matches!(call, Call::Greet(..) | Call::Run(..) | Call::Upload(..) | Call::Await(..))
        })
        .count();
    assert_eq!(to_proxmox, 5, "{calls:?}");
}

#[test]
fn a_second_grant_is_given_back() {
    let mut drive = at("Cloning");
    let effects = drive.command(AgentCommand::Granted {
        vmid: crate::id::VmId(10_999),
        node: crate::id::NodeName::new("n2"),
        cluster: crate::id::ClusterId::new("9f31c0aa52e7d410"),
        spec: None,
    });
    assert!(effects.contains(&Effect::IdBack { vmid: crate::id::VmId(10_999), burned: false }));
}

#[test]
fn a_cancelled_queued_agent_uses_nothing_and_waits_for_a_late_grant() {
    let mut drive = Drive::new(spec());
    let effects = drive.command(AgentCommand::Retire(Reason::Cancelled));
    assert_eq!(drive.state(), "Gone");
    assert!(effects.contains(&Effect::LaneFree(crate::cluster::LaneEnd::Void)));
    assert!(drive.records().is_empty() && drive.calls().is_empty());
    let late = drive.grant();
    assert!(late.iter().any(|effect| matches!(effect, Effect::IdBack { burned: false, .. })));
    drive.wait(secs(6));
    assert_eq!(drive.effects.last(), Some(&Effect::End));
}

// Invariant: a stale answer changes nothing.

#[test]
fn an_answer_to_an_older_attempt_is_dropped() {
    let mut drive = at("Cloning");
    let (attempt, _) = drive.asked().expect("the clone call");
    let before = drive.mind.clone();
    for stale in [
        Attempt { epoch: 0, ..attempt },
        Attempt { incarnation: 7, ..attempt },
        Attempt { n: attempt.n + 50, ..attempt },
    ] {
        let answer = Answer::Cloned(Ok(upid("qmclone")));
        assert!(drive.event(Event::Answer(stale, answer)).is_empty());
    }
    assert_eq!(drive.mind, before);
}

// Invariant: a failed clone is never tried again and never cleaned up.

#[test]
fn contention_with_the_id_still_free_ends_the_agent_and_lets_the_id_rest() {
    let mut drive = at("Cloning");
    drive.answer(Answer::Cloned(Err(fault(FaultKind::Contention))));
    let effects = drive.answer(Answer::Looked(Ok(Drive::free())));
    assert_eq!(drive.state(), "Gone");
    assert!(effects.iter().any(|e| matches!(e, Effect::IdBack { burned: false, .. })));
    let charged = drive.reports().iter().rev().find_map(|r| r.fault.clone()).expect("a fault");
    assert!(!charged.kind.counts_against_breaker());
}

/// A clone whose task failed; its id is free.
fn undone() -> Drive {
    let mut drive = at("Cloning");
    drive.answer(Answer::Cloned(Ok(upid("qmclone"))));
    drive.answer(Answer::TaskEnded(Ok(TaskEnd::Failed(fault(FaultKind::Broken)))));
    drive.answer(Answer::Looked(Ok(Drive::free())));
    drive
}

#[test]
fn the_id_of_a_clone_that_failed_is_given_back_once_its_volumes_are_listed_empty() {
    let mut drive = undone();
    assert_eq!(drive.asked().map(|(_, call)| call), Some(Call::Leftovers));
    let charged = drive.reports().iter().rev().find_map(|r| r.fault.clone()).expect("a fault");
    assert_eq!(charged, fault(FaultKind::Broken), "told at once");
    assert!(drive.effects.iter().any(|e| matches!(e, Effect::LaneFree(_))), "and out of the way");
    assert!(!drive.effects.iter().any(|e| matches!(e, Effect::IdBack { .. })));
    let effects = drive.answer(Answer::Leftovers(Ok(Vec::new())));
    assert_eq!(drive.state(), "Gone");
    assert!(effects.iter().any(|e| matches!(e, Effect::IdBack { burned: false, .. })));
    assert!(!drive.effects.iter().any(|e| matches!(e, Effect::Learnt(_))), "nothing was retired");
}

#[test]
fn what_a_clone_that_failed_left_behind_calls_an_administrator_and_keeps_its_id() {
    let mut drive = undone();
    drive.answer(Answer::Leftovers(Ok(vec!["nfs:10417/vm-10417-disk-0.qcow2".to_owned()])));
    assert_eq!((drive.state(), drive.mind.standing()), ("Stranded", Standing::Parked));
    assert!(drive.facts().iter().any(|what| matches!(what, What::Alarm { command, .. }
        if command == "pvesm free nfs:10417/vm-10417-disk-0.qcow2 # on node n1")));
    let mut drive = drive.adopt(secs(60));
    assert_eq!(drive.state(), "Stranded");
    drive.answer(Answer::Looked(Ok(Drive::free())));
    assert_eq!(drive.mind.standing(), Standing::Parked, "as before");
    let effects = drive.answer(Answer::Leftovers(Ok(Vec::new())));
    assert!(effects.iter().any(|e| matches!(e, Effect::IdBack { burned: false, .. })));
}

#[test]
fn nobody_is_told_to_free_what_somebody_elses_guest_may_have_by_now() {
    let mut drive = undone();
    drive.answer(Answer::Leftovers(Ok(vec!["nfs:10417/vm-10417-disk-0.qcow2".to_owned()])));
    drive.wait(secs(60));
    let strangers = drive.strangers();
    let effects = drive.answer(Answer::Looked(Ok(strangers)));
    assert_eq!(drive.state(), "Gone");
    assert!(effects.iter().any(|e| matches!(e, Effect::IdBack { burned: true, .. })));
}

#[test]
fn a_clone_that_failed_on_a_storage_out_of_reach_keeps_its_id_and_leaves_the_caps_with_an_alarm() {
    let mut drive = undone();
    let away = Fault::new(FaultKind::Contention, Culprit::Storage("nfs".into()), "not active");
    while !drive.facts().iter().any(|what| matches!(what, What::Alarm { .. })) {
        assert_eq!((drive.state(), drive.mind.standing()), ("Retiring", Standing::Leaving));
        if drive.asked().is_some() {
            drive.answer(Answer::Leftovers(Err(away.clone())));
        }
        drive.wait(secs(10));
    }
    assert!(drive.facts().iter().any(|what| matches!(what, What::Alarm { command, .. }
        if command.starts_with("pvesm list nfs --vmid 10417 # on node n1"))));
    assert_eq!((drive.state(), drive.mind.standing()), ("Retiring", Standing::Parked));
    while drive.asked().is_none() {
        drive.wait(secs(10));
    }
    drive.answer(Answer::Leftovers(Ok(Vec::new())));
    assert_eq!(drive.state(), "Gone");
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
    assert_eq!((drive.state(), drive.mind.state().leaving()), ("Gone", Some(&why)));
}

#[test]
fn an_id_that_was_taken_is_burned_and_left_alone() {
    let mut drive = at("Cloning");
    for sight in [drive.strangers(), Drive::free()] {
        let mut drive = at("Cloning");
        drive.answer(Answer::Cloned(Err(fault(FaultKind::IdTaken))));
        let effects = drive.answer(Answer::Looked(Ok(sight)));
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
    let mut drive = at("Cloning");
    drive.answer(Answer::Cloned(Err(fault(FaultKind::IdTaken))));
    let bare =
        VmSight { marks: Some(Reading::Unmarked), lock: Some("clone".into()), ..drive.sight() };
    drive.answer(Answer::Looked(Ok(bare)));
    assert_eq!(drive.state(), "InDoubt", "nobody can tell yet");
    while drive.asked().is_none() {
        drive.wait(secs(1));
    }
    let ours = drive.sight();
    drive.answer(Answer::Looked(Ok(ours)));
    assert_eq!(drive.state(), "Configuring");
}

#[test]
fn a_clone_that_lost_against_the_same_call_arriving_twice_waits_for_the_winner() {
    let mut drive = at("Cloning");
    drive.answer(Answer::Cloned(Ok(upid("qmclone"))));
    drive.answer(Answer::TaskEnded(Ok(TaskEnd::Failed(fault(FaultKind::Contention)))));
    let bare =
        VmSight { marks: Some(Reading::Unmarked), lock: Some("clone".into()), ..drive.sight() };
    for _ in 0..3 {
        while drive.asked().is_none() {
            drive.wait(secs(1));
        }
        drive.answer(Answer::Looked(Ok(bare.clone())));
        assert_eq!(drive.state(), "InDoubt", "the winner is still copying");
    }
    while drive.asked().is_none() {
        drive.wait(secs(1));
    }
    let ours = drive.sight();
    drive.answer(Answer::Looked(Ok(ours)));
    assert_eq!(drive.state(), "Retiring", "it is ours, and nobody else's to clean up");
}

#[test]
fn a_clone_of_unknown_outcome_is_looked_up_and_taken_on_by_its_marks() {
    let mut drive = at("Cloning");
    drive.answer(Answer::Cloned(Err(fault(FaultKind::UnknownOutcome))));
    assert_eq!(drive.state(), "InDoubt");
    let ours = drive.sight();
    drive.answer(Answer::Looked(Ok(ours)));
    assert_eq!(drive.state(), "Configuring");
    assert!(drive.records().iter().any(|body| matches!(body, Body::CloneSettled { .. })));
}

/// When a clone of unknown outcome whose id stays free is believed never to have been made.
fn believed_unmade(call: Duration) -> Duration {
    let mut limits = spec().limits;
    limits.call = call;
    let mut drive = Drive::new(TemplateSpec { limits, ..spec() });
    drive.go_to("Cloning");
    let begun = drive.now.mono;
    drive.answer(Answer::Cloned(Err(fault(FaultKind::UnknownOutcome))));
    while drive.state() == "InDoubt" {
        if drive.asked().is_some() {
            drive.answer(Answer::Looked(Ok(Drive::free())));
        }
        drive.wait(secs(1));
    }
    let spent = drive.now.mono - begun;
    drive.answer(Answer::Leftovers(Ok(Vec::new())));
    assert_eq!(drive.state(), "Gone");
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
    let mut drive = at("Cloning");
    drive.answer(Answer::Cloned(Err(fault(FaultKind::UnknownOutcome))));
    let strangers = drive.strangers();
    let effects = drive.answer(Answer::Looked(Ok(strangers)));
    assert_eq!(drive.state(), "Gone");
    assert!(effects.iter().any(|e| matches!(e, Effect::IdBack { burned: true, .. })));
}

#[test]
fn a_locked_copy_whose_task_died_is_stranded() {
    let mut drive = at("Cloning");
    drive.answer(Answer::Cloned(Ok(upid("qmclone"))));
    drive.answer(Answer::TaskEnded(Ok(TaskEnd::Unknown("unexpected status".into()))));
    let marks = Some(Reading::Unmarked);
    let bare = VmSight { marks, lock: Some("clone".into()), ..drive.sight() };
    drive.answer(Answer::Looked(Ok(bare)));
    assert_eq!(drive.state(), "Stranded");
    assert!(drive.facts().iter().any(|what| matches!(what, What::Alarm { command, .. }
        if command.contains("qm destroy 10417"))));
}

#[test]
fn a_guest_seen_in_the_last_step_of_a_destroy_is_no_stranger() {
    let mut drive = at("Cloning");
    drive.answer(Answer::Cloned(Err(fault(FaultKind::UnknownOutcome))));
    let marks = Some(Reading::Unmarked);
    let going = VmSight { marks, lock: Some("destroyed".into()), ..drive.sight() };
    drive.answer(Answer::Looked(Ok(going)));
    assert_eq!(drive.state(), "InDoubt");
}

#[test]
fn a_cancelled_clone_is_not_cut_and_retires_when_it_is_there() {
    let mut drive = at("Cloning");
    drive.answer(Answer::Cloned(Ok(upid("qmclone"))));
    assert!(calls(&drive.command(AgentCommand::Retire(Reason::Cancelled))).is_empty());
    assert_eq!(drive.mind.standing(), Standing::Leaving);
    drive.answer(Answer::TaskEnded(Ok(TaskEnd::Done { warnings: Vec::new() })));
    assert_eq!(drive.state(), "Retiring");
}

#[test]
fn a_clone_slower_than_an_operation_is_in_doubt_and_stranded_past_its_cap() {
    let mut drive = at("Cloning");
    drive.answer(Answer::Cloned(Ok(upid("qmclone"))));
    drive.wait(secs(121));
    assert_eq!(drive.state(), "InDoubt");
    drive.wait(secs(500));
    assert_eq!(drive.state(), "Stranded");
}

// Invariant: what may pass is tried again, what stays ends the agent with its culprit.

#[test]
fn contention_while_configuring_is_tried_again_later() {
    let mut drive = at("Configuring");
    drive.answer(Answer::Configured(Err(fault(FaultKind::Contention))));
    assert_eq!(drive.state(), "Configuring");
    drive.wait(secs(2));
    assert_eq!(drive.asked().map(|(_, call)| call), Some(Call::Configure));
}

#[test]
fn those_who_failed_together_do_not_try_again_together() {
    let due = |draw: u64| {
        let mut drive = at("Configuring");
        drive.draw = draw;
        drive.answer(Answer::Configured(Err(fault(FaultKind::Contention))));
        drive.wake().expect("a wake").1 - drive.now.mono
    };
    assert_eq!((due(0), due(1 << 63)), (secs(2), Duration::from_millis(2500)));
    assert!(due(u64::MAX) < secs(3));
}

#[test]
fn refused_tags_are_a_remark_and_no_failure() {
    let mut drive = at("Configuring");
    let tags_refused = Some("403".to_owned());
    drive.answer(Answer::Configured(Ok(Configured {
        volumes: vec![],
        mac: None,
        tags_refused,
        image_refused: None,
    })));
    assert_eq!(drive.state(), "Booting");
    assert!(drive.facts().iter().any(|what| matches!(what, What::Agent(picture)
        if picture.detail.contains("tags were refused"))));
}

#[test]
fn a_start_of_a_guest_that_runs_already_goes_on() {
    let mut drive = at("Booting");
    drive.answer(Answer::Accepted(Ok(upid("qmstart"))));
    drive.answer(Answer::TaskEnded(Ok(TaskEnd::Failed(fault(FaultKind::Broken)))));
    let running = drive.sight();
    drive.answer(Answer::Looked(Ok(running)));
    drive.wait(secs(1));
    assert_eq!(drive.asked().map(|(_, call)| call), Some(Call::Address));
}

/// A mind whose guest's start has just ended.
fn started() -> Drive {
    let mut drive = at("Booting");
    drive.answer(Answer::Accepted(Ok(upid("qmstart"))));
    drive.answer(Answer::TaskEnded(Ok(TaskEnd::Done { warnings: Vec::new() })));
    drive
}

/// Refuses the address some times, each after `blocked`, and gives the pauses before each question.
fn pauses(drive: &mut Drive, blocked: Duration, times: u32) -> Vec<u64> {
    let mut pauses = Vec::new();
    for _ in 0..times {
        let due = drive.wake().expect("a wake").1;
        pauses.push(u64::try_from((due - drive.now.mono).as_millis()).unwrap_or(u64::MAX));
        drive.wait(due - drive.now.mono);
        assert_eq!(drive.asked().map(|(_, call)| call), Some(Call::Address));
        drive.wait(blocked);
        drive.answer(Answer::Addressed(Ok(AddressSight::NotYet("no agent".into()))));
    }
    pauses
}

#[test]
fn an_address_is_first_asked_for_a_second_after_the_start_then_ever_more_slowly() {
    let refused = pauses(&mut started(), Duration::ZERO, 15);
    assert_eq!(refused[..12], [1000, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500]);
    assert_eq!(refused[12..], [2750, 4125, 5000]);
}

#[test]
fn a_refusal_that_blocked_a_worker_is_soon_followed_by_the_next_question() {
    assert_eq!(pauses(&mut started(), secs(3), 5), [1000, 500, 500, 500, 500]);
    assert_eq!(pauses(&mut started(), Duration::from_millis(1999), 3), [1000, 500, 500]);
}

#[test]
fn a_guest_of_a_template_that_is_known_is_first_asked_when_the_fastest_was_up() {
    let mut drive = at("Booting");
    drive.mind.teach(Some(Booted { up: secs(9), address: secs(2) }));
    drive.answer(Answer::Accepted(Ok(upid("qmstart"))));
    drive.answer(Answer::TaskEnded(Ok(TaskEnd::Done { warnings: Vec::new() })));
    assert_eq!(pauses(&mut drive, secs(3), 2), [9000, 500]);
    assert_eq!(pauses(&mut drive, Duration::ZERO, 3), [500, 2000, 600]);
    drive.wait(Duration::from_millis(620));
    let address = AddressSight::At(ADDRESS.parse().expect("an address"));
    let effects = drive.answer(Answer::Addressed(Ok(address)));
    let booted = Booted { up: secs(16), address: Duration::from_millis(3220) };
    assert!(effects.contains(&Effect::Booted(booted)), "{effects:?}");
}

#[test]
fn the_host_keys_are_asked_for_in_the_turn_the_address_comes() {
    let mut drive = started();
    drive.wait(secs(1));
    let address = AddressSight::At(ADDRESS.parse().expect("an address"));
    let effects = drive.answer(Answer::Addressed(Ok(address)));
    assert_eq!(calls(&effects), [Call::HostKeys]);
}

#[test]
fn an_address_that_never_comes_is_too_slow_and_charged_to_the_template() {
    let mut drive = at("Booting");
    drive.answer(Answer::Accepted(Ok(upid("qmstart"))));
    drive.answer(Answer::TaskEnded(Ok(TaskEnd::Done { warnings: Vec::new() })));
    let mut polls = 0;
    while drive.state() == "Booting" {
        if drive.asked().is_some() {
            polls += 1;
            drive.answer(Answer::Addressed(Ok(AddressSight::NotYet("no answer".into()))));
        }
        drive.wait(secs(1));
    }
    assert_eq!(drive.state(), "Retiring");
    assert!((30..60).contains(&polls), "{polls}");
    let charged = drive.reports().iter().rev().find_map(|r| r.fault.clone()).expect("a fault");
    assert!(charged.kind.counts_against_breaker() && charged.text.contains("no answer"));
}

/// Lets a state run into its deadline, refusing every call with this fault, and gives the charge.
fn charged_when_slow(state: &str, kind: FaultKind, culprit: Culprit) -> Fault {
    let mut drive = at(state);
    let refusal = Fault { culprit, ..fault(kind) };
    while drive.state() == state {
        if let Some((_, call)) = drive.asked() {
            drive.answer(refused(&call, refusal.clone()));
        }
        drive.wait(secs(1));
    }
    let reports = drive.reports();
    reports.iter().rev().find_map(|report| report.fault.clone()).expect("a fault")
}

#[test]
fn a_deadline_is_charged_unless_the_cluster_was_contended_or_silent() {
    let cloud = || Culprit::Cloud(crate::id::CloudId::new("primary"));
    for (state, kind, culprit, counts) in [
        ("Configuring", FaultKind::Contention, Culprit::Guest, false),
        ("Configuring", FaultKind::Locked { lock: "backup".into() }, Culprit::Guest, false),
        ("Configuring", FaultKind::Unreachable, cloud(), false),
        ("Booting", FaultKind::UnknownOutcome, cloud(), false),
        ("Connecting", FaultKind::Unreachable, Culprit::Guest, true),
        ("Preparing", FaultKind::UnknownOutcome, Culprit::Guest, true),
    ] {
        let charged = charged_when_slow(state, kind.clone(), culprit);
        assert_eq!(charged.kind.counts_against_breaker(), counts, "{state} {kind:?}");
        assert!(charged.text.contains("took too long"), "{charged}");
    }
}

#[test]
fn a_clone_whose_task_runs_past_its_cap_is_charged_and_one_nobody_knows_of_is_not() {
    for (accepted, counts) in [(true, true), (false, false)] {
        let mut drive = at("Cloning");
        if accepted {
            drive.answer(Answer::Cloned(Ok(upid("qmclone"))));
        } else {
            drive.answer(Answer::Cloned(Err(fault(FaultKind::UnknownOutcome))));
        }
        drive.wait(secs(700));
        assert_eq!(drive.state(), "Stranded");
        let charged = drive.reports().iter().rev().find_map(|report| report.fault.clone());
        assert_eq!(charged.is_some_and(|f| f.kind.counts_against_breaker()), counts);
    }
}

#[test]
fn a_guest_that_stops_before_it_is_ready_is_charged() {
    let mut drive = at("Preparing");
    drive.command(AgentCommand::SeenStopped);
    let stopped = VmSight { running: Some(false), ..drive.sight() };
    drive.answer(Answer::Looked(Ok(stopped)));
    assert_eq!(drive.state(), "Retiring");
    let charged = drive.reports().iter().rev().find_map(|r| r.fault.clone()).expect("a fault");
    assert!(charged.kind.counts_against_breaker());
}

#[test]
fn a_rejected_key_ends_the_agent_at_once() {
    let mut drive = at("Connecting");
    drive.answer(Answer::Greeted(Err(fault(FaultKind::KeyRejected))));
    assert_eq!(drive.state(), "Retiring");
}

#[test]
fn a_host_key_mismatch_is_read_again_once() {
    let mut drive = at("Connecting");
    drive.answer(Answer::Greeted(Err(fault(FaultKind::Impostor))));
    drive.answer(Answer::HostKeys(Ok(vec!["ssh-ed25519 NEWER".into()])));
    assert!(matches!(drive.asked(), Some((_, Call::Greet(..)))));
    drive.answer(Answer::Greeted(Err(fault(FaultKind::Impostor))));
    assert_eq!(drive.state(), "Retiring");
}

#[test]
fn a_host_key_nobody_could_tell_is_pinned_on_first_sight() {
    let mut drive = started();
    drive.wait(secs(1));
    let address = AddressSight::At(ADDRESS.parse().expect("an address"));
    drive.answer(Answer::Addressed(Ok(address)));
    drive.answer(Answer::HostKeys(Ok(Vec::new())));
    drive.answer(Answer::Greeted(Ok("ssh-ed25519 SEEN".into())));
    assert!(drive.records().iter().any(|body| matches!(body, Body::HostKeyPinned { keys, .. }
        if keys == &["ssh-ed25519 SEEN".to_owned()])));
}

#[test]
fn a_failed_ready_command_shows_its_last_lines() {
    let mut drive = at("Preparing");
    let fine = Ran { exit: Some(0), tail: String::new() };
    drive.answer(Answer::Ran(Ok(fine.clone())));
    let Some((_, Call::Run(_, command, _))) = drive.asked() else { panic!("no command") };
    assert!(command.ends_with(r" drover '/home/ci/it'\''s work' 'java'"), "{command}");
    drive.answer(Answer::Ran(Ok(fine.clone())));
    drive.answer(Answer::Ran(Ok(fine)));
    drive.answer(Answer::Ran(Ok(Ran { exit: Some(3), tail: "docker: not found\n".into() })));
    assert_eq!(drive.state(), "Retiring");
    let reason = drive.ledger.agents[&agent_id()].retiring.clone().expect("a reason");
    let Reason::Failed { state, text, .. } = reason else { panic!("{reason:?}") };
    assert_eq!(state, "Preparing");
    assert_eq!(text, "the step `readyCommand` ended with exit status 3; last: docker: not found");
}

#[test]
fn a_guest_that_is_gone_is_believed_only_from_the_id() {
    let mut drive = at("Configuring");
    drive.answer(Answer::Configured(Err(fault(FaultKind::Gone))));
    let nothing_known = VmSight { id: IdSight::Unknown, ..Drive::free() };
    drive.answer(Answer::Looked(Ok(nothing_known)));
    assert_eq!(drive.state(), "Configuring");
    drive.wait(secs(5));
    drive.answer(Answer::Configured(Err(fault(FaultKind::Gone))));
    drive.answer(Answer::Looked(Ok(Drive::free())));
    assert_eq!(drive.state(), "Gone");
}

// Invariant: the waterfall's phases sum to the wall time.

#[test]
fn the_phases_sum_to_the_wall_time() {
    let mut drive = Drive::new(spec());
    let born = drive.now.mono;
    for state in ["Cloning", "Configuring", "Booting", "Connecting", "Preparing", "Ready"] {
        drive.wait(Duration::from_millis(333));
        drive.go_to(state);
    }
    drive.wait(Duration::from_millis(500));
    drive.command(AgentCommand::Retire(Reason::Asked));
    drive.wait(Duration::from_millis(250));
    drive.go_to("Gone");
    let phases = drive.facts().into_iter().find_map(|what| match what {
        What::AgentGone { phases, .. } => Some(phases.clone()),
        _ => None,
    });
    let sum: u64 = phases.expect("an end").iter().map(|(_, ms)| ms).sum();
    assert_eq!(sum, drive.now.mono.0 - born.0);
}

// Invariant: whatever the journal says, an adopted guest is looked at before it is touched.

#[test]
fn every_adopted_agent_looks_or_fences_first() {
    let states = ["Cloning", "Configuring", "Booting", "Connecting", "Preparing", "Ready"];
    for state in states {
        let adopted = at(state).adopt(secs(30));
        assert_eq!(adopted.calls(), [Call::Look], "{state}");
    }
    let mut retiring = at("Ready");
    retiring.command(AgentCommand::Retire(Reason::Asked));
    assert_eq!(retiring.adopt(secs(30)).calls(), [Call::Fence]);
}

#[test]
fn adopted_agents_get_ready_again_from_wherever_they_were() {
    for state in ["Cloning", "Configuring", "Booting", "Connecting", "Preparing", "Ready"] {
        let mut adopted = at(state).adopt(secs(30));
        adopted.go_to("Ready");
        let clones = adopted.calls().into_iter().filter(|c| matches!(c, Call::Clone { .. }));
        assert_eq!(clones.count(), 0, "{state}");
    }
}

#[test]
fn an_adopted_lease_is_credited_with_the_down_time() {
    let mut drive = at("Ready");
    drive.command(AgentCommand::Lease { ask: Box::new(ask("l1", None)) });
    let before = drive.ledger.agents[&agent_id()].leases.values().next().expect("one").expires;
    let mut adopted = drive.adopt(secs(300));
    let after = adopted.ledger.agents[&agent_id()].leases.values().next().expect("one").expires;
    assert_eq!(after - before, secs(300));
    let running = adopted.sight();
    adopted.answer(Answer::Looked(Ok(running)));
    assert_eq!((adopted.state(), adopted.mind.standing()), ("Leased", Standing::Busy));
}

#[test]
fn an_adopted_guest_that_stopped_meanwhile_is_retired_and_its_lease_is_lost() {
    let mut drive = at("Ready");
    drive.command(AgentCommand::Lease { ask: Box::new(ask("l1", None)) });
    let mut adopted = drive.adopt(secs(300));
    let stopped = VmSight { running: Some(false), ..adopted.sight() };
    adopted.answer(Answer::Looked(Ok(stopped)));
    assert_eq!(adopted.state(), "Retiring");
    assert!(adopted.ledger.ended.values().any(|ended| ended.why == "lost"));
}

// Invariant: a fenced or resting agent does nothing more.

#[test]
fn a_rest_forgets_everything_and_a_fence_sends_nothing() {
    for event in [Event::Fenced, Event::Command(AgentCommand::Rest)] {
        let mut drive = at("Booting");
        assert_eq!(drive.event(event), [Effect::End]);
        assert!(drive.command(AgentCommand::Retire(Reason::Asked)).is_empty());
    }
}
