//! The scheduler's mind: leases, agents and room on one page, and what follows from them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_model::ambient::{Dice, mint_lease};
use drover_model::demand::spec::ShareSpec;
use drover_model::id::{AgentId, CloudId, LeaseId, SourceId, TemplateId};
use drover_model::journal_state::JournalState;
use drover_model::record::{CANCELLED, HoldOwner, LeaseAsk, RELEASED, Want};
use drover_model::size::Size;
use drover_model::spec::{Minimums, TemplateSpec};
use drover_model::state_machine::{StateMachine, Timed as _, Turn};
use drover_model::tenant::{By, LeaseLimits};
use drover_model::time::{Now, WallTime};

use super::agents::Agents;
use super::book::{Asked, Book, Entry, Stand};
use super::refusal::refusal;
use super::routing::{Fit, Routing};
use super::specs::{Servers, SpecId, Specs};
use super::start_backoff::StartBackoff;
use super::uses::SourceView;
use super::{AgentView, Effect, Event};
use crate::message::Refusal;
use crate::template::Pause;

/// A template as the scheduler sees it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TemplateView {
    pub(super) spec: Arc<TemplateSpec>,
    /// Which of the specs in use that is.
    pub(super) kind: SpecId,
    pub(super) configured: bool,
    pub(super) flowing: bool,
    pub(super) tripped: Option<(WallTime, String)>,
    pub(super) paused: Option<Pause>,
    pub(super) live: u32,
    pub(super) room: u32,
    pub(super) lack: Option<String>,
    pub(super) kept: Minimums,
    /// Starts asked for and not answered, by the size of their agents.
    pub(super) starts: BTreeMap<Size, u32>,
    /// Sizes of agents for which there was no place, and why; they are tried again later.
    pub(super) unplaced: BTreeMap<Size, String>,
}

