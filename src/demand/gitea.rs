//! Gitea and Forgejo Actions: one connector, two dialects.
//!
//! drover registers each runner itself, ephemeral, and the guest gets only that runner's own uuid
//! and token; the registration token, which registers any number, never leaves this side. Gitea's
//! half was exercised against Gitea 1.26; Forgejo's is from public clients and their tests, and
//! unverified against a server.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use drover_actors::id::RunnerName;
use drover_actors::ports::{JobSight, NodeSight, RowSight, SourceSight};
use drover_actors::record::Want;
use drover_actors::time::WallTime;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::connector::{Connector, Enlist, Kit, KitFile, first_word};
use super::error::DemandError;
use super::http::Http;
use futures_util::future::BoxFuture;

/// Rows a page; Gitea's own most is 50.
const PAGE: usize = 50;
/// Pages read at most: beyond that much waits anyway.
const PAGES_MAX: usize = 40;

/// Which of the two it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Gitea.
    Gitea,
    /// Forgejo.
    Forgejo,
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
    scope: String,
    /// The command that runs a runner in its folder; none for the dialect's own program.
    command: Option<String>,
}

#[derive(Deserialize)]
struct Runners {
    #[serde(default)]
    runners: Option<Vec<Runner>>,
}

#[derive(Deserialize)]
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
    #[serde(default)]
    jobs: Option<Vec<Job>>,
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
}

/// What a guest's runner logs in with.
#[derive(Deserialize)]
struct Registered {
    id: Value,
    uuid: String,
    token: SecretString,
}

