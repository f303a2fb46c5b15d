//! The cluster actor: what belongs to a Proxmox cluster and not to one configured way into it. There
//! is one per cluster, shared by its clouds.
//!
//! ```text
//!   agent ── LaneAsk ──▶ located ──▶ chosen ──▶ in line ──▶ let in ──▶ id free? ──▶ Granted
//!                           │           │                                │
//!                           └── refused ┴────────────────────────────────┘ NotGranted
//! ```
//!
//! - It owns the VMIDs ([`allocator`], a mind of its own), the concurrency limits of clones, and the
//!   asks of agents that wait for both.
//! - `sources.rs` finds what an agent is cloned from and chooses a place. `held.rs` keeps clones back
//!   while a cloud does not work or the outcome of another clone is unknown.
//! - A build of an image asks for its id alone (`image_ids.rs`).
//! - An agent gives its place back with `LaneFree` and its id with `IdBack`. Each list of all guests
//!   (`Surveyed`) takes places back from agents that ended without that.
//!
//! Ids and limits outlive a panic, since agents hold them. Asks that wait begin again.

pub mod allocator;
mod held;
mod image_ids;
mod sources;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, Recipient,
    Supervised, WrapFuture,
};

use crate::birth::Common;
use crate::cloud::CloudReport;
use crate::message::{AgentCommand, IdBack, LaneAsk, LaneFree};
use crate::shared::role;
use allocator::{Allocator, Effect, Event};
use drover_runtime::supervise::{count_message, limit_turns};
pub use image_ids::{ImageIdAsk, VersionsChanged};

use drover_limits::concurrency::{ConcurrencyLimits, Footprint, MaxConcurrent, OperationEnd};
use drover_model::ambient::jittered;
use drover_model::container::GuestType;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{AgentId, CloudId, ClusterId, NodeName, VmId};
use drover_model::place::Place;
use drover_model::ports::{IdStatus, VmRef};
use drover_model::record::Body;
use drover_model::spec::{CloudSpec, TemplateSpec};
use drover_model::state_machine::StateMachine as _;
use drover_model::time::Moment;
use sources::Located;

/// How long one that is not needed any more still takes ids back: an agent gives its own back when
/// the journal knows that it is gone, after everybody else heard of it.
const LINGER: Duration = Duration::from_secs(60);
/// How soon an id is asked about again after no answer.
const RECHECK: Duration = Duration::from_secs(2);

/// To a cluster, from the herd and its reconciler.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub enum ClusterCommand {
    /// A cloud leads here, or its spec changed.
    Use(Arc<CloudSpec>),
    /// A cloud left the configuration.
    Drop(CloudId),
    /// A list of all guests was read.
    Surveyed {
        /// Ids that guests carry.
        seen: BTreeSet<VmId>,
        /// The cloud the list was read through, and all nodes, when all of them are online.
        through: Option<(CloudId, Vec<NodeName>)>,
    },
    /// The list could not be read through this cloud.
    Unread(CloudId),
    /// A node is cordoned or drained: nothing is started there.
    NodeClosed(NodeName),
    /// The actor is not needed any more.
    Leave,
}

/// How far an ask has come.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    /// Its cloud does not work: the cluster is not asked yet.
    Held,
    /// Its template is being located.
    Locating,
    /// In the lanes.
    Waiting,
    /// An id is proposed and being asked about.
    Checking(VmId),
    /// It has a lane; the id will be tried again.
    Pausing,
    /// Granted: the agent holds the lane and the id.
    Granted,
}

struct Ask {
    /// As it was born.
    spec: Arc<TemplateSpec>,
    /// With what was chosen for it.
    chosen: Option<Arc<TemplateSpec>>,
    reply: actix::Recipient<AgentCommand>,
    node: Option<NodeName>,
    stage: Stage,
}

/// The actor of one cluster.
pub struct Cluster {
    common: Common<role::Cluster>,
    id: ClusterId,
    herd: Recipient<CloudReport>,
    clouds: BTreeMap<CloudId, Arc<CloudSpec>>,
    /// Outlives the actor: a cluster that is come back to has the same ids resting and burned.
    ids: Rc<RefCell<Allocator>>,
    lanes: ConcurrencyLimits,
    asks: BTreeMap<AgentId, Ask>,
    located: Located,
    /// Ids that were given back and are not entered yet.
    back: VecDeque<IdBack>,
    /// Whether it will hear of a change of what keeps clones back.
    following: bool,
    /// When it looks next whether a pause is over.
    timer: Option<Moment>,
}

