//! Jobs that wait or run in repositories: runs first, then the jobs of each run, because GitHub has
//! no list of jobs beyond one run. Each list is requested with the ETag of its last answer.
//!
//! Not every poll reads every repository. A repository is read at once where a webhook named it or
//! where a job waits in it. The others are read in the full polls, the longest unread first, as far
//! as the rate limit allows; what is left is read in the next full poll.
//!
//! A repository that the login may not read is logged and skipped. Where no repository can be read,
//! the poll fails with the last refusal.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use drover_model::id::RunnerName;
use drover_model::ports::JobObservation;
use drover_model::record::Want;
use drover_model::time::WallTime;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use super::super::error::DemandError;
use super::super::origin::ForgeJob;
use super::api::{Api, Page};
use super::rate_limit::Purpose;
use super::settings::repository;

/// The label that marks a job for runners other than GitHub's own.
pub(super) const SELF_HOSTED: &str = "self-hosted";
/// How long the list of an organisation's repositories stays valid.
const LIST_VALIDITY: Duration = Duration::from_secs(600);
/// The most repositories that webhooks may name between two polls; more mean all repositories.
const HINTS_MAX: usize = 256;

#[derive(Serialize, Deserialize)]
struct Runs {
    #[serde(default)]
    total_count: Option<usize>,
    workflow_runs: Vec<Run>,
}

#[derive(Serialize, Deserialize)]
struct Run {
    id: u64,
}

#[derive(Serialize, Deserialize)]
struct Jobs {
    #[serde(default)]
    total_count: Option<usize>,
    jobs: Vec<Job>,
}

/// A job of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Job {
    id: u64,
    #[serde(default)]
    name: String,
    status: String,
    #[serde(default)]
    labels: Vec<String>,
    #[serde(default)]
    created_at: Option<String>,
    #[serde(default)]
    runner_name: Option<String>,
    #[serde(default)]
    conclusion: Option<String>,
    #[serde(flatten)]
    origin: ForgeJob,
}

#[derive(Serialize, Deserialize)]
struct Repository {
    #[serde(default)]
    id: Option<u64>,
    full_name: String,
    #[serde(default)]
    archived: bool,
    #[serde(default)]
    disabled: bool,
}

#[derive(Serialize, Deserialize)]
struct Installed {
    #[serde(default)]
    total_count: Option<usize>,
    repositories: Vec<Repository>,
}

impl Page for Runs {
    type Row = Run;

    fn rows(self) -> (Option<usize>, Vec<Run>) {
        (self.total_count, self.workflow_runs)
    }

    fn id(run: &Run) -> u64 {
        run.id
    }
}

impl Page for Jobs {
    type Row = Job;

    fn rows(self) -> (Option<usize>, Vec<Job>) {
        (self.total_count, self.jobs)
    }

    fn id(job: &Job) -> u64 {
        job.id
    }
}

impl Page for Installed {
    type Row = Repository;

    fn rows(self) -> (Option<usize>, Vec<Repository>) {
        (self.total_count, self.repositories)
    }

    fn id(repository: &Repository) -> u64 {
        repository.number()
    }
}

impl Page for Vec<Repository> {
    type Row = Repository;

    fn rows(self) -> (Option<usize>, Self) {
        (None, self)
    }

    fn id(repository: &Repository) -> u64 {
        repository.number()
    }
}

impl Repository {
    /// The number that identifies the repository, or a hash of its name where it has none.
    fn number(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.full_name.hash(&mut hasher);
        self.id.unwrap_or_else(|| hasher.finish())
    }
}

/// What the last poll saw of one repository.
#[derive(Debug, Default)]
struct RepositoryJobs {
    /// Jobs that wait or run.
    jobs: Vec<Job>,
    read: Option<Instant>,
}

impl RepositoryJobs {
    fn waits(&self) -> bool {
        self.jobs.iter().any(|job| job.status == "queued")
    }
}

/// The repositories that webhooks named since the last poll.
#[derive(Debug, Default)]
struct Hints {
    named: BTreeSet<String>,
    all: bool,
}

#[derive(Default)]
struct ReaderState {
    repositories: BTreeMap<String, RepositoryJobs>,
    listed: Option<Instant>,
    /// When all repositories were read last.
    full: Option<Instant>,
    hints: Hints,
    behind: usize,
}

/// The repositories that a poll reads.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    /// Read whatever it costs.
    now: Vec<String>,
    /// Read as far as the rate limit allows, those read longest ago first.
    rest: Vec<String>,
}

/// Reads the jobs of all repositories.
pub(super) struct Reader {
    /// The configured repositories; none to list those of the organisation.
    configured: Option<Vec<String>>,
    /// The path of the list of repositories.
    list: String,
    poll: Duration,
    state: Mutex<ReaderState>,
}

