//! A node's network interfaces: as they are, and as they will be after the next reload.
//!
//! Writes change the plan (`/etc/network/interfaces.new`); a reload makes the plan real, a revert
//! drops it. Guests find the bridges that are real.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::ask::{Ask, failed};
use super::conf::Config;
use super::state::Node;
use crate::call::{Answer, ApiError, Outcome};
use crate::spec::NodeSpec;

/// Interfaces by name.
type Interfaces = BTreeMap<String, Config>;

/// The interfaces of a node.
#[derive(Debug, Clone, Default)]
pub struct Network {
    real: Interfaces,
    plan: Option<Interfaces>,
}

impl Network {
    /// One card, and the bridges of the description on it.
    pub fn of(spec: &NodeSpec) -> Self {
        let pairs = |list: &[(&str, &str)]| -> Config {
            list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let card = pairs(&[
            ("type", "eth"),
            ("exists", "1"),
            ("method", "manual"),
            ("method6", "manual"),
            ("priority", "3"),
        ]);
        let mut real = Interfaces::from([("eth0".to_owned(), card)]);
        for (bridge, priority) in spec.bridges.iter().zip(4..) {
            let mut own = pairs(&[
                ("type", "bridge"),
                ("autostart", "1"),
                ("method", "static"),
                ("method6", "manual"),
                ("bridge_ports", "eth0"),
                ("bridge_stp", "off"),
                ("bridge_fd", "0"),
            ]);
            own.insert("priority".into(), priority.to_string());
            if spec.vlan_aware.contains(bridge) {
                own.insert("bridge_vlan_aware".into(), "1".into());
                own.insert("bridge_vids".into(), "2-4094".into());
            }
            real.insert(bridge.clone(), own);
        }
        Self { real, plan: None }
    }

    fn planned(&self) -> &Interfaces {
        self.plan.as_ref().unwrap_or(&self.real)
    }

    fn plan(&mut self) -> &mut Interfaces {
        let real = &self.real;
        self.plan.get_or_insert_with(|| real.clone())
    }
}

fn is_bridge(config: &Config) -> bool {
    config.get("type").is_some_and(|kind| matches!(kind.as_str(), "bridge" | "OVSBridge"))
}

/// A VLAN interface's device and its number, as far as they are known: `eth0.99` names both,
/// `vlan99` the number (pve-common, Network/Interfaces.pm:401). None for other interfaces.
fn vlan_of<'a>(name: &'a str, config: &'a Config) -> Option<(Option<&'a str>, Option<&'a str>)> {
    config.get("type").filter(|kind| *kind == "vlan")?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let of = |key: &str| config.get(key).map(String::as_str);
    if let Some((device, id)) = name.rsplit_once('.').filter(|(_, id)| is_number(id)) {
        return Some((Some(device), Some(id)));
    }
    let id = name.strip_prefix("vlan").filter(|id| is_number(id));
    Some((of("vlan-raw-device"), id.or_else(|| of("vlan-id"))))
}

/// An interface as answers carry it. The parser of the file makes numbers of these keys alone,
/// whatever the schema says.
fn shown(network: &Network, name: &str, config: &Config) -> Map<String, Value> {
    const NUMERIC: &[&str] = &["autostart", "bridge_vlan_aware", "exists", "priority"];
    let typed = |key: &str, value: &str| match value.parse::<i64>() {
        Ok(number) if NUMERIC.contains(&key) => number.into(),
        _ => Value::from(value),
    };
    let mut fields: Map<String, Value> =
        config.iter().map(|(key, value)| (key.clone(), typed(key, value))).collect();
    let mut families = Vec::new();
    for (address, mask, cidr, family) in
        [("address", "netmask", "cidr", "inet"), ("address6", "netmask6", "cidr6", "inet6")]
    {
        if let (Some(address), Some(mask)) = (config.get(address), config.get(mask)) {
            fields.insert(cidr.into(), format!("{address}/{mask}").into());
            families.push(family);
        }
    }
    if families.is_empty() {
        families.push("inet");
    }
    fields.insert("families".into(), families.into());
    if let Some((device, id)) = vlan_of(name, config) {
        if let Some(device) = device {
            let raw = network.planned().get(device);
            let exists = raw.map_or(Some("0"), |raw| raw.get("exists").map(String::as_str));
            fields
                .insert("exists".into(), exists.map_or(Value::Null, |text| typed("exists", text)));
            fields.insert("vlan-raw-device".into(), device.into());
        }
        if let Some(id) = id {
            fields.insert("vlan-id".into(), id.into());
        }
    }
    if network.real.contains_key(name) {
        fields.insert("active".into(), 1.into());
    }
    fields
}

