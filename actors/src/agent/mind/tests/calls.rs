//! The table of calls, drawn from `step` itself and compared with `calls.txt`: every call that the
//! mind ever makes, in every state in which it makes the call, each with a shortest path there.
//!
//! A line is a state, a call, and the events on the path other than expected answers, each with the
//! state in which it happens. After a wanted change: `cargo test -p drover-actors agent::mind`
//! prints the new table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use drover_model::id::{Attempt, ClusterId, LeaseId, NodeName, VmId};
use drover_model::phase::AgentPhase;
use drover_model::record::Reason;
use drover_model::spec::{LimitSpec, ResetKind, TemplateSpec};

use crate::agent::event::{Call, Effect, Event};
use crate::agent::state::State;
use crate::agent::testing::*;
use crate::message::AgentCommand;

const GOLDEN: &str = include_str!("../../calls.txt");

/// An event: the state it happens in, and its name.
type Step = (AgentPhase, String);

/// A mind, and all its events so far.
#[derive(Clone)]
struct Place {
    drive: Drive,
    way: Vec<Step>,
    /// The pending calls, each with the state in which it was made.
    made: Vec<(Attempt, Call, AgentPhase)>,
}

impl Place {
    fn new(drive: Drive, before: &[(Attempt, Call, AgentPhase)], way: Vec<Step>) -> Self {
        let state = drive.state();
        let made = pending(&drive).into_iter().map(|(attempt, call)| {
            let known = before.iter().find(|(other, ..)| *other == attempt);
            (attempt, call, known.map_or(state, |(_, _, made)| *made))
        });
        Self { made: made.collect(), way, drive }
    }
}

/// A template whose agents make every possible call.
fn wide() -> TemplateSpec {
    let plain = spec();
    let limits = LimitSpec { shutdown: secs(30), ..plain.limits.clone() };
    TemplateSpec { executors: 2, limits, ..plain }
}

fn pending(drive: &Drive) -> Vec<(Attempt, Call)> {
    let asks = drive.effects.iter().filter_map(|effect| match effect {
        Effect::Ask(attempt, call) if drive.mind.awaits(*attempt) => Some((*attempt, call.clone())),
        _ => None,
    });
    asks.collect()
}

fn name(call: &Call) -> String {
    let text = format!("{call:?}");
    text.split(['(', ' ', '{']).next().unwrap_or_default().to_owned()
}

/// A call, with its task or command.
fn sketch(call: &Call) -> String {
    match call {
        Call::Await(upid, _) => format!("Await {upid}"),
        Call::Run(_, command, _) => format!("Run {command}"),
        call => name(call),
    }
}

/// A key that separates places which may go on differently.
fn kind(place: &Place) -> String {
    let drive = &place.drive;
    let (resets, closes) = (drive.mind.spec.reset.is_some(), drive.mind.spec.close_ssh);
    let calls: BTreeSet<String> = pending(drive).iter().map(|(_, call)| sketch(call)).collect();
    let mind = &drive.mind;
    let guest = mind.guest();
    let guest = guest.map(|one| (one.upid.is_some(), one.address.is_some(), one.is_settled()));
    let dead = matches!(mind.state(), State::InDoubt { dead: Some(_), .. });
    let waits = (mind.leases.len(), mind.adoption.is_unseen(), mind.timers.retry().is_some());
    let here = place.made.iter().filter(|(.., made)| *made == drive.state()).count();
    format!("{} {calls:?} {here} {guest:?} {dead} {waits:?} {resets} {closes}", drive.state())
}

fn commands() -> Vec<(&'static str, AgentCommand)> {
    let key = Some("ssh-ed25519 USER");
    let lease = LeaseId::new("l1");
    let granted = AgentCommand::Granted {
        vmid: VmId(10_417),
        node: NodeName::new("n1"),
        cluster: ClusterId::new("9f31c0aa52e7d410"),
        spec: None,
    };
    vec![
        ("Granted", granted),
        ("Lease", AgentCommand::Lease { ask: Box::new(ask("l1", key)) }),
        ("Lease", AgentCommand::Lease { ask: Box::new(ask("l2", key)) }),
        ("EndLease", AgentCommand::EndLease { lease, why: "released".into() }),
        ("Drain", AgentCommand::Drain(Reason::Asked)),
        ("Vanished", AgentCommand::Vanished),
        ("SeenStopped", AgentCommand::SeenStopped),
    ]
}

