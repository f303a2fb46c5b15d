//! Declared machines: a keeper for each that the configuration has, or that the journal knows.
//!
//! - A machine that leaves the configuration keeps its keeper for as long as it has a guest.
//! - A keeper that is over is followed by another one where the configuration has its machine.
//! - Reconcilers hear of the ids of machines before there is a guest, as of those of builds.

mod adopt;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use actix::{ActorFutureExt, Addr, AsyncContext, Context, Handler, WrapFuture};
use drover_model::ambient::mint_agent;
use drover_model::declared::DeclaredSpec;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{AgentId, CloudId, ClusterId, DeclaredName, VmId};
use drover_model::journal_state::{DeclaredEntry, JournalState};
use drover_model::phase::DeclaredPhase;
use drover_model::spec::{CloneStrategy, HerdSpec};
use drover_model::status::DeclaredStatus;
use drover_runtime::reply::Reply;
use drover_runtime::supervise::count_message;
use tokio::sync::oneshot;

use super::Herd;
use crate::birth::{Rank, spawn_child};
use crate::cluster::ImageIdAsk;
use crate::keeper::{Birth, Keeper, KeeperCommand, KeeperReport};
use crate::message::{IdBack, Refusal};

/// The keepers, by the names of their machines.
#[derive(Default)]
pub(super) struct Declared {
    kept: BTreeMap<DeclaredName, Kept>,
}

struct Kept {
    address: Addr<Keeper>,
    /// The id of its guest, once one may be made.
    id: Option<AgentId>,
    /// The cluster of that guest.
    cluster: Option<ClusterId>,
    /// Whether its disks share those of its template image.
    linked: bool,
    status: Option<DeclaredStatus>,
    /// The template image that the journal names; that of the status counts once there is one.
    source: Option<VmId>,
}

fn no_id(cloud: &CloudId) -> Fault {
    let text = format!("the cluster of cloud `{cloud}` gave no VMID");
    Fault::new(FaultKind::Contention, Culprit::Cloud(cloud.clone()), text)
}

fn is_linked(spec: &DeclaredSpec) -> bool {
    spec.template.clone == CloneStrategy::Linked
}

impl Declared {
    /// The ids of guests that are no orphans.
    pub(super) fn ids(&self) -> BTreeSet<AgentId> {
        self.kept.values().filter_map(|kept| kept.id.clone()).collect()
    }

    /// Whether a machine is called so.
    pub(super) fn has(&self, name: &str) -> bool {
        self.kept.contains_key(&DeclaredName::new(name))
    }

    /// The machines that wait for a template image of which there is no version.
    pub(super) fn without_image(&self) -> impl Iterator<Item = &DeclaredName> {
        let waits = |kept: &Kept| kept.status.as_ref().is_some_and(|status| status.lacks_image);
        self.kept.iter().filter(move |(_, kept)| waits(kept)).map(|(name, _)| name)
    }

    /// The template images on a cluster that machines hang on: their disks, or a clone that runs.
    pub(super) fn sources(&self, cluster: &ClusterId) -> BTreeSet<VmId> {
        let here = self.kept.values().filter(|kept| kept.cluster.as_ref() == Some(cluster));
        here.filter_map(|kept| {
            // Before its first report a clone may run.
            let Some(status) = &kept.status else { return kept.source };
            let used = kept.linked || status.phase == DeclaredPhase::Creating;
            status.source.filter(|_| used)
        })
        .collect()
    }
}

