//! Reads plain files, with a limit and without waiting: a pipe or a device in place of a file is
//! refused.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Distinguishes two writes of a file, even with the same text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Trace {
    /// Device and inode.
    pub id: (u64, u64),
    /// The last change of text, mode or owner, in seconds and nanoseconds.
    changed: (i64, i64),
    length: u64,
    /// File type and permissions.
    pub mode: u32,
}

impl Trace {
    fn of(meta: &Metadata) -> Self {
        Self {
            id: (meta.dev(), meta.ino()),
            changed: (meta.ctime(), meta.ctime_nsec()),
            length: meta.len(),
            mode: meta.mode(),
        }
    }
}

/// The content of a plain file of at most `most` bytes.
///
/// # Errors
/// The system's reason; [`io::ErrorKind::FileTooLarge`], and [`io::ErrorKind::InvalidInput`] for
/// other kinds of files.
pub(super) fn read(path: &Path, most: u64) -> io::Result<(Vec<u8>, Trace)> {
    let seen = fs::metadata(path).map_err(|error| dangling(path).unwrap_or(error))?;
    plain(&seen)?;
    // The file may be another one by now, and opening a pipe must not wait for a writer.
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY).bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let trace = Trace::of(&plain(&file.metadata()?)?);
    if trace.length > most {
        return Err(too_large(trace.length, most));
    }
    let bytes = bounded(file, most)?;
    if bytes.len() as u64 > most {
        return Err(too_large(bytes.len() as u64, most));
    }
    Ok((bytes, trace))
}

/// The text of a plain file of at most `most` bytes.
///
/// # Errors
/// As [`read`], and [`io::ErrorKind::InvalidData`] when it is not UTF-8.
pub(super) fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let (bytes, _) = read(path, most)?;
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

fn bounded(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn too_large(length: u64, most: u64) -> io::Error {
    let reason = format!("it has {length} bytes; the maximum is {most}");
    io::Error::new(io::ErrorKind::FileTooLarge, reason)
}

fn plain(meta: &Metadata) -> io::Result<Metadata> {
    let kind = meta.file_type();
    let what = if kind.is_file() {
        return Ok(meta.clone());
    } else if kind.is_dir() {
        "directory"
    } else if kind.is_fifo() {
        "pipe"
    } else if kind.is_socket() {
        "socket"
    } else {
        "device"
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is a {what}, not a plain file")))
}

/// The error of a symbolic link whose target is missing.
fn dangling(path: &Path) -> Option<io::Error> {
    fs::metadata(path).err().filter(|error| error.kind() == io::ErrorKind::NotFound)?;
    let target = fs::read_link(path).ok()?;
    let reason = format!("it is a symbolic link to `{}`, which does not exist", target.display());
    Some(io::Error::new(io::ErrorKind::InvalidInput, reason))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use std::os::unix::fs::symlink;

    use super::*;

    // Invariant: only plain files are read, and nothing waits.

    #[test]
    fn other_kinds_of_files_are_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        symlink("nowhere", path("link")).unwrap();
        symlink("loop", path("loop")).unwrap();
        symlink("pipe", path("to-pipe")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        let said = |name: &Path| read(name, 10).unwrap_err().to_string();
        assert_eq!(said(&path("pipe")), "it is a pipe, not a plain file");
        assert_eq!(said(&path("to-pipe")), "it is a pipe, not a plain file");
        assert_eq!(said(&path("socket")), "it is a socket, not a plain file");
        assert_eq!(said(dir.path()), "it is a directory, not a plain file");
        assert_eq!(said(Path::new("/dev/zero")), "it is a device, not a plain file");
        let dangling = "it is a symbolic link to `nowhere`, which does not exist";
        assert_eq!(said(&path("link")), dangling);
        assert!(said(&path("loop")).contains("symbolic links"), "{}", said(&path("loop")));
        assert!(said(&path("none")).contains("No such file"));
    }

    #[test]
    fn a_file_that_is_too_large_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let error = read(&path, 10).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "it has 1099511627776 bytes; the maximum is 10");
        // Its size is not known beforehand.
        assert!(read(Path::new("/proc/self/maps"), 10).is_err());
        fs::write(&path, "0123456789").unwrap();
        assert_eq!(read(&path, 10).unwrap().0, b"0123456789");
    }
}
