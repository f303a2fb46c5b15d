//! Which cluster a cloud's connection leads to, and what may be believed by that.

use std::sync::Arc;

use drover_model::id::ClusterId;
use drover_model::ports::{IdSight, VmSight};

use super::Cloud;
use crate::calls::Queue;
use crate::sight;

impl Cloud {
    /// Whether an id was found free may be believed: through a connection that may lead to another
    /// cluster than the one before, nothing is ever free.
    pub(super) fn believed(&self, sight: IdSight) -> IdSight {
        let proven = match (&self.before, self.shared.get()) {
            (None, _) => true,
            (Some(before), Some((now, _))) => {
                self.continued.known(before.clone()) == self.continued.known(now.clone())
            }
            (Some(_), None) => false,
        };
        if proven || sight != IdSight::Free { sight } else { IdSight::Unknown }
    }

    /// Whether a guest was found gone may be believed: a host name may lead to another cluster by now,
    /// where its id is free, so that the endpoint says once more which one it is of.
    pub(super) async fn proven(&self, mut sight: VmSight) -> VmSight {
        sight.id = self.believed(sight.id);
        if let (IdSight::Free, Some((known, _))) = (&sight.id, self.shared.get()) {
            let now = match sight::cluster(&self.client).await {
                Ok(now) => Some(self.continued.known(now)),
                Err(error) => {
                    drop(self.client.fault(&error));
                    None
                }
            };
            if now.as_ref() != Some(&self.continued.known(known.clone())) {
                sight.id = IdSight::Unknown;
            }
        }
        sight
    }

    /// Joins the other clouds that were found to lead to the same cluster.
    pub(super) fn join(&self, id: &ClusterId) {
        let mut clusters = self.clusters.lock();
        let cluster = clusters.entry(id.clone()).or_insert_with(|| self.own.clone());
        let share = &self.client.share;
        let mut lists = cluster.lists.lock();
        let lists = lists.entry(self.client.login().to_owned());
        share.join(lists.or_insert_with(|| share.lists().clone()).clone());
        self.client.take_turns(Arc::new(Queue(Arc::clone(&cluster.calls))));
        let _ = self.shared.set((id.clone(), cluster.clone()));
    }
}
