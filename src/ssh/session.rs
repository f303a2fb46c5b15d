//! A session: runs commands on a guest and bounds what they print.
//!
//! [`Session::exec`] writes the input and reads the output at the same time, passes pieces on as
//! they come, and keeps the beginning or the end of each stream up to a limit. A command that runs
//! too long gets `KILL` and ends as [`ExecError::TimedOut`] with its output so far; a lost
//! connection ends as [`ExecError::Lost`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use russh::client::{Handle, Msg};
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Disconnect, Sig};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::client::HostKeyCheck;
use super::key::PublicKey;

/// The largest piece of input that is sent at once.
const PIECE_BYTES: usize = 32 * 1024;

/// The limits of one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How long it may run.
    pub time: Duration,
    /// How many bytes of each output stream are kept.
    pub output_bytes_max: usize,
    /// Which end of a longer stream is kept.
    pub keep: Keep,
}

/// Which end of a stream is kept when it exceeds the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The beginning: for answers that are parsed.
    First,
    /// The end: for logs, where the failure is.
    Last,
}

/// A piece of output, in the order of arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    Stdout(Bytes),
    Stderr(Bytes),
}

/// How a command ended, with the kept part of its output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecResult {
    /// The exit status; none when a signal ended the command or the guest did not say.
    pub exit: Option<u32>,
    /// The signal that ended the command, such as `KILL`.
    pub signal: Option<String>,
    /// The kept part of standard output.
    pub stdout: Vec<u8>,
    /// The kept part of standard error.
    pub stderr: Vec<u8>,
    /// Whether a stream exceeded the limit.
    pub truncated: bool,
}

impl ExecResult {
    /// Whether the command ended with status 0.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.exit == Some(0)
    }
}

/// What a command reads on its standard input.
#[derive(Debug)]
pub enum Input {
    /// These bytes, then the end.
    Whole(Bytes),
    /// Pieces as they come, and the end when no sender is left.
    Pieces(mpsc::Receiver<Bytes>),
}

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The command ran too long. drover sent `KILL`, which the guest may ignore.
    #[error("the command did not end within {after:?}")]
    TimedOut {
        after: Duration,
        /// The output until then.
        partial: Box<ExecResult>,
    },
    /// The guest refused to run the command.
    #[error("the guest refused to run the command")]
    Refused,
    /// The connection ended before the command did.
    #[error("the connection was lost while the command ran")]
    Lost {
        /// The output until then.
        partial: Box<ExecResult>,
    },
    /// No channel could be opened or written to.
    #[error("the command could not be started")]
    NotStarted {
        #[source]
        source: russh::Error,
    },
}

/// Asked right before something starts in the guest; it starts when the answer comes.
pub type Gate = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// A connection that is logged in.
pub struct Session {
    handle: Handle<HostKeyCheck>,
    host_key: PublicKey,
    gate: Option<Gate>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({})", self.host_key.fingerprint())
    }
}

impl Session {
    pub(super) fn new(handle: Handle<HostKeyCheck>, host_key: PublicKey) -> Self {
        Self { handle, host_key, gate: None }
    }

    /// The same, with a gate before each command and upload.
    #[must_use]
    pub fn gated(self, gate: Gate) -> Self {
        Self { gate: Some(gate), ..self }
    }

    pub(super) async fn pass(&self) {
        if let Some(gate) = &self.gate {
            gate().await;
        }
    }

    /// The host key that the guest presented and proved to own.
    #[must_use]
    pub fn host_key(&self) -> &PublicKey {
        &self.host_key
    }

    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// Disconnects properly; dropping the session only cuts the connection.
    pub async fn close(self) {
        // The other end may be gone already, which is fine.
        let _gone = self.handle.disconnect(Disconnect::ByApplication, "", "").await;
    }

    pub(super) async fn open_channel(&self) -> Result<Channel<Msg>, russh::Error> {
        self.handle.channel_open_session().await
    }

