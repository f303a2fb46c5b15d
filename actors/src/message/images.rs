//! Builds and versions of images: what is asked, and what comes of it.

use std::collections::BTreeMap;

use drover_model::id::{AgentId, CloudId, NodeName, TemplateId, VmId};
use drover_model::image::{ImagePlan, PrunePlan};
use drover_runtime::reply::Reply;

use super::Refusal;

/// What `HerdCommand::BuildImage` builds.
#[derive(Debug)]
pub struct ImageBuildAsk {
    /// The image, by `cloud/image` or bare name.
    pub image: String,
    /// One node, in place of those of the image.
    pub node: Option<NodeName>,
    /// Values of variables, against those of the configuration.
    pub given: BTreeMap<String, String>,
    /// Whether a version of the same recipe is built again, where there is none of today.
    pub afresh: bool,
    /// Plans, and changes nothing.
    pub dry_run: bool,
    /// Receives what it comes to on each node, or a refusal.
    pub reply: Reply<Result<Vec<ImagePlan>, Refusal>>,
}

impl ImageBuildAsk {
    /// The recipe as the configuration has it, on all nodes of the image.
    pub fn plain(image: String, reply: Reply<Result<Vec<ImagePlan>, Refusal>>) -> Self {
        let (node, given) = (None, BTreeMap::new());
        Self { image, node, given, afresh: false, dry_run: false, reply }
    }
}

/// The result of `HerdCommand::Images`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImagesSeen {
    /// The configured images, each with the version that its recipe makes, and whether it has a
    /// source to build it from.
    pub configured: Vec<(TemplateId, AgentId, bool)>,
    /// What is on the clusters, and what pruning would do with it.
    pub versions: PrunePlan,
    /// Clouds that were not readable, each with the reason.
    pub unread: Vec<(CloudId, String)>,
}

/// The result of `HerdCommand::PruneImages`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImagesPruned {
    pub versions: PrunePlan,
    /// Clouds that were not readable, each with the reason.
    pub unread: Vec<(CloudId, String)>,
}

/// The result of `HerdCommand::ImportImage`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageImported {
    pub image: TemplateId,
    pub version: AgentId,
    pub node: NodeName,
    pub vmid: VmId,
    /// The template's name from now on.
    pub name: String,
    /// Nodes that templates name which do not reach it, each with such a template.
    pub unreached: Vec<(NodeName, TemplateId)>,
}
