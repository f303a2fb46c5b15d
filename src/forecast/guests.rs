//! Guests as somebody at the other end of the network sees them.

use std::net::IpAddr;

/// The guests of simulated clusters.
pub trait Guests: Send + Sync + 'static {
    /// The VMID of the guest that runs at an address.
    fn at(&self, address: IpAddr) -> Option<u32>;

    /// The public host key that its SSH server shows; none while none answers.
    fn host_key(&self, vmid: u32) -> Option<String>;

    /// The MAC address of a guest that runs.
    fn mac(&self, vmid: u32) -> Option<String>;

    /// A guest at an address with its host key: another one there has another key.
    fn identity(&self, address: IpAddr) -> Option<(u32, String)> {
        let vmid = self.at(address)?;
        Some((vmid, self.host_key(vmid)?))
    }

    /// Whether this very guest runs, and its SSH server answers.
    fn is_same(&self, (vmid, key): &(u32, String)) -> bool {
        self.host_key(*vmid).as_ref() == Some(key)
    }
}
