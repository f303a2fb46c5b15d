//! Images that are built again by themselves (`rebuildAfterDays`), so that runners and packages in
//! them do not grow too old for their servers.
//!
//! - The same recipe makes one version in each period of so many days.
//! - drover builds one by itself only where the newest version is of the same recipe, from an earlier
//!   period. After an edit, or where values were given, the next build is an operator's.
//! - At most one try in [`TRY_EVERY`] for each image: a build that fails is not repeated in a loop.

use std::collections::BTreeMap;
use std::time::Duration;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use drover_model::id::{ClusterId, Installation};
use drover_model::image::{ImageVersion, Recipe};
use drover_runtime::reply::Reply;

use crate::herd::Herd;

/// The pause between two looks at all images.
const LOOK_EVERY: Duration = Duration::from_secs(3600);
/// The shortest time between two tries for one image.
const TRY_EVERY: Duration = Duration::from_secs(12 * 3600);

/// Whether the newest version of a recipe's image is of the same recipe in an earlier period.
fn is_due(
    recipe: &Recipe,
    versions: &[ImageVersion],
    (installation, cluster): (&Installation, &ClusterId),
) -> bool {
    let own = versions.iter().filter(|version| {
        let marks = &version.marks;
        *marks.template == *recipe.spec.id.name
            && marks.installation == *installation
            && marks.cluster == *cluster
    });
    let newest = own.max_by_key(|version| (version.created, version.vmid));
    newest.is_some_and(|newest| recipe.earlier().any(|version| version == newest.marks.agent))
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
        if self.spec.images.values().all(|spec| spec.rebuild_days.is_none()) {
            return;
        }
        let now = self.common.ports.ambient.now();
        let images = self.spec.images.values().filter(|spec| spec.rebuild_days.is_some());
        let recipes: Vec<Recipe> = images
            .filter(|spec| {
                let last = self.images.rebuilt.get(&spec.id);
                last.is_none_or(|last| now.mono - *last >= TRY_EVERY)
            })
            .filter_map(|spec| Some(Recipe::new(spec, &BTreeMap::new()).ok()?.at(now.wall)))
            .collect();
        for recipe in recipes {
            let cloud = recipe.spec.id.cloud.clone();
            let Ok(cluster) = self.cluster_of_image(&cloud) else { continue };
            let fresh = self.images.fresh(&cluster, now.mono);
            let read = self.common.ports.hypervisor.image_versions(&cloud, &fresh);
            ctx.spawn(read.into_actor(self).map(move |versions, actor, ctx| {
                let Ok(versions) = versions else { return };
                let of = (&actor.common.run.installation, &cluster);
                if !is_due(&recipe, &versions, of) {
                    return;
                }
                let id = recipe.spec.id;
                tracing::info!(image = %id, "rebuilds an image that grew old");
                actor.images.rebuilt.insert(id.clone(), now.mono);
                let (reply, _) = Reply::channel();
                actor.build_image(&id.to_string(), (None, BTreeMap::new(), false), reply, ctx);
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use drover_model::id::{AgentId, NodeName, VmId};
    use drover_model::image::ImageSpec;
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
        let other = AgentId::new("0123456789abcdef");
        assert!(is_due(&now, &[version(1, old.version())], of));
        assert!(!is_due(&now, &[], of), "it was never built");
        assert!(!is_due(&now, &[version(1, old.version()), version(2, now.version())], of));
        assert!(!is_due(&now, &[version(1, old.version()), version(2, other)], of), "edited");
    }
}
