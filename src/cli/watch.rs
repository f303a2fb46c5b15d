//! `--watch`: the same question again and again, until somebody stops it.
//!
//! A terminal is redrawn in place. On a pipe each answer comes after an empty line.

/// Moves the cursor to the top.
const HOME: &str = "\u{1b}[H";
/// Clears the rest of the line, and of the terminal.
const CLEAR_LINE: &str = "\u{1b}[K";
const CLEAR_BELOW: &str = "\u{1b}[J";

/// What is written to show a text in place of the one before.
pub(super) fn frame(text: &str, is_terminal: bool, is_first: bool) -> String {
    match (is_terminal, is_first) {
        (true, _) => {
            let start = if is_first { format!("{HOME}{CLEAR_BELOW}") } else { HOME.to_owned() };
            let lines: String = text.lines().map(|line| format!("{line}{CLEAR_LINE}\n")).collect();
            start + &lines + CLEAR_BELOW
        }
        (false, true) => text.to_owned(),
        (false, false) => format!("\n{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a terminal shows the last answer alone, and a pipe all of them, apart from each other.

    #[test]
    fn a_terminal_is_redrawn_and_a_pipe_goes_on() {
        assert_eq!(frame("a\nb\n", true, false), "\u{1b}[Ha\u{1b}[K\nb\u{1b}[K\n\u{1b}[J");
        assert!(frame("a\n", true, true).starts_with("\u{1b}[H\u{1b}[J"));
        assert_eq!(frame("a\n", false, true) + &frame("a\n", false, false), "a\n\na\n");
    }
}
