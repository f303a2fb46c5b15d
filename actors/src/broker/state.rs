//! The broker's mind: leases, agents and room on one page, and what follows from them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::book::{Asked, Book, Entry, Stand};
use super::matching::Matching;
use super::routing::Routing;
use super::{AgentView, Demand, Order, Source, describe, takes};
use crate::id::{AgentId, CloudId, LeaseId, TemplateId};
use crate::ledger::Ledger;
use crate::message::{Refusal, Standing};
use crate::record::{LeaseAsk, Owner, Want};
use crate::spec::{Minimums, TemplateSpec};
use crate::template::{AgentLevel, TemplateNews};
use crate::time::WallTime;

/// How often a lease may lose its agent before it is ready.
const RETURNS: u32 = 3;

/// A template as the broker sees it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TemplateView {
    pub(super) spec: Arc<TemplateSpec>,
    pub(super) configured: bool,
    pub(super) flowing: bool,
    pub(super) tripped: Option<(WallTime, String)>,
    pub(super) paused: Option<String>,
    pub(super) live: u32,
    pub(super) room: u32,
    pub(super) lack: Option<String>,
    pub(super) kept: Minimums,
    /// Starts asked for and not answered.
    pub(super) pending: u32,
}

/// A free agent with the places left on it.
struct Slot {
    agent: AgentId,
    spec: Arc<TemplateSpec>,
    owner: Option<Owner>,
    left: u32,
}

/// Uses that agents on their way will have room for.
#[derive(Debug, Clone)]
pub(super) struct Coming {
    pub(super) spec: Arc<TemplateSpec>,
    pub(super) owner: Option<Owner>,
    pub(super) uses: u32,
}

/// All demand and all capacity.
#[derive(Debug, Clone, Default)]
pub struct Broker {
    pub(super) book: Book,
    pub(super) clouds: BTreeMap<CloudId, u32>,
    pub(super) templates: BTreeMap<TemplateId, TemplateView>,
    pub(super) agents: BTreeMap<AgentId, AgentView>,
    pub(super) routing: Routing,
    /// Wants of leases given up, for which agents may have been begun.
    pub(super) given_up: Vec<Want>,
    /// How many more agents of a template its cluster has room for, where that is known.
    fits: BTreeMap<TemplateId, u64>,
    clock: u64,
    stopping: bool,
}

impl Broker {
    /// A broker over the leases and agents the journal knows; until they report, agents without
    /// leases count as on their way.
    pub fn restore(ledger: &Ledger) -> Self {
        let agents = ledger.agents.iter().map(|(agent, entry)| {
            let standing = match (&entry.retiring, entry.leases.is_empty()) {
                (Some(_), _) => Standing::Leaving,
                (None, true) if entry.state != "Held" => Standing::Coming,
                (None, _) => Standing::Busy,
            };
            let spec = Arc::new((*entry.spec).clone());
            let owner = entry.owner.clone().filter(|_| spec.reset.is_some());
            let view = AgentView { spec, standing, owner, queued: false, going: false, order: 0 };
            (agent.clone(), view)
        });
        Self { agents: agents.collect(), book: Book::restore(ledger), ..Self::default() }
    }

    /// The answer to an ask that is known already.
    pub fn known(&self, ask: &LeaseAsk) -> Option<Asked> {
        self.book.known(ask)
    }

    /// Whether a lease begins or ends on this agent at this moment.
    pub fn settling(&self, agent: &AgentId) -> bool {
        self.book.at(agent).iter().any(|(lease, stand)| {
            let releasing = self.book.get(lease).is_some_and(|entry| entry.releasing);
            releasing || matches!(stand, Stand::Sent(_))
        })
    }

    /// Whether no lease is on an agent or on its way to it.
    pub fn unused(&self, agent: &AgentId) -> bool {
        self.book.at(agent).is_empty()
    }

