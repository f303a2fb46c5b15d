//! For tests: members of a real etcd cluster, and a door before one that swallows its answers; the
//! same for object stores in `objects.rs`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod objects;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::etcd::{EtcdAddress, Gateway};
pub use objects::{ObjectDoor, ObjectServer};

/// How long a cluster may take to elect its leader.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Members on loopback; they end with this value.
pub struct Cluster {
    program: PathBuf,
    folder: tempfile::TempDir,
    /// Where the files of TLS are; none where it has none.
    certificates: Option<PathBuf>,
    members: Vec<Member>,
}

struct Member {
    client: u16,
    peer: u16,
    process: Option<Child>,
}

/// The program, where it is installed: `DROVER_TEST_ETCD` names it.
fn program() -> Option<PathBuf> {
    let named = std::env::var_os("DROVER_TEST_ETCD").map(PathBuf::from);
    let found = named.filter(|program| program.exists());
    assert!(
        found.is_some() || std::env::var_os("DROVER_TEST_PROGRAMS").is_none(),
        "etcd is not installed"
    );
    found
}

/// So many ports that nobody listens on, each another one.
fn free_ports(count: usize) -> Vec<u16> {
    // All are held until the last is found: a port that is let go may be found again.
    let bind = |_| TcpListener::bind("127.0.0.1:0").unwrap();
    let held: Vec<TcpListener> = (0..count).map(bind).collect();
    held.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

impl Cluster {
    /// Starts so many members; none where etcd is not installed.
    pub fn start(count: usize) -> Option<Self> {
        Self::start_with(count, None)
    }

    /// The same where callers need a certificate: the folder has `ca.pem`, `server.pem` and `client.pem`, and
    /// their keys `server.key` and `client.key`.
    pub fn start_with(count: usize, certificates: Option<PathBuf>) -> Option<Self> {
        let program = program()?;
        let started = Instant::now();
        loop {
            let folder = tempfile::tempdir().unwrap();
            let member = |ports: &[u16]| Member { client: ports[0], peer: ports[1], process: None };
            let members = free_ports(2 * count).chunks(2).map(member).collect();
            let (program, certificates) = (program.clone(), certificates.clone());
            let mut cluster = Self { program, folder, certificates, members };
            for number in 0..count {
                cluster.launch(number);
            }
            if cluster.serves() {
                return Some(cluster);
            }
            // Somebody else took one of its ports meanwhile.
            assert!(started.elapsed() < START_LIMIT, "etcd: {}", cluster.log());
        }
    }

    fn launch(&mut self, number: usize) {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let all: Vec<_> = (0..).zip(&self.members).collect();
        let all: Vec<_> =
            all.into_iter().map(|(at, one): (u32, _)| format!("m{at}={}", url(one.peer))).collect();
        let member = &mut self.members[number];
        let (mut client, peer) = (url(member.client), url(member.peer));
        if self.certificates.is_some() {
            client = client.replace("http:", "https:");
        }
        let data = self.folder.path().join(format!("m{number}"));
        let log = std::fs::File::options()
            .append(true)
            .create(true)
            .open(self.folder.path().join(format!("m{number}.log")))
            .unwrap();
        let arguments = [
            ("--name", format!("m{number}")),
            ("--data-dir", data.display().to_string()),
            ("--listen-client-urls", client.clone()),
            ("--advertise-client-urls", client),
            ("--listen-peer-urls", peer.clone()),
            ("--initial-advertise-peer-urls", peer),
            ("--initial-cluster", all.join(",")),
            // The members share a small machine with other tests.
            ("--heartbeat-interval", "100".to_owned()),
            ("--election-timeout", "1000".to_owned()),
        ];
        let mut command = Command::new(&self.program);
        for (name, value) in arguments {
            command.arg(name).arg(value);
        }
        if let Some(folder) = &self.certificates {
            command.arg("--client-cert-auth");
            for (name, file) in [
                ("trusted-ca-file", "ca.pem"),
                ("cert-file", "server.pem"),
                ("key-file", "server.key"),
            ] {
                command.arg(format!("--{name}")).arg(folder.join(file));
            }
        }
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        member.process = Some(command.spawn().unwrap());
    }

    /// Waits until the cluster has a leader; false where a member's process ended.
    fn serves(&mut self) -> bool {
        let ready =
            |this: &Self| Gateway::new(&this.address("ready")).unwrap().get("ready").is_ok();
        let started = Instant::now();
        while !ready(self) {
            let mut running = self.members.iter_mut().filter_map(|member| member.process.as_mut());
            if running.any(|process| process.try_wait().unwrap().is_some()) {
                return false;
            }
            assert!(started.elapsed() < START_LIMIT, "etcd: {}", self.log());
        }
        true
    }

    fn log(&self) -> String {
        let read = |name: &str| std::fs::read_to_string(self.folder.path().join(name));
        read("m0.log").unwrap_or_default()
    }

    /// Ends a member without warning.
    pub fn kill(&mut self, number: usize) {
        if let Some(mut process) = self.members[number].process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Starts a member again, and waits until the cluster serves.
    pub fn restart(&mut self, number: usize) {
        self.launch(number);
        let running = self.members.iter().filter(|member| member.process.is_some()).count();
        if running > self.members.len() / 2 {
            assert!(self.serves(), "etcd: {}", self.log());
        }
    }

    fn hosts(&self) -> String {
        let hosts: Vec<_> =
            self.members.iter().map(|one| format!("127.0.0.1:{}", one.client)).collect();
        hosts.join(",")
    }

    /// The address of a journal beneath this prefix, as people write it.
    pub fn text(&self, prefix: &str) -> String {
        let Some(folder) = &self.certificates else {
            return format!("etcd://{}/{prefix}", self.hosts());
        };
        let file = |name: &str| folder.join(name).display().to_string();
        let (authority, certificate, key) =
            (file("ca.pem"), file("client.pem"), file("client.key"));
        format!(
            "etcds://{}/{prefix}?caFile={authority}&certFile={certificate}&keyFile={key}",
            self.hosts()
        )
    }

    /// The address of a journal beneath this prefix, as the log takes it.
    pub fn address(&self, prefix: &str) -> EtcdAddress {
        self.text(prefix).parse().unwrap()
    }

    /// The same, for a user.
    pub fn address_as(&self, prefix: &str, user: &str, password: &str) -> EtcdAddress {
        let path = self.folder.path().join(format!("password-{password}"));
        std::fs::write(&path, password).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, mode).unwrap();
        let path = path.display();
        let text = format!("{}?user={user}&passwordFile={path}", self.text(prefix));
        text.parse().unwrap()
    }

    /// From here on every call needs this login.
    pub fn require_login(&self, user: &str, password: &str) {
        let gateway = Gateway::new(&self.address("admin")).unwrap();
        gateway.administer("auth/user/add", json!({ "name": user, "password": password }));
        gateway.administer("auth/role/add", json!({ "name": "root" }));
        gateway.administer("auth/user/grant", json!({ "user": user, "role": "root" }));
        gateway.administer("auth/enable", json!({}));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for number in 0..self.members.len() {
            self.kill(number);
        }
    }
}

/// A door before the first member that lets calls through, and swallows answers while a test wants it.
pub struct Door {
    at: SocketAddr,
    swallows: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
}

impl Door {
    pub fn to(cluster: &Cluster) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let (swallows, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let door = Self { at, swallows: Arc::clone(&swallows), ends: Arc::clone(&ends) };
        let member = cluster.members[0].client;
        thread::spawn(move || {
            for caller in listener.incoming() {
                if ends.load(Ordering::Acquire) {
                    return;
                }
                let (Ok(caller), swallows) = (caller, Arc::clone(&swallows)) else { return };
                thread::spawn(move || pass(caller, member, &swallows));
            }
        });
        door
    }

    pub fn address(&self, prefix: &str) -> EtcdAddress {
        format!("etcd://{}/{prefix}", self.at).parse().unwrap()
    }

    /// Whether answers of writes are lost: the caller's connection ends instead.
    pub fn swallow_answers(&self, swallows: bool) {
        self.swallows.store(swallows, Ordering::Release);
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        drop(TcpStream::connect(self.at));
    }
}

/// Copies both ways until one of them ends.
fn pass(caller: TcpStream, member: u16, swallows: &AtomicBool) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", member)) else { return };
    let (Ok(mut from), Ok(mut to)) = (caller.try_clone(), server.try_clone()) else { return };
    thread::spawn(move || {
        let _ended = std::io::copy(&mut from, &mut to);
        let _ended = to.shutdown(Shutdown::Write);
    });
    let (mut from, mut to) = (server, caller);
    let mut part = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut part) {
        if swallows.load(Ordering::Acquire) || to.write_all(&part[..count]).is_err() {
            break;
        }
    }
    let _ended = to.shutdown(Shutdown::Both);
    let _ended = from.shutdown(Shutdown::Both);
}
