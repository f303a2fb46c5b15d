//! What a source's answers mean, and what becomes of runners that do not do their part.

use drover_model::demand::words::Ending;
use drover_model::fault::{Culprit, FaultKind};
use drover_model::id::{AgentId, CloudId, Installation, LeaseId, SourceId, TemplateId};
use drover_model::journal_state::RunnerEntry;
use drover_model::ports::{Idle, JournalFault, NodeObservation, RowObservation, Shut};

use super::*;
use crate::runners::{End, Kept};
use crate::testing::{at, labels, seconds};

fn spec() -> SourceSpec {
    SourceSpec {
        id: SourceId::new("git"),
        kind: "gitea",
        share: drover_model::demand::spec::ShareSpec::default(),
        labels: None,
        size_keys: std::collections::BTreeSet::new(),
        ends_of_labels: &[],
        whole: false,
        single: true,
        early: false,
        registers: false,
        firm: false,
        poll: seconds(10),
        brisk: seconds(10),
        register: seconds(60),
        idle: seconds(300),
        job: seconds(3600),
        connection: 1,
        place: 1,
    }
}

fn name(n: u32) -> RunnerName {
    RunnerName::of(&own(), &AgentId::new("4f8z1c3px9t2vkab"), n)
}

fn own() -> Installation {
    Installation::new("7k2m9qxw")
}

/// The template of all its runners.
fn template() -> TemplateId {
    TemplateId::new(CloudId::new("lab"), "linux")
}

/// A mind with its runners, and the time.
struct Play {
    mind: SourceMind,
    runners: BTreeMap<RunnerName, Runner>,
    now: u64,
    /// How cordoning runners goes, the last first; then it goes well.
    cordons: Vec<Result<(), Fault>>,
}

impl Play {
    fn new(spec: SourceSpec) -> Self {
        let mind = SourceMind::new(Arc::new(spec), own(), at(0).mono);
        Self { mind, runners: BTreeMap::new(), now: 0, cordons: Vec::new() }
    }

    /// A runner that was started in its guest at this moment.
    fn start_runner(&mut self, n: u32) {
        let entry = RunnerEntry {
            agent: AgentId::new("4f8z1c3px9t2vkab"),
            lease: LeaseId::new(format!("l{n}")),
            began: 0,
            place: Some(1),
            rows: BTreeSet::new(),
        };
        let now = at(self.now).mono;
        let (runner_started, ended, refused, too_old) = (Some(now), None, None, None);
        let (since, restored, lease_over) = (now, false, false);
        let kept =
            Kept { entry, since, restored, lease_over, runner_started, ended, refused, too_old };
        let template = Some(template());
        self.runners.insert(name(n), Runner { kept, lives: true, template, most: 1, idle: None });
    }

    /// The guest of the first says that its runner ended.
    fn ends(&mut self, how: Ending) {
        let now = at(self.now).mono;
        let end = End { at: now, over: now, how };
        self.runners.get_mut(&name(1)).expect("a runner").kept.ended = Some(end);
    }

    fn dies(&mut self, n: u32) {
        self.runners.get_mut(&name(n)).expect("a runner").lives = false;
    }

    /// The effects of one event, with the runners as they are now.
    fn step(&mut self, event: Event) -> Vec<Effect> {
        let runners = Arc::new(self.runners.clone());
        let known = self.mind.effects_of(Event::Runners(runners), at(self.now), 0);
        assert!(known.is_empty(), "knowledge alone wants nothing");
        self.mind.effects_of(event, at(self.now), 0)
    }

    fn tick(&mut self) -> Vec<Effect> {
        self.step(Event::Tick)
    }

    fn wait(&mut self, seconds: u64) -> Vec<Effect> {
        self.now += seconds;
        self.tick()
    }

    /// Polls at the next moment it wants to, and gets this answer.
    fn poll(&mut self, result: Result<SourceObservation, Fault>) -> Vec<Effect> {
        let mut out = self.tick();
        while !out.contains(&Effect::Poll) {
            let next = out.iter().find_map(|effect| match effect {
                Effect::WakeAt(next) => Some(*next),
                _ => None,
            });
            let next = next.expect("a moment to wake at") - at(0).mono;
            self.now = self.now.max((next + Duration::from_millis(999)).as_secs());
            out.retain(|effect| !matches!(effect, Effect::WakeAt(_)));
            out.extend(self.tick());
        }
        out.extend(self.step(Event::Polled(result.map(Box::new))));
        out.extend(self.tick());
        for effect in &out {
            if let Effect::Cordon(runner) = effect {
                let result = self.cordons.pop().unwrap_or(Ok(()));
                self.step(Event::Cordoned(runner.clone(), result));
            }
        }
        out
    }

