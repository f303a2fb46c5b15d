//! Histories of bounded length.

use std::collections::VecDeque;

/// Appends to a bounded history; gives what fell out of it.
pub(super) fn keep<T>(history: &mut VecDeque<T>, item: T, most: usize) -> Option<T> {
    history.push_back(item);
    if history.len() > most { history.pop_front() } else { None }
}