/// `GET /nodes/{node}/network`: the plan; bridges and VNets only for those who may use or see them.
pub fn list(ask: &Ask) -> Outcome {
    let wanted = ask.text("type");
    let state = ask.cluster.state();
    let node = state.nodes.get(&ask.node).ok_or_else(|| missing_node(ask))?;
    let sees = |zone: &str, bridge: &str| {
        let path = format!("/sdn/zones/{zone}/{bridge}");
        ask.has(&path, "SDN.Audit") || ask.has(&path, "SDN.Use")
    };
    let mut devices = Vec::new();
    for (name, config) in node.network.planned() {
        let kind = config.get("type").map(String::as_str).unwrap_or_default();
        let wants = match wanted.as_deref() {
            None | Some("include_sdn") => true,
            Some("any_bridge" | "any_local_bridge") => is_bridge(config),
            Some(wanted) => wanted == kind,
        };
        if wants && (!is_bridge(config) || sees(super::sdn::LOCAL, name)) {
            let mut device = shown(&node.network, name, config);
            device.insert("iface".into(), name.clone().into());
            devices.push(Value::from(device));
        }
    }
    // VNets are only listed where they are asked for.
    if matches!(wanted.as_deref(), Some("any_bridge" | "include_sdn" | "vnet")) {
        for (vnet, config) in state.sdn.on_node(&ask.node) {
            let zone = config.get("zone").map(String::as_str).unwrap_or_default();
            if sees(zone, vnet) {
                let mut device = json!({ "iface": vnet, "type": "vnet", "active": 1 });
                if let Some(alias) = config.get("alias") {
                    device["comments"] = alias.clone().into();
                }
                devices.push(device);
            }
        }
    }
    Ok(Answer::new(devices.into()))
}

fn missing_node(ask: &Ask) -> ApiError {
    failed(format!("no such node '{}'", ask.node))
}

/// `GET …/network/{iface}`.
pub fn one(ask: &Ask) -> Outcome {
    let name = ask.text("iface").unwrap_or_default();
    let state = ask.cluster.state();
    let network = &state.nodes.get(&ask.node).ok_or_else(|| missing_node(ask))?.network;
    match network.planned().get(&name) {
        Some(config) => Ok(Answer::new(shown(network, &name, config).into())),
        None => Err(ApiError::parameter("iface", "interface does not exist")),
    }
}

/// Parameters that are stored: an address with its length becomes both, and lists are parted by
/// blanks (pve-manager, API2/Network.pm, map_cidr_to_address_netmask).
fn stored(ask: &Ask) -> Config {
    let left_out = ["node", "iface", "delete"];
    let keys = ask.params().0.keys().filter(|key| !left_out.contains(&key.as_str()));
    let mut config: Config = keys.filter_map(|key| Some((key.clone(), ask.text(key)?))).collect();
    for (cidr, address, mask) in [("cidr", "address", "netmask"), ("cidr6", "address6", "netmask6")]
    {
        if let Some((ip, bits)) = config.remove(cidr).as_deref().and_then(|c| c.split_once('/')) {
            config.insert(address.into(), ip.to_owned());
            config.insert(mask.into(), bits.to_owned());
        }
    }
    for key in ["bridge_ports", "bridge_vids", "slaves", "ovs_ports", "ovs_bonds"] {
        if let Some(list) = config.get_mut(key) {
            let words = list.split([',', ';', ' ']).filter(|word| !word.is_empty());
            *list = words.collect::<Vec<_>>().join(" ");
        }
    }
    for key in ["comments", "comments6"] {
        // Comments are lines of the file.
        if let Some(text) = config.get_mut(key).filter(|text| !text.is_empty()) {
            *text = format!("{}\n", text.trim_end_matches('\n'));
        }
    }
    let method = |key: &str| if config.contains_key(key) { "static" } else { "manual" }.to_owned();
    let methods = [("method", method("address")), ("method6", method("address6"))];
    config.extend(methods.map(|(key, value)| (key.to_owned(), value)));
    if config.get("type").is_some_and(|kind| kind == "bridge") {
        for (key, value) in [("bridge_ports", ""), ("bridge_stp", "off"), ("bridge_fd", "0")] {
            config.entry(key.into()).or_insert_with(|| value.into());
        }
        if config.get("bridge_vlan_aware").is_some_and(|aware| aware == "1") {
            config.entry("bridge_vids".into()).or_insert_with(|| "2-4094".into());
        }
    }
    config
}

/// Refuses a VLAN on a device that is not there (pve-common, Network/Interfaces.pm:939).
fn on_a_device(plan: &Interfaces, name: &str, config: &Config) -> Result<(), ApiError> {
    let Some((device, id)) = vlan_of(name, config) else { return Ok(()) };
    let Some(device) = device else { return Err(failed("missing vlan-raw-device option".into())) };
    let Some(id) = id else { return Err(failed("missing vlan-id option".into())) };
    if id.parse::<u32>().is_ok_and(|id| id > 4094) {
        return Err(failed(format!("vlan '{name}' - vlan-id {id} should be <= 4094")));
    }
    if !plan.contains_key(device) {
        return Err(failed(format!("vlan '{name}' - unable to find parent '{device}'")));
    }
    Ok(())
}

