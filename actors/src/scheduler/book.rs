//! The book of leases: where each one stands, which idempotency key it answers to, and how long
//! an ended one still does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_model::id::{AgentId, LeaseId, SourceId};
use drover_model::journal_state::{JournalState, ended_keep};
use drover_model::record::{LeaseAsk, Owner, RELEASED, Want};
use drover_model::tenant::{LeaseLimits, Whose};
use drover_model::time::WallTime;

use super::queue::{Front, Queue};
use crate::message::Refusal;

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
    /// Over since then; known for a while, for callers who ask again.
    Ended(WallTime),
}

/// A lease with what the scheduler knows of it.
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
    /// When it was sent to its agent, or of one of an earlier start, when that took it.
    pub sent: Option<WallTime>,
    /// Until when it waits for an agent.
    pub until: WallTime,
}

/// Leases that somebody asked for and that are not over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// All of them.
    pub(super) live: u32,
    /// Those that no agent was found for yet.
    pub(super) waiting: u32,
}

impl Stand {
    fn tally(&self) -> Tally {
        let (live, waiting) = match self {
            Self::Recording | Self::Waiting => (1, 1),
            Self::Sent(_) | Self::On(_) => (1, 0),
            Self::Cancelling | Self::Ended(_) => (0, 0),
        };
        Tally { live, waiting }
    }
}

/// What becomes of an ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// It is new and must be recorded.
    New,
    /// The same ask is known as this lease; `durable` when its record is on the disk.
    Known {
        lease: LeaseId,
        /// Whether it may be answered at once.
        durable: bool,
    },
    /// Another ask stands under the same key.
    Refused(Refusal),
}

/// Every lease that is not forgotten.
#[derive(Debug, Clone)]
pub struct Book {
    entries: BTreeMap<LeaseId, Entry>,
    keys: BTreeMap<(String, String), LeaseId>,
    queue: Queue,
    /// Leases that began to wait and were not shown as that yet.
    fresh: Vec<LeaseId>,
    /// How many leases those have who asked for them themselves.
    tallies: BTreeMap<Whose, Tally>,
    total: Tally,
    /// How long a lease waits that says nothing of that.
    wait: Duration,
    /// Leases that are over, by how long they are known and by their end.
    over: BTreeMap<Duration, BTreeSet<(WallTime, LeaseId)>>,
    agents: BTreeMap<AgentId, BTreeSet<LeaseId>>,
    /// The same by the source they serve.
    of: BTreeMap<Option<SourceId>, BTreeSet<(AgentId, LeaseId)>>,
    count: u64,
}

impl Default for Book {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            keys: BTreeMap::new(),
            queue: Queue::default(),
            fresh: Vec::new(),
            tallies: BTreeMap::new(),
            total: Tally::default(),
            wait: LeaseLimits::default().wait,
            over: BTreeMap::new(),
            agents: BTreeMap::new(),
            of: BTreeMap::new(),
            count: 0,
        }
    }
}

