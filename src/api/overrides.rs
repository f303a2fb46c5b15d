//! What operators say of templates and clouds against the configuration.

use drover_model::overridden::{CloudOverrides, TemplateOverrides};
use serde::{Deserialize, Serialize};

use crate::agents::present;

/// What holds for a template instead of what the configuration says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateOverridesOut {
    /// The most agents, 0 for no limit; null for the configuration's.
    pub instance_cap: Option<u32>,
    /// Agents kept, in use or not; null for the configuration's.
    pub instance_min: Option<u32>,
    /// Idle agents kept beside those in use; null for the configuration's.
    pub idle_min: Option<u32>,
    /// Minutes of idling after which an agent goes, 0 for never; null for the configuration's.
    pub idle_termination_minutes: Option<u32>,
    /// Uses after which an agent goes, 0 for no limit; null for the configuration's.
    pub max_total_uses: Option<u32>,
    /// Whether agents of an older version stay until they go by themselves.
    pub rollout_paused: bool,
}

/// What changes of it: absent leaves a value, null takes it back, a number sets it.
/// `/openapi.json` describes it as [`TemplateOverridesOut`]: a schema does not distinguish null from
/// absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateOverridesIn {
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub instance_cap: Option<Option<u32>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub instance_min: Option<Option<u32>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub idle_min: Option<Option<u32>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub idle_termination_minutes: Option<Option<u32>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub max_total_uses: Option<Option<u32>>,
    /// Whether the roll-out pauses from now on; absent leaves that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout_paused: Option<bool>,
}

/// What holds for a cloud instead of what the configuration says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct CloudOverridesOut {
    /// The most agents over all its templates, 0 for no limit; null for the configuration's.
    pub instance_cap: Option<u32>,
}

/// What changes of it: absent leaves a value, null takes it back, a number sets it.
/// `/openapi.json` describes it as [`CloudOverridesOut`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CloudOverridesIn {
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub instance_cap: Option<Option<u32>>,
}

impl From<TemplateOverrides> for TemplateOverridesOut {
    fn from(own: TemplateOverrides) -> Self {
        Self {
            instance_cap: own.cap,
            instance_min: own.minimum,
            idle_min: own.idle_minimum,
            idle_termination_minutes: own.idle_minutes,
            max_total_uses: own.max_uses,
            rollout_paused: own.rollout_paused,
        }
    }
}

impl TemplateOverridesOut {
    /// What is set, in the words of the configuration; nothing where nothing is.
    pub fn spell(self) -> String {
        let own = TemplateOverrides {
            cap: self.instance_cap,
            minimum: self.instance_min,
            idle_minimum: self.idle_min,
            idle_minutes: self.idle_termination_minutes,
            max_uses: self.max_total_uses,
            rollout_paused: self.rollout_paused,
        };
        own.to_string()
    }
}

impl From<CloudOverrides> for CloudOverridesOut {
    fn from(own: CloudOverrides) -> Self {
        Self { instance_cap: own.cap }
    }
}
