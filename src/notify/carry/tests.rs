#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use drover_model::time::WallTime;

use super::super::mind;
use super::super::settings::{Format, Mail, MailTls, Settings, Wanted, Webhook};
use super::*;

/// A side that serves one connection so; the first part of its address is `host:port`.
fn serve(side: impl FnOnce(TcpStream) + Send + 'static) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (address, std::thread::spawn(move || side(listener.accept().unwrap().0)))
}

/// Waits for a side without keeping the runtime, which closes the connection.
async fn ended(side: JoinHandle<()>) {
    tokio::task::spawn_blocking(|| side.join().unwrap()).await.unwrap();
}

/// Reads until the other side closes.
fn wait_for_the_end(mut line: &TcpStream) {
    let mut rest = Vec::new();
    // A side that gives up may reset the connection.
    let _ = line.read_to_end(&mut rest);
}

/// Answers a call with this head and body, and keeps the connection open. So many bytes of the body never come.
fn answers(head: &str, body: &str, missing: usize) -> (String, JoinHandle<()>) {
    let length = body.len() + missing;
    let answer = format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\n\r\n{body}");
    serve(move |line| {
        let mut call = BufReader::new(&line);
        let mut text = String::new();
        while text != "\r\n" {
            text.clear();
            call.read_line(&mut text).unwrap();
        }
        (&line).write_all(answer.as_bytes()).unwrap();
        wait_for_the_end(&line);
    })
}

fn webhook(url: &str) -> Via {
    Via::Webhook(Webhook {
        url: Secret::new(url.to_owned()),
        format: Format::Drover,
        secret: None,
        tls: Tls::System,
    })
}

async fn send(via: Via) -> Result<Delivered, Failure> {
    let channel = Channel { name: "ops".to_owned(), wanted: Wanted::default(), via };
    let message = mind::test_message(&Settings::default(), "ops", "ops1", WallTime(0));
    Network.send(&channel, &message).await
}

// Invariant: a message that was taken counts as taken, whatever the other side does after that.

#[tokio::test]
async fn a_web_server_that_takes_a_message_and_does_not_end_its_answer_took_it() {
    let (address, side) = answers("200 OK", "thanks", 100);
    let delivered = send(webhook(&format!("http://{address}/x"))).await.unwrap();
    assert_eq!(delivered.answer, "200 OK: thanks");
    ended(side).await;
}

#[tokio::test]
async fn a_refusal_is_known_by_its_head() {
    let (address, side) = answers("429 Too Many Requests\r\nretry-after: 7", "later", 100);
    let failure = send(webhook(&format!("http://{address}/x"))).await.unwrap_err();
    assert_eq!(failure.text, "the server answered 429 Too Many Requests: later");
    assert_eq!((failure.retry_after, failure.is_final), (Some(Duration::from_secs(7)), false));
    ended(side).await;
}

#[tokio::test]
async fn a_mail_server_that_takes_a_mail_and_does_not_answer_quit_took_it() {
    let (address, side) = serve(|line| {
        let mut lines = BufReader::new(&line).lines().map(Result::unwrap);
        let say = |text: &str| (&line).write_all(format!("{text}\r\n").as_bytes()).unwrap();
        say("220 mail.lan ESMTP");
        while let Some(command) = lines.next() {
            match command.split([' ', ':']).next().unwrap() {
                "DATA" => {
                    say("354 go on");
                    lines.by_ref().take_while(|text| text.as_str() != ".").for_each(drop);
                    say("250 queued as 1");
                }
                // It never answers that.
                "QUIT" => break,
                _ => say("250 ok"),
            }
        }
        drop(lines);
        wait_for_the_end(&line);
    });
    let (host, port) = address.split_once(':').unwrap();
    let mail = Mail {
        host: host.to_owned(),
        port: port.parse().unwrap(),
        security: MailTls::None,
        tls: Tls::System,
        login: None,
        from: "drover@example.com".parse().unwrap(),
        to: vec!["ops@example.com".parse().unwrap()],
    };
    let delivered = send(Via::Mail(Box::new(mail))).await.unwrap();
    assert_eq!((delivered.answer.as_str(), delivered.refused), ("250 queued as 1", None));
    ended(side).await;
}

// Invariant: drover waits as long as it is asked to, in each form that HTTP has for that.

#[test]
fn a_wait_is_read_as_seconds_and_as_a_date() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_946_400);
    let wait = |text: &str| wait_asked(text, now).map(|wait| wait.as_secs());
    assert_eq!(wait(" 7 "), Some(7));
    assert_eq!(wait("99999999999999999999"), Some(u64::MAX));
    assert_eq!(wait("Sun, 29 Nov 2026 10:00:30 GMT"), Some(30));
    assert_eq!(wait("Sun, 29 Nov 2026 09:00:00 GMT"), Some(0));
    assert!(wait("Fri, 31 Dec 9999 23:59:59 GMT").unwrap() > 3600);
    for none in ["", "soon", "-1"] {
        assert_eq!(wait(none), None, "{none}");
    }
}

// Invariant: what a server repeats of the secrets of a channel is hidden, also where the text is cut.

#[test]
fn the_parts_of_a_url_that_let_others_send_are_secrets_and_short_words_are_not() {
    assert_eq!(
        parts("https://h.lan/hooks/T0000/abcdefgh?key=12345678&v=2"),
        [
            "/hooks/T0000/abcdefgh?key=12345678&v=2",
            "/hooks/T0000/abcdefgh",
            "key=12345678&v=2",
            "abcdefgh",
            "12345678"
        ]
    );
    assert_eq!(parts("https://h.lan/x"), Vec::<String>::new());
}

#[tokio::test]
async fn a_secret_that_a_server_repeats_is_hidden_wherever_its_text_is_cut() {
    let secret = "0123456789abcdef0123456789abcdef";
    let head = "the server answered 404 Not Found: ".len();
    for before in [200, 280, 299, SHOWN_CHARS - head - 16, SHOWN_CHARS] {
        let body = format!("{}{secret} {}", "x".repeat(before), "y".repeat(SHOWN_CHARS));
        let (address, side) = answers("404 Not Found", &body, 0);
        let failure = send(webhook(&format!("http://{address}/{secret}"))).await.unwrap_err();
        assert!(!failure.text.contains("0123"), "{before}: {failure}");
        assert_eq!(failure.text.chars().count(), SHOWN_CHARS);
        ended(side).await;
    }
}

#[test]
fn a_text_cannot_steer_what_shows_it() {
    assert_eq!(cut("a\n\u{1b}[31mb\u{202e}c\u{2066}d", 100), "a  [31mb c d");
}
