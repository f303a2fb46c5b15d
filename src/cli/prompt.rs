//! Questions on the terminal: a line, a yes or no, a password that is not shown.
//!
//! Questions go to standard error, so that results alone are on standard output. Nothing is asked
//! where standard input is no terminal.

use std::io::{self, IsTerminal as _, Write as _};

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use secrecy::SecretString;

use super::error::{CliError, usage};
use super::term::shown;

/// The longest answer, in bytes.
const ANSWER_MAX: usize = 4096;
/// The keys that end or change what is typed while the terminal passes on everything.
const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;
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
        write!(io::stderr(), "{}{}: ", shown(question), shown(&hint))?;
        io::stderr().flush()?;
        let mut line = String::new();
        if io::stdin().read_line(&mut line)? == 0 {
            return Err(usage("the input ended before the last answer; nothing was written"));
        }
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

/// Asks for a secret without showing what is typed. Ctrl-C ends drover with the terminal as it was.
pub(super) fn hidden(question: &str) -> io::Result<SecretString> {
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

/// One line as it is typed, byte by byte.
fn typed(from: impl io::BufRead) -> io::Result<String> {
    let mut line: Vec<u8> = Vec::new();
    for byte in from.bytes() {
        match byte? {
            b'\r' | b'\n' | CTRL_D => break,
            CTRL_C => return Err(io::Error::new(io::ErrorKind::Interrupted, "Ctrl-C")),
            one if BACKSPACE.contains(&one) => {
                // The last letter, of however many bytes.
                while line.pop().is_some_and(|last| last & 0xC0 == 0x80) {}
            }
            one if line.len() < ANSWER_MAX => line.push(one),
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long")),
        }
    }
    String::from_utf8(line)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    // Invariant: a hidden line is what a visible one would be, and Ctrl-C gives none.

    #[test]
    fn a_hidden_line_is_read_as_it_was_meant() {
        assert_eq!(typed(&b"geheim\nmore"[..]).unwrap(), "geheim");
        assert_eq!(typed("schl\u{fc}\x7f\u{fc}ssl\x08el\r".as_bytes()).unwrap(), "schl\u{fc}ssel");
        assert_eq!(typed(&b"\x7f\x7fa"[..]).unwrap(), "a");
        assert_eq!(typed(&b"ab\x03\n"[..]).unwrap_err().kind(), io::ErrorKind::Interrupted);
        assert!(typed(&[b'a'; ANSWER_MAX + 1][..]).is_err());
    }
}
