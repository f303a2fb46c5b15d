//! The head of the screen: the service and its numbers, whatever list is shown below.

use drover_api::{Counts, StatusOut};
use drover_model::phase::LeasePhase;

use super::super::sentences::count;
use super::super::table::Tone;
use super::action::CloudCluster;
use super::herd::going;

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
    alarms: usize,
    /// Whether a newer configuration is refused.
    is_refused: bool,
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
        for template in &status.templates {
            agents += Counts::of_template(template, status);
        }
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

    /// What needs somebody, in one line; blank where nothing does.
    pub(super) fn troubles(&self) -> String {
        let alarms = (self.alarms > 0).then(|| count(self.alarms, "alarm"));
        let refused = self.is_refused.then(|| "configuration REFUSED".to_owned());
        alarms.into_iter().chain(refused).collect::<Vec<_>>().join(", ")
    }

    /// The numbers in a line of at most so many columns, as far as there is a form that is short enough.
    pub(super) fn numbers(&self, width: usize) -> String {
        let Counts { queued, coming, held_up, ready, busy, .. } = self.agents;
        let going = going(self.agents);
        let more = [(queued, "queued"), (held_up, "held up")].into_iter();
        let more =
            more.filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}, "));
        let more: String = more.collect();
        let (waiting, granted) = (self.waiting_leases, self.leases - self.waiting_leases);
        let (waiting_jobs, running) = (self.waiting_jobs, self.running_jobs);
        let long = format!(
            "agents {more}{coming} coming, {ready} ready, {busy} busy, {going} going | leases {waiting} waiting, \
             {granted} granted | jobs {waiting_jobs} waiting, {running} running"
        );
        if long.len() <= width {
            return long;
        }
        format!(
            "coming {coming}, ready {ready}, busy {busy} | waiting: {}, {}",
            count(waiting, "lease"),
            count(waiting_jobs, "job")
        )
    }
}
