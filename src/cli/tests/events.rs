//! What is printed of events.

use drover_api::EventKind;
use drover_model::declared::OnRemoval;
use drover_model::fact::What;
use drover_model::id::{
    AgentId, CloudId, ClusterId, DeclaredName, Generation, NodeName, RunnerName, SourceId,
    TemplateId, VmId,
};
use drover_model::phase::{BreakerPhase, DeclaredPhase, ImagePhase, Power};
use drover_model::record::Reason;
use drover_model::scope::Scope;
use drover_model::status::{BreakerStatus, DeclaredStatus, ImageStatus, ResetStatus, SourceStatus};
use drover_server::testing::{Served, THEN, reported};

use super::super::*;
use super::prints::{cli, furnish};

fn machine() -> DeclaredStatus {
    DeclaredStatus {
        name: DeclaredName::new("db"),
        id: None,
        cloud: CloudId::new("lab"),
        node: Some(NodeName::new("pve1")),
        vmid: Some(VmId(120)),
        source: None,
        phase: DeclaredPhase::Kept,
        since: THEN,
        declared: true,
        wanted: Power::Running,
        power: Power::Stopped,
        addresses: Vec::new(),
        drift: Vec::new(),
        detail: "drover starts it".into(),
        corrected: None,
        on_removal: OnRemoval::Keep,
        last_seen: None,
        lacks_image: false,
    }
}

fn build() -> ImageStatus {
    ImageStatus {
        build: AgentId::new("7f8z1c3px9t2vkab"),
        image: TemplateId::new(CloudId::new("lab"), "debian-13"),
        version: AgentId::new("1a2b3c4d5e6f7a8b"),
        node: NodeName::new("pve1"),
        vmid: None,
        phase: ImagePhase::Failed,
        since: THEN,
        detail: "step `setup` failed".into(),
        failure: None,
        next: None,
        phases: Vec::new(),
    }
}

/// What [`furnish`] does not report: at least one fact of each other kind.
fn rest() -> Vec<What> {
    let template = || TemplateId::new(CloudId::new("lab"), "linux");
    let agent = || AgentId::new("a1");
    let source = || SourceId::new("git");
    let step = |exit| What::Step {
        agent: agent(),
        template: template(),
        step: "checkout".into(),
        ms: 1200,
        exit,
        log: "no space left".into(),
    };
    let resets = ResetStatus {
        count: 3,
        reset_ms: Some(4000),
        clone_ms: Some(30_000),
        detail: "its disk has no snapshots".into(),
    };
    let idle = SourceStatus::idle(source(), "gitea");
    let silent = SourceStatus {
        waiting: 2,
        running: 1,
        outage: Some((THEN, "the server refuses the login".into())),
        ..idle.clone()
    };
    let breaker = |breaker, tripped| BreakerStatus {
        scope: Scope::Node(ClusterId::new("9f31c0aa52e7d410"), NodeName::new("pve1")),
        breaker,
        tripped,
        template: template(),
    };
    let restarted =
        |gave_up| What::Restarted { actor: "template lab/linux".into(), count: 1, gave_up };
    vec![
        What::ConfigRefused {
            text: "  × unknown key `clouds`\n    ╭─[/etc/drover/drover.yaml:40:1]\n".into(),
            after: Generation(4),
        },
        What::ConfigSynced {
            commit: "1a2b3c4d5e6f7a8b9c0d1a2b3c4d5e6f7a8b9c0d".into(),
            subject: "Raise the cap".into(),
        },
        What::ConfigNotSynced {
            text: "the repository https://git.example.com/ci cannot be read: timed out\n  help: check the URL\n".into(),
        },
        What::Ordered { by: "ops".into(), order: "cordoned node pve1".into() },
        step(Some(1)),
        step(None),
        What::AgentGone {
            agent: agent(),
            template: template(),
            reason: Reason::Idle,
            phases: Vec::new(),
        },
        What::Breaker(Box::new(breaker(BreakerPhase::Open, Some((THEN, "no answer".into()))))),
        What::Breaker(Box::new(breaker(BreakerPhase::Closed, None))),
        What::Resets { template: template(), resets },
        What::HoldNext { template: template(), seconds: Some(600) },
        What::HoldNext { template: template(), seconds: None },
        What::Source(Box::new(idle)),
        What::Source(Box::new(silent)),
        What::SourceGone { source: source() },
        What::JobLost {
            source: source(),
            runner: RunnerName::new("drover-a1"),
            agent: agent(),
            job: Some("42".into()),
        },
        What::OtherDrover { why: vec!["another journal writes".into(), "stop one".into()] },
        What::OtherDrover { why: Vec::new() },
        What::AddressPools { pools: Vec::new() },
        What::Image(Box::new(build())),
        What::Declared(Box::new(machine())),
        What::Reconciled {
            cluster: ClusterId::new("9f31c0aa52e7d410"),
            findings: Vec::new(),
            unread: Some("no endpoint answers".into()),
        },
        restarted(false),
        restarted(true),
        What::TemplateGone { template: template() },
        What::CloudGone { cloud: CloudId::new("lab") },
    ]
}

// Invariant: every kind of event has a sentence of its own, and none is printed as data.

#[tokio::test]
async fn each_kind_of_event_is_a_sentence() {
    let served = Served::default();
    furnish(&served.view);
    rest().into_iter().for_each(|what| reported(&served.view, what));
    let command = || Command::Events(EventsOptions { no_follow: true, ..EventsOptions::default() });
    let (result, json) = cli(&served, true, command()).await;
    assert_eq!(result, Ok(0));
    let kinds: Vec<String> = json
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|event| event["kind"].as_str().unwrap().to_owned())
        .collect();
    for kind in EventKind::ALL.iter().filter(|kind| **kind != EventKind::Lagged) {
        assert!(kinds.iter().any(|seen| seen == kind.name()), "no fact is of kind {kind:?}");
    }
    let (_, text) = cli(&served, false, command()).await;
    let lines: Vec<&str> =
        text.lines().filter_map(|line| line.split_once("  ")).map(|(_, line)| line).collect();
    assert_eq!(lines.len(), kinds.len());
    assert!(!lines.iter().any(|line| line.contains("{\"")), "{text}");
    insta::assert_snapshot!(lines.join("\n"));
    served.stop().await;
}
