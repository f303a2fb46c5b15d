//! The view's invariants.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::time::Duration;

use drover_model::id::Generation;
use drover_model::phase::{AgentPhase, BreakerPhase, LeasePhase};
use drover_model::record::Reason;

use super::feed::FACTS_KEPT;
use super::*;

pub(crate) fn lease(id: &str, state: LeasePhase) -> What {
    What::Lease(Box::new(LeaseStatus {
        lease: LeaseId::new(id),
        state,
        agent: None,
        owner: "tester".into(),
        principal: "uid:0".into(),
        group: None,
        wants: "labels `linux`".into(),
        want: None,
        whole: false,
        asked: None,
        granted: None,
        expires: None,
        detail: String::new(),
    }))
}

fn agent(id: &str, state: AgentPhase) -> What {
    let template = TemplateId::new(CloudId::new("lab"), "linux");
    What::Agent(Arc::new(AgentStatus {
        phase: state,
        ..AgentStatus::started(AgentId::new(id), template, WallTime(0))
    }))
}

fn gone(id: &str) -> What {
    What::AgentGone {
        agent: AgentId::new(id),
        template: TemplateId::new(CloudId::new("lab"), "linux"),
        reason: Reason::Idle,
        phases: vec![(AgentPhase::Cloning.to_string(), 5)],
    }
}

fn reported(view: &View, what: What) {
    view.observe(Fact { at: WallTime(1), what });
}

fn number(reported: &Reported) -> u64 {
    match reported {
        Reported::Event(event) => event.id.number,
        Reported::Lagged { .. } | Reported::Elsewhere { .. } => panic!("lagged"),
    }
}

// Invariant: the view never grows past the live herd and its fixed histories.

#[test]
fn ended_leases_fall_out_of_a_bounded_history() {
    let view = View::new(1);
    for n in 0..ENDED_LEASES_KEPT + 5 {
        reported(&view, lease(&format!("l{n}"), LeasePhase::Ready));
        reported(&view, lease(&format!("l{n}"), LeasePhase::Ended));
        reported(&view, lease(&format!("l{n}"), LeasePhase::Ended));
    }
    assert_eq!(view.leases().len(), ENDED_LEASES_KEPT);
    assert_eq!(view.lease(&LeaseId::new("l4")), None);
    assert_eq!(view.lease(&LeaseId::new("l5")).unwrap().state, LeasePhase::Ended);
    assert_eq!(view.past().ended.len(), ENDED_LEASES_KEPT);
}

#[test]
fn a_lease_that_ended_keeps_the_agent_that_it_was_on() {
    let view = View::new(1);
    let on = |state, agent: Option<&str>| {
        let What::Lease(mut status) = lease("l1", state) else { panic!("a lease") };
        status.agent = agent.map(AgentId::new);
        reported(&view, What::Lease(status));
        view.lease(&LeaseId::new("l1")).unwrap().agent
    };
    assert_eq!(on(LeasePhase::Granted, Some("a1")), Some(AgentId::new("a1")));
    assert_eq!(on(LeasePhase::Waiting, None), None, "it waits for another");
    assert_eq!(on(LeasePhase::Granted, Some("a2")), Some(AgentId::new("a2")));
    assert_eq!(on(LeasePhase::Ended, None), Some(AgentId::new("a2")));
}

#[test]
fn gone_agents_leave_the_list_and_stay_in_a_bounded_history() {
    let view = View::new(1);
    for n in 0..GONE_AGENTS_KEPT + 3 {
        reported(&view, agent(&format!("a{n}"), AgentPhase::Ready));
        reported(&view, gone(&format!("a{n}")));
        reported(&view, agent(&format!("a{n}"), AgentPhase::Gone));
    }
    assert!(view.agents().is_empty());
    assert_eq!(view.gone_agents().len(), GONE_AGENTS_KEPT);
    assert_eq!(view.gone_agents()[0].agent.as_str(), "a3");
    assert_eq!(view.gone_by_reason()["idle"], (GONE_AGENTS_KEPT + 3) as u64);
}

// Invariant: what was put right is not shown as wrong.

