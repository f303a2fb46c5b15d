//! Counts the work of decisions. A test can then check how the work grows without a clock. Outside
//! of tests nothing is counted.

#[cfg(test)]
thread_local! {
    static SPENT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Adds the number of items that a decision inspected.
#[inline]
pub(crate) fn spend(looks: usize) {
    #[cfg(test)]
    SPENT.set(SPENT.get() + looks as u64);
    #[cfg(not(test))]
    let _: usize = looks;
}

/// Returns how many items were inspected while `work` ran.
#[cfg(test)]
pub(crate) fn of(work: impl FnOnce()) -> u64 {
    let before = SPENT.get();
    work();
    SPENT.get() - before
}
