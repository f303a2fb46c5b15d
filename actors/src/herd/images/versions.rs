//! The versions of images on the clusters: what is there, which ones go, and the import of a template
//! that was built elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use drover_model::ambient::{fnv1a, mint_agent};
use drover_model::container::GuestType;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{AgentId, CloudId, ClusterId, NodeName, TemplateId, VmId};
use drover_model::image::{ImageVersion, PlannedPrune, PrunePlan, Recipe};
use drover_model::journal_state::BuildEntry;
use drover_model::marks::{Kind, Marks, parse_name};
use drover_model::ports::{SealCall, VmRef};
use drover_model::record::Body;
use drover_model::spec::{CloneStrategy, TemplateSpec};
use drover_model::template_image::{CHECK_VMID, Sought};
use drover_runtime::reply::Reply;
use futures_util::future::join_all;

use crate::builder::prune::{Kept, Unconfigured, Uses, plan};
use crate::herd::Herd;
use crate::message::{ImageImported, ImagesPruned, ImagesSeen, Refusal};

impl Herd {
    pub(in crate::herd) fn list_images(&self, reply: Reply<ImagesSeen>, ctx: &mut Context<Self>) {
        let now = self.common.ports.ambient.now().wall;
        let recipes = self.spec.images.values().filter_map(|spec| {
            let recipe = Recipe::new(spec, &BTreeMap::new()).ok()?.at(now);
            Some((spec.id.clone(), recipe, spec.source.is_some()))
        });
        let recipes: Vec<(TemplateId, Recipe, bool)> = recipes.collect();
        self.plan_prune(&|_| true, Some(false), ctx, move |_, planned, _| {
            let ImagesPruned { versions, unread } = planned;
            let configured = recipes.into_iter().map(|(id, recipe, builds)| {
                let current = recipe.current();
                let own = versions.iter().filter(|one| one.image == id).map(|one| &one.version);
                let made = own.filter(|one| current.contains(&one.marks.agent));
                let newest = made.max_by_key(|one| (one.created, one.vmid));
                let version =
                    newest.map_or_else(|| recipe.version(), |one| one.marks.agent.clone());
                (id, version, builds)
            });
            let configured = configured.collect();
            reply.send(ImagesSeen { configured, versions, unread });
        });
    }

    pub(in crate::herd) fn prune_images(
        &mut self,
        (unconfigured, dry_run): (bool, bool),
        reply: Reply<ImagesPruned>,
        ctx: &mut Context<Self>,
    ) {
        self.prune(&|_| true, (Some(unconfigured), dry_run), reply, ctx);
    }

    /// Removes what goes of these images; of those that left the configuration too, where that is said.
    pub(super) fn prune(
        &mut self,
        which: &dyn Fn(&TemplateId) -> bool,
        (unconfigured, dry_run): (Option<bool>, bool),
        reply: Reply<ImagesPruned>,
        ctx: &mut Context<Self>,
    ) {
        self.plan_prune(which, unconfigured, ctx, move |actor, planned, ctx| {
            let going = planned.versions.iter().filter(|one| one.kept.is_none() && !dry_run);
            for one in going.cloned().collect::<Vec<_>>() {
                actor.remove_version(one, ctx);
            }
            reply.send(planned);
        });
    }

    /// What is used of a cluster's templates, as far as drover itself knows.
    fn uses(&self, cluster: &ClusterId) -> Uses {
        let mut uses = Uses::default();
        self.common.roster.each(|living| {
            let Some(place) = living.place.as_ref().filter(|place| place.cluster == *cluster)
            else {
                return;
            };
            let linked = living.spec.clone == CloneStrategy::Linked;
            if linked || !living.status.phase.has_guest() {
                uses.cloned.extend(place.source);
            }
        });
        uses.cloned.extend(self.declared.sources(cluster));
        let here = |cloud: &CloudId| self.leads.get(cloud) == Some(cluster);
        let templates = self.spec.templates.values().filter(|spec| here(&spec.id.cloud));
        uses.named.extend(templates.filter_map(|spec| spec.sought().vmid()));
        for spec in self.spec.templates.values().filter(|spec| spec.canary && here(&spec.id.cloud))
        {
            if let Some(image) = spec.image() {
                let proven = self.common.canaries.proven(&spec.id).into_iter();
                let proven = proven.map(|version| AgentId::new(version.image)).collect();
                uses.proven.entry(image).or_default().push((spec.id.clone(), proven));
            }
        }
        let removed = self.images.builds.values().filter(|build| build.cluster == *cluster);
        // One that goes already is not removed twice.
        uses.named.extend(removed.filter_map(|build| build.status.vmid));
        uses
    }

