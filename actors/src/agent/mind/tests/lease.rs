//! Leases, age, draining.

use drover_model::fact::What;
use drover_model::fault::{Fault, FaultKind};
use drover_model::id::LeaseId;
use drover_model::overrides::{Change, OverrideChange};
use drover_model::phase::{AgentPhase, LeasePhase};
use drover_model::ports::{Holder, Sessions, VmObservation};
use drover_model::record::{Body, LeaseAsk, Reason};
use drover_model::spec::TemplateSpec;
use drover_model::status::Standing;

use crate::agent::event::{Answer, Call, Effect, Event};
use crate::agent::testing::*;
use crate::message::AgentCommand;
use drover_model::journal_state::Pass;

const KEY: &str = "ssh-ed25519 USER";

fn ready(spec: TemplateSpec) -> Drive {
    let mut drive = Drive::new(spec);
    drive.go_to(AgentPhase::Ready);
    drive
}

fn take(drive: &mut Drive, lease: &str, key: Option<&str>) -> Vec<Effect> {
    drive.command(AgentCommand::Lease { ask: Box::new(ask(lease, key)) })
}

fn end(drive: &mut Drive, lease: &str) -> Vec<Effect> {
    let lease = LeaseId::new(lease);
    drive.command(AgentCommand::EndLease { lease, why: "released".into() })
}

fn shown(drive: &Drive, lease: &str) -> Vec<LeasePhase> {
    let of = |what: &&What| match what {
        What::Lease(status) if status.lease.as_str() == lease => Some(status.state),
        _ => None,
    };
    drive.facts().iter().filter_map(of).collect()
}

// Invariant: a lease is durable before anything is done for it, and ready only with its key.

#[test]
fn a_lease_is_written_before_its_key_is_installed_and_the_standing_falls_first() {
    let mut drive = ready(spec());
    let effects = take(&mut drive, "l1", Some(KEY));
    let Some(Effect::Report(report)) = effects.first() else { panic!("{effects:?}") };
    assert_eq!(report.status.standing, Standing::Busy);
    let place = |wanted: fn(&Effect) -> bool| effects.iter().position(wanted).expect("there");
    let written = place(|e| matches!(e, Effect::Record(Body::LeaseGranted { .. })));
    let installed = place(|e| matches!(e, Effect::Ask(_, Call::Admit(..))));
    assert!(written < installed);
    assert_eq!(shown(&drive, "l1"), [LeasePhase::Granted]);
    drive.answer(Answer::Admitted(LeaseId::new("l1"), Ok(())));
    assert_eq!(shown(&drive, "l1"), [LeasePhase::Granted, LeasePhase::Ready]);
}

#[test]
fn a_lease_without_a_key_is_ready_at_once() {
    let mut drive = ready(spec());
    take(&mut drive, "l1", None);
    assert_eq!(shown(&drive, "l1"), [LeasePhase::Ready]);
}

/// A lease that brings user data and no key.
fn bring(drive: &mut Drive, lease: &str) -> Vec<Effect> {
    let ask = LeaseAsk { user_data: true, ..ask(lease, None) };
    drive.command(AgentCommand::Lease { ask: Box::new(ask) })
}

#[test]
fn a_lease_is_ready_only_with_its_user_data_and_takes_that_along() {
    let mut drive = ready(spec());
    let effects = bring(&mut drive, "l1");
    assert_eq!(shown(&drive, "l1"), [LeasePhase::Granted]);
    let place = ADDRESS.parse().expect("an address");
    let holder = Holder { public_key: None, user_data: true };
    let pass = || Pass::Holder(holder.clone());
    assert_eq!(calls(&effects), [Call::Admit(place, LeaseId::new("l1"), pass())]);
    drive.answer(Answer::Admitted(LeaseId::new("l1"), Ok(())));
    assert_eq!(shown(&drive, "l1"), [LeasePhase::Granted, LeasePhase::Ready]);
    let effects = end(&mut drive, "l1");
    assert_eq!(calls(&effects), [Call::Expel(place, LeaseId::new("l1"), pass(), Sessions::End)]);
}

