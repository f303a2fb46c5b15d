//! The metric table: every metric of `/metrics`, said once.
//!
//! What is served, the table of the book, the dashboard and the names in the alerts come from these
//! rows. A name and its labels are a contract with dashboards that others wrote: a row may be added, and
//! what it is called and labelled stays.
//!
//! The label sets are fixed. A label has either a closed list of words, all of which have a series from
//! the start, or the names of what is configured.

use drover_model::phase::{
    AgentPhase, BreakerPhase, CloudHealth, DeclaredPhase, DriftKind, LeasePhase,
};
use proxmox_client::call_route::{CallOutcome, ROUTES};

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
    /// What an operator does with it, with the command that helps.
    #[cfg_attr(not(test), expect(dead_code, reason = "the book's table is made by a test"))]
    pub(crate) act: &'static str,
}

impl Metric {
    const fn new(name: &'static str, kind: Kind, section: Section, help: &'static str) -> Self {
        let (labels, only, act) = (&[] as &[Label], Only::Always, "");
        Self { name, kind, unit: Unit::None, help, labels, only, section, act }
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

const READY_SECONDS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0];
const WAIT_SECONDS: &[f64] =
    &[1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14_400.0];
const CALL_SECONDS: &[f64] = &[0.05, 0.25, 1.0, 5.0, 15.0, 30.0, 60.0];
const APPEND_SECONDS: &[f64] = &[0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0];

use Kind::{Counter, Gauge, Histogram, Info};
use Section::{Breakers, Herd, Members, Proxmox, Service, Waits};

const WITH_MEMBERS: &str = "several drovers share a store";

pub(crate) const LEADS: Metric = Metric::new(
    "drover_leads",
    Gauge,
    Members,
    "Whether this member leads; one of all members does.",
)
.only(WITH_MEMBERS)
.act("Where no member has 1, `drover members` says why nobody leads.");

pub(crate) const LEADER_TERM: Metric = Metric::new(
    "drover_leader_term",
    Gauge,
    Members,
    "Number of the leader's term; it rises with each change of leader.",
)
.only(WITH_MEMBERS)
.act("A term that rises often means that the members do not reach their store in time.");

pub(crate) const MEMBERS: Metric = Metric::new(
    "drover_members",
    Gauge,
    Members,
    "Members of the store by role, as this one knows them.",
)
.by(&[fixed("role", || ROLES.to_vec())])
.only(WITH_MEMBERS)
.act("A member that is `silent` or `unfit` cannot take over: `drover members` says why.");

pub(crate) const AGENTS: Metric =
    Metric::new("drover_agents", Gauge, Herd, "Live agents by template and phase.")
        .by(&[TEMPLATE, fixed("state", agent_phases)])
        .act("`drover agents` lists them, and `drover why AGENT` says what one waits for.");

pub(crate) const AGENTS_IDLE: Metric = Metric::new(
    "drover_agents_idle",
    Gauge,
    Herd,
    "Agents of a template that are ready and serve nobody.",
)
.by(&[TEMPLATE])
.act("Compare it with `drover_template_idle_minimum`, the target of the warm pool.");

pub(crate) const TEMPLATE_MINIMUM: Metric = Metric::new(
    "drover_template_minimum",
    Gauge,
    Herd,
    "Agents that a template keeps at this moment, in use or not.",
)
.by(&[TEMPLATE])
.act("It follows the `schedule` of the template.");

pub(crate) const TEMPLATE_IDLE_MINIMUM: Metric = Metric::new(
    "drover_template_idle_minimum",
    Gauge,
    Herd,
    "Idle agents that a template keeps at this moment: the target of its warm pool.",
)
.by(&[TEMPLATE])
.act("Raise it where `drover_leases_served_total` shows many that waited.");

pub(crate) const AGENTS_SIZED: Metric = Metric::new(
    "drover_agents_sized",
    Gauge,
    Herd,
    "Live agents of a size that a job or lease asked for, by template.",
)
.by(&[TEMPLATE])
.act("Such agents serve only those who ask for their size: [sizes by job](configuration.md#sizes-by-job).");

pub(crate) const VERSIONS_GIVEN_UP: Metric = Metric::new(
    "drover_versions_given_up",
    Gauge,
    Herd,
    "Versions of a template that are not used, since agents of them failed.",
)
.by(&[TEMPLATE])
.only("a template has `canary`")
.act("`drover why TEMPLATE` shows the last failure: [canaries](configuration.md#canaries).");

pub(crate) const AGENTS_OUTDATED: Metric = Metric::new(
    "drover_agents_outdated",
    Gauge,
    Herd,
    "Agents that a roll-out replaces: their template makes others by now.",
)
.by(&[TEMPLATE])
.act("It falls to 0 as the [roll-out](git.md#roll-out) goes on.");

pub(crate) const TEMPLATE_CAP: Metric =
    Metric::new("drover_template_cap", Gauge, Herd, "The most agents of a template.")
        .by(&[TEMPLATE])
        .only("a template has an `instanceCap`")
        .act("Where the agents reach it and jobs wait, raise `instanceCap`.");

pub(crate) const CLOUD_AGENTS: Metric = Metric::new(
    "drover_cloud_agents",
    Gauge,
    Herd,
    "Agents that count against the cap of their cloud: the permits in use.",
)
.by(&[CLOUD])
.act("Compare it with `drover_cloud_cap`.");

pub(crate) const CLOUD_CAP: Metric =
    Metric::new("drover_cloud_cap", Gauge, Herd, "The most agents of a cloud: its permits.")
        .by(&[CLOUD])
        .only("a cloud has an `instanceCap`")
        .act("Where the agents reach it and jobs wait, raise `instanceCap` of the cloud.");

pub(crate) const AGENTS_GONE: Metric =
    Metric::new("drover_agents_gone_total", Counter, Herd, "Agents that went, by reason.")
        .by(&[fixed("reason", || REASONS.to_vec())])
        .act("`drover agents --gone` has the last ones with their failures.");

pub(crate) const MACHINES: Metric =
    Metric::new("drover_machines", Gauge, Herd, "Declared machines by state.")
        .by(&[fixed("state", machine_phases)])
        .act("`drover machines` lists them: [states](machines.md#states-of-a-machine).");

pub(crate) const MACHINE_DRIFT: Metric = Metric::new(
    "drover_machine_drift",
    Gauge,
    Herd,
    "Differences between a machine and its declaration, by kind.",
)
.by(&[
    named("machine", "a declared machine"),
    fixed("kind", || DriftKind::ALL.map(DriftKind::name).to_vec()),
])
.act("`drover machines` shows the differences.");

pub(crate) const ADDRESSES_OF_POOLS: Metric =
    Metric::new("drover_addresses", Gauge, Herd, "Addresses of a pool by what they are.")
        .by(&[named("pool", "a pool of addresses"), fixed("state", || ADDRESSES.to_vec())])
        .act("Without a `free` one no agent of the pool starts: `drover address-pools`.");

pub(crate) const AGENT_READY_SECONDS: Metric = Metric::new(
    "drover_agent_ready_seconds",
    Histogram(READY_SECONDS),
    Waits,
    "Time that agents spent in each phase until they were ready, and on the whole way.",
)
.seconds()
.by(&[fixed("phase", before_ready)])
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
.act("`drover why` says what those wait for that wait now.");

pub(crate) const LEASES_SERVED: Metric = Metric::new(
    "drover_leases_served_total",
    Counter,
    Waits,
    "Leases that could be used, by whether their agent was ready when they asked.",
)
.by(&[WAITER, fixed("agent", || SERVED_BY.to_vec())])
.act("The share of `ready` is the hit ratio of the warm pool.");

pub(crate) const LEASES: Metric = Metric::new(
    "drover_leases",
    Gauge,
    Waits,
    "Leases by state; ended ones as far as they are kept.",
)
.by(&[fixed("state", || LeasePhase::ALL.map(LeasePhase::name).to_vec())])
.act("`drover leases` lists them.");

pub(crate) const OLDEST_WAIT: Metric = Metric::new(
    "drover_lease_waiting_since_timestamp_seconds",
    Gauge,
    Waits,
    "Unix time at which the oldest lease asked that waits; 0 while none waits.",
)
.seconds()
.by(&[WAITER])
.act("`drover why leases` says which limit keeps it.");

pub(crate) const SOURCE_JOBS: Metric =
    Metric::new("drover_source_jobs", Gauge, Waits, "Jobs of a source of demand by what they do.")
        .by(&[SOURCE, fixed("state", || JOBS.to_vec())])
        .act("`drover jobs` says what `unserved` jobs are short of; `ignored` counts jobs that `drover jobs` lists as `unread`, too.");

pub(crate) const SOURCE_SILENT: Metric = Metric::new(
    "drover_source_silent",
    Gauge,
    Waits,
    "1 for a source of demand that cannot be polled.",
)
.by(&[SOURCE])
.act("`drover sources` has the error and since when.");

pub(crate) const SOURCE_OLDEST_JOB: Metric = Metric::new(
    "drover_source_waiting_since_timestamp_seconds",
    Gauge,
    Waits,
    "Unix time since which the oldest job of a source waits; 0 while none waits.",
)
.seconds()
.by(&[SOURCE])
.act("`drover jobs` says what it waits for.");

pub(crate) const JOBS_LOST: Metric = Metric::new(
    "drover_jobs_lost_total",
    Counter,
    Waits,
    "Jobs that were lost with their machines.",
)
.act("`drover status` names the last ones. Nobody runs a lost job again unasked.");

pub(crate) const CLOUD_HEALTH: Metric =
    Metric::new("drover_cloud_health", Gauge, Proxmox, "1 for the health a cloud is in.")
        .by(&[CLOUD, fixed("health", || CloudHealth::ALL.map(CloudHealth::name).to_vec())])
        .act("`drover clouds` has the error; `drover doctor` looks for the cause.");

pub(crate) const PVE_REQUESTS: Metric = Metric::new(
    "drover_pve_request_duration_seconds",
    Histogram(CALL_SECONDS),
    Proxmox,
    "Duration of calls to Proxmox VE by route and outcome, without the wait for their turn.",
)
.seconds()
.by(&[
    fixed("route", || ROUTES.iter().map(|route| route.name).collect()),
    fixed("outcome", || CallOutcome::ALL.map(CallOutcome::name).to_vec()),
])
.act("Slow or failed calls of one route show which part of Proxmox VE is overloaded.");

pub(crate) const LIMIT_WAIT_SECONDS: Metric = Metric::new(
    "drover_limit_wait_seconds",
    Histogram(CALL_SECONDS),
    Proxmox,
    "Time that starts and destroys of guests waited for the limits of their node and storages.",
)
.seconds()
.by(&[fixed("task", || LIMITED.to_vec())])
.act("Long waits mean that storage locks or nodes are contended; clones wait in the phase `Queued` of `drover_agent_ready_seconds`.");

pub(crate) const API_CALLS: Metric =
    Metric::new("drover_api_calls", Gauge, Proxmox, "Calls to Proxmox VE under way.")
        .by(CALL_PLACES)
        .act("At the limit, drover uses all that the place gives.");

pub(crate) const API_CALLS_WAITING: Metric = Metric::new(
    "drover_api_calls_waiting",
    Gauge,
    Proxmox,
    "Calls to Proxmox VE that wait for their turn.",
)
.by(CALL_PLACES)
.act(
    "Above zero for minutes, Proxmox VE answers slowly, or another program keeps its workers busy.",
);

pub(crate) const API_CALLS_LIMIT: Metric = Metric::new(
    "drover_api_calls_limit",
    Gauge,
    Proxmox,
    "Calls to Proxmox VE that may run at once at the moment.",
)
.by(CALL_PLACES)
.act("drover lowers it by itself where calls get slower.");

pub(crate) const RECONCILIATIONS: Metric = Metric::new(
    "drover_reconciliations_total",
    Counter,
    Proxmox,
    "Reconciliations of clusters by result.",
)
.by(&[fixed("result", || RECONCILED.to_vec())])
.act("`unread` means that a cluster could not be read: `drover clouds`.");

pub(crate) const RECONCILE_FINDINGS: Metric = Metric::new(
    "drover_reconcile_findings",
    Gauge,
    Proxmox,
    "Findings of the last reconciliation of a cluster.",
)
.by(&[CLUSTER])
.act("`drover status` shows them.");

pub(crate) const RECONCILED_AT: Metric = Metric::new(
    "drover_reconciled_timestamp_seconds",
    Gauge,
    Proxmox,
    "Unix time of the last reconciliation of a cluster that could be read; 0 before the first.",
)
.seconds()
.by(&[CLUSTER])
.act("`drover resync` starts one at once.");

pub(crate) const BREAKER: Metric =
    Metric::new("drover_breaker", Gauge, Breakers, "1 for the state a template's breaker is in.")
        .by(&[TEMPLATE, BREAKER_STATE])
        .act("`drover breakers` has the cause; `drover breakers reset TEMPLATE` closes it.");

pub(crate) const PLACE_BREAKER: Metric = Metric::new(
    "drover_place_breaker",
    Gauge,
    Breakers,
    "1 for the state of a breaker of a node, storage or cloud that was ever charged.",
)
.by(&[
    named("place", "such as `node:CLUSTER/pve1`, `storage:CLUSTER/nfs`, `cloud:primary`"),
    BREAKER_STATE,
])
.act("`drover breakers` has the cause; `drover breakers reset PLACE` closes it.");

pub(crate) const BREAKER_OPENINGS: Metric = Metric::new(
    "drover_breaker_openings_total",
    Counter,
    Breakers,
    "Times that a breaker opened, by what it protects.",
)
.by(&[fixed("protects", || PROTECTED.to_vec())])
.act("A breaker that opens again and again has a cause that did not go away.");

pub(crate) const ALARMS: Metric = Metric::new(
    "drover_alarms",
    Gauge,
    Service,
    "What needs an administrator: the lines of `drover alarms`.",
)
.act("`drover alarms` has a command for each.");

pub(crate) const ACTOR_RESTARTS: Metric =
    Metric::new("drover_actor_restarts_total", Counter, Service, "Actors that panicked.")
        .act("A panic is a fault of drover: report it with the log lines around it.");

pub(crate) const ACTORS_GIVEN_UP: Metric = Metric::new(
    "drover_actors_given_up_total",
    Counter,
    Service,
    "Actors that panicked too often and were not started again.",
)
.act("`drover status` names the actor; a restart of the service starts it again.");

pub(crate) const CONFIG_GENERATION: Metric =
    Metric::new("drover_config_generation", Gauge, Service, "The configuration in force.")
        .act("It rises with each configuration that comes into force.");

pub(crate) const CONFIG_APPLIED: Metric = Metric::new(
    "drover_config_applied_timestamp_seconds",
    Gauge,
    Service,
    "Unix time at which the configuration in force came into force; 0 before the first.",
)
.seconds()
.act("It is the time of the last good reload.");

pub(crate) const CONFIG_REFUSED: Metric = Metric::new(
    "drover_config_refused",
    Gauge,
    Service,
    "Whether a newer configuration was refused; a member that stands by says it of its own files.",
)
.act("`drover check` shows the faults with their places.");

pub(crate) const CONFIG_SYNC_FAILED: Metric = Metric::new(
    "drover_config_sync_failed",
    Gauge,
    Service,
    "Whether the last sync with git failed or was refused.",
)
.act("`drover sync` shows why: [git](git.md).");

pub(crate) const JOURNAL_APPEND_SECONDS: Metric = Metric::new(
    "drover_journal_append_seconds",
    Histogram(APPEND_SECONDS),
    Service,
    "Duration of writes to the journal, each of one group of records.",
)
.seconds()
.act("Nothing starts before its record is written: a slow disk or store delays every agent.");

pub(crate) const JOURNAL_WRITABLE: Metric =
    Metric::new("drover_journal_writable", Gauge, Service, "Whether the journal can be written.")
        .act("While it is 0 nothing new starts: `drover alarms` has the reason.");

pub(crate) const READY: Metric =
    Metric::new("drover_ready", Gauge, Service, "Whether the service is ready for work.")
        .act("`curl …/readyz` and `drover status` say what is missing.");

pub(crate) const BUILD_INFO: Metric =
    Metric::new("drover_build_info", Info, Service, "The version of drover that runs.")
        .by(&[named("version", "the version of the program")])
        .act("Compare it between members.");

/// Every metric, in the order of the page.
pub(crate) const ALL: [&Metric; 49] = [
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
    &ACTOR_RESTARTS,
    &ACTORS_GIVEN_UP,
    &CONFIG_GENERATION,
    &CONFIG_APPLIED,
    &CONFIG_REFUSED,
    &CONFIG_SYNC_FAILED,
    &JOURNAL_APPEND_SECONDS,
    &JOURNAL_WRITABLE,
    &READY,
    &BUILD_INFO,
];
