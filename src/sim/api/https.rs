//! The HTTPS server of a simulated node: loopback sockets, TLS, keep-alive
//! (book: proxmox, section 1). `Api` answers the requests. `linger` closes a connection whose client
//! still sends.

mod linger;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
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
use tokio::io::DuplexStream;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::certificates::Certificates;
use super::http::{BODY_BYTES_MAX, IDLE_TIMEOUT, Request, Response, UPLOAD_BYTES_MAX, is_upload};
use super::{Api, ConnectionPermit};

/// The server closes a connection after this many requests.
const REQUESTS_PER_CONNECTION: usize = 100;
/// Beyond these hyper answers by itself; the limits of Proxmox lie below and are the API's.
const HYPER_BUFFER_BYTES_MAX: usize = 1 << 20;
const HYPER_HEADERS_MAX: usize = 1_000;

#[derive(Debug, thiserror::Error)]
pub enum HttpsError {
    /// The server listens on loopback addresses only.
    #[error("`{0}` is no loopback address: the simulator listens on loopback only")]
    NotLoopback(SocketAddr),
    /// The system refused the socket.
    #[error("cannot listen on `{addr}`")]
    Listen {
        addr: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("the certificates cannot serve TLS: {0}")]
    Certificates(String),
}

/// A running HTTPS server. It ends when it is stopped or dropped.
pub struct HttpsServer {
    pub addr: SocketAddr,
    /// The authority's certificate at the start.
    pub ca_pem: String,
    /// SHA-256 of the server's certificate at the start.
    pub fingerprint: String,
    current: Arc<Mutex<TlsAcceptor>>,
    served: Arc<Mutex<Arc<NodeApi>>>,
    renewed: watch::Sender<()>,
    stop: watch::Sender<bool>,
    task: Option<JoinHandle<()>>,
}

impl HttpsServer {
    /// Listens as one node of the cluster, on a loopback address; port 0 for any free port.
    ///
    /// # Errors
    /// See [`HttpsError`].
    pub(crate) async fn start(
        api: Arc<Api>,
        node: &str,
        listen: SocketAddr,
        certificates: &Certificates,
    ) -> Result<Self, HttpsError> {
        if !listen.ip().is_loopback() {
            return Err(HttpsError::NotLoopback(listen));
        }
        let current = Arc::new(Mutex::new(tls_acceptor(certificates)?));
        let failed = |source| HttpsError::Listen { addr: listen, source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        let (stop, stopped) = watch::channel(false);
        let (renewed, renewals) = watch::channel(());
        let node_api = Arc::new(NodeApi { api, node: node.to_owned() });
        let served = Arc::new(Mutex::new(node_api));
        let server =
            Server { served: Arc::clone(&served), addr, tls: Arc::clone(&current), renewals };
        let task = tokio::spawn(accept(Arc::new(server), listener, stopped));
        Ok(Self {
            addr,
            ca_pem: certificates.ca_pem.clone(),
            fingerprint: certificates.leaf_fingerprint.clone(),
            current,
            served,
            renewed,
            stop,
            task: Some(task),
        })
    }

    /// Shows other certificates to new connections, as after a reload of pveproxy: open connections
    /// end after their current call, and no TLS session is resumed.
    ///
    /// # Errors
    /// When the certificates cannot serve TLS; the server keeps the old ones.
    pub(crate) fn replace_certificates(
        &self,
        certificates: &Certificates,
    ) -> Result<(), HttpsError> {
        let fresh = tls_acceptor(certificates)?;
        *self.current.lock() = fresh;
        self.renewed.send_replace(());
        Ok(())
    }

    /// Serves a node of another world from now on, with its certificates; open connections end after
    /// their current call.
    ///
    /// # Errors
    /// When the certificates cannot serve TLS; the server keeps world and certificates.
    pub(crate) fn replace_world(
        &self,
        api: Arc<Api>,
        node: &str,
        certificates: &Certificates,
    ) -> Result<(), HttpsError> {
        let fresh = tls_acceptor(certificates)?;
        *self.served.lock() = Arc::new(NodeApi { api, node: node.to_owned() });
        *self.current.lock() = fresh;
        self.renewed.send_replace(());
        Ok(())
    }

    /// Closes the socket and all connections, and waits until they are closed.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        if let Some(task) = self.task.take() {
            let _ended = task.await;
        }
    }
}

impl Drop for HttpsServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// A node that serves pipes in memory in place of sockets, for tests whose clock is paused.
pub struct PipeServer {
    node_api: Arc<NodeApi>,
    tls: TlsAcceptor,
}

