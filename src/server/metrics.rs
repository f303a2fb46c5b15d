//! Metrics in Prometheus' text format, read from the view; labels have fixed lists.
//!
//! The format is written here, by [`Page`]. `prometheus-client` writes OpenMetrics alone: a scraper
//! that asks for the text format 0.0.4 would find counters without type and help, since `_total` is
//! no part of the name there. `prometheus` had its last release in March 2025, and its encoder needs
//! families that are built by as many lines.

use std::fmt::Write;

use actix_web::{HttpResponse, web};
use drover_api::MembersOut;
use drover_limits::call_queue::CallLoad;

use super::alarms::alarms;
use super::state::State;
use crate::view::View;
use drover_model::phase::{
    AgentPhase, BreakerPhase, CloudHealth, DeclaredPhase, DriftKind, LeasePhase,
};

#[utoipa::path(
    get, path = "/metrics",
    responses((status = 200, content_type = "text/plain", body = String))
)]
pub(super) async fn show(state: web::Data<State>) -> HttpResponse {
    answered(render(&state.doors.view, (state.doors.members)().as_ref()))
}

/// What a member answers that stands by: all else is the leader's.
pub(super) fn of_standby(members: &MembersOut, name: &str) -> HttpResponse {
    let mut page = Page(String::new());
    member(&mut page, members, false);
    let own = members.members.iter().find(|one| one.name == name);
    refused(&mut page, own.is_some_and(|own| own.refused.is_some()));
    answered(page.0)
}

fn answered(page: String) -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain; version=0.0.4; charset=utf-8").body(page)
}

/// Writes all metrics, with those of a leader where it leads members of a store.
fn render(view: &View, members: Option<&MembersOut>) -> String {
    let mut page = Page(String::new());
    if let Some(members) = members {
        member(&mut page, members, true);
    }
    templates(&mut page, view);
    clouds(&mut page, view);
    calls(&mut page, view);
    places(&mut page, view);
    address_pools(&mut page, view);
    declared(&mut page, view);
    sources(&mut page, view);
    page.head("drover_leases", "gauge", "Leases by state; ended ones as far as they are kept.");
    let leases = view.leases();
    for state in LeasePhase::ALL {
        let count = leases.iter().filter(|lease| lease.state == state).count();
        page.line("drover_leases", &[("state", state.name())], count as u64);
    }
    page.head("drover_agents_gone_total", "counter", "Agents that went, by reason.");
    for (reason, count) in view.gone_by_reason() {
        page.line("drover_agents_gone_total", &[("reason", reason)], count);
    }
    page.head(
        "drover_alarms",
        "gauge",
        "What needs an administrator: the lines of `drover alarms`.",
    );
    page.line("drover_alarms", &[], alarms(view).len() as u64);
    page.head("drover_actor_restarts_total", "counter", "Actors that panicked.");
    page.line("drover_actor_restarts_total", &[], view.restart_count());
    let config = view.config();
    page.head("drover_config_generation", "gauge", "The configuration in force.");
    let generation = config.generation.map_or(0, |generation| generation.0);
    page.line("drover_config_generation", &[], generation);
    refused(&mut page, config.refusal().is_some());
    let last = view.sync().and_then(|sync| sync.last_attempt);
    let failed = last.is_some_and(|last| last.fault.is_some());
    page.head("drover_config_sync_failed", "gauge", "Whether the last sync with git failed.");
    page.line("drover_config_sync_failed", &[], failed.into());
    page.head("drover_ready", "gauge", "Whether the service is ready for work.");
    page.line("drover_ready", &[], view.ready().into());
    page.0
}

fn refused(page: &mut Page, is_refused: bool) {
    page.head("drover_config_refused", "gauge", "Whether a newer configuration was refused.");
    page.line("drover_config_refused", &[], is_refused.into());
}

