//! What a guest reports through its agent: its address and its SSH host keys.
//!
//! [`address`] asks once and chooses by [`choose`]: net0's address first, unless `guestNetworks`
//! names other networks. An agent that is not up yet gives "not yet" with a text; the caller asks
//! again. [`host_keys`] reads the public host key from the guest's files, if the login may.
//!
//! Guests may be hostile: everything is bounded and checked before it is used.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine as _;
use drover_model::fault::FaultKind;
use drover_model::id::{NodeName, VmId};
use drover_model::os::Os;
use drover_model::ports::{AddressObservation, VmRef};
use proxmox_client::PveError;
use proxmox_client::refusal::bounded;
use proxmox_client::types::GuestInterface;

use crate::client::Client;

/// Prefixes of the interfaces of containers and virtual machines inside the guest.
const INNER_INTERFACES: [&str; 9] =
    ["lo", "docker", "br-", "veth", "virbr", "cni", "flannel", "cali", "podman"];

/// Files of public host keys on Linux, the preferred one first.
const KEY_FILES: [&str; 2] =
    ["/etc/ssh/ssh_host_ed25519_key.pub", "/etc/ssh/ssh_host_ecdsa_key.pub"];

/// The same for Windows' own OpenSSH.
const KEY_FILES_WINDOWS: [&str; 2] =
    [r"C:\ProgramData\ssh\ssh_host_ed25519_key.pub", r"C:\ProgramData\ssh\ssh_host_ecdsa_key.pub"];

/// Logs that say how far a guest came, the best first: of cloud-init, and of Cloudbase-Init on Windows.
const LOG_FILES: [&str; 3] = [
    "/var/log/cloud-init-output.log",
    "/var/log/cloud-init.log",
    r"C:\Program Files\Cloudbase Solutions\Cloudbase-Init\log\cloudbase-init.log",
];

/// Characters of a log: the last ones.
const LOG_CHARS_MAX: usize = 4000;

/// How many addresses a message shows when none may be used.
const ADDRESSES_SHOWN_MAX: usize = 4;

/// A longer line is not a host key.
const KEY_LINE_BYTES_MAX: usize = 2048;

/// A range of IP addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cidr {
    base: IpAddr,
    bits: u8,
}

