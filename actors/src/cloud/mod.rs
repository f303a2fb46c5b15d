//! The cloud actor: one configured way into a cluster.
//!
//! ```text
//!          CloudCommand                  TemplateCommand
//!   herd ───────────────▶ cloud ───────────────────────────▶ templates
//!        ◀───────────────   │   ◀───────────────────────────
//!          CloudReport      │            ToCloud
//!                           └──▶ hypervisor: who are you?
//! ```
//!
//! - It owns the templates of one cloud and the cap over them: a template starts nothing without a
//!   reservation.
//! - It asks who the cluster is, pins the answer in the journal, and says whether it works.
//! - Its mind ([`state`]) decides. This body turns messages into events (`step`) and carries the
//!   effects out (`carry_out`). `Settle` reports once for all messages that waited.
//!
//! A panic drops what the mind knows of health. A new incarnation keeps the specs, the reservations
//! and what `Kept` has of messages that were not carried out, and asks the cloud again.

mod asking;
mod counts;
pub mod event;
mod inquiry;
mod message;
pub mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use actix::{
    Actor, ActorContext, Addr, AsyncContext, Context, Handler, Message, Recipient, Supervised,
};
use drover_model::ambient::jittered;
use drover_model::fact::{Fact, What};
use drover_model::id::{CloudId, ClusterId, TemplateId};
use drover_model::journal_state::BreakerEntry;
use drover_model::record::Troubled;
use drover_model::size::Size;
use drover_model::spec::{CloudSpec, TemplateSpec};
use drover_model::state_machine::StateMachine as _;
use drover_model::status::{CloudStatus, Standing};

use crate::birth::{Adoption, Common, Lanes, Rank, spawn_child};
use crate::breaker::Breaker;
use crate::message::{ProvisionReply, Purpose, Refusal};
use crate::shared::role;
use crate::template::{Template, TemplateCommand, TemplateNews, ToCloud};
use crate::troubles::Troubles;
use drover_runtime::supervise::{count_message, limit_turns};
use event::{Effect, Event};
pub use message::{CloudCommand, CloudReport};
use state::CloudMind;

/// The actor of one cloud.
pub struct Cloud {
    common: Common<role::Cloud>,
    herd: Recipient<CloudReport>,
    id: CloudId,
    mind: CloudMind,
    /// Since when it is degraded, as the journal knows.
    troubles: Troubles,
    lanes: Option<Lanes>,
    breakers: BTreeMap<TemplateId, BreakerEntry>,
    templates: BTreeMap<TemplateId, Addr<Template>>,
    specs: BTreeMap<TemplateId, Arc<TemplateSpec>>,
    /// Templates that were sent an agent to adopt and have not reported it yet.
    adopting: BTreeSet<TemplateId>,
    /// Who waits for what an operator wants, and what it is for.
    operator: Option<(Purpose, ProvisionReply)>,
    /// Whether it will hear of a change of what keeps clones back.
    following: bool,
    room_reported: Option<u32>,
    shown: Option<CloudStatus>,
    /// Whether it will settle at the end of this turn.
    settling: bool,
    kept: Kept,
}

/// To itself: settle, once for all messages that were waiting.
#[derive(Message)]
#[rtype(result = "()")]
struct Settle;

/// What it received and has not carried out yet: kept for a new incarnation.
#[derive(Default)]
struct Kept {
    /// A configuration that is coming into force.
    reported: Option<Reported>,
    /// Templates that were started for it and do not know their cluster yet.
    started: BTreeSet<TemplateId>,
    /// Agents to hand to their templates.
    adopt: Vec<Adoption>,
    /// Starts that were not passed on.
    starts: Option<(TemplateId, Size, u32)>,
}

/// A cloud's part of a configuration.
#[derive(Clone)]
struct Reported {
    spec: Option<Arc<CloudSpec>>,
    templates: BTreeMap<TemplateId, Arc<TemplateSpec>>,
}

impl Cloud {
    /// A cloud that nothing is applied to yet.
    pub fn new(
        common: Common<role::Cloud>,
        herd: Recipient<CloudReport>,
        id: CloudId,
        pinned: Option<ClusterId>,
        breakers: BTreeMap<TemplateId, BreakerEntry>,
        troubles: Troubles,
    ) -> Self {
        let degraded = troubles.since(&Troubled::Cloud { cloud: id.clone() });
        Self {
            mind: CloudMind::new(id.clone(), None, pinned).degraded_from(degraded),
            troubles,
            common,
            herd,
            id,
            lanes: None,
            breakers,
            templates: BTreeMap::new(),
            specs: BTreeMap::new(),
            adopting: BTreeSet::new(),
            operator: None,
            following: false,
            room_reported: None,
            shown: None,
            settling: false,
            kept: Kept::default(),
        }
    }

