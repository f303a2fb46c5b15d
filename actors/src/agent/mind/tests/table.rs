//! The transition table, drawn from `step` itself and compared with `transitions.txt`.
//!
//! After a wanted change: `cargo test -p drover-actors agent::mind` prints the new table.

use std::fmt::Write;

use drover_model::fault::FaultKind;
use drover_model::id::{ClusterId, LeaseId, NodeName, VmId};
use drover_model::overrides::{Change, OverrideChange};
use drover_model::phase::AgentPhase;
use drover_model::ports::{AddressObservation, Ran, TaskEnd};
use drover_model::record::Reason;
use drover_scripts::guest;

use crate::agent::event::{Answer, Call, Event};
use crate::agent::state::usual;
use crate::agent::testing::*;
use crate::message::AgentCommand;

const GOLDEN: &str = include_str!("../../transitions.txt");

/// A mind in each state, right after entering it.
fn at(state: AgentPhase) -> Drive {
    let mut drive = Drive::new(if state == AgentPhase::Resetting { reset_spec() } else { spec() });
    match state {
        AgentPhase::Queued => {}
        AgentPhase::InDoubt => {
            drive.go_to(AgentPhase::Cloning);
            drive.answer(Answer::Cloned(Err(fault(FaultKind::UnknownOutcome))));
        }
        AgentPhase::Leased | AgentPhase::Draining => {
            drive.go_to(AgentPhase::Ready);
            drive.command(AgentCommand::Lease { ask: Box::new(ask("l1", None)) });
            if state == AgentPhase::Draining {
                drive.command(AgentCommand::Drain(Reason::Asked));
            }
        }
        AgentPhase::Resetting => {
            drive.go_to(AgentPhase::Ready);
            drive.command(AgentCommand::Lease { ask: Box::new(ask("l1", None)) });
            let (lease, why) = (LeaseId::new("l1"), "released".into());
            drive.command(AgentCommand::EndLease { lease, why });
        }
        AgentPhase::Held => {
            drive.go_to(AgentPhase::Ready);
            drive.be_held();
        }
        AgentPhase::Retiring | AgentPhase::Stranded | AgentPhase::Gone => {
            drive.go_to(AgentPhase::Ready);
            drive.command(AgentCommand::Retire(Reason::Asked));
            if state == AgentPhase::Stranded {
                drive.answer(Answer::Fenced(Err(fault(FaultKind::Foreign))));
            }
            drive.go_to(state);
        }
        _ => drive.go_to(state),
    }
    assert_eq!(drive.state(), state);
    drive
}

fn commands() -> Vec<(&'static str, AgentCommand)> {
    let lease = LeaseId::new("l1");
    let granted = AgentCommand::Granted {
        vmid: VmId(10_417),
        node: NodeName::new("n1"),
        cluster: ClusterId::new("9f31c0aa52e7d410"),
        spec: None,
    };
    let once = OverrideChange { max_uses: Change::Set(1), ..OverrideChange::default() };
    vec![
        ("Granted", granted),
        ("NotGranted", AgentCommand::NotGranted(fault(FaultKind::Capacity))),
        ("Lease", AgentCommand::Lease { ask: Box::new(ask("l2", None)) }),
        ("EndLease", AgentCommand::EndLease { lease, why: "released".into() }),
        ("Override", AgentCommand::Override(once)),
        ("Hold", AgentCommand::Hold(Some(Box::new(a_hold())))),
        ("Release", AgentCommand::Hold(None)),
        ("Drain", AgentCommand::Drain(Reason::Asked)),
        ("Retire", AgentCommand::Retire(Reason::Asked)),
        ("Withdraw", AgentCommand::Withdraw),
        ("ForceRetire", AgentCommand::ForceRetire(Reason::Asked)),
        ("Moved", AgentCommand::Moved(NodeName::new("n2"))),
        ("Vanished", AgentCommand::Vanished),
        ("SeenStopped", AgentCommand::SeenStopped),
        ("CalledIn", AgentCommand::CalledIn(std::net::IpAddr::from([10, 0, 0, 9]))),
        ("NodeDown", AgentCommand::NodeDown(true)),
    ]
}

fn name(call: &Call) -> String {
    if matches!(call, Call::Run(_, command, _) if *command == guest::report()) {
        return "Report".to_owned();
    }
    let text = format!("{call:?}");
    text.split(['(', ' ', '{']).next().unwrap_or_default().to_owned()
}

/// What follows: the next state, or the call made in the same state.
fn outcome(drive: &Drive, before: AgentPhase, asked: Option<String>) -> String {
    if drive.state() != before {
        return drive.state().to_string();
    }
    let after = drive.asked().map(|(_, call)| name(&call));
    match (after, drive.mind.timers.retry()) {
        (Some(call), _) if Some(&call) != asked.as_ref() => format!("stay, then {call}"),
        (None, Some(_)) => "stay, again later".into(),
        (Some(_) | None, _) => "stay".into(),
    }
}

/// The lines of a state. Events with the same outcome share one.
fn rows(before: AgentPhase, outcomes: Vec<(String, String)>, table: &mut String) {
    let mut grouped: Vec<(String, Vec<String>)> = Vec::new();
    for (event, after) in outcomes {
        match grouped.iter_mut().find(|(known, _)| *known == after) {
            Some((_, events)) => events.push(event),
            None => grouped.push((after, vec![event])),
        }
    }
    for (after, events) in grouped {
        writeln!(table, "{before:<12} {} -> {after}", events.join(" | ")).expect("a string");
    }
}

