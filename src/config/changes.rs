//! What differs between two configurations, key by key in the words of the YAML: comments, order and
//! the file that something stands in do not count.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::values::{ValueInForce, values};
use super::{Checked, Environment, load};

/// A value, or a whole entry, that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ValueChange {
    /// The path of a key, or of an entry such as `agentConfigurations.linux`.
    pub path: String,
    /// The value before, as YAML in one line; none where there was none.
    pub before: Option<String>,
    /// The value after; none where there is none.
    pub after: Option<String>,
    /// Whether it is about a whole entry: then the values say nothing.
    pub entry: bool,
}

impl std::fmt::Display for ValueChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, before, after, entry } = self;
        match (before, after) {
            (None, Some(_)) if *entry => write!(f, "{path}: added"),
            (Some(_), None) if *entry => write!(f, "{path}: removed"),
            (before, after) => {
                let shown = |value: &Option<String>| value.clone().unwrap_or("unset".to_owned());
                write!(f, "{path}: {} -> {}", shown(before), shown(after))
            }
        }
    }
}

/// What differs between two lists of values in force, by path.
pub fn changes(before: &[ValueInForce], after: &[ValueInForce]) -> Vec<ValueChange> {
    type Values<'a> = BTreeMap<(&'a str, &'a str), &'a str>;
    fn by_path(values: &[ValueInForce]) -> Values<'_> {
        values.iter().map(|value| ((&*value.entry, &*value.path), &*value.value)).collect()
    }
    let (before, after) = (by_path(before), by_path(after));
    let entries = |values: &Values<'_>| -> BTreeSet<String> {
        values.keys().map(|(entry, _)| (*entry).to_owned()).collect()
    };
    let (old, new) = (entries(&before), entries(&after));
    let mut all = BTreeMap::new();
    for (entry, path) in before.keys().chain(after.keys()) {
        let (was, is) = (old.contains(*entry), new.contains(*entry));
        let whole = was != is;
        let value = |values: &Values<'_>| values.get(&(*entry, *path)).map(|one| (*one).to_owned());
        let change = if whole {
            let mark = |there: bool| there.then(String::new);
            let path = (*entry).to_owned();
            ValueChange { path, before: mark(was), after: mark(is), entry: true }
        } else {
            let path = (*path).to_owned();
            ValueChange { path, before: value(&before), after: value(&after), entry: false }
        };
        if whole || change.before != change.after {
            all.insert(change.path.clone(), change);
        }
    }
    all.into_values().collect()
}

/// What people changed in the copies of what git manages: from git's value to the one in force.
pub fn manual_changes(checked: &Checked, environment: &Environment) -> Vec<ValueChange> {
    if !checked.sources.is_edited() {
        return Vec::new();
    }
    let mut sources = checked.sources.clone();
    sources.take_managed(false);
    let Ok(as_in_git) = load::check_taken(sources, environment).result else { return Vec::new() };
    changes(&values(&as_in_git, environment), &values(checked, environment))
}
