//! For tests: a real S3 server, and a door before it that loses answers or refuses calls.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::objects::{Gateway, ObjectAddress};

/// How long a server may take until it serves.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The bucket that is there.
const BUCKET: &str = "herd";
const ACCESS_KEY: &str = "drover";
const SECRET_KEY: &str = "hush-hush-hush";

/// An S3 server on loopback over a temporary folder; it ends with this value.
pub struct ObjectServer {
    program: PathBuf,
    folder: tempfile::TempDir,
    port: u16,
    process: Option<Child>,
}

/// The program, where it is installed: `DROVER_TEST_VERSITYGW` names it.
fn program() -> Option<PathBuf> {
    let named = std::env::var_os("DROVER_TEST_VERSITYGW").map(PathBuf::from);
    let found = named.filter(|program| program.exists());
    assert!(
        found.is_some() || std::env::var_os("DROVER_TEST_PROGRAMS").is_none(),
        "versitygw is not installed"
    );
    found
}

impl ObjectServer {
    /// Starts a server with one bucket; none where it is not installed.
    pub fn start() -> Option<Self> {
        let program = program()?;
        let folder = tempfile::tempdir().unwrap();
        // A folder of the server's is a bucket.
        std::fs::create_dir_all(folder.path().join("data").join(BUCKET)).unwrap();
        for (name, text) in [("id", ACCESS_KEY), ("secret", SECRET_KEY), ("wrong", "not-it")] {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        let mut server = Self { program, folder, port: 0, process: None };
        let started = Instant::now();
        loop {
            server.port = super::free_ports(1)[0];
            if server.serves() {
                return Some(server);
            }
            // Somebody else took the port meanwhile.
            assert!(started.elapsed() < START_LIMIT, "versitygw: {}", server.log());
        }
    }

    /// Starts it again, and waits until it serves.
    pub fn restart(&mut self) {
        assert!(self.serves(), "versitygw: {}", self.log());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Starts it; false where its process ended.
    fn serves(&mut self) -> bool {
        let log = std::fs::File::options()
            .append(true)
            .create(true)
            .open(self.folder.path().join("log"))
            .unwrap();
        let mut command = Command::new(&self.program);
        command
            .args(["--quiet", "--keep-alive", "--port", &format!("127.0.0.1:{}", self.port)])
            .arg("posix")
            .arg(self.folder.path().join("data"))
            .env("ROOT_ACCESS_KEY_ID", ACCESS_KEY)
            .env("ROOT_SECRET_ACCESS_KEY", SECRET_KEY);
        let errors = log.try_clone().unwrap();
        let command = command.stdin(Stdio::null()).stdout(log).stderr(errors);
        self.process = Some(command.spawn().unwrap());
        let gateway = Gateway::new(&self.address("ready")).unwrap();
        let started = Instant::now();
        while !gateway.is_ready() {
            let process = self.process.as_mut().unwrap();
            if process.try_wait().unwrap().is_some() {
                return false;
            }
            assert!(started.elapsed() < START_LIMIT, "versitygw: {}", self.log());
        }
        true
    }

    /// Ends it without warning.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// The address of a journal beneath this prefix, as people write it.
    pub fn text(&self, prefix: &str) -> String {
        self.text_at(self.port, BUCKET, prefix, "secret")
    }

    fn text_at(&self, port: u16, bucket: &str, prefix: &str, secret: &str) -> String {
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        let (id, secret) = (file("id"), file(secret));
        format!(
            "s3://{bucket}/{prefix}?endpoint=http://127.0.0.1:{port}&accessKeyIdFile={id}\
             &secretAccessKeyFile={secret}"
        )
    }

    /// The address of a journal beneath this prefix, as the log takes it.
    pub fn address(&self, prefix: &str) -> ObjectAddress {
        self.text(prefix).parse().unwrap()
    }

    /// The same at another port.
    pub fn address_at(&self, port: u16, prefix: &str) -> ObjectAddress {
        self.text_at(port, BUCKET, prefix, "secret").parse().unwrap()
    }

    /// Makes an object so many days old.
    pub fn make_old(&self, object: &str, days: u64) {
        let path = self.folder.path().join("data").join(BUCKET).join(object);
        let then = std::time::SystemTime::now() - Duration::from_secs(days * 24 * 60 * 60);
        std::fs::File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
    }

    /// The same with a wrong secret.
    pub fn address_with_a_wrong_secret(&self) -> ObjectAddress {
        self.text_at(self.port, BUCKET, "x", "wrong").parse().unwrap()
    }

    /// The same in a bucket that is not there.
    pub fn address_of_no_bucket(&self) -> ObjectAddress {
        self.text_at(self.port, "nowhere", "x", "secret").parse().unwrap()
    }
}

impl Drop for ObjectServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a door does to the calls that pass through it.
#[derive(Default)]
struct Doings {
    swallows: AtomicBool,
    swallowed_puts: AtomicUsize,
    refusals: AtomicUsize,
    refused: AtomicUsize,
    ends: AtomicBool,
}

/// A door before a server. Each connection carries one call.
pub struct ObjectDoor {
    at: SocketAddr,
    doings: Arc<Doings>,
}

impl ObjectDoor {
    pub fn to(server: &ObjectServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let doings = Arc::new(Doings::default());
        let (door, port) = (Self { at, doings: Arc::clone(&doings) }, server.port);
        thread::spawn(move || {
            for caller in listener.incoming() {
                if doings.ends.load(Ordering::Acquire) {
                    return;
                }
                let (Ok(caller), doings) = (caller, Arc::clone(&doings)) else { return };
                thread::spawn(move || pass(caller, port, &doings));
            }
        });
        door
    }

    /// The address of a journal behind this door.
    pub fn address(&self, server: &ObjectServer, prefix: &str) -> ObjectAddress {
        server.text_at(self.at.port(), BUCKET, prefix, "secret").parse().unwrap()
    }

    /// Whether every answer is lost: the caller's connection ends instead.
    pub fn swallow_answers(&self, swallows: bool) {
        self.doings.swallows.store(swallows, Ordering::Release);
    }

    /// The answers to this many writes are lost.
    pub fn swallow_answers_to_writes(&self, count: usize) {
        self.doings.swallowed_puts.store(count, Ordering::Release);
    }

    /// This many calls are answered with 503.
    pub fn refuse(&self, count: usize) {
        self.doings.refusals.store(count, Ordering::Release);
    }

    /// How many calls were answered with 503.
    pub fn refused(&self) -> usize {
        self.doings.refused.load(Ordering::Acquire)
    }
}

impl Drop for ObjectDoor {
    fn drop(&mut self) {
        self.doings.ends.store(true, Ordering::Release);
        drop(TcpStream::connect(self.at));
    }
}

/// Whether a counter was above zero, and is one less.
fn take_one(counter: &AtomicUsize) -> bool {
    let less = |count: usize| count.checked_sub(1);
    counter.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
}

/// One call, and its answer.
fn pass(mut caller: TcpStream, port: u16, doings: &Doings) {
    let Some((head, body)) = read_call(&mut caller) else { return };
    if take_one(&doings.refusals) {
        doings.refused.fetch_add(1, Ordering::AcqRel);
        let text =
            "<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>";
        let answer = format!(
            "HTTP/1.1 503 Slow Down\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        );
        let _ended = caller.write_all(answer.as_bytes());
        return;
    }
    let mut lines: Vec<&str> = head.split("\r\n").collect();
    lines.retain(|line| !line.to_ascii_lowercase().starts_with("connection:"));
    lines.insert(1, "Connection: close");
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)) else { return };
    let sent = server.write_all(lines.join("\r\n").as_bytes());
    let mut answer = Vec::new();
    let answered =
        sent.and_then(|()| server.write_all(&body)).and_then(|()| server.read_to_end(&mut answer));
    let is_lost = doings.swallows.load(Ordering::Acquire)
        || head.starts_with("PUT") && take_one(&doings.swallowed_puts);
    if answered.is_ok() && !is_lost {
        let _ended = caller.write_all(&answer);
    }
    let _ended = caller.shutdown(Shutdown::Both);
}

/// The head of a call with the empty line behind it, and its body.
fn read_call(caller: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let (mut call, mut part) = (Vec::new(), [0; 16 << 10]);
    let end = loop {
        if let Some(end) = call.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        match caller.read(&mut part) {
            Ok(count @ 1..) => call.extend(&part[..count]),
            Ok(_) | Err(_) => return None,
        }
    };
    let mut body = call.split_off(end);
    let head = String::from_utf8(call).ok()?;
    let length = head
        .to_ascii_lowercase()
        .lines()
        .find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    while body.len() < length.unwrap_or(0) {
        match caller.read(&mut part) {
            Ok(count @ 1..) => body.extend(&part[..count]),
            Ok(_) | Err(_) => return None,
        }
    }
    Some((head, body))
}
