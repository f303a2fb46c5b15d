//! Bounds of leases: how many wait and for how long, whose they are, and what a decision costs.

use std::time::Duration;

use drover_model::record::WAITED;
use drover_model::tenant::{Quota, Whose};

use super::*;

const NO_QUOTA: Quota = Quota {
    whose: Whose::Group(String::new()),
    leases: None,
    waiting: None,
    cores: None,
    memory_mb: None,
    disk_gb: None,
};

fn of(lease: &str, principal: &str, group: Option<&str>) -> LeaseAsk {
    let group = group.map(str::to_owned);
    LeaseAsk { principal: principal.into(), group, ..ask(lease, named("t"), 0) }
}

fn admit(scheduler: &mut Scheduler, specs: &[Arc<TemplateSpec>], ask: &LeaseAsk) {
    assert_eq!(scheduler.ask(ask, specs), Asked::New, "{ask:?}");
    scheduler.recorded(&ask.lease, true);
}

fn refused(scheduler: &mut Scheduler, specs: &[Arc<TemplateSpec>], ask: &LeaseAsk) -> Refusal {
    match scheduler.ask(ask, specs) {
        Asked::Refused(refusal) => refusal,
        Asked::New | Asked::Known { .. } => panic!("{ask:?} is not refused"),
    }
}

fn too_many(scheduler: &mut Scheduler, specs: &[Arc<TemplateSpec>], ask: &LeaseAsk) -> String {
    let refusal = refused(scheduler, specs, ask);
    let Refusal::TooMany(text) = refusal else { panic!("{refusal:?}") };
    text
}

// Invariant: what waits is bounded, for each principal and for all together.

#[test]
fn a_principal_has_as_many_leases_wait_as_the_limit_and_no_more() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &[], 0)]);
    scheduler.limit(LeaseLimits { waiting: 4, waiting_each: 2, ..LeaseLimits::default() });
    admit(&mut scheduler, &specs, &of("a1", "ann", None));
    // On its way to the disk it counts already.
    assert_eq!(scheduler.ask(&of("a2", "ann", None), &specs), Asked::New);
    let text = too_many(&mut scheduler, &specs, &of("a3", "ann", None));
    assert!(text.starts_with("2 leases of principal `ann` wait, and "), "{text}");
    assert!(text.contains("`service.leases.maxWaitingPerPrincipal` is 2"), "{text}");
    for (lease, principal) in [("b1", "bob"), ("b2", "bob")] {
        admit(&mut scheduler, &specs, &of(lease, principal, None));
    }
    let text = too_many(&mut scheduler, &specs, &of("c1", "cid", None));
    assert!(text.starts_with("4 leases wait, and `service.leases.maxWaiting` is 4"), "{text}");
    // The same ask again is no other lease.
    assert!(matches!(scheduler.ask(&of("a1", "ann", None), &specs), Asked::Known { .. }));
    // An end makes room, and so does a hand-out.
    scheduler.release_by(&LeaseId::new("a1"), &By::admin("root")).unwrap();
    admit(&mut scheduler, &specs, &of("a4", "ann", None));
    report(&mut scheduler, &specs[0], "m1", IDLE, &[]);
    assert_eq!(scheduler.decided().len(), 1);
    admit(&mut scheduler, &specs, &of("c2", "cid", None));
}

#[test]
fn a_quota_bounds_leases_of_a_group_together_and_of_one_principal() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &[], 0)]);
    let group = Whose::Group("build".into());
    let dan = Whose::Principal("dan".into());
    let quotas = vec![
        Quota { whose: group, leases: Some(3), waiting: Some(2), ..NO_QUOTA },
        Quota { whose: dan, leases: Some(1), ..NO_QUOTA },
    ];
    scheduler.limit(LeaseLimits { quotas, ..LeaseLimits::default() });
    admit(&mut scheduler, &specs, &of("a1", "ann", Some("build")));
    admit(&mut scheduler, &specs, &of("b1", "bob", Some("build")));
    let text = too_many(&mut scheduler, &specs, &of("b2", "bob", Some("build")));
    assert!(text.starts_with("group `build` waits for 2 leases, and `maxWaiting`"), "{text}");
    for agent in ["m1", "m2"] {
        report(&mut scheduler, &specs[0], agent, IDLE, &[]);
    }
    assert_eq!(scheduler.decided().len(), 2);
    admit(&mut scheduler, &specs, &of("b2", "bob", Some("build")));
    let text = too_many(&mut scheduler, &specs, &of("b3", "bob", Some("build")));
    assert!(text.starts_with("group `build` has 3 leases, and `maxLeases`"), "{text}");
    admit(&mut scheduler, &specs, &of("d1", "dan", None));
    let text = too_many(&mut scheduler, &specs, &of("d2", "dan", None));
    assert!(text.starts_with("principal `dan` has 1 leases"), "{text}");
    admit(&mut scheduler, &specs, &of("e1", "eve", None));
}

