//! Refusals: RFC 9457 problem documents.

use serde::{Deserialize, Serialize};

/// What the names of all kinds begin with.
const KINDS: &str = "urn:drover:problem:";
/// The name of the kind of a configuration with faults.
const OF_CONFIGURATION: &str = "configuration-refused";

/// A problem document (`application/problem+json`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[error("{title}: {detail}")]
pub struct Problem {
    /// A name for this kind of problem, `urn:drover:problem:…`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// This case in words, with what to do where that is known.
    pub detail: String,
    /// What is wrong with single fields of the body.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldFault>,
}

impl Problem {
    /// Builds a problem; `name` ends its kind.
    pub fn new(status: u16, name: &str, title: &str, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("{KINDS}{name}"),
            title: title.to_owned(),
            status,
            detail: detail.into(),
            errors: Vec::new(),
        }
    }

    /// The configuration has faults; `status` is that of the answer.
    pub fn of_configuration(status: u16, faults: String) -> Self {
        let title = "the configuration was refused, the old one stays in force";
        Self::new(status, OF_CONFIGURATION, title, faults)
    }

    /// Whether the configuration has faults.
    pub fn is_of_configuration(&self) -> bool {
        self.kind.strip_prefix(KINDS) == Some(OF_CONFIGURATION)
    }
}

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FieldFault {
    /// The path of the field in the body.
    pub field: String,
    /// What is wrong with it and what to do.
    pub detail: String,
}
