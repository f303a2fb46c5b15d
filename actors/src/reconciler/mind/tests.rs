//! The table of what the reconciler does about what it finds, drawn from [`Memory`]'s `step` and
//! compared with `transitions.txt`.
//!
//! After a wanted change: `cargo test -p drover-actors reconciler` prints the new table.
use std::sync::Arc;

use drover_model::fault::{Culprit, FaultKind};
use drover_model::id::{ClusterId, Installation};
use drover_model::marks::{Kind, Marks, RETIRING, Reading};
use drover_model::overrides::Overrides;
use drover_model::phase::AgentPhase;
use drover_model::ports::Listed;
use drover_model::state_machine::{Row, table};
use drover_model::status::Standing;

use super::*;
use crate::roster::Living;
use crate::testing::{CLUSTER, agent_status, at, marks, survey, template};

const GOLDEN: &str = include_str!("../transitions.txt");

const CONFIG: Config = Config {
    cleanup_orphans: true,
    orphan_grace: Duration::from_secs(300),
    node_grace: Duration::from_secs(120),
};

/// The agent that drover knows, and its id.
const OURS: (&str, VmId) = ("4f8z1c3px9t2vkab", VmId(10_000));
/// The agent of which drover knows nothing, and its guest.
const ORPHAN: (&str, VmId) = ("5g9z1c3px9t2vkab", VmId(10_500));

fn living(phase: AgentPhase, cluster: &str) -> Living {
    let spec = Arc::new(template("c/t", &[]));
    let status = agent_status(OURS.0, &spec.id, phase, Standing::Busy);
    Living {
        template: spec.id.clone(),
        spec,
        status: Arc::new(status),
        overrides: Overrides::default(),
        born: at(0).wall,
        place: Some(drover_model::place::Place {
            cluster: ClusterId::new(cluster),
            vmid: OURS.1,
            node: NodeName::new("pve1"),
            origin: None,
            source: None,
        }),
    }
}

/// A round in which drover knows the agent in this phase, or none.
fn round(purpose: Purpose, agent: Option<(AgentPhase, &str)>) -> Box<Round> {
    let agents = agent.map(|(phase, at)| (AgentId::new(OURS.0), living(phase, at)));
    let known = Known {
        installation: Installation::new("7k2m9qxw"),
        cluster: ClusterId::new(CLUSTER),
        agents: agents.into_iter().collect(),
        builds: BTreeSet::new(),
        last_seq: 100,
        since: at(100_000_000).wall,
    };
    Box::new(Round { purpose, known, config: CONFIG })
}

fn guest((agent, vmid): (&str, VmId)) -> Listed {
    Listed {
        vmid,
        node: NodeName::new("pve1"),
        name: Some(format!("linux-7k2m9qxw-{agent}")),
        tags: Vec::new(),
        lock: None,
        status: "running".into(),
        template: false,
        container: false,
    }
}

fn list(guests: Vec<Listed>) -> Survey {
    Survey { guests, ..survey() }
}

/// Whether the journal is known to be older than the world, which is all that a step can change of
/// what it does next beside the time that passes.
fn state(memory: &Memory, usual: &str) -> String {
    match (memory.ahead(), usual) {
        (Some(_), _) => "restrained".into(),
        (None, "restrained") => "guest without agent, beyond grace".into(),
        (None, _) => usual.into(),
    }
}

/// An effect in a word or two; none for what follows from every list.
fn word(effect: &Effect) -> Option<String> {
    let text = match effect {
        Effect::Share { .. } => return None,
        Effect::Offline(nodes) if nodes.is_empty() => return None,
        Effect::Offline(_) => "publish the offline node".into(),
        Effect::Restrain { sign, .. } => {
            let sign = format!("{sign:?}");
            format!("Restrain({})", sign.split('(').next().unwrap_or_default())
        }
        Effect::Follow(..) => "Follow".into(),
        Effect::Send(_, AgentCommand::Observed(_)) => "send Observed".into(),
        Effect::Send(_, command) => {
            let command = format!("{command:?}");
            format!("send {}", command.split("(NodeName").next().unwrap_or_default())
        }
        Effect::Look(..) => "Look".into(),
        Effect::Check(..) => "Check".into(),
        Effect::Found(finding) => format!("found: {}", finding.does.name()),
        Effect::Destroy(..) => "Destroy".into(),
        Effect::RemoveImage(_) => "RemoveImage".into(),
        Effect::Confirmed => "write Confirmed".into(),
        Effect::NoQuorum => "NoQuorum".into(),
    };
    Some(text)
}

