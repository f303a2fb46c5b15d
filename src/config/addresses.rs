//! Addresses of agents: the pools, and which source of addresses each template has.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use drover_model::addresses::range::width;
use drover_model::addresses::{AddressPoolSpec, AddressRange, AddressSource};
use drover_model::id::AddressPoolId;

use super::fault::Fault;
use super::keys::{AddressFrom, RawAgent, RawPool};
use super::layer::Layer;
use super::value;

/// A pool; without a spec where it has a fault.
pub(super) struct CheckedPool {
    pub spec: Option<AddressPoolSpec>,
    pub layer: Layer,
}

/// All pools by their names.
pub(super) type Pools = BTreeMap<AddressPoolId, CheckedPool>;

/// Makes the pools, and checks that they do not overlap.
pub(super) fn pools(entries: Vec<(String, Layer)>, faults: &mut Vec<Fault>) -> Pools {
    let mut pools = Pools::new();
    for (id, layer) in entries {
        let spec = pool(&layer, faults);
        pools.insert(AddressPoolId::new(&id), CheckedPool { spec, layer });
    }
    check_overlaps(&pools, faults);
    pools
}

/// One pool; none where something is wrong with it.
fn pool(layer: &Layer, faults: &mut Vec<Fault>) -> Option<AddressPoolSpec> {
    let before = faults.len();
    let raw: RawPool = layer.typed(faults)?;
    if faults.len() > before || layer.has_faulty() {
        return None;
    }
    let first = raw.ranges.first().and_then(|text| value::range_of(text))?;
    // A link-local gateway (`fe80::/10`) is not in the network of the guests.
    let gateway = raw.gateway.filter(|gateway| !value::is_link_local(*gateway));
    let base = gateway.unwrap_or(first.first());
    let Some(network) = AddressRange::network(base, raw.prefix) else {
        let message = format!("an IPv4 address has {} bits", width(base));
        faults
            .push(layer.fault("prefix", message).help("give the bits of the network, such as 24"));
        return None;
    };
    let at_end = ends(network, raw.prefix).into_iter().find(|(end, _)| raw.gateway == Some(*end));
    // An IPv6 router may answer at the anycast address.
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

/// One range of a pool, as drover gives it out; or what is wrong with it, and what to do.
fn range(
    text: &str,
    network: AddressRange,
    raw: &RawPool,
    others: &[AddressRange],
) -> Result<AddressRange, (String, &'static str)> {
    let no_range = || (format!("`{text}` is not a range"), "write it as `10.20.0.50-10.20.0.99`");
    let written = value::range_of(text).ok_or_else(no_range)?;
    let shown = format!("{}/{}", network.first(), raw.prefix);
    if written.first().is_ipv4() != network.first().is_ipv4() {
        let message = format!("`{text}` and {shown} are not both IPv4 or both IPv6");
        return Err((message, "make a pool for each, and name the IPv6 one by addressPool6"));
    }
    if !network.covers(&written) {
        let by_gateway = raw.gateway.is_some_and(|gateway| !value::is_link_local(gateway));
        let whose = if by_gateway { "the gateway's" } else { "the first range's" };
        let message = format!("`{text}` is not in {shown}, {whose} network");
        return Err((message, "correct prefix, gateway or range, or make a pool for each network"));
    }
    let range =
        if text.contains('/') { trimmed(written, network, raw.prefix) } else { Some(written) };
    let range = range.ok_or_else(no_range)?;
    for (end, called) in ends(network, raw.prefix) {
        if range.contains(end) {
            let message = format!("{end} is the {called} address of {shown}");
            return Err((message, "remove it from the range"));
        }
    }
    if let Some(gateway) = raw.gateway.filter(|gateway| range.contains(*gateway)) {
        let message = format!("the range contains the gateway, {gateway}");
        return Err((message, "begin the range behind it"));
    }
    if let Some(other) = others.iter().find(|other| other.overlaps(&range)) {
        return Err((format!("it overlaps `{other}`"), "list each address once"));
    }
    Ok(range)
}

/// The addresses of a network that a guest cannot have.
fn ends(network: AddressRange, prefix: u8) -> Vec<(IpAddr, &'static str)> {
    match network.first() {
        IpAddr::V4(_) if prefix >= 31 => Vec::new(),
        IpAddr::V4(_) => vec![(network.first(), "network"), (network.last(), "broadcast")],
        IpAddr::V6(_) if prefix >= 127 => Vec::new(),
        IpAddr::V6(_) => vec![(network.first(), "router anycast")],
    }
}

/// A CIDR without the addresses of [`ends`].
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

/// Faults of addresses in two pools: both pools would give them to agents.
fn check_overlaps(pools: &Pools, faults: &mut Vec<Fault>) {
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
                faults.push(fault.help("use one pool: templates of several clouds can share it"));
            }
        }
    }
}

