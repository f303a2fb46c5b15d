//! The scratch folder: one bare repository that can be removed at any time.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::error::GitError;
use super::url::RepoUrl;

/// The bare repository.
pub(super) const REPOSITORY: &str = "repo.git";

/// git's settings for the reading of a folder that another user owns.
pub(super) const ANY_OWNER: &str = "any-owner";

const ANY_OWNER_TEXT: &[u8] = b"[safe]\n\tdirectory = *\n";

/// The address that the repository was fetched from, in a file beside git's own.
const FETCHED_FROM: &str = "drover-url";

/// A repository of this size is fetched from scratch, so that old commits do not pile up.
const KEPT_BYTES: u64 = 64 << 20;

/// Creates the folder, for drover's user alone, with what is always in it.
pub(super) async fn create(folder: &Path) -> Result<(), GitError> {
    let path = folder.to_owned();
    blocking(folder, "create the folder", move || {
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        std::fs::write(path.join(ANY_OWNER), ANY_OWNER_TEXT)
    })
    .await
}

/// Whether the repository is there, comes from this address and is not too large to be kept.
pub(super) async fn is_usable(folder: &Path, url: &RepoUrl) -> Result<bool, GitError> {
    let repository = folder.join(REPOSITORY);
    let url = url.to_string();
    blocking(folder, "look into", move || {
        let from = std::fs::read_to_string(repository.join(FETCHED_FROM)).unwrap_or_default();
        Ok(from == url && size(&repository) <= KEPT_BYTES)
    })
    .await
}

/// Notes where the new repository is fetched from.
pub(super) async fn note_url(folder: &Path, url: &RepoUrl) -> Result<(), GitError> {
    let path = folder.join(REPOSITORY).join(FETCHED_FROM);
    let url = url.to_string();
    blocking(folder, "write to", move || std::fs::write(path, url)).await
}

/// Removes the repository, whatever is in its place.
pub(super) async fn remove(folder: &Path) -> Result<(), GitError> {
    let path = folder.join(REPOSITORY);
    blocking(folder, "clear", move || match std::fs::symlink_metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(there) if there.is_dir() => std::fs::remove_dir_all(&path),
        Ok(_) => std::fs::remove_file(&path),
    })
    .await
}

/// The bytes of all files below a folder; what cannot be read counts nothing.
fn size(folder: &Path) -> u64 {
    let (mut bytes, mut folders) = (0, vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(about) if about.is_dir() => folders.push(entry.path()),
                Ok(about) => bytes += about.len(),
                Err(_) => {}
            }
        }
    }
    bytes
}

async fn blocking<T: Send + 'static>(
    folder: &Path,
    doing: &'static str,
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, GitError> {
    let failed = |source| GitError::Io { doing, path: PathBuf::from(folder), source };
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|panicked| failed(std::io::Error::other(panicked)))?
        .map_err(failed)
}
