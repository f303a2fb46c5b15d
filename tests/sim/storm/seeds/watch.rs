//! What must hold at every fact, record and request, judged as each comes: incremental, so that a
//! storm costs little more than the herd itself.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use drover_actors::message::NodeOrdered;
use drover_model::fact::{Fact, What};
use drover_model::id::{AgentId, LeaseId, SourceId};
use drover_model::journal_state::JournalState;
use drover_model::marks::parse_name;
use drover_model::phase::{AgentPhase, BreakerPhase, NodeOrder};
use drover_model::record::{Body, Reason};
use drover_model::seed::owner;
use drover_model::spec::HerdSpec;
use drover_model::status::AgentStatus;
use drover_model::time::WallTime;
use proxmox_client::transport::{Method, Request};
use pve_sim::world::EPOCH;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::outage::Outage;
use super::plan::{SOURCES, Stage};
use super::rooms::Rooms;
use super::seen::{LeaseSeen, Live, Seen, Wrong};
use super::usage::{self, Used};
use crate::world::World;
use crate::world::ci::Ci;
use crate::world::clusters::Sides;
use crate::world::eye::Eye;
use crate::world::shell::Scripted;

/// The name of the key of anyone who holds an agent.
const HOLD: &str = "hold";
/// How long the caps of before a change are allowed for.
const RELOAD_SLACK: Duration = Duration::from_secs(1);
/// Where disc images of agents are.
const IMAGES: &str = "local";
/// Facts, records and requests that may come at one moment.
const MOST: u32 = 5_000;
/// How long an id that was freed is not given to another agent.
pub(super) const REST: Duration = Duration::from_secs(60 * 60);

/// The eye of a storm.
pub struct Watch {
    seen: Mutex<Seen>,
    pub(super) side: Sides,
    pub(super) shell: Scripted,
    pub(super) ci: Ci,
    pulse: Arc<Notify>,
    started: Instant,
    /// By how many milliseconds the wall clock of the service was set.
    pub(super) set: Arc<AtomicI64>,
}