#[test]
fn a_machine_beyond_a_quota_is_refused_by_every_way_to_ask_for_it() {
    let sized = |name: &str, cores: Option<u32>| {
        let mut spec = template(name, &["linux"]);
        (spec.cores, spec.memory_mb, spec.disk_gb) = (cores, Some(2048), Some(20));
        Arc::new(spec)
    };
    let specs = [sized("c/small", Some(4)), sized("c/big", Some(16)), sized("c/odd", None)];
    let mut scheduler = Scheduler::default();
    let whose = Whose::Group("build".into());
    let quota = Quota { whose, cores: Some(8), memory_mb: Some(4096), ..NO_QUOTA };
    scheduler.limit(LeaseLimits { quotas: vec![quota], ..LeaseLimits::default() });
    let want = |want: Want| LeaseAsk { want, ..of("l1", "ann", Some("build")) };
    for (wanted, why) in [
        (named("big"), "has 16 cores"),
        (labels(&["linux"]), "has 16 cores"),
        (named("odd"), "does not say how many cores it has"),
    ] {
        let refusal = refused(&mut scheduler, &specs, &want(wanted));
        let Refusal::Forbidden(text) = refusal else { panic!("{refusal:?}") };
        assert!(text.contains(why) && text.contains("`maxCores`"), "{text}");
    }
    assert_eq!(scheduler.ask(&want(named("small")), &specs), Asked::New);
    // One that stands in for another that fails serves it too.
    let mut led = template("c/led", &[]);
    (led.cores, led.memory_mb, led.fallbacks) = (Some(4), Some(2048), vec![template_id("c/big")]);
    let specs = [specs.to_vec(), vec![Arc::new(led)]].concat();
    scheduler.route(Routing::new(&[]).with(specs.iter()));
    let led = LeaseAsk { want: named("led"), ..of("l3", "ann", Some("build")) };
    let Refusal::Forbidden(text) = refused(&mut scheduler, &specs, &led) else { panic!("let in") };
    assert!(text.contains("template `c/big`"), "{text}");
    let other = LeaseAsk { want: named("big"), ..of("l2", "bob", None) };
    assert_eq!(scheduler.ask(&other, &specs), Asked::New, "it is of no group");
}

#[test]
fn who_holds_agents_has_so_many_leases_less_and_holds_none_that_is_too_large() {
    let big = Arc::new(TemplateSpec { cores: Some(16), ..template("c/big", &[]) });
    let small = Arc::new(TemplateSpec { cores: Some(2), ..template("c/small", &[]) });
    let mut scheduler = Scheduler::default();
    for (spec, agents) in [(&small, vec!["a1", "a2"]), (&big, vec!["b1"])] {
        let mut reported = news(spec, 0);
        reported.agents = agents.into_iter().map(|agent| level(spec, agent, IDLE, &[])).collect();
        scheduler.news(&reported, at_(0));
    }
    let whose = Whose::Principal("ann".into());
    let quota = Quota { whose, leases: Some(1), cores: Some(4), ..NO_QUOTA };
    scheduler.limit(LeaseLimits { quotas: vec![quota], ..LeaseLimits::default() });
    let by = |name: &str| By { principal: name.into(), group: None, all: false };
    let (ann, owner) = (by("ann"), by("ann").owner());
    let agent = AgentId::new;
    assert!(matches!(scheduler.hold_beyond(&agent("b1"), &ann), Some(Refusal::Forbidden(_))));
    assert_eq!(scheduler.hold_beyond(&agent("b1"), &by("bob")), None, "no quota is his");
    assert_eq!(scheduler.hold_beyond(&agent("a1"), &ann), None);
    scheduler.holds([(agent("a1"), owner)].into());
    assert_eq!(scheduler.hold_beyond(&agent("a1"), &ann), None, "it is theirs already");
    let Some(Refusal::TooMany(text)) = scheduler.hold_beyond(&agent("a2"), &ann) else {
        panic!("let in")
    };
    assert!(text.contains("has 0 leases and holds 1 agents"), "{text}");
    let ask = LeaseAsk { want: named("small"), ..of("l1", "ann", None) };
    assert!(matches!(refused(&mut scheduler, &[small], &ask), Refusal::TooMany(_)));
}

