//! Nodes as operators see them: what is free there, what keeps templates from them, and orders to
//! cordon or drain them.

use std::collections::BTreeSet;
use std::sync::Arc;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use drover_model::fault::Fault;
use drover_model::id::{CloudId, ClusterId, NodeName, TemplateId};
use drover_model::phase::{AgentPhase, NodeOrder, NodeStatus, OrderedBy};
use drover_model::placement::report::{
    NodeKeptOut, NodeOffline, NodeReport, NodesKnown, WhyReport,
};
use drover_model::placement::{Fleet, NodeObservation, Sizes, StorageObservation};
use drover_model::record::{Body, Reason, Want};
use drover_model::scope::Scope;
use drover_model::spec::TemplateSpec;
use drover_model::status::Standing as Stands;
use drover_model::template_image::Found;
use drover_runtime::reply::Reply;
use futures_util::future::join_all;

use super::Herd;
use crate::cloud::CloudCommand;
use crate::cluster::ClusterCommand;
use crate::message::{AgentCommand, NodeOrdered, NodesSeen, Refusal};
use crate::placement::{Claim, Room, Scene};
use crate::roster::Living;
use crate::source::Standing;
use crate::source::{choose, lasting_keys, survey, untried};

const MIB: u64 = 1 << 20;

/// What stands before a wait that nothing but time is needed for.
pub(super) const NO_PROBLEM: &str = "waits for an agent";

type OrderReply = Reply<Result<NodeOrdered, Refusal>>;
type WhyReply = Reply<Result<WhyReport, Refusal>>;

impl Herd {
    /// Cordons or drains a node, or lets it be used again, once that is durable.
    pub(super) fn order_node(
        &mut self,
        node: NodeName,
        cloud: Option<&CloudId>,
        order: NodeOrder,
        by: String,
        reply: OrderReply,
        ctx: &mut Context<Self>,
    ) {
        let cluster = match self.cluster_of(&node, cloud) {
            Ok(cluster) => cluster,
            Err(refusal) => {
                reply.send(Err(refusal));
                return;
            }
        };
        let text = match order {
            NodeOrder::Use => "operator lets a node be used again",
            NodeOrder::Cordon => "operator cordons a node",
            NodeOrder::Drain => "operator drains a node",
        };
        tracing::warn!(cluster = %cluster, node = %node, "{text}");
        let body = Body::NodeDrained {
            cluster: cluster.clone(),
            node: node.clone(),
            drained: order == NodeOrder::Drain,
            cordoned: order == NodeOrder::Cordon,
            by: Some(by.clone()),
        };
        let by = OrderedBy { by, at: self.common.ports.ambient.now().wall };
        self.append(body, ctx, move |actor, done, ctx| {
            let answer = match done {
                Ok(_) => Ok(actor.node_ordered(cluster, node, order, by, ctx)),
                Err(fault) => Err(Refusal::Unavailable(fault.to_string())),
            };
            reply.send(answer);
        });
    }

    fn node_ordered(
        &mut self,
        cluster: ClusterId,
        node: NodeName,
        order: NodeOrder,
        by: OrderedBy,
        ctx: &mut Context<Self>,
    ) -> NodeOrdered {
        let before = self.common.sites.set_order(&cluster, &node, order, Some(by));
        let changed = before != order;
        match order {
            NodeOrder::Use if changed => self.node_opened(&cluster, &node),
            NodeOrder::Use => {}
            NodeOrder::Cordon | NodeOrder::Drain => {
                if let Some(actors) = self.clusters.get(&cluster) {
                    actors.cluster.do_send(ClusterCommand::NodeClosed(node.clone()));
                }
            }
        }
        self.empty_drained();
        self.settle_soon(ctx);
        let here = |living: &Living| is_on(living, &cluster, &node);
        let agents = self.common.roster.count(here);
        NodeOrdered { cluster, node, order, changed, agents }
    }

    /// A node is used again: templates that found no place try at once.
    fn node_opened(&self, cluster: &ClusterId, node: &NodeName) {
        let here = self.leads.iter().filter(|(_, leads)| *leads == cluster);
        for address in here.filter_map(|(cloud, _)| self.clouds.get(cloud)) {
            address.do_send(CloudCommand::NodeOpened(node.clone()));
        }
    }