impl Watch {
    /// Looks at a world that has not started.
    pub fn over(world: &World, stage: &Stage, logging: bool) -> Arc<Self> {
        let (log, rooms) = (logging.then(Vec::new), Rooms::of(stage));
        let caps = stage.sources.iter().map(|conf| conf.cap);
        let shares = SOURCES.map(SourceId::new).into_iter().zip(caps).collect();
        let seen = Seen { log, rooms, shares, ..Seen::default() };
        Arc::new(Self {
            seen: Mutex::new(seen),
            side: world.sides.clone(),
            shell: world.shell.clone(),
            ci: world.ci.clone(),
            pulse: Arc::clone(&world.notes.pulse),
            started: Instant::now(),
            set: world.clock_set(),
        })
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    pub(super) fn now(&self) -> Duration {
        Instant::now() - self.started
    }

    /// The wall clock of the service, as it has written that down.
    pub(super) fn wall(&self, seen: &Seen) -> WallTime {
        (WallTime(i64::try_from(EPOCH).unwrap() * 1000) + self.now()).shifted(seen.set)
    }

    /// Notes something that must never be; the first counts.
    pub fn complain(&self, invariant: &'static str, text: String) {
        self.blame(&mut self.seen(), invariant, text);
    }

    pub(super) fn blame(&self, seen: &mut Seen, invariant: &'static str, text: String) {
        seen.wrong.get_or_insert(Wrong { invariant, text, at: self.now() });
        self.pulse.notify_one();
    }

    /// The first thing that was wrong.
    pub fn wrong(&self) -> Option<Wrong> {
        self.seen().wrong.clone()
    }

    /// Everything that went over the wire, where that is kept.
    pub fn log(&self) -> Vec<String> {
        self.seen().log.clone().unwrap_or_default()
    }

    /// A configuration is about to be sent.
    pub fn spec(&self, spec: &HerdSpec) {
        let mut seen = self.seen();
        self.keep_spec(&mut seen);
        seen.spec = spec.clone();
    }

    /// The service starts with this journal.
    pub fn begin(&self, journal_state: &JournalState, spec: &HerdSpec) {
        let mut seen = self.seen();
        seen.spec = spec.clone();
        seen.overridden = journal_state.overridden.clone();
        seen.before.clear();
        seen.live.clear();
        seen.owners.clear();
        seen.trips.clear();
        seen.held.clear();
        seen.runners.begin(journal_state);
        seen.orders.begin(journal_state);
        seen.used = journal_state
            .agents
            .iter()
            .map(|(id, entry)| (id.clone(), Used::adopted(entry)))
            .collect();
        for (id, entry) in &journal_state.agents {
            let vmid = entry.marks.vmid.0;
            let live = Live {
                template: entry.spec.id.clone(),
                state: entry.phase(),
                vmid: Some(vmid),
                recorded: true,
                place: Some(seen.rooms.place(&entry.spec.id.cloud, &entry.node)),
                leases: entry.leases.keys().cloned().collect(),
                executors: entry.spec.executors.max(1),
                retiring: entry.retiring.is_some(),
                resets: entry.spec.reset.is_some(),
                owner: entry.owner.clone(),
                resetting: entry.phase() == AgentPhase::Resetting,
            };
            seen.owners.insert(vmid, id.clone());
            seen.live.insert(id.clone(), live);
        }
        seen.places.restored(journal_state, self.now());
        self.clock_at_start(&mut seen);
        let wall = self.wall(&seen);
        // One that left before the start is tried again when it comes back, as without a start.
        let there =
            journal_state.breakers.iter().filter(|(id, _)| spec.templates.contains_key(*id));
        for (id, entry) in there {
            // A clock that was set back before a start, even an earlier one, stretches no cool-down.
            let longest = wall + Duration::from_millis(entry.cooldown_ms);
            seen.tripped(id, entry.until.map(|until| until.min(longest)));
        }
        seen.waits.begin(journal_state.waiting.iter(), wall);
        if let Some(text) = seen.rooms.restored(journal_state, self.now()) {
            self.blame(&mut seen, "orders-of-nodes-are-kept", text);
        }
    }

    /// Something is about to happen that can cost leases and agents.
    pub fn harm(&self) {
        self.seen().harmed = true;
    }

    /// Somebody lets the warm minimum go too.
    pub fn reap_all(&self) {
        self.seen().losses.reap_all();
    }

    /// Calls to the cluster fail from here on, or not any more.
    pub fn outage(&self, on: bool) {
        let now = self.now();
        let mut seen = self.seen();
        seen.outage = on.then(|| Outage::from(now));
    }

    /// A node lost its power.
    pub fn node_down(&self, cluster: usize, node: &str) {
        let mut seen = self.seen();
        let place = (cluster, node.to_owned());
        let hit = seen.live.iter().filter(|(_, live)| live.place.as_ref() == Some(&place));
        let hit: Vec<AgentId> = hit.map(|(agent, _)| agent.clone()).collect();
        seen.shaken.extend(hit);
        seen.frail.insert(place);
    }

    /// An operator heard that a node is cordoned, drained or used again.
    pub fn node_ordered(&self, cluster: usize, done: &NodeOrdered) {
        self.seen().rooms.node_ordered(cluster, done, self.now());
    }

    /// An operator is about to give an order of a node.
    pub fn orders_node(&self, cluster: usize, node: &str, order: NodeOrder) {
        self.seen().rooms.orders_node(cluster, node, order);
    }

    /// Looks for agents that should have left drained nodes.
    pub fn linger(&self) {
        let mut seen = self.seen();
        let Seen { rooms, live, .. } = &mut *seen;
        if let Some(text) = rooms.linger(live, self.now()) {
            self.blame(&mut seen, "drained-nodes-empty", text);
        }
    }

    /// A guest is somebody else's from here on.
    pub fn stranger(&self, vmid: u32) {
        let mut seen = self.seen();
        seen.orphans.remove(&vmid);
        seen.strangers.insert(vmid);
    }

    /// A guest that was somebody else's is not there any more.
    pub fn no_stranger(&self, vmid: u32) {
        self.seen().strangers.remove(&vmid);
    }

    pub fn orphan(&self, vmid: u32) {
        self.seen().orphans.insert(vmid);
    }

    pub fn is_stranger(&self, vmid: u32) -> bool {
        self.seen().strangers.contains(&vmid)
    }

    pub fn live(&self) -> BTreeMap<AgentId, Live> {
        self.seen().live.clone()
    }

    /// Configurations of agents' guests that got ready once, with their ids.
    pub fn past(&self) -> BTreeMap<AgentId, (u32, BTreeMap<String, String>)> {
        self.seen().past.clone()
    }

    pub fn commands_end(&self, lease: &LeaseId) {
        self.seen().leases.entry(lease.clone()).or_default().wanted = true;
    }

    /// A lease, if it was ever heard of.
    pub fn lease(&self, lease: &LeaseId) -> Option<LeaseSeen> {
        self.seen().leases.get(lease).cloned()
    }

    /// Something happened: however much does at one moment, that has an end.
    fn beat(&self, seen: &mut Seen) {
        let now = self.now();
        let (at, count) = &mut seen.moment;
        *count = if *at == now { *count + 1 } else { 1 };
        *at = now;
        if *count > MOST {
            self.blame(seen, "time-goes-on", format!("{MOST} facts and calls at one moment"));
        }
    }

    fn born(&self, seen: &mut Seen, status: &AgentStatus) {
        seen.places.born(&status.agent, self.now());
        let template = &status.template;
        // A guest that was there and is gone holds no slot, though its record may stand a moment.
        let lost = |live: &Live| {
            let made = live.state != AgentPhase::Queued && !live.state.is_cloning();
            made && live.vmid.is_some_and(|vmid| self.side.config(vmid).is_none())
        };
        let holds = |live: &(&AgentId, &Live)| !seen.shaken.contains(live.0) && !lost(live.1);
        let (mut own, mut all) = (1, 1);
        for (_, live) in seen.live.iter().filter(holds) {
            own += u32::from(live.template == *template);
            all += u32::from(live.template.cloud == template.cloud);
        }
        let specs = self.specs(seen);
        let within = |count: u32, cap: Option<Option<u32>>| match cap {
            Some(Some(cap)) => count <= cap,
            Some(None) => true,
            None => false,
        };
        let fits = specs
            .iter()
            .any(|spec| within(own, spec.templates.get(template).map(|template| template.cap)))
            && specs
                .iter()
                .any(|spec| within(all, spec.clouds.get(&template.cloud).map(|cloud| cloud.cap)));
        if !fits {
            let text = format!("{} of {template}: {own} there, {all} on the cloud", status.agent);
            self.blame(seen, "caps-hold", text);
        }
        let wall = self.wall(seen);
        if let Some(trip) = seen.trips.get_mut(template) {
            trip.trials.insert(status.agent.clone());
            let (early, trials) = (wall < trip.until, trip.trials.len());
            if early || trials > 1 {
                let text = format!("{template}: early {early}, trials under way {trials}");
                self.blame(seen, "one-trial-while-half-open", text);
            }
        }
    }

    fn agent(&self, seen: &mut Seen, status: &AgentStatus) {
        let agent = &status.agent;
        if !seen.live.contains_key(agent) {
            if status.phase == AgentPhase::Gone {
                return;
            }
            if status.phase == AgentPhase::Queued {
                self.born(seen, status);
            }
            let live = Live {
                template: status.template.clone(),
                state: status.phase,
                vmid: None,
                recorded: false,
                place: None,
                leases: Vec::new(),
                executors: 1,
                retiring: false,
                resets: false,
                owner: None,
                resetting: false,
            };
            seen.live.insert(agent.clone(), live);
        }
        let now = self.now();
        let Seen { live, losses, frail, shaken, rooms, .. } = &mut *seen;
        let live = live.get_mut(agent).unwrap();
        losses.reported(now, agent, live, status.phase);
        live.state = status.phase;
        let cloud = &status.template.cloud;
        live.place = status.node.as_ref().map(|node| rooms.place(cloud, node));
        live.place.iter().for_each(|place| rooms.reported(agent, place));
        live.leases.clone_from(&status.leases);
        live.vmid = status.vmid.map(|vmid| vmid.0).or(live.vmid);
        if live.place.as_ref().is_some_and(|place| frail.contains(place)) {
            shaken.insert(agent.clone());
        }
        let recorded = live.recorded;
        let working = status.phase.takes_leases();
        if working || status.phase == AgentPhase::Draining || status.phase.is_leaving() {
            seen.proven(agent, &status.template);
        }
        let Some(vmid) = status.vmid.map(|vmid| vmid.0).filter(|_| working) else { return };
        if !recorded && !seen.orphans.contains(&vmid) {
            self.blame(seen, "journal-before-acting", format!("{agent} works without a record"));
        }
        if status.phase == AgentPhase::Ready {
            self.swept(seen, vmid, &[]);
        }
        if !seen.past.contains_key(agent) {
            let config = self.side.config(vmid).unwrap_or_default().into_iter().collect();
            seen.past.insert(agent.clone(), (vmid, config));
        }
    }

    /// What is in force is about to change.
    ///
    /// Several changes may come at one moment (a reload, and what operators set is undone), and what
    /// was done under the first of them may be heard of after the last.
    fn keep_spec(&self, seen: &mut Seen) {
        let now = self.now();
        seen.before.retain(|(at, _)| *at + RELOAD_SLACK >= now);
        let spec = Self::in_force(seen);
        seen.before.push((now, spec));
    }

    fn in_force(seen: &Seen) -> HerdSpec {
        HerdSpec::clone(&seen.overridden.over(&Arc::new(seen.spec.clone())))
    }

    /// The configurations that were in force as long as they may be believed, and the one that is.
    fn specs(&self, seen: &Seen) -> Vec<HerdSpec> {
        let now = self.now();
        let before = seen.before.iter().filter(|(at, _)| *at + RELOAD_SLACK >= now);
        let before = before.map(|(_, spec)| spec.clone());
        before.chain(std::iter::once(Self::in_force(seen))).collect()
    }

    fn going(&self, seen: &mut Seen, agent: &AgentId, reason: &Reason) {
        let specs = self.specs(seen);
        if let Some((invariant, text)) = usage::going(seen, agent, reason, &specs) {
            self.blame(seen, invariant, text);
        }
    }

    fn gone(&self, seen: &mut Seen, agent: &AgentId) {
        if let Some((cluster, node)) = seen.rooms.gone(agent) {
            let images = self.side.at(cluster).volumes(&node, IMAGES);
            let own = |volid: &&String| owner(volid).is_some_and(|(_, of)| of == *agent);
            if let Some(image) = images.iter().find(own) {
                let text = format!("{agent} is gone, and {image} stays");
                self.blame(seen, "no-image-without-an-owner", text);
            }
        }
        let Some(live) = seen.live.remove(agent) else { return };
        seen.proven(agent, &live.template);
        let Some(vmid) = live.vmid else { return };
        if seen.owners.get(&vmid) == Some(agent) {
            seen.owners.remove(&vmid);
        }
        let config = self.side.config(vmid).unwrap_or_default();
        let name = config.get("name").or_else(|| config.get("hostname"));
        let there = name.and_then(|name| parse_name(name)).is_some_and(|(_, one)| one == *agent);
        if there && !seen.strangers.contains(&vmid) {
            let text = format!("{agent} is gone and its guest {vmid} is there");
            return self.blame(seen, "no-guest-without-a-record", text);
        }
        self.left(seen, agent, vmid);
    }
}

impl Eye for Watch {
    fn fact(&self, fact: &Fact) {
        let mut seen = self.seen();
        self.beat(&mut seen);
        match &fact.what {
            What::Agent(status) => self.agent(&mut seen, status),
            What::AgentGone { agent, .. } => self.gone(&mut seen, agent),
            What::Lease(status) => self.lease_reported(&mut seen, status),
            What::JobLost { source, job, .. } => {
                if let Some(text) = seen.runners.job_lost(source, job.as_ref()) {
                    self.blame(&mut seen, "a-lost-job-is-reported-once", text);
                }
            }
            // Agents of the same moment are heard of before the record.
            What::Template(status) if status.breaker == BreakerPhase::Closed => {
                seen.trips.remove(&status.template);
            }
            // What is put back into the YAML later is tried again.
            What::TemplateGone { template } => {
                seen.trips.remove(template);
            }
            What::Cloud(one) => seen.held.reported(&one.cloud, one.health, &one.detail, self.now()),
            What::CloudGone { cloud } => seen.trips.retain(|id, _| id.cloud != *cloud),
            _ => {}
        }
    }