/// Every event that can come next.
fn next(place: &Place) -> Vec<Place> {
    let state = place.drive.state();
    let mut all = Vec::new();
    let mut go = |what: &str, happen: &dyn Fn(&mut Drive)| {
        let mut drive = place.drive.clone();
        happen(&mut drive);
        let mut way = place.way.clone();
        let late = what == "later" && drive.state() != state;
        way.push((state, if late { "deadline" } else { what }.to_owned()));
        all.push(Place::new(drive, &place.made, way));
    };
    for (attempt, call, made) in place.made.clone() {
        for (what, answer) in answers(&place.drive, &call) {
            // The outcome of a call is chosen when the call is made, so only the state of that
            // moment is known.
            if made != state && what != "ok" {
                continue;
            }
            let answered = Event::Answer(attempt, answer);
            go(&format!("{}: {what}", name(&call)), &|drive| {
                drive.event(answered.clone());
            });
        }
    }
    for (what, command) in commands() {
        // Sent where the agent waits for nothing, so that the moment is clear.
        let admits = |(_, call, _): &(Attempt, Call, AgentPhase)| matches!(call, Call::Admit(..));
        if what == "Drain" && ![AgentPhase::Ready, AgentPhase::Leased].contains(&state)
            || what == "Lease" && place.made.iter().any(admits)
        {
            continue;
        }
        go(what, &|drive| {
            drive.command(command.clone());
        });
    }
    if state == AgentPhase::Ready && !place.drive.mind.adoption.is_unseen() {
        go("Hold", &|drive| drive.be_held());
    }
    if let Some((_, at)) = place.drive.wake() {
        go("later", &|drive| drive.wait(at - drive.now.mono));
    }
    if place.drive.journal_state.agents.contains_key(&agent_id()) {
        go("restart", &|drive| *drive = drive.adopt(secs(5)));
    }
    all
}

/// Whether a life without faults takes this step by itself.
fn is_fair((state, what): &Step) -> bool {
    let first = *state == AgentPhase::Ready && what == "Lease";
    what.ends_with(": ok") || what == "Granted" || what == "later" || first
}

fn draw() -> String {
    let mut known = BTreeSet::new();
    let mut calls: BTreeMap<(AgentPhase, String, bool, bool), Vec<Step>> = BTreeMap::new();
    // Paths with the fewest unexpected events first, then the shortest.
    let rank = |place: &Place| {
        let odd = place.way.iter().filter(|step| !is_fair(step));
        // A deadline counts twice, since it needs a silence of its own.
        let odd: usize = odd.map(|(_, what)| if what == "deadline" { 2 } else { 1 }).sum();
        (odd, place.way.len())
    };
    // Agents that reset make calls of their own, and so do agents that close SSH.
    let reset = TemplateSpec { reset: Some(ResetKind::Disk), executors: 1, ..wide() };
    let closing = TemplateSpec { close_ssh: true, ..wide() };
    let mut places = BTreeMap::new();
    for (count, spec) in [wide(), reset, closing].into_iter().enumerate() {
        let start = Place::new(Drive::new(spec), &[], Vec::new());
        places.insert((rank(&start), count), start);
    }
    let mut count = 3;
    while let Some((_, place)) = places.pop_first() {
        if !known.insert(kind(&place)) {
            continue;
        }
        for (_, call, made) in place.made.iter().filter(|(.., made)| *made == place.drive.state()) {
            // Leftovers of a clone that was never made differ from leftovers of a destroy.
            let mind = &place.drive.mind;
            let undone = mind.guest().is_some_and(|guest| !guest.is_settled());
            let undone = undone && *call == Call::Leftovers && *made == AgentPhase::Retiring;
            let key = (*made, name(call), mind.adoption.is_unseen(), undone);
            calls.entry(key).or_insert_with(|| place.way.clone());
        }
        for place in next(&place) {
            count += 1;
            places.insert((rank(&place), count), place);
        }
    }
    let mut table = String::new();
    for ((state, call, ..), way) in calls {
        let way = way.iter().filter(|step| !is_fair(step));
        let way: Vec<String> = way.map(|(state, what)| format!("{state} {what}")).collect();
        writeln!(table, "{state:<12} {call:<10} {}", way.join(", ")).expect("a string");
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

// Invariant: every call is known, and so is every moment at which the power may fail.

#[test]
fn the_calls_drawn_from_the_code_are_the_ones_that_are_deregistered() {
    let drawn = draw();
    assert!(drawn == GOLDEN, "the calls moved; they are:\n{drawn}");
}
