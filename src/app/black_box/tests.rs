#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use drover_api::MomentOut;
use drover_model::fact::What;
use drover_model::id::{AgentId, CloudId, TemplateId};
use drover_model::phase::AgentPhase;
use drover_model::record::Reason;
use drover_model::status::AgentStatus;
use drover_model::time::WallTime;

use super::*;

const THEN: WallTime = WallTime(1_795_248_662_000);
const KEEP: Keep = Keep { age: Duration::from_secs(86_400), bytes: 1 << 20 };

fn template() -> TemplateId {
    TemplateId::new(CloudId::new("lab"), "linux")
}

fn fact(second: i64, what: What) -> Fact {
    Fact { at: WallTime(THEN.0 + second * 1000), what }
}

fn status(second: i64, phase: AgentPhase, detail: &str) -> Fact {
    let status = AgentStatus {
        phase,
        vmid: Some(VmId(10_417)),
        node: Some(NodeName::new("pve1")),
        detail: detail.to_owned(),
        ..AgentStatus::started(AgentId::new("a1"), template(), THEN)
    };
    fact(second, What::Agent(Arc::new(status)))
}

fn gone(second: i64, reason: Reason) -> Fact {
    let phases = vec![("Booting".to_owned(), 4000)];
    let agent = AgentId::new("a1");
    fact(second, What::AgentGone { agent, template: template(), reason, phases })
}

fn failed() -> Reason {
    let (kind, text) = ("unreachable".to_owned(), "no address; token=abc".to_owned());
    Reason::Failed { state: AgentPhase::Booting, kind, text }
}

fn step(second: i64, log: &str) -> Fact {
    let (agent, log) = (AgentId::new("a1"), log.to_owned());
    let step = "cloud-init".to_owned();
    fact(second, What::Step { agent, template: template(), step, ms: 1500, exit: Some(1), log })
}

/// Answers these tasks for every agent.
fn reads(tasks: Result<Vec<GuestTask>, String>) -> ReadTasks {
    Box::new(move |_| Box::pin(std::future::ready(tasks.clone())))
}

/// Knows of no call.
fn no_calls() -> ReadCalls {
    Box::new(|_, _| Vec::new())
}

/// What is kept once all that was observed is.
async fn kept(facts: &[Fact], read: ReadTasks) -> Option<BlackBoxOut> {
    let dir = tempfile::tempdir().unwrap();
    let (boxes, keeper) = BlackBoxes::with(dir.path(), KEEP, (read, no_calls()));
    facts.iter().for_each(|fact| boxes.observe(fact));
    let store = boxes.store.clone();
    drop(boxes);
    keeper.await;
    store.get("a1").unwrap()
}

// Invariant: an agent that failed leaves what happened to it, without secrets; one that went in order leaves
// nothing.

#[tokio::test]
async fn what_happened_to_an_agent_that_failed_is_kept_in_its_order() {
    let facts = [
        status(0, AgentPhase::Cloning, ""),
        status(1, AgentPhase::Booting, "waits for an address"),
        status(2, AgentPhase::Booting, "waits for an address"),
        step(3, "PASSWORD=hunter2\nE: no network"),
        gone(4, failed()),
    ];
    let task = GuestTask {
        upid: "UPID:pve1:1:1:1:qmstart:10417:a:".to_owned(),
        kind: "qmstart".to_owned(),
        status: Some("start failed".to_owned()),
        log: vec!["TASK ERROR: start failed".to_owned(), "password: abc".to_owned()],
    };
    let kept = kept(&facts, reads(Ok(vec![task]))).await.unwrap();
    let moments: Vec<(&str, &str)> =
        kept.moments.iter().map(|MomentOut { kind, text, .. }| (&**kind, &**text)).collect();
    assert_eq!(
        moments,
        [
            ("state", "Cloning"),
            ("state", "Booting: waits for an address"),
            ("step", "cloud-init: exit 1 after 1.5 s\nPASSWORD=***\nE: no network"),
        ]
    );
    assert_eq!(kept.detail, "Booting failed (unreachable): no address; token=***");
    assert_eq!((kept.vmid, kept.node.as_deref()), (Some(10_417), Some("pve1")));
    assert_eq!((kept.phases.len(), &*kept.reason), (1, "failed"));
    assert_eq!(kept.tasks[0].log, ["TASK ERROR: start failed", "password: ***"]);
}

