//! What keeps a clone from a node or storage at this moment: orders of operators, doubts and breakers.

use drover_model::id::{ClusterId, NodeName};
use drover_model::scope::Scope;
use drover_model::time::Moment;

use super::Ground;
use crate::board::Board;
use crate::doubts::Doubts;
use crate::placement::Claim;
use crate::sites::Sites;

/// The breakers as the choices of one cluster see them, with the resources of drover's own agents
/// there.
pub struct Standing<'a> {
    pub board: &'a Board,
    /// What holds clones back, where that counts.
    pub doubts: Option<&'a Doubts>,
    /// The nodes, and which of them are cordoned or drained.
    pub sites: &'a Sites,
    pub cluster: &'a ClusterId,
    pub now: Moment,
    /// The resources of agents that have a place or wait for one.
    pub claims: &'a [Claim],
}

impl Ground for Standing<'_> {
    fn node_closed(&self, node: &NodeName) -> Option<String> {
        let ordered = self.sites.closed(self.cluster, node);
        let doubt = || self.doubts.and_then(|all| all.node_closed(self.cluster, node, self.now));
        let breaker =
            || self.board.closed(&Scope::Node(self.cluster.clone(), node.clone()), self.now);
        ordered.or_else(doubt).or_else(breaker)
    }

    fn storage_closed(&self, storage: &str, own: Option<&NodeName>) -> Option<String> {
        let scope = Scope::Storage(self.cluster.clone(), own.cloned(), storage.to_owned());
        self.board.closed(&scope, self.now)
    }

    fn claims(&self) -> &[Claim] {
        self.claims
    }
}
