//! Demand of CI systems: levels, and shares of what is short.

use drover_model::size::Size;
use std::time::Duration;

use drover_model::demand::spec::{ShareSpec, SourceSpec};
use drover_model::id::SourceId;

use super::*;
use crate::demand::Level;

pub(super) fn source(name: &str, share: ShareSpec) -> Arc<SourceSpec> {
    Arc::new(SourceSpec {
        id: SourceId::new(name),
        kind: "gitea",
        share,
        labels: None,
        size_keys: std::collections::BTreeSet::new(),
        ends_of_labels: &[],
        whole: false,
        single: true,
        early: false,
        registers: false,
        firm: false,
        poll: Duration::from_secs(10),
        brisk: Duration::from_secs(10),
        register: Duration::from_secs(120),
        idle: Duration::from_secs(300),
        job: Duration::from_secs(3600),
        connection: 1,
        place: 1,
    })
}

/// Two templates' worth of room, and sources of these names.
fn with_sources(names: &[&str]) -> (Scheduler, Vec<Arc<TemplateSpec>>) {
    let (mut scheduler, specs) = scheduler(&[("c/t", &["linux"], 9)]);
    let all = names.iter().map(|name| source(name, ShareSpec::default()));
    scheduler.shares(ShareSpec::default(), all);
    (scheduler, specs)
}

/// So many jobs for these labels wait since then; leases with the jobs that run on them.
pub(super) fn wanted(
    scheduler: &mut Scheduler,
    name: &str,
    count: usize,
    since: u64,
    jobs: &[(&str, u32)],
) {
    let level = Level { want: labels(&["linux"]), since: vec![at(since).wall; count] };
    let jobs = jobs.iter().map(|(lease, jobs)| (LeaseId::new(lease), *jobs));
    scheduler.demanded(&SourceId::new(name), vec![level], jobs);
}

// Invariant: demand is a level: reported twice, or late, it starts nothing twice.

#[test]
fn a_level_reported_again_begins_nothing_more() {
    let (mut scheduler, _) = with_sources(&["git"]);
    wanted(&mut scheduler, "git", 2, 0, &[]);
    assert_eq!(text(&scheduler.decided()), ["start 2 c/t"]);
    wanted(&mut scheduler, "git", 2, 0, &[]);
    assert!(scheduler.decided().is_empty());
    wanted(&mut scheduler, "git", 3, 0, &[]);
    assert_eq!(text(&scheduler.decided()), ["start 1 c/t"]);
}

#[test]
fn a_job_is_served_once_although_it_is_still_seen_to_wait() {
    let (mut scheduler, specs) = with_sources(&["git"]);
    report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
    wanted(&mut scheduler, "git", 1, 0, &[]);
    assert_eq!(text(&scheduler.decided()), ["use1 on a1"]);
    // Its runner is on its way, and the job waits until that takes it.
    report(&mut scheduler, &specs[0], "a1", Standing::Busy, &["use1"]);
    wanted(&mut scheduler, "git", 1, 0, &[]);
    assert!(scheduler.decided().is_empty());
    // It runs, and another came.
    wanted(&mut scheduler, "git", 1, 1, &[("use1", 1)]);
    assert_eq!(text(&scheduler.decided()), ["start 1 c/t"]);
}

/// Jobs for each of these label sets wait; leases with the jobs that run on them.
fn wanted_each(scheduler: &mut Scheduler, wants: &[&[&str]], jobs: &[(&str, u32)]) {
    let levels = wants.iter().map(|want| Level { want: labels(want), since: vec![at(0).wall] });
    let jobs = jobs.iter().map(|(lease, jobs)| (LeaseId::new(lease), *jobs));
    scheduler.demanded(&SourceId::new("git"), levels.collect(), jobs);
}

