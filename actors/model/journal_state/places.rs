//! What the journal says of nodes, of breakers, and of troubles.

use super::{BreakerEntry, JournalState};
use crate::id::{ClusterId, NodeName, TemplateId};
use crate::record::Troubled;
use crate::scope::Scope;
use crate::time::WallTime;

impl JournalState {
    pub(super) fn drain(&mut self, cluster: &ClusterId, node: &NodeName, drained: bool) {
        let nodes = self.drained.entry(cluster.clone()).or_default();
        if drained {
            nodes.insert(node.clone());
        } else {
            nodes.remove(node);
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
