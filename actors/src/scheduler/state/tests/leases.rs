//! Leases in the book: keys, releases, and leases that come back.

mod quotas;

use super::*;
use drover_model::phase::AgentPhase;

// Invariant: one idempotency key stands for one body, also after a restart.

fn keyed(lease: &str, body: &str) -> LeaseAsk {
    let mut ask = ask(lease, named("t"), 0);
    ask.key_hash = Some("key".into());
    ask.body_hash = body.into();
    ask
}

#[test]
fn the_same_key_and_body_answer_the_same_lease_and_another_body_is_a_conflict() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &[], 9)]);
    assert_eq!(scheduler.ask(&keyed("l1", "x"), &specs), Asked::New);
    let lease = LeaseId::new("l1");
    let known = |durable| Asked::Known { lease: lease.clone(), durable };
    assert_eq!(scheduler.ask(&keyed("l2", "x"), &specs), known(false));
    scheduler.recorded(&lease, true);
    assert_eq!(scheduler.ask(&keyed("l3", "x"), &specs), known(true));
    let conflict = scheduler.ask(&keyed("l4", "y"), &specs);
    assert!(matches!(conflict, Asked::Refused(Refusal::Conflict(_))));
    let mut bob = keyed("l5", "y");
    bob.principal = "bob".into();
    assert_eq!(scheduler.ask(&bob, &specs), Asked::New);
}

#[test]
fn keys_of_waiting_granted_and_ended_leases_outlive_a_restart() {
    let mut journal_state = JournalState::default();
    journal_state.waiting.push(keyed("w", "x"));
    let mut agent = entry("a1", 10_000, template("c/t", &[]), AgentPhase::Leased);
    let mut granted = keyed("g", "x");
    granted.key_hash = Some("granted".into());
    let grant = drover_model::journal_state::GrantedLease {
        ask: granted.clone(),
        granted: None,
        expires: at(99).wall,
        span_ms: None,
        runner: None,
        pending: false,
    };
    agent.leases.insert(granted.lease.clone(), grant);
    journal_state.agents.insert(AgentId::new("a1"), agent);
    let mut over = keyed("e", "x");
    over.key_hash = Some("ended".into());
    let ended = drover_model::journal_state::EndedLease {
        ask: over.clone(),
        agent: None,
        why: "released".into(),
        cause: String::new(),
        at: at(0).wall,
    };
    journal_state.ended.insert(over.lease.clone(), ended);
    let scheduler = Scheduler::restore(&journal_state);
    for ask in [keyed("w", "x"), granted, over] {
        let again = LeaseAsk { lease: LeaseId::new("new"), ..ask.clone() };
        let known = Asked::Known { lease: ask.lease.clone(), durable: true };
        assert_eq!(scheduler.known(&again), Some(known));
    }
    assert_eq!(scheduler.renewable(&LeaseId::new("g")), Ok(AgentId::new("a1")));
}

#[test]
fn an_agent_the_journal_knows_is_in_flight_before_its_template_mentions_it() {
    let mut journal_state = JournalState::default();
    journal_state.waiting.push(ask("l1", named("t"), 0));
    let agent = entry("a1", 10_000, template("c/t", &[]), AgentPhase::Booting);
    journal_state.agents.insert(AgentId::new("a1"), agent);
    let mut scheduler = Scheduler::restore(&journal_state);
    let spec = Arc::new(template("c/t", &[]));
    scheduler.cloud(&spec.id.cloud, u32::MAX);
    scheduler.news(&news(&spec, u32::MAX), at(0).wall);
    assert!(scheduler.decided().is_empty());
}

#[test]
fn a_key_is_forgotten_a_day_after_its_lease_ended() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &[], 0)]);
    scheduler.ask(&keyed("l1", "x"), &specs);
    scheduler.recorded(&LeaseId::new("l1"), true);
    scheduler.release_by(&LeaseId::new("l1"), &By::admin("root")).unwrap();
    scheduler.cancelled(&LeaseId::new("l1"), true, at(0).wall);
    let mut later = keyed("l2", "y");
    later.asked = at(24 * 3600).wall;
    assert_eq!(scheduler.ask(&later, &specs), Asked::New);
}

// Invariant: a release is safe to repeat, and never loses a lease on its way to an agent.

