//! What a configuration would do: checked as a sync would check it, and planned by the herd.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use drover_actors::message::HerdCommand;
use drover_actors::plan::{Fate, Number, Plan};
use drover_api::{
    CloudPlanOut, FateOut, NumberOut, PlanIn, PlanOut, PlanPart, RollOut, TemplatePlanOut,
    UnservedOut, ValueChangeOut,
};
use drover_config::{Candidate, Checked, ConfigSyncSpec, LoadError, Sources, changes, values};
use drover_git::{Wanted, check_path};
use drover_model::record::{Want, describe};
use drover_runtime::reply::Reply;
use std::sync::Arc;

use super::attempt::SyncError;
use super::{Configured, RELOAD_TIMEOUT, Worker};

impl Worker {
    /// Plans the way to the files that were given, or to what the branch has.
    pub(super) async fn plan(
        &self,
        asked: PlanIn,
        configured: &Configured,
    ) -> Result<PlanOut, SyncError> {
        let by_git = configured.spec.is_some() && asked.part == PlanPart::Git;
        let (candidate, commit) = match (&configured.spec, asked.files.is_empty()) {
            (Some(spec), true) => self.of_branch(spec).await?,
            (None, true) => {
                let why = "`service.configSync` is not configured: give files".to_owned();
                return Err(SyncError::NoSuchCommit(why));
            }
            (Some(spec), false) if by_git => (self.of_files(spec, asked).await?, None),
            (_, false) => (self.of_machine(asked).await, None),
        };
        if !candidate.lacks.is_empty() {
            return Ok(PlanOut { lacks: candidate.lacks, ..PlanOut::default() });
        }
        let next = candidate.result.map_err(|error| SyncError::Refused(error.render()))?;
        self.planned(next, by_git, commit, configured).await
    }

    /// What the branch has now.
    async fn of_branch(
        &self,
        spec: &ConfigSyncSpec,
    ) -> Result<(Candidate, Option<String>), SyncError> {
        let git = self.git(spec);
        let commit = git.fetch(&spec.remote, &Wanted::Head).await.map_err(SyncError::Git)?;
        let draft = self.drafted(&git, spec, &commit.id).await?;
        let of = self.described(&commit, spec);
        let (draft, _) = self.checked(draft, of, &git, spec).await?;
        Ok((self.check(draft.folder()).await, Some(commit.id.to_string())))
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
        Ok(self.check(draft.folder()).await)
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
        let values: Vec<ValueChangeOut> = values
            .into_iter()
            .map(|one| ValueChangeOut {
                path: one.path,
                before: one.before,
                after: one.after,
                entry: one.entry,
            })
            .collect();
        Ok(PlanOut {
            changes: !values.is_empty() || !plan.is_empty(),
            commit,
            values,
            warnings: next.rendered_warnings(),
            ..shown(&plan)
        })
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

fn fate(fate: Fate) -> FateOut {
    match fate {
        Fate::Added => FateOut::Added,
        Fate::Drained => FateOut::Drained,
        Fate::Changed => FateOut::Changed,
    }
}

fn number((before, after): Number) -> NumberOut {
    NumberOut { before, after }
}

/// A plan as people and programs see it.
fn shown(plan: &Plan) -> PlanOut {
    let clouds = plan.clouds.iter().map(|one| CloudPlanOut {
        cloud: one.cloud.to_string(),
        fate: fate(one.fate),
        cap: number(one.cap),
        reconnects: one.reconnects,
        going_now: one.going.now,
        going_after_leases: one.going.after_leases,
    });
    let templates = plan.templates.iter().map(|one| TemplatePlanOut {
        template: one.template.to_string(),
        fate: fate(one.fate),
        cap: number(one.cap),
        minimum: number(one.minimum),
        idle_minimum: number(one.idle_minimum),
        starting: one.starting,
        going_now: one.going.now,
        going_after_leases: one.going.after_leases,
        roll: one.roll.map(|roll| RollOut {
            idle: roll.idle,
            busy: roll.busy,
            at_once: roll.at_once,
            canary: roll.canary,
        }),
    });
    let unserved = plan.unserved.iter().map(|(whose, want, count)| UnservedOut {
        whose: whose.clone(),
        wants: describe(want),
        count: *count,
    });
    PlanOut {
        clouds: clouds.collect(),
        templates: templates.collect(),
        unserved: unserved.collect(),
        ..PlanOut::default()
    }
}
