//! The head of the screen: the service and its numbers, whatever list is shown below.

use drover_api::StatusOut;
use drover_model::phase::LeasePhase;

use super::super::table::Tone;
use super::action::CloudCluster;
use super::herd::Counts;

/// What the head says of the last status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Summary {
    pub version: String,
    pub state: &'static str,
    pub tone: Option<Tone>,
    agents: Counts,
    waiting_leases: usize,
    leases: usize,
    waiting_jobs: usize,
    running_jobs: usize,
    pub alarms: usize,
    /// Whether a newer configuration is refused.
    pub is_refused: bool,
    /// Each cloud with its cluster, where that is known.
    pub clouds: Vec<CloudCluster>,
}

impl Summary {
    pub(super) fn of(status: &StatusOut) -> Self {
        let (state, tone) = match (status.ready, &status.journal) {
            (true, _) => ("ready", Tone::Good),
            (false, Some(_)) => ("not ready", Tone::Bad),
            (false, None) => ("starting", Tone::Busy),
        };
        let mut agents = Counts::default();
        status.agents.iter().for_each(|agent| agents.add(agent.state, 1));
        let is_waiting = |phase| phase == LeasePhase::Waiting;
        let clouds = status.clouds.iter();
        Self {
            version: status.version.clone(),
            state,
            tone: Some(tone),
            agents,
            waiting_leases: status.leases.iter().filter(|one| is_waiting(one.state)).count(),
            leases: status.leases.len(),
            waiting_jobs: status.sources.iter().map(|one| one.waiting).sum(),
            running_jobs: status.sources.iter().map(|one| one.running).sum(),
            alarms: status.alarms.len(),
            is_refused: status.config.refused_at.is_some(),
            clouds: clouds.filter_map(|one| Some((one.id.clone(), one.cluster.clone()?))).collect(),
        }
    }

    /// The numbers in one line.
    pub(super) fn numbers(&self) -> String {
        let Counts { coming, ready, busy, going } = self.agents;
        format!(
            "agents {coming} coming, {ready} ready, {busy} busy, {going} going | leases {} waiting, {} \
             granted | jobs {} waiting, {} running",
            self.waiting_leases,
            self.leases - self.waiting_leases,
            self.waiting_jobs,
            self.running_jobs
        )
    }
}
