//! Leases, jobs and how long they wait.

use drover_model::phase::LeasePhase;

use super::Kind::{Counter, Gauge, Histogram};
use super::Section::Waits;
use super::{JOBS, Metric, SERVED_BY, SOURCE, WAITER, before_ready, fixed};

const READY_SECONDS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0];
const WAIT_SECONDS: &[f64] =
    &[1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14_400.0];

pub(crate) const AGENT_READY_SECONDS: Metric = Metric::new(
    "drover_agent_ready_seconds",
    Histogram(READY_SECONDS),
    Waits,
    "Time that agents spent in each phase until they were ready, and on the whole way.",
)
.seconds()
.by(&[fixed("phase", before_ready)])
.titled("Time to ready by phase")
.act(
    "The phase that grew is where to look; `Queued` is the wait for the limits of storages and nodes.",
);

pub(crate) const LEASE_WAIT_SECONDS: Metric = Metric::new(
    "drover_lease_wait_seconds",
    Histogram(WAIT_SECONDS),
    Waits,
    "Time from the request of a lease, or of a runner for a job, until it could be used.",
)
.seconds()
.by(&[WAITER])
.titled("Wait of leases and jobs")
.act("`drover why` says what those wait for that wait now.");

pub(crate) const LEASES_SERVED: Metric = Metric::new(
    "drover_leases_served_total",
    Counter,
    Waits,
    "Leases that could be used, by whether their agent was ready when they asked.",
)
.by(&[WAITER, fixed("agent", || SERVED_BY.to_vec())])
.titled("Leases served in an hour, by the warm pool or not")
.act("The share of `ready` is the hit ratio of the warm pool.");

pub(crate) const LEASES: Metric = Metric::new(
    "drover_leases",
    Gauge,
    Waits,
    "Leases by state; ended ones as far as they are kept.",
)
.by(&[fixed("state", || LeasePhase::ALL.map(LeasePhase::name).to_vec())])
.titled("Leases by state")
.act("`drover leases` lists them.");

pub(crate) const OLDEST_WAIT: Metric = Metric::new(
    "drover_lease_waiting_since_timestamp_seconds",
    Gauge,
    Waits,
    "Unix time at which the oldest lease asked that waits; 0 while none waits.",
)
.seconds()
.by(&[WAITER])
.titled("Age of the oldest wait")
.act("`drover why leases` says which limit keeps it.");

pub(crate) const SOURCE_JOBS: Metric =
    Metric::new("drover_source_jobs", Gauge, Waits, "Jobs of a source of demand by what they do.")
        .by(&[SOURCE, fixed("state", || JOBS.to_vec())])
        .titled("Jobs of sources")
        .act("`drover jobs` says what `unserved` jobs are short of; `ignored` counts jobs that `drover jobs` lists as `unread`, too.");

pub(crate) const SOURCE_SILENT: Metric = Metric::new(
    "drover_source_silent",
    Gauge,
    Waits,
    "1 for a source of demand that cannot be polled.",
)
.by(&[SOURCE])
.titled("Sources that cannot be polled")
.states()
.act("`drover sources` has the error and since when.");

pub(crate) const SOURCE_OLDEST_JOB: Metric = Metric::new(
    "drover_source_waiting_since_timestamp_seconds",
    Gauge,
    Waits,
    "Unix time since which the oldest job of a source waits; 0 while none waits.",
)
.seconds()
.by(&[SOURCE])
.titled("Age of the oldest job that waits")
.act("`drover jobs` says what it waits for.");

pub(crate) const JOBS_LOST: Metric = Metric::new(
    "drover_jobs_lost_total",
    Counter,
    Waits,
    "Jobs that were lost with their machines.",
)
.titled("Jobs lost in an hour")
.act("`drover status` names the last ones. Nobody runs a lost job again unasked.");
