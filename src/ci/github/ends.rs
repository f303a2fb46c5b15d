//! Whether the job of a runner is over whose row is gone.
//!
//! GitHub removes the row of a runner for one job once that job is over, and the runner ends by
//! itself. Where it does not, as in a guest that hangs, GitHub's own word on the job ends it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use drover_model::id::RunnerName;

use super::GitHub;
use super::jobs::Job;
use super::pace::Purpose;

impl GitHub {
    /// How the jobs ended of those of the `gone` whose job is over.
    pub(super) async fn over(
        &self,
        gone: &BTreeSet<RunnerName>,
    ) -> BTreeMap<RunnerName, &'static str> {
        // Others are asked for once the rate limit leaves room for it.
        let due =
            if self.api.affords() { self.last_jobs.due(gone, Instant::now()) } else { Vec::new() };
        for (name, path) in due {
            let Some(path) = path else { continue };
            // One that cannot be read says nothing.
            let Ok(job) = self.api.read::<Job>(Purpose::Look, &path).await else { continue };
            if let Some(how) = job.ended(&name) {
                self.last_jobs.end(&name, how);
            }
        }
        self.last_jobs.over(gone)
    }
}
