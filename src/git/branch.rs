//! The name of a branch, by the rules of `git check-ref-format`.

/// Why a text is not the name of a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BranchFault {
    /// There is no text.
    #[error("the branch name is empty")]
    Empty,
    /// The name is longer than git's servers accept.
    #[error("the branch name is longer than 200 bytes")]
    Long,
    /// git would read the name as an option.
    #[error("the branch name begins with `-`")]
    Option,
    /// A character has a meaning of its own in git's patterns and ranges.
    #[error("the branch name has a space, a control character or one of `~^:?*[\\` in it")]
    Character,
    /// A sequence has a meaning of its own in git.
    #[error("the branch name has `..`, `@{{`, `//` or a part that begins with `.` in it")]
    Sequence,
    /// The name, or a part of it, ends as no name may.
    #[error(
        "the branch name is `@`, begins or ends with `/`, ends with `.`, or a part ends with `.lock`"
    )]
    Ending,
}

const LONGEST_BYTES: usize = 200;

/// Checks that git accepts the name for a branch: the name alone, without `refs/heads/`.
///
/// # Errors
/// See [`BranchFault`].
pub fn check_branch(name: &str) -> Result<(), BranchFault> {
    if name.is_empty() {
        return Err(BranchFault::Empty);
    }
    if name.len() > LONGEST_BYTES {
        return Err(BranchFault::Long);
    }
    if name.starts_with('-') {
        return Err(BranchFault::Option);
    }
    if name.chars().any(|c| c == ' ' || super::text::is_unsafe(c) || "~^:?*[\\".contains(c)) {
        return Err(BranchFault::Character);
    }
    let dotted = name.split('/').any(|part| part.starts_with('.'));
    if name.contains("..") || name.contains("@{") || name.contains("//") || dotted {
        return Err(BranchFault::Sequence);
    }
    let locked = name.split('/').any(|part| part.ends_with(".lock"));
    if name == "@" || name.starts_with('/') || name.ends_with(['/', '.']) || locked {
        return Err(BranchFault::Ending);
    }
    Ok(())
}
