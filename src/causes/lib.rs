//! An error with its causes as one text, for the places where it is handled.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

use std::error::Error;

/// The error and everything beneath it, the outermost first.
pub fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}

/// The error and everything beneath it, joined by colons; what an outer text says already is not
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

    // Invariant: every cause is told, and only once.

    #[test]
    fn causes_follow_their_error_and_are_not_repeated() {
        let inner = Layer("connection refused", None);
        let middle = Layer("cannot connect: connection refused", Some(Box::new(inner)));
        let outer = Layer("`pve1` failed", Some(Box::new(middle)));
        assert_eq!(chain(&outer), "`pve1` failed: cannot connect: connection refused");
        assert_eq!(causes(&outer).count(), 3);
    }
}
