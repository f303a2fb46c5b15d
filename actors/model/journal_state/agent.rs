//! One agent in the journal.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::granted::GrantedLease;
use super::unwritten;
use crate::addresses::AssignedAddress;
use crate::id::{LeaseId, NodeName};
use crate::marks::Marks;
use crate::order::MachineOrders;
use crate::overrides::Overrides;
use crate::phase::AgentPhase;
use crate::place::Place;
use crate::record::{Hold, Owner, Reason};
use crate::spec::TemplateSpec;
use crate::status::{AgentStatus, Standing};
use crate::time::WallTime;

/// One agent as the journal knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentEntry {
    /// The marks its guest carries.
    pub marks: Marks,
    /// The node its guest is on, as last known.
    pub node: NodeName,
    /// The spec it was born with.
    pub spec: Box<TemplateSpec>,
    /// When it was intended.
    pub intended: WallTime,
    /// The clone's task, once accepted.
    #[serde(default)]
    pub upid: Option<String>,
    /// Whether the clone is known to have worked.
    #[serde(default)]
    pub settled: bool,
    /// Addresses that are its own.
    #[serde(default)]
    pub addresses: Vec<AssignedAddress>,
    /// Where its guest called from.
    #[serde(default)]
    pub called: Option<IpAddr>,
    /// The guest's volumes.
    #[serde(default)]
    pub volumes: Vec<String>,
    /// The MAC address of its first network card.
    #[serde(default)]
    pub mac: Option<String>,
    /// SSH host keys.
    #[serde(default)]
    pub host_keys: Vec<String>,
    #[serde(default)]
    pub address: Option<String>,
    /// The last phase it was seen to reach; none where an older journal does not say, see
    /// [`AgentEntry::phase`].
    #[serde(default, with = "unwritten")]
    pub state: Option<AgentPhase>,
    /// Since when, as far as that was written down.
    #[serde(default)]
    pub since: Option<WallTime>,
    /// Leases on it.
    #[serde(default)]
    pub leases: BTreeMap<LeaseId, GrantedLease>,
    /// Uses so far, those under way included.
    #[serde(default)]
    pub uses: u32,
    /// Leases that were given back and whose key is still in the guest.
    #[serde(default)]
    pub expelling: BTreeMap<LeaseId, GrantedLease>,
    /// Whether the guest must not be offered again: somebody may be in it whose lease is over, and
    /// no key can be named whose removal would end that.
    #[serde(default)]
    pub unswept: bool,
    /// For whom its last lease was.
    #[serde(default)]
    pub owner: Option<Owner>,
    /// Whether a source's jobs may have run on it since it was clean.
    #[serde(default)]
    pub ran: bool,
    /// Whether there is a snapshot from before its first use.
    #[serde(default)]
    pub clean: bool,
    /// Why it is retired, once it is.
    #[serde(default)]
    pub retiring: Option<Reason>,
    /// What operators want of it.
    #[serde(default)]
    #[serde(rename = "wishes")]
    pub commands: Commands,
    /// What was ordered of its machine.
    #[serde(default, skip_serializing_if = "MachineOrders::is_untouched")]
    pub machine: MachineOrders,
    /// Why it is stranded, with the command that helps.
    #[serde(default)]
    pub stranded: Option<(String, String)>,
}

impl AgentEntry {
    /// One whose clone is intended, and of which nothing else is known yet.
    pub(super) fn intended(
        marks: &Marks,
        node: &NodeName,
        spec: &TemplateSpec,
        at: WallTime,
    ) -> Self {
        Self {
            marks: marks.clone(),
            node: node.clone(),
            spec: Box::new(spec.clone()),
            intended: at,
            upid: None,
            settled: false,
            addresses: Vec::new(),
            called: None,
            volumes: Vec::new(),
            mac: None,
            host_keys: Vec::new(),
            address: None,
            state: Some(AgentPhase::Cloning),
            since: Some(at),
            leases: BTreeMap::new(),
            uses: 0,
            expelling: BTreeMap::new(),
            unswept: false,
            owner: None,
            ran: false,
            clean: false,
            retiring: None,
            commands: Commands::default(),
            machine: MachineOrders::default(),
            stranded: None,
        }
    }

