//! Snapshots, resets, and the owner that a reset agent serves.

use drover_model::fault::FaultKind;
use drover_model::id::LeaseId;
use drover_model::phase::AgentPhase;
use drover_model::ports::{AddressObservation, Ran, Snapped};
use drover_model::record::{Body, LeaseAsk, Reason};
use drover_model::spec::{ResetKind, TemplateSpec};
use drover_model::status::Standing;

use crate::agent::event::{Answer, Call, Effect};
use crate::agent::testing::*;
use crate::message::AgentCommand;
use crate::reset_stats::{ResetStats, TemplateHints};

/// An agent with resets, after its first lease.
fn used(spec: TemplateSpec) -> Drive {
    let mut drive = Drive::new(spec);
    drive.go_to(AgentPhase::Ready);
    lease(&mut drive, "l1");
    drive
}

/// A lease that is over at once.
fn lease(drive: &mut Drive, name: &str) {
    drive.command(AgentCommand::Lease { ask: Box::new(ask(name, None)) });
    let (lease, why) = (LeaseId::new(name), "released".into());
    drive.command(AgentCommand::EndLease { lease, why });
}

fn reset_stats(drive: &Drive) -> Vec<&ResetStats> {
    let learnt = drive.effects.iter().filter_map(|effect| match effect {
        Effect::Learnt(reset_stats) => Some(reset_stats),
        _ => None,
    });
    learnt.collect()
}

fn why(drive: &Drive) -> Reason {
    drive.mind.state().leaving().cloned().expect("it goes")
}

// Invariant: nothing is rolled back before the intent is durable. No holder enters before the guest
// was rolled back and repaired.

#[test]
fn a_used_agent_goes_back_to_its_snapshot_is_repaired_and_free_again() {
    let mut drive = used(reset_spec());
    let intent = |effect: &Effect| matches!(effect, Effect::Record(Body::ResetIntended { .. }));
    let call = |effect: &Effect| matches!(effect, Effect::Ask(_, Call::Rollback));
    let (intended, asked) =
        (drive.effects.iter().position(intent), drive.effects.iter().position(call));
    assert!(intended.is_some() && intended < asked, "{intended:?} {asked:?}");
    assert_eq!(drive.reports().last().expect("one").status.standing, Standing::Coming);
    let before = drive.calls().len();
    drive.go_to(AgentPhase::Ready);
    let names: Vec<String> =
        drive.calls()[before..].iter().map(|call| format!("{call:?}")).collect();
    let names: Vec<&str> =
        names.iter().map(|name| name.split('(').next().unwrap_or_default()).collect();
    assert_eq!(names, ["Address", "Greet", "Run", "Run"]);
    assert!(matches!(reset_stats(&drive)[..], [ResetStats::Made(_), ResetStats::Reset(_)]));
    let entry = &drive.journal_state.agents[&agent_id()];
    assert!(entry.phase() == AgentPhase::Ready && entry.clean && entry.expelling.is_empty());
}

#[test]
fn a_snapshot_with_memory_needs_no_boot() {
    let mut drive = used(TemplateSpec { reset: Some(ResetKind::Memory), ..spec() });
    drive.answer(Answer::RolledBack(Ok(())));
    assert!(matches!(drive.asked(), Some((_, Call::Address))), "it is asked at once");
    let mut drive = used(reset_spec());
    drive.answer(Answer::RolledBack(Ok(())));
    assert_eq!(drive.asked(), None, "it boots first");
}

#[test]
fn another_address_after_a_reset_is_written_down_with_the_same_host_keys() {
    let mut drive = used(reset_spec());
    drive.answer(Answer::RolledBack(Ok(())));
    drive.wait(secs(4));
    let address = "10.0.0.77".parse().expect("one");
    drive.answer(Answer::Addressed(Ok(AddressObservation::At(address))));
    let entry = &drive.journal_state.agents[&agent_id()];
    assert_eq!(entry.address.as_deref(), Some("10.0.0.77"));
    assert_eq!(entry.host_keys, ["ssh-ed25519 HOST"]);
}

// Invariant: any failure of a reset ends the agent.

#[test]
fn any_failure_of_a_reset_destroys_the_agent() {
    let kinds = [
        FaultKind::Contention,
        FaultKind::UnknownOutcome,
        FaultKind::Gone,
        FaultKind::Denied { privilege: None, path: None },
    ];
    for kind in kinds {
        let mut drive = used(reset_spec());
        drive.answer(Answer::RolledBack(Err(fault(kind.clone()))));
        assert_eq!(drive.state(), AgentPhase::Retiring, "{kind:?}");
    }
    let mut drive = used(reset_spec());
    drive.answer(Answer::RolledBack(Err(fault(FaultKind::Foreign))));
    assert_eq!(drive.state(), AgentPhase::Stranded);
    let mut drive = used(reset_spec());
    while !matches!(drive.asked(), Some((_, Call::Run(..)))) {
        match drive.asked() {
            Some((_, call)) => {
                let fair = drive.fair_answer(call);
                drive.answer(fair);
            }
            None => drive.wait(secs(1)),
        }
    }
    drive.answer(Answer::Ran(Ok(Ran { exit: Some(1), tail: "a key is there".into() })));
    let Reason::Failed { state, text, .. } = why(&drive) else { panic!("{:?}", why(&drive)) };
    assert_eq!(state, AgentPhase::Resetting);
    assert!(text.contains("a key is there"), "{text}");
}

