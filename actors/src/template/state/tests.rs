//! The template's mind: permits, warm pool, breaker and idle agents, one sentence each.
#![expect(clippy::unwrap_used, reason = "a test may panic")]
use drover_model::size::{Size, SizeLabel, SizeLabels};
use std::time::Duration;

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::overrides::Overrides;
use drover_model::phase::BreakerPhase;
use drover_model::record::Owner;
use proptest::prelude::*;

use super::*;
use crate::message::AgentReport;
use crate::template::TemplateNews;
use crate::testing::{agent_status, at, entry, seconds, template};

mod canary;
mod nodes;
mod renew;
mod roll;
mod step;
mod table;
mod warm;

fn mind(change: impl FnOnce(&mut TemplateSpec)) -> TemplateMind {
    let mut spec = template("c/t", &["linux"]);
    change(&mut spec);
    let mut mind = TemplateMind::new(Arc::new(spec), true, Breaker::default());
    mind.opened();
    mind
}

fn begin(mind: &mut TemplateMind, reserved: u32, asked: Option<u32>, now: u64) -> Vec<AgentId> {
    let mut count = mind.agents.len() + mind.gone.len() + usize::try_from(now).unwrap() * 100;
    let mut draw = || {
        count += 1;
        AgentId::new(format!("a{count}"))
    };
    let effects = mind.reserved(reserved, asked, &mut draw, at(now));
    effects
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Spawn(agent) => Some(agent),
            Effect::Send(..)
            | Effect::Record(_)
            | Effect::SuspectCloud(_)
            | Effect::Charge(..)
            | Effect::Proven(_)
            | Effect::CanaryFailed(..)
            | Effect::Reaped(_)
            | Effect::News(_) => None,
        })
        .collect()
}

fn heard(
    mind: &mut TemplateMind,
    agent: &AgentId,
    standing: Standing,
    fault: Option<Fault>,
    now: u64,
) -> Vec<Effect> {
    let report = AgentReport { fault, ..a_report(mind, agent, standing) };
    mind.reported(&report, at(now))
}

/// What an agent of this standing reports that has nothing else to say.
fn a_report(mind: &TemplateMind, agent: &AgentId, standing: Standing) -> AgentReport {
    let status = agent_status(agent.as_str(), &mind.spec().id, AgentPhase::Ready, standing);
    AgentReport { status: Arc::new(status), fault: None, refused: Vec::new() }
}

const IDLE: Standing = Standing::Free { executors: 1, idle: true };

fn fault(kind: FaultKind) -> Option<Fault> {
    Some(Fault::new(kind, Culprit::Template, "no such template"))
}

fn gone(mind: &mut TemplateMind, agent: &AgentId, why: Option<Fault>, now: u64) {
    heard(mind, agent, Standing::Leaving, why, now);
    heard(mind, agent, Standing::Gone, None, now);
}

fn reported(effects: &[Effect]) -> Vec<String> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Send(agent, command) => Some(format!("{agent} {command:?}")),
            Effect::Spawn(_)
            | Effect::Record(_)
            | Effect::SuspectCloud(_)
            | Effect::Charge(..)
            | Effect::Proven(_)
            | Effect::CanaryFailed(..)
            | Effect::Reaped(_)
            | Effect::News(_) => None,
        })
        .collect()
}

// Invariant: a permit is free only when its agent is confirmed gone.

#[test]
fn a_retiring_agent_holds_its_slot_until_it_is_gone() {
    let mut mind = mind(|spec| spec.cap = Some(2));
    let agents = begin(&mut mind, 2, Some(2), 0);
    heard(&mut mind, &agents[0], Standing::Leaving, None, 1);
    assert_eq!(mind.room(at(1).mono), 0);
    heard(&mut mind, &agents[0], Standing::Gone, None, 2);
    assert_eq!(mind.room(at(2).mono), 1);
}

#[test]
fn a_reservation_larger_than_the_cap_begins_no_more_than_the_cap_and_gives_all_back() {
    let mut mind = mind(|spec| spec.cap = Some(2));
    assert_eq!(begin(&mut mind, 5, Some(5), 0).len(), 2);
    let news = mind.news(at(0).mono).unwrap();
    assert_eq!(
        (news.released, news.answered.get(&Size::NONE), news.live, news.room),
        (5, Some(&5), 2, 0)
    );
}

