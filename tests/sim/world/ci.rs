//! CI systems in memory: jobs that wait, runners, and what guests do with them, in virtual time.
//!
//! A system gives a job to a runner that is connected, idle and has its labels; an ephemeral runner
//! is gone after it, and one that is a node takes job after job, one on each of its executors, until
//! it is asked not to. A guest that ends takes its runner off, and its job hangs there as lost.
//!
//! A look reads a list of runners that may be cut, or shift while it is read, and then asks for each
//! runner by itself that is waited for and that the list did not show.

pub mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use drover_model::ambient::Dice;
use drover_model::demand::words::{Life, Words};
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{RunnerName, SourceId};
use drover_model::ports::{
    Ask, Demand, Idle, JobObservation, Known, NodeObservation, RowObservation, Shell, ShellTarget,
    Shut, SourceObservation, StartRunnerCall,
};
use drover_model::record::Want;
use drover_model::time::WallTime;
use futures_util::FutureExt;
use pve_sim::guest::GuestHost;
use pve_sim::guests::StubGuests;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::shell::Scripted;

/// How long a runner takes from its start to its connection.
const CONNECTS: Duration = Duration::from_secs(3);
/// How long a call takes.
const CALL: Duration = Duration::from_millis(200);

/// What a guest does with its runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Habit {
    /// What it should.
    Honest,
    /// It never connects.
    Deaf,
    /// It connects and takes no job.
    Idle,
    /// It ends at once.
    Ends,
    /// It ends at once, since its program is too old for the source.
    Old,
}

/// How its list of runners comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Lists {
    /// As it is.
    #[default]
    Whole,
    /// Rows move from pages that were not read yet to those that were, which may be seen or not.
    Shift,
    /// Its first row alone is read.
    Cut,
    /// It shifts, and there is no room in a limit to ask for every row by itself.
    Shy,
}

/// Where a job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    Waiting,
    Running(RunnerName, Instant),
    /// It is over.
    Done,
    /// Its machine went, or its row.
    Lost,
}

#[derive(Debug, Clone)]
pub struct Job {
    /// What it wants.
    pub labels: BTreeSet<String>,
    /// How long it takes.
    pub length: Duration,
    /// Where it is.
    pub stage: Stage,
    /// How often a runner took it.
    pub runs: u32,
    since: WallTime,
}

#[derive(Debug)]
struct Row {
    labels: BTreeSet<String>,
    /// How many jobs it takes at once.
    executors: usize,
    /// The guest it runs in, by its host key.
    guest: Option<(u32, String)>,
    started: Option<Instant>,
    habit: Habit,
    quiet: bool,
    /// Whether it is where its source was before it moved.
    former: bool,
    /// What it is asked for by, whatever it is called.
    number: u64,
    /// Whether somebody renamed it.
    renamed: bool,
    /// Whether it was removed while a job ran on it, which goes on.
    removed: bool,
}

#[derive(Debug, Default)]
struct System {
    jobs: Vec<Job>,
    rows: BTreeMap<RunnerName, Row>,
    /// Whether its runners are nodes.
    nodes: bool,
    silent: bool,
    /// Whether it makes and removes no runner: the token may only look.
    refuses: bool,
    /// Whether that is seen only by making one.
    unseen: bool,
    habits: Vec<Habit>,
    lists: Lists,
    /// Whether it guesses which runners are idle.
    guesses: bool,
    /// Whether no runner is connected.
    off: bool,
    /// Rows that were made.
    made: u64,
    /// What its lists do is drawn from this.
    draws: u64,
}

impl System {
    /// One of so many, drawn.
    fn draw(&mut self, many: u64) -> u64 {
        self.draws += 1;
        Dice::from_number(self.draws).below(many)
    }
}

/// All CI systems of one world; they outlive crashes.
#[derive(Clone)]
pub struct Ci {
    systems: Arc<Mutex<BTreeMap<SourceId, System>>>,
    guests: Arc<StubGuests>,
    shell: Scripted,
    started: Instant,
}

impl Ci {
    /// Systems without jobs.
    pub fn new(guests: Arc<StubGuests>, shell: Scripted, started: Instant) -> Self {
        Self { systems: Arc::default(), guests, shell, started }
    }

