//! The files that git manages, as drover keeps them in its state directory.
//!
//! ```text
//! <state directory>/config-sync/
//!   in-force -> applied/0007-1a2b3c4d5e6f     the one that counts; replaced by renaming
//!   applied/0007-1a2b3c4d5e6f/commit.json     an AppliedCommit
//!                             tree/…          the files as git has them
//!                             files/…         copies that an operator may edit
//! ```
//!
//! The copies count where `service.configSync.allowManualChanges` is true; a copy that is gone counts
//! as unchanged. Nobody but drover writes the rest. An entry that cannot be read is a fault and not an
//! empty configuration: its clouds must not leave because of a damaged file.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::file;
use super::source::{MAX_BYTES, SourceFile, read_file};

/// The folder in the state directory.
pub const CONFIG_SYNC: &str = "config-sync";
/// The link to the entry in force.
pub const IN_FORCE: &str = "in-force";
/// The record of an entry.
pub const RECORD: &str = "commit.json";
/// The files of an entry as git has them.
pub const TREE: &str = "tree";
/// The copies that an operator may edit.
pub const COPIES: &str = "files";
/// How people are shown the name of a file that git manages.
pub const OF_GIT: &str = "git:";
/// The largest record, in bytes.
const MAX_RECORD_BYTES: u64 = 64 * 1024;
/// The form of a record that this release writes.
pub const FORMAT: u32 = 1;

/// A commit whose configuration was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AppliedCommit {
    pub format: u32,
    /// The commit's id, in full.
    pub commit: String,
    /// When it was committed (RFC 3339).
    pub committed_at: String,
    pub author: String,
    /// The first line of its message.
    pub subject: String,
    pub repository: String,
    pub branch: String,
    /// The path in the repository.
    pub path: String,
    /// When it was applied (RFC 3339).
    pub applied_at: String,
    /// The files that are the configuration, relative to the tree.
    pub configuration: Vec<String>,
    /// The files that it names.
    pub named: Vec<String>,
}

impl AppliedCommit {
    /// A record of which only the files are known yet that are the configuration.
    pub fn of_files(configuration: Vec<String>) -> Self {
        let [commit, committed_at, author, subject] = [const { String::new() }; 4];
        let [repository, branch, path, applied_at] = [const { String::new() }; 4];
        Self {
            format: FORMAT,
            commit,
            committed_at,
            author,
            subject,
            repository,
            branch,
            path,
            applied_at,
            configuration,
            named: Vec::new(),
        }
    }

    /// The first 12 digits of the commit's id.
    pub fn short(&self) -> &str {
        self.commit.get(..12).unwrap_or(&self.commit)
    }
}

/// The files of one entry.
#[derive(Debug, Clone)]
pub struct ManagedCopy {
    pub record: AppliedCommit,
    tree: Vec<SourceFile>,
    copies: Vec<SourceFile>,
    /// Copies that cannot be read, and why.
    unread: Vec<(PathBuf, String)>,
}

impl ManagedCopy {
    /// Reads the entry in a folder; none where there is no entry yet.
    ///
    /// # Errors
    /// The path that could not be read, with the reason.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>, (PathBuf, io::Error)> {
        // The tree and its copies, each as large as a configuration may be.
        let left = &mut (2 * MAX_BYTES);
        if folder.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(None);
        }
        let at = folder.join(RECORD);
        let record = record(&at).map_err(|error| (at, error))?;
        let mut copy = Self { record, tree: Vec::new(), copies: Vec::new(), unread: Vec::new() };
        for name in &copy.record.configuration {
            let path = folder.join(TREE).join(name);
            let mut file = read_file(&path, left)?;
            file.name = format!("{OF_GIT}{name}");
            let edited = folder.join(COPIES).join(name);
            let mut edited = match read_file(&edited, left) {
                Ok(edited) => edited,
                Err((path, error)) => {
                    if error.kind() != io::ErrorKind::NotFound {
                        copy.unread.push((path, error.to_string()));
                    }
                    file.clone()
                }
            };
            // A person who repairs a fault must know which file.
            if edited.text == file.text {
                edited.name.clone_from(&file.name);
            }
            copy.copies.push(edited);
            copy.tree.push(file);
        }
        Ok(Some(copy))
    }

    /// The files that count.
    pub(super) fn files(&self, allows_changes: bool) -> &[SourceFile] {
        if allows_changes { &self.copies } else { &self.tree }
    }

    /// Copies that cannot be read, each with the reason.
    pub(super) fn unread(&self) -> &[(PathBuf, String)] {
        &self.unread
    }

    /// All files, with the names in faults.
    pub(super) fn all(&self) -> impl Iterator<Item = &SourceFile> {
        self.tree.iter().chain(&self.copies)
    }
}

/// Reads the record of an entry.
///
/// # Errors
/// The system's reason, or that it is of another form.
pub fn record(path: &Path) -> io::Result<AppliedCommit> {
    let text = file::read_text(path, MAX_RECORD_BYTES)?;
    let record: AppliedCommit = serde_json::from_str(&text)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    if record.format != FORMAT {
        let reason = format!("it has format {}, and this drover knows {FORMAT}", record.format);
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    Ok(record)
}
