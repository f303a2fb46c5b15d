//! From the concurrency limits to `Ready`, and adoption.

use std::time::Duration;

use drover_model::fact::What;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::Attempt;
use drover_model::phase::AgentPhase;
use drover_model::ports::{AddressObservation, Configured, IdStatus, Ran, TaskEnd, VmObservation};
use drover_model::record::{Body, Reason};
use drover_model::status::Standing;

use crate::agent::event::{Answer, Call, Effect, Event};
use crate::agent::testing::*;
use crate::boot_times::Booted;
use crate::message::AgentCommand;

pub(super) fn at(state: AgentPhase) -> Drive {
    let mut drive = Drive::new(spec());
    drive.go_to(state);
    drive
}

fn position(effects: &[Effect], wanted: impl Fn(&Effect) -> bool) -> usize {
    effects.iter().position(wanted).expect("the effect is there")
}

// Invariant: the intent is written before the call, and an agent makes one clone call in its life.

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
    let drive = at(AgentPhase::Ready);
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
    let mut drive = at(AgentPhase::Cloning);
    let effects = drive.command(AgentCommand::Granted {
        vmid: drover_model::id::VmId(10_999),
        node: drover_model::id::NodeName::new("n2"),
        cluster: drover_model::id::ClusterId::new("9f31c0aa52e7d410"),
        spec: None,
    });
    assert!(
        effects.contains(&Effect::IdBack { vmid: drover_model::id::VmId(10_999), burned: false })
    );
}

#[test]
fn a_cancelled_queued_agent_uses_nothing_and_waits_for_a_late_grant() {
    let mut drive = Drive::new(spec());
    let effects = drive.command(AgentCommand::Retire(Reason::Cancelled));
    assert_eq!(drive.state(), AgentPhase::Gone);
    assert!(
        effects.contains(&Effect::LaneFree(drover_limits::concurrency::OperationEnd::Inconclusive))
    );
    assert!(drive.records().is_empty() && drive.calls().is_empty());
    let late = drive.grant();
    assert!(late.iter().any(|effect| matches!(effect, Effect::IdBack { burned: false, .. })));
    drive.wait(secs(6));
    assert_eq!(drive.effects.last(), Some(&Effect::End));
}

// Invariant: a stale answer changes nothing.

