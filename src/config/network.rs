//! A template's network cards (`networks`), and which bridge a network's name stands for.

use std::collections::BTreeMap;

use drover_model::seed::NicSpec;
use drover_model::spec::CloudInitSpec;
use serde::Deserialize;

use super::fault::Fault;
use super::keys::NIC;
use super::layer::Layer;
use super::value;
use drover_api::nearest;

/// Keys that `networks` stands in the place of.
pub(super) const REPLACED: [&str; 4] = ["bridge", "vlan", "ipConfig", "ipConfigs"];
/// More cards than Proxmox gives a guest.
const MOST: usize = 32;

/// Names of networks and their bridges where nothing else is said.
const NAMES: [(&str, &str); 5] = [
    ("lan", "vmbr0"),
    ("default", "vmbr0"),
    ("dmz", "vmbr1"),
    ("mgmt", "vmbr2"),
    ("management", "vmbr2"),
];

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawNic {
    name: Option<String>,
    bridge: Option<String>,
    vlan: u16,
    mac: Option<String>,
    ip: Option<String>,
    gateway: Option<String>,
    ip6: Option<String>,
    gateway6: Option<String>,
    dns: Vec<String>,
    search_domain: String,
    firewall: Option<bool>,
    model: Option<String>,
}

/// The cards of a template; bridges that are names of a cloud's networks are not known yet.
#[derive(Debug, Default)]
pub(super) struct Cards {
    cards: Vec<Card>,
    /// DNS servers and domains of the whole guest, where all cards agree.
    pub nameserver: Option<String>,
    pub search: Option<String>,
    /// Whether single cards have servers or domains of their own, which no key of Proxmox's says.
    pub apart: bool,
}

#[derive(Debug)]
struct Card {
    /// Its place in the list.
    at: usize,
    /// Of the first network card: what `networks` says of it in all.
    nic: NicSpec,
    network: Option<String>,
}

/// What else a template says that its cards must agree with.
pub(super) struct Beside<'a> {
    pub cap: u32,
    pub pooled: bool,
    pub nameserver: &'a str,
    pub search: &'a str,
}

/// The names of a cloud's networks with their bridges.
pub(super) fn names(own: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let known = NAMES.map(|(name, bridge)| (name.to_owned(), bridge.to_owned()));
    let own = own.iter().map(|(name, bridge)| (name.clone(), bridge.clone()));
    known.into_iter().chain(own).collect()
}

/// A bridge, and the VLAN that `vmbr0.100` names beside it.
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
pub(super) fn cards(layer: &Layer, beside: &Beside<'_>, faults: &mut Vec<Fault>) -> Cards {
    let items = layer.nested("networks");
    if items.is_empty() {
        return Cards::default();
    }
    if items.len() > MOST {
        let message = format!("{} network cards are more than {MOST}", items.len());
        faults.push(layer.fault("networks", message).help("Proxmox gives a guest no more"));
        return Cards::default();
    }
    for key in REPLACED.into_iter().filter(|key| layer.has(key)) {
        let fault = layer.fault(key, format!("networks and {key} contradict"));
        faults.push(fault.help("say it in networks, or take networks out"));
    }
    let mut cards = Cards::default();
    for (n, item) in items.iter().enumerate() {
        let Some(raw) = item.typed::<RawNic>(NIC.keys, faults) else { continue };
        cards.cards.extend(card(n, &raw, item, beside, faults));
    }
    twice(&cards, layer, faults);
    cards.agree(beside);
    cards
}

