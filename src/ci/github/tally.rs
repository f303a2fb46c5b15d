//! Counts the jobs of a scale set that wait for a runner, by the messages of the set and by what
//! the rows of runners show.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use drover_model::ports::{JobObservation, JobOrigin};
use drover_model::record::Want;
use drover_model::time::WallTime;
use jiff::Timestamp;
use serde::Deserialize;

use super::super::origin::{self, loose};
use super::jobs::want;

/// How long a job counts that a row shows and no message reports.
const UNREPORTED_JOB_LIMIT: Duration = Duration::from_secs(60);
/// The most ends of jobs that are stored until a poll takes them.
const ENDED_JOBS_MAX: usize = 1000;

/// The jobs of a set, as its service counts them.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Counts {
    total_assigned_jobs: u32,
    total_running_jobs: u32,
}

/// A message of the service.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Message {
    message_id: i64,
    #[serde(default)]
    body: String,
    #[serde(default)]
    statistics: Option<Counts>,
}

/// One event in a message.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JobEvent {
    message_type: String,
    #[serde(default)]
    runner_request_id: i64,
    #[serde(default)]
    runner_name: String,
    #[serde(default)]
    result: Option<String>,
    #[serde(flatten)]
    job: Assigned,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Assigned {
    job_display_name: String,
    request_labels: Vec<String>,
    queue_time: Option<String>,
    #[serde(deserialize_with = "loose")]
    workflow_run_id: Option<u64>,
}

/// What is known of a set's jobs.
#[derive(Default)]
pub(super) struct Tally {
    counts: Counts,
    /// Assigned jobs without a runner, by their numbers.
    waiting: BTreeMap<i64, Assigned>,
    /// Since when the service counts more jobs than were described.
    undescribed_since: Option<Timestamp>,
    /// Runners whose job was not reported as started, and since when their rows show a job.
    made: BTreeMap<String, Option<Instant>>,
    /// How the jobs of runners ended, each in one word, until a poll takes it.
    ended: BTreeMap<String, &'static str>,
}

impl Message {
    /// The number that acknowledges the message.
    pub(super) fn id(&self) -> i64 {
        self.message_id
    }
}

impl Tally {
    /// Starts from the counts of a new session.
    pub(super) fn of(counts: Counts) -> Self {
        Self { counts, ..Self::default() }
    }

    /// Notes newer counts.
    pub(super) fn count(&mut self, counts: Counts) {
        self.counts = counts;
    }

    /// Runners whose job was not reported as started.
    pub(super) fn made(&self) -> impl Iterator<Item = &String> {
        self.made.keys()
    }

