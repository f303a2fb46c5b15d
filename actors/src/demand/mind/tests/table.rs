//! The life of one runner at its source, drawn from `step` itself and compared with
//! `transitions.txt`.
//!
//! The rows leave out [`Effect::Poll`], [`Effect::WakeAt`] and [`Effect::Publish`], which follow
//! nearly every event. After a wanted change: `cargo test -p drover-actors demand::mind` prints the
//! new table.

use drover_model::state_machine::{Row, table};

use super::*;

const GOLDEN: &str = include_str!("../../transitions.txt");

/// Longer than any limit of a runner in these tests.
const LONG: u64 = 700;

/// The states of a runner, with the way there from the one that was started in its guest.
const STATES: [&str; 12] = [
    "starting",
    "idle",
    "busy",
    "busy, offline",
    "not listed",
    "row gone",
    "cordoning",
    "cordoned",
    "over",
    "machine gone",
    "deregistering",
    "deregister again",
];

/// What happens, in the order of the table.
const EVENTS: [&str; 25] = [
    "poll: idle",
    "poll: busy",
    "poll: offline",
    "poll: busy, offline",
    "poll: not listed",
    "poll: row gone",
    "poll: had all its jobs",
    "poll: row gone, its job over",
    "poll: taken off as unfit",
    "poll failed",
    "poll long after: idle",
    "poll long after: busy",
    "poll long after: offline",
    "poll long after: busy, offline",
    "poll long after: not listed",
    "poll long after: row gone",
    "guest: ended well",
    "guest: ended badly",
    "lease ended",
    "Cordoned: ok",
    "Cordoned: has a job",
    "Cordoned: failed",
    "Deregistered: ok",
    "Deregistered: failed",
    "NotWritten",
];

/// The state of the first runner.
fn state(play: &Play) -> &'static str {
    let runner = play.runners.get(&name(1)).expect("a runner");
    let Some(observed) = play.mind.observed.get(&name(1)) else { return "starting" };
    match observed.deregister {
        Some((_, true)) => return "deregistering",
        Some((_, false)) => return "deregister again",
        None => {}
    }
    match (runner.lives, observed) {
        (false, _) => "machine gone",
        (true, Observed { settled: true, .. }) => "over",
        (true, Observed { listed: false, .. }) => "starting",
        (true, Observed { missing: true, gone: Some(_), .. }) => "row gone",
        (true, Observed { missing: true, .. }) => "not listed",
        (true, Observed { away: Some(_), .. }) => "busy, offline",
        (true, Observed { jobs: 1.., .. }) => "busy",
        (true, Observed { cordoned: Some(_), .. }) => "cordoned",
        (true, Observed { cordoning: true, .. }) => "cordoning",
        (true, _) => "idle",
    }
}

/// Waits for the next poll and answers it.
fn poll(play: &mut Play, seen: &str) -> Vec<Effect> {
    let mut effects = play.tick();
    while !play.mind.polling {
        effects.extend(play.wait(1));
    }
    let all = |rows: &[(u32, bool, u32)]| observation(rows, &[]);
    let gone = || SourceObservation { gone: [name(1)].into(), ..all(&[]) };
    let answer = match seen {
        "idle" => all(&[(1, true, 0)]),
        "busy" => all(&[(1, true, 1)]),
        "offline" => all(&[(1, false, 0)]),
        "busy, offline" => all(&[(1, false, 1)]),
        "not listed" => SourceObservation { whole: false, ..all(&[]) },
        "row gone" => gone(),
        "had all its jobs" => SourceObservation { done: [name(1)].into(), ..all(&[]) },
        "row gone, its job over" => {
            SourceObservation { over: [(name(1), "done")].into(), ..gone() }
        }
        "taken off as unfit" => {
            let mut unfit = all(&[(1, false, 0)]);
            unfit.rows[0].node.shut = Shut::Unfit("no space".into());
            unfit
        }
        other => panic!("no such poll: {other}"),
    };
    effects.extend(play.step(Event::Polled(Ok(Box::new(answer)))));
    effects
}

