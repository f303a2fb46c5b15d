//! Agents that try a new version.

use super::*;
use crate::canary::{Proving, StandIn};

/// A template of whose breaker one failure is enough, with one agent that tries a version.
fn trying() -> (TemplateMind, AgentId) {
    let mut mind = mind(|spec| spec.breaker.threshold = 1);
    let agent = begin(&mut mind, 1, Some(1), 0).remove(0);
    mind.effects_of(Event::Tries(agent.clone(), true), at(0), 0);
    (mind, agent)
}

fn failed(effects: &[Effect]) -> Vec<String> {
    let mut failed = Vec::new();
    for effect in effects {
        if let Effect::CanaryFailed(agent, _, cause) = effect {
            failed.push(format!("{agent}: {cause}"));
        }
    }
    failed
}

// Invariant: a new version that fails is its own fault, and the others go on.

#[test]
fn an_agent_that_tries_a_version_is_charged_to_the_version_and_not_to_the_breaker() {
    let (mut mind, agent) = trying();
    let effects = heard(&mut mind, &agent, Standing::Leaving, fault(FaultKind::Broken), 1);
    assert_eq!(failed(&effects), ["a1: no such template"]);
    assert_eq!(mind.breaker().phase(), BreakerPhase::Closed);
    assert_eq!(begin(&mut mind, 2, Some(2), 2).len(), 2, "without a pause");
}

#[test]
fn what_is_nobodys_fault_says_nothing_of_the_version_that_is_tried() {
    let on = |culprit| Some(Fault::new(FaultKind::Unreachable, culprit, "no answer"));
    let node = Culprit::Node(drover_model::id::NodeName::new("pve1"));
    for why in [fault(FaultKind::Contention), on(node), None] {
        let (mut mind, agent) = trying();
        let effects = heard(&mut mind, &agent, Standing::Leaving, why, 1);
        assert_eq!(failed(&effects), Vec::<String>::new());
    }
    let (mut mind, agent) = trying();
    heard(&mut mind, &agent, IDLE, None, 1);
    let effects = heard(&mut mind, &agent, Standing::Leaving, fault(FaultKind::Broken), 2);
    assert_eq!(failed(&effects), Vec::<String>::new(), "it was ready before");
}

// Invariant: while the breaker is not closed, what fails says nothing of a version.

#[test]
fn a_version_that_fails_while_the_breaker_is_open_is_not_judged() {
    let (mut mind, first) = trying();
    let second = begin(&mut mind, 1, Some(1), 0).remove(0);
    gone(&mut mind, &second, fault(FaultKind::Broken), 1);
    assert_eq!(mind.breaker().phase(), BreakerPhase::Open);
    let effects = heard(&mut mind, &first, Standing::Leaving, fault(FaultKind::Broken), 2);
    assert_eq!((failed(&effects).len(), mind.breaker().phase()), (0, BreakerPhase::Open));
}

// Invariant: a trial that comes to nothing through nobody's fault holds up no other agent.

#[test]
fn an_agent_that_stumbles_over_a_new_version_pauses_the_trials_and_not_the_template() {
    let (mut mind, agent) = trying();
    gone(&mut mind, &agent, fault(FaultKind::Contention), 1);
    assert_eq!(mind.room(at(1).mono), u32::MAX);
    assert_eq!(mind.paused(at(1).mono), None);
}

/// A template with `canary`; its own spec is proven, or another one stands in for it.
fn proving(stand_in: bool, given_up: bool) -> TemplateMind {
    let mut mind = mind(|spec| {
        spec.canary = true;
        spec.cap = Some(9);
        spec.breaker.threshold = 1;
    });
    let good = TemplateSpec {
        cap: Some(1),
        ready_command: Some("true".into()),
        ..(**mind.spec()).clone()
    };
    let stand_in =
        stand_in.then(|| StandIn { spec: Arc::new(good), digest: "old".into(), given_up });
    let proving = Proving { digest: "new".into(), stand_in };
    mind.effects_of(Event::Proving(Some(proving)), at(0), 0);
    mind
}

/// By which specs so many agents are made that are started at this time, and whether they are steady.
fn made(mind: &mut TemplateMind, count: u32, now: u64) -> Vec<(String, bool)> {
    let agents = begin(mind, count, Some(count), now);
    let made = agents.iter().map(|agent| mind.spec_of(agent).made_as.clone().unwrap());
    made.map(|made| (made.spec, made.steady)).collect()
}

fn all(digests: &[&str], steady: bool) -> Vec<(String, bool)> {
    digests.iter().map(|digest| ((*digest).to_owned(), steady)).collect()
}

// Invariant: one agent at a time is made by a spec that is not proven, while another one is.

#[test]
fn one_agent_tries_a_new_spec_and_the_good_one_stands_in_for_it() {
    let mut mind = proving(false, false);
    assert_eq!(made(&mut mind, 2, 0), all(&["new", "new"], false));
    let mut mind = proving(true, true);
    assert_eq!(made(&mut mind, 2, 0), all(&["old", "old"], false));
    let mut mind = proving(true, false);
    assert_eq!(
        made(&mut mind, 3, 0),
        [("new", false), ("old", true), ("old", true)]
            .map(|(digest, steady)| (digest.to_owned(), steady))
    );
    let (trial, other) = (AgentId::new("a1"), AgentId::new("a2"));
    let spec = mind.spec_of(&other);
    assert_eq!((&*spec.ready_command.clone().unwrap(), spec.cap), ("true", Some(9)));
    // What is nobody's fault ends a trial, and the next one waits for a while.
    gone(&mut mind, &trial, fault(FaultKind::Contention), 1);
    assert_eq!(made(&mut mind, 1, 1), all(&["old"], true));
    assert_eq!(made(&mut mind, 2, 5), [all(&["new"], false), all(&["old"], true)].concat());
}

#[test]
fn nothing_new_is_tried_while_the_breaker_is_not_closed_or_nothing_is_found_for_it() {
    let mut mind = proving(true, true);
    let agent = begin(&mut mind, 1, Some(1), 0).remove(0);
    gone(&mut mind, &agent, fault(FaultKind::Broken), 1);
    assert_eq!(mind.breaker().phase(), BreakerPhase::Open);
    assert_eq!(made(&mut mind, 1, 200), all(&["old"], true));
    let mut mind = proving(true, false);
    let located = Event::Located { source: Err("no such tag".into()), version: None };
    mind.effects_of(located, at(0), 0);
    assert_eq!(made(&mut mind, 1, 0), all(&["old"], false));
}