/// What two interfaces cannot both have.
fn sound(plan: &Interfaces, name: &str, config: &Config) -> Result<(), ApiError> {
    let others = || plan.iter().filter(|(other, _)| *other != name);
    for (key, shown) in [("gateway", "Default gateway"), ("gateway6", "Default ipv6 gateway")] {
        if !config.contains_key(key) {
            continue;
        }
        if let Some((other, _)) = others().find(|(_, other)| other.contains_key(key)) {
            let text = format!("{shown} already exists on interface '{other}'.");
            return Err(ApiError::parameter(key, text));
        }
    }
    let lists = ["bridge_ports", "ovs_ports", "slaves", "ovs_bonds"];
    let ports = |config: &Config| -> Vec<String> {
        let lists = lists.iter().filter_map(|key| config.get(*key));
        lists.flat_map(|list| list.split(' ')).map(str::to_owned).collect()
    };
    let Some(key) = lists.iter().find(|key| config.contains_key(**key)) else { return Ok(()) };
    for port in ports(config).iter().filter(|port| !port.is_empty()) {
        if let Some((other, _)) = others().find(|(_, other)| ports(other).contains(port)) {
            let text = format!("{port} is already used on interface '{other}'.");
            return Err(ApiError::parameter(key, text));
        }
    }
    Ok(())
}

fn planning(ask: &Ask, act: impl FnOnce(&mut Interfaces) -> Result<(), ApiError>) -> Outcome {
    let mut state = ask.cluster.state();
    let node: &mut Node = state.nodes.get_mut(&ask.node).ok_or_else(|| missing_node(ask))?;
    let mut network = node.network.clone();
    act(network.plan())?;
    // The whole file is checked with each write.
    let plan = network.planned();
    for (name, config) in plan {
        on_a_device(plan, name, config)?;
    }
    node.network = network;
    Ok(Answer::null())
}

/// `POST …/network`.
pub fn create(ask: &Ask) -> Outcome {
    let name = ask.text("iface").unwrap_or_default();
    let mut config = stored(ask);
    planning(ask, |plan| {
        if plan.contains_key(&name) {
            return Err(ApiError::parameter("iface", "interface already exists"));
        }
        sound(plan, &name, &config)?;
        config.insert("priority".into(), (plan.len() + 3).to_string());
        plan.insert(name, config);
        Ok(())
    })
}

/// `PUT …/network/{iface}`.
pub fn change(ask: &Ask) -> Outcome {
    let name = ask.text("iface").unwrap_or_default();
    let set = stored(ask);
    let delete = ask.text("delete").unwrap_or_default();
    planning(ask, |plan| {
        if !plan.contains_key(&name) {
            return Err(ApiError::parameter("iface", "interface does not exist"));
        }
        sound(plan, &name, &set)?;
        let own = plan.entry(name).or_default();
        // A name that is no key is passed over (pve-manager, API2/Network.pm:754).
        for key in delete.split([',', ';', ' ']) {
            own.remove(key);
            if let Some(six) = key.strip_prefix("cidr") {
                own.remove(&format!("address{six}"));
                own.remove(&format!("netmask{six}"));
            }
        }
        own.extend(set);
        Ok(())
    })
}

/// `DELETE …/network/{iface}`.
pub fn remove(ask: &Ask) -> Outcome {
    let name = ask.text("iface").unwrap_or_default();
    planning(ask, |plan| match plan.remove(&name) {
        Some(_) => Ok(()),
        None => Err(ApiError::parameter("iface", "interface does not exist")),
    })
}

/// `DELETE …/network`: drops the plan.
pub fn revert(ask: &Ask) -> Outcome {
    let mut state = ask.cluster.state();
    let node = state.nodes.get_mut(&ask.node).ok_or_else(|| missing_node(ask))?;
    node.network.plan = None;
    Ok(Answer::null())
}

/// `PUT …/network`: a task that makes the plan real.
pub fn reload(ask: &Ask) -> Outcome {
    let (cluster, name) = (ask.cluster.clone(), ask.node.clone());
    let caller = &ask.call.caller;
    Ok(ask.cluster.fork(caller, &ask.node, "srvreload", "networking", |_| async move {
        cluster.work(&name, cluster.latency.config, None).await;
        let mut state = cluster.state();
        let Some(node) = state.nodes.get_mut(&name) else { return Ok(()) };
        if let Some(plan) = node.network.plan.take() {
            let bridges = plan.iter().filter(|(_, config)| is_bridge(config));
            node.spec.bridges = bridges.clone().map(|(bridge, _)| bridge.clone()).collect();
            let aware = bridges.filter(|(_, config)| config.contains_key("bridge_vlan_aware"));
            node.spec.vlan_aware = aware.map(|(bridge, _)| bridge.clone()).collect();
            node.network.real = plan;
        }
        Ok(())
    }))
}
