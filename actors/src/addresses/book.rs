//! Whose each address is: the one authority over all pools, whichever clouds use them. Pure; time
//! is an argument.
//!
//! An address is kept back in memory from the moment an agent is started. From its record on it is
//! spoken for: a guest may have it, and it rests after that agent is gone. The pool is no part of
//! an address's identity. So an edit that moves an address to another pool gives it to nobody
//! while it is used or rests.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use drover_model::addresses::{AddressPoolSpec, AddressSource, AssignedAddress, POOL_USED_UP};
use drover_model::id::{AddressPoolId, AgentId, TemplateId};
use drover_model::journal_state::JournalState;
use drover_model::status::AddressPoolStatus;
use drover_model::time::{Moment, Now};

/// What one agent has.
#[derive(Debug, Clone)]
struct Holding {
    template: TemplateId,
    addresses: Vec<AssignedAddress>,
    /// Whether that is written down, or being written down.
    spoken: bool,
}

/// How many agents more can have addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supply {
    pub free: u32,
    /// Why it is none, in words for people.
    pub lack: Option<String>,
    /// When an address has rested next.
    pub next: Option<Moment>,
}

impl Supply {
    /// As many as anybody likes.
    pub fn endless() -> Self {
        Self { free: u32::MAX, lack: None, next: None }
    }
}

/// All pools, and whose their addresses are.
#[derive(Debug, Clone, Default)]
pub struct Book {
    pools: BTreeMap<AddressPoolId, Arc<AddressPoolSpec>>,
    held: BTreeMap<AgentId, Holding>,
    /// How many agents have each address: more than one only after a journal was cut short between
    /// the end of one and the other's beginning.
    taken: BTreeMap<IpAddr, u32>,
    resting: BTreeMap<IpAddr, Moment>,
}

impl Book {
    /// What the journal knows: addresses of living agents, and those that rest.
    pub fn restore(journal_state: &JournalState, now: Now) -> Self {
        let mut book = Self::default();
        for (agent, entry) in &journal_state.agents {
            if !entry.addresses.is_empty() {
                let template = entry.spec.id.clone();
                book.enter(agent, &template, entry.addresses.clone(), true);
            }
        }
        for (address, rest) in &journal_state.resting_addresses {
            // Never for longer than a whole rest, however the clock was set.
            let left = rest.cooldown().saturating_sub(now.wall - rest.since);
            book.resting.insert(*address, now.mono + left);
        }
        book
    }

    /// Other pools come into force; nobody's address changes by that.
    pub fn configure(&mut self, pools: &BTreeMap<AddressPoolId, Arc<AddressPoolSpec>>) {
        self.pools.clone_from(pools);
    }

