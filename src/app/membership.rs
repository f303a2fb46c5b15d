//! This process as one member of a store: its part in the election, and its card among the others'.
//!
//! It lives as long as the process, over all its terms as leader and the times between.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use causes::chain;
use drover_api::faults_in_one_line;
use drover_config::StoreSpec;
use drover_journal::{Follower, Log, LogError, Opened, Writer, WriterOptions};
use drover_members::{Card, Election, Leader, Listed, Role, Roll, SendBy, Settings};
use drover_model::machine::Machine;
use drover_model::ports::Ambient;
use drover_model::time::WallTime;
use drover_server::NotForgotten;
use drover_vault::{ClusterKey, SealedVault, StoreError, Vault};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use super::agreement::Configs;
use super::shard_config::StoreTrouble;
use super::vaults::LeadersVault;
use super::{RunError, agreement};

/// What the digest of a configuration is made for.
const CONFIGURATION: &str = "drover configuration 1";
/// How long a new leader waits for its last look into the journal as a standby.
const LOOK_LIMIT: Duration = Duration::from_secs(2);
/// The most characters of a refusal on a card.
const REFUSED_CHARS: usize = 500;
/// How long a leader that gives up waits for that to be written.
const GIVE_UP_LIMIT: Duration = Duration::from_secs(3);

/// How a member is called and reached.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub(super) name: String,
    pub(super) url: String,
}

/// This process among the members.
pub(super) struct Membership {
    spec: StoreSpec,
    identity: Identity,
    process: String,
    vault: Arc<dyn Vault>,
    election: Election,
    role: watch::Receiver<Role>,
    listed: watch::Receiver<Vec<Listed>>,
    roll: Mutex<Option<Roll>>,
    said: Mutex<Said>,
    followed: Mutex<Followed>,
    /// Why it cannot read the journal that the members share.
    unreadable: Mutex<Option<String>>,
    /// What is wrong with the configuration in the store; none where the members have files of their own.
    stored: Option<StoreTrouble>,
}

/// The journal as far as a standby has followed it, and the way to it.
#[derive(Default)]
struct Followed {
    log: Option<Box<dyn Log>>,
    follower: Follower,
}

/// What this member says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Said {
    /// The digest of the files that it has.
    own: String,
    /// The digests of what it had before and can still lead with.
    held: Vec<String>,
    /// The digest of the configuration in force that it may replace.
    replaces: Option<String>,
    unfit: Option<String>,
    /// Why its files are refused.
    refused: Option<String>,
    /// What is wrong with the configuration in the store.
    store_trouble: Option<String>,
    leads: bool,
}

/// Checks a member's name: it is part of names in the store.
///
/// # Errors
/// [`RunError::Member`].
pub(super) fn check_name(name: &str) -> Result<(), RunError> {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' || byte == b'.';
    let good = (1..=63).contains(&name.len()) && name.bytes().all(plain) && !name.ends_with(".new");
    if good {
        return Ok(());
    }
    Err(RunError::Member(format!(
        "`{name}` is no name of a member: give one with --member, of at most 63 letters, digits, `-`, \
         `_` and `.`"
    )))
}

/// The URL where others reach this member, unless one is given: the address that it listens on, or the
/// machine's name where it listens on all.
pub(super) fn url(listens: SocketAddr, host: &str) -> String {
    if listens.ip().is_unspecified() {
        format!("http://{host}:{}", listens.port())
    } else {
        format!("http://{listens}")
    }
}

/// The URL that an operator gives, without a slash at its end.
///
/// # Errors
/// [`RunError::Member`] for what other members cannot call.
pub(super) fn advertised(text: &str) -> Result<String, RunError> {
    let url = reqwest::Url::parse(text).ok().filter(|url| {
        let plain = url.username().is_empty() && url.query().is_none() && url.fragment().is_none();
        plain && url.scheme() == "http" && url.has_host() && url.path() == "/"
    });
    match url {
        Some(_) => Ok(text.trim_end_matches('/').to_owned()),
        None => Err(RunError::Member(format!(
            "`{text}` is no URL of a member: give --advertise as http://HOST:PORT"
        ))),
    }
}

