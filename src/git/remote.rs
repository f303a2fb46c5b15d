//! Where a branch is, and what of it is wanted.

use std::path::PathBuf;

use super::commit::CommitId;
use super::login::Login;
use super::url::RepoUrl;

/// Where a branch is and how to reach it.
#[derive(Debug, Clone)]
pub struct Remote {
    /// The address of the repository.
    pub url: RepoUrl,
    /// The branch without `refs/heads/`; see [`crate::check_branch`].
    pub branch: String,
    /// Who logs in.
    pub login: Login,
    /// Certificates in PEM that take the place of the system's for `https`.
    pub ca_file: Option<PathBuf>,
    /// Lines of `known_hosts` for `ssh`. A host that has none is refused.
    pub known_hosts: Option<String>,
}

/// What is to be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// The newest commit of the branch.
    Head,
    /// This commit, of whatever branch.
    Commit(CommitId),
}