/// Steps once, some seconds after the first list, and adds the row.
fn add(
    rows: &mut Vec<Row>,
    before: &str,
    name: &str,
    memory: &mut Memory,
    event: Event,
    secs: u64,
) {
    let effects = memory.effects_of(event, at(secs), 0);
    rows.push(Row {
        before: before.into(),
        event: name.into(),
        after: state(memory, before),
        effects: effects.iter().filter_map(word).collect(),
    });
}

/// What a list can show of a living agent's guest.
fn guests_of_an_agent() -> Vec<(&'static str, Option<Listed>)> {
    let ours = || guest(OURS);
    vec![
        ("running", Some(ours())),
        ("stopped", Some(Listed { status: "stopped".into(), ..ours() })),
        (
            "stopped, locked by a backup",
            Some(Listed { status: "stopped".into(), lock: Some("backup".into()), ..ours() }),
        ),
        ("locked by a snapshot", Some(Listed { lock: Some("snapshot".into()), ..ours() })),
        ("on another node", Some(Listed { node: NodeName::new("pve2"), ..ours() })),
        ("renamed", Some(Listed { name: Some("web".into()), ..ours() })),
        ("fenced by another drover", Some(Listed { tags: vec![RETIRING.into()], ..ours() })),
        ("not listed", None),
    ]
}

fn agents(rows: &mut Vec<Row>) {
    let phases =
        [AgentPhase::Cloning, AgentPhase::Ready, AgentPhase::Resetting, AgentPhase::Retiring];
    for purpose in [Purpose::Reconcile, Purpose::Watch] {
        for phase in phases {
            let before = match purpose {
                Purpose::Watch => format!("watch: agent {phase}"),
                Purpose::Reconcile | Purpose::Preview => format!("agent {phase}"),
            };
            let round = || round(purpose, Some((phase, CLUSTER)));
            for (name, shown) in guests_of_an_agent() {
                let event = Event::Listed(round(), list(shown.into_iter().collect()));
                add(rows, &before, name, &mut Memory::default(), event, 0);
            }
            let no_quorum = Survey { quorate: false, ..list(Vec::new()) };
            let event = Event::Listed(round(), no_quorum);
            add(rows, &before, "no quorum", &mut Memory::default(), event, 0);
        }
    }
}

/// What is known of an id that the list does not show.
fn ids(rows: &mut Vec<Row>) {
    let unread = || Fault::new(FaultKind::Unreachable, Culprit::Guest, "no answer");
    let answers = || {
        [
            ("free", Ok(IdStatus::Free)),
            ("taken", Ok(IdStatus::Taken)),
            ("no evidence", Ok(IdStatus::Unknown)),
            ("fault", Err(unread())),
        ]
    };
    let agent = || AgentId::new(OURS.0);
    for (name, status) in answers() {
        let answers = Answers { checks: vec![(agent(), OURS.1, status)], ..Answers::default() };
        let round = round(Purpose::Reconcile, Some((AgentPhase::Ready, CLUSTER)));
        let event = Event::Answered(round, answers);
        add(rows, "unlisted id", name, &mut Memory::default(), event, 0);
    }
    for (name, status) in answers() {
        let event = Event::IdsAnswered(vec![(agent(), status)]);
        add(rows, "watch: unlisted id", name, &mut Memory::default(), event, 0);
    }
}

