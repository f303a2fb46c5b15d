#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use drover_spans::Header;
use proxmox_client::Tls;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::doctor::Report;

/// A server that answers one request with this, and gives what it was sent.
async fn once(answer: &str) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    let answer = answer.to_owned();
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut read = Vec::new();
        while !read.ends_with(br#"{"resourceSpans":[]}"#) {
            let mut part = [0; 1024];
            let count = stream.read(&mut part).await.unwrap();
            assert!(count > 0, "{}", String::from_utf8_lossy(&read));
            read.extend(&part[..count]);
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(read).unwrap()
    });
    (url, served)
}

fn settings(endpoint: &str) -> Settings {
    let header = Header { name: "Authorization".to_owned(), value: "Bearer hidden".into() };
    Settings { endpoint: endpoint.to_owned(), headers: vec![header], tls: Tls::System }
}

async fn text(answer: &str) -> (String, String) {
    rustls::crypto::ring::default_provider().install_default().ok();
    let (url, served) = once(answer).await;
    let collector = Some(check_collector(&settings(&url)).await);
    let text = Report { collector, ..Report::default() }.text().replace(&url, "http://otel");
    (text, tokio::time::timeout(Duration::from_secs(10), served).await.unwrap().unwrap())
}

// Invariant: the report says whether a collector takes traces, and what to do where it does not; no value of
// a header is in it.

#[tokio::test]
async fn what_a_collector_answers_is_reported_with_what_to_do() {
    let (taken, sent) = text("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
    insta::assert_snapshot!(taken, @r"
    traces to http://otel
      ok    takes traces: it took a request without spans
    1 ok, 0 warn, 0 fail
    ");
    let sent = sent.to_ascii_lowercase();
    assert!(sent.starts_with("post /v1/traces http/1.1\r\n"), "{sent}");
    assert!(sent.contains("content-type: application/json\r\n"), "{sent}");
    assert!(sent.contains("authorization: bearer hidden\r\n"), "{sent}");
    let (refused, _) = text("HTTP/1.1 401 Unauthorized\r\ncontent-length: 8\r\n\r\nno login").await;
    insta::assert_snapshot!(refused, @r"
    traces to http://otel
      fail  takes traces: it answered with status 401: no login
            in `service.traces` or at the collector:
            > compare the path of `endpoint` with the OTLP/HTTP receiver's (`/v1/traces`)
            > compare the values of Authorization with what it expects
    0 ok, 0 warn, 1 fail
    ");
    assert!(!refused.contains("hidden"));
    let (busy, _) = text("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n").await;
    insta::assert_snapshot!(busy, @r"
    traces to http://otel
      fail  takes traces: it answered with status 503
            in `service.traces` and at the collector:
            > check `endpoint`, and that the collector runs with an OTLP/HTTP receiver
    0 ok, 0 warn, 1 fail
    ");
}

#[tokio::test]
async fn a_collector_that_is_not_there_is_reported_as_that() {
    rustls::crypto::ring::default_provider().install_default().ok();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let collector = check_collector(&settings(&format!("http://{address}/v1/traces"))).await;
    let report = Report { collector: Some(collector), ..Report::default() };
    assert!(!report.is_well());
    let text = report.text().replace(&address.to_string(), "otel");
    insta::assert_snapshot!(text, @r"
    traces to http://otel/v1/traces
      fail  takes traces: error sending request: client error (Connect): tcp connect error: Connection refused (os error 111)
            in `service.traces` and at the collector:
            > check `endpoint`, and that the collector runs with an OTLP/HTTP receiver
    0 ok, 0 warn, 1 fail
    ");
}
