//! GitLab: a runner row for each agent, whose token is valid for that one runner.
//!
//! In: [`Settings`] and the calls of [`Connector`]. Out: rows, jobs and the files for a guest.
//! GitLab lists no jobs of several projects at once, so drover lists the projects of its scope and
//! asks each for its waiting jobs. A refusal with `Retry-After` pauses all calls for that long.
//!
//! Written from GitLab's documentation and the source of its runner, and unverified against a
//! server.
//!
//! Beside this file: `checks` (what `drover doctor` tests), `row_state` (what a row means, and jobs
//! whose runner's row is gone).

mod checks;
mod row_state;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bytes::Bytes;
use drover_model::id::RunnerName;
use drover_model::os::Os;
use drover_model::ports::{Idle, JobObservation, Known, SourceObservation};
use drover_model::record::Want;
use drover_model::time::WallTime;
use drover_ssh::quote;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{HeaderMap, HeaderName, LINK, RETRY_AFTER};
use reqwest::{Method, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::row_state::RowState;
use crate::connector::{
    Connector, ConnectorFuture, RegisterRequest, RunnerBundle, RunnerFile, program_of,
};
use crate::error::DemandError;
use crate::finding::Finding;
use crate::http::{Answer, Http};
use crate::last_jobs::LastJobs;
use crate::origin::GitLabJob;
use crate::rows::{CALLS_AT_ONCE, Listing, PolledRunners, Reading, Row, RowIds, RowLookup};
use crate::windows;

/// Rows on a page; GitLab's maximum.
const PAGE_ROWS: usize = 100;
/// The most pages of runners or projects that are read; of neither may a part count as the whole.
const PAGES_MAX: usize = 20;
/// The most pages of one project's waiting jobs: with more jobs than that, enough wait anyway.
const JOB_PAGES_MAX: usize = 5;
/// The header with the number of all rows of a list, which GitLab omits for long lists.
const TOTAL_HEADER: HeaderName = HeaderName::from_static("x-total");
/// The pause where a refusal names none.
const DEFAULT_PAUSE: Duration = Duration::from_secs(10);
/// The longest pause that drover keeps.
const PAUSE_LONGEST: Duration = Duration::from_secs(600);
/// The shortest time limit of jobs that GitLab accepts for a runner.
const JOB_TIMEOUT_MIN: Duration = Duration::from_secs(600);

/// The part of a server whose runners and jobs drover serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// The whole server.
    Server,
    /// A group with its subgroups, by number or path.
    Group(String),
    /// A project, by number or path.
    Project(String),
}

/// The settings of a GitLab source.
#[derive(Debug, Clone)]
pub struct Settings {
    pub scope: Scope,
    /// The access token that drover logs in with.
    pub token: SecretString,
    /// Whether jobs without tags are served.
    pub run_untagged: bool,
    /// The time limit of a job.
    pub job: Duration,
    /// How long a runner waits for its job.
    pub idle: Duration,
}

impl Settings {
    /// All settings, secrets included, for the fingerprint of the source.
    pub(crate) fn parts(&self) -> Vec<String> {
        let Self { scope, token, run_untagged, job, idle } = self;
        let shown = format!("{scope:?} {run_untagged} {job:?} {idle:?}");
        vec![shown, token.expose_secret().to_owned()]
    }
}

/// The connector for a GitLab server, or for a part of it.
pub(crate) struct GitLab {
    http: Http,
    settings: Settings,
    /// The operator's command that runs a runner in its folder; none for `gitlab-runner`.
    command: Option<String>,
    /// Until when GitLab asked drover to send no calls.
    paused_until: Mutex<Option<Instant>>,
    /// Whether it was logged that the login may not see the jobs of runners.
    jobs_hidden_logged: AtomicBool,
    ids: RowIds,
    /// The jobs that runners were last seen with.
    last_jobs: LastJobs,
}

#[derive(Deserialize)]
struct Runner {
    id: u64,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    status: String,
    /// `active` while a job is on the runner, on newer servers.
    #[serde(default)]
    job_execution_status: Option<String>,
}

