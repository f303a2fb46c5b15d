//! What a configuration would do, before it comes into force.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ValueChangeOut;

/// Which part of the configuration is planned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum PlanPart {
    /// What git manages.
    #[default]
    Git,
    /// The configuration of drover's machine.
    Local,
}

/// Asks what a configuration would do. Without files it is what the branch has now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlanIn {
    /// The part that the files take the place of; without `service.configSync` always `local`.
    #[serde(default)]
    pub part: PlanPart,
    /// The text of each file of that part, by its path relative to the configuration's folder: the
    /// YAML, and what it names.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
}

/// What becomes of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum WhatChangesOut {
    Added,
    /// It leaves the configuration: its agents go, those in use after their last leases.
    Drained,
    Changed,
}

/// A number before and after; null for no limit, or where there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NumberOut {
    pub before: Option<u32>,
    pub after: Option<u32>,
}

/// What becomes of a cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CloudPlanOut {
    pub cloud: String,
    pub what: WhatChangesOut,
    /// The most agents over all its templates.
    pub cap: NumberOut,
    /// Whether endpoints, credentials or trust change.
    pub reconnects: bool,
    /// Its agents that go at once.
    pub going_now: u32,
    /// Its agents that go after their last leases.
    pub going_after_leases: u32,
}

/// How agents of an older version are replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RollOut {
    /// Agents that are replaced while they are idle.
    pub idle: u32,
    /// Agents in use, which are replaced after their leases where they would serve again.
    pub busy: u32,
    /// How many at once; 0 for none, so that they stay until they go by themselves.
    pub at_once: u32,
    /// Whether one agent must prove the new version first.
    pub canary: bool,
}

/// What becomes of a template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TemplatePlanOut {
    /// `cloud/template`.
    pub template: String,
    pub what: WhatChangesOut,
    /// The most agents.
    pub cap: NumberOut,
    /// Agents kept, in use or not.
    pub minimum: NumberOut,
    /// Idle agents kept beside those in use.
    pub idle_minimum: NumberOut,
    /// Agents that start for the warm pool.
    pub starting: u32,
    /// Its agents that go at once, because it leaves the configuration.
    pub going_now: u32,
    /// Its agents that go after their last leases.
    pub going_after_leases: u32,
    /// How its agents are replaced; null where they are as it would make them.
    pub roll: Option<RollOut>,
}

/// What is wanted now and no template would serve any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnservedOut {
    /// Whose it is: a source or a lease.
    pub whose: String,
    /// What is wanted.
    pub wants: String,
    pub count: usize,
}

/// What a configuration would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlanOut {
    /// Whether it changes anything.
    pub changes: bool,
    /// The commit that was read; null where files were given.
    pub commit: Option<String>,
    /// The values that differ, key by key.
    pub values: Vec<ValueChangeOut>,
    pub clouds: Vec<CloudPlanOut>,
    pub templates: Vec<TemplatePlanOut>,
    /// What is wanted now and no template would serve any more.
    pub unserved: Vec<UnservedOut>,
    /// What is allowed but unwise in it, as people read it; empty where nothing is.
    pub warnings: String,
    /// Files that the configuration names and that were not given: send them too.
    pub lacks: Vec<String>,
}
