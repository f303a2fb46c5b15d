//! The template's mind: which of its agents hold permits, what may be started, who goes, and what
//! the levels above must know.
//!
//! ```text
//! commands, reports, ticks ──▶ step ──▶ start an agent │ send it away │ record the breaker │ news
//! ```
//!
//! - `report.rs`: what an agent's report means for the breaker, the pauses and the permits.
//! - `warm.rs`, `renew.rs`: what is kept without demand, and who may go.
//! - `sources.rs`: what can be cloned. `proving.rs`: by which spec agents are made. `news.rs`: what
//!   others hear.
//!
//! Nothing starts while the cluster is unknown, the template is not configured, the service stops,
//! the breaker is open, or a pause after failures lasts. `transitions.txt` beside this folder shows
//! each of these states.

mod news;
mod proving;
pub(super) mod renew;
mod report;
mod sources;
mod warm;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drover_model::fault::{Culprit, FaultKind};
use drover_model::id::{AgentId, LeaseId};
use drover_model::journal_state::AgentEntry;
use drover_model::phase::{AgentPhase, BreakerPhase};
use drover_model::record::Reason;
use drover_model::size::Size;
use drover_model::spec::{Minimums, TemplateSpec};
use drover_model::state_machine::{StateMachine, Turn};
use drover_model::status::{AgentStatus, Standing};
use drover_model::time::{Moment, Now, WallTime};

pub use super::event::{Effect, Event};
use super::held::Held;
use super::pace::Pace;
use super::schedule_window::ScheduleWindow;
use super::unplaced::Unplaced;
use super::{AgentLevel, permits};
use crate::addresses::Supply;
use crate::breaker::Breaker;
use crate::canary::Proving;
use crate::message::{AgentCommand, Purpose};
use crate::roster::Living;

/// How long an agent that was reaped before it was ready, or a place for one of any size, is left to
/// anyone who waits for it.
const OFFERED: Duration = Duration::from_secs(1);

/// What the last news said: slots, room, whether it is configured, what it keeps, why nothing starts,
/// and its spec.
type Level = (u32, u32, bool, Minimums, Obstacles, Tripped, Arc<TemplateSpec>);
/// Why it pauses, why there is no address, and which sizes of agents have no place.
type Obstacles = (Option<String>, Option<String>, BTreeMap<Size, String>);
/// How its breaker stands: when it tries again after which failure.
type Tripped = (BreakerPhase, Option<(WallTime, String)>);

/// What was in the way when an agent came to nothing through nobody's fault.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Obstacle {
    why: String,
    /// Whether the agent had a place.
    placed: bool,
    /// What it is about: another agent's of the same kind is the same obstacle.
    about: (FaultKind, Culprit),
    /// How often it was met without another between.
    times: u32,
    /// When it was met first.
    since: WallTime,
}