    /// A look at node 1 of a source like Jenkins, with these builds on it.
    fn node(&mut self, builds: &[&str], shut: Shut) -> Vec<String> {
        let mut observation =
            observation(&[(1, true, u32::try_from(builds.len()).expect("few"))], &[]);
        let running = builds.iter().map(|build| (*build).to_owned()).collect();
        observation.rows[0].node = NodeObservation { running, shut, reason: None };
        let effects = reported(&self.poll(Ok(observation)));
        effects.into_iter().filter(|reported| !reported.starts_with("wants [] on")).collect()
    }

    /// A look that shows these rows; of all other runners the source says that it does not have them.
    fn sees(&mut self, rows: &[(u32, bool, u32)], jobs: &[&[&str]]) -> Vec<Effect> {
        let mut observation = observation(rows, jobs);
        let shown = |name: &&RunnerName| observation.rows.iter().any(|row| row.runner == **name);
        observation.gone = self.runners.keys().filter(|name| !shown(name)).cloned().collect();
        self.poll(Ok(observation))
    }

    /// A look whose list shows these rows alone, and says nothing of others.
    fn lists(&mut self, rows: &[(u32, bool, u32)]) -> Vec<Effect> {
        let observation = SourceObservation { whole: false, ..observation(rows, &[]) };
        self.poll(Ok(observation))
    }

    /// The first guest says that its runner ended; what follows from that.
    fn hears_end(&mut self, how: Ending) -> Vec<String> {
        self.ends(how);
        reported(&self.wait(1))
    }
}

/// Runners as (number, connected, jobs), and jobs by their labels.
fn observation(rows: &[(u32, bool, u32)], jobs: &[&[&str]]) -> SourceObservation {
    let rows = rows.iter().map(|(n, online, jobs)| RowObservation {
        runner: name(*n),
        online: *online,
        jobs: *jobs,
        job: (*jobs > 0).then(|| format!("job {n}")),
        idle: Idle::Known,
        node: NodeObservation::default(),
    });
    let jobs = jobs.iter().enumerate().map(|(n, wanted)| JobObservation {
        id: n.to_string(),
        name: format!("build {n}"),
        want: labels(wanted),
        since: at(0).wall,
        origin: None,
    });
    SourceObservation {
        rows: rows.collect(),
        jobs: jobs.collect(),
        whole: true,
        ..SourceObservation::default()
    }
}

fn silent() -> Result<SourceObservation, Fault> {
    let culprit = Culprit::Source(SourceId::new("git"));
    Err(Fault::new(FaultKind::Unreachable, culprit, "git.lan refused the connection"))
}

fn reported(effects: &[Effect]) -> Vec<String> {
    let each = effects.iter().filter_map(|effect| match effect {
        Effect::Poll | Effect::WakeAt(_) => None,
        Effect::Publish(levels, jobs) => {
            // Those that are held back are there for what templates lack.
            let wanted = levels.iter().filter(|level| !level.since.is_empty());
            let levels: Vec<String> =
                wanted.map(|level| format!("{}", level.since.len())).collect();
            let jobs: Vec<String> = jobs
                .iter()
                .map(|(lease, jobs)| match jobs {
                    &u32::MAX => format!("{lease} full"),
                    jobs => format!("{lease} {jobs}"),
                })
                .collect();
            Some(format!("wants [{}] on [{}]", levels.join(" "), jobs.join(" ")))
        }
        Effect::Cordon(runner) => Some(format!("quiet {}", number(runner))),
        Effect::Worked(_, began) => Some(format!("{began} began")),
        Effect::Deregister(runner) => Some(format!("deregister {}", number(runner))),
        Effect::Gone(runner) => Some(format!("gone {}", number(runner))),
        Effect::Numbered(runner, rows) => Some(format!("{} has {rows:?}", number(runner))),
        Effect::RemoveUnknown(runner) => Some(format!("sweep {}", number(runner))),
        Effect::Ask(_, lease) => Some(format!("ask of {lease}")),
        Effect::Probe => Some("prove".to_owned()),
        Effect::Over(_, lease, why) => Some(format!("{lease} is {why}")),
        Effect::Fail(_, lease, text) => Some(format!("{lease} fails: {text}")),
        Effect::TooOld(template) => Some(format!("image of {template} is too old")),
        Effect::Lost { runner, job, .. } => {
            Some(format!("lost {} of {}", job.as_deref().unwrap_or("?"), number(runner)))
        }
    });
    each.collect()
}

