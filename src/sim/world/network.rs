//! The network interfaces of a node: active, and pending until the next reload.
//!
//! Writes change the pending configuration (`/etc/network/interfaces.new`) and check all of it. A
//! reload activates it, a revert drops it. Guests use the active bridges.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::conf::Config;
use super::context::{CallContext, failed};
use super::state::Node;
use crate::call::{Answer, ApiError, Outcome};
use crate::spec::NodeSpec;

type Interfaces = BTreeMap<String, Config>;

#[derive(Debug, Clone, Default)]
pub(crate) struct Network {
    active: Interfaces,
    pending: Option<Interfaces>,
}

impl Network {
    /// One network card, and the bridges of the node's description on it.
    pub(crate) fn of(spec: &NodeSpec) -> Self {
        let pairs = |list: &[(&str, &str)]| -> Config {
            list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let nic = pairs(&[
            ("type", "eth"),
            ("exists", "1"),
            ("method", "manual"),
            ("method6", "manual"),
            ("priority", "3"),
        ]);
        let mut active = Interfaces::from([("eth0".to_owned(), nic)]);
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
            active.insert(bridge.clone(), own);
        }
        Self { active, pending: None }
    }

    fn pending_or_active(&self) -> &Interfaces {
        self.pending.as_ref().unwrap_or(&self.active)
    }

    fn pending_mut(&mut self) -> &mut Interfaces {
        let active = &self.active;
        self.pending.get_or_insert_with(|| active.clone())
    }
}

fn is_bridge(config: &Config) -> bool {
    config.get("type").is_some_and(|kind| matches!(kind.as_str(), "bridge" | "OVSBridge"))
}

/// The device and the number of a VLAN interface, as far as they are known: `eth0.99` names both,
/// `vlan99` names the number (pve-common, Network/Interfaces.pm:401). None for other interfaces.
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

/// The fields of an interface in an answer. The parser of the file converts only these keys to
/// numbers, whatever the schema says.
fn interface_fields(network: &Network, name: &str, config: &Config) -> Map<String, Value> {
    const NUMERIC_KEYS: &[&str] = &["autostart", "bridge_vlan_aware", "exists", "priority"];
    let typed = |key: &str, value: &str| match value.parse::<i64>() {
        Ok(number) if NUMERIC_KEYS.contains(&key) => number.into(),
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
            let raw = network.pending_or_active().get(device);
            let exists = raw.map_or(Some("0"), |raw| raw.get("exists").map(String::as_str));
            fields
                .insert("exists".into(), exists.map_or(Value::Null, |text| typed("exists", text)));
            fields.insert("vlan-raw-device".into(), device.into());
        }
        if let Some(id) = id {
            fields.insert("vlan-id".into(), id.into());
        }
    }
    if network.active.contains_key(name) {
        fields.insert("active".into(), 1.into());
    }
    fields
}

