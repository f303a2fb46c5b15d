//! Templates, their resets, and agents started without demand.

use std::collections::BTreeMap;

use drover_model::phase::{AgentPhase, BreakerPhase};
use drover_model::status::ResetStatus;
use serde::{Deserialize, Serialize};

use crate::TemplateOverridesOut;

// Not `TemplateStatus`: a time is spelled, and it has what others report of the template.
/// A template, its pool and its breaker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TemplateOut {
    /// `cloud/template`.
    pub id: String,
    /// The labels that it serves.
    pub labels: Vec<String>,
    /// How many of its agents are in each phase.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, u32>))]
    pub states: BTreeMap<AgentPhase, u32>,
    /// The most agents; null for no limit.
    pub cap: Option<u32>,
    /// Agents kept at this moment, in use or not.
    pub minimum: u32,
    /// Idle agents kept at this moment.
    pub idle_minimum: u32,
    /// Whether each of its agents is destroyed after one job or lease.
    #[serde(default)]
    pub single_use: bool,
    /// Jobs and leases after which an agent is destroyed; null for no limit, and 1 with `singleUse`.
    #[serde(default)]
    pub max_total_uses: Option<u32>,
    /// Jobs and leases at once on one agent.
    #[serde(default = "one")]
    pub num_executors: u32,
    /// Why it begins nothing although it may: no address is free; null when one is.
    #[serde(default)]
    pub lack: Option<String>,
    pub breaker: BreakerPhase,
    /// When a tripped breaker may be tried again (RFC 3339).
    pub retry_at: Option<String>,
    /// What tripped it.
    pub cause: Option<String>,
    /// What its agents are cloned from and why; null before that was chosen.
    #[serde(default)]
    pub source: Option<String>,
    /// Why no agent is started for a while, when that is no breaker's matter.
    #[serde(default)]
    pub paused: Option<String>,
    /// What is known of its resets; null where there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets: Option<ResetStatus>,
    /// What is known of its versions; left out without `canary`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<CanaryOut>,
    /// Agents that were made otherwise than the template makes them now, and will be replaced.
    #[serde(default)]
    pub outdated: u32,
    /// What operators say against the configuration; left out where they say nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<TemplateOverridesOut>,
    /// The commit of git that manages it; null where none does.
    #[serde(default)]
    pub managed_by: Option<String>,
    /// For how many seconds its next failure is held; left out when it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_next_seconds: Option<u64>,
}

const fn one() -> u32 {
    1
}

/// The versions of a template, of which new ones must prove themselves: each is what agents are cloned
/// from, `/`, and a digest of the configuration that they are made by.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CanaryOut {
    /// The version that was proven last; null before there was one.
    pub proven: Option<String>,
    /// The version that an agent tries now; null when none does.
    pub trying: Option<String>,
    /// The agent that tries it.
    pub agent: Option<String>,
    /// Versions that are not used, since their agents failed.
    pub given_up: Vec<GivenUpOut>,
}

/// A version that is not used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GivenUpOut {
    pub version: String,
    /// How many of its agents failed.
    pub failures: u32,
    /// Why the last one did.
    pub cause: String,
}

/// The answer to a list of templates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TemplatesOut {
    /// Each template on each of its clouds.
    pub templates: Vec<TemplateOut>,
}

/// How many agents to begin.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProvisionIn {
    /// From 1 to 10000; 1 when it is left out.
    pub count: u32,
    /// Whether they are on trial: handed to nobody, and gone a minute after they are ready.
    pub trial: bool,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProvisionOut {
    /// The template, `cloud/template`.
    pub template: String,
    /// How many agents were wanted.
    pub wanted: u32,
    /// The agents that were started.
    pub agents: Vec<String>,
    /// Why they are fewer than wanted; null when they are not.
    pub short: Option<String>,
    /// Why the template starts none by itself at this moment, which those that were started may meet too;
    /// null where it does.
    #[serde(default)]
    pub paused: Option<String>,
}
