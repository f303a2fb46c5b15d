//! What is shown of leases that wait, and of those a start finds in the journal.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::journal_state::{EndedLease, GrantedLease};
use drover_model::phase::{AgentPhase, CloudHealth};
use drover_model::ports::ClusterObservation;
use drover_model::record::WAITED;

use super::super::tests::{Bed, t};
use super::*;
use crate::message::ApplySpec;
use crate::testing::{
    CLUSTER, World, ask, at, cloud, entry, herd, labels, observation, on_paused_system, pass,
    seconds, template, unreachable,
};

/// When a lease ended, long before the start.
const ENDED: WallTime = WallTime(-5_000);

/// The states and details shown of a lease, repetitions left out.
fn shown(bed: &Bed, lease: &str) -> Vec<String> {
    let of = |what: &What| {
        let What::Lease(status) = what else { return None };
        let of_it = status.lease.as_str() == lease;
        of_it.then(|| format!("{}: {}", status.state, status.detail))
    };
    let mut all: Vec<String> =
        bed.world.with(|script| script.facts.iter().filter_map(|fact| of(&fact.what)).collect());
    all.dedup();
    all
}

fn last(bed: &Bed, lease: &str) -> String {
    shown(bed, lease).pop().unwrap()
}

// Invariant: anyone who waits learns why, in words that name what is in the way.

#[test]
fn a_lease_hears_what_it_waits_for_and_only_when_that_changes() {
    on_paused_system(|| async {
        let mut spec = template("c/t", &[]);
        spec.cap = Some(2);
        let bed = Bed::new(herd(vec![cloud("c", None)], vec![spec]));
        for lease in ["l1", "l2", "l3"] {
            bed.lease(ask(lease, t(), 0)).await.unwrap();
        }
        pass(seconds(2)).await;
        assert_eq!(last(&bed, "l3"), "waiting: waits for an agent: 2 starting");
        pass(seconds(60)).await;
        assert_eq!(
            last(&bed, "l3"),
            "waiting: c/t is full: 2 of 2 (`instanceCap`); `drover leases` says who has them"
        );
        let count = shown(&bed, "l3").len();
        pass(seconds(600)).await;
        assert_eq!(shown(&bed, "l3").len(), count);
    });
}

#[test]
fn a_full_cloud_a_silent_one_and_a_template_that_left_are_named() {
    on_paused_system(|| async {
        let world = World::new(&["c", "d"]);
        world.with(|script| script.identify.insert("d".into(), Err(unreachable("d"))));
        let clouds = || vec![cloud("c", Some(0)), cloud("d", None)];
        let all = vec![template("c/t", &["x"]), template("c/u", &[]), template("d/t", &["x"])];
        let bed = Bed::start(world, herd(clouds(), all), JournalState::default());
        bed.lease(ask("l1", labels(&["x"]), 0)).await.unwrap();
        bed.lease(ask("l2", Want::Template("c/u".into()), 0)).await.unwrap();
        pass(seconds(5)).await;
        let both = "waiting: cloud c is full: 0 of 0 (`instanceCap`); cloud d: nothing has been started since 20";
        assert!(last(&bed, "l1").starts_with(both), "{}", last(&bed, "l1"));
        assert_eq!(last(&bed, "l2"), "waiting: cloud c is full: 0 of 0 (`instanceCap`)");
        let fewer = (*herd(clouds(), vec![template("c/t", &["x"])])).clone();
        bed.herd.do_send(ApplySpec(Arc::new(fewer)));
        pass(seconds(5)).await;
        let left = "waiting: no configured template serves template `c/u` any more";
        assert_eq!(last(&bed, "l2"), left);
    });
}

#[test]
fn a_cloud_that_works_again_is_shown_without_its_old_trouble() {
    on_paused_system(|| async {
        let bed = Bed::new(herd(vec![cloud("c", None)], vec![template("c/t", &[])]));
        pass(seconds(5)).await;
        let lone = ClusterObservation { quorate: false, ..observation(CLUSTER) };
        for seen in [lone, observation(CLUSTER)] {
            bed.world.with(|script| script.identify.insert("c".into(), Ok(seen)));
            pass(seconds(600)).await;
        }
        let of = |what: &What| {
            let What::Cloud(status) = what else { return None };
            Some((status.health, status.detail.clone()))
        };
        let all: Vec<(CloudHealth, String)> = bed
            .world
            .with(|script| script.facts.iter().filter_map(|fact| of(&fact.what)).collect());
        assert!(all.iter().any(|(_, detail)| detail.contains("no quorum")), "{all:?}");
        assert_eq!(all.last(), Some(&(CloudHealth::Well, String::new())));
        assert!(
            all.iter().all(|(health, detail)| *health != CloudHealth::Well || detail.is_empty()),
            "{all:?}"
        );
    });
}

#[test]
fn a_tripped_breaker_is_named_with_its_end_and_cause() {
    on_paused_system(|| async {
        let bed = Bed::new(herd(vec![cloud("c", None)], vec![template("c/t", &[])]));
        let fault = Fault::new(FaultKind::Broken, Culprit::Template, "no boot disk");
        bed.world.with(|script| script.fail_with = Some(fault));
        bed.lease(ask("l1", t(), 0)).await.unwrap();
        pass(seconds(100)).await;
        let reported = last(&bed, "l1");
        assert!(
            reported.starts_with("waiting: c/t: no boot disk; its agents failed"),
            "{reported}"
        );
        assert!(
            reported.contains("Z; once the cause is repaired, `drover breakers reset c/t`"),
            "{reported}"
        );
    });
}

