//! The configuration that a command works on.

use std::fs::File;
use std::io::Write as _;
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

/// Puts a whole text in a file's place at once, with the file's own rights.
pub(super) fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    // A link keeps leading where it does.
    let target = if file.exists() { file.canonicalize()? } else { file.to_owned() };
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let beside = target.with_file_name(format!(".{name}.drover-{}", std::process::id()));
    let done = (|| {
        let mut out = File::options().write(true).create_new(true).open(&beside)?;
        out.write_all(text.as_bytes())?;
        if let Ok(known) = std::fs::metadata(&target) {
            out.set_permissions(known.permissions())?;
        }
        out.sync_all()?;
        std::fs::rename(&beside, &target)
    })();
    if done.is_err() {
        // Whatever is left of it is of no use; that it cannot be removed adds nothing.
        let _ = std::fs::remove_file(&beside);
    }
    done
}
