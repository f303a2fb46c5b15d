//! What a template keeps without demand, and what may go.

use super::*;
use crate::testing::{Hours, window};
use drover_model::phase::AgentPhase;

/// Ready agents that stay, and those of them that are idle.
fn there(mind: &TemplateMind) -> (usize, usize) {
    let stay = || mind.agents.values().filter(|held| !held.going);
    let ready = stay()
        .filter(|held| matches!(held.status.standing, Standing::Free { .. } | Standing::Busy));
    (ready.count(), stay().filter(|held| held.status.standing == IDLE).count())
}

// Invariant: the pool is topped up to the minimums: one counts all agents, one the idle and coming.

#[test]
fn an_agent_in_use_counts_for_the_minimum_and_not_for_the_idle_one() {
    for (minimums, needs) in
        [((3, 0), [3, 0, 0, 1]), ((0, 3), [3, 0, 1, 2]), ((2, 3), [3, 0, 1, 2])]
    {
        let mut mind = mind(|spec| (spec.minimum, spec.idle_minimum) = minimums);
        let mut seen = vec![mind.warm_need(at(0).mono)];
        let agents = begin(&mut mind, 3, None, 0);
        seen.push(mind.warm_need(at(0).mono));
        heard(&mut mind, &agents[0], IDLE, None, 1);
        heard(&mut mind, &agents[0], Standing::Busy, None, 2);
        seen.push(mind.warm_need(at(2).mono));
        gone(&mut mind, &agents[1], None, 3);
        seen.push(mind.warm_need(at(3).mono));
        assert_eq!(seen, needs, "{minimums:?}");
    }
}

/// An agent is in use and serves nobody after that.
fn last_use(mind: &mut TemplateMind, agent: &AgentId, state: AgentPhase, now: u64) {
    let mut report = a_report(mind, agent, Standing::Busy);
    Arc::make_mut(&mut report.status).phase = state;
    mind.reported(&report, at(now));
}

#[test]
fn an_agent_that_drains_or_is_held_is_replaced_at_once_and_keeps_no_idle_one_from_staying() {
    for state in [AgentPhase::Draining, AgentPhase::Held] {
        let mut mind = mind(|spec| (spec.minimum, spec.idle) = (2, Some(seconds(60))));
        let agents = begin(&mut mind, 2, None, 0);
        for agent in &agents {
            heard(&mut mind, agent, IDLE, None, 1);
        }
        last_use(&mut mind, &agents[0], state, 2);
        assert_eq!(mind.warm_need(at(2).mono), 1, "{state}");
        let third = begin(&mut mind, 1, None, 2).remove(0);
        assert!(mind.settle(at(500).mono).is_empty(), "{state}: the third is not ready");
        heard(&mut mind, &third, IDLE, None, 501);
        assert!(mind.settle(at(5000).mono).is_empty(), "{state}: both are kept");
    }
}

#[test]
fn a_warm_reservation_that_came_too_late_begins_nothing() {
    for minimums in [(2, 0), (0, 2)] {
        let mut mind = mind(|spec| (spec.minimum, spec.idle_minimum) = minimums);
        assert_eq!(begin(&mut mind, 2, None, 0).len(), 2);
        assert!(begin(&mut mind, 2, None, 1).is_empty());
        assert_eq!(mind.news(at(1).mono).unwrap().released, 4);
    }
}

#[test]
fn the_warm_pool_stays_under_the_cap() {
    for minimums in [(5, 0), (0, 5)] {
        let mut mind = mind(|spec| {
            (spec.minimum, spec.idle_minimum) = minimums;
            spec.cap = Some(2);
        });
        assert_eq!(mind.warm_need(at(0).mono), 2);
        assert_eq!(begin(&mut mind, 5, None, 0).len(), 2);
    }
}

#[test]
fn a_reload_that_raises_what_is_kept_is_felt_at_once_and_reported_above() {
    let mut mind = mind(|_| ());
    mind.news(at(0).mono);
    let mut more = (**mind.spec()).clone();
    more.idle_minimum = 2;
    mind.applied(Some(Arc::new(more)), at(1));
    assert_eq!(mind.warm_need(at(1).mono), 2);
    assert_eq!(mind.news(at(1).mono).unwrap().kept, Minimums { all: 0, idle: 2 });
}

// Invariant: what is kept outlives its idle time.