#[test]
fn an_alarm_stands_until_its_agent_is_repaired_or_gone() {
    let view = View::new(1);
    let alarm = || What::Alarm {
        agent: AgentId::new("a"),
        text: "lock: clone stays".into(),
        command: "qm unlock 100".into(),
    };
    reported(&view, alarm());
    reported(&view, agent("a", AgentPhase::Stranded));
    assert_eq!(view.alarms().len(), 1);
    reported(&view, agent("a", AgentPhase::InDoubt));
    assert_eq!(view.alarms().len(), 0);
    reported(&view, alarm());
    reported(&view, gone("a"));
    assert_eq!(view.alarms().len(), 0);
}

fn applied(generation: u64) -> What {
    What::ConfigApplied { generation: Generation(generation), reconcile_seconds: None }
}

#[test]
fn a_refused_configuration_shows_until_a_good_one_comes_into_force() {
    let view = View::new(1);
    reported(&view, applied(1));
    reported(&view, What::ConfigRefused { text: "unknown key".into(), after: Generation(1) });
    let config = view.config();
    assert_eq!(config.generation, Some(Generation(1)));
    assert_eq!(config.refused, Some((WallTime(1), "unknown key".into())));
    reported(&view, applied(2));
    assert_eq!(view.config().refused, None);
    // The refusal overtakes what the actors report of the one before.
    reported(&view, What::ConfigRefused { text: "bad".into(), after: Generation(3) });
    reported(&view, applied(3));
    assert_eq!(view.config().refused.map(|(_, text)| text), Some("bad".into()));
    reported(&view, applied(4));
    assert_eq!(view.config().refused, None);
}

#[test]
fn a_cloud_that_went_takes_its_templates_along() {
    let view = View::new(1);
    for cloud in ["lab", "office"] {
        reported(
            &view,
            What::Template(Box::new(TemplateStatus {
                template: TemplateId::new(CloudId::new(cloud), "linux"),
                states: BTreeMap::new(),
                cap: None,
                minimum: 2,
                idle_minimum: 1,
                lack: None,
                labels: Vec::new(),
                max_uses: None,
                executors: 1,
                breaker: BreakerPhase::Closed,
                tripped: None,
                source: None,
                paused: None,
                canary: None,
                outdated: 0,
                overrides: drover_model::overridden::TemplateOverrides::default(),
            })),
        );
    }
    reported(&view, What::CloudGone { cloud: CloudId::new("lab") });
    let left: Vec<_> = view.templates().iter().map(|one| one.template.to_string()).collect();
    assert_eq!(left, ["office/linux"]);
}

// Invariant: a reader of the stream sees each fact once and in order, or learns how many it missed.

#[tokio::test]
async fn a_reader_that_comes_back_goes_on_where_it_was() {
    let view = View::new(7);
    for n in 0..5 {
        reported(&view, lease(&format!("l{n}"), LeasePhase::Waiting));
    }
    let mut reader = view.events(Some("7-3".parse().unwrap()));
    reported(&view, lease("later", LeasePhase::Waiting));
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(number(&reader.next().await.unwrap()));
    }
    assert_eq!(seen, [4, 5, 6]);
}

#[tokio::test]
async fn a_slow_reader_is_reported_how_many_facts_it_missed() {
    let view = View::new(7);
    let mut reader = view.events(None);
    for n in 0..FACTS_KEPT + 10 {
        reported(&view, lease(&format!("l{n}"), LeasePhase::Waiting));
    }
    assert_eq!(reader.next().await, Some(Reported::Lagged { missed: Some(10) }));
    assert_eq!(number(&reader.next().await.unwrap()), 11);
}

// Invariant: what another member saw while it led is never left out unsaid.

