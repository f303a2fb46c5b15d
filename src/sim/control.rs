//! The control socket of `drover sim`: events outside the API of a running cluster, such as a power
//! failure, a new certificate, or planned faults.
//!
//! A client writes one command a line to a Unix socket. Each answer is one line of JSON:
//! `{"ok": true, …}` or `{"ok": false, "error": "…"}`.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::guests::{Trouble, TroubleError};

const LINE_BYTES_MAX: u64 = 4096;

/// A command to a running cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Show a new certificate of the cluster's own authority, as after a renewal.
    RenewCertificate,
    /// Show a certificate of another authority, as with an administrator's own
    /// `pveproxy-ssl.pem`.
    ReplaceCertificate,
    /// Create a new authority for the cluster, and show a certificate of it.
    RenewAuthority,
    /// Invalidate all login tickets.
    ExpireTickets,
    /// Replace the planned faults by those of a file; none removes all faults.
    Faults(Option<PathBuf>),
    /// Power a node off.
    NodeDown(String),
    NodeUp(String),
    /// Cut a node off from the others: it answers, but has no quorum.
    Isolate(String),
    Rejoin(String),
    /// Set or clear a node's maintenance mode of high availability.
    Maintain(String, bool),
    /// Lock a guest, as a running backup or migration does; none unlocks it.
    Lock(u32, Option<String>),
    /// Move a guest to another node, as a migration does.
    Move(u32, String),
    /// Give a guest one more trouble; none takes all away.
    Trouble(u32, Option<Trouble>),
    /// End a guest as its own `poweroff` does.
    PowerOff(u32),
    /// Go back to the world as it began.
    Reset,
    /// Go to the beginning of a named world.
    World(String),
}

/// All commands, for error messages.
pub const COMMANDS: &str = "renew-certificate, replace-certificate, renew-authority, \
    expire-tickets, faults FILE|none, node-down NODE, node-up NODE, isolate NODE, rejoin NODE, \
    maintenance NODE on|off, lock VMID NAME|none, move VMID NODE, trouble VMID NAME|none, \
    power-off VMID, reset, world NAME";

impl Command {
    /// Parses one line.
    ///
    /// # Errors
    /// The error text of the answer.
    pub fn parse(line: &str) -> Result<Self, String> {
        let (name, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        let rest = rest.trim();
        let node = |command: fn(String) -> Self| match rest {
            "" => Err(format!("`{name}` needs the name of a node")),
            node => Ok(command(node.to_owned())),
        };
        let unknown = || Err(format!("unknown command `{name}`; the commands are: {COMMANDS}"));
        match name {
            "faults" if rest.is_empty() => Err("`faults` needs a file or `none`".to_owned()),
            "faults" if rest == "none" => Ok(Self::Faults(None)),
            "faults" => Ok(Self::Faults(Some(rest.into()))),
            "node-down" => node(Self::NodeDown),
            "node-up" => node(Self::NodeUp),
            "isolate" => node(Self::Isolate),
            "rejoin" => node(Self::Rejoin),
            "maintenance" => match rest.split_once(' ').map(|(node, word)| (node, word.trim())) {
                Some((node, word @ ("on" | "off"))) => {
                    Ok(Self::Maintain(node.to_owned(), word == "on"))
                }
                _ => Err("`maintenance` needs the name of a node and `on` or `off`".to_owned()),
            },
            "lock" => vmid_and_argument(name, rest, "`none` or a lock, such as `backup`")
                .map(|(vmid, lock)| Self::Lock(vmid, (lock != "none").then(|| lock.to_owned()))),
            "move" => vmid_and_argument(name, rest, "the name of a node")
                .map(|(vmid, node)| Self::Move(vmid, node.to_owned())),
            "trouble" => {
                let what = "`none` or a trouble, such as `hangs`";
                match vmid_and_argument(name, rest, what)? {
                    (vmid, "none") => Ok(Self::Trouble(vmid, None)),
                    (vmid, trouble) => match trouble.parse() {
                        Ok(trouble) => Ok(Self::Trouble(vmid, Some(trouble))),
                        Err(error) => Err(TroubleError::to_string(&error)),
                    },
                }
            }
            "power-off" => match rest.parse() {
                Ok(vmid) => Ok(Self::PowerOff(vmid)),
                Err(_) => Err(format!("`{name}` needs a VMID")),
            },
            "reset" => without_argument(name, rest, Self::Reset),
            "world" if rest.is_empty() => Err("`world` needs the name of a world".to_owned()),
            "world" => Ok(Self::World(rest.to_owned())),
            "renew-certificate" => without_argument(name, rest, Self::RenewCertificate),
            "replace-certificate" => without_argument(name, rest, Self::ReplaceCertificate),
            "renew-authority" => without_argument(name, rest, Self::RenewAuthority),
            "expire-tickets" => without_argument(name, rest, Self::ExpireTickets),
            _ => unknown(),
        }
    }
}

fn without_argument(name: &str, rest: &str, command: Command) -> Result<Command, String> {
    match rest {
        "" => Ok(command),
        rest => Err(format!("`{name}` takes no argument, but `{rest}` follows it")),
    }
}

/// Splits an argument into a VMID and the word after it.
fn vmid_and_argument<'a>(name: &str, rest: &'a str, what: &str) -> Result<(u32, &'a str), String> {
    let (vmid, word) = rest.split_once(' ').unwrap_or((rest, ""));
    match (vmid.parse(), word.trim()) {
        (Ok(vmid), word) if !word.is_empty() => Ok((vmid, word)),
        (Ok(_) | Err(_), _) => Err(format!("`{name}` needs a VMID and {what}")),
    }
}

