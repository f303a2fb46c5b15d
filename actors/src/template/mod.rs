//! The template actor: keeps agents of one template on one cloud alive. It begins them under the
//! cloud's reservations, passes their reports up, and tells them to go; see [`state`].

mod held;
mod observation;
pub mod pace;
pub mod permits;
pub mod schedule_window;
pub mod state;

use std::collections::VecDeque;
use std::sync::Arc;

use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, Recipient,
    Supervised, WrapFuture,
};
use drover_model::ambient::mint_agent;
use drover_model::fact::{Fact, What};
use drover_model::fault::Fault;
use drover_model::id::{AgentId, LeaseId, TemplateId};
use drover_model::phase::AgentPhase;
use drover_model::place::Place;
use drover_model::record::Reason;
use drover_model::spec::{Minimums, TemplateSpec};
use drover_model::status::{AgentStatus, Standing};
use drover_model::time::{Moment, WallTime};
use tokio::sync::mpsc::UnboundedSender;

use crate::birth::{Adoption, AgentBirth, Common, Lanes, Start};
use crate::boot_times::Boots;
use crate::breaker::Breaker;
use crate::message::{AgentReport, ProvisionReply, Provisioned};
use crate::roster::Living;
use drover_runtime::supervise::{count_message, limit_turns};
use state::{Effect, TemplateMind};

/// One agent as the levels above see it.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentLevel {
    /// The agent.
    pub agent: AgentId,
    /// The spec it was born with.
    pub spec: Arc<TemplateSpec>,
    pub status: AgentStatus,
    /// Whether nothing was sent to the cluster for it yet.
    pub queued: bool,
    /// Leases it was sent and could not take, or gives back.
    pub refused: Vec<LeaseId>,
    /// Leases that were on it and are over, since it was last told of.
    pub over: Vec<LeaseId>,
    /// Told to go: nothing is handed out on it.
    pub going: bool,
}

/// From a template, through its cloud, to the herd: what changed, and the levels in force.
#[derive(Debug, Clone, PartialEq, Message)]
#[rtype(result = "()")]
pub struct TemplateNews {
    /// The template.
    pub template: TemplateId,
    /// The spec new agents are born with.
    pub spec: Arc<TemplateSpec>,
    /// Whether it is configured, or only its agents are left.
    pub configured: bool,
    /// Whether its breaker flows.
    pub flowing: bool,
    /// Until when its breaker is tripped, and why.
    pub tripped: Option<(WallTime, String)>,
    /// Why it begins nothing, when that is no breaker's matter.
    pub paused: Option<String>,
    /// Slots held.
    pub live: u32,
    /// Agents it may begin at this moment, the cloud's cap aside.
    pub room: u32,
    /// Why no address is free for another agent, when none is.
    pub lack: Option<String>,
    /// What it keeps without demand at this moment.
    pub kept: Minimums,
    /// Whether it has no agent at all.
    pub empty: bool,
    /// Agents that changed.
    pub agents: Vec<AgentLevel>,
    /// Agents that are gone, as they were last.
    pub gone: Vec<AgentLevel>,
    /// Reservations of the cloud that are settled: started (and in `live`), or not needed.
    pub released: u32,
    /// Starts asked for by the herd that are settled the same way.
    pub answered: u32,
}

/// From a template to its cloud.
#[derive(Debug, Clone, PartialEq, Message)]
#[rtype(result = "()")]
pub enum ToCloud {
    /// What changed.
    News(Box<TemplateNews>),
    /// How many agents the warm pool lacks; replaces what was said before.
    WarmNeed {
        /// The template.
        template: TemplateId,
        /// How many.
        count: u32,
    },
    /// An agent's fault names the cloud.
    Suspect(Fault),
}

