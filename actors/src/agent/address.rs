//! Addresses that are the agent's own from the beginning: of a pool, or the one its template names.
//! No guest agent is asked for them, so that templates without one work.

use std::net::IpAddr;

use drover_model::addresses::{AddressSource, AssignedAddress};
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::record::Body;

use crate::agent::event::Call;
use crate::agent::mind::{Mind, Out};
use crate::agent::state::{BootStep, State};

impl Mind {
    /// Takes addresses that were kept back for it, unless the journal knows which it has.
    pub fn own(&mut self, addresses: Vec<AssignedAddress>) {
        if self.addresses.is_empty() {
            self.addresses = addresses;
        }
    }

    /// The addresses that are its own.
    pub fn addresses(&self) -> &[AssignedAddress] {
        &self.addresses
    }

    /// The address its guest is reached at while it may be logged in to; none of one that goes, or
    /// that is out of reach.
    pub fn reached_at(&self) -> Option<IpAddr> {
        self.address().filter(|_| self.state.is_alive() && !self.parked)
    }

    /// The address it is reached by, where that is decided and not found out.
    pub(super) fn own_address(&self) -> Option<IpAddr> {
        self.addresses.first().map(|one| one.address).or(self.called)
    }

    /// The call that configures its guest, once its addresses are written down; none when there
    /// are none for it.
    pub(super) fn configure_call(&mut self, out: &mut Out) -> Option<Call> {
        if self.spec.address.is_scarce() && self.addresses.is_empty() {
            let text = "no address is free for it; it was begun before its pool was changed";
            self.fail(Fault::new(FaultKind::Contention, Culprit::Template, text), out);
            return None;
        }
        if !self.addresses.is_empty() && !self.spoken {
            self.spoken = true;
            let (agent, addresses) = (self.agent.clone(), self.addresses.clone());
            out.record(Body::AddressAssigned { agent, addresses });
        }
        self.intend_image(out);
        Some(Call::Configure)
    }

    /// Whether its guest is to say its address, and has not; that is shown.
    pub(super) fn awaits_call(&mut self) -> bool {
        let awaits = self.spec.address == AddressSource::Call && self.called.is_none();
        if awaits {
            self.detail = "waits for the guest's call".into();
        }
        awaits
    }

    /// Its guest has called; the first call counts.
    pub(super) fn called_in(&mut self, address: IpAddr, out: &mut Out) {
        if self.spec.address != AddressSource::Call || self.called.is_some() {
            return;
        }
        self.called = Some(address);
        if matches!(self.state, State::Booting(BootStep::Address)) && !self.observing {
            self.reach_at(address, out);
        }
    }

    /// The guest runs: its address is its own, or is asked for.
    pub(super) fn find_address(&mut self, out: &mut Out) {
        match self.own_address() {
            Some(address) => self.reach_at(address, out),
            None => {
                self.enter(State::Booting(BootStep::Address), out);
                self.act(out);
            }
        }
    }

    /// Connects to an address that needs no finding out.
    pub(super) fn reach_at(&mut self, address: IpAddr, out: &mut Out) {
        if let Some(guest) = &mut self.guest {
            guest.address = Some(address);
        }
        self.enter(State::Connecting { reread: false, reading: false }, out);
        self.act(out);
    }

    /// Whoever answers at the address has greeted with this key: nothing is sent before the guest
    /// agent, if there is one, was asked whether it is the guest's (design rule 12).
    pub(super) fn ask_for_keys_late(&mut self, offered: String, out: &mut Out) {
        self.calm();
        self.offered = Some(offered);
        self.state = State::Connecting { reread: false, reading: true };
        self.act(out);
    }

    /// The guest agent has told its host keys after the greeting, or nothing.
    pub(super) fn keys_compared(&mut self, offered: String, keys: Vec<String>, out: &mut Out) {
        let same =
            |key: &String| key.split_whitespace().take(2).eq(offered.split_whitespace().take(2));
        let known = keys.iter().any(same);
        let told = !keys.is_empty();
        self.pin(if told { keys } else { vec![offered] }, out);
        if known || !told {
            return self.prepare(out);
        }
        // Another kind of key, or another guest: it is greeted again by the right one alone.
        self.state = State::Connecting { reread: true, reading: false };
        self.act(out);
    }
}
