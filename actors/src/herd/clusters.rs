//! The clusters' actors: they live for as long as a cloud leads to their cluster, or an agent has its
//! guest there.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use drover_model::id::ClusterId;

use super::{ClusterActors, Herd};
use crate::birth::Lanes;
use crate::cluster::ClusterCommand;
use crate::cluster::allocator::Allocator;
use crate::reconciler::ReconcilerCommand;
use crate::reconciler::plan::Memory;

/// What is known of a cluster, with actors and without.
pub(super) struct Known {
    /// Its ids: those that rest or are burned do so while nobody leads there, too.
    pub(super) ids: Rc<RefCell<Allocator>>,
    /// What its reconciler remembers.
    pub(super) memory: Rc<RefCell<Memory>>,
}

impl ClusterActors {
    /// Where an agent of this cluster asks for its place and its VMID.
    pub(super) fn lanes(&self, cluster: &ClusterId) -> Lanes {
        Lanes {
            cluster: cluster.clone(),
            ask: self.cluster.clone().recipient(),
            free: self.cluster.clone().recipient(),
            id_back: self.cluster.clone().recipient(),
        }
    }
}

impl Herd {
    /// Lets the actors of clusters go that nobody needs any more.
    pub(super) fn leave_clusters(&mut self) {
        let led: BTreeSet<&ClusterId> = self.leads.values().collect();
        let left: Vec<ClusterId> =
            self.clusters.keys().filter(|cluster| !led.contains(cluster)).cloned().collect();
        for cluster in left {
            let here = self
                .common
                .roster
                .select(|living| living.place.as_ref().is_some_and(|at| at.cluster == cluster));
            if here.is_empty()
                && let Some(actors) = self.clusters.remove(&cluster)
            {
                tracing::info!(%cluster, "no cloud leads to the cluster any more");
                actors.cluster.do_send(ClusterCommand::Leave);
                actors.reconciler.do_send(ReconcilerCommand::Leave);
            }
        }
    }
}
