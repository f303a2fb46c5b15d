//! The dashboard for Grafana: one panel for each metric of the table, in a row for each section, and
//! above them what is looked at first.

use serde_json::{Value, json};

use super::alerts::{is_served, metrics_in};
use super::reference::is_generated;
use crate::metric_table::{ALL, Chart, Kind, Metric, Section, Unit};

/// The width of the dashboard in Grafana's units, and the height of a panel of each kind.
const WIDTH: usize = 24;
const GLANCE_HEIGHT: usize = 4;
const PANEL_HEIGHT: usize = 8;

fn title(section: Section) -> &'static str {
    match section {
        Section::Herd => "Herd",
        Section::Waits => "Leases, jobs and their waits",
        Section::Proxmox => "Proxmox VE",
        Section::Breakers => "Breakers",
        Section::Service => "Service",
        Section::Members => "Members",
    }
}

fn is_time(metric: &Metric) -> bool {
    metric.name.ends_with("_timestamp_seconds")
}

/// The queries of a metric's panel, each with its legend.
fn queries(metric: &Metric) -> Vec<(String, String)> {
    let name = metric.name;
    let labels: Vec<&str> = metric.labels.iter().map(|label| label.name).collect();
    let by = labels.join(", ");
    let legend =
        labels.iter().map(|label| format!("{{{{{label}}}}}")).collect::<Vec<_>>().join(" ");
    let legend = match metric.chart {
        Chart::Beside(_) => format!("{legend} {}", metric.title).trim().to_owned(),
        Chart::Lines | Chart::States if legend.is_empty() => metric.title.to_owned(),
        Chart::Lines | Chart::States => legend,
    };
    let all = format!("{name}{{job=~\"$job\"}}");
    match metric.kind {
        Kind::Histogram(_) => {
            let first = labels.first().map_or(String::new(), |label| format!(", {label}"));
            let named = labels.first().map_or(String::new(), |label| format!("{{{{{label}}}}} "));
            let quantile = |q: &str| {
                format!(
                    "histogram_quantile({q}, sum by (le{first}) \
                     (rate({name}_bucket{{job=~\"$job\"}}[$__rate_interval])))"
                )
            };
            vec![
                (quantile("0.5"), format!("{named}p50")),
                (quantile("0.95"), format!("{named}p95")),
            ]
        }
        Kind::Counter if by.is_empty() => vec![(format!("sum(increase({all}[1h]))"), legend)],
        Kind::Counter => vec![(format!("sum by ({by}) (increase({all}[1h]))"), legend)],
        // Each member has a value of its own.
        Kind::Gauge if is_time(metric) => {
            let by = if by.is_empty() { "instance".to_owned() } else { by };
            vec![(format!("time() - max by ({by}) ({all} > 0)"), legend)]
        }
        Kind::Gauge if metric.section == Section::Members || by.is_empty() => {
            let by = [labels.as_slice(), &["instance"]].concat().join(", ");
            vec![(format!("max by ({by}) ({all})"), format!("{legend} {{{{instance}}}}"))]
        }
        // One of the states holds, and the others are 0.
        Kind::Gauge if metric.chart == Chart::States => {
            vec![(format!("max by ({by}) ({all} == 1)"), legend)]
        }
        Kind::Gauge => vec![(format!("sum by ({by}) ({all})"), legend)],
        Kind::Info => vec![(format!("count by ({by}) ({all})"), legend)],
    }
}

fn unit(metric: &Metric) -> &'static str {
    match metric.unit {
        Unit::Seconds => "s",
        Unit::None => "short",
    }
}

fn panel(id: usize, kind: &str, title: &str, place: Value) -> Value {
    json!({
        "id": id, "type": kind, "title": title, "gridPos": place,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
    })
}

fn with_queries(mut panel: Value, unit: &str, queries: &[(String, String)]) -> Value {
    let targets = queries.iter().zip('A'..='Z').map(|((query, legend), id)| {
        json!({"refId": id.to_string(), "expr": query, "legendFormat": legend})
    });
    panel["targets"] = targets.collect();
    panel["fieldConfig"] = json!({"defaults": {"unit": unit, "min": 0}, "overrides": []});
    panel
}

