//! Lists of Gitea and Forgejo, and rows that are asked for one by one.
//!
//! Both systems order runners by when they were seen last, so rows move between pages while drover
//! reads them.

use std::collections::BTreeSet;

use drover_model::id::RunnerName;
use drover_model::ports::Known;
use reqwest::Method;
use reqwest::header::HeaderName;
use serde::de::DeserializeOwned;

use super::{Dialect, Gitea, Job, Jobs, Runner, Runners};
use crate::error::DemandError;
use crate::rows::{Listing, PolledRunners, Reading, Row};

/// Rows on a page; Gitea's maximum is 50.
const PAGE_ROWS: usize = 50;
/// The most pages that are read of a list: with more jobs than that, enough wait anyway.
const PAGES_MAX: usize = 40;
/// The header in which Forgejo reports the number of all rows of a list.
const TOTAL_HEADER: HeaderName = HeaderName::from_static("x-total-count");

impl Gitea {
    /// Reads all pages of a list. The server decides how many rows a page has at most, so a short
    /// page is the last one only where the server does not report the number of all rows.
    async fn pages<T: DeserializeOwned, R>(
        &self,
        path: &str,
        read: impl Fn(T) -> (Vec<R>, Option<usize>),
        id: impl Fn(&R) -> u64,
    ) -> Result<Listing<R>, DemandError> {
        let (mut all, mut came) = (Reading::new(), 0);
        let mark = if path.contains('?') { '&' } else { '?' };
        for page in 1..=PAGES_MAX {
            let path = format!("{}/{path}{mark}limit={PAGE_ROWS}&page={page}", self.scope);
            let answer = self.http.call(Method::GET, &path, None, &[]).await?.ok()?;
            let counted =
                answer.headers.get(TOTAL_HEADER).and_then(|text| text.to_str().ok()?.parse().ok());
            let (rows, total) = read(answer.json()?);
            let (count, total) = (rows.len(), total.or(counted));
            came += count;
            all.page(rows.into_iter().map(|row| (id(&row), row)), total);
            if count == 0 || total.map_or(count < PAGE_ROWS, |total| came >= total) {
                return Ok(all.end(true));
            }
        }
        let rows = all.len();
        let url = self.http.base();
        tracing::warn!(list = path, rows, %url, "list has more rows than drover reads");
        Ok(all.end(false))
    }

    pub(super) async fn runners(&self) -> Result<Listing<Runner>, DemandError> {
        let (path, id) = ("actions/runners", |row: &Runner| row.id);
        match self.dialect {
            Dialect::Gitea => {
                let read = |page: Runners| (page.runners, page.total_count);
                self.pages(path, read, id).await
            }
            Dialect::Forgejo => {
                let read = |page: Option<Vec<Runner>>| (page.unwrap_or_default(), None);
                self.pages(path, read, id).await
            }
        }
    }

    /// The runners of the list, and those of `known` that the list lacks, asked for by their
    /// numbers.
    pub(super) async fn seen(&self, known: &Known) -> Result<PolledRunners<Runner>, DemandError> {
        let read = |id| async move {
            self.http.get::<Runner>(&format!("{}/actions/runners/{id}", self.scope)).await
        };
        let find = |name| async move { self.ids.by_number(&name, read).await };
        self.ids.seen(self.runners().await?, known, find).await
    }

    /// The numbers of all rows that belong or belonged to a runner.
    pub(super) async fn rows(&self, runner: &RunnerName) -> Result<BTreeSet<u64>, DemandError> {
        self.ids.numbers(self.runners().await?, runner)
    }

    pub(super) async fn jobs(&self, status: &str) -> Result<Listing<Job>, DemandError> {
        let read = |page: Jobs| (page.jobs, page.total_count);
        let path = format!("actions/jobs?status={status}");
        let mut jobs = self.pages(&path, read, |job| job.id).await?;
        // A server that does not know the filter returns all jobs.
        jobs.rows.retain(|job| job.status == status);
        Ok(jobs)
    }

    /// The first and the last pages of cancelled jobs: no order of the list is documented, and
    /// recent jobs come last in practice.
    pub(super) async fn cancelled(&self) -> Result<Vec<Job>, DemandError> {
        let path = |page: usize| {
            format!("{}/actions/jobs?status=cancelled&limit={PAGE_ROWS}&page={page}", self.scope)
        };
        let first: Jobs = self.http.get(&path(1)).await?;
        let mut jobs = first.jobs;
        let last = first.total_count.unwrap_or_default().div_ceil(jobs.len().max(1));
        for page in last.saturating_sub(1).max(2)..=last {
            jobs.extend(self.http.get::<Jobs>(&path(page)).await?.jobs);
        }
        Ok(jobs)
    }
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
