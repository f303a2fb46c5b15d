//! Orders to a machine: what is no loss, what is tried again, what comes after.

use drover_model::fault::FaultKind;
use drover_model::id::{LeaseId, OrderId};
use drover_model::order::{Order, Work};
use drover_model::phase::{AgentPhase, OrderPhase, Power};
use drover_model::ports::{AddressObservation, Carried, Ran, VmObservation};
use drover_model::record::{Body, Reason};
use drover_model::size::Size;
use drover_model::spec::TemplateSpec;
use drover_model::status::Standing;
use drover_model::time::WallTime;

use crate::agent::event::{Answer, Call, Effect};
use crate::agent::testing::*;
use crate::message::{AgentCommand, Observed, Shown};

const KEY: &str = "ssh-ed25519 USER";

fn leased(spec: TemplateSpec) -> Drive {
    let mut drive = Drive::new(spec);
    drive.go_to(AgentPhase::Ready);
    drive.command(AgentCommand::Lease { ask: Box::new(ask("l1", Some(KEY))) });
    drive.answer(Answer::Admitted(LeaseId::new("l1"), Ok(())));
    assert_eq!(drive.asked(), None);
    drive
}

fn order(n: u32, work: Work) -> Box<Order> {
    let id = OrderId::new(format!("order-{n}"));
    Box::new(Order { id, work, by: "alice".into(), asked: WallTime(WALL), key: None })
}

/// The herd's record comes first.
fn give(drive: &mut Drive, n: u32, work: Work) -> Vec<Effect> {
    let order = order(n, work);
    drive.record(Body::MachineOrdered { agent: agent_id(), order: order.clone() });
    drive.command(AgentCommand::Order(order))
}

/// Answers the calls of an order as a cluster without faults does.
fn carry_out(drive: &mut Drive) {
    for _ in 0..20 {
        if drive.mind.machine.orders.running.is_none() {
            return;
        }
        match drive.asked() {
            Some((_, call)) => {
                let answer = drive.fair_answer(call);
                drive.answer(answer);
            }
            None => drive.wait(secs(1)),
        }
    }
    panic!("the order is not over");
}

fn ended(drive: &Drive) -> Vec<(OrderPhase, Power)> {
    let records = drive.records().into_iter();
    let ends = records.filter_map(|body| match body {
        Body::OrderEnded { end, .. } => Some((end.phase, end.power)),
        _ => None,
    });
    ends.collect()
}

fn why(drive: &Drive) -> Option<Reason> {
    drive.records().into_iter().find_map(|body| match body {
        Body::RetireIntended { reason, .. } => Some(reason.clone()),
        _ => None,
    })
}

fn listed(drive: &Drive, status: Shown) -> AgentCommand {
    let node = drive.mind.guest().expect("a guest").node.clone();
    let at = drive.now.mono;
    AgentCommand::Observed(Observed { at, node, offline: false, status, lock: None })
}

fn failed(power: Power, sent: bool, kind: FaultKind) -> Carried {
    Carried { power, sent, snapshot_taken: None, outcome: Err(fault(kind)) }
}

fn is_order(call: &Call) -> bool {
    matches!(call, Call::Order { .. })
}

/// Everything that only switches a machine.
const POWER: [Work; 7] = [
    Work::Start,
    Work::Stop,
    Work::Shutdown,
    Work::Reboot,
    Work::Reset,
    Work::Suspend,
    Work::Resume,
];

// Invariant: an order is carried out once, and done only when its machine is what was ordered.

#[test]
fn every_order_to_a_machine_ends_with_the_power_that_was_ordered() {
    for work in POWER {
        let mut drive = leased(spec());
        drive.effects.clear();
        give(&mut drive, 1, work.clone());
        drive.command(AgentCommand::Order(order(1, work.clone())));
        assert_eq!(drive.calls().iter().filter(|call| is_order(call)).count(), 1, "{work}");
        assert_eq!(drive.mind.standing(), Standing::Busy);
        carry_out(&mut drive);
        assert_eq!(ended(&drive), [(OrderPhase::Done, work.leaves(Power::Running))], "{work}");
        let greets = drive.calls().iter().any(|call| matches!(call, Call::Greet(..)));
        assert_eq!(greets, work.wakes(), "{work}: a machine that wakes is reached again");
        assert_eq!((drive.state(), why(&drive)), (AgentPhase::Leased, None));
        assert_eq!(drive.journal_state.agents[&agent_id()].machine, drive.mind.machine.orders);
    }
}

