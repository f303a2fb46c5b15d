//! The simulator's other face: an in-memory transport beneath the real Proxmox client.
//!
//! No socket and no thread, so that tokio's paused clock drives client and cluster together. The
//! texts, status codes and reason phrases are the very ones of the wire, since the same door
//! answers.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use secrecy::ExposeSecret;

use super::door::Door;
use super::door::http;
use crate::pve::connection::Connection;
use crate::pve::endpoint::Endpoint;
use crate::pve::error::PveError;
use crate::pve::transport::{Dialer, Reply, Request, Transport, TransportError, encode_params};

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
            let response = door.serve(request).await;
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
    let params = encode_params(&request.params);
    let mut headers: Vec<(String, String)> = request
        .headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.expose_secret().to_owned()))
        .collect();
    let mut target = format!("/api2/json{}", request.path);
    let mut body = bytes::Bytes::new();
    if request.method.has_body() {
        body = params.into();
        headers.push(("Content-Type".into(), "application/x-www-form-urlencoded".into()));
        headers.push(("Content-Length".into(), body.len().to_string()));
    } else if !params.is_empty() {
        target = format!("{target}?{params}");
    }
    http::Request {
        method: request.method.as_str().to_owned(),
        target,
        headers,
        body,
        node: node.to_owned(),
    }
}