#[test]
fn a_parked_agent_leaves_the_cap_and_goes_when_it_returns_over_it() {
    let mut mind = mind(|spec| spec.cap = Some(1));
    let first = begin(&mut mind, 1, Some(1), 0).remove(0);
    heard(&mut mind, &first, Standing::Parked, None, 1);
    assert_eq!(begin(&mut mind, 1, Some(1), 2).len(), 1);
    let effects = heard(&mut mind, &first, IDLE, None, 3);
    assert_eq!(reported(&effects), ["a1 Retire(ReturnedFromPark)"]);
}

#[test]
fn nothing_begins_before_the_cluster_is_known() {
    let spec = Arc::new(template("c/t", &[]));
    let mut mind = TemplateMind::new(spec, true, Breaker::default());
    assert!(begin(&mut mind, 3, Some(3), 0).is_empty());
    assert_eq!(mind.news(at(0).mono).unwrap().answered, [(Size::NONE, 3)].into());
}

// Invariant: an operator gets what the caps leave, and hears what stands in the way of more.

fn provision(mind: &mut TemplateMind, reserved: u32) -> usize {
    let mut count = mind.agents.len();
    let mut draw = || {
        count += 1;
        AgentId::new(format!("p{count}"))
    };
    let ids = (0..mind.startable(reserved, true, at(0).mono)).map(|_| draw()).collect();
    let event = Event::Provisioned { slots: reserved, purpose: Purpose::Use, ids };
    mind.effects_of(event, at(0), 0).len()
}

#[test]
fn what_an_operator_wants_is_started_without_demand_and_is_not_taken_back() {
    let mut mind = mind(|spec| spec.cap = Some(3));
    assert_eq!(begin(&mut mind, 1, Some(1), 0).len(), 1);
    assert_eq!(provision(&mut mind, 5), 2);
    let news = mind.news(at(0).mono).unwrap();
    assert_eq!((news.released, news.answered.get(&Size::NONE), news.live), (6, Some(&1), 3));
    let takeable: Vec<bool> = news.agents.iter().map(|level| level.queued).collect();
    assert_eq!(takeable, [true, false, false], "only what was started for a lease goes with it");
}

#[test]
fn whatever_keeps_an_operator_from_more_agents_is_named() {
    let mut shut = mind(|spec| spec.cap = Some(1));
    provision(&mut shut, 1);
    let mut tripped = mind(|_| {});
    fail_three(&mut tripped, &FaultKind::Broken);
    let mut pausing = mind(|_| {});
    let agent = begin(&mut pausing, 1, Some(1), 0)[0].clone();
    gone(&mut pausing, &agent, fault(FaultKind::Contention), 0);
    let mut left = mind(|_| {});
    left.applied(None, at(0));
    let mut stopping = mind(|_| {});
    stopping.stop();
    let unknown = TemplateMind::new(left.spec().clone(), true, Breaker::default());
    let all = [&shut, &tripped, &pausing, &left, &stopping, &unknown];
    let all: Vec<String> = all.iter().map(|mind| mind.shortage(at(0).mono)).collect();
    let expected = [
        "c/t is full: 1 of 1",
        "c/t: no such template; its breaker is open until 2027-01-15T08:02:01Z",
        "c/t pauses, for it could not begin agents: no such template",
        "template c/t is not configured any more",
        "the service is stopping",
        "cloud c: its cluster is not known yet",
    ];
    assert_eq!(all, expected);
}

#[test]
fn a_breaker_that_an_operator_closes_is_news_also_where_nothing_can_start() {
    let mut mind = mind(|_| ());
    fail_three(&mut mind, &FaultKind::Broken);
    let lack = Some("address pool lab is used up".to_owned());
    mind.supplied(Supply { free: 0, lack, ..Supply::endless() });
    assert!(mind.news(at(2).mono).unwrap().tripped.is_some());
    mind.effects_of(Event::BreakerReset, at(3), 0);
    let news = mind.news(at(3).mono).unwrap();
    assert_eq!((news.flowing, news.tripped), (true, None));
}

// Invariant: idle agents go after their time, the longest idle first, the minimum never.

fn three_idle(change: impl FnOnce(&mut TemplateSpec)) -> TemplateMind {
    let mut mind = mind(|spec| {
        spec.idle = Some(seconds(60));
        change(spec);
    });
    let agents = begin(&mut mind, 3, Some(3), 0);
    for (agent, now) in agents.iter().zip([10, 20, 30]) {
        heard(&mut mind, agent, IDLE, None, now);
    }
    mind
}

