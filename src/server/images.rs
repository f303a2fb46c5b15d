//! Images: building them, what is there, pruning and importing versions.

use std::collections::BTreeMap;

use actix_web::{HttpResponse, web};
use drover_actors::message::{HerdCommand, ImageBuildAsk};
use drover_api::{
    BuildImageIn, BuildImageOut, ImageBuildOut, ImageBuildsOut, ImageOut, ImagePlanOut,
    ImageVersionOut, ImagesOut, ImportImageIn, ImportImageOut, Nothing, PhaseOut, Problem,
    PruneImagesIn, PruneImagesOut, UnreachedOut, UnreadOut,
};
use drover_model::id::{AgentId, CloudId, NodeName, VmId};
use drover_model::image::{ImagePlan, PlannedPrune};
use drover_model::status::{ImageStatus, NextBuild};

use super::body::Fields;
use super::control::unread_cloud;
use super::problem::Rejection;
use super::shapes::{Shown, rfc3339};
use super::state::State;

/// The longest name of a node that is taken.
const LONGEST: usize = 200;
/// The most variables in one request.
const VARIABLES_MOST: usize = 100;
/// The largest VMID of Proxmox.
pub(super) const LAST_VMID: u64 = 999_999_999;

type Body = Result<web::Bytes, actix_web::Error>;

impl Shown<ImageBuildOut> for ImageStatus {
    fn shown(&self) -> ImageBuildOut {
        let phases = self.phases.iter();
        let (failed_at, failure) = self.failure.clone().unzip();
        let (again, next_build, next_try) = match &self.next {
            None => (false, None, None),
            Some(NextBuild::Again) => (true, None, None),
            Some(NextBuild::Build(build)) => (true, Some(build.to_string()), None),
            Some(NextBuild::At(at)) => (false, None, Some(rfc3339(*at))),
        };
        ImageBuildOut {
            build: self.build.to_string(),
            image: self.image.to_string(),
            version: self.version.to_string(),
            node: self.node.to_string(),
            vmid: self.vmid.map(|vmid| vmid.0),
            state: self.phase,
            since: rfc3339(self.since),
            detail: self.detail.clone(),
            failed_at: failed_at.map(rfc3339),
            failure,
            again,
            next_build,
            next_try,
            phases: phases.map(|(state, ms)| PhaseOut { state: state.clone(), ms: *ms }).collect(),
        }
    }
}

impl Shown<ImagePlanOut> for ImagePlan {
    fn shown(&self) -> ImagePlanOut {
        let (node, does, version, build, vmid) = match self {
            Self::UpToDate { node, vmid, version } => (node, "upToDate", version, None, Some(vmid)),
            Self::Running { node, build, version } => (node, "running", version, Some(build), None),
            Self::Starts { node, build, version } => (node, "started", version, Some(build), None),
            Self::WouldStart { node, version } => (node, "wouldStart", version, None, None),
        };
        ImagePlanOut {
            node: node.to_string(),
            does: does.to_owned(),
            version: version.to_string(),
            build: build.map(ToString::to_string),
            vmid: vmid.map(|vmid| vmid.0),
        }
    }
}

impl Shown<ImageVersionOut> for PlannedPrune {
    fn shown(&self) -> ImageVersionOut {
        let marks = &self.version.marks;
        ImageVersionOut {
            image: self.image.to_string(),
            version: marks.agent.to_string(),
            node: self.version.node.to_string(),
            vmid: self.version.vmid.0,
            born: marks.born.clone(),
            kept: self.kept.clone(),
        }
    }
}

fn unread(state: &State, clouds: Vec<(CloudId, String)>) -> Vec<UnreadOut> {
    let view = &state.doors.view;
    clouds.into_iter().map(|(cloud, why)| unread_cloud(view, &cloud, why)).collect()
}

fn shown_builds(state: &State) -> Vec<ImageBuildOut> {
    state.doors.view.image_builds().iter().map(Shown::shown).collect()
}

/// Asks every cluster for its versions.
#[utoipa::path(get, path = "/v1/images", responses((status = 200, body = ImagesOut)))]
pub(super) async fn list(state: web::Data<State>) -> Result<web::Json<ImagesOut>, Rejection> {
    let seen = state.ask(state.limits.resync, |reply| HerdCommand::Images { reply }).await?;
    let images = seen.configured.iter();
    Ok(web::Json(ImagesOut {
        images: images
            .map(|(id, version, builds)| ImageOut {
                id: id.to_string(),
                version: version.to_string(),
                builds: *builds,
            })
            .collect(),
        versions: seen.versions.iter().map(Shown::shown).collect(),
        builds: shown_builds(&state),
        unread: unread(&state, seen.unread),
    }))
}

/// Builds that run, and the last that ended.
#[utoipa::path(get, path = "/v1/images/builds", responses((status = 200, body = ImageBuildsOut)))]
pub(super) async fn builds(state: web::Data<State>) -> web::Json<ImageBuildsOut> {
    web::Json(ImageBuildsOut { builds: shown_builds(&state) })
}