fn number(runner: &RunnerName) -> u32 {
    RunnerName::parse(runner.as_str()).expect("a name").2
}

// Invariant: what waits is reported as a level, by what it wants; labels that a source may not have are
// left alone and counted.

#[test]
fn jobs_are_reported_by_kind_and_those_for_others_are_left_alone() {
    let allowed = ["linux", "x64"].map(str::to_owned).into();
    let mut play = Play::new(SourceSpec { labels: Some(allowed), ..spec() });
    let effects = play.sees(&[], &[&["linux"], &["linux", "x64"], &["linux"], &["gpu"]]);
    assert_eq!(reported(&effects), ["wants [2 1] on []"]);
    assert_eq!(play.mind.status(0).ignored, 1);
}

#[test]
fn it_looks_at_its_pace_and_sooner_when_it_is_woken_but_for_a_third_of_the_time_at_most() {
    let mut play = Play::new(spec());
    play.sees(&[], &[]);
    assert_eq!(play.wait(9), [Effect::WakeAt(at(10).mono)]);
    assert_eq!(play.wait(1), [Effect::Poll]);
    play.step(Event::Woken);
    assert!(play.wait(2).is_empty(), "one look at once");
    play.step(Event::Polled(Ok(Box::new(observation(&[], &[])))));
    assert_eq!(play.tick(), [Effect::WakeAt(at(16).mono)], "it took two seconds");
    assert_eq!(play.wait(4), [Effect::Poll]);
    play.step(Event::Polled(Ok(Box::new(observation(&[], &[])))));
    play.step(Event::Woken);
    let soon = at(16).mono + Duration::from_millis(100);
    assert_eq!(play.tick(), [Effect::WakeAt(soon)], "it took no time");
}

// Invariant: a source that does not answer costs only itself, and what it said is not believed for
// ever.

#[test]
fn a_silent_source_is_asked_less_often_and_begins_nothing_after_a_minute() {
    let mut play = Play::new(spec());
    play.sees(&[], &[&["linux"]]);
    let mut pauses = Vec::new();
    let mut heard = Vec::new();
    for _ in 0..6 {
        heard.extend(reported(&play.poll(silent())));
        let before = play.now;
        let Some(Effect::WakeAt(next)) = play.tick().pop() else { panic!("no moment to wake at") };
        pauses.push((next - at(0).mono).as_secs() - before);
    }
    assert_eq!(pauses, [20, 40, 80, 160, 300, 300]);
    assert_eq!(heard, ["wants [] on []"], "once, when what was heard is stale");
    let outage = play.mind.outage().expect("an outage");
    assert_eq!(outage.since, at(10).wall);
    assert!(outage.text.contains("refused"));
    let effects = play.sees(&[], &[&["linux"]]);
    assert_eq!(reported(&effects), ["wants [1] on []"]);
    assert!(play.mind.outage().is_none());
}

// Invariant: a runner's lease is over when its source says that the runner is done.

#[test]
fn a_runner_whose_row_went_after_its_job_is_done() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    assert_eq!(reported(&play.sees(&[(1, true, 0)], &[&["linux"]])), ["wants [1] on [l1 0]"]);
    assert_eq!(reported(&play.sees(&[(1, true, 1)], &[])), ["wants [] on [l1 1]"]);
    assert_eq!(reported(&play.sees(&[], &[])), ["ask of l1", "wants [] on [l1 1]"]);
    assert_eq!(play.hears_end(Ending::Well), ["l1 is done", "wants [] on [l1 full]"]);
    play.dies(1);
    assert_eq!(reported(&play.tick()), ["deregister 1"]);
    let mut out = Vec::new();
    out.extend(play.step(Event::Deregistered(name(1), Ok(()))));
    assert_eq!(reported(&out), ["gone 1"]);
}

#[test]
fn a_job_so_short_that_nobody_saw_it_ends_its_runner_too() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    assert_eq!(reported(&play.sees(&[], &[])), ["ask of l1", "wants [] on [l1 full]"]);
    assert_eq!(play.hears_end(Ending::Badly), ["l1 is done", "wants [] on [l1 full]"]);
}

#[test]
fn a_runner_that_is_still_being_made_is_not_missed() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.runners.get_mut(&name(1)).expect("a runner").kept.runner_started = None;
    assert_eq!(reported(&play.sees(&[], &[])), ["wants [] on [l1 0]"]);
}

