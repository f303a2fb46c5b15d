//! Holds for debugging: when, for how long, and what a held agent is kept from.

use drover_model::fault::FaultKind;
use drover_model::id::LeaseId;
use drover_model::phase::AgentPhase;
use drover_model::ports::VmObservation;
use drover_model::record::{Body, Reason};
use drover_model::spec::TemplateSpec;
use drover_model::status::Standing;

use crate::agent::event::{Answer, Call, Effect, Event};
use crate::agent::testing::*;
use crate::message::AgentCommand;
use crate::reset_stats::TemplateHints;

fn held() -> Drive {
    let mut drive = Drive::new(spec());
    drive.go_to(AgentPhase::Ready);
    drive.be_held();
    drive
}

fn take(drive: &mut Drive, lease: &str) {
    drive.command(AgentCommand::Lease { ask: Box::new(ask(lease, None)) });
}

fn end(drive: &mut Drive, lease: &str) -> Vec<Effect> {
    let lease = LeaseId::new(lease);
    drive.command(AgentCommand::EndLease { lease, why: "released".into() })
}

fn why(drive: &Drive) -> Option<Reason> {
    drive.records().into_iter().find_map(|body| match body {
        Body::RetireIntended { reason, .. } => Some(reason.clone()),
        _ => None,
    })
}

// Invariant: a free agent is held at once, a used one after its last lease. None is handed out.

#[test]
fn a_free_agent_is_held_at_once_with_the_operators_key() {
    let mut drive = held();
    assert_eq!((drive.state(), drive.mind.standing()), (AgentPhase::Held, Standing::Busy));
    let Some((_, Call::Unlock(_, key))) = drive.asked() else { panic!("no key") };
    assert_eq!(key, "ssh-ed25519 OPERATOR");
    drive.answer(Answer::Unlocked(Ok(())));
    take(&mut drive, "l1");
    assert_eq!(drive.reports().last().expect("a report").refused, [LeaseId::new("l1")]);
    assert_eq!(drive.mind.usage.count(), 0);
}

#[test]
fn a_used_agent_is_held_after_its_last_lease_even_where_that_was_its_last_use() {
    for max_uses in [None, Some(2)] {
        let mut drive = Drive::new(TemplateSpec { executors: 2, max_uses, ..spec() });
        drive.go_to(AgentPhase::Ready);
        take(&mut drive, "l1");
        take(&mut drive, "l2");
        drive.be_held();
        end(&mut drive, "l1");
        assert_eq!(drive.state(), AgentPhase::Leased);
        end(&mut drive, "l2");
        assert_eq!(drive.state(), AgentPhase::Held, "{max_uses:?}");
    }
}

#[test]
fn an_agent_that_is_to_be_held_takes_no_further_lease() {
    let mut drive = Drive::new(TemplateSpec { executors: 3, ..spec() });
    drive.go_to(AgentPhase::Ready);
    take(&mut drive, "l1");
    drive.be_held();
    take(&mut drive, "l2");
    let report = drive.reports().last().copied().cloned().expect("a report");
    assert_eq!(
        (report.refused, report.status.standing),
        (vec![LeaseId::new("l2")], Standing::Busy)
    );
    drive.command(AgentCommand::Hold(None));
    take(&mut drive, "l3");
    assert_eq!(drive.mind.usage.count(), 2);
}

#[test]
fn an_agent_on_its_way_is_held_when_it_is_ready_or_when_it_fails() {
    for fails in [false, true] {
        let mut drive = Drive::new(spec());
        drive.go_to(AgentPhase::Preparing);
        drive.be_held();
        assert_eq!(drive.state(), AgentPhase::Preparing);
        if fails {
            drive.answer(Answer::Ran(Err(fault(FaultKind::Broken))));
            let report = drive.reports().last().copied().cloned().expect("a report");
            assert_eq!((report.status.standing, report.fault.is_some()), (Standing::Busy, true));
        } else {
            drive.go_to(AgentPhase::Held);
        }
        assert_eq!(drive.state(), AgentPhase::Held);
    }
}

#[test]
fn a_draining_agent_is_held_instead_of_retired() {
    let mut drive = Drive::new(spec());
    drive.go_to(AgentPhase::Ready);
    take(&mut drive, "l1");
    drive.command(AgentCommand::Drain(Reason::Old));
    drive.be_held();
    end(&mut drive, "l1");
    assert_eq!(drive.state(), AgentPhase::Held);
    assert_eq!(why(&drive), None);
}

// Invariant: a hold ends in time, or when an operator ends it, and the guest ends with it.

#[test]
fn a_hold_runs_out_and_the_guest_is_retired() {
    let mut drive = held();
    drive.answer(Answer::Unlocked(Ok(())));
    drive.wait(secs(1799));
    assert_eq!(drive.state(), AgentPhase::Held);
    drive.wait(secs(1));
    assert_eq!((drive.state(), why(&drive)), (AgentPhase::Retiring, Some(Reason::HoldOver)));
}

