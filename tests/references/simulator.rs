//! What the simulator serves and how well it agrees with recorded exchanges: a page of the book, drawn
//! from its list of calls, the recordings and the listed differences.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use pve_sim::api::served_routes;
use pve_sim::spec::PveVersion;
use serde_json::Value;

use super::tree::root;

/// Areas of the API, in order of their rows. The first whose words are all in a path has it.
const AREAS: [(&str, &[&str]); 13] = [
    ("firewall", &["/firewall"]),
    ("software-defined networks", &["/sdn"]),
    ("high availability", &["/cluster/ha"]),
    ("backup and restore", &["/backup"]),
    ("backup and restore", &["/vzdump"]),
    ("guest agent", &["/qemu/", "/agent"]),
    ("virtual machines", &["/qemu"]),
    ("containers", &["/lxc"]),
    ("tasks", &["/tasks"]),
    ("storages and their content", &["/storage"]),
    ("users, tokens, rights, pools", &["/access"]),
    ("users, tokens, rights, pools", &["/pools"]),
    ("cluster", &["/cluster"]),
];
/// Areas of what none of these has.
const NODES: &str = "nodes";
const OTHER: &str = "version and other paths";

fn area(path: &str) -> &'static str {
    let found = AREAS.iter().find(|(_, words)| words.iter().all(|word| path.contains(word)));
    match found {
        Some((name, _)) => name,
        None if path.starts_with("/nodes") => NODES,
        None => OTHER,
    }
}

/// All areas, each once, in order.
fn areas() -> Vec<&'static str> {
    let mut all: Vec<&str> = Vec::new();
    for name in AREAS.iter().map(|(name, _)| *name).chain([NODES, OTHER]) {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

fn counted<'a>(paths: impl Iterator<Item = &'a str>) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for path in paths {
        *counts.entry(area(path)).or_default() += 1;
    }
    counts
}

/// A line for each method and path of Proxmox's own API.
fn proxmox(version: PveVersion) -> Vec<String> {
    let text = std::fs::read_to_string(root().join("src/sim/api/paths.txt")).unwrap();
    let mut all = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (path, methods) = line.split_once(' ').unwrap();
        for method in methods.split(' ') {
            if version == PveVersion::V9_2 || !method.starts_with('!') {
                all.push(format!("{} {path}", method.trim_start_matches('!')));
            }
        }
    }
    all
}

/// `METHOD PATH` in one form.
fn plain(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn paths(lines: &[String]) -> BTreeMap<&'static str, usize> {
    counted(lines.iter().map(|line| line.split_whitespace().last().unwrap()))
}

fn served_table() -> String {
    let versions = [PveVersion::V8_4, PveVersion::V9_2];
    let tables = versions.map(|version| {
        let real: BTreeSet<String> = proxmox(version).into_iter().collect();
        let served: Vec<String> = served_routes(version).iter().map(|line| plain(line)).collect();
        let served: Vec<String> = served.into_iter().filter(|line| real.contains(line)).collect();
        (paths(&served), paths(&real.into_iter().collect::<Vec<_>>()))
    });
    let mut text = String::from("| area | served of 8.4 | served of 9.2 |\n|---|---|---|\n");
    let mut sums = [(0, 0); 2];
    for name in areas() {
        let cells = [0, 1].map(|at| {
            let of = |counts: &BTreeMap<&str, usize>| counts.get(name).copied().unwrap_or(0);
            let (served, real) = (of(&tables[at].0), of(&tables[at].1));
            sums[at] = (sums[at].0 + served, sums[at].1 + real);
            format!("{served} of {real}")
        });
        writeln!(text, "| {name} | {} | {} |", cells[0], cells[1]).unwrap();
    }
    let [eight, nine] = sums.map(|(served, real)| format!("{served} of {real}"));
    writeln!(text, "| all | {eight} | {nine} |").unwrap();
    text
}

