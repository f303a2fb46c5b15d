//! Agents, templates, clouds' permits, declared machines and addresses.

use drover_model::phase::DriftKind;

use super::Kind::{Counter, Gauge};
use super::Section::Herd;
use super::{
    ADDRESSES, CLOUD, Metric, REASONS, TEMPLATE, agent_phases, fixed, machine_phases, named,
};

pub(crate) const AGENTS: Metric =
    Metric::new("drover_agents", Gauge, Herd, "Live agents by template and phase.")
        .by(&[TEMPLATE, fixed("state", agent_phases)])
        .titled("Agents by phase")
        .act("`drover agents` lists them, and `drover why AGENT` says what one waits for.");

pub(crate) const AGENTS_IDLE: Metric = Metric::new(
    "drover_agents_idle",
    Gauge,
    Herd,
    "Agents of a template that are ready and serve nobody.",
)
.by(&[TEMPLATE])
.titled("Warm pool: idle agents and their target")
.act("Compare it with `drover_template_idle_minimum`, the target of the warm pool.");

pub(crate) const TEMPLATE_MINIMUM: Metric = Metric::new(
    "drover_template_minimum",
    Gauge,
    Herd,
    "Agents that a template keeps at this moment, in use or not.",
)
.by(&[TEMPLATE])
.titled("Agents that templates keep")
.act("It follows the `schedule` of the template.");

pub(crate) const TEMPLATE_IDLE_MINIMUM: Metric = Metric::new(
    "drover_template_idle_minimum",
    Gauge,
    Herd,
    "Idle agents that a template keeps at this moment: the target of its warm pool.",
)
.by(&[TEMPLATE])
.titled("target")
.beside("drover_agents_idle")
.act("Raise it where `drover_leases_served_total` shows many that waited.");

pub(crate) const AGENTS_SIZED: Metric = Metric::new(
    "drover_agents_sized",
    Gauge,
    Herd,
    "Live agents of a size that a job or lease asked for, by template.",
)
.by(&[TEMPLATE])
.titled("Agents of a size that somebody asked for")
.act("Such agents serve only those who ask for their size: [sizes by job](configuration.md#sizes-by-job).");

pub(crate) const VERSIONS_GIVEN_UP: Metric = Metric::new(
    "drover_versions_given_up",
    Gauge,
    Herd,
    "Versions of a template that are not used, since agents of them failed.",
)
.by(&[TEMPLATE])
.only("a template has `canary`")
.titled("Versions that are not used")
.act("`drover why TEMPLATE` shows the last failure: [canaries](configuration.md#canaries).");

pub(crate) const AGENTS_OUTDATED: Metric = Metric::new(
    "drover_agents_outdated",
    Gauge,
    Herd,
    "Agents that a roll-out replaces: their template makes others by now.",
)
.by(&[TEMPLATE])
.titled("Agents that a roll-out replaces")
.act("It falls to 0 as the [roll-out](git.md#roll-out) goes on.");

pub(crate) const TEMPLATE_CAP: Metric =
    Metric::new("drover_template_cap", Gauge, Herd, "The most agents of a template.")
        .by(&[TEMPLATE])
        .only("a template has an `instanceCap`")
        .titled("cap")
        .beside("drover_template_minimum")
        .act("Where the agents reach it and jobs wait, raise `instanceCap`.");

pub(crate) const CLOUD_AGENTS: Metric = Metric::new(
    "drover_cloud_agents",
    Gauge,
    Herd,
    "Agents that count against the cap of their cloud: the permits in use.",
)
.by(&[CLOUD])
.titled("Permits of clouds: in use and cap")
.act("Compare it with `drover_cloud_cap`.");

pub(crate) const CLOUD_CAP: Metric =
    Metric::new("drover_cloud_cap", Gauge, Herd, "The most agents of a cloud: its permits.")
        .by(&[CLOUD])
        .only("a cloud has an `instanceCap`")
        .titled("cap")
        .beside("drover_cloud_agents")
        .act("Where the agents reach it and jobs wait, raise `instanceCap` of the cloud.");

pub(crate) const AGENTS_GONE: Metric =
    Metric::new("drover_agents_gone_total", Counter, Herd, "Agents that went, by reason.")
        .by(&[fixed("reason", || REASONS.to_vec())])
        .titled("Agents that went in an hour, by reason")
        .act("`drover agents --gone` has the last ones with their failures.");

pub(crate) const MACHINES: Metric =
    Metric::new("drover_machines", Gauge, Herd, "Declared machines by state.")
        .by(&[fixed("state", machine_phases)])
        .titled("Declared machines by state")
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
.titled("Drift of declared machines")
.act("`drover machines` shows the differences.");

pub(crate) const ADDRESSES_OF_POOLS: Metric =
    Metric::new("drover_addresses", Gauge, Herd, "Addresses of a pool by what they are.")
        .by(&[named("pool", "a pool of addresses"), fixed("state", || ADDRESSES.to_vec())])
        .titled("Addresses of pools")
        .act("Without a `free` one no agent of the pool starts: `drover address-pools`.");
