//! Holds for debugging, durable before anything is done for them.

use actix::Context;
use tokio::sync::oneshot;

use super::Herd;
use super::leases::unavailable;
use crate::id::AgentId;
use crate::message::{AgentCommand, Refusal};
use crate::record::{Body, Hold};

impl Herd {
    pub(super) fn hold(
        &mut self,
        agent: AgentId,
        hold: Option<Box<Hold>>,
        reply: oneshot::Sender<Result<(), Refusal>>,
        ctx: &mut Context<Self>,
    ) {
        if let Err(refusal) = self.may_hold(&agent) {
            reply.send(Err(refusal)).ok(); // an error: nobody waits any more
            return;
        }
        let body = Body::HoldSet { agent: agent.clone(), hold: hold.clone(), until: None };
        self.append(body, ctx, move |herd, done, _| {
            let told = done.map_err(|fault| unavailable(&fault)).and_then(|_| {
                tracing::info!(agent = %agent, held = hold.is_some(), "hold is set");
                let lives = herd.common.roster.send(&agent, AgentCommand::Hold(hold));
                let gone = || Refusal::Unknown(format!("agent `{agent}` is gone by now"));
                if lives { Ok(()) } else { Err(gone()) }
            });
            reply.send(told).ok(); // an error: nobody waits any more
        });
    }

    fn may_hold(&self, agent: &AgentId) -> Result<(), Refusal> {
        let living = self.common.roster.get(agent);
        let Some(living) = living else {
            return Err(Refusal::Unknown(format!("no agent `{agent}` lives")));
        };
        if self.broker.stopping() {
            return Err(Refusal::Unavailable("the service is stopping".into()));
        }
        if matches!(living.state.as_str(), "Retiring" | "Stranded" | "Gone") {
            let text = format!("agent `{agent}` is in {} already: it is too late", living.state);
            return Err(Refusal::Conflict(text));
        }
        Ok(())
    }
}
