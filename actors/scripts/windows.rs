//! The commands that drover runs in Windows guests over OpenSSH, as text; [`super::guest`] has
//! those for Linux. Pure.
//!
//! The login shell of such a guest is `cmd.exe`, Windows PowerShell or PowerShell 7. drover's own
//! scripts run in Windows PowerShell, which every Windows has, as an encoded command: one line
//! without a character that one of these shells treats specially. They get nothing on standard
//! input, because PowerShell as a login shell reads it before the program that it starts.
//!
//! PowerShell as a login shell turns every exit status but 0 into 1 (`ConsoleHost.cs`: only `$?`
//! counts), so a script also prints its status on standard output. Commands from the configuration
//! are for `cmd.exe`, whatever the login shell is.
//!
//! Written from the documentation of Windows and OpenSSH; not tried with a real Windows.

use drover_model::os::LoginShell;
use drover_model::spec::TemplateSpec;

const COMMON: &str = include_str!("guest/common.ps1");
const REPORT: &str = include_str!("guest/report.ps1");
const REMOTE_FS: &str = include_str!("guest/remote-fs.ps1");
const CARDS: &str = include_str!("guest/cards.ps1");
const KEYS: &str = include_str!("guest/keys.ps1");
const GRANT_ACCESS: &str = include_str!("guest/grant-access.ps1");
const REVOKE_ACCESS: &str = include_str!("guest/revoke-access.ps1");
const END_SESSIONS: &str = include_str!("guest/end-sessions.ps1");
const AFTER_ROLLBACK: &str = include_str!("guest/after-rollback.ps1");
const RUNNER: &str = include_str!("guest/runner.ps1");
const RUNNER_STARTED: &str = include_str!("guest/runner-started.ps1");
const RUNNER_START: &str = include_str!("guest/runner-start.ps1");
const RUNNER_WATCH: &str = include_str!("guest/runner-watch.ps1");
const RUNNER_STATUS: &str = include_str!("guest/runner-status.ps1");
const RUNNER_END: &str = include_str!("guest/runner-end.ps1");

/// The beginning of each of drover's own commands, before the code.
const OWN_COMMAND_PREFIX: &str =
    "powershell -NoProfile -NonInteractive -OutputFormat Text -EncodedCommand ";
/// The longest command that drover sends to a guest: `cmd.exe` accepts lines of 8191 characters,
/// its own name included.
pub const COMMAND_CHARS_MAX: usize = 8100;
/// Distinguishes login shells, as the Jenkins plugin does: `cmd.exe` and PowerShell 7 run both parts,
/// Windows PowerShell only repeats the line on standard error.
pub const LOGIN_SHELL_PROBE: &str = "echo probe && echo PROXMOX_SHELL_PROBE_OK_9F3A2C";
/// The line on standard output that shows that the probe's second part ran.
const PROBE_LINE: &str = "PROXMOX_SHELL_PROBE_OK_9F3A2C";
/// A command that ends with 0 in every login shell.
pub const NO_OP: &str = "exit 0";
/// What Windows PowerShell needs before and after a command for `cmd.exe`.
pub const CMD_IN_POWERSHELL: (&str, &str) = ("cmd /c '", "'");
/// The prefix of a script's last line of output, which holds its exit status when that is not 0.
const STATUS_PREFIX: &str = "drover-status ";
/// Characters that end a single-quoted text in PowerShell; doubled, they stand for themselves.
const POWERSHELL_QUOTES: [char; 5] = ['\'', '\u{2018}', '\u{2019}', '\u{201a}', '\u{201b}'];

