//! The HTTPS transport over real TLS on loopback.

#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::Value;

use super::testing::{Act, Node, answer, authority, fine};
use super::*;
use crate::client::Client;
use crate::connection::fingerprint;
use crate::testing::token;
use crate::transport::Sent;

const VERSION: &str = r#"{"data":{"version":"8.4.21"}}"#;

fn connection(node: &Node, tls: Tls) -> Connection {
    Connection::new(vec![node.endpoint.clone()], token(), tls)
}

fn client(node: &Node) -> Client {
    let connection = connection(node, Tls::Pins(vec![node.pin]));
    Client::new(&connection, &WireDialer).unwrap()
}

async fn version(connection: &Connection) -> Result<String, PveError> {
    Client::new(connection, &WireDialer)?.version().await.map(|version| version.version)
}

/// Asks for the version with this kind of trust; returns the failure's text without what varies.
async fn probed(node: &Node, tls: Tls) -> Result<String, String> {
    version(&connection(node, tls)).await.map_err(|error| {
        assert!(matches!(error, PveError::Unreachable { .. }), "{error}");
        let text = error.chain();
        let seen = fingerprint(&node.pin);
        assert!(text.contains(&seen), "{text}");
        text.replace(&seen, "SEEN").replace(&node.endpoint.to_string(), "https://node:8006")
    })
}

// Invariant: a node is trusted only as configured, and a refusal shows the certificate that it
// presented.

#[tokio::test]
async fn any_of_several_pins_will_do() {
    let node = Node::start(vec![fine(VERSION)]).await;
    assert_eq!(probed(&node, Tls::Pins(vec![[1; 32], node.pin])).await.unwrap(), "8.4.21");
}

#[tokio::test]
async fn a_wrong_pin_shows_what_was_seen_and_what_was_expected() {
    let node = Node::start(vec![fine(VERSION)]).await;
    let text = probed(&node, Tls::Pins(vec![[0xAB; 32], [0xCD; 32]])).await.unwrap_err();
    insta::assert_snapshot!(text, @"no usable endpoint for `GET /version`: `https://node:8006`: the certificate is not a pinned one: saw SHA-256 `SEEN` (subject `CN=pve1.example.com`, issuer `CN=Lab CA`, valid until Jan  2 00:00:00 2040 +00:00), expected `AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB:AB` or `CD:CD:CD:CD:CD:CD:CD:CD:CD:CD:CD:CD:CD:CD:CD:CD:CD:CD:CD:CD:CD:CD:CD:CD:CD:CD:CD:CD:CD:CD:CD:CD`; compare it on the node with `pvenode cert info`, and pin the new one only if it is the node's");
    assert!(node.seen().is_empty(), "nothing was sent, the login least of all");
}

#[tokio::test]
async fn the_clusters_authority_will_do() {
    let node = Node::start(vec![fine(VERSION)]).await;
    let bundle = Tls::Bundle(vec![node.authority.clone()]);
    assert_eq!(probed(&node, bundle).await.unwrap(), "8.4.21");
}

#[tokio::test]
async fn another_authority_is_refused_with_what_to_do() {
    let node = Node::start(vec![fine(VERSION)]).await;
    let other = Tls::Bundle(vec![authority("Other CA").pem()]);
    let text = probed(&node, other).await.unwrap_err();
    insta::assert_snapshot!(text, @"no usable endpoint for `GET /version`: `https://node:8006`: the certificate is not trusted (invalid peer certificate: UnknownIssuer): saw SHA-256 `SEEN` (subject `CN=pve1.example.com`, issuer `CN=Lab CA`, valid until Jan  2 00:00:00 2040 +00:00); give the cluster's authority (`/etc/pve/pve-root-ca.pem`) as CA bundle, or pin this fingerprint after comparing it on the node with `pvenode cert info`");
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let mut node = Node::start(vec![fine(VERSION)]).await;
    node.endpoint = Endpoint::new("localhost", node.endpoint.port());
    let text = probed(&node, Tls::Bundle(vec![node.authority.clone()])).await.unwrap_err();
    assert!(text.contains("not valid for name"), "{text}");
    let pinned = probed(&node, Tls::Pins(vec![node.pin])).await;
    assert_eq!(pinned.unwrap(), "8.4.21", "a pin does not care for names");
}