fn nodes(rows: &mut Vec<Row>) {
    let round = || round(Purpose::Reconcile, Some((AgentPhase::Ready, CLUSTER)));
    let seen = |online: bool| Survey {
        nodes: vec![(NodeName::new("pve1"), online)],
        ..list(vec![Listed { status: "unknown".into(), ..guest(OURS) }])
    };
    for (before, secs, reported) in [
        ("node online", None, false),
        ("node offline within grace", Some(60), false),
        ("node offline beyond grace", Some(120), false),
        ("node offline, agents parked", Some(180), true),
    ] {
        for (name, online) in [("offline", false), ("online", true)] {
            let mut memory = Memory::default();
            if secs.is_some() {
                memory.effects_of(Event::Listed(round(), seen(false)), at(0), 0);
            }
            if reported {
                memory.effects_of(Event::Listed(round(), seen(false)), at(120), 0);
            }
            let event = Event::Listed(round(), seen(online));
            add(rows, before, name, &mut memory, event, secs.unwrap_or(0));
        }
    }
}

/// What a look at a guest without an agent can show.
fn guests_without_agent() -> Vec<(&'static str, Result<VmObservation, String>)> {
    let seen = |reading: Reading| VmObservation {
        id: IdStatus::Taken,
        node: Some(NodeName::new("pve1")),
        marks: Some(reading),
        lock: None,
        running: Some(true),
    };
    let marked = |change: &dyn Fn(&mut Marks)| {
        let mut all = marks(ORPHAN.0, ORPHAN.1.0);
        change(&mut all);
        seen(Reading::Marked(Box::new(all)))
    };
    let orphan = || marked(&|_| ());
    vec![
        ("our marks", Ok(orphan())),
        (
            "our marks, locked by a backup",
            Ok(VmObservation { lock: Some("backup".into()), ..orphan() }),
        ),
        ("our marks, ahead of the journal", Ok(marked(&|marks| marks.seq = 110))),
        (
            "our marks, younger than the journal",
            Ok(marked(&|marks| marks.born = "2100-01-01T00:00:00Z".into())),
        ),
        ("no marks", Ok(seen(Reading::Unmarked))),
        ("damaged marks", Ok(seen(Reading::Damaged("twice".into())))),
        (
            "marks of another installation",
            Ok(marked(&|marks| marks.installation = Installation::new("7k2m9qxx"))),
        ),
        ("marks of another VMID (a copy)", Ok(marked(&|marks| marks.vmid = VmId(10_499)))),
        (
            "marks of another cluster",
            Ok(marked(&|marks| marks.cluster = ClusterId::new("0011223344556677"))),
        ),
        ("marks of a living agent", Ok(marked(&|marks| marks.agent = AgentId::new(OURS.0)))),
        ("marks of an image", Ok(marked(&|marks| marks.kind = Kind::Image))),
        ("gone", Ok(VmObservation { id: IdStatus::Free, marks: None, ..orphan() })),
        ("config unread", Ok(VmObservation { marks: None, ..orphan() })),
        ("fault", Err("no answer".into())),
    ]
}

/// How things stand with a guest or image that has no agent: since when it is seen, whether cleaning
/// is on, and whether the journal is known to be older.
const STANDS: [(&str, u64, bool, bool); 4] = [
    ("within grace", 0, true, false),
    ("beyond grace", 300, true, false),
    ("cleaning off", 300, false, false),
    ("restrained", 300, true, true),
];