#[test]
fn the_minimum_outlives_its_idle_time() {
    for minimums in [(2, 0), (0, 2)] {
        let mut mind = three_idle(|spec| (spec.minimum, spec.idle_minimum) = minimums);
        assert_eq!(reported(&mind.settle(at(500).mono)), ["a1 Retire(Idle)"]);
        assert_eq!(mind.wake(at(500).mono), None);
    }
}

#[test]
fn agents_in_use_let_idle_ones_go_unless_so_many_idle_ones_are_kept() {
    for (minimums, goes) in [((2, 0), 2), ((0, 1), 1), ((3, 0), 1)] {
        let mut mind = three_idle(|spec| (spec.minimum, spec.idle_minimum) = minimums);
        let used = begin(&mut mind, 1, Some(1), 40);
        heard(&mut mind, &used[0], Standing::Busy, None, 41);
        heard(&mut mind, &AgentId::new("a3"), Standing::Busy, None, 41);
        assert_eq!(reported(&mind.settle(at(500).mono)).len(), goes, "{minimums:?}");
    }
}

// Invariant: an open window raises what is kept; what it kept goes when it closes, once it is idle.

const HOUR: u64 = 3600;

#[test]
fn a_window_is_filled_when_it_opens_and_its_surplus_goes_when_it_closes() {
    let mut mind = mind(|spec| {
        spec.minimum = 1;
        spec.schedule = vec![window(1, 2, (3, 0))];
    });
    mind.look(&Hours, at(0));
    assert_eq!((mind.warm_need(at(0).mono), mind.wake(at(0).mono)), (1, Some(at(60).mono)));
    let first = begin(&mut mind, 1, None, 10).remove(0);
    heard(&mut mind, &first, IDLE, None, 20);
    mind.look(&Hours, at(HOUR - 30));
    assert_eq!(mind.wake(at(HOUR - 30).mono), Some(at(HOUR).mono), "nobody else would wake it");
    mind.look(&Hours, at(HOUR));
    assert_eq!(mind.warm_need(at(HOUR).mono), 2);
    let more = begin(&mut mind, 2, None, HOUR);
    for agent in &more {
        heard(&mut mind, agent, IDLE, None, HOUR + 10);
    }
    heard(&mut mind, &more[0], Standing::Busy, None, HOUR + 20);
    assert!(mind.settle(at(2 * HOUR - 1).mono).is_empty());

    mind.look(&Hours, at(2 * HOUR));
    let news = mind.news(at(2 * HOUR).mono).unwrap();
    assert_eq!(news.kept, Minimums { all: 1, idle: 0 });
    let mut gone = reported(&mind.settle(at(2 * HOUR).mono));
    assert_eq!(
        gone,
        [format!("{first} Retire(WindowClosed)"), format!("{} Retire(WindowClosed)", more[1])]
    );
    heard(&mut mind, &more[0], IDLE, None, 3 * HOUR);
    assert!(mind.settle(at(9 * HOUR).mono).is_empty(), "the minimum stays");
    let later = begin(&mut mind, 1, Some(1), 3 * HOUR).remove(0);
    heard(&mut mind, &later, IDLE, None, 3 * HOUR + 10);
    gone = reported(&mind.settle(at(3 * HOUR + 10).mono));
    assert_eq!(gone, [format!("{} Retire(WindowClosed)", more[0])], "not what came after it");
    assert!(mind.settle(at(9 * HOUR).mono).is_empty());
}

#[test]
fn an_agent_in_use_goes_a_moment_after_its_use_unless_somebody_waits_for_it() {
    let mut mind = mind(|spec| spec.schedule = vec![window(0, 1, (0, 1))]);
    mind.look(&Hours, at(0));
    let agent = begin(&mut mind, 1, None, 0).remove(0);
    heard(&mut mind, &agent, Standing::Busy, None, 10);
    mind.look(&Hours, at(HOUR));
    assert!(mind.settle(at(HOUR).mono).is_empty());
    heard(&mut mind, &agent, IDLE, None, HOUR + 5);
    assert!(mind.settle(at(HOUR + 5).mono).is_empty(), "who waits comes first");
    assert_eq!(mind.wake(at(HOUR + 5).mono), Some(at(HOUR + 6).mono));
    assert_eq!(
        reported(&mind.settle(at(HOUR + 6).mono)),
        [format!("{agent} Retire(WindowClosed)")]
    );
}