    fn record(&self, body: &Body) {
        let mut seen = self.seen();
        self.beat(&mut seen);
        self.clock_written(&mut seen);
        let hidden = self.hidden(&seen);
        seen.addresses.allow(hidden);
        if let Some(text) = seen.addresses.record(body) {
            self.blame(&mut seen, "an-address-is-one-agents", text);
        }
        let (most, wall) = (seen.spec.leases.waiting, self.wall(&seen));
        if let Some(text) = seen.waits.record(body, most, wall) {
            self.blame(&mut seen, "no-more-wait-than-may", text);
        }
        self.keys_are_back(&mut seen, body);
        if let Some(text) = seen.orders.record(body) {
            self.blame(&mut seen, "orders-come-alone-and-alter-for-good", text);
        }
        let Seen { runners, shares, .. } = &mut *seen;
        if let Some(text) = runners.record(body, shares) {
            self.blame(&mut seen, "sources-keep-to-their-records-and-caps", text);
        }
        match body {
            Body::CloneIntended { marks, node, spec } => {
                let vmid = marks.vmid.0;
                if let Some(text) = seen.held.cloned(&marks.cloud, self.now()) {
                    self.blame(&mut seen, "nothing-is-started-in-doubt", text);
                }
                let wall = self.wall(&seen);
                if let Some(text) = seen.places.cloned(marks, node, spec, wall) {
                    self.blame(&mut seen, "one-trial-while-half-open", text);
                }
                if let Some((invariant, text)) = seen.rooms.cloned(marks, node, spec, self.now()) {
                    self.blame(&mut seen, invariant, text);
                }
                self.shell.forget(vmid);
                // A clock that is set and not written down shortens one of the two.
                let rests =
                    |at: &&(Duration, WallTime)| at.0 + REST > self.now() && at.1 + REST > wall;
                let freed = seen.freed.get(&vmid).filter(rests).copied();
                if let Some((_, at)) = freed {
                    let text =
                        format!("{vmid} was freed at {at:?} and is given to {}", marks.agent);
                    self.blame(&mut seen, "freed-ids-rest", text);
                }
                seen.intended.insert(marks.agent.clone(), vmid);
                seen.used.insert(marks.agent.clone(), Used::started(spec));
                if let Some(live) = seen.live.get_mut(&marks.agent) {
                    live.recorded = true;
                    live.vmid = Some(vmid);
                    live.executors = spec.executors.max(1);
                    live.resets = spec.reset.is_some();
                }
                if let Some(other) = seen.owners.insert(vmid, marks.agent.clone()) {
                    let text = format!("{vmid} is {other}'s and is given to {}", marks.agent);
                    self.blame(&mut seen, "one-guest-an-agent", text);
                }
            }
            Body::LeaseGranted { agent, ask, expires, .. } => {
                self.granted(&mut seen, agent, ask, *expires);
                self.handed_out(&mut seen, agent);
                self.owned(&mut seen, agent, ask);
            }
            Body::ResetIntended { agent } => {
                if let Some(live) = seen.live.get_mut(agent) {
                    live.resetting = true;
                }
            }
            Body::Phase { agent, state } if *state == AgentPhase::Ready => {
                if let Some(live) = seen.live.get_mut(agent) {
                    live.resetting = false;
                }
            }
            Body::LeaseRenewed { lease, expires } => self.lasts(&mut seen, lease, *expires),
            Body::LeaseReturned { agent, lease } => self.returned(&mut seen, agent, lease),
            Body::LeaseEnded { lease, why, .. } => self.ended(&mut seen, lease, why),
            Body::OverrideSet { agent, change } => {
                let now = self.now();
                if let Some(used) = seen.used.get_mut(agent) {
                    used.change(*change, now);
                }
            }
            Body::TemplateOverridden { .. } | Body::CloudOverridden { .. } => {
                self.keep_spec(&mut seen);
                seen.overridden.take_in(body);
            }
            Body::HoldSet { .. } => seen.holds = true,
            Body::RetireIntended { agent, reason, .. } => {
                self.going(&mut seen, agent, reason);
                if let Some(live) = seen.live.get_mut(agent) {
                    live.retiring = true;
                }
            }
            Body::BreakerMoved { scope, template, until, .. } => match scope {
                Some(scope) => seen.places.moved(scope, *until, self.now()),
                None => seen.tripped(template, *until),
            },
            Body::Gone { agent, burned, .. } => {
                let vmid = seen.intended.get(agent).copied();
                if let Some(vmid) = vmid.filter(|_| !burned) {
                    let wall = self.wall(&seen);
                    seen.freed.insert(vmid, (self.now(), wall));
                }
                self.gone(&mut seen, agent);
            }
            _ => {}
        }
    }

