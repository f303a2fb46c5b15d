//! The keys of a subnet, and its checks against its VNet (pve-network, Network/SDN/SubnetPlugin.pm,
//! on_update_hook).

use std::net::IpAddr;

use super::super::conf::{self, Config};
use super::super::sections::{Keys, parameter_error};
use super::{Sdn, ranges};

pub(crate) const KEYS: Keys = Keys {
    required: &["vnet"],
    optional: &["dhcp-dns-server", "dhcp-range", "dnszoneprefix", "gateway", "snat"],
    more: &[],
    fixed: &[],
};

fn value<'a>(config: &'a Config, key: &str) -> &'a str {
    config.get(key).map(String::as_str).unwrap_or_default()
}

/// Refuses a subnet on a VLAN-aware VNet, a gateway outside of the subnet, and wrong ranges.
///
/// # Errors
/// The text that follows the prefix of the lock.
pub(crate) fn check(sdn: &Sdn, subnet: &Config) -> Result<(), String> {
    let vnet = value(subnet, "vnet");
    let Some(own) = sdn.vnets.get(vnet) else {
        return Err(parameter_error("vnet", &format!("{vnet} don't exist")));
    };
    if conf::flag(own, "vlanaware") {
        return Err(parameter_error("vnet", "you can't add a subnet on a vlanaware vnet"));
    }
    let (cidr, gateway) = (value(subnet, "cidr"), value(subnet, "gateway"));
    if let (Some((network, bits)), Ok(ip)) = (ranges::network(cidr), gateway.parse::<IpAddr>()) {
        // On a point-to-point link, the gateway is outside of the subnet.
        let is_point = ip.is_ipv4() && bits == 32;
        if !is_point && !ranges::is_within(ip, network, bits) {
            return Err(parameter_error("gateway", &format!("{gateway} is not in subnet {cidr}")));
        }
    }
    ranges::check(subnet)
}
