//! The keys of a zone by type (pve-network, Network/SDN/Zones/*Plugin.pm), and the checks of what
//! it refers to.

use super::super::conf::Config;
use super::super::sections::{Keys, parameter_error};
use super::Sdn;
use crate::spec::PveVersion;

/// The only IPAM: Proxmox's own.
const BUILTIN_IPAM: &str = "pve";

/// The keys of a zone of this type; none for an unknown type.
pub(crate) fn keys(kind: &str, version: PveVersion) -> Option<Keys> {
    const COMMON_KEYS: &[&str] = &["dns", "dnszone", "ipam", "mtu", "nodes", "reversedns"];
    let (required, more): (&'static [&'static str], &'static [&'static str]) = match kind {
        "simple" => (&[], &["dhcp"]),
        "vlan" => (&["bridge"], &["bridge-disable-mac-learning"]),
        "qinq" => (&["bridge", "tag"], &["bridge-disable-mac-learning", "vlan-protocol"]),
        // Since 9.x the peers can come from a fabric.
        "vxlan" if version == PveVersion::V9_2 => (&[], &["fabric", "peers", "vxlan-port"]),
        "vxlan" => (&["peers"], &["vxlan-port"]),
        "evpn" => (
            &["controller", "vrf-vxlan"],
            &[
                "advertise-subnets",
                "bridge-disable-mac-learning",
                "disable-arp-nd-suppression",
                "exitnodes",
                "exitnodes-local-routing",
                "exitnodes-primary",
                "mac",
                "rt-import",
                "vxlan-port",
            ],
        ),
        "faucet" => (&["controller", "dp-id"], &[]),
        _ => return None,
    };
    Some(Keys { required, optional: COMMON_KEYS, more, fixed: &[] })
}

/// Refuses a zone that refers to something unknown, or changes something that its subnets need
/// (pve-network, API2/Network/SDN/Zones.pm). `set` contains the parameters of the call, `before` is
/// the old zone.
///
/// # Errors
/// The text that follows the prefix of the lock.
pub(crate) fn check(
    sdn: &Sdn,
    id: &str,
    (set, zone): (&Config, &Config),
    before: Option<&Config>,
) -> Result<(), String> {
    let is_here = |subnet: &Config| subnet.get("zone").is_some_and(|zone| zone == id);
    let is_used = || sdn.subnets.values().any(is_here);
    if before.is_some_and(|before| before.get("ipam") != zone.get("ipam")) && is_used() {
        let text = "can't change ipam if a subnet is already defined in this zone";
        return Err(parameter_error("ipam", text));
    }
    for key in ["dns", "reversedns"] {
        // The simulator defines no DNS server.
        if let Some(server) = set.get(key) {
            return Err(parameter_error(key, &format!("{server} don't exist")));
        }
    }
    if set.contains_key("dnszone") {
        return Err(parameter_error("dnszone", "missing dns server"));
    }
    if let Some(ipam) = set.get("ipam").filter(|ipam| *ipam != BUILTIN_IPAM) {
        return Err(parameter_error("ipam", &format!("{ipam} not existing")));
    }
    match zone.get("type").map(String::as_str) {
        Some("vxlan") if zone.contains_key("peers") == zone.contains_key("fabric") => {
            let text = "must have exactly one of peers / fabric defined";
            Err(format!("{}\nfabric: {text}", parameter_error("peers", text)))
        }
        // The simulator defines no controller.
        Some("evpn") => {
            let controller = zone.get("controller").map(String::as_str).unwrap_or_default();
            Err(format!("controller {controller} don't exist"))
        }
        _ => Ok(()),
    }
}
