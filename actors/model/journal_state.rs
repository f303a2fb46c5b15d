//! The journal folded: what a start of the service knows before it looks at the world.
//!
//! A [`JournalState`] is also the body of a snapshot: folding the records after it gives the same journal state
//! as folding all of them.

mod agent;
mod clock;
mod declared;
mod granted;
mod images;
mod leases;
mod places;
mod unwritten;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::canary::Canary;
use crate::id::{
    AgentId, CloudId, ClusterId, Installation, LeaseId, NodeName, RunnerName, SourceId, TemplateId,
    VmId,
};
use crate::keyed;
use crate::machine::Machine;
use crate::order::Order;
use crate::overridden::Overridden;
use crate::overrides::OverrideChange;
use crate::phase::{AgentPhase, OrderedBy};
use crate::record::{Body, Hold, LOST, LeaseAsk, Reason, Record, Troubled};
use crate::scope::Scope;
use crate::time::WallTime;

pub use agent::{AgentEntry, Commands};
pub use declared::DeclaredEntry;
pub use granted::{GrantedLease, Pass};
use granted::{is_within, millis};
pub use images::{BuildEntry, BuildFailure, FAILED_KEPT, FailedBuild};
pub use leases::{EndedLease, ended_keep};
use places::mark;

/// How long an id rests after use.
pub const REST: Duration = Duration::from_secs(60 * 60);

/// Everything the journal says, folded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JournalState {
    /// The sequence of the last record folded.
    pub seq: u64,
    /// The last start's epoch.
    pub epoch: u64,
    /// This installation, once there was a first start.
    pub installation: Option<Installation>,
    /// Which cluster each cloud leads to.
    pub clusters: BTreeMap<CloudId, ClusterId>,
    /// Clusters that go on under another fingerprint: that of now, and the id they are known by.
    pub continued: BTreeMap<ClusterId, ClusterId>,
    /// The machine it belongs to.
    pub machine: Option<Machine>,
    /// Agents that are not gone.
    pub agents: BTreeMap<AgentId, AgentEntry>,
    /// Leases asked for and not granted yet, in the order of asking.
    pub waiting: Vec<LeaseAsk>,
    /// Leases that ended, with why and when, for answering repeated requests; pruned after a day,
    /// those without an idempotency key after an hour.
    /// Leases of sources are never in it: nobody repeats those.
    pub ended: BTreeMap<LeaseId, EndedLease>,
    /// When ended leases were pruned last.
    pub pruned: WallTime,
    /// Breakers of templates that are not at rest.
    #[serde(with = "keyed")]
    pub breakers: BTreeMap<TemplateId, BreakerEntry>,
    /// Breakers of nodes, storages and clouds that are not at rest, and whose agent moved them.
    pub places: BTreeMap<Scope, (TemplateId, BreakerEntry)>,
    /// Ids that rest after use, with the time of their freeing; pruned when they have rested.
    pub resting: BTreeMap<ClusterId, BTreeMap<VmId, WallTime>>,
    /// Addresses that rest after use; pruned when they have rested.
    pub resting_addresses: BTreeMap<IpAddr, AddressRest>,
    /// Ids that must not be used until their volumes were listed empty.
    pub burned: BTreeMap<ClusterId, BTreeMap<VmId, WallTime>>,
    /// Guests whose marks named a sequence that was not reached, until an operator has confirmed it
    /// (book: safety, rule 14).
    pub ahead: BTreeMap<ClusterId, (VmId, u64)>,
    /// What operators want of agents whose clone is not intended yet; such agents end with their
    /// service.
    pub early: BTreeMap<AgentId, Commands>,
    /// Storages that disc images were intended on, ever.
    pub image_storages: BTreeMap<ClusterId, BTreeSet<String>>,
    /// Nodes that operators drained.
    pub drained: BTreeMap<ClusterId, BTreeSet<NodeName>>,
    /// Nodes that operators cordoned; none of them is drained.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cordoned: BTreeMap<ClusterId, BTreeSet<NodeName>>,
    /// Who cordoned or drained those nodes, as far as that was written.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ordered: BTreeMap<ClusterId, BTreeMap<NodeName, OrderedBy>>,
    /// Nodes, clouds and sources that are in trouble, each since when.
    #[serde(with = "keyed")]
    pub troubled: BTreeMap<Troubled, WallTime>,
    /// Templates of which drover holds the next agent that fails on its way.
    #[serde(with = "keyed")]
    pub hold_next: BTreeMap<TemplateId, Hold>,
    /// Runners that may be at their sources.
    pub runners: BTreeMap<SourceId, BTreeMap<RunnerName, RunnerEntry>>,
    /// Builds of images, and removals of versions, that are not over.
    pub builds: BTreeMap<AgentId, BuildEntry>,
    /// The last build of each image on each node, where it failed; the newest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_builds: Vec<FailedBuild>,
    /// What templates know of their versions.
    #[serde(with = "keyed")]
    pub canaries: BTreeMap<TemplateId, Canary>,
    /// What operators say of templates and clouds against the configuration.
    #[serde(skip_serializing_if = "Overridden::is_empty")]
    pub overridden: Overridden,
    /// Declared machines that have a guest, or may have one, by the ids in their marks.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub declared: BTreeMap<AgentId, DeclaredEntry>,
}

