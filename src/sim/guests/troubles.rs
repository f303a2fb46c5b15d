//! The troubles of guests: a host around any other host, whose guests misbehave by tags and orders.
//!
//! In: tags `guest-TROUBLE` in the configuration of a boot, and orders for one guest at any time.
//! Out: the answers of the host inside, without what the troubled guest does not give.
//!
//! Tags count from each boot on. The first order for a guest outweighs its tags, until the guest is
//! forgotten. After [`TroubledGuests::close`] no guest boots any more.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, ready};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use crate::guest::{
    AgentCall, AgentError, GuestAddress, GuestBoot, GuestHost, GuestWork, KeptFile,
};

/// How often a guest that is to hang is asked whether it has booted.
const BOOT_POLL: Duration = Duration::from_millis(100);

/// What is wrong with a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// It never boots: its process runs, and nothing in it.
    NeverBoots,
    /// It hangs once it has booted: agent calls time out, new SSH connections get no answer, and it
    /// ignores shutdown requests.
    Hangs,
    /// No guest agent answers.
    NoAgent,
    /// Its agent reports no address.
    NoAddress,
    /// It ignores shutdown requests.
    IgnoresShutdown,
}

impl Trouble {
    pub const ALL: [Self; 5] =
        [Self::NeverBoots, Self::Hangs, Self::NoAgent, Self::NoAddress, Self::IgnoresShutdown];

    /// The name in orders, and behind `guest-` in tags.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NeverBoots => "never-boots",
            Self::Hangs => "hangs",
            Self::NoAgent => "no-agent",
            Self::NoAddress => "no-address",
            Self::IgnoresShutdown => "ignores-shutdown",
        }
    }
}

/// A word that names no trouble.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown trouble `{0}`; the troubles are {names}", names = names())]
pub struct TroubleError(String);

fn names() -> String {
    Trouble::ALL.map(Trouble::name).join(", ")
}

impl FromStr for Trouble {
    type Err = TroubleError;

    fn from_str(word: &str) -> Result<Self, TroubleError> {
        let found = Self::ALL.into_iter().find(|trouble| trouble.name() == word);
        found.ok_or_else(|| TroubleError(word.to_owned()))
    }
}

/// The troubles that the tags of a configuration name.
fn tagged(config: &BTreeMap<String, String>) -> BTreeSet<Trouble> {
    let tags = config.get("tags").map(String::as_str).unwrap_or_default();
    let named = tags.split([';', ',', ' ']).filter_map(|tag| tag.strip_prefix("guest-"));
    named.filter_map(|name| name.parse().ok()).collect()
}

#[derive(Default)]
struct State {
    /// By the tags at the last boot.
    tagged: BTreeMap<u32, BTreeSet<Trouble>>,
    ordered: BTreeMap<u32, BTreeSet<Trouble>>,
    /// Guests whose process runs, and that the host inside has not booted.
    dead: BTreeSet<u32>,
    closed: bool,
}

impl State {
    fn troubles(&self, vmid: u32) -> Option<&BTreeSet<Trouble>> {
        self.ordered.get(&vmid).or_else(|| self.tagged.get(&vmid))
    }

    fn has(&self, vmid: u32, trouble: Trouble) -> bool {
        self.troubles(vmid).is_some_and(|troubles| troubles.contains(&trouble))
    }
}

/// A host whose guests can misbehave, around the host that runs them.
pub struct TroubledGuests {
    inner: Arc<dyn GuestHost>,
    state: Arc<Mutex<State>>,
}

impl TroubledGuests {
    #[must_use]
    pub fn around(inner: Arc<dyn GuestHost>) -> Self {
        Self { inner, state: Arc::default() }
    }