/// A job that runs.
pub(super) struct Running {
    pub id: u64,
    /// The path of the job itself.
    pub path: String,
}

/// The jobs that a poll found.
pub(super) struct FoundJobs {
    /// Jobs that wait, before those for other runners are dropped.
    pub waiting: Vec<Job>,
    /// The running job of each runner, in repositories that were read in this poll.
    pub running: BTreeMap<String, Running>,
}

impl Reader {
    /// Makes a reader; calls nothing yet.
    pub(super) fn new(configured: Option<Vec<String>>, list: String, poll: Duration) -> Self {
        Self { configured, list, poll, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, ReaderState> {
        self.state.lock()
    }

    /// Notes that a webhook named this repository, or none: the next poll reads it again.
    pub(super) fn hint(&self, name: Option<&str>) {
        let mut state = self.state();
        let is = |state: &String| name.is_some_and(|name| name.eq_ignore_ascii_case(state));
        if self.configured.is_none() && !state.repositories.keys().any(is) {
            // The repository may be new.
            state.listed = None;
        }
        let hints = &mut state.hints;
        match name {
            Some(name) if hints.named.len() < HINTS_MAX => {
                hints.named.insert(name.to_lowercase());
            }
            Some(_) | None => hints.all = true,
        }
    }

    /// Reads the repositories that may have changed.
    pub(super) async fn read(&self, api: &Api) -> Result<FoundJobs, DemandError> {
        self.list(api).await?;
        let hints = std::mem::take(&mut self.state().hints);
        let (plan, full) = {
            let state = self.state();
            let all =
                hints.all || state.full.is_none_or(|full| full.elapsed() * 10 >= self.poll * 9);
            (plan(&state.repositories, &hints.named, all), all)
        };
        let outcome = self.carry_out(api, &plan, full).await;
        if outcome.is_err() {
            let kept = &mut self.state().hints;
            kept.named.extend(hints.named);
            kept.all |= hints.all;
        }
        outcome
    }

    async fn carry_out(
        &self,
        api: &Api,
        plan: &Plan,
        full: bool,
    ) -> Result<FoundJobs, DemandError> {
        let (mut fresh, mut refused, mut behind) = (BTreeSet::new(), None, 0);
        for (name, may_wait) in
            plan.now.iter().map(|name| (name, false)).chain(plan.rest.iter().map(|n| (n, true)))
        {
            if may_wait && !api.affords() {
                behind += 1;
                continue;
            }
            match jobs(api, name).await {
                Ok(jobs) => {
                    let seen = RepositoryJobs { jobs, read: Some(Instant::now()) };
                    self.state().repositories.insert(name.clone(), seen);
                    fresh.insert(name.clone());
                }
                // A repository that was removed or closed to the login does not stop the others.
                Err(
                    error @ (DemandError::Status { status: 403 | 404 | 451, .. }
                    | DemandError::Moved { .. }),
                ) => {
                    tracing::warn!(repository = %name, %error, "cannot read a repository; it is skipped");
                    let seen = RepositoryJobs { jobs: Vec::new(), read: Some(Instant::now()) };
                    self.state().repositories.insert(name.clone(), seen);
                    refused = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        if let (true, Some(error)) = (fresh.is_empty(), refused) {
            return Err(error);
        }
        let mut state = self.state();
        if full {
            state.full = Some(Instant::now());
            if behind > 0 && state.behind == 0 {
                tracing::warn!(
                    repositories = behind,
                    "the rate limit is too low to read all repositories; they take turns"
                );
            }
            state.behind = behind;
        }
        Ok(state.found(&fresh))
    }

    /// Updates the list of repositories.
    async fn list(&self, api: &Api) -> Result<(), DemandError> {
        let mut whole = true;
        let names: BTreeSet<String> = match &self.configured {
            Some(names) => names.iter().cloned().collect(),
            None => {
                if self.state().listed.is_some_and(|listed| listed.elapsed() < LIST_VALIDITY) {
                    return Ok(());
                }
                let all = if api.is_app() {
                    api.pages::<Installed>(Purpose::Poll, &self.list).await?
                } else {
                    api.pages::<Vec<Repository>>(Purpose::Poll, &self.list).await?
                };
                whole = all.whole;
                let used = all.rows.into_iter().filter(|one| !one.archived && !one.disabled);
                used.map(|one| one.full_name).collect()
            }
        };
        let mut state = self.state();
        state.listed = Some(Instant::now());
        // A repository may exist although an incomplete list does not show it.
        state.repositories.retain(|name, _| !whole || names.contains(name));
        for name in names {
            state.repositories.entry(name).or_default();
        }
        Ok(())
    }
}

impl ReaderState {
    fn found(&self, fresh: &BTreeSet<String>) -> FoundJobs {
        let all = self.repositories.values().flat_map(|seen| &seen.jobs);
        let waiting = all.filter(|job| job.status == "queued").cloned().collect();
        let read = self.repositories.iter().filter(|(name, _)| fresh.contains(*name));
        let jobs = read.flat_map(|(name, seen)| seen.jobs.iter().map(move |job| (name, job)));
        let running = jobs.filter_map(|(name, job)| {
            let runner = job.runner_name.clone().filter(|_| job.status == "in_progress")?;
            let path = format!("{}/actions/jobs/{}", repository(name), job.id);
            Some((runner, Running { id: job.id, path }))
        });
        FoundJobs { waiting, running: running.collect() }
    }
}

/// Repositories with waiting jobs are read in every poll, so that a started job is not counted
/// again.
fn plan(
    repositories: &BTreeMap<String, RepositoryJobs>,
    hinted: &BTreeSet<String>,
    full: bool,
) -> Plan {
    let urgent = |(name, seen): &(&String, &RepositoryJobs)| {
        seen.waits() || hinted.contains(&name.to_lowercase())
    };
    let (now, rest): (Vec<_>, Vec<_>) = repositories.iter().partition(urgent);
    let mut rest = if full { rest } else { Vec::new() };
    rest.sort_by_key(|(_, seen)| seen.read);
    let names = |all: Vec<(&String, &RepositoryJobs)>| {
        all.into_iter().map(|(name, _)| name.clone()).collect()
    };
    Plan { now: names(now), rest: names(rest) }
}

/// The jobs of a repository that wait or run.
async fn jobs(api: &Api, name: &str) -> Result<Vec<Job>, DemandError> {
    let repository = repository(name);
    let mut runs = BTreeSet::new();
    // Later jobs of a run that is in progress may wait, too.
    for status in ["queued", "in_progress"] {
        let path = format!("{repository}/actions/runs?status={status}");
        let found = api.pages::<Runs>(Purpose::Poll, &path).await?.rows;
        runs.extend(found.into_iter().map(|run| run.id));
    }
    let mut all = Vec::new();
    for run in runs {
        let path = format!("{repository}/actions/runs/{run}/jobs?filter=latest");
        let found = api.pages::<Jobs>(Purpose::Poll, &path).await?.rows;
        all.extend(
            found.into_iter().filter(|job| matches!(job.status.as_str(), "queued" | "in_progress")),
        );
    }
    Ok(all)
}

/// The labels that a job demands of a template; none where the job is not for self-hosted runners.
///
/// `self-hosted` says that it is, and is no label of a template. GitHub ignores the case of labels:
/// they are spelled as the source's settings spell them.
pub(super) fn want(
    labels: &[String],
    allowed: Option<&BTreeSet<String>>,
) -> Option<BTreeSet<String>> {
    let said = labels.iter().any(|label| label.eq_ignore_ascii_case(SELF_HOSTED));
    let spelled = |label: &String| {
        let own = allowed.into_iter().flatten().find(|own| own.eq_ignore_ascii_case(label));
        own.unwrap_or(label).clone()
    };
    let wanted: BTreeSet<String> = labels
        .iter()
        .filter(|label| !label.eq_ignore_ascii_case(SELF_HOSTED))
        .map(spelled)
        .collect();
    let meant = || !wanted.is_empty() && allowed.is_some_and(|allowed| wanted.is_subset(allowed));
    (said || meant()).then_some(wanted)
}

impl Job {
    /// How the job ended, in one word, where it ran on this runner; none where it may still run.
    pub(super) fn ended(&self, runner: &RunnerName) -> Option<&'static str> {
        let other = self.runner_name.as_ref().filter(|name| *name != runner.as_str());
        let is_over = self.status == "completed" && other.is_none();
        let is_cancelled = self.conclusion.as_deref() == Some("cancelled");
        is_over.then_some(if is_cancelled { "cancelled" } else { "done" })
    }

    /// The job as the actors see it; none where it is not for self-hosted runners.
    pub(super) fn observation(self, allowed: Option<&BTreeSet<String>>) -> Option<JobObservation> {
        let want = want(&self.labels, allowed)?;
        let since = self.created_at.and_then(|text| text.parse::<jiff::Timestamp>().ok());
        Some(JobObservation {
            id: self.id.to_string(),
            name: self.name,
            want: Want::Labels(want),
            since: WallTime(since.unwrap_or_else(jiff::Timestamp::now).as_millisecond()),
            origin: self.origin.origin(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::tests::{offered_for, started_for};

    fn job(status: &str) -> Job {
        Job {
            id: 1,
            name: String::new(),
            status: status.to_owned(),
            labels: Vec::new(),
            created_at: None,
            runner_name: None,
            conclusion: None,
            origin: ForgeJob::default(),
        }
    }

    fn set(labels: &[&str]) -> BTreeSet<String> {
        labels.iter().map(|label| (*label).to_owned()).collect()
    }

    // Invariant: only jobs for self-hosted runners start any.

    #[test]
    fn a_job_wants_what_it_says_beside_self_hosted() {
        let wanted = |labels: &[&str], allowed: Option<&[&str]>| {
            let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
            want(&labels, allowed.map(set).as_ref())
        };
        assert_eq!(wanted(&["self-hosted", "linux"], None), Some(set(&["linux"])));
        assert_eq!(wanted(&["Self-Hosted"], None), Some(set(&[])));
        assert_eq!(wanted(&["ubuntu-latest"], None), None, "GitHub's own");
        assert_eq!(wanted(&["ubuntu-latest"], Some(&["linux"])), None);
        assert_eq!(
            wanted(&["Linux", "x64"], Some(&["linux", "x64"])),
            Some(set(&["linux", "x64"]))
        );
        assert_eq!(wanted(&[], Some(&["linux"])), None);
        let other = wanted(&["self-hosted", "gpu"], Some(&["linux"]));
        assert_eq!(other, Some(set(&["gpu"])), "reported, to be counted as not offered");
    }

    // Invariant: a job says the size of its machine by a label, and its runner has that label.

    #[test]
    fn a_job_names_a_size_by_a_label_that_its_runner_offers() {
        let labels = ["self-hosted", "linux", "cpu=8"].map(str::to_owned).into();
        let want = Job { labels, ..job("queued") }.observation(None).map(|job| job.want);
        assert_eq!(want, Some(Want::Labels(set(&["linux", "cpu=8"]))));
        assert_eq!(want.as_ref().map(started_for).and_then(|spec| spec.cores), Some(8));
        assert_eq!(
            want.as_ref().map(offered_for),
            Some(["cpu=8", "linux"].map(str::to_owned).into())
        );
    }

    // Invariant: whether a job is over is read from what GitHub says of that very job.

    #[test]
    fn a_job_is_over_when_github_says_so_of_the_runner_that_had_it() {
        let name = RunnerName::new("drover-7k2m9qxw-4f8z1c3px9t2vkab-1");
        let said = |status: &str, conclusion: Option<&str>, runner: Option<&str>| {
            let (conclusion, runner_name) =
                (conclusion.map(str::to_owned), runner.map(str::to_owned));
            Job { conclusion, runner_name, ..job(status) }.ended(&name)
        };
        let own = Some(name.as_str());
        assert_eq!(said("completed", Some("cancelled"), own), Some("cancelled"));
        assert_eq!(said("completed", Some("failure"), None), Some("done"));
        assert_eq!(said("in_progress", None, own), None);
        assert_eq!(said("queued", None, None), None);
        assert_eq!(said("completed", Some("cancelled"), Some("theirs")), None);
    }

    // Invariant: a poll reads at once what webhooks named and what waits, and the rest in turns.

    #[test]
    fn a_look_reads_what_hooks_named_and_what_waits_and_at_times_the_rest() {
        let start = Instant::now();
        let seen = |status: Option<&str>, age: u64| RepositoryJobs {
            jobs: status.map(job).into_iter().collect(),
            read: Some(start + Duration::from_secs(9 - age)),
        };
        let all: BTreeMap<String, RepositoryJobs> = [
            ("o/idle", seen(None, 1)),
            ("o/Named", seen(None, 0)),
            ("o/old", seen(Some("in_progress"), 5)),
            ("o/waits", seen(Some("queued"), 0)),
        ]
        .map(|(name, seen)| (name.to_owned(), seen))
        .into();
        let hinted = set(&["o/named"]);
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let now = names(&["o/Named", "o/waits"]);
        assert_eq!(plan(&all, &hinted, false), Plan { now: now.clone(), rest: Vec::new() });
        let rest = names(&["o/old", "o/idle"]);
        assert_eq!(plan(&all, &hinted, true), Plan { now, rest });
    }

    #[test]
    fn a_repository_that_no_list_had_has_the_list_read_again() {
        let reader = Reader::new(None, String::new(), Duration::from_secs(60));
        let listed = |name| {
            let mut state = reader.state();
            state.listed = Some(Instant::now());
            state.repositories.insert("o/Known".into(), RepositoryJobs::default());
            drop(state);
            reader.hint(Some(name));
            reader.state().listed.is_some()
        };
        assert!(listed("O/known"));
        assert!(!listed("o/new"));
    }

    #[test]
    fn more_repositories_than_a_look_can_be_reported_of_mean_all() {
        let reader = Reader::new(None, String::new(), Duration::from_secs(60));
        (0..HINTS_MAX).for_each(|n| reader.hint(Some(&format!("o/{n}"))));
        assert!(!reader.state().hints.all);
        reader.hint(Some("o/more"));
        assert!(reader.state().hints.all);
    }
}
