//! The table of transitions of a build, drawn from the code and compared with `transitions.txt`.
//!
//! The rows leave out [`Effect::Report`] and [`Effect::WakeAt`], which follow nearly every event.

use drover_model::fault::FaultKind;
use drover_model::ports::{AddressObservation, Greeting, Ran, TaskEnd};
use drover_model::record::Body;
use drover_model::state_machine::{Row, table};
use drover_model::testing::image;

use super::*;
use crate::builder::state::{Boot, Create, Install, Remove, Shut, Task};

/// The state with its step.
fn state(state: &State) -> String {
    let phase = state.phase();
    let step = match state {
        State::Pulling(Task::Await(_))
        | State::Creating(Create::Await(_))
        | State::Installing(Install::Await(_))
        | State::Booting(Boot::Await(_))
        | State::ShuttingDown(Shut::Await(_))
        | State::Converting(Task::Await(_)) => ": task",
        State::Creating(Create::Locate) => ": locate",
        State::Creating(Create::Id) => ": id",
        State::Creating(Create::Look)
        | State::Booting(Boot::Look)
        | State::ShuttingDown(Shut::Look) => ": look",
        State::Installing(Install::Look { started: true }) => ": runs",
        State::Installing(Install::Look { started: false }) => ": look",
        State::Installing(Install::Eject) => ": eject",
        State::Booting(Boot::Address) => ": address",
        State::Booting(Boot::HostKeys) => ": host keys",
        State::Provisioning(0) => ": cloud-init",
        State::Provisioning(_) => ": own step",
        State::Removing(Remove::Look) => ": look",
        State::Removing(Remove::Fence { .. }) => ": fence",
        State::Removing(Remove::Stop) => ": stop",
        State::Removing(Remove::StopAwait(_)) => ": stop's task",
        State::Removing(Remove::Destroy) => ": destroy",
        State::Removing(Remove::DestroyAwait(_)) => ": destroy's task",
        State::Removing(Remove::Confirm) => ": confirm",
        State::Removing(Remove::Leftovers) => ": leftovers",
        _ => "",
    };
    format!("{phase}{step}")
}

fn effects(all: &[Effect]) -> Vec<String> {
    let word = |effect: &Effect| match effect {
        Effect::Record(Body::ImageIntended { .. }) => Some("record ImageIntended".to_owned()),
        Effect::Record(Body::ImageSealed { .. }) => Some("record ImageSealed".to_owned()),
        Effect::Record(Body::ImageFailed { .. }) => Some("record ImageFailed".to_owned()),
        Effect::Record(Body::ImageBuilt { .. }) => Some("record ImageBuilt".to_owned()),
        Effect::Record(Body::ImageGone { burned, .. }) => {
            Some(format!("record ImageGone{}", if *burned { " (burned)" } else { "" }))
        }
        Effect::Record(_) => Some("record".to_owned()),
        Effect::WantTurn => Some("WantTurn".to_owned()),
        Effect::TurnOver => Some("TurnOver".to_owned()),
        Effect::WantId(None) => Some("WantId".to_owned()),
        Effect::WantId(Some(_)) => Some("WantId (one is taken)".to_owned()),
        Effect::IdBack { burned, .. } => {
            Some(format!("IdBack{}", if *burned { " (burned)" } else { "" }))
        }
        Effect::Ask(_, call) => {
            let text = format!("{call:?}");
            let name = text.split(['(', ' ']).next().unwrap_or_default().to_owned();
            Some(format!("ask {name}"))
        }
        Effect::Stepped(_) => Some("Stepped".to_owned()),
        Effect::End => Some("End".to_owned()),
        Effect::Report(_) | Effect::WakeAt(..) => None,
    };
    all.iter().filter_map(word).collect()
}

