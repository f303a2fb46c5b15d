//! The book of leases: where each one stands, which idempotency key it answers to, and how long
//! an ended one still does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::id::{AgentId, LeaseId, SourceId};
use crate::ledger::{ENDED_KEEP_MS, Ledger};
use crate::message::Refusal;
use crate::record::{LeaseAsk, RELEASED};
use crate::time::WallTime;

/// Where a lease stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stand {
    /// Asked for; the record is on its way to the disk.
    Recording,
    /// Waits for an agent.
    Waiting,
    /// Given up; the record is on its way to the disk.
    Cancelling,
    /// Sent to an agent that has not confirmed it yet.
    Sent(AgentId),
    /// On an agent.
    On(AgentId),
    /// Over.
    Ended(WallTime),
}

/// One lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// As asked for.
    pub ask: LeaseAsk,
    /// Where it stands.
    pub stand: Stand,
    /// Its release was asked for.
    pub releasing: bool,
    /// Its place in the order of asking.
    pub number: u64,
    /// How often an agent gave it back in this start of the service.
    pub returns: u32,
    /// Jobs of its source that run on it.
    pub jobs: u32,
    /// When it was sent to its agent, in this start of the service.
    pub sent: Option<WallTime>,
}

/// What becomes of an ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// It is new and must be recorded.
    New,
    /// The same ask is known as this lease; `durable` when its record is on the disk.
    Known {
        /// The lease.
        lease: LeaseId,
        /// Whether it may be answered at once.
        durable: bool,
    },
    /// Another ask stands under the same key.
    Refused(Refusal),
}

/// Every lease that is not forgotten.
#[derive(Debug, Clone, Default)]
pub struct Book {
    entries: BTreeMap<LeaseId, Entry>,
    keys: BTreeMap<(String, String), LeaseId>,
    waiting: BTreeMap<(WallTime, u64), LeaseId>,
    /// Leases that are over, by their end.
    over: BTreeSet<(WallTime, LeaseId)>,
    agents: BTreeMap<AgentId, BTreeSet<LeaseId>>,
    count: u64,
}

impl Book {
    /// The book as the journal has it.
    pub fn restore(ledger: &Ledger) -> Self {
        let mut book = Self::default();
        for (lease, ended) in &ledger.ended {
            book.enter(lease.clone(), ended.ask.clone(), Stand::Ended(ended.at));
        }
        for (agent, entry) in &ledger.agents {
            for (lease, granted) in &entry.leases {
                book.enter(lease.clone(), granted.ask.clone(), Stand::On(agent.clone()));
            }
        }
        for ask in &ledger.waiting {
            book.enter(ask.lease.clone(), ask.clone(), Stand::Waiting);
        }
        book
    }

    fn enter(&mut self, lease: LeaseId, ask: LeaseAsk, stand: Stand) {
        self.count += 1;
        if let Some(key) = &ask.key_hash {
            self.keys.insert((ask.principal.clone(), key.clone()), lease.clone());
        }
        let entry = Entry {
            ask,
            stand: stand.clone(),
            releasing: false,
            number: self.count,
            returns: 0,
            jobs: 0,
            sent: None,
        };
        self.entries.insert(lease.clone(), entry);
        self.stand(&lease, stand);
    }

    /// The lease that already stands for an ask, or the refusal that follows from it.
    pub fn known(&self, ask: &LeaseAsk) -> Option<Asked> {
        let by_key = ask
            .key_hash
            .as_ref()
            .and_then(|key| self.keys.get(&(ask.principal.clone(), key.clone())));
        let known = by_key.unwrap_or(&ask.lease);
        let entry = self.entries.get(known)?;
        if entry.ask.body_hash == ask.body_hash && entry.ask.principal == ask.principal {
            let durable = entry.stand != Stand::Recording;
            return Some(Asked::Known { lease: entry.ask.lease.clone(), durable });
        }
        Some(Asked::Refused(Refusal::Conflict(format!(
            "the idempotency key already stands for lease `{known}`, which was asked for with \
             another body: use a new key"
        ))))
    }

    /// Enters a new ask, whose record is on its way to the disk.
    pub fn open(&mut self, ask: &LeaseAsk) {
        self.enter(ask.lease.clone(), ask.clone(), Stand::Recording);
    }

    /// Enters a use of a source that is sent to an agent: it never waited.
    pub fn send(&mut self, ask: LeaseAsk, agent: &AgentId, now: WallTime) {
        let lease = ask.lease.clone();
        self.enter(lease.clone(), ask, Stand::Waiting);
        self.sent(&lease, agent, now);
    }

    /// Notes that a lease is sent to an agent.
    pub fn sent(&mut self, lease: &LeaseId, agent: &AgentId, now: WallTime) {
        self.stand(lease, Stand::Sent(agent.clone()));
        if let Some(entry) = self.entries.get_mut(lease) {
            entry.sent = Some(now);
        }
    }

