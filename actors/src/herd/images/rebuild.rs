//! Images that are built again by themselves (`rebuildAfterDays`), so that runners and packages in
//! them do not grow too old for their servers.
//!
//! - The same recipe makes one version in each period of so many days.
//! - drover builds one by itself only where the newest version is of the same recipe, from an earlier
//!   period. After an edit, or where values were given, the next build is an operator's.
//! - A server may call a runner too old before that. Then it builds a version of that day.
//! - At most one try in [`TRY_EVERY`] for each image: a build that fails is not repeated in a loop.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use drover_model::id::{AgentId, ClusterId, Installation, TemplateId};
use drover_model::image::{ImageSpec, ImageVersion, Recipe};
use drover_runtime::reply::Reply;

use crate::herd::Herd;
use crate::message::ImageBuildAsk;

/// The pause between two looks at all images.
const LOOK_EVERY: Duration = Duration::from_secs(3600);
/// The shortest time between two tries for one image.
const TRY_EVERY: Duration = Duration::from_secs(12 * 3600);

/// The newest version of a recipe's image.
fn newest<'a>(
    recipe: &Recipe,
    versions: &'a [ImageVersion],
    (installation, cluster): (&Installation, &ClusterId),
) -> Option<&'a AgentId> {
    let own = versions.iter().filter(|version| {
        let marks = &version.marks;
        *marks.template == *recipe.spec.id.name
            && marks.installation == *installation
            && marks.cluster == *cluster
    });
    let newest = own.max_by_key(|version| (version.created, version.vmid));
    newest.map(|newest| &newest.marks.agent)
}

/// Whether the newest version of a recipe's image is of the same recipe in an earlier period; where
/// what is in it is `too_old`, also in this one.
fn is_due(recipe: &Recipe, newest: Option<&AgentId>, too_old: bool) -> bool {
    newest.is_some_and(|newest| {
        recipe.earlier().contains(newest) || too_old && recipe.current().contains(newest)
    })
}

impl Herd {
    /// Looks each hour whether an image is to be rebuilt.
    pub(in crate::herd) fn rebuild_in_time(&mut self, ctx: &mut Context<Self>) {
        ctx.run_later(LOOK_EVERY, |actor, ctx| {
            actor.look_for_rebuilds(ctx);
            actor.rebuild_in_time(ctx);
        });
    }

    fn look_for_rebuilds(&mut self, ctx: &mut Context<Self>) {
        let images = self.spec.images.values().filter(|spec| spec.rebuild_days.is_some());
        let images: Vec<Arc<ImageSpec>> = images.map(Arc::clone).collect();
        images.iter().for_each(|spec| self.rebuild_where_due(spec, false, ctx));
    }

    /// A server calls the runner in a template's image too old: where the image is rebuilt by itself, it
    /// is built again at once.
    pub(in crate::herd) fn rebuild_outdated(
        &mut self,
        template: &TemplateId,
        ctx: &mut Context<Self>,
    ) {
        let image = self.spec.templates.get(template).and_then(|spec| spec.image());
        let image = image.and_then(|image| self.spec.images.get(&image));
        let spec = image.filter(|spec| spec.rebuild_days.is_some()).map(Arc::clone);
        if let Some(spec) = spec {
            self.rebuild_where_due(&spec, true, ctx);
        }
    }

    fn rebuild_where_due(&mut self, spec: &ImageSpec, too_old: bool, ctx: &mut Context<Self>) {
        let now = self.common.ports.ambient.now();
        let last = self.images.rebuilt.get(&spec.id);
        if last.is_some_and(|last| now.mono - *last < TRY_EVERY) {
            return;
        }
        let Ok(recipe) = Recipe::new(spec, &BTreeMap::new()) else { return };
        let recipe = recipe.at(now.wall);
        let cloud = recipe.spec.id.cloud.clone();
        let Ok(cluster) = self.cluster_of_image(&cloud) else { return };
        let fresh = self.images.fresh(&cluster, now.mono);
        let read = self.common.ports.hypervisor.image_versions(&cloud, &fresh);
        ctx.spawn(read.into_actor(self).map(move |versions, actor, ctx| {
            let Ok(versions) = versions else { return };
            let of = (&actor.common.run.installation, &cluster);
            if !is_due(&recipe, newest(&recipe, &versions, of), too_old) {
                return;
            }
            let id = recipe.spec.id;
            match too_old {
                true => tracing::warn!(image = %id, "rebuilds an image whose runner is too old"),
                false => tracing::info!(image = %id, "rebuilds an image that grew old"),
            }
            actor.images.rebuilt.insert(id.clone(), now.mono);
            let (reply, _) = Reply::channel();
            let ask = ImageBuildAsk::plain(id.to_string(), reply);
            actor.build_image(ImageBuildAsk { afresh: too_old, ..ask }, ctx);
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use drover_model::id::{NodeName, VmId};
    use drover_model::marks::{Kind, Marks};
    use drover_model::testing::{CLUSTER, image, marks};
    use drover_model::time::WallTime;

    use super::*;

    fn version(vmid: u32, agent: AgentId) -> ImageVersion {
        let marks = Marks {
            kind: Kind::Image,
            agent,
            template: "debian".into(),
            ..marks("4f8z1c3px9t2vkab", vmid)
        };
        ImageVersion {
            node: NodeName::new("pve1"),
            vmid: VmId(vmid),
            marks,
            created: Some(u64::from(vmid)),
            storages: BTreeSet::new(),
            shared: false,
        }
    }

    // Invariant: only the same recipe of an earlier period is built again by itself.

    #[test]
    fn an_image_is_due_where_its_newest_version_is_of_an_earlier_period() {
        let spec = ImageSpec { rebuild_days: Some(10), ..image("c/debian") };
        let at = |day: i64| {
            let now = WallTime(day * 24 * 3600 * 1000);
            Recipe::new(&spec, &BTreeMap::new()).map(|recipe| recipe.at(now))
        };
        let (Ok(old), Ok(now)) = (at(20_000), at(20_010)) else { return };
        let of = (&Installation::new("7k2m9qxw"), &ClusterId::new(CLUSTER));
        let is_due =
            |versions: &[ImageVersion], too_old| is_due(&now, newest(&now, versions, of), too_old);
        let other = AgentId::new("0123456789abcdef");
        for (versions, due, due_where_too_old) in [
            (vec![version(1, old.version())], true, true),
            (vec![], false, false),
            (vec![version(1, old.version()), version(2, now.version())], false, true),
            (vec![version(1, old.version()), version(2, other)], false, false),
        ] {
            let found = (is_due(&versions, false), is_due(&versions, true));
            assert_eq!(found, (due, due_where_too_old), "{versions:?}");
        }
    }
}
