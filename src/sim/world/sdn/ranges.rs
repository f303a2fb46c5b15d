//! The ranges of addresses that a subnet gives out: a list of property strings in the file, a list
//! of objects in answers.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::super::conf::{Config, parts};
use super::super::sections::refusal;

/// The key that has them.
pub const KEY: &str = "dhcp-range";
const START: &str = "start-address";
const END: &str = "end-address";

fn ranges(config: &Config) -> impl Iterator<Item = (&str, &str)> {
    let lines = config.get(KEY).map(String::as_str).unwrap_or_default().lines();
    lines.filter_map(|range| Some((address(range, START)?, address(range, END)?)))
}

fn address<'a>(range: &'a str, key: &str) -> Option<&'a str> {
    let mut pairs = parts(range).filter_map(|part| part.split_once('='));
    pairs.find(|(name, _)| *name == key).map(|(_, address)| address)
}

/// A subnet's ranges in answers: an empty list where it has none (pve-network,
/// API2/Network/SDN/Subnets.pm:32).
pub fn shown(config: &Config) -> Value {
    ranges(config).map(|(start, end)| json!({ START: start, END: end })).collect()
}

/// Refuses ranges that are not in the subnet, end before they start, or overlap (pve-network,
/// Network/SDN/SubnetPlugin.pm:87, validate_dhcp_ranges).
///
/// # Errors
/// The refusal of the parameter, as text: the lock around it makes one of it.
pub fn sound(config: &Config) -> Result<(), String> {
    let wrong = |text: String| Err(refusal(KEY, &text));
    let cidr = config.get("cidr").map(String::as_str).unwrap_or_default();
    let Some((network, bits)) = network(cidr) else { return Ok(()) };
    let mut taken: Vec<(IpAddr, IpAddr)> = Vec::new();
    for (start, end) in ranges(config) {
        let Ok(first) = start.parse::<IpAddr>() else {
            return wrong(format!("{START} is not a valid IP {start}"));
        };
        let Ok(last) = end.parse::<IpAddr>() else {
            return wrong(format!("{END} is not a valid IP {end}"));
        };
        if first > last {
            return wrong(format!("{START} {start} must be smaller than {END} {end}"));
        }
        for (key, text, ip) in [(START, start, first), (END, end, last)] {
            if !is_within(ip, network, bits) {
                return wrong(format!("{key} {text} is not in subnet {cidr}"));
            }
        }
        if taken.iter().any(|(low, high)| first <= *high && *low <= last) {
            return wrong("dhcp ranges must not overlap".into());
        }
        taken.push((first, last));
    }
    Ok(())
}

/// The address and the length of a network; none where the text is none.
pub fn network(cidr: &str) -> Option<(IpAddr, u32)> {
    let (network, bits) = cidr.split_once('/')?;
    Some((network.parse().ok()?, bits.parse().ok()?))
}

/// Whether an address is in a network.
pub fn is_within(ip: IpAddr, network: IpAddr, bits: u32) -> bool {
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
