//! Questions on the terminal: a line, a yes or no, a password that is not shown.
//!
//! Questions go to standard error, so that results alone are on standard output. Nothing is asked
//! where standard input is no terminal.

use std::io::{self, IsTerminal as _, Write as _};

use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};
use secrecy::{ExposeSecret as _, SecretString};

use super::error::{CliError, failed, usage};
use super::term::shown;

/// What is said where the input ends, as by Ctrl-D: a command asks before it does anything.
const ENDED: &str = "the input ended before the last answer; nothing was written or made";
/// What is said where Ctrl-C ends a question.
const CUT: &str = "nothing was written or made";
/// The longest answer, in bytes.
const ANSWER_MAX: usize = 4096;
/// The keys that end or change what is typed while the terminal passes on everything.
const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;
/// No key has this code, so none has its effect (POSIX: `_POSIX_VDISABLE`).
const NO_KEY: u8 = 0;
const BACKSPACE: [u8; 2] = [8, 127];

/// Whether anybody can be asked.
pub(super) fn is_interactive() -> bool {
    io::stdin().is_terminal()
}

/// Asks until an answer is sound; a blank one stands for `default`.
pub(super) fn ask<T>(
    question: &str,
    default: Option<&str>,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<T, CliError> {
    loop {
        let hint = default.map(|text| format!(" [{text}]")).unwrap_or_default();
        let line = match visible(&format!("{}{}: ", shown(question), shown(&hint))) {
            Ok(line) => line,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(usage(ENDED)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(interrupted()),
            Err(error) => return Err(error.into()),
        };
        let answer = match (line.trim(), default) {
            ("", Some(default)) => default,
            (typed, _) => typed,
        };
        match read(answer) {
            Ok(read) => return Ok(read),
            Err(why) => writeln!(io::stderr(), "  {}", shown(&why))?,
        }
    }
}

/// Asks for a yes; a blank answer is a no.
pub(super) fn confirm(question: &str) -> Result<bool, CliError> {
    ask(&format!("{question} (yes or no)"), Some("no"), |text| {
        match text.to_ascii_lowercase().as_str() {
            "yes" | "y" => Ok(true),
            "no" | "n" => Ok(false),
            _ => Err("answer yes or no".to_owned()),
        }
    })
}

/// Asks for a secret until there is one, and shows nothing of it. Ctrl-C and Ctrl-D end drover as they do
/// at [`ask`], with the terminal as it was. `instead` names other ways to give the secret.
pub(super) fn hidden(question: &str, instead: &str) -> Result<SecretString, CliError> {
    loop {
        let typed = match unseen(question) {
            Ok(typed) => typed,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(usage(ENDED)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(interrupted()),
            Err(error) => {
                return Err(failed(format!(
                    "the terminal cannot hide a password ({error}): {instead}"
                )));
            }
        };
        match typed.expose_secret() {
            "" => writeln!(io::stderr(), "  an answer is needed")?,
            _ => return Ok(typed),
        }
    }
}

/// Ends drover as Ctrl-C does at a visible question, and says first that nothing was done. It returns
/// where somebody who started drover makes it ignore that signal.
fn interrupted() -> CliError {
    // Neither has another way: where the signal is ignored, the error ends the command.
    let _ = writeln!(io::stderr(), "drover: {CUT}");
    let _ = kill_process(getpid(), Signal::INT);
    failed("Ctrl-C ended the question")
}

/// One secret, with the terminal as it was before.
fn unseen(question: &str) -> io::Result<SecretString> {
    let stdin = io::stdin();
    let before = tcgetattr(&stdin)?;
    let mut quiet = before.clone();
    // The signal of Ctrl-C would end drover before it could show typed text again.
    quiet.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
    // Quiet first: nobody's typing may overtake the question and be shown.
    tcsetattr(&stdin, OptionalActions::Flush, &quiet)?;
    let asked = write!(io::stderr(), "{}", shown(question)).and_then(|()| io::stderr().flush());
    let typed = asked.and_then(|()| typed(stdin.lock()));
    tcsetattr(&stdin, OptionalActions::Now, &before)?;
    writeln!(io::stderr())?;
    typed.map(SecretString::from)
}

/// One line that is shown. The terminal edits it as ever; Ctrl-C ends it, and no signal does: drover says
/// first that nothing was done.
fn visible(question: &str) -> io::Result<String> {
    let stdin = io::stdin();
    let before = tcgetattr(&stdin)?;
    let mut lined = before.clone();
    // Where somebody gave the signal another key, that key ends drover at once.
    if before.special_codes[SpecialCodeIndex::VINTR] == CTRL_C {
        lined.special_codes[SpecialCodeIndex::VINTR] = NO_KEY;
        lined.special_codes[SpecialCodeIndex::VEOL] = CTRL_C;
    }
    tcsetattr(&stdin, OptionalActions::Now, &lined)?;
    let asked = write!(io::stderr(), "{question}").and_then(|()| io::stderr().flush());
    let typed = asked.and_then(|()| typed(stdin.lock()));
    tcsetattr(&stdin, OptionalActions::Now, &before)?;
    if typed.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {
        writeln!(io::stderr())?;
    }
    typed
}

/// One line as it is typed, byte by byte. An end before the first byte is
/// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof), and Ctrl-C [`Interrupted`](io::ErrorKind::Interrupted).
fn typed(from: impl io::BufRead) -> io::Result<String> {
    let mut line: Vec<u8> = Vec::new();
    for byte in from.bytes() {
        match byte? {
            b'\r' | b'\n' => return text(line),
            CTRL_D => break,
            CTRL_C => return Err(io::Error::new(io::ErrorKind::Interrupted, "Ctrl-C")),
            one if BACKSPACE.contains(&one) => {
                // The last letter, of however many bytes.
                while line.pop().is_some_and(|last| last & 0xC0 == 0x80) {}
            }
            one if line.len() < ANSWER_MAX => line.push(one),
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long")),
        }
    }
    match line.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "Ctrl-D")),
        false => text(line),
    }
}

fn text(line: Vec<u8>) -> io::Result<String> {
    String::from_utf8(line)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    // Invariant: a hidden line is what a visible one would be, and Ctrl-C gives none, nor does Ctrl-D alone.

    #[test]
    fn a_hidden_line_is_read_as_it_was_meant() {
        assert_eq!(typed(&b"geheim\nmore"[..]).unwrap(), "geheim");
        assert_eq!(typed("schl\u{fc}\x7f\u{fc}ssl\x08el\r".as_bytes()).unwrap(), "schl\u{fc}ssel");
        assert_eq!(typed(&b"\x7f\x7fa"[..]).unwrap(), "a");
        assert_eq!(typed(&b"ab\x03\n"[..]).unwrap_err().kind(), io::ErrorKind::Interrupted);
        assert_eq!(typed(&b"ab\x04\n"[..]).unwrap(), "ab");
        assert_eq!(typed(&b"\n"[..]).unwrap(), "");
        for ended in [&b"\x04"[..], b""] {
            assert_eq!(typed(ended).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
        assert!(typed(&[b'a'; ANSWER_MAX + 1][..]).is_err());
    }
}