    fn systems(&self) -> MutexGuard<'_, BTreeMap<SourceId, System>> {
        self.systems.lock().unwrap()
    }

    fn with<T>(&self, source: &str, change: impl FnOnce(&mut System) -> T) -> T {
        change(self.systems().entry(SourceId::new(source)).or_default())
    }

    fn wall(&self, at: Instant) -> WallTime {
        let epoch = i64::try_from(pve_sim::world::EPOCH).unwrap() * 1000;
        WallTime(epoch) + (at - self.started)
    }

    /// Jobs come in.
    pub fn push(&self, source: &str, count: usize, labels: &[&str], length: Duration) {
        let since = self.wall(Instant::now());
        let labels: BTreeSet<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        let job = Job { labels, length, stage: Stage::Waiting, runs: 0, since };
        self.with(source, |system| system.jobs.extend(std::iter::repeat_n(job, count)));
    }

    /// A job that waits is called off.
    pub fn cancel(&self, source: &str) {
        self.with(source, |system| {
            if let Some(job) = system.jobs.iter_mut().find(|job| job.stage == Stage::Waiting) {
                job.stage = Stage::Done;
            }
        });
    }

    /// The system answers nobody, or again.
    pub fn silence(&self, source: &str, silent: bool) {
        self.with(source, |system| system.silent = silent);
    }

    /// The system makes and removes no runner, or again; whether it does can be seen.
    pub fn refuse(&self, source: &str, refuses: bool) {
        self.with(source, |system| system.refuses = refuses);
    }

    /// What it refuses is seen only by trying it.
    pub fn hide_refusals(&self, source: &str) {
        self.with(source, |system| system.unseen = true);
    }

    /// How the system's list of runners comes from here on.
    pub fn lists(&self, source: &str, lists: Lists) {
        self.with(source, |system| system.lists = lists);
    }

    /// The system is elsewhere from here on: what runs where it was goes on there, and is not seen.
    pub fn moves(&self, source: &str) {
        self.with(source, |system| system.rows.values_mut().for_each(|row| row.former = true));
    }

    /// The job that runs on a runner whose guest is as it was.
    pub fn under_way(&self, source: &SourceId, runner: &RunnerName) -> Option<usize> {
        let systems = self.systems();
        let system = systems.get(source)?;
        system.rows.get(runner).filter(|row| self.lives(row))?;
        let now = Instant::now();
        system.jobs.iter().position(
            |job| matches!(&job.stage, Stage::Running(on, until) if on == runner && *until > now),
        )
    }

    /// The runners of the system are nodes.
    pub fn nodes(&self, source: &str) {
        self.with(source, |system| system.nodes = true);
    }

    /// What the next runners do, one each; then all are honest.
    pub fn habits(&self, source: &str, habits: &[Habit]) {
        self.with(source, |system| system.habits = habits.iter().rev().copied().collect());
    }

    /// All jobs of a system.
    pub fn jobs(&self, source: &str) -> Vec<Job> {
        self.advance();
        self.with(source, |system| system.jobs.clone())
    }

    /// Jobs that are over or lost.
    pub fn over(&self, source: &str) -> usize {
        let jobs = self.jobs(source);
        jobs.iter().filter(|job| matches!(job.stage, Stage::Done | Stage::Lost)).count()
    }

    /// Jobs that run.
    pub fn running(&self, source: &str) -> usize {
        let jobs = self.jobs(source);
        jobs.iter().filter(|job| matches!(job.stage, Stage::Running(..))).count()
    }

    /// Runners of a system.
    pub fn rows(&self, source: &str) -> usize {
        self.with(source, |system| system.rows.len())
    }

    /// The runners of a system by name.
    pub fn rows_of(&self, source: &str) -> Vec<RunnerName> {
        self.with(source, |system| system.rows.keys().cloned().collect())
    }

    /// Somebody removes a runner, by number.
    pub fn unlist(&self, source: &str, pick: usize) {
        self.advance();
        self.with(source, |system| {
            let names: Vec<RunnerName> = system.rows.keys().cloned().collect();
            if let Some(name) = names.get(pick % names.len().max(1)) {
                system.rows.remove(name);
            }
        });
        self.advance();
    }

    /// Whether the guest of a row is as it was.
    fn lives(&self, row: &Row) -> bool {
        let host_key = |vmid: &u32| self.guests.ssh_host_key(*vmid);
        row.guest.as_ref().is_some_and(|(vmid, key)| host_key(vmid).as_ref() == Some(key))
    }

    /// Lets everything happen that is due.
    pub fn advance(&self) {
        let now = Instant::now();
        for system in self.systems().values_mut() {
            let System { jobs, rows, nodes, off, .. } = system;
            for job in jobs.iter_mut() {
                let Stage::Running(name, until) = job.stage.clone() else { continue };
                match rows.get(&name) {
                    None => job.stage = Stage::Lost,
                    Some(row) if !self.lives(row) => {}
                    Some(_) if until <= now => {
                        job.stage = Stage::Done;
                        if !*nodes {
                            rows.remove(&name);
                        }
                    }
                    Some(_) => {}
                }
            }
            for (name, row) in rows {
                let honest = row.habit == Habit::Honest && !row.quiet && !row.removed && !*off;
                if !honest || !self.lives(row) || row.started.is_none_or(|at| now < at + CONNECTS) {
                    continue;
                }
                let on = |job: &&Job| running_on(job) == Some(name);
                let free = row.executors.saturating_sub(jobs.iter().filter(on).count());
                let fits = |job: &&mut Job| {
                    job.stage == Stage::Waiting && job.labels.is_subset(&row.labels)
                };
                for job in jobs.iter_mut().filter(fits).take(free) {
                    job.stage = Stage::Running(name.clone(), now + job.length);
                    job.runs += 1;
                }
            }
        }
    }

    fn observation(&self, source: &SourceId, known: &Known) -> Result<SourceObservation, Fault> {
        self.advance();
        let now = Instant::now();
        let mut systems = self.systems();
        let system = systems.entry(source.clone()).or_default();
        if system.silent {
            return Err(silent(source));
        }
        let shown: Vec<bool> = (0..system.rows.len()).map(|_| system.shows_job()).collect();
        let on = |name: &RunnerName| {
            let all = system.jobs.iter().enumerate();
            let here = all.filter(|(_, job)| running_on(job) == Some(name));
            here.map(|(place, _)| place.to_string()).collect::<BTreeSet<String>>()
        };
        let there = system.rows.iter().zip(shown);
        let there = there.filter(|((_, row), _)| !row.former && !row.removed);
        let rows = there.map(|((name, row), shows_job)| {
            let running = if shows_job { on(name) } else { BTreeSet::new() };
            let connected = row.started.is_some_and(|at| now >= at + CONNECTS);
            let calls = matches!(row.habit, Habit::Honest | Habit::Idle);
            let online = connected && calls && self.lives(row) && !system.off;
            RowObservation {
                runner: name.clone(),
                online,
                jobs: u32::try_from(running.len()).unwrap(),
                job: running.first().cloned(),
                idle: if system.guesses { Idle::Guessed } else { Idle::Known },
                node: if system.nodes {
                    seen(running, row.quiet)
                } else {
                    NodeObservation::default()
                },
            }
        });
        let all: BTreeMap<RunnerName, RowObservation> =
            rows.map(|row| (row.runner.clone(), row)).collect();
        // A row that was renamed is known by its number alone.
        let numbers: Known =
            system.rows.iter().map(|(name, row)| (name.clone(), [row.number].into())).collect();
        let renamed = |name: &RunnerName| system.rows.get(name).is_some_and(|row| row.renamed);
        let called = |name: &RunnerName| {
            !renamed(name)
                || known.get(name).is_some_and(|reported| !reported.is_disjoint(&numbers[name]))
        };
        let (all, strange): (BTreeMap<_, _>, BTreeMap<_, _>) =
            all.into_iter().partition(|(name, _)| called(name));
        let (mut rows, mut gone) = (Vec::new(), BTreeSet::new());
        for (place, row) in all.values().enumerate() {
            let shown = match system.lists {
                Lists::Whole => true,
                Lists::Shift | Lists::Shy => system.draw(2) == 0,
                Lists::Cut => place == 0,
            };
            rows.extend(shown.then(|| row.clone()));
        }
        let shown: BTreeSet<RunnerName> = rows.iter().map(|row| row.runner.clone()).collect();
        for name in known.keys().filter(|name| !shown.contains(*name)) {
            if system.lists == Lists::Shy && system.draw(2) == 0 {
                continue;
            }
            match all.get(name) {
                Some(row) => rows.push(row.clone()),
                // Where rows can be renamed none is asked for by its name.
                None if strange.contains_key(name) => {}
                None => {
                    gone.insert(name.clone());
                }
            }
        }
        // That rows moved is not always seen.
        let whole = match system.lists {
            Lists::Whole => true,
            Lists::Shift | Lists::Shy => system.draw(4) == 0,
            Lists::Cut => false,
        };
        let waiting = system.jobs.iter().enumerate();
        let waiting = waiting.filter(|(_, job)| job.stage == Stage::Waiting);
        let jobs = waiting.map(|(id, job)| JobObservation {
            id: id.to_string(),
            name: format!("job {id}"),
            want: Want::Labels(job.labels.clone()),
            since: job.since,
        });
        let jobs = jobs.collect();
        let numbers = numbers.into_iter().filter(|(name, _)| known.contains_key(name)).collect();
        Ok(SourceObservation { rows, gone, whole, numbers, jobs, ..SourceObservation::default() })
    }

    fn guest(&self, target: &ShellTarget) -> Option<(u32, String)> {
        let here =
            |vmid: &u32| self.guests.address(*vmid).is_some_and(|at| at.ip == target.address);
        let vmid = self.guests.running_vmids().into_iter().find(here)?;
        Some((vmid, self.guests.ssh_host_key(vmid)?))
    }
}