impl PipeServer {
    /// A server of one node.
    ///
    /// # Errors
    /// When the certificates cannot serve TLS.
    pub fn new(api: Arc<Api>, node: &str, shown: &Certificates) -> Result<Self, HttpsError> {
        let node_api = Arc::new(NodeApi { api, node: node.to_owned() });
        Ok(Self { node_api, tls: tls_acceptor(shown)? })
    }

    /// Serves one connection to its end.
    pub async fn serve(&self, pipe: DuplexStream) {
        let permit = self.node_api.api.connections().acquire(&self.node_api.node).await;
        let (_renewed, renewals) = watch::channel(());
        match self.tls.accept(pipe).await {
            Ok(stream) => {
                serve(Arc::clone(&self.node_api), TokioIo::new(stream), (renewals, permit)).await;
            }
            Err(error) => tracing::debug!(%error, "tls handshake on a pipe failed"),
        }
    }
}

/// A TLS acceptor with these certificates. It shares its session cache with no other.
fn tls_acceptor(certificates: &Certificates) -> Result<TlsAcceptor, HttpsError> {
    let (chain, key) = certificate_chain(certificates)?;
    let bad = |error: rustls::Error| HttpsError::Certificates(error.to_string());
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

fn certificate_chain(
    certificates: &Certificates,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), HttpsError> {
    let bad = |text: String| HttpsError::Certificates(text);
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
    /// What connections are served with, as it is when they begin.
    served: Arc<Mutex<Arc<NodeApi>>>,
    addr: SocketAddr,
    tls: Arc<Mutex<TlsAcceptor>>,
    renewals: watch::Receiver<()>,
}

/// The API as served by one node.
struct NodeApi {
    api: Arc<Api>,
    node: String,
}

impl NodeApi {
    fn is_up(&self) -> bool {
        self.api.answers_on(&self.node)
    }
}

async fn accept(server: Arc<Server>, listener: TcpListener, mut stopped: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => break,
            (permit, accepted) = accept_next(&server.served, &listener) => match accepted {
                // A node that is down accepts nothing.
                Ok((stream, _)) if !server.served.lock().is_up() => drop(stream),
                Ok((stream, _)) => {
                    connections.spawn(connection(Arc::clone(&server), stream, permit));
                }
                Err(error) => tracing::warn!(%error, "simulated node cannot accept"),
            },
            Some(_) = connections.join_next() => {}
        }
    }
    connections.shutdown().await;
}

/// Accepts the next connection, once the limit allows one.
async fn accept_next(
    served: &Mutex<Arc<NodeApi>>,
    listener: &TcpListener,
) -> (ConnectionPermit, io::Result<(TcpStream, SocketAddr)>) {
    let node_api = Arc::clone(&served.lock());
    let permit = node_api.api.connections().acquire(&node_api.node).await;
    (permit, listener.accept().await)
}

async fn connection(server: Arc<Server>, stream: TcpStream, permit: ConnectionPermit) {
    let _unneeded = stream.set_nodelay(true);
    let mut first = [0_u8; 1];
    // A TLS record of a handshake begins with 22.
    let is_tls = matches!(stream.peek(&mut first).await, Ok(1) if first[0] == 22);
    if !is_tls {
        redirect(server.addr, stream).await;
        return;
    }
    let (stream, socket) = match linger::Socket::hold(stream) {
        Ok(held) => held,
        Err(error) => {
            tracing::warn!(%error, "simulated node cannot hold a connection");
            return;
        }
    };
    let tls = server.tls.lock().clone();
    match tls.accept(stream).await {
        Ok(stream) => {
            let mut renewals = server.renewals.clone();
            renewals.mark_unchanged();
            let (node_api, io) = (Arc::clone(&server.served.lock()), TokioIo::new(stream));
            if serve(node_api, io, (renewals, permit)).await == End::Unread {
                socket.drain().await;
            }
        }
        Err(error) => tracing::debug!(%error, "tls handshake with simulated node failed"),
    }
}

/// A planned fault broke the connection of a call.
#[derive(Debug, thiserror::Error)]
#[error("the simulated connection breaks")]
struct ConnectionBroken;

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Everything that came was read, or the connection broke.
    Read,
    /// The last answer came before its request was read to the end.
    Unread,
}

/// The counts that end a connection.
#[derive(Default)]
struct Activity {
    /// Whether a request was answered without its body.
    unread: AtomicBool,
    served: AtomicUsize,
    running: AtomicUsize,
    /// When the connection last became idle, in milliseconds after its start.
    idle_since: AtomicU64,
}

