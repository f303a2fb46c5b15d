//! The template's mind: which of its agents hold permits, what may be started, who goes, and what
//! the levels above must know. Pure; the body carries the effects out.

pub(super) mod renew;
mod sources;
mod warm;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drover_model::fact::What;
use drover_model::fault::{Culprit, Fault};
use drover_model::id::{AgentId, LeaseId};
use drover_model::journal_state::AgentEntry;
use drover_model::phase::{AgentPhase, BreakerPhase};
use drover_model::record::{Body, Reason};
use drover_model::scope::Scope;
use drover_model::spec::{Minimums, TemplateSpec};
use drover_model::status::{AgentStatus, Standing};
use drover_model::time::{Moment, Now};

use super::held::Held;
use super::pace::Pace;
use super::schedule_window::ScheduleWindow;
use super::{AgentLevel, TemplateNews, permits};
use crate::addresses::Supply;
use crate::breaker::Breaker;
use crate::message::{AgentCommand, AgentReport};
use crate::roster::Living;

/// How long an agent that was reaped before it was ready is left to anyone who waits for it.
const OFFERED: Duration = Duration::from_secs(1);

/// What the body is to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Start an agent's actor; a permit is already held for it.
    Spawn(AgentId),
    /// Send an agent a command.
    Lines(AgentId, AgentCommand),
    /// Append to the journal.
    Record(Body),
    /// Have the cloud look at itself: an agent's fault names it.
    SuspectCloud(Fault),
    /// An agent failed by the fault of a node, a storage or a cloud.
    Charge(AgentId, Fault),
    /// An agent got ready: the node, storages and cloud it made use of work.
    Proven(AgentId),
}

impl Effect {
    /// The agent it starts, if it starts one.
    pub fn spawned(&self) -> Option<&AgentId> {
        match self {
            Self::Spawn(agent) => Some(agent),
            Self::Lines(..)
            | Self::Record(_)
            | Self::SuspectCloud(_)
            | Self::Charge(..)
            | Self::Proven(_) => None,
        }
    }
}

/// What the levels above were told last: slots, room, whether it is configured, what it keeps, why it
/// pauses and why there is no address, and its spec.
type Level = (u32, u32, bool, Minimums, (Option<String>, Option<String>), Arc<TemplateSpec>);

/// A template and its agents.
#[derive(Debug, Clone)]
pub struct TemplateMind {
    spec: Arc<TemplateSpec>,
    configured: bool,
    open: bool,
    stopping: bool,
    agents: BTreeMap<AgentId, Held>,
    breaker: Breaker,
    pace: Pace,
    /// What was in the way when an agent came to nothing through nobody's fault.
    obstacle: Option<String>,
    /// What agents are cloned from, or why nothing can be.
    source: Option<Result<String, String>>,
    /// How many agents more can have addresses.
    supply: Supply,
    /// What is kept at this time; none before the calendar was looked at.
    schedule_window: Option<ScheduleWindow>,
    /// When the calendar must be looked at again.
    turns: Option<Moment>,
    changed: BTreeSet<AgentId>,
    gone: Vec<AgentLevel>,
    released: u32,
    answered: u32,
    reported: Option<Level>,
}

impl TemplateMind {
    /// A template without agents; not `configured` when only its agents are left of it.
    pub fn new(spec: Arc<TemplateSpec>, configured: bool, breaker: Breaker) -> Self {
        Self {
            spec,
            configured,
            open: false,
            stopping: false,
            agents: BTreeMap::new(),
            breaker,
            pace: Pace::default(),
            obstacle: None,
            source: None,
            supply: Supply::endless(),
            schedule_window: None,
            turns: None,
            changed: BTreeSet::new(),
            gone: Vec::new(),
            released: 0,
            answered: 0,
            reported: None,
        }
    }

    /// The spec new agents are born with.
    pub fn spec(&self) -> &Arc<TemplateSpec> {
        &self.spec
    }

    /// The breaker.
    pub fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Its cluster is known: agents can be started.
    pub fn opened(&mut self) {
        self.open = true;
    }

    /// How many agents more can have addresses.
    pub fn supplied(&mut self, supply: Supply) {
        self.supply = supply;
    }

