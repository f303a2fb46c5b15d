//! The page of metrics as scrapers get it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod alerts;
mod dashboard;
mod numbers;
mod reference;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use drover_limits::call_queue::CallLoad;
use drover_model::declared::{Drift, OnRemoval};
use drover_model::fact::What;
use drover_model::id::{
    AddressPoolId, AgentId, CloudId, ClusterId, DeclaredName, Generation, RunnerName, SourceId,
    TemplateId,
};
use drover_model::phase::{
    AgentPhase, BreakerPhase, CloudHealth, DeclaredPhase, DriftKind, LeasePhase, Power,
};
use drover_model::record::Reason;
use drover_model::scope::Scope;
use drover_model::size::Size;
use drover_model::status::{
    AddressPoolStatus, AgentStatus, BreakerStatus, CanaryStatus, CloudStatus, DeclaredStatus,
    SourceStatus, TemplateStatus,
};
use drover_model::time::WallTime;
use proxmox_client::call_route::{CallOutcome, ROUTES};

use super::*;
use crate::metric_table::{self as table, ALL, Kind, Metric, Only, Unit, Values};
use crate::testing::{lease, members, reported};

/// A view in which every metric has samples.
fn full_view() -> Arc<View> {
    let view = View::new(3);
    reported(&view, What::ConfigApplied { generation: Generation(4), reconcile_seconds: None });
    let template = TemplateId::new(CloudId::new("la\"b"), "linux");
    let seen = TemplateStatus {
        template: template.clone(),
        states: [(AgentPhase::Ready, 2), (AgentPhase::Gone, 1)].into(),
        cap: Some(5),
        lack: None,
        minimum: 2,
        idle_minimum: 1,
        labels: vec!["linux".into()],
        max_uses: None,
        executors: 1,
        breaker: BreakerPhase::Closed,
        tripped: None,
        source: None,
        paused: None,
        canary: Some(CanaryStatus::default()),
        outdated: 3,
        overrides: drover_model::overridden::TemplateOverrides::default(),
    };
    reported(&view, What::Template(Box::new(seen)));
    for (id, cores) in [("b1", Some(8)), ("b2", None)] {
        let started = AgentStatus::started(AgentId::new(id), template.clone(), WallTime(0));
        let size = Size { cores, ..Size::NONE };
        reported(&view, What::Agent(Arc::new(AgentStatus { size, ..started })));
    }
    let scope = Scope::Cloud(CloudId::new("lab"));
    let charged = BreakerStatus {
        scope,
        breaker: BreakerPhase::Open,
        tripped: None,
        template: template.clone(),
    };
    reported(&view, What::Breaker(Box::new(charged)));
    let pool = AddressPoolStatus {
        pool: AddressPoolId::new("lab"),
        ranges: vec!["10.0.0.5-10.0.0.9".into()],
        size: 5,
        used: 2,
        resting: 1,
        free: 2,
        next_free: None,
    };
    reported(&view, What::AddressPools { pools: vec![pool] });
    let machine = DeclaredStatus {
        name: DeclaredName::new("gitea"),
        id: None,
        cloud: CloudId::new("lab"),
        node: None,
        vmid: None,
        source: None,
        phase: DeclaredPhase::Kept,
        since: WallTime(0),
        declared: true,
        wanted: Power::Running,
        power: Power::Stopped,
        addresses: Vec::new(),
        drift: vec![Drift {
            kind: DriftKind::Power,
            what: "power".to_owned(),
            declared: "running".into(),
            found: "stopped".into(),
            stays: None,
        }],
        detail: String::new(),
        corrected: None,
        on_removal: OnRemoval::Keep,
        last_seen: None,
        lacks_image: false,
    };
    reported(&view, What::Declared(Box::new(machine)));
    let source = SourceStatus {
        waiting: 4,
        unoffered: 1,
        lacks: vec!["no template has `gpu`".into()],
        ignored: 1,
        runners: 2,
        running: 2,
        outage: Some((WallTime(0), "refused".into())),
        ..SourceStatus::idle(SourceId::new("git"), "gitea")
    };
    reported(&view, What::Source(Box::new(source)));
    let lost = What::JobLost {
        source: SourceId::new("git"),
        runner: RunnerName::new("drover-7k2m9qxw-4f8z1c3px9t2vkab"),
        agent: AgentId::new("4f8z1c3px9t2vkab"),
        job: None,
    };
    reported(&view, lost);
    let cloud = CloudStatus {
        cloud: CloudId::new("lab"),
        cluster: None,
        health: CloudHealth::Well,
        version: None,
        detail: String::new(),
        agents: 3,
        cap: Some(9),
        overrides: drover_model::overridden::CloudOverrides::default(),
    };
    reported(&view, What::Cloud(Box::new(cloud)));
    reported(&view, What::Lease(Box::new(lease("x", LeasePhase::Ready, Some("a1"), ""))));
    let reason = Reason::TooSlow { state: AgentPhase::Booting, text: String::new() };
    let agent = AgentId::new("a0");
    reported(&view, What::AgentGone { agent, template, reason, phases: Vec::new() });
    let alarm = What::Alarm {
        agent: AgentId::new("a3"),
        text: "`lock: clone` stays".into(),
        command: "qm unlock 10420".into(),
    };
    reported(&view, alarm);
    let level =
        CallLoad { place: "pve1".into(), is_endpoint: false, running: 3, waiting: 17, limit: 3 };
    view.meter_calls(Box::new(move || vec![(CloudId::new("lab"), vec![level.clone()])]));
    let findings = vec!["VM 101 is nobody's".to_owned()];
    let cluster = ClusterId::new("main");
    reported(&view, What::Reconciled { cluster, findings, unread: None });
    view.count_call(ROUTES[0], CallOutcome::Done, Duration::from_millis(300));
    view.count_append(Duration::from_millis(4));
    view
}

