//! Why a lease waits, in words for people.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_model::id::{AgentId, CloudId, TemplateId};
use drover_model::record::Want;
use drover_model::size::Size;
use drover_model::spec::{CloudSpec, TemplateSpec};
use drover_model::status::Standing;

use super::describe;
use super::making::Making;
use super::state::Scheduler;
use crate::template::Pause;

/// What stands in the way on the side of the clouds.
pub struct Ground<'a> {
    /// The configured templates.
    pub templates: &'a BTreeMap<TemplateId, Arc<TemplateSpec>>,
    /// The configured clouds.
    pub clouds: &'a BTreeMap<CloudId, Arc<CloudSpec>>,
    /// Why clouds cannot be worked with.
    pub trouble: &'a BTreeMap<CloudId, String>,
    /// How far drover is with images that are not there.
    pub images: BTreeMap<TemplateId, Making>,
}

fn troubled(cloud: &CloudId, why: &str) -> String {
    format!("cloud {cloud}: {why}; `drover doctor --cloud {cloud}` checks it")
}

/// A reason behind the name of its template, unless it begins with that.
fn of_template(id: &TemplateId, why: &str) -> String {
    let is_named = why.strip_prefix('`').is_some_and(|rest| rest.starts_with(&format!("{id}`")));
    if is_named { why.to_owned() } else { format!("{id}: {why}") }
}

impl Scheduler {
    /// That a template has reached its cap, and where its agents are seen.
    fn says_full(&self, id: &TemplateId, live: u32, cap: u32) -> String {
        let stock = self.agents.stock(id);
        let full = format!("{id} is full: {live} of {cap} (`instanceCap`)");
        let busy = stock.all - stock.idle;
        if live == 0 || busy > 0 {
            return format!("{full}; `drover leases` says who has them");
        }
        let own = |agent: &&AgentId| self.agents.get(agent).is_some_and(|one| one.spec.id == *id);
        let held = self.restrained.iter().filter(own).count();
        if held > 0 {
            return format!(
                "{full}, of which drover hands out {held} to nobody, since another drover may own \
                 them; `drover status` says what to do"
            );
        }
        if stock.all > 0 {
            return format!("{full}, none of them busy; `drover agents` lists them");
        }
        // They go, or have not reported yet.
        format!("{full}; `drover agents` lists them")
    }

    /// Why a lease of this want waits at this moment.
    pub fn why(&self, want: &Want, ground: &Ground<'_>) -> String {
        let fits: Vec<&TemplateId> = ground
            .templates
            .iter()
            .filter(|(_, spec)| self.serves(spec, want))
            .map(|(id, _)| id)
            .collect();
        if fits.is_empty() {
            return format!("no configured template serves {} any more", describe(want));
        }
        let troubles = fits.iter().map(|id| Some((&id.cloud, ground.trouble.get(&id.cloud)?)));
        if let Some(troubles) = troubles.collect::<Option<BTreeMap<&CloudId, &String>>>() {
            // An agent on the way waits for the same.
            let reported = troubles.into_iter().map(|(cloud, why)| troubled(cloud, why));
            return reported.collect::<Vec<_>>().join("; ");
        }
        match self.starting(want) {
            (0, 0) => {}
            (0, queued) => return format!("waits for an agent: {queued} queued"),
            (starting, 0) => return format!("waits for an agent: {starting} starting"),
            (starting, queued) => {
                return format!("waits for an agent: {starting} starting, {queued} queued");
            }
        }
        let servers = self.servers(want);
        let size = |id: &TemplateId| {
            let kind = self.templates.get(id)?.kind;
            servers.kinds().find(|(spec, _)| *spec == kind).map(|(_, size)| size)
        };
        let texts = fits
            .iter()
            .filter_map(|id| self.obstacle(id, ground).or_else(|| self.no_place(id, size(id)?)));
        let mut texts: Vec<String> = texts.collect();
        // Templates of a full cloud have one cause.
        texts.dedup();
        if texts.is_empty() { "waits for an agent".into() } else { texts.join("; ") }
    }