    /// The service stops: nothing is started any more.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Takes an agent over that lived before.
    pub fn adopt(&mut self, agent: &AgentId, entry: &AgentEntry, now: Now) {
        if entry.is_unproven() {
            self.breaker.started(agent, now.mono);
        }
        self.agents.insert(agent.clone(), Held::adopted(agent, entry, now));
        self.changed.insert(agent.clone());
    }

    /// Takes an agent over after this actor was started again.
    pub fn recall(&mut self, agent: &AgentId, living: &Living, now: Now) {
        let held = Held::recalled(agent, living, now);
        self.agents.insert(agent.clone(), held);
        self.changed.insert(agent.clone());
    }

    /// Reservations and asked starts that came to nothing because this actor was started again.
    pub fn owes(&mut self, reserved: u32, asked: u32) {
        self.released += reserved;
        self.answered += asked;
    }

    /// What happened to agents while nobody could be told, because this actor was started again.
    pub fn missed(&mut self, gone: &[AgentId], refused: &[(AgentId, LeaseId)]) {
        let given_back = |agent: &AgentId| {
            let of = refused.iter().filter(move |(other, _)| other == agent);
            of.map(|(_, lease)| lease.clone()).collect()
        };
        self.gone.extend(gone.iter().map(|agent| AgentLevel {
            agent: agent.clone(),
            spec: self.spec.clone(),
            status: AgentStatus::new(AgentPhase::Gone, Standing::Gone),
            queued: false,
            refused: given_back(agent),
            over: Vec::new(),
            going: true,
        }));
        for (agent, lease) in refused {
            if let Some(held) = self.agents.get_mut(agent) {
                held.refused.push(lease.clone());
            }
        }
    }

    /// A spec comes into force; none when the template left the configuration.
    ///
    /// A spec of which other agents are made lets a tripped breaker flow: what failed was another
    /// version.
    pub fn apply(&mut self, spec: Option<Arc<TemplateSpec>>, now: Now) -> Vec<Effect> {
        let Some(spec) = spec else {
            self.configured = false;
            return Vec::new();
        };
        let repaired = self.spec.version() != spec.version() && self.breaker.succeeded();
        if self.spec.version() != spec.version() {
            // What kept the old one from beginning agents may not keep this one.
            self.source = None;
            self.obstacle = None;
            self.pace = Pace::default();
        }
        self.configured = true;
        self.spec = spec;
        self.schedule_window = None;
        if repaired { vec![self.record(now)] } else { Vec::new() }
    }

    fn record(&self, now: Now) -> Effect {
        Effect::Record(self.breaker.record(&self.spec.id, self.spec.version(), now.wall))
    }

    /// Slots held.
    pub fn live(&self) -> u32 {
        permits::slots(self.agents.values().map(|held| held.status.standing))
    }

    /// Whether agents are started at this moment, where there is room for them.
    fn begins(&self, now: Moment) -> bool {
        let closed = !self.open || !self.configured || self.stopping;
        !closed && self.pace.pause(now).is_none() && !matches!(self.source, Some(Err(_)))
    }

    /// How many agents may be started at this moment, as far as the template knows.
    pub fn room(&self, now: Moment) -> u32 {
        if !self.begins(now) {
            return 0;
        }
        let room = permits::room(self.spec.cap, self.live()).min(self.breaker.allowance(now));
        room.min(self.supply.free)
    }

    /// Begins agents under a reservation of the cloud: for demand as many as reserved, for the
    /// warm pool as many as are still needed. What is not used of the reservation goes back.
    pub fn begin(
        &mut self,
        reserved: u32,
        asked: Option<u32>,
        draw: &mut dyn FnMut() -> AgentId,
        now: Now,
    ) -> Vec<Effect> {
        let wanted = if asked.is_some() { reserved } else { self.warm_need(now.mono) };
        let count = wanted.min(reserved).min(self.room(now.mono));
        self.released += reserved;
        self.answered += asked.unwrap_or(0);
        (0..count)
            .map(|_| {
                let agent = draw();
                self.breaker.started(&agent, now.mono);
                let held = Held::started(&agent, self.spec.clone(), now.wall, now);
                self.agents.insert(agent.clone(), held);
                self.changed.insert(agent.clone());
                Effect::Spawn(agent)
            })
            .collect()
    }

