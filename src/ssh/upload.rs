//! Uploads: a file arrives complete or not at all.
//!
//! They use a plain command, because not every guest has SFTP.

use std::time::Duration;

use bytes::Bytes;

use super::session::{ExecError, Keep, Limits, Session};
use super::words::quote;

/// Writes beside the target and renames only a complete file: `cat` cannot know a cut connection
/// from the end of the input.
const SCRIPT: &str = "; t=\"$p.part.$$\"; umask 077; [ ! -d \"$p\" ] \
    && cat > \"$t\" && [ \"$(wc -c < \"$t\")\" -eq \"$n\" ] && chmod \"$m\" \"$t\" \
    && mv -f \"$t\" \"$p\" || { rm -f \"$t\"; exit 73; }";

/// Why a file did not arrive.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// The command that receives the file has no result.
    #[error("failed to upload `{path}`")]
    Exec {
        /// The target path.
        path: String,
        #[source]
        source: ExecError,
    },
    /// The guest could not write the file.
    #[error("the guest could not write `{path}`: {reason}")]
    Failed {
        /// The target path.
        path: String,
        /// What the guest said.
        reason: String,
    },
}

/// The command that receives `bytes` bytes on its standard input and writes them to `path`.
#[must_use]
pub fn upload_command(path: &str, bytes: usize, mode: u32) -> String {
    // A leading dash would be read as an option.
    let path = if path.starts_with('-') { format!("./{path}") } else { path.to_owned() };
    format!("p={} n={bytes} m={mode:04o}{SCRIPT}", quote(&path))
}

/// The path of a command that [`upload_command`] makes, if the path needs no quotes; none for any
/// other command.
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
    /// Writes a file to `path` (relative paths start at the user's home) and replaces an existing
    /// file in one step.
    ///
    /// # Errors
    /// See [`UploadError`]; an existing file then stays as it was.
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
        let reason = if said.is_empty() { "the file arrived incomplete".to_owned() } else { said };
        Err(UploadError::Failed { path: path.to_owned(), reason })
    }
}
