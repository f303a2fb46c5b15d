//! The actors' `Shell` port: how drover enters guests, over the SSH client.
//!
//! [`SshShell`] holds the private keys by credentials id and by public key, and the files that the
//! configuration uploads. Every call is one login on the ports' runtime: greet (host key and
//! network cards), probe (does SSH answer), run a command, upload a file, add or remove the key of
//! a lease with its user data.
//!
//! A call ends with what the command returned, or with a `Fault`: unreachable (the login failed or
//! timed out), refused key, wrong host key, broken (a command of drover's failed), or unknown
//! outcome (the connection was lost while a command ran). Output is cut to `TAIL_BYTES`.
//!
//! Beside it:
//! - `kept_keys.rs`: private keys, kept in the state directory while agents need them.
//! - `user_data/`: the user data of leases, kept in the vault and put into guests.
//! - `terminal.rs`: shells that somebody sits at.
//! - `held.rs`: the keys and files themselves. `running.rs`: what happens in a session.
//! - `windows.rs`: what is different in Windows guests.
//! - `own_commands.rs`: recognizes drover's own commands, for simulated guests.

#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use causes::chain;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::gate::Gate;
use drover_model::ports::{Ask, Greeting, Holder, Ran, Sessions, Shell, ShellTarget};
use drover_model::spec::{SshSpec, UploadSpec};
use drover_scripts::guest as scripts;
use drover_ssh::{
    HostKeyPolicy, Keep, Limits, PrivateKey, ProbeError, Session, Target, connect, probe,
};
use futures_util::FutureExt;
use held::{Files, Keys};
use parking_lot::RwLock;
use running::{
    broken, changed, ended_early, exec, exec_on, login_fault, put, put_all, put_user_data,
    was_already_done,
};
use tail::ran_of;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use user_data::{UserDataStore, guest};

mod held;
pub mod kept_keys;
pub mod own_commands;
mod running;
mod tail;
mod terminal;
pub mod user_data;
mod windows;

pub use terminal::OpenTerminal;

/// The exit status of a command that finds its work done already. It differs from 0 and from what
/// shells and programs return when they fail.
pub const EXIT_ALREADY_DONE: u32 = 33;
/// How many bytes of each output stream are kept.
const TAIL_BYTES: usize = 16 * 1024;
/// The number of probes at once: each holds a socket for as long as its guest is silent.
const PROBES_AT_ONCE: usize = 256;

/// Prints the MAC addresses of a machine's network cards in one line, on any kind of Unix.
const CARDS: &str = "{ ip link || cat /sys/class/net/*/address || ifconfig -a; } 2>/dev/null \
    | grep -oE '([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}' | sort -u | head -n 300 | tr '\\n' ' '";

pub struct SshShell {
    keys: Arc<RwLock<Keys>>,
    files: RwLock<Files>,
    user_data: Option<Arc<UserDataStore>>,
    gate: Gate,
    probes: Arc<Semaphore>,
    runtime: Handle,
}

impl SshShell {
    /// A shell without keys; logins run on `runtime`.
    pub fn new(runtime: Handle) -> Self {
        let probes = Arc::new(Semaphore::new(PROBES_AT_ONCE));
        let (keys, files, gate) = (Arc::default(), RwLock::default(), Gate::default());
        Self { keys, files, user_data: None, gate, probes, runtime }
    }

    /// Asks this gate before anything starts in a guest.
    #[must_use]
    pub fn with_gate(self, gate: Gate) -> Self {
        Self { gate, ..self }
    }

    /// Takes the user data of leases from `store`.
    #[must_use]
    pub fn with_user_data(self, store: Arc<UserDataStore>) -> Self {
        Self { user_data: Some(store), ..self }
    }

    /// Adds the keys of a configuration. Keys that left it stay: agents created with them still
    /// need them.
    pub fn add_keys(&self, keys: impl IntoIterator<Item = (String, PrivateKey)>) {
        let mut all = self.keys.write();
        for (id, key) in keys {
            all.by_public.insert(key.public_line(""), key.clone());
            all.by_id.insert(id, key);
        }
    }

    /// Adds keys that agents were created with before this start.
    pub fn add_kept_keys(&self, keys: impl IntoIterator<Item = PrivateKey>) {
        let mut all = self.keys.write();
        all.by_public.extend(keys.into_iter().map(|key| (key.public_line(""), key)));
    }