fn draw() -> String {
    let mut table = String::new();
    for state in AgentPhase::ALL {
        let mut outcomes = Vec::new();
        for (name_of, command) in commands() {
            let mut drive = at(state);
            let asked = drive.asked().map(|(_, call)| name(&call));
            drive.command(command);
            outcomes.push((name_of.to_owned(), outcome(&drive, state, asked)));
        }
        let mut drive = at(state);
        if drive.mind.timers.deadline().is_some() {
            drive.mind.timers.forget_retry();
            let asked = drive.asked().map(|(_, call)| name(&call));
            let due = drive.mind.timers.deadline().expect("a deadline");
            drive.wait(due - drive.now.mono);
            outcomes.push(("deadline".into(), outcome(&drive, state, asked)));
        }
        rows(state, outcomes, &mut table);
        calls_of(state, at(state), |_| true, &mut table);
        if state == AgentPhase::Preparing {
            // Steps of agents that reset.
            let mut drive = Drive::new(reset_spec());
            drive.go_to(state);
            calls_of(state, drive, |call| *call == Call::Snapshot, &mut table);
            // The guest of a failed step is asked what is wrong with it.
            let mut drive = Drive::new(spec());
            drive.go_to(state);
            drive.answer(Answer::Ran(Ok(Ran { exit: Some(1), tail: String::new() })));
            calls_of(state, drive, |_| true, &mut table);
        }
        table.push('\n');
    }
    table
}

/// Follows the expected answers through a state and tries every other answer at each of its calls.
fn calls_of(
    state: AgentPhase,
    mut drive: Drive,
    shown: impl Fn(&Call) -> bool,
    table: &mut String,
) {
    to_next_call(&mut drive);
    while let Some((attempt, call)) = drive.asked().filter(|_| drive.state() == state) {
        let asked = name(&call);
        let mut outcomes = Vec::new();
        for (what, answer) in answers(&drive, &call) {
            let mut other = Drive::of(drive.mind.clone(), drive.now, drive.journal_state.clone());
            other.mind = drive.mind.clone();
            other.effects.clone_from(&drive.effects);
            other.event(Event::Answer(attempt, answer));
            outcomes.push((what.to_owned(), outcome(&other, state, Some(asked.clone()))));
        }
        if shown(&call) {
            rows(state, prefix(&asked, outcomes), table);
        }
        let fair = drive.fair_answer(call);
        drive.event(Event::Answer(attempt, fair));
        to_next_call(&mut drive);
    }
}

/// Lets the pause before a delayed call pass.
fn to_next_call(drive: &mut Drive) {
    if let Some(due) = drive.mind.timers.retry().filter(|_| drive.asked().is_none()) {
        drive.wait(due - drive.now.mono);
    }
}

fn prefix(call: &str, outcomes: Vec<(String, String)>) -> Vec<(String, String)> {
    outcomes.into_iter().map(|(what, after)| (format!("{call}: {what}"), after)).collect()
}

// Invariant: the table is the agreed one.

#[test]
fn the_table_drawn_from_the_code_is_the_one_agreed_on() {
    let drawn = draw();
    assert!(drawn == GOLDEN, "the table moved; it is:\n{drawn}");
}

// Invariant: the usual reason of a move is there for every move that the table has, and for no other.

#[test]
fn every_move_of_the_table_has_its_usual_reason_and_no_other_move_has_one() {
    use AgentPhase as Phase;
    let moves: Vec<(&str, &str)> = GOLDEN
        .lines()
        .filter_map(|line| {
            let (before, after) = (line.split(' ').next()?, line.rsplit(' ').next()?);
            Some((before, after))
        })
        .collect();
    // These need no reason of their own: the fault or the command is the reason.
    let caused = [Phase::Retiring, Phase::Stranded];
    // These have one reason, wherever the agent comes from.
    let alike = [Phase::Leased, Phase::Draining, Phase::Resetting, Phase::Held, Phase::Gone];
    for before in Phase::ALL {
        for after in Phase::ALL.into_iter().filter(|after| *after != before) {
            if caused.contains(&after) || alike.contains(&after) {
                continue;
            }
            let moves = moves.contains(&(before.name(), after.name()));
            let named = usual(before, after) != "it went on";
            assert_eq!(named, moves, "{before} to {after}");
        }
    }
}

// Invariant: ends of tasks other than success.

#[test]
fn a_task_of_unknown_end_is_never_taken_for_a_success() {
    for state in [AgentPhase::Cloning, AgentPhase::Booting, AgentPhase::Retiring] {
        let mut drive = at(state);
        while !matches!(drive.asked(), Some((_, Call::Await(..)))) {
            let (_, call) = drive.asked().expect("a call");
            let fair = drive.fair_answer(call);
            drive.answer(fair);
        }
        drive.answer(Answer::TaskEnded(Ok(TaskEnd::Unknown("unexpected status".into()))));
        assert!(
            [AgentPhase::InDoubt, AgentPhase::Booting, AgentPhase::Retiring]
                .contains(&drive.state())
        );
    }
}

#[test]
fn an_address_that_is_not_there_yet_is_asked_for_again() {
    let mut drive = at(AgentPhase::Booting);
    while !matches!(drive.asked(), Some((_, Call::Address))) {
        let (_, call) = drive.asked().expect("a call");
        let fair = drive.fair_answer(call);
        drive.answer(fair);
        to_next_call(&mut drive);
    }
    drive.answer(Answer::Addressed(Ok(AddressObservation::NotYet("no agent".into()))));
    drive.wait(secs(2));
    assert!(matches!(drive.asked(), Some((_, Call::Address))));
}
