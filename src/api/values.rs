//! Values of the configuration in force.

use serde::{Deserialize, Serialize};

/// A value of the configuration in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ValueOut {
    /// The path of its key, such as `agentConfigurations.linux.memoryMb`.
    pub path: String,
    /// The value as YAML in one line; `***` for a secret.
    pub value: String,
    /// Where it is from: `drover.yaml:12`, `$LOG_LEVEL` or `default`.
    pub origin: String,
}

/// The answer with all values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ValuesOut {
    /// The number of the configuration in force; none until there is one.
    pub generation: Option<u64>,
    /// Its values, section by section, defaults included.
    pub values: Vec<ValueOut>,
}
