//! The files a configuration is read from: one file, or the YAML files of a directory.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{fs, io};

use super::file::{self, Trace};
use super::mask::{hidden_words, masked};

/// The most bytes read, of all files together; more is a mistake, not a configuration.
const LARGEST: u64 = 4 << 20;

/// One file's text.
#[derive(Clone)]
pub struct SourceFile {
    /// Where it is.
    pub path: PathBuf,
    /// How faults name it.
    pub name: String,
    /// Its text.
    pub(super) text: String,
    /// How many bytes of it are UTF-8, when not all are.
    pub(super) sound: Option<usize>,
    /// What it was read from; none for a text in memory.
    pub(super) trace: Option<Trace>,
    /// Its text without secrets, once it is wanted.
    masked: OnceLock<String>,
}

impl SourceFile {
    /// Its text without secrets.
    pub(super) fn masked(&self) -> &str {
        // Nor does it tell a terminal what to do.
        self.masked.get_or_init(|| masked(&self.text).replace(is_control, "?"))
    }
}

impl std::fmt::Debug for SourceFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The files of a configuration, in the order of their names.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    files: Vec<SourceFile>,
}

impl Sources {
    /// Reads a file, or every `*.yaml` and `*.yml` of a directory that is not hidden. Each of those
    /// must be a plain file: what is passed over would look as if it had been taken out.
    ///
    /// # Errors
    /// The path that could not be read, with the system's reason.
    pub fn read(path: &Path) -> Result<Self, (PathBuf, io::Error)> {
        let mut left = LARGEST;
        if !path.is_dir() {
            return Ok(Self { files: vec![read_file(path, &mut left)?] });
        }
        let mut files = Vec::new();
        for path in yaml_in(path).map_err(|source| (path.to_owned(), source))? {
            files.push(read_file(&path, &mut left)?);
        }
        Ok(Self { files })
    }

    /// A configuration that is already in memory, named as faults shall name it.
    pub fn of_text(name: &str, text: &str) -> Self {
        Self { files: vec![source_file(PathBuf::from(name), text.as_bytes(), None)] }
    }

    /// A text that stands in for a file, shown by a name of its own.
    #[cfg(test)]
    pub(super) fn of_texts(files: &[(PathBuf, &str, &str)]) -> Self {
        let named = |(path, name, text): &(PathBuf, &str, &str)| SourceFile {
            name: (*name).to_owned(),
            ..source_file(path.clone(), text.as_bytes(), None)
        };
        Self { files: files.iter().map(named).collect() }
    }

    /// The same with another text in the place of one file, or with one file more.
    pub(super) fn with(&self, path: &Path, text: &str) -> Self {
        let mut files = self.files.clone();
        let file = source_file(path.to_owned(), text.as_bytes(), None);
        match files.iter_mut().find(|known| known.path == path) {
            Some(known) => *known = file,
            None => files.push(file),
        }
        Self { files }
    }

    /// The files.
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// Words that are hidden when the files are shown, the longest of each file first.
    pub(super) fn hidden_words(&self) -> Vec<&str> {
        self.files.iter().flat_map(|file| hidden_words(&file.text, file.masked())).collect()
    }

    pub(super) fn file(&self, index: usize) -> Option<&SourceFile> {
        self.files.get(index)
    }
}

/// Characters that no YAML may have, and that a damaged disk or a program in its place gives.
pub(super) fn is_control(c: char) -> bool {
    c.is_ascii_control() && !matches!(c, '\t' | '\n' | '\r')
}

/// The entries of a directory that are a configuration's by their names, in order.
///
/// # Errors
/// The system's reason.
pub(super) fn yaml_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if is_yaml(&path) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Whether a path is a configuration's by its name: editors' copies and hidden files are none.
pub(super) fn is_yaml(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
    !hidden && path.extension().is_some_and(|end| end == "yaml" || end == "yml")
}

fn read_file(path: &Path, left: &mut u64) -> Result<SourceFile, (PathBuf, io::Error)> {
    let (bytes, trace) = file::read(path, *left).map_err(|error| {
        let error = if error.kind() == io::ErrorKind::FileTooLarge && *left < LARGEST {
            let reason = format!("with it, the files have more than {LARGEST} bytes together");
            io::Error::new(io::ErrorKind::FileTooLarge, reason)
        } else {
            error
        };
        (path.to_owned(), error)
    })?;
    *left -= bytes.len() as u64;
    Ok(source_file(path.to_owned(), &bytes, Some(trace)))
}

fn source_file(path: PathBuf, bytes: &[u8], trace: Option<Trace>) -> SourceFile {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let sound = std::str::from_utf8(bytes).err().map(|error| error.valid_up_to());
    let text = String::from_utf8_lossy(bytes).into_owned();
    let name = path.display().to_string();
    SourceFile { path, name, text, sound, trace, masked: OnceLock::new() }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use super::*;

    // Invariant: a directory is its visible YAML files, in the order of their names.

    #[test]
    fn a_directory_is_its_visible_yaml_files_in_order() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.yaml", "a.yml", ".hidden.yaml", "notes.txt", "a.yaml~"] {
            fs::write(dir.path().join(name), "{}").unwrap();
        }
        let sources = Sources::read(dir.path()).unwrap();
        let names: Vec<_> = sources.files().iter().map(|f| f.path.file_name().unwrap()).collect();
        assert_eq!(names, ["a.yml", "b.yaml"]);
    }

    // Invariant: nothing that is a configuration's by its name is passed over.

    #[test]
    fn an_entry_that_is_no_plain_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.yaml"), "{}").unwrap();
        let odd = dir.path().join("b.yaml");
        fs::create_dir(&odd).unwrap();
        assert_eq!(Sources::read(dir.path()).unwrap_err().0, odd);
        fs::remove_dir(&odd).unwrap();
        std::os::unix::fs::symlink("nowhere", &odd).unwrap();
        assert_eq!(Sources::read(dir.path()).unwrap_err().0, odd);
    }

    #[test]
    fn many_files_are_bounded_together() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.yaml", "b.yaml", "c.yaml"] {
            fs::write(dir.path().join(name), " ".repeat(3 << 19)).unwrap();
        }
        let (path, error) = Sources::read(dir.path()).unwrap_err();
        assert_eq!(path, dir.path().join("c.yaml"));
        assert_eq!(error.to_string(), "with it, the files have more than 4194304 bytes together");
    }

    #[test]
    fn a_file_that_can_not_be_a_configuration_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("huge.yaml");
        fs::File::create(&path).unwrap().set_len(LARGEST + 1).unwrap();
        assert_eq!(Sources::read(&path).unwrap_err().1.kind(), io::ErrorKind::FileTooLarge);
    }
}