/// Number and path of each recorded exchange.
fn recorded() -> Vec<(u64, String)> {
    let text = std::fs::read_to_string(root().join("tests/replay/exchanges.jsonl")).unwrap();
    let read = |line: &str| {
        let exchange: Value = serde_json::from_str(line).unwrap();
        let path = exchange["path"].as_str().unwrap();
        let path = path.split('?').next().unwrap();
        let path = path.strip_prefix("/api2/json").unwrap_or(path);
        (exchange["n"].as_u64().unwrap(), path.to_owned())
    };
    text.lines().map(read).collect()
}

/// Number and reason of each listed difference.
fn differences() -> Vec<(u64, String)> {
    let text = std::fs::read_to_string(root().join("tests/replay/differences.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let read = |line: &str| {
        let (n, reason) = line.split_once(' ').unwrap();
        (n.parse().unwrap(), reason.to_owned())
    };
    lines.map(read).collect()
}

fn agreement_table() -> String {
    let (recorded, differing) = (recorded(), differences());
    let all = counted(recorded.iter().map(|(_, path)| path.as_str()));
    let differs = |n: &u64| differing.iter().any(|(other, _)| other == n);
    let apart = recorded.iter().filter(|(n, _)| differs(n)).map(|(_, path)| path.as_str());
    let apart = counted(apart);
    let mut text = String::from("| area | recorded | agree |\n|---|---|---|\n");
    for name in areas() {
        let Some(count) = all.get(name) else { continue };
        let agree = count - apart.get(name).copied().unwrap_or(0);
        writeln!(text, "| {name} | {count} | {agree} |").unwrap();
    }
    let (count, agree) = (recorded.len(), recorded.len() - differing.len());
    writeln!(text, "| all | {count} | {agree} |").unwrap();
    text.push_str("\n| exchange | path | why it differs |\n|---|---|---|\n");
    for (n, reason) in differing {
        let (_, path) = recorded.iter().find(|(other, _)| *other == n).unwrap();
        let named =
            |part: &str| if part.starts_with("UPID") { "{upid}".into() } else { part.to_owned() };
        let path = path.split('/').map(named).collect::<Vec<String>>().join("/");
        writeln!(text, "| {n} | `{path}` | {reason} |").unwrap();
    }
    text
}

/// The whole page as the code has it now.
fn page() -> String {
    format!(
        "# Simulator: what it serves, and how well it agrees\n\n\
         `DROVER_WRITE_BOOK=1 cargo test --test references` writes this page.\n\n\
         ## Served\n\n\
         Methods and paths of Proxmox VE, and how many of them `drover sim` serves. \
         `drover sim --list-api` prints each.\n\n{}\n\
         ## Agreement\n\n\
         Exchanges that were recorded with Proxmox VE 8.4's own code, one node. The tier `replay` \
         sends each to the simulator, within one process and over HTTPS. It compares status, \
         reason, errors, message, the end of tasks and the shape of the data. No values are \
         compared.\n\n{}",
        served_table(),
        agreement_table(),
    )
}

#[test]
fn the_page_says_what_is_served_and_what_agrees() {
    let file = root().join("src/book/reference/simulator.md");
    let wanted = page();
    if std::env::var_os(super::WRITE).is_some() {
        std::fs::write(&file, wanted).unwrap();
        return;
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    let how = format!("`{}=1 cargo test --test references` writes it again", super::WRITE);
    assert!(found == wanted, "{} is not as the code has it; {how}", file.display());
}

// Invariant: each path counts once, and in the area that a reader looks for.

#[test]
fn paths_are_in_the_area_of_their_most_special_part() {
    for (path, wanted) in [
        ("/nodes/{node}/qemu/{vmid}/agent/exec", "guest agent"),
        ("/nodes/{node}/qemu/{vmid}/firewall/rules", "firewall"),
        ("/nodes/pve1/storage/local/content", "storages and their content"),
        ("/cluster/backup/{id}", "backup and restore"),
        ("/nodes/{node}/time", "nodes"),
        ("/version", "version and other paths"),
    ] {
        assert_eq!(area(path), wanted, "{path}");
    }
}

#[test]
fn every_listed_difference_is_of_a_recorded_exchange() {
    let recorded: BTreeSet<u64> = recorded().into_iter().map(|(n, _)| n).collect();
    assert!(differences().iter().all(|(n, _)| recorded.contains(n)));
}
