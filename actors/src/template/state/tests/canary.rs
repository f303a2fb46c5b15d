//! Agents that try a new version of the image.

use super::*;

/// A template of whose breaker one failure is enough, with one agent that tries a version.
fn trying() -> (TemplateMind, AgentId) {
    let mut mind = mind(|spec| spec.breaker.threshold = 1);
    let agent = begin(&mut mind, 1, Some(1), 0).remove(0);
    mind.effects_of(Event::Tries(agent.clone()), at(0), 0);
    (mind, agent)
}

fn failed(effects: &[Effect]) -> Vec<String> {
    let mut failed = Vec::new();
    for effect in effects {
        if let Effect::CanaryFailed(agent, cause) = effect {
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

// Invariant: while the breaker is not closed, a version that fails keeps it open, and is given up too.

#[test]
fn the_trial_of_a_breaker_that_tries_a_version_counts_for_both() {
    let (mut mind, first) = trying();
    let second = begin(&mut mind, 1, Some(1), 0).remove(0);
    gone(&mut mind, &second, fault(FaultKind::Broken), 1);
    assert_eq!(mind.breaker().phase(), BreakerPhase::Open);
    gone(&mut mind, &first, None, 1);
    let trial = begin(&mut mind, 1, Some(1), 200).remove(0);
    mind.effects_of(Event::Tries(trial.clone()), at(200), 0);
    assert_eq!(mind.breaker().phase(), BreakerPhase::HalfOpen);
    let effects = heard(&mut mind, &trial, Standing::Leaving, fault(FaultKind::Broken), 201);
    assert_eq!((failed(&effects).len(), mind.breaker().phase()), (1, BreakerPhase::Open));
}