#[test]
fn a_reset_that_takes_too_long_destroys_the_agent() {
    let mut drive = used(reset_spec());
    drive.wait(secs(300));
    assert!(matches!(why(&drive), Reason::TooSlow { state, .. } if state == AgentPhase::Resetting));
}

#[test]
fn a_reset_that_was_cut_short_is_looked_at_and_the_agent_destroyed() {
    let drive = used(reset_spec());
    let mut again = drive.adopt(secs(5));
    assert_eq!(again.state(), AgentPhase::Resetting);
    assert!(matches!(again.asked(), Some((_, Call::Look))));
    let observation = again.observation();
    again.answer(Answer::Looked(Ok(observation)));
    assert_eq!(why(&again).label(), "failed");
    assert!(!again.calls().contains(&Call::Rollback));
}

// Invariant: an agent that is reset serves one owner for life.

fn other() -> LeaseAsk {
    LeaseAsk { owner: "build 8".into(), ..ask("l2", None) }
}

#[test]
fn a_lease_of_another_owner_is_refused_before_and_after_a_restart() {
    let mut drive = used(reset_spec());
    drive.go_to(AgentPhase::Ready);
    let owner = drive.reports().last().expect("one").status.owner.clone();
    assert_eq!(owner, Some(ask("l1", None).whose()));
    let mut again = drive.adopt(secs(5));
    again.go_to(AgentPhase::Ready);
    let observation = again.observation();
    again.answer(Answer::Looked(Ok(observation)));
    again.wait(secs(1));
    for mut drive in [drive, again] {
        drive.command(AgentCommand::Lease { ask: Box::new(other()) });
        assert_eq!(drive.state(), AgentPhase::Ready);
        assert_eq!(drive.reports().last().expect("one").refused, [LeaseId::new("l2")]);
        drive.command(AgentCommand::Lease { ask: Box::new(ask("l3", None)) });
        assert_eq!(drive.state(), AgentPhase::Leased);
    }
}

#[test]
fn without_resets_an_agent_serves_anybody() {
    let mut drive = used(spec());
    drive.command(AgentCommand::Lease { ask: Box::new(other()) });
    assert_eq!(drive.state(), AgentPhase::Leased);
    assert_eq!(drive.reports().last().expect("one").status.owner, None);
    assert!(reset_stats(&drive).is_empty());
}

// Invariant: without a snapshot, or where resets are not worth it, a used agent is destroyed.

#[test]
fn where_there_can_be_no_snapshot_the_agent_serves_once_and_says_why() {
    let mut drive = Drive::new(reset_spec());
    while !matches!(drive.asked(), Some((_, Call::Snapshot))) {
        match drive.asked() {
            Some((_, call)) => {
                let fair = drive.fair_answer(call);
                drive.answer(fair);
            }
            None if drive.state() == AgentPhase::Queued => drop(drive.grant()),
            None => drive.wait(secs(1)),
        }
    }
    let refusal = || "snapshot feature is not available".to_owned();
    drive.answer(Answer::Snapped(Ok(Snapped::Impossible(refusal()))));
    assert_eq!(drive.state(), AgentPhase::Ready);
    assert!(drive.mind.detail().contains("cannot be reset"), "{}", drive.mind.detail());
    assert_eq!(reset_stats(&drive)[0], &ResetStats::Refused(refusal()));
    lease(&mut drive, "l1");
    assert_eq!(why(&drive), Reason::UsedUp);
}

#[test]
fn a_reset_that_is_not_worth_it_is_not_made() {
    let mut drive = Drive::new(reset_spec());
    drive.go_to(AgentPhase::Ready);
    drive.mind.know(TemplateHints { worth: false, hold_next: None });
    lease(&mut drive, "l1");
    assert_eq!(why(&drive), Reason::UsedUp);
    assert_eq!(reset_stats(&drive).last(), Some(&&ResetStats::Passed));
}

#[test]
fn the_last_use_is_followed_by_no_reset() {
    let mut drive = used(TemplateSpec { max_uses: Some(2), ..reset_spec() });
    drive.go_to(AgentPhase::Ready);
    lease(&mut drive, "l2");
    assert_eq!(why(&drive), Reason::UsedUp);
}

// Invariant: drover does not wait for a lease's key where the guest is rolled back anyhow. A hold
// comes before a reset.

#[test]
fn no_key_is_removed_from_a_guest_that_is_put_back() {
    let mut drive = Drive::new(reset_spec());
    drive.go_to(AgentPhase::Ready);
    drive.command(AgentCommand::Lease { ask: Box::new(ask("l1", Some("ssh-ed25519 USER"))) });
    drive.answer(Answer::Admitted(LeaseId::new("l1"), Ok(())));
    let (lease, why) = (LeaseId::new("l1"), "released".into());
    drive.command(AgentCommand::EndLease { lease, why });
    assert_eq!(drive.state(), AgentPhase::Resetting);
    assert!(!drive.calls().iter().any(|call| matches!(call, Call::Expel(..))));
}

#[test]
fn an_agent_that_is_to_be_held_keeps_what_its_last_lease_left() {
    let mut drive = Drive::new(reset_spec());
    drive.go_to(AgentPhase::Ready);
    drive.command(AgentCommand::Lease { ask: Box::new(ask("l1", None)) });
    drive.be_held();
    let (lease, why) = (LeaseId::new("l1"), "released".into());
    drive.command(AgentCommand::EndLease { lease, why });
    assert_eq!(drive.state(), AgentPhase::Held);
    assert!(!drive.calls().contains(&Call::Rollback));
}
