//! The alert rules: when a person is woken, what that person runs and reads. The rules for Prometheus, the
//! tests of these rules and the book's table are made from here.

use std::fmt::Write as _;

use drover_model::phase::{AgentPhase, BreakerPhase, CloudHealth};

use super::reference::is_generated;
use crate::metric_table::{ALL, BEFORE_READY, Kind, WHOLE_WAY};

/// Whom an alert reaches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    /// It wakes a person: work stops, or stops soon.
    Page,
    /// It waits for the next working day.
    Ticket,
}

impl Severity {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Ticket => "ticket",
        }
    }
}

/// Series with their values over time, as `promtool test rules` has them: one value a minute.
type Series = &'static [(&'static str, &'static str)];

pub(super) struct Alert {
    pub(super) name: &'static str,
    pub(super) expr: String,
    /// How long it must hold.
    pub(super) wait: &'static str,
    pub(super) severity: Severity,
    /// What is wrong, with labels of the alert in `{{ $labels.NAME }}`.
    pub(super) summary: &'static str,
    /// The command that helps.
    pub(super) command: &'static str,
    /// The page of the book, with a heading where there is one.
    pub(super) page: &'static str,
    /// Series by which it fires after three hours.
    fires: Series,
    /// The labels that it has then, besides its severity.
    labels: &'static [(&'static str, &'static str)],
    /// Series by which it stays silent.
    silent: Series,
}

const JOB: &[(&str, &str)] = &[("job", "drover")];
const INSTANCE: &[(&str, &str)] = &[("instance", "a"), ("job", "drover")];

