//! The start of the herd: clusters and clouds come to life, and whatever the journal knows is
//! taken over.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, AsyncContext, Context, Recipient, Supervised};
use drover_model::fact::What;
use drover_model::id::{CloudId, ClusterId, Installation};
use drover_model::journal_state::JournalState;
use drover_model::machine::Machine;
use drover_model::ports::Ports;
use drover_model::record::Troubled;
use drover_model::spec::HerdSpec;
use tokio::sync::oneshot;

use super::addresses::ShownPools;
use super::clusters::Known;
use super::explain::Explained;
use super::{ClusterActors, Herd, Suspected, Tried};
use crate::birth::{
    Adoption, AgentSpawner, Common, GiveUp, Lanes, Rank, Run, Supervision, spawn_child,
};
use crate::cloud::{Cloud, CloudCommand};
use crate::cluster::Cluster;
use crate::cluster::allocator::Allocator;
use crate::hold_next::HoldNext;
use crate::reconciler::plan::Memory;
use crate::reconciler::{Reconciler, ReconcilerCommand};
use crate::roster::Roster;
use crate::scheduler::state::Scheduler;
use crate::shared::{Shared, role};
use crate::suspicion::{Suspect, suspicious};
use crate::time_limits::patient;
use crate::troubles::Troubles;
use drover_limits::concurrency::{ConcurrencyLimits, Footprint};
use drover_runtime::reply::Reply;
use drover_runtime::supervise::{Census, RestartLimit, SupervisionOptions, supervise};

/// Everything the herd starts from.
pub struct HerdStart {
    /// The ways out.
    pub ports: Ports,
    /// The journal, folded.
    pub journal_state: JournalState,
    /// The first configuration.
    pub spec: Arc<HerdSpec>,
    pub installation: Installation,
    /// This start of the service.
    pub epoch: u64,
    /// How long the service was down, credited to leases.
    pub down: Duration,
    /// The machine it runs on, where that is known.
    pub machine: Option<Machine>,
    pub spawner: AgentSpawner,
    /// Hears when an actor is given up.
    pub give_up: GiveUp,
}

/// A herd that has started.
pub struct Started {
    pub herd: Addr<Herd>,
    /// Filled when every configured cloud was tried once.
    pub tried: oneshot::Receiver<Tried>,
    /// Who lives; for the watchdog and tests on the same thread.
    pub roster: Shared<Roster>,
    /// Which actors live; for tests on the same thread.
    pub census: Census,
}

/// The root is not started again within the process: its knowledge is the journal's, and a start of
/// the service reads that.
fn root_watch(common: &Common<role::Herd>) -> SupervisionOptions {
    let give_up = Arc::clone(&common.supervision.give_up);
    SupervisionOptions {
        name: "herd".to_owned(),
        restart_limit: RestartLimit { restarts: 0, within: Duration::from_secs(1) },
        observer: Arc::clone(&common.ports.observer),
        ambient: Arc::clone(&common.ports.ambient),
        census: common.supervision.census.clone(),
        on_give_up: Box::new(move |what| give_up(what)),
    }
}

impl Supervised for Herd {}

impl Herd {
    /// Starts the herd on the current actix system.
    pub fn start_from(start: HerdStart) -> Started {
        let (ready, tried) = Reply::channel();
        let ports = patient(start.ports);
        let census = Census::default();
        let run = Run {
            installation: start.installation,
            epoch: start.epoch,
            since: ports.ambient.now().wall.before(start.down),
        };
        let supervision =
            Supervision { census: census.clone(), give_up: start.give_up, spawner: start.spawner };
        let hold_next = HoldNext::of_journal_state(&start.journal_state);
        let common = Common::new(ports, run, supervision, hold_next);
        let roster = common.roster.give();
        let (journal_state, spec, down) = (start.journal_state, start.spec, start.down);
        let machine = start.machine;
        let herd = supervise(root_watch(&common), move |ctx| {
            let herd: Recipient<Suspected> = ctx.address().recipient();
            let suspect: Suspect = Arc::new(move |cloud, fault| {
                herd.do_send(Suspected(cloud.clone(), fault.clone()));
            });
            let ports = suspicious(common.ports.clone(), suspect);
            let common = Common { ports, ..common };
            let mut herd = Self {
                common,
                configured: Arc::clone(&spec),
                overridden: journal_state.overridden.clone(),
                said: journal_state.overridden.clone(),
                spec: Arc::default(),
                scheduler: Scheduler::restore(&journal_state),
                clouds: BTreeMap::new(),
                clusters: BTreeMap::new(),
                sources: BTreeMap::new(),
                orphaned: BTreeSet::new(),
                troubles: Troubles::restored(&journal_state.troubled),
                known: BTreeMap::new(),
                leads: BTreeMap::new(),
                elsewhere: BTreeMap::new(),
                unbound: None,
                tried: BTreeMap::new(),
                ready: Some(ready),
                copying: None,
                asking: BTreeMap::new(),
                releasing: BTreeMap::new(),
                images: super::images::Images::default(),
                declared: super::declared::Declared::default(),
                writes: super::writes::Writes::default(),
                drain: None,
                settling: false,
                explained: Explained::default(),
                wait_ends: None,
                pools: ShownPools::default(),
                taking: BTreeSet::new(),
                leaving: BTreeSet::new(),
                ordered: BTreeMap::new(),
                called: {
                    let all = journal_state.agents.iter();
                    all.filter_map(|(id, entry)| Some((id.clone(), entry.called?))).collect()
                },
            };
            herd.know_machine(&journal_state, machine, ctx);
            herd.take_over(&journal_state, down, &spec, ctx);
            herd
        });
        Started { herd, tried, roster, census }
    }

