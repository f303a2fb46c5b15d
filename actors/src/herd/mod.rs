//! The herd: the root of all actors. It applies configurations, adopts what the journal knows,
//! carries out what the scheduler decides, and is the one door for leases and operators.
//!
//! It owns the scheduler, and the addresses of its clouds, clusters and sources. A record is durable
//! before what follows from it happens.
//!
//! ```text
//! config, leases, operators ──▶ herd ──▶ cloud ──▶ template ──▶ agent
//!                                │ ▲ reports
//!                                └──▶ cluster and reconciler, sources
//! messages ──▶ scheduler ──▶ Settle (once for all that waited) ──▶ orders ──▶ carry_out
//! ```
//!
//! - In: commands of the app and the server, `CloudReport`, [`OrphanFound`], demand of sources.
//! - Out: commands to clouds, reconcilers, sources and agents; records; facts for the observer.
//!
//! Failure paths: a cloud that does not answer leaves the herd degraded, and its templates start
//! nothing; a record that is not written makes the request fail; an actor that panics is started
//! again, and goes on from the roster and the journal.
//!
//! Beside it: `start.rs` (the start), `writes.rs` (records in order), `leases.rs`, `explain.rs` and
//! `call_in.rs` (the door), `provision.rs`, `resync.rs`, `hold.rs`, `orders.rs`, `overrides.rs`, `plan.rs`, `breakers.rs`, `nodes.rs` and
//! `drain.rs` (operators), `images.rs` (builds of images), `declared.rs` (declared machines), `clusters.rs`, `continued.rs`,
//! `sources.rs` and `addresses.rs` (what it leads), `orphan.rs` and `machine.rs` (what another drover
//! may own).

mod addresses;
mod breakers;
mod call_in;
mod clusters;
mod continued;
mod declared;
mod drain;
mod explain;
mod hold;
mod images;
mod leases;
mod machine;
mod nodes;
mod orders;
mod orphan;
mod overrides;
mod plan;
mod provision;
mod resync;
mod sources;
mod start;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message};
use drover_model::fact::{Fact, What};
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{AgentId, CloudId, ClusterId, LeaseId, SourceId, TemplateId};
use drover_model::machine::Machine;
use drover_model::order::Order;
use drover_model::overridden::Overridden;
use drover_model::phase::LeasePhase;
use drover_model::record::Reason;
use drover_model::spec::{CloudSpec, HerdSpec, TemplateSpec};
use drover_model::state_machine::StateMachine;
use drover_model::time::WallTime;
use futures_util::future::AbortHandle;

use crate::birth::{Adoption, Common, same_template};
use crate::cloud::{Cloud, CloudCommand, CloudReport};
use crate::cluster::{Cluster, ClusterCommand};
use crate::demand::actor::Source;
use crate::message::{AgentCommand, ApplySpec, HerdCommand, Refusal};
use crate::reconciler::{OrphanFound, Reconciler, ReconcilerCommand};
use crate::scheduler::routing::Routing;
use crate::scheduler::state::Scheduler;
use crate::scheduler::{Effect, Event};
use crate::shared::role;
use crate::troubles::Troubles;
use drover_runtime::reply::Reply;
use drover_runtime::supervise::{count_message, limit_turns};

pub use start::{HerdStart, Started};

/// What the first try of every cloud came to: its version, or why it is degraded.
pub type Tried = BTreeMap<CloudId, Result<String, String>>;

type LeaseReply = Reply<Result<LeaseId, Refusal>>;
type ReleaseReply = Reply<Result<(), Refusal>>;

/// A cluster's two actors.
struct ClusterActors {
    cluster: Addr<Cluster>,
    reconciler: Addr<Reconciler>,
}

