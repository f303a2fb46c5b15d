//! Jobs that run at a Gitea, and whether the job of a runner is over whose row is gone.
//!
//! Gitea deletes the row of an ephemeral runner as soon as somebody cancels its job, and sends the
//! runner nothing from then on. The job itself is listed as cancelled (1.26.0:
//! `models/actions/task.go`, `services/convert/convert.go`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use drover_model::id::RunnerName;
use drover_model::ports::{Idle, Known, RowObservation, SourceObservation};

use super::{Gitea, Job, Runner, Scope, observation};
use crate::error::DemandError;
use crate::rows::PolledRunners;

/// The path of a job, by the URL that the server gives it: the host of that URL may differ from the
/// one that drover uses.
fn path_of(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("/api/v1/repos/")?;
    let parts: Vec<&str> = rest.split('/').collect();
    let [owner, repository, "actions", "jobs", id] = parts.as_slice() else { return None };
    let id: u64 = id.parse().ok()?;
    Some(format!("api/v1/repos/{owner}/{repository}/actions/jobs/{id}"))
}

/// The number of the job at such a path.
fn id_of(path: &str) -> Option<u64> {
    path.rsplit_once('/')?.1.parse().ok()
}

/// How a job ended that ran on a runner with these rows, in one word; none where it may still run.
///
/// Gitea leaves the runner out of a job that has none, and runs a job again only once it is over.
fn ended(job: &Job, rows: &BTreeSet<u64>) -> Option<&'static str> {
    let runner = job.runner_id.filter(|id| *id > 0);
    let on_it = runner.map(|id| rows.contains(&id));
    match (on_it, job.status.as_str(), job.conclusion.as_deref()) {
        (Some(true), "completed", Some("cancelled")) => Some("cancelled"),
        // Another runner has the next attempt.
        (Some(true), "completed", _) | (Some(false), ..) => Some("done"),
        // The next attempt waits for a runner, or ended before it had one. Gitea after 1.26 calls a
        // blocked job `pending`, and a job that needs an approval `waiting`.
        (None, "queued" | "waiting" | "pending" | "requested" | "completed", _) => Some("done"),
        (Some(true) | None, ..) => None,
    }
}

impl Gitea {
    /// Whether a token that may list jobs may also read each of them.
    fn reads_what_it_lists(&self) -> bool {
        matches!(self.kept, Scope::Repository(..))
    }

    /// Tries once for each running job whether the token may read it by itself. A 404 means that a
    /// job is deleted only to a token that could read that job before.
    async fn try_to_read(&self, known: &Known) {
        if self.reads_what_it_lists() {
            return;
        }
        for (name, path) in self.last_jobs.untried(known) {
            let read = match self.http.get::<Job>(&path).await {
                Ok(_) => true,
                Err(DemandError::Unreachable { .. }) => return,
                Err(_) => false,
            };
            self.last_jobs.tried(&name, read);
        }
    }

    /// Marks those jobs of the `gone` runners as over that wait again or have another runner, by
    /// these lists.
    fn end_listed(&self, gone: &BTreeSet<RunnerName>, lists: [&[Job]; 2]) {
        for name in gone {
            let path = self.last_jobs.open(name);
            let Some(id) = path.as_deref().and_then(id_of) else { continue };
            let Some(job) = lists.into_iter().flatten().find(|job| job.id == id) else { continue };
            if let Some(how) = ended(job, &self.ids.of(name)) {
                self.last_jobs.end(name, how);
            }
        }
    }

