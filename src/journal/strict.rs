//! Reading what a drover wrote: everything in it is understood, or it is refused.
//!
//! A newer drover may have added a field. To read past it would be to forget what the field says, and
//! the next snapshot would drop it for good. So an older drover refuses such a journal, whole.

use serde::de::DeserializeOwned;

use super::LogError;

/// The number of unknown fields that a message names.
const NAMED_MAX: usize = 3;

/// Why a record or a snapshot cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotRead {
    /// It is no JSON, or its values are not those of a record.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// It has fields that this drover does not know, by their paths.
    #[error("unknown {}", name(.0))]
    Fields(Vec<String>),
}

impl NotRead {
    /// The fault of a log. What is JSON and is not understood comes from another drover; what is no JSON
    /// is damaged.
    pub(super) fn at(self, place: String, part: String) -> LogError {
        match self {
            Self::Json(error) if !error.is_data() => {
                LogError::Corrupt { place, source: Box::new(error) }
            }
            Self::Json(_) | Self::Fields(_) => {
                LogError::Unknown { place, part, source: Box::new(self) }
            }
        }
    }
}

fn name(fields: &[String]) -> String {
    let named: Vec<String> =
        fields.iter().take(NAMED_MAX).map(|field| format!("`{field}`")).collect();
    let word = if fields.len() == 1 { "field" } else { "fields" };
    match fields.len().saturating_sub(NAMED_MAX) {
        0 => format!("{word} {}", named.join(", ")),
        more => format!("{word} {}, and {more} more", named.join(", ")),
    }
}

/// Reads JSON of which nothing is ignored.
///
/// # Errors
/// [`NotRead`].
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, NotRead> {
    let mut unknown = Vec::new();
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_ignored::deserialize(&mut json, |path| unknown.push(path.to_string()))?;
    json.end()?;
    if unknown.is_empty() { Ok(value) } else { Err(NotRead::Fields(unknown)) }
}
