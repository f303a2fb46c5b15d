//! What operators say of single agents against their templates, durable before it holds.

use actix::Context;
use drover_model::id::AgentId;
use drover_model::overrides::{OverrideChange, Overrides};
use drover_model::record::Body;
use drover_runtime::reply::Reply;

use super::Herd;
use super::leases::unavailable;
use crate::message::{AgentCommand, Refusal};

impl Herd {
    pub(super) fn override_agent(
        &mut self,
        agent: AgentId,
        change: OverrideChange,
        reply: Reply<Result<Overrides, Refusal>>,
        ctx: &mut Context<Self>,
    ) {
        let refusal = match self.common.roster.get(&agent) {
            None => Refusal::Unknown(format!("no agent `{agent}` lives")),
            Some(_) if self.scheduler.stopping() => {
                Refusal::Unavailable("the service is stopping".into())
            }
            Some(_) => {
                let body = Body::OverrideSet { agent: agent.clone(), change };
                return self.append(body, ctx, move |herd, done, _| {
                    let answer = done.map_err(|fault| unavailable(&fault));
                    let answer = answer.and_then(|_| herd.overridden(&agent, change));
                    reply.send(answer);
                });
            }
        };
        reply.send(Err(refusal));
    }

    fn overridden(&self, agent: &AgentId, change: OverrideChange) -> Result<Overrides, Refusal> {
        let roster = &self.common.roster;
        roster.set_overrides(agent, change);
        roster.send(agent, AgentCommand::Override(change));
        let living = roster.get(agent).map(|living| living.overrides);
        living.ok_or_else(|| Refusal::Unknown(format!("agent `{agent}` is gone by now")))
    }
}