/// The source of addresses of a template. `ip_config` is that of its first card, `listens` says
/// whether guests can call drover.
pub(super) fn source(
    raw: &RawAgent,
    ip_config: &str,
    listens: bool,
    layer: &Layer,
    pools: &Pools,
    faults: &mut Vec<Fault>,
) -> AddressSource {
    let names = [("addressPool", &raw.address_pool), ("addressPool6", &raw.address_pool6)];
    let named: Vec<_> = names.into_iter().filter(|(_, name)| !name.is_empty()).collect();
    let from = raw.address_from;
    if named.is_empty() {
        return without_pool(from, ip_config, listens, layer, faults);
    }
    if raw.address_pool.is_empty() {
        let fault = layer.fault("addressPool6", "addressPool is not given");
        faults.push(fault.help("name a single pool by addressPool, also one of IPv6"));
    }
    if layer.is_sound("ipConfig") && !ip_config.trim().is_empty() {
        let fault = layer.fault("ipConfig", "addressPool already gives the address");
        faults.push(fault.help("remove one of the two, or leave ipConfig blank here"));
    }
    if from.is_some_and(|from| from != AddressFrom::Static) {
        let from = layer.text("addressFrom").unwrap_or_default();
        let fault = layer.fault("addressFrom", format!("`{from}` contradicts addressPool"));
        faults.push(fault.help("remove one of the two"));
    }
    let mut ids = Vec::new();
    for (key, name) in &named {
        let id = AddressPoolId::new(name);
        match pools.get(&id) {
            Some(pool) => {
                let first = pool.spec.as_ref().and_then(|spec| spec.ranges.first());
                check_family(key, named.len() == 2, first, layer, faults);
                ids.push(id);
            }
            None => {
                let known = pools.keys().map(AddressPoolId::as_str);
                let fault = layer.fault(key, format!("unknown address pool `{name}`"));
                faults.push(fault.known_in("addressPools", name, known));
            }
        }
    }
    AddressSource::Pools(ids)
}

/// Of two pools the first one is IPv4 and the second one IPv6.
fn check_family(
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
        let message = format!("its addresses are {is}; of two pools this one must be {wanted}");
        faults.push(layer.fault(key, message).help(format!("name a pool of {wanted} addresses")));
    }
}

/// Without a pool: the address of `ipConfig` where it has one, unless `addressFrom` says otherwise.
fn without_pool(
    from: Option<AddressFrom>,
    ip_config: &str,
    listens: bool,
    layer: &Layer,
    faults: &mut Vec<Fault>,
) -> AddressSource {
    match (from, fixed(ip_config)) {
        (Some(AddressFrom::Static), None) => {
            if !layer.is_faulty("ipConfig") && !layer.is_faulty("networks") {
                let (key, help) = if layer.nested("networks").is_empty() {
                    ("ipConfig", "name an addressPool, or set ipConfig to one address")
                } else {
                    ("networks", "name an addressPool, or give the first card an address")
                };
                let message = format!("neither addressPool nor {key} gives an address");
                faults.push(layer.fault("addressFrom", message).help(help));
            }
            AddressSource::GuestAgent
        }
        (Some(AddressFrom::Static) | None, Some(address)) => AddressSource::Fixed(address),
        (Some(AddressFrom::Call), _) => {
            if !listens {
                let message = "service.listen is not set, so guests cannot call drover";
                let fault = layer.fault("addressFrom", message);
                faults.push(fault.help("set service.listen to an address that guests reach"));
            }
            AddressSource::Call
        }
        (Some(AddressFrom::GuestAgent), _) | (None, None) => AddressSource::GuestAgent,
    }
}

/// The address in `ipConfig`, IPv4 before IPv6.
pub(super) fn fixed(ip_config: &str) -> Option<IpAddr> {
    let own = value::ip_setting(ip_config, "ip").or_else(|| value::ip_setting(ip_config, "ip6"));
    own?.split_once('/')?.0.parse().ok()
}

/// The warning that all agents have one address, in the place of that address.
fn same_address(layer: &Layer) -> Fault {
    const SAME: &str = "all agents of this template get the same address";
    let Some(card) = layer.nested("networks").first() else {
        return layer.fault("ipConfig", SAME);
    };
    let fixed = |key: &&str| card.text(key).is_some_and(|text| text.contains('/'));
    card.fault(["ip", "ip6"].into_iter().find(fixed).unwrap_or("ip"), SAME)
}

/// Warns where a template has fewer addresses than agents.
pub(super) fn warn_few(
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
                    "drover runs only one at a time: name an addressPool, use `{written}`, or set \
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
        let message = format!("the pool has {all} addresses for a minimum of {kept} agents");
        let fault = layer.fault("addressPool", message);
        warnings.push(fault.help("add addresses, or lower instanceMin and idleMin"));
    }
}
