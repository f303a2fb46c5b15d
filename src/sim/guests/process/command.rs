//! One command of an SSH session: its process, and the data between it and the client.

use std::collections::{BTreeMap, VecDeque};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use russh::server::{Handle, Msg};
use russh::{Channel, ChannelId, ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Sig};
use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::process::Child;

use super::known_commands;
use super::machine::{Machine, signal_group};
use super::pty::{Pty, PtyRequest, with_terminal};
use drover_ssh::join;

/// The most input that waits for a command that does not read it.
const QUEUED_INPUT_BYTES_MAX: usize = 64 << 20;
/// How long to wait for output of processes that a command leaves behind.
const OUTPUT_GRACE: Duration = Duration::from_millis(300);
/// The exit status of a command that could not be started.
const EXIT_NOT_RUN: u32 = 126;

pub(super) struct SessionCommand {
    pub machine: Arc<Machine>,
    pub words: Vec<String>,
    pub variables: BTreeMap<String, String>,
    /// The terminal that the command runs in, where the client asked for one.
    pub terminal: Option<PtyRequest>,
}

/// A command that runs, with this end of its streams.
struct Running {
    child: Child,
    input: Box<dyn AsyncWrite + Send + Unpin>,
    output: Box<dyn AsyncRead + Send + Unpin>,
    /// A terminal has one stream for both.
    errors: Option<Box<dyn AsyncRead + Send + Unpin>>,
    pty: Option<Pty>,
}

impl SessionCommand {
    /// Runs the command to its end, and reports the status. The process continues when the client
    /// disconnects, as with `sshd`.
    pub(super) async fn serve(self, channel: Channel<Msg>, handle: Handle) {
        let id = channel.id();
        let (read, write) = channel.split();
        let status = match self.run(read, &write).await {
            Ok(status) => status,
            Err(said) => {
                let _gone = write.extended_data_bytes(1, Bytes::from(said)).await;
                let _gone = write.exit_status(EXIT_NOT_RUN).await;
                None
            }
        };
        if let Some(status) = status {
            send_status(&handle, id, &write, status).await;
        }
        let _gone = write.eof().await;
        let _gone = write.close().await;
    }

    async fn run(
        self,
        mut read: ChannelReadHalf,
        write: &ChannelWriteHalf<Msg>,
    ) -> Result<Option<ExitStatus>, String> {
        // A shell without arguments reads its commands from the input, which was not checked.
        let line = match self.words.as_slice() {
            [_, _, line] => line.clone(),
            words => join(words),
        };
        let mut words = self.words;
        if let (Some(own), Some(last)) = (self.machine.in_home_folder(&line), words.last_mut()) {
            *last = own;
        } else if !self.machine.may_run(&line) {
            return Err(known_commands::REFUSAL.to_owned());
        }
        let Running { mut child, input, mut output, errors, pty } =
            start(&self.machine, words, &self.variables, self.terminal.as_ref()).await?;
        let group = child.id();
        let out = write.data(&mut output);
        let err = async {
            match errors {
                Some(mut errors) => write.extended_data(1, &mut errors).await,
                None => Ok(()),
            }
        };
        let output = futures_util::future::join(out, err);
        let input =
            Input { stdin: Some(input), queue: VecDeque::new(), bytes: 0, ended: false, pty };
        let input = input.forward(&mut read, group);
        tokio::pin!(output, input);

        let (mut drained, mut status) = (false, None);
        while status.is_none() {
            tokio::select! {
                ended = child.wait() => {
                    status = Some(ended.map_err(|error| error.to_string())?);
                }
                _both = &mut output, if !drained => drained = true,
                () = &mut input => return Ok(None),
            }
        }
        if !drained {
            let rest = async {
                tokio::select! { _both = &mut output => {}, () = &mut input => {} }
            };
            drain(rest, write).await;
        }
        Ok(status)
    }
}

/// Starts a command with pipes, or in a terminal.
async fn start(
    machine: &Machine,
    words: Vec<String>,
    variables: &BTreeMap<String, String>,
    terminal: Option<&PtyRequest>,
) -> Result<Running, String> {
    let failed = |error: std::io::Error| format!("cannot run the command: {error}\n");
    let mut environment = machine.environment(variables);
    let Some(request) = terminal else {
        let mut child = machine.start(&words, &environment).await.map_err(failed)?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("the command has no pipes\n".to_owned());
        };
        return Ok(Running {
            child,
            input: Box::new(stdin),
            output: Box::new(stdout),
            errors: Some(Box::new(stderr)),
            pty: None,
        });
    };
    environment.insert("TERM".to_owned(), request.kind.clone());
    let (pty, theirs) = Pty::open(request).map_err(failed)?;
    let (reader, writer) = (pty.reader().map_err(failed)?, pty.writer().map_err(failed)?);
    let words = with_terminal(words);
    let child = machine.start_in_terminal(&words, &environment, theirs).await.map_err(failed)?;
    let (input, output) = (Box::new(writer), Box::new(reader));
    Ok(Running { child, input, output, errors: None, pty: Some(pty) })
}

