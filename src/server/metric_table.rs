//! The metric table: every metric of `/metrics`, said once.
//!
//! What is served, the table of the book, the dashboard and the names in the alerts come from these
//! rows. A name and its labels are a contract with dashboards that others wrote: a row may be added, and
//! what it is called and labelled stays.
//!
//! The label sets are fixed. A label has either a closed list of words, all of which have a series from
//! the start, or the names of what is configured.

mod herd;
mod proxmox;
mod service;
mod waits;

use drover_model::phase::{AgentPhase, BreakerPhase, DeclaredPhase};

pub(crate) use herd::*;
pub(crate) use proxmox::*;
pub(crate) use service::*;
pub(crate) use waits::*;

/// What a metric counts with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    /// A gauge that is 1 and says something with its labels.
    Info,
    /// The upper bounds of its buckets, in the metric's unit.
    Histogram(&'static [f64]),
}

/// What a value is measured in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Things that are counted, or a yes or no.
    None,
    Seconds,
}

/// The values that a label can have.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(test), expect(dead_code, reason = "tests compare the samples and the book with it"))]
pub(crate) enum Values {
    /// A closed list.
    Fixed(fn() -> Vec<&'static str>),
    /// The names of what is configured or found, in words for people.
    Named(&'static str),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Label {
    pub(crate) name: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "tests compare the samples with it"))]
    pub(crate) values: Values,
}

/// When a metric has no samples at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Only {
    /// It has samples wherever its labels have names.
    Always,
    /// It has samples where this is so, in words for people.
    Where(&'static str),
}

/// The row of the dashboard that shows a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Herd,
    Waits,
    Proxmox,
    Breakers,
    Service,
    Members,
}

impl Section {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 6] =
        [Self::Herd, Self::Waits, Self::Proxmox, Self::Breakers, Self::Service, Self::Members];
}

/// How the dashboard shows a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chart {
    /// Lines over time.
    Lines,
    /// Bars while a state holds.
    States,
    /// Lines in the panel of the metric of this name.
    Beside(&'static str),
}

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) unit: Unit,
    pub(crate) help: &'static str,
    pub(crate) labels: &'static [Label],
    pub(crate) only: Only,
    #[cfg_attr(not(test), expect(dead_code, reason = "the dashboard is made by a test"))]
    pub(crate) section: Section,
    /// What stands above its panel.
    #[cfg_attr(not(test), expect(dead_code, reason = "the dashboard is made by a test"))]
    pub(crate) title: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "the dashboard is made by a test"))]
    pub(crate) chart: Chart,
    /// What an operator does with it, with the command that helps.
    #[cfg_attr(not(test), expect(dead_code, reason = "the book's table is made by a test"))]
    pub(crate) act: &'static str,
}

impl Metric {
    const fn new(name: &'static str, kind: Kind, section: Section, help: &'static str) -> Self {
        let (labels, only, unit) = (&[] as &[Label], Only::Always, Unit::None);
        let (title, chart, act) = ("", Chart::Lines, "");
        Self { name, kind, unit, help, labels, only, section, title, chart, act }
    }

    const fn by(self, labels: &'static [Label]) -> Self {
        Self { labels, ..self }
    }

    const fn seconds(self) -> Self {
        Self { unit: Unit::Seconds, ..self }
    }

    const fn only(self, only: &'static str) -> Self {
        Self { only: Only::Where(only), ..self }
    }

    const fn titled(self, title: &'static str) -> Self {
        Self { title, ..self }
    }

    const fn states(self) -> Self {
        Self { chart: Chart::States, ..self }
    }

    const fn beside(self, name: &'static str) -> Self {
        Self { chart: Chart::Beside(name), ..self }
    }

    const fn act(self, act: &'static str) -> Self {
        Self { act, ..self }
    }

    /// The upper bounds of its buckets; empty where it is no histogram.
    pub(crate) fn buckets(&self) -> &'static [f64] {
        match self.kind {
            Kind::Histogram(buckets) => buckets,
            Kind::Counter | Kind::Gauge | Kind::Info => &[],
        }
    }
}

const fn fixed(name: &'static str, values: fn() -> Vec<&'static str>) -> Label {
    Label { name, values: Values::Fixed(values) }
}

const fn named(name: &'static str, values: &'static str) -> Label {
    Label { name, values: Values::Named(values) }
}