/// The rest of an address after use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressRest {
    /// When its agent was gone.
    pub since: WallTime,
    /// How long it rests, in milliseconds.
    pub cooldown_ms: u64,
}

impl AddressRest {
    /// How long it rests.
    pub fn cooldown(&self) -> Duration {
        Duration::from_millis(self.cooldown_ms)
    }
}

/// A runner that may be at its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunnerEntry {
    pub agent: AgentId,
    /// The lease it serves.
    pub lease: LeaseId,
    /// Jobs that began on it, of those that may take several.
    #[serde(default)]
    pub began: u32,
    /// Where its source was when it was intended; none where that was not written down.
    #[serde(default)]
    pub place: Option<u64>,
    /// The numbers that its rows have or had there, as far as they are known.
    #[serde(default)]
    pub rows: BTreeSet<u64>,
}

/// A breaker that is not at rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BreakerEntry {
    /// Failures in a row.
    pub failures: u32,
    /// When it may be tried again; none while it flows.
    pub until: Option<WallTime>,
    /// The cool-down in force, in milliseconds.
    pub cooldown_ms: u64,
    /// The last cause.
    pub cause: String,
    /// Which version of the template it judges; none in older journals.
    #[serde(default)]
    pub version: Option<String>,
}

/// How often ended leases are pruned, in milliseconds: a busy day leaves hundreds of thousands,
/// too many to look through at every record.
const PRUNE_EVERY_MS: i64 = 10 * 60 * 1000;