#[test]
fn a_lease_whose_user_data_is_not_kept_any_more_ends_and_costs_no_agent() {
    let mut drive = ready(spec());
    bring(&mut drive, "l1");
    let effects = drive.answer(Answer::Admitted(LeaseId::new("l1"), Err(fault(FaultKind::Gone))));
    let why = effects.iter().find_map(|effect| match effect {
        Effect::Record(Body::LeaseEnded { why, .. }) => Some(why.clone()),
        _ => None,
    });
    assert_eq!(why.as_deref(), Some("a planned gone"), "{effects:?}");
    drive.answer(Answer::Expelled(LeaseId::new("l1"), Ok(())));
    assert_eq!(drive.state(), AgentPhase::Ready);
}

#[test]
fn a_lease_goes_back_when_the_agent_is_lost_before_it_was_ready() {
    for lost in [AgentCommand::Vanished, AgentCommand::ForceRetire(Reason::Asked)] {
        let mut drive = ready(spec());
        take(&mut drive, "l1", Some(KEY));
        let effects = drive.command(lost);
        let Some(Effect::Report(report)) = effects.first() else { panic!("{effects:?}") };
        assert_eq!(report.refused, [LeaseId::new("l1")]);
        let back = |e: &Effect| matches!(e, Effect::Record(Body::LeaseReturned { .. }));
        let over = |e: &Effect| matches!(e, Effect::Record(Body::LeaseEnded { .. }));
        assert!(effects.iter().any(back) && !effects.iter().any(over), "{effects:?}");
    }
}

#[test]
fn a_lease_goes_back_when_its_key_cannot_be_installed() {
    let mut drive = ready(spec());
    take(&mut drive, "l1", Some(KEY));
    let refused = Err(fault(FaultKind::KeyRejected));
    drive.answer(Answer::Admitted(LeaseId::new("l1"), refused));
    assert_eq!(drive.state(), AgentPhase::Retiring);
    assert_eq!(shown(&drive, "l1"), [LeasePhase::Granted], "the herd shows that it waits");
}

#[test]
fn a_lease_that_was_ready_once_is_lost_with_its_agent() {
    let mut drive = ready(spec());
    take(&mut drive, "l1", Some(KEY));
    drive.answer(Answer::Admitted(LeaseId::new("l1"), Ok(())));
    let effects = drive.command(AgentCommand::Vanished);
    let over =
        |e: &Effect| matches!(e, Effect::Record(Body::LeaseEnded { why, .. }) if why == "lost");
    assert!(effects.iter().any(over), "{effects:?}");
}

#[test]
fn a_lease_that_does_not_fit_is_refused_and_nothing_is_written() {
    let mut drive = ready(spec());
    take(&mut drive, "l1", None);
    let effects = take(&mut drive, "l2", None);
    let Some(Effect::Report(report)) = effects.first() else { panic!("{effects:?}") };
    assert_eq!(report.refused, [LeaseId::new("l2")]);
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Record(_))));
}

#[test]
fn the_same_lease_reported_twice_is_taken_once() {
    let mut drive = ready(TemplateSpec { executors: 2, ..spec() });
    take(&mut drive, "l1", None);
    assert!(take(&mut drive, "l1", None).is_empty());
    assert_eq!(drive.mind.standing(), Standing::Free { executors: 1, idle: false });
}

// Invariant: a key never outlives its lease on an agent that stays.

#[test]
fn the_executor_is_free_again_only_when_the_key_is_gone() {
    let mut drive = ready(spec());
    take(&mut drive, "l1", Some(KEY));
    drive.answer(Answer::Admitted(LeaseId::new("l1"), Ok(())));
    let effects = end(&mut drive, "l1");
    assert!(effects.iter().any(|e| matches!(e, Effect::Record(Body::LeaseEnded { .. }))));
    assert_eq!(drive.mind.standing(), Standing::Busy);
    drive.answer(Answer::Expelled(LeaseId::new("l1"), Ok(())));
    assert_eq!(drive.mind.standing(), Standing::Free { executors: 1, idle: true });
    assert_eq!(drive.state(), AgentPhase::Ready);
}

#[test]
fn an_agent_whose_key_cannot_be_removed_goes() {
    let mut drive = ready(spec());
    take(&mut drive, "l1", Some(KEY));
    drive.answer(Answer::Admitted(LeaseId::new("l1"), Ok(())));
    end(&mut drive, "l1");
    for _ in 0..3 {
        let unreachable = Err(fault(FaultKind::Unreachable));
        drive.answer(Answer::Expelled(LeaseId::new("l1"), unreachable));
        drive.wait(secs(2));
    }
    assert_eq!(drive.state(), AgentPhase::Retiring);
}