#[tokio::test]
async fn only_agents_that_failed_or_were_lost_leave_something() {
    let too_slow = Reason::TooSlow { state: AgentPhase::Booting, text: String::new() };
    for (reason, leaves) in [
        (failed(), true),
        (too_slow, true),
        (Reason::Vanished, true),
        (Reason::PoweredOff, true),
        (Reason::Idle, false),
        (Reason::Asked, false),
        (Reason::LeaseExpired, false),
    ] {
        let facts = [status(0, AgentPhase::Ready, ""), gone(1, reason.clone())];
        assert_eq!(kept(&facts, reads(Ok(Vec::new()))).await.is_some(), leaves, "{reason:?}");
    }
}

#[tokio::test]
async fn an_agent_of_a_start_before_leaves_its_reason_alone() {
    let kept = kept(&[gone(0, failed())], reads(Ok(Vec::new()))).await.unwrap();
    assert_eq!((kept.moments.len(), kept.vmid, &*kept.template), (0, None, "lab/linux"));
}

// Invariant: what comes of an agent that is gone takes no memory.

#[tokio::test]
async fn what_is_reported_behind_the_end_of_an_agent_is_not_kept() {
    let mut trails = Trails::default();
    for fact in [status(0, AgentPhase::Ready, ""), gone(1, Reason::Idle), step(2, "late")] {
        assert_eq!(trails.take(&fact), None);
    }
    assert_eq!(trails.take(&status(3, AgentPhase::Gone, "")), None);
    let late = trails.take(&gone(4, failed())).unwrap();
    assert_eq!(late.kept.moments, []);
}

// Invariant: what is kept has a bound, and a Proxmox that does not answer costs the tasks alone.

#[tokio::test]
async fn the_newest_moments_stay_and_the_others_are_counted() {
    let mut facts = vec![status(0, AgentPhase::Preparing, "")];
    facts.extend((0..100).map(|at| step(at, &"x".repeat(9000))));
    facts.push(gone(100, failed()));
    let kept = kept(&facts, reads(Ok(Vec::new()))).await.unwrap();
    assert_eq!((kept.moments.len(), kept.moments_left_out), (64, 37));
    assert!(kept.moments.iter().all(|moment| moment.text.len() == 4096));
}

