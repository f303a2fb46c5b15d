//! Agents whose guests a list of the watch does not show: which of their ids the watch asks about.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use drover_model::fault::Fault;
use drover_model::id::{AgentId, VmId};
use drover_model::ports::IdStatus;
use drover_model::time::Moment;

/// The time between two questions about an id that is taken and not listed: its login cannot see it.
const UNSEEN: Duration = Duration::from_secs(60);
/// Ids that the watch asks about after one list.
const CHECKS: usize = 32;

/// The questions of the watch.
#[derive(Clone, Default)]
pub(super) struct Unlisted {
    /// Whether questions are on their way: a list that comes meanwhile adds none.
    asking: bool,
    /// Agents whose ids are taken, and when the next question about each is due.
    taken: BTreeMap<AgentId, Moment>,
}

/// How many agents it holds, not which.
impl fmt::Debug for Unlisted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Unlisted");
        text.field("asking", &self.asking).field("taken", &self.taken.len()).finish()
    }
}

impl Unlisted {
    /// The questions that follow from a list in which these agents are missing.
    pub(super) fn ask(
        &mut self,
        mut missing: Vec<(AgentId, VmId)>,
        now: Moment,
    ) -> Vec<(AgentId, VmId)> {
        self.taken.retain(|agent, _| missing.iter().any(|(other, _)| other == agent));
        missing.retain(|(agent, _)| self.taken.get(agent).is_none_or(|due| *due <= now));
        missing.truncate(CHECKS);
        if self.asking {
            return Vec::new();
        }
        self.asking = !missing.is_empty();
        missing
    }

    /// Takes the answers in; gives the agents whose ids are free.
    pub(super) fn answered(
        &mut self,
        answers: Vec<(AgentId, Result<IdStatus, Fault>)>,
        now: Moment,
    ) -> Vec<AgentId> {
        self.asking = false;
        let mut gone = Vec::new();
        for (agent, status) in answers {
            match status {
                Ok(IdStatus::Free) => gone.push(agent),
                Ok(IdStatus::Taken) => drop(self.taken.insert(agent, now + UNSEEN)),
                Ok(IdStatus::Unknown) | Err(_) => {}
            }
        }
        gone
    }
}
