//! The actors' way into guests: their `Shell` port over the SSH client.
//!
//! Holds the private keys by credentials id and by public key; every call is one login on the ports' runtime.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use drover_actors::fault::{Culprit, Fault, FaultKind};
use drover_actors::ports::{Ask, Ran, Shell, ShellTarget};
use drover_actors::spec::SshSpec;
use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::causes::chain;
use crate::ssh::{
    ConnectError, ExecError, ExecResult, HostKeyPolicy, Keep, Limits, PrivateKey, Session, Target,
    connect, quote,
};

/// How much of each output stream a step keeps.
const TAIL_BYTES: usize = 16 * 1024;
/// How much of it is told in a fault.
const TAIL_LINES: usize = 12;

/// The SSH port of the actors.
pub struct SshShell {
    keys: Arc<RwLock<Keys>>,
    runtime: Handle,
}

/// Private keys: agents live by the one they were born with, whatever its id stands for later.
#[derive(Default)]
struct Keys {
    by_public: BTreeMap<String, PrivateKey>,
    by_id: BTreeMap<String, PrivateKey>,
}

impl Keys {
    /// The key of an agent; one born before this start whose key has left the configuration since
    /// is tried with what its id stands for.
    fn of(&self, ssh: &SshSpec) -> Option<PrivateKey> {
        let born_with = self.by_public.get(&ssh.public_key);
        born_with.or_else(|| self.by_id.get(&ssh.credentials_id)).cloned()
    }
}

impl SshShell {
    /// A shell without keys; logins run on `runtime`.
    pub fn new(runtime: Handle) -> Self {
        Self { keys: Arc::default(), runtime }
    }

    /// Takes the keys of a configuration. Keys that left it are kept: agents born with them live on.
    pub fn add_keys(&self, keys: impl IntoIterator<Item = (String, PrivateKey)>) {
        let mut all = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        for (id, key) in keys {
            all.by_public.insert(key.public_line(""), key.clone());
            all.by_id.insert(id, key);
        }
    }

    fn key(&self, ssh: &SshSpec) -> Result<PrivateKey, Fault> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.of(ssh).ok_or_else(|| {
            let text = format!(
                "the SSH key `{}` is not in `credentials`: put it back until its agents are gone",
                ssh.credentials_id
            );
            Fault::new(FaultKind::Broken, Culprit::Template, text)
        })
    }

    /// Logs in and hands the session to `work`, all within `limit`.
    fn with_session<T, W, F>(&self, target: ShellTarget, limit: Duration, work: W) -> Ask<T>
    where
        T: Send + 'static,
        W: FnOnce(Session, Duration) -> F + Send + 'static,
        F: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        let key = self.key(&target.ssh);
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
            let session = connect(&target, &key, &policy, limit).await.map_err(login_fault)?;
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

    fn script(
        &self,
        target: ShellTarget,
        command: String,
        limit: Duration,
        doing: &'static str,
    ) -> Ask<()> {
        self.with_session(target, limit, move |session, left| async move {
            let ran = exec(session, &command, left).await?;
            if ran.exit == Some(0) {
                Ok(())
            } else {
                let text = format!("{doing} failed: {}", ran.tail);
                Err(Fault::new(FaultKind::Broken, Culprit::Guest, text))
            }
        })
    }
}

impl Shell for SshShell {
    fn greet(&self, target: ShellTarget, limit: Duration) -> Ask<String> {
        self.with_session(target, limit, |session, _| async move {
            let line = session.host_key().line();
            session.close().await;
            Ok(line)
        })
    }

    fn run(&self, target: ShellTarget, command: String, limit: Duration) -> Ask<Ran> {
        self.with_session(target, limit, move |session, left| async move {
            exec(session, &command, left).await
        })
    }

    fn admit(
        &self,
        target: ShellTarget,
        lease: &str,
        public_key: &str,
        limit: Duration,
    ) -> Ask<()> {
        self.script(target, admit_command(lease, public_key), limit, "adding the lease's key")
    }

    fn expel(&self, target: ShellTarget, lease: &str, limit: Duration) -> Ask<()> {
        self.script(target, expel_command(lease), limit, "removing the lease's key")
    }
}

async fn exec(session: Session, command: &str, limit: Duration) -> Result<Ran, Fault> {
    let limits = Limits { time: limit, output_bytes_max: TAIL_BYTES, keep: Keep::Last };
    let outcome = session.exec(command, None, limits, None).await;
    session.close().await;
    match outcome {
        Ok(result) => Ok(Ran { exit: result.exit, tail: tail(&result) }),
        Err(ExecError::TimedOut { partial, after }) => {
            let tail = format!("{}\n(ended after {} s)", tail(&partial), after.as_secs());
            Ok(Ran { exit: None, tail: tail.trim_start().to_owned() })
        }
        Err(ExecError::Lost { partial }) => {
            let text = format!("the connection was lost while a command ran; {}", tail(&partial));
            Err(Fault::new(FaultKind::UnknownOutcome, Culprit::Guest, text))
        }
        Err(error @ (ExecError::Refused | ExecError::NotStarted { .. })) => {
            Err(Fault::new(FaultKind::Unreachable, Culprit::Guest, chain(&error)))
        }
    }
}

