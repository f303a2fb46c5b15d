//! What the journal says of nodes, of breakers, and of troubles.

use std::collections::{BTreeMap, BTreeSet};

use super::{BreakerEntry, JournalState};
use crate::id::{ClusterId, NodeName, TemplateId};
use crate::phase::OrderedBy;
use crate::record::Troubled;
use crate::scope::Scope;
use crate::time::WallTime;

/// Puts a node into a set of its cluster, or takes it out; gives whether it was there. No cluster stays with an empty set: an older
/// drover reads a snapshot only where a set that it does not know is left out.
pub(super) fn mark(
    sets: &mut BTreeMap<ClusterId, BTreeSet<NodeName>>,
    cluster: &ClusterId,
    node: &NodeName,
    is_in: bool,
) -> bool {
    let nodes = sets.entry(cluster.clone()).or_default();
    let was_in = match is_in {
        true => !nodes.insert(node.clone()),
        false => nodes.remove(node),
    };
    if nodes.is_empty() {
        sets.remove(cluster);
    }
    was_in
}

impl JournalState {
    /// Somebody keeps a node out, or nobody known.
    pub(super) fn ordered_by(
        &mut self,
        cluster: &ClusterId,
        node: &NodeName,
        by: Option<OrderedBy>,
    ) {
        let nodes = self.ordered.entry(cluster.clone()).or_default();
        match by {
            Some(by) => drop(nodes.insert(node.clone(), by)),
            None => drop(nodes.remove(node)),
        }
        if nodes.is_empty() {
            self.ordered.remove(cluster);
        }
    }

    /// Something is in trouble since then, or is not any more.
    pub(super) fn trouble(&mut self, of: &Troubled, since: Option<WallTime>) {
        match since {
            Some(since) => {
                self.troubled.insert(of.clone(), since);
            }
            None => {
                self.troubled.remove(of);
            }
        }
    }

    /// A breaker moved; none when it is at rest.
    pub(super) fn move_breaker(
        &mut self,
        scope: Option<&Scope>,
        template: &TemplateId,
        entry: Option<BreakerEntry>,
    ) {
        match (scope, entry) {
            (None, Some(entry)) => drop(self.breakers.insert(template.clone(), entry)),
            (None, None) => drop(self.breakers.remove(template)),
            (Some(scope), Some(entry)) => {
                self.places.insert(scope.clone(), (template.clone(), entry));
            }
            (Some(scope), None) => drop(self.places.remove(scope)),
        }
    }
}
