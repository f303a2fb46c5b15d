//! For tests: a clock that stands, and a disk in memory that fails, or loses its power, at a chosen
//! step.
//!
//! After a power cut, a write that was not synced may be there whole, by half or not at all. Of the
//! renames that were not synced, the first few are there.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drover_model::id::{ClusterId, VmId};
use drover_model::ports::Ambient;
use drover_model::record::Body;
use drover_model::time::Now;
use parking_lot::{Mutex, MutexGuard};
use redb::StorageBackend;

use super::disk::{Disk, Stat};

/// A world in which no time passes.
pub(super) struct Still;

impl Ambient for Still {
    fn now(&self) -> Now {
        Now::default()
    }

    fn draw(&self) -> u64 {
        0
    }
}

/// A record that takes few words.
pub(super) fn burn(vmid: u32) -> Body {
    Body::IdBurned { cluster: ClusterId::new("9f31c0aa52e7d410"), vmid: VmId(vmid) }
}

/// What happens at the chosen step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskFailure {
    /// The power is cut.
    PowerCut,
    /// The disk is full once: half of the data is written.
    Full,
}

#[derive(Debug, Clone, Default)]
pub(super) struct FaultyDisk(Arc<Mutex<DiskState>>);

#[derive(Debug, Default)]
struct DiskState {
    files: BTreeMap<u64, Content>,
    names: BTreeMap<PathBuf, u64>,
    synced_names: BTreeMap<PathBuf, u64>,
    unsynced_names: Vec<(PathBuf, Option<u64>)>,
    made: u64,
    steps: u64,
    failure: Option<(u64, DiskFailure)>,
    powered_off: bool,
    room: Option<u64>,
}

#[derive(Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    synced: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write(at, data) => {
                bytes.resize(bytes.len().max(at + data.len()), 0);
                bytes[*at..at + data.len()].copy_from_slice(data);
            }
            Self::Length(length) => bytes.resize(*length, 0),
        }
    }

    /// What a power cut leaves of the change.
    fn left(&self, dice: u64) -> Option<Self> {
        match (self, dice % 4) {
            (_, 0) => None,
            (Self::Write(at, data), 1) => Some(Self::Write(*at, data[..data.len() / 2].to_vec())),
            (Self::Write(at, data), _) => Some(Self::Write(*at, data.clone())),
            (Self::Length(length), _) => Some(Self::Length(*length)),
        }
    }
}

impl DiskState {
    /// Counts a step; returns whether it is done only by half.
    fn step(&mut self) -> io::Result<bool> {
        if self.powered_off {
            return Err(io::Error::other("the power is off"));
        }
        self.steps += 1;
        match self.failure {
            Some((at, DiskFailure::PowerCut)) if at == self.steps => {
                self.powered_off = true;
                Err(io::Error::other("the power is cut"))
            }
            Some((at, DiskFailure::Full)) => Ok(at == self.steps),
            Some(_) | None => Ok(false),
        }
    }

