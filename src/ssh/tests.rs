#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::error::Error as _;
use std::time::Duration;

use bytes::Bytes;
use secrecy::{ExposeSecret, SecretString};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::testing::{TestServer, key, target};
use super::*;

const SOON: Duration = Duration::from_secs(20);

fn limits(output_bytes_max: usize, keep: Keep) -> Limits {
    Limits { time: SOON, output_bytes_max, keep }
}

fn pinned(server: &TestServer) -> HostKeyPolicy {
    HostKeyPolicy::Pinned(vec![server.host_key.public_line("")])
}

async fn log_in(server: &TestServer) -> Session {
    connect(&target(server.port), &key(1), &pinned(server), SOON).await.unwrap()
}

async fn serve() -> TestServer {
    TestServer::start(0, &key(1), key(9)).await
}

// Invariant: only the pinned host key is accepted, and each way to fail is kept apart.

#[tokio::test]
async fn a_pinned_host_key_lets_in_and_is_reported() {
    let server = serve().await;
    let session = log_in(&server).await;
    assert_eq!(session.host_key().line(), server.host_key.public_line(""));
    session.close().await;
}

#[tokio::test]
async fn of_several_host_keys_the_known_one_is_asked_for() {
    let ecdsa = PrivateKey::parse("ecdsa", &SecretString::from(ECDSA), None).unwrap();
    let server = TestServer::start_with(0, &key(1), key(9), Some(&ecdsa)).await;
    for known in [&ecdsa, &key(9)] {
        let policy = HostKeyPolicy::Pinned(vec![known.public_line("")]);
        let session = connect(&target(server.port), &key(1), &policy, SOON).await.unwrap();
        assert_eq!(session.host_key().fingerprint(), known.fingerprint());
    }
}

#[tokio::test]
async fn any_host_key_is_learnt_where_none_is_known() {
    let server = serve().await;
    let policy = HostKeyPolicy::TrustOnFirst;
    let session = connect(&target(server.port), &key(1), &policy, SOON).await.unwrap();
    assert_eq!(session.host_key().fingerprint(), server.host_key.fingerprint());
}

#[tokio::test]
async fn an_impostor_is_named_before_any_login() {
    let server = serve().await;
    let policy = HostKeyPolicy::Pinned(vec![key(8).public_line("known")]);
    let error = connect(&target(server.port), &key(1), &policy, SOON).await.unwrap_err();
    let ConnectError::Impostor { seen, expected, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*seen, server.host_key.fingerprint());
    assert_eq!(*expected, [key(8).fingerprint()]);
    assert!(!error.is_passing());
    assert_eq!(*server.logins.lock().unwrap(), 0);
}

#[tokio::test]
async fn a_host_key_of_another_kind_is_an_impostor_too() {
    let server = serve().await;
    let ecdsa = PrivateKey::parse("ecdsa", &SecretString::from(ECDSA), None).unwrap();
    let policy = HostKeyPolicy::Pinned(vec![ecdsa.public_line("")]);
    let error = connect(&target(server.port), &key(1), &policy, SOON).await.unwrap_err();
    assert!(matches!(error, ConnectError::Impostor { .. }), "{error:?}");
}

#[tokio::test]
async fn a_rejected_key_fails_at_once_with_the_reason() {
    let server = serve().await;
    let (deadline, mut tries) = (Instant::now() + SOON, 0);
    let error = connect_until(
        deadline,
        &target(server.port),
        &key(2),
        &pinned(&server),
        Backoff::default(),
        |_| tries += 1,
    )
    .await
    .unwrap_err();
    assert!(matches!(error, ConnectError::KeyRejected { .. }), "{error:?}");
    assert!(error.to_string().contains(&key(2).fingerprint()));
    assert_eq!((tries, *server.logins.lock().unwrap()), (0, 1));
}

#[tokio::test]
async fn a_silent_server_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let limit = Duration::from_millis(50);
    let policy = HostKeyPolicy::TrustOnFirst;
    let error = connect(&target(port), &key(1), &policy, limit).await.unwrap_err();
    assert!(matches!(error, ConnectError::TimedOut { .. }), "{error:?}");
    assert!(error.is_passing());
}

#[tokio::test]
async fn a_server_that_speaks_something_else_is_not_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let policy = HostKeyPolicy::TrustOnFirst;
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let line = [b'x'; 64 * 1024];
        let _cut = tokio::io::AsyncWriteExt::write_all(&mut stream, &line).await;
        stream
    };
    let (to, login) = (target(port), key(1));
    let attempt = connect(&to, &login, &policy, SOON);
    let (_stream, error) = tokio::join!(serve, attempt);
    let error = error.unwrap_err();
    assert!(matches!(error, ConnectError::Protocol { .. }), "{error:?}");
    assert!(error.source().is_some());
}

