//! Private keys of guests, kept in the state directory.
//!
//! drover enters an agent with the key that the agent was created with, for as long as it exists:
//! also when its credentials id in the YAML names another key by now, and after a restart of the
//! service. Secrets are not in the journal, which knows only each agent's public key. So a file
//! here, named by the key's fingerprint, keeps the private key from the moment it is configured
//! until it is no longer configured and the last agent created with it is gone.
//!
//! A key is kept without its passphrase, readable by the service alone. A key that cannot be
//! written is logged, and the configuration takes effect all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use causes::chain;
use drover_model::id::AgentId;
use drover_model::journal_state::JournalState;
use drover_model::ports::{Journal, JournalFault};
use drover_model::record::Body;
use drover_ssh::PrivateKey;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use secrecy::ExposeSecret;

/// The name of the folder in the state directory.
const FOLDER: &str = "ssh-keys";

/// The keys in the folder, and who needs them.
#[derive(Debug)]
pub struct KeptKeys {
    folder: PathBuf,
    used: Mutex<KeyUse>,
}

#[derive(Debug, Default)]
struct KeyUse {
    /// The public keys of the configuration.
    configured: BTreeSet<String>,
    /// The public key that each agent was created with.
    agents: BTreeMap<AgentId, String>,
    /// The file of each kept key, by public key.
    files: BTreeMap<String, PathBuf>,
}

impl KeyUse {
    fn is_needed(&self, public: &str) -> bool {
        self.configured.contains(public) || self.agents.values().any(|other| other == public)
    }
}

impl KeptKeys {
    /// Opens the folder in the state directory, and returns the keys in it. A file that is not a
    /// key is logged and left alone.
    ///
    /// # Errors
    /// When the folder cannot be created or read.
    pub fn open(state: &Path, journal_state: &JournalState) -> io::Result<(Self, Vec<PrivateKey>)> {
        let folder = state.join(FOLDER);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let of = |(id, entry): (&AgentId, &drover_model::journal_state::AgentEntry)| {
            (id.clone(), entry.spec.ssh.public_key.clone())
        };
        let mut used =
            KeyUse { agents: journal_state.agents.iter().map(of).collect(), ..KeyUse::default() };
        let mut keys = Vec::new();
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "new") {
                fs::remove_file(path)?;
                continue;
            }
            match PrivateKey::load(&path, None) {
                Ok(key) => {
                    used.files.insert(key.public_line(""), path);
                    keys.push(key);
                }
                Err(error) => tracing::error!(error = chain(&error), "kept SSH key cannot be read"),
            }
        }
        Ok((Self { folder, used: Mutex::new(used) }, keys))
    }

    /// Keeps the keys of a configuration, and removes those that nobody needs any more. Blocks. A
    /// key that cannot be written is logged.
    pub fn configure<'a>(&self, keys: impl IntoIterator<Item = &'a PrivateKey>) {
        let mut used = self.used();
        used.configured.clear();
        for key in keys {
            let public = key.public_line("");
            used.configured.insert(public.clone());
            if used.files.contains_key(&public) {
                continue;
            }
            match self.write(key) {
                Ok(path) => drop(used.files.insert(public, path)),
                Err(error) => {
                    let key = key.fingerprint();
                    let text = "once this SSH key leaves the configuration and drover starts \
                                again, drover cannot enter the agents created with it";
                    tracing::warn!(key, %error, text, "SSH key could not be kept");
                }
            }
        }
        Self::sweep(&mut used);
    }

    fn write(&self, key: &PrivateKey) -> io::Result<PathBuf> {
        let print = key.fingerprint();
        let name = print.trim_start_matches("SHA256:").replace('/', "_").replace('+', "-");
        let path = self.folder.join(name);
        let beside = path.with_extension("new");
        let text = key.to_openssh().map_err(io::Error::other)?;
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(text.expose_secret().as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, &path)?;
        File::open(&self.folder)?.sync_all()?;
        Ok(path)
    }

    /// Notes that an agent was created with a key.
    fn created(&self, agent: &AgentId, public: &str) {
        self.used().agents.insert(agent.clone(), public.to_owned());
    }

    /// Notes that an agent is gone, and removes its key if no other agent needs it.
    fn gone(&self, agent: &AgentId) {
        let mut used = self.used();
        used.agents.remove(agent);
        Self::sweep(&mut used);
    }

    fn sweep(used: &mut KeyUse) {
        let unneeded: Vec<String> =
            used.files.keys().filter(|public| !used.is_needed(public)).cloned().collect();
        for public in unneeded {
            let Some(path) = used.files.remove(&public) else { continue };
            if let Err(error) = fs::remove_file(&path) {
                let path = path.display();
                tracing::warn!(%path, %error, "unused SSH key stays until the next start");
            }
        }
    }

    fn used(&self) -> MutexGuard<'_, KeyUse> {
        self.used.lock()
    }
}

