//! The cloud actor: one configured way into a cluster. It asks who the cluster is, keeps the cap
//! over its templates, and stands between them and the herd; see [`state`].

mod asking;
mod counts;
pub mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use actix::{
    Actor, ActorContext, Addr, AsyncContext, Context, Handler, Message, Recipient, Supervised,
};
use drover_model::ambient::jittered;
use drover_model::fact::{Fact, What};
use drover_model::fault::Fault;
use drover_model::id::{CloudId, ClusterId, TemplateId};
use drover_model::journal_state::BreakerEntry;
use drover_model::record::{Reason, Troubled};
use drover_model::spec::{CloudSpec, TemplateSpec};
use drover_model::status::Standing;
use drover_model::time::Moment;
use tokio::sync::mpsc::UnboundedSender;

use crate::birth::{Adoption, Common, Lanes, Rank, spawn_child};
use crate::breaker::Breaker;
use crate::message::{ProvisionReply, Refusal};
use crate::template::{Template, TemplateCommand, TemplateNews, ToCloud};
use drover_runtime::supervise::{count_message, limit_turns};
use state::{CloudMind, Effect};

/// To a cloud, from the herd.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub enum CloudCommand {
    /// A spec and its templates come into force; no spec when the cloud left the configuration.
    Apply {
        /// The cloud's own spec.
        spec: Option<Arc<CloudSpec>>,
        /// Its templates.
        templates: BTreeMap<TemplateId, Arc<TemplateSpec>>,
        /// Agents to take over before anything is started.
        adopt: Vec<Adoption>,
    },
    /// The ways to its cluster.
    Lanes(Lanes),
    /// Take over an orphan.
    Adopt(Adoption),
    /// Begin agents for demand.
    Provision {
        /// Of which template.
        template: TemplateId,
        /// How many.
        count: u32,
    },
    /// Begin agents because an operator says so.
    Begin {
        /// Of which template.
        template: TemplateId,
        /// How many.
        count: u32,
        /// Whether they are on trial.
        trial: bool,
        /// Filled with what came of it.
        reply: ProvisionReply,
    },
    /// Let idle agents go.
    Reap {
        /// Whether the warm minimum goes too.
        all: bool,
        /// Why.
        reason: Reason,
        /// Told a number by each template.
        tally: Option<UnboundedSender<u32>>,
    },
    /// An answer that came through it speaks against it: ask at once whether it still works.
    Suspect(Fault),
    /// What is known of its cluster has changed: ask at once who it is.
    AskAgain,
    /// An operator says that a template works again.
    ResetBreaker(TemplateId),
    /// The service stops: begin nothing.
    Stop,
    /// The actor is not needed any more.
    Leave,
}

/// From a cloud to the herd.
#[derive(Debug, Clone, PartialEq, Message)]
#[rtype(result = "()")]
pub enum CloudReport {
    /// How many agents it has room for.
    Room {
        /// The cloud.
        cloud: CloudId,
        /// How many.
        room: u32,
    },
    /// A template's news.
    News(Box<TemplateNews>),
    /// Starts that did not reach the template: there was no room.
    NotStarted {
        /// The template.
        template: TemplateId,
        /// How many.
        count: u32,
    },
    /// Its cluster could not learn from it whether an id is free.
    Silent(CloudId),
    /// It works, and leads to this cluster.
    Leads {
        /// The cloud.
        cloud: CloudId,
        /// The cluster.
        cluster: ClusterId,
    },
    /// It leads to this cluster, and not to its own: nothing is done there.
    Elsewhere {
        /// The cloud.
        cloud: CloudId,
        /// The cluster it leads to now.
        cluster: ClusterId,
    },
    /// It was tried: its version, or why it cannot be worked with.
    Tried {
        /// The cloud.
        cloud: CloudId,
        /// The outcome.
        outcome: Result<String, String>,
    },
    /// It is not configured, and its last agent is gone.
    Empty(CloudId),
}

/// The actor of one cloud.
pub struct Cloud {
    common: Common,
    herd: Recipient<CloudReport>,
    id: CloudId,
    mind: CloudMind,
    lanes: Option<Lanes>,
    breakers: BTreeMap<TemplateId, BreakerEntry>,
    templates: BTreeMap<TemplateId, Addr<Template>>,
    specs: BTreeMap<TemplateId, Arc<TemplateSpec>>,
    /// Templates that were sent an agent to adopt and have not told of it yet.
    adopting: BTreeSet<TemplateId>,
    /// Stamps identifications: answers to older ones are dropped.
    asking: u64,
    /// Whether one is under way.
    in_question: bool,
    /// When a suspicion had it asked last.
    suspected_at: Option<Moment>,
    /// Whether it was suspected while one was under way: that answer may be older than its cause.
    suspected: bool,
    /// Whether it will hear of a change of what keeps clones back.
    following: bool,
    room_reported: Option<u32>,
    shown: Option<What>,
    /// Whether it will settle at the end of this turn.
    settling: bool,
    kept: Kept,
}

/// To itself: settle, once for all messages that were waiting.
#[derive(Message)]
#[rtype(result = "()")]
struct Settle;

