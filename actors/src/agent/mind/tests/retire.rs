//! Retirement, and what strands.

use drover_model::fact::What;
use drover_model::fault::FaultKind;
use drover_model::phase::AgentPhase;
use drover_model::ports::{IdStatus, Ran, TaskEnd, VmObservation};
use drover_model::record::{Body, Reason};
use drover_model::spec::{LimitSpec, TemplateSpec};

use crate::agent::event::{Answer, Call, Effect};
use crate::agent::testing::*;
use crate::message::AgentCommand;

fn retiring() -> Drive {
    let mut drive = Drive::new(spec());
    drive.go_to(AgentPhase::Ready);
    drive.effects.clear();
    drive.command(AgentCommand::Retire(Reason::Asked));
    drive
}

fn done() -> Answer {
    Answer::TaskEnded(Ok(TaskEnd::Done { warnings: Vec::new() }))
}

fn next(drive: &Drive) -> Call {
    drive.asked().expect("a call").1
}

// Invariant: nothing is stopped or destroyed unless its marks were verified in the same try.

#[test]
fn the_usual_way_out_is_fence_stop_destroy() {
    let mut drive = retiring();
    drive.go_to(AgentPhase::Gone);
    let kinds: Vec<Call> =
        drive.calls().into_iter().filter(|call| !matches!(call, Call::Await(..))).collect();
    assert_eq!(kinds, [Call::Fence, Call::Stop, Call::Destroy]);
    assert_eq!(drive.effects.last(), Some(&Effect::End));
}

#[test]
fn why_it_goes_is_reported_while_it_goes() {
    let drive = retiring();
    assert_eq!(
        (drive.state(), drive.mind.detail()),
        (AgentPhase::Retiring, "an operator retired it")
    );
}

#[test]
fn the_intent_is_written_before_the_fence() {
    let drive = retiring();
    let place = |wanted: fn(&Effect) -> bool| drive.effects.iter().position(wanted);
    let written = place(|e| matches!(e, Effect::Record(Body::RetireIntended { .. })));
    let fenced = place(|e| matches!(e, Effect::Ask(_, Call::Fence)));
    assert!(written.is_some() && written < fenced);
}

#[test]
fn every_further_attempt_begins_at_the_fence() {
    let mut drive = retiring();
    let observation = drive.observation();
    drive.answer(Answer::Fenced(Ok(observation.clone())));
    drive.answer(Answer::Accepted(Err(fault(FaultKind::Contention))));
    drive.wait(secs(2));
    assert_eq!(next(&drive), Call::Fence);
    drive.answer(Answer::Fenced(Ok(observation)));
    drive.answer(Answer::Accepted(Ok(upid("qmstop"))));
    drive.answer(done());
    drive.answer(Answer::Accepted(Ok(upid("qmdestroy"))));
    drive.answer(Answer::TaskEnded(Ok(TaskEnd::Failed(fault(FaultKind::Broken)))));
    drive.wait(secs(60));
    assert_eq!(next(&drive), Call::Fence);
}

#[test]
fn foreign_marks_strand_it_with_the_command_to_run() {
    let mut drive = retiring();
    drive.answer(Answer::Fenced(Err(fault(FaultKind::Foreign))));
    assert_eq!(drive.state(), AgentPhase::Stranded);
    let alarm = drive.facts().into_iter().find_map(|what| match what {
        What::Alarm { command, .. } => Some(command.clone()),
        _ => None,
    });
    assert!(alarm.expect("an alarm").contains("qm config 10417 # on node n1"));
    assert!(!drive.calls().contains(&Call::Destroy));
}

// Invariant: the gentlest way that the limits allow.

/// An agent in this state whose template allows 30 s for a shutdown, after a command to retire.
fn leaving_gracefully(from: AgentPhase) -> Drive {
    let mut limits = spec().limits;
    limits.shutdown = secs(30);
    let mut drive = Drive::new(TemplateSpec { limits, ..spec() });
    drive.go_to(from);
    drive.effects.clear();
    drive.command(AgentCommand::Retire(Reason::Asked));
    drive
}

#[test]
fn a_guest_not_known_to_be_stopped_is_shut_down_first_in_as_many_calls() {
    let mut drive = leaving_gracefully(AgentPhase::Ready);
    let observation = VmObservation { running: None, ..drive.observation() };
    drive.answer(Answer::Fenced(Ok(observation)));
    assert_eq!(next(&drive), Call::Shutdown(secs(30)));
    drive.go_to(AgentPhase::Gone);
    let kinds: Vec<Call> =
        drive.calls().into_iter().filter(|call| !matches!(call, Call::Await(..))).collect();
    assert_eq!(kinds, [Call::Fence, Call::Shutdown(secs(30)), Call::Destroy]);
}

