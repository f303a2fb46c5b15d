#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use drover_model::fact::What;
use drover_model::id::{LeaseId, NodeName, RunnerName};
use drover_model::noted::{JobSeen, JobsSeen, StartedFor};
use drover_model::phase::{AgentPhase, LeasePhase};
use drover_model::ports::JobObservation;
use drover_model::record::{Reason, Want};
use drover_model::size::Size;
use drover_model::status::{AgentStatus, LeaseStatus};

use super::*;
use crate::{How, MadeFor, Part, Peaks};

fn fold() -> Fold {
    let mut fold = Fold::restored("0.1.0", WallTime(0), [], WallTime(0));
    fold.take();
    fold
}

fn template() -> TemplateId {
    TemplateId::new(CloudId::new("lab"), "linux")
}

fn size(cores: u32, memory_mb: u32) -> Size {
    Size { cores: Some(cores), memory_mb: Some(memory_mb), disk_gb: None }
}

fn started(fold: &mut Fold, at: i64, agent: &str) {
    let (agent, template) = (AgentId::new(agent), template());
    let noted = Noted::Started { agent, template, why: StartedFor::Demand, size: size(2, 2048) };
    fold.note(WallTime(at), &noted);
}

fn agent(at: i64, phase: AgentPhase, phases: &[(&str, u64)]) -> What {
    let started = AgentStatus::started(AgentId::new("a1"), template(), WallTime(at));
    let phases = phases.iter().map(|(name, ms)| ((*name).to_owned(), *ms)).collect();
    What::Agent(Arc::new(AgentStatus { phase, phases, vmid: Some(VmId(101)), ..started }))
}

fn gone(reason: Reason, phases: &[(&str, u64)]) -> What {
    let phases = phases.iter().map(|(name, ms)| ((*name).to_owned(), *ms)).collect();
    What::AgentGone { agent: AgentId::new("a1"), template: template(), reason, phases }
}

fn lease(id: &str, state: LeasePhase, agent: Option<&str>, detail: &str) -> LeaseStatus {
    LeaseStatus {
        lease: LeaseId::new(id),
        state,
        agent: agent.map(AgentId::new),
        owner: "anna".into(),
        principal: "token:ci".into(),
        group: None,
        wants: String::new(),
        want: Some(Want::Template("linux".into())),
        whole: false,
        asked: Some(WallTime(50)),
        granted: None,
        expires: None,
        detail: detail.into(),
    }
}

fn at(fold: &mut Fold, ms: i64, what: What) {
    fold.observe(&Fact { at: WallTime(ms), what });
}

fn lease_at(fold: &mut Fold, ms: i64, status: LeaseStatus) {
    at(fold, ms, What::Lease(Box::new(status)));
}

fn closed(fold: &mut Fold) -> Vec<Line> {
    let all = fold.take().into_iter();
    all.filter_map(|kept| if let Kept::Closed(line) = kept { Some(line) } else { None }).collect()
}

fn agents(lines: Vec<Line>) -> Vec<Agent> {
    let agent = |line| if let Line::Agent(agent) = line { Some(*agent) } else { None };
    lines.into_iter().filter_map(agent).collect()
}

fn demands(lines: Vec<Line>) -> Vec<Demand> {
    let demand = |line| if let Line::Demand(demand) = line { Some(*demand) } else { None };
    lines.into_iter().filter_map(demand).collect()
}