// Invariant: a lease waits as long as it may, and not longer, whatever the clock does.

fn overdue(scheduler: &mut Scheduler, seconds: u64) -> Vec<String> {
    text(&scheduler.waited(at(seconds).wall))
}

#[test]
fn a_lease_that_nobody_serves_in_time_ends_and_says_so() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &[], 0)]);
    scheduler.limit(LeaseLimits { wait: Duration::from_secs(600), ..LeaseLimits::default() });
    admit(&mut scheduler, &specs, &LeaseAsk { wait_ms: Some(60_000), ..of("l1", "ann", None) });
    admit(&mut scheduler, &specs, &of("l2", "ann", None));
    assert_eq!(scheduler.first_end(), Some(at(60).wall));
    assert!(overdue(&mut scheduler, 59).is_empty());
    assert_eq!(overdue(&mut scheduler, 60), [format!("{WAITED} l1")]);
    assert!(overdue(&mut scheduler, 60).is_empty(), "its record is on its way");
    scheduler.cancelled(&LeaseId::new("l1"), true, at(60).wall);
    // What the configuration says now holds for those that say nothing.
    assert_eq!(scheduler.first_end(), Some(at(600).wall));
    scheduler.limit(LeaseLimits { wait: Duration::from_secs(90), ..LeaseLimits::default() });
    assert_eq!(overdue(&mut scheduler, 90), [format!("{WAITED} l2")]);
    // A record that could not be written is written again, after a pause.
    scheduler.cancelled(&LeaseId::new("l2"), false, at(90).wall);
    assert!(overdue(&mut scheduler, 90).is_empty());
    assert_eq!(overdue(&mut scheduler, 100), [format!("{WAITED} l2")]);
}

#[test]
fn an_end_that_was_requested_and_not_written_leaves_the_wait_as_it_was() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &[], 0)]);
    admit(&mut scheduler, &specs, &LeaseAsk { wait_ms: Some(60_000), ..of("l1", "ann", None) });
    scheduler.release_by(&LeaseId::new("l1"), &By::admin("root")).unwrap();
    scheduler.cancelled(&LeaseId::new("l1"), false, at(1).wall);
    assert_eq!(scheduler.first_end(), Some(at(60).wall));
}

#[test]
fn a_wait_that_began_while_the_clock_was_ahead_lasts_no_longer() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &[], 0)]);
    let asked = at(365 * 24 * 3600).wall;
    let ahead = LeaseAsk { asked, wait_ms: Some(60_000), ..of("l1", "ann", None) };
    admit(&mut scheduler, &specs, &ahead);
    assert!(overdue(&mut scheduler, 0).is_empty());
    assert_eq!(scheduler.first_end(), Some(at(60).wall));
    assert!(overdue(&mut scheduler, 30).is_empty());
    assert_eq!(overdue(&mut scheduler, 60), [format!("{WAITED} l1")]);
}

#[test]
fn a_clock_that_is_set_neither_ends_a_wait_nor_makes_it_longer() {
    for hours in [-168, 168] {
        let (mut scheduler, specs) = scheduler(&[("c/t", &[], 0)]);
        scheduler.limit(LeaseLimits { wait: Duration::from_secs(600), ..LeaseLimits::default() });
        scheduler.at(at(0));
        admit(&mut scheduler, &specs, &LeaseAsk { wait_ms: Some(60_000), ..of("l1", "ann", None) });
        admit(&mut scheduler, &specs, &of("l2", "ann", None));
        let set =
            |seconds: u64| Now { wall: at(seconds).wall.shifted(hours * 3_600_000), ..at(seconds) };
        let overdue = |scheduler: &mut Scheduler, seconds: u64| {
            scheduler.at(set(seconds));
            text(&scheduler.waited(set(seconds).wall))
        };
        assert!(overdue(&mut scheduler, 59).is_empty(), "{hours}");
        assert_eq!(overdue(&mut scheduler, 60), [format!("{WAITED} l1")]);
        scheduler.cancelled(&LeaseId::new("l1"), true, set(60).wall);
        scheduler.limit(LeaseLimits { wait: Duration::from_secs(90), ..LeaseLimits::default() });
        assert!(overdue(&mut scheduler, 89).is_empty());
        assert_eq!(overdue(&mut scheduler, 90), [format!("{WAITED} l2")]);
        scheduler.book.judge();
        // An ended lease is known for as long as it was to be.
        scheduler.at(at(100));
        assert_eq!(scheduler.lease(&LeaseId::new("l1")).unwrap().stand, Stand::Ended(at(60).wall));
    }
}

