#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::sync::Arc;

use drover_model::id::{CloudId, RunnerName, SourceId};
use drover_model::noted::{JobSeen, JobsSeen};
use drover_model::phase::LeasePhase;
use drover_model::ports::{JobObservation, JobOrigin};
use drover_model::record::Want;
use drover_model::status::LeaseStatus;

use super::*;

/// The start of the service.
const START: i64 = 1_000;

fn template() -> TemplateId {
    TemplateId::new(CloudId::new("lab"), "linux")
}

fn parts(phases: &[(&str, u64)]) -> Vec<(String, u64)> {
    phases.iter().map(|(name, ms)| ((*name).to_owned(), *ms)).collect()
}

fn agent(phase: AgentPhase, phases: &[(&str, u64)]) -> What {
    let started = AgentStatus::started(AgentId::new("a1"), template(), WallTime(START));
    let (vmid, node) = (Some(VmId(101)), Some(NodeName::new("pve1")));
    What::Agent(Arc::new(AgentStatus {
        phase,
        phases: parts(phases),
        vmid,
        node,
        uses: u32::from(phase == AgentPhase::Leased),
        ..started
    }))
}

fn gone(reason: Reason, phases: &[(&str, u64)]) -> What {
    let agent = AgentId::new("a1");
    What::AgentGone { agent, template: template(), reason, phases: parts(phases) }
}

fn lease(principal: &str, state: LeasePhase, agent: Option<&str>, detail: &str) -> LeaseStatus {
    LeaseStatus {
        lease: LeaseId::new("l1"),
        state,
        agent: agent.map(AgentId::new),
        owner: "anna".into(),
        principal: principal.into(),
        group: None,
        wants: "labels linux".into(),
        want: None,
        whole: false,
        asked: Some(WallTime(START - 500)),
        granted: None,
        expires: None,
        detail: detail.into(),
    }
}

fn at(fold: &mut Fold, ms: i64, what: What) {
    fold.observe(&Fact { at: WallTime(ms), what });
}

fn leased(fold: &mut Fold, ms: i64, status: LeaseStatus) {
    at(fold, ms, What::Lease(Box::new(status)));
}

/// What a source shows to run on the lease.
fn runs(fold: &mut Fold, jobs: &[(&str, Option<JobObservation>)]) {
    let running = jobs.iter().map(|(id, waited)| JobSeen {
        id: (*id).to_owned(),
        waited: waited.clone(),
        agent: AgentId::new("a1"),
        lease: LeaseId::new("l1"),
        runner: RunnerName::new("drover-lab-a1"),
    });
    let (source, running) = (SourceId::new("git"), running.collect());
    let seen = JobsSeen { source, priority: 0, waiting: Vec::new(), running };
    fold.note(&Noted::Jobs(Arc::new(seen)));
}

fn job(id: &str) -> JobObservation {
    let text = |text: &str| Some(text.to_owned());
    JobObservation {
        id: id.to_owned(),
        name: "build".to_owned(),
        want: Want::Labels(["linux".to_owned()].into()),
        since: WallTime(START - 600),
        origin: Some(Box::new(JobOrigin {
            url: text("https://git.lan/team/app/actions/runs/12/jobs/0"),
            run: text("40"),
            run_url: text("https://git.lan/team/app/actions/runs/12"),
            pipeline: text("ci"),
            repository: text("https://git.lan/team/app"),
            branch: text("main"),
            revision: text("9d59409acf47"),
        })),
    }
}

/// The spans since the last time, as text: parents first, with times since the start of the service.
fn shown(fold: &mut Fold) -> String {
    let mut text = String::new();
    for span in fold.take() {
        let root = span.parent == Some(SpanId::root(&span.agent));
        let depth = if span.parent.is_none() { 0 } else { 1 + usize::from(!root) };
        let times = (span.start.0 - START, span.end.0 - START);
        let _ = writeln!(text, "{}{} {times:?}", "  ".repeat(depth), span.name);
        for (name, value) in &span.attributes {
            let _ = writeln!(text, "{}{name} = {value:?}", "  ".repeat(depth + 2));
        }
        if let Some(why) = &span.failed {
            let _ = writeln!(text, "{}failed: {why}", "  ".repeat(depth + 2));
        }
    }
    text
}

