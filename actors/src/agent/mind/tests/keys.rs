//! Keys in the guest: the order of their changes, and leases that go on while no login succeeds.

use std::time::Duration;

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{Attempt, LeaseId, RunnerName, SourceId};
use drover_model::phase::AgentPhase;
use drover_model::ports::Sessions;
use drover_model::record::{Body, LeaseAsk};
use drover_model::spec::TemplateSpec;

use crate::agent::event::{Answer, Call, Effect, Event};
use crate::agent::testing::*;
use crate::message::AgentCommand;

pub(super) fn ready(executors: u32) -> Drive {
    let mut drive = Drive::new(TemplateSpec { executors, max_uses: Some(99), ..spec() });
    drive.go_to(AgentPhase::Ready);
    drive
}

pub(super) fn take(drive: &mut Drive, lease: &str) -> Vec<Effect> {
    let key = format!("ssh-ed25519 KEY{lease}");
    drive.command(AgentCommand::Lease { ask: Box::new(ask(lease, Some(&key))) })
}

fn start_runner(drive: &mut Drive, lease: &str) -> Vec<Effect> {
    let ask = LeaseAsk { source: Some(SourceId::new("git")), ..ask(lease, None) };
    drive.command(AgentCommand::Lease { ask: Box::new(ask) })
}

pub(super) fn end(drive: &mut Drive, lease: &str) -> Vec<Effect> {
    let lease = LeaseId::new(lease);
    drive.command(AgentCommand::EndLease { lease, why: "released".into() })
}

/// The last call for a lease, spelled `admit l1` or `expel l1`.
fn asked(drive: &Drive, wanted: &str) -> Attempt {
    let of = |effect: &Effect| match effect {
        Effect::Ask(attempt, call) if spelled(call) == wanted => Some(*attempt),
        _ => None,
    };
    drive.effects.iter().rev().find_map(of).expect("it was asked for")
}

pub(super) fn spelled(call: &Call) -> String {
    match call {
        Call::Admit(_, lease, _) => format!("admit {lease}"),
        Call::Expel(_, lease, ..) => format!("expel {lease}"),
        Call::Unlock(..) => "unlock".into(),
        other => format!("{other:?}").split([' ', '(']).next().unwrap_or_default().to_lowercase(),
    }
}

fn said(effects: &[Effect]) -> Vec<String> {
    calls(effects).iter().map(spelled).collect()
}

pub(super) fn answer(drive: &mut Drive, call: &str, result: Result<(), FaultKind>) -> Vec<Effect> {
    let (verb, lease) = call.split_once(' ').expect("two words");
    let (attempt, result) = (asked(drive, call), result.map_err(fault));
    let lease = LeaseId::new(lease);
    let answer = match verb {
        "admit" => Answer::Admitted(lease, result),
        _ => Answer::Expelled(lease, result),
    };
    drive.event(Event::Answer(attempt, answer))
}

/// An agent with these leases, all ready.
fn leased(executors: u32, leases: &[&str]) -> Drive {
    let mut drive = ready(executors);
    for lease in leases {
        take(&mut drive, lease);
        answer(&mut drive, &format!("admit {lease}"), Ok(()));
    }
    drive
}

/// The agent after a start of the service, with its guest inspected.
fn again(drive: &Drive) -> Drive {
    let mut adopted = drive.adopt(secs(5));
    let observation = adopted.observation();
    adopted.answer(Answer::Looked(Ok(observation)));
    adopted
}

fn lease_state(drive: &Drive, lease: &str) -> Option<bool> {
    let leases = &drive.journal_state.agents.get(&agent_id())?.leases;
    leases.get(&LeaseId::new(lease)).map(|granted| granted.pending)
}

/// Whether the last call of this lease's end ends the guest's sessions, too.
fn ends_sessions(drive: &Drive, lease: &str) -> bool {
    let of = |effect: &Effect| match effect {
        Effect::Ask(_, Call::Expel(_, of, _, sessions)) if of.as_str() == lease => Some(*sessions),
        _ => None,
    };
    drive.effects.iter().rev().find_map(of).expect("it was expelled") == Sessions::End
}

// Invariant: what holders started in a guest ends with the last of its leases. Nobody comes before
// that is done.

#[test]
fn the_last_lease_of_an_agent_takes_the_sessions_along_and_no_other_lease_does() {
    let mut drive = leased(3, &["l1", "l2"]);
    end(&mut drive, "l1");
    assert!(!ends_sessions(&drive, "l1"), "l2 is at work");
    answer(&mut drive, "expel l1", Ok(()));
    end(&mut drive, "l2");
    assert!(ends_sessions(&drive, "l2"));
    take(&mut drive, "l3");
    assert_eq!(drive.reports().last().map(|report| report.refused.len()), Some(1));
    answer(&mut drive, "expel l2", Ok(()));
    assert_eq!(said(&take(&mut drive, "l4")), ["admit l4"]);
}

