//! The folder of disk images that guests start from.

use std::path::{Path, PathBuf};

use super::QemuError;
use super::disks::virtual_size;

/// The ending of a disk image's name.
const EXTENSION: &str = "qcow2";

/// A disk image that boots by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    /// The file's name without its ending.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// The size of the disk in it.
    pub(crate) bytes: u64,
}

/// The images `NAME.qcow2` of a folder, by name.
///
/// # Errors
/// The folder cannot be read, or has no image.
pub(crate) fn read_images(folder: &Path) -> Result<Vec<Image>, QemuError> {
    let unreadable = |source| QemuError::Images { folder: folder.to_owned(), source };
    let folder = folder.canonicalize().map_err(unreadable)?;
    let mut images = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|ending| ending == EXTENSION) {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let bytes = virtual_size(&path).map_err(unreadable)?;
            images.push(Image { name, path, bytes });
        }
    }
    if images.is_empty() {
        return Err(QemuError::NoImage { folder });
    }
    images.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(images)
}