#[test]
fn a_waiting_lease_is_cancelled_and_not_handed_out_meanwhile() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &[], 9)]);
    wait(&mut scheduler, &specs, "l1", named("t"), 0);
    let lease = LeaseId::new("l1");
    let (effects, over) = scheduler.release_by(&lease, &By::admin("root")).unwrap();
    assert_eq!((text(&effects), over), (vec!["cancelled l1".into()], false));
    assert!(scheduler.decided().is_empty());
    scheduler.cancelled(&lease, true, at(1).wall);
    assert_eq!(scheduler.release_by(&lease, &By::admin("root")), Ok((Vec::new(), true)));
}

#[test]
fn a_lease_released_on_its_way_is_ended_when_the_agent_confirms_it() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &[], 0)]);
    report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
    wait(&mut scheduler, &specs, "l1", named("t"), 0);
    scheduler.decided();
    assert_eq!(
        scheduler.release_by(&LeaseId::new("l1"), &By::admin("root")),
        Ok((Vec::new(), false))
    );
    let effects = report(&mut scheduler, &specs[0], "a1", Standing::Busy, &["l1"]);
    assert_eq!(text(&effects), ["end l1 on a1"]);
    let effects = report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
    assert_eq!(text(&effects), ["over l1"]);
}

#[test]
fn a_lease_released_on_its_way_to_an_agent_that_leaves_is_cancelled() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &[], 0)]);
    report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
    wait(&mut scheduler, &specs, "l1", named("t"), 0);
    scheduler.decided();
    scheduler.release_by(&LeaseId::new("l1"), &By::admin("root")).unwrap();
    let effects = report(&mut scheduler, &specs[0], "a1", Standing::Leaving, &[]);
    assert_eq!(text(&effects), ["cancelled l1"]);
}

fn give_back(scheduler: &mut Scheduler, spec: &Arc<TemplateSpec>, agent: &str) -> Vec<Effect> {
    let mut reported = news(spec, 0);
    let refused = vec![LeaseId::new("l1")];
    reported.agents = vec![AgentLevel { refused, ..level(spec, agent, Standing::Leaving, &[]) }];
    scheduler.news(&reported, at(1).wall)
}

fn one_granted() -> (Scheduler, Vec<Arc<TemplateSpec>>) {
    let (mut scheduler, specs) = scheduler(&[("c/t", &[], 0)]);
    report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
    wait(&mut scheduler, &specs, "l1", named("t"), 0);
    scheduler.decided();
    report(&mut scheduler, &specs[0], "a1", Standing::Busy, &["l1"]);
    (scheduler, specs)
}

#[test]
fn a_lease_that_is_given_back_waits_again_until_that_happened_too_often() {
    let (mut scheduler, specs) = one_granted();
    for agent in ["a1", "a2", "a3"] {
        assert_eq!(text(&give_back(&mut scheduler, &specs[0], agent)), ["again l1"]);
        let next = format!("a{}", agent[1..].parse::<u32>().unwrap() + 1);
        report(&mut scheduler, &specs[0], &next, IDLE, &[]);
        assert_eq!(text(&scheduler.decided()), [format!("l1 on {next}")]);
        report(&mut scheduler, &specs[0], &next, Standing::Busy, &["l1"]);
    }
    assert_eq!(text(&give_back(&mut scheduler, &specs[0], "a4")), ["lost l1"]);
}

#[test]
fn a_lease_that_is_given_back_while_it_is_released_is_cancelled() {
    let (mut scheduler, specs) = one_granted();
    scheduler.release_by(&LeaseId::new("l1"), &By::admin("root")).unwrap();
    assert_eq!(text(&give_back(&mut scheduler, &specs[0], "a1")), ["cancelled l1"]);
}

#[test]
fn a_lease_that_came_and_ended_between_two_reports_is_over() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &[], 0)]);
    report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
    wait(&mut scheduler, &specs, "l1", named("t"), 0);
    scheduler.decided();
    let mut reported = news(&specs[0], 0);
    let over = vec![LeaseId::new("l1")];
    reported.gone = vec![AgentLevel { over, ..level(&specs[0], "a1", Standing::Gone, &[]) }];
    assert_eq!(text(&scheduler.news(&reported, at(1).wall)), ["over l1"]);
    report(&mut scheduler, &specs[0], "a2", IDLE, &[]);
    assert!(scheduler.decided().is_empty(), "it is not given out twice");
}