impl JournalState {
    /// Folds one record in.
    pub fn apply(&mut self, record: &Record) {
        self.seq = record.seq;
        self.epoch = record.epoch;
        let at = record.wall_time;
        match &record.body {
            Body::Takeover { installation } => {
                self.installation = Some(installation.clone());
                self.early.clear();
            }
            Body::ClusterPinned { cloud, cluster } => {
                self.clusters.insert(cloud.clone(), cluster.clone());
            }
            Body::CloneIntended { marks, node, spec } => {
                self.intend(AgentEntry::intended(marks, node, spec, at), record.seq);
            }
            Body::OrphanTaken { marks, node, spec } => {
                self.intend(AgentEntry::orphan(marks, node, spec, at), record.seq);
            }
            Body::TaskAccepted { agent, upid } => {
                self.with(agent, |entry| entry.upid = Some(upid.to_string()));
            }
            Body::CloneSettled { agent, node } => self.with(agent, |entry| {
                entry.settled = true;
                entry.node = node.clone();
            }),
            Body::AddressAssigned { agent, addresses } => {
                self.with(agent, |entry| entry.addresses.clone_from(addresses));
            }
            Body::GuestCalled { agent, address } => self.set_called(agent, *address),
            Body::IsoIntended { agent, volume } => self.image_intended(agent, volume),
            Body::VolumesKnown { agent, volumes, mac } => self.with(agent, |entry| {
                entry.volumes.clone_from(volumes);
                if mac.is_some() {
                    entry.mac.clone_from(mac);
                }
            }),
            Body::HostKeyPinned { agent, keys, address } => self.with(agent, |entry| {
                entry.host_keys.clone_from(keys);
                entry.address = Some(address.clone());
            }),
            Body::Phase { agent, state } => self.with(agent, |entry| {
                entry.reach(*state, at);
                entry.stranded = None;
                // It is free for use again when the last key was removed, and not before.
                if *state == AgentPhase::Ready {
                    entry.expelling.clear();
                    entry.unswept = false;
                    // An agent that is free again after a reset is clean.
                    entry.ran &= !entry.clean;
                }
            }),
            Body::KeyRemoved { agent, lease } => self.with(agent, |entry| {
                entry.expelling.remove(lease);
            }),
            Body::LeaseAsked(ask) => self.waiting.push((**ask).clone()),
            Body::LeaseGranted { agent, ask, expires, pending } => {
                self.waiting.retain(|other| other.lease != ask.lease);
                let span_ms = Some(millis(*expires - at));
                let granted = GrantedLease {
                    ask: (**ask).clone(),
                    granted: Some(at),
                    expires: *expires,
                    span_ms,
                    runner: None,
                    pending: *pending,
                };
                let ask = &granted.ask;
                // The agent that gave it back may not have been heard yet.
                for entry in self.agents.values_mut() {
                    entry.leases.remove(&ask.lease);
                }
                self.with(agent, |entry| {
                    entry.uses += 1;
                    entry.owner = Some(granted.ask.whose());
                    entry.ran |= granted.ask.source.is_some();
                    // Its phase is reported too, and may be lost when this is not.
                    entry.reach(AgentPhase::Leased, at);
                    entry.leases.insert(granted.ask.lease.clone(), granted);
                });
            }
            Body::LeaseReady { agent, lease } => self.with(agent, |entry| {
                if let Some(granted) = entry.leases.get_mut(lease) {
                    granted.pending = false;
                }
            }),
            Body::LeaseRenewed { lease, expires } => {
                for entry in self.agents.values_mut() {
                    if let Some(granted) = entry.leases.get_mut(lease) {
                        granted.renew(*expires, at);
                    }
                }
            }
            Body::RunnerIntended { agent, lease, source, runner, place } => {
                self.with(agent, |entry| {
                    if let Some(granted) = entry.leases.get_mut(lease) {
                        granted.runner = Some(runner.clone());
                    }
                });
                let (agent, lease) = (agent.clone(), lease.clone());
                let (place, rows) = (*place, BTreeSet::new());
                let entry = RunnerEntry { agent, lease, began: 0, place, rows };
                self.runners.entry(source.clone()).or_default().insert(runner.clone(), entry);
            }
            Body::RunnerWorked { source, runner, began } => {
                let runners = self.runners.get_mut(source);
                if let Some(entry) = runners.and_then(|runners| runners.get_mut(runner)) {
                    entry.began = *began;
                }
            }
            Body::RowsNumbered { source, runner, rows } => {
                let runners = self.runners.get_mut(source);
                if let Some(entry) = runners.and_then(|runners| runners.get_mut(runner)) {
                    entry.rows.clone_from(rows);
                }
            }
            Body::RowGone { source, runner } => {
                if let Some(runners) = self.runners.get_mut(source) {
                    runners.remove(runner);
                }
                self.runners.retain(|_, runners| !runners.is_empty());
            }
            Body::LeaseReturned { agent, lease } => self.return_lease(agent, lease),
            Body::LeaseEnded { lease, why, cause } => self.end_lease(lease, why, cause, at),
            Body::OverrideSet { agent, change } => self.set_override(agent, *change),
            Body::TemplateOverridden { .. } | Body::CloudOverridden { .. } => {
                self.overridden.take_in(&record.body);
            }
            Body::HoldSet { agent, hold, until, next, why } => {
                if until.is_some() {
                    self.with(agent, |entry| entry.reach(AgentPhase::Held, at));
                }
                self.set_hold(agent, hold.as_deref(), *until);
                if let Some(why) = why {
                    self.commands(agent).held_why = Some(why.clone());
                }
                if let Some(template) = next {
                    self.hold_next.remove(template);
                }
            }
            Body::HoldNextSet { template, hold } => match hold {
                Some(hold) => {
                    self.hold_next.insert(template.clone(), (**hold).clone());
                }
                None => {
                    self.hold_next.remove(template);
                }
            },
            Body::MachineOrdered { agent, order } => self.set_order(agent, order),
            Body::OrderEnded { agent, order, end } => {
                self.with(agent, |entry| entry.machine.end(order, end, at));
            }
            Body::SnapshotTaken { agent } => self.with(agent, |entry| entry.clean = true),
            // Its phase is reported too, and may be lost when this is not.
            Body::ResetIntended { agent } => {
                self.with(agent, |entry| entry.reach(AgentPhase::Resetting, at));
            }
            Body::RetireIntended { agent, reason } => {
                self.with(agent, |entry| entry.retiring = Some(reason.clone()));
            }
            Body::ImageIntended { .. }
            | Body::ImageSealed { .. }
            | Body::ImageFailed { .. }
            | Body::ImageBuilt { .. }
            | Body::ImagePruned { .. }
            | Body::ImageGone { .. } => self.of_images(&record.body, record.seq, at),
            Body::DeclaredIntended { .. }
            | Body::DeclaredMade { .. }
            | Body::DeclaredChanged { .. }
            | Body::DeclaredCorrecting { .. }
            | Body::DeclaredRemoving { .. }
            | Body::DeclaredGone { .. } => self.of_declared(&record.body, record.seq, at),
            Body::BreakerMoved {
                scope,
                template,
                failures,
                until,
                cooldown_ms,
                cause,
                version,
            } => {
                let rests = *failures == 0 && until.is_none();
                let entry = (!rests).then(|| BreakerEntry {
                    failures: *failures,
                    until: *until,
                    cooldown_ms: *cooldown_ms,
                    cause: cause.clone(),
                    version: version.clone(),
                });
                self.move_breaker(scope.as_ref(), template, entry);
            }
            Body::CanaryMoved { template, canary } => {
                self.canaries.insert(template.clone(), canary.clone());
                self.canaries.retain(|_, canary| !canary.is_empty());
            }
            Body::IdBurned { cluster, vmid } => {
                self.burned.entry(cluster.clone()).or_default().insert(*vmid, at);
            }
            Body::IdCleared { cluster, vmid } => {
                if let Some(burned) = self.burned.get_mut(cluster) {
                    burned.remove(vmid);
                }
            }
            Body::ClusterContinued { cluster, now } => {
                self.continued.insert(now.clone(), cluster.clone());
            }
            Body::ClockSet { by_ms } => self.set_clock(*by_ms),
            Body::MachineBound { machine } => self.machine = Some(machine.clone()),
            Body::AheadConfirmed { cluster } => {
                self.ahead.remove(cluster);
            }
            Body::MarksAhead { cluster, vmid, seq } => {
                self.ahead.insert(cluster.clone(), (*vmid, *seq));
            }
            Body::NodeDrained { cluster, node, drained, cordoned, by } => {
                let was = mark(&mut self.drained, cluster, node, *drained);
                let was_cordoned = mark(&mut self.cordoned, cluster, node, *cordoned && !*drained);
                // Who orders what holds already changes nothing.
                if (was, was_cordoned) != (*drained, *cordoned && !*drained) {
                    let by = by.as_ref().filter(|_| *drained || *cordoned);
                    self.ordered_by(cluster, node, by.map(|by| OrderedBy { by: by.clone(), at }));
                }
            }
            Body::TroubleSince { of, since } => self.trouble(of, *since),
            Body::Stranded { agent, why, command } => self.with(agent, |entry| {
                entry.stranded = Some((why.clone(), command.clone()));
            }),
            Body::Gone { agent, reason, burned } => self.gone(agent, reason, *burned, at),
        }
        // Either way: the clock may have been set back.
        if at.0.abs_diff(self.pruned.0) >= PRUNE_EVERY_MS.unsigned_abs() {
            self.pruned = at;
            self.forget_leases(at);
            self.resting_addresses.retain(|_, rest| {
                let cooldown = rest.cooldown();
                is_within(&mut rest.since, cooldown, at)
            });
            for ids in self.resting.values_mut() {
                ids.retain(|_, since| is_within(since, REST, at));
            }
        }
    }

