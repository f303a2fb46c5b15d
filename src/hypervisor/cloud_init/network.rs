//! A guest's network for cloud-init: version 2 of `network-config`, with each card matched by its
//! MAC address. Cards are named `eth0` and so on, as on Proxmox's own drive.

use std::collections::BTreeSet;

use drover_model::seed::NicSpec;
use proxmox_client::types::VmConfig;
use serde_yaml::{Mapping, Value};

/// More cards than a guest can have.
const CARDS_MAX: usize = 32;

fn text(value: impl Into<String>) -> Value {
    Value::String(value.into())
}

fn texts<'a>(values: impl IntoIterator<Item = &'a str>) -> Value {
    Value::Sequence(values.into_iter().map(text).collect())
}

/// The network in a guest's configuration, `netN` with `ipconfigN`, and the DNS servers of single
/// cards; none without a card.
pub(crate) fn config(config: &VmConfig, nics: &[NicSpec]) -> Option<String> {
    let mut cards = Mapping::new();
    for n in 0..CARDS_MAX {
        let Some(card) = config.get(&format!("net{n}")) else { continue };
        let Some(mac) = mac(card) else { continue };
        let said = config.get(&format!("ipconfig{n}")).unwrap_or_default();
        cards.insert(text(format!("eth{n}")), one(n, &mac, said, config, nics.get(n)));
    }
    if cards.is_empty() {
        return None;
    }
    let mut all = Mapping::new();
    all.insert(text("version"), Value::Number(2.into()));
    all.insert(text("ethernets"), Value::Mapping(cards));
    // Plain texts, numbers and lists can always be written.
    serde_yaml::to_string(&Value::Mapping(all)).ok()
}

fn one(n: usize, mac: &str, said: &str, config: &VmConfig, nic: Option<&NicSpec>) -> Value {
    let setting = |name: &str| {
        let mut parts = said.split(',').filter_map(|part| part.trim().split_once('='));
        parts.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let mut card = Mapping::new();
    let mut by = Mapping::new();
    by.insert(text("macaddress"), text(mac));
    card.insert(text("match"), Value::Mapping(by));
    card.insert(text("set-name"), text(format!("eth{n}")));
    let mut addresses = Vec::new();
    match setting("ip") {
        Some("dhcp") => drop(card.insert(text("dhcp4"), Value::Bool(true))),
        Some(address) => addresses.push(address),
        None => {}
    }
    match setting("ip6") {
        Some("dhcp") => drop(card.insert(text("dhcp6"), Value::Bool(true))),
        Some("auto") => drop(card.insert(text("accept-ra"), Value::Bool(true))),
        Some(address) => addresses.push(address),
        None => {}
    }
    if !addresses.is_empty() {
        card.insert(text("addresses"), texts(addresses));
    }
    // Older keys than `routes`, but ones that every renderer of cloud-init gets right.
    for (key, way) in [("gateway4", setting("gw")), ("gateway6", setting("gw6"))] {
        if let Some(way) = way {
            card.insert(text(key), text(way));
        }
    }
    let servers: Vec<&str> = match nic {
        Some(nic) if !nic.dns.is_empty() => nic.dns.iter().map(String::as_str).collect(),
        Some(_) | None => words(config.get("nameserver")),
    };
    let domains: Vec<&str> = match nic {
        Some(nic) if !nic.search.is_empty() => nic.search.iter().map(String::as_str).collect(),
        Some(_) | None => words(config.get("searchdomain")),
    };
    let mut names = Mapping::new();
    for (key, list) in [("addresses", servers), ("search", domains)] {
        if !list.is_empty() {
            names.insert(text(key), texts(list));
        }
    }
    if !names.is_empty() {
        card.insert(text("nameservers"), Value::Mapping(names));
    }
    Value::Mapping(card)
}

/// The words of a list, without repetitions.
fn words(list: Option<&str>) -> Vec<&str> {
    let words = list.unwrap_or_default().split([' ', ',', ';']).filter(|word| !word.is_empty());
    let mut seen = BTreeSet::new();
    words.filter(|word| seen.insert(*word)).collect()
}

/// The MAC address of a card, in lower case.
fn mac(card: &str) -> Option<String> {
    let values = card.split(',').filter_map(|part| part.split_once('='));
    values.map(|(_, value)| value).find(|value| is_mac(value)).map(str::to_lowercase)
}

/// Whether a text is a MAC address.
pub fn is_mac(text: &str) -> bool {
    let parts: Vec<_> = text.split(':').collect();
    parts.len() == 6
        && parts.iter().all(|part| part.len() == 2 && u8::from_str_radix(part, 16).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: each card has its network settings, matched by MAC address.

    #[test]
    fn cards_have_their_addresses_ways_and_servers() {
        let guest = VmConfig::new([
            ("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0"),
            ("ipconfig0", "ip=dhcp,ip6=auto"),
            ("net1", "e1000=BC:24:11:00:00:02,bridge=vmbr1,tag=100"),
            ("ipconfig1", "ip=10.1.0.5/24,gw=10.1.0.1,ip6=fd00::5/64,gw6=fd00::1"),
            ("net2", "virtio,bridge=vmbr2"),
            ("nameserver", "10.0.0.1 10.0.0.2"),
            ("searchdomain", "example.com"),
        ]);
        let plain = NicSpec {
            bridge: "vmbr0".into(),
            vlan: None,
            mac: None,
            model: None,
            firewall: None,
            ip_config: None,
            dns: Vec::new(),
            search: Vec::new(),
        };
        let own = NicSpec { dns: vec!["10.1.0.2".into()], ..plain.clone() };
        insta::assert_snapshot!(config(&guest, &[plain, own]).unwrap_or_default(), @r"
        version: 2
        ethernets:
          eth0:
            match:
              macaddress: bc:24:11:00:00:01
            set-name: eth0
            dhcp4: true
            accept-ra: true
            nameservers:
              addresses:
              - 10.0.0.1
              - 10.0.0.2
              search:
              - example.com
          eth1:
            match:
              macaddress: bc:24:11:00:00:02
            set-name: eth1
            addresses:
            - 10.1.0.5/24
            - fd00::5/64
            gateway4: 10.1.0.1
            gateway6: fd00::1
            nameservers:
              addresses:
              - 10.1.0.2
              search:
              - example.com
        ");
        assert_eq!(config(&VmConfig::new([("memory", "1")]), &[]), None);
    }
}