fn text(view: &View, format: Format) -> String {
    of_leader(view, Some(&members()), 0).text(format).unwrap()
}

/// The labels that a metric can have, as far as all their values are fixed.
fn fixed_series(metric: &Metric) -> Option<Vec<Vec<(&'static str, String)>>> {
    let mut all = vec![Vec::new()];
    for label in metric.labels {
        let Values::Fixed(values) = label.values else { return None };
        let longer = |series: &Vec<(&'static str, String)>| {
            let with = |value: &'static str| {
                let one = [(label.name, value.to_owned())];
                series.iter().cloned().chain(one).collect::<Vec<_>>()
            };
            values().into_iter().map(with).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    Some(all)
}

// Invariant: the page is Prometheus' text format, and its names stay.

#[test]
fn metrics_are_prometheus_text() {
    let text = text(&full_view(), Format::Prometheus);
    // One route stands for all.
    let is_shown = |line: &&str| !line.contains("route=") || line.contains("GET /version");
    let shown: Vec<&str> = text.lines().filter(is_shown).collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn metrics_that_dashboards_may_use_keep_their_names_and_labels() {
    let old = [
        ("drover_leads", ""),
        ("drover_leader_term", ""),
        ("drover_members", "role"),
        ("drover_agents", "template state"),
        ("drover_agents_sized", "template"),
        ("drover_versions_given_up", "template"),
        ("drover_agents_outdated", "template"),
        ("drover_template_cap", "template"),
        ("drover_breaker", "template state"),
        ("drover_cloud_health", "cloud health"),
        ("drover_api_calls", "cloud endpoint node"),
        ("drover_api_calls_waiting", "cloud endpoint node"),
        ("drover_api_calls_limit", "cloud endpoint node"),
        ("drover_place_breaker", "place state"),
        ("drover_addresses", "pool state"),
        ("drover_machines", "state"),
        ("drover_machine_drift", "machine kind"),
        ("drover_source_jobs", "source state"),
        ("drover_source_silent", "source"),
        ("drover_jobs_lost_total", ""),
        ("drover_leases", "state"),
        ("drover_agents_gone_total", "reason"),
        ("drover_alarms", ""),
        ("drover_actor_restarts_total", ""),
        ("drover_config_generation", ""),
        ("drover_config_refused", ""),
        ("drover_config_sync_failed", ""),
        ("drover_ready", ""),
    ];
    let labels = |metric: &Metric| metric.labels.iter().map(|label| label.name).collect::<Vec<_>>();
    let now: BTreeMap<_, _> = ALL.map(|metric| (metric.name, labels(metric).join(" "))).into();
    for (name, labels) in old {
        assert_eq!(now.get(name).map(String::as_str), Some(labels), "{name}");
    }
}

#[test]
fn a_name_says_what_its_metric_is_measured_in_and_its_help_is_a_sentence() {
    let names: BTreeSet<_> = ALL.map(|metric| metric.name).into();
    assert_eq!(names.len(), ALL.len());
    for metric in ALL {
        let (name, help) = (metric.name, metric.help);
        assert!(name.starts_with("drover_"), "{name}");
        assert_eq!(name.ends_with("_total"), metric.kind == Kind::Counter, "{name}");
        assert_eq!(name.ends_with("_seconds"), metric.unit == Unit::Seconds, "{name}");
        assert!(help.ends_with('.') && !help.contains(['\\', '\n', '"']), "{name}: {help}");
        assert!(metric.act.ends_with('.'), "{name} says what an operator does with it");
        assert!(metric.buckets().is_sorted(), "{name}");
    }
}

// Invariant: label sets are fixed, and every series is there from the start.

#[test]
fn each_series_of_fixed_labels_is_there_before_anything_happened() {
    let page = of_leader(&View::new(1), None, 0);
    let mut seen = 0;
    for metric in ALL {
        let Some(expected) = fixed_series(metric) else { continue };
        let expected: BTreeSet<_> = match metric.only {
            Only::Always => expected.into_iter().collect(),
            Only::Where(_) => BTreeSet::new(),
        };
        let found: BTreeSet<_> = page.series(metric).into_iter().collect();
        assert_eq!(found, expected, "{}", metric.name);
        seen += found.len();
    }
    assert!(seen > ROUTES.len() * CallOutcome::ALL.len(), "{seen}");
}

#[test]
fn each_metric_has_samples_with_its_own_labels_and_no_value_beside_the_list() {
    let page = of_leader(&full_view(), Some(&members()), 0);
    for metric in ALL {
        let series = page.series(metric);
        assert!(!series.is_empty(), "{} has no sample", metric.name);
        let distinct: BTreeSet<_> = series.iter().collect();
        assert_eq!(distinct.len(), series.len(), "{} has a series twice", metric.name);
        let is_at_place = metric.labels.iter().any(|label| label.name == "endpoint");
        for labels in series {
            let own: Vec<_> = metric
                .labels
                .iter()
                .filter(|label| !is_at_place || labels.iter().any(|(name, _)| *name == label.name))
                .collect();
            let names = labels.iter().map(|(name, _)| *name);
            assert!(names.eq(own.iter().map(|label| label.name)), "{}: {labels:?}", metric.name);
            for (label, (_, value)) in own.iter().zip(&labels) {
                let Values::Fixed(values) = label.values else { continue };
                assert!(values().contains(&value.as_str()), "{}: {value}", metric.name);
            }
        }
    }
}

#[test]
fn the_reasons_are_those_for_which_an_agent_can_go() {
    let source = include_str!("../../../actors/model/record/reason.rs");
    let (_, label) = source.split_once("pub fn label(&self)").unwrap();
    let (label, _) = label.split_once("\n    }\n").unwrap();
    let words = label.lines().filter_map(|line| line.split('"').nth(1));
    assert_eq!(words.collect::<Vec<_>>(), table::REASONS);
}

// Invariant: each scraper gets a format that it reads, with the same samples.

#[test]
fn a_scraper_gets_the_format_that_it_prefers() {
    let wanted = |accept: &str| {
        let mut headers = HeaderMap::new();
        let (name, value) = (HeaderName::from_static("accept"), HeaderValue::from_str(accept));
        headers.insert(name, value.unwrap());
        Format::wanted(&headers)
    };
    assert_eq!(Format::wanted(&HeaderMap::new()), Format::Prometheus);
    for (accept, format) in [
        // Prometheus 2.
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;\
             q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            Format::OpenMetrics,
        ),
        ("text/plain;version=0.0.4;q=0.9, application/openmetrics-text;q=0.2", Format::Prometheus),
        ("*/*", Format::Prometheus),
        ("text/html", Format::Prometheus),
        ("application/openmetrics-text; q=0", Format::Prometheus),
    ] {
        assert_eq!(wanted(accept), format, "{accept}");
    }
}

#[test]
fn both_formats_have_the_same_samples() {
    let view = full_view();
    let samples = |format| {
        let text = text(&view, format);
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        // Bounds are numbers, which the formats spell differently, and labels have no order.
        let spelled = |line: &str| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let labels = labels
                .trim_end_matches('}')
                .split("\",")
                .map(|label| label.trim_end_matches('"').trim_end_matches(".0").to_owned());
            let value: f64 = value.parse().unwrap();
            (name.to_owned(), labels.collect::<BTreeSet<_>>(), value.to_string())
        };
        lines.map(spelled).collect::<BTreeSet<_>>()
    };
    let (own, open) = (samples(Format::Prometheus), samples(Format::OpenMetrics));
    assert!(own.len() > 1000, "{}", own.len());
    assert_eq!(own, open);
    assert!(text(&view, Format::OpenMetrics).ends_with("\n# EOF\n"));
}

#[test]
fn a_member_that_stands_by_answers_for_itself_alone() {
    let request = actix_web::test::TestRequest::default().to_http_request();
    let answer = of_standby(&request, &members(), "m1");
    assert_eq!(answer.headers().get("content-type").unwrap(), Format::Prometheus.content_type());
    let body = actix_web::body::MessageBody::try_into_bytes(answer.into_body()).unwrap();
    let text = String::from_utf8(body.to_vec()).unwrap();
    let names: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    insta::assert_snapshot!(names.join("\n"), @r"
    drover_leads gauge
    drover_leader_term gauge
    drover_members gauge
    drover_config_refused gauge
    drover_build_info gauge
    ");
}
