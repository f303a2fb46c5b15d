//! Locks that are waited for: a guest's configuration file (exclusive or shared) and storages.
//!
//! As with flock, a waiting writer does not keep readers out, and a lock goes when its holder
//! dies. The `lock` key inside a configuration is no lock of this kind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// How a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// By one alone.
    Exclusive,
    /// Together with other sharers.
    Shared,
}

/// Which lock, and what is said when it can not be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockName {
    /// Tells it from all others.
    pub key: String,
    /// The error after waiting in vain.
    pub busy: String,
    /// What a task's log says while it waits.
    pub waiting: String,
    /// What it says once the lock is had, if anything.
    pub got: Option<&'static str>,
}

impl LockName {
    /// The configuration file of a guest on one node.
    pub fn guest(node: &str, vmid: u32) -> Self {
        let file = format!("/var/lock/qemu-server/lock-{vmid}.conf");
        Self::file(node, &file)
    }

    /// The configuration file of a container on one node.
    pub fn container(node: &str, vmid: u32) -> Self {
        Self::file(node, &format!("/run/lock/lxc/pve-config-{vmid}.lock"))
    }

    /// A storage: a file lock of one node, or the cluster's when it is shared.
    pub fn storage(node: &str, storage: &str, shared: bool) -> Self {
        if shared {
            Self::cfs(&format!("storage-{storage}"))
        } else {
            Self::file(node, &format!("/var/lock/pve-manager/pve-storage-{storage}"))
        }
    }

    /// A lock in the cluster's file system.
    pub fn cfs(name: &str) -> Self {
        Self {
            key: format!("cfs:{name}"),
            busy: format!("cfs-lock '{name}' error: got lock request timeout"),
            waiting: format!("trying to acquire cfs lock '{name}' ..."),
            got: None,
        }
    }

    fn file(node: &str, file: &str) -> Self {
        Self {
            key: format!("{node}:{file}"),
            busy: format!("can't lock file '{file}' - got timeout"),
            waiting: "trying to acquire lock...".into(),
            got: Some(" OK"),
        }
    }
}

#[derive(Debug, Default)]
struct Entry {
    exclusive: bool,
    shared: u32,
    waiting: u32,
    freed: Arc<Notify>,
}

impl Entry {
    fn admits(&self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => !self.exclusive && self.shared == 0,
            Mode::Shared => !self.exclusive,
        }
    }
}

/// All locks of a world.
#[derive(Debug, Default)]
pub struct Locks {
    entries: Mutex<BTreeMap<String, Entry>>,
}

impl Locks {
    /// Takes a lock if it is free right now.
    pub fn try_take(self: &Arc<Self>, key: &str, mode: Mode) -> Option<Hold> {
        let mut entries = self.entries();
        let entry = entries.entry(key.to_owned()).or_default();
        if !entry.admits(mode) {
            return None;
        }
        match mode {
            Mode::Exclusive => entry.exclusive = true,
            Mode::Shared => entry.shared += 1,
        }
        Some(Hold { locks: self.clone(), key: key.to_owned(), mode })
    }

    /// Waits for a lock; none when the time is over.
    pub async fn wait(self: &Arc<Self>, key: &str, mode: Mode, wait: Duration) -> Option<Hold> {
        let deadline = Instant::now() + wait;
        let _queued = Queued::enter(self, key);
        loop {
            let freed = {
                let mut entries = self.entries();
                entries.entry(key.to_owned()).or_default().freed.clone()
            };
            let notified = freed.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if let Some(hold) = self.try_take(key, mode) {
                return Some(hold);
            }
            if timeout_at(deadline, notified).await.is_err() {
                return self.try_take(key, mode);
            }
        }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.entries.lock()
    }

    fn tidy(entries: &mut BTreeMap<String, Entry>, key: &str) {
        let idle = entries
            .get(key)
            .is_some_and(|entry| !entry.exclusive && entry.shared == 0 && entry.waiting == 0);
        if idle {
            entries.remove(key);
        }
    }
}

/// Keeps an entry alive while somebody waits on it.
struct Queued<'a> {
    locks: &'a Arc<Locks>,
    key: &'a str,
}

impl<'a> Queued<'a> {
    fn enter(locks: &'a Arc<Locks>, key: &'a str) -> Self {
        locks.entries().entry(key.to_owned()).or_default().waiting += 1;
        Self { locks, key }
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let mut entries = self.locks.entries();
        if let Some(entry) = entries.get_mut(self.key) {
            entry.waiting -= 1;
        }
        Locks::tidy(&mut entries, self.key);
    }
}

/// A held lock; dropping it frees it.
#[derive(Debug)]
pub struct Hold {
    locks: Arc<Locks>,
    key: String,
    mode: Mode,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut entries = self.locks.entries();
        if let Some(entry) = entries.get_mut(&self.key) {
            match self.mode {
                Mode::Exclusive => entry.exclusive = false,
                Mode::Shared => entry.shared -= 1,
            }
            entry.freed.notify_waiters();
        }
        Locks::tidy(&mut entries, &self.key);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    const KEY: &str = "pve1:lock-100";

    // Invariant: section 23 item 2, locks are waited for and exclude each other as flock does.

    #[tokio::test(start_paused = true)]
    async fn sharers_go_together_and_keep_a_writer_out_until_its_wait_is_over() {
        let locks = Arc::new(Locks::default());
        let _one = locks.try_take(KEY, Mode::Shared).unwrap();
        let _two = locks.try_take(KEY, Mode::Shared).unwrap();
        let begun = Instant::now();
        assert!(locks.wait(KEY, Mode::Exclusive, Duration::from_secs(10)).await.is_none());
        assert_eq!(begun.elapsed(), Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_gets_the_lock_at_the_moment_it_is_freed() {
        let locks = Arc::new(Locks::default());
        let held = locks.try_take(KEY, Mode::Exclusive).unwrap();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            drop(held);
        });
        let begun = Instant::now();
        let hold = locks.wait(KEY, Mode::Exclusive, Duration::from_secs(10)).await;
        assert!(hold.is_some());
        assert_eq!(begun.elapsed(), Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_writer_does_not_keep_readers_out() {
        let locks = Arc::new(Locks::default());
        let _one = locks.try_take(KEY, Mode::Shared).unwrap();
        let waiting = locks.clone();
        tokio::spawn(async move {
            waiting.wait(KEY, Mode::Exclusive, Duration::from_secs(10)).await;
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(locks.try_take(KEY, Mode::Shared).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_for_locks_that_nobody_holds() {
        let locks = Arc::new(Locks::default());
        drop(locks.try_take(KEY, Mode::Exclusive));
        locks.wait(KEY, Mode::Shared, Duration::from_secs(1)).await;
        assert!(locks.entries().is_empty());
    }
}