    /// Gives a guest one more trouble from now on, or with none takes all away; a guest that runs
    /// fails to boot from its next boot on.
    pub async fn order(&self, vmid: u32, trouble: Option<Trouble>) {
        let (hung, hangs) = {
            let mut state = self.state();
            let mut troubles = state.troubles(vmid).cloned().unwrap_or_default();
            let hung = troubles.contains(&Trouble::Hangs);
            match trouble {
                Some(trouble) => {
                    troubles.insert(trouble);
                }
                None => troubles.clear(),
            }
            let hangs = troubles.contains(&Trouble::Hangs);
            state.ordered.insert(vmid, troubles);
            (hung, hangs && !state.dead.contains(&vmid))
        };
        if hangs && !hung && !hang_if_booted(&*self.inner, vmid).await {
            self.hang_once_booted(vmid);
        }
        if hung && !hangs {
            set_paused(&*self.inner, vmid, false).await;
        }
    }

    /// Lets no guest boot any more: the world around it has ended.
    pub fn close(&self) {
        self.state().closed = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn has(&self, vmid: u32, trouble: Trouble) -> bool {
        self.state().has(vmid, trouble)
    }

    fn is_dead(&self, vmid: u32) -> bool {
        self.state().dead.contains(&vmid)
    }

    /// Halts a guest as soon as its agent answers.
    fn hang_once_booted(&self, vmid: u32) {
        let (inner, state) = (Arc::clone(&self.inner), Arc::clone(&self.state));
        tokio::spawn(async move {
            while state.lock().has(vmid, Trouble::Hangs) && inner.running(vmid) {
                if hang_if_booted(&*inner, vmid).await {
                    return;
                }
                tokio::time::sleep(BOOT_POLL).await;
            }
        });
    }
}

/// Halts a guest whose agent answers; false where it does not.
async fn hang_if_booted(inner: &dyn GuestHost, vmid: u32) -> bool {
    let booted = inner.agent(vmid, AgentCall::Ping).await.is_ok();
    if booted {
        set_paused(inner, vmid, true).await;
    }
    booted
}

async fn set_paused(inner: &dyn GuestHost, vmid: u32, paused: bool) {
    if let Err(error) = inner.set_paused(vmid, paused).await {
        tracing::warn!(
            vmid,
            paused,
            error,
            "the processors of a guest cannot be halted or resumed"
        );
    }
}

/// The interfaces of a guest without their addresses, except loopback's.
fn without_addresses(mut interfaces: Value) -> Value {
    for interface in interfaces.as_array_mut().into_iter().flatten() {
        if interface["name"] != "lo"
            && let Some(fields) = interface.as_object_mut()
        {
            fields.remove("ip-addresses");
        }
    }
    interfaces
}

impl GuestHost for TroubledGuests {
    fn boot(&self, boot: GuestBoot) -> BoxFuture<'static, Result<(), String>> {
        let vmid = boot.vmid;
        let mut state = self.state();
        if state.closed {
            return ready(Err("the simulated cluster has been reset".to_owned())).boxed();
        }
        state.tagged.insert(vmid, tagged(&boot.config));
        if state.has(vmid, Trouble::NeverBoots) {
            state.dead.insert(vmid);
            return ready(Ok(())).boxed();
        }
        state.dead.remove(&vmid);
        let hangs = state.has(vmid, Trouble::Hangs);
        drop(state);
        let booted = self.inner.boot(boot);
        if !hangs {
            return booted;
        }
        let again = Self { inner: Arc::clone(&self.inner), state: Arc::clone(&self.state) };
        async move {
            booted.await?;
            again.hang_once_booted(vmid);
            Ok(())
        }
        .boxed()
    }

