//! Woodpecker: an agent row for each of drover's agents, whose token is valid for that one agent.
//!
//! In: [`Settings`] and the calls of [`Connector`]. Out: rows, workflows as jobs, and the files for
//! a guest.
//!
//! A workflow demands a map of labels, and an agent must have each of them. Each becomes one text,
//! `key=value`, which templates list like any other label. `platform`, `backend` and `hostname`
//! describe the agent itself; a workflow has them only where its author wrote them, so they count
//! like any other label. `repo` and `org-id` stand in every workflow and distinguish no machine: an
//! agent of the whole server takes any.
//!
//! Failure paths: a paused queue is logged and starts nothing; an agent that speaks another
//! protocol than its server is reported with the version to install (`versions`).
//!
//! Written from Woodpecker's source, and unverified against a server.
//!
//! Beside this file: `queue` (which workflows would start), `finished` (which agents have a
//! workflow by the server's database), `versions`.

mod finished;
mod queue;
mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use drover_model::demand::words::Words;
use drover_model::id::RunnerName;
use drover_model::ports::{
    Idle, JobObservation, JobOrigin, Known, NodeObservation, RowObservation, SourceObservation,
};
use drover_model::record::Want;
use drover_model::time::WallTime;
use drover_ssh::quote;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use reqwest::Method;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::json;

use self::queue::{Queue, Task};
use crate::connector::{
    Connector, ConnectorFuture, RegisterRequest, RunnerBundle, RunnerFile, StopSignal, Wake,
    program_of,
};
use crate::error::DemandError;
use crate::finding::Finding;
use crate::first_seen::FirstSeen;
use crate::http::Http;
use crate::origin;
use crate::rows::{Listing, PolledRunners, Reading, Row, RowIds};
use crate::state_file::StateFile;
use crate::windows;

/// Rows that are requested on a page.
const PAGE_ROWS: usize = 50;
/// The most pages that are read; a part of the agents must not count as all.
const PAGES_MAX: usize = 60;
/// An agent reports every 10 s: one without a report for so many seconds is not connected.
const CONTACT_SECS: i64 = 60;
/// Labels that every workflow has, and that distinguish no machine.
const COMMON_LABELS: [&str; 2] = ["repo", "org-id"];
/// The prefix of labels that the server reserves for itself.
const INTERNAL_LABEL_PREFIX: &str = "woodpecker-ci.org";

/// The settings of a Woodpecker source.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The access token that drover logs in with.
    pub token: SecretString,
    /// Host and port that agents connect to.
    pub grpc: String,
    /// Whether agents connect by TLS.
    pub secure: bool,
}

impl Settings {
    /// All settings, secrets included, for the fingerprint of the source.
    pub(crate) fn parts(&self) -> Vec<String> {
        let shown = format!("{} {}", self.grpc, self.secure);
        vec![shown, self.token.expose_secret().to_owned()]
    }
}

/// The connector for a Woodpecker server.
pub(crate) struct Woodpecker {
    http: Http,
    settings: Settings,
    /// The operator's command that runs a runner in its folder; none for `woodpecker-agent`.
    command: Option<String>,
    /// Since when each workflow waits for an agent: the server reports when its pipeline was made.
    seen: FirstSeen,
    /// Whether the queue was paused in the last poll.
    paused: AtomicBool,
    ids: RowIds,
}

#[derive(Deserialize)]
struct Agent {
    id: i64,
    #[serde(default)]
    name: String,
    #[serde(default)]
    token: Option<SecretString>,
    /// Unix seconds; 0 for never.
    #[serde(default)]
    last_contact: i64,
    /// Unix seconds; 0 for never.
    #[serde(default)]
    last_work: i64,
}

impl Agent {
    /// The number that identifies the row.
    fn number(&self) -> u64 {
        self.id.unsigned_abs()
    }
}

impl Row for Agent {
    fn number(&self) -> Option<u64> {
        Some(Self::number(self))
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn rename(&mut self, name: &RunnerName) {
        self.name = name.to_string();
    }
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    admin: bool,
}

impl Woodpecker {
    /// Makes a connector; calls nothing yet.
    pub(crate) fn new(http: Http, settings: &Settings, command: Option<String>) -> Self {
        let login = format!("Bearer {}", settings.token.expose_secret());
        Self {
            http: http.with_authorization(login.into()),
            settings: settings.clone(),
            command,
            seen: FirstSeen::default(),
            paused: AtomicBool::new(false),
            ids: RowIds::default(),
        }
    }

