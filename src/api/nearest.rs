//! Slips of the finger.

/// The known word nearest to a mistaken one, if one is near.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Words of other lengths are never near: text of any length is held against few names only.
    let near = |name: &str| name.len().abs_diff(word.len()) <= (name.len() / 3).max(2);
    known
        .filter(|name| near(name))
        .map(|name| (strsim::damerau_levenshtein(&word.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= (name.len() / 3).max(2))
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a slip of the finger finds its key; nonsense finds none.

    #[test]
    fn a_slip_finds_its_key_and_nonsense_none() {
        let known = || ["instanceCap", "memoryMb", "name", "node", "cores"].into_iter();
        assert_eq!(nearest("instanceCpa", known()), Some("instanceCap"));
        assert_eq!(nearest("instancecap", known()), Some("instanceCap"));
        assert_eq!(nearest("memory_mb", known()), Some("memoryMb"));
        assert_eq!(nearest("flavour", known()), None);
    }
}