/// The root actor.
pub struct Herd {
    common: Common<role::Herd>,
    /// The configuration as it was read.
    configured: Arc<HerdSpec>,
    /// What operators say against it.
    overridden: Overridden,
    /// The same with what is being written down.
    said: Overridden,
    /// The configuration with what operators say.
    spec: Arc<HerdSpec>,
    scheduler: Scheduler,
    clouds: BTreeMap<CloudId, Addr<Cloud>>,
    clusters: BTreeMap<ClusterId, ClusterActors>,
    sources: BTreeMap<SourceId, Addr<Source>>,
    /// Sources whose runners were reported as left there without a way to them.
    orphaned: BTreeSet<SourceId>,
    /// Troubles of before this start whose actors were not started yet.
    troubles: Troubles,
    /// What is known of each cluster for as long as the service runs.
    known: BTreeMap<ClusterId, clusters::Known>,
    /// Which cluster each cloud leads to, once it said so in this start or by the journal.
    leads: BTreeMap<CloudId, ClusterId>,
    /// Clouds that lead to another cluster than before, and to which.
    elsewhere: BTreeMap<CloudId, ClusterId>,
    /// This machine, where the journal belongs to another one.
    unbound: Option<Machine>,
    tried: Tried,
    ready: Option<Reply<Tried>>,
    /// Whose machine a copy is being started of.
    copying: Option<AgentId>,
    asking: BTreeMap<LeaseId, Vec<LeaseReply>>,
    releasing: BTreeMap<LeaseId, Vec<ReleaseReply>>,
    images: images::Images,
    declared: declared::Declared,
    /// Appends under way.
    writes: writes::Writes,
    drain: Option<drain::Drain>,
    settling: bool,
    explained: explain::Explained,
    /// When it is looked again whether a lease has waited as long as it may.
    wait_ends: Option<(WallTime, AbortHandle)>,
    pools: addresses::ShownPools,
    /// Orphans that are written down and not in the roster yet.
    taking: BTreeSet<AgentId>,
    /// Agents on drained nodes that were asked to go.
    leaving: BTreeSet<AgentId>,
    /// The last order of each agent, which it may not have reported yet.
    ordered: BTreeMap<AgentId, Order>,
    /// Where guests of living agents called from in this start.
    called: BTreeMap<AgentId, IpAddr>,
}

/// To itself: an answer speaks against a cloud.
#[derive(Message)]
#[rtype(result = "()")]
pub(in crate::herd) struct Suspected(CloudId, Fault);

/// To itself: decide, once for all messages that were waiting.
#[derive(Message)]
#[rtype(result = "()")]
struct Settle;

impl Actor for Herd {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        limit_turns(ctx);
        self.rebuild_in_time(ctx);
    }
}

impl Herd {
    fn settle_soon(&mut self, ctx: &mut Context<Self>) {
        if !self.settling {
            self.settling = true;
            ctx.notify(Settle);
        }
    }

    fn observe(&self, what: What) {
        let at = self.common.ports.ambient.now().wall;
        self.common.ports.observer.observe(Fact { at, what });
    }

    /// Lets the scheduler take `event` in, and carries out what follows.
    pub(super) fn schedule(&mut self, event: Event, ctx: &mut Context<Self>) {
        let effects = self.effects_of(event);
        self.carry_out(effects, ctx);
    }

    /// Lets the scheduler take in what changes nothing before it decides again.
    pub(super) fn inform_scheduler(&mut self, event: Event) {
        let effects = self.effects_of(event);
        debug_assert!(effects.is_empty(), "left undone: {effects:?}");
    }

    fn effects_of(&mut self, event: Event) -> Vec<Effect> {
        let ambient = &self.common.ports.ambient;
        // Only a decision makes ids, and only for jobs of sources.
        let draws = matches!(event, Event::Decide) && !self.spec.sources.is_empty();
        let draw = if draws { ambient.draw() } else { 0 };
        self.scheduler.effects_by(event, || ambient.now(), draw)
    }

