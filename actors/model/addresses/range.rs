//! Ranges of addresses, and the networks they lie in.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// Addresses from one to another of the same family, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AddressRange {
    first: IpAddr,
    last: IpAddr,
}

/// An address as a number of its family.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

/// The address of a number in the family of another address.
fn address(number: u128, like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX))),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from(number)),
    }
}

/// Bits of an address of this family.
pub fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl AddressRange {
    /// The range between two addresses; none for two families, or when the last is before the
    /// first.
    pub fn new(first: IpAddr, last: IpAddr) -> Option<Self> {
        (first.is_ipv4() == last.is_ipv4() && first <= last).then_some(Self { first, last })
    }

    /// The network of an address; none for more bits than an address has.
    pub fn network(within: IpAddr, prefix: u8) -> Option<Self> {
        let width = width(within);
        if prefix > width {
            return None;
        }
        let hosts = match u32::from(width - prefix) {
            128 => u128::MAX,
            bits => (1_u128 << bits) - 1,
        };
        let first = number(within) & !hosts;
        Some(Self { first: address(first, within), last: address(first | hosts, within) })
    }

    /// The lowest address.
    pub fn first(&self) -> IpAddr {
        self.first
    }

    /// The highest address.
    pub fn last(&self) -> IpAddr {
        self.last
    }

    /// How many addresses there are; the most a number holds where they are more.
    pub fn size(&self) -> u64 {
        let size = (number(self.last) - number(self.first)).saturating_add(1);
        u64::try_from(size).unwrap_or(u64::MAX)
    }

    /// Whether an address lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.first.is_ipv4() == address.is_ipv4() && self.first <= address && address <= self.last
    }

    /// Whether an address lies in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.first) || other.contains(self.first)
    }

    /// Whether all of another range lies in it.
    pub fn covers(&self, other: &Self) -> bool {
        self.contains(other.first) && self.contains(other.last)
    }

    /// What is left without its own first or last address; none when nothing is.
    pub fn without(&self, end: IpAddr) -> Option<Self> {
        let (mut first, mut last) = (number(self.first), number(self.last));
        if self.first == end {
            first = first.checked_add(1)?;
        } else if self.last == end {
            last = last.checked_sub(1)?;
        }
        (first <= last)
            .then(|| Self { first: address(first, self.first), last: address(last, self.first) })
    }

    /// Its addresses, the lowest first.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let like = self.first;
        (number(self.first)..=number(self.last)).map(move |number| address(number, like))
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            return write!(f, "{}", self.first);
        }
        write!(f, "{}-{}", self.first, self.last)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    // Invariant: a range holds what lies between its ends, both included, of its own family.

    #[test]
    fn a_network_is_the_range_of_its_bits() {
        for (address, prefix, shown, size) in [
            ("10.20.0.77", 24, "10.20.0.0-10.20.0.255", 256),
            ("10.20.0.77", 32, "10.20.0.77", 1),
            ("10.20.0.77", 0, "0.0.0.0-255.255.255.255", 1 << 32),
            ("fd00::7", 127, "fd00::6-fd00::7", 2),
            ("fd00::7", 64, "fd00::-fd00::ffff:ffff:ffff:ffff", u64::MAX),
        ] {
            let network = AddressRange::network(ip(address), prefix).unwrap();
            assert_eq!((network.to_string().as_str(), network.size()), (shown, size));
        }
        assert_eq!(AddressRange::network(ip("10.0.0.1"), 33), None);
    }

    #[test]
    fn families_and_ends_are_kept_apart() {
        let range = AddressRange::new(ip("10.0.0.5"), ip("10.0.0.7")).unwrap();
        let all: Vec<String> = range.iter().map(|address| address.to_string()).collect();
        assert_eq!(all, ["10.0.0.5", "10.0.0.6", "10.0.0.7"]);
        assert!(!range.contains(ip("::10.0.0.6")) && !range.contains(ip("10.0.0.8")));
        assert_eq!(AddressRange::new(ip("10.0.0.7"), ip("10.0.0.5")), None);
        assert_eq!(AddressRange::new(ip("10.0.0.7"), ip("fd00::1")), None);
        let less = range.without(ip("10.0.0.5")).and_then(|range| range.without(ip("10.0.0.7")));
        assert_eq!(less.unwrap().to_string(), "10.0.0.6");
        assert_eq!(less.unwrap().without(ip("10.0.0.6")), None);
    }
}
