//! The table of transitions, drawn from `step` and compared with `transitions.txt`.
//!
//! After a wanted change the failing test prints the new table.

use drover_model::id::{ClusterId, NodeName};
use drover_model::size::Size;
use drover_model::state_machine::{Row, table};

use super::*;

const GOLDEN: &str = include_str!("../../transitions.txt");

/// When each event happens: within the cool-down of an open breaker, and within a pause.
const NOW: u64 = 10;

/// What a template lets start, by what it says of itself.
fn state(mind: &TemplateMind, now: u64) -> &'static str {
    let now = at(now).mono;
    match (mind.breaker.phase(), mind.shortage(now)) {
        _ if mind.stopping => "stopping",
        _ if !mind.configured => "draining",
        _ if !mind.open => "unconnected",
        (BreakerPhase::Open, _) => "open",
        (BreakerPhase::HalfOpen, _) => "half-open",
        (BreakerPhase::Closed, _) if mind.paused(now).is_some() => "pausing",
        (BreakerPhase::Closed, why) if why.contains("is full") => "full",
        (BreakerPhase::Closed, _) => "closed",
    }
}

/// A template in each state, with `a1` on its way, `a2` idle for long and `a3` in use.
fn in_state(wanted: &str) -> TemplateMind {
    let mut mind = mind(|spec| {
        (spec.cap, spec.idle) = (Some(if wanted == "full" { 3 } else { 8 }), Some(seconds(5)));
        spec.breaker.threshold = 1;
    });
    let agents = begin(&mut mind, 3, Some(3), 0);
    heard(&mut mind, &agents[1], IDLE, None, 1);
    heard(&mut mind, &agents[2], Standing::Busy, None, 1);
    match wanted {
        "unconnected" => mind.open = false,
        "stopping" => mind.stop(),
        "draining" => drop(mind.applied(None, at(2))),
        "pausing" | "open" | "half-open" => {
            let kind = if wanted == "pausing" { FaultKind::Contention } else { FaultKind::Broken };
            let other = AgentId::new("a4");
            let mut ids = vec![other.clone(), AgentId::new("a1")].into_iter();
            mind.reserved(1, Some(1), &mut || ids.next().unwrap(), at(NOW));
            gone(&mut mind, &other, fault(kind), NOW);
            if wanted == "half-open" {
                mind.agents.remove(&agents[0]);
                mind.reserved(1, Some(1), &mut || ids.next().unwrap(), at(200));
            }
        }
        _ => {}
    }
    assert_eq!(state(&mind, NOW), wanted);
    mind
}

