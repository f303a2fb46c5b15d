//! Carries out what the minds of the channels decide: one task for each channel, which looks each second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use causes::chain;
use drover_model::time::WallTime;
use drover_vault::Vault;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::Trouble;
use super::carry::{Carrier, Delivered, Failure};
use super::keep::{FOLDER, Keeper};
use super::mind::{self, Effect, Event, Mind};
use super::settings::{Channel, Settings};

/// How often a channel looks at what is wrong.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What a notifier uses.
#[derive(Clone)]
pub struct Ports {
    /// All that is wrong now; none where that is not known yet.
    pub standing: Arc<dyn Fn() -> Option<Vec<Trouble>> + Send + Sync>,
    /// The time of the wall.
    pub now: Arc<dyn Fn() -> WallTime + Send + Sync>,
    /// Whether this member may send now.
    pub leads: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Called with the channels in trouble, whenever one is or is no more.
    pub report: Arc<dyn Fn(Vec<ChannelTrouble>) + Send + Sync>,
    pub vault: Arc<dyn Vault>,
    pub carrier: Arc<dyn Carrier>,
    /// Who sends, for people.
    pub from: String,
    pub runtime: Handle,
}

/// A channel that does not send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelTrouble {
    pub channel: String,
    pub since: WallTime,
    pub text: String,
}

/// What a test message came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tested {
    pub channel: String,
    /// Such as `mail`.
    pub via: &'static str,
    pub result: Result<Delivered, Failure>,
}

/// The notifications of this service. They end with it.
pub struct Notifier {
    ports: Ports,
    held: Mutex<Held>,
    troubles: Troubles,
}

#[derive(Default)]
struct Held {
    settings: Settings,
    tasks: BTreeMap<String, JoinHandle<()>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.tasks.values().for_each(JoinHandle::abort);
    }
}

impl Notifier {
    /// Sends over the channels of these settings.
    pub fn start(ports: Ports, settings: &Settings) -> Self {
        let troubles = Troubles::new(Arc::clone(&ports.report));
        let notifier = Self { ports, held: Mutex::default(), troubles };
        notifier.configure(settings);
        notifier
    }

    /// Takes other settings. Channels that stay as they are go on.
    pub fn configure(&self, settings: &Settings) {
        let mut held = self.held.lock();
        let before = std::mem::replace(&mut held.settings, settings.clone());
        let is_same = |settings: &Settings, other: &Settings, name: &str| {
            let bare = |settings: &Settings| Settings { channels: Vec::new(), ..settings.clone() };
            let of = |settings: &Settings| {
                settings.channels.iter().find(|one| one.name == name).cloned()
            };
            bare(settings) == bare(other) && of(settings) == of(other)
        };
        held.tasks.retain(|name, task| {
            let stays = is_same(&before, settings, name);
            if !stays {
                task.abort();
                self.troubles.set(name, None);
            }
            stays
        });
        for channel in &settings.channels {
            if held.tasks.contains_key(&channel.name) {
                continue;
            }
            let bare = Settings { channels: Vec::new(), ..settings.clone() };
            let task = Task {
                channel: channel.clone(),
                settings: bare,
                ports: self.ports.clone(),
                troubles: self.troubles.clone(),
            };
            held.tasks.insert(channel.name.clone(), self.ports.runtime.spawn(task.run()));
        }
        let names: Vec<String> = settings.channels.iter().map(|one| one.name.clone()).collect();
        let vault = Arc::clone(&self.ports.vault);
        self.ports.runtime.spawn_blocking(move || forget_others(&*vault, &names));
    }

    /// Sends a test message over a channel, or over all; none where there is no such channel.
    pub async fn test(&self, channel: Option<&str>) -> Option<Vec<Tested>> {
        let settings = self.held.lock().settings.clone();
        let is_meant = |one: &&Channel| channel.is_none_or(|name| one.name == name);
        let channels: Vec<&Channel> = settings.channels.iter().filter(is_meant).collect();
        if channels.is_empty() && channel.is_some() {
            return None;
        }
        let Ports { now, carrier, from, .. } = &self.ports;
        let at = now();
        let tests = channels.into_iter().map(async |one| {
            let message = mind::test_message(&settings, &one.name, from, at);
            let result = carrier.send(one, &message).await;
            Tested { channel: one.name.clone(), via: one.via.word(), result }
        });
        Some(join_all(tests).await)
    }

