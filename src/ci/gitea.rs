//! Gitea and Forgejo Actions: one connector for two dialects.
//!
//! drover registers each runner itself, as ephemeral (for one job). The guest receives only the
//! UUID and the token of that one runner. The registration token, which can register any number of
//! runners, never leaves this machine.
//!
//! In: [`Settings`] and the calls of [`Connector`]. Out: rows, jobs and the files for a guest. A
//! failed poll is explained where that is possible: the right that the token lacks, or that the
//! server is the other dialect.
//!
//! The Gitea half was exercised against Gitea 1.26. The Forgejo half follows public clients and
//! their tests, and is unverified against a server.
//!
//! Beside this file: `lists` (paged lists and single rows), `running` (jobs that run, and jobs
//! whose runner's row is gone), `versions` (a runner program that is too old).

mod lists;
mod running;
mod versions;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use drover_model::demand::words::Words;
use drover_model::id::RunnerName;
use drover_model::ports::{
    Idle, JobObservation, Known, NodeObservation, RowObservation, SourceObservation,
};
use drover_model::record::Want;
use drover_model::time::WallTime;
use drover_ssh::quote;
use futures_util::future::BoxFuture;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer};
use serde_json::json;

use crate::connector::{
    Connector, ConnectorFuture, RegisterRequest, RunnerBundle, RunnerFile, StopSignal, Wake,
    program_of, refusal_text,
};
use crate::error::DemandError;
use crate::finding::Finding;
use crate::first_seen::FirstSeen;
use crate::http::Http;
use crate::last_jobs::LastJobs;
use crate::origin::ForgeJob;
use crate::rows::{PolledRunners, RowIds};
use crate::state_file::StateFile;
use crate::windows;

/// The first major version of Forgejo with ephemeral runners.
const FIRST_EPHEMERAL_FORGEJO: u32 = 15;
/// The name of Gitea's runner program: since 1.0.0, and before.
const GITEA_PROGRAMS: [&str; 2] = ["gitea-runner", "act_runner"];
/// Lines of a batch file that run whichever of the two programs is installed.
const GITEA_RUN_BATCH: [&str; 2] = [
    "where /q gitea-runner && (gitea-runner daemon --config config.yaml & exit /b)",
    "act_runner daemon --config config.yaml",
];

/// Which of the two systems a source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Gitea,
    Forgejo,
}

impl Dialect {
    /// The dialect of a server by its version: a Forgejo also names the Gitea that it is compatible
    /// with. Unverified against a Forgejo.
    fn of(version: &str) -> Self {
        if version.contains("+gitea") { Self::Forgejo } else { Self::Gitea }
    }

    /// The name for people.
    fn name(self) -> &'static str {
        match self {
            Self::Gitea => "Gitea",
            Self::Forgejo => "Forgejo",
        }
    }

    /// The value of the key `kind` in the configuration.
    fn kind(self) -> &'static str {
        match self {
            Self::Gitea => "gitea",
            Self::Forgejo => "forgejo",
        }
    }
}

/// The part of a server whose runners and jobs drover serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// The whole server.
    Server,
    Organisation(String),
    /// The user of the token.
    User,
    /// A repository, by owner and name.
    Repository(String, String),
}

impl Scope {
    fn path(&self) -> String {
        let plain = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        match self {
            Self::Server => "api/v1/admin".into(),
            Self::User => "api/v1/user".into(),
            Self::Organisation(name) => format!("api/v1/orgs/{}", plain(name)),
            Self::Repository(owner, name) => {
                format!("api/v1/repos/{}/{}", plain(owner), plain(name))
            }
        }
    }
}

/// The settings of a Gitea or Forgejo source.
#[derive(Debug, Clone)]
pub struct Settings {
    pub dialect: Dialect,
    pub scope: Scope,
    /// The access token that drover logs in with.
    pub token: SecretString,
}

impl Settings {
    /// All settings, secrets included, for the fingerprint of the source.
    pub(crate) fn parts(&self) -> Vec<String> {
        let shown = format!("{:?} {:?}", self.dialect, self.scope);
        vec![shown, self.token.expose_secret().to_owned()]
    }
}

