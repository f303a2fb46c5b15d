//! One command on a leased machine, over SSH, to its end.

use std::time::Duration;

use bytes::Bytes;
use causes::chain;
use drover_ssh::Output;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

/// A command to run on a leased agent.
pub struct SshJob {
    pub host: String,
    pub port: u16,
    /// The login name.
    pub user: String,
    /// Host keys to accept, public key lines; empty to trust on first use.
    pub host_keys: Vec<String>,
    /// The private key.
    pub key: drover_ssh::PrivateKey,
    /// The command line for the user's shell.
    pub command: String,
    /// What it reads on its standard input.
    pub input: mpsc::Receiver<Bytes>,
    /// Where its output goes; a slow receiver slows the command.
    pub output: mpsc::Sender<Output>,
}

/// Runs commands over SSH.
pub trait RunOverSsh: Send + Sync {
    /// Runs one to its end; gives its exit status (255 when a signal ended it), or why not.
    /// Dropping the future ends the connection.
    fn run(&self, job: SshJob) -> BoxFuture<'static, Result<u32, Cut>>;
}

/// The way that the command line uses.
pub(super) struct OverSsh;

impl RunOverSsh for OverSsh {
    fn run(&self, job: SshJob) -> BoxFuture<'static, Result<u32, Cut>> {
        Box::pin(run(job))
    }
}

/// Why a command has no exit status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// What kept the command from ending, for people.
    pub text: String,
    /// Whether the command was sent to the machine before that.
    pub sent: bool,
}

/// How long a login may be tried: the agent is ready, so only the network may be slow.
const LOGIN_LIMIT: Duration = Duration::from_secs(30);
/// The lease's end cuts the command long before this.
const COMMAND_LIMIT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Runs it; gives its exit status, 255 where a signal ended it.
async fn run(job: SshJob) -> Result<u32, Cut> {
    let before =
        |fault: &(dyn std::error::Error + 'static)| Cut { text: chain(fault), sent: false };
    let host = job.host.parse().map_err(|fault: std::net::AddrParseError| before(&fault))?;
    let target = drover_ssh::Target { host, port: job.port, user: job.user };
    let host_key = if job.host_keys.is_empty() {
        drover_ssh::HostKeyPolicy::TrustOnFirst
    } else {
        drover_ssh::HostKeyPolicy::Pinned(job.host_keys)
    };
    let deadline = tokio::time::Instant::now() + LOGIN_LIMIT;
    let backoff = drover_ssh::Backoff::default();
    let session =
        drover_ssh::connect_until(deadline, &target, &job.key, &host_key, backoff, |_| {});
    let session = session.await.map_err(|fault| before(&fault))?;
    let limits = drover_ssh::Limits {
        time: COMMAND_LIMIT,
        output_bytes_max: 0,
        keep: drover_ssh::Keep::Last,
    };
    let input = drover_ssh::Input::Pieces(job.input);
    let ran = session.exec_reading(&job.command, input, limits, Some(job.output)).await;
    session.close().await;
    let ran = ran.map_err(|fault| {
        // One that could not be written may have gone out in part, which no guest runs.
        let never = matches!(
            fault,
            drover_ssh::ExecError::Refused | drover_ssh::ExecError::NotStarted { .. }
        );
        Cut { text: chain(&fault), sent: !never }
    })?;
    Ok(ran.exit.unwrap_or(255))
}
