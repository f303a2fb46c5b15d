//! Counts the work of decisions, so that a test can say how it grows without a clock. Nothing is
//! counted outside of tests.

#[cfg(test)]
thread_local! {
    static SPENT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Notes that a decision looked at so many things.
#[inline]
pub(crate) fn spend(looks: usize) {
    #[cfg(test)]
    SPENT.set(SPENT.get() + looks as u64);
    #[cfg(not(test))]
    let _: usize = looks;
}

/// How many things were looked at while this ran.
#[cfg(test)]
pub(crate) fn of(work: impl FnOnce()) -> u64 {
    let before = SPENT.get();
    work();
    SPENT.get() - before
}