/// The connector for a Gitea or Forgejo server, or for a part of it.
pub(crate) struct Gitea {
    http: Http,
    dialect: Dialect,
    kept: Scope,
    /// How the paths of the scope's calls begin.
    scope: String,
    /// The operator's command that runs a runner in its folder; none for the dialect's own program.
    command: Option<String>,
    ids: RowIds,
    /// The jobs that runners were last seen with.
    last_jobs: LastJobs,
    /// Since when each job waits: Forgejo's list has no dates.
    seen: FirstSeen,
}

/// A list that must be present but may be null where it is empty: an answer without it says nothing
/// about what runs.
fn list<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(from).map(Option::unwrap_or_default)
}

#[derive(Deserialize)]
struct Runners {
    #[serde(deserialize_with = "list")]
    runners: Vec<Runner>,
    #[serde(default)]
    total_count: Option<usize>,
}

#[derive(Default, Deserialize)]
struct Runner {
    id: u64,
    name: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    busy: bool,
}

#[derive(Deserialize)]
struct Jobs {
    #[serde(deserialize_with = "list")]
    jobs: Vec<Job>,
    #[serde(default)]
    total_count: Option<usize>,
}

#[derive(Deserialize)]
struct Job {
    id: u64,
    #[serde(default)]
    name: String,
    #[serde(default, alias = "runs_on")]
    labels: Option<Vec<String>>,
    #[serde(default)]
    status: String,
    #[serde(default)]
    created_at: Option<String>,
    #[serde(default)]
    runner_name: Option<String>,
    #[serde(default)]
    runner_id: Option<u64>,
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    conclusion: Option<String>,
    #[serde(flatten)]
    origin: ForgeJob,
}

/// What a runner in a guest logs in with.
#[derive(Deserialize)]
struct Credentials {
    #[serde(deserialize_with = "number")]
    id: u64,
    uuid: String,
    token: SecretString,
}

#[derive(Deserialize)]
struct RegisterAnswer {
    runner: Credentials,
}

/// Reads a number that Connect's JSON writes as text (int64 in the JSON mapping of Protocol
/// Buffers). The runner programs read it as a number (`ID int64` in `registration.go` of all of
/// them, 0.2.11 to 3.3.0).
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(u64),
        Text(String),
    }
    match Written::deserialize(from)? {
        Written::Number(number) => Ok(number),
        Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}

#[derive(Deserialize)]
struct Version {
    version: String,
}

#[derive(Deserialize)]
struct RegistrationToken {
    token: SecretString,
}

/// The ends of a label's name: the runner programs take what follows a `:` for where the job runs,
/// and what follows a `?` for options (`internal/pkg/labels/labels.go`). A job that wants such a label
/// waits for a runner that Gitea never finds.
pub const ENDS_OF_LABELS: &[char] = &[':', '?'];

impl Gitea {
    /// Makes a connector; calls nothing yet.
    pub(crate) fn new(http: Http, settings: &Settings, command: Option<String>) -> Self {
        let Settings { dialect, scope, token } = settings;
        let login = format!("token {}", token.expose_secret());
        let http = http.with_authorization(login.into());
        let (dialect, kept, scope) = (*dialect, scope.clone(), scope.path());
        Self {
            http,
            dialect,
            kept,
            scope,
            command,
            ids: RowIds::default(),
            last_jobs: LastJobs::default(),
            seen: FirstSeen::default(),
        }
    }

    async fn look_at_forgejo(&self, known: &Known) -> Result<SourceObservation, DemandError> {
        let PolledRunners { rows, gone, whole, numbers } = self.seen(known).await?;
        // Forgejo calls a runner idle that reported nothing of its job for ten seconds.
        let observation = |row| observation(row, row.is_active().into(), None, Idle::Guessed);
        let rows = rows.iter().filter_map(observation).collect();
        let path = format!("{}/actions/runners/jobs", self.scope);
        let jobs: Option<Vec<Job>> = self.http.get(&path).await?;
        let jobs = jobs.unwrap_or_default().into_iter().filter(|job| job.status == "waiting");
        let jobs = self.waiting(jobs.collect());
        Ok(SourceObservation { rows, gone, whole, numbers, jobs, ..SourceObservation::default() })
    }

