//! Jobs of CI systems through the whole herd: crashes, outages, guests that lie.

use std::time::Duration;

use drover_actors::message::HerdCommand;
use drover_model::demand::report::{Estimate, Subject};
use drover_model::id::SourceId;
use drover_server::view::View;

use super::world::World;
use super::world::ci::rows::RowDeed;
use super::world::ci::{Habit, Lists, Stage};
use super::world::setup::{CI_LOGINS, Setup};

const MINUTE: Duration = Duration::from_secs(60);

/// A herd with sources of these names, each with further keys; nothing waits there yet.
fn with_sources(template: &str, sources: &[(&str, &str)]) -> Setup {
    let mut setup = Setup::linux(template);
    let entries: Vec<String> = sources
        .iter()
        .map(|(name, keys)| {
            format!("{name}: {{kind: gitea, url: \"https://ci\", credentialsId: ci, {keys}}}")
        })
        .collect();
    setup.credentials = CI_LOGINS.to_owned();
    setup.sections = format!("demand: {{{}}}\n", entries.join(", "));
    setup
}

/// Waits until so many jobs of a source are over, and its runners gone.
async fn over(world: &World, source: &str, count: usize) {
    let ci = world.ci.clone();
    let what = format!("{count} jobs of {source} are over");
    world.until(&what, |_| ci.over(source) == count && ci.rows(source) == 0).await;
}

// Invariant: each job runs once, on an agent of its own, and nothing is left of it.