#[test]
fn leases_that_end_together_end_the_sessions_also_after_a_restart() {
    let mut drive = leased(3, &["l1", "l2"]);
    end(&mut drive, "l1");
    end(&mut drive, "l2");
    answer(&mut drive, "expel l1", Ok(()));
    assert!(ends_sessions(&drive, "l2"));
    assert!(ends_sessions(&again(&drive), "l2"));
}

#[test]
fn an_agent_that_is_to_be_held_keeps_what_its_job_left_running() {
    let mut drive = leased(1, &["l1"]);
    drive.be_held();
    end(&mut drive, "l1");
    assert!(!ends_sessions(&drive, "l1"));
}

// Invariant: keys of one guest change one at a time, first come, first served.

#[test]
fn leases_that_end_at_once_are_expelled_one_after_the_other() {
    let mut drive = leased(8, &["l1", "l2", "l3", "l4"]);
    let calls: Vec<_> = ["l1", "l2", "l3"].map(|l| said(&end(&mut drive, l))).concat();
    assert_eq!(calls, ["expel l1"]);
    assert_eq!(said(&answer(&mut drive, "expel l1", Ok(()))), ["expel l2"]);
    // A fault is tried again later and delays no other lease.
    let effects = answer(&mut drive, "expel l2", Err(FaultKind::Unreachable));
    assert_eq!(said(&effects), ["expel l3"]);
    answer(&mut drive, "expel l3", Ok(()));
    drive.wait(secs(2));
    assert_eq!(said(&answer(&mut drive, "expel l2", Ok(()))), Vec::<String>::new());
    assert_eq!(drive.state(), AgentPhase::Leased);
}

#[test]
fn an_end_waits_for_earlier_beginnings_and_a_runner_waits_for_no_key() {
    let mut drive = leased(8, &["l1"]);
    assert_eq!(said(&take(&mut drive, "l3")), ["admit l3"]);
    assert_eq!(said(&take(&mut drive, "l2")), Vec::<String>::new());
    assert_eq!(said(&start_runner(&mut drive, "l4")), ["admit l4"]);
    drive.wait(Duration::from_millis(1));
    assert_eq!(said(&end(&mut drive, "l1")), Vec::<String>::new());
    assert_eq!(said(&answer(&mut drive, "admit l3", Ok(()))), ["admit l2"]);
    assert_eq!(said(&answer(&mut drive, "admit l2", Ok(()))), ["expel l1"]);
}

#[test]
fn a_lease_that_ends_while_it_is_admitted_is_expelled_when_that_is_over() {
    for runner in [false, true] {
        let mut drive = ready(8);
        if runner {
            start_runner(&mut drive, "l1")
        } else {
            take(&mut drive, "l1")
        };
        assert_eq!(said(&end(&mut drive, "l1")), Vec::<String>::new(), "runner: {runner}");
        let effects = answer(&mut drive, "admit l1", Ok(()));
        assert_eq!(said(&effects), ["expel l1"], "runner: {runner}");
        answer(&mut drive, "expel l1", Ok(()));
        assert_eq!(drive.state(), AgentPhase::Ready);
    }
}

#[test]
fn a_call_that_was_not_made_holds_up_nobody() {
    let mut drive = ready(8);
    take(&mut drive, "l1");
    let attempt = asked(&drive, "admit l1");
    end(&mut drive, "l1");
    assert!(!drive.mind.awaits(attempt), "its lease ended before it was made");
    let effects = drive.event(Event::Unmade(attempt));
    assert_eq!(said(&effects), ["expel l1"]);
}

#[test]
fn an_operators_key_waits_for_the_key_of_a_lease() {
    let mut drive = leased(8, &["l1"]);
    take(&mut drive, "l2");
    drive.be_held();
    // The lease expired meanwhile: the agent is held instead of retired.
    drive.now.mono = drive.now.mono + secs(3600);
    let (wake, _) = drive.wake().expect("the end of a lease");
    drive.event(Event::Wake(wake));
    drive.wait(secs(20));
    assert_eq!(drive.state(), AgentPhase::Held);
    assert!(!drive.calls().iter().any(|call| matches!(call, Call::Unlock(..))));
    assert_eq!(said(&answer(&mut drive, "admit l2", Ok(()))), ["unlock"]);
}

