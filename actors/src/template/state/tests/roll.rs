//! Replacement of agents after a change of their template.

use super::*;
use crate::canary::{Proving, StandIn};
use drover_model::overridden::TemplateOverrides;

/// A pool of idle agents, and its mind.
fn pool(count: u32, change: impl FnOnce(&mut TemplateSpec)) -> (TemplateMind, Vec<AgentId>) {
    let mut mind = mind(|spec| {
        spec.idle_minimum = count;
        change(spec);
    });
    let agents = begin(&mut mind, count, None, 0);
    for agent in &agents {
        heard(&mut mind, agent, IDLE, None, 10);
    }
    (mind, agents)
}

/// Another version of the template comes into force.
fn change(mind: &mut TemplateMind, now: u64, change: impl FnOnce(&mut TemplateSpec)) {
    let mut next = (**mind.spec()).clone();
    next.cores = Some(next.cores.unwrap_or(2) + 1);
    change(&mut next);
    mind.applied(Some(Arc::new(next)), at(now));
}

/// Plays the pool second by second, a provision taking 60 s and a retirement 10 s; gives the least
/// ready agents seen, the most that were on their way at once, and how many went.
fn play(mind: &mut TemplateMind, from: u64, until: u64) -> (usize, usize, usize) {
    let (mut least, mut most, mut went) = (usize::MAX, 0, 0);
    let mut coming: Vec<(u64, AgentId)> = Vec::new();
    let mut leaving: Vec<(u64, AgentId)> = Vec::new();
    for now in from + 1..until {
        for effect in mind.settle(at(now).mono) {
            let Effect::Send(agent, AgentCommand::Retire(reason)) = effect else { continue };
            assert_eq!(reason, Reason::Outdated);
            heard(mind, &agent, Standing::Leaving, None, now);
            leaving.push((now + 10, agent));
            went += 1;
        }
        let need = mind.warm_need(at(now).mono);
        coming.extend(begin(mind, need, None, now).into_iter().map(|agent| (now + 60, agent)));
        most = most.max(coming.len());
        for (_, agent) in coming.extract_if(.., |(at, _)| *at <= now) {
            heard(mind, &agent, IDLE, None, now);
        }
        for (_, agent) in leaving.extract_if(.., |(at, _)| *at <= now) {
            heard(mind, &agent, Standing::Gone, None, now);
        }
        let ready = mind.agents.values().filter(|held| held.status.standing == IDLE && !held.going);
        least = least.min(ready.count());
    }
    (least, most, went)
}

fn outdated(mind: &TemplateMind) -> u32 {
    mind.outdated()
}

// Invariant: a change replaces idle agents within its budget, and never below what is kept while there
// is room beside them.

#[test]
fn a_changed_template_replaces_its_pool_one_by_one_and_stays_whole() {
    let (mut mind, agents) = pool(4, |_| ());
    change(&mut mind, 20, |_| ());
    assert_eq!(outdated(&mind), 4);
    assert_eq!(play(&mut mind, 20, 1000), (4, 1, 4));
    assert_eq!(outdated(&mind), 0);
    assert!(agents.iter().all(|agent| !mind.agents.contains_key(agent)));
}

#[test]
fn a_budget_says_how_many_are_replaced_at_once() {
    let (mut mind, _) = pool(6, |spec| spec.roll_at_once = Some(3));
    change(&mut mind, 20, |_| ());
    assert_eq!(play(&mut mind, 20, 1000), (6, 3, 6));
}

#[test]
fn a_pool_that_fills_its_cap_misses_one_agent_at_a_time() {
    let (mut mind, _) = pool(3, |spec| spec.cap = Some(3));
    change(&mut mind, 20, |_| ());
    assert_eq!(play(&mut mind, 20, 1000), (2, 1, 3));
}

#[test]
fn idle_agents_beside_the_minimum_go_within_the_budget_too() {
    let (mut mind, _) = pool(3, |_| ());
    change(&mut mind, 20, |spec| spec.idle_minimum = 0);
    let first = mind.settle(at(21).mono);
    assert_eq!(first.iter().filter(|one| matches!(one, Effect::Send(..))).count(), 1);
}