// Invariant: a trace has the whole life of its agent: each part once, at its place, and each lease.

#[test]
fn the_life_of_an_agent_with_a_job_is_one_trace() {
    let mut fold = Fold::new(WallTime(START));
    let source = "source:git";
    leased(&mut fold, START - 400, lease(source, LeasePhase::Waiting, None, "no agent is free"));
    at(&mut fold, START, agent(AgentPhase::Queued, &[("Queued", 0)]));
    let way = [("Queued", 10), ("Cloning", 200), ("Preparing: cloud-init", 30), ("Ready", 5)];
    at(&mut fold, START + 210, agent(AgentPhase::Preparing, &way[..3]));
    let step = What::Step {
        agent: AgentId::new("a1"),
        template: template(),
        step: "cloud-init".to_owned(),
        ms: 29,
        exit: Some(0),
        log: "the output of the step".to_owned(),
    };
    at(&mut fold, START + 245, agent(AgentPhase::Ready, &way));
    at(&mut fold, START + 245, step);
    let early = shown(&mut fold);
    let granted = |state| LeaseStatus {
        granted: Some(WallTime(START + 246)),
        ..lease(source, state, Some("a1"), "")
    };
    leased(&mut fold, START + 246, granted(LeasePhase::Granted));
    leased(&mut fold, START + 260, granted(LeasePhase::Ready));
    let busy = [&way[..], &[("Leased", 0)]].concat();
    at(&mut fold, START + 250, agent(AgentPhase::Leased, &busy));
    runs(&mut fold, &[("77", None)]);
    runs(&mut fold, &[("77", Some(job("77")))]);
    leased(&mut fold, START + 900, lease(source, LeasePhase::Ended, Some("a1"), "done"));
    let served = shown(&mut fold);
    let end = [("Queued", 10), ("Cloning", 200), ("Preparing: cloud-init", 30), ("Ready", 5)];
    let end = [&end[..], &[("Leased", 650), ("Retiring", 40)]].concat();
    at(&mut fold, START + 895, agent(AgentPhase::Retiring, &end));
    assert_eq!(shown(&mut fold), "", "it waits for the reason of the end");
    at(&mut fold, START + 935, gone(Reason::UsedUp, &end));
    let over = shown(&mut fold);
    let text = format!("on its way:\n{early}\nafter its job:\n{served}\ngone:\n{over}");
    assert!(!text.contains("output") && !text.contains("anna"), "{text}");
    insta::assert_snapshot!("life", text);
}

// Invariant: what failed is marked where it failed, with the reason in words.

#[test]
fn the_part_in_which_an_agent_failed_is_marked() {
    let mut fold = Fold::new(WallTime(START));
    let way = [("Queued", 10), ("Cloning", 200), ("Booting", 90)];
    at(&mut fold, START + 300, agent(AgentPhase::Booting, &way));
    assert_eq!(fold.take().len(), 2);
    let state = AgentPhase::Booting;
    let reason = Reason::TooSlow { state, text: "it has no address".into() };
    let end = [&way[..], &[("Retiring", 40)]].concat();
    at(&mut fold, START + 310, agent(AgentPhase::Retiring, &end));
    at(&mut fold, START + 340, gone(reason, &end));
    insta::assert_snapshot!("failed", shown(&mut fold));
}

// Invariant: a restart of the service makes no span twice, and loses no root.

