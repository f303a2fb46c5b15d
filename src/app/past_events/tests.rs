//! What is known after a restart.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use drover_model::declared::{Drift, OnRemoval};
use drover_model::fact::{Fact, What};
use drover_model::id::{
    AddressPoolId, AgentId, CloudId, ClusterId, DeclaredName, Generation, NodeName, RunnerName,
    SourceId, TemplateId, VmId,
};
use drover_model::phase::{
    AgentPhase, BreakerPhase, CloudHealth, DeclaredPhase, DriftKind, ImagePhase, LeasePhase, Power,
};
use drover_model::ports::Observer as _;
use drover_model::record::Reason;
use drover_model::scope::Scope;
use drover_model::status::{
    AddressPoolStatus, BreakerStatus, CloudStatus, DeclaredStatus, ImageStatus, NextBuild,
    ResetStatus, SourceStatus,
};
use drover_model::time::WallTime;
use drover_server::testing::{agent, empty_template, lease, reported};
use drover_server::view::{EventId, FACTS_KEPT, Reported};

use super::*;

fn gone(id: &str) -> What {
    What::AgentGone {
        agent: AgentId::new(id),
        template: TemplateId::new(CloudId::new("lab"), "linux"),
        reason: Reason::Idle,
        phases: vec![("Cloning".to_owned(), 5)],
    }
}

fn ended(id: &str) -> What {
    What::Lease(Box::new(lease(id, LeasePhase::Ended, None, "released")))
}

/// A start of the service in that directory, until it stops in order.
async fn start(state: &Path, run: u64, facts: Vec<What>) -> Arc<View> {
    let view = View::new(run);
    let past = PastEvents::attach(state, &view);
    for what in facts {
        reported(&view, what);
    }
    past.flush().await;
    view
}

async fn all(view: &View, after: &str) -> Vec<Reported> {
    let mut reader = view.events(Some(after.parse().unwrap()));
    let mut all = Vec::new();
    while reader.has_past() {
        all.push(reader.next().await.unwrap());
    }
    all
}

fn ids(reported: &[Reported]) -> Vec<String> {
    let id = |one: &Reported| match one {
        Reported::Event(event) => event.id.to_string(),
        Reported::Lagged { missed } => format!("{missed:?} missed"),
        Reported::Elsewhere { after, before } => format!("{after} to {before} elsewhere"),
    };
    reported.iter().map(id).collect()
}

// Invariant: what people could ask about before a restart, they can ask about after it.

#[tokio::test]
async fn events_and_agents_that_are_gone_are_known_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let first = start(dir.path(), 1, vec![gone("a1"), ended("l1")]).await;
    let lost = What::JobLost {
        source: SourceId::new("gitea"),
        runner: RunnerName::new("r1"),
        agent: AgentId::new("a1"),
        job: Some("build".to_owned()),
    };
    let second = start(dir.path(), 2, vec![lost]).await;
    assert_eq!(second.gone_agents(), first.gone_agents());
    assert_eq!(second.leases(), first.leases());
    let third = start(dir.path(), 3, Vec::new()).await;
    assert_eq!(third.gone_agents(), first.gone_agents());
    assert_eq!(third.lost_jobs(), second.lost_jobs());
    assert_eq!(ids(&all(&third, "0").await), ["1-1", "1-2", "2-1"]);
    assert_eq!(ids(&all(&third, "1-1").await), ["1-2", "2-1"], "a reader goes on where it was");
    assert_eq!(ids(&all(&third, "1-9").await), ["None missed", "2-1"]);
    let counts = (third.gone_by_reason().len(), third.lost_job_count());
    assert_eq!(counts, (0, 0), "counts are since the start");
}

#[tokio::test]
async fn an_ended_lease_that_the_journal_reports_again_is_no_news() {
    let dir = tempfile::tempdir().unwrap();
    start(dir.path(), 1, vec![ended("l1")]).await;
    let again = start(dir.path(), 2, vec![ended("l1"), ended("l2")]).await;
    assert_eq!(ids(&all(&again, "0").await), ["1-1", "2-1"]);
}

#[tokio::test]
async fn an_agent_that_a_later_start_finds_gone_once_more_is_listed_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let first = start(dir.path(), 1, vec![gone("a1")]).await;
    let again = start(dir.path(), 2, vec![gone("a1")]).await;
    assert_eq!(again.gone_agents(), first.gone_agents());
    assert_eq!(ids(&all(&again, "0").await), ["1-1", "2-1"], "those who follow it learn of it");
}

