//! Builds of images in the journal, and removals of versions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::JournalState;
use crate::id::{AgentId, NodeName};
use crate::marks::Marks;
use crate::record::Body;
use crate::time::WallTime;

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
            let entry =
                BuildEntry { marks, node, version, given, iso, sealed: None, pruned: false };
            self.builds.insert(build, entry);
        } else if let Body::ImageSealed { build, marks } = body {
            if let Some(entry) = self.builds.get_mut(build) {
                entry.sealed = Some((**marks).clone());
            }
        } else if let Body::ImagePruned { build, marks, node } = body {
            let (marks, node) = ((**marks).clone(), node.clone());
            let (version, given) = (marks.agent.clone(), BTreeMap::new());
            let entry =
                BuildEntry { marks, node, version, given, iso: None, sealed: None, pruned: true };
            self.builds.insert(build.clone(), entry);
        } else if let Body::ImageBuilt { build } = body {
            self.builds.remove(build);
        } else if let Body::ImageGone { build, burned } = body
            && let Some(entry) = self.builds.remove(build)
        {
            let ids = if *burned { &mut self.burned } else { &mut self.resting };
            ids.entry(entry.marks.cluster).or_default().insert(entry.marks.vmid, at);
        }
    }
}
