//! Orders to the machines of agents, and looks at them: whose they are, what stands against them, and
//! that each is durable before its agent hears of it.
//!
//! A machine takes orders while somebody has it: its lease's holder, who holds it, or an admin. It has
//! one order at a time. The same idempotency key of one principal answers the same order.

mod copy;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use drover_model::ambient::mint_order;
use drover_model::fault::Fault;
use drover_model::id::{AgentId, CloudId};
use drover_model::order::{Order, OrderStatus, Work};
use drover_model::phase::{AgentPhase, OrderPhase};
use drover_model::place::Place;
use drover_model::placement::{Fleet, Sizes};
use drover_model::ports::VmRef;
use drover_model::record::Body;
use drover_model::size::Size;
use drover_model::status::Standing;
use drover_model::tenant::By;
use drover_runtime::reply::Reply;

use super::Herd;
use super::leases::unavailable;
use crate::message::{AgentCommand, MachineSeen, Ordered, Refusal, Target};
use crate::placement::{Claim, Scene};
use crate::roster::Living;

type OrderReply = Reply<Result<Ordered, Refusal>>;

/// An order as it is asked for.
#[derive(Clone)]
struct Wanted {
    agent: AgentId,
    work: Work,
    key: Option<String>,
    by: By,
}

impl Herd {
    pub(super) fn order(
        &mut self,
        target: &Target,
        (work, key): (Work, Option<String>),
        by: &By,
        reply: OrderReply,
        ctx: &mut Context<Self>,
    ) {
        let by = by.clone();
        let wanted = self.meant(target, &by).map(|agent| Wanted { agent, work, key, by });
        let wanted = match wanted {
            Ok(wanted) => wanted,
            Err(refusal) => {
                reply.send(Err(refusal));
                return;
            }
        };
        let Work::Resize(_) = wanted.work else {
            return self.accept(wanted, None, reply, ctx);
        };
        // What is refused anyway costs no read.
        let way = match self.known_order(&wanted) {
            Some(known) => Err(known),
            None => self.may_order(&wanted).and_then(|living| self.way(&living)).map_err(Err),
        };
        match way {
            Ok((cloud, _)) => {
                let fleet = self.common.ports.hypervisor.fleet(&cloud);
                ctx.spawn(fleet.into_actor(self).map(move |fleet, herd, ctx| {
                    herd.accept(wanted, Some(fleet), reply, ctx);
                }));
            }
            Err(answer) => {
                reply.send(answer);
            }
        }
    }

    /// Makes an order durable and sends it to its agent, unless something stands against it.
    fn accept(
        &mut self,
        wanted: Wanted,
        fleet: Option<Result<Fleet, Fault>>,
        reply: OrderReply,
        ctx: &mut Context<Self>,
    ) {
        if let Some(known) = self.known_order(&wanted) {
            reply.send(known);
            return;
        }
        let checked = self.may_order(&wanted).and_then(|living| match (&wanted.work, fleet) {
            (Work::Resize(sizes), Some(fleet)) => self.may_grow(&wanted, &living, *sizes, fleet),
            (_, _) => Ok(()),
        });
        if let Err(refusal) = checked {
            reply.send(Err(refusal));
            return;
        }
        let ambient = &self.common.ports.ambient;
        let (id, asked) = (mint_order(|| ambient.draw()), ambient.now().wall);
        let Wanted { agent, work, key, by } = wanted;
        let order = Order { id, work, by: by.principal, asked, key };
        // It is there before it is durable, so that no other one is accepted meanwhile.
        let before = self.ordered.insert(agent.clone(), order.clone());
        let roster = &self.common.roster;
        self.ordered.retain(|known, _| roster.has(known));
        let body = Body::MachineOrdered { agent: agent.clone(), order: Box::new(order.clone()) };
        self.append(body, ctx, move |herd, done, _| {
            if let Err(fault) = done {
                match before {
                    Some(before) => drop(herd.ordered.insert(agent, before)),
                    None => drop(herd.ordered.remove(&agent)),
                }
                reply.send(Err(unavailable(&fault)));
                return;
            }
            let (id, work, by) = (&order.id, &order.work, &order.by);
            tracing::info!(agent = %agent, order = %id, %work, by, "machine is ordered");
            let command = AgentCommand::Order(Box::new(order.clone()));
            if herd.common.roster.send(&agent, command) {
                reply.send(Ok(Ordered { agent, status: running(order) }));
            } else {
                let text = format!("agent `{agent}` is gone by now");
                reply.send(Err(Refusal::Unknown(text)));
            }
        });
    }

    /// The agent that is meant.
    fn meant(&self, target: &Target, by: &By) -> Result<AgentId, Refusal> {
        match target {
            Target::Agent(agent) => Ok(agent.clone()),
            Target::Lease(lease) => self.scheduler.agent_of(lease, by),
        }
    }

