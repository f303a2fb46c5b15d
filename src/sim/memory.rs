//! A transport in memory between the Proxmox client and a simulated cluster.
//!
//! It uses no socket and no thread, so that tokio's paused clock drives client and cluster
//! together. Texts, status codes and reason phrases are those of the HTTPS server, since the same
//! [`Api`] answers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use proxmox_client::PveError;
use proxmox_client::connection::Connection;
use proxmox_client::endpoint::Endpoint;
use proxmox_client::transport::{Dialer, Reply, Request, Transport, TransportError};
use proxmox_client::transport::{encode_body, encode_params};
use secrecy::ExposeSecret;

use crate::api::Api;
use crate::api::http;

/// After this time a connection to a node that is down fails.
const NO_ROUTE_DELAY: Duration = Duration::from_secs(3);
/// How long a client waits for a node that accepts no more connections.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects every endpoint to one simulated cluster. The endpoint's host is the name of the node
/// that takes the requests.
pub struct MemoryDialer {
    api: Arc<Api>,
}

impl MemoryDialer {
    /// A dialer to the cluster behind this API.
    pub fn new(api: Arc<Api>) -> Self {
        Self { api }
    }
}

impl Dialer for MemoryDialer {
    fn dial(&self, endpoint: &Endpoint, _: &Connection) -> Result<Arc<dyn Transport>, PveError> {
        let node = endpoint.host().to_owned();
        Ok(Arc::new(MemoryTransport { api: Arc::clone(&self.api), node }))
    }
}

struct MemoryTransport {
    api: Arc<Api>,
    node: String,
}

impl Transport for MemoryTransport {
    fn send(&self, request: Request) -> BoxFuture<'static, Result<Reply, TransportError>> {
        let api = Arc::clone(&self.api);
        let translated = translate(&request, &self.node);
        async move {
            let request = translated.map_err(|error| TransportError::Connect(Box::new(error)))?;
            if !api.answers_on(&request.node) {
                tokio::time::sleep(NO_ROUTE_DELAY).await;
                return Err(TransportError::Connect("no route to host".into()));
            }
            let permit = api.connections().acquire(&request.node);
            let Ok(_permit) = tokio::time::timeout(CONNECT_TIMEOUT, permit).await else {
                return Err(TransportError::Connect("connecting timed out".into()));
            };
            let response = api.serve(request).await;
            if response.reset {
                return Err(TransportError::Closed("connection reset by peer".into()));
            }
            let content_type = response
                .headers
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case("content-type"))
                .map(|(_, value)| value.clone());
            Ok(Reply {
                status: response.status,
                reason: response.reason,
                content_type,
                body: response.body.into(),
            })
        }
        .boxed()
    }
}

fn translate(request: &Request, node: &str) -> std::io::Result<http::Request> {
    let mut headers: Vec<(String, String)> = request
        .headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.expose_secret().to_owned()))
        .collect();
    let mut target = format!("/api2/json{}", request.path);
    let mut body = bytes::Bytes::new();
    if request.method.has_body() {
        let (kind, encoded) = encode_body(request)?;
        body = encoded;
        headers.push(("Content-Type".into(), kind));
        headers.push(("Content-Length".into(), body.len().to_string()));
    } else if !request.params.is_empty() {
        target = format!("{target}?{}", encode_params(&request.params));
    }
    Ok(http::Request {
        method: request.method.as_str().to_owned(),
        target,
        headers,
        body,
        node: node.to_owned(),
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use secrecy::SecretString;

    use super::*;
    use crate::api::certificates::Certificates;
    use crate::guests::{StubGuests, StubOptions};
    use crate::simulation::{Simulation, SimulationOptions};
    use crate::spec::ClusterSpec;
    use crate::world::{CallFault, Faults};
    use proxmox_client::connection::{Login, Tls};
    use proxmox_client::transport::{Method, Sent};

    const SECRET: &str = "token-secret";

    fn cluster(faults: Faults) -> Simulation {
        let spec = ClusterSpec::three_nodes("secret123", SECRET);
        let options = SimulationOptions { faults, ..SimulationOptions::default() };
        let guests = Arc::new(StubGuests::new(StubOptions::default()));
        Simulation::new(&spec, options, Certificates::fake(1, &[]), guests)
    }

    async fn create(simulation: &Simulation, node: &str) -> Result<Reply, TransportError> {
        let login = Login::Token { id: "root@pam!drover".into(), secret: SECRET.into() };
        let connection = Connection::new(Vec::new(), login, Tls::System);
        let dialer = simulation.dialer();
        let transport = dialer.dial(&Endpoint::new(node, 8006), &connection).unwrap();
        let token = SecretString::from(format!("PVEAPIToken=root@pam!drover={SECRET}"));
        let request = Request {
            method: Method::Post,
            path: "/nodes/pve1/qemu".into(),
            params: vec![("vmid".into(), "100".into())],
            file: None,
            headers: vec![("Authorization", token)],
            timeout: Duration::from_secs(60),
        };
        transport.send(request).await
    }

    async fn broken(done: bool) -> (TransportError, bool) {
        let rule = CallFault { reset: true, done, ..CallFault::default() };
        let simulation = cluster(Faults { calls: vec![rule], ..Faults::default() });
        let error = create(&simulation, "pve1").await.unwrap_err();
        tokio::time::sleep(Duration::from_secs(60)).await;
        (error, simulation.world.control().guests().contains(&100))
    }

    // Invariant: a planned fault breaks a connection in memory as it breaks one over HTTPS.

    #[tokio::test(start_paused = true)]
    async fn a_reset_before_the_call_breaks_the_connection_without_effect() {
        let (error, made) = broken(false).await;
        assert!(matches!(error, TransportError::Closed(_)), "{error:?}");
        assert!(!made);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reset_after_the_call_breaks_the_connection_and_the_effect_stays() {
        let (error, made) = broken(true).await;
        assert!(matches!(error, TransportError::Closed(_)), "{error:?}");
        assert!(made);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_down_accepts_no_connection() {
        let simulation = cluster(Faults::default());
        simulation.world.control().node_down("pve2").await;
        let error = create(&simulation, "pve2").await.unwrap_err();
        assert_eq!(error.sent(), Sent::No, "{error:?}");
        assert!(create(&simulation, "pve1").await.is_ok());
    }
}
