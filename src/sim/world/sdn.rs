//! Software-defined networks: zones, VNets and subnets.
//!
//! Each section exists in up to three versions:
//!
//! ```text
//! POST/PUT/DELETE ─→ configured ─ PUT /cluster/sdn ─→ applied ─ reload task ─→ active
//!                        ↑                               │
//!                        └────────── rollback ───────────┘
//! ```
//!
//! Guests use the active VNets. `pending` shows the difference between configured and applied.
//! Since 9.x a client can hold a global lock (`sdn/lock`); other clients are then refused. The keys
//! and checks of each section are in `sdn/zones`, `sdn/vnets`, `sdn/subnets` and `sdn/ranges`.
//! Errors are Proxmox's texts, with the prefix that its lock adds.

mod lock;
mod ranges;
mod subnets;
mod vnets;
mod zones;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::conf::{Config, digest};
use super::context::{CallContext, failed};
use super::sections::{self, Keys};
use super::state::State;
use crate::call::{Answer, ApiError, Outcome};

/// The zone of plain bridges.
pub(crate) const LOCAL_ZONE: &str = "localnetwork";

type Sections = BTreeMap<String, Config>;

/// The SDN configuration in its three versions.
#[derive(Debug, Default)]
pub(crate) struct Sdn {
    zones: Sections,
    vnets: Sections,
    subnets: Sections,
    applied_zones: Sections,
    applied_vnets: Sections,
    applied_subnets: Sections,
    /// What the nodes have since their last network reload.
    active_zones: Sections,
    active_vnets: Sections,
    /// The token of the global lock while it is held.
    lock: Option<String>,
}

impl Sdn {
    /// The zone of a bridge or VNet.
    pub(crate) fn zone_of(&self, bridge: &str) -> String {
        let vnet = self.vnets.get(bridge).or_else(|| self.applied_vnets.get(bridge));
        vnet.and_then(|vnet| vnet.get("zone").cloned()).unwrap_or_else(|| LOCAL_ZONE.into())
    }

    /// The active VNets of a node.
    pub(crate) fn on_node(&self, node: &str) -> impl Iterator<Item = (&String, &Config)> {
        let node = node.to_owned();
        self.active_vnets.iter().filter(move |(_, vnet)| {
            let zone = vnet.get("zone").and_then(|zone| self.active_zones.get(zone));
            zone.is_some_and(|zone| zone_is_on(zone, &node))
        })
    }

    /// Whether the configuration differs from the applied one.
    fn has_changes(&self) -> bool {
        self.zones != self.applied_zones
            || self.vnets != self.applied_vnets
            || self.subnets != self.applied_subnets
    }
}

fn zone_is_on(zone: &Config, node: &str) -> bool {
    zone.get("nodes").is_none_or(|nodes| nodes.split([',', ';', ' ']).any(|name| name == node))
}

