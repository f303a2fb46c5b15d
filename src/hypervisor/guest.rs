//! What a guest says of itself through its agent: its address and its SSH host keys. Guests are
//! hostile: everything is bounded and checked before it is believed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine as _;
use drover_model::fault::FaultKind;
use drover_model::id::{NodeName, VmId};
use drover_model::os::Os;
use drover_model::ports::AddressSight;
use proxmox_client::PveError;
use proxmox_client::refusal::bounded;
use proxmox_client::types::Interface;

use crate::client::Client;

/// Names of interfaces that containers and virtual machines inside the guest bring along.
const INNER: [&str; 9] =
    ["lo", "docker", "br-", "veth", "virbr", "cni", "flannel", "cali", "podman"];

/// Public host keys, the preferred one first.
const KEY_FILES: [&str; 2] =
    ["/etc/ssh/ssh_host_ed25519_key.pub", "/etc/ssh/ssh_host_ecdsa_key.pub"];

/// The same of Windows' own OpenSSH.
const KEY_FILES_WINDOWS: [&str; 2] =
    [r"C:\ProgramData\ssh\ssh_host_ed25519_key.pub", r"C:\ProgramData\ssh\ssh_host_ecdsa_key.pub"];

/// Addresses that are named when none of them fits.
const SHOWN: usize = 4;

/// Longer lines are no host key.
const KEY_MAX: usize = 2048;

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    base: IpAddr,
    bits: u8,
}

impl Cidr {
    /// Reads `address/bits`, or one address alone.
    pub fn parse(text: &str) -> Option<Self> {
        let (base, bits) = match text.trim().split_once('/') {
            Some((base, bits)) => (base.parse::<IpAddr>().ok()?, Some(bits.parse::<u8>().ok()?)),
            None => (text.trim().parse::<IpAddr>().ok()?, None),
        };
        let widest = if base.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(widest);
        (bits <= widest).then_some(Self { base, bits })
    }

    /// Whether an address lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                u32::from(base) & mask == u32::from(address) & mask
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                u128::from(base) & mask == u128::from(address) & mask
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// Chooses the address to connect to, if any fits.
///
/// Inner interfaces are ruled out, unless one has net0's MAC: they are up before the others. With
/// networks given, an address must lie in one of them. Without, loopback and link-local ones are
/// ruled out too, and once an interface has net0's MAC only that one counts. IPv4 goes before IPv6, earlier before later.
pub fn choose(interfaces: &[Interface], mac: Option<&str>, networks: &[String]) -> Option<IpAddr> {
    let ranges: Vec<_> = networks.iter().filter_map(|text| Cidr::parse(text)).collect();
    let has_mac = |interface: &Interface| match (mac, &interface.hardware_address) {
        (Some(mac), Some(address)) => address.eq_ignore_ascii_case(mac),
        (None, _) | (_, None) => false,
    };
    let mac_shows = interfaces.iter().any(has_mac);
    let mut fitting = Vec::new();
    for interface in interfaces.iter().take(256) {
        let by_mac = has_mac(interface);
        let inner = INNER.iter().any(|inner| interface.name.starts_with(inner));
        let other = mac_shows && networks.is_empty();
        let ruled_out = !by_mac && (inner || other);
        if ruled_out {
            continue;
        }
        for address in interface.ip_addresses.iter().take(64) {
            let Ok(address) = address.ip_address.parse::<IpAddr>() else { continue };
            let fits = match networks.is_empty() {
                true => is_plain(address),
                false => ranges.iter().any(|range| range.contains(address)),
            };
            if fits {
                fitting.push((!by_mac, address.is_ipv6(), address));
            }
        }
    }
    fitting.into_iter().min_by_key(|(other, v6, _)| (*other, *v6)).map(|(_, _, address)| address)
}

/// Whether an address is neither loopback, link-local, unspecified nor multicast.
fn is_plain(address: IpAddr) -> bool {
    let special = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4 == Ipv4Addr::BROADCAST,
        IpAddr::V6(v6) => {
            v6.is_unicast_link_local()
                || v6.to_ipv4_mapped().is_some()
                || v6 == Ipv6Addr::UNSPECIFIED
        }
    };
    !special && !address.is_loopback() && !address.is_unspecified() && !address.is_multicast()
}