fn seen(running: BTreeSet<String>, quiet: bool) -> NodeObservation {
    let shut = if quiet { Shut::Quiet } else { Shut::Open };
    NodeObservation { running, shut, ..NodeObservation::default() }
}

fn running_on(job: &Job) -> Option<&RunnerName> {
    if let Stage::Running(name, _) = &job.stage { Some(name) } else { None }
}

fn silent(source: &SourceId) -> Fault {
    let culprit = Culprit::Source(source.clone());
    Fault::new(FaultKind::Unreachable, culprit, format!("source `{source}` refuses connections"))
}

fn denied(source: &SourceId) -> Fault {
    let kind = FaultKind::Denied { privilege: None, path: None };
    Fault::new(kind, Culprit::Source(source.clone()), "403")
}

impl Demand for Ci {
    fn look_at_jobs(&self, source: &SourceId, known: &Known) -> Ask<SourceObservation> {
        let (ci, source, known) = (self.clone(), source.clone(), known.clone());
        async move {
            tokio::time::sleep(CALL).await;
            ci.observation(&source, &known)
        }
        .boxed()
    }

    fn start_runner(&self, call: StartRunnerCall, limit: Duration) -> Ask<()> {
        let ci = self.clone();
        async move {
            ci.shell.greet(call.target.clone(), limit).await?;
            let guest = ci.guest(&call.target);
            let known = |system: &mut System| {
                let row = system.rows.get(&call.runner);
                row.is_some_and(|row| row.started.is_some() && row.guest == guest)
            };
            if ci.with(call.source.as_str(), known) {
                return Ok(());
            }
            tokio::time::sleep(CALL).await;
            if ci.with(call.source.as_str(), |system| system.refuses) {
                return Err(denied(&call.source));
            }
            let mut labels = call.spec.labels.clone();
            if let Want::Labels(wanted) = &call.want {
                labels.extend(wanted.iter().cloned());
            }
            let made = ci.with(call.source.as_str(), |system| {
                let habit = system.habits.pop().unwrap_or(Habit::Honest);
                let executors = if system.nodes { call.spec.executors.max(1) as usize } else { 1 };
                system.made += 1;
                let row = Row {
                    labels,
                    executors,
                    guest: None,
                    started: None,
                    habit,
                    quiet: false,
                    former: false,
                    number: system.made,
                    renamed: false,
                    removed: false,
                };
                (!system.silent).then(|| system.rows.insert(call.runner.clone(), row)).is_some()
            });
            if !made {
                return Err(silent(&call.source));
            }
            ci.shell.greet(call.target.clone(), limit).await?;
            ci.with(call.source.as_str(), |system| {
                if let Some(row) = system.rows.get_mut(&call.runner) {
                    row.guest = guest;
                    row.started = Some(Instant::now());
                }
            });
            Ok(())
        }
        .boxed()
    }

