//! How an agent reacts to probes of its guest's SSH, and to lists beside them.

use drover_model::fact::What;
use drover_model::fault::FaultKind;
use drover_model::id::NodeName;
use drover_model::phase::AgentPhase;
use drover_model::ports::VmObservation;
use drover_model::record::{Body, Reason};
use drover_model::spec::TemplateSpec;
use drover_model::status::Standing;

use crate::agent::event::{Answer, Call, Event};
use crate::agent::testing::{Drive, ask, calls, fault, secs, spec};
use crate::message::{AgentCommand, Observed, Shown};

const SILENT: Option<FaultKind> = Some(FaultKind::Unreachable);

fn ready() -> Drive {
    let mut drive = Drive::new(spec());
    drive.go_to(AgentPhase::Ready);
    drive.wait(secs(20));
    drive
}

fn lease(drive: &mut Drive, id: &str) -> usize {
    drive.command(AgentCommand::Lease { ask: Box::new(ask(id, None)) });
    drive.reports().last().expect("a report").refused.len()
}

fn leased() -> Drive {
    let mut drive = ready();
    assert_eq!(lease(&mut drive, "l1"), 0);
    drive
}

fn standing(drive: &Drive) -> Standing {
    drive.reports().last().expect("a report").status.standing
}

fn is_free(drive: &Drive) -> bool {
    matches!(standing(drive), Standing::Free { .. })
}

fn list(drive: &mut Drive, offline: bool) {
    let (at, node) = (drive.now.mono, NodeName::new("n1"));
    let seen = Observed { at, node, offline, status: Shown::Running, lock: None };
    drive.command(AgentCommand::Observed(seen));
}

/// Lets `seconds` pass with a list every ten seconds. Returns how often the guest was read; each
/// read finds it running.
fn pass(drive: &mut Drive, seconds: u64) -> usize {
    let mut looks = 0;
    for second in 0..seconds {
        if second % 10 == 0 {
            list(drive, false);
        }
        let before = drive.effects.len();
        drive.wait(secs(1));
        let looked = calls(&drive.effects[before..]).contains(&Call::Look);
        if looked && drive.state() != AgentPhase::Retiring {
            looks += 1;
            look(drive, true);
        }
    }
    looks
}

fn look(drive: &mut Drive, running: bool) {
    let observation = VmObservation { running: Some(running), ..drive.observation() };
    let (attempt, call) = drive.asked().expect("a look is under way");
    assert_eq!(call, Call::Look);
    drive.event(Event::Answer(attempt, Answer::Looked(Ok(observation))));
}

/// The phases of the agent's lease, with their details.
fn shown(drive: &Drive) -> Vec<String> {
    let facts = drive.facts().into_iter().filter_map(|what| match what {
        What::Lease(seen) => Some(format!("{}: {}", seen.state, seen.detail)),
        _ => None,
    });
    facts.collect()
}

// Invariant: SSH of an idle or leased agent is probed about every ten seconds. No other agent is
// probed.

#[test]
fn ssh_is_probed_six_times_a_minute_while_an_agent_is_idle_or_leased() {
    for draw in [0, u64::MAX] {
        for mut drive in [ready(), leased()] {
            drive.draw = draw;
            let before = drive.probes;
            drive.wait(secs(600));
            let probes = drive.probes - before;
            assert!((49..=75).contains(&probes), "{probes} in ten minutes");
        }
    }
}

#[test]
fn a_guest_that_goes_or_is_held_is_not_probed() {
    for command in [AgentCommand::Retire(Reason::Asked), AgentCommand::NodeDown(true)] {
        let mut drive = ready();
        drive.command(command);
        let before = drive.probes;
        drive.wait(secs(60));
        assert_eq!(drive.probes, before, "{}", drive.state());
    }
    let mut held = ready();
    held.be_held();
    let before = held.probes;
    held.wait(secs(60));
    assert_eq!((held.state(), held.probes), (AgentPhase::Held, before));
}

// Invariant: nothing is handed out on a guest whose SSH did not answer within 15 seconds.