/// One of drover's own scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Script {
    /// Says what a person must know of a guest in which a step failed.
    Report,
    /// Makes the working directory, looks for Java.
    RemoteFs,
    /// Prints the MAC addresses of the network cards.
    Cards,
    /// Adds the key of a lease.
    GrantAccess,
    /// Removes the key of a lease.
    RevokeAccess,
    /// Ends all other sessions of a guest that no lease has.
    EndSessions,
    /// Checks a guest after a rollback to its snapshot.
    AfterRollback,
    /// Checks whether a runner was started.
    RunnerStarted,
    /// Starts a runner.
    RunnerStart,
    /// Prints the state and the log of a runner.
    RunnerStatus,
    /// Ends a runner.
    RunnerEnd,
}

impl Script {
    pub const ALL: [Self; 11] = [
        Self::Report,
        Self::RemoteFs,
        Self::Cards,
        Self::GrantAccess,
        Self::RevokeAccess,
        Self::EndSessions,
        Self::AfterRollback,
        Self::RunnerStarted,
        Self::RunnerStart,
        Self::RunnerStatus,
        Self::RunnerEnd,
    ];

    fn parts(self) -> [&'static str; 3] {
        match self {
            Self::Report => [COMMON, "", REPORT],
            Self::RemoteFs => [COMMON, "", REMOTE_FS],
            Self::Cards => [COMMON, "", CARDS],
            Self::GrantAccess => [COMMON, KEYS, GRANT_ACCESS],
            Self::RevokeAccess => [COMMON, KEYS, REVOKE_ACCESS],
            Self::EndSessions => [COMMON, KEYS, END_SESSIONS],
            Self::AfterRollback => [COMMON, KEYS, AFTER_ROLLBACK],
            Self::RunnerStarted => [COMMON, RUNNER, RUNNER_STARTED],
            Self::RunnerStart => [COMMON, RUNNER, RUNNER_START],
            Self::RunnerStatus => [COMMON, RUNNER, RUNNER_STATUS],
            Self::RunnerEnd => [COMMON, RUNNER, RUNNER_END],
        }
    }

    /// The script and its arguments, as Windows PowerShell reads them.
    pub fn code(self, arguments: &[&str]) -> String {
        let arguments: Vec<String> = arguments.iter().map(|word| quote(word)).collect();
        format!("$arguments = @({})\n{}", arguments.join(","), without_comments(&self.parts()))
    }

    /// The command that runs the script.
    pub fn command(self, arguments: &[&str]) -> String {
        format!("{OWN_COMMAND_PREFIX}{}", encode(&self.code(arguments)))
    }
}

/// The encoded code in one of drover's own commands; none for any other command.
pub fn encoded(command: &str) -> Option<&str> {
    let code = command.strip_prefix(OWN_COMMAND_PREFIX)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    (!code.is_empty() && code.chars().all(plain)).then_some(code)
}

/// Says what a person must know of a guest in which a step failed, in at most 4,000 characters.
pub fn report() -> String {
    Script::Report.command(&[])
}

/// Makes the working directory; looks for Java.
pub fn remote_fs(spec: &TemplateSpec) -> String {
    Script::RemoteFs.command(&[&spec.remote_fs, &spec.java.path])
}

/// Prints the MAC addresses of the machine's network cards.
pub fn cards() -> String {
    Script::Cards.command(&[])
}

/// Checks a guest after a rollback to its snapshot.
pub fn after_rollback() -> String {
    Script::AfterRollback.command(&[])
}

/// Does nothing after a revert to a snapshot of a lease: the boot gave the guest all it needs, and
/// the lease's key belongs there.
pub fn after_revert() -> String {
    "exit 0".to_owned()
}

/// Adds the key of a lease, or of [`super::guest::HOLD`], which replaces the keys of all leases;
/// `line` ends with the mark of that lease.
pub fn grant_access(lease: &str, line: &str) -> String {
    Script::GrantAccess.command(&[lease, line])
}

pub fn revoke_access(lease: &str) -> String {
    Script::RevokeAccess.command(&[lease])
}

/// Ends all other sessions, and what they started, in a guest that no lease, hold or runner has.
pub fn end_sessions() -> String {
    Script::EndSessions.command(&[])
}

