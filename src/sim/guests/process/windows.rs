//! A guest of Windows (`guest-windows`, `guest-windows-powershell`): what its SSH server makes of a command.
//!
//! Neither PowerShell nor `cmd.exe` is there. Scripts of the program that works in the guest are known
//! by their code, and of `cmd.exe` a few commands; a stand-in does what they would. Anything else is refused as
//! Windows would refuse it, and so is a line of a POSIX shell.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::gate::KnownCommands;

/// The stand-in.
const PROGRAM: &str = "windows";
/// What Windows PowerShell says of a line for `cmd.exe`.
const NO_SEPARATOR: &str = "The token '&&' is not a valid statement separator in this version.";
const NO_CODE: &str = "Cannot process the command because the value specified with -EncodedCommand is not \
                       properly encoded.";
const NO_SCRIPT: &str = "this is no script that is known here";
const NO_TERMINAL: &str = "there is no terminal";

/// The shell that an SSH server of Windows gives a command to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoginShell {
    Cmd,
    Powershell,
}

/// The words that a command is run by.
pub(super) fn words(shell: LoginShell, command: &str, known: &KnownCommands) -> Vec<String> {
    let refused = |said: String| vec!["refuse".to_owned(), said];
    let mut words = vec![PROGRAM.to_owned()];
    words.extend(meant(shell, command, known).unwrap_or_else(refused));
    words
}

/// The same of a session without a command.
pub(super) fn no_terminal() -> Vec<String> {
    [PROGRAM, "refuse", NO_TERMINAL].map(str::to_owned).into()
}

fn meant(shell: LoginShell, command: &str, known: &KnownCommands) -> Result<Vec<String>, String> {
    if let Some(code) = encoded(command) {
        let code = decoded(code).ok_or(NO_CODE)?;
        let script = (known.script)(&code).ok_or_else(|| NO_SCRIPT.to_owned())?;
        return Ok(called(shell, script));
    }
    let line = |line: &str| vec!["cmd".to_owned(), line.to_owned()];
    match shell {
        LoginShell::Cmd => Ok(line(command)),
        LoginShell::Powershell => match literal(command) {
            Some(inner) => Ok(called(shell, line(&inner))),
            // It repeats the line beside what is wrong with it.
            None if command.contains("&&") => Err(format!("{command}: {NO_SEPARATOR}")),
            None => Ok(line(command)),
        },
    }
}

/// A program that a login shell calls: PowerShell makes 1 of every exit status of it but 0.
fn called(shell: LoginShell, words: Vec<String>) -> Vec<String> {
    let around = match shell {
        LoginShell::Cmd => None,
        LoginShell::Powershell => Some("powershell".to_owned()),
    };
    around.into_iter().chain(words).collect()
}

/// The code of a command for Windows PowerShell; none of any other command.
fn encoded(command: &str) -> Option<&str> {
    let (before, code) = command.split_once(" -EncodedCommand ")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    let is_one = before.starts_with("powershell ") && !code.is_empty() && code.chars().all(plain);
    is_one.then_some(code)
}

/// The text that `cmd /c '…'` hands over; `cmd.exe` passes over blanks before it.
fn literal(command: &str) -> Option<String> {
    let inner = command.strip_prefix("cmd /c '")?.strip_suffix('\'')?.trim_start();
    let single = inner.replace("''", "");
    (!single.contains('\'')).then(|| inner.replace("''", "'"))
}

fn decoded(code: &str) -> Option<String> {
    let bytes = STANDARD.decode(code).ok()?;
    let units = bytes.chunks_exact(2).map(|pair| u16::from(pair[0]) | (u16::from(pair[1]) << 8));
    String::from_utf16(&units.collect::<Vec<_>>()).ok().filter(|_| bytes.len() % 2 == 0)
}

/// Where a path of such a guest lies on its disk; none where it is no path of Windows.
pub(super) fn on_disk(path: &str, home: &str) -> Option<String> {
    let path = path.replace('\\', "/");
    if path.split('/').any(|part| part == "..") {
        return None;
    }
    let absolute = path.strip_prefix('/').unwrap_or(&path);
    let drive = absolute.split_once(":/").filter(|(drive, _)| drive.len() == 1);
    match drive {
        Some((_, rest)) if rest.starts_with("ProgramData/ssh/") => {
            Some(rest.replacen("ProgramData/ssh/", "etc/ssh/", 1))
        }
        Some((drive, rest)) => Some(format!("srv/{}/{rest}", drive.to_ascii_lowercase())),
        None if path.starts_with('/') || path.contains(':') => None,
        None => Some(format!("{}/{path}", home.trim_start_matches('/'))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drover_model::os;
    use drover_scripts::windows::{LOGIN_SHELL_PROBE, cards, command_line, grant_access};
    use drover_shell::own_commands;

    use super::*;

    fn run(shell: LoginShell, command: &str) -> Vec<String> {
        let known =
            KnownCommands { script: Arc::new(own_commands::script), ..KnownCommands::default() };
        words(shell, command, &known).into_iter().skip(1).collect()
    }

    // Invariant: exactly drover's scripts and the lines of each login shell are taken.

    #[test]
    fn a_script_of_drovers_is_known_with_its_arguments_in_every_login_shell() {
        let command = grant_access("l1", "ssh-ed25519 AAAA it's");
        let wanted = ["admit", "l1", "ssh-ed25519 AAAA it's"];
        assert_eq!(run(LoginShell::Cmd, &command), wanted);
        assert_eq!(run(LoginShell::Cmd, &cards()), ["cards"]);
        let nested = run(LoginShell::Powershell, &command);
        assert_eq!(nested[0], "powershell", "it makes 1 of every status");
        assert_eq!(nested[1..], wanted);
        let other = format!("{}A", cards());
        assert_eq!(run(LoginShell::Cmd, &other)[0], "refuse");
        assert_eq!(run(LoginShell::Cmd, "sh -c 'id'"), ["cmd", "sh -c 'id'"]);
    }

    #[test]
    fn a_login_shell_takes_lines_in_its_own_way() {
        assert_eq!(run(LoginShell::Cmd, LOGIN_SHELL_PROBE), ["cmd", LOGIN_SHELL_PROBE]);
        let probed = run(LoginShell::Powershell, LOGIN_SHELL_PROBE);
        assert!(probed[0] == "refuse" && probed[1].contains(NO_SEPARATOR), "{probed:?}");
        let wrapped = command_line("echo it's && ver", os::LoginShell::Powershell);
        let nested = ["powershell", "cmd", "echo it's && ver"];
        assert_eq!(run(LoginShell::Powershell, &wrapped), nested);
        assert_eq!(run(LoginShell::Powershell, "exit 3"), ["cmd", "exit 3"]);
        assert_eq!(run(LoginShell::Powershell, "cmd /c 'a' && 'b'")[0], "refuse");
    }

    #[test]
    fn paths_lie_on_the_disk_by_their_drive_or_in_the_home() {
        let at = |path| on_disk(path, "/home/ci").unwrap_or_default();
        assert_eq!(at(r"C:\ci\a b"), "srv/c/ci/a b");
        assert_eq!(at("/D:/ci"), "srv/d/ci");
        assert_eq!(at(r"C:\ProgramData\ssh\key.pub"), "etc/ssh/key.pub");
        assert_eq!(at("files/x"), "home/ci/files/x");
        for none in ["/etc/passwd", r"C:\..\x", "CD:/x"] {
            assert_eq!(at(none), "", "{none}");
        }
    }
}
