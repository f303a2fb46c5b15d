//! What happens, as it shows in the figures.

use drover_model::fact::Fact;
use drover_model::id::{LeaseId, NodeName};
use drover_model::ports::Observer as _;
use drover_model::status::LeaseStatus;

use super::*;

const SECOND: i64 = 1000;

fn at(view: &View, seconds: i64, what: What) {
    view.observe(Fact { at: WallTime(seconds * SECOND), what });
}

/// The value of a series on the page.
fn figure(view: &View, series: &str) -> String {
    let text = of_leader(view, None, 0).text(Format::Prometheus).unwrap();
    let found = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no series {series}")).to_owned()
}

fn agent(phase: AgentPhase, since: i64, phases: &[(&str, u64)]) -> What {
    let template = TemplateId::new(CloudId::new("lab"), "linux");
    let started = AgentStatus::started(AgentId::new("a1"), template, WallTime(since * SECOND));
    let phases = phases.iter().map(|(part, seconds)| ((*part).to_owned(), seconds * 1000));
    What::Agent(Arc::new(AgentStatus { phase, phases: phases.collect(), ..started }))
}

fn lease_of(principal: &str, state: LeasePhase, asked: i64) -> What {
    What::Lease(Box::new(LeaseStatus {
        lease: LeaseId::new(format!("{principal}-{asked}")),
        principal: principal.to_owned(),
        asked: Some(WallTime(asked * SECOND)),
        granted: None,
        ..lease("", state, Some("a1"), "")
    }))
}

// Invariant: the way of an agent counts once, by phase and as a whole, from the times of its phases.

#[test]
fn an_agent_that_becomes_ready_counts_with_each_phase_and_its_steps() {
    let view = View::new(1);
    at(&view, 0, agent(AgentPhase::Queued, 0, &[]));
    at(&view, 9, agent(AgentPhase::Preparing, 9, &[("Queued", 2), ("Cloning", 7)]));
    let way = [
        ("Queued", 2),
        ("Cloning", 7),
        ("Preparing: cloud-init", 20),
        ("Preparing: script", 3),
        ("Ready", 0),
    ];
    at(&view, 32, agent(AgentPhase::Ready, 32, &way));
    // Used, reset and ready again: it is ready for the first time once.
    at(&view, 40, agent(AgentPhase::Resetting, 40, &way));
    at(&view, 50, agent(AgentPhase::Ready, 50, &way));
    for (phase, count, sum) in [
        ("Queued", "1", "2.0"),
        ("Preparing", "1", "23.0"),
        ("Booting", "0", "0.0"),
        ("all", "1", "32.0"),
    ] {
        let series = |end: &str| format!("drover_agent_ready_seconds_{end}{{phase=\"{phase}\"}}");
        assert_eq!(figure(&view, &series("count")), count, "{phase}");
        assert_eq!(figure(&view, &series("sum")), sum, "{phase}");
    }
    let bucket = "drover_agent_ready_seconds_bucket{phase=\"all\",le=\"30\"}";
    assert_eq!(figure(&view, bucket), "0");
    assert_eq!(figure(&view, &bucket.replace("30", "60")), "1");
}

#[test]
fn an_agent_of_an_earlier_start_counts_in_no_way() {
    let view = View::new(1);
    let whole = "drover_agent_ready_seconds_count{phase=\"all\"}";
    at(&view, 0, agent(AgentPhase::Ready, 0, &[("Cloning", 7)]));
    assert_eq!(figure(&view, whole), "0", "it was ready before");
    let view = View::new(2);
    at(&view, 0, agent(AgentPhase::Booting, 0, &[]));
    at(&view, 5, agent(AgentPhase::Ready, 5, &[("before this start", 60), ("Booting", 5)]));
    assert_eq!(figure(&view, whole), "0", "a part of its way is not known");
}

// Invariant: a wait counts once, when its lease can be used, and says whether the warm pool served it.

#[test]
fn a_lease_on_an_agent_that_was_ready_before_is_a_hit_of_the_warm_pool() {
    let view = View::new(1);
    at(&view, 10, agent(AgentPhase::Ready, 10, &[]));
    for (asked, ready) in [(10, 11), (9, 15)] {
        at(&view, asked, lease_of("token:ci", LeasePhase::Waiting, asked));
        at(&view, ready, lease_of("token:ci", LeasePhase::Granted, asked));
        at(&view, ready, lease_of("token:ci", LeasePhase::Ready, asked));
        at(&view, ready + 1, lease_of("token:ci", LeasePhase::Ready, asked));
    }
    let served = |by: &str| {
        figure(&view, &format!("drover_leases_served_total{{kind=\"lease\",agent=\"{by}\"}}"))
    };
    assert_eq!((served("ready"), served("awaited")), ("1".to_owned(), "1".to_owned()));
    assert_eq!(figure(&view, "drover_lease_wait_seconds_sum{kind=\"lease\"}"), "7.0");
    assert_eq!(figure(&view, "drover_lease_wait_seconds_count{kind=\"lease\"}"), "2");
    assert_eq!(figure(&view, "drover_lease_wait_seconds_count{kind=\"job\"}"), "0");
}

#[test]
fn a_runner_for_a_job_counts_apart_and_a_lease_that_the_journal_had_does_not_count() {
    let view = View::new(1);
    view.mark_started(WallTime(100 * SECOND));
    at(&view, 101, lease_of("source:git", LeasePhase::Ready, 40));
    assert_eq!(figure(&view, "drover_lease_wait_seconds_count{kind=\"job\"}"), "0");
    at(&view, 130, lease_of("source:git", LeasePhase::Ready, 110));
    assert_eq!(figure(&view, "drover_lease_wait_seconds_sum{kind=\"job\"}"), "20.0");
    let awaited = "drover_leases_served_total{kind=\"job\",agent=\"awaited\"}";
    assert_eq!(figure(&view, awaited), "1");
}

