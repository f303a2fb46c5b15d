//! GitHub Actions: a runner made for one job by a just-in-time configuration, whose login is all
//! that a guest receives.
//!
//! In: [`Settings`] (scope, login, group, repositories, scale set), the calls of [`Connector`], and
//! webhooks, which name the repository to read first. Out: rows, jobs and the files for a guest.
//!
//! Jobs that wait come from one of two places: from lists of runs and jobs in repositories
//! (`jobs`), or, where a scale set is configured, from the messages of that set (`scale_set`,
//! counted by `tally`), which costs nothing of the rate limit.
//!
//! Failure paths: a refused call names the right that the login lacks; a used-up rate limit pauses
//! all calls (`rate_limit`); a runner whose version GitHub refuses is reported with the version to
//! install (`versions`).
//!
//! Written from GitHub's published schemas and documentation, and tried with a server that is
//! checked against those; unverified against GitHub itself.
//!
//! Beside this file: `api` (calls with the login, reused answers), `app` and `token` (the login of
//! a GitHub App), `bundle` (the files for a guest), `rows` (rows of runners), `ends` (jobs whose
//! runner's row is gone), `settings`.

mod api;
mod app;
mod bundle;
mod ends;
mod jobs;
mod rate_limit;
mod rows;
mod scale_set;
mod settings;
mod tally;
mod token;
mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use drover_model::demand::words::Words;
use drover_model::id::RunnerName;
use drover_model::os::Os;
use drover_model::ports::{Idle, Known, NodeObservation, RowObservation, SourceObservation};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use reqwest::Method;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::connector::{
    Connector, ConnectorFuture, RegisterRequest, RunnerBundle, StopSignal, Wake, refusal_text,
};
use super::error::DemandError;
use super::finding::Finding;
use super::http::Http;
use super::last_jobs::LastJobs;
use super::rows::RowIds;
use super::state_file::StateFile;
use api::{Api, Page};
use bundle::{jit_bundle, jit_bundle_windows, labels, token_bundle};
use jobs::Reader;
use rate_limit::Purpose;
use rows::LastListing;
use scale_set::ScaleSet;

pub use app::{AppSpec, parse as parse_key};
pub use settings::{Login, Registration, ScaleSetSpec, Scope, Settings};

/// The number of a repository's only runner group.
const REPOSITORY_GROUP: u64 = 1;

/// The connector for a GitHub repository, organisation or enterprise.
pub(crate) struct GitHub {
    api: Api,
    settings: Settings,
    reader: Reader,
    set: Option<ScaleSet>,
    ids: RowIds,
    /// The jobs that runners were last seen with.
    last_jobs: LastJobs,
    /// When the list of runners was read last.
    listed: Mutex<Option<LastListing>>,
    /// The operator's command that runs a runner in its folder; none for the runner's own program.
    command: Option<String>,
    group: Mutex<Option<u64>>,
    /// Whether the login was seen to have every right that is needed.
    permitted: AtomicBool,
}

#[derive(Deserialize)]
struct JitAnswer {
    #[serde(default)]
    runner: Option<Numbered>,
    encoded_jit_config: SecretString,
}

#[derive(Deserialize)]
struct Numbered {
    id: u64,
}

#[derive(Deserialize)]
struct RegistrationToken {
    token: SecretString,
}

#[derive(Serialize, Deserialize)]
struct Groups {
    #[serde(default)]
    total_count: Option<usize>,
    runner_groups: Vec<Group>,
}

impl Page for Groups {
    type Row = Group;

    fn rows(self) -> (Option<usize>, Vec<Group>) {
        (self.total_count, self.runner_groups)
    }

    fn id(group: &Group) -> u64 {
        group.id
    }
}

#[derive(Serialize, Deserialize)]
struct Group {
    id: u64,
    name: String,
    #[serde(default)]
    default: bool,
}

/// A part of the API, by the right that a login needs for it.
#[derive(Debug, Clone, Copy)]
enum Part {
    Runners,
    Runs,
    Groups,
}