#[test]
fn a_failed_shutdown_is_followed_by_a_stop_and_not_tried_again() {
    let mut drive = leaving_gracefully(AgentPhase::Ready);
    let observation = drive.observation();
    drive.answer(Answer::Fenced(Ok(observation.clone())));
    drive.answer(Answer::Accepted(Ok(upid("qmshutdown"))));
    drive.answer(Answer::TaskEnded(Ok(TaskEnd::Failed(fault(FaultKind::Broken)))));
    assert_eq!(next(&drive), Call::Stop);
    drive.answer(Answer::Accepted(Err(fault(FaultKind::Contention))));
    drive.wait(secs(2));
    drive.answer(Answer::Fenced(Ok(observation)));
    assert_eq!(next(&drive), Call::Stop);
}

#[test]
fn a_guest_that_never_came_up_is_stopped_at_once() {
    let mut drive = leaving_gracefully(AgentPhase::Booting);
    let observation = drive.observation();
    drive.answer(Answer::Fenced(Ok(observation)));
    assert_eq!(next(&drive), Call::Stop);
}

#[test]
fn a_shutdown_is_owed_again_after_a_restart() {
    let mut adopted = leaving_gracefully(AgentPhase::Ready).adopt(secs(5));
    let observation = adopted.observation();
    adopted.answer(Answer::Fenced(Ok(observation)));
    assert_eq!(next(&adopted), Call::Shutdown(secs(30)));
}

#[test]
fn a_stopped_guest_is_destroyed_without_a_stop() {
    let mut drive = retiring();
    let stopped = VmObservation { running: Some(false), ..drive.observation() };
    drive.answer(Answer::Fenced(Ok(stopped)));
    assert_eq!(next(&drive), Call::Destroy);
}

#[test]
fn a_backup_is_waited_for() {
    let mut drive = retiring();
    let locked = FaultKind::Locked { lock: "backup".into() };
    drive.answer(Answer::Fenced(Err(fault(locked))));
    drive.wait(secs(9));
    assert_eq!(drive.asked(), None);
    drive.wait(secs(1));
    assert_eq!(next(&drive), Call::Fence);
}

// Invariant: gone means confirmed gone.

#[test]
fn a_destroy_of_unknown_outcome_is_confirmed_by_the_id_and_the_volumes() {
    for (observation, asked) in [(IdStatus::Free, Some(Call::Leftovers)), (IdStatus::Taken, None)] {
        let mut drive = retiring();
        let stopped = VmObservation { running: Some(false), ..drive.observation() };
        drive.answer(Answer::Fenced(Ok(stopped)));
        drive.answer(Answer::Accepted(Err(fault(FaultKind::UnknownOutcome))));
        assert_eq!(next(&drive), Call::IdTaken);
        drive.answer(Answer::IdSeen(Ok(observation)));
        assert_eq!(drive.asked().map(|(_, call)| call), asked);
    }
}

#[test]
fn a_guest_that_is_not_where_it_was_is_found_or_gone() {
    let mut drive = retiring();
    drive.answer(Answer::Fenced(Err(fault(FaultKind::Gone))));
    let node = Some(drover_model::id::NodeName::new("n2"));
    let moved = VmObservation { node, ..drive.observation() };
    drive.answer(Answer::Looked(Ok(moved)));
    drive.wait(secs(2));
    assert_eq!(next(&drive), Call::Fence);
    assert_eq!(drive.mind.guest().expect("a guest").node.as_str(), "n2");
    drive.answer(Answer::Fenced(Err(fault(FaultKind::Gone))));
    drive.answer(Answer::Looked(Ok(Drive::free())));
    drive.answer(Answer::Leftovers(Ok(Vec::new())));
    assert_eq!(drive.state(), AgentPhase::Gone);
}

#[test]
fn a_guest_reported_to_have_vanished_under_its_own_destroy_waits_for_the_outcome() {
    let mut drive = retiring();
    let stopped = VmObservation { running: Some(false), ..drive.observation() };
    drive.answer(Answer::Fenced(Ok(stopped)));
    drive.answer(Answer::Accepted(Ok(upid("qmdestroy"))));
    drive.command(AgentCommand::Vanished);
    assert_eq!(drive.state(), AgentPhase::Retiring);
    let warnings = vec!["Could not remove disk".to_owned()];
    drive.answer(Answer::TaskEnded(Ok(TaskEnd::Done { warnings })));
    drive.command(AgentCommand::Vanished);
    assert_eq!(next(&drive), Call::Leftovers);
}

#[test]
fn remains_strand_it_until_they_are_listed_no_more() {
    let mut drive = retiring();
    let stopped = VmObservation { running: Some(false), ..drive.observation() };
    drive.answer(Answer::Fenced(Ok(stopped)));
    drive.answer(Answer::Accepted(Ok(upid("qmdestroy"))));
    let warnings = vec!["Could not remove disk".to_owned()];
    drive.answer(Answer::TaskEnded(Ok(TaskEnd::Done { warnings })));
    let volume = "nfs:vm-10417-disk-0".to_owned();
    drive.answer(Answer::Leftovers(Ok(vec![volume])));
    assert_eq!(drive.state(), AgentPhase::Stranded);
    let stranded = drive.journal_state.agents[&agent_id()].stranded.clone().expect("stranded");
    assert!(stranded.1.contains("pvesm free nfs:vm-10417-disk-0"));
    drive.wait(secs(60));
    drive.answer(Answer::Looked(Ok(Drive::free())));
    drive.answer(Answer::Leftovers(Ok(Vec::new())));
    assert_eq!(drive.state(), AgentPhase::Gone);
}