impl TemplateView {
    /// Starts asked for and not answered.
    pub(super) fn pending(&self) -> u32 {
        self.starts.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// So many starts of this size are answered.
    pub(super) fn answered(&mut self, size: Size, count: u32) {
        if let Some(starts) = self.starts.get_mut(&size) {
            *starts = starts.saturating_sub(count);
            if *starts == 0 {
                self.starts.remove(&size);
            }
        }
    }

    /// Whether others may stand in for it.
    pub(super) fn fails(&self) -> bool {
        self.configured && (!self.flowing || self.paused.is_some())
    }
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
    /// How many more agents of a template and a size its cluster has room for, where that is known.
    pub(super) fits: BTreeMap<(TemplateId, Size), u64>,
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
    /// Counts the agents as they got free.
    pub(super) clock: u64,
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
            let (status, spec) = (Arc::new(entry.status()), Arc::new((*entry.spec).clone()));
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
    fn bar(&mut self, agent: &AgentId, barred: bool) {
        if barred {
            self.barred.insert(agent.clone());
        } else {
            self.barred.remove(agent);
        }
    }

    /// Looks whether the wall clock was set, before anything is done at that time.
    fn at(&mut self, now: Now) {
        let zero = *self.zero.get_or_insert_with(|| now.zero());
        if let Some(by_ms) = now.set_by(zero) {
            self.book.clock_set(by_ms);
            self.agents.clock_set(by_ms);
            self.zero = Some(now.zero());
        }
    }

    /// Takes label mappings into force.
    fn route(&mut self, routing: Routing) {
        self.routing = routing;
        self.specs.changed();
    }

    #[cfg(test)]
    fn look_at_all(&mut self) {
        self.looks_at_all = true;
    }

    /// Whether it stops.
    pub fn stopping(&self) -> bool {
        self.stopping
    }

    /// What becomes of an ask: it is known already, refused, or new. A new one is entered by
    /// [`Event::Asked`].
    pub fn admission(&self, ask: &LeaseAsk, configured: &[Arc<TemplateSpec>]) -> Asked {
        if let Some(known) = self.book.known(ask) {
            return known;
        }
        if let Some(refusal) = refusal(&ask.want, configured, &self.routing) {
            return Asked::Refused(refusal);
        }
        self.beyond(ask, configured).map_or(Asked::New, Asked::Refused)
    }

    /// Whether a lease stands there: the journal's answer counts for the stand that asked for it.
    fn is_at(&self, lease: &LeaseId, stand: &Stand) -> bool {
        self.book.get(lease).is_some_and(|entry| entry.stand == *stand)
    }

    fn asked(&mut self, ask: &LeaseAsk) {
        self.book.prune(ask.asked);
        if self.book.known(ask).is_none() {
            self.book.open(ask);
        }
    }

    /// An ask is durable, or could not be made so.
    fn recorded(&mut self, lease: &LeaseId, durable: bool) {
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

    /// Whether all leases on an agent are theirs, those of sources too, which are the admins'.
    ///
    /// # Errors
    /// Forbidden where one is another's.
    pub fn has_machine(&self, agent: &AgentId, by: &By) -> Result<(), Refusal> {
        for (lease, _) in self.book.at(agent) {
            if self.book.of_source(&lease).is_none() {
                self.theirs(&lease, by)?;
            } else if !by.all {
                return Err(Refusal::Forbidden(format!(
                    "agent `{agent}` runs jobs of a CI system: only an admin may do this"
                )));
            }
        }
        Ok(())
    }

    /// Whether a lease is on an agent, or on its way there.
    pub fn any_on(&self, agent: &AgentId) -> bool {
        !self.book.at(agent).is_empty()
    }

    /// Whether a lease serves a source of jobs.
    pub fn is_sources(&self, lease: &LeaseId) -> bool {
        self.book.of_source(lease).is_some()
    }

    /// The agent that a lease is on, where it is theirs.
    ///
    /// # Errors
    /// Unknown, forbidden where it is another's, and a conflict where it is on none.
    pub fn agent_of(&self, lease: &LeaseId, by: &By) -> Result<AgentId, Refusal> {
        match &self.theirs(lease, by)?.stand {
            Stand::Recording => Err(Refusal::Unknown(format!("no lease `{lease}` is known"))),
            Stand::Sent(agent) | Stand::On(agent) => Ok(agent.clone()),
            Stand::Waiting | Stand::Cancelling => {
                Err(Refusal::Conflict(format!("lease `{lease}` waits and has no machine yet")))
            }
            Stand::Ended(_) => {
                Err(Refusal::Conflict(format!("lease `{lease}` is over and has no machine")))
            }
        }
    }

    /// Whether a lease is over already, where they may end it.
    ///
    /// # Errors
    /// Unknown, or forbidden where it is another's.
    pub fn releasable(&self, lease: &LeaseId, by: &By) -> Result<bool, Refusal> {
        match self.theirs(lease, by)?.stand {
            Stand::Recording => Err(Refusal::Unknown(format!("no lease `{lease}` is known"))),
            Stand::Ended(_) => Ok(true),
            Stand::Cancelling | Stand::Waiting | Stand::Sent(_) | Stand::On(_) => Ok(false),
        }
    }

    fn release(&mut self, lease: &LeaseId) -> Vec<Effect> {
        match self.book.get(lease).map(|entry| entry.stand.clone()) {
            None | Some(Stand::Recording | Stand::Ended(_) | Stand::Cancelling) => Vec::new(),
            Some(Stand::Waiting) => {
                self.book.stand(lease, Stand::Cancelling);
                vec![Effect::Cancel { lease: lease.clone(), why: CANCELLED }]
            }
            Some(Stand::Sent(_)) => {
                self.book.releasing(lease);
                Vec::new()
            }
            Some(Stand::On(agent)) => {
                self.book.releasing(lease);
                vec![Effect::End { agent, lease: lease.clone(), why: RELEASED }]
            }
        }
    }

    /// The end of a lease that was never granted is durable, or could not be made so.
    fn cancelled(&mut self, lease: &LeaseId, durable: bool, now: WallTime) {
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
                "lease `{lease}` is still waiting: it has no time to renew yet"
            ))),
            Stand::On(_) | Stand::Cancelling | Stand::Ended(_) => {
                Err(Refusal::Conflict(format!("lease `{lease}` is over")))
            }
        }
    }

    /// Agents a cloud has room for, beside its templates' own room.
    fn cloud(&mut self, cloud: &CloudId, room: u32) {
        self.clouds.insert(cloud.clone(), room);
    }

    /// A start was not passed on to the template: it is not in flight.
    fn not_started(&mut self, template: &TemplateId, size: Size, count: u32) {
        if let Some(view) = self.templates.get_mut(template) {
            view.answered(size, count);
        }
    }

    /// How a template serves a want: by itself, or for a template that is tripped or cannot be cloned.
    pub(super) fn fit(&self, spec: &TemplateSpec, want: &Want) -> Option<Fit> {
        let fails = |id: &TemplateId| self.fails(id);
        self.routing.fit(spec, want).or_else(|| self.routing.fallback(spec, want, fails))
    }

    fn fails(&self, template: &TemplateId) -> bool {
        self.templates.get(template).is_some_and(TemplateView::fails)
    }

    /// What serves a want at this moment.
    pub(super) fn servers(&self, want: &Want) -> Servers {
        let starts = |kind| self.template_of(kind).is_some();
        self.specs.servers(want, &self.routing, |id| self.fails(id), starts)
    }

    /// The template whose spec this is at this moment, and not only that of agents born earlier.
    pub(super) fn template_of(&self, kind: SpecId) -> Option<(&TemplateId, &TemplateView)> {
        let own = self.templates.get_key_value(&self.specs.get(kind)?.id);
        own.filter(|(_, view)| view.kind == kind)
    }

    /// Whether a template serves a want at this moment.
    pub(super) fn serves(&self, spec: &TemplateSpec, want: &Want) -> bool {
        self.fit(spec, want).is_some()
    }
}