    /// Everything it holds, as text.
    #[cfg(test)]
    pub(crate) fn held(&self) -> String {
        let names = (self.templates.keys(), self.specs.keys(), &self.adopting);
        let kept = (&self.kept.started, self.kept.adopt.len(), &self.kept.starts);
        format!("{:?} {names:?} {} {kept:?}", self.mind, self.breakers.len())
    }

    #[cfg(test)]
    pub(crate) fn templates(&self) -> impl Iterator<Item = &Addr<Template>> {
        self.templates.values()
    }

    /// Brings a configuration into force. What was done of it before a panic does no harm.
    fn apply(&mut self, ctx: &mut Context<Self>) {
        let Some(Reported { spec, templates }) = self.kept.reported.clone() else { return };
        let effects = self.step(Event::Applied(spec));
        for id in self.specs.keys().filter(|id| !templates.contains_key(id)) {
            if let Some(address) = self.templates.get(id) {
                address.do_send(TemplateCommand::Apply(None));
            }
        }
        for (id, spec) in &templates {
            let known = self.specs.get(id);
            match self.templates.get(id) {
                Some(_) if known.is_some_and(|old| Arc::ptr_eq(old, spec) || old == spec) => {}
                Some(address) => address.do_send(TemplateCommand::Apply(Some(spec.clone()))),
                None => {
                    self.kept.started.insert(id.clone());
                    self.begin_template(spec.clone(), true, ctx);
                }
            }
        }
        self.specs = templates;
        self.adopt(ctx);
        // After the agents that are taken over, so that these count before anything is started.
        for address in self.kept.started.iter().filter_map(|id| self.templates.get(id)) {
            if let Some(lanes) = self.lanes.clone() {
                address.do_send(TemplateCommand::Lanes(lanes));
            }
        }
        self.kept.started.clear();
        self.kept.reported = None;
        self.carry_out(effects, ctx);
        if self.mind.spec().is_none() && self.templates.is_empty() {
            self.herd.do_send(CloudReport::Empty(self.id.clone()));
        }
    }

    fn begin_template(
        &mut self,
        spec: Arc<TemplateSpec>,
        configured: bool,
        ctx: &mut Context<Self>,
    ) -> Addr<Template> {
        let id = spec.id.clone();
        let now = self.common.ports.ambient.now();
        let breaker = match self.breakers.remove(&id) {
            Some(entry) if configured && Breaker::is_outdated(&entry, &spec.version()) => {
                // What failed was another version: that it is over must be known after a crash too.
                let record = Breaker::default().record(&id, spec.version(), now.wall);
                self.common.records.write(record);
                Breaker::default()
            }
            Some(entry) => Breaker::restore(&entry, now),
            None => Breaker::default(),
        };
        let cloud = ctx.address().recipient();
        let make = move |common, _: &mut _| Template::new(common, cloud, spec, configured, breaker);
        let address = spawn_child(&self.common, Rank::Leaf, &format!("template {id}"), make);
        self.templates.insert(id, address.clone());
        address
    }