    /// Sets the files of a configuration. Files that left it are kept for agents created with them,
    /// the latest first, up to `FORMER_FILES_BYTES`.
    pub fn set_files<'a>(&self, files: impl IntoIterator<Item = (&'a str, &'a Bytes)>) {
        let files = files.into_iter().map(|(sha256, content)| (sha256.to_owned(), content.clone()));
        self.files.write().replace(files.collect());
    }

    fn key(&self, ssh: &SshSpec) -> Result<PrivateKey, Fault> {
        let keys = self.keys.read();
        keys.of(ssh).ok_or_else(|| {
            let text = format!(
                "the SSH key `{}` is not in `credentials`: add it again until its agents are gone",
                ssh.credentials_id
            );
            Fault::new(FaultKind::Broken, Culprit::Template, text)
        })
    }

    /// Logs in and passes the session to `work`; both together take at most `limit`.
    fn with_session<T, W, F>(&self, target: ShellTarget, limit: Duration, work: W) -> Ask<T>
    where
        T: Send + 'static,
        W: FnOnce(Session, Duration) -> F + Send + 'static,
        F: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        let (key, os, gate) = (self.key(&target.ssh), target.os, self.gate.clone());
        let task = self.runtime.spawn(async move {
            let key = key?;
            let deadline = Instant::now() + limit;
            let policy = if target.host_keys.is_empty() {
                HostKeyPolicy::TrustOnFirst
            } else {
                HostKeyPolicy::Pinned(target.host_keys)
            };
            let (host, port, user) = (target.address, target.ssh.port, target.ssh.user);
            let target = Target { host, port, user };
            let session = connect(&target, &key, &policy, limit).await;
            let session = session.map_err(|error| login_fault(os, error))?.gated(gate.ask());
            work(session, deadline.saturating_duration_since(Instant::now())).await
        });
        async move {
            match task.await {
                Ok(outcome) => outcome,
                Err(error) => {
                    let text = format!("an SSH call ended early: {error}");
                    Err(Fault::new(FaultKind::UnknownOutcome, Culprit::Guest, text))
                }
            }
        }
        .boxed()
    }

    /// Runs a command that ends with [`EXIT_ALREADY_DONE`] when something was started already, and
    /// with 0 otherwise.
    pub fn already_started(
        &self,
        target: ShellTarget,
        command: String,
        limit: Duration,
    ) -> Ask<bool> {
        self.with_session(target, limit, move |session, left| async move {
            was_already_done("checking for the runner", &exec(session, &command, left).await?)
        })
    }

    /// Writes files that only their user may read into the guest and runs a command, in one login.
    pub fn put_and_run(
        &self,
        target: ShellTarget,
        files: Vec<(String, Bytes)>,
        command: String,
        limit: Duration,
    ) -> Ask<Ran> {
        let os = target.os;
        self.with_session(target, limit, move |session, left| async move {
            put_all(&session, os, files, left).await?;
            exec(session, &command, left).await
        })
    }

    /// Runs a command that must succeed, and returns its output.
    pub fn read(&self, target: ShellTarget, command: String, limit: Duration) -> Ask<String> {
        self.with_session(target, limit, move |session, left| async move {
            let limits = Limits { time: left, output_bytes_max: TAIL_BYTES, keep: Keep::Last };
            let read = session.exec(&command, None, limits, None).await;
            session.close().await;
            let doing = "reading from the guest";
            match read.map(|ran| windows::with_own_status(&command, ran)) {
                Ok(ran) if ran.exit == Some(0) => {
                    Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
                }
                Ok(ran) => Err(broken(doing, &ran_of(&command, &ran))),
                Err(error) => Err(broken(doing, &ended_early(error)?)),
            }
        })
    }

    fn change_keys(
        &self,
        target: ShellTarget,
        commands: Vec<String>,
        limit: Duration,
        doing: &'static str,
    ) -> Ask<()> {
        self.with_session(target, limit, move |session, left| async move {
            for command in commands {
                changed(doing, &exec_on(&session, &command, left).await?)?;
            }
            session.close().await;
            Ok(())
        })
    }

    /// Runs a command that must succeed; `doing` names it in a fault.
    pub fn script(
        &self,
        target: ShellTarget,
        command: String,
        limit: Duration,
        doing: &'static str,
    ) -> Ask<()> {
        self.with_session(target, limit, move |session, left| async move {
            let ran = exec(session, &command, left).await?;
            if ran.exit == Some(0) { Ok(()) } else { Err(broken(doing, &ran)) }
        })
    }
}

