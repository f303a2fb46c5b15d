//! Rows of a CI system's lists, which are read page by page while they change, and how that very row
//! is asked for which a list does not show.
//!
//! A row is known by its number first: somebody may have renamed it. What goes wrong with one row is
//! said of that row alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use drover_model::id::RunnerName;
use drover_model::ports::Known;
use futures_util::{StreamExt as _, stream};
use parking_lot::{Mutex, MutexGuard};

use crate::error::DemandError;

/// Runners asked for one by one in one look at most; the others have their turn in the next ones.
pub const ASKED: usize = 60;
/// Such calls under way at once.
pub const ABREAST: usize = 8;
/// Names whose ids are kept before those that nobody asks for go.
const KEPT: usize = 5_000;
/// After so long a row that was not there is asked for again, then after twice that, and so on.
const GONE_PAUSE: Duration = Duration::from_secs(5);
const GONE_PAUSE_LONGEST: Duration = Duration::from_secs(600);

/// What was read of a list.
#[derive(Debug)]
pub struct Listing<T> {
    /// Its rows, each once.
    pub rows: Vec<T>,
    /// Whether that is all of it, as far as that can be told.
    pub whole: bool,
}

/// A list that is being read. Where it changes meanwhile a row may have moved from a page that was not
/// read yet to one that was: another is then seen twice, or the count of all changes.
#[derive(Debug)]
pub struct Reading<T> {
    rows: Vec<T>,
    places: BTreeMap<u64, usize>,
    total: Option<usize>,
    steady: bool,
}

impl<T> Reading<T> {
    /// Nothing was read.
    pub fn new() -> Self {
        Self { rows: Vec::new(), places: BTreeMap::new(), total: None, steady: true }
    }

    /// Takes up a page: its rows by their ids, and how many there are in all, where that is told.
    pub fn page(&mut self, rows: impl IntoIterator<Item = (u64, T)>, total: Option<usize>) {
        for (id, row) in rows {
            match self.places.get(&id).and_then(|place| self.rows.get_mut(*place)) {
                // What was read last is newer.
                Some(known) => {
                    *known = row;
                    self.steady = false;
                }
                None => {
                    self.places.insert(id, self.rows.len());
                    self.rows.push(row);
                }
            }
        }
        let Some(total) = total else { return };
        self.steady &= self.total.replace(total).is_none_or(|before| before == total);
    }

    /// How many rows were read.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Nothing more is read; `to_end` where there was nothing more.
    pub fn end(self, to_end: bool) -> Listing<T> {
        let counted = self.total.is_none_or(|total| total == self.rows.len());
        Listing { rows: self.rows, whole: to_end && self.steady && counted }
    }
}

/// A row of drover's or of others'.
pub trait Row {
    /// Its number; none where rows are known by their names alone.
    fn number(&self) -> Option<u64>;
    /// Its name.
    fn name(&self) -> &str;
    /// Calls it so.
    fn rename(&mut self, name: &RunnerName);
}

/// What a look saw of runners.
#[derive(Debug)]
pub struct Seen<T> {
    /// Their rows, each by the name that drover gave it.
    pub rows: Vec<T>,
    /// Runners that were asked for and have no row.
    pub gone: BTreeSet<RunnerName>,
    /// Whether all rows were read.
    pub whole: bool,
    /// The numbers of the rows of those that were asked for or seen.
    pub numbers: Known,
}

/// The numbers of rows by their names, as far as they were seen: by those that very row is asked for.
/// Names are not unique.
#[derive(Debug, Default)]
pub struct Ids(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    ids: BTreeMap<String, BTreeSet<u64>>,
    owners: BTreeMap<u64, String>,
    /// When each was asked for last, counted in turns.
    asked: BTreeMap<String, u64>,
    turns: u64,
    /// Rows that were not there, how often they were asked for, and when they are again.
    gone: BTreeMap<String, (u32, Instant)>,
    /// Rows whose faults were told.
    faulty: BTreeSet<String>,
}

impl Book {
    fn forget(&mut self, name: &str) {
        for id in self.ids.remove(name).into_iter().flatten() {
            self.owners.remove(&id);
        }
        self.asked.remove(name);
        self.gone.remove(name);
        self.faulty.remove(name);
    }
}

