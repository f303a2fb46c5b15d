//! Software-defined networks: zones, VNets and subnets, as configured, as applied, and as the nodes
//! have them.

mod lock;
mod ranges;
mod subnets;
mod vnets;
mod zones;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::ask::{Ask, failed};
use super::conf::{Config, digest};
use super::sections::{self, Keys};
use super::state::State;
use crate::call::{Answer, ApiError, Outcome};

/// The zone of plain bridges.
pub const LOCAL: &str = "localnetwork";

/// Sections by name.
type Sections = BTreeMap<String, Config>;

/// Zones, VNets and subnets.
#[derive(Debug, Default)]
pub struct Sdn {
    zones: Sections,
    vnets: Sections,
    subnets: Sections,
    applied_zones: Sections,
    applied_vnets: Sections,
    applied_subnets: Sections,
    /// What the nodes have since they last reloaded their networks.
    live_zones: Sections,
    live_vnets: Sections,
    /// The token of the global lock, while somebody holds it.
    lock: Option<String>,
}

impl Sdn {
    /// The zone that a bridge of this name is in.
    pub fn zone_of(&self, bridge: &str) -> String {
        let vnet = self.vnets.get(bridge).or_else(|| self.applied_vnets.get(bridge));
        vnet.and_then(|vnet| vnet.get("zone").cloned()).unwrap_or_else(|| LOCAL.into())
    }

    /// The VNets that a node has, with their zones.
    pub fn on_node(&self, node: &str) -> impl Iterator<Item = (&String, &Config)> {
        let node = node.to_owned();
        self.live_vnets.iter().filter(move |(_, vnet)| {
            let zone = vnet.get("zone").and_then(|zone| self.live_zones.get(zone));
            zone.is_some_and(|zone| zone_is_on(zone, &node))
        })
    }

    /// Whether something is configured otherwise than it was last applied.
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
    /// Whether guests on a node can be put on a bridge or VNet of this name.
    pub fn has_bridge(&self, node: &str, bridge: &str) -> bool {
        let plain = self
            .nodes
            .get(node)
            .is_none_or(|node| node.spec.bridges.iter().any(|name| name == bridge));
        plain || self.sdn.on_node(node).any(|(name, _)| name == bridge)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Zone,
    Vnet,
    Subnet,
}

impl Part {
    fn key(self) -> &'static str {
        match self {
            Self::Zone => "zone",
            Self::Vnet => "vnet",
            Self::Subnet => "subnet",
        }
    }

    fn now(self, sdn: &mut Sdn) -> &mut Sections {
        match self {
            Self::Zone => &mut sdn.zones,
            Self::Vnet => &mut sdn.vnets,
            Self::Subnet => &mut sdn.subnets,
        }
    }

    fn both(self, sdn: &Sdn) -> (&Sections, &Sections) {
        match self {
            Self::Zone => (&sdn.zones, &sdn.applied_zones),
            Self::Vnet => (&sdn.vnets, &sdn.applied_vnets),
            Self::Subnet => (&sdn.subnets, &sdn.applied_subnets),
        }
    }

    fn missing(self, id: &str) -> String {
        match self {
            Self::Zone => format!("sdn '{id}' does not exist"),
            Self::Vnet | Self::Subnet => format!("sdn {} '{id}' does not exist", self.key()),
        }
    }

    fn taken(self, id: &str) -> String {
        format!("sdn {} object ID '{id}' already defined", self.key())
    }

    /// What is said of a write that fails under the lock.
    fn failing(self, verb: &str) -> String {
        format!("{verb} sdn {} object failed", self.key())
    }

    /// The keys of a section (pve-network, `options` of the plugins).
    fn keys(self, ask: &Ask, config: &Config) -> Result<Keys, String> {
        let kind = config.get("type").map(String::as_str).unwrap_or_default();
        match self {
            Self::Zone => zones::keys(kind, ask.cluster.version)
                .ok_or_else(|| format!("unknown section type '{kind}'")),
            Self::Vnet => Ok(vnets::KEYS),
            Self::Subnet => Ok(subnets::KEYS),
        }
    }
}

