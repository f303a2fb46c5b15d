//! The keys of a VNet, and its checks against its zone and other VNets (pve-network,
//! Network/SDN/VnetPlugin.pm, and vnet_update_hook of Network/SDN/Zones/*Plugin.pm).

use super::super::conf::{self, Config};
use super::super::sections::{Keys, parameter_error};
use super::Sdn;

pub(crate) const KEYS: Keys = Keys {
    required: &["zone"],
    optional: &["alias", "isolate-ports", "tag", "vlanaware"],
    more: &[],
    fixed: &[],
};

pub(crate) fn has_subnets(sdn: &Sdn, id: &str) -> bool {
    sdn.subnets.values().any(|subnet| subnet.get("vnet").is_some_and(|vnet| vnet == id))
}

fn value<'a>(config: &'a Config, key: &str) -> &'a str {
    config.get(key).map(String::as_str).unwrap_or_default()
}

/// Refuses a VNet that its zone does not allow.
///
/// # Errors
/// The text that follows the prefix of the lock.
pub(crate) fn check(sdn: &Sdn, id: &str, vnet: &Config) -> Result<(), String> {
    let zone = value(vnet, "zone");
    let Some(kind) = sdn.zones.get(zone).map(|zone| value(zone, "type")) else {
        return Err("cannot lookup undefined type!".into());
    };
    check_tag(sdn, id, vnet, kind).map_err(|text| parameter_error("tag", &text))?;
    let is_aware = conf::flag(vnet, "vlanaware");
    if is_aware && kind == "evpn" {
        return Err(parameter_error("vlan-aware", "vlan-aware option can't be enabled with evpn"));
    }
    if is_aware && has_subnets(sdn, id) {
        return Err(parameter_error("vlanaware", "vlanaware vnet is not compatible with subnets"));
    }
    Ok(())
}

/// Refuses a wrong or duplicate tag, and a missing one if the zone needs it.
fn check_tag(sdn: &Sdn, id: &str, vnet: &Config, kind: &str) -> Result<(), String> {
    let zone = value(vnet, "zone");
    let tag = vnet.get("tag").map(String::as_str);
    let number = tag.and_then(|tag| tag.parse::<u64>().ok()).unwrap_or(0);
    let others = || sdn.vnets.iter().filter(|(other, _)| *other != id);
    let same_tag = |in_scope: &dyn Fn(&Config) -> bool| {
        let same = |other: &Config| other.get("tag").map(String::as_str) == tag && in_scope(other);
        others()
            .find(|(_, other)| same(other))
            .map(|(other, config)| (other, value(config, "zone")))
    };
    let in_zone = |other: &Config| value(other, "zone") == zone;
    let is_tunnel = |other: &Config| {
        let kind = sdn.zones.get(value(other, "zone")).map(|zone| value(zone, "type"));
        matches!(kind, Some("vxlan" | "evpn"))
    };
    match (kind, tag) {
        ("simple", Some(_)) => Err("vlan tag is not allowed on simple zone".into()),
        ("vlan", None) => Err("missing vlan tag".into()),
        ("vlan", Some(_)) if number > 4096 => Err("vlan tag max value is 4096".into()),
        ("vlan", Some(tag)) => match same_tag(&in_zone) {
            Some((other, _)) => Err(format!("tag {tag} already exist in vnet {other}")),
            None => Ok(()),
        },
        ("qinq", Some(_)) if number > 4096 => Err("VLAN tag maximal value is 4096".into()),
        ("qinq", _) => match (same_tag(&in_zone), tag) {
            (Some((other, _)), Some(tag)) => {
                Err(format!("tag {tag} already exist in zone {zone} vnet {other}"))
            }
            (Some((other, _)), None) => {
                Err(format!("tag-less vnet already exists in zone {zone} vnet {other}"))
            }
            (None, _) => Ok(()),
        },
        ("vxlan" | "evpn", None) => Err("missing vxlan tag".into()),
        ("vxlan" | "evpn", Some(_)) if number > 16_777_216 => {
            Err("vxlan tag max value is 16777216".into())
        }
        ("vxlan" | "evpn", Some(tag)) => match same_tag(&is_tunnel) {
            Some((other, theirs)) => {
                Err(format!("vxlan tag {tag} already exist in vnet {other} in zone {theirs} "))
            }
            None => Ok(()),
        },
        _ => Ok(()),
    }
}
