//! What must hold of leases, judged at every fact and record of one: who holds an agent, whose keys
//! are in its guest, and why a lease ends.

use drover_model::id::{AgentId, LeaseId};
use drover_model::phase::LeasePhase;
use drover_model::record::{Body, LeaseAsk, WAITED};
use drover_model::status::LeaseStatus;
use drover_model::time::WallTime;

use super::seen::{LeaseSeen, Seen};
use super::sizes;
use super::watch::Watch;

impl Watch {
    /// A guest that is given out holds the keys of these leases and no others.
    pub(super) fn swept(&self, seen: &mut Seen, vmid: u32, leases: &[LeaseId]) {
        let keys = self.shell.admitted(vmid);
        let stale = keys.iter().find(|key| !leases.iter().any(|lease| lease.as_str() == **key));
        if let Some(key) = stale {
            let text = format!("the key of {key} is in {vmid} yet, with {leases:?}");
            self.blame(seen, "key-removed-at-the-end", text);
        }
    }

    /// Guests with a lease that somebody heard is ready, and nobody heard is over.
    pub(super) fn held(&self) -> Vec<u32> {
        let seen = self.seen();
        let holds = |agent: &AgentId| {
            let mut leases = seen.leases.values();
            leases.any(|l| l.holds && l.over.is_none() && l.agent.as_ref() == Some(agent))
        };
        seen.live.iter().filter(|(agent, _)| holds(agent)).filter_map(|(_, l)| l.vmid).collect()
    }

    /// A revert is done: the holders of its machine can log in again.
    pub(super) fn keys_are_back(&self, seen: &mut Seen, body: &Body) {
        let Some(agent) = seen.orders.put_back(body) else { return };
        let Some(vmid) = seen.live.get(agent).and_then(|live| live.vmid) else { return };
        let keys = self.shell.admitted(vmid);
        let here = |lease: &LeaseSeen| {
            let stands = lease.holds && lease.over.is_none() && !lease.wanted;
            stands && !lease.of_source && lease.agent.as_ref() == Some(agent)
        };
        let mut held = seen.leases.iter().filter(|(_, lease)| here(lease));
        let missing = held.find(|(lease, _)| !keys.contains(lease.as_str()));
        if let Some((lease, _)) = missing {
            let text = format!("{agent} is back at its snapshot without the key of {lease}");
            self.blame(seen, "keys-are-back-after-a-revert", text);
        }
    }

    pub(super) fn lease_reported(&self, seen: &mut Seen, status: &LeaseStatus) {
        if status.state == LeasePhase::Ended && status.detail.starts_with("its runner") {
            self.stopped_runner(seen, &status.lease, &status.detail);
        }
        let known = seen.leases.entry(status.lease.clone()).or_default();
        if status.state != LeasePhase::Ready {
            return;
        }
        (known.served, known.holds) = (true, true);
        let granted = known.agent.clone();
        if granted.is_none() || granted != status.agent {
            let text = format!("{} is ready on {:?}", status.lease, status.agent);
            self.blame(seen, "journal-before-acting", text);
        }
        let resized = granted.as_ref().is_some_and(|agent| seen.orders.knows(agent));
        let reverts = granted.as_ref().is_some_and(|agent| seen.orders.lacks_keys(agent));
        let vmid = granted.and_then(|agent| seen.live.get(&agent)?.vmid);
        let size = seen.leases.get(&status.lease).map(|known| known.size).unwrap_or_default();
        let config = vmid.filter(|vmid| !resized && !seen.strangers.contains(vmid));
        let config = config.and_then(|vmid| self.side.config(vmid));
        let misshapen =
            config.and_then(|config| sizes::misshapen(|key| config.get(key).cloned(), size));
        if let Some(text) = misshapen {
            let text = format!("{} is ready in {vmid:?}, where {text}", status.lease);
            self.blame(seen, "an-agent-has-the-size-asked-for", text);
        }
        // A source's runner stands for the key of anyone who asks for a lease.
        let keyless = status.principal.starts_with("source:");
        if !keyless
            && !reverts
            && vmid.is_none_or(|vmid| !self.shell.admitted(vmid).contains(status.lease.as_str()))
        {
            let text = format!("{} is ready without its key in {vmid:?}", status.lease);
            self.blame(seen, "key-installed-before-ready", text);
        }
    }