/// To a template, from its cloud.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub enum TemplateCommand {
    /// A spec comes into force; none when it left the configuration.
    Apply(Option<Arc<TemplateSpec>>),
    /// The ways to its cluster.
    Lanes(Lanes),
    /// Take over agents that lived before, or an orphan; all at once, so that the first news
    /// counts them all.
    Adopt(Vec<Adoption>),
    /// Begin agents under a reservation.
    Begin {
        /// Slots reserved under the cloud's cap.
        reserved: u32,
        /// Starts the herd asked for; none for the warm pool's.
        asked: Option<u32>,
    },
    /// Begin agents under a reservation because an operator says so.
    Provision {
        /// Slots reserved under the cloud's cap.
        reserved: u32,
        /// Why the cloud reserved fewer than wanted.
        short: Option<String>,
        /// Whether they are on trial.
        trial: bool,
        /// Filled with what came of it.
        reply: ProvisionReply,
    },
    /// Let idle agents go.
    Reap {
        /// Whether the warm minimum goes too, and what is coming once it is idle.
        all: bool,
        /// Why.
        reason: Reason,
        /// Told the number.
        tally: Option<UnboundedSender<u32>>,
    },
    /// An operator says that it works again.
    ResetBreaker,
    /// The service stops: begin nothing.
    Stop,
    /// The actor is not needed any more.
    Leave,
}

/// The actor of one template on one cloud.
pub struct Template {
    common: Common,
    cloud: Recipient<ToCloud>,
    lanes: Option<Lanes>,
    mind: TemplateMind,
    /// What a new incarnation starts from.
    configured: Option<Arc<TemplateSpec>>,
    saved: Breaker,
    warm_reported: u32,
    kept: Kept,
    shown: Option<What>,
    boots: Boots,
    /// When it wakes next; timers for other times are stale.
    timer: Option<Moment>,
    flushing: bool,
    /// Whether it looks at what can be cloned, or will soon.
    seeking: bool,
    /// Where the agent was that left last: what it came to may yet be charged to that place.
    left: Option<(AgentId, Place)>,
    /// Whether it will hear of a change of the addresses.
    following: bool,
}

/// What it was told and has not passed on or carried out yet: kept apart from the mind, for a new
/// incarnation.
#[derive(Default)]
struct Kept {
    /// Reservations and asked starts that no news has settled.
    owed: (u32, u32),
    /// Agents to take over.
    adopt: VecDeque<Adoption>,
    /// Agents that are gone, and leases that were refused, without any news of it.
    gone: Vec<AgentId>,
    refused: Vec<(AgentId, LeaseId)>,
    stopping: bool,
    leaving: bool,
}

/// To itself: pass the news on, once for all messages that were waiting.
#[derive(Message)]
#[rtype(result = "()")]
struct Flush;

impl Template {
    /// A template without agents yet.
    pub fn new(
        common: Common,
        cloud: Recipient<ToCloud>,
        spec: Arc<TemplateSpec>,
        configured: bool,
        breaker: Breaker,
    ) -> Self {
        Self {
            common,
            cloud,
            lanes: None,
            configured: configured.then(|| spec.clone()),
            saved: breaker.clone(),
            mind: TemplateMind::new(spec, configured, breaker),
            warm_reported: 0,
            kept: Kept::default(),
            shown: None,
            boots: Boots::default(),
            timer: None,
            flushing: false,
            seeking: false,
            left: None,
            following: false,
        }
    }

    /// Everything it holds, as text.
    #[cfg(test)]
    pub(crate) fn held(&self) -> String {
        let Kept { owed, adopt, gone, refused, .. } = &self.kept;
        format!("{:?} {owed:?} {} {gone:?} {refused:?}", self.mind, adopt.len())
    }

