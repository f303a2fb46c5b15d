//! Assigned addresses, and guests that call.

use std::net::IpAddr;
use std::time::Duration;

use drover_model::addresses::{AddressSource, AssignedAddress};
use drover_model::fault::FaultKind;
use drover_model::id::AddressPoolId;
use drover_model::phase::AgentPhase;
use drover_model::ports::{Configured, Greeting, TaskEnd};
use drover_model::record::Body;
use drover_model::spec::TemplateSpec;

use crate::agent::address::Addresses;
use crate::agent::event::{Answer, Call, Effect};
use crate::agent::testing::*;
use crate::message::AgentCommand;

const OWN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 20, 0, 50));

/// An agent before its grant, with a reserved address.
fn pooled() -> Drive {
    let pool = AddressPoolId::new("lab");
    let spec = TemplateSpec { address: AddressSource::Pools(vec![pool.clone()]), ..spec() };
    let mut drive = Drive::new(spec);
    drive.mind.own(vec![AssignedAddress { pool: Some(pool), ..AssignedAddress::fixed(OWN) }]);
    drive
}

/// An agent whose guest must call.
fn calling() -> Drive {
    Drive::new(TemplateSpec { address: AddressSource::Call, ..spec() })
}

fn to_start(drive: &mut Drive) {
    drive.go_to(AgentPhase::Booting);
    drive.answer(Answer::Accepted(Ok(upid("qmstart"))));
    drive.answer(Answer::TaskEnded(Ok(TaskEnd::Done { warnings: Vec::new() })));
}

fn asks(drive: &Drive, wanted: fn(&Call) -> bool) -> usize {
    drive.calls().iter().filter(|call| wanted(call)).count()
}

fn assigned(effect: &Effect) -> bool {
    matches!(effect, Effect::Record(Body::AddressAssigned { .. }))
}

// Invariant: an address is recorded once, before the guest can learn it.

#[test]
fn an_address_is_recorded_before_configure_and_never_twice() {
    let mut drive = pooled();
    drive.go_to(AgentPhase::Cloning);
    drive.answer(Answer::Cloned(Ok(upid("qmclone"))));
    let effects = drive.answer(Answer::TaskEnded(Ok(TaskEnd::Done { warnings: Vec::new() })));
    let record = effects.iter().position(assigned).expect("a record");
    let configure = |effect: &Effect| matches!(effect, Effect::Ask(_, Call::Configure));
    assert!(record < effects.iter().position(configure).expect("a call"));
    drive.answer(Answer::Configured(Err(fault(FaultKind::Contention))));
    drive.pause(secs(60));
    assert_eq!(asks(&drive, |call| matches!(call, Call::Configure)), 2);
    let mut again = drive.adopt(Duration::ZERO);
    again.answer(Answer::Looked(Ok(again.observation())));
    let records = drive.records().into_iter().chain(again.records());
    let count = records.filter(|body| matches!(body, Body::AddressAssigned { .. })).count();
    assert_eq!(count, 1);
    assert_eq!(again.mind.addresses()[0].address, OWN);
}

#[test]
fn an_agent_without_an_address_ends_and_no_breaker_hears_of_it() {
    let mut drive = pooled();
    drive.mind.addresses = Addresses::default();
    drive.go_to(AgentPhase::Cloning);
    drive.answer(Answer::Cloned(Ok(upid("qmclone"))));
    drive.answer(Answer::TaskEnded(Ok(TaskEnd::Done { warnings: Vec::new() })));
    assert_eq!(drive.state(), AgentPhase::Retiring);
    assert_eq!(asks(&drive, |call| matches!(call, Call::Configure)), 0);
    let faults: Vec<_> = drive.reports().iter().filter_map(|report| report.fault.clone()).collect();
    assert!(!faults[0].kind.counts_against_breaker(), "{faults:?}");
}

// Invariant: drover asks nobody for a known address. Nothing is sent before the guest agent, where
// there is one, was asked whose the host key is.

#[test]
fn a_known_address_is_connected_to_as_soon_as_the_guest_runs() {
    let mut drive = pooled();
    to_start(&mut drive);
    assert_eq!(drive.state(), AgentPhase::Connecting);
    assert!(matches!(drive.asked(), Some((_, Call::Greet(OWN, _)))));
    drive.answer(Answer::Greeted(Ok("ssh-ed25519 AAAA root@guest".into())));
    assert!(matches!(drive.asked(), Some((_, Call::HostKeys))), "before anything is sent");
    drive.answer(Answer::HostKeys(Ok(vec!["ssh-ed25519 AAAA".into()])));
    assert_eq!(drive.state(), AgentPhase::Preparing);
    assert_eq!(asks(&drive, |call| matches!(call, Call::Address)), 0);
}

#[test]
fn another_key_than_the_guest_agent_says_is_greeted_once_more_and_then_is_an_impostors() {
    let mut drive = pooled();
    to_start(&mut drive);
    drive.answer(Answer::Greeted(Ok("ssh-ed25519 EVIL".into())));
    drive.answer(Answer::HostKeys(Ok(vec!["ssh-ed25519 AAAA".into()])));
    assert!(matches!(drive.asked(), Some((_, Call::Greet(OWN, _)))));
    let known = drive.mind.guest().map(|guest| guest.host_keys.clone());
    assert_eq!(known, Some(vec!["ssh-ed25519 AAAA".to_owned()]));
    drive.answer(Answer::Greeted(Err(fault(FaultKind::Impostor))));
    assert_eq!(drive.state(), AgentPhase::Retiring);
}

