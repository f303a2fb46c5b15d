//! Addresses of agents: pools of them, and where each template has its own from.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use drover_model::addresses::range::width;
use drover_model::addresses::{AddressPoolSpec, AddressRange, AddressSource};
use drover_model::id::AddressPoolId;
use serde::Deserialize;

use super::fault::Fault;
use super::keys::ADDRESS_POOL;
use super::layer::Layer;
use super::value;
use drover_api::nearest;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawPool {
    ranges: Vec<String>,
    prefix: u8,
    gateway: Option<IpAddr>,
    cooldown_seconds: u64,
    nameserver: String,
}

/// A pool, or only its place where it is at fault.
pub(super) struct CheckedPool {
    pub spec: Option<AddressPoolSpec>,
    pub layer: Layer,
}

/// All pools by their names.
pub(super) type Pools = BTreeMap<AddressPoolId, CheckedPool>;

/// Makes the pools, each by itself and then beside the others.
pub(super) fn pools(entries: Vec<(String, Layer)>, faults: &mut Vec<Fault>) -> Pools {
    let mut pools = Pools::new();
    for (id, layer) in entries {
        let spec = pool(&layer, faults);
        pools.insert(AddressPoolId::new(&id), CheckedPool { spec, layer });
    }
    apart(&pools, faults);
    pools
}

/// One pool; none where something is wrong with it.
fn pool(layer: &Layer, faults: &mut Vec<Fault>) -> Option<AddressPoolSpec> {
    let before = faults.len();
    let raw: RawPool = layer.typed(ADDRESS_POOL, faults)?;
    let written = ["ranges", "prefix", "gateway", "cooldownSeconds", "nameserver"];
    if faults.len() > before || written.iter().any(|key| layer.is_faulty(key)) {
        return None;
    }
    let Some(first) = raw.ranges.first().and_then(|text| value::range_of(text)) else {
        let fault = layer.fault("ranges", "no range is listed");
        faults.push(fault.help("list at least one, such as `10.20.0.50-10.20.0.99`"));
        return None;
    };
    // A gateway of the link alone lies in no network of guests.
    let gateway = raw.gateway.filter(|gateway| !value::of_link(*gateway));
    let base = gateway.unwrap_or(first.first());
    let Some(network) = AddressRange::network(base, raw.prefix) else {
        let message = format!("an IPv4 address has {} bits", width(base));
        faults
            .push(layer.fault("prefix", message).help("give the bits of the network, such as 24"));
        return None;
    };
    let at_end = ends(network, raw.prefix).into_iter().find(|(end, _)| raw.gateway == Some(*end));
    // Routers of IPv6 may answer to the anycast address.
    if let Some((end, called)) = at_end.filter(|(end, _)| end.is_ipv4()) {
        let message =
            format!("{end} is the {called} address of {}/{}", network.first(), raw.prefix);
        faults.push(layer.fault("gateway", message).help(value::GATEWAY));
    }
    let mut ranges: Vec<AddressRange> = Vec::new();
    for (at, text) in raw.ranges.iter().enumerate() {
        match range(text, network, &raw, &ranges) {
            Ok(range) => ranges.push(range),
            Err((message, help)) => {
                faults.push(layer.item_fault("ranges", at, message).help(help));
            }
        }
    }
    let nameserver = raw.nameserver.trim();
    (faults.len() == before).then(|| AddressPoolSpec {
        ranges,
        prefix: raw.prefix,
        gateway: raw.gateway,
        cooldown: Duration::from_secs(raw.cooldown_seconds),
        nameserver: (!nameserver.is_empty()).then(|| nameserver.to_owned()),
    })
}

/// One range of a pool, as it is given out; or what is wrong with it, and what to do.
fn range(
    text: &str,
    network: AddressRange,
    raw: &RawPool,
    others: &[AddressRange],
) -> Result<AddressRange, (String, &'static str)> {
    let no_range = || (format!("`{text}` is no range"), "write it as `10.20.0.50-10.20.0.99`");
    let written = value::range_of(text).ok_or_else(no_range)?;
    let shown = format!("{}/{}", network.first(), raw.prefix);
    if written.first().is_ipv4() != network.first().is_ipv4() {
        let message = format!("`{text}` is not of the family of {shown}");
        return Err((message, "make a pool of each family, and name the second by addressPool6"));
    }
    if !network.covers(&written) {
        let named = raw.gateway.is_some_and(|gateway| !value::of_link(gateway));
        let whose = if named { "the gateway's" } else { "the first range's" };
        let message = format!("`{text}` is not within {shown}, {whose} network");
        return Err((message, "correct prefix, gateway or range; make a pool of each network"));
    }
    let range =
        if text.contains('/') { trimmed(written, network, raw.prefix) } else { Some(written) };
    let range = range.ok_or_else(no_range)?;
    for (end, called) in ends(network, raw.prefix) {
        if range.contains(end) {
            let message = format!("{end} is the {called} address of {shown}");
            return Err((message, "leave it out of the range"));
        }
    }
    if let Some(gateway) = raw.gateway.filter(|gateway| range.contains(*gateway)) {
        let message = format!("the gateway, {gateway}, is one of its addresses");
        return Err((message, "leave it out: begin the range behind it"));
    }
    if let Some(other) = others.iter().find(|other| other.overlaps(&range)) {
        return Err((format!("it overlaps `{other}`"), "give each address once"));
    }
    Ok(range)
}