/// What is looked at first: title, unit, query.
fn glance() -> [(&'static str, &'static str, &'static str); 6] {
    [
        ("Ready", "bool_yes_no", "min(drover_ready{job=~\"$job\"})"),
        ("Alarms", "short", "sum(drover_alarms{job=~\"$job\"})"),
        ("Agents", "short", "sum(drover_agents{job=~\"$job\"})"),
        ("Jobs that wait", "short", "sum(drover_source_jobs{job=~\"$job\",state=\"waiting\"})"),
        (
            "Served by the warm pool, last hour",
            "percentunit",
            "sum(increase(drover_leases_served_total{job=~\"$job\",agent=\"ready\"}[1h])) \
             / sum(increase(drover_leases_served_total{job=~\"$job\"}[1h]))",
        ),
        (
            "Wait of leases and jobs, p95 of the last hour",
            "s",
            "histogram_quantile(0.95, sum by (le) \
             (increase(drover_lease_wait_seconds_bucket{job=~\"$job\"}[1h])))",
        ),
    ]
}

/// A text without the targets of its links, which lead into the book.
fn without_links(text: &str) -> String {
    let mut parts = text.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    let plain = parts
        .fold(first, |plain, part| plain + part.split_once(')').map_or(part, |(_, rest)| rest));
    plain.replace('[', "")
}

/// A panel: its kind, title, description, unit and queries.
type Shown = (&'static str, String, String, &'static str, Vec<(String, String)>);

/// The panels of a section: of each metric with those that stand beside it, and of the outcomes where a
/// histogram has more than one label.
fn panels_of(section: Section) -> Vec<Shown> {
    let mut panels = Vec::new();
    for metric in ALL.into_iter().filter(|metric| metric.section == section) {
        let kind = match metric.chart {
            Chart::Lines => "timeseries",
            Chart::States => "state-timeline",
            Chart::Beside(_) => continue,
        };
        let with = |other: &&&Metric| other.chart == Chart::Beside(metric.name);
        let all: Vec<&Metric> = ALL.iter().filter(with).fold(vec![metric], |mut all, other| {
            all.push(*other);
            all
        });
        let about =
            all.iter().map(|one| format!("{}: {} {}", one.name, one.help, without_links(one.act)));
        let about = about.collect::<Vec<_>>().join(" ");
        let queries = all.iter().flat_map(|one| queries(one)).collect();
        panels.push((kind, metric.title.to_owned(), about.clone(), unit(metric), queries));
        if let (Kind::Histogram(_), [_, label]) = (metric.kind, metric.labels) {
            let (name, label) = (metric.name, label.name);
            let query =
                format!("sum by ({label}) (rate({name}_count{{job=~\"$job\"}}[$__rate_interval]))");
            let title = format!("{}: rate by {label}", metric.title);
            panels.push((kind, title, about, "ops", vec![(query, format!("{{{{{label}}}}}"))]));
        }
    }
    panels
}

fn dashboard() -> Value {
    let mut panels = Vec::new();
    let (mut id, mut y) = (0, 0);
    let all = glance();
    let width = WIDTH / all.len();
    for (at, (title, unit, query)) in all.into_iter().enumerate() {
        id += 1;
        let place = json!({"x": at * width, "y": y, "w": width, "h": GLANCE_HEIGHT});
        let query = (query.to_owned(), String::new());
        panels.push(with_queries(panel(id, "stat", title, place), unit, &[query]));
    }
    y += GLANCE_HEIGHT;
    for section in Section::ALL {
        id += 1;
        let place = json!({"x": 0, "y": y, "w": WIDTH, "h": 1});
        let row = json!({
            "id": id, "type": "row", "title": title(section), "gridPos": place,
            "collapsed": false, "panels": [],
        });
        panels.push(row);
        y += 1;
        let own: Vec<_> = panels_of(section);
        for (at, (kind, title, about, unit, queries)) in own.iter().enumerate() {
            id += 1;
            let (column, line) = (at % 3, at / 3);
            let place = json!({
                "x": column * WIDTH / 3, "y": y + line * PANEL_HEIGHT, "w": WIDTH / 3, "h": PANEL_HEIGHT,
            });
            let mut made = panel(id, kind, title, place);
            made["description"] = about.as_str().into();
            panels.push(with_queries(made, unit, queries));
        }
        y += own.len().div_ceil(3) * PANEL_HEIGHT;
    }
    json!({
        "title": "drover", "uid": "drover", "tags": ["drover", "ci"], "schemaVersion": 39, "version": 1,
        "editable": true, "refresh": "30s", "time": {"from": "now-6h", "to": "now"},
        "description": "Generated from the metric table of drover: \
                        `DROVER_WRITE=1 cargo test -p drover-server metrics`.",
        "templating": {"list": [
            {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
            {
                "name": "job", "label": "Job", "type": "query", "refresh": 2, "includeAll": true,
                "multi": true, "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "query": {"query": "label_values(drover_build_info, job)", "refId": "job"},
                "current": {"text": "All", "value": "$__all"},
            },
        ]},
        "panels": panels,
    })
}

// Invariant: the dashboard shows each metric, and nothing that is not served.

#[test]
fn the_dashboard_is_that_of_the_metric_table() {
    let text = serde_json::to_string_pretty(&dashboard()).unwrap();
    is_generated("configs/grafana/drover.json", &format!("{text}\n"));
}

#[test]
fn each_metric_has_a_panel_and_each_panel_has_metrics_that_are_served() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    let shown: Vec<String> = queries.iter().flat_map(|query| metrics_in(query)).collect();
    for name in &shown {
        assert!(is_served(name), "{name}");
    }
    let mut about = panels.iter().filter_map(|panel| panel["description"].as_str());
    assert!(about.all(|text| !text.contains(".md")), "a link leads nowhere in Grafana");
    for metric in ALL {
        assert!(!metric.title.is_empty(), "{} has no title", metric.name);
        let is_shown = shown.iter().any(|name| name.starts_with(metric.name));
        assert!(is_shown, "{} has no panel", metric.name);
    }
    assert!(queries.iter().all(|query| query.contains("$job")), "{queries:?}");
}

#[test]
fn no_panel_lies_on_another_and_none_leaves_the_dashboard() {
    let dashboard = dashboard();
    let number = |panel: &Value, key: &str| panel["gridPos"][key].as_u64().unwrap();
    let mut taken = std::collections::BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let (x, y) = (number(panel, "x"), number(panel, "y"));
        assert!(x + number(panel, "w") <= WIDTH as u64, "{}", panel["title"]);
        for cell in (x..x + number(panel, "w"))
            .flat_map(|x| (y..y + number(panel, "h")).map(move |y| (x, y)))
        {
            assert!(taken.insert(cell), "{} lies on another panel", panel["title"]);
        }
    }
}
