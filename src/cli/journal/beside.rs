//! What lies beside a journal and goes with it: a successor without it could neither enter the guests with
//! older keys nor know them when they call in.

use std::sync::Arc;

use causes::chain;
use drover_hypervisor::CALL_IN_KEY;
use drover_shell::{kept_keys, user_data};
use drover_vault::{ClusterKey, SealedVault, StoreError, Vault};

use super::place::Place;

/// Folders of what goes along.
const FOLDERS: [&str; 3] = [kept_keys::FOLDER, user_data::FOLDER, drover_ci::STATE_FOLDER];

/// What lies beside one journal and is to lie beside another.
pub(super) struct Beside {
    names: Vec<String>,
    way: Way,
}

/// How it gets there.
enum Way {
    Copied {
        from: Arc<dyn Vault>,
        to: Arc<dyn Vault>,
    },
    /// It stays where it is; a text for people says why.
    Left(&'static str),
}

/// What became of it.
#[derive(Debug, Default)]
pub(super) struct Carried {
    pub(super) copied: Vec<String>,
    pub(super) left: Vec<String>,
    /// Why it was left; empty where nothing was.
    pub(super) why: &'static str,
}

impl Beside {
    /// Looks what is there, and whether it can go along. Writes nothing but the mark of the key into a store
    /// that has none.
    ///
    /// # Errors
    /// What a person must give or repair first.
    pub(super) fn look(
        (from, to): (&Place, &Place),
        key: Option<&ClusterKey>,
        journal_only: bool,
    ) -> Result<Self, String> {
        let Some(plain) = from.vault()? else {
            let way = Way::Left("a file of that name has nothing beside it");
            return Ok(Self { names: Vec::new(), way });
        };
        let names = names(&*plain).map_err(|error| chain(&error))?;
        if journal_only {
            return Ok(Self { names, way: Way::Left("--journal-only was given") });
        }
        let Some(target) = to.vault()? else {
            let why = "only a state directory, named as such, and a store keep it";
            return Ok(Self { names, way: Way::Left(why) });
        };
        let needs_key = from.is_store() || to.is_store();
        if names.is_empty() || !needs_key {
            return Ok(Self { names, way: Way::Copied { from: plain, to: target } });
        }
        let Some(key) = key else {
            return Err(format!(
                "{} beside the journal {}, and a store keeps such things encrypted: give --cluster-key-file, \
                 or leave them there with --journal-only",
                listed(&names),
                from.text()
            ));
        };
        let from = sealed(plain, from, key).map_err(|error| chain(&error))?;
        let to = sealed(target, to, key).map_err(|error| chain(&error))?;
        Ok(Self { names, way: Way::Copied { from, to } })
    }

    /// Copies what goes along. What was there under the same name is replaced.
    ///
    /// # Errors
    /// What could not be read or written.
    pub(super) fn carry(self) -> Result<Carried, String> {
        let (from, to) = match self.way {
            Way::Copied { from, to } => (from, to),
            Way::Left(why) => return Ok(Carried { left: self.names, why, ..Carried::default() }),
        };
        let each = |name: &String| match from.get(name)? {
            Some(bytes) => to.put(name, &bytes),
            None => Ok(()),
        };
        self.names.iter().try_for_each(each).map_err(|error| chain(&error))?;
        Ok(Carried { copied: self.names, ..Carried::default() })
    }
}

/// A store's vault opened by the key, and marked as one of that key; a folder's as it is.
fn sealed(
    vault: Arc<dyn Vault>,
    place: &Place,
    key: &ClusterKey,
) -> Result<Arc<dyn Vault>, StoreError> {
    if !place.is_store() {
        return Ok(vault);
    }
    let vault = SealedVault::new(vault, key);
    vault.mark_if_new()?;
    Ok(Arc::new(vault))
}

/// The names of what is there.
fn names(vault: &dyn Vault) -> Result<Vec<String>, StoreError> {
    let mut names = Vec::new();
    if vault.get(CALL_IN_KEY)?.is_some() {
        names.push(CALL_IN_KEY.to_owned());
    }
    for folder in FOLDERS {
        names.extend(vault.list(folder)?.into_iter().map(|name| format!("{folder}/{name}")));
    }
    Ok(names)
}

/// A few names, and how many more.
pub(super) fn listed(names: &[String]) -> String {
    const SHOWN: usize = 3;
    let first = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>();
    let (first, verb) = (first.join(", "), if names.len() == 1 { "lies" } else { "lie" });
    match names.len().saturating_sub(SHOWN) {
        0 => format!("{first} {verb}"),
        more => format!("{first} and {more} more lie"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a text says what lies there, and stays short.

    #[test]
    fn few_things_are_named_and_many_are_counted() {
        let names = |count: usize| (0..count).map(|number| format!("ssh-keys/{number}"));
        assert_eq!(listed(&names(1).collect::<Vec<_>>()), "`ssh-keys/0` lies");
        assert_eq!(listed(&names(2).collect::<Vec<_>>()), "`ssh-keys/0`, `ssh-keys/1` lie");
        let many = listed(&names(5).collect::<Vec<_>>());
        assert_eq!(many, "`ssh-keys/0`, `ssh-keys/1`, `ssh-keys/2` and 2 more lie");
    }
}