    /// A lease by its id.
    pub fn lease(&self, lease: &LeaseId) -> Option<&Entry> {
        self.book.get(lease)
    }

    /// Leases that wait, the oldest first.
    pub fn waiting(&self) -> impl Iterator<Item = &LeaseAsk> {
        self.book.waiting()
    }

    /// Takes label mappings into force.
    pub fn route(&mut self, routing: Routing) {
        self.routing = routing;
    }

    /// How many more agents of templates their clusters have room for.
    pub fn fits(&mut self, fits: BTreeMap<TemplateId, u64>) {
        self.fits = fits;
    }

    /// Nothing is handed out or begun any more.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Whether it stops.
    pub fn stopping(&self) -> bool {
        self.stopping
    }

    /// Takes an ask; a want that no configured template can ever serve is refused at once.
    pub fn ask(&mut self, ask: &LeaseAsk, configured: &[Arc<TemplateSpec>]) -> Asked {
        self.book.prune(ask.asked);
        if let Some(known) = self.book.known(ask) {
            return known;
        }
        if let Some(refusal) = refusal(&ask.want, configured, &self.routing) {
            return Asked::Refused(refusal);
        }
        self.book.open(ask);
        Asked::New
    }

    /// An ask is durable, or could not be made so.
    pub fn recorded(&mut self, lease: &LeaseId, durable: bool) {
        if durable {
            self.book.stand(lease, Stand::Waiting);
        } else {
            self.book.forget(lease);
        }
    }

    /// A lease is to end. Gives what must be done, and whether it is over already.
    pub fn release(&mut self, lease: &LeaseId) -> Result<(Vec<Order>, bool), Refusal> {
        let Some(entry) = self.book.get(lease) else {
            return Err(Refusal::Unknown(format!("no lease `{lease}` is known")));
        };
        match entry.stand.clone() {
            Stand::Recording => Err(Refusal::Unknown(format!("no lease `{lease}` is known"))),
            Stand::Ended(_) => Ok((Vec::new(), true)),
            Stand::Cancelling => Ok((Vec::new(), false)),
            Stand::Waiting => {
                self.book.stand(lease, Stand::Cancelling);
                Ok((vec![Order::Cancel { lease: lease.clone(), why: "cancelled" }], false))
            }
            Stand::Sent(_) => {
                self.book.releasing(lease);
                Ok((Vec::new(), false))
            }
            Stand::On(agent) => {
                self.book.releasing(lease);
                Ok((vec![Order::End { agent, lease: lease.clone() }], false))
            }
        }
    }

    /// The end of a lease that was never granted is durable, or could not be made so.
    pub fn cancelled(&mut self, lease: &LeaseId, durable: bool, now: WallTime) {
        if let Some(entry) = self.book.get(lease).filter(|_| durable) {
            self.given_up.push(entry.ask.want.clone());
        }
        self.book.stand(lease, if durable { Stand::Ended(now) } else { Stand::Waiting });
    }

    /// The agent a lease can be renewed on.
    pub fn renewable(&self, lease: &LeaseId) -> Result<AgentId, Refusal> {
        let Some(entry) = self.book.get(lease) else {
            return Err(Refusal::Unknown(format!("no lease `{lease}` is known")));
        };
        match &entry.stand {
            Stand::On(agent) if !entry.releasing => Ok(agent.clone()),
            Stand::Recording | Stand::Waiting | Stand::Sent(_) => Err(Refusal::Conflict(format!(
                "lease `{lease}` is not granted yet: there is nothing to renew"
            ))),
            Stand::On(_) | Stand::Cancelling | Stand::Ended(_) => {
                Err(Refusal::Conflict(format!("lease `{lease}` is over")))
            }
        }
    }

    /// Agents a cloud has room for, beside its templates' own room.
    pub fn cloud(&mut self, cloud: &CloudId, room: u32) {
        self.clouds.insert(cloud.clone(), room);
    }

