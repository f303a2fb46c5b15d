//! One sync: what git has is fetched, checked, and brought into force.

use std::io;
use std::path::Path;

use drover_api::SyncResult;
use drover_config::managed::AppliedCommit;
use drover_config::{Candidate, Checked, ConfigSyncSpec, candidate};
use drover_git::{CommitId, Git, GitError, Wanted};
use drover_model::time::WallTime;
use drover_server::NotSynced;
use tokio::task::block_in_place;

use super::store::Draft;
use super::{Configured, Worker};

/// The fewest digits by which a commit is named.
const DIGITS_MIN: usize = 4;
/// Rounds in which files that the configuration names are added: such a file names no others.
const ROUNDS: usize = 3;

/// Who asked for a sync, and for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    Schedule,
    Now,
    /// To return to a commit, in full or its first digits.
    Commit(String),
    /// To return to the commit that was applied before.
    Back,
}

/// A sync that ended well.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) result: SyncResult,
    /// What git has; none where git was not asked.
    pub(super) head: Option<String>,
    pub(super) in_force: AppliedCommit,
    pub(super) generation: Option<u64>,
    /// Changes of people that it undid.
    pub(super) undone: usize,
}

/// Why a sync changed nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum SyncError {
    #[error("{}", causes::chain(.0))]
    Git(#[source] GitError),
    /// What git has is no configuration; the faults as people read them.
    #[error("{0}")]
    Refused(String),
    #[error("the state directory cannot be written: {0}")]
    Store(#[source] io::Error),
    /// The request names no commit that can be had.
    #[error("{0}")]
    NoSuchCommit(String),
}

impl SyncError {
    pub(super) fn result(&self) -> SyncResult {
        match self {
            Self::Refused(_) => SyncResult::Refused,
            Self::Git(_) | Self::Store(_) | Self::NoSuchCommit(_) => SyncResult::Failed,
        }
    }

    /// Whether the caller asked for something that is not there.
    pub(super) fn is_of_caller(&self) -> bool {
        matches!(self, Self::NoSuchCommit(_))
    }

    /// What is wrong, with what to do.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Git(error) => format!("{self}\n  help: {}\n", error.help()),
            Self::Refused(_) | Self::Store(_) | Self::NoSuchCommit(_) => self.to_string(),
        }
    }

    pub(super) fn into_answer(self) -> NotSynced {
        let text = self.text();
        match self {
            Self::Refused(_) => NotSynced::Refused(text),
            Self::NoSuchCommit(_) => NotSynced::Unknown(text),
            Self::Git(_) | Self::Store(_) => NotSynced::Failed(text),
        }
    }
}

impl Worker {
    /// Brings into force what was asked for.
    pub(super) async fn attempt(
        &self,
        spec: &ConfigSyncSpec,
        configured: &Configured,
        asked: Asked,
    ) -> Result<Done, SyncError> {
        let git = self.git(spec);
        let pinned = self.store.is_pinned();
        let in_force = self.store.applied();
        let (draft, of, head) = match &asked {
            Asked::Commit(to) => self.draft_of(to, &git, spec).await?,
            Asked::Back => {
                let before = self.before(in_force.as_ref())?;
                self.draft_of(&before, &git, spec).await?
            }
            Asked::Schedule | Asked::Now => {
                let id = git.head(&spec.remote).await.map_err(SyncError::Git)?;
                if let Some(stays) = self.stays(&asked, pinned, &id, in_force.as_ref(), spec) {
                    let (result, in_force) = stays;
                    let head = Some(id.to_string());
                    if result == SyncResult::Pinned {
                        return Ok(Done { result, head, in_force, generation: None, undone: 0 });
                    }
                    self.store.unpin().map_err(SyncError::Store)?;
                    let undone = self.undo_overrides(configured).await;
                    return Ok(Done { result, head, in_force, generation: None, undone });
                }
                let commit =
                    git.fetch(&spec.remote, &Wanted::Head).await.map_err(SyncError::Git)?;
                let head = Some(commit.id.to_string());
                let of = self.described(&commit, spec);
                (self.drafted(&git, spec, &commit.id).await?, of, head)
            }
        };
        let (draft, of, _) = self.checked(draft, of, &git, spec).await?;
        if matches!(asked, Asked::Commit(_) | Asked::Back) {
            draft.pin().map_err(SyncError::Store)?;
        }
        let generation = self.switch(draft, &of).await?;
        let undone = configured.manual_changes.len() + self.undo_overrides(configured).await;
        Ok(Done {
            result: SyncResult::Applied,
            head,
            in_force: of,
            generation: Some(generation),
            undone,
        })
    }

