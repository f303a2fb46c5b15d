//! Rows of runners at GitHub. A short list is read in each poll and a long one seldom; meanwhile
//! drover reads its own rows one by one, so that others' rows cost almost nothing of the rate
//! limit.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use drover_model::id::RunnerName;
use drover_model::ports::Known;
use serde::{Deserialize, Serialize};

use super::super::error::DemandError;
use super::super::rows::{Listing, PolledRunners, Row, RowLookup};
use super::api::{PAGE_ROWS, Page};
use super::rate_limit::Purpose;
use super::settings::plain;
use super::versions::Version;
use super::{GitHub, Part};

/// A list of at most so many pages is read in each poll.
const SHORT_LIST_PAGES: usize = 3;
/// How often a longer list is read, to find rows that nobody asks for.
const LONG_LIST_INTERVAL: Duration = Duration::from_secs(15 * 60);

#[derive(Serialize, Deserialize)]
struct Runners {
    #[serde(default)]
    total_count: Option<usize>,
    runners: Vec<Runner>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Runner {
    id: u64,
    pub name: String,
    pub status: String,
    pub busy: bool,
    /// The version of the runner's program, once the runner has connected.
    #[serde(default)]
    version: Option<String>,
}

/// When the list of runners was read last, and how long it was.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastListing {
    at: Instant,
    pages: usize,
}

/// The runners that a poll saw.
#[derive(Default)]
pub(super) struct GitHubRunners {
    /// The rows of drover's runners.
    pub rows: Vec<Runner>,
    /// Runners that were asked for and have no row.
    pub gone: BTreeSet<RunnerName>,
    /// Runners without a row that have a job, and whether they may be connected.
    pub busy: Vec<(RunnerName, bool)>,
    /// Whether all rows of the list were read.
    pub whole: bool,
    /// The numbers of the rows of each runner.
    pub numbers: Known,
}

impl Row for Runner {
    fn number(&self) -> Option<u64> {
        Some(self.id)
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn rename(&mut self, name: &RunnerName) {
        self.name = name.to_string();
    }
}

impl Page for Runners {
    type Row = Runner;

    fn rows(self) -> (Option<usize>, Vec<Runner>) {
        (self.total_count, self.runners)
    }

    fn id(row: &Runner) -> u64 {
        row.id
    }
}

impl GitHubRunners {
    /// Whether it has a row of this name.
    pub(super) fn shows(&self, name: &str) -> bool {
        self.rows.iter().any(|row| row.name == name)
    }

    /// Whether the poll knows if this runner has a row.
    pub(super) fn knows_of(&self, name: &str) -> bool {
        self.shows(name) || self.gone.contains(&RunnerName::new(name))
    }
}

impl GitHub {
    /// The rows of drover's runners: from the list where it is read, and those of `known` one by
    /// one.
    pub(super) async fn seen(&self, known: &Known) -> Result<GitHubRunners, DemandError> {
        let mut read = Listing { rows: Vec::new(), whole: false };
        if self.is_list_due() {
            let list = self.api.pages::<Runners>(Purpose::Poll, &self.path("runners")).await;
            read = list.map_err(|error| self.lacking(Part::Runners, error))?;
            let pages = read.rows.len().div_ceil(PAGE_ROWS);
            *self.listed.lock() = Some(LastListing { at: Instant::now(), pages });
        }
        let find = |name: RunnerName| async move {
            // The others follow once the rate limit leaves room for them.
            if self.api.affords() { self.find(&name).await } else { Ok(RowLookup::Unknown) }
        };
        let PolledRunners { mut rows, gone, whole, numbers } =
            self.ids.seen(read, known, find).await?;
        rows.retain(|row| RunnerName::parse(&row.name).is_some());
        Ok(GitHubRunners { rows, gone, busy: Vec::new(), whole, numbers })
    }

    /// The versions of the programs of drover's runners.
    pub(super) async fn versions(&self) -> Result<BTreeSet<Version>, DemandError> {
        let list = self.api.pages::<Runners>(Purpose::Poll, &self.path("runners")).await?;
        let own = list.rows.iter().filter(|row| RunnerName::parse(&row.name).is_some());
        Ok(own.filter_map(|row| Version::parse(row.version.as_deref()?)).collect())
    }

    fn is_list_due(&self) -> bool {
        let listed = *self.listed.lock();
        listed.is_none_or(|listed| {
            listed.pages <= SHORT_LIST_PAGES
                || listed.at.elapsed() >= LONG_LIST_INTERVAL && self.api.affords()
        })
    }

    /// Asks for the row of one runner: by its number, which costs nothing while nothing changes,
    /// and where that does not exist, by its name.
    async fn find(&self, name: &RunnerName) -> Result<RowLookup<Runner>, DemandError> {
        let known = self.ids.of(name);
        let read = |id| async move {
            let path = self.path(&format!("runners/{id}"));
            let row = self.api.read::<Runner>(Purpose::Poll, &path).await;
            row.map_err(|error| self.lacking(Part::Runners, error))
        };
        let found = self.ids.by_number(name, read).await?;
        if matches!(found, RowLookup::Rows(_)) {
            return Ok(found);
        }
        // A login that lost its right gets 404 for a row, and an error for this list.
        let path = format!("{}&per_page={PAGE_ROWS}", self.by_name(name));
        let page = self.api.read::<Runners>(Purpose::Poll, &path).await;
        let page = page.map_err(|error| self.lacking(Part::Runners, error))?;
        // Older servers ignore the filter.
        let is_filtered = page.runners.iter().all(|row| row.name == name.as_str());
        let same = page.runners.into_iter().filter(|row| row.name == name.as_str());
        let rows: Vec<Runner> = same.collect();
        rows.iter().for_each(|row| self.ids.learn(&row.name, row.id));
        Ok(match (rows.is_empty(), is_filtered || !known.is_empty()) {
            (false, _) => RowLookup::Rows(rows),
            (true, true) => RowLookup::Gone,
            (true, false) => RowLookup::Unknown,
        })
    }

    fn by_name(&self, name: &RunnerName) -> String {
        self.path(&format!("runners?name={}", plain(name.as_str())))
    }

    /// The numbers of all rows that have or had exactly this name.
    pub(super) async fn numbers(&self, name: &RunnerName) -> Result<BTreeSet<u64>, DemandError> {
        let list = self.api.pages::<Runners>(Purpose::Change, &self.by_name(name)).await;
        let list = list.map_err(|error| self.lacking(Part::Runners, error))?;
        self.ids.numbers(list, name)
    }
}