    /// How the jobs of the `gone` runners ended, for those whose job is over.
    async fn over(&self, gone: &BTreeSet<RunnerName>) -> BTreeMap<RunnerName, &'static str> {
        let mut cancelled: Option<Vec<Job>> = None;
        for (name, path) in self.last_jobs.due(gone, Instant::now()) {
            let rows = self.ids.of(&name);
            let job = match path {
                Some(path) => Some(self.http.get::<Job>(&path).await),
                None => None,
            };
            let was_read = self.reads_what_it_lists() || self.last_jobs.was_read(&name);
            let how = match job {
                Some(Ok(job)) => {
                    self.last_jobs.tried(&name, true);
                    ended(&job, &rows)
                }
                // Gitea deletes only runs that are over; a deleted repository takes its jobs along.
                Some(Err(DemandError::Status { status: 404, .. })) if was_read => Some("done"),
                // A token with rights on the whole server may still not read a single job.
                Some(Err(_)) | None => {
                    let listed = match cancelled.take() {
                        Some(listed) => listed,
                        None => self.cancelled().await.unwrap_or_default(),
                    };
                    let is_its = |job: &&Job| job.runner_id.is_some_and(|id| rows.contains(&id));
                    let how = listed.iter().find(is_its).and_then(|job| ended(job, &rows));
                    cancelled = Some(listed);
                    how
                }
            };
            if let Some(how) = how {
                self.last_jobs.end(&name, how);
            }
        }
        self.last_jobs.over(gone)
    }

    /// One poll: runners, their jobs, and the jobs that wait.
    pub(super) async fn look_at_gitea(
        &self,
        known: &Known,
    ) -> Result<SourceObservation, DemandError> {
        let PolledRunners { rows: runners, mut gone, whole, numbers } = self.seen(known).await?;
        self.last_jobs.keep(known);
        // The row's own `busy` lags behind: the job says which runner has it.
        let mut running: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        let under_way = self.jobs("in_progress").await?;
        for job in &under_way.rows {
            // Somebody may have renamed its runner.
            let owner = job.runner_id.and_then(|id| self.ids.owner(id));
            let name = owner.map(|owner| owner.to_string()).or_else(|| job.runner_name.clone());
            let name = name.unwrap_or_default();
            self.last_jobs.learn(&name, job.url.as_deref().and_then(path_of));
            running.entry(name).or_default().push(job.id);
        }
        self.try_to_read(known).await;
        let rows = runners.iter().filter_map(|row| {
            let none = Vec::new();
            let jobs = running.get(&row.name).unwrap_or(&none);
            let count = u32::try_from(jobs.len()).unwrap_or(u32::MAX).max(row.busy.into());
            // A job may run although an incomplete list does not show it.
            let observation =
                observation(row, count, jobs.first().map(u64::to_string), Idle::Known);
            observation.filter(|row| row.jobs > 0 || under_way.whole)
        });
        let mut rows: Vec<RowObservation> = rows.collect();
        // A job cannot end on a runner whose row somebody removed.
        let is_there = |name: &String| runners.iter().any(|row| row.name == *name);
        let mut removed = BTreeSet::new();
        for (name, jobs) in running.iter().filter(|(name, _)| !is_there(name)) {
            // While it is not certain that its row is gone, the runner may be connected.
            let is_gone = gone.take(&RunnerName::new(name));
            let status = if is_gone.is_some() { "offline" } else { "online" }.to_owned();
            removed.extend(is_gone);
            let row = Runner { name: name.clone(), status, ..Runner::default() };
            let count = u32::try_from(jobs.len()).unwrap_or(u32::MAX);
            rows.extend(observation(&row, count, jobs.first().map(u64::to_string), Idle::Known));
        }
        if !under_way.whole {
            // A job may run on a runner whose row somebody removed.
            gone.clear();
        }
        let queued = self.jobs("queued").await?.rows;
        self.end_listed(&gone, [&under_way.rows, &queued]);
        let over = self.over(&gone).await;
        let jobs = self.waiting(queued);
        let found = SourceObservation { rows, gone, removed, over, ..SourceObservation::default() };
        Ok(SourceObservation { whole, numbers, jobs, ..found })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    fn job(text: &str) -> Job {
        serde_json::from_str(text).unwrap()
    }

    // Invariant: whether a job is over is read from what the server says of that very job.

    #[test]
    fn a_job_is_over_when_its_server_says_so_of_the_runner_that_had_it() {
        let said = |text: &str| ended(&job(text), &[10].into());
        let cancelled = r#"{"id":8,"status":"completed","conclusion":"cancelled","runner_id":10}"#;
        assert_eq!(said(cancelled), Some("cancelled"));
        let failed = r#"{"id":8,"status":"completed","conclusion":"failure","runner_id":10}"#;
        assert_eq!(said(failed), Some("done"));
        assert_eq!(said(r#"{"id":8,"status":"in_progress","runner_id":10}"#), None);
        assert_eq!(said(r#"{"id":8,"status":"queued","runner_id":0}"#), Some("done"), "run again");
    }

    #[test]
    fn a_job_that_has_no_runner_any_more_is_over_for_the_one_that_had_it() {
        let said = |text: &str| ended(&job(text), &[10].into());
        let again = r#"{"id":35,"run_attempt":1,"status":"queued","steps":[]}"#;
        assert_eq!(said(again), Some("done"));
        assert_eq!(said(r#"{"id":35,"status":"waiting","steps":[]}"#), Some("done"), "blocked");
        let ended_waiting = r#"{"id":35,"status":"completed","conclusion":"cancelled"}"#;
        assert_eq!(said(ended_waiting), Some("done"), "cancelled before it had a runner");
        assert_eq!(said(r#"{"id":35,"status":"in_progress"}"#), None);
        assert_eq!(said(r#"{"id":35}"#), None, "an answer that says nothing");
    }

    #[test]
    fn a_job_is_asked_for_where_drover_reaches_its_server() {
        let url = "https://git.example/ci/api/v1/repos/drover/a%20b/actions/jobs/8";
        assert_eq!(path_of(url).unwrap(), "api/v1/repos/drover/a%20b/actions/jobs/8");
        for url in ["", "http://git/api/v1/repos/x/y/actions/jobs/../8", "http://git/jobs/8"] {
            assert_eq!(path_of(url), None, "{url}");
        }
    }
}
