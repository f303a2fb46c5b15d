//! Private keys of guests, kept in the vault.
//!
//! drover enters an agent with the key that the agent was created with, for as long as it exists:
//! also when its credentials id in the YAML names another key by now, and after a restart of the
//! service. Secrets are not in the journal, which knows only each agent's public key. So the vault
//! has the private key, named by its fingerprint, from the moment it is configured until it is no
//! longer configured and the last agent created with it is gone.
//!
//! A key is kept without its passphrase. A key that cannot be written is logged, and the
//! configuration takes effect all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use causes::chain;
use drover_model::id::AgentId;
use drover_model::journal_state::JournalState;
use drover_model::ports::{Journal, JournalFault};
use drover_model::record::Body;
use drover_ssh::PrivateKey;
use drover_vault::{StoreError, Vault};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use secrecy::{ExposeSecret, SecretString};
use tokio::runtime::Handle;

/// The folder of the vault.
pub const FOLDER: &str = "ssh-keys";

/// The keys in the vault, and who needs them.
pub struct KeptKeys {
    vault: Arc<dyn Vault>,
    used: Mutex<KeyUse>,
}

#[derive(Debug, Default)]
struct KeyUse {
    /// The public keys of the configuration.
    configured: BTreeSet<String>,
    /// The public key that each agent was created with.
    agents: BTreeMap<AgentId, String>,
    /// The name of each kept key, by public key.
    names: BTreeMap<String, String>,
}

impl KeyUse {
    fn is_needed(&self, public: &str) -> bool {
        self.configured.contains(public) || self.agents.values().any(|other| other == public)
    }
}

impl KeptKeys {
    /// Reads the keys that are kept. What is no key is logged and left alone. Blocks.
    ///
    /// # Errors
    /// When the vault cannot be read.
    pub fn open(
        vault: Arc<dyn Vault>,
        journal_state: &JournalState,
    ) -> Result<(Self, Vec<PrivateKey>), StoreError> {
        let of = |(id, entry): (&AgentId, &drover_model::journal_state::AgentEntry)| {
            (id.clone(), entry.spec.ssh.public_key.clone())
        };
        let mut used =
            KeyUse { agents: journal_state.agents.iter().map(of).collect(), ..KeyUse::default() };
        let mut keys = Vec::new();
        for name in vault.list(FOLDER)? {
            let name = format!("{FOLDER}/{name}");
            let Some(bytes) = vault.get(&name)? else { continue };
            let text = SecretString::from(String::from_utf8_lossy(&bytes).into_owned());
            match PrivateKey::parse(&name, &text, None) {
                Ok(key) => {
                    used.names.insert(key.public_line(""), name);
                    keys.push(key);
                }
                Err(error) => tracing::error!(error = chain(&error), "kept SSH key cannot be read"),
            }
        }
        Ok((Self { vault, used: Mutex::new(used) }, keys))
    }

