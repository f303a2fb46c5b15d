//! Images: builds that run, one for each image and node, and the versions on the clusters.
//!
//! - All who want a build that runs share it. Builds that need the same source at the same place
//!   bring it one after the other.
//! - A build that a restart found is destroyed and started again, while its image is configured.
//! - A build that fails stays known until the image is built there (`failures.rs`).
//! - Images that are to be rebuilt are looked at each hour (`rebuild.rs`), those that a template waits
//!   for at once (`missing.rs`).
//! - After each build, versions beyond `keep` are removed. None goes that is in use (`versions.rs`).

mod failures;
mod missing;
mod rebuild;
mod versions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use actix::{ActorFutureExt, Addr, AsyncContext, Context, Handler, WrapFuture};
use drover_model::ambient::mint_agent;
use drover_model::fault::Fault;
use drover_model::id::{AgentId, CloudId, ClusterId, NodeName, TemplateId, VmId};
use drover_model::image::{ImagePlan, ImageSpec, ImageVersion, Recipe};
use drover_model::journal_state::{BuildEntry, JournalState};
use drover_model::phase::ImagePhase;
use drover_model::placement::Fleet;
use drover_model::status::{ImageStatus, NextBuild};
use drover_model::time::Moment;
use drover_runtime::reply::Reply;
use drover_runtime::supervise::count_message;
use tokio::sync::oneshot;

use super::Herd;
use crate::birth::{Rank, spawn_child};
use crate::builder::{Birth, BuildReport, Builder, BuilderCommand, pull_call};
use crate::cloud::CloudCommand;
use crate::cluster::{ImageIdAsk, VersionsChanged};
use crate::message::{IdBack, ImageBuildAsk, Refusal};
use crate::reconciler::ReconcilerCommand;

/// Builds, and the removals of versions.
#[derive(Default)]
pub(super) struct Images {
    builds: BTreeMap<AgentId, Build>,
    /// Who brings each source to its place, and who waits for that, in order.
    pulls: BTreeMap<String, VecDeque<AgentId>>,
    /// When it was last tried to rebuild an image by itself.
    rebuilt: BTreeMap<TemplateId, Moment>,
    /// When it is looked next whether an image that a template waits for is to be built.
    looks: BTreeMap<TemplateId, missing::Pause>,
    /// The last build of each image on each node, where it failed; the newest last.
    failed: Vec<ImageStatus>,
    /// Versions that were built lately, each with its cluster and the end of its build.
    built: Vec<(ClusterId, NodeName, VmId, Moment)>,
}

/// How long a version counts as fresh: Proxmox's list of guests is about ten seconds behind.
const FRESH: Duration = Duration::from_secs(60);

struct Build {
    address: Addr<Builder>,
    cluster: ClusterId,
    floor: VmId,
    /// The source at its place, for builds that bring one.
    pull: Option<String>,
    status: ImageStatus,
    /// Whether it is started again when its guest is gone, and with which values.
    again: Option<BTreeMap<String, String>>,
    /// The version that goes.
    pruned: bool,
}

/// What a build is to be.
struct Wanted {
    recipe: Arc<Recipe>,
    cluster: ClusterId,
    node: NodeName,
    shared: bool,
}

impl Images {
    /// The builds whose guests are not orphans.
    pub(super) fn known(&self) -> BTreeSet<AgentId> {
        self.builds.keys().cloned().collect()
    }

    /// Images that are being built, each with how far one of its builds is.
    pub(super) fn under_way(&self) -> BTreeMap<TemplateId, ImagePhase> {
        let runs = self.builds.values().filter(|build| !build.pruned);
        runs.map(|build| (build.status.image.clone(), build.status.phase)).collect()
    }

    /// The guests of versions that a cluster's list may not have yet.
    fn fresh(&self, cluster: &ClusterId, now: Moment) -> Vec<(NodeName, VmId)> {
        let fresh = self.built.iter().filter(|(at, .., end)| at == cluster && now - *end < FRESH);
        fresh.map(|(_, node, vmid, _)| (node.clone(), *vmid)).collect()
    }

    fn running(&self, image: &TemplateId, node: &NodeName) -> Option<&Build> {
        self.builds.values().find(|build| {
            !build.pruned && build.status.image == *image && build.status.node == *node
        })
    }