impl Membership {
    /// Takes part from now on. Blocks.
    ///
    /// # Errors
    /// [`RunError::Beside`] where the store cannot be read, or its members have another key.
    pub(super) fn start(
        spec: &StoreSpec,
        identity: Identity,
        (agreed_text, stored): (&[u8], Option<StoreTrouble>),
        ambient: &Arc<dyn Ambient>,
    ) -> Result<Arc<Self>, RunError> {
        let beside = |source| RunError::Beside { place: spec.address.to_string(), source };
        let vault = spec.address.vault().map_err(beside)?;
        let vault = SealedVault::new(vault, &spec.key);
        vault.mark_if_new().map_err(beside)?;
        let vault: Arc<dyn Vault> = Arc::new(vault);
        let register = spec.address.register().map_err(beside)?;
        let process = format!("{:016x}{:016x}", ambient.draw(), ambient.draw());
        let own = digest(&spec.key, agreed_text);
        let said = Said { own, ..Said::default() };
        let system = |source| RunError::System { doing: "cannot start a thread", source };
        let settings = settings(spec, &identity, &process, &said);
        let election = Election::start(settings, register, Arc::clone(ambient)).map_err(system)?;
        let card = card(&identity, &process, &said);
        let roll = Roll::start(card, Arc::clone(&vault), Arc::clone(ambient), spec.leader_lease);
        let roll = roll.map_err(system)?;
        Ok(Arc::new(Self {
            spec: spec.clone(),
            identity,
            process,
            vault,
            role: election.role(),
            election,
            listed: roll.listed(),
            roll: Mutex::new(Some(roll)),
            said: Mutex::new(said),
            followed: Mutex::default(),
            unreadable: Mutex::default(),
            stored,
        }))
    }

    pub(super) fn name(&self) -> &str {
        &self.identity.name
    }

    /// The store, for people.
    pub(super) fn place(&self) -> String {
        self.spec.address.to_string()
    }

    pub(super) fn key(&self) -> &ClusterKey {
        &self.spec.key
    }

    pub(super) fn role(&self) -> watch::Receiver<Role> {
        self.role.clone()
    }

    pub(super) fn listed(&self) -> watch::Receiver<Vec<Listed>> {
        self.listed.clone()
    }

    pub(super) fn send_by(&self) -> SendBy {
        self.election.send_by()
    }

    /// What lies beside the journal, for a service of this member while it may send.
    pub(super) fn leaders_vault(&self, send_by: &SendBy) -> Arc<dyn Vault> {
        Arc::new(LeadersVault::new(Arc::clone(&self.vault), send_by.clone()))
    }

    /// Reads what is new in the journal, so that little is left to read at a takeover. Blocks.
    pub(super) fn follow_journal(&self) {
        // A look that still waits for the store is enough.
        let Some(mut followed) = self.followed.try_lock() else { return };
        let Followed { log, follower } = &mut *followed;
        let read = match log {
            Some(log) => follower.follow(&**log),
            None => self.spec.address.log().and_then(|new| follower.follow(&**log.insert(new))),
        };
        match read {
            Ok(records) => {
                tracing::trace!(records, "journal followed");
                *self.unreadable.lock() = None;
            }
            Err(error) => {
                tracing::debug!(error = chain(&error), "journal not followed");
                self.cannot_read(&error);
            }
        }
    }

    /// Whether this member can never lead with the journal as it is: it wins no more then, and says so.
    pub(super) fn cannot_read(&self, error: &LogError) -> bool {
        let never = matches!(error, LogError::Newer { .. } | LogError::Unknown { .. });
        if never {
            *self.unreadable.lock() = Some(chain(error));
        }
        never
    }

    /// Opens the journal, from where it was followed to. Blocks.
    ///
    /// # Errors
    /// As [`Writer::open`].
    pub(super) fn open_journal(&self, ambient: &Arc<dyn Ambient>) -> Result<Opened, LogError> {
        let log = self.spec.address.log()?;
        let (ambient, options) = (Arc::clone(ambient), WriterOptions::default());
        // What was followed stays: a member that leads again soon reads what is new since, and not all of it.
        match self.followed.try_lock_for(LOOK_LIMIT) {
            Some(mut followed) => {
                Writer::open_followed(log, &mut followed.follower, ambient, options)
            }
            // A look waits for a store that did not answer.
            None => Writer::open_any(log, ambient, options),
        }
    }

