//! An SSH server for tests: real sockets, and commands that `/bin/sh` runs in a folder of their
//! own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use russh::server::{self, Auth, ChannelOpenHandle, Msg, VerifiedPublicKey};
use russh::{Channel, ChannelId, Pty};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::task::JoinHandle;

use super::*;

pub struct TestServer {
    pub port: u16,
    pub host_key: PrivateKey,
    pub dir: tempfile::TempDir,
    pub logins: Arc<Mutex<u32>>,
    task: JoinHandle<()>,
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub fn key(n: u8) -> PrivateKey {
    PrivateKey::from_seed(&[n; 32], "test")
}

pub fn target(port: u16) -> Target {
    Target { host: IpAddr::V4(Ipv4Addr::LOCALHOST), port, user: "ci".to_owned() }
}

impl TestServer {
    /// Serves on `port` (0 for any), and accepts only the key `accepted`.
    pub async fn start(port: u16, accepted: &PrivateKey, host_key: PrivateKey) -> Self {
        Self::start_with(port, accepted, host_key, None).await
    }

    /// As [`Self::start`], with a second host key.
    pub async fn start_with(
        port: u16,
        accepted: &PrivateKey,
        host_key: PrivateKey,
        second: Option<&PrivateKey>,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let dir = tempfile::tempdir().unwrap();
        let logins = Arc::new(Mutex::new(0));
        let config = Arc::new(server::Config {
            keys: [Some(&host_key), second]
                .into_iter()
                .flatten()
                .map(|key| key.inner().as_ref().clone())
                .collect(),
            auth_rejection_time: std::time::Duration::ZERO,
            nodelay: true,
            ..server::Config::default()
        });
        let handler = TestHandler {
            accepted: accepted.public(),
            dir: dir.path().to_owned(),
            logins: Arc::clone(&logins),
            channels: BTreeMap::new(),
            terminals: BTreeMap::new(),
        };
        let task = tokio::spawn(async move {
            let mut sessions = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (config, handler) = (Arc::clone(&config), handler.fresh());
                sessions.spawn(async move {
                    if let Ok(session) = server::run_stream(config, stream, handler).await {
                        let _ended = session.await;
                    }
                });
            }
        });
        Self { port, host_key, dir, logins, task }
    }
}

struct TestHandler {
    accepted: PublicKey,
    dir: PathBuf,
    logins: Arc<Mutex<u32>>,
    channels: BTreeMap<ChannelId, Channel<Msg>>,
    terminals: BTreeMap<ChannelId, String>,
}

impl TestHandler {
    fn fresh(&self) -> Self {
        Self {
            accepted: self.accepted.clone(),
            dir: self.dir.clone(),
            logins: Arc::clone(&self.logins),
            channels: BTreeMap::new(),
            terminals: BTreeMap::new(),
        }
    }
}

impl server::Handler for TestHandler {
    type Error = russh::Error;

    async fn auth_publickey(
        &mut self,
        _user: &str,
        key: VerifiedPublicKey<'_>,
    ) -> Result<Auth, russh::Error> {
        *self.logins.lock().unwrap() += 1;
        let good = PublicKey::from(key.public_key.clone()) == self.accepted;
        Ok(if good { Auth::Accept } else { Auth::reject() })
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut server::Session,
    ) -> Result<(), russh::Error> {
        self.channels.insert(channel.id(), channel);
        reply.accept().await;
        Ok(())
    }

    async fn pty_request(
        &mut self,
        id: ChannelId,
        kind: &str,
        columns: u32,
        rows: u32,
        _width: u32,
        _height: u32,
        _modes: &[(Pty, u32)],
        session: &mut server::Session,
    ) -> Result<(), russh::Error> {
        if self.dir.join("no-terminal").exists() {
            return session.channel_failure(id);
        }
        self.terminals.insert(id, format!("{kind} {columns}x{rows}"));
        session.channel_success(id)
    }

    async fn window_change_request(
        &mut self,
        id: ChannelId,
        columns: u32,
        rows: u32,
        _width: u32,
        _height: u32,
        session: &mut server::Session,
    ) -> Result<(), russh::Error> {
        session.data(id, format!("{columns}x{rows}\r\n"))
    }

    /// A shell that says its terminal and every line that it reads; `exit` ends it with 7, `vanish` ends the
    /// connection.
    async fn shell_request(
        &mut self,
        id: ChannelId,
        session: &mut server::Session,
    ) -> Result<(), russh::Error> {
        let channel = self.channels.remove(&id).unwrap();
        let Some(terminal) = self.terminals.remove(&id) else {
            return session.channel_failure(id);
        };
        session.channel_success(id)?;
        tokio::spawn(converse(channel, terminal, session.handle()));
        Ok(())
    }

    async fn exec_request(
        &mut self,
        id: ChannelId,
        command: &[u8],
        session: &mut server::Session,
    ) -> Result<(), russh::Error> {
        let command = String::from_utf8(command.to_vec()).unwrap();
        let channel = self.channels.remove(&id).unwrap();
        if command == "refuse me" {
            session.channel_failure(id)?;
            return Ok(());
        }
        session.channel_success(id)?;
        tokio::spawn(run(channel, command, self.dir.clone()));
        Ok(())
    }
}

/// What a real shell on a pseudo-terminal does is tested with the guests of the simulated cluster.
async fn converse(channel: Channel<Msg>, terminal: String, handle: server::Handle) {
    let (mut read, write) = channel.split();
    write.data_bytes(format!("{terminal}\r\n")).await.unwrap();
    let mut lines = BufReader::new(read.make_reader()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if line == "exit" {
            let _sent = write.exit_status(7).await;
            break;
        }
        if line == "vanish" {
            let why = "the machine is off".to_owned();
            let by = russh::Disconnect::ByApplication;
            handle.disconnect(by, why, String::new()).await.unwrap();
            return;
        }
        if write.data_bytes(format!("{line}!\r\n")).await.is_err() {
            return;
        }
    }
    let _sent = write.eof().await;
    let _sent = write.close().await;
}

async fn run(channel: Channel<Msg>, command: String, dir: PathBuf) {
    let mut child = Command::new("/bin/sh")
        .arg("-c")
        .arg(&command)
        .current_dir(dir)
        .kill_on_drop(true)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut read, write) = channel.split();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let feed = async {
        let mut reader = read.make_reader();
        let _closed = tokio::io::copy(&mut reader, &mut stdin).await;
        let _closed = stdin.shutdown().await;
        drop(stdin);
        std::future::pending::<()>().await;
    };
    let follow = async {
        let out = write.data(&mut stdout);
        let err = write.extended_data(1, &mut stderr);
        let _both = tokio::join!(out, err);
        child.wait().await.unwrap()
    };
    let status = tokio::select! { status = follow => status, () = feed => return };
    if let Some(code) = status.code() {
        let _sent = write.exit_status(u32::try_from(code).unwrap()).await;
    }
    let _sent = write.eof().await;
    let _sent = write.close().await;
}