    fn stop(&self, vmid: u32) -> BoxFuture<'static, ()> {
        self.state().dead.remove(&vmid);
        self.inner.stop(vmid)
    }

    fn shutdown(&self, vmid: u32) -> BoxFuture<'static, ()> {
        let state = self.state();
        let ignored = state.dead.contains(&vmid)
            || state.has(vmid, Trouble::Hangs)
            || state.has(vmid, Trouble::IgnoresShutdown);
        drop(state);
        if ignored { ready(()).boxed() } else { self.inner.shutdown(vmid) }
    }

    fn running(&self, vmid: u32) -> bool {
        self.is_dead(vmid) || self.inner.running(vmid)
    }

    fn agent(&self, vmid: u32, call: AgentCall) -> BoxFuture<'static, Result<Value, AgentError>> {
        let state = self.state();
        if state.dead.contains(&vmid) || state.has(vmid, Trouble::NoAgent) {
            return ready(Err(AgentError::NotRunning)).boxed();
        }
        let (hangs, no_address) =
            (state.has(vmid, Trouble::Hangs), state.has(vmid, Trouble::NoAddress));
        drop(state);
        let asks_address = call == AgentCall::NetworkInterfaces;
        match (hangs, no_address && asks_address) {
            (true, _) => {
                let answers = self.inner.agent(vmid, AgentCall::Ping);
                async move { answers.await.and(Err(AgentError::Timeout)) }.boxed()
            }
            (false, true) => {
                let answer = self.inner.agent(vmid, call);
                async move { answer.await.map(without_addresses) }.boxed()
            }
            (false, false) => self.inner.agent(vmid, call),
        }
    }

    fn address(&self, vmid: u32) -> Option<GuestAddress> {
        self.inner.address(vmid).filter(|_| !self.is_dead(vmid))
    }

    fn agent_ready_in(&self, vmid: u32) -> Option<Duration> {
        let silent = self.is_dead(vmid) || self.has(vmid, Trouble::NoAgent);
        self.inner.agent_ready_in(vmid).filter(|_| !silent)
    }

    fn reachable_in(&self, vmid: u32) -> Option<Duration> {
        self.inner.reachable_in(vmid).filter(|_| !self.is_dead(vmid))
    }

    fn reads_discs(&self) -> bool {
        self.inner.reads_discs()
    }

    fn set_paused(&self, vmid: u32, paused: bool) -> GuestWork {
        // A guest that hangs stays halted when it is resumed.
        match self.is_dead(vmid) || (!paused && self.has(vmid, Trouble::Hangs)) {
            true => ready(Ok(())).boxed(),
            false => self.inner.set_paused(vmid, paused),
        }
    }

    fn reset(&self, vmid: u32) -> BoxFuture<'static, bool> {
        // The world stops and boots troubled guests, so that their tags count from the reset on.
        let state = self.state();
        let troubled = state.dead.contains(&vmid)
            || state.troubles(vmid).is_some_and(|troubles| !troubles.is_empty());
        drop(state);
        if troubled { ready(false).boxed() } else { self.inner.reset(vmid) }
    }

    fn hibernate(&self, vmid: u32) -> GuestWork {
        self.state().dead.remove(&vmid);
        self.inner.hibernate(vmid)
    }

    fn resize_disk(&self, vmid: u32, drive: &str, bytes: u64) -> GuestWork {
        self.inner.resize_disk(vmid, drive, bytes)
    }

    fn snapshot(&self, vmid: u32, name: &str, with_memory: bool) -> GuestWork {
        self.inner.snapshot(vmid, name, with_memory)
    }

    fn rollback(&self, vmid: u32, name: &str) -> GuestWork {
        self.inner.rollback(vmid, name)
    }

    fn delete_snapshot(&self, vmid: u32, name: &str) -> GuestWork {
        self.inner.delete_snapshot(vmid, name)
    }

    fn clone_disk(&self, from: u32, to: u32, linked: bool) -> GuestWork {
        self.inner.clone_disk(from, to, linked)
    }

    fn download(
        &self,
        url: &str,
        name: &str,
    ) -> BoxFuture<'static, Result<Option<KeptFile>, String>> {
        self.inner.download(url, name)
    }

    fn kept_file(&self, name: &str) -> Option<KeptFile> {
        self.inner.kept_file(name)
    }

    fn drop_file(&self, name: &str) {
        self.inner.drop_file(name);
    }

    fn import_disk(&self, vmid: u32, drive: &str, file: &str) -> GuestWork {
        self.inner.import_disk(vmid, drive, file)
    }

    fn forget(&self, vmid: u32) {
        let mut state = self.state();
        state.tagged.remove(&vmid);
        state.ordered.remove(&vmid);
        state.dead.remove(&vmid);
        drop(state);
        self.inner.forget(vmid);
    }
}

#[cfg(test)]
mod tests;