impl Shell for SshShell {
    fn greet(&self, target: ShellTarget, limit: Duration) -> Ask<Greeting> {
        let os = target.os;
        self.with_session(target, limit, move |session, left| async move {
            let host_key = session.host_key().line();
            let shown = exec(session, &windows::cards(os), left).await?;
            Ok(Greeting { host_key, cards: windows::listed_cards(os, &shown)? })
        })
    }

    fn probe(&self, target: ShellTarget, limit: Duration) -> Ask<()> {
        let probes = Arc::clone(&self.probes);
        let at = SocketAddr::new(target.address, target.ssh.port);
        let task = self.runtime.spawn(async move {
            // The wait for a place does not count as silence of the guest.
            let _place = probes.acquire_owned().await;
            probe(at, limit).await
        });
        async move {
            let (kind, text) = match task.await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error @ ProbeError::Silent { .. })) => {
                    (FaultKind::Unreachable, chain(&error))
                }
                Ok(Err(error @ ProbeError::NotMade { .. })) => {
                    (FaultKind::Contention, chain(&error))
                }
                Err(error) => (FaultKind::UnknownOutcome, chain(&error)),
            };
            Err(Fault::new(kind, Culprit::Guest, text))
        }
        .boxed()
    }

    fn run(&self, target: ShellTarget, command: String, limit: Duration) -> Ask<Ran> {
        let os = target.os;
        self.with_session(target, limit, move |session, left| async move {
            windows::run(session, os, &command, left).await
        })
    }

    fn upload(&self, target: ShellTarget, upload: UploadSpec, limit: Duration) -> Ask<Ran> {
        let files = self.files.read();
        let Some(content) = files.of(&upload.sha256) else {
            let text = format!(
                "drover no longer has the file `{}` as it was when the agent was created: the \
                 configuration has another version or none",
                upload.from
            );
            let fault = Fault::new(FaultKind::Broken, Culprit::Guest, text);
            return async move { Err(fault) }.boxed();
        };
        let os = target.os;
        self.with_session(target, limit, move |session, left| async move {
            put(session, os, &upload, content, left).await
        })
    }

    fn admit(&self, target: ShellTarget, lease: &str, holder: &Holder, limit: Duration) -> Ask<()> {
        let (key, os) = (holder.public_key.as_deref(), target.os);
        let key = match key.map(|key| windows::admit(os, lease, key)).transpose() {
            Ok(key) => key,
            Err(fault) => return async move { Err(fault) }.boxed(),
        };
        let doing = "adding the lease's key";
        if !holder.user_data {
            let command = key.unwrap_or_else(|| windows::nothing(os));
            return self.change_keys(target, vec![command], limit, doing);
        }
        if os.is_windows() {
            return async move { Err(windows::no_user_data()) }.boxed();
        }
        let (store, lease) = (self.user_data.clone(), lease.to_owned());
        self.with_session(target, limit, move |session, left| async move {
            put_user_data(&session, store, lease, left).await?;
            let Some(key) = key else {
                session.close().await;
                return Ok(());
            };
            changed(doing, &exec(session, &key, left).await?)
        })
    }

    fn expel(
        &self,
        target: ShellTarget,
        lease: &str,
        sessions: Sessions,
        limit: Duration,
    ) -> Ask<()> {
        let commands = windows::expel(target.os, lease, sessions);
        self.change_keys(target, commands, limit, "removing the lease's key")
    }
}

fn marker(lease: &str) -> String {
    format!("drover-lease-{lease}")
}

/// The line of a lease's key in `authorized_keys`.
fn key_line(lease: &str, public_key: &str) -> String {
    let fields: Vec<&str> = public_key.split_whitespace().take(2).collect();
    format!("{} {}", fields.join(" "), marker(lease))
}

/// The command that adds a lease's key; to repeat it changes nothing.
fn admit_command(lease: &str, public_key: &str) -> String {
    scripts::grant_access(lease, &key_line(lease, public_key))
}

/// The command that removes a lease's key and files; to repeat it changes nothing. The files come
/// last: by then no session writes one.
fn expel_command(lease: &str, sessions: Sessions) -> String {
    format!("{} && {}", scripts::revoke_access(lease, sessions), guest::remove(lease))
}

#[cfg(test)]
mod tests {
    mod keys;
}
