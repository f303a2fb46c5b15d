//! The commands that prepare a guest: pure texts of drover's own scripts and their arguments.
//!
//! Each is one line for whatever shell the login user has, and runs in the guest's POSIX `sh`.

use drover_model::spec::{JavaDistribution, JavaSpec, TemplateSpec};
use drover_model::time::WallTime;

const CLOUD_INIT: &str = include_str!("guest/cloud-init.sh");
const REMOTE_FS: &str = include_str!("guest/remote-fs.sh");
const COMMON: &str = include_str!("guest/common.sh");
const PACKAGES: &str = include_str!("guest/packages.sh");
const JAVA: &str = include_str!("guest/java.sh");
const KEYS: &str = include_str!("guest/keys.sh");
const ADMIT: &str = include_str!("guest/admit.sh");
const EXPEL: &str = include_str!("guest/expel.sh");
const SESSIONS: &str = include_str!("guest/sessions.sh");
const MEND: &str = include_str!("guest/mend.sh");
const CLOSE_SSH: &str = include_str!("guest/close-ssh.sh");

/// What the scripts that change keys end with when another try can help.
pub const AGAIN: u32 = 75;

/// What the key of whoever holds a guest has in the place of a lease; no lease is called so.
pub const HOLD: &str = "hold";

/// Put before each line of output that is a warning and no failure.
const WARNING: &str = "warning: ";

/// Waits for cloud-init.
pub fn cloud_init() -> String {
    script(&[CLOUD_INIT], &[])
}

/// Makes the working directory; looks for Java where none is installed.
pub fn remote_fs(spec: &TemplateSpec) -> String {
    let java = match spec.java.distribution {
        JavaDistribution::None => spec.java.path.as_str(),
        JavaDistribution::Openjdk | JavaDistribution::Corretto => "",
    };
    working_directory(&spec.remote_fs, java)
}

/// Makes a working directory; looks for this Java, where it is not blank.
pub fn working_directory(dir: &str, java: &str) -> String {
    script(&[REMOTE_FS], &[dir, java])
}

/// The directory and the Java of a command of [`working_directory`] whose names are plain; none of
/// any other.
pub fn read_working_directory(command: &str) -> Option<(&str, &str)> {
    let (_, arguments) = command.rsplit_once(" drover '")?;
    let (dir, java) = arguments.strip_suffix('\'')?.split_once("' '")?;
    (command == working_directory(dir, java)).then_some((dir, java))
}

/// Sees to it that there is Java; none where nothing is to be installed.
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

/// Installs packages.
pub fn packages(names: &[String]) -> String {
    script(&[COMMON, PACKAGES], &names.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Makes a guest that was put back to its snapshot know the time, its network, and that it is not
/// what it was.
pub fn mend(now: WallTime, draw: u64) -> String {
    let seconds = now.0.div_euclid(1000).to_string();
    script(&[SESSIONS, MEND], &[&seconds, &format!("{draw:016x}")])
}

/// Shuts everybody out of a guest that goes, drover too.
pub fn close_ssh(public_key: &str) -> String {
    script(
        &[SESSIONS, KEYS, CLOSE_SSH],
        &[public_key.split_whitespace().nth(1).unwrap_or_default()],
    )
}

/// Adds the key of a lease, or of [`HOLD`] in the place of all leases' keys; `line` ends with what
/// marks it as that lease's.
pub fn admit(lease: &str, line: &str) -> String {
    script(&[KEYS, ADMIT], &[lease, line])
}

/// Removes the key of a lease.
pub fn expel(lease: &str) -> String {
    script(&[KEYS, EXPEL], &[lease])
}

/// The warnings in what one of these scripts said.
pub fn warnings(said: &str) -> Vec<String> {
    said.lines().filter_map(|line| line.strip_prefix(WARNING)).map(str::to_owned).collect()
}

/// A script and its arguments as one command.
fn script(parts: &[&str], arguments: &[&str]) -> String {
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

    // Invariant: a script arrives word by word whatever stands in the YAML.

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
