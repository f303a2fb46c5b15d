//! What operators say of single agents against their templates, and of templates and clouds against the
//! configuration, durable before it holds.

use std::collections::{BTreeMap, BTreeSet};

use actix::Context;
use drover_model::id::{AgentId, CloudId, TemplateId};
use drover_model::overridden::{CloudOverrides, TemplateChange, TemplateOverrides};
use drover_model::overrides::{Change, OverrideChange, Overrides};
use drover_model::record::Body;
use drover_model::spec::HerdSpec;
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

    pub(super) fn override_template(
        &mut self,
        name: &str,
        change: &TemplateChange,
        reply: Reply<Result<(TemplateId, TemplateOverrides), Refusal>>,
        ctx: &mut Context<Self>,
    ) {
        let changes_value = *change
            != TemplateChange { rollout_paused: change.rollout_paused, ..Default::default() };
        let found = self.template_named(name).and_then(|template| {
            // How a change is rolled out is no value of the configuration.
            self.may_override(&template.cloud, changes_value).map(|()| template)
        });
        let template = match found {
            Ok(template) => template,
            Err(refusal) => return reply.send(Err(refusal)),
        };
        let known = self.said.templates.get(&template).copied().unwrap_or_default();
        let overrides = known.changed(change);
        let bodies = vec![template_body(&template, overrides)];
        self.override_by(bodies, ctx, move |done| {
            reply.send(done.map(|()| (template, overrides)));
        });
    }

    pub(super) fn override_cloud(
        &mut self,
        cloud: CloudId,
        cap: Change,
        reply: Reply<Result<CloudOverrides, Refusal>>,
        ctx: &mut Context<Self>,
    ) {
        if !self.configured.clouds.contains_key(&cloud) {
            return reply.send(Err(Refusal::Unknown(format!("no cloud `{cloud}` is configured"))));
        }
        if let Err(refusal) = self.may_override(&cloud, true) {
            return reply.send(Err(refusal));
        }
        let known = self.said.clouds.get(&cloud).copied().unwrap_or_default();
        let overrides = CloudOverrides { cap: cap.to(known.cap) };
        let bodies = vec![Body::CloudOverridden { cloud, overrides }];
        self.override_by(bodies, ctx, move |done| {
            reply.send(done.map(|()| overrides));
        });
    }

    /// Whether operators may say something of a cloud or its templates now.
    fn may_override(&self, cloud: &CloudId, changes_value: bool) -> Result<(), Refusal> {
        if self.scheduler.stopping() {
            return Err(Refusal::Unavailable("the service is stopping".into()));
        }
        let HerdSpec { managed, locked, .. } = &*self.configured;
        if changes_value && *locked && managed.contains(cloud) {
            return Err(Refusal::Conflict(format!(
                "git manages cloud `{cloud}`, and service.configSync does not allow manual changes: \
                 change the file in git, then run `drover sync`"
            )));
        }
        Ok(())
    }

    pub(super) fn undo_overrides(
        &mut self,
        clouds: &BTreeSet<CloudId>,
        reply: Reply<Result<usize, Refusal>>,
        ctx: &mut Context<Self>,
    ) {
        let (templates, own) = self.said.undone_by(clouds);
        let count = templates.len() + own.len();
        let templates = templates.iter().map(|(template, left)| template_body(template, *left));
        let overrides = CloudOverrides::default();
        let own = own.into_iter().map(|cloud| Body::CloudOverridden { cloud, overrides });
        let bodies = templates.chain(own).collect();
        self.override_by(bodies, ctx, move |done| reply.send(done.map(|()| count)));
    }

    /// Forgets what was said of templates and clouds that left the configuration: under the same name
    /// there may be others one day.
    pub(super) fn forget_overrides(&mut self, ctx: &mut Context<Self>) {
        let (templates, clouds) = self.said.unconfigured(&self.configured);
        let none = TemplateOverrides::default();
        let templates = templates.iter().map(|template| template_body(template, none));
        let overrides = CloudOverrides::default();
        let clouds = clouds.into_iter().map(|cloud| Body::CloudOverridden { cloud, overrides });
        let bodies: Vec<Body> = templates.chain(clouds).collect();
        if !bodies.is_empty() {
            self.override_by(bodies, ctx, |_| {});
        }
    }

    /// Writes down what operators say, and lets it hold once it is durable.
    fn override_by(
        &mut self,
        bodies: Vec<Body>,
        ctx: &mut Context<Self>,
        then: impl FnOnce(Result<(), Refusal>) + 'static,
    ) {
        if bodies.is_empty() {
            return then(Ok(()));
        }
        // The next change follows this one, which may not be durable by then.
        bodies.iter().for_each(|body| self.said.take_in(body));
        let written = bodies.clone();
        self.append_all(bodies, ctx, move |herd, done, ctx| {
            let done = done.map_err(|fault| unavailable(&fault));
            if done.is_ok() {
                for body in &written {
                    herd.overridden.take_in(body);
                }
                let spec = herd.overridden.over(&herd.configured);
                herd.apply(&spec, BTreeMap::new(), ctx);
            } else {
                herd.said.clone_from(&herd.overridden);
            }
            then(done.map(drop));
        });
    }
}

fn template_body(template: &TemplateId, overrides: TemplateOverrides) -> Body {
    Body::TemplateOverridden { template: template.clone(), overrides: Box::new(overrides) }
}
