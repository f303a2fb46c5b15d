//! The insides of guests as the network shows them.

use std::net::IpAddr;
use std::sync::Arc;

use drover_forecast::guests::Guests;
use pve_sim::guest::GuestHost as _;
use pve_sim::guests::StubGuests;

/// Stub guests, for those who log in to them.
#[derive(Clone)]
pub struct Stubs(pub Arc<StubGuests>);

impl Guests for Stubs {
    fn at(&self, address: IpAddr) -> Option<u32> {
        let here = |vmid: &u32| self.0.address(*vmid).is_some_and(|place| place.ip == address);
        self.0.running_vmids().into_iter().find(here)
    }

    fn host_key(&self, vmid: u32) -> Option<String> {
        self.0.ssh_host_key(vmid)
    }

    fn mac(&self, vmid: u32) -> Option<String> {
        self.0.mac(vmid)
    }
}