#[derive(Deserialize)]
struct Job {
    id: u64,
    #[serde(default)]
    name: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    tag_list: Option<Vec<String>>,
    #[serde(default)]
    created_at: Option<String>,
    #[serde(default)]
    project: Option<Numbered>,
    #[serde(flatten)]
    origin: GitLabJob,
}

/// An object of which only the number matters.
#[derive(Deserialize)]
struct Numbered {
    id: u64,
}

#[derive(Deserialize)]
struct CreatedRunner {
    #[serde(default)]
    id: Option<u64>,
    token: SecretString,
}

impl Runner {
    /// The name that drover gave the runner.
    fn name(&self) -> &str {
        self.description.as_deref().unwrap_or_default()
    }

    /// Whether the row says that a job is on the runner.
    fn executes(&self) -> bool {
        self.job_execution_status.as_deref() == Some("active")
    }

    /// How certain it is that a runner without a visible job is idle: a login sees jobs of its own
    /// projects alone.
    fn idle(&self) -> Idle {
        let says_so = self.job_execution_status.as_deref() == Some("idle");
        if says_so { Idle::Known } else { Idle::Guessed }
    }

    /// Whether any program ever logged in as this runner.
    fn is_known(&self) -> bool {
        !matches!(self.status.as_str(), "never_contacted" | "not_connected")
    }
}

/// A row of a list, identified by its number.
trait HasId {
    fn id(&self) -> u64;
}

impl Row for Runner {
    fn number(&self) -> Option<u64> {
        Some(self.id)
    }

    fn name(&self) -> &str {
        Self::name(self)
    }

    fn rename(&mut self, name: &RunnerName) {
        self.description = Some(name.to_string());
    }
}

impl HasId for Runner {
    fn id(&self) -> u64 {
        self.id
    }
}

impl HasId for Job {
    fn id(&self) -> u64 {
        self.id
    }
}

impl HasId for Numbered {
    fn id(&self) -> u64 {
        self.id
    }
}

