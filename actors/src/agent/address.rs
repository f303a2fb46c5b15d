//! Addresses that the agent has from the start: from a pool, or named by its template. No guest
//! agent is asked for them, so templates without a guest agent work.

use std::net::IpAddr;

use drover_model::addresses::{AddressSource, AssignedAddress};
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::record::Body;

use crate::agent::event::Call;
use crate::agent::mind::{Mind, Out};
use crate::agent::state::{BootStep, ConnectStep, State};

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Addresses {
    /// drover connects to the first.
    assigned: Vec<AssignedAddress>,
    /// Whether the assigned ones are recorded.
    recorded: bool,
    /// The address that the guest called from.
    called: Option<IpAddr>,
}

impl Addresses {
    /// The addresses that the journal knows.
    pub(super) fn recorded(assigned: Vec<AssignedAddress>, called: Option<IpAddr>) -> Self {
        Self { recorded: !assigned.is_empty(), assigned, called }
    }

    fn reserve(&mut self, addresses: Vec<AssignedAddress>) {
        if self.assigned.is_empty() {
            self.assigned = addresses;
        }
    }

    fn first(&self) -> Option<IpAddr> {
        self.assigned.first().map(|one| one.address)
    }

    /// The addresses to record, once.
    fn take_unrecorded(&mut self) -> Option<Vec<AssignedAddress>> {
        if self.assigned.is_empty() || std::mem::replace(&mut self.recorded, true) {
            return None;
        }
        Some(self.assigned.clone())
    }

    /// Whether this call of the guest counts, which is the first.
    fn call_in(&mut self, address: IpAddr) -> bool {
        let first = self.called.is_none();
        self.called.get_or_insert(address);
        first
    }
}

impl Mind {
    /// Takes the addresses reserved for this agent, unless the journal knows its addresses.
    pub fn own(&mut self, addresses: Vec<AssignedAddress>) {
        self.addresses.reserve(addresses);
    }

    pub fn addresses(&self) -> &[AssignedAddress] {
        &self.addresses.assigned
    }

    /// The address of a guest that may be logged in to. `None` for an agent that retires or is
    /// parked.
    pub fn reached_at(&self) -> Option<IpAddr> {
        self.address().filter(|_| self.state.is_alive() && !self.reachability.is_parked())
    }

    /// The assigned or reported address, which the guest agent need not be asked for.
    pub(super) fn own_address(&self) -> Option<IpAddr> {
        self.addresses.first().or(self.addresses.called)
    }

    /// The call that configures the guest, once its addresses are recorded. `None` where no address
    /// is free.
    pub(super) fn configure_call(&mut self, out: &mut Out) -> Option<Call> {
        if self.spec.address.is_scarce() && self.addresses.assigned.is_empty() {
            let text =
                "no address is free for it; its pool was changed after the agent was started";
            self.fail(Fault::new(FaultKind::Contention, Culprit::Template, text), out);
            return None;
        }
        if let Some(addresses) = self.addresses.take_unrecorded() {
            let agent = self.agent.clone();
            out.record(Body::AddressAssigned { agent, addresses });
        }
        self.intend_image(out);
        Some(Call::Configure)
    }

    /// Whether the agent waits for its guest to report an address. Sets `detail`.
    pub(super) fn awaits_call(&mut self) -> bool {
        let awaits = self.spec.address == AddressSource::Call && self.addresses.called.is_none();
        if awaits {
            self.report.say("waits for the guest's call");
        }
        awaits
    }

    /// The guest has called. The first call counts.
    pub(super) fn called_in(&mut self, address: IpAddr, out: &mut Out) {
        if self.spec.address != AddressSource::Call || !self.addresses.call_in(address) {
            return;
        }
        if matches!(self.state, State::Booting(BootStep::Address)) && !self.adoption.is_unseen() {
            self.reach_at(address, out);
        }
    }

    /// The guest runs. Uses the assigned address, or asks for one.
    pub(super) fn find_address(&mut self, out: &mut Out) {
        match self.own_address() {
            Some(address) => self.reach_at(address, out),
            None => {
                self.enter(State::Booting(BootStep::Address), out);
                self.act(out);
            }
        }
    }

    /// Connects to an address that is known.
    pub(super) fn reach_at(&mut self, address: IpAddr, out: &mut Out) {
        if let Some(guest) = &mut self.guest {
            guest.address = Some(address);
        }
        self.enter(State::Connecting { step: ConnectStep::Greet }, out);
        self.act(out);
    }

    /// The machine at the address has greeted with this key. Before anything is sent, the guest
    /// agent, if there is one, is asked whether the key is the guest's (book: safety, rule 12).
    pub(super) fn ask_for_keys_late(&mut self, offered: String, out: &mut Out) {
        self.tries.calm();
        self.state = State::Connecting { step: ConnectStep::CompareKeys(offered) };
        self.act(out);
    }

    /// The guest agent has reported its host keys after the greeting, or none.
    pub(super) fn keys_compared(&mut self, offered: String, keys: Vec<String>, out: &mut Out) {
        let same =
            |key: &String| key.split_whitespace().take(2).eq(offered.split_whitespace().take(2));
        let known = keys.iter().any(same);
        let reported = !keys.is_empty();
        self.pin(if reported { keys } else { vec![offered] }, out);
        if known || !reported {
            return self.prepare(out);
        }
        // The machine showed another kind of key, or it is another guest. drover greets again and
        // accepts only the guest's keys.
        self.state = State::Connecting { step: ConnectStep::GreetAgain };
        self.act(out);
    }
}
