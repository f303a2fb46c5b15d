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
use drover_model::time::{Moment, Now, WallTime};
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
    /// The same moment for people.
    pub(super) wall: WallTime,
    /// Whether it was asked for a build, and the answer is awaited.
    pub(super) asked: bool,
    /// Why no build could begin.
    pub(super) why: Option<String>,
    spec: Arc<ImageSpec>,
}

impl Herd {
    /// Builds what templates and declared machines wait for.
    pub(in crate::herd) fn build_missing(&mut self, ctx: &mut Context<Self>) {
        if self.spec.images.values().all(|spec| !spec.build_missing) {
            return;
        }
        let now = self.common.ports.ambient.now();
        for image in self.missed_images() {
            let looks = self.images.looks.get(&image);
            if looks.is_some_and(|pause| self.holds(&image, pause, now)) {
                continue;
            }
            // Until the answer, no other look begins.
            self.look_again(&image, RETRY, ctx);
            if let Some(pause) = self.images.looks.get_mut(&image) {
                pause.asked = true;
            }
            let (reply, answer) = Reply::channel();
            self.build_image(ImageBuildAsk::plain(image.to_string(), reply), ctx);
            ctx.spawn(answer.into_actor(self).map(move |planned, actor, ctx| {
                let starts = |plan: &ImagePlan| matches!(plan, ImagePlan::Starts { .. });
                if let Some(pause) = actor.images.looks.get_mut(&image) {
                    pause.asked = false;
                }
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
                        if let Some(pause) = actor.images.looks.get_mut(&image) {
                            pause.why = Some(refusal.to_string());
                        }
                    }
                    Ok(Ok(_)) | Err(_) => actor.look_again(&image, LOOK_AGAIN, ctx),
                }
            }));
        }
    }

    /// A build failed: the next one by itself is not started at once. Gives when it is, where drover
    /// builds the image by itself.
    pub(super) fn look_after_failure(
        &mut self,
        image: &TemplateId,
        ctx: &mut Context<Self>,
    ) -> Option<WallTime> {
        self.spec.images.get(image).filter(|spec| spec.build_missing)?;
        self.look_again(image, RETRY, ctx);
        self.images.looks.get(image).map(|pause| pause.wall)
    }

    /// Goes on with the pause after a build that failed before the service was started; gives its end,
    /// where that is still to come.
    pub(super) fn pause_from(
        &mut self,
        spec: &Arc<ImageSpec>,
        failed: WallTime,
        now: Now,
        ctx: &mut Context<Self>,
    ) -> Option<WallTime> {
        let passed = now.wall - failed;
        let left = RETRY.checked_sub(passed).filter(|left| !left.is_zero())?;
        let pause = Pause {
            until: now.mono + left,
            wall: now.wall + left,
            asked: false,
            why: None,
            spec: Arc::clone(spec),
        };
        self.images.looks.insert(spec.id.clone(), pause);
        ctx.run_later(left, |actor, ctx| actor.settle_soon(ctx));
        Some(now.wall + left)
    }

    /// Whether an image is not looked at yet.
    pub(super) fn holds(&self, image: &TemplateId, pause: &Pause, now: Now) -> bool {
        let same = self.spec.images.get(image).is_some_and(|spec| pause.spec == *spec);
        pause.until > now.mono && same
    }

    /// Images to be built by themselves that somebody waits for, without a build that runs.
    pub(super) fn missed_images(&self) -> BTreeSet<TemplateId> {
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
        let now = self.common.ports.ambient.now();
        let (until, wall) = (now.mono + pause, now.wall + pause);
        let look = Pause { until, wall, asked: false, why: None, spec };
        self.images.looks.insert(image.clone(), look);
        ctx.run_later(pause, |actor, ctx| actor.settle_soon(ctx));
    }
}
