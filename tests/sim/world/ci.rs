//! CI systems in memory (`drover_forecast::ci`) with all that goes wrong there: runners that do not do
//! what they should, systems that answer nobody, lists that lie.
//!
//! A look reads a list of runners that may be cut, or shift while it is read, and then asks for each
//! runner by itself that is waited for and that the list did not show.

pub mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use drover_forecast::ci::{Board, CALL};
use drover_forecast::guests::Guests;
use drover_model::ambient::Dice;
use drover_model::demand::words::{Life, Words};
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{RunnerName, SourceId};
use drover_model::ports::{
    Ask, Demand, Idle, Known, NodeObservation, RowObservation, Shell, Shut, SourceObservation,
    StartRunnerCall,
};
use drover_model::record::Want;
use drover_model::time::WallTime;
use futures_util::FutureExt;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::shell::Scripted;

pub use drover_forecast::ci::{Job, Stage};

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

/// What else becomes of a row.
#[derive(Debug)]
struct Troubles {
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

type Row = drover_forecast::ci::Row<Troubles>;

#[derive(Debug, Default)]
struct System {
    board: Board<Troubles>,
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
    guests: Arc<dyn Guests>,
    shell: Scripted,
    started: Instant,
}

impl Ci {
    /// Systems without jobs.
    pub fn new(guests: Arc<dyn Guests>, shell: Scripted, started: Instant) -> Self {
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
        let job = Job::new(Want::Labels(labels), length, since);
        let jobs = std::iter::repeat_n(job, count);
        self.with(source, |system| jobs.for_each(|job| _ = system.board.push(job)));
    }

    /// A job that waits is called off.
    pub fn cancel(&self, source: &str) {
        self.with(source, |system| system.board.cancel_first());
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
        self.with(source, |system| {
            system.board.rows.values_mut().for_each(|row| row.more.former = true);
        });
    }

    /// The job that runs on a runner whose guest is as it was.
    pub fn under_way(&self, source: &SourceId, runner: &RunnerName) -> Option<usize> {
        let systems = self.systems();
        let board = &systems.get(source)?.board;
        board.rows.get(runner).filter(|row| self.lives(row))?;
        let now = Instant::now();
        let runs = |job: &Job| matches!(&job.stage, Stage::Running(_, until) if *until > now);
        let found = board.on(runner).find(|(_, job)| runs(job));
        found.map(|(number, _)| number)
    }

    /// The runners of the system are nodes.
    pub fn nodes(&self, source: &str) {
        self.with(source, |system| system.board.nodes = true);
    }

    /// What the next runners do, one each; then all are honest.
    pub fn habits(&self, source: &str, habits: &[Habit]) {
        self.with(source, |system| system.habits = habits.iter().rev().copied().collect());
    }

    /// All jobs of a system.
    pub fn jobs(&self, source: &str) -> Vec<Job> {
        self.advance();
        self.with(source, |system| system.board.jobs().to_vec())
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
        self.with(source, |system| system.board.rows.len())
    }

    /// The runners of a system by name.
    pub fn rows_of(&self, source: &str) -> Vec<RunnerName> {
        self.with(source, |system| system.board.rows.keys().cloned().collect())
    }

    /// Somebody removes a runner, by number.
    pub fn unlist(&self, source: &str, pick: usize) {
        self.advance();
        self.with(source, |system| {
            let names: Vec<RunnerName> = system.board.rows.keys().cloned().collect();
            if let Some(name) = names.get(pick % names.len().max(1)) {
                system.board.rows.remove(name);
            }
        });
        self.advance();
    }

    /// Whether the guest of a row is as it was.
    fn lives(&self, row: &Row) -> bool {
        row.guest.as_ref().is_some_and(|guest| self.guests.is_same(guest))
    }