    /// Keeps the keys of a configuration, and removes those that nobody needs any more. Blocks. A
    /// key that cannot be written is logged.
    pub fn configure<'a>(&self, keys: impl IntoIterator<Item = &'a PrivateKey>) {
        let mut used = self.used();
        used.configured.clear();
        for key in keys {
            let public = key.public_line("");
            used.configured.insert(public.clone());
            if used.names.contains_key(&public) {
                continue;
            }
            match self.write(key) {
                Ok(name) => drop(used.names.insert(public, name)),
                Err(error) => {
                    let key = key.fingerprint();
                    let text = "once this SSH key leaves the configuration and drover starts \
                                again, drover cannot enter the agents created with it";
                    let error = chain(&error);
                    tracing::warn!(key, error, text, "SSH key could not be kept");
                }
            }
        }
        self.sweep(&mut used);
    }

    fn write(&self, key: &PrivateKey) -> Result<String, StoreError> {
        let print = key.fingerprint();
        let print = print.trim_start_matches("SHA256:").replace('/', "_").replace('+', "-");
        let name = format!("{FOLDER}/{print}");
        let text =
            key.to_openssh().map_err(|error| StoreError::refused(&name, "written", error))?;
        self.vault.put(&name, text.expose_secret().as_bytes())?;
        Ok(name)
    }

    /// Notes that an agent was created with a key.
    fn created(&self, agent: &AgentId, public: &str) {
        self.used().agents.insert(agent.clone(), public.to_owned());
    }

    /// Notes that an agent is gone, and removes its key if no other agent needs it. Blocks.
    fn gone(&self, agent: &AgentId) {
        let mut used = self.used();
        used.agents.remove(agent);
        self.sweep(&mut used);
    }

    fn sweep(&self, used: &mut KeyUse) {
        let unneeded: Vec<String> =
            used.names.keys().filter(|public| !used.is_needed(public)).cloned().collect();
        for public in unneeded {
            let Some(name) = used.names.remove(&public) else { continue };
            if let Err(error) = self.vault.remove(&name) {
                let error = chain(&error);
                tracing::warn!(error, "unused SSH key stays until the next start");
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
    runtime: Handle,
}

impl KeyTrackingJournal {
    /// Keys are removed on `runtime`.
    pub fn new(journal: Arc<dyn Journal>, keys: Arc<KeptKeys>, runtime: Handle) -> Self {
        Self { journal, keys, runtime }
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
        let runtime = self.runtime.clone();
        async move {
            let outcome = appended.await;
            if outcome.is_ok() {
                runtime.spawn_blocking(move || gone.iter().for_each(|agent| keys.gone(agent)));
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

    use drover_vault::MemoryVault;

    use super::*;

    fn key(seed: u8) -> PrivateKey {
        PrivateKey::from_seed(&[seed; 32], "drover-test")
    }

    fn kept(vault: &MemoryVault) -> usize {
        vault.list(FOLDER).unwrap().len()
    }

    fn agent() -> AgentId {
        AgentId::new("4f8z1c3px9t2vkab")
    }

    fn reopened(vault: &MemoryVault, agents: &[&PrivateKey]) -> (KeptKeys, Vec<String>) {
        let vault = Arc::new(vault.clone());
        let (kept_keys, keys) = KeptKeys::open(vault, &JournalState::default()).unwrap();
        for key in agents {
            kept_keys.created(&agent(), &key.public_line(""));
        }
        (kept_keys, keys.iter().map(|key| key.public_line("")).collect())
    }

    // Invariant: a key is kept while it is configured or an agent created with it exists, and no
    // longer.

    #[test]
    fn a_key_that_left_the_configuration_is_kept_as_long_as_an_agent_born_with_it() {
        let vault = &MemoryVault::default();
        let (kept_keys, keys) = reopened(vault, &[]);
        assert_eq!(keys, Vec::<String>::new());
        kept_keys.configure([&key(1)]);
        kept_keys.created(&agent(), &key(1).public_line(""));
        kept_keys.configure([&key(2)]);
        assert_eq!(kept(vault), 2);
        let (kept_keys, mut keys) = reopened(vault, &[&key(1)]);
        keys.sort();
        let mut both = [key(1).public_line(""), key(2).public_line("")];
        both.sort();
        assert_eq!(keys, both);
        kept_keys.configure([&key(2)]);
        assert_eq!(kept(vault), 2, "its agent lives");
        kept_keys.gone(&agent());
        assert_eq!(reopened(vault, &[]).1, [key(2).public_line("")]);
        kept_keys.configure([]);
        assert_eq!(kept(vault), 0);
    }

    #[test]
    fn what_is_no_key_of_drovers_is_left_alone() {
        let vault = &MemoryVault::default();
        let (kept_keys, _) = reopened(vault, &[]);
        kept_keys.configure([&key(1)]);
        vault.put(&format!("{FOLDER}/other"), b"no key").unwrap();
        assert_eq!(reopened(vault, &[]).1, [key(1).public_line("")]);
        assert_eq!(kept(vault), 2);
    }
}
