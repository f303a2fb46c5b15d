//! What a command prints where the service does not answer, or answers with what a terminal obeys.

use std::future::pending;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;

use super::super::lease::lease;
use super::super::leasing::Leasing;
use super::super::*;
use super::global;
use super::lease::{Guest, WAIT_LIMIT, options};

/// Leases from a service that answers once, and is down from then on; gives what was printed.
async fn leased(status: u16, answer: serde_json::Value) -> (String, String) {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("drover.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let body = answer.to_string();
    let once = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 8192];
        let _read = stream.read(&mut request).await.unwrap();
        let head = format!(
            "HTTP/1.1 {status} Answer\r\nContent-Type: application/json\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        drop(listener);
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    });
    let client = Client::new(&global(&socket)).ok().unwrap();
    let (guest, key_dir) = (Guest::default(), directory.path().to_owned());
    let leasing = Leasing {
        client: &client,
        over: &guest,
        input: |_| (),
        time_limits: WAIT_LIMIT,
        key_dir,
        json: false,
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut term = Term::new(&mut out, &mut err);
    let options = options("quick", &["true"]);
    let fault = lease(&leasing, &options, pending(), &mut term).await.unwrap_err();
    once.await.unwrap();
    (String::from_utf8(err).unwrap(), chain(&fault))
}

// Invariant: silence is reported once, however long it lasts, and ends with the reason.

#[tokio::test]
async fn a_service_that_does_not_answer_is_reported_once() {
    let waiting = json!({
        "id": "l1", "state": "waiting", "agent": null, "owner": "", "principal": "uid:0",
        "expiresAt": null, "detail": "rings \u{7} and \u{1b}[31mcolours", "ssh": null
    });
    let (printed, fault) = leased(201, waiting).await;
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[0], "lease l1: waiting (rings ? and ?[31mcolours)");
    let silent = lines.iter().filter(|line| line.contains("does not answer, trying again"));
    assert_eq!(silent.count(), 1, "{printed}");
    assert!(fault.starts_with("no drover is listening on "), "{fault}");
}