    /// Lets everything happen that is due.
    pub fn advance(&self) {
        let now = Instant::now();
        for system in self.systems().values_mut() {
            let off = system.off;
            let takes = |row: &Row| {
                let Troubles { habit, quiet, removed, .. } = row.more;
                habit == Habit::Honest && !quiet && !removed && !off
            };
            system.board.advance(now, |row| self.lives(row), takes);
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
        let shown: Vec<bool> = (0..system.board.rows.len()).map(|_| system.shows_job()).collect();
        let board = &system.board;
        let on = |name: &RunnerName| {
            let here = board.on(name).map(|(number, _)| number.to_string());
            here.collect::<BTreeSet<String>>()
        };
        let there = board.rows.iter().zip(shown);
        let there = there.filter(|((_, row), _)| !row.more.former && !row.more.removed);
        let rows = there.map(|((name, row), shows_job)| {
            let running = if shows_job { on(name) } else { BTreeSet::new() };
            let calls = matches!(row.more.habit, Habit::Honest | Habit::Idle);
            let online = row.is_connected(now) && calls && self.lives(row) && !system.off;
            RowObservation {
                runner: name.clone(),
                online,
                jobs: u32::try_from(running.len()).unwrap(),
                job: running.first().cloned(),
                idle: if system.guesses { Idle::Guessed } else { Idle::Known },
                node: if board.nodes {
                    seen(running, row.more.quiet)
                } else {
                    NodeObservation::default()
                },
            }
        });
        let all: BTreeMap<RunnerName, RowObservation> =
            rows.map(|row| (row.runner.clone(), row)).collect();
        // A row that was renamed is known by its number alone.
        let numbers: Known =
            board.rows.iter().map(|(name, row)| (name.clone(), [row.more.number].into())).collect();
        let renamed = |name: &RunnerName| board.rows.get(name).is_some_and(|row| row.more.renamed);
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
        let jobs = system.board.waiting();
        let numbers = numbers.into_iter().filter(|(name, _)| known.contains_key(name)).collect();
        Ok(SourceObservation { rows, gone, whole, numbers, jobs, ..SourceObservation::default() })
    }
}

fn seen(running: BTreeSet<String>, quiet: bool) -> NodeObservation {
    let shut = if quiet { Shut::Quiet } else { Shut::Open };
    NodeObservation { running, shut, ..NodeObservation::default() }
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
            let guest = ci.guests.identity(call.target.address);
            let known = |system: &mut System| {
                let row = system.board.rows.get(&call.runner);
                row.is_some_and(|row| row.started.is_some() && row.guest == guest)
            };
            if ci.with(call.source.as_str(), known) {
                return Ok(());
            }
            tokio::time::sleep(CALL).await;
            if ci.with(call.source.as_str(), |system| system.refuses) {
                return Err(denied(&call.source));
            }
            let made = ci.with(call.source.as_str(), |system| {
                let habit = system.habits.pop().unwrap_or(Habit::Honest);
                let nodes = system.board.nodes;
                let executors = if nodes { call.spec.executors.max(1) as usize } else { 1 };
                system.made += 1;
                let troubles = Troubles {
                    habit,
                    quiet: false,
                    former: false,
                    number: system.made,
                    renamed: false,
                    removed: false,
                };
                let row = Row::new(&call, executors, troubles);
                let rows = &mut system.board.rows;
                (!system.silent).then(|| rows.insert(call.runner.clone(), row)).is_some()
            });
            if !made {
                return Err(silent(&call.source));
            }
            ci.shell.greet(call.target.clone(), limit).await?;
            ci.with(call.source.as_str(), |system| {
                if let Some(row) = system.board.rows.get_mut(&call.runner) {
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
                if let Some(row) = system.board.rows.get_mut(&call.runner) {
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
                let row = system.board.rows.get(&call.runner);
                let row = row.map(|row| (row.more.habit, row.started));
                // Where a row that is gone has no job a command may leave its runner running.
                (row, system.lists == Lists::Cut && !system.board.nodes && !system.guesses)
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
            ci.with(source.as_str(), |system| match system.board.rows.get_mut(&runner) {
                _ if system.silent => Err(silent(&source)),
                // It removes what it guesses to be idle; what that runs goes on unheard.
                Some(row) if system.guesses && !row.more.former => {
                    row.more.removed = true;
                    if system.board.on(&runner).next().is_none() {
                        system.board.rows.remove(&runner);
                    }
                    Ok(())
                }
                Some(row) if !row.more.former => {
                    row.more.quiet = true;
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
                let rows = &mut system.board.rows;
                if rows.get(&runner).is_some_and(|row| !row.more.former) {
                    rows.remove(&runner);
                }
                Ok(())
            })?;
            ci.advance();
            Ok(())
        }
        .boxed()
    }
}
