//! The HTTPS server over real loopback sockets.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod bodies;

use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::api::Connections;
use crate::api::access::Access;
use crate::api::tests::{Listener, spec};
use crate::clock::WallClock;
use crate::spec::{ClusterSpec, NodeSpec, PveVersion, WorkersSpec};

const TOKEN: &str = "Authorization: PVEAPIToken=root@pam!full=secret";

fn api() -> Arc<Api> {
    let spec = spec();
    let access = Access::new(&spec, PveVersion::V8_4, WallClock::starting_at(1_800_000_000));
    Api::new(&spec, PveVersion::V8_4, 1, access, Arc::new(Listener::default()), None)
}

async fn start() -> HttpsServer {
    let api = api();
    let certificates = Certificates::generate(&["pve1".to_owned()]).unwrap();
    HttpsServer::start(api, "pve1", "127.0.0.1:0".parse().unwrap(), &certificates).await.unwrap()
}

async fn connect(
    server: &HttpsServer,
    ca_pem: &str,
    name: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(server.addr).await?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Sends a request and reads the head and body of one answer.
async fn exchange<S>(stream: &mut S, head: &str, body: &str) -> (String, String)
where
    S: AsyncReadExt + AsyncWriteExt + Unpin,
{
    stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await.unwrap();
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        read.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(read).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.unwrap();
    (head, String::from_utf8(body).unwrap())
}

fn get(path: &str) -> String {
    format!("GET /api2/json{path} HTTP/1.1\r\nHost: localhost\r\n{TOKEN}")
}

#[tokio::test]
async fn the_server_uses_tls_with_its_own_authority_and_keeps_connections_alive() {
    let server = start().await;
    let mut stream = connect(&server, &server.ca_pem, "pve1").await.unwrap();
    for _ in 0..2 {
        let (head, body) = exchange(&mut stream, &get("/version"), "").await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("Server: pve-api-daemon/3.0\r\n"));
        assert!(head.contains("Connection: Keep-Alive\r\n"));
        assert!(body.contains("\"release\":\"8.4\""));
    }
    server.stop().await;
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0);
}

// Invariant: the reason phrase has the text, and errors end the connection
// (book: proxmox, section 23, item 5).
#[tokio::test]
async fn errors_carry_their_reason_and_close() {
    let server = start().await;
    let mut stream = connect(&server, &server.ca_pem, "localhost").await.unwrap();
    let (head, body) = exchange(&mut stream, &get("/nope"), "").await;
    assert!(head.starts_with("HTTP/1.1 501 Method 'GET /nope' not implemented\r\n"), "{head}");
    assert!(head.contains("Connection: close\r\n"));
    assert!(body.contains("\"message\":\"Method 'GET /nope' not implemented\""));
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0);
}

// Invariant: the server refuses bodies as Proxmox does (book: proxmox, section 23, item 10).
#[tokio::test]
async fn chunked_and_oversized_bodies_are_refused_unread() {
    let server = start().await;
    let put = "PUT /api2/json/nodes/pve1/qemu/100/config HTTP/1.1\r\nHost: localhost";
    for (header, reason) in [
        ("Transfer-Encoding: chunked", "chunked transfer encoding not supported"),
        ("Content-Length: 524289", "for data too large"),
    ] {
        let mut stream = connect(&server, &server.ca_pem, "127.0.0.1").await.unwrap();
        let (head, _) = exchange(&mut stream, &format!("{put}\r\n{TOKEN}\r\n{header}"), "").await;
        assert!(head.starts_with(&format!("HTTP/1.1 501 {reason}\r\n")), "{head}");
    }
}