    /// Agents on their way that could serve a want: those that start on a node, and those that may yet
    /// find none.
    fn starting(&self, want: &Want) -> (usize, usize) {
        let servers = self.servers(want);
        let each = servers.kinds().map(|(spec, size)| {
            // Who is kept for one owner is on the way for nobody else.
            let coming = self.agents.coming().get(&(spec, None)).filter(|_| size.is_none());
            let uses = coming.copied().unwrap_or(0);
            let places = self.specs.get(spec).map_or(1, |spec| spec.executors.max(1));
            let all = (uses / places) as usize;
            let queued = if all == 0 { 0 } else { self.agents.queued(spec).min(all) };
            let own = self.template_of(spec);
            let asked = own.and_then(|(_, view)| view.starts.get(&size)).copied().unwrap_or(0);
            (all - queued, queued + asked as usize)
        });
        each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Why no agent of this size starts of a template that starts others.
    pub(super) fn no_place(&self, id: &TemplateId, size: Size) -> Option<String> {
        let why = self.templates.get(id)?.unplaced.get(&size)?;
        Some(format!("{id} has no place for an agent with {size}, and drover tries again: {why}"))
    }

    /// Why no agent of a template starts, with the command or the key that helps where there is one.
    pub(super) fn obstacle(&self, id: &TemplateId, ground: &Ground<'_>) -> Option<String> {
        if let Some(why) = ground.trouble.get(&id.cloud) {
            return Some(troubled(&id.cloud, why));
        }
        let view = self.templates.get(id)?;
        if let Some((until, cause)) = &view.tripped {
            let until = until.rfc3339();
            return Some(format!(
                "{}; its agents failed, so drover tries the next one at {until}; once \
                 the cause is repaired, `drover breakers reset {id}` tries at once",
                of_template(id, cause)
            ));
        }
        if let Some(cap) = view.spec.cap.filter(|cap| view.live >= *cap) {
            return Some(self.says_full(id, view.live, cap));
        }
        if let Some(lack) = &view.lack {
            return Some(format!("{id}: {lack}"));
        }
        if let Some((live, cap)) = self.full_cloud(&id.cloud, ground) {
            let held = self.holders(&id.cloud).0;
            let held = if held.is_empty() { held } else { format!(": {held}") };
            let cloud = &id.cloud;
            return Some(format!("cloud {cloud} is full: {live} of {cap} (`instanceCap`){held}"));
        }
        let paused = view.room == 0;
        if paused
            && let Some(image) = view.spec.image()
            && let Some(making) = ground.images.get(&image)
            && let pause = view.paused.as_ref().map_or("", |pause| &pause.why)
            && let Some(reported) = making.says(id, &image, pause)
        {
            return Some(reported);
        }
        paused.then(|| match &view.paused {
            Some(Pause { why, retry: Some(at) }) => {
                let at = at.rfc3339();
                format!("{}; drover tries it again by itself at {at}", of_template(id, why))
            }
            Some(Pause { why, retry: None }) => {
                format!("{id} starts nothing as long as this lasts: {why}")
            }
            None => format!("{id} pauses, for it could not start agents"),
        })
    }

    /// Whether a template that starts nothing is wanted: it keeps agents without demand, or leases
    /// wait that it serves.
    pub fn is_missed(&self, spec: &TemplateSpec) -> bool {
        let Some(view) = self.templates.get(&spec.id) else { return false };
        let keeps = view.kept.all > 0 || view.kept.idle > 0;
        let wanted = || keeps || self.wants().any(|want| self.serves(spec, want));
        view.paused.is_some() && view.room == 0 && wanted()
    }

    /// Whether no agent of a template starts for another reason than that its cap, or its cloud's, is
    /// reached.
    pub(super) fn is_stuck(&self, id: &TemplateId, ground: &Ground<'_>) -> bool {
        let Some(view) = self.templates.get(id) else { return true };
        let is_full = view.spec.cap.is_some_and(|cap| view.live >= cap)
            || self.full_cloud(&id.cloud, ground).is_some();
        let is_kept = view.tripped.is_some() || view.lack.is_some() || view.paused.is_some();
        !is_full && (is_kept || ground.trouble.contains_key(&id.cloud))
    }

    /// Whose agents fill a cloud, and whether no place of it comes free by itself: idle agents that are
    /// the minimum of their template stay.
    pub(super) fn holders(&self, cloud: &CloudId) -> (String, bool) {
        let is_idle = |standing: Standing| matches!(standing, Standing::Free { idle: true, .. });
        let (mut each, mut stays) = (Vec::new(), true);
        for (id, view) in &self.templates {
            if id.cloud != *cloud || view.live == 0 {
                continue;
            }
            let own = self.agents.values().filter(|agent| agent.spec.id == *id && !agent.going);
            let idle = own.filter(|agent| is_idle(agent.status.standing)).count();
            let idle = u32::try_from(idle).unwrap_or(u32::MAX).min(view.live);
            let least = view.kept.idle.max(view.kept.all.saturating_sub(view.live - idle));
            let kept = idle.min(least);
            stays &= kept == view.live;
            each.push(match kept {
                0 => format!("{} of {id}", view.live),
                kept => {
                    format!("{} of {id}, {kept} idle as its minimum (`instanceMin`)", view.live)
                }
            });
        }
        if each.is_empty() {
            return (String::new(), false);
        }
        (each.join("; "), stays)
    }

    /// The agents of a cloud that has reached its cap, and that cap.
    pub(super) fn full_cloud(&self, cloud: &CloudId, ground: &Ground<'_>) -> Option<(u32, u32)> {
        let cap = ground.clouds.get(cloud)?.cap?;
        let own = self.templates.iter().filter(|(id, _)| id.cloud == *cloud);
        let live: u32 = own.map(|(_, view)| view.live).sum();
        (live >= cap).then_some((live, cap))
    }
}
