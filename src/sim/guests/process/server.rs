//! The SSH server of one guest: who may log in, and what becomes of a session's requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_ssh::sftp::SUBSYSTEM;
use drover_ssh::{PrivateKey, PublicKey};
use russh::server::{self, Auth, ChannelOpenHandle, Msg, PublicKeyOffer, VerifiedPublicKey};
use russh::{Channel, ChannelId, ChannelOpenFailure, MethodKind, MethodSet, Pty, SshId};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::machine::Machine;
use super::{job, sftp, windows};

/// Connections at once; more wait in the listener's queue.
const CONNECTIONS_MAX: usize = 64;
/// Channels at once in one connection.
const CHANNELS_MAX: usize = 32;
/// Variables a client may set in one session, and the longest value.
const VARIABLES_MAX: usize = 64;
const VARIABLE_BYTES_MAX: usize = 32 * 1024;

/// Serves for ever; dropping this ends every connection.
pub(super) async fn serve(listener: TcpListener, machine: Arc<Machine>, key: &PrivateKey) {
    let config = Arc::new(server::Config {
        server_id: SshId::Standard("SSH-2.0-drover_guest".into()),
        methods: MethodSet::from([MethodKind::PublicKey].as_slice()),
        keys: vec![key.inner().as_ref().clone()],
        auth_rejection_time: Duration::ZERO,
        inactivity_timeout: None,
        keepalive_interval: Some(Duration::from_secs(30)),
        nodelay: true,
        ..server::Config::default()
    });
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, most likely: others must end first.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        let front = Front::new(Arc::clone(&machine));
        let config = Arc::clone(&config);
        connections.spawn(async move {
            let _place = place;
            // What a client does wrong is its own affair.
            let _nodelay = stream.set_nodelay(true);
            let greeting = server::run_stream(config, stream, front);
            let Ok(Ok(session)) = tokio::time::timeout(Duration::from_secs(20), greeting).await
            else {
                return;
            };
            let mut session = Connection(session);
            let _ended = (&mut session.0).await;
        });
    }
}

/// russh runs a session in a task of its own, which must end when the guest does.
struct Connection(server::RunningSession<Front>);

impl Drop for Connection {
    fn drop(&mut self) {
        let handle = self.0.handle();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let why = "the machine is off".to_owned();
                let _gone =
                    handle.disconnect(russh::Disconnect::ByApplication, why, String::new()).await;
            });
        }
    }
}

/// One connection.
pub(super) struct Front {
    machine: Arc<Machine>,
    waiting: BTreeMap<ChannelId, Waiting>,
    jobs: JoinSet<()>,
}

/// A channel on which nothing was started yet.
struct Waiting {
    channel: Channel<Msg>,
    variables: BTreeMap<String, String>,
}

impl Front {
    fn new(machine: Arc<Machine>) -> Self {
        Self { machine, waiting: BTreeMap::new(), jobs: JoinSet::new() }
    }

    fn admits(&self, user: &str, key: &russh::keys::PublicKey) -> Auth {
        let key = PublicKey::from(key.clone());
        let inside = &self.machine.inside;
        let known = user == inside.user && self.machine.disk.authorized_keys(inside).contains(&key);
        if known { Auth::Accept } else { Auth::reject() }
    }

    fn start(
        &mut self,
        id: ChannelId,
        words: Vec<String>,
        session: &mut server::Session,
    ) -> Result<(), russh::Error> {
        let Some(Waiting { channel, variables }) = self.waiting.remove(&id) else {
            return session.channel_failure(id);
        };
        session.channel_success(id)?;
        while self.jobs.try_join_next().is_some() {}
        let job = job::Job { machine: Arc::clone(&self.machine), words, variables };
        self.jobs.spawn(job.serve(channel, session.handle()));
        Ok(())
    }
}

impl server::Handler for Front {
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
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut server::Session,
    ) -> Result<(), russh::Error> {
        if self.waiting.len() + self.jobs.len() >= CHANNELS_MAX {
            while self.jobs.try_join_next().is_some() {}
        }
        if self.waiting.len() + self.jobs.len() >= CHANNELS_MAX {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        }
        let waiting = Waiting { channel, variables: BTreeMap::new() };
        self.waiting.insert(waiting.channel.id(), waiting);
        reply.accept().await;
        Ok(())
    }

    async fn channel_close(
        &mut self,
        id: ChannelId,
        _session: &mut server::Session,
    ) -> Result<(), russh::Error> {
        self.waiting.remove(&id);
        Ok(())
    }

    async fn env_request(
        &mut self,
        id: ChannelId,
        name: &str,
        value: &str,
        session: &mut server::Session,
    ) -> Result<(), russh::Error> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let good = name.chars().all(plain)
            && name.chars().next().is_some_and(|c| !c.is_ascii_digit())
            && value.len() <= VARIABLE_BYTES_MAX
            && !value.contains('\0');
        match self.waiting.get_mut(&id) {
            Some(waiting) if good && waiting.variables.len() < VARIABLES_MAX => {
                waiting.variables.insert(name.to_owned(), value.to_owned());
                session.channel_success(id)
            }
            _ => session.channel_failure(id),
        }
    }

    async fn pty_request(
        &mut self,
        id: ChannelId,
        _term: &str,
        _col_width: u32,
        _row_height: u32,
        _pix_width: u32,
        _pix_height: u32,
        _modes: &[(Pty, u32)],
        session: &mut server::Session,
    ) -> Result<(), russh::Error> {
        session.channel_failure(id)
    }

    async fn exec_request(
        &mut self,
        id: ChannelId,
        command: &[u8],
        session: &mut server::Session,
    ) -> Result<(), russh::Error> {
        let Ok(command) = String::from_utf8(command.to_vec()) else {
            return session.channel_failure(id);
        };
        let words = match self.machine.inside.windows() {
            Some(shell) => windows::words(shell, &command, &self.machine.ground.known),
            None => vec!["/bin/sh".to_owned(), "-c".to_owned(), command],
        };
        self.start(id, words, session)
    }

    async fn shell_request(
        &mut self,
        id: ChannelId,
        session: &mut server::Session,
    ) -> Result<(), russh::Error> {
        let words = match self.machine.inside.windows() {
            Some(_) => windows::no_terminal(),
            None => vec!["/bin/sh".to_owned()],
        };
        self.start(id, words, session)
    }

    async fn subsystem_request(
        &mut self,
        id: ChannelId,
        name: &str,
        session: &mut server::Session,
    ) -> Result<(), russh::Error> {
        let machine = Arc::clone(&self.machine);
        let serves = machine.inside.windows().is_some() && !machine.ground.sandbox.needs_leave();
        if !serves || name != SUBSYSTEM {
            return session.channel_failure(id);
        }
        match self.waiting.remove(&id) {
            Some(Waiting { channel, .. }) => {
                session.channel_success(id)?;
                self.jobs.spawn(sftp::serve(machine, channel));
                Ok(())
            }
            None => session.channel_failure(id),
        }
    }
}
