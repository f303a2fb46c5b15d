//! Ids by their starts, against a service that counts what it is asked for.

use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;

use super::super::*;
use super::global;

/// Runs a command against a service with three leases; gives the requests, as `GET /path`.
async fn asked(words: &[&str]) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("drover.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&requests);
    let service = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 8192];
            let length = stream.read(&mut request).await.unwrap();
            let text = String::from_utf8_lossy(&request[..length]).into_owned();
            let line: Vec<&str> = text.split_whitespace().take(2).collect();
            let lease = |id: &str| {
                json!({
                    "id": id, "state": "waiting", "agent": null, "owner": "", "principal": "uid:0",
                    "expiresAt": null, "detail": "", "ssh": null
                })
            };
            let leases = ["lease-7ab1c2d3", "lease-7ab1ffff", "lease-9c0d0000"].map(lease);
            let body = json!({ "leases": leases, "next": null }).to_string();
            let (status, body) = match line[0] {
                "GET" => ("200 OK", body),
                _ => ("204 No Content", String::new()),
            };
            heard.lock().unwrap().push(line.join(" "));
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n\
                 Content-Length: {length}\r\n\r\n"
            );
            stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        }
    });
    let command = Cli::try_parse_from(["drover"].iter().chain(words)).unwrap().command;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut term = Term::new(&mut out, &mut err);
    let result = remote::run(&global(&socket), command, &mut term).await;
    service.abort();
    assert!(result.is_ok(), "{:?}", String::from_utf8(err));
    let requests = requests.lock().unwrap();
    requests.clone()
}

// Invariant: a list is read once for all words of a command, and not at all for whole words.

#[tokio::test]
async fn several_starts_of_leases_read_the_leases_once() {
    let requests = asked(&["lease", "release", "7ab1c", "7ab1f", "lease-9c0d"]).await;
    let lists = requests.iter().filter(|request| request.starts_with("GET /v1/leases?")).count();
    assert_eq!(lists, 1, "{requests:?}");
    let ended: Vec<&str> =
        requests.iter().filter_map(|request| request.strip_prefix("DELETE /v1/leases/")).collect();
    assert_eq!(ended.len(), 3, "{requests:?}");
    assert!(ended.iter().all(|id| id.starts_with("lease")), "{ended:?}");
}