#[test]
fn idle_agents_go_one_by_one_as_their_time_comes() {
    let mut mind = three_idle(|_| ());
    assert!(mind.settle(at(69).mono).is_empty());
    assert_eq!(mind.wake(at(69).mono), Some(at(70).mono));
    assert_eq!(reported(&mind.settle(at(70).mono)), ["a1 Retire(Idle)"]);
    assert!(mind.settle(at(71).mono).is_empty());
    assert_eq!(reported(&mind.settle(at(95).mono)), ["a2 Retire(Idle)", "a3 Retire(Idle)"]);
}

/// An agent's own idle time, in minutes, as it reports it.
fn idle_for(mind: &mut TemplateMind, agent: &str, minutes: u32, now: u64) {
    let overrides = Overrides { idle_minutes: Some(minutes), ..Overrides::default() };
    let agent = AgentId::new(agent);
    let mut report = a_report(mind, &agent, IDLE);
    Arc::make_mut(&mut report.status).overrides = overrides;
    mind.reported(&report, at(now));
}

#[test]
fn an_agents_own_idle_time_stands_in_front_of_its_templates() {
    let mut mind = three_idle(|spec| spec.idle = Some(seconds(600)));
    let agents: Vec<String> = mind.agents.keys().map(ToString::to_string).collect();
    idle_for(&mut mind, &agents[0], 0, 10);
    idle_for(&mut mind, &agents[2], 1, 10);
    let wake = mind.wake(at(10).mono).unwrap();
    let gone = reported(&mind.settle(wake));
    assert_eq!(gone, [format!("{} Retire(Idle)", agents[2])], "the shortest first");
    let gone = reported(&mind.settle(at(1_000_000).mono));
    assert_eq!(gone, [format!("{} Retire(Idle)", agents[1])], "and one of them never");
    assert_eq!(mind.wake(at(1_000_000).mono), None);
}

#[test]
fn one_that_never_goes_is_the_minimum_and_keeps_no_other_from_going() {
    let mut mind = three_idle(|spec| spec.minimum = 1);
    let agents: Vec<String> = mind.agents.keys().map(ToString::to_string).collect();
    idle_for(&mut mind, &agents[0], 0, 10);
    let gone = reported(&mind.settle(at(1_000_000).mono));
    let others: Vec<String> =
        agents[1..].iter().map(|agent| format!("{agent} Retire(Idle)")).collect();
    assert_eq!(gone, others);
}

#[test]
fn a_use_starts_the_idle_time_again() {
    let mut mind = three_idle(|_| ());
    let first = AgentId::new("a1");
    heard(&mut mind, &first, Standing::Busy, None, 65);
    heard(&mut mind, &first, IDLE, None, 100);
    assert_eq!(reported(&mind.settle(at(110).mono)), ["a2 Retire(Idle)", "a3 Retire(Idle)"]);
    assert_eq!(mind.wake(at(110).mono), Some(at(160).mono));
}

#[test]
fn a_reap_spares_the_minimum_unless_all_are_wanted() {
    let mut mind = three_idle(|spec| spec.minimum = 1);
    let (reaped, count) = mind.clone().reaps(false, &Reason::Reaped);
    assert_eq!(reported(&reaped), ["a1 Retire(Reaped)", "a2 Retire(Reaped)"]);
    assert_eq!(count, 2);
    assert_eq!(mind.reaps(true, &Reason::Reaped).1, 3);
    assert_eq!(mind.reaps(true, &Reason::Reaped), (Vec::new(), 0));
}

#[test]
fn what_is_coming_or_being_adopted_counts_as_reaped_and_goes_once_it_is_idle() {
    let mut mind = mind(|spec| spec.minimum = 2);
    let adopted = AgentId::new("b1");
    mind.adopted(
        &adopted,
        &entry("b1", 101, template("c/t", &["linux"]), AgentPhase::Ready),
        at(0),
    );
    let started = begin(&mut mind, 1, Some(1), 0);
    assert_eq!(mind.clone().reaps(false, &Reason::Reaped), (Vec::new(), 0));
    assert_eq!(mind.reaps(true, &Reason::Reaped), (Vec::new(), 2));
    assert_eq!(mind.reaps(true, &Reason::Reaped), (Vec::new(), 0));
    heard(&mut mind, &adopted, IDLE, None, 10);
    assert!(mind.settle(at(10).mono).is_empty(), "who waits for it comes first");
    assert_eq!(mind.wake(at(10).mono), Some(at(11).mono));
    assert_eq!(reported(&mind.settle(at(11).mono)), ["b1 Retire(Reaped)"]);
    heard(&mut mind, &started[0], IDLE, None, 20);
    assert_eq!(reported(&mind.settle(at(21).mono)), [format!("{} Retire(Reaped)", started[0])]);
}

