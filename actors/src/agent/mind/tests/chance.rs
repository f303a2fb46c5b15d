//! Random lives: the safety rules hold for any events in any order.

use std::collections::BTreeSet;

use drover_model::fact::What;
use drover_model::fault::FaultKind;
use drover_model::id::{LeaseId, NodeName};
use drover_model::phase::AgentPhase;
use drover_model::record::{Body, Reason};
use drover_model::spec::TemplateSpec;
use drover_model::time::Moment;
use proptest::prelude::*;

use crate::agent::event::{Answer, Call, Effect, Event};
use crate::agent::testing::*;
use crate::message::AgentCommand;

/// One event in an agent's life.
#[derive(Debug, Clone)]
enum Happening {
    Fair,
    Answer(usize),
    Command(usize),
    Stale(usize),
    Wait(u64),
    Restart(u64),
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let one = prop_oneof![
        8 => Just(Happening::Fair),
        3 => (0_usize..40).prop_map(Happening::Answer),
        2 => (0_usize..14).prop_map(Happening::Command),
        1 => (0_usize..40).prop_map(Happening::Stale),
        3 => (0_u64..400).prop_map(Happening::Wait),
        1 => (0_u64..4000).prop_map(Happening::Restart),
    ];
    prop::collection::vec(one, 0..120)
}

fn command(n: usize) -> AgentCommand {
    let lease = |name: &str, key| AgentCommand::Lease { ask: Box::new(ask(name, key)) };
    let end =
        |name: &str| AgentCommand::EndLease { lease: LeaseId::new(name), why: "released".into() };
    match n {
        0 => lease("l1", None),
        1 => lease("l2", Some("ssh-ed25519 USER")),
        2 => lease("l3", None),
        3 => end("l1"),
        4 => end("l2"),
        5 => AgentCommand::Drain(Reason::Asked),
        6 => AgentCommand::Retire(Reason::Idle),
        7 => AgentCommand::ForceRetire(Reason::Asked),
        8 => AgentCommand::Moved(NodeName::new("n2")),
        9 => AgentCommand::SeenStopped,
        10 => AgentCommand::NodeDown(true),
        11 => AgentCommand::NodeDown(false),
        12 => AgentCommand::Vanished,
        _ => AgentCommand::NotGranted(fault(FaultKind::Capacity)),
    }
}

/// Watches every effect of a life, across restarts too.
#[derive(Default)]
struct Witness {
    clones: u32,
    settled: bool,
    intended_to_retire: bool,
    fenced: bool,
    ids_back: u32,
    waiting: BTreeSet<LeaseId>,
    seen: usize,
}

impl Witness {
    fn check(&mut self, drive: &Drive) {
        for effect in &drive.effects[self.seen..] {
            match effect {
                Effect::Record(Body::CloneSettled { .. }) => self.settled = true,
                Effect::Record(Body::RetireIntended { .. }) => self.intended_to_retire = true,
                Effect::Record(Body::LeaseReturned { lease, .. }) => {
                    self.waiting.insert(lease.clone());
                }
                Effect::Record(Body::LeaseGranted { ask, .. }) => {
                    self.waiting.remove(&ask.lease);
                }
                Effect::IdBack { .. } => self.ids_back += 1,
                Effect::Ask(_, call) => self.call(call),
                _ => {}
            }
        }
        self.seen = drive.effects.len();
        let ready = drive.state() == AgentPhase::Ready && !drive.mind.adoption.is_unseen();
        let last = ready || drive.state() == AgentPhase::Gone;
        let waits = drive.asked().is_some() || drive.wake().is_some();
        assert!(last || waits, "{} waits for nothing", drive.state());
        assert!(self.clones <= 1, "cloned twice");
        assert!(self.ids_back <= 1, "an id was given back twice");
        if drive.state() == AgentPhase::Gone {
            assert!(
                !drive.journal_state.agents.contains_key(&agent_id()),
                "the journal still has it"
            );
            let waiting = drive.journal_state.waiting.iter().map(|ask| ask.lease.clone()).collect();
            assert_eq!(self.waiting, waiting, "only a lease that was returned waits");
        }
    }