#[test]
fn a_wait_goes_on_after_a_start_until_the_moment_it_ended_before() {
    let mut journal_state = JournalState::default();
    journal_state
        .waiting
        .push(LeaseAsk { wait_ms: Some(60_000), ..of("l1", "ann", Some("build")) });
    journal_state.waiting.push(of("l2", "ann", None));
    let mut scheduler = Scheduler::restore(&journal_state);
    assert_eq!(scheduler.first_end(), Some(at(60).wall));
    assert_eq!(scheduler.book.tally(&Whose::Principal("ann".into())).waiting, 2);
    assert_eq!(overdue(&mut scheduler, 61), [format!("{WAITED} l1")]);
}

// Invariant: a lease is its principal's, its group's and an admin's, and nobody else's.

#[test]
fn nobody_renews_releases_or_gets_at_a_lease_that_is_not_theirs() {
    let names = ["ann", "bob"];
    let groups = [None, Some("build"), Some("test")];
    for (owner, its_group) in names.iter().flat_map(|n| groups.iter().map(move |g| (*n, *g))) {
        for (name, group, all) in names
            .iter()
            .flat_map(|n| groups.iter().flat_map(move |g| [(*n, *g, false), (*n, *g, true)]))
        {
            let by = By { principal: name.into(), group: group.map(str::to_owned), all };
            let theirs = all || owner == name || (group.is_some() && group == its_group);
            let what = format!("lease of {owner} in {its_group:?}, {by:?}");
            let lease = LeaseId::new("l1");
            for stage in ["waiting", "granted", "over"] {
                let (mut scheduler, specs) = scheduler(&[("c/t", &[], 0)]);
                admit(&mut scheduler, &specs, &of("l1", owner, its_group));
                if stage != "waiting" {
                    report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
                    scheduler.decided();
                    report(&mut scheduler, &specs[0], "a1", Standing::Busy, &["l1"]);
                    let on = scheduler.theirs_on(&AgentId::new("a1"), &by);
                    assert_eq!(on.is_ok(), theirs, "{what}");
                }
                if stage == "over" {
                    report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
                }
                let before = format!("{:?}", scheduler.book);
                let released = scheduler.release_by(&lease, &by);
                assert_eq!(released.is_ok(), theirs, "{what}, {stage}");
                if !theirs {
                    assert!(matches!(released, Err(Refusal::Forbidden(_))), "{what}");
                    assert_eq!(format!("{:?}", scheduler.book), before, "{what}, {stage}");
                    assert!(scheduler.theirs(&lease, &by).is_err());
                }
            }
        }
    }
}

#[test]
fn a_lease_that_is_not_on_the_disk_yet_is_unknown_to_others() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &[], 0)]);
    assert_eq!(scheduler.ask(&of("l1", "ann", None), &specs), Asked::New);
    let bob = By { all: false, ..By::admin("bob") };
    assert!(matches!(scheduler.release_by(&LeaseId::new("l1"), &bob), Err(Refusal::Unknown(_))));
}

#[test]
fn a_lease_of_a_source_is_an_admins_alone() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &["linux"], 0)]);
    let git = sources::source("git", drover_model::demand::spec::ShareSpec::default());
    scheduler.shares(drover_model::demand::spec::ShareSpec::default(), std::iter::once(git));
    report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
    sources::wanted(&mut scheduler, "git", 1, 0, &[]);
    assert_eq!(text(&scheduler.decided()), ["use1 on a1"]);
    let (lease, by) = (LeaseId::new("use1"), By { all: false, ..By::admin("ann") });
    assert!(matches!(scheduler.release_by(&lease, &by), Err(Refusal::Forbidden(_))));
    assert!(scheduler.release_by(&lease, &By::admin("root")).is_ok());
}