    /// Counts a step that happens whole or not at all.
    fn whole(&mut self) -> io::Result<()> {
        if self.step()? { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn name(&mut self, path: &Path, file: Option<u64>) {
        match file {
            Some(file) => drop(self.names.insert(path.to_owned(), file)),
            None => drop(self.names.remove(path)),
        }
        self.unsynced_names.push((path.to_owned(), file));
    }

    fn content(&mut self, file: u64) -> io::Result<&mut Content> {
        self.files.get_mut(&file).ok_or_else(|| ErrorKind::NotFound.into())
    }
}

impl FaultyDisk {
    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock()
    }

    /// Sets what happens at a step; the first step is 1.
    pub(super) fn plan(&self, step: u64, failure: DiskFailure) {
        self.state().failure = Some((step, failure));
    }

    /// Leaves this many bytes for new files.
    pub(super) fn set_room(&self, room: Option<u64>) {
        self.state().room = room;
    }

    /// Whether the planned step was reached.
    pub(super) fn was_reached(&self) -> bool {
        let state = self.state();
        state.failure.is_some_and(|(at, _)| state.steps >= at)
    }

    pub(super) fn names(&self) -> Vec<PathBuf> {
        self.state().names.keys().cloned().collect()
    }

    /// Cuts the power if it is on, and turns it on again.
    pub(super) fn restart(&self, seed: u64) {
        let mut state = self.state();
        let mut dice = seed;
        let mut draw = move || {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            dice >> 33
        };
        for content in state.files.values_mut() {
            let mut bytes = std::mem::take(&mut content.synced);
            for change in content.unsynced.drain(..).filter_map(|change| change.left(draw())) {
                change.apply(&mut bytes);
            }
            (content.bytes, content.synced) = (bytes.clone(), bytes);
        }
        let unsynced_names = std::mem::take(&mut state.unsynced_names);
        let kept = usize::try_from(draw()).unwrap_or(0) % (unsynced_names.len() + 1);
        for (path, file) in unsynced_names.into_iter().take(kept) {
            match file {
                Some(file) => drop(state.synced_names.insert(path, file)),
                None => drop(state.synced_names.remove(&path)),
            }
        }
        state.names = state.synced_names.clone();
        (state.powered_off, state.failure) = (false, None);
    }

    fn handle(&self, file: u64) -> Handle {
        Handle { disk: self.clone(), file }
    }
}

impl Disk for FaultyDisk {
    type File = Handle;

    fn stat(&self, path: &Path) -> io::Result<Option<Stat>> {
        let state = self.state();
        Ok(state.names.get(path).and_then(|file| {
            let length = state.files.get(file)?.bytes.len() as u64;
            Some(Stat { length, identity: *file })
        }))
    }

    fn read(&self, path: &Path) -> io::Result<Handle> {
        self.open(path)
    }

    fn open(&self, path: &Path) -> io::Result<Handle> {
        let found = self.state().names.get(path).copied();
        found.map(|file| self.handle(file)).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn create(&self, path: &Path) -> io::Result<Handle> {
        let mut state = self.state();
        state.whole()?;
        state.made += 1;
        let file = state.made;
        state.files.insert(file, Content::default());
        state.name(path, Some(file));
        drop(state);
        Ok(self.handle(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.whole()?;
        let found = state.names.get(from).copied();
        let file = found.ok_or(ErrorKind::NotFound)?;
        state.names.remove(from);
        // One entry for both names, so that a power cut keeps or loses both.
        state.name(to, Some(file));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.whole()?;
        if state.names.contains_key(path) {
            state.name(path, None);
        }
        Ok(())
    }

    fn sync_names(&self, _path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.whole()?;
        state.unsynced_names.clear();
        state.synced_names = state.names.clone();
        Ok(())
    }

    fn room(&self, _path: &Path) -> io::Result<u64> {
        Ok(self.state().room.unwrap_or(u64::MAX))
    }
}

#[derive(Debug)]
pub(super) struct Handle {
    disk: FaultyDisk,
    file: u64,
}

fn index(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

impl StorageBackend for Handle {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state().content(self.file)?.bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        let content = state.content(self.file)?;
        let from = index(offset);
        let found = content.bytes.get(from..from + out.len());
        out.copy_from_slice(found.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.whole()?;
        let content = state.content(self.file)?;
        let change = Change::Length(index(length));
        change.apply(&mut content.bytes);
        content.unsynced.push(change);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.whole()?;
        let content = state.content(self.file)?;
        for change in content.unsynced.drain(..) {
            change.apply(&mut content.synced);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        let half = state.step()?;
        let content = state.content(self.file)?;
        let written = if half { &data[..data.len() / 2] } else { data };
        let change = Change::Write(index(offset), written.to_vec());
        change.apply(&mut content.bytes);
        content.unsynced.push(change);
        if half { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}
