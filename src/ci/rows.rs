//! Rows of a CI system: lists that change while they are read, and rows that are asked for one by
//! one.
//!
//! A list is read page by page. Where it changes meanwhile, a row may move from a page that is not
//! read yet to one that was. [`Reading`] notices, and marks the [`Listing`] as incomplete.
//!
//! A runner that a list lacks is not gone for that alone: [`RowIds::seen`] asks for its row by
//! number, a bounded number of rows in each poll, and less and less often for a row that is gone. A
//! row is recognised by its number first, because somebody may have renamed it. A failure with one
//! row affects that row alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use drover_model::id::RunnerName;
use drover_model::ports::Known;
use futures_util::{StreamExt as _, stream};
use parking_lot::{Mutex, MutexGuard};

use crate::error::DemandError;

/// The most rows that are asked for one by one in one poll; the others follow in the next polls.
pub(crate) const ROWS_ASKED_PER_POLL: usize = 60;
/// The most such calls at once.
pub(crate) const CALLS_AT_ONCE: usize = 8;
/// The most names whose numbers are remembered before those that nobody asks for are dropped.
const NAMES_KEPT_MAX: usize = 5_000;
/// The pause before a row is asked for again that did not exist. It doubles each time, up to
/// [`GONE_PAUSE_LONGEST`].
const GONE_PAUSE: Duration = Duration::from_secs(5);
const GONE_PAUSE_LONGEST: Duration = Duration::from_secs(600);

/// A list as it was read.
#[derive(Debug)]
pub(crate) struct Listing<T> {
    /// The rows, each once.
    pub rows: Vec<T>,
    /// Whether these are all rows, as far as that can be known.
    pub whole: bool,
}

/// A list that is being read. A change meanwhile shows in a row that comes twice or in a different
/// total.
#[derive(Debug)]
pub(crate) struct Reading<T> {
    rows: Vec<T>,
    places: BTreeMap<u64, usize>,
    total: Option<usize>,
    steady: bool,
}

impl<T> Reading<T> {
    pub(crate) fn new() -> Self {
        Self { rows: Vec::new(), places: BTreeMap::new(), total: None, steady: true }
    }