    /// The names of all channels.
    pub fn channels(&self) -> Vec<String> {
        self.held.lock().settings.channels.iter().map(|one| one.name.clone()).collect()
    }
}

/// Removes what channels sent that are configured no more.
fn forget_others(vault: &dyn Vault, names: &[String]) {
    let all = match vault.list(FOLDER) {
        Ok(all) => all,
        Err(error) => {
            tracing::debug!(error = chain(&error), "what channels sent cannot be listed");
            return;
        }
    };
    for name in all.iter().filter(|name| !names.contains(name)) {
        if let Err(error) = vault.remove(&format!("{FOLDER}/{name}")) {
            tracing::debug!(error = chain(&error), name, "what a channel sent cannot be removed");
        }
    }
}

/// The channels in trouble.
#[derive(Clone)]
struct Troubles {
    all: Arc<Mutex<BTreeMap<String, ChannelTrouble>>>,
    report: Arc<dyn Fn(Vec<ChannelTrouble>) + Send + Sync>,
}

impl Troubles {
    fn new(report: Arc<dyn Fn(Vec<ChannelTrouble>) + Send + Sync>) -> Self {
        Self { all: Arc::default(), report }
    }

    /// Notes what is wrong with a channel, or that nothing is.
    fn set(&self, channel: &str, trouble: Option<(WallTime, String)>) {
        let mut all = self.all.lock();
        match trouble {
            Some((now, text)) => {
                let since = all.get(channel).map_or(now, |before| before.since);
                let one = ChannelTrouble { channel: channel.to_owned(), since, text };
                all.insert(channel.to_owned(), one);
            }
            None if all.remove(channel).is_none() => return,
            None => {}
        }
        (self.report)(all.values().cloned().collect());
    }
}

/// One channel at work.
struct Task {
    channel: Channel,
    settings: Settings,
    ports: Ports,
    troubles: Troubles,
}

impl Task {
    async fn run(self) {
        let mut keeper = Keeper::new(Arc::clone(&self.ports.vault), &self.channel.name);
        let state = keeper.read().await;
        let named = (self.channel.name.as_str(), &self.channel.wanted);
        let mut mind = Mind::new(&self.settings, named, &self.ports.from, state);
        let mut looks = interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            if !(self.ports.leads)() {
                continue;
            }
            keeper.catch_up(&mind).await;
            let Some(standing) = (self.ports.standing)() else { continue };
            let mut effects = mind.step(&Event::Stands(&standing), (self.ports.now)());
            while !effects.is_empty() {
                let (mut result, mut may_send) = (None, true);
                for effect in effects {
                    match effect {
                        Effect::Keep => keeper.keep(&mind).await,
                        // Another member may lead since the look, and send the same: to keep takes a while.
                        Effect::Send(_) if !(self.ports.leads)() => may_send = false,
                        Effect::Send(message) => {
                            result = Some(self.ports.carrier.send(&self.channel, &message).await);
                            self.log(&message.id, result.as_ref());
                        }
                        Effect::Trouble(text) => {
                            let trouble = text.map(|text| ((self.ports.now)(), text));
                            self.troubles.set(&self.channel.name, trouble);
                        }
                    }
                }
                let now = (self.ports.now)();
                effects = match &result {
                    Some(Ok(Delivered { refused, .. })) => {
                        let mut effects = mind.step(&Event::Sent, now);
                        if let Some(refused) = refused {
                            effects.push(Effect::Trouble(Some(refused.clone())));
                        }
                        effects
                    }
                    Some(Err(failure)) => mind.step(&Event::Failed(failure), now),
                    None if !may_send => mind.step(&Event::Unsent, now),
                    None => Vec::new(),
                };
            }
        }
    }

    fn log(&self, message: &str, result: Option<&Result<Delivered, Failure>>) {
        let channel = &self.channel.name;
        match result {
            Some(Ok(Delivered { answer, refused: None })) => {
                tracing::info!(channel, notification = message, answer, "notification sent");
            }
            Some(Ok(Delivered { answer: _, refused: Some(error) })) => {
                tracing::warn!(
                    channel,
                    notification = message,
                    error,
                    "notification sent to some only"
                );
            }
            Some(Err(error)) => {
                tracing::warn!(channel, notification = message, %error, "notification not sent; drover tries again");
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests;
