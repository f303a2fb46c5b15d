//! The version of the state directory: what lies in it, and which drover used it last.
//!
//! The file `layout.json` says both. A drover refuses a directory whose layout is newer than its own,
//! before it opens or changes anything there. The journal decides for itself what it can read
//! (`drover_journal`); this file names the program that can read it. The book (state) has the page of
//! the layout: a change of what lies in the directory changes [`LAYOUT`] and that page.
//!
//! A directory without the file is from before there was one, and has layout 1.

use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::RunError;

/// The layout that this drover writes, and the newest that it reads.
pub const LAYOUT: u32 = 1;
/// The name of the file.
pub const FILE: &str = "layout.json";
/// The longest file that is read, in bytes.
const BYTES_MAX: u64 = 4096;

/// What the file says. A newer drover may say more in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    layout: u32,
    /// The version of the drover that used the directory last.
    drover: String,
}

impl Layout {
    /// What this drover writes.
    fn own() -> Self {
        Self { layout: LAYOUT, drover: env!("CARGO_PKG_VERSION").to_owned() }
    }

    /// The version of the drover that used the directory last, where that is another one than this.
    pub fn other(&self) -> Option<&str> {
        (self.drover != env!("CARGO_PKG_VERSION")).then_some(&self.drover)
    }
}

/// Reads what the directory says of itself; `None` where it says nothing.
///
/// # Errors
/// [`RunError::State`]; [`RunError::Newer`] where its layout is newer than this drover's, or is not
/// understood.
pub fn read(state: &Path) -> Result<Option<Layout>, RunError> {
    let path = state.join(FILE);
    let mut text = String::new();
    let read = std::fs::File::open(&path)
        .and_then(|file| io::Read::read_to_string(&mut io::Read::take(file, BYTES_MAX), &mut text));
    match read {
        Ok(_) => understand(state, &text).map(Some).map_err(RunError::Newer),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(RunError::State { path, source }),
    }
}

/// What the text of the file says, or why this drover must not use the directory.
fn understand(state: &Path, text: &str) -> Result<Layout, String> {
    let (shown, own) = (state.display(), env!("CARGO_PKG_VERSION"));
    let layout: Layout = serde_json::from_str(text).map_err(|error| {
        format!(
            "`{shown}/{FILE}` says which drover used the state directory last, and drover {own} does \
             not understand it ({error}); nothing was changed. Run the drover that was installed \
             before. If that is this one, the file is damaged: remove it, and start drover again"
        )
    })?;
    if layout.layout > LAYOUT {
        return Err(format!(
            "the state directory `{shown}` has layout {}, and drover {own} knows layouts up to \
             {LAYOUT}; nothing was changed. Install drover {}, which used it last, or restore the \
             copy of the directory from before the upgrade (`drover help install`)",
            layout.layout, layout.drover
        ));
    }
    Ok(layout)
}

/// Writes that this drover uses the directory, where it does not say so already.
///
/// # Errors
/// [`RunError::State`].
pub fn write(state: &Path, found: Option<&Layout>) -> Result<(), RunError> {
    let own = Layout::own();
    if found == Some(&own) {
        return Ok(());
    }
    let path = state.join(FILE);
    put(state, &path, &own).map_err(|source| RunError::State { path, source })
}

fn put(state: &Path, path: &Path, layout: &Layout) -> io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(".layout").tempfile_in(state)?;
    writeln!(file, "{}", serde_json::to_string(layout)?)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    std::fs::File::open(state)?.sync_all()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use super::*;

    // Invariant: a drover uses no state directory that only a newer one understands, and says which.

    #[test]
    fn a_newer_layout_is_refused_with_the_version_that_used_the_directory_last() {
        let dir = tempfile::tempdir().unwrap();
        let text = r#"{"layout":2,"drover":"9.1.0","shards":4}"#;
        std::fs::write(dir.path().join(FILE), text).unwrap();
        let refused = read(dir.path()).unwrap_err();
        let reported = refused.to_string();
        assert!(reported.contains("has layout 2, and drover "), "{reported}");
        assert!(reported.contains("Install drover 9.1.0, which used it last"), "{reported}");
        assert_eq!(refused.exit_code(), 2);
        assert_eq!(std::fs::read_to_string(dir.path().join(FILE)).unwrap(), text);
    }

    #[test]
    fn a_layout_file_that_is_not_understood_is_refused_with_what_to_do() {
        for text in ["", "layout 1", r#"{"layout":"two","drover":"1"}"#] {
            let reported = understand(Path::new("/var/lib/drover"), text).unwrap_err();
            assert!(reported.starts_with("`/var/lib/drover/layout.json` says"), "{reported}");
            assert!(reported.contains("remove it, and start drover again"), "{reported}");
        }
    }

    #[test]
    fn a_directory_without_a_layout_file_and_one_of_another_version_become_this_drovers() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
        write(dir.path(), None).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Some(Layout::own()));
        let former = Layout { layout: LAYOUT, drover: "0.0.9".to_owned() };
        put(dir.path(), &dir.path().join(FILE), &former).unwrap();
        let found = read(dir.path()).unwrap();
        assert_eq!(found.as_ref().and_then(Layout::other), Some("0.0.9"));
        write(dir.path(), found.as_ref()).unwrap();
        assert_eq!(read(dir.path()).unwrap().unwrap().other(), None);
        let names = std::fs::read_dir(dir.path()).unwrap();
        assert_eq!(names.count(), 1, "a file is left behind");
    }
}