    fn waiting(&self, jobs: Vec<Job>) -> Vec<JobObservation> {
        let now = WallTime(jiff::Timestamp::now().as_millisecond());
        let undated = jobs.iter().filter(|job| job.created_at.is_none());
        let seen = self.seen.update(undated.map(|job| job.id.to_string()), now);
        let observations = jobs.into_iter().map(|job| {
            let id = job.id.to_string();
            let reported = job.created_at.and_then(|text| text.parse::<jiff::Timestamp>().ok());
            let reported = reported.map(|at| WallTime(at.as_millisecond()));
            let since = reported.or_else(|| seen.get(&id).copied()).unwrap_or(now);
            let want = Want::Labels(job.labels.unwrap_or_default().into_iter().collect());
            JobObservation { id, name: job.name, want, since, origin: job.origin.origin() }
        });
        observations.collect()
    }

    /// The token that registers runners; the server returns the same one each time.
    async fn registration_token(&self) -> Result<RegistrationToken, DemandError> {
        let path = format!("{}/actions/runners/registration-token", self.scope);
        self.http.post(&path, &json!({})).await
    }

    async fn create_row(&self, request: RegisterRequest<'_>) -> Result<Credentials, DemandError> {
        let labels: BTreeSet<String> = request.labels();
        match self.dialect {
            Dialect::Gitea => {
                let minted = self.registration_token().await?;
                let body = json!({
                    "name": request.runner.as_str(),
                    "token": minted.token.expose_secret(),
                    "version": concat!("drover/", env!("CARGO_PKG_VERSION")),
                    "labels": labels,
                    "ephemeral": true,
                });
                let path = "api/actions/runner.v1.RunnerService/Register";
                let made: RegisterAnswer = self.http.post(path, &body).await?;
                Ok(made.runner)
            }
            Dialect::Forgejo => {
                let body = json!({
                    "name": request.runner.as_str(),
                    "description": "made by drover for one job",
                    "ephemeral": true,
                });
                self.http.post(&format!("{}/actions/runners", self.scope), &body).await
            }
        }
    }

    /// The files in which `gitea-runner` (`act_runner` before 1.0.0) and `forgejo-runner` store
    /// their registration, and the command that uses them.
    fn bundle(&self, request: RegisterRequest<'_>, made: &Credentials) -> RunnerBundle {
        let plain = request.labels().into_iter().filter(|label| !label.contains(ENDS_OF_LABELS));
        let labels: Vec<String> = plain.map(|label| format!("{label}:host")).collect();
        let state = json!({
            "WARNING": "made by drover for one job",
            "id": made.id,
            "uuid": made.uuid,
            "name": request.runner.as_str(),
            "token": made.token.expose_secret(),
            "address": self.http.base().as_str().trim_end_matches('/'),
            "labels": labels,
            "ephemeral": true,
        });
        // JSON is YAML.
        let config = json!({
            "log": {"level": "info"},
            "runner": {"file": ".runner", "capacity": 1, "labels": labels},
        });
        let file = |name, content: String| RunnerFile { name, content: Bytes::from(content) };
        let mut files =
            vec![file(".runner", state.to_string()), file("config.yaml", config.to_string())];
        if request.target.os.is_windows() {
            match self.dialect {
                Dialect::Gitea => {}
                Dialect::Forgejo => {
                    files.push(file("token", made.token.expose_secret().to_owned()))
                }
            }
            let run = GITEA_RUN_BATCH.join("\n");
            let own = (self.command.as_deref(), run.as_str());
            let mut bundle = windows::bundle(own, &[], files, vec![made.token.clone()]);
            if self.command.is_none() {
                bundle.programs = Vec::from(GITEA_PROGRAMS.map(str::to_owned));
            }
            return bundle;
        }
        let own = match self.dialect {
            Dialect::Gitea => {
                let program = "$(command -v gitea-runner || echo act_runner)";
                format!("exec \"{program}\" daemon --config config.yaml")
            }
            Dialect::Forgejo => {
                // forgejo-runner refuses a connection that is given twice
                // (`internal/app/cmd/args.go`).
                if self.command.is_none() {
                    files.retain(|file| file.name != ".runner");
                }
                files.push(file("token", made.token.expose_secret().to_owned()));
                self.one_job(&made.uuid, &labels)
            }
        };
        let (may_detach, secrets) = (self.command.is_some(), vec![made.token.clone()]);
        let programs = match (&self.command, self.dialect) {
            (None, Dialect::Gitea) => Vec::from(GITEA_PROGRAMS.map(str::to_owned)),
            (None, Dialect::Forgejo) => program_of(&own),
            (Some(command), _) => program_of(command),
        };
        let command = self.command.clone().unwrap_or(own);
        RunnerBundle { files, programs, command, may_detach, secrets }
    }