#[test]
fn an_order_after_which_the_guest_has_another_address_says_which() {
    let mut drive = leased(spec());
    let before = drive.mind.address().expect("an address");
    drive.effects.clear();
    give(&mut drive, 1, Work::Reboot);
    let now = "10.9.8.7".parse().expect("an address");
    for _ in 0..20 {
        match drive.asked() {
            Some((_, Call::Address)) => {
                drive.answer(Answer::Addressed(Ok(AddressObservation::At(now))));
            }
            Some((_, call)) => {
                let answer = drive.fair_answer(call);
                drive.answer(answer);
            }
            None => drive.wait(secs(1)),
        }
    }
    let end = drive.records().into_iter().find_map(|body| match body {
        Body::OrderEnded { end, .. } => Some(end.clone()),
        _ => None,
    });
    let said = format!("its address is {now} now, it was {before}");
    assert_eq!(end.map(|end| (end.phase, end.text)), Some((OrderPhase::Done, said)));
}

#[test]
fn an_order_to_an_agent_that_nobody_has_comes_to_nothing() {
    for state in [AgentPhase::Ready, AgentPhase::Preparing, AgentPhase::Retiring] {
        let mut drive = Drive::new(spec());
        drive.go_to(AgentPhase::Preparing);
        if state == AgentPhase::Retiring {
            drive.command(AgentCommand::ForceRetire(Reason::Asked));
        }
        drive.go_to(state);
        give(&mut drive, 1, Work::Stop);
        assert!(!drive.calls().iter().any(is_order));
        assert_eq!(ended(&drive), [(OrderPhase::Failed, Power::Running)], "{state}");
    }
}

// Invariant: what was ordered is no loss of the machine, whatever lists and silence show.

#[test]
fn a_machine_that_was_stopped_or_suspended_by_order_is_not_lost() {
    for work in [Work::Stop, Work::Shutdown, Work::Suspend] {
        let mut drive = leased(spec());
        give(&mut drive, 1, work.clone());
        let stopped = listed(&drive, Shown::Stopped);
        drive.command(stopped);
        carry_out(&mut drive);
        drive.silent = Some(FaultKind::Unreachable);
        drive.effects.clear();
        for _ in 0..10 {
            drive.wait(secs(30));
            let stopped = listed(&drive, Shown::Stopped);
            drive.command(stopped);
            drive.command(AgentCommand::SeenStopped);
        }
        assert_eq!((drive.calls(), drive.state()), (Vec::new(), AgentPhase::Leased), "{work}");
        let text = drive.mind.trouble().expect("people see it");
        assert!(text.contains("as ordered (order `order-1`)"), "{text}");
        // The order that is named is the one that did it, not a later one that failed.
        drive.silent = None;
        give(&mut drive, 9, Work::Reboot);
        let (power, _) = (drive.mind.machine.orders.power, drive.asked());
        drive.answer(Answer::Ordered(Ok(failed(power, false, FaultKind::Broken))));
        assert_eq!(drive.mind.machine.orders.power, power, "{work}");
        assert_eq!(drive.mind.trouble(), Some(text), "{work}");
        // Somebody else stops a machine that runs: that is a loss as ever.
        drive.silent = None;
        give(&mut drive, 2, Work::Start);
        carry_out(&mut drive);
        assert_eq!(drive.mind.trouble(), None);
        drive.command(AgentCommand::SeenStopped);
        let stopped = VmObservation { running: Some(false), ..drive.observation() };
        drive.answer(Answer::Looked(Ok(stopped)));
        assert_eq!(why(&drive), Some(Reason::PoweredOff), "{work}");
    }
}