#[test]
fn a_guest_agent_that_stays_silent_is_asked_twice_and_the_first_observation_counts() {
    let mut drive = pooled();
    to_start(&mut drive);
    drive.answer(Answer::Greeted(Ok("ssh-ed25519 AAAA".into())));
    drive.answer(Answer::HostKeys(Err(fault(FaultKind::Contention))));
    drive.pause(secs(5));
    drive.answer(Answer::HostKeys(Err(fault(FaultKind::Contention))));
    assert_eq!(drive.state(), AgentPhase::Preparing);
    let known = drive.mind.guest().map(|guest| guest.host_keys.clone());
    assert_eq!(known, Some(vec!["ssh-ed25519 AAAA".to_owned()]));
}

// Invariant: a guest's first call reports its address while its agent waits for it. No later call
// does.

#[test]
fn a_call_while_booting_says_the_address_and_a_second_one_nothing() {
    let mut drive = calling();
    to_start(&mut drive);
    assert_eq!((drive.state(), drive.asked()), (AgentPhase::Booting, None));
    assert_eq!(drive.mind.detail(), "waits for the guest's call");
    drive.command(AgentCommand::CalledIn(OWN));
    assert!(matches!(drive.asked(), Some((_, Call::Greet(OWN, _)))));
    drive.command(AgentCommand::CalledIn(IpAddr::from([10, 20, 0, 99])));
    assert!(matches!(drive.asked(), Some((_, Call::Greet(OWN, _)))));
}

#[test]
fn a_call_before_the_end_of_the_starts_task_counts() {
    let mut drive = calling();
    drive.go_to(AgentPhase::Booting);
    drive.answer(Answer::Accepted(Ok(upid("qmstart"))));
    drive.command(AgentCommand::CalledIn(OWN));
    assert_eq!(drive.state(), AgentPhase::Booting);
    drive.answer(Answer::TaskEnded(Ok(TaskEnd::Done { warnings: Vec::new() })));
    assert!(matches!(drive.asked(), Some((_, Call::Greet(OWN, _)))));
}

#[test]
fn a_guest_that_never_calls_takes_too_long() {
    let mut drive = calling();
    to_start(&mut drive);
    drive.pause(secs(3600));
    assert_eq!(drive.state(), AgentPhase::Retiring);
}

#[test]
fn after_a_restart_the_call_is_waited_for_or_known() {
    for called in [false, true] {
        let mut drive = calling();
        to_start(&mut drive);
        if called {
            drive.record(Body::GuestCalled { agent: agent_id(), address: OWN });
        }
        let mut again = drive.adopt(Duration::ZERO);
        again.answer(Answer::Looked(Ok(again.observation())));
        assert_eq!(
            again.state(),
            if called { AgentPhase::Connecting } else { AgentPhase::Booting }
        );
        if !called {
            again.command(AgentCommand::CalledIn(OWN));
        }
        assert!(matches!(again.asked(), Some((_, Call::Greet(OWN, _)))));
    }
}

// Invariant: a machine at a reported address is the guest only if it has a network card that the
// guest cannot choose.

#[test]
fn a_machine_without_the_guests_network_card_is_sent_nothing() {
    let greeting = |cards: &[&str]| Greeting {
        host_key: "ssh-ed25519 AAAA".into(),
        cards: cards.iter().map(|card| (*card).to_owned()).collect(),
    };
    for (mac, cards, known) in [
        (Some("BC:24:11:00:00:01"), &["00:00:00:00:00:00", "bc:24:11:00:00:01"][..], true),
        (Some("BC:24:11:00:00:01"), &["bc:24:11:00:00:02"][..], false),
        // The card is not known.
        (Some("BC:24:11:00:00:01"), &[][..], true),
        (None, &["bc:24:11:00:00:02"][..], true),
    ] {
        let mut drive = Drive::new(spec());
        drive.go_to(AgentPhase::Connecting);
        drive.mind.guest.as_mut().expect("a guest").mac = mac.map(str::to_owned);
        drive.answer(Answer::Greeted(Ok(greeting(cards))));
        assert_eq!(drive.state() != AgentPhase::Retiring, known, "{mac:?} {cards:?}");
    }
}

#[test]
fn the_card_of_a_guest_is_known_after_a_restart_too() {
    let mut drive = Drive::new(spec());
    drive.go_to(AgentPhase::Configuring);
    let (volumes, mac) = (Vec::new(), Some("BC:24:11:00:00:01".to_owned()));
    let (tags_refused, image_refused) = (None, None);
    drive.answer(Answer::Configured(Ok(Configured { volumes, mac, tags_refused, image_refused })));
    let again = drive.adopt(Duration::ZERO);
    let known = again.mind.guest().and_then(|guest| guest.mac.as_deref());
    assert_eq!(known, Some("BC:24:11:00:00:01"));
    let older = r#"{"volumesKnown":{"agent":"a1","volumes":[]}}"#;
    let older: Body = serde_json::from_str(older).expect("a record");
    assert!(matches!(older, Body::VolumesKnown { mac: None, .. }));
}
