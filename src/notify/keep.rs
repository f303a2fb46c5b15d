//! Keeps what a channel sent in the vault, for the next start and the next leader.
//!
//! One write is under way at most. A vault that hangs, such as one on a network share, holds one thread of a
//! channel for so long, and no older state comes after a newer one.

use std::sync::Arc;
use std::time::Duration;

use causes::chain;
use drover_vault::{StoreError, Vault};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{interval, timeout};

use super::mind::{Mind, State};

/// Where in the vault the states of channels are.
pub(crate) const FOLDER: &str = "notify";
/// How long the vault may take.
const VAULT_LIMIT: Duration = Duration::from_secs(15);
/// How often reading what was sent is tried, with [`READ_INTERVAL`] between two tries.
const READS: u32 = 5;
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// What is kept of one channel.
pub(crate) struct Keeper {
    vault: Arc<dyn Vault>,
    channel: String,
    /// A write that took longer than the limit.
    hangs: Option<JoinHandle<Result<(), StoreError>>>,
    /// Whether something could not be kept meanwhile.
    is_behind: bool,
    /// How long the vault may take.
    limit: Duration,
}

impl Keeper {
    pub(crate) fn new(vault: Arc<dyn Vault>, channel: &str) -> Self {
        Self::within(vault, channel, VAULT_LIMIT)
    }

    pub(crate) fn within(vault: Arc<dyn Vault>, channel: &str, limit: Duration) -> Self {
        Self { vault, channel: channel.to_owned(), hangs: None, is_behind: false, limit }
    }

    fn late(&self) -> String {
        format!("no answer within {} s", self.limit.as_secs())
    }

    fn place(&self) -> String {
        format!("{FOLDER}/{}", self.channel)
    }

    /// What the channel sent before; nothing where it cannot be read, so that some may be sent twice.
    pub(crate) async fn read(&self) -> State {
        let mut waits = interval(READ_INTERVAL);
        let mut under_way = None;
        for _ in 0..READS {
            waits.tick().await;
            let (vault, place) = (Arc::clone(&self.vault), self.place());
            let start = || spawn_blocking(move || vault.get(&place));
            let mut reading = under_way.take().unwrap_or_else(start);
            let why = match timeout(self.limit, &mut reading).await {
                Ok(Ok(Ok(None))) => return State::default(),
                Ok(Ok(Ok(Some(bytes)))) => match serde_json::from_slice(&bytes) {
                    Ok(state) => return state,
                    Err(error) => chain(&error),
                },
                Ok(Ok(Err(error))) => chain(&error),
                Ok(Err(error)) => error.to_string(),
                Err(_) => {
                    under_way = Some(reading);
                    self.late()
                }
            };
            tracing::warn!(channel = self.channel, error = why, "what was sent cannot be read");
        }
        State::default()
    }

    /// Keeps what a mind knows. Where that fails, drover sends all the same.
    pub(crate) async fn keep(&mut self, mind: &Mind) {
        if let Err(why) = self.put(mind).await {
            tracing::warn!(
                channel = self.channel,
                error = why,
                "what is sent cannot be kept: after a restart it may be sent again"
            );
        }
    }

    /// Keeps what could not be kept while the vault hung.
    pub(crate) async fn catch_up(&mut self, mind: &Mind) {
        if self.is_behind && !self.is_hanging() {
            self.keep(mind).await;
        }
    }

    fn is_hanging(&self) -> bool {
        self.hangs.as_ref().is_some_and(|write| !write.is_finished())
    }

    async fn put(&mut self, mind: &Mind) -> Result<(), String> {
        if self.is_hanging() {
            self.is_behind = true;
            return Err("the write before has not ended".to_owned());
        }
        (self.hangs, self.is_behind) = (None, false);
        let bytes = serde_json::to_vec(&mind.kept()).map_err(|error| chain(&error))?;
        let (vault, place) = (Arc::clone(&self.vault), self.place());
        let mut write = spawn_blocking(move || vault.put(&place, &bytes));
        match timeout(self.limit, &mut write).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(error))) => Err(chain(&error)),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => {
                self.hangs = Some(write);
                Err(self.late())
            }
        }
    }
}
