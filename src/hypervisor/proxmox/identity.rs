//! Which cluster a cloud's connection leads to, and which observations that makes trustworthy.

use std::sync::Arc;

use drover_model::id::ClusterId;
use drover_model::ports::{IdStatus, VmObservation};

use super::Cloud;
use crate::calls::ClusterCallLimiter;
use crate::observe;

impl Cloud {
    /// A free VMID is trusted only from the cluster that the cloud led to before; otherwise it
    /// becomes "unknown".
    pub(super) fn trusted_id_status(&self, observed: IdStatus) -> IdStatus {
        let proven = match (&self.previous, self.shared.get()) {
            (None, _) => true,
            (Some(before), Some((now, _))) => {
                self.aliases.resolve(before.clone()) == self.aliases.resolve(now.clone())
            }
            (Some(_), None) => false,
        };
        if proven || observed != IdStatus::Free { observed } else { IdStatus::Unknown }
    }

    /// Checks an absent guest once more: a host name may lead to another cluster by now, where the
    /// VMID is free. So the endpoint must identify its cluster again.
    pub(super) async fn checked_cluster(&self, mut observed: VmObservation) -> VmObservation {
        observed.id = self.trusted_id_status(observed.id);
        if let (IdStatus::Free, Some((known, _))) = (&observed.id, self.shared.get()) {
            let now = match observe::cluster(&self.client).await {
                Ok(now) => Some(self.aliases.resolve(now)),
                Err(error) => {
                    drop(self.client.fault(&error));
                    None
                }
            };
            if now.as_ref() != Some(&self.aliases.resolve(known.clone())) {
                observed.id = IdStatus::Unknown;
            }
        }
        observed
    }

    /// Joins the other clouds that lead to the same cluster.
    pub(super) fn join(&self, id: &ClusterId) {
        let mut clusters = self.clusters.lock();
        let cluster = clusters.entry(id.clone()).or_insert_with(|| self.own.clone());
        let share = &self.client.share;
        let mut lists = cluster.lists.lock();
        let lists = lists.entry(self.client.login().to_owned());
        share.join(lists.or_insert_with(|| share.lists().clone()).clone());
        self.client.set_limiter(Arc::new(ClusterCallLimiter(Arc::clone(&cluster.calls))));
        let _ = self.shared.set((id.clone(), cluster.clone()));
    }
}