/// Every answer that a call may have, each with its name.
fn answers(call: &Call, play: &Play) -> Vec<(&'static str, Answer)> {
    let passing = || fault(FaultKind::Contention);
    let broken = || fault(FaultKind::Broken);
    let unknown = || fault(FaultKind::UnknownOutcome);
    let marks = || play.mind.marks.clone().unwrap();
    match call {
        Call::Pull => vec![
            ("accepted", Answer::Accepted(Ok(Some(upid())))),
            ("there already", Answer::Accepted(Ok(None))),
            ("passing fault", Answer::Accepted(Err(passing()))),
            ("unknown outcome", Answer::Accepted(Err(unknown()))),
            ("fault", Answer::Accepted(Err(broken()))),
        ],
        Call::Start | Call::Shutdown | Call::Stop | Call::Destroy => vec![
            ("accepted", Answer::Accepted(Ok(Some(upid())))),
            ("passing fault", Answer::Accepted(Err(passing()))),
            ("unknown outcome", Answer::Accepted(Err(unknown()))),
            ("fault", Answer::Accepted(Err(broken()))),
        ],
        Call::Create => vec![
            ("accepted", Answer::Accepted(Ok(Some(upid())))),
            ("passing fault", Answer::Accepted(Err(passing()))),
            ("unknown outcome", Answer::Accepted(Err(unknown()))),
            ("id taken", Answer::Accepted(Err(fault(FaultKind::IdTaken)))),
            ("fault", Answer::Accepted(Err(broken()))),
        ],
        Call::Finish => vec![
            ("accepted", Answer::Accepted(Ok(Some(upid())))),
            ("is one already", Answer::Accepted(Ok(None))),
            ("passing fault", Answer::Accepted(Err(passing()))),
            ("fault", Answer::Accepted(Err(broken()))),
        ],
        Call::Fence => {
            vec![("fenced", Answer::Accepted(Ok(None))), ("fault", Answer::Accepted(Err(broken())))]
        }
        Call::Await(..) => vec![
            ("done", Answer::TaskEnded(Ok(TaskEnd::Done { warnings: Vec::new() }))),
            ("unknown", Answer::TaskEnded(Ok(TaskEnd::Unknown("?".into())))),
            ("passing failure", Answer::TaskEnded(Ok(TaskEnd::Failed(passing())))),
            ("failed", Answer::TaskEnded(Ok(TaskEnd::Failed(broken())))),
        ],
        Call::Locate => vec![
            ("found", Answer::Located(Ok(found("pve1")))),
            ("on another node", Answer::Located(Ok(found("pve2")))),
            ("passing fault", Answer::Located(Err(passing()))),
            ("fault", Answer::Located(Err(broken()))),
        ],
        Call::Look => vec![
            ("free", Answer::Looked(Ok(free()))),
            ("ours, runs", Answer::Looked(Ok(seen(&marks(), true)))),
            ("ours, stopped", Answer::Looked(Ok(seen(&marks(), false)))),
            ("being made", Answer::Looked(Ok(unmarked(Some("create"))))),
            ("somebody else's", Answer::Looked(Ok(unmarked(None)))),
            ("fault", Answer::Looked(Err(passing()))),
        ],
        Call::Configure => vec![
            (
                "configured",
                Answer::Configured(Ok(Configured {
                    volumes: Vec::new(),
                    mac: Some(MAC.into()),
                    tags_refused: None,
                    image_refused: None,
                })),
            ),
            ("passing fault", Answer::Configured(Err(passing()))),
            ("fault", Answer::Configured(Err(broken()))),
        ],
        Call::Address => {
            let address = AddressObservation::At("10.0.0.5".parse().unwrap());
            vec![
                ("address", Answer::Addressed(Ok(address))),
                ("not yet", Answer::Addressed(Ok(AddressObservation::NotYet("wait".into())))),
                ("passing fault", Answer::Addressed(Err(passing()))),
                ("fault", Answer::Addressed(Err(broken()))),
            ]
        }
        Call::HostKeys => vec![
            ("keys", Answer::HostKeys(Ok(vec!["key".into()]))),
            ("none", Answer::HostKeys(Ok(Vec::new()))),
            ("passing fault", Answer::HostKeys(Err(passing()))),
            ("fault", Answer::HostKeys(Err(broken()))),
        ],
        Call::Greet(_) => {
            let other =
                Greeting { host_key: "key".into(), cards: vec!["BC:24:11:00:00:99".into()] };
            vec![
                ("greeted", Answer::Greeted(Ok("key".into()))),
                ("another machine", Answer::Greeted(Ok(other))),
                ("passing fault", Answer::Greeted(Err(passing()))),
                ("another key", Answer::Greeted(Err(fault(FaultKind::Impostor)))),
                ("key rejected", Answer::Greeted(Err(fault(FaultKind::KeyRejected)))),
                ("fault", Answer::Greeted(Err(broken()))),
            ]
        }
        Call::Run(..) | Call::Upload(..) => vec![
            ("exit 0", Answer::Ran(Ok(Ran { exit: Some(0), tail: String::new() }))),
            ("exit 1", Answer::Ran(Ok(Ran { exit: Some(1), tail: String::new() }))),
            ("passing fault", Answer::Ran(Err(passing()))),
            ("fault", Answer::Ran(Err(broken()))),
        ],
        Call::Eject => vec![
            ("ejected", Answer::Ejected(Ok(()))),
            ("passing fault", Answer::Ejected(Err(passing()))),
            ("fault", Answer::Ejected(Err(broken()))),
        ],
        Call::Check => vec![
            ("sound", Answer::Checked(Ok(Vec::new()))),
            ("faults", Answer::Checked(Ok(vec!["no disk".into()]))),
            ("passing fault", Answer::Checked(Err(passing()))),
            ("fault", Answer::Checked(Err(broken()))),
        ],
        Call::Seal => vec![
            ("sealed", Answer::Sealed(Ok(()))),
            ("passing fault", Answer::Sealed(Err(passing()))),
            ("fault", Answer::Sealed(Err(broken()))),
        ],
        Call::IdTaken => vec![
            ("free", Answer::IdSeen(Ok(IdStatus::Free))),
            ("taken", Answer::IdSeen(Ok(IdStatus::Taken))),
            ("fault", Answer::IdSeen(Err(passing()))),
        ],
        Call::Leftovers => vec![
            ("none", Answer::Leftovers(Ok(Vec::new()))),
            ("volumes", Answer::Leftovers(Ok(vec!["thin:vm-9000-disk-0".into()]))),
            ("fault", Answer::Leftovers(Err(passing()))),
        ],
    }
}