    fn call(&mut self, call: &Call) {
        match call {
            Call::Clone { .. } => self.clones += 1,
            Call::Fence => {
                assert!(self.settled, "fenced without a proof of owning it");
                assert!(self.intended_to_retire, "fenced before the intent was written");
                self.fenced = false;
            }
            Call::Shutdown(_) | Call::Stop | Call::Destroy => {
                assert!(self.fenced, "{call:?} without a fence in the same attempt");
            }
            _ => {}
        }
    }

    /// Answers a call and records what the answer proves.
    fn answer(&mut self, drive: &mut Drive, answer: Answer) {
        if matches!(answer, Answer::Fenced(Ok(_))) {
            self.fenced = true;
        }
        drive.answer(answer);
    }
}

fn happen(drive: &mut Drive, witness: &mut Witness, happening: Happening) {
    match (happening, drive.asked()) {
        (Happening::Fair, Some((_, call))) => {
            let answer = drive.fair_answer(call);
            witness.answer(drive, answer);
        }
        (Happening::Answer(n), Some((_, call))) => {
            let mut all = answers(drive, &call);
            let (_, answer) = all.swap_remove(n % all.len());
            witness.answer(drive, answer);
        }
        (Happening::Fair | Happening::Answer(_), None) => {
            if drive.state() == AgentPhase::Queued {
                drive.grant();
            }
        }
        (Happening::Stale(n), Some((attempt, call))) => {
            let mut all = answers(drive, &call);
            let (_, answer) = all.swap_remove(n % all.len());
            let stale = drover_model::id::Attempt { n: attempt.n.wrapping_sub(1), ..attempt };
            if !drive.mind.awaits(stale) {
                let mut before = drive.mind.clone();
                drive.event(Event::Answer(stale, answer));
                // Any event updates what depends on the clock alone.
                before.alive.usable = drive.mind.alive.usable;
                assert_eq!(before, drive.mind);
            }
        }
        (Happening::Stale(_), None) => {}
        (Happening::Command(n), _) => {
            drive.command(command(n));
        }
        (Happening::Wait(span), _) => drive.wait(secs(span)),
        (Happening::Restart(down), _) => {
            if drive.journal_state.agents.contains_key(&agent_id()) {
                *drive = drive.adopt(secs(down));
                witness.seen = 0;
            }
        }
    }
}

/// Lets a cluster without faults finish all calls.
fn finish(drive: &mut Drive, witness: &mut Witness) {
    drive.command(AgentCommand::NodeDown(false));
    drive.command(AgentCommand::ForceRetire(Reason::Asked));
    witness.check(drive);
    for _ in 0..300 {
        if drive.state() == AgentPhase::Gone {
            return;
        }
        happen(drive, witness, Happening::Fair);
        witness.check(drive);
        if drive.asked().is_none() {
            drive.wait(secs(60));
        }
        drive.command(AgentCommand::ForceRetire(Reason::Asked));
        witness.check(drive);
    }
    panic!("it never ended, but is {}: {:?}", drive.state(), drive.mind.state());
}

fn waterfall_sums(drive: &Drive, from: Moment) {
    let phases = drive.facts().into_iter().rev().find_map(|what| match what {
        What::AgentGone { phases, .. } => Some(phases.clone()),
        _ => None,
    });
    let parts = phases.into_iter().flatten().filter(|(name, _)| name != "Earlier");
    let sum: u64 = parts.map(|(_, ms)| ms).sum();
    assert!(sum <= drive.now.mono.0 - from.0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    // Invariant: one clone, no destroy without proof and fence, always something to wait for. With
    // a working cluster every life ends with its id given back once.

    #[test]
    fn whatever_happens_the_rules_hold_and_the_end_comes(all in happenings()) {
        let spec = TemplateSpec { executors: 2, max_uses: Some(3), ..spec() };
        let mut drive = Drive::new(spec);
        let mut witness = Witness::default();
        for happening in all {
            happen(&mut drive, &mut witness, happening);
            witness.check(&drive);
        }
        finish(&mut drive, &mut witness);
        waterfall_sums(&drive, Moment(0));
        if drive.mind.guest().is_some() {
            prop_assert_eq!(witness.ids_back, 1);
        }
    }
}
