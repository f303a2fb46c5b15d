//! Reads what git has into a draft, and checks it together with this machine's files; nothing of it
//! comes into force. Syncs, looks and plans of files have a reader each, so that none waits for another's
//! repository.

use std::io;
use std::path::Path;
use std::sync::Arc;

use drover_config::managed::{AppliedCommit, OF_GIT, TREE};
use drover_config::{Candidate, Checked, ConfigSyncSpec, candidate};
use drover_git::{CommitId, Git, GitError, Limits};
use drover_model::time::WallTime;
use tokio::task::block_in_place;

use super::Tools;
use super::error::SyncError;
use super::store::{Draft, Lane, Store};

/// Rounds in which files that the configuration names are added: such a file names no others.
const ROUNDS: usize = 3;

pub(super) struct Reader {
    pub(super) tools: Arc<Tools>,
    pub(super) store: Store,
}

impl Reader {
    pub(super) fn of(tools: &Arc<Tools>, lane: Lane) -> Self {
        Self { tools: Arc::clone(tools), store: Store::at(&tools.state, lane) }
    }

    pub(super) fn git(&self, spec: &ConfigSyncSpec) -> Git {
        Git::at(self.store.git(), Limits { time: spec.timeout, ..Limits::default() })
    }

    pub(super) fn now(&self) -> WallTime {
        self.tools.ambient.now().wall
    }

    /// A draft with the configuration of a commit.
    pub(super) async fn drafted(
        &self,
        git: &Git,
        spec: &ConfigSyncSpec,
        commit: &CommitId,
    ) -> Result<Draft, SyncError> {
        let files = git.read(&spec.remote, commit, &spec.path).await.map_err(SyncError::Git)?;
        let draft = self.store.draft().map_err(SyncError::Store)?;
        block_in_place(|| files.iter().try_for_each(|file| draft.put(&file.path, &file.bytes)))
            .map_err(SyncError::Store)?;
        let names = files.iter().map(|file| file.path.clone()).collect();
        draft.describe_files(names).map_err(SyncError::Store)?;
        Ok(draft)
    }

    pub(super) fn described(
        &self,
        commit: &drover_git::Commit,
        spec: &ConfigSyncSpec,
    ) -> AppliedCommit {
        AppliedCommit {
            commit: commit.id.to_string(),
            committed_at: WallTime(commit.at_epoch_seconds.saturating_mul(1000)).rfc3339(),
            author: commit.author.clone(),
            subject: commit.subject.clone(),
            repository: spec.remote.url.to_string(),
            branch: spec.remote.branch.clone(),
            path: spec.path.clone(),
            applied_at: self.now().rfc3339(),
            ..AppliedCommit::of_files(Vec::new())
        }
    }

    /// Checks a draft together with this machine's files, and adds the files that it names.
    pub(super) async fn checked(
        &self,
        draft: Draft,
        of: AppliedCommit,
        git: &Git,
        spec: &ConfigSyncSpec,
    ) -> Result<(Draft, AppliedCommit, Box<Checked>), SyncError> {
        let known =
            drover_config::managed::record(&draft.folder().join(drover_config::managed::RECORD));
        let known = known.map_err(SyncError::Store)?;
        let mut of = AppliedCommit { configuration: known.configuration, named: known.named, ..of };
        let commit = of.commit.parse::<CommitId>();
        // Nobody knows the draft's folder.
        let tree = format!("{}/", draft.folder().join(TREE).display());
        let refused = |text: String, of: &AppliedCommit| SyncError::Refused {
            text: text.replace(&tree, OF_GIT),
            commit: Some(of.commit.clone()),
        };
        for _ in 0..ROUNDS {
            let Candidate { result, lacks } = self.check(draft.folder()).await;
            if lacks.is_empty() {
                return match result {
                    Ok(checked) => Ok((draft, of, Box::new(checked))),
                    Err(error) => Err(refused(error.render(), &of)),
                };
            }
            let Ok(commit) = &commit else { break };
            let mut found = false;
            for name in lacks {
                match git.read(&spec.remote, commit, &name).await {
                    Ok(files) => {
                        for file in files.iter().filter(|file| file.path == name) {
                            draft.put(&file.path, &file.bytes).map_err(SyncError::Store)?;
                            of.named.push(file.path.clone());
                            found = true;
                        }
                    }
                    // The check says what is missing, with its place.
                    Err(GitError::NoFile { .. } | GitError::NoYaml { .. } | GitError::Path(_)) => {}
                    Err(error) => return Err(SyncError::Git(error)),
                }
            }
            if !found {
                let why = result.err().map(|error| error.render()).unwrap_or_default();
                return Err(refused(why, &of));
            }
        }
        Err(refused("the configuration names files that name others".to_owned(), &of))
    }

    /// Checks a draft on another thread: encrypted keys take long.
    pub(super) async fn check(&self, folder: &Path) -> Candidate {
        let (config, folder) = (self.tools.config.clone(), folder.to_owned());
        let environment = self.tools.environment.clone();
        let checking =
            tokio::task::spawn_blocking(move || candidate(&config, &folder, &environment));
        checking.await.unwrap_or_else(|error| {
            let source = io::Error::other(error);
            let path = self.tools.config.clone();
            Candidate {
                result: Err(drover_config::LoadError::Io { path, source }),
                lacks: Vec::new(),
            }
        })
    }
}
