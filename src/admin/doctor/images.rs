//! Images: whether the storages of a build take what it brings there.

use std::sync::Arc;

use drover_model::id::NodeName;
use drover_model::image::{ImageSource, ImageSpec};

use super::storages::problem_of;
use super::{CloudCheck, Cluster};

/// What a storage must take, in Proxmox's words, and under which key it is named.
fn wanted(spec: &ImageSpec) -> Vec<(&str, &'static str)> {
    let mut all = vec![(spec.storage.as_str(), "images")];
    match &spec.source {
        Some(ImageSource::Url { .. }) => all.push((&spec.import_storage, "import")),
        Some(ImageSource::Iso { .. }) => all.push((&spec.import_storage, "iso")),
        Some(ImageSource::Template(_)) | None => {}
    }
    all
}

/// The nodes that an image is built on, as far as they are online.
fn nodes(spec: &ImageSpec, cluster: &Cluster) -> Vec<NodeName> {
    let fleet = &cluster.fleet;
    if !spec.nodes.is_empty() {
        return spec.nodes.iter().filter(|node| !fleet.is_offline(node)).cloned().collect();
    }
    let takes =
        |node: &&NodeName| !fleet.is_offline(node) && fleet.storage(&spec.storage, node).is_some();
    fleet.nodes().keys().find(takes).or(cluster.online.first()).cloned().into_iter().collect()
}

impl CloudCheck<'_> {
    /// Checks the storages of images that are built.
    pub(super) async fn images(&mut self, cluster: &Cluster) {
        let own = |spec: &&Arc<ImageSpec>| spec.id.cloud == self.cloud.id && spec.source.is_some();
        let images: Vec<Arc<ImageSpec>> = self.herd.images.values().filter(own).cloned().collect();
        for spec in images {
            for node in nodes(&spec, cluster) {
                let all = match self.client.storages_of(node.as_str()).await {
                    Ok(all) => all,
                    Err(error) => {
                        let text = self.error_text(&error);
                        self.report.fail(format!("storages of {node}"), text, []);
                        continue;
                    }
                };
                for (name, content) in wanted(&spec) {
                    let about = format!("image {} on {node}: storage {name}", spec.id.name);
                    let found = all.iter().find(|one| one.storage == name);
                    match problem_of(name, &node, found, (content, true), &cluster.fleet) {
                        Ok(()) => self.report.ok(about, format!("takes {content}")),
                        Err((text, remedies)) => self.report.fail(about, text, remedies),
                    }
                }
            }
        }
    }
}
