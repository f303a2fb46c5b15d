//! The read side, folded from facts: what the web, the metrics and the command line show.
//!
//! Nothing here decides. Everything is bounded: live things by the herd itself, ended ones and
//! restarts by a fixed history. No guard of a map is held across an await.

mod feed;
mod fold;
mod history;
mod numbers;
mod statuses;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, OnceLock};

use dashmap::DashMap;
use drover_api::SyncOut;
use drover_audit::Trouble;
use drover_limits::call_queue::CallLoad;
use drover_model::fact::{Fact, What};
use drover_model::id::{
    AgentId, CloudId, ClusterId, DeclaredName, Generation, LeaseId, SourceId, TemplateId,
};
use drover_model::phase::{CloudHealth, LeasePhase};
use drover_model::ports::Observer;
use drover_model::scope::Scope;
use drover_model::spec::HerdSpec;
use drover_model::status::{
    AddressPoolStatus, AgentStatus, BreakerStatus, CloudStatus, DeclaredStatus, ImageStatus,
    LeaseStatus, SourceStatus, TemplateStatus,
};
use drover_model::time::WallTime;
use drover_notify::ChannelTrouble;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::Instant;

use numbers::Numbers;
use statuses::SeenCloud;

pub use numbers::SpanOutcome;
pub(crate) use numbers::waiter;

pub use feed::{Event, EventId, FACTS_KEPT, Keeper, Reader, Reported};
pub use statuses::{
    AlarmStatus, ConfigStatus, GoneAgent, LostJob, Readiness, ReconcileStatus, RestartStatus,
    TemplateAsides,
};

/// Ended leases that are still shown.
pub const ENDED_LEASES_KEPT: usize = 1000;
/// Agents that are gone and still shown.
pub const GONE_AGENTS_KEPT: usize = 500;
/// Jobs lost with their machines that are still shown.
pub const LOST_JOBS_KEPT: usize = 100;
/// Builds of images that are shown, ended ones included.
const BUILDS_KEPT: usize = 200;
/// Restarts of actors that are still shown.
pub const RESTARTS_KEPT: usize = 100;

/// Everything shown to people and scripts, always current as of the last fact.
pub struct View {
    agents: DashMap<AgentId, Arc<AgentStatus>>,
    leases: DashMap<LeaseId, watch::Sender<LeaseStatus>>,
    templates: DashMap<TemplateId, TemplateStatus>,
    asides: DashMap<TemplateId, TemplateAsides>,
    clouds: DashMap<CloudId, SeenCloud>,
    reconciled: DashMap<ClusterId, ReconcileStatus>,
    pools: Mutex<Vec<AddressPoolStatus>>,
    builds: Mutex<VecDeque<ImageStatus>>,
    declared: DashMap<DeclaredName, DeclaredStatus>,
    sources: DashMap<SourceId, SourceStatus>,
    alarms: DashMap<AgentId, AlarmStatus>,
    /// What speaks for another drover on this installation.
    other_drover: Mutex<Vec<String>>,
    /// Breakers of nodes, storages and clouds.
    places: DashMap<Scope, BreakerStatus>,
    past: Mutex<Past>,
    numbers: Mutex<Numbers>,
    readiness: watch::Sender<Readiness>,
    journal: Mutex<Option<String>>,
    audit: Mutex<Option<Trouble>>,
    channels: Mutex<Vec<ChannelTrouble>>,
    restart_due: Mutex<Vec<&'static str>>,
    /// The state of the sync with git; none where no repository is configured.
    sync: Mutex<Option<SyncOut>>,
    /// The clouds that git manages, with the commit in force.
    managed: Mutex<BTreeMap<CloudId, String>>,
    configured: Mutex<Arc<HerdSpec>>,
    /// What people run to restart the service; blank where it is not known.
    restart_command: OnceLock<&'static str>,
    /// The configuration in the store of the members; none where it is in files that people edit.
    stored_config: OnceLock<StoredConfig>,
    calls: OnceLock<Meter>,
    /// When this start of the service began.
    began: OnceLock<WallTime>,
    feed: feed::Feed,
}

/// Reads how many calls to clusters run and wait, by a cloud of each cluster.
pub type Meter = Box<dyn Fn() -> Vec<(CloudId, Vec<CallLoad>)> + Send + Sync>;

/// Since when what is wrong with the configuration in a store, and what; none while nothing is.
pub type StoreTroubles = Box<dyn Fn() -> Option<(WallTime, String)> + Send + Sync>;