fn member(page: &mut Page, members: &MembersOut, leads: bool) {
    page.head("drover_leads", "gauge", "Whether this member leads; one of all members does.");
    page.line("drover_leads", &[], leads.into());
    page.head("drover_leader_term", "counter", "Rises with each change of leader.");
    page.line("drover_leader_term", &[], members.term);
    page.head("drover_members", "gauge", "Members of the store by role, as this one knows them.");
    for role in ["leader", "standby", "unfit", "silent"] {
        let count = members.members.iter().filter(|one| one.role == role).count();
        page.line("drover_members", &[("role", role)], count as u64);
    }
}

fn templates(page: &mut Page, view: &View) {
    let templates = view.templates();
    page.head("drover_agents", "gauge", "Live agents by template and state.");
    for template in &templates {
        let id = template.template.to_string();
        let mut other = 0;
        for (state, count) in &template.states {
            if *state != AgentPhase::Gone {
                page.line(
                    "drover_agents",
                    &[("template", &id), ("state", state.name())],
                    u64::from(*count),
                );
            } else {
                other += u64::from(*count);
            }
        }
        if other > 0 {
            page.line("drover_agents", &[("template", &id), ("state", "other")], other);
        }
    }
    let help = "Live agents of a size that a job or lease asked for, by template.";
    page.head("drover_agents_sized", "gauge", help);
    let agents = view.agents();
    for template in templates.iter().map(|template| &template.template) {
        let sized = agents.iter().filter(|one| one.template == *template && !one.size.is_none());
        let id = template.to_string();
        page.line("drover_agents_sized", &[("template", &id)], sized.count() as u64);
    }
    let help = "Versions of a template that are not used, since agents of them failed.";
    page.head("drover_versions_given_up", "gauge", help);
    for template in &templates {
        if let Some(canary) = &template.canary {
            let id = template.template.to_string();
            let count = canary.given_up.len() as u64;
            page.line("drover_versions_given_up", &[("template", &id)], count);
        }
    }
    let help = "Agents that a roll-out replaces: their template makes others by now.";
    page.head("drover_agents_outdated", "gauge", help);
    for template in &templates {
        let id = template.template.to_string();
        page.line("drover_agents_outdated", &[("template", &id)], u64::from(template.outdated));
    }
    page.head("drover_template_cap", "gauge", "The most agents of a template, where limited.");
    for template in &templates {
        if let Some(cap) = template.cap {
            let id = template.template.to_string();
            page.line("drover_template_cap", &[("template", &id)], u64::from(cap));
        }
    }
    page.head("drover_breaker", "gauge", "1 for the state a template's breaker is in.");
    for template in &templates {
        let id = template.template.to_string();
        for state in BreakerPhase::ALL {
            let is = u64::from(template.breaker == state);
            page.line("drover_breaker", &[("template", &id), ("state", state.name())], is);
        }
    }
}

fn places(page: &mut Page, view: &View) {
    let help = "1 for the state of a breaker of a node, storage or cloud that was ever charged.";
    page.head("drover_place_breaker", "gauge", help);
    for place in view.places() {
        let id = place.scope.to_string();
        for state in BreakerPhase::ALL {
            let is = u64::from(place.breaker == state);
            page.line("drover_place_breaker", &[("place", &id), ("state", state.name())], is);
        }
    }
}

fn address_pools(page: &mut Page, view: &View) {
    page.head("drover_addresses", "gauge", "Addresses of a pool by what they are.");
    for pool in view.address_pools() {
        for (state, count) in [("used", pool.used), ("resting", pool.resting), ("free", pool.free)]
        {
            let labels = [("pool", pool.pool.as_str()), ("state", state)];
            page.line("drover_addresses", &labels, count);
        }
    }
}

fn declared(page: &mut Page, view: &View) {
    let machines = view.declared();
    page.head("drover_machines", "gauge", "Declared machines by state.");
    for state in DeclaredPhase::ALL.into_iter().filter(|state| *state != DeclaredPhase::Removed) {
        let count = machines.iter().filter(|machine| machine.phase == state).count();
        page.line("drover_machines", &[("state", state.name())], count as u64);
    }
    let help = "Differences between a machine and its declaration, by kind.";
    page.head("drover_machine_drift", "gauge", help);
    for machine in &machines {
        for kind in DriftKind::ALL {
            let count = machine.drift.iter().filter(|drift| drift.kind == kind).count();
            let labels = [("machine", machine.name.as_str()), ("kind", kind.name())];
            page.line("drover_machine_drift", &labels, count as u64);
        }
    }
}

