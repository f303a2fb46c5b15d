//! Who is at the other end of a connection.
//!
//! A [`Peer`] counts for what one site or user may take of the server: connections, bodies, wrong tokens.
//! A [`LocalPeer`] is what the system knows of a process on the Unix socket, and proves its caller.

use std::net::{IpAddr, Ipv4Addr};

use actix_web::dev::ServiceRequest;

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

/// Who counts for a request's tries and bodies.
pub(super) fn peer_of(request: &ServiceRequest) -> Peer {
    let known = request.conn_data::<Peer>().copied();
    known.unwrap_or_else(|| Peer::at(Ipv4Addr::UNSPECIFIED.into()))
}
