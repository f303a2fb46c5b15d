//! Disc images: recorded before their upload, and removed with their guests.

use drover_model::fault::FaultKind;
use drover_model::phase::AgentPhase;
use drover_model::ports::{Configured, IdStatus, TaskEnd, VmObservation};
use drover_model::record::{Body, Reason};
use drover_model::seed::SeedSpec;
use drover_model::spec::{CloudInitSpec, TemplateSpec};

use crate::agent::event::{Answer, Call, Effect};
use crate::agent::testing::*;
use crate::message::AgentCommand;

const IMAGE: &str = "local:iso/drover-7k2m9qxw-4f8z1c3px9t2vkab.iso";

fn with_image() -> TemplateSpec {
    let seed = SeedSpec { storage: "local".into(), ..SeedSpec::default() };
    TemplateSpec {
        cloud_init: CloudInitSpec { seed: Some(seed), ..CloudInitSpec::default() },
        ..spec()
    }
}

fn intents(drive: &Drive) -> usize {
    let is_intent = |effect: &&Effect| matches!(effect, Effect::Record(Body::IsoIntended { volume, .. }) if volume == IMAGE);
    drive.effects.iter().filter(is_intent).count()
}

// Invariant: an image is recorded once, before anything may upload it.

#[test]
fn the_image_is_written_down_before_the_guest_is_configured() {
    let mut drive = Drive::new(with_image());
    drive.go_to(AgentPhase::Configuring);
    let place = |wanted: fn(&Effect) -> bool| drive.effects.iter().position(wanted);
    let written = place(|e| matches!(e, Effect::Record(Body::IsoIntended { .. })));
    let asked = place(|e| matches!(e, Effect::Ask(_, Call::Configure)));
    assert!(written.is_some() && written < asked, "{:?}", drive.effects);
    assert!(Body::IsoIntended { agent: agent_id(), volume: IMAGE.into() }.before_acting());
    assert_eq!(drive.journal_state.agents[&agent_id()].volumes, [IMAGE]);
    drive.answer(Answer::Configured(Err(fault(FaultKind::Contention))));
    drive.go_to(AgentPhase::Ready);
    assert_eq!(intents(&drive), 1);
}

#[test]
fn a_guest_without_user_data_has_none() {
    let mut drive = Drive::new(spec());
    drive.go_to(AgentPhase::Ready);
    assert_eq!(intents(&drive), 0);
}

// Invariant: an agent is not gone before its image is.

fn ready() -> Drive {
    let mut drive = Drive::new(with_image());
    drive.go_to(AgentPhase::Configuring);
    let volumes = vec!["local:vm-10417-disk-0".into(), IMAGE.into()];
    drive.answer(Answer::Configured(Ok(Configured {
        volumes,
        mac: None,
        tags_refused: None,
        image_refused: None,
    })));
    drive.go_to(AgentPhase::Ready);
    drive.effects.clear();
    drive
}

#[test]
fn a_destroy_without_a_warning_is_followed_by_the_image() {
    let mut drive = ready();
    drive.command(AgentCommand::Retire(Reason::Asked));
    drive.go_to(AgentPhase::Gone);
    let calls = drive.calls();
    let place = |wanted: &Call| calls.iter().position(|call| call == wanted);
    assert!(place(&Call::Destroy).is_some() && place(&Call::Destroy) < place(&Call::Leftovers));
    assert_eq!(drive.journal_state.agents.len(), 0);
}

#[test]
fn an_image_that_stays_strands_its_agent_with_the_command() {
    let mut drive = ready();
    drive.command(AgentCommand::Retire(Reason::Asked));
    for _ in 0..20 {
        match drive.asked() {
            Some((_, Call::Leftovers)) => break,
            Some((_, Call::Await(..))) => {
                drive.answer(Answer::TaskEnded(Ok(TaskEnd::Done { warnings: Vec::new() })));
            }
            Some((_, Call::Fence)) => {
                let observation = drive.observation();
                drive.answer(Answer::Fenced(Ok(observation)));
            }
            _ => drop(drive.answer(Answer::Accepted(Ok(upid("qm"))))),
        }
    }
    drive.answer(Answer::Leftovers(Ok(vec![IMAGE.into()])));
    assert_eq!(drive.state(), AgentPhase::Stranded);
    assert_eq!(drive.mind.detail(), format!("the guest is gone, but these remain: {IMAGE}"));
}

#[test]
fn a_guest_that_vanished_is_not_gone_before_its_image() {
    let mut drive = ready();
    drive.command(AgentCommand::Vanished);
    assert_eq!(drive.state(), AgentPhase::Retiring);
    drive.answer(Answer::Fenced(Err(fault(FaultKind::Gone))));
    let free =
        VmObservation { id: IdStatus::Free, node: None, marks: None, lock: None, running: None };
    drive.answer(Answer::Looked(Ok(free)));
    assert_eq!(drive.asked().map(|(_, call)| call), Some(Call::Leftovers));
    drive.answer(Answer::Leftovers(Ok(Vec::new())));
    assert_eq!(drive.state(), AgentPhase::Gone);
}

// Invariant: an image that was refused is nowhere, unless an earlier try may have stored it.

/// An agent whose image is refused, after this answer to an earlier try.
fn refused(earlier: Option<FaultKind>) -> Drive {
    let mut drive = Drive::new(with_image());
    drive.go_to(AgentPhase::Configuring);
    if let Some(kind) = earlier {
        drive.answer(Answer::Configured(Err(fault(kind))));
        while drive.asked().is_none() {
            drive.wait(secs(1));
        }
    }
    let denied = FaultKind::Denied { privilege: None, path: None };
    let image_refused = Some(fault(denied));
    let (volumes, mac, tags_refused) = (Vec::new(), None, None);
    let answer = Configured { volumes, mac, tags_refused, image_refused };
    drive.answer(Answer::Configured(Ok(answer)));
    assert_eq!(drive.state(), AgentPhase::Retiring, "at once");
    let charged = drive.reports().iter().rev().find_map(|r| r.fault.clone()).expect("a fault");
    assert_eq!(charged.kind.label(), "denied");
    drive
}

#[test]
fn an_image_that_was_refused_is_not_looked_for_when_its_guest_goes() {
    let mut drive = refused(None);
    assert_eq!(drive.journal_state.agents[&agent_id()].volumes, Vec::<String>::new());
    drive.go_to(AgentPhase::Gone);
    assert!(!drive.calls().contains(&Call::Leftovers));
}

#[test]
fn an_image_that_an_earlier_try_may_have_stored_is_looked_for() {
    let mut drive = refused(Some(FaultKind::UnknownOutcome));
    assert_eq!(drive.journal_state.agents[&agent_id()].volumes, [IMAGE]);
    drive.go_to(AgentPhase::Gone);
    assert!(drive.calls().contains(&Call::Leftovers));
}

#[test]
fn an_image_that_a_life_before_this_one_may_have_stored_is_looked_for() {
    let mut drive = Drive::new(with_image());
    drive.go_to(AgentPhase::Configuring);
    let mut drive = drive.adopt(secs(60));
    let observation = drive.observation();
    drive.answer(Answer::Looked(Ok(observation)));
    let image_refused = Some(fault(FaultKind::Broken));
    let (volumes, mac, tags_refused) = (Vec::new(), None, None);
    let answer = Configured { volumes, mac, tags_refused, image_refused };
    drive.answer(Answer::Configured(Ok(answer)));
    assert_eq!(drive.journal_state.agents[&agent_id()].volumes, [IMAGE]);
}