    /// The cluster that a node is meant to be of.
    fn cluster_of(&self, node: &NodeName, cloud: Option<&CloudId>) -> Result<ClusterId, Refusal> {
        let sites = &self.common.sites;
        let among: Vec<&ClusterId> = match cloud {
            Some(cloud) => match self.leads.get(cloud) {
                Some(cluster) => vec![cluster],
                None => {
                    let text = format!("no cloud `{cloud}` is known to lead to a cluster");
                    return Err(Refusal::Unknown(text));
                }
            },
            None => self.clusters.keys().collect(),
        };
        let with: Vec<&ClusterId> =
            among.iter().copied().filter(|cluster| sites.has(cluster, node)).collect();
        match with[..] {
            [cluster] => Ok(cluster.clone()),
            [] => {
                let nodes: BTreeSet<NodeName> =
                    among.into_iter().flat_map(|cluster| sites.nodes(cluster)).collect();
                let nodes: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
                let known = match nodes[..] {
                    [] => "none was read yet".to_owned(),
                    [_, ..] => format!("known are {}", nodes.join(", ")),
                };
                Err(Refusal::Unknown(format!("no node is called `{node}`; {known}")))
            }
            [_, ..] => {
                let text = format!("node `{node}` is in several clusters: name a cloud of its own");
                Err(Refusal::Conflict(text))
            }
        }
    }

    /// What is known of nodes without a look at any cluster: those that operators cordoned or drained, those that
    /// are offline by the last list, and those that templates never try.
    pub(super) fn nodes_known(&self) -> NodesKnown {
        let sites = &self.common.sites;
        let kept_out = self.clusters.keys().flat_map(|cluster| {
            let orders = sites.kept_out(cluster).into_iter();
            let cluster = cluster.clone();
            orders.map(move |(node, (order, by))| NodeKeptOut {
                cluster: cluster.clone(),
                node,
                order,
                by,
            })
        });
        let offline = self.clusters.keys().flat_map(|cluster| {
            let nodes = sites.offline(cluster).into_iter();
            let cluster = cluster.clone();
            nodes.map(move |(node, since)| NodeOffline { cluster: cluster.clone(), node, since })
        });
        let untried = self.spec.templates.iter().filter_map(|(id, spec)| {
            let nodes = sites.nodes(self.leads.get(&id.cloud)?);
            let untried = spec.untried(nodes.iter());
            (!untried.is_empty()).then(|| (id.clone(), untried))
        });
        NodesKnown {
            kept_out: kept_out.collect(),
            offline: offline.collect(),
            untried: untried.collect(),
        }
    }

    /// Asks agents on drained nodes to go, each of them once: idle ones go, busy ones when their
    /// last lease ends. Those that are held for debugging go with their hold.
    pub(super) fn empty_drained(&mut self) {
        if !self.common.sites.any_drained() {
            self.leaving.clear();
            return;
        }
        let sites = &self.common.sites;
        let there = |living: &Living| {
            let place = living.place.as_ref();
            place.is_some_and(|place| sites.is_drained(&place.cluster, &place.node))
        };
        let all = self.common.roster.select(there);
        self.leaving.retain(|agent| all.contains_key(agent));
        for (agent, living) in all {
            if !stays(&living) && self.leaving.insert(agent.clone()) {
                tracing::info!(agent = %agent, "agent goes: its node is drained");
                self.common.roster.send(&agent, AgentCommand::Retire(Reason::NodeDrained));
            }
        }
    }

    /// A cloud that works and leads to a cluster.
    fn way_to(&self, cluster: &ClusterId) -> Option<CloudId> {
        let works = |cloud: &CloudId| self.tried.get(cloud).is_some_and(Result::is_ok);
        let leads = self.leads.iter().filter(|(_, at)| *at == cluster);
        leads.map(|(cloud, _)| cloud).find(|cloud| works(cloud)).cloned()
    }

    /// Reads every cluster once and says what is free on its nodes.
    pub(super) fn look_at_nodes(&mut self, reply: Reply<NodesSeen>, ctx: &mut Context<Self>) {
        let mut seen = NodesSeen::default();
        let mut reads = Vec::new();
        for cluster in self.clusters.keys() {
            match self.way_to(cluster) {
                Some(cloud) => {
                    let fleet = self.common.ports.hypervisor.fleet(&cloud);
                    let cluster = cluster.clone();
                    reads.push(async move { (cluster, fleet.await) });
                }
                None => {
                    let leads = self.leads.iter().filter(|(_, at)| *at == cluster);
                    let why = self.common.doubts.no_way(leads.map(|(cloud, _)| cloud));
                    seen.unread.push((cluster.clone(), why));
                }
            }
        }
        ctx.spawn(join_all(reads).into_actor(self).map(move |read, actor, _| {
            for (cluster, fleet) in read {
                actor.note_fleet(cluster, fleet, &mut seen);
            }
            reply.send(seen);
        }));
    }