    /// Opens a channel to a subsystem. The guest reports on the channel whether it has the
    /// subsystem.
    pub(super) async fn subsystem(&self, name: &str) -> Result<Channel<Msg>, russh::Error> {
        let channel = self.handle.channel_open_session().await?;
        self.pass().await;
        channel.request_subsystem(true, name).await?;
        Ok(channel)
    }

    /// Runs a command in the user's shell, with `input` on its standard input.
    ///
    /// `output` receives every piece of output as it comes, also beyond the limit of what is kept.
    /// A slow receiver slows the guest down; a dropped receiver is ignored.
    ///
    /// # Errors
    /// See [`ExecError`]; a status other than 0 is not an error.
    pub async fn exec(
        &self,
        command: &str,
        input: Option<Bytes>,
        limits: Limits,
        output: Option<mpsc::Sender<Output>>,
    ) -> Result<ExecResult, ExecError> {
        self.exec_reading(command, Input::Whole(input.unwrap_or_default()), limits, output).await
    }

    /// The same for input that may still come while the command runs. The command's end is the end:
    /// input that nobody reads is left where it is.
    ///
    /// # Errors
    /// As [`Self::exec`].
    pub async fn exec_reading(
        &self,
        command: &str,
        input: Input,
        limits: Limits,
        output: Option<mpsc::Sender<Output>>,
    ) -> Result<ExecResult, ExecError> {
        let deadline = Instant::now() + limits.time;
        let not_started = |source| ExecError::NotStarted { source };
        let too_late = || ExecError::TimedOut { after: limits.time, partial: Box::default() };
        let open = async {
            let channel = self.handle.channel_open_session().await?;
            self.pass().await;
            channel.exec(true, command).await?;
            Ok(channel)
        };
        let channel = tokio::time::timeout_at(deadline, open)
            .await
            .map_err(|_| too_late())?
            .map_err(not_started)?;
        let (mut read, write) = channel.split();

        let mut run = RunningCommand::new(limits, output);
        let ended = tokio::time::timeout_at(deadline, run.follow(&mut read, &write, input)).await;
        match ended {
            Ok(CommandEnd::Closed) => Ok(run.finish()),
            Ok(CommandEnd::Refused) => Err(ExecError::Refused),
            Ok(CommandEnd::Lost) => Err(ExecError::Lost { partial: Box::new(run.finish()) }),
            Err(_) => {
                // Best effort: a hostile guest may ignore it, and the session may be gone.
                let kill = async {
                    let _sent = write.signal(Sig::KILL).await;
                    let _closed = write.close().await;
                };
                let _sent = tokio::time::timeout(Duration::from_secs(1), kill).await;
                let partial = Box::new(run.finish());
                Err(ExecError::TimedOut { after: limits.time, partial })
            }
        }
    }
}

enum CommandEnd {
    Closed,
    Refused,
    Lost,
}

/// A command that runs.
struct RunningCommand {
    limits: Limits,
    output: Option<mpsc::Sender<Output>>,
    result: ExecResult,
}

impl RunningCommand {
    fn new(limits: Limits, output: Option<mpsc::Sender<Output>>) -> Self {
        Self { limits, output, result: ExecResult::default() }
    }

    /// Reads to the end while the input is written at the same time: either side may wait for the
    /// other.
    async fn follow(
        &mut self,
        read: &mut ChannelReadHalf,
        write: &ChannelWriteHalf<Msg>,
        input: Input,
    ) -> CommandEnd {
        let feed = feed(write, input);
        tokio::pin!(feed);
        let mut fed = false;
        loop {
            tokio::select! {
                () = &mut feed, if !fed => fed = true,
                message = read.wait() => match message {
                    Some(message) => if let Some(end) = self.take(message).await {
                        return end;
                    },
                    None if self.result.exit.is_some() || self.result.signal.is_some() => {
                        return CommandEnd::Closed;
                    }
                    None => return CommandEnd::Lost,
                }
            }
        }
    }

