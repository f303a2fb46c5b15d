//! Stopping: no new work, then whatever the policy wants of the agents, then the answer.

use std::collections::BTreeSet;

use tokio::sync::oneshot;

use super::Herd;
use crate::birth::Living;
use crate::cloud::CloudCommand;
use crate::id::AgentId;
use crate::message::{AgentCommand, Standing, StopPolicy};
use crate::record::Reason;

/// A stop under way.
pub(super) struct Drain {
    /// Agents that must be gone first.
    leaving: BTreeSet<AgentId>,
    /// Agents that live on, and of which a lease begins or ends at this moment: a key would be
    /// left in the guest.
    settling: BTreeSet<AgentId>,
    replies: Vec<oneshot::Sender<()>>,
}

impl Herd {
    pub(super) fn begin_drain(&mut self, policy: StopPolicy, reply: oneshot::Sender<()>) {
        if let Some(drain) = &mut self.drain {
            drain.replies.push(reply);
            return;
        }
        self.broker.stop();
        for cloud in self.clouds.values() {
            cloud.do_send(CloudCommand::Stop);
        }
        let (mut leaving, mut settling) = (BTreeSet::new(), BTreeSet::new());
        for (agent, living) in self.common.roster.select(|_| true) {
            let goes = match policy {
                StopPolicy::Keep => false,
                StopPolicy::RetireIdle => self.broker.unused(&agent) && is_idle(&living),
                StopPolicy::RetireAll => true,
            };
            if !goes && self.broker.settling(&agent) {
                settling.insert(agent);
                continue;
            }
            let command = match (goes, policy) {
                (false, _) => AgentCommand::Rest,
                (true, StopPolicy::RetireAll) => AgentCommand::ForceRetire(Reason::Stopping),
                (true, StopPolicy::Keep | StopPolicy::RetireIdle) => {
                    AgentCommand::Retire(Reason::Stopping)
                }
            };
            living.address.do_send(command);
            // A stranded guest waits for an administrator, not for us.
            if goes && living.state != "Stranded" && living.standing != Standing::Parked {
                leaving.insert(agent);
            }
        }
        tracing::info!(agents = leaving.len(), "service stops, agents leave first");
        self.drain = Some(Drain { leaving, settling, replies: vec![reply] });
    }

    /// Answers when every agent that had to leave is gone, no lease is half begun or half ended, and
    /// no record is on its way.
    pub(super) fn check_drained(&mut self) {
        let writes = self.writes;
        let Some(drain) = &mut self.drain else { return };
        let roster = &self.common.roster;
        drain
            .leaving
            .retain(|agent| roster.get(agent).is_some_and(|living| living.state != "Stranded"));
        let broker = &self.broker;
        drain.settling.retain(|agent| {
            let settles = broker.settling(agent);
            if !settles {
                roster.send(agent, AgentCommand::Rest);
            }
            settles
        });
        if drain.leaving.is_empty() && drain.settling.is_empty() && writes == 0 {
            for reply in drain.replies.drain(..) {
                reply.send(()).ok(); // an error: nobody waits any more
            }
        }
    }
}

fn is_idle(living: &Living) -> bool {
    matches!(living.standing, Standing::Free { idle: true, .. })
}
