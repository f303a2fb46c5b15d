//! Follows the configuration in the store, on a thread of its own.

use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use causes::chain;
use drover_config::Environment;
use drover_config::watch::Trigger;
use drover_members::{ConfigStore, ShardConfig};
use drover_model::time::WallTime;
use parking_lot::Mutex;

use super::kept::KeptConfigs;
use super::trouble::StoreTrouble;

/// How often the store is read.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// What is shown of a store from which somebody took the configuration away.
const NONE_THERE: &str =
    "the store has no configuration any more: `drover shard-config put --expect 0` puts one there";

/// Follows the store until it is dropped.
pub(in crate::app) struct Follower {
    trigger: Arc<Mutex<Option<Trigger>>>,
    trouble: StoreTrouble,
    _ends: mpsc::Sender<()>,
}

/// What is done on the thread.
struct Runner {
    store: ConfigStore,
    kept: KeptConfigs,
    environment: Environment,
    /// Reads the files again for those who use them now.
    trigger: Arc<Mutex<Option<Trigger>>>,
    /// What was logged last; none while all is well.
    logged: Option<String>,
    /// What is shown, where a store that is silent does not belong.
    shown: StoreTrouble,
}

impl Follower {
    /// Follows from now on.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(super) fn start(
        store: ConfigStore,
        kept: KeptConfigs,
        environment: Environment,
    ) -> io::Result<Self> {
        let (trigger, trouble) =
            (Arc::<Mutex<Option<Trigger>>>::default(), StoreTrouble::default());
        let (ends, ended) = mpsc::channel();
        let runner = Runner {
            store,
            kept,
            environment,
            trigger: Arc::clone(&trigger),
            logged: None,
            shown: trouble.clone(),
        };
        let thread = std::thread::Builder::new().name("shard-config".into());
        thread.spawn(move || runner.run(&ended))?;
        Ok(Self { trigger, trouble, _ends: ends })
    }

    /// From now on this one has the files read again when there are new ones.
    pub(in crate::app) fn serves(&self, trigger: Trigger) {
        *self.trigger.lock() = Some(trigger);
    }

    /// What is wrong with the configuration in the store, as it is found.
    pub(in crate::app) fn trouble(&self) -> StoreTrouble {
        self.trouble.clone()
    }
}

impl Runner {
    fn run(mut self, ended: &mpsc::Receiver<()>) {
        while ended.recv_timeout(POLL_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
            self.turn();
        }
    }

    fn turn(&mut self) {
        match self.store.read() {
            Ok(Some(found)) => self.found(&found.config),
            Ok(None) => self.refuse(NONE_THERE.to_owned()),
            Err(error) if error.is_refusal() => self.refuse(chain(&error)),
            Err(error) => self.log(&chain(&error)),
        }
    }

    fn found(&mut self, config: &ShardConfig) {
        self.shown.note(None, now());
        if self.logged.take().is_some() {
            tracing::info!("the configuration of the store is read again");
        }
        if self.kept.named_latest().as_deref() == Some(&*config.id()) {
            return;
        }
        // A secret may have come since the one before was refused.
        drop(self.kept.accept(&self.environment));
        if let Err(error) = self.kept.put(config) {
            return self.refuse(format!("it cannot be kept in the state directory: {error}"));
        }
        let (number, by) = (config.number, &config.put_by);
        tracing::info!(number, by, "the store has another configuration");
        if let Some(trigger) = &*self.trigger.lock() {
            trigger.pull();
        }
        drop(self.kept.accept(&self.environment));
    }

    /// Shows that what the store has cannot be used.
    fn refuse(&mut self, text: String) {
        self.log(&text);
        self.shown.note(Some(text), now());
    }

    /// Logs what is in the way, once.
    fn log(&mut self, text: &str) {
        if self.logged.as_deref() != Some(text) {
            tracing::warn!(
                "configuration of the store not read, the old one stays in force: {text}"
            );
            self.logged = Some(text.to_owned());
        }
    }
}

fn now() -> WallTime {
    WallTime(jiff::Timestamp::now().as_millisecond())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use drover_vault::{ClusterKey, Entry, Register, StoreError, Version};

    use super::*;

    const GOOD: &str = "cloudConfigurations:\n  a: {name: A, apiUrl: \"https://127.0.0.1:1\", \
        credentialsId: t}\ncredentials:\n  t: {kind: proxmoxToken, tokenId: a@pve!a, secret: x-y-z}\n";

    /// A register whose entry somebody damages or deletes, or that does not answer.
    #[derive(Clone, Default)]
    struct Fragile(Arc<Mutex<Option<Option<Vec<u8>>>>>);

    impl Register for Fragile {
        fn place(&self) -> String {
            "fragile".to_owned()
        }

        fn read(&self, name: &str) -> Result<Option<Entry>, StoreError> {
            let silent = || StoreError::refused(name, "read", "no answer");
            let bytes = self.0.lock().clone().ok_or_else(silent)?;
            Ok(bytes.map(|bytes| Entry { bytes, version: Version("1".to_owned()) }))
        }

        fn write(
            &self,
            _: &str,
            _: Option<&Version>,
            bytes: &[u8],
        ) -> Result<Option<Version>, StoreError> {
            *self.0.lock() = Some(Some(bytes.to_owned()));
            Ok(Some(Version("1".to_owned())))
        }
    }

    // Invariant: what the store has is shown as refused while that cannot be used, and a store that is silent
    // changes nothing of that.

    #[test]
    fn a_configuration_that_was_damaged_or_deleted_is_shown_until_it_is_back() {
        let dir = tempfile::tempdir().unwrap();
        let key = ClusterKey::new(&"0123456789abcdef0123456789abcdef".into()).unwrap();
        let register = Fragile::default();
        let store = ConfigStore::new(Arc::new(register.clone()), &key);
        let files = [("drover.yaml".to_owned(), GOOD.to_owned())].into();
        let config = ShardConfig::after(None, files, (String::new(), String::new())).unwrap();
        store.put(None, &config).unwrap();
        let sound = register.0.lock().clone();
        let refused = StoreTrouble::default();
        let mut runner = Runner {
            store,
            kept: KeptConfigs::at(dir.path()),
            environment: Environment::default(),
            trigger: Arc::default(),
            logged: None,
            shown: refused.clone(),
        };
        let mut shown = |entry: Option<Option<Vec<u8>>>| {
            *register.0.lock() = entry;
            runner.turn();
            refused.now().map(|(_, text)| text)
        };
        assert_eq!(shown(sound.clone()), None);
        assert_eq!(shown(None), None, "a store that is silent says nothing");
        assert_eq!(shown(Some(None)).as_deref(), Some(NONE_THERE));
        assert_eq!(shown(None).as_deref(), Some(NONE_THERE));
        let damaged = shown(Some(Some(b"a: 1".to_vec()))).unwrap();
        assert!(damaged.contains("cannot be opened"), "{damaged}");
        assert_eq!(shown(sound), None);
    }
}