// Invariant: a slow retirement is reported and never given up.

#[test]
fn a_retirement_past_its_deadline_alarms_once_and_goes_on() {
    let mut drive = retiring();
    for _ in 0..40 {
        if drive.asked().is_some() {
            drive.answer(Answer::Fenced(Err(fault(FaultKind::Unreachable))));
        }
        drive.wait(secs(30));
    }
    let alarms = drive.facts().into_iter().filter(|what| matches!(what, What::Alarm { .. }));
    assert_eq!(alarms.count(), 1);
    drive.wait(secs(30));
    drive.go_to(AgentPhase::Gone);
}

// Invariant: a stranded guest is read now and then. After a repair its retirement goes on.

#[test]
fn repaired_marks_send_a_stranded_agent_out_again() {
    let mut drive = retiring();
    drive.answer(Answer::Fenced(Err(fault(FaultKind::Foreign))));
    drive.wait(secs(60));
    let damaged = drive.damaged();
    drive.answer(Answer::Looked(Ok(damaged)));
    assert_eq!(drive.state(), AgentPhase::Stranded);
    drive.wait(secs(60));
    let repaired = drive.observation();
    drive.answer(Answer::Looked(Ok(repaired)));
    assert_eq!((drive.state(), next(&drive)), (AgentPhase::Retiring, Call::Fence));
}

#[test]
fn a_stranded_agent_stays_stranded_over_a_restart() {
    let mut drive = retiring();
    drive.answer(Answer::Fenced(Err(fault(FaultKind::Foreign))));
    let adopted = drive.adopt(secs(60));
    assert_eq!((adopted.state(), adopted.calls()), (AgentPhase::Stranded, vec![Call::Look]));
}

#[test]
fn vanished_ends_any_agent_with_a_guest_but_not_a_clone_under_way() {
    for (state, after) in [
        (AgentPhase::Cloning, AgentPhase::Cloning),
        (AgentPhase::Booting, AgentPhase::Gone),
        (AgentPhase::Ready, AgentPhase::Gone),
    ] {
        let mut drive = Drive::new(spec());
        drive.go_to(state);
        drive.command(AgentCommand::Vanished);
        assert_eq!(drive.state(), after);
    }
    let mut drive = retiring();
    drive.command(AgentCommand::Vanished);
    assert_eq!(
        (drive.state(), next(&drive)),
        (AgentPhase::Retiring, Call::Leftovers),
        "volumes may remain"
    );
    drive.answer(Answer::Leftovers(Ok(Vec::new())));
    assert_eq!(drive.state(), AgentPhase::Gone);
}

// Invariant: where the template closes SSH, the guest is closed off once its marks were read, within a
// short time. It is stopped hard whatever the result.

#[test]
fn a_guest_is_closed_off_before_it_is_stopped_hard() {
    let limits = LimitSpec { shutdown: secs(60), ..spec().limits };
    let closing = TemplateSpec { close_ssh: true, limits, ..spec() };
    let ends = [
        Answer::Ran(Ok(Ran { exit: Some(0), tail: String::new() })),
        Answer::Ran(Ok(Ran { exit: Some(1), tail: "no".into() })),
        Answer::Ran(Err(fault(FaultKind::Unreachable))),
        Answer::Ran(Err(fault(FaultKind::KeyRejected))),
    ];
    for end in ends {
        let mut drive = Drive::new(closing.clone());
        drive.go_to(AgentPhase::Ready);
        drive.command(AgentCommand::Retire(Reason::Asked));
        let Some((_, Call::Fence)) = drive.asked() else { panic!("no fence") };
        let seen = Answer::Fenced(Ok(VmObservation { running: None, ..drive.observation() }));
        drive.answer(seen);
        let Some((_, Call::Run(_, _, limit))) = drive.asked() else { panic!("not closed") };
        assert!(limit <= secs(10));
        drive.answer(end);
        assert!(matches!(drive.asked(), Some((_, Call::Stop))), "no shutdown is waited for");
        drive.go_to(AgentPhase::Gone);
        let shut = |call: &Call| matches!(call, Call::Shutdown(_));
        assert!(!drive.calls().iter().any(shut));
    }
}

#[test]
fn a_guest_without_an_address_has_no_door_to_close() {
    let mut drive = Drive::new(TemplateSpec { close_ssh: true, ..spec() });
    drive.go_to(AgentPhase::Configuring);
    drive.command(AgentCommand::Retire(Reason::Asked));
    drive.go_to(AgentPhase::Gone);
    assert!(!drive.calls().iter().any(|call| matches!(call, Call::Run(..))));
}