/// Serves a call below `/cluster/sdn`; none for routes that are not served.
pub fn serve(ask: &Ask, rest: &str) -> Option<Outcome> {
    let outcome = match (ask.call.method, rest) {
        ("GET", "") => Ok(Answer::new(json!([{ "id": "zones" }, { "id": "vnets" }]))),
        ("PUT", "") => apply(ask),
        ("POST", "/lock") => lock::take(ask),
        ("DELETE", "/lock") => lock::release(ask),
        ("POST", "/rollback") => lock::roll_back(ask),
        ("GET", "/zones") => list(ask, Part::Zone),
        ("POST", "/zones") => create_zone(ask),
        ("GET", "/zones/{zone}") => one(ask, Part::Zone),
        ("PUT", "/zones/{zone}") => change(ask, Part::Zone),
        ("DELETE", "/zones/{zone}") => delete_zone(ask),
        ("GET", "/vnets") => list(ask, Part::Vnet),
        ("POST", "/vnets") => create_vnet(ask),
        ("GET", "/vnets/{vnet}") => one(ask, Part::Vnet),
        ("PUT", "/vnets/{vnet}") => change(ask, Part::Vnet),
        ("DELETE", "/vnets/{vnet}") => delete_vnet(ask),
        ("GET", "/vnets/{vnet}/subnets") => list(ask, Part::Subnet),
        ("POST", "/vnets/{vnet}/subnets") => create_subnet(ask),
        ("GET", "/vnets/{vnet}/subnets/{subnet}") => one(ask, Part::Subnet),
        ("PUT", "/vnets/{vnet}/subnets/{subnet}") => change(ask, Part::Subnet),
        ("DELETE", "/vnets/{vnet}/subnets/{subnet}") => delete_subnet(ask),
        _ => return None,
    };
    Some(outcome)
}

/// The access path of a section.
fn path_of(part: Part, id: &str, config: &Config) -> String {
    match part {
        Part::Zone => format!("/sdn/zones/{id}"),
        Part::Vnet => {
            let zone = config.get("zone").map(String::as_str).unwrap_or_default();
            format!("/sdn/zones/{zone}/{id}")
        }
        Part::Subnet => {
            let of = |key: &str| config.get(key).map(String::as_str).unwrap_or_default();
            format!("/sdn/zones/{}/{}", of("zone"), of("vnet"))
        }
    }
}

const SEE: &[&str] = &["SDN.Audit", "SDN.Allocate"];
const ALLOCATE: &[&str] = &["SDN.Allocate"];

fn sees(ask: &Ask, path: &str) -> bool {
    SEE.iter().any(|privilege| ask.has(path, privilege))
}

/// Requires one of these privileges on the VNet of a call, as it is configured (pve-network,
/// API2/Network/SDN/Vnets.pm, check_vnet_access). The route checks those on zones.
fn may(ask: &Ask, part: Part, privileges: &[&str]) -> Result<(), ApiError> {
    if part == Part::Zone {
        return Ok(());
    }
    let id = ask.text("vnet").unwrap_or_default();
    let path = match ask.cluster.state().sdn.vnets.get(&id) {
        Some(vnet) => path_of(Part::Vnet, &id, vnet),
        None => return Err(failed(Part::Vnet.missing(&id))),
    };
    ask.check_any(&path, privileges)
}

fn line(part: Part, id: &str, config: &Config) -> Map<String, Value> {
    let mut entry: Map<String, Value> =
        config.iter().map(|(key, value)| (key.clone(), typed(key, value))).collect();
    entry.insert(part.key().into(), id.into());
    entry.insert("digest".into(), digest(config).into());
    if part != Part::Zone {
        entry.insert("type".into(), part.key().into());
    }
    if part == Part::Subnet {
        entry.insert("id".into(), id.into());
        entry.insert(ranges::KEY.into(), ranges::shown(config));
    }
    entry
}

fn typed(key: &str, text: &str) -> Value {
    sections::typed(|path| path.starts_with("/cluster/sdn"), key, text)
}