impl State {
    /// Whether a guest on a node can use a bridge or VNet of this name.
    pub(crate) fn has_bridge(&self, node: &str, bridge: &str) -> bool {
        let plain = self
            .nodes
            .get(node)
            .is_none_or(|node| node.spec.bridges.iter().any(|name| name == bridge));
        plain || self.sdn.on_node(node).any(|(name, _)| name == bridge)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SdnSection {
    Zone,
    Vnet,
    Subnet,
}

impl SdnSection {
    fn key(self) -> &'static str {
        match self {
            Self::Zone => "zone",
            Self::Vnet => "vnet",
            Self::Subnet => "subnet",
        }
    }

    fn configured_mut(self, sdn: &mut Sdn) -> &mut Sections {
        match self {
            Self::Zone => &mut sdn.zones,
            Self::Vnet => &mut sdn.vnets,
            Self::Subnet => &mut sdn.subnets,
        }
    }

    fn configured_and_applied(self, sdn: &Sdn) -> (&Sections, &Sections) {
        match self {
            Self::Zone => (&sdn.zones, &sdn.applied_zones),
            Self::Vnet => (&sdn.vnets, &sdn.applied_vnets),
            Self::Subnet => (&sdn.subnets, &sdn.applied_subnets),
        }
    }

    fn missing_error(self, id: &str) -> String {
        match self {
            Self::Zone => format!("sdn '{id}' does not exist"),
            Self::Vnet | Self::Subnet => format!("sdn {} '{id}' does not exist", self.key()),
        }
    }

    fn taken_error(self, id: &str) -> String {
        format!("sdn {} object ID '{id}' already defined", self.key())
    }

    /// The prefix of an error that occurs under the lock of the file.
    fn error_prefix(self, verb: &str) -> String {
        format!("{verb} sdn {} object failed", self.key())
    }

    /// The keys of a section (pve-network, `options` of the plugins).
    fn keys(self, ctx: &CallContext, config: &Config) -> Result<Keys, String> {
        let kind = config.get("type").map(String::as_str).unwrap_or_default();
        match self {
            Self::Zone => zones::keys(kind, ctx.cluster.version)
                .ok_or_else(|| format!("unknown section type '{kind}'")),
            Self::Vnet => Ok(vnets::KEYS),
            Self::Subnet => Ok(subnets::KEYS),
        }
    }
}

/// Serves a call below `/cluster/sdn`; none for unknown routes.
pub(crate) fn serve(ctx: &CallContext, rest: &str) -> Option<Outcome> {
    let outcome = match (ctx.call.method, rest) {
        ("GET", "") => Ok(Answer::new(json!([{ "id": "zones" }, { "id": "vnets" }]))),
        ("PUT", "") => apply(ctx),
        ("POST", "/lock") => lock::acquire(ctx),
        ("DELETE", "/lock") => lock::release(ctx),
        ("POST", "/rollback") => lock::roll_back(ctx),
        ("GET", "/zones") => list_sections(ctx, SdnSection::Zone),
        ("POST", "/zones") => create_zone(ctx),
        ("GET", "/zones/{zone}") => get_section(ctx, SdnSection::Zone),
        ("PUT", "/zones/{zone}") => change_section(ctx, SdnSection::Zone),
        ("DELETE", "/zones/{zone}") => delete_zone(ctx),
        ("GET", "/vnets") => list_sections(ctx, SdnSection::Vnet),
        ("POST", "/vnets") => create_vnet(ctx),
        ("GET", "/vnets/{vnet}") => get_section(ctx, SdnSection::Vnet),
        ("PUT", "/vnets/{vnet}") => change_section(ctx, SdnSection::Vnet),
        ("DELETE", "/vnets/{vnet}") => delete_vnet(ctx),
        ("GET", "/vnets/{vnet}/subnets") => list_sections(ctx, SdnSection::Subnet),
        ("POST", "/vnets/{vnet}/subnets") => create_subnet(ctx),
        ("GET", "/vnets/{vnet}/subnets/{subnet}") => get_section(ctx, SdnSection::Subnet),
        ("PUT", "/vnets/{vnet}/subnets/{subnet}") => change_section(ctx, SdnSection::Subnet),
        ("DELETE", "/vnets/{vnet}/subnets/{subnet}") => delete_subnet(ctx),
        _ => return None,
    };
    Some(outcome)
}

/// The access control path of a section.
fn path_of(section: SdnSection, id: &str, config: &Config) -> String {
    match section {
        SdnSection::Zone => format!("/sdn/zones/{id}"),
        SdnSection::Vnet => {
            let zone = config.get("zone").map(String::as_str).unwrap_or_default();
            format!("/sdn/zones/{zone}/{id}")
        }
        SdnSection::Subnet => {
            let of = |key: &str| config.get(key).map(String::as_str).unwrap_or_default();
            format!("/sdn/zones/{}/{}", of("zone"), of("vnet"))
        }
    }
}

const VIEW_PRIVILEGES: &[&str] = &["SDN.Audit", "SDN.Allocate"];
const ALLOCATE_PRIVILEGE: &[&str] = &["SDN.Allocate"];

fn may_see(ctx: &CallContext, path: &str) -> bool {
    VIEW_PRIVILEGES.iter().any(|privilege| ctx.has(path, privilege))
}

/// Checks that the caller has one of these privileges on the configured VNet of a call
/// (pve-network, API2/Network/SDN/Vnets.pm, check_vnet_access). The schema checks the privileges on
/// zones.
fn check_vnet_access(
    ctx: &CallContext,
    section: SdnSection,
    privileges: &[&str],
) -> Result<(), ApiError> {
    if section == SdnSection::Zone {
        return Ok(());
    }
    let id = ctx.text("vnet").unwrap_or_default();
    let path = match ctx.cluster.state().sdn.vnets.get(&id) {
        Some(vnet) => path_of(SdnSection::Vnet, &id, vnet),
        None => return Err(failed(SdnSection::Vnet.missing_error(&id))),
    };
    ctx.check_any(&path, privileges)
}

fn section_entry(section: SdnSection, id: &str, config: &Config) -> Map<String, Value> {
    let mut entry: Map<String, Value> =
        config.iter().map(|(key, value)| (key.clone(), typed(key, value))).collect();
    entry.insert(section.key().into(), id.into());
    entry.insert("digest".into(), digest(config).into());
    if section != SdnSection::Zone {
        entry.insert("type".into(), section.key().into());
    }
    if section == SdnSection::Subnet {
        entry.insert("id".into(), id.into());
        entry.insert(ranges::KEY.into(), ranges::json_ranges(config));
    }
    entry
}

fn typed(key: &str, text: &str) -> Value {
    sections::typed(|path| path.starts_with("/cluster/sdn"), key, text)
}

/// A section as `pending` shows it: the applied values, and the pending changes to them. A deleted
/// key reads `deleted`; unchanged keys are left out (pve-network, Network/SDN.pm:134).
fn pending_entry(
    section: SdnSection,
    id: &str,
    configured: Option<&Config>,
    applied: Option<&Config>,
) -> Value {
    let empty = Config::new();
    let mut entry = section_entry(section, id, applied.unwrap_or(&empty));
    let state = match (configured, applied) {
        (Some(_), None) => "new",
        (None, Some(_)) => "deleted",
        (Some(configured), Some(applied)) if configured != applied => "changed",
        _ => return entry.into(),
    };
    entry.insert("state".into(), state.into());
    let applied = applied.unwrap_or(&empty);
    let mut pending = Map::new();
    for (key, value) in configured.into_iter().flatten() {
        // Values that the name of a subnet implies are never pending (Network/SDN/Subnets.pm,
        // sdn_subnets_config).
        let of_name = matches!(key.as_str(), "cidr" | "network" | "mask" | "zone");
        if matches!(key.as_str(), "type" | "vnet") || (section == SdnSection::Subnet && of_name) {
            entry.insert(key.clone(), typed(key, value));
        } else if applied.get(key) != Some(value) {
            pending.insert(key.clone(), typed(key, value));
        }
    }
    if let Some(configured) = configured {
        let gone = applied.keys().filter(|key| !configured.contains_key(*key));
        pending.extend(gone.map(|key| (key.clone(), "deleted".into())));
    }
    entry.insert("pending".into(), pending.into());
    entry.into()
}

fn list_sections(ctx: &CallContext, section: SdnSection) -> Outcome {
    let (pending, running) = (ctx.flag("pending"), ctx.flag("running"));
    let kind = ctx.text("type");
    if section == SdnSection::Subnet {
        check_vnet_access(ctx, section, VIEW_PRIVILEGES)?;
    }
    let state = ctx.cluster.state();
    let (configured, applied) = section.configured_and_applied(&state.sdn);
    let mut ids: Vec<&String> = if running { applied } else { configured }.keys().collect();
    if pending {
        ids.extend(applied.keys().filter(|id| !configured.contains_key(*id)));
    }
    let mut lines: Vec<Value> = Vec::new();
    for id in ids {
        let (configured_config, applied_config) = (configured.get(id), applied.get(id));
        let Some(config) =
            (if running { applied_config } else { configured_config.or(applied_config) })
        else {
            continue;
        };
        let wanted = (kind.is_none() || config.get("type") == kind.as_ref())
            && (section != SdnSection::Subnet || config.get("vnet") == ctx.text("vnet").as_ref());
        if !wanted
            || (section != SdnSection::Subnet && !may_see(ctx, &path_of(section, id, config)))
        {
            continue;
        }
        lines.push(if pending {
            pending_entry(section, id, configured_config, applied_config)
        } else {
            section_entry(section, id, config).into()
        });
    }
    Ok(Answer::new(lines.into()))
}

fn get_section(ctx: &CallContext, section: SdnSection) -> Outcome {
    let id = ctx.text(section.key()).unwrap_or_default();
    check_vnet_access(ctx, section, VIEW_PRIVILEGES)?;
    let state = ctx.cluster.state();
    let (configured, applied) = section.configured_and_applied(&state.sdn);
    let source = if ctx.flag("running") { applied } else { configured };
    // `pending` still shows deleted sections.
    let found = source.get(&id).or_else(|| applied.get(&id).filter(|_| ctx.flag("pending")));
    let Some(config) = found else { return Err(failed(section.missing_error(&id))) };
    if section == SdnSection::Subnet && config.get("vnet") != ctx.text("vnet").as_ref() {
        return Err(ApiError::parameter("vnet", "wrong vnet"));
    }
    if ctx.flag("pending") {
        return Ok(Answer::new(pending_entry(section, &id, configured.get(&id), applied.get(&id))));
    }
    Ok(Answer::new(section_entry(section, &id, config).into()))
}

fn section_parameters(ctx: &CallContext, section: SdnSection) -> Config {
    sections::stored_parameters(ctx, &["delete", "digest", "lock-token", section.key()])
}

fn create_zone(ctx: &CallContext) -> Outcome {
    let id = ctx.text("zone").unwrap_or_default();
    let config = section_parameters(ctx, SdnSection::Zone);
    let keys = SdnSection::Zone.keys(ctx, &config).map_err(failed)?;
    keys.check_new(&config).map_err(failed)?;
    ctx.require_quorum()?;
    let what = SdnSection::Zone.error_prefix("create");
    let fail = |text: String| failed(format!("{what}: {text}"));
    let mut state = ctx.cluster.state();
    lock::check_token(ctx, &state.sdn, &what)?;
    if id == LOCAL_ZONE || state.sdn.zones.contains_key(&id) {
        return Err(fail(SdnSection::Zone.taken_error(&id)));
    }
    zones::check(&state.sdn, &id, (&config, &config), None).map_err(fail)?;
    state.sdn.zones.insert(id, config);
    Ok(Answer::null())
}

fn create_vnet(ctx: &CallContext) -> Outcome {
    let id = ctx.text("vnet").unwrap_or_default();
    ctx.require_quorum()?;
    let config = section_parameters(ctx, SdnSection::Vnet);
    let what = SdnSection::Vnet.error_prefix("create");
    let fail = |text: String| failed(format!("{what}: {text}"));
    let mut state = ctx.cluster.state();
    lock::check_token(ctx, &state.sdn, &what)?;
    vnets::KEYS.check_new(&config).map_err(fail)?;
    if state.sdn.vnets.contains_key(&id) {
        return Err(fail(SdnSection::Vnet.taken_error(&id)));
    }
    vnets::check(&state.sdn, &id, &config).map_err(fail)?;
    state.sdn.vnets.insert(id, config);
    Ok(Answer::null())
}

/// Creates a subnet. Its id consists of zone and network.
fn create_subnet(ctx: &CallContext) -> Outcome {
    let (vnet, cidr) = (ctx.text("vnet").unwrap_or_default(), ctx.text("subnet"));
    let cidr = cidr.unwrap_or_default();
    check_vnet_access(ctx, SdnSection::Subnet, ALLOCATE_PRIVILEGE)?;
    ctx.require_quorum()?;
    let mut config = section_parameters(ctx, SdnSection::Subnet);
    let what = SdnSection::Subnet.error_prefix("create");
    let fail = |text: String| failed(format!("{what}: {text}"));
    let mut state = ctx.cluster.state();
    lock::check_token(ctx, &state.sdn, &what)?;
    subnets::KEYS.check_new(&config).map_err(fail)?;
    let zone = state.sdn.vnets.get(&vnet).and_then(|vnet| vnet.get("zone")).cloned();
    let zone = zone.unwrap_or_default();
    let id = format!("{zone}-{}", cidr.replace('/', "-"));
    if state.sdn.subnets.contains_key(&id) {
        return Err(fail(SdnSection::Subnet.taken_error(&id)));
    }
    // The id implies these values (pve-network, Network/SDN/Subnets.pm, sdn_subnets_config).
    let (network, mask) = cidr.split_once('/').unwrap_or((cidr.as_str(), ""));
    let derived = [("cidr", &*cidr), ("network", network), ("mask", mask), ("zone", &zone)];
    config.extend(derived.map(|(key, value)| (key.to_owned(), value.to_owned())));
    subnets::check(&state.sdn, &config).map_err(fail)?;
    state.sdn.subnets.insert(id, config);
    Ok(Answer::null())
}

/// Deletes a subnet; deleting a missing one is no error.
fn delete_subnet(ctx: &CallContext) -> Outcome {
    let id = ctx.text("subnet").unwrap_or_default();
    check_vnet_access(ctx, SdnSection::Subnet, ALLOCATE_PRIVILEGE)?;
    let mut state = ctx.cluster.state();
    lock::check_token(ctx, &state.sdn, &SdnSection::Subnet.error_prefix("delete"))?;
    state.sdn.subnets.remove(&id);
    Ok(Answer::null())
}

fn change_section(ctx: &CallContext, section: SdnSection) -> Outcome {
    let id = ctx.text(section.key()).unwrap_or_default();
    check_vnet_access(ctx, section, ALLOCATE_PRIVILEGE)?;
    ctx.require_quorum()?;
    let set = section_parameters(ctx, section);
    let what = section.error_prefix("update");
    let fail = |text: String| failed(format!("{what}: {text}"));
    let mut state = ctx.cluster.state();
    lock::check_token(ctx, &state.sdn, &what)?;
    let Some(before) = section.configured_mut(&mut state.sdn).get(&id).cloned() else {
        return Err(fail(section.missing_error(&id)));
    };
    if ctx.text("digest").is_some_and(|wanted| wanted != digest(&before)) {
        let text = "detected modified configuration - file changed by other user? Try again.";
        return Err(fail(text.into()));
    }
    let keys = section.keys(ctx, &before).map_err(fail)?;
    keys.check_change(&set).map_err(fail)?;
    let deleted = sections::deleted_keys(ctx);
    keys.check_delete(&deleted).map_err(fail)?;
    sections::check_set_and_delete(ctx, &deleted).map_err(fail)?;
    let mut changed = before.clone();
    changed.retain(|key, _| !deleted.contains(key));
    changed.extend(set.clone());
    let sdn = &mut state.sdn;
    match section {
        SdnSection::Zone => {
            zones::check(sdn, &id, (&set, &changed), Some(&before)).map_err(fail)?
        }
        SdnSection::Vnet => {
            if before.get("zone") != changed.get("zone") && vnets::has_subnets(sdn, &id) {
                let text = "can't change zone if subnets exist";
                return Err(fail(sections::parameter_error("zone", text)));
            }
            vnets::check(sdn, &id, &changed).map_err(fail)?;
        }
        SdnSection::Subnet => subnets::check(sdn, &changed).map_err(fail)?,
    }
    section.configured_mut(sdn).insert(id, changed);
    Ok(Answer::null())
}

fn delete_zone(ctx: &CallContext) -> Outcome {
    let id = ctx.text("zone").unwrap_or_default();
    let what = SdnSection::Zone.error_prefix("delete");
    let fail = |text: String| failed(format!("{what}: {text}"));
    let mut state = ctx.cluster.state();
    lock::check_token(ctx, &state.sdn, &what)?;
    if !state.sdn.zones.contains_key(&id) {
        return Err(fail(SdnSection::Zone.missing_error(&id)));
    }
    if let Some((vnet, _)) = state.sdn.vnets.iter().find(|(_, v)| v.get("zone") == Some(&id)) {
        return Err(fail(format!("zone {id} is used by vnet {vnet}")));
    }
    state.sdn.zones.remove(&id);
    Ok(Answer::null())
}

fn delete_vnet(ctx: &CallContext) -> Outcome {
    let id = ctx.text("vnet").unwrap_or_default();
    check_vnet_access(ctx, SdnSection::Vnet, ALLOCATE_PRIVILEGE)?;
    let what = SdnSection::Vnet.error_prefix("delete");
    let mut state = ctx.cluster.state();
    lock::check_token(ctx, &state.sdn, &what)?;
    if vnets::has_subnets(&state.sdn, &id) {
        let text = sections::parameter_error("vnet", "Can't delete vnet if subnets exists");
        return Err(failed(format!("{what}: {text}")));
    }
    state.sdn.vnets.remove(&id);
    Ok(Answer::null())
}

/// `PUT /cluster/sdn`: the configuration counts as applied at once; a task activates it on all
/// nodes (pve-network, API2/Network/SDN.pm:261).
fn apply(ctx: &CallContext) -> Outcome {
    ctx.require_quorum()?;
    {
        let mut state = ctx.cluster.state();
        lock::check_token(ctx, &state.sdn, "could not commit SDN config")?;
        let sdn = &mut state.sdn;
        sdn.applied_zones.clone_from(&sdn.zones);
        sdn.applied_vnets.clone_from(&sdn.vnets);
        sdn.applied_subnets.clone_from(&sdn.subnets);
        lock::release_if_asked(ctx, sdn);
    }
    let cluster = ctx.cluster.clone();
    let at = ctx.call.received_by.clone();
    Ok(ctx.cluster.fork(
        &ctx.call.caller,
        &at.clone(),
        "reloadnetworkall",
        "",
        |worker| async move {
            cluster.simulate_work(&at, cluster.latency.config, None).await;
            let mut state = cluster.state();
            let sdn = &mut state.sdn;
            sdn.active_zones.clone_from(&sdn.applied_zones);
            sdn.active_vnets.clone_from(&sdn.applied_vnets);
            let names: Vec<String> = state.nodes.keys().cloned().collect();
            drop(state);
            for name in names {
                worker.log(format!("{name}: reloading network config"));
            }
            Ok(())
        },
    ))
}

/// `GET /nodes/{node}/sdn/zones`.
pub(crate) fn zones_of_node(ctx: &CallContext) -> Outcome {
    let state = ctx.cluster.state();
    let active = state.sdn.active_zones.iter();
    let here = active.filter(|(_, zone)| zone_is_on(zone, &ctx.node)).map(|(id, _)| id.as_str());
    let seen = here.chain([LOCAL_ZONE]).filter(|id| may_see(ctx, &format!("/sdn/zones/{id}")));
    let lines: Vec<Value> = seen.map(|id| json!({ "zone": id, "status": "available" })).collect();
    Ok(Answer::new(lines.into()))
}

/// `GET /nodes/{node}/sdn/zones/{zone}/content`: the VNets of a zone, or the bridges of the local
/// zone.
pub(crate) fn content(ctx: &CallContext) -> Outcome {
    let zone = ctx.text("zone").unwrap_or_default();
    let state = ctx.cluster.state();
    let names: Vec<String> = if zone == LOCAL_ZONE {
        state.nodes.get(&ctx.node).map(|node| node.spec.bridges.clone()).unwrap_or_default()
    } else if state.sdn.active_zones.contains_key(&zone) {
        let here = state.sdn.on_node(&ctx.node);
        here.filter(|(_, v)| v.get("zone") == Some(&zone)).map(|(id, _)| id.clone()).collect()
    } else {
        return Err(failed(format!("zone '{zone}' does not exist on this node")));
    };
    let line = |name: &String| json!({ "vnet": name, "status": "available" });
    Ok(Answer::new(names.iter().map(line).collect::<Vec<_>>().into()))
}
