//! Files that an address names, read whole and within bounds.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The most bytes that a file with a secret, a certificate or an authority may have.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a file that its owner alone may read.
///
/// # Errors
/// As [`read`], and where others can read it.
pub(super) fn read_secret(path: &Path) -> io::Result<String> {
    let mode = fs::metadata(path)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let text = format!("others can read it (mode {mode:04o}): run `chmod 600` on it");
        return Err(io::Error::other(text));
    }
    read(path)
}

/// Reads a file.
///
/// # Errors
/// The system's reason, or that it is too large.
pub(super) fn read(path: &Path) -> io::Result<String> {
    if fs::metadata(path)?.len() > FILE_BYTES_MAX {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    fs::read_to_string(path)
}