    /// What stands for the machine that the journal belongs to: all members have the same.
    pub(super) fn machine(&self) -> Machine {
        let digest = Sha256::digest(format!("drover/store/{}", self.spec.address.name()));
        let id = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Machine { id: Some(id), ..Machine::default() }
    }

    /// For how long nobody led before this member did, as far as the wall clocks of both say.
    pub(super) fn down(&self, now: WallTime) -> Duration {
        self.role.borrow().led_until.map_or(Duration::ZERO, |until| now - WallTime(until))
    }

    /// The digest of a configuration.
    pub(super) fn digest(&self, agreed_text: &[u8]) -> String {
        digest(&self.spec.key, agreed_text)
    }

    /// The files of this member have this configuration now, and it can still lead with those before.
    pub(super) fn has(&self, digest: String, before: Vec<String>) {
        self.say(|said| (said.own, said.held) = (digest, before));
    }

    /// The files of this member are refused for these faults, or have none.
    pub(super) fn refuses(&self, faults: Option<&str>) {
        self.say(|said| said.refused = faults.map(faults_in_one_line));
    }

    /// As the leader, this member has put this configuration in force.
    pub(super) fn put_in_force(&self, digest: String) {
        self.election.put_in_force(digest);
    }

    /// The live members, this one left out, that do not have a configuration, by their cards as they are
    /// now. Blocks.
    ///
    /// # Errors
    /// When the cards cannot be read: then nobody knows.
    pub(super) fn others_without(&self, digest: &str) -> Result<Vec<String>, StoreError> {
        let before = self.listed.borrow().clone();
        let now = drover_members::cards(&*self.vault)?.into_values().map(|card| {
            let known = before.iter().find(|one| one.card.name == card.name);
            // One that was not seen before counts as live.
            let live = known.is_none_or(|one| one.live || one.card.beat != card.beat);
            Listed { card, silent: Duration::ZERO, live }
        });
        Ok(agreement::others_without(&now.collect::<Vec<_>>(), self.name(), digest))
    }

    /// Takes a member that is gone for good out of the list, and waits until this one lists it no more. A member
    /// that starts again comes back by itself.
    ///
    /// # Errors
    /// [`NotForgotten`].
    pub(super) async fn forget(self: Arc<Self>, name: String) -> Result<(), NotForgotten> {
        let mut listed = self.listed();
        let membership = Arc::clone(&self);
        let (asked, before) = (name.clone(), listed.borrow_and_update().clone());
        let done = tokio::task::spawn_blocking(move || membership.take_out(&asked, &before));
        done.await.map_err(|_| NotForgotten::Failed("drover stops".to_owned()))??;
        let gone = listed.wait_for(|listed| listed.iter().all(|one| one.card.name != name));
        // It is gone from the store, and the next look shows that.
        let _ = tokio::time::timeout(self.spec.leader_lease, gone).await;
        Ok(())
    }

    fn take_out(&self, name: &str, listed: &[Listed]) -> Result<(), NotForgotten> {
        let leader = self.role.borrow().lease.as_ref().and_then(|lease| lease.leader.clone());
        let leader = leader.map(|leader| leader.name);
        let silent_after = drover_members::silent_after(self.spec.leader_lease);
        if let Some(why) = agreement::cannot_forget(listed, leader.as_deref(), name, silent_after) {
            return Err(why);
        }
        let failed = |error: StoreError| NotForgotten::Failed(chain(&error));
        let now = drover_members::cards(&*self.vault).map_err(failed)?;
        let stands = now.get(name).is_none_or(|card| {
            listed
                .iter()
                .any(|one| (one.card.beat, &one.card.process) == (card.beat, &card.process))
        });
        if !stands {
            let text = format!("member `{name}` was heard of just now");
            return Err(NotForgotten::Refused(text));
        }
        drover_members::forget(&*self.leaders_vault(&self.send_by()), name).map_err(failed)
    }