// Invariant: what a decision looks at does not grow with how many wait.

#[test]
fn a_decision_looks_at_as_many_leases_as_it_may_serve_and_one_of_each_kind() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &["a"], 0), ("c/u", &["b"], 0)]);
    for n in 0..5_000 {
        let want = labels(if n % 2 == 0 { &["a"] } else { &["b"] });
        let whose = format!("p{}", n % 9);
        let ask = LeaseAsk { principal: whose, ..ask(&format!("l{n}"), want, n) };
        admit(&mut scheduler, &specs, &ask);
    }
    assert_eq!(scheduler.next_uses(at(0).wall).turns.len(), 2);
    assert!(scheduler.decided().is_empty());
    for agent in ["a1", "a2", "a3"] {
        report(&mut scheduler, &specs[0], agent, IDLE, &[]);
    }
    assert_eq!(scheduler.next_uses(at(0).wall).turns.len(), 8);
    assert_eq!(text(&scheduler.decided()), ["l0 on a1", "l2 on a2", "l4 on a3"]);
}

proptest! {
    #[test]
    fn leases_looked_at_for_a_decision_are_served_as_if_all_were_looked_at(
        asks in prop::collection::vec((0usize..3, 0u64..50, 0usize..3), 0..40),
        rooms in prop::collection::vec(0u32..4, 3),
        idle in prop::collection::vec(0usize..3, 0..4),
    ) {
        let names = ["c/t", "c/u", "c/v"];
        let carried: [&[&str]; 3] = [&["a"], &["a", "b"], &["b", "c"]];
        let wants: [&[&str]; 3] = [&["a"], &["b"], &["c"]];
        let mut templates = Vec::new();
        for at in 0..3 {
            templates.push((names[at], carried[at], rooms[at]));
        }
        let (mut scheduler, specs) = scheduler(&templates);
        for (n, (want, asked, whose)) in asks.iter().enumerate() {
            let ask = ask(&format!("l{n}"), labels(wants[*want]), *asked);
            let ask = LeaseAsk { principal: format!("p{whose}"), ..ask };
            admit(&mut scheduler, &specs, &ask);
        }
        for (n, at) in idle.iter().enumerate() {
            let mut news = news(&specs[*at], rooms[*at]);
            let mut level = level(&specs[*at], &format!("m{n}"), IDLE, &[]);
            Arc::make_mut(&mut level.status).owner = (n % 2 == 1).then(|| Owner {
                principal: format!("p{at}"),
                owner: "build".into(),
            });
            news.agents = vec![level];
            scheduler.news(&news, at_(1));
        }
        let mut all = scheduler.clone();
        all.look_at_all();
        prop_assert_eq!(text(&scheduler.decided()), text(&all.decided()));
    }

    #[test]
    fn counts_and_lines_are_those_of_the_leases_that_are_there(
        steps in prop::collection::vec((0u8..6, 0usize..8), 0..60),
    ) {
        let (mut scheduler, specs) = scheduler(&[("c/t", &[], 0)]);
        let mut last = 0;
        for (step, n) in steps {
            let lease = LeaseId::new(format!("l{n}"));
            match step {
                0 => {
                    let group = (n % 2 == 0).then_some("build");
                    let ask = of(lease.as_str(), &format!("p{}", n % 3), group);
                    if scheduler.ask(&ask, &specs) == Asked::New {
                        scheduler.recorded(&lease, n != 5);
                    }
                }
                1 => drop(scheduler.release_by(&lease, &By::admin("root"))),
                2 => {
                    let ending = scheduler.lease(&lease).is_some_and(|e| e.stand == Stand::Cancelling);
                    if ending {
                        scheduler.cancelled(&lease, n != 3, at(1).wall);
                    }
                }
                3 => drop(report(&mut scheduler, &specs[0], &format!("m{n}"), IDLE, &[])),
                4 => drop(scheduler.decided()),
                _ => {
                    last += 1;
                    scheduler.waited(at(last * 3600).wall);
                }
            }
            scheduler.book.judge();
        }
    }
}

fn at_(seconds: u64) -> WallTime {
    at(seconds).wall
}