impl GitHub {
    /// Makes a connector; calls nothing yet.
    pub(crate) fn new(http: Http, settings: Settings, command: Option<String>) -> Self {
        let api = Api::new(http, settings.scope.clone(), settings.login.clone());
        let (configured, list) = match &settings.scope {
            Scope::Repository(owner, name) => {
                (Some(vec![format!("{owner}/{name}")]), String::new())
            }
            Scope::Organisation(_) | Scope::Enterprise(_) => {
                let list = if api.is_app() {
                    "installation/repositories".to_owned()
                } else {
                    format!("{}/repos", settings.scope.path())
                };
                (settings.repositories.clone(), list)
            }
        };
        let reader = Reader::new(configured, list, settings.poll);
        let set = settings.scale_set.clone().map(|spec| ScaleSet::new(spec, api.plain()));
        let (group, permitted) = (Mutex::default(), AtomicBool::new(false));
        let (ids, listed, last_jobs) = (RowIds::default(), Mutex::default(), LastJobs::default());
        Self { api, settings, reader, set, ids, last_jobs, listed, command, group, permitted }
    }

    fn path(&self, rest: &str) -> String {
        format!("{}/actions/{rest}", self.settings.scope.path())
    }

    /// Adds to a refusal the right that the login lacks.
    fn lacking(&self, part: Part, error: DemandError) -> DemandError {
        let DemandError::Status { call, status, text } = error else { return error };
        let text = match status {
            401 => format!(
                "{text}: GitHub does not accept the login; check its expiry date and its secret"
            ),
            403 | 404 => format!("{text}: the login needs {}", self.needed(part)),
            _ => text,
        };
        DemandError::Status { call, status, text }
    }

    /// The right that a login needs for a part of the API.
    fn needed(&self, part: Part) -> String {
        let scope = &self.settings.scope;
        let what = match (part, scope) {
            (Part::Runs, _) => "`Actions: read` (classic token: repo)",
            (Part::Runners | Part::Groups, Scope::Repository(..)) => {
                "`Administration: write` (classic token: repo)"
            }
            (Part::Runners | Part::Groups, Scope::Organisation(_)) => {
                "`Self-hosted runners: write` of the organisation (classic token: admin:org)"
            }
            (Part::Runners | Part::Groups, Scope::Enterprise(_)) => {
                "a classic token with manage_runners:enterprise"
            }
        };
        format!("{what} for {scope}")
    }