#[tokio::test]
async fn an_agent_that_still_needs_an_administrator_has_the_time_of_the_first_report() {
    let dir = tempfile::tempdir().unwrap();
    let alarm = |text: &str| {
        let (agent, command) = (AgentId::new("a1"), "drover retire a1".to_owned());
        What::Alarm { agent, text: text.to_owned(), command }
    };
    let first = start(dir.path(), 1, vec![alarm("is stranded")]).await;
    let again = start(dir.path(), 2, Vec::new()).await;
    again.observe(Fact { at: WallTime(50), what: alarm("is stranded") });
    assert_eq!(again.alarms(), first.alarms());
    again.observe(Fact { at: WallTime(60), what: alarm("is stranded, and locked") });
    assert_eq!(again.alarms()[0].at, WallTime(60), "that is another trouble");
}

#[tokio::test]
async fn each_kind_of_fact_is_read_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let facts = samples();
    start(dir.path(), 1, facts.clone()).await;
    let again = start(dir.path(), 2, Vec::new()).await;
    let read: Vec<What> = all(&again, "0").await.into_iter().map(what).collect();
    assert_eq!(read, facts);
}

fn what(reported: Reported) -> What {
    match reported {
        Reported::Event(event) => event.fact.what.clone(),
        Reported::Lagged { .. } | Reported::Elsewhere { .. } => panic!("lagged"),
    }
}

// Invariant: a file that is damaged, foreign or too large costs what cannot be read, and no start.

#[tokio::test]
async fn lines_that_cannot_be_read_cost_themselves_alone() {
    let dir = tempfile::tempdir().unwrap();
    start(dir.path(), 1, vec![gone("a1"), gone("a2"), gone("a3")]).await;
    let path = dir.path().join(FILE);
    let text = std::fs::read_to_string(&path).unwrap();
    // A word of a later version, and a line that a loss of power cut.
    let text = text.replacen("agentGone", "agentVanished", 1);
    std::fs::write(&path, &text[..text.len() - 20]).unwrap();
    let again = start(dir.path(), 2, vec![gone("a4")]).await;
    let known = |view: &View| -> Vec<String> {
        view.gone_agents().iter().map(|one| one.agent.to_string()).collect()
    };
    assert_eq!(known(&again), ["a2", "a4"]);
    let third = start(dir.path(), 3, Vec::new()).await;
    assert_eq!(known(&third), ["a2", "a4"], "the next line began on a line of its own");
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_put_aside() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(FILE);
    let makes: [fn(&Path); 4] = [
        |file| std::fs::write(file, "{\"version\":2}\n{}\n").unwrap(),
        |file| std::os::unix::fs::symlink("/etc/passwd", file).unwrap(),
        |file| std::fs::create_dir(file).unwrap(),
        |file| {
            let mode = rustix::fs::Mode::RUSR;
            rustix::fs::mknodat(rustix::fs::CWD, file, rustix::fs::FileType::Fifo, mode, 0)
                .unwrap();
        },
    ];
    for (at, make) in makes.into_iter().enumerate() {
        let aside = dir.path().join(ASIDE);
        drop(std::fs::remove_file(&aside).or_else(|_| std::fs::remove_dir(&aside)));
        drop(std::fs::remove_file(&file));
        make(&file);
        let view = start(dir.path(), 1, vec![gone("a1")]).await;
        assert_eq!(ids(&all(&view, "0").await), ["1-1"], "{at}");
        let again = start(dir.path(), 2, Vec::new()).await;
        assert_eq!(again.gone_agents(), view.gone_agents(), "{at}");
        assert!(std::fs::symlink_metadata(aside).is_ok(), "{at}");
    }
}

#[tokio::test]
async fn a_first_line_that_is_damaged_or_a_line_without_end_costs_no_other() {
    let dir = tempfile::tempdir().unwrap();
    start(dir.path(), 1, vec![gone("a1"), gone("a2")]).await;
    let path = dir.path().join(FILE);
    let text = std::fs::read_to_string(&path).unwrap();
    let long = "x".repeat(40 << 20);
    std::fs::write(&path, format!("{long}\n{}", text.replacen("version", "ver", 1))).unwrap();
    let again = start(dir.path(), 2, Vec::new()).await;
    assert_eq!(again.gone_agents().len(), 2);
    std::fs::write(&path, "").unwrap();
    let empty = start(dir.path(), 3, Vec::new()).await;
    assert_eq!(all(&empty, "0").await, []);
}

