//! The reconciler actor, one per cluster: it compares one list of all guests with what drover knows,
//! and sets right what differs.
//!
//! It owns its `Memory` (`plan.rs`), which decides everything (`mind.rs`, `transitions.txt`), and
//! the timers of reconciliations and of the watch. The actor only reads, and carries effects out.
//!
//! - In: [`ReconcilerCommand`] from the herd; lists, looks and answers from the hypervisor port.
//! - Out: [`OrphanFound`] to the herd, `AgentCommand` to agents, `ClusterCommand` to the cluster,
//!   findings to operators and to the observer.
//!
//! ```text
//! list ──▶ Listed ──▶ looks, checks ──▶ Answered ──▶ images ──▶ Images ──▶ removals ──▶ end
//!   └ unread or without quorum: the round ends, and nothing follows from it
//! ```
//!
//! Failure paths: a list that cannot be read ends the round with the reason; a look that fails
//! becomes a finding, and the next round looks again; a panic forgets what was seen, so that graces
//! start again, and keeps that the journal is older than the world.
//!
//! Beside it: `plan.rs` (a list set against what is known), `judge.rs` (what a look proves),
//! `images.rs` (leftover disc images), `offline.rs` (nodes), `unlisted.rs` (ids that the watch asks
//! about), `watch.rs` and `preview.rs` (the other two users of the list), `finding.rs`.

mod images;
mod judge;
mod mind;
mod offline;
pub(crate) mod plan;
mod preview;
mod unlisted;
mod watch;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, Recipient,
    Supervised, WrapFuture,
};
use drover_model::container::GuestType;
use drover_model::fact::{Fact, What};
use drover_model::fault::Fault;
use drover_model::id::{AgentId, CloudId, ClusterId, NodeName, VmId};
use drover_model::marks::{Marks, Reading};
use drover_model::ports::{ImageObservation, Survey, VmRef};
use drover_model::record::Body;
use drover_model::spec::CloudSpec;
use drover_model::state_machine::StateMachine as _;
use futures_util::StreamExt as _;
use tokio::sync::mpsc::UnboundedSender;

use crate::birth::Common;
use crate::cluster::{Cluster, ClusterCommand};
use crate::restraint::Cause;
use crate::shared::role;
use crate::troubles::Troubles;
use drover_model::finding::{Finding, Outcome};
use drover_runtime::supervise::{count_message, limit_turns};
use mind::{Answers, Checked, Effect, Event, Looked, Purpose, Round, Sign};
use plan::{Config, Known, Memory};

/// Looks and checks at once.
const AT_ONCE: usize = 8;

/// Where the outcome of a wanted reconciliation goes.
pub type Tally = UnboundedSender<(ClusterId, Outcome<String>)>;

/// Where the plan of the reconciliation that would be next goes.
pub type Plans = UnboundedSender<(ClusterId, Outcome<Finding>)>;

/// To a reconciler, from the herd.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub enum ReconcilerCommand {
    /// A cloud leads here and works, or its spec changed.
    Use(Arc<CloudSpec>),
    /// A cloud left the configuration, or does not work.
    Drop(CloudId),
    /// The builds of images whose guests are known.
    Builds(BTreeSet<AgentId>),
    /// Reconcile at once, and report the findings, or why the cluster could not be read.
    Resync(Tally),
    /// Look and judge as a reconciliation does, change nothing, and report what it would do.
    Preview(Plans),
    /// An operator knows that the journal is older than the world: orphans may go all the same.
    ConfirmAhead,
    /// The actor is not needed any more.
    Leave,
}

/// To the herd: a true orphan whose time has come.
#[derive(Debug, Clone, PartialEq, Message)]
#[rtype(result = "()")]
pub struct OrphanFound {
    /// The cloud it was seen through.
    pub cloud: CloudId,
    /// Where it is.
    pub node: NodeName,
    /// Its marks, read just before.
    pub marks: Box<Marks>,
}

/// The actor that reconciles one cluster.
pub struct Reconciler {
    common: Common<role::Reconciler>,
    id: ClusterId,
    cluster: Addr<Cluster>,
    herd: Recipient<OrphanFound>,
    clouds: BTreeMap<CloudId, Arc<CloudSpec>>,
    /// Those that led here and do not now.
    dropped: BTreeSet<CloudId>,
    /// Builds of images whose guests are known.
    builds: BTreeSet<AgentId>,
    /// Outlives the actor, as the journal does that is older than the world.
    memory: Rc<RefCell<Memory>>,
    /// Since when nodes are offline, as the journal knows.
    troubles: Troubles,
    running: bool,
    again: bool,
    waiting: Vec<Tally>,
    /// Asked while one was running: they get the findings of the one after it.
    next: Vec<Tally>,
    /// Stamps reconciliations: timers set before a newer one are stale.
    round: u64,
    watch: watch::Watch,
}