impl Obstacle {
    /// In words for people, with how often it was met where that is more than once.
    fn reported(&self) -> String {
        let Self { why, times, since, .. } = self;
        match times {
            0 | 1 => why.clone(),
            times => format!("{why} ({times} times since {})", since.rfc3339()),
        }
    }
}

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
    /// Sizes of agents for which there was no place.
    unplaced: Unplaced,
    obstacle: Option<Obstacle>,
    /// What agents are cloned from, or why nothing can be.
    source: Option<Result<String, String>>,
    /// By which spec agents are made, where new ones must prove themselves.
    proving: Option<Proving>,
    /// How soon a new version is tried again that failed through nobody's fault.
    trials: Pace,
    /// How many agents more can have addresses.
    supply: Supply,
    /// What is kept at this time; none before the calendar was read.
    schedule_window: Option<ScheduleWindow>,
    /// When the calendar must be read again.
    turns: Option<Moment>,
    /// Until when a free place is left to those who wait for an agent of another size.
    offered: Option<Moment>,
    changed: BTreeSet<AgentId>,
    gone: Vec<AgentLevel>,
    released: u32,
    /// By the size of what was asked for.
    answered: BTreeMap<Size, u32>,
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
            unplaced: Unplaced::default(),
            obstacle: None,
            source: None,
            proving: None,
            trials: Pace::default(),
            supply: Supply::endless(),
            schedule_window: None,
            turns: None,
            offered: None,
            changed: BTreeSet::new(),
            gone: Vec::new(),
            released: 0,
            answered: BTreeMap::new(),
            reported: None,
        }
    }

    /// The spec new agents are born with.
    pub fn spec(&self) -> &Arc<TemplateSpec> {
        &self.spec
    }

    pub fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    fn adopt(&mut self, agent: AgentId, entry: &AgentEntry, now: Now) {
        if entry.is_unproven() && !entry.spec.is_copy() {
            self.breaker.started(&agent, now.mono);
        }
        self.agents.insert(agent.clone(), Held::adopted(&agent, entry, now));
        self.compare_one(&agent, now.mono);
        self.changed.insert(agent);
    }

    fn recall(&mut self, agent: AgentId, living: &Living, now: Now) {
        self.agents.insert(agent.clone(), Held::recalled(&agent, living, now));
        self.compare_one(&agent, now.mono);
        self.changed.insert(agent);
    }

    /// Puts into the next news what the incarnation before this one did not pass on.
    fn make_up_for(&mut self, gone: Vec<AgentId>, refused: Vec<(AgentId, LeaseId)>, now: Now) {
        let given_back = |agent: &AgentId| {
            let of = refused.iter().filter(|(other, _)| other == agent);
            of.map(|(_, lease)| lease.clone()).collect()
        };
        let gone = gone.into_iter().map(|agent| AgentLevel {
            spec: self.spec.clone(),
            queued: false,
            refused: given_back(&agent),
            over: Vec::new(),
            going: true,
            status: Arc::new(AgentStatus {
                phase: AgentPhase::Gone,
                standing: Standing::Gone,
                ..AgentStatus::started(agent, self.spec.id.clone(), now.wall)
            }),
        });
        self.gone.extend(gone);
        for (agent, lease) in refused {
            if let Some(held) = self.agents.get_mut(&agent) {
                held.refused.push(lease);
            }
        }
    }

    /// A spec of which other agents are made closes the breaker: what failed was another version.
    fn apply(&mut self, spec: Option<Arc<TemplateSpec>>, now: Now, turn: &mut Turn<Effect>) {
        let Some(spec) = spec else {
            self.configured = false;
            return;
        };
        let is_other = self.spec.version() != spec.version();
        let moved = is_other && self.breaker.succeeded();
        if is_other {
            // What kept the old one from starting agents may not keep this one.
            self.source = None;
            self.obstacle = None;
            self.pace = Pace::default();
            self.trials = Pace::default();
            self.unplaced = Unplaced::default();
        }
        self.configured = true;
        self.spec = spec;
        self.schedule_window = None;
        self.compare(now.mono);
        if moved {
            turn.push(self.record(now));
        }
    }

    fn record(&self, now: Now) -> Effect {
        Effect::Record(self.breaker.record(&self.spec.id, self.spec.version(), now.wall))
    }

    /// Slots that its agents hold.
    pub fn live(&self) -> u32 {
        permits::slots(self.agents.values().map(|held| held.status.standing))
    }

    /// Whether agents are started at this moment, where there is room for them.
    fn starts(&self, now: Moment) -> bool {
        let closed = !self.open || !self.configured || self.stopping;
        let finds = !matches!(self.source, Some(Err(_))) || self.has_stand_in();
        !closed && self.pace.pause(now).is_none() && finds
    }

    /// How many agents may be started at this moment, as far as the template knows.
    pub fn room(&self, now: Moment) -> u32 {
        if !self.starts(now) {
            return 0;
        }
        let room = permits::room(self.spec.cap, self.live()).min(self.breaker.allowance(now));
        room.min(self.supply.free)
    }

    /// How many agents a reservation starts at this moment: for demand as many as reserved, for the
    /// warm pool as many as are still needed.
    pub fn startable(&self, reserved: u32, for_demand: bool, now: Moment) -> u32 {
        let wanted = if for_demand { reserved } else { self.warm_need(now) };
        wanted.min(reserved).min(self.room(now))
    }

    /// Starts agents under a reservation. What is not used of it goes back with the news.
    fn start(
        &mut self,
        (slots, asked): (u32, Option<(Size, u32)>),
        ids: Vec<AgentId>,
        now: Now,
        turn: &mut Turn<Effect>,
    ) {
        let count = self.startable(slots, asked.is_some(), now.mono) as usize;
        self.released += slots;
        if let Some((size, count)) = asked.filter(|(_, count)| *count > 0) {
            *self.answered.entry(size).or_default() += count;
        }
        // What it gives may be other than when that was decided.
        let size = asked.map(|(size, _)| size).unwrap_or_default();
        for agent in ids.into_iter().take(count) {
            let Some(spec) = self.next_spec(size, now.mono) else { return };
            self.breaker.started(&agent, now.mono);
            let held = Held::started(&agent, spec, now.wall, now);
            self.agents.insert(agent.clone(), held);
            self.changed.insert(agent.clone());
            turn.push(Effect::Spawn(agent));
        }
    }

    /// Starts agents because an operator says so: no lease that is given up takes them back.
    fn provision(
        &mut self,
        (slots, purpose): (u32, &Purpose),
        ids: Vec<AgentId>,
        now: Now,
        turn: &mut Turn<Effect>,
    ) {
        let before = turn.effects.len();
        self.start((slots, Some((Size::NONE, 0))), ids, now, turn);
        for agent in turn.effects[before..].iter().filter_map(Effect::spawned) {
            if let Some(held) = self.agents.get_mut(agent) {
                held.wanted = true;
                match purpose {
                    Purpose::Use => {}
                    Purpose::Trial => held.spec = Arc::new(held.spec.on_trial()),
                    Purpose::Copy(spec) => {
                        held.spec = Arc::clone(spec);
                        // Its end says nothing of the template, whose trial it cannot be.
                        self.breaker.left(agent);
                    }
                }
            }
        }
    }

    /// Has an agent go, unless it goes already.
    fn send_away(&mut self, agent: &AgentId, reason: Reason, turn: &mut Turn<Effect>) {
        let Some(held) = self.agents.get_mut(agent).filter(|held| !held.going) else { return };
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
        turn.push(Effect::Send(agent.clone(), command));
    }

    /// How long an agent may be idle; none for as long as it likes.
    fn idle_limit(&self, agent: &AgentId) -> Option<Duration> {
        let held = self.agents.get(agent)?;
        held.status.overrides.idle(&held.spec)
    }

    /// Has everything idle go, and counts who goes now or later. Nobody is counted twice.
    fn reap(&mut self, all: bool, reason: &Reason, turn: &mut Turn<Effect>) {
        let idle = self.idle();
        let spare = if all { idle.len() } else { self.spare() };
        let chosen = idle.into_iter().take(spare).chain(self.idle_apart());
        let chosen: Vec<AgentId> = chosen.map(|(_, agent)| agent).collect();
        let before = turn.effects.len();
        chosen.iter().for_each(|agent| self.send_away(agent, reason.clone(), turn));
        let now = turn.effects.len() - before;
        let coming = self.agents.values_mut().filter(|held| {
            let comes = held.status.standing == Standing::Coming && !held.spec.trial;
            all && comes && !held.going && held.reaped.is_none()
        });
        let later = coming.map(|held| held.reaped = Some(reason.clone())).count();
        turn.push(Effect::Reaped(u32::try_from(now + later).unwrap_or(u32::MAX)));
    }

    /// Idle agents that were reaped before they were ready, and when they go.
    fn reaped(&self) -> Vec<(Moment, AgentId, Reason)> {
        let idle = self.idle().into_iter().chain(self.idle_apart());
        let reaped = idle.filter_map(|(since, agent)| {
            let reason = self.agents.get(&agent)?.reaped.clone()?;
            Some((since + OFFERED, agent, reason))
        });
        reaped.collect()
    }

    /// Sends away what has to go at this moment: idle for too long, or of a template that left the
    /// configuration.
    fn tick(&mut self, now: Moment, turn: &mut Turn<Effect>) {
        if self.stopping {
            return;
        }
        if !self.configured {
            let parked = |held: &Held| held.status.standing == Standing::Parked;
            let all = self.agents.iter().filter(|(_, held)| !parked(held));
            let all: Vec<AgentId> = all.map(|(agent, _)| agent.clone()).collect();
            return all.iter().for_each(|agent| {
                self.send_away(agent, Reason::Unconfigured, turn);
            });
        }
        for (_, agent, reason) in self.reaped().into_iter().filter(|(at, ..)| *at <= now) {
            self.send_away(&agent, reason, turn);
        }
        self.shed(now, turn);
        self.renew(now, turn);
        let idle = self.idle();
        let spare = self.spare();
        // One that may stay for longer than others is part of the minimum rather than in their way.
        let is_due = |(since, agent): &(Moment, AgentId)| {
            self.idle_limit(agent).is_some_and(|limit| *since + limit <= now)
        };
        let due = idle.into_iter().filter(is_due).take(spare);
        let due = due.chain(self.idle_apart().into_iter().filter(is_due));
        let due: Vec<AgentId> = due.map(|(_, agent)| agent).collect();
        due.iter().for_each(|agent| self.send_away(agent, Reason::Idle, turn));
    }

    /// When something changes by time alone.
    pub fn wake(&self, now: Moment) -> Option<Moment> {
        let (idle, apart) = (self.idle(), self.idle_apart());
        let spare = self.spare();
        let reaped = self.reaped().into_iter().map(|(at, ..)| at);
        let late = idle
            .iter()
            .filter(|_| spare > 0)
            .chain(&apart)
            .filter_map(|(since, agent)| Some(*since + self.idle_limit(agent)?));
        let due = late
            .chain(reaped)
            .chain(self.sheds())
            .chain(self.renewals())
            .chain(self.turns)
            .chain(self.offered)
            .chain(self.supply.next)
            .chain(self.pace.pause(now))
            .chain(self.trials.pause(now))
            .chain(self.unplaced.next(now))
            .chain(self.breaker.due());
        due.filter(|at| *at > now).min()
    }
}

