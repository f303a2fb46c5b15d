//! `drover resync` where clusters cannot be read.

use std::sync::Arc;

use drover_actors::message::HerdCommand;
use drover_model::fact::What;
use drover_model::id::{CloudId, ClusterId};
use drover_model::phase::CloudHealth;
use drover_model::status::CloudStatus;
use serde_json::{Value, json};

use super::super::*;
use super::global;
use drover_server::Limits;
use drover_server::testing::{Served, reported};
use drover_server::view::View;

const CLUSTER: &str = "9f31c0aa52e7d410";
const OTHER: &str = "0c5d1a7e42b8f390";
const WHY: &str = "cloud lab: no usable endpoint for `GET /version`";

/// Runs a command; gives its exit code, why it failed, and what it printed.
async fn run(served: &Served, json: bool, command: Command) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut term = Term::new(&mut out, &mut err);
    let global = Global { json, ..global(&served.socket) };
    let (code, fault) = match remote::run(&global, command, &mut term).await {
        Ok(code) => (code, String::new()),
        Err(fault) => (fault.exit_code(), chain(&fault)),
    };
    (code, fault, String::from_utf8(out).unwrap())
}

fn resync(dry_run: bool) -> Command {
    Command::Resync { confirm_older_journal: false, confirm_machine: false, dry_run }
}

// Invariant: a resync succeeds only where every cluster was read.

#[tokio::test]
async fn a_resync_that_read_every_cluster_succeeds() {
    let served = Served::default();
    *served.reload.lock().unwrap() = Ok(5);
    let (code, _, text) = run(&served, false, resync(false)).await;
    assert_eq!(
        (code, &*text),
        (0, "9f31c0aa52e7d410: 1 finding\n  destroy orphan 10417 on pve1\n")
    );
    let (code, _, text) = run(&served, true, resync(false)).await;
    let read: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, 0);
    assert_eq!(read, json!({ "clusters": { CLUSTER: ["destroy orphan 10417 on pve1"] } }));
    served.stop().await;
}

#[tokio::test]
async fn a_resync_names_clusters_that_it_could_not_read_and_fails() {
    let script = |command: HerdCommand| {
        let HerdCommand::Resync { reply } = command else { panic!("not asked for here") };
        let found = vec!["destroy orphan 10417 on pve1".to_owned()];
        let outcomes = [(CLUSTER, Ok(found)), (OTHER, Err(WHY.to_owned()))];
        let outcomes = outcomes.map(|(cluster, outcome)| (ClusterId::new(cluster), outcome));
        reply.send(outcomes.into());
    };
    let served = Served::scripted(View::new(3), Arc::default(), script, Limits::default());
    *served.reload.lock().unwrap() = Ok(5);
    // No cloud has led to its cluster since the start, so that none is asked.
    let office = CloudStatus {
        cloud: CloudId::new("office"),
        cluster: None,
        health: CloudHealth::Degraded,
        version: None,
        detail: "login refused".into(),
        agents: 0,
        cap: None,
        overrides: drover_model::overridden::CloudOverrides::default(),
    };
    reported(&served.view, What::Cloud(Box::new(office)));
    let (code, fault, text) = run(&served, false, resync(false)).await;
    assert_eq!(code, 1);
    insta::assert_snapshot!(text, @r"
    cloud office (cluster unknown) was not read: login refused
    cluster 0c5d1a7e42b8f390 was not read: cloud lab: no usable endpoint for `GET /version`
    9f31c0aa52e7d410: 1 finding
      destroy orphan 10417 on pve1
    ");
    insta::assert_snapshot!(
        fault,
        @"2 clusters could not be read, and nothing was compared there: `drover doctor` looks for the cause; then run `drover resync` again"
    );
    let (code, _, text) = run(&served, true, resync(false)).await;
    let read: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &read["unread"][1]), (1, &json!({ "cluster": OTHER, "why": WHY })));
    served.stop().await;
}

#[tokio::test]
async fn a_dry_run_on_a_cluster_that_cannot_be_read_fails_too() {
    let script = |command: HerdCommand| {
        let HerdCommand::PlanResync { reply } = command else { panic!("not asked for here") };
        reply.send([(ClusterId::new(CLUSTER), Err(WHY.to_owned()))].into());
    };
    let served = Served::scripted(View::new(3), Arc::default(), script, Limits::default());
    let (code, fault, text) = run(&served, false, resync(true)).await;
    insta::assert_snapshot!(text, @r"
    cluster 9f31c0aa52e7d410 was not read: cloud lab: no usable endpoint for `GET /version`
    nothing was changed
    ");
    assert!(code == 1 && fault.starts_with("1 cluster could not be read"), "{code}: {fault}");
    let cluster = ClusterId::new(CLUSTER);
    let unread = Some(WHY.to_owned());
    reported(&served.view, What::Reconciled { cluster, findings: Vec::new(), unread });
    let (_, _, text) = run(&served, false, Command::Status(ViewOptions::default())).await;
    assert!(text.contains(&format!(": not read: {WHY}\n")), "{text}");
    served.stop().await;
}

#[tokio::test]
async fn a_resync_before_any_cluster_was_reached_fails() {
    let script = |command: HerdCommand| {
        let HerdCommand::Resync { reply } = command else { panic!("not asked for here") };
        reply.send([].into());
    };
    let served = Served::scripted(View::new(3), Arc::default(), script, Limits::default());
    *served.reload.lock().unwrap() = Ok(5);
    let (code, fault, _) = run(&served, false, resync(false)).await;
    assert!(code == 1 && fault.contains("`drover status` shows why"), "{code}: {fault}");
    served.stop().await;
}