    /// All agents, and the server's clock.
    async fn agents(&self) -> Result<(Listing<Agent>, Timestamp), DemandError> {
        let (mut all, mut clock) = (Reading::new(), Timestamp::now());
        let mut last: BTreeSet<u64> = BTreeSet::new();
        for page in 1..=PAGES_MAX {
            let path = format!("api/agents?page={page}&perPage={PAGE_ROWS}");
            let answer = self.http.call(Method::GET, &path, None, &[]).await?.ok()?;
            clock = answer.date().unwrap_or(clock);
            let rows: Vec<Agent> = answer.json::<Option<_>>()?.unwrap_or_default();
            let ids: BTreeSet<u64> = rows.iter().map(Agent::number).collect();
            // The server decides how many rows a page has at most: the list ends where nothing
            // comes, or the last page again.
            if ids.is_empty() || ids == last {
                return Ok((all.end(true), clock));
            }
            all.page(rows.into_iter().map(|row| (row.number(), row)), None);
            last = ids;
        }
        let text = format!(
            "the server has more than {} agents, which is more than drover reads",
            all.len()
        );
        Err(DemandError::Setup(text))
    }

    /// The numbers of all rows that belong or belonged to a runner.
    async fn rows(&self, runner: &RunnerName) -> Result<BTreeSet<u64>, DemandError> {
        self.ids.numbers(self.agents().await?.0, runner)
    }

    async fn poll_all(&self, known: &Known) -> Result<SourceObservation, DemandError> {
        let (list, clock) = self.agents().await?;
        let read = |id| async move { self.http.get::<Agent>(&format!("api/agents/{id}")).await };
        let find = |name| async move { self.ids.by_number(&name, read).await };
        let PolledRunners { rows, gone, whole, numbers } = self.ids.seen(list, known, find).await?;
        let queue: Queue = self.http.get("api/queue/info").await?;
        let own = rows.iter().filter(|agent| RunnerName::parse(&agent.name).is_some());
        let own: Vec<&Agent> = own.collect();
        let now = clock.as_second();
        let busy = finished::at_work(&self.http, &own, queue.running(), now).await;
        let report = |agent: &&Agent| row_of(agent, queue.running(), clock, busy.as_ref());
        let rows = own.iter().map(report).collect();
        if self.paused.swap(queue.paused, Ordering::Relaxed) != queue.paused {
            let (url, paused) = (self.http.base(), queue.paused);
            tracing::warn!(%url, paused, "the queue of the server was paused or resumed");
        }
        let jobs = self.waiting(&queue.wanted());
        Ok(SourceObservation { rows, gone, whole, numbers, jobs, ..SourceObservation::default() })
    }

    fn waiting(&self, wanted: &[&Task]) -> Vec<JobObservation> {
        let now = WallTime(Timestamp::now().as_millisecond());
        let seen = self.seen.update(wanted.iter().map(|task| task.id.clone()), now);
        let observations = wanted.iter().map(|task| {
            let since = seen.get(&task.id).copied().unwrap_or(now);
            let (id, name, want) = (task.id.clone(), task.name.clone(), want(task.labels.as_ref()));
            let run = (task.pipeline_id > 0).then(|| task.pipeline_id.to_string());
            let origin = origin::known(JobOrigin { run, ..JobOrigin::default() });
            JobObservation { id, name, want, since, origin }
        });
        observations.collect()
    }

    /// The environment that `woodpecker-agent` reads. The agent runs one workflow at a time, and
    /// stays.
    ///
    /// `WOODPECKER_AGENT_SINGLE_WORKFLOW` would end the agent with its workflow and lose the end of
    /// the log: the agent sends lines once none came for a second (`processLogs` of
    /// `agent/rpc/client_grpc.go`, 3.0 to 3.17), and its process does not wait for that (`run` of
    /// `cmd/agent/core/agent.go`). drover cordons the agent while its workflow runs, and its
    /// machine ends a few seconds after that.
    fn bundle(&self, request: RegisterRequest<'_>, token: &SecretString) -> RunnerBundle {
        let labels = offered(request);
        let lines = [
            ("WOODPECKER_SERVER", self.settings.grpc.as_str()),
            ("WOODPECKER_GRPC_SECURE", if self.settings.secure { "true" } else { "false" }),
            ("WOODPECKER_AGENT_SECRET", token.expose_secret()),
            ("WOODPECKER_AGENT_LABELS", &labels),
            ("WOODPECKER_HOSTNAME", request.runner.as_str()),
            ("WOODPECKER_MAX_WORKFLOWS", "1"),
            ("WOODPECKER_BACKEND", "local"),
            ("WOODPECKER_HEALTHCHECK", "false"),
            ("WOODPECKER_AGENT_CONFIG_FILE", "agent.conf"),
        ];
        if request.target.os.is_windows() {
            let own = (self.command.as_deref(), "woodpecker-agent.exe");
            return windows::bundle(own, &lines, Vec::new(), vec![token.clone()]);
        }
        let lines = lines.map(|(name, value)| format!("{name}={}\n", quote(value)));
        let content = Bytes::from(lines.concat());
        let command = self.command.clone().unwrap_or_else(|| "exec woodpecker-agent".into());
        RunnerBundle {
            files: vec![RunnerFile { name: "agent.env", content }],
            programs: program_of(&command),
            command: format!("set -a; . ./agent.env; set +a; {command}"),
            may_detach: self.command.is_some(),
            secrets: vec![token.clone()],
        }
    }