    /// Checks that runners can be registered before any machine is created for one: the token that
    /// is requested here needs the same right, and is dropped.
    async fn check_permission(&self) -> Result<(), DemandError> {
        if !self.permitted.load(Ordering::Relaxed) {
            let minted = self.registration_token(Purpose::Poll).await;
            minted.map_err(|error| self.lacking(Part::Runners, error))?;
            self.permitted.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn registration_token(&self, purpose: Purpose) -> Result<SecretString, DemandError> {
        let path = self.path("runners/registration-token");
        let answer = self.api.send(purpose, Method::POST, &path, None, None).await?;
        Ok(answer.ok()?.json::<RegistrationToken>()?.token)
    }

    async fn poll_all(&self, known: &Known) -> Result<SourceObservation, DemandError> {
        self.api.begin();
        self.check_permission().await?;
        let made = self.set.as_ref().map(ScaleSet::made).unwrap_or_default();
        let mut seen = self.seen(known).await?;
        self.last_jobs.keep(known);
        let mut running = BTreeMap::new();
        let jobs = if let Some(set) = &self.set {
            for (name, how) in set.ended() {
                self.last_jobs.note_end(&name, how);
            }
            let rows = seen.rows.iter().map(|row| (row.name.clone(), row.busy)).collect();
            // Nothing is known of a runner that was neither seen nor asked for.
            let made = made.into_iter().filter(|name| seen.knows_of(name)).collect();
            set.jobs(&self.set_labels(set), &made, &rows).await?
        } else {
            let read = self.reader.read(&self.api).await;
            let found = read.map_err(|error| self.lacking(Part::Runs, error))?;
            running = found.running;
            for (name, job) in &running {
                self.last_jobs.learn(name, Some(job.path.clone()));
            }
            let allowed = self.settings.labels.as_ref();
            found.waiting.into_iter().filter_map(|job| job.observation(allowed)).collect()
        };
        // A running job names its runner; on a runner without a row it cannot end.
        let at_work = known.keys().filter(|name| running.contains_key(name.as_str()));
        let unseen: Vec<&RunnerName> = at_work.filter(|name| !seen.shows(name.as_str())).collect();
        let mut removed = BTreeSet::new();
        for name in unseen {
            let is_gone = seen.gone.take(name);
            seen.busy.push((name.clone(), is_gone.is_none()));
            removed.extend(is_gone);
        }
        let over = self.over(&seen.gone).await;
        let rows = seen.rows.into_iter().map(|row| (row.name, row.status == "online", row.busy));
        let busy = seen.busy.into_iter().map(|(name, online)| (name.to_string(), online, true));
        let rows = rows.chain(busy).map(|(name, online, busy)| {
            let job = running.get(&name);
            RowObservation {
                runner: RunnerName::new(&name),
                online,
                jobs: (busy || job.is_some()).into(),
                job: job.map(|job| job.id.to_string()),
                idle: Idle::Known,
                node: NodeObservation::default(),
            }
        });
        let (rows, gone, whole, numbers) = (rows.collect(), seen.gone, seen.whole, seen.numbers);
        let found = SourceObservation { rows, gone, removed, over, ..SourceObservation::default() };
        Ok(SourceObservation { whole, numbers, jobs, ..found })
    }

    /// The number of the runner group that runners join.
    async fn group(&self) -> Result<u64, DemandError> {
        let wanted = self.settings.group.as_deref();
        if let Some(number) = wanted.and_then(|group| group.parse().ok()) {
            return Ok(number);
        }
        if matches!(self.settings.scope, Scope::Repository(..)) {
            return Ok(REPOSITORY_GROUP);
        }
        let known = *self.group.lock();
        if let Some(known) = known {
            return Ok(known);
        }
        let all = self.api.pages::<Groups>(Purpose::Change, &self.path("runner-groups")).await;
        let all = all.map_err(|error| self.lacking(Part::Groups, error))?.rows;
        let found = all.iter().find(|group| match wanted {
            Some(name) => group.name.eq_ignore_ascii_case(name),
            None => group.default,
        });
        let Some(found) = found else {
            let names: Vec<&str> = all.iter().map(|group| group.name.as_str()).collect();
            return Err(DemandError::Refused(format!(
                "there is no runner group `{}` in {}; its groups are {}",
                wanted.unwrap_or("Default"),
                self.settings.scope,
                names.join(", "),
            )));
        };
        *self.group.lock() = Some(found.id);
        Ok(found.id)
    }

    /// Makes the runner's row; returns the configuration with which its guest becomes the runner.
    async fn generate_jit(
        &self,
        request: RegisterRequest<'_>,
    ) -> Result<SecretString, DemandError> {
        let mut again = true;
        loop {
            let body = json!({
                "name": request.runner.as_str(),
                "runner_group_id": self.group().await?,
                "labels": labels(request),
                "work_folder": "_work",
            });
            let path = self.path("runners/generate-jitconfig");
            let answer =
                self.api.send(Purpose::Change, Method::POST, &path, Some(&body), None).await?;
            match answer.status {
                // A row of that name appeared meanwhile, for example from an answer that was lost.
                409 if std::mem::take(&mut again) => self.delete_rows(request.runner).await?,
                // The group may be gone.
                404 if std::mem::take(&mut again) => {
                    *self.group.lock() = None;
                }
                422 => {
                    let text = answer.into_error().to_string();
                    return Err(DemandError::Refused(text));
                }
                _ => {
                    let made = answer.ok().map_err(|error| self.lacking(Part::Runners, error))?;
                    let made: JitAnswer = made.json()?;
                    if let Some(row) = made.runner {
                        self.ids.learn(request.runner.as_str(), row.id);
                    }
                    return Ok(made.encoded_jit_config);
                }
            }
        }
    }

    async fn delete_rows(&self, runner: &RunnerName) -> Result<(), DemandError> {
        for id in self.numbers(runner).await? {
            let path = self.path(&format!("runners/{id}"));
            let answer = self.api.send(Purpose::Change, Method::DELETE, &path, None, None).await?;
            if !matches!(answer.status, 404 | 410) {
                // 422 means that the runner has a job.
                answer.ok()?;
            }
            if let Some(set) = &self.set {
                set.forget(runner.as_str());
            }
        }
        Ok(())
    }

    async fn bundle(&self, request: RegisterRequest<'_>) -> Result<RunnerBundle, DemandError> {
        match self.settings.registration {
            Registration::Jit => {
                let made = match &self.set {
                    Some(set) => self.generate_jit_in(set, request.runner.as_str()).await?,
                    None => self.generate_jit(request).await?,
                };
                let command = self.command.as_deref();
                Ok(match request.target.os {
                    Os::Linux => jit_bundle(&made, command, request.spec.executors),
                    Os::Windows(_) => jit_bundle_windows(&made, command),
                })
            }
            Registration::Token => {
                let token = self.registration_token(Purpose::Change).await;
                let token = token.map_err(|error| self.lacking(Part::Runners, error))?;
                let page = self.settings.scope.page(self.api.plain().base());
                Ok(token_bundle(&page, &token, request, self.command.as_deref()))
            }
        }
    }
}

/// The repository that a webhook is about.
fn repository_of(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct HookBody {
        repository: Named,
    }
    #[derive(Deserialize)]
    struct Named {
        full_name: String,
    }
    serde_json::from_slice(body).ok().map(|hook: HookBody| hook.repository.full_name)
}

impl Connector for GitHub {
    fn poll<'a>(&'a self, known: &'a Known) -> ConnectorFuture<'a, SourceObservation> {
        Box::pin(self.poll_all(known))
    }

    fn watch(
        self: Arc<Self>,
        wake: Wake,
        ended: StopSignal,
        kept: StateFile,
    ) -> Option<BoxFuture<'static, ()>> {
        self.set.as_ref()?;
        Some(Box::pin(async move {
            if let Some(set) = &self.set {
                self.listen(set, wake, ended, &kept).await;
            }
        }))
    }

    fn hint(&self, body: &[u8]) {
        self.reader.hint(repository_of(body).as_deref());
    }

    fn register<'a>(&'a self, request: RegisterRequest<'a>) -> ConnectorFuture<'a, RunnerBundle> {
        Box::pin(async move {
            // Removes a row that an earlier attempt made: its configuration is lost.
            self.delete_rows(request.runner).await?;
            self.bundle(request).await
        })
    }

    fn too_old<'a>(&'a self, words: &'a Words) -> BoxFuture<'a, Option<String>> {
        Box::pin(self.outdated_runner(words))
    }

    fn check<'a>(&'a self, found: &'a mut Vec<Finding>) -> ConnectorFuture<'a, ()> {
        Box::pin(async move {
            found.push(Finding::listed(&self.poll_all(&Known::new()).await?));
            self.check_versions(found).await;
            Ok(())
        })
    }

    fn obstacle(&self) -> ConnectorFuture<'_, Option<String>> {
        Box::pin(async move {
            let minted = self.registration_token(Purpose::Change).await;
            refusal_text(minted.map_err(|error| self.lacking(Part::Runners, error)))
        })
    }

    fn cordon<'a>(&'a self, runner: &'a RunnerName) -> ConnectorFuture<'a, ()> {
        // The runner takes one job anyway. Without its row it takes none; with a job it keeps its
        // row (422).
        Box::pin(self.delete_rows(runner))
    }

    fn deregister<'a>(&'a self, runner: &'a RunnerName) -> ConnectorFuture<'a, ()> {
        Box::pin(async move {
            self.delete_rows(runner).await?;
            self.ids.forget(runner);
            Ok(())
        })
    }
}