impl Cluster {
    /// A cluster with the ids and the clones under way that the journal knows.
    pub fn new(
        common: Common<role::Cluster>,
        id: ClusterId,
        herd: Recipient<CloudReport>,
        ids: Rc<RefCell<Allocator>>,
        lanes: ConcurrencyLimits,
    ) -> Self {
        let actor = Self {
            common,
            id,
            herd,
            clouds: BTreeMap::new(),
            ids,
            lanes,
            asks: BTreeMap::new(),
            located: Located::default(),
            back: VecDeque::new(),
            following: false,
            timer: None,
        };
        actor.act(Event::Unlisted);
        actor
    }

    /// Everything it holds, as text.
    #[cfg(test)]
    pub(crate) fn held(&self) -> String {
        let (clouds, asks, back) = (self.clouds.keys(), self.asks.keys(), &self.back);
        format!("{clouds:?} {:?} {:?} {asks:?} {back:?}", self.ids.borrow(), self.lanes)
    }

    /// The narrowest widths of the clouds that lead here.
    fn width(&self) -> MaxConcurrent {
        let all = self.clouds.values().map(|spec| MaxConcurrent::of(spec));
        all.reduce(MaxConcurrent::narrower).unwrap_or(MaxConcurrent {
            per_storage: 1,
            per_node: 1,
            adapts: true,
        })
    }

    fn set_stage(&mut self, agent: &AgentId, stage: Stage) {
        if let Some(ask) = self.asks.get_mut(agent) {
            ask.stage = stage;
        }
    }

    /// Lets in every agent that the limits and doubts admit, and finds each an id.
    fn advance(&mut self, ctx: &mut Context<Self>) {
        let now = self.common.ports.ambient.now().mono;
        let (width, cluster) = (self.width(), &self.id);
        let (asks, doubts) = (&self.asks, &self.common.doubts);
        let may = |agent: &AgentId| {
            asks.get(agent).is_none_or(|ask| doubts.admit(ask.path(cluster), agent, now))
        };
        for (agent, _) in self.lanes.admit_where(width, now, may) {
            self.find_id(&agent, ctx);
        }
        self.follow(ctx);
    }

    /// Steps the ids. Records are written at once; any other effect is the answer to the event.
    fn act(&self, event: Event) -> Option<Effect> {
        let clock = || self.common.ports.ambient.now();
        let effects = self.ids.borrow_mut().effects_by(event, clock, 0);
        let cluster = || self.id.clone();
        let mut answer = None;
        for effect in effects {
            match effect {
                Effect::RecordBurned(vmid) => {
                    self.common.records.write(Body::IdBurned { cluster: cluster(), vmid });
                }
                Effect::RecordCleared(vmid) => {
                    self.common.records.write(Body::IdCleared { cluster: cluster(), vmid });
                }
                Effect::Propose { .. } | Effect::Exhausted | Effect::Inspect(_) => {
                    answer = Some(effect);
                }
            }
        }
        answer
    }

    fn find_id(&mut self, agent: &AgentId, ctx: &mut Context<Self>) {
        if self.is_held(agent) {
            return self.back_in_line(agent);
        }
        let Some(ask) = self.asks.get(agent) else { return };
        let cloud = ask.spec.id.cloud.clone();
        let Some(spec) = self.clouds.get(&cloud) else {
            let text = format!("cloud `{cloud}` does not lead to cluster `{}`", self.id);
            let fault = Fault::new(FaultKind::Unreachable, Culprit::Cloud(cloud), text);
            self.refuse(agent, fault);
            return self.advance(ctx);
        };
        let (floor, ceiling) = (spec.vmid_floor, spec.vmid_ceiling);
        let proposal = self.act(Event::Wanted { floor, ceiling });
        let Some(Effect::Propose { vmid, listed }) = proposal else {
            let text = format!(
                "no VMID from {floor} to below {ceiling} is free on cloud `{cloud}`: freed ids \
                 rest an hour; widen its range"
            );
            let fault = Fault::new(FaultKind::Capacity, Culprit::Cloud(cloud), text);
            self.refuse(agent, fault);
            return self.advance(ctx);
        };
        // A clone to an id that somebody took meanwhile is refused without an effect, or fails
        // before it allocates anything (book: proxmox, section 7), so a question would only save a
        // try.
        if listed {
            return self.grant(agent, vmid, ctx);
        }
        self.set_stage(agent, Stage::Checking(vmid));
        let answer = self.common.ports.hypervisor.id_taken(&cloud, vmid);
        let agent = agent.clone();
        ctx.spawn(answer.into_actor(self).map(move |observation, actor, ctx| {
            if let Err(fault) = &observation {
                tracing::warn!(cloud = %cloud, vmid = vmid.0, error = %fault, "id cannot be checked");
            }
            let observation = observation.unwrap_or(IdStatus::Unknown);
            if observation == IdStatus::Unknown {
                // Else nobody would hear why nothing begins.
                actor.herd.do_send(CloudReport::Silent(cloud));
            }
            actor.checked(&agent, vmid, observation, ctx);
        }));
    }