/// What the effects of one event leave for the actor to wait for.
#[derive(Default)]
struct Follows {
    looks: Vec<(VmId, NodeName)>,
    checks: Vec<(AgentId, VmId)>,
    images: Vec<ImageObservation>,
    findings: Vec<Finding>,
    without_quorum: bool,
}

/// Why the list of a cluster is missing.
fn unread(cloud: &CloudId, fault: &Fault) -> String {
    format!("cloud {cloud}: the list could not be read: {fault}")
}

/// Why the list of a cluster is not used.
fn without_quorum(cloud: &CloudId) -> String {
    format!(
        "cloud {cloud}: the cluster has no quorum, and nothing follows from its list (`pvecm \
         status` on a node says who is missing)"
    )
}

/// Why agents are not destroyed where a guest speaks for another drover.
pub(crate) fn restrained(vmid: VmId) -> String {
    format!(
        "guest {vmid} shows that another drover uses this installation, or that the journal is an \
         old copy: drover destroys none of the agents that lived when it noticed; stop the other \
         one, then run `drover resync --confirm-older-journal` here"
    )
}

fn templates(survey: &Survey) -> BTreeSet<VmId> {
    survey.guests.iter().filter(|guest| guest.template).map(|guest| guest.vmid).collect()
}

/// The containers in a list; their configurations have a path of their own.
fn containers(survey: &Survey) -> BTreeSet<VmId> {
    survey.guests.iter().filter(|guest| guest.container).map(|guest| guest.vmid).collect()
}

impl Reconciler {
    /// A reconciler without a way into its cluster yet, with what it remembers.
    pub(crate) fn new(
        common: Common<role::Reconciler>,
        id: ClusterId,
        cluster: Addr<Cluster>,
        herd: Recipient<OrphanFound>,
        memory: Rc<RefCell<Memory>>,
        troubles: Troubles,
    ) -> Self {
        Self {
            common,
            id,
            cluster,
            herd,
            clouds: BTreeMap::new(),
            dropped: BTreeSet::new(),
            builds: BTreeSet::new(),
            memory,
            troubles,
            running: false,
            again: false,
            waiting: Vec::new(),
            next: Vec::new(),
            round: 0,
            watch: watch::Watch::default(),
        }
    }

    /// Everything it holds, as text.
    #[cfg(test)]
    pub(crate) fn held(&self) -> String {
        let waiting = (self.waiting.len(), self.next.len());
        format!("{:?} {:?} {waiting:?}", self.clouds.keys(), self.memory.borrow())
    }

    fn config(&self) -> Config {
        let all = || self.clouds.values();
        Config {
            // What another drover may own is not cleaned up.
            cleanup_orphans: all().all(|spec| spec.cleanup_orphans)
                && self.common.restraint.why().is_none(),
            orphan_grace: all().map(|spec| spec.orphan_grace).max().unwrap_or_default(),
            node_grace: all().map(|spec| spec.node_grace).max().unwrap_or_default(),
        }
    }

    fn known(&self) -> Known {
        Known {
            installation: self.common.run.installation.clone(),
            cluster: self.id.clone(),
            agents: self.common.roster.select(|_| true),
            builds: self.builds.clone(),
            last_seq: self.common.ports.journal.last_seq(),
            since: self.common.run.since,
        }
    }

    /// Why nothing can be read.
    fn no_way(&self) -> String {
        self.common.doubts.no_way(self.dropped.iter())
    }

    fn begin(&mut self, ctx: &mut Context<Self>) {
        self.round += 1;
        if self.running {
            self.again = true;
            return;
        }
        let Some(cloud) = self.clouds.keys().next().cloned() else {
            return self.end(Err(self.no_way()), ctx);
        };
        self.running = true;
        // Somebody who waits for the findings wants to see what is there now.
        let within = if self.waiting.is_empty() { watch::PERIOD } else { Duration::ZERO };
        let answer = self.common.ports.hypervisor.survey(&cloud, within);
        ctx.spawn(answer.into_actor(self).map(move |survey, actor, ctx| match survey {
            Ok(survey) => actor.surveyed(cloud, survey, ctx),
            Err(fault) => {
                let why = unread(&cloud, &fault);
                actor.cluster.do_send(ClusterCommand::Unread(cloud));
                actor.end(Err(why), ctx);
            }
        }));
    }

    fn round(&self, purpose: Purpose) -> Box<Round> {
        Box::new(Round { purpose, known: self.known(), config: self.config() })
    }

    /// Takes an event in, and carries out what follows from it but for reads and removals.
    fn step(&mut self, cloud: Option<&CloudId>, event: Event) -> Follows {
        let ambient = &self.common.ports.ambient;
        let effects = self.memory.borrow_mut().effects_by(event, || ambient.now(), 0);
        let mut follows = Follows::default();
        for effect in effects {
            self.carry_out(effect, cloud, &mut follows);
        }
        follows
    }

