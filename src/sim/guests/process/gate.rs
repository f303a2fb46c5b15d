//! Which commands run where nothing isolates them.

use std::path::Path;

use drover_actors::agent::guest::{cloud_init, read_working_directory, working_directory};

use drover_ssh::{join, upload_target};

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
    HOUSEKEEPING.contains(&command)
        || command == cloud_init()
        || drover_shell::is_housekeeping(command)
        || upload_target(command).is_some_and(stays_home)
}

/// The command with which drover makes its working directory in a guest's home, as it makes it in
/// the folder that stands for this home; none for any other command.
pub(super) fn in_folder(command: &str, home: &str, folder: &Path) -> Option<String> {
    let (dir, java) = read_working_directory(command)?;
    let below = dir.strip_prefix(home)?.strip_prefix('/').filter(|below| stays_home(below))?;
    Some(working_directory(&folder.join(below).display().to_string(), java))
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
    use drover_ssh::upload_command;

    // Invariant: without a sandbox nothing passes that could leave the guest's folder.

    #[test]
    fn a_working_directory_is_made_in_the_folder_of_its_guest_or_not_at_all() {
        let made =
            |dir| in_folder(&working_directory(dir, "java"), "/home/ci", Path::new("/g/home"));
        assert_eq!(made("/home/ci/agent"), Some(working_directory("/g/home/agent", "java")));
        for elsewhere in ["/home/ci", "/home/cinema/x", "/srv", "/home/ci/../x", "/home/ci/$(id)"] {
            assert_eq!(made(elsewhere), None, "{elsewhere}");
        }
        let more = format!("{}; id", working_directory("/home/ci/agent", "java"));
        assert_eq!(in_folder(&more, "/home/ci", Path::new("/g/home")), None);
    }

    #[test]
    fn only_whole_known_commands_are_housekeeping() {
        let (upload, waits) = (upload_command("agent/job.sh", 9, 0o755), cloud_init());
        for good in ["true", "cloud-init status --wait", &upload, &waits] {
            assert!(is_housekeeping(good), "{good}");
        }
        let bad = [
            "true; rm -rf /".to_owned(),
            "uname".to_owned(),
            upload_command("/etc/passwd", 9, 0o755),
            upload_command("../../x", 9, 0o755),
            upload_command("$(id)", 9, 0o755),
            format!("{} && id", upload_command("x", 9, 0o755)),
            format!("{}; id", cloud_init()),
        ];
        for bad in bad {
            assert!(!is_housekeeping(&bad), "{bad}");
        }
    }
}
