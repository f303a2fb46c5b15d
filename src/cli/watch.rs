//! `--watch`: the same question again and again, until somebody stops it.
//!
//! A terminal is redrawn in place. On a pipe each answer comes after an empty line.

use std::io;
use std::pin::pin;
use std::time::Duration;

use causes::chain;

use super::client::Client;
use super::error::CliError;
use super::events::unread;
use super::global::Global;
use super::options::Command;
use super::remote::{once, stop_signal};
use super::term::{Term, shown};

/// Moves the cursor to the top.
const HOME: &str = "\u{1b}[H";
/// Clears the rest of the line, and of the terminal.
const CLEAR_LINE: &str = "\u{1b}[K";
const CLEAR_BELOW: &str = "\u{1b}[J";

/// Runs a command every so often; gives the exit code of the signal that ended it.
pub(super) async fn watch(
    global: &Global,
    client: &Client,
    command: &Command,
    pause: Duration,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    let (mut stop, mut unread) = (pin!(stop_signal()?), pin!(unread()));
    let mut is_first = true;
    loop {
        let mut text = Vec::new();
        let mut inner = Term { out: &mut text, err: &mut *term.err, screen: term.screen };
        let asked = once(global, client, command.clone(), &mut inner);
        let result = tokio::select! {
            biased;
            code = &mut stop => return Ok(code),
            result = asked => result,
        };
        match result {
            Ok(_) => {}
            // It was there before, and comes back once it is started again.
            Err(CliError::Call(fault)) if !is_first && fault.is_passing() => {
                text = format!("{}\n", shown(&chain(&fault))).into_bytes();
            }
            Err(fault) => return Err(fault),
        }
        let text = String::from_utf8_lossy(&text);
        term.out.write_all(frame(&text, term.screen.is_terminal, is_first).as_bytes())?;
        term.out.flush()?;
        is_first = false;
        tokio::select! {
            biased;
            code = &mut stop => return Ok(code),
            () = &mut unread => return Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// What is written to show a text in place of the one before.
fn frame(text: &str, is_terminal: bool, is_first: bool) -> String {
    match (is_terminal, is_first) {
        (true, _) => {
            let start = if is_first { format!("{HOME}{CLEAR_BELOW}") } else { HOME.to_owned() };
            let lines: String = text.lines().map(|line| format!("{line}{CLEAR_LINE}\n")).collect();
            start + &lines + CLEAR_BELOW
        }
        (false, true) => text.to_owned(),
        (false, false) => format!("\n{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a terminal shows the last answer alone, and a pipe all of them, apart from each other.

    #[test]
    fn a_terminal_is_redrawn_and_a_pipe_goes_on() {
        assert_eq!(frame("a\nb\n", true, false), "\u{1b}[Ha\u{1b}[K\nb\u{1b}[K\n\u{1b}[J");
        assert!(frame("a\n", true, true).starts_with("\u{1b}[H\u{1b}[J"));
        assert_eq!(frame("a\n", false, true) + &frame("a\n", false, false), "a\n\na\n");
    }
}
