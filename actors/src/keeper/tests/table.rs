//! The table of transitions of a declared machine, drawn from the code and compared with
//! `transitions.txt`.
//!
//! The rows leave out [`Effect::Report`] and [`Effect::WakeAt`], which follow nearly every event.

use drover_model::state_machine::{Row, table};

use super::*;

/// The state with its step.
fn state(play: &Play) -> String {
    let state = play.mind.state();
    let step = match state {
        State::Waiting => "waiting: pause",
        State::Blocked => "blocked",
        State::Checking(Check::Cluster) => "waiting: cluster",
        State::Checking(Check::List) => "waiting: list",
        State::Checking(Check::Look(_)) => "waiting: look at its namesakes",
        State::Creating(Create::Locate) => "waiting: locate",
        State::Creating(Create::Id) => "waiting: id",
        State::Creating(Create::Call) => "creating",
        State::Creating(Create::Await(_)) => "creating: task",
        State::Creating(Create::Look) => "creating: look",
        State::Configuring => "configuring",
        State::Starting => "starting",
        State::Correcting(_) => "correcting",
        State::Leaving => "removing: grace",
        State::Removing(Remove::Look) => "removing: look",
        State::Removing(Remove::Fence { .. }) => "removing: fence",
        State::Removing(Remove::Stop) => "removing: stop",
        State::Removing(Remove::StopAwait(_)) => "removing: stop's task",
        State::Removing(Remove::Destroy) => "removing: destroy",
        State::Removing(Remove::DestroyAwait(_)) => "removing: destroy's task",
        State::Removing(Remove::Confirm) => "removing: confirm",
        State::Removing(Remove::Leftovers) => "removing: leftovers",
        State::Removed => "removed",
        State::Resting(_, watch) => {
            let watch = match watch {
                Watch::Pause => "",
                Watch::Describe => ": describe",
                Watch::Look => ": look",
                Watch::List => ": list",
            };
            return format!("{}{watch}", play.phase());
        }
    };
    step.to_owned()
}

fn effects(all: &[Effect]) -> Vec<String> {
    let word = |effect: &Effect| match effect {
        Effect::Record(Body::DeclaredGone { burned: true, .. }) => {
            Some("record DeclaredGone (burned)".to_owned())
        }
        Effect::Record(body) => {
            let text = format!("{body:?}");
            Some(format!("record {}", text.split([' ', '(']).next().unwrap()))
        }
        Effect::WantCluster => Some("WantCluster".to_owned()),
        Effect::WantId(None) => Some("WantId".to_owned()),
        Effect::WantId(Some(_)) => Some("WantId (one is taken)".to_owned()),
        Effect::IdBack { burned, .. } => {
            Some(format!("IdBack{}", if *burned { " (burned)" } else { "" }))
        }
        Effect::Ask(_, Call::Order(work)) => Some(format!("ask Order {}", work.name())),
        Effect::Ask(_, call) => {
            let text = format!("{call:?}");
            Some(format!("ask {}", text.split(['(', ' ']).next().unwrap()))
        }
        Effect::End => Some("End".to_owned()),
        Effect::Report(_) | Effect::WakeAt(..) => None,
    };
    all.iter().filter_map(word).collect()
}