    /// What stays in force where nothing is to be applied: it is there already, or is pinned.
    fn stays(
        &self,
        asked: &Asked,
        pinned: bool,
        head: &CommitId,
        in_force: Option<&AppliedCommit>,
        spec: &ConfigSyncSpec,
    ) -> Option<(SyncResult, AppliedCommit)> {
        let in_force = in_force?;
        if pinned && *asked == Asked::Schedule {
            return Some((SyncResult::Pinned, in_force.clone()));
        }
        let same = in_force.commit == head.as_str()
            && in_force.path == spec.path
            && in_force.repository == spec.remote.url.to_string();
        (same && !self.store.is_edited()).then(|| (SyncResult::Unchanged, in_force.clone()))
    }

    /// The commit that was applied before the one in force.
    fn before(&self, in_force: Option<&AppliedCommit>) -> Result<String, SyncError> {
        let now = in_force.map(|of| of.commit.as_str());
        let entries = self.store.history();
        let at = self.store.in_force();
        let older = entries.iter().skip_while(|(name, _)| Some(name) != at.as_ref());
        let before = older.map(|(_, of)| of).find(|of| Some(of.commit.as_str()) != now);
        before.map(|of| of.commit.clone()).ok_or_else(|| {
            SyncError::NoSuchCommit(
                "no other commit was applied before the one in force".to_owned(),
            )
        })
    }

    /// A draft of a commit: of an entry that is kept, or from git by its full id.
    async fn draft_of(
        &self,
        to: &str,
        git: &Git,
        spec: &ConfigSyncSpec,
    ) -> Result<(Draft, AppliedCommit, Option<String>), SyncError> {
        let to = to.trim().to_ascii_lowercase();
        if to.len() < DIGITS_MIN || !to.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            let why =
                format!("`{to}` is no commit: give its id, or at least {DIGITS_MIN} digits of it");
            return Err(SyncError::NoSuchCommit(why));
        }
        let kept: Vec<_> =
            self.store.history().into_iter().filter(|(_, of)| of.commit.starts_with(&to)).collect();
        if let Some((name, of)) = kept.first() {
            if kept.iter().any(|(_, other)| other.commit != of.commit) {
                let why = format!("several applied commits begin with `{to}`: give more digits");
                return Err(SyncError::NoSuchCommit(why));
            }
            let (draft, of) = self.store.again(name).map_err(SyncError::Store)?;
            return Ok((draft, AppliedCommit { applied_at: self.now().rfc3339(), ..of }, None));
        }
        let Ok(id) = to.parse::<CommitId>() else {
            let why = format!(
                "no applied commit begins with `{to}`: give the full id of one that git has, or one of \
                 `drover sync --status`"
            );
            return Err(SyncError::NoSuchCommit(why));
        };
        let wanted = Wanted::Commit(id.clone());
        let commit = git.fetch(&spec.remote, &wanted).await.map_err(SyncError::Git)?;
        let of = self.described(&commit, spec);
        Ok((self.drafted(git, spec, &id).await?, of, None))
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
        for _ in 0..ROUNDS {
            let Candidate { result, lacks } = self.check(draft.folder()).await;
            if lacks.is_empty() {
                return match result {
                    Ok(checked) => Ok((draft, of, Box::new(checked))),
                    Err(error) => Err(SyncError::Refused(error.render())),
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
                return Err(SyncError::Refused(why));
            }
        }
        Err(SyncError::Refused("the configuration names files that name others".to_owned()))
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

    /// Brings a checked draft into force; the entry before counts again where the service refuses it.
    async fn switch(&self, draft: Draft, of: &AppliedCommit) -> Result<u64, SyncError> {
        let before = self.store.in_force();
        let entry = block_in_place(|| {
            let entry = self.store.keep(draft, of)?;
            self.store.switch(Some(&entry)).map(|()| entry)
        });
        let entry = entry.map_err(SyncError::Store)?;
        match self.reload().await {
            Ok(generation) => {
                self.store.prune();
                Ok(generation)
            }
            Err(why) => {
                block_in_place(|| self.store.switch(before.as_deref()))
                    .map_err(SyncError::Store)?;
                // Without it the watch could take what it read of the refused entry.
                let _ = self.reload().await;
                self.store.remove(&entry);
                Err(SyncError::Refused(why))
            }
        }
    }
}
