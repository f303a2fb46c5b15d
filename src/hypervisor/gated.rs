//! A gate before each request to Proxmox that may change something.

use std::sync::Arc;

use drover_model::gate::Gate;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use proxmox_client::transport::{Dialer, Reply, Request, Transport, TransportError};
use proxmox_client::{Connection, Endpoint, PveError};

/// Makes transports whose writes pass a gate. Reads go at once.
pub struct GatedDialer<D> {
    dialer: D,
    gate: Gate,
}

impl<D: Dialer> GatedDialer<D> {
    pub fn new(dialer: D, gate: Gate) -> Self {
        Self { dialer, gate }
    }
}

impl<D: Dialer> Dialer for GatedDialer<D> {
    fn dial(
        &self,
        endpoint: &Endpoint,
        connection: &Connection,
    ) -> Result<Arc<dyn Transport>, PveError> {
        let transport = self.dialer.dial(endpoint, connection)?;
        Ok(Arc::new(GatedTransport { transport, gate: self.gate.clone() }))
    }
}

struct GatedTransport {
    transport: Arc<dyn Transport>,
    gate: Gate,
}

impl Transport for GatedTransport {
    fn send(&self, request: Request) -> BoxFuture<'static, Result<Reply, TransportError>> {
        if !request.method.writes() {
            return self.transport.send(request);
        }
        let (transport, gate) = (Arc::clone(&self.transport), self.gate.clone());
        async move {
            gate.pass().await;
            transport.send(request).await
        }
        .boxed()
    }
}
