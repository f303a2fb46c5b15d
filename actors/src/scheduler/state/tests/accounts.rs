//! Accounts of why demand waits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_model::demand::report::{Account, Estimate, Subject};
use drover_model::demand::spec::ShareSpec;
use drover_model::id::{CloudId, SourceId};
use drover_model::journal_state::GrantedLease;
use drover_model::phase::AgentPhase;
use drover_model::spec::ResetKind;

use super::sources::{source, wanted};
use super::*;
use crate::demand::Level;
use crate::scheduler::waiting::Ground;
use crate::template::Pause;

fn account(
    scheduler: &Scheduler,
    specs: &[Arc<TemplateSpec>],
    subject: &Subject,
    now: u64,
) -> Account {
    account_on(scheduler, specs, subject, now, &BTreeMap::new())
}

/// The same where some clouds do not work.
fn account_on(
    scheduler: &Scheduler,
    specs: &[Arc<TemplateSpec>],
    subject: &Subject,
    now: u64,
    trouble: &BTreeMap<CloudId, String>,
) -> Account {
    let templates = specs.iter().map(|spec| (spec.id.clone(), spec.clone())).collect();
    let clouds = BTreeMap::new();
    let ground =
        Ground { templates: &templates, clouds: &clouds, trouble, images: BTreeMap::new() };
    scheduler.account(subject, &ground, at(now).wall).unwrap()
}

fn git() -> SourceId {
    SourceId::new("git")
}

fn job(since: u64) -> Subject {
    Subject::Job(git(), labels(&["linux"]), at(since).wall, 0)
}

/// A template whose agents take 40 s to be ready and 100 s a use, with one agent busy and no room;
/// and one with other labels.
fn scene() -> (Scheduler, Vec<Arc<TemplateSpec>>) {
    let (mut scheduler, specs) = scheduler(&[("c/t", &["linux"], 9), ("c/w", &["windows"], 9)]);
    let heavy = ShareSpec { weight: 3, ..ShareSpec::default() };
    scheduler.shares(
        ShareSpec::default(),
        [source("git", heavy), source("hub", ShareSpec::default())].into_iter(),
    );
    let mut started = news(&specs[0], 0);
    started.agents = vec![level(&specs[0], "a1", Standing::Coming, &[])];
    scheduler.news(&started, at(0).wall);
    started.agents = vec![level(&specs[0], "a1", IDLE, &[])];
    scheduler.news(&started, at(40).wall);
    wanted(&mut scheduler, "git", 1, 40, &[]);
    scheduler.decide(at(40).wall, &mut || LeaseId::new("first"));
    started.agents = vec![level(&specs[0], "a1", Standing::Busy, &["first"])];
    scheduler.news(&started, at(40).wall);
    started.agents =
        vec![AgentLevel { over: vec![LeaseId::new("first")], ..level(&specs[0], "a1", IDLE, &[]) }];
    scheduler.news(&started, at(140).wall);
    scheduler.decide(at(140).wall, &mut || LeaseId::new("second"));
    started.agents = vec![level(&specs[0], "a1", Standing::Busy, &["second"])];
    scheduler.news(&started, at(140).wall);
    wanted(&mut scheduler, "git", 1, 40, &[("second", 1)]);
    (scheduler, specs)
}

// Invariant: an account says whose turn it is, who serves it, and when, from what was seen.

#[test]
fn a_job_that_waits_for_others_to_end_is_reported_when_that_may_be() {
    let (mut scheduler, specs) = scene();
    let level = |since: &[u64]| Level {
        want: labels(&["linux"]),
        since: since.iter().map(|one| at(*one).wall).collect(),
    };
    let lease = LeaseId::new("second");
    scheduler.demanded(&git(), vec![level(&[141, 142, 143])], std::iter::once((lease, 1)));
    let one = account(&scheduler, &specs, &job(143), 150);
    assert_eq!((one.has, one.all, one.weights), (1, 1, 3));
    let kind = &one.kinds[0];
    assert_eq!((kind.count, kind.open, kind.ahead), (3, 0, Some(2)));
    assert_eq!(kind.others, [(template_id("c/w"), "lacks `linux`".to_owned())]);
    let serving = &kind.serve[0];
    assert_eq!((serving.busy, serving.room, serving.coming), (1, 0, 0));
    assert_eq!(serving.until_ready, Some(Duration::from_secs(40)));
    assert_eq!(serving.of_uses, Some(Duration::from_secs(100)));
    let Estimate::In(span, why) = &kind.estimate else { panic!("{:?}", kind.estimate) };
    assert_eq!(
        *span,
        Duration::from_secs(90 + 40 + 2 * 140),
        "each use on an agent of its own: {why}"
    );
}

