//! The transport over HTTPS. Requests are built as Proxmox's HTTP daemon expects them (book:
//! proxmox, section 1): HTTP/1.1, form bodies with a Content-Length, and no body for GET and
//! DELETE.
//!
//! Idle connections are closed before Proxmox closes them. Answers are cut off at `BODY_MAX`.
//! Failures are sorted into the cases of [`TransportError`]; a refused certificate is found below
//! the layers of HTTP, I/O and TLS.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use causes::{causes, innermost};
use futures_util::future::BoxFuture;
use hyper::ext::ReasonPhrase;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use rustls::OtherError;
use secrecy::ExposeSecret;

use crate::connection::{Connection, Tls};
use crate::endpoint::Endpoint;
use crate::error::PveError;
use crate::gate::{self, GateLayer};
use crate::tls::{self, CertificateRefused};
use crate::transport::{Content, Dialer, Method, Reply, Request, Transport, TransportError};
use crate::transport::{encode_body, encode_params};
use crate::upload;

/// Proxmox closes an idle connection after 5 s; the client closes it earlier.
const POOL_IDLE: Duration = Duration::from_secs(4);

/// The largest answer that is read: some hundred bytes for each of 50,000 guests.
const BODY_MAX: usize = 32 << 20;

/// Makes HTTPS transports.
#[derive(Debug, Clone, Copy, Default)]
pub struct WireDialer;

impl Dialer for WireDialer {
    fn dial(
        &self,
        endpoint: &Endpoint,
        connection: &Connection,
    ) -> Result<Arc<dyn Transport>, PveError> {
        dial(endpoint, connection, None)
    }
}

/// Makes HTTPS transports with a gate behind each new connection.
#[derive(Debug, Clone)]
pub struct GatedWireDialer(GateLayer);

impl GatedWireDialer {
    /// Sends the first request on a connection when this answers.
    pub fn new(ask: gate::Ask) -> Self {
        Self(GateLayer::new(ask))
    }
}

impl Dialer for GatedWireDialer {
    fn dial(
        &self,
        endpoint: &Endpoint,
        connection: &Connection,
    ) -> Result<Arc<dyn Transport>, PveError> {
        dial(endpoint, connection, Some(self.0.clone()))
    }
}

fn dial(
    endpoint: &Endpoint,
    connection: &Connection,
    gate: Option<GateLayer>,
) -> Result<Arc<dyn Transport>, PveError> {
    if matches!(connection.tls, Tls::Ignore) {
        tracing::warn!(
            endpoint = %endpoint,
            "certificates are not checked: anyone on the network path can read the login"
        );
    }
    Ok(Arc::new(Wire::gated(endpoint, connection, gate)?))
}

/// The transport to one node.
#[derive(Clone)]
pub struct Wire {
    reads: reqwest::Client,
    /// For requests that may change something, with a gate behind each connection where there is one.
    writes: reqwest::Client,
    base: String,
}

impl Wire {
    /// Prepares the HTTP client; connects at the first call.
    pub fn new(endpoint: &Endpoint, connection: &Connection) -> Result<Self, PveError> {
        Self::gated(endpoint, connection, None)
    }

    fn gated(
        endpoint: &Endpoint,
        connection: &Connection,
        gate: Option<GateLayer>,
    ) -> Result<Self, PveError> {
        let reads = client(connection, None)?;
        let writes = match gate {
            Some(gate) => client(connection, Some(gate))?,
            None => reads.clone(),
        };
        Ok(Self { reads, writes, base: endpoint.base() })
    }

    async fn exchange(self, request: Request) -> Result<Reply, TransportError> {
        let answer = self.build(&request)?.send().await.map_err(translate)?;
        let status = answer.status();
        let phrase = answer.extensions().get::<ReasonPhrase>();
        let reason = match phrase {
            Some(phrase) => String::from_utf8_lossy(phrase.as_bytes()).into_owned(),
            None => status.canonical_reason().unwrap_or_default().to_owned(),
        };
        let content_type = answer.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = read_body(answer).await?;
        Ok(Reply { status: status.as_u16(), reason, content_type, body })
    }