    /// Follows who leads and what the others have: says whether this member is fit.
    pub(super) fn follow(&self) {
        let (leads, lease) = {
            let role = self.role.borrow();
            (role.term.is_some(), role.lease.clone())
        };
        let listed = self.listed.borrow().clone();
        let unreadable = self.unreadable.lock().clone();
        let trouble = self.stored.as_ref().and_then(StoreTrouble::now).map(|(_, text)| text);
        self.say(|said| {
            said.leads = leads;
            said.store_trouble = trouble;
            let (own, is_stored) = (said.own.as_str(), self.stored.is_some());
            let configs = Configs { own, held: &said.held, is_stored };
            let unfit = agreement::unfit(lease.as_ref(), &listed, self.name(), configs);
            let is_fit = !leads && unfit.is_none();
            said.replaces = lease.filter(|_| is_fit).map(|lease| lease.config);
            said.unfit = if leads { None } else { unreadable.or(unfit) };
        });
    }

    fn say(&self, change: impl FnOnce(&mut Said)) {
        let mut said = self.said.lock();
        let before = said.clone();
        change(&mut said);
        if *said == before {
            return;
        }
        match (&before.unfit, &said.unfit) {
            (before, Some(why)) if before.as_ref() != Some(why) => {
                tracing::warn!(why, "this member does not lead");
            }
            (Some(_), None) => tracing::info!("this member can lead again"),
            (_, Some(_)) | (None, None) => {}
        }
        self.election.configure(settings(&self.spec, &self.identity, &self.process, &said));
        if let Some(roll) = &*self.roll.lock() {
            roll.say(card(&self.identity, &self.process, &said));
        }
    }

    /// Takes part in the election, again after it gave up.
    pub(super) fn take_part(&self) {
        self.election.take_part();
    }

    /// After a term: waits a little where the leader lease is still this member's, for what the store says
    /// of it. Another one may lead, or have written and ended.
    pub(super) async fn fall_back(&self) {
        let mut role = self.role();
        let ended = role.wait_for(|role| role.term.is_none());
        let _ = tokio::time::timeout(self.spec.leader_lease / 5, ended).await;
    }

    /// Leads no more, for the member that is named.
    pub(super) async fn give_up(&self, next: Option<String>) {
        let mut role = self.role();
        self.election.give_up(next);
        let ended = role.wait_for(|role| role.term.is_none());
        if tokio::time::timeout(GIVE_UP_LIMIT, ended).await.is_err() {
            tracing::warn!(
                "the store did not answer; another member leads when the leader lease ends"
            );
        }
    }

    /// Leaves the others in order: nobody waits for this member.
    pub(super) async fn leave(&self) {
        self.give_up(None).await;
        let roll = self.roll.lock().take();
        if let Some(roll) = roll {
            let left = tokio::task::spawn_blocking(move || roll.leave());
            let _ = tokio::time::timeout(GIVE_UP_LIMIT, left).await;
        }
    }
}

fn digest(key: &ClusterKey, agreed_text: &[u8]) -> String {
    let digest = key.digest(CONFIGURATION, agreed_text);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The beginning of a text, as much as a card takes.
fn cut(text: &str) -> String {
    let mut shown: String = text.chars().take(REFUSED_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

fn settings(spec: &StoreSpec, identity: &Identity, process: &str, said: &Said) -> Settings {
    let (name, url) = (identity.name.clone(), identity.url.clone());
    Settings {
        me: Leader { name, process: process.to_owned(), url },
        hold: spec.leader_lease,
        config: said.own.clone(),
        held: said.held.clone(),
        replaces: said.replaces.clone(),
        unfit: said.unfit.clone(),
    }
}

fn card(identity: &Identity, process: &str, said: &Said) -> Card {
    Card {
        name: identity.name.clone(),
        process: process.to_owned(),
        url: identity.url.clone(),
        drover: env!("CARGO_PKG_VERSION").to_owned(),
        config: said.own.clone(),
        leads: said.leads,
        unfit: said.unfit.clone(),
        refused: said.store_trouble.as_ref().or(said.refused.as_ref()).map(|text| cut(text)),
        beat: 0,
    }
}