#[rustfmt::skip]
pub(super) fn all() -> Vec<Alert> {
    let open = BreakerPhase::Open.name();
    let stranded = AgentPhase::Stranded.name();
    let degraded = CloudHealth::Degraded.name();
    let coming = BEFORE_READY.map(AgentPhase::name).join("|");
    vec![
        Alert {
            name: "DroverDown", wait: "2m", severity: Severity::Page,
            expr: r#"up{job="drover"} == 0"#.into(),
            summary: "Prometheus cannot scrape drover at {{ $labels.instance }}.",
            command: "systemctl status drover", page: "operations.md",
            fires: &[(r#"up{job="drover",instance="a"}"#, "1 0x200")], labels: INSTANCE,
            silent: &[(r#"up{job="drover",instance="a"}"#, "1x200")],
        },
        Alert {
            name: "DroverNotReady", wait: "5m", severity: Severity::Page,
            expr: "drover_ready == 0".into(),
            summary: "drover runs and cannot start agents.",
            command: "drover status", page: "troubleshooting.md",
            fires: &[(r#"drover_ready{job="drover"}"#, "0x200")], labels: JOB,
            silent: &[(r#"drover_ready{job="drover"}"#, "1x200")],
        },
        Alert {
            name: "DroverNobodyLeads", wait: "1m", severity: Severity::Page,
            expr: "max by (job) (drover_leads) == 0".into(),
            summary: "No member of the store leads: nothing starts and no lease is granted.",
            command: "drover members", page: "members.md",
            fires: &[(r#"drover_leads{job="drover",instance="a"}"#, "0x200"), (r#"drover_leads{job="drover",instance="b"}"#, "0x200")], labels: JOB,
            silent: &[(r#"drover_leads{job="drover",instance="a"}"#, "0x200"), (r#"drover_leads{job="drover",instance="b"}"#, "1x200")],
        },
        Alert {
            name: "DroverMemberMissing", wait: "15m", severity: Severity::Ticket,
            expr: r#"max by (job, role) (drover_members{role=~"silent|unfit"}) > 0"#.into(),
            summary: "{{ $value }} members of the store are {{ $labels.role }} and cannot take over.",
            command: "drover members", page: "members.md",
            fires: &[(r#"drover_members{job="drover",role="silent"}"#, "1x200")], labels: &[("job", "drover"), ("role", "silent")],
            silent: &[(r#"drover_members{job="drover",role="standby"}"#, "1x200"), (r#"drover_members{job="drover",role="silent"}"#, "0x200")],
        },
        Alert {
            name: "DroverNeedsAnAdministrator", wait: "1m", severity: Severity::Page,
            expr: "drover_alarms > 0".into(),
            summary: "{{ $value }} alarms need an administrator.",
            command: "drover alarms", page: "troubleshooting.md",
            fires: &[(r#"drover_alarms{job="drover"}"#, "1x200")], labels: JOB,
            silent: &[(r#"drover_alarms{job="drover"}"#, "0x200")],
        },
        Alert {
            name: "DroverAgentsStranded", wait: "10m", severity: Severity::Ticket,
            expr: format!(r#"drover_agents{{state="{stranded}"}} > 0"#),
            summary: "{{ $value }} guests of {{ $labels.template }} stay on the cluster: drover cannot destroy them.",
            command: "drover alarms", page: "troubleshooting.md",
            fires: &[(r#"drover_agents{template="lab/linux",state="Stranded"}"#, "1x200")], labels: &[("state", "Stranded"), ("template", "lab/linux")],
            silent: &[(r#"drover_agents{template="lab/linux",state="Stranded"}"#, "0x200"), (r#"drover_agents{template="lab/linux",state="Ready"}"#, "5x200")],
        },
        Alert {
            name: "DroverNoAgentBecomesReady", wait: "15m", severity: Severity::Page,
            expr: format!(
                "sum by (job) (increase(drover_agent_ready_seconds_count{{phase=\"{WHOLE_WAY}\"}}[30m])) == 0 \
                 and sum by (job) (drover_agents{{state=~\"{coming}\"}}) > 0"
            ),
            summary: "Agents are on their way, and none became ready for 45 minutes.",
            command: "drover why", page: "troubleshooting.md",
            fires: &[
                (r#"drover_agent_ready_seconds_count{job="drover",phase="all"}"#, "7x200"),
                (r#"drover_agents{job="drover",template="lab/linux",state="Booting"}"#, "3x200"),
            ], labels: JOB,
            silent: &[
                (r#"drover_agent_ready_seconds_count{job="drover",phase="all"}"#, "0+1x200"),
                (r#"drover_agents{job="drover",template="lab/linux",state="Booting"}"#, "3x200"),
            ],
        },
        Alert {
            name: "DroverAgentsFail", wait: "0m", severity: Severity::Page,
            expr: r#"sum by (job) (increase(drover_agents_gone_total{reason=~"failed|too-slow"}[30m])) > 10"#.into(),
            summary: "More than ten agents failed or were too slow within 30 minutes.",
            command: "drover agents --gone", page: "troubleshooting.md",
            fires: &[(r#"drover_agents_gone_total{job="drover",reason="failed"}"#, "0+1x200")], labels: JOB,
            silent: &[(r#"drover_agents_gone_total{job="drover",reason="idle"}"#, "0+1x200"), (r#"drover_agents_gone_total{job="drover",reason="failed"}"#, "0x200")],
        },
        Alert {
            name: "DroverWarmPoolEmpty", wait: "30m", severity: Severity::Ticket,
            expr: "drover_agents_idle < drover_template_idle_minimum and drover_agents_idle == 0".into(),
            summary: "The warm pool of {{ $labels.template }} is empty: each lease and job waits for a boot.",
            command: "drover why", page: "configuration.md",
            fires: &[(r#"drover_agents_idle{template="lab/linux"}"#, "0x200"), (r#"drover_template_idle_minimum{template="lab/linux"}"#, "2x200")], labels: &[("template", "lab/linux")],
            silent: &[(r#"drover_agents_idle{template="lab/linux"}"#, "1x200"), (r#"drover_template_idle_minimum{template="lab/linux"}"#, "2x200")],
        },
        Alert {
            name: "DroverLeaseWaits", wait: "5m", severity: Severity::Page,
            expr: "time() - drover_lease_waiting_since_timestamp_seconds > 1800 and drover_lease_waiting_since_timestamp_seconds > 0".into(),
            summary: "A {{ $labels.kind }} has waited for an agent for 30 minutes and more.",
            command: "drover why", page: "leases.md",
            fires: &[(r#"drover_lease_waiting_since_timestamp_seconds{kind="job"}"#, "60x200")], labels: &[("kind", "job")],
            silent: &[(r#"drover_lease_waiting_since_timestamp_seconds{kind="job"}"#, "0x200"), (r#"drover_lease_waiting_since_timestamp_seconds{kind="lease"}"#, "60+60x200")],
        },
        Alert {
            name: "DroverJobsWait", wait: "5m", severity: Severity::Page,
            expr: "time() - drover_source_waiting_since_timestamp_seconds > 1800 and drover_source_waiting_since_timestamp_seconds > 0".into(),
            summary: "A job of {{ $labels.source }} has waited for 30 minutes and more.",
            command: "drover jobs", page: "troubleshooting.md",
            fires: &[(r#"drover_source_waiting_since_timestamp_seconds{source="git"}"#, "60x200")], labels: &[("source", "git")],
            silent: &[(r#"drover_source_waiting_since_timestamp_seconds{source="git"}"#, "60+60x200")],
        },
        Alert {
            name: "DroverJobsUnserved", wait: "30m", severity: Severity::Ticket,
            expr: r#"drover_source_jobs{state="unserved"} > 0"#.into(),
            summary: "No template serves {{ $value }} jobs of {{ $labels.source }}.",
            command: "drover jobs", page: "ci/index.md",
            fires: &[(r#"drover_source_jobs{source="git",state="unserved"}"#, "2x200")], labels: &[("source", "git"), ("state", "unserved")],
            silent: &[(r#"drover_source_jobs{source="git",state="unserved"}"#, "0x200"), (r#"drover_source_jobs{source="git",state="waiting"}"#, "2x200")],
        },
        Alert {
            name: "DroverSourceSilent", wait: "10m", severity: Severity::Page,
            expr: "drover_source_silent == 1".into(),
            summary: "drover cannot poll {{ $labels.source }}: its jobs get no runners.",
            command: "drover sources", page: "ci/index.md",
            fires: &[(r#"drover_source_silent{source="git"}"#, "1x200")], labels: &[("source", "git")],
            silent: &[(r#"drover_source_silent{source="git"}"#, "0x200")],
        },
        Alert {
            name: "DroverJobLost", wait: "0m", severity: Severity::Ticket,
            expr: "increase(drover_jobs_lost_total[15m]) > 0".into(),
            summary: "A job was lost with its machine; nobody runs it again unasked.",
            command: "drover status", page: "troubleshooting.md",
            fires: &[(r#"drover_jobs_lost_total{job="drover"}"#, "0x170 1x30")], labels: JOB,
            silent: &[(r#"drover_jobs_lost_total{job="drover"}"#, "3x200")],
        },
        Alert {
            name: "DroverBreakerOpen", wait: "15m", severity: Severity::Page,
            expr: format!(r#"drover_breaker{{state="{open}"}} == 1 or drover_place_breaker{{state="{open}"}} == 1"#),
            summary: "The breaker of {{ $labels.template }}{{ $labels.place }} is open: no agent starts there.",
            command: "drover breakers", page: "troubleshooting.md",
            fires: &[(r#"drover_place_breaker{place="node:main/pve1",state="tripped"}"#, "1x200")], labels: &[("place", "node:main/pve1"), ("state", "tripped")],
            silent: &[(r#"drover_breaker{template="lab/linux",state="tripped"}"#, "0x200"), (r#"drover_breaker{template="lab/linux",state="flowing"}"#, "1x200")],
        },
        Alert {
            name: "DroverCloudDegraded", wait: "5m", severity: Severity::Page,
            expr: format!(r#"drover_cloud_health{{health="{degraded}"}} == 1"#),
            summary: "drover cannot use the cloud {{ $labels.cloud }}.",
            command: "drover clouds", page: "troubleshooting.md",
            fires: &[(r#"drover_cloud_health{cloud="lab",health="degraded"}"#, "1x200")], labels: &[("cloud", "lab"), ("health", "degraded")],
            silent: &[(r#"drover_cloud_health{cloud="lab",health="degraded"}"#, "0x200"), (r#"drover_cloud_health{cloud="lab",health="well"}"#, "1x200")],
        },
        Alert {
            name: "DroverProxmoxFails", wait: "10m", severity: Severity::Page,
            expr: "sum by (job) (rate(drover_pve_request_duration_seconds_count{outcome=~\"overloaded|timeout|broken|unsent\"}[10m])) \
                   / sum by (job) (rate(drover_pve_request_duration_seconds_count[10m])) > 0.1".into(),
            summary: "More than one in ten calls to Proxmox VE got no answer for 10 minutes.",
            command: "drover doctor", page: "proxmox.md",
            fires: &[
                (r#"drover_pve_request_duration_seconds_count{job="drover",route="GET /version",outcome="timeout"}"#, "0+2x200"),
                (r#"drover_pve_request_duration_seconds_count{job="drover",route="GET /version",outcome="done"}"#, "0+8x200"),
            ], labels: JOB,
            silent: &[
                (r#"drover_pve_request_duration_seconds_count{job="drover",route="GET /version",outcome="timeout"}"#, "0x200"),
                (r#"drover_pve_request_duration_seconds_count{job="drover",route="GET /version",outcome="done"}"#, "0+8x200"),
            ],
        },
        Alert {
            name: "DroverNotReconciled", wait: "0m", severity: Severity::Ticket,
            expr: "sum by (job) (increase(drover_reconciliations_total{result=\"unread\"}[1h])) > 2".into(),
            summary: "drover could not read a cluster several times: nothing is compared with its guests.",
            command: "drover clouds", page: "troubleshooting.md",
            fires: &[(r#"drover_reconciliations_total{job="drover",result="unread"}"#, "0+1x200")], labels: JOB,
            silent: &[(r#"drover_reconciliations_total{job="drover",result="clean"}"#, "0+1x200"), (r#"drover_reconciliations_total{job="drover",result="unread"}"#, "1x200")],
        },
        Alert {
            name: "DroverAddressesUsedUp", wait: "15m", severity: Severity::Page,
            expr: r#"drover_addresses{state="free"} == 0"#.into(),
            summary: "The pool {{ $labels.pool }} has no free address: no agent of it starts.",
            command: "drover address-pools", page: "configuration.md",
            fires: &[(r#"drover_addresses{pool="lab",state="free"}"#, "0x200")], labels: &[("pool", "lab"), ("state", "free")],
            silent: &[(r#"drover_addresses{pool="lab",state="free"}"#, "1x200"), (r#"drover_addresses{pool="lab",state="resting"}"#, "0x200")],
        },
        Alert {
            name: "DroverConfigurationRefused", wait: "10m", severity: Severity::Ticket,
            expr: "drover_config_refused == 1".into(),
            summary: "drover refused the newest configuration and works with the one before.",
            command: "drover check", page: "configuration.md",
            fires: &[(r#"drover_config_refused{job="drover"}"#, "1x200")], labels: JOB,
            silent: &[(r#"drover_config_refused{job="drover"}"#, "0x200")],
        },
        Alert {
            name: "DroverGitSyncFails", wait: "30m", severity: Severity::Ticket,
            expr: "drover_config_sync_failed == 1".into(),
            summary: "drover cannot take its configuration from git.",
            command: "drover sync", page: "git.md",
            fires: &[(r#"drover_config_sync_failed{job="drover"}"#, "1x200")], labels: JOB,
            silent: &[(r#"drover_config_sync_failed{job="drover"}"#, "0x200")],
        },
        Alert {
            name: "DroverJournalNotWritable", wait: "1m", severity: Severity::Page,
            expr: "drover_journal_writable == 0".into(),
            summary: "drover cannot write its journal: nothing new starts.",
            command: "drover alarms", page: "state.md",
            fires: &[(r#"drover_journal_writable{job="drover"}"#, "0x200")], labels: JOB,
            silent: &[(r#"drover_journal_writable{job="drover"}"#, "1x200")],
        },
        Alert {
            name: "DroverJournalSlow", wait: "10m", severity: Severity::Ticket,
            expr: "histogram_quantile(0.99, sum by (job, le) (rate(drover_journal_append_seconds_bucket[10m]))) > 0.5".into(),
            summary: "One in a hundred writes to the journal takes longer than 0.5 s: its disk or store is slow.",
            command: "drover doctor", page: "state.md",
            fires: &[
                (r#"drover_journal_append_seconds_bucket{job="drover",le="0.5"}"#, "0x200"),
                (r#"drover_journal_append_seconds_bucket{job="drover",le="1"}"#, "0+9x200"),
                (r#"drover_journal_append_seconds_bucket{job="drover",le="+Inf"}"#, "0+9x200"),
            ], labels: JOB,
            silent: &[
                (r#"drover_journal_append_seconds_bucket{job="drover",le="0.01"}"#, "0+9x200"),
                (r#"drover_journal_append_seconds_bucket{job="drover",le="0.5"}"#, "0+9x200"),
                (r#"drover_journal_append_seconds_bucket{job="drover",le="+Inf"}"#, "0+9x200"),
            ],
        },
        Alert {
            name: "DroverActorsRestart", wait: "0m", severity: Severity::Ticket,
            expr: "increase(drover_actor_restarts_total[1h]) > 0".into(),
            summary: "A part of drover panicked and was started again: report it.",
            command: "drover status", page: "troubleshooting.md",
            fires: &[(r#"drover_actor_restarts_total{job="drover"}"#, "0x150 1x50")], labels: JOB,
            silent: &[(r#"drover_actor_restarts_total{job="drover"}"#, "2x200")],
        },
        Alert {
            name: "DroverActorGivenUp", wait: "0m", severity: Severity::Page,
            expr: "drover_actors_given_up_total > 0".into(),
            summary: "A part of drover panicked too often and stays down until the service is restarted.",
            command: "drover status", page: "troubleshooting.md",
            fires: &[(r#"drover_actors_given_up_total{job="drover"}"#, "1x200")], labels: JOB,
            silent: &[(r#"drover_actors_given_up_total{job="drover"}"#, "0x200")],
        },
    ]
}

/// A text in double quotes, as YAML has it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl Alert {
    fn annotations(&self) -> [(&'static str, String); 3] {
        [
            ("summary", self.summary.to_owned()),
            ("command", self.command.to_owned()),
            ("book", format!("src/book/{}", self.page)),
        ]
    }

    /// The summary of the alert that the series make fire; its value is that of the first one.
    fn filled(&self, text: &str) -> String {
        let mut filled = text.to_owned();
        for (label, value) in self.labels {
            filled = filled.replace(&format!("{{{{ $labels.{label} }}}}"), value);
        }
        for absent in ["template", "place"] {
            filled = filled.replace(&format!("{{{{ $labels.{absent} }}}}"), "");
        }
        let value = self.fires.first().map_or("", |(_, values)| values);
        let value = value.split(['x', ' ', '+']).next().unwrap_or_default();
        filled.replace("{{ $value }}", value)
    }

    fn rule(&self, out: &mut String) {
        let Self { name, expr, wait, severity, .. } = self;
        let (expr, severity) = (quoted(expr), severity.name());
        let _ = writeln!(out, "      - alert: {name}\n        expr: {expr}");
        if *wait != "0m" {
            let _ = writeln!(out, "        for: {wait}");
        }
        let _ = writeln!(out, "        labels: {{severity: {severity}}}\n        annotations:");
        for (key, text) in self.annotations() {
            let _ = writeln!(out, "          {key}: {}", quoted(&text));
        }
    }

    fn test(&self, out: &mut String) {
        for (series, fires) in [(self.fires, true), (self.silent, false)] {
            let state = if fires { "fires" } else { "stays silent" };
            let _ = writeln!(out, "  - name: {} {state}\n    interval: 1m", self.name);
            let _ = writeln!(out, "    input_series:");
            for (series, values) in series {
                let (series, values) = (quoted(series), quoted(values));
                let _ = writeln!(out, "      - {{series: {series}, values: {values}}}");
            }
            let _ = writeln!(out, "    alert_rule_test:\n      - eval_time: 3h");
            let _ = writeln!(out, "        alertname: {}", self.name);
            if !fires {
                let _ = writeln!(out, "        exp_alerts: []");
                continue;
            }
            let _ = writeln!(out, "        exp_alerts:\n          - exp_labels:");
            for (label, value) in self.labels.iter().chain([&("severity", self.severity.name())]) {
                let _ = writeln!(out, "              {label}: {}", quoted(value));
            }
            let _ = writeln!(out, "            exp_annotations:");
            for (key, text) in self.annotations() {
                let _ = writeln!(out, "              {key}: {}", quoted(&self.filled(&text)));
            }
        }
    }
}

const MADE: &str = "# Generated from src/server/metrics/alerts.rs: \
                    `DROVER_WRITE=1 cargo test -p drover-server metrics`.\n";

fn rules() -> String {
    let mut out = format!("{MADE}groups:\n  - name: drover\n    rules:\n");
    all().iter().for_each(|alert| alert.rule(&mut out));
    out
}

fn tests_of_rules() -> String {
    let mut out =
        format!("{MADE}rule_files: [drover.rules.yaml]\nevaluation_interval: 1m\ntests:\n");
    all().iter().for_each(|alert| alert.test(&mut out));
    out
}

/// The names of drover's metrics in a query.
pub(super) fn metrics_in(query: &str) -> Vec<String> {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let names = query.split(|c| !is_name(c)).filter(|word| word.starts_with("drover_"));
    names.map(str::to_owned).collect()
}

/// Whether a series of this name is in the table.
pub(super) fn is_served(name: &str) -> bool {
    ALL.iter().any(|metric| {
        let ending = name.strip_prefix(metric.name);
        match metric.kind {
            Kind::Histogram(_) => {
                matches!(ending, Some("_bucket" | "_count" | "_sum"))
            }
            Kind::Counter | Kind::Gauge | Kind::Info => ending == Some(""),
        }
    })
}

// Invariant: an alert watches what drover serves, and says what to run and read.

#[test]
fn the_rules_and_their_tests_are_those_of_the_table_of_alerts() {
    is_generated("configs/prometheus/drover.rules.yaml", &rules());
    is_generated("configs/prometheus/drover.rules.test.yaml", &tests_of_rules());
}

#[test]
fn each_alert_watches_metrics_of_the_table_and_names_a_page_that_is_there() {
    for alert in all() {
        let names = metrics_in(&alert.expr);
        assert!(!names.is_empty() || alert.expr.starts_with("up{"), "{}", alert.name);
        for name in &names {
            assert!(is_served(name), "{}: {name}", alert.name);
        }
        let page = format!("{}/../book/{}", env!("CARGO_MANIFEST_DIR"), alert.page);
        assert!(std::path::Path::new(&page).is_file(), "{}: {page}", alert.name);
        assert!(alert.summary.ends_with('.') && !alert.command.is_empty(), "{}", alert.name);
        let is_same = alert.fires == alert.silent;
        assert!(!is_same, "{} fires and stays silent by the same series", alert.name);
    }
}