fn way() -> [(&'static str, u64); 4] {
    [("Queued", 10), ("Cloning", 40), ("Preparing: script", 50), ("Ready", 0)]
}

/// An agent that was made, got ready and was leased.
fn ready(fold: &mut Fold) {
    started(fold, 0, "a1");
    at(fold, 10, agent(10, AgentPhase::Cloning, &[("Queued", 10), ("Cloning", 0)]));
    at(fold, 100, agent(100, AgentPhase::Ready, &way()));
}

// Invariant: an agent is one record, closed once, with its way to ready and what came after it apart.

#[test]
fn an_agent_has_one_record_with_its_way_and_its_end() {
    let mut fold = fold();
    ready(&mut fold);
    let life =
        [&way()[..3], &[("Ready", 7), ("Leased", 90), ("Ready", 3), ("Retiring", 9)]].concat();
    at(&mut fold, 209, gone(Reason::UsedUp, &life));
    let [record] = agents(closed(&mut fold)).try_into().unwrap();
    let part = |name: &str, ms| Part { name: name.into(), ms };
    assert_eq!(record.made_for, MadeFor::Demand);
    assert_eq!((record.made, record.machine), (WallTime(0), Some(WallTime(10))));
    assert_eq!((record.ready, record.gone), (Some(WallTime(100)), Some(WallTime(209))));
    assert_eq!((record.cores, record.memory_mib), (Some(2), Some(2048)));
    assert_eq!(
        record.boot,
        [part("Queued", 10), part("Cloning", 40), part("Preparing: script", 50)]
    );
    assert_eq!(record.after, [part("Ready", 10), part("Leased", 90), part("Retiring", 9)]);
    assert_eq!(record.reason.as_deref(), Some("used-up"));
    assert!(!record.has_failed());
    assert!(fold.open(WallTime(300)).is_empty());
}

#[test]
fn an_agent_that_fails_says_where_and_by_what() {
    let mut fold = fold();
    started(&mut fold, 0, "a1");
    at(&mut fold, 10, agent(10, AgentPhase::Cloning, &[]));
    let (state, kind, text) = (AgentPhase::Booting, "denied".to_owned(), String::new());
    at(&mut fold, 90, gone(Reason::Failed { state, kind, text }, &[("Cloning", 70)]));
    let [record] = agents(closed(&mut fold)).try_into().unwrap();
    assert!(record.has_failed());
    assert_eq!(record.failed_in.as_deref(), Some(AgentPhase::Booting.name()));
    assert_eq!((record.fault.as_deref(), record.ready), (Some("denied"), None));
    assert_eq!(record.boot, [Part { name: "Cloning".into(), ms: 70 }]);
}

// Invariant: a start goes on with the records of the start before: an agent that is taken over is one.

#[test]
fn an_agent_that_is_taken_over_is_counted_once() {
    let mut fold = fold();
    ready(&mut fold);
    lease_at(&mut fold, 100, lease("l1", LeasePhase::Ready, Some("a1"), ""));
    let open = fold.open(WallTime(150)).into_iter().filter_map(Kept::line);
    let mut next = Fold::restored("0.1.0", WallTime(300), open, WallTime(150));
    at(&mut next, 310, agent(100, AgentPhase::Leased, &[]));
    lease_at(&mut next, 310, lease("l1", LeasePhase::Ready, Some("a1"), ""));
    next.settled(&BTreeSet::new());
    lease_at(&mut next, 400, lease("l1", LeasePhase::Ended, Some("a1"), "released"));
    at(&mut next, 420, gone(Reason::UsedUp, &[("Earlier", 310), ("Leased", 100)]));
    let lines = closed(&mut next);
    let [record] = agents(lines.clone()).try_into().unwrap();
    assert_eq!((record.made, record.ready), (WallTime(0), Some(WallTime(100))));
    assert_eq!((record.boot.len(), record.gone), (3, Some(WallTime(420))));
    assert_eq!(record.after, [Part { name: "Leased".into(), ms: 100 }]);
    let [demand] = demands(lines).try_into().unwrap();
    assert_eq!((demand.served, demand.ended), (Some(WallTime(100)), Some(WallTime(400))));
    // The time while drover was down is its own too.
    assert_eq!(demand.used_ms, Some(300));
}

#[test]
fn what_a_start_does_not_take_over_ended_unseen_when_it_was_seen_last() {
    let mut fold = fold();
    ready(&mut fold);
    lease_at(&mut fold, 100, lease("l1", LeasePhase::Ready, Some("a1"), ""));
    let open = fold.open(WallTime(150)).into_iter().filter_map(Kept::line);
    let mut next = Fold::restored("0.1.0", WallTime(300), open, WallTime(150));
    next.settled(&BTreeSet::new());
    let lines = closed(&mut next);
    let [record] = agents(lines.clone()).try_into().unwrap();
    assert_eq!((record.reason.as_deref(), record.gone), (Some("unseen"), Some(WallTime(150))));
    let [demand] = demands(lines).try_into().unwrap();
    assert_eq!((demand.how, demand.ended), (Some(How::Unseen), Some(WallTime(150))));
    next.settled(&BTreeSet::new());
    assert!(closed(&mut next).is_empty());
}

#[test]
fn a_lease_that_the_journal_shows_as_ended_is_not_counted_again() {
    let mut fold = Fold::restored("0.1.0", WallTime(1000), [], WallTime(900));
    lease_at(&mut fold, 800, lease("l1", LeasePhase::Ended, None, "released"));
    assert!(demands(closed(&mut fold)).is_empty());
    lease_at(&mut fold, 1100, lease("l2", LeasePhase::Ended, None, "cancelled"));
    let [record] = demands(closed(&mut fold)).try_into().unwrap();
    assert_eq!((record.id.as_str(), record.how), ("l2", Some(How::Withdrawn)));
}

// Invariant: a lease has its wait and its run, and its part of an agent that several share.

#[test]
fn a_lease_waits_from_its_asking_until_it_is_ready() {
    let mut fold = fold();
    ready(&mut fold);
    lease_at(&mut fold, 60, lease("l1", LeasePhase::Waiting, None, "no agent is free"));
    let written = fold.take().len();
    lease_at(&mut fold, 70, lease("l1", LeasePhase::Waiting, None, "its agent boots"));
    assert!(written > 0 && fold.take().is_empty(), "why it waits is not kept");
    lease_at(&mut fold, 100, lease("l1", LeasePhase::Granted, Some("a1"), ""));
    lease_at(&mut fold, 130, lease("l1", LeasePhase::Ready, Some("a1"), ""));
    lease_at(&mut fold, 200, lease("l1", LeasePhase::Ended, Some("a1"), "lost: its guest is gone"));
    let [record] = demands(closed(&mut fold)).try_into().unwrap();
    assert_eq!((record.waited_ms(), record.ran_ms()), (Some(80), Some(70)));
    assert_eq!((record.used_ms, record.how), (Some(100), Some(How::Lost)));
    assert_eq!(record.template.as_deref(), Some("lab/linux"));
    assert_eq!(record.owner.as_deref(), Some("anna (token:ci)"));
    assert_eq!(record.wants, Some(Want::Template("linux".into())));
}

#[test]
fn leases_at_once_on_one_agent_share_its_time() {
    let mut fold = fold();
    ready(&mut fold);
    lease_at(&mut fold, 100, lease("l1", LeasePhase::Ready, Some("a1"), ""));
    lease_at(&mut fold, 200, lease("l2", LeasePhase::Ready, Some("a1"), ""));
    lease_at(&mut fold, 300, lease("l1", LeasePhase::Ended, Some("a1"), "released"));
    lease_at(&mut fold, 400, lease("l2", LeasePhase::Ended, Some("a1"), "released"));
    let used: Vec<_> = demands(closed(&mut fold)).iter().map(|one| one.used_ms).collect();
    assert_eq!(used, [Some(150), Some(150)]);
}

#[test]
fn a_runner_is_no_lease_that_somebody_asked_for() {
    let mut fold = fold();
    let status = lease("r1", LeasePhase::Ended, None, "its runner could not be started");
    lease_at(&mut fold, 70, LeaseStatus { principal: "source:git".into(), ..status });
    let [record] = demands(closed(&mut fold)).try_into().unwrap();
    assert_eq!((record.kind, record.source.as_deref()), (DemandKind::Runner, Some("git")));
    assert_eq!(record.how, Some(How::Lost));
}

// Invariant: times of one record never go back, whatever the clock does.

#[test]
fn a_clock_that_is_set_back_makes_no_record_untimely() {
    let mut fold = fold();
    started(&mut fold, 5000, "a1");
    at(&mut fold, 4000, agent(4000, AgentPhase::Cloning, &[]));
    lease_at(&mut fold, 4000, lease("l1", LeasePhase::Waiting, None, ""));
    at(&mut fold, 3000, agent(3000, AgentPhase::Ready, &way()));
    lease_at(&mut fold, 3000, lease("l1", LeasePhase::Granted, Some("a1"), ""));
    lease_at(&mut fold, 20, lease("l1", LeasePhase::Ready, Some("a1"), ""));
    lease_at(&mut fold, 10, lease("l1", LeasePhase::Ended, Some("a1"), "released"));
    at(&mut fold, 10, gone(Reason::UsedUp, &way()));
    let lines = closed(&mut fold);
    assert_eq!(lines.len(), 2);
    for line in lines {
        assert_eq!(line.untimely(), None, "{line:?}");
    }
}

fn job(id: &str, since: i64) -> JobObservation {
    let want = Want::Labels(["linux".to_owned()].into());
    let (id, name, since) = (id.into(), format!("build {id}"), WallTime(since));
    JobObservation { id, name, want, since, origin: None }
}

fn seen(fold: &mut Fold, ms: i64, waiting: &[JobObservation], running: &[&str]) {
    let agent = AgentId::new("a1");
    let (lease, runner) = (LeaseId::new("l1"), RunnerName::new("drover-lab-a1"));
    let one = |id: &&str| {
        let (id, agent) = ((*id).to_owned(), agent.clone());
        JobSeen { id, waited: None, agent, lease: lease.clone(), runner: runner.clone() }
    };
    let running = running.iter().map(one).collect();
    let source = SourceId::new("git");
    let seen = JobsSeen { source, priority: 3, waiting: waiting.to_vec(), running };
    fold.note(WallTime(ms), &Noted::Jobs(Arc::new(seen)));
}

// Invariant: a job is one record from its arrival to its end, and one poll that misses it ends nothing.

#[test]
fn a_job_waits_runs_and_is_over_once_two_polls_do_not_show_it() {
    let mut fold = fold();
    ready(&mut fold);
    seen(&mut fold, 110, &[job("7", 90)], &[]);
    seen(&mut fold, 120, &[], &[]);
    seen(&mut fold, 130, &[job("7", 90)], &[]);
    seen(&mut fold, 140, &[], &["7"]);
    seen(&mut fold, 150, &[], &["7"]);
    seen(&mut fold, 160, &[], &[]);
    assert!(demands(closed(&mut fold)).is_empty());
    seen(&mut fold, 170, &[], &[]);
    let [record] = demands(closed(&mut fold)).try_into().unwrap();
    assert_eq!((record.arrived, record.served), (WallTime(90), Some(WallTime(140))));
    assert_eq!((record.ended, record.how), (Some(WallTime(160)), Some(How::Done)));
    assert_eq!((record.priority, record.template.as_deref()), (3, Some("lab/linux")));
    assert_eq!(record.name.as_deref(), Some("build 7"));
}

#[test]
fn a_job_that_was_never_shown_to_run_ended_unseen() {
    let mut fold = fold();
    seen(&mut fold, 110, &[job("7", 90)], &[]);
    seen(&mut fold, 120, &[], &[]);
    seen(&mut fold, 130, &[], &[]);
    let [record] = demands(closed(&mut fold)).try_into().unwrap();
    assert_eq!((record.served, record.how), (None, Some(How::Unseen)));
    assert_eq!(record.ended, Some(WallTime(120)));
}

#[test]
fn a_job_that_is_lost_with_its_machine_is_lost_at_once() {
    let mut fold = fold();
    seen(&mut fold, 110, &[], &["7"]);
    let (source, runner) = (SourceId::new("git"), RunnerName::new("drover-x"));
    let job = Some("7".to_owned());
    at(&mut fold, 150, What::JobLost { source, runner, agent: AgentId::new("a1"), job });
    let [record] = demands(closed(&mut fold)).try_into().unwrap();
    assert_eq!((record.how, record.ended), (Some(How::Lost), Some(WallTime(150))));
}

// Invariant: a job whose source is not configured any more is over with the start that does not have it.

#[test]
fn jobs_of_a_source_that_left_while_drover_was_down_ended_unseen() {
    let mut fold = fold();
    seen(&mut fold, 110, &[job("7", 90)], &[]);
    let open: Vec<Line> = fold.open(WallTime(150)).into_iter().filter_map(Kept::line).collect();
    let restored = || Fold::restored("0.1.0", WallTime(300), open.clone(), WallTime(150));
    let mut stays = restored();
    stays.settled(&[SourceId::new("git")].into());
    assert!(demands(closed(&mut stays)).is_empty(), "its source may not answer for long");
    let mut left = restored();
    left.settled(&BTreeSet::new());
    let [record] = demands(closed(&mut left)).try_into().unwrap();
    assert_eq!((record.how, record.ended), (Some(How::Unseen), Some(WallTime(150))));
    assert!(left.open(WallTime(400)).is_empty());
}

// Invariant: a lease has the time of the agent that it ended on.

#[test]
fn a_lease_that_lost_its_agent_before_it_was_ready_has_the_time_of_the_next_one_alone() {
    let mut fold = fold();
    ready(&mut fold);
    lease_at(&mut fold, 100, lease("l1", LeasePhase::Granted, Some("a1"), ""));
    lease_at(&mut fold, 900, lease("l1", LeasePhase::Waiting, None, ""));
    started(&mut fold, 900, "a2");
    lease_at(&mut fold, 1000, lease("l1", LeasePhase::Granted, Some("a2"), ""));
    lease_at(&mut fold, 1010, lease("l1", LeasePhase::Ready, Some("a2"), ""));
    lease_at(&mut fold, 1050, lease("l1", LeasePhase::Ended, Some("a2"), "released"));
    let [record] = demands(closed(&mut fold)).try_into().unwrap();
    assert_eq!((record.granted, record.used_ms), (Some(WallTime(1000)), Some(50)));
}

// Invariant: what a machine uses counts for the agent whose machine it is, through whichever cloud it was
// seen, and the most of it stays.

#[test]
fn the_most_that_a_machine_used_stays_with_its_agent() {
    let mut fold = fold();
    ready(&mut fold);
    let of = |busy, used| Use {
        vmid: VmId(101),
        cores: Some(4),
        memory_mib: Some(4096),
        busy_milli: Some(busy),
        used_mib: Some(used),
    };
    fold.used(&CloudId::new("lab"), &[of(1500, 700)]);
    fold.used(&CloudId::new("lab"), &[of(900, 900)]);
    fold.used(&CloudId::new("other"), &[of(4000, 4000)]);
    at(&mut fold, 209, gone(Reason::Idle, &way()));
    let [record] = agents(closed(&mut fold)).try_into().unwrap();
    let peaks = Peaks { cpu_milli: Some(1500), memory_mib: Some(900), looks: 2 };
    assert_eq!((record.peaks, record.cores, record.memory_mib), (peaks, Some(4), Some(4096)));
    // The next agent of that template has that size until it is seen.
    started(&mut fold, 300, "a2");
    let status = AgentStatus::started(AgentId::new("a3"), template(), WallTime(300));
    at(
        &mut fold,
        300,
        What::Agent(Arc::new(AgentStatus { node: Some(NodeName::new("n")), ..status })),
    );
    let open = fold.open(WallTime(300));
    assert!(format!("{open:?}").contains("memory_mib: Some(4096)"), "{open:?}");
}