    fn carry_out(&mut self, effects: Vec<Effect>, ctx: &mut Context<Self>) {
        for effect in effects {
            match effect {
                Effect::HandOut { agent, ask } => {
                    tracing::info!(lease = %ask.lease, agent = %agent, "lease is handed out");
                    self.common.roster.send(&agent, AgentCommand::Lease { ask });
                }
                Effect::Start { template, size, count } => {
                    tracing::info!(template = %template, %size, count, "agents are wanted");
                    match self.clouds.get(&template.cloud) {
                        Some(cloud) => {
                            cloud.do_send(CloudCommand::Provision { template, size, count });
                        }
                        None => self.inform_scheduler(Event::NotStarted(template, size, count)),
                    }
                }
                Effect::Withdraw { agent } => {
                    tracing::info!(agent = %agent, "agent is not needed any more");
                    self.common.roster.send(&agent, AgentCommand::Withdraw);
                }
                Effect::Evict { agent } => {
                    tracing::info!(agent = %agent, "agent makes room for others");
                    self.common.roster.send(&agent, AgentCommand::Retire(Reason::MadeRoom));
                }
                Effect::End { agent, lease, why } => {
                    let why = why.to_owned();
                    self.common.roster.send(&agent, AgentCommand::EndLease { lease, why });
                }
                Effect::Cancel { lease, why } => self.cancel(lease, why, ctx),
                Effect::Again { lease } => {
                    tracing::warn!(lease = %lease, "lease lost its agent and waits again");
                    if let Some(ask) = self.scheduler.lease(&lease).map(|entry| entry.ask.clone()) {
                        let detail = "its agent was lost before it was ready: waits for another";
                        self.observe_lease(&ask, LeasePhase::Waiting, detail.into());
                    }
                }
                Effect::NotServed { source, lease } => {
                    tracing::warn!(lease = %lease, source = %source, "runner was not started");
                    self.observe_not_served(lease, &source);
                    self.not_served(&source);
                }
                Effect::Over { lease } => {
                    for reply in self.releasing.remove(&lease).into_iter().flatten() {
                        reply.send(Ok(()));
                    }
                }
            }
        }
    }

    /// The templates of one cloud; those that did not change keep the old spec, so that nobody
    /// hears of them.
    fn templates_of(
        spec: &HerdSpec,
        cloud: &CloudId,
        old: &HerdSpec,
    ) -> BTreeMap<TemplateId, Arc<TemplateSpec>> {
        let own = spec.templates.iter().filter(|(id, _)| id.cloud == *cloud);
        own.map(|(id, new)| {
            let kept = old.templates.get(id).filter(|old| same_template(old, new));
            (id.clone(), kept.unwrap_or(new).clone())
        })
        .collect()
    }

    fn apply(
        &mut self,
        new: &Arc<HerdSpec>,
        mut adopt: BTreeMap<CloudId, Vec<Adoption>>,
        ctx: &mut Context<Self>,
    ) {
        let old = std::mem::take(&mut self.spec);
        let (clouds, templates) = (BTreeMap::new(), BTreeMap::new());
        let mut merged = HerdSpec { clouds, templates, ..HerdSpec::clone(new) };
        self.inform_scheduler(Event::Limits(new.leases.clone()));
        let routing = Routing::new(&new.mappings).with(new.templates.values());
        self.inform_scheduler(Event::Routing(routing));
        if old.pools != new.pools {
            self.common.addresses.configure(&new.pools);
            self.show_pools(ctx);
        }
        for (id, cloud) in &new.clouds {
            let kept = old.clouds.get(id).filter(|old| *old == cloud);
            if old.clouds.get(id).is_none_or(|old| old.connection != cloud.connection) {
                self.common.ways.configured(id);
                // What it lists now may be another cluster's.
                self.unlist(id);
            }
            merged.clouds.insert(id.clone(), kept.unwrap_or(cloud).clone());
            let templates = Self::templates_of(new, id, &old);
            let before = Self::templates_of(&old, id, &old);
            merged.templates.extend(templates.clone());
            if kept.is_none() || templates != before {
                let adopt = adopt.remove(id).unwrap_or_default();
                self.apply_cloud(cloud.clone(), templates, adopt, kept.is_none(), ctx);
            }
        }
        for (id, adopt) in adopt {
            let (spec, templates) = (None, BTreeMap::new());
            self.cloud(&id, ctx).do_send(CloudCommand::Apply { spec, templates, adopt });
        }
        for id in old.clouds.keys().filter(|id| !new.clouds.contains_key(id)) {
            self.common.ways.unconfigured(id);
            if let Some(cloud) = self.clouds.get(id) {
                let (templates, adopt) = (BTreeMap::new(), Vec::new());
                cloud.do_send(CloudCommand::Apply { spec: None, templates, adopt });
            }
            if let Some(actors) = self.leads.get(id).and_then(|at| self.clusters.get(at)) {
                actors.cluster.do_send(ClusterCommand::Drop(id.clone()));
                actors.reconciler.do_send(ReconcilerCommand::Drop(id.clone()));
            }
            self.tried.remove(id);
        }
        // A file that was merely saved decides nothing, and moves no moment at which something is reported.
        let same = *old == HerdSpec { generation: old.generation, ..merged.clone() };
        self.spec = Arc::new(merged);
        self.apply_sources(&old, ctx);
        self.apply_declared(&old, ctx);
        let reconcile_seconds = new.reconcile_period.map(|period| period.as_secs());
        self.observe(What::ConfigApplied { generation: new.generation, reconcile_seconds });
        self.check_ready();
        if !same {
            self.settle_soon(ctx);
        }
    }

