//! The formats of cluster configuration: networks, firewall, storages, high availability, mail.
//!
//! Not checked: names of services and protocols, addresses of firewall rules, calendar events,
//! portals.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{is_dns_name, is_label};

/// Why a text does not have this format; none for a valid text or an unknown format.
pub(crate) fn refusal(name: &str, text: &str) -> Option<String> {
    let (good, refusal) = match name {
        "ip" => (is_ip(text), "value does not look like a valid IP address".to_owned()),
        "CIDRv4" => {
            (is_v4_net(text), "value does not look like a valid IPv4 CIDR network".to_owned())
        }
        "CIDRv6" => {
            (is_v6_net(text), "value does not look like a valid IPv6 CIDR network".to_owned())
        }
        "pve-sdn-subnet-id" => {
            (is_subnet(text), "value does not look like a valid CIDR network".to_owned())
        }
        "ipv4mask" => (is_mask(text), "value does not look like a valid IP netmask".to_owned()),
        "IPorCIDR" => (
            is_ip_or_net(text),
            "value does not look like a valid IP address or CIDR network".to_owned(),
        ),
        "IPorCIDRorAlias" => (
            is_alias(text) || is_ip_or_net(text),
            "value does not look like a valid IP address or CIDR network".to_owned(),
        ),
        "pve-iface" => (is_iface(text), format!("invalid network interface name '{text}'")),
        "pve-vlan-id-or-range" => return vlan_refusal(text),
        "pve-fw-sport-spec" | "pve-fw-dport-spec" => return port_refusal(text),
        "pve-storage-path" => {
            (is_path(text), "value does not look like a valid absolute path".to_owned())
        }
        "pve-storage-path-in-property-string" => (
            is_path(text) && !text.starts_with("/,") && !text.starts_with("/="),
            "Value does not look like a valid absolute path. These symbols are currently not \
             allowed in path: ;,=()"
                .to_owned(),
        ),
        "pve-storage-server" => (
            is_ip(text) || is_dns_name(text),
            "value does not look like a valid server name or IP address".to_owned(),
        ),
        "pve-storage-vgname" => {
            (is_lvm_name(text), format!("lvm name '{text}' contains illegal characters"))
        }
        "pve-ha-resource-id" => {
            (is_sid(text), "value does not look like a valid ha resource id".to_owned())
        }
        "pve-ha-resource-or-vm-id" => (
            is_sid(text) || is_number(text),
            "value does not look like a valid ha resource id".to_owned(),
        ),
        "pve-ha-node" => (is_ha_node(text), "value does not look like a valid ha node".to_owned()),
        "pve-day-of-week" => (
            ["mon", "tue", "wed", "thu", "fri", "sat", "sun"].contains(&text),
            format!("invalid day '{text}'"),
        ),
        "email-or-username" => (
            is_mail(text),
            "value does not look like a valid email address or user name".to_owned(),
        ),
        _ => return None,
    };
    (!good).then_some(refusal)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_ip(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

/// The address and prefix length of a network.
fn split_cidr<T: std::str::FromStr>(text: &str) -> Option<(T, u8)> {
    let (address, bits) = text.split_once('/')?;
    Some((address.parse().ok()?, bits.parse().ok()?))
}

/// Networks larger than a `/8` are invalid (pve-common, JSONSchema.pm:552).
fn is_v4_net(text: &str) -> bool {
    split_cidr::<Ipv4Addr>(text).is_some_and(|(_, bits)| (8..=32).contains(&bits))
}

fn is_v6_net(text: &str) -> bool {
    split_cidr::<Ipv6Addr>(text).is_some_and(|(_, bits)| (8..=128).contains(&bits))
}

/// A network, or its id: zone, address and prefix length.
fn is_subnet(text: &str) -> bool {
    let net = if text.contains('/') {
        text.to_owned()
    } else {
        text.split('-').skip(1).take(2).collect::<Vec<_>>().join("/")
    };
    is_v4_net(&net) || is_v6_net(&net)
}

fn is_mask(text: &str) -> bool {
    let mask = text.parse::<Ipv4Addr>().map(u32::from);
    mask.is_ok_and(|mask| mask.leading_ones() + mask.trailing_zeros() >= 32)
}

fn is_ip_or_net(text: &str) -> bool {
    let four = split_cidr::<Ipv4Addr>(text).is_some_and(|(_, bits)| bits <= 32);
    let six = split_cidr::<Ipv6Addr>(text).is_some_and(|(_, bits)| bits <= 128);
    is_ip(text) || four || six
}

/// A letter, then at least one letter, digit, or character that `passes` accepts.
fn is_word(text: &str, passes: impl Fn(char) -> bool) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.len() > 1
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || passes(letter))
}

