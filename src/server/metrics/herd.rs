//! The samples of every metric, read from the view.

use std::sync::Arc;

use drover_api::MembersOut;
use drover_limits::call_queue::CallLoad;
use drover_model::phase::{
    AgentPhase, BreakerPhase, CloudHealth, DeclaredPhase, DriftKind, LeasePhase,
};
use drover_model::status::{AgentStatus, TemplateStatus};
use drover_model::time::WallTime;

use super::page::{Page, Value};
use crate::alarms::alarms;
use crate::metric_table::{self as table, Metric};
use crate::view::{View, waiter};

/// Adds every sample that the view has.
pub(super) fn all(page: &mut Page, view: &View) {
    templates(page, view);
    clouds(page, view);
    calls(page, view);
    breakers(page, view);
    address_pools(page, view);
    declared(page, view);
    sources(page, view);
    leases(page, view);
    reconciliations(page, view);
    numbers(page, view);
    service(page, view);
    build(page);
}

/// Adds the version that runs.
pub(super) fn build(page: &mut Page) {
    page.add(&table::BUILD_INFO, &[env!("CARGO_PKG_VERSION")], true);
}

/// Adds whether a newer configuration was refused.
pub(super) fn refused(page: &mut Page, is_refused: bool) {
    page.add(&table::CONFIG_REFUSED, &[], is_refused);
}

/// Adds what a member knows of all members.
pub(super) fn member(page: &mut Page, members: &MembersOut, leads: bool) {
    page.add(&table::LEADS, &[], leads);
    page.add(&table::LEADER_TERM, &[], members.term);
    for role in table::ROLES {
        let count = members.members.iter().filter(|one| one.role == role).count();
        page.add(&table::MEMBERS, &[role], count);
    }
}

/// A time as metrics have it: seconds since 1970, and 0 for none.
fn timestamp(at: Option<WallTime>) -> Value {
    Value::Real(at.map_or(0.0, |at| at.0 as f64 / 1000.0))
}

