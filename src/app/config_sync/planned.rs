//! What a configuration would do: checked as a sync would check it, and planned by the herd.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drover_actors::message::HerdCommand;
use drover_api::{PlanIn, PlanOut, PlanPart};
use drover_config::{Candidate, Checked, ConfigSyncSpec, LoadError, Sources, changes, values};
use drover_git::{Wanted, check_path};
use drover_model::record::Want;
use drover_runtime::reply::Reply;
use drover_server::plan_out;

use super::error::SyncError;
use super::reader::Reader;
use super::{Configured, RELOAD_TIMEOUT, report};

impl Reader {
    /// Plans the way to the files that were given, or to what the branch has.
    pub(super) async fn plan(
        &self,
        asked: PlanIn,
        configured: &Configured,
    ) -> Result<PlanOut, SyncError> {
        let by_git = configured.spec.is_some() && asked.part == PlanPart::Git;
        let candidate = match (&configured.spec, asked.files.is_empty()) {
            (_, true) if asked.part == PlanPart::Local => {
                let why = "give the files of this machine's own configuration".to_owned();
                return Err(SyncError::NoSuchCommit(why));
            }
            (Some(spec), true) => {
                let (next, commit) = self.of_branch(spec).await?;
                return self.planned(*next, by_git, Some(commit), configured).await;
            }
            (None, true) => {
                let why = "`service.configSync` is not configured: give files".to_owned();
                return Err(SyncError::NoSuchCommit(why));
            }
            (Some(spec), false) if by_git => self.of_files(spec, asked).await?,
            (_, false) => self.of_machine(asked).await,
        };
        if !candidate.lacks.is_empty() {
            return Ok(PlanOut { lacks: candidate.lacks, ..PlanOut::default() });
        }
        let next = candidate
            .result
            .map_err(|error| SyncError::Refused { text: error.render(), commit: None })?;
        self.planned(next, by_git, None, configured).await
    }

    /// What the branch has now.
    async fn of_branch(&self, spec: &ConfigSyncSpec) -> Result<(Box<Checked>, String), SyncError> {
        let git = self.git(spec);
        let commit = git.fetch(&spec.remote, &Wanted::Head).await.map_err(SyncError::Git)?;
        let draft = self.drafted(&git, spec, &commit.id).await?;
        let of = self.described(&commit, spec);
        let (_, of, next) = self.checked(draft, of, &git, spec).await?;
        Ok((next, of.commit))
    }

    /// Files in place of those that git has.
    async fn of_files(&self, spec: &ConfigSyncSpec, asked: PlanIn) -> Result<Candidate, SyncError> {
        let draft = self.store.draft().map_err(SyncError::Store)?;
        let folder = folder_of(&spec.path);
        let mut configuration = Vec::new();
        for (name, text) in asked.files {
            let path = folder.join(&name).to_string_lossy().into_owned();
            if let Err(why) = check_path(&path) {
                return Err(SyncError::NoSuchCommit(format!("the path `{name}`: {why}")));
            }
            draft.put(&path, text.as_bytes()).map_err(SyncError::Store)?;
            if is_yaml_beside(&name) {
                configuration.push(path);
            }
        }
        draft.describe_files(configuration).map_err(SyncError::Store)?;
        let candidate = self.check(draft.folder()).await;
        // Callers name files from the configuration's folder, not from the repository's.
        let named = |name: String| match Path::new(&name).strip_prefix(&folder) {
            Ok(inside) => inside.to_string_lossy().into_owned(),
            Err(_) => name,
        };
        Ok(Candidate { lacks: candidate.lacks.into_iter().map(named).collect(), ..candidate })
    }

    /// Files in place of this machine's own.
    async fn of_machine(&self, asked: PlanIn) -> Candidate {
        let config = self.tools.config.clone();
        let environment = self.tools.environment.clone();
        let checking = tokio::task::spawn_blocking(move || {
            let folder = if config.is_dir() { config.clone() } else { parent(&config) };
            let files = asked.files.into_iter();
            let files: BTreeMap<PathBuf, String> =
                files.map(|(name, text)| (folder.join(name), text)).collect();
            let result = drover_config::check(Sources::of_files(files), &environment);
            Candidate { result, lacks: Vec::new() }
        });
        checking.await.unwrap_or_else(|error| {
            let path = self.tools.config.clone();
            let result = Err(LoadError::Io { path, source: io::Error::other(error) });
            Candidate { result, lacks: Vec::new() }
        })
    }

    async fn planned(
        &self,
        next: Checked,
        by_git: bool,
        commit: Option<String>,
        configured: &Configured,
    ) -> Result<PlanOut, SyncError> {
        let environment = &self.tools.environment;
        let values =
            changes(&values(&configured.checked, environment), &values(&next, environment));
        let jobs = self.jobs().await?;
        let plan = self.ask(|reply| HerdCommand::Plan {
            next: Arc::new(next.herd.clone()),
            by_git,
            jobs,
            reply,
        });
        let plan = plan.await?;
        let out = plan_out(&plan, values.iter().map(report::value_change).collect());
        let warnings =
            if by_git { next.rendered_warnings_of_git() } else { next.rendered_warnings() };
        Ok(PlanOut { commit, warnings, ..out })
    }

    /// Jobs of sources that wait.
    async fn jobs(&self) -> Result<Vec<(String, Want)>, SyncError> {
        let sources = self.ask(|reply| HerdCommand::Jobs { reply }).await?;
        let jobs = sources.into_iter().flat_map(|source| {
            let whose = format!("source {}", source.source);
            source.waiting.into_iter().map(move |job| (whose.clone(), job.want))
        });
        Ok(jobs.collect())
    }

    async fn ask<T: 'static>(
        &self,
        command: impl FnOnce(Reply<T>) -> HerdCommand,
    ) -> Result<T, SyncError> {
        let (reply, answer) = Reply::channel();
        self.tools.herd.do_send(command(reply));
        let late = || SyncError::Store(io::Error::other("the herd did not answer in time"));
        tokio::time::timeout(RELOAD_TIMEOUT, answer).await.map_err(|_| late())?.map_err(|_| late())
    }
}

/// The folder of a path in the repository, where its files are named from.
fn folder_of(path: &str) -> PathBuf {
    let is_file = path.ends_with(".yaml") || path.ends_with(".yml");
    if is_file { parent(Path::new(path)) } else { PathBuf::from(path) }
}

fn parent(path: &Path) -> PathBuf {
    path.parent().map(Path::to_owned).unwrap_or_default()
}

/// Whether a file is the configuration itself, rather than one that it names.
fn is_yaml_beside(path: &str) -> bool {
    !path.contains('/') && (path.ends_with(".yaml") || path.ends_with(".yml"))
}