fn is_alias(text: &str) -> bool {
    let name = text.strip_prefix("dc/").or_else(|| text.strip_prefix("guest/")).unwrap_or(text);
    is_word(name, |letter| "-_".contains(letter))
}

/// A name, with an optional number for a VLAN or an alias.
fn is_iface(text: &str) -> bool {
    let (name, number) = match text.split_once([':', '.']) {
        Some((name, number)) => (name, Some(number)),
        None => (text, None),
    };
    is_word(name, |letter| letter == '_') && name.len() <= 21 && number.is_none_or(is_number)
}

fn vlan_refusal(text: &str) -> Option<String> {
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (first, Some(last)),
        None => (text, None),
    };
    if !is_number(first) || !last.is_none_or(is_number) {
        return Some(format!("invalid VLAN configuration '{text}'"));
    }
    let tag = |text: &str| text.parse::<u32>().ok().filter(|tag| (2..=4094).contains(tag));
    for end in [Some(first), last].into_iter().flatten() {
        if tag(end).is_none() {
            return Some(format!("invalid VLAN tag '{end}'"));
        }
    }
    let backwards = last.is_some_and(|last| tag(first) >= tag(last));
    backwards.then(|| format!("VLAN range must go from lower to higher tag '{text}'"))
}

/// Ports of a firewall rule. A word is valid as the name of a service.
fn port_refusal(text: &str) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    if text.ends_with(',') {
        return Some("extraneous commas in list".into());
    }
    let port = |text: &str| text.parse::<u32>().ok().filter(|port| *port <= 65_535);
    let mut count = 0;
    for item in text.split(',') {
        let (first, last) = match item.split_once(':') {
            Some((first, last)) => (first, Some(last)),
            None => (item, None),
        };
        if !is_number(first) || !last.is_none_or(is_number) {
            if item.is_empty() || item.contains(':') {
                return Some(format!("invalid port '{item}'"));
            }
            continue;
        }
        for end in [Some(first), last].into_iter().flatten() {
            count += 1;
            if port(end).is_none() {
                return Some(format!("invalid port '{end}'"));
            }
        }
        if let Some(last) = last.filter(|last| port(first) > port(last)) {
            return Some(format!(
                "backwards range '{first}:{last}' not allowed, did you mean '{last}:{first}'?"
            ));
        }
    }
    (count > 15).then(|| "too many entries in port list (> 15 numbers)".into())
}

fn is_path(text: &str) -> bool {
    let second = text.strip_prefix('/').and_then(|rest| rest.chars().next());
    second.is_some_and(|letter| !";()".contains(letter))
}

fn is_lvm_name(text: &str) -> bool {
    let ends = |letter: char| letter.is_ascii_alphanumeric();
    text.len() > 1
        && text.starts_with(ends)
        && text.ends_with(ends)
        && text.chars().all(|letter| ends(letter) || "-_.".contains(letter))
}

fn is_sid(text: &str) -> bool {
    text.split_once(':').is_some_and(|(kind, name)| {
        !kind.is_empty()
            && kind.bytes().all(|byte| byte.is_ascii_lowercase())
            && !name.is_empty()
            && !name.contains(char::is_whitespace)
    })
}

/// A node with an optional priority.
fn is_ha_node(text: &str) -> bool {
    match text.split_once(':') {
        Some((name, priority)) => is_label(name) && is_number(priority),
        None => is_label(text),
    }
}