fn sources(page: &mut Page, view: &View) {
    let all = view.sources();
    page.head("drover_source_jobs", "gauge", "Jobs of a source of demand by what they do.");
    for source in &all {
        let id = source.source.as_str();
        let counts = [
            ("waiting", source.waiting),
            ("running", source.running),
            ("unserved", source.unoffered),
            ("ignored", source.ignored),
        ];
        for (state, count) in counts {
            page.line("drover_source_jobs", &[("source", id), ("state", state)], count as u64);
        }
    }
    let text = "1 for a source of demand that cannot be polled.";
    page.head("drover_source_silent", "gauge", text);
    for source in &all {
        let silent = u64::from(source.outage.is_some());
        page.line("drover_source_silent", &[("source", source.source.as_str())], silent);
    }
    page.head("drover_jobs_lost_total", "counter", "Jobs that were lost with their machines.");
    page.line("drover_jobs_lost_total", &[], view.lost_job_count());
}

fn clouds(page: &mut Page, view: &View) {
    page.head("drover_cloud_health", "gauge", "1 for the health a cloud is in.");
    for cloud in view.clouds() {
        for health in CloudHealth::ALL {
            let is = u64::from(cloud.health == health);
            let labels = [("cloud", cloud.cloud.as_str()), ("health", health.name())];
            page.line("drover_cloud_health", &labels, is);
        }
    }
}

fn calls(page: &mut Page, view: &View) {
    let levels = view.call_levels();
    type Read = fn(&CallLoad) -> u32;
    let gauges: [(&str, &str, Read); 3] = [
        ("drover_api_calls", "Calls to Proxmox under way.", |level| level.running),
        ("drover_api_calls_waiting", "Calls to Proxmox that wait for their turn.", |level| {
            level.waiting
        }),
        ("drover_api_calls_limit", "Calls to Proxmox that may run at once.", |level| level.limit),
    ];
    for (name, help, read) in gauges {
        page.head(name, "gauge", help);
        for (cloud, level) in
            levels.iter().flat_map(|(cloud, all)| all.iter().map(move |l| (cloud, l)))
        {
            let kind = if level.is_endpoint { "endpoint" } else { "node" };
            page.line(
                name,
                &[("cloud", cloud.as_str()), (kind, level.place.as_str())],
                read(level).into(),
            );
        }
    }
}

