//! What is different in Windows guests: commands depend on the login shell, and files go over SFTP.
//!
//! drover's own commands are encoded PowerShell, the same line for every login shell, and print
//! their exit status because PowerShell as a login shell loses it. Commands from the configuration
//! are for `cmd.exe`; if the login shell is left to be found out, a probe distinguishes it, as in the
//! Jenkins plugin. User data of leases is refused.

use std::time::Duration;

use bytes::Bytes;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::os::{LoginShell, Os};
use drover_model::ports::{Ask, Sessions, ShellTarget};
use drover_scripts::windows as scripts;
use drover_ssh::{ExecResult, Keep, Limits, Session, UploadError};
use tokio::time::Instant;

use crate::{CARDS, Ran, SshShell, admit_command, ended_early, exec, expel_command, key_line};

/// The most output that is read from the login shell probe.
const PROBE_OUTPUT_BYTES: usize = 4096;
/// How long the login shell probe may take, as in the Jenkins plugin; the command itself needs
/// time, too.
const PROBE_LIMIT: Duration = Duration::from_secs(30);

impl SshShell {
    /// The target with its login shell determined, if it was left to be found out.
    pub fn with_login_shell(&self, target: ShellTarget, limit: Duration) -> Ask<ShellTarget> {
        if target.os != Os::Windows(LoginShell::Auto) {
            return Box::pin(std::future::ready(Ok(target)));
        }
        let found = target.clone();
        self.with_session(target, limit, move |session, left| async move {
            let shell = login_shell(&session, left).await;
            session.close().await;
            Ok(ShellTarget { os: Os::Windows(shell?), ..found })
        })
    }
}

/// Asks a guest for its login shell. When the question times out, the shell counts as `cmd.exe`, as
/// in the Jenkins plugin.
async fn login_shell(session: &Session, limit: Duration) -> Result<LoginShell, Fault> {
    match session.exec(scripts::LOGIN_SHELL_PROBE, None, probe_limits(limit), None).await {
        Ok(ran) => Ok(scripts::probed_login_shell(&String::from_utf8_lossy(&ran.stdout))),
        Err(error) => ended_early(error).map(|_| LoginShell::Cmd),
    }
}

/// The limits of the login shell probe.
fn probe_limits(limit: Duration) -> Limits {
    Limits { time: limit.min(PROBE_LIMIT), output_bytes_max: PROBE_OUTPUT_BYTES, keep: Keep::First }
}

/// A command's result with the exit status that drover's own script printed: PowerShell as a login
/// shell turns every status but 0 into 1.
pub(super) fn with_own_status(command: &str, mut ran: ExecResult) -> ExecResult {
    if ran.exit.is_none_or(|exit| exit == 0) || scripts::encoded(command).is_none() {
        return ran;
    }
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    if let Some((status, before)) = scripts::printed_status(&said) {
        ran.exit = Some(status);
        ran.stdout = before.as_bytes().to_vec();
    }
    ran
}

/// Runs a command: drover's own, or on Windows one for `cmd.exe`.
pub(super) async fn run(
    session: Session,
    os: Os,
    command: &str,
    limit: Duration,
) -> Result<Ran, Fault> {
    let shell = match os {
        Os::Linux => return exec(session, command, limit).await,
        Os::Windows(shell) => shell,
    };
    let deadline = Instant::now() + limit;
    let shell = match shell {
        LoginShell::Auto if scripts::encoded(command).is_none() => {
            match login_shell(&session, limit).await {
                Ok(shell) => shell,
                Err(fault) => {
                    session.close().await;
                    return Err(fault);
                }
            }
        }
        known @ (LoginShell::Auto | LoginShell::Cmd | LoginShell::Powershell) => known,
    };
    let left = deadline.saturating_duration_since(Instant::now());
    exec(session, &scripts::command_line(command, shell), left).await
}

/// The command that lists a machine's network cards.
pub(super) fn cards(os: Os) -> String {
    match os {
        Os::Linux => CARDS.to_owned(),
        Os::Windows(_) => scripts::cards(),
    }
}

/// The network cards in a command's output. When the command did not end in time, the output lists
/// no cards and the caller tries again: PowerShell starts slowly, and so does all on a busy host.
pub(super) fn listed_cards(os: Os, ran: &Ran) -> Result<Vec<String>, Fault> {
    if ran.exit.is_none() {
        let text = format!("the guest does not list its network cards yet: {}", ran.tail);
        return Err(Fault::new(FaultKind::Unreachable, Culprit::Guest, text));
    }
    let is_mac = |word: &&str| word.len() == 17 && word.matches(':').count() == 5;
    let words = ran.tail.split_whitespace().filter(|word| !os.is_windows() || is_mac(word));
    Ok(words.map(str::to_owned).collect())
}

/// The command that adds the key of a lease.
///
/// # Errors
/// When the key does not fit into a command of `cmd.exe`.
pub(super) fn admit(os: Os, lease: &str, key: &str) -> Result<String, Fault> {
    let command = match os {
        Os::Linux => return Ok(admit_command(lease, key)),
        Os::Windows(_) => scripts::grant_access(lease, &key_line(lease, key)),
    };
    if command.len() > scripts::COMMAND_CHARS_MAX {
        let text = "the public key is too long for a Windows guest: use an ed25519 key";
        return Err(Fault::new(FaultKind::Broken, Culprit::Guest, text));
    }
    Ok(command)
}