    /// The answer to an order that was asked for before, with the same key.
    fn known_order(&self, wanted: &Wanted) -> Option<Result<Ordered, Refusal>> {
        let key = wanted.key.as_ref()?;
        let living = self.common.roster.get(&wanted.agent)?;
        let reported = living.status.machine.all();
        let unreported = self.ordered.get(&wanted.agent).cloned().map(running);
        let mut all = reported.into_iter().chain(unreported);
        let known = all.find(|status| status.order.key.as_ref() == Some(key))?;
        if known.order.work != wanted.work {
            return Some(Err(Refusal::Conflict(format!(
                "the idempotencyKey came with another order, `{}` ({}): use a new one",
                known.order.id, known.order.work
            ))));
        }
        Some(Ok(Ordered { agent: wanted.agent.clone(), status: known }))
    }

    /// Whether a machine takes an order of somebody at this moment.
    fn may_order(&self, wanted: &Wanted) -> Result<Living, Refusal> {
        let Wanted { agent, work, by, .. } = wanted;
        let living = self.may_act(agent, by)?;
        let jobs = living.status.leases.iter().any(|lease| self.scheduler.is_sources(lease));
        if jobs && matches!(work, Work::Revert { .. }) {
            return Err(Refusal::Conflict(format!(
                "agent `{agent}` runs a job of a CI system, which a revert would undo: hold the \
                 agent first, and revert once the job is over"
            )));
        }
        Ok(living)
    }

    /// Whether somebody has a machine at this moment, with no order under way on it.
    fn may_act(&self, agent: &AgentId, by: &By) -> Result<Living, Refusal> {
        let living = self.living(agent)?;
        self.machine_is_theirs(agent, &living, by)?;
        no_container(&living)?;
        if self.scheduler.stopping() {
            return Err(Refusal::Unavailable("the service is stopping".into()));
        }
        let phase = living.status.phase;
        if !matches!(phase, AgentPhase::Leased | AgentPhase::Draining | AgentPhase::Held) {
            return Err(Refusal::Conflict(format!(
                "agent `{agent}` is in {phase}: its machine takes orders while it is leased or held; \
                 `drover hold {agent}` holds it"
            )));
        }
        if living.status.standing == Standing::Parked {
            let text = format!("the node of agent `{agent}` is offline: wait until it is back");
            return Err(Refusal::Conflict(text));
        }
        let reported = |order: &Order| living.status.machine.knows(&order.id);
        let unreported = self.ordered.get(agent).filter(|order| !reported(order));
        if let Some(order) = living.status.machine.running.as_ref().or(unreported) {
            return Err(Refusal::Conflict(format!(
                "order `{}` ({}) of this machine is not over: `drover machine show {agent}` shows \
                 how it goes on",
                order.id, order.work
            )));
        }
        Ok(living)
    }

    fn living(&self, agent: &AgentId) -> Result<Living, Refusal> {
        let unknown = || match self.declared.has(agent.as_str()) {
            true => format!(
                "`{agent}` is a declared machine and no agent: it takes no orders, drover keeps it as \
                 `machines` says; `drover machine list` shows it"
            ),
            false => format!(
                "no agent `{agent}` lives, and no declared machine is called so: `drover agents` and \
                 `drover machine list` list them"
            ),
        };
        self.common.roster.get(agent).ok_or_else(|| Refusal::Unknown(unknown()))
    }

    /// Whether somebody may look at and order a machine: all leases on it are theirs, or its hold where
    /// none is on it. What nobody has is the admins': who saw its addresses before a lease could use
    /// them during the lease.
    fn machine_is_theirs(&self, agent: &AgentId, living: &Living, by: &By) -> Result<(), Refusal> {
        self.scheduler.has_machine(agent, by)?;
        self.hold_is_theirs(agent, by)?;
        let status = &living.status;
        let is_had = !status.leases.is_empty() || self.scheduler.any_on(agent);
        if is_had || by.all || status.hold_owner.is_some() {
            return Ok(());
        }
        Err(Refusal::Forbidden(format!(
            "agent `{agent}` is not leased by `{}`: lease it, or ask an admin",
            by.principal
        )))
    }

    /// The cloud that leads to a machine, and where the machine is.
    fn way(&self, living: &Living) -> Result<(CloudId, Place), Refusal> {
        let agent = &living.status.agent;
        let place = living.place.clone().filter(|_| living.status.phase.has_guest());
        let Some(place) = place else {
            let text = format!("agent `{agent}` is in {}: no machine yet", living.status.phase);
            return Err(Refusal::Conflict(text));
        };
        match self.common.ways.through(&living.template.cloud, &place.cluster) {
            Some(cloud) => Ok((cloud, place)),
            None => {
                let text = format!(
                    "no cloud leads to the cluster of agent `{agent}` at the moment: `drover status` \
                     shows why"
                );
                Err(Refusal::Unavailable(text))
            }
        }
    }

