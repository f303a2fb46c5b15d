//! High availability: resources, groups (8.x), rules (9.x), and the manager that starts and stops
//! managed guests.
//!
//! A start or stop of a managed guest only sets the state that is requested for it. The manager
//! acts on it one round later (book: proxmox, section 13):
//!
//! ```text
//! POST …/status/start ─→ resource state = started ─→ 10 s ─→ the manager starts the guest
//! ```
//!
//! If the guest does not start or stop, nothing reports it; the requested state stays. The checks
//! of rules are in `ha/rules`.

mod rules;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::Cluster;
use super::conf::{Config, digest};
use super::context::{CallContext, failed};
use super::sections::{self, Keys};
use super::state::State;
use crate::call::{Answer, ApiError, Outcome};
use crate::spec::PveVersion;

/// How long the manager takes to act on a requested state.
const MANAGER_DELAY: Duration = Duration::from_secs(10);

/// The configuration of high availability: each section by its id.
#[derive(Debug, Default)]
pub(crate) struct Ha {
    resources: BTreeMap<String, Config>,
    groups: BTreeMap<String, Config>,
    rules: BTreeMap<String, Config>,
    /// The positions of the rules in their file.
    order: BTreeMap<String, u32>,
}

impl Ha {
    /// Whether a guest (`vm:101`, `ct:102`) is managed.
    pub(crate) fn manages(&self, sid: &str) -> bool {
        self.resources.contains_key(sid)
    }

    /// The `ha` field in the status of a guest.
    pub(crate) fn status_fields(&self, sid: &str) -> Value {
        let Some(resource) = self.resources.get(sid) else { return json!({ "managed": 0 }) };
        let mut entry = json!({ "managed": 1, "state": requested_state_of(resource) });
        if let Some(group) = resource.get("group") {
            entry["group"] = group.clone().into();
        }
        entry
    }

    /// The requested state of a managed guest.
    pub(crate) fn requested_state(&self, sid: &str) -> Option<String> {
        self.resources.get(sid).map(|resource| requested_state_of(resource).to_owned())
    }

    /// Removes a destroyed guest.
    pub(crate) fn remove_guest(&mut self, sid: &str) {
        self.resources.remove(sid);
        rules::remove_guest(&mut self.rules, sid);
    }
}

/// The error of calls on groups since 9.x has rules instead.
const GROUPS_MIGRATED: &str = "ha groups have been migrated to rules";

fn requested_state_of(resource: &Config) -> &str {
    resource.get("state").map_or("started", String::as_str)
}