/// Asks the agent once for an address that fits.
pub async fn address(
    client: &Client,
    node: &NodeName,
    vmid: VmId,
    mac: Option<&str>,
    networks: &[String],
) -> Result<AddressSight, PveError> {
    let interfaces = match client.interfaces(node.as_str(), vmid.0).await {
        Ok(Ok(interfaces)) => interfaces,
        Ok(Err(text)) => return Ok(AddressSight::NotYet(format!("the agent says: {text}"))),
        Err(error) => return not_yet(error),
    };
    Ok(match choose(&interfaces, mac, networks) {
        Some(address) => AddressSight::At(address),
        None => AddressSight::NotYet(none_fits(&interfaces, networks)),
    })
}

/// Says what the guest has instead of an address that fits.
fn none_fits(interfaces: &[Interface], networks: &[String]) -> String {
    let within = match networks {
        [] => String::new(),
        networks => format!(" in `{}`", networks.join("`, `")),
    };
    let all = interfaces.iter().flat_map(|interface| &interface.ip_addresses);
    let others: Vec<String> = all
        .filter_map(|address| address.ip_address.parse::<IpAddr>().ok())
        .filter(|address| *address != Ipv4Addr::LOCALHOST && *address != Ipv6Addr::LOCALHOST)
        .take(SHOWN)
        .map(|address| address.to_string())
        .collect();
    if others.is_empty() {
        return format!("the guest has no address{within}");
    }
    format!(
        "the guest has no address{within} that counts, but {}; `guestNetworks` says which do",
        others.join(", ")
    )
}

/// Sorts out an agent that is not up from real failures.
fn not_yet(error: PveError) -> Result<AddressSight, PveError> {
    if let PveError::Unsent { source, .. } = &error {
        return Ok(AddressSight::NotYet(format!("its guest agent was not asked: {source}")));
    }
    let PveError::Refused { refusal, .. } = &error else { return Err(error) };
    let text = &refusal.text;
    let waiting = text.contains("guest agent is not running")
        || text.ends_with("is not running")
        || (text.contains("qga command") && text.contains("got timeout"));
    if waiting { Ok(AddressSight::NotYet(text.clone())) } else { Err(error) }
}

/// Reads a host key through the agent: the first there is, so that it costs one call; empty when
/// the login may not read files or the guest has none.
pub async fn host_keys(
    client: &Client,
    node: &NodeName,
    vmid: VmId,
    os: Os,
) -> Result<Vec<String>, PveError> {
    let files = match os {
        Os::Linux => KEY_FILES,
        Os::Windows(_) => KEY_FILES_WINDOWS,
    };
    for file in files {
        match client.read_file(node.as_str(), vmid.0, file).await {
            Ok(content) => {
                if let Some(key) = host_key(&content) {
                    return Ok(vec![key]);
                }
            }
            Err(error) if is_agents_own(&error) => {}
            Err(error) => {
                let denied = matches!(client.fault(&error).kind, FaultKind::Denied { .. });
                return if denied { Ok(Vec::new()) } else { Err(error) };
            }
        }
    }
    Ok(Vec::new())
}

fn is_agents_own(error: &PveError) -> bool {
    matches!(error, PveError::Refused { refusal, .. } if refusal.text.starts_with("Agent error:"))
}

/// Checks that text is one public host key; gives its type and blob without the comment.
pub fn host_key(content: &str) -> Option<String> {
    let line = content.lines().next().filter(|line| line.len() <= KEY_MAX)?;
    let mut words = line.split_ascii_whitespace();
    let (kind, blob) = (words.next()?, words.next()?);
    let known = kind == "ssh-ed25519" || kind.starts_with("ecdsa-sha2-nistp");
    let raw = base64::engine::general_purpose::STANDARD.decode(blob).ok()?;
    let length = u32::try_from(kind.len()).ok()?.to_be_bytes();
    let agrees = raw.starts_with(&length) && raw[4..].starts_with(kind.as_bytes());
    (known && agrees).then(|| bounded(&format!("{kind} {blob}")))
}

#[cfg(test)]
mod tests;
