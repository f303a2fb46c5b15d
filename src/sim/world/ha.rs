//! High availability: resources, groups (8.x) or rules (9.x), and what becomes of managed guests.
//!
//! A start or stop of a managed guest only files a wish, which the manager fulfils some time later
//! (behaviour section 13).

mod rules;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::Cluster;
use super::ask::{Ask, failed};
use super::conf::{Config, digest};
use super::sections::{self, Keys};
use super::state::State;
use crate::call::{Answer, ApiError, Outcome};
use crate::spec::PveVersion;

/// How long the manager takes to look at a wish.
const ROUND: Duration = Duration::from_secs(10);

/// All of high availability's configuration, each section by its id.
#[derive(Debug, Default)]
pub struct Ha {
    resources: BTreeMap<String, Config>,
    groups: BTreeMap<String, Config>,
    rules: BTreeMap<String, Config>,
    /// The places of the rules in their file.
    order: BTreeMap<String, u32>,
}

impl Ha {
    /// Whether a guest (`vm:101`, `ct:102`) is managed.
    pub fn manages(&self, sid: &str) -> bool {
        self.resources.contains_key(sid)
    }

    /// What a guest's status says of it.
    pub fn of(&self, sid: &str) -> Value {
        let Some(resource) = self.resources.get(sid) else { return json!({ "managed": 0 }) };
        let mut entry = json!({ "managed": 1, "state": state_of(resource) });
        if let Some(group) = resource.get("group") {
            entry["group"] = group.clone().into();
        }
        entry
    }

    /// The wish for a managed guest.
    pub fn state(&self, sid: &str) -> Option<String> {
        self.resources.get(sid).map(|resource| state_of(resource).to_owned())
    }

    /// Drops a guest that was destroyed.
    pub fn forget(&mut self, sid: &str) {
        self.resources.remove(sid);
        rules::purge(&mut self.rules, sid);
    }
}

/// What is said of groups where there are none any more.
const MIGRATED: &str = "ha groups have been migrated to rules";

fn state_of(resource: &Config) -> &str {
    resource.get("state").map_or("started", String::as_str)
}

/// Serves a call below `/cluster/ha`; none for routes that are not served.
pub fn serve(ask: &Ask, rest: &str) -> Option<Outcome> {
    let outcome = match (ask.call.method, rest) {
        ("GET", "status/current") => status(ask),
        ("GET", "resources") => resources(ask),
        ("POST", "resources") => add(ask),
        ("GET", "resources/{sid}") => one(ask, Section::Resource),
        ("PUT", "resources/{sid}") => change(ask, Section::Resource),
        ("DELETE", "resources/{sid}") => remove(ask, Section::Resource),
        (method, "groups" | "groups/{group}") if ask.cluster.version == PveVersion::V9_2 => {
            let what = match (method, rest) {
                ("GET", "groups") => "index groups",
                ("GET", _) => "read group",
                ("POST", _) => "create group",
                ("PUT", _) => "update group",
                _ => "delete group",
            };
            Err(failed(format!("cannot {what}: {MIGRATED}")))
        }
        ("GET", "groups") => list(ask, Section::Group),
        ("POST", "groups") => define(ask, Section::Group),
        ("GET", "groups/{group}") => one(ask, Section::Group),
        ("PUT", "groups/{group}") => change(ask, Section::Group),
        ("DELETE", "groups/{group}") => remove(ask, Section::Group),
        ("GET", "rules") => list(ask, Section::Rule),
        ("POST", "rules") => define(ask, Section::Rule),
        ("GET", "rules/{rule}") => one(ask, Section::Rule),
        ("PUT", "rules/{rule}") => change(ask, Section::Rule),
        ("DELETE", "rules/{rule}") => remove(ask, Section::Rule),
        _ => return None,
    };
    Some(outcome)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    Resource,
    Group,
    Rule,
}

impl Section {
    fn key(self) -> &'static str {
        match self {
            Self::Resource => "sid",
            Self::Group => "group",
            Self::Rule => "rule",
        }
    }

    fn of(self, ha: &mut Ha) -> &mut BTreeMap<String, Config> {
        match self {
            Self::Resource => &mut ha.resources,
            Self::Group => &mut ha.groups,
            Self::Rule => &mut ha.rules,
        }
    }

    /// What is said of a write that fails under the lock.
    fn failing(self, verb: &str) -> String {
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

    /// What is said of one that is not there.
    fn missing(self, id: &str) -> String {
        match self {
            Self::Resource => format!("no such resource '{id}'"),
            Self::Group => format!("no such ha group '{id}'"),
            Self::Rule => format!("no such ha rule '{id}'"),
        }
    }
}