    /// An agent's overrides change, whether its clone is intended yet or not.
    pub fn set_override(&mut self, agent: &AgentId, change: OverrideChange) {
        self.commands(agent).overrides.change(change);
    }

    /// An agent will be held, is held until some moment, or its hold is over.
    pub fn set_hold(&mut self, agent: &AgentId, hold: Option<&Hold>, until: Option<WallTime>) {
        let commands = self.commands(agent);
        commands.hold = hold.cloned();
        commands.held_until = until;
        commands.held_why = commands.held_why.take().filter(|_| hold.is_some());
        if let Some(entry) = self.agents.get_mut(agent).filter(|_| until.is_some()) {
            // Its phase is reported too, and may be lost when this is not. Nobody else comes after it.
            entry.state = Some(AgentPhase::Held);
            entry.expelling.clear();
        }
    }

    /// An agent's machine has an order.
    pub fn set_order(&mut self, agent: &AgentId, order: &Order) {
        self.with(agent, |entry| entry.machine.begin(order.clone()));
    }

    /// An agent's guest has called from an address.
    pub fn set_called(&mut self, agent: &AgentId, address: IpAddr) {
        self.with(agent, |entry| {
            entry.called.get_or_insert(address);
        });
    }

    fn commands(&mut self, agent: &AgentId) -> &mut Commands {
        match self.agents.get_mut(agent) {
            Some(entry) => &mut entry.commands,
            None => self.early.entry(agent.clone()).or_default(),
        }
    }