#[test]
fn what_was_leased_since_it_was_reaped_stays() {
    let mut mind = mind(|_| ());
    let started = begin(&mut mind, 1, Some(1), 0);
    mind.reaps(true, &Reason::Reaped);
    let mut report = a_report(&mind, &started[0], Standing::Busy);
    Arc::make_mut(&mut report.status).phase = AgentPhase::Leased;
    Arc::make_mut(&mut report.status).leases = vec![LeaseId::new("l1")];
    mind.reported(&report, at(1));
    heard(&mut mind, &started[0], IDLE, None, 2);
    assert!(mind.settle(at(5).mono).is_empty());
}

// Invariant: a template that left the configuration drains, and never kills a busy agent.

#[test]
fn an_unconfigured_template_retires_the_idle_and_drains_the_busy() {
    let mut mind = three_idle(|_| ());
    heard(&mut mind, &AgentId::new("a2"), Standing::Busy, None, 40);
    assert!(mind.applied(None, at(41)).is_empty());
    let effects = mind.settle(at(41).mono);
    assert_eq!(
        reported(&effects),
        ["a1 Retire(Unconfigured)", "a2 Drain(Unconfigured)", "a3 Retire(Unconfigured)"]
    );
    assert!(mind.settle(at(42).mono).is_empty());
    assert_eq!(mind.room(at(42).mono), 0);
}

#[test]
fn an_agent_asked_to_go_while_it_was_stranded_serves_or_is_reported_again_once_it_is_repaired() {
    for back in [true, false] {
        let mut mind = mind(|spec| spec.idle = Some(seconds(60)));
        let agent = begin(&mut mind, 1, Some(1), 0).remove(0);
        heard(&mut mind, &agent, Standing::Leaving, None, 1);
        let spec = mind.spec().clone();
        mind.applied(None, at(2));
        assert_eq!(mind.settle(at(2).mono).len(), 1, "which a stranded one does not follow");
        mind.applied(back.then_some(spec), at(3));
        heard(&mut mind, &agent, Standing::Coming, None, 4);
        heard(&mut mind, &agent, IDLE, None, 5);
        let reported = reported(&mind.settle(at(70).mono));
        let reason = if back { "Idle" } else { "Unconfigured" };
        assert_eq!(reported, [format!("{agent} Retire({reason})")]);
    }
}

#[test]
fn agents_keep_the_spec_they_were_born_with() {
    let mut mind = mind(|_| ());
    begin(&mut mind, 1, Some(1), 0);
    let mut other = template("c/t", &["windows"]);
    other.executors = 4;
    mind.applied(Some(Arc::new(other)), at(1));
    let news = mind.news(at(1).mono).unwrap();
    assert_eq!((news.agents[0].spec.executors, news.spec.executors), (1, 4));
}

// Invariant: the breaker counts what the template is to blame for, once an agent.

fn fail_three(mind: &mut TemplateMind, kind: &FaultKind) -> Vec<Effect> {
    let agents = begin(mind, 3, Some(3), 0);
    agents
        .iter()
        .flat_map(|agent| heard(mind, agent, Standing::Leaving, fault(kind.clone()), 1))
        .collect()
}

#[test]
fn three_failures_in_a_row_stop_it_until_one_trial_is_due() {
    let mut mind = mind(|_| ());
    let effects = fail_three(&mut mind, &FaultKind::Broken);
    assert_eq!(effects.len(), 3, "each move is recorded");
    assert_eq!((mind.room(at(120).mono), mind.wake(at(2).mono)), (0, Some(at(121).mono)));
    assert_eq!(begin(&mut mind, 5, Some(5), 121).len(), 1);
    assert_eq!(mind.room(at(10_000).mono), 0);
}

#[test]
fn contention_slows_down_and_is_never_charged() {
    let mut mind = mind(|_| ());
    assert!(fail_three(&mut mind, &FaultKind::Contention).is_empty());
    assert_eq!((mind.breaker().phase(), mind.room(at(1).mono)), (BreakerPhase::Closed, 0));
    let why = mind.paused(at(1).mono).unwrap();
    assert_eq!(why, "no such template", "a look for a place is no failure");
    assert_eq!(mind.room(at(2).mono), u32::MAX);
}

