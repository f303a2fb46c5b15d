//! The agent's place in the concurrency limits.

/// The cluster is sent an end of the operation for a lent place, too: that end also says that the
/// clone is no longer in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ConcurrencyPlace {
    #[default]
    None,
    /// The agent has a place or asked for one.
    Held,
    /// Others may use the place, because no clone is seen running in it.
    Lent,
}

impl ConcurrencyPlace {
    /// Lends the place to others. `false` where there is none, or it is lent already.
    pub(super) fn lend(&mut self) -> bool {
        let held = *self == Self::Held;
        if held {
            *self = Self::Lent;
        }
        held
    }

    /// Gives the place up. `false` where there is none.
    pub(super) fn give_back(&mut self) -> bool {
        std::mem::take(self) != Self::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_lent_once_and_given_back_once() {
        let mut place = ConcurrencyPlace::Held;
        assert_eq!([place.lend(), place.lend()], [true, false]);
        assert_eq!([place.give_back(), place.give_back()], [true, false]);
        assert!(!place.lend(), "a place that was given back is not lent");
    }
}
