//! Guests that say their address themselves: heard once, while their agent waits for that.

use std::net::IpAddr;

use actix::Context;
use drover_model::addresses::{AddressRange, AddressSource};
use drover_model::id::AgentId;
use drover_model::phase::AgentPhase;
use drover_model::record::Body;
use drover_runtime::reply::Reply;

use super::Herd;
use super::leases::unavailable;
use crate::message::{AgentCommand, Refusal};

impl Herd {
    /// A guest that proved to be an agent's calls from one address and says others.
    pub(super) fn call_in(
        &mut self,
        agent: AgentId,
        (peer, said): (Option<IpAddr>, &[IpAddr]),
        reply: Reply<Result<IpAddr, Refusal>>,
        ctx: &mut Context<Self>,
    ) {
        let address = match self.heard_at(&agent, peer, said) {
            Ok((address, true)) => return reply.send(Ok(address)),
            Ok((address, false)) => address,
            Err(refusal) => {
                tracing::info!(agent = %agent, why = %refusal, "call of a guest refused");
                return reply.send(Err(refusal));
            }
        };
        self.called.insert(agent.clone(), address);
        let body = Body::GuestCalled { agent: agent.clone(), address };
        self.append(body, ctx, move |herd, done, _| {
            let answer = done.map_err(|fault| unavailable(&fault)).map(|_| {
                tracing::info!(agent = %agent, %address, "guest has called");
                herd.common.roster.send(&agent, AgentCommand::CalledIn(address));
                address
            });
            if answer.is_err() {
                herd.called.remove(&agent);
            }
            reply.send(answer);
        });
    }

    /// The address that counts, and whether it was heard before.
    fn heard_at(
        &mut self,
        agent: &AgentId,
        peer: Option<IpAddr>,
        said: &[IpAddr],
    ) -> Result<(IpAddr, bool), Refusal> {
        let roster = &self.common.roster;
        self.called.retain(|other, _| roster.has(other));
        let Some(living) = roster.get(agent) else {
            return Err(Refusal::Unknown(format!("no agent `{agent}` lives")));
        };
        let address = choose(peer, said, &living.spec.guest_networks).ok_or_else(|| {
            let text = "neither the caller's address nor one it says can be the guest's: see \
                        guestNetworks";
            Refusal::Conflict(text.into())
        })?;
        match self.called.get(agent) {
            // Its answer may have been lost.
            Some(before) if *before == address => return Ok((address, true)),
            Some(_) => {
                return Err(Refusal::Conflict(format!("agent `{agent}` has its address already")));
            }
            None => {}
        }
        let calls = self.called.iter().find(|(_, at)| **at == address).map(|(other, _)| other);
        let calls = calls.map(|other| format!("agent {other}'s guest has called from {address}"));
        if let Some(why) = calls.or_else(|| self.common.addresses.objection(agent, address)) {
            return Err(Refusal::Conflict(why));
        }
        if living.spec.address != AddressSource::Call || living.status.phase != AgentPhase::Booting
        {
            let text = format!("agent `{agent}` waits for no call at this moment");
            return Err(Refusal::Conflict(text));
        }
        Ok((address, false))
    }
}

/// The address that counts: the caller's own; where networks are given the first that lies in one,
/// the caller's before those it says.
fn choose(peer: Option<IpAddr>, said: &[IpAddr], networks: &[String]) -> Option<IpAddr> {
    if networks.is_empty() {
        return peer.filter(|address| is_plain(*address));
    }
    let ranges: Vec<AddressRange> = networks.iter().filter_map(|text| network(text)).collect();
    let lies = |address: &IpAddr| ranges.iter().any(|range| range.contains(*address));
    peer.into_iter().chain(said.iter().copied()).find(lies)
}

fn network(text: &str) -> Option<AddressRange> {
    let (address, prefix) = text.split_once('/')?;
    AddressRange::network(address.parse().ok()?, prefix.parse().ok()?)
}

/// Whether a guest on another machine may have this address.
fn is_plain(address: IpAddr) -> bool {
    let near = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.to_ipv4_mapped().is_some(),
    };
    !near && !address.is_loopback() && !address.is_unspecified() && !address.is_multicast()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn chosen(peer: &str, said: &[&str], networks: &[&str]) -> Option<String> {
        let said: Vec<IpAddr> = said.iter().map(|text| text.parse().unwrap()).collect();
        let networks: Vec<String> = networks.iter().map(|text| (*text).to_owned()).collect();
        choose(peer.parse().ok(), &said, &networks).map(|address| address.to_string())
    }

    // Invariant: a guest is reached where it called from; elsewhere only within its networks.

    #[test]
    fn the_callers_address_counts_and_what_it_says_only_within_its_networks() {
        let (ten, said) = (&["10.0.0.0/8"], &["192.168.0.9", "10.1.0.9"]);
        for (peer, networks, wanted) in [
            ("10.0.0.5", &[] as &[&str], Some("10.0.0.5")),
            ("10.0.0.5", ten, Some("10.0.0.5")),
            ("127.0.0.1", &[], None),
            ("fe80::1", &[], None),
            ("::ffff:10.0.0.5", &[], None),
            ("fd00::5", &[], Some("fd00::5")),
            ("127.0.0.1", ten, Some("10.1.0.9")),
            ("172.16.0.1", ten, Some("10.1.0.9")),
            ("nobody", ten, Some("10.1.0.9")),
            ("172.16.0.1", &["10.9.0.0/16"], None),
        ] {
            assert_eq!(chosen(peer, said, networks).as_deref(), wanted, "{peer} {networks:?}");
        }
    }
}
