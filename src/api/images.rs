//! Images: building them, what is there, pruning and importing versions.

use drover_model::phase::ImagePhase;
use serde::{Deserialize, Serialize};

use crate::{PhaseOut, UnreadOut};

/// How to build an image.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BuildImageIn {
    /// The node; absent for all nodes of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Values of variables against those of the configuration, each `name=value`.
    #[serde(default)]
    pub variables: Vec<String>,
    /// Whether the same recipe is built again, where there is no version of today.
    #[serde(default)]
    pub afresh: bool,
    /// Whether it is only planned.
    #[serde(default)]
    pub dry_run: bool,
}

/// What a command to build comes to on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ImagePlanOut {
    pub node: String,
    /// `upToDate`, `running`, `started` or `wouldStart`.
    pub does: String,
    /// The version that is there or is made.
    pub version: String,
    /// The build; null where there is none.
    pub build: Option<String>,
    /// The VMID of the version that is there.
    pub vmid: Option<u32>,
}

/// What came of a command to build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BuildImageOut {
    /// One for each node.
    pub plans: Vec<ImagePlanOut>,
}

/// A configured image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ImageOut {
    /// `cloud/image`.
    pub id: String,
    /// The version that its recipe makes.
    pub version: String,
    /// Whether drover can build it; where not, its versions are imported.
    #[serde(default = "builds")]
    pub builds: bool,
}

/// A service of before built all images.
fn builds() -> bool {
    true
}

/// A version of an image on a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ImageVersionOut {
    /// The image, `cloud/image`.
    pub image: String,
    pub version: String,
    pub node: String,
    pub vmid: u32,
    /// When it was built or imported.
    pub born: String,
    /// Why pruning keeps it; null where pruning removes it.
    pub kept: Option<String>,
}

/// A build of an image, or the removal of a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ImageBuildOut {
    /// The build's own id.
    pub build: String,
    /// The image, `cloud/image`.
    pub image: String,
    pub version: String,
    pub node: String,
    pub vmid: Option<u32>,
    pub state: ImagePhase,
    /// When it came into its phase.
    pub since: String,
    /// The step, what it waits for, or why it failed.
    pub detail: String,
    /// When it failed (RFC 3339): its guest is being removed, or is gone.
    #[serde(default)]
    pub failed_at: Option<String>,
    /// Why it failed.
    #[serde(default)]
    pub failure: Option<String>,
    /// Whether drover builds it again by itself once its guest is gone: the service stopped in its midst.
    #[serde(default)]
    pub again: bool,
    /// The build that goes on in its place.
    #[serde(default)]
    pub next_build: Option<String>,
    /// When drover tries again by itself, where a template waits for the image then (RFC 3339).
    #[serde(default)]
    pub next_try: Option<String>,
    /// The time of each part so far.
    pub phases: Vec<PhaseOut>,
}

/// The answer to a list of images.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ImagesOut {
    pub images: Vec<ImageOut>,
    pub versions: Vec<ImageVersionOut>,
    /// Builds that run, and the last that ended.
    pub builds: Vec<ImageBuildOut>,
    /// Clouds that could not be read.
    pub unread: Vec<UnreadOut>,
}

/// The answer to a list of builds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ImageBuildsOut {
    /// Builds that run, and the last that ended.
    pub builds: Vec<ImageBuildOut>,
}

/// How to prune.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PruneImagesIn {
    /// Whether it is only planned.
    #[serde(default)]
    pub dry_run: bool,
    /// Whether versions of images that left the configuration go too.
    #[serde(default)]
    pub unconfigured: bool,
}

/// What pruning does with each version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PruneImagesOut {
    pub versions: Vec<ImageVersionOut>,
    /// Clouds that could not be read.
    pub unread: Vec<UnreadOut>,
}

/// Which template to import.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ImportImageIn {
    /// The VMID of the template.
    pub vmid: u32,
    /// Whether to say what would be, and change nothing.
    #[serde(default, rename = "dryRun")]
    pub dry_run: bool,
}

/// A template that became a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ImportImageOut {
    /// The image, `cloud/image`.
    pub image: String,
    pub version: String,
    pub node: String,
    pub vmid: u32,
    /// The template's name from now on.
    pub name: String,
    /// Nodes that templates of the image name and that do not reach the version.
    #[serde(default)]
    pub unreached: Vec<UnreachedOut>,
}

/// A node that a template names and that does not reach a version of its image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnreachedOut {
    pub node: String,
    /// `cloud/template`.
    pub template: String,
}
