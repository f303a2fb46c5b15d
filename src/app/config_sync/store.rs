//! The applied commits in the state directory (`drover_config::managed` has their form): written
//! aside, made durable, and switched to by one renaming.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use drover_config::managed::{AppliedCommit, CONFIG_SYNC, COPIES, IN_FORCE, RECORD, TREE, record};

/// The folder of all entries.
const APPLIED: &str = "applied";
/// Where an entry is written before it has a name.
const DRAFT: &str = "draft";
/// The new link, before it takes the place of the old one.
const NEW_LINK: &str = "in-force.new";
/// The file of an entry that says that the configuration stays there. It is in the entry, so that it
/// counts from the moment that the entry does.
const PINNED: &str = "pinned";
const PINNED_TEXT: &[u8] = b"drover sync returns to the branch\n";
/// Commits that are kept, each with its newest entry.
const KEPT: usize = 32;

/// Who reads git. Each lane has scratch folders of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// Syncs and returns.
    Syncs,
    /// Tests of the connection, and plans of the branch.
    Looks,
    /// Plans of files that callers give.
    Files,
}

impl Lane {
    /// How its folders end.
    fn ending(self) -> &'static str {
        match self {
            Self::Syncs => "",
            Self::Looks => "-looks",
            Self::Files => "-files",
        }
    }
}

/// The applied commits, and the scratch folders of a lane.
#[derive(Debug, Clone)]
pub(super) struct Store {
    folder: PathBuf,
    lane: Lane,
}

/// An entry that is written and does not count yet.
#[derive(Debug)]
pub(super) struct Draft {
    folder: PathBuf,
}

impl Drop for Draft {
    /// What was refused may hold a secret that somebody committed.
    fn drop(&mut self) {
        // A draft that was kept has another name by now; the next one removes what is left.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Draft {
    /// Where it is, for a check.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a file, as git has it and as a copy to edit. Its path was checked by `drover_git`.
    pub(super) fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        for place in [TREE, COPIES] {
            let path = self.folder.join(place).join(name);
            if let Some(parent) = path.parent() {
                folder(parent)?;
            }
            write(&path, bytes)?;
        }
        Ok(())
    }

    /// Writes which files are the configuration, before more is known.
    pub(super) fn describe_files(&self, configuration: Vec<String>) -> io::Result<()> {
        self.describe(&AppliedCommit::of_files(configuration))
    }

    /// Lets the configuration stay at it until somebody asks for a sync.
    pub(super) fn pin(&self) -> io::Result<()> {
        write(&self.folder.join(PINNED), PINNED_TEXT)
    }

    /// Writes what it is.
    pub(super) fn describe(&self, of: &AppliedCommit) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(of).map_err(io::Error::other)?;
        write(&self.folder.join(RECORD), &text)
    }
}

impl Store {
    pub(super) fn at(state: &Path, lane: Lane) -> Self {
        Self { folder: state.join(CONFIG_SYNC), lane }
    }

    /// The folder for git.
    pub(super) fn git(&self) -> PathBuf {
        self.folder.join(format!("git{}", self.lane.ending()))
    }