impl StateMachine for Scheduler {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, event: Event, now: Now, turn: &mut Turn<Effect>) {
        if event.needs_time() {
            self.at(now);
        }
        match event {
            Event::Limits(limits) => self.limit(limits),
            Event::Routing(routing) => self.route(routing),
            Event::Shares(asked, sources) => self.shares(asked, sources.into_iter()),
            Event::Fits(fits) => self.fits = fits,
            Event::Restrained(agents) => self.restrained = agents,
            Event::Barred(agent, barred) => self.bar(&agent, barred),
            Event::Held(held) => self.held = held,
            Event::Asked(ask) => self.asked(&ask),
            Event::Recorded(lease, durable) => {
                if self.is_at(&lease, &Stand::Recording) {
                    self.recorded(&lease, durable);
                }
            }
            Event::Release(lease) => turn.effects.extend(self.release(&lease)),
            Event::Cancelled(lease, durable) => {
                if self.is_at(&lease, &Stand::Cancelling) {
                    self.cancelled(&lease, durable, now.wall);
                }
            }
            Event::Room(cloud, room) => self.cloud(&cloud, room),
            Event::CloudGone(cloud) => drop(self.clouds.remove(&cloud)),
            Event::News(news) => turn.effects.extend(self.news(&news, now.wall)),
            Event::NotStarted(template, size, count) => {
                self.not_started(&template, size, count);
            }
            Event::Wanted(source, levels, jobs) => {
                self.demanded(&source, levels, jobs.into_iter());
            }
            Event::RunnerDone(lease, why) => turn.effects.extend(self.stop_runner(&lease, why)),
            Event::Decide => {
                let mut dice = Dice::from_number(turn.draw);
                turn.effects.extend(self.waited(now.wall));
                let decided = self.decide(now.wall, &mut || mint_lease(|| dice.draw()));
                turn.effects.extend(decided);
            }
            Event::Stop => self.stopping = true,
        }
    }
}

#[cfg(test)]
mod tests;