    async fn run_checks(&self, found: &mut Vec<Finding>) -> Result<(), DemandError> {
        let user: User = self.http.get("api/user").await?;
        found.push(Finding::ok("token", "is accepted"));
        found.push(if user.admin {
            Finding::ok("making and removing agents", "its user is an administrator")
        } else {
            let text = "its user is not an administrator and cannot see the queue or the agents";
            let remedy =
                "name the user in the server's WOODPECKER_ADMIN, or use an administrator's token";
            Finding::fail("making and removing agents", text, remedy)
        });
        let row_of = self.poll_all(&Known::new()).await?;
        if self.paused.load(Ordering::Relaxed) {
            let remedy = "resume it in the server's administration, under Queue";
            found.push(Finding::warn("queue", "is paused: no workflow starts", remedy));
        }
        found.push(Finding::listed(&row_of));
        Ok(())
    }
}

/// The row of one of drover's agents. An agent that had its workflow must take no other. The
/// server's queue forgets which agents work when the server restarts, so a workflow is over only
/// where the database says so (`busy`, where that was read) or where the server's clock does.
fn row_of(
    agent: &Agent,
    running: &[Task],
    clock: Timestamp,
    busy: Option<&BTreeSet<i64>>,
) -> RowObservation {
    let tasks: Vec<&Task> = running.iter().filter(|task| task.agent_id == agent.id).collect();
    let finished = busy.is_some_and(|busy| !busy.contains(&agent.id));
    let idle = if agent.last_work <= 0 {
        Idle::Known
    } else if finished || !finished::is_recent(agent, clock.as_second()) {
        Idle::Over
    } else {
        Idle::Spent
    };
    RowObservation {
        runner: RunnerName::new(&agent.name),
        online: clock.as_second() - agent.last_contact < CONTACT_SECS,
        jobs: u32::try_from(tasks.len()).unwrap_or(u32::MAX),
        job: tasks.first().map(|task| task.id.clone()),
        idle,
        node: NodeObservation::default(),
    }
}

/// The labels that a workflow demands of its machine.
fn want(labels: Option<&BTreeMap<String, String>>) -> Want {
    let all = labels.into_iter().flatten();
    let reported = all.filter(|(key, value)| {
        !value.is_empty()
            && !key.starts_with(INTERNAL_LABEL_PREFIX)
            && !COMMON_LABELS.contains(&key.as_str())
    });
    Want::Labels(reported.map(|(key, value)| format!("{key}={value}")).collect())
}

/// The labels of an agent: those of its template and of its demand that have the form `key=value`.
/// An agent has one value for each key; the demand's value wins.
fn offered(request: RegisterRequest<'_>) -> String {
    let wanted = match request.want.plain() {
        Want::Labels(wanted) => Some(wanted),
        Want::Template(_) | Want::Expression(_) | Want::Sized(..) => None,
    };
    let mut labels: BTreeMap<&str, &str> = BTreeMap::new();
    for text in request.spec.labels.iter().chain(wanted.into_iter().flatten()) {
        if let Some((key, value)) = text.split_once('=')
            && !COMMON_LABELS.contains(&key)
            && !text.contains(',')
        {
            labels.insert(key, value);
        }
    }
    let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    labels.join(",")
}

impl Connector for Woodpecker {
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
        Box::pin(self.poll_all(known))
    }

    fn register<'a>(&'a self, request: RegisterRequest<'a>) -> ConnectorFuture<'a, RunnerBundle> {
        Box::pin(async move {
            // Removes a row that an earlier attempt made: its token is lost.
            self.deregister(request.runner).await?;
            let body = json!({ "name": request.runner.as_str(), "no_schedule": false });
            let made: Agent = self.http.post("api/agents", &body).await?;
            self.ids.learn(request.runner.as_str(), made.number());
            let token = made.token.ok_or_else(|| DemandError::Shape {
                call: "POST /api/agents".into(),
                what: "the answer has no token".into(),
            })?;
            Ok(self.bundle(request, &token))
        })
    }