/// A row for what a copy of the play does next.
fn row(way: &[Step], name: &str, next: &Step) -> Row {
    let mut play = walked(way);
    let before = state(play.mind.state());
    next.take(&mut play);
    let after = state(play.mind.state());
    Row { before, event: name.to_owned(), after, effects: effects(&play.last) }
}

/// A step of a play that can be taken again.
#[derive(Clone)]
enum Step {
    Copied,
    Installed,
    Well,
    Answer(Answer),
    Event(Event),
    Late,
}

impl Step {
    fn take(&self, play: &mut Play) {
        match self {
            Self::Copied | Self::Installed => {}
            Self::Well => play.well(),
            Self::Answer(answer) => play.answer(answer.clone()),
            Self::Event(event) => play.feed(event.clone()),
            Self::Late => {
                play.now = 100_000;
                play.last.clear();
                let alarm = play.all.iter().rev().find_map(|effect| match effect {
                    Effect::WakeAt(attempt, _) => Some(*attempt),
                    _ => None,
                });
                play.feed(Event::Wake(alarm.unwrap()));
            }
        }
    }
}

fn walked(way: &[Step]) -> Play {
    let mut play = Play::new(&match way.first() {
        Some(Step::Copied) => copied(),
        Some(Step::Installed) => installed(),
        _ => image("c/debian"),
    });
    way.iter().for_each(|step| step.take(&mut play));
    play
}

// Invariant: the table of transitions is the agreed one.

#[test]
fn the_table_drawn_from_the_code_is_the_one_agreed_on() {
    let looked = |observation| Step::Answer(Answer::Looked(Ok(observation)));
    let unknown = Step::Answer(Answer::Accepted(Err(fault(FaultKind::UnknownOutcome))));
    let mut ways: Vec<Vec<Step>> = Vec::new();
    // Along the usual way: each state once.
    let usual = |first: &[Step], ways: &mut Vec<Vec<Step>>| {
        let mut way = first.to_vec();
        loop {
            ways.push(way.clone());
            if walked(&way).phase().is_over() {
                break;
            }
            way.push(Step::Well);
        }
    };
    usual(&[], &mut ways);
    ways.push(vec![Step::Copied]);
    // From the answers of an installer to the first boot.
    let mut way = vec![Step::Installed, Step::Well, Step::Well, Step::Well, Step::Well];
    for _ in 0..4 {
        ways.push(way.clone());
        way.push(Step::Well);
    }
    let mut way = vec![Step::Installed, Step::Well, Step::Well, Step::Well, Step::Well];
    way.push(unknown.clone());
    ways.push(way);
    // A create of unknown outcome.
    let mut way = vec![Step::Well; 4];
    way.push(unknown.clone());
    ways.push(way);
    // A build that fails while it is configured: all of a removal.
    let mut way = vec![Step::Well; 6];
    way.push(Step::Answer(Answer::Configured(Err(fault(FaultKind::Broken)))));
    ways.push(way.clone());
    let marks = walked(&way).mind.marks.clone().unwrap();
    way.push(looked(seen(&marks, true)));
    for _ in 0..7 {
        ways.push(way.clone());
        way.push(Step::Well);
    }
    let mut rows: Vec<Row> = Vec::new();
    for way in &ways {
        let play = walked(way);
        let before = state(play.mind.state());
        if rows.iter().any(|row| row.before == before) || play.phase().is_over() {
            continue;
        }
        if let Some(call) = play.call() {
            for (name, answer) in answers(&call, &play) {
                let call = format!("{call:?}");
                let call = call.split(['(', ' ']).next().unwrap_or_default();
                rows.push(row(way, &format!("{call}: {name}"), &Step::Answer(answer)));
            }
        }
        match play.mind.state() {
            State::Queued => rows.push(row(way, "Turn", &Step::Event(Event::Turn))),
            State::Creating(Create::Id) => {
                let id = Event::Id(Ok(VmId(9000)));
                rows.push(row(way, "Id", &Step::Event(id)));
                let none = Event::Id(Err(fault(FaultKind::Capacity)));
                rows.push(row(way, "Id: none", &Step::Event(none)));
            }
            _ => {}
        }
        if !matches!(play.mind.state(), State::Removing(_)) {
            rows.push(row(way, "too late", &Step::Late));
            rows.push(row(way, "Cancel", &Step::Event(Event::Cancel)));
        }
    }
    let drawn = table(&rows);
    assert!(drawn == include_str!("../transitions.txt"), "the table moved; it is:\n{drawn}");
}
