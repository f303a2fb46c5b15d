//! Disc images whose agent is gone: an upload may come about after everybody has stopped waiting for
//! it. They are this installation's by their exact names; others' are never touched.

use std::collections::BTreeSet;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use drover_model::fault::Fault;
use drover_model::id::{AgentId, CloudId, Installation};
use drover_model::marks::parse_name;
use drover_model::ports::{Ask, ImageObservation, Survey};
use drover_model::seed;
use drover_model::time::Moment;
use futures_util::StreamExt as _;

use super::mind::{Event, Purpose};
use super::plan::{Config, Known, Memory};
use super::{AT_ONCE, Reconciler};
use drover_model::finding::{Does, Finding};

/// What follows from a list of disc images.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Judged {
    /// What was found.
    pub findings: Vec<Finding>,
    /// Images whose time has come.
    pub remove: Vec<ImageObservation>,
}

/// The agents of this installation whose guests are listed, by their names.
pub(super) fn named(survey: &Survey, installation: &Installation) -> BTreeSet<AgentId> {
    let names = survey.guests.iter().filter_map(|guest| parse_name(guest.name.as_deref()?));
    names.filter(|(whose, _)| whose == installation).map(|(_, agent)| agent).collect()
}

/// Judges disc images: one whose agent nobody knows, of which no guest is listed either, is removed
/// after the grace of an orphan. `known` was read after the list was.
pub(super) fn judge(
    listed: Result<Vec<ImageObservation>, Fault>,
    named: &BTreeSet<AgentId>,
    known: &Known,
    config: Config,
    memory: &mut Memory,
    now: Moment,
) -> Judged {
    let mut judged = Judged::default();
    let listed = match listed {
        Ok(listed) => listed,
        Err(fault) => {
            let text = format!("disc images could not be listed: {fault}");
            judged.findings.push(Finding::reported(text));
            return judged;
        }
    };
    let unknown_runners: Vec<(ImageObservation, AgentId)> = listed
        .into_iter()
        .filter_map(|image| {
            let (whose, agent) = seed::owner(&image.volume)?;
            let lives = known.agents.contains_key(&agent) || named.contains(&agent);
            (whose == known.installation && !lives).then_some((image, agent))
        })
        .collect();
    memory.images.retain(|image, _| unknown_runners.iter().any(|(unknown, _)| unknown == image));
    for (image, agent) in unknown_runners {
        let waited = now - *memory.images.entry(image.clone()).or_insert(now);
        let (does, what) = if memory.ahead().is_some() {
            (Does::Leave, "not removed: the journal is older than the world".to_owned())
        } else if !config.cleanup_orphans {
            (Does::Leave, "only reported: cleaning is off".to_owned())
        } else if waited < config.orphan_grace {
            let left = (config.orphan_grace - waited).as_secs();
            (Does::Leave, format!("left alone for {left} s more"))
        } else {
            (Does::Destroy, "is removed".to_owned())
        };
        let ImageObservation { node, volume } = &image;
        let text =
            format!("`{volume}` on `{node}` is the disc image of agent or build `{agent}`: {what}");
        judged.findings.push(Finding { does, vmid: None, text });
        if does == Does::Destroy {
            judged.remove.push(image);
        }
    }
    judged
}

impl Reconciler {
    /// The disc images where there may be any; nobody is asked where there can be none.
    pub(super) fn list_images(&self, cloud: &CloudId) -> Ask<Vec<ImageObservation>> {
        let mut storages = self.memory.borrow().image_storages.clone();
        self.common.roster.each(|living| {
            let here = living.place.as_ref().is_some_and(|place| place.cluster == self.id);
            let seed = living.spec.cloud_init.seed.as_ref().filter(|_| here);
            storages.extend(seed.map(|seed| seed.storage.clone()));
        });
        if storages.is_empty() {
            return Box::pin(async { Ok(Vec::new()) });
        }
        self.common.ports.hypervisor.images(cloud, &storages)
    }

    /// Removes disc images whose agents are gone, and ends the reconciliation.
    pub(super) fn sweep_images(
        &mut self,
        cloud: &CloudId,
        named: BTreeSet<AgentId>,
        mut findings: Vec<Finding>,
        ctx: &mut Context<Self>,
    ) {
        let cloud = cloud.clone();
        let listed = self.list_images(&cloud);
        ctx.spawn(listed.into_actor(self).map(move |listed, actor, ctx| {
            let event = Event::Images(actor.round(Purpose::Reconcile), listed, named);
            let follows = actor.step(Some(&cloud), event);
            findings.extend(follows.findings);
            let hypervisor = actor.common.ports.hypervisor.clone();
            let removals = follows.images.into_iter().map(move |image| {
                let removal = hypervisor.remove_image(&cloud, &image);
                async move { (image, removal.await) }
            });
            let removals = futures_util::stream::iter(removals).buffered(AT_ONCE);
            let removals = removals.collect::<Vec<_>>();
            ctx.spawn(removals.into_actor(actor).map(move |removed, actor, ctx| {
                findings.extend(removed.into_iter().filter_map(|(image, result)| {
                    let fault = result.err()?;
                    let text = format!("`{}` stays on `{}`: {fault}", image.volume, image.node);
                    Some(Finding::reported(text))
                }));
                actor.end(Ok(findings), ctx);
            }));
        }));
    }
}

#[cfg(test)]
mod tests;
