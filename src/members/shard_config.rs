//! The configuration of a herd in its store: YAML files that every member has from there.
//!
//! ```text
//! put ─ by comparison ─▶ register/configuration ─ read every few seconds ─▶ each member
//! ```
//!
//! It is one entry of the register, encrypted under the key of the members: those who can write into the
//! store and lack the key cannot make one. They can bring back an earlier one, as they can an earlier
//! journal. What the YAML means is not known here.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_vault::{ClusterKey, NotOpened, Register, Sealer, StoreError, Version};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The name of the entry.
const ENTRY: &str = "configuration";
/// What its key is made for.
const PURPOSE: &str = "drover shard configuration 1";
/// The form that this drover writes.
const FORMAT: u32 = 1;
/// The most bytes of all files together: etcd takes requests of 1.5 MiB.
const MAX_BYTES: usize = 1 << 20;
/// The most files.
const MAX_FILES: usize = 256;
/// The longest name of a file, in bytes.
const MAX_NAME_BYTES: usize = 200;

/// A configuration as it lies in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShardConfig {
    format: u32,
    /// Rises by one with each put.
    pub number: u64,
    /// When it was put (RFC 3339).
    pub put_at: String,
    /// The user and machine that put it.
    pub put_by: String,
    /// The texts of the YAML files by their names.
    pub files: BTreeMap<String, String>,
}

/// Why a configuration is not read from a store, or not put there.
#[derive(Debug, thiserror::Error)]
pub enum ShardConfigError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Somebody without the key wrote it, or with another one.
    #[error("the configuration in the store cannot be opened")]
    Sealed(#[source] NotOpened),
    #[error("the configuration in the store has a form that this drover does not know")]
    Form(#[source] serde_json::Error),
    #[error("the configuration in the store has format {0}, and this drover knows {FORMAT}")]
    Newer(u32),
    /// It has too many files or bytes, or a name that is none of a file.
    #[error("{0}")]
    Bounds(String),
    #[error(
        "somebody put another configuration meanwhile, and nothing was put: get that one with `drover \
         shard-config get DIR`, and make your change there"
    )]
    Overtaken,
}

impl ShardConfigError {
    /// Whether something lies in the store that cannot be used: the store itself answered.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Sealed(_) | Self::Form(_) | Self::Newer(_) | Self::Bounds(_) => true,
            Self::Store(_) | Self::Overtaken => false,
        }
    }
}

/// A configuration that was found, and which write made it so.
#[derive(Debug, Clone)]
pub struct Found {
    pub config: ShardConfig,
    version: Version,
}

impl ShardConfig {
    /// The configuration after `before`.
    ///
    /// # Errors
    /// [`ShardConfigError::Bounds`].
    pub fn after(
        before: Option<&Found>,
        files: BTreeMap<String, String>,
        (put_at, put_by): (String, String),
    ) -> Result<Self, ShardConfigError> {
        let number = before.map_or(0, |before| before.config.number).saturating_add(1);
        let config = Self { format: FORMAT, number, put_at, put_by, files };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ShardConfigError> {
        let bounds = |text: String| Err(ShardConfigError::Bounds(text));
        let count = self.files.len();
        if count == 0 {
            return bounds("a configuration needs at least one file".to_owned());
        }
        if count > MAX_FILES {
            return bounds(format!("{count} files are too many: a store takes {MAX_FILES}"));
        }
        if let Some(name) = self.files.keys().find(|name| !is_file_name(name)) {
            return bounds(format!("`{name}` is no name of a YAML file"));
        }
        let sum: usize = self.files.iter().map(|(name, text)| name.len() + text.len()).sum();
        if sum > MAX_BYTES {
            return bounds(format!(
                "the files have {sum} bytes together, and a store takes {MAX_BYTES}"
            ));
        }
        Ok(())
    }

    /// A name that another configuration does not have: its number and the beginning of its digest. The
    /// number alone comes again where somebody replaced what cannot be read.
    pub fn id(&self) -> String {
        let mut hash = Sha256::new();
        for (name, text) in &self.files {
            for part in [name, text] {
                hash.update((part.len() as u64).to_be_bytes());
                hash.update(part);
            }
        }
        let digest: String = hash.finalize().iter().take(6).map(|b| format!("{b:02x}")).collect();
        format!("{:06}-{digest}", self.number)
    }
}

/// The name under which a file goes into the store; none for what is no name of a YAML file that counts.
pub fn file_name(name: &str) -> Option<String> {
    is_file_name(name).then(|| name.to_owned())
}

/// Whether it is a YAML file in a folder, and not hidden: other ones a member would pass over.
fn is_file_name(name: &str) -> bool {
    let is_yaml = name.ends_with(".yaml") || name.ends_with(".yml");
    let is_plain = !name.starts_with('.') && !name.contains(['/', '\\']);
    is_yaml && is_plain && name.len() <= MAX_NAME_BYTES && !name.chars().any(char::is_control)
}

/// The place of the configuration in a store. Calls block.
pub struct ConfigStore {
    register: Arc<dyn Register>,
    sealer: Sealer,
}

impl ConfigStore {
    pub fn new(register: Arc<dyn Register>, key: &ClusterKey) -> Self {
        Self { register, sealer: Sealer::new(key, PURPOSE) }
    }

