//! What a source's mind reports to the herd: what its jobs want, and how many jobs each lease has.

use std::collections::BTreeMap;

use drover_model::id::RunnerName;
use drover_model::ports::JobObservation;
use drover_model::record::Want;

use crate::demand::Level;
use crate::demand::mind::SourceMind;
use crate::demand::mind::event::{Effect, Runner};

impl SourceMind {
    /// Says again what is wanted by the last look, where anything is.
    pub(super) fn republish(&self, runners: &BTreeMap<RunnerName, Runner>, out: &mut Vec<Effect>) {
        if !self.jobs.is_empty() {
            self.publish(runners, out);
        }
    }

    /// Levels by what is wanted, and the jobs on each lease. Of what is held back each kind is there with no job, so
    /// that it is known which of them no template serves.
    pub(super) fn publish(&self, runners: &BTreeMap<RunnerName, Runner>, out: &mut Vec<Effect>) {
        let mut levels: Vec<Level> = Vec::new();
        let mut places: BTreeMap<&Want, usize> = BTreeMap::new();
        let held = self.trouble.holds();
        let open = |job: &JobObservation| !held && self.outdated.most(&job.want) > 0;
        for job in &self.jobs {
            let place = *places.entry(&job.want).or_insert(levels.len());
            let since = open(job).then_some(job.since);
            match levels.get_mut(place) {
                Some(level) => level.since.extend(since),
                None => levels
                    .push(Level { want: job.want.clone(), since: since.into_iter().collect() }),
            }
        }
        let most = if self.trouble.is_on_trial() { 1 } else { usize::MAX };
        for level in &mut levels {
            level.since.sort_unstable();
            level.since.truncate(most.min(self.outdated.most(&level.want)));
        }
        let on = runners.iter().filter(|(_, runner)| runner.lives).map(|(name, runner)| {
            // One that is settled takes no further job, and one whose row is gone for certain none that
            // it had not; nobody knows whether it had one before this start of the service.
            let jobs = self.observed.get(name).map_or(0, |observed| {
                // One of an earlier start had a row, and where nothing is heard of it no room is
                // counted on.
                let is_lost = runner.kept.restored && observed.missing && !observed.listed;
                let has_row = observed.gone.is_none() && !is_lost;
                let has_row = has_row || self.spec.registers && !observed.listed;
                let full = observed.settled || observed.cordoning || observed.shut;
                let full = full || !has_row && observed.jobs < runner.most;
                if full { u32::MAX } else { observed.jobs }
            });
            (runner.kept.entry.lease.clone(), jobs)
        });
        out.push(Effect::Publish(levels, on.collect()));
    }
}
