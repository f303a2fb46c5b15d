//! Why an operation failed: each cause apart, as a sentence for people, with what to do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::branch::BranchFault;
use super::commit::CommitId;
use super::login::LoginFault;
use super::path::PathFault;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// A program that the operation runs is not there.
    #[error("the program `{program}` is not installed, or not in PATH")]
    NoProgram {
        /// `git`, `git 2.32 or newer`, `ssh` or `sh`.
        program: &'static str,
    },
    /// The repository is not reachable, does not exist, or is not a repository.
    #[error("the repository {url} cannot be read: {why}")]
    Repository {
        /// The address, without secrets.
        url: String,
        /// What git says.
        why: String,
    },
    /// The repository does not accept the login, or wants one.
    #[error("the repository {url} refuses the login: {why}")]
    Refused {
        /// The address, without secrets.
        url: String,
        /// What git says.
        why: String,
    },
    /// The login is of the wrong kind for the repository.
    #[error("the login does not fit the repository {url}")]
    Login {
        /// The address, without secrets.
        url: String,
        /// What does not fit.
        #[source]
        source: LoginFault,
    },
    /// The SSH host key is unknown, or not the known one.
    #[error("the host key of the repository {url} is not trusted: {why}")]
    HostKey {
        /// The address, without secrets.
        url: String,
        /// What ssh says.
        why: String,
    },
    /// The certificate of an https server is not trusted.
    #[error("the certificate of the repository {url} is not trusted: {why}")]
    Certificate {
        /// The address, without secrets.
        url: String,
        /// What git says.
        why: String,
    },
    /// The name of the branch is not one.
    #[error("the branch name is not valid")]
    BranchName(#[source] BranchFault),
    /// The repository has no such branch.
    #[error("the repository {url} has no branch `{branch}`; {}", known_branches(.known))]
    NoBranch {
        /// The address, without secrets.
        url: String,
        /// The branch that is not there.
        branch: String,
        /// Up to 10 branches that are there, by name.
        known: Vec<String>,
    },
    /// The path is not one inside a repository.
    #[error("the path is not valid")]
    Path(#[source] PathFault),
    /// The commit has nothing at the path.
    #[error("the commit {} has no file `{path}`; {}", .commit.short(), near_files(.nearest))]
    NoFile {
        /// The commit that was asked for.
        commit: CommitId,
        /// The path where nothing is.
        path: String,
        /// Up to 10 files of that name elsewhere, or YAML files of the same folder.
        nearest: Vec<String>,
    },
    /// The folder has no YAML file.
    #[error("the folder `{path}` of the commit {} has no file that ends in .yaml or .yml", .commit.short())]
    NoYaml {
        /// The commit that was asked for.
        commit: CommitId,
        /// The folder in the repository.
        path: String,
    },
    /// The repository does not have the commit, or does not hand it out by its id.
    #[error(
        "the repository {url} does not have the commit {}, or does not hand out commits by their id",
        .commit.short()
    )]
    NoCommit {
        /// The address, without secrets.
        url: String,
        /// The commit that was asked for.
        commit: CommitId,
    },
    /// The path leads to something else than files.
    #[error("`{path}` is {what}")]
    NotAFile {
        /// The path in the repository.
        path: String,
        /// Such as `a symbolic link, not a file`.
        what: &'static str,
    },
    /// Something is larger than the limits allow.
    #[error("{what} is larger than {limit} bytes")]
    TooLarge {
        /// What is too large.
        what: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// A folder has more files than the limits allow.
    #[error("the folder `{path}` has {files} YAML files, and at most {limit} are read")]
    TooMany {
        /// The folder in the repository.
        path: String,
        /// The number of its files.
        files: usize,
        /// The limit of the operation.
        limit: usize,
    },
    /// The operation took longer than its limit; its programs were killed.
    #[error("the repository {url} did not answer completely within {after:?}")]
    TimedOut {
        /// The address, without secrets.
        url: String,
        /// The limit of the operation.
        after: Duration,
    },
    /// A program failed for a reason that is none of the others.
    #[error("git could not {doing}: {status}: {stderr}")]
    Program {
        /// Such as `fetch the branch`.
        doing: &'static str,
        /// How the program ended.
        status: String,
        /// At most 500 characters of what it said, without secrets.
        stderr: String,
    },
    /// The scratch folder could not be used, or a program could not be run.
    #[error("drover could not {doing} `{}`", .path.display())]
    Io {
        /// Such as `create the folder`.
        doing: &'static str,
        /// The file, folder or program.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

fn known_branches(known: &[String]) -> String {
    if known.is_empty() {
        "it has no branches at all".to_owned()
    } else {
        format!("it has {}", quoted(known))
    }
}

fn near_files(nearest: &[String]) -> String {
    if nearest.is_empty() {
        "no file has a similar path".to_owned()
    } else {
        format!("it has {}", quoted(nearest))
    }
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl GitError {
    /// What an operator can do about it.
    #[must_use]
    pub fn help(&self) -> &'static str {
        match self {
            Self::NoProgram { .. } => {
                "install the packages `git` and, for ssh repositories, `openssh-client`"
            }
            Self::Repository { .. } => {
                "check the URL, the network between drover and the host, and that the login may see \
                 the repository"
            }
            Self::Refused { .. } => {
                "check that the credential is current and may read this repository"
            }
            Self::Login { .. } => {
                "use a password or token for https and http, an SSH key for ssh, and no credential \
                 for a folder"
            }
            Self::HostKey { .. } => {
                "compare `ssh-keyscan HOST` with the fingerprints that the host's operators publish, \
                 and set the lines as known hosts"
            }
            Self::Certificate { .. } => {
                "set the CA file to the certificate authority that signed the server's certificate"
            }
            Self::BranchName(_) => "write the branch as `git branch` lists it",
            Self::NoBranch { .. } => "push the branch, or set one that is there",
            Self::Path(_) => "write the path as `git ls-files` lists it",
            Self::NoFile { .. } => "commit and push the file, or correct the path",
            Self::NoYaml { .. } => {
                "commit at least one file there whose name ends in .yaml or .yml"
            }
            Self::NoCommit { .. } => {
                "check the id; for a commit that no branch reaches, push a branch that does"
            }
            Self::NotAFile { .. } => "commit a file with the content itself at this path",
            Self::TooLarge { .. } => "keep large files out of the repository",
            Self::TooMany { .. } => "join the files",
            Self::TimedOut { .. } => {
                "check the network between drover and the host, or raise `timeoutSec`"
            }
            Self::Program { .. } => {
                "run `git fetch` with the same URL by hand, and check the free space of the disk"
            }
            Self::Io { .. } => {
                "check the free space of the disk and that drover may write to the folder"
            }
        }
    }
}
