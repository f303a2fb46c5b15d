//! Renewal of the warm pool before its agents are too old.

use super::*;
use crate::addresses::Supply;
use crate::template::state::renew::Renewal;
use drover_model::phase::AgentPhase;

const LIFE: u64 = 10_000;

/// A pool of idle agents started at the same moment.
fn pool(count: u32, change: impl FnOnce(&mut TemplateSpec)) -> (TemplateMind, Vec<AgentId>) {
    let mut mind = mind(|spec| {
        spec.idle_minimum = count;
        spec.limits.lifetime = Some(seconds(LIFE));
        change(spec);
    });
    let agents = begin(&mut mind, count, None, 0);
    for agent in &agents {
        heard(&mut mind, agent, IDLE, None, 10);
    }
    (mind, agents)
}

/// Plays the pool second by second, a provision taking 60 s and a retirement 10 s; gives the least
/// ready agents seen, the most that were on their way at once, and how many went.
fn play(mind: &mut TemplateMind, until: u64) -> (usize, usize, usize) {
    let (mut least, mut most, mut went) = (usize::MAX, 0, 0);
    let mut coming: Vec<(u64, AgentId)> = Vec::new();
    let mut leaving: Vec<(u64, AgentId)> = Vec::new();
    let mut now = 10;
    while now < until {
        now += 1;
        for effect in mind.settle(at(now).mono) {
            let Effect::Send(agent, AgentCommand::Retire(reason)) = effect else { continue };
            assert_eq!(reason, Reason::Old);
            heard(mind, &agent, Standing::Leaving, None, now);
            leaving.push((now + 10, agent));
            went += 1;
        }
        let need = mind.warm_need(at(now).mono);
        coming.extend(begin(mind, need, None, now).into_iter().map(|agent| (now + 60, agent)));
        let (done, later): (Vec<_>, _) = coming.into_iter().partition(|(at, _)| *at <= now);
        coming = later;
        for (_, agent) in done {
            heard(mind, &agent, IDLE, None, now);
        }
        let (done, later): (Vec<_>, _) = leaving.into_iter().partition(|(at, _)| *at <= now);
        leaving = later;
        for (_, agent) in done {
            heard(mind, &agent, Standing::Gone, None, now);
        }
        let ready = mind.agents.values().filter(|held| held.status.standing == IDLE && !held.going);
        least = least.min(ready.count());
        most = most.max(coming.len());
    }
    (least, most, went)
}

// Invariant: a pool that was started together is renewed a few at a time, before its agents are too
// old, and never below what is kept while there is room beside it.

#[test]
fn a_pool_is_renewed_one_by_one_and_stays_whole_where_there_is_room() {
    let (mut mind, _) = pool(8, |spec| spec.cap = Some(9));
    assert_eq!(play(&mut mind, LIFE - 1), (8, 1, 8));
    assert!(mind.agents.values().all(|held| held.born > at(LIFE / 2).wall));
}

#[test]
fn a_pool_that_fills_its_cap_is_renewed_with_one_agent_missing() {
    let (mut mind, _) = pool(8, |spec| spec.cap = Some(8));
    assert_eq!(play(&mut mind, LIFE - 1), (7, 1, 8));
}

#[test]
fn a_large_pool_is_renewed_a_tenth_at_a_time() {
    let (mut mind, _) = pool(100, |_| ());
    let (least, most, went) = play(&mut mind, LIFE - 1);
    assert_eq!((least, went), (100, 100));
    assert!(most <= 10, "{most}");
}

#[test]
fn an_agent_waits_for_another_one_only_up_to_half_of_what_is_left_of_its_life() {
    let (mut mind, agents) = pool(1, |_| ());
    let half_way = (LIFE * 7 / 10 + LIFE) / 2;
    assert!(mind.settle(at(half_way - 1).mono).is_empty(), "no other one is ready");
    let reported = reported(&mind.settle(at(LIFE - 1).mono));
    assert_eq!(reported, [format!("{} Retire(Old)", agents[0])]);
}

#[test]
fn an_old_agent_stays_while_no_other_can_be_had() {
    let (mut mind, _) = pool(4, |spec| spec.cap = Some(7));
    let failed = fail_three(&mut mind, &FaultKind::Broken);
    assert_eq!(failed.len(), 3);
    assert!(mind.settle(at(LIFE - 1).mono).is_empty());
}

#[test]
fn an_old_agent_stays_while_there_is_no_address_for_another_one() {
    let (mut mind, _) = pool(4, |spec| spec.cap = Some(4));
    let lack = Some("address pool `lab` is used up".into());
    mind.supplied(Supply { free: 0, lack, next: None });
    assert!(mind.settle(at(LIFE - 1).mono).is_empty());
    mind.supplied(Supply::endless());
    assert_eq!(reported(&mind.settle(at(LIFE - 1).mono)).len(), 1);
}

#[test]
fn no_second_one_goes_before_the_first_was_replaced() {
    let (mut mind, _) = pool(4, |spec| spec.cap = Some(4));
    let first = reported(&mind.settle(at(LIFE - 1).mono));
    let agent = AgentId::new(first[0].split(' ').next().unwrap());
    gone(&mut mind, &agent, None, LIFE - 1);
    assert!(mind.settle(at(LIFE - 1).mono).is_empty(), "three of four are left");
}

#[test]
fn what_is_not_kept_lives_to_its_end() {
    let (mut mind, agents) = pool(3, |_| ());
    let mut none = (**mind.spec()).clone();
    none.idle_minimum = 0;
    mind.applied(Some(Arc::new(none)), at(11));
    assert_eq!((mind.settle(at(LIFE - 1).mono), agents.len()), (Vec::new(), 3));
}

#[test]
fn a_restart_changes_nothing_about_when_an_agent_is_renewed() {
    let (mind, agents) = pool(1, |_| ());
    let known = entry("a1", 10_000, (**mind.spec()).clone(), AgentPhase::Ready);
    let again = Renewal::of(&agents[0], &known.spec, at(0).wall, at(5000));
    assert_eq!(again, mind.agents[&agents[0]].renews);
}
