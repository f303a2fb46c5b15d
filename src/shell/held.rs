//! The private keys and the files of a shell, those of agents from before a change of the configuration too.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use drover_model::spec::SshSpec;
use drover_ssh::PrivateKey;

/// How many bytes are kept of files that left the configuration.
const FORMER_FILES_BYTES: usize = 64 << 20;

/// The private keys. An agent needs the key it was created with, whatever key its credentials id
/// names later.
#[derive(Default)]
pub(super) struct Keys {
    pub(super) by_public: BTreeMap<String, PrivateKey>,
    pub(super) by_id: BTreeMap<String, PrivateKey>,
}

impl Keys {
    /// The key of an agent. When the agent's own key is not known any more, the key that its
    /// credentials id names now is tried.
    pub(super) fn of(&self, ssh: &SshSpec) -> Option<PrivateKey> {
        let born_with = self.by_public.get(&ssh.public_key);
        born_with.or_else(|| self.by_id.get(&ssh.credentials_id)).cloned()
    }
}

#[derive(Default)]
pub(super) struct Files {
    current: BTreeMap<String, Bytes>,
    /// Files that left the configuration, the latest first.
    former: Vec<(String, Bytes)>,
}

impl Files {
    pub(super) fn of(&self, sha256: &str) -> Option<Bytes> {
        let former = || self.former.iter().find(|(known, _)| known == sha256).map(|(_, file)| file);
        self.current.get(sha256).or_else(former).cloned()
    }

    pub(super) fn replace(&mut self, files: BTreeMap<String, Bytes>) {
        let gone = std::mem::replace(&mut self.current, files);
        self.former.splice(0..0, gone);
        let (mut seen, mut sum) = (BTreeSet::new(), 0);
        let current = &self.current;
        self.former.retain(|(sha256, content)| {
            if current.contains_key(sha256) || !seen.insert(sha256.clone()) {
                return false;
            }
            sum += content.len();
            sum <= FORMER_FILES_BYTES
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: drover enters an agent with the key that the agent was created with.

    #[test]
    fn an_agent_keeps_its_key_when_another_takes_its_id() {
        let key = |seed| PrivateKey::from_seed(&[seed; 32], "drover-test");
        let mut keys = Keys::default();
        for key in [key(1), key(2)] {
            keys.by_public.insert(key.public_line(""), key.clone());
            keys.by_id.insert("ssh".into(), key);
        }
        let born_with = |key: &PrivateKey| {
            let (credentials_id, user) = ("ssh".into(), "ci".into());
            let ssh = SshSpec { credentials_id, user, port: 22, public_key: key.public_line("") };
            keys.of(&ssh).map(|key| key.public_line(""))
        };
        assert_eq!(born_with(&key(1)), Some(key(1).public_line("")));
        assert_eq!(born_with(&key(2)), Some(key(2).public_line("")));
        assert_eq!(born_with(&key(3)), Some(key(2).public_line("")), "its own is not there");
    }

    // Invariant: an agent gets the files it was created with, as long as there is room for them.

    #[test]
    fn files_that_left_the_configuration_are_kept_as_far_as_there_is_room() {
        let file = |name: &str, bytes: usize| (name.to_owned(), Bytes::from(vec![0; bytes]));
        let mut files = Files::default();
        files.replace([file("a", FORMER_FILES_BYTES / 2), file("b", 1)].into());
        files.replace([file("b", 1), file("c", FORMER_FILES_BYTES / 2)].into());
        assert!(["a", "b", "c"].iter().all(|name| files.of(name).is_some()));
        files.replace([file("d", 1)].into());
        assert!(["b", "c", "d"].iter().all(|name| files.of(name).is_some()));
        assert_eq!(files.of("a"), None, "the latest are kept first");
    }
}