/// A configuration in the store of the members.
struct StoredConfig {
    /// What people run to check the files that the member has of it.
    check: String,
    trouble: StoreTroubles,
}

/// What is over, and counts of it.
#[derive(Default)]
struct Past {
    config: ConfigStatus,
    /// What was in force when the last one was refused.
    refused_after: Generation,
    gone: VecDeque<GoneAgent>,
    gone_by_reason: BTreeMap<&'static str, u64>,
    ended: VecDeque<LeaseId>,
    ended_at: HashMap<LeaseId, WallTime>,
    lost: VecDeque<LostJob>,
    lost_count: u64,
    /// What earlier starts reported of agents that may still need an administrator.
    alarmed: HashMap<AgentId, (String, WallTime)>,
    restarts: VecDeque<RestartStatus>,
    restart_count: u64,
}

impl Past {
    /// Notes when a lease ended; false where that is known already.
    fn ends(&mut self, lease: &LeaseId, at: WallTime) -> bool {
        match self.ended_at.entry(lease.clone()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(free) => {
                free.insert(at);
                true
            }
        }
    }

    /// Puts an ended lease among the others by the time of its end; gives the oldest of too many.
    fn keep_ended(&mut self, lease: &LeaseId, at: WallTime) -> Option<LeaseId> {
        let Self { ended, ended_at, .. } = self;
        let place = ended.partition_point(|known| ended_at.get(known).is_none_or(|end| *end <= at));
        ended.insert(place, lease.clone());
        let oldest = if ended.len() > ENDED_LEASES_KEPT { ended.pop_front() } else { None };
        if let Some(oldest) = &oldest {
            ended_at.remove(oldest);
        }
        oldest
    }
}

impl View {
    /// Makes an empty view; `run` distinguishes this start of the service from others in event ids
    /// (the journal's epoch, or any number that differs at each start).
    pub fn new(run: u64) -> Arc<Self> {
        Arc::new(Self {
            agents: DashMap::new(),
            leases: DashMap::new(),
            templates: DashMap::new(),
            asides: DashMap::new(),
            clouds: DashMap::new(),
            reconciled: DashMap::new(),
            pools: Mutex::new(Vec::new()),
            builds: Mutex::default(),
            declared: DashMap::new(),
            sources: DashMap::new(),
            alarms: DashMap::new(),
            other_drover: Mutex::default(),
            places: DashMap::new(),
            past: Mutex::new(Past::default()),
            numbers: Mutex::default(),
            readiness: watch::Sender::new(Readiness::default()),
            journal: Mutex::new(None),
            audit: Mutex::new(None),
            channels: Mutex::default(),
            restart_due: Mutex::new(Vec::new()),
            sync: Mutex::default(),
            managed: Mutex::default(),
            configured: Mutex::default(),
            restart_command: OnceLock::new(),
            stored_config: OnceLock::new(),
            calls: OnceLock::new(),
            began: OnceLock::new(),
            feed: feed::Feed::new(run),
        })
    }

    /// Notes that the journal is folded.
    pub fn mark_journal_folded(&self) {
        self.readiness.send_modify(|ready| ready.journal_folded = true);
    }

    /// Notes that each cloud was tried once, with success or not.
    pub fn mark_clouds_tried(&self) {
        self.readiness.send_modify(|ready| ready.clouds_tried = true);
    }

    /// Notes why the journal cannot be written, or that it can.
    pub fn mark_journal(&self, trouble: Option<String>) {
        *self.journal.lock() = trouble;
    }

    /// Why the journal cannot be written; none when it can.
    pub fn journal_trouble(&self) -> Option<String> {
        self.journal.lock().clone()
    }

    /// Notes why the audit log cannot be written, or that it can.
    pub fn mark_audit(&self, trouble: Option<Trouble>) {
        *self.audit.lock() = trouble;
    }

    /// Why the audit log cannot be written; none when it can.
    pub fn audit_trouble(&self) -> Option<Trouble> {
        self.audit.lock().clone()
    }

    /// Notes the channels of notifications whose messages are not taken.
    pub fn mark_channels(&self, troubles: Vec<ChannelTrouble>) {
        *self.channels.lock() = troubles;
    }

    /// The channels of notifications whose messages are not taken.
    pub fn channel_troubles(&self) -> Vec<ChannelTrouble> {
        self.channels.lock().clone()
    }

