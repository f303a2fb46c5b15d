//! The template actor: keeps agents of one template on one cloud alive.
//!
//! ```text
//!              TemplateCommand                AgentCommand
//!   cloud ────────────────────▶ template ────────────────────▶ agents
//!         ◀──────────────────── (one spec) ◀────────────────────
//!          ToCloud: news, warm need           AgentReport
//! ```
//!
//! - It owns the agents of one template: it starts them under the cloud's reservations, passes
//!   their reports up, and has them go when they are idle, too old or not configured.
//! - Its mind ([`state`]) decides. This body turns messages into events (`step`) and carries the
//!   effects out (`carry_out`). `Flush` does both once for all messages that waited.
//! - It writes into what actors share which agents live, which addresses they have, and what they
//!   prove of nodes, storages and clouds (`observation.rs`).
//!
//! A panic drops the mind. A new incarnation starts from the roster, the configuration, the last
//! breaker and what `Kept` says of messages that were not carried out.

pub mod event;
mod held;
mod message;
mod observation;
pub mod pace;
pub mod permits;
pub mod schedule_window;
pub mod state;
mod unplaced;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, Recipient,
    Supervised, WrapFuture,
};
use drover_model::ambient::mint_agent;
use drover_model::fact::{Fact, What};
use drover_model::id::{AgentId, LeaseId};
use drover_model::noted::{Noted, StartedFor};
use drover_model::place::Place;
use drover_model::size::Size;
use drover_model::spec::TemplateSpec;
use drover_model::state_machine::StateMachine as _;
use drover_model::status::{AgentStatus, Standing, TemplateStatus};
use drover_model::time::Moment;
use tokio::sync::mpsc::UnboundedSender;

use crate::birth::{Adoption, AgentBirth, Common, Lanes, Start};
use crate::breaker::Breaker;
use crate::history::History;
use crate::message::{AgentReport, ProvisionReply, Provisioned, Purpose};
use crate::roster::Living;
use crate::shared::{Shared, role};
use drover_runtime::supervise::{count_message, limit_turns};
use event::{Effect, Event};
pub use message::{AgentLevel, Pause, TemplateCommand, TemplateNews, ToCloud};
use state::TemplateMind;

/// The actor of one template on one cloud.
pub struct Template {
    common: Common<role::Template>,
    cloud: Recipient<ToCloud>,
    lanes: Option<Lanes>,
    mind: TemplateMind,
    /// What a new incarnation starts from.
    configured: Option<Arc<TemplateSpec>>,
    saved: Breaker,
    warm_reported: u32,
    /// What agents are started for at this moment.
    starts_for: StartedFor,
    kept: Kept,
    shown: Option<TemplateStatus>,
    /// What its agents have shown.
    history: Shared<History, role::Template>,
    /// Who waits for the number of agents that go.
    tally: Option<UnboundedSender<u32>>,
    /// When it wakes next; timers for other times are stale.
    timer: Option<Moment>,
    flushing: bool,
    /// The number of the look at what can be cloned that runs, or comes soon; none where none does.
    seeking: Option<u64>,
    /// Looks that began.
    looks: u64,
    /// Where the agent was that left last: what it came to may yet be charged to that place.
    left: Option<(AgentId, Place)>,
    /// Whether it will hear of a change of the addresses.
    following: bool,
}

/// What it received and has not passed on or carried out yet: kept apart from the mind, for a new
/// incarnation.
#[derive(Default)]
struct Kept {
    /// Reservations and asked starts, by size, that no news has settled.
    owed: (u32, BTreeMap<Size, u32>),
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
        common: Common<role::Template>,
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
            starts_for: StartedFor::Demand,
            kept: Kept::default(),
            shown: None,
            history: Shared::default(),
            tally: None,
            timer: None,
            flushing: false,
            seeking: None,
            looks: 0,
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

    /// Steps the mind: what it wants done, in order.
    fn step(&mut self, event: Event) -> Vec<Effect> {
        // It draws nothing: ids of agents come with the events.
        self.mind.effects_by(event, || self.common.ports.ambient.now(), 0)
    }