    /// A cloud is gone.
    pub fn cloud_gone(&mut self, cloud: &CloudId) {
        self.clouds.remove(cloud);
    }

    /// A template's agents and levels changed.
    pub fn news(&mut self, news: &TemplateNews, now: WallTime) -> Vec<Order> {
        let view = self.templates.entry(news.template.clone()).or_insert_with(|| TemplateView {
            spec: news.spec.clone(),
            configured: news.configured,
            flowing: news.flowing,
            tripped: None,
            paused: None,
            live: 0,
            room: 0,
            lack: None,
            kept: news.kept,
            pending: 0,
        });
        view.spec = news.spec.clone();
        view.configured = news.configured;
        view.flowing = news.flowing;
        view.tripped.clone_from(&news.tripped);
        view.paused.clone_from(&news.paused);
        view.live = news.live;
        view.room = news.room;
        view.lack.clone_from(&news.lack);
        view.kept = news.kept;
        view.pending = view.pending.saturating_sub(news.answered);
        let mut orders = Vec::new();
        for level in &news.agents {
            orders.extend(self.follow(level, now));
            let free = matches!(level.standing, Standing::Free { .. });
            let earlier = self.agents.get(&level.agent);
            let was = earlier.filter(|view| matches!(view.standing, Standing::Free { .. }));
            let order = was.map_or(self.clock + 1, |view| view.order);
            self.clock += u64::from(free && was.is_none());
            let view = AgentView {
                spec: level.spec.clone(),
                standing: level.standing,
                owner: level.owner.clone(),
                queued: level.queued,
                going: level.going,
                order,
            };
            self.agents.insert(level.agent.clone(), view);
        }
        for level in &news.gone {
            self.agents.remove(&level.agent);
            orders.extend(self.follow(level, now));
        }
        if news.empty && !news.configured {
            self.templates.remove(&news.template);
        }
        orders
    }

    /// Compares the leases an agent reports with the book.
    fn follow(&mut self, level: &AgentLevel, now: WallTime) -> Vec<Order> {
        let agent = &level.agent;
        let mut orders = Vec::new();
        let leaves = matches!(level.standing, Standing::Leaving | Standing::Gone);
        for (lease, stand) in self.book.at(agent) {
            let there = level.leases.contains(&lease);
            let back = level.refused.contains(&lease);
            let refused = leaves || back;
            let releasing = self.book.get(&lease).is_some_and(|entry| entry.releasing);
            match stand {
                Stand::Sent(_) if there => {
                    self.book.stand(&lease, Stand::On(agent.clone()));
                    if releasing {
                        orders.push(Order::End { agent: agent.clone(), lease });
                    }
                }
                Stand::On(_) | Stand::Sent(_) if level.over.contains(&lease) && !there => {
                    self.book.stand(&lease, Stand::Ended(now));
                    orders.push(Order::Over { lease });
                }
                Stand::Sent(_) if refused => {
                    if releasing {
                        self.book.stand(&lease, Stand::Cancelling);
                        orders.push(Order::Cancel { lease, why: "cancelled" });
                    } else {
                        self.book.stand(&lease, Stand::Waiting);
                    }
                }
                Stand::On(_) if !there && back => {
                    orders.push(self.returned(lease, releasing));
                }
                Stand::On(_) if !there => {
                    self.book.stand(&lease, Stand::Ended(now));
                    orders.push(Order::Over { lease });
                }
                Stand::Sent(_)
                | Stand::On(_)
                | Stand::Recording
                | Stand::Waiting
                | Stand::Cancelling
                | Stand::Ended(_) => {}
            }
        }
        orders
    }

    /// A lease that was reported and never ready waits again. One that is given back too often would
    /// use up one agent after the other: its key may be what no guest takes.
    fn returned(&mut self, lease: LeaseId, releasing: bool) -> Order {
        let returns = self.book.returned(&lease);
        if releasing || returns > RETURNS {
            self.book.stand(&lease, Stand::Cancelling);
            let why = if releasing { "cancelled" } else { "lost" };
            return Order::Cancel { lease, why };
        }
        self.book.stand(&lease, Stand::Waiting);
        Order::Again { lease }
    }