// Found by the storm of seed 166: the agent drained for ever.
#[test]
fn a_key_on_a_machine_stopped_by_order_goes_with_it_when_the_last_lease_expires() {
    let mut drive = leased(TemplateSpec { executors: 2, ..spec() });
    drive.command(AgentCommand::Lease { ask: Box::new(ask("l2", Some(KEY))) });
    drive.answer(Answer::Admitted(LeaseId::new("l2"), Ok(())));
    give(&mut drive, 1, Work::Stop);
    carry_out(&mut drive);
    let lease = LeaseId::new("l1");
    drive.command(AgentCommand::EndLease { lease, why: "released".into() });
    assert_eq!(drive.state(), AgentPhase::Leased);
    drive.wait(secs(3601));
    assert_eq!(why(&drive), Some(Reason::LeaseExpired));
}

// Found by the storm of seed 790: the agent stayed leased for ever.
#[test]
fn a_hold_begins_although_the_keys_of_ended_leases_are_in_a_machine_that_stands_still() {
    for work in [Work::Stop, Work::Suspend] {
        for amid_the_order in [false, true] {
            let mut drive = leased(spec());
            give(&mut drive, 1, work.clone());
            if !amid_the_order {
                carry_out(&mut drive);
            }
            drive.command(AgentCommand::Hold(Some(Box::new(a_hold()))));
            let lease = LeaseId::new("l1");
            drive.command(AgentCommand::EndLease { lease, why: "released".into() });
            if amid_the_order {
                assert_eq!(drive.state(), AgentPhase::Leased, "{work} is under way");
                carry_out(&mut drive);
            }
            assert_eq!(drive.state(), AgentPhase::Held, "{work}, amid it: {amid_the_order}");
            // Its login opens once it runs again.
            give(&mut drive, 2, Work::Start);
            carry_out(&mut drive);
            assert!(matches!(drive.asked(), Some((_, Call::Unlock(..)))), "{work}");
        }
    }
}

#[test]
fn a_restart_of_the_service_keeps_a_machine_that_is_stopped_as_ordered() {
    for work in [Work::Stop, Work::Suspend] {
        let mut drive = leased(spec());
        give(&mut drive, 1, work.clone());
        carry_out(&mut drive);
        let mut again = drive.adopt(secs(60));
        let stopped = VmObservation { running: Some(false), ..again.observation() };
        again.answer(Answer::Looked(Ok(stopped)));
        again.wait(secs(600));
        assert_eq!((again.state(), again.calls().len()), (AgentPhase::Leased, 1), "{work}");
        // Once it runs the holder's key is looked after again.
        give(&mut again, 2, Work::Start);
        carry_out(&mut again);
        assert!(matches!(again.asked(), Some((_, Call::Admit(..)))), "{work}");
    }
}

// Invariant: an order that a restart cut short is carried out again where that does no harm.

#[test]
fn an_order_that_was_cut_short_goes_on_or_says_that_nobody_knows() {
    for work in POWER {
        let mut drive = leased(spec());
        give(&mut drive, 1, work.clone());
        let mut again = drive.adopt(secs(60));
        let fair = again.observation();
        again.answer(Answer::Looked(Ok(VmObservation { running: Some(false), ..fair })));
        if work.is_repeatable() {
            let Some((_, Call::Order { repeated, .. })) = again.asked() else { panic!("{work}") };
            assert!(repeated);
            carry_out(&mut again);
            assert_eq!(ended(&again), [(OrderPhase::Done, work.leaves(Power::Running))]);
        } else {
            assert_eq!(ended(&again), [(OrderPhase::Failed, Power::Unknown)], "{work}");
            let text = again.mind.trouble().expect("people see it");
            assert!(text.contains("drover looks every 15 s"), "{text}");
            for _ in 0..20 {
                if let Some((_, Call::Look)) = again.asked() {
                    let stopped = VmObservation { running: Some(false), ..again.observation() };
                    again.answer(Answer::Looked(Ok(stopped)));
                }
                again.wait(secs(16));
            }
            let known = again.journal_state.agents[&agent_id()].machine.clone();
            assert_eq!((known.power, &known), (Power::Stopped, &again.mind.machine.orders));
            let text = again.mind.trouble().expect("people see it");
            assert!(text.contains("`drover machine start` helps"), "{text}");
        }
        assert_eq!(again.state(), AgentPhase::Leased, "{work}");
    }
}