    /// Begins agents under a reservation of the cloud because an operator says so; what is not used
    /// of it goes back.
    pub fn provision(
        &mut self,
        reserved: u32,
        trial: bool,
        draw: &mut dyn FnMut() -> AgentId,
        now: Now,
    ) -> Vec<Effect> {
        let effects = self.begin(reserved, Some(0), draw, now);
        for agent in effects.iter().filter_map(Effect::spawned) {
            if let Some(held) = self.agents.get_mut(agent) {
                held.wanted = true;
                if trial {
                    held.spec = Arc::new(held.spec.on_trial());
                }
            }
        }
        effects
    }

    /// Why nothing more may be started at this moment, in words for people.
    pub fn shortage(&self, now: Moment) -> String {
        let id = &self.spec.id;
        let full = self.spec.cap.filter(|cap| self.live() >= *cap);
        match (full, self.breaker.tripped()) {
            _ if self.stopping => "the service is stopping".into(),
            _ if !self.configured => format!("template {id} is not configured any more"),
            _ if !self.open => format!("cloud {}: its cluster is not known yet", id.cloud),
            (Some(cap), _) => format!("{id} is full: {} of {cap}", self.live()),
            (None, Some((until, cause))) => {
                format!("{id}: breaker tripped until {}: {cause}", until.rfc3339())
            }
            (None, None) if matches!(self.source, Some(Err(_))) => {
                format!("{id} pauses: {}", self.paused(now).unwrap_or_default())
            }
            (None, None) if self.supply.lack.is_some() => {
                format!("{id}: {}", self.supply.lack.as_deref().unwrap_or_default())
            }
            (None, None) if self.breaker.allowance(now) <= 1 => {
                format!("{id}: its breaker lets a single agent try first")
            }
            (None, None) => match self.paused(now) {
                Some(why) => format!("{id} pauses, for it could not begin agents: {why}"),
                None => format!("{id} pauses, for it could not begin agents"),
            },
        }
    }

    /// An agent's status changed.
    pub fn report(&mut self, report: &AgentReport, now: Now) -> Vec<Effect> {
        let Some(held) = self.agents.get_mut(&report.agent) else { return Vec::new() };
        let before = std::mem::replace(&mut held.status, report.status.clone());
        let (was, was_ready, status) = (before.standing, held.was_ready, &report.status);
        let placed = before.phase != AgentPhase::Queued;
        // Stranded, it heard nothing of what it was told; mended, it is one like any other.
        held.going &= was != Standing::Leaving || !lives(status.standing);
        let ended = before.leases.into_iter().filter(|lease| !status.leases.contains(lease));
        held.over.extend(ended.filter(|lease| !report.refused.contains(lease)));
        held.reaped.take_if(|_| !status.leases.is_empty());
        held.refused.extend(report.refused.clone());
        held.idle_since = if status.is_idle() { held.idle_since.or(Some(now.mono)) } else { None };
        self.changed.insert(report.agent.clone());

        let mut effects = Vec::new();
        match status.standing {
            Standing::Free { .. } | Standing::Busy
                if !was_ready && !status.phase.is_busy_unproven() =>
            {
                held.was_ready = true;
                self.pace.succeeded();
                self.obstacle = None;
                effects.push(Effect::Proven(report.agent.clone()));
                if self.breaker.succeeded() {
                    effects.push(self.record(now));
                }
            }
            // Held instead of destroyed: what it was held for counts all the same.
            Standing::Busy | Standing::Leaving | Standing::Gone
                if !was_ready
                    && status.phase != AgentPhase::InDoubt
                    && matches!(was, Standing::Coming | Standing::Parked) =>
            {
                effects.extend(self.charge(&report.agent, report.fault.as_ref(), placed, now));
            }
            Standing::Coming
            | Standing::Free { .. }
            | Standing::Busy
            | Standing::Leaving
            | Standing::Parked
            | Standing::Gone => effects.extend(suspect(report.fault.as_ref())),
        }
        // A trial that was called off is one until its clone is over.
        if status.standing == Standing::Leaving && !status.phase.is_cloning() {
            self.breaker.left(&report.agent);
        }
        let returned = was == Standing::Parked && permits::holds_slot(status.standing);
        if status.standing == Standing::Gone {
            let held = self.agents.remove(&report.agent);
            self.changed.remove(&report.agent);
            self.breaker.left(&report.agent);
            self.gone.extend(held.map(|mut held| held.level(report.agent.clone())));
        } else if returned && self.spec.cap.is_some_and(|cap| self.live() > cap) {
            effects.extend(self.report_to_go(&report.agent, Reason::ReturnedFromPark));
        }
        effects
    }