/// Builds an image on its nodes. A version that is there already is not built again, and a build that
/// runs is shared.
#[utoipa::path(
    post, path = "/v1/images/{id}/build", request_body = BuildImageIn,
    params(("id" = String, Path, description = "the image, its bare name or `cloud%2Fimage`")),
    responses(
        (status = 202, body = BuildImageOut),
        (status = 404, body = Problem, description = "no such image, node or variable"),
        (status = 409, body = Problem, description = "the bare name is on several clouds, or the image has no source"),
    )
)]
pub(super) async fn build(
    state: web::Data<State>,
    id: web::Path<String>,
    body: Body,
) -> Result<HttpResponse, Rejection> {
    let mut fields = Fields::<BuildImageIn>::parse(body)?;
    fields.line("node", LONGEST);
    let variables = fields.texts("variables", VARIABLES_MOST).unwrap_or_default();
    let mut given = BTreeMap::new();
    for text in &variables {
        match text.split_once('=') {
            Some((name, value)) => {
                given.insert(name.to_owned(), value.to_owned());
            }
            None => fields.fault("variables", "must be texts such as `name=value`"),
        }
    }
    fields.flag("dryRun");
    fields.flag("afresh");
    let BuildImageIn { node, dry_run, afresh, .. } = fields.finish()?;
    let (image, node) = (id.into_inner(), node.map(NodeName::new));
    let command = |reply| {
        let ask = ImageBuildAsk { image, node, given, afresh, dry_run, reply };
        HerdCommand::BuildImage(Box::new(ask))
    };
    let plans = state.ask(state.limits.resync, command).await?.map_err(Rejection::refused)?;
    let plans = plans.iter().map(Shown::shown).collect();
    Ok(HttpResponse::Accepted().json(BuildImageOut { plans }))
}

/// Ends a build, and destroys what it made.
#[utoipa::path(
    post, path = "/v1/images/builds/{id}/cancel",
    params(("id" = String, Path, description = "the build, or the image of the only one")),
    responses(
        (status = 204, description = "it ends; `GET /v1/images/builds` shows when it is over"),
        (status = 404, body = Problem, description = "no such build runs"),
        (status = 409, body = Problem, description = "its version is proved already, or several builds of the image run"),
    )
)]
pub(super) async fn cancel(
    state: web::Data<State>,
    id: web::Path<String>,
    body: Body,
) -> Result<HttpResponse, Rejection> {
    Fields::<Nothing>::parse(body)?.finish()?;
    let build = AgentId::new(id.into_inner());
    let command = |reply| HerdCommand::CancelBuild { build, reply };
    state.ask(state.limits.reply, command).await?.map_err(Rejection::refused)?;
    Ok(HttpResponse::NoContent().finish())
}

/// Removes versions beyond `keep` that nothing uses; with `unconfigured` those of images that left the
/// configuration too.
#[utoipa::path(
    post, path = "/v1/images/prune", request_body = PruneImagesIn,
    responses((status = 202, body = PruneImagesOut))
)]
pub(super) async fn prune(state: web::Data<State>, body: Body) -> Result<HttpResponse, Rejection> {
    let mut fields = Fields::<PruneImagesIn>::parse(body)?;
    fields.flag("dryRun");
    fields.flag("unconfigured");
    let PruneImagesIn { dry_run, unconfigured } = fields.finish()?;
    let command = |reply| HerdCommand::PruneImages { unconfigured, dry_run, reply };
    let done = state.ask(state.limits.resync, command).await?;
    let versions = done.versions.iter().map(Shown::shown).collect();
    let unread = unread(&state, done.unread);
    Ok(HttpResponse::Accepted().json(PruneImagesOut { versions, unread }))
}

/// Marks an existing template as a version of an image.
#[utoipa::path(
    post, path = "/v1/images/{id}/import", request_body = ImportImageIn,
    params(("id" = String, Path, description = "the image, its bare name or `cloud%2Fimage`")),
    responses(
        (status = 200, body = ImportImageOut),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "it is no template, or drover's already"),
    )
)]
pub(super) async fn import(
    state: web::Data<State>,
    id: web::Path<String>,
    body: Body,
) -> Result<web::Json<ImportImageOut>, Rejection> {
    let mut fields = Fields::<ImportImageIn>::parse(body)?;
    if fields.count("vmid", LAST_VMID).is_none() && !fields.has_faults() {
        fields.fault("vmid", "is missing; give the VMID of a template");
    }
    fields.flag("dryRun");
    let ImportImageIn { vmid, dry_run } = fields.finish()?;
    let (image, vmid) = (id.into_inner(), VmId(vmid));
    let command = |reply| HerdCommand::ImportImage { image, vmid, dry_run, reply };
    let done = state.ask(state.limits.resync, command).await?.map_err(Rejection::refused)?;
    let unreached = done.unreached.into_iter();
    let unreached = unreached.map(|(node, template)| (node.to_string(), template.to_string()));
    Ok(web::Json(ImportImageOut {
        image: done.image.to_string(),
        version: done.version.to_string(),
        node: done.node.to_string(),
        vmid: done.vmid.0,
        name: done.name,
        unreached: unreached.map(|(node, template)| UnreachedOut { node, template }).collect(),
    }))
}