    /// One that is retired because its guest was found and no agent had it.
    pub fn orphan(marks: &Marks, node: &NodeName, spec: &TemplateSpec, at: WallTime) -> Self {
        let (state, retiring) = (Some(AgentPhase::Retiring), Some(Reason::Orphaned));
        Self { settled: true, state, retiring, ..Self::intended(marks, node, spec, at) }
    }

    /// It reached a phase, or reports it again.
    pub(super) fn reach(&mut self, phase: AgentPhase, at: WallTime) {
        if self.state != Some(phase) {
            self.state = Some(phase);
            self.since = Some(at);
        }
    }

    /// The phase that was written down last. Where an older journal does not say, the one that the
    /// agent is taken up in.
    pub fn phase(&self) -> AgentPhase {
        match self.state {
            Some(phase) => phase,
            None if self.stranded.is_some() => AgentPhase::Stranded,
            None if !self.settled => AgentPhase::InDoubt,
            None if self.retiring.is_some() => AgentPhase::Retiring,
            None if self.is_entered() => AgentPhase::Leased,
            // Settled and nothing more: configuring again does no harm.
            None => AgentPhase::Configuring,
        }
    }

    /// Where it is.
    pub fn place(&self) -> Place {
        Place {
            cluster: self.marks.cluster.clone(),
            vmid: self.marks.vmid,
            node: self.node.clone(),
            origin: self.spec.origin.clone(),
            source: Some(self.spec.source),
        }
    }

    /// Its status until it reports: without leases it counts as on its way.
    pub fn status(&self) -> AgentStatus {
        let phase = self.phase();
        let standing = match (&self.retiring, self.leases.is_empty()) {
            (Some(_), _) => Standing::Leaving,
            (None, true) if phase != AgentPhase::Held => Standing::Coming,
            (None, _) => Standing::Busy,
        };
        let (agent, template) = (self.marks.agent.clone(), self.spec.id.clone());
        AgentStatus {
            phase,
            standing,
            vmid: Some(self.marks.vmid),
            node: Some(self.node.clone()),
            address: self.reached_at(),
            ssh: Some((self.spec.ssh.port, self.spec.ssh.user.clone())),
            host_keys: self.host_keys.clone(),
            leases: self.leases.keys().cloned().collect(),
            uses: self.uses,
            overrides: self.commands.overrides,
            owner: self.owner.clone().filter(|_| self.spec.reset.is_some()),
            on_trial: self.spec.trial,
            size: self.spec.asked_size(),
            machine: self.machine.clone(),
            ..AgentStatus::started(agent, template, self.since.unwrap_or(self.intended))
        }
    }

    /// Where holders of its leases reach it, as far as the journal says.
    fn reached_at(&self) -> Option<String> {
        let own = || Some(self.addresses.first()?.address.to_string());
        let called = || Some(self.called?.to_string());
        self.address.clone().or_else(own).or_else(called)
    }

    /// Whether a lease is on it, or the key of one that is over.
    pub fn is_entered(&self) -> bool {
        !self.leases.is_empty() || !self.expelling.is_empty()
    }

    /// Whether it has not shown yet that what it is made of works: it may be a breaker's trial.
    ///
    /// One that is called off is such until its clone is over.
    pub fn is_unproven(&self) -> bool {
        let before_its_use = match self.state {
            Some(AgentPhase::Cloning | AgentPhase::InDoubt) => true,
            Some(
                AgentPhase::Ready | AgentPhase::Held | AgentPhase::Retiring | AgentPhase::Stranded,
            ) => false,
            None
            | Some(
                AgentPhase::Queued
                | AgentPhase::Configuring
                | AgentPhase::Booting
                | AgentPhase::Connecting
                | AgentPhase::Preparing
                | AgentPhase::Leased
                | AgentPhase::Draining
                | AgentPhase::Resetting
                | AgentPhase::Gone,
            ) => self.retiring.is_none(),
        };
        before_its_use && self.uses == 0 && self.leases.is_empty()
    }
}

/// What operators want of one agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Commands {
    /// What holds for it instead of what its template says.
    pub overrides: Overrides,
    /// That it is held for debugging.
    pub hold: Option<Hold>,
    /// When that is over, once it is held.
    pub held_until: Option<WallTime>,
    /// Why it would have gone, when it is held instead.
    pub held_why: Option<String>,
}