async fn serve<I>(
    node_api: Arc<NodeApi>,
    io: I,
    (mut renewals, permit): (watch::Receiver<()>, ConnectionPermit),
) -> End
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (start, activity) = (Instant::now(), Arc::new(Activity::default()));
    let permit = &permit;
    let service = service_fn(|request: HyperRequest<Incoming>| {
        let (node_api, activity) = (Arc::clone(&node_api), Arc::clone(&activity));
        activity.running.fetch_add(1, Ordering::Relaxed);
        async move {
            let response = answer(&node_api, request, &activity, permit).await;
            let now = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
            activity.idle_since.store(now, Ordering::Relaxed);
            activity.running.fetch_sub(1, Ordering::Relaxed);
            response.ok_or(ConnectionBroken)
        }
    });
    let mut builder = http1::Builder::new();
    builder.title_case_headers(true).max_buf_size(HYPER_BUFFER_BYTES_MAX);
    builder.max_headers(HYPER_HEADERS_MAX);
    let connection = builder.serve_connection(io, service);
    tokio::pin!(connection);
    let mut last = false;
    loop {
        let idle = Duration::from_millis(activity.idle_since.load(Ordering::Relaxed));
        tokio::select! {
            ended = &mut connection => {
                let refused = ended.as_ref().is_err_and(hyper::Error::is_parse);
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection to simulated node broke");
                }
                let unread = refused || activity.unread.load(Ordering::Relaxed);
                return if unread { End::Unread } else { End::Read };
            }
            _ = renewals.changed(), if !last => {
                last = true;
                connection.as_mut().graceful_shutdown();
            }
            () = tokio::time::sleep_until(start + idle + IDLE_TIMEOUT) => {
                let latest = Duration::from_millis(activity.idle_since.load(Ordering::Relaxed));
                if activity.running.load(Ordering::Relaxed) > 0 {
                    // The timeout does not run during a request: it starts again.
                    let now = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
                    activity.idle_since.store(now, Ordering::Relaxed);
                } else if start.elapsed() >= latest + IDLE_TIMEOUT {
                    return End::Read;
                }
            }
        }
    }
}

async fn answer(
    node_api: &NodeApi,
    request: HyperRequest<Incoming>,
    activity: &Activity,
    permit: &ConnectionPermit,
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
        node: node_api.node.clone(),
    };
    let declared = request.header("content-length").and_then(|text| text.parse::<usize>().ok());
    let path = request.target.split('?').next().unwrap_or_default();
    let path = path.strip_prefix("/api2/json").or_else(|| path.strip_prefix("/api2/extjs"));
    let upload = path.is_some_and(|path| is_upload(&request.method, path));
    let limit = if upload { UPLOAD_BYTES_MAX } else { BODY_BYTES_MAX };
    if declared.is_some_and(|length| length > 0 && length <= limit) {
        match body.collect().await {
            Ok(body) => request.body = body.to_bytes(),
            Err(error) => {
                tracing::debug!(%error, "request body to simulated node broke off");
                return Some(to_hyper(Response::new(400, "bad request"), true));
            }
        }
    } else if !body.is_end_stream() {
        activity.unread.store(true, Ordering::Relaxed);
    }
    // A call continues when its client disconnects.
    let api = Arc::clone(&node_api.api);
    let served = tokio::spawn(async move { api.serve(request).await }).await;
    let response = served.unwrap_or_else(|_| Response::new(500, "got unexpected end of worker"));
    let last = activity.served.fetch_add(1, Ordering::Relaxed) + 1 >= REQUESTS_PER_CONNECTION;
    let last = last || permit.is_crowded();
    // A node that is down says nothing, on connections that it had before neither.
    if response.reset || !node_api.is_up() {
        activity.unread.store(false, Ordering::Relaxed);
        return None;
    }
    Some(to_hyper(response, last))
}

fn to_hyper(response: Response, last: bool) -> HyperResponse<Full<Bytes>> {
    let close = response.close || last;
    let mut hyper_response = HyperResponse::new(Full::new(Bytes::from(response.body)));
    *hyper_response.status_mut() =
        StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(reason) = ReasonPhrase::try_from(response.reason.into_bytes()) {
        hyper_response.extensions_mut().insert(reason);
    }
    let connection = if close { "close" } else { "Keep-Alive" };
    let all = response.headers.into_iter().chain([("Connection".into(), connection.into())]);
    for (name, value) in all {
        if let (Ok(name), Ok(value)) =
            (hyper::header::HeaderName::try_from(name), hyper::header::HeaderValue::try_from(value))
        {
            hyper_response.headers_mut().insert(name, value);
        }
    }
    hyper_response
}

/// Redirects plain HTTP to HTTPS on the same port: 301 for GET, 308 for other methods.
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
        Ok::<_, std::convert::Infallible>(to_hyper(response, true))
    });
    let mut builder = http1::Builder::new();
    builder.title_case_headers(true);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    if let Ok(Err(error)) = tokio::time::timeout(IDLE_TIMEOUT, connection).await {
        tracing::debug!(%error, "plain connection to simulated node broke");
    }
}

#[cfg(test)]
mod tests;