#[test]
fn an_operator_ends_a_hold_by_releasing_or_by_retiring_and_nothing_else_does() {
    let mut drive = held();
    drive.command(AgentCommand::Drain(Reason::Unconfigured));
    drive.command(AgentCommand::SeenStopped);
    assert_eq!(drive.state(), AgentPhase::Held);
    let mut retired = drive.clone();
    retired.command(AgentCommand::Retire(Reason::Asked));
    assert_eq!((retired.state(), why(&retired)), (AgentPhase::Retiring, Some(Reason::Asked)));
    let mut forced = drive.clone();
    forced.command(AgentCommand::ForceRetire(Reason::Stopping));
    assert_eq!(forced.state(), AgentPhase::Retiring);
    drive.command(AgentCommand::Hold(None));
    assert_eq!((drive.state(), why(&drive)), (AgentPhase::Retiring, Some(Reason::HoldOver)));
}

#[test]
fn a_hold_that_is_taken_back_before_its_time_changes_nothing() {
    let mut drive = Drive::new(spec());
    drive.go_to(AgentPhase::Ready);
    take(&mut drive, "l1");
    drive.be_held();
    drive.command(AgentCommand::Hold(None));
    end(&mut drive, "l1");
    assert_eq!(drive.state(), AgentPhase::Ready);
}

#[test]
fn an_operator_who_retires_an_agent_that_is_to_be_held_means_it() {
    let mut drive = Drive::new(spec());
    drive.go_to(AgentPhase::Ready);
    take(&mut drive, "l1");
    drive.be_held();
    drive.command(AgentCommand::Retire(Reason::Asked));
    end(&mut drive, "l1");
    assert_eq!(drive.state(), AgentPhase::Retiring);
}

// Invariant: a login that fails does not end a hold. A login that may still succeed is tried again.

#[test]
fn a_key_that_cannot_be_installed_leaves_the_console() {
    let mut drive = held();
    drive.answer(Answer::Unlocked(Err(fault(FaultKind::Unreachable))));
    drive.wait(secs(10));
    assert!(matches!(drive.asked(), Some((_, Call::Unlock(..)))), "it is tried again");
    drive.answer(Answer::Unlocked(Err(fault(FaultKind::KeyRejected))));
    drive.wait(secs(600));
    assert_eq!((drive.state(), drive.asked().is_none()), (AgentPhase::Held, true));
    assert!(
        drive.mind.detail().starts_with("no login, use its console"),
        "{}",
        drive.mind.detail()
    );
}

// Invariant: a recorded hold survives a crash and lasts no longer than without the crash.

#[test]
fn a_held_agent_is_held_after_a_crash_until_the_same_moment() {
    let mut drive = held();
    drive.answer(Answer::Unlocked(Ok(())));
    drive.wait(secs(600));
    let mut adopted = drive.adopt(secs(600));
    assert_eq!((adopted.state(), adopted.mind.standing()), (AgentPhase::Held, Standing::Busy));
    let stopped = VmObservation { running: Some(false), ..adopted.observation() };
    adopted.answer(Answer::Looked(Ok(stopped)));
    adopted.answer(Answer::Unlocked(Ok(())));
    adopted.wait(secs(599));
    assert_eq!(adopted.state(), AgentPhase::Held);
    adopted.wait(secs(1));
    assert_eq!(adopted.state(), AgentPhase::Retiring);
}

#[test]
fn why_an_agent_failed_that_is_held_is_reported_after_a_crash_too() {
    for next in [false, true] {
        let mut drive = if next { armed(AgentPhase::Preparing) } else { Drive::new(spec()) };
        drive.go_to(AgentPhase::Preparing);
        if !next {
            drive.be_held();
        }
        drive.answer(Answer::Ran(Err(fault(FaultKind::Broken))));
        drive.answer(Answer::Unlocked(Ok(())));
        let reported = drive.mind.detail().to_owned();
        assert!(
            reported.starts_with("held instead of retired: ")
                && reported.contains("a planned broken")
        );
        assert!(reported.ends_with("; the login is open"), "{reported}");
        let mut adopted = drive.adopt(secs(5));
        for crash in ["first", "second"] {
            let seen = Answer::Looked(Ok(adopted.observation()));
            adopted.answer(seen);
            adopted.answer(Answer::Unlocked(Ok(())));
            assert_eq!(adopted.mind.detail(), reported, "after the {crash} crash");
            adopted = adopted.adopt(secs(5));
        }
        let seen = Answer::Looked(Ok(adopted.observation()));
        adopted.answer(seen);
        adopted.answer(Answer::Unlocked(Ok(())));
        adopted.be_held();
        adopted.answer(Answer::Unlocked(Ok(())));
        assert_eq!(adopted.mind.detail(), reported, "a hold made longer forgets nothing");
        let mut adopted = adopted.adopt(secs(5));
        let seen = Answer::Looked(Ok(adopted.observation()));
        adopted.answer(seen);
        adopted.answer(Answer::Unlocked(Ok(())));
        assert_eq!(adopted.mind.detail(), reported);
    }
}