#[derive(Deserialize)]
struct Register {
    runner: Registered,
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
        Self { http, dialect: *dialect, scope: scope.path(), command }
    }

    /// All pages of a list.
    async fn pages<T: DeserializeOwned, R>(
        &self,
        path: &str,
        read: impl Fn(T) -> Vec<R>,
    ) -> Result<Vec<R>, DemandError> {
        let mut all = Vec::new();
        let mark = if path.contains('?') { '&' } else { '?' };
        for page in 1..=PAGES_MAX {
            let path = format!("{}/{path}{mark}limit={PAGE}&page={page}", self.scope);
            let rows = read(self.http.get(&path).await?);
            let last = rows.len() < PAGE;
            all.extend(rows);
            if last {
                break;
            }
        }
        Ok(all)
    }

    async fn runners(&self) -> Result<Vec<Runner>, DemandError> {
        match self.dialect {
            Dialect::Gitea => {
                let read = |page: Runners| page.runners.unwrap_or_default();
                self.pages("actions/runners", read).await
            }
            Dialect::Forgejo => {
                let read = |page: Option<Vec<Runner>>| page.unwrap_or_default();
                self.pages("actions/runners", read).await
            }
        }
    }

    /// Rows of exactly this name; names are not unique.
    async fn rows(&self, runner: &RunnerName) -> Result<Vec<u64>, DemandError> {
        let all = self.runners().await?.into_iter();
        Ok(all.filter(|row| row.name == runner.as_str()).map(|row| row.id).collect())
    }

    async fn jobs(&self, status: &str) -> Result<Vec<Job>, DemandError> {
        let read = |page: Jobs| page.jobs.unwrap_or_default();
        let jobs = self.pages(&format!("actions/jobs?status={status}"), read).await?;
        // A server that does not know the filter tells everything.
        Ok(jobs.into_iter().filter(|job| job.status == status).collect())
    }

    async fn look_at_gitea(&self) -> Result<SourceSight, DemandError> {
        let runners = self.runners().await?;
        // The row's own `busy` lags behind: the job says which runner has it.
        let mut running: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for job in self.jobs("in_progress").await? {
            running.entry(job.runner_name.unwrap_or_default()).or_default().push(job.id);
        }
        let rows = runners.iter().filter_map(|row| {
            let none = Vec::new();
            let jobs = running.get(&row.name).unwrap_or(&none);
            let count = u32::try_from(jobs.len()).unwrap_or(u32::MAX).max(row.busy.into());
            sight(row, count, jobs.first().map(u64::to_string))
        });
        let rows = rows.collect();
        let jobs = self.jobs("queued").await?;
        Ok(SourceSight { rows, jobs: jobs.into_iter().map(waiting).collect(), unread: 0 })
    }

    async fn look_at_forgejo(&self) -> Result<SourceSight, DemandError> {
        let runners = self.runners().await?;
        let rows = runners.iter().filter_map(|row| sight(row, row.is_active().into(), None));
        let rows = rows.collect();
        let path = format!("{}/actions/runners/jobs", self.scope);
        let jobs: Option<Vec<Job>> = self.http.get(&path).await?;
        let jobs = jobs.unwrap_or_default().into_iter().filter(|job| job.status == "waiting");
        Ok(SourceSight { rows, jobs: jobs.map(waiting).collect(), unread: 0 })
    }

    async fn register(&self, wish: Enlist<'_>) -> Result<Registered, DemandError> {
        let labels: BTreeSet<String> = wish.labels();
        match self.dialect {
            Dialect::Gitea => {
                let path = format!("{}/actions/runners/registration-token", self.scope);
                let minted: RegistrationToken = self.http.post(&path, &json!({})).await?;
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

    /// What `act_runner` and `forgejo-runner` keep of their registration, and how they are told to
    /// use it.
    fn kit(&self, wish: Enlist<'_>, made: &Registered) -> Kit {
        let labels: Vec<String> =
            wish.labels().into_iter().map(|label| format!("{label}:host")).collect();
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
        let file = |name, value: &Value| KitFile { name, content: Bytes::from(value.to_string()) };
        let program = match self.dialect {
            Dialect::Gitea => "act_runner",
            Dialect::Forgejo => "forgejo-runner",
        };
        let own = format!("exec {program} daemon --config config.yaml");
        let command = self.command.clone().unwrap_or(own);
        let program = self.command.as_deref().map_or(program, first_word).to_owned();
        let files = vec![file(".runner", &state), file("config.yaml", &config)];
        Kit { files, program, command }
    }
}

impl Runner {
    fn is_active(&self) -> bool {
        self.busy || self.status == "active"
    }
}

/// A row of drover's; none for others'.
fn sight(row: &Runner, jobs: u32, job: Option<String>) -> Option<RowSight> {
    RunnerName::parse(&row.name)?;
    let runner = RunnerName::new(&row.name);
    let online = matches!(row.status.as_str(), "online" | "idle" | "active");
    Some(RowSight { runner, online, jobs, job, node: NodeSight::default() })
}

fn waiting(job: Job) -> JobSight {
    let since = job.created_at.and_then(|text| text.parse::<jiff::Timestamp>().ok());
    JobSight {
        id: job.id.to_string(),
        name: job.name,
        want: Want::Labels(job.labels.unwrap_or_default().into_iter().collect()),
        since: WallTime(since.unwrap_or_else(jiff::Timestamp::now).as_millisecond()),
    }
}

impl Connector for Gitea {
    fn look(&self) -> BoxFuture<'_, Result<SourceSight, DemandError>> {
        Box::pin(async move {
            match self.dialect {
                Dialect::Gitea => self.look_at_gitea().await,
                Dialect::Forgejo => self.look_at_forgejo().await,
            }
        })
    }

    fn enlist<'a>(&'a self, wish: Enlist<'a>) -> BoxFuture<'a, Result<Kit, DemandError>> {
        Box::pin(async move {
            // One that was made before and whose secret nobody knows any more.
            self.strike(wish.runner).await?;
            let made = self.register(wish).await?;
            Ok(self.kit(wish, &made))
        })
    }

    fn quiet<'a>(&'a self, runner: &'a RunnerName) -> BoxFuture<'a, Result<(), DemandError>> {
        Box::pin(async move {
            if self.dialect == Dialect::Forgejo {
                // No such thing is known of it; its ephemeral runners take one job anyway.
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
            Ok(())
        })
    }
}