#[test]
fn a_file_that_somebody_removes_or_empties_is_written_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    let mut file = EventFile::begin(dir.path(), &[]);
    let numbers = || read(dir.path()).iter().map(|one| one.event.id.number).collect::<Vec<_>>();
    file.append(&line(1));
    std::fs::remove_file(&path).unwrap();
    file.append(&line(2));
    assert_eq!(numbers(), [2]);
    std::fs::write(&path, "").unwrap();
    file.append(&line(3));
    assert_eq!(numbers(), [3]);
}

#[tokio::test]
async fn events_that_are_numbered_as_those_of_this_start_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    start(dir.path(), 5, vec![gone("a1")]).await;
    // A journal that was lost begins to count again.
    let view = start(dir.path(), 1, vec![gone("a2")]).await;
    assert_eq!(ids(&all(&view, "0").await), ["1-1"]);
    let later = start(dir.path(), 9, Vec::new()).await;
    assert_eq!(ids(&all(&later, "0").await), ["1-1"], "nor do they come back");
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_costs_no_event_of_this_start() {
    let dir = tempfile::tempdir().unwrap();
    let view = start(&dir.path().join("missing"), 1, vec![gone("a1")]).await;
    assert_eq!(ids(&all(&view, "0").await), ["1-1"]);
}

// Invariant: the file is bounded, and its owner's alone.

#[tokio::test]
async fn the_file_keeps_the_last_events_and_what_the_lists_show() {
    let dir = tempfile::tempdir().unwrap();
    let mut facts = vec![gone("a1"), ended("l1")];
    let order = What::Ordered { by: "uid:0".to_owned(), order: "asked for a resync".to_owned() };
    facts.extend(std::iter::repeat_n(order, FACTS_KEPT + 100));
    start(dir.path(), 1, facts).await;
    let again = start(dir.path(), 2, Vec::new()).await;
    assert_eq!((again.gone_agents().len(), again.leases().len()), (1, 1));
    assert_eq!(all(&again, "0").await.len(), FACTS_KEPT);
    let path = dir.path().join(FILE);
    let lines = std::fs::read_to_string(&path).unwrap().lines().count();
    assert_eq!(lines, 1 + 2 + FACTS_KEPT);
    assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn the_file_is_written_again_where_it_has_grown() {
    let dir = tempfile::tempdir().unwrap();
    let mut file = EventFile::begin(dir.path(), &[]);
    for number in 1..=20_000 {
        file.append(&line(number));
        assert!(file.grown.lines <= APPENDED_MAX.lines, "{number}");
    }
    let kept = read(dir.path());
    assert!(kept.len() <= FACTS_KEPT + APPENDED_MAX.lines, "{}", kept.len());
    assert_eq!(kept.last().unwrap().event.id.number, 20_000);
}

fn line(number: u64) -> String {
    let what = What::Ordered { by: "uid:0".to_owned(), order: "drained node pve1".to_owned() };
    line_of(&Event { id: EventId { run: 1, number }, fact: Fact { at: WallTime(0), what } })
        .unwrap()
}

#[test]
fn what_could_not_be_written_is_written_once_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let mut file = EventFile::begin(dir.path(), &[]);
    file.append(&line(1));
    file.fail(&io::ErrorKind::StorageFull.into());
    file.append(&line(2));
    assert_eq!(read(dir.path()).len(), 1, "the disk is left alone for a while");
    file.failed = None;
    // Of a write that failed half-way, a part is there.
    file.waiting.insert_str(0, &line(1));
    file.append("");
    let numbers: Vec<u64> =
        retention::retained(read(dir.path())).iter().map(|one| one.event.id.number).collect();
    assert_eq!(numbers, [1, 2]);
}

