//! The client of one configured cloud: the Proxmox client with the cloud's name, the lists that all
//! clouds of a cluster share, and the fault that a failure means for the actors.
//!
//! A new connection of a cloud makes a new client, which the old one knows as its successor: work
//! that takes long, such as awaiting a task, goes on with [`Client::newest`].

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{CloudId, Upid};
use drover_model::phase::NO_ENDPOINT;
use drover_model::ports::VmRef;
use proxmox_client::connection::Connection;
use proxmox_client::error::by_failure;
use proxmox_client::transport::{Dialer, Sent};
use proxmox_client::wire::WireDialer;
use proxmox_client::{GuestId, PveError, client};

use crate::calls::ClusterCallLimiter;
use crate::classify::{self, CallOrigin};
use crate::figures::Figures;
use crate::list::SharedLists;

pub struct Client {
    cloud: CloudId,
    proxmox: client::Client,
    successor: OnceLock<Arc<Client>>,
    /// The lists of guests of the cloud's cluster.
    pub(crate) share: SharedLists,
    /// Who takes what the guests of a list use.
    pub(crate) figures: Arc<Figures>,
}

impl Deref for Client {
    type Target = client::Client;

    fn deref(&self) -> &client::Client {
        &self.proxmox
    }
}

impl Client {
    /// Prepares the transports to all endpoints; connects at the first call.
    ///
    /// # Errors
    /// Without an endpoint, and when TLS cannot be set up.
    pub fn new(
        cloud: CloudId,
        connection: &Connection,
        dialer: &dyn Dialer,
    ) -> Result<Self, PveError> {
        if connection.endpoints.is_empty() {
            return Err(PveError::setup(format!(
                "cloud `{cloud}` has no endpoint: add one with `apiUrl`"
            )));
        }
        let proxmox = client::Client::new(connection, dialer)?;
        proxmox.set_limiter(Arc::new(ClusterCallLimiter::default()));
        let (successor, share) = (OnceLock::new(), SharedLists::default());
        Ok(Self { cloud, proxmox, successor, share, figures: Arc::default() })
    }

    /// The same, with these who take its figures.
    pub(crate) fn measured(self, figures: Arc<Figures>) -> Self {
        Self { figures, ..self }
    }

    /// Sets the client that replaces this one when the cloud's connection changes.
    pub(crate) fn replace_by(&self, successor: Arc<Self>) {
        // Only the first call counts: the successor knows its own successor.
        let _ = self.successor.set(successor);
    }

    /// The newest client for this cloud, for work that takes long.
    pub fn newest(self: &Arc<Self>) -> Arc<Self> {
        let mut newest = self;
        while let Some(next) = newest.successor.get() {
            newest = next;
        }
        newest.clone()
    }

    pub fn cloud(&self) -> &CloudId {
        &self.cloud
    }

    /// The fault that a failure means for the actors. The whole failure goes to the log.
    pub fn fault(&self, error: &impl AsFault) -> Fault {
        error.as_fault(self)
    }
}

/// A failure that can be turned into a fault.
pub trait AsFault {
    /// The fault, in the actors' terms.
    fn as_fault(&self, client: &Client) -> Fault;
}

impl AsFault for PveError {
    fn as_fault(&self, client: &Client) -> Fault {
        let fault = fault(self, &client.cloud, client.login());
        tracing::debug!(
            cloud = %client.cloud,
            kind = fault.kind.label(),
            error = self.chain(),
            "Proxmox call failed"
        );
        fault
    }
}

/// Why work on a cloud failed: a call failed, or its answer showed a problem.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A call failed.
    #[error(transparent)]
    Call(#[from] PveError),
    /// The work was given up for this reason.
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

/// The guest as the paths of calls name it.
pub(crate) fn guest_id(vm: &VmRef) -> GuestId {
    GuestId { vmid: vm.vmid.0, container: vm.guest.is_container() }
}

/// Converts a task's name into the actors' type.
pub(crate) fn task(upid: proxmox_client::Upid) -> Upid {
    Upid::new(upid.as_str())
}

/// The fault that a failed call means for the actors.
pub(crate) fn fault(error: &PveError, cloud: &CloudId, login: &str) -> Fault {
    let whole = Culprit::Cloud(cloud.clone());
    match error {
        PveError::Unreachable { distrusted: true, tried, .. } => {
            let text = format!(
                "the nodes show a certificate that drover does not know; if nobody changed it, somebody \
                 else may answer, so do not pin it; if you changed it, compare it on a node with \
                 `pvenode cert info`, then put the new `/etc/pve/pve-root-ca.pem` where `caFile` of \
                 cloud `{cloud}` points, or the new fingerprint into its `pinSha256`; seen at {}",
                by_failure(tried)
            );
            Fault::new(FaultKind::Unreachable, whole, text)
        }
        PveError::Unreachable { tried, answered: true, .. } => {
            let text = format!(
                "{NO_ENDPOINT} `{cloud}` answers any more: check on a node that `pveproxy` runs \
                 (`systemctl status pveproxy`), and that network and firewall let its port through: {}",
                by_failure(tried)
            );
            Fault::new(FaultKind::Unreachable, whole, text)
        }
        PveError::Unreachable { tried, .. } => {
            let text = format!(
                "{NO_ENDPOINT} `{cloud}` has answered yet: check its `apiUrl` or `apiUrls`, and \
                 that this machine can reach them: {}",
                by_failure(tried)
            );
            Fault::new(FaultKind::Unreachable, whole, text)
        }
        PveError::Lost { call, source, .. } => {
            let kind = match (source.sent(), call.method.writes()) {
                (Sent::No, _) => FaultKind::Unreachable,
                (Sent::Maybe, true) => FaultKind::UnknownOutcome,
                (Sent::Maybe, false) => FaultKind::Contention,
            };
            Fault::new(kind, whole, error.chain())
        }
        // Nothing happened, and Proxmox is not the cause.
        PveError::Unsent { .. } => Fault::new(FaultKind::Contention, whole, error.chain()),
        PveError::Refused { call, refusal, .. } => {
            classify::refusal(CallOrigin { cloud, login }, call, refusal)
        }
        PveError::Shape { call, .. } => {
            let kind = match call.method.writes() {
                true => FaultKind::UnknownOutcome,
                false => FaultKind::Broken,
            };
            Fault::new(
                kind,
                whole,
                format!("{}; check that the endpoint is a Proxmox VE node", error.chain()),
            )
        }
        PveError::SecondFactor(_) => {
            Fault::new(FaultKind::Denied { privilege: None, path: None }, whole, error.chain())
        }
        PveError::Setup { .. } => Fault::new(FaultKind::Broken, whole, error.chain()),
    }
}

/// Tries a connection over HTTPS and returns Proxmox's version; for checks before anything runs.
pub async fn probe(cloud: &CloudId, connection: &Connection) -> Result<String, Fault> {
    let to_fault = |error: PveError| fault(&error, cloud, connection.login.name());
    let client = Client::new(cloud.clone(), connection, &WireDialer).map_err(to_fault)?;
    client.version().await.map(|version| version.version).map_err(|error| client.fault(&error))
}

#[cfg(test)]
mod tests;
