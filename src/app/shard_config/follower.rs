//! Follows the configuration in the store, on a thread of its own.

use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use causes::chain;
use drover_config::Environment;
use drover_config::watch::{Change, Outcome, Trigger};
use drover_members::{ConfigStore, ShardConfig};
use parking_lot::Mutex;

use super::kept::KeptConfigs;

/// How often the store is read.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Follows the store until it is dropped.
pub(in crate::app) struct Follower {
    term: Arc<Mutex<Option<Term>>>,
    _ends: mpsc::Sender<()>,
}

/// Those who use the configuration now.
struct Term {
    outcomes: tokio::sync::mpsc::Sender<Outcome>,
    trigger: Trigger,
    /// The last refusal that they heard.
    refused: Option<String>,
}

/// What is done on the thread.
struct Runner {
    store: ConfigStore,
    kept: KeptConfigs,
    environment: Environment,
    term: Arc<Mutex<Option<Term>>>,
    /// What was logged last; none while all is well.
    trouble: Option<String>,
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
        let term = Arc::new(Mutex::new(None));
        let (ends, ended) = mpsc::channel();
        let runner = Runner { store, kept, environment, term: Arc::clone(&term), trouble: None };
        let thread = std::thread::Builder::new().name("shard-config".into());
        thread.spawn(move || runner.run(&ended))?;
        Ok(Self { term, _ends: ends })
    }

    /// From now on these hear what cannot be used, and read the files again when there are new ones.
    pub(in crate::app) fn serves(
        &self,
        outcomes: tokio::sync::mpsc::Sender<Outcome>,
        trigger: Trigger,
    ) {
        *self.term.lock() = Some(Term { outcomes, trigger, refused: None });
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
            Ok(None) => self.trouble("the store has no configuration any more"),
            Err(error) if error.is_refusal() => {
                let text = chain(&error);
                self.trouble(&text);
                self.refuse(text);
            }
            Err(error) => self.trouble(&chain(&error)),
        }
    }

    fn found(&mut self, config: &ShardConfig) {
        if self.trouble.take().is_some() {
            tracing::info!("the configuration of the store is read again");
        }
        if self.kept.named_latest().as_deref() == Some(&*config.id()) {
            self.recover();
            return;
        }
        // A secret may have come since the one before was refused.
        self.kept.accept(&self.environment);
        if let Err(error) = self.kept.put(config) {
            return self.trouble(&format!("the configuration cannot be kept: {error}"));
        }
        let (number, by) = (config.number, &config.put_by);
        tracing::info!(number, by, "the store has another configuration");
        self.pull();
        self.kept.accept(&self.environment);
    }

    /// Logs what is in the way, once.
    fn trouble(&mut self, text: &str) {
        if self.trouble.as_deref() != Some(text) {
            tracing::warn!(
                "configuration of the store not read, the old one stays in force: {text}"
            );
            self.trouble = Some(text.to_owned());
        }
    }

    /// Reports what cannot be used as a file with faults is, once in each term.
    fn refuse(&self, text: String) {
        let mut term = self.term.lock();
        let Some(term) = term.as_mut().filter(|term| term.refused.as_ref() != Some(&text)) else {
            return;
        };
        let outcome = Outcome { change: Change::Refused(text.clone()), answers: 0 };
        // Where they are busy, the next turn tries again.
        if term.outcomes.try_send(outcome).is_ok() {
            term.refused = Some(text);
        }
    }

    /// Takes a refusal back: the files are read again, and are in force.
    fn recover(&self) {
        let mut term = self.term.lock();
        if let Some(term) = term.as_mut().filter(|term| term.refused.is_some()) {
            term.refused = None;
            term.trigger.pull();
        }
    }

    fn pull(&self) {
        if let Some(term) = self.term.lock().as_mut() {
            term.refused = None;
            term.trigger.pull();
        }
    }
}