/// Serves a call below `/cluster/ha`; none for unknown routes.
pub(crate) fn serve(ctx: &CallContext, rest: &str) -> Option<Outcome> {
    let outcome = match (ctx.call.method, rest) {
        ("GET", "status/current") => status(ctx),
        ("GET", "resources") => list_resources(ctx),
        ("POST", "resources") => add_resource(ctx),
        ("GET", "resources/{sid}") => get_section(ctx, HaSection::Resource),
        ("PUT", "resources/{sid}") => change_section(ctx, HaSection::Resource),
        ("DELETE", "resources/{sid}") => remove_section(ctx, HaSection::Resource),
        (method, "groups" | "groups/{group}") if ctx.cluster.version == PveVersion::V9_2 => {
            let what = match (method, rest) {
                ("GET", "groups") => "index groups",
                ("GET", _) => "read group",
                ("POST", _) => "create group",
                ("PUT", _) => "update group",
                _ => "delete group",
            };
            Err(failed(format!("cannot {what}: {GROUPS_MIGRATED}")))
        }
        ("GET", "groups") => list_sections(ctx, HaSection::Group),
        ("POST", "groups") => create_section(ctx, HaSection::Group),
        ("GET", "groups/{group}") => get_section(ctx, HaSection::Group),
        ("PUT", "groups/{group}") => change_section(ctx, HaSection::Group),
        ("DELETE", "groups/{group}") => remove_section(ctx, HaSection::Group),
        ("GET", "rules") => list_sections(ctx, HaSection::Rule),
        ("POST", "rules") => create_section(ctx, HaSection::Rule),
        ("GET", "rules/{rule}") => get_section(ctx, HaSection::Rule),
        ("PUT", "rules/{rule}") => change_section(ctx, HaSection::Rule),
        ("DELETE", "rules/{rule}") => remove_section(ctx, HaSection::Rule),
        _ => return None,
    };
    Some(outcome)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HaSection {
    Resource,
    Group,
    Rule,
}

impl HaSection {
    fn key(self) -> &'static str {
        match self {
            Self::Resource => "sid",
            Self::Group => "group",
            Self::Rule => "rule",
        }
    }

    fn sections_mut(self, ha: &mut Ha) -> &mut BTreeMap<String, Config> {
        match self {
            Self::Resource => &mut ha.resources,
            Self::Group => &mut ha.groups,
            Self::Rule => &mut ha.rules,
        }
    }

    /// The prefix of an error that occurs under the lock of the file.
    fn error_prefix(self, verb: &str) -> String {
        match (self, verb) {
            (Self::Resource, "update") => "update resources config failed".into(),
            (Self::Resource, verb) => format!("{verb} resource failed"),
            (Self::Group, verb) => format!("{verb} ha group failed"),
            (Self::Rule, "update") => "update HA rules failed".into(),
            (Self::Rule, verb) => format!("{verb} ha rule failed"),
        }
    }

    /// The keys of a section (pve-ha-manager, `options` of the plugins).
    fn keys(self, config: &Config) -> Keys {
        match self {
            Self::Resource => Keys {
                optional: &[
                    "auto-rebalance",
                    "comment",
                    "failback",
                    "group",
                    "max_relocate",
                    "max_restart",
                    "state",
                ],
                ..Keys::default()
            },
            Self::Group => Keys {
                required: &["nodes"],
                optional: &["comment", "nofailback", "restricted"],
                ..Keys::default()
            },
            Self::Rule => rules::keys(config),
        }
    }

    /// The error of an id that does not exist.
    fn missing_error(self, id: &str) -> String {
        match self {
            Self::Resource => format!("no such resource '{id}'"),
            Self::Group => format!("no such ha group '{id}'"),
            Self::Rule => format!("no such ha rule '{id}'"),
        }
    }
}

/// The id of a call; a bare number is completed to `vm:ID` or `ct:ID`.
fn section_id(ctx: &CallContext, section: HaSection) -> Result<String, ApiError> {
    let id = ctx.text(section.key()).unwrap_or_default();
    if section != HaSection::Resource {
        return Ok(id);
    }
    let state = ctx.cluster.state();
    let (kind, number) = match id.split_once(':') {
        Some((kind, number)) => (Some(kind.to_owned()), number.to_owned()),
        None => (None, id.clone()),
    };
    let vmid: Option<u32> = number.parse().ok();
    let holder = vmid.and_then(|vmid| state.guest_by_id(vmid));
    let own = holder.map(|guest| match guest.kind {
        super::state::GuestType::Vm => "vm",
        super::state::GuestType::Ct => "ct",
    });
    match kind.as_deref().or(own) {
        Some(kind) => Ok(format!("{kind}:{number}")),
        // pve-ha-manager, HA/Config.pm, parse_sid.
        None => {
            let text = "unable to detect SID from VMID - VM/CT";
            Err(failed(format!("{text} {number} does not exist")))
        }
    }
}

/// The parameters to store; an enabled rule stores no `disable`.
fn section_parameters(ctx: &CallContext, section: HaSection) -> Config {
    let mut set = sections::stored_parameters(ctx, &["delete", "digest", "purge", section.key()]);
    if section == HaSection::Rule && !ctx.flag("disable") {
        set.remove("disable");
    }
    set
}

/// Refuses a type that differs from that of the id, and a group that cannot be used.
fn check_resource(ctx: &CallContext, sid: &str) -> Result<(), ApiError> {
    if ctx.text("type").is_some_and(|kind| sid.split(':').next() != Some(kind.as_str())) {
        return Err(failed("types does not match".into()));
    }
    let Some(group) = ctx.text("group") else { return Ok(()) };
    if ctx.cluster.version == PveVersion::V9_2 {
        return Err(failed(format!("invalid parameter 'group': {GROUPS_MIGRATED}")));
    }
    // Proxmox does not check the group of a new resource.
    if ctx.call.method == "PUT" && !ctx.cluster.state().ha.groups.contains_key(&group) {
        return Err(failed(format!("HA group '{group}' does not exist")));
    }
    Ok(())
}

