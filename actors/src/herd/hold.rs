//! Holds for debugging, durable before anything is done for them.

use actix::Context;
use tokio::sync::oneshot;

use super::Herd;
use super::leases::unavailable;
use crate::fact::What;
use crate::id::{AgentId, TemplateId};
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
        let body = Body::HoldSet {
            agent: agent.clone(),
            hold: hold.clone(),
            until: None,
            next: None,
            why: None,
        };
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

    pub(super) fn hold_next(
        &mut self,
        name: &str,
        hold: Option<Box<Hold>>,
        reply: oneshot::Sender<Result<TemplateId, Refusal>>,
        ctx: &mut Context<Self>,
    ) {
        let template = self.template_named(name).and_then(|template| {
            let stopping = || Refusal::Unavailable("the service is stopping".into());
            if self.broker.stopping() { Err(stopping()) } else { Ok(template) }
        });
        let template = match template {
            Ok(template) => template,
            Err(refusal) => {
                reply.send(Err(refusal)).ok(); // an error: nobody waits any more
                return;
            }
        };
        let body = Body::HoldNextSet { template: template.clone(), hold: hold.clone() };
        self.append(body, ctx, move |herd, done, _| {
            let told = done.map_err(|fault| unavailable(&fault)).map(|_| {
                tracing::info!(template = %template, held = hold.is_some(), "next failure");
                herd.show_hold_next(&template, hold.as_deref());
                herd.common.hold_next.set(&template, hold.map(|hold| *hold));
                template
            });
            reply.send(told).ok(); // an error: nobody waits any more
        });
    }

    pub(super) fn show_hold_next(&self, template: &TemplateId, hold: Option<&Hold>) {
        let seconds = hold.map(|hold| hold.span_ms / 1000);
        self.observe(What::HoldNext { template: template.clone(), seconds });
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