fn events(mind: &TemplateMind) -> Vec<(&'static str, Event)> {
    let report = |agent: &str, standing, fault| {
        let report = a_report(mind, &AgentId::new(agent), standing);
        Event::Reported(Box::new(AgentReport { fault, ..report }))
    };
    let other = |change: fn(&mut TemplateSpec)| {
        let mut spec = (**mind.spec()).clone();
        change(&mut spec);
        Event::Applied(Some(Arc::new(spec)))
    };
    let on = |culprit| Some(Fault::new(FaultKind::Unreachable, culprit, "no answer"));
    let node = Culprit::Node(NodeName::new("pve1"));
    let cloud = Culprit::Cloud(mind.spec().id.cloud.clone());
    let ids = || vec![AgentId::new("b1")];
    let known = entry("b2", 10_002, (**mind.spec()).clone(), AgentPhase::Ready);
    let place = drover_model::place::Place {
        cluster: ClusterId::new(crate::testing::CLUSTER),
        vmid: drover_model::id::VmId(10_000),
        node: NodeName::new("pve1"),
        origin: None,
        source: None,
    };
    let located = |source: Result<&str, &str>, version: Option<&str>| Event::Located {
        source: source.map(String::from).map_err(String::from),
        version: version.map(String::from),
    };
    vec![
        ("Opened", Event::Opened),
        ("Applied: none", Event::Applied(None)),
        ("Applied: the same version", other(|spec| spec.generation.0 += 1)),
        ("Applied: another version", other(|spec| spec.source.0 += 1)),
        ("Stopped", Event::Stopped),
        ("Adopted", Event::Adopted(AgentId::new("b2"), Box::new(known))),
        ("Reserved", Event::Reserved { slots: 1, asked: Some((Size::NONE, 1)), ids: ids() }),
        ("Reserved: warm", Event::Reserved { slots: 1, asked: None, ids: ids() }),
        ("Provisioned", Event::Provisioned { slots: 1, purpose: Purpose::Use, ids: ids() }),
        ("Reported: ready", report("a1", IDLE, None)),
        ("Reported: broken", report("a1", Standing::Leaving, fault(FaultKind::Broken))),
        ("Reported: contention", report("a1", Standing::Leaving, fault(FaultKind::Contention))),
        ("Reported: fault of a node", report("a1", Standing::Leaving, on(node))),
        ("Reported: fault of the cloud", report("a1", Standing::Leaving, on(cloud))),
        ("Reported: cancelled", report("a1", Standing::Leaving, None)),
        ("Reported: gone", report("a3", Standing::Gone, None)),
        ("Placed", Event::Placed(place)),
        ("Tries", Event::Tries(AgentId::new("a1"), true)),
        ("Proving", Event::Proving(None)),
        ("Located", located(Ok("VMID 9000"), Some("one"))),
        ("Located: nothing", located(Err("no template"), None)),
        ("Supplied: none", {
            let lack = Some("pool `lab` is used up".into());
            Event::Supplied(Supply { free: 0, lack, next: None })
        }),
        ("BreakerReset", Event::BreakerReset),
        ("NodeOpened", Event::NodeOpened(NodeName::new("pve1"))),
        ("Reap", Event::Reap { all: false, reason: Reason::Reaped }),
        ("Reap: all", Event::Reap { all: true, reason: Reason::Reaped }),
        ("Tick", Event::Tick),
        ("Publish", Event::Publish),
    ]
}

fn name(effect: &Effect) -> String {
    let word = |text: String| text.split(['(', ' ', '{']).next().unwrap_or_default().to_owned();
    match effect {
        Effect::Send(agent, command) => format!("{} {agent}", word(format!("{command:?}"))),
        Effect::Reaped(count) => format!("Reaped {count}"),
        Effect::Spawn(_)
        | Effect::Record(_)
        | Effect::SuspectCloud(_)
        | Effect::Charge(..)
        | Effect::Proven(_)
        | Effect::CanaryFailed(..)
        | Effect::News(_) => word(format!("{effect:?}")),
    }
}

fn draw() -> String {
    let states =
        ["unconnected", "closed", "full", "pausing", "open", "half-open", "draining", "stopping"];
    let mut rows = Vec::new();
    for before in states {
        for (event, what) in events(&in_state(before)) {
            let mut mind = in_state(before);
            let effects = mind.effects_of(what, at(NOW), 0).iter().map(name).collect();
            let after = state(&mind, NOW).to_owned();
            rows.push(Row { before: before.to_owned(), event: event.to_owned(), after, effects });
        }
        if before == "open" {
            let mut mind = in_state(before);
            let ids = vec![AgentId::new("b1")];
            let what = Event::Reserved { slots: 1, asked: Some((Size::NONE, 1)), ids };
            let effects = mind.effects_of(what, at(500), 0).iter().map(name).collect();
            let (event, after) = ("Reserved: after its cool-down".into(), state(&mind, 500).into());
            rows.push(Row { before: before.to_owned(), event, after, effects });
        }
    }
    table(&rows)
}

// Invariant: the table is the agreed one.

#[test]
fn the_table_drawn_from_the_code_is_the_one_agreed_on() {
    let drawn = draw();
    assert!(drawn == GOLDEN, "the table moved; it is:\n{drawn}");
}