    /// Steps the mind and carries out what it wants done.
    fn act(&mut self, event: Event, ctx: &mut Context<Self>) {
        let effects = self.step(event);
        self.carry_out(effects, ctx);
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
                Effect::Send(agent, command) => {
                    self.common.roster.send(&agent, command);
                }
                Effect::Record(body) => self.common.records.write(body),
                Effect::SuspectCloud(fault) => self.cloud.do_send(ToCloud::Suspect(fault)),
                Effect::Charge(agent, fault) => self.charge(&agent, &fault),
                Effect::Proven(agent) => self.proven(&agent),
                Effect::CanaryFailed(agent, made, cause) => {
                    self.canary_failed(&agent, made.as_ref(), &cause);
                }
                Effect::Reaped(count) => {
                    if let Some(tally) = self.tally.take() {
                        tally.send(count).ok(); // an error: nobody waits for the number any more
                    }
                }
                Effect::News(news) => {
                    let Kept { owed, gone, refused, .. } = &mut self.kept;
                    *owed = (0, BTreeMap::new());
                    gone.clear();
                    refused.clear();
                    self.cloud.do_send(ToCloud::News(news));
                }
            }
        }
        self.saved = self.mind.breaker().clone();
        self.flush_soon(ctx);
    }

    fn flush_soon(&mut self, ctx: &mut Context<Self>) {
        if !self.flushing {
            self.flushing = true;
            ctx.notify(Flush);
        }
    }

    /// An id for each agent that a reservation starts.
    fn mint(&self, reserved: u32, for_demand: bool) -> Vec<AgentId> {
        let ambient = &self.common.ports.ambient;
        let count = self.mind.startable(reserved, for_demand, ambient.now().mono);
        (0..count).map(|_| mint_agent(|| ambient.draw())).collect()
    }

    fn start(&mut self, slots: u32, asked: Option<(Size, u32)>, ctx: &mut Context<Self>) {
        self.kept.owed.0 += slots;
        if let Some((size, count)) = asked {
            *self.kept.owed.1.entry(size).or_default() += count;
        }
        self.warm_reported = if asked.is_none() { 0 } else { self.warm_reported };
        self.prove();
        let ids = self.mint(slots, asked.is_some());
        self.starts_for = asked.map_or(StartedFor::Pool, |_| StartedFor::Demand);
        self.act(Event::Reserved { slots, asked, ids }, ctx);
    }

    /// Starts what an operator wants, and answers once the agents live.
    fn provision(
        &mut self,
        (slots, purpose): (u32, Purpose),
        short: Option<String>,
        reply: ProvisionReply,
        ctx: &mut Context<Self>,
    ) {
        self.kept.owed.0 += slots;
        self.prove();
        let ids = self.mint(slots, true);
        self.starts_for = StartedFor::Operator;
        let effects = self.step(Event::Provisioned { slots, purpose, ids });
        let agents: Vec<AgentId> = effects.iter().filter_map(Effect::spawned).cloned().collect();
        self.carry_out(effects, ctx);
        self.look();
        let own = (agents.len() < slots as usize)
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
                let born = self.common.ports.ambient.now().wall;
                let status = AgentStatus::started(agent.clone(), spec.id.clone(), born);
                (AgentStatus { size: spec.asked_size(), ..status }, None, born)
            }
            Start::Adopted { entry, .. } => {
                // Until it reports, whatever the journal says of it.
                let status = AgentStatus { standing: Standing::Coming, ..entry.status() };
                (status, Some(entry.place()), entry.intended)
            }
        };
        if matches!(start, Start::Fresh) {
            let now = self.common.ports.ambient.now();
            let (why, size) = (self.starts_for, spec.own_size());
            let started =
                Noted::Started { agent: agent.clone(), template: spec.id.clone(), why, size };
            self.common.ports.observer.note(now.wall, started);
            self.common.addresses.take(&agent, &spec.id, &spec.address, now);
        }
        tracing::info!(agent = %agent, template = %spec.id, state = status.phase.name(), "agent begins");
        let birth = AgentBirth {
            id: agent.clone(),
            spec: spec.clone(),
            start,
            report: ctx.address().recipient(),
            lanes,
            common: self.common.give(),
            history: self.history.give(),
        };
        let address = (self.common.supervision.spawner)(birth);
        let template = spec.id.clone();
        let (overrides, status) = (status.overrides, Arc::new(status));
        let living = Living { template, spec, status, overrides, born, place };
        self.common.roster.enter(agent, living, address);
    }

    /// Takes over the agents it was sent, those first that came first.
    fn take_over(&mut self, ctx: &Context<Self>) {
        while let Some(Adoption { entry, lanes, down }) = self.kept.adopt.front().cloned() {
            let agent = entry.marks.agent.clone();
            if !self.common.roster.has(&agent) {
                self.step(Event::Adopted(agent.clone(), entry.clone()));
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

    /// Reads the calendar, where what is kept may have changed, and the addresses.
    fn look(&mut self) {
        let now = self.common.ports.ambient.now();
        let window = self.mind.window(&*self.common.ports.calendar, now);
        self.step(Event::Scheduled(window));
        let supply = self.common.addresses.supply(&self.mind.spec().address, now);
        self.step(Event::Supplied(supply));
        self.prove();
    }

    /// Asks by which spec agents are made.
    fn prove(&mut self) {
        let proving = self.common.canaries.proving(self.mind.spec());
        self.step(Event::Proving(proving));
    }

    /// Waits for an address to get free, where they are scarce.
    fn follow(&mut self, ctx: &mut Context<Self>) {
        if self.following || !self.mind.spec().address.is_scarce() {
            return;
        }
        self.following = true;
        let change = self.common.addresses.change();
        ctx.spawn(change.into_actor(self).map(|(), actor, ctx| {
            actor.following = false;
            actor.flush_soon(ctx);
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
                    actor.flush_soon(ctx);
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
            self.step(Event::Opened);
        }
        let now = self.common.ports.ambient.now();
        for (agent, living) in self.common.roster.select(|living| living.template == id) {
            self.step(Event::Recalled(agent, Box::new(living)));
        }
        let (reserved, asked) = self.kept.owed.clone();
        self.step(Event::Owed { reserved, asked });
        let (gone, refused) = (self.kept.gone.clone(), self.kept.refused.clone());
        self.step(Event::Missed { gone, refused });
        if self.kept.stopping {
            self.step(Event::Stopped);
        }
        self.take_over(ctx);
        let roster = &self.common.roster;
        self.common.addresses.sweep(&id, |agent| roster.has(agent), now);
        self.common.canaries.sweep(&id, |agent| roster.has(agent));
        self.following = false;
        self.warm_reported = 0;
        self.shown = None;
        self.timer = None;
        self.flushing = false;
        self.seeking = None;
        self.tally = None;
        self.carry_out(Vec::new(), ctx);
    }
}

impl Handler<Flush> for Template {
    type Result = ();

    fn handle(&mut self, _: Flush, ctx: &mut Context<Self>) {
        count_message(ctx);
        self.follow(ctx);
        self.look();
        self.act(Event::Tick, ctx);
        self.act(Event::Publish, ctx);
        self.flushing = false;
        let now = self.common.ports.ambient.now();
        let count = self.mind.warm_need(now.mono);
        if count != self.warm_reported {
            self.warm_reported = count;
            let template = self.mind.spec().id.clone();
            self.cloud.do_send(ToCloud::WarmNeed { template, count });
        }
        let mut status = self.mind.status(now.mono);
        status.canary = self.common.canaries.status(self.mind.spec());
        if self.shown.as_ref() != Some(&status) {
            self.shown = Some(status.clone());
            let what = What::Template(Box::new(status));
            self.common.ports.observer.observe(Fact { at: now.wall, what });
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
        let (agent, status) = (report.status.agent.clone(), Arc::clone(&report.status));
        let place = self.common.roster.get(&agent).and_then(|living| living.place);
        if let Some(place) = &place {
            self.step(Event::Placed(place.clone()));
        }
        let tries = self.common.canaries.tries(&self.mind.spec().id, &agent);
        self.step(Event::Tries(agent.clone(), tries));
        let refused = report.refused.iter().map(|lease| (agent.clone(), lease.clone()));
        self.kept.refused.extend(refused);
        if status.standing == Standing::Gone {
            self.kept.gone.push(agent.clone());
            self.left = place.map(|place| (agent.clone(), place));
            self.common.roster.leave(&agent);
            self.common.hold_next.gone(&agent);
            self.common.addresses.give_back(&agent, self.common.ports.ambient.now());
        } else {
            self.common.roster.reported(&status);
        }
        let leaves = status.standing == Standing::Leaving && !status.phase.is_cloning();
        let over = leaves || status.standing == Standing::Gone;
        self.act(Event::Reported(Box::new(report)), ctx);
        if over {
            self.common.canaries.left(&self.mind.spec().id, &agent);
            let moved = self.common.board.left(&agent);
            moved.iter().for_each(|scope| self.common.show_breaker(scope));
        }
    }
}

impl Handler<TemplateCommand> for Template {
    type Result = ();

    fn handle(&mut self, command: TemplateCommand, ctx: &mut Context<Self>) {
        count_message(ctx);
        match command {
            TemplateCommand::Apply(spec) => {
                self.configured.clone_from(&spec);
                let effects = self.step(Event::Applied(spec));
                self.look();
                self.carry_out(effects, ctx);
            }
            TemplateCommand::Lanes(lanes) => {
                self.lanes = Some(lanes);
                self.act(Event::Opened, ctx);
            }
            TemplateCommand::Adopt(adoptions) => {
                self.kept.adopt.extend(adoptions);
                self.take_over(ctx);
                self.carry_out(Vec::new(), ctx);
            }
            TemplateCommand::Begin { reserved, asked } => self.start(reserved, asked, ctx),
            TemplateCommand::Provision { reserved, short, purpose, reply } => {
                self.provision((reserved, purpose), short, reply, ctx);
            }
            TemplateCommand::Reap { all, reason, tally } => {
                self.look();
                self.tally = tally;
                self.act(Event::Reap { all, reason }, ctx);
            }
            TemplateCommand::ResetBreaker => {
                tracing::warn!(template = %self.mind.spec().id, "operator reset the breaker");
                if self.common.canaries.forgive(&self.mind.spec().id) {
                    self.write_canary();
                }
                self.act(Event::BreakerReset, ctx);
            }
            TemplateCommand::VersionBuilt => self.seek_at_once(ctx),
            TemplateCommand::NodeOpened(node) => {
                self.act(Event::NodeOpened(node), ctx);
                self.look_again(ctx);
            }
            TemplateCommand::Stop => {
                self.kept.stopping = true;
                self.act(Event::Stopped, ctx);
            }
            TemplateCommand::Leave => {
                self.kept.leaving = true;
                self.leave(ctx);
            }
        }
    }
}

#[cfg(test)]
mod tests;
