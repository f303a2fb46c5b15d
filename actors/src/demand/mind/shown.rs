//! What a source's mind shows people.

use std::collections::BTreeMap;

use drover_model::demand::report::Outage;
use drover_model::demand::report::{RowlessRunner, RunningJob, SourceJobs};
use drover_model::id::RunnerName;
use drover_model::noted::JobSeen;
use drover_model::ports::JobObservation;
use drover_model::record::Want;
use drover_model::status::SourceStatus;

use crate::demand::mind::SourceMind;
use crate::demand::mind::event::Runner;

/// Reasons that one status has at most.
const LACKS: usize = 5;

impl SourceMind {
    /// Jobs that run on its runners, by the last poll.
    pub fn running(&self) -> usize {
        self.observed.values().map(|observed| observed.jobs as usize).sum()
    }

    /// Since when polls fail, and why.
    pub fn outage(&self) -> Option<&Outage> {
        self.outage.as_ref().map(|(_, outage)| outage)
    }

    /// Everything about its jobs, for people.
    pub fn report(&self, runners: &BTreeMap<RunnerName, Runner>) -> SourceJobs {
        let running = self.observed.iter().filter_map(|(name, observed)| {
            let id = observed.job.clone().filter(|_| observed.jobs > 0)?;
            let agent = runners.get(name)?.kept.entry.agent.clone();
            let waited = observed.waited.clone().filter(|job| job.id == id);
            Some(RunningJob { id, waited, runner: name.clone(), agent })
        });
        let rowless = self.observed.iter().filter_map(|(name, observed)| {
            let is_gone = observed.missing && observed.gone.is_some() && !observed.settled;
            let runner = runners.get(name).filter(|runner| is_gone && runner.lives)?;
            let entry = &runner.kept.entry;
            let (agent, lease) = (entry.agent.clone(), entry.lease.clone());
            Some(RowlessRunner { runner: name.clone(), agent, lease })
        });
        SourceJobs {
            source: self.spec.id.clone(),
            waiting: self.jobs.clone(),
            unoffered: self.unoffered.iter().cloned().chain(self.outdated.unoffered()).collect(),
            ignored: self.ignored.clone(),
            unread: self.unread.clone(),
            running: running.collect(),
            rowless: rowless.collect(),
            outage: self.outage().cloned(),
            unserved: self.unserved(),
            refused: self.refused().cloned(),
        }
    }

    /// Jobs that wait, by the last poll.
    pub fn waiting(&self) -> &[JobObservation] {
        &self.jobs
    }

    /// Jobs that run on its runners, as far as the last poll shows which.
    pub fn seen(&self, runners: &BTreeMap<RunnerName, Runner>) -> Vec<JobSeen> {
        let on = self.observed.iter().filter_map(|(name, observed)| {
            let entry = &runners.get(name)?.kept.entry;
            let one = observed.job.as_ref().filter(|_| observed.jobs > 0);
            let others = observed.running().iter().filter(move |id| Some(*id) != one);
            let seen = one.into_iter().chain(others).map(move |id| {
                let waited = observed.waited.clone().filter(|job| job.id == *id);
                let (agent, lease) = (entry.agent.clone(), entry.lease.clone());
                JobSeen { id: id.clone(), waited, agent, lease, runner: name.clone() }
            });
            Some(seen)
        });
        on.flatten().collect()
    }

    /// How it stands.
    pub fn status(&self, runners: usize) -> SourceStatus {
        let (mut waiting, mut oldest) = (0, None);
        let mut lacks: Vec<String> = Vec::new();
        for job in &self.jobs {
            match self.lacks(&job.want) {
                Some(text) if lacks.len() < LACKS && !lacks.contains(text) => {
                    lacks.push(text.clone());
                }
                Some(_) => {}
                None => {
                    waiting += 1;
                    oldest = Some(oldest.map_or(job.since, |oldest| job.since.min(oldest)));
                }
            }
        }
        SourceStatus {
            source: self.spec.id.clone(),
            kind: self.spec.kind.to_owned(),
            configured: self.is_configured(),
            waiting,
            oldest,
            unoffered: self.jobs.len() - waiting,
            lacks,
            ignored: self.ignored.len() + self.unread.len(),
            runners,
            running: self.running(),
            unserved: self.unserved(),
            refused: self.refused().map(|reported| (reported.since, reported.text.clone())),
            outage: self.outage().map(|outage| (outage.since, outage.text.clone())),
        }
    }

    /// What the templates are short of for this, or that their runners are too old; none where one offers
    /// it.
    fn lacks(&self, want: &Want) -> Option<&String> {
        let place = self.unoffered.binary_search_by(|one| one.want.cmp(want)).ok();
        let unoffered = place.and_then(|place| self.unoffered.get(place));
        unoffered.map(|one| &one.lacks).or_else(|| self.outdated.lacks(want))
    }

    /// How many runners in a row could not be started, or were too old.
    pub fn unserved(&self) -> u32 {
        self.trouble.count + self.outdated.count()
    }

    /// Since when it lets no runner be made, and why.
    pub fn refused(&self) -> Option<&Outage> {
        self.trouble.refused.as_ref()
    }
}
