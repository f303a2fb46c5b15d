//! The key and the known hosts of one operation, as the files that ssh wants.
//!
//! Children run in the scratch folder, so both files have short relative names: ssh would expand
//! `%`, `$` and spaces in an absolute path, each by rules of its own.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};

use super::error::GitError;
use super::url::RepoUrl;

const FOLDER: &str = "ssh";
const KEY: &str = "key";
const KNOWN_HOSTS: &str = "known_hosts";

/// Two files that are removed with this value, however the operation ends.
#[derive(Debug)]
pub(super) struct SshFiles(PathBuf);

impl SshFiles {
    /// Writes both files, readable by drover's user alone.
    pub(super) fn write(
        scratch: &Path,
        key: &SecretString,
        known_hosts: &str,
    ) -> Result<Self, GitError> {
        let folder = scratch.join(FOLDER);
        remove_left_over(scratch)?;
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| GitError::Io { doing: "write", path, source }
        };
        DirBuilder::new().mode(0o700).create(&folder).map_err(failed(&folder))?;
        let this = Self(folder);
        for (name, text) in [(KEY, key.expose_secret()), (KNOWN_HOSTS, known_hosts)] {
            let path = this.0.join(name);
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
                .map_err(failed(&path))?;
            // ssh refuses a key without a line end at its end.
            for line in text.trim().lines() {
                file.write_all(line.as_bytes()).map_err(failed(&path))?;
                file.write_all(b"\n").map_err(failed(&path))?;
            }
        }
        Ok(this)
    }
}

impl Drop for SshFiles {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::debug!(folder = %self.0.display(), %error, "the key of a repository could not be removed");
        }
    }
}

/// Removes the files of a drover that was killed.
pub(super) fn remove_left_over(scratch: &Path) -> Result<(), GitError> {
    let path = scratch.join(FOLDER);
    match std::fs::remove_dir_all(&path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(GitError::Io { doing: "remove", path, source })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The command line by which git starts ssh: no settings, keys or hosts but those given here.
pub(super) fn command(url: &RepoUrl, username: &str) -> String {
    let mut command = format!("ssh -F /dev/null -i {FOLDER}/{KEY}");
    let known_hosts = format!("UserKnownHostsFile={FOLDER}/{KNOWN_HOSTS}");
    for option in [
        "IdentitiesOnly=yes",
        "IdentityAgent=none",
        "BatchMode=yes",
        "PreferredAuthentications=publickey",
        "StrictHostKeyChecking=yes",
        &known_hosts,
        "GlobalKnownHostsFile=/dev/null",
        "UpdateHostKeys=no",
        "ConnectTimeout=20",
        "ServerAliveInterval=10",
    ] {
        command.push_str(" -o ");
        command.push_str(option);
    }
    if url.user().is_none() {
        // The login was checked: the name has no character with a meaning in a shell.
        command.push_str(" -l ");
        command.push_str(username);
    }
    command
}
