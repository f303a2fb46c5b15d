//! The recorded requests over HTTPS: real TLS and HTTP on pipes in memory, whose clock can be paused.
//! A client that keeps connections as long as the server does.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pve_sim::api::Api;
use pve_sim::api::certificates::Certificates;
use pve_sim::api::http::{Request, Response};
use pve_sim::api::https::PipeServer;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A connection that was idle for longer is left: the server is about to close it.
const IDLE_MAX: Duration = Duration::from_secs(4);
const PIPE_BYTES: usize = 64 * 1024;

type Stream = BufReader<TlsStream<DuplexStream>>;

pub struct Wire {
    server: Arc<PipeServer>,
    connector: TlsConnector,
    idle: Mutex<Vec<(Stream, Instant)>>,
}

impl Wire {
    pub fn to(api: Arc<Api>) -> Self {
        let certificates = Certificates::generate(&["pve1".to_owned()]).unwrap();
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(certificates.ca_pem.as_bytes()).unwrap();
        roots.add(ca).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            server: Arc::new(PipeServer::new(api, "pve1", &certificates).unwrap()),
            connector: TlsConnector::from(Arc::new(config)),
            idle: Mutex::default(),
        }
    }

    /// Sends a request and reads its answer.
    pub async fn send(&self, request: Request) -> Response {
        let mut stream = match self.kept() {
            Some(stream) => stream,
            None => self.connect().await,
        };
        stream.write_all(&bytes(&request)).await.unwrap();
        stream.flush().await.unwrap();
        let response = read(&mut stream).await;
        if !response.close {
            self.idle.lock().unwrap().push((stream, Instant::now()));
        }
        response
    }

    fn kept(&self) -> Option<Stream> {
        let mut idle = self.idle.lock().unwrap();
        idle.retain(|(_, since)| since.elapsed() < IDLE_MAX);
        idle.pop().map(|(stream, _)| stream)
    }

    async fn connect(&self) -> Stream {
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        let server = Arc::clone(&self.server);
        tokio::spawn(async move { server.serve(far).await });
        let name = ServerName::try_from("pve1").unwrap();
        BufReader::new(self.connector.connect(name, near).await.unwrap())
    }
}

/// A request as it goes over the wire; a body of unsaid length only where its headers say chunks.
fn bytes(request: &Request) -> Vec<u8> {
    let mut head = format!("{} {} HTTP/1.1\r\nHost: pve1:8006\r\n", request.method, request.target);
    let has = |name: &str| request.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
    for (name, value) in &request.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let body = request.body.to_vec();
    if has("transfer-encoding") {
        let mut chunks = Vec::new();
        if !body.is_empty() {
            chunks = format!("{:x}\r\n", body.len()).into_bytes();
            chunks.extend([body, b"\r\n".to_vec()].concat());
        }
        chunks.extend(b"0\r\n\r\n");
        return [format!("{head}\r\n").into_bytes(), chunks].concat();
    }
    if !body.is_empty() && !has("content-length") {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    [format!("{head}\r\n").into_bytes(), body].concat()
}

async fn read(stream: &mut Stream) -> Response {
    let mut head = Vec::new();
    let mut line = String::new();
    while stream.read_line(&mut line).await.unwrap() > 2 {
        head.push(std::mem::take(&mut line).trim_end().to_owned());
    }
    assert!(!head.is_empty(), "the connection closed without an answer");
    let mut words = head[0].splitn(3, ' ');
    let (_version, status) = (words.next(), words.next().unwrap().parse().unwrap());
    let reason = words.next().unwrap_or_default().to_owned();
    let headers = head[1..].iter().map(|line| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_owned(), value.to_owned())
    });
    let headers: Vec<(String, String)> = headers.collect();
    let value = |name: &str| headers.iter().find(|(own, _)| own == name).map(|(_, value)| value);
    let length = value("Content-Length").map_or(0, |length| length.parse().unwrap());
    let close = value("Connection").is_some_and(|value| value == "close");
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    Response { status, reason, headers, body, close, reset: false }
}