    fn note_fleet(&self, cluster: ClusterId, fleet: Result<Fleet, Fault>, seen: &mut NodesSeen) {
        let fleet = match fleet {
            Ok(fleet) => fleet,
            Err(fault) => return seen.unread.push((cluster, fault.text)),
        };
        self.common.sites.seen(&cluster, fleet.nodes().keys());
        let claims = Claim::of_roster(&self.common.roster, &cluster);
        let scene = Scene::new(&fleet, &claims);
        let kept_out = self.common.sites.kept_out(&cluster);
        for (node, observation) in fleet.nodes() {
            let room = scene.room(node);
            let state = self.state_of(&cluster, node, *observation);
            seen.nodes.push(NodeReport {
                refuses: self.refused_by(&cluster, node, &scene),
                used_mb: observation.figures.map_or(0, |figures| figures.used / MIB),
                busy_cpus: observation.figures.map_or(0, |figures| figures.busy),
                storages: storages(&fleet, node, *observation),
                kept_out_by: kept_out.get(node).and_then(|(_, by)| by.clone()),
                ..report(cluster.clone(), node.clone(), state, room)
            });
        }
    }

    fn state_of(
        &self,
        cluster: &ClusterId,
        node: &NodeName,
        observation: NodeObservation,
    ) -> NodeStatus {
        let now = self.common.ports.ambient.now().mono;
        let scope = Scope::Node(cluster.clone(), node.clone());
        if observation.offline {
            return NodeStatus::Offline;
        }
        match self.common.sites.order(cluster, node) {
            NodeOrder::Drain => NodeStatus::Drained,
            NodeOrder::Cordon => NodeStatus::Cordoned,
            NodeOrder::Use if observation.maintenance => NodeStatus::Maintenance,
            NodeOrder::Use => {
                let barred = self.common.board.closed(&scope, now);
                barred.map_or(NodeStatus::Online, NodeStatus::Barred)
            }
        }
    }

    /// Templates that name a node, or every node, and that have no room on this one.
    fn refused_by(
        &self,
        cluster: &ClusterId,
        node: &NodeName,
        scene: &Scene<'_>,
    ) -> Vec<(TemplateId, String)> {
        let here = |spec: &TemplateSpec| {
            self.leads.get(&spec.id.cloud) == Some(cluster)
                && (spec.placement.anywhere || spec.nodes().contains(node))
        };
        let specs = self.spec.templates.values().filter(|spec| here(spec));
        let refused = specs.filter_map(|spec| {
            let sizes = Sizes::default().cloned(spec);
            let why = scene.refusal(spec, &scene.crowds(spec), sizes, node)?;
            Some((spec.id.clone(), why.to_string()))
        });
        refused.collect()
    }

    /// Looks at what a template's next agent would be cloned from and where, and what keeps it from
    /// each node.
    pub(super) fn why(&mut self, name: &str, reply: WhyReply, ctx: &mut Context<Self>) {
        let found = self.template_named(name).and_then(|id| {
            let spec = self.spec.templates.get(&id).cloned();
            spec.ok_or_else(|| Refusal::Unknown(format!("no template `{id}`")))
        });
        let spec = match found {
            Ok(spec) => spec,
            Err(refusal) => {
                reply.send(Err(refusal));
                return;
            }
        };
        let cloud = &spec.id.cloud;
        let down = match self.tried.get(cloud) {
            Some(Ok(_)) => None,
            Some(Err(why)) => Some(format!("cloud {cloud}: {why}")),
            None => Some(format!("cloud {cloud} was not tried yet")),
        };
        if let Some(why) = down {
            // Nothing can be read there; that is the answer.
            let (template, waits) = (spec.id.clone(), self.waits(&spec.id));
            let report = unread_why(template, waits, why);
            reply.send(Ok(self.with_doubts(report)));
            return;
        }
        let hypervisor = &self.common.ports.hypervisor;
        let found = hypervisor.locate(&spec.id.cloud, &spec.sought(), None);
        let needs = !spec.hardware.devices().is_empty();
        let devices = needs.then(|| hypervisor.devices(&spec.id.cloud));
        let found = async move {
            let mut found = found.await?;
            // Without its devices a node seems to have as many as anybody wants.
            if let Some(devices) = devices {
                let fleet = Arc::unwrap_or_clone(found.fleet);
                found.fleet = Arc::new(fleet.with_devices(devices.await?));
            }
            Ok(found)
        };
        ctx.spawn(found.into_actor(self).map(move |found, actor, _| {
            reply.send(Ok(actor.with_doubts(actor.report_why(&spec, found))));
        }));
    }

