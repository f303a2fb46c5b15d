//! Who is at the other end of a connection.
//!
//! A [`Peer`] counts for what one site or user may take of the server: connections, bodies, wrong tokens.
//! A [`LocalPeer`] is what the system knows of a process on the Unix socket, and proves its caller.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use actix_web::{HttpMessage, HttpRequest};

/// Somebody who may connect many times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Peer {
    /// An IPv4 address, or the first 64 bits of an IPv6 address: one site usually has all addresses
    /// of such a network.
    Address(IpAddr),
    /// A local user.
    User(u32),
}

impl Peer {
    /// The peer at an address.
    pub(super) fn at(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => {
                let network = u128::from(address) & !u128::from(u64::MAX);
                IpAddr::V6(network.into())
            }
        })
    }
}

/// The process at the other end of the Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LocalPeer {
    pub uid: u32,
    pub gid: u32,
    pub service_uid: u32,
}

/// Where a request comes from. In its extensions is the origin of one that another member forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Address(IpAddr),
    /// A local user, here or on the member that forwarded it.
    User(u32),
}

impl Origin {
    /// Who counts for what comes from there.
    pub(super) fn peer(self) -> Peer {
        match self {
            Self::Address(address) => Peer::at(address),
            Self::User(uid) => Peer::User(uid),
        }
    }

    /// The address, where it is not of a local user.
    pub(super) fn address(self) -> Option<IpAddr> {
        match self {
            Self::Address(address) => Some(address),
            Self::User(_) => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::User(uid) => write!(f, "uid:{uid}"),
        }
    }
}

impl FromStr for Origin {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.strip_prefix("uid:") {
            Some(uid) => uid.parse().map(Self::User).map_err(|_| ()),
            None => text.parse().map(Self::Address).map_err(|_| ()),
        }
    }
}

/// Where a request comes from: from whom another member forwards it, else the other end of its
/// connection.
pub(super) fn origin_of(request: &HttpRequest) -> Origin {
    if let Some(origin) = request.extensions().get::<Origin>() {
        return *origin;
    }
    if let Some(local) = request.conn_data::<LocalPeer>() {
        return Origin::User(local.uid);
    }
    let address = request.peer_addr().map(|address| address.ip().to_canonical());
    Origin::Address(address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()))
}

/// Who counts for a request's tries and bodies.
pub(super) fn peer_of(request: &HttpRequest) -> Peer {
    origin_of(request).peer()
}