    fn stop_runner(&self, call: StartRunnerCall, limit: Duration) -> Ask<()> {
        let ci = self.clone();
        async move {
            ci.shell.greet(call.target, limit).await?;
            ci.with(call.source.as_str(), |system| {
                if let Some(row) = system.rows.get_mut(&call.runner) {
                    row.guest = None;
                }
            });
            Ok(())
        }
        .boxed()
    }

    fn words(&self, call: StartRunnerCall, limit: Duration) -> Ask<Words> {
        let ci = self.clone();
        async move {
            ci.shell.greet(call.target, limit).await?;
            ci.advance();
            let (row, leaves) = ci.with(call.source.as_str(), |system| {
                let row = system.rows.get(&call.runner).map(|row| (row.habit, row.started));
                // Where a row that is gone has no job a command may leave its runner running.
                (row, system.lists == Lists::Cut && !system.nodes && !system.guesses)
            });
            let started = row.and_then(|(_, started)| started);
            let life = match row {
                Some((Habit::Ends | Habit::Old, _)) => Life::Ended(Some(1)),
                _ if leaves => Life::Left,
                Some(_) => Life::Runs,
                None => Life::Ended(Some(0)),
            };
            let ago = match life {
                Life::Left => started.map_or(3600, |started| started.elapsed().as_secs()),
                Life::Runs | Life::Ended(_) => 0,
            };
            let old = row.is_some_and(|(habit, _)| habit == Habit::Old);
            let too_old = old.then(|| "its runner 1 is too old".to_owned());
            Ok(Words { life, seconds: 1, ago, lines: "too old".to_owned(), too_old })
        }
        .boxed()
    }