#[tokio::test]
async fn a_reader_sees_where_another_member_led_and_goes_on_behind_it() {
    let id = |text: &str| text.parse::<EventId>().unwrap();
    let view = View::new(7);
    view.mark_shared();
    let fact = || Fact { at: WallTime(1), what: lease("l", LeasePhase::Waiting) };
    let kept = |text: &str| Event { id: id(text), fact: fact() };
    // This member led the starts 3, 4 and 7.
    view.restore(["3-8", "3-9", "4-1"].map(kept).into());
    reported(&view, lease("l1", LeasePhase::Waiting));
    let read = async |after: &str| {
        let mut reader = view.events(Some(id(after)));
        let mut all = Vec::new();
        while reader.has_past() {
            all.push(match reader.next().await.unwrap() {
                Reported::Event(event) => event.id.to_string(),
                Reported::Lagged { missed } => format!("{missed:?} missed"),
                Reported::Elsewhere { after, before } => format!("({after} {before})"),
            });
        }
        all.join(" ")
    };
    assert_eq!(
        read("0").await,
        "3-8 3-9 4-1 (4-1 7-1) 7-1",
        "what fell out of the history is no gap"
    );
    assert_eq!(read("3-9").await, "4-1 (4-1 7-1) 7-1");
    assert_eq!(read("4-1").await, "(4-1 7-1) 7-1");
    assert_eq!(read("5-20").await, "(5-20 7-1) 7-1");
    assert_eq!(read("2-4").await, "(2-4 3-8) 3-8 3-9 4-1 (4-1 7-1) 7-1");
    assert_eq!(read("7-1").await, "");
    assert_eq!(read("9-1").await, "(9-1 7-2)");
    assert_eq!(view.last_event(), id("7-1"));
    let fresh = View::new(5);
    fresh.mark_shared();
    let mut reader = fresh.events(Some(EventId::OLDEST));
    let elsewhere = Reported::Elsewhere { after: id("0"), before: id("5-1") };
    assert_eq!(reader.next().await, Some(elsewhere), "it never led before");
}

#[tokio::test]
async fn a_reader_from_too_far_back_or_another_start_is_reported_so() {
    let view = View::new(7);
    for n in 0..FACTS_KEPT + 10 {
        reported(&view, lease(&format!("l{n}"), LeasePhase::Waiting));
    }
    let mut reader = view.events(Some("7-4".parse().unwrap()));
    assert_eq!(reader.next().await, Some(Reported::Lagged { missed: Some(6) }));
    assert_eq!(number(&reader.next().await.unwrap()), 11);
    let mut reader = view.events(Some("6-4".parse().unwrap()));
    assert_eq!(reader.next().await, Some(Reported::Lagged { missed: None }));
    assert_eq!(number(&reader.next().await.unwrap()), 11, "all that is kept came later");
    let mut reader = view.events(Some("0".parse().unwrap()));
    assert_eq!(number(&reader.next().await.unwrap()), 11, "the oldest that is kept");
}

#[test]
fn an_event_id_that_is_none_is_an_error() {
    for text in ["", "7", "7-", "-7", "a-b", "7-1-2"] {
        assert!(text.parse::<EventId>().is_err(), "{text}");
    }
}

// Invariant: a wait ends with the change, with the deadline, and never loses the lease.

