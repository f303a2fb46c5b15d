//! What a configuration would do, for those who ask before it comes into force.

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_model::overridden::CloudOverrides;
use drover_model::plan::Plan;
use drover_model::record::Want;
use drover_model::spec::HerdSpec;

use super::Herd;
use crate::plan::plan;
use crate::roster::Living;

impl Herd {
    /// Plans the way to a configuration. `by_git` says that a sync brings it, which takes back what
    /// operators say of clouds that git manages.
    pub(super) fn plan(
        &self,
        next: &Arc<HerdSpec>,
        by_git: bool,
        jobs: Vec<(String, Want)>,
    ) -> Plan {
        let mut overridden = self.overridden.clone();
        if by_git {
            let managed: BTreeSet<_> =
                self.configured.managed.union(&next.managed).cloned().collect();
            let (templates, clouds) = overridden.undone_by(&managed);
            for (template, left) in templates {
                overridden.set_template(&template, left);
            }
            for cloud in clouds {
                overridden.set_cloud(&cloud, CloudOverrides::default());
            }
        }
        let mut agents: Vec<Living> = Vec::new();
        self.common.roster.each(|living| agents.push(living.clone()));
        let leases = self
            .scheduler
            .waiting()
            .map(|ask| (format!("lease {} of {}", ask.lease, ask.principal), ask.want.clone()));
        let wants: Vec<(String, Want)> = leases.chain(jobs).collect();
        tracing::debug!(wants = wants.len(), "a configuration is planned");
        plan(&self.spec, &overridden.over(next), &agents, &wants)
    }
}