/// The script that watches a runner in its guest; it is a file in the runner's folder.
pub fn runner_watch() -> String {
    without_comments(&[RUNNER_WATCH])
}

/// The login shell that the probe's standard output shows.
pub fn probed_login_shell(stdout: &str) -> LoginShell {
    let runs = stdout.lines().any(|line| line.trim() == PROBE_LINE);
    if runs { LoginShell::Cmd } else { LoginShell::Powershell }
}

/// The exit status that a failed script printed, with the output before it; none when it printed
/// none.
pub fn printed_status(stdout: &str) -> Option<(u32, &str)> {
    let said = stdout.trim_end();
    let (before, last) = said.rsplit_once('\n').unwrap_or(("", said));
    let status: u32 = last.strip_prefix(STATUS_PREFIX)?.parse().ok()?;
    (status != 0).then_some((status, before))
}

/// A command as this login shell takes it. A command from the configuration is for `cmd.exe`;
/// drover's own commands work in every login shell.
pub fn command_line(command: &str, shell: LoginShell) -> String {
    let command = command.trim_end();
    match shell {
        LoginShell::Powershell if encoded(command).is_none() => {
            let (before, behind) = CMD_IN_POWERSHELL;
            // Because of the blank, PowerShell puts quotes around the whole, and `cmd.exe` removes
            // them again. Otherwise `cmd.exe` would remove the first and the last quote of the
            // command.
            format!("{before} {}{behind}", doubled(command))
        }
        LoginShell::Auto | LoginShell::Cmd | LoginShell::Powershell => command.to_owned(),
    }
}

/// A word of a line in a batch file.
pub fn batch_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:\\@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let word = word.replace('%', "%%");
    // A backslash before the closing quote would make the quote part of the word.
    let last = if word.ends_with('\\') { "\\" } else { "" };
    format!("\"{word}{last}\"")
}

/// Whether a path begins with a drive, such as `C:\`.
pub fn has_drive(path: &str) -> bool {
    let mut chars = path.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic())
        && chars.next() == Some(':')
        && matches!(chars.next(), Some('\\' | '/'))
}

/// A path for SFTP: an absolute path has a slash before its drive.
pub fn sftp_path(path: &str) -> String {
    let before = if has_drive(path) { "/" } else { "" };
    format!("{before}{}", path.replace('\\', "/"))
}

/// The script's lines without comments, indentation and empty lines.
fn without_comments(parts: &[&str]) -> String {
    let lines = parts.iter().flat_map(|part| part.lines()).map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.flat_map(|line| [line, "\n"]).collect()
}

fn doubled(text: &str) -> String {
    text.chars()
        .flat_map(|c| std::iter::repeat_n(c, if POWERSHELL_QUOTES.contains(&c) { 2 } else { 1 }))
        .collect()
}

fn quote(text: &str) -> String {
    format!("'{}'", doubled(text))
}