// Invariant: what passes is tried again, what may have happened is not done twice, and all ends in time.

#[test]
fn a_lock_is_waited_for_and_a_refusal_ends_the_order() {
    let mut drive = leased(spec());
    give(&mut drive, 1, Work::Suspend);
    for kind in [FaultKind::Locked { lock: "backup".into() }, FaultKind::Contention] {
        drive.answer(Answer::Ordered(Err(fault(kind))));
        assert_eq!(drive.asked(), None);
        drive.wait(secs(60));
    }
    let refusal = failed(Power::Running, false, FaultKind::Broken);
    drive.answer(Answer::Ordered(Ok(refusal)));
    assert_eq!(ended(&drive), [(OrderPhase::Failed, Power::Running)]);
    assert!(drive.reports().iter().all(|report| report.fault.is_none()), "no breaker is charged");
}

#[test]
fn a_reset_whose_outcome_is_unknown_is_not_sent_again() {
    let mut drive = leased(spec());
    give(&mut drive, 1, Work::Reset);
    let unclear = failed(Power::Unknown, true, FaultKind::UnknownOutcome);
    drive.answer(Answer::Ordered(Ok(unclear)));
    assert_eq!(ended(&drive), [(OrderPhase::Failed, Power::Unknown)]);
    drive.command(AgentCommand::SeenStopped);
    drive.wait(secs(1));
    let Some((_, Call::Look)) = drive.asked() else { panic!("drover looks by itself") };
    let runs = VmObservation { running: Some(true), ..drive.observation() };
    drive.answer(Answer::Looked(Ok(runs)));
    assert_eq!(drive.mind.trouble(), None, "it runs and is watched again");
    drive.command(AgentCommand::SeenStopped);
    let stopped = VmObservation { running: Some(false), ..drive.observation() };
    drive.answer(Answer::Looked(Ok(stopped)));
    assert_eq!(why(&drive), Some(Reason::PoweredOff));
}

// Invariant: an order that failed makes no ordered stop of one that nobody ordered.

#[test]
fn a_machine_that_stopped_by_itself_is_lost_after_an_order_that_failed() {
    for (work, sent) in [
        (Work::Reboot, false),
        (Work::Stop, false),
        (Work::Suspend, true),
        (Work::Start, true),
        (Work::Resume, false),
    ] {
        let mut drive = leased(spec());
        give(&mut drive, 1, work.clone());
        let stopped = failed(Power::Stopped, sent, FaultKind::Broken);
        drive.answer(Answer::Ordered(Ok(stopped)));
        assert_eq!(ended(&drive), [(OrderPhase::Failed, Power::Running)], "{work}");
        let stopped = VmObservation { running: Some(false), ..drive.observation() };
        drive.answer(Answer::Looked(Ok(stopped)));
        assert_eq!(why(&drive), Some(Reason::PoweredOff), "{work}");
    }
    for work in [Work::Reboot, Work::Stop, Work::Shutdown, Work::Reset] {
        let mut drive = leased(spec());
        give(&mut drive, 1, work.clone());
        let stopped = failed(Power::Stopped, true, FaultKind::Broken);
        drive.answer(Answer::Ordered(Ok(stopped)));
        assert_eq!(ended(&drive), [(OrderPhase::Failed, Power::Stopped)], "{work}");
        assert_eq!((drive.asked(), drive.state()), (None, AgentPhase::Leased), "{work}");
    }
}

