//! What others may know of a build of an image.

use serde::{Deserialize, Serialize};

use crate::id::{AgentId, NodeName, TemplateId, VmId};
use crate::phase::ImagePhase;
use crate::time::WallTime;

/// One build at a moment, or the removal of a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageStatus {
    /// The build's own id.
    pub build: AgentId,
    /// The image, `cloud/image`.
    pub image: TemplateId,
    /// The version that it makes or removes.
    pub version: AgentId,
    pub node: NodeName,
    /// Its VMID, once chosen.
    pub vmid: Option<VmId>,
    pub phase: ImagePhase,
    /// When that phase began.
    pub since: WallTime,
    /// A line for people: the step, what it waits for, or why it failed.
    pub detail: String,
    /// When and why it failed: its guest is being removed, or is gone.
    pub failure: Option<(WallTime, String)>,
    /// What comes after a build that failed, where drover does something by itself.
    pub next: Option<NextBuild>,
    /// Milliseconds spent in each part so far, in order.
    pub phases: Vec<(String, u64)>,
}

/// What drover does by itself after a build that came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum NextBuild {
    /// It begins the build again once its guest is gone: the service stopped in its midst.
    Again,
    /// This build goes on in its place.
    Build(AgentId),
    /// It tries again then, where a template still waits for the image.
    At(WallTime),
}