    fn carry_out(&mut self, effects: Vec<Effect>, ctx: &mut Context<Self>) {
        for effect in effects {
            match effect {
                Effect::Spawn(agent) => {
                    let spec = self.mind.spec_of(&agent);
                    if let Some(lanes) = self.lanes.clone() {
                        self.spawn_agent(agent, spec, Start::Fresh, lanes, ctx);
                    }
                }
                Effect::Lines(agent, command) => {
                    self.common.roster.send(&agent, command);
                }
                Effect::Record(body) => self.common.records.write(body),
                Effect::SuspectCloud(fault) => self.cloud.do_send(ToCloud::Suspect(fault)),
                Effect::Charge(agent, fault) => self.charge(&agent, &fault),
                Effect::Proven(agent) => self.proven(&agent),
            }
        }
        self.saved = self.mind.breaker().clone();
        if !self.flushing {
            self.flushing = true;
            ctx.notify(Flush);
        }
    }

    /// Begins what an operator wants, and answers once the agents live.
    fn provision(
        &mut self,
        (reserved, trial): (u32, bool),
        short: Option<String>,
        reply: ProvisionReply,
        ctx: &mut Context<Self>,
    ) {
        self.kept.owed.0 += reserved;
        let ambient = self.common.ports.ambient.clone();
        let mut draw = || mint_agent(|| ambient.draw());
        let now = self.common.ports.ambient.now();
        let effects = self.mind.provision(reserved, trial, &mut draw, now);
        let agents: Vec<AgentId> = effects.iter().filter_map(Effect::spawned).cloned().collect();
        self.carry_out(effects, ctx);
        self.look();
        let own = (agents.len() < reserved as usize)
            .then(|| self.mind.shortage(self.common.ports.ambient.now().mono));
        let template = self.mind.spec().id.clone();
        let answer = Provisioned { template, agents, short: own.or(short) };
        reply.send(Ok(answer));
    }

    fn spawn_agent(
        &self,
        agent: AgentId,
        spec: Arc<TemplateSpec>,
        start: Start,
        lanes: Lanes,
        ctx: &Context<Self>,
    ) {
        let (status, place, born) = match &start {
            Start::Fresh => {
                let status = AgentStatus::new(AgentPhase::Queued, Standing::Coming);
                (status, None, self.common.ports.ambient.now().wall)
            }
            Start::Adopted { entry, .. } => {
                // Until it reports, whatever the journal says of it.
                let status = AgentStatus { standing: Standing::Coming, ..AgentStatus::of(entry) };
                (status, Some(Place::of(entry)), entry.intended)
            }
        };
        let addresses = self.common.addresses.clone();
        if matches!(start, Start::Fresh) {
            addresses.take(&agent, &spec.id, &spec.address, self.common.ports.ambient.now());
        }
        tracing::info!(agent = %agent, template = %spec.id, state = status.phase.name(), "agent begins");
        let birth = AgentBirth {
            id: agent.clone(),
            spec: spec.clone(),
            start,
            installation: self.common.installation.clone(),
            epoch: self.common.epoch,
            report: ctx.address().recipient(),
            lanes,
            ports: self.common.ports.clone(),
            census: self.common.census.clone(),
            ways: self.common.ways.clone(),
            doubts: self.common.doubts.clone(),
            restraint: self.common.restraint.clone(),
            boots: self.boots.clone(),
            resets: self.common.resets.clone(),
            hold_next: self.common.hold_next.clone(),
            addresses,
            runners: self.common.runners.clone(),
        };
        let address = (self.common.spawner)(birth);
        let template = spec.id.clone();
        let living = Living { template, spec, address, status, born, place };
        self.common.roster.enter(agent, living);
    }

    /// Takes over the agents it was sent, those first that came first.
    fn take_over(&mut self, ctx: &Context<Self>) {
        while let Some(Adoption { entry, lanes, down }) = self.kept.adopt.front().cloned() {
            let agent = entry.marks.agent.clone();
            if self.common.roster.get(&agent).is_none() {
                self.mind.adopt(&agent, &entry, self.common.ports.ambient.now());
                let spec = Arc::new((*entry.spec).clone());
                self.spawn_agent(agent, spec, Start::Adopted { entry, down }, lanes, ctx);
            }
            self.kept.adopt.pop_front();
        }
    }

