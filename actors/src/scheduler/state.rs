//! The scheduler's mind: leases, agents and room on one page, and what follows from them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_model::demand::spec::ShareSpec;
use drover_model::id::{AgentId, CloudId, LeaseId, SourceId, TemplateId};
use drover_model::journal_state::JournalState;
use drover_model::record::{HoldOwner, LeaseAsk, RELEASED, Want};
use drover_model::spec::{Minimums, TemplateSpec};
use drover_model::status::{AgentStatus, Standing};
use drover_model::tenant::{By, LeaseLimits};
use drover_model::time::{Now, WallTime};

use super::agents::Agents;
use super::book::{Asked, Book, Entry, Stand};
use super::routing::Routing;
use super::specs::{Servers, SpecId, Specs};
use super::start_backoff::StartBackoff;
use super::uses::SourceView;
use super::{AgentView, Order, describe};
use crate::message::Refusal;
use crate::template::{AgentLevel, TemplateNews};

/// How often a lease may lose its agent before it is ready.
const RETURNS: u32 = 3;

/// A template as the scheduler sees it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TemplateView {
    pub(super) spec: Arc<TemplateSpec>,
    /// Which of the specs in use that is.
    pub(super) kind: SpecId,
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

impl TemplateView {
    /// Whether others may stand in for it.
    fn fails(&self) -> bool {
        self.configured && (!self.flowing || self.paused.is_some())
    }
}

fn fails(news: &TemplateNews) -> bool {
    news.configured && (!news.flowing || news.paused.is_some())
}

/// All demand and all capacity.
#[derive(Debug, Clone, Default)]
pub struct Scheduler {
    pub(super) book: Book,
    pub(super) clouds: BTreeMap<CloudId, u32>,
    pub(super) templates: BTreeMap<TemplateId, TemplateView>,
    pub(super) agents: Agents,
    /// The specs of templates and agents.
    pub(super) specs: Specs,
    pub(super) routing: Routing,
    /// How many uses of each want were given up, for which agents may have been started.
    pub(super) given_up: BTreeMap<Want, u32>,
    /// Configured sources of demand, with what they want.
    pub(super) sources: BTreeMap<SourceId, SourceView>,
    /// The share of anyone who asks for leases themselves.
    pub(super) asked: ShareSpec,
    /// How many more agents of a template its cluster has room for, where that is known.
    pub(super) fits: BTreeMap<TemplateId, u64>,
    /// How long things take.
    pub(super) start_backoff: StartBackoff,
    /// What bounds leases.
    pub(super) limits: LeaseLimits,
    /// Agents that somebody holds, and who.
    pub(super) held: BTreeMap<AgentId, HoldOwner>,
    /// Agents that nobody is let onto for the moment.
    pub(super) barred: BTreeSet<AgentId>,
    /// Agents that another drover may have handed out.
    pub(super) restrained: BTreeSet<AgentId>,
    clock: u64,
    /// How the wall clock went when it was looked at last.
    zero: Option<WallTime>,
    stopping: bool,
    /// Whether it looks at all leases that wait, however many it may serve.
    #[cfg(test)]
    pub(super) looks_at_all: bool,
}

