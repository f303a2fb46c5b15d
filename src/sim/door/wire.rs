//! The HTTPS face of the door: sockets on loopback, TLS, keep-alive (behaviour section 1).
//!
//! Everything about the meaning of requests is in the door; this only carries them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request as HyperRequest, Response as HyperResponse, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::ExposeSecret;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::certificates::Certificates;
use super::http::{BODY_LIMIT, Request, Response, UPLOAD_LIMIT, is_upload};
use super::{Door, Seat};

/// Requests after which a connection is closed.
const KEEP_ALIVE: usize = 100;
/// How long a connection may idle.
const IDLE: Duration = Duration::from_secs(5);
/// Greatest size of request line and headers together.
const HEAD_LIMIT: usize = 8 * 1024;

/// Why the wire did not start.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// Only loopback addresses are listened on.
    #[error("`{0}` is no loopback address: the simulator listens on loopback only")]
    NotLoopback(SocketAddr),
    /// The socket could not be opened.
    #[error("cannot listen on `{addr}`")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The certificates can not serve TLS.
    #[error("the certificates cannot serve TLS: {0}")]
    Certificates(String),
}

/// A running HTTPS server; it ends when it is stopped or dropped.
pub struct Wire {
    /// Where it listens.
    pub addr: SocketAddr,
    /// The authority's certificate at the start.
    pub ca_pem: String,
    /// SHA-256 of the server's certificate at the start.
    pub fingerprint: String,
    current: Arc<Mutex<TlsAcceptor>>,
    renewed: watch::Sender<()>,
    stop: watch::Sender<bool>,
    task: Option<JoinHandle<()>>,
}

