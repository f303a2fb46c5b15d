//! Facts become records: one for each thing that was wanted, and one for each agent.
//!
//! ```text
//! facts, notes, what guests use ──▶ Fold ──▶ Open(record)    it began, or got further
//!                                       └──▶ Closed(record)  it is over: never written again
//! ```
//!
//! A record that is open is known by its id. A service that starts gives the fold the open records of the
//! last start ([`Fold::restored`]): what it sees of them again goes on, so that an agent which is taken over
//! is one agent. What it does not see again until it [has settled](Fold::settled) ended unseen.
//!
//! Times of one record never go back, also where the clock was set back: each is at least the one before.
//!
//! Files: `of_use.rs` the facts that count, `agents.rs` the lives of agents, `demands.rs` leases and runners,
//! `jobs.rs` jobs of sources.

mod agents;
mod demands;
mod jobs;
mod of_use;

use std::collections::{BTreeMap, BTreeSet};

use drover_model::fact::Fact;
use drover_model::id::{AgentId, CloudId, ClusterId, SourceId, TemplateId, VmId};
use drover_model::noted::Noted;
use drover_model::time::WallTime;
use serde::{Deserialize, Serialize};

use crate::{Agent, Configuration, Demand, DemandKind, Line, Service, ServiceChange};

pub use of_use::takes;

use of_use::OfUse;

/// Records of one kind that may be open at once; what comes beyond them is not followed.
const OPEN_MAX: usize = 100_000;

/// A line of the history's files: a record is open until it is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kept {
    /// It goes on; a later record of the same id takes its place.
    Open(Line),
    /// It is over.
    Closed(Line),
    /// The first line of a file: its format, and a time that no record of an earlier file ended after.
    Head { format: u32, from: WallTime },
    /// drover ran at this time.
    Alive(WallTime),
}

impl Kept {
    /// Its record, where it has one.
    pub fn line(self) -> Option<Line> {
        match self {
            Self::Open(line) | Self::Closed(line) => Some(line),
            Self::Head { .. } | Self::Alive(_) => None,
        }
    }
}

impl Line {
    /// What names a record that may be open; none for what is written once.
    pub fn name(&self) -> Option<String> {
        match self {
            Self::Agent(agent) => Some(format!("agent {}", agent.id)),
            Self::Demand(demand) => {
                let source = demand.source.as_deref().unwrap_or_default();
                Some(format!("{} {source} {}", demand.kind.name(), demand.id))
            }
            Self::Trace(_) | Self::Configuration(_) | Self::Service(_) | Self::End(_) => None,
        }
    }

    /// When what it is about was over, or happened; none where it goes on.
    pub fn ended(&self) -> Option<WallTime> {
        match self {
            Self::Agent(agent) => agent.gone,
            Self::Demand(demand) => demand.ended,
            Self::Configuration(configuration) => Some(configuration.at),
            Self::Service(service) => Some(service.at),
            Self::Trace(_) | Self::End(_) => None,
        }
    }

    /// When what it is about started.
    pub fn started(&self) -> Option<WallTime> {
        match self {
            Self::Agent(agent) => Some(agent.made),
            Self::Demand(demand) => Some(demand.arrived),
            Self::Configuration(_) | Self::Service(_) | Self::Trace(_) | Self::End(_) => None,
        }
    }
}

/// What a guest uses at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    pub vmid: VmId,
    pub cores: Option<u32>,
    pub memory_mib: Option<u32>,
    /// Busy cores, in thousandths of one.
    pub busy_milli: Option<u32>,
    pub used_mib: Option<u32>,
}

/// What names a record of demand: two sources may have jobs of one id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    kind: DemandKind,
    source: Option<String>,
    id: String,
}

impl Key {
    fn of(demand: &Demand) -> Self {
        let (source, id) = (demand.source.clone(), demand.id.clone());
        Self { kind: demand.kind, source, id }
    }

    fn job(source: &SourceId, id: &str) -> Self {
        let (source, id) = (Some(source.to_string()), id.to_owned());
        Self { kind: DemandKind::Job, source, id }
    }
}

/// An agent that lives.
struct OpenAgent {
    record: Agent,
    vmid: Option<VmId>,
    /// Whether it was seen in this start of the service.
    seen: bool,
    /// The leases on it, and when their parts of it were counted last.
    on: BTreeSet<Key>,
    counted: WallTime,
}

/// Something that is wanted or served.
struct OpenDemand {
    record: Demand,
    seen: bool,
    /// Microseconds of its agent so far.
    used_us: u64,
    /// Since when its source does not show it, where it is a job.
    missing: Option<WallTime>,
}

/// What is open, and what comes of facts.
pub struct Fold {
    /// When this start of the service was: facts from before are of the journal.
    started: WallTime,
    version: String,
    agents: BTreeMap<AgentId, OpenAgent>,
    demands: BTreeMap<Key, OpenDemand>,
    /// Jobs of each source that are open.
    jobs: BTreeMap<SourceId, BTreeSet<String>>,
    clusters: BTreeMap<CloudId, ClusterId>,
    /// The last size of each template's agents that was seen.
    sizes: BTreeMap<String, (Option<u32>, Option<u32>)>,
    lease_priority: i32,
    /// The latest time of the start before: what is not seen again ended then, as far as is known.
    last: WallTime,
    out: Vec<Kept>,
}