/// A journal that lists for [`KeptKeys`] which agents exist.
pub struct KeyTrackingJournal {
    journal: Arc<dyn Journal>,
    keys: Arc<KeptKeys>,
}

impl KeyTrackingJournal {
    pub fn new(journal: Arc<dyn Journal>, keys: Arc<KeptKeys>) -> Self {
        Self { journal, keys }
    }
}

impl Journal for KeyTrackingJournal {
    fn append(&self, bodies: Vec<Body>) -> BoxFuture<'static, Result<u64, JournalFault>> {
        let mut gone = Vec::new();
        for body in &bodies {
            if let Body::CloneIntended { marks, spec, .. } = body {
                // Before the record is durable: to keep a key too long does no harm.
                self.keys.created(&marks.agent, &spec.ssh.public_key);
            } else if let Body::Gone { agent, .. } = body {
                gone.push(agent.clone());
            }
        }
        let (appended, keys) = (self.journal.append(bodies), Arc::clone(&self.keys));
        if gone.is_empty() {
            return appended;
        }
        async move {
            let outcome = appended.await;
            if outcome.is_ok() {
                gone.iter().for_each(|agent| keys.gone(agent));
            }
            outcome
        }
        .boxed()
    }

    fn last_seq(&self) -> u64 {
        self.journal.last_seq()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn key(seed: u8) -> PrivateKey {
        PrivateKey::from_seed(&[seed; 32], "drover-test")
    }

    fn kept(state: &Path) -> usize {
        fs::read_dir(state.join(FOLDER)).unwrap().count()
    }

    fn agent() -> AgentId {
        AgentId::new("4f8z1c3px9t2vkab")
    }

    fn reopened(state: &Path, agents: &[&PrivateKey]) -> (KeptKeys, Vec<String>) {
        let (kept_keys, keys) = KeptKeys::open(state, &JournalState::default()).unwrap();
        for key in agents {
            kept_keys.created(&agent(), &key.public_line(""));
        }
        (kept_keys, keys.iter().map(|key| key.public_line("")).collect())
    }

    // Invariant: a key is kept while it is configured or an agent created with it exists, readable
    // by the service alone, and no longer.

    #[test]
    fn a_key_that_left_the_configuration_is_kept_as_long_as_an_agent_born_with_it() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path();
        let (kept_keys, keys) = reopened(state, &[]);
        assert_eq!(keys, Vec::<String>::new());
        kept_keys.configure([&key(1)]);
        kept_keys.created(&agent(), &key(1).public_line(""));
        kept_keys.configure([&key(2)]);
        assert_eq!(kept(state), 2);
        let (kept_keys, mut keys) = reopened(state, &[&key(1)]);
        keys.sort();
        let mut both = [key(1).public_line(""), key(2).public_line("")];
        both.sort();
        assert_eq!(keys, both);
        kept_keys.configure([&key(2)]);
        assert_eq!(kept(state), 2, "its agent lives");
        kept_keys.gone(&agent());
        assert_eq!(reopened(state, &[]).1, [key(2).public_line("")]);
        kept_keys.configure([]);
        assert_eq!(kept(state), 0);
    }

    #[test]
    fn a_kept_key_is_for_its_owner_alone_and_a_half_written_one_goes() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path();
        let (kept_keys, _) = reopened(state, &[]);
        kept_keys.configure([&key(1)]);
        let folder = state.join(FOLDER);
        let file = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&file)), (0o700, 0o600));
        fs::write(folder.join("half.new"), "x").unwrap();
        fs::write(folder.join("other"), "no key").unwrap();
        assert_eq!(reopened(state, &[]).1, [key(1).public_line("")]);
        assert_eq!(kept(state), 2, "what is no key of drover's is left alone");
    }
}