/// The value of `phase` for the whole way from the start of an agent until it is ready.
pub(crate) const WHOLE_WAY: &str = "all";
/// The value of `state` for agents in a phase that no other series has.
pub(crate) const OTHER: &str = "other";
/// Who waits: the holder of a lease of the API, or a job of a source.
pub(crate) const WAITERS: [&str; 2] = ["lease", "job"];
/// What a lease or job got: an agent that was ready when it asked, or one that it waited for.
pub(crate) const SERVED_BY: [&str; 2] = ["ready", "awaited"];
/// How a reconciliation ended: without findings, with some, or without an answer of the cluster.
pub(crate) const RECONCILED: [&str; 3] = ["clean", "findings", "unread"];
/// The tasks that wait for the limits of nodes and storages after their call was made.
pub(crate) const LIMITED: [&str; 2] = ["start", "destroy"];
/// What a breaker protects.
pub(crate) const PROTECTED: [&str; 4] = ["template", "node", "storage", "cloud"];
/// The roles of members.
pub(crate) const ROLES: [&str; 4] = ["leader", "standby", "unfit", "silent"];
/// What becomes of spans of traces, in the order of [`SpanOutcome`](crate::view::SpanOutcome).
pub(crate) const SPAN_OUTCOMES: [&str; 3] = ["sent", "refused", "dropped"];
/// The states of addresses of a pool.
pub(crate) const ADDRESSES: [&str; 3] = ["used", "resting", "free"];
/// The states of jobs of a source.
pub(crate) const JOBS: [&str; 4] = ["waiting", "running", "unserved", "ignored"];
/// Why agents go: the words of [`Reason::label`](drover_model::record::Reason::label).
pub(crate) const REASONS: [&str; 22] = [
    "idle",
    "used-up",
    "old",
    "outdated",
    "asked",
    "hold-over",
    "reaped",
    "unconfigured",
    "stopping",
    "lease-expired",
    "powered-off",
    "vanished",
    "orphaned",
    "returned-from-park",
    "node-drained",
    "made-room",
    "window-closed",
    "trial-over",
    "altered",
    "cancelled",
    "too-slow",
    "failed",
];

/// The phases that an agent passes before it is ready.
pub(crate) const BEFORE_READY: [AgentPhase; 7] = [
    AgentPhase::Queued,
    AgentPhase::Cloning,
    AgentPhase::InDoubt,
    AgentPhase::Configuring,
    AgentPhase::Booting,
    AgentPhase::Connecting,
    AgentPhase::Preparing,
];

fn before_ready() -> Vec<&'static str> {
    BEFORE_READY.into_iter().map(AgentPhase::name).chain([WHOLE_WAY]).collect()
}

fn agent_phases() -> Vec<&'static str> {
    let live = AgentPhase::ALL.into_iter().filter(|phase| *phase != AgentPhase::Gone);
    live.map(AgentPhase::name).chain([OTHER]).collect()
}

fn machine_phases() -> Vec<&'static str> {
    let there = DeclaredPhase::ALL.into_iter().filter(|phase| *phase != DeclaredPhase::Removed);
    there.map(DeclaredPhase::name).collect()
}

const TEMPLATE: Label = named("template", "`CLOUD/TEMPLATE`");
const CLOUD: Label = named("cloud", "a cloud");
const CLUSTER: Label = named("cluster", "a cluster");
const SOURCE: Label = named("source", "a source of demand");
const BREAKER_STATE: Label = fixed("state", || BreakerPhase::ALL.map(BreakerPhase::name).to_vec());
const WAITER: Label = fixed("kind", || WAITERS.to_vec());
/// A place of calls is one of these two, and the other label is absent.
const CALL_PLACES: &[Label] = &[
    CLOUD,
    named("endpoint", "an endpoint, where it is one"),
    named("node", "a node, where it is one"),
];

/// Every metric, in the order of the page.
pub(crate) const ALL: [&Metric; 51] = [
    &LEADS,
    &LEADER_TERM,
    &MEMBERS,
    &AGENTS,
    &AGENTS_IDLE,
    &TEMPLATE_MINIMUM,
    &TEMPLATE_IDLE_MINIMUM,
    &AGENTS_SIZED,
    &VERSIONS_GIVEN_UP,
    &AGENTS_OUTDATED,
    &TEMPLATE_CAP,
    &CLOUD_AGENTS,
    &CLOUD_CAP,
    &AGENTS_GONE,
    &MACHINES,
    &MACHINE_DRIFT,
    &ADDRESSES_OF_POOLS,
    &AGENT_READY_SECONDS,
    &LEASE_WAIT_SECONDS,
    &LEASES_SERVED,
    &LEASES,
    &OLDEST_WAIT,
    &SOURCE_JOBS,
    &SOURCE_SILENT,
    &SOURCE_OLDEST_JOB,
    &JOBS_LOST,
    &CLOUD_HEALTH,
    &PVE_REQUESTS,
    &LIMIT_WAIT_SECONDS,
    &API_CALLS,
    &API_CALLS_WAITING,
    &API_CALLS_LIMIT,
    &RECONCILIATIONS,
    &RECONCILE_FINDINGS,
    &RECONCILED_AT,
    &BREAKER,
    &PLACE_BREAKER,
    &BREAKER_OPENINGS,
    &ALARMS,
    &TERMINALS,
    &ACTOR_RESTARTS,
    &ACTORS_GIVEN_UP,
    &CONFIG_GENERATION,
    &CONFIG_APPLIED,
    &CONFIG_REFUSED,
    &CONFIG_SYNC_FAILED,
    &JOURNAL_APPEND_SECONDS,
    &JOURNAL_WRITABLE,
    &SPANS,
    &READY,
    &BUILD_INFO,
];