fn plain(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

impl GitLab {
    /// Makes a connector; calls nothing yet.
    pub(crate) fn new(http: Http, settings: &Settings, command: Option<String>) -> Self {
        let login = HeaderName::from_static("private-token");
        let http = http.with_login(login, settings.token.clone());
        let (settings, ids, last_jobs) = (settings.clone(), RowIds::default(), LastJobs::default());
        let (paused_until, jobs_hidden_logged) = (Mutex::default(), AtomicBool::new(false));
        Self { http, settings, command, paused_until, jobs_hidden_logged, ids, last_jobs }
    }

    /// One call, unless GitLab asked drover to wait.
    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, DemandError> {
        let now = Instant::now();
        let until = *self.paused_until.lock();
        if let Some(left) = until.and_then(|until| until.checked_duration_since(now)) {
            let text = format!(": GitLab asked drover to wait {} s more", left.as_secs() + 1);
            let shown = path.split('?').next().unwrap_or(path);
            let call = format!("{method} {}api/v4/{shown}", self.http.base().path());
            return Err(DemandError::Status { call, status: 429, text });
        }
        let answer = self.http.call(method, &format!("api/v4/{path}"), body, &[]).await?;
        if answer.status == 429 {
            let asked = answer.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let asked = asked.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
            let until = now + asked.unwrap_or(DEFAULT_PAUSE).min(PAUSE_LONGEST);
            *self.paused_until.lock() = Some(until);
        }
        Ok(answer)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, DemandError> {
        self.call(Method::GET, path, None).await?.ok()?.json()
    }

    /// Reads at most `most` pages of a list; also returns whether that was the end.
    async fn pages<T: DeserializeOwned + HasId>(
        &self,
        path: &str,
        most: usize,
    ) -> Result<(Listing<T>, bool), DemandError> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut next = Some(format!("{query}&per_page={PAGE_ROWS}"));
        let mut all = Reading::new();
        for _ in 0..most {
            let Some(query) = next else { break };
            let answer = self.call(Method::GET, &format!("{path}?{query}"), None).await?.ok()?;
            let rows: Vec<T> = answer.json()?;
            next = next_page(&answer.headers, &query);
            let total =
                answer.headers.get(TOTAL_HEADER).and_then(|text| text.to_str().ok()?.parse().ok());
            all.page(rows.into_iter().map(|row| (row.id(), row)), total);
        }
        let to_end = next.is_none();
        Ok((all.end(to_end), to_end))
    }

    /// Reads a list of which a part must not count as the whole.
    async fn whole<T: DeserializeOwned + HasId>(
        &self,
        path: &str,
        what: &str,
    ) -> Result<Listing<T>, DemandError> {
        let (all, to_end) = self.pages(path, PAGES_MAX).await?;
        if to_end {
            return Ok(all);
        }
        let most = PAGES_MAX * PAGE_ROWS;
        let text = format!(
            "its `scope` has more than {most} {what}; configure groups or projects of it, each \
             as a source of its own"
        );
        Err(DemandError::Setup(text))
    }

    async fn runners(&self) -> Result<Listing<Runner>, DemandError> {
        let path = match &self.settings.scope {
            Scope::Server => "runners/all?type=instance_type".to_owned(),
            Scope::Group(group) => format!("groups/{}/runners?type=group_type", plain(group)),
            Scope::Project(project) => {
                format!("projects/{}/runners?type=project_type", plain(project))
            }
        };
        self.whole(&path, "runners").await
    }

    /// The runners of the list, and those of `known` that the list lacks, asked for by their
    /// numbers.
    async fn seen(&self, known: &Known) -> Result<PolledRunners<Runner>, DemandError> {
        let mut seen = self.ids.seen(self.runners().await?, known, |name| self.find(name)).await?;
        seen.rows.retain(|row| RunnerName::parse(row.name()).is_some());
        Ok(seen)
    }

    async fn find(&self, name: RunnerName) -> Result<RowLookup<Runner>, DemandError> {
        let read = |id| async move { self.get::<Runner>(&format!("runners/{id}")).await };
        self.ids.by_number(&name, read).await
    }

    /// The numbers of all rows that belong or belonged to a runner.
    async fn rows(&self, runner: &RunnerName) -> Result<BTreeSet<u64>, DemandError> {
        self.ids.numbers(self.runners().await?, runner)
    }

    /// The projects of the scope, as paths name them.
    async fn projects(&self) -> Result<Vec<String>, DemandError> {
        let rest = "simple=true&archived=false&order_by=id&sort=asc";
        let path = match &self.settings.scope {
            Scope::Project(project) => return Ok(vec![plain(project)]),
            Scope::Server => format!("projects?{rest}&pagination=keyset"),
            Scope::Group(group) => {
                let below = "include_subgroups=true&with_shared=false";
                format!("groups/{}/projects?{rest}&{below}", plain(group))
            }
        };
        let all: Listing<Numbered> = self.whole(&path, "projects").await?;
        Ok(all.rows.into_iter().map(|project| project.id.to_string()).collect())
    }

    async fn waiting(&self, project: String) -> Result<Vec<Job>, DemandError> {
        let path = format!("projects/{project}/jobs?scope%5B%5D=pending");
        // A project that was removed or archived meanwhile has no jobs.
        match self.pages::<Job>(&path, JOB_PAGES_MAX).await {
            Ok((jobs, _)) => Ok(jobs.rows),
            Err(DemandError::Status { status: 404, .. })
                if !matches!(self.settings.scope, Scope::Project(_)) =>
            {
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }

    async fn poll_all(&self, known: &Known) -> Result<SourceObservation, DemandError> {
        let PolledRunners { rows, gone, whole, numbers } = self.seen(known).await?;
        self.last_jobs.keep(known);
        let rows = stream::iter(rows).map(|row| async move {
            let name = RunnerName::new(row.name());
            let standing = self.row(&row).await;
            Ok::<_, DemandError>((self.ids.tolerate(&name, standing)?, name))
        });
        let rows: Vec<_> = rows.buffered(CALLS_AT_ONCE).try_collect().await?;
        let mut poll_all =
            SourceObservation { gone, whole, numbers, ..SourceObservation::default() };
        for (standing, name) in rows {
            match standing {
                Ok(RowState::Row(row)) => poll_all.rows.push(row),
                Ok(RowState::Done) => {
                    poll_all.done.insert(name);
                }
                Ok(RowState::Gone) => {
                    poll_all.gone.insert(name);
                }
                // The guest is asked instead.
                Err(_) => {}
            }
        }
        poll_all.over = self.over(&poll_all.gone).await;
        let projects = stream::iter(self.projects().await?);
        let jobs = projects.map(|project| self.waiting(project)).buffered(CALLS_AT_ONCE);
        let jobs: Vec<Vec<Job>> = jobs.try_collect().await?;
        poll_all.jobs = jobs.into_iter().flatten().filter_map(|job| self.wanted(job)).collect();
        Ok(poll_all)
    }

    /// The job as the actors see it, where it waits and a runner of drover's would get it.
    fn wanted(&self, job: Job) -> Option<JobObservation> {
        let tags = job.tag_list.unwrap_or_default();
        let taken = !tags.is_empty() || self.settings.run_untagged;
        if job.status != "pending" || !taken {
            return None;
        }
        let since = job.created_at.and_then(|text| text.parse::<jiff::Timestamp>().ok());
        Some(JobObservation {
            id: job.id.to_string(),
            name: job.name,
            want: Want::Labels(tags.into_iter().collect()),
            since: WallTime(since.unwrap_or_else(jiff::Timestamp::now).as_millisecond()),
            origin: job.origin.origin(),
        })
    }

    /// The number of a group or project that may be configured by its path.
    async fn number(&self, list: &str, name: &str) -> Result<u64, DemandError> {
        match name.parse() {
            Ok(id) => Ok(id),
            Err(_) => Ok(self.get::<Numbered>(&format!("{list}/{}", plain(name))).await?.id),
        }
    }

    async fn create_row(&self, request: RegisterRequest<'_>) -> Result<CreatedRunner, DemandError> {
        let mut body = json!({
            "description": request.runner.as_str(),
            "tag_list": request.labels(),
            "run_untagged": self.settings.run_untagged,
            "maximum_timeout": self.settings.job.max(JOB_TIMEOUT_MIN).as_secs(),
        });
        match &self.settings.scope {
            Scope::Server => body["runner_type"] = "instance_type".into(),
            Scope::Group(group) => {
                body["runner_type"] = "group_type".into();
                body["group_id"] = self.number("groups", group).await?.into();
            }
            Scope::Project(project) => {
                body["runner_type"] = "project_type".into();
                body["project_id"] = self.number("projects", project).await?.into();
                // No other project may use the runner.
                body["locked"] = true.into();
            }
        }
        self.call(Method::POST, "user/runners", Some(&body)).await?.ok()?.json()
    }

    /// The environment that `gitlab-runner run-single` reads, so that no list of processes shows
    /// the token. The program ends after its job.
    fn bundle(&self, os: Os, made: &CreatedRunner) -> RunnerBundle {
        let url = self.http.base().as_str().trim_end_matches('/');
        let lines = [
            ("CI_SERVER_URL", url),
            ("CI_SERVER_TOKEN", made.token.expose_secret()),
            ("RUNNER_EXECUTOR", "shell"),
        ];
        if os.is_windows() {
            let seconds = self.settings.idle.as_secs();
            let own =
                format!("gitlab-runner.exe run-single --max-builds 1 --wait-timeout {seconds}");
            let own = (self.command.as_deref(), own.as_str());
            return windows::bundle(own, &lines, Vec::new(), vec![made.token.clone()]);
        }
        let lines = lines.map(|(name, value)| format!("{name}={}\n", quote(value)));
        let content = Bytes::from(lines.concat());
        let seconds = self.settings.idle.as_secs();
        let own = format!("exec gitlab-runner run-single --max-builds 1 --wait-timeout {seconds}");
        let command = self.command.clone().unwrap_or(own);
        RunnerBundle {
            files: vec![RunnerFile { name: "runner.env", content }],
            programs: program_of(&command),
            command: format!("set -a; . ./runner.env; set +a; {command}"),
            may_detach: self.command.is_some(),
            secrets: vec![made.token.clone()],
        }
    }
}

/// The query of the next page: from the `Link` header, which is the only source for keyset
/// pagination, or from the page number.
fn next_page(headers: &HeaderMap, query: &str) -> Option<String> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok();
    let named = text(LINK).and_then(|links| {
        let link = links.split(',').find(|link| link.contains("rel=\"next\""))?;
        let (_, link) = link.split_once('<')?;
        let url: Url = link.split_once('>')?.0.parse().ok()?;
        url.query().map(str::to_owned)
    });
    let counted = || {
        let page: u64 = text(HeaderName::from_static("x-next-page"))?.trim().parse().ok()?;
        let rest = query.split('&').filter(|part| !part.is_empty() && !part.starts_with("page="));
        Some(format!("{}&page={page}", rest.collect::<Vec<_>>().join("&")))
    };
    named.or_else(counted)
}

impl Connector for GitLab {
    fn poll<'a>(&'a self, known: &'a Known) -> ConnectorFuture<'a, SourceObservation> {
        Box::pin(self.poll_all(known))
    }

    fn register<'a>(&'a self, request: RegisterRequest<'a>) -> ConnectorFuture<'a, RunnerBundle> {
        Box::pin(async move {
            // Removes a row that an earlier attempt made: its token is lost.
            self.deregister(request.runner).await?;
            let made = self.create_row(request).await?;
            made.id.into_iter().for_each(|id| self.ids.learn(request.runner.as_str(), id));
            Ok(self.bundle(request.target.os, &made))
        })
    }

    fn cordon<'a>(&'a self, runner: &'a RunnerName) -> ConnectorFuture<'a, ()> {
        Box::pin(async move {
            for id in self.rows(runner).await? {
                let body = json!({ "paused": true });
                let answer = self.call(Method::PUT, &format!("runners/{id}"), Some(&body)).await?;
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
                let answer = self.call(Method::DELETE, &format!("runners/{id}"), None).await?;
                if answer.status != 404 {
                    answer.ok()?;
                }
            }
            self.ids.forget(runner);
            Ok(())
        })
    }

    fn check<'a>(&'a self, found: &'a mut Vec<Finding>) -> ConnectorFuture<'a, ()> {
        Box::pin(self.run_checks(found))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use drover_model::gate::Gate;
    use proxmox_client::Tls;

    use super::*;
    use crate::Route;
    use crate::connector::tests::{offered_for, started_for};

    // Invariant: a job says the size of its machine by a tag, and its runner has that tag.

    #[test]
    fn a_job_names_a_size_by_a_tag_that_its_runner_offers() {
        let url = "https://lab".parse().unwrap();
        let http = Http::new(&url, &Tls::System, &Route::Direct, Gate::default()).unwrap();
        let settings = Settings {
            scope: Scope::Server,
            token: "a token".to_owned().into(),
            run_untagged: false,
            job: Duration::from_secs(3600),
            idle: Duration::from_secs(60),
        };
        let job = json!({"id": 1, "status": "pending", "tag_list": ["linux", "cpu=8"]});
        let gitlab = GitLab::new(http, &settings, None);
        let want = gitlab.wanted(serde_json::from_value(job).unwrap()).unwrap().want;
        assert_eq!(started_for(&want).cores, Some(8));
        assert_eq!(offered_for(&want), ["cpu=8", "linux"]);
    }

    // Invariant: the next page is the one that the server names, in whichever header.

    #[test]
    fn the_next_page_is_read_from_either_header() {
        let next = |pairs: &[(HeaderName, &str)], query: &str| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(name.clone(), value.parse().unwrap());
            }
            next_page(&headers, query)
        };
        let counted = HeaderName::from_static("x-next-page");
        let keys = "<https://lab/api/v4/projects?id_after=42&sort=asc>; rel=\"next\"";
        let both = format!("<https://lab/api/v4/projects?page=1>; rel=\"prev\", {keys}");
        assert_eq!(next(&[(LINK, keys)], "a=b"), Some("id_after=42&sort=asc".into()));
        assert_eq!(next(&[(LINK, &both)], "a=b"), Some("id_after=42&sort=asc".into()));
        assert_eq!(next(&[(counted.clone(), "3")], "&a=b&page=2"), Some("a=b&page=3".into()));
        assert_eq!(next(&[(counted, "")], "a=b"), None, "as the last one says");
        assert_eq!(next(&[], "a=b"), None);
    }
}