    /// A start was not passed on to the template: it is not in flight.
    pub fn not_begun(&mut self, template: &TemplateId, count: u32) {
        if let Some(view) = self.templates.get_mut(template) {
            view.pending = view.pending.saturating_sub(count);
        }
    }

    /// The demand of waiting leases as levels, the oldest first.
    pub fn demands(&self) -> Vec<Demand> {
        let kept: BTreeSet<&Owner> =
            self.agents.values().filter_map(|view| view.owner.as_ref()).collect();
        let mut levels: Vec<Demand> = Vec::new();
        for ask in self.book.waiting() {
            // Only those for whom an agent is kept differ from all others.
            let whose = if kept.is_empty() { None } else { Some(ask.whose()) };
            let whose = whose.filter(|whose| kept.contains(whose));
            match levels.iter_mut().find(|level| level.want == ask.want && level.whose == whose) {
                Some(level) => level.count += 1,
                None => levels.push(Demand {
                    source: Source::Leases,
                    want: ask.want.clone(),
                    whose,
                    count: 1,
                    oldest: ask.asked,
                }),
            }
        }
        levels
    }

    /// What to do about all demand at this moment.
    ///
    /// Hand-outs first, in the order of asking; what they leave is set against agents on their
    /// way, and only the rest is begun.
    pub fn decide(&mut self) -> Vec<Order> {
        if self.stopping {
            return Vec::new();
        }
        let mut orders = self.hand_out();
        orders.extend(self.start());
        orders.extend(self.evict());
        orders.extend(self.withdraw());
        orders
    }

    /// Free agents with the places left on them, in the order of preference: agents already in
    /// use first, so that idle ones may go or stay warm, then the longest ready.
    ///
    /// An agent that is kept for one owner goes before the others, which anybody can have.
    fn free(&self) -> Vec<Slot> {
        let mut free: Vec<(bool, bool, u64, Slot)> = Vec::new();
        for (agent, view) in &self.agents {
            if let Standing::Free { executors, idle } = view.standing {
                let sent = self.book.sent_to(agent);
                let left = executors.saturating_sub(sent);
                if left > 0 && !view.going {
                    let unused = idle && sent == 0;
                    let (agent, spec) = (agent.clone(), view.spec.clone());
                    let owner = view.owner.clone();
                    let slot = Slot { agent, spec, owner, left };
                    free.push((view.owner.is_none(), unused, view.order, slot));
                }
            }
        }
        free.sort_by(|one, other| {
            (one.0, one.1, one.2, &one.3.agent).cmp(&(other.0, other.1, other.2, &other.3.agent))
        });
        free.into_iter().map(|(.., slot)| slot).collect()
    }

    fn hand_out(&mut self) -> Vec<Order> {
        let free = self.free();
        if free.is_empty() {
            return Vec::new();
        }
        let levels = self.demands();
        let kinds = levels.iter().map(|level| {
            let ranks = free.iter().enumerate().filter_map(|(index, slot)| {
                let rank = self.rank(&slot.spec, &level.want)?;
                takes(slot.owner.as_ref(), level.whose.as_ref()).then_some((rank, index))
            });
            let mut fits: Vec<(usize, usize)> = ranks.collect();
            fits.sort_unstable();
            fits.into_iter().map(|(_, index)| index).collect()
        });
        let places = free.iter().map(|slot| slot.left).collect();
        let mut matching = Matching::new(kinds.collect(), places);
        let kind_of = |ask: &LeaseAsk| levels.iter().position(|level| level.is_of(ask, &levels));
        let mut placed: Vec<(LeaseAsk, usize)> = Vec::new();
        let mut full = vec![false; levels.len()];
        for ask in self.book.waiting() {
            let Some(kind) = kind_of(ask).filter(|kind| !full[*kind]) else { continue };
            if matching.place(kind) {
                placed.push((ask.clone(), kind));
            } else {
                full[kind] = true;
            }
        }
        let mut used: Vec<Vec<u32>> =
            (0..levels.len()).map(|kind| matching.used_by(kind).to_vec()).collect();
        let mut orders = Vec::new();
        for (ask, kind) in placed {
            let Some(index) = used[kind].iter().position(|count| *count > 0) else { continue };
            used[kind][index] -= 1;
            let agent = free[index].agent.clone();
            self.book.stand(&ask.lease, Stand::Sent(agent.clone()));
            orders.push(Order::HandOut { agent, ask: Box::new(ask) });
        }
        orders
    }