#[test]
fn a_window_that_closed_while_nobody_looked_sheds_what_was_adopted() {
    let mut mind = mind(|spec| spec.schedule = vec![window(0, 1, (2, 0))]);
    let known = entry("a1", 10_000, template("c/t", &[]), AgentPhase::Ready);
    mind.adopted(&AgentId::new("a1"), &known, at(3 * HOUR));
    mind.look(&Hours, at(3 * HOUR));
    heard(&mut mind, &AgentId::new("a1"), IDLE, None, 3 * HOUR);
    assert_eq!(reported(&mind.settle(at(3 * HOUR + 1).mono)), ["a1 Retire(WindowClosed)"]);
}

#[test]
fn a_wall_clock_that_is_set_is_believed_within_a_minute() {
    let mut mind = mind(|spec| spec.schedule = vec![window(1, 2, (2, 0))]);
    mind.look(&Hours, at(0));
    let moved = Now { mono: at(60).mono, wall: at(HOUR + 60).wall };
    assert_eq!(mind.wake(at(1).mono), Some(moved.mono));
    mind.look(&Hours, moved);
    assert_eq!(mind.warm_need(moved.mono), 2);
    mind.look(&Hours, at(120));
    assert_eq!(mind.warm_need(at(120).mono), 0);
}

proptest! {
    /// Nothing that may go takes the ready agents below what is kept, the pool is as full as the cap
    /// allows once it was served, and the cap holds, whatever the agents do.
    #[test]
    fn ready_agents_never_fall_below_what_is_kept_by_our_doing(
        minimums in (0u32..5, 0u32..5),
        steps in prop::collection::vec((0u8..8, 0usize..8, 0u64..90), 1..150)
    ) {
        let mut mind = mind(|spec| {
            (spec.minimum, spec.idle_minimum) = minimums;
            (spec.cap, spec.idle) = (Some(6), Some(seconds(60)));
        });
        let mut now = 0;
        for (n, (what, pick, wait)) in steps.into_iter().enumerate() {
            now += wait;
            let alive: Vec<AgentId> = mind.agents.keys().cloned().collect();
            let before = there(&mind);
            let mut serial = 0;
            let mut draw = || {
                serial += 1;
                AgentId::new(format!("x{n}-{serial}"))
            };
            let effects = match (what, alive.get(pick)) {
                (0, _) => mind.reserved(2, Some(2), &mut draw, at(now)),
                (1, _) => {
                    let effects = mind.reserved(9, None, &mut draw, at(now));
                    prop_assert!(mind.warm_need(at(now).mono) == 0, "as many as it may");
                    effects
                }
                (2 | 3, Some(agent)) => heard(&mut mind, agent, IDLE, None, now),
                (4, Some(agent)) => heard(&mut mind, agent, Standing::Busy, None, now),
                (5, Some(agent)) => {
                    gone(&mut mind, agent, None, now);
                    Vec::new()
                }
                (6, _) => mind.reaps(false, &Reason::Reaped).0,
                _ => mind.settle(at(now).mono),
            };
            if !reported(&effects).is_empty() {
                let (ready, idle) = there(&mind);
                let least = (minimums.0 as usize, minimums.1 as usize);
                prop_assert!(ready >= least.0.min(before.0) && idle >= least.1.min(before.1));
                prop_assert!(ready >= least.0 && idle >= least.1, "{ready} {idle} {least:?}");
            }
            prop_assert!(mind.live() <= 6);
        }
    }
}

// Invariant: a pool as large as its cap keeps nobody out who waits for another size.

#[test]
fn a_place_that_an_agent_left_is_offered_to_other_sizes_before_the_pool_is_filled() {
    let cpu = SizeLabel { label: "cpu".into(), min: 1, max: 16 };
    for (labels, after) in
        [(SizeLabels::default(), 1), (SizeLabels { cores: Some(cpu), ..SizeLabels::default() }, 0)]
    {
        let mut mind = mind(|spec| {
            (spec.cap, spec.minimum) = (Some(2), 2);
            spec.size_labels = labels;
        });
        let agents = begin(&mut mind, 2, None, 0);
        gone(&mut mind, &agents[0], None, 10);
        assert_eq!(mind.warm_need(at(10).mono), after);
        assert_eq!(mind.room(at(10).mono), 1, "demand has it at once");
        assert_eq!(mind.wake(at(10).mono).is_some(), after == 0);
        assert_eq!(mind.warm_need(at(11).mono), 1);
    }
}