impl Wire {
    /// Listens on a loopback address (port 0 for any) as one node of the cluster.
    ///
    /// # Errors
    /// See [`WireError`].
    pub async fn start(
        door: Arc<Door>,
        node: &str,
        listen: SocketAddr,
        certificates: &Certificates,
    ) -> Result<Self, WireError> {
        if !listen.ip().is_loopback() {
            return Err(WireError::NotLoopback(listen));
        }
        let current = Arc::new(Mutex::new(acceptor(certificates)?));
        let failed = |source| WireError::Listen { addr: listen, source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        let (stop, stopped) = watch::channel(false);
        let (renewed, renewals) = watch::channel(());
        let server = Server {
            face: Arc::new(Face { door, node: node.to_owned() }),
            addr,
            tls: Arc::clone(&current),
            renewals,
        };
        let task = tokio::spawn(accept(Arc::new(server), listener, stopped));
        Ok(Self {
            addr,
            ca_pem: certificates.ca_pem.clone(),
            fingerprint: certificates.leaf_fingerprint.clone(),
            current,
            renewed,
            stop,
            task: Some(task),
        })
    }

    /// Shows other certificates to connections from here on; those that stand end after the call
    /// they are at and no session is resumed, as when pveproxy is reloaded.
    ///
    /// # Errors
    /// When they can not serve TLS; the old ones stay.
    pub fn swap(&self, certificates: &Certificates) -> Result<(), WireError> {
        let fresh = acceptor(certificates)?;
        *self.current.lock() = fresh;
        self.renewed.send_replace(());
        Ok(())
    }

    /// Closes the socket and every connection, and waits for it.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        if let Some(task) = self.task.take() {
            let _ended = task.await;
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// What takes TLS with these certificates; its sessions are its own.
fn acceptor(certificates: &Certificates) -> Result<TlsAcceptor, WireError> {
    let (chain, key) = certified(certificates)?;
    let bad = |error: rustls::Error| WireError::Certificates(error.to_string());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(bad)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(bad)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certified(
    certificates: &Certificates,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), WireError> {
    let bad = |text: String| WireError::Certificates(text);
    let pem = certificates.key_pem.as_ref();
    let pem = pem.ok_or_else(|| bad("they are an imitation without a key".into()))?;
    let key = PrivateKeyDer::from_pem_slice(pem.expose_secret().as_bytes())
        .map_err(|error| bad(error.to_string()))?;
    let chain = [&certificates.leaf_pem, &certificates.ca_pem]
        .into_iter()
        .map(|pem| CertificateDer::from_pem_slice(pem.as_bytes()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| bad(error.to_string()))?;
    Ok((chain, key))
}

struct Server {
    face: Arc<Face>,
    addr: SocketAddr,
    tls: Arc<Mutex<TlsAcceptor>>,
    renewals: watch::Receiver<()>,
}

/// The door as one node shows it.
struct Face {
    door: Arc<Door>,
    node: String,
}

async fn accept(server: Arc<Server>, listener: TcpListener, mut stopped: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => break,
            (seat, accepted) = next(&server.face, &listener) => match accepted {
                // A node without power takes nothing.
                Ok((stream, _)) if !server.face.door.answers_on(&server.face.node) => drop(stream),
                Ok((stream, _)) => {
                    connections.spawn(connection(Arc::clone(&server), stream, seat));
                }
                Err(error) => tracing::warn!(%error, "simulated node cannot accept"),
            },
            Some(_) = connections.join_next() => {}
        }
    }
    connections.shutdown().await;
}

/// The next connection, as soon as the node takes one more.
async fn next(face: &Face, listener: &TcpListener) -> (Seat, io::Result<(TcpStream, SocketAddr)>) {
    let seat = face.door.connections().take(&face.node).await;
    (seat, listener.accept().await)
}

async fn connection(server: Arc<Server>, stream: TcpStream, seat: Seat) {
    let _unneeded = stream.set_nodelay(true);
    let mut first = [0_u8; 1];
    // A TLS record of a handshake begins with 22.
    let is_tls = matches!(stream.peek(&mut first).await, Ok(1) if first[0] == 22);
    if !is_tls {
        redirect(server.addr, stream).await;
        return;
    }
    let tls = server.tls.lock().clone();
    match tls.accept(stream).await {
        Ok(stream) => {
            let mut renewals = server.renewals.clone();
            renewals.mark_unchanged();
            serve(Arc::clone(&server.face), TokioIo::new(stream), (renewals, seat)).await;
        }
        Err(error) => tracing::debug!(%error, "tls handshake with simulated node failed"),
    }
}

/// A call whose connection breaks before its answer, by a fault of the world.
#[derive(Debug, thiserror::Error)]
#[error("the simulated connection breaks")]
struct Broken;

/// What a connection has seen, for its end by count or by idleness.
#[derive(Default)]
struct Activity {
    served: AtomicUsize,
    running: AtomicUsize,
    /// Milliseconds after the connection's start at which it last fell idle.
    idle_since: AtomicU64,
}

async fn serve<I>(face: Arc<Face>, io: I, (mut renewals, seat): (watch::Receiver<()>, Seat))
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (start, activity) = (Instant::now(), Arc::new(Activity::default()));
    let seat = &seat;
    let service = service_fn(|request: HyperRequest<Incoming>| {
        let (face, activity) = (Arc::clone(&face), Arc::clone(&activity));
        activity.running.fetch_add(1, Ordering::Relaxed);
        async move {
            let response = answer(&face, request, &activity, seat).await;
            let now = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
            activity.idle_since.store(now, Ordering::Relaxed);
            activity.running.fetch_sub(1, Ordering::Relaxed);
            response.ok_or(Broken)
        }
    });
    let mut builder = http1::Builder::new();
    builder.title_case_headers(true).max_buf_size(HEAD_LIMIT);
    let connection = builder.serve_connection(io, service);
    tokio::pin!(connection);
    let mut last = false;
    loop {
        let idle = Duration::from_millis(activity.idle_since.load(Ordering::Relaxed));
        tokio::select! {
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection to simulated node broke");
                }
                return;
            }
            _ = renewals.changed(), if !last => {
                last = true;
                connection.as_mut().graceful_shutdown();
            }
            () = tokio::time::sleep_until(start + idle + IDLE) => {
                let latest = Duration::from_millis(activity.idle_since.load(Ordering::Relaxed));
                if activity.running.load(Ordering::Relaxed) > 0 {
                    // Off while a request is worked on: looked at again a full span later.
                    let now = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
                    activity.idle_since.store(now, Ordering::Relaxed);
                } else if start.elapsed() >= latest + IDLE {
                    return;
                }
            }
        }
    }
}