#[tokio::test]
async fn tasks_that_cannot_be_read_are_missing_and_said_to_be() {
    let facts = [status(0, AgentPhase::Booting, ""), gone(1, failed())];
    let kept = kept(&facts, reads(Err("no endpoint answers".to_owned()))).await.unwrap();
    assert_eq!(kept.tasks_unread.as_deref(), Some("no endpoint answers"));
    assert_eq!((kept.tasks.len(), kept.moments.len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_proxmox_that_hangs_holds_one_agent_for_a_while_and_loses_none() {
    let facts = [status(0, AgentPhase::Booting, ""), gone(1, failed())];
    let hangs: ReadTasks = Box::new(|_| Box::pin(std::future::pending()));
    let began = tokio::time::Instant::now();
    let kept = kept(&facts, hangs).await.unwrap();
    assert_eq!(kept.tasks_unread.as_deref(), Some("Proxmox did not answer within 20 s"));
    assert_eq!(began.elapsed().as_secs(), 20);
}

#[tokio::test(start_paused = true)]
async fn each_of_many_agents_that_fail_at_once_has_its_file_although_proxmox_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let hangs: ReadTasks = Box::new(|_| Box::pin(std::future::pending()));
    let (boxes, keeper) = BlackBoxes::with(dir.path(), KEEP, (hangs, no_calls()));
    let began = tokio::time::Instant::now();
    let all: Vec<String> = (0..200).map(|number| format!("a{number}")).collect();
    for agent in &all {
        let (agent, phases) = (AgentId::new(agent), Vec::new());
        let (template, reason) = (template(), failed());
        boxes.observe(&fact(1, What::AgentGone { agent, template, reason, phases }));
    }
    let keeper = tokio::spawn(keeper);
    boxes.flush().await;
    for agent in &all {
        let kept = boxes.read(agent).unwrap().unwrap();
        assert_eq!(kept.tasks_unread.as_deref(), Some("they were not read yet"), "{agent}");
    }
    assert!(began.elapsed() < TASKS_LIMIT, "none of them waits for Proxmox");
    keeper.abort();
}

// Invariant: the calls about a machine are there, with their times and without secrets.

#[tokio::test]
async fn the_calls_about_a_machine_are_kept_with_the_time_at_which_they_ended() {
    let dir = tempfile::tempdir().unwrap();
    let read_calls: ReadCalls = Box::new(|failed, span| {
        assert_eq!((failed.kept.vmid, span.as_secs()), (Some(10_417), 60));
        vec![GuestCall {
            method: "GET",
            path: "/nodes/pve1/qemu/10417/config".to_owned(),
            outcome: "timeout".to_owned(),
            took: Duration::from_secs(30),
            age: Duration::from_secs(20),
            times: 3,
        }]
    });
    let (boxes, keeper) = BlackBoxes::with(dir.path(), KEEP, (reads(Ok(Vec::new())), read_calls));
    for fact in [status(0, AgentPhase::Booting, ""), gone(60, failed())] {
        boxes.observe(&fact);
    }
    let store = boxes.store.clone();
    drop(boxes);
    keeper.await;
    let kept = store.get("a1").unwrap().unwrap();
    let [call] = &kept.calls[..] else { panic!("{:?}", kept.calls) };
    assert_eq!(call.at, WallTime(THEN.0 + 40_000).rfc3339());
    assert_eq!((&*call.outcome, call.ms, call.times), ("timeout", 30_000, 3));
}

// Invariant: of a guest that SSH never reached, its guest agent's log is kept, or it is said that there is none.

#[test]
fn a_guest_that_ssh_does_not_reach_is_asked_each_minute_through_its_guest_agent() {
    let mut trails = Trails::default();
    trails.take(&status(0, AgentPhase::Booting, ""));
    let at = |second: i64| WallTime(THEN.0 + second * 1000);
    assert_eq!(trails.unreached(at(59)), []);
    let [one] = &trails.unreached(at(60))[..] else { panic!("it waits for a minute") };
    assert_eq!((one.vmid, one.node.as_str()), (VmId(10_417), "pve1"));
    assert_eq!(trails.unreached(at(61)), []);
    assert_eq!(trails.unreached(at(120)).len(), 1);
    trails.heard(&AgentId::new("a1"), "cloud-init.log\nPASSWORD=hunter2\nno network");
    let kept = trails.take(&gone(130, failed())).unwrap().kept;
    assert_eq!(kept.guest_log.as_deref(), Some("cloud-init.log\nPASSWORD=***\nno network"));
    assert_eq!(kept.guest_unread, None);
}

#[test]
fn where_neither_ssh_nor_the_guest_agent_answers_it_is_said() {
    for (phases, unread) in [
        (vec![AgentPhase::Cloning], false),
        (vec![AgentPhase::Booting], true),
        (vec![AgentPhase::Booting, AgentPhase::Connecting], true),
        (vec![AgentPhase::Connecting, AgentPhase::Preparing], false),
    ] {
        let mut trails = Trails::default();
        for phase in &phases {
            trails.take(&status(0, *phase, ""));
        }
        let kept = trails.take(&gone(1, failed())).unwrap().kept;
        assert_eq!(kept.guest_unread.is_some(), unread, "{phases:?}");
    }
}

// Invariant: files go by their age although no agent fails.

#[tokio::test(start_paused = true)]
async fn old_files_go_each_hour_and_not_only_when_one_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let read = (reads(Ok(Vec::new())), no_calls());
    let (boxes, keeper) = BlackBoxes::with(dir.path(), KEEP, read);
    let store = boxes.store.clone();
    let keeper = tokio::spawn(keeper);
    // The first look is at the start.
    tokio::time::sleep(PRUNE_INTERVAL / 2).await;
    boxes.observe(&status(0, AgentPhase::Booting, ""));
    boxes.observe(&gone(1, failed()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(store.get("a1").unwrap().is_some());
    boxes.configure(Keep { age: Duration::ZERO, bytes: 0 });
    tokio::time::sleep(PRUNE_INTERVAL).await;
    assert_eq!(store.get("a1").unwrap(), None);
    drop(boxes);
    keeper.await.unwrap();
}