/// Two leases with keys. The first has ended, and its key is still there.
fn half_ended() -> Drive {
    let mut drive = ready(TemplateSpec { executors: 3, ..spec() });
    for lease in ["l1", "l2"] {
        take(&mut drive, lease, Some(KEY));
        drive.answer(Answer::Admitted(LeaseId::new(lease), Ok(())));
    }
    end(&mut drive, "l1");
    drive
}

/// The adopted guest is inspected and exists.
fn found(drive: &Drive) -> Drive {
    let mut adopted = drive.adopt(secs(5));
    assert_eq!(
        adopted.calls(),
        [Call::Confirm],
        "nothing is done to a guest that was not looked at"
    );
    let running = adopted.observation();
    adopted.answer(Answer::Looked(Ok(running)));
    adopted
}

fn expel(lease: &str, sessions: Sessions) -> Call {
    Call::Expel(
        ADDRESS.parse().expect("an address"),
        LeaseId::new(lease),
        Pass::Holder(Holder::of_key(KEY)),
        sessions,
    )
}

/// Answers the last call that removes this lease's key.
fn answer_expel(drive: &mut Drive, lease: &str, result: Result<(), Fault>) {
    let lease = LeaseId::new(lease);
    let asked = drive.effects.iter().rev().find_map(|effect| match effect {
        Effect::Ask(attempt, Call::Expel(_, of, ..)) if *of == lease => Some(*attempt),
        _ => None,
    });
    let asked = asked.expect("it is being expelled");
    drive.event(Event::Answer(asked, Answer::Expelled(lease, result)));
}

fn expelled(drive: &mut Drive, lease: &str) {
    answer_expel(drive, lease, Ok(()));
}

#[test]
fn an_end_cut_short_by_a_crash_is_finished_by_the_adopted_agent() {
    let mut drive = ready(spec());
    take(&mut drive, "l1", Some(KEY));
    drive.answer(Answer::Admitted(LeaseId::new("l1"), Ok(())));
    end(&mut drive, "l1");
    let mut adopted = found(&drive);
    assert_eq!(adopted.calls().last(), Some(&expel("l1", Sessions::End)));
    assert_eq!((adopted.state(), adopted.mind.standing()), (AgentPhase::Leased, Standing::Busy));
    expelled(&mut adopted, "l1");
    assert_eq!(adopted.state(), AgentPhase::Ready);
    assert_eq!(shown(&adopted, "l1"), [], "its end was reported before");
}

#[test]
fn an_end_cut_short_beside_another_lease_is_finished_before_anybody_else_comes() {
    for mut adopted in [half_ended(), found(&half_ended())] {
        assert!(adopted.calls().contains(&expel("l1", Sessions::Stay)));
        assert_eq!(adopted.mind.standing(), Standing::Busy, "a key is there that should not be");
        take(&mut adopted, "l3", Some(KEY));
        assert_eq!(adopted.reports().last().expect("a report").refused, [LeaseId::new("l3")]);
        expelled(&mut adopted, "l1");
        assert_eq!(adopted.state(), AgentPhase::Leased);
        assert_eq!(adopted.mind.standing(), Standing::Free { executors: 2, idle: false });
    }
}

#[test]
fn a_key_that_was_removed_beside_another_lease_is_not_removed_again() {
    let mut drive = half_ended();
    expelled(&mut drive, "l1");
    let adopted = found(&drive);
    assert!(!adopted.calls().contains(&expel("l1", Sessions::Stay)), "{:?}", adopted.calls());
    assert_eq!(adopted.state(), AgentPhase::Leased);
}

#[test]
fn a_key_that_cannot_be_removed_after_a_crash_goes_with_its_guest() {
    let mut adopted = found(&half_ended());
    for turn in 0..3 {
        answer_expel(&mut adopted, "l1", Err(fault(FaultKind::Unreachable)));
        if turn == 0 {
            // The other lease's key is handled meanwhile.
            adopted.answer(Answer::Admitted(LeaseId::new("l2"), Ok(())));
        }
        adopted.wait(secs(2));
    }
    assert_eq!(adopted.state(), AgentPhase::Draining);
}

