//! Clouds, calls to Proxmox VE, reconciliations and breakers.

use drover_model::phase::CloudHealth;
use proxmox_client::call_route::{CallOutcome, ROUTES};

use super::Kind::{Counter, Gauge, Histogram};
use super::Section::{Breakers, Proxmox};
use super::{
    BREAKER_STATE, CALL_PLACES, CLOUD, CLUSTER, LIMITED, Metric, PROTECTED, RECONCILED, TEMPLATE,
    fixed, named,
};

const CALL_SECONDS: &[f64] = &[0.05, 0.25, 1.0, 5.0, 15.0, 30.0, 60.0];

pub(crate) const CLOUD_HEALTH: Metric =
    Metric::new("drover_cloud_health", Gauge, Proxmox, "1 for the health a cloud is in.")
        .by(&[CLOUD, fixed("health", || CloudHealth::ALL.map(CloudHealth::name).to_vec())])
        .titled("Health of clouds")
        .states()
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
.titled("Duration of calls to Proxmox VE")
.act("Slow or failed calls of one route show which part of Proxmox VE is overloaded.");

pub(crate) const LIMIT_WAIT_SECONDS: Metric = Metric::new(
    "drover_limit_wait_seconds",
    Histogram(CALL_SECONDS),
    Proxmox,
    "Time that starts and destroys of guests waited for the limits of their node and storages.",
)
.seconds()
.by(&[fixed("task", || LIMITED.to_vec())])
.titled("Wait of starts and destroys for limits")
.act("Long waits mean that storage locks or nodes are contended; clones wait in the phase `Queued` of `drover_agent_ready_seconds`.");

pub(crate) const API_CALLS: Metric =
    Metric::new("drover_api_calls", Gauge, Proxmox, "Calls to Proxmox VE under way.")
        .by(CALL_PLACES)
        .titled("Calls under way and their limit")
        .act("At the limit, drover uses all that the place gives.");

pub(crate) const API_CALLS_WAITING: Metric = Metric::new(
    "drover_api_calls_waiting",
    Gauge,
    Proxmox,
    "Calls to Proxmox VE that wait for their turn.",
)
.by(CALL_PLACES)
.titled("Calls that wait for their turn")
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
.titled("limit")
.beside("drover_api_calls")
.act("drover lowers it by itself where calls get slower.");

pub(crate) const RECONCILIATIONS: Metric = Metric::new(
    "drover_reconciliations_total",
    Counter,
    Proxmox,
    "Reconciliations of clusters by result.",
)
.by(&[fixed("result", || RECONCILED.to_vec())])
.titled("Reconciliations in an hour, by result")
.act("`unread` means that a cluster could not be read: `drover clouds`.");

pub(crate) const RECONCILE_FINDINGS: Metric = Metric::new(
    "drover_reconcile_findings",
    Gauge,
    Proxmox,
    "Findings of the last reconciliation of a cluster.",
)
.by(&[CLUSTER])
.titled("Findings of the last reconciliation")
.act("`drover status` shows them.");

pub(crate) const RECONCILED_AT: Metric = Metric::new(
    "drover_reconciled_timestamp_seconds",
    Gauge,
    Proxmox,
    "Unix time of the last reconciliation of a cluster that could be read; 0 before the first.",
)
.seconds()
.by(&[CLUSTER])
.titled("Age of the last reconciliation")
.act("`drover resync` starts one at once.");

pub(crate) const BREAKER: Metric =
    Metric::new("drover_breaker", Gauge, Breakers, "1 for the state a template's breaker is in.")
        .by(&[TEMPLATE, BREAKER_STATE])
        .titled("Breakers of templates")
        .states()
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
.titled("Breakers of nodes, storages and clouds")
.states()
.act("`drover breakers` has the cause; `drover breakers reset PLACE` closes it.");

pub(crate) const BREAKER_OPENINGS: Metric = Metric::new(
    "drover_breaker_openings_total",
    Counter,
    Breakers,
    "Times that a breaker opened, by what it protects.",
)
.by(&[fixed("protects", || PROTECTED.to_vec())])
.titled("Breakers that opened in an hour")
.act("A breaker that opens again and again has a cause that did not go away.");
