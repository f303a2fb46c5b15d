//! What reasons lead to: keys of the configuration with their values in force, and headings of the book.

use std::collections::HashMap;

use drover_api::{Heading, Remedies, ValueOut};

/// The most characters of a value that stand in a reason.
const SHOWN: usize = 60;

/// What reasons lead to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    /// Values with their origins, by the paths of their keys.
    values: HashMap<String, (String, String)>,
    remedies: Remedies,
}

impl Hints {
    /// Of the values that somebody may see, and of what the book has.
    pub fn of(values: &[ValueOut], remedies: Remedies) -> Self {
        let values =
            values.iter().map(|one| (one.path.clone(), (short(&one.value), one.origin.clone())));
        Self { values: values.collect(), remedies }
    }

    /// The heading that says what to do about a reason.
    pub(crate) fn heading(&self, text: &str) -> Option<&Heading> {
        self.remedies.find(text)
    }
}

fn short(value: &str) -> String {
    let cut: String = value.chars().take(SHOWN).collect();
    if cut.len() < value.len() { cut + "…" } else { cut }
}

/// A key of the configuration, as it is in force for what a reason is about.
pub(crate) struct KeyInForce<'a> {
    pub(crate) path: String,
    pub(crate) value: &'a str,
    pub(crate) origin: &'a str,
}

/// The entries of the configuration that a reason is about, the one named last behind.
#[derive(Debug, Default)]
pub(crate) struct Entries(Vec<String>);

impl Entries {
    /// Those of what a row is about, such as `cloud lab`.
    pub(crate) fn of(about: &str) -> Self {
        let mut all = Self::default();
        if let Some((kind, name)) = about.split_once(' ') {
            all.names(kind, name);
        }
        all
    }

    /// Notes a name of the text, and the word before it.
    pub(crate) fn names(&mut self, before: &str, name: &str) {
        match (before, name.split_once('/')) {
            ("cloud", None) => self.add("cloudConfigurations", name),
            ("source", None) => self.add("demand", name),
            ("pool", None) => self.add("addressPools", name),
            (_, Some((cloud, template))) if !cloud.is_empty() && !template.contains('/') => {
                self.add("cloudConfigurations", cloud);
                self.add("agentConfigurations", template);
            }
            (_, Some(_) | None) => {}
        }
    }

    fn add(&mut self, section: &str, name: &str) {
        if !name.is_empty() {
            self.0.push(format!("{section}.{name}"));
        }
    }

    /// A key of the entry that was named last of those that have it.
    pub(crate) fn key<'a>(&self, hints: &'a Hints, key: &str) -> Option<KeyInForce<'a>> {
        if !key.bytes().all(|one| one.is_ascii_alphanumeric()) {
            return None;
        }
        self.0.iter().rev().find_map(|entry| {
            let path = format!("{entry}.{key}");
            let (value, origin) = hints.values.get(&path)?;
            Some(KeyInForce { path, value, origin })
        })
    }
}
