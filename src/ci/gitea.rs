//! Gitea and Forgejo Actions: one connector, two dialects.
//!
//! drover registers each runner itself, ephemeral, and the guest gets only that runner's own uuid
//! and token; the registration token, which registers any number, never leaves this side. Gitea's
//! half was exercised against Gitea 1.26; Forgejo's is from public clients and their tests, and
//! unverified against a server.

mod lists;
mod under_way;
mod versions;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use drover_model::demand::words::Words;
use drover_model::id::RunnerName;
use drover_model::ports::{Idle, JobSight, Known, NodeSight, RowSight, SourceSight};
use drover_model::record::Want;
use drover_model::time::WallTime;
use drover_ssh::quote;
use futures_util::future::BoxFuture;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer};
use serde_json::json;

use crate::connector::{Connector, Ended, Enlist, Kit, KitFile, Wake, barrier, program_of};
use crate::error::DemandError;
use crate::first_seen::FirstSeen;
use crate::http::Http;
use crate::keepsake::Keepsake;
use crate::last_jobs::LastJobs;
use crate::proof::Proof;
use crate::rows::{Ids, Seen};
use crate::windows;

/// The first Forgejo whose runners can be made for one job.
const EPHEMERAL_SINCE: u32 = 15;
/// What Gitea's program is called: so since 1.0.0, and before.
const PROGRAMS: [&str; 2] = ["gitea-runner", "act_runner"];
/// Runs the one that is there: lines of a batch file.
const RUN_WINDOWS: [&str; 2] = [
    "where /q gitea-runner && (gitea-runner daemon --config config.yaml & exit /b)",
    "act_runner daemon --config config.yaml",
];

/// Which of the two it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Gitea.
    Gitea,
    /// Forgejo.
    Forgejo,
}

impl Dialect {
    /// Whose version this is: a Forgejo says beside its own which Gitea it is like. Unverified
    /// against a Forgejo.
    fn of(version: &str) -> Self {
        if version.contains("+gitea") { Self::Forgejo } else { Self::Gitea }
    }

    /// As people call it.
    fn name(self) -> &'static str {
        match self {
            Self::Gitea => "Gitea",
            Self::Forgejo => "Forgejo",
        }
    }

    /// As it is configured.
    fn kind(self) -> &'static str {
        match self {
            Self::Gitea => "gitea",
            Self::Forgejo => "forgejo",
        }
    }
}

/// Whose runners and jobs are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// The whole server's.
    Server,
    /// An organisation's.
    Organisation(String),
    /// The token's user's.
    User,
    /// A repository's, by owner and name.
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

/// What is configured of it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which of the two it is.
    pub dialect: Dialect,
    /// Whose jobs are meant.
    pub scope: Scope,
    /// What drover logs in with.
    pub token: SecretString,
}

impl Settings {
    /// Everything of it, secrets included, for its fingerprint.
    pub fn parts(&self) -> Vec<String> {
        let shown = format!("{:?} {:?}", self.dialect, self.scope);
        vec![shown, self.token.expose_secret().to_owned()]
    }
}

/// A Gitea or Forgejo server, or a part of it.
pub struct Gitea {
    http: Http,
    dialect: Dialect,
    kept: Scope,
    /// The scope as the paths of its calls begin.
    scope: String,
    /// The command that runs a runner in its folder; none for the dialect's own program.
    command: Option<String>,
    ids: Ids,
    /// The jobs that its runners were seen with.
    last_jobs: LastJobs,
    /// Since when each job waits: Forgejo's list has no dates.
    seen: FirstSeen,
}

/// A list that is there, and may be null where it is empty: an answer without it says nothing of
/// what runs.
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
}

/// What a guest's runner logs in with.
#[derive(Deserialize)]
struct Registered {
    #[serde(deserialize_with = "number")]
    id: u64,
    uuid: String,
    token: SecretString,
}

#[derive(Deserialize)]
struct Register {
    runner: Registered,
}

/// A number, which Connect's JSON writes as text (int64 in the JSON mapping of Protocol Buffers), and
/// the programs of runners read as a number (`ID int64` in `registration.go` of all of them, 0.2.11 to
/// 3.3.0).
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