    /// Adds a page: its rows by their numbers, and the total where the server reports one.
    pub(crate) fn page(&mut self, rows: impl IntoIterator<Item = (u64, T)>, total: Option<usize>) {
        for (id, row) in rows {
            match self.places.get(&id).and_then(|place| self.rows.get_mut(*place)) {
                // The later copy is newer.
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
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Ends the reading; `to_end` says that no page is left.
    pub(crate) fn end(self, to_end: bool) -> Listing<T> {
        let counted = self.total.is_none_or(|total| total == self.rows.len());
        Listing { rows: self.rows, whole: to_end && self.steady && counted }
    }
}

/// A row of a list, of drover's or of others' runners.
pub(crate) trait Row {
    /// The number of the row; none where the system knows rows by their names alone.
    fn number(&self) -> Option<u64>;
    fn name(&self) -> &str;
    /// Gives the row the name that drover knows.
    fn rename(&mut self, name: &RunnerName);
}

/// The runners that a poll saw.
#[derive(Debug)]
pub(crate) struct PolledRunners<T> {
    /// The rows, each under the name that drover gave its runner.
    pub rows: Vec<T>,
    /// Runners that were asked for and have no row.
    pub gone: BTreeSet<RunnerName>,
    /// Whether all rows of the list were read.
    pub whole: bool,
    /// The numbers of the rows of all runners that were asked for or seen.
    pub numbers: Known,
}

/// The numbers of rows by the names of their runners, to ask for exactly these rows. Names are not
/// unique: one name may have several rows.
#[derive(Debug, Default)]
pub(crate) struct RowIds(Mutex<IdState>);

#[derive(Debug, Default)]
struct IdState {
    ids: BTreeMap<String, BTreeSet<u64>>,
    owners: BTreeMap<u64, String>,
    /// When each row was asked for last, in turns.
    asked: BTreeMap<String, u64>,
    turns: u64,
    /// Rows that did not exist: how often each was asked for, and when it is asked for again.
    gone: BTreeMap<String, (u32, Instant)>,
    /// Runners whose row could not be read, and was logged.
    faulty: BTreeSet<String>,
}

impl IdState {
    fn forget(&mut self, name: &str) {
        for id in self.ids.remove(name).into_iter().flatten() {
            self.owners.remove(&id);
        }
        self.asked.remove(name);
        self.gone.remove(name);
        self.faulty.remove(name);
    }
}

impl RowIds {
    fn state(&self) -> MutexGuard<'_, IdState> {
        self.0.lock()
    }

    /// Notes a row that was seen or made.
    pub(crate) fn learn(&self, name: &str, id: u64) {
        // Rows of others are never asked for.
        if RunnerName::parse(name).is_some() {
            let mut state = self.state();
            state.ids.entry(name.to_owned()).or_default().insert(id);
            state.owners.insert(id, name.to_owned());
        }
    }

    /// The rows of a runner, whether they still exist or not.
    pub(crate) fn of(&self, name: &RunnerName) -> BTreeSet<u64> {
        self.state().ids.get(name.as_str()).cloned().unwrap_or_default()
    }

    /// The runner that a row belongs to, where that is known.
    pub(crate) fn owner(&self, id: u64) -> Option<RunnerName> {
        self.state().owners.get(&id).map(RunnerName::new)
    }

    /// Forgets the rows of a runner that is removed.
    pub(crate) fn forget(&self, name: &RunnerName) {
        self.state().forget(name.as_str());
    }

    /// Gives a row the name that drover gave its runner, whatever it is called now. A row with the
    /// name of another of drover's runners belongs to that one.
    pub(crate) fn take_up<T: Row>(&self, row: &mut T) {
        let Some(id) = row.number() else { return };
        match self.owner(id) {
            Some(owner) if RunnerName::parse(row.name()).is_none() => row.rename(&owner),
            Some(_) | None => self.learn(row.name(), id),
        }
    }

    /// The runners of a poll: the rows of a list, and for each of the `known` runners that the list
    /// lacks what `find` returns.
    pub(crate) async fn seen<T: Row, F>(
        &self,
        list: Listing<T>,
        known: &Known,
        find: impl Fn(RunnerName) -> F,
    ) -> Result<PolledRunners<T>, DemandError>
    where
        F: Future<Output = Result<RowLookup<T>, DemandError>>,
    {
        for (name, rows) in known {
            rows.iter().for_each(|id| self.learn(name.as_str(), *id));
        }
        let Listing { mut rows, whole } = list;
        rows.iter_mut().for_each(|row| self.take_up(row));
        let (asked, mut gone) = self.turn(missing(known, &rows), Instant::now());
        // Where one call has no answer, the others would have none either.
        let silent = AtomicBool::new(false);
        let asked = stream::iter(asked).map(|name| {
            let skip = silent.load(Ordering::Relaxed);
            let found = (!skip).then(|| find(name.clone()));
            let silent = &silent;
            async move {
                let Some(found) = found else { return Ok((RowLookup::Unknown, name)) };
                let found = self.tolerate(&name, found.await)?;
                let lost = matches!(found, Err(DemandError::Unreachable { .. }));
                silent.fetch_or(lost, Ordering::Relaxed);
                Ok::<_, DemandError>((found.unwrap_or(RowLookup::Unknown), name))
            }
        });
        let found: Vec<Result<(RowLookup<T>, RunnerName), DemandError>> =
            asked.buffered(CALLS_AT_ONCE).collect().await;
        for found in found {
            let (found, name) = found?;
            match found {
                RowLookup::Rows(found) => {
                    rows.extend(found);
                    self.state().gone.remove(name.as_str());
                }
                RowLookup::Gone => {
                    self.miss(&name, Instant::now());
                    gone.insert(name);
                }
                RowLookup::Unknown => {}
            }
        }
        let numbers = self.numbers_of(known, &rows);
        Ok(PolledRunners { rows, gone, whole, numbers })
    }

    /// The numbers of the `known` runners and of all that were seen: a runner that was just made
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

    /// Logs a failure that concerns one row, once, and lets the poll continue; returns a failure
    /// that concerns the whole source as an error.
    pub(crate) fn tolerate<T>(
        &self,
        name: &RunnerName,
        answer: Result<T, DemandError>,
    ) -> Result<Result<T, DemandError>, DemandError> {
        let error = match answer {
            Ok(answer) => {
                self.state().faulty.remove(name.as_str());
                return Ok(Ok(answer));
            }
            Err(error) => error,
        };
        let of_row = matches!(
            error,
            DemandError::Unreachable { .. }
                | DemandError::NotReady { .. }
                | DemandError::Shape { .. }
        ) || matches!(error, DemandError::Status { status, .. } if !concerns_login(status));
        if !of_row {
            return Err(error);
        }
        if self.state().faulty.insert(name.as_str().to_owned()) {
            tracing::warn!(
                runner = %name, %error,
                "cannot read the row of a runner; drover asks its guest instead"
            );
        }
        Ok(Err(error))
    }

    /// Asks for the rows of a runner by their numbers; `read` fails with 404 for one that is gone.
    pub(crate) async fn by_number<T: Row, F>(
        &self,
        name: &RunnerName,
        read: impl Fn(u64) -> F,
    ) -> Result<RowLookup<T>, DemandError>
    where
        F: Future<Output = Result<T, DemandError>>,
    {
        let ids = self.of(name);
        let mut rows = Vec::new();
        for id in &ids {
            match read(*id).await {
                Ok(mut row) => {
                    self.take_up(&mut row);
                    // A system may give a number again to another runner.
                    if row.name() == name.as_str() {
                        rows.push(row);
                    }
                }
                Err(DemandError::Status { status: 404 | 410, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(match (rows.is_empty(), ids.is_empty()) {
            (false, _) => RowLookup::Rows(rows),
            (true, false) => RowLookup::Gone,
            (true, true) => RowLookup::Unknown,
        })
    }

    /// The numbers of all rows that belong or belonged to this runner, with the help of a list.
    ///
    /// # Errors
    /// [`DemandError::Paused`] where no number is known and the list may lack one.
    pub(crate) fn numbers<T: Row>(
        &self,
        list: Listing<T>,
        runner: &RunnerName,
    ) -> Result<BTreeSet<u64>, DemandError> {
        let Listing { mut rows, whole } = list;
        rows.iter_mut().for_each(|row| self.take_up(row));
        let all = self.of(runner);
        if all.is_empty() && !whole {
            return Err(DemandError::Paused(format!(
                "the list of runners changed while drover read it, or it is too long, and it lacks \
                 {runner}; drover tries again"
            )));
        }
        Ok(all)
    }

    /// Notes that a row does not exist.
    fn miss(&self, name: &RunnerName, now: Instant) {
        let mut state = self.state();
        let times = state.gone.get(name.as_str()).map_or(0, |(times, _)| *times);
        let pause = GONE_PAUSE.saturating_mul(1 << times.min(10)).min(GONE_PAUSE_LONGEST);
        state.gone.insert(name.as_str().to_owned(), (times + 1, now + pause));
    }

    /// Those of the `missing` runners whose rows are asked for now, the longest waiting first, and
    /// those whose rows did not exist a short while ago.
    fn turn(
        &self,
        missing: BTreeSet<RunnerName>,
        now: Instant,
    ) -> (Vec<RunnerName>, BTreeSet<RunnerName>) {
        let mut state = self.state();
        if state.ids.len() > NAMES_KEPT_MAX || state.asked.len() > NAMES_KEPT_MAX {
            let rest = |name: &&String| !missing.contains(&RunnerName::new(name.as_str()));
            let all = state.ids.keys().chain(state.asked.keys());
            let others: Vec<String> = all.filter(rest).cloned().collect();
            others.iter().for_each(|name| state.forget(name));
        }
        // A row that the list shows exists again.
        state.gone.retain(|name, _| missing.contains(&RunnerName::new(name.as_str())));
        let rests = |name: &RunnerName| {
            state.gone.get(name.as_str()).is_some_and(|(_, again)| now < *again)
        };
        let (gone, due): (BTreeSet<_>, BTreeSet<_>) = missing.into_iter().partition(rests);
        let mut all: Vec<RunnerName> = due.into_iter().collect();
        all.sort_by_key(|name| state.asked.get(name.as_str()).copied());
        all.truncate(ROWS_ASKED_PER_POLL);
        state.turns += 1;
        let turn = state.turns;
        for name in &all {
            state.asked.insert(name.as_str().to_owned(), turn);
        }
        (all, gone)
    }
}

/// Whether a status concerns the login or the whole source.
fn concerns_login(status: u16) -> bool {
    matches!(status, 401 | 403 | 404 | 410 | 429)
}

/// The result of asking for the rows of one runner.
#[derive(Debug)]
pub(crate) enum RowLookup<T> {
    Rows(Vec<T>),
    /// The runner has no row.
    Gone,
    /// The source cannot be asked for this runner.
    Unknown,
}

/// The known runners that a list lacks.
fn missing<T: Row>(known: &Known, rows: &[T]) -> BTreeSet<RunnerName> {
    let shown: BTreeSet<&str> = rows.iter().map(Row::name).collect();
    known.keys().filter(|name| !shown.contains(name.as_str())).cloned().collect()
}

#[cfg(test)]
mod tests;
