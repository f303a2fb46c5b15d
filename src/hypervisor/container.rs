//! What a container's configuration must be: in the call that makes it of an OS template, and after
//! its clone.
//!
//! Pure. A container has no cloud-init: Proxmox itself writes host name, addresses and DNS servers
//! into its files at each start. SSH keys can be given only to a new container; a clone has those of
//! its template (book: proxmox, section 18).

use std::collections::BTreeMap;

use drover_model::container::CreateSpec;
use drover_model::ports::{CloneCall, ConfigureCall};
use drover_model::seed::NicSpec;
use drover_model::spec::TemplateSpec;
use proxmox_client::Params;
use proxmox_client::types::VmConfig;

/// The parts of a card that hold its addresses.
const ADDRESS_PARTS: [&str; 4] = ["ip", "gw", "ip6", "gw6"];

/// A network card of a container as `key=value` parts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Card(BTreeMap<String, String>);

impl Card {
    /// The card as it is, or a new one with the name of its place.
    fn of(now: Option<&str>, at: usize) -> Self {
        let mut parts: BTreeMap<String, String> = now
            .unwrap_or_default()
            .split(',')
            .filter_map(|part| part.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        parts.entry("name".into()).or_insert_with(|| format!("eth{at}"));
        Self(parts)
    }

    fn set(&mut self, key: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.0.insert(key.to_owned(), value.to_string());
        }
    }

    /// Gives the card these addresses alone, written as Proxmox's `ipconfigN`.
    fn set_addresses(&mut self, ip_config: Option<&str>) {
        let Some(ip_config) = ip_config else { return };
        self.0.retain(|key, _| !ADDRESS_PARTS.contains(&key.as_str()));
        let parts = ip_config.split(',').filter_map(|part| part.split_once('='));
        for (key, value) in parts.filter(|(key, _)| ADDRESS_PARTS.contains(key)) {
            self.set(key, Some(value));
        }
    }

    /// The value of `netN`; the name comes first.
    fn print(&self) -> String {
        let name = self.0.get_key_value("name").into_iter();
        let rest = self.0.iter().filter(|(key, _)| *key != "name");
        name.chain(rest).map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
    }
}

/// The wanted cards, with their keys. Empty where there is no card and no bridge for one.
fn cards(config: &VmConfig, spec: &TemplateSpec) -> Vec<(String, Card)> {
    let first_addresses = spec.cloud_init.ip_config.as_deref();
    if spec.nics.is_empty() {
        let now = config.get("net0");
        if now.is_none() && spec.network.bridge.is_none() {
            return Vec::new();
        }
        let mut card = Card::of(now, 0);
        card.set("bridge", spec.network.bridge.as_ref());
        card.set("tag", spec.network.vlan);
        card.set_addresses(first_addresses);
        return vec![("net0".to_owned(), card)];
    }
    let cards = spec.nics.iter().enumerate().map(|(at, nic)| {
        let key = format!("net{at}");
        let addresses = if at == 0 { first_addresses } else { nic.ip_config.as_deref() };
        let card = card(config.get(&key), at, nic, addresses);
        (key, card)
    });
    cards.collect()
}

fn card(now: Option<&str>, at: usize, nic: &NicSpec, addresses: Option<&str>) -> Card {
    let mut card = Card::of(now, at);
    card.set("bridge", Some(&nic.bridge));
    card.0.remove("tag");
    card.set("tag", nic.vlan);
    card.set("hwaddr", nic.mac.as_ref());
    card.set("firewall", nic.firewall.map(u8::from));
    card.set_addresses(addresses);
    card
}

/// `features` with nesting; none where it has that, or it is not wanted.
fn with_nesting(now: Option<&str>, spec: &TemplateSpec) -> Option<String> {
    let wanted = spec.container.as_ref().is_some_and(|container| container.nesting);
    let parts: Vec<&str> = now.unwrap_or_default().split(',').filter(|p| !p.is_empty()).collect();
    if !wanted || parts.contains(&"nesting=1") {
        return None;
    }
    let others = parts.into_iter().filter(|part| !part.starts_with("nesting="));
    Some(others.chain(["nesting=1"]).collect::<Vec<_>>().join(","))
}