impl Herd {
    /// Takes over what the journal knows of machines, each as the configuration has it now.
    pub(super) fn adopt_declared(
        &mut self,
        journal_state: &JournalState,
        spec: &HerdSpec,
        ctx: &Context<Self>,
    ) {
        // Of two of one name, which should not be, the younger is kept: the other is a stranger.
        let mut entries: Vec<&DeclaredEntry> = journal_state.declared.values().collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.marks.seq));
        for entry in entries {
            let name = &entry.spec.name;
            if self.declared.kept.contains_key(name) {
                tracing::error!(machine = %name, vmid = entry.marks.vmid.0, "machine is there twice");
                continue;
            }
            tracing::info!(machine = %name, vmid = entry.marks.vmid.0, "machine is taken over");
            self.keep(name, spec.declared.get(name).cloned(), Some(entry.clone()), ctx);
        }
    }

    fn keep(
        &mut self,
        name: &DeclaredName,
        declared: Option<Arc<DeclaredSpec>>,
        entry: Option<DeclaredEntry>,
        ctx: &Context<Self>,
    ) {
        let spec = declared.as_deref().or_else(|| entry.as_ref().map(|entry| &entry.spec));
        let linked = spec.is_some_and(is_linked);
        let id = entry.as_ref().map(|entry| entry.marks.agent.clone());
        let cluster = entry.as_ref().map(|entry| entry.marks.cluster.clone());
        let source = entry.as_ref().map(|entry| entry.spec.template.source);
        let birth = Birth {
            name: name.clone(),
            installation: self.common.run.installation.clone(),
            declared,
            epoch: self.common.run.epoch,
            incarnation: 0,
        };
        let herd = ctx.address().recipient();
        let make = move |common, _: &mut _| Keeper::new(common, birth, herd, entry);
        let address = spawn_child(&self.common, Rank::Leaf, &format!("machine {name}"), make);
        let kept = Kept { address, id, cluster, linked, status: None, source };
        self.declared.kept.insert(name.clone(), kept);
        self.show_builds(&self.images.known());
    }

    /// Sends each keeper what the configuration has now.
    pub(super) fn apply_declared(&mut self, old: &HerdSpec, ctx: &Context<Self>) {
        let new = Arc::clone(&self.spec);
        for (name, spec) in &new.declared {
            match self.declared.kept.get(name) {
                Some(kept) => {
                    let same = old.declared.get(name).is_some_and(|before| before.is_same(spec));
                    if !same {
                        kept.address.do_send(KeeperCommand::Declare(Some(Arc::clone(spec))));
                    }
                }
                None => self.keep(name, Some(Arc::clone(spec)), None, ctx),
            }
        }
        for (name, kept) in &self.declared.kept {
            if old.declared.contains_key(name) && !new.declared.contains_key(name) {
                tracing::info!(machine = %name, "machine left the configuration");
                kept.address.do_send(KeeperCommand::Declare(None));
            }
        }
    }

    /// Has all machines looked at.
    pub(super) fn look_at_machines(&self) {
        for kept in self.declared.kept.values() {
            kept.address.do_send(KeeperCommand::Look);
        }
    }

    fn cluster_for_machine(&self, name: &DeclaredName) -> Result<ClusterId, Fault> {
        let Some(spec) = self.spec.declared.get(name) else {
            let text = format!("machine `{name}` left the configuration");
            return Err(Fault::new(FaultKind::Gone, Culprit::Guest, text));
        };
        let cloud = &spec.template.id.cloud;
        if !self.tried.contains_key(cloud) {
            let text = format!("drover waits for the first answer of cloud `{cloud}`");
            return Err(Fault::new(FaultKind::Contention, Culprit::Cloud(cloud.clone()), text));
        }
        self.cluster_of_image(cloud).map_err(|refusal| {
            let culprit = Culprit::Cloud(cloud.clone());
            Fault::new(FaultKind::Contention, culprit, refusal.to_string())
        })
    }

    fn want_machine_id(&self, name: DeclaredName, taken: Option<VmId>, ctx: &mut Context<Self>) {
        let Some(kept) = self.declared.kept.get(&name) else { return };
        let place = self.cluster_for_machine(&name).and_then(|cluster| {
            let cloud = self.spec.declared.get(&name).map(|spec| spec.template.id.cloud.clone());
            let spec = cloud.and_then(|cloud| self.spec.clouds.get(&cloud).cloned());
            let gone =
                || Fault::new(FaultKind::Gone, Culprit::Guest, "its cloud is not configured");
            Ok((cluster, spec.ok_or_else(gone)?))
        });
        let (cluster, spec) = match place {
            Ok(place) => place,
            Err(fault) => return kept.address.do_send(KeeperCommand::Id(Err(fault))),
        };
        let Some(actors) = self.clusters.get(&cluster) else {
            return kept.address.do_send(KeeperCommand::Id(Err(no_id(&spec.id))));
        };
        let (reply, answer): (_, oneshot::Receiver<Result<VmId, Fault>>) = Reply::channel();
        let (cloud, floor) = (spec.id.clone(), spec.vmid_floor);
        let lost = no_id(&cloud);
        actors.cluster.do_send(ImageIdAsk { cloud, floor, taken, reply });
        ctx.spawn(answer.into_actor(self).map(move |answer, actor, _| {
            // An actor that panicked answers nobody.
            actor.machine_has_id(&name, cluster, answer.unwrap_or(Err(lost)));
        }));
    }

    fn machine_has_id(
        &mut self,
        name: &DeclaredName,
        cluster: ClusterId,
        vmid: Result<VmId, Fault>,
    ) {
        let id = mint_agent(|| self.common.ports.ambient.draw());
        match (self.declared.kept.get_mut(name), vmid) {
            (Some(kept), Ok(vmid)) => {
                (kept.id, kept.cluster) = (Some(id.clone()), Some(cluster));
                let address = kept.address.clone();
                // The reconciler must know of it before there is a guest.
                self.show_builds(&self.images.known());
                address.do_send(KeeperCommand::Id(Ok((vmid, id))));
            }
            (Some(kept), Err(fault)) => kept.address.do_send(KeeperCommand::Id(Err(fault))),
            (None, Ok(vmid)) => self.give_back(&cluster, vmid, false),
            (None, Err(_)) => {}
        }
    }

    fn give_back(&self, cluster: &ClusterId, vmid: VmId, burned: bool) {
        if let Some(actors) = self.clusters.get(cluster) {
            actors.cluster.do_send(IdBack { vmid, burned });
        }
    }

    fn machine_over(&mut self, name: &DeclaredName, ctx: &Context<Self>) {
        self.declared.kept.remove(name);
        self.show_builds(&self.images.known());
        if let Some(spec) = self.spec.declared.get(name).cloned() {
            self.keep(name, Some(spec), None, ctx);
        }
    }

    fn machine_named(&self, name: &str) -> Result<(&Kept, DeclaredName), Refusal> {
        let name = DeclaredName::new(name);
        match self.declared.kept.get(&name) {
            Some(kept) => Ok((kept, name)),
            None => {
                let text =
                    format!("no machine is called `{name}`: `drover machine list` shows them");
                Err(Refusal::Unknown(text))
            }
        }
    }

    /// Destroys the guest of a machine that left the configuration.
    pub(super) fn delete_machine(&self, name: &str) -> Result<(), Refusal> {
        let (kept, name) = self.machine_named(name)?;
        if self.spec.declared.contains_key(&name) {
            let text = format!(
                "machine `{name}` is declared: remove it from `machines` first, then delete it"
            );
            return Err(Refusal::Conflict(text));
        }
        tracing::info!(machine = %name, "machine is deleted by command");
        kept.address.do_send(KeeperCommand::Delete);
        Ok(())
    }

    /// Forgets a machine that left the configuration, or whose guest is gone or somebody else's. A
    /// removal ends so that cannot go on; a destroy that runs goes on.
    pub(super) fn forget_machine(&self, name: &str) -> Result<(), Refusal> {
        let (kept, name) = self.machine_named(name)?;
        let phase = kept.status.as_ref().map(|status| status.phase);
        let lost = matches!(phase, Some(DeclaredPhase::Missing | DeclaredPhase::Foreign));
        if self.spec.declared.contains_key(&name) && !lost {
            let text = format!(
                "machine `{name}` is declared and not lost: remove it from `machines` first, then \
                 forget it"
            );
            return Err(Refusal::Conflict(text));
        }
        tracing::info!(machine = %name, "machine is forgotten by command");
        kept.address.do_send(KeeperCommand::Forget);
        Ok(())
    }
}

impl Handler<KeeperReport> for Herd {
    type Result = ();

    fn handle(&mut self, report: KeeperReport, ctx: &mut Context<Self>) {
        count_message(ctx);
        match report {
            KeeperReport::Status(status) => {
                if let Some(kept) = self.declared.kept.get_mut(&status.name) {
                    let lacks_image = status.lacks_image;
                    kept.status = Some(*status);
                    if lacks_image {
                        self.settle_soon(ctx);
                    }
                }
            }
            KeeperReport::WantCluster(name) => {
                let cluster = self.cluster_for_machine(&name);
                if let Some(kept) = self.declared.kept.get(&name) {
                    kept.address.do_send(KeeperCommand::Cluster(cluster));
                }
            }
            KeeperReport::WantId(name, taken) => self.want_machine_id(name, taken, ctx),
            KeeperReport::IdBack { name, vmid, burned } => {
                let kept = self.declared.kept.get(&name);
                if let Some(cluster) = kept.and_then(|kept| kept.cluster.clone()) {
                    self.give_back(&cluster, vmid, burned);
                }
            }
            KeeperReport::Over(name) => self.machine_over(&name, ctx),
        }
    }
}