    /// Steps the mind: what it wants done, in order.
    fn step(&mut self, event: Event) -> Vec<Effect> {
        // It draws nothing: the body jitters its pauses.
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
                Effect::Pin(cluster) => self.pin(cluster, ctx),
                Effect::Leads(cluster) => {
                    self.tried();
                    self.herd.do_send(CloudReport::Leads { cloud: self.id.clone(), cluster });
                }
                Effect::Elsewhere(cluster) => {
                    let cloud = self.id.clone();
                    self.herd.do_send(CloudReport::Elsewhere { cloud, cluster });
                }
                Effect::Ask => self.ask(ctx),
                Effect::AskIn(wait) => self.ask_in(wait, ctx),
                Effect::AskAgain(wait) => {
                    self.tried();
                    self.ask_in(jittered(wait, self.common.ports.ambient.draw()), ctx);
                }
                Effect::Begin { template, reserved, asked } => {
                    if let Some(address) = self.templates.get(&template) {
                        address.do_send(TemplateCommand::Begin { reserved, asked });
                    }
                    if asked.is_some() {
                        self.kept.starts = None;
                    }
                }
                Effect::Provision { template, reserved, short } => {
                    if let Some(address) = self.templates.get(&template)
                        && let Some((purpose, reply)) = self.operator.take()
                    {
                        let command =
                            TemplateCommand::Provision { reserved, short, purpose, reply };
                        address.do_send(command);
                    }
                }
                Effect::Refuse => self.refuse(),
            }
        }
    }

    fn settle_soon(&mut self, ctx: &mut Context<Self>) {
        if !self.settling {
            self.settling = true;
            ctx.notify(Settle);
        }
    }

    /// Serves warm pools while there is room, and reports what changed.
    fn settle(&mut self, ctx: &mut Context<Self>) {
        self.act(Event::Settle, ctx);
        self.report_room();
        let of = Troubled::Cloud { cloud: self.id.clone() };
        self.common.records.write_all(self.troubles.set(of, self.mind.degraded_since()));
        let now = self.common.ports.ambient.now().mono;
        let doubt = self.common.doubts.held_back(&self.id, self.mind.pinned(), now);
        let status = self.mind.status(doubt);
        if self.shown.as_ref() != Some(&status) {
            self.shown = Some(status.clone());
            let at = self.common.ports.ambient.now().wall;
            let what = What::Cloud(Box::new(status));
            self.common.ports.observer.observe(Fact { at, what });
        }
    }

    fn report_room(&mut self) {
        let room = self.mind.room();
        if self.room_reported != Some(room) {
            self.room_reported = Some(room);
            self.herd.do_send(CloudReport::Room { cloud: self.id.clone(), room });
        }
    }

    fn provision(
        &mut self,
        template: TemplateId,
        (size, count): (Size, u32),
        ctx: &mut Context<Self>,
    ) {
        self.kept.starts = Some((template.clone(), size, count));
        if self.templates.contains_key(&template) {
            self.act(Event::Wanted { template, size, count }, ctx);
        } else {
            self.refuse();
        }
    }

    /// Starts that the herd wants do not reach the template.
    fn refuse(&mut self) {
        // Before the herd hears that it was refused: else it would ask for the same.
        self.room_reported = None;
        self.report_room();
        self.not_started();
    }

    /// Starts what an operator wants, as far as the caps go.
    fn begin(
        &mut self,
        template: TemplateId,
        count: u32,
        (purpose, reply): (Purpose, ProvisionReply),
        ctx: &mut Context<Self>,
    ) {
        if !self.templates.contains_key(&template) {
            let text =
                format!("nothing was started: template `{template}` is not configured any more");
            reply.send(Err(Refusal::Unavailable(text)));
            return;
        }
        self.operator = Some((purpose, reply));
        self.act(Event::Provisioned { template, count }, ctx);
    }

    fn not_started(&mut self) {
        if let Some((template, size, count)) = self.kept.starts.take() {
            self.herd.do_send(CloudReport::NotStarted { template, size, count });
        }
    }

    fn report_all(&self, command: impl Fn() -> TemplateCommand) {
        for address in self.templates.values() {
            address.do_send(command());
        }
    }

    /// Hands agents to their templates; a template that is not configured is started for them.
    fn adopt(&mut self, ctx: &mut Context<Self>) {
        let mut of: BTreeMap<TemplateId, Vec<Adoption>> = BTreeMap::new();
        for adoption in self.kept.adopt.clone() {
            of.entry(adoption.entry.spec.id.clone()).or_default().push(adoption);
        }
        for (id, adoptions) in of {
            let Some(first) = adoptions.first() else { continue };
            let known = self.templates.get(&id).cloned();
            // It may be configured again before its agents are gone: then it needs its lanes.
            let lanes = self.lanes.clone().filter(|_| known.is_none());
            let address = known.unwrap_or_else(|| {
                let spec = Arc::new((*first.entry.spec).clone());
                self.begin_template(spec, false, ctx)
            });
            for _ in &adoptions {
                let standing = Standing::Coming;
                self.step(Event::Found { template: id.clone(), standing });
            }
            self.adopting.insert(id);
            address.do_send(TemplateCommand::Adopt(adoptions));
            if let Some(lanes) = lanes {
                address.do_send(TemplateCommand::Lanes(lanes));
            }
        }
        self.kept.adopt.clear();
    }

    fn news(&mut self, news: Box<TemplateNews>) {
        self.step(Event::News {
            template: news.template.clone(),
            live: news.live,
            released: news.released,
            over: news.empty && !news.configured,
        });
        if !news.empty {
            self.adopting.remove(&news.template);
        }
        let wanted = self.specs.contains_key(&news.template)
            || self.adopting.contains(&news.template)
            || news.configured;
        if news.empty
            && !wanted
            && let Some(address) = self.templates.remove(&news.template)
        {
            address.do_send(TemplateCommand::Leave);
        }
        self.herd.do_send(CloudReport::News(news));
        if self.mind.spec().is_none() && self.templates.is_empty() {
            self.herd.do_send(CloudReport::Empty(self.id.clone()));
        }
    }
}