    fn leave(&self, ctx: &mut Context<Self>) {
        let what = What::TemplateGone { template: self.mind.spec().id.clone() };
        let at = self.common.ports.ambient.now().wall;
        self.common.ports.observer.observe(Fact { at, what });
        ctx.stop();
    }

    /// Looks at the calendar, where what is kept may have changed, and at the addresses.
    fn look(&mut self) {
        let now = self.common.ports.ambient.now();
        self.mind.look(&*self.common.ports.calendar, now);
        let supply = self.common.addresses.supply(&self.mind.spec().address, now);
        self.mind.supplied(supply);
    }

    /// Sees to it that it hears when an address gets free.
    fn follow(&mut self, ctx: &mut Context<Self>) {
        if self.following || !self.mind.spec().address.is_scarce() {
            return;
        }
        self.following = true;
        let change = self.common.addresses.change();
        ctx.spawn(change.into_actor(self).map(|(), actor, ctx| {
            actor.following = false;
            actor.carry_out(Vec::new(), ctx);
        }));
    }

    fn set_timer(&mut self, ctx: &mut Context<Self>) {
        let now = self.common.ports.ambient.now().mono;
        let wanted = self.mind.wake(now);
        if self.timer == wanted {
            return;
        }
        self.timer = wanted;
        if let Some(at) = wanted {
            ctx.run_later(at - now, move |actor, ctx| {
                if actor.timer == Some(at) {
                    actor.timer = None;
                    actor.carry_out(Vec::new(), ctx);
                }
            });
        }
    }
}

impl Actor for Template {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        limit_turns(ctx);
    }
}

impl Supervised for Template {
    /// Starts from the configuration and the living agents, not from the mind that panicked.
    fn restarting(&mut self, ctx: &mut Context<Self>) {
        if self.kept.leaving {
            return self.leave(ctx);
        }
        let spec = self.configured.clone().unwrap_or_else(|| self.mind.spec().clone());
        let id = spec.id.clone();
        self.mind = TemplateMind::new(spec, self.configured.is_some(), self.saved.clone());
        if self.lanes.is_some() {
            self.mind.opened();
        }
        let now = self.common.ports.ambient.now();
        for (agent, living) in self.common.roster.select(|living| living.template == id) {
            self.mind.recall(&agent, &living, now);
        }
        self.mind.owes(self.kept.owed.0, self.kept.owed.1);
        self.mind.missed(&self.kept.gone, &self.kept.refused);
        if self.kept.stopping {
            self.mind.stop();
        }
        self.take_over(ctx);
        let roster = self.common.roster.clone();
        self.common.addresses.sweep(&id, |agent| roster.get(agent).is_some(), now);
        self.following = false;
        self.warm_reported = 0;
        self.shown = None;
        self.timer = None;
        self.flushing = false;
        self.seeking = false;
        self.carry_out(Vec::new(), ctx);
    }
}

impl Handler<Flush> for Template {
    type Result = ();

    fn handle(&mut self, _: Flush, ctx: &mut Context<Self>) {
        count_message(ctx);
        self.follow(ctx);
        self.look();
        let now = self.common.ports.ambient.now();
        let effects = self.mind.settle(now.mono);
        self.carry_out(effects, ctx);
        self.flushing = false;
        if let Some(news) = self.mind.news(now.mono) {
            let Kept { owed, gone, refused, .. } = &mut self.kept;
            *owed = (0, 0);
            gone.clear();
            refused.clear();
            self.cloud.do_send(ToCloud::News(Box::new(news)));
        }
        let count = self.mind.warm_need(now.mono);
        if count != self.warm_reported {
            self.warm_reported = count;
            let template = self.mind.spec().id.clone();
            self.cloud.do_send(ToCloud::WarmNeed { template, count });
        }
        let status = self.mind.status(now.mono);
        if self.shown.as_ref() != Some(&status) {
            self.shown = Some(status.clone());
            self.common.ports.observer.observe(Fact { at: now.wall, what: status });
        }
        self.set_timer(ctx);
        if self.mind.wants_source() {
            self.seek(ctx);
        }
    }
}

