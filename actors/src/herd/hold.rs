//! Holds for debugging, durable before anything is done for them.

use actix::Context;
use drover_model::fact::What;
use drover_model::id::{AgentId, TemplateId};
use drover_model::record::{Body, Hold, Reason};
use drover_model::tenant::By;
use drover_runtime::reply::Reply;

use super::Herd;
use super::leases::unavailable;
use crate::message::{AgentCommand, Refusal};
use crate::scheduler::Event;

impl Herd {
    pub(super) fn hold(
        &mut self,
        agent: AgentId,
        (hold, by): (Option<Box<Hold>>, &By),
        reply: Reply<Result<(), Refusal>>,
        ctx: &mut Context<Self>,
    ) {
        // A hold lets somebody in after the lease, to all that its holder leaves there.
        let theirs =
            self.scheduler.theirs_on(&agent, by).and_then(|()| self.hold_is_theirs(&agent, by));
        self.inform_scheduler(Event::Held(self.common.hold_next.owners()));
        let beyond = hold.is_some().then(|| self.scheduler.hold_beyond(&agent, by)).flatten();
        let theirs = theirs.and_then(|()| beyond.map_or(Ok(()), Err));
        if let Err(refusal) = theirs.and_then(|()| self.may_hold(&agent)) {
            reply.send(Err(refusal));
            return;
        }
        let hold = owned(hold, by);
        // A holder let onto it meanwhile would find it held for another at the lease's end.
        self.inform_scheduler(Event::Barred(agent.clone(), hold.is_some()));
        let before = self.common.hold_next.on(&agent);
        if let Some(hold) = hold.as_deref() {
            // It is theirs before it is durable, so that nobody else's is accepted meanwhile.
            self.common.hold_next.set_on(&agent, Some(hold.clone()));
        }
        let body = Body::HoldSet {
            agent: agent.clone(),
            hold: hold.clone(),
            until: None,
            next: None,
            why: None,
        };
        self.append(body, ctx, move |herd, done, _| {
            herd.inform_scheduler(Event::Barred(agent.clone(), false));
            let holds = &herd.common.hold_next;
            let mine = hold.is_some() && holds.on(&agent).as_ref() == hold.as_deref();
            if done.is_err() && mine {
                holds.set_on(&agent, before);
            }
            let reported = done.map_err(|fault| unavailable(&fault)).and_then(|_| {
                tracing::info!(agent = %agent, held = hold.is_some(), "hold is set");
                let theirs = hold.as_deref().cloned();
                let lives = herd.common.roster.send(&agent, AgentCommand::Hold(hold));
                herd.common.hold_next.set_on(&agent, theirs.filter(|_| lives));
                let gone = || Refusal::Unknown(format!("agent `{agent}` is gone by now"));
                if lives { Ok(()) } else { Err(gone()) }
            });
            reply.send(reported);
        });
    }

    pub(super) fn hold_next(
        &mut self,
        name: &str,
        (hold, by): (Option<Box<Hold>>, &By),
        reply: Reply<Result<TemplateId, Refusal>>,
        ctx: &mut Context<Self>,
    ) {
        let template = self.template_named(name).and_then(|template| {
            let stopping = || Refusal::Unavailable("the service is stopping".into());
            if self.scheduler.stopping() { Err(stopping()) } else { Ok(template) }
        });
        let template = template.and_then(|template| {
            self.next_is_theirs(&template, by)?;
            self.inform_scheduler(Event::Held(self.common.hold_next.owners()));
            let spec = self.spec.templates.get(&template).filter(|_| hold.is_some());
            let beyond = spec.and_then(|spec| self.scheduler.hold_next_beyond(spec, by));
            beyond.map_or(Ok(template), Err)
        });
        let template = match template {
            Ok(template) => template,
            Err(refusal) => {
                reply.send(Err(refusal));
                return;
            }
        };
        let hold = owned(hold, by);
        let before = self.common.hold_next.of(&template);
        if let Some(hold) = hold.as_deref() {
            // It is theirs before it is durable, so that nobody else's is accepted meanwhile.
            self.common.hold_next.set(&template, Some(hold.clone()));
        }
        let body = Body::HoldNextSet { template: template.clone(), hold: hold.clone() };
        self.append(body, ctx, move |herd, done, _| {
            let holds = &herd.common.hold_next;
            match hold.as_deref() {
                // One that failed meanwhile has taken it: then none waits any more, and it is held
                // although nobody heard of it.
                Some(mine) if done.is_err() && holds.of(&template).as_ref() == Some(mine) => {
                    holds.set(&template, before);
                }
                None if done.is_ok() => holds.set(&template, None),
                Some(_) | None => {}
            }
            let reported = done.map_err(|fault| unavailable(&fault)).map(|_| {
                tracing::info!(template = %template, held = hold.is_some(), "next failure");
                herd.show_hold_next(&template, hold.as_deref());
                template
            });
            reply.send(reported);
        });
    }

    pub(super) fn show_hold_next(&self, template: &TemplateId, hold: Option<&Hold>) {
        let seconds = hold.map(|hold| hold.span_ms / 1000);
        self.observe(What::HoldNext { template: template.clone(), seconds });
    }

    pub(super) fn retire(&self, agent: &AgentId, reason: Reason, by: &By) -> Result<(), Refusal> {
        // It would end the hold, and destroy what is looked at.
        self.hold_is_theirs(agent, by)?;
        let passed = self.common.roster.send(agent, AgentCommand::Retire(reason));
        if passed { Ok(()) } else { Err(Refusal::Unknown(format!("no agent `{agent}` lives"))) }
    }

    /// Whether no hold waits for the next failure of a template but one of theirs.
    fn next_is_theirs(&self, template: &TemplateId, by: &By) -> Result<(), Refusal> {
        let what = || format!("the next failure of template `{template}`");
        is_theirs(self.common.hold_next.of(template), by, what)
    }

    /// Whether no hold is on an agent but one of theirs.
    pub(super) fn hold_is_theirs(&self, agent: &AgentId, by: &By) -> Result<(), Refusal> {
        is_theirs(self.common.hold_next.on(agent), by, || format!("agent `{agent}`"))
    }

    fn may_hold(&self, agent: &AgentId) -> Result<(), Refusal> {
        let living = self.common.roster.get(agent);
        let Some(living) = living else {
            return Err(Refusal::Unknown(format!("no agent `{agent}` lives")));
        };
        if self.scheduler.stopping() {
            return Err(Refusal::Unavailable("the service is stopping".into()));
        }
        if living.status.phase.is_leaving() {
            let text =
                format!("agent `{agent}` is in {} already: it is too late", living.status.phase);
            return Err(Refusal::Conflict(text));
        }
        Ok(())
    }
}

/// A hold that belongs to who asks for it.
fn owned(hold: Option<Box<Hold>>, by: &By) -> Option<Box<Hold>> {
    hold.map(|hold| Box::new(Hold { owner: Some(by.owner()), ..*hold }))
}

/// Whether there is no hold but one of theirs on what is named.
fn is_theirs(hold: Option<Hold>, by: &By, what: impl FnOnce() -> String) -> Result<(), Refusal> {
    let Some(hold) = hold else { return Ok(()) };
    if by.may_change_hold(hold.owner.as_ref()) {
        return Ok(());
    }
    Err(Refusal::Forbidden(format!(
        "the hold on {} is not of `{}` nor of its group: the principal that asked for it, its group \
         or an admin may do this",
        what(),
        by.principal
    )))
}
