//! What scripts read beside results, with `--json`.

use std::future::pending;

use drover_model::fact::What;
use drover_model::phase::LeasePhase;
use drover_ssh::Output;
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::super::lease::lease;
use super::super::leasing::{Leasing, ReadInput};
use super::super::over_ssh::Cut;
use super::super::*;
use super::global;
use super::lease::WAIT_LIMIT;
use drover_server::testing::{self, Served, reported};

fn parsed(words: &[&str]) -> Cli {
    Cli::try_parse_from(["drover"].iter().chain(words)).unwrap()
}

/// Each line as JSON; null for one that is none.
fn read(bytes: Vec<u8>) -> Vec<Value> {
    let text = String::from_utf8(bytes).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_default()).collect()
}

// Invariant: each object has a line of its own, and what could not be done is an error.

#[tokio::test]
async fn scripts_hear_which_leases_could_not_be_released() {
    let served = Served::default();
    for id in ["l1", "l2"] {
        let waiting = testing::lease(id, LeasePhase::Waiting, None, "no agent is free");
        reported(&served.view, What::Lease(Box::new(waiting)));
    }
    let cli = parsed(&["--json", "release", "l1", "nope", "l2"]);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut term = Term::new(&mut out, &mut err);
    let global = Global { json: cli.global.json, ..global(&served.socket) };
    assert_eq!(remote::run(&global, cli.command, &mut term).await.ok(), Some(1));
    let (out, err) = (read(out), read(err));
    assert_eq!(out[0]["released"], serde_json::json!(["l1", "l2"]), "{out:?}");
    assert_eq!(out[0]["failed"][0]["lease"], "nope", "{out:?}");
    assert_eq!((err.len(), &err[0]["error"]["code"]), (1, &1.into()), "{err:?}");
    served.stop().await;
}

/// A guest whose command does not end its last line.
struct Unended;

impl RunOverSsh for Unended {
    fn run(&self, job: SshJob) -> BoxFuture<'static, Result<u32, Cut>> {
        Box::pin(async move {
            job.output.send(Output::Stderr("no end".into())).await.unwrap();
            Ok(7)
        })
    }
}

#[tokio::test]
async fn scripts_hear_how_a_leased_command_ended() {
    let served = Served::default();
    let client = Client::new(&global(&served.socket)).ok().unwrap();
    let (time_limits, key_dir) = (WAIT_LIMIT, served.directory.path().to_owned());
    let (over, input): (_, ReadInput) = (&Unended, |_| ());
    let leasing = Leasing { client: &client, over, input, time_limits, key_dir, json: true };
    let cli = parsed(&["lease", "--template", "quick", "--", "true"]);
    let Command::Lease { options, .. } = cli.command else { panic!("not a lease") };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut term = Term::new(&mut out, &mut err);
    assert_eq!(lease(&leasing, &options, pending(), &mut term).await.ok(), Some(7));
    let err = read(err);
    assert_eq!(err.len(), 3, "{err:?}");
    let reported = &err[0]["progress"];
    assert_eq!(
        (&reported["lease"], &reported["state"]),
        (&"l1".into(), &"ready".into()),
        "{err:?}"
    );
    assert_eq!(err[1], Value::Null, "the command's own words");
    assert_eq!(err[2], serde_json::json!({ "lease": "l1", "exit": 7 }));
    assert_eq!(out, Vec::<u8>::new());
    served.stop().await;
}