/// One for the word that is now and zero for the others.
fn one_of<T: PartialEq + Copy>(
    page: &mut Page,
    metric: &Metric,
    id: &str,
    (now, words): (T, impl IntoIterator<Item = (T, &'static str)>),
) {
    for (word, name) in words {
        page.add(metric, &[id, name], word == now);
    }
}

fn templates(page: &mut Page, view: &View) {
    let agents = view.agents();
    for template in &view.templates() {
        let id = template.template.to_string();
        phases(page, template, &id);
        let own = || agents.iter().filter(|one| one.template == template.template);
        let count = |is: fn(&Arc<AgentStatus>) -> bool| own().filter(|one| is(one)).count();
        page.add(&table::AGENTS_IDLE, &[&id], count(|one| one.is_idle()));
        page.add(&table::AGENTS_SIZED, &[&id], count(|one| !one.size.is_none()));
        page.add(&table::TEMPLATE_MINIMUM, &[&id], template.minimum);
        page.add(&table::TEMPLATE_IDLE_MINIMUM, &[&id], template.idle_minimum);
        page.add(&table::AGENTS_OUTDATED, &[&id], template.outdated);
        if let Some(canary) = &template.canary {
            page.add(&table::VERSIONS_GIVEN_UP, &[&id], canary.given_up.len());
        }
        if let Some(cap) = template.cap {
            page.add(&table::TEMPLATE_CAP, &[&id], cap);
        }
        let states = BreakerPhase::ALL.map(|state| (state, state.name()));
        one_of(page, &table::BREAKER, &id, (template.breaker, states));
    }
}

/// Agents of a template by phase; those of a phase without a series count as `other`.
fn phases(page: &mut Page, template: &TemplateStatus, id: &str) {
    let count = |phase| template.states.get(&phase).copied().unwrap_or(0);
    for phase in AgentPhase::ALL.into_iter().filter(|phase| *phase != AgentPhase::Gone) {
        page.add(&table::AGENTS, &[id, phase.name()], count(phase));
    }
    page.add(&table::AGENTS, &[id, table::OTHER], count(AgentPhase::Gone));
}

fn clouds(page: &mut Page, view: &View) {
    for cloud in view.clouds() {
        let id = cloud.cloud.as_str();
        let healths = CloudHealth::ALL.map(|health| (health, health.name()));
        one_of(page, &table::CLOUD_HEALTH, id, (cloud.health, healths));
        page.add(&table::CLOUD_AGENTS, &[id], cloud.agents);
        if let Some(cap) = cloud.cap {
            page.add(&table::CLOUD_CAP, &[id], cap);
        }
    }
}

fn calls(page: &mut Page, view: &View) {
    type Read = fn(&CallLoad) -> u32;
    let gauges: [(&Metric, Read); 3] = [
        (&table::API_CALLS, |load| load.running),
        (&table::API_CALLS_WAITING, |load| load.waiting),
        (&table::API_CALLS_LIMIT, |load| load.limit),
    ];
    for (cloud, loads) in view.call_levels() {
        for load in &loads {
            let place = load.place.as_str();
            let (endpoint, node) = if load.is_endpoint { (place, "") } else { ("", place) };
            for (metric, read) in gauges {
                page.add(metric, &[cloud.as_str(), endpoint, node], read(load));
            }
        }
    }
}

fn breakers(page: &mut Page, view: &View) {
    for place in view.places() {
        let states = BreakerPhase::ALL.map(|state| (state, state.name()));
        one_of(page, &table::PLACE_BREAKER, &place.scope.to_string(), (place.breaker, states));
    }
}

fn address_pools(page: &mut Page, view: &View) {
    for pool in view.address_pools() {
        let counts = [pool.used, pool.resting, pool.free];
        for (state, count) in table::ADDRESSES.into_iter().zip(counts) {
            page.add(&table::ADDRESSES_OF_POOLS, &[pool.pool.as_str(), state], count);
        }
    }
}

fn declared(page: &mut Page, view: &View) {
    let machines = view.declared();
    for state in DeclaredPhase::ALL.into_iter().filter(|state| *state != DeclaredPhase::Removed) {
        let count = machines.iter().filter(|machine| machine.phase == state).count();
        page.add(&table::MACHINES, &[state.name()], count);
    }
    for machine in &machines {
        for kind in DriftKind::ALL {
            let count = machine.drift.iter().filter(|drift| drift.kind == kind).count();
            page.add(&table::MACHINE_DRIFT, &[machine.name.as_str(), kind.name()], count);
        }
    }
}

fn sources(page: &mut Page, view: &View) {
    for source in &view.sources() {
        let id = source.source.as_str();
        let counts = [source.waiting, source.running, source.unoffered, source.ignored];
        for (state, count) in table::JOBS.into_iter().zip(counts) {
            page.add(&table::SOURCE_JOBS, &[id, state], count);
        }
        page.add(&table::SOURCE_SILENT, &[id], source.outage.is_some());
        page.add(&table::SOURCE_OLDEST_JOB, &[id], timestamp(source.oldest));
    }
    page.add(&table::JOBS_LOST, &[], view.lost_job_count());
}

fn leases(page: &mut Page, view: &View) {
    let leases = view.leases();
    for state in LeasePhase::ALL {
        let count = leases.iter().filter(|lease| lease.state == state).count();
        page.add(&table::LEASES, &[state.name()], count);
    }
    let waiting = || leases.iter().filter(|lease| lease.state == LeasePhase::Waiting);
    for who in table::WAITERS {
        let asked = waiting().filter(|lease| waiter(lease) == who).filter_map(|lease| lease.asked);
        page.add(&table::OLDEST_WAIT, &[who], timestamp(asked.min()));
    }
}

fn reconciliations(page: &mut Page, view: &View) {
    for status in view.reconciled() {
        let cluster = status.cluster.as_str();
        page.add(&table::RECONCILE_FINDINGS, &[cluster], status.findings.len());
        page.add(&table::RECONCILED_AT, &[cluster], timestamp(status.last_read));
    }
}

/// What happened since the start.
fn numbers(page: &mut Page, view: &View) {
    let gone = view.gone_by_reason();
    for reason in table::REASONS {
        let count = gone.get(reason).copied().unwrap_or(0);
        page.add(&table::AGENTS_GONE, &[reason], count);
    }
    let numbers = view.numbers();
    for (phase, histogram) in numbers.ready {
        page.add(&table::AGENT_READY_SECONDS, &[phase], Value::Histogram(histogram));
    }
    for (who, histogram) in numbers.waits {
        page.add(&table::LEASE_WAIT_SECONDS, &[who], Value::Histogram(histogram));
    }
    for ((who, by), count) in numbers.served {
        page.add(&table::LEASES_SERVED, &[who, by], count);
    }
    for ((route, outcome), histogram) in numbers.calls {
        page.add(&table::PVE_REQUESTS, &[route, outcome], Value::Histogram(histogram));
    }
    for (task, histogram) in numbers.limit_waits {
        page.add(&table::LIMIT_WAIT_SECONDS, &[task], Value::Histogram(histogram));
    }
    page.add(&table::JOURNAL_APPEND_SECONDS, &[], Value::Histogram(numbers.appends));
    for (result, count) in numbers.reconciled {
        page.add(&table::RECONCILIATIONS, &[result], count);
    }
    for (what, count) in numbers.opened {
        page.add(&table::BREAKER_OPENINGS, &[what], count);
    }
    for (outcome, count) in numbers.spans {
        page.add(&table::SPANS, &[outcome], count);
    }
    page.add(&table::ACTOR_RESTARTS, &[], view.restart_count());
    page.add(&table::ACTORS_GIVEN_UP, &[], numbers.given_up);
}

fn service(page: &mut Page, view: &View) {
    page.add(&table::ALARMS, &[], alarms(view).len());
    let config = view.config();
    let generation = config.generation.map_or(0, |generation| generation.0);
    page.add(&table::CONFIG_GENERATION, &[], generation);
    page.add(&table::CONFIG_APPLIED, &[], timestamp(config.applied));
    refused(page, config.refusal().is_some());
    let last = view.sync().and_then(|sync| sync.last_attempt);
    let failed = last.is_some_and(|last| last.fault.is_some());
    page.add(&table::CONFIG_SYNC_FAILED, &[], failed);
    page.add(&table::JOURNAL_WRITABLE, &[], view.journal_trouble().is_none());
    page.add(&table::READY, &[], view.ready());
}