/// Code as `-EncodedCommand` takes it: UTF-16, little-endian, in base64.
fn encode(code: &str) -> String {
    let bytes: Vec<u8> = code.encode_utf16().flat_map(u16::to_le_bytes).collect();
    base64(&bytes)
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let sum =
            (0..3).fold(0_u32, |sum, at| (sum << 8) | u32::from(*group.get(at).unwrap_or(&0)));
        for place in 0..4_usize {
            let digit = (sum >> (18 - 6 * place)) & 63;
            let known = place <= group.len();
            text.push(if known { char::from(DIGITS[digit as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;
    use drover_model::id::{CloudId, TemplateId, VmId};

    /// The code in a command, decoded.
    fn code(command: &str) -> String {
        let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let text = encoded(command).expect("one of drover's own").trim_end_matches('=');
        let bits: String = text
            .bytes()
            .map(|byte| format!("{:06b}", digits.iter().position(|one| *one == byte).unwrap()))
            .collect();
        let bytes = bits.as_bytes().chunks_exact(8).map(|byte| std::str::from_utf8(byte).unwrap());
        let bytes: Vec<u8> = bytes.map(|byte| u8::from_str_radix(byte, 2).unwrap()).collect();
        let units = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
        String::from_utf16(&units.collect::<Vec<_>>()).unwrap()
    }

    // Invariant: drover's own commands are the same line for every login shell, and short enough
    // for it.

    #[test]
    fn a_script_and_its_arguments_arrive_word_by_word() {
        let id = TemplateId::new(CloudId::new("c"), "t");
        let mut spec = TemplateSpec::bare(id, VmId(9000));
        spec.remote_fs = r"C:\it's $(x) `n".into();
        let command = remote_fs(&spec);
        let reported = code(&command);
        assert!(reported.starts_with("$arguments = @('C:\\it''s $(x) `n','java')\n"), "{reported}");
        assert!(reported.contains("\n$folder, $java = $arguments\n"), "{reported}");
        assert!(
            !reported.contains("\n#") && !reported.contains("\n\n") && !reported.contains("\n "),
            "{reported}"
        );
        assert_eq!(reported, Script::RemoteFs.code(&[&spec.remote_fs, "java"]));
    }

    #[test]
    fn a_command_is_what_windows_powershell_decodes() {
        assert_eq!(encode("exit 0"), "ZQB4AGkAdAAgADAA");
        assert_eq!([b"".as_slice(), b"f", b"fo", b"foo"].map(base64), ["", "Zg==", "Zm8=", "Zm9v"]);
        let command = cards();
        let start = "powershell -NoProfile -NonInteractive -OutputFormat Text -EncodedCommand ";
        assert!(command.starts_with(start), "{command}");
        let plain = |c: char| c.is_ascii_alphanumeric() || " -+/=".contains(c);
        assert!(command.chars().all(plain), "one shell or another would read it otherwise");
    }

    #[test]
    fn every_script_fits_into_a_line_of_cmd_with_the_longest_usual_arguments() {
        let rsa = format!("ssh-rsa {} drover-lease-lease-7dmamjfpe7r26pbz", "A".repeat(716));
        for script in Script::ALL {
            let arguments: &[&str] = match script {
                Script::GrantAccess => &["lease-7dmamjfpe7r26pbz", rsa.as_str()],
                Script::RevokeAccess => &["lease-7dmamjfpe7r26pbz"],
                Script::RemoteFs => {
                    &[r"C:\Users\jenkins.WIN-0123456789\agent", r"C:\Java\bin\java.exe"]
                }
                Script::Report | Script::Cards | Script::AfterRollback | Script::EndSessions => &[],
                Script::RunnerStarted
                | Script::RunnerStart
                | Script::RunnerStatus
                | Script::RunnerEnd => {
                    &["drover-7k2m9qxw-4f8z1c3px9t2vkab", "ended", r"C:\a\java.exe"]
                }
            };
            let length = script.command(arguments).len();
            assert!(length <= COMMAND_CHARS_MAX, "{script:?}: {length}");
        }
    }

    // Invariant: drover learns how a script ended, whatever the login shell does to the exit
    // status.

    #[test]
    fn a_script_says_its_status_on_the_last_line_wherever_it_leaves_with_one() {
        assert_eq!(printed_status("drover-status 33\r\n"), Some((33, "")));
        assert_eq!(printed_status("a\r\nb\r\ndrover-status 75\r\n"), Some((75, "a\r\nb\r")));
        for none in ["", "drover-status 33\nmore", "drover-status x", "drover-status 0", "33"] {
            assert_eq!(printed_status(none), None, "{none}");
        }
        for script in Script::ALL {
            let code = script.code(&[]);
            let leaves =
                code.lines().filter(|line| line.contains("exit ") && !line.contains("exit 0"));
            assert_eq!(leaves.collect::<Vec<_>>(), ["exit $status"], "{script:?}");
            assert!(code.contains("\nSay \"drover-status $status\"\nexit $status\n"), "{script:?}");
        }
    }

    #[test]
    fn whatever_fails_in_a_script_about_keys_is_tried_again_unless_it_says_otherwise() {
        for script in
            [Script::GrantAccess, Script::RevokeAccess, Script::EndSessions, Script::AfterRollback]
        {
            let code = script.code(&[]);
            assert!(code.contains("\ntrap { Fail $_ $unforeseen }\n"), "{script:?}");
            assert!(code.contains("\n$unforeseen = 75\n"), "{script:?}");
        }
        assert_eq!(crate::guest::EXIT_TRY_AGAIN, 75);
    }

    #[test]
    fn a_folder_with_files_of_git_in_it_is_removed() {
        let end = Script::RunnerEnd.code(&["r"]);
        assert!(end.contains("rd /s /q \"\"\\\\?\\$folder\"\""), "{end}");
        assert!(!end.contains("Directory]::Delete"), "it takes no file that is read-only: {end}");
    }

    // Invariant: commands from the configuration reach `cmd.exe` as they were written.

    #[test]
    fn a_command_of_peoples_is_wrapped_for_windows_powershell_alone() {
        let said = "cd \"C:\\it's\" && java -version\n";
        let plain = "cd \"C:\\it's\" && java -version";
        assert_eq!(command_line(said, LoginShell::Cmd), plain);
        let wrapped = "cmd /c ' cd \"C:\\it''s\" && java -version'";
        assert_eq!(command_line(said, LoginShell::Powershell), wrapped);
        assert_eq!(
            command_line("echo \u{2019}", LoginShell::Powershell),
            "cmd /c ' echo \u{2019}\u{2019}'"
        );
        // PowerShell puts quotes around an argument with a blank outside of quotes, and around no
        // other.
        let quoted = command_line("\"C:\\a b\\x.cmd\"<nul", LoginShell::Powershell);
        assert_eq!(quoted, "cmd /c ' \"C:\\a b\\x.cmd\"<nul'");
        let own = after_rollback();
        assert_eq!(command_line(&own, LoginShell::Powershell), own, "every shell takes it");
    }

    #[test]
    fn the_login_shell_is_reported_by_the_plugins_probe() {
        assert_eq!(LOGIN_SHELL_PROBE, format!("echo probe && echo {PROBE_LINE}"));
        assert_eq!(
            probed_login_shell("probe \r\nPROXMOX_SHELL_PROBE_OK_9F3A2C\r\n"),
            LoginShell::Cmd
        );
        assert_eq!(probed_login_shell(""), LoginShell::Powershell);
        assert_eq!(probed_login_shell("probe\n"), LoginShell::Powershell);
        let repeated =
            "At line:1 char:12\r\n+ echo probe && echo PROXMOX_SHELL_PROBE_OK_9F3A2C\r\n+ ~~\r\n";
        assert_eq!(
            probed_login_shell(repeated),
            LoginShell::Powershell,
            "it repeats the line, and runs nothing"
        );
    }

    #[test]
    fn words_of_a_batch_file_and_paths_of_sftp_are_as_windows_reads_them() {
        assert_eq!(batch_word("@secret"), "@secret");
        assert_eq!(batch_word(r"C:\ci"), r"C:\ci");
        assert_eq!(batch_word(r"C:\my ci\"), r#""C:\my ci\\""#);
        assert_eq!(batch_word("https://ci/%20"), "\"https://ci/%%20\"");
        assert_eq!(batch_word(""), "\"\"");
        assert_eq!(sftp_path(r"C:\ci\ci.conf"), "/C:/ci/ci.conf");
        assert_eq!(sftp_path(r"files\ci.conf"), "files/ci.conf");
        assert!(has_drive("d:/x") && !has_drive("d:x") && !has_drive(r"\x") && !has_drive("C:"));
    }
}