fn section_entry(
    section: HaSection,
    id: &str,
    config: &Config,
    order: &BTreeMap<String, u32>,
) -> Value {
    let mut entry: Map<String, Value> =
        config.iter().map(|(key, value)| (key.clone(), typed(key, value))).collect();
    entry.insert(section.key().into(), id.into());
    entry.insert("digest".into(), digest(config).into());
    match section {
        HaSection::Resource => {
            // The plain section, without defaults (pve-ha-manager, API2/HA/Resources.pm:24).
            let kind = id.split(':').next().unwrap_or("vm");
            entry.insert("type".into(), kind.into());
        }
        HaSection::Group => {
            entry.entry("type").or_insert_with(|| "group".into());
        }
        HaSection::Rule => {
            entry.insert("order".into(), order.get(id).copied().into());
        }
    }
    entry.into()
}

fn typed(key: &str, text: &str) -> Value {
    sections::typed(|path| path.starts_with("/cluster/ha/"), key, text)
}

fn list_sections(ctx: &CallContext, section: HaSection) -> Outcome {
    let mut state = ctx.cluster.state();
    let kind = ctx.text("type");
    let resource = ctx.text("resource");
    let order = state.ha.order.clone();
    let all = section.sections_mut(&mut state.ha).iter();
    let wanted = all.filter(|(_, config)| {
        section != HaSection::Rule
            || (kind.is_none() || config.get("type") == kind.as_ref())
                && resource.as_ref().is_none_or(|sid| rules::names_guest(config, sid))
    });
    let mut wanted: Vec<(&String, &Config)> = wanted.collect();
    wanted.sort_by_key(|(id, _)| order.get(*id));
    let lines: Vec<Value> =
        wanted.into_iter().map(|(id, config)| section_entry(section, id, config, &order)).collect();
    Ok(Answer::new(lines.into()))
}

fn list_resources(ctx: &CallContext) -> Outcome {
    let kind = ctx.text("type");
    let state = ctx.cluster.state();
    let all = state.ha.resources.iter();
    let wanted = all.filter(|(sid, _)| {
        kind.as_ref().is_none_or(|kind| sid.split(':').next() == Some(kind.as_str()))
    });
    let lines: Vec<Value> = wanted
        .map(|(sid, config)| section_entry(HaSection::Resource, sid, config, &state.ha.order))
        .collect();
    Ok(Answer::new(lines.into()))
}

fn get_section(ctx: &CallContext, section: HaSection) -> Outcome {
    let id = section_id(ctx, section)?;
    let mut state = ctx.cluster.state();
    let order = state.ha.order.clone();
    match section.sections_mut(&mut state.ha).get(&id) {
        Some(config) => Ok(Answer::new(section_entry(section, &id, config, &order))),
        None => Err(failed(section.missing_error(&id))),
    }
}

/// `POST /cluster/ha/resources`.
fn add_resource(ctx: &CallContext) -> Outcome {
    let sid = section_id(ctx, HaSection::Resource)?;
    ctx.require_quorum()?;
    check_resource(ctx, &sid)?;
    {
        let mut state = ctx.cluster.state();
        let vmid = sid.split(':').nth(1).and_then(|vmid| vmid.parse().ok()).unwrap_or(0);
        if state.guest_by_id(vmid).is_none() {
            return Err(failed(format!("resource '{sid}' does not exist in cluster")));
        }
        if state.ha.manages(&sid) {
            let text = format!("resource ID '{sid}' already defined");
            return Err(failed(format!("{}: {text}", HaSection::Resource.error_prefix("create"))));
        }
        let config = section_parameters(ctx, HaSection::Resource);
        let config = config.into_iter().filter(|(key, _)| key != "type").collect();
        state.ha.resources.insert(sid.clone(), config);
    }
    schedule_manager_round(&ctx.cluster, &sid);
    Ok(Answer::null())
}