// Invariant: nobody in use is touched, and nothing is where a roll-out pauses.

#[test]
fn an_agent_in_use_is_left_alone_until_it_is_idle() {
    let (mut mind, agents) = pool(1, |_| ());
    heard(&mut mind, &agents[0], Standing::Busy, None, 15);
    change(&mut mind, 20, |spec| spec.idle_minimum = 0);
    for now in 21..200 {
        assert!(mind.settle(at(now).mono).is_empty());
    }
    heard(&mut mind, &agents[0], IDLE, None, 200);
    let reported = reported(&mind.settle(at(201).mono));
    assert_eq!(reported, [format!("{} Retire(Outdated)", agents[0])]);
}

#[test]
fn an_agent_that_drains_under_its_lease_holds_up_no_roll_out() {
    let (mut mind, agents) = pool(3, |_| ());
    heard(&mut mind, &agents[0], Standing::Busy, None, 15);
    mind.agents.get_mut(&agents[0]).unwrap().going = true;
    change(&mut mind, 20, |_| ());
    assert_eq!(play(&mut mind, 20, 1000).2, 2);
    assert!(mind.agents.contains_key(&agents[0]));
}

#[test]
fn an_agent_in_use_gets_nobody_beside_it_before_it_is_idle() {
    let (mut mind, agents) = pool(2, |spec| {
        (spec.minimum, spec.idle_minimum) = (2, 0);
        spec.roll_at_once = Some(9);
    });
    for agent in &agents {
        heard(&mut mind, agent, Standing::Busy, None, 15);
    }
    change(&mut mind, 20, |_| ());
    assert_eq!((outdated(&mind), mind.warm_need(at(21).mono)), (2, 0));
    heard(&mut mind, &agents[0], IDLE, None, 30);
    assert_eq!(mind.warm_need(at(31).mono), 1);
}

#[test]
fn a_paused_roll_out_replaces_nothing_and_goes_on_afterwards() {
    let (mut mind, _) = pool(2, |_| ());
    let paused = TemplateOverrides { rollout_paused: true, ..Default::default() };
    change(&mut mind, 20, |spec| *spec = paused.over(spec));
    assert_eq!((outdated(&mind), play(&mut mind, 20, 500).2), (0, 0));
    let mut next = (**mind.spec()).clone();
    next.roll_at_once = None;
    mind.applied(Some(Arc::new(next)), at(500));
    assert_eq!(play(&mut mind, 500, 1000), (2, 1, 2));
}

// Invariant: a change of policy alone replaces nobody, and a return to the version before spares those
// that still have it.

#[test]
fn another_cap_or_label_makes_no_agent_outdated() {
    let (mut mind, _) = pool(2, |_| ());
    let mut next = (**mind.spec()).clone();
    next.cap = Some(9);
    next.labels.insert("more".into());
    mind.applied(Some(Arc::new(next)), at(20));
    assert_eq!(outdated(&mind), 0);
}

#[test]
fn a_roll_back_spares_agents_of_the_version_that_it_returns_to() {
    let (mut mind, agents) = pool(4, |_| ());
    let before = Arc::clone(mind.spec());
    change(&mut mind, 20, |_| ());
    play(&mut mind, 20, 100);
    let new = mind.agents.keys().filter(|agent| !agents.contains(agent)).count();
    assert!((1..4).contains(&new), "{new}");
    mind.applied(Some(before), at(100));
    assert_eq!(outdated(&mind) as usize, new);
}

#[test]
fn a_version_that_never_gets_ready_costs_no_agent_of_the_old_one() {
    let (mut mind, agents) = pool(3, |_| ());
    change(&mut mind, 20, |_| ());
    fail_three(&mut mind, &FaultKind::Broken);
    for now in 60..400 {
        let sent = mind.settle(at(now).mono);
        assert!(!sent.iter().any(|one| matches!(one, Effect::Send(..))), "{sent:?}");
    }
    assert!(agents.iter().all(|agent| mind.agents.contains_key(agent)));
}

// Invariant: a version that must prove itself is tried where nobody asks for an agent, by one at a time.

