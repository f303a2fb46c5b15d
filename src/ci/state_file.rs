//! A small state file for each source, for what the source must know after a restart. Without the
//! file the source loses time and nothing else. It lies in the vault.

use std::fmt;
use std::sync::Arc;

use causes::chain;
use drover_model::id::SourceId;
use drover_vault::{StoreError, Vault};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A larger file is ignored: no source needs as much.
const STATE_FILE_MAX_BYTES: usize = 64 * 1024;
/// The folder of the vault.
pub const STATE_FOLDER: &str = "sources";

/// The state file of one source; without a vault nothing is stored.
#[derive(Clone, Default)]
pub struct StateFile {
    file: Option<(Arc<dyn Vault>, String)>,
    machine: Option<String>,
}

impl fmt::Debug for StateFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StateFile").field(&self.file.as_ref().map(|(_, name)| name)).finish()
    }
}

impl StateFile {
    /// The state file of a source in a vault.
    pub fn of(vault: Arc<dyn Vault>, source: &SourceId, machine: Option<String>) -> Self {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let name = source.as_str().bytes().map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("_{byte:02x}"),
        });
        let name = name.collect::<String>();
        Self { file: Some((vault, format!("{STATE_FOLDER}/{name}.json"))), machine }
    }

    /// An id that distinguishes this machine from others; none where no such id exists.
    pub fn machine(&self) -> Option<&str> {
        self.machine.as_deref()
    }

    /// The stored value; none where there is no file or it cannot be read. Blocks.
    pub fn read<T: DeserializeOwned>(&self) -> Option<T> {
        let (vault, name) = self.file.as_ref()?;
        let text = vault.get(name).unwrap_or_else(|error| {
            tracing::warn!(error = chain(&error), "cannot read the state file of a source");
            None
        })?;
        serde_json::from_slice(&text).ok().filter(|_| text.len() <= STATE_FILE_MAX_BYTES)
    }

    /// Replaces the stored value. A failure is logged: the source works without its file. Blocks.
    pub fn write(&self, kept: &impl Serialize) {
        let Some((vault, name)) = &self.file else { return };
        let text = serde_json::to_vec(kept);
        let text = text.map_err(|error| StoreError::refused(name, "written", error));
        if let Err(error) = text.and_then(|text| vault.put(name, &text)) {
            tracing::warn!(error = chain(&error), "cannot write the state file of a source");
        }
    }

    /// Removes the stored value. Blocks.
    pub fn clear(&self) {
        let Some((vault, name)) = &self.file else { return };
        if let Err(error) = vault.remove(name) {
            tracing::warn!(error = chain(&error), "cannot remove the state file of a source");
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use drover_vault::MemoryVault;

    use super::*;

    // Invariant: a state file is read by its own source alone.

    #[test]
    fn what_is_kept_is_read_again_until_it_is_cleared() {
        let vault = MemoryVault::default();
        let of = |id: &str| StateFile::of(Arc::new(vault.clone()), &SourceId::new(id), None);
        let all = [of("a"), of("a/b"), of("a_2fb"), of("../a")];
        for (number, one) in all.iter().enumerate() {
            assert_eq!(one.read::<usize>(), None);
            one.write(&number);
        }
        assert_eq!(vault.list(STATE_FOLDER).unwrap().len(), 4);
        for (number, one) in all.iter().enumerate() {
            assert_eq!(one.read(), Some(number));
            one.clear();
            one.clear();
            assert_eq!(one.read::<usize>(), None);
        }
    }

    #[test]
    fn what_cannot_be_read_is_as_nothing() {
        let vault = MemoryVault::default();
        let one = StateFile::of(Arc::new(vault.clone()), &SourceId::new("a"), None);
        for text in ["", "{", "\"text\"", &"7".repeat(70_000)] {
            vault.put("sources/a.json", text.as_bytes()).unwrap();
            assert_eq!(one.read::<u32>(), None, "{text:.9}");
        }
        assert_eq!(StateFile::default().read::<u32>(), None);
    }
}
