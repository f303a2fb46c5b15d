//! Leases in the book: keys, releases, and leases that come back.

#[path = "quota_tests.rs"]
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
    let (mut broker, specs) = broker(&[("c/t", &[], 9)]);
    assert_eq!(broker.ask(&keyed("l1", "x"), &specs), Asked::New);
    let lease = LeaseId::new("l1");
    let known = |durable| Asked::Known { lease: lease.clone(), durable };
    assert_eq!(broker.ask(&keyed("l2", "x"), &specs), known(false));
    broker.recorded(&lease, true);
    assert_eq!(broker.ask(&keyed("l3", "x"), &specs), known(true));
    let conflict = broker.ask(&keyed("l4", "y"), &specs);
    assert!(matches!(conflict, Asked::Refused(Refusal::Conflict(_))));
    let mut bob = keyed("l5", "y");
    bob.principal = "bob".into();
    assert_eq!(broker.ask(&bob, &specs), Asked::New);
}

#[test]
fn keys_of_waiting_granted_and_ended_leases_outlive_a_restart() {
    let mut ledger = Ledger::default();
    ledger.waiting.push(keyed("w", "x"));
    let mut agent = entry("a1", 10_000, template("c/t", &[]), AgentPhase::Leased);
    let mut granted = keyed("g", "x");
    granted.key_hash = Some("granted".into());
    let grant = drover_model::ledger::GrantedLease {
        ask: granted.clone(),
        expires: at(99).wall,
        span_ms: None,
        runner: None,
        pending: false,
    };
    agent.leases.insert(granted.lease.clone(), grant);
    ledger.agents.insert(AgentId::new("a1"), agent);
    let mut over = keyed("e", "x");
    over.key_hash = Some("ended".into());
    let ended = drover_model::ledger::EndedLease {
        ask: over.clone(),
        agent: None,
        why: "released".into(),
        cause: String::new(),
        at: at(0).wall,
    };
    ledger.ended.insert(over.lease.clone(), ended);
    let broker = Broker::restore(&ledger);
    for ask in [keyed("w", "x"), granted, over] {
        let again = LeaseAsk { lease: LeaseId::new("new"), ..ask.clone() };
        let known = Asked::Known { lease: ask.lease.clone(), durable: true };
        assert_eq!(broker.known(&again), Some(known));
    }
    assert_eq!(broker.renewable(&LeaseId::new("g")), Ok(AgentId::new("a1")));
}

#[test]
fn an_agent_the_journal_knows_is_in_flight_before_its_template_tells_of_it() {
    let mut ledger = Ledger::default();
    ledger.waiting.push(ask("l1", named("t"), 0));
    let agent = entry("a1", 10_000, template("c/t", &[]), AgentPhase::Booting);
    ledger.agents.insert(AgentId::new("a1"), agent);
    let mut broker = Broker::restore(&ledger);
    let spec = Arc::new(template("c/t", &[]));
    broker.cloud(&spec.id.cloud, u32::MAX);
    broker.news(&news(&spec, u32::MAX), at(0).wall);
    assert!(broker.decided().is_empty());
}

#[test]
fn a_key_is_forgotten_a_day_after_its_lease_ended() {
    let (mut broker, specs) = broker(&[("c/t", &[], 0)]);
    broker.ask(&keyed("l1", "x"), &specs);
    broker.recorded(&LeaseId::new("l1"), true);
    broker.release(&LeaseId::new("l1"), &By::admin("root")).unwrap();
    broker.cancelled(&LeaseId::new("l1"), true, at(0).wall);
    let mut later = keyed("l2", "y");
    later.asked = at(24 * 3600).wall;
    assert_eq!(broker.ask(&later, &specs), Asked::New);
}

// Invariant: a release is safe to repeat, and never loses a lease on its way to an agent.

#[test]
fn a_waiting_lease_is_cancelled_and_not_handed_out_meanwhile() {
    let (mut broker, specs) = broker(&[("c/t", &[], 9)]);
    wait(&mut broker, &specs, "l1", named("t"), 0);
    let lease = LeaseId::new("l1");
    let (orders, over) = broker.release(&lease, &By::admin("root")).unwrap();
    assert_eq!((text(&orders), over), (vec!["cancelled l1".into()], false));
    assert!(broker.decided().is_empty());
    broker.cancelled(&lease, true, at(1).wall);
    assert_eq!(broker.release(&lease, &By::admin("root")), Ok((Vec::new(), true)));
}