    /// Marks the state of the sync with git.
    pub fn mark_sync(&self, sync: Option<SyncOut>, configured: Arc<HerdSpec>) {
        let clouds = sync.iter().flat_map(|sync| &sync.clouds);
        let commit = sync.as_ref().and_then(|sync| sync.in_force.as_ref());
        let commit = commit.map_or_else(String::new, |of| of.commit.clone());
        let managed = clouds.map(|cloud| (CloudId::new(cloud), commit.clone())).collect();
        *self.managed.lock() = managed;
        *self.sync.lock() = sync;
        *self.configured.lock() = configured;
    }

    /// The configuration as it was read, where git manages a part of it.
    pub fn configured(&self) -> Arc<HerdSpec> {
        Arc::clone(&self.configured.lock())
    }

    /// The state of the sync with git; none where no repository is configured.
    pub fn sync(&self) -> Option<SyncOut> {
        self.sync.lock().clone()
    }

    /// The commit of git that manages a cloud; none where none does.
    pub fn managed_by(&self, cloud: &CloudId) -> Option<String> {
        self.managed.lock().get(cloud).cloned()
    }

    /// Notes which keys of the configuration take effect at the next start only.
    pub fn mark_restart_due(&self, keys: Vec<&'static str>) {
        *self.restart_due.lock() = keys;
    }