    /// Reads the versions of images and plans what becomes of them. With `unconfigured` those of images
    /// that left the configuration are looked at too, and it says whether they go.
    fn plan_prune(
        &self,
        which: &dyn Fn(&TemplateId) -> bool,
        unconfigured: Option<bool>,
        ctx: &mut Context<Self>,
        then: impl FnOnce(&mut Self, ImagesPruned, &mut Context<Self>) + 'static,
    ) {
        let mut clouds: BTreeMap<CloudId, (ClusterId, Kept)> = BTreeMap::new();
        let mut pruned = ImagesPruned::default();
        for spec in self.spec.images.values().filter(|spec| which(&spec.id)) {
            let cloud = &spec.id.cloud;
            match self.cluster_of_image(cloud) {
                Ok(cluster) => {
                    let entry = clouds.entry(cloud.clone());
                    let (_, kept) = entry.or_insert_with(|| (cluster, Kept::new()));
                    kept.insert(spec.id.clone(), spec.keep);
                }
                Err(refusal) => {
                    let unread = (cloud.clone(), refusal.to_string());
                    if !pruned.unread.contains(&unread) {
                        pruned.unread.push(unread);
                    }
                }
            }
        }
        let others = unconfigured.map(|go| self.unconfigured(go, &clouds)).unwrap_or_default();
        for (cluster, other) in &others {
            let entry = clouds.entry(other.cloud.clone());
            entry.or_insert_with(|| (cluster.clone(), Kept::new()));
        }
        let installation = self.common.run.installation.clone();
        let reads = clouds.into_iter().map(|(cloud, (cluster, kept))| {
            let hypervisor = self.common.ports.hypervisor.clone();
            let other = others.get(&cluster).filter(|other| other.cloud == cloud).cloned();
            let (installation, mut uses) = (installation.clone(), self.uses(&cluster));
            let fresh = self.images.fresh(&cluster, self.common.ports.ambient.now().mono);
            async move {
                let planned = async {
                    let versions = hypervisor.image_versions(&cloud, &fresh).await?;
                    let of = (&installation, &cluster);
                    let first = plan(&versions, of, &kept, other.as_ref(), &uses);
                    for one in first.iter().filter(|one| one.kept.is_none()) {
                        let (node, vmid) = (one.version.node.clone(), one.version.vmid);
                        let guest = GuestType::Vm;
                        let vm = VmRef { cloud: cloud.clone(), node, vmid, guest };
                        uses.linked.insert(vmid, hypervisor.linked_volumes(&vm).await?);
                    }
                    Ok::<PrunePlan, Fault>(plan(&versions, of, &kept, other.as_ref(), &uses))
                };
                let planned = planned.await;
                (cloud, planned)
            }
        });
        let reads: Vec<_> = reads.collect();
        ctx.spawn(join_all(reads).into_actor(self).map(move |read, actor, ctx| {
            for (cloud, planned) in read {
                match planned {
                    Ok(planned) => pruned.versions.extend(planned),
                    Err(fault) => pruned.unread.push((cloud, fault.text)),
                }
            }
            then(actor, pruned, ctx);
        }));
    }

    /// For each cluster what is looked at there of images that left the configuration, through one cloud.
    fn unconfigured(
        &self,
        go: bool,
        read: &BTreeMap<CloudId, (ClusterId, Kept)>,
    ) -> BTreeMap<ClusterId, Unconfigured> {
        let configured: BTreeSet<String> =
            self.spec.images.keys().map(|image| image.name.to_string()).collect();
        let clouds = read.keys().chain(self.spec.clouds.keys());
        let mut others = BTreeMap::new();
        for cloud in clouds {
            let Ok(cluster) = self.cluster_of_image(cloud) else { continue };
            others.entry(cluster).or_insert_with(|| {
                let (cloud, configured) = (cloud.clone(), configured.clone());
                Unconfigured { cloud, configured, go }
            });
        }
        others
    }

    /// Destroys an old version, once that is durable.
    fn remove_version(&mut self, planned: PlannedPrune, ctx: &mut Context<Self>) {
        let PlannedPrune { image, version: ImageVersion { node, vmid, marks, .. }, .. } = planned;
        let goes = self
            .images
            .builds
            .values()
            .any(|build| build.cluster == marks.cluster && build.status.vmid == Some(vmid));
        if goes {
            return;
        }
        let build = mint_agent(|| self.common.ports.ambient.draw());
        tracing::info!(image = %image, version = %marks.agent, vmid = vmid.0, "version is pruned");
        let entry = BuildEntry {
            marks: marks.clone(),
            node: node.clone(),
            version: marks.agent.clone(),
            given: BTreeMap::new(),
            iso: None,
            sealed: None,
            failed: None,
            pruned: true,
        };
        let of = (image, marks.agent.clone());
        let birth = self.birth_of_build(&build, of, marks.cluster.clone(), node.clone(), None);
        let body = Body::ImagePruned { build, marks: Box::new(marks), node };
        self.append(body, ctx, move |actor, done, ctx| {
            if done.is_ok() {
                actor.enter_build(birth, None, Some(entry), ctx);
            }
        });
    }