#[tokio::test]
async fn unchecked_certificates_work_when_asked_for() {
    let node = Node::start(vec![fine(VERSION)]).await;
    assert_eq!(probed(&node, Tls::Ignore).await.unwrap(), "8.4.21");
}

#[tokio::test]
async fn trust_that_cannot_be_set_up_says_why() {
    let node = Node::start(Vec::new()).await;
    let dial = |tls| {
        let dialed = WireDialer.dial(&node.endpoint, &connection(&node, tls));
        dialed.map(|_| ()).unwrap_err().to_string()
    };
    let text = [
        dial(Tls::Bundle(vec!["nothing here".into()])),
        dial(Tls::Bundle(vec![
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".into(),
        ])),
        dial(Tls::Pins(Vec::new())),
    ];
    insta::assert_snapshot!(text.join("\n"), @r"
    the CA bundle holds no certificate: give PEM that begins with `-----BEGIN CERTIFICATE-----`
    the CA bundle holds a bad certificate
    no fingerprint is pinned: give at least one
    ");
}

#[tokio::test]
async fn no_route_says_where_to_look() {
    let node = Node::start(Vec::new()).await;
    let endpoint = node.endpoint.clone();
    let connection = connection(&node, Tls::Ignore);
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        Endpoint::new("127.0.0.1", listener.local_addr().unwrap().port())
    };
    let connection = Connection { endpoints: vec![gone.clone()], ..connection };
    let error = version(&connection).await.unwrap_err();
    assert_ne!(gone, endpoint);
    let text = error.chain().replace(&gone.to_string(), "https://node:8006");
    insta::assert_snapshot!(text, @"no usable endpoint for `GET /version`: `https://node:8006`: no connection (Connection refused (os error 111))");
}

#[tokio::test]
async fn a_connection_that_is_taken_and_ended_at_once_is_not_called_none() {
    let node = Node::start(Vec::new()).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ends = Endpoint::new("127.0.0.1", listener.local_addr().unwrap().port());
    let server = tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            drop(socket);
        }
    });
    let connection = Connection { endpoints: vec![ends.clone()], ..connection(&node, Tls::Ignore) };
    let text = version(&connection).await.unwrap_err().chain();
    let wanted = format!("`{ends}`: the connection was taken and broke off (");
    assert!(text.contains(&wanted), "{text}");
    server.abort();
}

// Invariant: requests are built as Proxmox's HTTP daemon expects them (book: proxmox, section 1).

#[tokio::test]
async fn requests_name_the_program_that_sends_them() {
    let node = Node::start(vec![fine(VERSION)]).await;
    let connection = connection(&node, Tls::Pins(vec![node.pin]));
    let connection = Connection { user_agent: "lister/7".to_owned(), ..connection };
    version(&connection).await.unwrap();
    let (_, text) = &node.seen()[0];
    assert!(text.lines().any(|line| line == "user-agent: lister/7"), "{text}");
}