#[test]
fn a_runner_counts_for_whatever_it_can_be_given() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &["linux", "x64", "os=a", "os=b"], 9)]);
    scheduler.shares(ShareSpec::default(), std::iter::once(source("git", ShareSpec::default())));
    for agent in ["a1", "a2"] {
        report(&mut scheduler, &specs[0], agent, IDLE, &[]);
    }
    wanted_each(&mut scheduler, &[&["linux"], &["linux", "x64"]], &[]);
    assert_eq!(text(&scheduler.decided()).len(), 2);
    for (agent, lease) in [("a1", "use1"), ("a2", "use2")] {
        report(&mut scheduler, &specs[0], agent, Standing::Busy, &[lease]);
    }
    // The runner that was started for the second took the first.
    wanted_each(&mut scheduler, &[&["linux", "x64"]], &[("use1", 0), ("use2", 1)]);
    assert!(scheduler.decided().is_empty(), "the other takes it");
    wanted_each(&mut scheduler, &[&["linux"], &["linux", "x64"]], &[("use1", 0), ("use2", 1)]);
    assert_eq!(text(&scheduler.decided()), ["start 1 c/t"], "it takes one of them, not both");
}

#[test]
fn a_runner_does_not_count_for_what_it_cannot_be_given() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &["linux", "os=a", "os=b"], 9)]);
    scheduler.shares(ShareSpec::default(), std::iter::once(source("git", ShareSpec::default())));
    report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
    wanted_each(&mut scheduler, &[&["os=a"]], &[]);
    scheduler.decided();
    report(&mut scheduler, &specs[0], "a1", Standing::Busy, &["use1"]);
    wanted_each(&mut scheduler, &[&["os=b"]], &[]);
    assert_eq!(text(&scheduler.decided()), ["start 1 c/t"]);
}

#[test]
fn a_runner_that_could_not_be_started_is_wanted_again_when_its_source_says_so() {
    let (mut scheduler, specs) = with_sources(&["git"]);
    report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
    wanted(&mut scheduler, "git", 1, 0, &[]);
    scheduler.decided();
    report(&mut scheduler, &specs[0], "a1", Standing::Busy, &["use1"]);
    let mut back = news(&specs[0], 9);
    back.agents = vec![AgentLevel {
        refused: vec![LeaseId::new("use1")],
        ..level(&specs[0], "a1", Standing::Leaving, &[])
    }];
    let effects = scheduler.news(&back, at(1).wall);
    assert_eq!(text(&effects), ["use1 of git is not served"]);
    assert!(scheduler.lease(&LeaseId::new("use1")).is_none());
    assert!(scheduler.decided().is_empty(), "what that means is its source's to say");
    wanted(&mut scheduler, "git", 1, 0, &[]);
    assert_eq!(text(&scheduler.decided()), ["start 1 c/t"]);
}

#[test]
fn agents_started_for_jobs_that_went_away_are_let_go_while_they_cost_nothing() {
    let (mut scheduler, specs) = with_sources(&["git"]);
    wanted(&mut scheduler, "git", 2, 0, &[]);
    scheduler.decided();
    let mut started = news(&specs[0], 7);
    started.answered = [(Size::NONE, 2)].into();
    let agents = ["a1", "a2"].map(|agent| level(&specs[0], agent, Standing::Coming, &[]));
    started.agents = agents.into();
    scheduler.news(&started, at(1).wall);
    wanted(&mut scheduler, "git", 1, 0, &[]);
    assert_eq!(text(&scheduler.decided()), ["withdraw a2"]);
    scheduler.shares(ShareSpec::default(), std::iter::empty());
    assert_eq!(
        text(&scheduler.decided()),
        ["withdraw a1"],
        "its source is not configured any more"
    );
}

#[test]
fn one_runner_with_an_agent_of_its_own_is_enough_for_as_many_jobs_as_that_has_executors() {
    let (mut scheduler, _) = scheduler(&[]);
    let mut spec = template("c/t", &["linux"]);
    spec.executors = 3;
    let spec = Arc::new(spec);
    scheduler.cloud(&spec.id.cloud, u32::MAX);
    scheduler.news(&news(&spec, 9), at(0).wall);
    let mut whole = (*source("ci", ShareSpec::default())).clone();
    whole.whole = true;
    scheduler.shares(ShareSpec::default(), std::iter::once(Arc::new(whole)));
    report(&mut scheduler, &spec, "a1", Standing::Free { executors: 3, idle: true }, &[]);
    wanted(&mut scheduler, "ci", 4, 0, &[]);
    assert_eq!(text(&scheduler.decided()), ["use1 on a1", "start 1 c/t"]);
    report(&mut scheduler, &spec, "a1", Standing::Busy, &["use1"]);
    wanted(&mut scheduler, "ci", 2, 0, &[("use1", 2)]);
    assert!(scheduler.decided().is_empty(), "one more fits there, the other is on its way");
}

