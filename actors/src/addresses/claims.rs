//! Where the guests of living agents are: one agent an address. Guests report their addresses
//! themselves, and a hostile one may name another's. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use drover_model::id::AgentId;

/// The addresses at which agents are reached.
#[derive(Debug, Clone, Default)]
pub struct Claims {
    of: BTreeMap<AgentId, IpAddr>,
    by: BTreeMap<IpAddr, AgentId>,
}

impl Claims {
    /// An agent is reached at this address from now on, or nowhere. An address that is another's
    /// stays that one's.
    pub fn settle(&mut self, agent: &AgentId, address: Option<IpAddr>) {
        if self.of.get(agent).copied() == address {
            return;
        }
        if let Some(before) = self.of.remove(agent) {
            self.by.remove(&before);
        }
        if let Some(address) = address.filter(|address| !self.by.contains_key(address)) {
            self.of.insert(agent.clone(), address);
            self.by.insert(address, agent.clone());
        }
    }

    /// The agent that is reached at an address.
    pub fn at(&self, address: IpAddr) -> Option<&AgentId> {
        self.by.get(&address)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    fn agent(n: u8) -> AgentId {
        AgentId::new(format!("a{n}"))
    }

    fn ip(n: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, n).into()
    }

    // Invariant: an address is its first agent's for as long as that one is reached there.

    #[test]
    fn a_later_claimant_does_not_get_the_address_before_the_first_has_left_it() {
        let mut claims = Claims::default();
        claims.settle(&agent(1), Some(ip(5)));
        claims.settle(&agent(2), Some(ip(5)));
        assert_eq!(claims.at(ip(5)), Some(&agent(1)));
        claims.settle(&agent(1), None);
        assert_eq!(claims.at(ip(5)), None);
        claims.settle(&agent(2), Some(ip(5)));
        assert_eq!(claims.at(ip(5)), Some(&agent(2)));
    }

    proptest! {
        #[test]
        fn both_directions_agree_under_any_order(
            steps in prop::collection::vec((0u8..5, prop::option::of(0u8..4)), 1..80)
        ) {
            let mut claims = Claims::default();
            for (n, address) in steps {
                let before = address.and_then(|n| claims.at(ip(n)).cloned());
                claims.settle(&agent(n), address.map(ip));
                if let (Some(address), Some(before)) = (address, before) {
                    prop_assert_eq!(claims.at(ip(address)), Some(&before));
                }
                prop_assert_eq!(claims.of.len(), claims.by.len());
                for (agent, address) in &claims.of {
                    prop_assert_eq!(claims.at(*address), Some(agent));
                }
            }
        }
    }
}
