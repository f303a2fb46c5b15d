//! Image files of drives: overlays, copies, sizes and snapshots, by `qemu-img`.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::process::Command;

/// A copy of a large image on a slow disk takes minutes.
const QEMU_IMG_TIMEOUT: Duration = Duration::from_secs(600);
/// The first bytes of a qcow2 file.
const QCOW2_MAGIC: &[u8] = b"QFI\xfb";
/// Where the virtual size stands in a qcow2 file, as eight bytes (QEMU, docs/interop/qcow2.txt).
const QCOW2_SIZE_OFFSET: usize = 24;

/// The image of a drive. Its file is removed with its last user: a guest, or an overlay.
#[derive(Debug)]
pub(super) struct Disk {
    path: PathBuf,
    /// What an overlay lies on.
    _base: Option<Arc<Disk>>,
    /// False for an image of the operator, which is never written to and never removed.
    is_own: bool,
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_own
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::debug!(path = %self.path.display(), %error, "a disk image is not removed");
        }
    }
}

impl Disk {
    /// An image of the operator.
    pub(super) fn image(path: PathBuf) -> Arc<Self> {
        Arc::new(Self { path, _base: None, is_own: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a guest may write to it.
    pub(super) fn is_own(&self) -> bool {
        self.is_own
    }

    /// Grows it to a size, if it is smaller. No QEMU may use it.
    pub(super) async fn grow(&self, bytes: u64) -> Result<(), String> {
        match virtual_size(&self.path) {
            Ok(size) if size >= bytes => Ok(()),
            Ok(_) => {
                let size = bytes.to_string();
                qemu_img(&["resize".as_ref(), "-q".as_ref(), self.path.as_ref(), size.as_ref()])
                    .await
            }
            Err(error) => Err(format!("cannot read {}: {error}", self.path.display())),
        }
    }

    /// Takes, applies or deletes an internal snapshot. No QEMU may use the disk.
    pub(super) async fn snapshot(&self, act: SnapshotAct, name: &str) -> Result<(), String> {
        let option = match act {
            SnapshotAct::Create => "-c",
            SnapshotAct::Apply => "-a",
            SnapshotAct::Delete => "-d",
        };
        let path = self.path.as_ref();
        qemu_img(&["snapshot".as_ref(), "-q".as_ref(), option.as_ref(), name.as_ref(), path]).await
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SnapshotAct {
    Create,
    Apply,
    Delete,
}

/// The folder of all images that the host makes.
#[derive(Debug)]
pub(super) struct DiskFolder {
    path: PathBuf,
    last: AtomicU32,
}

impl DiskFolder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, last: AtomicU32::new(0) }
    }

    /// An image that holds what differs from its base.
    pub(super) async fn overlay(&self, base: &Arc<Disk>) -> Result<Arc<Disk>, String> {
        let format = format_of(base.path())
            .map_err(|error| format!("cannot read {}: {error}", base.path().display()))?;
        let disk = self.new_disk(Some(Arc::clone(base)));
        let create = ["create", "-q", "-f", "qcow2", "-F", format, "-b"].map(OsStr::new);
        qemu_img(&[&create[..], &[base.path().as_ref(), disk.path().as_ref()]].concat()).await?;
        Ok(disk)
    }

    /// An image with all of the content of another that no QEMU uses.
    pub(super) async fn copy(&self, source: &Disk) -> Result<Arc<Disk>, String> {
        let disk = self.new_disk(None);
        let convert = ["convert", "-q", "-O", "qcow2"].map(OsStr::new);
        qemu_img(&[&convert[..], &[source.path().as_ref(), disk.path().as_ref()]].concat()).await?;
        Ok(disk)
    }

    pub(super) async fn blank(&self, bytes: u64) -> Result<Arc<Disk>, String> {
        let (disk, size) = (self.new_disk(None), bytes.to_string());
        let create = ["create", "-q", "-f", "qcow2"].map(OsStr::new);
        qemu_img(&[&create[..], &[disk.path().as_ref(), size.as_ref()]].concat()).await?;
        Ok(disk)
    }

    /// A name for an image that somebody else is about to make.
    pub(super) fn new_disk(&self, base: Option<Arc<Disk>>) -> Arc<Disk> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let path = self.path.join(format!("{number}.qcow2"));
        Arc::new(Disk { path, _base: base, is_own: true })
    }
}

async fn qemu_img(arguments: &[&OsStr]) -> Result<(), String> {
    let mut command = Command::new("qemu-img");
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let run = tokio::time::timeout(QEMU_IMG_TIMEOUT, command.output()).await;
    let what = || {
        let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
        format!("command '/usr/bin/qemu-img {}' failed", words.join(" "))
    };
    match run {
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{}: {}", what(), said.trim()))
        }
        Ok(Err(error)) => Err(format!("{}: {error}", what())),
        Err(_) => Err(format!("{}: got timeout", what())),
    }
}

/// The format of an image file.
fn format_of(path: &Path) -> std::io::Result<&'static str> {
    Ok(if header(path)?.starts_with(QCOW2_MAGIC) { "qcow2" } else { "raw" })
}

/// The size of the disk that an image file holds.
pub(super) fn virtual_size(path: &Path) -> std::io::Result<u64> {
    let header = header(path)?;
    let size = header.get(QCOW2_SIZE_OFFSET..).and_then(|rest| rest.first_chunk::<8>());
    match size {
        Some(size) if header.starts_with(QCOW2_MAGIC) => Ok(u64::from_be_bytes(*size)),
        Some(_) | None => Ok(std::fs::metadata(path)?.len()),
    }
}

fn header(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut header = Vec::new();
    std::fs::File::open(path)?.take(32).read_to_end(&mut header)?;
    Ok(header)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    // Invariant: a file lives as long as somebody uses it, and an operator's image for ever.

    #[test]
    fn a_base_outlives_its_guest_while_an_overlay_needs_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image.qcow2");
        std::fs::write(&path, "image").unwrap();
        let disks = DiskFolder::new(folder.path().to_owned());
        let image = Disk::image(path.clone());
        let base = disks.new_disk(Some(Arc::clone(&image)));
        let overlay = disks.new_disk(Some(Arc::clone(&base)));
        let paths = [&base, &overlay].map(|disk| disk.path().to_owned());
        paths.iter().for_each(|path| std::fs::write(path, "disk").unwrap());
        drop((base, image));
        assert!(paths.iter().all(|path| path.exists()));
        drop(overlay);
        assert!(paths.iter().all(|path| !path.exists()));
        assert!(path.exists());
    }

    // Invariant: the size is that of the disk, not of the file.

    #[test]
    fn sizes_of_qcow2_and_raw_images_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        std::fs::write(&path, "a raw disk of some bytes more than a header has").unwrap();
        assert_eq!((format_of(&path).unwrap(), virtual_size(&path).unwrap()), ("raw", 47));
        let mut qcow2 = vec![0; 112];
        qcow2[..4].copy_from_slice(QCOW2_MAGIC);
        qcow2[24..32].copy_from_slice(&(10u64 << 30).to_be_bytes());
        std::fs::write(&path, qcow2).unwrap();
        assert_eq!((format_of(&path).unwrap(), virtual_size(&path).unwrap()), ("qcow2", 10 << 30));
    }
}