#[test]
fn a_job_with_room_waits_as_long_as_an_agent_takes_and_others_go_before_it() {
    let (mut scheduler, specs) = scene();
    scheduler.news(&news(&specs[0], 5), at(141).wall);
    wanted(&mut scheduler, "git", 2, 141, &[("second", 1)]);
    wanted(&mut scheduler, "hub", 2, 141, &[]);
    let Account { weights, kinds, .. } =
        account(&scheduler, &specs, &Subject::Source(Some(SourceId::new("hub"))), 150);
    assert_eq!((weights, kinds[0].ahead), (4, Some(2)), "three times its weight");
    assert_eq!(kinds[0].estimate.clone(), account_estimate(40));
    let last = account(&scheduler, &specs, &job(141), 150);
    assert_eq!(last.kinds[0].ahead, Some(0));
}

fn account_estimate(seconds: u64) -> Estimate {
    Estimate::In(Duration::from_secs(seconds), format!("agents take {seconds} s to be ready"))
}

#[test]
fn what_nobody_serves_and_what_a_cap_holds_is_reported_as_that() {
    let (mut scheduler, specs) = scene();
    let mut level = Level { want: labels(&["gpu"]), since: vec![at(1).wall] };
    scheduler.demanded(&git(), vec![level.clone()], std::iter::empty());
    let kind = account(&scheduler, &specs, &Subject::Source(Some(git())), 150).kinds.remove(0);
    assert_eq!(kind.why, "no configured template serves labels `gpu`");
    assert_eq!((kind.serve.len(), kind.others.len()), (0, 2));
    let never = Estimate::Never("a template that serves it is configured".into());
    assert_eq!(kind.estimate, never);

    let capped = ShareSpec { cap: Some(1), ..ShareSpec::default() };
    scheduler.shares(ShareSpec::default(), std::iter::once(source("git", capped)));
    level.want = labels(&["linux"]);
    scheduler.demanded(&git(), vec![level], std::iter::once((LeaseId::new("second"), 1)));
    let kind = account(&scheduler, &specs, &job(1), 150).kinds.remove(0);
    assert_eq!(
        (kind.ahead, &*kind.why),
        (None, "its source has as many agents as its `instanceCap`")
    );
}

#[test]
fn a_job_that_a_cap_holds_is_reported_when_enough_of_its_sources_own_uses_have_ended() {
    let (mut scheduler, specs) = scene();
    let capped = ShareSpec { cap: Some(1), ..ShareSpec::default() };
    scheduler.shares(ShareSpec::default(), std::iter::once(source("git", capped)));
    let since = [1, 2, 3].map(|one| at(one).wall).to_vec();
    let level = Level { want: labels(&["linux"]), since };
    scheduler.demanded(&git(), vec![level], std::iter::once((LeaseId::new("second"), 1)));
    let reported = |job_since| match account(&scheduler, &specs, &job(job_since), 150)
        .kinds
        .remove(0)
        .estimate
    {
        Estimate::In(span, text) => (span.as_secs(), text),
        Estimate::Never(text) | Estimate::Unknown(text) => panic!("{text}"),
    };
    let text = "its source has 1 of 1, its uses last 100 s and 1 of them must end first; agents take \
                40 s to be ready";
    assert_eq!(reported(1), (90 + 40, text.to_owned()), "the one that runs ends in 90 s");
    assert_eq!(
        reported(3).0,
        90 + 40 + 2 * 140,
        "one after the other, each on an agent of its own"
    );
}

const OUTLASTED: &str = "busy agents are used for longer than uses lasted so far (100 s): nobody \
                         knows when such a use ends; it ends at the latest when its lease expires, \
                         and `drover leases` shows when that is";

