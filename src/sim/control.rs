//! The control face of `drover sim`: what befalls a running cluster from outside of its API, such as
//! a power cut, a new certificate, or planned faults.
//!
//! One command a line on a Unix socket, one line of JSON for each answer: `{"ok": true, …}` or
//! `{"ok": false, "error": "…"}`.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

/// The longest line taken.
const LINE_MAX: u64 = 4096;

/// What a running cluster is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Show a new certificate of the cluster's own authority, as a renewal does.
    RenewCertificate,
    /// Show a certificate of another authority, as an administrator's own `pveproxy-ssl.pem` is.
    ReplaceCertificate,
    /// Make the cluster's own authority anew, and show a certificate of it.
    RenewAuthority,
    /// Take every login ticket for expired.
    ExpireTickets,
    /// Replace the planned faults by those of a file; none for no faults.
    Faults(Option<PathBuf>),
    /// Cut a node's power.
    NodeDown(String),
    /// Bring a node back.
    NodeUp(String),
    /// Cut a node off from the others: it answers, and has no quorum.
    Isolate(String),
    /// End that.
    Rejoin(String),
    /// Let high availability take a node into maintenance, or give it back.
    Maintain(String, bool),
    /// Lock a guest, as a backup or a migration under way does; none unlocks it.
    Lock(u32, Option<String>),
    /// Move a guest to another node, as a migration does.
    Move(u32, String),
}

/// The commands, for messages and the help.
pub const COMMANDS: &str = "renew-certificate, replace-certificate, renew-authority, expire-tickets, \
    faults FILE|none, node-down NODE, node-up NODE, isolate NODE, rejoin NODE, maintenance NODE on|off, lock VMID NAME|none, move VMID NODE";

impl Order {
    /// Reads one line.
    ///
    /// # Errors
    /// The text for who wrote it.
    pub fn parse(line: &str) -> Result<Self, String> {
        let (verb, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        let rest = rest.trim();
        let node = |order: fn(String) -> Self| match rest {
            "" => Err(format!("`{verb}` needs the name of a node")),
            name => Ok(order(name.to_owned())),
        };
        match verb {
            "faults" if rest.is_empty() => Err("`faults` needs a file, or `none`".to_owned()),
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
                _ => Err("`maintenance` needs the name of a node, and `on` or `off`".to_owned()),
            },
            "lock" => guest(verb, rest, "`none` or a lock, such as `backup`")
                .map(|(vmid, lock)| Self::Lock(vmid, (lock != "none").then(|| lock.to_owned()))),
            "move" => guest(verb, rest, "the name of a node")
                .map(|(vmid, node)| Self::Move(vmid, node.to_owned())),
            _ if !rest.is_empty() => Err(format!("`{verb}` is none of: {COMMANDS}")),
            "renew-certificate" => Ok(Self::RenewCertificate),
            "replace-certificate" => Ok(Self::ReplaceCertificate),
            "renew-authority" => Ok(Self::RenewAuthority),
            "expire-tickets" => Ok(Self::ExpireTickets),
            _ => Err(format!("`{verb}` is none of: {COMMANDS}")),
        }
    }
}

/// The VMID that an order begins with, and the word after it.
fn guest<'a>(verb: &str, rest: &'a str, what: &str) -> Result<(u32, &'a str), String> {
    let (vmid, word) = rest.split_once(' ').unwrap_or((rest, ""));
    match (vmid.parse(), word.trim()) {
        (Ok(vmid), word) if !word.is_empty() => Ok((vmid, word)),
        (Ok(_) | Err(_), _) => Err(format!("`{verb}` needs a VMID and {what}")),
    }
}

/// An order with the way back for its answer: more keys of the JSON, or why it was not done.
pub struct Asked {
    /// What is to be done.
    pub order: Order,
    /// Where the outcome goes.
    pub reply: oneshot::Sender<Result<Value, String>>,
}

/// A socket that takes orders until it is dropped.
pub struct Control {
    path: PathBuf,
    task: tokio::task::JoinHandle<()>,
}

impl Control {
    /// Listens on a socket that only its owner may use.
    ///
    /// # Errors
    /// When the socket cannot be had.
    pub fn listen(path: &Path, orders: mpsc::Sender<Asked>) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Self { path: path.to_owned(), task: tokio::spawn(accept(listener, orders)) })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.task.abort();
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "control socket is left behind");
        }
    }
}

async fn accept(listener: UnixListener, orders: mpsc::Sender<Asked>) {
    let mut talks = JoinSet::new();
    loop {
        tokio::select! {
            taken = listener.accept() => match taken {
                Ok((stream, _)) => {
                    talks.spawn(talk(stream, orders.clone()));
                }
                Err(error) => tracing::warn!(%error, "control socket cannot accept"),
            },
            Some(_) = talks.join_next() => {}
        }
    }
}

async fn talk(stream: UnixStream, orders: mpsc::Sender<Asked>) {
    let (reading, mut writing) = stream.into_split();
    let mut reading = BufReader::new(reading);
    loop {
        let mut line = String::new();
        match (&mut reading).take(LINE_MAX).read_line(&mut line).await {
            Ok(length) if length > 0 => {}
            Ok(_) | Err(_) => return,
        }
        let outcome = match Order::parse(&line) {
            Ok(order) => carry_out(order, &orders).await,
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

async fn carry_out(order: Order, orders: &mpsc::Sender<Asked>) -> Result<Value, String> {
    let (reply, done) = oneshot::channel();
    let ends = || "the simulator ends".to_owned();
    orders.send(Asked { order, reply }).await.map_err(|_| ends())?;
    done.await.map_err(|_| ends())?
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a command is one of those that are listed, whole, or its writer reads why not.

    #[test]
    fn every_listed_command_is_taken() {
        for command in COMMANDS.split(", ") {
            let command = command.replace("VMID", "100").replace("on|off", "on");
            assert!(Order::parse(&command).is_ok(), "{command}");
        }
        assert_eq!(Order::parse("lock 100 none"), Ok(Order::Lock(100, None)));
        assert_eq!(Order::parse("faults none\n"), Ok(Order::Faults(None)));
        assert_eq!(Order::parse(" node-up  pve2 "), Ok(Order::NodeUp("pve2".into())));
    }

    #[test]
    fn half_a_command_is_refused_with_what_is_missing() {
        for (line, says) in [
            ("node-down", "name of a node"),
            ("faults", "a file"),
            ("maintenance pve1", "`on` or `off`"),
            ("lock backup", "a VMID and `none` or a lock"),
            ("move 100", "the name of a node"),
            ("renew-certificate now", "none of"),
            ("reboot", "renew-certificate"),
            ("", "none of"),
        ] {
            let refused = Order::parse(line);
            assert!(refused.as_ref().is_err_and(|text| text.contains(says)), "{refused:?}");
        }
    }
}
