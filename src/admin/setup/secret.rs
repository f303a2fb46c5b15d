//! Files of secrets: readable by their owner alone, and written completely or not at all.

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};

/// The user who may share a secret with a group.
const ROOT_UID: u32 = 0;
/// The group of the systemd unit.
const SERVICE_GROUP: &str = "drover";

/// Writes a secret into a file that only its owner can read; an old file is replaced in one step. A
/// file that root makes is also readable by the service's group, where that group exists.
///
/// # Errors
/// The system's reason; the old file stays as it was.
pub fn write_secret(path: &Path, secret: &SecretString) -> io::Result<()> {
    let group = if rustix::process::geteuid().is_root() { service_group() } else { None };
    write_for(path, secret, group, ROOT_UID)
}

/// The number of the group of the systemd unit, by `/etc/group`.
pub fn service_group() -> Option<u32> {
    let table = std::fs::read_to_string("/etc/group").ok()?;
    group_in(&table, SERVICE_GROUP)
}

/// The number of a group in a table of lines `NAME:PASSWORD:NUMBER:MEMBERS` (group(5)).
fn group_in(table: &str, name: &str) -> Option<u32> {
    let line = table.lines().find(|line| line.split(':').next() == Some(name))?;
    line.split(':').nth(2)?.parse().ok()
}

/// The same for a given group; `owner` is the user who may share a file with a group.
fn write_for(path: &Path, secret: &SecretString, group: Option<u32>, owner: u32) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.drover-{}", std::process::id()));
    let done = (|| {
        let mut options = std::fs::File::options();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(secret.expose_secret().as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        // The owner of the old file also owns the new one.
        if let Ok(known) = std::fs::metadata(path) {
            use std::os::unix::fs::MetadataExt as _;
            let (user, group) = (Some(known.uid()), Some(known.gid()));
            // Only root may. For others it is their own file anyway, and no longer their group's.
            let kept = std::os::unix::fs::chown(&beside, user, group).is_ok();
            let shared = if kept && known.uid() == owner { known.mode() & 0o040 } else { 0 };
            file.set_permissions(Permissions::from_mode(0o600 | shared))?;
        } else if group.is_some() {
            std::os::unix::fs::chown(&beside, None, group)?;
            file.set_permissions(Permissions::from_mode(0o640))?;
        }
        std::fs::rename(&beside, path)
    })();
    if done.is_err() {
        // The remains are useless; a failure to remove them adds nothing to the error.
        let _ = std::fs::remove_file(&beside);
    }
    done
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    // Invariant: nobody but the owner reads a secret at any moment, and half a secret is never
    // visible.

    #[test]
    fn a_secret_is_for_its_owner_alone_and_replaces_what_was_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        for secret in ["one", "two"] {
            write_for(&path, &secret.to_owned().into(), None, ROOT_UID).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{secret}\n"));
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o600);
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(write_secret(Path::new("/nowhere/token"), &"x".to_owned().into()).is_err());
    }

    #[test]
    fn a_new_secret_of_root_is_for_the_services_group_too_and_stays_so() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        // The user of this test may give a file to a group of their own.
        let own = rustix::process::getegid().as_raw();
        let owner = rustix::process::geteuid().as_raw();
        for secret in ["one", "two"] {
            let group = Some(own).filter(|_| secret == "one");
            write_for(&path, &secret.to_owned().into(), group, owner).unwrap();
            let known = std::fs::metadata(&path).unwrap();
            assert_eq!((known.mode() & 0o7777, known.gid()), (0o640, own), "{secret}");
        }
    }

    #[test]
    fn a_group_is_found_by_its_whole_name() {
        let table = "root:x:0:\ndrover-dev:x:7:\ndrover:x:998:ann\n";
        assert_eq!(group_in(table, "drover"), Some(998));
        assert_eq!(group_in("root:x:0:\n", "drover"), None);
    }
}