    /// The command with which Forgejo's program runs one job and ends. The command could name the
    /// job, but that job may have gone to another runner by then, and any job that fits is as good.
    fn one_job(&self, uuid: &str, labels: &[String]) -> String {
        let url = quote(self.http.base().as_str());
        let labels: String =
            labels.iter().map(|label| format!(" --label {}", quote(label))).collect();
        format!(
            "exec forgejo-runner one-job --config config.yaml --url {url} --uuid {} --token-url \
             \"file://$PWD/token\"{labels} --wait",
            quote(uuid)
        )
    }

    /// Says more about why a poll failed, where that is possible.
    async fn explained(&self, error: DemandError) -> DemandError {
        match error {
            DemandError::Status { call, status: status @ 403, text } => {
                let text = format!("{text}; the token needs {}", self.needs());
                DemandError::Status { call, status, text }
            }
            DemandError::Status { status: 404, .. } | DemandError::Shape { .. } => {
                // Some servers report their version only to a valid login.
                let version = self.http.get("api/v1/version").await;
                let found =
                    version.ok().map(|Version { version }| (Dialect::of(&version), version));
                match found {
                    Some((dialect, version)) if dialect != self.dialect => {
                        let (name, kind) = (dialect.name(), dialect.kind());
                        let text =
                            format!("this looks like a {name} ({version}): set `kind: {kind}`");
                        DemandError::Refused(text)
                    }
                    Some(_) | None => error,
                }
            }
            DemandError::Setup(_)
            | DemandError::Unreachable { .. }
            | DemandError::Status { .. }
            | DemandError::NotReady { .. }
            | DemandError::Moved { .. }
            | DemandError::Paused(_)
            | DemandError::Refused(_)
            | DemandError::Guest(_) => error,
        }
    }

    /// The right that the token must have.
    fn needs(&self) -> &'static str {
        match &self.kept {
            Scope::Server => "write:admin",
            Scope::Organisation(_) => "write:organization of an owner",
            Scope::User => "write:user",
            Scope::Repository(..) => "write:repository",
        }
    }

    async fn run_checks(&self, found: &mut Vec<Finding>) -> Result<(), DemandError> {
        let name = self.dialect.name();
        // Some servers report their version only to a valid login.
        if let Ok(Version { version }) = self.http.get("api/v1/version").await {
            let text = format!("{name} {version}");
            found.push(match (self.dialect, major(&version)) {
                (Dialect::Forgejo, Some(major)) if major < FIRST_EPHEMERAL_FORGEJO => {
                    Finding::fail(
                        "version",
                        format!("{text} has no ephemeral runners"),
                        format!("update it to {FIRST_EPHEMERAL_FORGEJO} or later"),
                    )
                }
                (Dialect::Gitea | Dialect::Forgejo, _) => Finding::ok("version", text),
            });
        }
        let rows = match self.runners().await {
            Ok(rows) => rows,
            Err(error) => return Err(self.explained(error).await),
        };
        found.push(Finding::ok("token", "is accepted"));
        found.push(Finding::ok("runners", format!("{} can be listed", rows.rows.len())));
        let observation = self.poll(&Known::new()).await?;
        found.push(Finding::ok("jobs", format!("{} wait", observation.jobs.len())));
        found.push(Finding::untested("runners", self.needs()));
        Ok(())
    }
}

