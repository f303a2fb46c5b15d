//! What is printed of jobs and of why they wait.

use std::collections::BTreeMap;

use drover_actors::fact::{SourcePicture, What};
use drover_actors::id::SourceId;

use super::super::*;
use super::global;
use crate::web::testing::{Served, empty_template, told};

fn git() -> What {
    What::Source(Box::new(SourcePicture {
        source: SourceId::new("git"),
        kind: "gitea".into(),
        waiting: 2,
        oldest: None,
        ignored: 1,
        runners: 1,
        running: 1,
        unserved: 0,
        refused: None,
        outage: None,
    }))
}

/// Runs a command; gives what it printed, or why it did not.
async fn cli(served: &Served, command: Command) -> String {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut term = Term { out: &mut out, err: &mut err };
    match remote::run(&global(&served.socket), command, &mut term).await {
        Ok(_) => String::from_utf8(out).unwrap(),
        Err(fault) => format!("{}\n", chain(&fault)),
    }
}

// Invariant: why something waits is told in numbers, by whichever name it is asked for.

#[tokio::test]
async fn jobs_and_why_they_wait_are_told() {
    let served = Served::new();
    told(&served.view, empty_template());
    told(&served.view, git());
    let mut all = BTreeMap::new();
    for of in ["git", "42", "git/41", "build", "sign", "40", "lab/linux", "gti", "leases"] {
        all.insert(of, cli(&served, Command::Why { of: Some(of.to_owned()) }).await);
    }
    let all: String = all.iter().map(|(of, said)| format!("$ drover why {of}\n{said}")).collect();
    insta::assert_snapshot!(cli(&served, Command::Jobs).await + &all);
    served.stop().await;
}
