//! What a pool of addresses is, where a template's agents have their addresses from, and one
//! address given to one agent.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::range::{AddressRange, width};
use crate::id::AddressPoolId;
use crate::spec::CloudInitSpec;

/// Addresses given to agents one by one (an entry of `addressPools`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressPoolSpec {
    /// What it gives, without doubles.
    pub ranges: Vec<AddressRange>,
    /// Bits of the network.
    pub prefix: u8,
    /// The network's way out; none for none.
    pub gateway: Option<IpAddr>,
    /// How long an address rests after its agent is gone.
    pub cooldown: Duration,
    /// The network's DNS servers; none for the template's own.
    pub nameserver: Option<String>,
}

impl AddressPoolSpec {
    /// How many addresses it has.
    pub fn size(&self) -> u64 {
        self.ranges.iter().map(AddressRange::size).fold(0, u64::saturating_add)
    }

    /// Whether it gives an address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(address))
    }
}

/// Where a template's agents have their addresses from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AddressSource {
    /// The guest agent reports it.
    #[default]
    GuestAgent,
    /// One of each of these pools; by the first it is reached.
    Pools(Vec<AddressPoolId>),
    /// The one address of `ipConfig`: one agent at once has it.
    Fixed(IpAddr),
    /// The guest says it itself, by a call with a secret that only it knows.
    Call,
}

impl AddressSource {
    /// Whether there are only so many of them.
    pub fn is_scarce(&self) -> bool {
        match self {
            Self::GuestAgent | Self::Call => false,
            Self::Pools(_) | Self::Fixed(_) => true,
        }
    }
}

/// An address that is one agent's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssignedAddress {
    /// The pool it is of; none for the one of `ipConfig`.
    pub pool: Option<AddressPoolId>,
    pub address: IpAddr,
    /// Bits of its network.
    pub prefix: u8,
    /// The network's way out.
    pub gateway: Option<IpAddr>,
    /// The network's DNS servers.
    pub nameserver: Option<String>,
    /// How long it rests afterwards, in milliseconds.
    pub cooldown_ms: u64,
}

impl AssignedAddress {
    /// An address of a pool.
    pub fn of(pool: &AddressPoolId, spec: &AddressPoolSpec, address: IpAddr) -> Self {
        Self {
            pool: Some(pool.clone()),
            address,
            prefix: spec.prefix,
            gateway: spec.gateway,
            nameserver: spec.nameserver.clone(),
            cooldown_ms: u64::try_from(spec.cooldown.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// The address of `ipConfig`, which says the rest itself.
    pub fn fixed(address: IpAddr) -> Self {
        let (pool, gateway, nameserver) = (None, None, None);
        Self { pool, address, prefix: width(address), gateway, nameserver, cooldown_ms: 0 }
    }

    /// How long it rests afterwards.
    pub fn cooldown(&self) -> Duration {
        Duration::from_millis(self.cooldown_ms)
    }

    /// Its part of `ipconfig0`.
    fn ip_config(&self) -> String {
        let (ip, gw) = if self.address.is_ipv4() { ("ip", "gw") } else { ("ip6", "gw6") };
        let way = self.gateway.map(|gateway| format!(",{gw}={gateway}")).unwrap_or_default();
        format!("{ip}={}/{}{way}", self.address, self.prefix)
    }
}

/// Puts an agent's addresses into what cloud-init is given; those of `ipConfig` are there.
pub fn report(cloud_init: &mut CloudInitSpec, addresses: &[AssignedAddress]) {
    let pooled: Vec<&AssignedAddress> = addresses.iter().filter(|one| one.pool.is_some()).collect();
    if pooled.is_empty() {
        return;
    }
    let parts: Vec<String> = pooled.iter().map(|one| one.ip_config()).collect();
    cloud_init.ip_config = Some(parts.join(","));
    if cloud_init.nameserver.is_none() {
        let servers: Vec<&str> =
            pooled.iter().filter_map(|one| one.nameserver.as_deref()).collect();
        cloud_init.nameserver = (!servers.is_empty()).then(|| servers.join(" "));
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn assigned(address: &str, gateway: Option<&str>, nameserver: Option<&str>) -> AssignedAddress {
        AssignedAddress {
            pool: Some(AddressPoolId::new("lab")),
            gateway: gateway.map(|gateway| gateway.parse().unwrap()),
            nameserver: nameserver.map(str::to_owned),
            prefix: 24,
            ..AssignedAddress::fixed(address.parse().unwrap())
        }
    }

    fn reported(addresses: &[AssignedAddress], own: CloudInitSpec) -> (String, String) {
        let mut cloud_init = own;
        report(&mut cloud_init, addresses);
        (cloud_init.ip_config.unwrap_or_default(), cloud_init.nameserver.unwrap_or_default())
    }

    // Invariant: cloud-init is given the agent's own addresses in Proxmox's form, and nothing else is
    // changed that the template says itself.

    #[test]
    fn addresses_of_pools_are_reported_and_the_fixed_one_stands_in_the_template() {
        let v4 = assigned("10.20.0.50", Some("10.20.0.1"), Some("10.20.0.2"));
        let v6 = AssignedAddress { prefix: 64, ..assigned("fd00::50", Some("fd00::1"), None) };
        let both = reported(&[v4.clone(), v6], CloudInitSpec::default());
        let config = "ip=10.20.0.50/24,gw=10.20.0.1,ip6=fd00::50/64,gw6=fd00::1";
        assert_eq!(both, (config.to_owned(), "10.20.0.2".to_owned()));
        let own = CloudInitSpec { nameserver: Some("9.9.9.9".into()), ..CloudInitSpec::default() };
        assert_eq!(reported(&[v4], own).1, "9.9.9.9");
        let alone = assigned("10.20.0.50", None, None);
        assert_eq!(reported(&[alone], CloudInitSpec::default()).0, "ip=10.20.0.50/24");
        let written = CloudInitSpec { ip_config: Some("ip=x".into()), ..CloudInitSpec::default() };
        let fixed = AssignedAddress::fixed("10.0.0.5".parse().unwrap());
        assert_eq!(reported(&[fixed], written).0, "ip=x");
    }
}
