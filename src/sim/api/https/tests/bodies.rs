//! Answers that come before the body of their request was read, and heads beyond the limits: a
//! client that sends first and reads later gets what Proxmox gives it.
use super::*;

const PUT: &str = "PUT /api2/json/nodes/pve1/qemu/100/config HTTP/1.1\r\nHost: localhost";

/// Sends a request to its last byte, and then reads until the server closes.
async fn send_all_then_read(head: &str, body: &[u8]) -> String {
    let server = start().await;
    let mut stream = connect(&server, &server.ca_pem, "pve1").await.unwrap();
    stream.write_all(format!("{head}\r\n\r\n").as_bytes()).await.unwrap();
    for part in body.chunks(16 * 1024) {
        stream.write_all(part).await.unwrap();
        stream.flush().await.unwrap();
        // The server answers meanwhile, as it does to a client on another computer.
        tokio::task::yield_now().await;
    }
    let mut read = Vec::new();
    stream.read_to_end(&mut read).await.unwrap();
    String::from_utf8(read).unwrap()
}

// Invariant: an answer reaches a client that is still sending the body.

#[tokio::test]
async fn a_chunked_body_is_refused_with_an_answer_that_arrives() {
    let head = format!("{PUT}\r\n{TOKEN}\r\nTransfer-Encoding: chunked");
    let body = [b"100000\r\n".as_slice(), &vec![b'x'; 1 << 20], b"\r\n0\r\n\r\n"].concat();
    for _ in 0..5 {
        let answer = send_all_then_read(&head, &body).await;
        let refused = "HTTP/1.1 501 chunked transfer encoding not supported\r\n";
        assert!(answer.starts_with(refused), "{answer}");
        assert!(answer.ends_with("\r\n\r\nchunked transfer encoding not supported"), "{answer}");
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_with_an_answer_that_arrives() {
    let length = 4 << 20;
    let head = format!("{PUT}\r\n{TOKEN}\r\nContent-Length: {length}");
    for _ in 0..5 {
        let answer = send_all_then_read(&head, &vec![b'x'; length]).await;
        assert!(answer.starts_with("HTTP/1.1 501 for data too large\r\n"), "{answer}");
    }
}

#[tokio::test]
async fn a_client_that_never_stops_sending_is_cut_off() {
    let server = start().await;
    let mut stream = connect(&server, &server.ca_pem, "pve1").await.unwrap();
    let head = format!("{PUT}\r\n{TOKEN}\r\nTransfer-Encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let part = vec![b'x'; 1 << 20];
    let mut sent = 0_u64;
    while stream.write_all(&part).await.is_ok() && stream.flush().await.is_ok() {
        sent += 1 << 20;
        assert!(sent < 1 << 30, "nobody cuts it off");
    }
}

// Invariant: the line of a request can be long, and its headers have 8 KiB and 63 lines
// (book: proxmox, section 1).

#[tokio::test]
async fn a_long_query_is_a_query_like_any_other() {
    let server = start().await;
    for length in [9_000, 60_000] {
        let mut stream = connect(&server, &server.ca_pem, "pve1").await.unwrap();
        let line = format!("GET /api2/json/version?{} HTTP/1.1", "x".repeat(length));
        let head = format!("{line}\r\nHost: localhost\r\n{TOKEN}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut read = Vec::new();
        stream.read_to_end(&mut read).await.unwrap();
        assert!(read.starts_with(b"HTTP/1.1 400 Parameter verification failed.\r\n"), "{length}");
    }
}

#[tokio::test(start_paused = true)]
async fn headers_beyond_the_limits_get_no_answer_and_a_close_after_five_seconds() {
    let long = format!("X-Long: {}", "y".repeat(8_200));
    let many = vec!["X-Many: y"; 64].join("\r\n");
    for headers in [long, many] {
        let head = format!("GET /api2/json/version HTTP/1.1\r\n{TOKEN}\r\n{headers}");
        assert_eq!(over_a_pipe(&head).await, (String::new(), IDLE_TIMEOUT));
    }
    let few = vec!["X-Many: y"; 60].join("\r\n");
    let read = over_a_pipe(&format!("GET /api2/json/version HTTP/1.1\r\n{TOKEN}\r\n{few}")).await;
    assert!(read.0.starts_with("HTTP/1.1 200 OK\r\n"), "{}", read.0);
}

/// What the server sends until it closes, and after how long, by the paused clock.
async fn over_a_pipe(head: &str) -> (String, Duration) {
    let (mut client, server) = tokio::io::duplex(256 * 1024);
    let node_api = Arc::new(NodeApi { api: api(), node: "pve1".into() });
    let (_renewed, renewals) = watch::channel(());
    let permit = node_api.api.connections().acquire("pve1").await;
    tokio::spawn(async move { serve(node_api, TokioIo::new(server), (renewals, permit)).await });
    let started = Instant::now();
    client.write_all(format!("{head}\r\n\r\n").as_bytes()).await.unwrap();
    let mut read = Vec::new();
    client.read_to_end(&mut read).await.unwrap();
    (String::from_utf8(read).unwrap(), started.elapsed())
}
