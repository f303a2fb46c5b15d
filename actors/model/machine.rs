//! The machine a service runs on, as its journal remembers it: a journal that was copied, or moved,
//! is on another one. Pure; `src/` reads the machine.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// What sets one machine apart from another. Digests, so that nothing of it is disclosed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Machine {
    /// Of `/etc/machine-id`; none where there is none.
    pub id: Option<String>,
    /// Of the hardware addresses of its network cards; a copied virtual machine gets new ones.
    pub cards: BTreeSet<String>,
}

impl Machine {
    /// Whether nothing says that they are two: neither their ids differ, nor all of their cards.
    pub fn may_be(&self, other: &Self) -> bool {
        let ids = match (&self.id, &other.id) {
            (Some(one), Some(other)) => one == other,
            (None, _) | (_, None) => true,
        };
        let unknown = self.cards.is_empty() || other.cards.is_empty();
        ids && (unknown || !self.cards.is_disjoint(&other.cards))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(id: Option<&str>, cards: &[&str]) -> Machine {
        let cards = cards.iter().map(|card| (*card).to_owned()).collect();
        Machine { id: id.map(str::to_owned), cards }
    }

    #[test]
    fn machines_are_two_where_their_ids_or_all_their_cards_differ() {
        let host = machine(Some("m1"), &["c1", "c2"]);
        assert!(host.may_be(&host));
        assert!(host.may_be(&machine(Some("m1"), &["c2", "c3"])), "one card was exchanged");
        assert!(!host.may_be(&machine(Some("m1"), &["c8", "c9"])), "a clone of the whole disk");
        assert!(!host.may_be(&machine(Some("m2"), &["c1", "c2"])));
        assert!(host.may_be(&machine(None, &[])), "a container shows nothing");
    }
}
