//! Thousands of strangers on TCP, who know no token, against the service's own socket and memory.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;

use crate::harness::{Service, Site, note, world};
use crate::open::{HOOKED, Open};

/// How long the socket may take to answer, whatever happens on TCP.
const PROMPT: Duration = Duration::from_secs(1);
/// How much more memory than at rest the service may have had at any time.
const MORE_KIB: u64 = 100 * 1024;
/// Connections that send a byte now and then.
const SLOW: usize = 3_000;
/// Hooks of which nearly all of a mebibyte comes.
const HALVES: usize = 1_000;
const ANNOUNCED: usize = 1_048_000;
const SENT: usize = 1_040_000;

/// Raises how many files this process may have open, as far as it may, and gives how many that are.
fn many_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    setrlimit(Resource::Nofile, raised).unwrap();
    raised.current.unwrap_or(u64::MAX)
}

/// A service on TCP with a source `git` that takes webhooks; nobody is at its URL.
fn open() -> (tempfile::TempDir, crate::harness::Sim, Site, Open, Service) {
    let (dir, sim, site) = world();
    let (open, yaml) = Open::of(&site, &site.yaml(&sim, ""));
    site.write_secret("git", "a-token-of-git");
    let yaml = yaml.replace(
        "credentials:\n",
        &format!(
            "demand:\n  git: {{url: \"http://127.0.0.1:9\", credentialsId: git, kind: gitea, \
             {HOOKED}}}\ncredentials:\n  git: {{kind: apiToken, secretFile: \"{}/git\"}}\n",
            site.dir.path().display()
        ),
    );
    site.write_yaml(&yaml);
    let service = Service::start(&site);
    (dir, sim, site, open, service)
}

fn address(open: &Open) -> SocketAddr {
    open.url.strip_prefix("http://").unwrap().parse().unwrap()
}