/// What differs from the template's specification, without the tags.
pub(crate) fn changes(config: &VmConfig, call: &ConfigureCall) -> Params {
    let spec = &call.spec;
    let mut changes = Params::new();
    let mut set = |key: &str, wanted: Option<String>| {
        if let Some(wanted) = wanted.filter(|wanted| config.get(key) != Some(wanted)) {
            changes.push((key.to_owned(), wanted));
        }
    };
    set("nameserver", spec.cloud_init.nameserver.clone());
    set("searchdomain", spec.cloud_init.search_domain.clone());
    set("cores", spec.cores.map(|cores| cores.to_string()));
    set("memory", spec.memory_mb.map(|memory| memory.to_string()));
    set("swap", spec.container.as_ref().and_then(|one| one.swap_mb).map(|swap| swap.to_string()));
    set("features", with_nesting(config.get("features"), spec));
    let (on, now) = (spec.on_boot, config.get("onboot") == Some("1"));
    set("onboot", (on != now).then(|| u8::from(on).to_string()));
    let protected = config.get("protection") == Some("1");
    set("protection", protected.then(|| "0".to_owned()));
    for (at, (key, wanted)) in cards(config, spec).into_iter().enumerate() {
        // Proxmox orders the parts of a card in its own way.
        let now = config.get(&key).map(|now| Card::of(Some(now), at));
        set(&key, (now.as_ref() != Some(&wanted)).then(|| wanted.print()));
    }
    let beyond = |key: &&str| {
        let number = key.strip_prefix("net").and_then(|n| n.parse::<usize>().ok());
        !spec.nics.is_empty() && number.is_some_and(|n| n >= spec.nics.len())
    };
    let gone: Vec<&str> = config.iter().map(|(key, _)| key).filter(beyond).collect();
    if !gone.is_empty() {
        changes.push(("delete".to_owned(), gone.join(",")));
    }
    changes
}

/// The parameters of a container of an OS template. Its marks are part of the call itself (book:
/// safety, rule 2); its tags come with its configuration, since Proxmox may refuse them.
pub(crate) fn create_params(call: &CloneCall, create: &CreateSpec) -> Params {
    let spec = &call.spec;
    let mut params = Params::new();
    let mut set = |key: &str, value: Option<String>| {
        params.extend(value.map(|value| (key.to_owned(), value)));
    };
    set("vmid", Some(call.marks.vmid.to_string()));
    set("ostemplate", Some(create.template.volume()));
    set("hostname", Some(call.marks.name(&spec.name_prefix)));
    set("description", Some(call.marks.describe(&spec.description)));
    let storage = spec.target_storage.as_deref().unwrap_or_default();
    set("rootfs", spec.disk_gb.map(|size| format!("{storage}:{size}")));
    set("unprivileged", Some(u8::from(create.unprivileged).to_string()));
    set("features", with_nesting(None, spec));
    set("cores", spec.cores.map(|cores| cores.to_string()));
    set("memory", spec.memory_mb.map(|memory| memory.to_string()));
    set("swap", spec.container.as_ref().and_then(|one| one.swap_mb).map(|swap| swap.to_string()));
    set("nameserver", spec.cloud_init.nameserver.clone());
    set("searchdomain", spec.cloud_init.search_domain.clone());
    set("pool", spec.target_pool.clone());
    let key = spec.ssh.public_key.trim();
    set("ssh-public-keys", (!key.is_empty()).then(|| format!("{key}\n")));
    for (key, card) in cards(&VmConfig::default(), spec) {
        set(&key, Some(card.print()));
    }
    params
}

#[cfg(test)]
mod tests;