    /// Uses that agents on their way will have room for, by the spec they are born with and by whom
    /// they are kept for.
    pub(super) fn coming(&self) -> Vec<Coming> {
        let mut coming: Vec<Coming> = Vec::new();
        let mut add = |spec: &Arc<TemplateSpec>, owner: Option<&Owner>, uses: u32| {
            let same = |other: &&mut Coming| {
                Arc::ptr_eq(&other.spec, spec) && other.owner.as_ref() == owner
            };
            match coming.iter_mut().find(same) {
                Some(known) => known.uses += uses,
                None => coming.push(Coming { spec: spec.clone(), owner: owner.cloned(), uses }),
            }
        };
        for view in self.agents.values() {
            if view.standing == Standing::Coming && !view.going {
                add(&view.spec, view.owner.as_ref(), view.spec.executors.max(1));
            }
        }
        for view in self.templates.values() {
            add(&view.spec, None, view.pending.saturating_mul(view.spec.executors.max(1)));
        }
        coming
    }

    fn start(&mut self) -> Vec<Order> {
        let levels = self.demands();
        if levels.is_empty() {
            return Vec::new();
        }
        let coming = self.coming();
        let fresh: Vec<TemplateId> = self.templates.keys().cloned().collect();
        let kinds: Vec<Vec<usize>> = levels
            .iter()
            .map(|level| {
                let serves = |spec: &Arc<TemplateSpec>| self.serves(spec, &level.want);
                let on_the_way = coming.iter().map(|one| {
                    serves(&one.spec) && takes(one.owner.as_ref(), level.whose.as_ref())
                });
                let begun = self.templates.values().map(|view| serves(&view.spec));
                let fits = on_the_way.chain(begun).enumerate();
                fits.filter(|(_, fits)| *fits).map(|(index, _)| index).collect()
            })
            .collect();
        let mut places: Vec<u32> = coming.iter().map(|one| one.uses).collect();
        places.resize(coming.len() + fresh.len(), 0);
        let mut matching = Matching::new(kinds, places);
        let mut missing: Vec<u32> = (0..levels.len())
            .map(|kind| levels[kind].count - matching.place_many(kind, levels[kind].count))
            .collect();
        let mut starts: BTreeMap<TemplateId, u32> = BTreeMap::new();
        for kind in 0..levels.len() {
            while missing[kind] > 0 {
                let Some(template) = self.choose(&levels[kind].want, &starts) else { break };
                let Some(index) = fresh.iter().position(|other| *other == template) else { break };
                let uses = self.templates.get(&template).map_or(1, |v| v.spec.executors.max(1));
                *starts.entry(template).or_default() += 1;
                matching.widen(coming.len() + index, uses);
                for (other, missing) in missing.iter_mut().enumerate().skip(kind) {
                    *missing -= matching.place_many(other, *missing);
                }
            }
        }
        for (template, count) in &starts {
            if let Some(view) = self.templates.get_mut(template) {
                view.pending += count;
            }
        }
        starts.into_iter().map(|(template, count)| Order::Start { template, count }).collect()
    }

