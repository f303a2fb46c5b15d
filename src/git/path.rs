//! A path in a repository: relative, and without parts that lead elsewhere.

/// Why a text is not a path in a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    /// There is no text.
    #[error("the path in the repository is empty")]
    Empty,
    /// The path is longer than any system has.
    #[error("the path in the repository is longer than 1000 bytes")]
    Long,
    /// The path begins at the root of a machine.
    #[error("the path in the repository begins with `/`: write it relative to the repository")]
    Absolute,
    /// A part leads elsewhere or nowhere.
    #[error("the path in the repository has an empty part, `.` or `..` in it")]
    Part,
    /// A character could change what is shown, or end the path early.
    #[error("the path in the repository has a control character in it")]
    Character,
}

const LONGEST_BYTES: usize = 1000;

/// Checks that a path names a place inside a repository.
///
/// # Errors
/// See [`PathFault`].
pub fn check_path(path: &str) -> Result<(), PathFault> {
    if path.is_empty() {
        return Err(PathFault::Empty);
    }
    if path.len() > LONGEST_BYTES {
        return Err(PathFault::Long);
    }
    if path.starts_with('/') {
        return Err(PathFault::Absolute);
    }
    if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(PathFault::Part);
    }
    if path.chars().any(super::text::is_unsafe) {
        return Err(PathFault::Character);
    }
    Ok(())
}
