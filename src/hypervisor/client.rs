//! A configured cloud's client: the Proxmox client with the name of its cloud, the lists that all
//! clouds of a cluster share, and what a failure means for the actors.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{CloudId, Upid};
use proxmox_client::connection::Connection;
use proxmox_client::transport::{Dialer, Sent};
use proxmox_client::{PveError, client};

use crate::calls::Queue;
use crate::classify::{self, Place};
use crate::list::Share;

/// The client of one configured cloud.
pub struct Client {
    cloud: CloudId,
    proxmox: client::Client,
    successor: OnceLock<Arc<Client>>,
    /// The lists of its cluster.
    pub(crate) share: Share,
}

impl Deref for Client {
    type Target = client::Client;

    fn deref(&self) -> &client::Client {
        &self.proxmox
    }
}

impl Client {
    /// Prepares the ways to all endpoints; connects at the first call.
    ///
    /// # Errors
    /// Without an endpoint, and where trust cannot be set up.
    pub fn new(
        cloud: CloudId,
        connection: &Connection,
        dialer: &dyn Dialer,
    ) -> Result<Self, PveError> {
        let proxmox = client::Client::new(connection, dialer)?;
        proxmox.take_turns(Arc::new(Queue::default()));
        Ok(Self { cloud, proxmox, successor: OnceLock::new(), share: Share::default() })
    }

    /// Says which client leads into the same cloud from now on.
    pub fn replace_by(&self, successor: Arc<Self>) {
        // Only the first is told; it knows its own successor.
        let _ = self.successor.set(successor);
    }

    /// The client that leads into this cloud now, for those who ask over a long time.
    pub fn newest(self: &Arc<Self>) -> Arc<Self> {
        let mut newest = self;
        while let Some(next) = newest.successor.get() {
            newest = next;
        }
        newest.clone()
    }

    /// The cloud it leads to.
    pub fn cloud(&self) -> &CloudId {
        &self.cloud
    }

    /// What a failure means for the actors; the whole of it goes to the log.
    pub fn fault(&self, error: &impl AsFault) -> Fault {
        error.as_fault(self)
    }
}

/// A failure that can be said in the terms of the actors.
pub trait AsFault {
    /// What it means for the actors.
    fn as_fault(&self, client: &Client) -> Fault;
}

impl AsFault for PveError {
    fn as_fault(&self, client: &Client) -> Fault {
        let fault = fault(self, &client.cloud, client.login());
        tracing::debug!(
            cloud = %client.cloud,
            kind = fault.kind.label(),
            error = self.chain(),
            "a call failed"
        );
        fault
    }
}

/// Why some work on a cloud failed: a call, or what was found by calls that went well.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A call failed.
    #[error(transparent)]
    Call(#[from] PveError),
    /// The work was given up, in the terms of the actors.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl AsFault for Failure {
    fn as_fault(&self, client: &Client) -> Fault {
        match self {
            Self::Call(error) => error.as_fault(client),
            Self::Fault(fault) => fault.clone(),
        }
    }
}

/// A task in the terms of the actors.
pub(crate) fn task(upid: proxmox_client::Upid) -> Upid {
    Upid::new(upid.as_str())
}

/// What the failure of a call means for the actors.
pub fn fault(error: &PveError, cloud: &CloudId, login: &str) -> Fault {
    let whole = Culprit::Cloud(cloud.clone());
    match error {
        PveError::Unreachable { distrusted: true, .. } => {
            Fault::new(FaultKind::Unreachable, whole, error.chain())
        }
        PveError::Unreachable { .. } => Fault::new(
            FaultKind::Unreachable,
            whole,
            format!(
                "{}: check the cloud `{cloud}`'s endpoint, and that this machine reaches it",
                error.chain()
            ),
        ),
        PveError::Lost { call, source, .. } => {
            let kind = match (source.sent(), call.method.writes()) {
                (Sent::No, _) => FaultKind::Unreachable,
                (Sent::Maybe, true) => FaultKind::UnknownOutcome,
                (Sent::Maybe, false) => FaultKind::Contention,
            };
            Fault::new(kind, whole, error.chain())
        }
        // Nothing happened, and Proxmox is not to blame.
        PveError::Unsent { .. } => Fault::new(FaultKind::Contention, whole, error.chain()),
        PveError::Refused { call, refusal, .. } => {
            classify::refusal(Place { cloud, login }, call, refusal)
        }
        PveError::Shape { call, .. } => {
            let kind = match call.method.writes() {
                true => FaultKind::UnknownOutcome,
                false => FaultKind::Broken,
            };
            Fault::new(kind, whole, format!("{}: is it a Proxmox VE node?", error.chain()))
        }
        PveError::SecondFactor(_) => {
            Fault::new(FaultKind::Denied { privilege: None, path: None }, whole, error.chain())
        }
        PveError::Setup { .. } => Fault::new(FaultKind::Broken, whole, error.chain()),
    }
}

#[cfg(test)]
mod tests;