#[test]
fn an_end_before_the_first_look_waits_for_it() {
    let mut drive = ready(TemplateSpec { executors: 2, ..spec() });
    for lease in ["l1", "l2"] {
        take(&mut drive, lease, Some(KEY));
        drive.answer(Answer::Admitted(LeaseId::new(lease), Ok(())));
    }
    let mut adopted = drive.adopt(secs(5));
    let look = adopted.asked().expect("a look").0;
    let effects = end(&mut adopted, "l1");
    assert_eq!(calls(&effects), [], "whatever the journal says, the guest is looked at first");
    let running = adopted.observation();
    adopted.event(Event::Answer(look, Answer::Looked(Ok(running))));
    assert!(adopted.calls().contains(&expel("l1", Sessions::Stay)));
}

#[test]
fn anyone_who_overstayed_before_a_crash_takes_the_guest_along_after_it() {
    let mut drive = ready(TemplateSpec { executors: 2, ..spec() });
    take(&mut drive, "l1", None);
    drive.wait(secs(1800));
    take(&mut drive, "l2", None);
    let lease = LeaseId::new("l1");
    // All that was durable when the power failed.
    drive.record(Body::LeaseEnded { lease, why: "expired".into(), cause: String::new() });
    let adopted = found(&drive);
    assert_eq!(adopted.state(), AgentPhase::Draining);
}

#[test]
fn a_key_that_was_perhaps_installed_for_a_lease_given_back_goes_with_its_guest() {
    let mut drive = ready(TemplateSpec { executors: 2, ..spec() });
    take(&mut drive, "l1", Some(KEY));
    take(&mut drive, "l2", None);
    let (agent, lease) = (agent_id(), LeaseId::new("l1"));
    drive.record(Body::LeaseReturned { agent, lease });
    let adopted = found(&drive);
    assert_eq!(adopted.state(), AgentPhase::Draining);
}

#[test]
fn a_used_up_agent_goes_after_a_crash_without_touching_the_key() {
    let mut drive = ready(TemplateSpec { max_uses: Some(1), ..spec() });
    take(&mut drive, "l1", Some(KEY));
    drive.answer(Answer::Admitted(LeaseId::new("l1"), Ok(())));
    let lease = LeaseId::new("l1");
    drive.record(Body::LeaseEnded { lease, why: "released".into(), cause: String::new() });
    let adopted = found(&drive);
    assert_eq!(adopted.state(), AgentPhase::Retiring);
    assert!(!adopted.calls().contains(&expel("l1", Sessions::Stay)));
}

// Invariant: uses are counted, and the last one ends the agent.

#[test]
fn a_used_up_agent_goes_at_its_last_end_without_touching_the_key() {
    let mut drive = ready(TemplateSpec { max_uses: Some(1), executors: 4, ..spec() });
    assert_eq!(drive.mind.standing(), Standing::Free { executors: 1, idle: true });
    take(&mut drive, "l1", Some(KEY));
    assert_eq!((drive.state(), drive.mind.standing()), (AgentPhase::Leased, Standing::Busy));
    drive.answer(Answer::Admitted(LeaseId::new("l1"), Ok(())));
    let effects = end(&mut drive, "l1");
    assert_eq!(drive.state(), AgentPhase::Retiring);
    assert_eq!(calls(&effects), [Call::Fence]);
    assert_eq!(drive.journal_state.agents[&agent_id()].retiring, Some(Reason::UsedUp));
}

// Invariant: an expired lease costs its holder the machine. Other leases on it may finish.

// Invariant: an operator's limit for one agent holds at once and never ends a lease early.

fn uses(drive: &mut Drive, max_uses: Change) {
    let change = OverrideChange { max_uses, ..OverrideChange::default() };
    drive.record(Body::OverrideSet { agent: agent_id(), change });
    drive.command(AgentCommand::Override(change));
}

