//! What a configuration would do to what lives now, before it comes into force.

use crate::id::{CloudId, TemplateId};
use crate::record::Want;

/// What a configuration would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Clouds that it changes.
    pub clouds: Vec<CloudPlan>,
    /// Templates that it changes.
    pub templates: Vec<TemplatePlan>,
    /// What is wanted now and no template would serve any more: whose it is, what, and how often.
    pub unserved: Vec<(String, Want, usize)>,
}

/// What becomes of something in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WhatChanges {
    Added,
    /// It leaves the configuration: its agents go after their last leases.
    Drained,
    Changed,
}

/// A number before and after.
pub type Number = (Option<u32>, Option<u32>);

/// What becomes of a cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudPlan {
    pub cloud: CloudId,
    pub what: WhatChanges,
    /// The most agents over all its templates; none for no limit.
    pub cap: Number,
    /// Whether endpoints, credentials or trust change.
    pub reconnects: bool,
    /// Its agents that go.
    pub going: Going,
}

/// Agents that go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Going {
    /// Those that are idle, which go at once.
    pub now: u32,
    /// After their last leases.
    pub after_leases: u32,
}

/// What becomes of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplatePlan {
    pub template: TemplateId,
    pub what: WhatChanges,
    /// The most agents; none for no limit.
    pub cap: Number,
    /// Agents kept, in use or not.
    pub minimum: Number,
    /// Idle agents kept beside those in use.
    pub idle_minimum: Number,
    /// Agents that start for the warm pool.
    pub starting: u32,
    /// Its agents that go because it leaves the configuration.
    pub going: Going,
    /// How its agents are replaced; none where they are as it would make them.
    pub roll: Option<Roll>,
}

/// How agents of an older version are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roll {
    /// Agents that are replaced while they are idle.
    pub idle: u32,
    /// Agents in use, which are replaced after their leases where they would serve again.
    pub busy: u32,
    /// How many at once; 0 for none, so that they stay until they go by themselves.
    pub at_once: u32,
    /// Whether one agent must prove the new version first.
    pub canary: bool,
}

impl Plan {
    /// Whether it changes nothing that agents or those who want some notice.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