#[test]
fn a_use_that_lasts_far_longer_than_others_did_promises_no_place() {
    let (mut scheduler, specs) = scene();
    wanted(&mut scheduler, "git", 1, 141, &[("second", 1)]);
    let reported = |now| account(&scheduler, &specs, &job(141), now).kinds.remove(0).estimate;
    let Estimate::In(span, why) = reported(440) else { panic!("{:?}", reported(440)) };
    assert_eq!(span, Duration::from_secs(25 + 40), "three times as long: {why}");
    assert_eq!(reported(441), Estimate::Unknown(OUTLASTED.into()));
    assert_eq!(reported(9000), Estimate::Unknown(OUTLASTED.into()));
}

#[test]
fn a_cap_promises_nothing_of_its_sources_own_uses_that_last_far_longer_than_others_did() {
    let (mut scheduler, specs) = scene();
    let capped = ShareSpec { cap: Some(1), ..ShareSpec::default() };
    scheduler.shares(ShareSpec::default(), std::iter::once(source("git", capped)));
    wanted(&mut scheduler, "git", 1, 141, &[("second", 1)]);
    let reported = |now| account(&scheduler, &specs, &job(141), now).kinds.remove(0).estimate;
    assert!(matches!(reported(440), Estimate::In(..)), "{:?}", reported(440));
    let text = format!("its source has 1 of 1, and {OUTLASTED}");
    assert_eq!(reported(441), Estimate::Unknown(text));
}

#[test]
fn a_cap_without_a_use_that_ended_says_that_nothing_can_be_reported() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &["linux"], 9)]);
    let capped = ShareSpec { cap: Some(1), ..ShareSpec::default() };
    scheduler.shares(ShareSpec::default(), std::iter::once(source("git", capped)));
    scheduler.news(&news(&specs[0], 5), at(0).wall);
    let since = [0, 1].map(|one| at(one).wall).to_vec();
    let level = Level { want: labels(&["linux"]), since };
    scheduler.demanded(&git(), vec![level], std::iter::empty());
    let kind = account(&scheduler, &specs, &job(1), 150).kinds.remove(0);
    let text = "one of its source's own uses must end first, and none has ended since the service \
                started";
    assert_eq!(kind.estimate, Estimate::Unknown(text.into()));
}

// Invariant: nothing is promised of what stands still.

#[test]
fn what_stands_still_is_reported_with_what_it_stands_for_and_no_time() {
    let reported = |change: fn(&mut TemplateNews), trouble: &[(&str, &str)]| {
        let (mut scheduler, specs) = scene();
        let mut stuck = news(&specs[0], 5);
        stuck.gone.push(level(&specs[0], "a1", Standing::Gone, &[]));
        change(&mut stuck);
        scheduler.news(&stuck, at(141).wall);
        wanted(&mut scheduler, "git", 2, 141, &[]);
        let trouble = trouble.iter().map(|(cloud, why)| (CloudId::new(*cloud), (*why).to_owned()));
        let trouble = trouble.collect();
        let subject = Subject::Source(Some(git()));
        account_on(&scheduler, &specs, &subject, 150, &trouble).kinds.remove(0).estimate
    };
    let down = reported(|_| (), &[("c", "no route to host")]);
    assert_eq!(down, Estimate::Never("cloud c is usable again".into()));
    let lack = reported(|news| news.lack = Some("no node has 64 GiB".into()), &[]);
    let stuck = Estimate::Never("the cause below is gone".into());
    assert_eq!(lack, stuck);
    let paused = |news: &mut TemplateNews| {
        let why = "VMID 9000 does not exist".into();
        (news.room, news.paused) = (0, Some(Pause { why, retry: None }));
    };
    assert_eq!(reported(paused, &[]), stuck);
    let retries = |news: &mut TemplateNews| {
        let (why, retry) = ("can't lock file".into(), Some(at(160).wall));
        (news.room, news.paused) = (0, Some(Pause { why, retry }));
    };
    let again = format!("drover tries again by itself at {}", at(160).wall.rfc3339());
    assert_eq!(reported(retries, &[]), Estimate::Unknown(again));
    let tripped = |news: &mut TemplateNews| {
        (news.flowing, news.tripped) = (false, Some((at(300).wall, "readyCommand failed".into())));
    };
    let tried = format!("its agents failed; drover tries one at {}", at(300).wall.rfc3339());
    assert_eq!(reported(tripped, &[]), Estimate::Unknown(tried));
    let probing = reported(|news| news.flowing = false, &[]);
    let now = "its agents failed; drover tries one now";
    assert_eq!(probing, Estimate::Unknown(now.into()));
}