    pub(in crate::herd) fn import_image(
        &mut self,
        name: &str,
        (vmid, dry_run): (VmId, bool),
        reply: Reply<Result<ImageImported, Refusal>>,
        ctx: &mut Context<Self>,
    ) {
        let ready = self
            .image_named(name)
            .and_then(|spec| Ok((self.cluster_of_image(&spec.id.cloud)?, spec.id.clone())));
        let (cluster, image) = match ready {
            Ok(ready) => ready,
            Err(refusal) => return reply.send(Err(refusal)),
        };
        let templates = self.spec.templates.values();
        let templates = templates.filter(|spec| spec.image().as_ref() == Some(&image));
        let named = |spec: &Arc<TemplateSpec>| {
            let id = spec.id.clone();
            spec.nodes().into_iter().map(move |node| (node, id.clone())).collect::<Vec<_>>()
        };
        let wanted: Vec<(NodeName, TemplateId)> = templates.flat_map(named).collect();
        let ports = &self.common.ports;
        let (hypervisor, seq) = (ports.hypervisor.clone(), ports.journal.last_seq());
        let born = ports.ambient.now().wall.rfc3339();
        let installation = self.common.run.installation.clone();
        let import = async move {
            let found = hypervisor.locate(&image.cloud, &Sought::Id(vmid), None).await?;
            let fleet = found.fleet;
            let found = found.candidates.into_iter().find(|one| one.vmid == vmid);
            let Some(found) = found else {
                let text = format!("guest `{vmid}` carries the marks of an agent or a build");
                return Err(Fault::new(FaultKind::Foreign, Culprit::Guest, text));
            };
            let mut part = 0;
            let version = mint_agent(|| {
                part += 1;
                fnv1a(&format!("{part} {cluster} {vmid} {}", found.digest))
            });
            let marks = Marks {
                installation,
                agent: version.clone(),
                vmid,
                cluster,
                kind: Kind::Image,
                guest: GuestType::Vm,
                seq,
                cloud: image.cloud.as_str().to_owned(),
                template: image.name.to_string(),
                born,
            };
            let shared = !found.storages.is_empty()
                && found.storages.iter().all(|storage| fleet.is_shared(storage));
            let node = found.node;
            let name = marks.name("");
            let guest = GuestType::Vm;
            let vm = VmRef { cloud: image.cloud.clone(), node: node.clone(), vmid, guest };
            let description =
                format!("A version of image {}, imported from `{}`.", image.name, found.name);
            if dry_run && parse_name(&found.name).is_some() {
                let text = format!("guest `{vmid}` carries the name of one of drover's already");
                return Err(Fault::new(FaultKind::Foreign, Culprit::Guest, text));
            }
            hypervisor.seal(SealCall { vm, from: None, to: marks, description, dry_run }).await?;
            let unreached = match shared {
                true => Vec::new(),
                false => wanted.into_iter().filter(|(wanted, _)| *wanted != node).collect(),
            };
            Ok(ImageImported { image, version, node, vmid, name, unreached })
        };
        ctx.spawn(import.into_actor(self).map(move |done, _, _| {
            reply.send(done.map_err(of_import).map_err(|fault| match fault.kind {
                FaultKind::Gone => Refusal::Unknown(fault.text),
                FaultKind::Broken | FaultKind::Foreign | FaultKind::Denied { .. } => {
                    Refusal::Conflict(fault.text)
                }
                FaultKind::Contention
                | FaultKind::Locked { .. }
                | FaultKind::Unreachable
                | FaultKind::UnknownOutcome
                | FaultKind::IdTaken
                | FaultKind::Capacity
                | FaultKind::KeyRejected
                | FaultKind::Impostor => Refusal::Unavailable(fault.text),
            }));
        }));
    }
}

/// A fault in the words of who imports: a VMID that no guest has was given to the command.
fn of_import(mut fault: Fault) -> Fault {
    if let Some(what) = fault.text.strip_suffix(CHECK_VMID) {
        fault.text =
            format!("{what}give the VMID of a template there, which `qm list` on its node shows");
    }
    fault
}
