//! The SSH server of one guest: authentication, and the requests of sessions.

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
use super::pty::PtyRequest;
use super::{command, sftp, windows, windows_sftp};

/// The server closes a connection whose login takes longer.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Connections at the same time; further ones wait in the listener's queue.
const CONNECTIONS_MAX: usize = 64;
/// Channels at the same time in one connection.
const CHANNELS_MAX: usize = 32;
/// The most variables that a client can set in one session, and the longest value.
const VARIABLES_MAX: usize = 64;
const VARIABLE_BYTES_MAX: usize = 32 * 1024;

/// The shell of a terminal: the more comfortable one where it is installed.
const INTERACTIVE: &str = "command -v bash >/dev/null && exec bash -i; exec /bin/sh -i";

/// Serves until the future is dropped, which ends all connections.
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
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Most likely no file descriptor is free until another connection ends.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        machine.wait_until_not_paused().await;
        while connections.try_join_next().is_some() {}
        let handler = SshConnection::new(Arc::clone(&machine));
        let config = Arc::clone(&config);
        connections.spawn(async move {
            let _slot = slot;
            // Errors of a client end its connection only.
            let _nodelay = stream.set_nodelay(true);
            let login = server::run_stream(config, stream, handler);
            let Ok(Ok(session)) = tokio::time::timeout(LOGIN_TIMEOUT, login).await else {
                return;
            };
            let mut session = RunningSession(session);
            let _ended = (&mut session.0).await;
        });
    }
}

/// A session runs in a task of russh, which must end with the guest.
struct RunningSession(server::RunningSession<SshConnection>);

impl Drop for RunningSession {
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

pub(super) struct SshConnection {
    machine: Arc<Machine>,
    idle_channels: BTreeMap<ChannelId, IdleChannel>,
    commands: JoinSet<()>,
}

/// A channel before its command.
struct IdleChannel {
    channel: Channel<Msg>,
    variables: BTreeMap<String, String>,
    terminal: Option<PtyRequest>,
}

impl SshConnection {
    fn new(machine: Arc<Machine>) -> Self {
        Self { machine, idle_channels: BTreeMap::new(), commands: JoinSet::new() }
    }

    fn authenticate(&self, user: &str, key: &russh::keys::PublicKey) -> Auth {
        let key = PublicKey::from(key.clone());
        let identity = &self.machine.identity;
        let known =
            user == identity.user && self.machine.disk.authorized_keys(identity).contains(&key);
        if known { Auth::Accept } else { Auth::reject() }
    }

    fn has_terminal(&self, id: ChannelId) -> bool {
        self.idle_channels.get(&id).is_some_and(|channel| channel.terminal.is_some())
    }

    fn start(
        &mut self,
        id: ChannelId,
        words: Vec<String>,
        session: &mut server::Session,
    ) -> Result<(), russh::Error> {
        let Some(IdleChannel { channel, variables, terminal }) = self.idle_channels.remove(&id)
        else {
            return session.channel_failure(id);
        };
        session.channel_success(id)?;
        while self.commands.try_join_next().is_some() {}
        let machine = Arc::clone(&self.machine);
        let session_command = command::SessionCommand { machine, words, variables, terminal };
        self.commands.spawn(session_command.serve(channel, session.handle()));
        Ok(())
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
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut server::Session,
    ) -> Result<(), russh::Error> {
        if self.idle_channels.len() + self.commands.len() >= CHANNELS_MAX {
            while self.commands.try_join_next().is_some() {}
        }
        if self.idle_channels.len() + self.commands.len() >= CHANNELS_MAX {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        }
        let idle_channels = IdleChannel { channel, variables: BTreeMap::new(), terminal: None };
        self.idle_channels.insert(idle_channels.channel.id(), idle_channels);
        reply.accept().await;
        Ok(())
    }

    async fn channel_close(
        &mut self,
        id: ChannelId,
        _session: &mut server::Session,
    ) -> Result<(), russh::Error> {
        self.idle_channels.remove(&id);
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
        match self.idle_channels.get_mut(&id) {
            Some(idle_channels) if good && idle_channels.variables.len() < VARIABLES_MAX => {
                idle_channels.variables.insert(name.to_owned(), value.to_owned());
                session.channel_success(id)
            }
            _ => session.channel_failure(id),
        }
    }

    async fn pty_request(
        &mut self,
        id: ChannelId,
        term: &str,
        col_width: u32,
        row_height: u32,
        _pix_width: u32,
        _pix_height: u32,
        _modes: &[(Pty, u32)],
        session: &mut server::Session,
    ) -> Result<(), russh::Error> {
        // The stand-ins for Windows commands know no terminal, and neither do the few commands of a host
        // without isolation.
        let machine = &self.machine;
        let has_none =
            machine.identity.windows().is_some() || machine.host.sandbox.restricts_commands();
        let asked = PtyRequest::new(term, col_width, row_height).filter(|_| !has_none);
        match (self.idle_channels.get_mut(&id), asked) {
            (Some(channel), Some(asked)) => {
                channel.terminal = Some(asked);
                session.channel_success(id)
            }
            _ => session.channel_failure(id),
        }
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
        let words = match self.machine.identity.windows() {
            Some(shell) => windows::words(shell, &command, &self.machine.host.known_commands),
            None => vec!["/bin/sh".to_owned(), "-c".to_owned(), command],
        };
        self.start(id, words, session)
    }

    async fn shell_request(
        &mut self,
        id: ChannelId,
        session: &mut server::Session,
    ) -> Result<(), russh::Error> {
        let words = match self.machine.identity.windows() {
            Some(_) => windows::refuse_terminal(),
            None if self.has_terminal(id) => {
                ["/bin/sh", "-c", INTERACTIVE].map(str::to_owned).into()
            }
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
        if name != SUBSYSTEM {
            return session.channel_failure(id);
        }
        if machine.identity.windows().is_none() {
            return self.start(id, sftp::words(), session);
        }
        if machine.host.sandbox.restricts_commands() {
            return session.channel_failure(id);
        }
        match self.idle_channels.remove(&id) {
            Some(IdleChannel { channel, .. }) => {
                session.channel_success(id)?;
                self.commands.spawn(windows_sftp::serve(machine, channel));
                Ok(())
            }
            None => session.channel_failure(id),
        }
    }
}