#[test]
fn what_was_in_the_way_of_several_agents_is_reported_with_their_number() {
    let mut mind = mind(|_| ());
    for agent in begin(&mut mind, 3, Some(3), 0) {
        heard(&mut mind, &agent, Standing::Coming, None, 1);
        heard(&mut mind, &agent, Standing::Leaving, fault(FaultKind::Contention), 1);
    }
    let why = mind.paused(at(1).mono).unwrap();
    assert_eq!(why, "no such template (3 times since 2027-01-15T08:00:01Z)");
}

#[test]
fn a_fault_after_the_agent_was_ready_is_not_the_templates() {
    let mut mind = mind(|_| ());
    for agent in begin(&mut mind, 3, Some(3), 0) {
        heard(&mut mind, &agent, IDLE, None, 1);
        heard(&mut mind, &agent, Standing::Leaving, fault(FaultKind::Broken), 2);
    }
    assert_eq!(mind.breaker().phase(), BreakerPhase::Closed);
}

#[test]
fn a_fault_that_only_hinders_is_not_charged() {
    let mut mind = mind(|_| ());
    for agent in begin(&mut mind, 3, Some(3), 0) {
        heard(&mut mind, &agent, Standing::Coming, fault(FaultKind::Broken), 1);
    }
    assert_eq!(mind.breaker(), &Breaker::default());
}

#[test]
fn a_trial_cancelled_on_its_way_makes_room_for_another() {
    let mut mind = mind(|_| ());
    fail_three(&mut mind, &FaultKind::Broken);
    let trial = begin(&mut mind, 1, Some(1), 121).remove(0);
    gone(&mut mind, &trial, None, 122);
    assert_eq!(mind.room(at(122).mono), 1);
}

#[test]
fn a_trial_called_off_while_it_clones_is_the_only_one_until_the_clone_is_over() {
    let mut mind = mind(|_| ());
    fail_three(&mut mind, &FaultKind::Broken);
    let trial = begin(&mut mind, 1, Some(1), 121).remove(0);
    let mut room_in = |phase, now| {
        let mut report = a_report(&mind, &trial, Standing::Leaving);
        Arc::make_mut(&mut report.status).phase = phase;
        mind.reported(&report, at(now));
        mind.room(at(now).mono)
    };
    assert_eq!(room_in(AgentPhase::Cloning, 122), 0);
    assert_eq!(room_in(AgentPhase::InDoubt, 123), 0);
    assert_eq!(room_in(AgentPhase::Retiring, 124), 1);
}

#[test]
fn a_changed_spec_lets_a_tripped_breaker_flow() {
    let mut mind = mind(|_| ());
    fail_three(&mut mind, &FaultKind::Broken);
    let mut same = (**mind.spec()).clone();
    same.generation.0 += 1;
    assert!(mind.applied(Some(Arc::new(same.clone())), at(2)).is_empty());
    assert_eq!(mind.breaker().phase(), BreakerPhase::Open);
    same.source.0 += 1;
    assert_eq!(mind.applied(Some(Arc::new(same)), at(3)).len(), 1);
    assert_eq!(mind.breaker().phase(), BreakerPhase::Closed);
}

#[test]
fn a_change_of_how_many_agents_there_are_leaves_the_breaker_as_it_is() {
    let mut mind = mind(|_| ());
    fail_three(&mut mind, &FaultKind::Broken);
    let mut same = (**mind.spec()).clone();
    (same.cap, same.minimum, same.idle_minimum) = (Some(9), 1, 2);
    same.limits.lifetime = Some(seconds(9999));
    assert!(mind.applied(Some(Arc::new(same)), at(2)).is_empty());
    assert_eq!(mind.breaker().phase(), BreakerPhase::Open);
}

#[test]
fn a_fault_of_the_cloud_makes_the_cloud_look_at_itself() {
    let mut mind = mind(|_| ());
    let agent = begin(&mut mind, 1, Some(1), 0).remove(0);
    let culprit = Culprit::Cloud(drover_model::id::CloudId::new("c"));
    let why = Fault::new(FaultKind::Unreachable, culprit, "no route");
    let effects = heard(&mut mind, &agent, Standing::Coming, Some(why.clone()), 1);
    assert_eq!(effects, [Effect::SuspectCloud(why.clone())], "it goes on and could not look");
    let effects = heard(&mut mind, &agent, Standing::Leaving, Some(why.clone()), 1);
    assert_eq!(effects, [Effect::SuspectCloud(why)]);
}

// Invariant: adopted agents count before anything is started.

