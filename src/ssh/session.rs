//! A session: commands on a guest, with what they print bounded.

use std::time::Duration;

use bytes::Bytes;
use russh::client::{Handle, Msg};
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Disconnect, Sig};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::client::Gate;
use super::key::PublicKey;

/// The longest piece of input sent at once.
const PIECE_BYTES: usize = 32 * 1024;

/// What one command may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Its longest run.
    pub time: Duration,
    /// How many bytes of each stream are kept.
    pub output_bytes_max: usize,
    /// Which end of a longer stream is kept.
    pub keep: Keep,
}

/// Which end of a stream longer than the limit is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Its beginning: for answers that are parsed.
    First,
    /// Its end: for logs, where the failure stands.
    Last,
}

/// A piece of output, in the order it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// From standard output.
    Stdout(Bytes),
    /// From standard error.
    Stderr(Bytes),
}

/// How a command ended, and what is kept of its output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecResult {
    /// Its exit status; none when a signal ended it or the guest did not tell.
    pub exit: Option<u32>,
    /// The signal that ended it, such as `KILL`.
    pub signal: Option<String>,
    /// What is kept of its standard output.
    pub stdout: Vec<u8>,
    /// What is kept of its standard error.
    pub stderr: Vec<u8>,
    /// Whether either stream was longer than the limit.
    pub truncated: bool,
}

impl ExecResult {
    /// Whether it ended with status 0.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.exit == Some(0)
    }
}

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// It ran longer than allowed, and was killed as far as the guest obeys.
    #[error("the command did not end within {after:?}")]
    TimedOut {
        /// The limit.
        after: Duration,
        /// What it had printed by then.
        partial: Box<ExecResult>,
    },
    /// The guest refused to run it.
    #[error("the guest refused to run the command")]
    Refused,
    /// The connection ended before the command did.
    #[error("the connection was lost while the command ran")]
    Lost {
        /// What it had printed by then.
        partial: Box<ExecResult>,
    },
    /// No channel could be opened or written.
    #[error("the command could not be started")]
    NotStarted {
        /// Why.
        #[source]
        source: russh::Error,
    },
}

/// A login that stands.
pub struct Session {
    handle: Handle<Gate>,
    host_key: PublicKey,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({})", self.host_key.fingerprint())
    }
}

impl Session {
    pub(super) fn new(handle: Handle<Gate>, host_key: PublicKey) -> Self {
        Self { handle, host_key }
    }

    /// The host key the guest showed and proved.
    #[must_use]
    pub fn host_key(&self) -> &PublicKey {
        &self.host_key
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// Says good-bye; dropping the session without it only cuts the connection.
    pub async fn close(self) {
        // The other end may be gone already, which is what was wanted.
        let _gone = self.handle.disconnect(Disconnect::ByApplication, "", "").await;
    }

    /// Opens a channel to a subsystem; whether the guest has it is told on the channel.
    pub(super) async fn subsystem(&self, name: &str) -> Result<Channel<Msg>, russh::Error> {
        let channel = self.handle.channel_open_session().await?;
        channel.request_subsystem(true, name).await?;
        Ok(channel)
    }

    /// Runs a command in the user's shell, with `input` on its standard input.
    ///
    /// `output` gets every piece as it comes, past the limit of what is kept too; a slow receiver
    /// slows the guest, a dropped one is forgotten.
    ///
    /// # Errors
    /// See [`ExecError`]; a status other than 0 is no error.
    pub async fn exec(
        &self,
        command: &str,
        input: Option<Bytes>,
        limits: Limits,
        output: Option<mpsc::Sender<Output>>,
    ) -> Result<ExecResult, ExecError> {
        let deadline = Instant::now() + limits.time;
        let not_started = |source| ExecError::NotStarted { source };
        let too_late = || ExecError::TimedOut { after: limits.time, partial: Box::default() };
        let open = async {
            let channel = self.handle.channel_open_session().await?;
            channel.exec(true, command).await?;
            Ok(channel)
        };
        let channel = tokio::time::timeout_at(deadline, open)
            .await
            .map_err(|_| too_late())?
            .map_err(not_started)?;
        let (mut read, write) = channel.split();

        let mut run = Run::new(limits, output);
        let ended = tokio::time::timeout_at(deadline, run.follow(&mut read, &write, input)).await;
        match ended {
            Ok(End::Closed) => Ok(run.finish()),
            Ok(End::Refused) => Err(ExecError::Refused),
            Ok(End::Lost) => Err(ExecError::Lost { partial: Box::new(run.finish()) }),
            Err(_) => {
                // Best effort: a hostile guest need not obey, and the session may be gone.
                let kill = async {
                    let _sent = write.signal(Sig::KILL).await;
                    let _closed = write.close().await;
                };
                let _told = tokio::time::timeout(Duration::from_secs(1), kill).await;
                let partial = Box::new(run.finish());
                Err(ExecError::TimedOut { after: limits.time, partial })
            }
        }
    }
}

enum End {
    Closed,
    Refused,
    Lost,
}

/// One command under way.
struct Run {
    limits: Limits,
    output: Option<mpsc::Sender<Output>>,
    result: ExecResult,
}

impl Run {
    fn new(limits: Limits, output: Option<mpsc::Sender<Output>>) -> Self {
        Self { limits, output, result: ExecResult::default() }
    }

    /// Reads to the end while the input is written beside it: either side may wait for the other.
    async fn follow(
        &mut self,
        read: &mut ChannelReadHalf,
        write: &ChannelWriteHalf<Msg>,
        input: Option<Bytes>,
    ) -> End {
        let feed = feed(write, input.unwrap_or_default());
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
                        return End::Closed;
                    }
                    None => return End::Lost,
                }
            }
        }
    }

    async fn take(&mut self, message: ChannelMsg) -> Option<End> {
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
            ChannelMsg::Failure => return Some(End::Refused),
            ChannelMsg::Close => return Some(End::Closed),
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
                // Cut seldom, so that a long log is not moved for each of its lines.
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

/// Writes the input and its end; a command that ends without reading it is none of its business.
async fn feed(write: &ChannelWriteHalf<Msg>, mut input: Bytes) {
    while !input.is_empty() {
        let piece = input.split_to(input.len().min(PIECE_BYTES));
        if write.data_bytes(piece).await.is_err() {
            return;
        }
    }
    let _ended = write.eof().await;
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