/// The text as it grows.
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        let labels: Vec<_> = labels
            .iter()
            .map(|(label, value)| {
                let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                format!("{label}=\"{value}\"")
            })
            .collect();
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drover_model::declared::{Drift, OnRemoval};
    use drover_model::fact::What;
    use drover_model::id::{
        AddressPoolId, AgentId, CloudId, DeclaredName, Generation, RunnerName, SourceId, TemplateId,
    };
    use drover_model::phase::Power;
    use drover_model::record::Reason;
    use drover_model::scope::Scope;
    use drover_model::size::Size;
    use drover_model::status::{
        AddressPoolStatus, AgentStatus, BreakerStatus, CanaryStatus, CloudStatus, DeclaredStatus,
        SourceStatus, TemplateStatus,
    };
    use drover_model::time::WallTime;

    use super::*;
    use crate::testing::{lease, reported};

    // Invariant: the page is Prometheus' text format, and its names stay.

    #[test]
    fn metrics_are_prometheus_text() {
        let view = View::new(3);
        reported(&view, What::ConfigApplied { generation: Generation(4), reconcile_seconds: None });
        let template = TemplateId::new(CloudId::new("la\"b"), "linux");
        let seen = TemplateStatus {
            template: template.clone(),
            states: [(AgentPhase::Ready, 2), (AgentPhase::Gone, 1)].into(),
            cap: Some(5),
            lack: None,
            minimum: 2,
            idle_minimum: 1,
            labels: vec!["linux".into()],
            max_uses: None,
            executors: 1,
            breaker: BreakerPhase::Closed,
            tripped: None,
            source: None,
            paused: None,
            canary: Some(CanaryStatus::default()),
            outdated: 3,
            overrides: drover_model::overridden::TemplateOverrides::default(),
        };
        reported(&view, What::Template(Box::new(seen)));
        for (id, cores) in [("b1", Some(8)), ("b2", None)] {
            let started = AgentStatus::started(AgentId::new(id), template.clone(), WallTime(0));
            let size = Size { cores, ..Size::NONE };
            reported(&view, What::Agent(Arc::new(AgentStatus { size, ..started })));
        }
        let scope = Scope::Cloud(CloudId::new("lab"));
        let charged = BreakerStatus {
            scope,
            breaker: BreakerPhase::Open,
            tripped: None,
            template: template.clone(),
        };
        reported(&view, What::Breaker(Box::new(charged)));
        let pool = AddressPoolStatus {
            pool: AddressPoolId::new("lab"),
            ranges: vec!["10.0.0.5-10.0.0.9".into()],
            size: 5,
            used: 2,
            resting: 1,
            free: 2,
            next_free: None,
        };
        reported(&view, What::AddressPools { pools: vec![pool] });
        let machine = DeclaredStatus {
            name: DeclaredName::new("gitea"),
            id: None,
            cloud: CloudId::new("lab"),
            node: None,
            vmid: None,
            source: None,
            phase: DeclaredPhase::Kept,
            since: WallTime(0),
            declared: true,
            wanted: Power::Running,
            power: Power::Stopped,
            addresses: Vec::new(),
            drift: vec![Drift {
                kind: DriftKind::Power,
                what: "power".to_owned(),
                declared: "running".into(),
                found: "stopped".into(),
                stays: None,
            }],
            detail: String::new(),
            corrected: None,
            on_removal: OnRemoval::Keep,
            last_seen: None,
            lacks_image: false,
        };
        reported(&view, What::Declared(Box::new(machine)));
        let source = SourceStatus {
            waiting: 4,
            unoffered: 1,
            lacks: vec!["no template has `gpu`".into()],
            ignored: 1,
            runners: 2,
            running: 2,
            outage: Some((WallTime(0), "refused".into())),
            ..SourceStatus::idle(SourceId::new("git"), "gitea")
        };
        reported(&view, What::Source(Box::new(source)));
        let lost = What::JobLost {
            source: SourceId::new("git"),
            runner: RunnerName::new("drover-7k2m9qxw-4f8z1c3px9t2vkab"),
            agent: AgentId::new("4f8z1c3px9t2vkab"),
            job: None,
        };
        reported(&view, lost);
        let cloud = CloudStatus {
            cloud: CloudId::new("lab"),
            cluster: None,
            health: CloudHealth::Well,
            version: None,
            detail: String::new(),
            agents: 3,
            cap: None,
            overrides: drover_model::overridden::CloudOverrides::default(),
        };
        reported(&view, What::Cloud(Box::new(cloud)));
        reported(&view, What::Lease(Box::new(lease("x", LeasePhase::Ready, Some("a1"), ""))));
        let reason = Reason::TooSlow { state: AgentPhase::Booting, text: String::new() };
        let agent = AgentId::new("a0");
        reported(&view, What::AgentGone { agent, template, reason, phases: Vec::new() });
        let alarm = What::Alarm {
            agent: AgentId::new("a3"),
            text: "`lock: clone` stays".into(),
            command: "qm unlock 10420".into(),
        };
        reported(&view, alarm);
        let level = CallLoad {
            place: "pve1".into(),
            is_endpoint: false,
            running: 3,
            waiting: 17,
            limit: 3,
        };
        view.meter_calls(Box::new(move || vec![(CloudId::new("lab"), vec![level.clone()])]));
        insta::assert_snapshot!(render(&view, Some(&crate::testing::members())));
    }
}
