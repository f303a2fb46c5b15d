//! Leases of demand sources: a runner instead of a key.

use drover_model::demand::words::{Ending, Life, Words};
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{LeaseId, RunnerName, SourceId};
use drover_model::phase::AgentPhase;
use drover_model::record::{Body, LeaseAsk, Reason};
use drover_model::spec::{ResetKind, TemplateSpec};
use drover_model::status::Standing;

use crate::agent::event::{Answer, Call, Effect};
use crate::agent::testing::*;
use crate::message::AgentCommand;
use drover_model::journal_state::Pass;

fn ready(spec: TemplateSpec) -> Drive {
    let mut drive = Drive::new(spec);
    drive.go_to(AgentPhase::Ready);
    drive
}

fn git() -> SourceId {
    SourceId::new("git")
}

fn start_runner(drive: &mut Drive, lease: &str, whole: bool) -> Vec<Effect> {
    let ask = LeaseAsk { source: Some(git()), whole, ..ask(lease, None) };
    drive.command(AgentCommand::Lease { ask: Box::new(ask) })
}

fn runner_started(drive: &mut Drive, lease: &str) -> Vec<Effect> {
    drive.answer(Answer::Admitted(LeaseId::new(lease), Ok(())))
}

fn done(drive: &mut Drive, lease: &str) -> Vec<Effect> {
    let lease = LeaseId::new(lease);
    drive.command(AgentCommand::EndLease { lease, why: "done".into() })
}

fn name(n: u32) -> RunnerName {
    RunnerName::of(&installation(), &agent_id(), n)
}

// Invariant: a runner is recorded with its name before it is registered.

#[test]
fn a_runner_is_intended_before_it_is_started_and_reported_when_it_starts() {
    let mut drive = ready(spec());
    let effects = start_runner(&mut drive, "l1", false);
    let place = |wanted: fn(&Effect) -> bool| effects.iter().position(wanted).expect("there");
    let granted = place(|e| matches!(e, Effect::Record(Body::LeaseGranted { .. })));
    let intended = place(|e| matches!(e, Effect::Record(Body::RunnerIntended { .. })));
    let asked = place(|e| matches!(e, Effect::Ask(_, Call::Admit(_, _, Pass::Runner(..)))));
    assert!(granted < intended && intended < asked);
    assert!(drive.journal_state.runners[&git()].contains_key(&name(1)));
    let effects = runner_started(&mut drive, "l1");
    assert!(effects.contains(&Effect::RunnerStarted(git(), name(1))), "{effects:?}");
}

#[test]
fn a_runner_cut_off_on_its_way_by_a_restart_is_started_again_under_its_name() {
    let mut drive = ready(TemplateSpec { executors: 2, ..spec() });
    start_runner(&mut drive, "l1", false);
    let mut adopted = drive.adopt(secs(5));
    let running = adopted.observation();
    adopted.answer(Answer::Looked(Ok(running)));
    let again: Vec<_> = adopted
        .calls()
        .into_iter()
        .filter_map(|call| match call {
            Call::Admit(_, lease, Pass::Runner(_, runner, _)) => Some((lease, runner)),
            _ => None,
        })
        .collect();
    assert_eq!(again, [(LeaseId::new("l1"), name(1))]);
}

#[test]
fn a_lease_that_was_granted_and_whose_runner_was_not_written_down_has_one_at_the_next_start() {
    let mut drive = ready(TemplateSpec { executors: 2, ..spec() });
    start_runner(&mut drive, "l1", false);
    drive.journal_state.runners.clear();
    let entry = drive.journal_state.agents.get_mut(&agent_id()).expect("an agent");
    entry.leases.values_mut().for_each(|granted| granted.runner = None);
    let mut adopted = drive.adopt(secs(5));
    let running = adopted.observation();
    adopted.answer(Answer::Looked(Ok(running)));
    assert!(adopted.journal_state.runners[&git()].contains_key(&name(1)), "written down before");
    let starts_runners = |call: &Call| matches!(call, Call::Admit(_, _, Pass::Runner(..)));
    assert!(adopted.calls().iter().any(starts_runners));
}