#[test]
fn a_lowered_limit_lets_the_use_under_way_end_and_then_retires_the_agent() {
    let mut drive = ready(TemplateSpec { executors: 2, ..spec() });
    take(&mut drive, "l1", None);
    uses(&mut drive, Change::Set(1));
    assert_eq!((drive.state(), drive.mind.standing()), (AgentPhase::Leased, Standing::Busy));
    take(&mut drive, "l2", None);
    assert_eq!(drive.mind.usage.count(), 1, "a second use is refused");
    end(&mut drive, "l1");
    assert_eq!(drive.state(), AgentPhase::Retiring);
}

#[test]
fn an_idle_agent_that_was_used_often_enough_goes_at_once_and_a_raised_limit_keeps_it() {
    let mut drive = ready(TemplateSpec { max_uses: Some(1), ..spec() });
    uses(&mut drive, Change::Set(0));
    for lease in ["l1", "l2"] {
        take(&mut drive, lease, None);
        end(&mut drive, lease);
        assert_eq!(drive.state(), AgentPhase::Ready);
    }
    let overrides = drive.reports().last().expect("a report").status.overrides;
    assert_eq!(overrides.max_uses, Some(0));
    uses(&mut drive, Change::TakeBack);
    assert_eq!(drive.state(), AgentPhase::Retiring);
}

#[test]
fn a_limit_that_was_written_before_a_crash_holds_after_it() {
    let mut drive = ready(spec());
    take(&mut drive, "l1", None);
    end(&mut drive, "l1");
    let change = OverrideChange { max_uses: Change::Set(1), ..OverrideChange::default() };
    drive.record(Body::OverrideSet { agent: agent_id(), change });
    let mut adopted = drive.adopt(secs(5));
    assert_eq!(adopted.state(), AgentPhase::Ready, "it is looked at first");
    let seen = Answer::Looked(Ok(adopted.observation()));
    adopted.answer(seen);
    assert_eq!(adopted.state(), AgentPhase::Retiring);
}

#[test]
fn an_expired_lease_retires_the_agent() {
    let mut drive = ready(spec());
    take(&mut drive, "l1", None);
    drive.wait(secs(3601));
    assert_eq!(drive.state(), AgentPhase::Retiring);
    assert!(drive.journal_state.ended.values().any(|ended| ended.why == "expired"));
}

#[test]
fn a_renewed_lease_lasts_longer() {
    let mut drive = ready(spec());
    take(&mut drive, "l1", None);
    let expires = drive.now.wall + secs(7200);
    let lease = LeaseId::new("l1");
    drive.command(AgentCommand::LeaseRenewed { lease, expires });
    drive.wait(secs(3700));
    assert_eq!(drive.state(), AgentPhase::Leased);
    drive.wait(secs(3600));
    assert_eq!(drive.state(), AgentPhase::Retiring);
}

// Invariant: neither a change of the clock nor a pause of the service takes a lease from its
// holder.

#[test]
fn a_wall_clock_set_forward_ends_no_lease() {
    let mut drive = ready(spec());
    take(&mut drive, "l1", None);
    drive.now.wall = drive.now.wall + secs(86_400);
    drive.wait(secs(3500));
    assert_eq!(drive.state(), AgentPhase::Leased);
    drive.wait(secs(101));
    assert_eq!(drive.state(), AgentPhase::Retiring);
}

#[test]
fn a_wall_clock_set_back_keeps_no_lease() {
    let mut drive = ready(spec());
    take(&mut drive, "l1", None);
    drive.now.wall.0 -= 86_400_000;
    drive.wait(secs(3601));
    assert_eq!(drive.state(), AgentPhase::Retiring);
}

#[test]
fn a_lease_that_ran_out_while_the_service_stood_still_gets_that_time_back_once() {
    let mut drive = ready(spec());
    take(&mut drive, "l1", None);
    drive.wait(secs(3590));
    drive.pause(secs(310));
    assert_eq!(drive.state(), AgentPhase::Leased);
    let granted = &drive.journal_state.agents[&agent_id()].leases[&LeaseId::new("l1")];
    assert_eq!(granted.expires, drive.now.wall + secs(300));
    drive.wait(secs(299));
    assert_eq!(drive.state(), AgentPhase::Leased);
    drive.wait(secs(2));
    assert_eq!(drive.state(), AgentPhase::Retiring);
}