/// One of each kind.
fn samples() -> Vec<What> {
    let template = TemplateId::new(CloudId::new("lab"), "linux");
    let (cloud, cluster) = (CloudId::new("lab"), ClusterId::new("9f31c0aa52e7d410"));
    let (agent_id, source, at) = (AgentId::new("a1"), SourceId::new("gitea"), WallTime(7));
    let all = vec![
        What::ConfigApplied { generation: Generation(2), reconcile_seconds: Some(30) },
        What::ConfigRefused { text: "a fault".to_owned(), after: Generation(2) },
        What::ConfigSynced { commit: "1a2b3c".to_owned(), subject: "Raise the cap".to_owned() },
        What::ConfigNotSynced { text: "the repository cannot be read".to_owned() },
        What::Ordered { by: "uid:0".to_owned(), order: "drained node pve1".to_owned() },
        What::Agent(Arc::new(agent("a1", AgentPhase::Leased))),
        What::Step {
            agent: agent_id.clone(),
            template: template.clone(),
            step: "warm up".to_owned(),
            ms: 12,
            exit: None,
            log: "ü\u{1b}[1m\n".to_owned(),
        },
        gone("a1"),
        What::Alarm {
            agent: agent_id.clone(),
            text: "is stranded".to_owned(),
            command: "drover retire a1".to_owned(),
        },
        What::OtherDrover { why: vec!["a sign".to_owned()] },
        ended("l1"),
        What::Source(Box::new(SourceStatus {
            outage: Some((at, "refused".to_owned())),
            ..SourceStatus::idle(source.clone(), "gitea")
        })),
        What::SourceGone { source: source.clone() },
        What::JobLost { source, runner: RunnerName::new("r1"), agent: agent_id.clone(), job: None },
        empty_template(),
        What::Breaker(Box::new(BreakerStatus {
            scope: Scope::Node(cluster.clone(), NodeName::new("pve1")),
            breaker: BreakerPhase::Open,
            tripped: Some((at, "clones fail".to_owned())),
            template: template.clone(),
        })),
        What::Resets { template: template.clone(), resets: ResetStatus::default() },
        What::HoldNext { template: template.clone(), seconds: Some(60) },
        What::TemplateGone { template: template.clone() },
        What::Cloud(Box::new(CloudStatus {
            cloud: cloud.clone(),
            cluster: Some(cluster.clone()),
            health: CloudHealth::Degraded,
            version: Some("9.0".to_owned()),
            detail: "no quorum".to_owned(),
            agents: 1,
            cap: Some(2),
            overrides: drover_model::overridden::CloudOverrides::default(),
        })),
        What::CloudGone { cloud: cloud.clone() },
        What::AddressPools {
            pools: vec![AddressPoolStatus {
                pool: AddressPoolId::new("ci"),
                ranges: vec!["10.0.0.10-10.0.0.20".to_owned()],
                size: 11,
                used: 1,
                resting: 2,
                free: 8,
                next_free: Some(at),
            }],
        },
        What::Image(Box::new(ImageStatus {
            build: agent_id.clone(),
            image: template,
            version: agent_id.clone(),
            node: NodeName::new("pve1"),
            vmid: Some(VmId(9001)),
            phase: ImagePhase::ALL[0],
            since: at,
            detail: String::new(),
            failure: Some((at, "no address".to_owned())),
            next: Some(NextBuild::At(at)),
            phases: vec![("Downloading".to_owned(), 3)],
        })),
        What::Declared(Box::new(DeclaredStatus {
            name: DeclaredName::new("runner"),
            id: Some(agent_id),
            cloud,
            node: None,
            vmid: Some(VmId(200)),
            source: None,
            phase: DeclaredPhase::ALL[0],
            since: at,
            declared: true,
            wanted: Power::Running,
            power: Power::Unknown,
            addresses: vec!["fd00::1".parse().unwrap()],
            drift: vec![Drift {
                kind: DriftKind::Size,
                what: "cores".to_owned(),
                declared: "4".to_owned(),
                found: "2".to_owned(),
                stays: Some("by hand".into()),
            }],
            detail: String::new(),
            corrected: Some((at, "power".to_owned())),
            on_removal: OnRemoval::Keep,
            last_seen: None,
            lacks_image: true,
        })),
        What::Reconciled { cluster, findings: vec!["adopt a1".to_owned()], unread: None },
        What::Restarted { actor: "herd".to_owned(), count: 1, gave_up: false },
    ];
    for one in &all {
        counted(one);
    }
    all
}

/// Fails to compile where a kind was added: it belongs in the samples.
fn counted(what: &What) {
    match what {
        What::ConfigApplied { .. }
        | What::ConfigRefused { .. }
        | What::ConfigSynced { .. }
        | What::ConfigNotSynced { .. }
        | What::Ordered { .. } => {}
        What::Agent(_) | What::Step { .. } | What::AgentGone { .. } | What::Alarm { .. } => {}
        What::OtherDrover { .. } | What::Lease(_) | What::Source(_) | What::SourceGone { .. } => {}
        What::JobLost { .. } | What::Template(_) | What::Breaker(_) | What::Resets { .. } => {}
        What::HoldNext { .. } | What::TemplateGone { .. } | What::Cloud(_) => {}
        What::CloudGone { .. } | What::AddressPools { .. } | What::Image(_) => {}
        What::Declared(_) | What::Reconciled { .. } | What::Restarted { .. } => {}
    }
}
