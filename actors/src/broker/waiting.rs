//! Why a lease waits, in words for people.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::describe;
use super::state::{Broker, TemplateView};
use crate::id::{CloudId, TemplateId};
use crate::record::Want;
use crate::spec::{CloudSpec, TemplateSpec};

/// What stands in the way on the side of the clouds.
pub struct Ground<'a> {
    /// The configured templates.
    pub templates: &'a BTreeMap<TemplateId, Arc<TemplateSpec>>,
    /// The configured clouds.
    pub clouds: &'a BTreeMap<CloudId, Arc<CloudSpec>>,
    /// Why clouds can not be worked with.
    pub trouble: &'a BTreeMap<CloudId, String>,
}

/// Why nothing is begun of one template.
pub(super) enum Obstacle {
    /// A cap is reached: whose, and the counts.
    Full(String, String),
    /// Anything else.
    Other(String),
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Full(whose, counts) => write!(f, "{whose} is full: {counts}"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl Broker {
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
            // Whoever is on the way waits for the same.
            let told = troubles.into_iter().map(|(cloud, why)| format!("cloud {cloud}: {why}"));
            return told.collect::<Vec<_>>().join("; ");
        }
        let starting = self.starting(want);
        if starting > 0 {
            return format!("waits for an agent: {starting} starting");
        }
        let obstacles: Vec<Obstacle> =
            fits.iter().filter_map(|id| self.obstacle(id, ground)).collect();
        let all_full = obstacles.len() == fits.len()
            && obstacles.iter().all(|obstacle| matches!(obstacle, Obstacle::Full(..)));
        let texts: Vec<String> = obstacles
            .into_iter()
            .map(|obstacle| match &obstacle {
                Obstacle::Full(whose, counts) if all_full => format!("{whose} {counts}"),
                Obstacle::Full(..) | Obstacle::Other(_) => obstacle.to_string(),
            })
            .collect();
        if all_full {
            return format!("every template that fits is full: {}", texts.join(", "));
        }
        if texts.is_empty() { "waits for an agent".into() } else { texts.join("; ") }
    }

    /// Agents on their way that could serve a want.
    fn starting(&self, want: &Want) -> usize {
        let servers = self.servers(want);
        let each = servers.specs().map(|kind| {
            // Who is kept for one owner is on the way for nobody else.
            let uses = self.agents.coming().get(&(kind, None)).copied().unwrap_or(0);
            let places = self.specs.get(kind).map_or(1, |spec| spec.executors.max(1));
            let pending = self.template_of(kind).map_or(0, |(_, view)| view.pending);
            (uses / places + pending) as usize
        });
        each.sum()
    }

    pub(super) fn obstacle(&self, id: &TemplateId, ground: &Ground<'_>) -> Option<Obstacle> {
        if let Some(why) = ground.trouble.get(&id.cloud) {
            return Some(Obstacle::Other(format!("cloud {}: {why}", id.cloud)));
        }
        let view = self.templates.get(id)?;
        if let Some((until, cause)) = &view.tripped {
            let until = until.rfc3339();
            return Some(Obstacle::Other(format!("{id}: breaker tripped until {until}: {cause}")));
        }
        if let Some(cap) = view.spec.cap.filter(|cap| view.live >= *cap) {
            return Some(Obstacle::Full(id.to_string(), format!("{} of {cap}", view.live)));
        }
        if let Some(lack) = &view.lack {
            return Some(Obstacle::Other(format!("{id}: {lack}")));
        }
        let live: u32 = self.of_cloud(&id.cloud).map(|view| view.live).sum();
        let cap = ground.clouds.get(&id.cloud).and_then(|spec| spec.cap);
        if let Some(cap) = cap.filter(|cap| live >= *cap) {
            return Some(Obstacle::Full(format!("cloud {}", id.cloud), format!("{live} of {cap}")));
        }
        let paused = view.room == 0;
        paused.then(|| match &view.paused {
            Some(why) => Obstacle::Other(format!("{id} pauses: {why}")),
            None => Obstacle::Other(format!("{id} pauses, for it could not begin agents")),
        })
    }

    fn of_cloud(&self, cloud: &CloudId) -> impl Iterator<Item = &TemplateView> {
        self.templates.iter().filter(move |(id, _)| id.cloud == *cloud).map(|(_, view)| view)
    }
}
