//! The table of transitions, drawn from `step` and compared with `transitions.txt`.
//!
//! After a wanted change the failing test prints the new table.

use drover_model::size::Size;
use drover_model::state_machine::{Row, table};
use drover_model::status::Standing;

use super::*;

const GOLDEN: &str = include_str!("../../transitions.txt");
const OTHER: &str = "0000000000000000";

fn state(mind: &CloudMind) -> String {
    let health = match &mind.health {
        _ if mind.stopping => "stopping",
        _ if mind.spec().is_none() => "unconfigured",
        Health::Connecting => "connecting",
        Health::Well if mind.room() == 0 => "full",
        Health::Well => "well",
        Health::Degraded { why: Why::NoQuorum(_), .. } => "no-quorum",
        Health::Degraded { why: Why::Login(_), .. } => "login-refused",
        Health::Degraded { why: Why::Silent(_) | Why::Other(_), .. } => "degraded",
    };
    health.to_owned()
}

fn refused_login() -> Fault {
    let denied = FaultKind::Denied { privilege: None, path: None };
    Fault::new(denied, Culprit::Cloud(CloudId::new("c")), "no login")
}

fn without_quorum() -> ClusterObservation {
    ClusterObservation { quorate: false, ..observation(CLUSTER) }
}

/// A cloud of two slots in each state. No question is under way, but while it connects.
fn in_state(wanted: &str) -> CloudMind {
    let mut mind = if wanted == "connecting" {
        let mut mind = CloudMind::new(CloudId::new("c"), None, None);
        mind.applied(Some(Arc::new(cloud("c", Some(2)))));
        mind
    } else {
        well(Some(2))
    };
    match wanted {
        "unconfigured" => drop(mind.applied(None)),
        "stopping" => mind.stop(),
        "full" => mind.news(&news("c/a", 2, 0)),
        "no-quorum" => drop(mind.identified(Ok(without_quorum()), at(1).wall)),
        "login-refused" => drop(mind.identified(Err(refused_login()), at(1).wall)),
        "degraded" => drop(mind.identified(Err(unreachable("c")), at(1).wall)),
        _ => {}
    }
    assert_eq!(state(&mind), wanted);
    mind
}

fn events(mind: &CloudMind) -> Vec<(&'static str, Event)> {
    let stamp = mind.stamp();
    let identified = |observation| Event::Identified { stamp, observation };
    let written = |written| Event::PinWritten { stamp, cluster: ClusterId::new(CLUSTER), written };
    let template = || template_id("c/a");
    let other_way = CloudSpec { connection: 7, ..cloud("c", Some(2)) };
    vec![
        ("Applied: none", Event::Applied(None)),
        ("Applied: another cap", Event::Applied(Some(Arc::new(cloud("c", Some(9)))))),
        ("Applied: another connection", Event::Applied(Some(Arc::new(other_way)))),
        ("Stopped", Event::Stopped),
        ("Ask", Event::Ask),
        ("AskDue", Event::AskDue { stamp }),
        ("AskDue: stale", Event::AskDue { stamp: stamp + 1 }),
        ("Identified: its cluster", identified(Ok(observation(CLUSTER)))),
        ("Identified: another cluster", identified(Ok(observation(OTHER)))),
        ("Identified: no quorum", identified(Ok(without_quorum()))),
        ("Identified: login refused", identified(Err(refused_login()))),
        ("Identified: no answer", identified(Err(unreachable("c")))),
        ("Identified: stale", {
            let observation = Ok(observation(CLUSTER));
            Event::Identified { stamp: stamp + 1, observation }
        }),
        ("PinWritten", written(Ok(()))),
        ("PinWritten: failed", written(Err("the disk is full".into()))),
        ("Suspected: no answer", Event::Suspected(unreachable("c"))),
        ("Suspected: login refused", Event::Suspected(refused_login())),
        ("Found", Event::Found { template: template(), standing: Standing::Busy }),
        ("News: one agent", {
            Event::News { template: template(), live: 1, released: 0, over: false }
        }),
        ("WarmNeed", Event::WarmNeed { template: template(), count: 1 }),
        ("Wanted", Event::Wanted { template: template(), size: Size::NONE, count: 1 }),
        ("Provisioned", Event::Provisioned { template: template(), count: 1 }),
        ("Settle", Event::Settle),
    ]
}

fn name(effect: &Effect) -> String {
    let text = format!("{effect:?}");
    let word = text.split(['(', ' ', '{']).next().unwrap_or_default();
    match effect {
        Effect::AskIn(wait) | Effect::AskAgain(wait) => format!("{word} {wait:?}"),
        Effect::Begin { reserved, .. } | Effect::Provision { reserved, .. } => {
            format!("{word} {reserved}")
        }
        Effect::Pin(_) | Effect::Leads(_) | Effect::Elsewhere(_) | Effect::Ask | Effect::Refuse => {
            word.to_owned()
        }
    }
}

fn draw() -> String {
    let states = [
        "connecting",
        "well",
        "full",
        "no-quorum",
        "login-refused",
        "degraded",
        "unconfigured",
        "stopping",
    ];
    let mut rows = Vec::new();
    for before in states {
        for (event, what) in events(&in_state(before)) {
            let mut mind = in_state(before);
            let effects = mind.effects_of(what, at(10), 0).iter().map(name).collect();
            let after = state(&mind);
            rows.push(Row { before: before.to_owned(), event: event.to_owned(), after, effects });
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

// Invariant: an answer that may be older than a suspicion does not end it.

#[test]
fn a_cloud_that_is_suspected_while_it_is_asked_is_asked_again() {
    let mut mind = well(None);
    let mut play = |event| mind.effects_of(event, at(10), 0);
    assert_eq!(play(Event::Ask), [Effect::Ask]);
    assert!(play(Event::Suspected(unreachable("c"))).is_empty(), "an answer is under way");
    let stamp = mind.stamp();
    let answer = || Event::Identified { stamp, observation: Ok(observation(CLUSTER)) };
    assert_eq!(mind.effects_of(answer(), at(11), 0), [Effect::Ask]);
    assert!(mind.effects_of(answer(), at(11), 0).is_empty(), "that answer is stale");
}

#[test]
fn a_second_suspicion_waits_until_two_seconds_after_the_first() {
    let mut mind = well(None);
    let suspected = || Event::Suspected(unreachable("c"));
    assert_eq!(mind.effects_of(suspected(), at(10), 0), [Effect::Ask]);
    mind.identified(Ok(observation(CLUSTER)), at(10).wall);
    let wait = Duration::from_secs(1);
    assert_eq!(mind.effects_of(suspected(), at(11), 0), [Effect::AskIn(wait)]);
}