    /// Whether a machine may have other sizes: within quotas, on its node, and no disk smaller.
    fn may_grow(
        &self,
        wanted: &Wanted,
        living: &Living,
        sizes: Size,
        fleet: Result<Fleet, Fault>,
    ) -> Result<(), Refusal> {
        if let Some(refusal) = self.scheduler.sizes_beyond(&wanted.agent, &wanted.by, sizes) {
            return Err(refusal);
        }
        let Some(place) = &living.place else { return Ok(()) };
        let born = place.origin.as_ref().map(|origin| origin.sizes).unwrap_or_default();
        let now = living.status.machine.sizes.beside(born.cloned(&living.spec));
        if let Some(disk) = sizes.disk_gb.filter(|disk| u64::from(*disk) < now.disk_gb) {
            return Err(Refusal::Conflict(format!(
                "the disk of agent `{}` has {} GiB, and disks cannot shrink to {disk} GiB",
                wanted.agent, now.disk_gb
            )));
        }
        let fleet = fleet.map_err(|fault| {
            Refusal::Unavailable(format!("what is free was not read: {}", fault.text))
        })?;
        let node = fleet.nodes().get(&place.node);
        let has = node.and_then(|node| node.figures).map(|figures| figures.cpus);
        if let (Some(cores), Some(has)) = (sizes.cores, has.filter(|has| *has > 0))
            && cores > has
        {
            return Err(Refusal::Conflict(format!(
                "node `{}` has {has} processors, and a machine on it cannot start with {cores} cores",
                place.node
            )));
        }
        let listed = fleet.guests().get(&place.vmid);
        let known_mb = match now.memory_mb {
            0 => listed.map_or(0, |guest| guest.memory >> 20),
            known => known,
        };
        let more = |wanted: Option<u32>, now: u64| {
            wanted.map_or(0, |wanted| u64::from(wanted).saturating_sub(now))
        };
        let cores = more(sizes.cores, u64::from(now.cores));
        let grows = Sizes {
            cores: u32::try_from(cores).unwrap_or(u32::MAX),
            memory_mb: more(sizes.memory_mb, known_mb),
            disk_gb: 0,
        };
        if grows == Sizes::default() {
            return Ok(());
        }
        let claims = Claim::of_roster(&self.common.roster, &place.cluster);
        let scene = Scene::new(&fleet, &claims);
        let lacks = scene.lacks_room(&living.spec.placement, grows, &place.node);
        lacks.map_or(Ok(()), |why| {
            let node = &place.node;
            Err(Refusal::Conflict(format!("node `{node}` has no room for {sizes}: {why}")))
        })
    }

    /// Reads what a cluster shows of an agent's machine.
    /// The agent of a machine, where they may look at and order it.
    pub(super) fn machine_of(&self, target: &Target, by: &By) -> Result<AgentId, Refusal> {
        let agent = self.meant(target, by)?;
        let living = self.living(&agent)?;
        self.machine_is_theirs(&agent, &living, by)?;
        Ok(agent)
    }

    pub(super) fn look_at_machine(
        &self,
        target: &Target,
        by: &By,
        reply: Reply<Result<MachineSeen, Refusal>>,
        ctx: &mut Context<Self>,
    ) {
        let found = self.machine_of(target, by).and_then(|agent| {
            let living = self.living(&agent)?;
            no_container(&living)?;
            let (cloud, place) = self.way(&living)?;
            Ok((agent, living, cloud, place))
        });
        let (agent, living, cloud, place) = match found {
            Ok(found) => found,
            Err(refusal) => {
                reply.send(Err(refusal));
                return;
            }
        };
        let Place { cluster, node, vmid, .. } = place;
        let guest = living.spec.guest();
        let vm = VmRef { cloud: cloud.clone(), node, vmid, guest };
        let home = &self.common.run.installation;
        let look = self.common.ports.hypervisor.describe(&vm, home, &agent);
        ctx.spawn(look.into_actor(self).map(move |seen, _, _| {
            let template = living.template;
            let known = living.status.machine.snapshots.clone();
            let seen = seen.map(|mut view| {
                view.keep_snapshots(&known);
                MachineSeen { agent, template, cluster, cloud, view }
            });
            let refusal = |fault: Fault| Refusal::Unavailable(fault.text);
            reply.send(seen.map_err(refusal));
        }));
    }
}

/// Only virtual machines are looked at and take orders.
fn no_container(living: &Living) -> Result<(), Refusal> {
    if !living.spec.guest().is_container() {
        return Ok(());
    }
    let agent = &living.status.agent;
    Err(Refusal::Conflict(format!(
        "agent `{agent}` is a container: `drover machine` knows virtual machines only"
    )))
}

/// An order that is carried out.
fn running(order: Order) -> OrderStatus {
    OrderStatus { order, phase: OrderPhase::Running, ended: None, text: String::new() }
}
