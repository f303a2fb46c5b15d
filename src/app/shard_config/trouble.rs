//! What is wrong with the configuration in the store, for those who show it.

use std::sync::Arc;

use drover_model::time::WallTime;
use parking_lot::Mutex;

/// Why the store has no configuration that can be used, and since when; none while all is well. Clones share
/// it.
#[derive(Clone, Default)]
pub(in crate::app) struct StoreTrouble(Arc<Mutex<Option<(WallTime, String)>>>);

impl StoreTrouble {
    pub(in crate::app) fn now(&self) -> Option<(WallTime, String)> {
        self.0.lock().clone()
    }

    /// Notes what is wrong now. The time stays that of its beginning.
    pub(super) fn note(&self, text: Option<String>, now: WallTime) {
        let mut noted = self.0.lock();
        if noted.as_ref().map(|(_, text)| text) != text.as_ref() {
            *noted = text.map(|text| (now, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: what is wrong has the time at which it began, until it is over.

    #[test]
    fn trouble_has_the_time_of_its_beginning() {
        let trouble = StoreTrouble::default();
        assert_eq!(trouble.now(), None);
        for at in [1, 2] {
            trouble.note(Some("it is gone".to_owned()), WallTime(at));
            assert_eq!(trouble.now(), Some((WallTime(1), "it is gone".to_owned())));
        }
        trouble.note(Some("it cannot be opened".to_owned()), WallTime(3));
        assert_eq!(trouble.now().map(|(since, _)| since), Some(WallTime(3)));
        trouble.note(None, WallTime(4));
        assert_eq!(trouble.now(), None);
    }
}
