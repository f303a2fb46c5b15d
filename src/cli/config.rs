//! The configuration that a command works on.

use std::fs::{File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::global::Global;
use super::report::{self, USAGE};
use drover_config::{Checked, Environment};

/// Where the configuration is when nothing is said.
pub const DEFAULT_CONFIG: &str = "/etc/drover";

pub(super) fn config_path(global: &Global) -> PathBuf {
    global.config.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_CONFIG))
}

/// Reads a configuration; prints what is wrong with it, and the exit code, when it cannot be used.
pub(super) fn load(path: &Path, json: bool) -> Result<Checked, ExitCode> {
    match drover_config::load(path, &Environment::of_process()) {
        Ok(checked) => {
            report::warn(json, &checked);
            Ok(checked)
        }
        Err(error) => Err(report::fail_to_load(json, USAGE, &error)),
    }
}

/// Puts a whole text in a file's place at once: owner and mode are right before it is there. They are those
/// of the file that it replaces; `mode` outweighs that file's, and is that of a new one.
pub(super) fn replace(file: &Path, text: &str, mode: Option<u32>) -> std::io::Result<()> {
    // A link keeps leading where it does.
    let target = if file.exists() { file.canonicalize()? } else { file.to_owned() };
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let beside = target.with_file_name(format!(".{name}.drover-{}", std::process::id()));
    let done = (|| {
        let mut out = File::options().write(true).create_new(true).mode(0o600).open(&beside)?;
        out.write_all(text.as_bytes())?;
        let known = std::fs::metadata(&target).ok();
        if let Some(known) = &known {
            // Only root may give a file away: for others it is their own anyway.
            let _ = fchown(&out, Some(known.uid()), Some(known.gid()));
        }
        let kept = known.map(|known| known.mode() & 0o7777);
        let mode = mode.or(kept).unwrap_or(0o644);
        out.set_permissions(Permissions::from_mode(mode))?;
        out.sync_all()?;
        std::fs::rename(&beside, &target)
    })();
    if done.is_err() {
        // Whatever is left of it is of no use; that it cannot be removed adds nothing.
        let _ = std::fs::remove_file(&beside);
    }
    done
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use std::fs;
    use std::io::Read as _;

    use super::*;

    // Invariant: a reader sees the old text or the new one, never a part; a failure leaves the old one, and
    // nothing beside it.

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_text_takes_a_files_place_at_once_with_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("drover.yaml");
        replace(&file, "one", Some(0o644)).unwrap();
        assert_eq!(mode(&file), 0o644);
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        let mut reader = File::open(&file).unwrap();
        replace(&file, "two", None).unwrap();
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), mode(&file)), ("two", 0o640));
        let mut seen = String::new();
        reader.read_to_string(&mut seen).unwrap();
        assert_eq!(seen, "one", "an open file is never written to");
        // A link stays one.
        let link = folder.path().join("link.yaml");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace(&link, "three", Some(0o600)).unwrap();
        assert!(link.is_symlink());
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), mode(&file)), ("three", 0o600));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_failure_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        // A folder cannot be replaced by a file.
        let place = folder.path().join("drover.yaml");
        fs::create_dir(&place).unwrap();
        assert!(replace(&place, "one", Some(0o644)).is_err());
        assert!(place.is_dir());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