#[tokio::test]
async fn a_bad_pin_is_the_operators_fault_not_the_guests() {
    let policy = HostKeyPolicy::Pinned(vec!["nonsense".to_owned()]);
    let error = connect(&target(1), &key(1), &policy, SOON).await.unwrap_err();
    assert!(matches!(error, ConnectError::BadPin { .. }), "{error:?}");
}

// Invariant: a login to a booting guest is tried until it succeeds or the deadline passes.

#[tokio::test]
async fn attempts_go_on_until_the_server_appears() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let (refused, mut heard) = mpsc::channel(8);
    let backoff = Backoff { first: Duration::from_millis(10), ..Backoff::default() };
    let (to, policy, login) = (target(port), HostKeyPolicy::TrustOnFirst, key(1));
    let attempt = connect_until(Instant::now() + SOON, &to, &login, &policy, backoff, |error| {
        assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
        let _full = refused.try_send(());
    });
    let appear = async {
        heard.recv().await.unwrap();
        TestServer::start(port, &key(1), key(9)).await
    };
    let (session, _server) = tokio::join!(attempt, appear);
    assert_eq!(session.unwrap().host_key().line(), key(9).public_line(""));
}

#[tokio::test]
async fn the_last_error_is_reported_at_the_deadline() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let deadline = Instant::now() + Duration::from_millis(50);
    let backoff = Backoff { first: Duration::from_millis(5), ..Backoff::default() };
    let policy = HostKeyPolicy::TrustOnFirst;
    let error = connect_until(deadline, &target(port), &key(1), &policy, backoff, |_| {})
        .await
        .unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
}

// Invariant: the end and output of a command are reported exactly, and bounded.

#[tokio::test]
async fn exit_status_and_both_streams_come_back() {
    let server = serve().await;
    let session = log_in(&server).await;
    let run = session.exec("echo out; echo err >&2; exit 7", None, limits(100, Keep::First), None);
    let result = run.await.unwrap();
    let expected = ExecResult {
        exit: Some(7),
        stdout: b"out\n".to_vec(),
        stderr: b"err\n".to_vec(),
        ..ExecResult::default()
    };
    assert_eq!(result, expected);
}

#[tokio::test]
async fn output_past_the_limit_is_dropped_and_said_so() {
    let server = serve().await;
    let session = log_in(&server).await;
    let command = "seq 1 300000; echo end";
    let first = session.exec(command, None, limits(6, Keep::First), None).await.unwrap();
    assert_eq!((first.stdout.as_slice(), first.truncated), (b"1\n2\n3\n".as_slice(), true));
    let last = session.exec(command, None, limits(11, Keep::Last), None).await.unwrap();
    assert_eq!(last.stdout, b"300000\nend\n");
    assert_eq!((last.exit, last.truncated), (Some(0), true));
}

#[tokio::test]
async fn output_streams_while_the_command_runs() {
    let server = serve().await;
    let session = log_in(&server).await;
    let (sink, mut pieces) = mpsc::channel(1);
    let fifo = server.dir.path().join("go");
    let run = session.exec(
        "mkfifo go; echo first; read -r word < go; echo $word",
        None,
        limits(100, Keep::First),
        Some(sink),
    );
    let follow = async {
        // The command waits for this answer to its first line.
        let first = pieces.recv().await.unwrap();
        tokio::fs::write(&fifo, "second\n").await.unwrap();
        (first, pieces.recv().await.unwrap())
    };
    let (result, (first, second)) = tokio::join!(run, follow);
    assert_eq!(first, Output::Stdout(Bytes::from("first\n")));
    assert_eq!(second, Output::Stdout(Bytes::from("second\n")));
    assert!(result.unwrap().succeeded());
}

#[tokio::test]
async fn a_command_that_hangs_is_cut_with_what_it_said() {
    let server = serve().await;
    let session = log_in(&server).await;
    let time = Duration::from_millis(300);
    let hang = Limits { time, output_bytes_max: 100, keep: Keep::First };
    let error = session.exec("echo so far; exec sleep 100", None, hang, None).await.unwrap_err();
    let ExecError::TimedOut { partial, .. } = error else { panic!("{error:?}") };
    assert_eq!(partial.stdout, b"so far\n");
    let next = session.exec("true", None, limits(1, Keep::First), None).await.unwrap();
    assert!(next.succeeded());
}

