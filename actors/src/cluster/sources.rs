//! What agents are cloned from: found once for all who ask, and chosen for each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{AgentId, CloudId, NodeName};
use drover_model::marks::parse_name;
use drover_model::scope::Scope;
use drover_model::spec::TemplateSpec;
use drover_model::template_image::{Found, Sought};
use drover_model::time::Moment;

use super::allocator::Event;
use super::{Ask, Cluster, Footprint, OperationEnd, Stage};
use crate::placement::Claim;
use crate::source::Standing;
use crate::source::{Choice, choose, room};

/// How long what was found is believed: it is read once for all that ask meanwhile. What drover
/// itself does is known without it, so this is how late it hears of others' guests, beside the ten
/// seconds that Proxmox's own list is behind.
const LOCATED: Duration = Duration::from_secs(20);

/// What was found, and when.
pub(super) type Located = BTreeMap<Key, (Found, Moment)>;

/// What is asked: through which cloud, for what, of which nodes an answer is enough, and whether
/// the devices of nodes count.
type Key = (CloudId, Sought, Option<Vec<NodeName>>, bool);

impl Cluster {
    /// Asks the cluster what an agent may be cloned from, once for all agents that want to know.
    pub(super) fn locate(&mut self, agent: &AgentId, ctx: &mut Context<Self>) {
        let Some(ask) = self.asks.get(agent) else { return };
        let key = self.key(&ask.spec);
        if self.common.doubts.cloud_down(&key.0).is_some() {
            return self.set_stage(agent, Stage::Held);
        }
        let now = self.common.ports.ambient.now().mono;
        if let Some(why) = self.common.board.closed(&Scope::Cloud(key.0.clone()), now) {
            let text = format!("cloud `{}`: {why}", key.0);
            return self.refuse(agent, Fault::new(FaultKind::Contention, Culprit::Template, text));
        }
        let known = self.located.get(&key).filter(|(_, at)| now - *at < LOCATED);
        if let Some((found, _)) = known.cloned() {
            return self.place(std::slice::from_ref(agent), &found);
        }
        let alike = |other: &Ask| self.key(&other.spec) == key;
        let under_way = self
            .asks
            .iter()
            .any(|(id, other)| id != agent && other.stage == Stage::Locating && alike(other));
        if under_way {
            return;
        }
        let hypervisor = &self.common.ports.hypervisor;
        let found = match &key.1 {
            Sought::Os(template) => {
                hypervisor.provide(&key.0, template, key.2.as_deref().unwrap_or_default())
            }
            sought @ (Sought::Id(_)
            | Sought::Name(_)
            | Sought::Pattern(_)
            | Sought::Tag(_)
            | Sought::Image(_)
            | Sought::Agent { .. }
            | Sought::Container(_)) => hypervisor.locate(&key.0, sought, key.2.as_deref()),
        };
        let devices = key.3.then(|| hypervisor.devices(&key.0));
        let answer = async move {
            let mut found = found.await?;
            if let Some(devices) = devices {
                let fleet = Arc::unwrap_or_clone(found.fleet);
                found.fleet = Arc::new(fleet.with_devices(devices.await?));
            }
            Ok(found)
        };
        ctx.spawn(answer.into_actor(self).map(move |found, actor, ctx| {
            actor.found(key, found, ctx);
        }));
    }

    /// Forgets which versions of images there were: another one was built, or one goes.
    pub(super) fn forget_versions(&mut self) {
        self.located.retain(|(_, sought, _, _), _| !matches!(sought, Sought::Image(_)));
    }

    /// What must be known of a spec's templates. Their storages must be where one may be at fault.
    fn key(&self, spec: &TemplateSpec) -> Key {
        // Whether it reaches other nodes hangs on its storages too.
        // An OS template is provided on the nodes that the spec names.
        let near = (self.common.board.rests() || spec.create().is_some()) && !spec.roams();
        let near = near.then(|| spec.nodes());
        let devices = !spec.hardware.devices().is_empty();
        (spec.id.cloud.clone(), spec.sought(), near, devices)
    }

