//! Fetching a commit into the scratch folder, and repairing the folder where it is broken.

use std::str::FromStr as _;

use super::commit::{Commit, CommitId};
use super::error::GitError;
use super::failure::Failure;
use super::remote::Wanted;
use super::scratch;
use super::settings::{BLOBLESS, REMOTE};
use super::work::{ANSWER_BYTES, Work};

/// Where a fetched commit is kept, so that later fetches ask only for what is new.
const KEPT_REF: &str = "refs/drover/head";

/// The kind of ids of almost all repositories, which is tried first.
const SHA1: &str = "sha1";

/// The other kind.
const SHA256: &str = "sha256";

/// Which files a fetch of a commit brings along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Brings {
    /// None, where the server supports filters.
    NoFiles,
    /// All files of the commit.
    AllFiles,
}

impl Work<'_> {
    /// Makes a repository where none is, or where the one there cannot be used.
    async fn prepare(&self, hash: &str) -> Result<(), GitError> {
        if !scratch::is_usable(&self.git.folder, &self.remote.url).await? {
            self.reset(hash).await?;
        }
        Ok(())
    }

    /// Starts again with an empty repository.
    async fn reset(&self, hash: &str) -> Result<(), GitError> {
        scratch::remove(&self.git.folder).await?;
        let format = format!("--object-format={hash}");
        // The environment names the folder.
        let args = ["init", "--quiet", "--bare", "--template=", &format];
        self.local("make a repository", &args, String::new(), 0).await?;
        scratch::note_url(&self.git.folder, &self.remote.url).await
    }

    /// Fetches a commit into an empty repository.
    pub(super) async fn fetch_from_scratch(
        &self,
        wanted: &Wanted,
        brings: Brings,
    ) -> Result<Commit, GitError> {
        self.reset(hash_of(wanted)).await?;
        self.fetch_once(wanted, brings).await
    }

    /// The commit where it is in the scratch folder already.
    pub(super) async fn kept(&self, id: &CommitId) -> Option<Commit> {
        if !scratch::is_usable(&self.git.folder, &self.remote.url).await.ok()? {
            return None;
        }
        self.commit(id.as_str()).await.ok().filter(|commit| commit.id == *id)
    }

    /// Fetches a commit, from scratch where the repository turns out to be broken.
    pub(super) async fn fetch(&self, wanted: &Wanted, brings: Brings) -> Result<Commit, GitError> {
        let hash = hash_of(wanted);
        if let Err(error) = self.prepare(hash).await {
            tracing::debug!(%error, "the scratch repository cannot be used");
            self.reset(hash).await?;
        }
        match self.fetch_once(wanted, brings).await {
            Err(error @ GitError::Program { .. }) => {
                tracing::debug!(%error, "the branch is fetched from scratch");
                self.reset(hash).await?;
                self.fetch_once(wanted, brings).await
            }
            done => done,
        }
    }

    async fn fetch_once(&self, wanted: &Wanted, brings: Brings) -> Result<Commit, GitError> {
        let mut done = self.fetch_into_ref(wanted, brings).await;
        if let Err(Failure::OtherHash) = done {
            self.reset(SHA256).await?;
            done = self.fetch_into_ref(wanted, brings).await;
        }
        let failure = match (done, wanted) {
            (Ok(()), Wanted::Head) => return self.commit(KEPT_REF).await,
            (Ok(()), Wanted::Commit(id)) => {
                // git hands out tags, folders and files by their ids too.
                let args = ["cat-file", "-t", id.as_str()];
                let kind =
                    self.local("read the commit", &args, String::new(), ANSWER_BYTES).await?;
                if kind.stdout.trim_ascii() == b"commit" {
                    return self.commit(id.as_str()).await;
                }
                Failure::NotGiven
            }
            (Err(failure), _) => failure,
        };
        match (failure, wanted) {
            (Failure::NoRef, Wanted::Head) => Err(self.no_branch().await?),
            (Failure::NoRef | Failure::NotGiven, Wanted::Commit(id)) => {
                Err(GitError::NoCommit { url: self.url(), commit: id.clone() })
            }
            (Failure::DiskLimit, _) => {
                // What was written until then is of no use.
                scratch::remove(&self.git.folder).await?;
                Err(self.too_large(self.git.limits.disk_bytes))
            }
            (failure, _) => Err(self.plain(failure)),
        }
    }

    async fn fetch_into_ref(&self, wanted: &Wanted, brings: Brings) -> Result<(), Failure> {
        let (doing, spec) = match wanted {
            Wanted::Head => {
                ("fetch the branch", format!("+refs/heads/{}:{KEPT_REF}", self.remote.branch))
            }
            Wanted::Commit(id) => ("fetch the commit", format!("+{id}:refs/drover/commit")),
        };
        let filter = format!("--filter={BLOBLESS}");
        let mut args = vec!["fetch", "--quiet", "--depth=1", "--no-tags", "--no-write-fetch-head"];
        args.extend(["--no-recurse-submodules", "--force"]);
        if brings == Brings::NoFiles {
            args.push(&filter);
        }
        args.extend(["--", REMOTE, &spec]);
        self.remote(doing, &args, brings, self.git.limits.disk_bytes).await.map(drop)
    }

    /// Reads a commit of the repository; fails where it is not there.
    async fn commit(&self, name: &str) -> Result<Commit, GitError> {
        let doing = "read the commit";
        let peeled = format!("{name}^{{commit}}");
        let args = ["rev-parse", "--verify", "--end-of-options", &peeled];
        let output = self.local(doing, &args, String::new(), ANSWER_BYTES).await?;
        let id = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let unreadable = || GitError::Program {
            doing,
            status: output.status.to_string(),
            stderr: "the commit has no readable head".to_owned(),
        };
        let id = CommitId::from_str(&id).map_err(|_| unreadable())?;
        let args = ["cat-file", "commit", id.as_str()];
        let object = self.local(doing, &args, String::new(), ANSWER_BYTES).await?;
        Commit::parse(id, &object.stdout).ok_or_else(unreadable)
    }
}

/// The kind of ids that a repository for this must have, as far as it is known.
fn hash_of(wanted: &Wanted) -> &'static str {
    match wanted {
        Wanted::Commit(id) if id.as_str().len() == 64 => SHA256,
        Wanted::Commit(_) | Wanted::Head => SHA1,
    }
}
