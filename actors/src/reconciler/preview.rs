//! The plan of the reconciliation that would be next, without carrying it out: the same list, the
//! same looks and checks, the same judgement; no actor hears of it, nothing is written down, and
//! nothing is remembered.

use std::collections::BTreeSet;
use std::time::Duration;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use drover_model::id::CloudId;
use drover_model::ports::Survey;
use drover_model::state_machine::StateMachine as _;

use super::mind::{Answers, Effect, Event, Purpose};
use drover_model::finding::{Finding, Outcome};

use super::{Follows, Plans, Reconciler, containers, images, templates, unread, without_quorum};

/// What a preview uses of the effects: findings, and the reads that lead to more of them.
fn foreseen(effects: Vec<Effect>) -> Follows {
    let mut follows = Follows::default();
    for effect in effects {
        match effect {
            Effect::Look(vmid, node) => follows.looks.push((vmid, node)),
            Effect::Check(agent, vmid) => follows.checks.push((agent, vmid)),
            Effect::Found(finding) => follows.findings.push(finding),
            Effect::Restrain { .. }
            | Effect::Share { .. }
            | Effect::Offline(_)
            | Effect::Follow(..)
            | Effect::Send(..)
            | Effect::Destroy(..)
            | Effect::RemoveImage(_)
            | Effect::Confirmed
            | Effect::NoQuorum => {}
        }
    }
    follows
}

impl Reconciler {
    /// Reports what the next reconciliation would do.
    pub(super) fn preview(&self, plans: Plans, ctx: &mut Context<Self>) {
        let Some(cloud) = self.clouds.keys().next().cloned() else {
            return self.planned(Err(self.no_way()), &plans);
        };
        let survey = self.common.ports.hypervisor.survey(&cloud, Duration::ZERO);
        ctx.spawn(survey.into_actor(self).map(move |survey, actor, ctx| match survey {
            Ok(survey) if !survey.quorate => actor.planned(Err(without_quorum(&cloud)), &plans),
            Ok(survey) => actor.foresee(&cloud, survey, plans, ctx),
            Err(fault) => actor.planned(Err(unread(&cloud, &fault)), &plans),
        }));
    }

    fn foresee(&self, cloud: &CloudId, survey: Survey, plans: Plans, ctx: &mut Context<Self>) {
        let mut memory = self.memory.borrow().clone();
        let ambient = self.common.ports.ambient.clone();
        // One moment for the whole plan, as if every answer came at once.
        let now = ambient.now();
        memory.effects_of(Event::LookAgain, now, 0);
        let (templates, containers) = (templates(&survey), containers(&survey));
        let named = images::named(&survey, &self.common.run.installation);
        let round = self.round(Purpose::Preview);
        let listed = memory.effects_of(Event::Listed(round.clone(), survey), now, 0);
        let follows = foreseen(listed);
        let mut findings = follows.findings;
        let list = self.list_images(cloud);
        let answers = self.ask(cloud, follows.looks, follows.checks, &containers);
        let answers = async move { (answers.await, list.await) };
        ctx.spawn(answers.into_actor(self).map(move |((looks, checks), images), actor, _| {
            let answers = Answers { looks, checks, templates, lived: BTreeSet::new() };
            let answered = memory.effects_of(Event::Answered(round.clone(), answers), now, 0);
            findings.extend(foreseen(answered).findings);
            let swept = memory.effects_of(Event::Images(round, images, named), now, 0);
            findings.extend(foreseen(swept).findings);
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