    /// The keys whose values in the configuration are not those in force; empty where a restart changes
    /// nothing.
    pub fn restart_due(&self) -> Vec<&'static str> {
        self.restart_due.lock().clone()
    }

    /// Which start of the service this is, as its event ids have it.
    pub fn run(&self) -> u64 {
        self.feed.run
    }

    /// Says when this start of the service began, so that what the journal has of before is no news; once.
    pub fn mark_started(&self, at: WallTime) {
        // The first stays: a service begins once.
        let _ = self.began.set(at);
    }

    /// Says where events are kept over a restart; once.
    pub fn keep_with(&self, keeper: Keeper) {
        self.feed.keep_with(keeper);
    }

    /// Says what people run to restart the service; once.
    pub fn mark_restarted_by(&self, command: &'static str) {
        // The first stays: what started the service does not change.
        let _ = self.restart_command.set(command);
    }

    /// What people run to restart the service; blank where that is not known.
    pub fn restart_command(&self) -> &'static str {
        self.restart_command.get().copied().unwrap_or_default()
    }

    /// Says how to read how many calls to clusters run and wait; once.
    pub fn meter_calls(&self, meter: Meter) {
        // The first stays: there is one client.
        let _ = self.calls.set(meter);
    }

    /// How many calls to clusters run and wait, by a cloud of each cluster.
    pub fn call_levels(&self) -> Vec<(CloudId, Vec<CallLoad>)> {
        self.calls.get().map(|meter| meter()).unwrap_or_default()
    }

    /// How far the start has come.
    pub fn readiness(&self) -> Readiness {
        *self.readiness.borrow()
    }

    /// Whether the service is ready for work, and nothing keeps it from beginning any.
    pub fn ready(&self) -> bool {
        self.readiness().ready() && self.journal_trouble().is_none()
    }

    /// Waits until the service is ready for work.
    pub async fn wait_ready(&self) {
        let mut seen = self.readiness.subscribe();
        // The sender lives in `self`, so the wait cannot end early.
        let _ = seen.wait_for(Readiness::ready).await;
    }

    /// Live agents, by id.
    pub fn agents(&self) -> Vec<Arc<AgentStatus>> {
        self.agents_where(|_| true)
    }

    /// Live agents that are `wanted`, by id.
    pub fn agents_where(&self, wanted: impl Fn(&AgentStatus) -> bool) -> Vec<Arc<AgentStatus>> {
        let found = self.agents.iter().filter(|entry| wanted(entry.value()));
        let mut all: Vec<_> = found.map(|entry| entry.value().clone()).collect();
        all.sort_by(|a, b| a.agent.cmp(&b.agent));
        all
    }

    /// One live agent.
    pub fn agent(&self, agent: &AgentId) -> Option<Arc<AgentStatus>> {
        self.agents.get(agent).map(|entry| entry.value().clone())
    }

    /// The last agents that went, oldest first.
    pub fn gone_agents(&self) -> Vec<GoneAgent> {
        self.past().gone.iter().cloned().collect()
    }

    /// Agents gone since the start, by [`Reason::label`](drover_model::record::Reason::label).
    pub fn gone_by_reason(&self) -> BTreeMap<&'static str, u64> {
        self.past().gone_by_reason.clone()
    }

    /// Leases, ended ones of the history too, by id.
    pub fn leases(&self) -> Vec<LeaseStatus> {
        let mut all: Vec<_> =
            self.leases.iter().map(|entry| entry.value().borrow().clone()).collect();
        all.sort_by(|a, b| a.lease.cmp(&b.lease));
        all
    }

    /// How many leases are in that state.
    pub fn count_leases(&self, state: LeasePhase) -> usize {
        self.leases.iter().filter(|entry| entry.value().borrow().state == state).count()
    }

    pub fn lease(&self, lease: &LeaseId) -> Option<LeaseStatus> {
        self.leases.get(lease).map(|entry| entry.value().borrow().clone())
    }

    /// When a lease ended; none while it has not.
    pub fn lease_ended(&self, lease: &LeaseId) -> Option<WallTime> {
        self.past().ended_at.get(lease).copied()
    }

    /// The leases that ended since then, with their ends, the oldest first.
    pub fn ended_since(&self, from: WallTime) -> Vec<(LeaseStatus, WallTime)> {
        let past = self.past();
        let ends = past.ended.iter().rev().filter_map(|id| Some((id, *past.ended_at.get(id)?)));
        let late = ends.take_while(|(_, at)| *at >= from);
        let late: Vec<(LeaseId, WallTime)> = late.map(|(id, at)| (id.clone(), at)).collect();
        drop(past);
        let known = late.into_iter().rev().filter_map(|(id, at)| Some((self.lease(&id)?, at)));
        known.collect()
    }

    /// Waits until `done` holds for a lease or the deadline passes, and gives its last status;
    /// none when there is no such lease.
    pub async fn wait_for_lease(
        &self,
        lease: &LeaseId,
        mut done: impl FnMut(&LeaseStatus) -> bool,
        deadline: Instant,
    ) -> Option<LeaseStatus> {
        let mut changes = self.leases.get(lease).map(|entry| entry.value().subscribe())?;
        // Either the deadline passed or the lease left the history: the last status stands.
        let _ = tokio::time::timeout_at(deadline, changes.wait_for(|seen| done(seen))).await;
        let last = changes.borrow().clone();
        Some(last)
    }

    pub fn template(&self, template: &TemplateId) -> Option<TemplateStatus> {
        self.templates.get(template).map(|entry| entry.value().clone())
    }

    /// Templates, by id.
    pub fn templates(&self) -> Vec<TemplateStatus> {
        let mut all: Vec<_> = self.templates.iter().map(|entry| entry.value().clone()).collect();
        all.sort_by(|a, b| a.template.cmp(&b.template));
        all
    }

    /// What others than the template itself report of it.
    pub fn template_asides(&self, template: &TemplateId) -> TemplateAsides {
        self.asides.get(template).map(|asides| asides.value().clone()).unwrap_or_default()
    }

    /// Clouds, by id.
    pub fn clouds(&self) -> Vec<CloudStatus> {
        self.dated_clouds().into_iter().map(|(cloud, _)| cloud).collect()
    }

    /// Clouds, by id, and when each last reported.
    pub fn dated_clouds(&self) -> Vec<(CloudStatus, WallTime)> {
        self.seen_clouds().into_iter().map(|seen| (seen.status, seen.at)).collect()
    }

    /// Degraded clouds, by id, and since when each is so.
    pub fn degraded_clouds(&self) -> Vec<(CloudStatus, WallTime)> {
        let all = self.seen_clouds().into_iter();
        let degraded = all.filter(|seen| seen.status.health == CloudHealth::Degraded);
        degraded.map(|seen| (seen.status, seen.since)).collect()
    }

    fn seen_clouds(&self) -> Vec<SeenCloud> {
        let mut all: Vec<_> = self.clouds.iter().map(|entry| entry.value().clone()).collect();
        all.sort_by(|a, b| a.status.cloud.cmp(&b.status.cloud));
        all
    }

    /// The last reconciliation of each cluster.
    pub fn reconciled(&self) -> Vec<ReconcileStatus> {
        let mut all: Vec<_> = self.reconciled.iter().map(|entry| entry.value().clone()).collect();
        all.sort_by(|a, b| a.cluster.cmp(&b.cluster));
        all
    }

    /// What speaks for another drover that uses this installation, and what to do.
    pub fn other_drover(&self) -> Vec<String> {
        self.other_drover.lock().clone()
    }

    /// Pools of addresses, by name.
    pub fn address_pools(&self) -> Vec<AddressPoolStatus> {
        self.pools.lock().clone()
    }

    /// Sources of demand, by name.
    pub fn sources(&self) -> Vec<SourceStatus> {
        let mut all: Vec<_> = self.sources.iter().map(|entry| entry.value().clone()).collect();
        all.sort_by(|a, b| a.source.cmp(&b.source));
        all
    }

    /// The last jobs that were lost with their machines, oldest first.
    pub fn lost_jobs(&self) -> Vec<LostJob> {
        self.past().lost.iter().cloned().collect()
    }

    /// Jobs lost with their machines since the start.
    pub fn lost_job_count(&self) -> u64 {
        self.past().lost_count
    }

    /// Alarms that stand.
    pub fn alarms(&self) -> Vec<AlarmStatus> {
        let mut all: Vec<_> = self.alarms.iter().map(|entry| entry.value().clone()).collect();
        all.sort_by(|a, b| a.agent.cmp(&b.agent));
        all
    }

    /// Breakers of nodes, storages and clouds that were ever charged, by name.
    pub fn places(&self) -> Vec<BreakerStatus> {
        let mut all: Vec<_> = self.places.iter().map(|entry| entry.value().clone()).collect();
        all.sort_by_cached_key(|one| one.scope.to_string());
        all
    }

    /// The configuration in force and the last refusal.
    pub fn config(&self) -> ConfigStatus {
        let store_trouble = self.stored_config.get().and_then(|stored| (stored.trouble)());
        ConfigStatus { store_trouble, ..self.past().config.clone() }
    }

    /// The configuration lies in the store of the members: people check it by this command.
    pub fn mark_stored_config(&self, check: String, trouble: StoreTroubles) {
        // It lies where it lay at the start.
        let _ = self.stored_config.set(StoredConfig { check, trouble });
    }

    /// What people run to check the configuration that was read last.
    pub fn check_command(&self) -> &str {
        self.stored_config.get().map_or("drover check", |stored| &stored.check)
    }

    /// The last restarts of actors, oldest first.
    pub fn restarts(&self) -> Vec<RestartStatus> {
        self.past().restarts.iter().cloned().collect()
    }

    /// Restarts of actors since the start.
    pub fn restart_count(&self) -> u64 {
        self.past().restart_count
    }

    /// Says that other members of a store may have led other starts: their events are not known here.
    pub fn mark_shared(&self) {
        self.feed.mark_shared();
    }

    /// The last event of this start, or what stands before its first one.
    pub fn last_event(&self) -> EventId {
        self.feed.last()
    }

    /// The events that are kept, the oldest first.
    pub fn kept_events(&self) -> Vec<Arc<Event>> {
        self.feed.kept()
    }

    /// Opens the stream of facts, from after the given event when that is still kept.
    pub fn events(&self, after: Option<EventId>) -> Reader {
        self.feed.read(after)
    }

    /// Whether a fact is of an earlier start, or known: that a lease ended which this start never had.
    pub fn is_history(&self, fact: &Fact) -> bool {
        let What::Lease(status) = &fact.what else { return false };
        if status.state != LeasePhase::Ended {
            return false;
        }
        let is_before = self.began.get().is_some_and(|began| fact.at < *began);
        match self.leases.get(&status.lease).map(|known| known.borrow().clone()) {
            Some(known) if known.state != LeasePhase::Ended => false,
            Some(known) => is_before || known == fold::shown(status, &known),
            None => is_before,
        }
    }

    fn past(&self) -> MutexGuard<'_, Past> {
        self.past.lock()
    }

    /// Builds of images that run, and the last that ended, in the order of their beginning.
    pub fn image_builds(&self) -> Vec<ImageStatus> {
        self.builds.lock().iter().cloned().collect()
    }

    /// Declared machines, and those that left the configuration and are still there, by name.
    pub fn declared(&self) -> Vec<DeclaredStatus> {
        let mut all: Vec<_> = self.declared.iter().map(|entry| entry.value().clone()).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// One of them.
    pub fn declared_one(&self, name: &DeclaredName) -> Option<DeclaredStatus> {
        self.declared.get(name).map(|entry| entry.value().clone())
    }
}

impl Observer for View {
    fn observe(&self, fact: Fact) {
        let is_news = !self.is_history(&fact);
        self.count(&fact.what, fact.at);
        self.fold(&fact);
        if is_news {
            self.feed.report(fact);
        }
    }
}

#[cfg(test)]
mod tests;