    fn with(&mut self, agent: &AgentId, change: impl FnOnce(&mut AgentEntry)) {
        if let Some(entry) = self.agents.get_mut(agent) {
            change(entry);
        }
    }

    fn intend(&mut self, entry: AgentEntry, seq: u64) {
        let mut entry = entry;
        if entry.marks.seq == 0 {
            entry.marks.seq = seq;
        }
        entry.commands = self.early.remove(&entry.marks.agent).unwrap_or_default();
        self.agents.insert(entry.marks.agent.clone(), entry);
    }

    fn image_intended(&mut self, agent: &AgentId, volume: &str) {
        let Some(entry) = self.agents.get_mut(agent) else { return };
        if !entry.volumes.iter().any(|known| known == volume) {
            entry.volumes.push(volume.to_owned());
        }
        if let Some((storage, _)) = volume.split_once(':') {
            let storages = self.image_storages.entry(entry.marks.cluster.clone()).or_default();
            storages.insert(storage.to_owned());
        }
    }

    fn gone(&mut self, agent: &AgentId, reason: &Reason, burned: bool, at: WallTime) {
        self.early.remove(agent);
        let Some(entry) = self.agents.remove(agent) else { return };
        let lost: Vec<GrantedLease> = entry.leases.into_values().collect();
        for granted in lost {
            let agent = Some(agent.clone());
            let (why, cause) = (LOST.into(), reason.to_string());
            self.remember(EndedLease { ask: granted.ask, agent, why, cause, at });
        }
        for one in entry.addresses.iter().filter(|one| one.cooldown_ms > 0) {
            let rest = AddressRest { since: at, cooldown_ms: one.cooldown_ms };
            self.resting_addresses.insert(one.address, rest);
        }
        let ids = if burned { &mut self.burned } else { &mut self.resting };
        ids.entry(entry.marks.cluster).or_default().insert(entry.marks.vmid, at);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
