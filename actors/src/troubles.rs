//! Since when nodes are offline, clouds are degraded and sources cannot be read. It is recorded in
//! the journal, so that a trouble does not look new after a panic or a start of the service.
//!
//! Each trouble belongs to the actor that sees it: a cloud's to the cloud, a source's to the source,
//! the nodes' to their cluster's reconciler. A repeated report is not written again. After a start a
//! subject in trouble stays so until its actor has seen that it works.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_model::id::{ClusterId, NodeName};
use drover_model::record::{Body, Troubled};
use drover_model::time::WallTime;

/// The troubles that the journal knew at a start, until their actors take them over.
pub type KnownTroubles = BTreeMap<Troubled, WallTime>;

/// The trouble of a cloud or a source.
#[derive(Debug)]
pub struct Trouble {
    of: Troubled,
    since: Option<WallTime>,
}

impl Trouble {
    pub fn take_over(of: Troubled, known: &mut KnownTroubles) -> Self {
        let since = known.remove(&of);
        Self { of, since }
    }

    /// Since when the subject is in trouble.
    pub fn since(&self) -> Option<WallTime> {
        self.since
    }

    /// Sets since when the subject is in trouble. `None`: it works. Returns the record of a change.
    #[must_use]
    pub fn set(&mut self, since: Option<WallTime>) -> Option<Body> {
        let changed = std::mem::replace(&mut self.since, since) != since;
        changed.then(|| Body::TroubleSince { of: self.of.clone(), since })
    }
}

/// The offline nodes of one cluster.
#[derive(Debug)]
pub struct NodeTroubles {
    cluster: ClusterId,
    since: BTreeMap<NodeName, WallTime>,
}

impl NodeTroubles {
    pub fn take_over(cluster: &ClusterId, known: &mut KnownTroubles) -> Self {
        let mut since = BTreeMap::new();
        known.retain(|of, at| match of {
            Troubled::Node { cluster: its, node } if its == cluster => {
                since.insert(node.clone(), *at);
                false
            }
            Troubled::Node { .. } | Troubled::Cloud { .. } | Troubled::Source { .. } => true,
        });
        Self { cluster: cluster.clone(), since }
    }

    /// How long each offline node is offline.
    pub fn spans(&self, now: WallTime) -> BTreeMap<NodeName, Duration> {
        self.since.iter().map(|(node, since)| (node.clone(), now - *since)).collect()
    }

    /// Sets the offline nodes, each with how long it is offline. All others are online. Returns the
    /// records of changes.
    #[must_use]
    pub fn set(&mut self, offline: &BTreeMap<NodeName, Duration>, now: WallTime) -> Vec<Body> {
        let of =
            |node: &NodeName| Troubled::Node { cluster: self.cluster.clone(), node: node.clone() };
        let over = self.since.keys().filter(|node| !offline.contains_key(*node));
        let mut bodies: Vec<Body> =
            over.map(|node| Body::TroubleSince { of: of(node), since: None }).collect();
        self.since.retain(|node, _| offline.contains_key(node));
        for (node, span) in offline {
            if !self.since.contains_key(node) {
                let since = now.before(*span);
                bodies.push(Body::TroubleSince { of: of(node), since: Some(since) });
                self.since.insert(node.clone(), since);
            }
        }
        bodies
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, seconds};
    use drover_model::id::CloudId;

    // Invariant: a change is written, and a repeated report is not.

    #[test]
    fn a_trouble_is_written_when_it_starts_and_when_it_is_over() {
        let cluster = ClusterId::new("c0");
        let cloud = Troubled::Cloud { cloud: CloudId::new("c") };
        let node = Troubled::Node { cluster: cluster.clone(), node: NodeName::new("pve1") };
        let offline = |span: u64| BTreeMap::from([(NodeName::new("pve1"), seconds(span))]);
        let mut known = KnownTroubles::new();
        let mut trouble = Trouble::take_over(cloud.clone(), &mut known);
        let mut nodes = NodeTroubles::take_over(&cluster, &mut known);
        let mut written: Vec<Body> = Vec::new();
        written.extend(trouble.set(Some(at(1).wall)));
        written.extend(trouble.set(Some(at(1).wall)));
        written.extend(nodes.set(&offline(2), at(10).wall));
        written.extend(nodes.set(&offline(12), at(20).wall));
        assert_eq!(nodes.spans(at(20).wall), offline(12));
        written.extend(nodes.set(&BTreeMap::new(), at(30).wall));
        written.extend(trouble.set(None));
        let since = |of: &Troubled, since: Option<u64>| Body::TroubleSince {
            of: of.clone(),
            since: since.map(|second| at(second).wall),
        };
        let expected = [
            since(&cloud, Some(1)),
            since(&node, Some(8)),
            since(&node, None),
            since(&cloud, None),
        ];
        assert_eq!(written, expected);
    }

    #[test]
    fn each_actor_takes_over_what_the_journal_knew_of_its_own_subject() {
        let (cluster, other) = (ClusterId::new("c0"), ClusterId::new("c1"));
        let cloud = Troubled::Cloud { cloud: CloudId::new("c") };
        let on = |cluster: &ClusterId| Troubled::Node {
            cluster: cluster.clone(),
            node: NodeName::new("pve1"),
        };
        let subjects = [cloud.clone(), on(&cluster), on(&other)];
        let mut known: KnownTroubles =
            subjects.into_iter().zip([1, 2, 3].map(|n| at(n).wall)).collect();
        assert_eq!(Trouble::take_over(cloud.clone(), &mut known).since(), Some(at(1).wall));
        assert_eq!(Trouble::take_over(cloud, &mut known).since(), None, "one actor has it");
        let nodes = NodeTroubles::take_over(&cluster, &mut known);
        assert_eq!(nodes.spans(at(7).wall), BTreeMap::from([(NodeName::new("pve1"), seconds(5))]));
        assert_eq!(known.into_keys().collect::<Vec<_>>(), [on(&other)]);
    }
}