#[test]
fn a_hold_written_just_before_a_crash_is_carried_out_after_it() {
    let mut drive = Drive::new(spec());
    drive.go_to(AgentPhase::Ready);
    let hold = Some(Box::new(a_hold()));
    drive.record(Body::HoldSet { agent: agent_id(), hold, until: None, next: None, why: None });
    let mut adopted = drive.adopt(secs(5));
    let seen = Answer::Looked(Ok(adopted.observation()));
    adopted.answer(seen);
    assert_eq!(adopted.state(), AgentPhase::Held);
}

#[test]
fn a_release_written_just_before_a_crash_is_carried_out_after_it() {
    let mut drive = held();
    drive.record(Body::HoldSet {
        agent: agent_id(),
        hold: None,
        until: None,
        next: None,
        why: None,
    });
    let mut adopted = drive.adopt(secs(5));
    let seen = Answer::Looked(Ok(adopted.observation()));
    adopted.answer(seen);
    assert_eq!(adopted.state(), AgentPhase::Retiring);
}

// Invariant: where a template holds its next failure, an agent that fails once it has a
// machine is held. An agent that gets a command to retire, or has no machine, is not held.

/// A mind whose template holds its next failure.
fn armed(state: AgentPhase) -> Drive {
    let mut drive = Drive::new(spec());
    drive.go_to(state);
    drive.mind.know(TemplateHints { worth: true, hold_next: Some(a_hold()) });
    drive
}

fn held_as_next(drive: &Drive) -> usize {
    drive.effects.iter().filter(|effect| **effect == Effect::HeldAsNext).count()
}

#[test]
fn the_next_failure_of_a_template_is_held_with_its_cause_and_waits_no_more() {
    for state in [AgentPhase::Booting, AgentPhase::Connecting, AgentPhase::Preparing] {
        let mut drive = armed(state);
        let waits =
            Body::HoldNextSet { template: spec().id.clone(), hold: Some(Box::new(a_hold())) };
        drive.record(waits);
        let (_, call) = drive.asked().expect("a call");
        drive.answer(refused(&call, fault(FaultKind::Denied { privilege: None, path: None })));
        assert_eq!((drive.state(), held_as_next(&drive)), (AgentPhase::Held, 1), "{state}");
        assert!(drive.mind.detail().contains("a planned denied"), "{}", drive.mind.detail());
        assert!(drive.journal_state.hold_next.is_empty(), "it is used");
        assert_eq!(drive.adopt(secs(5)).state(), AgentPhase::Held);
    }
}

#[test]
fn an_agent_that_takes_too_long_or_stops_by_itself_has_failed_too() {
    let mut drive = armed(AgentPhase::Connecting);
    drive.answer(Answer::Greeted(Err(fault(FaultKind::Unreachable))));
    drive.wait(secs(180));
    assert_eq!(drive.state(), AgentPhase::Held);
    let mut drive = armed(AgentPhase::Preparing);
    drive.command(AgentCommand::SeenStopped);
    let stopped = VmObservation { running: Some(false), ..drive.observation() };
    let (attempt, _) = drive.asked().expect("a look");
    drive.event(Event::Answer(attempt, Answer::Looked(Ok(stopped))));
    assert_eq!(drive.state(), AgentPhase::Held);
}

#[test]
fn who_is_asked_to_go_or_has_no_machine_is_not_held_as_a_failure() {
    let mut drive = armed(AgentPhase::Booting);
    drive.command(AgentCommand::Retire(Reason::Asked));
    assert_eq!((drive.state(), held_as_next(&drive)), (AgentPhase::Retiring, 0));
    let mut drive = armed(AgentPhase::Configuring);
    drive.answer(Answer::Configured(Err(fault(FaultKind::Broken))));
    assert_eq!((drive.state(), held_as_next(&drive)), (AgentPhase::Retiring, 0));
    let mut drive = armed(AgentPhase::Ready);
    drive.command(AgentCommand::Retire(Reason::Asked));
    assert_eq!((drive.state(), held_as_next(&drive)), (AgentPhase::Retiring, 0));
}

#[test]
fn a_login_that_does_not_come_points_to_the_console_meanwhile() {
    let mut drive = held();
    for _ in 0..3 {
        drive.answer(Answer::Unlocked(Err(fault(FaultKind::Unreachable))));
        drive.wait(secs(40));
    }
    let console = "use its console (`qm terminal 10417` on node n1)";
    assert!(drive.mind.detail().contains(console), "{}", drive.mind.detail());
    drive.answer(Answer::Unlocked(Ok(())));
    assert!(drive.mind.detail().ends_with("the login is open"), "{}", drive.mind.detail());
}
