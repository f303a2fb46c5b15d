//! Reads plain files, bounded and without ever waiting: a pipe or a device in a file's place is
//! refused rather than read.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// What tells one writing of a file from the next, even when the text is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Trace {
    /// The file's device and number.
    pub id: (u64, u64),
    /// When its text, mode or owner changed last, in seconds and nanoseconds.
    changed: (i64, i64),
    length: u64,
    /// Its kind and who may do what with it.
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

/// The bytes of a plain file of at most this many.
///
/// # Errors
/// The system's reason; [`io::ErrorKind::FileTooLarge`], and [`io::ErrorKind::InvalidInput`] for
/// what is no plain file.
pub(super) fn read(path: &Path, most: u64) -> io::Result<(Vec<u8>, Trace)> {
    let seen = fs::metadata(path).map_err(|error| dangling(path).unwrap_or(error))?;
    plain(&seen)?;
    // Another file may have come in its place since; opening one must not wait for a writer either.
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

/// The text of a plain file of at most this many bytes.
///
/// # Errors
/// As [`read`], and [`io::ErrorKind::InvalidData`] when it is no UTF-8.
pub(super) fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let (bytes, _) = read(path, most)?;
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no UTF-8 text"))
}

fn bounded(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn too_large(length: u64, most: u64) -> io::Error {
    let reason = format!("it has {length} bytes, and {most} are the most");
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

/// What is said of a symbolic link whose target is missing.
fn dangling(path: &Path) -> Option<io::Error> {
    fs::metadata(path).err().filter(|error| error.kind() == io::ErrorKind::NotFound)?;
    let target = fs::read_link(path).ok()?;
    let reason = format!("it is a symbolic link to `{}`, which is not there", target.display());
    Some(io::Error::new(io::ErrorKind::InvalidInput, reason))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use std::os::unix::fs::symlink;

    use super::*;

    // Invariant: what is no plain file is refused, and nothing is waited for.

    #[test]
    fn what_is_no_plain_file_is_refused_at_once() {
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
        let dangling = "it is a symbolic link to `nowhere`, which is not there";
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
        assert_eq!(error.to_string(), "it has 1099511627776 bytes, and 10 are the most");
        // Its size is not told beforehand.
        assert!(read(Path::new("/proc/self/maps"), 10).is_err());
        fs::write(&path, "0123456789").unwrap();
        assert_eq!(read(&path, 10).unwrap().0, b"0123456789");
    }
}
