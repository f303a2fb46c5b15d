//! Terminals: a real shell on a real pseudo-terminal, with keys, sizes and programs of the whole screen.

use bytes::Bytes;
use drover_ssh::{ExecError, TerminalEnd, TerminalInput, TerminalOutput, TerminalSize};
use tokio::sync::mpsc;

use super::*;

const SIZE: TerminalSize = TerminalSize { columns: 90, rows: 30 };

/// A terminal as somebody uses it.
struct Seat {
    keys: mpsc::Sender<TerminalInput>,
    output: mpsc::Receiver<TerminalOutput>,
    seen: String,
}

impl Seat {
    async fn open(session: &Session) -> Self {
        let terminal = session.terminal(SIZE, SOON).await.unwrap();
        let (keys, input) = mpsc::channel(16);
        let (sink, output) = mpsc::channel(16);
        tokio::spawn(async move {
            let end = terminal.run(input, &sink).await;
            // A test that has seen enough is gone.
            let _gone = sink.send(TerminalOutput::Ended(end)).await;
        });
        Self { keys, output, seen: String::new() }
    }

    async fn types(&self, keys: &str) {
        self.keys.send(TerminalInput::Bytes(Bytes::from(keys.to_owned()))).await.unwrap();
    }

    /// Waits until this comes, after all that was waited for before.
    async fn sees(&mut self, wanted: &str) {
        loop {
            if let Some(at) = self.seen.find(wanted) {
                self.seen.drain(..at + wanted.len());
                return;
            }
            match tokio::time::timeout(SOON, self.output.recv()).await {
                Ok(Some(TerminalOutput::Bytes(bytes))) => {
                    self.seen += &String::from_utf8_lossy(&bytes);
                }
                other => panic!("{other:?} before `{wanted}`, after `{}`", self.seen),
            }
        }
    }

    async fn end(&mut self) -> TerminalEnd {
        loop {
            match tokio::time::timeout(SOON, self.output.recv()).await.unwrap().unwrap() {
                TerminalOutput::Bytes(_) => {}
                TerminalOutput::Ended(end) => return end,
            }
        }
    }
}

/// Waits until so many processes sleep for so long: nothing else says when a signal has worked.
async fn until_sleeping(seconds: u32, wanted: usize) {
    let end = Instant::now() + SOON;
    while host::processes_with(&seconds.to_string()).len() != wanted {
        assert!(Instant::now() < end, "{:?}", host::processes_with(&seconds.to_string()));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

// Invariant: a terminal of a guest is one for its programs: they read its keys, know its size, and are
// stopped by Ctrl-C and by its end.

#[tokio::test]
async fn a_shell_has_the_keys_the_size_and_the_signals_of_its_terminal() {
    let Some(rig) = Rig::isolated() else { return };
    rig.up(1901, 1).await;
    let session = rig.log_in(1901).await;
    let mut seat = Seat::open(&session).await;
    seat.types("stty size; test -t 0 && echo \"is\" \"$TERM\"\r").await;
    seat.sees("30 90").await;
    seat.sees("is xterm-256color").await;
    seat.keys.send(TerminalInput::Size(TerminalSize { columns: 100, rows: 40 })).await.unwrap();
    seat.types("stty size </dev/tty\r").await;
    seat.sees("40 100").await;
    // The whole group of the front gets the signal, and the shell goes on.
    seat.types("sleep 97531\r").await;
    seat.sees("sleep 97531").await;
    until_sleeping(97531, 1).await;
    seat.types("\u{3}").await;
    until_sleeping(97531, 0).await;
    seat.types("exit 5\r").await;
    assert_eq!(seat.end().await, TerminalEnd::Exited(Some(5)));
}

#[tokio::test]
async fn a_program_of_the_whole_screen_runs_and_ends_with_its_terminal() {
    let Some(rig) = Rig::isolated() else { return };
    rig.up(1902, 1).await;
    let session = rig.log_in(1902).await;
    let mut seat = Seat::open(&session).await;
    seat.types("seq 1 200 > lines; less lines\r").await;
    // The other screen of the terminal.
    seat.sees("\u{1b}[?1049h").await;
    seat.types("G").await;
    seat.sees("200").await;
    seat.types("q").await;
    seat.sees("\u{1b}[?1049l").await;
    seat.types("sleep 97532\r").await;
    until_sleeping(97532, 1).await;
    drop(seat);
    until_sleeping(97532, 0).await;
}

#[tokio::test]
async fn a_host_that_knows_some_commands_alone_gives_no_terminal() {
    let rig = Rig::without_bubblewrap(false, |_| false);
    rig.up(1903, 1).await;
    let session = rig.log_in(1903).await;
    let refused = session.terminal(SIZE, SOON).await.unwrap_err();
    assert!(matches!(refused, ExecError::Refused), "{refused:?}");
}
