//! The commands of a Windows guest (tags `guest-windows`, `guest-windows-powershell`): how its SSH
//! server runs them.
//!
//! The guest has neither PowerShell nor `cmd.exe`. The code of a PowerShell script identifies it as
//! one of the program that works in the guest, and a few commands of `cmd.exe` are known; a
//! stand-in does what they do. All other commands are refused as Windows refuses them, POSIX shell
//! lines included.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::known_commands::KnownCommands;

const STANDIN_PROGRAM: &str = "windows";
/// Windows PowerShell's error for a line of `cmd.exe`.
const SEPARATOR_ERROR: &str = "The token '&&' is not a valid statement separator in this version.";
const ENCODING_ERROR: &str = "Cannot process the command because the value specified with \
    -EncodedCommand is not properly encoded.";
const UNKNOWN_SCRIPT_ERROR: &str = "unknown script";
const NO_TERMINAL_ERROR: &str = "there is no terminal";

/// The shell to which the SSH server of Windows passes a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoginShell {
    Cmd,
    Powershell,
}

/// The program and arguments that run a command.
pub(super) fn words(shell: LoginShell, command: &str, known: &KnownCommands) -> Vec<String> {
    let refused = |said: String| vec!["refuse".to_owned(), said];
    let mut words = vec![STANDIN_PROGRAM.to_owned()];
    words.extend(interpret(shell, command, known).unwrap_or_else(refused));
    words
}

/// The program and arguments for a session without a command.
pub(super) fn refuse_terminal() -> Vec<String> {
    [STANDIN_PROGRAM, "refuse", NO_TERMINAL_ERROR].map(str::to_owned).into()
}

fn interpret(
    shell: LoginShell,
    command: &str,
    known: &KnownCommands,
) -> Result<Vec<String>, String> {
    if let Some(code) = encoded_script(command) {
        let code = decode(code).ok_or(ENCODING_ERROR)?;
        let script = (known.script)(&code).ok_or_else(|| UNKNOWN_SCRIPT_ERROR.to_owned())?;
        return Ok(as_program(shell, script));
    }
    let line = |line: &str| vec!["cmd".to_owned(), line.to_owned()];
    match shell {
        LoginShell::Cmd => Ok(line(command)),
        LoginShell::Powershell => match wrapped_line(command) {
            Some(inner) => Ok(as_program(shell, line(&inner))),
            // PowerShell repeats the line with its error.
            None if command.contains("&&") => Err(format!("{command}: {SEPARATOR_ERROR}")),
            None => Ok(line(command)),
        },
    }
}

/// A program as the login shell calls it: PowerShell turns every exit status but 0 into 1.
fn as_program(shell: LoginShell, words: Vec<String>) -> Vec<String> {
    let around = match shell {
        LoginShell::Cmd => None,
        LoginShell::Powershell => Some("powershell".to_owned()),
    };
    around.into_iter().chain(words).collect()
}

/// The encoded script in a command for Windows PowerShell; none for other commands.
fn encoded_script(command: &str) -> Option<&str> {
    let (before, code) = command.split_once(" -EncodedCommand ")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    let is_one = before.starts_with("powershell ") && !code.is_empty() && code.chars().all(plain);
    is_one.then_some(code)
}

/// The text that `cmd /c '…'` passes on; `cmd.exe` skips blanks before it.
fn wrapped_line(command: &str) -> Option<String> {
    let inner = command.strip_prefix("cmd /c '")?.strip_suffix('\'')?.trim_start();
    let single = inner.replace("''", "");
    (!single.contains('\'')).then(|| inner.replace("''", "'"))
}

fn decode(code: &str) -> Option<String> {
    let bytes = STANDARD.decode(code).ok()?;
    let units = bytes.chunks_exact(2).map(|pair| u16::from(pair[0]) | (u16::from(pair[1]) << 8));
    String::from_utf16(&units.collect::<Vec<_>>()).ok().filter(|_| bytes.len() % 2 == 0)
}

/// The path on the disk of a Windows path; none for a path that is not one of Windows.
pub(super) fn disk_path(path: &str, home: &str) -> Option<String> {
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

    // Invariant: only drover's scripts and the lines of each login shell are accepted.

    #[test]
    fn a_script_of_drover_is_recognized_with_its_arguments_in_every_login_shell() {
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
    fn each_login_shell_runs_lines_in_its_own_way() {
        assert_eq!(run(LoginShell::Cmd, LOGIN_SHELL_PROBE), ["cmd", LOGIN_SHELL_PROBE]);
        let probed = run(LoginShell::Powershell, LOGIN_SHELL_PROBE);
        assert!(probed[0] == "refuse" && probed[1].contains(SEPARATOR_ERROR), "{probed:?}");
        let wrapped = command_line("echo it's && ver", os::LoginShell::Powershell);
        let nested = ["powershell", "cmd", "echo it's && ver"];
        assert_eq!(run(LoginShell::Powershell, &wrapped), nested);
        assert_eq!(run(LoginShell::Powershell, "exit 3"), ["cmd", "exit 3"]);
        assert_eq!(run(LoginShell::Powershell, "cmd /c 'a' && 'b'")[0], "refuse");
    }

    #[test]
    fn paths_are_on_the_disk_by_their_drive_or_in_the_home() {
        let at = |path| disk_path(path, "/home/ci").unwrap_or_default();
        assert_eq!(at(r"C:\ci\a b"), "srv/c/ci/a b");
        assert_eq!(at("/D:/ci"), "srv/d/ci");
        assert_eq!(at(r"C:\ProgramData\ssh\key.pub"), "etc/ssh/key.pub");
        assert_eq!(at("files/x"), "home/ci/files/x");
        for none in ["/etc/passwd", r"C:\..\x", "CD:/x"] {
            assert_eq!(at(none), "", "{none}");
        }
    }
}
