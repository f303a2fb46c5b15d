//! Copies of machines: another agent that begins as a full clone of the machine of a leased or held one,
//! and is held for who asked.
//!
//! ```text
//! asked ── may it be? ──▶ cloud ──▶ template: an agent under the caps, the breaker and the addresses
//!                                        │
//!                     hold, durable ◀────┘  then the answer
//! ```
//!
//! - The copy is born as any agent: its intent is in the journal before the clone, with its spec, which
//!   names the machine. A service that stops before that has started nothing. One that stops before the
//!   hold is durable finds an agent on trial, which goes by itself.
//! - Its hold is written before its clone as a rule. The journal keeps it for the agent either way.
//! - One copy is started at a time, so that no quota is passed by two at once.

use std::sync::Arc;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use drover_model::id::AgentId;
use drover_model::phase::{AgentPhase, Power};
use drover_model::record::Hold;
use drover_model::spec::TemplateSpec;
use drover_model::template_image::Sought;
use drover_model::tenant::By;
use drover_runtime::reply::Reply;

use crate::cloud::CloudCommand;
use crate::herd::Herd;
use crate::message::{AgentCommand, Copied, CopyAsk, Provisioned, Purpose, Refusal};
use crate::scheduler::Event;

type CopyReply = Reply<Result<Copied, Refusal>>;

impl Herd {
    pub(in crate::herd) fn copy(&mut self, ask: CopyAsk, ctx: &mut Context<Self>) {
        let CopyAsk { target, hold, by, reply } = ask;
        let found = self.meant(&target, &by).and_then(|of| Ok((self.may_copy(&of, &by)?, of)));
        let (spec, of) = match found {
            Ok(found) => found,
            Err(refusal) => return reply.send(Err(refusal)),
        };
        let template = spec.id.clone();
        let Some(cloud) = self.clouds.get(&template.cloud) else {
            let text = format!("cloud `{}` does not run", template.cloud);
            return reply.send(Err(Refusal::Unavailable(text)));
        };
        tracing::info!(agent = %of, template = %template, by = by.principal, "machine is copied");
        let (answer, started) = Reply::channel();
        let purpose = Purpose::Copy(spec);
        let of_template = template.clone();
        cloud.do_send(CloudCommand::Begin { template, count: 1, purpose, reply: answer });
        self.copying = Some(of.clone());
        ctx.spawn(started.into_actor(self).map(move |started, herd, ctx| {
            herd.copying = None;
            match started {
                Ok(Ok(Provisioned { mut agents, short, .. })) => match agents.pop() {
                    Some(agent) => {
                        let copied = Copied { agent, of, template: of_template };
                        herd.hold_copy(copied, (hold, &by), reply, ctx);
                    }
                    None => {
                        let why = short.unwrap_or_else(|| "no place is free".into());
                        let text = format!("no copy of agent `{of}` was started: {why}");
                        reply.send(Err(Refusal::TooMany(text)));
                    }
                },
                Ok(Err(refusal)) => reply.send(Err(refusal)),
                Err(_) => {
                    let text = "its cloud restarted meanwhile: `drover agents` shows whether a copy \
                                was started, which goes by itself then";
                    reply.send(Err(Refusal::Unavailable(text.into())));
                }
            }
        }));
    }

    /// Holds a copy that was started; without its hold nobody wants it.
    fn hold_copy(
        &mut self,
        copied: Copied,
        (hold, by): (Box<Hold>, &By),
        reply: CopyReply,
        ctx: &mut Context<Self>,
    ) {
        let (answer, held) = Reply::channel();
        self.hold(copied.agent.clone(), (Some(hold), by), answer, ctx);
        ctx.spawn(held.into_actor(self).map(move |held, herd, _| {
            let refusal = match held {
                Ok(Ok(())) => return reply.send(Ok(copied)),
                Ok(Err(refusal)) => refusal,
                Err(_) => Refusal::Unavailable("whether the copy is held is not known".into()),
            };
            herd.common.roster.send(&copied.agent, AgentCommand::Withdraw);
            reply.send(Err(refusal));
        }));
    }

    /// The spec of a copy of an agent's machine, unless something stands against one.
    fn may_copy(&mut self, of: &AgentId, by: &By) -> Result<Arc<TemplateSpec>, Refusal> {
        let living = self.may_act(of, by)?;
        let (_, place) = self.way(&living)?;
        let conflict = |text: String| Err(Refusal::Conflict(text));
        if living.status.leases.iter().any(|lease| self.scheduler.is_sources(lease)) {
            return conflict(format!(
                "agent `{of}` runs a job of a CI system, and a copy would run it a second time: hold \
                 the agent first, and clone its machine once the job is over"
            ));
        }
        if living.status.machine.power == Power::Suspended {
            return conflict(format!(
                "the machine of agent `{of}` is suspended: `drover machine resume {of}` first"
            ));
        }
        if let Some(other) = &self.copying {
            return conflict(format!("agent `{other}` is being cloned: try again in a second"));
        }
        if let Some(other) = self.copy_under_way(of) {
            return conflict(format!(
                "agent `{other}` is being cloned from agent `{of}`: wait until its clone is done"
            ));
        }
        let spec = living.spec.copy_of(of, place.vmid, living.status.machine.sizes);
        self.inform_scheduler(Event::Held(self.common.hold_next.owners()));
        match self.scheduler.hold_next_beyond(&spec, by) {
            Some(refusal) => Err(refusal),
            None => Ok(Arc::new(spec)),
        }
    }

    /// The copy of an agent's machine that is not made yet. Proxmox locks a running guest for one clone
    /// alone.
    fn copy_under_way(&self, of: &AgentId) -> Option<AgentId> {
        let mut found = None;
        self.common.roster.each(|living| {
            let is_its = matches!(
                &living.spec.search,
                Some(Sought::Agent { agent, .. }) if agent == of
            );
            let phase = living.status.phase;
            if is_its && (phase == AgentPhase::Queued || phase.is_cloning()) {
                found = Some(living.status.agent.clone());
            }
        });
        found
    }
}
