//! One sync: what git has is fetched, checked, and brought into force.

use drover_api::SyncResult;
use drover_config::managed::AppliedCommit;
use drover_config::{Checked, ConfigSyncSpec};
use drover_git::{CommitId, Git, Wanted};
use drover_model::spec::HerdSpec;
use tokio::task::block_in_place;

use super::error::SyncError;
use super::store::Draft;
use super::{Configured, Worker};

/// The fewest digits by which a commit is named.
const DIGITS_MIN: usize = 4;
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
    /// Clouds, and templates of clouds that stay, which left the configuration.
    pub(super) drained: Vec<String>,
}

/// What a sync would do, before anything is changed.
pub(super) enum Prepared {
    /// What is in force stays.
    Stays { result: SyncResult, in_force: AppliedCommit, head: Option<String> },
    /// What was checked comes into force.
    Comes { draft: Draft, of: AppliedCommit, head: Option<String>, checked: Box<Checked> },
}

impl Worker {
    /// Whether git is read for it, which may take long.
    pub(super) fn reads_git(&self, asked: &Asked) -> bool {
        match asked {
            Asked::Schedule | Asked::Now => true,
            Asked::Back => false,
            Asked::Commit(to) => self.kept(&as_digits(to)).is_empty(),
        }
    }

    /// Reads and checks what was asked for; changes nothing in force, so it can be given up at any time.
    pub(super) async fn prepare(
        &self,
        spec: &ConfigSyncSpec,
        asked: &Asked,
    ) -> Result<Prepared, SyncError> {
        let reader = &self.reader;
        let git = reader.git(spec);
        let in_force = reader.store.applied();
        if let (Asked::Commit(to), Some(of)) = (asked, &in_force)
            && self.names(to, of)
            && !reader.store.is_edited()
        {
            let (result, in_force) = (SyncResult::Unchanged, of.clone());
            return Ok(Prepared::Stays { result, in_force, head: None });
        }
        let (draft, of, head) = match &asked {
            Asked::Commit(to) => self.draft_of(to, &git, spec).await?,
            Asked::Back => {
                let before = self.before(in_force.as_ref())?;
                self.draft_of(&before, &git, spec).await?
            }
            Asked::Schedule | Asked::Now => {
                let id = git.head(&spec.remote).await.map_err(SyncError::Git)?;
                if let Some((result, in_force)) = self.stays(asked, &id, in_force.as_ref(), spec) {
                    return Ok(Prepared::Stays { result, in_force, head: Some(id.to_string()) });
                }
                let commit =
                    git.fetch(&spec.remote, &Wanted::Head).await.map_err(SyncError::Git)?;
                let head = Some(commit.id.to_string());
                let of = reader.described(&commit, spec);
                (reader.drafted(&git, spec, &commit.id).await?, of, head)
            }
        };
        let (draft, of, checked) = reader.checked(draft, of, &git, spec).await?;
        Ok(Prepared::Comes { draft, of, head, checked })
    }

    /// Brings into force what was prepared.
    pub(super) async fn bring(
        &self,
        prepared: Prepared,
        asked: &Asked,
        configured: &Configured,
    ) -> Result<Done, SyncError> {
        let store = &self.reader.store;
        match prepared {
            Prepared::Stays { result, in_force, head } => {
                let drained = Vec::new();
                let done = Done { result, head, in_force, generation: None, undone: 0, drained };
                if done.result == SyncResult::Pinned {
                    return Ok(done);
                }
                let pinned = match asked {
                    Asked::Schedule | Asked::Now => store.unpin(),
                    Asked::Commit(_) | Asked::Back => store.pin(),
                };
                pinned.map_err(SyncError::Store)?;
                Ok(Done { undone: self.undo_overrides(configured).await, ..done })
            }
            Prepared::Comes { draft, of, head, checked } => {
                if matches!(asked, Asked::Commit(_) | Asked::Back) {
                    draft.pin().map_err(SyncError::Store)?;
                }
                let generation = Some(self.switch(draft, &of).await?);
                let edits = configured.manual_changes.len();
                let undone = edits + self.undo_overrides(configured).await;
                let drained = drained(&configured.herd, &checked.herd);
                let result = SyncResult::Applied;
                Ok(Done { result, head, in_force: of, generation, undone, drained })
            }
        }
    }

