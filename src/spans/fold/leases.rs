//! Leases on agents: what they waited for, how long they used it, and the job that they were for.
//!
//! ```text
//! asked ──── wait ────▶ granted ── hand-over ──▶ ready ───────── use ─────────▶ ended
//! └───────────────────────────────── lease ──────────────────────────────────────┘
//! ```
//!
//! A lease that no agent ever served is in no trace. One that lost its agent before it was ready waits again:
//! it is in the trace of that agent, as failed, and in the trace of the next one.

use drover_model::id::{AgentId, LeaseId};
use drover_model::noted::{JobSeen, JobsSeen};
use drover_model::phase::LeasePhase;
use drover_model::ports::JobObservation;
use drover_model::record::{EXPIRED, LOST, without_output};
use drover_model::status::{LeaseEnd, LeaseStatus};
use drover_model::strip::stripped;
use drover_model::time::WallTime;

use super::{Fold, OPEN_MAX};
use crate::Value;
use crate::conventions as named;
use crate::span::{Span, SpanId, cut};

/// How a lease ended on an agent that it lost before it was ready.
const LOST_EARLY: &str = "lost: its agent was lost before it was ready";
/// Jobs of one lease that are kept.
const JOBS_MAX: usize = 16;

/// Since when the holder of a lease can use its agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ready {
    /// Nothing of its hand-over was seen.
    No,
    /// Not yet, and its hand-over was seen.
    Coming,
    Since(WallTime),
    /// Since before it was first seen.
    Earlier,
}

/// A lease that goes on.
pub(super) struct OpenLease {
    asked: WallTime,
    /// The agent that it is on, since when, and since when it is ready for use.
    on: Option<AgentId>,
    granted: Option<WallTime>,
    ready: Ready,
    source: Option<String>,
    wants: String,
    /// Its jobs, by id, in the order in which they were seen, and the runner that has them.
    jobs: Vec<(String, Option<JobObservation>)>,
    runner: Option<String>,
}

impl Fold {
    pub(super) fn lease(&mut self, at: WallTime, status: &LeaseStatus) {
        if !self.leases.contains_key(&status.lease) {
            // One that is over is over: the journal shows those again that ended before this start.
            if status.state == LeasePhase::Ended || self.leases.len() >= OPEN_MAX {
                return;
            }
            let open = OpenLease {
                asked: status.asked.unwrap_or(at).min(at),
                on: None,
                granted: None,
                ready: Ready::No,
                source: status.source().map(str::to_owned),
                wants: cut(&status.wants),
                jobs: Vec::new(),
                runner: None,
            };
            self.leases.insert(status.lease.clone(), open);
        }
        match status.state {
            LeasePhase::Waiting => self.waits(at, status),
            LeasePhase::Granted | LeasePhase::Ready => self.granted(at, status),
            LeasePhase::Ended => {
                if let Some(open) = self.leases.remove(&status.lease) {
                    self.out.extend(open.spans(&status.lease, at, &status.detail));
                }
            }
        }
    }

    /// It waits, perhaps again.
    fn waits(&mut self, at: WallTime, status: &LeaseStatus) {
        let Some(open) = self.leases.get_mut(&status.lease) else { return };
        if open.on.is_some() {
            self.out.extend(open.spans(&status.lease, at, LOST_EARLY));
            (open.on, open.granted, open.ready) = (None, None, Ready::No);
            (open.jobs, open.runner) = (Vec::new(), None);
        }
    }

    fn granted(&mut self, at: WallTime, status: &LeaseStatus) {
        let Some(agent) = &status.agent else { return };
        let Some(open) = self.leases.get_mut(&status.lease) else { return };
        if open.on.as_ref() != Some(agent) {
            open.on = Some(agent.clone());
            (open.granted, open.ready) = (None, Ready::No);
        }
        let granted = status.granted.unwrap_or(at).min(at).max(open.asked);
        let is_said = status.granted.is_some();
        let since = open.granted.filter(|_| !is_said).unwrap_or(granted);
        open.granted = Some(since);
        open.ready = match (open.ready, status.state == LeasePhase::Ready) {
            (Ready::No, false) => Ready::Coming,
            (Ready::No, true) => Ready::Earlier,
            (Ready::Coming, true) => Ready::Since(at.max(since)),
            (ready @ (Ready::Coming | Ready::Since(_) | Ready::Earlier), _) => ready,
        };
    }

