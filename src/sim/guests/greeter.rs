//! Guests with an address and an SSH server that runs no command: logins are real, and every
//! command ends as in a stub guest. One computer can run a thousand of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use drover_ssh::PublicKey;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use parking_lot::{Mutex, MutexGuard};
use percent_encoding::percent_decode_str;
use russh::server::{self, Auth, ChannelOpenHandle, Msg, PublicKeyOffer, VerifiedPublicKey};
use russh::{Channel, ChannelId, MethodKind, MethodSet, SshId};
use serde_json::Value;
use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::stub::{StubGuests, StubOptions};
use crate::guest::{AgentCall, AgentError, GuestAddress, GuestBoot, GuestHost, GuestWork};

/// The server closes a connection whose login takes longer.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(20);

/// A start fails after this many addresses in use.
const ADDRESSES_TRIED_MAX: u32 = 1000;
/// Connections that can wait for `accept`.
const BACKLOG: u32 = 128;

/// The first two bytes of all addresses, on loopback.
const ADDRESS_PREFIX: [u8; 2] = [127, 77];

/// A host of greeter guests.
pub struct GreeterGuests {
    stub: Arc<StubGuests>,
    ssh_servers: Mutex<BTreeMap<u32, SshServer>>,
}

/// A guest's SSH server; dropping this ends it.
struct SshServer {
    task: JoinHandle<()>,
    /// Whether the guest is halted, so that new connections get no answer.
    paused: watch::Sender<bool>,
}

impl Drop for SshServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl GreeterGuests {
    /// A host whose guests behave as stub guests, with loopback addresses.
    #[must_use]
    pub fn new(options: StubOptions) -> Self {
        let stub = StubGuests::new(StubOptions { net: ADDRESS_PREFIX, ..options });
        Self { stub: Arc::new(stub), ssh_servers: Mutex::default() }
    }

    /// Reserves the guest's address, or another one where a program outside uses that. None when
    /// the guest did not start.
    fn find_address(&self, vmid: u32) -> Result<Option<TcpSocket>, String> {
        let Some(GuestAddress { mut ip, port }) = self.stub.address(vmid) else { return Ok(None) };
        for _ in 0..ADDRESSES_TRIED_MAX {
            let socket = TcpSocket::new_v4().and_then(|socket| {
                socket.bind((ip, port).into())?;
                Ok(socket)
            });
            match socket {
                Ok(socket) => return Ok(Some(socket)),
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                    let Some(fresh) = self.stub.assign_other_address(vmid) else { break };
                    ip = fresh.into();
                }
                Err(error) => return Err(format!("failed to listen on {ip}: {error}")),
            }
        }
        Err(format!("no address 127.77.x.y has a free port {port}"))
    }

    fn ssh_servers(&self) -> MutexGuard<'_, BTreeMap<u32, SshServer>> {
        self.ssh_servers.lock()
    }
}

impl GuestHost for GreeterGuests {
    fn boot(&self, boot: GuestBoot) -> BoxFuture<'static, Result<(), String>> {
        let login = Arc::new(LoginSettings::of(&boot));
        // A stub guest boots within the call.
        let started = self.stub.boot(boot);
        match self.find_address(login.vmid) {
            Ok(Some(socket)) => {
                let (paused, halts) = watch::channel(false);
                let stub = Arc::clone(&self.stub);
                let task = tokio::spawn(listen(stub, Arc::clone(&login), (socket, halts)));
                self.ssh_servers().insert(login.vmid, SshServer { task, paused });
                started
            }
            Ok(None) => started,
            Err(reason) => async move { Err(reason) }.boxed(),
        }
    }

    fn stop(&self, vmid: u32) -> BoxFuture<'static, ()> {
        drop(self.ssh_servers().remove(&vmid));
        self.stub.stop(vmid)
    }

    fn shutdown(&self, vmid: u32) -> BoxFuture<'static, ()> {
        self.stub.shutdown(vmid)
    }

    fn running(&self, vmid: u32) -> bool {
        self.stub.running(vmid)
    }

    fn agent(&self, vmid: u32, call: AgentCall) -> BoxFuture<'static, Result<Value, AgentError>> {
        self.stub.agent(vmid, call)
    }

    fn address(&self, vmid: u32) -> Option<GuestAddress> {
        self.stub.address(vmid)
    }

    fn agent_ready_in(&self, vmid: u32) -> Option<Duration> {
        self.stub.agent_ready_in(vmid)
    }

    fn reachable_in(&self, vmid: u32) -> Option<Duration> {
        self.stub.reachable_in(vmid)
    }

    fn set_paused(&self, vmid: u32, paused: bool) -> GuestWork {
        if let Some(server) = self.ssh_servers().get(&vmid) {
            server.paused.send_replace(paused);
        }
        ready(Ok(())).boxed()
    }

    fn snapshot(&self, vmid: u32, name: &str, with_memory: bool) -> GuestWork {
        self.stub.snapshot(vmid, name, with_memory)
    }

    fn rollback(&self, vmid: u32, name: &str) -> GuestWork {
        self.stub.rollback(vmid, name)
    }

    fn clone_disk(&self, from: u32, to: u32, linked: bool) -> GuestWork {
        self.stub.clone_disk(from, to, linked)
    }

    fn forget(&self, vmid: u32) {
        drop(self.ssh_servers().remove(&vmid));
        self.stub.forget(vmid);
    }
}