fn create_section(ctx: &CallContext, section: HaSection) -> Outcome {
    let id = section_id(ctx, section)?;
    ctx.require_quorum()?;
    let config = section_parameters(ctx, section);
    section.keys(&config).check_new(&config).map_err(failed)?;
    let what = section.error_prefix("create");
    let fail = |text: String| failed(format!("{what}: {text}"));
    let mut state = ctx.cluster.state();
    if section.sections_mut(&mut state.ha).contains_key(&id) {
        let name = if section == HaSection::Group { "ha group ID" } else { "HA rule" };
        return Err(fail(format!("{name} '{id}' already defined")));
    }
    if section == HaSection::Rule {
        rules::check_rule(&state, &config).map_err(fail)?;
        let place = state.ha.order.values().max().map_or(1, |last| last + 1);
        state.ha.order.insert(id.clone(), place);
    }
    section.sections_mut(&mut state.ha).insert(id, config);
    Ok(Answer::null())
}

fn change_section(ctx: &CallContext, section: HaSection) -> Outcome {
    let id = section_id(ctx, section)?;
    ctx.require_quorum()?;
    if section == HaSection::Resource {
        check_resource(ctx, &id)?;
    }
    let set = section_parameters(ctx, section);
    let what = section.error_prefix("update");
    let fail = |text: String| failed(format!("{what}: {text}"));
    {
        let mut state = ctx.cluster.state();
        let Some(config) = section.sections_mut(&mut state.ha).get(&id).cloned() else {
            return Err(fail(match section {
                HaSection::Rule => format!("HA rule '{id}' does not exist"),
                HaSection::Resource | HaSection::Group => section.missing_error(&id),
            }));
        };
        if ctx.text("digest").is_some_and(|wanted| wanted != digest(&config)) {
            let text = "detected modified configuration - file changed by other user? Try again.";
            return Err(fail(text.into()));
        }
        if section == HaSection::Rule && set.get("type") != config.get("type") {
            return Err(fail("unexpected property 'type'".into()));
        }
        let keys = section.keys(&config);
        keys.check_change(&set).map_err(fail)?;
        if section == HaSection::Rule {
            rules::check_rule(&state, &set).map_err(fail)?;
        }
        let deleted = sections::deleted_keys(ctx);
        keys.check_delete(&deleted).map_err(fail)?;
        if section == HaSection::Rule {
            sections::check_set_and_delete(ctx, &deleted).map_err(fail)?;
        }
        let mut changed = config;
        // Proxmox sets keys before it deletes others (pve-ha-manager, HA/Config.pm:139).
        changed.extend(set);
        changed.retain(|key, _| !deleted.contains(key));
        section.sections_mut(&mut state.ha).insert(id.clone(), changed);
    }
    if section == HaSection::Resource {
        schedule_manager_round(&ctx.cluster, &id);
    }
    Ok(Answer::null())
}

/// Deletes a section; deleting a missing group or rule is no error.
fn remove_section(ctx: &CallContext, section: HaSection) -> Outcome {
    let id = section_id(ctx, section)?;
    ctx.require_quorum()?;
    let mut state = ctx.cluster.state();
    let ha = &mut state.ha;
    match section {
        HaSection::Resource => {
            if ha.resources.remove(&id).is_none() {
                return Err(failed(format!("cannot delete service '{id}', not HA managed!")));
            }
            if !ctx.params().0.contains_key("purge") || ctx.flag("purge") {
                rules::remove_guest(&mut ha.rules, &id);
            }
        }
        HaSection::Group => {
            let user = ha.resources.iter().find(|(_, own)| own.get("group") == Some(&id));
            if let Some((sid, _)) = user {
                let what = section.error_prefix("delete");
                let text = format!("{what}: ha group is used by service '{sid}'");
                return Err(failed(text));
            }
            ha.groups.remove(&id);
        }
        HaSection::Rule => {
            ha.rules.remove(&id);
            ha.order.remove(&id);
        }
    }
    Ok(Answer::null())
}