    fn want_turn(&mut self, build: &AgentId) {
        let Some(known) = self.builds.get(build) else { return };
        let Some(pull) = known.pull.clone() else {
            return known.address.do_send(BuilderCommand::Turn);
        };
        let queue = self.pulls.entry(pull).or_default();
        if !queue.contains(build) {
            queue.push_back(build.clone());
        }
        if queue.front() == Some(build) {
            known.address.do_send(BuilderCommand::Turn);
        }
        self.show_turns();
    }

    /// Shows those who wait for a turn which build has it.
    fn show_turns(&self) {
        for queue in self.pulls.values() {
            let Some(first) = queue.front() else { continue };
            let Some(holder) = self.builds.get(first) else { continue };
            for waiting in queue.iter().skip(1).filter_map(|id| self.builds.get(id)) {
                let (image, build) = (holder.status.image.clone(), first.clone());
                waiting.address.do_send(BuilderCommand::Behind(image, build));
            }
        }
    }

    fn turn_over(&mut self, build: &AgentId) {
        for queue in self.pulls.values_mut() {
            let first = queue.front() == Some(build);
            queue.retain(|other| other != build);
            let next = queue.front().filter(|_| first).and_then(|next| self.builds.get(next));
            if let Some(next) = next {
                next.address.do_send(BuilderCommand::Turn);
            }
        }
        self.pulls.retain(|_, queue| !queue.is_empty());
        self.show_turns();
    }
}

fn unavailable(text: impl Into<String>) -> Refusal {
    Refusal::Unavailable(text.into())
}

impl Herd {
    /// The configured image that answers to a name.
    fn image_named(&self, name: &str) -> Result<Arc<ImageSpec>, Refusal> {
        let named: Vec<_> =
            self.spec.images.values().filter(|spec| spec.id.answers_to(name)).collect();
        match named[..] {
            [spec] => Ok(Arc::clone(spec)),
            [] => {
                let known: Vec<String> =
                    self.spec.images.keys().map(|id| format!("`{id}`")).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let text = format!("no image is called `{name}`; `images` configures {known}");
                Err(Refusal::Unknown(text))
            }
            [_, ..] => {
                let which: Vec<String> =
                    named.iter().map(|spec| format!("`{}`", spec.id)).collect();
                let which = which.join(", ");
                let text = format!("several images are called `{name}`: name one of {which}");
                Err(Refusal::Conflict(text))
            }
        }
    }

    /// The cluster of an image's cloud, where that works.
    pub(super) fn cluster_of_image(&self, cloud: &CloudId) -> Result<ClusterId, Refusal> {
        match (self.leads.get(cloud), self.tried.get(cloud)) {
            (Some(cluster), Some(Ok(_))) => Ok(cluster.clone()),
            // Some faults name the cloud themselves.
            (_, Some(Err(why))) if why.starts_with("cloud `") => Err(unavailable(why.clone())),
            (_, Some(Err(why))) => Err(unavailable(format!("cloud `{cloud}`: {why}"))),
            (_, None | Some(Ok(_))) => {
                Err(unavailable(format!("cloud `{cloud}` has not answered yet: try again")))
            }
        }
    }

    pub(super) fn build_image(&mut self, ask: ImageBuildAsk, ctx: &mut Context<Self>) {
        let ImageBuildAsk { image, node, given, afresh, dry_run, reply } = ask;
        let ready = self.image_named(&image).and_then(|spec| {
            if spec.source.is_none() {
                let text = format!(
                    "image `{}` has no source: its versions are imported (`drover image import`)",
                    spec.id
                );
                return Err(Refusal::Conflict(text));
            }
            if self.scheduler.stopping() {
                return Err(unavailable("the service is stopping"));
            }
            let recipe = Recipe::new(&spec, &given);
            let recipe = recipe.map_err(|fault| Refusal::Unknown(fault.to_string()))?;
            let recipe = recipe.at(self.common.ports.ambient.now().wall);
            let recipe = if afresh { recipe.afresh() } else { recipe };
            Ok((recipe, self.cluster_of_image(&spec.id.cloud)?))
        });
        let (recipe, cluster) = match ready {
            Ok(ready) => ready,
            Err(refusal) => return reply.send(Err(refusal)),
        };
        let cloud = &recipe.spec.id.cloud;
        let hypervisor = &self.common.ports.hypervisor;
        let fresh = self.images.fresh(&cluster, self.common.ports.ambient.now().mono);
        let (versions, fleet) = (hypervisor.image_versions(cloud, &fresh), hypervisor.fleet(cloud));
        let read = async move { Ok::<_, Fault>((versions.await?, fleet.await?)) };
        ctx.spawn(read.into_actor(self).map(move |read, actor, ctx| {
            let planned = match read {
                Ok((versions, fleet)) => {
                    let recipe = Arc::new(recipe);
                    actor.plan_builds(&recipe, (&cluster, node), &versions, &fleet, dry_run, ctx)
                }
                Err(fault) => Err(unavailable(fault.text)),
            };
            reply.send(planned);
        }));
    }