    fn checked(
        &mut self,
        agent: &AgentId,
        vmid: VmId,
        observation: IdStatus,
        ctx: &mut Context<Self>,
    ) {
        let wanted = self.asks.get(agent).is_some_and(|ask| ask.stage == Stage::Checking(vmid));
        match observation {
            IdStatus::Taken => {
                self.act(Event::Taken(vmid));
                if wanted {
                    self.find_id(agent, ctx);
                }
            }
            IdStatus::Free if wanted => self.grant(agent, vmid, ctx),
            IdStatus::Unknown if wanted => {
                self.act(Event::Withdrawn(vmid));
                self.set_stage(agent, Stage::Pausing);
                let agent = agent.clone();
                let pause = jittered(RECHECK, self.common.ports.ambient.draw());
                ctx.run_later(pause, move |actor, ctx| {
                    if actor.asks.get(&agent).is_some_and(|ask| ask.stage == Stage::Pausing) {
                        actor.find_id(&agent, ctx);
                    }
                });
            }
            IdStatus::Free | IdStatus::Unknown => {
                self.act(Event::Withdrawn(vmid));
            }
        }
    }

    fn grant(&mut self, agent: &AgentId, vmid: VmId, ctx: &mut Context<Self>) {
        if self.is_held(agent) {
            self.act(Event::Withdrawn(vmid));
            return self.back_in_line(agent);
        }
        let Some(ask) = self.asks.get_mut(agent) else { return };
        let Some(node) = ask.node.clone().filter(|_| ask.reply.connected()) else {
            self.act(Event::Withdrawn(vmid));
            self.forget(agent, OperationEnd::Inconclusive);
            return self.advance(ctx);
        };
        ask.stage = Stage::Granted;
        let cluster = self.id.clone();
        tracing::debug!(agent = %agent, vmid = vmid.0, node = %node, "place granted");
        let spec = ask.chosen.clone();
        let origin = spec.as_ref().and_then(|spec| spec.origin.clone());
        let source = spec.as_ref().map(|spec| spec.source);
        let granted = AgentCommand::Granted { vmid, node: node.clone(), cluster, spec };
        ask.reply.do_send(granted);
        let place = Place { cluster: self.id.clone(), vmid, node, origin, source };
        self.common.roster.placed(agent, place);
    }

    fn refuse(&mut self, agent: &AgentId, fault: Fault) {
        if let Some(ask) = self.asks.get(agent) {
            tracing::warn!(agent = %agent, error = %fault, "place refused");
            ask.reply.do_send(AgentCommand::NotGranted(fault));
        }
        self.forget(agent, OperationEnd::Inconclusive);
    }

    fn forget(&mut self, agent: &AgentId, end: OperationEnd) {
        self.asks.remove(agent);
        if end != OperationEnd::InDoubt {
            self.common.doubts.left(agent);
        }
        self.lanes.release(agent, end, self.common.ports.ambient.now().mono);
    }

    /// Inspects one burned id. Free and without volumes on any node, it may be used again.
    fn inspect(&mut self, cloud: CloudId, nodes: Vec<NodeName>, ctx: &mut Context<Self>) {
        let Some(Effect::Inspect(vmid)) = self.act(Event::Inspect) else { return };
        let hypervisor = self.common.ports.hypervisor.clone();
        let clear = async move {
            let taken = hypervisor.id_taken(&cloud, vmid).await;
            if taken != Ok(IdStatus::Free) {
                return false;
            }
            for node in nodes {
                // Of containers every volume of an id is listed, those of virtual machines included.
                let guest = GuestType::Container;
                let vm = VmRef { cloud: cloud.clone(), node, vmid, guest };
                if hypervisor.leftovers(&vm, &[], None).await != Ok(Vec::new()) {
                    return false;
                }
            }
            true
        };
        ctx.spawn(clear.into_actor(self).map(move |clear, actor, _| {
            if clear {
                tracing::info!(cluster = %actor.id, vmid = vmid.0, "burned id is clear");
                actor.act(Event::Cleared(vmid));
            }
        }));
    }