#[test]
fn a_runner_that_would_take_another_job_takes_none_once_its_first_is_over() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.sees(&[(1, true, 1)], &[]);
    let reported_first = reported(&play.sees(&[(1, true, 0)], &[]));
    assert_eq!(reported_first, ["quiet 1", "ask of l1", "wants [] on [l1 full]"]);
    assert_eq!(play.hears_end(Ending::Well), ["l1 is done", "wants [] on [l1 full]"]);
}

#[test]
fn a_source_that_shows_no_job_where_one_was_is_believed_once_it_has_shown_so_for_a_minute() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.sees(&[(1, true, 1)], &[]);
    let idle = |play: &mut Play| reported(&play.sees(&[(1, true, 0)], &[]));
    idle(&mut play);
    play.now += 50;
    assert!(!idle(&mut play).contains(&"l1 is done".to_owned()), "its guest says nothing");
    play.sees(&[(1, true, 1)], &[]);
    play.now += 50;
    assert!(!idle(&mut play).contains(&"l1 is done".to_owned()), "the job was there again");
    play.now += 60;
    assert!(idle(&mut play).contains(&"l1 is done".to_owned()));
}

#[test]
fn a_runner_whose_source_gives_on_and_on_takes_none_as_soon_as_it_has_one_and_is_looked_at_often() {
    let mut play = Play::new(SourceSpec { early: true, brisk: seconds(2), ..spec() });
    play.start_runner(1);
    assert_eq!(reported(&play.sees(&[(1, true, 1)], &[])), ["quiet 1", "wants [] on [l1 full]"]);
    assert_eq!(play.tick().last(), Some(&Effect::WakeAt(at(play.now + 2).mono)));
    assert_eq!(
        reported(&play.sees(&[(1, true, 1)], &[])),
        ["wants [] on [l1 full]"],
        "reported once"
    );
    assert_eq!(reported(&play.sees(&[(1, true, 0)], &[])), ["l1 is done", "wants [] on [l1 full]"]);
}

#[test]
fn a_source_is_looked_at_often_while_jobs_wait_there_and_seldom_when_nothing_does() {
    let mut play = Play::new(SourceSpec { poll: seconds(60), brisk: seconds(10), ..spec() });
    play.sees(&[], &[&["linux"]]);
    assert_eq!(play.tick().last(), Some(&Effect::WakeAt(at(play.now + 10).mono)));
    play.sees(&[], &[]);
    assert_eq!(play.tick().last(), Some(&Effect::WakeAt(at(play.now + 60).mono)));
}

#[test]
fn what_a_runner_took_just_before_it_was_asked_to_be_quiet_is_not_cut() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.sees(&[(1, true, 0)], &[]);
    play.now += 300;
    assert!(reported(&play.sees(&[(1, true, 0)], &[])).contains(&"quiet 1".to_owned()));
    assert_eq!(reported(&play.sees(&[(1, true, 1)], &[])), ["wants [] on [l1 full]"]);
    assert_eq!(reported(&play.sees(&[], &[])), ["ask of l1", "wants [] on [l1 full]"]);
    assert_eq!(play.hears_end(Ending::Well), ["l1 is done", "wants [] on [l1 full]"]);
}

// Invariant: a guest that lies is retired by deadline.

#[test]
fn a_runner_that_claims_to_be_idle_for_ever_goes_and_so_does_one_that_left() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.start_runner(2);
    play.sees(&[(1, true, 0), (2, true, 0)], &[]);
    play.sees(&[(1, true, 0), (2, false, 0)], &[]);
    play.now += 60;
    let effects = reported(&play.sees(&[(1, true, 0), (2, false, 0)], &[]));
    assert!(effects[0].starts_with("l2 fails: its runner left"), "{effects:?}");
    play.now += 240;
    assert_eq!(reported(&play.sees(&[(1, true, 0)], &[]))[0], "quiet 1");
    assert_eq!(reported(&play.sees(&[(1, true, 0)], &[]))[0], "l1 is idle");
}

#[test]
fn idle_runners_of_a_source_that_left_the_configuration_go_and_busy_ones_finish() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.start_runner(2);
    play.sees(&[(1, true, 0), (2, true, 1)], &[&["linux"]]);
    let mut out = Vec::new();
    out.extend(play.step(Event::Apply(None)));
    assert_eq!(reported(&out), ["wants [] on []"]);
    play.now += 1;
    let effects = reported(&play.sees(&[(1, true, 0), (2, true, 1)], &[&["linux"]]));
    assert_eq!(effects, ["quiet 1", "wants [] on [l1 full l2 1]"]);
}

// Invariant: a job that was lost with its machine is reported once, and one that was over before is not.

