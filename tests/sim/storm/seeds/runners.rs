//! What must hold of runners at CI systems: none is made before that is written down, none stays
//! once it is written down as gone, no source has more than its cap, and a lost job is reported.

use std::collections::{BTreeMap, BTreeSet};

use drover_model::id::{AgentId, LeaseId, RunnerName, SourceId};
use drover_model::journal_state::JournalState;
use drover_model::record::{Body, LeaseAsk};

use super::plan::SOURCES;
use super::run::Play;
use super::seen::Seen;
use super::watch::Watch;

/// What the records say of runners.
#[derive(Debug, Default)]
pub(super) struct Runners {
    /// Those that may be at their sources.
    known: BTreeSet<(SourceId, RunnerName)>,
    /// Leases of sources, with their agents.
    leases: BTreeMap<LeaseId, (SourceId, AgentId)>,
    /// The runners of those.
    by_lease: BTreeMap<LeaseId, (SourceId, RunnerName)>,
    /// Jobs that were reported as lost, in this start of the service.
    lost: BTreeSet<(SourceId, String)>,
}

impl Runners {
    /// The service starts with this journal; what was taken and never durable is not in it.
    pub(super) fn begin(&mut self, journal_state: &JournalState) {
        self.lost.clear();
        let runners = journal_state.runners.iter();
        let each = runners
            .flat_map(|(source, names)| names.keys().map(|name| (source.clone(), name.clone())));
        self.known = each.collect();
        let leases = journal_state.agents.iter().flat_map(|(agent, entry)| {
            let granted = entry.leases.iter();
            granted.filter_map(|(lease, granted)| {
                Some((lease.clone(), (granted.ask.source.clone()?, agent.clone())))
            })
        });
        self.leases = leases.collect();
        let all = journal_state.runners.iter().flat_map(|(source, names)| {
            names.iter().map(|(name, entry)| (entry.lease.clone(), (source.clone(), name.clone())))
        });
        self.by_lease = all.collect();
    }

    /// A record was taken; what is wrong with it, if anything.
    pub(super) fn record(&mut self, body: &Body, caps: &BTreeMap<SourceId, u32>) -> Option<String> {
        match body {
            Body::RunnerIntended { source, runner, lease, .. } => {
                self.by_lease.insert(lease.clone(), (source.clone(), runner.clone()));
                self.known.insert((source.clone(), runner.clone()));
                None
            }
            Body::RowGone { source, runner } => {
                let known = self.known.remove(&(source.clone(), runner.clone()));
                (!known).then(|| format!("{runner} of {source} is gone and never was"))
            }
            Body::LeaseGranted { agent, ask, .. } => self.granted(agent, ask, caps),
            Body::LeaseEnded { lease, .. } | Body::LeaseReturned { lease, .. } => {
                self.leases.remove(lease);
                None
            }
            Body::Gone { agent, .. } => {
                self.leases.retain(|_, (_, on)| on != agent);
                None
            }
            _ => None,
        }
    }

    fn granted(
        &mut self,
        agent: &AgentId,
        ask: &LeaseAsk,
        caps: &BTreeMap<SourceId, u32>,
    ) -> Option<String> {
        let source = ask.source.as_ref()?;
        self.leases.insert(ask.lease.clone(), (source.clone(), agent.clone()));
        let has = self.leases.values().filter(|(of, _)| of == source).count();
        let cap = caps.get(source).copied().filter(|cap| *cap > 0)?;
        (has > cap as usize).then(|| format!("{source} has {has} of {cap}"))
    }

    /// The runner of a lease.
    pub(super) fn on(&self, lease: &LeaseId) -> Option<&(SourceId, RunnerName)> {
        self.by_lease.get(lease)
    }

    /// A job was reported as lost; what is wrong with that, if anything.
    pub(super) fn job_lost(&mut self, source: &SourceId, job: Option<&String>) -> Option<String> {
        let job = job?.clone();
        let reported = format!("job {job} of {source} is reported as lost twice");
        (!self.lost.insert((source.clone(), job))).then_some(reported)
    }

    fn is_known(&self, source: &str, runner: &RunnerName) -> bool {
        self.known.contains(&(SourceId::new(source), runner.clone()))
    }
}

impl Watch {
    /// A source found the runner of a lease done, idle or failed: no job of a living guest is on it.
    pub(super) fn stopped_runner(&self, seen: &mut Seen, lease: &LeaseId, why: &str) {
        let Some((source, runner)) = seen.runners.on(lease).cloned() else { return };
        if let Some(job) = self.ci.under_way(&source, &runner) {
            let text = format!("{lease} ends as {why}, and job {job} of {source} runs on {runner}");
            self.blame(seen, "no-job-is-cut-by-what-its-source-says", text);
        }
    }
}

impl Play {
    /// Looks for runners that nobody wrote down.
    pub(super) fn unlisted(&self) -> Option<String> {
        let all = SOURCES.iter().take(self.plan.stage.sources.len());
        let rows = all.flat_map(|source| {
            self.world.ci.rows_of(source).into_iter().map(move |row| (*source, row))
        });
        let seen = self.watch.seen();
        let strange = rows.into_iter().find(|(source, row)| !seen.runners.is_known(source, row));
        strange.map(|(source, row)| format!("{row} is at {source} without a record"))
    }

    /// Whether every job is over and no runner is left.
    pub(super) fn served(&self) -> bool {
        let mut all = SOURCES.iter().take(self.plan.stage.sources.len());
        all.all(|source| {
            let (ci, jobs) = (&self.world.ci, self.world.ci.jobs(source));
            ci.over(source) == jobs.len() && ci.rows(source) == 0
        })
    }
}