    /// Enters the ids that were given back.
    fn take_back(&mut self) {
        while let Some(IdBack { vmid, burned }) = self.back.front().cloned() {
            self.act(Event::GivenBack { vmid, burned });
            self.back.pop_front();
        }
    }

    /// Takes lanes back from agents that ended without giving them back.
    fn sweep(&mut self) {
        let lives = |agent: &AgentId| {
            let ask = self.asks.get(agent);
            ask.is_some_and(|ask| ask.reply.connected()) || self.common.roster.has(agent)
        };
        let all: BTreeSet<&AgentId> = self.asks.keys().chain(self.lanes.running()).collect();
        let dead: Vec<AgentId> = all.into_iter().filter(|agent| !lives(agent)).cloned().collect();
        for agent in dead {
            self.forget(&agent, OperationEnd::Inconclusive);
        }
    }
}

impl Actor for Cluster {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        limit_turns(ctx);
    }
}

impl Supervised for Cluster {
    /// Ids and lanes stay as they are, since agents hold them. Asks that wait begin again.
    fn restarting(&mut self, ctx: &mut Context<Self>) {
        (self.following, self.timer) = (false, None);
        self.take_back();
        let held = self
            .common
            .roster
            .select(|living| living.place.as_ref().is_some_and(|place| place.cluster == self.id));
        for place in held.into_values().filter_map(|living| living.place) {
            self.act(Event::Held(place.vmid));
        }
        let now = self.common.ports.ambient.now().mono;
        let waiting: Vec<AgentId> = self
            .asks
            .iter()
            .filter(|(_, ask)| ask.stage != Stage::Granted)
            .map(|(agent, _)| agent.clone())
            .collect();
        for agent in waiting {
            if let Some(Ask { stage: Stage::Checking(vmid), .. }) = self.asks.get(&agent) {
                self.act(Event::Withdrawn(*vmid));
            }
            self.lanes.release(&agent, OperationEnd::Inconclusive, now);
            self.set_stage(&agent, Stage::Locating);
            self.locate(&agent, ctx);
        }
        self.advance(ctx);
    }
}

impl Handler<LaneAsk> for Cluster {
    type Result = ();

    fn handle(&mut self, message: LaneAsk, ctx: &mut Context<Self>) {
        count_message(ctx);
        if self.asks.contains_key(&message.agent) {
            return;
        }
        let (spec, reply) = (message.spec, message.reply);
        let ask = Ask { spec, chosen: None, reply, node: None, stage: Stage::Locating };
        self.asks.insert(message.agent.clone(), ask);
        self.locate(&message.agent, ctx);
        self.advance(ctx);
    }
}

impl Handler<LaneFree> for Cluster {
    type Result = ();

    fn handle(&mut self, message: LaneFree, ctx: &mut Context<Self>) {
        count_message(ctx);
        self.forget(&message.agent, message.end);
        self.advance(ctx);
    }
}

impl Handler<IdBack> for Cluster {
    type Result = ();

    fn handle(&mut self, message: IdBack, ctx: &mut Context<Self>) {
        count_message(ctx);
        self.back.push_back(message);
        self.take_back();
    }
}

impl Handler<ClusterCommand> for Cluster {
    type Result = ();

    fn handle(&mut self, command: ClusterCommand, ctx: &mut Context<Self>) {
        count_message(ctx);
        match command {
            ClusterCommand::Use(spec) => {
                self.clouds.insert(spec.id.clone(), spec);
                self.advance(ctx);
            }
            ClusterCommand::Drop(cloud) => {
                self.clouds.remove(&cloud);
            }
            ClusterCommand::Surveyed { seen, through } => {
                self.act(Event::Surveyed(seen));
                self.sweep();
                if let Some((cloud, nodes)) = through {
                    self.inspect(cloud, nodes, ctx);
                }
                self.advance(ctx);
            }
            ClusterCommand::NodeClosed(node) => self.leave_node(&node, ctx),
            ClusterCommand::Unread(cloud) => self.herd.do_send(CloudReport::Silent(cloud)),
            ClusterCommand::Leave => {
                ctx.run_later(LINGER, |_, ctx| ctx.stop());
            }
        }
    }
}

#[cfg(test)]
mod tests;