    fn found(&mut self, key: Key, found: Result<Found, Fault>, ctx: &mut Context<Self>) {
        // How much had to be known may have changed meanwhile: what came of it does for all.
        let alike = |ask: &Ask| {
            let (cloud, sought, _, devices) = self.key(&ask.spec);
            let near = |near: &Vec<NodeName>| !ask.spec.roams() && *near == ask.spec.nodes();
            let same = (&cloud, &sought, devices) == (&key.0, &key.1, key.3);
            ask.stage == Stage::Locating && same && key.2.as_ref().is_none_or(near)
        };
        let agents: Vec<AgentId> =
            self.asks.iter().filter(|(_, ask)| alike(ask)).map(|(id, _)| id.clone()).collect();
        match found {
            Ok(mut found) => {
                if matches!(key.1, Sought::Image(_) | Sought::Agent { .. }) {
                    let own = &self.common.run.installation;
                    found.candidates.retain(|one| {
                        parse_name(&one.name).is_some_and(|(whose, _)| whose == *own)
                    });
                }
                self.common.sites.seen(&self.id, found.fleet.nodes().keys());
                self.place(&agents, &found);
                let now = self.common.ports.ambient.now().mono;
                self.located.retain(|_, (_, at)| now - *at < LOCATED);
                // What is not there yet may come at any time.
                if !found.candidates.is_empty() {
                    self.located.insert(key, (found, now));
                }
            }
            Err(fault) => {
                for agent in agents {
                    let named = self.asks.get(&agent).and_then(|ask| named(&ask.spec, &fault));
                    match named {
                        Some(node) => self.line_up(&agent, node.clone(), node),
                        None => self.refuse(&agent, fault.clone()),
                    }
                }
            }
        }
        self.advance(ctx);
    }

    /// What drover's own agents take here: those that have a place, and those that were promised
    /// one.
    fn claims(&self) -> Vec<Claim> {
        let mut claims = Claim::of_roster(&self.common.roster, &self.id);
        let coming = self.asks.values().filter(|ask| {
            matches!(ask.stage, Stage::Waiting | Stage::Checking(_) | Stage::Pausing)
        });
        claims.extend(coming.filter_map(|ask| {
            let spec = ask.chosen.as_ref().unwrap_or(&ask.spec);
            Some(Claim::coming(spec, ask.node.clone()?, spec.origin.as_ref()))
        }));
        claims
    }

    /// Chooses for agents, one after the other; each that nothing can be started for hears why.
    fn place(&mut self, agents: &[AgentId], found: &Found) {
        let mut claims = self.claims();
        // Agents of several sizes may be among them.
        let specs = agents.iter().filter_map(|agent| self.asks.get(agent)).map(|ask| &ask.spec);
        let specs: BTreeMap<_, _> =
            specs.map(|spec| ((spec.id.clone(), spec.size), Arc::clone(spec))).collect();
        for agent in agents {
            self.place_one(agent, found, &mut claims);
        }
        for spec in specs.into_values() {
            let now = self.common.ports.ambient.now().mono;
            let (usable, _) = self.common.canaries.usable(&spec, found);
            let left = room(&spec, &usable, &self.standing(&claims, now));
            self.common.sites.has_room(&spec, left, now);
        }
    }

    fn standing<'a>(&'a self, claims: &'a [Claim], now: Moment) -> Standing<'a> {
        Standing {
            board: &self.common.board,
            doubts: Some(&self.common.doubts),
            sites: &self.common.sites,
            cluster: &self.id,
            now,
            claims,
        }
    }

    fn place_one(&mut self, agent: &AgentId, found: &Found, claims: &mut Vec<Claim>) {
        let Some(ask) = self.asks.get(agent) else { return };
        let spec = Arc::clone(&ask.spec);
        let now = self.common.ports.ambient.now().mono;
        // One that is placed again may try another version.
        self.common.canaries.displaced(&spec.id, agent);
        self.common.canaries.saw(&spec, found);
        let (usable, note) = self.common.canaries.usable(&spec, found);
        let standing = self.standing(claims, now);
        // Where every node is in doubt it waits for one of them.
        let choice = choose(&spec, &usable, &standing).or_else(|why| {
            choose(&spec, &usable, &Standing { doubts: None, ..standing }).map_err(|_| why)
        });
        match choice {
            Ok(choice) => {
                if let Some(version) = &choice.origin.version {
                    self.common.canaries.started(&spec, agent, version, found);
                }
                let chosen = self.take(agent, &spec, &choice, now);
                claims.push(Claim::coming(&chosen, choice.node, chosen.origin.as_ref()));
            }
            Err(why) => {
                let kind = match found.candidates[..] {
                    [] => FaultKind::Gone,
                    [_, ..] => FaultKind::Contention,
                };
                // What stands in the way may have gone when it is looked for again.
                let key = self.key(&spec);
                self.located.remove(&key);
                let text = format!("nothing can be cloned: {why}{note}");
                self.refuse(agent, Fault::new(kind, Culprit::Template, text));
            }
        }
    }