    fn request(&self, request: &Request) {
        let now = self.now();
        let mut seen = self.seen();
        self.beat(&mut seen);
        let (agents, clusters) = (seen.live.len(), seen.rooms.clusters());
        let outage = seen.outage.as_mut();
        let excess = outage.and_then(|outage| outage.count(request, now, agents, clusters));
        if let Some(text) = excess {
            self.blame(&mut seen, "attempts-are-bounded", text);
        }
        if let Some(log) = &mut seen.log {
            log.push(format!("{now:?} {request:?}"));
        }
        if request.method != Method::Get {
            self.written(&mut seen, request);
        }
    }

    fn key(&self, lease: &str, vmid: u32) {
        let mut seen = self.seen();
        if lease == HOLD {
            if !seen.holds {
                self.blame(&mut seen, "journal-before-acting", "a hold's key comes early".into());
            }
            return;
        }
        let lease = LeaseId::new(lease);
        let holder = seen.leases.get(&lease).and_then(|known| known.agent.clone());
        let own = holder.as_ref().and_then(|agent| seen.live.get(agent)).and_then(|one| one.vmid);
        // One that was reported first is believed; whose guest it is nobody knows.
        let reported = |live: &&Live| {
            live.state.takes_leases()
                || matches!(live.state, AgentPhase::Preparing | AgentPhase::Draining)
        };
        let owner = seen.owners.get(&vmid).and_then(|agent| seen.live.get(agent)).filter(reported);
        if own.is_some_and(|own| own != vmid) && owner.is_some() {
            let text = format!("the key of {lease} goes into {vmid}, its agent's guest is {own:?}");
            self.blame(&mut seen, "a-key-goes-into-its-own-guest", text);
        }
        if holder.is_none() {
            self.blame(&mut seen, "journal-before-acting", format!("a key of {lease} comes early"));
        }
    }
}