/// `GET /cluster/ha/status/current`: quorum, then the manager and its services if there are any.
fn status(ctx: &CallContext) -> Outcome {
    let state = ctx.cluster.state();
    let at = &ctx.call.received_by;
    let quorate = state.has_quorum(at);
    let mut lines = vec![json!({
        "id": "quorum", "type": "quorum", "node": at, "quorate": u8::from(quorate),
        "status": if quorate { "OK" } else { "No quorum on node" },
    })];
    if state.ha.resources.is_empty() {
        return Ok(Answer::new(lines.into()));
    }
    let now = state.clock.unix();
    let master = state.nodes.keys().find(|name| state.online(at, name)).cloned();
    if let Some(master) = master {
        lines.push(json!({
            "id": "master", "type": "master", "node": master, "timestamp": now,
            "status": format!("{master} (active)"),
        }));
    }
    for name in state.nodes.keys() {
        let text = if state.online(at, name) { "active" } else { "old timestamp - dead?" };
        lines.push(json!({
            "id": format!("lrm:{name}"), "type": "lrm", "node": name, "timestamp": now,
            "status": format!("{name} ({text})"),
        }));
    }
    for (sid, resource) in &state.ha.resources {
        let (node, running) = node_and_running(&state, sid);
        let observed = if running { "started" } else { "stopped" };
        lines.push(json!({
            "id": format!("service:{sid}"), "type": "service", "sid": sid, "node": node,
            "state": observed, "crm_state": observed, "request_state": requested_state_of(resource),
            "status": format!("{sid} ({node}, {observed})"), "max_restart": 1, "max_relocate": 1,
        }));
    }
    Ok(Answer::new(lines.into()))
}

fn node_and_running(state: &State, sid: &str) -> (String, bool) {
    let vmid = sid.split(':').nth(1).and_then(|vmid| vmid.parse().ok()).unwrap_or(0);
    match state.guest_by_id(vmid) {
        Some(guest) => (guest.node.clone(), guest.process.is_some()),
        None => (String::new(), false),
    }
}

/// Puts a guest under management, as `ha-managed` of a create does.
pub(crate) fn manage(cluster: &Arc<Cluster>, sid: &str, started: bool) {
    let state = if started { "started" } else { "stopped" };
    let resource = Config::from([("state".to_owned(), state.to_owned())]);
    cluster.state().ha.resources.insert(sid.to_owned(), resource);
    schedule_manager_round(cluster, sid);
}

/// Requests that the manager starts or stops a guest; none if the guest is not managed.
pub(crate) fn request_state(ctx: &CallContext, sid: &str, up: bool) -> Option<Answer> {
    let managed =
        ctx.cluster.state().ha.requested_state(sid).is_some_and(|state| state != "ignored");
    if !managed {
        return None;
    }
    let (cluster, sid) = (ctx.cluster.clone(), sid.to_owned());
    let kind = if up { "hastart" } else { "hastop" };
    Some(ctx.cluster.fork(&ctx.call.caller, &ctx.node, kind, ctx.vmid, |worker| async move {
        let requested = if up { "started" } else { "stopped" };
        worker.log(format!("Requesting HA {} for {sid}", if up { "start" } else { "stop" }));
        if let Some(resource) = cluster.state().ha.resources.get_mut(&sid) {
            resource.insert("state".into(), requested.into());
        }
        schedule_manager_round(&cluster, &sid);
        Ok(())
    }))
}

/// Schedules the next round of the manager, which brings a guest to its requested state.
fn schedule_manager_round(cluster: &Arc<Cluster>, sid: &str) {
    let (cluster, sid) = (cluster.clone(), sid.to_owned());
    tokio::spawn(async move {
        tokio::time::sleep(MANAGER_DELAY).await;
        if let Err(error) = enforce_requested_state(&cluster, &sid).await {
            tracing::debug!(
                sid,
                error,
                "the HA manager cannot bring a guest to its requested state"
            );
        }
    });
}

async fn enforce_requested_state(cluster: &Arc<Cluster>, sid: &str) -> Result<(), String> {
    let Some((kind, vmid)) = sid.split_once(':') else { return Ok(()) };
    let vmid: u32 = vmid.parse().unwrap_or(0);
    let (requested, node, running) = {
        let mut state = cluster.state();
        cluster.refresh_vm(&mut state, vmid);
        cluster.refresh_container(&mut state, vmid);
        let (node, running) = node_and_running(&state, sid);
        (state.ha.requested_state(sid), node, running)
    };
    match (requested.as_deref(), running, kind) {
        (Some("started" | "enabled"), false, "ct") => {
            cluster.start_container(&node, vmid, None).await
        }
        (Some("started" | "enabled"), false, _) => cluster.start_vm(&node, vmid, None).await,
        (Some("stopped" | "disabled"), true, "ct") => cluster.stop_container(&node, vmid).await,
        (Some("stopped" | "disabled"), true, _) => cluster.stop_vm(&node, vmid).await,
        _ => Ok(()),
    }
}