#[test]
fn a_busy_agent_that_is_used_again_serves_though_its_cloud_is_out_of_reach() {
    let reported = |change: fn(&mut TemplateSpec), subject: &Subject| {
        let (mut scheduler, mut specs) = scene();
        wait(&mut scheduler, &specs, "l1", labels(&["linux"]), 145);
        wanted(&mut scheduler, "git", 1, 141, &[("second", 1)]);
        let mut spec = TemplateSpec::clone(&specs[0]);
        change(&mut spec);
        specs[0] = Arc::new(spec);
        scheduler.news(&news(&specs[0], 0), at(146).wall);
        let trouble = std::iter::once((CloudId::new("c"), "no route to host".to_owned())).collect();
        account_on(&scheduler, &specs, subject, 150, &trouble).kinds.remove(0).estimate
    };
    let lease = Subject::Lease(LeaseId::new("l1"));
    let or_free = "cloud c is usable again, or a busy agent is free";
    assert_eq!(reported(|_| (), &lease), Estimate::Never(or_free.into()));
    let alone = Estimate::Never("cloud c is usable again".into());
    assert_eq!(reported(|spec| spec.max_uses = Some(1), &lease), alone);
    let resets = |spec: &mut TemplateSpec| spec.reset = Some(ResetKind::Disk);
    assert_eq!(reported(resets, &lease), alone, "a reset needs the cloud");
    assert_eq!(reported(|_| (), &job(141)), alone, "jobs find no guest that one was in before");
}

#[test]
fn an_agent_that_is_ready_serves_at_once_though_its_template_stands_still() {
    let (mut scheduler, specs) = scene();
    let mut tripped = news(&specs[0], 0);
    (tripped.flowing, tripped.tripped) = (false, Some((at(300).wall, "no space".into())));
    tripped.agents = vec![level(&specs[0], "a2", IDLE, &[])];
    scheduler.news(&tripped, at(141).wall);
    wanted(&mut scheduler, "git", 1, 141, &[]);
    let kind = account(&scheduler, &specs, &Subject::Source(Some(git())), 150).kinds.remove(0);
    assert_eq!(kind.estimate, Estimate::In(Duration::ZERO, "an agent is ready".into()));
}

// Invariant: a use of an earlier start of the service has lasted since it was granted.

#[test]
fn a_use_that_a_restart_finds_is_foreseen_from_when_it_was_granted() {
    let spec = Arc::new(template("c/t", &["linux"]));
    let mut journal_state = JournalState::default();
    for (name, lease, granted) in [("a1", "one", 0), ("a2", "two", 60)] {
        let mut agent = entry(name, 10_000, (*spec).clone(), AgentPhase::Leased);
        let grant = GrantedLease {
            ask: ask(lease, labels(&["linux"]), granted),
            granted: Some(at(granted).wall),
            expires: at(9_000).wall,
            span_ms: None,
            runner: None,
            pending: false,
        };
        agent.leases.insert(LeaseId::new(lease), grant);
        journal_state.agents.insert(AgentId::new(name), agent);
    }
    let mut scheduler = Scheduler::restore(&journal_state);
    scheduler.cloud(&spec.id.cloud, u32::MAX);
    let mut full = news(&spec, 0);
    full.agents = vec![
        level(&spec, "a1", Standing::Busy, &["one"]),
        level(&spec, "a2", Standing::Busy, &["two"]),
        level(&spec, "a3", Standing::Coming, &[]),
    ];
    scheduler.news(&full, at(70).wall);
    full.agents = vec![level(&spec, "a3", IDLE, &[])];
    scheduler.news(&full, at(80).wall);
    full.agents = Vec::new();
    let over = |agent: &str, lease| AgentLevel {
        over: vec![LeaseId::new(lease)],
        ..level(&spec, agent, Standing::Gone, &[])
    };
    full.gone = vec![over("a1", "one"), level(&spec, "a3", Standing::Gone, &[])];
    scheduler.news(&full, at(100).wall);
    wait(&mut scheduler, std::slice::from_ref(&spec), "next", labels(&["linux"]), 100);
    let subject = Subject::Lease(LeaseId::new("next"));
    let kind = account(&scheduler, std::slice::from_ref(&spec), &subject, 100).kinds.remove(0);
    assert_eq!(kind.serve[0].of_uses, Some(Duration::from_secs(100)));
    let Estimate::In(span, why) = kind.estimate else { panic!("{:?}", kind.estimate) };
    assert_eq!(span, Duration::from_secs(60), "of 100 s, 40 s have passed: {why}");
}