impl Cidr {
    /// Reads `address/bits`, or a single address.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (base, bits) = match text.trim().split_once('/') {
            Some((base, bits)) => (base.parse::<IpAddr>().ok()?, Some(bits.parse::<u8>().ok()?)),
            None => (text.trim().parse::<IpAddr>().ok()?, None),
        };
        let widest = if base.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(widest);
        (bits <= widest).then_some(Self { base, bits })
    }

    pub(crate) fn contains(&self, address: IpAddr) -> bool {
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

/// Chooses the address to connect to, if there is one.
///
/// Inner interfaces are excluded, unless one has net0's MAC address: they come up before the
/// others. If networks are given, the address must be in one of them. Otherwise loopback and
/// link-local addresses are excluded too, and once an interface has net0's MAC address only that
/// interface counts. IPv4 is preferred to IPv6, and earlier addresses to later ones.
pub(crate) fn choose(
    interfaces: &[GuestInterface],
    mac: Option<&str>,
    networks: &[String],
) -> Option<IpAddr> {
    let ranges: Vec<_> = networks.iter().filter_map(|text| Cidr::parse(text)).collect();
    let has_mac = |interface: &GuestInterface| match (mac, &interface.hardware_address) {
        (Some(mac), Some(address)) => address.eq_ignore_ascii_case(mac),
        (None, _) | (_, None) => false,
    };
    let mac_shows = interfaces.iter().any(has_mac);
    let mut fitting = Vec::new();
    for interface in interfaces.iter().take(256) {
        let by_mac = has_mac(interface);
        let inner = INNER_INTERFACES.iter().any(|inner| interface.name.starts_with(inner));
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

/// Whether an address is not a loopback, link-local, unspecified or multicast one.
pub(crate) fn is_plain(address: IpAddr) -> bool {
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

/// Asks the guest agent once for an address to connect to.
pub(crate) async fn address(
    client: &Client,
    node: &NodeName,
    vmid: VmId,
    mac: Option<&str>,
    networks: &[String],
) -> Result<AddressObservation, PveError> {
    let interfaces = match client.interfaces(node.as_str(), vmid.0).await {
        Ok(Ok(interfaces)) => interfaces,
        Ok(Err(text)) => {
            return Ok(AddressObservation::NotYet(format!("the guest agent answered: {text}")));
        }
        Err(error) => return not_yet(error),
    };
    Ok(match choose(&interfaces, mac, networks) {
        Some(address) => AddressObservation::At(address),
        None => AddressObservation::NotYet(no_usable_address(&interfaces, networks)),
    })
}

/// Asks a container's node once for an address to connect to. A stopped container has none.
pub(crate) async fn container_address(
    client: &Client,
    vm: &VmRef,
    mac: Option<&str>,
    networks: &[String],
) -> Result<AddressObservation, PveError> {
    let seen = client.container_interfaces(vm.node.as_str(), vm.vmid.0).await?;
    let interfaces: Vec<GuestInterface> = seen.into_iter().map(GuestInterface::from).collect();
    Ok(match choose(&interfaces, mac, networks) {
        Some(address) => AddressObservation::At(address),
        None => AddressObservation::NotYet(no_usable_address(&interfaces, networks)),
    })
}

/// What the guest has instead of an address that drover may use.
fn no_usable_address(interfaces: &[GuestInterface], networks: &[String]) -> String {
    let within = match networks {
        [] => String::new(),
        networks => format!(" in `{}`", networks.join("`, `")),
    };
    let all = interfaces.iter().flat_map(|interface| &interface.ip_addresses);
    let others: Vec<String> = all
        .filter_map(|address| address.ip_address.parse::<IpAddr>().ok())
        .filter(|address| *address != Ipv4Addr::LOCALHOST && *address != Ipv6Addr::LOCALHOST)
        .take(ADDRESSES_SHOWN_MAX)
        .map(|address| address.to_string())
        .collect();
    if others.is_empty() {
        return format!("the guest has no address{within}");
    }
    format!(
        "the guest has no address{within} that drover may use, only {}: set `guestNetworks` to the \
         networks that drover may use",
        others.join(", ")
    )
}

/// Says a guest agent that is not up yet from a real failure.
pub(crate) fn not_yet(error: PveError) -> Result<AddressObservation, PveError> {
    if let PveError::Unsent { source, .. } = &error {
        return Ok(AddressObservation::NotYet(format!(
            "drover did not ask the guest agent: {source}"
        )));
    }
    let PveError::Refused { refusal, .. } = &error else { return Err(error) };
    let text = &refusal.text;
    let waiting = text.contains("guest agent is not running")
        || text.ends_with("is not running")
        || (text.contains("qga command") && text.contains("got timeout"));
    if waiting { Ok(AddressObservation::NotYet(text.clone())) } else { Err(error) }
}

/// Reads a host key through the guest agent: the first that exists, so that it usually costs one
/// call. Empty when the login may not read files, or the guest has no key.
pub(crate) async fn host_keys(
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
            Err(error) if is_guest_agent_error(&error) => {}
            Err(error) => {
                let denied = matches!(client.fault(&error).kind, FaultKind::Denied { .. });
                return if denied { Ok(Vec::new()) } else { Err(error) };
            }
        }
    }
    Ok(Vec::new())
}

/// Reads the end of the first log that exists through the guest agent.
pub(crate) async fn log(client: &Client, node: &NodeName, vmid: VmId) -> Option<String> {
    for file in LOG_FILES {
        match client.read_file(node.as_str(), vmid.0, file).await {
            Ok(content) => return Some(format!("{file}\n{}", last_lines(&content))),
            Err(error) if is_guest_agent_error(&error) => {}
            Err(_) => return None,
        }
    }
    None
}

/// The whole lines at the end of a text that a guest wrote, without what moves a cursor.
fn last_lines(text: &str) -> String {
    let plain: Vec<char> = text.chars().filter(|c| *c == '\n' || !c.is_control()).collect();
    let cut = plain.len().saturating_sub(LOG_CHARS_MAX);
    let end: String = plain[cut..].iter().collect();
    match end.split_once('\n') {
        Some((_, lines)) if cut > 0 => lines.to_owned(),
        Some(_) | None => end,
    }
}

fn is_guest_agent_error(error: &PveError) -> bool {
    matches!(error, PveError::Refused { refusal, .. } if refusal.text.starts_with("Agent error:"))
}

/// Checks that a text is one public host key; returns its type and blob without the comment.
pub(crate) fn host_key(content: &str) -> Option<String> {
    let line = content.lines().next().filter(|line| line.len() <= KEY_LINE_BYTES_MAX)?;
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
