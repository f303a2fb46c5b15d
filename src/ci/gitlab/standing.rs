//! What a row of drover's means, and whether the job of a runner is over whose row is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Instant;

use drover_model::id::RunnerName;
use drover_model::ports::{Idle, NodeSight, RowSight};
use reqwest::Method;

use super::{GitLab, Job, Runner};
use crate::error::DemandError;
use crate::rows::Found;

/// Jobs of one runner looked at: it has one, unless somebody lets it go on.
const JOBS_OF_RUNNER: usize = 20;

/// What one of drover's rows means.
pub(super) enum Standing {
    /// It may have its job.
    Row(RowSight),
    /// It had its job.
    Done,
    /// It was removed since its list was read.
    Gone,
}

impl Job {
    /// Whether it is on its runner, by what it is not: newer servers know more ways of going on.
    fn runs(&self) -> bool {
        self.ended().is_none()
    }

    /// How it ended, in one word; none where it may be under way. Once it is over it is never run
    /// again: a job that is retried is another.
    fn ended(&self) -> Option<&'static str> {
        match self.status.as_str() {
            "canceled" => Some("cancelled"),
            "success" | "failed" | "skipped" => Some("done"),
            _ => None,
        }
    }

    /// Where it is asked for by itself.
    fn path(&self) -> Option<String> {
        let project = self.project.as_ref()?.id;
        Some(format!("projects/{project}/jobs/{}", self.id))
    }
}

impl GitLab {
    /// What one of drover's rows means. A runner that had its job takes no other, but its row stays
    /// until it is removed. One that nobody removed for so long that GitLab calls it offline is told
    /// as a row again, since then it may be that nobody knows of it.
    pub(super) async fn row(&self, row: &Runner) -> Result<Standing, DemandError> {
        let runner = RunnerName::new(row.name());
        let sight = |online, jobs, job, idle| {
            let (runner, node) = (runner.clone(), NodeSight::default());
            Standing::Row(RowSight { runner, online, jobs, job, idle, node })
        };
        if !row.is_known() {
            return Ok(sight(false, 0, None, Idle::Known));
        }
        let list = format!("order_by=id&sort=desc&per_page={JOBS_OF_RUNNER}");
        let path = format!("runners/{}/jobs?{list}", row.id);
        let answer = self.call(Method::GET, &path, None).await?;
        // GitLab says so for two hours after the last call; deadlines see to a guest that went silent.
        // Older servers tell of a paused one as that, and each that has its job is paused.
        let online = matches!(row.status.as_str(), "online" | "paused");
        if answer.status == 404 {
            // Removed since the list was read, or the login may not see its jobs.
            return match self.find(runner.clone()).await? {
                Found::Gone => Ok(Standing::Gone),
                Found::Rows(_) | Found::Unknown => {
                    if !self.hidden.swap(true, Ordering::Relaxed) {
                        tracing::warn!(
                            call = answer.call,
                            "the login may not see the jobs of its runners: drover asks their guests"
                        );
                    }
                    Ok(sight(online, row.executes().into(), None, row.idle()))
                }
            };
        }
        let jobs: Vec<Job> = answer.ok()?.json()?;
        let running: Vec<&Job> = jobs.iter().filter(|job| job.runs()).collect();
        if online && running.is_empty() && !jobs.is_empty() && !row.executes() {
            return Ok(Standing::Done);
        }
        if let Some(job) = running.first() {
            self.last_jobs.learn(row.name(), job.path());
        }
        let count = u32::try_from(running.len()).unwrap_or(u32::MAX).max(row.executes().into());
        let job = running.first().map(|job| job.id.to_string());
        Ok(sight(online, count, job, row.idle()))
    }

    /// How the jobs ended of those of the `gone` whose job is over. A job outlives its runner's row.
    pub(super) async fn over(
        &self,
        gone: &BTreeSet<RunnerName>,
    ) -> BTreeMap<RunnerName, &'static str> {
        for (name, path) in self.last_jobs.due(gone, Instant::now()) {
            let Some(path) = path else { continue };
            // One that cannot be read says nothing.
            let Ok(job) = self.get::<Job>(&path).await else { continue };
            if let Some(how) = job.ended() {
                self.last_jobs.end(&name, how);
            }
        }
        self.last_jobs.over(gone)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use serde_json::json;

    use super::*;

    // Invariant: a job is over by a word that says so, and by no other.

    #[test]
    fn a_job_is_over_by_its_last_word_and_is_asked_for_in_its_project() {
        let job = |status: &str| -> Job {
            let told = json!({ "id": 8, "status": status, "project": { "id": 11 } });
            serde_json::from_value(told).unwrap()
        };
        for (status, how) in [
            ("canceled", Some("cancelled")),
            ("failed", Some("done")),
            ("success", Some("done")),
            ("canceling", None),
            ("running", None),
            ("", None),
        ] {
            assert_eq!(job(status).ended(), how, "{status}");
        }
        assert_eq!(job("running").path().as_deref(), Some("projects/11/jobs/8"));
    }
}
