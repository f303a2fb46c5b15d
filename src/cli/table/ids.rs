//! Short ids, as git shows its own: as much of each as distinguishes it from the others listed.

use std::collections::BTreeSet;

/// The fewest characters that are shown of the random part of an id.
const FEWEST: usize = 6;

/// Ids of which each is known by its first characters.
#[derive(Debug, Default)]
pub(super) struct Ids(BTreeSet<String>);

impl Ids {
    pub(super) fn of<'a>(all: impl Iterator<Item = &'a String>) -> Self {
        Self(all.cloned().collect())
    }

    /// The shortest beginning of this id that no other one has.
    pub(super) fn short(&self, id: &str) -> String {
        let before =
            self.0.range::<str, _>((std::ops::Bound::Unbounded, std::ops::Bound::Excluded(id)));
        let behind =
            self.0.range::<str, _>((std::ops::Bound::Excluded(id), std::ops::Bound::Unbounded));
        let near = before.last().into_iter().chain(behind.take(1));
        let unique = near.map(|other| common(id, other) + 1).max().unwrap_or(0);
        let kind = id.rfind('-').map_or(0, |dash| id[..=dash].chars().count());
        id.chars().take(unique.max(kind + FEWEST)).collect()
    }
}

/// The number of characters that two texts begin with.
fn common(one: &str, other: &str) -> usize {
    one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: no two ids of a list are shown by the same characters.

    #[test]
    fn an_id_is_as_short_as_it_can_be_without_being_another() {
        let all = ["4f8z1c3px9t2vkab", "4f8z1c3qx9t2vkab", "9abcdef012345678", "a1", "a1b"];
        let lease = "lease-7dmamjfpe7r26pbz";
        let ids = Ids::of(all.map(str::to_owned).iter().chain([&lease.to_owned()]));
        let short: Vec<String> = all.iter().chain([&lease]).map(|id| ids.short(id)).collect();
        assert_eq!(short, ["4f8z1c3p", "4f8z1c3q", "9abcde", "a1", "a1b", "lease-7dmamj"]);
        assert_eq!(Ids::default().short("4f8z1c3px9t2vkab"), "4f8z1c");
    }
}
