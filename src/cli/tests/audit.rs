//! What is printed of the audit log, and of agents that failed.

use super::super::*;
use super::global;
use crate::cli::options::{AuditOptions, BlackBoxOptions};
use drover_server::testing::Served;
use reqwest::Method;

/// Runs a command; gives what it printed, or why it did not.
async fn cli(served: &Served, command: Command) -> String {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut term = Term::new(&mut out, &mut err);
    match remote::run(&global(&served.socket), command, &mut term).await {
        Ok(_) => String::from_utf8(out).unwrap(),
        Err(fault) => format!("{}\n", chain(&fault)),
    }
}

fn audit(by: Option<&str>, about: Option<&str>) -> Command {
    let (by, about) = (by.map(str::to_owned), about.map(str::to_owned));
    Command::Audit { options: AuditOptions { by, about, ..AuditOptions::default() }, action: None }
}

fn black_box(agent: &str) -> Command {
    Command::Blackbox(BlackBoxOptions { agent: agent.to_owned(), view: ViewOptions::default() })
}

// Invariant: a record is printed with who asked, for what, and what came of it.

#[tokio::test]
async fn records_are_listed_and_those_that_are_asked_for_alone() {
    let served = Served::default();
    served.call(Some("viewer"), Method::POST, "/v1/agents/a1/retire", "").await;
    served.admin(Method::POST, "/v1/reap", "").await;
    let all = cli(&served, audit(None, None)).await;
    let rows: Vec<Vec<&str>> = all.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0][..3], ["RECORD", "MADE", "BY"], "{all}");
    for (row, words) in [
        (1, ["token:viewer", "POST", "/v1/agents/{id}/retire", "a1", "403"].as_slice()),
        (2, &["token:admin", "POST", "/v1/reap", "200"]),
    ] {
        assert!(words.iter().all(|word| rows[row].contains(word)), "{all}");
    }
    // A hash of 64 digits in each row would be wider than any terminal.
    let longest = all.lines().map(str::len).max();
    assert!(longest < Some(200), "{longest:?} columns:\n{all}");
    assert!(all.lines().all(|line| !line.ends_with(' ')), "{all}");
    let of = async |by, about| cli(&served, audit(by, about)).await.lines().count();
    assert_eq!(of(Some("token:admin"), None).await, 2);
    assert_eq!(of(None, Some("a1")).await, 2);
    assert_eq!(cli(&served, audit(Some("token:nobody"), None)).await, "none\n");
    served.stop().await;
}

// Invariant: what is kept of an agent that failed is shown as a whole, and its absence has a reason.

#[tokio::test]
async fn a_black_box_is_shown_with_phases_events_and_tasks() {
    let served = Served::default();
    let shown = cli(&served, black_box("a9")).await;
    let shown = shown.replace("7d ago", "AGO");
    for part in [
        "agent a9 of lab/linux, gone ",
        "Booting failed (unreachable): no address",
        "VMID 10417 on node pve1",
        "     4.0 s  Booting",
        "2 events left out before these",
        "/var/log/cloud-init-output.log\nno network",
        "`qm terminal VMID`",
        "POST /nodes/pve1/qemu/10417/status/start: 200 after 41 ms, the last of 2",
        "2026-11-21T08:11:02Z  cloud-init: exit 1 after 1.5 s\n  E: no network",
        "qmstart: start failed\n  TASK ERROR: start failed\n  UPID:pve1:",
    ] {
        assert!(shown.contains(part), "no `{part}` in:\n{shown}");
    }
    let none = cli(&served, black_box("a8")).await;
    assert!(none.contains("nothing is kept of an agent `a8`"), "{none}");
    served.stop().await;
}