impl Gitea {
    /// A connector; calls nothing yet.
    pub fn new(http: Http, settings: &Settings, command: Option<String>) -> Self {
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
            ids: Ids::default(),
            last_jobs: LastJobs::default(),
            seen: FirstSeen::default(),
        }
    }

    async fn look_at_forgejo(&self, known: &Known) -> Result<SourceSight, DemandError> {
        let Seen { rows, gone, whole, numbers } = self.seen(known).await?;
        // It calls a runner idle that reported nothing of its job for ten seconds.
        let sight = |row| sight(row, row.is_active().into(), None, Idle::Guessed);
        let rows = rows.iter().filter_map(sight).collect();
        let path = format!("{}/actions/runners/jobs", self.scope);
        let jobs: Option<Vec<Job>> = self.http.get(&path).await?;
        let jobs = jobs.unwrap_or_default().into_iter().filter(|job| job.status == "waiting");
        let jobs = self.waiting(jobs.collect());
        Ok(SourceSight { rows, gone, whole, numbers, jobs, ..SourceSight::default() })
    }

    fn waiting(&self, jobs: Vec<Job>) -> Vec<JobSight> {
        let now = WallTime(jiff::Timestamp::now().as_millisecond());
        let undated = jobs.iter().filter(|job| job.created_at.is_none());
        let seen = self.seen.look(undated.map(|job| job.id.to_string()), now);
        let sights = jobs.into_iter().map(|job| {
            let id = job.id.to_string();
            let told = job.created_at.and_then(|text| text.parse::<jiff::Timestamp>().ok());
            let told = told.map(|at| WallTime(at.as_millisecond()));
            let since = told.or_else(|| seen.get(&id).copied()).unwrap_or(now);
            let want = Want::Labels(job.labels.unwrap_or_default().into_iter().collect());
            JobSight { id, name: job.name, want, since }
        });
        sights.collect()
    }

    /// What registers runners; the server gives the same one again.
    async fn registration_token(&self) -> Result<RegistrationToken, DemandError> {
        let path = format!("{}/actions/runners/registration-token", self.scope);
        self.http.post(&path, &json!({})).await
    }

    async fn register(&self, wish: Enlist<'_>) -> Result<Registered, DemandError> {
        let labels: BTreeSet<String> = wish.labels();
        match self.dialect {
            Dialect::Gitea => {
                let minted = self.registration_token().await?;
                let body = json!({
                    "name": wish.runner.as_str(),
                    "token": minted.token.expose_secret(),
                    "version": concat!("drover/", env!("CARGO_PKG_VERSION")),
                    "labels": labels,
                    "ephemeral": true,
                });
                let path = "api/actions/runner.v1.RunnerService/Register";
                let made: Register = self.http.post(path, &body).await?;
                Ok(made.runner)
            }
            Dialect::Forgejo => {
                let body = json!({
                    "name": wish.runner.as_str(),
                    "description": "made by drover for one job",
                    "ephemeral": true,
                });
                self.http.post(&format!("{}/actions/runners", self.scope), &body).await
            }
        }
    }

    /// What `gitea-runner` (`act_runner` before 1.0.0) and `forgejo-runner` keep of their registration, and
    /// how they are told to use it.
    fn kit(&self, wish: Enlist<'_>, made: &Registered) -> Kit {
        // What either of these is in would be read as something else (`internal/pkg/labels/labels.go`).
        let plain = wish.labels().into_iter().filter(|label| !label.contains([':', '?']));
        let labels: Vec<String> = plain.map(|label| format!("{label}:host")).collect();
        let state = json!({
            "WARNING": "made by drover for one job",
            "id": made.id,
            "uuid": made.uuid,
            "name": wish.runner.as_str(),
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
        let file = |name, content: String| KitFile { name, content: Bytes::from(content) };
        let mut files =
            vec![file(".runner", state.to_string()), file("config.yaml", config.to_string())];
        if wish.target.os.is_windows() {
            match self.dialect {
                Dialect::Gitea => {}
                Dialect::Forgejo => {
                    files.push(file("token", made.token.expose_secret().to_owned()))
                }
            }
            let run = RUN_WINDOWS.join("\n");
            let own = (self.command.as_deref(), run.as_str());
            let mut kit = windows::kit(own, &[], files, vec![made.token.clone()]);
            if self.command.is_none() {
                kit.programs = Vec::from(PROGRAMS.map(str::to_owned));
            }
            return kit;
        }
        let own = match self.dialect {
            Dialect::Gitea => {
                let program = "$(command -v gitea-runner || echo act_runner)";
                format!("exec \"{program}\" daemon --config config.yaml")
            }
            Dialect::Forgejo => {
                // A connection that is named twice is refused (`internal/app/cmd/args.go`).
                if self.command.is_none() {
                    files.retain(|file| file.name != ".runner");
                }
                files.push(file("token", made.token.expose_secret().to_owned()));
                self.one_job(&made.uuid, &labels)
            }
        };
        let (leaves, secrets) = (self.command.is_some(), vec![made.token.clone()]);
        let programs = match (&self.command, self.dialect) {
            (None, Dialect::Gitea) => Vec::from(PROGRAMS.map(str::to_owned)),
            (None, Dialect::Forgejo) => program_of(&own),
            (Some(command), _) => program_of(command),
        };
        let command = self.command.clone().unwrap_or(own);
        Kit { files, programs, command, leaves, secrets }
    }

    /// Forgejo's way to run one job and end. It could be told which one; but the job that it was
    /// begun for may have gone to another by then, and any that fits is as good.
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

    /// What an error of a look comes from, where more can be said of it.
    async fn explained(&self, error: DemandError) -> DemandError {
        match error {
            DemandError::Status { call, status: status @ 403, text } => {
                let text = format!("{text}; its token needs {}", self.needs());
                DemandError::Status { call, status, text }
            }
            DemandError::Status { status: 404, .. } | DemandError::Shape { .. } => {
                // Some servers tell nothing without a login that is good for it.
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

    /// What its token must be allowed.
    fn needs(&self) -> &'static str {
        match &self.kept {
            Scope::Server => "write:admin",
            Scope::Organisation(_) => "write:organization of an owner",
            Scope::User => "write:user",
            Scope::Repository(..) => "write:repository",
        }
    }

    async fn proofs(&self, found: &mut Vec<Proof>) -> Result<(), DemandError> {
        let name = self.dialect.name();
        // Some servers tell nothing without a login that is good for it.
        if let Ok(Version { version }) = self.http.get("api/v1/version").await {
            let text = format!("{name} {version}");
            found.push(match (self.dialect, major(&version)) {
                (Dialect::Forgejo, Some(major)) if major < EPHEMERAL_SINCE => Proof::fail(
                    "version",
                    format!("{text} makes no runners for one job alone"),
                    format!("update it to {EPHEMERAL_SINCE} or later"),
                ),
                (Dialect::Gitea | Dialect::Forgejo, _) => Proof::ok("version", text),
            });
        }
        let rows = match self.runners().await {
            Ok(rows) => rows,
            Err(error) => return Err(self.explained(error).await),
        };
        found.push(Proof::ok("token", "is accepted"));
        found.push(Proof::ok("runners", format!("{} can be listed", rows.rows.len())));
        let sight = self.look(&Known::new()).await?;
        found.push(Proof::ok("jobs", format!("{} wait", sight.jobs.len())));
        found.push(Proof::unproven("runners", self.needs()));
        Ok(())
    }
}

/// The number a version begins with.
fn major(version: &str) -> Option<u32> {
    version.trim_start_matches('v').split(['.', '+', '-']).next()?.parse().ok()
}

impl Runner {
    fn is_active(&self) -> bool {
        self.busy || self.status == "active"
    }
}

/// A row of drover's; none for others'.
fn sight(row: &Runner, jobs: u32, job: Option<String>, idle: Idle) -> Option<RowSight> {
    RunnerName::parse(&row.name)?;
    let runner = RunnerName::new(&row.name);
    let online = matches!(row.status.as_str(), "online" | "idle" | "active");
    Some(RowSight { runner, online, jobs, job, idle, node: NodeSight::default() })
}

impl Connector for Gitea {
    fn watch(self: Arc<Self>, _: Wake, _: Ended, kept: Keepsake) -> Option<BoxFuture<'static, ()>> {
        self.seen.keep(kept, self.http.base().as_str());
        None
    }

    fn look<'a>(&'a self, known: &'a Known) -> BoxFuture<'a, Result<SourceSight, DemandError>> {
        Box::pin(async move {
            let sight = match self.dialect {
                Dialect::Gitea => self.look_at_gitea(known).await,
                Dialect::Forgejo => self.look_at_forgejo(known).await,
            };
            match sight {
                Ok(sight) => Ok(sight),
                Err(error) => Err(self.explained(error).await),
            }
        })
    }

    fn enlist<'a>(&'a self, wish: Enlist<'a>) -> BoxFuture<'a, Result<Kit, DemandError>> {
        Box::pin(async move {
            // One that was made before and whose secret nobody knows any more.
            self.strike(wish.runner).await?;
            let made = self.register(wish).await?;
            self.ids.learn(wish.runner.as_str(), made.id);
            Ok(self.kit(wish, &made))
        })
    }

    fn quiet<'a>(&'a self, runner: &'a RunnerName) -> BoxFuture<'a, Result<(), DemandError>> {
        Box::pin(async move {
            if self.dialect == Dialect::Forgejo {
                // It knows nothing of the kind, but who is removed takes no job either.
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

    fn strike<'a>(&'a self, runner: &'a RunnerName) -> BoxFuture<'a, Result<(), DemandError>> {
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

    fn prove<'a>(&'a self, found: &'a mut Vec<Proof>) -> BoxFuture<'a, Result<(), DemandError>> {
        Box::pin(self.proofs(found))
    }

    fn obstacle(&self) -> BoxFuture<'_, Result<Option<String>, DemandError>> {
        Box::pin(async move {
            match self.dialect {
                Dialect::Gitea => barrier(self.registration_token().await),
                // Only making one would tell.
                Dialect::Forgejo => Ok(None),
            }
        })
    }
}

#[cfg(test)]
mod tests;
