//! Files of secrets: for their owner alone, and whole or not at all.

use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};

/// Writes a secret into a file that only its owner can read; what was there before is replaced at
/// once.
///
/// # Errors
/// The system's reason; the file is then as it was.
pub fn write_secret(path: &Path, secret: &SecretString) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.drover-{}", std::process::id()));
    let done = (|| {
        let mut options = std::fs::File::options();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(secret.expose_secret().as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        // Whoever owned the old file reads the new one.
        if let Ok(known) = std::fs::metadata(path) {
            use std::os::unix::fs::MetadataExt as _;
            let (user, group) = (Some(known.uid()), Some(known.gid()));
            // Only root may; for others it is their own file anyway.
            let _ = std::os::unix::fs::chown(&beside, user, group);
        }
        std::fs::rename(&beside, path)
    })();
    if done.is_err() {
        // Whatever is left of it is of no use; that it can not be removed adds nothing.
        let _ = std::fs::remove_file(&beside);
    }
    done
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    // Invariant: nobody but the owner reads a secret, not for a moment, and half of one is never seen.

    #[test]
    fn a_secret_is_for_its_owner_alone_and_replaces_what_was_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        for secret in ["one", "two"] {
            write_secret(&path, &secret.to_owned().into()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{secret}\n"));
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o600);
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(write_secret(Path::new("/nowhere/token"), &"x".to_owned().into()).is_err());
    }
}