#[test]
fn an_expired_lease_beside_another_drains() {
    let mut drive = ready(TemplateSpec { executors: 2, ..spec() });
    take(&mut drive, "l1", None);
    drive.wait(secs(1800));
    take(&mut drive, "l2", None);
    drive.wait(secs(1801));
    assert_eq!(drive.state(), AgentPhase::Draining);
    let reported = drive.facts().into_iter().rev().find_map(|what| match what {
        What::Agent(status) => Some(status.detail.clone()),
        _ => None,
    });
    let until = (drive.now.wall + secs(3600 - 1801)).rfc3339();
    let reported = reported.expect("a status");
    assert!(reported.starts_with("takes no new lease: one of its leases ran out, "), "{reported}");
    assert!(reported.ends_with(&format!(" end, at {until} unless one is renewed")), "{reported}");
    end(&mut drive, "l2");
    assert_eq!(drive.state(), AgentPhase::Retiring);
}

// Invariant: a retire command never ends a lease early; a force does.

#[test]
fn a_retire_drains_a_leased_agent_and_a_force_cuts_it() {
    for (command, state) in [
        (AgentCommand::Retire(Reason::Asked), AgentPhase::Draining),
        (AgentCommand::Drain(Reason::Unconfigured), AgentPhase::Draining),
        (AgentCommand::ForceRetire(Reason::Asked), AgentPhase::Retiring),
    ] {
        let mut drive = ready(spec());
        take(&mut drive, "l1", None);
        drive.command(command);
        assert_eq!(drive.state(), state);
    }
}

#[test]
fn a_draining_agent_takes_nothing_new() {
    let mut drive = ready(TemplateSpec { executors: 2, ..spec() });
    take(&mut drive, "l1", None);
    drive.command(AgentCommand::Drain(Reason::Asked));
    take(&mut drive, "l2", None);
    assert_eq!(drive.reports().last().expect("a report").refused, [LeaseId::new("l2")]);
}

// Invariant: idle time is the template's matter; age is the agent's own.

#[test]
fn an_agent_never_goes_for_being_idle_but_for_its_age() {
    let mut drive = ready(spec());
    drive.wait(secs(80_000));
    assert_eq!(drive.state(), AgentPhase::Ready);
    drive.wait(secs(7000));
    assert_eq!(drive.journal_state.agents[&agent_id()].retiring, Some(Reason::Old));
}

// Invariant: a list is no proof; the guest itself is read.

#[test]
fn a_guest_seen_stopped_is_looked_at_before_its_lease_is_lost() {
    let mut drive = ready(spec());
    take(&mut drive, "l1", None);
    drive.command(AgentCommand::SeenStopped);
    let running = drive.observation();
    drive.answer(Answer::Looked(Ok(running)));
    assert_eq!(drive.state(), AgentPhase::Leased);
    drive.command(AgentCommand::SeenStopped);
    let stopped = VmObservation { running: Some(false), ..drive.observation() };
    drive.answer(Answer::Looked(Ok(stopped)));
    assert_eq!(drive.state(), AgentPhase::Retiring);
    assert_eq!(shown(&drive, "l1"), [LeasePhase::Ready, LeasePhase::Ended]);
}

#[test]
fn a_parked_agent_keeps_its_guest_and_goes_when_it_is_back() {
    let mut drive = ready(spec());
    drive.command(AgentCommand::NodeDown(true));
    assert_eq!(drive.mind.standing(), Standing::Parked);
    drive.command(AgentCommand::NodeDown(false));
    assert_eq!(drive.journal_state.agents[&agent_id()].retiring, Some(Reason::ReturnedFromPark));
}

#[test]
fn a_lease_on_a_node_that_lost_its_power_is_lost_as_soon_as_the_node_is_back() {
    let mut drive = ready(spec());
    take(&mut drive, "l1", None);
    drive.command(AgentCommand::NodeDown(true));
    assert_eq!(drive.mind.detail(), "node n1 is offline; drover waits for it");
    drive.command(AgentCommand::NodeDown(false));
    assert_eq!(drive.state(), AgentPhase::Draining);
    let observation = VmObservation { running: Some(false), ..drive.observation() };
    drive.answer(Answer::Looked(Ok(observation)));
    assert_eq!(drive.state(), AgentPhase::Retiring);
    assert_eq!(shown(&drive, "l1").last(), Some(&LeasePhase::Ended));
}