#[tokio::test(start_paused = true)]
async fn a_wait_ends_when_the_lease_is_ready() {
    let view = View::new(1);
    reported(&view, lease("l", LeasePhase::Waiting));
    let other = view.clone();
    let task = tokio::spawn(async move {
        let deadline = Instant::now() + Duration::from_secs(60);
        other
            .wait_for_lease(&LeaseId::new("l"), |seen| seen.state == LeasePhase::Ready, deadline)
            .await
    });
    tokio::task::yield_now().await;
    reported(&view, lease("l", LeasePhase::Granted));
    tokio::task::yield_now().await;
    assert!(!task.is_finished());
    reported(&view, lease("l", LeasePhase::Ready));
    assert_eq!(task.await.unwrap().unwrap().state, LeasePhase::Ready);
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_its_deadline_with_the_last_status() {
    let view = View::new(1);
    reported(&view, lease("l", LeasePhase::Waiting));
    let started = Instant::now();
    let deadline = started + Duration::from_secs(30);
    let seen = view.wait_for_lease(&LeaseId::new("l"), |_| false, deadline).await;
    assert_eq!(seen.unwrap().state, LeasePhase::Waiting);
    assert_eq!(started.elapsed(), Duration::from_secs(30));
    assert_eq!(view.wait_for_lease(&LeaseId::new("x"), |_| true, deadline).await, None);
}

#[tokio::test(start_paused = true)]
async fn readiness_needs_the_journal_and_the_clouds() {
    let view = View::new(1);
    view.mark_clouds_tried();
    assert!(!view.readiness().ready());
    view.mark_journal_folded();
    view.wait_ready().await;
    assert!(view.ready());
    view.mark_journal(Some("no space left".into()));
    assert!(!view.ready(), "nothing can be started");
    view.mark_journal(None);
    assert!(view.ready());
}

// Invariant: a trouble has the time at which it began, however often it is found again.

#[test]
fn a_configuration_that_is_read_again_with_the_same_faults_is_refused_since_the_first_time() {
    let view = View::new(1);
    let refused = |at: i64, text: &str| {
        let what = What::ConfigRefused { text: text.to_owned(), after: Generation(1) };
        view.observe(Fact { at: WallTime(at), what });
        view.config().refused.unwrap().0
    };
    assert_eq!(refused(10, "unknown key `a`"), WallTime(10));
    assert_eq!(refused(20, "unknown key `a`"), WallTime(10));
    assert_eq!(refused(30, "unknown key `b`"), WallTime(30));
    let applied = What::ConfigApplied { generation: Generation(2), reconcile_seconds: None };
    reported(&view, applied);
    assert_eq!(refused(40, "unknown key `b`"), WallTime(40));
}

#[test]
fn an_ended_lease_has_the_time_of_its_end_until_it_leaves_the_history() {
    let view = View::new(1);
    reported(&view, lease("l", LeasePhase::Ready));
    assert_eq!(view.lease_ended(&LeaseId::new("l")), None);
    reported(&view, lease("l", LeasePhase::Ended));
    assert_eq!(view.lease_ended(&LeaseId::new("l")), Some(WallTime(1)));
    let since = |from| view.ended_since(WallTime(from)).into_iter().map(|(_, at)| at).collect();
    let (with, without): (Vec<WallTime>, Vec<WallTime>) = (since(1), since(2));
    assert_eq!((with, without), (vec![WallTime(1)], vec![]));
    for n in 0..ENDED_LEASES_KEPT {
        reported(&view, lease(&format!("l{n}"), LeasePhase::Ended));
    }
    assert_eq!(view.lease_ended(&LeaseId::new("l")), None);
}

#[test]
fn an_agent_whose_guest_came_back_and_went_again_for_another_reason_is_listed_twice() {
    let view = View::new(1);
    reported(&view, gone("a1"));
    reported(&view, gone("a1"));
    assert_eq!(view.gone_agents().len(), 1, "it was said again");
    let What::AgentGone { agent, template, phases, .. } = gone("a1") else { unreachable!() };
    reported(&view, What::AgentGone { agent, template, reason: Reason::Orphaned, phases });
    assert_eq!(view.gone_agents().len(), 2);
}

#[tokio::test]
async fn leases_that_ended_before_the_start_are_known_by_the_time_of_their_end_and_are_no_news() {
    let view = View::new(1);
    view.mark_started(WallTime(10_000));
    // As the journal has them: by their ids, which say nothing of the time.
    for n in 0..i64::try_from(ENDED_LEASES_KEPT).unwrap() + 500 {
        let what = lease(&format!("l{:04}", (n * 7) % 1500), LeasePhase::Ended);
        view.observe(Fact { at: WallTime((n * 7) % 1500), what });
    }
    assert!(!view.events(Some(EventId::OLDEST)).has_past());
    assert_eq!(view.leases().len(), ENDED_LEASES_KEPT);
    assert_eq!(view.lease_ended(&LeaseId::new("l0499")), None);
    assert_eq!(view.lease_ended(&LeaseId::new("l0500")), Some(WallTime(500)));
    let what = lease("own", LeasePhase::Waiting);
    view.observe(Fact { at: WallTime(10_001), what });
    // The clock was set back meanwhile.
    view.observe(Fact { at: WallTime(9_000), what: lease("own", LeasePhase::Ended) });
    let mut reader = view.events(Some(EventId::OLDEST));
    assert_eq!(number(&reader.next().await.unwrap()), 1);
    assert_eq!(number(&reader.next().await.unwrap()), 2);
}
