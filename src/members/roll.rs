//! Who the members are. Each writes a card into the vault again and again; the others see it change.
//!
//! A member is live while its card changes. Nothing is decided on a card that stands still but that
//! its member is not asked whether it agrees: who leads is the leader lease's affair.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use causes::chain;
use drover_model::ports::Ambient;
use drover_model::time::Moment;
use drover_vault::{StoreError, Vault};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// The folder of the vault.
const FOLDER: &str = "members";
/// A card is written so many times in the time that the leader holds the lease.
const CARDS: u32 = 2;
/// A member whose card stands still for so many times that time is not live.
const SILENT: u32 = 3;
/// The most members that are read.
const MEMBERS_MAX: usize = 64;

/// What a member says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Card {
    pub name: String,
    /// What no other process has.
    pub process: String,
    /// The URL where other members reach it.
    pub url: String,
    /// The version of its drover.
    pub drover: String,
    /// The digest of the configuration that it has.
    pub config: String,
    /// Whether it leads.
    pub leads: bool,
    /// Why it does not lead and would not; none where it would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfit: Option<String>,
    /// Why it cannot use its newest configuration; none where it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Rises with each card.
    pub beat: u64,
}

/// A member as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub card: Card,
    /// How long its card has stood still.
    pub silent: Duration,
    /// Whether its card changes, or was seen for too short a time to say that it does not.
    pub live: bool,
}

/// This member's place among the others, until it is dropped.
pub struct Roll {
    own: mpsc::Sender<Card>,
    listed: watch::Receiver<Vec<Listed>>,
    thread: JoinHandle<()>,
}

struct Runner {
    vault: Arc<dyn Vault>,
    ambient: Arc<dyn Ambient>,
    hold: Duration,
    own: Card,
    /// Each member's last card, and when it came.
    seen: BTreeMap<String, (Card, Moment)>,
    listed: watch::Sender<Vec<Listed>>,
    failed: bool,
}

impl Roll {
    /// Writes this member's card from now on, and reads the others'.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(
        own: Card,
        vault: Arc<dyn Vault>,
        ambient: Arc<dyn Ambient>,
        hold: Duration,
    ) -> io::Result<Self> {
        let (says, listed) = watch::channel(Vec::new());
        let (sender, cards) = mpsc::channel();
        let mut runner = Runner {
            vault,
            ambient,
            hold,
            own,
            seen: BTreeMap::new(),
            listed: says,
            failed: false,
        };
        let thread = std::thread::Builder::new().name("roll".into()).spawn(move || {
            loop {
                runner.turn();
                match cards.recv_timeout(hold / CARDS) {
                    Ok(card) => runner.own = Card { beat: runner.own.beat, ..card },
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                    Err(mpsc::RecvTimeoutError::Disconnected) => return runner.leave(),
                }
            }
        })?;
        Ok(Self { own: sender, listed, thread })
    }

    /// Takes this member's card away. Blocks.
    pub fn leave(self) {
        drop(self.own);
        // A thread that panicked leaves its card behind, which stands still.
        let _ = self.thread.join();
    }

    /// Says something else from now on.
    pub fn say(&self, card: Card) {
        // A thread that panicked shows by a card that stands still.
        let _ = self.own.send(card);
    }

    /// All members, by name, and news of them.
    pub fn listed(&self) -> watch::Receiver<Vec<Listed>> {
        self.listed.clone()
    }
}

/// For how long the card of a member stands still until the member is not live.
pub fn silent_after(hold: Duration) -> Duration {
    hold * SILENT
}

/// Takes the card of a member away. Blocks.
///
/// # Errors
/// When the store does not take that.
pub fn forget(vault: &dyn Vault, name: &str) -> Result<(), StoreError> {
    vault.remove(&format!("{FOLDER}/{name}"))
}

/// The cards of all members as they are now, by name. Blocks.
///
/// # Errors
/// When one of them cannot be read.
pub fn cards(vault: &dyn Vault) -> Result<BTreeMap<String, Card>, StoreError> {
    let mut cards = BTreeMap::new();
    for name in vault.list(FOLDER)?.into_iter().take(MEMBERS_MAX) {
        let Some(bytes) = vault.get(&format!("{FOLDER}/{name}"))? else { continue };
        let card = serde_json::from_slice::<Card>(&bytes);
        cards.insert(name, card.map_err(|error| StoreError::refused(FOLDER, "read", error))?);
    }
    Ok(cards)
}

impl Runner {
    fn turn(&mut self) {
        self.own.beat += 1;
        let done = self.write().and_then(|()| self.read());
        match &done {
            Err(error) if !self.failed => {
                tracing::warn!(error = chain(error), "the members cannot be listed");
            }
            Err(_) | Ok(()) => {}
        }
        self.failed = done.is_err();
    }

    fn write(&self) -> Result<(), StoreError> {
        let name = format!("{FOLDER}/{}", self.own.name);
        let card = serde_json::to_vec(&self.own);
        let card = card.map_err(|error| StoreError::refused(&name, "written", error))?;
        self.vault.put(&name, &card)
    }

    fn read(&mut self) -> Result<(), StoreError> {
        let cards = cards(&*self.vault)?;
        self.see(cards, self.ambient.now().mono);
        Ok(())
    }

    fn see(&mut self, cards: BTreeMap<String, Card>, now: Moment) {
        self.seen.retain(|name, _| cards.contains_key(name));
        for (name, card) in cards {
            let stands = self.seen.get(&name).is_some_and(|(before, _)| {
                (before.beat, &before.process) == (card.beat, &card.process)
            });
            if !stands {
                self.seen.insert(name, (card, now));
            }
        }
        let listed = self.seen.values().map(|(card, at)| {
            let silent = now - *at;
            Listed { card: card.clone(), silent, live: silent < silent_after(self.hold) }
        });
        self.listed.send_replace(listed.collect());
    }

    /// A member that leaves in order is not missed.
    fn leave(&mut self) {
        let name = format!("{FOLDER}/{}", self.own.name);
        if let Err(error) = self.vault.remove(&name) {
            tracing::debug!(error = chain(&error), "the card of this member stays");
        }
    }
}
