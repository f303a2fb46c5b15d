//! What names of owners and repositories are made of, so that one that nobody can have is told
//! before a server answers 404 to it.

use super::Ground;

/// What names of a kind are made of.
pub(super) struct Rule {
    /// Whose names they are.
    of: &'static str,
    /// What they are made of, for people.
    made_of: &'static str,
    /// Whether a text is one.
    is_name: fn(&str) -> bool,
}

/// Owners and enterprises on GitHub. New ones have single hyphens, none at the end, and old ones
/// others, too; an underscore stands before the short code of an enterprise's managed users.
pub(super) static GITHUB_OWNER: Rule = Rule {
    of: "an owner on GitHub",
    made_of: "letters, digits and hyphens, the first a letter or a digit",
    is_name: |text| {
        text.starts_with(|first: char| first.is_ascii_alphanumeric()) && is_made_of(text, "-_")
    },
};

/// Repositories on GitHub.
pub(super) static GITHUB_REPOSITORY: Rule = Rule {
    of: "a repository on GitHub",
    made_of: "letters, digits, `.`, `_` and `-`, without `.git` at the end",
    is_name: |text| is_made_of(text, "._-") && !matches!(text, "." | "..") && !is_of_git(text),
};

/// Users and organisations of a Gitea or Forgejo.
pub(super) static GITEA_OWNER: Rule = Rule {
    of: "an owner there",
    made_of: "letters, digits, `.`, `_` and `-`, without `..`",
    is_name: |text| is_made_of(text, "._-") && text != "." && !text.contains(".."),
};

/// Repositories of a Gitea or Forgejo.
pub(super) static GITEA_REPOSITORY: Rule = Rule {
    of: "a repository there",
    made_of: "letters, digits, `.`, `_` and `-`, without `..`, and without `.git` at the end",
    is_name: |text| (GITEA_OWNER.is_name)(text) && !is_of_git(text),
};

fn is_made_of(text: &str, more: &str) -> bool {
    let sound = |letter: char| letter.is_ascii_alphanumeric() || more.contains(letter);
    !text.is_empty() && text.chars().all(sound)
}

/// Whether it is the end of an address to clone from.
fn is_of_git(text: &str) -> bool {
    text.to_ascii_lowercase().ends_with(".git")
}

impl Ground<'_, '_> {
    /// Whether each of these can be what it is said to be; the first that can not is told.
    pub(super) fn are_names(&mut self, key: &str, names: &[(&str, &Rule)]) -> bool {
        let wrong = names.iter().find(|(name, rule)| !(rule.is_name)(name));
        let Some((name, Rule { of, made_of, .. })) = wrong else { return true };
        let text = format!("`{}` can be no name of {of}", name.escape_debug());
        self.vault
            .faults
            .push(self.layer.fault(key, text).help(format!("such names are {made_of}")));
        false
    }
}
