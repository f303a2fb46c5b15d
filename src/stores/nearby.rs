//! Where journals lie near a prefix that has none: above it and beneath it. It is for people who named
//! another prefix than they meant.

use std::collections::BTreeSet;

/// The most names that are looked through for journals beneath a prefix.
pub(super) const NAMES_MAX: usize = 1000;

/// The prefixes above one, the longest first.
fn above(prefix: &str) -> Vec<String> {
    let cut = |at: (usize, &str)| prefix[..at.0].to_owned();
    prefix.rmatch_indices('/').map(cut).filter(|above| !above.is_empty()).collect()
}

/// The prefixes beneath one that these names lie at, by what lies in each journal.
fn beneath(prefix: &str, names: &[String], own: &[&str]) -> BTreeSet<String> {
    let place = |name: &String| {
        let inner = name.strip_prefix(prefix)?.strip_prefix('/')?;
        let parts: Vec<&str> = inner.split('/').collect();
        let own = parts.iter().position(|part| own.contains(part)).filter(|at| *at > 0)?;
        Some(format!("{prefix}/{}", parts[..own].join("/")))
    };
    names.iter().filter_map(place).collect()
}

/// Says that a prefix has no journal, and names one near it. `names` lie beneath it; `has_journal` says
/// whether a prefix has one.
pub(super) fn nothing_at(
    prefix: &str,
    names: &[String],
    own: &[&str],
    mut has_journal: impl FnMut(&str) -> bool,
) -> String {
    let near = above(prefix).into_iter().chain(beneath(prefix, names, own));
    match near.into_iter().find(|place| has_journal(place)) {
        Some(place) => format!("no journal is at `{prefix}`, but there is one at `{place}`"),
        None => format!("no journal is at `{prefix}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: [&str; 2] = ["head", "register"];

    fn said(prefix: &str, journals: &[&str], names: &[&str]) -> String {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        nothing_at(prefix, &names, &OWN, |place| journals.contains(&place))
    }

    // Invariant: a prefix without a journal is said to have none, with the one that may be meant.

    #[test]
    fn a_journal_above_or_beneath_a_prefix_is_named() {
        assert_eq!(said("/herd", &[], &[]), "no journal is at `/herd`");
        assert_eq!(
            said("/herd", &["/herd/ci"], &["/herd/ci/beside/x", "/herd/ci/register/leader"]),
            "no journal is at `/herd`, but there is one at `/herd/ci`"
        );
        assert_eq!(said("a/b/c", &["a"], &[]), "no journal is at `a/b/c`, but there is one at `a`");
        let none = said("/herd", &[], &["/herd/ci/register/configuration", "/herd/register/x"]);
        assert_eq!(none, "no journal is at `/herd`", "a configuration alone is no journal");
    }
}
