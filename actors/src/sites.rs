//! What the herd knows of each cluster's nodes: their names, and those that operators cordoned or
//! drained.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_model::id::{ClusterId, NodeName, TemplateId};
use drover_model::journal_state::JournalState;
use drover_model::phase::{NodeOrder, OrderedBy};
use drover_model::size::Size;
use drover_model::spec::TemplateSpec;
use drover_model::time::{Moment, WallTime};

use crate::shared::{Shared, role};

/// Why nothing is started on a node after this order; `None` where agents start there.
fn closed(node: &NodeName, order: NodeOrder) -> Option<String> {
    let why = match order {
        NodeOrder::Use => return None,
        NodeOrder::Cordon => "it is cordoned by an operator",
        NodeOrder::Drain => "it is drained",
    };
    Some(format!("{why}: `drover uncordon {node}` lets it be used again"))
}

#[derive(Debug, Clone, Default)]
struct Site {
    nodes: BTreeSet<NodeName>,
    /// What operators want of nodes that are not used as usual, and who, as far as that is known.
    orders: BTreeMap<NodeName, (NodeOrder, Option<OrderedBy>)>,
    /// Nodes that are offline by the last list, each with since when.
    offline: BTreeMap<NodeName, WallTime>,
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

    /// Whether a cluster is known to have a node; one that is cordoned or drained is known.
    pub fn has(&self, cluster: &ClusterId, node: &NodeName) -> bool {
        let all = self.known.borrow();
        let site = all.get(cluster);
        site.is_some_and(|site| site.nodes.contains(node) || site.orders.contains_key(node))
    }

    /// The nodes a cluster is known to have.
    pub fn nodes(&self, cluster: &ClusterId) -> BTreeSet<NodeName> {
        self.known.borrow().get(cluster).map(|site| site.nodes.clone()).unwrap_or_default()
    }

    /// What an operator wants of a node.
    pub fn order(&self, cluster: &ClusterId, node: &NodeName) -> NodeOrder {
        let all = self.known.borrow();
        let order = all.get(cluster).and_then(|site| site.orders.get(node));
        order.map_or(NodeOrder::Use, |(order, _)| *order)
    }

    /// Why an operator lets nothing start on a node, and what takes that back.
    pub fn closed(&self, cluster: &ClusterId, node: &NodeName) -> Option<String> {
        closed(node, self.order(cluster, node))
    }

    /// Whether an operator drained a node.
    pub fn is_drained(&self, cluster: &ClusterId, node: &NodeName) -> bool {
        self.order(cluster, node) == NodeOrder::Drain
    }

    /// The nodes of a cluster that operators cordoned or drained, each with who did, as far as that is known.
    pub fn kept_out(
        &self,
        cluster: &ClusterId,
    ) -> BTreeMap<NodeName, (NodeOrder, Option<OrderedBy>)> {
        self.known.borrow().get(cluster).map(|site| site.orders.clone()).unwrap_or_default()
    }

    /// The nodes of a cluster that are offline by its last list, each with since when.
    pub fn offline(&self, cluster: &ClusterId) -> BTreeMap<NodeName, WallTime> {
        self.known.borrow().get(cluster).map(|site| site.offline.clone()).unwrap_or_default()
    }

    /// Whether any node of any cluster is drained.
    pub fn any_drained(&self) -> bool {
        let all = self.known.borrow();
        all.values()
            .flat_map(|site| site.orders.values())
            .any(|(order, _)| *order == NodeOrder::Drain)
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

impl Shared<Sites, role::Reconciler> {
    /// These nodes of a cluster are offline, and no others.
    pub fn are_offline(&self, cluster: &ClusterId, nodes: BTreeMap<NodeName, WallTime>) {
        self.known.borrow_mut().entry(cluster.clone()).or_default().offline = nodes;
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
    /// Restores the orders of operators from the journal.
    pub fn restore(&self, journal_state: &JournalState) {
        let cordoned = journal_state.cordoned.iter().map(|at| (at, NodeOrder::Cordon));
        let drained = journal_state.drained.iter().map(|at| (at, NodeOrder::Drain));
        for ((cluster, nodes), order) in cordoned.chain(drained) {
            for node in nodes {
                let by = journal_state.ordered.get(cluster).and_then(|nodes| nodes.get(node));
                self.set_order(cluster, node, order, by.cloned());
            }
        }
    }

    /// An operator wants this of a node from here on; gives what was wanted before.
    pub fn set_order(
        &self,
        cluster: &ClusterId,
        node: &NodeName,
        order: NodeOrder,
        by: Option<OrderedBy>,
    ) -> NodeOrder {
        // What was worked out without this node, or with it, holds no longer.
        self.rooms.borrow_mut().clear();
        let mut all = self.known.borrow_mut();
        let orders = &mut all.entry(cluster.clone()).or_default().orders;
        let before = match order {
            NodeOrder::Use => orders.remove(node),
            // Who orders what holds already changes nothing.
            NodeOrder::Cordon | NodeOrder::Drain => match orders.get(node) {
                Some((before, by)) if *before == order => Some((order, by.clone())),
                Some(_) | None => orders.insert(node.clone(), (order, by)),
            },
        };
        before.map_or(NodeOrder::Use, |(order, _)| order)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use drover_model::record::{Body, RECORD_VERSION, Record};
    use drover_model::testing::{at, marks};

    use super::*;

    // Invariant: the last order of an operator holds until it is taken back, also over a start.

    #[test]
    fn a_node_is_cordoned_or_drained_in_every_later_start_until_it_is_used_again() {
        let cluster = marks("a", 1).cluster;
        let mut journal_state = JournalState::default();
        let (used, drain, cordon) = ((false, false), (true, false), (false, true));
        let orders = [
            ("pve1", drain),
            ("pve2", drain),
            ("pve2", used),
            ("pve3", cordon),
            ("pve3", cordon),
            ("pve4", cordon),
            ("pve4", drain),
            ("pve5", drain),
            ("pve5", cordon),
            ("pve6", cordon),
            ("pve6", used),
        ];
        for (seq, (node, (drained, cordoned))) in (1..).zip(orders) {
            let node = NodeName::new(node);
            let by = Some("token:ops".to_owned());
            let cluster = cluster.clone();
            let body = Body::NodeDrained { cluster, node, drained, cordoned, by };
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
        let orders = (1..=6).map(|one| sites.order(&cluster, &NodeName::new(format!("pve{one}"))));
        assert_eq!(
            orders.collect::<Vec<_>>(),
            [
                NodeOrder::Drain,
                NodeOrder::Use,
                NodeOrder::Cordon,
                NodeOrder::Drain,
                NodeOrder::Cordon,
                NodeOrder::Use,
            ]
        );
        // Who wanted it is known as long as it holds.
        let by = |seq| Some(OrderedBy { by: "token:ops".to_owned(), at: at(seq).wall });
        let kept_out = sites.kept_out(&cluster).into_iter();
        let kept_out = kept_out.map(|(node, (_, by))| (node.to_string(), by));
        let wanted = [("pve1", by(1)), ("pve3", by(4)), ("pve4", by(7)), ("pve5", by(9))];
        assert_eq!(kept_out.collect::<Vec<_>>(), wanted.map(|(node, by)| (node.to_owned(), by)));
    }
}