#[tokio::test]
async fn requests_are_spelled_as_proxmox_wants() {
    let node = Node::start((0..4).map(|_| fine(r#"{"data":null}"#)).collect()).await;
    let client = client(&node);
    let pairs = vec![
        ("sshkeys".to_owned(), "ssh-rsa%20A%2FB".to_owned()),
        ("full".to_owned(), "1".to_owned()),
    ];
    for method in [Method::Get, Method::Put, Method::Delete] {
        client.write::<Value>(method, "/nodes/pve1/qemu/101", pairs.clone()).await.unwrap();
    }
    client.write::<Value>(Method::Post, "/empty", Vec::new()).await.unwrap();
    let output = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default();
        !matches!(name, "host" | "accept" | "user-agent" | "authorization")
    };
    let seen: Vec<_> = node
        .seen()
        .iter()
        .map(|(_, text)| text.lines().filter(output).collect::<Vec<_>>().join("\n"))
        .collect();
    insta::assert_snapshot!(seen.join("\n--\n"), @r"
    GET /api2/json/nodes/pve1/qemu/101?sshkeys=ssh-rsa%2520A%252FB&full=1 HTTP/1.1

    --
    PUT /api2/json/nodes/pve1/qemu/101 HTTP/1.1
    content-type: application/x-www-form-urlencoded
    content-length: 34

    sshkeys=ssh-rsa%2520A%252FB&full=1
    --
    DELETE /api2/json/nodes/pve1/qemu/101?sshkeys=ssh-rsa%2520A%252FB&full=1 HTTP/1.1

    --
    POST /api2/json/empty HTTP/1.1
    content-length: 0
    content-type: application/x-www-form-urlencoded
    ");
    assert!(node.seen().iter().all(|(connection, _)| *connection == 0), "one connection is kept");
}

// Invariant: nodes that report a failure only in the status line are understood.

#[tokio::test]
async fn an_old_nodes_reason_is_read() {
    let acts = vec![
        answer("500 VM is locked (backup)", r#"{"data":null}"#),
        answer("595 No route to host", ""),
        answer("500 Internal Server Error", r#"{"data":null,"message":"VM is locked (clone)\n"}"#),
        answer("401 Authentication failed!", ""),
    ];
    let node = Node::start(acts).await;
    let client = client(&node);
    let mut said = Vec::new();
    for _ in 0..4 {
        let asked = client.get::<Value>("/nodes/pve1/qemu/101/config", Vec::new()).await;
        let Err(PveError::Refused { refusal, .. }) = asked else { panic!("{asked:?}") };
        said.push(refusal.to_string());
    }
    assert_eq!(
        said,
        [
            "500 VM is locked (backup)",
            "595 No route to host",
            "500 VM is locked (clone)",
            "401 Authentication failed!",
        ]
    );
}

// Invariant: a connection that closes during a call differs from a call that was not sent.

#[tokio::test]
async fn a_kept_connection_that_closes_costs_a_read_nothing() {
    let node = Node::start(vec![fine(VERSION), Act::Hang, fine(VERSION)]).await;
    let client = client(&node);
    client.version().await.unwrap();
    client.version().await.unwrap();
    let connections: Vec<_> = node.seen().iter().map(|(connection, _)| *connection).collect();
    assert_eq!(connections, [0, 0, 1]);
}

#[tokio::test]
async fn a_connection_that_closes_under_a_write_leaves_it_unknown() {
    let node = Node::start(vec![fine(VERSION), Act::Hang, fine(VERSION)]).await;
    let client = client(&node);
    client.version().await.unwrap();
    let asked =
        client.write::<Value>(Method::Post, "/nodes/pve1/qemu/9000/clone", Vec::new()).await;
    let error = asked.unwrap_err();
    let PveError::Lost { source, .. } = &error else { panic!("{error}") };
    assert_eq!(source.sent(), Sent::Maybe);
    assert_eq!(node.seen().len(), 2);
}

#[tokio::test]
async fn an_endless_answer_is_not_taken_in() {
    let act = Act::Answer(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{{", BODY_MAX + 1));
    let node = Node::start(vec![act]).await;
    let error = client(&node).version().await.unwrap_err();
    assert!(error.chain().contains("larger than 33554432 bytes"), "{}", error.chain());
}

#[tokio::test]
async fn broken_json_is_named() {
    let node = Node::start(vec![fine("<html>")]).await;
    let client = client(&node);
    let error = client.version().await.unwrap_err();
    assert!(error.to_string().contains("with data that does not match the Proxmox API"), "{error}");
}
