//! What the herd knows of each cluster's nodes: their names, and those that operators drained.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_model::id::{ClusterId, NodeName, TemplateId};
use drover_model::journal_state::JournalState;
use drover_model::size::Size;
use drover_model::spec::TemplateSpec;
use drover_model::time::Moment;

use crate::shared::{Shared, role};

/// Why nothing is started on a node that an operator drained.
pub fn drained(node: &NodeName) -> String {
    format!("it is drained: `drover node drain {node} --undrain` lets it be used again")
}

#[derive(Debug, Clone, Default)]
struct Site {
    nodes: BTreeSet<NodeName>,
    drained: BTreeSet<NodeName>,
}

/// How long it is believed how many more agents of a template there is room for.
const BELIEVED: Duration = Duration::from_secs(60);

/// How many more agents of each template and size there is room for, and when that was worked out.
type Rooms = BTreeMap<(TemplateId, Size), (u64, Moment)>;

/// The nodes of every cluster.
#[derive(Debug, Default)]
pub struct Sites {
    known: RefCell<BTreeMap<ClusterId, Site>>,
    rooms: RefCell<Rooms>,
}

impl Sites {
    /// How many more agents of each template and size there is room for, where that is known.
    pub fn rooms(&self, now: Moment) -> BTreeMap<(TemplateId, Size), u64> {
        let mut all = self.rooms.borrow_mut();
        all.retain(|_, (_, at)| now - *at < BELIEVED);
        all.iter().map(|(kind, (room, _))| (kind.clone(), *room)).collect()
    }

    /// Whether a cluster is known to have a node; one that is drained is known.
    pub fn has(&self, cluster: &ClusterId, node: &NodeName) -> bool {
        let all = self.known.borrow();
        let site = all.get(cluster);
        site.is_some_and(|site| site.nodes.contains(node) || site.drained.contains(node))
    }

    /// The nodes a cluster is known to have.
    pub fn nodes(&self, cluster: &ClusterId) -> BTreeSet<NodeName> {
        self.known.borrow().get(cluster).map(|site| site.nodes.clone()).unwrap_or_default()
    }

    /// Whether an operator drained a node.
    pub fn is_drained(&self, cluster: &ClusterId, node: &NodeName) -> bool {
        self.known.borrow().get(cluster).is_some_and(|site| site.drained.contains(node))
    }

    /// Whether any node of any cluster is drained.
    pub fn any_drained(&self) -> bool {
        self.known.borrow().values().any(|site| !site.drained.is_empty())
    }
}

/// A role that reads lists of nodes.
pub trait SeesNodes {}

impl SeesNodes for role::Herd {}
impl SeesNodes for role::Cluster {}
impl SeesNodes for role::Reconciler {}

impl<R: SeesNodes> Shared<Sites, R> {
    /// A cluster has these nodes.
    pub fn seen<'a>(&self, cluster: &ClusterId, nodes: impl Iterator<Item = &'a NodeName>) {
        let mut all = self.known.borrow_mut();
        all.entry(cluster.clone()).or_default().nodes.extend(nodes.cloned());
    }
}

impl Shared<Sites, role::Cluster> {
    /// There is room for so many more agents of this spec. `None`: that is unknown.
    pub fn has_room(&self, spec: &TemplateSpec, room: Option<u64>, now: Moment) {
        let mut all = self.rooms.borrow_mut();
        let kind = (spec.id.clone(), spec.size);
        match room {
            Some(room) => drop(all.insert(kind, (room, now))),
            None => drop(all.remove(&kind)),
        }
    }
}

impl Shared<Sites, role::Herd> {
    /// Restores the drains from the journal.
    pub fn restore(&self, journal_state: &JournalState) {
        let mut all = self.known.borrow_mut();
        for (cluster, drained) in &journal_state.drained {
            all.entry(cluster.clone()).or_default().drained.clone_from(drained);
        }
    }

    /// Drains a node, or lets it be used again.
    pub fn drain(&self, cluster: &ClusterId, node: &NodeName, drained: bool) {
        let mut all = self.known.borrow_mut();
        let site = all.entry(cluster.clone()).or_default();
        if drained {
            site.drained.insert(node.clone());
        } else {
            site.drained.remove(node);
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use drover_model::record::{Body, RECORD_VERSION, Record};
    use drover_model::testing::{at, marks};

    use super::*;

    // Invariant: a drain holds until it is taken back, also over a start.

    #[test]
    fn a_drained_node_is_drained_in_every_later_start_until_it_is_used_again() {
        let cluster = marks("a", 1).cluster;
        let mut journal_state = JournalState::default();
        for (seq, (node, drained)) in (1..).zip([("pve1", true), ("pve2", true), ("pve2", false)]) {
            let node = NodeName::new(node);
            let body = Body::NodeDrained { cluster: cluster.clone(), node, drained };
            let wall_time = at(seq).wall;
            journal_state.apply(&Record {
                version: RECORD_VERSION,
                seq,
                epoch: 1,
                wall_time,
                body,
            });
        }
        let kept: JournalState =
            serde_json::from_str(&serde_json::to_string(&journal_state).unwrap()).unwrap();
        let sites = Shared::<Sites, role::Herd>::default();
        sites.restore(&kept);
        assert!(sites.is_drained(&cluster, &NodeName::new("pve1")));
        assert!(!sites.is_drained(&cluster, &NodeName::new("pve2")));
    }
}