#[test]
fn the_oldest_wait_stands_until_its_lease_is_granted() {
    let view = View::new(1);
    let series = "drover_lease_waiting_since_timestamp_seconds{kind=\"lease\"}";
    at(&view, 20, lease_of("token:ci", LeasePhase::Waiting, 20));
    at(&view, 50, lease_of("token:ci", LeasePhase::Waiting, 50));
    assert_eq!(figure(&view, series), "20.0");
    at(&view, 60, lease_of("token:ci", LeasePhase::Granted, 20));
    assert_eq!(figure(&view, series), "50.0");
    at(&view, 60, lease_of("token:ci", LeasePhase::Granted, 50));
    assert_eq!(figure(&view, series), "0.0");
}

// Invariant: what goes wrong counts each time that it happens.

#[test]
fn a_breaker_counts_when_it_opens_and_not_while_it_stays_open() {
    let view = View::new(1);
    let charged = |breaker| {
        let template = TemplateId::new(CloudId::new("lab"), "linux");
        let scope = Scope::Node(ClusterId::new("main"), NodeName::new("pve1"));
        What::Breaker(Box::new(BreakerStatus { scope, breaker, tripped: None, template }))
    };
    for breaker in [
        BreakerPhase::Closed,
        BreakerPhase::Open,
        BreakerPhase::Open,
        BreakerPhase::HalfOpen,
        BreakerPhase::Open,
    ] {
        at(&view, 1, charged(breaker));
    }
    let opened = |what: &str| {
        figure(&view, &format!("drover_breaker_openings_total{{protects=\"{what}\"}}"))
    };
    assert_eq!(opened("node"), "2");
    assert_eq!(opened("cloud"), "0");
}

#[test]
fn a_breaker_that_an_earlier_start_opened_does_not_open_again() {
    let view = View::new(1);
    let open = |node: &str| {
        let template = TemplateId::new(CloudId::new("lab"), "linux");
        let scope = Scope::Node(ClusterId::new("main"), NodeName::new(node));
        What::Breaker(Box::new(BreakerStatus {
            scope,
            breaker: BreakerPhase::Open,
            tripped: None,
            template,
        }))
    };
    let opened = || figure(&view, "drover_breaker_openings_total{protects=\"node\"}");
    at(&view, 1, open("pve1"));
    assert_eq!(opened(), "0");
    view.mark_journal_folded();
    view.mark_clouds_tried();
    at(&view, 2, open("pve1"));
    at(&view, 2, open("pve2"));
    assert_eq!(opened(), "1");
}

#[test]
fn a_cluster_that_cannot_be_read_keeps_the_time_of_its_last_reconciliation() {
    let view = View::new(1);
    let reconciled = |findings: &[&str], unread: Option<&str>| What::Reconciled {
        cluster: ClusterId::new("main"),
        findings: findings.iter().map(|text| (*text).to_owned()).collect(),
        unread: unread.map(str::to_owned),
    };
    at(&view, 10, reconciled(&[], None));
    at(&view, 20, reconciled(&["VM 101 is nobody's"], None));
    at(&view, 30, reconciled(&[], Some("no route")));
    for result in ["clean", "findings", "unread"] {
        let series = format!("drover_reconciliations_total{{result=\"{result}\"}}");
        assert_eq!(figure(&view, &series), "1", "{result}");
    }
    assert_eq!(figure(&view, "drover_reconciled_timestamp_seconds{cluster=\"main\"}"), "20.0");
}

#[test]
fn an_actor_that_is_given_up_counts_beside_its_restarts() {
    let view = View::new(1);
    for gave_up in [false, false, true] {
        at(&view, 1, What::Restarted { actor: "cloud lab".into(), count: 1, gave_up });
    }
    assert_eq!(figure(&view, "drover_actor_restarts_total"), "3");
    assert_eq!(figure(&view, "drover_actors_given_up_total"), "1");
}

#[test]
fn a_call_and_a_write_count_with_their_durations() {
    let view = View::new(1);
    let route = ROUTES.into_iter().find(|route| route.name == "GET /version").unwrap();
    view.count_call(route, CallOutcome::TimedOut, Duration::from_secs(60));
    view.count_append(Duration::from_millis(40));
    view.count_limit_wait("destroy", Duration::from_secs(3));
    let waited = |task| figure(&view, &format!("drover_limit_wait_seconds_sum{{task=\"{task}\"}}"));
    assert_eq!((waited("destroy"), waited("start")), ("3.0".to_owned(), "0.0".to_owned()));
    let series = |outcome: &str| {
        let labels = format!("{{route=\"GET /version\",outcome=\"{outcome}\"}}");
        figure(&view, &format!("drover_pve_request_duration_seconds_sum{labels}"))
    };
    assert_eq!((series("timeout"), series("done")), ("60.0".to_owned(), "0.0".to_owned()));
    assert_eq!(figure(&view, "drover_journal_append_seconds_sum"), "0.04");
    assert_eq!(figure(&view, "drover_journal_append_seconds_bucket{le=\"0.01\"}"), "0");
    assert_eq!(figure(&view, "drover_journal_append_seconds_bucket{le=\"0.05\"}"), "1");
}
