//! The reconciler actor, one per cluster: reads one list of all guests, carries out the
//! [`plan`], and tells the herd what it found.

mod images;
mod offline;
pub mod plan;
mod preview;
pub mod watch;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, Recipient,
    Supervised, WrapFuture,
};
use drover_model::fact::{Fact, What};
use drover_model::fault::Fault;
use drover_model::id::{AgentId, CloudId, ClusterId, NodeName, VmId};
use drover_model::marks::Marks;
use drover_model::ports::{IdStatus, Survey, VmObservation, VmRef};
use drover_model::record::Body;
use drover_model::spec::CloudSpec;
use futures_util::StreamExt as _;
use tokio::sync::mpsc::UnboundedSender;

use crate::birth::Common;
use crate::cluster::{Cluster, ClusterCommand};
use crate::message::AgentCommand;
use crate::restraint::Cause;
use drover_model::finding::{Does, Finding, Outcome};
use drover_runtime::supervise::{count_message, limit_turns};
use plan::{Config, Known, Memory, Plan};

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
    /// Reconcile at once, and tell the findings, or why the cluster could not be read.
    Resync(Tally),
    /// Look and judge as a reconciliation does, change nothing, and tell what it would do.
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
    common: Common,
    id: ClusterId,
    cluster: Addr<Cluster>,
    herd: Recipient<OrphanFound>,
    clouds: BTreeMap<CloudId, Arc<CloudSpec>>,
    /// Those that led here and do not now.
    dropped: BTreeSet<CloudId>,
    /// Outlives the actor, as the journal does that is older than the world.
    memory: Rc<RefCell<Memory>>,
    running: bool,
    again: bool,
    waiting: Vec<Tally>,
    /// Asked while one was running: told the findings of the one after it.
    next: Vec<Tally>,
    /// Stamps reconciliations: timers set before a newer one are stale.
    round: u64,
    watch: watch::Watch,
}

/// What a look brought back, and what a check did.
type Looked<F> = (VmId, NodeName, Result<VmObservation, F>);
type Checked = (AgentId, VmId, Result<IdStatus, Fault>);
/// What the looks and checks of a plan brought back.
type Answers = (Vec<Looked<Fault>>, Vec<Checked>);

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

/// Looks with their faults as text.
fn reported(looks: Vec<Looked<Fault>>) -> Vec<Looked<String>> {
    let text = |(vmid, node, observation): Looked<Fault>| {
        (vmid, node, observation.map_err(|fault| fault.text))
    };
    looks.into_iter().map(text).collect()
}

/// What it comes to that a guest is not listed, now that its id was asked about.
fn checked(agent: &AgentId, vmid: VmId, observation: Result<IdStatus, Fault>) -> Option<Finding> {
    let (does, text) = match observation {
        Ok(IdStatus::Free) => (Does::Remove, format!("the guest of agent `{agent}` is gone")),
        Ok(IdStatus::Taken) => return None,
        Ok(IdStatus::Unknown) => {
            let text = format!("the guest of agent `{agent}` is not listed, and nobody can tell");
            (Does::Report, text)
        }
        Err(fault) => {
            (Does::Report, format!("the guest of agent `{agent}` is not listed: {fault}"))
        }
    };
    Some(Finding::of(does, vmid, text))
}

