//! What drover's own agents take of nodes and storages, derived from the agents themselves.

use std::sync::Arc;

use drover_model::id::{ClusterId, NodeName, VmId};
use drover_model::place::Place;
use drover_model::placement::Sizes;
use drover_model::spec::{CloneStrategy, TemplateSpec};
use drover_model::template_image::Origin;

use crate::roster::{Living, Roster};

/// What one agent takes.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The node it is on, or will be.
    pub node: NodeName,
    /// Its VMID, once it has one.
    pub vmid: Option<VmId>,
    /// How big it is.
    pub sizes: Sizes,
    /// The storage its disk is being copied to, and the node where that is not shared.
    pub storage: Option<(String, Option<NodeName>)>,
    /// Whether its disks of `hardware.disks` may still have to be made.
    pub awaits_disks: bool,
    /// As it was born.
    pub spec: Arc<TemplateSpec>,
}

impl Claim {
    /// What an agent takes that is on its way to a node.
    pub fn coming(spec: &Arc<TemplateSpec>, node: NodeName, origin: Option<&Origin>) -> Self {
        Self {
            node,
            vmid: None,
            sizes: sizes(spec, origin),
            storage: copied_to(spec, origin),
            awaits_disks: true,
            spec: Arc::clone(spec),
        }
    }

    /// What an agent takes that has a place.
    fn placed(living: &Living, place: &Place) -> Self {
        let origin = place.origin.as_ref();
        let shown = living.status.phase.disk_is_shown();
        let storage = if shown { None } else { copied_to(&living.spec, origin) };
        Self {
            node: place.node.clone(),
            vmid: Some(place.vmid),
            sizes: living.status.machine.sizes.beside(sizes(&living.spec, origin)),
            storage,
            awaits_disks: !shown,
            spec: Arc::clone(&living.spec),
        }
    }

    /// What all agents take that have a place in a cluster.
    pub fn of_roster(roster: &Roster, cluster: &ClusterId) -> Vec<Self> {
        let mut claims = Vec::new();
        roster.each(|living| {
            let place = living.place.as_ref().filter(|place| place.cluster == *cluster);
            claims.extend(place.map(|place| Self::placed(living, place)));
        });
        claims
    }
}

/// What is known of an agent's size: as it was chosen, else as its spec says.
fn sizes(spec: &TemplateSpec, origin: Option<&Origin>) -> Sizes {
    let known = origin.map(|origin| origin.sizes).unwrap_or_default();
    known.cloned(spec)
}

fn copied_to(spec: &TemplateSpec, origin: Option<&Origin>) -> Option<(String, Option<NodeName>)> {
    let origin = origin.filter(|_| spec.clone == CloneStrategy::Full)?;
    let name = origin.target.clone()?;
    let own = origin.local.contains(&name).then(|| origin.home.clone());
    Some((name, own))
}
