//! Agents that went last.

use drover_api::GoneOut;

/// Agents that are gone, and jobs that were lost, as many of each as are shown.
pub(super) const LAST: usize = 8;

/// An agent that is gone, and how many of its template went for the same reason right before.
pub(super) struct Went {
    pub(super) out: GoneOut,
    pub(super) more: usize,
}

/// The last ones, newest first, those that failed alike together.
pub(super) fn went(gone: Vec<GoneOut>) -> Vec<Went> {
    let mut all: Vec<Went> = Vec::new();
    for out in gone {
        let is_alike =
            |last: &&mut Went| last.out.template == out.template && last.out.detail == out.detail;
        let is_full = all.len() == LAST;
        match all.last_mut().filter(is_alike) {
            Some(last) => last.more += 1,
            None if is_full => break,
            None => all.push(Went { out, more: 0 }),
        }
    }
    all
}
