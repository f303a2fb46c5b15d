//! The keys of sections in Proxmox's configuration files (storages, realms, HA rules, SDN), by the
//! type of the section, and the digest of a file. The world and access control use both.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

/// The keys of one type of section, as its plugin lists them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Keys {
    pub required: &'static [&'static str],
    /// Optional keys that related types have as well.
    pub optional: &'static [&'static str],
    /// Optional keys of this type alone.
    pub more: &'static [&'static str],
    /// Keys, required or optional, whose value cannot change after the section was created.
    pub fixed: &'static [&'static str],
}

impl Keys {
    fn is_optional(self, key: &str) -> bool {
        self.optional.contains(&key) || self.more.contains(&key)
    }

    fn has(self, key: &str) -> bool {
        key == "type" || self.required.contains(&key) || self.is_optional(key)
    }

    fn check_known(self, set: &BTreeMap<String, String>) -> Result<(), String> {
        match set.keys().find(|key| !self.has(key)) {
            Some(key) => Err(format!("unexpected property '{key}'")),
            None => Ok(()),
        }
    }

    /// Checks a new section: it has only keys of this type, and all required ones (pve-common,
    /// SectionConfig.pm:1608, check_config).
    ///
    /// # Errors
    /// `unexpected property 'x'`, or `missing value for required option 'x'`.
    pub(crate) fn check_new(self, set: &BTreeMap<String, String>) -> Result<(), String> {
        self.check_known(set)?;
        match self.required.iter().find(|key| !set.contains_key(**key)) {
            Some(key) => Err(format!("missing value for required option '{key}'")),
            None => Ok(()),
        }
    }

    /// Checks a change: it sets only keys of this type, and no fixed one.
    ///
    /// # Errors
    /// `unexpected property 'x'`, or `can't change value of fixed parameter 'x'`.
    pub(crate) fn check_change(self, set: &BTreeMap<String, String>) -> Result<(), String> {
        match set.keys().find(|key| self.fixed.contains(&key.as_str())) {
            Some(key) => Err(format!("can't change value of fixed parameter '{key}'")),
            None => self.check_known(set),
        }
    }

    /// Checks that these keys can be deleted from a section of this type (pve-common,
    /// SectionConfig.pm:1853, delete_from_config).
    ///
    /// # Errors
    /// `no such option 'x'`, or `unable to delete required option 'x'` and `… fixed option 'x'`.
    pub(crate) fn check_delete(self, names: &[String]) -> Result<(), String> {
        for name in names.iter().map(String::as_str) {
            if self.required.contains(&name) {
                return Err(format!("unable to delete required option '{name}'"));
            }
            if !self.is_optional(name) {
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
pub(crate) fn digest<'a>(parts: impl IntoIterator<Item = (&'a String, &'a String)>) -> String {
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

    // Invariant: unknown, missing and fixed keys are refused in the words of pve-common's
    // SectionConfig.pm.
    #[test]
    fn a_section_has_only_the_keys_of_its_type() {
        assert_eq!(KEYS.check_new(&set(&["path", "type", "mkdir"])), Ok(()));
        let text = "missing value for required option 'path'";
        assert_eq!(KEYS.check_new(&set(&["nodes"])), Err(text.into()));
        let text = "unexpected property 'pool'";
        assert_eq!(KEYS.check_new(&set(&["path", "pool"])), Err(text.into()));
        assert_eq!(KEYS.check_change(&set(&["pool"])), Err(text.into()));
        let text = "can't change value of fixed parameter 'path'";
        assert_eq!(KEYS.check_change(&set(&["path"])), Err(text.into()));
        let delete = |key: &str| KEYS.check_delete(&[key.to_owned()]);
        assert_eq!((delete("nodes"), delete("mkdir")), (Ok(()), Ok(())));
        assert_eq!(delete("path"), Err("unable to delete required option 'path'".into()));
        assert_eq!(delete("type"), Err("no such option 'type'".into()));
    }
}