// Invariant: no job gets a guest that another job was in, unless the template allows it or the
// guest was reset.

#[test]
fn an_agent_goes_after_the_job_of_a_source_and_its_runner_goes_with_it() {
    let mut drive = ready(spec());
    start_runner(&mut drive, "l1", false);
    runner_started(&mut drive, "l1");
    let effects = done(&mut drive, "l1");
    assert_eq!(drive.state(), AgentPhase::Retiring);
    assert_eq!(calls(&effects), [Call::Fence], "nothing is done in the guest");
    assert_eq!(drive.journal_state.agents[&agent_id()].retiring, Some(Reason::UsedUp));
    assert!(
        drive.journal_state.runners[&git()].contains_key(&name(1)),
        "its row is the source's matter"
    );
}

#[test]
fn an_agent_with_more_uses_is_rid_of_its_runner_first_and_the_next_has_another_name() {
    let mut drive = ready(TemplateSpec { max_uses: Some(2), ..spec() });
    start_runner(&mut drive, "l1", false);
    runner_started(&mut drive, "l1");
    let effects = done(&mut drive, "l1");
    let [Call::Expel(_, _, Pass::Runner(_, runner, _), _)] = &calls(&effects)[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(*runner, name(1));
    drive.answer(Answer::Expelled(LeaseId::new("l1"), Ok(())));
    assert_eq!(drive.state(), AgentPhase::Ready);
    start_runner(&mut drive, "l2", false);
    assert!(drive.journal_state.runners[&git()].contains_key(&name(2)));
}

#[test]
fn an_agent_that_can_be_reset_serves_its_source_again() {
    let mut drive = ready(TemplateSpec { reset: Some(ResetKind::Disk), ..spec() });
    start_runner(&mut drive, "l1", false);
    runner_started(&mut drive, "l1");
    done(&mut drive, "l1");
    assert_eq!(drive.state(), AgentPhase::Resetting);
}

#[test]
fn each_executor_has_one_job_and_then_the_agent_goes() {
    let mut drive = ready(TemplateSpec { executors: 2, ..spec() });
    for lease in ["l1", "l2"] {
        start_runner(&mut drive, lease, false);
        runner_started(&mut drive, lease);
    }
    done(&mut drive, "l1");
    drive.answer(Answer::Expelled(LeaseId::new("l1"), Ok(())));
    assert_eq!((drive.state(), drive.mind.standing()), (AgentPhase::Leased, Standing::Busy));
    done(&mut drive, "l2");
    assert_eq!(drive.state(), AgentPhase::Retiring);
}

// Invariant: a lease of the whole agent shares it with no other lease.

#[test]
fn a_whole_runner_takes_all_executors_and_refuses_a_shared_agent() {
    let mut drive = ready(TemplateSpec { executors: 4, ..spec() });
    start_runner(&mut drive, "l1", true);
    assert_eq!(drive.mind.standing(), Standing::Busy);
    let effects = start_runner(&mut drive, "l2", false);
    let Some(Effect::Report(report)) = effects.first() else { panic!("{effects:?}") };
    assert_eq!(report.refused, [LeaseId::new("l2")]);
    runner_started(&mut drive, "l1");
    done(&mut drive, "l1");
    assert_eq!(drive.state(), AgentPhase::Retiring);
    let mut shared = ready(TemplateSpec { executors: 4, ..spec() });
    start_runner(&mut shared, "l1", false);
    let effects = start_runner(&mut shared, "l2", true);
    let Some(Effect::Report(report)) = effects.first() else { panic!("{effects:?}") };
    assert_eq!(report.refused, [LeaseId::new("l2")]);
}

// Invariant: a runner that is not what it should be costs its agent, and its source is informed
// again.

#[test]
fn a_runner_that_its_source_gave_up_is_charged_to_the_template() {
    let mut drive = ready(spec());
    start_runner(&mut drive, "l1", false);
    runner_started(&mut drive, "l1");
    let (lease, text) = (LeaseId::new("l1"), "its runner did not connect".to_owned());
    drive.command(AgentCommand::FailLease { lease: lease.clone(), text });
    let effects = drive.answer(Answer::Words(lease, Ok(ended())));
    let Some(Effect::Report(report)) = effects.first() else { panic!("{effects:?}") };
    let fault = report.fault.as_ref().expect("a fault");
    assert_eq!((&fault.culprit, &fault.kind), (&Culprit::Template, &FaultKind::Broken));
    assert_eq!(drive.state(), AgentPhase::Retiring);
}

fn ended() -> Words {
    let (lines, too_old) = ("too old".into(), None);
    Words { life: Life::Ended(Some(7)), seconds: 2, ago: 0, lines, too_old }
}

fn fails(drive: &mut Drive) -> Vec<Effect> {
    let (lease, text) = (LeaseId::new("l1"), "its runner did not connect".to_owned());
    drive.command(AgentCommand::FailLease { lease, text })
}

fn why(drive: &Drive) -> String {
    match &drive.journal_state.agents[&agent_id()].retiring {
        Some(Reason::Failed { text, .. }) => text.clone(),
        other => panic!("{other:?}"),
    }
}

// Invariant: what a guest knows of its runner is reported before the guest goes. drover asks once.

#[test]
fn a_runner_that_fails_is_reported_with_its_last_words() {
    let mut drive = ready(spec());
    start_runner(&mut drive, "l1", false);
    runner_started(&mut drive, "l1");
    let effects = fails(&mut drive);
    let [Call::Words(_, lease, Pass::Runner(_, runner, _))] = &calls(&effects)[..] else {
        panic!("{effects:?}")
    };
    assert_eq!((lease.as_str(), runner), ("l1", &name(1)));
    assert_eq!(drive.state(), AgentPhase::Leased);
    drive.answer(Answer::Words(LeaseId::new("l1"), Ok(ended())));
    let reported = "its runner did not connect; it ended with 7 after 2 s; its log: too old";
    assert_eq!(why(&drive), reported);
}

#[test]
fn a_runner_whose_guest_says_nothing_fails_all_the_same() {
    let mut drive = ready(spec());
    start_runner(&mut drive, "l1", false);
    runner_started(&mut drive, "l1");
    fails(&mut drive);
    let silent = Fault::new(FaultKind::Unreachable, Culprit::Guest, "no route");
    drive.answer(Answer::Words(LeaseId::new("l1"), Err(silent)));
    let reported = "its runner did not connect; its guest could not be asked: no route";
    assert_eq!(why(&drive), reported);
}

#[test]
fn a_runner_that_fails_and_whose_lease_is_ended_meanwhile_has_failed() {
    let mut drive = ready(spec());
    start_runner(&mut drive, "l1", false);
    runner_started(&mut drive, "l1");
    fails(&mut drive);
    done(&mut drive, "l1");
    assert_eq!(why(&drive), "its runner did not connect");
}

#[test]
fn a_runner_that_is_taken_up_again_when_it_fails_is_not_waited_for() {
    let mut drive = ready(TemplateSpec { executors: 2, ..spec() });
    start_runner(&mut drive, "l1", false);
    runner_started(&mut drive, "l1");
    let mut adopted = drive.adopt(secs(5));
    fails(&mut adopted);
    assert_eq!(why(&adopted), "its runner did not connect");
}

// Invariant: a guest is asked about its runner, and the source decides what the answer means.

#[test]
fn an_end_that_the_guest_mentions_is_passed_on_and_ends_nothing() {
    let mut drive = ready(spec());
    start_runner(&mut drive, "l1", false);
    runner_started(&mut drive, "l1");
    let ask = || AgentCommand::AskRunner { lease: LeaseId::new("l1") };
    let effects = drive.command(ask());
    assert!(matches!(&calls(&effects)[..], [Call::Words(..)]), "{effects:?}");
    assert!(calls(&drive.command(ask())).is_empty(), "one at once");
    let runs = Words { life: Life::Runs, ..ended() };
    let left = Words { life: Life::Left, ..ended() };
    let well = Words { life: Life::Ended(Some(0)), ..ended() };
    let all = [
        (runs, None),
        (left, Some(Ending::Left)),
        (well, Some(Ending::Well)),
        (ended(), Some(Ending::Badly)),
    ];
    for (words, passed_on) in all {
        let effects = drive.answer(Answer::Words(LeaseId::new("l1"), Ok(words)));
        let found = effects.iter().find_map(|effect| match effect {
            Effect::Ended(source, runner, how, _) => {
                assert_eq!((source, runner), (&git(), &name(1)));
                Some(*how)
            }
            _ => None,
        });
        assert_eq!(found, passed_on, "{effects:?}");
        drive.command(ask());
    }
    assert_eq!(drive.state(), AgentPhase::Leased);
}

#[test]
fn that_a_runner_is_too_old_is_passed_on_with_its_template_and_what_it_was_started_for() {
    let mut drive = ready(spec());
    start_runner(&mut drive, "l1", false);
    runner_started(&mut drive, "l1");
    drive.command(AgentCommand::AskRunner { lease: LeaseId::new("l1") });
    let words = Words { too_old: Some("it is too old".to_owned()), ..ended() };
    let effects = drive.answer(Answer::Words(LeaseId::new("l1"), Ok(words)));
    let found = effects.iter().find_map(|effect| match effect {
        Effect::TooOld(source, runner, reported) => Some((source, runner, reported)),
        _ => None,
    });
    let (source, runner, reported) = found.expect("it is passed on");
    assert_eq!((source, runner), (&git(), &name(1)));
    assert_eq!((&reported.template, reported.text.as_str()), (&spec().id, "it is too old"));
    assert_eq!(reported.want, ask("l1", None).want);
    assert_eq!(drive.state(), AgentPhase::Leased, "it ends nothing");
}

#[test]
fn only_a_lease_that_has_its_runner_is_asked_about() {
    let mut drive = ready(TemplateSpec { executors: 2, ..spec() });
    drive.command(AgentCommand::Lease { ask: Box::new(ask("l2", Some("ssh-ed25519 USER"))) });
    drive.answer(Answer::Admitted(LeaseId::new("l2"), Ok(())));
    start_runner(&mut drive, "l1", false);
    for lease in ["l1", "l2", "l3"] {
        let lease = LeaseId::new(lease);
        assert!(calls(&drive.command(AgentCommand::AskRunner { lease })).is_empty());
    }
}

// Invariant: a source's refusal of a runner is passed on; a fault that may pass is not.

#[test]
fn a_refusal_of_the_source_is_asked_to_it_and_other_trouble_is_not() {
    let source = || Culprit::Source(git());
    let denied = FaultKind::Denied { privilege: None, path: None };
    let cases = [
        (Fault::new(denied.clone(), source(), "403"), true),
        (Fault::new(FaultKind::Gone, source(), "404"), true),
        (Fault::new(FaultKind::Contention, source(), "429"), false),
        (Fault::new(denied, Culprit::Guest, "no"), false),
    ];
    for (fault, passed_on) in cases {
        let mut drive = ready(spec());
        start_runner(&mut drive, "l1", false);
        let reported = Effect::StartFailed(git(), name(1), fault.text.clone());
        let effects = drive.answer(Answer::Admitted(LeaseId::new("l1"), Err(fault)));
        assert_eq!(effects.contains(&reported), passed_on, "{effects:?}");
    }
}

#[test]
fn a_runner_that_could_not_be_made_gives_its_lease_back_and_blames_no_machine() {
    let mut drive = ready(spec());
    start_runner(&mut drive, "l1", false);
    let denied = FaultKind::Denied { privilege: None, path: None };
    let fault = Fault::new(denied, Culprit::Source(git()), "401");
    let effects = drive.answer(Answer::Admitted(LeaseId::new("l1"), Err(fault)));
    let Some(Effect::Report(report)) = effects.first() else { panic!("{effects:?}") };
    assert_eq!(report.refused, [LeaseId::new("l1")]);
    assert!(
        drive.journal_state.waiting.is_empty(),
        "the source asks again for what it still wants"
    );
}