#[test]
fn only_a_granted_lease_can_be_renewed() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &[], 9)]);
    wait(&mut scheduler, &specs, "l1", named("t"), 0);
    let lease = LeaseId::new("l1");
    assert!(matches!(scheduler.renewable(&lease), Err(Refusal::Conflict(_))));
    assert!(matches!(scheduler.renewable(&LeaseId::new("no")), Err(Refusal::Unknown(_))));
    report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
    scheduler.decided();
    report(&mut scheduler, &specs[0], "a1", Standing::Busy, &["l1"]);
    assert_eq!(scheduler.renewable(&lease), Ok(AgentId::new("a1")));
    report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
    assert!(matches!(scheduler.renewable(&lease), Err(Refusal::Conflict(_))));
}

// Invariant: nothing is kept longer than its span, however the clock is set.

#[test]
fn a_lease_that_ended_while_the_clock_was_years_ahead_is_forgotten_a_day_later() {
    const YEARS: u64 = 4 * 365 * 24 * 3600;
    let mut journal_state = JournalState::default();
    let ended = drover_model::journal_state::EndedLease {
        ask: LeaseAsk { key_hash: Some("key".into()), ..ask("l1", named("t"), YEARS) },
        agent: None,
        why: "cancelled".into(),
        cause: String::new(),
        at: at(YEARS).wall,
    };
    journal_state.ended.insert(LeaseId::new("l1"), ended);
    let mut scheduler = Scheduler::restore(&journal_state);
    let (day, lease) = (24 * 3600, LeaseId::new("l1"));
    scheduler.book.prune(at(1).wall);
    assert!(scheduler.lease(&lease).is_some());
    scheduler.book.prune(at(1 + day).wall);
    assert!(scheduler.lease(&lease).is_none());
}

// Invariant: the holder of an agent is known before somebody else holds it.

#[test]
fn an_agent_for_which_a_hold_is_being_written_down_is_handed_to_nobody() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &["linux"], 0)]);
    let agent = AgentId::new("a1");
    report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
    wait(&mut scheduler, &specs, "l1", labels(&["linux"]), 0);
    scheduler.bar(&agent, true);
    assert!(text(&scheduler.decided()).is_empty());
    scheduler.bar(&agent, false);
    // Nor is one that another drover may have handed out.
    scheduler.restrain([agent].into());
    assert!(text(&scheduler.decided()).is_empty());
    scheduler.restrain(BTreeSet::new());
    assert_eq!(text(&scheduler.decided()), ["l1 on a1"]);
}

// Invariant: of what serves a want the smallest is taken.

#[test]
fn of_all_that_serve_a_want_the_smallest_is_started_and_handed_out() {
    let (mut scheduler, mut specs) =
        scheduler(&[("c/big", &["linux"], 9), ("c/small", &["linux"], 1)]);
    specs[0] = Arc::new(TemplateSpec { memory_mb: Some(8192), ..(*specs[0]).clone() });
    scheduler.news(&news(&specs[0], 9), at(0).wall);
    report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
    report(&mut scheduler, &specs[1], "a2", IDLE, &[]);
    for lease in ["l1", "l2", "l3"] {
        wait(&mut scheduler, &specs, lease, labels(&["linux"]), 0);
    }
    assert_eq!(text(&scheduler.decided()), ["l1 on a2", "l2 on a1", "start 1 c/small"]);
}

#[test]
fn a_larger_one_is_started_where_the_smallest_has_room_on_no_node_or_its_breaker_is_open() {
    for works in [true, false] {
        let (mut scheduler, mut specs) =
            scheduler(&[("c/big", &["linux"], 9), ("c/small", &["linux"], 9)]);
        specs[0] = Arc::new(TemplateSpec { memory_mb: Some(8192), ..(*specs[0]).clone() });
        scheduler.news(&news(&specs[0], 9), at(0).wall);
        let small = TemplateNews { flowing: works, ..news(&specs[1], 9) };
        scheduler.news(&small, at(0).wall);
        if works {
            scheduler.fits.insert((specs[1].id.clone(), Size::NONE), 0);
        }
        wait(&mut scheduler, &specs, "l1", labels(&["linux"]), 0);
        assert_eq!(text(&scheduler.decided()), ["start 1 c/big"], "its breaker flows: {works}");
    }
}
