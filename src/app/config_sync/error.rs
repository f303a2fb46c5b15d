//! Why a sync, a test or a plan came to nothing.

use std::io;

use drover_api::SyncResult;
use drover_git::GitError;
use drover_server::NotSynced;

/// Why a sync changed nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum SyncError {
    #[error("{}", causes::chain(.0))]
    Git(#[source] GitError),
    /// What git has is no configuration; the faults as people read them.
    #[error("{text}")]
    Refused { text: String, commit: Option<String> },
    #[error("the state directory cannot be written: {0}")]
    Store(#[source] io::Error),
    /// The request names no commit that can be had.
    #[error("{0}")]
    NoSuchCommit(String),
    /// A return to a commit came while git was read, and does not wait for that.
    #[error("somebody returned to a commit meanwhile, so this sync was given up; run it again")]
    Overtaken,
}

impl SyncError {
    /// What git has that was refused; none where it could not be read.
    pub(super) fn commit(&self) -> Option<String> {
        match self {
            Self::Refused { commit, .. } => commit.clone(),
            Self::Git(_) | Self::Store(_) | Self::NoSuchCommit(_) | Self::Overtaken => None,
        }
    }

    pub(super) fn result(&self) -> SyncResult {
        match self {
            Self::Refused { .. } => SyncResult::Refused,
            Self::Git(_) | Self::Store(_) | Self::NoSuchCommit(_) | Self::Overtaken => {
                SyncResult::Failed
            }
        }
    }

    /// Whether it says nothing of the repository: the caller asked for something that is not there, or
    /// the sync was given up.
    pub(super) fn is_of_request(&self) -> bool {
        matches!(self, Self::NoSuchCommit(_) | Self::Overtaken)
    }

    /// What is wrong, with what to do.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Git(error) => format!("{self}\n  help: {}\n", error.help()),
            Self::Refused { .. } | Self::Store(_) | Self::NoSuchCommit(_) | Self::Overtaken => {
                self.to_string()
            }
        }
    }

    pub(super) fn into_answer(self) -> NotSynced {
        let text = self.text();
        match self {
            Self::Refused { .. } => NotSynced::Refused(text),
            Self::NoSuchCommit(_) => NotSynced::Unknown(text),
            Self::Overtaken => NotSynced::Unavailable(text),
            Self::Git(_) | Self::Store(_) => NotSynced::Failed(text),
        }
    }
}
