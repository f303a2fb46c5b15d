//! A template's network cards (`networks`), and the bridges of network names.

use std::collections::BTreeMap;

use drover_model::seed::NicSpec;
use drover_model::spec::CloudInitSpec;

use super::fault::Fault;
use super::keys::{RawAgent, RawNic};
use super::layer::Layer;
use super::value;

/// The keys that `networks` replaces.
pub(super) const REPLACED: [&str; 4] = ["bridge", "vlan", "ipConfig", "ipConfigs"];
/// Proxmox gives a guest net0 to net31.
const MAX_CARDS: usize = 32;

/// The default names of networks and their bridges.
const NAMES: [(&str, &str); 5] = [
    ("lan", "vmbr0"),
    ("default", "vmbr0"),
    ("dmz", "vmbr1"),
    ("mgmt", "vmbr2"),
    ("management", "vmbr2"),
];

/// The cards of a template. Cards with the name of a network get their bridge on each cloud.
#[derive(Debug, Default)]
pub(super) struct Cards {
    cards: Vec<Card>,
    /// DNS servers of the whole guest, where all cards agree.
    nameserver: Option<String>,
    /// DNS search domains of the whole guest, where all cards agree.
    search: Option<String>,
    /// Whether cards differ in servers or domains, for which Proxmox has no key.
    pub apart: bool,
}

#[derive(Debug)]
struct Card {
    /// Its place in the list.
    at: usize,
    nic: NicSpec,
    /// The name of its network, in place of a bridge.
    network: Option<String>,
}

/// The networks of a cloud and their bridges, the default names included.
pub(super) fn names(own: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let known = NAMES.map(|(name, bridge)| (name.to_owned(), bridge.to_owned()));
    let own = own.iter().map(|(name, bridge)| (name.clone(), bridge.clone()));
    known.into_iter().chain(own).collect()
}

/// A bridge and its VLAN: `vmbr0.100` is VLAN 100 on vmbr0.
fn split(bridge: &str) -> (String, Option<u16>) {
    let parts = bridge.rsplit_once('.');
    match parts.and_then(|(name, vlan)| Some((name, vlan.parse::<u16>().ok()?))) {
        Some((name, vlan)) if !name.is_empty() && (1..=4094).contains(&vlan) => {
            (name.to_owned(), Some(vlan))
        }
        Some(_) | None => (bridge.to_owned(), None),
    }
}

/// Reads the cards of a template.
pub(super) fn cards(layer: &Layer, agent: &RawAgent, faults: &mut Vec<Fault>) -> Cards {
    let items = layer.nested("networks");
    if items.is_empty() {
        return Cards::default();
    }
    if items.len() > MAX_CARDS {
        let message = format!("{} network cards exceed the maximum of {MAX_CARDS}", items.len());
        faults.push(layer.fault("networks", message).help("remove some: it is Proxmox's limit"));
        return Cards::default();
    }
    for key in REPLACED.into_iter().filter(|key| layer.has(key)) {
        let fault = layer.fault(key, format!("networks and {key} contradict"));
        faults.push(fault.help("say it in networks, or remove networks"));
    }
    let mut cards = Cards::default();
    for (n, item) in items.iter().enumerate() {
        let Some(raw) = item.typed::<RawNic>(faults) else { continue };
        cards.cards.extend(card(n, &raw, item, agent, faults));
    }
    check_macs(&cards, layer, faults);
    cards.agree(agent);
    cards
}

fn card(
    n: usize,
    raw: &RawNic,
    item: &Layer,
    agent: &RawAgent,
    faults: &mut Vec<Fault>,
) -> Option<Card> {
    let before = faults.len();
    // Only one agent can have a fixed address.
    let single = agent.instance_cap == 1;
    // A pool gives the first card its address.
    let pooled = n == 0 && !(agent.address_pool.is_empty() && agent.address_pool6.is_empty());
    let named = raw.name.as_deref().map(str::trim).filter(|name| !name.is_empty());
    if raw.bridge.is_none() && named.is_none() && !item.is_faulty("bridge") {
        let fault = item.own_fault("neither bridge nor name is given");
        faults.push(fault.help("add `bridge: vmbr0`, or the name of a network"));
    }
    let (bridge, tag) = split(raw.bridge.as_deref().unwrap_or_default());
    let vlan = (raw.vlan > 0).then_some(raw.vlan);
    if tag.is_some_and(|tag| vlan.is_some_and(|vlan| vlan != tag)) {
        let fault = item.fault("vlan", "the bridge names another VLAN");
        faults.push(fault.help("keep one of them"));
    }
    if raw.mac.is_some() && !single {
        let fault = item.fault("mac", "several agents would have the same MAC address");
        faults.push(fault.help("remove it, or set instanceCap to 1"));
    }
    let fixed = |text: &Option<String>| text.as_deref().is_some_and(|text| text.contains('/'));
    for (key, text) in [("ip", &raw.ip), ("ip6", &raw.ip6)] {
        if n > 0 && fixed(text) && !single {
            let fault = item.fault(key, "several agents would have the same address");
            faults.push(fault.help("use dhcp, or set instanceCap to 1"));
        }
        if text.is_some() && pooled {
            let fault = item.fault(key, "addressPool already gives the address");
            faults.push(fault.help("remove one of the two"));
        }
    }
    for (key, way, text) in
        [("gateway", &raw.gateway, &raw.ip), ("gateway6", &raw.gateway6, &raw.ip6)]
    {
        if way.is_some() && !fixed(text) {
            let fault = item.fault(key, "the card has no fixed address for this gateway");
            faults.push(fault.help("give address/prefix beside it, or remove it"));
        }
        let parsed = way.as_deref().and_then(|way| way.parse().ok()).zip(text.as_deref());
        if let Some(what) = parsed.and_then(|(gateway, own)| value::misses(own, gateway)) {
            faults.push(item.fault(key, what).help(value::GATEWAY));
        }
    }
    if faults.len() > before {
        return None;
    }
    let nic = NicSpec {
        bridge,
        vlan: vlan.or(tag),
        mac: raw.mac.as_ref().map(|mac| mac.to_ascii_uppercase()),
        model: raw.model.clone(),
        firewall: raw.firewall,
        ip_config: if pooled { None } else { ip_config(raw) },
        dns: raw.dns.clone(),
        search: raw.search_domain.split_whitespace().map(str::to_owned).collect(),
    };
    let network = named.filter(|_| raw.bridge.is_none()).map(str::to_owned);
    Some(Card { at: n, nic, network })
}

