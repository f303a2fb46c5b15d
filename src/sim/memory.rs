//! The simulator's other face: an in-memory transport beneath the real Proxmox client.
//!
//! No socket and no thread, so that tokio's paused clock drives client and cluster together. The
//! texts, status codes and reason phrases are the very ones of the wire, since the same door
//! answers.

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

use crate::door::Door;
use crate::door::http;

/// How long a node that is down lets a caller wait.
const NO_ROUTE: Duration = Duration::from_secs(3);
/// How long a caller waits for a node that takes no more connections.
const CONNECT: Duration = Duration::from_secs(5);

/// Leads every endpoint to one simulated cluster; the endpoint's host names the node that takes
/// the requests.
pub struct MemoryDialer {
    door: Arc<Door>,
}

impl MemoryDialer {
    /// A dialer for the cluster behind this door.
    pub fn new(door: Arc<Door>) -> Self {
        Self { door }
    }
}

impl Dialer for MemoryDialer {
    fn dial(&self, endpoint: &Endpoint, _: &Connection) -> Result<Arc<dyn Transport>, PveError> {
        let node = endpoint.host().to_owned();
        Ok(Arc::new(MemoryTransport { door: Arc::clone(&self.door), node }))
    }
}

struct MemoryTransport {
    door: Arc<Door>,
    node: String,
}

impl Transport for MemoryTransport {
    fn send(&self, request: Request) -> BoxFuture<'static, Result<Reply, TransportError>> {
        let door = Arc::clone(&self.door);
        let request = translate(&request, &self.node);
        async move {
            if !door.answers_on(&request.node) {
                tokio::time::sleep(NO_ROUTE).await;
                return Err(TransportError::Connect("no route to host".into()));
            }
            let seat = door.connections().take(&request.node);
            let Ok(_seat) = tokio::time::timeout(CONNECT, seat).await else {
                return Err(TransportError::Connect("connecting timed out".into()));
            };
            let response = door.serve(request).await;
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

fn translate(request: &Request, node: &str) -> http::Request {
    let mut headers: Vec<(String, String)> = request
        .headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.expose_secret().to_owned()))
        .collect();
    let mut target = format!("/api2/json{}", request.path);
    let mut body = bytes::Bytes::new();
    if request.method.has_body() {
        let (kind, encoded) = encode_body(request);
        body = encoded;
        headers.push(("Content-Type".into(), kind));
        headers.push(("Content-Length".into(), body.len().to_string()));
    } else if !request.params.is_empty() {
        target = format!("{target}?{}", encode_params(&request.params));
    }
    http::Request {
        method: request.method.as_str().to_owned(),
        target,
        headers,
        body,
        node: node.to_owned(),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use secrecy::SecretString;

    use super::*;
    use crate::door::certificates::Certificates;
    use crate::guests::{NoneGuests, NoneOptions};
    use crate::simulation::{Simulation, SimulationOptions};
    use crate::spec::ClusterSpec;
    use crate::world::{CallFault, Faults};
    use proxmox_client::connection::{Login, Tls};
    use proxmox_client::transport::{Method, Sent};

    const SECRET: &str = "token-secret";

    fn cluster(faults: Faults) -> Simulation {
        let spec = ClusterSpec::three_nodes("secret123", SECRET);
        let options = SimulationOptions { faults, ..SimulationOptions::default() };
        let guests = Arc::new(NoneGuests::new(NoneOptions::default()));
        Simulation::new(&spec, options, Certificates::imitate(1, &[]), guests)
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

    // Invariant: what the wire does to a connection, the in-memory face does too.

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
    async fn a_node_that_is_down_takes_no_connection() {
        let simulation = cluster(Faults::default());
        simulation.world.control().node_down("pve2").await;
        let error = create(&simulation, "pve2").await.unwrap_err();
        assert_eq!(error.sent(), Sent::No, "{error:?}");
        assert!(create(&simulation, "pve1").await.is_ok());
    }
}
