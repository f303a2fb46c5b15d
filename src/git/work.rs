//! One operation under way: how it calls git, and what it asks the remote.

use std::str::FromStr as _;

use super::child::{self, Call, Output};
use super::commit::CommitId;
use super::error::GitError;
use super::failure::{self, Failure};
use super::fetch::Brings;
use super::git::Git;
use super::login::Login;
use super::remote::Remote;
use super::scratch;
use super::settings::{REMOTE, Settings};
use super::ssh_files::{self, SshFiles};
use super::text::clean;

/// The largest answer other than files: refs, a folder's entries, a commit.
pub(super) const ANSWER_BYTES: usize = 4 << 20;

/// How many names a failure shows.
pub(super) const SHOWN: usize = 10;

const LONGEST_NAME_CHARS: usize = 200;

/// One operation, with the files that ssh needs for it.
pub(super) struct Work<'a> {
    pub(super) git: &'a Git,
    pub(super) remote: &'a Remote,
    _ssh: Option<SshFiles>,
}

impl<'a> Work<'a> {
    /// Prepares the scratch folder.
    pub(super) async fn start(git: &'a Git, remote: &'a Remote) -> Result<Self, GitError> {
        scratch::create(&git.folder).await?;
        let known_hosts = remote.known_hosts.as_deref().unwrap_or_default();
        let ssh = match &remote.login {
            Login::SshKey { key, .. } => Some(SshFiles::write(&git.folder, key, known_hosts)?),
            Login::None | Login::Password { .. } => {
                ssh_files::remove_left_over(&git.folder)?;
                None
            }
        };
        Ok(Self { git, remote, _ssh: ssh })
    }

    /// The address, for a failure.
    pub(super) fn url(&self) -> String {
        self.remote.url.to_string()
    }

    /// Runs git without the network.
    pub(super) async fn local(
        &self,
        doing: &'static str,
        args: &[&str],
        input: String,
        keep_bytes: usize,
    ) -> Result<Output, GitError> {
        let settings = Settings::local(&self.git.folder, self.git.search.as_ref());
        let output =
            self.run(settings, args, input, keep_bytes, self.git.limits.disk_bytes).await?;
        if output.status.success() { Ok(output) } else { Err(failure::local(doing, &output)) }
    }

    /// Runs git so that it can reach the remote.
    pub(super) async fn remote(
        &self,
        doing: &'static str,
        args: &[&str],
        brings: Brings,
        file_bytes: u64,
    ) -> Result<Output, Failure> {
        let settings = Settings::local(&self.git.folder, self.git.search.as_ref()).remote(
            self.remote,
            &self.git.folder,
            brings == Brings::NoFiles,
        );
        let output = self
            .run(settings, args, String::new(), ANSWER_BYTES, file_bytes)
            .await
            .map_err(Failure::Other)?;
        if output.status.success() {
            Ok(output)
        } else {
            Err(failure::classify(self.remote, doing, &output))
        }
    }

    async fn run(
        &self,
        settings: Settings,
        args: &[&str],
        input: String,
        keep_bytes: usize,
        file_bytes: u64,
    ) -> Result<Output, GitError> {
        let call = Call {
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            variables: settings.into_variables(),
            input,
            keep_bytes,
            file_bytes,
        };
        let output = child::run(call, &self.git.folder).await.map_err(|source| {
            if source.kind() == std::io::ErrorKind::NotFound {
                GitError::NoProgram { program: "sh" }
            } else {
                GitError::Io { doing: "run git in", path: self.git.folder.clone(), source }
            }
        })?;
        tracing::debug!(command = args.first(), status = %output.status, "git ended");
        Ok(output)
    }

    /// The ids and names of the refs that the remote has under a name or pattern.
    async fn refs(&self, pattern: &str) -> Result<Vec<(String, String)>, GitError> {
        let args = ["ls-remote", "--quiet", "--", REMOTE, pattern];
        let limit = self.git.limits.disk_bytes;
        let output = match self.remote("list the branches", &args, Brings::AllFiles, limit).await {
            Ok(output) => output,
            Err(failure) => return Err(self.plain(failure)),
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let pairs = text.lines().filter_map(|line| line.split_once('\t'));
        Ok(pairs.map(|(id, name)| (id.to_owned(), name.to_owned())).collect())
    }

    /// The commit that the branch is at.
    pub(super) async fn head(&self) -> Result<CommitId, GitError> {
        let name = format!("refs/heads/{}", self.remote.branch);
        let refs = self.refs(&name).await?;
        match refs.iter().find(|(_, known)| *known == name) {
            Some((id, _)) => CommitId::from_str(id).map_err(|_| GitError::Repository {
                url: self.url(),
                why: "it answers with ids that git does not have".to_owned(),
            }),
            None => Err(self.no_branch().await?),
        }
    }

    /// The failure that names the branches that are there.
    pub(super) async fn no_branch(&self) -> Result<GitError, GitError> {
        let refs = self.refs("refs/heads/*").await?;
        let mut known: Vec<String> = refs
            .iter()
            .filter_map(|(_, name)| name.strip_prefix("refs/heads/"))
            .map(|name| clean(name, LONGEST_NAME_CHARS))
            .collect();
        known.sort();
        known.truncate(SHOWN);
        Ok(GitError::NoBranch { url: self.url(), branch: self.remote.branch.clone(), known })
    }

    /// A failure in words, where its kind does not matter.
    pub(super) fn plain(&self, failure: Failure) -> GitError {
        let repository = |why: &str| GitError::Repository { url: self.url(), why: why.to_owned() };
        match failure {
            Failure::Other(error) => error,
            Failure::DiskLimit => self.too_large(self.git.limits.disk_bytes),
            Failure::NoRef => repository("it does not have the branch"),
            Failure::NotGiven => repository("it does not hand out the files of its own commit"),
            Failure::OtherHash => repository("it has ids of a kind that git does not know"),
        }
    }

    pub(super) fn too_large(&self, limit: u64) -> GitError {
        GitError::TooLarge { what: format!("the content of the repository {}", self.url()), limit }
    }
}