    /// Whether nobody has an address or rests, and there is no pool.
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty() && self.held.is_empty() && self.resting.is_empty()
    }

    /// How many agents more of this source can have addresses.
    pub fn supply(&self, source: &AddressSource, now: Now) -> Supply {
        match source {
            AddressSource::GuestAgent | AddressSource::Call => Supply::endless(),
            AddressSource::Fixed(address) => {
                let free = self.is_free(*address, now.mono);
                let user = self.held.iter().find(|(_, held)| held.has(*address));
                let lack = user.map_or_else(
                    || format!("its address {address} rests"),
                    |(agent, _)| format!("its address {address} is agent {agent}'s"),
                );
                let next = self.resting.get(address).copied().filter(|until| *until > now.mono);
                Supply { free: free.into(), lack: (!free).then_some(lack), next }
            }
            AddressSource::Pools(pools) => {
                let each = pools.iter().map(|pool| self.pool_supply(pool, now));
                each.min_by_key(|supply| supply.free).unwrap_or_else(Supply::endless)
            }
        }
    }

    fn pool_supply(&self, id: &AddressPoolId, now: Now) -> Supply {
        let Some(pool) = self.pools.get(id) else {
            let lack = Some(format!("address pool `{id}` is not configured any more"));
            return Supply { free: 0, lack, next: None };
        };
        let (used, resting, next) = self.counts(pool, now.mono);
        let free = pool.size().saturating_sub(used + resting);
        let lack = || {
            let until = match next {
                Some(next) => {
                    format!("; one is free at {}", (now.wall + (next - now.mono)).rfc3339())
                }
                None => String::new(),
            };
            let rest = pool.cooldown.as_secs();
            let rests = match resting {
                0 => String::new(),
                one => format!(
                    ", {one} resting: each address rests for {rest} s after its use \
                     (`cooldownSeconds`)"
                ),
            };
            format!("address pool `{id}` {POOL_USED_UP}: {used} in use{rests}{until}")
        };
        let free = u32::try_from(free).unwrap_or(u32::MAX);
        Supply { free, lack: (free == 0).then(lack), next }
    }

    /// Addresses of a pool in use and resting, and when the first of these has rested.
    fn counts(&self, pool: &AddressPoolSpec, now: Moment) -> (u64, u64, Option<Moment>) {
        let used = self.taken.keys().filter(|address| pool.contains(**address)).count();
        let (mut resting, mut next) = (0, None);
        for (address, until) in &self.resting {
            let rests = *until > now && !self.taken.contains_key(address);
            if rests && pool.contains(*address) {
                resting += 1;
                next = Some(next.map_or(*until, |next: Moment| next.min(*until)));
            }
        }
        (used as u64, resting, next)
    }

    fn is_free(&self, address: IpAddr, now: Moment) -> bool {
        !self.taken.contains_key(&address)
            && self.resting.get(&address).is_none_or(|until| *until <= now)
    }

    /// Keeps addresses back for an agent: the lowest free one of each pool, or what it has already.
    /// None when one of them cannot be had; then none is kept back.
    pub fn take(
        &mut self,
        agent: &AgentId,
        template: &TemplateId,
        source: &AddressSource,
        now: Now,
    ) -> Option<Vec<AssignedAddress>> {
        if let Some(held) = self.held.get(agent) {
            return Some(held.addresses.clone());
        }
        self.resting.retain(|_, until| *until > now.mono);
        let addresses: Vec<AssignedAddress> = match source {
            AddressSource::GuestAgent | AddressSource::Call => return Some(Vec::new()),
            AddressSource::Fixed(address) => {
                vec![
                    Some(AssignedAddress::fixed(*address))
                        .filter(|_| self.is_free(*address, now.mono))?,
                ]
            }
            AddressSource::Pools(pools) => {
                let each = pools.iter().map(|id| {
                    let spec = self.pools.get(id)?;
                    let mut all = spec.ranges.iter().flat_map(|range| range.iter());
                    let address = all.find(|address| self.is_free(*address, now.mono))?;
                    Some(AssignedAddress::of(id, spec, address))
                });
                each.collect::<Option<_>>()?
            }
        };
        self.enter(agent, template, addresses.clone(), false);
        Some(addresses)
    }

    fn enter(
        &mut self,
        agent: &AgentId,
        template: &TemplateId,
        addresses: Vec<AssignedAddress>,
        spoken: bool,
    ) {
        for one in &addresses {
            *self.taken.entry(one.address).or_default() += 1;
        }
        let holding = Holding { template: template.clone(), addresses, spoken };
        self.held.insert(agent.clone(), holding);
    }

    /// An agent's addresses are being written down.
    pub fn speak(&mut self, agent: &AgentId) {
        if let Some(held) = self.held.get_mut(agent) {
            held.spoken = true;
        }
    }

    /// The agent that was given an address.
    pub fn user(&self, address: IpAddr) -> Option<&AgentId> {
        self.taken.get(&address)?;
        self.held.iter().find(|(_, held)| held.has(address)).map(|(agent, _)| agent)
    }

    /// The pool that an address is in.
    pub fn pool_of(&self, address: IpAddr) -> Option<&AddressPoolId> {
        self.pools.iter().find(|(_, pool)| pool.contains(address)).map(|(id, _)| id)
    }

    /// What an agent has.
    pub fn of(&self, agent: &AgentId) -> Vec<AssignedAddress> {
        self.held.get(agent).map(|held| held.addresses.clone()).unwrap_or_default()
    }

    /// An agent is gone; says whether it had any. What was spoken for rests.
    pub fn give_back(&mut self, agent: &AgentId, now: Now) -> bool {
        let Some(held) = self.held.remove(agent) else { return false };
        for one in held.addresses {
            if let Some(count) = self.taken.get_mut(&one.address) {
                *count -= 1;
                if *count == 0 {
                    self.taken.remove(&one.address);
                }
            }
            if held.spoken && one.cooldown_ms > 0 {
                let until = now.mono + one.cooldown();
                let rest = self.resting.entry(one.address).or_insert(until);
                *rest = until.max(*rest);
            }
        }
        true
    }

    /// Gives back what was kept for agents of a template that never came to be; says whether there
    /// was any.
    pub fn sweep(
        &mut self,
        template: &TemplateId,
        lives: impl Fn(&AgentId) -> bool,
        now: Now,
    ) -> bool {
        let unknown = |(agent, held): &(&AgentId, &Holding)| {
            held.template == *template && !held.spoken && !lives(agent)
        };
        let unknown_runners: Vec<AgentId> =
            self.held.iter().filter(unknown).map(|(agent, _)| agent.clone()).collect();
        unknown_runners.iter().for_each(|agent| {
            self.give_back(agent, now);
        });
        !unknown_runners.is_empty()
    }

    /// Every pool for people.
    pub fn statuses(&self, now: Now) -> Vec<AddressPoolStatus> {
        let status = |(id, pool): (&AddressPoolId, &Arc<AddressPoolSpec>)| {
            let (used, resting, next) = self.counts(pool, now.mono);
            AddressPoolStatus {
                pool: id.clone(),
                ranges: pool.ranges.iter().map(ToString::to_string).collect(),
                size: pool.size(),
                used,
                resting,
                free: pool.size().saturating_sub(used + resting),
                next_free: next.map(|next| now.wall + (next - now.mono)),
            }
        };
        self.pools.iter().map(status).collect()
    }

    /// When an address has rested next.
    pub fn next(&self, now: Moment) -> Option<Moment> {
        self.resting.values().copied().filter(|until| *until > now).min()
    }
}

impl Holding {
    fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|one| one.address == address)
    }
}

#[cfg(test)]
mod tests;