#[test]
fn a_job_whose_machine_went_is_lost_when_its_source_still_has_it_there() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.start_runner(2);
    play.sees(&[(1, true, 1), (2, true, 1)], &[]);
    play.now += 2;
    play.dies(1);
    play.dies(2);
    let effects = play.sees(&[(1, false, 1)], &[]);
    assert_eq!(
        reported(&effects),
        ["lost job 1 of 1", "wants [] on []", "deregister 1", "deregister 2"]
    );
    assert_eq!(reported(&play.tick()), Vec::<String>::new());
}

#[test]
fn a_job_whose_machine_went_while_nobody_looked_is_reported_too() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.dies(1);
    assert_eq!(
        reported(&play.sees(&[(1, false, 1)], &[])),
        ["wants [] on []"],
        "it may be started"
    );
    play.now += 60;
    let effects = play.sees(&[(1, false, 1)], &[]);
    assert_eq!(reported(&effects), ["lost job 1 of 1", "wants [] on []", "deregister 1"]);
}

#[test]
fn a_runner_that_is_off_for_long_with_a_job_on_it_is_given_up_and_its_job_reported_as_lost() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.sees(&[(1, true, 1)], &[]);
    assert_eq!(reported(&play.sees(&[(1, false, 1)], &[])), ["wants [] on [l1 1]"]);
    play.now += 590;
    assert_eq!(reported(&play.sees(&[(1, true, 1)], &[])), ["wants [] on [l1 1]"], "it came back");
    play.sees(&[(1, false, 1)], &[]);
    play.now += 600;
    let effects = reported(&play.sees(&[(1, false, 1)], &[]));
    assert_eq!(effects, ["lost job 1 of 1", "ask of l1", "wants [] on [l1 1]"]);
    play.ends(Ending::Badly);
    let effects = reported(&play.sees(&[(1, false, 1)], &[]));
    assert!(effects[0].contains("not connected"), "{effects:?}");
}

// Invariant: what nobody knows is removed by its exact name.

#[test]
fn a_runner_of_ours_that_nobody_knows_is_removed_after_a_while() {
    let mut play = Play::new(spec());
    assert_eq!(reported(&play.sees(&[(4, false, 0)], &[])), ["wants [] on []"]);
    play.now += 300;
    assert_eq!(reported(&play.sees(&[(4, false, 0)], &[])), ["sweep 4", "wants [] on []"]);
}

#[test]
fn a_runner_that_cannot_be_removed_is_tried_again() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.sees(&[(1, true, 0)], &[]);
    play.dies(1);
    // Whether it had a job by then is asked first.
    play.now += 1;
    let mut effects = reported(&play.sees(&[(1, true, 0)], &[]));
    effects.extend(reported(&play.tick()));
    assert!(effects.contains(&"deregister 1".to_owned()), "{effects:?}");
    let mut out = Vec::new();
    out.extend(play.step(Event::Deregistered(name(1), silent().map(drop))));
    assert!(out.is_empty());
    assert!(reported(&play.wait(29)).is_empty());
    assert_eq!(reported(&play.wait(1)), ["deregister 1"]);
    assert!(reported(&play.wait(60)).is_empty(), "while one is under way");
    out.extend(play.step(Event::Deregistered(name(1), Ok(()))));
    play.step(Event::NotWritten(name(1), JournalFault::Failed("full".into())));
    assert_eq!(reported(&play.tick()), ["deregister 1"], "until its end is written down");
}

#[test]
fn a_lease_that_nobody_heard_of_yet_is_given_time() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.dies(1);
    for now in [0, 59] {
        play.now = now;
        assert_eq!(reported(&play.sees(&[(1, false, 0)], &[])), ["wants [] on []"]);
    }
    play.now = 69;
    let effects = play.sees(&[(1, false, 0)], &[]);
    assert_eq!(
        reported(&effects),
        ["wants [] on []", "deregister 1"],
        "asked whether it had a job"
    );
}

#[test]
fn a_runner_whose_lease_has_ended_in_the_journal_is_removed_although_its_lease_was_never_seen() {
    let mut play = Play::new(spec());
    play.start_runner(1);
    play.dies(1);
    play.runners.get_mut(&name(1)).expect("a runner").kept.lease_over = true;
    let effects = play.sees(&[(1, false, 0)], &[]);
    assert_eq!(reported(&effects), ["wants [] on []", "deregister 1"]);
}

mod absent;
mod doubts;
mod found;
mod late;
mod nodes;
mod old;
mod refusals;
mod table;
