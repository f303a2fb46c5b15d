//! Builds that failed: the last of each image on each node, what comes after it, and what a lease that
//! waits for the image says of that.

use std::collections::{BTreeMap, BTreeSet};

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use drover_model::fact::{Fact, What};
use drover_model::id::TemplateId;
use drover_model::image::{ImagePlan, Recipe};
use drover_model::journal_state::{FAILED_KEPT, FailedBuild, JournalState};
use drover_model::phase::ImagePhase;
use drover_model::spec::HerdSpec;
use drover_model::status::{ImageStatus, NextBuild};
use drover_model::time::{Now, WallTime};
use drover_runtime::reply::Reply;

use super::{Build, Images};
use crate::herd::Herd;
use crate::message::ImageBuildAsk;
use crate::scheduler::making::{Making, Then};

impl Images {
    /// No build of this image failed last on this node.
    pub(super) fn forget_failure(&mut self, status: &ImageStatus) {
        let same = |one: &ImageStatus| (&one.image, &one.node) == (&status.image, &status.node);
        self.failed.retain(|one| !same(one));
    }

    fn keep_failure(&mut self, status: ImageStatus) {
        self.forget_failure(&status);
        self.failed.push(status);
        let surplus = self.failed.len().saturating_sub(FAILED_KEPT);
        self.failed.drain(..surplus);
    }

    /// How far one of an image's builds is, where one runs.
    fn making(&self, builds: &Build, builds_itself: bool) -> Making {
        let ImageStatus { phase, failure, next, .. } = &builds.status;
        match failure.clone().filter(|_| *phase == ImagePhase::Removing) {
            Some(failure) if next.is_some() => Making::Removes { failure, then: Then::Again },
            Some(failure) if builds_itself => Making::Removes { failure, then: Then::Later },
            Some(failure) => Making::Removes { failure, then: Then::Operator },
            None => Making::Runs(*phase),
        }
    }
}

impl Herd {
    pub(super) fn show_build(&self, status: &ImageStatus) {
        let at = self.common.ports.ambient.now().wall;
        let what = What::Image(Box::new(status.clone()));
        self.common.ports.observer.observe(Fact { at, what });
    }

    /// A build failed, and nothing of it is left.
    pub(super) fn build_failed(&mut self, status: ImageStatus, ctx: &mut Context<Self>) {
        let next = self.look_after_failure(&status.image, ctx).map(NextBuild::At);
        let status = ImageStatus { next, ..status };
        self.show_build(&status);
        self.images.keep_failure(status);
    }

    /// Builds again what a start of the service found in the midst of its build.
    pub(super) fn build_again(
        &mut self,
        status: ImageStatus,
        given: BTreeMap<String, String>,
        ctx: &mut Context<Self>,
    ) {
        let (reply, answer) = Reply::channel();
        let ask = ImageBuildAsk::plain(status.image.to_string(), reply);
        self.build_image(ImageBuildAsk { node: Some(status.node.clone()), given, ..ask }, ctx);
        ctx.spawn(answer.into_actor(self).map(move |planned, actor, ctx| {
            let why = match planned.map(|planned| planned.map(|plans| plans.into_iter().next())) {
                Ok(Ok(Some(
                    ImagePlan::Starts { build, .. } | ImagePlan::Running { build, .. },
                ))) => {
                    let next = Some(NextBuild::Build(build));
                    return actor.show_build(&ImageStatus { next, ..status });
                }
                Ok(Ok(Some(ImagePlan::UpToDate { vmid, .. }))) => {
                    format!("its version is there already (VMID {vmid})")
                }
                Ok(Err(refusal)) => refusal.to_string(),
                // The service stops.
                Ok(Ok(Some(ImagePlan::WouldStart { .. }) | None)) | Err(_) => return,
            };
            let detail = format!("{}; drover does not build it again: {why}", status.detail);
            let failure = status.failure.clone().map(|(at, _)| (at, detail.clone()));
            actor.build_failed(ImageStatus { detail, failure, ..status }, ctx);
        }));
    }

    /// Takes over what the journal knows of builds that failed: an image is not built again at once
    /// because the service was started again.
    pub(in crate::herd) fn adopt_failures(
        &mut self,
        journal_state: &JournalState,
        spec: &HerdSpec,
        ctx: &mut Context<Self>,
    ) {
        let now = self.common.ports.ambient.now();
        for failed in &journal_state.failed_builds {
            // One whose guest is still to be removed shows itself.
            let Some(image) = spec.images.get(&failed.image) else { continue };
            if journal_state.builds.contains_key(&failed.build) {
                continue;
            }
            let recipe = Recipe::new(image, &BTreeMap::new()).ok();
            let recipe = recipe.filter(|_| image.build_missing).map(|recipe| recipe.at(now.wall));
            // An edit of the recipe ends the pause.
            let same = recipe.is_some_and(|recipe| recipe.current().contains(&failed.version));
            let next = same.then(|| self.pause_from(image, failed.at, now, ctx)).flatten();
            let status = status_of(failed, next);
            self.show_build(&status);
            self.images.keep_failure(status);
        }
    }

    /// How far drover is with each image that is not there.
    pub(in crate::herd) fn making(&self) -> BTreeMap<TemplateId, Making> {
        let now = self.common.ports.ambient.now();
        let builds_itself =
            |image: &TemplateId| self.spec.images.get(image).is_some_and(|one| one.build_missing);
        let mut all: BTreeMap<TemplateId, Making> = BTreeMap::new();
        for failed in
            self.images.failed.iter().filter(|one| self.spec.images.contains_key(&one.image))
        {
            let Some(failure) = failed.failure.clone() else { continue };
            let then = self.then(&failed.image, now);
            all.insert(failed.image.clone(), Making::Failed { failure, then });
        }
        let missed = match self.spec.images.values().any(|spec| spec.build_missing) {
            true => self.missed_images(),
            false => BTreeSet::new(),
        };
        for image in missed {
            match self.images.looks.get(&image).filter(|pause| self.holds(&image, pause, now)) {
                None => drop(all.insert(image, Making::Begins)),
                Some(pause) if pause.asked => drop(all.insert(image, Making::Begins)),
                Some(pause) => {
                    if let Some(why) = pause.why.clone() {
                        all.insert(image, Making::Refused { why, next: pause.wall });
                    }
                }
            }
        }
        for build in self.images.builds.values().filter(|build| !build.pruned) {
            let image = build.status.image.clone();
            let making = self.images.making(build, builds_itself(&image));
            // One that still runs says more than one that is being removed.
            let runs = matches!(all.get(&image), Some(Making::Runs(_)));
            if !runs || matches!(making, Making::Runs(_)) {
                all.insert(image, making);
            }
        }
        all
    }

    fn then(&self, image: &TemplateId, now: Now) -> Then {
        match self.images.looks.get(image) {
            Some(pause) if self.holds(image, pause, now) => Then::At(pause.wall),
            Some(_) | None => Then::Operator,
        }
    }
}

fn status_of(failed: &FailedBuild, next: Option<WallTime>) -> ImageStatus {
    ImageStatus {
        build: failed.build.clone(),
        image: failed.image.clone(),
        version: failed.version.clone(),
        node: failed.node.clone(),
        vmid: None,
        phase: ImagePhase::Failed,
        since: failed.at,
        detail: failed.why.clone(),
        failure: Some((failed.at, failed.why.clone())),
        next: next.map(NextBuild::At),
        phases: Vec::new(),
    }
}