    /// Which jobs run on which leases.
    pub(super) fn jobs_seen(&mut self, seen: &JobsSeen) {
        for JobSeen { id, waited, agent: _, lease, runner } in &seen.running {
            let Some(open) = self.leases.get_mut(lease) else { continue };
            open.runner.get_or_insert_with(|| runner.to_string());
            if let Some((_, known)) = open.jobs.iter_mut().find(|(known, _)| known == id) {
                *known = known.take().or_else(|| waited.clone());
            } else if open.jobs.len() < JOBS_MAX {
                open.jobs.push((cut(id), waited.clone()));
            }
        }
    }
}

/// How a lease ended: a word for statistics where that is a failure, and a job's result where drover knows it.
fn outcome(detail: &str) -> (Option<&'static str>, Option<&'static str>) {
    match LeaseEnd::of(detail) {
        LeaseEnd::Lost => (Some(LOST), Some(named::ERROR)),
        LeaseEnd::Expired => (Some(EXPIRED), Some(named::TIMEOUT)),
        LeaseEnd::Cancelled => (None, Some(named::CANCELLATION)),
        LeaseEnd::NotServed => (Some("not-served"), Some(named::ERROR)),
        LeaseEnd::Done | LeaseEnd::Waited | LeaseEnd::Idle => (None, None),
    }
}

impl OpenLease {
    /// Its spans, where an agent has it.
    fn spans(&self, lease: &LeaseId, ended: WallTime, detail: &str) -> Vec<Span> {
        let Some(agent) = &self.on else { return Vec::new() };
        let id = |part: &str| SpanId::of(agent, &["lease", lease.as_str(), part]);
        let root = SpanId::root(agent);
        let mut whole = Span::new((agent, id("whole"), Some(root)), "lease", (self.asked, ended));
        whole.set(named::LEASE, lease.as_str());
        whole.set_if(named::WANTS, Some(&self.wants));
        whole.set_if(named::SOURCE, self.source.as_deref());
        whole.set_if(named::WORKER_NAME, self.runner.as_deref());
        whole.set_if(named::LEASE_END, detail.split(':').next());
        let (failed, result) = outcome(detail);
        if self.source.is_some() {
            whole.set_if(named::TASK_RUN_RESULT, result);
        }
        self.job(&mut whole);
        if let Some(kind) = failed {
            whole.fail(kind, &stripped(without_output(detail)));
        }
        let granted = self.granted.unwrap_or(ended);
        let (handed, used) = match self.ready {
            Ready::No => (None, None),
            Ready::Coming => (Some((granted, ended)), None),
            Ready::Since(ready) => (Some((granted, ready)), Some((ready, ended))),
            // How long its hand-over took, nobody saw.
            Ready::Earlier => (None, Some((granted, ended))),
        };
        let parts = [("wait", Some((self.asked, granted))), ("hand-over", handed), ("use", used)];
        let parts = parts.into_iter().filter_map(|(name, span)| {
            Some(Span::new((agent, id(name), Some(id("whole"))), name, span?))
        });
        let parts: Vec<Span> = parts.collect();
        std::iter::once(whole).chain(parts).collect()
    }

    /// The job that it was for: the last one that its source showed.
    fn job(&self, span: &mut Span) {
        let Some((id, waited)) = self.jobs.last() else { return };
        span.set(named::TASK_RUN_ID, id.as_str());
        if self.jobs.len() > 1 {
            let ids = self.jobs.iter().map(|(id, _)| id.clone());
            span.attributes.push((named::JOBS, Value::Texts(ids.collect())));
        }
        // Jenkins names a running build by its address.
        let is_address = id.starts_with("http://") || id.starts_with("https://");
        let address = id.split('#').next().filter(|_| is_address);
        let url = waited.as_ref().and_then(|job| job.origin.as_ref()?.url.as_deref());
        span.set_if(named::TASK_RUN_URL, url.or(address));
        let Some(job) = waited else { return };
        span.set_if(named::TASK_NAME, Some(&job.name));
        let Some(origin) = &job.origin else { return };
        span.set_if(named::PIPELINE_NAME, origin.pipeline.as_deref());
        span.set_if(named::PIPELINE_RUN_ID, origin.run.as_deref());
        span.set_if(named::PIPELINE_RUN_URL, origin.run_url.as_deref());
        span.set_if(named::REPOSITORY_URL, origin.repository.as_deref());
        let name = origin.repository.as_deref().and_then(|url| url.rsplit('/').next());
        span.set_if(named::REPOSITORY_NAME, name);
        span.set_if(named::HEAD_NAME, origin.branch.as_deref());
        span.set_if(named::HEAD_REVISION, origin.revision.as_deref());
    }
}
