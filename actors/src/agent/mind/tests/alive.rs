//! How an agent reacts to lists that show its guest.

use drover_model::fact::What;
use drover_model::id::NodeName;
use drover_model::phase::AgentPhase;
use drover_model::ports::VmObservation;
use drover_model::record::{Body, LOST, Reason};
use drover_model::status::Standing;
use drover_model::time::Moment;

use crate::agent::event::{Answer, Call, Event};
use crate::agent::testing::{Drive, ask, calls, secs, spec};
use crate::message::{AgentCommand, Observed, Shown};

fn seen(drive: &Drive, status: Shown) -> Observed {
    let (at, node) = (drive.now.mono, NodeName::new("n1"));
    Observed { at, node, offline: false, status, lock: None }
}

fn ready() -> Drive {
    let mut drive = Drive::new(spec());
    drive.go_to(AgentPhase::Ready);
    drive.wait(secs(20));
    drive
}

fn leased() -> Drive {
    let mut drive = ready();
    drive.command(AgentCommand::Lease { ask: Box::new(ask("l1", None)) });
    drive
}

/// Shows a list. Returns the number of looks that follow at once.
fn show(drive: &mut Drive, seen: Observed) -> usize {
    let effects = drive.command(AgentCommand::Observed(seen));
    calls(&effects).iter().filter(|call| **call == Call::Look).count()
}

/// Answers the running look.
fn look(drive: &mut Drive, running: bool) {
    let observation = VmObservation { running: Some(running), ..drive.observation() };
    let (attempt, call) = drive.asked().expect("a look is under way");
    assert_eq!(call, Call::Look);
    drive.event(Event::Answer(attempt, Answer::Looked(Ok(observation))));
}

fn ended(drive: &Drive) -> Vec<&str> {
    let ends = drive.records().into_iter().filter_map(|body| match body {
        Body::LeaseEnded { why, .. } => Some(why.as_str()),
        _ => None,
    });
    ends.collect()
}

// Invariant: a list leads to a look at that guest, and the result of the look decides.

#[test]
fn a_guest_that_a_list_shows_stopped_is_looked_at_and_its_lease_is_lost() {
    let mut drive = leased();
    let stopped = seen(&drive, Shown::Stopped);
    assert_eq!(show(&mut drive, stopped), 1);
    assert_eq!(drive.state(), AgentPhase::Leased, "a list proves nothing");
    look(&mut drive, false);
    assert_eq!((drive.state(), ended(&drive)), (AgentPhase::Retiring, vec![LOST]));
    assert_eq!(drive.mind.state().leaving(), Some(&Reason::PoweredOff));
}

#[test]
fn a_list_that_is_behind_for_long_costs_few_looks_and_nobody_anything() {
    let mut drive = leased();
    let mut looks = 0;
    for _ in 0..60 {
        let stopped = seen(&drive, Shown::Stopped);
        if show(&mut drive, stopped) > 0 {
            looks += 1;
            look(&mut drive, true);
        }
        drive.wait(secs(10));
    }
    assert_eq!(drive.state(), AgentPhase::Leased);
    assert!((2..=6).contains(&looks), "{looks} looks in ten minutes");
}

#[test]
fn a_guest_that_lists_showed_running_again_is_looked_at_at_once() {
    let mut drive = leased();
    for status in [Shown::Stopped, Shown::Running, Shown::Stopped] {
        let shown = seen(&drive, status.clone());
        let looks = show(&mut drive, shown);
        assert_eq!(looks, usize::from(status == Shown::Stopped));
        if looks > 0 {
            look(&mut drive, true);
        }
        drive.wait(secs(10));
    }
}

// Invariant: a state from before the guest's start is no new evidence.

#[test]
fn a_list_from_before_the_start_leads_to_no_look() {
    let mut drive = Drive::new(spec());
    drive.go_to(AgentPhase::Connecting);
    let early = Observed { at: Moment(0), ..seen(&drive, Shown::Stopped) };
    assert_eq!(show(&mut drive, early), 0);
    let behind = seen(&drive, Shown::Stopped);
    assert_eq!(show(&mut drive, behind), 0, "it may show what was ten seconds ago");
}

#[test]
fn what_is_not_reported_or_locked_is_not_acted_on() {
    let mut drive = leased();
    let locked = Observed { lock: Some("backup".into()), ..seen(&drive, Shown::Stopped) };
    for shown in [locked, seen(&drive, Shown::Unknown), seen(&drive, Shown::Running)] {
        assert_eq!(show(&mut drive, shown), 0);
        assert_eq!(drive.state(), AgentPhase::Leased);
    }
}

// Invariant: nothing is handed out on a guest that is known not to run, and no holder loses it for
// that.

/// The phases of the agent's lease, with their details.
fn reported(drive: &Drive) -> Vec<String> {
    let facts = drive.facts().into_iter().filter_map(|what| match what {
        What::Lease(seen) => Some(format!("{}: {}", seen.state, seen.detail)),
        _ => None,
    });
    facts.collect()
}

fn is_free(drive: &Drive) -> bool {
    matches!(drive.reports().last().expect("a report").status.standing, Standing::Free { .. })
}

#[test]
fn a_paused_machine_is_shown_and_not_handed_out_until_it_runs() {
    let mut drive = ready();
    drive.wait(secs(20));
    let paused =
        Observed { lock: Some("backup".into()), ..seen(&drive, Shown::Still("paused".into())) };
    assert_eq!((show(&mut drive, paused), is_free(&drive)), (0, false));
    drive.command(AgentCommand::Lease { ask: Box::new(ask("l1", None)) });
    assert_eq!(drive.reports().last().expect("a report").refused.len(), 1);
    drive.wait(secs(20));
    let running = seen(&drive, Shown::Running);
    assert_eq!((show(&mut drive, running), is_free(&drive)), (0, true));
}

#[test]
fn the_holder_of_a_paused_machine_is_reported_and_keeps_it() {
    let mut drive = leased();
    drive.wait(secs(20));
    for status in [Shown::Still("paused".into()), Shown::Running] {
        let shown = seen(&drive, status);
        show(&mut drive, shown);
        drive.wait(secs(20));
    }
    assert_eq!(drive.state(), AgentPhase::Leased);
    let reported = reported(&drive);
    assert!(
        reported.ends_with(&["ready: its machine does not run: paused".into(), "ready: ".into()]),
        "{reported:?}"
    );
}

#[test]
fn a_node_that_is_offline_takes_no_lease_and_costs_none() {
    let mut idle = ready();
    let offline = |drive: &Drive| Observed { offline: true, ..seen(drive, Shown::Running) };
    let shown = offline(&idle);
    show(&mut idle, shown);
    assert!(!is_free(&idle));
    let mut held = leased();
    let shown = offline(&held);
    show(&mut held, shown);
    assert_eq!(
        (held.state(), reported(&held).last().cloned()),
        (AgentPhase::Leased, Some("ready: node n1 is offline".into()))
    );
}
