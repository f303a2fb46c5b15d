//! An error and its causes, as an iterator or as one line of text.
//!
//! For the places where an error is handled: a log line or an answer shows [`chain`], and code that
//! looks for a certain cause walks [`causes`]. An error type itself names only its own failure and
//! holds its cause as `source`.

#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

use std::error::Error;

/// The error and its causes, the outermost first.
pub fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}

/// The text of the innermost cause, without those above it: what an operator can act on.
pub fn innermost(error: &(dyn Error + 'static)) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}

/// The error and its causes, joined by colons. A text that an outer one contains already is not
/// repeated.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in causes(error).skip(1) {
        let line = cause.to_string();
        if !text.contains(&line) {
            text.push_str(": ");
            text.push_str(&line);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Layer(&'static str, #[source] Option<Box<Layer>>);

    // Invariant: every cause appears, and only once.

    #[test]
    fn causes_follow_their_error_and_are_not_repeated() {
        let inner = Layer("connection refused", None);
        let middle = Layer("cannot connect: connection refused", Some(Box::new(inner)));
        let outer = Layer("`pve1` failed", Some(Box::new(middle)));
        assert_eq!(chain(&outer), "`pve1` failed: cannot connect: connection refused");
        assert_eq!((causes(&outer).count(), innermost(&outer)), (3, "connection refused".into()));
    }
}