fn card(
    n: usize,
    raw: &RawNic,
    item: &Layer,
    beside: &Beside<'_>,
    faults: &mut Vec<Fault>,
) -> Option<Card> {
    let before = faults.len();
    let named = raw.name.as_deref().map(str::trim).filter(|name| !name.is_empty());
    if raw.bridge.is_none() && named.is_none() && !item.is_faulty("bridge") {
        let mut fault = item.fault("", "neither bridge nor name is given");
        fault.path.clone_from(&item.path);
        faults.push(fault.help("add `bridge: vmbr0`, or the name of a network"));
    }
    let (bridge, tag) = split(raw.bridge.as_deref().unwrap_or_default());
    let vlan = (raw.vlan > 0).then_some(raw.vlan);
    if tag.is_some_and(|tag| vlan.is_some_and(|vlan| vlan != tag)) {
        let fault = item.fault("vlan", "the bridge names another VLAN");
        faults.push(fault.help("keep one of them"));
    }
    let one = beside.cap == 1;
    if raw.mac.is_some() && !one {
        let fault = item.fault("mac", "several agents would have the same MAC address");
        faults.push(fault.help("take it out, or set instanceCap to 1"));
    }
    let fixed = |text: &Option<String>| text.as_deref().is_some_and(|text| text.contains('/'));
    for (key, text) in [("ip", &raw.ip), ("ip6", &raw.ip6)] {
        if n > 0 && fixed(text) && !one {
            let fault = item.fault(key, "several agents would have the same address");
            faults.push(fault.help("use dhcp, or set instanceCap to 1"));
        }
        if n == 0 && text.is_some() && beside.pooled {
            let fault = item.fault(key, "addressPool says the address already");
            faults.push(fault.help("take one of them out"));
        }
    }
    for (key, way, text) in
        [("gateway", &raw.gateway, &raw.ip), ("gateway6", &raw.gateway6, &raw.ip6)]
    {
        if way.is_some() && !fixed(text) {
            let fault = item.fault(key, "there is no address that it is the way out for");
            faults.push(fault.help("give address/prefix beside it, or take it out"));
        }
        let parsed = way.as_deref().and_then(|way| way.parse().ok()).zip(text.as_deref());
        if let Some(what) = parsed.and_then(|(gateway, own)| value::misses(own, gateway)) {
            faults.push(item.fault(key, what).help(value::GATEWAY));
        }
    }
    if faults.len() > before {
        return None;
    }
    let pooled = n == 0 && beside.pooled;
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

/// What a card is to have, as `ipconfigN` says it.
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

fn twice(cards: &Cards, layer: &Layer, faults: &mut Vec<Fault>) {
    for (at, card) in cards.cards.iter().enumerate() {
        let same = |other: &Card| card.nic.mac.is_some() && other.nic.mac == card.nic.mac;
        if cards.cards[..at].iter().any(same) {
            let message = "another card has this MAC address";
            let fault = layer.item_fault("networks", card.at, message);
            faults.push(fault.help("give each its own"));
        }
    }
}

impl Cards {
    /// Finds out whether Proxmox's own keys, which are the whole guest's, say what the cards do.
    fn agree(&mut self, beside: &Beside<'_>) {
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
        let servers = one(words(beside.nameserver), |nic| &nic.dns, &self.cards);
        let domains = one(words(beside.search), |nic| &nic.search, &self.cards);
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

    /// Whether there are any.
    pub fn any(&self) -> bool {
        !self.cards.is_empty()
    }

    /// What the first one is to have.
    pub fn first(&self) -> Option<&str> {
        self.cards.first()?.nic.ip_config.as_deref()
    }

    /// Puts what the first card is to have, and what all agree in, into Proxmox's own keys.
    pub fn tell(&self, told: CloudInitSpec) -> CloudInitSpec {
        if !self.any() {
            return told;
        }
        CloudInitSpec {
            ip_config: self.first().map(str::to_owned),
            ip_configs: Vec::new(),
            nameserver: self.nameserver.clone().or(told.nameserver),
            search_domain: self.search.clone().or(told.search_domain),
            ..told
        }
    }

    /// Whether a card has an address and nobody who answers questions for names.
    pub fn lacks_servers(&self) -> bool {
        let fixed = |card: &Card| card.nic.ip_config.as_deref().is_some_and(|ip| ip.contains('/'));
        let dhcp =
            |card: &Card| card.nic.ip_config.as_deref().is_some_and(|ip| ip.contains("dhcp"));
        let asks = |card: &Card| !card.nic.dns.is_empty();
        self.cards.iter().any(fixed)
            && !self.cards.iter().any(|card| dhcp(card) || asks(card))
            && self.nameserver.is_none()
    }

    /// The cards on a cloud, whose networks have these names.
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
                let message = format!("cloud `{cloud}` has no network called `{network}`");
                let fault = layer.item_fault("networks", card.at, message);
                faults.push(match nearest(network, names.keys().map(String::as_str)) {
                    Some(near) => fault.help(format!("did you mean `{near}`?")),
                    None => fault.help("give a bridge, or add it to the cloud's networkNames"),
                });
                continue;
            };
            let (bridge, tag) = split(&bridge);
            nics.push(NicSpec { bridge, vlan: card.nic.vlan.or(tag), ..card.nic.clone() });
        }
        nics
    }
}
