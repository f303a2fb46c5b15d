//! The folders of demos that were killed, and so could not remove them.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::geteuid;

/// The prefix of all folders of demos.
pub const PREFIX: &str = "drover-demo-";
/// The file with the process id of the demo that a folder belongs to.
const PID_FILE: &str = "pid";

/// Marks a folder as this process's: a later demo removes it once this process has ended.
///
/// # Errors
/// When the file cannot be written.
pub fn claim(folder: &Path) -> io::Result<()> {
    std::fs::write(folder.join(PID_FILE), std::process::id().to_string())
}

/// Removes the mark, so that the folder stays.
pub fn keep(folder: &Path) {
    // A folder that keeps its mark is removed by the next demo, which does no harm.
    let _ = std::fs::remove_file(folder.join(PID_FILE));
}

/// Removes this user's demo folders in `base` whose process has no entry in `processes`, such as
/// `/proc`.
pub fn remove_dead(base: &Path, processes: &Path) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        let folder = entry.path();
        let is_demos = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // Another user's file can be a pipe, which would block the reader.
        let is_own = |meta: Metadata| meta.is_dir() && meta.uid() == geteuid().as_raw();
        if !is_demos || !entry.metadata().is_ok_and(is_own) {
            continue;
        }
        let owner = std::fs::read_to_string(folder.join(PID_FILE)).ok();
        let owner = owner.and_then(|text| text.trim().parse::<u32>().ok());
        if owner.is_some_and(|pid| !processes.join(pid.to_string()).exists()) {
            // A folder that cannot be removed does no harm.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use super::*;

    // Invariant: only folders of demos that have ended are removed.

    #[test]
    fn only_folders_of_ended_demos_are_removed() {
        let (base, processes) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(processes.path().join("7")).unwrap();
        let make = |name: &str, owner: Option<&str>| {
            let folder = base.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            owner.inspect(|owner| std::fs::write(folder.join(PID_FILE), owner).unwrap());
        };
        make("drover-demo-dead", Some("8"));
        for (name, owner) in [
            ("drover-demo-alive", Some("7")),
            ("drover-demo-kept", None),
            ("drover-demo-odd", Some("../8")),
            ("other-demo-dead", Some("8")),
        ] {
            make(name, owner);
        }
        make("drover-demo-given", Some("8"));
        // Only root can change the owner of a folder.
        let given = base.path().join("drover-demo-given");
        let is_given = std::os::unix::fs::chown(&given, Some(65_534), None).is_ok();
        remove_dead(base.path(), processes.path());
        assert_eq!(given.exists(), is_given, "another user's stays");
        std::fs::remove_dir_all(&given).ok();
        let left = std::fs::read_dir(base.path()).unwrap().flatten();
        let mut left: Vec<_> = left.map(|one| one.file_name().into_string().unwrap()).collect();
        left.sort();
        let stay = ["drover-demo-alive", "drover-demo-kept", "drover-demo-odd", "other-demo-dead"];
        assert_eq!(left, stay);
    }
}