/// Waits for the rest of the output as long as the client reads it slowly, but not for processes
/// left behind that keep the pipes open without output.
async fn drain(rest: impl Future<Output = ()>, write: &ChannelWriteHalf<Msg>) {
    tokio::pin!(rest);
    loop {
        if tokio::time::timeout(OUTPUT_GRACE, &mut rest).await.is_ok() {
            return;
        }
        // A full window means that the client is slow.
        if write.writable_packet_size().await > 0 {
            return;
        }
    }
}

/// The input of a command.
///
/// The loop of the connection must not wait for a command that does not read its input: the output
/// would stop too.
struct Input {
    stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    queue: VecDeque<Bytes>,
    bytes: usize,
    ended: bool,
    pty: Option<Pty>,
}

impl Input {
    /// Forwards input until the client closes the channel.
    async fn forward(mut self, read: &mut ChannelReadHalf, group: Option<u32>) {
        loop {
            if self.ended && self.queue.is_empty() {
                self.stdin = None;
            }
            let room = self.bytes < QUEUED_INPUT_BYTES_MAX;
            let next = self.queue.front_mut();
            tokio::select! {
                message = read.wait(), if room => match message {
                    None | Some(ChannelMsg::Close) => return,
                    Some(message) => self.receive(message, group),
                },
                written = write_some(&mut self.stdin, next) => self.after_write(written),
            }
        }
    }

    fn receive(&mut self, message: ChannelMsg, group: Option<u32>) {
        #[expect(clippy::wildcard_enum_match_arm, reason = "a client may send any message")]
        match message {
            ChannelMsg::Data { data } if self.stdin.is_some() => {
                self.bytes += data.len();
                self.queue.push_back(data);
            }
            ChannelMsg::Eof => self.ended = true,
            ChannelMsg::WindowChange { col_width, row_height, .. } => {
                if let Some(pty) = &self.pty {
                    pty.resize(col_width, row_height);
                }
            }
            ChannelMsg::Signal { signal } => {
                if let (Some(group), Some(signal)) = (group, from_ssh_signal(&signal)) {
                    signal_group(group, signal);
                }
            }
            _ => {}
        }
    }

    fn after_write(&mut self, written: Option<usize>) {
        let Some(written) = written else {
            // The command closed its standard input.
            self.stdin = None;
            self.queue.clear();
            self.bytes = 0;
            return;
        };
        self.bytes = self.bytes.saturating_sub(written);
        if let Some(front) = self.queue.front_mut() {
            let _sent = front.split_to(written.min(front.len()));
            if front.is_empty() {
                self.queue.pop_front();
            }
        }
    }
}

/// Writes a part of the first message. Waits for ever when there is no message or no reader.
async fn write_some(
    stdin: &mut Option<Box<dyn AsyncWrite + Send + Unpin>>,
    front: Option<&mut Bytes>,
) -> Option<usize> {
    match (stdin, front) {
        (Some(stdin), Some(front)) => stdin.write(front).await.ok(),
        _ => std::future::pending().await,
    }
}

async fn send_status(
    handle: &Handle,
    id: ChannelId,
    write: &ChannelWriteHalf<Msg>,
    status: ExitStatus,
) {
    if let Some(code) = status.code() {
        let _gone = write.exit_status(u32::try_from(code).unwrap_or(255)).await;
    } else {
        let signal = to_ssh_signal(status.signal().unwrap_or(0));
        let core = status.core_dumped();
        let _gone =
            handle.exit_signal_request(id, signal, core, String::new(), String::new()).await;
    }
}

fn from_ssh_signal(signal: &Sig) -> Option<Signal> {
    match signal {
        Sig::HUP => Some(Signal::HUP),
        Sig::INT => Some(Signal::INT),
        Sig::QUIT => Some(Signal::QUIT),
        Sig::TERM => Some(Signal::TERM),
        Sig::KILL => Some(Signal::KILL),
        Sig::USR1 => Some(Signal::USR1),
        Sig::ABRT | Sig::ALRM | Sig::FPE | Sig::ILL | Sig::PIPE | Sig::SEGV | Sig::Custom(_) => {
            None
        }
    }
}

fn to_ssh_signal(number: i32) -> Sig {
    match number {
        1 => Sig::HUP,
        2 => Sig::INT,
        3 => Sig::QUIT,
        4 => Sig::ILL,
        6 => Sig::ABRT,
        8 => Sig::FPE,
        9 => Sig::KILL,
        11 => Sig::SEGV,
        13 => Sig::PIPE,
        14 => Sig::ALRM,
        15 => Sig::TERM,
        number => Sig::Custom(format!("SIG{number}")),
    }
}