    /// Takes the ends of jobs that were reported since the last call.
    pub(super) fn ended(&mut self) -> BTreeMap<String, &'static str> {
        std::mem::take(&mut self.ended)
    }

    /// Notes that a runner was made.
    pub(super) fn add_runner(&mut self, runner: &str) {
        self.made.insert(runner.to_owned(), None);
    }

    /// Notes that a runner was removed, so that its missing row means nothing. A runner whose row
    /// showed a job before still counts until that job is reported.
    pub(super) fn remove_runner(&mut self, runner: &str) {
        if self.made.get(runner).is_some_and(Option::is_none) {
            self.made.remove(runner);
        }
    }

    /// The number of jobs that rows show or showed, and that were not reported as started.
    pub(super) fn taken(
        &mut self,
        made: &BTreeSet<String>,
        rows: &BTreeMap<String, bool>,
        now: Instant,
    ) -> u32 {
        let mut taken = 0;
        self.made.retain(|name, since| {
            match rows.get(name) {
                None if !made.contains(name) => return true,
                Some(false) => *since = None,
                // A runner whose row is gone had its job.
                Some(true) | None => {
                    let since = *since.get_or_insert(now);
                    if now - since >= UNREPORTED_JOB_LIMIT {
                        return false;
                    }
                    taken += 1;
                }
            }
            true
        });
        taken
    }

    /// The jobs that wait, without the number of jobs that are `taken`.
    pub(super) fn jobs(&mut self, labels: &[String], taken: u32) -> Vec<JobObservation> {
        let Counts { total_assigned_jobs, total_running_jobs } = self.counts;
        let started = total_running_jobs.saturating_add(taken);
        let count = total_assigned_jobs.saturating_sub(started) as usize;
        let observation =
            |id: String, name: &str, labels: &[String], since: Timestamp, run: Option<u64>| {
                JobObservation {
                    id,
                    name: name.to_owned(),
                    // All jobs of the set are for drover's runners.
                    want: Want::Labels(
                        want(labels, Some(&labels.iter().cloned().collect())).unwrap_or_default(),
                    ),
                    since: WallTime(since.as_millisecond()),
                    origin: origin::known(JobOrigin {
                        run: run.map(|run| run.to_string()),
                        ..JobOrigin::default()
                    }),
                }
            };
        let mut jobs: Vec<JobObservation> = self
            .waiting
            .iter()
            .map(|(id, job)| {
                let since = job.queue_time.as_deref().and_then(|text| text.parse().ok());
                let own = if job.request_labels.is_empty() { labels } else { &job.request_labels };
                let since = since.unwrap_or_else(Timestamp::now);
                observation(id.to_string(), &job.job_display_name, own, since, job.workflow_run_id)
            })
            .collect();
        jobs.sort_by_key(|job| job.since);
        // The oldest jobs get runners first.
        jobs.drain(..jobs.len().saturating_sub(count));
        let missing = count - jobs.len();
        if missing == 0 {
            self.undescribed_since = None;
        } else {
            let since = *self.undescribed_since.get_or_insert_with(Timestamp::now);
            jobs.extend(
                (0..missing).map(|n| observation(format!("assigned-{n}"), "", labels, since, None)),
            );
        }
        jobs
    }

    /// Applies a message; returns the jobs to acquire.
    pub(super) fn apply(&mut self, message: &Message) -> Vec<i64> {
        if let Some(counts) = message.statistics {
            self.counts = counts;
        }
        let events: Vec<JobEvent> = serde_json::from_str(&message.body).unwrap_or_default();
        let mut available = Vec::new();
        for JobEvent { message_type, runner_request_id, runner_name, result, job } in events {
            match message_type.as_str() {
                "JobAvailable" => available.push(runner_request_id),
                "JobAssigned" => drop(self.waiting.insert(runner_request_id, job)),
                "JobStarted" | "JobCompleted" => {
                    self.waiting.remove(&runner_request_id);
                    self.made.remove(&runner_name);
                    if message_type == "JobCompleted" && self.ended.len() < ENDED_JOBS_MAX {
                        let cancelled = result.as_deref() == Some("canceled");
                        let how = if cancelled { "cancelled" } else { "done" };
                        self.ended.insert(runner_name, how);
                    }
                }
                _ => {}
            }
        }
        available
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(assigned: u32, running: u32, body: &str) -> Message {
        let statistics =
            Some(Counts { total_assigned_jobs: assigned, total_running_jobs: running });
        Message { message_id: 1, body: body.to_owned(), statistics }
    }

    fn wants(known: &mut Tally, busy: u32) -> Vec<String> {
        let jobs = known.jobs(&["set".to_owned()], busy).into_iter();
        jobs.map(|job| match job.want {
            Want::Labels(labels) => labels.into_iter().collect::<Vec<_>>().join(" "),
            Want::Template(_) | Want::Expression(_) | Want::Sized(..) => "other".to_owned(),
        })
        .collect()
    }

    // Invariant: a job counts for its runner from when a row shows it until a message reports it.

    #[test]
    fn a_runner_that_is_removed_after_its_job_still_counts_for_it_until_that_is_reported() {
        let (start, made) = (Instant::now(), BTreeSet::from(["r".to_owned()]));
        let rows = |busy: &[bool]| busy.iter().map(|busy| ("r".to_owned(), *busy)).collect();
        let mut known = Tally::default();
        known.apply(&message(1, 0, ""));
        known.add_runner("r");
        assert_eq!(known.taken(&made, &rows(&[true]), start), 1);
        known.remove_runner("r");
        assert_eq!(known.taken(&made, &rows(&[]), start), 1);
        known.apply(&message(0, 0, r#"[{"messageType":"JobCompleted","runnerName":"r"}]"#));
        assert_eq!(known.taken(&made, &rows(&[]), start), 0);
        known.add_runner("r");
        assert_eq!(known.taken(&made, &rows(&[false]), start), 0);
        known.remove_runner("r");
        assert_eq!(known.taken(&made, &rows(&[]), start), 0, "it never had one");
    }

    // Invariant: the end of a runner's job is returned once, with how the job ended.

    #[test]
    fn a_job_that_is_reported_to_be_over_is_over_for_its_runner_once() {
        let mut known = Tally::default();
        let body = r#"[{"messageType":"JobStarted","runnerName":"a"},
            {"messageType":"JobCompleted","runnerName":"a","result":"canceled"},
            {"messageType":"JobCompleted","runnerName":"b","result":"succeeded"}]"#;
        known.apply(&message(0, 0, body));
        let ended = [("a", "cancelled"), ("b", "done")].map(|(name, how)| (name.to_owned(), how));
        assert_eq!(known.ended(), ended.into());
        assert_eq!(known.ended(), BTreeMap::new());
    }

    // Invariant: as many jobs wait as are assigned and do not run, whatever describes each.

    #[test]
    fn jobs_are_counted_by_the_statistics_and_described_by_what_was_reported_of_them() {
        let mut known = Tally::default();
        assert_eq!(known.apply(&message(2, 0, "")), Vec::<i64>::new());
        assert_eq!(wants(&mut known, 0), ["set", "set"]);
        let body = r#"[{"messageType":"JobAssigned","runnerRequestId":7,
            "requestLabels":["self-hosted","gpu"],"queueTime":"2026-01-01T00:00:00Z"},
            {"messageType":"JobAvailable","runnerRequestId":8}]"#;
        for _ in 0..2 {
            assert_eq!(known.apply(&message(2, 0, body)), [8], "twice is as once");
            assert_eq!(wants(&mut known, 0), ["gpu", "set"]);
        }
        assert_eq!(wants(&mut known, 1), ["gpu"], "one is seen to run before the message");
        let body = r#"[{"messageType":"JobStarted","runnerRequestId":7}]"#;
        known.apply(&message(2, 1, body));
        assert_eq!(wants(&mut known, 0), ["set"]);
        let body = r#"[{"messageType":"JobStarted","runnerRequestId":7,"runnerName":"r"}]"#;
        let (start, made) = (Instant::now(), BTreeSet::from(["r".to_owned()]));
        let rows = |busy: &[bool]| busy.iter().map(|busy| ("r".to_owned(), *busy)).collect();
        known.made.insert("r".into(), None);
        assert_eq!(known.taken(&BTreeSet::new(), &rows(&[]), start), 0, "made after the rows");
        assert_eq!(known.taken(&made, &rows(&[false]), start), 0);
        assert_eq!(known.taken(&made, &rows(&[true]), start), 1);
        assert_eq!(known.taken(&made, &rows(&[]), start), 1, "it had its job");
        known.apply(&message(2, 1, body));
        assert_eq!(known.taken(&made, &rows(&[]), start), 0, "it is reported now");
        known.made.insert("r".into(), None);
        assert_eq!(known.taken(&made, &rows(&[]), start), 1);
        assert_eq!(
            known.taken(&made, &rows(&[]), start + UNREPORTED_JOB_LIMIT),
            0,
            "somebody removed it"
        );
        known.apply(&message(0, 0, "no JSON"));
        assert_eq!(wants(&mut known, 0), Vec::<String>::new());
    }
}
