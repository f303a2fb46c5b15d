//! Files that git may manage, before they count.

use std::path::{Path, PathBuf};

use super::load;
use super::managed::{COPIES, TREE};
use super::source::Sources;
use super::{Checked, Environment, LoadError};

/// What came of a check of such files together with those of this machine.
#[derive(Debug)]
pub struct Candidate {
    pub result: Result<Checked, LoadError>,
    /// Files that they name and that are not there, relative to the repository.
    pub lacks: Vec<String>,
}

/// Checks the files of this machine with those in `folder`, which has the form of an entry of
/// `config-sync` (`managed.rs`), in place of those that count.
pub fn candidate(path: &Path, folder: &Path, environment: &Environment) -> Candidate {
    let read = Sources::read(path).and_then(|sources| sources.with_managed(folder));
    let load::Loaded { result, inputs, .. } = load::loaded(path, read, environment);
    let inside = |input: &PathBuf| {
        let name = [TREE, COPIES].iter().find_map(|at| input.strip_prefix(folder.join(at)).ok())?;
        (!input.exists()).then(|| name.to_string_lossy().into_owned())
    };
    Candidate { result, lacks: inputs.iter().filter_map(inside).collect() }
}
