//! Recognizes drover's own commands, for the hosts of simulated guests: which commands are
//! harmless, and which script for Windows a piece of code is.

use std::path::Path;

use drover_model::ports::Sessions;
use drover_scripts::guest::{cloud_init, read_working_directory, report, working_directory};
use drover_scripts::windows::Script;
use drover_ssh::upload_target;

use crate::user_data::guest;
use crate::{CARDS, admit_command, expel_command};

/// drover's own commands that only read, or touch nothing but the guest's own folder.
const HOUSEKEEPING: [&str; 6] = [
    "true",
    "cloud-init status --wait",
    "cloud-init status",
    "cat /etc/ssh/ssh_host_ed25519_key.pub",
    "sudo poweroff",
    "sudo reboot",
];

/// The beginning of every script for Windows.
const ARGUMENTS: &str = "$arguments = @(";

/// Whether the command is one that drover always needs, whatever the jobs are.
pub fn is_housekeeping(command: &str) -> bool {
    HOUSEKEEPING.contains(&command)
        || command == cloud_init()
        || command == report()
        || is_of_leases_or_cards(command)
        || upload_target(command).is_some_and(stays_home)
}

/// Rewrites the command that makes a working directory below `home` so that it makes it below
/// `folder` instead; none for any other command.
pub fn in_folder(command: &str, home: &str, folder: &Path) -> Option<String> {
    let (dir, java) = read_working_directory(command)?;
    let below = dir.strip_prefix(home)?.strip_prefix('/').filter(|below| stays_home(below))?;
    Some(working_directory(&folder.join(below).display().to_string(), java))
}

/// Whether a command is exactly the one that lists a guest's network cards, or one that adds or
/// removes a lease's key and user data.
fn is_of_leases_or_cards(command: &str) -> bool {
    if command == CARDS {
        return true;
    }
    let id = |text: &str| {
        let of_an_id = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
        text.chars().take_while(of_an_id).collect::<String>()
    };
    let Some((_, arguments)) = command.rsplit_once("' drover '") else {
        let (_, after) = command.split_once(".drover-lease/").unwrap_or_default();
        return command == guest::make_folder(&id(after));
    };
    let lease = id(arguments);
    let line = arguments.split_once("' '").map_or("", |(_, line)| line);
    let key = line.split_once(" drover-lease-").map_or("", |(key, _)| key);
    let expels = |sessions| command == expel_command(&lease, sessions);
    expels(Sessions::Stay) || expels(Sessions::End) || command == admit_command(&lease, key)
}

/// Whether the path is a plain file below the home folder, where no earlier command can have put a
/// link.
fn stays_home(path: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    !path.starts_with('/') && path.chars().all(plain) && path.split('/').all(|part| part != "..")
}

/// The name of the script for Windows PowerShell in this code, followed by its arguments; none for
/// any other code.
pub fn script(code: &str) -> Option<Vec<String>> {
    let arguments = arguments(code)?;
    let given: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let script = Script::ALL.into_iter().find(|script| script.code(&given) == code)?;
    let name = match script {
        Script::Report => "report",
        Script::RemoteFs => "remote-fs",
        Script::Cards => "cards",
        Script::GrantAccess => "admit",
        Script::RevokeAccess => "expel",
        Script::EndSessions => "end-sessions",
        Script::AfterRollback => "repair",
        Script::RunnerStarted => "runner-started",
        Script::RunnerStart => "runner-start",
        Script::RunnerStatus => "runner-words",
        Script::RunnerEnd => "runner-end",
    };
    Some([name.to_owned()].into_iter().chain(arguments).collect())
}

/// The single-quoted arguments at the beginning of a script.
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

#[cfg(test)]
mod tests {
    use super::*;
    use drover_ssh::upload_command;

    // Invariant: without a sandbox, no command passes that could leave the guest's folder.

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

    #[test]
    fn only_the_very_commands_of_lease_keys_and_cards_are_housekeeping() {
        let lease = "lease-7dmamjfpe7r26pbz";
        let [stay, end] = [Sessions::Stay, Sessions::End].map(|all| expel_command(lease, all));
        let keys = [admit_command(lease, "ssh-ed25519 AAAA"), stay, end];
        for command in keys.into_iter().chain([guest::make_folder(lease), CARDS.to_owned()]) {
            assert!(is_of_leases_or_cards(&command), "{command}");
            assert!(!is_of_leases_or_cards(&format!("{command}; reboot")));
        }
        assert!(!is_of_leases_or_cards("echo drover-lease-l1"));
    }
}
