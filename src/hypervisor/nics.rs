//! A guest's network cards, as its template wants them (`networks`).

use drover_model::ports::ConfigureCall;
use drover_model::seed::NicSpec;
use drover_model::spec::NetworkSpec;
use proxmox_client::Params;
use proxmox_client::types::VmConfig;
use sha2::{Digest as _, Sha256};

use crate::cloud_init::network::is_mac;
use crate::configure::on_network;

/// The model of a card for which neither the template nor the configuration sets one.
const DEFAULT_MODEL: &str = "virtio";
/// The prefix of Proxmox's own MAC addresses.
const PROXMOX_MAC_PREFIX: [u8; 3] = [0xbc, 0x24, 0x11];

/// The settings that differ from the wanted cards. Further cards are removed, with their addresses.
pub(crate) fn changes(config: &VmConfig, call: &ConfigureCall) -> Params {
    let nics = &call.spec.nics;
    if nics.is_empty() {
        return Params::new();
    }
    let (mut changes, mut gone) = (Params::new(), Vec::new());
    for (n, nic) in nics.iter().enumerate() {
        let key = format!("net{n}");
        let now = config.get(&key);
        let wanted = card(now, nic, || generated_mac(call, n));
        if now != Some(wanted.as_str()) {
            changes.push((key, wanted));
        }
        if call.spec.os.is_windows() {
            continue;
        }
        // The first card's address is set elsewhere, together with that of an address pool.
        let key = format!("ipconfig{n}");
        let now = config.get(&key);
        match nic.ip_config.as_deref().filter(|_| n > 0) {
            Some(wanted) if now != Some(wanted) => changes.push((key, wanted.to_owned())),
            Some(_) => {}
            None if n > 0 && now.is_some() => gone.push(key),
            None => {}
        }
    }
    let beyond = |key: &str| {
        let number = key.strip_prefix("net").or_else(|| key.strip_prefix("ipconfig"));
        number.and_then(|n| n.parse::<usize>().ok()).is_some_and(|n| n >= nics.len())
    };
    gone.extend(config.iter().map(|(key, _)| key).filter(|key| beyond(key)).map(str::to_owned));
    if !gone.is_empty() {
        changes.push(("delete".to_owned(), gone.join(",")));
    }
    changes
}

/// The setting of one card. What the template says nothing about stays as it is.
fn card(now: Option<&str>, nic: &NicSpec, own_mac: impl FnOnce() -> String) -> String {
    let network = NetworkSpec { bridge: Some(nic.bridge.clone()), vlan: nic.vlan };
    let rewired = on_network(now, &network).or_else(|| now.map(str::to_owned)).unwrap_or_default();
    let mut parts: Vec<String> = rewired.split(',').map(str::to_owned).collect();
    if nic.vlan.is_none() {
        parts.retain(|part| !part.starts_with("tag="));
    }
    if let Some(firewall) = nic.firewall {
        let was = parts.iter().any(|part| part == "firewall=1");
        if was != firewall {
            parts.retain(|part| !part.starts_with("firewall="));
            parts.push(format!("firewall={}", u8::from(firewall)));
        }
    }
    // The model comes first, with the MAC address as its value.
    let (model, mac) = match parts.first().map(String::as_str).unwrap_or_default().split_once('=') {
        Some((model, mac)) if is_mac(mac) => (model.to_owned(), Some(mac.to_owned())),
        Some(_) | None => (parts.first().cloned().unwrap_or_default(), None),
    };
    let model = nic.model.clone().unwrap_or(model);
    let model = if model.is_empty() { DEFAULT_MODEL.to_owned() } else { model };
    let mac = match (&nic.mac, mac) {
        (Some(wanted), Some(had)) if wanted.eq_ignore_ascii_case(&had) => had,
        (Some(wanted), _) => wanted.clone(),
        (None, Some(had)) => had,
        (None, None) => own_mac(),
    };
    if let Some(first) = parts.first_mut() {
        *first = format!("{model}={mac}");
    }
    parts.join(",")
}

/// A MAC address for a new card; the same call always gives the same address.
fn generated_mac(call: &ConfigureCall, n: usize) -> String {
    let marks = &call.marks;
    let whose = format!("{} {} {n}", marks.installation, marks.agent);
    let chance = Sha256::digest(whose);
    let bytes = PROXMOX_MAC_PREFIX.iter().chain(chance.iter().take(3));
    bytes.map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
}

/// The configuration after these changes.
pub(crate) fn after(config: &VmConfig, changes: &Params) -> VmConfig {
    let gone: Vec<&str> = changes
        .iter()
        .filter(|(key, _)| key == "delete")
        .flat_map(|(_, keys)| keys.split(','))
        .collect();
    let kept = config.iter().filter(|(key, _)| !gone.contains(key));
    let written = changes.iter().filter(|(key, _)| key != "delete");
    let written = written.map(|(key, value)| (key.as_str(), value.as_str()));
    VmConfig::new(kept.chain(written))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nic(bridge: &str) -> NicSpec {
        NicSpec {
            bridge: bridge.into(),
            vlan: None,
            mac: None,
            model: None,
            firewall: None,
            ip_config: None,
            dns: Vec::new(),
            search: Vec::new(),
        }
    }

    // Invariant: only what the template wants otherwise changes on a card, and every card has a MAC
    // address.

    #[test]
    fn cards_keep_what_nothing_is_said_of() {
        let there = "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1,mtu=1400,tag=5";
        let own = || "BC:24:11:AA:BB:CC".to_owned();
        let of = |now: Option<&str>, nic: &NicSpec| card(now, nic, own);
        let untagged = "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1,mtu=1400";
        assert_eq!(of(Some(there), &nic("vmbr0")), untagged);
        let tagged = NicSpec { vlan: Some(5), ..nic("vmbr0") };
        assert_eq!(of(Some(there), &tagged), there);
        let open = NicSpec { firewall: Some(false), vlan: Some(5), ..nic("vmbr0") };
        assert_eq!(
            of(Some(there), &open),
            "virtio=BC:24:11:00:00:01,bridge=vmbr0,mtu=1400,tag=5,firewall=0"
        );
        let safe = NicSpec { firewall: Some(true), vlan: Some(5), ..nic("vmbr0") };
        assert_eq!(of(Some(there), &safe), there);
        let other = NicSpec {
            model: Some("e1000".into()),
            mac: Some("02:00:00:00:00:01".into()),
            ..nic("vmbr7")
        };
        assert_eq!(
            of(Some(untagged), &other),
            "e1000=02:00:00:00:00:01,bridge=vmbr7,firewall=1,mtu=1400"
        );
        assert_eq!(of(None, &nic("vmbr1")), "virtio=BC:24:11:AA:BB:CC,bridge=vmbr1");
        assert_eq!(of(Some("e1000,bridge=a"), &nic("b")), "e1000=BC:24:11:AA:BB:CC,bridge=b");
    }

    #[test]
    fn what_is_written_and_deleted_is_what_is_there_after() {
        let config = VmConfig::new([("net0", "a"), ("net1", "b"), ("memory", "1")]);
        let changes = vec![("net0".into(), "c".into()), ("delete".into(), "net1".into())];
        assert_eq!(after(&config, &changes), VmConfig::new([("net0", "c"), ("memory", "1")]));
    }
}
