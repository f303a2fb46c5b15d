//! What a subnet may say, and what it must be in its VNet (pve-network,
//! Network/SDN/SubnetPlugin.pm, on_update_hook).

use std::net::IpAddr;

use super::super::conf::{self, Config};
use super::super::sections::{Keys, refusal};
use super::{Sdn, ranges};

/// The keys of a subnet.
pub const KEYS: Keys = Keys {
    required: &["vnet"],
    optional: &["dhcp-dns-server", "dhcp-range", "dnszoneprefix", "gateway", "snat"],
    more: &[],
    fixed: &[],
};

fn text_of<'a>(config: &'a Config, key: &str) -> &'a str {
    config.get(key).map(String::as_str).unwrap_or_default()
}

/// Refuses a subnet on a VNet that carries VLANs, with a gateway outside of it, or with ranges that
/// are wrong.
///
/// # Errors
/// The text after that of the lock.
pub fn sound(sdn: &Sdn, subnet: &Config) -> Result<(), String> {
    let vnet = text_of(subnet, "vnet");
    let Some(own) = sdn.vnets.get(vnet) else {
        return Err(refusal("vnet", &format!("{vnet} don't exist")));
    };
    if conf::flag(own, "vlanaware") {
        return Err(refusal("vnet", "you can't add a subnet on a vlanaware vnet"));
    }
    let (cidr, gateway) = (text_of(subnet, "cidr"), text_of(subnet, "gateway"));
    if let (Some((network, bits)), Ok(ip)) = (ranges::network(cidr), gateway.parse::<IpAddr>()) {
        // A link between two points has its gateway elsewhere.
        let is_point = ip.is_ipv4() && bits == 32;
        if !is_point && !ranges::is_within(ip, network, bits) {
            return Err(refusal("gateway", &format!("{gateway} is not in subnet {cidr}")));
        }
    }
    ranges::sound(subnet)
}