    /// How early a template is tried for a want: as it serves it itself, or for a template that is
    /// tripped or can not be cloned.
    fn rank(&self, spec: &TemplateSpec, want: &Want) -> Option<usize> {
        let fails = |id: &TemplateId| {
            let view = self.templates.get(id);
            view.is_some_and(|view| view.configured && (!view.flowing || view.paused.is_some()))
        };
        self.routing.rank(spec, want).or_else(|| self.routing.fallback(spec, want, fails))
    }

    /// Whether a template serves a want at this moment.
    pub(super) fn serves(&self, spec: &TemplateSpec, want: &Want) -> bool {
        self.rank(spec, want).is_some()
    }

    /// The template to begin one more agent of: the first of its mapping, then the one with the
    /// most room, then one whose breaker flows, then the one least begun in this round, then by name.
    fn choose(&self, want: &Want, starts: &BTreeMap<TemplateId, u32>) -> Option<TemplateId> {
        let candidates = self.templates.iter().filter_map(|(id, view)| {
            let more = starts.get(id).copied().unwrap_or(0);
            let own = view.room.saturating_sub(view.pending + more);
            let of_cloud = |other: &TemplateId| other.cloud == id.cloud;
            let all = self.templates.iter().filter(|(other, _)| of_cloud(other));
            let pending: u32 = all.map(|(_, view)| view.pending).sum();
            let begun: u32 = starts.iter().filter(|(o, _)| of_cloud(o)).map(|(_, n)| *n).sum();
            let cloud = self.clouds.get(&id.cloud).copied().unwrap_or(0);
            let room = own.min(cloud.saturating_sub(pending + begun));
            let rank = self.rank(&view.spec, want)?;
            let fits = view.configured && room > 0;
            // Without a cap all rooms look alike: then what was begun here spreads them.
            // Caps say what may be begun, its cluster what can be: more goes where more fits.
            let room = self.fits.get(id).map_or(room, |fits| {
                let fits = u32::try_from(*fits).unwrap_or(u32::MAX);
                room.min(fits.saturating_sub(view.pending + more))
            });
            fits.then_some((Reverse(rank), room, view.flowing, Reverse(more), Reverse(id)))
        });
        candidates.max().map(|(_, _, _, _, Reverse(id))| id.clone())
    }
}

/// Why no configured template can ever serve a want; none when one can.
fn refusal(want: &Want, configured: &[Arc<TemplateSpec>], routing: &Routing) -> Option<Refusal> {
    let able: Vec<&Arc<TemplateSpec>> =
        configured.iter().filter(|spec| routing.serves(spec, want)).collect();
    let names = |specs: &mut dyn Iterator<Item = &Arc<TemplateSpec>>| {
        specs.map(|spec| format!("`{}`", spec.id)).collect::<Vec<_>>().join(", ")
    };
    if let (Want::Template(name), [_, _, ..]) = (want, able.as_slice()) {
        let which = names(&mut able.iter().copied());
        return Some(Refusal::Conflict(format!(
            "template `{name}` is on several clouds: name one of {which}, or ask by labels"
        )));
    }
    if !able.is_empty() {
        return None;
    }
    let known = match want {
        Want::Template(_) => format!("known templates: {}", names(&mut configured.iter())),
        Want::Labels(labels) if labels.is_empty() => {
            "all templates are in mode EXCLUSIVE: ask by labels or by template".into()
        }
        Want::Labels(_) | Want::Expression(_) => {
            let each = configured.iter().map(|spec| {
                let labels: Vec<&str> = spec.labels.iter().map(String::as_str).collect();
                format!("`{}` has `{}`", spec.id, labels.join(" "))
            });
            format!("known: {}", each.collect::<Vec<_>>().join(", "))
        }
    };
    let known = if configured.is_empty() { "no template is configured".into() } else { known };
    Some(Refusal::Unknown(format!("no template serves {}; {known}", describe(want))))
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
