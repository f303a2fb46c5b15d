//! An orphan as an agent: its marks become an entry that is already being retired, so that one
//! code path destroys guests, also when their record is lost.
//!
//! The entry is durable before the guest is touched: what is left of it when the service stops, such as
//! volumes that its storage did not let go, is known at the next start.

use std::time::Duration;

use actix::Context;
use drover_model::id::{CloudId, TemplateId};
use drover_model::journal_state::AgentEntry;
use drover_model::marks::Marks;
use drover_model::record::Body;
use drover_model::spec::TemplateSpec;

use super::Herd;
use crate::birth::Adoption;
use crate::cloud::CloudCommand;
use crate::reconciler::OrphanFound;

impl Herd {
    pub(super) fn take_orphan(&mut self, found: OrphanFound, ctx: &mut Context<Self>) {
        let OrphanFound { cloud, node, marks } = found;
        let marked = CloudId::new(&marks.cloud);
        let same_cluster = self.leads.get(&marked) == Some(&marks.cluster);
        let known = same_cluster && self.spec.clouds.contains_key(&marked);
        let cloud = if known { marked } else { cloud };
        let reached =
            self.clouds.contains_key(&cloud) && self.clusters.contains_key(&marks.cluster);
        let living = self.common.roster.has(&marks.agent);
        if !reached
            || living
            || self.scheduler.stopping()
            || !self.taking.insert(marks.agent.clone())
        {
            return;
        }
        let template = TemplateId::new(cloud, &marks.template);
        let spec = self.spec.templates.get(&template).map(|spec| TemplateSpec::clone(spec));
        // A template of this name may have guests of the other type by now.
        let spec = spec.unwrap_or_else(|| bare_spec(&template, &marks)).of_type(marks.guest);
        let spec = Box::new(spec);
        let now = self.common.ports.ambient.now().wall;
        let entry = Box::new(AgentEntry::orphan(&marks, &node, &spec, now));
        let body = Body::OrphanTaken { marks, node, spec };
        // What was not written is found again.
        self.append(body, ctx, move |actor, done, ctx| match done {
            Ok(_) => actor.retire_orphan(entry, ctx),
            Err(_) => {
                actor.taking.remove(&entry.marks.agent);
            }
        });
    }

    /// Orphans that were written down are on their way to the roster until they are there.
    pub(super) fn orphans_came(&mut self) {
        let roster = &self.common.roster;
        self.taking.retain(|agent| !roster.has(agent));
    }

    fn retire_orphan(&mut self, entry: Box<AgentEntry>, ctx: &mut Context<Self>) {
        let Some(cloud) = self.clouds.get(&entry.spec.id.cloud).cloned() else {
            // Its cloud left the configuration meanwhile: the next start takes it up.
            return;
        };
        tracing::warn!(agent = %entry.marks.agent, vmid = entry.marks.vmid.0, "orphan is retired");
        let lanes = self.cluster(&entry.marks.cluster, ctx);
        cloud.do_send(CloudCommand::Adopt(Adoption { entry, lanes, down: Duration::ZERO }));
    }
}

/// Just enough of a spec to retire a guest by: nobody in it is waited for.
fn bare_spec(template: &TemplateId, marks: &Marks) -> TemplateSpec {
    let mut spec = TemplateSpec::bare(template.clone(), marks.vmid);
    spec.name.clone_from(&marks.template);
    spec.limits.shutdown = Duration::ZERO;
    spec
}
