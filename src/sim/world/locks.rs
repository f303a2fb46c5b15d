//! Locks that calls and tasks wait for: the configuration file of a guest (exclusive or shared),
//! storages, and files of the cluster.
//!
//! They behave like flock: a waiting writer does not keep readers out, and a lock is released when
//! its holder dies. A wait that exceeds its timeout fails with Proxmox's text. The `lock` key in a
//! configuration is not such a lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockMode {
    /// One holder only.
    Exclusive,
    /// Any number of shared holders.
    Shared,
}

/// Which lock, and the texts that Proxmox writes about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockName {
    /// Identifies the lock.
    pub(crate) key: String,
    /// The error after the timeout.
    pub(crate) timeout_error: String,
    /// The line in a task's log while it waits.
    pub(crate) waiting_line: String,
    /// The line after the lock is acquired, if any.
    pub(crate) acquired_line: Option<&'static str>,
}

impl LockName {
    /// The configuration file of a VM on one node.
    pub(crate) fn vm(node: &str, vmid: u32) -> Self {
        let file = format!("/var/lock/qemu-server/lock-{vmid}.conf");
        Self::file(node, &file)
    }

    /// The configuration file of a container on one node.
    pub(crate) fn container(node: &str, vmid: u32) -> Self {
        Self::file(node, &format!("/run/lock/lxc/pve-config-{vmid}.lock"))
    }

    /// A storage: a file lock of one node, or a lock of the cluster if the storage is shared.
    pub(crate) fn storage(node: &str, storage: &str, shared: bool) -> Self {
        if shared {
            Self::cfs(&format!("storage-{storage}"))
        } else {
            Self::file(node, &format!("/var/lock/pve-manager/pve-storage-{storage}"))
        }
    }

    /// A lock in the cluster file system.
    pub(crate) fn cfs(name: &str) -> Self {
        Self {
            key: format!("cfs:{name}"),
            timeout_error: format!("cfs-lock '{name}' error: got lock request timeout"),
            waiting_line: format!("trying to acquire cfs lock '{name}' ..."),
            acquired_line: None,
        }
    }

    fn file(node: &str, file: &str) -> Self {
        Self {
            key: format!("{node}:{file}"),
            timeout_error: format!("can't lock file '{file}' - got timeout"),
            waiting_line: "trying to acquire lock...".into(),
            acquired_line: Some(" OK"),
        }
    }
}

#[derive(Debug, Default)]
struct LockState {
    exclusive: bool,
    shared: u32,
    waiting: u32,
    released: Arc<Notify>,
}

impl LockState {
    fn allows(&self, mode: LockMode) -> bool {
        match mode {
            LockMode::Exclusive => !self.exclusive && self.shared == 0,
            LockMode::Shared => !self.exclusive,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct LockTable {
    entries: Mutex<BTreeMap<String, LockState>>,
}

impl LockTable {
    /// Acquires a lock if it is free.
    pub(crate) fn try_acquire(self: &Arc<Self>, key: &str, mode: LockMode) -> Option<LockGuard> {
        let mut entries = self.entries();
        let entry = entries.entry(key.to_owned()).or_default();
        if !entry.allows(mode) {
            return None;
        }
        match mode {
            LockMode::Exclusive => entry.exclusive = true,
            LockMode::Shared => entry.shared += 1,
        }
        Some(LockGuard { locks: self.clone(), key: key.to_owned(), mode })
    }

    /// Waits for a lock; none after the timeout.
    pub(crate) async fn acquire_within(
        self: &Arc<Self>,
        key: &str,
        mode: LockMode,
        timeout: Duration,
    ) -> Option<LockGuard> {
        let deadline = Instant::now() + timeout;
        let _waiting = WaitCount::increment(self, key);
        loop {
            let released = {
                let mut entries = self.entries();
                entries.entry(key.to_owned()).or_default().released.clone()
            };
            let notified = released.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if let Some(guard) = self.try_acquire(key, mode) {
                return Some(guard);
            }
            if timeout_at(deadline, notified).await.is_err() {
                return self.try_acquire(key, mode);
            }
        }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, LockState>> {
        self.entries.lock()
    }

    fn remove_if_idle(entries: &mut BTreeMap<String, LockState>, key: &str) {
        let idle = entries
            .get(key)
            .is_some_and(|entry| !entry.exclusive && entry.shared == 0 && entry.waiting == 0);
        if idle {
            entries.remove(key);
        }
    }
}

/// Keeps the entry of a lock while something waits for it.
struct WaitCount<'a> {
    locks: &'a Arc<LockTable>,
    key: &'a str,
}

impl<'a> WaitCount<'a> {
    fn increment(locks: &'a Arc<LockTable>, key: &'a str) -> Self {
        locks.entries().entry(key.to_owned()).or_default().waiting += 1;
        Self { locks, key }
    }
}

impl Drop for WaitCount<'_> {
    fn drop(&mut self) {
        let mut entries = self.locks.entries();
        if let Some(entry) = entries.get_mut(self.key) {
            entry.waiting -= 1;
        }
        LockTable::remove_if_idle(&mut entries, self.key);
    }
}

/// A held lock; dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct LockGuard {
    locks: Arc<LockTable>,
    key: String,
    mode: LockMode,
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let mut entries = self.locks.entries();
        if let Some(entry) = entries.get_mut(&self.key) {
            match self.mode {
                LockMode::Exclusive => entry.exclusive = false,
                LockMode::Shared => entry.shared -= 1,
            }
            entry.released.notify_waiters();
        }
        LockTable::remove_if_idle(&mut entries, &self.key);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    const KEY: &str = "pve1:lock-100";

    // Invariant (book: proxmox, section 23, item 2): calls wait for locks, and locks exclude each
    // other as flock does.

    #[tokio::test(start_paused = true)]
    async fn sharers_go_together_and_keep_a_writer_out_until_its_wait_is_over() {
        let locks = Arc::new(LockTable::default());
        let _one = locks.try_acquire(KEY, LockMode::Shared).unwrap();
        let _two = locks.try_acquire(KEY, LockMode::Shared).unwrap();
        let started = Instant::now();
        assert!(
            locks.acquire_within(KEY, LockMode::Exclusive, Duration::from_secs(10)).await.is_none()
        );
        assert_eq!(started.elapsed(), Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_gets_the_lock_at_the_moment_it_is_freed() {
        let locks = Arc::new(LockTable::default());
        let held = locks.try_acquire(KEY, LockMode::Exclusive).unwrap();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            drop(held);
        });
        let started = Instant::now();
        let guard = locks.acquire_within(KEY, LockMode::Exclusive, Duration::from_secs(10)).await;
        assert!(guard.is_some());
        assert_eq!(started.elapsed(), Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_writer_does_not_keep_readers_out() {
        let locks = Arc::new(LockTable::default());
        let _one = locks.try_acquire(KEY, LockMode::Shared).unwrap();
        let waiting = locks.clone();
        tokio::spawn(async move {
            waiting.acquire_within(KEY, LockMode::Exclusive, Duration::from_secs(10)).await;
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(locks.try_acquire(KEY, LockMode::Shared).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn idle_locks_leave_no_entry_behind() {
        let locks = Arc::new(LockTable::default());
        drop(locks.try_acquire(KEY, LockMode::Exclusive));
        locks.acquire_within(KEY, LockMode::Shared, Duration::from_secs(1)).await;
        assert!(locks.entries().is_empty());
    }
}
