//! The files of the repository, for tests that read sources and pages.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files beneath a folder, or the one file, whose extension is one of these; in order, without
/// what is built.
pub fn files(of: &Path, endings: &[&str]) -> Vec<PathBuf> {
    if of.is_file() {
        let ending = of.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        return if endings.contains(&ending) { vec![of.to_owned()] } else { Vec::new() };
    }
    let mut entries: Vec<_> =
        std::fs::read_dir(of).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    let kept = entries.iter().filter(|entry| !entry.ends_with("target"));
    kept.flat_map(|entry| files(entry, endings)).collect()
}