/// A full pool of the good version, and another one that must prove itself.
fn unproven(count: u32, of: impl FnOnce(&mut TemplateSpec)) -> (TemplateMind, Vec<AgentId>) {
    let (mut mind, agents) = pool(count, |spec| {
        spec.canary = true;
        of(spec);
    });
    let good = Arc::clone(mind.spec());
    change(&mut mind, 20, |_| ());
    let stand_in = Some(StandIn { spec: good, digest: "old".into(), given_up: false });
    let proving = Proving { digest: "new".into(), stand_in };
    mind.effects_of(Event::Proving(Some(proving)), at(20), 0);
    (mind, agents)
}

fn prove(mind: &mut TemplateMind, now: u64) {
    let proving = Proving { digest: "new".into(), stand_in: None };
    mind.effects_of(Event::Proving(Some(proving)), at(now), 0);
}

#[test]
fn a_full_pool_starts_one_agent_of_a_version_that_must_prove_itself_and_then_the_others() {
    let (mut mind, _) = unproven(3, |_| ());
    assert!(mind.settle(at(21).mono).is_empty());
    assert_eq!(mind.warm_need(at(21).mono), 1);
    let trial = begin(&mut mind, 1, None, 21).remove(0);
    assert_eq!(mind.spec_of(&trial).made_as.as_ref().unwrap().spec, "new");
    mind.effects_of(Event::Tries(trial.clone(), true), at(21), 0);
    for now in 22..90 {
        assert!(mind.settle(at(now).mono).is_empty());
        assert_eq!(mind.warm_need(at(now).mono), 0);
    }
    heard(&mut mind, &trial, IDLE, None, 90);
    prove(&mut mind, 90);
    assert_eq!(outdated(&mind), 3);
    assert_eq!(play(&mut mind, 90, 1000), (3, 1, 3));
}

#[test]
fn a_pool_at_its_cap_gives_one_place_to_the_version_that_must_prove_itself() {
    let (mut mind, _) = unproven(2, |spec| spec.cap = Some(2));
    let sent = reported(&mind.settle(at(21).mono));
    assert_eq!(sent.len(), 1);
    assert!(sent[0].ends_with("Retire(Outdated)"), "{sent:?}");
    assert!(mind.settle(at(22).mono).is_empty());
}

#[test]
fn nothing_is_tried_where_the_roll_out_pauses_or_nothing_is_kept_or_the_version_failed() {
    let (mut mind, _) = unproven(2, |_| ());
    let paused = TemplateOverrides { rollout_paused: true, ..Default::default() };
    let spec = paused.over(mind.spec());
    mind.applied(Some(Arc::new(spec)), at(21));
    assert_eq!(mind.warm_need(at(22).mono), 0);
    let (mut mind, _) = unproven(2, |_| ());
    change(&mut mind, 21, |spec| (spec.idle_minimum, spec.cap) = (0, Some(2)));
    assert_eq!(mind.warm_need(at(22).mono), 0);
    assert!(mind.settle(at(22).mono).is_empty());
    let (mut mind, _) = unproven(2, |_| ());
    let trial = begin(&mut mind, 1, None, 21).remove(0);
    mind.effects_of(Event::Tries(trial.clone(), true), at(21), 0);
    gone(&mut mind, &trial, fault(FaultKind::Contention), 22);
    assert_eq!(mind.warm_need(at(22).mono), 0, "it waits for a while");
    let next = mind.wake(at(22).mono).unwrap();
    assert_eq!(mind.warm_need(next), 1);
}

#[test]
fn an_agent_that_proved_a_version_is_replaced_by_the_next_one() {
    let (mut mind, _) = unproven(1, |_| ());
    let trial = begin(&mut mind, 1, None, 21).remove(0);
    mind.effects_of(Event::Tries(trial.clone(), true), at(21), 0);
    heard(&mut mind, &trial, IDLE, None, 90);
    prove(&mut mind, 90);
    play(&mut mind, 90, 200);
    assert_eq!(outdated(&mind), 0);
    change(&mut mind, 200, |_| ());
    prove(&mut mind, 200);
    assert!(mind.agents.contains_key(&trial));
    assert_eq!(outdated(&mind), 1);
}