    /// An agent ended before it was ready: the breaker's, the pace's or nobody's matter.
    fn charge(
        &mut self,
        agent: &AgentId,
        fault: Option<&Fault>,
        placed: bool,
        now: Now,
    ) -> Vec<Effect> {
        let Some(fault) = fault else { return Vec::new() };
        let mut effects = Vec::new();
        if Scope::is_charged(fault) {
            self.stumbled(agent, fault, placed, now);
            effects.push(Effect::Charge(agent.clone(), fault.clone()));
        } else if matches!(fault.culprit, Culprit::Source(_)) {
            // Its machines are not to blame for what a CI system does.
        } else if fault.kind.counts_against_breaker() {
            if self.breaker.failed(agent, &fault.text, &self.spec.breaker, now) {
                effects.push(self.record(now));
            }
        } else {
            self.stumbled(agent, fault, placed, now);
        }
        effects.extend(suspect(Some(fault)));
        effects
    }

    /// An agent came to nothing by no fault of its template.
    fn stumbled(&mut self, agent: &AgentId, fault: &Fault, placed: bool, now: Now) {
        self.breaker.left(agent);
        self.pace.stumbled(placed, now.mono);
        self.obstacle = Some(fault.text.clone());
    }

    fn report_to_go(&mut self, agent: &AgentId, reason: Reason) -> Option<Effect> {
        let held = self.agents.get_mut(agent).filter(|held| !held.going)?;
        held.going = true;
        self.changed.insert(agent.clone());
        let command = match held.status.standing {
            Standing::Busy | Standing::Free { idle: false, .. } => AgentCommand::Drain(reason),
            Standing::Coming
            | Standing::Free { idle: true, .. }
            | Standing::Leaving
            | Standing::Parked
            | Standing::Gone => AgentCommand::Retire(reason),
        };
        Some(Effect::Lines(agent.clone(), command))
    }

    /// How long an agent may be idle; none for as long as it likes.
    fn idle_limit(&self, agent: &AgentId) -> Option<Duration> {
        let held = self.agents.get(agent)?;
        held.status.overrides.idle(&held.spec)
    }

    /// Lets everything idle go; with `all` the warm minimum too, and what is coming as soon as it
    /// is idle. Gives how many go now or then, none of them twice.
    pub fn reap(&mut self, all: bool, reason: &Reason) -> (Vec<Effect>, u32) {
        let idle = self.idle();
        let spare = if all { idle.len() } else { self.spare() };
        let chosen = idle.into_iter().take(spare).chain(self.idle_of_owners());
        let chosen: Vec<AgentId> = chosen.map(|(_, agent)| agent).collect();
        let reported = chosen.iter().filter_map(|agent| self.report_to_go(agent, reason.clone()));
        let effects: Vec<Effect> = reported.collect();
        let coming = self.agents.values_mut().filter(|held| {
            let comes = held.status.standing == Standing::Coming && !held.spec.trial;
            all && comes && !held.going && held.reaped.is_none()
        });
        let later = coming.map(|held| held.reaped = Some(reason.clone())).count();
        let count = u32::try_from(effects.len() + later).unwrap_or(u32::MAX);
        (effects, count)
    }

    /// Idle agents that were reaped before they were ready, and when they go.
    fn reaped(&self) -> Vec<(Moment, AgentId, Reason)> {
        let idle = self.idle().into_iter().chain(self.idle_of_owners());
        let reaped = idle.filter_map(|(since, agent)| {
            let reason = self.agents.get(&agent)?.reaped.clone()?;
            Some((since + OFFERED, agent, reason))
        });
        reaped.collect()
    }