#[test]
fn many_waiting_leases_are_reported_changes_at_most_once_a_second() {
    on_paused_system(|| async {
        let mut narrow = cloud("c", Some(50));
        narrow.operations_per_node = 3;
        let bed = Bed::new(herd(vec![narrow], vec![template("c/t", &[])]));
        for n in 0..100 {
            bed.lease(ask(&format!("l{n}"), t(), n)).await.unwrap();
        }
        pass(seconds(30)).await;
        assert!(shown(&bed, "l99").len() <= 32, "{:?}", shown(&bed, "l99"));
    });
}

// Invariant: a lease waits for an agent as long as it may, also over a start, and is reported as ended.

#[test]
fn a_lease_that_waits_too_long_ends_in_the_journal_and_for_all_who_look() {
    on_paused_system(|| async {
        let spec = || herd(vec![cloud("c", Some(0))], vec![template("c/t", &[])]);
        let bed = Bed::new(spec());
        for (lease, wait) in [("l1", Some(90)), ("l2", Some(3000)), ("l3", None)] {
            let wait_ms = wait.map(|seconds: u64| seconds * 1000);
            bed.lease(LeaseAsk { wait_ms, ..ask(lease, t(), 0) }).await.unwrap();
        }
        pass(seconds(89)).await;
        assert!(last(&bed, "l1").starts_with("waiting"), "{}", last(&bed, "l1"));
        pass(seconds(2)).await;
        assert_eq!(last(&bed, "l1"), "ended: waited-too-long");
        assert_eq!(
            bed.world.with(|s| s.journal_state.ended[&LeaseId::new("l1")].why.clone()),
            WAITED
        );
        assert_eq!(bed.release("l1").await, Ok(()), "safe to repeat");
        // Another start of the service.
        let journal_state = bed.world.with(|script| script.journal_state.clone());
        let bed = Bed::start(World::new(&["c"]), spec(), journal_state);
        pass(seconds(2998)).await;
        assert!(last(&bed, "l2").starts_with("waiting"), "{}", last(&bed, "l2"));
        pass(seconds(3)).await;
        assert_eq!(last(&bed, "l2"), "ended: waited-too-long");
        assert!(last(&bed, "l3").starts_with("waiting"), "{}", last(&bed, "l3"));
    });
}

// Invariant: after a start every lease of the journal is shown, whatever became of it.

#[test]
fn a_start_shows_waiting_granted_and_ended_leases() {
    on_paused_system(|| async {
        let mut journal_state = JournalState::default();
        let gone = EndedLease {
            ask: ask("l1", t(), 0),
            agent: Some(AgentId::new("old")),
            why: "lost".into(),
            cause: "node n1 is offline".into(),
            at: ENDED,
        };
        journal_state.ended.insert(LeaseId::new("l1"), gone);
        let mut leased = entry("leased", 10_000, template("c/t", &[]), AgentPhase::Leased);
        let granted = GrantedLease {
            ask: ask("l2", t(), 0),
            granted: None,
            expires: at(9_000).wall,
            span_ms: None,
            runner: None,
            pending: false,
        };
        leased.leases.insert(LeaseId::new("l2"), granted.clone());
        // Its key is not in the guest yet.
        let keyed = LeaseAsk { public_key: Some("ssh-ed25519 K".into()), ..ask("l4", t(), 0) };
        let pending = GrantedLease { ask: keyed, pending: true, ..granted };
        leased.leases.insert(LeaseId::new("l4"), pending);
        journal_state.agents.insert(AgentId::new("leased"), leased);
        journal_state.waiting.push(ask("l3", t(), 0));
        let spec = herd(vec![cloud("c", Some(0))], vec![template("c/t", &[])]);
        let bed = Bed::start(World::new(&["c"]), spec, journal_state);
        assert_eq!(shown(&bed, "l1"), ["ended: lost: node n1 is offline"]);
        let is_ended =
            |fact: &&Fact| matches!(&fact.what, What::Lease(one) if one.state == LeasePhase::Ended);
        let times: Vec<WallTime> = bed
            .world
            .with(|script| script.facts.iter().filter(is_ended).map(|fact| fact.at).collect());
        assert_eq!(times, [ENDED], "it ended long before the start");
        assert_eq!(shown(&bed, "l2")[0], "ready: its agent is taken over");
        assert_eq!(shown(&bed, "l4")[0], "granted: its agent is taken over");
        assert_eq!(shown(&bed, "l3")[0], "waiting: waits for an agent");
    });
}

// Invariant: what is reported of waiting leases does not grow with their square.

#[test]
fn changes_are_reported_less_often_the_more_leases_wait() {
    on_paused_system(|| async {
        let clouds = || vec![cloud("c", Some(0))];
        let served = || herd(clouds(), vec![template("c/t", &[]), template("c/u", &[])]);
        let left = || herd(clouds(), vec![template("c/t", &[])]);
        let bed = Bed::new(served());
        for n in 0..250 {
            bed.lease(ask(&format!("l{n}"), Want::Template("c/u".into()), 0)).await.unwrap();
        }
        pass(seconds(10)).await;
        let before = shown(&bed, "l7").len();
        for turn in 0..12 {
            bed.herd.do_send(ApplySpec(if turn % 2 == 0 { left() } else { served() }));
            pass(seconds(1)).await;
        }
        let reported = shown(&bed, "l7").len() - before;
        assert!((2..=5).contains(&reported), "reported {reported} times in 12 s");
    });
}