/// A runner in this state, right after entering it.
fn in_state(wanted: &str) -> Play {
    let mut play = Play::new(spec());
    play.start_runner(1);
    match wanted {
        "starting" => {}
        "idle" | "busy" | "busy, offline" => drop(poll(&mut play, wanted)),
        "not listed" | "row gone" => {
            poll(&mut play, "idle");
            poll(&mut play, wanted);
        }
        "cordoning" | "cordoned" => {
            poll(&mut play, "idle");
            play.wait(300);
            poll(&mut play, "idle");
            if wanted == "cordoned" {
                play.step(Event::Cordoned(name(1), Ok(())));
            }
        }
        "over" => drop(poll(&mut play, "had all its jobs")),
        "machine gone" => {
            poll(&mut play, "busy");
            happen(&mut play, "lease ended");
        }
        "deregistering" | "deregister again" => {
            poll(&mut play, "had all its jobs");
            happen(&mut play, "lease ended");
            if wanted == "deregister again" {
                play.step(Event::Deregistered(name(1), silent().map(drop)));
            }
        }
        other => panic!("no such state: {other}"),
    }
    assert_eq!(state(&play), wanted);
    play
}

/// Lets this happen, and what is due then.
fn happen(play: &mut Play, event: &str) -> Vec<Effect> {
    let mut effects = Vec::new();
    let runner = name(1);
    let locked = || {
        Fault::new(
            FaultKind::Locked { lock: "job".into() },
            Culprit::Source(SourceId::new("git")),
            "a job is on it",
        )
    };
    if let Some(seen) = event.strip_prefix("poll: ") {
        effects.extend(poll(play, seen));
    } else if let Some(seen) = event.strip_prefix("poll long after: ") {
        play.now += LONG;
        effects.extend(poll(play, seen));
    } else {
        match event {
            "poll failed" => {
                while !play.mind.polling {
                    effects.extend(play.wait(1));
                }
                effects.extend(play.step(Event::Polled(silent().map(Box::new))));
            }
            "guest: ended well" => play.ends(Ending::Well),
            "guest: ended badly" => play.ends(Ending::Badly),
            "lease ended" => play.dies(1),
            "Cordoned: ok" => effects.extend(play.step(Event::Cordoned(runner, Ok(())))),
            "Cordoned: has a job" => {
                effects.extend(play.step(Event::Cordoned(runner, Err(locked()))));
            }
            "Cordoned: failed" => {
                effects.extend(play.step(Event::Cordoned(runner, silent().map(drop))));
            }
            "Deregistered: ok" => effects.extend(play.step(Event::Deregistered(runner, Ok(())))),
            "Deregistered: failed" => {
                effects.extend(play.step(Event::Deregistered(runner, silent().map(drop))));
            }
            "NotWritten" => {
                let fault = JournalFault::Failed("full".into());
                effects.extend(play.step(Event::NotWritten(runner, fault)));
            }
            other => panic!("no such event: {other}"),
        }
    }
    effects.extend(play.tick());
    effects
}

/// An effect in one or two words; none for those that follow nearly every event.
fn word(effect: &Effect) -> Option<String> {
    match effect {
        Effect::Poll | Effect::WakeAt(_) | Effect::Publish(..) => None,
        Effect::Over(_, _, why) => Some(format!("Over({why})")),
        other => {
            let text = format!("{other:?}");
            Some(text.split(['(', ' ', '{']).next().unwrap_or_default().to_owned())
        }
    }
}

fn draw() -> String {
    let mut rows = Vec::new();
    for before in STATES {
        for event in EVENTS {
            let mut play = in_state(before);
            let effects = happen(&mut play, event).iter().filter_map(word).collect();
            let (after, event) = (state(&play).to_owned(), event.to_owned());
            rows.push(Row { before: before.to_owned(), event, after, effects });
        }
    }
    table(&rows)
}

// Invariant: the life of a runner at its source is the agreed one.

#[test]
fn the_table_drawn_from_the_code_is_the_one_agreed_on() {
    let drawn = draw();
    assert!(drawn == GOLDEN, "the table moved; it is:\n{drawn}");
}