    fn carry_out(&mut self, effect: Effect, cloud: Option<&CloudId>, follows: &mut Follows) {
        match effect {
            Effect::Restrain { vmid, seq, sign } => self.restrain(vmid, seq, &sign),
            Effect::Share { seen, nodes, all_online } => {
                self.common.sites.seen(&self.id, nodes.iter());
                let through = cloud.filter(|_| all_online).map(|cloud| (cloud.clone(), nodes));
                self.cluster.do_send(ClusterCommand::Surveyed { seen, through });
            }
            Effect::Offline(spans) => {
                let now = self.common.ports.ambient.now().wall;
                let bodies = self.troubles.set_offline(&self.id, &spans, now);
                self.common.sites.are_offline(&self.id, self.troubles.offline_since(&self.id));
                self.common.records.write_all(bodies);
            }
            Effect::Follow(agent, node) => self.common.roster.moved(&agent, node),
            Effect::Send(agent, command) => drop(self.common.roster.send(&agent, command)),
            Effect::Look(vmid, node) => follows.looks.push((vmid, node)),
            Effect::Check(agent, vmid) => follows.checks.push((agent, vmid)),
            Effect::Found(finding) => follows.findings.push(finding),
            Effect::Destroy(node, marks) => {
                if let Some(cloud) = cloud.cloned() {
                    self.herd.do_send(OrphanFound { cloud, node, marks });
                }
            }
            Effect::RemoveImage(image) => follows.images.push(image),
            Effect::Confirmed => {
                tracing::warn!(cluster = %self.id, "operator confirmed an older journal");
                let cluster = self.id.clone();
                self.common.records.write(Body::AheadConfirmed { cluster });
            }
            Effect::NoQuorum => follows.without_quorum = true,
        }
    }

    fn surveyed(&mut self, cloud: CloudId, survey: Survey, ctx: &mut Context<Self>) {
        self.watch_in(watch::PERIOD.saturating_sub(survey.age), ctx);
        let (templates, containers) = (templates(&survey), containers(&survey));
        let named = images::named(&survey, &self.common.run.installation);
        let event = Event::Listed(self.round(Purpose::Reconcile), survey);
        let mut follows = self.step(Some(&cloud), event);
        if follows.without_quorum {
            return self.end(Err(without_quorum(&cloud)), ctx);
        }
        let answers = self.ask(&cloud, follows.looks, follows.checks, &containers);
        let mut findings = std::mem::take(&mut follows.findings);
        findings.extend(self.common.restraint.why().map(Finding::reported));
        ctx.spawn(answers.into_actor(self).map(move |(looks, checks), actor, ctx| {
            let lived = actor.lived(&looks);
            let answers = Answers { looks, checks, templates, lived };
            let event = Event::Answered(actor.round(Purpose::Reconcile), answers);
            findings.extend(actor.step(Some(&cloud), event).findings);
            actor.sweep_images(&cloud, named, findings, ctx);
        }));
    }

    /// Reads guests and asks about ids, some at a time.
    fn ask(
        &self,
        cloud: &CloudId,
        looks: Vec<(VmId, NodeName)>,
        checks: Vec<(AgentId, VmId)>,
        containers: &BTreeSet<VmId>,
    ) -> impl Future<Output = (Vec<Looked>, Vec<Checked>)> + use<> {
        let hypervisor = self.common.ports.hypervisor.clone();
        let look = |(vmid, node): (VmId, NodeName)| {
            let guest = GuestType::of_listed(containers.contains(&vmid));
            let vm = VmRef { cloud: cloud.clone(), node, vmid, guest };
            let look = hypervisor.look(&vm);
            async move { (vm.vmid, vm.node, look.await.map_err(|fault| fault.text)) }
        };
        let looks: Vec<_> = looks.into_iter().map(look).collect();
        let check = |(agent, vmid): (AgentId, VmId)| {
            let check = hypervisor.id_taken(cloud, vmid);
            async move { (agent, vmid, check.await) }
        };
        let checks: Vec<_> = checks.into_iter().map(check).collect();
        async move {
            let looks = futures_util::stream::iter(looks).buffered(AT_ONCE).collect().await;
            let checks = futures_util::stream::iter(checks).buffered(AT_ONCE).collect().await;
            (looks, checks)
        }
    }

    /// The agents that looks name and that lived in this start of the service.
    fn lived(&self, looks: &[Looked]) -> BTreeSet<AgentId> {
        let named = looks.iter().filter_map(|(_, _, observation)| {
            match observation.as_ref().ok()?.marks.as_ref()? {
                Reading::Marked(marks) => Some(&marks.agent),
                Reading::Unmarked | Reading::Damaged(_) => None,
            }
        });
        named.filter(|agent| self.common.roster.knew(agent)).cloned().collect()
    }