/// The commands that remove the key of a lease, and end the sessions of others where that is asked.
pub(super) fn expel(os: Os, lease: &str, sessions: Sessions) -> Vec<String> {
    match (os, sessions) {
        (Os::Linux, sessions) => vec![expel_command(lease, sessions)],
        (Os::Windows(_), Sessions::Stay) => vec![scripts::revoke_access(lease)],
        // Both in one are too long for a line of `cmd.exe`.
        (Os::Windows(_), Sessions::End) => {
            vec![scripts::revoke_access(lease), scripts::end_sessions()]
        }
    }
}

/// A command without effect, for a login alone.
pub(super) fn nothing(os: Os) -> String {
    match os {
        Os::Linux => "true".to_owned(),
        Os::Windows(_) => scripts::NO_OP.to_owned(),
    }
}

pub(super) fn no_user_data() -> Fault {
    let text =
        "Windows guests take no user data: request a Linux template, or leave the user data out";
    Fault::new(FaultKind::Gone, Culprit::Guest, text)
}

/// Writes a file into a guest, by the method of its operating system.
pub(super) async fn put(
    session: &Session,
    os: Os,
    (to, content, mode): (&str, Bytes, u32),
    limit: Duration,
) -> Result<(), UploadError> {
    match os {
        Os::Linux => session.upload(to, content, mode, limit).await,
        Os::Windows(_) => session.send(&scripts::sftp_path(to), content, limit).await,
    }
}

/// The text of a failed login, without cloud-init where the guest runs Windows.
pub(super) fn login_text(os: Os, text: String) -> String {
    match os {
        Os::Linux => text,
        Os::Windows(_) => {
            text.replace("that cloud-init installed this key", "that the image has this key")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOWS: Os = Os::Windows(LoginShell::Auto);

    // Invariant: a Windows guest receives drover's own commands for Windows, never one for `sh`.

    #[test]
    fn keys_and_cards_are_asked_for_by_scripts_of_windows() {
        let key = "ssh-ed25519 AAAA it's me";
        let admitted = admit(WINDOWS, "l1", key).unwrap_or_default();
        assert_eq!(admitted, scripts::grant_access("l1", "ssh-ed25519 AAAA drover-lease-l1"));
        let expelled = expel(WINDOWS, "l1", Sessions::End);
        assert_eq!(expelled[..1], expel(WINDOWS, "l1", Sessions::Stay));
        assert_eq!(expelled.len(), 2, "its key, and the sessions");
        for command in expelled.into_iter().chain([admitted, cards(WINDOWS)]) {
            assert!(scripts::encoded(&command).is_some(), "{command}");
        }
        assert_eq!(admit(Os::Linux, "l1", key).ok(), Some(admit_command("l1", key)));
        let end = Sessions::End;
        assert_eq!(expel(Os::Linux, "l1", end), [expel_command("l1", end)]);
        assert_eq!((nothing(Os::Linux), nothing(WINDOWS)), ("true".into(), "exit 0".into()));
    }

    #[test]
    fn a_key_that_no_line_of_cmd_takes_is_refused() {
        let key = format!("ssh-rsa {}", "A".repeat(2700));
        let fault = admit(WINDOWS, "l1", &key).err().map(|fault| fault.text).unwrap_or_default();
        assert!(fault.contains("too long for a Windows guest"), "{fault}");
        assert!(admit(Os::Linux, "l1", &key).is_ok());
    }

    // Invariant: drover learns how its own script ended, whatever the login shell does to the exit
    // status.

    #[test]
    fn a_scripts_own_status_counts_and_no_other_commands() {
        let ran = |exit, stdout: &str| ExecResult {
            exit,
            stdout: stdout.as_bytes().to_vec(),
            ..ExecResult::default()
        };
        let own = |exit, stdout: &str| {
            let reported = with_own_status(&scripts::after_rollback(), ran(exit, stdout));
            (reported.exit, String::from_utf8_lossy(&reported.stdout).into_owned())
        };
        let said = "a\r\ndrover-status 33\r\n";
        for exit in [1, 33] {
            assert_eq!(own(Some(exit), said), (Some(33), "a\r".to_owned()));
        }
        for exit in [Some(0), None] {
            assert_eq!(own(exit, said), (exit, said.to_owned()), "it did not fail by itself");
        }
        assert_eq!(own(Some(1), "a"), (Some(1), "a".to_owned()));
        assert_eq!(
            with_own_status("ver", ran(Some(1), said)).exit,
            Some(1),
            "not a command of drover's"
        );
    }

    #[test]
    fn a_probe_that_does_not_end_leaves_time_for_the_command() {
        assert_eq!(probe_limits(Duration::from_secs(600)).time, Duration::from_secs(30));
        assert_eq!(probe_limits(Duration::from_secs(5)).time, Duration::from_secs(5));
    }

    // Invariant: only network cards count as such, and missing ones are not taken for those of
    // another machine.

    #[test]
    fn a_guest_that_shows_no_cards_in_time_is_asked_again() {
        let ran = |exit, tail: &str| Ran { exit, tail: tail.into() };
        let said = ran(Some(0), "BC:24:11:00:00:01 0A:00:27:00:00:02\nsomething else");
        assert_eq!(
            listed_cards(WINDOWS, &said),
            Ok(vec!["BC:24:11:00:00:01".into(), "0A:00:27:00:00:02".into()])
        );
        for os in [WINDOWS, Os::Linux] {
            let late = listed_cards(os, &ran(None, "(ended after 30 s)"));
            assert_eq!(late.map_err(|fault| fault.kind), Err(FaultKind::Unreachable));
        }
    }

    #[test]
    fn a_key_that_is_not_taken_is_the_images_affair() {
        let text = "check the user and that cloud-init installed this key".to_owned();
        assert_eq!(
            login_text(WINDOWS, text.clone()),
            "check the user and that the image has this key"
        );
        assert_eq!(login_text(Os::Linux, text.clone()), text);
    }
}
