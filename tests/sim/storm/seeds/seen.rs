//! What a storm's eye has seen: agents, leases, breakers, strangers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_model::id::{AgentId, LeaseId, SourceId, TemplateId};
use drover_model::phase::AgentPhase;
use drover_model::record::Owner;
use drover_model::size::Size;
use drover_model::spec::HerdSpec;
use drover_model::time::WallTime;

use super::held::Held;
use super::orders::Orders;
use super::outage::Outage;
use super::places::Places;
use super::rooms::Rooms;
use super::runners::Runners;
use super::usage::{Losses, Used};
use super::waits::Waits;
use crate::world::addresses::Addresses;

/// Something that must never be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// The name of what must hold.
    pub invariant: &'static str,
    /// What was seen.
    pub text: String,
    /// When, in virtual time.
    pub at: Duration,
}

/// One agent as records and facts describe it.
#[derive(Debug, Clone)]
pub struct Live {
    pub template: TemplateId,
    pub state: AgentPhase,
    /// Its guest, once intended.
    pub vmid: Option<u32>,
    /// Whether its intent is in the journal.
    pub recorded: bool,
    /// The number of its node's cluster, and the node.
    pub(super) place: Option<(usize, String)>,
    pub(super) leases: Vec<LeaseId>,
    pub(super) executors: u32,
    pub(super) retiring: bool,
    /// Whether it is reset, and so serves one owner for life.
    pub(super) resets: bool,
    /// For whom its last lease was.
    pub(super) owner: Option<Owner>,
    /// Whether the intent to put it back is written down and not carried out yet.
    pub(super) resetting: bool,
}

impl Live {
    /// Whether it is none of the pool: it serves one owner.
    pub fn is_kept_for_one(&self) -> bool {
        self.resets && self.owner.is_some()
    }
}

/// One lease as records and facts describe it.
#[derive(Debug, Clone, Default)]
pub struct LeaseSeen {
    /// Whether it was ever ready.
    pub served: bool,
    /// Why it ended.
    pub over: Option<String>,
    pub(super) agent: Option<AgentId>,
    /// Whether it was ready on that agent.
    pub(super) holds: bool,
    pub(super) expires: Option<WallTime>,
    /// When it must be over, and the span it was granted or renewed for.
    pub(super) ends: Option<(Duration, Duration)>,
    pub(super) wanted: bool,
    /// Whether a source's runner has it.
    pub(super) of_source: bool,
    /// The size that it asks for, once it has an agent.
    pub(super) size: Size,
}

/// A breaker that does not flow.
#[derive(Debug, Default)]
pub(super) struct Trip {
    pub(super) until: WallTime,
    pub(super) trials: BTreeSet<AgentId>,
}

impl Seen {
    /// A record of a template's breaker.
    pub(super) fn tripped(&mut self, template: &TemplateId, until: Option<WallTime>) {
        match until {
            Some(until) => {
                self.trips.insert(template.clone(), Trip { until, trials: BTreeSet::new() });
            }
            None => drop(self.trips.remove(template)),
        }
    }

    /// An agent reports its template and its place, or nothing any more.
    pub(super) fn proven(&mut self, agent: &AgentId, template: &TemplateId) {
        if let Some(trip) = self.trips.get_mut(template) {
            trip.trials.remove(agent);
        }
        self.places.reported(agent);
    }
}

#[derive(Default)]
pub(super) struct Seen {
    /// By how many milliseconds the wall clock was set, as far as the service has written that down.
    pub(super) set: i64,
    pub(super) spec: HerdSpec,
    /// What operators say against it, as the journal has it.
    pub(super) overridden: drover_model::overridden::Overridden,
    pub(super) before: Vec<(Duration, HerdSpec)>,
    pub(super) live: BTreeMap<AgentId, Live>,
    pub(super) owners: BTreeMap<u32, AgentId>,
    pub(super) cloned: BTreeMap<AgentId, String>,
    /// The ids of agents, ever.
    pub(super) intended: BTreeMap<AgentId, u32>,
    /// When ids were given back last.
    pub(super) freed: BTreeMap<u32, (Duration, WallTime)>,
    pub(super) leases: BTreeMap<LeaseId, LeaseSeen>,
    /// What the agents were used for.
    pub(super) used: BTreeMap<AgentId, Used>,
    pub(super) losses: Losses,
    /// Whether a hold was ever written down.
    pub(super) holds: bool,
    pub(super) strangers: BTreeSet<u32>,
    pub(super) orphans: BTreeSet<u32>,
    /// Agents whose node was down once: they may have left the caps.
    pub(super) shaken: BTreeSet<AgentId>,
    /// Nodes that were down once.
    pub(super) frail: BTreeSet<(usize, String)>,
    pub(super) trips: BTreeMap<TemplateId, Trip>,
    pub(super) places: Places,
    pub(super) rooms: Rooms,
    pub(super) runners: Runners,
    /// The cap of each source; 0 for none.
    pub(super) shares: BTreeMap<SourceId, u32>,
    /// Configurations of guests that got ready, by agent.
    pub(super) past: BTreeMap<AgentId, (u32, BTreeMap<String, String>)>,
    pub(super) unowned: BTreeMap<u32, Duration>,
    pub(super) outage: Option<Outage>,
    pub(super) held: Held,
    pub(super) waits: Waits,
    pub(super) orders: Orders,
    /// This moment, and how much happened at it.
    pub(super) moment: (Duration, u32),
    pub(super) harmed: bool,
    pub(super) addresses: Addresses,
    pub(super) log: Option<Vec<String>>,
    pub(super) wrong: Option<Wrong>,
}
