//! The configurations of a store that a member keeps in its state directory.
//!
//! ```text
//! <state directory>/shard-config/
//!   latest   -> versions/000007-1a2b3c4d5e6f    the one of the store; replaced by renaming
//!   accepted -> versions/000006-…               the newest one that had no faults
//!   versions/000007-1a2b3c4d5e6f/drover.yaml    its files
//! ```

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use drover_config::{Environment, LoadError};
use drover_members::ShardConfig;

/// The folder in the state directory.
const FOLDER: &str = "shard-config";
const LATEST: &str = "latest";
const ACCEPTED: &str = "accepted";
const VERSIONS: &str = "versions";
/// What a folder or a link is called before it is complete.
const NEW: &str = "new";

/// The folder of kept configurations.
#[derive(Debug, Clone)]
pub(super) struct KeptConfigs {
    folder: PathBuf,
}

impl KeptConfigs {
    pub(super) fn at(state: &Path) -> Self {
        let state = std::path::absolute(state).unwrap_or_else(|_| state.to_owned());
        Self { folder: state.join(FOLDER) }
    }

    /// The path that leads to the files of the newest one.
    pub(super) fn latest(&self) -> PathBuf {
        self.folder.join(LATEST)
    }

    /// The newest one by its name; none before the first.
    pub(super) fn named_latest(&self) -> Option<String> {
        self.target(LATEST)
    }

    fn target(&self, link: &str) -> Option<String> {
        let target = fs::read_link(self.folder.join(link)).ok()?;
        let name = target.file_name()?.to_string_lossy().into_owned();
        self.folder.join(VERSIONS).join(&name).is_dir().then_some(name)
    }

    /// Keeps a configuration, and makes it the newest.
    ///
    /// # Errors
    /// The system's reason; the newest is the one before then.
    pub(super) fn put(&self, config: &ShardConfig) -> io::Result<()> {
        let versions = self.folder.join(VERSIONS);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&versions)?;
        let (draft, place) = (versions.join(NEW), versions.join(config.id()));
        for old in [&draft, &place] {
            match fs::remove_dir_all(old) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        fs::DirBuilder::new().mode(0o700).create(&draft)?;
        for (name, text) in &config.files {
            let mut options = fs::OpenOptions::new();
            let mut file =
                options.write(true).create_new(true).mode(0o600).open(draft.join(name))?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
        }
        File::open(&draft)?.sync_all()?;
        fs::rename(&draft, &place)?;
        File::open(&versions)?.sync_all()?;
        self.link(LATEST, &config.id())
    }

    fn link(&self, link: &str, name: &str) -> io::Result<()> {
        let new = self.folder.join(format!("{link}.{NEW}"));
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        symlink(Path::new(VERSIONS).join(name), &new)?;
        fs::rename(&new, self.folder.join(link))?;
        File::open(&self.folder)?.sync_all()
    }

    /// Marks the newest one as one to start with.
    ///
    /// # Errors
    /// Its faults: it is not marked then.
    pub(super) fn accept(&self, environment: &Environment) -> Result<(), LoadError> {
        drover_config::load(&self.latest(), environment)?;
        let Some(name) = self.named_latest() else { return Ok(()) };
        if self.target(ACCEPTED).as_ref() != Some(&name)
            && let Err(error) = self.link(ACCEPTED, &name)
        {
            tracing::warn!(%error, "the configuration of the store is not kept for the next start");
        }
        self.prune();
        Ok(())
    }

    /// Makes the accepted one the newest again. Says whether there is one.
    ///
    /// # Errors
    /// The system's reason.
    pub(super) fn fall_back(&self) -> io::Result<bool> {
        self.target(ACCEPTED).map_or(Ok(false), |name| self.link(LATEST, &name).map(|()| true))
    }

    /// Removes what neither link leads to.
    fn prune(&self) {
        let kept = [LATEST, ACCEPTED].map(|link| self.target(link).map(OsString::from));
        let entries = fs::read_dir(self.folder.join(VERSIONS)).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| !kept.contains(&Some(entry.file_name()))) {
            // What is left takes a little space, and the next one tries again.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use super::*;

    const GOOD: &str = "cloudConfigurations:\n  a: {name: A, apiUrl: \"https://127.0.0.1:1\", \
        credentialsId: t}\ncredentials:\n  t: {kind: proxmoxToken, tokenId: a@pve!a, secret: x-y-z}\n";

    fn config(text: &str) -> ShardConfig {
        let files = [("drover.yaml".to_owned(), text.to_owned())].into();
        ShardConfig::after(None, files, (String::new(), String::new())).unwrap()
    }

    // Invariant: a member starts with the newest configuration that had no faults.

    #[test]
    fn what_has_faults_is_not_what_the_next_start_has() {
        let dir = tempfile::tempdir().unwrap();
        let kept = KeptConfigs::at(dir.path());
        let environment = Environment::default();
        let text = || fs::read_to_string(kept.latest().join("drover.yaml")).unwrap();
        assert_eq!(kept.named_latest(), None);
        assert!(kept.accept(&environment).is_err());
        assert!(!kept.fall_back().unwrap());
        kept.put(&config("a: b\n")).unwrap();
        assert!(kept.accept(&environment).is_err());
        assert!(!kept.fall_back().unwrap());
        assert_eq!(text(), "a: b\n", "nothing better is there");
        kept.put(&config(GOOD)).unwrap();
        kept.accept(&environment).unwrap();
        let broken = config("cloudConfigurations: 5\n");
        kept.put(&broken).unwrap();
        assert_eq!(kept.named_latest(), Some(broken.id()));
        assert!(kept.accept(&environment).is_err());
        assert!(kept.fall_back().unwrap());
        assert_eq!(text(), GOOD);
        kept.put(&config(&format!("# again\n{GOOD}"))).unwrap();
        kept.accept(&environment).unwrap();
        let versions = fs::read_dir(dir.path().join(FOLDER).join(VERSIONS)).unwrap();
        assert_eq!(versions.count(), 1, "the others are removed");
    }
}
