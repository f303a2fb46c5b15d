//! How many guests of a cluster are destroyed at once on each storage.
//!
//! Proxmox frees a volume under its storage's lock. It waits 10 s for that, and leaves the volume
//! behind when it waited in vain (behaviour sections 6 and 16), so no more may stand in that line
//! than get through it in time. More would not be destroyed sooner: one lock serves them all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_actors::id::{NodeName, VmId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::client::Client;

/// Guests destroyed at once under one lock: with two volumes each and a second for each volume the
/// last of them waits for 8 s, and with fewer the lock would be idle while tasks begin and end.
const AT_ONCE: usize = 4;

/// How long a place is held before its guest counts as forgotten.
const LOST: Duration = Duration::from_secs(300);

/// How long it is believed which storages nodes share.
const BELIEVED: Duration = Duration::from_secs(600);

/// The lines before the storages of one cluster.
#[derive(Default)]
pub struct Gate {
    lines: Mutex<Lines>,
}

#[derive(Default)]
struct Lines {
    /// Storages of guests that were read and not destroyed yet.
    storages: BTreeMap<VmId, BTreeSet<String>>,
    /// Storages that each node has for itself, and when that was read.
    local: Option<(BTreeSet<String>, Instant)>,
    locks: BTreeMap<String, Arc<Semaphore>>,
    held: BTreeMap<VmId, (Vec<OwnedSemaphorePermit>, Instant)>,
}

impl Gate {
    /// Notes which volumes a guest has.
    pub fn note(&self, vmid: VmId, volumes: &[String]) {
        let storages = volumes.iter().filter_map(|volume| volume.split_once(':'));
        let storages = storages.map(|(storage, _)| storage.to_owned()).collect();
        self.lines().storages.insert(vmid, storages);
    }

    /// Waits until a guest may be destroyed; it holds its places until [`Gate::leave`].
    pub async fn enter(&self, client: &Client, node: &NodeName, vmid: VmId) {
        self.leave(vmid);
        let Some(storages) = self.lines().storages.remove(&vmid) else { return };
        self.learn(client).await;
        let mut places = Vec::new();
        // All enter in the same order, so that no two wait for each other.
        for lock in self.locks(node, storages) {
            places.extend(self.place(lock).await);
        }
        self.lines().held.insert(vmid, (places, Instant::now()));
    }

    /// Waits for a place, however long the line is; those of forgotten guests become free.
    async fn place(&self, lock: Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
        let place = lock.acquire_owned();
        tokio::pin!(place);
        loop {
            match tokio::time::timeout(LOST, &mut place).await {
                Ok(place) => return place.ok(),
                Err(_) => self.lines().held.retain(|_, (_, since)| since.elapsed() < LOST),
            }
        }
    }

    /// A guest is destroyed, or will not be now.
    pub fn leave(&self, vmid: VmId) {
        self.lines().held.remove(&vmid);
    }

    /// The same as soon as what is given is dropped.
    pub fn leaving(&self, vmid: VmId) -> Leaving<'_> {
        Leaving { gate: self, vmid }
    }

    /// Reads which storages nodes share: their locks are the whole cluster's.
    async fn learn(&self, client: &Client) {
        let known = self.lines().local.as_ref().map(|(_, read)| *read);
        if known.is_some_and(|read| read.elapsed() < BELIEVED) {
            return;
        }
        let rows = client.storages_everywhere().await.unwrap_or_default();
        let local = rows.into_iter().filter(|row| !row.shared).filter_map(|row| row.storage);
        self.lines().local = Some((local.collect(), Instant::now()));
    }

    fn locks(&self, node: &NodeName, storages: BTreeSet<String>) -> Vec<Arc<Semaphore>> {
        let mut lines = self.lines();
        let Lines { local, locks, .. } = &mut *lines;
        let local = local.as_ref().map(|(names, _)| names);
        let line = |storage: String| {
            let own = local.is_some_and(|names| names.contains(&storage));
            let name = if own { format!("{node}:{storage}") } else { storage };
            locks.entry(name).or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE))).clone()
        };
        storages.into_iter().map(line).collect()
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A guest that leaves when this is dropped.
pub struct Leaving<'a> {
    gate: &'a Gate,
    vmid: VmId,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.gate.leave(self.vmid);
    }
}

#[cfg(test)]
mod tests;
