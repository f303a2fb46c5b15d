//! Runners' rows at GitHub: short lists are read at each look, long ones seldom, and drover's own rows
//! one by one meanwhile, so that others' rows cost next to nothing of the rate limit.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use drover_model::id::RunnerName;
use drover_model::ports::Known;
use serde::{Deserialize, Serialize};

use super::super::error::DemandError;
use super::super::rows::{Found, Listing, Row, Seen as Rows};
use super::api::{PAGE, Page};
use super::pace::Purpose;
use super::settings::plain;
use super::versions::Version;
use super::{GitHub, Part};

/// A list of so many pages is read at each look.
const SHORT: usize = 3;
/// A longer one is read so often, for rows that nobody asks for.
const SELDOM: Duration = Duration::from_secs(15 * 60);

#[derive(Serialize, Deserialize)]
struct Runners {
    #[serde(default)]
    total_count: Option<usize>,
    runners: Vec<Runner>,
}

/// A row.
#[derive(Serialize, Deserialize)]
pub(super) struct Runner {
    id: u64,
    pub name: String,
    pub status: String,
    pub busy: bool,
    /// The version of its program, once it was connected.
    #[serde(default)]
    version: Option<String>,
}

/// The list of runners as it was read last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listed {
    at: Instant,
    pages: usize,
}

/// What a look saw of runners.
#[derive(Default)]
pub(super) struct Seen {
    /// Rows of drover's.
    pub rows: Vec<Runner>,
    /// Runners that were asked for and have no row.
    pub gone: BTreeSet<RunnerName>,
    /// Runners without a row that a job is on, and whether they may be connected.
    pub busy: Vec<(RunnerName, bool)>,
    /// Whether all rows were read.
    pub whole: bool,
    /// The numbers of rows.
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

impl Seen {
    /// Whether it has a row of this name.
    pub fn shows(&self, name: &str) -> bool {
        self.rows.iter().any(|row| row.name == name)
    }

    /// Whether it is known of this runner whether it has a row.
    pub fn tells_of(&self, name: &str) -> bool {
        self.shows(name) || self.gone.contains(&RunnerName::new(name))
    }
}

impl GitHub {
    /// Rows of drover's: as far as a list that is read shows them, and of `known` ones each by itself.
    pub(super) async fn seen(&self, known: &Known) -> Result<Seen, DemandError> {
        let mut read = Listing { rows: Vec::new(), whole: false };
        if self.is_list_due() {
            let list = self.api.pages::<Runners>(Purpose::Look, &self.path("runners")).await;
            read = list.map_err(|error| self.lacking(Part::Runners, error))?;
            let pages = read.rows.len().div_ceil(PAGE);
            *self.listed.lock() = Some(Listed { at: Instant::now(), pages });
        }
        let find = |name: RunnerName| async move {
            // Others have their turn once the rate limit leaves room for it.
            if self.api.affords() { self.find(&name).await } else { Ok(Found::Unknown) }
        };
        let Rows { mut rows, gone, whole, numbers } = self.ids.seen(read, known, find).await?;
        rows.retain(|row| RunnerName::parse(&row.name).is_some());
        Ok(Seen { rows, gone, busy: Vec::new(), whole, numbers })
    }

    /// The versions of the programs of drover's runners.
    pub(super) async fn versions(&self) -> Result<BTreeSet<Version>, DemandError> {
        let list = self.api.pages::<Runners>(Purpose::Look, &self.path("runners")).await?;
        let own = list.rows.iter().filter(|row| RunnerName::parse(&row.name).is_some());
        Ok(own.filter_map(|row| Version::parse(row.version.as_deref()?)).collect())
    }

    fn is_list_due(&self) -> bool {
        let listed = *self.listed.lock();
        listed.is_none_or(|listed| {
            listed.pages <= SHORT || listed.at.elapsed() >= SELDOM && self.api.affords()
        })
    }

    /// Asks for one very row: by its number, which costs nothing while nothing changes, and where that
    /// is not there, by its name.
    async fn find(&self, name: &RunnerName) -> Result<Found<Runner>, DemandError> {
        let known = self.ids.of(name);
        let read = |id| async move {
            let path = self.path(&format!("runners/{id}"));
            let row = self.api.read::<Runner>(Purpose::Look, &path).await;
            row.map_err(|error| self.lacking(Part::Runners, error))
        };
        let found = self.ids.by_number(name, read).await?;
        if matches!(found, Found::Rows(_)) {
            return Ok(found);
        }
        // A login that lost its right gets 404 for a row, and an error here.
        let path = format!("{}&per_page={PAGE}", self.by_name(name));
        let page = self.api.read::<Runners>(Purpose::Look, &path).await;
        let page = page.map_err(|error| self.lacking(Part::Runners, error))?;
        // Older servers do not know the filter.
        let is_filtered = page.runners.iter().all(|row| row.name == name.as_str());
        let same = page.runners.into_iter().filter(|row| row.name == name.as_str());
        let rows: Vec<Runner> = same.collect();
        rows.iter().for_each(|row| self.ids.learn(&row.name, row.id));
        Ok(match (rows.is_empty(), is_filtered || !known.is_empty()) {
            (false, _) => Found::Rows(rows),
            (true, true) => Found::Gone,
            (true, false) => Found::Unknown,
        })
    }

    fn by_name(&self, name: &RunnerName) -> String {
        self.path(&format!("runners?name={}", plain(name.as_str())))
    }

    /// The numbers of all rows that have or had exactly this name.
    pub(super) async fn numbers(&self, name: &RunnerName) -> Result<BTreeSet<u64>, DemandError> {
        let list = self.api.pages::<Runners>(Purpose::Act, &self.by_name(name)).await;
        let list = list.map_err(|error| self.lacking(Part::Runners, error))?;
        self.ids.numbers(list, name)
    }
}