impl StateMachine for TemplateMind {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, event: Event, now: Now, turn: &mut Turn<Effect>) {
        match event {
            Event::Opened => self.open = true,
            Event::Applied(spec) => self.apply(spec, now, turn),
            Event::Stopped => self.stopping = true,
            Event::Adopted(agent, entry) => self.adopt(agent, &entry, now),
            Event::Recalled(agent, living) => self.recall(agent, &living, now),
            Event::Owed { reserved, asked } => {
                self.released += reserved;
                for (size, count) in asked {
                    *self.answered.entry(size).or_default() += count;
                }
            }
            Event::Missed { gone, refused } => self.make_up_for(gone, refused, now),
            Event::Reserved { slots, asked, ids } => self.start((slots, asked), ids, now, turn),
            Event::Provisioned { slots, purpose, ids } => {
                self.provision((slots, &purpose), ids, now, turn);
            }
            Event::Reported(report) => self.report(*report, now, turn),
            Event::Placed(place) => self.place(&place),
            Event::Tries(agent, tries) => {
                if let Some(held) = self.agents.get_mut(&agent) {
                    held.tries = tries;
                }
            }
            Event::Proving(proving) => {
                self.proving = proving;
                self.compare(now.mono);
            }
            Event::Located { source, version } => {
                self.locate(source, version.as_deref(), now, turn);
            }
            Event::Supplied(supply) => self.supply = supply,
            Event::Scheduled(window) => self.schedule(window, now),
            Event::BreakerReset => self.reset_breaker(now, turn),
            Event::NodeOpened(node) => self.node_opened(&node),
            Event::Reap { all, reason } => self.reap(all, &reason, turn),
            Event::Tick => self.tick(now.mono, turn),
            Event::Publish => self.publish(now, turn),
        }
    }
}

/// Whether an agent of this standing may still be of use.
fn lives(standing: Standing) -> bool {
    match standing {
        Standing::Coming | Standing::Free { .. } | Standing::Busy => true,
        Standing::Leaving | Standing::Parked | Standing::Gone => false,
    }
}

#[cfg(test)]
mod tests;
