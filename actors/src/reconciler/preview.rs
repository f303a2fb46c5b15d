//! The plan of the reconciliation that would be next, without carrying it out: the same list, the
//! same looks and checks, the same judgement; nobody is told, nothing is written down, and nothing
//! is remembered.

use std::time::Duration;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use drover_model::id::CloudId;
use drover_model::ports::Survey;

use super::{
    Plans, Reconciler, checked, images, plan, reported, templates, unread, without_quorum,
};
use drover_model::finding::{Finding, Outcome};

impl Reconciler {
    /// Tells what the next reconciliation would do.
    pub(super) fn preview(&self, plans: Plans, ctx: &mut Context<Self>) {
        let Some(cloud) = self.clouds.keys().next().cloned() else {
            return self.planned(Err(self.no_way()), &plans);
        };
        let survey = self.common.ports.hypervisor.survey(&cloud, Duration::ZERO);
        ctx.spawn(survey.into_actor(self).map(move |survey, actor, ctx| match survey {
            Ok(survey) if !survey.quorate => actor.planned(Err(without_quorum(&cloud)), &plans),
            Ok(survey) => actor.foresee(&cloud, &survey, plans, ctx),
            Err(fault) => actor.planned(Err(unread(&cloud, &fault)), &plans),
        }));
    }

    fn foresee(&self, cloud: &CloudId, survey: &Survey, plans: Plans, ctx: &mut Context<Self>) {
        let now = self.common.ports.ambient.now().mono;
        let (known, config) = (self.known(), self.config());
        let mut memory = self.memory.borrow().clone();
        memory.look_again();
        let plan = plan::plan(survey, &known, config, &mut memory, now);
        let templates = templates(survey);
        let named = images::named(survey, &self.common.installation);
        let listed = self.list_images(cloud);
        let answers = self.ask(cloud, &plan);
        let answers = async move { (answers.await, listed.await) };
        let mut findings = plan.findings;
        ctx.spawn(answers.into_actor(self).map(move |((looks, checks), listed), actor, _| {
            let looks = reported(looks);
            for (vmid, _, observation) in &looks {
                memory.learn(*vmid, observation, &known);
            }
            for (vmid, _, observation) in looks {
                let template = templates.contains(&vmid);
                let judged =
                    plan::judge(vmid, &observation, template, &known, config, &mut memory, now);
                findings.extend(judged.finding);
            }
            let gone = checks
                .into_iter()
                .filter_map(|(agent, vmid, observation)| checked(&agent, vmid, observation));
            findings.extend(gone);
            let judged = images::judge(listed, &named, &known, config, &mut memory, now);
            findings.extend(judged.findings);
            actor.planned(Ok(findings), &plans);
        }));
    }

    fn planned(&self, mut found: Outcome<Finding>, plans: &Plans) {
        if let Ok(findings) = &mut found {
            findings.sort_by_key(|found| found.does);
        }
        // An error: nobody waits for the plan any more.
        plans.send((self.id.clone(), found)).ok();
    }
}