/// A section as `pending` shows it: as it is applied, with what will become of it. A key that was
/// taken out reads `deleted`, and keys that stay as they are do not show (pve-network,
/// Network/SDN.pm:134).
fn pending_line(part: Part, id: &str, now: Option<&Config>, applied: Option<&Config>) -> Value {
    let empty = Config::new();
    let mut entry = line(part, id, applied.unwrap_or(&empty));
    let state = match (now, applied) {
        (Some(_), None) => "new",
        (None, Some(_)) => "deleted",
        (Some(now), Some(applied)) if now != applied => "changed",
        _ => return entry.into(),
    };
    entry.insert("state".into(), state.into());
    let applied = applied.unwrap_or(&empty);
    let mut pending = Map::new();
    for (key, value) in now.into_iter().flatten() {
        // What a subnet's name says is never pending (Network/SDN/Subnets.pm, sdn_subnets_config).
        let of_name = matches!(key.as_str(), "cidr" | "network" | "mask" | "zone");
        if matches!(key.as_str(), "type" | "vnet") || (part == Part::Subnet && of_name) {
            entry.insert(key.clone(), typed(key, value));
        } else if applied.get(key) != Some(value) {
            pending.insert(key.clone(), typed(key, value));
        }
    }
    if let Some(now) = now {
        let gone = applied.keys().filter(|key| !now.contains_key(*key));
        pending.extend(gone.map(|key| (key.clone(), "deleted".into())));
    }
    entry.insert("pending".into(), pending.into());
    entry.into()
}

fn list(ask: &Ask, part: Part) -> Outcome {
    let (pending, running) = (ask.flag("pending"), ask.flag("running"));
    let kind = ask.text("type");
    if part == Part::Subnet {
        may(ask, part, SEE)?;
    }
    let state = ask.cluster.state();
    let (now, applied) = part.both(&state.sdn);
    let mut ids: Vec<&String> = if running { applied } else { now }.keys().collect();
    if pending {
        ids.extend(applied.keys().filter(|id| !now.contains_key(*id)));
    }
    let mut lines: Vec<Value> = Vec::new();
    for id in ids {
        let (mine, theirs) = (now.get(id), applied.get(id));
        let Some(config) = (if running { theirs } else { mine.or(theirs) }) else { continue };
        let wanted = (kind.is_none() || config.get("type") == kind.as_ref())
            && (part != Part::Subnet || config.get("vnet") == ask.text("vnet").as_ref());
        if !wanted || (part != Part::Subnet && !sees(ask, &path_of(part, id, config))) {
            continue;
        }
        lines.push(if pending {
            pending_line(part, id, mine, theirs)
        } else {
            line(part, id, config).into()
        });
    }
    Ok(Answer::new(lines.into()))
}

fn one(ask: &Ask, part: Part) -> Outcome {
    let id = ask.text(part.key()).unwrap_or_default();
    may(ask, part, SEE)?;
    let state = ask.cluster.state();
    let (now, applied) = part.both(&state.sdn);
    let source = if ask.flag("running") { applied } else { now };
    // What is deleted still shows among what is pending.
    let found = source.get(&id).or_else(|| applied.get(&id).filter(|_| ask.flag("pending")));
    let Some(config) = found else { return Err(failed(part.missing(&id))) };
    if part == Part::Subnet && config.get("vnet") != ask.text("vnet").as_ref() {
        return Err(ApiError::parameter("vnet", "wrong vnet"));
    }
    if ask.flag("pending") {
        return Ok(Answer::new(pending_line(part, &id, now.get(&id), applied.get(&id))));
    }
    Ok(Answer::new(line(part, &id, config).into()))
}

fn stored(ask: &Ask, part: Part) -> Config {
    sections::stored(ask, &["delete", "digest", "lock-token", part.key()])
}

fn create_zone(ask: &Ask) -> Outcome {
    let id = ask.text("zone").unwrap_or_default();
    let config = stored(ask, Part::Zone);
    let keys = Part::Zone.keys(ask, &config).map_err(failed)?;
    keys.check_new(&config).map_err(failed)?;
    ask.quorate()?;
    let what = Part::Zone.failing("create");
    let fail = |text: String| failed(format!("{what}: {text}"));
    let mut state = ask.cluster.state();
    lock::admit(ask, &state.sdn, &what)?;
    if id == LOCAL || state.sdn.zones.contains_key(&id) {
        return Err(fail(Part::Zone.taken(&id)));
    }
    zones::sound(&state.sdn, &id, (&config, &config), None).map_err(fail)?;
    state.sdn.zones.insert(id, config);
    Ok(Answer::null())
}

