//! What a zone may say, by its type (pve-network, Network/SDN/Zones/*Plugin.pm), and what it names
//! that has to be there.

use super::super::conf::Config;
use super::super::sections::{Keys, refusal};
use super::Sdn;
use crate::spec::PveVersion;

/// The one source of addresses there is: that of Proxmox itself.
const IPAM: &str = "pve";

/// The keys of a zone of this type; none for a type that is not known.
pub fn keys(kind: &str, version: PveVersion) -> Option<Keys> {
    const ANY: &[&str] = &["dns", "dnszone", "ipam", "mtu", "nodes", "reversedns"];
    let (required, more): (&'static [&'static str], &'static [&'static str]) = match kind {
        "simple" => (&[], &["dhcp"]),
        "vlan" => (&["bridge"], &["bridge-disable-mac-learning"]),
        "qinq" => (&["bridge", "tag"], &["bridge-disable-mac-learning", "vlan-protocol"]),
        // Since 9 the peers can be those of a fabric.
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
    Some(Keys { required, optional: ANY, more, fixed: &[] })
}

/// Refuses a zone that names what is not there, or changes what its subnets rest on (pve-network,
/// API2/Network/SDN/Zones.pm). `set` is what the call says of it, `before` the zone of before.
///
/// # Errors
/// The text after that of the lock.
pub fn sound(
    sdn: &Sdn,
    id: &str,
    (set, zone): (&Config, &Config),
    before: Option<&Config>,
) -> Result<(), String> {
    let is_here = |subnet: &Config| subnet.get("zone").is_some_and(|zone| zone == id);
    let is_used = || sdn.subnets.values().any(is_here);
    if before.is_some_and(|before| before.get("ipam") != zone.get("ipam")) && is_used() {
        let text = "can't change ipam if a subnet is already defined in this zone";
        return Err(refusal("ipam", text));
    }
    for key in ["dns", "reversedns"] {
        // No server of names is ever defined.
        if let Some(server) = set.get(key) {
            return Err(refusal(key, &format!("{server} don't exist")));
        }
    }
    if set.contains_key("dnszone") {
        return Err(refusal("dnszone", "missing dns server"));
    }
    if let Some(ipam) = set.get("ipam").filter(|ipam| *ipam != IPAM) {
        return Err(refusal("ipam", &format!("{ipam} not existing")));
    }
    match zone.get("type").map(String::as_str) {
        Some("vxlan") if zone.contains_key("peers") == zone.contains_key("fabric") => {
            let text = "must have exactly one of peers / fabric defined";
            Err(format!("{}\nfabric: {text}", refusal("peers", text)))
        }
        // Nor is a controller.
        Some("evpn") => {
            let controller = zone.get("controller").map(String::as_str).unwrap_or_default();
            Err(format!("controller {controller} don't exist"))
        }
        _ => Ok(()),
    }
}
