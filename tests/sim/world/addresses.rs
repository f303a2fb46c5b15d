//! Whose each address is, as the journal has it: an address is one agent's, and rests after it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use drover_model::id::AgentId;
use drover_model::record::Body;
use tokio::time::Instant;

/// What was seen of addresses.
#[derive(Debug, Default)]
pub struct Addresses {
    held: BTreeMap<IpAddr, (AgentId, std::time::Duration)>,
    /// Until when they rest.
    resting: BTreeMap<IpAddr, Instant>,
    /// By how much the rests that begin now may end early.
    early: std::time::Duration,
}

impl Addresses {
    /// The clock of the service was set while it could not write that down: for it the rests are over.
    pub fn forget_rests(&mut self) {
        self.resting.clear();
    }

    /// From here on rests may end so much early, because the clock of the service is off by it.
    pub fn allow(&mut self, early: std::time::Duration) {
        self.early = early;
    }

    /// Takes a record in; says what is wrong with it.
    pub fn record(&mut self, body: &Body) -> Option<String> {
        let now = Instant::now();
        match body {
            Body::AddressAssigned { agent, addresses } => {
                let mut wrong = None;
                self.held.retain(|_, (holder, _)| holder != agent);
                for one in addresses {
                    let (address, rest) = (one.address, self.resting.remove(&one.address));
                    if let Some((holder, _)) = self.held.get(&address) {
                        wrong = Some(format!("{address} of {holder} is given to {agent}"));
                    } else if rest.is_some_and(|until| now < until) {
                        wrong = Some(format!("{address} is given to {agent} and has not rested"));
                    }
                    self.held.insert(address, (agent.clone(), one.cooldown()));
                }
                wrong
            }
            Body::Gone { agent, .. } => {
                let ended = self.held.extract_if(.., |_, (holder, _)| holder == agent);
                let rests = ended.map(|(address, (_, cooldown))| {
                    (address, now + cooldown.saturating_sub(self.early))
                });
                self.resting.extend(rests);
                None
            }
            _ => None,
        }
    }
}