    /// The nodes that an image is built on.
    fn nodes_of_image(
        spec: &ImageSpec,
        node: Option<NodeName>,
        fleet: &Fleet,
    ) -> Result<Vec<NodeName>, Refusal> {
        let storage = &spec.storage;
        if let Some(node) = &node
            && !fleet.nodes().contains_key(node)
        {
            return Err(Refusal::Unknown(format!("the cluster has no node `{node}`")));
        }
        let named = node.map(|node| vec![node]).unwrap_or_else(|| spec.nodes.clone());
        if let Some(node) = named.iter().find(|node| fleet.is_offline(node)) {
            return Err(unavailable(format!("node `{node}` is offline")));
        }
        if !named.is_empty() {
            return Ok(named);
        }
        let takes = |node: &&NodeName| {
            !fleet.is_offline(node) && fleet.storage(storage, node).is_some_and(|one| one.images)
        };
        match fleet.nodes().keys().find(takes) {
            Some(node) => Ok(vec![node.clone()]),
            None => Err(unavailable(format!(
                "no node that is online has the storage `{storage}` for disk images"
            ))),
        }
    }

    fn plan_builds(
        &mut self,
        recipe: &Arc<Recipe>,
        (cluster, node): (&ClusterId, Option<NodeName>),
        versions: &[ImageVersion],
        fleet: &Fleet,
        dry_run: bool,
        ctx: &mut Context<Self>,
    ) -> Result<Vec<ImagePlan>, Refusal> {
        let (spec, version) = (&recipe.spec, recipe.version());
        let current = recipe.current();
        let mut plans = Vec::new();
        for node in Self::nodes_of_image(spec, node, fleet)? {
            let there = versions.iter().find(|one| {
                let marks = &one.marks;
                current.contains(&marks.agent)
                    && *marks.template == *spec.id.name
                    && marks.installation == self.common.run.installation
                    && marks.cluster == *cluster
                    && (one.node == node || one.shared)
            });
            plans.push(if let Some(there) = there {
                let (node, vmid) = (there.node.clone(), there.vmid);
                let version = there.marks.agent.clone();
                ImagePlan::UpToDate { node, vmid, version }
            } else if let Some(build) = self.images.running(&spec.id, &node) {
                let (build, version) = (build.status.build.clone(), build.status.version.clone());
                ImagePlan::Running { node, build, version }
            } else if dry_run {
                ImagePlan::WouldStart { node, version: version.clone() }
            } else {
                let shared = fleet.is_shared(&spec.import_storage);
                let (recipe, cluster) = (Arc::clone(recipe), cluster.clone());
                let wanted = Wanted { recipe, cluster, node: node.clone(), shared };
                let build = self.start_build(wanted, ctx);
                ImagePlan::Starts { node, build, version: version.clone() }
            });
        }
        Ok(plans)
    }

    fn start_build(&mut self, wanted: Wanted, ctx: &Context<Self>) -> AgentId {
        let Wanted { recipe, cluster, node, shared } = wanted;
        let build = mint_agent(|| self.common.ports.ambient.draw());
        let spec = &recipe.spec;
        tracing::info!(build = %build, image = %spec.id, node = %node, "build starts");
        let pull = pull_call(&recipe, &node, spec.id.cloud.clone()).map(|call| {
            let place = if shared { String::new() } else { node.to_string() };
            format!("{cluster} {place} {}", call.volume())
        });
        let (image, version) = (spec.id.clone(), recipe.version());
        let birth = self.birth_of_build(&build, (image, version), cluster, node, Some(recipe));
        self.enter_build(birth, pull, None, ctx);
        build
    }

