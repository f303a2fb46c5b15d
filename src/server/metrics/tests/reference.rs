//! The tables of the book's page about metrics, made from the metric table and the alerts.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::alerts;
use crate::metric_table::{ALL, Kind, Label, Metric, Only, Values};

/// The page of the book.
const PAGE: &str = "src/book/metrics.md";

/// Compares a file, named from the root of the repository, with the text that it must have, or writes it.
pub(super) fn is_generated(file: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    if std::env::var_os("DROVER_WRITE").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, wanted).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap();
    let help = "`DROVER_WRITE=1 cargo test -p drover-server metrics` writes it";
    for (at, (found, wanted)) in found.lines().zip(wanted.lines()).enumerate() {
        assert_eq!(found, wanted, "line {} of {file}: {help}", at + 1);
    }
    assert!(found == wanted, "{file} is shorter or longer: {help}");
}

fn kind(metric: &Metric) -> &'static str {
    match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge | Kind::Info => "gauge",
        Kind::Histogram(_) => "histogram",
    }
}

fn listed<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let all = words.into_iter().map(|word| format!("`{word}`")).collect::<Vec<_>>();
    if all.is_empty() { "–".to_owned() } else { all.join(", ") }
}

fn metrics() -> String {
    let mut out =
        String::from("| metric | type | labels | meaning | what to do |\n|---|---|---|---|---|\n");
    for metric in ALL {
        let Metric { name, help, act, .. } = metric;
        let labels = listed(metric.labels.iter().map(|label| label.name));
        let only = match metric.only {
            Only::Always => String::new(),
            Only::Where(so) => format!(" Only where {so}."),
        };
        let _ = writeln!(out, "| `{name}` | {} | {labels} | {help}{only} | {act} |", kind(metric));
    }
    out
}

/// The values of each label, with the metrics that have it where others have other values for it.
fn labels() -> String {
    let mut rows: Vec<(String, Vec<&str>)> = Vec::new();
    for metric in ALL {
        for Label { name, values } in metric.labels {
            let values = match values {
                Values::Fixed(words) => listed(words()),
                Values::Named(what) => (*what).to_owned(),
            };
            let row = format!("`{name}` | {values}");
            match rows.iter_mut().find(|(known, _)| *known == row) {
                Some((_, metrics)) => metrics.push(metric.name),
                None => rows.push((row, vec![metric.name])),
            }
        }
    }
    rows.sort();
    let mut out = String::from("| label | values | of |\n|---|---|---|\n");
    for (row, metrics) in rows {
        let _ = writeln!(out, "| {row} | {} |", listed(metrics));
    }
    out
}

fn alerts() -> String {
    let mut out = String::from(
        "| alert | for | severity | what it says | run | read |\n|---|---|---|---|---|---|\n",
    );
    for alert in alerts::all() {
        let says =
            alert.summary.replace("{{ $labels.template }}{{ $labels.place }}", "TEMPLATE or PLACE");
        let says = says.split("{{ $").map(|part| match part.split_once(" }}") {
            Some((name, rest)) => {
                let name = name.trim_start_matches("labels.").to_uppercase();
                format!("{}{rest}", if name == "VALUE" { "N" } else { &name })
            }
            None => part.to_owned(),
        });
        let says: String = says.collect();
        let page = alert.page.trim_end_matches(".md").trim_end_matches("/index");
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {says} | `{}` | [{page}]({}) |",
            alert.name,
            alert.wait,
            alert.severity.name(),
            alert.command,
            alert.page
        );
    }
    out
}

/// A page with this text as its generated part of that mark.
fn filled(page: &str, mark: &str, text: &str) -> String {
    let (begin, end) = (format!("<!-- generated: {mark} -->"), "<!-- end of generated -->");
    let (before, rest) = page.split_once(&begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    format!("{before}{begin}\n{text}{end}{after}")
}

// Invariant: the book has every metric, label and alert as the program has them.

#[test]
fn the_page_about_metrics_has_the_tables_as_they_are() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    let mut page = fs::read_to_string(path).unwrap();
    for (mark, text) in
        [("metrics", metrics()), ("labels of metrics", labels()), ("alerts", alerts())]
    {
        page = filled(&page, mark, &text);
    }
    is_generated(PAGE, &page);
}
