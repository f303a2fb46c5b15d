//! A vault of files that the service alone can read.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::{StoreError, Vault};

/// The end of the name of a file that is not complete.
const UNFINISHED: &str = "new";

/// A vault in a folder. Files have the mode 0600, folders 0700.
#[derive(Debug, Clone)]
pub struct FolderVault {
    folder: PathBuf,
}

impl FolderVault {
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn store(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(name);
        let parent = path.parent().unwrap_or(&self.folder);
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        let beside = unfinished(&path);
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, &path)?;
        File::open(parent)?.sync_all()
    }

    fn names(&self, folder: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.path(folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == UNFINISHED) {
                fs::remove_file(path)?;
            } else if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }
}

fn unfinished(path: &Path) -> PathBuf {
    path.with_added_extension(UNFINISHED)
}

impl Vault for FolderVault {
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        match fs::read(self.path(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some).map_err(|error| StoreError::refused(name, "read", error)),
        }
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.store(name, bytes).map_err(|error| StoreError::refused(name, "written", error))
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        let path = self.path(name);
        for path in [unfinished(&path), path] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(StoreError::refused(name, "removed", error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Removes files that were never completed.
    fn list(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        self.names(folder).map_err(|error| StoreError::refused(folder, "listed", error))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::contract;

    // Invariant: a vault of files does what every vault does, and is for the service alone.

    #[test]
    fn a_folder_does_what_every_vault_does() {
        for each in contract::VAULT {
            let folder = tempfile::tempdir().unwrap();
            each(&mut || Box::new(FolderVault::new(folder.path())));
        }
    }

    #[test]
    fn files_are_for_their_owner_alone_and_half_written_ones_go() {
        let folder = tempfile::tempdir().unwrap();
        let vault = FolderVault::new(&folder.path().join("state"));
        vault.put("ssh-keys/a", b"x").unwrap();
        let mode = |name: &str| {
            fs::metadata(folder.path().join("state").join(name)).unwrap().permissions().mode()
                & 0o777
        };
        assert_eq!((mode(""), mode("ssh-keys"), mode("ssh-keys/a")), (0o700, 0o700, 0o600));
        let half = folder.path().join("state/ssh-keys/b.new");
        fs::write(&half, "half").unwrap();
        assert_eq!(vault.list("ssh-keys").unwrap(), ["a"]);
        assert!(!half.exists());
    }
}