#[test]
fn a_lease_released_on_its_way_is_ended_when_the_agent_confirms_it() {
    let (mut broker, specs) = broker(&[("c/t", &[], 0)]);
    tell(&mut broker, &specs[0], "a1", IDLE, &[]);
    wait(&mut broker, &specs, "l1", named("t"), 0);
    broker.decided();
    assert_eq!(broker.release(&LeaseId::new("l1"), &By::admin("root")), Ok((Vec::new(), false)));
    let orders = tell(&mut broker, &specs[0], "a1", Standing::Busy, &["l1"]);
    assert_eq!(text(&orders), ["end l1 on a1"]);
    let orders = tell(&mut broker, &specs[0], "a1", IDLE, &[]);
    assert_eq!(text(&orders), ["over l1"]);
}

#[test]
fn a_lease_released_on_its_way_to_an_agent_that_leaves_is_cancelled() {
    let (mut broker, specs) = broker(&[("c/t", &[], 0)]);
    tell(&mut broker, &specs[0], "a1", IDLE, &[]);
    wait(&mut broker, &specs, "l1", named("t"), 0);
    broker.decided();
    broker.release(&LeaseId::new("l1"), &By::admin("root")).unwrap();
    let orders = tell(&mut broker, &specs[0], "a1", Standing::Leaving, &[]);
    assert_eq!(text(&orders), ["cancelled l1"]);
}

fn give_back(broker: &mut Broker, spec: &Arc<TemplateSpec>, agent: &str) -> Vec<Order> {
    let mut told = news(spec, 0);
    let refused = vec![LeaseId::new("l1")];
    told.agents = vec![AgentLevel { refused, ..level(spec, agent, Standing::Leaving, &[]) }];
    broker.news(&told, at(1).wall)
}

fn one_granted() -> (Broker, Vec<Arc<TemplateSpec>>) {
    let (mut broker, specs) = broker(&[("c/t", &[], 0)]);
    tell(&mut broker, &specs[0], "a1", IDLE, &[]);
    wait(&mut broker, &specs, "l1", named("t"), 0);
    broker.decided();
    tell(&mut broker, &specs[0], "a1", Standing::Busy, &["l1"]);
    (broker, specs)
}

#[test]
fn a_lease_that_is_given_back_waits_again_until_that_happened_too_often() {
    let (mut broker, specs) = one_granted();
    for agent in ["a1", "a2", "a3"] {
        assert_eq!(text(&give_back(&mut broker, &specs[0], agent)), ["again l1"]);
        let next = format!("a{}", agent[1..].parse::<u32>().unwrap() + 1);
        tell(&mut broker, &specs[0], &next, IDLE, &[]);
        assert_eq!(text(&broker.decided()), [format!("l1 on {next}")]);
        tell(&mut broker, &specs[0], &next, Standing::Busy, &["l1"]);
    }
    assert_eq!(text(&give_back(&mut broker, &specs[0], "a4")), ["lost l1"]);
}

#[test]
fn a_lease_that_is_given_back_while_it_is_released_is_cancelled() {
    let (mut broker, specs) = one_granted();
    broker.release(&LeaseId::new("l1"), &By::admin("root")).unwrap();
    assert_eq!(text(&give_back(&mut broker, &specs[0], "a1")), ["cancelled l1"]);
}

#[test]
fn a_lease_that_came_and_ended_between_two_reports_is_over() {
    let (mut broker, specs) = broker(&[("c/t", &[], 0)]);
    tell(&mut broker, &specs[0], "a1", IDLE, &[]);
    wait(&mut broker, &specs, "l1", named("t"), 0);
    broker.decided();
    let mut told = news(&specs[0], 0);
    let over = vec![LeaseId::new("l1")];
    told.gone = vec![AgentLevel { over, ..level(&specs[0], "a1", Standing::Gone, &[]) }];
    assert_eq!(text(&broker.news(&told, at(1).wall)), ["over l1"]);
    tell(&mut broker, &specs[0], "a2", IDLE, &[]);
    assert!(broker.decided().is_empty(), "it is not given out twice");
}

