//! The operations, each under one time limit and one at a time.

use std::ffi::OsString;
use std::path::PathBuf;

use tokio::sync::Mutex;

use super::branch::check_branch;
use super::commit::{Commit, CommitId};
use super::error::GitError;
use super::fetch::Brings;
use super::files::GitFile;
use super::limits::Limits;
use super::path::check_path;
use super::remote::{Remote, Wanted};
use super::work::Work;

/// Reads branches of repositories by way of a scratch folder of its own.
#[derive(Debug)]
pub struct Git {
    pub(super) folder: PathBuf,
    pub(super) limits: Limits,
    /// Where programs are searched.
    pub(super) search: Option<OsString>,
    turn: Mutex<()>,
}

impl Git {
    /// Uses the folder, which no other process may use and which may be removed at any time.
    #[must_use]
    pub fn at(folder: PathBuf, limits: Limits) -> Self {
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        Self { folder, limits, search: std::env::var_os("PATH"), turn: Mutex::new(()) }
    }

    /// Asks the remote for the commit that the branch is at; fetches nothing.
    ///
    /// # Errors
    /// See [`GitError`].
    pub async fn head(&self, remote: &Remote) -> Result<CommitId, GitError> {
        self.within(remote, async { Work::start(self, remote).await?.head().await }).await
    }

    /// Fetches the branch's newest commit, or one commit by its id. A commit that is in the scratch
    /// folder already needs no network.
    ///
    /// # Errors
    /// See [`GitError`].
    pub async fn fetch(&self, remote: &Remote, wanted: &Wanted) -> Result<Commit, GitError> {
        self.within(remote, async {
            let work = Work::start(self, remote).await?;
            if let Wanted::Commit(id) = wanted
                && let Some(commit) = work.kept(id).await
            {
                return Ok(commit);
            }
            work.fetch(wanted, Brings::NoFiles).await
        })
        .await
    }

    /// Reads the file at a path of a commit, or, where a folder is there, its visible files that
    /// end in `.yaml` or `.yml`, by name. Fetches what of them is not there yet.
    ///
    /// # Errors
    /// See [`GitError`]; a symbolic link or submodule is [`GitError::NotAFile`].
    pub async fn read(
        &self,
        remote: &Remote,
        commit: &CommitId,
        path: &str,
    ) -> Result<Vec<GitFile>, GitError> {
        check_path(path).map_err(GitError::Path)?;
        self.within(remote, async { Work::start(self, remote).await?.read(commit, path).await })
            .await
    }

    /// Runs an operation once it has its turn and what it is given was checked.
    async fn within<T>(
        &self,
        remote: &Remote,
        operation: impl Future<Output = Result<T, GitError>>,
    ) -> Result<T, GitError> {
        check_branch(&remote.branch).map_err(GitError::BranchName)?;
        let url = || remote.url.to_string();
        remote.login.check(&remote.url).map_err(|source| GitError::Login { url: url(), source })?;
        let _turn = self.turn.lock().await;
        let after = self.limits.time;
        tokio::time::timeout(after, operation)
            .await
            .map_err(|_| GitError::TimedOut { url: url(), after })?
    }
}