    fn apply_cloud(
        &mut self,
        spec: Arc<CloudSpec>,
        templates: BTreeMap<TemplateId, Arc<TemplateSpec>>,
        adopt: Vec<Adoption>,
        changed: bool,
        ctx: &Context<Self>,
    ) {
        let id = spec.id.clone();
        let cloud = self.cloud(&id, ctx);
        if let Some(actors) =
            self.leads.get(&id).and_then(|at| self.clusters.get(at)).filter(|_| changed)
        {
            actors.cluster.do_send(ClusterCommand::Use(spec.clone()));
            if self.tried.get(&id).is_some_and(Result::is_ok) {
                actors.reconciler.do_send(ReconcilerCommand::Use(spec.clone()));
            }
        }
        cloud.do_send(CloudCommand::Apply { spec: Some(spec), templates, adopt });
    }

    fn check_ready(&mut self) {
        if self.spec.clouds.keys().all(|id| self.tried.contains_key(id))
            && let Some(ready) = self.ready.take()
        {
            ready.send(self.tried.clone());
        }
    }

    fn leads(&mut self, cloud: &CloudId, cluster: ClusterId, ctx: &Context<Self>) {
        let lanes = self.cluster(&cluster, ctx);
        self.elsewhere.remove(cloud);
        self.common.ways.leads(cloud, &cluster);
        let before = self.leads.insert(cloud.clone(), cluster.clone());
        if before.as_ref() != Some(&cluster)
            && let Some(address) = self.clouds.get(cloud)
        {
            address.do_send(CloudCommand::Lanes(lanes));
        }
        if let (Some(spec), Some(actors)) =
            (self.spec.clouds.get(cloud), self.clusters.get(&cluster))
        {
            actors.cluster.do_send(ClusterCommand::Use(spec.clone()));
            actors.reconciler.do_send(ReconcilerCommand::Use(spec.clone()));
        }
    }

    /// No list is read through a cloud until it says again that it leads to its cluster.
    fn unlist(&self, cloud: &CloudId) {
        if let Some(actors) = self.leads.get(cloud).and_then(|at| self.clusters.get(at)) {
            actors.reconciler.do_send(ReconcilerCommand::Drop(cloud.clone()));
        }
    }

    fn tried(&mut self, cloud: CloudId, outcome: Result<String, String>) {
        if !self.spec.clouds.contains_key(&cloud) {
            return;
        }
        match &outcome {
            Ok(_) => {
                let now = self.common.ports.ambient.now();
                self.common.doubts.up(&cloud, self.leads.get(&cloud), now);
            }
            Err(why) => {
                self.common.doubts.down(&cloud, why);
                self.common.ways.silent(&cloud, self.leads.get(&cloud));
                self.unlist(&cloud);
            }
        }
        self.tried.insert(cloud, outcome);
        self.check_ready();
    }