    /// Lets go what has to at this moment: idle for too long, or of a template that left the
    /// configuration.
    pub fn settle(&mut self, now: Moment) -> Vec<Effect> {
        if self.stopping {
            return Vec::new();
        }
        if !self.configured {
            let parked = |held: &Held| held.status.standing == Standing::Parked;
            let all: Vec<AgentId> = self
                .agents
                .iter()
                .filter(|(_, held)| !parked(held))
                .map(|(agent, _)| agent.clone())
                .collect();
            let go = all.iter().filter_map(|agent| self.report_to_go(agent, Reason::Unconfigured));
            return go.collect();
        }
        let reaped = self.reaped().into_iter().filter(|(at, ..)| *at <= now);
        let mut effects: Vec<Effect> =
            reaped.filter_map(|(_, agent, reason)| self.report_to_go(&agent, reason)).collect();
        effects.extend(self.shed(now));
        effects.extend(self.renew(now));
        let idle = self.idle();
        let spare = self.spare();
        // One that may stay for longer than others is part of the minimum rather than in their way.
        let is_due = |(since, agent): &(Moment, AgentId)| {
            self.idle_limit(agent).is_some_and(|limit| *since + limit <= now)
        };
        let due = idle.into_iter().filter(is_due).take(spare);
        let due = due.chain(self.idle_of_owners().into_iter().filter(is_due));
        let due: Vec<AgentId> = due.map(|(_, agent)| agent).collect();
        effects.extend(due.iter().filter_map(|agent| self.report_to_go(agent, Reason::Idle)));
        effects
    }

    /// When something changes by time alone.
    pub fn wake(&self, now: Moment) -> Option<Moment> {
        let (idle, of_owners) = (self.idle(), self.idle_of_owners());
        let spare = self.spare();
        let reaped = self.reaped().into_iter().map(|(at, ..)| at);
        let late = idle
            .iter()
            .filter(|_| spare > 0)
            .chain(&of_owners)
            .filter_map(|(since, agent)| Some(*since + self.idle_limit(agent)?));
        let due = late
            .chain(reaped)
            .chain(self.sheds())
            .chain(self.renewals())
            .chain(self.turns)
            .chain(self.supply.next)
            .chain(self.pace.pause(now))
            .chain(self.breaker.due());
        due.filter(|at| *at > now).min()
    }

    /// What the levels above must hear since the last time; none when nothing changed.
    pub fn news(&mut self, now: Moment) -> Option<TemplateNews> {
        let (kept, paused, lack) = (self.kept(), self.paused(now), self.supply.lack.clone());
        let why = (paused.clone(), lack.clone());
        let spec = self.spec.clone();
        let level = (self.live(), self.room(now), self.configured, kept, why, spec);
        let quiet = self.changed.is_empty() && self.gone.is_empty();
        if quiet
            && self.released == 0
            && self.answered == 0
            && self.reported.as_ref() == Some(&level)
        {
            return None;
        }
        self.reported = Some(level);
        let changed = std::mem::take(&mut self.changed);
        let agents: Vec<AgentLevel> = changed
            .iter()
            .filter_map(|agent| {
                let held = self.agents.get_mut(agent)?;
                Some(held.level(agent.clone()))
            })
            .collect();
        Some(TemplateNews {
            template: self.spec.id.clone(),
            agents,
            spec: self.spec.clone(),
            configured: self.configured,
            flowing: self.breaker.phase() == BreakerPhase::Closed,
            tripped: self.breaker.tripped(),
            paused,
            live: self.live(),
            room: self.room(now),
            lack,
            kept: self.kept(),
            empty: self.agents.is_empty(),
            gone: std::mem::take(&mut self.gone),
            released: std::mem::take(&mut self.released),
            answered: std::mem::take(&mut self.answered),
        })
    }

    /// Its counts for the read side.
    pub fn status(&self, now: Moment) -> What {
        let mut states: BTreeMap<AgentPhase, u32> = BTreeMap::new();
        for held in self.agents.values() {
            *states.entry(held.status.phase).or_default() += 1;
        }
        What::Template {
            template: self.spec.id.clone(),
            states,
            cap: self.spec.cap,
            minimum: self.kept().all,
            idle_minimum: self.kept().idle,
            lack: self.supply.lack.clone(),
            labels: self.spec.labels.iter().cloned().collect(),
            breaker: self.breaker.phase(),
            tripped: self.breaker.tripped(),
            source: self.source.clone().and_then(Result::ok),
            paused: self.paused(now),
        }
    }
}

/// A fault of the cloud is the cloud's to look at, whatever becomes of the agent.
fn suspect(fault: Option<&Fault>) -> Option<Effect> {
    let fault = fault.filter(|fault| matches!(fault.culprit, Culprit::Cloud(_)))?;
    Some(Effect::SuspectCloud(fault.clone()))
}

/// Whether an agent of this standing may still be of use.
fn lives(standing: Standing) -> bool {
    match standing {
        Standing::Coming | Standing::Free { .. } | Standing::Busy => true,
        Standing::Leaving | Standing::Parked | Standing::Gone => false,
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