/// One of the figures in KiB that the kernel has of a process's memory.
fn memory(service: &Service, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.child.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Asks over the socket, with the time it took.
fn ask_socket(site: &Site, path: &str) -> (String, Duration) {
    let began = Instant::now();
    let mut stream = UnixStream::connect(site.dir.path().join("drover.sock")).unwrap();
    stream.set_read_timeout(Some(10 * PROMPT)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: drover\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    (
        format!("{answer}{}", read.err().map(|error| error.to_string()).unwrap_or_default()),
        began.elapsed(),
    )
}

/// What the socket is asked answers at once, and a caller with a token on TCP is served too.
fn all_is_well(site: &Site, open: &Open, when: &str) -> Duration {
    let mut slowest = Duration::ZERO;
    for path in ["/healthz", "/v1/status"] {
        let (answer, took) = ask_socket(site, path);
        assert!(answer.starts_with("HTTP/1.1 200"), "{when}, {path}: {answer}");
        assert!(took < PROMPT, "{when}, {path}: {took:?}");
        slowest = slowest.max(took);
    }
    let token = std::fs::read_to_string(&open.token).unwrap();
    let (status, _) =
        ask(open, &format!("GET /v1/status HTTP/1.1\r\nauthorization: Bearer {token}"));
    assert_eq!(status, 200, "{when}");
    slowest
}

/// Asks over TCP with these lines of a head; status and body.
fn ask(open: &Open, head: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(address(open)).unwrap();
    stream.set_read_timeout(Some(10 * PROMPT)).unwrap();
    write!(stream, "{head}\r\nhost: drover\r\nconnection: close\r\n\r\n").unwrap();
    answer(&mut stream)
}

fn answer(stream: &mut TcpStream) -> (u16, Value) {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    (status.unwrap_or_default(), serde_json::from_str(body).unwrap_or_default())
}

/// Says what a stranger does, each in its turn: nothing, half a head, a head and a byte of a body.
fn begin(at: usize) -> &'static str {
    match at % 8 {
        0 => "",
        1 => "GET /healthz HTTP/1.1\r\nhost: dro",
        2 | 4 | 6 => {
            "POST /v1/hooks/nobody HTTP/1.1\r\nhost: drover\r\ncontent-length: 5000\r\n\r\nx"
        }
        _ => "POST /v1/call-in HTTP/1.1\r\nhost: drover\r\ncontent-length: 5000\r\n\r\n{",
    }
}

// Invariant: nothing on TCP keeps the socket waiting or takes the memory, token or no token.

#[test]
fn thousands_of_slow_strangers_and_half_hooks_starve_nobody() {
    let files = many_files();
    // Both ends of each connection need one, in two processes.
    let slow = SLOW.min(usize::try_from(files).unwrap().saturating_sub(500));
    let (_dir, _sim, site, open, service) = open();
    all_is_well(&site, &open, "at rest");
    let rest = memory(&service, "VmRSS");
    let mut slowest = Duration::ZERO;

    let mut strangers: Vec<TcpStream> = Vec::new();
    for at in 0..slow {
        let mut stream = TcpStream::connect(address(&open)).unwrap();
        // One that was cut already takes nothing, and is as good.
        let _ = stream.write_all(begin(at).as_bytes());
        strangers.push(stream);
        if at % 500 == 0 {
            slowest = slowest.max(all_is_well(&site, &open, "while strangers come"));
        }
    }
    for _ in 0..3 {
        for stream in &mut strangers {
            let _ = stream.write_all(b"x");
        }
        slowest = slowest.max(all_is_well(&site, &open, "while strangers dribble"));
    }
    assert!(site.cli(&["status"]).status.success());
    let of_slow = memory(&service, "VmHWM").saturating_sub(rest);
    drop(strangers);

    // Half of them to a source that is unknown, half signed as if for the one that is known.
    let signature = format!("x-gitea-signature: {}\r\n", "0".repeat(64));
    let body = vec![b'x'; SENT];
    let mut hooks = Vec::new();
    for at in 0..HALVES {
        let stream = TcpStream::connect(address(&open)).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        let (source, signed) = if at % 2 == 0 { ("nobody", "") } else { ("git", &*signature) };
        let head = format!(
            "POST /v1/hooks/{source} HTTP/1.1\r\nhost: drover\r\n{signed}\
             content-length: {ANNOUNCED}\r\n\r\n"
        );
        // What is refused is not taken to its end.
        let _ = (&stream).write_all(head.as_bytes()).and_then(|()| (&stream).write_all(&body));
        hooks.push(stream);
        if at % 200 == 0 {
            slowest = slowest.max(all_is_well(&site, &open, "while half hooks come"));
        }
    }
    slowest = slowest.max(all_is_well(&site, &open, "with half hooks"));
    let most = memory(&service, "VmHWM").saturating_sub(rest);
    drop(hooks);
    note(&format!(
        "{slow} slow strangers (of {files} files): {} MiB over rest, {HALVES} half hooks: {} MiB, \
         the socket answered within {slowest:?}",
        of_slow / 1024,
        most / 1024
    ));
    assert!(most < MORE_KIB, "{most} KiB over {rest} KiB");
}

// Invariant: what cannot become a hook is refused by its head, and the rest of it is not waited for.

#[test]
fn many_requests_sent_at_once_whose_answers_nobody_reads_take_no_memory() {
    let (_dir, _sim, site, open, service) = open();
    all_is_well(&site, &open, "at rest");
    let rest = memory(&service, "VmRSS");
    let many = "GET /openapi.json HTTP/1.1\r\nhost: drover\r\n\r\n".repeat(1_000);
    let mut strangers = Vec::new();
    for at in 0..100 {
        let mut stream = TcpStream::connect(address(&open)).unwrap();
        stream.set_nonblocking(true).unwrap();
        // As much as is taken.
        let _ = stream.write(many.as_bytes());
        strangers.push(stream);
        if at % 20 == 0 {
            all_is_well(&site, &open, "while requests pile up");
        }
    }
    all_is_well(&site, &open, "while nobody reads");
    let most = memory(&service, "VmHWM");
    assert!(most <= rest + MORE_KIB, "{most} KiB at most, {rest} KiB at rest");
    // Who reads gets all of them, one after another.
    let mut reader = TcpStream::connect(address(&open)).unwrap();
    reader
        .write_all("GET /healthz HTTP/1.1\r\nhost: drover\r\n\r\n".repeat(99).as_bytes())
        .unwrap();
    write!(reader, "GET /healthz HTTP/1.1\r\nhost: drover\r\nconnection: close\r\n\r\n").unwrap();
    let mut answers = String::new();
    reader.read_to_string(&mut answers).unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 100);
}