#[test]
fn an_order_that_no_answer_comes_to_is_given_up() {
    for (work, power) in [(Work::Stop, Power::Unknown), (Work::Start, Power::Running)] {
        let mut drive = leased(spec());
        give(&mut drive, 1, work);
        drive.wait(secs(3600 - 60));
        assert_eq!(ended(&drive), [(OrderPhase::Failed, power)]);
        assert_eq!(drive.state(), AgentPhase::Leased);
    }
    // Only the login is missing: the machine runs, and what its SSH shows counts again.
    let mut drive = leased(spec());
    give(&mut drive, 1, Work::Reset);
    let carried = Carried {
        power: Power::Running,
        sent: true,
        snapshot_taken: None,
        outcome: Ok(String::new()),
    };
    drive.answer(Answer::Ordered(Ok(carried)));
    drive.wait(secs(3600 - 60));
    assert_eq!(ended(&drive), [(OrderPhase::Failed, Power::Running)]);
}

// Invariant: nobody else gets a machine that orders have changed, and none that does not run.

#[test]
fn a_machine_that_orders_have_changed_goes_after_its_lease() {
    let name = String::from("before");
    let sizes = Size { cores: Some(4), ..Size::NONE };
    let snapshot = Work::Snapshot { name: name.clone(), description: String::new(), memory: false };
    let orders = [
        (Work::Stop, true),
        (Work::Suspend, true),
        (snapshot, true),
        (Work::Revert { name: name.clone() }, true),
        (Work::Resize(sizes), true),
        (Work::Reboot, false),
    ];
    for (work, goes) in orders {
        for with_reset in [false, true] {
            let spec = if with_reset { reset_spec() } else { spec() };
            let mut drive = leased(spec);
            give(&mut drive, 1, work.clone());
            carry_out(&mut drive);
            while let Some((_, call)) = drive.asked() {
                let answer = drive.fair_answer(call);
                drive.answer(answer);
            }
            let lease = LeaseId::new("l1");
            drive.command(AgentCommand::EndLease { lease, why: "released".into() });
            let altered = (why(&drive) == Some(Reason::Altered), drive.state());
            if goes {
                assert_eq!(altered, (true, AgentPhase::Retiring), "{work}");
                drive.go_to(AgentPhase::Gone);
            } else {
                assert_ne!(drive.state(), AgentPhase::Retiring, "{work}");
            }
        }
    }
}

#[test]
fn a_machine_whose_memory_was_saved_is_gone_only_without_that_volume() {
    for (memory, looks) in [(true, true), (false, false)] {
        let mut drive = leased(spec());
        let name = String::from("ram");
        give(&mut drive, 1, Work::Snapshot { name, description: String::new(), memory });
        let failed = failed(Power::Running, false, FaultKind::Broken);
        drive.answer(Answer::Ordered(Ok(failed)));
        let known = drive.mind.volumes();
        assert_eq!(known.contains(&"vm-10417-state-ram".to_owned()), memory, "{known:?}");
        drive.command(AgentCommand::ForceRetire(Reason::Asked));
        drive.go_to(AgentPhase::Gone);
        assert_eq!(drive.calls().contains(&Call::Leftovers), looks, "memory {memory}");
    }
}

#[test]
fn an_agent_that_goes_ends_its_order() {
    let mut drive = leased(spec());
    give(&mut drive, 1, Work::Shutdown);
    drive.command(AgentCommand::ForceRetire(Reason::Asked));
    assert_eq!(ended(&drive), [(OrderPhase::Failed, Power::Unknown)]);
    let past = &drive.mind.machine.orders.past;
    assert_eq!(
        past.last().map(|one| one.text.as_str()),
        Some("its agent goes: an operator retired it")
    );
    drive.go_to(AgentPhase::Gone);
}

// Invariant: after a revert the holder has a key in the machine again, whatever the snapshot had.

fn revert(drive: &mut Drive) {
    give(drive, 1, Work::Revert { name: "before".into() });
    while !matches!(drive.asked(), Some((_, Call::Admit(..) | Call::Unlock(..)))) {
        match drive.asked() {
            Some((_, call)) => {
                let answer = drive.fair_answer(call);
                drive.answer(answer);
            }
            None => drive.wait(secs(1)),
        }
        assert!(ended(drive).is_empty(), "the holder's key is not back");
    }
}

