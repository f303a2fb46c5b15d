//! The configurations that a member has in checked form: that of its files, and those that it had before.

/// The configuration of the files, and before it the one in force and the last one. Each has its digest.
pub(super) struct Held<T> {
    newest: (String, T),
    before: Vec<(String, T)>,
}

impl<T> Held<T> {
    pub(super) fn new(digest: String, newest: T) -> Self {
        Self { newest: (digest, newest), before: Vec::new() }
    }

    /// With one of an earlier time beside it.
    pub(super) fn beside(mut self, digest: String, earlier: T) -> Self {
        if digest != self.newest.0 {
            self.before.push((digest, earlier));
        }
        self
    }

    /// The files have another one. What is in force stays.
    pub(super) fn replace(&mut self, digest: String, newest: T, in_force: Option<&str>) {
        let last = std::mem::replace(&mut self.newest, (digest, newest));
        self.before.retain(|(digest, _)| Some(digest.as_str()) == in_force);
        self.before.push(last);
        // One that is read again may have other secrets: the last reading counts.
        self.before.retain(|(digest, _)| *digest != self.newest.0);
    }

    pub(super) fn digest(&self) -> &str {
        &self.newest.0
    }

    /// The digests of those before.
    pub(super) fn before(&self) -> Vec<String> {
        self.before.iter().map(|(digest, _)| digest.clone()).collect()
    }

    /// The one with this digest, and the newest where that is another one. The newest alone where none has
    /// this digest.
    pub(super) fn with(mut self, digest: Option<&str>) -> (T, Option<T>) {
        let is_newest = digest.is_none_or(|digest| digest == self.newest.0);
        let at = self.before.iter().position(|(one, _)| Some(one.as_str()) == digest);
        match at.filter(|_| !is_newest) {
            Some(at) => (self.before.swap_remove(at).1, Some(self.newest.1)),
            None => (self.newest.1, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: what is in force stays at hand, however often the files change.

    #[test]
    fn the_configuration_in_force_outlives_edits_and_the_newest_is_known_beside_it() {
        let mut held = Held::new("a".to_owned(), 1);
        for (digest, number) in [("b", 2), ("c", 3), ("d", 4)] {
            held.replace(digest.to_owned(), number, Some("a"));
        }
        assert_eq!((held.digest(), held.before()), ("d", vec!["a".to_owned(), "c".to_owned()]));
        assert_eq!(held.with(Some("a")), (1, Some(4)));
    }

    #[test]
    fn a_configuration_that_comes_back_is_held_once_as_it_was_read_last() {
        let mut held = Held::new("a".to_owned(), 1);
        held.replace("b".to_owned(), 2, Some("a"));
        held.replace("a".to_owned(), 3, Some("a"));
        assert_eq!((held.digest(), held.before()), ("a", vec!["b".to_owned()]));
        assert_eq!(held.with(Some("a")), (3, None));
        let beside = Held::new("a".to_owned(), 1).beside("a".to_owned(), 2);
        assert_eq!(beside.before(), Vec::<String>::new());
        let beside = Held::new("a".to_owned(), 1).beside("b".to_owned(), 2);
        assert_eq!(beside.with(Some("b")), (2, Some(1)));
    }

    #[test]
    fn without_a_configuration_in_force_that_it_has_a_member_has_its_newest() {
        let mut held = Held::new("a".to_owned(), 1);
        held.replace("b".to_owned(), 2, None);
        held.replace("c".to_owned(), 3, None);
        assert_eq!(held.before(), ["b"]);
        assert_eq!(held.with(Some("a")), (3, None));
        assert_eq!(Held::new("a".to_owned(), 1).with(None), (1, None));
    }
}
