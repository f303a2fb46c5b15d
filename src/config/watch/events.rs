//! The system's events about the directories of a configuration: when to take a snapshot, and which
//! files are still open for writing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::event::{AccessKind, AccessMode, CreateKind, EventKind, ModifyKind, RenameMode};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::snapshot::FileId;

/// The most open files remembered; with more, none of them is a configuration.
const MAX_WRITERS: usize = 256;

/// The watcher of the system, and what it reported.
#[derive(Debug)]
pub(super) struct Events {
    poke: Arc<Notify>,
    writers: Writers,
    /// None where the system has no events; then only the poll works.
    watcher: Option<RecommendedWatcher>,
    places: BTreeMap<PathBuf, FileId>,
}

/// Files that were created or written to, and not closed.
#[derive(Debug, Clone, Default)]
struct Writers(Arc<Mutex<BTreeSet<PathBuf>>>);

impl Events {
    /// Events of the system.
    pub fn of_system() -> Self {
        let mut events = Self::silent();
        let (poke, writers) = (Arc::clone(&events.poke), events.writers.clone());
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // An error may hide an event, so it counts as one.
            if event.as_ref().map_or(true, |event| writers.note(event)) {
                poke.notify_one();
            }
        });
        match watcher {
            Ok(watcher) => events.watcher = Some(watcher),
            Err(error) => {
                tracing::warn!(%error, "no file events: the configuration is only polled")
            }
        }
        events
    }

    /// Without events of the system; only the poll works then.
    pub fn silent() -> Self {
        Self {
            poke: Arc::default(),
            writers: Writers::default(),
            watcher: None,
            places: BTreeMap::new(),
        }
    }

    /// Reports an event by hand.
    #[cfg(test)]
    pub fn poker(&self) -> Arc<Notify> {
        Arc::clone(&self.poke)
    }

    /// Waits for the next event; an earlier one is not lost.
    pub async fn next(&self) {
        self.poke.notified().await;
    }

    /// Files that may still be open for writing.
    pub fn writers(&self) -> Vec<PathBuf> {
        self.writers.all().iter().cloned().collect()
    }

    /// Forgets the open files, after their changes were taken.
    pub fn forget_writers(&self) {
        self.writers.all().clear();
    }

    /// Watches these directories and no others; returns whether that is a change.
    pub fn follow(&mut self, places: &BTreeMap<PathBuf, FileId>) -> bool {
        if self.places == *places {
            return false;
        }
        let Some(watcher) = &mut self.watcher else { return false };
        let before = std::mem::replace(&mut self.places, places.clone());
        for (path, _) in before.iter().filter(|(path, id)| places.get(*path) != Some(*id)) {
            // A directory that is gone is not watched any more.
            let _ = watcher.unwatch(path);
        }
        for (path, _) in places.iter().filter(|(path, id)| before.get(*path) != Some(*id)) {
            if let Err(error) = watcher.watch(path, RecursiveMode::NonRecursive) {
                let path = path.display();
                tracing::warn!(%path, %error, "no file events: the directory is only polled");
            }
        }
        true
    }
}

impl Writers {
    fn all(&self) -> parking_lot::MutexGuard<'_, BTreeSet<PathBuf>> {
        self.0.lock()
    }

    /// Notes open files; returns whether the event may change a file. Reading, as drover does, does
    /// not.
    fn note(&self, event: &notify::Event) -> bool {
        let mut all = self.all();
        match &event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) | EventKind::Remove(_) => {
                all.retain(|path| !event.paths.contains(path));
            }
            EventKind::Modify(ModifyKind::Name(RenameMode::From | RenameMode::To)) => {
                all.retain(|path| !event.paths.contains(path));
            }
            EventKind::Create(CreateKind::File) => {
                all.extend(event.paths.iter().filter(|path| is_new(path)).cloned());
            }
            EventKind::Modify(ModifyKind::Data(_)) => all.extend(event.paths.iter().cloned()),
            EventKind::Access(_) => return false,
            EventKind::Any | EventKind::Create(_) | EventKind::Modify(_) | EventKind::Other => {}
        }
        if all.len() > MAX_WRITERS {
            all.clear();
        }
        true
    }
}

/// Whether a created file will be closed after writing, which is not so for links.
fn is_new(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file() && meta.nlink() == 1)
}