    /// Another drover may own what lives now: none of it is destroyed, also after a start, before an
    /// operator has decided.
    fn restrain(&self, vmid: VmId, seq: u64, sign: &Sign) {
        let (cluster, guest) = (&self.id, vmid.0);
        match sign {
            Sign::OlderJournal => {
                tracing::error!(%cluster, vmid = guest, seq, "journal is older than the world");
            }
            Sign::OthersAgent(agent) => tracing::error!(
                %cluster, vmid = guest, %agent, "another drover uses this installation"
            ),
            Sign::OthersFence => {
                tracing::error!(%cluster, vmid = guest, "another drover retires a guest");
            }
        }
        let agents = self.common.roster.select(|_| true).into_keys();
        let cause = Cause::Guests(self.id.clone());
        self.common.restraint.hold(cause, &restrained(vmid), agents);
        self.show_signs();
        self.common.records.write(Body::MarksAhead { cluster: self.id.clone(), vmid, seq });
    }

    /// Shows people what speaks for another drover.
    fn show_signs(&self) {
        let at = self.common.ports.ambient.now().wall;
        let what = What::OtherDrover { why: self.common.restraint.signs() };
        self.common.ports.observer.observe(Fact { at, what });
    }

    fn end(&mut self, found: Outcome<Finding>, ctx: &mut Context<Self>) {
        self.running = false;
        let found: Outcome<String> =
            found.map(|all| all.into_iter().map(|found| found.text).collect());
        for finding in found.iter().flatten() {
            tracing::info!(cluster = %self.id, finding, "reconciliation found something");
        }
        for tally in self.waiting.drain(..) {
            // An error: nobody waits for the findings any more.
            tally.send((self.id.clone(), found.clone())).ok();
        }
        let at = self.common.ports.ambient.now().wall;
        let (findings, unread) = match found {
            Ok(findings) => (findings, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        let what = What::Reconciled { cluster: self.id.clone(), findings, unread };
        self.common.ports.observer.observe(Fact { at, what });
        if std::mem::take(&mut self.again) {
            self.waiting = std::mem::take(&mut self.next);
            return self.begin(ctx);
        }
        let period = self.clouds.values().map(|spec| spec.reconcile_period).min();
        if let Some(period) = period.filter(|period| !period.is_zero()) {
            let round = self.round;
            ctx.run_later(period, move |actor, ctx| {
                if round == actor.round {
                    actor.begin(ctx);
                }
            });
        }
    }
}

impl Actor for Reconciler {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        limit_turns(ctx);
        self.watch_in(watch::PERIOD, ctx);
    }
}

impl Supervised for Reconciler {
    /// Forgets what was seen of guests: their graces start again.
    fn restarting(&mut self, ctx: &mut Context<Self>) {
        self.step(None, Event::Restarted);
        self.waiting.append(&mut self.next);
        self.running = false;
        self.again = false;
        self.watch = watch::Watch::default();
        self.watch_in(watch::PERIOD, ctx);
        self.begin(ctx);
    }
}

impl Handler<ReconcilerCommand> for Reconciler {
    type Result = ();

    fn handle(&mut self, command: ReconcilerCommand, ctx: &mut Context<Self>) {
        count_message(ctx);
        match command {
            ReconcilerCommand::Use(spec) => {
                let storages = spec.image_storages.iter().cloned().collect();
                self.step(None, Event::ImageStorages(storages));
                let first = self.clouds.is_empty();
                self.dropped.remove(&spec.id);
                let known = self.clouds.insert(spec.id.clone(), spec.clone());
                if first || known.is_some_and(|old| old != spec) {
                    self.begin(ctx);
                }
            }
            ReconcilerCommand::Builds(builds) => self.builds = builds,
            ReconcilerCommand::Drop(cloud) => {
                self.clouds.remove(&cloud);
                self.dropped.insert(cloud);
            }
            ReconcilerCommand::Resync(tally) => {
                self.step(None, Event::LookAgain);
                if self.running {
                    self.again = true;
                    self.next.push(tally);
                } else {
                    self.waiting.push(tally);
                    self.begin(ctx);
                }
            }
            ReconcilerCommand::Preview(plans) => self.preview(plans, ctx),
            ReconcilerCommand::ConfirmAhead => {
                self.common.restraint.lift(&Cause::Guests(self.id.clone()));
                self.show_signs();
                self.step(None, Event::ConfirmAhead);
            }
            ReconcilerCommand::Leave => {
                self.common.records.write_all(self.troubles.end());
                ctx.stop();
            }
        }
    }
}