#[test]
fn an_agent_is_handed_out_for_fifteen_seconds_after_its_ssh_answered() {
    for (silence, handed_out) in [(14, true), (16, false)] {
        let mut drive = ready();
        let before = drive.probes;
        while drive.probes == before {
            drive.wait(secs(1));
        }
        // From here on no answer comes and no timer fires.
        drive.now.mono = drive.now.mono + secs(silence);
        assert_eq!(lease(&mut drive, "l1") == 0, handed_out, "{silence} s");
        drive.wait(secs(1));
        assert!(handed_out || is_free(&drive), "it was probed at once");
    }
}

#[test]
fn an_agent_that_missed_one_probe_is_not_handed_out_until_ssh_answers() {
    let mut drive = ready();
    drive.silent = SILENT;
    drive.wait(secs(5));
    assert_eq!(standing(&drive), Standing::Coming, "nobody begins another for it yet");
    assert_eq!(lease(&mut drive, "l1"), 1);
    drive.silent = None;
    drive.wait(secs(3));
    assert!(is_free(&drive));
    assert_eq!(lease(&mut drive, "l1"), 0);
}

#[test]
fn an_adopted_agent_is_probed_before_it_is_handed_out() {
    let mut drive = ready().adopt(secs(5));
    let observation = drive.observation();
    drive.answer(Answer::Looked(Ok(observation)));
    assert_eq!(standing(&drive), Standing::Coming);
    assert_eq!(lease(&mut drive, "l1"), 1);
    drive.wait(secs(1));
    assert_eq!(lease(&mut drive, "l1"), 0);
}

#[test]
fn a_probe_that_could_not_be_made_is_no_silence() {
    let mut drive = leased();
    let mut idle = ready();
    for drive in [&mut drive, &mut idle] {
        drive.silent = Some(FaultKind::Contention);
        assert_eq!(pass(drive, 600), 0);
    }
    assert_eq!((drive.state(), idle.state()), (AgentPhase::Leased, AgentPhase::Ready));
    assert_eq!(shown(&drive), ["ready: "]);
    assert!(!is_free(&idle), "nobody knows whether it lives");
}

// Invariant: silence alone takes a machine from no holder.

#[test]
fn the_holder_of_a_silent_machine_is_shown_that_and_keeps_it() {
    let mut drive = leased();
    drive.silent = SILENT;
    let looks = pass(&mut drive, 3000);
    assert_eq!(drive.state(), AgentPhase::Leased);
    assert!((30..=70).contains(&looks), "{looks} looks at the guest in 50 minutes");
    drive.silent = None;
    pass(&mut drive, 30);
    assert_eq!(shown(&drive), ["ready: ", "ready: its SSH does not answer", "ready: "]);
}

#[test]
fn silence_is_known_within_25_seconds() {
    let mut drive = leased();
    drive.draw = u64::MAX;
    drive.wait(secs(30));
    drive.silent = SILENT;
    // Three probes without an answer take three seconds each on top of this.
    drive.wait(secs(16));
    assert!(drive.mind.trouble().is_some());
}

#[test]
fn a_silent_machine_that_a_look_finds_stopped_is_lost_with_that_cause() {
    let mut drive = leased();
    drive.silent = SILENT;
    drive.wait(secs(16));
    look(&mut drive, false);
    assert_eq!(drive.state(), AgentPhase::Retiring);
    let last = shown(&drive).last().cloned();
    assert_eq!(last.as_deref(), Some("ended: lost: its guest was switched off"));
    let ended: Vec<_> = drive.journal_state.ended.values().map(|one| one.cause.clone()).collect();
    assert_eq!(ended, ["its guest was switched off"], "and that outlives a restart");
}

#[test]
fn a_silent_machine_that_somebody_stopped_under_a_lock_is_left_to_its_holder() {
    let mut drive = leased();
    drive.silent = SILENT;
    drive.wait(secs(16));
    let lock = Some("backup".into());
    let observation = VmObservation { running: Some(false), lock, ..drive.observation() };
    let (attempt, _) = drive.asked().expect("a look is under way");
    drive.event(Event::Answer(attempt, Answer::Looked(Ok(observation))));
    assert_eq!(drive.state(), AgentPhase::Leased, "a backup stops it and starts it again");
}