#[tokio::test]
async fn a_refused_command_is_distinguished_from_a_failed_one() {
    let server = serve().await;
    let session = log_in(&server).await;
    let error = session.exec("refuse me", None, limits(1, Keep::First), None).await.unwrap_err();
    assert!(matches!(error, ExecError::Refused), "{error:?}");
}

#[tokio::test]
async fn a_command_that_never_reads_its_input_still_ends() {
    let server = serve().await;
    let session = log_in(&server).await;
    let input = Bytes::from(vec![0; 8 << 20]);
    let result = session.exec("exit 3", Some(input), limits(1, Keep::First), None).await.unwrap();
    assert_eq!(result.exit, Some(3));
}

// Invariant: an uploaded file is complete, has its mode, and replaces the old one in one step.

#[tokio::test]
async fn a_big_upload_arrives_whole() {
    let server = serve().await;
    let session = log_in(&server).await;
    let content: Vec<u8> = (0..8_u32 << 18).flat_map(u32::to_le_bytes).collect();
    let name = "it's big";
    session.upload(name, Bytes::from(content.clone()), 0o640, SOON).await.unwrap();
    let path = server.dir.path().join(name);
    assert!(std::fs::read(&path).unwrap() == content);
    let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
    assert_eq!(mode & 0o7777, 0o640);
    session.upload(name, Bytes::new(), 0o600, SOON).await.unwrap();
    assert!(std::fs::read(&path).unwrap().is_empty());
    assert_eq!(std::fs::read_dir(server.dir.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn an_upload_that_fails_says_why() {
    let server = serve().await;
    let session = log_in(&server).await;
    let error = session.upload("no/such/dir", Bytes::from("x"), 0o600, SOON).await.unwrap_err();
    assert!(
        error.to_string().contains("No such file") || error.to_string().contains("nonexistent")
    );
}

#[tokio::test]
async fn a_cut_upload_leaves_the_old_file() {
    let server = serve().await;
    let session = log_in(&server).await;
    session.upload("f", Bytes::from("old"), 0o600, SOON).await.unwrap();
    let command = upload_command("f", 10, 0o600);
    let cut = Some(Bytes::from("half"));
    let result = session.exec(&command, cut, limits(1000, Keep::Last), None).await.unwrap();
    assert_eq!(result.exit, Some(73));
    assert_eq!(std::fs::read(server.dir.path().join("f")).unwrap(), b"old");
}

#[test]
fn an_upload_command_is_known_again_and_nothing_beside_it() {
    let command = upload_command("agent/job.sh", 12, 0o755);
    assert_eq!(upload_target(&command), Some("agent/job.sh"));
    assert_eq!(upload_target(&format!("{command}; rm -rf /")), None);
    assert_eq!(upload_target(&upload_command("a b", 1, 0o600)), None);
    assert_eq!(upload_target("p=x; reboot n=1 m=0600;"), None);
}

// Invariant: a key file is read, or refused with the reason and what to do.

const ECDSA: &str = include_str!("testdata/ecdsa.pem");
const LOCKED: &str = include_str!("testdata/locked.pem");
const RSA: &str = include_str!("testdata/rsa.pem");
const PKCS8: &str = include_str!("testdata/pkcs8.pem");

fn parse(text: &str, passphrase: Option<&str>) -> Result<PrivateKey, KeyError> {
    let passphrase = passphrase.map(SecretString::from);
    PrivateKey::parse("id_test", &SecretString::from(text), passphrase.as_ref())
}

#[test]
fn keys_of_the_known_kinds_are_read() {
    assert!(parse(ECDSA, None).unwrap().public_line("me").starts_with("ecdsa-sha2-nistp256 AAAA"));
    let ed25519 = key(1).to_openssh().unwrap();
    let read = parse(ed25519.expose_secret(), None).unwrap();
    assert_eq!(read.public_line("drover"), format!("{} drover", key(1).public().line()));
    assert_eq!(PublicKey::parse(&read.public_line("x")).unwrap(), key(1).public());
    assert!(parse(PKCS8, None).unwrap().public_line("").starts_with("ssh-ed25519 AAAA"));
}

#[test]
fn an_encrypted_key_opens_with_its_passphrase_only() {
    let open = parse(LOCKED, Some("open sesame")).unwrap();
    assert_eq!(open.fingerprint(), "SHA256:R7+339lzR0YMQ1m7OE4dQ+vEPYirBhk96cJxfKlBdlY");
    assert!(matches!(parse(LOCKED, None), Err(KeyError::Encrypted { .. })));
    assert!(matches!(parse(LOCKED, Some("shut")), Err(KeyError::WrongPassphrase { .. })));
}

#[tokio::test]
async fn an_encrypted_key_logs_in() {
    let open = parse(LOCKED, Some("open sesame")).unwrap();
    let server = TestServer::start(0, &open, key(9)).await;
    connect(&target(server.port), &open, &pinned(&server), SOON).await.unwrap();
}

#[test]
fn rsa_keys_are_refused_by_name() {
    let old_form = "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n";
    for text in [RSA, old_form] {
        let error = parse(text, None).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("id_test") && text.contains("ssh-rsa"), "{text}");
        assert!(error.remedy("x").contains("ssh-keygen -t ed25519"));
    }
}

#[test]
fn files_that_hold_no_key_are_kept_apart() {
    assert!(matches!(parse("hello", None), Err(KeyError::NotAKey { .. })));
    assert!(matches!(parse(&key(1).public_line(""), None), Err(KeyError::NotAKey { .. })));
    let whole = key(1).to_openssh().unwrap();
    let cut = whole.expose_secret().replacen("AAAA", "", 1);
    assert!(matches!(parse(&cut, None), Err(KeyError::Damaged { .. })));
    let missing = PrivateKey::load(std::path::Path::new("/nonexistent/id"), None).unwrap_err();
    assert!(missing.to_string().contains("/nonexistent/id"));
}

#[test]
fn debug_output_holds_no_secret() {
    assert_eq!(format!("{:?}", key(1)), format!("PrivateKey({})", key(1).fingerprint()));
}

// Invariant: a terminal has the size it was given last, and its end is known with the cause.

/// Reads what a terminal shows until it has this.
async fn shows(output: &mut mpsc::Receiver<TerminalOutput>, wanted: &str) {
    let mut seen = String::new();
    while !seen.contains(wanted) {
        match tokio::time::timeout(SOON, output.recv()).await.unwrap() {
            Some(TerminalOutput::Bytes(bytes)) => seen += &String::from_utf8_lossy(&bytes),
            other => panic!("{other:?} after `{seen}`"),
        }
    }
}

#[tokio::test]
async fn a_terminal_takes_keys_and_sizes_and_ends_with_the_status_of_its_shell() {
    let server = serve().await;
    let session = log_in(&server).await;
    let terminal = session.terminal(TerminalSize { columns: 90, rows: 30 }, SOON).await.unwrap();
    let (keys, input) = mpsc::channel(4);
    let (sink, mut output) = mpsc::channel(4);
    let follow = async {
        shows(&mut output, "xterm-256color 90x30").await;
        keys.send(TerminalInput::Bytes(Bytes::from("hello\n"))).await.unwrap();
        shows(&mut output, "hello!").await;
        let size = TerminalSize { columns: 120, rows: 40 };
        keys.send(TerminalInput::Size(size)).await.unwrap();
        shows(&mut output, "120x40").await;
        keys.send(TerminalInput::Bytes(Bytes::from("exit\n"))).await.unwrap();
    };
    let (end, ()) = tokio::join!(terminal.run(input, &sink), follow);
    assert_eq!(end, TerminalEnd::Exited(Some(7)));
}

#[tokio::test]
async fn a_terminal_is_closed_by_its_caller_lost_with_its_guest_and_refused_where_there_is_none() {
    let server = serve().await;
    let session = log_in(&server).await;
    let size = TerminalSize { columns: 80, rows: 24 };
    let terminal = session.terminal(size, SOON).await.unwrap();
    let (keys, input) = mpsc::channel(4);
    let (sink, _output) = mpsc::channel(4);
    drop(keys);
    assert_eq!(terminal.run(input, &sink).await, TerminalEnd::Closed);

    // Nobody shows it any more, and its guest says nothing.
    let terminal = session.terminal(size, SOON).await.unwrap();
    let (_keys, input) = mpsc::channel(4);
    let (unread, mut shown) = mpsc::channel(4);
    let follow = async {
        shows(&mut shown, "80x24").await;
        drop(shown);
    };
    let run = tokio::time::timeout(SOON, terminal.run(input, &unread));
    let (end, ()) = tokio::join!(run, follow);
    assert_eq!(end.unwrap(), TerminalEnd::Closed);

    std::fs::write(server.dir.path().join("no-terminal"), "").unwrap();
    let refused = session.terminal(size, SOON).await.unwrap_err();
    assert!(matches!(refused, ExecError::Refused), "{refused:?}");

    std::fs::remove_file(server.dir.path().join("no-terminal")).unwrap();
    let terminal = session.terminal(size, SOON).await.unwrap();
    let (keys, input) = mpsc::channel(4);
    keys.send(TerminalInput::Bytes(Bytes::from("vanish\n"))).await.unwrap();
    assert_eq!(terminal.run(input, &sink).await, TerminalEnd::Lost);
}