    fn take_over(
        &mut self,
        journal_state: &JournalState,
        down: Duration,
        spec: &Arc<HerdSpec>,
        ctx: &mut Context<Self>,
    ) {
        self.follow_doubts(ctx);
        self.continue_known(&journal_state.continued);
        self.show_known(journal_state, down);
        self.common.sites.restore(journal_state);
        self.end_old_troubles(spec);
        if !journal_state.places.is_empty() {
            self.common.board.restore(journal_state, self.common.ports.ambient.now());
        }
        self.common.canaries.restore(journal_state);
        if !journal_state.runners.is_empty() {
            let now = self.common.ports.ambient.now().mono;
            self.common.runners.restore(journal_state, now);
        }
        for what in self.common.board.all().iter().filter_map(|one| self.common.board.status(one)) {
            self.observe(what);
        }
        for (template, hold) in &journal_state.hold_next {
            self.show_hold_next(template, Some(hold));
        }
        self.open_addresses(journal_state, spec);
        for cluster in journal_state.clusters.values() {
            self.begin_cluster(cluster, journal_state, ctx);
        }
        let homes = journal_state.agents.values().map(|entry| &entry.spec.id.cloud);
        for cloud in spec.clouds.keys().chain(homes) {
            self.begin_cloud(cloud, journal_state, ctx);
        }
        self.adopt_failures(journal_state, spec, ctx);
        self.adopt_builds(journal_state, ctx);
        self.adopt_declared(journal_state, spec, ctx);
        let mut adopt: BTreeMap<CloudId, Vec<Adoption>> = BTreeMap::new();
        for (id, entry) in &journal_state.agents {
            tracing::info!(agent = %id, state = entry.phase().name(), "agent is taken over");
            // Who asks for it before its own actor has reported must find it.
            self.observe(What::Agent(Arc::new(entry.status())));
            let cluster = &entry.marks.cluster;
            let lanes = self.begin_cluster(cluster, journal_state, ctx).lanes(cluster);
            let adoption = Adoption { entry: Box::new(entry.clone()), lanes, down };
            adopt.entry(entry.spec.id.cloud.clone()).or_default().push(adoption);
        }
        let spec = self.overridden.over(spec);
        self.apply(&spec, adopt, ctx);
        self.forget_overrides(ctx);
        self.settle_soon(ctx);
    }

    /// What left the configuration while the service was down reports nothing of itself any more.
    fn end_old_troubles(&mut self, spec: &HerdSpec) {
        let mut over = self.troubles.take(|of| match of {
            Troubled::Node { .. } => false,
            Troubled::Cloud { cloud } => !spec.clouds.contains_key(cloud),
            Troubled::Source { source } => !spec.sources.contains_key(source),
        });
        self.common.records.write_all(over.end());
    }

