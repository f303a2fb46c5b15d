//! Clusters that an operator has confirmed to be the same under a new fingerprint, such as after a
//! new root certificate.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_model::id::ClusterId;
use parking_lot::Mutex;

/// The former id of each cluster with a new one.
#[derive(Clone, Default)]
pub(super) struct ClusterAliases(Arc<Mutex<BTreeMap<ClusterId, ClusterId>>>);

impl ClusterAliases {
    /// The id by which drover knows a cluster.
    pub(super) fn resolve(&self, cluster: ClusterId) -> ClusterId {
        let all = self.0.lock();
        all.get(&cluster).cloned().unwrap_or(cluster)
    }

    /// Treats the cluster `now` as `former` from here on.
    pub(super) fn add(&self, now: &ClusterId, former: &ClusterId) {
        let mut all = self.0.lock();
        all.insert(now.clone(), former.clone());
    }
}
