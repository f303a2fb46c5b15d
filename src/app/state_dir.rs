//! The state directory of the service, and its heartbeat file.

use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::RunError;
use drover_config::ServiceSpec;

/// The file name of the journal.
pub const JOURNAL: &str = "journal.redb";
/// The folder of sources of images while drover downloads and uploads them.
pub const DOWNLOADS: &str = "downloads";
/// The modification time of this file says when the service was last alive.
const HEARTBEAT_FILE: &str = "alive";

/// Creates the state directory for its owner only.
///
/// # Errors
/// [`RunError::State`].
pub fn create(given: Option<PathBuf>, spec: &ServiceSpec) -> Result<PathBuf, RunError> {
    let path = given.unwrap_or_else(|| spec.state_directory.clone());
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&path)
        .map_err(|source| RunError::State { path: path.clone(), source })?;
    Ok(path)
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
