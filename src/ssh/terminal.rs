//! A terminal in a guest: the user's shell on a pseudo-terminal (RFC 4254, 6.2, 6.5 and 6.7).
//!
//! [`Session::terminal`] opens it, [`Terminal::run`] carries bytes both ways until the shell ends, the caller
//! wants no more, or the connection is lost. Nothing is kept here: a slow reader slows the guest down.

use std::time::Duration;

use bytes::Bytes;
use russh::client::Msg;
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelWriteHalf};
use tokio::sync::mpsc;

use super::session::{ExecError, ExecResult, Session};

/// What programs in the guest know the terminal as: its abilities are in every terminfo database.
pub const TERMINAL_KIND: &str = "xterm-256color";
/// How long the guest may take to hear that a terminal is over.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    pub columns: u16,
    pub rows: u16,
}

/// What goes into a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalInput {
    /// Keys, as a terminal sends them.
    Bytes(Bytes),
    /// The size that it has from now on.
    Size(TerminalSize),
}

/// What comes out of a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalOutput {
    Bytes(Bytes),
    /// Nothing comes after this.
    Ended(TerminalEnd),
}

/// How a terminal ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminalEnd {
    /// The shell ended, with this status where the guest said one.
    Exited(Option<u32>),
    /// The connection ended before the shell did.
    Lost,
    /// The caller closed it.
    Closed,
}

/// A terminal whose shell runs.
pub struct Terminal {
    read: ChannelReadHalf,
    write: ChannelWriteHalf<Msg>,
}

impl std::fmt::Debug for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Terminal")
    }
}

impl Session {
    /// Opens a terminal of this size and starts the user's shell in it, within `limit`.
    ///
    /// # Errors
    /// See [`ExecError`]: a guest that gives no terminal refuses.
    pub async fn terminal(
        &self,
        size: TerminalSize,
        limit: Duration,
    ) -> Result<Terminal, ExecError> {
        let too_late = |_| ExecError::TimedOut { after: limit, partial: Box::default() };
        let open = async {
            let not_started = |source| ExecError::NotStarted { source };
            let channel = self.open_channel().await.map_err(not_started)?;
            self.pass().await;
            let (columns, rows) = (size.columns.into(), size.rows.into());
            let asked = channel.request_pty(true, TERMINAL_KIND, columns, rows, 0, 0, &[]).await;
            asked.map_err(not_started)?;
            channel.request_shell(true).await.map_err(not_started)?;
            accepted(channel).await
        };
        tokio::time::timeout(limit, open).await.map_err(too_late)?
    }
}

/// Waits until the guest has taken both requests.
async fn accepted(mut channel: Channel<Msg>) -> Result<Terminal, ExecError> {
    let mut left = 2;
    while left > 0 {
        match channel.wait().await {
            Some(ChannelMsg::Success) => left -= 1,
            Some(ChannelMsg::Failure) => return Err(ExecError::Refused),
            Some(ChannelMsg::Close) | None => {
                return Err(ExecError::Lost { partial: Box::new(ExecResult::default()) });
            }
            // A shell says nothing before it was started.
            Some(_) => {}
        }
    }
    let (read, write) = channel.split();
    Ok(Terminal { read, write })
}

impl Terminal {
    /// Carries `input` in and what comes out to `output`, until either end is over. The end of `input`
    /// closes the terminal.
    pub async fn run(
        self,
        input: mpsc::Receiver<TerminalInput>,
        output: &mpsc::Sender<TerminalOutput>,
    ) -> TerminalEnd {
        let Self { mut read, write } = self;
        // Each waits for its own side alone: a guest that reads nothing must still be heard.
        let end = tokio::select! {
            end = drain(&mut read, output) => end,
            end = feed(&write, input) => end,
            // A guest that reads nothing would keep the connection open behind keys that wait.
            () = output.closed() => TerminalEnd::Closed,
        };
        let _late = tokio::time::timeout(CLOSE_LIMIT, write.close()).await;
        end
    }
}

async fn drain(read: &mut ChannelReadHalf, output: &mpsc::Sender<TerminalOutput>) -> TerminalEnd {
    let mut exit = None;
    let mut has_ended = false;
    loop {
        match read.wait().await {
            Some(ChannelMsg::Data { data } | ChannelMsg::ExtendedData { data, .. }) => {
                if output.send(TerminalOutput::Bytes(data)).await.is_err() {
                    return TerminalEnd::Closed;
                }
            }
            Some(ChannelMsg::ExitStatus { exit_status }) => {
                exit = Some(exit_status);
                has_ended = true;
            }
            Some(ChannelMsg::ExitSignal { .. }) => has_ended = true,
            Some(ChannelMsg::Close) => return TerminalEnd::Exited(exit),
            None if has_ended => return TerminalEnd::Exited(exit),
            None => return TerminalEnd::Lost,
            Some(_) => {}
        }
    }
}

async fn feed(
    write: &ChannelWriteHalf<Msg>,
    mut input: mpsc::Receiver<TerminalInput>,
) -> TerminalEnd {
    while let Some(next) = input.recv().await {
        let sent = match next {
            TerminalInput::Bytes(bytes) => write.data_bytes(bytes).await,
            TerminalInput::Size(TerminalSize { columns, rows }) => {
                write.window_change(columns.into(), rows.into(), 0, 0).await
            }
        };
        if sent.is_err() {
            return TerminalEnd::Lost;
        }
    }
    TerminalEnd::Closed
}