/// The user and keys that a guest's SSH server accepts.
struct LoginSettings {
    vmid: u32,
    user: String,
    keys: Vec<PublicKey>,
}

impl LoginSettings {
    fn of(boot: &GuestBoot) -> Self {
        let encoded = boot.config.get("sshkeys").map(String::as_str).unwrap_or_default();
        let lines = percent_decode_str(encoded).decode_utf8_lossy().into_owned();
        Self {
            vmid: boot.vmid,
            user: boot.config.get("ciuser").map_or("debian", String::as_str).to_owned(),
            keys: lines.lines().filter_map(|line| PublicKey::parse(line).ok()).collect(),
        }
    }
}

/// Listens once the guest has its address, until the guest ends.
async fn listen(
    stub: Arc<StubGuests>,
    login: Arc<LoginSettings>,
    (socket, mut halts): (TcpSocket, watch::Receiver<bool>),
) {
    let vmid = login.vmid;
    let Some(wait) = stub.reachable_in(vmid) else { return };
    tokio::time::sleep(wait).await;
    let Some(key) = stub.host_key(vmid) else { return };
    let listener = match socket.listen(BACKLOG) {
        Ok(listener) => listener,
        Err(error) => {
            // A machine is up even when its sshd fails.
            tracing::warn!(vmid, %error, "the guest's SSH server cannot listen");
            return;
        }
    };
    let config = Arc::new(server::Config {
        server_id: SshId::Standard("SSH-2.0-drover_guest".into()),
        methods: MethodSet::from([MethodKind::PublicKey].as_slice()),
        keys: vec![key.inner().as_ref().clone()],
        auth_rejection_time: Duration::ZERO,
        nodelay: true,
        ..server::Config::default()
    });
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Most likely no file descriptor is free until another connection ends.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        if halts.wait_for(|halted| !halted).await.is_err() || !stub.running(vmid) {
            return;
        }
        let _nodelay = stream.set_nodelay(true);
        let connection = SshConnection { stub: Arc::clone(&stub), login: Arc::clone(&login) };
        let config = Arc::clone(&config);
        tokio::spawn(async move {
            let login = server::run_stream(config, stream, connection);
            // Errors of a client end its connection only.
            if let Ok(Ok(session)) = tokio::time::timeout(LOGIN_TIMEOUT, login).await {
                let _ended = session.await;
            }
        });
    }
}

struct SshConnection {
    stub: Arc<StubGuests>,
    login: Arc<LoginSettings>,
}

impl SshConnection {
    fn authenticate(&self, user: &str, key: &russh::keys::PublicKey) -> Auth {
        let key = PublicKey::from(key.clone());
        let known = user == self.login.user && self.login.keys.contains(&key);
        if known { Auth::Accept } else { Auth::reject() }
    }
}

impl server::Handler for SshConnection {
    type Error = russh::Error;

    async fn auth_publickey_offered(
        &mut self,
        user: &str,
        offer: PublicKeyOffer<'_>,
    ) -> Result<Auth, russh::Error> {
        Ok(self.authenticate(user, offer.public_key))
    }

    async fn auth_publickey(
        &mut self,
        user: &str,
        key: VerifiedPublicKey<'_>,
    ) -> Result<Auth, russh::Error> {
        Ok(self.authenticate(user, key.public_key))
    }

    async fn channel_open_session(
        &mut self,
        _channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut server::Session,
    ) -> Result<(), russh::Error> {
        reply.accept().await;
        Ok(())
    }

    async fn exec_request(
        &mut self,
        id: ChannelId,
        command: &[u8],
        session: &mut server::Session,
    ) -> Result<(), russh::Error> {
        let command = String::from_utf8_lossy(command).into_owned();
        let words = ["sh".to_owned(), "-c".to_owned(), command];
        let Some(exited) = self.stub.run(self.login.vmid, &words) else {
            return session.channel_failure(id);
        };
        session.channel_success(id)?;
        if !exited.stdout.is_empty() {
            session.data(id, Bytes::from(exited.stdout))?;
        }
        let code = exited.code.and_then(|code| u32::try_from(code).ok());
        session.exit_status_request(id, code.unwrap_or(255))?;
        session.eof(id)?;
        session.close(id)
    }
}

#[cfg(test)]
mod tests;