    fn report_why(&self, spec: &TemplateSpec, found: Result<Found, Fault>) -> WhyReport {
        let template = spec.id.clone();
        let waits = self.waits(&template);
        let (found, cluster) = match (found, self.leads.get(&template.cloud)) {
            (Ok(found), Some(cluster)) => (found, cluster),
            (Err(fault), _) => {
                return unread_why(template, waits, fault.text);
            }
            (Ok(_), None) => {
                let why = format!("cloud {} leads to no cluster", template.cloud);
                return unread_why(template, waits, why);
            }
        };
        let claims = Claim::of_roster(&self.common.roster, cluster);
        let standing = Standing {
            board: &self.common.board,
            doubts: Some(&self.common.doubts),
            sites: &self.common.sites,
            cluster,
            now: self.common.ports.ambient.now().mono,
            claims: &claims,
        };
        let (usable, note) = self.common.canaries.usable(spec, &found);
        let verdict = choose(spec, &usable, &standing)
            .map(|choice| format!("node {}: {}{note}", choice.node, choice.origin.why))
            .map_err(|why| why + &note);
        let nodes = survey(spec, &usable, &standing);
        let keys = lasting_keys(spec, &usable, &standing);
        let untried = untried(spec, &usable, &standing);
        WhyReport { template, waits, verdict, nodes, untried, keys, doubtful: BTreeSet::new() }
    }

    fn with_doubts(&self, report: WhyReport) -> WhyReport {
        WhyReport { doubtful: self.common.restraint.agents(), ..report }
    }

    /// What keeps a template from beginning agents that is no matter of nodes.
    fn waits(&self, template: &TemplateId) -> Option<String> {
        let trouble = self.trouble();
        let ground = self.ground(&trouble);
        let why = self.scheduler.why(&Want::Template(template.to_string()), &ground);
        (!why.starts_with(NO_PROBLEM)).then_some(why)
    }
}

/// Of a template of whose nodes nothing is known, for this reason.
fn unread_why(template: TemplateId, waits: Option<String>, why: String) -> WhyReport {
    WhyReport {
        template,
        waits,
        verdict: Err(why),
        nodes: Vec::new(),
        untried: Vec::new(),
        keys: BTreeSet::new(),
        doubtful: BTreeSet::new(),
    }
}

fn is_on(living: &Living, cluster: &ClusterId, node: &NodeName) -> bool {
    living.place.as_ref().is_some_and(|place| place.cluster == *cluster && place.node == *node)
}

/// Whether an agent goes without being asked, or cannot hear it.
fn stays(living: &Living) -> bool {
    match living.status.standing {
        Stands::Coming | Stands::Free { .. } => false,
        Stands::Busy => living.status.phase == AgentPhase::Held,
        Stands::Leaving | Stands::Parked | Stands::Gone => true,
    }
}

fn report(cluster: ClusterId, node: NodeName, state: NodeStatus, room: Room) -> NodeReport {
    NodeReport {
        cluster,
        node,
        state,
        agents: room.agents,
        guests: room.guests,
        known: room.known,
        memory_mb: room.memory / MIB,
        others_mb: room.others / MIB,
        own_mb: room.own / MIB,
        free_mb: room.free_memory(100).div_euclid(i64::try_from(MIB).unwrap_or(1)),
        used_mb: 0,
        cpus: room.cpus,
        busy_cpus: 0,
        free_cpus: room.free_cpus(),
        storages: Vec::new(),
        refuses: Vec::new(),
        kept_out_by: None,
    }
}

/// Storages of a node that take guests; none of a node that is offline, which says nothing of them.
fn storages(fleet: &Fleet, node: &NodeName, of: NodeObservation) -> Vec<StorageObservation> {
    let takes_guests = |one: &&StorageObservation| !of.offline && (one.images || one.containers);
    let mut all: Vec<_> = fleet.storages(node).filter(takes_guests).cloned().collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    // Invariant: a node has its storages for guests, and none while it is offline.

    #[test]
    fn storages_for_guests_are_shown_by_name_and_those_of_an_offline_node_are_not() {
        let node = NodeName::new("pve1");
        let storage = |name: &str, images: bool, containers: bool| StorageObservation {
            node: node.clone(),
            name: name.to_owned(),
            shared: false,
            kind: "dir".to_owned(),
            images,
            containers,
            reached: true,
            space: Some((1, 2)),
        };
        let all = vec![
            storage("zfs", true, false),
            storage("iso", false, false),
            storage("ct", false, true),
        ];
        let online = NodeObservation::default();
        let nodes = [(node.clone(), online)].into();
        let fleet = Fleet::new(nodes, all, BTreeMap::new());
        let names = |of| storages(&fleet, &node, of).into_iter().map(|one| one.name);
        assert_eq!(names(online).collect::<Vec<_>>(), ["ct", "zfs"]);
        let offline = NodeObservation { offline: true, ..online };
        assert_eq!(names(offline).count(), 0);
    }
}
