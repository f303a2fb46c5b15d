//! A small state file for each source, for what the source must know after a restart. Without the
//! file the source loses time and nothing else.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use drover_model::id::SourceId;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A larger file is ignored: no source needs as much.
const STATE_FILE_MAX_BYTES: u64 = 64 * 1024;

/// The state file of one source; without a path nothing is stored.
#[derive(Debug, Clone, Default)]
pub struct StateFile {
    file: Option<PathBuf>,
    machine: Option<String>,
}

impl StateFile {
    /// The state file of a source in a folder.
    pub fn of(folder: &Path, source: &SourceId, machine: Option<String>) -> Self {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let name = source.as_str().bytes().map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("_{byte:02x}"),
        });
        Self { file: Some(folder.join(name.collect::<String>() + ".json")), machine }
    }

    /// An id that distinguishes this machine from others; none where no such id exists.
    pub fn machine(&self) -> Option<&str> {
        self.machine.as_deref()
    }

    /// The stored value; none where there is no file or it cannot be read.
    pub fn read<T: DeserializeOwned>(&self) -> Option<T> {
        let file = self.file.as_ref()?;
        let size = file.metadata().ok()?.len();
        let text = (size <= STATE_FILE_MAX_BYTES).then(|| std::fs::read(file).ok()).flatten()?;
        serde_json::from_slice(&text).ok()
    }

    /// Replaces the stored value. A failure is logged: the source works without its file.
    pub fn write(&self, kept: &impl Serialize) {
        let Some(file) = &self.file else { return };
        if let Err(error) = put(file, kept) {
            tracing::warn!(file = %file.display(), %error, "cannot write the state file of a \
                                                            source");
        }
    }

    pub fn clear(&self) {
        let Some(file) = &self.file else { return };
        match std::fs::remove_file(file) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                let file = file.display();
                tracing::warn!(%file, %error, "cannot remove the state file of a source");
            }
        }
    }
}

/// Writes a second file and renames it, so that a crash leaves the old value or the new one.
fn put(file: &Path, kept: &impl Serialize) -> std::io::Result<()> {
    let text = serde_json::to_vec(kept)?;
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let aside = file.with_extension("new");
    let mut options = std::fs::OpenOptions::new();
    let mut open = options.write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
    open.write_all(&text)?;
    open.sync_all()?;
    std::fs::rename(&aside, file)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    // Invariant: a state file is read by its own source alone, and by no other user of the machine.

    #[test]
    fn what_is_kept_is_read_again_until_it_is_cleared() {
        let folder = tempfile::tempdir().unwrap();
        let of = |id: &str| StateFile::of(&folder.path().join("sources"), &SourceId::new(id), None);
        let all = [of("a"), of("a/b"), of("a_2fb"), of("../a")];
        for (number, one) in all.iter().enumerate() {
            assert_eq!(one.read::<usize>(), None);
            one.write(&number);
        }
        for (number, one) in all.iter().enumerate() {
            assert_eq!(one.read(), Some(number));
            let mode = one.file.as_ref().unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            one.clear();
            one.clear();
            assert_eq!(one.read::<usize>(), None);
        }
    }

    #[test]
    fn what_cannot_be_read_is_as_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let one = StateFile::of(folder.path(), &SourceId::new("a"), None);
        for text in ["", "{", "\"text\"", &"7".repeat(70_000)] {
            std::fs::write(one.file.as_ref().unwrap(), text).unwrap();
            assert_eq!(one.read::<u32>(), None, "{text:.9}");
        }
        assert_eq!(StateFile::default().read::<u32>(), None);
    }
}
