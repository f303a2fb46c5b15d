//! What is printed of jobs and of why they wait.

use std::collections::BTreeMap;

use drover_model::fact::What;
use drover_model::id::SourceId;
use drover_model::status::SourceStatus;
use drover_model::time::WallTime;

use super::super::*;
use super::global;
use drover_server::testing::{Served, empty_template, reported};

fn git() -> What {
    What::Source(Box::new(SourceStatus {
        waiting: 2,
        unoffered: 1,
        lacks: vec!["no template has `gpu`".into()],
        ignored: 1,
        runners: 1,
        running: 1,
        ..SourceStatus::idle(SourceId::new("git"), "gitea")
    }))
}

/// A source that left the configuration while a job runs, and refuses the login.
fn old() -> What {
    What::Source(Box::new(SourceStatus {
        configured: false,
        runners: 1,
        running: 1,
        outage: Some((WallTime(0), "source `old` refuses the login: GET /api: 401".into())),
        ..SourceStatus::idle(SourceId::new("old"), "gitea")
    }))
}

fn why(of: &str) -> Command {
    Command::Why { of: Some(of.to_owned()), view: ViewOptions::default() }
}

/// Runs a command; gives what it printed, or why it did not.
async fn cli(served: &Served, command: Command) -> String {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut term = Term::new(&mut out, &mut err);
    match remote::run(&global(&served.socket), command, &mut term).await {
        Ok(_) => String::from_utf8(out).unwrap(),
        Err(fault) => format!("{}\n", chain(&fault)),
    }
}

// Invariant: why something waits is shown in numbers, by whichever name it is asked for.

#[tokio::test]
async fn jobs_and_why_they_wait_are_reported() {
    let served = Served::default();
    reported(&served.view, empty_template());
    reported(&served.view, git());
    let mut all = BTreeMap::new();
    for of in ["git", "42", "git/41", "build", "sign", "40", "lab/linux", "gti", "leases", "44"] {
        all.insert(of, cli(&served, why(of)).await);
    }
    let all: String = all.iter().map(|(of, said)| format!("$ drover why {of}\n{said}")).collect();
    insta::assert_snapshot!(cli(&served, Command::Jobs(ListOptions::default())).await + &all);
    served.stop().await;
}

// Invariant: a source that left the configuration, and one that cannot be polled, are shown as
// that, with what still runs there.

#[tokio::test]
async fn a_source_that_left_and_one_that_cannot_be_looked_at_are_reported_as_that() {
    let served = Served::default();
    reported(&served.view, git());
    reported(&served.view, old());
    let status = cli(&served, Command::Status(ViewOptions::default())).await;
    let demand = status.split("\nDEMAND\n").nth(1).unwrap().split("\nAGENTS\n").next().unwrap();
    let why = cli(&served, why("old")).await;
    insta::assert_snapshot!(format!("{demand}$ drover why old\n{why}"));
    served.stop().await;
}