    /// A cloud is not configured and has no agent: it ends, unless it was configured again.
    fn empty(&mut self, cloud: CloudId) {
        let lives = !self.common.roster.select(|living| living.template.cloud == cloud).is_empty();
        if self.spec.clouds.contains_key(&cloud) || lives {
            return;
        }
        if let Some(address) = self.clouds.remove(&cloud) {
            address.do_send(CloudCommand::Leave);
            self.leads.remove(&cloud);
            self.elsewhere.remove(&cloud);
            self.inform_scheduler(Event::CloudGone(cloud.clone()));
            self.common.ways.forgotten(&cloud);
            self.common.doubts.forget(&cloud);
            self.observe(What::CloudGone { cloud });
        }
    }
}

impl Handler<Settle> for Herd {
    type Result = ();

    fn handle(&mut self, _: Settle, ctx: &mut Context<Self>) {
        count_message(ctx);
        self.settling = false;
        let now = self.common.ports.ambient.now();
        self.inform_scheduler(Event::Fits(self.common.sites.rooms(now.mono)));
        self.inform_scheduler(Event::Restrained(self.common.restraint.agents()));
        self.schedule(Event::Decide, ctx);
        self.await_end(now.wall, ctx);
        self.explain(ctx);
        self.orphans_came();
        self.leave_clusters();
        self.follow_drains();
        self.build_missing(ctx);
    }
}

impl Handler<ApplySpec> for Herd {
    type Result = ();

    fn handle(&mut self, message: ApplySpec, ctx: &mut Context<Self>) {
        count_message(ctx);
        self.configured = message.0;
        let spec = self.overridden.over(&self.configured);
        self.apply(&spec, BTreeMap::new(), ctx);
        self.forget_overrides(ctx);
    }
}

impl Handler<CloudReport> for Herd {
    type Result = ();

    fn handle(&mut self, report: CloudReport, ctx: &mut Context<Self>) {
        count_message(ctx);
        match report {
            CloudReport::Room { cloud, room } => self.inform_scheduler(Event::Room(cloud, room)),
            CloudReport::News(news) => self.schedule(Event::News(news), ctx),
            CloudReport::NotStarted { template, size, count } => {
                self.inform_scheduler(Event::NotStarted(template, size, count));
            }
            CloudReport::Leads { cloud, cluster } => self.leads(&cloud, cluster, ctx),
            CloudReport::Elsewhere { cloud, cluster } => {
                self.common.ways.leads(&cloud, &cluster);
                self.elsewhere.insert(cloud, cluster);
            }
            CloudReport::Silent(cloud) => {
                let text = "its cluster could not learn from it what it had to know";
                let fault = Fault::new(FaultKind::Contention, Culprit::Cloud(cloud.clone()), text);
                if let Some(address) = self.clouds.get(&cloud) {
                    address.do_send(CloudCommand::Suspect(fault));
                }
            }
            CloudReport::Tried { cloud, outcome } => self.tried(cloud, outcome),
            CloudReport::Empty(cloud) => self.empty(cloud),
        }
        self.settle_soon(ctx);
    }
}

impl Handler<Suspected> for Herd {
    type Result = ();

    fn handle(&mut self, Suspected(cloud, fault): Suspected, ctx: &mut Context<Self>) {
        count_message(ctx);
        if let Some(address) = self.clouds.get(&cloud) {
            address.do_send(CloudCommand::Suspect(fault));
        }
    }
}

impl Handler<OrphanFound> for Herd {
    type Result = ();

    fn handle(&mut self, found: OrphanFound, ctx: &mut Context<Self>) {
        count_message(ctx);
        self.take_orphan(found, ctx);
    }
}

impl Handler<HerdCommand> for Herd {
    type Result = ();