impl Actor for Cloud {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        limit_turns(ctx);
        self.follow(ctx);
    }
}

impl Supervised for Cloud {
    /// Starts from the specs in force, the living agents and what templates were promised, and
    /// asks the cloud again.
    fn restarting(&mut self, ctx: &mut Context<Self>) {
        self.mind = self.mind.fresh();
        let id = self.id.clone();
        for living in self.common.roster.select(|living| living.template.cloud == id).values() {
            let (template, standing) = (living.template.clone(), living.status.standing);
            self.step(Event::Found { template, standing });
        }
        self.room_reported = None;
        self.shown = None;
        self.settling = false;
        self.operator = None;
        self.following = false;
        self.follow(ctx);
        if self.kept.reported.is_some() {
            self.apply(ctx);
        } else {
            self.adopt(ctx);
        }
        self.not_started();
        self.act(Event::Ask, ctx);
    }
}

impl Handler<CloudCommand> for Cloud {
    type Result = ();

    fn handle(&mut self, command: CloudCommand, ctx: &mut Context<Self>) {
        count_message(ctx);
        match command {
            CloudCommand::Apply { spec, templates, adopt } => {
                self.kept.adopt.extend(adopt);
                self.kept.reported = Some(Reported { spec, templates });
                self.apply(ctx);
            }
            CloudCommand::Lanes(lanes) => {
                self.report_all(|| TemplateCommand::Lanes(lanes.clone()));
                self.lanes = Some(lanes);
            }
            CloudCommand::Adopt(adoption) => {
                self.kept.adopt.push(adoption);
                self.adopt(ctx);
            }
            CloudCommand::Provision { template, size, count } => {
                self.provision(template, (size, count), ctx);
            }
            CloudCommand::Begin { template, count, purpose, reply } => {
                self.begin(template, count, (purpose, reply), ctx);
            }
            CloudCommand::Reap { all, reason, tally } => {
                let command =
                    || TemplateCommand::Reap { all, reason: reason.clone(), tally: tally.clone() };
                self.report_all(command);
            }
            CloudCommand::Suspect(fault) => {
                tracing::debug!(cloud = %self.id, error = %fault, "cloud is suspected");
                self.act(Event::Suspected(fault), ctx);
            }
            CloudCommand::AskAgain => self.act(Event::Ask, ctx),
            CloudCommand::ResetBreaker(template) => {
                if let Some(address) = self.templates.get(&template) {
                    address.do_send(TemplateCommand::ResetBreaker);
                }
            }
            CloudCommand::VersionBuilt(image) => {
                for (id, spec) in &self.specs {
                    let own =
                        self.templates.get(id).filter(|_| spec.image().as_ref() == Some(&image));
                    if let Some(address) = own {
                        address.do_send(TemplateCommand::VersionBuilt);
                    }
                }
            }
            CloudCommand::NodeOpened(node) => {
                self.report_all(|| TemplateCommand::NodeOpened(node.clone()));
            }
            CloudCommand::Stop => {
                self.step(Event::Stopped);
                self.report_all(|| TemplateCommand::Stop);
            }
            CloudCommand::Leave => {
                self.common.records.write_all(self.troubles.end());
                return ctx.stop();
            }
        }
        self.settle_soon(ctx);
    }
}

impl Handler<ToCloud> for Cloud {
    type Result = ();

    fn handle(&mut self, message: ToCloud, ctx: &mut Context<Self>) {
        count_message(ctx);
        match message {
            ToCloud::News(news) => self.news(news),
            ToCloud::WarmNeed { template, count } => {
                self.step(Event::WarmNeed { template, count });
            }
            ToCloud::Suspect(fault) => {
                tracing::warn!(cloud = %self.id, error = %fault, "agent blames its cloud");
                self.act(Event::Suspected(fault), ctx);
            }
        }
        self.settle_soon(ctx);
    }
}

impl Handler<Settle> for Cloud {
    type Result = ();

    fn handle(&mut self, _: Settle, ctx: &mut Context<Self>) {
        count_message(ctx);
        self.settling = false;
        self.settle(ctx);
    }
}