impl Reconciler {
    /// A reconciler without a way into its cluster yet, with what is to be remembered.
    pub fn new(
        common: Common,
        id: ClusterId,
        cluster: Addr<Cluster>,
        herd: Recipient<OrphanFound>,
        memory: Rc<RefCell<Memory>>,
    ) -> Self {
        Self {
            common,
            id,
            cluster,
            herd,
            clouds: BTreeMap::new(),
            dropped: BTreeSet::new(),
            memory,
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
            installation: self.common.installation.clone(),
            cluster: self.id.clone(),
            agents: self.common.roster.select(|_| true),
            last_seq: self.common.ports.journal.last_seq(),
            since: self.common.since,
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

    fn surveyed(&mut self, cloud: CloudId, survey: Survey, ctx: &mut Context<Self>) {
        // The roster is read after the list was: anyone who was granted an id before is in it.
        let now = self.common.ports.ambient.now().mono;
        self.watch_in(watch::PERIOD.saturating_sub(survey.age), ctx);
        if !survey.quorate {
            return self.end(Err(without_quorum(&cloud)), ctx);
        }
        let (known, config) = (self.known(), self.config());
        let plan = plan::plan(&survey, &known, config, &mut self.memory.borrow_mut(), now);
        self.obey_fences(&plan);
        self.common.sites.seen(&self.id, survey.nodes.iter().map(|(node, _)| node));
        let seen: BTreeSet<VmId> = survey.guests.iter().map(|guest| guest.vmid).collect();
        let nodes = survey.nodes.iter().map(|(node, _)| node.clone()).collect();
        let all_online = survey.nodes.iter().all(|(_, online)| *online);
        let through = all_online.then(|| (cloud.clone(), nodes));
        self.cluster.do_send(ClusterCommand::Surveyed { seen, through });
        self.follow(&plan);
        let templates = templates(&survey);
        let named = images::named(&survey, &self.common.installation);
        let answers = self.ask(&cloud, &plan);
        let mut findings = plan.findings;
        findings.extend(self.common.restraint.why().map(Finding::reported));
        ctx.spawn(answers.into_actor(self).map(move |(looks, checks), actor, ctx| {
            let looks = reported(looks);
            actor.learn(&looks);
            for (vmid, node, observation) in looks {
                findings.extend(actor.looked(&cloud, vmid, node, observation, &templates));
            }
            for (agent, vmid, observation) in checks {
                if matches!(observation, Ok(IdStatus::Free)) {
                    actor.common.roster.send(&agent, AgentCommand::Vanished);
                }
                findings.extend(checked(&agent, vmid, observation));
            }
            actor.sweep_images(&cloud, named, findings, ctx);
        }));
    }

    fn ask(&self, cloud: &CloudId, plan: &Plan) -> impl Future<Output = Answers> + use<> {
        let hypervisor = self.common.ports.hypervisor.clone();
        let looks: Vec<_> = plan
            .looks
            .iter()
            .map(|(vmid, node)| {
                let vm = VmRef { cloud: cloud.clone(), node: node.clone(), vmid: *vmid };
                let look = hypervisor.look(&vm);
                async move { (vm.vmid, vm.node, look.await) }
            })
            .collect();
        let checks: Vec<_> = plan
            .checks
            .iter()
            .map(|(agent, vmid)| {
                let (agent, vmid) = (agent.clone(), *vmid);
                let check = hypervisor.id_taken(cloud, vmid);
                async move { (agent, vmid, check.await) }
            })
            .collect();
        async move {
            let looks = futures_util::stream::iter(looks).buffered(AT_ONCE).collect().await;
            let checks = futures_util::stream::iter(checks).buffered(AT_ONCE).collect().await;
            (looks, checks)
        }
    }

    /// Writes down that the journal is older than the world, where a look says so.
    fn learn(&mut self, looks: &[Looked<String>]) {
        let known = self.known();
        for (vmid, _, observation) in looks {
            if !self.memory.borrow_mut().learn(*vmid, observation, &known) {
                continue;
            }
            let Some((vmid, seq)) = self.memory.borrow().ahead() else { continue };
            tracing::error!(cluster = %self.id, vmid = vmid.0, seq, "journal is older than the world");
            self.restrain((vmid, seq));
        }
        for (vmid, _, observation) in looks {
            let Some(marks) = plan::young(*vmid, observation, &known) else { continue };
            let own = self.common.roster.knew(&marks.agent);
            if own || !self.memory.borrow_mut().foreign(marks) {
                continue;
            }
            tracing::error!(
                cluster = %self.id, vmid = vmid.0, agent = %marks.agent,
                "another drover uses this installation"
            );
            self.restrain((*vmid, marks.seq));
        }
    }

    /// Heeds fences that another drover has set.
    fn obey_fences(&self, plan: &Plan) {
        for vmid in &plan.fenced {
            if self.memory.borrow_mut().fenced(*vmid) {
                tracing::error!(cluster = %self.id, vmid = vmid.0, "another drover retires a guest");
                self.restrain((*vmid, 0));
            }
        }
    }

    /// Another drover may own what lives now: none of it is destroyed, also after a start, before an
    /// operator has decided.
    fn restrain(&self, (vmid, seq): (VmId, u64)) {
        let agents = self.common.roster.select(|_| true).into_keys();
        let cause = Cause::Guests(self.id.clone());
        self.common.restraint.hold(cause, &restrained(vmid), agents);
        self.common.records.write(Body::MarksAhead { cluster: self.id.clone(), vmid, seq });
    }

    fn looked(
        &mut self,
        cloud: &CloudId,
        vmid: VmId,
        node: NodeName,
        observation: Result<VmObservation, String>,
        templates: &BTreeSet<VmId>,
    ) -> Option<Finding> {
        let now = self.common.ports.ambient.now().mono;
        let found = observation.as_ref().ok().and_then(|observation| observation.node.clone());
        let (known, config) = (self.known(), self.config());
        let template = templates.contains(&vmid);
        let judged = {
            let memory = &mut self.memory.borrow_mut();
            plan::judge(vmid, &observation, template, &known, config, memory, now)
        };
        if let Some(marks) = judged.destroy {
            let (cloud, node) = (cloud.clone(), found.unwrap_or(node));
            self.herd.do_send(OrphanFound { cloud, node, marks });
        }
        judged.finding
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
        self.memory.borrow_mut().restart();
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
                let storages = spec.image_storages.iter().cloned();
                self.memory.borrow_mut().image_storages.extend(storages);
                let first = self.clouds.is_empty();
                self.dropped.remove(&spec.id);
                let known = self.clouds.insert(spec.id.clone(), spec.clone());
                if first || known.is_some_and(|old| old != spec) {
                    self.begin(ctx);
                }
            }
            ReconcilerCommand::Drop(cloud) => {
                self.clouds.remove(&cloud);
                self.dropped.insert(cloud);
            }
            ReconcilerCommand::Resync(tally) => {
                self.memory.borrow_mut().look_again();
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
                if self.memory.borrow_mut().confirm() {
                    tracing::warn!(cluster = %self.id, "operator confirmed an older journal");
                    let cluster = self.id.clone();
                    self.common.records.write(Body::AheadConfirmed { cluster });
                }
            }
            ReconcilerCommand::Leave => ctx.stop(),
        }
    }
}