    fn cordon<'a>(&'a self, runner: &'a RunnerName) -> ConnectorFuture<'a, ()> {
        Box::pin(async move {
            for id in self.rows(runner).await? {
                // The name is sent as well, because the server empties what is not sent.
                let body = json!({ "name": runner.as_str(), "no_schedule": true });
                let path = format!("api/agents/{id}");
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
            // The server refuses with 409 while it believes that a workflow is on the agent.
            for id in self.rows(runner).await? {
                self.http.delete(&format!("api/agents/{id}")).await?;
            }
            self.ids.forget(runner);
            Ok(())
        })
    }

    fn too_old<'a>(&'a self, words: &'a Words) -> BoxFuture<'a, Option<String>> {
        Box::pin(std::future::ready(versions::too_old(words)))
    }

    fn check<'a>(&'a self, found: &'a mut Vec<Finding>) -> ConnectorFuture<'a, ()> {
        Box::pin(self.run_checks(found))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use drover_model::os::Os;
    use drover_model::ports::ShellTarget;
    use drover_model::size::Size;

    use super::*;
    use crate::connector::tests::started_for;

    // Invariant: a workflow demands the labels of its author, and none that the server added.

    #[test]
    fn a_map_of_labels_becomes_texts_without_what_every_workflow_has() {
        let map: BTreeMap<String, String> = [
            ("repo", "o/r"),
            ("org-id", "7"),
            ("woodpecker-ci.org/repo-full-name", "o/r"),
            ("platform", "linux/amd64"),
            ("backend", ""),
            ("gpu", "true"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        let texts = ["gpu=true", "platform=linux/amd64"].map(str::to_owned);
        assert_eq!(want(Some(&map)), Want::Labels(texts.into()));
        assert_eq!(want(None), Want::Labels([].into()));
    }

    // Invariant: a workflow says the size of its machine by a label, and its agent has that label.

    #[test]
    fn a_workflow_names_a_size_by_a_label_that_its_agent_offers() {
        let map = [("cpu", "8"), ("platform", "linux/amd64")];
        let want = want(Some(&map.map(|(key, value)| (key.to_owned(), value.to_owned())).into()));
        let Want::Labels(labels) = &want else { panic!("{want:?}") };
        assert!(labels.contains("cpu=8"), "{labels:?}");
        let mut spec = started_for(&Want::Labels(["linux", "cpu=8"].map(str::to_owned).into()));
        spec.labels = ["platform=linux/amd64".to_owned()].into();
        let met = spec.size_labels.met(&spec.labels, &want, (|_: &str| false, false));
        assert_eq!(met, [Ok(Size { cores: Some(8), ..Size::NONE })]);
        let target = ShellTarget {
            address: "10.0.0.9".parse().unwrap(),
            ssh: spec.ssh.clone(),
            os: Os::Linux,
            host_keys: Vec::new(),
        };
        let runner = RunnerName::new("drover-a-b");
        let request =
            RegisterRequest { runner: &runner, spec: &spec, want: &want, target: &target };
        assert_eq!(offered(request), "cpu=8,platform=linux/amd64");
    }

    // Invariant: an agent with a workflow is busy. That an agent which had its workflow has none is
    // a guess until the database or the server's clock says so.

    #[test]
    fn an_agent_is_judged_by_its_contact_its_work_and_the_queue() {
        let name = "drover-a1b2c3d4-0123456789abcdef";
        let clock = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(1_000_000);
        let agent = |last_contact, last_work| Agent {
            id: 5,
            name: name.into(),
            token: None,
            last_contact,
            last_work,
        };
        let task: Task = serde_json::from_value(json!({ "id": "9", "agent_id": 5 })).unwrap();
        let seen = |agent: &Agent, tasks: &[Task]| {
            let row = row_of(agent, tasks, clock, None);
            (row.online, row.jobs, row.job, row.idle)
        };
        assert_eq!(seen(&agent(0, 0), &[]), (false, 0, None, Idle::Known));
        assert_eq!(seen(&agent(999_950, 0), &[]), (true, 0, None, Idle::Known));
        assert_eq!(seen(&agent(999_900, 0), &[]), (false, 0, None, Idle::Known));
        assert_eq!(seen(&agent(999_990, 999_990), &[]), (true, 0, None, Idle::Spent));
        assert_eq!(seen(&agent(990_000, 990_000), &[]), (false, 0, None, Idle::Over));
        let reported = |busy: &[i64]| {
            let busy: BTreeSet<i64> = busy.iter().copied().collect();
            row_of(&agent(999_990, 999_990), &[], clock, Some(&busy)).idle
        };
        assert_eq!((reported(&[5, 6]), reported(&[6])), (Idle::Spent, Idle::Over));
        let (_, jobs, job, _) = seen(&agent(999_990, 999_990), &[task]);
        assert_eq!((jobs, job), (1, Some("9".to_owned())));
    }
}