#[test]
fn a_restart_makes_no_span_twice_and_no_other_ids() {
    let way = [("Queued", 10), ("Cloning", 200), ("Booting", 30), ("Ready", 5)];
    let mut before = Fold::new(WallTime(START));
    at(&mut before, START + 245, agent(AgentPhase::Ready, &way));
    let first = before.take();
    // The next start knows the time before as one sum.
    let mut fold = Fold::new(WallTime(START + 500));
    let earlier = |ready| [("Earlier", 500), ("Ready", ready)];
    at(&mut fold, START + 510, agent(AgentPhase::Ready, &earlier(10)));
    assert!(fold.take().is_empty());
    let leases = lease("token:ci", LeasePhase::Ready, Some("a1"), "its agent is taken over");
    leased(&mut fold, START + 511, leases);
    let granted = Some(WallTime(START + 400));
    let known = LeaseStatus { granted, ..lease("token:ci", LeasePhase::Ready, Some("a1"), "") };
    leased(&mut fold, START + 512, known);
    leased(&mut fold, START + 600, lease("token:ci", LeasePhase::Ended, Some("a1"), "released"));
    at(
        &mut fold,
        START + 700,
        gone(Reason::Idle, &[("Earlier", 500), ("Ready", 150), ("Retiring", 50)]),
    );
    let spans = fold.take();
    let root = spans.last().unwrap();
    assert_eq!((root.parent, root.start, root.end), (None, WallTime(START), WallTime(START + 700)));
    assert!(first.iter().all(|span| span.parent == Some(root.id)));
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["lease", "wait", "use", "Ready", "Retiring", "agent lab/linux"]);
    assert_eq!((spans[2].start, spans[2].end), (WallTime(START + 400), WallTime(START + 600)));
    let ids = |spans: &[Span]| spans.iter().map(|span| span.id.to_string()).collect::<Vec<_>>();
    let both = [ids(&first), ids(&spans)].concat();
    let distinct: std::collections::BTreeSet<&String> = both.iter().collect();
    assert_eq!(distinct.len(), both.len());
}

#[test]
fn what_was_over_before_the_start_of_the_service_has_no_spans() {
    let mut fold = Fold::new(WallTime(START));
    at(&mut fold, START - 1, gone(Reason::Idle, &[("Ready", 5)]));
    let ended = lease("token:ci", LeasePhase::Ended, Some("a1"), "released");
    leased(&mut fold, START - 1, ended.clone());
    leased(&mut fold, START + 1, ended);
    assert!(fold.take().is_empty());
    // One that no agent served is in no trace.
    leased(&mut fold, START + 2, lease("token:ci", LeasePhase::Waiting, None, ""));
    leased(&mut fold, START + 3, lease("token:ci", LeasePhase::Ended, None, "waited-too-long"));
    assert!(fold.take().is_empty());
}

// Invariant: a lease that lost its agent is in the traces of both agents that had it.

#[test]
fn a_lease_that_lost_its_agent_is_in_both_traces() {
    let mut fold = Fold::new(WallTime(START));
    let one = |state, agent, detail| lease("token:ci", state, agent, detail);
    leased(&mut fold, START + 1, one(LeasePhase::Granted, Some("a1"), ""));
    leased(&mut fold, START + 2, one(LeasePhase::Waiting, None, "no agent is free"));
    let first = shown(&mut fold);
    leased(&mut fold, START + 3, one(LeasePhase::Granted, Some("a2"), ""));
    leased(&mut fold, START + 4, one(LeasePhase::Ready, Some("a2"), ""));
    leased(&mut fold, START + 9, one(LeasePhase::Ended, Some("a2"), "released"));
    let spans = fold.take();
    assert!(spans.iter().all(|span| span.agent == AgentId::new("a2")));
    assert_eq!(spans.len(), 4);
    insta::assert_snapshot!("lost", first);
}

// Invariant: a job's result is in the trace only where drover knows it.