// Invariant: sources and leases share what is short by weight, and lend what they do not want.

#[test]
fn free_agents_go_to_the_one_that_has_the_least_for_its_weight() {
    let (mut scheduler, specs) = with_sources(&["git", "hub"]);
    let heavy = ShareSpec { weight: 3, ..ShareSpec::default() };
    let sources = [source("git", heavy), source("hub", ShareSpec::default())];
    scheduler.shares(ShareSpec::default(), sources.into_iter());
    for agent in ["a1", "a2", "a3", "a4"] {
        report(&mut scheduler, &specs[0], agent, IDLE, &[]);
    }
    wanted(&mut scheduler, "hub", 9, 0, &[]);
    wanted(&mut scheduler, "git", 9, 1, &[]);
    let effects = scheduler.decided();
    let sources = effects.iter().filter_map(|effect| {
        if let Effect::HandOut { ask, .. } = effect { ask.source.clone() } else { None }
    });
    let sources: Vec<SourceId> = sources.collect();
    let given = |name: &str| sources.iter().filter(|source| source.as_str() == name).count();
    assert_eq!((given("git"), given("hub")), (3, 1), "{effects:?}");
}

#[test]
fn room_for_one_more_is_for_the_one_whose_turn_it_is() {
    let (mut scheduler, specs) = scheduler(&[("c/t", &["linux"], 1), ("d/u", &["arm"], 1)]);
    let urgent = ShareSpec { priority: 1, ..ShareSpec::default() };
    scheduler.shares(ShareSpec::default(), std::iter::once(source("git", urgent)));
    scheduler.cloud(&specs[0].id.cloud, 1);
    wait(&mut scheduler, &specs, "old", labels(&["linux"]), 0);
    let level = Level { want: labels(&["arm"]), since: vec![at(1).wall] };
    scheduler.cloud(&specs[1].id.cloud, 0);
    scheduler.demanded(&SourceId::new("git"), vec![level], std::iter::empty());
    assert_eq!(
        text(&scheduler.decided()),
        ["start 1 c/t"],
        "who finds no room leaves it to others"
    );
}

#[test]
fn a_cap_holds_for_what_is_started_too() {
    let (mut scheduler, _) = with_sources(&[]);
    let capped = ShareSpec { cap: Some(2), ..ShareSpec::default() };
    scheduler.shares(ShareSpec::default(), std::iter::once(source("git", capped)));
    wanted(&mut scheduler, "git", 7, 0, &[]);
    assert_eq!(text(&scheduler.decided()), ["start 2 c/t"]);
}

// Invariant: two sources that never have enough share by weight over time, within three points.

#[test]
fn two_saturating_sources_of_weights_three_and_one_have_three_quarters_and_one() {
    let (mut scheduler, specs) = with_sources(&[]);
    let heavy = ShareSpec { weight: 3, ..ShareSpec::default() };
    let sources = [source("git", heavy), source("hub", ShareSpec::default())];
    scheduler.shares(ShareSpec::default(), sources.into_iter());
    let agents: Vec<String> = (0..20).map(|n| format!("a{n:02}")).collect();
    for agent in &agents {
        report(&mut scheduler, &specs[0], agent, IDLE, &[]);
    }
    let (mut minted, mut dice) = (0u64, 7u64);
    let mut running: Vec<(u64, String, LeaseId, &str)> = Vec::new();
    let (mut git, mut all) = (0u64, 0u64);
    for minute in 0..2_000u64 {
        let (over, still): (Vec<_>, Vec<_>) =
            running.into_iter().partition(|(until, ..)| *until <= minute);
        running = still;
        for (_, agent, ..) in over {
            report(&mut scheduler, &specs[0], &agent, IDLE, &[]);
        }
        // The light one has all to itself at first: what it borrowed comes back.
        for name in ["git", "hub"] {
            let on: Vec<(&str, u32)> = running
                .iter()
                .filter(|(_, _, _, of)| *of == name)
                .map(|(_, _, lease, _)| (lease.as_str(), 1))
                .collect();
            let waits = if name == "git" && minute < 100 { 0 } else { 40 };
            wanted(&mut scheduler, name, waits, 0, &on);
        }
        let effects = scheduler.decide(at(1).wall, &mut || {
            minted += 1;
            LeaseId::new(format!("use{minted}"))
        });
        for effect in effects {
            let Effect::HandOut { agent, ask } = effect else { continue };
            let git = ask.source == Some(SourceId::new("git"));
            report(
                &mut scheduler,
                &specs[0],
                agent.as_str(),
                Standing::Busy,
                &[ask.lease.as_str()],
            );
            // Jobs of one source take longer than the other's, and none is like another.
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let minutes = (dice >> 33) % 20 + if git { 1 } else { 10 };
            let name = if git { "git" } else { "hub" };
            running.push((minute + minutes, agent.to_string(), ask.lease, name));
        }
        if minute == 130 {
            let light = running.iter().filter(|(.., of)| *of == "hub").count();
            assert!(light <= 5, "what was lent came back within a job's length: {light}");
        }
        if minute > 200 {
            all += running.len() as u64;
            git += running.iter().filter(|(.., of)| *of == "git").count() as u64;
        }
    }
    let share = git * 1000 / all;
    assert!((720..=780).contains(&share), "{share} of 1000");
}