// Invariant: what no template serves stands in nobody's way.

#[test]
fn a_job_that_no_template_serves_has_no_part_of_its_sources_cap() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &["linux"], 9)]);
    let capped = ShareSpec { cap: Some(1), ..ShareSpec::default() };
    scheduler.shares(ShareSpec::default(), std::iter::once(source("git", capped)));
    scheduler.news(&news(&specs[0], 5), at(0).wall);
    let level = |want: &str, since| Level { want: labels(&[want]), since: vec![at(since).wall] };
    scheduler.demanded(&git(), vec![level("gpu", 1), level("linux", 2)], std::iter::empty());
    let effects = scheduler.decide(at(3).wall, &mut || LeaseId::new("l"));
    assert!(
        effects.iter().any(|effect| matches!(effect, Effect::Start { count: 1, .. })),
        "the older one cannot be served: {effects:?}"
    );
}

#[test]
fn a_lease_that_waits_has_an_account_and_others_have_none() {
    let (mut scheduler, specs) = scene();
    wait(&mut scheduler, &specs, "l1", labels(&["linux"]), 145);
    let one = account(&scheduler, &specs, &Subject::Lease(LeaseId::new("l1")), 150);
    assert_eq!((one.source, one.kinds[0].count), (None, 1));
    let ground = Ground {
        templates: &BTreeMap::new(),
        clouds: &BTreeMap::new(),
        trouble: &BTreeMap::new(),
        images: BTreeMap::new(),
    };
    for (lease, text) in [("second", "does not wait"), ("nobody", "no lease `nobody`")] {
        let reported =
            scheduler.account(&Subject::Lease(LeaseId::new(lease)), &ground, at(150).wall);
        assert!(reported.unwrap_err().to_string().contains(text));
    }
}

// Invariant: what is shown of a template that has reached its cap leads to who has its agents.

#[test]
fn leases_are_looked_at_only_where_an_agent_of_a_full_template_is_busy() {
    let mut spec = template("c/t", &["linux"]);
    spec.cap = Some(1);
    let spec = Arc::new(spec);
    let mut scheduler = Scheduler::default();
    scheduler.cloud(&spec.id.cloud, u32::MAX);
    let (templates, clouds, trouble) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let ground = Ground {
        templates: &templates,
        clouds: &clouds,
        trouble: &trouble,
        images: BTreeMap::new(),
    };
    for (standing, reported) in [
        (
            Standing::Coming,
            "c/t is full: 1 of 1 (`instanceCap`), none of them busy; `drover agents` lists them",
        ),
        (
            IDLE,
            "c/t is full: 1 of 1 (`instanceCap`), none of them busy; `drover agents` lists them",
        ),
        (Standing::Busy, "c/t is full: 1 of 1 (`instanceCap`); `drover leases` says who has them"),
    ] {
        let mut there = news(&spec, 0);
        there.live = 1;
        there.agents = vec![level(&spec, "a1", standing, &[])];
        scheduler.news(&there, at(1).wall);
        assert_eq!(scheduler.obstacle(&spec.id, &ground).as_deref(), Some(reported));
    }
    scheduler.restrained = BTreeSet::from([AgentId::new("a1")]);
    let mut there = news(&spec, 0);
    there.live = 1;
    there.agents = vec![level(&spec, "a1", IDLE, &[])];
    scheduler.news(&there, at(1).wall);
    let reported = "c/t is full: 1 of 1 (`instanceCap`), of which drover hands out 1 to nobody, since \
                    another drover may own them; `drover status` says what to do";
    assert_eq!(scheduler.obstacle(&spec.id, &ground).as_deref(), Some(reported));
}
