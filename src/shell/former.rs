//! Copies of the private keys for guests, in the state directory.
//!
//! An agent is logged in to with the key it was born with, for as long as it lives: also after its id in
//! the YAML stands for another key, and after a start of the service since. Secrets are not in the
//! journal, which knows the public key of each agent; the private one is kept in a file here, named by its
//! fingerprint, from the moment it is configured until it is configured no more and the last agent born
//! with it is gone. A key is kept without its passphrase, readable by the service alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use causes::chain;
use drover_model::id::AgentId;
use drover_model::ledger::Ledger;
use drover_model::ports::{Journal, JournalFault};
use drover_model::record::Body;
use drover_ssh::PrivateKey;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use secrecy::ExposeSecret;

/// The name of the folder in the state directory.
const FOLDER: &str = "ssh-keys";

/// The kept keys.
#[derive(Debug)]
pub struct FormerKeys {
    folder: PathBuf,
    used: Mutex<Used>,
}

/// Who needs which key.
#[derive(Debug, Default)]
struct Used {
    /// Public keys of the configuration.
    configured: BTreeSet<String>,
    /// The public key each living agent was born with.
    agents: BTreeMap<AgentId, String>,
    /// The file of each key that is kept, by public key.
    files: BTreeMap<String, PathBuf>,
}

impl Used {
    fn is_needed(&self, public: &str) -> bool {
        self.configured.contains(public) || self.agents.values().any(|other| other == public)
    }
}

impl FormerKeys {
    /// Opens the folder in the state directory and reads the keys that agents of the ledger were born
    /// with. A file that holds no key is left alone and told of.
    ///
    /// # Errors
    /// When the folder cannot be made or read.
    pub fn open(state: &Path, ledger: &Ledger) -> io::Result<(Self, Vec<PrivateKey>)> {
        let folder = state.join(FOLDER);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let of = |(id, entry): (&AgentId, &drover_model::ledger::AgentEntry)| {
            (id.clone(), entry.spec.ssh.public_key.clone())
        };
        let mut used = Used { agents: ledger.agents.iter().map(of).collect(), ..Used::default() };
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
                Err(error) => tracing::error!(error = chain(&error), "a kept key is of no use"),
            }
        }
        Ok((Self { folder, used: Mutex::new(used) }, keys))
    }

    /// Keeps the keys of a configuration, and removes those that nobody needs any more; blocks. One that
    /// cannot be written is told of: the configuration holds all the same.
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
                    let text = "agents born with this SSH key cannot be entered once it leaves the \
                                configuration and drover starts again";
                    tracing::warn!(key, %error, text, "an SSH key is not kept");
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

    /// An agent is born with a key.
    fn born(&self, agent: &AgentId, public: &str) {
        self.used().agents.insert(agent.clone(), public.to_owned());
    }

    /// An agent is gone, and perhaps the last that needed its key.
    fn gone(&self, agent: &AgentId) {
        let mut used = self.used();
        used.agents.remove(agent);
        Self::sweep(&mut used);
    }

    fn sweep(used: &mut Used) {
        let unneeded: Vec<String> =
            used.files.keys().filter(|public| !used.is_needed(public)).cloned().collect();
        for public in unneeded {
            let Some(path) = used.files.remove(&public) else { continue };
            if let Err(error) = fs::remove_file(&path) {
                let path = path.display();
                tracing::warn!(%path, %error, "a former SSH key stays until the next start");
            }
        }
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock()
    }
}

/// A journal that tells the kept keys which agents live.
pub struct Births {
    journal: Arc<dyn Journal>,
    keys: Arc<FormerKeys>,
}

impl Births {
    /// Writes to this journal.
    pub fn new(journal: Arc<dyn Journal>, keys: Arc<FormerKeys>) -> Self {
        Self { journal, keys }
    }
}

impl Journal for Births {
    fn append(&self, bodies: Vec<Body>) -> BoxFuture<'static, Result<u64, JournalFault>> {
        let mut gone = Vec::new();
        for body in &bodies {
            if let Body::CloneIntended { marks, spec, .. } = body {
                // Before it is durable: a key that is kept too long does no harm.
                self.keys.born(&marks.agent, &spec.ssh.public_key);
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

    fn reopened(state: &Path, agents: &[&PrivateKey]) -> (FormerKeys, Vec<String>) {
        let (former, keys) = FormerKeys::open(state, &Ledger::default()).unwrap();
        for key in agents {
            former.born(&agent(), &key.public_line(""));
        }
        (former, keys.iter().map(|key| key.public_line("")).collect())
    }

    // Invariant: a key is kept while it is configured or an agent born with it lives, for the service
    // alone, and no longer.

    #[test]
    fn a_key_that_left_the_configuration_is_kept_as_long_as_an_agent_born_with_it() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path();
        let (former, keys) = reopened(state, &[]);
        assert_eq!(keys, Vec::<String>::new());
        former.configure([&key(1)]);
        former.born(&agent(), &key(1).public_line(""));
        former.configure([&key(2)]);
        assert_eq!(kept(state), 2);
        let (former, mut keys) = reopened(state, &[&key(1)]);
        keys.sort();
        let mut both = [key(1).public_line(""), key(2).public_line("")];
        both.sort();
        assert_eq!(keys, both);
        former.configure([&key(2)]);
        assert_eq!(kept(state), 2, "its agent lives");
        former.gone(&agent());
        assert_eq!(reopened(state, &[]).1, [key(2).public_line("")]);
        former.configure([]);
        assert_eq!(kept(state), 0);
    }

    #[test]
    fn a_kept_key_is_for_its_owner_alone_and_a_half_written_one_goes() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path();
        let (former, _) = reopened(state, &[]);
        former.configure([&key(1)]);
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