/// The `ipconfigN` of a card.
fn ip_config(raw: &RawNic) -> Option<String> {
    let mut parts = Vec::new();
    match (raw.ip.as_deref(), &raw.ip6) {
        (Some("none"), _) | (None, Some(_)) => {}
        (ip, _) => parts.push(format!("ip={}", ip.unwrap_or("dhcp"))),
    }
    parts.extend(raw.gateway.as_ref().map(|way| format!("gw={way}")));
    parts.extend(raw.ip6.as_ref().map(|ip| format!("ip6={ip}")));
    parts.extend(raw.gateway6.as_ref().map(|way| format!("gw6={way}")));
    (!parts.is_empty()).then(|| parts.join(","))
}

fn check_macs(cards: &Cards, layer: &Layer, faults: &mut Vec<Fault>) {
    for (at, card) in cards.cards.iter().enumerate() {
        let same = |other: &Card| card.nic.mac.is_some() && other.nic.mac == card.nic.mac;
        if cards.cards[..at].iter().any(same) {
            let message = "another card has this MAC address";
            let fault = layer.item_fault("networks", card.at, message);
            faults.push(fault.help("give each card its own"));
        }
    }
}

impl Cards {
    /// Moves DNS servers and domains to the whole guest, as Proxmox's keys have them, unless cards
    /// differ.
    fn agree(&mut self, agent: &RawAgent) {
        let words = |text: &str| -> Vec<String> {
            let words = text.split([' ', ',', ';']).filter(|word| !word.is_empty());
            words.map(str::to_owned).collect()
        };
        let one = |whole: Vec<String>, of: fn(&NicSpec) -> &Vec<String>, cards: &[Card]| {
            let said = cards.iter().map(|card| of(&card.nic)).filter(|list| !list.is_empty());
            let mut all: Vec<Vec<String>> = said.cloned().collect();
            all.extend(Some(whole).filter(|whole| !whole.is_empty()));
            all.dedup();
            match all.as_slice() {
                [] => Ok(None),
                [one] => Ok(Some(one.join(" "))),
                [_, _, ..] => Err(()),
            }
        };
        let servers = one(words(&agent.nameserver), |nic| &nic.dns, &self.cards);
        let domains = one(words(&agent.search_domain), |nic| &nic.search, &self.cards);
        self.apart = servers.is_err() || domains.is_err();
        if self.apart {
            return;
        }
        self.nameserver = servers.unwrap_or_default();
        self.search = domains.unwrap_or_default();
        for card in &mut self.cards {
            card.nic.dns.clear();
            card.nic.search.clear();
        }
    }

    pub fn any(&self) -> bool {
        !self.cards.is_empty()
    }

    /// The addresses of the first card (`ipconfig0` of Proxmox).
    pub fn first(&self) -> Option<&str> {
        self.cards.first()?.nic.ip_config.as_deref()
    }

    /// Proxmox's own cloud-init keys with the values of the cards.
    pub fn cloud_init(&self, spec: CloudInitSpec) -> CloudInitSpec {
        if !self.any() {
            return spec;
        }
        CloudInitSpec {
            ip_config: self.first().map(str::to_owned),
            ip_configs: Vec::new(),
            nameserver: self.nameserver.clone().or(spec.nameserver),
            search_domain: self.search.clone().or(spec.search_domain),
            ..spec
        }
    }

    /// Whether the guest has a fixed address and no DNS server.
    pub fn lacks_servers(&self) -> bool {
        let fixed = |card: &Card| card.nic.ip_config.as_deref().is_some_and(|ip| ip.contains('/'));
        let dhcp =
            |card: &Card| card.nic.ip_config.as_deref().is_some_and(|ip| ip.contains("dhcp"));
        let asks = |card: &Card| !card.nic.dns.is_empty();
        self.cards.iter().any(fixed)
            && !self.cards.iter().any(|card| dhcp(card) || asks(card))
            && self.nameserver.is_none()
    }

    /// The cards on a cloud with these networks.
    pub fn on(
        &self,
        cloud: &str,
        names: &BTreeMap<String, String>,
        layer: &Layer,
        faults: &mut Vec<Fault>,
    ) -> Vec<NicSpec> {
        let mut nics = Vec::new();
        for card in &self.cards {
            let Some(network) = &card.network else {
                nics.push(card.nic.clone());
                continue;
            };
            let bridge = names.get(network).cloned();
            let Some(bridge) =
                bridge.or_else(|| network.starts_with("vmbr").then(|| network.clone()))
            else {
                let message = format!("cloud `{cloud}` has no network `{network}`");
                let fault = layer.item_fault("networks", card.at, message);
                let help = "give a bridge, or add it to the cloud's networkNames";
                faults.push(fault.nearest(network, names.keys().map(String::as_str), help));
                continue;
            };
            let (bridge, tag) = split(&bridge);
            nics.push(NicSpec { bridge, vlan: card.nic.vlan.or(tag), ..card.nic.clone() });
        }
        nics
    }
}