    /// The configuration in the store; none where nobody has put one.
    ///
    /// # Errors
    /// When the store does not answer, or has what cannot be used.
    pub fn read(&self) -> Result<Option<Found>, ShardConfigError> {
        let Some(entry) = self.register.read(ENTRY)? else { return Ok(None) };
        let opened = self.sealer.open(ENTRY, &entry.bytes).map_err(ShardConfigError::Sealed)?;
        let config: ShardConfig =
            serde_json::from_slice(&opened).map_err(ShardConfigError::Form)?;
        if config.format > FORMAT {
            return Err(ShardConfigError::Newer(config.format));
        }
        config.check()?;
        Ok(Some(Found { config, version: entry.version }))
    }

    /// Puts a configuration in the place of the one that was found.
    ///
    /// # Errors
    /// [`ShardConfigError::Overtaken`] where another one is there by now; what the store says.
    pub fn put(
        &self,
        before: Option<&Found>,
        config: &ShardConfig,
    ) -> Result<(), ShardConfigError> {
        self.write(before.map(|before| &before.version), &self.sealed(config)?)
    }

    /// The same where what is there cannot be read.
    ///
    /// # Errors
    /// As [`ConfigStore::put`].
    pub fn replace(&self, config: &ShardConfig) -> Result<(), ShardConfigError> {
        let there = self.register.read(ENTRY)?.map(|entry| entry.version);
        self.write(there.as_ref(), &self.sealed(config)?)
    }

    fn sealed(&self, config: &ShardConfig) -> Result<Vec<u8>, ShardConfigError> {
        let text = serde_json::to_vec(config).map_err(ShardConfigError::Form)?;
        Ok(self.sealer.seal(ENTRY, &text)?)
    }

    fn write(&self, before: Option<&Version>, sealed: &[u8]) -> Result<(), ShardConfigError> {
        match self.register.write(ENTRY, before, sealed)? {
            Some(_) => Ok(()),
            None => Err(ShardConfigError::Overtaken),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use drover_vault::MemoryRegister;

    use super::*;

    fn key(last: char) -> ClusterKey {
        ClusterKey::new(&format!("0123456789abcdef0123456789abcde{last}").into()).unwrap()
    }

    fn files(text: &str) -> BTreeMap<String, String> {
        BTreeMap::from([("drover.yaml".to_owned(), text.to_owned())])
    }

    fn after(
        before: Option<&Found>,
        files: BTreeMap<String, String>,
    ) -> Result<ShardConfig, ShardConfigError> {
        ShardConfig::after(before, files, ("2026-11-28T10:00:00Z".into(), "root@a".into()))
    }

    // Invariant: of two who put, one is refused; nobody without the key puts one that counts.

    #[test]
    fn of_two_who_put_at_once_the_second_is_refused() {
        let register = MemoryRegister::default();
        let [one, two] = [(); 2].map(|()| ConfigStore::new(Arc::new(register.clone()), &key('f')));
        assert!(one.read().unwrap().is_none());
        let first = after(None, files("a: 1")).unwrap();
        one.put(None, &first).unwrap();
        let refused = two.put(None, &after(None, files("a: 2")).unwrap()).unwrap_err();
        assert!(matches!(refused, ShardConfigError::Overtaken), "{refused}");
        let found = two.read().unwrap().unwrap();
        assert_eq!((found.config.number, &found.config), (1, &first));
        let second = after(Some(&found), files("a: 2")).unwrap();
        two.put(Some(&found), &second).unwrap();
        one.put(Some(&found), &first).unwrap_err();
        assert_eq!(one.read().unwrap().unwrap().config.number, 2);
        assert_ne!(first.id(), second.id());
    }

    #[test]
    fn what_another_key_made_or_somebody_changed_is_refused() {
        let register = MemoryRegister::default();
        let ours = ConfigStore::new(Arc::new(register.clone()), &key('f'));
        let theirs = ConfigStore::new(Arc::new(register.clone()), &key('e'));
        theirs.put(None, &after(None, files("a: 1")).unwrap()).unwrap();
        let refused = ours.read().unwrap_err();
        assert!(refused.is_refusal() && matches!(refused, ShardConfigError::Sealed(_)));
        let entry = register.read(ENTRY).unwrap().unwrap();
        assert!(!entry.bytes.windows(4).any(|part| part == b"a: 1"), "it is encrypted");
        register.write(ENTRY, Some(&entry.version), b"a: 1").unwrap().unwrap();
        assert!(theirs.read().unwrap_err().is_refusal());
        ours.replace(&after(None, files("a: 2")).unwrap()).unwrap();
        assert_eq!(ours.read().unwrap().unwrap().config.number, 1);
    }

    #[test]
    fn names_files_and_bytes_are_bounded() {
        for name in ["drover.yaml", "a b.yml"] {
            assert_eq!(file_name(name).as_deref(), Some(name));
        }
        for name in [".yaml", "a.txt", "../a.yaml", "a/b.yaml", "a\n.yaml", "a\\b.yml"] {
            assert_eq!(file_name(name), None, "{name}");
        }
        let refused = |files| after(None, files).unwrap_err().to_string();
        assert_eq!(refused(BTreeMap::new()), "a configuration needs at least one file");
        let many = (0..300).map(|at| (format!("{at}.yaml"), String::new())).collect();
        assert_eq!(refused(many), "300 files are too many: a store takes 256");
        let large = refused(files(&"x".repeat(MAX_BYTES)));
        assert!(large.contains("a store takes 1048576"), "{large}");
        let odd = BTreeMap::from([("../x.yaml".to_owned(), String::new())]);
        assert_eq!(refused(odd), "`../x.yaml` is no name of a YAML file");
    }
}
