//! The story of the demo: what it breaks on purpose, and when. Pure: [`Story::next`] says the next
//! step, and the loop of the demo takes it.
//!
//! ```text
//! an agent is there      -> write a wrong value -> the service refuses it -> put the file right
//! jobs run on machines   -> kill -9 of the service -> it is ready again: count adopted agents
//! the others have ended  -> kill the VM of a job   -> `drover lease` reports the loss
//! ```
//!
//! Each step waits for a condition, and none for a time. A batch without a job for a step leaves
//! that step out.

use super::agents::AgentTable;
use super::jobs::Job;
use super::state::{DemoState, JobRow, JobState};

/// What the demo does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Write a wrong value into the configuration.
    BreakConfig,
    /// Write the configuration as it was.
    RepairConfig,
    /// `kill -9` of the service.
    KillService,
    /// Kill this VM under its job.
    KillVm(u32),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Edit {
    #[default]
    Pending,
    Written,
    Refused,
    Repaired,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Kill {
    #[default]
    Pending,
    Killed,
    Adopted,
}

/// What the service took over after it was killed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Adoption {
    /// Agents with a guest before.
    pub before: usize,
    /// The VMIDs of those that the service has again, with the same guest.
    pub vmids: Vec<u32>,
    /// Jobs that ran on meanwhile.
    pub jobs: usize,
    /// From the kill to readiness, in milliseconds.
    pub outage_ms: u64,
}

/// How far the story is, and its figures.
#[derive(Debug, Clone, Default)]
pub struct Story {
    edit: Edit,
    kill: Kill,
    /// What the service said of the wrong value.
    pub refusal: Option<String>,
    pub adoption: Option<Adoption>,
    pub killed_vms: Vec<u32>,
}

impl Story {
    /// The next step, if its condition holds.
    pub fn next(&self, state: &DemoState) -> Option<Step> {
        match self.edit {
            Edit::Pending => return has_guest(&state.agents).then_some(Step::BreakConfig),
            Edit::Refused => return Some(Step::RepairConfig),
            Edit::Written => return None,
            Edit::Repaired => {}
        }
        match self.kill {
            Kill::Pending => return may_kill_service(state).then_some(Step::KillService),
            Kill::Killed => return None,
            Kill::Adopted => {}
        }
        if !have_outlived(state) {
            return None;
        }
        let under_way = |row: &&JobRow| row.job.loses_its_vm() && row.is_under_way();
        let vmids = state.jobs.iter().filter(under_way).filter_map(|row| row.vmid);
        vmids.filter(|vmid| !self.killed_vms.contains(vmid)).map(Step::KillVm).next()
    }

    /// Notes that a step was taken.
    pub fn took(&mut self, step: Step) {
        match step {
            Step::BreakConfig => self.edit = Edit::Written,
            Step::RepairConfig => self.edit = Edit::Repaired,
            Step::KillService => self.kill = Kill::Killed,
            Step::KillVm(vmid) => self.killed_vms.push(vmid),
        }
    }

    /// Notes a refused configuration. True when it is the demo's own wrong value.
    pub fn refused(&mut self, text: &str) -> bool {
        let own = self.edit == Edit::Written;
        if own {
            self.edit = Edit::Refused;
            self.refusal = Some(text.to_owned());
        }
        own
    }

    /// Notes what a service that was started again has adopted.
    pub fn adopted(&mut self, adoption: Adoption) {
        if self.kill == Kill::Killed {
            self.kill = Kill::Adopted;
            self.adoption = Some(adoption);
        }
    }

    /// Whether all steps of this batch were taken.
    pub fn has_ended(&self, state: &DemoState) -> bool {
        state.is_batch_done() && self.kill == Kill::Adopted
    }
}

fn has_guest(agents: &AgentTable) -> bool {
    !agents.alive().is_empty()
}

/// The jobs of the first round that are to run on without the service.
fn outliving(state: &DemoState) -> impl Iterator<Item = &JobRow> {
    let is_first = |job: &Job| job.name == job.work.name;
    state.jobs.iter().filter(move |row| row.job.work.outlives_service && is_first(&row.job))
}

fn may_kill_service(state: &DemoState) -> bool {
    let runs = |row: &JobRow| row.is_under_way() || row.state == JobState::Done;
    outliving(state).all(runs) && has_guest(&state.agents)
}

/// Whether those have ended whose VM stays.
fn have_outlived(state: &DemoState) -> bool {
    let mut staying = outliving(state).filter(|row| !row.job.loses_its_vm());
    staying.all(|row| row.state == JobState::Done)
}

#[cfg(test)]
mod tests;