impl Scheduler {
    /// A scheduler over the leases and agents the journal knows; until they report, agents without
    /// leases count as on their way.
    pub fn restore(journal_state: &JournalState) -> Self {
        let mut scheduler = Self { book: Book::restore(journal_state), ..Self::default() };
        for (agent, entry) in &journal_state.agents {
            let (status, spec) = (AgentStatus::of(entry), Arc::new((*entry.spec).clone()));
            let kind = scheduler.specs.enter(&spec);
            let spec = scheduler.specs.get(kind).cloned().unwrap_or(spec);
            let (queued, going, order, started) = (false, false, 0, None);
            let view = AgentView { spec, kind, status, queued, going, order, started };
            scheduler.agents.insert(agent.clone(), view);
        }
        scheduler
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

    /// What the leases that wait want, each once.
    pub fn wants(&self) -> impl Iterator<Item = &Want> {
        self.book.wants()
    }

    /// The leases that wait for this, the oldest first.
    pub fn waiting_for(&self, want: &Want) -> impl Iterator<Item = &LeaseAsk> {
        self.book.waiting_for(want)
    }

    /// How many leases wait.
    pub fn queued(&self) -> usize {
        self.book.queued()
    }

    /// Leases that began to wait since this was asked last.
    pub fn take_fresh(&mut self) -> Vec<LeaseId> {
        self.book.take_fresh()
    }

    /// Lets nobody onto an agent while something is written down that would be theirs to know of, or
    /// lets them again.
    pub fn bar(&mut self, agent: &AgentId, barred: bool) {
        if barred {
            self.barred.insert(agent.clone());
        } else {
            self.barred.remove(agent);
        }
    }

    /// Lets nobody onto agents that another drover may have handed out.
    pub fn restrain(&mut self, agents: BTreeSet<AgentId>) {
        self.restrained = agents;
    }

    /// Looks whether the wall clock was set, before anything is done at that time.
    pub fn at(&mut self, now: Now) {
        let zero = *self.zero.get_or_insert_with(|| now.zero());
        if let Some(by_ms) = now.set_by(zero) {
            self.book.clock_set(by_ms);
            self.agents.clock_set(by_ms);
            self.zero = Some(now.zero());
        }
    }

    /// Takes label mappings into force.
    pub fn route(&mut self, routing: Routing) {
        self.routing = routing;
        self.specs.changed();
    }

    /// How many more agents of templates their clusters have room for.
    pub fn fits(&mut self, fits: BTreeMap<TemplateId, u64>) {
        self.fits = fits;
    }

    #[cfg(test)]
    fn look_at_all(&mut self) {
        self.looks_at_all = true;
    }

    /// Nothing is handed out or started any more.
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
        if let Some(refusal) = self.beyond(ask, configured) {
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

    /// A lease, if it is theirs.
    ///
    /// # Errors
    /// Unknown, or forbidden where it is another's.
    pub fn theirs(&self, lease: &LeaseId, by: &By) -> Result<&Entry, Refusal> {
        let unknown = || Refusal::Unknown(format!("no lease `{lease}` is known"));
        let entry = self.book.get(lease).ok_or_else(unknown)?;
        if by.may(&entry.ask) {
            return Ok(entry);
        }
        // Of one that is not on the disk nobody else knows.
        if entry.stand == Stand::Recording {
            return Err(unknown());
        }
        Err(Refusal::Forbidden(format!(
            "lease `{lease}` is not of `{}` nor of its group: its own principal or an admin may \
             do this",
            by.principal
        )))
    }

    /// Whether all leases on an agent are theirs, those of sources of jobs left out.
    ///
    /// # Errors
    /// Forbidden where one is another's.
    pub fn theirs_on(&self, agent: &AgentId, by: &By) -> Result<(), Refusal> {
        for (lease, _) in self.book.at(agent) {
            if self.book.of_source(&lease).is_none() {
                self.theirs(&lease, by)?;
            }
        }
        Ok(())
    }

    /// A lease is to end. Gives what must be done, and whether it is over already.
    pub fn release(&mut self, lease: &LeaseId, by: &By) -> Result<(Vec<Order>, bool), Refusal> {
        let entry = self.theirs(lease, by)?;
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
                Ok((vec![Order::End { agent, lease: lease.clone(), why: RELEASED }], false))
            }
        }
    }