/// A command that waits for its execution.
pub struct PendingCommand {
    pub command: Command,
    /// Takes further keys of the answer, or the error text.
    pub reply: oneshot::Sender<Result<Value, String>>,
}

/// A socket that accepts commands until it is dropped.
pub struct Control {
    path: PathBuf,
    task: tokio::task::JoinHandle<()>,
}

impl Control {
    /// Listens on a socket that only its owner can use.
    ///
    /// # Errors
    /// When the socket cannot be created.
    pub fn listen(path: &Path, commands: mpsc::Sender<PendingCommand>) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Self { path: path.to_owned(), task: tokio::spawn(accept(listener, commands)) })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.task.abort();
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the control socket");
        }
    }
}

async fn accept(listener: UnixListener, commands: mpsc::Sender<PendingCommand>) {
    let mut clients = JoinSet::new();
    loop {
        tokio::select! {
            taken = listener.accept() => match taken {
                Ok((stream, _)) => {
                    clients.spawn(serve_client(stream, commands.clone()));
                }
                Err(error) => tracing::warn!(%error, "cannot accept on the control socket"),
            },
            Some(_) = clients.join_next() => {}
        }
    }
}

async fn serve_client(stream: UnixStream, commands: mpsc::Sender<PendingCommand>) {
    let (reading, mut writing) = stream.into_split();
    let mut reading = BufReader::new(reading);
    loop {
        let mut line = String::new();
        match (&mut reading).take(LINE_BYTES_MAX).read_line(&mut line).await {
            Ok(length) if length > 0 => {}
            Ok(_) | Err(_) => return,
        }
        let outcome = match Command::parse(&line) {
            Ok(command) => execute(command, &commands).await,
            Err(text) => Err(text),
        };
        let answer = match outcome {
            Ok(Value::Object(mut more)) => {
                more.insert("ok".to_owned(), true.into());
                Value::Object(more)
            }
            Ok(_) => json!({ "ok": true }),
            Err(text) => json!({ "ok": false, "error": text }),
        };
        if writing.write_all(format!("{answer}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn execute(
    command: Command,
    commands: &mpsc::Sender<PendingCommand>,
) -> Result<Value, String> {
    let (reply, done) = oneshot::channel();
    let ends = || "the simulator is stopping".to_owned();
    commands.send(PendingCommand { command, reply }).await.map_err(|_| ends())?;
    done.await.map_err(|_| ends())?
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a line is a complete command of the list, or the answer says what is wrong.

    #[test]
    fn every_listed_command_is_accepted() {
        for command in COMMANDS.split(", ") {
            let command = command.replace("VMID", "100").replace("on|off", "on");
            let command = command.replace("trouble 100 NAME|none", "trouble 100 no-agent");
            assert!(Command::parse(&command).is_ok(), "{command}");
        }
        assert_eq!(Command::parse("lock 100 none"), Ok(Command::Lock(100, None)));
        assert_eq!(Command::parse("trouble 100 none"), Ok(Command::Trouble(100, None)));
        assert_eq!(Command::parse("faults none\n"), Ok(Command::Faults(None)));
        assert_eq!(Command::parse(" node-up  pve2 "), Ok(Command::NodeUp("pve2".into())));
    }

    #[test]
    fn an_incomplete_command_is_refused_with_what_is_missing() {
        for (line, says) in [
            ("node-down", "name of a node"),
            ("faults", "a file"),
            ("maintenance pve1", "`on` or `off`"),
            ("lock backup", "a VMID and `none` or a lock"),
            ("move 100", "the name of a node"),
            ("trouble 100", "`none` or a trouble"),
            ("trouble 100 tired", "never-boots, hangs"),
            ("power-off web", "a VMID"),
            ("reset all", "takes no argument"),
            ("world", "the name of a world"),
            ("renew-certificate now", "takes no argument"),
            ("reboot", "renew-certificate"),
            ("", "unknown command"),
        ] {
            let refused = Command::parse(line);
            assert!(refused.as_ref().is_err_and(|text| text.contains(says)), "{refused:?}");
        }
    }
}
