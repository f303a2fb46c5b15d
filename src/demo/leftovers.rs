//! Folders of demos that were killed: whoever is killed can put nothing away.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::geteuid;

/// What the folders of demos begin with.
pub const PREFIX: &str = "drover-demo-";
/// The file with the number of the process that a folder is of.
const OWNER: &str = "pid";

/// Says that a folder is this process's and goes with it.
///
/// # Errors
/// The folder takes no file.
pub fn own(folder: &Path) -> io::Result<()> {
    std::fs::write(folder.join(OWNER), std::process::id().to_string())
}

/// Has a folder stay for good.
pub fn keep(folder: &Path) {
    // One that stays without is swept by the next demo, which is no harm to this one.
    let _ = std::fs::remove_file(folder.join(OWNER));
}

/// Removes this user's folders of demos in `base` whose process, one below `processes`, is not there
/// any more.
pub fn sweep(base: &Path, processes: &Path) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        let folder = entry.path();
        let is_demos = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // Another user's file may be a pipe, which would hold up whoever reads it.
        let is_own = |meta: Metadata| meta.is_dir() && meta.uid() == geteuid().as_raw();
        if !is_demos || !entry.metadata().is_ok_and(is_own) {
            continue;
        }
        let owner = std::fs::read_to_string(folder.join(OWNER)).ok();
        let owner = owner.and_then(|text| text.trim().parse::<u32>().ok());
        if owner.is_some_and(|pid| !processes.join(pid.to_string()).exists()) {
            // What cannot be removed is in nobody's way.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use super::*;

    // Invariant: only a folder whose own demo is dead is removed.

    #[test]
    fn folders_of_dead_demos_go_and_all_others_stay() {
        let (base, processes) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(processes.path().join("7")).unwrap();
        let make = |name: &str, owner: Option<&str>| {
            let folder = base.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            owner.inspect(|owner| std::fs::write(folder.join(OWNER), owner).unwrap());
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
        // Root alone can give a folder away.
        let given = base.path().join("drover-demo-given");
        let is_given = std::os::unix::fs::chown(&given, Some(65_534), None).is_ok();
        sweep(base.path(), processes.path());
        assert_eq!(given.exists(), is_given, "another user's stays");
        std::fs::remove_dir_all(&given).ok();
        let left = std::fs::read_dir(base.path()).unwrap().flatten();
        let mut left: Vec<_> = left.map(|one| one.file_name().into_string().unwrap()).collect();
        left.sort();
        let stay = ["drover-demo-alive", "drover-demo-kept", "drover-demo-odd", "other-demo-dead"];
        assert_eq!(left, stay);
    }
}
