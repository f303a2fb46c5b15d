//! An eye on a world: sees every fact, record, request and key at the moment it happens, so that
//! what must hold can be judged there and then.

use std::sync::{Arc, Mutex};

use drover_model::fact::Fact;
use drover_model::record::Body;
use proxmox_client::transport::Request;

/// Looks on; it must not call the world's own parts back.
pub trait Eye: Send + Sync {
    /// A fact is reported to the read side.
    fn fact(&self, fact: &Fact);
    /// A record was taken by the journal.
    fn record(&self, body: &Body);
    /// A request leaves the client.
    fn request(&self, request: &Request);
    /// A key for a lease is put into this guest.
    fn key(&self, lease: &str, vmid: u32);
}

/// The place of a world's eye; everybody who reports to it has a handle.
#[derive(Clone, Default)]
pub struct Socket(Arc<Mutex<Option<Arc<dyn Eye>>>>);

impl Socket {
    /// Puts an eye in.
    pub fn set(&self, eye: Arc<dyn Eye>) {
        *self.0.lock().unwrap() = Some(eye);
    }

    /// Takes the eye out.
    pub fn clear(&self) {
        *self.0.lock().unwrap() = None;
    }

    /// The eye, if there is one.
    pub fn eye(&self) -> Option<Arc<dyn Eye>> {
        self.0.lock().unwrap().clone()
    }
}