#[test]
fn only_a_granted_lease_can_be_renewed() {
    let (mut broker, specs) = broker(&[("c/t", &[], 9)]);
    wait(&mut broker, &specs, "l1", named("t"), 0);
    let lease = LeaseId::new("l1");
    assert!(matches!(broker.renewable(&lease), Err(Refusal::Conflict(_))));
    assert!(matches!(broker.renewable(&LeaseId::new("no")), Err(Refusal::Unknown(_))));
    tell(&mut broker, &specs[0], "a1", IDLE, &[]);
    broker.decided();
    tell(&mut broker, &specs[0], "a1", Standing::Busy, &["l1"]);
    assert_eq!(broker.renewable(&lease), Ok(AgentId::new("a1")));
    tell(&mut broker, &specs[0], "a1", IDLE, &[]);
    assert!(matches!(broker.renewable(&lease), Err(Refusal::Conflict(_))));
}

// Invariant: nothing is kept longer than its span, however the clock is set.

#[test]
fn a_lease_that_ended_while_the_clock_was_years_ahead_is_forgotten_a_day_later() {
    const YEARS: u64 = 4 * 365 * 24 * 3600;
    let mut ledger = Ledger::default();
    let ended = drover_model::ledger::EndedLease {
        ask: LeaseAsk { key_hash: Some("key".into()), ..ask("l1", named("t"), YEARS) },
        agent: None,
        why: "cancelled".into(),
        cause: String::new(),
        at: at(YEARS).wall,
    };
    ledger.ended.insert(LeaseId::new("l1"), ended);
    let mut broker = Broker::restore(&ledger);
    let (day, lease) = (24 * 3600, LeaseId::new("l1"));
    broker.book.prune(at(1).wall);
    assert!(broker.lease(&lease).is_some());
    broker.book.prune(at(1 + day).wall);
    assert!(broker.lease(&lease).is_none());
}

// Invariant: the holder of an agent is known before somebody else holds it.

#[test]
fn an_agent_for_which_a_hold_is_being_written_down_is_handed_to_nobody() {
    let (mut broker, specs) = broker(&[("c/t", &["linux"], 0)]);
    let agent = AgentId::new("a1");
    tell(&mut broker, &specs[0], "a1", IDLE, &[]);
    wait(&mut broker, &specs, "l1", labels(&["linux"]), 0);
    broker.bar(&agent, true);
    assert!(text(&broker.decided()).is_empty());
    broker.bar(&agent, false);
    // Nor is one that another drover may have handed out.
    broker.restrain([agent].into());
    assert!(text(&broker.decided()).is_empty());
    broker.restrain(BTreeSet::new());
    assert_eq!(text(&broker.decided()), ["l1 on a1"]);
}

// Invariant: of what serves a want the smallest is taken.

#[test]
fn of_all_that_serve_a_want_the_smallest_is_begun_and_handed_out() {
    let (mut broker, mut specs) = broker(&[("c/big", &["linux"], 9), ("c/small", &["linux"], 1)]);
    specs[0] = Arc::new(TemplateSpec { memory_mb: Some(8192), ..(*specs[0]).clone() });
    broker.news(&news(&specs[0], 9), at(0).wall);
    tell(&mut broker, &specs[0], "a1", IDLE, &[]);
    tell(&mut broker, &specs[1], "a2", IDLE, &[]);
    for lease in ["l1", "l2", "l3"] {
        wait(&mut broker, &specs, lease, labels(&["linux"]), 0);
    }
    assert_eq!(text(&broker.decided()), ["l1 on a2", "l2 on a1", "start 1 c/small"]);
}

#[test]
fn a_larger_one_is_begun_where_the_smallest_has_room_on_no_node_or_its_breaker_is_open() {
    for works in [true, false] {
        let (mut broker, mut specs) =
            broker(&[("c/big", &["linux"], 9), ("c/small", &["linux"], 9)]);
        specs[0] = Arc::new(TemplateSpec { memory_mb: Some(8192), ..(*specs[0]).clone() });
        broker.news(&news(&specs[0], 9), at(0).wall);
        let small = TemplateNews { flowing: works, ..news(&specs[1], 9) };
        broker.news(&small, at(0).wall);
        if works {
            broker.fits.insert(specs[1].id.clone(), 0);
        }
        wait(&mut broker, &specs, "l1", labels(&["linux"]), 0);
        assert_eq!(text(&broker.decided()), ["start 1 c/big"], "its breaker flows: {works}");
    }
}