/// Every answer that a call may have, each with its name.
fn answers(call: &Call, play: &Play) -> Vec<(&'static str, Answer)> {
    let passing = || fault(FaultKind::Contention);
    let broken = || fault(FaultKind::Broken);
    let quorum = |quorate| Answer::Surveyed(Ok(Survey { quorate, ..survey(Vec::new()) }));
    match call {
        Call::Survey => vec![
            ("none", quorum(true)),
            ("no quorum", quorum(false)),
            ("its name", Answer::Surveyed(Ok(survey(vec![listed(105, "gitea")])))),
            ("a namesake", {
                let name = format!("gitea-8zzzzzzz-{ID}");
                Answer::Surveyed(Ok(survey(vec![listed(120, &name)])))
            }),
            ("fault", Answer::Surveyed(Err(passing()))),
        ],
        Call::LookAt(..) => {
            let machine = Marks {
                kind: Kind::Machine,
                template: "gitea".into(),
                ..drover_model::testing::marks("nnnnnnnnnnnnnnnn", 120)
            };
            let agent = Marks { kind: Kind::Agent, ..machine.clone() };
            vec![
                ("an agent", Answer::Looked(Ok(seen(&agent, true)))),
                ("a machine", Answer::Looked(Ok(seen(&machine, true)))),
                ("no marks", Answer::Looked(Ok(unmarked(None)))),
                ("free", Answer::Looked(Ok(free()))),
                ("fault", Answer::Looked(Err(passing()))),
            ]
        }
        Call::Locate => vec![
            ("found", Answer::Located(Ok(found("pve1")))),
            ("none", Answer::Located(Ok(Found::default()))),
            ("fault", Answer::Located(Err(passing()))),
        ],
        Call::Clone => vec![
            ("accepted", Answer::Accepted(Ok(Some(upid())))),
            ("unknown outcome", Answer::Accepted(Err(fault(FaultKind::UnknownOutcome)))),
            ("id taken", Answer::Accepted(Err(fault(FaultKind::IdTaken)))),
            ("fault", Answer::Accepted(Err(broken()))),
        ],
        Call::Stop | Call::Destroy => vec![
            ("accepted", Answer::Accepted(Ok(Some(upid())))),
            ("fault", Answer::Accepted(Err(broken()))),
        ],
        Call::Fence => {
            vec![("fenced", Answer::Accepted(Ok(None))), ("fault", Answer::Accepted(Err(broken())))]
        }
        Call::Await(..) => vec![
            ("done", Answer::TaskEnded(Ok(TaskEnd::Done { warnings: Vec::new() }))),
            ("unknown", Answer::TaskEnded(Ok(TaskEnd::Unknown("?".into())))),
            ("failed", Answer::TaskEnded(Ok(TaskEnd::Failed(broken())))),
        ],
        Call::Look => vec![
            ("free", Answer::Looked(Ok(free()))),
            ("ours, runs", Answer::Looked(Ok(seen(&play.marks(), true)))),
            ("ours, stopped", Answer::Looked(Ok(seen(&play.marks(), false)))),
            ("being made", Answer::Looked(Ok(unmarked(Some("create"))))),
            ("somebody else's", Answer::Looked(Ok(unmarked(None)))),
            ("fault", Answer::Looked(Err(passing()))),
        ],
        Call::Configure => vec![
            ("configured", Answer::Configured(Ok(configured()))),
            ("foreign", Answer::Configured(Err(fault(FaultKind::Foreign)))),
            ("fault", Answer::Configured(Err(broken()))),
        ],
        Call::Describe => vec![
            ("as declared", Answer::Described(Ok(Box::new(view(Power::Running))))),
            ("stopped", Answer::Described(Ok(Box::new(view(Power::Stopped))))),
            ("fault", Answer::Described(Err(passing()))),
        ],
        Call::Order(_) => {
            let failed = Carried {
                power: Power::Unknown,
                sent: true,
                snapshot_taken: None,
                outcome: Err(broken()),
            };
            vec![("done", done()), ("failed", Answer::Carried(Ok(failed)))]
        }
        Call::IdTaken => vec![
            ("free", Answer::IdSeen(Ok(IdStatus::Free))),
            ("taken", Answer::IdSeen(Ok(IdStatus::Taken))),
            ("fault", Answer::IdSeen(Err(passing()))),
        ],
        Call::Leftovers => vec![
            ("none", Answer::Leftovers(Ok(Vec::new()))),
            ("volumes", Answer::Leftovers(Ok(vec!["thin:vm-10000-disk-0".into()]))),
            ("fault", Answer::Leftovers(Err(passing()))),
        ],
    }
}

/// A step of a play that can be taken again.
#[derive(Clone)]
enum Step {
    Well,
    Answer(Answer),
    Event(Event),
    Ring,
    Restart,
}

impl Step {
    fn take(&self, play: &mut Play, spec: &DeclaredSpec) {
        match self {
            Self::Well => play.well(),
            Self::Answer(answer) => play.answer(answer.clone()),
            Self::Event(event) => play.feed(event.clone()),
            Self::Ring => play.ring(),
            Self::Restart => play.restart(Some(spec)),
        }
    }
}

fn walked(way: &[Step], spec: &DeclaredSpec) -> Play {
    let mut play = Play::new(spec);
    way.iter().for_each(|step| step.take(&mut play, spec));
    play
}

/// A row for what a copy of the play does next.
fn row(way: &[Step], spec: &DeclaredSpec, name: &str, next: &Step) -> Row {
    let mut play = walked(way, spec);
    let before = state(&play);
    play.last.clear();
    next.take(&mut play, spec);
    Row { before, event: name.to_owned(), after: state(&play), effects: effects(&play.last) }
}

// Invariant: the table of transitions is the agreed one.

