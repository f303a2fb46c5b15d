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

/// What is in trouble, and since when.
#[derive(Debug)]
pub struct Troubles(BTreeMap<Troubled, WallTime>);

impl Troubles {
    /// What the journal knew at a start.
    pub fn restored(known: &BTreeMap<Troubled, WallTime>) -> Self {
        Self(known.clone())
    }

    /// Hands the troubles of these subjects to the actor that sees them.
    pub fn take(&mut self, mine: impl Fn(&Troubled) -> bool) -> Self {
        Self(self.0.extract_if(.., |of, _| mine(of)).collect())
    }

    /// Since when a subject is in trouble. `None`: it works.
    pub fn since(&self, of: &Troubled) -> Option<WallTime> {
        self.0.get(of).copied()
    }

    /// How long each node of a cluster is offline.
    pub fn offline(&self, cluster: &ClusterId, now: WallTime) -> BTreeMap<NodeName, Duration> {
        self.nodes(cluster).map(|(node, since)| (node.clone(), now - since)).collect()
    }

    /// Since when each node of a cluster is offline.
    pub fn offline_since(&self, cluster: &ClusterId) -> BTreeMap<NodeName, WallTime> {
        self.nodes(cluster).map(|(node, since)| (node.clone(), since)).collect()
    }

    fn nodes(&self, of: &ClusterId) -> impl Iterator<Item = (&NodeName, WallTime)> {
        self.0.iter().filter_map(move |(subject, since)| match subject {
            Troubled::Node { cluster, node } => (cluster == of).then_some((node, *since)),
            Troubled::Cloud { .. } | Troubled::Source { .. } => None,
        })
    }

    /// Sets since when a subject is in trouble. `None`: it works. Returns the record of a change.
    #[must_use]
    pub fn set(&mut self, of: Troubled, since: Option<WallTime>) -> Option<Body> {
        let before = match since {
            Some(since) => self.0.insert(of.clone(), since),
            None => self.0.remove(&of),
        };
        (before != since).then_some(Body::TroubleSince { of, since })
    }

    /// Sets the offline nodes of a cluster, each with how long it is offline. All others are online.
    /// Returns the records of changes.
    #[must_use]
    pub fn set_offline(
        &mut self,
        cluster: &ClusterId,
        offline: &BTreeMap<NodeName, Duration>,
        now: WallTime,
    ) -> Vec<Body> {
        let known: BTreeMap<NodeName, WallTime> =
            self.nodes(cluster).map(|(node, since)| (node.clone(), since)).collect();
        let online = known.keys().filter(|node| !offline.contains_key(*node));
        // A known one keeps its time: a span is measured a little differently each time.
        let since =
            |node: &NodeName, span| known.get(node).copied().unwrap_or_else(|| now.before(span));
        let offline = offline.iter().map(|(node, span)| (node, Some(since(node, *span))));
        let all = online.map(|node| (node, None)).chain(offline);
        all.filter_map(|(node, since)| {
            let of = Troubled::Node { cluster: cluster.clone(), node: node.clone() };
            self.set(of, since)
        })
        .collect()
    }

    /// Ends all troubles, and returns the records of that.
    #[must_use]
    pub fn end(&mut self) -> Vec<Body> {
        let ended = std::mem::take(&mut self.0).into_keys();
        ended.map(|of| Body::TroubleSince { of, since: None }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, seconds};
    use drover_model::id::CloudId;

    fn cloud() -> Troubled {
        Troubled::Cloud { cloud: CloudId::new("c") }
    }

    fn node(cluster: &str) -> Troubled {
        Troubled::Node { cluster: ClusterId::new(cluster), node: NodeName::new("pve1") }
    }

    fn since(of: Troubled, second: Option<u64>) -> Body {
        Body::TroubleSince { of, since: second.map(|second| at(second).wall) }
    }

    // Invariant: a change is written, and a repeated report is not.

    #[test]
    fn a_trouble_is_written_when_it_starts_and_when_it_is_over() {
        let cluster = ClusterId::new("c0");
        let offline = |span: u64| BTreeMap::from([(NodeName::new("pve1"), seconds(span))]);
        let mut troubles = Troubles::restored(&BTreeMap::new());
        let mut written: Vec<Body> = Vec::new();
        written.extend(troubles.set(cloud(), Some(at(1).wall)));
        written.extend(troubles.set(cloud(), Some(at(1).wall)));
        written.extend(troubles.set_offline(&cluster, &offline(2), at(10).wall));
        written.extend(troubles.set_offline(&cluster, &offline(13), at(20).wall));
        assert_eq!(troubles.offline(&cluster, at(20).wall), offline(12));
        written.extend(troubles.set_offline(&cluster, &BTreeMap::new(), at(30).wall));
        assert_eq!(troubles.since(&cloud()), Some(at(1).wall));
        written.extend(troubles.set(cloud(), None));
        written.extend(troubles.set(cloud(), None));
        let expected = [
            since(cloud(), Some(1)),
            since(node("c0"), Some(8)),
            since(node("c0"), None),
            since(cloud(), None),
        ];
        assert_eq!(written, expected);
    }

    #[test]
    fn all_troubles_of_one_that_leaves_end_once() {
        let known = [(node("c0"), at(1).wall), (cloud(), at(2).wall)].into();
        let mut troubles = Troubles::restored(&known);
        assert_eq!(troubles.end(), [since(node("c0"), None), since(cloud(), None)]);
        assert_eq!(troubles.end(), []);
    }

    #[test]
    fn each_actor_takes_over_what_the_journal_knew_of_its_own_subject() {
        let subjects = [cloud(), node("c0"), node("c1")];
        let known = subjects.into_iter().zip([1, 2, 3].map(|n| at(n).wall)).collect();
        let mut troubles = Troubles::restored(&known);
        let clouds = |of: &Troubled| *of == cloud();
        assert_eq!(troubles.take(clouds).since(&cloud()), Some(at(1).wall));
        assert_eq!(troubles.take(clouds).since(&cloud()), None, "one actor has it");
        let cluster = ClusterId::new("c0");
        let nodes = troubles
            .take(|of| matches!(of, Troubled::Node { cluster: its, .. } if *its == cluster));
        let offline = BTreeMap::from([(NodeName::new("pve1"), seconds(5))]);
        assert_eq!(nodes.offline(&cluster, at(7).wall), offline);
        assert_eq!(troubles.end(), [since(node("c1"), None)]);
    }
}