    /// A cluster's actors, started with what the journal knows of its ids where they are new.
    fn begin_cluster(
        &mut self,
        id: &ClusterId,
        journal_state: &JournalState,
        ctx: &Context<Self>,
    ) -> &ClusterActors {
        let (common, known, troubles) = (&self.common, &mut self.known, &mut self.troubles);
        let mut builds_here = self.images.known();
        builds_here.extend(self.declared.ids());
        self.clusters.entry(id.clone()).or_insert_with(|| {
            let here =
                || journal_state.agents.iter().filter(|(_, entry)| entry.marks.cluster == *id);
            let builds = journal_state.builds.values();
            let builds = builds.filter(|entry| entry.marks.cluster == *id);
            let held = here().map(|(_, entry)| entry.marks.vmid);
            let held = held.chain(builds.map(|entry| entry.marks.vmid));
            let machines = journal_state.declared.values();
            let machines = machines.filter(|entry| entry.marks.cluster == *id);
            let held = held.chain(machines.map(|entry| entry.marks.vmid));
            let mut lanes = ConcurrencyLimits::default();
            let now = common.ports.ambient.now();
            for (agent, entry) in here().filter(|(_, entry)| !entry.settled) {
                lanes.adopt(
                    agent.clone(),
                    Footprint::of(&entry.spec, entry.node.clone()),
                    now.mono,
                );
            }
            let resting = journal_state.resting.get(id).cloned().unwrap_or_default();
            let burned = journal_state.burned.get(id).into_iter().flatten().map(|(vmid, _)| *vmid);
            let troubles =
                troubles.take(|of| matches!(of, Troubled::Node { cluster, .. } if cluster == id));
            // One that is come back to is known better than by a journal that was not read again.
            let known = known.entry(id.clone()).or_insert_with(|| Known {
                ids: Rc::new(RefCell::new(Allocator::restore(held, &resting, burned, now))),
                memory: {
                    let ahead = journal_state.ahead.get(id).copied();
                    let storages =
                        journal_state.image_storages.get(id).cloned().unwrap_or_default();
                    let offline = troubles.offline(id, now.wall);
                    let memory = Memory::restored(ahead, storages);
                    Rc::new(RefCell::new(memory.with_offline(offline, now.mono)))
                },
            });
            known.memory.borrow_mut().restart();
            let (ids, memory) = (Rc::clone(&known.ids), Rc::clone(&known.memory));
            let (name, herd) = (id.clone(), ctx.address().recipient());
            let make = move |common, _: &mut _| Cluster::new(common, name, herd, ids, lanes);
            let cluster = spawn_child(common, Rank::Branch, &format!("cluster {id}"), make);
            let (name, at, herd) = (id.clone(), cluster.clone(), ctx.address().recipient());
            let make =
                move |common, _: &mut _| Reconciler::new(common, name, at, herd, memory, troubles);
            let reconciler = spawn_child(common, Rank::Branch, &format!("reconciler {id}"), make);
            reconciler.do_send(ReconcilerCommand::Builds(builds_here));
            ClusterActors { cluster, reconciler }
        })
    }

    /// The ways to a cluster, which is started where it is new.
    pub(super) fn cluster(&mut self, id: &ClusterId, ctx: &Context<Self>) -> Lanes {
        self.begin_cluster(id, &JournalState::default(), ctx).lanes(id)
    }

    /// A cloud's address; started with what the journal knows of it where it is new.
    fn begin_cloud(
        &mut self,
        id: &CloudId,
        journal_state: &JournalState,
        ctx: &Context<Self>,
    ) -> Addr<Cloud> {
        if let Some(address) = self.clouds.get(id) {
            return address.clone();
        }
        let pinned = journal_state.clusters.get(id).cloned();
        let breakers = journal_state.breakers.iter().filter(|(template, _)| template.cloud == *id);
        let breakers = breakers.map(|(id, entry)| (id.clone(), entry.clone())).collect();
        let of = Troubled::Cloud { cloud: id.clone() };
        let troubles = self.troubles.take(|other| *other == of);
        let (name, herd, leads) = (id.clone(), ctx.address().recipient(), pinned.clone());
        let make =
            move |common, _: &mut _| Cloud::new(common, herd, name, pinned, breakers, troubles);
        let address = spawn_child(&self.common, Rank::Branch, &format!("cloud {id}"), make);
        if let Some(cluster) = leads {
            let lanes = self.begin_cluster(&cluster, journal_state, ctx).lanes(&cluster);
            address.do_send(CloudCommand::Lanes(lanes));
            self.leads.insert(id.clone(), cluster);
        }
        self.clouds.insert(id.clone(), address.clone());
        address
    }

    /// A cloud's address; it is started where it is new.
    pub(super) fn cloud(&mut self, id: &CloudId, ctx: &Context<Self>) -> Addr<Cloud> {
        let journal_state =
            JournalState { clusters: self.leads.clone(), ..JournalState::default() };
        self.begin_cloud(id, &journal_state, ctx)
    }
}
