//! Which commands run where nothing isolates them.

use crate::ssh::{join, upload_target};

/// Commands of drover itself that only read, or touch nothing but the guest's own folder.
const HOUSEKEEPING: [&str; 6] = [
    "true",
    "cloud-init status --wait",
    "cloud-init status",
    "cat /etc/ssh/ssh_host_ed25519_key.pub",
    "sudo poweroff",
    "sudo reboot",
];

/// What a command that may not run answers.
pub(super) const REFUSAL: &str = "this command may not run outside a sandbox: install bubblewrap \
    or pass --unisolated\n";

/// Whether drover needs the command whatever the jobs are.
pub(super) fn is_housekeeping(command: &str) -> bool {
    HOUSEKEEPING.contains(&command) || upload_target(command).is_some_and(stays_home)
}

/// The same for a command given as words.
pub(super) fn line_of(words: &[String]) -> String {
    join(words)
}

/// A plain file below the home folder, where no earlier command can have put a link.
fn stays_home(path: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    !path.starts_with('/') && path.chars().all(plain) && path.split('/').all(|part| part != "..")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::upload_command;

    // Invariant: without a sandbox nothing passes that could leave the guest's folder.

    #[test]
    fn only_whole_known_commands_are_housekeeping() {
        for good in ["true", "cloud-init status --wait", &upload_command("agent/job.sh", 9, 0o755)]
        {
            assert!(is_housekeeping(good), "{good}");
        }
        let bad = [
            "true; rm -rf /".to_owned(),
            "uname".to_owned(),
            upload_command("/etc/passwd", 9, 0o755),
            upload_command("../../x", 9, 0o755),
            upload_command("$(id)", 9, 0o755),
            format!("{} && id", upload_command("x", 9, 0o755)),
        ];
        for bad in bad {
            assert!(!is_housekeeping(&bad), "{bad}");
        }
    }
}
