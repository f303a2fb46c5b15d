//! Reads files of one branch of a git repository by the `git` program.
//!
//! drover calls `git` as a child and has no library for it: a separate process can be killed, and
//! what it takes of memory and disk ends with it. Every operation of [`Git`] has one time limit
//! ([`Limits`]), and its children are one process group, which is killed at the limit and when the
//! caller gives up.
//!
//! ```text
//! head ──> git ls-remote                                       the id of the newest commit
//! fetch ─> git init, fetch --depth=1 --filter=blob:none        the commit and its folders, no files
//! read ──> git ls-tree, fetch <blobs>, cat-file --batch        the files at one path
//!                 │
//!                 v
//!          scratch folder: repo.git, and ssh/ while an operation with an SSH key is under way
//! ```
//!
//! Failures: [`GitError`] keeps apart what an operator can act on, such as a refused login, an
//! unknown host key, a missing branch or file. A repository in the scratch folder that is broken is
//! removed and fetched again once. So is one that became large.
//!
//! Secrets: a password is in the environment of git alone, and git gets it for the URL's host only.
//! An SSH key is a file of mode 0600 while an operation lasts. No failure has either in its text.
//!
//! Beside it: `url.rs`, `branch.rs`, `path.rs` (what is checked first), `settings.rs` (what a child
//! gets to see), `child.rs` (its process), `failure.rs` (what its words mean), `scratch.rs` (the
//! folder), `work.rs`, `fetch.rs` and `files.rs` (the calls that an operation is made of).

#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod branch;
mod child;
mod commit;
mod error;
mod failure;
mod fetch;
mod files;
mod git;
mod limits;
mod login;
mod path;
mod remote;
mod scratch;
mod settings;
mod ssh_files;
mod text;
mod tree;
mod url;
mod work;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use branch::{BranchFault, check_branch};
pub use commit::{Commit, CommitId, CommitIdFault};
pub use error::GitError;
pub use files::GitFile;
pub use git::Git;
pub use limits::Limits;
pub use login::{Login, LoginFault};
pub use path::{PathFault, check_path};
pub use remote::{Remote, Wanted};
pub use url::{RepoUrl, Scheme, UrlFault};