    async fn take(&mut self, message: ChannelMsg) -> Option<CommandEnd> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "a guest may send any message")]
        match message {
            ChannelMsg::Data { data } => {
                self.keep(&data, |result| &mut result.stdout);
                self.pass_on(Output::Stdout(data)).await;
            }
            ChannelMsg::ExtendedData { data, .. } => {
                self.keep(&data, |result| &mut result.stderr);
                self.pass_on(Output::Stderr(data)).await;
            }
            ChannelMsg::ExitStatus { exit_status } => self.result.exit = Some(exit_status),
            ChannelMsg::ExitSignal { signal_name, .. } => {
                self.result.signal = Some(signal_word(&signal_name));
            }
            ChannelMsg::Failure => return Some(CommandEnd::Refused),
            ChannelMsg::Close => return Some(CommandEnd::Closed),
            _ => {}
        }
        None
    }

    fn keep(&mut self, data: &[u8], stream: fn(&mut ExecResult) -> &mut Vec<u8>) {
        let max = self.limits.output_bytes_max;
        let kept = stream(&mut self.result);
        let too_long = kept.len() + data.len() > max;
        match self.limits.keep {
            Keep::First => {
                let room = max.saturating_sub(kept.len()).min(data.len());
                kept.extend_from_slice(data.get(..room).unwrap_or_default());
            }
            Keep::Last => {
                kept.extend_from_slice(data);
                // Cut rarely, so that a long log is not moved for each of its lines.
                if kept.len() > max.saturating_mul(2).max(max + PIECE_BYTES) {
                    kept.drain(..kept.len() - max);
                }
            }
        }
        self.result.truncated |= too_long;
    }

    async fn pass_on(&mut self, piece: Output) {
        if let Some(output) = &self.output
            && output.send(piece).await.is_err()
        {
            self.output = None;
        }
    }

    fn finish(mut self) -> ExecResult {
        let max = self.limits.output_bytes_max;
        for stream in [&mut self.result.stdout, &mut self.result.stderr] {
            let surplus = stream.len().saturating_sub(max);
            stream.drain(..surplus);
        }
        self.result
    }
}

/// Writes the input and its end. That a command ends without reading its input is not an error.
async fn feed(write: &ChannelWriteHalf<Msg>, input: Input) {
    let is_taken = match input {
        Input::Whole(bytes) => send(write, bytes).await,
        Input::Pieces(mut pieces) => {
            let mut is_taken = true;
            while is_taken && let Some(piece) = pieces.recv().await {
                is_taken = send(write, piece).await;
            }
            is_taken
        }
    };
    if is_taken {
        let _ended = write.eof().await;
    }
}

/// Writes a part of the input; whether it is taken.
async fn send(write: &ChannelWriteHalf<Msg>, mut bytes: Bytes) -> bool {
    while !bytes.is_empty() {
        let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
        if write.data_bytes(piece).await.is_err() {
            return false;
        }
    }
    true
}

fn signal_word(signal: &Sig) -> String {
    match signal {
        Sig::ABRT => "ABRT".to_owned(),
        Sig::ALRM => "ALRM".to_owned(),
        Sig::FPE => "FPE".to_owned(),
        Sig::HUP => "HUP".to_owned(),
        Sig::ILL => "ILL".to_owned(),
        Sig::INT => "INT".to_owned(),
        Sig::KILL => "KILL".to_owned(),
        Sig::PIPE => "PIPE".to_owned(),
        Sig::QUIT => "QUIT".to_owned(),
        Sig::SEGV => "SEGV".to_owned(),
        Sig::TERM => "TERM".to_owned(),
        Sig::USR1 => "USR1".to_owned(),
        Sig::Custom(word) => word.chars().filter(char::is_ascii_alphanumeric).take(16).collect(),
    }
}
