//! The DHCP ranges of a subnet: a list of property strings in the file, a list of objects in
//! answers.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::super::conf::{Config, parts};
use super::super::sections::parameter_error;

/// The configuration key of the ranges.
pub(crate) const KEY: &str = "dhcp-range";
const START_ADDRESS: &str = "start-address";
const END_ADDRESS: &str = "end-address";

fn ranges(config: &Config) -> impl Iterator<Item = (&str, &str)> {
    let lines = config.get(KEY).map(String::as_str).unwrap_or_default().lines();
    lines.filter_map(|range| Some((address(range, START_ADDRESS)?, address(range, END_ADDRESS)?)))
}

fn address<'a>(range: &'a str, key: &str) -> Option<&'a str> {
    let mut pairs = parts(range).filter_map(|part| part.split_once('='));
    pairs.find(|(name, _)| *name == key).map(|(_, address)| address)
}

/// The ranges of a subnet in an answer; an empty list if it has none (pve-network,
/// API2/Network/SDN/Subnets.pm:32).
pub(crate) fn json_ranges(config: &Config) -> Value {
    ranges(config).map(|(start, end)| json!({ START_ADDRESS: start, END_ADDRESS: end })).collect()
}

/// Refuses ranges that are outside the subnet, end before they start, or overlap (pve-network,
/// Network/SDN/SubnetPlugin.pm:87, validate_dhcp_ranges).
///
/// # Errors
/// The error of the parameter as text, since the check runs under a lock.
pub(crate) fn check(config: &Config) -> Result<(), String> {
    let invalid = |text: String| Err(parameter_error(KEY, &text));
    let cidr = config.get("cidr").map(String::as_str).unwrap_or_default();
    let Some((network, bits)) = network(cidr) else { return Ok(()) };
    let mut taken: Vec<(IpAddr, IpAddr)> = Vec::new();
    for (start, end) in ranges(config) {
        let Ok(first) = start.parse::<IpAddr>() else {
            return invalid(format!("{START_ADDRESS} is not a valid IP {start}"));
        };
        let Ok(last) = end.parse::<IpAddr>() else {
            return invalid(format!("{END_ADDRESS} is not a valid IP {end}"));
        };
        if first > last {
            return invalid(format!(
                "{START_ADDRESS} {start} must be smaller than {END_ADDRESS} {end}"
            ));
        }
        for (key, text, ip) in [(START_ADDRESS, start, first), (END_ADDRESS, end, last)] {
            if !is_within(ip, network, bits) {
                return invalid(format!("{key} {text} is not in subnet {cidr}"));
            }
        }
        if taken.iter().any(|(low, high)| first <= *high && *low <= last) {
            return invalid("dhcp ranges must not overlap".into());
        }
        taken.push((first, last));
    }
    Ok(())
}

/// The address and the prefix length of a network; none if the text is not a network.
pub(crate) fn network(cidr: &str) -> Option<(IpAddr, u32)> {
    let (network, bits) = cidr.split_once('/')?;
    Some((network.parse().ok()?, bits.parse().ok()?))
}

pub(crate) fn is_within(ip: IpAddr, network: IpAddr, bits: u32) -> bool {
    match (ip, network) {
        (IpAddr::V4(ip), IpAddr::V4(network)) => {
            let differing = u32::from(ip) ^ u32::from(network);
            differing.checked_shr(32u32.saturating_sub(bits)).unwrap_or(0) == 0
        }
        (IpAddr::V6(ip), IpAddr::V6(network)) => {
            let differing = u128::from(ip) ^ u128::from(network);
            differing.checked_shr(128u32.saturating_sub(bits)).unwrap_or(0) == 0
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}