    fn handle(&mut self, command: HerdCommand, ctx: &mut Context<Self>) {
        count_message(ctx);
        match command {
            HerdCommand::Lease { ask, reply } => self.lease(ask, reply, ctx),
            HerdCommand::Renew { lease, ttl, by, reply } => {
                self.renew(lease, (ttl, &by), reply, ctx);
            }
            HerdCommand::Release { lease, by, reply } => self.release(lease, &by, reply, ctx),
            HerdCommand::Wake { source, reply } => self.wake_source(&source, reply),
            HerdCommand::Retire { agent, reason, by, reply } => {
                let answer = self.retire(&agent, reason, &by);
                reply.send(answer);
            }
            HerdCommand::Override { agent, change, reply } => {
                self.override_agent(agent, change, reply, ctx);
            }
            HerdCommand::OverrideTemplate { template, change, reply } => {
                self.override_template(&template, &change, reply, ctx);
            }
            HerdCommand::OverrideCloud { cloud, cap, reply } => {
                self.override_cloud(cloud, cap, reply, ctx);
            }
            HerdCommand::Plan { next, by_git, jobs, reply } => {
                reply.send(self.plan(&next, by_git, jobs));
            }
            HerdCommand::UndoOverrides { clouds, reply } => {
                self.undo_overrides(&clouds, reply, ctx);
            }
            HerdCommand::Hold { agent, hold, by, reply } => {
                self.hold(agent, (hold, &by), reply, ctx);
            }
            HerdCommand::Order { target, work, key, by, reply } => {
                self.order(&target, (work, key), &by, reply, ctx);
            }
            HerdCommand::Machine { target, by, reply } => {
                self.look_at_machine(&target, &by, reply, ctx);
            }
            HerdCommand::MachineOf { target, by, reply } => {
                reply.send(self.machine_of(&target, &by))
            }
            HerdCommand::Copy(ask) => self.copy(ask, ctx),
            HerdCommand::HoldNext { template, hold, by, reply } => {
                self.hold_next(&template, (hold, &by), reply, ctx);
            }
            HerdCommand::Provision { template, count, trial, reply } => {
                self.provision(&template, (count, trial), reply);
            }
            HerdCommand::CallIn { agent, peer, said, reply } => {
                self.call_in(agent, (peer, &said), reply, ctx);
            }
            HerdCommand::ResetBreaker { name, reply } => self.reset_breaker(&name, reply),
            HerdCommand::Reap { all, reply } => self.reap(all, reply, ctx),
            HerdCommand::ConfirmOlderJournal => {
                for actors in self.clusters.values() {
                    actors.reconciler.do_send(ReconcilerCommand::ConfirmAhead);
                }
            }
            HerdCommand::ConfirmMachine => self.confirm_machine(ctx),
            HerdCommand::ConfirmCluster { cloud, no_guests, reply } => {
                self.confirm_cluster(cloud, no_guests, reply, ctx);
            }
            HerdCommand::Resync { reply } => self.resync(reply, ctx),
            HerdCommand::PlanResync { reply } => {
                self.findings(ReconcilerCommand::Preview, reply, ctx);
            }
            HerdCommand::OrderNode { node, cloud, order, by, reply } => {
                self.order_node(node, cloud.as_ref(), order, by, reply, ctx);
            }
            HerdCommand::Nodes { reply } => self.look_at_nodes(reply, ctx),
            HerdCommand::NodesKnown { reply } => reply.send(self.nodes_known()),
            HerdCommand::Why { template, reply } => self.why(&template, reply, ctx),
            HerdCommand::Jobs { reply } => self.jobs(reply, ctx),
            HerdCommand::Account { subject, reply } => self.account(&subject, reply),
            HerdCommand::BuildImage(ask) => self.build_image(*ask, ctx),
            HerdCommand::CancelBuild { build, reply } => reply.send(self.cancel_build(&build)),
            HerdCommand::Images { reply } => self.list_images(reply, ctx),
            HerdCommand::PruneImages { unconfigured, dry_run, reply } => {
                self.prune_images((unconfigured, dry_run), reply, ctx);
            }
            HerdCommand::ImportImage { image, vmid, dry_run, reply } => {
                self.import_image(&image, (vmid, dry_run), reply, ctx);
            }
            HerdCommand::DeleteMachine { name, reply } => reply.send(self.delete_machine(&name)),
            HerdCommand::ForgetMachine { name, reply } => reply.send(self.forget_machine(&name)),
            HerdCommand::AdoptMachine(ask) => self.adopt_machine(*ask, ctx),
            HerdCommand::Drain { policy, reply } => self.begin_drain(policy, reply),
        }
        self.settle_soon(ctx);
    }
}

#[cfg(test)]
mod tests;