// Invariant: what is over is forgotten, whichever source wanted it.

#[test]
fn thirty_days_of_a_sources_jobs_leave_nothing_in_the_book() {
    let (mut scheduler, specs) = with_sources(&["git"]);
    for job in 0..30 * 24 {
        let hour = at(job * 3600);
        report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
        wanted(&mut scheduler, "git", 1, job * 3600, &[]);
        let mut mint = || LeaseId::new(format!("use{job}"));
        let effects = scheduler.decide(hour.wall, &mut mint);
        assert_eq!(text(&effects).first(), Some(&format!("use{job} on a1")));
        let lease = format!("use{job}");
        report(&mut scheduler, &specs[0], "a1", Standing::Busy, &[&lease]);
        wanted(&mut scheduler, "git", 0, job * 3600, &[]);
    }
    report(&mut scheduler, &specs[0], "a1", IDLE, &[]);
    assert_eq!(scheduler.book.held(), [0; 6]);
}

#[test]
fn leases_are_forgotten_in_time_although_nobody_asks_for_another() {
    let (mut scheduler, specs) = with_sources(&["git"]);
    for (lease, key) in [("l1", Some("key")), ("l2", None)] {
        let key_hash = key.map(str::to_owned);
        let ask = LeaseAsk { key_hash, ..ask(lease, labels(&["linux"]), 0) };
        scheduler.ask(&ask, &specs);
        scheduler.recorded(&ask.lease, true);
        scheduler.release_by(&ask.lease, &By::admin("root")).unwrap();
        scheduler.cancelled(&ask.lease, true, at(0).wall);
    }
    let mut nobody = || LeaseId::new("nobody");
    let (hour, day) = (3600, 24 * 3600);
    for (seconds, known) in [(hour - 1, 2), (hour, 1), (day - 1, 1), (day, 0)] {
        scheduler.decide(at(seconds).wall, &mut nobody);
        assert_eq!(scheduler.book.held()[0], known, "after {seconds} s");
    }
}

#[test]
fn a_lease_that_ended_while_the_clock_was_ahead_is_forgotten_a_day_after_it_is_right() {
    const YEAR: u64 = 365 * 24 * 3600;
    let (mut scheduler, specs) = with_sources(&["git"]);
    let lease = LeaseId::new("l1");
    let ask = ask("l1", labels(&["linux"]), YEAR);
    scheduler.ask(&LeaseAsk { key_hash: Some("key".into()), ..ask }, &specs);
    scheduler.recorded(&lease, true);
    scheduler.release_by(&lease, &By::admin("root")).unwrap();
    scheduler.cancelled(&lease, true, at(YEAR).wall);
    let mut nobody = || LeaseId::new("nobody");
    for (seconds, known) in [(0, true), (24 * 3600 - 1, true), (24 * 3600, false)] {
        scheduler.decide(at(seconds).wall, &mut nobody);
        assert_eq!(scheduler.lease(&lease).is_some(), known, "after {seconds} s");
    }
}
