//! A guest of Windows (`guest-windows`, `guest-windows-powershell`): what its SSH server makes of a command.
//!
//! Neither PowerShell nor `cmd.exe` is there. drover's own scripts are known by their code, letter by
//! letter, and of `cmd.exe` a few commands; a stand-in does what they would. Anything else is refused as
//! Windows would refuse it, and so is a line of a POSIX shell.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drover_actors::agent::windows::{POWERSHELL, Script, encoded};
use drover_actors::os::LoginShell;

/// The stand-in.
const PROGRAM: &str = "windows";
/// What every script of drover's begins with.
const ARGUMENTS: &str = "$arguments = @(";
/// What Windows PowerShell says of a line for `cmd.exe`.
const NO_SEPARATOR: &str = "The token '&&' is not a valid statement separator in this version.";
const NO_CODE: &str = "Cannot process the command because the value specified with -EncodedCommand is not \
                       properly encoded.";
const NO_SCRIPT: &str = "this is no script of drover's";
const NO_TERMINAL: &str = "there is no terminal";

/// The words that a command is run by.
pub(super) fn words(shell: LoginShell, command: &str) -> Vec<String> {
    let refused = |said: String| vec!["refuse".to_owned(), said];
    let mut words = vec![PROGRAM.to_owned()];
    words.extend(meant(shell, command).unwrap_or_else(refused));
    words
}

/// The same of a session without a command.
pub(super) fn no_terminal() -> Vec<String> {
    [PROGRAM, "refuse", NO_TERMINAL].map(str::to_owned).into()
}

fn meant(shell: LoginShell, command: &str) -> Result<Vec<String>, String> {
    if let Some(code) = encoded(command) {
        let code = decoded(code).ok_or(NO_CODE)?;
        let script = script(&code).ok_or_else(|| NO_SCRIPT.to_owned())?;
        return Ok(called(shell, script));
    }
    let line = |line: &str| vec!["cmd".to_owned(), line.to_owned()];
    match shell {
        LoginShell::Auto | LoginShell::Cmd => Ok(line(command)),
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
        LoginShell::Auto | LoginShell::Cmd => None,
        LoginShell::Powershell => Some("powershell".to_owned()),
    };
    around.into_iter().chain(words).collect()
}

/// The text that `cmd /c '…'` hands over; `cmd.exe` passes over blanks before it.
fn literal(command: &str) -> Option<String> {
    let inner = command.strip_prefix(POWERSHELL.0)?.strip_suffix(POWERSHELL.1)?.trim_start();
    let single = inner.replace("''", "");
    (!single.contains('\'')).then(|| inner.replace("''", "'"))
}

fn decoded(code: &str) -> Option<String> {
    let bytes = STANDARD.decode(code).ok()?;
    let units = bytes.chunks_exact(2).map(|pair| u16::from(pair[0]) | (u16::from(pair[1]) << 8));
    String::from_utf16(&units.collect::<Vec<_>>()).ok().filter(|_| bytes.len() % 2 == 0)
}

/// The script that a code is, with its arguments.
fn script(code: &str) -> Option<Vec<String>> {
    let arguments = arguments(code)?;
    let given: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let script = Script::ALL.into_iter().find(|script| script.code(&given) == code)?;
    let name = match script {
        Script::RemoteFs => "remote-fs",
        Script::Cards => "cards",
        Script::Admit => "admit",
        Script::Expel => "expel",
        Script::Mend => "mend",
        Script::RunnerBegun => "runner-begun",
        Script::RunnerStart => "runner-start",
        Script::RunnerWords => "runner-words",
        Script::RunnerEnd => "runner-end",
    };
    Some([name.to_owned()].into_iter().chain(arguments).collect())
}

/// The texts between single quotes that a script begins with.
fn arguments(code: &str) -> Option<Vec<String>> {
    let mut rest = code.strip_prefix(ARGUMENTS)?;
    let mut all = Vec::new();
    while let Some(text) = rest.strip_prefix('\'') {
        let mut argument = String::new();
        let mut from = text;
        rest = loop {
            let (part, behind) = from.split_once('\'')?;
            argument.push_str(part);
            match behind.strip_prefix('\'') {
                Some(more) => {
                    argument.push('\'');
                    from = more;
                }
                None => break behind,
            }
        };
        all.push(argument);
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    rest.starts_with(')').then_some(all)
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
    use super::*;
    use drover_actors::agent::windows::{PROBE, admit, cards, line};

    fn run(shell: LoginShell, command: &str) -> Vec<String> {
        words(shell, command).into_iter().skip(1).collect()
    }

    // Invariant: exactly drover's scripts and the lines of each login shell are taken.

    #[test]
    fn a_script_of_drovers_is_known_with_its_arguments_in_every_login_shell() {
        let command = admit("l1", "ssh-ed25519 AAAA it's");
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
        assert_eq!(run(LoginShell::Cmd, PROBE), ["cmd", PROBE]);
        let probed = run(LoginShell::Powershell, PROBE);
        assert!(probed[0] == "refuse" && probed[1].contains(NO_SEPARATOR), "{probed:?}");
        let wrapped = line("echo it's && ver", LoginShell::Powershell);
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