fn held() -> Drive {
    let mut held = Drive::new(spec());
    held.go_to(AgentPhase::Ready);
    held.be_held();
    held.answer(Answer::Unlocked(Ok(())));
    held
}

#[test]
fn a_revert_is_over_only_with_the_keys_of_its_holder_in_the_guest_again() {
    let mut drive = leased(spec());
    drive.effects.clear();
    revert(&mut drive);
    let calls = drive.calls();
    assert!(calls.iter().any(|call| matches!(call, Call::Run(..))), "clock and sessions");
    drive.answer(Answer::Admitted(LeaseId::new("l1"), Ok(())));
    assert_eq!((ended(&drive), drive.asked()), (vec![(OrderPhase::Done, Power::Running)], None));
    let mut held = held();
    revert(&mut held);
    held.answer(Answer::Unlocked(Ok(())));
    assert_eq!((ended(&held), held.asked()), (vec![(OrderPhase::Done, Power::Running)], None));
}

#[test]
fn a_revert_fails_where_the_key_does_not_get_in_and_the_key_is_tried_on() {
    let mut drive = leased(spec());
    revert(&mut drive);
    for _ in 0..350 {
        if !ended(&drive).is_empty() {
            break;
        }
        if let Some((_, Call::Admit(..))) = drive.asked() {
            let refused = Err(fault(FaultKind::KeyRejected));
            drive.answer(Answer::Admitted(LeaseId::new("l1"), refused));
        }
        drive.wait(secs(10));
    }
    assert_eq!(ended(&drive), [(OrderPhase::Failed, Power::Running)]);
    let text = drive.mind.machine.orders.past.last().map(|one| one.text.clone());
    assert!(text.as_deref().is_some_and(|text| text.contains("key of its holder")), "{text:?}");
    assert_eq!(drive.state(), AgentPhase::Leased);
    for _ in 0..100 {
        if let Some((_, Call::Admit(..))) = drive.asked() {
            return;
        }
        drive.wait(secs(1));
    }
    panic!("the key is not tried again");
}

#[test]
fn a_hold_whose_key_the_guest_refuses_after_a_revert_fails_the_order() {
    let mut held = held();
    revert(&mut held);
    held.answer(Answer::Unlocked(Err(fault(FaultKind::Broken))));
    assert_eq!(ended(&held), [(OrderPhase::Failed, Power::Running)]);
    assert_eq!(held.state(), AgentPhase::Held);
}

#[test]
fn a_revert_that_failed_after_the_rollback_still_puts_the_key_back() {
    let mut drive = leased(spec());
    give(&mut drive, 1, Work::Revert { name: "before".into() });
    let carried = Carried {
        power: Power::Running,
        sent: true,
        snapshot_taken: None,
        outcome: Ok(String::new()),
    };
    drive.answer(Answer::Ordered(Ok(carried)));
    drive.wait(secs(3));
    drive.answer(Answer::Greeted(Ok("ssh-ed25519 HOST".into())));
    drive.answer(Answer::Ran(Ok(Ran { exit: Some(1), tail: "no clock".into() })));
    assert_eq!(ended(&drive), [(OrderPhase::Failed, Power::Running)]);
    assert!(matches!(drive.asked(), Some((_, Call::Admit(..)))), "{:?}", drive.asked());
}

#[test]
fn a_lease_that_ends_while_its_key_is_put_back_ends_the_order() {
    let mut drive = leased(spec());
    revert(&mut drive);
    let lease = LeaseId::new("l1");
    drive.command(AgentCommand::EndLease { lease: lease.clone(), why: "released".into() });
    drive.answer(Answer::Admitted(lease, Ok(())));
    assert_eq!(ended(&drive), [(OrderPhase::Failed, Power::Unknown)]);
    assert_eq!(why(&drive), Some(Reason::Altered));
}