/// What it was told and has not carried out yet: kept for a new incarnation.
#[derive(Default)]
struct Kept {
    /// A configuration that is coming into force.
    reported: Option<Reported>,
    /// Templates that were started for it and do not know their cluster yet.
    started: BTreeSet<TemplateId>,
    /// Agents to hand to their templates.
    adopt: Vec<Adoption>,
    /// Starts that were not passed on.
    starts: Option<(TemplateId, u32)>,
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
        common: Common,
        herd: Recipient<CloudReport>,
        id: CloudId,
        pinned: Option<ClusterId>,
        breakers: BTreeMap<TemplateId, BreakerEntry>,
    ) -> Self {
        Self {
            mind: {
                let of = Troubled::Cloud { cloud: id.clone() };
                let mind = CloudMind::new(id.clone(), None, pinned);
                mind.degraded_from(common.troubles.since(&of))
            },
            common,
            herd,
            id,
            lanes: None,
            breakers,
            templates: BTreeMap::new(),
            specs: BTreeMap::new(),
            adopting: BTreeSet::new(),
            asking: 0,
            in_question: false,
            suspected_at: None,
            suspected: false,
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

    /// Brings what it was told into force; what was done of it before a panic does no harm.
    fn apply(&mut self, ctx: &mut Context<Self>) {
        let Some(Reported { spec, templates }) = self.kept.reported.clone() else { return };
        let ask = self.mind.apply(spec);
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
        if ask {
            self.ask(ctx);
        } else if self.mind.spec().is_none() && self.templates.is_empty() {
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
        let (common, cloud) = (self.common.clone(), ctx.address().recipient());
        let address = spawn_child(&self.common, Rank::Leaf, &format!("template {id}"), move |_| {
            Template::new(common, cloud, spec, configured, breaker)
        });
        self.templates.insert(id, address.clone());
        address
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
                Effect::AskAgain(wait) => {
                    self.tried();
                    self.ask_in(jittered(wait, self.common.ports.ambient.draw()), ctx);
                }
            }
        }
        self.settle_soon(ctx);
    }

    fn settle_soon(&mut self, ctx: &mut Context<Self>) {
        if !self.settling {
            self.settling = true;
            ctx.notify(Settle);
        }
    }

    /// Serves warm pools while there is room, and tells what changed.
    fn settle(&mut self) {
        for (template, reserved) in self.mind.warm_grants() {
            if let Some(address) = self.templates.get(&template) {
                address.do_send(TemplateCommand::Begin { reserved, asked: None });
            }
        }
        self.report_room();
        let of = Troubled::Cloud { cloud: self.id.clone() };
        self.common.troubles.set(of, self.mind.degraded_since());
        let now = self.common.ports.ambient.now().mono;
        let doubt = self.common.doubts.held_back(&self.id, self.mind.pinned(), now);
        let status = self.mind.status(doubt);
        if self.shown.as_ref() != Some(&status) {
            self.shown = Some(status.clone());
            let at = self.common.ports.ambient.now().wall;
            self.common.ports.observer.observe(Fact { at, what: status });
        }
    }

    fn report_room(&mut self) {
        let room = self.mind.room();
        if self.room_reported != Some(room) {
            self.room_reported = Some(room);
            self.herd.do_send(CloudReport::Room { cloud: self.id.clone(), room });
        }
    }

    fn provision(&mut self, template: TemplateId, count: u32) {
        self.kept.starts = Some((template.clone(), count));
        let address = self.templates.get(&template);
        let reserved = address.map_or(0, |_| self.mind.reserve(&template, count));
        match address.filter(|_| reserved > 0) {
            // What is not reserved is answered with the rest: the herd sees the room left.
            Some(address) => {
                address.do_send(TemplateCommand::Begin { reserved, asked: Some(count) });
                self.kept.starts = None;
            }
            None => {
                // Before the herd hears that it was refused: else it would ask for the same.
                self.room_reported = None;
                self.report_room();
                self.not_started();
            }
        }
    }

    /// Begins what an operator wants, as far as the caps go.
    fn begin(&mut self, template: &TemplateId, count: u32, trial: bool, reply: ProvisionReply) {
        let Some(address) = self.templates.get(template) else {
            let text =
                format!("nothing was begun: template `{template}` is not configured any more");
            reply.send(Err(Refusal::Unavailable(text)));
            return;
        };
        let reserved = self.mind.reserve(template, count);
        let short = (reserved < count).then(|| self.mind.shortage());
        address.do_send(TemplateCommand::Provision { reserved, short, trial, reply });
    }

    fn not_started(&mut self) {
        if let Some((template, count)) = self.kept.starts.take() {
            self.herd.do_send(CloudReport::NotStarted { template, count });
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
                self.mind.found(&id, Standing::Coming);
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
        self.mind.news(&news);
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
            self.mind.found(&living.template, living.status.standing);
        }
        self.room_reported = None;
        self.shown = None;
        self.settling = false;
        self.following = false;
        self.follow(ctx);
        if self.kept.reported.is_some() {
            self.apply(ctx);
        } else {
            self.adopt(ctx);
        }
        self.not_started();
        self.ask(ctx);
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
            CloudCommand::Provision { template, count } => self.provision(template, count),
            CloudCommand::Begin { template, count, trial, reply } => {
                self.begin(&template, count, trial, reply);
            }
            CloudCommand::Reap { all, reason, tally } => {
                let command =
                    || TemplateCommand::Reap { all, reason: reason.clone(), tally: tally.clone() };
                self.report_all(command);
            }
            CloudCommand::Suspect(fault) => {
                tracing::debug!(cloud = %self.id, error = %fault, "cloud is suspected");
                self.suspect(&fault, ctx);
            }
            CloudCommand::AskAgain => self.ask(ctx),
            CloudCommand::ResetBreaker(template) => {
                if let Some(address) = self.templates.get(&template) {
                    address.do_send(TemplateCommand::ResetBreaker);
                }
            }
            CloudCommand::Stop => {
                self.mind.stop();
                self.report_all(|| TemplateCommand::Stop);
            }
            CloudCommand::Leave => return ctx.stop(),
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
            ToCloud::WarmNeed { template, count } => self.mind.warm_need(&template, count),
            ToCloud::Suspect(fault) => {
                tracing::warn!(cloud = %self.id, error = %fault, "agent blames its cloud");
                self.suspect(&fault, ctx);
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
        self.settle();
    }
}