    fn build(&self, request: &Request) -> Result<reqwest::RequestBuilder, TransportError> {
        let params =
            if request.method.has_body() { String::new() } else { encode_params(&request.params) };
        let mut url = format!("{}{}", self.base, request.path);
        if !params.is_empty() {
            url.push('?');
            url.push_str(&params);
        }
        let method = match request.method {
            Method::Get => reqwest::Method::GET,
            Method::Post => reqwest::Method::POST,
            Method::Put => reqwest::Method::PUT,
            Method::Delete => reqwest::Method::DELETE,
        };
        let client = if request.method.writes() { &self.writes } else { &self.reads };
        let mut builder = client.request(method, url);
        if request.method.has_body() {
            if let Some(file) = &request.file
                && let Content::File { path, size } = &file.content
            {
                let form = upload::form(&request.params, file);
                let kind = form.kind.clone();
                let (length, parts) = upload::body(form, path, *size);
                // With a length hyper does not send it in chunks, which Proxmox refuses.
                builder = builder.header(CONTENT_LENGTH, length).header(CONTENT_TYPE, kind);
                return self.with_headers(builder.body(reqwest::Body::wrap_stream(parts)), request);
            }
            let (kind, body) =
                encode_body(request).map_err(|error| TransportError::Connect(Box::new(error)))?;
            // reqwest sends no length for an empty body, and Proxmox expects one.
            if body.is_empty() {
                builder = builder.header(CONTENT_LENGTH, 0);
            }
            builder = builder.header(CONTENT_TYPE, kind).body(body);
        }
        self.with_headers(builder, request)
    }

    fn with_headers(
        &self,
        mut builder: reqwest::RequestBuilder,
        request: &Request,
    ) -> Result<reqwest::RequestBuilder, TransportError> {
        for (name, value) in &request.headers {
            let mut value = HeaderValue::from_str(value.expose_secret())
                .map_err(|error| TransportError::Connect(Box::new(error)))?;
            value.set_sensitive(true);
            builder = builder.header(*name, value);
        }
        Ok(builder)
    }
}

fn client(connection: &Connection, gate: Option<GateLayer>) -> Result<reqwest::Client, PveError> {
    let builder = reqwest::Client::builder();
    let builder = match gate {
        Some(gate) => builder.connector_layer(gate),
        None => builder,
    };
    builder
        .tls_backend_preconfigured(tls::client_config(&connection.tls)?)
        .https_only(true)
        .http1_only()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(connection.connect_timeout)
        .pool_idle_timeout(POOL_IDLE)
        .tcp_nodelay(true)
        .user_agent(&connection.user_agent)
        .build()
        .map_err(|error| PveError::Setup {
            what: "the HTTP client cannot be built".into(),
            source: Some(Box::new(error)),
        })
}

impl Transport for Wire {
    fn send(&self, request: Request) -> BoxFuture<'static, Result<Reply, TransportError>> {
        Box::pin(self.clone().exchange(request))
    }
}

async fn read_body(mut answer: reqwest::Response) -> Result<Bytes, TransportError> {
    let announced = answer.content_length().unwrap_or_default();
    if announced > BODY_MAX as u64 {
        return Err(TransportError::TooLarge(BODY_MAX));
    }
    let mut body = BytesMut::new();
    while let Some(chunk) = answer.chunk().await.map_err(translate)? {
        if body.len() + chunk.len() > BODY_MAX {
            return Err(TransportError::TooLarge(BODY_MAX));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

fn translate(error: reqwest::Error) -> TransportError {
    let error = error.without_url();
    if let Some(refused) = refused_certificate(&error) {
        return TransportError::Certificate(Box::new(refused));
    }
    if error.is_connect() {
        let timed_out = error.is_timeout();
        let source: crate::transport::BoxError = match timed_out {
            true => "connecting timed out".into(),
            false => innermost(&error).into(),
        };
        return match is_closed(&error) {
            true => TransportError::BrokeOff(source),
            false => TransportError::Connect(source),
        };
    }
    if is_closed(&error) {
        return TransportError::Closed(Box::new(error));
    }
    TransportError::Broken(Box::new(error))
}

/// Finds a refused certificate below the layers of HTTP, I/O and TLS errors.
pub fn refused_certificate(error: &(dyn Error + 'static)) -> Option<CertificateRefused> {
    causes(error).find_map(|cause| {
        if let Some(refused) = cause.downcast_ref::<CertificateRefused>() {
            return Some(refused.clone());
        }
        if let Some(rustls::Error::Other(OtherError(inner))) = cause.downcast_ref() {
            return inner.downcast_ref::<CertificateRefused>().cloned();
        }
        refused_certificate(cause.downcast_ref::<io::Error>()?.get_ref()?)
    })
}

fn is_closed(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|cause| {
        let by_hyper = cause
            .downcast_ref::<hyper::Error>()
            .is_some_and(|error| error.is_incomplete_message() || error.is_closed());
        let by_socket = cause.downcast_ref::<io::Error>().is_some_and(|error| {
            matches!(
                error.kind(),
                io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::UnexpectedEof
            ) || error.get_ref().is_some_and(|inner| is_closed(inner))
        });
        by_hyper || by_socket
    })
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