#[test]
fn the_end_of_a_lease_says_what_drover_knows_of_its_job() {
    let ends = [
        ("done", None, None),
        ("released", None, None),
        ("cancelled", None, Some("cancellation")),
        ("expired", Some("expired"), Some("timeout")),
        ("lost: its guest was gone from the cluster", Some("lost"), Some("error")),
        ("its runner could not be started", Some("not-served"), Some("error")),
        ("waited-too-long", None, None),
        ("idle", None, None),
    ];
    for (detail, failed, result) in ends {
        for principal in ["source:git", "token:ci"] {
            let mut fold = Fold::new(WallTime(START));
            leased(&mut fold, START + 1, lease(principal, LeasePhase::Granted, Some("a1"), ""));
            leased(&mut fold, START + 2, lease(principal, LeasePhase::Ended, Some("a1"), detail));
            let span = fold.take().remove(0);
            let value = |name: &str| {
                let found = span.attributes.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| value.clone())
            };
            assert_eq!(value(named::ERROR_TYPE), failed.map(Value::from), "{detail}");
            assert_eq!(span.failed.as_deref(), failed.map(|_| detail));
            let result = result.filter(|_| principal.starts_with("source:"));
            assert_eq!(value(named::TASK_RUN_RESULT), result.map(Value::from), "{detail}");
        }
    }
}

// Invariant: a waterfall that adds up parts makes no span at a wrong place.

#[test]
fn parts_beyond_those_that_a_waterfall_keeps_apart_have_no_spans() {
    let mut fold = Fold::new(WallTime(START));
    let mut many = vec![("Queued", 1)];
    for _ in 0..31 {
        many.extend([("Ready", 1), ("Leased", 1)]);
    }
    at(&mut fold, START + 63, agent(AgentPhase::Leased, &many));
    assert_eq!(fold.take().len(), 62);
    many.extend([("Ready", 1), ("Leased", 1), ("Ready", 1)]);
    at(&mut fold, START + 66, agent(AgentPhase::Ready, &many));
    assert!(fold.take().is_empty());
    at(&mut fold, START + 70, gone(Reason::Idle, &many));
    assert_eq!(fold.take().len(), 1);
}

// Invariant: a running build of Jenkins, which is named by its address, leads there.

#[test]
fn a_job_that_is_named_by_its_address_leads_there() {
    let mut fold = Fold::new(WallTime(START));
    leased(&mut fold, START + 1, lease("source:ci", LeasePhase::Granted, Some("a1"), ""));
    runs(
        &mut fold,
        &[("http://ci.lan/job/app/11/#11", None), ("http://ci.lan/job/app/12/#12", None)],
    );
    leased(&mut fold, START + 2, lease("source:ci", LeasePhase::Ended, Some("a1"), "done"));
    let span = fold.take().remove(0);
    let has = |name, value: Value| span.attributes.contains(&(name, value));
    assert!(has(named::TASK_RUN_URL, "http://ci.lan/job/app/12/".into()), "{span:?}");
    let ids = ["http://ci.lan/job/app/11/#11", "http://ci.lan/job/app/12/#12"];
    assert!(has(named::JOBS, Value::Texts(ids.map(str::to_owned).into())), "{span:?}");
}

// Invariant: no output of a step is in a trace.

#[test]
fn what_a_step_said_is_in_no_span() {
    let mut fold = Fold::new(WallTime(START));
    let way = [("Queued", 1), ("Preparing: run", 9)];
    at(&mut fold, START + 5, agent(AgentPhase::Preparing, &way));
    let text = "the step `run` ended with exit status 3; last: x-api-key: abc\nword".to_owned();
    let (state, kind) = (AgentPhase::Preparing, "broken".to_owned());
    leased(&mut fold, START + 6, lease("token:ci", LeasePhase::Granted, Some("a1"), ""));
    let lost = format!("lost: {text}");
    leased(&mut fold, START + 7, lease("token:ci", LeasePhase::Ended, Some("a1"), &lost));
    at(&mut fold, START + 10, gone(Reason::Failed { state, kind, text }, &way));
    let failed: Vec<String> = fold.take().into_iter().filter_map(|span| span.failed).collect();
    let why = "the step `run` ended with exit status 3";
    let of_agent = format!("Preparing failed (broken): {why}");
    assert_eq!(failed, [format!("lost: {why}"), of_agent.clone(), of_agent]);
}
