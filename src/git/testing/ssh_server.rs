//! A real `sshd` on this machine, with a key, a host key and settings of its own.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const SSHD: &str = "/usr/sbin/sshd";

/// One server; it ends with this value.
pub struct SshServer {
    pub port: u16,
    pub user: String,
    /// The private key that may log in.
    pub key: String,
    /// The line of the host key for `known_hosts`.
    pub known_hosts: String,
    folder: tempfile::TempDir,
    process: Child,
}

impl Drop for SshServer {
    fn drop(&mut self) {
        // It may have ended by itself, after a test made it.
        let _ended = self.process.kill();
        let _status = self.process.wait();
    }
}

impl SshServer {
    /// Whether this machine has what a server needs.
    pub fn is_there() -> bool {
        super::is_installed(SSHD)
    }

    /// Starts on a free port. Without `is_new`, git's newer protocol is not let through.
    pub fn start(is_new: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (key, public) = make_key(&folder.path().join("user"), &[]);
        let (_, host) = make_key(&folder.path().join("host"), &[]);
        std::fs::write(folder.path().join("authorized"), public).unwrap();
        // As root, sshd wants this folder of its package.
        let _not_root = std::fs::create_dir_all("/run/sshd");
        let user = Command::new("id").arg("-un").output().unwrap().stdout;
        let user = String::from_utf8(user).unwrap().trim().to_owned();
        loop {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let port = free.local_addr().unwrap().port();
            drop(free);
            if let Some(process) = start_at(folder.path(), port, is_new) {
                let known_hosts = format!("[127.0.0.1]:{port} {host}");
                return Self { port, user, key, known_hosts, folder, process };
            }
        }
    }

    /// Another private key, which no server knows.
    pub fn other_key(&self) -> String {
        make_key(&self.folder.path().join("other"), &[]).0
    }

    /// A private key that is locked with a passphrase.
    pub fn locked_key(&self) -> String {
        make_key(&self.folder.path().join("locked"), &["-N", "a passphrase"]).0
    }

    /// A line for `known_hosts` with another key than the server's.
    pub fn wrong_known_hosts(&self) -> String {
        let (_, public) = make_key(&self.folder.path().join("impostor"), &[]);
        format!("[127.0.0.1]:{} {public}", self.port)
    }
}

fn start_at(folder: &Path, port: u16, is_new: bool) -> Option<Child> {
    let place = |name: &str| folder.join(name).display().to_string();
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\n\
         StrictModes no\nUsePAM no\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n{}",
        place("host"),
        place("authorized"),
        if is_new { "AcceptEnv GIT_PROTOCOL\n" } else { "" }
    );
    std::fs::write(place("config"), config).unwrap();
    let mut process = Command::new(SSHD)
        .args(["-D", "-e", "-f", &place("config")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(process.stderr.take().unwrap());
    let mut all = String::new();
    while said.read_line(&mut all).unwrap() > 0 {
        if all.contains("Server listening on") {
            // What it says from then on must not fill the pipe.
            std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
            return Some(process);
        }
    }
    process.wait().unwrap();
    assert!(all.contains("Address already in use"), "{all}");
    None
}

/// A private key and its public line.
fn make_key(path: &PathBuf, more: &[&str]) -> (String, String) {
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-C", "", "-f"]).arg(path);
    keygen.args(if more.is_empty() { &["-N", ""] } else { more });
    assert!(keygen.status().unwrap().success());
    let public = std::fs::read_to_string(path.with_extension("pub")).unwrap();
    (std::fs::read_to_string(path).unwrap(), public)
}
