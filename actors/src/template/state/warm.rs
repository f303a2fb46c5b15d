//! The warm pool: how many agents are kept without demand, and which may go without touching that.

use std::sync::Arc;
use std::time::Duration;

use drover_model::id::AgentId;
use drover_model::phase::AgentPhase;
use drover_model::ports::Calendar;
use drover_model::record::Reason;
use drover_model::spec::{Minimums, TemplateSpec};
use drover_model::state_machine::Turn;
use drover_model::status::Standing;
use drover_model::time::{Moment, Now};

use super::super::schedule_window::ScheduleWindow;
use super::{Effect, Held, OFFERED, TemplateMind, lives};

/// The longest time between two readings of the calendar: somebody may set the wall clock.
const CALENDAR: Duration = Duration::from_secs(60);

impl Held {
    /// Whether it stands for one of the agents that are kept, ready or on its way.
    fn counts(&self) -> bool {
        lives(self.status.standing) && self.serves_on()
    }

    /// Whether it will serve others after this. One that goes, drains, is held, is on trial or is none of
    /// the pool will not.
    fn serves_on(&self) -> bool {
        let over = self.status.phase.takes_no_more() || self.spec.trial;
        !self.going && !over && !self.is_apart()
    }

    /// Whether it is none of the pool: kept for one owner, or of a size of its own.
    fn is_apart(&self) -> bool {
        self.status.owner.is_some() || !self.spec.size.is_none()
    }

    /// Whether it stands for one of the idle agents that are kept.
    fn counts_as_idle(&self) -> bool {
        let idle = match self.status.standing {
            Standing::Coming | Standing::Free { idle: true, .. } => true,
            // A clone in doubt most often turns out well: the pool can wait for that.
            Standing::Busy => self.status.phase == AgentPhase::InDoubt,
            Standing::Free { idle: false, .. }
            | Standing::Leaving
            | Standing::Parked
            | Standing::Gone => false,
        };
        idle && !self.going && !self.spec.trial && !self.is_apart()
    }

    /// Whether it is or can be in use, and goes on to be after that.
    pub(super) fn is_ready(&self) -> bool {
        let ready = match self.status.standing {
            Standing::Free { .. } => true,
            Standing::Busy => self.status.phase != AgentPhase::InDoubt,
            Standing::Coming | Standing::Leaving | Standing::Parked | Standing::Gone => false,
        };
        ready && self.serves_on()
    }
}

impl TemplateMind {
    /// The spec that an agent was started with.
    pub fn spec_of(&self, agent: &AgentId) -> Arc<TemplateSpec> {
        self.agents.get(agent).map_or_else(|| self.spec.clone(), |held| held.spec.clone())
    }

    /// What it keeps at this moment; nothing once it left the configuration.
    pub fn kept(&self) -> Minimums {
        match self.schedule_window {
            _ if !self.configured => Minimums::default(),
            Some(window) => window.kept,
            None => self.spec.minimums(),
        }
    }

    /// What the calendar keeps at this moment: what is known of it, as long as that holds.
    pub fn window(&self, calendar: &dyn Calendar, now: Now) -> ScheduleWindow {
        let known = self.schedule_window.filter(|window| window.holds(now.wall));
        known.unwrap_or_else(|| ScheduleWindow::at(&self.spec, calendar, now.wall))
    }

    pub(super) fn schedule(&mut self, window: ScheduleWindow, now: Now) {
        self.turns = window.until().map(|until| {
            let ahead = u64::try_from(until.0.saturating_sub(now.wall.0)).unwrap_or(0);
            now.mono + Duration::from_millis(ahead).min(CALENDAR)
        });
        self.schedule_window = Some(window);
    }

    /// Idle agents that a window kept which is closed now, and when they go.
    fn surplus(&self) -> Vec<(Moment, AgentId)> {
        let Some(closed) = self.schedule_window.and_then(|window| window.closed) else {
            return Vec::new();
        };
        // One that an operator keeps for ever was not kept by the window.
        let of_then = |agent: &AgentId| {
            let held = self.agents.get(agent);
            held.is_some_and(|held| {
                held.born < closed && held.status.overrides.idle_minutes != Some(0)
            })
        };
        let idle = self.idle().into_iter().filter(|(_, agent)| of_then(agent));
        idle.take(self.spare()).map(|(since, agent)| (since + OFFERED, agent)).collect()
    }

    /// Sends the surplus of a closed window away. It was offered first to all who wait.
    pub(super) fn shed(&mut self, now: Moment, turn: &mut Turn<Effect>) {
        for (_, agent) in self.surplus().into_iter().filter(|(at, _)| *at <= now) {
            self.send_away(&agent, Reason::WindowClosed, turn);
        }
    }

    /// When surplus goes.
    pub(super) fn sheds(&self) -> impl Iterator<Item = Moment> {
        self.surplus().into_iter().map(|(at, _)| at)
    }

    /// Agents to start so that what is kept is there or on its way. A place that another agent left is
    /// offered first to those who wait for a size: a pool as large as the cap would keep them out.
    pub fn warm_need(&self, now: Moment) -> u32 {
        if self.offered.is_some_and(|until| now < until) {
            return 0;
        }
        let count = |counts: fn(&Held) -> bool| {
            let kept = self.agents.values().filter(|held| counts(held)).count();
            u32::try_from(kept).unwrap_or(u32::MAX)
        };
        let kept = self.kept();
        let missing = |kept: u32, counts: fn(&Held) -> bool| {
            (kept + self.stale(counts, now).min(kept)).saturating_sub(count(counts))
        };
        let all = missing(kept.all, Held::counts);
        let idle = missing(kept.idle, Held::counts_as_idle);
        all.max(idle).min(self.room(now))
    }

    /// Idle agents of the pool that stay, longest idle first.
    pub(super) fn idle(&self) -> Vec<(Moment, AgentId)> {
        self.idle_where(|held| !held.is_apart())
    }

    /// Idle agents that are kept for one owner or have a size of their own: none of the pool, and free
    /// to go.
    pub(super) fn idle_apart(&self) -> Vec<(Moment, AgentId)> {
        self.idle_where(Held::is_apart)
    }

    fn idle_where(&self, wanted: fn(&Held) -> bool) -> Vec<(Moment, AgentId)> {
        let mut idle: Vec<(Moment, AgentId)> = self
            .agents
            .iter()
            .filter(|(_, held)| !held.going && wanted(held))
            .filter_map(|(agent, held)| Some((held.idle_since?, agent.clone())))
            .collect();
        idle.sort();
        idle
    }

    /// How many idle agents may go without touching what is kept: only what is ready counts.
    pub(super) fn spare(&self) -> usize {
        let kept = self.kept();
        let ready = self.agents.values().filter(|held| held.is_ready()).count();
        let of_all = ready.saturating_sub(kept.all as usize);
        of_all.min(self.idle().len().saturating_sub(kept.idle as usize))
    }
}