#[tokio::test]
async fn a_broken_connection_ends_without_an_answer() {
    let server = start().await;
    let mut stream = connect(&server, &server.ca_pem, "pve1").await.unwrap();
    let path = "DELETE /api2/json/nodes/pve1/qemu/100 HTTP/1.1\r\nHost: localhost";
    stream.write_all(format!("{path}\r\n{TOKEN}\r\n\r\n").as_bytes()).await.unwrap();
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn a_connection_ends_after_a_hundred_requests() {
    let server = start().await;
    let mut stream = connect(&server, &server.ca_pem, "pve1").await.unwrap();
    for turn in 1..=REQUESTS_PER_CONNECTION {
        let (head, _) = exchange(&mut stream, &get("/version"), "").await;
        assert_eq!(head.contains("Connection: close"), turn == REQUESTS_PER_CONNECTION, "{turn}");
    }
}

#[tokio::test]
async fn plain_http_is_redirected_to_https() {
    let server = start().await;
    for (method, status) in [("GET", "301 Moved Permanently"), ("POST", "308 Permanent Redirect")] {
        let mut stream = TcpStream::connect(server.addr).await.unwrap();
        let head = format!("{method} /api2/json/version HTTP/1.1\r\nHost: here:8006");
        let (head, _) = exchange(&mut stream, &head, "").await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{head}");
        assert!(head.contains("Location: https://here:8006/api2/json/version\r\n"));
    }
}

#[tokio::test]
async fn certificates_can_be_replaced_while_the_server_runs() {
    let server = start().await;
    let other = Certificates::generate(&["pve1".to_owned()]).unwrap();
    assert!(connect(&server, &other.ca_pem, "pve1").await.is_err());
    server.replace_certificates(&other).unwrap();
    assert!(connect(&server, &other.ca_pem, "pve1").await.is_ok());
    assert!(server.replace_certificates(&Certificates::fake(1, &[])).is_err());
}

#[tokio::test]
async fn the_server_refuses_addresses_outside_loopback() {
    let certificates = Certificates::generate(&[]).unwrap();
    let everywhere = "0.0.0.0:0".parse().unwrap();
    let refused = HttpsServer::start(api(), "pve1", everywhere, &certificates).await;
    assert!(matches!(refused, Err(HttpsError::NotLoopback(_))));
}

// A paused clock does not advance while a test waits for a socket: a pipe in memory replaces it.
#[tokio::test(start_paused = true)]
async fn an_idle_connection_ends_after_five_seconds() {
    let (mut client, server) = tokio::io::duplex(64 * 1024);
    let node_api = Arc::new(NodeApi { api: api(), node: "pve1".into() });
    let (_renewed, renewals) = watch::channel(());
    let permit = node_api.api.connections().acquire("pve1").await;
    tokio::spawn(serve(node_api, TokioIo::new(server), (renewals, permit)));
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (head, _) = exchange(&mut client, &get("/version"), "").await;
    assert!(head.contains("Connection: Keep-Alive"));
    let answered = Instant::now();
    assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
    assert_eq!(answered.elapsed(), IDLE_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_worker_with_nearly_all_its_connections_keeps_none_alive() {
    let (mut client, server) = tokio::io::duplex(64 * 1024);
    let node_api = Arc::new(NodeApi { api: api(), node: "pve1".into() });
    let (_renewed, renewals) = watch::channel(());
    let node = NodeSpec::named("pve1");
    let one = ClusterSpec { nodes: vec![node], workers: WorkersSpec::of(1), ..spec() };
    let connections = Connections::new(&one);
    let mut permits = Vec::new();
    for _ in 0..481 {
        permits.push(connections.acquire("pve1").await);
    }
    let permit = permits.pop().unwrap();
    tokio::spawn(serve(node_api, TokioIo::new(server), (renewals, permit)));
    let (head, _) = exchange(&mut client, &get("/version"), "").await;
    assert!(head.contains("Connection: close"), "{head}");
    while permits.len() < 499 {
        permits.push(connections.acquire("pve1").await);
    }
    let full = Duration::from_secs(60);
    let _last = connections.acquire("pve1").await;
    assert!(tokio::time::timeout(full, connections.acquire("pve1")).await.is_err());
    permits.pop();
    assert!(tokio::time::timeout(full, connections.acquire("pve1")).await.is_ok());
}