#[test]
fn an_answer_to_an_older_attempt_is_dropped() {
    let mut drive = at(AgentPhase::Cloning);
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

// Invariant: a fault that may pass is tried again; another ends the agent and names its culprit.

#[test]
fn contention_while_configuring_is_tried_again_later() {
    let mut drive = at(AgentPhase::Configuring);
    drive.answer(Answer::Configured(Err(fault(FaultKind::Contention))));
    assert_eq!(drive.state(), AgentPhase::Configuring);
    drive.wait(secs(2));
    assert_eq!(drive.asked().map(|(_, call)| call), Some(Call::Configure));
}

#[test]
fn those_who_failed_together_do_not_try_again_together() {
    let due = |draw: u64| {
        let mut drive = at(AgentPhase::Configuring);
        drive.draw = draw;
        drive.answer(Answer::Configured(Err(fault(FaultKind::Contention))));
        drive.wake().expect("a wake").1 - drive.now.mono
    };
    assert_eq!((due(0), due(1 << 63)), (secs(2), Duration::from_millis(2500)));
    assert!(due(u64::MAX) < secs(3));
}

#[test]
fn refused_tags_are_a_remark_and_no_failure() {
    let mut drive = at(AgentPhase::Configuring);
    let tags_refused = Some("403".to_owned());
    drive.answer(Answer::Configured(Ok(Configured {
        volumes: vec![],
        mac: None,
        tags_refused,
        image_refused: None,
    })));
    assert_eq!(drive.state(), AgentPhase::Booting);
    assert!(drive.facts().iter().any(|what| matches!(what, What::Agent(status)
        if status.detail.contains("tags were refused"))));
}

#[test]
fn a_start_of_a_guest_that_runs_already_goes_on() {
    let mut drive = at(AgentPhase::Booting);
    drive.answer(Answer::Accepted(Ok(upid("qmstart"))));
    drive.answer(Answer::TaskEnded(Ok(TaskEnd::Failed(fault(FaultKind::Broken)))));
    let running = drive.observation();
    drive.answer(Answer::Looked(Ok(running)));
    drive.wait(secs(4));
    assert_eq!(drive.asked().map(|(_, call)| call), Some(Call::Address));
}

/// A mind whose guest's start has just ended.
fn started() -> Drive {
    let mut drive = at(AgentPhase::Booting);
    drive.answer(Answer::Accepted(Ok(upid("qmstart"))));
    drive.answer(Answer::TaskEnded(Ok(TaskEnd::Done { warnings: Vec::new() })));
    drive
}

/// Refuses the address `times` times, each after `blocked`. Returns the pauses before each
/// question.
fn pauses(drive: &mut Drive, blocked: Duration, times: u32) -> Vec<u64> {
    let mut pauses = Vec::new();
    for _ in 0..times {
        let due = drive.wake().expect("a wake").1;
        pauses.push(u64::try_from((due - drive.now.mono).as_millis()).unwrap_or(u64::MAX));
        drive.wait(due - drive.now.mono);
        assert_eq!(drive.asked().map(|(_, call)| call), Some(Call::Address));
        drive.wait(blocked);
        drive.answer(Answer::Addressed(Ok(AddressObservation::NotYet("no agent".into()))));
    }
    pauses
}

#[test]
fn an_address_is_first_asked_for_four_seconds_after_the_start_then_ever_more_slowly() {
    let refused = pauses(&mut started(), Duration::ZERO, 15);
    assert_eq!(refused[..12], [4000, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500]);
    assert_eq!(refused[12..], [2750, 4125, 5000]);
}

#[test]
fn a_refusal_that_blocked_a_worker_is_soon_followed_by_the_next_question() {
    assert_eq!(pauses(&mut started(), secs(3), 5), [4000, 500, 500, 500, 500]);
    assert_eq!(pauses(&mut started(), Duration::from_millis(1999), 3), [4000, 500, 500]);
}

#[test]
fn a_guest_of_a_template_that_is_known_is_first_asked_when_the_fastest_was_up() {
    let mut drive = at(AgentPhase::Booting);
    drive.mind.inform(Some(Booted { up: secs(9), address: secs(2) }));
    drive.answer(Answer::Accepted(Ok(upid("qmstart"))));
    drive.answer(Answer::TaskEnded(Ok(TaskEnd::Done { warnings: Vec::new() })));
    assert_eq!(pauses(&mut drive, secs(3), 2), [9000, 500]);
    assert_eq!(pauses(&mut drive, Duration::ZERO, 3), [500, 2000, 600]);
    drive.wait(Duration::from_millis(620));
    let address = AddressObservation::At(ADDRESS.parse().expect("an address"));
    let effects = drive.answer(Answer::Addressed(Ok(address)));
    let booted = Booted { up: secs(16), address: Duration::from_millis(3220) };
    assert!(effects.contains(&Effect::Booted(booted)), "{effects:?}");
}

#[test]
fn the_host_keys_are_asked_for_in_the_turn_the_address_comes() {
    let mut drive = started();
    drive.wait(secs(4));
    let address = AddressObservation::At(ADDRESS.parse().expect("an address"));
    let effects = drive.answer(Answer::Addressed(Ok(address)));
    assert_eq!(calls(&effects), [Call::HostKeys]);
}

#[test]
fn an_address_that_never_comes_is_too_slow_and_charged_to_the_template() {
    let mut drive = at(AgentPhase::Booting);
    drive.answer(Answer::Accepted(Ok(upid("qmstart"))));
    drive.answer(Answer::TaskEnded(Ok(TaskEnd::Done { warnings: Vec::new() })));
    let mut polls = 0;
    while drive.state() == AgentPhase::Booting {
        if drive.asked().is_some() {
            polls += 1;
            drive.answer(Answer::Addressed(Ok(AddressObservation::NotYet("no answer".into()))));
        }
        drive.wait(secs(1));
    }
    assert_eq!(drive.state(), AgentPhase::Retiring);
    assert!((30..60).contains(&polls), "{polls}");
    let charged = drive.reports().iter().rev().find_map(|r| r.fault.clone()).expect("a fault");
    assert!(charged.kind.counts_against_breaker() && charged.text.contains("no answer"));
}

/// Lets a state run into its deadline with this fault on every call. Returns the fault that is
/// charged.
fn charged_when_slow(state: AgentPhase, kind: FaultKind, culprit: Culprit) -> Fault {
    let mut drive = at(state);
    let refusal = Fault { culprit, ..fault(kind) };
    while drive.state() == state {
        if let Some((_, call)) = drive.asked() {
            drive.answer(refused(&call, refusal.clone()));
        }
        drive.wait(secs(1));
    }
    let reported = drive.records().into_iter().find_map(|body| match body {
        Body::RetireIntended { reason, .. } => Some(reason.to_string()),
        _ => None,
    });
    assert!(
        reported.as_ref().is_some_and(|reported| reported.ends_with(&refusal.text)),
        "{state}: {reported:?}"
    );
    let reports = drive.reports();
    reports.iter().rev().find_map(|report| report.fault.clone()).expect("a fault")
}

#[test]
fn a_deadline_is_charged_unless_the_cluster_was_contended_or_silent() {
    let cloud = || Culprit::Cloud(drover_model::id::CloudId::new("primary"));
    for (state, kind, culprit, counts) in [
        (AgentPhase::Configuring, FaultKind::Contention, Culprit::Guest, false),
        (
            AgentPhase::Configuring,
            FaultKind::Locked { lock: "backup".into() },
            Culprit::Guest,
            false,
        ),
        (AgentPhase::Configuring, FaultKind::Unreachable, cloud(), false),
        (AgentPhase::Booting, FaultKind::UnknownOutcome, cloud(), false),
        (AgentPhase::Connecting, FaultKind::Unreachable, Culprit::Guest, true),
        (AgentPhase::Preparing, FaultKind::UnknownOutcome, Culprit::Guest, true),
    ] {
        let charged = charged_when_slow(state, kind.clone(), culprit);
        assert_eq!(charged.kind.counts_against_breaker(), counts, "{state} {kind:?}");
        assert!(charged.text.contains("took too long"), "{charged}");
        let looks =
            "; `drover hold-next primary/linux` keeps the next agent that fails, to look at";
        assert_eq!(charged.text.ends_with(looks), counts, "a guest shows it: {charged}");
    }
}

#[test]
fn a_clone_whose_task_runs_past_its_cap_is_charged_and_one_nobody_knows_of_is_not() {
    for (accepted, counts) in [(true, true), (false, false)] {
        let mut drive = at(AgentPhase::Cloning);
        if accepted {
            drive.answer(Answer::Cloned(Ok(upid("qmclone"))));
        } else {
            drive.answer(Answer::Cloned(Err(fault(FaultKind::UnknownOutcome))));
        }
        drive.wait(secs(700));
        assert_eq!(drive.state(), AgentPhase::Stranded);
        let charged = drive.reports().iter().rev().find_map(|report| report.fault.clone());
        assert_eq!(charged.is_some_and(|f| f.kind.counts_against_breaker()), counts);
    }
}

#[test]
fn a_guest_that_stops_before_it_is_ready_is_charged() {
    let mut drive = at(AgentPhase::Preparing);
    drive.command(AgentCommand::SeenStopped);
    let stopped = VmObservation { running: Some(false), ..drive.observation() };
    drive.answer(Answer::Looked(Ok(stopped)));
    assert_eq!(drive.state(), AgentPhase::Retiring);
    let charged = drive.reports().iter().rev().find_map(|r| r.fault.clone()).expect("a fault");
    assert!(charged.kind.counts_against_breaker());
}

#[test]
fn a_rejected_key_ends_the_agent_at_once() {
    let mut drive = at(AgentPhase::Connecting);
    drive.answer(Answer::Greeted(Err(fault(FaultKind::KeyRejected))));
    assert_eq!(drive.state(), AgentPhase::Retiring);
}

#[test]
fn a_host_key_mismatch_is_read_again_once() {
    let mut drive = at(AgentPhase::Connecting);
    drive.answer(Answer::Greeted(Err(fault(FaultKind::Impostor))));
    drive.answer(Answer::HostKeys(Ok(vec!["ssh-ed25519 NEWER".into()])));
    assert!(matches!(drive.asked(), Some((_, Call::Greet(..)))));
    drive.answer(Answer::Greeted(Err(fault(FaultKind::Impostor))));
    assert_eq!(drive.state(), AgentPhase::Retiring);
}

#[test]
fn a_host_key_nobody_knew_is_pinned_on_first_observation() {
    let mut drive = started();
    drive.wait(secs(4));
    let address = AddressObservation::At(ADDRESS.parse().expect("an address"));
    drive.answer(Answer::Addressed(Ok(address)));
    drive.answer(Answer::HostKeys(Ok(Vec::new())));
    drive.answer(Answer::Greeted(Ok("ssh-ed25519 SEEN".into())));
    assert!(drive.records().iter().any(|body| matches!(body, Body::HostKeyPinned { keys, .. }
        if keys == &["ssh-ed25519 SEEN".to_owned()])));
}

#[test]
fn a_failed_ready_command_shows_its_last_lines() {
    let mut drive = at(AgentPhase::Preparing);
    let fine = Ran { exit: Some(0), tail: String::new() };
    drive.answer(Answer::Ran(Ok(fine.clone())));
    let Some((_, Call::Run(_, command, _))) = drive.asked() else { panic!("no command") };
    assert!(command.ends_with(r" drover '/home/ci/it'\''s work' 'java'"), "{command}");
    drive.answer(Answer::Ran(Ok(fine.clone())));
    drive.answer(Answer::Ran(Ok(fine)));
    drive.answer(Answer::Ran(Ok(Ran { exit: Some(3), tail: "docker: not found\n".into() })));
    drive.answer(Answer::Ran(Ok(Ran { exit: Some(0), tail: String::new() })));
    assert_eq!(drive.state(), AgentPhase::Retiring);
    let reason = drive.journal_state.agents[&agent_id()].retiring.clone().expect("a reason");
    let Reason::Failed { state, text, .. } = reason else { panic!("{reason:?}") };
    assert_eq!(state, AgentPhase::Preparing);
    assert_eq!(text, "the step `readyCommand` ended with exit status 3; last: docker: not found");
}

#[test]
fn a_guest_that_is_gone_is_believed_only_from_the_id() {
    let mut drive = at(AgentPhase::Configuring);
    drive.answer(Answer::Configured(Err(fault(FaultKind::Gone))));
    let nothing_known = VmObservation { id: IdStatus::Unknown, ..Drive::free() };
    drive.answer(Answer::Looked(Ok(nothing_known)));
    assert_eq!(drive.state(), AgentPhase::Configuring);
    drive.wait(secs(5));
    drive.answer(Answer::Configured(Err(fault(FaultKind::Gone))));
    drive.answer(Answer::Looked(Ok(Drive::free())));
    assert_eq!(drive.state(), AgentPhase::Gone);
}

// Invariant: the waterfall's phases sum to the wall time.

#[test]
fn the_phases_sum_to_the_wall_time() {
    let mut drive = Drive::new(spec());
    let born = drive.now.mono;
    for state in [
        AgentPhase::Cloning,
        AgentPhase::Configuring,
        AgentPhase::Booting,
        AgentPhase::Connecting,
        AgentPhase::Preparing,
        AgentPhase::Ready,
    ] {
        drive.wait(Duration::from_millis(333));
        drive.go_to(state);
    }
    drive.wait(Duration::from_millis(500));
    drive.command(AgentCommand::Retire(Reason::Asked));
    drive.wait(Duration::from_millis(250));
    drive.go_to(AgentPhase::Gone);
    let phases = drive.facts().into_iter().find_map(|what| match what {
        What::AgentGone { phases, .. } => Some(phases.clone()),
        _ => None,
    });
    let sum: u64 = phases.expect("an end").iter().map(|(_, ms)| ms).sum();
    assert_eq!(sum, drive.now.mono.0 - born.0);
}

// Invariant: whatever the journal says, an adopted guest is inspected before it is touched.

#[test]
fn every_adopted_agent_looks_or_fences_first() {
    let states = [
        AgentPhase::Cloning,
        AgentPhase::Configuring,
        AgentPhase::Booting,
        AgentPhase::Connecting,
        AgentPhase::Preparing,
        AgentPhase::Ready,
    ];
    for state in states {
        let adopted = at(state).adopt(secs(30));
        let first = if state == AgentPhase::Ready { Call::Confirm } else { Call::Look };
        assert_eq!(adopted.calls(), [first], "{state}");
    }
    let mut retiring = at(AgentPhase::Ready);
    retiring.command(AgentCommand::Retire(Reason::Asked));
    assert_eq!(retiring.adopt(secs(30)).calls(), [Call::Fence]);
}

#[test]
fn an_adopted_guest_whose_start_may_be_under_way_is_not_started_twice() {
    let mut adopted = at(AgentPhase::Booting).adopt(secs(30));
    let stopped = VmObservation { running: Some(false), ..adopted.observation() };
    adopted.answer(Answer::Looked(Ok(stopped)));
    assert_eq!(adopted.asked(), None);
    adopted.wait(secs(2));
    let running = adopted.observation();
    adopted.answer(Answer::Looked(Ok(running)));
    assert_eq!(adopted.calls(), [Call::Look, Call::Look, Call::Address]);
}

#[test]
fn an_adopted_guest_that_was_never_started_is_started_after_three_looks() {
    let mut adopted = at(AgentPhase::Booting).adopt(secs(30));
    for _ in 0..3 {
        let stopped = VmObservation { running: Some(false), ..adopted.observation() };
        adopted.answer(Answer::Looked(Ok(stopped)));
        adopted.wait(secs(2));
    }
    assert_eq!(adopted.calls(), [Call::Look, Call::Look, Call::Look, Call::Start]);
}

#[test]
fn adopted_agents_get_ready_again_from_wherever_they_were() {
    for state in [
        AgentPhase::Cloning,
        AgentPhase::Configuring,
        AgentPhase::Booting,
        AgentPhase::Connecting,
        AgentPhase::Preparing,
        AgentPhase::Ready,
    ] {
        let mut adopted = at(state).adopt(secs(30));
        adopted.go_to(AgentPhase::Ready);
        let clones = adopted.calls().into_iter().filter(|c| matches!(c, Call::Clone { .. }));
        assert_eq!(clones.count(), 0, "{state}");
    }
}

#[test]
fn an_adopted_lease_is_credited_with_the_down_time() {
    let mut drive = at(AgentPhase::Ready);
    drive.command(AgentCommand::Lease { ask: Box::new(ask("l1", None)) });
    let before =
        drive.journal_state.agents[&agent_id()].leases.values().next().expect("one").expires;
    let mut adopted = drive.adopt(secs(300));
    let after =
        adopted.journal_state.agents[&agent_id()].leases.values().next().expect("one").expires;
    assert_eq!(after - before, secs(300));
    let running = adopted.observation();
    adopted.answer(Answer::Looked(Ok(running)));
    assert_eq!((adopted.state(), adopted.mind.standing()), (AgentPhase::Leased, Standing::Busy));
}

#[test]
fn an_adopted_guest_that_stopped_meanwhile_is_retired_and_its_lease_is_lost() {
    let mut drive = at(AgentPhase::Ready);
    drive.command(AgentCommand::Lease { ask: Box::new(ask("l1", None)) });
    let mut adopted = drive.adopt(secs(300));
    let stopped = VmObservation { running: Some(false), ..adopted.observation() };
    adopted.answer(Answer::Looked(Ok(stopped)));
    assert_eq!(adopted.state(), AgentPhase::Retiring);
    assert!(adopted.journal_state.ended.values().any(|ended| ended.why == "lost"));
}

#[test]
fn an_adopted_agent_shows_since_when_it_is_in_its_state() {
    let ready = at(AgentPhase::Ready);
    let mut leased = ready.clone();
    leased.command(AgentCommand::Lease { ask: Box::new(ask("l1", None)) });
    for drive in [ready, leased] {
        let (state, since) = (drive.state(), drive.mind.report.waterfall().since());
        let adopted = drive.adopt(secs(300));
        assert_eq!((adopted.state(), adopted.mind.report.waterfall().since()), (state, since));
        let again = adopted.adopt(secs(300));
        assert_eq!(again.mind.report.waterfall().since(), since, "{state}");
    }
}

#[test]
fn an_agent_of_a_journal_without_phases_is_configured_again_unless_a_lease_is_on_it() {
    let ready = at(AgentPhase::Ready);
    let mut leased = ready.clone();
    leased.command(AgentCommand::Lease { ask: Box::new(ask("l1", None)) });
    for (mut drive, taken_up) in [(ready, AgentPhase::Configuring), (leased, AgentPhase::Leased)] {
        drive.journal_state.agents.values_mut().for_each(|entry| entry.state = None);
        assert_eq!(drive.adopt(secs(300)).state(), taken_up);
    }
}

// Invariant: a fenced or resting agent does nothing more.

#[test]
fn a_rest_forgets_everything_and_a_fence_sends_nothing() {
    for event in [Event::Fenced, Event::Command(AgentCommand::Rest)] {
        let mut drive = at(AgentPhase::Booting);
        assert_eq!(drive.event(event), [Effect::End]);
        assert!(drive.command(AgentCommand::Retire(Reason::Asked)).is_empty());
    }
}