    /// What stays in force where nothing is to be applied: it is there already, or is pinned.
    fn stays(
        &self,
        asked: &Asked,
        head: &CommitId,
        in_force: Option<&AppliedCommit>,
        spec: &ConfigSyncSpec,
    ) -> Option<(SyncResult, AppliedCommit)> {
        let in_force = in_force?;
        let store = &self.reader.store;
        if *asked == Asked::Schedule && store.is_pinned() {
            return Some((SyncResult::Pinned, in_force.clone()));
        }
        let same = in_force.commit == head.as_str()
            && in_force.path == spec.path
            && in_force.repository == spec.remote.url.to_string();
        (same && !store.is_edited()).then(|| (SyncResult::Unchanged, in_force.clone()))
    }

    /// The commit that was applied before the one in force.
    fn before(&self, in_force: Option<&AppliedCommit>) -> Result<String, SyncError> {
        let now = in_force.map(|of| of.commit.as_str());
        let entries = self.reader.store.history();
        let at = self.reader.store.in_force();
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
        let (to, reader) = (as_digits(to), &self.reader);
        if to.len() < DIGITS_MIN || !to.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            let why =
                format!("`{to}` is no commit: give its id, or at least {DIGITS_MIN} digits of it");
            return Err(SyncError::NoSuchCommit(why));
        }
        let kept = self.kept(&to);
        if let Some((name, of)) = kept.first() {
            if kept.iter().any(|(_, other)| other.commit != of.commit) {
                let why = format!("several applied commits begin with `{to}`: give more digits");
                return Err(SyncError::NoSuchCommit(why));
            }
            let (draft, of) = reader.store.again(name).map_err(SyncError::Store)?;
            return Ok((draft, AppliedCommit { applied_at: reader.now().rfc3339(), ..of }, None));
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
        let of = reader.described(&commit, spec);
        Ok((reader.drafted(git, spec, &id).await?, of, None))
    }

    /// Whether these digits name this commit and no other that is kept.
    fn names(&self, digits: &str, of: &AppliedCommit) -> bool {
        let digits = as_digits(digits);
        let begins = digits.len() >= DIGITS_MIN && of.commit.starts_with(&digits);
        begins && self.kept(&digits).iter().all(|(_, kept)| kept.commit == of.commit)
    }

    /// The entries of commits that begin so, the newest first.
    fn kept(&self, digits: &str) -> Vec<(String, AppliedCommit)> {
        let entries = self.reader.store.history().into_iter();
        entries.filter(|(_, of)| of.commit.starts_with(digits)).collect()
    }

    /// Brings a checked draft into force; the entry before counts again where the service refuses it.
    async fn switch(&self, draft: Draft, of: &AppliedCommit) -> Result<u64, SyncError> {
        let before = self.reader.store.in_force();
        let entry = block_in_place(|| {
            let entry = self.reader.store.keep(draft, of)?;
            self.reader.store.switch(Some(&entry)).map(|()| entry)
        });
        let entry = entry.map_err(SyncError::Store)?;
        match self.reload().await {
            Ok(generation) => {
                self.reader.store.prune();
                Ok(generation)
            }
            Err(why) => {
                block_in_place(|| self.reader.store.switch(before.as_deref()))
                    .map_err(SyncError::Store)?;
                // Without it the watch could take what it read of the refused entry.
                let _ = self.reload().await;
                self.reader.store.remove(&entry);
                Err(SyncError::Refused { text: why, commit: Some(of.commit.clone()) })
            }
        }
    }
}

/// What a configuration has no more of all that git managed: clouds, and templates of those that stay.
fn drained(before: &HerdSpec, next: &HerdSpec) -> Vec<String> {
    let gone = before.managed.iter().filter(|cloud| !next.clouds.contains_key(*cloud));
    let templates = before.templates.keys().filter(|id| {
        let stays = before.managed.contains(&id.cloud) && next.clouds.contains_key(&id.cloud);
        stays && !next.templates.contains_key(*id)
    });
    gone.map(ToString::to_string).chain(templates.map(ToString::to_string)).collect()
}

/// A commit's id or its first digits, as people type them.
fn as_digits(commit: &str) -> String {
    commit.trim().to_ascii_lowercase()
}