    fn birth_of_build(
        &self,
        build: &AgentId,
        (image, version): (TemplateId, AgentId),
        cluster: ClusterId,
        node: NodeName,
        recipe: Option<Arc<Recipe>>,
    ) -> Birth {
        Birth {
            build: build.clone(),
            installation: self.common.run.installation.clone(),
            cluster,
            image,
            version,
            node,
            recipe,
            again: false,
            epoch: self.common.run.epoch,
            incarnation: 0,
        }
    }

    fn enter_build(
        &mut self,
        mut birth: Birth,
        pull: Option<String>,
        entry: Option<BuildEntry>,
        ctx: &Context<Self>,
    ) {
        let failed = entry.as_ref().and_then(|entry| entry.failed.as_ref());
        let adopted = entry.as_ref().filter(|entry| !entry.pruned && entry.failed.is_none());
        let again = adopted.map(|entry| entry.given.clone());
        birth.again = again.is_some();
        let status = ImageStatus {
            build: birth.build.clone(),
            image: birth.image.clone(),
            version: birth.version.clone(),
            node: birth.node.clone(),
            vmid: entry.as_ref().map(|entry| entry.marks.vmid),
            phase: if entry.is_some() { ImagePhase::Removing } else { ImagePhase::Queued },
            since: self.common.ports.ambient.now().wall,
            detail: String::new(),
            failure: failed.map(|failed| (failed.at, failed.why.clone())),
            next: birth.again.then_some(NextBuild::Again),
            phases: Vec::new(),
        };
        let floor = birth.recipe.as_ref().map_or(VmId(0), |recipe| recipe.spec.vmid_floor);
        let (id, cluster) = (birth.build.clone(), birth.cluster.clone());
        let pruned = entry.as_ref().is_some_and(|entry| entry.pruned);
        let herd = ctx.address().recipient();
        // The reconciler must know of it before there is a guest.
        let mut builds = self.images.known();
        builds.insert(id.clone());
        self.show_builds(&builds);
        let name = format!("image {id}");
        // The caller follows it by its id, and must find it from the first look on.
        self.show_build(&status);
        let make = move |common, _: &mut _| Builder::new(common, birth, herd, entry);
        let address = spawn_child(&self.common, Rank::Leaf, &name, make);
        let build = Build { address, cluster, floor, pull, status, again, pruned };
        self.images.builds.insert(id, build);
    }

    /// The build that is named, by its id or as the only one of its image that runs.
    fn build_named(&self, name: &AgentId) -> Result<AgentId, Refusal> {
        if self.images.builds.contains_key(name) {
            return Ok(name.clone());
        }
        let runs = |build: &Build| !build.pruned && build.status.image.answers_to(name.as_str());
        let of_image = self.images.builds.iter().filter(|(_, build)| runs(build));
        let of_image: Vec<_> = of_image.collect();
        match of_image[..] {
            [(id, _)] => Ok(id.clone()),
            // No build has this id: that is said where it ends.
            [] => Ok(name.clone()),
            [_, ..] => {
                let which = of_image.iter().map(|(id, build)| {
                    let ImageStatus { image, node, .. } = &build.status;
                    format!("`{id}` (`{image}` on `{node}`)")
                });
                let which = which.collect::<Vec<_>>().join(", ");
                let text = format!("several builds of `{name}` run: name one of {which}");
                Err(Refusal::Conflict(text))
            }
        }
    }

    /// Ends a build; one whose version is proved goes on.
    pub(super) fn cancel_build(&mut self, name: &AgentId) -> Result<(), Refusal> {
        let id = &self.build_named(name)?;
        let build = self.images.builds.get_mut(id).filter(|build| !build.pruned);
        let Some(build) = build else {
            let text = format!("no build `{id}` runs: `drover image list` shows those that do");
            return Err(Refusal::Unknown(text));
        };
        if build.status.phase == ImagePhase::Sealing {
            let text = format!("build `{id}` is as good as done: its version is proved");
            return Err(Refusal::Conflict(text));
        }
        build.again = None;
        build.address.do_send(BuilderCommand::Cancel);
        Ok(())
    }

