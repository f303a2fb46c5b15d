//! An error with its causes as one line, for the places where it is handled.

use std::error::Error;

/// The error and everything beneath it, joined by colons.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
