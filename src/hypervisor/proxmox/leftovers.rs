//! What is left of a destroyed guest: disc images and volumes of its id.

use std::collections::BTreeSet;
use std::time::Duration;

use drover_model::ports::{IdStatus, VmRef};

use super::Cloud;
use crate::client::{Failure, task};
use crate::observe;

/// How long drover waits for the removal of one volume.
const VOLUME_REMOVAL_LIMIT: Duration = Duration::from_secs(60);

impl Cloud {
    /// Removes drover's disc images and leftover volumes of a guest; returns the volumes that still
    /// carry its id.
    pub(super) async fn leftovers(
        &self,
        vm: &VmRef,
        ours: &[String],
        only: Option<&BTreeSet<String>>,
    ) -> Result<Vec<String>, Failure> {
        let mut left = self.remove_images(vm, ours).await?;
        left.extend(self.volumes_left(vm, ours, only).await?);
        Ok(left)
    }

    async fn volumes_left(
        &self,
        vm: &VmRef,
        ours: &[String],
        only: Option<&BTreeSet<String>>,
    ) -> Result<Vec<String>, Failure> {
        let found = observe::leftovers(&self.client, vm, only).await?;
        let is_ours = |volume: &&String| ours.iter().any(|one| is_same_volume(one, volume));
        let mine: Vec<&String> = found.iter().filter(is_ours).collect();
        // A new guest with the same id would have volumes of these very names.
        if mine.is_empty() || observe::id_taken(&self.client, vm.vmid).await? != IdStatus::Free {
            return Ok(found);
        }
        for volume in mine {
            match self.client.free_volume(vm.node.as_str(), volume).await {
                Ok(upid) => {
                    let end = self.await_task(&task(upid), VOLUME_REMOVAL_LIMIT).await;
                    tracing::info!(vmid = vm.vmid.0, volume, end = ?end, "tried to remove leftover volume");
                }
                Err(error) => {
                    let fault = self.client.fault(&error);
                    tracing::warn!(vmid = vm.vmid.0, volume, error = %fault, "leftover volume stays");
                }
            }
        }
        observe::leftovers(&self.client, vm, only).await
    }
}

/// Whether a name means this volume: the name of a linked clone may start with its base's. A name
/// without a storage means the memory of a snapshot, on any storage and in any format.
fn is_same_volume(one: &str, other: &str) -> bool {
    if !one.contains(':') {
        let name = other.rsplit([':', '/']).next().unwrap_or_default();
        let name = name.split_once('.').map_or(name, |(name, _)| name);
        return name == one;
    }
    let parts = |volume: &str| {
        let (storage, path) = volume.split_once(':')?;
        Some((storage.to_owned(), path.rsplit('/').next()?.to_owned()))
    };
    parts(one).is_some_and(|one| parts(other) == Some(one))
}