    pub(super) fn show_builds(&self, builds: &BTreeSet<AgentId>) {
        let builds = builds | &self.declared.ids();
        for actors in self.clusters.values() {
            actors.reconciler.do_send(ReconcilerCommand::Builds(builds.clone()));
        }
    }

    /// Takes over what the journal knows of builds: their guests go, and what was built is kept.
    pub(super) fn adopt_builds(&mut self, journal_state: &JournalState, ctx: &Context<Self>) {
        for (build, entry) in &journal_state.builds {
            tracing::info!(build = %build, vmid = entry.marks.vmid.0, "build is taken over");
            let marks = &entry.marks;
            let image = TemplateId::new(CloudId::new(&marks.cloud), &marks.template);
            let of = (image, entry.version.clone());
            let (cluster, node) = (marks.cluster.clone(), entry.node.clone());
            let birth = self.birth_of_build(build, of, cluster, node, None);
            self.enter_build(birth, None, Some(entry.clone()), ctx);
        }
    }

    fn build_over(&mut self, id: &AgentId, ctx: &mut Context<Self>) {
        self.images.turn_over(id);
        let Some(build) = self.images.builds.remove(id) else { return };
        self.show_builds(&self.images.known());
        let status = build.status;
        if status.phase == ImagePhase::Done {
            self.images.forget_failure(&status);
            let now = self.common.ports.ambient.now().mono;
            self.images.built.retain(|(.., end)| now - *end < FRESH);
            // The next agents are cloned from it.
            if let Some(actors) = self.clusters.get(&build.cluster) {
                actors.cluster.do_send(VersionsChanged);
            }
            if let Some(cloud) = self.clouds.get(&status.image.cloud) {
                cloud.do_send(CloudCommand::VersionBuilt(status.image.clone()));
            }
            if let Some(vmid) = status.vmid {
                self.images.built.push((build.cluster, status.node.clone(), vmid, now));
            }
            let (reply, _) = Reply::channel();
            self.prune(&|image| *image == status.image, (None, false), reply, ctx);
        } else if status.phase == ImagePhase::Failed && !build.pruned {
            match build.again {
                Some(given) => self.build_again(status, given, ctx),
                None => self.build_failed(status, ctx),
            }
        }
    }
}

impl Handler<BuildReport> for Herd {
    type Result = ();

    fn handle(&mut self, report: BuildReport, ctx: &mut Context<Self>) {
        count_message(ctx);
        match report {
            BuildReport::Status(status) => {
                if let Some(build) = self.images.builds.get_mut(&status.build) {
                    build.status = *status;
                }
            }
            BuildReport::WantTurn(build) => self.images.want_turn(&build),
            BuildReport::TurnOver(build) => self.images.turn_over(&build),
            BuildReport::WantId(id, taken) => self.want_image_id(&id, taken, ctx),
            BuildReport::IdBack { build, vmid, burned } => {
                let cluster = self.images.builds.get(&build).map(|build| &build.cluster);
                if let Some(actors) = cluster.and_then(|cluster| self.clusters.get(cluster)) {
                    actors.cluster.do_send(IdBack { vmid, burned });
                }
            }
            BuildReport::Over(build) => self.build_over(&build, ctx),
        }
        self.settle_soon(ctx);
    }
}

impl Herd {
    fn want_image_id(&self, id: &AgentId, taken: Option<VmId>, ctx: &mut Context<Self>) {
        let Some(build) = self.images.builds.get(id) else { return };
        let Some(actors) = self.clusters.get(&build.cluster) else { return };
        let cloud = build.status.image.cloud.clone();
        let (reply, answer): (_, oneshot::Receiver<Result<VmId, Fault>>) = Reply::channel();
        actors.cluster.do_send(ImageIdAsk { cloud, floor: build.floor, taken, reply });
        let address = build.address.clone();
        ctx.spawn(answer.into_actor(self).map(move |answer, _, _| {
            if let Ok(id) = answer {
                address.do_send(BuilderCommand::Id(id));
            }
        }));
    }
}
