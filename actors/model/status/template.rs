//! What others may know of a template and of its resets.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::canary::{FailingVersion, Version};
use crate::id::{AgentId, TemplateId};
use crate::overridden::TemplateOverrides;
use crate::phase::{AgentPhase, BreakerPhase};
use crate::time::WallTime;

/// A template on one cloud at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateStatus {
    pub template: TemplateId,
    /// How many of its agents are in each phase.
    pub states: BTreeMap<AgentPhase, u32>,
    pub cap: Option<u32>,
    /// Agents it keeps at this moment, in use or not.
    pub minimum: u32,
    /// Idle agents it keeps at this moment.
    pub idle_minimum: u32,
    /// Why it begins nothing at this moment although it may: no address is free.
    pub lack: Option<String>,
    pub labels: Vec<String>,
    /// Uses after which an agent is destroyed; none for no limit.
    pub max_uses: Option<u32>,
    /// Uses at once on one agent.
    pub executors: u32,
    pub breaker: BreakerPhase,
    /// When an open breaker may be tried again, and the cause.
    pub tripped: Option<(WallTime, String)>,
    /// What its agents are cloned from, once that was chosen.
    pub source: Option<String>,
    /// Why no agent is started for a while, when that is no breaker's matter.
    pub paused: Option<String>,
    /// What is known of its versions, where new ones must prove themselves.
    pub canary: Option<CanaryStatus>,
    /// Agents that were made otherwise than the template makes them now, and will be replaced.
    #[serde(default)]
    pub outdated: u32,
    /// What operators say against the configuration.
    #[serde(default, skip_serializing_if = "TemplateOverrides::is_empty")]
    pub overrides: TemplateOverrides,
}

/// The versions of a template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CanaryStatus {
    /// The version that was proven last.
    pub proven: Option<Version>,
    /// The agent that tries a version, and that version.
    pub trial: Option<(AgentId, Version)>,
    /// The versions that are not used, since their agents failed.
    pub given_up: Vec<FailingVersion>,
}

/// What is known of the resets of a template.
///
/// The answer of the API too: it has nothing to hide and no time to spell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(as = ResetsOut, description = "What is known of the resets of a template.")
)]
#[serde(rename_all = "camelCase")]
pub struct ResetStatus {
    /// Resets that went well since the service started.
    pub count: u64,
    /// Milliseconds one takes by now.
    pub reset_ms: Option<u64>,
    /// Milliseconds it takes to destroy an agent and make a new one.
    #[serde(rename = "anewMs")]
    pub clone_ms: Option<u64>,
    /// Why agents are destroyed all the same; empty when they are not.
    pub detail: String,
}
