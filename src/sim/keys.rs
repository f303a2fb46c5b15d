//! Which keys a section of a configuration file has, by its type, and the digest that tells one
//! version of a file from another: what the world and its access control both keep sections by.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

/// The keys that a type of section has, as its plugin lists them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Keys {
    /// Keys that it cannot lack.
    pub required: &'static [&'static str],
    /// Keys that it can lack.
    pub optional: &'static [&'static str],
    /// Further keys that it can lack, where others of its kind have not these.
    pub more: &'static [&'static str],
    /// Keys, required or not, that keep the value they were made with.
    pub fixed: &'static [&'static str],
}

impl Keys {
    fn can_lack(self, key: &str) -> bool {
        self.optional.contains(&key) || self.more.contains(&key)
    }

    fn has(self, key: &str) -> bool {
        key == "type" || self.required.contains(&key) || self.can_lack(key)
    }

    fn admit(self, set: &BTreeMap<String, String>) -> Result<(), String> {
        match set.keys().find(|key| !self.has(key)) {
            Some(key) => Err(format!("unexpected property '{key}'")),
            None => Ok(()),
        }
    }

    /// Refuses a new section that this type has no keys for, or that lacks one (pve-common,
    /// SectionConfig.pm:1608, check_config).
    ///
    /// # Errors
    /// `unexpected property 'x'`, or `missing value for required option 'x'`.
    pub fn admit_new(self, set: &BTreeMap<String, String>) -> Result<(), String> {
        self.admit(set)?;
        match self.required.iter().find(|key| !set.contains_key(**key)) {
            Some(key) => Err(format!("missing value for required option '{key}'")),
            None => Ok(()),
        }
    }

    /// Refuses a change that sets what this type has no key for, or has for good.
    ///
    /// # Errors
    /// `unexpected property 'x'`, or `can't change value of fixed parameter 'x'`.
    pub fn admit_change(self, set: &BTreeMap<String, String>) -> Result<(), String> {
        match set.keys().find(|key| self.fixed.contains(&key.as_str())) {
            Some(key) => Err(format!("can't change value of fixed parameter '{key}'")),
            None => self.admit(set),
        }
    }

    /// Refuses to take these keys out of a section of this type (pve-common,
    /// SectionConfig.pm:1853, delete_from_config).
    ///
    /// # Errors
    /// `no such option 'x'`, or that the section cannot lose it.
    pub fn admit_loss(self, names: &[String]) -> Result<(), String> {
        for name in names.iter().map(String::as_str) {
            if self.required.contains(&name) {
                return Err(format!("unable to delete required option '{name}'"));
            }
            if !self.can_lack(name) {
                return Err(format!("no such option '{name}'"));
            }
            if self.fixed.contains(&name) {
                return Err(format!("unable to delete fixed option '{name}'"));
            }
        }
        Ok(())
    }
}

/// The digest of a configuration: 40 hexadecimal digits that change with it.
pub fn digest<'a>(parts: impl IntoIterator<Item = (&'a String, &'a String)>) -> String {
    let mut hash = Sha256::new();
    for (key, value) in parts {
        hash.update(key.as_bytes());
        hash.update(b": ");
        hash.update(value.as_bytes());
        hash.update(b"\n");
    }
    hash.finalize().iter().take(20).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: Keys =
        Keys { required: &["path"], optional: &["nodes"], more: &["mkdir"], fixed: &["path"] };

    fn set(keys: &[&str]) -> BTreeMap<String, String> {
        keys.iter().map(|key| ((*key).to_owned(), String::new())).collect()
    }

    // Invariant: what a section has no place for, or cannot lack, is refused in the words of
    // pve-common's SectionConfig.pm.
    #[test]
    fn a_section_has_the_keys_of_its_type_alone() {
        assert_eq!(KEYS.admit_new(&set(&["path", "type", "mkdir"])), Ok(()));
        let text = "missing value for required option 'path'";
        assert_eq!(KEYS.admit_new(&set(&["nodes"])), Err(text.into()));
        let text = "unexpected property 'pool'";
        assert_eq!(KEYS.admit_new(&set(&["path", "pool"])), Err(text.into()));
        assert_eq!(KEYS.admit_change(&set(&["pool"])), Err(text.into()));
        let text = "can't change value of fixed parameter 'path'";
        assert_eq!(KEYS.admit_change(&set(&["path"])), Err(text.into()));
        let loss = |key: &str| KEYS.admit_loss(&[key.to_owned()]);
        assert_eq!((loss("nodes"), loss("mkdir")), (Ok(()), Ok(())));
        assert_eq!(loss("path"), Err("unable to delete required option 'path'".into()));
        assert_eq!(loss("type"), Err("no such option 'type'".into()));
    }
}
