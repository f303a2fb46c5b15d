//! Rules for names of owners and repositories: an impossible name is a fault of the configuration,
//! not a 404 of the server.

use super::SourceInputs;

/// A rule for names of one kind.
pub(super) struct Rule {
    /// What has such names, for people.
    of: &'static str,
    /// What such names consist of, for people.
    made_of: &'static str,
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
    of: "an owner in Gitea or Forgejo",
    made_of: "letters, digits, `.`, `_` and `-`, without `..`",
    is_name: |text| is_made_of(text, "._-") && text != "." && !text.contains(".."),
};

/// Repositories of a Gitea or Forgejo.
pub(super) static GITEA_REPOSITORY: Rule = Rule {
    of: "a repository in Gitea or Forgejo",
    made_of: "letters, digits, `.`, `_` and `-`, without `..`, and without `.git` at the end",
    is_name: |text| (GITEA_OWNER.is_name)(text) && !is_of_git(text),
};

fn is_made_of(text: &str, more: &str) -> bool {
    let sound = |letter: char| letter.is_ascii_alphanumeric() || more.contains(letter);
    !text.is_empty() && text.chars().all(sound)
}

/// Whether a text ends like a clone URL.
fn is_of_git(text: &str) -> bool {
    text.to_ascii_lowercase().ends_with(".git")
}

impl SourceInputs<'_, '_> {
    /// Whether all names follow their rules; the first that does not is a fault.
    pub(super) fn are_names(&mut self, key: &str, names: &[(&str, &Rule)]) -> bool {
        let wrong = names.iter().find(|(name, rule)| !(rule.is_name)(name));
        let Some((name, Rule { of, made_of, .. })) = wrong else { return true };
        let text = format!("`{}` cannot be the name of {of}", name.escape_debug());
        self.cx.faults.push(self.layer.fault(key, text).help(format!("use {made_of}")));
        false
    }
}