/// The id of a call: a bare number is a guest's.
fn id_of(ask: &Ask, section: Section) -> Result<String, ApiError> {
    let id = ask.text(section.key()).unwrap_or_default();
    if section != Section::Resource {
        return Ok(id);
    }
    let state = ask.cluster.state();
    let (kind, number) = match id.split_once(':') {
        Some((kind, number)) => (Some(kind.to_owned()), number.to_owned()),
        None => (None, id.clone()),
    };
    let vmid: Option<u32> = number.parse().ok();
    let holder = vmid.and_then(|vmid| state.holder(vmid));
    let own = holder.map(|guest| match guest.kind {
        super::state::Kind::Vm => "vm",
        super::state::Kind::Ct => "ct",
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

/// Parameters that are stored; a rule that is not disabled says nothing of it.
fn stored(ask: &Ask, section: Section) -> Config {
    let mut set = sections::stored(ask, &["delete", "digest", "purge", section.key()]);
    if section == Section::Rule && !ask.flag("disable") {
        set.remove("disable");
    }
    set
}

/// Refuses a kind that the id does not have, and a group that cannot be had.
fn sound(ask: &Ask, sid: &str) -> Result<(), ApiError> {
    if ask.text("type").is_some_and(|kind| sid.split(':').next() != Some(kind.as_str())) {
        return Err(failed("types does not match".into()));
    }
    let Some(group) = ask.text("group") else { return Ok(()) };
    if ask.cluster.version == PveVersion::V9_2 {
        return Err(failed(format!("invalid parameter 'group': {MIGRATED}")));
    }
    // Nobody asks of a resource that is new.
    if ask.call.method == "PUT" && !ask.cluster.state().ha.groups.contains_key(&group) {
        return Err(failed(format!("HA group '{group}' does not exist")));
    }
    Ok(())
}

fn line(section: Section, id: &str, config: &Config, order: &BTreeMap<String, u32>) -> Value {
    let mut entry: Map<String, Value> =
        config.iter().map(|(key, value)| (key.clone(), typed(key, value))).collect();
    entry.insert(section.key().into(), id.into());
    entry.insert("digest".into(), digest(config).into());
    match section {
        Section::Resource => {
            // The bare section: defaults are not filled in (pve-ha-manager, API2/HA/Resources.pm:24).
            let kind = id.split(':').next().unwrap_or("vm");
            entry.insert("type".into(), kind.into());
        }
        Section::Group => {
            entry.entry("type").or_insert_with(|| "group".into());
        }
        Section::Rule => {
            entry.insert("order".into(), order.get(id).copied().into());
        }
    }
    entry.into()
}

fn typed(key: &str, text: &str) -> Value {
    sections::typed(|path| path.starts_with("/cluster/ha/"), key, text)
}

fn list(ask: &Ask, section: Section) -> Outcome {
    let mut state = ask.cluster.state();
    let kind = ask.text("type");
    let resource = ask.text("resource");
    let order = state.ha.order.clone();
    let all = section.of(&mut state.ha).iter();
    let wanted = all.filter(|(_, config)| {
        section != Section::Rule
            || (kind.is_none() || config.get("type") == kind.as_ref())
                && resource.as_ref().is_none_or(|sid| rules::names(config, sid))
    });
    let mut wanted: Vec<(&String, &Config)> = wanted.collect();
    wanted.sort_by_key(|(id, _)| order.get(*id));
    let lines: Vec<Value> =
        wanted.into_iter().map(|(id, config)| line(section, id, config, &order)).collect();
    Ok(Answer::new(lines.into()))
}

fn resources(ask: &Ask) -> Outcome {
    let kind = ask.text("type");
    let state = ask.cluster.state();
    let all = state.ha.resources.iter();
    let wanted = all.filter(|(sid, _)| {
        kind.as_ref().is_none_or(|kind| sid.split(':').next() == Some(kind.as_str()))
    });
    let lines: Vec<Value> =
        wanted.map(|(sid, config)| line(Section::Resource, sid, config, &state.ha.order)).collect();
    Ok(Answer::new(lines.into()))
}

fn one(ask: &Ask, section: Section) -> Outcome {
    let id = id_of(ask, section)?;
    let mut state = ask.cluster.state();
    let order = state.ha.order.clone();
    match section.of(&mut state.ha).get(&id) {
        Some(config) => Ok(Answer::new(line(section, &id, config, &order))),
        None => Err(failed(section.missing(&id))),
    }
}

/// `POST /cluster/ha/resources`.
fn add(ask: &Ask) -> Outcome {
    let sid = id_of(ask, Section::Resource)?;
    ask.quorate()?;
    sound(ask, &sid)?;
    {
        let mut state = ask.cluster.state();
        let vmid = sid.split(':').nth(1).and_then(|vmid| vmid.parse().ok()).unwrap_or(0);
        if state.holder(vmid).is_none() {
            return Err(failed(format!("resource '{sid}' does not exist in cluster")));
        }
        if state.ha.manages(&sid) {
            let text = format!("resource ID '{sid}' already defined");
            return Err(failed(format!("{}: {text}", Section::Resource.failing("create"))));
        }
        let config = stored(ask, Section::Resource);
        let config = config.into_iter().filter(|(key, _)| key != "type").collect();
        state.ha.resources.insert(sid.clone(), config);
    }
    follow(&ask.cluster, &sid);
    Ok(Answer::null())
}

fn define(ask: &Ask, section: Section) -> Outcome {
    let id = id_of(ask, section)?;
    ask.quorate()?;
    let config = stored(ask, section);
    section.keys(&config).check_new(&config).map_err(failed)?;
    let what = section.failing("create");
    let fail = |text: String| failed(format!("{what}: {text}"));
    let mut state = ask.cluster.state();
    if section.of(&mut state.ha).contains_key(&id) {
        let name = if section == Section::Group { "ha group ID" } else { "HA rule" };
        return Err(fail(format!("{name} '{id}' already defined")));
    }
    if section == Section::Rule {
        rules::sound(&state, &config).map_err(fail)?;
        let place = state.ha.order.values().max().map_or(1, |last| last + 1);
        state.ha.order.insert(id.clone(), place);
    }
    section.of(&mut state.ha).insert(id, config);
    Ok(Answer::null())
}

fn change(ask: &Ask, section: Section) -> Outcome {
    let id = id_of(ask, section)?;
    ask.quorate()?;
    if section == Section::Resource {
        sound(ask, &id)?;
    }
    let set = stored(ask, section);
    let what = section.failing("update");
    let fail = |text: String| failed(format!("{what}: {text}"));
    {
        let mut state = ask.cluster.state();
        let Some(config) = section.of(&mut state.ha).get(&id).cloned() else {
            return Err(fail(match section {
                Section::Rule => format!("HA rule '{id}' does not exist"),
                Section::Resource | Section::Group => section.missing(&id),
            }));
        };
        if ask.text("digest").is_some_and(|wanted| wanted != digest(&config)) {
            let text = "detected modified configuration - file changed by other user? Try again.";
            return Err(fail(text.into()));
        }
        if section == Section::Rule && set.get("type") != config.get("type") {
            return Err(fail("unexpected property 'type'".into()));
        }
        let keys = section.keys(&config);
        keys.check_change(&set).map_err(fail)?;
        if section == Section::Rule {
            rules::sound(&state, &set).map_err(fail)?;
        }
        let deleted = sections::deleted(ask);
        keys.check_delete(&deleted).map_err(fail)?;
        if section == Section::Rule {
            sections::set_apart(ask, &deleted).map_err(fail)?;
        }
        let mut fresh = config;
        // What is set comes first (pve-ha-manager, HA/Config.pm:139).
        fresh.extend(set);
        fresh.retain(|key, _| !deleted.contains(key));
        section.of(&mut state.ha).insert(id.clone(), fresh);
    }
    if section == Section::Resource {
        follow(&ask.cluster, &id);
    }
    Ok(Answer::null())
}

/// Removes a section; a group or a rule that is not there is none to complain of.
fn remove(ask: &Ask, section: Section) -> Outcome {
    let id = id_of(ask, section)?;
    ask.quorate()?;
    let mut state = ask.cluster.state();
    let ha = &mut state.ha;
    match section {
        Section::Resource => {
            if ha.resources.remove(&id).is_none() {
                return Err(failed(format!("cannot delete service '{id}', not HA managed!")));
            }
            if !ask.params().0.contains_key("purge") || ask.flag("purge") {
                rules::purge(&mut ha.rules, &id);
            }
        }
        Section::Group => {
            let user = ha.resources.iter().find(|(_, own)| own.get("group") == Some(&id));
            if let Some((sid, _)) = user {
                let what = section.failing("delete");
                let text = format!("{what}: ha group is used by service '{sid}'");
                return Err(failed(text));
            }
            ha.groups.remove(&id);
        }
        Section::Rule => {
            ha.rules.remove(&id);
            ha.order.remove(&id);
        }
    }
    Ok(Answer::null())
}

/// `GET /cluster/ha/status/current`: quorum, and the manager and its services once there are any.
fn status(ask: &Ask) -> Outcome {
    let state = ask.cluster.state();
    let at = &ask.call.received_by;
    let quorate = state.quorate(at);
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
        let (node, running) = whereabouts(&state, sid);
        let seen = if running { "started" } else { "stopped" };
        lines.push(json!({
            "id": format!("service:{sid}"), "type": "service", "sid": sid, "node": node,
            "state": seen, "crm_state": seen, "request_state": state_of(resource),
            "status": format!("{sid} ({node}, {seen})"), "max_restart": 1, "max_relocate": 1,
        }));
    }
    Ok(Answer::new(lines.into()))
}

fn whereabouts(state: &State, sid: &str) -> (String, bool) {
    let vmid = sid.split(':').nth(1).and_then(|vmid| vmid.parse().ok()).unwrap_or(0);
    match state.holder(vmid) {
        Some(guest) => (guest.node.clone(), guest.run.is_some()),
        None => (String::new(), false),
    }
}

/// Puts a guest under management, as `ha-managed` of a create does.
pub fn manage(cluster: &Arc<Cluster>, sid: &str, started: bool) {
    let state = if started { "started" } else { "stopped" };
    let resource = Config::from([("state".to_owned(), state.to_owned())]);
    cluster.state().ha.resources.insert(sid.to_owned(), resource);
    follow(cluster, sid);
}

/// Files the wish of a start or stop of a managed guest; none where it is not managed.
pub fn ask_for(ask: &Ask, sid: &str, up: bool) -> Option<Answer> {
    let managed = ask.cluster.state().ha.state(sid).is_some_and(|state| state != "ignored");
    if !managed {
        return None;
    }
    let (cluster, sid) = (ask.cluster.clone(), sid.to_owned());
    let kind = if up { "hastart" } else { "hastop" };
    Some(ask.cluster.fork(&ask.call.caller, &ask.node, kind, ask.vmid, |worker| async move {
        let wish = if up { "started" } else { "stopped" };
        worker.log(format!("Requesting HA {} for {sid}", if up { "start" } else { "stop" }));
        if let Some(resource) = cluster.state().ha.resources.get_mut(&sid) {
            resource.insert("state".into(), wish.into());
        }
        follow(&cluster, &sid);
        Ok(())
    }))
}

/// The manager's next round, in which a guest is made what is wished of it.
fn follow(cluster: &Arc<Cluster>, sid: &str) {
    let (cluster, sid) = (cluster.clone(), sid.to_owned());
    tokio::spawn(async move {
        tokio::time::sleep(ROUND).await;
        if let Err(error) = fulfil(&cluster, &sid).await {
            tracing::debug!(sid, error, "managed guest does not become what is wished of it");
        }
    });
}

async fn fulfil(cluster: &Arc<Cluster>, sid: &str) -> Result<(), String> {
    let Some((kind, vmid)) = sid.split_once(':') else { return Ok(()) };
    let vmid: u32 = vmid.parse().unwrap_or(0);
    let (wish, node, running) = {
        let mut state = cluster.state();
        cluster.refresh(&mut state, vmid);
        cluster.look_at_container(&mut state, vmid);
        let (node, running) = whereabouts(&state, sid);
        (state.ha.state(sid), node, running)
    };
    match (wish.as_deref(), running, kind) {
        (Some("started" | "enabled"), false, "ct") => {
            cluster.launch_container(&node, vmid, None).await
        }
        (Some("started" | "enabled"), false, _) => cluster.launch(&node, vmid, None).await,
        (Some("stopped" | "disabled"), true, "ct") => cluster.halt_container(&node, vmid).await,
        (Some("stopped" | "disabled"), true, _) => cluster.halt(&node, vmid).await,
        _ => Ok(()),
    }
}