fn orphans(rows: &mut Vec<Row>) {
    for (stand, secs, cleanup_orphans, ahead) in STANDS {
        let round = || {
            let all = *round(Purpose::Reconcile, Some((AgentPhase::Ready, "other")));
            Box::new(Round { config: Config { cleanup_orphans, ..CONFIG }, ..all })
        };
        let memory = || {
            let ahead = ahead.then_some((VmId(10_777), 500));
            let mut memory = Memory::restored(ahead, BTreeSet::new());
            let shown = list(vec![guest(ORPHAN)]);
            memory.effects_of(Event::Listed(round(), shown), at(0), 0);
            memory
        };
        let before = if ahead { stand.to_owned() } else { format!("guest without agent, {stand}") };
        let event = Event::Listed(round(), list(vec![guest(ORPHAN)]));
        add(rows, &before, "listed", &mut memory(), event, secs);
        let container = Listed { container: true, ..guest(ORPHAN) };
        let event = Event::Listed(round(), list(vec![container]));
        add(rows, &before, "a container", &mut memory(), event, secs);
        for (name, seen) in guests_without_agent() {
            let looks = vec![(ORPHAN.1, NodeName::new("pve1"), seen)];
            let mut round = round();
            if name.contains("younger") {
                round.known.since = at(0).wall;
            }
            let event = Event::Answered(round, Answers { looks, ..Answers::default() });
            add(rows, &before, name, &mut memory(), event, secs);
        }
        let (looks, templates) = (guests_without_agent(), [ORPHAN.1].into());
        let looks = looks.into_iter().take(1);
        let looks = looks.map(|(_, seen)| (ORPHAN.1, NodeName::new("pve1"), seen)).collect();
        let answers = Answers { looks, templates, ..Answers::default() };
        let event = Event::Answered(round(), answers);
        add(rows, &before, "our marks on a template", &mut memory(), event, secs);
        if ahead {
            add(rows, &before, "ConfirmAhead", &mut memory(), Event::ConfirmAhead, secs);
        }
    }
}

fn images(rows: &mut Vec<Row>) {
    let image = |whose: &str, agent: &str| ImageObservation {
        node: NodeName::new("pve1"),
        volume: format!("local:iso/drover-{whose}-{agent}.iso"),
    };
    let unread = || Fault::new(FaultKind::Contention, Culprit::Guest, "no answer");
    for (stand, secs, cleanup_orphans, ahead) in STANDS {
        let round = || {
            let all = *round(Purpose::Reconcile, Some((AgentPhase::Ready, CLUSTER)));
            Box::new(Round { config: Config { cleanup_orphans, ..CONFIG }, ..all })
        };
        let ours = || Ok(vec![image("7k2m9qxw", ORPHAN.0)]);
        let cases = [
            ("our image", ours(), BTreeSet::new()),
            ("our image, its guest listed", ours(), [AgentId::new(ORPHAN.0)].into()),
            ("image of a living agent", Ok(vec![image("7k2m9qxw", OURS.0)]), BTreeSet::new()),
            ("image of others", Ok(vec![image("00000000", ORPHAN.0)]), BTreeSet::new()),
            ("images unread", Err(unread()), BTreeSet::new()),
        ];
        let before = format!("image, {stand}");
        for (name, listed, named) in cases {
            let ahead = ahead.then_some((VmId(10_777), 500));
            let mut memory = Memory::restored(ahead, BTreeSet::new());
            let event = Event::Images(round(), ours(), BTreeSet::new());
            memory.effects_of(event, at(0), 0);
            let effects = memory.effects_of(Event::Images(round(), listed, named), at(secs), 0);
            let (event, after) = (name.to_owned(), before.clone());
            let effects = effects.iter().filter_map(word).collect();
            rows.push(Row { before: before.clone(), event, after, effects });
        }
    }
}

// Invariant: what the reconciler does about each thing that it can find is written down.

#[test]
fn the_table_of_findings_is_as_written_down() {
    let mut rows = Vec::new();
    for part in [agents, ids, nodes, orphans, images] {
        part(&mut rows);
    }
    let drawn = table(&rows);
    assert!(drawn == GOLDEN, "the table is now:\n{drawn}");
}

// Invariant: only exact marks of this installation, past their grace, under a journal that knows
// them, lead to a destruction.

#[test]
fn a_destruction_is_in_one_row_of_the_table() {
    let rows: Vec<&str> = GOLDEN.lines().filter(|row| row.contains("Destroy")).collect();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert!(rows[0].starts_with("guest without agent, beyond grace"), "{rows:?}");
}