impl Fold {
    /// A fold that starts with what was open at the end of the start before, which wrote last at `last`.
    pub fn restored(
        version: &str,
        started: WallTime,
        open: impl IntoIterator<Item = Line>,
        last: WallTime,
    ) -> Self {
        let mut fold = Self {
            started,
            version: version.to_owned(),
            agents: BTreeMap::new(),
            demands: BTreeMap::new(),
            jobs: BTreeMap::new(),
            clusters: BTreeMap::new(),
            sizes: BTreeMap::new(),
            lease_priority: 0,
            last: last.min(started),
            out: Vec::new(),
        };
        for line in open {
            match line {
                Line::Agent(record) => fold.restore_agent(*record),
                Line::Demand(record) => fold.restore_demand(*record),
                Line::Trace(_) | Line::Configuration(_) | Line::Service(_) | Line::End(_) => {}
            }
        }
        fold.share_restored();
        let service = fold.service(started, ServiceChange::Started);
        fold.out.push(service);
        fold
    }

    fn service(&self, at: WallTime, change: ServiceChange) -> Kept {
        Kept::Closed(Line::Service(Service { at, change, drover: self.version.clone() }))
    }

    /// Takes what is to be written since the last time, in order.
    pub fn take(&mut self) -> Vec<Kept> {
        std::mem::take(&mut self.out)
    }

    /// All records that are open, as they are now: a file that starts with them needs no earlier one.
    pub fn open(&mut self, now: WallTime) -> Vec<Kept> {
        self.count_all(now);
        let agents = self.agents.values().map(|open| Line::Agent(Box::new(open.record.clone())));
        let demands = self.demands.values().map(|open| Line::Demand(Box::new(open.shown())));
        agents.chain(demands).map(Kept::Open).collect()
    }

    /// The service stops: what lives is kept as it is.
    pub fn stopped(&mut self, at: WallTime) {
        let open = self.open(at);
        self.out.extend(open);
        let service = self.service(at, ServiceChange::Stopped);
        self.out.push(service);
    }

    /// A configuration came into force, with this priority of leases.
    pub fn configured(
        &mut self,
        at: WallTime,
        generation: u64,
        digest: Option<String>,
        lease_priority: i32,
    ) {
        self.lease_priority = lease_priority;
        let line = Line::Configuration(Configuration { at, generation, digest });
        self.out.push(Kept::Closed(line));
    }

    /// Takes in a fact.
    pub fn observe(&mut self, fact: &Fact) {
        let at = fact.at;
        let Some(of_use) = OfUse::of(&fact.what) else { return };
        match of_use {
            OfUse::Agent(status) => self.agent(at, status),
            OfUse::AgentGone { agent, template, reason, phases } => {
                self.agent_gone(at, (agent, template), reason, phases);
            }
            OfUse::Lease(status) => self.lease(at, status),
            OfUse::JobLost { source, job } => {
                if let Some(job) = job {
                    self.job_lost(at, source, job);
                }
            }
            OfUse::SourceGone(source) => self.source_gone(at, source),
            OfUse::Cloud(status) => {
                if let Some(cluster) = &status.cluster {
                    self.clusters.insert(status.cloud.clone(), cluster.clone());
                }
            }
            OfUse::CloudGone(cloud) => {
                self.clusters.remove(cloud);
            }
            OfUse::TemplateGone(template) => {
                self.sizes.remove(&template.to_string());
            }
        }
    }

    /// Takes in what the history alone hears.
    pub fn note(&mut self, at: WallTime, noted: &Noted) {
        match noted {
            Noted::Started { agent, template, why, size } => {
                self.agent_started(at, (agent, template), *why, *size);
            }
            Noted::Jobs(seen) => self.jobs_seen(at, seen),
        }
    }

    /// All that this start takes over was shown: what was open and was not, is over. Jobs are those of `sources`.
    pub fn settled(&mut self, sources: &BTreeSet<SourceId>) {
        let unseen = self.agents.iter().filter(|(_, open)| !open.seen);
        let unseen: Vec<AgentId> = unseen.map(|(id, _)| id.clone()).collect();
        unseen.iter().for_each(|id| self.agent_unseen(id));
        // Jobs are seen at the next poll of their source, which may not answer for long.
        let unseen =
            self.demands.iter().filter(|(key, open)| !open.seen && key.kind != DemandKind::Job);
        let unseen: Vec<Key> = unseen.map(|(key, _)| key.clone()).collect();
        unseen.iter().for_each(|key| self.demand_unseen(key));
        // Nobody polls a source that left the configuration while drover was down.
        let left: Vec<SourceId> =
            self.jobs.keys().filter(|source| !sources.contains(*source)).cloned().collect();
        left.iter().for_each(|source| self.jobs_unseen(source));
    }

    fn template(id: &TemplateId) -> String {
        id.to_string()
    }
}

#[cfg(test)]
mod tests;
