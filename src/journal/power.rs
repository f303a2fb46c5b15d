//! A disk in memory that fails, or whose power is cut, at a chosen step: for tests.
//!
//! What was not synced when the power went may be there or not, write by write and by halves; of
//! names that were not synced the first few are there.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use redb::StorageBackend;

use super::disk::{Disk, Stat};

/// What happens at the chosen step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// The power goes.
    Cut,
    /// There is no room, once; half of what was to be written is.
    Full,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Power(Arc<Mutex<World>>);

#[derive(Debug, Default)]
struct World {
    files: BTreeMap<u64, Content>,
    names: BTreeMap<PathBuf, u64>,
    synced_names: BTreeMap<PathBuf, u64>,
    renamings: Vec<(PathBuf, Option<u64>)>,
    made: u64,
    steps: u64,
    fate: Option<(u64, Fate)>,
    off: bool,
    room: Option<u64>,
}

#[derive(Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    synced: Vec<u8>,
    since: Vec<Change>,
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

    /// What the power left of it.
    fn left(&self, dice: u64) -> Option<Self> {
        match (self, dice % 4) {
            (_, 0) => None,
            (Self::Write(at, data), 1) => Some(Self::Write(*at, data[..data.len() / 2].to_vec())),
            (Self::Write(at, data), _) => Some(Self::Write(*at, data.clone())),
            (Self::Length(length), _) => Some(Self::Length(*length)),
        }
    }
}

impl World {
    /// Counts a step; whether only half of it is done.
    fn step(&mut self) -> io::Result<bool> {
        if self.off {
            return Err(io::Error::other("the power is off"));
        }
        self.steps += 1;
        match self.fate {
            Some((at, Fate::Cut)) if at == self.steps => {
                self.off = true;
                Err(io::Error::other("the power is cut"))
            }
            Some((at, Fate::Full)) => Ok(at == self.steps),
            Some(_) | None => Ok(false),
        }
    }

    /// Counts a step that is done or not.
    fn whole(&mut self) -> io::Result<()> {
        if self.step()? { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn name(&mut self, path: &Path, file: Option<u64>) {
        match file {
            Some(file) => drop(self.names.insert(path.to_owned(), file)),
            None => drop(self.names.remove(path)),
        }
        self.renamings.push((path.to_owned(), file));
    }

    fn content(&mut self, file: u64) -> io::Result<&mut Content> {
        self.files.get_mut(&file).ok_or_else(|| ErrorKind::NotFound.into())
    }
}

impl Power {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock()
    }

    /// Plans what happens at a step, the first being 1.
    pub(super) fn plan(&self, step: u64, fate: Fate) {
        self.world().fate = Some((step, fate));
    }

    /// Leaves so many bytes for new files.
    pub(super) fn leave(&self, room: Option<u64>) {
        self.world().room = room;
    }

    /// Whether the planned step was reached.
    pub(super) fn is_over(&self) -> bool {
        let world = self.world();
        world.fate.is_some_and(|(at, _)| world.steps >= at)
    }

    pub(super) fn names(&self) -> Vec<PathBuf> {
        self.world().names.keys().cloned().collect()
    }

    /// Cuts the power where it is on, and turns it on again.
    pub(super) fn restart(&self, seed: u64) {
        let mut world = self.world();
        let mut dice = seed;
        let mut draw = move || {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            dice >> 33
        };
        for content in world.files.values_mut() {
            let mut bytes = std::mem::take(&mut content.synced);
            for change in content.since.drain(..).filter_map(|change| change.left(draw())) {
                change.apply(&mut bytes);
            }
            (content.bytes, content.synced) = (bytes.clone(), bytes);
        }
        let renamings = std::mem::take(&mut world.renamings);
        let kept = usize::try_from(draw()).unwrap_or(0) % (renamings.len() + 1);
        for (path, file) in renamings.into_iter().take(kept) {
            match file {
                Some(file) => drop(world.synced_names.insert(path, file)),
                None => drop(world.synced_names.remove(&path)),
            }
        }
        world.names = world.synced_names.clone();
        (world.off, world.fate) = (false, None);
    }

    fn handle(&self, file: u64) -> Handle {
        Handle { power: self.clone(), file }
    }
}

impl Disk for Power {
    type File = Handle;

    fn stat(&self, path: &Path) -> io::Result<Option<Stat>> {
        let world = self.world();
        Ok(world.names.get(path).and_then(|file| {
            let length = world.files.get(file)?.bytes.len() as u64;
            Some(Stat { length, identity: *file })
        }))
    }

    fn read(&self, path: &Path) -> io::Result<Handle> {
        self.open(path)
    }

    fn open(&self, path: &Path) -> io::Result<Handle> {
        let found = self.world().names.get(path).copied();
        found.map(|file| self.handle(file)).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn create(&self, path: &Path) -> io::Result<Handle> {
        let mut world = self.world();
        world.whole()?;
        world.made += 1;
        let file = world.made;
        world.files.insert(file, Content::default());
        world.name(path, Some(file));
        drop(world);
        Ok(self.handle(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.whole()?;
        let found = world.names.get(from).copied();
        let file = found.ok_or(ErrorKind::NotFound)?;
        world.names.remove(from);
        // Both at once, so that a cut leaves both or none.
        world.name(to, Some(file));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.whole()?;
        if world.names.contains_key(path) {
            world.name(path, None);
        }
        Ok(())
    }

    fn sync_names(&self, _path: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.whole()?;
        world.renamings.clear();
        world.synced_names = world.names.clone();
        Ok(())
    }

    fn room(&self, _path: &Path) -> io::Result<u64> {
        Ok(self.world().room.unwrap_or(u64::MAX))
    }
}

/// An open file.
#[derive(Debug)]
pub(super) struct Handle {
    power: Power,
    file: u64,
}

fn index(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

impl StorageBackend for Handle {
    fn len(&self) -> io::Result<u64> {
        Ok(self.power.world().content(self.file)?.bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut world = self.power.world();
        let content = world.content(self.file)?;
        let from = index(offset);
        let found = content.bytes.get(from..from + out.len());
        out.copy_from_slice(found.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut world = self.power.world();
        world.whole()?;
        let content = world.content(self.file)?;
        let change = Change::Length(index(length));
        change.apply(&mut content.bytes);
        content.since.push(change);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut world = self.power.world();
        world.whole()?;
        let content = world.content(self.file)?;
        for change in content.since.drain(..) {
            change.apply(&mut content.synced);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut world = self.power.world();
        let half = world.step()?;
        let content = world.content(self.file)?;
        let written = if half { &data[..data.len() / 2] } else { data };
        let change = Change::Write(index(offset), written.to_vec());
        change.apply(&mut content.bytes);
        content.since.push(change);
        if half { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}