// Invariant: the key of an ended lease is tried for as long as its guest stays. It costs no other
// lease the guest.

#[test]
fn a_key_that_cannot_be_removed_beside_a_lease_is_tried_for_until_the_guest_goes() {
    let mut drive = leased(8, &["l1", "l2"]);
    end(&mut drive, "l1");
    let effects = answer(&mut drive, "expel l1", Err(FaultKind::KeyRejected));
    assert_eq!(drive.state(), AgentPhase::Draining);
    let charged = |e: &Effect| matches!(e, Effect::Report(report) if report.fault.is_some());
    assert!(!effects.iter().any(charged), "its earlier user can have locked drover out");
    let reported = drive.reports().last().expect("a report").status.leases.clone();
    assert_eq!(reported, [LeaseId::new("l2")], "the caller that ended it need not wait");
    for _ in 0..10 {
        let before = drive.effects.len();
        drive.wait(secs(90));
        assert_eq!(said(&drive.effects[before..]), ["expel l1"]);
        answer(&mut drive, "expel l1", Err(FaultKind::Unreachable));
    }
    assert_eq!(lease_state(&drive, "l2"), Some(false));
    end(&mut drive, "l2");
    assert_eq!(drive.state(), AgentPhase::Retiring, "both keys go with it");
}

// Invariant: a lease that was ready stays ready, whatever its guest answers after a start of the
// service.

#[test]
fn a_lease_that_was_ready_outlives_any_refusal_after_a_restart() {
    for kind in
        [FaultKind::KeyRejected, FaultKind::Impostor, FaultKind::Unreachable, FaultKind::Gone]
    {
        let mut adopted = again(&leased(1, &["l1"]));
        for _ in 0..30 {
            if adopted.asked().is_some() {
                let effects = answer(&mut adopted, "admit l1", Err(kind.clone()));
                let reported = |e: &Effect| matches!(e, Effect::Report(r) if r.fault.is_some());
                assert!(!effects.iter().any(reported), "{kind:?}");
            }
            adopted.wait(secs(61));
        }
        assert_eq!(
            (adopted.state(), lease_state(&adopted, "l1")),
            (AgentPhase::Leased, Some(false))
        );
        if kind != FaultKind::Gone {
            let detail = adopted.mind.detail();
            assert!(detail.contains(" since 2026-11-21T08:31:"), "{detail}");
            assert!(detail.contains("; the lease goes on: a planned "), "{detail}");
            adopted.answer(Answer::Admitted(LeaseId::new("l1"), Ok(())));
            assert_eq!(adopted.mind.detail(), "");
        }
        end(&mut adopted, "l1");
        answer(&mut adopted, "expel l1", Ok(()));
        assert_eq!(adopted.state(), AgentPhase::Ready);
    }
}

#[test]
fn tries_after_a_restart_grow_seldom_and_end_with_the_lease() {
    let mut adopted = again(&leased(1, &["l1"]));
    let mut tries = 0;
    while lease_state(&adopted, "l1").is_some() {
        if adopted.asked().is_some() && adopted.state() == AgentPhase::Leased {
            tries += 1;
            answer(&mut adopted, "admit l1", Err(FaultKind::KeyRejected));
        }
        adopted.wait(secs(10));
    }
    assert!((40..80).contains(&tries), "{tries} in an hour");
    assert_eq!(adopted.state(), AgentPhase::Retiring, "it ran out");
}

#[test]
fn a_runner_that_was_started_is_not_started_again() {
    let mut drive = ready(4);
    start_runner(&mut drive, "l1");
    answer(&mut drive, "admit l1", Ok(()));
    let adopted = again(&drive);
    let starts_runners = adopted.calls().iter().any(|call| matches!(call, Call::Admit(..)));
    assert!(!starts_runners, "{:?}", adopted.calls());
    let name = RunnerName::of(&installation(), &agent_id(), 1);
    assert!(adopted.effects.contains(&Effect::RunnerStarted(SourceId::new("git"), name)));
    assert_eq!(adopted.state(), AgentPhase::Leased);
}

#[test]
fn a_runner_that_perhaps_started_is_tried_for_as_long_as_its_lease() {
    let mut drive = ready(4);
    start_runner(&mut drive, "l1");
    let mut heard = drive.clone();
    answer(&mut heard, "admit l1", Err(FaultKind::UnknownOutcome));
    for mut drive in [again(&drive), heard] {
        for _ in 0..10 {
            drive.wait(secs(90));
            answer(&mut drive, "admit l1", Err(FaultKind::Unreachable));
        }
        assert_eq!((drive.state(), lease_state(&drive, "l1")), (AgentPhase::Leased, Some(true)));
        let mut ended = drive.clone();
        drive.wait(secs(90));
        answer(&mut drive, "admit l1", Ok(()));
        assert_eq!(lease_state(&drive, "l1"), Some(false));
        end(&mut ended, "l1");
        answer(&mut ended, "expel l1", Err(FaultKind::KeyRejected));
        assert_eq!(ended.state(), AgentPhase::Retiring, "its end waits for nobody");
    }
}

