//! Metrics as Prometheus' own tool reads them: a scrape of a service at work, the alert rules with their
//! tests, and the queries of the dashboard.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{Service, Site, world};

/// Prometheus' tool, where it is installed: `DROVER_TEST_PROMTOOL` names it.
fn promtool() -> Option<PathBuf> {
    let found = std::env::var_os("DROVER_TEST_PROMTOOL").map(PathBuf::from);
    assert!(
        found.is_some() || std::env::var_os("DROVER_TEST_PROGRAMS").is_none(),
        "DROVER_TEST_PROMTOOL does not name promtool"
    );
    found
}

fn configs(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("configs").join(file)
}

/// Runs the tool with this text as its standard input, and gives what it says.
fn check(tool: &Path, args: &[&str], file: Option<&Path>, input: &str) -> String {
    let mut command = Command::new(tool);
    command.args(args).args(file).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    assert!(out.status.success(), "{args:?} {file:?}: {said}");
    said
}

fn scrape(site: &Site, accept: &str) -> String {
    let mut curl = Command::new("curl");
    curl.args(["-sSf", "-H", &format!("Accept: {accept}"), "--unix-socket"]);
    let socket = site.dir.path().join("drover.sock");
    let out = curl.arg(socket).arg("http://drover/metrics").output().unwrap();
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout).unwrap()
}

/// The values of the series whose name and labels start so.
fn values(text: &str, series: &str) -> Vec<f64> {
    let lines = text.lines().filter(|line| line.starts_with(series));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).collect()
}

// Invariant: Prometheus takes what drover serves, and the figures are those of what happened.

#[test]
fn a_scrape_of_a_service_at_work_has_what_happened_and_no_fault() {
    let Some(tool) = promtool() else { return };
    let (_dir, _sim, site) = world();
    let _service = Service::start(&site);
    let out = site.cli(&["lease", "--labels", "linux", "--", "true"]);
    assert!(out.status.success(), "{out:?}");
    let text = scrape(&site, "text/plain");
    check(&tool, &["check", "metrics"], None, &text);
    for (series, count) in [
        ("drover_agent_ready_seconds_count{phase=\"all\"}", 1.0),
        ("drover_agent_ready_seconds_count{phase=\"Cloning\"}", 1.0),
        ("drover_lease_wait_seconds_count{kind=\"lease\"}", 1.0),
        ("drover_lease_wait_seconds_count{kind=\"job\"}", 0.0),
        ("drover_ready", 1.0),
        ("drover_journal_writable", 1.0),
    ] {
        assert_eq!(values(&text, &format!("{series} ")), [count], "{series}");
    }
    let clones = "drover_pve_request_duration_seconds_count{route=\"POST /nodes/*/GUEST/clone\",";
    assert_eq!(values(&text, clones).iter().sum::<f64>(), 1.0);
    let other = "drover_pve_request_duration_seconds_count{route=\"other\",";
    assert_eq!(values(&text, other).iter().sum::<f64>(), 0.0, "a call has no route of its own");
    assert!(values(&text, "drover_journal_append_seconds_count ")[0] > 0.0);
    let open = scrape(&site, "application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
    assert!(open.ends_with("\n# EOF\n"));
    let ready = values(&open, "drover_agent_ready_seconds_count{phase=\"all\"} ");
    assert_eq!(ready, [1.0]);
}

// Invariant: each alert fires when it should, and stays silent when it should.

#[test]
fn prometheus_takes_the_alert_rules_and_their_tests_pass() {
    let Some(tool) = promtool() else { return };
    let said =
        check(&tool, &["check", "rules"], Some(&configs("prometheus/drover.rules.yaml")), "");
    assert!(said.contains("rules found"), "{said}");
    let tests = configs("prometheus/drover.rules.test.yaml");
    let said = check(&tool, &["test", "rules"], Some(&tests), "");
    assert!(said.contains("SUCCESS"), "{said}");
}

// Invariant: Prometheus understands each query of the dashboard.

#[test]
fn prometheus_takes_every_query_of_the_dashboard() {
    let Some(tool) = promtool() else { return };
    let text = std::fs::read_to_string(configs("grafana/drover.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let mut rules = String::from("groups:\n  - name: dashboard\n    rules:\n");
    let mut count = 0;
    for target in targets {
        // Grafana puts values in their place.
        let query = target["expr"].as_str().unwrap();
        let query = query.replace("$__rate_interval", "5m").replace("$job", "drover");
        count += 1;
        rules.push_str(&format!(
            "      - record: panel:{count}\n        expr: {}\n",
            Value::from(query)
        ));
    }
    assert!(count > 40, "{count}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("dashboard.yaml");
    std::fs::write(&file, rules).unwrap();
    let said = check(&tool, &["check", "rules"], Some(&file), "");
    assert!(said.contains(&format!("{count} rules found")), "{said}");
}