/// Addresses of a network that are no guest's.
fn ends(network: AddressRange, prefix: u8) -> Vec<(IpAddr, &'static str)> {
    match network.first() {
        IpAddr::V4(_) if prefix >= 31 => Vec::new(),
        IpAddr::V4(_) => vec![(network.first(), "network"), (network.last(), "broadcast")],
        IpAddr::V6(_) if prefix >= 127 => Vec::new(),
        IpAddr::V6(_) => vec![(network.first(), "router anycast")],
    }
}

/// A CIDR without the ends of its network.
fn trimmed(range: AddressRange, network: AddressRange, prefix: u8) -> Option<AddressRange> {
    let mut range = Some(range);
    for (end, _) in ends(network, prefix) {
        range = range.and_then(
            |range| {
                if range.contains(end) { range.without(end) } else { Some(range) }
            },
        );
    }
    range
}

/// No address is in two pools: they would give it to two agents, or one would never have it.
fn apart(pools: &Pools, faults: &mut Vec<Fault>) {
    let mut all: Vec<_> = pools.iter().collect();
    all.sort_by_key(|(_, pool)| pool.layer.place);
    for (at, (_, pool)) in all.iter().enumerate() {
        let Some(spec) = &pool.spec else { continue };
        for (item, range) in spec.ranges.iter().enumerate() {
            let other = all[..at].iter().find_map(|(id, other)| {
                let theirs = other.spec.iter().flat_map(|spec| &spec.ranges);
                Some((id, theirs.copied().find(|theirs| theirs.overlaps(range))?))
            });
            if let Some((id, theirs)) = other {
                let message = format!("it overlaps `{theirs}` of address pool `{id}`");
                let fault = pool.layer.item_fault("ranges", item, message);
                faults.push(fault.help("templates of several clouds may share one pool"));
            }
        }
    }
}

/// What a template says about its addresses.
pub(super) struct Wanted<'a> {
    pub pool: &'a str,
    pub pool6: &'a str,
    pub from: Option<&'a str>,
    pub ip_config: &'a str,
    /// Whether guests can call drover.
    pub listens: bool,
}

/// Where a template's agents have their addresses from.
pub(super) fn source(
    wanted: &Wanted<'_>,
    layer: &Layer,
    pools: &Pools,
    faults: &mut Vec<Fault>,
) -> AddressSource {
    let names = [("addressPool", wanted.pool), ("addressPool6", wanted.pool6)];
    let named: Vec<_> = names.into_iter().filter(|(_, name)| !name.is_empty()).collect();
    if named.is_empty() {
        return unpooled(wanted, layer, faults);
    }
    if wanted.pool.is_empty() {
        let fault = layer.fault("addressPool6", "addressPool is not given");
        faults.push(fault.help("name the only pool by addressPool, of whichever family"));
    }
    if layer.has("ipConfig") && !layer.is_faulty("ipConfig") && !wanted.ip_config.trim().is_empty()
    {
        let fault = layer.fault("ipConfig", "addressPool says the address already");
        faults.push(fault.help("take one of them out, or leave ipConfig blank here"));
    }
    if let Some(from) = wanted.from.filter(|from| *from != "static") {
        let fault = layer.fault("addressFrom", format!("`{from}` contradicts addressPool"));
        faults.push(fault.help("take one of them out"));
    }
    let mut ids = Vec::new();
    for (key, name) in &named {
        let id = AddressPoolId::new(name);
        match pools.get(&id) {
            Some(pool) => {
                let first = pool.spec.as_ref().and_then(|spec| spec.ranges.first());
                family(key, named.len() == 2, first, layer, faults);
                ids.push(id);
            }
            None => faults.push(unknown(key, name, layer, pools)),
        }
    }
    AddressSource::Pools(ids)
}

