//! A node on loopback for tests: real TLS, scripted bytes, and every request that it read.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::endpoint::Endpoint;

/// What the node does with one request.
pub(super) enum Act {
    /// Writes these bytes and keeps the connection open.
    Answer(String),
    /// Reads the request and closes the connection.
    Hang,
}

/// An answer of 200 with this body.
pub(super) fn fine(body: &str) -> Act {
    answer("200 OK", body)
}

/// An answer with this status line and body.
pub(super) fn answer(status: &str, body: &str) -> Act {
    let length = body.len();
    Act::Answer(format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json;charset=UTF-8\r\nContent-Length: {length}\r\n\r\n{body}"
    ))
}

/// A node that listens until it is dropped.
pub(super) struct Node {
    /// The address on which it listens.
    pub endpoint: Endpoint,
    /// Its certificate authority in PEM.
    pub authority: String,
    /// The SHA-256 of its certificate.
    pub pin: [u8; 32],
    seen: Arc<Mutex<Vec<(usize, String)>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Node {
    /// Listens on loopback and does these acts in order, over all connections.
    pub(super) async fn start(acts: Vec<Act>) -> Self {
        let (config, authority, pin) = certificate();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let acts = Arc::new(Mutex::new(acts.into_iter()));
        let written = seen.clone();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let task = tokio::spawn(async move {
            for connection in 0.. {
                let Ok((socket, _)) = listener.accept().await else { return };
                let (acceptor, acts, written) = (acceptor.clone(), acts.clone(), written.clone());
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(socket).await else { return };
                    while let Some(request) = read_request(&mut stream).await {
                        written.lock().unwrap().push((connection, request));
                        let act = acts.lock().unwrap().next();
                        let Some(Act::Answer(bytes)) = act else { return };
                        stream.write_all(bytes.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        Self { endpoint: Endpoint::new("127.0.0.1", port), authority, pin, seen, task }
    }

    /// Each request so far, with the number of its connection.
    pub(super) fn seen(&self) -> Vec<(usize, String)> {
        self.seen.lock().unwrap().clone()
    }
}

/// Creates a certificate authority.
pub(super) fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn certificate() -> (ServerConfig, String, [u8; 32]) {
    let authority = authority("Lab CA");
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2040, 1, 2);
    params.distinguished_name.push(DnType::CommonName, "pve1.example.com");
    let leaf = params.signed_by(&key, &authority).unwrap();
    let pin = Sha256::digest(leaf.der()).into();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![leaf.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .unwrap();
    (config, authority.pem(), pin)
}

/// Reads one request: its head, and as much body as the head announces.
async fn read_request(stream: &mut TlsStream<TcpStream>) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return Some(String::from_utf8_lossy(&bytes).into_owned());
            }
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
        }
    }
}