#[test]
fn a_runner_that_perhaps_started_outlives_a_guest_that_is_broken_for_a_while() {
    let mut drive = ready(4);
    start_runner(&mut drive, "l1");
    let mut adopted = again(&drive);
    for _ in 0..10 {
        let effects = answer(&mut adopted, "admit l1", Err(FaultKind::Broken));
        let charged = |e: &Effect| matches!(e, Effect::Report(report) if report.fault.is_some());
        assert!(!effects.iter().any(charged));
        assert_eq!(
            (adopted.state(), lease_state(&adopted, "l1")),
            (AgentPhase::Leased, Some(true))
        );
        adopted.wait(secs(90));
    }
    answer(&mut adopted, "admit l1", Ok(()));
    assert_eq!(lease_state(&adopted, "l1"), Some(false));
}

#[test]
fn a_runner_that_its_source_refuses_after_a_restart_fails_its_lease() {
    let mut drive = ready(4);
    start_runner(&mut drive, "l1");
    let mut adopted = again(&drive);
    let source = Culprit::Source(SourceId::new("git"));
    let refusal = Fault::new(FaultKind::Broken, source, "no such repository");
    adopted.answer(Answer::Admitted(LeaseId::new("l1"), Err(refusal)));
    assert_eq!(lease_state(&adopted, "l1"), None);
}

#[test]
fn a_lease_that_was_never_ready_waits_again_and_leaves_another_its_guest() {
    let mut drive = leased(4, &["l1"]);
    take(&mut drive, "l2");
    let mut adopted = again(&drive);
    answer(&mut adopted, "admit l1", Err(FaultKind::Unreachable));
    let effects = answer(&mut adopted, "admit l2", Err(FaultKind::KeyRejected));
    let back = |e: &Effect| matches!(e, Effect::Record(Body::LeaseReturned { lease, .. }) if lease.as_str() == "l2");
    assert!(effects.iter().any(back), "{effects:?}");
    let charged = |e: &Effect| matches!(e, Effect::Report(report) if report.fault.is_some());
    assert!(!effects.iter().any(charged));
    assert_eq!((adopted.state(), lease_state(&adopted, "l1")), (AgentPhase::Draining, Some(false)));
}

#[test]
fn the_key_of_a_lease_that_could_not_be_admitted_is_taken_out_where_others_go_on() {
    let mut drive = leased(4, &["l1"]);
    take(&mut drive, "l2");
    for _ in 0..3 {
        answer(&mut drive, "admit l2", Err(FaultKind::UnknownOutcome));
        drive.wait(secs(90));
    }
    assert_eq!((drive.state(), lease_state(&drive, "l1")), (AgentPhase::Draining, Some(false)));
    let mut adopted = again(&drive);
    // The guest's keys change one at a time, and a lease that goes on comes first.
    answer(&mut adopted, "admit l1", Ok(()));
    for mut drive in [drive, adopted] {
        drive.wait(secs(90));
        let effects = answer(&mut drive, "expel l2", Ok(()));
        let out = |e: &Effect| matches!(e, Effect::Record(Body::KeyRemoved { lease, .. }) if lease.as_str() == "l2");
        assert!(effects.iter().any(out), "{effects:?}");
        assert_eq!(lease_state(&drive, "l1"), Some(false), "it goes on");
        assert_eq!(lease_state(&drive, "l2"), None);
    }
}

#[test]
fn a_lease_of_a_journal_that_does_not_say_what_was_ready_goes_on() {
    let mut drive = leased(1, &["l1"]);
    let entry = drive.journal_state.agents.get_mut(&agent_id()).expect("an agent");
    let text = serde_json::to_string(&entry.leases).expect("written");
    let old = text.replace(r#","pending":false"#, "");
    assert_ne!(old, text);
    entry.leases = serde_json::from_str(&old).expect("read");
    let mut adopted = again(&drive);
    answer(&mut adopted, "admit l1", Err(FaultKind::KeyRejected));
    assert_eq!((adopted.state(), lease_state(&adopted, "l1")), (AgentPhase::Leased, Some(false)));
}