#[tokio::test(start_paused = true)]
async fn jobs_of_two_systems_run_once_each_and_leave_nothing() {
    let setup = with_sources("instanceCap: 6", &[("git", ""), ("hub", "")]);
    let world = World::started(setup).await;
    world.ci.push("git", 9, &["linux"], 2 * MINUTE);
    world.ci.push("hub", 7, &["linux"], MINUTE);
    over(&world, "git", 9).await;
    over(&world, "hub", 7).await;
    for source in ["git", "hub"] {
        let jobs = world.ci.jobs(source);
        assert!(jobs.iter().all(|job| job.runs == 1 && job.stage == Stage::Done), "{jobs:?}");
    }
    world.until("their agents are gone", |view| view.agents().is_empty()).await;
    let gone: Vec<_> = world.view().gone_by_reason().into_iter().collect();
    assert_eq!(gone, [("used-up", 16)], "one agent for each job, and no more");
    world.pass(MINUTE).await;
    assert!(world.journal_state().runners.is_empty(), "each is known to be gone");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn jobs_that_are_called_off_leave_agents_that_go_by_themselves() {
    let world = World::started(with_sources("instanceCap: 4", &[("git", "")])).await;
    world.ci.push("git", 3, &["linux"], MINUTE);
    world.until("they are on their way", |view| view.agents().len() == 3).await;
    for _ in 0..3 {
        world.ci.cancel("git");
    }
    world.until("all are gone", |view| view.agents().is_empty()).await;
    over(&world, "git", 3).await;
    world.end().await;
}

// Invariant: a crash costs no job, and a runner is made once.

#[tokio::test(start_paused = true)]
async fn crashes_at_any_moment_cost_no_job_and_leave_no_runner() {
    for after in [1, 15, 25, 32, 35, 45, 70, 95] {
        let setup = with_sources("instanceCap: 4", &[("git", "")]).seed(after);
        let mut world = World::started(setup).await;
        world.ci.push("git", 4, &["linux"], MINUTE);
        world.pass(Duration::from_secs(after)).await;
        world.restart(Duration::from_secs(7)).await;
        over(&world, "git", 4).await;
        let jobs = world.ci.jobs("git");
        let done = jobs.iter().filter(|job| job.runs == 1 && job.stage == Stage::Done).count();
        assert_eq!(done, 4, "after {after} s: {jobs:?}");
        world.end().await;
    }
}

// Invariant: what no template serves is reported as that, and is nothing that drover makes wait.

#[tokio::test(start_paused = true)]
async fn a_job_that_no_template_serves_is_no_wait_of_drovers() {
    let world = World::started(with_sources("instanceCap: 4", &[("git", "instanceCap: 1")])).await;
    world.ci.push("git", 1, &["linux", "gpu"], MINUTE);
    world.pass(Duration::from_secs(30)).await;
    let reported = world.view().sources().remove(0);
    assert_eq!((reported.waiting, reported.oldest), (0, None), "{reported:?}");
    world.ci.push("git", 1, &["linux"], MINUTE);
    over(&world, "git", 1).await;
    world.end().await;
}

// Invariant: a system that does not answer costs only itself.

#[tokio::test(start_paused = true)]
async fn a_silent_system_delays_its_own_jobs_alone() {
    let setup = with_sources("instanceCap: 4", &[("git", ""), ("hub", "")]);
    let world = World::started(setup).await;
    world.ci.silence("git", true);
    world.ci.push("git", 2, &["linux"], MINUTE);
    world.ci.push("hub", 2, &["linux"], MINUTE);
    over(&world, "hub", 2).await;
    assert_eq!(world.ci.over("git"), 0);
    let outage = world.view().sources()[0].outage.clone();
    assert!(outage.is_some_and(|(_, why)| why.contains("refuses connections")));
    world.ci.silence("git", false);
    over(&world, "git", 2).await;
    assert_eq!(world.view().sources()[0].outage, None);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_cloud_and_a_source_are_in_trouble_since_before_the_restart() {
    let mut world = World::started(with_sources("", &[("git", "")])).await;
    world.notes.allow_slack();
    let nodes = ["pve1", "pve2", "pve3"];
    for node in nodes {
        world.side.node_down(node).await;
    }
    world.ci.silence("git", true);
    world.pass(5 * MINUTE).await;
    let troubles = |world: &World| {
        let cloud = world.view().clouds()[0].detail.clone();
        let cloud = cloud.rsplit_once("since ").map(|(_, since)| since[..20].to_owned());
        let source = world.view().sources()[0].outage.as_ref().map(|(since, _)| *since);
        (cloud, source)
    };
    let said = |world: &World| world.view().clouds()[0].detail.clone();
    let before = troubles(&world);
    assert!(before.0.is_some() && before.1.is_some(), "{before:?}");
    let never = "has answered yet";
    assert!(!said(&world).contains(never), "{}", said(&world));
    world.kill();
    world.pass(MINUTE).await;
    world.start().await;
    world.pass(MINUTE).await;
    assert_eq!(troubles(&world), before);
    // This process never got an answer.
    assert!(said(&world).contains(never), "{}", said(&world));
    for node in nodes {
        world.side.node_up(node);
    }
    world.ci.silence("git", false);
    world.pass(5 * MINUTE).await;
    assert_eq!((troubles(&world), world.journal_state().troubled.len()), ((None, None), 0));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_system_that_falls_silent_with_jobs_under_way_has_its_runners_removed_later() {
    let world = World::started(with_sources("instanceCap: 4", &[("git", "")])).await;
    world.ci.push("git", 2, &["linux"], MINUTE);
    let ci = world.ci.clone();
    world.until("both run", |_| ci.running("git") == 2).await;
    world.ci.silence("git", true);
    world.pass(10 * MINUTE).await;
    world.ci.silence("git", false);
    over(&world, "git", 2).await;
    world.until("their agents are gone", |view| view.agents().is_empty()).await;
    assert!(world.view().lost_jobs().is_empty());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_token_that_may_only_look_costs_few_machines_and_is_reported() {
    let world = World::started(with_sources("instanceCap: 4", &[("git", "")])).await;
    world.ci.refuse("git", true);
    world.ci.push("git", 3, &["linux"], MINUTE);
    world.pass(30 * MINUTE).await;
    let gone = world.view().gone_by_reason();
    let spent = gone.get("failed").copied().unwrap_or_default();
    assert_eq!(spent, 1, "in half an hour: {gone:?}");
    let reported = world.view().sources().remove(0);
    let (_, text) = reported.refused.unwrap();
    assert_eq!((reported.unserved > 0, text.as_str()), (true, "the token lacks write:admin"));
    assert!(world.view().templates()[0].tripped.is_none(), "the machines are not to blame");
    world.ci.refuse("git", false);
    over(&world, "git", 3).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_token_of_which_only_trying_says_costs_one_machine_after_each_pause() {
    let world = World::started(with_sources("instanceCap: 4", &[("git", "")])).await;
    world.ci.refuse("git", true);
    world.ci.hide_refusals("git");
    world.ci.push("git", 3, &["linux"], MINUTE);
    world.pass(30 * MINUTE).await;
    let gone = world.view().gone_by_reason();
    let spent = gone.get("failed").copied().unwrap_or_default();
    assert!((7..=9).contains(&spent), "in half an hour: {gone:?}");
    assert_eq!(world.view().sources()[0].refused.clone().unwrap().1, "403");
    world.ci.refuse("git", false);
    over(&world, "git", 3).await;
    assert_eq!(world.view().sources()[0].refused, None);
    world.end().await;
}

// Invariant: guests that lie are retired by deadline, and their jobs run elsewhere.

#[tokio::test(start_paused = true)]
async fn a_runner_that_ends_at_once_is_replaced_long_before_its_time_and_reported_with_its_words() {
    let keys = "registerTimeoutSec: 600";
    let world = World::started(with_sources("instanceCap: 1", &[("git", keys)])).await;
    world.ci.habits("git", &[Habit::Ends]);
    world.ci.push("git", 1, &["linux"], MINUTE);
    let began = tokio::time::Instant::now();
    over(&world, "git", 1).await;
    assert!(began.elapsed() < 5 * MINUTE, "{:?}", began.elapsed());
    world.until("its agent is gone", |view| view.agents().is_empty()).await;
    let reasons: Vec<String> =
        world.view().gone_agents().iter().map(|gone| gone.reason.to_string()).collect();
    let reported =
        reasons.iter().find(|reason| reason.contains("its runner ended before")).unwrap();
    assert!(reported.contains("it ended with 1 after 1 s; its log: too old"), "{reported}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn crashes_while_a_runner_is_asked_about_lose_nothing_of_its_end() {
    for after in [33, 40, 46, 52, 58, 64] {
        let keys = "registerTimeoutSec: 160";
        let setup = with_sources("instanceCap: 1", &[("git", keys)]).seed(after);
        let mut world = World::started(setup).await;
        world.ci.habits("git", &[Habit::Ends]);
        world.ci.push("git", 1, &["linux"], MINUTE);
        world.pass(Duration::from_secs(after)).await;
        world.restart(Duration::from_secs(7)).await;
        over(&world, "git", 1).await;
        world.until("its agent is gone", |view| view.agents().is_empty()).await;
        let jobs = world.ci.jobs("git");
        assert_eq!((jobs[0].runs, &jobs[0].stage), (1, &Stage::Done), "after {after} s");
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn guests_that_never_connect_or_never_work_are_replaced() {
    let keys = "registerTimeoutSec: 60, idleTimeoutSec: 120";
    let world = World::started(with_sources("instanceCap: 2", &[("git", keys)])).await;
    world.ci.habits("git", &[Habit::Deaf, Habit::Idle]);
    world.ci.push("git", 2, &["linux"], MINUTE);
    over(&world, "git", 2).await;
    let gone: Vec<_> = world.view().gone_by_reason().into_iter().collect();
    world.until("their agents are gone", |view| view.agents().is_empty()).await;
    assert!(gone.contains(&("failed", 1)), "{gone:?}");
    assert!(world.ci.jobs("git").iter().all(|job| job.runs == 1 && job.stage == Stage::Done));
    world.end().await;
}

// Invariant: a job lost with its machine is reported once, and run by nobody.

#[tokio::test(start_paused = true)]
async fn a_job_whose_guest_is_switched_off_is_reported_once() {
    let world = World::started(with_sources("instanceCap: 2", &[("git", "")])).await;
    world.ci.push("git", 1, &["linux"], 60 * MINUTE);
    let ci = world.ci.clone();
    world.until("it runs", |_| ci.running("git") == 1).await;
    let vmid = world.view().agents()[0].vmid.unwrap().0;
    world.guests.power_off(vmid);
    world.until("its runner is removed", |_| ci.rows("git") == 0).await;
    assert_eq!(ci.jobs("git")[0].stage, Stage::Lost);
    assert_eq!(world.view().lost_job_count(), 1);
    world.pass(30 * MINUTE).await;
    assert!(world.view().agents().is_empty() && ci.jobs("git")[0].runs == 1);
    world.end().await;
}

// Invariant: a source that leaves the configuration lets its jobs finish.

#[tokio::test(start_paused = true)]
async fn a_source_that_is_taken_out_finishes_what_runs_and_begins_nothing() {
    let mut world = World::started(with_sources("instanceCap: 1", &[("git", "")])).await;
    world.ci.push("git", 2, &["linux"], 5 * MINUTE);
    let ci = world.ci.clone();
    world.until("one runs", |_| ci.running("git") == 1).await;
    world.setup.sections = String::new();
    world.reload();
    let runs = |view: &View| {
        let reported = view.sources();
        matches!(reported.as_slice(), [one] if !one.configured && one.running == 1)
    };
    world.until("it is reported with what runs still", runs).await;
    world.until("its source is gone", |view| view.sources().is_empty()).await;
    let jobs = world.ci.jobs("git");
    assert_eq!((&jobs[0].stage, &jobs[1].stage), (&Stage::Done, &Stage::Waiting));
    world.until("its agent is gone", |view| view.agents().is_empty()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn runners_left_at_a_source_that_went_while_the_service_was_down_are_reported() {
    let mut world = World::started(with_sources("instanceCap: 1", &[("git", "")])).await;
    world.ci.push("git", 1, &["linux"], 5 * MINUTE);
    let ci = world.ci.clone();
    world.until("it runs", |_| ci.running("git") == 1).await;
    world.crash();
    let demand = std::mem::take(&mut world.setup.sections);
    world.start().await;
    world.until("it is reported", |view| !view.sources().is_empty()).await;
    let reported = world.view().sources().remove(0);
    let (_, text) = reported.outage.unwrap();
    assert_eq!(
        (reported.runners, text.contains("put `git` back into `demand`")),
        (1, true),
        "{text}"
    );
    world.setup.sections = demand;
    world.reload();
    over(&world, "git", 1).await;
    world.until("it answers", |view| view.sources()[0].outage.is_none()).await;
    world.end().await;
}

// Invariant: a runner that a list does not show is not done for that, and its machine goes soon after
// it is.

#[tokio::test(start_paused = true)]
async fn jobs_run_to_their_end_however_lists_of_runners_come() {
    for lists in [Lists::Shift, Lists::Cut, Lists::Shy] {
        let world = World::started(with_sources("instanceCap: 6", &[("git", "")])).await;
        world.ci.lists("git", lists);
        world.ci.push("git", 6, &["linux"], 10 * MINUTE);
        world.pass(14 * MINUTE).await;
        let jobs = world.ci.jobs("git");
        assert!(jobs.iter().all(|job| job.stage == Stage::Done), "{lists:?}: {jobs:?}");
        assert_eq!(world.ci.rows("git"), 0, "{lists:?}");
        world.until("their agents are gone", |view| view.agents().is_empty()).await;
        let gone: Vec<_> = world.view().gone_by_reason().into_iter().collect();
        assert_eq!(gone, [("used-up", 6)], "{lists:?}");
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_go_on_where_their_system_was_before_its_url_changed_and_the_service_started_again() {
    let mut world = World::started(with_sources("instanceCap: 2", &[("git", "")])).await;
    world.ci.push("git", 2, &["linux"], 20 * MINUTE);
    let ci = world.ci.clone();
    world.until("both run", |_| ci.running("git") == 2).await;
    world.crash();
    world.setup.sections = world.setup.sections.replace("https://ci", "https://ci2");
    world.ci.moves("git");
    world.start().await;
    world.pass(25 * MINUTE).await;
    let jobs = world.ci.jobs("git");
    assert!(jobs.iter().all(|job| job.stage == Stage::Done), "{jobs:?}");
    world.until("their agents are gone", |view| view.agents().is_empty()).await;
    let gone: Vec<_> = world.view().gone_by_reason().into_iter().collect();
    assert_eq!(gone, [("used-up", 2)]);
    world.end().await;
}

// Invariant: no job is cut by what its source says of its runner while its guest runs it.

/// A world whose one source is of this kind, with two jobs of 40 minutes that run.
async fn with_long_jobs(kind: &str) -> World {
    let mut setup = with_sources("instanceCap: 2", &[("git", "")]);
    setup.sections = setup.sections.replace("kind: gitea", &format!("kind: {kind}"));
    let world = World::started(setup).await;
    if kind == "forgejo" {
        world.ci.guesses("git");
    }
    world.ci.push("git", 2, &["linux"], 40 * MINUTE);
    let ci = world.ci.clone();
    world.until("both run", |_| ci.running("git") == 2).await;
    world
}

async fn both_end(world: World) {
    world.pass(50 * MINUTE).await;
    let jobs = world.ci.jobs("git");
    assert!(jobs.iter().all(|job| job.stage == Stage::Done), "{jobs:?}");
    world.until("their agents are gone", |view| view.agents().is_empty()).await;
    let gone: Vec<_> = world.view().gone_by_reason().into_iter().collect();
    assert_eq!(gone, [("used-up", 2)]);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn jobs_run_to_their_end_where_their_source_guesses_that_their_runners_are_idle() {
    both_end(with_long_jobs("forgejo").await).await;
}

#[tokio::test(start_paused = true)]
async fn jobs_run_to_their_end_while_their_runners_are_not_connected() {
    let world = with_long_jobs("gitea").await;
    world.ci.happen_to("git", RowDeed::Off(true));
    world.pass(25 * MINUTE).await;
    assert_eq!(world.ci.running("git"), 2);
    world.ci.happen_to("git", RowDeed::Off(false));
    both_end(world).await;
}

#[tokio::test(start_paused = true)]
async fn jobs_run_to_their_end_though_somebody_renamed_their_runners_and_the_service_started_again()
{
    let mut world = with_long_jobs("gitea").await;
    // Its guests do not know whether their runners run.
    world.ci.lists("git", Lists::Cut);
    world.pass(MINUTE).await;
    world.ci.happen_to("git", RowDeed::Rename(0));
    world.ci.happen_to("git", RowDeed::Rename(1));
    world.pass(5 * MINUTE).await;
    world.crash();
    world.start().await;
    both_end(world).await;
}

// Invariant: what is short is shared by weight, what one does not want is lent, and it comes back.

#[tokio::test(start_paused = true)]
async fn two_sources_that_want_more_than_there_is_have_it_by_their_weights() {
    let sources = [("git", "weight: 3"), ("hub", "weight: 1")];
    let world = World::started(with_sources("instanceCap: 8", &sources)).await;
    let ci = world.ci.clone();
    for (source, lengths) in [("git", [1, 4]), ("hub", [2, 7])] {
        for minutes in lengths {
            ci.push(source, 300, &["linux"], minutes * MINUTE);
        }
    }
    world.pass(10 * MINUTE).await;
    let (mut git, mut all) = (0, 0);
    for _ in 0..900 {
        world.pass(MINUTE / 3).await;
        git += ci.running("git");
        all += ci.running("git") + ci.running("hub");
    }
    let share = 100.0 * git as f64 / all as f64;
    // Four seeds gave 77.9 to 78.5: machines on their way count for nobody.
    assert!((71.5..=79.5).contains(&share), "{share} of 75");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_share_that_was_lent_is_back_within_the_length_of_a_job() {
    let sources = [("git", "weight: 3"), ("hub", "weight: 1")];
    let world = World::started(with_sources("instanceCap: 8", &sources)).await;
    let ci = world.ci.clone();
    ci.push("hub", 60, &["linux"], 10 * MINUTE);
    world.until("hub has all of it", |_| ci.running("hub") == 8).await;
    ci.push("git", 60, &["linux"], 10 * MINUTE);
    // A job, and the machine that is cloned for the next one.
    world.pass(10 * MINUTE + 3 * MINUTE).await;
    assert_eq!((ci.running("git"), ci.running("hub")), (6, 2));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_old_job_is_served_although_another_source_of_a_higher_priority_never_has_enough() {
    let sources = [("git", "priority: 1"), ("hub", "")];
    let world = World::started(with_sources("instanceCap: 2", &sources)).await;
    let ci = world.ci.clone();
    ci.push("git", 4, &["linux"], 2 * MINUTE);
    ci.push("hub", 1, &["linux"], MINUTE);
    let mut minutes = 0;
    while ci.over("hub") == 0 {
        // More than two agents can do, and never old.
        let waits = ci.jobs("git").len() - ci.over("git") - ci.running("git");
        (0..waits).for_each(|_| ci.cancel("git"));
        ci.push("git", 4, &["linux"], 2 * MINUTE);
        world.pass(MINUTE).await;
        minutes += 1;
    }
    assert!((15..25).contains(&minutes), "it counts as one higher after a quarter of an hour");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_label_that_several_clouds_offer_begins_what_is_wanted_once() {
    let clouds = "cloudIds: [rack, spare], instanceCap: 9";
    let mut setup = with_sources(clouds, &[("git", ""), ("hub", "")]);
    setup.clouds.push(("spare", "startVmId: 20000".into()));
    let world = World::started(setup).await;
    world.ci.push("git", 3, &["linux"], MINUTE);
    world.ci.push("hub", 2, &["linux"], MINUTE);
    over(&world, "git", 3).await;
    over(&world, "hub", 2).await;
    world.until("all are gone", |view| view.agents().is_empty()).await;
    let gone: Vec<_> = world.view().gone_by_reason().into_iter().collect();
    assert_eq!(gone, [("used-up", 5)]);
    world.end().await;
}

// Invariant: why a job waits is reported in numbers that come true.

#[tokio::test(start_paused = true)]
async fn a_job_is_reported_when_its_turn_comes_and_then_it_comes() {
    let world = World::started(with_sources("instanceCap: 2", &[("git", "")])).await;
    world.ci.push("git", 9, &["linux"], 10 * MINUTE);
    let ci = world.ci.clone();
    world.until("four are over", |_| ci.over("git") == 4).await;
    world.until("two more run", |_| ci.running("git") == 2).await;
    world.pass(MINUTE / 4).await;
    let source = SourceId::new("git");
    let jobs = world.command(|reply| HerdCommand::Jobs { reply }).await;
    let last = jobs[0].waiting.last().unwrap().clone();
    assert_eq!((jobs[0].waiting.len(), jobs[0].running.len()), (3, 2), "{jobs:?}");
    let subject = Subject::Job(source.clone(), last.want.clone(), last.since, 2);
    let account = world.command(|reply| HerdCommand::Account { subject, reply }).await.unwrap();
    let Estimate::In(reported, why) = &account.kinds[0].estimate else { panic!("{account:?}") };
    let began = tokio::time::Instant::now();
    world.until("the last one runs", |_| ci.over("git") == 8 && ci.running("git") == 1).await;
    let took = began.elapsed();
    let ratio = reported.as_secs_f64() / took.as_secs_f64();
    assert!((0.5..2.0).contains(&ratio), "reported {reported:?} ({why}), took {took:?}");
    world.end().await;
}