    /// The entry in force, by its name; none before the first.
    pub(super) fn in_force(&self) -> Option<String> {
        let target = fs::read_link(self.folder.join(IN_FORCE)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// Whether the copies in force differ from what git has.
    pub(super) fn is_edited(&self) -> bool {
        let folder = self.folder.join(IN_FORCE);
        let Ok(of) = record(&folder.join(RECORD)) else { return false };
        of.configuration.iter().chain(&of.named).any(|name| {
            let read = |place: &str| fs::read(folder.join(place).join(name)).ok();
            read(COPIES) != read(TREE)
        })
    }

    /// The record of the entry in force; none before the first.
    pub(super) fn applied(&self) -> Option<AppliedCommit> {
        self.in_force().and_then(|entry| self.record(&entry).ok())
    }

    /// The record of an entry.
    pub(super) fn record(&self, entry: &str) -> io::Result<AppliedCommit> {
        record(&self.folder.join(APPLIED).join(entry).join(RECORD))
    }

    /// All entries that can be read with their names, the newest first.
    pub(super) fn history(&self) -> Vec<(String, AppliedCommit)> {
        let names = self.names().into_iter().rev();
        names.filter_map(|name| Some((name.clone(), self.record(&name).ok()?))).collect()
    }

    /// The names of all entries, the oldest first.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.join(APPLIED)).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<(u64, String)> =
            names.filter_map(|name| Some((number(&name)?, name))).collect();
        names.sort();
        names.into_iter().map(|(_, name)| name).collect()
    }

    /// An empty draft; what an earlier one left is removed.
    pub(super) fn draft(&self) -> io::Result<Draft> {
        folder(&self.folder)?;
        let draft = self.folder.join(format!("{DRAFT}{}", self.lane.ending()));
        match fs::remove_dir_all(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        folder(&draft)?;
        Ok(Draft { folder: draft })
    }

    /// A draft with the files of an entry, as git had them.
    pub(super) fn again(&self, entry: &str) -> io::Result<(Draft, AppliedCommit)> {
        let of = self.record(entry)?;
        let draft = self.draft()?;
        let tree = self.folder.join(APPLIED).join(entry).join(TREE);
        for name in of.configuration.iter().chain(&of.named) {
            draft.put(name, &fs::read(tree.join(name))?)?;
        }
        draft.describe(&of)?;
        Ok((draft, of))
    }

    /// Makes an entry of a draft; it does not count before [`Store::switch`].
    pub(super) fn keep(&self, draft: Draft, of: &AppliedCommit) -> io::Result<String> {
        draft.describe(of)?;
        let last = self.names().last().and_then(|name| number(name)).unwrap_or(0);
        let name = format!("{:04}-{}", last + 1, of.short());
        let applied = self.folder.join(APPLIED);
        folder(&applied)?;
        sync_tree(&draft.folder)?;
        fs::rename(&draft.folder, applied.join(&name))?;
        sync(&applied)?;
        Ok(name)
    }

    /// Makes an entry the one in force, or none.
    pub(super) fn switch(&self, entry: Option<&str>) -> io::Result<()> {
        let link = self.folder.join(IN_FORCE);
        match entry {
            Some(entry) => {
                let new = self.folder.join(NEW_LINK);
                match fs::remove_file(&new) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    Ok(()) | Err(_) => {}
                }
                symlink(Path::new(APPLIED).join(entry), &new)?;
                fs::rename(&new, &link)?;
            }
            None => fs::remove_file(&link)?,
        }
        sync(&self.folder)
    }

    /// Removes an entry that was refused.
    pub(super) fn remove(&self, entry: &str) {
        // What is left is an entry that nobody switches to.
        let _ = fs::remove_dir_all(self.folder.join(APPLIED).join(entry));
    }

    /// Removes older entries of the same commit, and the oldest commits; never the entry in force, nor
    /// one that cannot be read.
    pub(super) fn prune(&self) {
        let (mut commits, in_force) = (BTreeSet::new(), self.in_force());
        for (name, of) in self.history() {
            let keeps = commits.insert(of.commit) && commits.len() <= KEPT;
            if !keeps && in_force.as_ref() != Some(&name) {
                self.remove(&name);
            }
        }
    }

    /// Whether the configuration stays where it is until somebody asks for a sync.
    pub(super) fn is_pinned(&self) -> bool {
        self.folder.join(IN_FORCE).join(PINNED).exists()
    }

    /// Lets the configuration stay where it is until somebody asks for a sync.
    pub(super) fn pin(&self) -> io::Result<()> {
        let entry = self.folder.join(IN_FORCE);
        write(&entry.join(PINNED), PINNED_TEXT)?;
        sync(&entry)
    }

    /// Lets the schedule apply what the branch has again.
    pub(super) fn unpin(&self) -> io::Result<()> {
        if !self.is_pinned() {
            return Ok(());
        }
        let entry = self.folder.join(IN_FORCE);
        fs::remove_file(entry.join(PINNED))?;
        sync(&entry)
    }
}

/// The number in an entry's name.
fn number(name: &str) -> Option<u64> {
    name.split_once('-')?.0.parse().ok()
}

fn folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Makes the names in a folder durable, and those in the folders in it.
fn sync_tree(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_tree(&entry.path())?;
        }
    }
    sync(folder)
}