/// Of two pools the first is of IPv4 and the second of IPv6.
fn family(
    key: &str,
    two: bool,
    first: Option<&AddressRange>,
    layer: &Layer,
    faults: &mut Vec<Fault>,
) {
    let Some(first) = first.filter(|_| two) else { return };
    let wanted_v4 = key == "addressPool";
    if first.first().is_ipv4() != wanted_v4 {
        let (wanted, is) = if wanted_v4 { ("IPv4", "IPv6") } else { ("IPv6", "IPv4") };
        let message = format!("its addresses are of {is}; of two pools this one gives {wanted}");
        faults.push(layer.fault(key, message).help("name a pool of the other family"));
    }
}

fn unknown(key: &str, name: &str, layer: &Layer, pools: &Pools) -> Fault {
    let known = || pools.keys().map(AddressPoolId::as_str);
    let fault = layer.fault(key, format!("no address pool is called `{name}`"));
    match nearest(name, known()) {
        Some(near) => fault.help(format!("did you mean `{near}`?")),
        None if pools.is_empty() => fault.help("add it to addressPools"),
        None => {
            let all = known().collect::<Vec<_>>().join(", ");
            fault.help(format!("known in addressPools: {all}"))
        }
    }
}

/// Without a pool: the address of `ipConfig` where it names one, unless somebody else is asked.
fn unpooled(wanted: &Wanted<'_>, layer: &Layer, faults: &mut Vec<Fault>) -> AddressSource {
    let fixed = fixed(wanted.ip_config);
    match (wanted.from, fixed) {
        (Some("static"), None) => {
            if !layer.is_faulty("ipConfig") && !layer.is_faulty("networks") {
                let (key, help) = match layer.nested("networks") {
                    [] => ("ipConfig", "name an addressPool, or set ipConfig to one address"),
                    [_, ..] => {
                        ("networks", "name an addressPool, or give the first card an address")
                    }
                };
                let message = format!("neither addressPool nor {key} names an address");
                faults.push(layer.fault("addressFrom", message).help(help));
            }
            AddressSource::GuestAgent
        }
        (Some("static") | None, Some(address)) => AddressSource::Fixed(address),
        (Some("call"), _) => {
            if !wanted.listens {
                let fault =
                    layer.fault("addressFrom", "service.listen is not set: no guest can call");
                faults.push(fault.help("set service.listen to an address that guests reach"));
            }
            AddressSource::Call
        }
        (Some(_) | None, _) => AddressSource::GuestAgent,
    }
}

/// The one address that `ipConfig` names, its IPv4 one first.
fn fixed(ip_config: &str) -> Option<IpAddr> {
    let setting = |name: &str| {
        let mut parts = ip_config.split(',').filter_map(|part| part.trim().split_once('='));
        parts.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let address = |value: &str| value.split_once('/')?.0.parse().ok();
    match setting("ip") {
        Some(value) => address(value),
        None => setting("ip6").and_then(address),
    }
}

/// The warning of one address for all, where that address is written.
fn same_address(layer: &Layer) -> Fault {
    const SAME: &str = "every agent of this template gets the same address";
    let Some(card) = layer.nested("networks").first() else {
        return layer.fault("ipConfig", SAME);
    };
    let fixed = |key: &&str| card.text(key).is_some_and(|text| text.contains('/'));
    card.fault(["ip", "ip6"].into_iter().find(fixed).unwrap_or("ip"), SAME)
}

/// Warns of what a template's addresses can not do.
pub(super) fn advise(
    source: &AddressSource,
    (cap, kept): (u32, u32),
    layer: &Layer,
    pools: &Pools,
    warnings: &mut Vec<Fault>,
) {
    let all = match source {
        AddressSource::GuestAgent | AddressSource::Call => return,
        AddressSource::Fixed(_) => {
            if cap != 1 {
                let fault = same_address(layer);
                let written =
                    if layer.nested("networks").is_empty() { "ip=dhcp" } else { "ip: dhcp" };
                warnings.push(fault.help(format!(
                    "only one at once is begun: name an addressPool, use `{written}`, or set \
                     instanceCap to 1"
                )));
            }
            return;
        }
        AddressSource::Pools(ids) => {
            let specs = ids.iter().filter_map(|id| pools.get(id)?.spec.as_ref());
            specs.map(AddressPoolSpec::size).min()
        }
    };
    if let Some(all) = all.filter(|all| *all < u64::from(kept)) {
        let fault = layer
            .fault("addressPool", format!("it has {all} addresses, and {kept} agents are kept"));
        warnings.push(fault.help("give it more, or lower instanceMin and idleMin"));
    }
}
