//! Whether the job of a runner is over whose row is gone.
//!
//! GitHub removes the row of an ephemeral runner once its job is over, and the runner ends by
//! itself. Where the runner does not end, for example because its guest hangs, GitHub's status of
//! the job decides.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use drover_model::id::RunnerName;

use super::GitHub;
use super::jobs::Job;
use super::rate_limit::Purpose;

impl GitHub {
    /// How the jobs of the `gone` runners ended, for those whose job is over.
    pub(super) async fn over(
        &self,
        gone: &BTreeSet<RunnerName>,
    ) -> BTreeMap<RunnerName, &'static str> {
        // The others follow once the rate limit leaves room for them.
        let due =
            if self.api.affords() { self.last_jobs.due(gone, Instant::now()) } else { Vec::new() };
        for (name, path) in due {
            let Some(path) = path else { continue };
            // A job that cannot be read says nothing.
            let Ok(job) = self.api.read::<Job>(Purpose::Poll, &path).await else { continue };
            if let Some(how) = job.ended(&name) {
                self.last_jobs.end(&name, how);
            }
        }
        self.last_jobs.over(gone)
    }
}