/// The last lines of both streams, errors last.
fn tail(result: &ExecResult) -> String {
    let text =
        [&result.stdout, &result.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let lines: Vec<&str> = text.iter().flat_map(|text| text.lines()).collect();
    let from = lines.len().saturating_sub(TAIL_LINES);
    lines[from..].join("\n").chars().filter(|ch| !ch.is_control() || *ch == '\n').collect()
}

fn login_fault(error: ConnectError) -> Fault {
    let (kind, culprit) = match &error {
        ConnectError::Unreachable { .. } | ConnectError::TimedOut { .. } => {
            (FaultKind::Unreachable, Culprit::Guest)
        }
        ConnectError::KeyRejected { .. } => (FaultKind::KeyRejected, Culprit::Template),
        ConnectError::Impostor { .. } => (FaultKind::Impostor, Culprit::Guest),
        ConnectError::BadPin { .. } | ConnectError::Protocol { .. } => {
            (FaultKind::Broken, Culprit::Guest)
        }
    };
    Fault::new(kind, culprit, chain(&error))
}

fn marker(lease: &str) -> String {
    format!("drover-lease-{lease}")
}

/// Appends the key once; a repeated call changes nothing.
fn admit_command(lease: &str, public_key: &str) -> String {
    let fields: Vec<&str> = public_key.split_whitespace().take(2).collect();
    let line = quote(&format!("{} {}", fields.join(" "), marker(lease)));
    format!(
        "umask 077 && mkdir -p ~/.ssh && touch ~/.ssh/authorized_keys && \
         {{ grep -qxF {line} ~/.ssh/authorized_keys || printf '%s\\n' {line} >> ~/.ssh/authorized_keys; }}"
    )
}

/// Takes the lease's lines out again, in place so that owner and mode stay.
fn expel_command(lease: &str) -> String {
    let marker = quote(&format!(" {}$", marker(lease)));
    format!(
        "test ! -e ~/.ssh/authorized_keys || {{ kept=$(grep -v {marker} ~/.ssh/authorized_keys); \
         printf '%s\\n' \"$kept\" > ~/.ssh/authorized_keys; }}"
    )
}

/// Whether a command is exactly one that adds or removes a lease's key.
///
/// For places that run nothing else unisolated.
pub fn is_housekeeping(command: &str) -> bool {
    let Some((before, after)) = command.split_once("drover-lease-") else { return false };
    let lease: String = after.chars().take_while(char::is_ascii_alphanumeric).collect();
    let key = before.split_once("grep -qxF '").map_or("", |(_, key)| key.trim_end());
    command == expel_command(&lease) || command == admit_command(&lease, key)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: an agent is logged in to with the key it was born with.

    #[test]
    fn an_agent_keeps_its_key_when_another_takes_its_id() {
        let key = |seed| PrivateKey::from_seed(&[seed; 32], "drover-test");
        let mut keys = Keys::default();
        for key in [key(1), key(2)] {
            keys.by_public.insert(key.public_line(""), key.clone());
            keys.by_id.insert("ssh".into(), key);
        }
        let born_with = |key: &PrivateKey| {
            let (credentials_id, user) = ("ssh".into(), "ci".into());
            let ssh = SshSpec { credentials_id, user, port: 22, public_key: key.public_line("") };
            keys.of(&ssh).map(|key| key.public_line(""))
        };
        assert_eq!(born_with(&key(1)), Some(key(1).public_line("")));
        assert_eq!(born_with(&key(2)), Some(key(2).public_line("")));
        assert_eq!(born_with(&key(3)), Some(key(2).public_line("")), "its own is not there");
    }

    // Invariant: a lease's key can be added and removed any number of times.

    #[test]
    fn a_key_is_added_without_its_comment_and_marked_with_the_lease() {
        let command = admit_command("l1", "ssh-ed25519 AAAA it's me");
        assert!(command.contains("'ssh-ed25519 AAAA drover-lease-l1'"), "{command}");
        assert!(!command.contains("it's me"), "{command}");
    }

    #[test]
    fn only_the_very_commands_of_lease_keys_are_housekeeping() {
        for command in [admit_command("l1", "ssh-ed25519 AAAA"), expel_command("l1")] {
            assert!(is_housekeeping(&command), "{command}");
            assert!(!is_housekeeping(&format!("{command}; reboot")));
        }
        assert!(!is_housekeeping("echo drover-lease-l1"));
    }

    #[test]
    fn keys_come_and_go_in_a_real_shell() {
        let Ok(home) = tempfile::tempdir() else { return };
        let run = |command: &str| {
            let status = std::process::Command::new("/bin/sh")
                .args(["-ec", command])
                .env("HOME", home.path())
                .status();
            assert!(status.is_ok_and(|status| status.success()), "{command}");
            std::fs::read_to_string(home.path().join(".ssh/authorized_keys")).unwrap_or_default()
        };
        run("mkdir -m 700 ~/.ssh; echo 'ssh-ed25519 BBBB keep' > ~/.ssh/authorized_keys");
        for _ in 0..2 {
            let keys = run(&admit_command("l1", "ssh-ed25519 AAAA"));
            assert_eq!(keys, "ssh-ed25519 BBBB keep\nssh-ed25519 AAAA drover-lease-l1\n");
        }
        for _ in 0..2 {
            assert_eq!(run(&expel_command("l1")), "ssh-ed25519 BBBB keep\n");
        }
    }
}