fn is_mail(text: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && part.chars().all(|letter| letter.is_alphanumeric() || "_+-~".contains(letter))
    };
    let (user, host) = match text.split_once('@') {
        Some((user, host)) => (user, Some(host)),
        None => (text, None),
    };
    user.split('.').all(is_part) && host.is_none_or(is_dns_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a value that Proxmox's formats refuse is refused, in their words.

    #[test]
    fn each_format_accepts_valid_texts_and_refuses_others() {
        let cases: [(&str, &[&str], &[&str]); 16] = [
            ("ip", &["10.0.0.1", "fd00::1"], &["10.0.0", "x", ""]),
            ("CIDRv4", &["10.0.0.1/8", "10.7.0.1/32"], &["10.0.0.1/7", "10.0.0.1", "fd00::/64"]),
            ("CIDRv6", &["fd00::1/64"], &["10.0.0.1/24", "fd00::1/129"]),
            (
                "pve-sdn-subnet-id",
                &["10.9.0.0/24", "ci-10.9.0.0-24", "ci-fd00::-64"],
                &["ci", "foo/bar", "ci-10.9.0.0-7"],
            ),
            ("ipv4mask", &["255.255.255.0", "0.0.0.0"], &["255.0.255.0", "24"]),
            ("IPorCIDR", &["10.0.0.1", "10.0.0.0/0"], &["dc/lan", "10.0.0.0/33"]),
            ("IPorCIDRorAlias", &["dc/lan", "lan-1", "10.0.0.0/8"], &["l", "dc/", "10.0"]),
            ("pve-iface", &["vmbr0", "eth0.99", "eth0:1", "lab"], &["e", "0eth", "br-lan", "a.b"]),
            ("pve-storage-path", &["/mnt/a b", "/x"], &["mnt", "/", "/;x"]),
            ("pve-storage-server", &["nas.lab", "10.0.0.1"], &["nas lab", ""]),
            ("pve-storage-vgname", &["pve", "vg-1.a"], &["v", "-vg", "vg_"]),
            ("pve-ha-resource-id", &["vm:101"], &["101", "VM:101", "vm:"]),
            ("pve-ha-resource-or-vm-id", &["vm:101", "101"], &["x", ""]),
            ("pve-ha-node", &["pve1", "pve1:2"], &["pve1:", "-pve", "pve1:x"]),
            ("pve-day-of-week", &["mon"], &["Mon", "monday"]),
            ("email-or-username", &["root", "a.b+c@lab.test"], &["a b", "@lab", "a@"]),
        ];
        for (name, good, bad) in cases {
            for text in good {
                assert_eq!(refusal(name, text), None, "{name} {text}");
            }
            for text in bad {
                assert!(refusal(name, text).is_some(), "{name} {text}");
            }
        }
    }

    #[test]
    fn refusals_of_tags_and_ports_name_the_error() {
        for (name, text, says) in [
            ("pve-vlan-id-or-range", "2-4094", None),
            ("pve-vlan-id-or-range", "5", None),
            ("pve-vlan-id-or-range", "1", Some("invalid VLAN tag '1'")),
            ("pve-vlan-id-or-range", "5-4095", Some("invalid VLAN tag '4095'")),
            ("pve-vlan-id-or-range", "x", Some("invalid VLAN configuration 'x'")),
            (
                "pve-vlan-id-or-range",
                "9-5",
                Some("VLAN range must go from lower to higher tag '9-5'"),
            ),
            ("pve-fw-dport-spec", "22,80:90,https", None),
            ("pve-fw-dport-spec", "70000", Some("invalid port '70000'")),
            ("pve-fw-sport-spec", "22,", Some("extraneous commas in list")),
            (
                "pve-fw-dport-spec",
                "90:80",
                Some("backwards range '90:80' not allowed, did you mean '80:90'?"),
            ),
        ] {
            assert_eq!(refusal(name, text).as_deref(), says, "{name} {text}");
        }
    }
}
