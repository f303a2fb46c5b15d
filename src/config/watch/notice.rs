//! The system's events about the directories a configuration is read from: when to look, and which
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

use super::look::FileId;

/// As many open files are remembered; with more, none of them is a configuration being saved.
const WRITERS: usize = 256;

/// What the system tells.
#[derive(Debug)]
pub(super) struct Notices {
    poke: Arc<Notify>,
    writers: Writers,
    /// None when the system offers none, and the poll is all.
    watcher: Option<RecommendedWatcher>,
    places: BTreeMap<PathBuf, FileId>,
}

/// Files that were written to or made, and not closed.
#[derive(Debug, Clone, Default)]
struct Writers(Arc<Mutex<BTreeSet<PathBuf>>>);

impl Notices {
    /// The system's own.
    pub fn of_system() -> Self {
        let mut notices = Self::silent();
        let (poke, writers) = (Arc::clone(&notices.poke), notices.writers.clone());
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // An error may hide an event, so it counts as one.
            if event.as_ref().map_or(true, |event| writers.hear(event)) {
                poke.notify_one();
            }
        });
        match watcher {
            Ok(watcher) => notices.watcher = Some(watcher),
            Err(error) => tracing::warn!(%error, "configuration is only polled"),
        }
        notices
    }

    /// None at all.
    pub fn silent() -> Self {
        Self {
            poke: Arc::default(),
            writers: Writers::default(),
            watcher: None,
            places: BTreeMap::new(),
        }
    }

    /// Tells by hand that something happened.
    #[cfg(test)]
    pub fn poker(&self) -> Arc<Notify> {
        Arc::clone(&self.poke)
    }

    /// Waits until something happened; what happened before is not lost.
    pub async fn told(&self) {
        self.poke.notified().await;
    }

    /// Files that somebody may still be writing.
    pub fn writers(&self) -> Vec<PathBuf> {
        self.writers.all().iter().cloned().collect()
    }

    /// Forgets who writes: what they wrote was waited for long enough.
    pub fn forgive(&self) {
        self.writers.all().clear();
    }

    /// Follows these directories and no others from here on; says whether that is new.
    pub fn follow(&mut self, places: &BTreeMap<PathBuf, FileId>) -> bool {
        if self.places == *places {
            return false;
        }
        let Some(watcher) = &mut self.watcher else { return false };
        let before = std::mem::replace(&mut self.places, places.clone());
        for (path, _) in before.iter().filter(|(path, id)| places.get(*path) != Some(*id)) {
            // One that is gone is not watched any more already.
            let _ = watcher.unwatch(path);
        }
        for (path, _) in places.iter().filter(|(path, id)| before.get(*path) != Some(*id)) {
            if let Err(error) = watcher.watch(path, RecursiveMode::NonRecursive) {
                tracing::warn!(path = %path.display(), %error, "directory is only polled");
            }
        }
        true
    }
}

impl Writers {
    fn all(&self) -> parking_lot::MutexGuard<'_, BTreeSet<PathBuf>> {
        self.0.lock()
    }

    /// Notes who writes; says whether the event may change a file. Reading one, as drover itself
    /// does, may not.
    fn hear(&self, event: &notify::Event) -> bool {
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
        if all.len() > WRITERS {
            all.clear();
        }
        true
    }
}

/// Whether it is a file that its maker has still to close: links have no such moment.
fn is_new(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file() && meta.nlink() == 1)
}