    /// The end of a lease that was never granted is durable, or could not be made so.
    pub fn cancelled(&mut self, lease: &LeaseId, durable: bool, now: WallTime) {
        if let Some(entry) = self.book.get(lease).filter(|_| durable) {
            *self.given_up.entry(entry.ask.want.clone()).or_default() += 1;
        }
        if durable {
            self.book.end(lease, now);
        } else {
            self.waits_on(lease, now);
        }
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
        let kind = self.specs.enter(&news.spec);
        let known = self.templates.contains_key(&news.template);
        let view = self.templates.entry(news.template.clone()).or_insert_with(|| TemplateView {
            spec: news.spec.clone(),
            kind,
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
        if known {
            self.specs.leave(std::mem::replace(&mut view.kind, kind));
        }
        if !known || view.fails() != fails(news) {
            self.specs.changed();
        }
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
            let free = matches!(level.status.standing, Standing::Free { .. });
            let earlier = self.agents.get(&level.agent);
            let was = earlier.filter(|view| matches!(view.status.standing, Standing::Free { .. }));
            let order = was.map_or(self.clock + 1, |view| view.order);
            self.clock += u64::from(free && was.is_none());
            let coming = level.status.standing == Standing::Coming;
            let started = earlier.map_or(coming.then_some(now), |view| view.started);
            if let Some(started) = started.filter(|_| free) {
                self.start_backoff.ready(&level.spec.id, now - started);
            }
            let kind = self.specs.enter(&level.spec);
            let view = AgentView {
                spec: self.specs.get(kind).unwrap_or(&level.spec).clone(),
                kind,
                status: level.status.clone(),
                queued: level.queued,
                going: level.going,
                order,
                started: started.filter(|_| coming),
            };
            if let Some(before) = self.agents.insert(level.agent.clone(), view) {
                self.specs.leave(before.kind);
            }
        }
        for level in &news.gone {
            if let Some(before) = self.agents.remove(&level.agent) {
                self.specs.leave(before.kind);
            }
            orders.extend(self.follow(level, now));
        }
        if news.empty && !news.configured {
            if let Some(view) = self.templates.remove(&news.template) {
                self.specs.leave(view.kind);
                self.specs.changed();
            }
            self.start_backoff.forget(&news.template);
        }
        orders
    }

    /// Compares the leases an agent reports with the book.
    fn follow(&mut self, level: &AgentLevel, now: WallTime) -> Vec<Order> {
        let agent = &level.agent;
        let mut orders = Vec::new();
        let leaves = matches!(level.status.standing, Standing::Leaving | Standing::Gone);
        for (lease, stand) in self.book.at(agent) {
            let there = level.status.leases.contains(&lease);
            let back = level.refused.contains(&lease);
            let refused = leaves || back;
            let releasing = self.book.get(&lease).is_some_and(|entry| entry.releasing);
            match stand {
                Stand::Sent(_) if there => {
                    self.book.stand(&lease, Stand::On(agent.clone()));
                    if releasing {
                        let why = self.book.ending(&lease);
                        orders.push(Order::End { agent: agent.clone(), lease, why });
                    }
                }
                Stand::On(_) | Stand::Sent(_) if level.over.contains(&lease) && !there => {
                    if leaves && !releasing {
                        self.leave_to_next_look(&lease);
                    }
                    self.start_backoff.used(&level.spec.id, self.book.lasted(&lease, now));
                    self.book.end(&lease, now);
                    orders.push(Order::Over { lease });
                }
                Stand::Sent(_) if refused => {
                    if releasing {
                        self.book.stand(&lease, Stand::Cancelling);
                        orders.push(Order::Cancel { lease, why: "cancelled" });
                    } else if self.book.of_source(&lease).is_some() {
                        // Its source wants another as long as its job waits.
                        self.book.forget(&lease);
                    } else {
                        self.book.stand(&lease, Stand::Waiting);
                    }
                }
                Stand::On(_) if !there && back => {
                    orders.push(self.returned(lease, releasing));
                }
                Stand::On(_) if !there => {
                    if leaves && !releasing {
                        self.leave_to_next_look(&lease);
                    }
                    self.start_backoff.used(&level.spec.id, self.book.lasted(&lease, now));
                    self.book.end(&lease, now);
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
        if let Some(source) = self.book.of_source(&lease) {
            self.book.forget(&lease);
            // It says again what it wants, which is nothing for a while: no machine is started before.
            self.demanded(&source, Vec::new(), std::iter::empty());
            return Order::NotServed { source, lease };
        }
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
    pub fn not_started(&mut self, template: &TemplateId, count: u32) {
        if let Some(view) = self.templates.get_mut(template) {
            view.pending = view.pending.saturating_sub(count);
        }
    }

    /// How early a template is tried for a want: as it serves it itself, or for a template that is
    /// tripped or cannot be cloned.
    pub(super) fn rank(&self, spec: &TemplateSpec, want: &Want) -> Option<usize> {
        let fails = |id: &TemplateId| self.fails(id);
        self.routing.rank(spec, want).or_else(|| self.routing.fallback(spec, want, fails))
    }

    fn fails(&self, template: &TemplateId) -> bool {
        self.templates.get(template).is_some_and(TemplateView::fails)
    }

    /// The specs of templates and agents that serve a want at this moment.
    pub(super) fn servers(&self, want: &Want) -> Servers {
        self.specs.servers(want, &self.routing, |id| self.fails(id))
    }

    /// The template whose spec this is at this moment, and not only that of agents born earlier.
    pub(super) fn template_of(&self, kind: SpecId) -> Option<(&TemplateId, &TemplateView)> {
        let own = self.templates.get_key_value(&self.specs.get(kind)?.id);
        own.filter(|(_, view)| view.kind == kind)
    }

    /// Whether a template serves a want at this moment.
    pub(super) fn serves(&self, spec: &TemplateSpec, want: &Want) -> bool {
        self.rank(spec, want).is_some()
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