fn create_vnet(ask: &Ask) -> Outcome {
    let id = ask.text("vnet").unwrap_or_default();
    ask.quorate()?;
    let config = stored(ask, Part::Vnet);
    let what = Part::Vnet.failing("create");
    let fail = |text: String| failed(format!("{what}: {text}"));
    let mut state = ask.cluster.state();
    lock::admit(ask, &state.sdn, &what)?;
    vnets::KEYS.check_new(&config).map_err(fail)?;
    if state.sdn.vnets.contains_key(&id) {
        return Err(fail(Part::Vnet.taken(&id)));
    }
    vnets::sound(&state.sdn, &id, &config).map_err(fail)?;
    state.sdn.vnets.insert(id, config);
    Ok(Answer::null())
}

/// A subnet is named by its zone and its network, and is allocated in its VNet's zone.
fn create_subnet(ask: &Ask) -> Outcome {
    let (vnet, cidr) = (ask.text("vnet").unwrap_or_default(), ask.text("subnet"));
    let cidr = cidr.unwrap_or_default();
    may(ask, Part::Subnet, ALLOCATE)?;
    ask.quorate()?;
    let mut config = stored(ask, Part::Subnet);
    let what = Part::Subnet.failing("create");
    let fail = |text: String| failed(format!("{what}: {text}"));
    let mut state = ask.cluster.state();
    lock::admit(ask, &state.sdn, &what)?;
    subnets::KEYS.check_new(&config).map_err(fail)?;
    let zone = state.sdn.vnets.get(&vnet).and_then(|vnet| vnet.get("zone")).cloned();
    let zone = zone.unwrap_or_default();
    let id = format!("{zone}-{}", cidr.replace('/', "-"));
    if state.sdn.subnets.contains_key(&id) {
        return Err(fail(Part::Subnet.taken(&id)));
    }
    // Its name says these (pve-network, Network/SDN/Subnets.pm, sdn_subnets_config).
    let (network, mask) = cidr.split_once('/').unwrap_or((cidr.as_str(), ""));
    let told = [("cidr", &*cidr), ("network", network), ("mask", mask), ("zone", &zone)];
    config.extend(told.map(|(key, value)| (key.to_owned(), value.to_owned())));
    subnets::sound(&state.sdn, &config).map_err(fail)?;
    state.sdn.subnets.insert(id, config);
    Ok(Answer::null())
}

/// Removes a subnet; one that is not there is none to complain of.
fn delete_subnet(ask: &Ask) -> Outcome {
    let id = ask.text("subnet").unwrap_or_default();
    may(ask, Part::Subnet, ALLOCATE)?;
    let mut state = ask.cluster.state();
    lock::admit(ask, &state.sdn, &Part::Subnet.failing("delete"))?;
    state.sdn.subnets.remove(&id);
    Ok(Answer::null())
}

fn change(ask: &Ask, part: Part) -> Outcome {
    let id = ask.text(part.key()).unwrap_or_default();
    may(ask, part, ALLOCATE)?;
    ask.quorate()?;
    let set = stored(ask, part);
    let what = part.failing("update");
    let fail = |text: String| failed(format!("{what}: {text}"));
    let mut state = ask.cluster.state();
    lock::admit(ask, &state.sdn, &what)?;
    let Some(before) = part.now(&mut state.sdn).get(&id).cloned() else {
        return Err(fail(part.missing(&id)));
    };
    if ask.text("digest").is_some_and(|wanted| wanted != digest(&before)) {
        let text = "detected modified configuration - file changed by other user? Try again.";
        return Err(fail(text.into()));
    }
    let keys = part.keys(ask, &before).map_err(fail)?;
    keys.check_change(&set).map_err(fail)?;
    let deleted = sections::deleted(ask);
    keys.check_delete(&deleted).map_err(fail)?;
    sections::set_apart(ask, &deleted).map_err(fail)?;
    let mut fresh = before.clone();
    fresh.retain(|key, _| !deleted.contains(key));
    fresh.extend(set.clone());
    let sdn = &mut state.sdn;
    match part {
        Part::Zone => zones::sound(sdn, &id, (&set, &fresh), Some(&before)).map_err(fail)?,
        Part::Vnet => {
            if before.get("zone") != fresh.get("zone") && vnets::has_subnets(sdn, &id) {
                let text = "can't change zone if subnets exist";
                return Err(fail(sections::refusal("zone", text)));
            }
            vnets::sound(sdn, &id, &fresh).map_err(fail)?;
        }
        Part::Subnet => subnets::sound(sdn, &fresh).map_err(fail)?,
    }
    part.now(sdn).insert(id, fresh);
    Ok(Answer::null())
}