#[test]
fn adopted_agents_hold_slots_and_fill_the_warm_pool() {
    let mut mind = mind(|spec| (spec.cap, spec.minimum) = (Some(3), 2));
    let known = entry("a1", 10_000, template("c/t", &[]), AgentPhase::Ready);
    mind.adopted(&AgentId::new("a1"), &known, at(0));
    assert_eq!((mind.live(), mind.warm_need(at(0).mono), mind.room(Moment(0))), (1, 1, 2));
}

// Invariant: news is sent once, and only when there is any.

#[test]
fn nothing_changed_is_no_news() {
    let mut mind = mind(|_| ());
    assert!(mind.news(Moment(0)).is_some());
    assert!(mind.news(Moment(0)).is_none());
}

proptest! {
    /// The cap holds and at most one trial runs, whatever the agents do.
    #[test]
    fn the_cap_and_the_single_trial_hold_under_any_interleaving(
        steps in prop::collection::vec((0u8..7, 0usize..8, 0u64..90, 1u32..4), 1..150)
    ) {
        let mut mind = mind(|spec| (spec.cap, spec.minimum) = (Some(4), 1));
        let mut alive: Vec<AgentId> = Vec::new();
        let mut trials: Vec<AgentId> = Vec::new();
        let mut clock = Duration::ZERO;
        let (mut reserved, mut released) = (0, 0);
        for (n, (what, pick, wait, count)) in steps.into_iter().enumerate() {
            clock += seconds(wait);
            let now = clock.as_secs();
            let chosen = alive.get(pick).cloned();
            match (what, chosen) {
                (0 | 1, _) => {
                    let tripped = mind.breaker().phase() != BreakerPhase::Closed;
                    let mut serial = 0;
                    let mut draw = || {
                        serial += 1;
                        AgentId::new(format!("x{n}-{serial}"))
                    };
                    let asked = (what == 0).then_some(count);
                    let effects = mind.reserved(count, asked, &mut draw, at(now));
                    reserved += count;
                    for effect in effects {
                        if let Effect::Spawn(agent) = effect {
                            if tripped {
                                trials.push(agent.clone());
                            }
                            alive.push(agent);
                        }
                    }
                }
                (2, Some(agent)) => {
                    heard(&mut mind, &agent, IDLE, None, now);
                    trials.retain(|other| other != &agent);
                }
                (3, Some(agent)) => {
                    heard(&mut mind, &agent, Standing::Leaving, fault(FaultKind::Broken), now);
                    trials.retain(|other| other != &agent);
                }
                (4, Some(agent)) => {
                    heard(&mut mind, &agent, Standing::Leaving, fault(FaultKind::Contention), now);
                    trials.retain(|other| other != &agent);
                }
                (5, Some(agent)) => {
                    heard(&mut mind, &agent, Standing::Gone, None, now);
                    alive.retain(|other| other != &agent);
                    trials.retain(|other| other != &agent);
                }
                _ => {
                    mind.settle(at(now).mono);
                }
            }
            if mind.breaker().phase() == BreakerPhase::Closed {
                trials.clear();
            }
            if let Some(news) = mind.news(at(now).mono) {
                released += news.released;
            }
            prop_assert!(mind.live() <= 4);
            prop_assert!(trials.len() <= 1);
            prop_assert_eq!(reserved, released);
        }
    }
}

// Invariant: an agent that is kept for one owner is no part of the pool: another one is ready for
// everybody, and it goes by its own idle time, below the minimum too.

#[test]
fn an_agent_of_one_owner_counts_for_no_minimum_and_goes_when_it_was_idle_for_long() {
    let mut mind = mind(|spec| {
        (spec.minimum, spec.idle, spec.cap) = (1, Some(seconds(600)), Some(4));
    });
    let agent = begin(&mut mind, 1, Some(1), 0).remove(0);
    heard(&mut mind, &agent, IDLE, None, 1);
    assert_eq!(mind.warm_need(at(1).mono), 0);
    let owner = Owner { principal: "alice".into(), owner: "build".into() };
    let mut report = a_report(&mind, &agent, IDLE);
    Arc::make_mut(&mut report.status).owner = Some(owner);
    mind.reported(&report, at(2));
    assert_eq!(mind.warm_need(at(2).mono), 1);
    assert_eq!(mind.wake(at(2).mono), Some(at(601).mono));
    let go = mind.settle(at(601).mono);
    assert_eq!(go, [Effect::Send(agent, AgentCommand::Retire(Reason::Idle))]);
}
