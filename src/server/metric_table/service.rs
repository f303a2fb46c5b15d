//! The service itself, and the members of a store.

use super::Kind::{Counter, Gauge, Histogram, Info};
use super::Section::{Members, Service};
use super::{Metric, ROLES, SPAN_OUTCOMES, fixed, named};

const APPEND_SECONDS: &[f64] = &[0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0];
const WITH_MEMBERS: &str = "several drovers share a store";

pub(crate) const LEADS: Metric = Metric::new(
    "drover_leads",
    Gauge,
    Members,
    "Whether this member leads; one of all members does.",
)
.only(WITH_MEMBERS)
.titled("Who leads")
.states()
.act("Where no member has 1, `drover members` says why nobody leads.");

pub(crate) const LEADER_TERM: Metric = Metric::new(
    "drover_leader_term",
    Gauge,
    Members,
    "Number of the leader's term; it rises with each change of leader.",
)
.only(WITH_MEMBERS)
.titled("Leader's term")
.act("A term that rises often means that the members do not reach their store in time.");

pub(crate) const MEMBERS: Metric = Metric::new(
    "drover_members",
    Gauge,
    Members,
    "Members of the store by role, as this one knows them.",
)
.by(&[fixed("role", || ROLES.to_vec())])
.only(WITH_MEMBERS)
.titled("Members by role")
.act("A member that is `silent` or `unfit` cannot take over: `drover members` says why.");

pub(crate) const ALARMS: Metric = Metric::new(
    "drover_alarms",
    Gauge,
    Service,
    "What needs an administrator: the lines of `drover alarms`.",
)
.titled("Alarms")
.act("`drover alarms` has a command for each.");

pub(crate) const TERMINALS: Metric =
    Metric::new("drover_terminals", Gauge, Service, "Terminals that people have open in agents.")
        .titled("Open terminals")
        .act("`GET /v1/terminals` says whose they are; the audit log has who opened one.");

pub(crate) const ACTOR_RESTARTS: Metric =
    Metric::new("drover_actor_restarts_total", Counter, Service, "Actors that panicked.")
        .titled("Actors that panicked in an hour")
        .act("A panic is a fault of drover: report it with the log lines around it.");

pub(crate) const ACTORS_GIVEN_UP: Metric = Metric::new(
    "drover_actors_given_up_total",
    Counter,
    Service,
    "Actors that panicked too often and were not started again.",
)
.titled("given up")
.beside("drover_actor_restarts_total")
.act("`drover status` names the actor; a restart of the service starts it again.");

pub(crate) const CONFIG_GENERATION: Metric =
    Metric::new("drover_config_generation", Gauge, Service, "The configuration in force.")
        .titled("Configuration in force")
        .act("It rises with each configuration that comes into force.");

pub(crate) const CONFIG_APPLIED: Metric = Metric::new(
    "drover_config_applied_timestamp_seconds",
    Gauge,
    Service,
    "Unix time at which the configuration in force came into force; 0 before the first.",
)
.seconds()
.titled("Age of the configuration in force")
.act("It is the time of the last good reload.");

pub(crate) const CONFIG_REFUSED: Metric = Metric::new(
    "drover_config_refused",
    Gauge,
    Service,
    "Whether a newer configuration was refused; a member that stands by says it of its own files.",
)
.titled("Newer configuration refused")
.states()
.act("`drover check` shows the faults with their places.");

pub(crate) const CONFIG_SYNC_FAILED: Metric = Metric::new(
    "drover_config_sync_failed",
    Gauge,
    Service,
    "Whether the last sync with git failed or was refused.",
)
.titled("Sync with git failed")
.states()
.act("`drover sync` shows why: [git](git.md).");

pub(crate) const JOURNAL_APPEND_SECONDS: Metric = Metric::new(
    "drover_journal_append_seconds",
    Histogram(APPEND_SECONDS),
    Service,
    "Duration of writes to the journal, each of one group of records.",
)
.seconds()
.titled("Duration of writes to the journal")
.act("Nothing starts before its record is written: a slow disk or store delays every agent.");

pub(crate) const JOURNAL_WRITABLE: Metric =
    Metric::new("drover_journal_writable", Gauge, Service, "Whether the journal can be written.")
        .titled("Journal can be written")
        .states()
        .act("While it is 0 nothing new starts: `drover alarms` has the reason.");

pub(crate) const SPANS: Metric = Metric::new(
    "drover_trace_spans_total",
    Counter,
    Service,
    "Spans of traces by what became of them.",
)
.by(&[fixed("outcome", || SPAN_OUTCOMES.to_vec())])
.titled("Spans of traces in an hour")
.act(
    "Spans that are `refused` or `dropped` are in no trace: the log says why, once an outage, and \
     `drover doctor` asks the collector: [traces](traces.md).",
);

pub(crate) const READY: Metric =
    Metric::new("drover_ready", Gauge, Service, "Whether the service is ready for work.")
        .titled("Ready for work")
        .states()
        .act("`curl …/readyz` and `drover status` say what is missing.");

pub(crate) const BUILD_INFO: Metric =
    Metric::new("drover_build_info", Info, Service, "The version of drover that runs.")
        .by(&[named("version", "the version of the program")])
        .titled("Versions that run")
        .act("Compare it between members.");