fn delete_zone(ask: &Ask) -> Outcome {
    let id = ask.text("zone").unwrap_or_default();
    let what = Part::Zone.failing("delete");
    let fail = |text: String| failed(format!("{what}: {text}"));
    let mut state = ask.cluster.state();
    lock::admit(ask, &state.sdn, &what)?;
    if !state.sdn.zones.contains_key(&id) {
        return Err(fail(Part::Zone.missing(&id)));
    }
    if let Some((vnet, _)) = state.sdn.vnets.iter().find(|(_, v)| v.get("zone") == Some(&id)) {
        return Err(fail(format!("zone {id} is used by vnet {vnet}")));
    }
    state.sdn.zones.remove(&id);
    Ok(Answer::null())
}

fn delete_vnet(ask: &Ask) -> Outcome {
    let id = ask.text("vnet").unwrap_or_default();
    may(ask, Part::Vnet, ALLOCATE)?;
    let what = Part::Vnet.failing("delete");
    let mut state = ask.cluster.state();
    lock::admit(ask, &state.sdn, &what)?;
    if vnets::has_subnets(&state.sdn, &id) {
        let text = sections::refusal("vnet", "Can't delete vnet if subnets exists");
        return Err(failed(format!("{what}: {text}")));
    }
    state.sdn.vnets.remove(&id);
    Ok(Answer::null())
}

/// `PUT /cluster/sdn`: the configuration counts as applied at once, and a task makes it real on all
/// nodes (pve-network, API2/Network/SDN.pm:261).
fn apply(ask: &Ask) -> Outcome {
    ask.quorate()?;
    {
        let mut state = ask.cluster.state();
        lock::admit(ask, &state.sdn, "could not commit SDN config")?;
        let sdn = &mut state.sdn;
        sdn.applied_zones.clone_from(&sdn.zones);
        sdn.applied_vnets.clone_from(&sdn.vnets);
        sdn.applied_subnets.clone_from(&sdn.subnets);
        lock::let_go(ask, sdn);
    }
    let cluster = ask.cluster.clone();
    let at = ask.call.received_by.clone();
    Ok(ask.cluster.fork(
        &ask.call.caller,
        &at.clone(),
        "reloadnetworkall",
        "",
        |worker| async move {
            cluster.work(&at, cluster.latency.config, None).await;
            let mut state = cluster.state();
            let sdn = &mut state.sdn;
            sdn.live_zones.clone_from(&sdn.applied_zones);
            sdn.live_vnets.clone_from(&sdn.applied_vnets);
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
pub fn zones_of_node(ask: &Ask) -> Outcome {
    let state = ask.cluster.state();
    let live = state.sdn.live_zones.iter();
    let here = live.filter(|(_, zone)| zone_is_on(zone, &ask.node)).map(|(id, _)| id.as_str());
    let seen = here.chain([LOCAL]).filter(|id| sees(ask, &format!("/sdn/zones/{id}")));
    let lines: Vec<Value> = seen.map(|id| json!({ "zone": id, "status": "available" })).collect();
    Ok(Answer::new(lines.into()))
}

/// `GET /nodes/{node}/sdn/zones/{zone}/content`: its VNets, or the bridges of the local zone.
pub fn content(ask: &Ask) -> Outcome {
    let zone = ask.text("zone").unwrap_or_default();
    let state = ask.cluster.state();
    let names: Vec<String> = if zone == LOCAL {
        state.nodes.get(&ask.node).map(|node| node.spec.bridges.clone()).unwrap_or_default()
    } else if state.sdn.live_zones.contains_key(&zone) {
        let here = state.sdn.on_node(&ask.node);
        here.filter(|(_, v)| v.get("zone") == Some(&zone)).map(|(id, _)| id.clone()).collect()
    } else {
        return Err(failed(format!("zone '{zone}' does not exist on this node")));
    };
    let line = |name: &String| json!({ "vnet": name, "status": "available" });
    Ok(Answer::new(names.iter().map(line).collect::<Vec<_>>().into()))
}
