//! The files a configuration is read from: one file, or the YAML files of a directory.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::mask::{hidden_words, masked};

/// The largest file read; more is a mistake, not a configuration.
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
    /// Its text without secrets.
    pub(super) masked: String,
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
    /// Reads a file, or every `*.yaml` and `*.yml` file of a directory that is not hidden.
    ///
    /// # Errors
    /// The path that could not be read, with the system's reason.
    pub fn read(path: &Path) -> Result<Self, (PathBuf, io::Error)> {
        let named = |source| (path.to_owned(), source);
        if !fs::metadata(path).map_err(named)?.is_dir() {
            return Ok(Self { files: vec![read_file(path)?] });
        }
        let mut paths = Vec::new();
        for entry in fs::read_dir(path).map_err(named)? {
            let entry = entry.map_err(named)?.path();
            if is_yaml(&entry) && entry.is_file() {
                paths.push(entry);
            }
        }
        paths.sort();
        let files = paths.iter().map(|path| read_file(path)).collect::<Result<_, _>>()?;
        Ok(Self { files })
    }

    /// A configuration that is already in memory, named as faults shall name it.
    pub fn of_text(name: &str, text: &str) -> Self {
        Self { files: vec![source_file(PathBuf::from(name), text.to_owned())] }
    }

    /// A text that stands in for a file, shown by a name of its own.
    #[cfg(test)]
    pub(super) fn of_texts(files: &[(PathBuf, &str, &str)]) -> Self {
        let named = |(path, name, text): &(PathBuf, &str, &str)| SourceFile {
            name: (*name).to_owned(),
            ..source_file(path.clone(), (*text).to_owned())
        };
        Self { files: files.iter().map(named).collect() }
    }

    /// The files.
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// Words that are hidden when the files are shown, the longest of each file first.
    pub(super) fn hidden_words(&self) -> Vec<&str> {
        self.files.iter().flat_map(|file| hidden_words(&file.text, &file.masked)).collect()
    }

    pub(super) fn file(&self, index: usize) -> Option<&SourceFile> {
        self.files.get(index)
    }
}

fn is_yaml(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
    !hidden && path.extension().is_some_and(|end| end == "yaml" || end == "yml")
}

fn read_file(path: &Path) -> Result<SourceFile, (PathBuf, io::Error)> {
    let named = |source| (path.to_owned(), source);
    let size = fs::metadata(path).map_err(named)?.len();
    if size > LARGEST {
        let reason = format!("it has {size} bytes, and {LARGEST} are the most");
        return Err(named(io::Error::new(io::ErrorKind::FileTooLarge, reason)));
    }
    let text = fs::read_to_string(path).map_err(named)?;
    Ok(source_file(path.to_owned(), text))
}

fn source_file(path: PathBuf, text: String) -> SourceFile {
    let name = path.display().to_string();
    let text = text.strip_prefix('\u{feff}').map_or(text.clone(), str::to_owned);
    SourceFile { path, name, masked: masked(&text), text }
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
        fs::create_dir(dir.path().join("sub.yaml")).unwrap();
        let sources = Sources::read(dir.path()).unwrap();
        let names: Vec<_> = sources.files().iter().map(|f| f.path.file_name().unwrap()).collect();
        assert_eq!(names, ["a.yml", "b.yaml"]);
    }

    #[test]
    fn a_file_that_can_not_be_a_configuration_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("huge.yaml");
        fs::File::create(&path).unwrap().set_len(LARGEST + 1).unwrap();
        assert_eq!(Sources::read(&path).unwrap_err().1.kind(), io::ErrorKind::FileTooLarge);
    }
}
