//! Images that a template or a declared machine waits for and that were never built (`buildWhenMissing`):
//! drover builds them by itself.
//!
//! - A build starts where a template that is wanted starts nothing, or a declared machine finds no version
//!   of its image, and the clusters' list of guests has none. A list that cannot be read starts none.
//! - A build that fails is tried again after [`RETRY`], for as long as somebody waits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use drover_model::id::TemplateId;
use drover_model::image::{ImagePlan, ImageSpec};
use drover_model::time::Moment;
use drover_runtime::reply::Reply;

use crate::herd::Herd;
use crate::message::ImageBuildAsk;

/// The pause after a look that started no build.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// The pause after a build that failed: it would most likely fail again.
const RETRY: Duration = Duration::from_secs(30 * 60);

/// Until when an image is not looked at; an edit of the image ends it.
pub(super) struct Pause {
    until: Moment,
    spec: Arc<ImageSpec>,
}

impl Herd {
    /// Builds what templates and declared machines wait for.
    pub(in crate::herd) fn build_missing(&mut self, ctx: &mut Context<Self>) {
        if self.spec.images.values().all(|spec| !spec.build_missing) {
            return;
        }
        let now = self.common.ports.ambient.now().mono;
        for image in self.missed_images() {
            let Some(spec) = self.spec.images.get(&image) else { continue };
            let paused = |pause: &Pause| pause.until > now && pause.spec == *spec;
            if self.images.looks.get(&image).is_some_and(paused) {
                continue;
            }
            // Until the answer, no other look begins.
            self.look_again(&image, RETRY, ctx);
            let (reply, answer) = Reply::channel();
            self.build_image(ImageBuildAsk::plain(image.to_string(), reply), ctx);
            ctx.spawn(answer.into_actor(self).map(move |planned, actor, ctx| {
                let starts = |plan: &ImagePlan| matches!(plan, ImagePlan::Starts { .. });
                match planned {
                    Ok(Ok(plans)) if plans.iter().any(starts) => {
                        tracing::info!(image = %image, "builds an image that is waited for");
                    }
                    Ok(Err(refusal)) => {
                        tracing::warn!(
                            image = %image, error = %refusal,
                            "an image that is waited for cannot be built yet"
                        );
                        actor.look_again(&image, LOOK_AGAIN, ctx);
                    }
                    Ok(Ok(_)) | Err(_) => actor.look_again(&image, LOOK_AGAIN, ctx),
                }
            }));
        }
    }

    /// A build failed: the next one by itself is not started at once.
    pub(super) fn look_after_failure(&mut self, image: &TemplateId, ctx: &mut Context<Self>) {
        if self.spec.images.get(image).is_some_and(|spec| spec.build_missing) {
            self.look_again(image, RETRY, ctx);
        }
    }

    /// Images to be built by themselves that somebody waits for, without a build that runs.
    fn missed_images(&self) -> BTreeSet<TemplateId> {
        let builds = self.images.under_way();
        let is_idle = |image: &TemplateId| {
            let builds_itself = self.spec.images.get(image).is_some_and(|one| one.build_missing);
            builds_itself && !builds.contains_key(image)
        };
        let templates = self.spec.templates.values().filter_map(|spec| {
            let image = spec.image().filter(is_idle)?;
            self.scheduler.is_missed(spec).then_some(image)
        });
        let machines = self
            .declared
            .without_image()
            .filter_map(|name| self.spec.declared.get(name)?.template.image().filter(is_idle));
        templates.chain(machines).collect()
    }

    fn look_again(&mut self, image: &TemplateId, pause: Duration, ctx: &mut Context<Self>) {
        let Some(spec) = self.spec.images.get(image).map(Arc::clone) else { return };
        let until = self.common.ports.ambient.now().mono + pause;
        self.images.looks.insert(image.clone(), Pause { until, spec });
        ctx.run_later(pause, |actor, ctx| actor.settle_soon(ctx));
    }
}