impl Handler<AgentReport> for Template {
    type Result = ();

    fn handle(&mut self, report: AgentReport, ctx: &mut Context<Self>) {
        count_message(ctx);
        if let Some(place) = self.common.roster.get(&report.agent).and_then(|one| one.place) {
            self.mind.cloned_from(&place);
        }
        let refused = report.refused.iter().map(|lease| (report.agent.clone(), lease.clone()));
        self.kept.refused.extend(refused);
        if report.status.standing == Standing::Gone {
            self.kept.gone.push(report.agent.clone());
            let place = self.common.roster.get(&report.agent).and_then(|living| living.place);
            self.left = place.map(|place| (report.agent.clone(), place));
            self.common.roster.leave(&report.agent);
            self.common.hold_next.set_on(&report.agent, None);
            self.common.addresses.give_back(&report.agent, self.common.ports.ambient.now());
        } else {
            self.common.roster.update(&report.agent, |living| {
                // The herd may have set other overrides since.
                let overrides = living.status.overrides;
                living.status = AgentStatus { overrides, ..report.status.clone() };
            });
        }
        let effects = self.mind.report(&report, self.common.ports.ambient.now());
        self.carry_out(effects, ctx);
        let leaves =
            report.status.standing == Standing::Leaving && !report.status.phase.is_cloning();
        if leaves || report.status.standing == Standing::Gone {
            let moved = self.common.board.left(&report.agent);
            moved.iter().for_each(|scope| self.common.show_breaker(scope));
        }
    }
}

impl Handler<TemplateCommand> for Template {
    type Result = ();

    fn handle(&mut self, command: TemplateCommand, ctx: &mut Context<Self>) {
        count_message(ctx);
        let effects = match command {
            TemplateCommand::Apply(spec) => {
                self.configured.clone_from(&spec);
                let effects = self.mind.apply(spec, self.common.ports.ambient.now());
                self.look();
                effects
            }
            TemplateCommand::Lanes(lanes) => {
                self.lanes = Some(lanes);
                self.mind.opened();
                Vec::new()
            }
            TemplateCommand::Adopt(adoptions) => {
                self.kept.adopt.extend(adoptions);
                self.take_over(ctx);
                Vec::new()
            }
            TemplateCommand::Begin { reserved, asked } => {
                self.kept.owed.0 += reserved;
                self.kept.owed.1 += asked.unwrap_or(0);
                let now = self.common.ports.ambient.now();
                let ambient = self.common.ports.ambient.clone();
                let mut draw = || mint_agent(|| ambient.draw());
                self.warm_reported = if asked.is_none() { 0 } else { self.warm_reported };
                self.mind.begin(reserved, asked, &mut draw, now)
            }
            TemplateCommand::Provision { reserved, short, trial, reply } => {
                return self.provision((reserved, trial), short, reply, ctx);
            }
            TemplateCommand::Reap { all, reason, tally } => {
                self.look();
                let (effects, count) = self.mind.reap(all, &reason);
                if let Some(tally) = tally {
                    tally.send(count).ok(); // an error: nobody waits for the number any more
                }
                effects
            }
            TemplateCommand::ResetBreaker => {
                tracing::warn!(template = %self.mind.spec().id, "operator reset the breaker");
                self.mind.reset_breaker(self.common.ports.ambient.now())
            }
            TemplateCommand::Stop => {
                self.kept.stopping = true;
                self.mind.stop();
                Vec::new()
            }
            TemplateCommand::Leave => {
                self.kept.leaving = true;
                return self.leave(ctx);
            }
        };
        self.carry_out(effects, ctx);
    }
}

#[cfg(test)]
mod tests;
