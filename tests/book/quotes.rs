//! What the book says that drover says, counts or takes: the code has it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::{Document, files, none_is, root};

/// All of the code and its golden texts, as people read it: joined where a text of several lines is.
fn code() -> String {
    let mut all = String::new();
    for folder in ["src", "actors", "tests/golden"] {
        for path in files(Path::new(folder), &[".rs", ".snap", ".txt"]) {
            let text = fs::read_to_string(root().join(path)).unwrap();
            let mut lines = text.lines();
            while let Some(line) = lines.next() {
                let mut line = line.to_owned();
                while let Some(head) = line.strip_suffix('\\') {
                    line = head.to_owned() + lines.next().unwrap_or_default().trim_start();
                }
                all.push_str(&line.replace("\\\"", "\""));
                all.push('\n');
            }
        }
    }
    all
}

// Invariant: somebody who searches the book for what drover says finds it.

#[test]
fn what_drover_is_quoted_with_stands_in_the_code() {
    let (code, mut wrong, mut tried) = (code(), Vec::new(), 0);
    let page = Document::read(Path::new("src/book/troubleshooting.md"));
    let parts = page.text.split("\n\n").map(str::trim);
    for quote in parts.filter_map(|part| part.strip_prefix("> ")) {
        let quote = quote.replace("\n> ", " ");
        for part in quote.split('…').map(str::trim).filter(|part| part.len() > 3) {
            tried += 1;
            if !code.contains(part) {
                wrong.push(format!("no text of drover's has `{part}`"));
            }
        }
    }
    none_is(&wrong);
    assert!(tried > 40, "{tried} quotes");
}

// Invariant: each stuck case leads to a heading of the book that is there, by what drover says of it.

#[test]
fn each_stuck_case_leads_to_a_heading_of_the_book() {
    // These are answers of `drover status` and `drover resync`.
    let others = ["configuration_broken.snap", "cloud_gone_at_resync.snap"];
    let page = Document::read(Path::new("src/book/troubleshooting.md"));
    let headings: Vec<String> = page
        .text
        .lines()
        .filter(|line| line.starts_with("##"))
        .map(|line| line.trim_start_matches('#').trim().replace('`', ""))
        .collect();
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for path in files(Path::new("tests/golden/why"), &[".snap"]) {
        if others.iter().any(|other| path.ends_with(other)) {
            continue;
        }
        let text = fs::read_to_string(root().join(&path)).unwrap();
        let start = "what to do: `drover help troubleshooting`, under \"";
        let titles = text.lines().filter_map(|line| line.strip_prefix(start)?.strip_suffix('"'));
        let titles: Vec<&str> = titles.collect();
        tried += titles.len();
        if titles.is_empty() {
            wrong.push(format!("{} leads to no heading", path.display()));
        }
        let is_gone = |title: &&&str| !headings.iter().any(|heading| heading == **title);
        wrong.extend(titles.iter().filter(is_gone).map(|title| format!("no heading `{title}`")));
    }
    none_is(&wrong);
    assert!(tried >= 22, "{tried} headings");
}

/// Metrics with their types, as the golden page of `/metrics` has them.
fn served() -> BTreeMap<String, (String, Vec<String>)> {
    let folder = Path::new("src/server/metrics/snapshots");
    let paths = files(folder, &["metrics_are_prometheus_text.snap"]);
    let [path] = &paths[..] else { panic!("the golden page of metrics is not one: {paths:?}") };
    let text = fs::read_to_string(root().join(path)).unwrap();
    let mut metrics = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            metrics.insert(name.to_owned(), (kind.to_owned(), Vec::new()));
        } else if let Some((name, labels)) = line.split_once('{')
            && let Some((_, known)) = metrics.get_mut(name)
        {
            let labels = labels.split("\",").filter_map(|one| one.split_once('='));
            *known = labels.map(|(label, _)| label.to_owned()).collect();
        }
    }
    metrics
}

#[test]
fn the_table_of_metrics_has_each_one_with_its_type_and_labels() {
    let page = Document::read(Path::new("src/book/metrics.md"));
    let mut served = served();
    let rows = page.prose().into_iter().filter(|(_, line)| line.starts_with("| `drover_"));
    let mut wrong = Vec::new();
    for (line, row) in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`');
        match served.remove(name) {
            Some((kind, labels)) => {
                let reported = |label: &String| cells[3].contains(&format!("`{label}`"));
                if cells[2] != kind || !labels.iter().all(reported) {
                    wrong.push(format!("{}: `{name}` is a {kind} of {labels:?}", page.place(line)));
                }
            }
            None => wrong.push(format!("{}: no metric `{name}`", page.place(line))),
        }
    }
    wrong.extend(served.keys().map(|name| format!("`{name}` is in no row")));
    none_is(&wrong);
}