impl Book {
    /// The book as the journal has it.
    pub fn restore(journal_state: &JournalState) -> Self {
        let mut book = Self::default();
        // Journals of before name those of sources too, which nobody asks about again.
        for (lease, ended) in
            journal_state.ended.iter().filter(|(_, ended)| ended.ask.source.is_none())
        {
            book.enter(lease.clone(), ended.ask.clone(), Stand::Ended(ended.at));
        }
        for (agent, entry) in &journal_state.agents {
            for (lease, granted) in &entry.leases {
                book.enter(lease.clone(), granted.ask.clone(), Stand::On(agent.clone()));
                if let Some(entry) = book.entries.get_mut(lease) {
                    entry.sent = granted.granted;
                }
            }
        }
        for ask in &journal_state.waiting {
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
            until: ask.asked + wait_of(&ask, self.wait),
            ask,
            // In no index yet.
            stand: Stand::Cancelling,
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

    /// How long ago a lease was sent to its agent; none where an older journal does not say when.
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

    /// Leases of a source, or of none, that are sent to or stand on agents, with the agents.
    pub fn placed_of(&self, source: Option<&SourceId>) -> impl Iterator<Item = (&AgentId, &Entry)> {
        let all = self.of.get(&source.cloned()).into_iter().flatten();
        all.filter_map(|(agent, lease)| Some((agent, self.entries.get(lease)?)))
    }

    /// How many leases of a source, or of none, are sent to or stand on agents.
    pub fn count_of(&self, source: Option<&SourceId>) -> usize {
        self.of.get(&source.cloned()).map_or(0, BTreeSet::len)
    }

    /// Forgets a lease that could not be recorded, or that its source is to want again.
    pub fn forget(&mut self, lease: &LeaseId) {
        // Out of every index first.
        self.stand(lease, Stand::Cancelling);
        if let Some(entry) = self.entries.remove(lease)
            && let Some(key) = entry.ask.key_hash
        {
            self.keys.remove(&(entry.ask.principal, key));
        }
    }

    pub fn get(&self, lease: &LeaseId) -> Option<&Entry> {
        self.entries.get(lease)
    }

    /// Changes where a lease stands.
    pub fn stand(&mut self, lease: &LeaseId, stand: Stand) {
        let Some(entry) = self.entries.get_mut(lease) else { return };
        let place = (entry.ask.asked, entry.number);
        self.queue.leave(place, &entry.ask, entry.until);
        if let Stand::Sent(agent) | Stand::On(agent) = &entry.stand
            && let Some(leases) = self.agents.get_mut(agent)
        {
            leases.remove(lease);
            if leases.is_empty() {
                self.agents.remove(agent);
            }
            if let Some(leases) = self.of.get_mut(&entry.ask.source) {
                leases.remove(&(agent.clone(), lease.clone()));
                if leases.is_empty() {
                    self.of.remove(&entry.ask.source);
                }
            }
        }
        if let Stand::Ended(at) = &entry.stand {
            let over = self.over.entry(ended_keep(&entry.ask)).or_default();
            over.remove(&(*at, lease.clone()));
        }
        match &stand {
            Stand::Waiting => {
                self.queue.enter(place, &entry.ask, entry.until);
                self.fresh.push(lease.clone());
            }
            Stand::Ended(at) => {
                let over = self.over.entry(ended_keep(&entry.ask)).or_default();
                over.insert((*at, lease.clone()));
            }
            Stand::Sent(agent) | Stand::On(agent) => {
                self.agents.entry(agent.clone()).or_default().insert(lease.clone());
                let of = self.of.entry(entry.ask.source.clone()).or_default();
                of.insert((agent.clone(), lease.clone()));
            }
            Stand::Recording | Stand::Cancelling => {}
        }
        if entry.ask.source.is_none() {
            let (before, after) = (entry.stand.tally(), stand.tally());
            self.total.change(before, after);
            let principal = Whose::Principal(entry.ask.principal.clone());
            let group = entry.ask.group.clone().map(Whose::Group);
            for whose in std::iter::once(principal).chain(group) {
                let tally = self.tallies.entry(whose.clone()).or_default();
                tally.change(before, after);
                if *tally == Tally::default() {
                    self.tallies.remove(&whose);
                }
            }
        }
        entry.stand = stand;
    }

    /// What those have who asked for leases themselves.
    pub(super) fn tally(&self, whose: &Whose) -> Tally {
        self.tallies.get(whose).copied().unwrap_or_default()
    }

    /// How many leases wait, those on their way to the disk included.
    pub(super) fn waits(&self) -> u32 {
        self.total.waiting
    }

    /// How long leases wait that say nothing of that, from when they were asked for.
    pub(super) fn wait_for(&mut self, wait: Duration) {
        if self.wait == wait {
            return;
        }
        let before = std::mem::replace(&mut self.wait, wait);
        let silent = |entry: &&Entry| entry.ask.wait_ms.is_none();
        let all: Vec<(LeaseId, WallTime)> = self
            .entries
            .values()
            .filter(silent)
            .map(|entry| (entry.ask.lease.clone(), (entry.until + wait).before(before)))
            .collect();
        all.into_iter().for_each(|(lease, until)| self.wait_until(&lease, until));
    }

    /// A lease waits until then.
    pub(super) fn wait_until(&mut self, lease: &LeaseId, until: WallTime) {
        let Some(entry) = self.entries.get_mut(lease) else { return };
        let place = (entry.ask.asked, entry.number);
        if entry.stand == Stand::Waiting {
            self.queue.leave(place, &entry.ask, entry.until);
            self.queue.enter(place, &entry.ask, until);
        }
        entry.until = until;
    }

    /// The wall clock was set: what has an hour left has an hour left.
    pub(super) fn clock_set(&mut self, by_ms: i64) {
        for entry in self.entries.values_mut() {
            let before = (entry.ask.asked, entry.number);
            let until = entry.until.shifted(by_ms);
            if entry.stand == Stand::Waiting {
                self.queue.leave(before, &entry.ask, entry.until);
            }
            entry.ask.asked = entry.ask.asked.shifted(by_ms);
            entry.until = until;
            entry.sent = entry.sent.map(|sent| sent.shifted(by_ms));
            match &mut entry.stand {
                Stand::Waiting => {
                    self.queue.enter((entry.ask.asked, entry.number), &entry.ask, until);
                }
                Stand::Ended(at) => *at = at.shifted(by_ms),
                Stand::Recording | Stand::Cancelling | Stand::Sent(_) | Stand::On(_) => {}
            }
        }
        for over in self.over.values_mut() {
            let all = std::mem::take(over).into_iter();
            *over = all.map(|(at, lease)| (at.shifted(by_ms), lease)).collect();
        }
    }

    /// Leases that were asked for while the clock was ahead wait no longer than they may.
    pub(super) fn clock_was_ahead(&mut self, now: WallTime) {
        for lease in self.queue.ahead(now) {
            let Some(entry) = self.entries.get(&lease) else { continue };
            let until = entry.until.min(now + wait_of(&entry.ask, self.wait));
            self.wait_until(&lease, until);
        }
    }

    /// Leases that have waited as long as they may.
    pub(super) fn overdue(&self, now: WallTime) -> Vec<LeaseId> {
        self.queue.over(now)
    }

    /// When the next one has.
    pub(super) fn first_end(&self) -> Option<WallTime> {
        self.queue.first_end()
    }

    /// Leases that began to wait since this was asked last.
    pub(super) fn take_fresh(&mut self) -> Vec<LeaseId> {
        std::mem::take(&mut self.fresh)
    }

    /// What the leases that wait want, each once.
    pub(super) fn wants(&self) -> impl Iterator<Item = &Want> {
        self.queue.wants()
    }

    /// The leases that wait for this, the oldest first.
    pub(super) fn waiting_for(&self, want: &Want) -> impl Iterator<Item = &LeaseAsk> {
        self.queue.of(want).filter_map(|lease| Some(&self.entries.get(lease)?.ask))
    }

    /// How many leases wait.
    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// The first `most` leases of each kind that wait, in the order of asking.
    pub(super) fn fronts(&self, kept: &BTreeSet<&Owner>, most: usize) -> Vec<Front<'_>> {
        self.queue.fronts(kept, most)
    }

    /// Notes that a lease is over. A source never repeats an ask: its leases are forgotten at once.
    pub fn end(&mut self, lease: &LeaseId, at: WallTime) {
        if self.of_source(lease).is_some() {
            self.forget(lease);
        } else {
            self.stand(lease, Stand::Ended(at));
        }
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
        self.queue.all().filter_map(|lease| Some(&self.entries.get(lease)?.ask))
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

    /// Whether counts and lines are those of the entries.
    #[cfg(test)]
    pub(super) fn judge(&self) {
        let mut tallies: BTreeMap<Whose, Tally> = BTreeMap::new();
        let mut waiting = BTreeSet::new();
        for (lease, entry) in self.entries.iter().filter(|(_, entry)| entry.ask.source.is_none()) {
            if entry.stand == Stand::Waiting {
                waiting.insert(lease);
            }
            let principal = Whose::Principal(entry.ask.principal.clone());
            for whose in std::iter::once(principal).chain(entry.ask.group.clone().map(Whose::Group))
            {
                tallies.entry(whose).or_default().change(Tally::default(), entry.stand.tally());
            }
        }
        tallies.retain(|_, tally| *tally != Tally::default());
        assert_eq!(self.tallies, tallies);
        assert_eq!(self.queue.all().collect::<BTreeSet<_>>(), waiting);
        let lines: BTreeSet<_> = self.wants().flat_map(|want| self.queue.of(want)).collect();
        assert_eq!(lines, waiting);
        assert_eq!(self.queue.over(WallTime(i64::MAX)).iter().collect::<BTreeSet<_>>(), waiting);
    }

    /// How many of everything are held.
    #[cfg(test)]
    pub(super) fn held(&self) -> [usize; 6] {
        let (entries, keys, waiting) = (self.entries.len(), self.keys.len(), self.queue.len());
        let over = self.over.values().map(BTreeSet::len).sum();
        [entries, keys, waiting, over, self.agents.len(), self.tallies.len()]
    }

    /// Forgets leases that ended long ago. What ended while the clock was ahead counts from now on.
    pub fn prune(&mut self, now: WallTime) {
        let spans: Vec<Duration> = self.over.keys().copied().collect();
        for keep in spans {
            let of = |book: &Self| {
                book.over.get(&keep).map(|over| (over.first().cloned(), over.last().cloned()))
            };
            while let Some((_, Some((at, lease)))) = of(self)
                && at > now
            {
                self.stand(&lease, Stand::Ended(now));
            }
            while let Some((Some((at, lease)), _)) = of(self)
                && now - at >= keep
            {
                self.forget(&lease);
            }
        }
    }
}

impl Tally {
    fn change(&mut self, before: Self, after: Self) {
        self.live = (self.live + after.live).saturating_sub(before.live);
        self.waiting = (self.waiting + after.waiting).saturating_sub(before.waiting);
    }
}

/// How long a lease waits for an agent from when it was asked for.
fn wait_of(ask: &LeaseAsk, otherwise: Duration) -> Duration {
    ask.wait_ms.map_or(otherwise, Duration::from_millis)
}
