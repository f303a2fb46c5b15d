//! One snapshot of a configuration: its texts, and the traces by which a later snapshot shows
//! whether anything was written since.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::file;
use crate::managed::{COPIES, ManagedCopy};
use crate::source::{Sources, yaml_in};

/// The largest secret, key or bundle that is read.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// The number of symbolic links that the system follows.
const MAX_LINKS: u32 = 40;

/// A hash of contents.
pub(super) type Digest = [u8; 32];

/// Device and inode of a file.
pub(super) type FileId = (u64, u64);

/// The state of all files at one moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// The texts, or why there are none.
    pub read: Result<Sources, (PathBuf, io::Error)>,
    /// Hash of names and texts, and of texts and modes of the files that they name.
    pub digest: Digest,
    /// Hash of the digest, and of inode and time of change of each file: every write changes it.
    pub stamp: Digest,
    /// Whether one of the files is open for writing.
    pub being_written: bool,
    /// The directories whose entries decide what is read.
    pub places: BTreeMap<PathBuf, FileId>,
}

impl Snapshot {
    /// Reads a configuration and the files that it names; `writers` are files that are still open
    /// for writing.
    pub fn at(
        path: &Path,
        managed_folder: Option<&Path>,
        inputs: &[PathBuf],
        writers: &[PathBuf],
    ) -> Self {
        // Before reading, so that a later change of the path to the files is an event.
        let mut places = places(path);
        if let Some(folder) = managed_folder {
            places.extend(managed_places(folder));
        }
        let mut content = Hash::default();
        let mut traces = Hash::default();
        let mut ids = BTreeSet::new();
        let read = Sources::read(path).and_then(|sources| match managed_folder {
            Some(folder) => sources.with_managed(folder),
            None => Ok(sources),
        });
        match &read {
            Ok(sources) => {
                let managed = sources.managed().into_iter().flat_map(ManagedCopy::all);
                // Known files that are none differ from files that were not looked for.
                content.part(&[u8::from(managed_folder.is_some())]);
                for file in sources.files().iter().chain(managed) {
                    content.part(file.path.as_os_str().as_encoded_bytes());
                    content.part(file.text.as_bytes());
                    ids.extend(file.trace.map(|trace| trace.id));
                    traces.part(format!("{:?}", file.trace).as_bytes());
                }
            }
            Err((path, error)) => {
                content.part(path.as_os_str().as_encoded_bytes());
                content.part(error.to_string().as_bytes());
            }
        }
        for path in inputs {
            content.part(path.as_os_str().as_encoded_bytes());
            match file::read(path, MAX_FILE_BYTES) {
                Ok((bytes, trace)) => {
                    content.part(&trace.mode.to_be_bytes());
                    content.part(&bytes);
                    ids.insert(trace.id);
                    traces.part(format!("{trace:?}").as_bytes());
                }
                Err(error) => content.part(error.to_string().as_bytes()),
            }
        }
        let digest = content.done();
        traces.part(&digest);
        let id_of = |path: &PathBuf| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
        let being_written = writers.iter().filter_map(id_of).any(|id| ids.contains(&id));
        Self { read, digest, stamp: traces.done(), being_written, places }
    }

    /// The snapshot of a failed read.
    pub fn failed(path: &Path, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let read = Err((path.to_owned(), io::Error::other(error)));
        let places = BTreeMap::new();
        Self { read, digest: [0; 32], stamp: [0; 32], being_written: false, places }
    }

    /// A copy of what was read.
    pub fn read(&self) -> Result<Sources, (PathBuf, io::Error)> {
        self.read.as_ref().map(Clone::clone).map_err(|(path, error)| {
            let copy = match error.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(error.kind(), error.to_string()),
            };
            (path.clone(), copy)
        })
    }
}

#[derive(Default)]
struct Hash(Sha256);

impl Hash {
    fn part(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    fn done(self) -> Digest {
        self.0.finalize().into()
    }
}

/// Whether something is missing that existed before, as in half of a change: a file, all text of a
/// file, the end of a file, or the end of its last line.
pub(super) fn is_less(before: Option<&Sources>, now: &Sources) -> bool {
    if now.files().iter().all(|file| file.text.trim().is_empty()) {
        return true;
    }
    let before = before.map(Sources::files).unwrap_or_default();
    before.iter().any(|old| {
        let new = now.files().iter().find(|new| new.path == old.path);
        new.is_none_or(|new| {
            let shorter = new.text.len() < old.text.len() && old.text.starts_with(&new.text);
            shorter || (old.text.ends_with('\n') && !new.text.ends_with('\n'))
        })
    })
}

/// The directories whose entries decide which managed files are read: those of the link to the entry in
/// force, of the entry, and of its copies.
fn managed_places(folder: &Path) -> BTreeMap<PathBuf, FileId> {
    let mut places = places(folder);
    let copies = folder.join(COPIES);
    if let Ok(Some(copy)) = ManagedCopy::read(folder) {
        for file in copy.all() {
            let mut inside = file.path.parent();
            while let Some(at) = inside.filter(|at| at.starts_with(&copies)) {
                enter(at, &mut places);
                inside = at.parent();
            }
        }
    }
    places
}

/// The directories that contain a path or a link on the way to it; for a directory also itself, and
/// the directories of the links in it.
fn places(path: &Path) -> BTreeMap<PathBuf, FileId> {
    let mut places = BTreeMap::new();
    let mut links = MAX_LINKS;
    follow(path, &mut links, &mut places);
    if path.is_dir() {
        enter(path, &mut places);
        for entry in yaml_in(path).unwrap_or_default() {
            if entry.is_symlink() {
                follow(&entry, &mut links, &mut places);
            }
        }
    }
    places
}

/// Adds the directory of every link on the way to a path, and of its target.
fn follow(path: &Path, links: &mut u32, places: &mut BTreeMap<PathBuf, FileId>) {
    let mut at = PathBuf::new();
    let mut rest = path.components();
    while let Some(component) = rest.next() {
        match component {
            Component::ParentDir => {
                at.pop();
                continue;
            }
            Component::CurDir => continue,
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {}
        }
        let next = at.join(component);
        let Ok(target) = fs::read_link(&next) else {
            if rest.as_path() == Path::new("") || !next.exists() {
                enter(&at, places);
                return;
            }
            at = next;
            continue;
        };
        enter(&at, places);
        if *links == 0 {
            return;
        }
        *links -= 1;
        follow(&at.join(target).join(rest.as_path()), links, places);
        return;
    }
}

fn enter(directory: &Path, places: &mut BTreeMap<PathBuf, FileId>) {
    let Ok(real) = fs::canonicalize(directory) else { return };
    let Ok(meta) = fs::metadata(&real) else { return };
    places.insert(real, (meta.dev(), meta.ino()));
}