impl Ids {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock()
    }

    /// A row was seen or made.
    pub fn learn(&self, name: &str, id: u64) {
        // Others' rows are nobody's question.
        if RunnerName::parse(name).is_some() {
            let mut book = self.book();
            book.ids.entry(name.to_owned()).or_default().insert(id);
            book.owners.insert(id, name.to_owned());
        }
    }

    /// Its rows, whether they are there or not.
    pub fn of(&self, name: &RunnerName) -> BTreeSet<u64> {
        self.book().ids.get(name.as_str()).cloned().unwrap_or_default()
    }

    /// Whose row has this number, as far as that is known.
    pub fn owner(&self, id: u64) -> Option<RunnerName> {
        self.book().owners.get(&id).map(RunnerName::new)
    }

    /// A runner is removed: its rows are nobody's question any more.
    pub fn forget(&self, name: &RunnerName) {
        self.book().forget(name.as_str());
    }

    /// Takes up a row: it has the name that drover gave it, whatever it is called now. One that is
    /// called as another runner of drover's is that one's.
    pub fn take_up<T: Row>(&self, row: &mut T) {
        let Some(id) = row.number() else { return };
        match self.owner(id) {
            Some(owner) if RunnerName::parse(row.name()).is_none() => row.rename(&owner),
            Some(_) | None => self.learn(row.name(), id),
        }
    }

    /// What a look sees of runners: the rows of a list, and of the `known` ones that it does not show
    /// each that `find` finds.
    pub async fn seen<T: Row, F>(
        &self,
        list: Listing<T>,
        known: &Known,
        find: impl Fn(RunnerName) -> F,
    ) -> Result<Seen<T>, DemandError>
    where
        F: Future<Output = Result<Found<T>, DemandError>>,
    {
        for (name, rows) in known {
            rows.iter().for_each(|id| self.learn(name.as_str(), *id));
        }
        let Listing { mut rows, whole } = list;
        rows.iter_mut().for_each(|row| self.take_up(row));
        let (asked, mut gone) = self.turn(missing(known, &rows), Instant::now());
        // Where one is not answered the others would not be either.
        let silent = AtomicBool::new(false);
        let asked = stream::iter(asked).map(|name| {
            let skip = silent.load(Ordering::Relaxed);
            let found = (!skip).then(|| find(name.clone()));
            let silent = &silent;
            async move {
                let Some(found) = found else { return Ok((Found::Unknown, name)) };
                let found = self.sound(&name, found.await)?;
                let lost = matches!(found, Err(DemandError::Unreachable { .. }));
                silent.fetch_or(lost, Ordering::Relaxed);
                Ok::<_, DemandError>((found.unwrap_or(Found::Unknown), name))
            }
        });
        let found: Vec<Result<(Found<T>, RunnerName), DemandError>> =
            asked.buffered(ABREAST).collect().await;
        for found in found {
            let (found, name) = found?;
            match found {
                Found::Rows(found) => {
                    rows.extend(found);
                    self.book().gone.remove(name.as_str());
                }
                Found::Gone => {
                    self.miss(&name, Instant::now());
                    gone.insert(name);
                }
                Found::Unknown => {}
            }
        }
        let numbers = self.numbers_of(known, &rows);
        Ok(Seen { rows, gone, whole, numbers })
    }

    /// The numbers of the `known` runners, and of those whose rows were seen: one that is just made
    /// may have a job before anybody asks for it.
    fn numbers_of<T: Row>(&self, known: &Known, rows: &[T]) -> Known {
        let own = rows.iter().map(Row::name).filter(|name| RunnerName::parse(name).is_some());
        let names: BTreeSet<RunnerName> =
            known.keys().cloned().chain(own.map(RunnerName::new)).collect();
        let numbers = names.into_iter().map(|name| {
            let rows = self.of(&name);
            (name, rows)
        });
        numbers.filter(|(_, rows)| !rows.is_empty()).collect()
    }

    /// What was asked of one row. A fault of that row is told once and passed over; one of the whole
    /// source is not.
    pub fn sound<T>(
        &self,
        name: &RunnerName,
        answer: Result<T, DemandError>,
    ) -> Result<Result<T, DemandError>, DemandError> {
        let error = match answer {
            Ok(answer) => {
                self.book().faulty.remove(name.as_str());
                return Ok(Ok(answer));
            }
            Err(error) => error,
        };
        let of_row = matches!(
            error,
            DemandError::Unreachable { .. }
                | DemandError::NotReady { .. }
                | DemandError::Shape { .. }
        ) || matches!(error, DemandError::Status { status, .. } if !of_login(status));
        if !of_row {
            return Err(error);
        }
        if self.book().faulty.insert(name.as_str().to_owned()) {
            tracing::warn!(
                runner = %name, %error,
                "row of a runner cannot be read: drover judges the others, and asks its guest"
            );
        }
        Ok(Err(error))
    }

    /// Asks for the rows of a runner, each by its number; `read` gives none for one that is not there.
    pub async fn by_number<T: Row, F>(
        &self,
        name: &RunnerName,
        read: impl Fn(u64) -> F,
    ) -> Result<Found<T>, DemandError>
    where
        F: Future<Output = Result<T, DemandError>>,
    {
        let ids = self.of(name);
        let mut rows = Vec::new();
        for id in &ids {
            match read(*id).await {
                Ok(mut row) => {
                    self.take_up(&mut row);
                    // Numbers may be given again.
                    if row.name() == name.as_str() {
                        rows.push(row);
                    }
                }
                Err(DemandError::Status { status: 404 | 410, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(match (rows.is_empty(), ids.is_empty()) {
            (false, _) => Found::Rows(rows),
            (true, false) => Found::Gone,
            (true, true) => Found::Unknown,
        })
    }

    /// The numbers of all rows that are or were this runner's, by a list of them.
    ///
    /// # Errors
    /// [`DemandError::Paused`] where none is known and the list may lack one.
    pub fn numbers<T: Row>(
        &self,
        list: Listing<T>,
        runner: &RunnerName,
    ) -> Result<BTreeSet<u64>, DemandError> {
        let Listing { mut rows, whole } = list;
        rows.iter_mut().for_each(|row| self.take_up(row));
        let all = self.of(runner);
        if all.is_empty() && !whole {
            return Err(DemandError::Paused(format!(
                "the list of runners changed while it was read, or is too long, and does not show {runner}"
            )));
        }
        Ok(all)
    }

    /// A row is not there.
    fn miss(&self, name: &RunnerName, now: Instant) {
        let mut book = self.book();
        let times = book.gone.get(name.as_str()).map_or(0, |(times, _)| *times);
        let pause = GONE_PAUSE.saturating_mul(1 << times.min(10)).min(GONE_PAUSE_LONGEST);
        book.gone.insert(name.as_str().to_owned(), (times + 1, now + pause));
    }

    /// Those of the `missing` that are asked for now, the ones that were asked for longest ago, and
    /// those that were not there a short while ago.
    fn turn(
        &self,
        missing: BTreeSet<RunnerName>,
        now: Instant,
    ) -> (Vec<RunnerName>, BTreeSet<RunnerName>) {
        let mut book = self.book();
        if book.ids.len() > KEPT || book.asked.len() > KEPT {
            let rest = |name: &&String| !missing.contains(&RunnerName::new(name.as_str()));
            let all = book.ids.keys().chain(book.asked.keys());
            let others: Vec<String> = all.filter(rest).cloned().collect();
            others.iter().for_each(|name| book.forget(name));
        }
        // One that is shown is there again.
        book.gone.retain(|name, _| missing.contains(&RunnerName::new(name.as_str())));
        let rests =
            |name: &RunnerName| book.gone.get(name.as_str()).is_some_and(|(_, again)| now < *again);
        let (gone, due): (BTreeSet<_>, BTreeSet<_>) = missing.into_iter().partition(rests);
        let mut all: Vec<RunnerName> = due.into_iter().collect();
        all.sort_by_key(|name| book.asked.get(name.as_str()).copied());
        all.truncate(ASKED);
        book.turns += 1;
        let turn = book.turns;
        for name in &all {
            book.asked.insert(name.as_str().to_owned(), turn);
        }
        (all, gone)
    }
}

/// Whether a status speaks of the login or of the whole source.
fn of_login(status: u16) -> bool {
    matches!(status, 401 | 403 | 404 | 410 | 429)
}

/// What asking for one very row comes to.
#[derive(Debug)]
pub enum Found<T> {
    /// These rows of that runner.
    Rows(Vec<T>),
    /// It is not there.
    Gone,
    /// The source cannot be asked so.
    Unknown,
}

/// Runners of drover's that were asked for, and that a list does not show.
fn missing<T: Row>(known: &Known, rows: &[T]) -> BTreeSet<RunnerName> {
    let shown: BTreeSet<&str> = rows.iter().map(Row::name).collect();
    known.keys().filter(|name| !shown.contains(name.as_str())).cloned().collect()
}

#[cfg(test)]
mod tests;
