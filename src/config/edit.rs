//! What all edits of configuration files share: nothing is written before the whole configuration
//! was checked with the edit. The edits themselves: `copy.rs` and `token.rs`.

use std::path::Path;

use super::LoadError;
use super::source::Sources;

/// Why an edit is not possible.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The request does not fit the files.
    #[error("{0}")]
    Request(String),
    /// The configuration has faults, as it is or with the edit.
    #[error("{why}")]
    Faulty {
        /// Which of the two.
        why: &'static str,
        #[source]
        source: Box<LoadError>,
    },
}

impl EditError {
    /// The error as people read it.
    pub fn render(&self) -> String {
        match self {
            Self::Request(text) => text.clone(),
            Self::Faulty { why, source } => format!("{why}:\n{}", source.render()),
        }
    }
}

pub(super) fn request(text: impl Into<String>) -> EditError {
    EditError::Request(text.into())
}

pub(super) fn faulty(why: &'static str) -> impl Fn(LoadError) -> EditError {
    move |source| EditError::Faulty { why, source: Box::new(source) }
}

/// Reads the files to edit.
pub(super) fn read(path: &Path) -> Result<Sources, EditError> {
    let unreadable = |(path, source)| LoadError::Io { path, source };
    Sources::read(path).map_err(unreadable).map_err(faulty("the configuration cannot be read"))
}
