//! All that a command on a lease needs besides its options: the service, the way to the machine, and how
//! long to wait for either.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use drover_api::SshOut;
use drover_ssh::Output;
use tokio::sync::mpsc;

use super::client::Client;
use super::identity::Identity;
use super::over_ssh::{RunOverSsh, SshJob};

/// How patient the command is with a service that restarts.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeLimits {
    /// How often a call is repeated.
    pub tries: u32,
    /// The pause between two.
    pub pause: Duration,
    /// How long the service may hold one question for the lease's state, in seconds.
    pub wait_seconds: u64,
    /// The pause between two questions whether the lease of a running command is over.
    pub watch: Duration,
    /// How long the end of a lease is waited for whose command was cut and whose machine does not answer:
    /// the service knows of a death within that time.
    pub loss: Duration,
}

impl Default for TimeLimits {
    fn default() -> Self {
        let (watch, loss) = (Duration::from_secs(5), Duration::from_secs(30));
        Self { tries: 30, pause: Duration::from_secs(1), wait_seconds: 2, watch, loss }
    }
}

/// Reads what the command gets on its standard input, until that ends or nobody takes it.
pub(super) type ReadInput = fn(mpsc::Sender<Bytes>);

/// All that leasing needs besides the options.
pub(super) struct Leasing<'a> {
    pub client: &'a Client,
    /// The way to run commands.
    pub over: &'a dyn RunOverSsh,
    /// Reads the input of the command.
    pub input: ReadInput,
    /// How patient to be.
    pub time_limits: TimeLimits,
    /// Where keys of leases that are kept go.
    pub key_dir: PathBuf,
    /// Whether to print JSON.
    pub json: bool,
}

/// A command on the machine of a lease, by its holder's key.
pub(super) fn job(
    (ssh, identity): (&SshOut, &Identity),
    command: String,
    input: mpsc::Receiver<Bytes>,
    output: mpsc::Sender<Output>,
) -> SshJob {
    SshJob {
        host: ssh.host.clone(),
        port: ssh.port,
        user: ssh.user.clone(),
        host_keys: ssh.host_keys.clone(),
        key: identity.key.clone(),
        command,
        input,
        output,
    }
}