#[test]
fn the_table_drawn_from_the_code_is_the_one_agreed_on() {
    let spec = DeclaredSpec { on_removal: OnRemoval::Delete, ..correcting(&[DriftKind::Power]) };
    let mut ways: Vec<Vec<Step>> = Vec::new();
    // Along the usual way: each state once.
    let mut way = Vec::new();
    loop {
        ways.push(way.clone());
        let play = walked(&way, &spec);
        if *play.mind.state() == State::Resting(Standing::Kept, Watch::Pause) {
            break;
        }
        way.push(Step::Well);
    }
    let kept = way;
    let after = |more: &[Step]| [&kept[..], more].concat();
    // What the list of guests, the template image and the clone may come to.
    let name = format!("gitea-8zzzzzzz-{ID}");
    let namesake = Answer::Surveyed(Ok(survey(vec![listed(120, &name)])));
    ways.push(vec![Step::Well, Step::Answer(namesake)]);
    let same = Answer::Surveyed(Ok(survey(vec![listed(105, "gitea")])));
    ways.push(vec![Step::Well, Step::Answer(same)]);
    let none = Answer::Located(Ok(Found::default()));
    ways.push(vec![Step::Well, Step::Well, Step::Answer(none)]);
    let unknown = Answer::Accepted(Err(fault(FaultKind::UnknownOutcome)));
    ways.push([vec![Step::Well; 4], vec![Step::Answer(unknown)]].concat());
    // Looks, and what follows from them.
    let described = |power| Step::Answer(Answer::Described(Ok(Box::new(view(power)))));
    let gone = Step::Answer(Answer::Described(Err(fault(FaultKind::Gone))));
    let free = Step::Answer(Answer::Looked(Ok(free())));
    let listed = Step::Answer(Answer::Surveyed(Ok(survey(Vec::new()))));
    let round = [Step::Ring, gone.clone(), free.clone(), listed];
    ways.push(after(&[Step::Ring, described(Power::Stopped)]));
    ways.push(after(&[Step::Ring, gone.clone()]));
    ways.push(after(&[Step::Ring, gone.clone(), free.clone()]));
    ways.push(after(&[&round[..], &round[..3]].concat()));
    ways.push(after(&[&round[..], &round[..]].concat()));
    let foreign = Step::Answer(Answer::Looked(Ok(unmarked(None))));
    ways.push(after(&[Step::Ring, gone, foreign]));
    // A removal.
    let removed = Step::Event(Event::Declare(None));
    for steps in 0..9 {
        ways.push(after(&[vec![removed.clone()], vec![Step::Well; steps]].concat()));
    }
    // A machine that left: its last declaration keeps it.
    let keep = gitea();
    let mut rows: Vec<Row> = Vec::new();
    let mut drawn: Vec<(String, usize)> = Vec::new();
    let left = after(&[removed]);
    let all = ways.into_iter().map(|way| (way, &spec)).chain([(left, &keep)]);
    for (number, (way, spec)) in all.enumerate() {
        let play = walked(&way, spec);
        let before = state(&play);
        // A list that is read for the second time has other ends than the first one.
        let again = before == "kept: list" && drawn.iter().any(|(known, _)| *known == before);
        if !again && drawn.iter().any(|(known, _)| *known == before) {
            continue;
        }
        drawn.push((before.clone(), number));
        if play.phase() == DeclaredPhase::Removed {
            continue;
        }
        let mark = |name: String| if again { format!("{name}, again") } else { name };
        if let Some(call) = play.call() {
            for (name, answer) in answers(&call, &play) {
                let call = format!("{call:?}");
                let call = call.split(['(', ' ']).next().unwrap();
                let name = mark(format!("{call}: {name}"));
                rows.push(row(&way, spec, &name, &Step::Answer(answer)));
            }
        }
        if again {
            continue;
        }
        match play.mind.state() {
            State::Checking(Check::Cluster) => {
                let cluster = Event::Cluster(Ok(ClusterId::new(CLUSTER)));
                rows.push(row(&way, spec, "Cluster", &Step::Event(cluster)));
                let none = Event::Cluster(Err(fault(FaultKind::Contention)));
                rows.push(row(&way, spec, "Cluster: not known", &Step::Event(none)));
            }
            State::Creating(Create::Id) => {
                let id = Event::Id(Ok((VmId(10_000), AgentId::new(ID))));
                rows.push(row(&way, spec, "Id", &Step::Event(id)));
                let none = Event::Id(Err(fault(FaultKind::Capacity)));
                rows.push(row(&way, spec, "Id: none", &Step::Event(none)));
            }
            State::Waiting | State::Blocked | State::Resting(_, Watch::Pause) | State::Leaving => {
                rows.push(row(&way, spec, "Wake", &Step::Ring));
            }
            _ => {}
        }
        let undeclared = Step::Event(Event::Declare(None));
        if play.mind.is_declared() {
            rows.push(row(&way, spec, "undeclared", &undeclared));
        } else {
            let again = Event::Declare(Some(Arc::new(spec.clone())));
            rows.push(row(&way, spec, "declared", &Step::Event(again)));
        }
        rows.push(row(&way, spec, "Delete", &Step::Event(Event::Delete)));
        rows.push(row(&way, spec, "Forget", &Step::Event(Event::Forget)));
        rows.push(row(&way, spec, "crash", &Step::Restart));
    }
    let drawn = table(&rows);
    assert!(drawn == include_str!("../transitions.txt"), "the table moved; it is:\n{drawn}");
}