async fn answer(
    face: &Face,
    request: HyperRequest<Incoming>,
    activity: &Activity,
    seat: &Seat,
) -> Option<HyperResponse<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let headers = head.headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    let mut request = Request {
        method: head.method.as_str().to_owned(),
        target: head.uri.path_and_query().map_or_else(|| "/".into(), ToString::to_string),
        headers: headers.collect(),
        body: Bytes::new(),
        node: face.node.clone(),
    };
    let declared = request.header("content-length").and_then(|text| text.parse::<usize>().ok());
    let path = request.target.split('?').next().unwrap_or_default();
    let path = path.strip_prefix("/api2/json").or_else(|| path.strip_prefix("/api2/extjs"));
    let upload = path.is_some_and(|path| is_upload(&request.method, path));
    let limit = if upload { UPLOAD_LIMIT } else { BODY_LIMIT };
    if declared.is_some_and(|length| length > 0 && length <= limit) {
        match body.collect().await {
            Ok(body) => request.body = body.to_bytes(),
            Err(error) => {
                tracing::debug!(%error, "request body to simulated node broke off");
                return Some(shape(Response::new(400, "bad request"), true));
            }
        }
    }
    // A client that goes away does not stop what it began.
    let door = Arc::clone(&face.door);
    let served = tokio::spawn(async move { door.serve(request).await }).await;
    let response = served.unwrap_or_else(|_| Response::new(500, "got unexpected end of worker"));
    let last = activity.served.fetch_add(1, Ordering::Relaxed) + 1 >= KEEP_ALIVE;
    let last = last || seat.is_crowded();
    (!response.reset).then(|| shape(response, last))
}

fn shape(response: Response, last: bool) -> HyperResponse<Full<Bytes>> {
    let close = response.close || last;
    let mut shaped = HyperResponse::new(Full::new(Bytes::from(response.body)));
    *shaped.status_mut() =
        StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(reason) = ReasonPhrase::try_from(response.reason.into_bytes()) {
        shaped.extensions_mut().insert(reason);
    }
    let connection = if close { "close" } else { "Keep-Alive" };
    let all = response.headers.into_iter().chain([("Connection".into(), connection.into())]);
    for (name, value) in all {
        if let (Ok(name), Ok(value)) =
            (hyper::header::HeaderName::try_from(name), hyper::header::HeaderValue::try_from(value))
        {
            shaped.headers_mut().insert(name, value);
        }
    }
    shaped
}

/// Sends plain HTTP to the same port over TLS: 301 for GET, 308 for what carries a body.
async fn redirect(addr: SocketAddr, stream: TcpStream) {
    let service = service_fn(move |request: HyperRequest<Incoming>| async move {
        let get = request.method() == hyper::Method::GET;
        let host = request.headers().get("host").and_then(|host| host.to_str().ok());
        let host = host.map_or_else(|| addr.to_string(), str::to_owned);
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let status = if get { 301 } else { 308 };
        let text = if get { "Moved Permanently" } else { "Permanent Redirect" };
        let mut response = Response::new(status, text);
        response.headers.push(("Location".into(), format!("https://{host}{path}")));
        Ok::<_, std::convert::Infallible>(shape(response, true))
    });
    let mut builder = http1::Builder::new();
    builder.title_case_headers(true);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    if let Ok(Err(error)) = tokio::time::timeout(IDLE, connection).await {
        tracing::debug!(%error, "plain connection to simulated node broke");
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
