//! Clusters that are the same under another fingerprint, as an operator has confirmed.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_model::id::ClusterId;
use parking_lot::Mutex;

/// Clusters that go on under another fingerprint: the fingerprint of now, and the former one.
#[derive(Clone, Default)]
pub(super) struct Continued(Arc<Mutex<BTreeMap<ClusterId, ClusterId>>>);

impl Continued {
    /// The id by which a cluster is known.
    pub(super) fn known(&self, cluster: ClusterId) -> ClusterId {
        let all = self.0.lock();
        all.get(&cluster).cloned().unwrap_or(cluster)
    }

    /// Who leads to `now` leads to `former` from here on.
    pub(super) fn add(&self, now: &ClusterId, former: &ClusterId) {
        let mut all = self.0.lock();
        all.insert(now.clone(), former.clone());
    }
}
