//! Builds of images in the journal, and removals of versions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::JournalState;
use crate::id::{AgentId, CloudId, NodeName, TemplateId};
use crate::marks::Marks;
use crate::record::Body;
use crate::time::WallTime;

/// The most failed builds that are remembered.
pub const FAILED_KEPT: usize = 100;

/// How a build failed whose guest is still to be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildFailure {
    pub at: WallTime,
    pub why: String,
    /// Whether its guest is known to have been made.
    pub made: bool,
}

/// The last build of an image on a node, which failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedBuild {
    pub build: AgentId,
    pub image: TemplateId,
    pub node: NodeName,
    /// The version that it was to be.
    pub version: AgentId,
    pub at: WallTime,
    pub why: String,
}

/// A build, or the removal of a version, as the journal knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildEntry {
    /// The marks that the guest was given; of a version that goes, its own.
    pub marks: Marks,
    pub node: NodeName,
    /// The version that is made or goes.
    pub version: AgentId,
    /// Values of variables that somebody gave.
    #[serde(default)]
    pub given: BTreeMap<String, String>,
    /// The disc image for cloud-init that the guest has, or had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iso: Option<String>,
    /// The marks of the proved version, once it is to carry them.
    #[serde(default)]
    pub sealed: Option<Marks>,
    /// How it failed, once it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<BuildFailure>,
    /// Whether this is a version that goes.
    #[serde(default)]
    pub pruned: bool,
}

impl JournalState {
    /// Folds a record of images in.
    pub(super) fn of_images(&mut self, body: &Body, seq: u64, at: WallTime) {
        if let Body::ImageIntended { marks, node, version, given, iso } = body {
            let mut marks = (**marks).clone();
            if marks.seq == 0 {
                marks.seq = seq;
            }
            let (build, version) = (marks.agent.clone(), version.clone());
            let (node, given, iso) = (node.clone(), given.clone(), iso.clone());
            let (sealed, failed, pruned) = (None, None, false);
            let entry = BuildEntry { marks, node, version, given, iso, sealed, failed, pruned };
            self.builds.insert(build, entry);
        } else if let Body::ImageSealed { build, marks } = body {
            if let Some(entry) = self.builds.get_mut(build) {
                entry.sealed = Some((**marks).clone());
            }
        } else if let Body::ImageFailed { build, image, node, version, made, why } = body {
            let (build, image, node) = (build.clone(), image.clone(), node.clone());
            let (version, why) = (version.clone(), why.clone());
            if let Some(entry) = self.builds.get_mut(&build) {
                entry.failed = Some(BuildFailure { at, why: why.clone(), made: *made });
            }
            self.forget_failure(&image, &node);
            self.failed_builds.push(FailedBuild { build, image, node, version, at, why });
            let surplus = self.failed_builds.len().saturating_sub(FAILED_KEPT);
            self.failed_builds.drain(..surplus);
        } else if let Body::ImagePruned { build, marks, node } = body {
            let (marks, node) = ((**marks).clone(), node.clone());
            let (version, given) = (marks.agent.clone(), BTreeMap::new());
            let (iso, sealed, failed, pruned) = (None, None, None, true);
            let entry = BuildEntry { marks, node, version, given, iso, sealed, failed, pruned };
            self.builds.insert(build.clone(), entry);
        } else if let Body::ImageBuilt { build } = body
            && let Some(entry) = self.builds.remove(build)
        {
            let cloud = CloudId::new(&entry.marks.cloud);
            let image = TemplateId::new(cloud, &entry.marks.template);
            self.forget_failure(&image, &entry.node);
        } else if let Body::ImageGone { build, burned } = body
            && let Some(entry) = self.builds.remove(build)
        {
            let ids = if *burned { &mut self.burned } else { &mut self.resting };
            ids.entry(entry.marks.cluster).or_default().insert(entry.marks.vmid, at);
        }
    }

    fn forget_failure(&mut self, image: &TemplateId, node: &NodeName) {
        self.failed_builds.retain(|one| one.image != *image || one.node != *node);
    }
}