/// `GET /nodes/{node}/network`: the pending configuration. Bridges and VNets need a privilege.
pub(crate) fn list(ctx: &CallContext) -> Outcome {
    let wanted = ctx.text("type");
    let state = ctx.cluster.state();
    let node = state.nodes.get(&ctx.node).ok_or_else(|| missing_node(ctx))?;
    let may_see = |zone: &str, bridge: &str| {
        let path = format!("/sdn/zones/{zone}/{bridge}");
        ctx.has(&path, "SDN.Audit") || ctx.has(&path, "SDN.Use")
    };
    let mut devices = Vec::new();
    for (name, config) in node.network.pending_or_active() {
        let kind = config.get("type").map(String::as_str).unwrap_or_default();
        let wants = match wanted.as_deref() {
            None | Some("include_sdn") => true,
            Some("any_bridge" | "any_local_bridge") => is_bridge(config),
            Some(wanted) => wanted == kind,
        };
        if wants && (!is_bridge(config) || may_see(super::sdn::LOCAL_ZONE, name)) {
            let mut device = interface_fields(&node.network, name, config);
            device.insert("iface".into(), name.clone().into());
            devices.push(Value::from(device));
        }
    }
    // Proxmox lists VNets only on request.
    if matches!(wanted.as_deref(), Some("any_bridge" | "include_sdn" | "vnet")) {
        for (vnet, config) in state.sdn.on_node(&ctx.node) {
            let zone = config.get("zone").map(String::as_str).unwrap_or_default();
            if may_see(zone, vnet) {
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

fn missing_node(ctx: &CallContext) -> ApiError {
    failed(format!("no such node '{}'", ctx.node))
}

/// `GET …/network/{iface}`.
pub(crate) fn get(ctx: &CallContext) -> Outcome {
    let name = ctx.text("iface").unwrap_or_default();
    let state = ctx.cluster.state();
    let network = &state.nodes.get(&ctx.node).ok_or_else(|| missing_node(ctx))?.network;
    match network.pending_or_active().get(&name) {
        Some(config) => Ok(Answer::new(interface_fields(network, &name, config).into())),
        None => Err(ApiError::parameter("iface", "interface does not exist")),
    }
}

/// The parameters to store. An address with a prefix length becomes address and netmask, and list
/// items are separated by blanks (pve-manager, API2/Network.pm, map_cidr_to_address_netmask).
fn stored_parameters(ctx: &CallContext) -> Config {
    let left_out = ["node", "iface", "delete"];
    let keys = ctx.params().0.keys().filter(|key| !left_out.contains(&key.as_str()));
    let mut config: Config = keys.filter_map(|key| Some((key.clone(), ctx.text(key)?))).collect();
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
        // Comments are lines of the file, so they end with a newline.
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

/// Refuses a VLAN on an unknown device (pve-common, Network/Interfaces.pm:939).
fn check_vlan_device(pending: &Interfaces, name: &str, config: &Config) -> Result<(), ApiError> {
    let Some((device, id)) = vlan_of(name, config) else { return Ok(()) };
    let Some(device) = device else { return Err(failed("missing vlan-raw-device option".into())) };
    let Some(id) = id else { return Err(failed("missing vlan-id option".into())) };
    if id.parse::<u32>().is_ok_and(|id| id > 4094) {
        return Err(failed(format!("vlan '{name}' - vlan-id {id} should be <= 4094")));
    }
    if !pending.contains_key(device) {
        return Err(failed(format!("vlan '{name}' - unable to find parent '{device}'")));
    }
    Ok(())
}

/// Refuses a second default gateway, and a port that another interface uses.
fn check_conflicts(pending: &Interfaces, name: &str, config: &Config) -> Result<(), ApiError> {
    let others = || pending.iter().filter(|(other, _)| *other != name);
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

fn edit_pending(
    ctx: &CallContext,
    edit: impl FnOnce(&mut Interfaces) -> Result<(), ApiError>,
) -> Outcome {
    let mut state = ctx.cluster.state();
    let node: &mut Node = state.nodes.get_mut(&ctx.node).ok_or_else(|| missing_node(ctx))?;
    let mut network = node.network.clone();
    edit(network.pending_mut())?;
    // Proxmox checks the whole file at each write.
    let pending = network.pending_or_active();
    for (name, config) in pending {
        check_vlan_device(pending, name, config)?;
    }
    node.network = network;
    Ok(Answer::null())
}

/// `POST …/network`.
pub(crate) fn create(ctx: &CallContext) -> Outcome {
    let name = ctx.text("iface").unwrap_or_default();
    let mut config = stored_parameters(ctx);
    edit_pending(ctx, |pending| {
        if pending.contains_key(&name) {
            return Err(ApiError::parameter("iface", "interface already exists"));
        }
        check_conflicts(pending, &name, &config)?;
        config.insert("priority".into(), (pending.len() + 3).to_string());
        pending.insert(name, config);
        Ok(())
    })
}

/// `PUT …/network/{iface}`.
pub(crate) fn change(ctx: &CallContext) -> Outcome {
    let name = ctx.text("iface").unwrap_or_default();
    let set = stored_parameters(ctx);
    let delete = ctx.text("delete").unwrap_or_default();
    edit_pending(ctx, |pending| {
        if !pending.contains_key(&name) {
            return Err(ApiError::parameter("iface", "interface does not exist"));
        }
        check_conflicts(pending, &name, &set)?;
        let own = pending.entry(name).or_default();
        // Proxmox ignores unknown names (pve-manager, API2/Network.pm:754).
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
pub(crate) fn remove(ctx: &CallContext) -> Outcome {
    let name = ctx.text("iface").unwrap_or_default();
    edit_pending(ctx, |pending| match pending.remove(&name) {
        Some(_) => Ok(()),
        None => Err(ApiError::parameter("iface", "interface does not exist")),
    })
}

/// `DELETE …/network`: drops the pending configuration.
pub(crate) fn revert(ctx: &CallContext) -> Outcome {
    let mut state = ctx.cluster.state();
    let node = state.nodes.get_mut(&ctx.node).ok_or_else(|| missing_node(ctx))?;
    node.network.pending = None;
    Ok(Answer::null())
}

/// `PUT …/network`: a task that activates the pending configuration.
pub(crate) fn reload(ctx: &CallContext) -> Outcome {
    let (cluster, name) = (ctx.cluster.clone(), ctx.node.clone());
    let caller = &ctx.call.caller;
    Ok(ctx.cluster.fork(caller, &ctx.node, "srvreload", "networking", |_| async move {
        cluster.simulate_work(&name, cluster.latency.config, None).await;
        let mut state = cluster.state();
        let Some(node) = state.nodes.get_mut(&name) else { return Ok(()) };
        if let Some(pending) = node.network.pending.take() {
            let bridges = pending.iter().filter(|(_, config)| is_bridge(config));
            node.spec.bridges = bridges.clone().map(|(bridge, _)| bridge.clone()).collect();
            let aware = bridges.filter(|(_, config)| config.contains_key("bridge_vlan_aware"));
            node.spec.vlan_aware = aware.map(|(bridge, _)| bridge.clone()).collect();
            node.network.active = pending;
        }
        Ok(())
    }))
}
