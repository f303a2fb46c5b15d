//! The state directory of the service, and its heartbeat file.

use std::os::unix::fs::{DirBuilderExt, MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::process::geteuid;

use super::RunError;
use drover_config::ServiceSpec;

/// The file name of the journal.
pub const JOURNAL: &str = "journal.redb";
/// The folder of sources of images while drover downloads and uploads them.
pub const DOWNLOADS: &str = "downloads";
/// The modification time of this file says when the service was last alive.
const HEARTBEAT_FILE: &str = "alive";

/// Creates the state directory for its owner only, or checks whose the one is that exists.
///
/// # Errors
/// [`RunError::State`]; [`RunError::Unsafe`] where others could write into it.
pub fn create(given: Option<PathBuf>, spec: &ServiceSpec) -> Result<PathBuf, RunError> {
    make(&given.unwrap_or_else(|| spec.state_directory.clone()))
}

/// The same for a directory that is known before the configuration is.
///
/// # Errors
/// As [`create`].
pub fn make(path: &Path) -> Result<PathBuf, RunError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .and_then(|()| std::fs::metadata(path))
        .map_err(|source| RunError::State { path: path.to_owned(), source })
        .and_then(|known| check(path, (known.uid(), known.mode()), geteuid().as_raw()))?;
    Ok(path.to_owned())
}

/// Refuses a directory into which others may write: a journal that they change makes drover destroy
/// guests. Root may use a directory of the service's own user.
fn check(path: &Path, (owner, mode): (u32, u32), user: u32) -> Result<(), RunError> {
    let (shown, mode) = (path.display(), mode & 0o777);
    if user != 0 && owner != user {
        return Err(RunError::Unsafe(format!(
            "the state directory `{shown}` belongs to user {owner}, and drover runs as user {user}: run \
             `chown -R {user} {shown}`, or name another with --state-dir or service.stateDirectory"
        )));
    }
    if mode & 0o022 != 0 {
        return Err(RunError::Unsafe(format!(
            "others may write into the state directory `{shown}` (mode {mode:04o}), which holds the \
             journal and keys: look at what is in it, then run `chmod 700 {shown}`"
        )));
    }
    if mode & 0o055 != 0 {
        let path = shown.to_string();
        let text = format!("others may read the state directory: run `chmod 700 {path}`");
        tracing::warn!(path, mode = format!("{mode:04o}"), "{text}");
    }
    Ok(())
}

/// How long the service was down, by the age of its heartbeat file.
pub fn down_time(state: &Path) -> Duration {
    let changed = std::fs::metadata(state.join(HEARTBEAT_FILE)).and_then(|meta| meta.modified());
    changed
        .ok()
        .and_then(|last| SystemTime::now().duration_since(last).ok())
        .unwrap_or(Duration::ZERO)
}

/// Records that the service is alive. Without the file, leases get no credit for the down time.
pub fn write_heartbeat(state: &Path) {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(state.join(HEARTBEAT_FILE)).map(drop);
    if let Err(error) = written {
        tracing::warn!(%error, "cannot write the heartbeat file");
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use super::*;
    use drover_config::{Environment, Sources, check};

    const YAML: &str = "cloudConfigurations:\n  a: {name: A, apiUrl: \"https://127.0.0.1:1\", \
        credentialsId: t}\ncredentials:\n  t: {kind: proxmoxToken, tokenId: a@pve!a, secret: x-y-z}\n";

    // Invariant: nobody but the service and root can write into its state directory.

    #[test]
    fn a_state_directory_that_others_may_write_is_refused_with_what_to_run() {
        let path = Path::new("/var/lib/drover");
        let fault = |known, user| super::check(path, known, user).unwrap_err();
        for (known, user) in [((994, 0o700), 994), ((994, 0o700), 0), ((0, 0o755), 0)] {
            super::check(path, known, user).unwrap();
        }
        for mode in [0o777, 0o770, 0o702, 0o1777] {
            for user in [0, 994] {
                let fault = fault((user, mode), user);
                assert!(fault.to_string().contains("chmod 700 /var/lib/drover"), "{fault}");
                assert_eq!(fault.exit_code(), 2);
            }
        }
        assert!(fault((65534, 0o777), 0).to_string().contains("(mode 0777)"));
        let other = fault((0, 0o700), 994);
        assert!(other.to_string().contains("chown -R 994 /var/lib/drover"), "{other}");
        let dir = tempfile::tempdir().unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(dir.path(), open).unwrap();
        let checked = check(Sources::of_text("drover.yaml", YAML), &Environment::default());
        create(Some(dir.path().to_owned()), &checked.unwrap().service).unwrap_err();
    }

    // Invariant: only the owner of the service can read its files.

    #[test]
    fn the_state_directory_and_the_heartbeat_file_are_for_their_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let checked = check(Sources::of_text("drover.yaml", YAML), &Environment::default());
        let spec = checked.unwrap().service;
        let state = create(Some(dir.path().join("a/b")), &spec).unwrap();
        write_heartbeat(&state);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&state), mode(&state.join(HEARTBEAT_FILE))), (0o700, 0o600));
        write_heartbeat(&state);
        assert!(down_time(&state) < Duration::from_secs(60));
    }
}
