//! Stopping: no new work, then whatever the policy wants of the agents, then the answer.

use std::collections::BTreeSet;

use drover_model::id::AgentId;
use drover_model::phase::AgentPhase;
use drover_model::record::Reason;
use drover_model::status::Standing;

use super::Herd;
use crate::cloud::CloudCommand;
use crate::message::AgentCommand;
use crate::scheduler::Event;
use drover_model::stop::StopPolicy;
use drover_runtime::reply::Reply;

/// A stop under way.
pub(super) struct Drain {
    policy: StopPolicy,
    /// Agents that know what becomes of them; those that were being started when it stopped come
    /// later.
    met: BTreeSet<AgentId>,
    /// Agents that must be gone first.
    leaving: BTreeSet<AgentId>,
    /// Agents that live on, and of which a lease begins or ends at this moment: a key would be
    /// left in the guest.
    settling: BTreeSet<AgentId>,
    replies: Vec<Reply<()>>,
}

impl Herd {
    pub(super) fn begin_drain(&mut self, policy: StopPolicy, reply: Reply<()>) {
        if let Some(drain) = &mut self.drain {
            drain.replies.push(reply);
            return;
        }
        self.inform_scheduler(Event::Stop);
        for cloud in self.clouds.values() {
            cloud.do_send(CloudCommand::Stop);
        }
        let mut drain = Drain {
            policy,
            met: BTreeSet::new(),
            leaving: BTreeSet::new(),
            settling: BTreeSet::new(),
            replies: vec![reply],
        };
        let agents = self.meet(&mut drain);
        self.drain = Some(drain);
        tracing::info!(agents, "service stops, agents leave first");
    }

    /// Sends agents that were not met before what the policy wants of them; gives how many leave.
    fn meet(&self, drain: &mut Drain) -> usize {
        let policy = drain.policy;
        for (agent, living) in self.common.roster.others(&drain.met) {
            drain.met.insert(agent.clone());
            let goes = match policy {
                StopPolicy::Keep => false,
                StopPolicy::RetireIdle => self.scheduler.unused(&agent) && living.status.is_idle(),
                StopPolicy::RetireAll => true,
            };
            if !goes && self.scheduler.settling(&agent) {
                drain.settling.insert(agent);
                continue;
            }
            let command = match (goes, policy) {
                (false, _) => AgentCommand::Rest,
                (true, StopPolicy::RetireAll) => AgentCommand::ForceRetire(Reason::Stopping),
                (true, StopPolicy::Keep | StopPolicy::RetireIdle) => {
                    AgentCommand::Retire(Reason::Stopping)
                }
            };
            self.common.roster.send(&agent, command);
            // A stranded guest waits for an administrator, not for us.
            if goes
                && living.status.phase != AgentPhase::Stranded
                && living.status.standing != Standing::Parked
            {
                drain.leaving.insert(agent);
            }
        }
        drain.leaving.len()
    }

    /// Goes on with drained nodes, and with the drain of a service that stops.
    pub(super) fn follow_drains(&mut self) {
        self.empty_drained();
        self.check_drained();
    }

    /// Answers when every agent that had to leave is gone, no lease is half started or half ended, and
    /// no record is on its way.
    fn check_drained(&mut self) {
        let written = self.writes.is_empty();
        let Some(mut drain) = self.drain.take() else { return };
        self.meet(&mut drain);
        let roster = &self.common.roster;
        drain.leaving.retain(|agent| {
            roster.get(agent).is_some_and(|living| living.status.phase != AgentPhase::Stranded)
        });
        let scheduler = &self.scheduler;
        drain.settling.retain(|agent| {
            let settles = scheduler.settling(agent);
            if !settles {
                roster.send(agent, AgentCommand::Rest);
            }
            settles
        });
        if drain.leaving.is_empty() && drain.settling.is_empty() && written {
            for reply in drain.replies.drain(..) {
                reply.send(());
            }
        }
        self.drain = Some(drain);
    }
}
