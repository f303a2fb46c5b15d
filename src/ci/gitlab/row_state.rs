//! What one of drover's rows means, and whether the job of a runner is over whose row is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Instant;

use drover_model::id::RunnerName;
use drover_model::ports::{Idle, NodeObservation, RowObservation};
use reqwest::Method;

use super::{GitLab, Job, Runner};
use crate::error::DemandError;
use crate::rows::RowLookup;

/// How many jobs of one runner are read: a runner has one, unless it was left to continue.
const RUNNER_JOBS_READ: usize = 20;

/// What one of drover's rows means.
pub(super) enum RowState {
    /// The runner waits for its job or has it.
    Row(RowObservation),
    /// The runner had its job.
    Done,
    /// The row was removed after its list was read.
    Gone,
}

impl Job {
    /// Whether the job is on its runner: every state does that is not final, because newer servers
    /// have more of them.
    fn runs(&self) -> bool {
        self.ended().is_none()
    }

    /// How the job ended, in one word; none where it may still run. A job that is over never runs
    /// again: a retry is another job.
    fn ended(&self) -> Option<&'static str> {
        match self.status.as_str() {
            "canceled" => Some("cancelled"),
            "success" | "failed" | "skipped" => Some("done"),
            _ => None,
        }
    }

    /// The path of the job itself.
    fn path(&self) -> Option<String> {
        let project = self.project.as_ref()?.id;
        Some(format!("projects/{project}/jobs/{}", self.id))
    }
}

impl GitLab {
    /// What one of drover's rows means. A runner that had its job takes no other, but its row stays
    /// until it is removed. A row that GitLab calls offline after a long time is reported as a row
    /// again, because drover may not know of it.
    pub(super) async fn row(&self, row: &Runner) -> Result<RowState, DemandError> {
        let runner = RunnerName::new(row.name());
        let observation = |online, jobs, job, idle| {
            let (runner, node) = (runner.clone(), NodeObservation::default());
            RowState::Row(RowObservation { runner, online, jobs, job, idle, node })
        };
        if !row.is_known() {
            return Ok(observation(false, 0, None, Idle::Known));
        }
        let list = format!("order_by=id&sort=desc&per_page={RUNNER_JOBS_READ}");
        let path = format!("runners/{}/jobs?{list}", row.id);
        let answer = self.call(Method::GET, &path, None).await?;
        // GitLab says so until two hours after the last call; timeouts handle a guest that went
        // silent. Older servers report a paused runner as `paused`, and each with a job is paused.
        let online = matches!(row.status.as_str(), "online" | "paused");
        if answer.status == 404 {
            // The row was removed since the list was read, or the login may not see its jobs.
            return match self.find(runner.clone()).await? {
                RowLookup::Gone => Ok(RowState::Gone),
                RowLookup::Rows(_) | RowLookup::Unknown => {
                    if !self.jobs_hidden_logged.swap(true, Ordering::Relaxed) {
                        tracing::warn!(
                            call = answer.call,
                            "the login may not see the jobs of its runners; drover asks their \
                             guests instead"
                        );
                    }
                    Ok(observation(online, row.executes().into(), None, row.idle()))
                }
            };
        }
        let jobs: Vec<Job> = answer.ok()?.json()?;
        let running: Vec<&Job> = jobs.iter().filter(|job| job.runs()).collect();
        if online && running.is_empty() && !jobs.is_empty() && !row.executes() {
            return Ok(RowState::Done);
        }
        if let Some(job) = running.first() {
            self.last_jobs.learn(row.name(), job.path());
        }
        let count = u32::try_from(running.len()).unwrap_or(u32::MAX).max(row.executes().into());
        let job = running.first().map(|job| job.id.to_string());
        Ok(observation(online, count, job, row.idle()))
    }

    /// How the jobs of the `gone` runners ended, for those whose job is over. A job outlives the
    /// row of its runner.
    pub(super) async fn over(
        &self,
        gone: &BTreeSet<RunnerName>,
    ) -> BTreeMap<RunnerName, &'static str> {
        for (name, path) in self.last_jobs.due(gone, Instant::now()) {
            let Some(path) = path else { continue };
            // A job that cannot be read says nothing.
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

    // Invariant: a job is over only where its status is a final one.

    #[test]
    fn a_job_is_over_by_its_last_word_and_is_asked_for_in_its_project() {
        let job = |status: &str| -> Job {
            let reported = json!({ "id": 8, "status": status, "project": { "id": 11 } });
            serde_json::from_value(reported).unwrap()
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