    fn obstacle(&self, source: &SourceId) -> Ask<Option<String>> {
        let (ci, source) = (self.clone(), source.clone());
        async move {
            tokio::time::sleep(CALL).await;
            ci.with(source.as_str(), |system| {
                if system.silent {
                    return Err(silent(&source));
                }
                let seen = system.refuses && !system.unseen;
                Ok(seen.then(|| "the token lacks write:admin".to_owned()))
            })
        }
        .boxed()
    }

    fn quiet(&self, source: &SourceId, runner: &RunnerName) -> Ask<()> {
        let (ci, source, runner) = (self.clone(), source.clone(), runner.clone());
        async move {
            tokio::time::sleep(CALL).await;
            ci.advance();
            ci.with(source.as_str(), |system| match system.rows.get_mut(&runner) {
                _ if system.silent => Err(silent(&source)),
                // It removes what it guesses to be idle; what that runs goes on unheard.
                Some(row) if system.guesses && !row.former => {
                    let on = |job: &Job| running_on(job) == Some(&runner);
                    row.removed = system.jobs.iter().any(on);
                    if !row.removed {
                        system.rows.remove(&runner);
                    }
                    Ok(())
                }
                Some(row) if !row.former => {
                    row.quiet = true;
                    Ok(())
                }
                Some(_) | None => Ok(()),
            })
        }
        .boxed()
    }

    fn deregister(&self, source: &SourceId, runner: &RunnerName) -> Ask<()> {
        let (ci, source, runner) = (self.clone(), source.clone(), runner.clone());
        async move {
            tokio::time::sleep(CALL).await;
            ci.advance();
            ci.with(source.as_str(), |system| {
                if system.silent {
                    return Err(silent(&source));
                }
                if system.refuses {
                    return Err(denied(&source));
                }
                if system.rows.get(&runner).is_some_and(|row| !row.former) {
                    system.rows.remove(&runner);
                }
                Ok(())
            })?;
            ci.advance();
            Ok(())
        }
        .boxed()
    }
}
