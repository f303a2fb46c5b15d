//! What a VNet must be in its zone and beside the others (pve-network, Network/SDN/VnetPlugin.pm,
//! and vnet_update_hook of Network/SDN/Zones/*Plugin.pm).

use super::super::conf::{self, Config};
use super::super::sections::{Keys, refusal};
use super::Sdn;

/// The keys of a VNet.
pub const KEYS: Keys = Keys {
    required: &["zone"],
    optional: &["alias", "isolate-ports", "tag", "vlanaware"],
    more: &[],
    fixed: &[],
};

/// Whether a VNet has subnets.
pub fn has_subnets(sdn: &Sdn, id: &str) -> bool {
    sdn.subnets.values().any(|subnet| subnet.get("vnet").is_some_and(|vnet| vnet == id))
}

fn of<'a>(config: &'a Config, key: &str) -> &'a str {
    config.get(key).map(String::as_str).unwrap_or_default()
}

/// Refuses a VNet that its zone cannot have.
///
/// # Errors
/// The text after that of the lock.
pub fn sound(sdn: &Sdn, id: &str, vnet: &Config) -> Result<(), String> {
    let zone = of(vnet, "zone");
    let Some(kind) = sdn.zones.get(zone).map(|zone| of(zone, "type")) else {
        return Err("cannot lookup undefined type!".into());
    };
    tag(sdn, id, vnet, kind).map_err(|text| refusal("tag", &text))?;
    let is_aware = conf::flag(vnet, "vlanaware");
    if is_aware && kind == "evpn" {
        return Err(refusal("vlan-aware", "vlan-aware option can't be enabled with evpn"));
    }
    if is_aware && has_subnets(sdn, id) {
        return Err(refusal("vlanaware", "vlanaware vnet is not compatible with subnets"));
    }
    Ok(())
}

/// Refuses the tag that a VNet has, or that it has none.
fn tag(sdn: &Sdn, id: &str, vnet: &Config, kind: &str) -> Result<(), String> {
    let zone = of(vnet, "zone");
    let tag = vnet.get("tag").map(String::as_str);
    let number = tag.and_then(|tag| tag.parse::<u64>().ok()).unwrap_or(0);
    let others = || sdn.vnets.iter().filter(|(other, _)| *other != id);
    let twin = |is_near: &dyn Fn(&Config) -> bool| {
        let same = |other: &Config| other.get("tag").map(String::as_str) == tag && is_near(other);
        others().find(|(_, other)| same(other)).map(|(other, config)| (other, of(config, "zone")))
    };
    let in_zone = |other: &Config| of(other, "zone") == zone;
    let is_tunnel = |other: &Config| {
        let kind = sdn.zones.get(of(other, "zone")).map(|zone| of(zone, "type"));
        matches!(kind, Some("vxlan" | "evpn"))
    };
    match (kind, tag) {
        ("simple", Some(_)) => Err("vlan tag is not allowed on simple zone".into()),
        ("vlan", None) => Err("missing vlan tag".into()),
        ("vlan", Some(_)) if number > 4096 => Err("vlan tag max value is 4096".into()),
        ("vlan", Some(tag)) => match twin(&in_zone) {
            Some((other, _)) => Err(format!("tag {tag} already exist in vnet {other}")),
            None => Ok(()),
        },
        ("qinq", Some(_)) if number > 4096 => Err("VLAN tag maximal value is 4096".into()),
        ("qinq", _) => match (twin(&in_zone), tag) {
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
        ("vxlan" | "evpn", Some(tag)) => match twin(&is_tunnel) {
            Some((other, theirs)) => {
                Err(format!("vxlan tag {tag} already exist in vnet {other} in zone {theirs} "))
            }
            None => Ok(()),
        },
        _ => Ok(()),
    }
}