/// The number that a version begins with.
fn major(version: &str) -> Option<u32> {
    version.trim_start_matches('v').split(['.', '+', '-']).next()?.parse().ok()
}

impl Runner {
    fn is_active(&self) -> bool {
        self.busy || self.status == "active"
    }
}

/// The row as the actors see it; none for a runner that is not drover's.
fn observation(row: &Runner, jobs: u32, job: Option<String>, idle: Idle) -> Option<RowObservation> {
    RunnerName::parse(&row.name)?;
    let runner = RunnerName::new(&row.name);
    let online = matches!(row.status.as_str(), "online" | "idle" | "active");
    Some(RowObservation { runner, online, jobs, job, idle, node: NodeObservation::default() })
}

impl Connector for Gitea {
    fn watch(
        self: Arc<Self>,
        _: Wake,
        _: StopSignal,
        kept: StateFile,
    ) -> Option<BoxFuture<'static, ()>> {
        self.seen.keep(kept, self.http.base().as_str());
        None
    }

    fn poll<'a>(&'a self, known: &'a Known) -> ConnectorFuture<'a, SourceObservation> {
        Box::pin(async move {
            let observation = match self.dialect {
                Dialect::Gitea => self.look_at_gitea(known).await,
                Dialect::Forgejo => self.look_at_forgejo(known).await,
            };
            match observation {
                Ok(observation) => Ok(observation),
                Err(error) => Err(self.explained(error).await),
            }
        })
    }

    fn register<'a>(&'a self, request: RegisterRequest<'a>) -> ConnectorFuture<'a, RunnerBundle> {
        Box::pin(async move {
            // Removes a row that an earlier attempt made: its secret is lost.
            self.deregister(request.runner).await?;
            let made = self.create_row(request).await?;
            self.ids.learn(request.runner.as_str(), made.id);
            Ok(self.bundle(request, &made))
        })
    }

    fn cordon<'a>(&'a self, runner: &'a RunnerName) -> ConnectorFuture<'a, ()> {
        Box::pin(async move {
            if self.dialect == Dialect::Forgejo {
                // Forgejo cannot cordon a runner, but a runner without a row takes no job either.
                for id in self.rows(runner).await? {
                    let path = format!("{}/actions/runners/{id}", self.scope);
                    match self.http.get::<Runner>(&path).await {
                        Ok(row) if !row.is_active() => {
                            self.http.delete(&path).await?;
                        }
                        Ok(_) | Err(DemandError::Status { status: 404 | 410, .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                return Ok(());
            }
            for id in self.rows(runner).await? {
                let path = format!("{}/actions/runners/{id}", self.scope);
                let body = json!({ "disabled": true });
                let answer = self.http.call(Method::PATCH, &path, Some(&body), &[]).await?;
                if answer.status != 404 {
                    answer.ok()?;
                }
            }
            Ok(())
        })
    }

    fn deregister<'a>(&'a self, runner: &'a RunnerName) -> ConnectorFuture<'a, ()> {
        Box::pin(async move {
            for id in self.rows(runner).await? {
                self.http.delete(&format!("{}/actions/runners/{id}", self.scope)).await?;
            }
            self.ids.forget(runner);
            Ok(())
        })
    }

    fn too_old<'a>(&'a self, words: &'a Words) -> BoxFuture<'a, Option<String>> {
        let own = self.dialect == Dialect::Forgejo && self.command.is_none();
        Box::pin(std::future::ready(own.then(|| versions::too_old(words)).flatten()))
    }

    fn check<'a>(&'a self, found: &'a mut Vec<Finding>) -> ConnectorFuture<'a, ()> {
        Box::pin(self.run_checks(found))
    }

    fn obstacle(&self) -> ConnectorFuture<'_, Option<String>> {
        Box::pin(async move {
            match self.dialect {
                Dialect::Gitea => refusal_text(self.registration_token().await),
                // Only registering a runner would show it.
                Dialect::Forgejo => Ok(None),
            }
        })
    }
}

#[cfg(test)]
mod tests;
