//! The files of a configuration: one file, or the YAML files of a directory.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{fs, io};

use super::file::{self, Trace};
use super::managed::ManagedCopy;
use super::mask::{hidden_words, masked};
use super::top::Half;

/// The most bytes of all files together.
pub(super) const MAX_BYTES: u64 = 4 << 20;

/// One file of a configuration.
#[derive(Clone)]
pub struct SourceFile {
    pub path: PathBuf,
    /// The name in faults.
    pub name: String,
    pub(super) text: String,
    /// The length of the UTF-8 part in bytes, when not all is UTF-8.
    pub(super) sound: Option<usize>,
    /// The trace of the file; none for a text in memory.
    pub(super) trace: Option<Trace>,
    /// Computed on first use.
    masked: OnceLock<String>,
}

impl SourceFile {
    /// The whole text, secrets in it too.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text without secrets.
    pub(super) fn masked(&self) -> &str {
        // Control characters must not reach a terminal.
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
    /// How many of them are this machine's own; git manages the others.
    own: usize,
    /// What git manages, where it was read.
    managed: Option<Box<ManagedCopy>>,
    /// Whether what people edited of that counts.
    copies_count: bool,
}

impl Sources {
    /// Reads a file, or every `*.yaml` and `*.yml` of a directory that is not hidden. Each of them
    /// must be a plain file: a file passed over would look as if it had been removed.
    ///
    /// # Errors
    /// The path that could not be read, with the system's reason.
    pub fn read(path: &Path) -> Result<Self, (PathBuf, io::Error)> {
        let mut left = MAX_BYTES;
        if !path.is_dir() {
            return Ok(Self::of(vec![read_file(path, &mut left)?]));
        }
        let mut files = Vec::new();
        for path in yaml_in(path).map_err(|source| (path.to_owned(), source))? {
            files.push(read_file(&path, &mut left)?);
        }
        Ok(Self::of(files))
    }

    fn of(files: Vec<SourceFile>) -> Self {
        Self { own: files.len(), files, managed: None, copies_count: false }
    }

    /// The same with what git manages, as it is kept in a folder.
    ///
    /// # Errors
    /// The path that could not be read, with the system's reason.
    pub(super) fn with_managed(mut self, folder: &Path) -> Result<Self, (PathBuf, io::Error)> {
        self.managed = ManagedCopy::read(folder)?.map(Box::new);
        Ok(self)
    }

    /// Takes in the files that git manages: what was edited here where that counts.
    pub(super) fn take_managed(&mut self, allows_changes: bool) {
        self.copies_count = allows_changes;
        self.files.truncate(self.own);
        let managed = self.managed.iter().flat_map(|copy| copy.files(allows_changes));
        self.files.extend(managed.cloned());
    }

    /// The files of this machine alone.
    pub(super) fn local(&self) -> Self {
        Self::of(self.files[..self.own].to_vec())
    }

    /// Whether copies that people may edit count.
    pub(super) fn counts_copies(&self) -> bool {
        self.copies_count && self.managed.is_some()
    }

    /// Edited copies that count and cannot be read, each with the reason.
    pub(super) fn unread(&self) -> &[(PathBuf, String)] {
        match &self.managed {
            Some(copy) if self.copies_count => copy.unread(),
            Some(_) | None => &[],
        }
    }

    /// Whether a file that git manages counts otherwise than git has it.
    pub(super) fn is_edited(&self) -> bool {
        let as_in_git = self.managed.iter().flat_map(|copy| copy.files(false));
        let counts = self.files.get(self.own..).unwrap_or_default();
        counts.iter().zip(as_in_git).any(|(one, other)| one.text != other.text)
    }

    /// What git manages, where it was read.
    pub fn managed(&self) -> Option<&ManagedCopy> {
        self.managed.as_deref()
    }

    /// How many files are this machine's own; they come first.
    pub(super) fn own(&self) -> usize {
        self.own
    }

    /// Which half of the configuration a file is in.
    pub(super) fn half(&self, index: usize) -> Half {
        if index < self.own { Half::Local } else { Half::Managed }
    }

    /// A configuration in memory, with its name for faults.
    pub fn of_text(name: &str, text: &str) -> Self {
        Self::of(vec![source_file(PathBuf::from(name), text.as_bytes(), None)])
    }

    /// Texts in place of a machine's own files, by their paths.
    pub fn of_files(files: std::collections::BTreeMap<PathBuf, String>) -> Self {
        let file = |(path, text): (PathBuf, String)| source_file(path, text.as_bytes(), None);
        Self::of(files.into_iter().map(file).collect())
    }

    /// Texts in place of files: path, name for faults, text.
    #[cfg(test)]
    pub(super) fn of_texts(files: &[(PathBuf, &str, &str)]) -> Self {
        let named = |(path, name, text): &(PathBuf, &str, &str)| SourceFile {
            name: (*name).to_owned(),
            ..source_file(path.clone(), text.as_bytes(), None)
        };
        Self::of(files.iter().map(named).collect())
    }

    /// The same with another text of one file, or with one more file; faults name it so where it is
    /// none that exists.
    pub(super) fn with(&self, path: &Path, name: Option<&str>, text: &str) -> Self {
        let mut files = self.files[..self.own].to_vec();
        let mut file = source_file(path.to_owned(), text.as_bytes(), None);
        if let Some(name) = name {
            name.clone_into(&mut file.name);
        }
        match files.iter_mut().find(|known| known.path == path) {
            Some(known) => *known = file,
            None => files.push(file),
        }
        Self { managed: self.managed.clone(), ..Self::of(files) }
    }

    /// The files in the order of their names.
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// The words that are masked when the files are shown, the longest of each file first.
    pub(super) fn hidden_words(&self) -> Vec<&str> {
        self.files.iter().flat_map(|file| hidden_words(&file.text, file.masked())).collect()
    }

    pub(super) fn file(&self, index: usize) -> Option<&SourceFile> {
        self.files.get(index)
    }
}

/// Characters that YAML forbids; damaged files and programs contain them.
pub(super) fn is_control(c: char) -> bool {
    c.is_ascii_control() && !matches!(c, '\t' | '\n' | '\r')
}

/// The YAML files of a directory in the order of their names.
///
/// # Errors
/// The system's reason.
pub fn yaml_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
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

/// Whether a path is a YAML file by its name; hidden files and copies of editors are not.
pub(super) fn is_yaml(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
    !hidden && path.extension().is_some_and(|end| end == "yaml" || end == "yml")
}

pub(super) fn read_file(path: &Path, left: &mut u64) -> Result<SourceFile, (PathBuf, io::Error)> {
    let (bytes, trace) = file::read(path, *left).map_err(|error| {
        let error = if error.kind() == io::ErrorKind::FileTooLarge && *left < MAX_BYTES {
            let reason = format!("with this file, all files together exceed {MAX_BYTES} bytes");
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

    // Invariant: no YAML file by its name is passed over.

    #[test]
    fn an_entry_that_is_not_a_plain_file_is_named() {
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
        assert_eq!(error.to_string(), "with this file, all files together exceed 4194304 bytes");
    }

    #[test]
    fn a_file_that_cannot_be_a_configuration_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("huge.yaml");
        fs::File::create(&path).unwrap().set_len(MAX_BYTES + 1).unwrap();
        assert_eq!(Sources::read(&path).unwrap_err().1.kind(), io::ErrorKind::FileTooLarge);
    }
}