#[test]
fn an_idle_agent_that_stays_silent_goes_and_one_that_was_silent_for_a_while_stays() {
    let mut drive = ready();
    drive.silent = SILENT;
    pass(&mut drive, 60);
    assert_eq!((drive.state(), standing(&drive)), (AgentPhase::Ready, Standing::Busy));
    let mut back = drive.clone();
    pass(&mut drive, 90);
    assert_eq!(drive.state(), AgentPhase::Retiring);
    let charged = drive.reports().iter().any(|report| report.fault.is_some());
    assert!(!charged, "its template is not to blame");
    back.silent = None;
    pass(&mut back, 600);
    assert!(is_free(&back));
}

#[test]
fn an_idle_agent_that_no_list_shows_running_stays_however_long_it_is_silent() {
    let mut drive = ready();
    drive.silent = SILENT;
    drive.wait(secs(590));
    assert_eq!(drive.state(), AgentPhase::Ready);
}

// Invariant: a lease on an offline node lasts for the node's grace, and for as long as SSH answers.

#[test]
fn a_lease_on_an_offline_node_is_lost_after_the_grace_where_ssh_is_silent_too() {
    let mut drive = leased();
    drive.silent = SILENT;
    list(&mut drive, true);
    drive.wait(secs(100));
    assert_eq!(drive.state(), AgentPhase::Leased, "its grace is not over");
    drive.command(AgentCommand::NodeDown(true));
    let last = shown(&drive).last().cloned();
    let lost = "ended: lost: node n1 is offline, and its SSH does not answer";
    assert_eq!(last.as_deref(), Some(lost));
    assert_eq!((drive.state(), standing(&drive)), (AgentPhase::Draining, Standing::Parked));
    let stands = "node n1 is offline: what ran on this machine is lost";
    assert!(drive.mind.detail().starts_with(stands), "{}", drive.mind.detail());
    // An operator retires it: what its node does not answer is no news.
    drive.command(AgentCommand::Retire(Reason::Asked));
    drive.answer(Answer::Looked(Err(fault(FaultKind::Unreachable))));
    assert!(drive.mind.detail().starts_with(stands), "{}", drive.mind.detail());
    drive.command(AgentCommand::NodeDown(false));
    assert_eq!(drive.state(), AgentPhase::Retiring);
}

#[test]
fn a_lease_on_a_node_that_only_its_cluster_lost_goes_on_until_ssh_is_silent() {
    let mut drive = leased();
    list(&mut drive, true);
    drive.command(AgentCommand::NodeDown(true));
    drive.wait(secs(600));
    assert_eq!(drive.state(), AgentPhase::Leased);
    drive.silent = SILENT;
    drive.wait(secs(16));
    assert_eq!(drive.state(), AgentPhase::Draining);
    let ended = |body: &&Body| matches!(body, Body::LeaseEnded { why, .. } if why == "lost");
    assert_eq!(drive.records().into_iter().filter(ended).count(), 1);
}

#[test]
fn a_lease_on_a_node_that_was_offline_before_a_restart_is_lost_too() {
    let mut drive = leased().adopt(secs(5));
    drive.silent = SILENT;
    drive.answer(Answer::Looked(Err(fault(FaultKind::Unreachable))));
    drive.wait(secs(60));
    assert_eq!((drive.state(), drive.probes), (AgentPhase::Leased, 0), "a look at it comes first");
    drive.command(AgentCommand::NodeDown(true));
    drive.wait(secs(30));
    assert_eq!(drive.state(), AgentPhase::Draining);
    assert!(drive.journal_state.ended.values().any(|ended| ended.why == "lost"));
}

#[test]
fn free_executors_of_a_silent_machine_are_not_handed_out() {
    let mut drive = Drive::new(TemplateSpec { executors: 2, ..spec() });
    drive.go_to(AgentPhase::Ready);
    assert_eq!(lease(&mut drive, "l1"), 0);
    assert!(is_free(&drive));
    drive.silent = SILENT;
    drive.wait(secs(9));
    assert_eq!(standing(&drive), Standing::Busy);
    assert_eq!(lease(&mut drive, "l2"), 1);
}
