//! The commands that drover runs in Linux guests: its own scripts and their arguments, as text.
//! Pure.
//!
//! Each command is one line for any login shell, and runs in the guest's POSIX `sh`. A script fails
//! with a text on standard error; the scripts about keys end with [`EXIT_TRY_AGAIN`] when another
//! try can help.

use drover_model::ports::Sessions;
use drover_model::spec::{JavaDistribution, JavaSpec, TemplateSpec};
use drover_model::time::WallTime;

const CLOUD_INIT: &str = include_str!("guest/cloud-init.sh");
const REPORT: &str = include_str!("guest/report.sh");
const REMOTE_FS: &str = include_str!("guest/remote-fs.sh");
pub(crate) const COMMON: &str = include_str!("guest/common.sh");
const PACKAGES: &str = include_str!("guest/packages.sh");
const JAVA: &str = include_str!("guest/java.sh");
const KEYS: &str = include_str!("guest/keys.sh");
const GRANT_ACCESS: &str = include_str!("guest/grant-access.sh");
const REVOKE_ACCESS: &str = include_str!("guest/revoke-access.sh");
const SESSIONS: &str = include_str!("guest/sessions.sh");
const AFTER_ROLLBACK: &str = include_str!("guest/after-rollback.sh");
const CLOSE_SSH: &str = include_str!("guest/close-ssh.sh");

/// The exit status of the scripts about keys when another try can help.
pub const EXIT_TRY_AGAIN: u32 = 75;

/// The name that the key of a hold has in place of a lease's id; no lease has this id.
pub const HOLD: &str = "hold";

/// The prefix of output lines that are warnings, not failures.
const WARNING_PREFIX: &str = "warning: ";

/// Waits for cloud-init.
pub fn cloud_init() -> String {
    script(&[CLOUD_INIT], &[])
}

/// Says what a person must know of a guest in which a step failed, in at most 4,000 characters.
pub fn report() -> String {
    script(&[REPORT], &[])
}

/// Makes the working directory; looks for Java if drover installs none.
pub fn remote_fs(spec: &TemplateSpec) -> String {
    let java = match spec.java.distribution {
        JavaDistribution::None => spec.java.path.as_str(),
        JavaDistribution::Openjdk | JavaDistribution::Corretto => "",
    };
    working_directory(&spec.remote_fs, java)
}

/// Makes a working directory; looks for `java` unless it is empty.
pub fn working_directory(dir: &str, java: &str) -> String {
    script(&[REMOTE_FS], &[dir, java])
}

/// The directory and the Java of a [`working_directory`] command with plain names; none for any
/// other command.
pub fn read_working_directory(command: &str) -> Option<(&str, &str)> {
    let (_, arguments) = command.rsplit_once(" drover '")?;
    let (dir, java) = arguments.strip_suffix('\'')?.split_once("' '")?;
    (command == working_directory(dir, java)).then_some((dir, java))
}

/// Makes sure that Java is installed; none if the template wants no installation.
pub fn java(java: &JavaSpec) -> Option<String> {
    let distribution = match java.distribution {
        JavaDistribution::None => return None,
        JavaDistribution::Openjdk => "OPENJDK",
        JavaDistribution::Corretto => "CORRETTO",
    };
    let blank_or = |text: &Option<String>| text.clone().unwrap_or_default();
    let (repository, key) = (blank_or(&java.repository), blank_or(&java.repository_key));
    let repository = repository.trim_end_matches('/');
    Some(script(&[COMMON, JAVA], &[distribution, &java.major.to_string(), repository, &key]))
}

pub fn packages(names: &[String]) -> String {
    script(&[COMMON, PACKAGES], &names.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Gives a guest the present time, a fresh lease of its address and fresh randomness after a
/// rollback to its snapshot; ends all other sessions.
pub fn after_rollback(now: WallTime, draw: u64) -> String {
    refresh(now, draw, &[])
}

/// The same for a snapshot that was taken during a lease, whose key belongs there.
pub fn after_revert(now: WallTime, draw: u64) -> String {
    refresh(now, draw, &["leased"])
}

fn refresh(now: WallTime, draw: u64, more: &[&str]) -> String {
    let (seconds, draw) = (now.0.div_euclid(1000).to_string(), format!("{draw:016x}"));
    script(&[SESSIONS, AFTER_ROLLBACK], &[&[seconds.as_str(), &draw], more].concat())
}

/// Shuts everybody out of a guest that is about to be destroyed, drover included.
pub fn close_ssh(public_key: &str) -> String {
    script(
        &[SESSIONS, KEYS, CLOSE_SSH],
        &[public_key.split_whitespace().nth(1).unwrap_or_default()],
    )
}

/// Adds the key of a lease, or of [`HOLD`], which replaces the keys of all leases; `line` ends with
/// the mark of that lease.
pub fn grant_access(lease: &str, line: &str) -> String {
    script(&[KEYS, GRANT_ACCESS], &[lease, line])
}

/// Removes the key of a lease; also ends all other sessions where asked, unless somebody was admitted
/// meanwhile.
pub fn revoke_access(lease: &str, sessions: Sessions) -> String {
    let end: &[&str] = match sessions {
        Sessions::Stay => &[],
        Sessions::End => &["end"],
    };
    script(&[SESSIONS, KEYS, REVOKE_ACCESS], &[&[lease], end].concat())
}

/// The warnings in a script's output.
pub fn warnings(said: &str) -> Vec<String> {
    said.lines().filter_map(|line| line.strip_prefix(WARNING_PREFIX)).map(str::to_owned).collect()
}

/// A script and its arguments as one command.
pub(crate) fn script(parts: &[&str], arguments: &[&str]) -> String {
    let words = arguments.iter().map(|word| format!(" {}", quote(word)));
    format!("sh -c {} drover{}", quote(&parts.concat()), words.collect::<String>())
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_model::id::{CloudId, TemplateId, VmId};

    // Invariant: arguments reach a script word by word, whatever the YAML contains.

    #[test]
    fn arguments_are_quoted_and_follow_the_script() {
        let id = TemplateId::new(CloudId::new("c"), "t");
        let mut spec = TemplateSpec::bare(id, VmId(9000));
        spec.remote_fs = "/srv/$(id) it's".into();
        let quoted = quote(REMOTE_FS);
        assert_eq!(remote_fs(&spec), format!(r"sh -c {quoted} drover '/srv/$(id) it'\''s' 'java'"));
        spec.java.distribution = JavaDistribution::Corretto;
        spec.java.repository = Some("https://mirror/deb/".into());
        let command = java(&spec.java).unwrap_or_default();
        assert!(command.starts_with("sh -c '#!/bin/sh\n"), "{command}");
        assert!(command.ends_with(" drover 'CORRETTO' '21' 'https://mirror/deb' ''"), "{command}");
    }

    #[test]
    fn nothing_is_installed_where_nothing_is_wanted() {
        let id = TemplateId::new(CloudId::new("c"), "t");
        assert_eq!(java(&TemplateSpec::bare(id, VmId(9000)).java), None);
    }
}