#[test]
fn a_hook_that_its_head_condemns_is_answered_before_its_body_comes() {
    let (_dir, _sim, _site, open, _service) = open();
    let signature = format!("x-gitea-signature: {}\r\n", "0".repeat(64));
    for (path, header, length, status) in [
        ("hooks/nobody", &*signature, 1000, 404),
        ("hooks/git", "", 1000, 401),
        ("hooks/git", "x-gitea-signature: 00\r\n", 1000, 401),
        ("hooks/git", &*signature, 1_048_577, 413),
        ("call-in", "", 65_537, 413),
        ("leases", "", 1000, 401),
        ("leases", "authorization: Bearer an-operators-token\r\n", 524_289, 413),
        ("reap", "authorization: Bearer an-operators-token\r\n", 1000, 403),
    ] {
        let mut stream = TcpStream::connect(address(&open)).unwrap();
        stream.set_read_timeout(Some(10 * PROMPT)).unwrap();
        write!(
            stream,
            "POST /v1/{path} HTTP/1.1\r\nhost: drover\r\n{header}content-length: {length}\r\n\r\nx"
        )
        .unwrap();
        let (seen, body) = answer(&mut stream);
        assert_eq!(seen, status, "{path} {header}: {body}");
        assert!(body["type"].as_str().unwrap().starts_with("urn:drover:problem:"), "{body}");
    }
    for _ in 0..30 {
        let _ = ask(&open, "POST /v1/hooks/git HTTP/1.1\r\ncontent-length: 0");
    }
    let (status, _) = ask(&open, "POST /v1/hooks/git HTTP/1.1\r\ncontent-length: 1000");
    assert_eq!(status, 429);
    let (status, _) = ask(&open, "POST /v1/call-in HTTP/1.1\r\ncontent-length: 1000");
    assert_eq!(status, 429);
}

// Invariant: a body that does not come is not waited for.

#[test]
fn a_body_that_dribbles_is_cut() {
    let (_dir, _sim, _site, open, _service) = open();
    let began = Instant::now();
    let mut stream = TcpStream::connect(address(&open)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "POST /v1/call-in HTTP/1.1\r\nhost: drover\r\ncontent-length: 5000\r\n\r\n{{")
        .unwrap();
    let (status, body) = answer(&mut stream);
    assert_eq!((status, body["type"].as_str()), (408, Some("urn:drover:problem:body-too-slow")));
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

// Invariant: a client that never says what it wants is not waited for, also after it had an answer.

#[test]
fn a_head_that_does_not_come_is_cut_the_second_one_too() {
    let (_dir, _sim, _site, open, _service) = open();
    let mut first = TcpStream::connect(address(&open)).unwrap();
    let mut second = TcpStream::connect(address(&open)).unwrap();
    first.write_all(b"GET /healthz HTTP/1.1\r\nho").unwrap();
    second.write_all(b"GET /healthz HTTP/1.1\r\nhost: drover\r\n\r\nGET /hea").unwrap();
    for mut stream in [first, second] {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        assert!(ended.is_ok() || ended.unwrap_err().kind() == std::io::ErrorKind::ConnectionReset);
    }
}

// Invariant: wrong tokens are not tried at full speed, and do not lock out who had the right one.

#[test]
fn wrong_tokens_are_throttled_and_a_right_one_of_before_goes_on() {
    let (_dir, _sim, site, open, _service) = open();
    let with = |token: &str| {
        ask(&open, &format!("GET /v1/status HTTP/1.1\r\nauthorization: Bearer {token}")).0
    };
    assert_eq!(with("an-operators-token"), 200);
    let wrong: Vec<u16> = (0..40).map(|n| with(&format!("guess-{n}"))).collect();
    assert_eq!((wrong[0], wrong[39]), (401, 429), "{wrong:?}");
    assert_eq!(with("an-operators-token"), 200);
    assert_eq!(ask(&open, "GET /healthz HTTP/1.1").0, 200);
    assert!(site.cli(&["status"]).status.success(), "the socket is another peer");
}

// Invariant: outside of the unit too the service can have as many connections as it may.

#[test]
fn the_service_raises_how_many_files_it_may_have() {
    let (_dir, _sim, site) = world();
    let mut service = Service::spawn_under(
        &["sh", "-c", "ulimit -Sn 256; exec \"$@\"", "sh"],
        &site,
        std::process::Stdio::inherit(),
    );
    service.hear("READY=1");
    let limits = format!("/proc/{}/limits", service.child.0.id());
    let limits = std::fs::read_to_string(limits).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let figures: Vec<_> = line.split_whitespace().collect();
    assert_eq!(figures[3], figures[4], "{line}");
}
