//! Files with secrets that others can read: a note says so, as `ssh` does of keys, and nothing is refused.

use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use drover_config::is_private;
use serde_json::json;

use super::term::Term;

/// Notes that others can read a file; `what` is what the file holds, such as `token`.
///
/// # Errors
/// The note cannot be written. A file that cannot be looked at is for those who read it.
pub(super) fn note_open(
    what: &str,
    path: &Path,
    json: bool,
    term: &mut Term<'_>,
) -> io::Result<()> {
    let Ok(known) = std::fs::metadata(path) else { return Ok(()) };
    let mode = known.permissions().mode() & 0o7777;
    // A pipe of the shell, such as `<(pass token)`, is nobody else's.
    if !known.is_file() || is_private(mode, known.uid()) {
        return Ok(());
    }
    let shown = path.display().to_string();
    let command = format!("chmod 600 {}", drover_ssh::quote(&shown));
    let text =
        format!("note: others can read the {what} file `{shown}` (mode {mode:04o}): {command}");
    term.progress(json, &text, json!({ "file": shown, "mode": format!("{mode:04o}") }))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    // Invariant: a secret that others can read is named with the command that helps, and nothing else is.

    #[test]
    fn a_file_that_others_can_read_is_named_and_one_that_is_private_or_gone_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "secret").unwrap();
        let said = |mode: u32, json: bool| {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            let (mut out, mut err) = (Vec::new(), Vec::new());
            note_open("token", &file, json, &mut Term::new(&mut out, &mut err)).unwrap();
            assert!(out.is_empty());
            String::from_utf8(err).unwrap().replace(directory.path().to_str().unwrap(), "DIR")
        };
        assert_eq!(said(0o600, false), "");
        insta::assert_snapshot!(
            said(0o644, false) + &said(0o644, true),
            @r#"
        note: others can read the token file `DIR/token` (mode 0644): chmod 600 DIR/token
        {"progress":{"file":"DIR/token","mode":"0644","text":"note: others can read the token file `DIR/token` (mode 0644): chmod 600 DIR/token"}}
        "#
        );
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let gone = directory.path().join("gone");
        note_open("token", &gone, false, &mut Term::new(&mut out, &mut err)).unwrap();
        assert!(err.is_empty());
    }
}
