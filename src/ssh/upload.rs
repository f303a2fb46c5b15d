//! Uploads: a file arrives whole or not at all.
//!
//! They go over a plain command, since sftp is not in every guest.

use std::time::Duration;

use bytes::Bytes;

use super::session::{ExecError, Keep, Limits, Session};
use super::words::quote;

/// Writes beside the target, and renames only what arrived whole: a cut connection looks like the
/// end of the input to `cat`.
const SCRIPT: &str = "; t=\"$p.part.$$\"; umask 077; [ ! -d \"$p\" ] \
    && cat > \"$t\" && [ \"$(wc -c < \"$t\")\" -eq \"$n\" ] && chmod \"$m\" \"$t\" \
    && mv -f \"$t\" \"$p\" || { rm -f \"$t\"; exit 73; }";

/// Why a file did not arrive.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// The command that receives it has no result.
    #[error("failed to upload `{path}`")]
    Exec {
        /// Where it should stand.
        path: String,
        /// Why.
        #[source]
        source: ExecError,
    },
    /// The guest could not write it.
    #[error("the guest could not write `{path}`: {reason}")]
    Failed {
        /// Where it should stand.
        path: String,
        /// What the guest said.
        reason: String,
    },
}

/// The command that receives `bytes` bytes on its standard input and puts them at `path`.
#[must_use]
pub fn upload_command(path: &str, bytes: usize, mode: u32) -> String {
    // A leading dash would be read as an option.
    let path = if path.starts_with('-') { format!("./{path}") } else { path.to_owned() };
    format!("p={} n={bytes} m={mode:04o}{SCRIPT}", quote(&path))
}

/// The path, when `command` is exactly one that [`upload_command`] makes and the path needs no
/// quotes.
#[must_use]
pub fn upload_target(command: &str) -> Option<&str> {
    let (path, rest) = command.strip_prefix("p=")?.split_once(" n=")?;
    let (bytes, rest) = rest.split_once(" m=")?;
    let (mode, _script) = rest.split_once(';')?;
    let bytes = bytes.parse().ok()?;
    let mode = u32::from_str_radix(mode, 8).ok()?;
    (upload_command(path, bytes, mode) == command).then_some(path)
}

impl Session {
    /// Puts a file at `path` (relative: in the user's home), replacing what stood there at once.
    ///
    /// # Errors
    /// See [`UploadError`]; the old file then stands as before.
    pub async fn upload(
        &self,
        path: &str,
        content: Bytes,
        mode: u32,
        time: Duration,
    ) -> Result<(), UploadError> {
        let command = upload_command(path, content.len(), mode);
        let limits = Limits { time, output_bytes_max: 2048, keep: Keep::Last };
        let result = self
            .exec(&command, Some(content), limits, None)
            .await
            .map_err(|source| UploadError::Exec { path: path.to_owned(), source })?;
        if result.succeeded() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&result.stderr).trim().to_owned();
        let reason = if said.is_empty() { "it did not arrive whole".to_owned() } else { said };
        Err(UploadError::Failed { path: path.to_owned(), reason })
    }
}