    pub(super) fn granted(
        &self,
        seen: &mut Seen,
        agent: &AgentId,
        ask: &LeaseAsk,
        expires: WallTime,
    ) {
        let (lease, of_source) = (&ask.lease, ask.source.is_some());
        if let Some(text) = seen.used.get_mut(agent).and_then(|used| used.another(self.now())) {
            self.blame(seen, "uses-never-exceed-the-maximum", format!("{agent}: {text}"));
        }
        let size = sizes::asked(&ask.want);
        if let Some(text) = seen.used.get(agent).and_then(|used| sizes::unfit(used.spec(), size)) {
            let text = format!("{lease} is granted on {agent}: {text}");
            self.blame(seen, "an-agent-has-the-size-asked-for", text);
        }
        self.lasts(seen, lease, expires);
        let known = seen.leases.entry(lease.clone()).or_default();
        (known.of_source, known.size) = (of_source, size);
        let again = known.agent.replace(agent.clone());
        // Before it was ready, another agent may be found for it.
        let held = std::mem::take(&mut known.holds) || again.as_ref() == Some(agent);
        if held || known.over.is_some() {
            let text = format!("{lease} is granted on {agent} after {again:?}: {:?}", known.over);
            self.blame(seen, "one-holder-an-executor", text);
        }
        let here = |seen: &LeaseSeen| seen.over.is_none() && seen.agent.as_ref() == Some(agent);
        let holders = seen.leases.values().filter(|lease| here(lease)).count();
        let live = seen.live.get(agent);
        let room = live.map_or(0, |live| live.executors);
        if let Some((vmid, leases)) = live.and_then(|live| Some((live.vmid?, live.leases.clone())))
        {
            self.swept(seen, vmid, &leases);
        }
        if holders > room as usize {
            let text = format!("{agent} has {holders} leases and {room} executors");
            self.blame(seen, "one-holder-an-executor", text);
        }
    }

    /// A lease lasts until then.
    pub(super) fn lasts(&self, seen: &mut Seen, lease: &LeaseId, expires: WallTime) {
        let span = expires - self.wall(seen);
        let lease = seen.leases.entry(lease.clone()).or_default();
        (lease.expires, lease.ends) = (Some(expires), Some((self.now() + span, span)));
    }

    /// An agent that is reset serves one owner, and never while it is being put back.
    pub(super) fn owned(&self, seen: &mut Seen, agent: &AgentId, ask: &LeaseAsk) {
        let Some(live) = seen.live.get_mut(agent).filter(|live| live.resets) else { return };
        let before = live.owner.replace(ask.whose());
        let strange = before.as_ref().is_some_and(|before| *before != ask.whose());
        if strange || live.resetting {
            let text = format!("{agent} of {before:?} is given to {}", ask.owner);
            self.blame(seen, "a-reset-agent-serves-its-owner", text);
        }
    }

    /// An agent gives a lease back that it could not serve.
    pub(super) fn returned(&self, seen: &mut Seen, agent: &AgentId, lease: &LeaseId) {
        let known = seen.leases.get(lease);
        if known.is_some_and(|known| known.holds && known.agent.as_ref() == Some(agent)) {
            let text = format!("{lease} is given back by {agent}, where it was ready");
            self.blame(seen, "leases-are-honoured", text);
        }
        // Its next grant starts its span again.
        let here = |known: &&mut LeaseSeen| known.agent.as_ref() == Some(agent);
        if let Some(known) = seen.leases.get_mut(lease).filter(here) {
            (known.expires, known.ends) = (None, None);
        }
    }

    pub(super) fn ended(&self, seen: &mut Seen, lease: &LeaseId, why: &str) {
        let wall = self.wall(seen);
        let harmed = seen.harmed;
        if matches!(why, "done" | "idle") {
            self.stopped_runner(seen, lease, why);
        }
        let until = seen.waits.until(lease, seen.spec.leases.wait);
        let known = seen.leases.entry(lease.clone()).or_default();
        let before = known.over.replace(why.to_owned());
        let due = known.expires.is_some_and(|expires| expires <= wall);
        let fair = match why {
            "released" | "cancelled" => known.wanted,
            "expired" => due,
            WAITED => !known.holds && until.is_some_and(|until| until <= wall),
            // Its source found its runner done, or gone.
            "done" | "idle" => known.of_source,
            _ => harmed || known.of_source,
        };
        if before.is_some() || !fair {
            let text = format!("{lease} ends as {why}, before {before:?}: {known:?}");
            self.blame(seen, "leases-are-honoured", text);
        }
    }
}
