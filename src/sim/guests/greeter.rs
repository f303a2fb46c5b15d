//! Guests that are an address where SSH answers: who logs in is greeted, and every command ends as
//! for a guest without an inside. Light enough for a thousand of them on one computer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use drover_ssh::PublicKey;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use percent_encoding::percent_decode_str;
use russh::server::{self, Auth, ChannelOpenHandle, Msg, PublicKeyOffer, VerifiedPublicKey};
use russh::{Channel, ChannelId, MethodKind, MethodSet, SshId};
use serde_json::Value;
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;

use super::none::{NoneGuests, NoneOptions};
use crate::guest::{AgentCall, AgentError, GuestAddress, GuestBoot, GuestHost};

/// A login that does not come to an end is cut.
const GREETING_TIME: Duration = Duration::from_secs(20);

/// Addresses tried before a start fails for want of one.
const ADDRESSES_TRIED_MAX: u32 = 1000;
/// Connections that may wait to be taken.
const BACKLOG: u32 = 128;

/// The network of the guests' addresses, on loopback.
const NET: [u8; 2] = [127, 77];

/// The host of guests that greet.
pub struct GreeterGuests {
    none: Arc<NoneGuests>,
    doors: Mutex<BTreeMap<u32, Door>>,
}

/// A guest's SSH server; it ends with this.
struct Door(JoinHandle<()>);

impl Drop for Door {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl GreeterGuests {
    /// A host whose guests behave as those that are an address only, on loopback addresses.
    #[must_use]
    pub fn new(options: NoneOptions) -> Self {
        let none = NoneGuests::new(NoneOptions { net: NET, ..options });
        Self { none: Arc::new(none), doors: Mutex::default() }
    }

    /// Holds the guest's address, or another where somebody else on this computer uses that; none
    /// when it did not begin.
    fn find_address(&self, vmid: u32) -> Result<Option<TcpSocket>, String> {
        let Some(GuestAddress { mut ip, port }) = self.none.address(vmid) else { return Ok(None) };
        for _ in 0..ADDRESSES_TRIED_MAX {
            let held = TcpSocket::new_v4().and_then(|socket| {
                socket.bind((ip, port).into())?;
                Ok(socket)
            });
            match held {
                Ok(socket) => return Ok(Some(socket)),
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                    let Some(fresh) = self.none.readdress(vmid) else { break };
                    ip = fresh.into();
                }
                Err(error) => return Err(format!("failed to listen on {ip}: {error}")),
            }
        }
        Err(format!("no address 127.77.x.y with a free port {port} is left"))
    }

    fn doors(&self) -> MutexGuard<'_, BTreeMap<u32, Door>> {
        self.doors.lock()
    }
}

impl GuestHost for GreeterGuests {
    fn boot(&self, boot: GuestBoot) -> BoxFuture<'static, Result<(), String>> {
        let inside = Arc::new(Inside::of(&boot));
        // The host without insides boots within the call.
        let begun = self.none.boot(boot);
        match self.find_address(inside.vmid) {
            Ok(Some(socket)) => {
                let door = tokio::spawn(open(Arc::clone(&self.none), Arc::clone(&inside), socket));
                self.doors().insert(inside.vmid, Door(door));
                begun
            }
            Ok(None) => begun,
            Err(reason) => async move { Err(reason) }.boxed(),
        }
    }

    fn stop(&self, vmid: u32) -> BoxFuture<'static, ()> {
        drop(self.doors().remove(&vmid));
        self.none.stop(vmid)
    }

    fn shutdown(&self, vmid: u32) -> BoxFuture<'static, ()> {
        self.none.shutdown(vmid)
    }

    fn running(&self, vmid: u32) -> bool {
        self.none.running(vmid)
    }

    fn agent(&self, vmid: u32, call: AgentCall) -> BoxFuture<'static, Result<Value, AgentError>> {
        self.none.agent(vmid, call)
    }

    fn address(&self, vmid: u32) -> Option<GuestAddress> {
        self.none.address(vmid)
    }

    fn answers_in(&self, vmid: u32) -> Option<Duration> {
        self.none.answers_in(vmid)
    }

    fn reachable_in(&self, vmid: u32) -> Option<Duration> {
        self.none.reachable_in(vmid)
    }

    fn snapshot(&self, vmid: u32, name: &str) {
        self.none.snapshot(vmid, name);
    }

    fn rollback(&self, vmid: u32, name: &str) {
        self.none.rollback(vmid, name);
    }

    fn clone_disk(&self, from: u32, to: u32) {
        self.none.clone_disk(from, to);
    }

    fn forget(&self, vmid: u32) {
        drop(self.doors().remove(&vmid));
        self.none.forget(vmid);
    }
}

/// What a guest's SSH server knows.
struct Inside {
    vmid: u32,
    user: String,
    keys: Vec<PublicKey>,
}

impl Inside {
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

/// Listens from the moment the guest has its address.
async fn open(none: Arc<NoneGuests>, inside: Arc<Inside>, held: TcpSocket) {
    let vmid = inside.vmid;
    let Some(wait) = none.reachable_in(vmid) else { return };
    tokio::time::sleep(wait).await;
    let Some(key) = none.host_key(vmid) else { return };
    let listener = match held.listen(BACKLOG) {
        Ok(listener) => listener,
        Err(error) => {
            // A machine whose sshd fails is up all the same.
            tracing::warn!(vmid, %error, "guest can not listen");
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
            // Out of descriptors, most likely: others must end first.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        if !none.running(vmid) {
            return;
        }
        let _nodelay = stream.set_nodelay(true);
        let greeter = Greeter { none: Arc::clone(&none), inside: Arc::clone(&inside) };
        let config = Arc::clone(&config);
        tokio::spawn(async move {
            let greeting = server::run_stream(config, stream, greeter);
            // What a client does wrong is its own affair.
            if let Ok(Ok(session)) = tokio::time::timeout(GREETING_TIME, greeting).await {
                let _ended = session.await;
            }
        });
    }
}

/// One connection.
struct Greeter {
    none: Arc<NoneGuests>,
    inside: Arc<Inside>,
}

impl Greeter {
    fn admits(&self, user: &str, key: &russh::keys::PublicKey) -> Auth {
        let key = PublicKey::from(key.clone());
        let known = user == self.inside.user && self.inside.keys.contains(&key);
        if known { Auth::Accept } else { Auth::reject() }
    }
}

impl server::Handler for Greeter {
    type Error = russh::Error;

    async fn auth_publickey_offered(
        &mut self,
        user: &str,
        offer: PublicKeyOffer<'_>,
    ) -> Result<Auth, russh::Error> {
        Ok(self.admits(user, offer.public_key))
    }

    async fn auth_publickey(
        &mut self,
        user: &str,
        key: VerifiedPublicKey<'_>,
    ) -> Result<Auth, russh::Error> {
        Ok(self.admits(user, key.public_key))
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
        let Some(exited) = self.none.run(self.inside.vmid, &words) else {
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