    /// Takes a place for an agent; gives its spec with what was chosen.
    fn take(
        &mut self,
        agent: &AgentId,
        spec: &TemplateSpec,
        choice: &Choice,
        now: Moment,
    ) -> Arc<TemplateSpec> {
        let scopes = Scope::of(&self.id, &choice.node, Some(&choice.origin), &spec.id.cloud);
        for scope in self.common.board.started(&scopes, agent, now) {
            tracing::info!(agent = %agent, scope = %scope, "agent is its breaker's trial");
            self.common.show_breaker(&scope);
        }
        let chosen = Arc::new(choice.apply(spec));
        if let Some(ask) = self.asks.get_mut(agent) {
            ask.chosen = Some(Arc::clone(&chosen));
        }
        self.line_up(agent, choice.node.clone(), choice.origin.home.clone());
        chosen
    }

    /// Looks again for those that were to be started on a node, and have no guest yet: an
    /// operator cordoned or drained it.
    pub(super) fn leave_node(&mut self, node: &NodeName, ctx: &mut Context<Self>) {
        let there = |ask: &Ask| {
            let origin = ask.chosen.as_ref().and_then(|spec| spec.origin.as_ref());
            let waits = matches!(ask.stage, Stage::Waiting | Stage::Checking(_) | Stage::Pausing);
            let home = origin.is_some_and(|origin| origin.home == *node);
            waits && (home || ask.node.as_ref() == Some(node))
        };
        let leave: Vec<AgentId> =
            self.asks.iter().filter(|(_, ask)| there(ask)).map(|(id, _)| id.clone()).collect();
        let now = self.common.ports.ambient.now().mono;
        for agent in &leave {
            if let Some(Ask { stage: Stage::Checking(vmid), .. }) = self.asks.get(agent) {
                self.act(Event::Withdrawn(*vmid));
            }
            self.lanes.release(agent, OperationEnd::Inconclusive, now);
            if let Some(ask) = self.asks.get_mut(agent) {
                (ask.stage, ask.node, ask.chosen) = (Stage::Locating, None, None);
            }
        }
        for agent in &leave {
            self.locate(agent, ctx);
        }
        self.advance(ctx);
    }

    /// Lines an agent up for a clone that is made on `home` and meant for `node`.
    fn line_up(&mut self, agent: &AgentId, node: NodeName, home: NodeName) {
        let Some(ask) = self.asks.get_mut(agent) else { return };
        ask.stage = Stage::Waiting;
        ask.node = Some(node);
        let spec = ask.chosen.as_ref().unwrap_or(&ask.spec);
        self.lanes.enqueue(agent.clone(), Footprint::of(spec, home));
    }
}

/// The node of a template that is written down as a whole: where nobody could be asked, or its
/// configuration may not be read, that must do.
fn named(spec: &TemplateSpec, fault: &Fault) -> Option<NodeName> {
    let unknown = match fault.kind {
        FaultKind::Contention
        | FaultKind::Unreachable
        | FaultKind::UnknownOutcome
        | FaultKind::Denied { .. } => true,
        FaultKind::Locked { .. }
        | FaultKind::Gone
        | FaultKind::IdTaken
        | FaultKind::Capacity
        | FaultKind::Foreign
        | FaultKind::KeyRejected
        | FaultKind::Impostor
        | FaultKind::Broken => false,
    };
    let whole = spec.search.is_none()
        && spec.create().is_none()
        && spec.nodes.is_empty()
        && spec.storages.is_empty()
        && spec.placement.thickness.is_none();
    spec.node.clone().filter(|_| unknown && whole)
}