    /// How long ago a lease was sent to its agent; none when that was not in this start.
    pub fn lasted(&self, lease: &LeaseId, now: WallTime) -> Option<Duration> {
        Some(now - self.entries.get(lease)?.sent?)
    }

    /// The source that a lease serves.
    pub fn of_source(&self, lease: &LeaseId) -> Option<SourceId> {
        self.entries.get(lease)?.ask.source.clone()
    }

    /// Why a lease ends that is being released.
    pub fn ending(&self, lease: &LeaseId) -> &'static str {
        if self.of_source(lease).is_some() { "done" } else { RELEASED }
    }

    /// Notes how many jobs of its source run on a lease.
    pub fn jobs(&mut self, lease: &LeaseId, jobs: u32) {
        if let Some(entry) = self.entries.get_mut(lease) {
            entry.jobs = jobs;
        }
    }

    /// Leases sent to or standing on agents, with the agents.
    pub fn placed(&self) -> impl Iterator<Item = (&AgentId, &Entry)> {
        self.agents.iter().flat_map(move |(agent, leases)| {
            leases.iter().filter_map(move |lease| Some((agent, self.entries.get(lease)?)))
        })
    }

    /// Forgets a lease that could not be recorded, or that its source is to want anew.
    pub fn forget(&mut self, lease: &LeaseId) {
        // Out of every index first.
        self.stand(lease, Stand::Cancelling);
        if let Some(entry) = self.entries.remove(lease) {
            self.waiting.remove(&(entry.ask.asked, entry.number));
            if let Some(key) = entry.ask.key_hash {
                self.keys.remove(&(entry.ask.principal, key));
            }
        }
    }

    /// A lease.
    pub fn get(&self, lease: &LeaseId) -> Option<&Entry> {
        self.entries.get(lease)
    }

    /// Changes where a lease stands.
    pub fn stand(&mut self, lease: &LeaseId, stand: Stand) {
        let Some(entry) = self.entries.get_mut(lease) else { return };
        let place = (entry.ask.asked, entry.number);
        self.waiting.remove(&place);
        if let Stand::Sent(agent) | Stand::On(agent) = &entry.stand
            && let Some(leases) = self.agents.get_mut(agent)
        {
            leases.remove(lease);
            if leases.is_empty() {
                self.agents.remove(agent);
            }
        }
        if let Stand::Ended(at) = &entry.stand {
            self.over.remove(&(*at, lease.clone()));
        }
        match &stand {
            Stand::Waiting => {
                self.waiting.insert(place, lease.clone());
            }
            Stand::Ended(at) => {
                self.over.insert((*at, lease.clone()));
            }
            Stand::Sent(agent) | Stand::On(agent) => {
                self.agents.entry(agent.clone()).or_default().insert(lease.clone());
            }
            Stand::Recording | Stand::Cancelling => {}
        }
        entry.stand = stand;
    }

    /// Notes that a lease's release was asked for.
    pub fn releasing(&mut self, lease: &LeaseId) {
        if let Some(entry) = self.entries.get_mut(lease) {
            entry.releasing = true;
        }
    }

    /// Notes that an agent gave a lease back; says how often that was.
    pub fn returned(&mut self, lease: &LeaseId) -> u32 {
        let Some(entry) = self.entries.get_mut(lease) else { return 0 };
        entry.returns += 1;
        entry.returns
    }

    /// Leases that wait, the oldest first.
    pub fn waiting(&self) -> impl Iterator<Item = &LeaseAsk> {
        self.waiting.values().filter_map(|lease| Some(&self.entries.get(lease)?.ask))
    }

    /// Leases sent to or standing on an agent.
    pub fn at(&self, agent: &AgentId) -> Vec<(LeaseId, Stand)> {
        let leases = self.agents.get(agent).into_iter().flatten();
        leases
            .filter_map(|lease| Some((lease.clone(), self.entries.get(lease)?.stand.clone())))
            .collect()
    }

    /// How many leases were sent to an agent that it has not confirmed.
    pub fn sent_to(&self, agent: &AgentId) -> u32 {
        let at = self.at(agent);
        let sent = at.iter().filter(|(_, stand)| matches!(stand, Stand::Sent(_))).count();
        u32::try_from(sent).unwrap_or(u32::MAX)
    }

    /// Forgets leases that ended long ago.
    pub fn prune(&mut self, now: WallTime) {
        while self.over.first().is_some_and(|(at, _)| now.0 - at.0 >= ENDED_KEEP_MS) {
            if let Some((_, lease)) = self.over.pop_first() {
                self.forget(&lease);
            }
        }
    }
}
